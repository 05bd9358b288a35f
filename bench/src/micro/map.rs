//! The cost of demultiplexing.

use crate::case::{Case, Goal};
use crate::record::Record;
use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;
use xk_core::Secret;
use xk_core::map::Map;

/// A key of 12 octets, as of a TCP connection.
type Key = (u64, u32);

const CACHE: &str = "hit in the one-entry cache";

fn key(n: u64) -> Key {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n as u32)
}

/// Steps a generator of full period and answers the entry it points to: an order that visits all
/// entries and that no prefetcher follows.
fn next(state: &mut u64, entries: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % entries
}

const LOOP: &str = "empty loop";

pub(crate) fn cases() -> Vec<Case> {
    let empty = Case::new(LOOP, 1_000_000, || {
        |operations| (0..operations).for_each(|_| _ = black_box(key(black_box(3))))
    });
    let counted = Case::new("clone and drop of a counted value", 1_000_000, || {
        let value = Rc::new(7_u64);
        move |operations| (0..operations).for_each(|_| drop(black_box(Rc::clone(&value))))
    });
    let cached = Case::new(CACHE, 1_000_000, || {
        let map = Map::new(Secret::known([1, 2]), 16);
        for n in 0..4 {
            let _ = map.bind(key(n), Rc::new(n));
        }
        move |operations| (0..operations).for_each(|_| drop(black_box(map.get(&key(black_box(3))))))
    });
    let mut list = vec![empty, counted.less(LOOP), cached.less(LOOP).goal(Goal::AtMost(2.0))];
    for entries in [10, 100, 1000, 10_000, 1_000_000] {
        list.push(many(entries));
        list.push(many_std(entries));
    }
    list
}

fn row(entries: u64) -> String {
    format!("{entries} entries, another key each time")
}

fn many(entries: u64) -> Case {
    Case::new(row(entries), 300_000, move || {
        let map = Map::new(Secret::known([1, 2]), entries as usize);
        for n in 0..entries {
            let _ = map.bind(key(n), n as u32);
        }
        let mut state = 1;
        move |operations| {
            for _ in 0..operations {
                black_box(map.get(&key(next(&mut state, entries))));
            }
        }
    })
    .less(LOOP)
    .beside("std HashMap")
}

fn many_std(entries: u64) -> Case {
    Case::new(row(entries), 300_000, move || {
        let map: HashMap<Key, u32> = (0..entries).map(|n| (key(n), n as u32)).collect();
        let mut state = 1;
        move |operations| {
            for _ in 0..operations {
                black_box(map.get(&key(next(&mut state, entries))));
            }
        }
    })
    .of("std HashMap")
}

pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let median = |entries: u64| Record::find(records, &row(entries), "xk");
    let (Some(few), Some(some), Some(million)) = (median(10), median(10_000), median(1_000_000))
    else {
        return Vec::new();
    };
    let difference = |name: &str, more: &Record, goal| Record {
        goal,
        ..more.with(few, (name, few.unit), |more, few| more - few)
    };
    vec![
        difference("10,000 entries over 10", some, None),
        difference("a million entries over 10", million, Some(Goal::AtMost(60.0))),
    ]
}
