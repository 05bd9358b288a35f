//! Ends of waits.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use xk_core::shepherd::{Ticket, WaitError};

use crate::world::{NewSwitch, World};

/// Sends a message that waits, and tells its ticket.
fn send_timed(world: &Rc<World>) -> Rc<Cell<Option<Ticket>>> {
    let shared = Rc::new(Cell::new(None));
    let ticket = Rc::clone(&shared);
    world.send(move |world| {
        let arm = |t| ticket.set(Some(t));
        let waited = world.semaphore.wait_ticketed(&world.shepherds, arm);
        world.note(format!("{waited:?}"));
    });
    shared
}

pub(crate) fn a_signal_before_the_wait_is_kept(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_signal();
    let ticket = send_timed(&world);
    world.run();
    world.expect(&["Ok(())"]);
    assert!(ticket.get().is_none(), "nothing is armed where nothing blocks");
    assert_eq!(world.shepherds.stats().blocks, 0);
}

pub(crate) fn the_first_to_come_decides(switch: NewSwitch<'_>) {
    for signal_first in [true, false] {
        let world = World::new(switch, 8);
        let ticket = send_timed(&world);
        world.send(move |world| {
            let ticket = ticket.get().expect("armed");
            if signal_first {
                assert!(world.semaphore.signal(&world.shepherds));
                assert!(!world.shepherds.time_out(ticket));
            } else {
                assert!(world.shepherds.time_out(ticket));
                assert!(!world.semaphore.signal(&world.shepherds));
            }
            assert!(!world.shepherds.time_out(ticket));
        });
        world.run();
        let outcome = if signal_first { "Ok(())" } else { "Err(TimedOut)" };
        world.expect(&[outcome]);
        assert_eq!(world.semaphore.count(), u32::from(!signal_first));
        assert_eq!(world.shepherds.stats().timeouts, u64::from(!signal_first));
    }
}

pub(crate) fn a_timed_out_waiter_takes_no_signal(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_waiter("a");
    let ticket = send_timed(&world);
    world.send_waiter("c");
    world.send(move |world| {
        // The one in the middle: its links on both sides have to hold.
        assert!(world.shepherds.time_out(ticket.get().expect("armed")));
        assert!(world.semaphore.signal(&world.shepherds));
        assert!(world.semaphore.signal(&world.shepherds));
        assert!(!world.semaphore.signal(&world.shepherds));
    });
    world.run();
    world.expect(&["a waits", "c waits", "Err(TimedOut)", "a Ok(())", "c Ok(())"]);
    assert!(world.semaphore.try_wait());
    assert!(!world.semaphore.try_wait());
}

pub(crate) fn a_stale_ticket_is_harmless(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    let stale = send_timed(&world);
    world.send_signal();
    world.run();
    // The same shepherd waits again: the old ticket must not end that.
    let live = send_timed(&world);
    let _ = send_timed(&world);
    world.run();
    let (stale, live) = (stale.get().expect("armed"), live.get().expect("armed"));
    assert_ne!(stale, live);
    assert!(!world.shepherds.time_out(stale));
    assert!(world.shepherds.time_out(live));
    world.send_signal();
    world.run();
    world.expect(&["Ok(())", "Err(TimedOut)", "Ok(())"]);
}

pub(crate) fn closing_ends_present_and_later_waits(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_waiter("a");
    world.send_waiter("b");
    world.send(|world| {
        assert!(world.semaphore.signal(&world.shepherds));
        assert_eq!(world.semaphore.close(&world.shepherds), 1);
        assert!(world.semaphore.is_closed());
    });
    world.send_waiter("c");
    world.run();
    world.expect(&["a waits", "b waits", "a Ok(())", "b Err(Closed)", "c waits", "c Err(Closed)"]);
    assert_eq!(world.shepherds.stats().interrupts, 1);
}

pub(crate) fn an_interrupt_ends_present_waits_only(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_waiter("a");
    world.send_waiter("b");
    world.send(|world| assert_eq!(world.semaphore.interrupt_all(&world.shepherds), 2));
    world.send_waiter("c");
    world.send_signal();
    world.run();
    world.expect(&[
        "a waits",
        "b waits",
        "a Err(Interrupted)",
        "b Err(Interrupted)",
        "c waits",
        "c Ok(())",
    ]);
}

pub(crate) fn arming_may_decide_the_wait(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send(|world| {
        let waited = world.semaphore.wait_ticketed(&world.shepherds, |ticket| {
            assert!(world.shepherds.time_out(ticket));
        });
        assert_eq!(waited, Err(WaitError::TimedOut));
        world.note("timed out at once");
    });
    world.send(|world| {
        let waited = world.semaphore.wait_ticketed(&world.shepherds, |_| {
            assert!(world.semaphore.signal(&world.shepherds));
        });
        assert_eq!(waited, Ok(()));
        world.note("signalled at once");
    });
    world.run();
    world.expect(&["timed out at once", "signalled at once"]);
    assert_eq!(world.shepherds.stats().suspended, 0);
}

pub(crate) fn arming_cannot_wait(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send(|world| {
        let waited = world.semaphore.wait_ticketed(&world.shepherds, |_| {
            let inner = world.semaphore.wait(&world.shepherds);
            assert_eq!(inner, Err(WaitError::NotOnShepherd));
            world.note("refused");
        });
        assert_eq!(waited, Ok(()));
    });
    world.send_signal();
    world.run();
    world.expect(&["refused"]);
    assert_eq!(world.shepherds.stats().refusals_not_on_shepherd, 1);
}

pub(crate) fn a_panic_while_arming_gives_the_place_up(switch: NewSwitch<'_>) {
    let world = World::new(switch, 8);
    world.send_waiter("a");
    world.send(|world| {
        let waits = AssertUnwindSafe(|| {
            world.semaphore.wait_ticketed(&world.shepherds, |ticket| {
                assert!(world.shepherds.time_out(ticket));
                std::panic::resume_unwind(Box::new("no timer left"));
            })
        });
        assert!(catch_unwind(waits).is_err());
        assert!(!world.shepherds.has_ready());
        world.note("caught");
    });
    world.send_waiter("b");
    world.send_signal();
    world.send_signal();
    world.run();
    world.expect(&["a waits", "caught", "b waits", "a Ok(())", "b Ok(())"]);
}
