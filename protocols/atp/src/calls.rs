//! The calls that wait for their replies, and messages as the machines keep them.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::atp::{Arrived, Packet, Payload, Peer};
use xk_core::object::{CallCause, SessionId};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message};

/// The data of a packet: a message, whose buffers are shared by what is kept and what is sent.
pub(crate) struct Data(pub(crate) Message);

impl Payload for Data {
    #[inline]
    fn octets(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn again(&self) -> Option<Self> {
        self.0.try_clone().ok().map(Self)
    }

    #[inline]
    fn cut(&mut self, octets: usize) -> Option<Self> {
        self.0.split_front(octets).ok().map(Self)
    }

    #[inline]
    fn join(&mut self, behind: Self) {
        self.0.join(behind.0);
    }
}

/// The other end of a session below. Whatever addresses the layer below has, this names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// Both ends of the conversation.
    pub(crate) ends: u64,
    /// The peer's host, or whatever is below the topmost part of its address.
    pub(crate) host: u32,
}

impl Peer for Origin {
    fn host(&self) -> u32 {
        self.host
    }
}

/// State of a call.
#[derive(Default)]
pub(crate) enum Outcome {
    /// The call waits.
    #[default]
    Waiting,
    /// All responses are there.
    Done {
        /// Bitmap of the wanted responses.
        wanted: u8,
        /// Responses that came.
        arrived: Arrived<Data>,
        /// To be sent.
        release: Option<Packet<Origin, Data>>,
    },
    /// The call ends without a reply.
    Ended(CallCause),
}

/// One call; used again and again, so that a call allocates nothing.
pub(crate) struct Call {
    /// Signalled when the call no longer waits.
    pub(crate) done: Semaphore,
    outcome: Cell<Outcome>,
    session: Cell<SessionId>,
    tag: Cell<u64>,
}

impl Call {
    /// Whether it is this session's, with this tag if one is given.
    pub(crate) fn is(&self, session: SessionId, tag: Option<u64>) -> bool {
        self.session.get() == session && tag.is_none_or(|tag| self.tag.get() == tag)
    }

    /// Ends its wait.
    pub(crate) fn finish(&self, cx: &Kernel, outcome: Outcome) {
        self.outcome.set(outcome);
        cx.signal(&self.done);
    }

    /// Takes the call's end.
    pub(crate) fn take(&self) -> Outcome {
        self.outcome.take()
    }
}

/// Calls that are not in use.
#[derive(Default)]
pub(crate) struct Spare(RefCell<Vec<Rc<Call>>>);

impl Spare {
    /// A call of this session with this tag.
    pub(crate) fn take(&self, session: SessionId, tag: u64) -> Rc<Call> {
        let call = self.0.borrow_mut().pop().unwrap_or_else(|| {
            Rc::new(Call {
                done: Semaphore::new(0),
                outcome: Cell::default(),
                session: Cell::new(session),
                tag: Cell::new(tag),
            })
        });
        call.session.set(session);
        call.tag.set(tag);
        call
    }

    /// Takes one back that has ended, whatever in.
    pub(crate) fn give(&self, call: Rc<Call>) {
        // A signal that came too late must not end another call's wait.
        while call.done.try_wait() {}
        drop(call.take());
        self.0.borrow_mut().push(call);
    }
}
