//! Random networks and applications against the model of a stream.

use xk_core::graph::{Params, Value};
use xk_core::random::Random;
use xk_testkit::seeds;
use xk_testkit::streams::{simulate, sweep};

/// Parameters of one side.
fn configure(chance: &Random) -> Params {
    let mut params = Params::default();
    let flag = |p: f64| Value::Bool(chance.chance(p));
    let congestion = ["newreno", "cubic", "bbr"][chance.below(3) as usize];
    params.set("congestion", Value::Text(congestion.into()));
    params.set("window_scale", flag(0.8));
    params.set("timestamps", flag(0.8));
    params.set("sack", flag(0.8));
    params.set("ecn", flag(0.3));
    params.set("accurate_ecn", flag(0.3));
    params.set("fast_open", flag(0.4));
    params.set("fast_open_max", Value::Integer(chance.below(3) as i64));
    params.set("receive_buffer", Value::Octets(2048 << chance.below(12)));
    params.set("send_buffer", Value::Octets(2048 << chance.below(10)));
    params
}

#[test]
fn some_hundred_seeds_hold() {
    println!("{:?}", sweep(&xk_tcp::ENTRY, configure, seeds::of(1)));
}

/// Parameters of one side that agrees on accurate feedback with the other.
fn with_accurate_marks(chance: &Random) -> Params {
    let mut params = configure(chance);
    params.set("accurate_ecn", Value::Bool(true));
    params
}

#[test]
fn seeds_with_accurate_marks_hold() {
    println!("{:?}", sweep(&xk_tcp::ENTRY, with_accurate_marks, seeds::of(1)));
}

#[test]
fn a_seed_replays() {
    let run = || format!("{:?}", simulate(&xk_tcp::ENTRY, configure, 5));
    assert_eq!(run(), run());
}
