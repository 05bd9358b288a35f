use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// Lets numbers arrive one after another, gives what comes out.
fn arrive(window: &mut Window<u32>, numbers: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    for &number in numbers {
        let _ = window.place(number, number);
        out.extend(core::iter::from_fn(|| window.next()));
    }
    out
}

#[test]
fn numbers_come_out_in_order() {
    // What arrives, what comes out, how many are missing, how many wait; at most four numbers
    // ahead are kept.
    let cases: &[(&[u32], &[u32], u64, u64)] = &[
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
        let tally = window.tally();
        let waits = (tally.missing, tally.held);
        assert_eq!(waits, (*missing, *held), "{numbers:?}");
    }
}

#[test]
fn a_jump_begins_anew() {
    let mut window = Window::new(4);
    let far = 7 + 2 * JUMP;
    // What waits for 8 comes out before the new beginning; nothing of the jump is missing.
    assert_eq!(arrive(&mut window, &[7, 9, far, far + 1]), [7, 9, far, far + 1]);
    assert_eq!(arrive(&mut window, &[7, 8]), [7, 8]);
    assert_eq!(window.tally().missing, 1);
    // Up to there a number is late, or those before it are missing.
    assert_eq!(arrive(&mut window, &[9_u32.wrapping_sub(JUMP), 9 + JUMP]), [9 + JUMP]);
    assert_eq!(window.tally().missing, 1 + u64::from(JUMP));
}

proptest! {
    #[test]
    fn nothing_comes_twice_or_out_of_order(
        numbers in prop::collection::vec(0..64_u32, 0..200),
        hold in 0..9_u32,
    ) {
        let mut window = Window::new(hold);
        let out = arrive(&mut window, &numbers);
        prop_assert!(out.is_sorted_by(|a, b| a < b), "{:?}", out);
        prop_assert!(window.tally().held <= u64::from(hold));
        let held: Vec<u32> = window.into_messages().collect();
        prop_assert!(held.iter().all(|n| out.last() < Some(n)));
    }
}
