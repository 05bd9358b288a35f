//! The cost of the message tool.

use crate::case::{Case, Goal};
use crate::stack::pool;
use std::hint::black_box;

/// The loop alone, which every row below contains.
const LOOP: &str = "empty loop";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(LOOP, 1_000_000, || |operations| (0..operations).for_each(|n| _ = black_box(n))),
        alloc_and_free(),
        push_and_pop(),
        push_and_pop_template(),
        clone_and_drop(),
        split_and_join(),
        malloc(),
    ]
}

fn alloc_and_free() -> Case {
    Case::new("allocate and free 64 octets", 1_000_000, || {
        let pool = pool();
        move |operations| {
            for _ in 0..operations {
                drop(black_box(pool.alloc(128, 64)));
            }
        }
    })
    .less(LOOP)
    .goal(Goal::AtMost(5.0))
}

fn malloc() -> Case {
    let row = "Box of 2 KiB, make and free";
    let make = || drop(black_box(Box::<[u8; 2048]>::new_uninit()));
    Case::new(row, 300_000, move || move |operations| (0..operations).for_each(|_| make()))
        .of("malloc")
        .less(LOOP)
}

fn push_and_pop() -> Case {
    Case::new("push and pop a header of 8 octets", 1_000_000, || {
        let mut message = pool().alloc(128, 64).expect("a fresh pool has room");
        move |operations| {
            for _ in 0..operations {
                let _ = black_box(message.push_header(8));
                black_box(message.strip(8));
            }
        }
    })
    .less(LOOP)
    .goal(Goal::AtMost(2.0))
}

fn push_and_pop_template() -> Case {
    Case::new("push, write and pop a header of 20 octets", 1_000_000, || {
        let mut message = pool().alloc(128, 64).expect("a fresh pool has room");
        let template = [7; 20];
        move |operations| {
            for _ in 0..operations {
                let _ = black_box(message.push_array(black_box(&template)));
                black_box(message.strip(20));
            }
        }
    })
    .less(LOOP)
}

fn clone_and_drop() -> Case {
    Case::new("clone by reference and drop", 500_000, || {
        let message = pool().alloc(128, 1400).expect("a fresh pool has room");
        move |operations| (0..operations).for_each(|_| drop(black_box(message.try_clone())))
    })
    .less(LOOP)
}

/// 16 KiB cut into 12 pieces, as IP does for Ethernet, and put together again.
fn split_and_join() -> Case {
    const OCTETS: usize = 16 * 1024;
    const PIECE: usize = 1480;
    Case::new("16 KiB split into 12 and joined", 20_000, || {
        let mut message = pool().alloc(128, OCTETS).ok();
        move |operations| {
            for _ in 0..operations {
                let Some(mut rest) = message.take() else {
                    return;
                };
                let mut pieces = [const { None }; 12];
                for piece in &mut pieces[..11] {
                    *piece = rest.split_front(PIECE).ok();
                }
                pieces[11] = Some(rest);
                message = pieces.into_iter().flatten().reduce(|mut whole, piece| {
                    whole.join(piece);
                    whole
                });
            }
            assert_eq!(message.as_ref().map_or(0, |m| m.len()), OCTETS, "nothing got lost");
        }
    })
    .less(LOOP)
    .goal(Goal::AtMost(300.0))
}
