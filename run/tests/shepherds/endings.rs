//! Stops, panics and the end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use xk_core::shepherd::{Flow, RunError, Switch};

use crate::world::{NewSwitch, World};

pub(crate) fn suspended_shepherds_outlive_a_run(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_waiter("a");
    world.run();
    world.expect(&["a waits"]);
    assert_eq!(world.shepherds.stats().suspended, 1);
    // From outside, where no shepherd is: it becomes ready, and no more.
    assert!(world.semaphore.signal(&world.shepherds));
    world.expect(&[]);
    assert!(world.shepherds.has_ready());
    world.run();
    world.expect(&["a Ok(())"]);
}

pub(crate) fn a_resumed_shepherd_can_stop_the_loop(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    let turns = Rc::new(Cell::new(0));
    let body = {
        let (world, turns) = (Rc::clone(&world), Rc::clone(&turns));
        move || {
            turns.set(turns.get() + 1);
            match turns.get() {
                1 => {
                    assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
                    return Flow::Stop;
                }
                2 => assert!(world.semaphore.signal(&world.shepherds)),
                _ => panic!("it should have stopped"),
            }
            Flow::Continue
        }
    };
    assert_eq!(world.shepherds.run(Rc::new(body)), Ok(()));
    assert_eq!(turns.get(), 2);
    assert_eq!(world.shepherds.stats().suspended, 0);
}

pub(crate) fn the_loop_does_not_run_within_itself(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send(|world| {
        let inner = world.shepherds.run(Rc::new(|| Flow::Stop));
        assert_eq!(inner, Err(RunError::AlreadyRunning));
        world.note("refused");
    });
    world.send(|world| world.note("and goes on"));
    world.run();
    world.expect(&["refused", "and goes on"]);
}

fn run_panics(world: &Rc<World>) {
    let end = catch_unwind(AssertUnwindSafe(|| world.run()));
    let payload = end.expect_err("a message panicked");
    assert_eq!(payload.downcast_ref(), Some(&"bad message"));
    assert_eq!(world.shepherds.current(), None);
}

pub(crate) fn a_panic_reaches_the_caller_of_run(switch: NewSwitch<'_>) {
    let world = World::new(switch, 3);
    world.send_waiter("a");
    world.send(|_| resume_unwind(Box::new("bad message")));
    run_panics(&world);
    assert_eq!(world.shepherds.stats().made, 1);
    // The slot of the dead shepherd is free again.
    world.send_waiter("b");
    world.send_signal();
    world.send_signal();
    world.run();
    world.expect(&["a waits", "b waits", "a Ok(())", "b Ok(())"]);
}

pub(crate) fn a_panic_of_a_resumed_shepherd_reaches_the_caller_of_run(switch: NewSwitch<'_>) {
    let world = World::new(switch, 3);
    world.send(|world| {
        let _ = world.semaphore.wait(&world.shepherds);
        resume_unwind(Box::new("bad message"));
    });
    world.send_signal();
    run_panics(&world);
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.suspended, stats.running), (0, 0, 0));
    world.send_waiter("b");
    world.send_signal();
    world.run();
    world.expect(&["b waits", "b Ok(())"]);
}

pub(crate) fn a_panic_passes_through_those_in_reserve(switch: NewSwitch<'_>) {
    let world = World::new(switch, 4);
    for name in ["a", "b", "c"] {
        world.send_waiter(name);
    }
    world.send(|world| {
        assert!(world.semaphore.signal(&world.shepherds));
        assert!(world.semaphore.signal(&world.shepherds));
    });
    world.send(|_| resume_unwind(Box::new("bad message")));
    run_panics(&world);
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.suspended, stats.running), (1, 1, 0));
    world.send_signal();
    world.send_waiter("d");
    world.send_signal();
    world.run();
    world.expect(&[
        "a waits", "b waits", "c waits", "a Ok(())", "b Ok(())", "c Ok(())", "d waits", "d Ok(())",
    ]);
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.suspended, stats.running), (2, 0, 0));
    assert_eq!(stats.in_use_high_water, 4);
}

