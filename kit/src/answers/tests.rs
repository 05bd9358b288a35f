use super::*;
use xk_core::Time;
use xk_core::kernel::Config;
use xk_core::message::{Pool, PoolConfig};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};

fn kernel() -> Kernel {
    Kernel::new(Config {
        random: Random::new(1),
        pool: Pool::new(&PoolConfig::default()).expect("a pool"),
        shepherds: Shepherds::new(alloc::boxed::Box::new(NoSwitch), Limits::default()),
        timers_max: 8,
    })
}

/// How many octets go to `source` in pieces of 100.
fn taken(cx: &Kernel, allowance: &Allowance, source: u64) -> u64 {
    let mut pieces = 0;
    while allowance.take(cx, source, 100) {
        pieces += 1;
    }
    100 * pieces
}

#[test]
fn three_times_always_and_more_by_allowance() {
    let cx = kernel();
    let allowance = Allowance::new(1000, 5000);
    assert!((0..1000).all(|_| allowance.may_answer(&cx, 1, 100, 290)));
    assert!(allowance.may_answer(&cx, 1, 100, 3000));
    assert!(!allowance.may_answer(&cx, 1, 100, 3000));
    assert!(allowance.may_answer(&cx, 1, 100, 290));
    assert!(!Allowance::new(0, 5000).take(&cx, 1, 1));
}

#[test]
fn a_source_gets_its_burst_then_its_rate() {
    let cx = kernel();
    let allowance = Allowance::new(1000, 5000);
    assert_eq!(taken(&cx, &allowance, 1), 5000);
    assert_eq!(taken(&cx, &allowance, 1), 0);
    cx.set_now(Time::from_ms(1500));
    assert_eq!(taken(&cx, &allowance, 1), 1500);
    cx.set_now(Time::from_s(1000));
    assert_eq!(taken(&cx, &allowance, 1), 5000);
}

#[test]
fn neighbours_share_and_so_do_all() {
    let cx = kernel();
    let allowance = Allowance::new(1000, 5000);
    let near: u64 = (0..256).map(|host| taken(&cx, &allowance, host)).sum();
    assert_eq!(near, 4 * 5000);
    let sources = (0..1 << 20).map(|n: u64| n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff);
    let all: u64 = sources.map(|host| taken(&cx, &allowance, host)).sum();
    assert!(all + near <= 64 * 5000, "{all}");
    assert!(all + near > 60 * 5000, "{all}");
}

#[test]
fn what_comes_again_and_again_is_told() {
    let cx = kernel();
    let repeats = Repeats::default();
    let message = |n: u64| cx.pool().copy_from(0, &n.to_be_bytes()).expect("room");
    let came = |n| {
        (0..5000)
            .filter(|_| repeats.may_come(&cx, &message(n)))
            .count()
    };
    assert_eq!(came(7), 1000);
    assert_eq!(came(7), 0);
    assert!((0..100_000).all(|n| repeats.may_come(&cx, &message(8 + n))));
}
