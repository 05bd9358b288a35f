use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// Lets numbers arrive one after another, all at one time; gives what comes out.
fn arrive(window: &mut Window<u32>, numbers: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    for &number in numbers {
        loop {
            match window.place((1, number), Time::ZERO, number) {
                Turn::Now(message) => out.push(message),
                Turn::Full(_) => {
                    window.skip();
                    out.extend(core::iter::from_fn(|| window.next()));
                    continue;
                }
                Turn::Later | Turn::Never(_) => {}
            }
            break;
        }
        out.extend(core::iter::from_fn(|| window.next()));
    }
    out
}

#[test]
fn numbers_come_out_in_order() {
    // What arrives, what comes out, how many are missing, how many wait; at most four numbers ahead are kept.
    let cases: &[(&[u32], &[u32], u64, usize)] = &[
        (&[5, 6, 7], &[5, 6, 7], 0, 0),
        (&[5, 7, 6, 8], &[5, 6, 7, 8], 0, 0),
        (&[5, 5, 6, 5, 7, 7], &[5, 6, 7], 0, 0),
        (&[5, 8, 8, 7, 6], &[5, 6, 7, 8], 0, 0),
        (&[5, 8], &[5], 0, 1),
        (&[5, 7, 8, 12], &[5, 7, 8], 1, 1),
        (&[5, 100], &[5, 100], 94, 0),
        (&[5, 7, 100], &[5, 7, 100], 93, 0),
        (&[u32::MAX, 1, 0], &[u32::MAX, 0, 1], 0, 0),
        (&[5, 4, 3], &[5], 0, 0),
    ];
    for (numbers, expected, missing, held) in cases {
        let mut window = Window::new(4);
        assert_eq!(arrive(&mut window, numbers), *expected, "{numbers:?}");
        assert_eq!(
            (window.missing, window.held()),
            (*missing, *held),
            "{numbers:?}"
        );
    }
}

#[test]
fn nonsense_is_believed_after_silence() {
    let mut window = Window::new(4);
    let at = |window: &mut Window<u32>, time, number| {
        matches!(window.place((1, number), time, number), Turn::Now(_))
    };
    assert!(at(&mut window, Time::from_s(1), 1000));
    assert!(!at(&mut window, Time::from_s(2), 0));
    assert!(at(&mut window, Time::from_s(6), 0));
    assert!(at(&mut window, Time::from_s(6), 1));
}

#[test]
fn a_new_run_begins_anew() {
    let mut window = Window::new(4);
    let mut place = |run, number| match window.place((run, number), Time::ZERO, number) {
        Turn::Now(_) => "now",
        Turn::Later => "later",
        Turn::Never(_) => "never",
        Turn::Full(_) => {
            window.skip();
            window.next();
            "full"
        }
    };
    assert_eq!((place(1, 7), place(1, 9)), ("now", "later"));
    // The message that is kept comes out before the new run begins.
    assert_eq!((place(2, 0), place(2, 0)), ("full", "now"));
    assert_eq!((place(1, 8), place(2, 1)), ("never", "now"));
    assert_eq!((place(3, 0), place(3, 1)), ("now", "now"));
}

proptest! {
    #[test]
    fn nothing_comes_twice_or_out_of_order(
        numbers in prop::collection::vec(0..64_u32, 0..200),
        hold in 0..9_usize,
    ) {
        let mut window = Window::new(hold);
        let out = arrive(&mut window, &numbers);
        prop_assert!(out.is_sorted_by(|a, b| a < b), "{:?}", out);
        prop_assert!(window.held() <= hold);
        let held: Vec<u32> = window.drain().collect();
        prop_assert!(held.iter().all(|n| out.last() < Some(n)));
    }
}
