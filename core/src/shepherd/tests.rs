use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;

use super::table::Slot;
use super::*;

fn shepherds() -> Rc<Shepherds> {
    let limits = Limits { shepherds_max: 4, ..Limits::default() };
    Rc::new(Shepherds::new(Box::new(NoSwitch), limits))
}

#[test]
fn semaphore_counts_and_never_blocks_off_a_shepherd() {
    let shepherds = shepherds();
    let semaphore = Semaphore::new(1);
    assert_eq!(semaphore.wait(&shepherds), Ok(()));
    assert_eq!(semaphore.wait(&shepherds), Err(WaitError::NotOnShepherd));
    assert!(!semaphore.signal(&shepherds));
    assert!(!semaphore.signal(&shepherds));
    assert_eq!(semaphore.count(), 2);
    assert!(semaphore.try_wait());
    assert_eq!(semaphore.close(&shepherds), 0);
    assert!(!semaphore.try_wait());
    assert_eq!(semaphore.wait(&shepherds), Err(WaitError::Closed));
    assert_eq!(shepherds.stats().refusals_not_on_shepherd, 1);
}

#[test]
fn signals_kept_saturate() {
    let shepherds = shepherds();
    let semaphore = Semaphore::new(u32::MAX);
    semaphore.signal(&shepherds);
    assert_eq!(semaphore.count(), u32::MAX);
}

#[test]
fn without_a_switch_the_loop_runs_in_place() {
    let shepherds = shepherds();
    let turns = Rc::new(Cell::new(0));
    let body = {
        let (shepherds, turns) = (shepherds.clone(), turns.clone());
        Rc::new(move || {
            turns.set(turns.get() + 1);
            assert_eq!(shepherds.current(), None);
            assert!(!shepherds.on_loop());
            let semaphore = Semaphore::new(0);
            let armed = Cell::new(false);
            let waited = semaphore.wait_ticketed(&shepherds, |_| armed.set(true));
            assert_eq!(waited, Err(WaitError::NotOnShepherd));
            assert!(!armed.get());
            match turns.get() {
                3 => Flow::Stop,
                _ => Flow::Continue,
            }
        })
    };
    assert_eq!(shepherds.run(body), Ok(()));
    assert_eq!(turns.get(), 3);
    assert_eq!(shepherds.stats().dispatches, 3);
    assert_eq!(shepherds.stats().made, 0);
}

#[test]
fn no_shepherd_no_run() {
    let limits = Limits { shepherds_max: 0, ..Limits::default() };
    let shepherds = Shepherds::new(Box::new(NoSwitch), limits);
    let ran = shepherds.run(Rc::new(|| Flow::Stop));
    assert_eq!(ran, Err(RunError::NoShepherds));
}

#[test]
fn a_slot_is_as_small_as_documented() {
    assert_eq!(size_of::<Slot>(), 32);
}
