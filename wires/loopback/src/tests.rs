//! A kernel with one protocol on a loopback.

use super::*;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::kernel::Config;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, PoolConfig};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Kernel, Message, Participants, Pool, Protocol, ProtocolRef, SessionRef, Time, Upper, reason,
};
use xk_kit::control::{LinkType, MaxPacket, WireRoom};

/// Answers each message with one an octet shorter, and notes whether it was called from within its
/// own push.
#[derive(Default)]
struct Shrink {
    lengths: RefCell<Vec<usize>>,
    pushing: Cell<bool>,
    nested: Cell<bool>,
    refuses: bool,
    marked: Cell<bool>,
}

struct Upperside(Rc<Shrink>);

impl Protocol for Upperside {
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        self.0.nested.set(self.0.nested.get() | self.0.pushing.get());
        self.0.lengths.borrow_mut().push(message.len());
        self.0.marked.set(message.attribute::<Mark>().is_some());
        if self.0.refuses {
            return Err(this.refuse(message, &reason::NO_PORT));
        }
        if message.strip(1) {
            self.0.pushing.set(true);
            lower.push(cx, message).unwrap();
            self.0.pushing.set(false);
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Mark;

impl Attribute for Mark {
    const KEY: u32 = xk_core::name_key("mark");
    const CROSSES: Crossing = Crossing::BOTH;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        [0; ATTRIBUTE_OCTETS]
    }

    fn decode(_: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Mark
    }
}

struct Net {
    cx: Kernel,
    wire: ProtocolRef,
    upper: ProtocolRef,
    seen: Rc<Shrink>,
}

fn net(queue: i64, refuses: bool) -> Net {
    delayed(queue, refuses, Duration::ZERO)
}

fn delayed(queue: i64, refuses: bool, delay: Duration) -> Net {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let shepherds = Shepherds::new(Box::new(NoSwitch), Limits::default());
    let cx = Kernel::new(Config { random: Random::new(1), pool, shepherds, timers_max: 10 });
    let mut params = Params::default();
    params.set("mtu", Value::Octets(100));
    params.set("queue", Value::Integer(queue));
    params.set("delay", Value::Duration(delay));
    let wire = ENTRY.add(&cx, "loopback", &[], &params).unwrap();
    let seen = Rc::new(Shrink { refuses, ..Shrink::default() });
    let upper = cx.add_protocol("shrink", "shrink", Upperside(Rc::clone(&seen)));
    Net { cx, wire, upper, seen }
}

impl Net {
    fn open(&self) -> SessionRef {
        self.wire.open(&self.cx, Upper::new(&self.upper), Participants::default()).unwrap()
    }

    fn message(&self, octets: usize) -> Message {
        self.cx.pool().copy_from(0, &vec![0; octets]).unwrap()
    }

    fn poll(&self, budget: usize) -> usize {
        self.wire.wire().unwrap().poll(&self.cx, &self.wire, budget)
    }
}

#[test]
fn what_is_sent_comes_back_at_the_next_poll() {
    let net = net(10, false);
    let session = net.open();
    let mut message = net.message(3);
    message.set_attribute(Mark).unwrap();
    session.push(&net.cx, message).unwrap();
    assert!(net.seen.lengths.borrow().is_empty());
    assert_eq!(net.wire.wire().unwrap().next_poll(), Some(Time::ZERO));
    assert_eq!(net.poll(10), 1);
    assert_eq!((net.poll(10), net.poll(10), net.poll(10), net.poll(10)), (1, 1, 1, 0));
    assert_eq!(*net.seen.lengths.borrow(), [3, 2, 1, 0]);
    assert!(!net.seen.nested.get() && !net.seen.marked.get());
    assert_eq!(net.wire.wire().unwrap().next_poll(), None);
}

#[test]
fn bounds_are_kept_and_counted() {
    let net = net(2, false);
    let session = net.open();
    assert_eq!(session.push(&net.cx, net.message(101)), Err(PushError::TooBig));
    let has_room = || net.wire.ask(&net.cx, WireRoom::default()).unwrap().after.is_zero();
    for _ in 0..2 {
        assert!(has_room());
        session.push(&net.cx, net.message(0)).unwrap();
    }
    assert!(!has_room());
    assert_eq!(session.push(&net.cx, net.message(0)), Err(PushError::QueueFull));
    let drops = net.wire.head().drops();
    assert_eq!((drops.of(&reason::TOO_BIG), drops.of(&reason::QUEUE_FULL)), (1, 1));
    assert_eq!((net.poll(1), net.poll(5)), (1, 1));
    assert_eq!(session.ask(&net.cx, MaxPacket::default()).unwrap().octets, 100);
    assert_eq!(net.wire.ask(&net.cx, LinkType::default()).unwrap().number, 147);
}

#[test]
fn the_first_arrival_makes_the_session_for_who_enabled() {
    let net = net(2, true);
    let other = net.cx.add_protocol("other", "other", Upperside(Rc::default()));
    let session = net.open();
    let again = net.wire.open(&net.cx, Upper::new(&other), Participants::default());
    assert_eq!(again.err(), Some(OpenError::InUse));
    session.push(&net.cx, net.message(1)).unwrap();
    session.close(&net.cx);
    assert!(session.head().is_closed());
    // No protocol wants it now.
    assert_eq!(net.poll(1), 1);
    assert_eq!(net.wire.head().drops().of(&reason::NO_PROTOCOL), 1);

    let session = net.open();
    session.push(&net.cx, net.message(1)).unwrap();
    session.close(&net.cx);
    let enable =
        net.wire.open_enable(&net.cx, Upper::new(&net.upper), Participants::default()).unwrap();
    assert_eq!(net.poll(1), 1);
    assert_eq!(*net.seen.lengths.borrow(), [1]);
    assert_eq!(net.upper.head().drops().of(&reason::NO_PORT), 1);
    net.wire.open_disable(&net.cx, enable);
    net.cx.stop();
    assert_eq!(net.cx.pool().stats().buffers_live, 0);
}

#[test]
fn messages_come_back_in_order_after_the_delay() {
    let net = delayed(2, true, Duration::from_millis(2));
    let (session, wire) = (net.open(), net.wire.wire().unwrap());
    let at = |ms| net.cx.set_now(Time::ZERO + Duration::from_millis(ms));
    session.push(&net.cx, net.message(1)).unwrap();
    at(1);
    session.push(&net.cx, net.message(2)).unwrap();
    assert_eq!(session.push(&net.cx, net.message(3)), Err(PushError::QueueFull));
    assert_eq!((net.poll(10), wire.next_poll()), (0, Some(Time::from_ms(2))));
    at(2);
    assert_eq!((net.poll(10), wire.next_poll()), (1, Some(Time::from_ms(3))));
    at(3);
    assert_eq!((net.poll(10), wire.next_poll()), (1, None));
    assert_eq!(*net.seen.lengths.borrow(), [1, 2]);
    assert_eq!(net.upper.head().drops().of(&reason::NO_PORT), 2);
    session.push(&net.cx, net.message(1)).unwrap();
    session.close(&net.cx);
    net.cx.stop();
    assert_eq!(net.cx.pool().stats().buffers_live, 0);
}

#[test]
fn a_message_sent_to_and_fro_comes_once_at_each_poll() {
    let net = net(10, false);
    net.open().push(&net.cx, net.message(50)).unwrap();
    assert_eq!([net.poll(10), net.poll(10), net.poll(10)], [1; 3]);
}
