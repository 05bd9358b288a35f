//! Hand-made histories, and all small ones of a few operations against a search of all orders.

use super::*;
use std::string::String;
use std::vec;

/// Reads a history, one operation a word: `r1` reads 1, `r-` reads nothing, `w1` writes 1, `w-`
/// removes, `s12` replaced 1 by 2, `f12` did not, `u12` may have. Behind it are call and return;
/// `1-` has not returned.
fn history(text: &str) -> Vec<Operation<u8>> {
    let value = |octet: u8| (octet != b'-').then_some(octet);
    let operation = |word: &str| {
        let (act, times) = word.split_once('@').unwrap();
        let (called, returned) = times.split_once('-').unwrap();
        let swap = |octets: &[u8], is_done| Act::Swap {
            from: value(octets[1]),
            to: value(octets[2]),
            is_done,
        };
        let act = match act.as_bytes() {
            [b'r', found] => Act::Read(value(*found)),
            [b'w', to] => Act::Write(value(*to)),
            all @ [b's', ..] => swap(all, Some(true)),
            all @ [b'f', ..] => swap(all, Some(false)),
            all => swap(all, None),
        };
        Operation { called: called.parse().unwrap(), returned: returned.parse().ok(), act }
    };
    text.split_whitespace().map(operation).collect()
}

const GOOD: [&str; 10] = [
    // Nothing, and reads of nothing.
    "r-@1-2 r-@3-4",
    "w1@1-2 r1@3-4 w2@5-6 r2@7-8",
    // A read beside a write sees the value before or behind it.
    "w1@1-6 r-@2-3 r1@4-5",
    // Two writes at once: later reads agree on the last.
    "w1@1-4 w2@2-3 r1@5-6 r1@7-8",
    // Reads at once may be in either order.
    "w1@1-8 r1@2-7 r-@3-6 r-@4-5",
    // A write of unknown outcome takes effect long after.
    "w1@1- w2@2-3 r2@4-5 r1@6-7",
    // And never.
    "w1@1- r-@2-3 r-@4-5 w2@6-7 r2@8-9",
    // Of two swaps of one value one is done.
    "w1@1-2 s12@3-6 f13@4-5 r2@7-8",
    // One of unknown outcome was done.
    "s-1@1-2 u12@3- r2@4-5 w-@6-7 r-@8-9",
    // Nothing was there, as one had been removed.
    "w1@1-2 w-@3-8 s-3@4-7 r3@5-6 f12@9-10",
];

const BAD: [&str; 10] = [
    // Out of nothing.
    "r1@1-2",
    // A stale read.
    "w1@1-2 w2@3-4 r1@5-6",
    // One has seen the write, a later one has not.
    "w1@1-8 r1@2-3 r-@4-5",
    // Two writes at once, and later reads that do not agree.
    "w1@1-4 w2@2-3 r1@5-6 r2@7-8",
    // Lost.
    "w1@1-2 r-@3-4",
    // A write of unknown outcome takes effect twice.
    "w1@1- w2@2-3 r1@4-5 w3@6-7 r3@8-9 r1@10-11",
    // And before its call.
    "r1@1-2 w1@3-",
    // Both swaps of one value are done.
    "w1@1-2 s12@3-6 s13@4-5",
    // It was not done, though the value was there.
    "w1@1-2 f12@3-4 r1@5-6",
    // Removed, and there again.
    "w1@1-2 w-@3-4 r-@5-6 r1@7-8",
];

#[test]
fn histories_are_judged() {
    for (all, verdict) in [(GOOD, Verdict::Linearizable), (BAD, Verdict::NotLinearizable)] {
        for text in all {
            let mut operations = history(text);
            assert_eq!(check(&operations, STATES_MAX), verdict, "{text}");
            operations.reverse();
            assert_eq!(check(&operations, STATES_MAX), verdict, "in any order: {text}");
        }
    }
}

/// Tries all orders of all operations, with each of unknown outcome and without.
fn search(operations: &[Operation<u8>], done: u64, value: Option<u8>) -> bool {
    let is_left = |at: &usize| done >> at & 1 == 0;
    let left: Vec<usize> = (0..operations.len()).filter(is_left).collect();
    if left.iter().all(|at| operations[*at].returned.is_none()) {
        return true;
    }
    left.iter().any(|at| {
        let one = &operations[*at];
        let is_first = left
            .iter()
            .all(|other| operations[*other].returned.is_none_or(|returned| returned >= one.called));
        let after = one.act.apply(&value).filter(|_| is_first);
        after.is_some_and(|value| search(operations, done | 1 << at, value))
    })
}

/// Numbers by chance that need no generator of better quality.
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn small_histories_are_judged_as_by_trying_all_orders() {
    let (mut state, mut good) = (7, 0);
    let count = 20_000;
    for _ in 0..count {
        let n = 2 + next(&mut state, 5);
        let operation = |_| {
            let called = next(&mut state, 12);
            let returned = called + 1 + next(&mut state, 6);
            let mut value = || Some(next(&mut state, 3) as u8).filter(|value| *value > 0);
            let (from, to) = (value(), value());
            let act = match next(&mut state, 4) {
                0 => Act::Write(to),
                1 => {
                    let is_done = [None, Some(true), Some(false)][next(&mut state, 3) as usize];
                    Act::Swap { from, to, is_done }
                }
                _ => Act::Read(from),
            };
            let returns = next(&mut state, 5) > 0;
            Operation { called, returned: returns.then_some(returned), act }
        };
        let operations: Vec<_> = (0..n).map(operation).collect();
        let is_good = search(&operations, 0, None);
        good += u32::from(is_good);
        let verdict = if is_good { Verdict::Linearizable } else { Verdict::NotLinearizable };
        assert_eq!(check(&operations, STATES_MAX), verdict, "{operations:?}");
    }
    assert!(good > count / 10 && good < count * 9 / 10, "{good} of {count} are linearizable");
}

#[test]
fn what_is_too_much_is_not_passed() {
    let read = Operation::<u8> { called: 1, returned: Some(2), act: Act::Read(None) };
    assert_eq!(check(&vec![read.clone(); 64], STATES_MAX), Verdict::Linearizable);
    assert_eq!(check(&vec![read; 65], STATES_MAX), Verdict::TooMany);
    // Writes of different values at once, and a read of none of them.
    let write = |value| Operation { called: 1, returned: Some(2), act: Act::Write(Some(value)) };
    let mut all: Vec<_> = (0..24).map(write).collect();
    all.push(Operation { called: 3, returned: Some(4), act: Act::Read(Some(99)) });
    assert_eq!(check(&all, 100_000), Verdict::OverBudget);
}

#[test]
fn each_object_is_checked_by_itself() {
    let all = |texts: &[(&str, &str)]| -> Vec<(String, Operation<u8>)> {
        let each = |(key, text): &(&str, &str)| {
            let key = String::from(*key);
            history(text).into_iter().map(move |operation| (key.clone(), operation))
        };
        texts.iter().flat_map(each).collect()
    };
    assert_eq!(check_all(all(&[("a", GOOD[1]), ("b", GOOD[2])])), Ok(()));
    let bad = all(&[("a", GOOD[1]), ("c", BAD[2]), ("b", BAD[1])]);
    assert_eq!(check_all(bad), Err(("b".into(), Verdict::NotLinearizable)));
}
