//! The cost of a shepherd.

use crate::case::{Case, Goal};
use std::cell::Cell;
use std::rc::Rc;
use xk_core::shepherd::{Flow, Limits, Semaphore, Shepherds};
use xk_run::switch::CoroutineSwitch;

fn shepherds() -> Rc<Shepherds> {
    Rc::new(Shepherds::new(Box::new(CoroutineSwitch::new()), Limits::default()))
}

pub(crate) fn cases() -> Vec<Case> {
    vec![dispatch(), block_and_resume()]
}

pub(crate) fn dispatch() -> Case {
    Case::new("dispatch without a block", 1_000_000, || {
        let left = Rc::new(Cell::new(0));
        let body = {
            let left = Rc::clone(&left);
            move || {
                left.set(left.get() - 1_u64);
                if left.get() == 0 { Flow::Stop } else { Flow::Continue }
            }
        };
        run_body(shepherds(), left, 1, body)
    })
    .goal(Goal::AtMost(8.0))
}

/// Runs the body until it has counted `left` down from `per` times the operations.
fn run_body(
    shepherds: Rc<Shepherds>,
    left: Rc<Cell<u64>>,
    per: u64,
    body: impl Fn() -> Flow + 'static,
) -> impl FnMut(u64) {
    let body: Rc<dyn Fn() -> Flow> = Rc::new(body);
    move |operations| {
        left.set(per * operations);
        shepherds.run(Rc::clone(&body)).expect("a shepherd can be made");
    }
}

/// Odd messages wait, even ones signal: the first blocks, the second makes it ready, the loop
/// resumes it.
pub(crate) fn block_and_resume() -> Case {
    Case::new("one block and resume (two dispatches)", 200_000, || {
        let shepherds = shepherds();
        let semaphore = Semaphore::new(0);
        let left = Rc::new(Cell::new(0));
        let body = {
            let (shepherds, left) = (Rc::clone(&shepherds), Rc::clone(&left));
            move || {
                let n: u64 = left.get();
                if n == 0 {
                    return Flow::Stop;
                }
                left.set(n - 1);
                if n.is_multiple_of(2) {
                    let _ = semaphore.wait(&shepherds);
                } else {
                    semaphore.signal(&shepherds);
                }
                Flow::Continue
            }
        };
        run_body(shepherds, left, 2, body)
    })
    .goal(Goal::AtMost(40.0))
}
