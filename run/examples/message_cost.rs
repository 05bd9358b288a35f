//! What the daily operations on a message cost, in nanoseconds: `cargo run --release -p xk-run --example message_cost`.

use std::hint::black_box;
use std::time::Instant;

use xk_core::message::{Message, Pool, PoolConfig};

/// The smallest mean of several runs, in nanoseconds for each call.
fn measure(what: &str, calls: u32, mut call: impl FnMut()) {
    let mut run = || {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    let best = (0..7).map(|_| run()).fold(f64::INFINITY, f64::min);
    println!("{what:<44}{best:>9.2} ns");
}

fn through_layers(mut message: Message, layers: u32) -> Message {
    for _ in 0..layers {
        message = black_box(message);
    }
    message
}

fn split_and_join(mut rest: Message) -> Option<Message> {
    let mut whole = rest.split_front(1366).ok()?;
    for _ in 0..10 {
        let part = rest.split_front(1366).ok()?;
        whole.join(black_box(part));
    }
    whole.join(rest);
    Some(whole)
}

fn split_all_then_join(mut rest: Message) -> Option<Message> {
    let mut parts = [const { None }; 12];
    for part in &mut parts[..11] {
        *part = Some(rest.split_front(1366).ok()?);
    }
    parts[11] = Some(rest);
    let mut parts = black_box(parts).into_iter().flatten();
    let mut whole = parts.next()?;
    parts.for_each(|part| whole.join(part));
    Some(whole)
}

fn main() {
    let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
    let alloc = |headroom, len| pool.alloc(headroom, len).expect("an empty pool has room");
    measure("alloc and free, 128 + 1460 octets", 1_000_000, || {
        drop(black_box(alloc(128, black_box(1460))))
    });
    measure("alloc and free, 128 + 16384 octets", 1_000_000, || {
        drop(black_box(alloc(128, black_box(16384))))
    });

    let header = [7_u8; 20];
    let mut message = alloc(128, 1460);
    measure("nothing (the measurement's own share)", 1_000_000, || {
        black_box(black_box(&mut message).len());
    });
    measure("push 20 octets and pop them", 1_000_000, || {
        let message = black_box(&mut message);
        let _ = black_box(message.push_array(black_box(&header)));
        black_box(message.pop_array::<20>());
    });
    measure("push_header(n) and strip(n), n unknown", 1_000_000, || {
        let (message, n) = (black_box(&mut message), black_box(20));
        let _ = black_box(message.push_header(n).map(|room| room.as_mut_ptr()));
        black_box(message.strip(n));
    });
    measure("clone and drop, one slice", 1_000_000, || {
        drop(black_box(message.try_clone()))
    });

    let mut moved = Some(alloc(128, 40));
    measure("moved by value through 10 calls", 1_000_000, || {
        moved = moved.take().map(|it| through_layers(it, 10))
    });

    let mut large = Some(alloc(128, 16 * 1024));
    measure("16 KiB split into 12, each joined at once", 100_000, || {
        large = large.take().and_then(split_and_join)
    });
    measure("16 KiB split into 12, then all joined", 100_000, || {
        large = large.take().and_then(split_all_then_join)
    });
    assert_eq!(
        large.map(|it| (it.len(), it.slices().count())),
        Some((16 * 1024, 1))
    );
}
