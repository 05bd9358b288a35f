//! Attributes of what comes from the other side: what may cross is a matter of each attribute and
//! of
//! whom the side believes.

use xk_core::Message;
use xk_core::message::{ATTRIBUTE_OCTETS, ATTRIBUTES_MAX, Sender};
use xk_kit::attributes;

use crate::frame::Op;
use crate::port::{NOT_ALLOWED, Port};

impl Port {
    /// Takes the attributes off that the other side may not send with this operation, and counts
    /// them.
    #[inline(never)]
    pub(crate) fn sift(&self, op: Op, frame: &mut Message) {
        let sender = match self.guard.borrow().is_some() {
            true => Sender::Program,
            false => Sender::Domain,
        };
        if frame.attributes_encoded().all(|(key, value)| allows(op, sender, frame, key, value)) {
            return;
        }
        let mut kept = [None; ATTRIBUTES_MAX];
        for (place, (key, value)) in kept.iter_mut().zip(frame.attributes_encoded()) {
            if allows(op, sender, frame, key, value) {
                *place = Some((key, value));
            } else {
                self.count(&NOT_ALLOWED);
            }
        }
        frame.clear_attributes();
        for (key, value) in kept.into_iter().flatten() {
            // Cannot be more than there were.
            let _ = frame.set_attribute_encoded(key, value);
        }
    }
}

/// Whether this side takes an attribute.
fn allows(
    op: Op,
    sender: Sender,
    message: &Message,
    key: u32,
    value: [u8; ATTRIBUTE_OCTETS],
) -> bool {
    // What no shared protocol knows is the matter of two of a graph that do.
    let Some(kind) = attributes::find(key) else {
        return sender == Sender::Domain;
    };
    let least = match op {
        Op::Push | Op::Call => kind.crosses.down,
        Op::Demux | Op::CallUp => kind.crosses.up,
        // A reply goes up to a caller, or down from a server, which may be a program.
        Op::Return if sender == Sender::Program => kind.crosses.down,
        Op::Return => kind.crosses.up.or(kind.crosses.down),
        _ => None,
    };
    least.is_some_and(|least| sender >= least) && kind.fits(message, sender, value)
}
