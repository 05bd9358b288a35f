//! The poll loop: timers, blocking on shepherds, watchers, sleeping and stopping.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use xk_core::object::OpenError;
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Kernel, Protocol, ProtocolRef};
use xk_run::{Idle, Runner, real_kernel};

/// Function of a test protocol when its timer with this token goes off.
type OnTimer = Box<dyn Fn(&Kernel, u64)>;

struct Timers {
    tokens: Vec<(Duration, u64)>,
    on_timer: OnTimer,
}

impl Protocol for Timers {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for (delay, token) in &self.tokens {
            let _ = cx.schedule_protocol(this, *delay, *token)?;
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, token: u64) {
        (self.on_timer)(cx, token);
    }
}

const MS: Duration = Duration::from_millis(1);
/// More than any of these tests needs, even on a busy machine.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

fn runner(
    tokens: &[(Duration, u64)],
    idle: Idle,
    on_timer: impl Fn(&Kernel, u64) + 'static,
) -> Runner {
    let kernel = Rc::new(real_kernel(1 << 20).expect("a kernel"));
    let timers = Timers { tokens: tokens.to_vec(), on_timer: Box::new(on_timer) };
    kernel.add_protocol("timers", "timers", timers);
    let runner = Runner::new(kernel, idle).expect("a runner");
    runner.start().expect("started");
    runner
}

#[test]
fn timers_go_off_in_order_and_not_early() {
    for idle in [Idle::Sleep, Idle::default(), Idle::Spin] {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (start, note) = (Instant::now(), Rc::clone(&seen));
        let on_timer = move |_: &Kernel, token| note.borrow_mut().push((token, start.elapsed()));
        let runner = runner(&[(9 * MS, 2), (3 * MS, 1)], idle, on_timer);
        let done = Rc::clone(&seen);
        runner.run(LIMIT, Rc::new(move |_| done.borrow().len() == 2)).expect("ran");
        let seen = seen.borrow();
        assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [1, 2], "{idle:?}");
        assert!(seen[0].1 >= 3 * MS && seen[1].1 >= 9 * MS, "{idle:?}: {seen:?}");
    }
}

#[test]
fn a_wait_ends_by_its_timeout_or_by_a_signal_while_the_loop_goes_on() {
    let semaphore = Rc::new(Semaphore::new(0));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let on_timer = {
        let (semaphore, seen) = (Rc::clone(&semaphore), Rc::clone(&seen));
        let pause = Semaphore::new(0);
        move |cx: &Kernel, token| {
            // The record is borrowed after the wait: nothing may be borrowed while it blocks.
            let record = |entry| seen.borrow_mut().push(entry);
            match token {
                1 => record(("in vain", cx.wait(&semaphore, Some(5 * MS)))),
                2 => record(("signalled", cx.wait(&semaphore, Some(Duration::from_secs(60))))),
                _ => {
                    // On a busy machine the first still waits.
                    while seen.borrow().is_empty() {
                        let _ = cx.wait(&pause, Some(MS));
                    }
                    cx.signal(&semaphore);
                }
            }
        }
    };
    let runner = runner(&[(MS, 1), (20 * MS, 2), (30 * MS, 3)], Idle::Sleep, on_timer);
    let done = Rc::clone(&seen);
    runner.run(LIMIT, Rc::new(move |_| done.borrow().len() == 2)).expect("ran");
    assert_eq!(*seen.borrow(), [("in vain", Err(WaitError::TimedOut)), ("signalled", Ok(()))]);
    assert_eq!(
        runner.kernel().timers(),
        0,
        "the timer of the wait that was signalled is cancelled"
    );
    assert_eq!(runner.kernel().shepherds().stats().suspended, 0);
}

/// Waits at its start until its timer goes off.
struct Patient {
    semaphore: Semaphore,
    waited: Rc<Cell<Option<Result<(), WaitError>>>>,
}

impl Protocol for Patient {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let _ = cx.schedule_protocol(this, MS, 0)?;
        self.waited.set(Some(cx.wait(&self.semaphore, None)));
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        cx.signal(&self.semaphore);
    }
}

#[test]
fn a_start_may_wait_while_the_loop_goes_on() {
    let kernel = Rc::new(real_kernel(1 << 20).expect("a kernel"));
    let waited = Rc::new(Cell::new(None));
    let semaphore = Semaphore::new(0);
    kernel.add_protocol("patient", "patient", Patient { semaphore, waited: Rc::clone(&waited) });
    let runner = Runner::new(kernel, Idle::Sleep).expect("a runner");
    assert!(runner.start().is_ok());
    assert_eq!(waited.get(), Some(Ok(())));
    assert_eq!(runner.kernel().shepherds().stats().suspended, 0);
}

