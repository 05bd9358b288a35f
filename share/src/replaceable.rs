//! A carrier that outlives the other side.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};

use crate::carrier::{Arrival, Carrier, SendError};
use crate::port::Port;

/// A carrier in whose place another one can be put: to a process that does what the one before did,
/// which is gone.
#[derive(Clone)]
pub struct Replaceable(Rc<RefCell<Box<dyn Carrier>>>);

impl Replaceable {
    /// This one, for now.
    pub fn new(carrier: Box<dyn Carrier>) -> Self {
        Self(Rc::new(RefCell::new(carrier)))
    }

    /// Puts another one in its place; [`Port::renew`] goes on with it. Not for
    /// use within an operation of a carrier.
    pub fn replace(&self, carrier: Box<dyn Carrier>) {
        drop(self.0.replace(carrier));
    }
}

impl Carrier for Replaceable {
    fn room(&self) -> usize {
        self.0.borrow().room()
    }

    fn frame_octets_max(&self) -> usize {
        self.0.borrow().frame_octets_max()
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        self.0.borrow().send(cx, head, body)
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        self.0.borrow().receive(cx)
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.0.borrow().is_lost(cx)
    }

    fn close(&self) {
        self.0.borrow().close();
    }

    fn flush(&self) {
        self.0.borrow().flush();
    }

    fn turn(&self, cx: &Kernel) {
        self.0.borrow().turn(cx);
    }

    fn next_poll(&self) -> Option<Time> {
        self.0.borrow().next_poll()
    }

    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        self.0.borrow().rest(cx, sleeper)
    }

    fn woken(&self) {
        self.0.borrow().woken();
    }

    fn may_spin(&self) -> bool {
        self.0.borrow().may_spin()
    }
}

impl Port {
    /// Goes on with a carrier to what has come in the place of the other side, which is gone; to be
    /// called once that carrier has been put in ([`Replaceable`]). For a side
    /// below the cut alone: what stood above it is known to nothing here any more.
    pub fn renew(&self) {
        drop((self.outbox.take(), self.noted.take(), self.kept.take()));
        drop((self.users.take(), self.understood.take(), self.early.take()));
        self.retry_at.set(None);
        self.is_lost.set(false);
    }
}
