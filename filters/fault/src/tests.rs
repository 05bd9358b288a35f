//! Faults over a loopback: each message passes the layer twice, down and up.

use super::*;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::object::PushError;
use xk_core::{Kernel, Participants, ProtocolRef, Reason, SessionRef, Time, reason};
use xk_kit::control::{LinkType, MaxPacket, OptPacket};
use xk_testkit::kernel::{TestKernel, Top, octets};

struct Net {
    cx: TestKernel,
    wire: ProtocolRef,
    fault: ProtocolRef,
    session: SessionRef,
    sink: Top,
    /// Times and octets of the messages that came.
    log: RefCell<Vec<(u64, Vec<u8>)>>,
}

fn add(
    cx: &Kernel,
    entry: &'static Entry,
    lowers: &[ProtocolRef],
    values: &[(&'static str, Value)],
) -> ProtocolRef {
    let mut params = Params::default();
    for (name, value) in values {
        params.set(name, value.clone());
    }
    entry.add(cx, entry.kind, lowers, &params).unwrap()
}

fn net(seed: u64, values: &[(&'static str, Value)]) -> Net {
    let cx = TestKernel::new(seed);
    let queue = ("queue", Value::Integer(100_000));
    let wire = add(&cx, &xk_loopback::ENTRY, &[], &[queue]);
    let fault = add(&cx, &ENTRY, core::slice::from_ref(&wire), values);
    let sink = Top::add(&cx, "sink");
    cx.start().unwrap();
    let session = sink.open(&cx, &fault, Participants::default()).unwrap();
    Net { cx, wire, fault, session, sink, log: RefCell::default() }
}

impl Net {
    fn send(&self, octets: &[u8]) -> Result<(), PushError> {
        self.session.push(&self.cx, self.cx.pool().copy_from(0, octets).unwrap())
    }

    fn run(&self) {
        loop {
            while self.wire.wire().unwrap().poll(&self.cx, &self.wire, 64) > 0 {}
            let Some(next) = self.cx.next_expiry() else {
                break;
            };
            self.cx.set_now(next);
            self.cx.run_due();
        }
        let came = self.sink.take_received().into_iter();
        self.log.borrow_mut().extend(came.map(|one| (one.at.as_ns(), octets(&one.message))));
    }

    fn count(&self, reason: &Reason) -> u64 {
        self.fault.head().drops().of(reason)
    }

    fn times(&self) -> Vec<u64> {
        self.log.borrow().iter().map(|(at, _)| *at).collect()
    }
}

fn word(direction: &str) -> (&'static str, Value) {
    ("direction", Value::Text(direction.into()))
}

#[test]
fn without_faults_everything_passes() {
    let net = net(1, &[]);
    net.send(b"one").unwrap();
    net.send(b"two").unwrap();
    net.run();
    assert_eq!(*net.log.borrow(), [(0, b"one".to_vec()), (0, b"two".to_vec())]);
    assert_eq!(net.fault.head().drops().total(), 0);
    assert_eq!(net.session.ask(&net.cx, LinkType::default()).unwrap().number, 147);
    assert_eq!(net.fault.ask(&net.cx, MaxPacket::default()).unwrap().octets, 65_535);
}

#[test]
fn shares_are_near_what_was_asked_for() {
    let net = net(
        3,
        &[
            ("loss", Value::Fraction(0.1)),
            ("duplicate", Value::Fraction(0.05)),
            ("corrupt", Value::Fraction(0.2)),
            ("reorder", Value::Fraction(0.3)),
            word("down"),
        ],
    );
    for _ in 0..10_000 {
        net.send(&[0; 10]).unwrap();
        net.run();
    }
    let near = |count: u64, expected: u64| {
        assert!(count.abs_diff(expected) < 40 + expected / 10, "{count} instead of {expected}");
    };
    near(net.count(&LOST), 1_000);
    near(net.count(&CORRUPTED), 1_800);
    near(net.count(&DUPLICATED), 450);
    near(net.count(&REORDERED), 2_835);
    let log = net.log.borrow();
    assert_eq!(log.len() as u64, 10_000 - net.count(&LOST) + net.count(&DUPLICATED));
    let bits = |octets: &[u8]| octets.iter().map(|o| o.count_ones()).sum::<u32>();
    assert!(log.iter().all(|(_, octets)| bits(octets) <= 1 && octets.len() == 10));
    near(log.iter().filter(|(_, octets)| bits(octets) == 1).count() as u64, 1_890);
}

#[test]
fn delay_and_rate_are_exact() {
    let delay = ("delay", Value::Duration(Duration::from_millis(2)));
    let both = net(1, std::slice::from_ref(&delay));
    both.send(b"x").unwrap();
    both.run();
    assert_eq!(both.times(), [4_000_000]);

    let up = net(1, &[delay.clone(), word("up"), ("rate", Value::Rate(8_000))]);
    up.send(b"four").unwrap();
    up.send(b"x").unwrap();
    up.run();
    assert_eq!(*up.log.borrow(), [(6_000_000, b"four".to_vec()), (7_000_000, b"x".to_vec())]);
}

#[test]
fn later_ones_overtake() {
    let net = net(5, &[("reorder", Value::Fraction(0.5)), word("down")]);
    for n in 0..20 {
        net.send(&[n]).unwrap();
    }
    net.run();
    let order: Vec<u8> = net.log.borrow().iter().map(|(_, octets)| octets[0]).collect();
    assert!(!order.is_sorted());
    let mut sorted = order;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..20));
}

#[test]
fn what_is_held_back_is_bounded() {
    let net = net(
        1,
        &[
            ("delay", Value::Duration(Duration::from_millis(1))),
            ("queue", Value::Integer(3)),
            word("down"),
        ],
    );
    let results: Vec<_> = (0..5).map(|_| net.send(b"x")).collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 3);
    assert_eq!(results[4], Err(PushError::QueueFull));
    assert_eq!(net.count(&reason::QUEUE_FULL), 2);
    net.run();
    assert_eq!(net.times(), [1_000_000; 3]);
    // What is held at the end is given back.
    net.send(b"x").unwrap();
    let pool = net.cx.pool().clone();
    drop(net);
    assert_eq!(pool.stats().buffers_live, 0);
}

#[test]
fn messages_for_a_closed_session_are_counted() {
    let net = net(1, &[("delay", Value::Duration(Duration::from_millis(1))), word("down")]);
    net.send(b"x").unwrap();
    net.session.close(&net.cx);
    assert!(net.session.head().is_closed());
    net.run();
    assert!(net.log.borrow().is_empty());
    assert_eq!(net.count(&reason::CLOSED), 1);
}

#[test]
fn large_messages_are_refused_below_and_dropped_above() {
    let down = net(1, &[("mtu", Value::Octets(4)), word("down")]);
    assert_eq!(down.send(b"12345"), Err(PushError::TooBig));
    assert_eq!(down.session.ask(&down.cx, MaxPacket::default()).unwrap().octets, 4);
    assert_eq!(down.session.ask(&down.cx, OptPacket::default()).unwrap().octets, 4);
    let up = net(1, &[("mtu", Value::Octets(4)), word("up")]);
    up.send(b"12345").unwrap();
    up.send(b"1234").unwrap();
    up.run();
    assert_eq!((up.count(&reason::TOO_BIG), up.times().len()), (1, 1));
    assert_eq!(up.session.ask(&up.cx, MaxPacket::default()).unwrap().octets, 65_535);
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let values = [
            ("loss", Value::Fraction(0.2)),
            ("corrupt", Value::Fraction(0.2)),
            ("reorder", Value::Fraction(0.2)),
            ("duplicate", Value::Fraction(0.2)),
        ];
        let net = net(seed, &values);
        for n in 0..200 {
            net.send(&[n; 8]).unwrap();
        }
        net.run();
        assert!(net.cx.now() > Time::ZERO);
        net.log.take()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
