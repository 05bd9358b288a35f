//! The client's channels: the calls that have one, and those that wait for one.

use crate::fragments::Partial;
use crate::wire::{HEADER_LEN, REPLY_KEY, Round};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallCause, SessionId};
use xk_core::shepherd::Semaphore;
use xk_core::{HostAddr, Kernel, Message, SessionRef};
use xk_kit::rpc::incarnation::{SentUnder, Server};
use xk_kit::rpc::places::Places;

/// The reply has come, or an error reply with the code in [`Channel::code`].
pub(crate) const REPLIED: u16 = 1;
/// The error of the reply.
pub(crate) const FAILED: u16 = 1 << 1;
/// The server has the request and works on it.
pub(crate) const ACKED: u16 = 1 << 2;
/// The server lacks fragments: those not in [`Channel::delivered`].
pub(crate) const PARTIAL: u16 = 1 << 3;
/// The server has no free process.
pub(crate) const REFUSED: u16 = 1 << 4;
/// The server does not know us; there is a ticket now.
pub(crate) const CHALLENGED: u16 = 1 << 5;
/// The server has rebooted.
pub(crate) const REBOOTED: u16 = 1 << 6;
/// A new fragment of the reply has come.
pub(crate) const FRAGMENT: u16 = 1 << 7;
/// The last of a batch has come, and fragments of the reply are missing.
pub(crate) const GAP: u16 = 1 << 8;
/// The caller took the call back.
pub(crate) const CANCELLED: u16 = 1 << 9;
/// The session that was called was closed.
pub(crate) const CLOSED: u16 = 1 << 10;

/// In [`Channel::rounds`]: of what goes to the server.
pub(crate) const REQUESTS: usize = 0;
/// In [`Channel::rounds`]: of what comes from it.
pub(crate) const REPLIES: usize = 1;

/// The octets by which a reply is known: hosts, channel, process, sequence number, no fragments.
pub(crate) type ReplyKey = [u8; REPLY_KEY.end - REPLY_KEY.start];

/// The key in a header.
#[inline(always)]
pub(crate) fn reply_key(octets: &[u8; HEADER_LEN]) -> ReplyKey {
    let mut key = [0; REPLY_KEY.end - REPLY_KEY.start];
    key.copy_from_slice(&octets[REPLY_KEY]);
    key
}

/// One channel: a place for one call at a time.
pub(crate) struct Channel {
    pub(crate) index: u16,
    /// A call waits on it for its reply.
    pub(crate) active: Cell<bool>,
    /// Key of the reply, if it is unfragmented.
    pub(crate) expected: Cell<ReplyKey>,
    pub(crate) semaphore: Semaphore,
    /// Events since the caller looked, as bits.
    events: Cell<u16>,
    pub(crate) reply: Cell<Option<Message>>,
    /// Octets of the reply's area 1, or the code of its error.
    pub(crate) code: Cell<u16>,
    pub(crate) sequence: Cell<u32>,
    /// The server's host.
    pub(crate) host: Cell<HostAddr>,
    pub(crate) server: RefCell<Option<Rc<Server>>>,
    pub(crate) sent_under: Cell<SentUnder>,
    pub(crate) ticket: Cell<u16>,
    /// Fragments of the request that the server has.
    pub(crate) delivered: Cell<u16>,
    /// The rounds of the request, and of its reply, of which no answer has been seen yet.
    pub(crate) rounds: [Cell<Round>; 2],
    pub(crate) partial: Partial,
    session: Cell<SessionId>,
    tag: Cell<u64>,
}

impl Channel {
    pub(crate) fn new(index: u16) -> Self {
        Self {
            index,
            active: Cell::new(false),
            expected: Cell::default(),
            semaphore: Semaphore::new(0),
            events: Cell::new(0),
            reply: Cell::new(None),
            code: Cell::new(0),
            sequence: Cell::new(0),
            host: Cell::default(),
            server: RefCell::new(None),
            sent_under: Cell::default(),
            ticket: Cell::new(0),
            delivered: Cell::new(0),
            rounds: Default::default(),
            partial: Partial::default(),
            session: Cell::new(SessionId(0)),
            tag: Cell::new(0),
        }
    }

    /// Tells the caller.
    #[inline]
    pub(crate) fn tell(&self, cx: &Kernel, event: u16) {
        if self.events.replace(self.events.get() | event) == 0 {
            cx.signal(&self.semaphore);
        }
    }

    /// Begins the next round: no answer to an earlier one counts any more.
    pub(crate) fn next_round(&self, of: usize) -> Round {
        self.rounds[of].set(self.rounds[of].get().next());
        self.rounds[of].get()
    }

    /// Takes the events since the last look.
    #[inline]
    pub(crate) fn take_events(&self) -> u16 {
        self.events.replace(0)
    }

    /// Begins a call of `session` on a server, which its holder has the channel for.
    #[inline]
    pub(crate) fn begin(&self, session: &SessionRef, server: &Rc<Server>, tag: u64) {
        let is_same = matches!(&*self.server.borrow(), Some(old) if Rc::ptr_eq(old, server));
        if !is_same {
            *self.server.borrow_mut() = Some(Rc::clone(server));
        }
        self.sent_under.set(SentUnder::default());
        self.delivered.set(0);
        self.rounds[REQUESTS].set(Round::default());
        self.rounds[REPLIES].set(Round::default());
        self.session.set(session.id());
        self.tag.set(tag);
        self.active.set(true);
    }

    /// The reply to its call, of which `area1` octets are area 1.
    #[inline]
    pub(crate) fn replied(&self, cx: &Kernel, reply: Message, area1: u16) {
        self.active.set(false);
        self.code.set(area1);
        drop(self.reply.replace(Some(reply)));
        self.tell(cx, REPLIED);
    }

    /// Ends it: nothing that comes is for it any more.
    #[inline]
    pub(crate) fn end(&self, failed: bool) {
        self.active.set(false);
        if failed || self.partial.held() != 0 || self.events.get() != 0 {
            self.clear();
        }
    }

    /// Drops every message kept and the server known.
    pub(crate) fn stop(&self) {
        self.partial.clear();
        drop(self.reply.take());
        drop(self.server.take());
    }

    #[cold]
    fn clear(&self) {
        self.partial.clear();
        self.events.set(0);
        // Told of what no call looks at any more.
        while self.semaphore.try_wait() {}
        drop(self.reply.take());
    }
}

/// All channels of a client.
pub(crate) type Channels = Places<Channel>;

/// Tells all calls of a session with this tag (any, if it is 0) that they are over. Answers whether
/// there are any.
#[cold]
pub(crate) fn tell_calls(
    channels: &Channels,
    cx: &Kernel,
    session: SessionId,
    tag: u64,
    event: u16,
) -> bool {
    let cause = match event {
        CANCELLED => CallCause::Cancelled,
        _ => CallCause::Closed,
    };
    let mut is_any = false;
    for channel in channels.iter().filter(|channel| channel.active.get()) {
        if channel.session.get() == session && (tag == 0 || channel.tag.get() == tag) {
            channel.tell(cx, event);
            is_any = true;
        }
    }
    channels.end_waits(cx, session, tag, cause) || is_any
}
