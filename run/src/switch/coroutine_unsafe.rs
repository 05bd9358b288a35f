//! Shepherds as stackful coroutines.

use std::cell::{Cell, UnsafeCell};
use std::mem;
use std::ptr;
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use xk_core::shepherd::{StackError, Switch};

use super::overflow_unsafe::{self, Watch};

type Suspender = Yielder<(), ()>;

/// Octets of a stack that are touched when it is made: a call through ten layers, both ways, takes
/// less.
const TOUCHED_OCTETS: usize = 16 * 1024;

/// Every shepherd a coroutine of its own, on a stack with a guard page below.
///
/// The coroutine outlives the messages it carries, so a switch is all that a
/// pooled shepherd costs. An overflow of a stack ends the process, after a line
/// on standard error that names the shepherd; the handler for it is installed
/// with the first switch, and passes on every other fault.
pub struct CoroutineSwitch {
    /// The seats by slot. They are added and never taken away.
    seats: UnsafeCell<Vec<Rc<Seat>>>,
    page_octets: usize,
}

/// State of one slot, shared by its coroutines, one after the other.
struct Seat {
    state: Cell<SeatState>,
    /// Lowest address of the stack, and its length. The length is not 0 only
    /// from the first resume to the end of `main`.
    stack_low: Cell<usize>,
    stack_octets: Cell<usize>,
    /// The yielder of the coroutine, while the length is not 0.
    suspender: Cell<*const Suspender>,
    /// Present unless vacant. While running it is the resumer's alone.
    live: UnsafeCell<Option<Live>>,
}

