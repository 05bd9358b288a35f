//! Fuzz targets: the codec (what parses must come out again as it went in) and the whole protocol.

use crate::bench::{Bench, ME, MINE, PEER, TYPE_ARP, YOU};
use crate::claim::is_station;
use crate::control::ArpTable;
use crate::shared::Config;
use crate::wire::{Error, EthAddr, Ipv4, Operation, PACKET_LEN, Packet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::{Answer, Ask, Kernel, Protocol, ProtocolRef};
use xk_kit::control::Resolve;
use xk_kit::net::neighbour::{Exchanged, Heard, Say, TakeType};

/// Parses `data` as a packet, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
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

/// The same for packets of whatever protocol type they bear.
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

/// Sessions that the target holds open.
const HELD_MAX: usize = 8;
/// Entries of its cache: few, so that they give way too.
const ENTRIES_MAX: usize = 4;

/// A further protocol type, which the target's taker takes.
const FURTHER: u16 = 0x3900;

/// Takes packets of a further type, and notes what it is told.
struct Taker(Rc<RefCell<Vec<Heard>>>);

impl Protocol for Taker {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(heard) = ask.get::<Heard>() {
            self.0.borrow_mut().push(*heard);
            return Answer::Answered;
        }
        ask.answer::<Exchanged>(|told| {
            assert!(is_station(told.host), "no station is {}", told.host);
            assert_ne!(told.address, MINE.0, "it exchanged with itself");
        })
    }
}

/// Feeds the protocol with what `data` says: packets that arrive, hosts claimed, sessions opened
/// and closed, messages sent, time that passes.
///
/// # Panics
/// If the cache or a queue outgrows its bound, something sent is no packet, or requests come faster
/// than allowed.
pub fn fuzz_stack(mut data: &[u8]) {
    let config = Config {
        entries_max: ENTRIES_MAX,
        queue_max: 2,
        waiting_max: 5,
        probe: data.len() % 2 == 1,
        ..Config::default()
    };
    let Some(bench) = Bench::new(config, 1024) else {
        return;
    };
    let heard = Rc::<RefCell<Vec<Heard>>>::default();
    let taker = Taker(Rc::clone(&heard));
    let receiver = bench.cx.add_protocol("taker", "taker", taker);
    let protocol_type = FURTHER;
    let taken = TakeType { protocol_type, receiver };
    assert!(bench.arp.ask(&bench.cx, taken).is_some(), "it is free");
    let mut held = Vec::new();
    let mut requests = Vec::new();
    while let Some((&[operation, len], rest)) = data.split_first_chunk() {
        let len = usize::from(len).min(rest.len());
        let (octets, rest) = rest.split_at(len);
        data = rest;
        let place = usize::from(operation >> 4);
        match operation & 7 {
            _ if operation & 8 != 0 => further(&bench, &heard, (operation & 3, place), octets),
            0 => bench.arrive(PEER, TYPE_ARP, octets),
            1 => hear(&bench, octets, place),
            2 => drop(bench.claim(host(octets))),
            3 => {
                let upper = match place & 1 {
                    0 => &bench.upper,
                    _ => &bench.other,
                };
                if let Ok(session) = bench.open_for(upper, host(octets)) {
                    if held.len() < HELD_MAX {
                        held.push(session);
                    } else {
                        session.close(&bench.cx);
                    }
                }
            }
            4 => {
                if let Some(session) = held.get(place) {
                    let _ = bench.push(session, octets);
                }
            }
            5 => {
                if let Some(session) = held.pop() {
                    session.close(&bench.cx);
                }
            }
            6 => {
                let step = Duration::from_millis(1 << place.min(6));
                for _ in 0..1 << place.saturating_sub(6) {
                    bench.pass(step);
                    check(&bench, &mut requests);
                }
            }
            _ => {
                let (host, address) = (host(octets), None);
                let _ = bench.arp.ask(&bench.cx, Resolve { host, address });
            }
        }
        check(&bench, &mut requests);
    }
}

fn host(octets: &[u8]) -> Ipv4 {
    match octets {
        [] => YOU,
        [last] => Ipv4::new(192, 0, 2, *last),
        [_, rest @ ..] => rest.first_chunk().map_or(Ipv4::BROADCAST, |o| Ipv4::from(*o)),
    }
}

