//! What arrives goes back, counted.

use xk_core::control::Report;
use xk_core::object::PushError;
use xk_core::{Part, Participant};
use xk_kit::attribute::LinkCast;
use xk_testkit::kernel::{Bottom, Lower, TestKernel};

#[test]
fn every_message_goes_back_and_is_counted() {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "bottom", Lower::link(1500));
    let local = Participant::of(Part::Any);
    let echo = xk_echo::add(&cx, "echo", bottom.protocol().clone(), local);
    cx.start().unwrap();
    for len in [0, 1, 1500] {
        let octets = vec![7; len];
        let mut message = cx.message(&octets);
        message.set_attribute(LinkCast::Broadcast).unwrap();
        assert!(bottom.inject(&cx, None, message));
        let sent = bottom.take_sent().swap_remove(0).message;
        assert!(sent.eq_octets(&octets) && sent.attribute::<LinkCast>().is_none());
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
