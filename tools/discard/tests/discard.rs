//! Tests that arrivals are counted and dropped.

use xk_core::control::Report;
use xk_core::{Part, Participant};
use xk_testkit::kernel::{Bottom, Lower, TestKernel};

#[test]
fn every_message_is_counted_and_none_is_kept() {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "bottom", Lower::link(1500));
    let local = Participant::of(Part::Any);
    let discard = xk_discard::add(&cx, "discard", bottom.protocol().clone(), local);
    cx.start().unwrap();
    for len in [0, 1, 1500] {
        assert!(bottom.inject(&cx, None, cx.message(&vec![7; len])));
    }
    assert_eq!((bottom.sent(), cx.live()), (0, (0, 0)));
    let report = discard.ask(&cx, Report::default()).unwrap();
    let counts: Vec<_> = report.lines.iter().map(|(_, n)| n.as_str()).collect();
    assert_eq!(counts, ["3", "1501"]);
    assert!(report.finished && !report.failed);
}
