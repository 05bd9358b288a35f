//! Both sides of a cut in one thread, of which neither waits for the other.

use alloc::boxed::Box;
use alloc::rc::{Rc, Weak};
use core::cell::RefCell;
use xk_core::{Kernel, Message};

use crate::carrier::{Arrival, Carrier, SendError};
use crate::port::{Known, Port};

/// Both sides of a cut in one thread, on both ends of a carrier: each frame is delivered before its
/// sender goes on.
pub fn ports_at_once(ends: [Box<dyn Carrier>; 2], known: impl Fn() -> Known) -> [Rc<Port>; 2] {
    let others = [Rc::default(), Rc::<Other>::default()];
    let [one, other] = &others;
    let [first, second] = ends;
    let first = Prompt { carrier: first, other: Rc::clone(other) };
    let second = Prompt { carrier: second, other: Rc::clone(one) };
    let ports = [first, second].map(|end| Port::new(Box::new(end), known()));
    for (other, port) in others.iter().zip(&ports) {
        *other.borrow_mut() = Rc::downgrade(port);
    }
    ports
}

/// The port on the other side.
type Other = RefCell<Weak<Port>>;

/// A carrier that has the other side look after each frame.
struct Prompt {
    carrier: Box<dyn Carrier>,
    other: Rc<Other>,
}

impl Carrier for Prompt {
    fn room(&self) -> usize {
        self.carrier.room()
    }

    fn look_for_room(&self) {
        self.carrier.look_for_room();
    }

    fn frame_octets_max(&self) -> usize {
        self.carrier.frame_octets_max()
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        self.carrier.send(cx, head, body)?;
        self.turn(cx);
        Ok(())
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        let arrival = self.carrier.receive(cx);
        self.carrier.flush();
        arrival
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.carrier.is_lost(cx)
    }

    fn close(&self) {
        self.carrier.close();
    }

    fn flush(&self) {
        self.carrier.flush();
    }

    fn turn(&self, cx: &Kernel) {
        let other = self.other.borrow().upgrade();
        if let Some(other) = other {
            other.poll(cx, 1);
        }
    }
}
