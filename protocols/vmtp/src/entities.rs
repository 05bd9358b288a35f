//! The client entities: a fixed number, each for one transaction at a time.

use crate::blocks::{Incoming, Outgoing};
use crate::shared::{Path, Settings};
use crate::tables::{self, ClientAction, ClientEvent, ClientState};
use crate::wire::{Entity, round_of};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{CallCause, CallError, SessionId, SessionSlot};
use xk_core::{Kernel, Message, SessionRef, Time};
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::places::{Place, Places};
use xk_kit::{Cache, Pending};

/// Transactions between two calls of an entity: each may have as many groups (`STI`, RFC 1045,
/// section 3.2).
pub(crate) const STEP: u32 = 256;
/// Bit of the discriminators of clients.
const CLIENT: u32 = 0x0800_0000;
/// Largest number of servers whose responses to one request are taken.
const RESPONSES_MAX: usize = 64;

/// One client entity.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) index: u16,
    /// The last transaction has no response.
    pub(crate) is_datagram: Cell<bool>,
    /// Name of the entity, which the address of our host is part of.
    pub(crate) id: Cell<Entity>,
    pub(crate) state: Cell<ClientState>,
    pub(crate) transaction: Cell<u32>,
    /// Number of reboots of servers that were known when the call began.
    pub(crate) begun: Cell<u32>,
    pub(crate) pending: Pending<Result<Message, CallError>>,
    /// The session below that the request goes through.
    pub(crate) lower: SessionSlot,
    pub(crate) out: Outgoing,
    pub(crate) incoming: Incoming,
    /// Blocks in a packet.
    pub(crate) blocks: Cell<u32>,
    /// Gap between packets, in 1/32 of a packet's time.
    pub(crate) gap: Cell<u8>,
    /// Number of transmissions of the request, modulo 8 on the wire.
    pub(crate) round: Cell<u32>,
    /// Timeouts in a row, and times in a row that the server was busy.
    pub(crate) retries: Cell<u32>,
    pub(crate) refusals: Cell<u32>,
    /// Blocks that the server had when it told of them last.
    pub(crate) delivered: Cell<u32>,
    pub(crate) wait: Cell<Duration>,
    /// Time of the last transmission, and how long its first answer took.
    pub(crate) sent: Cell<Time>,
    pub(crate) took: Cell<Option<Duration>>,
    /// Time of the next action.
    pub(crate) due: Cell<Time>,
    /// Several responses are wanted: until when they come, and may be asked for.
    pub(crate) gathers: Cell<Option<(Time, Time)>>,
    /// The servers that respond to it; parts of a response, until it is whole.
    responses: RefCell<Vec<(Entity, Option<Rc<Incoming>>)>>,
    replies: RefCell<VecDeque<Message>>,
}

impl Line {
    /// Takes the step of the table; its action.
    #[inline]
    pub(crate) fn step(&self, event: ClientEvent) -> ClientAction {
        let (state, action) = tables::client(self.state.get(), event);
        self.state.set(state);
        action
    }

    /// Whether a transaction is under way.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.state.get() != ClientState::Processing
    }

    /// Begins the next transmission of the request.
    pub(crate) fn next_round(&self) {
        self.round.set(self.round.get() + 1);
        self.out.set_round(self.round.get());
    }

    /// An answer has come: measures, if it is one to the last transmission (RFC 1045, section 4.1).
    #[cold]
    pub(crate) fn answered(&self, cx: &Kernel, control: u32) {
        if round_of(control) == self.round.get() & 7 && self.took.get().is_none() {
            self.took.set(Some(cx.now().since(self.sent.get())));
        }
    }

    /// Ends the transaction with this outcome.
    #[inline]
    pub(crate) fn finish(&self, cx: &Kernel, outcome: Result<Message, CallError>) {
        self.state.set(ClientState::Processing);
        self.pending.finish(cx, outcome);
    }

    /// Ends it: nothing that comes is for it any more.
    #[inline]
    pub(crate) fn end(&self) {
        self.state.set(ClientState::Processing);
        self.took.set(None);
        self.out.clear();
        self.incoming.clear();
        self.pending.end();
    }

    /// The parts of the response of this server; `None` if it has answered, or too many have.
    pub(crate) fn response_of(&self, server: Entity) -> Option<Rc<Incoming>> {
        let mut responses = self.responses.borrow_mut();
        if let Some((_, parts)) = responses.iter().find(|(from, _)| *from == server) {
            return parts.clone();
        }
        if responses.len() >= RESPONSES_MAX {
            return None;
        }
        let parts = Rc::default();
        responses.push((server, Some(Rc::clone(&parts))));
        Some(parts)
    }

    /// A response is whole: to the call that waits, or kept for the next.
    pub(crate) fn replied(&self, cx: &Kernel, server: Entity, reply: Message) {
        for (_, parts) in self.responses.borrow_mut().iter_mut().filter(|(from, _)| *from == server)
        {
            *parts = None;
        }
        self.replies.borrow_mut().push_back(reply);
        self.pending.wake(cx);
    }

    /// The next reply that is there.
    pub(crate) fn next_reply(&self) -> Option<Message> {
        self.replies.borrow_mut().pop_front()
    }

    fn clear_responses(&self) {
        self.gathers.set(None);
        self.responses.borrow_mut().clear();
        drop(self.replies.take());
    }
}

