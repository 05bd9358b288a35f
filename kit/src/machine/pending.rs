//! An answer that a peer was asked for.

use core::cell::RefCell;
use xk_core::Kernel;
use xk_core::shepherd::Semaphore;

/// An answer that is looked for, and that several may wait for.
#[derive(Default)]
pub struct Pending<T> {
    answer: RefCell<Option<T>>,
    ended: Semaphore,
}

impl<T: Clone> Pending<T> {
    /// Whether there is an answer.
    pub fn is_over(&self) -> bool {
        self.answer.borrow().is_some()
    }

    /// Sets the answer.
    pub fn end(&self, cx: &Kernel, answer: T) {
        *self.answer.borrow_mut() = Some(answer);
        cx.signal(&self.ended);
    }

    /// The answer; waits for it on a shepherd that may wait.
    pub fn get(&self, cx: &Kernel) -> Option<T> {
        if !self.is_over() && cx.wait(&self.ended, None).is_ok() {
            // The next one that waits for it goes on, too.
            cx.signal(&self.ended);
        }
        self.answer.borrow().clone()
    }
}
