//! Questions from below.

use super::*;
use xk_core::{Part, Participant};

struct Far;

impl Protocol for Far {
    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        Ok(Enable(1))
    }
}

/// Passes down what it does not know.
struct Top(ProtocolRef);

impl Protocol for Top {
    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0)
    }
}

#[test]
fn a_question_that_no_upper_understands_goes_up_once() {
    let cx = xk_run::real_kernel(1 << 20).unwrap();
    let far = cx.add_protocol("tcp", "tcp", Far);
    let parts = Parts::new(far.clone(), &Membership::new(far));
    let library = cx.add_protocol("library", "library", Library(parts));
    let top = cx.add_protocol("top", "top", Top(library.clone()));
    let port = Participants::local(Participant::of(Part::port(9)));
    let _ = library.open_enable(&cx, Upper::new(&top), port).unwrap();
    let room = StreamRoom::at(None, 9);
    assert!(library.ask(&cx, room).is_none());
}
