//! ARP: the codec, and the whole protocol.

use crate::harness::{Rig, Script, number};
use core::cell::RefCell;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::rc::Rc;
use xk_arp::ArpTable;
use xk_arp::wire::{Error, EthAddr, Operation, PACKET_LEN, Packet};
use xk_core::graph::{Params, Value};
use xk_core::object::ProtocolId;
use xk_core::{Answer, Part, Participants};
use xk_kit::control::{ClaimHost, Resolve};
use xk_kit::net::neighbour::{ArpExchange, ArpReply, SendArpReply, SubscribeType};
use xk_testkit::kernel::{Lower, Top, octets};

const OWN: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);
const PEER: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);
const ME: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const YOU: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Sessions that the target holds open.
const HELD_MAX: usize = 8;
/// Entries of its cache: few, so that they give way too.
const ENTRIES_MAX: usize = 4;
/// A further protocol type, which the target's taker takes.
const FURTHER: u16 = 0x3900;

/// Parses `data` as a packet, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    typed(data);
    let Ok(packet) = Packet::parse_slice(data) else {
        return;
    };
    let mut octets = [0; PACKET_LEN];
    packet.emit(&mut octets);
    assert_eq!(octets, data[..PACKET_LEN], "the packet changed");
    let reply = packet.reply(packet.target_eth);
    reply.emit(&mut octets);
    assert_eq!(Packet::parse(&octets), Ok(reply), "the reply changed");
}

/// Packets of whatever protocol type they bear.
fn typed(data: &[u8]) {
    let (Some(octets), Some(front)) = (data.first_chunk(), data.first_chunk()) else {
        return;
    };
    let number = Packet::protocol_type(front);
    let Ok(packet) = Packet::parse_as(octets, number) else {
        return;
    };
    let mut again = [0; PACKET_LEN];
    packet.emit_as(number, &mut again);
    assert_eq!(again, *octets, "the packet changed");
    let other = Packet::parse_as(octets, number ^ 1);
    assert_eq!(other, Err(Error::Protocol(number)), "it is of one type");
}

/// Whether the address can be a host's: neither a group's nor a whole network's.
fn is_station(host: Ipv4Addr) -> bool {
    matches!(host.octets()[0], 1..=126 | 128..=223)
}

/// The protocol, two uppers, a taker of a further protocol type, and what that was told.
struct Scene {
    rig: Rig,
    tops: [Top; 2],
    heard: Rc<RefCell<Vec<ArpReply>>>,
    /// Hosts that were asked for in the last second, and when, in milliseconds.
    requests: Vec<(Ipv4Addr, u64)>,
}

/// Feeds the protocol with what `data` says: packets that arrive, hosts claimed, sessions opened
/// and closed, messages sent, time that passes. The cache and the queues stay within their bounds,
/// what is sent is a packet, and requests come no faster than allowed.
pub(crate) fn stack(data: &[u8]) {
    let mut scene = Scene::new(data.len() % 2 == 1);
    let mut held = Vec::new();
    let script = Script::new(data);
    while let Some((operation, octets)) = script.step() {
        let place = usize::from(operation >> 4);
        let Scene { rig, tops, .. } = &scene;
        match operation & 7 {
            _ if operation & 8 != 0 => scene.further((operation & 3, place), octets),
            0 => scene.arrive(PEER, octets),
            1 => scene.hear(octets, place),
            2 => drop(rig.layer.ask(&rig.cx, ClaimHost { host: host(octets).into() })),
            3 => {
                let both = Participants::pair(Part::host(ME), Part::host(host(octets)));
                if let Ok(session) = tops[place & 1].open(&rig.cx, &rig.layer, both) {
                    if held.len() < HELD_MAX {
                        held.push(session);
                    } else {
                        session.close(&rig.cx);
                    }
                }
            }
            4 => {
                if let (Some(session), Some(message)) =
                    (held.get(place), rig.message(octets, usize::MAX))
                {
                    let _ = session.push(&rig.cx, message);
                }
            }
            5 => {
                if let Some(session) = held.pop() {
                    session.close(&rig.cx);
                }
            }
            6 => {
                let step = Duration::from_millis(1 << place.min(6));
                for _ in 0..1 << place.saturating_sub(6) {
                    // Timers go off at the end of a step, when what they send is looked at.
                    scene.rig.cx.set_now(scene.rig.cx.now().after(step));
                    scene.rig.cx.run_due();
                    scene.check();
                }
            }
            _ => {
                let (host, address) = (host(octets).into(), None);
                let _ = rig.layer.ask(&rig.cx, Resolve { host, address });
            }
        }
        scene.check();
    }
    drop(held);
    for top in &scene.tops {
        top.clear();
    }
    scene.rig.stop();
}

