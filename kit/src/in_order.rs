//! Items that are worked on one at a time, in the order of their coming.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};

/// Items that are worked on one at a time, in the order of their coming. One that comes while a
/// shepherd works is left to that shepherd: for work that may block, by shepherds that may not wait
/// for each other, as with [`Turns`](crate::Turns).
pub struct InOrder<T> {
    waiting: RefCell<VecDeque<T>>,
    is_working: Cell<bool>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { waiting: RefCell::default(), is_working: Cell::new(false) }
    }
}

impl<T> InOrder<T> {
    /// Works on this item and on those that come meanwhile; false if it is left to the shepherd
    /// that works already.
    pub fn work(&self, item: T, mut on: impl FnMut(T)) -> bool {
        self.waiting.borrow_mut().push_back(item);
        if self.is_working.replace(true) {
            return false;
        }
        // The borrow ends before the work, which may bring the next item.
        let next = || self.waiting.borrow_mut().pop_front();
        while let Some(item) = next() {
            on(item);
        }
        self.is_working.set(false);
        true
    }

    /// Whether a shepherd works on an item.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.is_working.get()
    }

    /// Throws away what waits.
    pub fn clear(&self) {
        // What is dropped may call back.
        drop(self.waiting.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn what_comes_meanwhile_comes_next() {
        let (items, done) = (InOrder::default(), RefCell::new(Vec::new()));
        let outer = items.work(0, |item: u32| {
            assert!(items.is_working());
            if item < 2 {
                for next in [10 * item + 2, 10 * item + 3] {
                    assert!(!items.work(next, |_| panic!("two at once")));
                }
            }
            done.borrow_mut().push(item);
        });
        assert!(outer && !items.is_working());
        assert_eq!(*done.borrow(), [0, 2, 3]);
        assert!(items.work(7, |item| done.borrow_mut().push(item)));
        assert_eq!(*done.borrow(), [0, 2, 3, 7]);
    }

    #[test]
    fn what_is_cleared_is_not_worked_on() {
        let items = InOrder::default();
        let mut done = Vec::new();
        items.work(1, |item| {
            let _ = items.work(2, |_| {});
            items.clear();
            done.push(item);
        });
        assert_eq!(done, [1]);
    }
}
