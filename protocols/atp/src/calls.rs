//! The calls that wait for their replies, and messages as the machines keep them.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_appletalk::atp::{Arrived, Packet, Payload, Peer};
use xk_core::Message;
use xk_core::object::{CallCause, SessionId};
use xk_kit::Pending;

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

/// Outcome of a call: the bitmap of the wanted responses, those that came, and what is to be sent.
pub(crate) type Outcome = Result<(u8, Arrived<Data>, Option<Packet<Origin, Data>>), CallCause>;
/// One call.
pub(crate) type Call = Pending<Outcome>;

/// Calls that are not in use.
#[derive(Default)]
pub(crate) struct Spare(RefCell<Vec<Rc<Call>>>);

impl Spare {
    /// A call of this session with this tag.
    pub(crate) fn take(&self, session: SessionId, tag: u64) -> Rc<Call> {
        let call = self.0.borrow_mut().pop().unwrap_or_default();
        call.begin(session, tag);
        call
    }

    /// Takes one back that has ended, whatever in.
    pub(crate) fn give(&self, call: Rc<Call>) {
        call.end();
        self.0.borrow_mut().push(call);
    }
}
