//! Calls under virtual time: a lower protocol of the rpc realm that carries requests to another
//! like it, an upper one that serves them, and a loop that lets tasks block.
//!
//! # Example
//! ```
//! use xk_core::{Part, Participant, Participants, Upper};
//! use xk_testkit::kernel::{CallBottom, Top, Lower, TestKernel};
//!
//! let cx = TestKernel::with_stacks(1);
//! let host = |n: u8| Lower::host([10, 0, 0, n], 0);
//! let bottoms = [1, 2].map(|n| CallBottom::add(&cx, "channel", host(n)));
//! CallBottom::join(&bottoms);
//! let tops = [1, 2].map(|_| Top::add(&cx, "top"));
//! tops[1].enable(&cx, bottoms[1].protocol(), Participants::local(Part::Any)).unwrap();
//! let to = Participants::pair(Part::Any, Part::Host([10, 0, 0, 2].into()));
//! let session = tops[0].open(&cx, bottoms[0].protocol(), to).unwrap();
//! let replies = cx.call_all(vec![(session, cx.message(b"hello"))]);
//! assert!(replies[0].as_ref().unwrap().eq_octets(b"hello"));
//! ```

use super::TestKernel;
use core::cell::{Cell, OnceCell, RefCell};
use core::ops::Deref;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::kernel::Started;
use xk_core::object::CallError;
use xk_core::shepherd::Flow;
use xk_core::{Kernel, Message, SessionRef};

/// A task for a shepherd, which may block.
pub type Task = Box<dyn FnOnce(&Kernel)>;

/// End of a call.
pub type CallEnd = Result<Message, CallError>;

/// Time that the calls of [`TestKernel::call_all`] may take, in virtual time.
const CALLS_LIMIT: Duration = Duration::from_secs(600);
/// Times that shepherds which wait at the end are interrupted.
const INTERRUPTS_MAX: usize = 1000;

impl TestKernel {
    /// Starts every protocol, bottom-up. If there are stacks it does so on a shepherd, and virtual
    /// time passes while the start waits.
    ///
    /// # Errors
    /// The protocol that could not start, and why.
    pub fn start(&self) -> Started {
        if !self.shepherds().may_suspend() {
            return self.deref().start();
        }
        let ended = Rc::new(OnceCell::new());
        let end = Rc::clone(&ended);
        let start: Task = Box::new(move |cx| drop(end.set(cx.start())));
        self.run_tasks(CALLS_LIMIT, vec![start], |_| 0);
        self.started(&ended)
    }

    /// Runs each task on a shepherd and lets virtual time pass until all have ended, for `limit` at
    /// most; false if not all have. `carry` moves waiting messages below, and returns their number.
    ///
    /// # Panics
    /// If there is no stack for the first shepherd.
    pub fn run_tasks(
        &self,
        limit: Duration,
        tasks: Vec<Task>,
        carry: impl Fn(&Kernel) -> usize + 'static,
    ) -> bool {
        let (kernel, end) = (self.share(), self.now().after(limit));
        let left = Rc::new(Cell::new(tasks.len()));
        let (all, tasks) =
            (Rc::clone(&left), RefCell::new(tasks.into_iter().collect::<VecDeque<_>>()));
        let body = move || {
            let shepherds = kernel.shepherds();
            let next = tasks.borrow_mut().pop_front();
            if let Some(task) = next {
                task(&kernel);
                all.set(all.get() - 1);
                return Flow::Continue;
            }
            let moved = carry(&kernel);
            if kernel.must_leave() || moved > 0 || kernel.run_due() > 0 || shepherds.has_ready() {
                return Flow::Continue;
            }
            match kernel.next_expiry().filter(|next| *next <= end) {
                Some(next) if all.get() > 0 => kernel.set_now(next),
                _ => return Flow::Stop,
            }
            Flow::Continue
        };
        let ran = self.shepherds().run(Rc::new(body));
        ran.expect("a stack for a test");
        left.get() == 0
    }

    /// Makes all these calls at the same time, each on a shepherd of its own, and returns their
    /// ends.
    ///
    /// # Panics
    /// If one does not end in ten minutes of virtual time.
    pub fn call_all(&self, calls: Vec<(SessionRef, Message)>) -> Vec<CallEnd> {
        self.call_all_carried(calls, |_| 0)
    }

    /// Makes calls like [`TestKernel::call_all`], with a function that moves messages below.
    ///
    /// # Panics
    /// If one does not end in ten minutes of virtual time.
    pub fn call_all_carried(
        &self,
        calls: Vec<(SessionRef, Message)>,
        carry: impl Fn(&Kernel) -> usize + 'static,
    ) -> Vec<CallEnd> {
        let ends: Rc<RefCell<Vec<Option<CallEnd>>>> = Rc::default();
        ends.borrow_mut().resize_with(calls.len(), || None);
        let tasks = calls.into_iter().enumerate().map(|(at, (session, request))| {
            let ends = Rc::clone(&ends);
            Box::new(move |cx: &Kernel| {
                let end = session.call(cx, request);
                ends.borrow_mut()[at] = Some(end);
            }) as Task
        });
        let ended = self.run_tasks(CALLS_LIMIT, tasks.collect(), carry);
        assert!(ended, "every call ends");
        ends.take().into_iter().flatten().collect()
    }

    /// Interrupts waiting shepherds, so that nothing keeps itself alive, and stops the graph.
    pub fn finish(&self) {
        for _ in 0..INTERRUPTS_MAX {
            if self.shepherds().stats().suspended == 0 {
                break;
            }
            self.shepherds().interrupt_all();
            if self.shepherds().run(Rc::new(|| Flow::Stop)).is_err() {
                break;
            }
        }
        self.stop();
    }
}