fn host(octets: &[u8]) -> Ipv4Addr {
    match octets {
        [] => YOU,
        [last] => Ipv4Addr::new(192, 0, 2, *last),
        [_, rest @ ..] => rest.first_chunk().map_or(Ipv4Addr::BROADCAST, |o| Ipv4Addr::from(*o)),
    }
}

/// A packet that fits the scene well enough to get far.
fn fitting(octets: &[u8], place: usize, sender_eth: EthAddr) -> Packet {
    Packet {
        operation: if place & 4 == 0 { Operation::Reply } else { Operation::Request },
        sender_eth,
        sender_ip: host(octets),
        target_eth: OWN,
        target_ip: if place & 1 == 0 { ME } else { YOU },
    }
}

impl Scene {
    fn new(probe: bool) -> Self {
        let mut params = Params::default();
        for (name, max) in [("entries_max", ENTRIES_MAX), ("queue_max", 2), ("waiting_max", 5)] {
            params.set(name, Value::Integer(max as i64));
        }
        params.set("probe", Value::Bool(probe));
        let rig = Rig::new(Lower::ether(OWN.0), 1024, &xk_arp::ENTRY, &params);
        number(&rig.cx, "arp", "eth", 0x0806);
        let tops = [("upper", 0x0800), ("other", 0x0801)].map(|(kind, of)| {
            number(&rig.cx, kind, "eth", of);
            Top::add_kind(&rig.cx, kind, kind)
        });
        let heard = Rc::<RefCell<Vec<ArpReply>>>::default();
        let (taker, told) = (Top::add(&rig.cx, "taker"), Rc::clone(&heard));
        taker.on_ask(Rc::new(move |_, ask| {
            if let Some(heard) = ask.get::<ArpReply>() {
                told.borrow_mut().push(*heard);
                return Answer::Answered;
            }
            ask.answer::<ArpExchange>(|told| {
                assert!(told.host.to_v4().is_some_and(is_station), "no station is {}", told.host);
                assert_ne!(told.address, OWN.0, "it exchanged with itself");
            })
        }));
        rig.start();
        let any = Participants::local(Part::Any);
        assert!(tops[0].enable(&rig.cx, &rig.layer, any).is_ok(), "the number is free");
        let (protocol_type, receiver) = (FURTHER, taker.protocol().clone());
        let taken = rig.layer.ask(&rig.cx, SubscribeType { protocol_type, receiver });
        assert!(taken.is_some(), "it is free");
        Self { rig, tops, heard, requests: Vec::new() }
    }

    /// The protocol's own number, under which packets come and go.
    fn number(&self) -> ProtocolId {
        self.rig.layer.id()
    }

    /// Lets a packet arrive; what is refused has been counted.
    fn arrive(&self, from: EthAddr, packet: &[u8]) {
        let Rig { cx, bottom, .. } = &self.rig;
        if let Some(message) = self.rig.message(packet, usize::MAX) {
            drop(bottom.inject_for(cx, Some(Part::Ether(from.0)), self.number(), message));
        }
    }

    /// Lets a packet arrive that nearly fits, from the station that is its sender.
    fn hear(&self, octets: &[u8], place: usize) {
        let sender = if place & 2 == 0 { PEER } else { OWN };
        let mut packet = fitting(octets, place, sender);
        if place & 8 != 0 {
            packet.sender_ip = Ipv4Addr::UNSPECIFIED;
        }
        let mut octets = [0; PACKET_LEN];
        packet.emit(&mut octets);
        self.arrive(sender, &octets);
    }