#[test]
fn whoever_still_waits_is_interrupted_at_the_end() {
    let semaphore = Rc::new(Semaphore::new(0));
    let seen = Rc::new(Cell::new(None));
    let on_timer = {
        let (semaphore, seen) = (Rc::clone(&semaphore), Rc::clone(&seen));
        move |cx: &Kernel, _| seen.set(Some(cx.wait(&semaphore, None)))
    };
    let runner = runner(&[(MS, 1)], Idle::Sleep, on_timer);
    runner.run(Some(50 * MS), Rc::new(|_| false)).expect("ran");
    assert_eq!(seen.get(), None);
    drop(runner);
    assert_eq!(seen.get(), Some(Err(WaitError::Interrupted)));
}

#[test]
fn whoever_waits_again_at_the_end_is_interrupted_again() {
    let interrupts = Rc::new(Cell::new(0));
    let noted = Rc::clone(&interrupts);
    let runner = runner(&[(MS, 0)], Idle::Sleep, move |cx, _| {
        let never = Semaphore::new(0);
        for _ in 0..3 {
            assert_eq!(cx.wait(&never, None), Err(WaitError::Interrupted));
            noted.set(noted.get() + 1);
        }
    });
    let waits = Rc::new(|cx: &Kernel| cx.shepherds().stats().suspended == 1);
    runner.run(LIMIT, waits).expect("it ran");
    let kernel = Rc::clone(runner.kernel());
    drop(runner);
    assert_eq!(interrupts.get(), 3);
    assert_eq!(kernel.shepherds().stats().suspended, 0);
}

#[test]
fn a_watched_descriptor_wakes_the_loop_and_can_be_left_alone() {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    let runner = Rc::new(runner(&[], Idle::Sleep, |_, _| {}));
    let calls = Rc::new(Cell::new(0));
    let reader = theirs.try_clone().expect("a clone");
    let ready = {
        let calls = Rc::clone(&calls);
        Rc::new(move |_: &Kernel| {
            let mut octet = [0];
            let read = std::io::Read::read(&mut &reader, &mut octet).expect("readable");
            calls.set(calls.get() + read);
        })
    };
    let number = runner.watch(OwnedFd::from(theirs), ready).expect("watched");
    ours.write_all(b"x").expect("written");
    let done = Rc::clone(&calls);
    runner.run(LIMIT, Rc::new(move |_| done.get() == 1)).expect("ran");
    assert!(runner.stats().turns > 0);
    runner.unwatch(number);
    let (another, _open) = UnixStream::pair().expect("a pair");
    let again = runner.watch(OwnedFd::from(another), Rc::new(|_: &Kernel| {}));
    assert_eq!(again.expect("watched"), number, "a free place is used again");
    // The other end has no holder any more: unwatching has closed it.
    assert!(ours.write_all(b"y").is_err());
    runner.run(Some(20 * MS), Rc::new(|_| false)).expect("ran");
    assert_eq!(calls.get(), 1);
}

/// Turns of another thread on the one processor on which a loop spins with nothing to take.
fn turns_beside(idle: Idle) -> u64 {
    let on_one_processor = move || {
        let all = sched_getaffinity(None).expect("processors");
        let first = (0..CpuSet::MAX_CPU).find(|at| all.is_set(*at)).expect("a processor");
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).expect("one of them");
        let runner = runner(&[], idle, |_, _| {});
        let (turns, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                    std::thread::yield_now();
                }
            });
            runner.run(Some(50 * MS), Rc::new(|_| false)).expect("ran");
            is_over.store(true, Relaxed);
        });
        turns.into_inner()
    };
    std::thread::spawn(on_one_processor).join().expect("it ran")
}

#[test]
fn a_loop_that_spins_lets_others_have_its_processor() {
    let begun = Instant::now();
    // What else runs on a busy machine may take the processor from both.
    loop {
        let beside_a_selfish_one = turns_beside(Idle::Spin);
        let turns = turns_beside(Idle::Adaptive { spin_max: 1000 * MS });
        if turns > 10 * beside_a_selfish_one {
            return;
        }
        assert!(begun.elapsed() < LIMIT.unwrap(), "{turns}, and {beside_a_selfish_one}");
    }
}
