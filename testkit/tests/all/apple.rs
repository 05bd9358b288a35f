//! Laws of AppleTalk's nodes and routers: what others send makes them keep and send so much and no
//! more, and what they do again and again they go on with.

use core::time::Duration;
use std::rc::Rc;
use xk_appletalk::addr::{AtAddr, NetRange, Node};
use xk_appletalk::ddp::Long;
use xk_appletalk::nbp::{Entity, Function, Packet};
use xk_appletalk::rtmp::{Data, Route};
use xk_core::ProtocolRef;
use xk_core::graph::{Params, Value};
use xk_kit::control::JoinGroup;
use xk_kit::net::appletalk::SetCable;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, octets};

/// A node or a router on so many links, with these layers on its `ddp`.
struct Station {
    cx: TestKernel,
    links: Vec<Bottom>,
}

fn add(cx: &TestKernel, kind: &str, on: &[ProtocolRef], params: &Params) -> ProtocolRef {
    let entry = xk_catalog::PROTOCOLS.iter().find(|entry| entry.kind == kind).expect(kind);
    let added = entry.add(cx, kind, on, params).expect(kind);
    for (lower, number) in entry.numbers {
        if let Some(lower) = on.iter().find(|on| on.head().name() == *lower) {
            cx.numbers_mut().override_pair(added.id(), lower.id(), *number);
        }
    }
    added
}

impl Station {
    fn new(cx: TestKernel, links: u8, layers: &[(&str, Params)]) -> Self {
        let mut params = Params::default();
        let links: Vec<Bottom> = (0..links)
            .map(|at| {
                let mut port = Params::default();
                port.set("net", Value::Text(format!("{0}-{0}", 10 * (at + 1))));
                port.set("node", Value::Integer(5));
                params.add_block("port", port);
                Bottom::add(&cx, &format!("link{at}"), Lower::wire([2, 0, 0, 0, 0, at]))
            })
            .collect();
        let below: Vec<_> = links.iter().map(|link| link.protocol().clone()).collect();
        let ddp = add(&cx, "ddp", &below, &params);
        for (kind, params) in layers {
            add(&cx, kind, core::slice::from_ref(&ddp), params);
        }
        cx.start().expect("it starts");
        cx.advance(Duration::from_secs(20));
        Self { cx, links }
    }

    /// A datagram comes over the first link, between sockets of one number.
    fn hear(&self, from: Node, (socket, kind): (u8, u8), data: &[u8]) {
        let (to, from) = (Node::new(10, 5).socket(socket), from.socket(socket));
        let header = Long::new(to, from, kind, data.len()).expect("it fits");
        let datagram = [&header.octets()[..], data].concat();
        self.links[0].inject(&self.cx, None, self.cx.message(&datagram));
    }

    /// Number of datagrams of a type sent over the first link since the last call.
    fn sent(&self, kind: u8) -> usize {
        let sent = self.links[0].take_sent();
        sent.iter().filter(|sent| octets(&sent.message).get(12) == Some(&kind)).count()
    }
}

/// An RTMP packet of a router on network 10.
fn data(node: u8, routes: &[u16]) -> Vec<u8> {
    let route = |net: &u16| {
        let range = NetRange::new(*net, *net).expect("a range");
        Route { range, is_extended: true, distance: 0 }
    };
    let range = NetRange::new(10, 10);
    let routes = routes.iter().map(route).collect();
    Data { sender: Node::new(10, node), range, routes }.packets().remove(0)
}

/// Routers that take turns, or forged ones, are looked for by one timer.
#[test]
fn a_node_has_one_timer_for_its_routers() {
    let node = Station::new(TestKernel::new(1), 1, &[("rtmp", Params::default())]);
    for turn in 0..200 {
        let router = 1 + turn % 2;
        node.hear(Node::new(10, router), (1, 1), &data(router, &[]));
    }
    let fired = node.cx.advance(Duration::from_secs(45));
    assert!(fired < 10, "nothing is due: {fired}");
    node.hear(Node::new(10, 1), (1, 1), &data(1, &[]));
    let fired = node.cx.advance(Duration::from_secs(100));
    assert!(fired < 10, "one router is forgotten: {fired}");
}

