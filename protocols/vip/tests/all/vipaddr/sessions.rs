//! Promises of `vipaddr` where no host is on the link: the sessions of the layer that reaches all,
//! as they are.

use crate::add;
use core::net::Ipv4Addr;
use xk_core::numbers::Number;
use xk_core::object::OpenError;
use xk_core::{Part, Participants};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

#[test]
fn the_session_is_the_layers_own() {
    let kernel = TestKernel::new(1);
    let cx = &kernel;
    let net = Bottom::add(cx, "ip", Lower::host(OWN, 90));
    let link = Lower { kind: "eth", ..Lower::host(OWN, 90) };
    let link = Bottom::add(cx, "link", link);
    let number = Number { upper: "top", lower: "ip", number: 90 };
    cx.numbers_mut().add(number).expect("one number");
    let both = (link.protocol().clone(), net.protocol().clone());
    let vipaddr = add(cx, &xk_vip::vipaddr::ENTRY, both);
    // The number on Ethernet follows.
    assert_eq!(cx.numbers_mut().find_kinds("top", "eth"), Some(0x395a));
    let top = Top::add(cx, "top");
    let stranger = Top::add_kind(cx, "stranger", "stranger");
    cx.start().expect("it starts");
    let both = || Participants::pair(Part::Any, Part::host(PEER));
    let session = top.open(cx, &vipaddr, both()).expect("a session");
    assert_eq!(session.head().protocol(), net.protocol().id());
    assert!(top.open(cx, &vipaddr, both()).expect("it is there") == session);
    assert_eq!(stranger.open(cx, &vipaddr, both()), Err(OpenError::NoTypeNumber));
    let any = Participants::local(Part::Any);
    let enable = top.enable(cx, &vipaddr, any.clone()).expect("an offer");
    vipaddr.open_disable(cx, enable);
    let enable = top.enable(cx, &vipaddr, any).expect("it was withdrawn");
    vipaddr.open_disable(cx, enable);
}
