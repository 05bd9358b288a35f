//! The client entities: a fixed number, each for one transaction at a time.

use crate::blocks::{Incoming, Outgoing};
use crate::shared::Settings;
use crate::tables::ClientState;
use crate::wire::{Entity, round_of};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{CallCause, CallError, SessionId, SessionSlot};
use xk_core::{Kernel, Message, SessionRef, Time};
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::wait_queue::WaitQueue;
use xk_kit::{Cache, Pending};

/// Transactions between two calls of an entity: each may have as many groups (`STI`, RFC 1045,
/// section 3.2).
pub(crate) const STEP: u32 = 256;
/// Bit of the discriminators of clients.
const CLIENT: u32 = 0x0800_0000;
/// Largest number of servers whose responses to one request are taken.
const RESPONSES_MAX: usize = 64;

/// One response to a request for several.
pub(crate) struct Response {
    server: Entity,
    /// Parts of it; `None` once it is whole.
    parts: Option<Rc<Incoming>>,
}

/// One client entity.
pub(crate) struct Line {
    pub(crate) index: u16,
    busy: Cell<bool>,
    used: Cell<u64>,
    /// The last call on it failed: the server may still be at work on it.
    suspect: Cell<bool>,
    /// The last transaction has no response.
    pub(crate) is_datagram: Cell<bool>,
    /// Name of the entity, which the address of our host is part of.
    pub(crate) id: Cell<Entity>,
    pub(crate) state: Cell<ClientState>,
    pub(crate) transaction: Cell<u32>,
    /// Number of the call among all, to compare with that of a server's reboot.
    pub(crate) begun: Cell<u64>,
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
    /// Time at which the next packet goes, if there is a gap.
    pub(crate) paced: Cell<Time>,
    /// Several responses are wanted: until when they come, and may be asked for.
    pub(crate) gathers: Cell<Option<(Time, Time)>>,
    responses: RefCell<Vec<Response>>,
    replies: RefCell<VecDeque<Message>>,
}

impl Line {
    fn new(cx: &Kernel, index: u16) -> Self {
        Self {
            index,
            busy: Cell::new(false),
            used: Cell::new(0),
            suspect: Cell::new(false),
            is_datagram: Cell::new(false),
            id: Cell::default(),
            state: Cell::default(),
            transaction: Cell::new(cx.random().next_u32()),
            begun: Cell::new(0),
            pending: Pending::default(),
            lower: SessionSlot::default(),
            out: Outgoing::default(),
            incoming: Incoming::default(),
            blocks: Cell::new(1),
            gap: Cell::new(0),
            round: Cell::new(0),
            retries: Cell::new(0),
            refusals: Cell::new(0),
            delivered: Cell::new(0),
            wait: Cell::new(Duration::ZERO),
            sent: Cell::new(Time::ZERO),
            took: Cell::new(None),
            due: Cell::new(Time::ZERO),
            paced: Cell::new(Time::MAX),
            gathers: Cell::new(None),
            responses: RefCell::default(),
            replies: RefCell::default(),
        }
    }

    /// Whether a transaction is under way.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.state.get() != ClientState::Processing
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
    pub(crate) fn end(&self, failed: bool) {
        self.state.set(ClientState::Processing);
        self.suspect.set(failed);
        self.took.set(None);
        self.out.clear();
        self.incoming.clear();
        self.pending.end();
        self.paced.set(Time::MAX);
    }

    /// The parts of the response of this server; `None` if it has answered, or too many have.
    pub(crate) fn response_of(&self, server: Entity) -> Option<Rc<Incoming>> {
        let mut responses = self.responses.borrow_mut();
        if let Some(known) = responses.iter().find(|one| one.server == server) {
            return known.parts.clone();
        }
        if responses.len() >= RESPONSES_MAX {
            return None;
        }
        let parts = Rc::default();
        responses.push(Response { server, parts: Some(Rc::clone(&parts)) });
        Some(parts)
    }

