//! State of a channel at the server's side, and the walks through all channels.

use super::server::ServerSession;
use crate::table::Table;
use crate::wire::{Header, is_newer};
use core::cell::{Cell, RefCell};
use xk_core::{Kernel, PeerName, Reason, Time, reason};
use xk_kit::rpc::incarnation::{Admission, CHALLENGED, TICKET};
use xk_kit::rpc::retransmit::SavedMessage;

/// Phase of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing, and nothing is kept.
    Idle,
    /// The request of the present number is executed.
    Executing,
    /// The request was executed, and its reply is kept.
    Replied,
}

/// State of a channel.
pub(crate) struct ChannelState {
    /// The client's incarnation, as admitted.
    pub(crate) boot: Cell<u32>,
    pub(crate) ticket: Cell<u16>,
    /// Counts the incarnations.
    pub(crate) epoch: Cell<u32>,
    /// Whether a request of this incarnation has come.
    pub(crate) is_fresh: Cell<bool>,
    /// Sequence number of the last request.
    pub(crate) sequence: Cell<u32>,
    pub(crate) phase: Cell<Phase>,
    pub(crate) running: Cell<u8>,
    /// Without header; none if the call was refused, or there was no buffer.
    pub(crate) reply: RefCell<SavedMessage>,
    /// Why the call was refused, or 0.
    pub(crate) code: Cell<u16>,
    /// Time at which the client was last heard of, or asked.
    pub(crate) since: Cell<Time>,
    pub(crate) probes: Cell<u8>,
}

impl ChannelState {
    pub(crate) fn new(boot: u32, ticket: u16) -> Self {
        Self {
            boot: Cell::new(boot),
            ticket: Cell::new(ticket & TICKET),
            epoch: Cell::new(0),
            is_fresh: Cell::new(true),
            sequence: Cell::new(0),
            phase: Cell::new(Phase::Idle),
            running: Cell::new(0),
            reply: RefCell::default(),
            code: Cell::new(0),
            since: Cell::new(Time::ZERO),
            probes: Cell::new(0),
        }
    }

    /// Whether a request comes after all that came before.
    #[inline(always)]
    pub(crate) fn is_new(&self, sequence: u32) -> bool {
        self.is_fresh.get() || is_newer(sequence, self.sequence.get())
    }

    /// Keeps the channel of an incarnation that is not this one from being mistaken for its own:
    /// forgets all. True if it was busy.
    pub(crate) fn forget_unless(&self, boot: u32) -> bool {
        if self.boot.get() == boot {
            return false;
        }
        self.epoch.set(self.epoch.get().wrapping_add(1));
        self.is_fresh.set(true);
        self.boot.set(0);
        self.reply.borrow_mut().clear();
        self.phase.replace(Phase::Idle) != Phase::Idle
    }
}

/// Judges a packet by the boot id and ticket in its header; one of a new incarnation ends the
/// channels of the host's others. `challenge` sends a ticket.
///
/// # Errors
/// Why it is refused.
#[cold]
pub(crate) fn admit(
    cx: &Kernel,
    table: &Table,
    host: PeerName,
    &Header { boot, error: ticket, .. }: &Header,
    challenge: impl FnOnce(u16),
) -> Result<(), &'static Reason> {
    match table.clients.admit(host, boot, ticket, |_| true) {
        Admission::Known => return Ok(()),
        Admission::Replaced => {}
        Admission::Full => return Err(&reason::TABLE_FULL),
        Admission::Challenge(ticket) => {
            challenge(ticket);
            return Err(&CHALLENGED);
        }
    }
    for session in table.sessions.sessions(usize::MAX) {
        if let Some(server) = session.body::<ServerSession>()
            && server.end.key.0 == host
            && server.state.forget_unless(boot)
        {
            session.close(cx);
        }
    }
    Ok(())
}

/// The sweep: looks after all channels whose reply is kept. True if there are any left.
pub(crate) fn sweep(cx: &Kernel, table: &Table) -> bool {
    let mut keeps = false;
    for session in table.sessions.sessions(usize::MAX) {
        let server = session.body::<ServerSession>();
        keeps |= server.is_some_and(|server| server.look_after(cx, &session));
    }
    keeps
}