/// A packet that fits the scene well enough to get far.
fn hear(bench: &Bench, octets: &[u8], place: usize) {
    let sender_ip = host(octets);
    let target_ip = if place & 1 == 0 { ME } else { YOU };
    let sender_eth = if place & 2 == 0 { PEER } else { MINE };
    bench.hear(&Packet {
        operation: if place & 4 == 0 { Operation::Reply } else { Operation::Request },
        sender_eth,
        sender_ip: if place & 8 == 0 { sender_ip } else { Ipv4::UNSPECIFIED },
        target_eth: MINE,
        target_ip,
    });
}

/// Packets of a further type, as they come and as they fit the scene, and replies of it said.
fn further(bench: &Bench, heard: &RefCell<Vec<Heard>>, (what, place): (u8, usize), octets: &[u8]) {
    let all = ArpTable { max: 100, ..ArpTable::default() };
    let before = bench.arp.ask(&bench.cx, all.clone());
    let from = if place & 2 == 0 { PEER } else { MINE };
    let mut packet = [0; PACKET_LEN];
    let mut is_ips = false;
    match what {
        0 | 1 => {
            Packet {
                operation: if place & 4 == 0 { Operation::Reply } else { Operation::Request },
                sender_eth: from,
                sender_ip: host(octets),
                target_eth: if place & 8 == 0 { MINE } else { EthAddr::ZERO },
                target_ip: if place & 1 == 0 { ME } else { YOU },
            }
            .emit_as(FURTHER, &mut packet);
            if what == 1 {
                // Any of it may be something else, and its end may be missing.
                let at = PACKET_LEN - octets.len().min(PACKET_LEN);
                packet[at..].copy_from_slice(&octets[..PACKET_LEN - at]);
            }
            let len = if place == 15 { PACKET_LEN - 1 } else { PACKET_LEN };
            bench.arrive(PEER, TYPE_ARP, &packet[..len]);
            // What is written over it may make one of IP's of it, and those are learned from.
            is_ips = Packet::parse(&packet).is_ok();
        }
        _ => {
            let to = (what == 3).then_some((ME, PEER.0, host(octets)));
            let say = Say { protocol_type: FURTHER, to, sent: 0 };
            let said = bench.arp.ask(&bench.cx, say);
            let sent = bench.sent.borrow().len();
            assert!(said.is_some_and(|said| said.sent <= sent), "it was not said");
        }
    }
    for told in heard.take() {
        assert!(!is_ips, "IP's own is told of as another");
        assert_eq!(told.protocol_type, FURTHER, "another type");
        assert!(is_station(told.host), "no station is {}", told.host);
        assert_eq!(told.address, PEER.0, "who speaks is not who sent the frame");
    }
    let after = bench.arp.ask(&bench.cx, all);
    let entries = |table: Option<ArpTable>| table.map(|table| table.entries);
    assert!(is_ips || entries(before) == entries(after), "the cache has changed");
}

/// Looks at what was sent since, and at the bounds.
fn check(bench: &Bench, requests: &mut Vec<(Ipv4, u64)>) {
    let now = bench.cx.now().as_ms();
    requests.retain(|(_, at)| now < at + 1000);
    for frame in bench.sent.take() {
        if frame.number != TYPE_ARP {
            continue;
        }
        let Some(octets) = frame.octets.first_chunk() else {
            panic!("what was sent is too short");
        };
        if let Ok(said) = Packet::parse_as(octets, FURTHER) {
            assert_eq!(said.sender_eth, MINE, "said under another address");
            assert_eq!(said.operation, Operation::Reply, "nobody is asked");
            assert!(is_station(said.sender_ip), "said in nobody's name");
            continue;
        }
        let Ok(packet) = Packet::parse(octets) else {
            panic!("what was sent is no packet");
        };
        assert_eq!(packet.sender_eth, MINE, "sent under another address");
        let own = packet.is_announcement() || packet.is_probe();
        if packet.operation == Operation::Request && !own && frame.to.is_broadcast() {
            let again = requests.iter().any(|(host, _)| *host == packet.target_ip);
            // Of more hosts it cannot be remembered.
            assert!(!again || requests.len() > 200, "asked twice within a second");
            requests.push((packet.target_ip, now));
        }
    }
    let table = bench.arp.ask(&bench.cx, ArpTable::default());
    assert!(table.is_some_and(|t| t.total <= ENTRIES_MAX), "the cache is too large");
    let notes = &bench.notes;
    notes.seen.take();
    notes.errors.take();
    notes.conflicts.take();
}
