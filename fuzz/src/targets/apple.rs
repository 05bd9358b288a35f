//! AppleTalk: the codecs, and a node or router with all of its protocols.

use crate::harness::{Rig, Script, build, number};
use core::time::Duration;
use xk_aarp::wire::{PACKET_LEN, Packet};
use xk_appletalk::addr::Node;
use xk_appletalk::{aep, ddp, nbp, rtmp, zip};
use xk_core::graph::{Params, Value};
use xk_core::object::ProtocolId;
use xk_core::{Part, Participants, ProtocolRef};
use xk_kit::net::appletalk::{SOCKET, socket};
use xk_nbp::{NbpLookup, NbpTable};
use xk_testkit::kernel::{Bottom, Lower, Top, octets};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Sessions that the target holds open.
const HELD_MAX: usize = 8;
/// Nodes that address resolution remembers: few, so that they give way.
const NODES_MAX: i64 = 4;

/// Parses `data` as a packet of each protocol, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    if let Ok(packet) = Packet::parse(data) {
        let mut expected: [u8; PACKET_LEN] = core::array::from_fn(|at| data[at]);
        // The first octets of the addresses mean nothing.
        (expected[14], expected[24]) = (0, 0);
        assert_eq!(packet.octets(), expected, "AARP changed");
    }
    if let Ok((header, payload)) = ddp::split(data) {
        let mut octets = [&header.octets()[..], payload].concat();
        octets[0] |= data[0] & 0xc0;
        assert_eq!(octets, data[..octets.len()], "DDP changed");
    }
    if let Ok(packet) = nbp::Packet::parse(data) {
        let octets = packet.octets();
        assert_eq!(octets, data[..octets.len()], "NBP changed");
    }
    if let Ok(packet) = rtmp::Data::parse(data) {
        for octets in packet.packets() {
            assert!(rtmp::Data::parse(&octets).is_ok(), "RTMP changed");
        }
    }
    if let Ok(packet) = zip::Packet::parse(data)
        && packet.octets().len() < 550
    {
        assert_eq!(zip::Packet::parse(&packet.octets()), Ok(packet), "ZIP changed");
    }
    let _ = (aep::split(data), rtmp::Request::parse(data));
}

/// The protocols of one node or router.
struct Scene {
    rig: Rig,
    /// The links beside that of the rig.
    further: Option<Bottom>,
    ddp: ProtocolRef,
    nbp: ProtocolRef,
    top: Top,
}

