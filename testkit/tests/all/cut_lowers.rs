//! A protocol that stands on several of one kind tells them apart by the sessions that come up, and
//! so it does where all of them lie behind one cut.

use std::rc::Rc;
use xk_core::graph::Params;
use xk_core::{Entry, Kernel, Part, Participants, ProtocolRef};
use xk_domains::{Known, Port, Queue, add_port, lower_proxy, ports_at_once, upper_proxy};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// The number of what stands above.
const NUMBER: u16 = 0x6007;

fn entry(kind: &str) -> &'static Entry {
    let found = xk_catalog::PROTOCOLS.iter().find(|entry| entry.kind == kind);
    found.copied().expect("it is in the catalog")
}

fn build(cx: &TestKernel, kind: &str, name: &str, lower: &ProtocolRef) -> ProtocolRef {
    let lowers = core::slice::from_ref(lower);
    entry(kind).add(cx, name, lowers, &Params::default()).expect("it is built")
}

/// Two links with a layer each that passes on sessions of the layer below it, behind one cut: what
/// stands for the layer is what a session is of, whichever of them it is.
fn each_session_is_of_its_own_lower(kind: &str, own: u32) {
    let cx = TestKernel::new(1);
    let links = [1, 2].map(|n| {
        // One station may have one address on all of its links.
        let wire = Bottom::add(&cx, &format!("wire{n}"), Lower::wire([2, 0, 0, 0, 0, 1]));
        let eth = build(&cx, "eth", &format!("eth{n}"), wire.protocol());
        let layer = build(&cx, kind, &format!("{kind}{n}"), &eth);
        cx.numbers_mut().override_pair(layer.id(), eth.id(), own);
        (wire, eth, layer)
    });
    let top = Top::add(&cx, "top");
    let (down, up) = Queue::pair(256);
    let known = || Known::of(&[entry("eth"), entry(kind)]);
    let [above, below] = ports_at_once([Box::new(down), Box::new(up)], known);
    let proxies = [0, 1].map(|at| {
        let (_, eth, layer) = &links[at];
        below.grant(layer);
        cx.numbers_mut().override_pair(top.id(), eth.id(), NUMBER.into());
        let name = format!("proxy of {}", layer.name());
        lower_proxy(&cx, &above, layer.id(), layer.head().kind(), &name)
    });
    below.admit(|cx: &Kernel, port: &Rc<Port>, of| Some(upper_proxy(cx, port, of, "top", "above")));
    let ports: Vec<_> = [("above", &above), ("below", &below)]
        .map(|(name, port): (_, &Rc<Port>)| add_port(&cx, port, name))
        .into();
    cx.start().expect("it starts");
    for proxy in &proxies {
        let any = Participants::local(Part::Any);
        let _ = top.enable(&cx, proxy, any).expect("it is enabled");
    }
    // The second first: none is known before.
    for at in [1, 0, 1, 0] {
        let mut frame = [&[2, 0, 0, 0, 0, 1][..], &PEER, &NUMBER.to_be_bytes()].concat();
        frame.resize(80, 0x55);
        links[at].0.inject(&cx, None, cx.message(&frame));
        let received = top.take_received();
        let of: Vec<_> = received.iter().map(|one| one.session.head().protocol()).collect();
        assert_eq!(of, [proxies[at].id()], "{kind}: over {}", links[at].2.name());
    }
    drop((ports, links));
    cx.stop();
}

#[test]
fn sessions_that_are_passed_on_are_of_the_layer_that_passes_them() {
    each_session_is_of_its_own_lower("arp", 0x0806);
    each_session_is_of_its_own_lower("aarp", 0x0001_80f3);
}
