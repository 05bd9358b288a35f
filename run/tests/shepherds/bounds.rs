//! The bound of shepherds, and what happens beyond it.

use xk_core::shepherd::{RunError, WaitError};

use crate::world::{NewSwitch, World};

pub(crate) fn one_shepherd_more_is_refused(switch: NewSwitch<'_>) {
    let world = World::new(switch, 3);
    for name in ["a", "b", "c"] {
        world.send_waiter(name);
    }
    world.send_signal();
    world.send_waiter("d");
    world.run();
    world.expect(&["a waits", "b waits", "c waits", "c Err(NoShepherds)", "a Ok(())", "d waits"]);
    let stats = world.shepherds.stats();
    assert_eq!((stats.refusals_no_shepherds, stats.made), (1, 3));
    assert_eq!((stats.suspended, stats.in_use_high_water), (2, 3));
    world.shepherds.interrupt_all();
    world.run();
}

pub(crate) fn a_lone_shepherd_never_waits(switch: NewSwitch<'_>) {
    let world = World::new(switch, 1);
    world.send(|world| {
        let waited = world.semaphore.wait(&world.shepherds);
        assert_eq!(waited, Err(WaitError::NoShepherds));
    });
    world.run();
    let none = World::new(switch, 0);
    assert_eq!(none.try_run(), Err(RunError::NoShepherds));
}

pub(crate) fn hundreds_wait_at_once(switch: NewSwitch<'_>) {
    let many = if cfg!(miri) { 20 } else { 300 };
    let world = World::new(switch, 1024);
    for round in 0..2 {
        for _ in 0..many {
            world.send(|world| assert_eq!(world.semaphore.wait(&world.shepherds), Ok(())));
        }
        world.run();
        assert_eq!(world.shepherds.stats().suspended, many);
        for _ in 0..many {
            world.send_signal();
        }
        world.run();
        let stats = world.shepherds.stats();
        assert_eq!((stats.suspended, stats.made), (0, many + 1), "round {round}");
    }
}

pub(crate) fn those_in_reserve_are_used_again(switch: NewSwitch<'_>) {
    let world = World::new(switch, 3);
    for _ in 0..3 {
        for name in ["a", "b"] {
            world.send_waiter(name);
        }
        // One batch: each of the two leads above the one before.
        world.send(|world| {
            assert!(world.semaphore.signal(&world.shepherds));
            assert!(world.semaphore.signal(&world.shepherds));
        });
        world.send(|world| assert_eq!(world.shepherds.stats().running, 1));
    }
    world.send_waiter("c");
    world.send_waiter("d");
    world.send(|world| {
        let waited = world.semaphore.wait(&world.shepherds);
        assert_eq!(waited, Err(WaitError::NoShepherds));
    });
    world.run();
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.in_use_high_water), (3, 3));
    assert_eq!((stats.suspended, stats.running), (2, 0));
    assert_eq!((stats.refusals_no_shepherds, stats.blocks), (1, 8));
    world.shepherds.interrupt_all();
    world.run();
}
