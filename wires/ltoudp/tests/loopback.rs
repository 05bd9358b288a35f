//! The wire on the loopback interface: frames of others arrive, our own do not.

use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::time::Duration;
use xk_core::graph::Params;
use xk_core::{Part, Participants, ProtocolRef, reason};
use xk_ltoudp::Socket;
use xk_testkit::kernel::{TestKernel, Top};

/// AEP's reply of tailtalk, node 157 to 42.
const REPLY: &[u8] =
    &[0x2a, 0x9d, 1, 0, 0x0d, 0x81, 4, 4, 2, 0x70, 0x69, 0x6e, 0x67, 0x2d, 0x6c, 0x74];

fn until(what: &str, mut is: impl FnMut() -> bool) {
    xk_testkit::await_that!(Duration::from_secs(20), is(), "{what}");
}

fn wire(cx: &TestKernel, name: &str) -> ProtocolRef {
    let mut params = Params::default();
    params.set("interface", xk_core::graph::Value::Text("127.0.0.1".into()));
    xk_ltoudp::ENTRY.add(cx, name, &[], &params).unwrap()
}

#[test]
fn frames_of_others_arrive_and_our_own_do_not() {
    let other = match Socket::join(Some(Ipv4Addr::LOCALHOST)) {
        Ok(socket) => socket,
        Err(error) => {
            xk_testkit::needs::skip(&format!("no multicast on the loopback interface: {error}"));
            return;
        }
    };
    let cx = TestKernel::new(1);
    let wires = ["left", "right"].map(|name| wire(&cx, name));
    let tops = ["above-left", "above-right"].map(|name| Top::add(&cx, name));
    cx.start().unwrap();
    let sessions = [0, 1].map(|n| {
        let both = Participants::pair(Part::Any, Part::Any);
        tops[n].open(&cx, &wires[n], both).unwrap()
    });
    let poll = |n: usize| wires[n].wire().map_or(0, |wire| wire.poll(&cx, &wires[n], 32));
    // From one to the other, and to a program that is none of ours.
    sessions[0].push(&cx, cx.message(REPLY)).unwrap();
    until("the frame arrives at the other wire", || {
        poll(1);
        tops[1].received() == 1
    });
    assert!(tops[1].take_received()[0].message.eq_octets(REPLY));
    let mut room = [0; 700];
    let mut octets = 0;
    until("the frame arrives at the program", || {
        octets = other.receive(&mut room).unwrap().unwrap_or(0);
        octets > 0
    });
    assert_eq!(room[4..octets], *REPLY);
    // Back, between what is no frame.
    let long = [7; 700];
    for (what, count) in [(&room[..4], 4), (&room[..6], 6), (&long[..], 700), (&long[..], 608)] {
        assert!(other.send(&[IoSlice::new(&what[..count])]).unwrap());
    }
    assert!(other.send(&[IoSlice::new(b"them"), IoSlice::new(REPLY)]).unwrap());
    until("the frame arrives at both", || {
        poll(0);
        poll(1);
        tops.iter().all(|top| top.received() >= 1)
    });
    assert!(tops[0].take_received()[0].message.eq_octets(REPLY), "none of its own came before");
    assert_eq!(wires[0].head().drops().of(&reason::MALFORMED), 2);
    assert_eq!(wires[0].head().drops().of(&reason::TOO_BIG), 2);
    cx.stop();
}