/// Feeds a node, or a router with a second link, with what `data` says: packets of address
/// resolution and datagrams that arrive, names looked up, sessions opened and closed, time that
/// passes. All stays within its bounds, and what is sent can be read.
pub(crate) fn stack(data: &[u8]) {
    let scene = Scene::new(data.len() % 2 == 1);
    let Rig { cx, .. } = &scene.rig;
    let mut held = Vec::new();
    let script = Script::new(data);
    while let Some((operation, octets)) = script.step() {
        let place = usize::from(operation >> 4);
        match operation & 7 {
            0 => scene.arrive(scene.rig.layer.id(), octets),
            1 => scene.resolve(octets, place),
            2 => scene.arrive(scene.ddp.id(), octets),
            3 => scene.datagram(octets, place),
            4 => {
                let peer = socket(10, octets.first().copied().unwrap_or(18), 130);
                let both = Participants::pair(Part::Any, peer);
                if let Ok(session) = scene.top.open(cx, &scene.ddp, both) {
                    if held.len() < HELD_MAX {
                        held.push(session);
                    } else {
                        session.close(cx);
                    }
                }
            }
            5 => {
                let message = scene.rig.message(octets, usize::MAX);
                if let (Some(session), Some(message)) = (held.get(place), message) {
                    let _ = session.push(cx, message);
                } else if let Some(session) = held.pop() {
                    session.close(cx);
                }
            }
            6 => drop(cx.advance(Duration::from_millis(1 << place.min(14)))),
            _ => {
                let name = String::from_utf8_lossy(octets).into_owned();
                let _ = scene.nbp.ask(cx, NbpLookup { name, ..NbpLookup::default() });
            }
        }
        scene.check();
    }
    drop(held);
    scene.top.clear();
    scene.rig.stop();
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

impl Scene {
    fn new(is_router: bool) -> Self {
        let mut params = Params::default();
        for (name, value) in [("nodes_max", NODES_MAX), ("queue_max", 2), ("waiting_max", 5)] {
            params.set(name, Value::Integer(value));
        }
        let rig = Rig::new(Lower::ether(OWN), 1024, &xk_aarp::ENTRY, &params);
        let cx = &rig.cx;
        for entry in [
            &xk_aarp::ENTRY,
            &xk_ddp::ENTRY,
            &xk_aep::ENTRY,
            &xk_nbp::ENTRY,
            &xk_rtmp::ENTRY,
            &xk_zip::ENTRY,
        ] {
            entry.type_numbers().for_each(|n| number(cx, n.upper, n.lower, n.number));
        }
        number(cx, "top", "ddp", 200);
        let further = is_router.then(|| Bottom::add(cx, "link", Lower::link(600)));
        let mut lowers = vec![rig.layer.clone()];
        lowers.extend(further.iter().map(|further| further.protocol().clone()));
        let mut params = Params::default();
        for (net, zone) in [("10-19", "Left"), ("20-29", "Right")] {
            if is_router {
                let mut port = Params::default();
                port.set("net", text(net));
                port.set("node", Value::Integer(17));
                port.set("zone", text(zone));
                params.add_block("port", port);
            }
        }
        for (name, value) in [("sessions_max", 16), ("waiting_max", 4), ("routes_max", 8)] {
            params.set(name, Value::Integer(value));
        }
        if !is_router {
            params.set("net", text("10-19"));
            params.set("node", Value::Integer(17));
        }
        let ddp = build(cx, &xk_ddp::ENTRY, &lowers, &params);
        let on = core::slice::from_ref(&ddp);
        let mut few = Params::default();
        few.set("networks_max", Value::Integer(8));
        build(cx, &xk_aep::ENTRY, on, &Params::default());
        build(cx, &xk_rtmp::ENTRY, on, &few);
        let zip = build(cx, &xk_zip::ENTRY, on, &few);
        let mut names = Params::default();
        names.set("lookups_max", Value::Integer(4));
        let mut register = Params::default();
        register.set("name", text("fuzz:XKernel"));
        register.set("socket", Value::Integer(130));
        names.add_block("register", register);
        let nbp = build(cx, &xk_nbp::ENTRY, &[ddp.clone(), zip], &names);
        let top = Top::add_kind(cx, "top", "top");
        rig.start();
        let any = Participants::local(Part::Number(SOCKET, 130));
        assert!(top.enable(cx, &ddp, any).is_ok(), "the socket is free");
        cx.advance(Duration::from_secs(9));
        Self { rig, further, ddp, nbp, top }
    }

    /// Octets that arrive for a protocol from the peer's hardware.
    fn arrive(&self, of: ProtocolId, octets: &[u8]) {
        let Rig { cx, bottom, .. } = &self.rig;
        if let Some(message) = self.rig.message(octets, usize::MAX) {
            // What is refused has been counted.
            drop(bottom.inject_for(cx, Some(Part::Ether(PEER)), of, message));
        }
    }

    /// A packet of address resolution that fits the scene well enough to get far.
    fn resolve(&self, octets: &[u8], place: usize) {
        let function = 1 + (place % 3) as u8;
        let [net, number, hw] = [0, 1, 2].map(|at| octets.get(at).copied().unwrap_or(18));
        let mut packet = [0, 1, 0x80, 0x9b, 6, 4, 0, function].to_vec();
        packet.extend([2, 0, 0, 0, 0, hw, 0, 0, net, number, 0, 0, 0, 0, 0, 0, 0, 0, 10, 17]);
        self.arrive(self.rig.layer.id(), &packet);
    }

    /// A datagram for one of the protocols.
    fn datagram(&self, octets: &[u8], place: usize) {
        let of = [(1, 1), (1, 5), (2, 2), (4, 4), (6, 6), (130, 200), (6, 3), (9, 9)];
        let (socket, kind) = of[place % of.len()];
        let to = match place / of.len() {
            0 => Node::new(10, 17),
            _ => Node::ALL,
        };
        let from = Node::new(10, 18).socket(octets.first().copied().unwrap_or(2));
        let rest = octets.get(1..).unwrap_or_default();
        if let Some(datagram) =
            ddp::join(to.socket(socket), from, kind, rest, place.is_multiple_of(2))
        {
            self.arrive(self.ddp.id(), &datagram);
        }
    }

    /// Looks at what was sent since, and at the bounds.
    fn check(&self) {
        for sent in self.rig.bottom.take_sent() {
            let octets = octets(&sent.message);
            if sent.selector == self.rig.layer.id() {
                let packet = Packet::parse(&octets).expect("what was sent is a packet");
                assert_eq!(packet.from_hw, OWN, "sent under another address");
            } else {
                let (header, data) = ddp::split(&octets).expect("what was sent is a datagram");
                assert!(header.hops() > 0 || header.is_intact(data), "a bad checksum was sent");
            }
        }
        self.further.iter().for_each(|further| drop(further.take_sent()));
        let (cx, top) = (&self.rig.cx, &self.top);
        let table = self.rig.layer.ask(cx, xk_aarp::AarpTable::default());
        assert!(table.is_some_and(|t| t.nodes.len() <= NODES_MAX as usize), "too many nodes");
        let names = self.nbp.ask(cx, NbpTable::default());
        assert!(
            names.is_some_and(|t| t.names.len() <= 1 && t.found.len() <= 256),
            "too many names"
        );
        top.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_sequence_keeps_the_bounds(octets in vec(any::<u8>(), 0..400)) {
            super::stack(&octets);
        }

        #[test]
        fn the_codecs_take_anything(data in vec(any::<u8>(), 0..80)) {
            super::wire(&data);
        }
    }
}
