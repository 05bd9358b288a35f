//! Order in which shepherds run, and their stacks.

use std::cell::Cell;
use std::rc::Rc;

use xk_core::shepherd::Semaphore;

use crate::world::{NewSwitch, World};

pub(crate) fn a_message_that_never_blocks_costs_no_shepherd(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    for _ in 0..100 {
        world.send(|world| {
            assert!(world.shepherds.on_loop());
            assert!(world.shepherds.current().is_some());
        });
    }
    world.run();
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.blocks), (1, 0));
    assert_eq!(stats.dispatches, 101);
    assert_eq!((stats.running, stats.suspended), (0, 0));
    assert_eq!(world.shepherds.current(), None);
}

pub(crate) fn the_loop_goes_on_while_a_message_waits(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_waiter("a");
    world.send(|world| {
        let stats = world.shepherds.stats();
        assert_eq!((stats.running, stats.suspended, stats.ready), (1, 1, 0));
        world.note("b");
    });
    world.send_signal();
    world.send(|world| world.note("c"));
    world.run();
    world.expect(&["a waits", "b", "a Ok(())", "c"]);
    let stats = world.shepherds.stats();
    assert_eq!((stats.blocks, stats.made, stats.in_use_high_water), (1, 2, 2));
}

pub(crate) fn waiters_are_served_in_order(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    for name in ["a", "b", "c"] {
        world.send_waiter(name);
    }
    for _ in 0..3 {
        world.send_signal();
    }
    world.run();
    world.expect(&["a waits", "b waits", "c waits", "a Ok(())", "b Ok(())", "c Ok(())"]);
}

pub(crate) fn ready_shepherds_are_resumed_in_order(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    let semaphores: Rc<[Semaphore; 3]> = Rc::new([const { Semaphore::new(0) }; 3]);
    for i in 0..3 {
        let semaphores = Rc::clone(&semaphores);
        world.send(move |world| {
            assert_eq!(semaphores[i].wait(&world.shepherds), Ok(()));
            world.note(i.to_string());
        });
    }
    world.send(move |world| {
        for i in [2, 0, 1] {
            assert!(semaphores[i].signal(&world.shepherds));
        }
        assert_eq!(world.shepherds.stats().ready, 3);
        assert!(world.shepherds.has_ready());
        world.note("all signalled, none switched to");
    });
    world.send(|world| world.note("next"));
    world.run();
    world.expect(&["all signalled, none switched to", "2", "0", "1", "next"]);
}

pub(crate) fn a_resumed_shepherd_leaves_the_loop_to_its_leader(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send(|world| {
        assert!(world.shepherds.on_loop());
        assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
        assert!(!world.shepherds.on_loop());
        assert_eq!(world.shepherds.stats().running, 2);
        world.note("resumed");
    });
    world.send_signal();
    let leader = Rc::new(Cell::new(None));
    for _ in 0..3 {
        let leader = Rc::clone(&leader);
        world.send(move |world| {
            let here = world.shepherds.current();
            assert!(leader.replace(here).is_none_or(|before| Some(before) == here));
            assert_eq!(world.shepherds.stats().running, 1);
            world.note("led");
        });
    }
    world.run();
    world.expect(&["resumed", "led", "led", "led"]);
    // One begun by each message, and the one that found nothing left.
    assert_eq!(world.shepherds.stats().dispatches, 6);
}

pub(crate) fn a_shepherd_keeps_its_thread_and_stack(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    for _ in 0..3 {
        world.send(|world| {
            let values: [u64; 64] = std::array::from_fn(|i| i as u64);
            let before = (std::thread::current().id(), world.shepherds.current());
            assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
            let after = (std::thread::current().id(), world.shepherds.current());
            assert_eq!(before, after);
            assert_eq!(std::hint::black_box(values).iter().sum::<u64>(), 63 * 32);
            world.note("kept");
        });
    }
    for _ in 0..3 {
        world.send_signal();
    }
    world.run();
    world.expect(&["kept", "kept", "kept"]);
}

pub(crate) fn a_resumed_shepherd_may_block_again(switch: NewSwitch<'_>) {
    // Two suffice: one that already waited needs no new one to lead the loop.
    let world = World::new(switch, 2);
    world.send(|world| {
        for round in 0..5 {
            assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
            world.note(round.to_string());
        }
    });
    for _ in 0..5 {
        world.send_signal();
        world.send(|world| world.note("-"));
    }
    world.run();
    world.expect(&["0", "-", "1", "-", "2", "-", "3", "-", "4", "-"]);
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.blocks), (2, 5));
}

pub(crate) fn pooled_shepherds_are_used_again(switch: NewSwitch<'_>) {
    let world = World::new(switch, 1000);
    for _ in 0..20 {
        world.send_waiter("a");
        world.send_waiter("b");
        world.send_signal();
        world.send_signal();
    }
    world.run();
    let stats = world.shepherds.stats();
    assert_eq!((stats.made, stats.in_use_high_water), (3, 3));
    assert_eq!((stats.blocks, stats.suspended), (40, 0));
}

pub(crate) fn the_loop_goes_on_where_a_message_ended(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    let waited_on = Rc::new(Cell::new(None));
    let on = Rc::clone(&waited_on);
    world.send(move |world| {
        on.set(world.shepherds.current());
        assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
    });
    world.send_signal();
    world.send(move |world| {
        assert!(world.shepherds.on_loop());
        assert_eq!(world.shepherds.current(), waited_on.get());
        assert_eq!(world.shepherds.stats().running, 1);
        // Back to the one in reserve, without a third.
        assert_eq!(world.semaphore.wait(&world.shepherds), Ok(()));
    });
    world.send(|world| {
        assert!(world.shepherds.on_loop());
        let stats = world.shepherds.stats();
        assert_eq!((stats.running, stats.suspended, stats.made), (1, 1, 2));
    });
    world.send_signal();
    world.run();
    let stats = world.shepherds.stats();
    assert_eq!((stats.running, stats.suspended, stats.made), (0, 0, 2));
    assert_eq!((stats.blocks, stats.in_use_high_water), (2, 2));
}
