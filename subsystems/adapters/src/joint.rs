//! The protocol object of an adapter neither of whose halves is the x-kernel's: a node for its name
//! and its counters.

use crate::edge::{Above, Below, Edge, upper_of};
use alloc::rc::Rc;
use xk_core::control::Report;
use xk_core::object::OpenError;
use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef};

pub(crate) struct Joint {
    pub(crate) edge: Rc<Edge>,
    pub(crate) above: Rc<dyn Above>,
    pub(crate) below: Rc<dyn Below>,
}

impl Protocol for Joint {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        match upper_of(cx, this.name(), &self.edge.lower) {
            Some(upper) => self.above.start(cx, &upper).map_err(OpenError::from),
            None => Ok(()),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(report) = ask.get::<Report>() {
            self.edge.report(report);
            return Answer::Answered;
        }
        self.edge.lower.control(cx, ask)
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.edge.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.above.stop(cx);
        self.below.stop(cx);
        self.edge.stop();
    }
}
