//! The lower halves: what stands on the protocol below, in each subsystem.

pub(crate) mod bsd;
pub(crate) mod ether;
pub(crate) mod streams;
pub(crate) mod xk;

use crate::edge::{Below, Traffic};
use crate::form::Form;
use alloc::rc::Rc;
use bsd::OnBsd;
use ether::OnEther;
use xk_bsd::Bsd;
use xk_bsd::errno::Errno;
use xk_core::object::ProtocolId;
use xk_core::{Kernel, ProtocolRef};

/// The lower half on a line of BSD, whichever that is.
pub(crate) enum OnLine {
    /// On a protocol.
    Protocol(Rc<OnBsd>),
    /// On an interface.
    Interface(Rc<OnEther>),
}

impl OnLine {
    /// On the line that is the node `lower`. None if that is not of the subsystem.
    pub(crate) fn new(
        bsd: &Rc<Bsd>,
        form: &'static Form,
        lower: ProtocolId,
        down: &Rc<Traffic>,
    ) -> Option<Self> {
        match form.is_link() {
            true => OnEther::new(bsd, lower, down).map(|half| Self::Interface(Rc::new(half))),
            false => OnBsd::new(bsd, form, lower, down).map(|half| Self::Protocol(Rc::new(half))),
        }
    }

    pub(crate) fn below(&self) -> Rc<dyn Below> {
        match self {
            Self::Protocol(half) => Rc::clone(half) as _,
            Self::Interface(half) => Rc::clone(half) as _,
        }
    }

    /// Tells it its node.
    pub(crate) fn placed(&self, cx: &Kernel, node: &ProtocolRef) -> Result<(), Errno> {
        match self {
            Self::Protocol(half) => half.register(cx, node.id()),
            Self::Interface(half) => {
                half.placed(node);
                Ok(())
            }
        }
    }
}
