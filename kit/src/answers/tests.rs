use super::*;
use xk_core::kernel::Config;
use xk_core::message::{Pool, PoolConfig};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Protocol, Session, Time};

fn kernel() -> Kernel {
    kernel_of(1)
}

fn kernel_of(seed: u64) -> Kernel {
    Kernel::new(Config {
        random: Random::new(seed),
        pool: Pool::new(&PoolConfig::default()).expect("a pool"),
        shepherds: Shepherds::new(alloc::boxed::Box::new(NoSwitch), Limits::default()),
        timers_max: 8,
    })
}

/// Octets that go to `source` in pieces of 100.
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
    assert!((5000..=6 * 5000).contains(&near), "{near}");
    let sources = (0..1 << 20).map(|n: u64| n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff);
    let all: u64 = sources.map(|host| taken(&cx, &allowance, host)).sum();
    assert!(all + near <= 70 * 5000, "{all}");
    assert!(all + near > 25 * 5000, "{all}");
}

/// Messages that an attacker with addresses in many networks gets, after another host was sent its
/// whole allowance (`is_used`) or nothing.
fn left(seed: u64, is_used: bool) -> u64 {
    let cx = kernel_of(seed);
    let allowance = Allowance::new(10, 10);
    cx.set_now(Time::from_s(1));
    let times: usize = if is_used { 100 } else { 0 };
    let taken = (0..times).filter(|_| allowance.take(&cx, 0x0a00_0001, 1));
    assert_eq!(taken.count(), times.min(10));
    let own = (0..4000u64).map(|n| 0x0b00_0000 + n * 0x101);
    own.map(|host| u64::from(allowance.take(&cx, host, 1))).sum()
}

#[test]
fn what_is_left_for_all_does_not_tell_what_one_was_sent() {
    const ROUNDS: u64 = 300;
    let mut used: Vec<u64> = (0..ROUNDS).map(|n| left(2 * n, true)).collect();
    let mut unused: Vec<u64> = (0..ROUNDS).map(|n| left(2 * n + 1, false)).collect();
    used.sort_unstable();
    unused.sort_unstable();
    // The attacker takes a count up to some bound as a sign that the host was sent something: how
    // often is that right, with the best bound?
    let up_to = |counts: &[u64], bound| counts.partition_point(|count| *count <= bound);
    let right = |bound| up_to(&used, bound) + unused.len() - up_to(&unused, bound);
    let best = used.iter().map(|bound| right(*bound)).max();
    let percent = best.unwrap_or(0) * 100 / (2 * ROUNDS as usize);
    assert!(percent < 60, "right in {percent} of 100 guesses");
}

struct Wire;

impl Protocol for Wire {}

struct Peer;

impl Session for Peer {}

#[test]
fn what_comes_again_and_again_is_told() {
    let cx = kernel();
    let wire = cx.add_protocol("wire", "wire", Wire);
    let [one, other] = [0, 1].map(|_| cx.new_session(&wire, &wire, Peer));
    let repeats = Repeats::default();
    let message = |n: u64| cx.pool().copy_from(0, &n.to_be_bytes()).expect("room");
    let came =
        |session, n| (0..5000).filter(|_| repeats.may_come(&cx, session, &message(n))).count();
    assert_eq!(came(&one, 7), 1000);
    assert_eq!(came(&one, 7), 0);
    assert_eq!(came(&other, 7), 1000);
    assert!((0..100_000).all(|n| repeats.may_come(&cx, &one, &message(8 + n))));
}
