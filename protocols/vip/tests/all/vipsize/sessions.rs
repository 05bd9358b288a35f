//! `vipsize` added to a kernel without a graph file, on layers of made-up sizes.

use core::net::Ipv4Addr;
use xk_core::graph::{BuildError, Params, Value};
use xk_core::numbers::Number;
use xk_core::{HostAddr, Kernel, Part, Participants, ProtocolRef};
use xk_kit::control::{MaxPacket, OptPacket, SpecificDestination};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Adds one to a kernel, on these layers and with these cutoffs.
fn add(cx: &Kernel, lowers: &[ProtocolRef], cutoffs: &[u64]) -> Result<ProtocolRef, BuildError> {
    let mut params = Params::default();
    for octets in cutoffs {
        let mut cutoff = Params::default();
        cutoff.set("octets", Value::Octets(*octets));
        params.add_block("cutoff", cutoff);
    }
    xk_vip::vipsize::ENTRY.add(cx, "vipsize", lowers, &params)
}

#[test]
fn each_size_has_its_way() {
    let kernel = TestKernel::new(1);
    let cx = &kernel;
    let number = Number { upper: "top", lower: "ip", number: 90 };
    cx.numbers_mut().add(number).expect("one number");
    let bottoms = ["a", "b", "c"].map(|name| Bottom::add(cx, name, Lower::host(OWN, 90)));
    let lowers: Vec<ProtocolRef> = bottoms.iter().map(|b| b.protocol().clone()).collect();
    let vipsize = add(cx, &lowers, &[10, 100]).expect("it fits");
    let top = Top::add(cx, "top");
    cx.start().expect("it starts");
    let both = Participants::pair(Part::Any, Part::host(PEER));
    let session = top.open(cx, &vipsize, both).expect("a session");
    for (len, way) in [(0, 0), (10, 0), (11, 1), (100, 1), (101, 2), (1400, 2)] {
        session.push(cx, cx.message(&vec![7; len])).expect("it goes");
        let sent: Vec<usize> = bottoms.iter().map(|b| b.take_sent().len()).collect();
        let expected: Vec<usize> = (0..3).map(|at| usize::from(at == way)).collect();
        assert_eq!(sent, expected, "{len} octets");
    }
    let last = bottoms[2].protocol();
    let max = last.ask(cx, MaxPacket::default()).map(|q| q.octets);
    assert_eq!(session.ask(cx, MaxPacket::default()).map(|q| q.octets), max);
    let opt = last.ask(cx, OptPacket::default()).map(|q| q.octets);
    assert_eq!(session.ask(cx, OptPacket::default()).map(|q| q.octets), opt);
    let few = add(cx, &lowers[..1], &[]);
    assert!(matches!(few, Err(BuildError::Lower { at: 1 })));
    let many = add(cx, &vec![lowers[0].clone(); 9], &[]);
    assert!(matches!(many, Err(BuildError::Param { .. })));
    for cutoffs in [&[10, 10][..], &[1, 2, 3]] {
        let wrong = add(cx, &lowers, cutoffs);
        assert!(matches!(wrong, Err(BuildError::Param { name: "cutoff", .. })));
    }
}

/// Messages that a peer sends to many hosts have a session of their own, which says so: an upper
/// protocol that serves one peer at a time must be able to refuse it.
#[test]
fn what_is_for_many_is_known_as_such() {
    let kernel = TestKernel::new(1);
    let cx = &kernel;
    let number = Number { upper: "top", lower: "ip", number: 90 };
    cx.numbers_mut().add(number).expect("one number");
    let bottoms = ["a", "b"].map(|name| Bottom::add(cx, name, Lower::host(OWN, 90)));
    let lowers: Vec<ProtocolRef> = bottoms.iter().map(|b| b.protocol().clone()).collect();
    let vipsize = add(cx, &lowers, &[]).expect("it fits");
    let top = Top::add(cx, "top");
    cx.start().expect("it starts");
    let any = Participants::local(Part::Any);
    let _ = top.enable(cx, &vipsize, any).expect("nobody else has it");
    let peer = Some(Part::host(PEER));
    let many = HostAddr::BROADCAST;
    for bottom in &bottoms {
        let _ = bottom.inject_cast(cx, peer, many, cx.message(b"to all"));
        let _ = bottom.inject(cx, peer, cx.message(b"to one"));
    }
    let received = top.take_received();
    let said = received.iter().map(|r| {
        let asked = SpecificDestination::default();
        let asked = r.session.ask(cx, asked).filter(|to| to.many);
        asked.map(|to| to.host)
    });
    let said: Vec<Option<HostAddr>> = said.collect();
    assert_eq!(said, [Some(many), None, Some(many), None]);
    assert_eq!(received[0].session, received[2].session);
    assert_eq!(received[1].session, received[3].session);
}
