//! Questions that get lost, as those do whose other side is gone.

use core::cell::Cell;
use std::rc::Rc;
use xk_core::{Answer, Ask, Kernel};

/// Loses one of the questions that are put to the bottoms and tops of a kernel.
#[derive(Default)]
pub struct Losses {
    counts: Cell<bool>,
    put: Cell<usize>,
    nth: Option<usize>,
    lost: Cell<Option<&'static str>>,
}

impl Losses {
    /// Loses the question with this number, from 0 on, or none.
    pub fn among(cx: &Kernel, nth: Option<usize>) -> Rc<Self> {
        let losses = Rc::new(Self { nth, ..Self::default() });
        cx.surround(Rc::clone(&losses));
        losses
    }

    /// Whether questions are counted, and may be lost; at first they are not.
    pub fn count(&self, counts: bool) {
        self.counts.set(counts);
    }

    /// Number of questions that were counted.
    pub fn put(&self) -> usize {
        self.put.get()
    }

    /// The name of the question that was lost.
    pub fn lost(&self) -> Option<&'static str> {
        self.lost.get()
    }
}

/// The answer to a question that is lost.
pub(super) fn lose(cx: &Kernel, ask: &Ask<'_>) -> Option<Answer> {
    let losses = cx.surroundings::<Losses>().filter(|losses| losses.counts.get())?;
    let number = losses.put.replace(losses.put.get() + 1);
    (losses.nth == Some(number)).then(|| {
        losses.lost.set(Some(ask.name()));
        cx.lose_question()
    })
}