    /// Packets of a further type, as they come and as they fit the scene, and replies of it said.
    fn further(&self, (what, place): (u8, usize), octets: &[u8]) {
        let Rig { cx, bottom, layer, .. } = &self.rig;
        let all = ArpTable { max: 100, ..ArpTable::default() };
        let before = layer.ask(cx, all.clone());
        let mut octets_sent = [0; PACKET_LEN];
        let mut is_ips = false;
        if what < 2 {
            let mut packet = fitting(octets, place, if place & 2 == 0 { PEER } else { OWN });
            if place & 8 != 0 {
                packet.target_eth = EthAddr::ZERO;
            }
            packet.emit_as(FURTHER, &mut octets_sent);
            if what == 1 {
                // Any of it may be something else, and its end may be missing.
                let at = PACKET_LEN - octets.len().min(PACKET_LEN);
                octets_sent[at..].copy_from_slice(&octets[..PACKET_LEN - at]);
            }
            let len = if place == 15 { PACKET_LEN - 1 } else { PACKET_LEN };
            self.arrive(PEER, &octets_sent[..len]);
            // What is written over it may make one of IP's of it, and those are learned from.
            is_ips = Packet::parse(&octets_sent).is_ok();
        } else {
            let to = (what == 3).then_some((ME.into(), PEER.0, host(octets).into()));
            let sent = bottom.sent();
            let said = layer.ask(cx, SendArpReply { protocol_type: FURTHER, to, sent: 0 });
            let went = (bottom.sent() - sent) as usize;
            assert!(said.is_some_and(|said| said.sent <= went), "it was not said");
        }
        for told in self.heard.take() {
            assert!(!is_ips, "IP's own is told of as another");
            assert_eq!(told.protocol_type, FURTHER, "another type");
            assert!(told.host.to_v4().is_some_and(is_station), "no station is {}", told.host);
            assert_eq!(told.address, PEER.0, "the speaker is not the frame's sender");
        }
        let after = layer.ask(cx, all);
        let entries = |table: Option<ArpTable>| table.map(|table| table.entries);
        assert!(is_ips || entries(before) == entries(after), "the cache has changed");
    }

    /// Looks at what was sent since, and at the bounds.
    fn check(&mut self) {
        let now = self.rig.cx.now().as_ms();
        self.requests.retain(|(_, at)| now < at + 1000);
        for sent in self.rig.bottom.take_sent() {
            if sent.selector != self.number() {
                continue;
            }
            let octets = octets(&sent.message);
            let octets = octets.first_chunk().expect("what was sent is long enough");
            if let Ok(said) = Packet::parse_as(octets, FURTHER) {
                assert_eq!(said.sender_eth, OWN, "said under another address");
                assert_eq!(said.operation, Operation::Reply, "no host is asked");
                assert!(is_station(said.sender_ip), "said in no host's name");
                continue;
            }
            let packet = Packet::parse(octets).expect("what was sent is a packet");
            assert_eq!(packet.sender_eth, OWN, "sent under another address");
            let own = packet.is_announcement() || packet.is_probe();
            let to_all = sent.peer == Some(Part::Ether(EthAddr::BROADCAST.0));
            if packet.operation == Operation::Request && !own && to_all {
                let again = self.requests.iter().any(|(host, _)| *host == packet.target_ip);
                // Of more hosts it cannot be remembered.
                assert!(!again || self.requests.len() > 200, "asked twice within a second");
                self.requests.push((packet.target_ip, now));
            }
        }
        let table = self.rig.layer.ask(&self.rig.cx, ArpTable::default());
        assert!(table.is_some_and(|t| t.total <= ENTRIES_MAX), "the cache is too large");
        for top in &self.tops {
            top.clear();
        }
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
        fn the_codec_takes_anything(mut data in vec(any::<u8>(), 0..40), valid: bool) {
            if valid && data.len() > 8 {
                // A request's first words.
                data[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
            }
            super::wire(&data);
        }
    }
}
