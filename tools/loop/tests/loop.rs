//! What is pushed comes up again: later, in order, bounded.

use core::time::Duration;
use xk_core::control::Describe;
use xk_core::object::PushError;
use xk_core::{Participants, reason};
use xk_kit::control::{MaxPacket, OptPacket};
use xk_loop::{Settings, add};
use xk_testkit::kernel::{TestKernel, Top, octets};

#[test]
fn messages_come_back_in_order_after_the_delay() {
    let cx = TestKernel::new(1);
    let delay = Duration::from_millis(2);
    let bottom = add(&cx, "loop", Settings { delay, ..Settings::default() });
    let top = Top::add(&cx, "top");
    let session = top.open(&cx, &bottom, Participants::default()).unwrap();
    session.push(&cx, cx.message(b"one")).unwrap();
    cx.advance(Duration::from_millis(1));
    session.push(&cx, cx.message(b"two")).unwrap();
    assert_eq!(top.received(), 0, "never within the push");
    cx.advance(Duration::from_millis(1));
    assert_eq!(top.received(), 1);
    cx.advance(Duration::from_millis(1));
    let all: Vec<_> = top.take_received().iter().map(|r| octets(&r.message)).collect();
    assert_eq!(all, [b"one", b"two"]);
    assert!(session.ask(&cx, Describe::default()).unwrap().text.starts_with('0'));
}

#[test]
fn a_message_sent_to_and_fro_does_not_stop_the_clock() {
    let cx = TestKernel::new(1);
    let bottom = add(&cx, "loop", Settings::default());
    let top = Top::add(&cx, "top");
    top.echo(true);
    top.forget(true);
    let _ = top.enable(&cx, &bottom, Participants::default()).unwrap();
    let session = top.open(&cx, &bottom, Participants::default()).unwrap();
    session.push(&cx, cx.message(b"x")).unwrap();
    cx.advance(Duration::from_nanos(10));
    assert_eq!(top.received(), 10);
    assert_eq!(cx.timers(), 1, "one timer, however many messages");
    cx.stop();
    assert_eq!(cx.live(), (0, 0));
}

#[test]
fn bounds_are_counted() {
    let cx = TestKernel::new(1);
    let settings = Settings { queue: 2, mtu: 4, ..Settings::default() };
    let bottom = add(&cx, "loop", settings);
    let top = Top::add(&cx, "top");
    let session = top.open(&cx, &bottom, Participants::default()).unwrap();
    assert_eq!(session.ask(&cx, MaxPacket::default()).unwrap().octets, 4);
    assert_eq!(bottom.ask(&cx, OptPacket::default()).unwrap().octets, 4);
    let push = |octets: &[u8]| session.push(&cx, cx.message(octets));
    assert_eq!(push(b"12345"), Err(PushError::TooBig));
    assert_eq!((push(b"1"), push(b"2")), (Ok(()), Ok(())));
    assert_eq!(push(b"3"), Err(PushError::QueueFull));
    let drops = bottom.head().drops();
    assert_eq!((drops.of(&reason::TOO_BIG), drops.of(&reason::QUEUE_FULL)), (1, 1));
    top.refuse(Some(&reason::NO_PORT));
    cx.advance(Duration::from_nanos(1));
    assert_eq!(top.protocol().head().drops().of(&reason::NO_PORT), 2);
}
