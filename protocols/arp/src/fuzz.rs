//! Fuzz targets: the codec (what parses must come out again as it went in) and the whole protocol.

use crate::bench::{Bench, ME, MINE, PEER, TYPE_ARP, YOU};
use crate::control::ArpTable;
use crate::shared::Config;
use crate::wire::{Ipv4, Operation, PACKET_LEN, Packet};
use alloc::vec::Vec;
use core::time::Duration;
use xk_kit::control::Resolve;

/// Parses `data` as a packet, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
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

/// Sessions that the target holds open.
const HELD_MAX: usize = 8;
/// Entries of its cache: few, so that they give way too.
const ENTRIES_MAX: usize = 4;

/// Feeds the protocol with what `data` says: packets that arrive, hosts claimed, sessions opened and closed, messages
/// sent, time that passes.
///
/// # Panics
/// If the cache or a queue outgrows its bound, something sent is no packet, or requests come faster than allowed.
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
    let mut held = Vec::new();
    let mut requests = Vec::new();
    while let Some((&[operation, len], rest)) = data.split_first_chunk() {
        let len = usize::from(len).min(rest.len());
        let (octets, rest) = rest.split_at(len);
        data = rest;
        let place = usize::from(operation >> 4);
        match operation & 7 {
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
        [_, rest @ ..] => rest
            .first_chunk()
            .map_or(Ipv4::BROADCAST, |o| Ipv4::from(*o)),
    }
}

/// A packet that fits the scene well enough to get far.
fn hear(bench: &Bench, octets: &[u8], place: usize) {
    let sender_ip = host(octets);
    let target_ip = if place & 1 == 0 { ME } else { YOU };
    let sender_eth = if place & 2 == 0 { PEER } else { MINE };
    bench.hear(&Packet {
        operation: if place & 4 == 0 {
            Operation::Reply
        } else {
            Operation::Request
        },
        sender_eth,
        sender_ip: if place & 8 == 0 {
            sender_ip
        } else {
            Ipv4::UNSPECIFIED
        },
        target_eth: MINE,
        target_ip,
    });
}

/// Looks at what was sent since, and at the bounds.
fn check(bench: &Bench, requests: &mut Vec<(Ipv4, u64)>) {
    let now = bench.cx.now().as_ms();
    requests.retain(|(_, at)| now < at + 1000);
    for frame in bench.sent.take() {
        if frame.number != TYPE_ARP {
            continue;
        }
        let Ok(packet) = Packet::parse_slice(&frame.octets) else {
            panic!("what was sent is no packet");
        };
        assert_eq!(packet.sender_eth, MINE, "sent under another address");
        let own = packet.is_announcement() || packet.is_probe();
        if packet.operation == Operation::Request && !own && frame.to.is_broadcast() {
            let again = requests.iter().any(|(host, _)| *host == packet.target_ip);
            // Of more hosts it cannot be remembered.
            assert!(
                !again || requests.len() > 200,
                "asked twice within a second"
            );
            requests.push((packet.target_ip, now));
        }
    }
    let table = bench.arp.ask(&bench.cx, ArpTable::default());
    assert!(
        table.is_some_and(|t| t.total <= ENTRIES_MAX),
        "the cache is too large"
    );
    let notes = &bench.notes;
    notes.seen.take();
    notes.errors.take();
    notes.conflicts.take();
}