    /// A response is whole: to the call that waits, or kept for the next.
    pub(crate) fn replied(&self, cx: &Kernel, server: Entity, reply: Message) {
        for one in self.responses.borrow_mut().iter_mut().filter(|one| one.server == server) {
            one.parts = None;
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

/// A server's manager, as its probes name it.
#[derive(Clone, Copy)]
struct Known {
    prober: Entity,
    /// Number of the calls that had begun when another was known before; 0 if none was.
    changed: u64,
}

/// All client entities.
pub(crate) struct Entities {
    list: Box<[Line]>,
    /// The bits of all discriminators, without the index.
    first: u32,
    queue: WaitQueue<u16>,
    clock: Cell<u64>,
    waits: Cell<u64>,
    /// The managers by their hosts.
    servers: Cache<u32, Known>,
}

impl Entities {
    pub(crate) fn new(cx: &Kernel, config: &Settings) -> Self {
        Self {
            list: (0..config.entities).map(|index| Line::new(cx, index)).collect(),
            // Another boot has others, and so has another instance on the same host.
            first: CLIENT | (cx.random().next_u32() & 0x7_ffff) << 8,
            queue: WaitQueue::default(),
            clock: Cell::new(0),
            waits: Cell::new(0),
            servers: Cache::new(cx.secret(), config.hosts_max),
        }
    }

    /// Name of the entity with this index at a host.
    pub(crate) fn name(&self, index: u16, host: u32) -> Entity {
        Entity::new(self.first | u32::from(index), host)
    }

    #[inline]
    fn get(&self, index: u16) -> Option<&Line> {
        self.list.get(usize::from(index))
    }

    /// All entities.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Line> {
        self.list.iter()
    }

    /// The entity with this name, if it is ours.
    #[inline]
    pub(crate) fn of(&self, client: Entity) -> Option<&Line> {
        let line = self.get((client.discriminator() & 0xff) as u16)?;
        (line.id.get() == client).then_some(line)
    }

    /// An entity for a call of `session`: that with the index `hint` if it is free, else one never
    /// used, else the one used longest ago. Waits if all are busy.
    #[inline]
    pub(crate) fn take(
        &self,
        cx: &Kernel,
        hint: u16,
        session: &SessionRef,
        options: Option<CallOptions>,
    ) -> Result<&Line, CallCause> {
        let line = match self.get(hint) {
            Some(line) if !line.busy.get() && !line.suspect.get() => line,
            _ => self.choose(cx, session, options)?,
        };
        line.busy.set(true);
        line.begun.set(self.clock.get());
        line.round.set(0);
        line.retries.set(0);
        line.refusals.set(0);
        line.delivered.set(0);
        line.is_datagram.set(false);
        line.transaction.set(line.transaction.get().wrapping_add(STEP));
        Ok(line)
    }

    #[inline(never)]
    fn choose(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        options: Option<CallOptions>,
    ) -> Result<&Line, CallCause> {
        let free = self.list.iter().filter(|line| !line.busy.get());
        match free.min_by_key(|line| (line.suspect.get(), line.used.get())) {
            Some(line) => Ok(line),
            None => {
                self.waits.set(self.waits.get() + 1);
                let pass_on = |index| self.pass_on(cx, index);
                let index = self.queue.wait(cx, session.id(), options, pass_on)?;
                self.get(index).ok_or(CallCause::Closed)
            }
        }
    }

    /// Gives an entity up: to the call that waits longest, else it is free.
    #[inline]
    pub(crate) fn give_up(&self, cx: &Kernel, line: &Line) {
        self.clock.set(self.clock.get() + 1);
        line.used.set(self.clock.get());
        if line.gathers.get().is_some() {
            line.clear_responses();
        }
        if self.queue.is_empty() {
            line.busy.set(false);
        } else {
            self.pass_on(cx, line.index);
        }
    }

    #[cold]
    fn pass_on(&self, cx: &Kernel, index: u16) {
        if let Some(line) = self.queue.grant(cx, index).and_then(|index| self.get(index)) {
            line.busy.set(false);
        }
    }

    /// The entity that gathers responses for this call.
    pub(crate) fn gathering(&self, session: SessionId, tag: u64) -> Option<&Line> {
        let is = |line: &&Line| line.gathers.get().is_some() && line.pending.is(session, Some(tag));
        self.list.iter().find(is)
    }

    /// Ends the calls of a session with this tag, any if it is 0; false if there are none.
    #[cold]
    pub(crate) fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64, why: CallCause) -> bool {
        let mut is_any = false;
        let meant = (tag != 0).then_some(tag);
        for line in self.list.iter().filter(|line| line.waits() && line.pending.is(session, meant))
        {
            line.finish(cx, Err(why.into()));
            is_any = true;
        }
        self.queue.end(cx, why, |s, t| s == session && (tag == 0 || t == tag)) || is_any
    }

    /// A server's manager asks for a transaction of this entity: false if it may not be executed,
    /// since another incarnation of that server may have done so.
    pub(crate) fn is_first(&self, line: &Line, prober: Entity) -> bool {
        let known = self.servers.get(&prober.host());
        let changed = match known {
            Some(known) if known.prober == prober => known.changed,
            Some(_) => self.clock.get() + 1,
            None => 0,
        };
        // Calls that begin from now on are newer.
        self.clock.set(self.clock.get().max(changed));
        self.servers.put(prober.host(), Known { prober, changed });
        line.begun.get() >= changed
    }

    pub(crate) fn describe(&self) -> String {
        let busy = self.list.iter().filter(|line| line.busy.get()).count();
        let (entities, waits) = (self.list.len(), self.waits.get());
        alloc::format!("{busy} of {entities} entities busy, {waits} waits for one")
    }

    /// Drops every message kept.
    pub(crate) fn stop(&self) {
        for line in &self.list {
            line.end(false);
            line.clear_responses();
            drop(line.lower.take());
        }
    }
}