pub(crate) fn a_resumed_shepherd_goes_on_with_the_body_of_the_present_run(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    let turns = Rc::new(Cell::new(0));
    let first = {
        let (world, turns) = (Rc::clone(&world), Rc::clone(&turns));
        Rc::new(move || {
            turns.set(turns.get() + 1);
            if turns.get() == 2 {
                return Flow::Stop;
            }
            assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
            Flow::Continue
        })
    };
    let weak = Rc::downgrade(&first);
    assert_eq!(world.shepherds.run(first), Ok(()));
    assert_eq!((turns.get(), weak.strong_count()), (2, 1));
    assert!(world.semaphore.signal(&world.shepherds));
    world.send(|world| {
        assert!(world.shepherds.on_loop());
        world.note("of the second run");
    });
    world.run();
    world.expect(&["of the second run"]);
    assert_eq!((turns.get(), weak.strong_count()), (2, 0));
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.suspended, stats.running), (2, 0, 0));
}

pub(crate) fn an_interrupted_kernel_leaves_nothing_behind(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    let token = Rc::new(());
    for _ in 0..3 {
        let held = Rc::clone(&token);
        world.send(move |world| {
            let _ = world.semaphore.wait(&world.shepherds);
            drop(held);
        });
    }
    world.run();
    assert_eq!(Rc::strong_count(&token), 4);
    assert_eq!(world.shepherds.interrupt_all(), 3);
    assert_eq!(world.shepherds.interrupt_all(), 0);
    world.run();
    assert_eq!(Rc::strong_count(&token), 1);
    let held = Rc::clone(&token);
    world.send(move |_| drop(held));
    let weak = Rc::downgrade(&world);
    drop(world);
    // Nothing on an idle shepherd's stack kept the world alive.
    assert_eq!(weak.strong_count(), 0);
    assert_eq!(Rc::strong_count(&token), 1);
}

/// A switch is a safe interface: misuse may panic, and do nothing worse.
pub(crate) fn a_shepherd_is_suspended_only_by_itself(switch: NewSwitch<'_>) {
    let switch: Rc<dyn Switch> = Rc::from(switch());
    let inside = Rc::clone(&switch);
    let main = move || {
        let resumed_within_itself = || inside.resume(0);
        assert!(catch_unwind(AssertUnwindSafe(resumed_within_itself)).is_err());
        inside.suspend(0);
    };
    let created = switch.create(0, 256 * 1024, Box::new(main));
    assert_eq!(created, Ok(()));
    let suspend = || catch_unwind(AssertUnwindSafe(|| switch.suspend(0)));
    assert!(suspend().is_err(), "not yet resumed");
    switch.resume(0);
    assert!(suspend().is_err(), "already suspended");
    switch.resume(0);
    assert!(suspend().is_err(), "over");
}

pub(crate) fn one_that_rests_in_a_resume_is_left_alone(switch: NewSwitch<'_>) {
    let switch: Rc<dyn Switch> = Rc::from(switch());
    let panics = |misuse: &dyn Fn()| catch_unwind(AssertUnwindSafe(misuse)).is_err();
    let lower = Rc::clone(&switch);
    let lower_main = move || {
        lower.resume(1);
        lower.suspend(0);
        lower.resume(1);
    };
    let upper = Rc::clone(&switch);
    let upper_main = move || {
        assert!(panics(&|| upper.resume(0)), "it rests below");
        assert!(panics(&|| upper.suspend(0)), "it rests below");
        upper.suspend(1);
    };
    let made_again = Rc::new(Cell::new(false));
    let ran = Rc::clone(&made_again);
    assert_eq!(switch.create(0, 256 * 1024, Box::new(lower_main)), Ok(()));
    // The table grows only now.
    assert_eq!(switch.create(1, 256 * 1024, Box::new(upper_main)), Ok(()));
    assert!(panics(&|| switch.resume(7)), "never created");
    assert!(panics(&|| switch.suspend(7)), "never created");
    switch.resume(0);
    switch.resume(0);
    assert!(panics(&|| switch.resume(0)), "over");
    assert!(panics(&|| switch.resume(1)), "over");
    let main = move || ran.set(true);
    assert_eq!(switch.create(0, 256 * 1024, Box::new(main)), Ok(()));
    switch.resume(0);
    assert!(made_again.get());
}
