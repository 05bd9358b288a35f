//! Shepherds as parked threads, of which one runs at a time.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, ThreadId};

use xk_core::shepherd::{StackError, Switch};

/// Every shepherd a thread of its own, that sleeps unless it is its turn.
///
/// For Miri and the sanitizers, which cannot follow a coroutine: thousands of
/// times slower, and otherwise the same. What runs on shepherds meets here the
/// rules of threads too, which [`ThreadSwitch::new`] tells; and thread-local
/// values differ from shepherd to shepherd.
///
/// A shepherd still suspended when the switch is dropped is leaked, parked.
pub struct ThreadSwitch {
    /// The seats taken, by slot. Used by one thread at a time, ordered by the seats' mutexes.
    seats: RefCell<Vec<Option<Taken>>>,
}

struct Taken {
    seat: Arc<Seat>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Seat {
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Default)]
enum Turn {
    /// The shepherd sleeps, and its resumer runs.
    #[default]
    Resumer,
    Shepherd,
    /// `main` returned, or panicked with this.
    Over(Option<Box<dyn Any + Send>>),
}

impl Seat {
    fn give(&self, turn: Turn) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn;
        self.changed.notify_all();
    }

    fn sleeps(&self) -> bool {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*turn, Turn::Resumer)
    }

    /// Sleeps until it is the shepherd's turn.
    fn wait_shepherd(&self) {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |turn: &mut Turn| !matches!(turn, Turn::Shepherd);
        let guard = self.changed.wait_while(turn, is_other);
        drop(guard.unwrap_or_else(PoisonError::into_inner));
    }

    /// Sleeps until it is no more the shepherd's turn; what it leaves once over.
    fn wait_resumer(&self) -> Option<Option<Box<dyn Any + Send>>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shepherds = |turn: &mut Turn| matches!(turn, Turn::Shepherd);
        let guard = self.changed.wait_while(turn, is_shepherds);
        let mut turn = guard.unwrap_or_else(PoisonError::into_inner);
        match &mut *turn {
            Turn::Over(panic) => Some(panic.take()),
            _ => None,
        }
    }
}

impl ThreadSwitch {
    /// A switch without a thread yet.
    ///
    /// # Safety
    /// Nothing that is bound to one thread passes from one shepherd of this switch to another, or
    /// between a shepherd and the resumer, in a way that depends on which thread it is on:
    /// no guard of a `std::sync::Mutex` is released on another one, no reference to a thread-local
    /// value is used there. Values that are merely not `Send` (an `Rc`, a `RefCell`) may pass, as
    /// one thread runs at a time.
    #[must_use]
    pub unsafe fn new() -> Self {
        Self { seats: RefCell::default() }
    }

    fn seat(&self, slot: u32) -> (Arc<Seat>, ThreadId) {
        let seats = self.seats.borrow();
        let taken = seats.get(slot as usize).and_then(Option::as_ref);
        let taken = taken.expect("switched to a shepherd that was never created");
        (Arc::clone(&taken.seat), taken.thread.thread().id())
    }
}

impl Switch for ThreadSwitch {
    fn create(
        &self,
        slot: u32,
        stack_octets: usize,
        main: Box<dyn FnOnce()>,
    ) -> Result<(), StackError> {
        let seat = Arc::new(Seat::default());
        let carried = Carried(main);
        let shepherds_seat = Arc::clone(&seat);
        // A thread's stack also holds what the runtime needs for a panic.
        let stack_octets = stack_octets.saturating_add(256 * 1024);
        let thread = Builder::new()
            .name(format!("shepherd-{slot}"))
            .stack_size(stack_octets)
            .spawn(move || {
                shepherds_seat.wait_shepherd();
                let main = carried;
                let end = catch_unwind(AssertUnwindSafe(move || main.call()));
                shepherds_seat.give(Turn::Over(end.err()));
            })
            .map_err(|_| StackError::NoMemory)?;
        let mut seats = self.seats.borrow_mut();
        let index = slot as usize;
        if seats.len() <= index {
            seats.resize_with(index + 1, || None);
        }
        assert!(seats[index].is_none(), "shepherd {slot} created twice");
        seats[index] = Some(Taken { seat, thread });
        Ok(())
    }

    fn resume(&self, slot: u32) {
        let (seat, _) = self.seat(slot);
        assert!(seat.sleeps(), "shepherd {slot} resumed, which runs");
        seat.give(Turn::Shepherd);
        let Some(panic) = seat.wait_resumer() else {
            return;
        };
        let taken = self.seats.borrow_mut()[slot as usize].take();
        if let Some(taken) = taken {
            // Its panics were caught, so there is nothing to learn here; but
            // what it keeps for the thread must be gone before others go on.
            let _ = taken.thread.join();
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn suspend(&self, slot: u32) {
        let (seat, thread) = self.seat(slot);
        // Otherwise two threads would run from here on.
        let own = thread == std::thread::current().id() && !seat.sleeps();
        assert!(own, "shepherd {slot} suspended by another one");
        seat.give(Turn::Resumer);
        seat.wait_shepherd();
    }
}

/// Closure that a shepherd's thread takes over from the thread that creates it.
struct Carried(Box<dyn FnOnce()>);

// SAFETY: the closure and all it shares are used by one thread at a time: a
// shepherd's thread runs only between `resume` and `suspend` (or its end),
// while the resumer sleeps, and every change of turn passes through the seat's
// mutex, which orders all that was done before it. What is left, values bound
// to one thread, do not pass: the maker of the switch has promised so.
unsafe impl Send for Carried {}

impl Carried {
    fn call(self) {
        (self.0)();
    }
}
