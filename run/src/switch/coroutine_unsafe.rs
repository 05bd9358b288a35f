//! Shepherds as stackful coroutines.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::ptr;
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use xk_core::shepherd::{StackError, Switch};

use super::overflow_unsafe::{self, Watch};

type Suspender = Yielder<(), ()>;

/// Every shepherd a coroutine of its own, on a stack with a guard page below.
///
/// The coroutine outlives the messages it carries, so a switch is all that a
/// pooled shepherd costs. An overflow of a stack ends the process, after a line
/// on standard error that names the shepherd; the handler for it is installed
/// with the first switch, and passes on every other fault.
pub struct CoroutineSwitch {
    /// By slot.
    coroutines: RefCell<Vec<Entry>>,
    page_octets: usize,
}

#[derive(Default)]
struct Entry {
    /// Absent while it runs, or rests in a resume of another one.
    live: Option<Box<Live>>,
    /// Null before the first resume and after the end.
    suspender: Rc<Cell<*const Suspender>>,
    /// Addresses of its stack.
    stack: Range<usize>,
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
        CoroutineSwitch {
            coroutines: RefCell::default(),
            page_octets: page_octets(),
        }
    }

    /// A stack with its guard page lowest, all of it touched: the page faults
    /// come here and not under a message.
    fn new_stack(&self, stack_octets: usize) -> Result<DefaultStack, StackError> {
        if stack_octets > isize::MAX as usize / 2 {
            return Err(StackError::NoMemory);
        }
        let page = self.page_octets;
        let usable = stack_octets.max(2 * page).next_multiple_of(page);
        let stack = DefaultStack::new(usable).map_err(|_| StackError::NoMemory)?;
        for below in (page..=usable).step_by(page) {
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
        let mut coroutines = self.coroutines.borrow_mut();
        let index = slot as usize;
        if coroutines.len() <= index {
            coroutines.resize_with(index + 1, Entry::default);
        }
        let entry = &mut coroutines[index];
        let vacant = entry.live.is_none() && entry.suspender.get().is_null();
        assert!(vacant, "shepherd {slot} created twice");
        entry.stack = stack.limit().get()..stack.base().get();
        let watch = Watch::new(slot, entry.stack.clone(), self.page_octets);
        let suspender = Rc::clone(&entry.suspender);
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Suspender, ()| {
            suspender.set(yielder);
            let _end = End(suspender);
            main();
        });
        entry.live = Some(Box::new(Live {
            coroutine,
            _watch: watch,
        }));
        Ok(())
    }

    #[inline]
    fn resume(&self, slot: u32) {
        let index = slot as usize;
        // Taken out of the table, which other shepherds use meanwhile.
        let taken = self.coroutines.borrow_mut()[index].live.take();
        let mut live = taken.expect("resumed a shepherd that runs or was never created");
        if let CoroutineResult::Yield(()) = live.coroutine.resume(()) {
            self.coroutines.borrow_mut()[index].live = Some(live);
        }
    }

    #[inline]
    fn suspend(&self, slot: u32) {
        let suspender = {
            let coroutines = self.coroutines.borrow();
            let entry = &coroutines[slot as usize];
            let here = ptr::from_ref(&entry).addr();
            let suspender = entry.suspender.get();
            let on_it = entry.stack.contains(&here) && entry.live.is_none();
            let own = on_it && !suspender.is_null();
            assert!(own, "shepherd {slot} suspended by another one");
            suspender
        };
        // SAFETY: the pointer is to the yielder of this slot's coroutine and is
        // null outside its closure, so that stack is alive; a local variable
        // lies on it, and the coroutine is not in the table: so this code runs
        // inside that closure, whose yielder lives until it returns.
        unsafe { (*suspender).suspend(()) };
    }
}

impl Drop for CoroutineSwitch {
    /// A coroutine in the middle of its work is leaked: unwinding it would run
    /// foreign code, and is impossible where a panic aborts.
    fn drop(&mut self) {
        for entry in self.coroutines.get_mut().drain(..) {
            if let Some(live) = entry.live
                && live.coroutine.started()
            {
                std::mem::forget(live);
            }
        }
    }
}

/// Marks the coroutine as ended, by return or by panic.
struct End(Rc<Cell<*const Suspender>>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.set(ptr::null());
    }
}

fn page_octets() -> usize {
    // SAFETY: sysconf reads a constant and touches no memory of ours.
    let octets = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(octets).map_or(4096, |octets| octets.max(4096))
}
