//! Turns: work per key that may block, done by one shepherd at a time, so that later messages do
//! not overtake the first.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::Kernel;
use xk_core::shepherd::Semaphore;

/// One turn at a time for each key; the next goes to the shepherd that waits longest.
pub struct Turns<K>(RefCell<Vec<Taken<K>>>);

struct Taken<K> {
    key: K,
    waiting: usize,
    semaphore: Option<Rc<Semaphore>>,
}

/// A turn, until it is dropped. The next shepherd goes on once this one blocks or is done.
pub struct Turn<'a, K: Copy + PartialEq> {
    turns: &'a Turns<K>,
    cx: &'a Kernel,
    /// `None` for a shepherd that could not wait, and works at the same time as the other.
    key: Option<K>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K: Copy + PartialEq> Turns<K> {
    /// Takes this key's turn; waits while it is taken.
    pub fn take<'a>(&'a self, cx: &'a Kernel, key: K) -> Turn<'a, K> {
        self.take_within(cx, key, None)
    }

    /// Takes this key's turn; waits while it is taken, so long at most.
    pub fn take_within<'a>(
        &'a self,
        cx: &'a Kernel,
        key: K,
        limit: Option<Duration>,
    ) -> Turn<'a, K> {
        let (turns, turn) = (self, Some(key));
        let semaphore = {
            let mut all = self.0.borrow_mut();
            let Some(taken) = all.iter_mut().find(|taken| taken.key == key) else {
                // One at a time: seldom is there a second.
                if all.capacity() == 0 {
                    all.reserve_exact(1);
                }
                all.push(Taken { key, waiting: 0, semaphore: None });
                return Turn { turns, cx, key: turn };
            };
            taken.waiting += 1;
            Rc::clone(taken.semaphore.get_or_insert_with(|| Rc::new(Semaphore::new(0))))
        };
        // The wait may have ended otherwise in the moment in which it was given the turn.
        if cx.wait(&semaphore, limit).is_ok() || semaphore.try_wait() {
            return Turn { turns, cx, key: turn };
        }
        if let Some(taken) = self.0.borrow_mut().iter_mut().find(|taken| taken.key == key) {
            taken.waiting -= 1;
        }
        Turn { turns, cx, key: None }
    }
}

impl<K: Copy + PartialEq> Turn<'_, K> {
    /// False for a shepherd that could not wait, or not so long.
    pub fn is_taken(&self) -> bool {
        self.key.is_some()
    }
}

impl<K: Copy + PartialEq> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut all = self.turns.0.borrow_mut();
        let Some(at) = all.iter().position(|taken| Some(taken.key) == self.key) else {
            return;
        };
        let Taken { waiting, semaphore, .. } = &mut all[at];
        match semaphore.as_ref().filter(|_| *waiting > 0) {
            Some(semaphore) => {
                *waiting -= 1;
                self.cx.signal(semaphore);
            }
            None => drop(all.swap_remove(at)),
        }
    }
}
