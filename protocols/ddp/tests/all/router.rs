//! A router between two links: what it forwards, and what it drops under which reason.

use xk_appletalk::addr::{AtAddr, Node};
use xk_core::graph::{Params, Value};
use xk_core::{Part, Participants, ProtocolRef};
use xk_ddp::wire::{HOPS_MAX, LONG_LEN, Long};
use xk_kit::net::appletalk::{NetRoute, SOCKET, SetRoutes};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

struct Router {
    cx: TestKernel,
    links: [Bottom; 2],
    ddp: ProtocolRef,
    top: Top,
}

const LEFT: AtAddr = AtAddr::new(10, 17, 130);
const RIGHT: AtAddr = AtAddr::new(20, 18, 131);

impl Router {
    fn new() -> Self {
        let cx = TestKernel::new(1);
        // What tells links apart is their hardware address.
        let link = |name, last| Bottom::add(&cx, name, Lower::wire([2, 0, 0, 0, 0, last]));
        let links = [link("left", 1), link("right", 2)];
        let mut params = Params::default();
        for net in ["10-19", "20-29"] {
            let mut port = Params::default();
            port.set("net", Value::Text(net.into()));
            port.set("node", Value::Integer(1));
            params.add_block("port", port);
        }
        let lowers = [links[0].protocol().clone(), links[1].protocol().clone()];
        let ddp = xk_ddp::ENTRY.add(&cx, "ddp", &lowers, &params).expect("it is built");
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), ddp.id(), 200);
        cx.start().expect("it starts");
        let _ = top.enable(&cx, &ddp, Participants::local(Part::Number(SOCKET, 80)));
        Self { cx, links, ddp, top }
    }

    /// Lets octets arrive over a link. Answers what was sent over each, and the drops.
    fn arrive(&self, link: usize, datagram: &[u8]) -> ([Vec<Vec<u8>>; 2], Vec<&'static str>) {
        let before = self.drops();
        self.links[link].inject(&self.cx, None, self.cx.message(datagram));
        let sent = [0, 1].map(|link: usize| {
            let sent = self.links[link].take_sent();
            sent.iter().map(|sent| octets(&sent.message)).collect()
        });
        let mut after = self.drops();
        after.retain(|(name, count)| !before.contains(&(*name, *count)));
        (sent, after.into_iter().map(|(name, _)| name).collect())
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let drops = self.ddp.head().drops().list();
        drops.into_iter().map(|(why, count)| (why.name, count)).collect()
    }
}

/// A datagram that has passed so many routers.
fn datagram(to: AtAddr, from: AtAddr, hops: u8) -> Vec<u8> {
    let header = Long::new(to, from, 200, 5).unwrap().with_checksum(b"hello");
    let mut octets = [&header.octets()[..], b"hello"].concat();
    octets[0] |= hops << 2;
    octets
}

#[test]
fn datagrams_pass_with_one_hop_more() {
    let router = Router::new();
    for hops in 0..HOPS_MAX {
        let ([left, right], drops) = router.arrive(0, &datagram(RIGHT, LEFT, hops));
        assert_eq!((left.len(), &drops[..]), (0, &[][..]), "{hops} hops");
        assert_eq!(right, [datagram(RIGHT, LEFT, hops + 1)], "the checksum stays");
    }
    let ([left, right], drops) = router.arrive(0, &datagram(RIGHT, LEFT, HOPS_MAX));
    assert_eq!((left.len(), right.len(), drops), (0, 0, vec!["too many hops"]));
}

#[test]
fn what_cannot_pass_is_counted() {
    let router = Router::new();
    let table = [
        (datagram(Node::new(30, 9).socket(9), LEFT, 0), "no route"),
        (datagram(Node::new(11, 9).socket(9), LEFT, 0), "not mine"),
        (datagram(Node::new(0, 9).socket(9), LEFT, 0), "not mine"),
        (datagram(RIGHT, LEFT, 0)[..LONG_LEN + 4].to_vec(), "bad length"),
        (datagram(RIGHT, LEFT, 0)[..LONG_LEN - 1].to_vec(), "truncated"),
        (datagram(Node::new(10, 1).socket(81), LEFT, 0), "no port"),
    ];
    for (octets, why) in table {
        let ([left, right], drops) = router.arrive(0, &octets);
        assert_eq!((left.len(), right.len(), drops), (0, 0, vec![why]), "{octets:02x?}");
    }
    let mut bad = datagram(Node::new(10, 1).socket(80), LEFT, 0);
    bad[LONG_LEN] ^= 1;
    assert_eq!(router.arrive(0, &bad).1, ["bad checksum"]);
}

#[test]
fn two_routers_that_point_at_each_other_end_a_loop() {
    let router = Router::new();
    // The way to network 30 leads back over the link that datagrams for it come from.
    let route = NetRoute { first: 30, last: 39, port: 0, net: 10, node: 2 };
    let _ = router.ddp.ask(&router.cx, SetRoutes { routes: vec![route] });
    let mut octets = datagram(Node::new(30, 9).socket(9), LEFT, 0);
    let mut passes = 0;
    loop {
        let ([mut left, right], drops) = router.arrive(0, &octets);
        assert!(right.is_empty());
        let Some(again) = left.pop() else {
            assert_eq!(drops, ["too many hops"]);
            break;
        };
        octets = again;
        passes += 1;
    }
    assert_eq!(passes, HOPS_MAX);
}

#[test]
fn all_of_its_addresses_are_the_routers() {
    let router = Router::new();
    let own = [(10, 1), (20, 1), (10, 0), (20, 0), (0, 0), (0, 255), (10, 255)];
    for (net, node) in own {
        let before = router.top.received();
        let (sent, drops) = router.arrive(0, &datagram(Node::new(net, node).socket(80), LEFT, 0));
        assert_eq!((sent.concat().len(), &drops[..]), (0, &[][..]), "{net}.{node}");
        assert_eq!(router.top.received(), before + 1, "{net}.{node}");
    }
    // It answers from the address that it was asked at, over the link that leads to the asker.
    router.top.echo(true);
    for own in [AtAddr::new(10, 1, 80), AtAddr::new(20, 1, 80)] {
        let ([left, right], drops) = router.arrive(0, &datagram(own, LEFT, 0));
        assert_eq!((right.len(), &drops[..]), (0, &[][..]), "{own}");
        assert_eq!(left, [datagram(LEFT, own, 0)], "{own}");
    }
    router.top.echo(false);
    // All nodes of the other network are told by a datagram to all of that link.
    let all = datagram(Node::new(20, 255).socket(80), LEFT, 0);
    let ([left, right], _) = router.arrive(0, &all);
    assert_eq!((left.len(), right.len()), (0, 1));
}