/// All client entities.
pub(crate) struct Entities {
    pub(crate) lines: Places<Line>,
    /// The bits of all discriminators, without the index.
    first: u32,
    /// Number of reboots of servers that are known.
    reboots: Cell<u32>,
    /// The managers of servers, as their probes name them, by their hosts; and the number of
    /// reboots that were known when another was known before, 0 if none was.
    servers: Cache<u32, (Entity, u32)>,
}

impl Entities {
    pub(crate) fn new(cx: &Kernel, config: &Settings) -> Self {
        let random = || cx.random().next_u32();
        let line = |index| Line { index, transaction: Cell::new(random()), ..Line::default() };
        Self {
            lines: Places::new(config.entities, line),
            // Another boot has others, and so has another instance on the same host.
            first: CLIENT | (random() & 0x7_ffff) << 8,
            reboots: Cell::new(0),
            servers: Cache::new(cx.secret(), config.hosts_max),
        }
    }

    /// The entity with this name, if it is ours.
    #[inline]
    pub(crate) fn of(&self, client: Entity) -> Option<&Line> {
        let line = self.lines.get((client.discriminator() & 0xff) as u16)?;
        (line.id.get() == client).then_some(line)
    }

    /// An entity for a call of `session`, through `lower`, from our host of this number.
    #[inline]
    pub(crate) fn take(
        &self,
        cx: &Kernel,
        hint: u16,
        session: &SessionRef,
        options: Option<CallOptions>,
        (lower, path): (&SessionRef, Path),
    ) -> Result<&Place<Line>, CallCause> {
        let adopt = |line: &Line| {
            line.id.set(Entity::new(self.first | u32::from(line.index), path.own));
            line.blocks.set(path.blocks);
            drop(line.lower.replace(Some(lower.clone())));
        };
        let suited = (|line: &Line| line.lower.has(lower), adopt);
        let line = self.lines.take(cx, hint, session, options, suited)?;
        line.begun.set(self.reboots.get());
        line.round.set(0);
        line.retries.set(0);
        line.refusals.set(0);
        line.delivered.set(0);
        line.is_datagram.set(false);
        line.transaction.set(line.transaction.get().wrapping_add(STEP));
        Ok(line)
    }

    /// Gives an entity up.
    #[inline]
    pub(crate) fn give_up(&self, cx: &Kernel, line: &Place<Line>, failed: bool) {
        line.end();
        if line.gathers.get().is_some() {
            line.clear_responses();
        }
        self.lines.give_up(cx, line, failed);
    }

    /// The entity that gathers responses for this call.
    pub(crate) fn gathering(&self, session: SessionId, tag: u64) -> Option<&Place<Line>> {
        let is = |line: &&Place<Line>| {
            line.gathers.get().is_some() && line.pending.is(session, Some(tag))
        };
        self.lines.iter().find(is)
    }

    /// Ends the calls of a session with this tag, any if it is 0; false if there are none.
    #[cold]
    pub(crate) fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64, why: CallCause) -> bool {
        let mut is_any = false;
        let meant = (tag != 0).then_some(tag);
        for line in self.lines.iter() {
            if line.waits() && line.pending.is(session, meant) {
                line.finish(cx, Err(why.into()));
                is_any = true;
            }
        }
        self.lines.end_waits(cx, session, tag, why) || is_any
    }

    /// A server's manager asks for a transaction of this entity: false if it may not be executed,
    /// since another incarnation of that server may have done so.
    pub(crate) fn is_first(&self, line: &Line, prober: Entity) -> bool {
        let known = self.servers.get(&prober.host());
        let changed = match known {
            Some((known, changed)) if known == prober => changed,
            Some(_) => {
                // Calls that begin from now on are newer.
                self.reboots.set(self.reboots.get() + 1);
                self.reboots.get()
            }
            None => 0,
        };
        self.servers.put(prober.host(), (prober, changed));
        line.begun.get() >= changed
    }

    pub(crate) fn describe(&self) -> String {
        let (entities, busy, waits) = self.lines.figures();
        alloc::format!("{busy} of {entities} entities busy, {waits} waits for one")
    }

    /// Drops every message kept.
    pub(crate) fn stop(&self) {
        for line in self.lines.iter() {
            line.end();
            line.clear_responses();
            drop(line.lower.take());
        }
    }
}