impl Seat {
    fn vacant() -> Rc<Seat> {
        Rc::new(Seat {
            state: Cell::new(SeatState::Vacant),
            stack_low: Cell::new(0),
            stack_octets: Cell::new(0),
            suspender: Cell::new(ptr::null()),
            live: UnsafeCell::new(None),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SeatState {
    Vacant,
    /// Created or suspended: may be resumed.
    Resting,
    /// The coroutine runs, or is suspended in a resume of another one.
    Running,
}

struct Live {
    coroutine: Coroutine<(), (), ()>,
    /// Dropped after the coroutine, which owns the stack it watches.
    _watch: Watch,
}

impl CoroutineSwitch {
    /// A switch without a coroutine yet.
    pub fn new() -> Self {
        overflow_unsafe::install();
        CoroutineSwitch { seats: UnsafeCell::default(), page_octets: page_octets() }
    }

    #[inline]
    fn seat(&self, slot: u32) -> Option<&Seat> {
        // SAFETY: the switch stays on one thread, and no code writes to the
        // vector meanwhile: `have_seat` alone does, and runs no other code.
        let seats = unsafe { &*self.seats.get() };
        // The seat itself never moves when the vector grows, and is counted
        // there as long as the switch is borrowed.
        seats.get(slot as usize).map(|seat| &**seat)
    }

    fn have_seat(&self, slot: u32) -> Rc<Seat> {
        // SAFETY: the switch stays on one thread, and no reference into the
        // vector is held beyond `seat` and this function, neither of which
        // calls the other or code that could.
        let seats = unsafe { &mut *self.seats.get() };
        let index = slot as usize;
        if seats.len() <= index {
            seats.resize_with(index + 1, Seat::vacant);
        }
        Rc::clone(&seats[index])
    }

    /// A stack with its guard page lowest, and its upper part touched: the page faults of what
    /// nearly every message needs come here and not under it. A stack that waits deeper pays for
    /// the further pages once, and ten thousand that do not take a third.
    fn new_stack(&self, stack_octets: usize) -> Result<DefaultStack, StackError> {
        if stack_octets > isize::MAX as usize / 2 {
            return Err(StackError::NoMemory);
        }
        let page = self.page_octets;
        let usable = stack_octets.max(2 * page).next_multiple_of(page);
        let stack = DefaultStack::new(usable).map_err(|_| StackError::NoMemory)?;
        for below in (page..=usable.min(TOUCHED_OCTETS)).step_by(page) {
            let octet = ptr::with_exposed_provenance_mut::<u8>(stack.base().get() - below);
            // SAFETY: the octet lies in the `usable` octets below the base,
            // which are mapped writable; nothing is on this stack yet.
            unsafe { octet.write_volatile(0) };
        }
        Ok(stack)
    }
}

impl Default for CoroutineSwitch {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch for CoroutineSwitch {
    fn create(
        &self,
        slot: u32,
        stack_octets: usize,
        main: Box<dyn FnOnce()>,
    ) -> Result<(), StackError> {
        let stack = self.new_stack(stack_octets)?;
        let (low, high) = (stack.limit().get(), stack.base().get());
        let seat = self.have_seat(slot);
        let vacant = seat.state.get() == SeatState::Vacant;
        assert!(vacant, "shepherd {slot} created twice");
        let watch = Watch::new(slot, low..high, self.page_octets);
        let coroutine = {
            let seat = Rc::clone(&seat);
            Coroutine::with_stack(stack, move |yielder: &Suspender, ()| {
                seat.suspender.set(yielder);
                seat.stack_low.set(low);
                seat.stack_octets.set(high - low);
                let _end = MainEnd(seat);
                main();
            })
        };
        let live = Live { coroutine, _watch: watch };
        // SAFETY: a vacant seat has none, and no reference to it exists.
        unsafe { *seat.live.get() = Some(live) };
        seat.state.set(SeatState::Resting);
        Ok(())
    }

    #[inline]
    fn resume(&self, slot: u32) {
        let Some(seat) = self.seat(slot) else {
            not_resting(slot);
        };
        if seat.state.get() != SeatState::Resting {
            not_resting(slot);
        }
        seat.state.set(SeatState::Running);
        let over = Over(seat);
        // SAFETY: the seat was resting, so no other code refers to this value, and
        // as long as it is running none will: all ask for the state first.
        let live = unsafe { &mut *seat.live.get() };
        let Some(live) = live else {
            return; // not so: a resting seat has one
        };
        if let CoroutineResult::Yield(()) = live.coroutine.resume(()) {
            seat.state.set(SeatState::Resting);
            mem::forget(over);
        }
    }

    #[inline]
    fn suspend(&self, slot: u32) {
        let Some(seat) = self.seat(slot) else {
            not_here(slot);
        };
        let here = ptr::from_ref(&seat).addr();
        if here.wrapping_sub(seat.stack_low.get()) >= seat.stack_octets.get() {
            not_here(slot);
        }
        // SAFETY: the length was not 0, so `main` of this slot has begun and not
        // ended, and its stack is still its own. A local variable lies on it:
        // so this code runs inside the coroutine's closure, whose yielder is
        // the one noted and lives until the closure returns.
        unsafe { (*seat.suspender.get()).suspend(()) };
    }
}

#[cold]
#[inline(never)]
fn not_resting(slot: u32) -> ! {
    panic!("shepherd {slot} resumed, which runs or was never created");
}

#[cold]
#[inline(never)]
fn not_here(slot: u32) -> ! {
    panic!("shepherd {slot} suspended by another one");
}

impl Drop for CoroutineSwitch {
    /// A coroutine in the middle of its work is leaked: unwinding it would run
    /// foreign code, and is impossible where a panic aborts.
    fn drop(&mut self) {
        for seat in self.seats.get_mut().drain(..) {
            if seat.state.replace(SeatState::Vacant) != SeatState::Resting {
                continue;
            }
            // SAFETY: a resting seat's value has no other reference.
            let live = unsafe { (*seat.live.get()).take() };
            if let Some(live) = live
                && live.coroutine.started()
            {
                mem::forget(live);
            }
        }
    }
}

/// The end of a resume in which the coroutine ended too, by return or by panic:
/// gives its stack back.
struct Over<'a>(&'a Seat);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // SAFETY: the seat is running, so the value is the resumer's, which is
        // done with it. The coroutine has ended, so dropping it frees a stack
        // and runs no code of others.
        let live = unsafe { (*self.0.live.get()).take() };
        drop(live);
        self.0.state.set(SeatState::Vacant);
    }
}

/// The end of `main`, by return or by panic: from here on nothing suspends.
struct MainEnd(Rc<Seat>);

impl Drop for MainEnd {
    fn drop(&mut self) {
        self.0.stack_octets.set(0);
    }
}

fn page_octets() -> usize {
    // SAFETY: sysconf reads a constant and touches no memory of ours.
    let octets = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(octets).map_or(4096, |octets| octets.max(4096))
}
