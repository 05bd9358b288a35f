//! Tests that arrivals go back and are counted, unless they would go to many or in a circle.

use xk_core::control::Report;
use xk_core::object::PushError;
use xk_core::{Part, Participant, ProtocolRef};
use xk_kit::answers::{LOOP, TO_MANY};
use xk_kit::net::attribute::LinkCast;
use xk_testkit::kernel::{Bottom, Lower, TestKernel};

fn echo() -> (TestKernel, Bottom, ProtocolRef) {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "bottom", Lower::link(1500));
    let local = Participant::of(Part::Any);
    let echo = xk_echo::add(&cx, "echo", bottom.protocol().clone(), local);
    cx.start().unwrap();
    (cx, bottom, echo)
}

#[test]
fn every_message_goes_back_and_is_counted() {
    let (cx, bottom, echo) = echo();
    for len in [0, 1, 1500] {
        let octets = vec![7; len];
        assert!(bottom.inject(&cx, None, cx.message(&octets)));
        let sent = bottom.take_sent().swap_remove(0).message;
        assert!(sent.eq_octets(&octets));
    }
    bottom.fail(Some(PushError::QueueFull));
    assert!(bottom.inject(&cx, None, cx.message(b"x")));
    let report = echo.ask(&cx, Report::default()).unwrap();
    let counts: Vec<_> = report.lines.iter().map(|(_, n)| n.as_str()).collect();
    assert_eq!(counts, ["4", "1502", "3", "1"]);
    assert!(report.finished && !report.failed);
    cx.stop();
    assert_eq!(cx.live(), (0, 0));
}

#[test]
fn what_was_sent_to_many_is_refused() {
    let (cx, bottom, echo) = echo();
    for cast in [LinkCast::Broadcast, LinkCast::Multicast] {
        let mut message = cx.message(b"x");
        message.set_attribute(cast).unwrap();
        assert!(!bottom.inject(&cx, None, message));
    }
    assert!(bottom.take_sent().is_empty());
    assert_eq!(echo.head().drops().of(&TO_MANY), 2);
    cx.stop();
}

#[test]
fn what_goes_round_ends_and_what_differs_does_not() {
    let (cx, bottom, echo) = echo();
    let mut rounds = 0;
    while bottom.inject(&cx, None, cx.message(b"forever")) {
        assert_eq!(bottom.take_sent().len(), 1);
        rounds += 1;
        assert!(rounds < 100_000);
    }
    assert_eq!(echo.head().drops().of(&LOOP), 1);
    for n in 0..100_000u32 {
        assert!(bottom.inject(&cx, None, cx.message(&n.to_be_bytes())));
        drop(bottom.take_sent());
    }
    cx.stop();
}
