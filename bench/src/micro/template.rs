//! The cost of checking a message against the template of its headers.

use crate::case::{Case, Goal};
use crate::udp_inprocess::Pair;
use std::hint::black_box;
use xk_kit::net::template::{Check, HeaderField, OCTETS_MAX, Template};

const LOOP: &str = "empty loop";
const OPERATIONS: u64 = 1_000_000;
/// Memory that frames to be copied come from, in octets: more than the caches hold.
const MEMORY_OCTETS: usize = 64 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let empty = Case::new(LOOP, OPERATIONS, || |n| (0..n).for_each(|n| _ = black_box(n)));
    let words = Case::new("six masked words", OPERATIONS, || {
        // Every second octet is alike.
        let fields: Vec<_> = (0..48).step_by(2).map(|at| (at, HeaderField::Free(1))).collect();
        let template = Template::wire(1514).header(&[7; 48], &fields).expect("a sound header");
        compare(template, vec![7; 100])
    });
    let datagram = Case::new("64 octets by UDP, IP and ETH, both lengths, too", OPERATIONS, || {
        let (template, frame) = Pair::new(1).sample(64);
        compare(template, frame)
    });
    let copied =
        Case::new("the same, 128 octets copied out of other memory first", 300_000, || {
            let (template, mut frame) = Pair::new(1).sample(64);
            frame.resize(OCTETS_MAX, 0);
            copy_and_compare(&template, &frame)
        });
    vec![
        empty,
        words.less(LOOP).goal(Goal::AtMost(5.0)),
        datagram.less(LOOP).goal(Goal::AtMost(15.0)),
        copied.less(LOOP),
    ]
}

fn compare(template: Template, frame: Vec<u8>) -> impl FnMut(u64) {
    let check = Check::new(&template);
    assert!(check.admits(&frame, frame.len()), "the frame fits its template");
    move |operations| {
        for _ in 0..operations {
            black_box(check.admits(black_box(&frame), frame.len()));
        }
    }
}

fn copy_and_compare(template: &Template, frame: &[u8]) -> impl FnMut(u64) + use<> {
    let (check, octets) = (Check::new(template), 106);
    let memory: Vec<u8> = frame.iter().copied().cycle().take(MEMORY_OCTETS).collect();
    let mut at = 0;
    move |operations| {
        for _ in 0..operations {
            // Steps that no prefetcher follows.
            at = (at * 5 + OCTETS_MAX * 0x3001) % MEMORY_OCTETS;
            let mut front = [0; OCTETS_MAX];
            front.copy_from_slice(black_box(&memory[at..at + OCTETS_MAX]));
            assert!(check.admits(black_box(&front), octets), "a copy of the frame fits");
        }
    }
}