/// A client that takes every timer while a router speaks does not silence it.
#[test]
fn a_router_goes_on_when_timers_run_out() {
    let layers = [("rtmp", Params::default()), ("zip", Params::default())];
    let router = Station::new(TestKernel::small(1, 1 << 22, 64), 2, &layers);
    // Its zones are asked for every ten seconds.
    router.hear(Node::new(10, 7), (1, 1), &data(7, &[30]));
    let greedy = router.links[1].protocol().clone();
    router.links[0].on_push(Rc::new(move |cx, _| {
        while cx.schedule_protocol(&greedy, Duration::from_secs(1000), 99).is_ok() {}
    }));
    let _ = router.links[0].take_sent();
    for round in 0..3 {
        // The route is confirmed.
        router.hear(Node::new(10, 7), (1, 1), &data(7, &[30]));
        router.cx.advance(Duration::from_secs(20));
        let sent = router.links[0].take_sent();
        for kind in [1, 6] {
            let of = sent.iter().filter(|sent| octets(&sent.message).get(12) == Some(&kind));
            assert_eq!(of.count(), 2, "round {round}, type {kind}");
        }
    }
}

/// Each packet that answers a node is counted, not each request: else a small request has many
/// large ones sent to whatever address it names.
#[test]
fn names_answer_so_much_and_no_more() {
    let mut params = Params::default();
    for at in 0..120 {
        let mut name = Params::default();
        name.set("name", Value::Text(format!("{at:a>32}:{0:b>32}", "")));
        params.add_block("register", name);
    }
    let node = Station::new(TestKernel::new(1), 1, &[("nbp", params)]);
    let _ = node.links[0].take_sent();
    let all = "=:=@*".parse::<Entity>().expect("a name");
    let request = |id| Packet::request(Function::LkUp, id, AtAddr::new(10, 99, 130), all).octets();
    node.hear(Node::new(10, 6), (2, 2), &request(0));
    let once = node.sent(2);
    assert!(once > 5, "all names are told: {once} packets");
    for id in 1..200 {
        node.hear(Node::new(10, 6), (2, 2), &request(id));
    }
    let sent = once + node.sent(2);
    assert!(sent <= 50, "{sent} packets at once");
}

/// Zones announced by routers, or by stations that pass for them, leave room for the groups of
/// others.
#[test]
fn groups_of_zones_leave_room_for_others() {
    let cx = TestKernel::new(1);
    let wire = Bottom::add(&cx, "wire", Lower::wire([2, 0, 0, 0, 0, 1]));
    let mut lower = wire.protocol().clone();
    let eth = add(&cx, "eth", &[lower.clone()], &Params::default());
    for kind in ["aarp", "ddp"] {
        let on = if kind == "aarp" { eth.clone() } else { lower };
        lower = add(&cx, kind, core::slice::from_ref(&on), &Params::default());
        let number = if kind == "aarp" { 0x80f3 } else { 0x0002_809b };
        cx.numbers_mut().override_pair(lower.id(), eth.id(), number);
    }
    cx.start().expect("it starts");
    let set = |group| {
        let set = SetCable { first: 10, last: 19, group: Some(group), ..SetCable::default() };
        assert!(lower.ask(&cx, set).is_some());
    };
    (0..=u8::MAX).for_each(|last| set([9, 0, 7, 0, 0, last]));
    (0..1000u16).for_each(|n| set([1, 0, 94, 1, n.to_be_bytes()[0], n.to_be_bytes()[1]]));
    for n in 0..200 {
        assert!(eth.ask(&cx, JoinGroup { address: [1, 0, 94, 0, 0, n] }).is_some(), "group {n}");
    }
}
