//! The committed seeds, made by `cargo run -p xk-fuzz -- seeds`.
//!
//! Their names begin with `seed-`; other files of the corpus are inputs that failed once, and stay.

use crate::folder;
use crate::frame::{self, ETH_OCTETS, Ip, PEER, icmp, udp};
use crate::stack::operation::code;
use crate::stack::{BEYOND, ME, OWN, YOU};
use std::fs;
use std::io;

mod mrpc;
mod sun;
mod vmtp;
mod xdr;

/// A seed: its target, its name, and its octets.
struct Seed {
    target: &'static str,
    name: String,
    octets: Vec<u8>,
}

/// Writes all seeds. Answers how many files and octets.
///
/// # Errors
/// If the files cannot be written.
pub fn write() -> io::Result<(usize, usize)> {
    let mut octets = 0;
    let seeds = seeds()?;
    for seed in &seeds {
        let folder = folder().join("corpus").join(seed.target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{}", seed.name)), &seed.octets)?;
        octets += seed.octets.len();
    }
    Ok((seeds.len(), octets))
}

fn seeds() -> io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    wires(&mut seeds);
    layers(&mut seeds);
    stacks(&mut seeds);
    texts(&mut seeds);
    attacks(&mut seeds);
    shared_memory(&mut seeds);
    mrpc::add_all(&mut seeds);
    vmtp::add_all(&mut seeds);
    sun::add_all(&mut seeds);
    xdr::add_all(&mut seeds)?;
    for octets in crate::targets::question::all_zeros().iter().step_by(6) {
        add(&mut seeds, "question", &octets[0].to_string(), octets);
    }
    for (name, script) in crate::targets::cut::frame_seeds() {
        add(&mut seeds, "cut", name, &script);
    }
    add(&mut seeds, "attach", "program", &crate::targets::cut::attach_seed());
    for (name, script) in crate::targets::netio::seeds() {
        add(&mut seeds, "netio", name, &script);
    }
    let mut script = [0; 600];
    for seed in 0..4 {
        xk_core::random::Random::new(seed).fill(&mut script);
        add(&mut seeds, "message", &format!("script{seed}"), &script);
        add(&mut seeds, "loans", &format!("script{seed}"), &script);
    }
    Ok(seeds)
}

fn add(seeds: &mut Vec<Seed>, target: &'static str, name: &str, octets: &[u8]) {
    seeds.push(Seed { target, name: name.into(), octets: octets.to_vec() });
}

/// Scripts for the ring: operation and three octets each.
fn shared_memory(seeds: &mut Vec<Seed>) {
    const SEND: [u8; 4] = [6, 7, 60, 0];
    const TAKE: [u8; 4] = [7, 200, 0, 0];
    let honest = [SEND, [4, 0, 100, 9], TAKE, [5, 0, 0, 0], [6, 9, 180, 0], [4, 0, 190, 1], TAKE];
    let marks = [[1, 4, 50, 0], TAKE, [1, 0, 0xff, 3], TAKE, [1, 1, 120, 0], [1, 0, 121, 0], TAKE];
    let consumed =
        [SEND, SEND, [2, 9, 0, 0], SEND, SEND, SEND, SEND, SEND, [2, 0xff, 8, 0xff], SEND];
    let states = [[3, 0, 1, 0], SEND, [3, 8, 4, 0], [0, 16, 8, 0], [0, 0, 128, 3], TAKE, SEND];
    add(seeds, "shm-ring", "honest", &honest.repeat(4).concat());
    add(seeds, "shm-ring", "marks", &marks.repeat(3).concat());
    add(seeds, "shm-ring", "consumed", &consumed.concat());
    add(seeds, "shm-ring", "states", &states.concat());
}

/// A datagram to us.
fn ip(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let ip = Ip { src: YOU, dst: ME, protocol, id: 77, fragment, ttl: 64, options };
    ip.datagram(payload)
}

/// An echo request with this many octets.
fn ping(octets: usize) -> Vec<u8> {
    icmp(8, 0, &[&[0x12, 0x34, 0, 1][..], &vec![b'p'; octets]].concat())
}

fn to_us(number: u16, payload: &[u8]) -> Vec<u8> {
    frame::ethernet(OWN, PEER, number, payload)
}

/// Real frames, by name.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let asks = frame::arp(1, (PEER, YOU), ([0; 6], ME));
    let replies = frame::arp(2, (PEER, YOU), (OWN, ME));
    let echo = udp((YOU, ME), (1024, 7), b"hello");
    let long = ping(1480 + 1000);
    // A router alert and padding; a recorded route of three places (RFC 791, section 3.1; RFC
    // 2113).
    let alert = [0x94, 4, 0, 0, 1, 0];
    let record = [7, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let about = ip(frame::UDP, 0, &[], &udp((ME, YOU), (5000, 7), b"lost"));
    let error = |kind, code, second: [u8; 4]| {
        let message = icmp(kind, code, &[&second[..], &about[..28]].concat());
        to_us(frame::TYPE_IP, &ip(frame::ICMP, 0, &[], &message))
    };
    let datagram = |protocol, fragment, options: &[u8], payload: &[u8]| {
        to_us(frame::TYPE_IP, &ip(protocol, fragment, options, payload))
    };
    vec![
        ("arp-request", frame::ethernet([0xff; 6], PEER, frame::TYPE_ARP, &asks)),
        ("arp-reply", to_us(frame::TYPE_ARP, &replies)),
        ("ping", datagram(frame::ICMP, 0, &[], &ping(56))),
        ("ping-options", datagram(frame::ICMP, 0, &record, &ping(8))),
        ("ping-part1", datagram(frame::ICMP, 0x2000, &[], &long[..1480])),
        ("ping-part2", datagram(frame::ICMP, 185, &[], &long[1480..])),
        ("udp-echo", datagram(frame::UDP, 0, &[], &echo)),
        ("udp-alert", datagram(frame::UDP, 0, &alert, &echo)),
        ("port-unreachable", error(3, 3, [0; 4])),
        ("fragmentation-needed", error(3, 4, [0, 0, 2, 64])),
        ("time-exceeded", error(11, 0, [0; 4])),
        ("parameter-problem", error(12, 0, [20, 0, 0, 0])),
        ("snap", [&OWN[..], &PEER, &[0, 14, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], b"snapped"].concat()),
    ]
}

/// The codecs get the frames from their own header on.
fn wires(seeds: &mut Vec<Seed>) {
    for (name, frame) in frames() {
        add(seeds, "eth-wire", name, &frame);
        let payload = &frame[ETH_OCTETS..];
        match frame[12..14] {
            [0x08, 0x06] => add(seeds, "arp-wire", name, payload),
            [0x08, 0x00] => {
                add(seeds, "ip-wire", name, payload);
                let body = &payload[usize::from(payload[0] & 15) * 4..];
                match payload[9] {
                    frame::ICMP if payload[6..8] == [0, 0] => {
                        add(seeds, "icmp-wire", name, body);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let times = [[0, 1, 0, 2], [0, 0, 0, 9], [0, 0, 0, 10], [0, 0, 0, 11]].concat();
    let mut typed = frame::arp(2, (PEER, YOU), ([0xff; 6], YOU));
    typed[2..4].copy_from_slice(&0x3900u16.to_be_bytes());
    add(seeds, "arp-wire", "further-type", &typed);
    add(seeds, "icmp-wire", "timestamp", &icmp(13, 0, &times));
    // The codec's target reads these two hosts.
    let (src, dst) = ([192, 0, 2, 1].into(), [198, 51, 100, 2].into());
    let datagram = udp((src, dst), (1024, 7), b"hello");
    add(seeds, "udp-wire", "datagram", &datagram);
    let mut without = datagram.clone();
    without[6..8].fill(0);
    add(seeds, "udp-wire", "no-checksum", &without);
    let padded = [&datagram[..], &[0; 9]].concat();
    add(seeds, "udp-wire", "padded", &padded);
    add(seeds, "null-wire", "number", &[0, 0, 0, 7]);
    add_calls(seeds);
}

/// Adds seeds of FRAGMENT and CHANNEL: the headers of a small message and of a call, and scripts of
/// several.
fn add_calls(seeds: &mut Vec<Seed>) {
    let fragment = |count: u8, mask: u8| {
        let mut packet = vec![0; 24 + 8];
        (packet[0], packet[13], packet[17]) = (1, 7, 1);
        (packet[19], packet[21], packet[23]) = (count, mask, 8);
        packet
    };
    add(seeds, "fragment-wire", "small", &fragment(1, 1));
    let script: Vec<u8> = [fragment(2, 1), fragment(1, 1), fragment(2, 2)]
        .iter()
        .flat_map(|packet| [&[packet.len() as u8][..], packet].concat())
        .chain([0, 100])
        .collect();
    add(seeds, "fragment", "two", &script);
    let call = [1, 0x10, 0, 3, 0, 0, 0, 0x65, 0, 0, 0, 7, 0, 0, 0x2a, 0, 0, 1];
    add(seeds, "channel-wire", "call", &call);
    // A request without a ticket, one with, its acknowledgement, time.
    let script = [[7, 3, 1, 32], [7, 3, 1, 36], [3, 3, 2, 37], [0, 0, 0, 60]];
    add(seeds, "channel", "call", script.as_flattened());
}

/// One operation of a sequence.
fn step(operation: u8, place: u8, argument: &[u8]) -> Vec<u8> {
    let len = argument.len().min(255);
    [&[operation | place << 4, len as u8][..], &argument[..len]].concat()
}

/// The layers alone read operations as their targets say.
fn layers(seeds: &mut Vec<Seed>) {
    let frames = frames();
    for (name, frame) in &frames {
        if frame.len() < 255 {
            let twice = [step(0, 0, frame), step(1, 5, frame)].concat();
            add(seeds, "eth", name, &twice);
        }
    }
    let uses = [
        step(3, 0, &PEER),
        step(4, 0, b"pushed"),
        step(2, 0, b"arrives"),
        step(6, 0, &[1, 0, 0x5e, 0, 0, 5]),
        step(5, 0, &[]),
    ];
    add(seeds, "eth", "sessions", &uses.concat());
    let resolves = [
        step(2, 0, &[1]),
        step(3, 0, &[2]),
        step(4, 0, b"waits"),
        step(6, 10, &[]),
        step(1, 0, &[2]),
        step(4, 0, b"goes"),
        step(6, 15, &[]),
        step(5, 0, &[]),
    ];
    add(seeds, "arp", "resolve", &resolves.concat());
    let asks = [step(0, 0, &frame::arp(1, (PEER, YOU), ([0; 6], ME))), step(7, 0, &[9])];
    add(seeds, "arp", "asked", &asks.concat());
    // A further type: spoken by a known host and a stranger, cut short, then said by a host of
    // ours.
    let further = [
        step(2, 0, &[1]),
        step(3, 0, &[2]),
        step(1, 0, &[2]),
        step(8, 0, &[2]),
        step(8, 4, &[3]),
        step(9, 0, &[9; 10]),
        step(8, 15, &[2]),
        step(10, 0, &[]),
        step(11, 0, &[2]),
        step(6, 15, &[]),
    ];
    add(seeds, "arp", "further-type", &further.concat());
    // Raw, mended, sent from here, reported from below, and then time passes.
    for (name, frame) in &frames {
        let packet = &frame[ETH_OCTETS..];
        if frame[12..ETH_OCTETS] != [0x08, 0x00] || packet.len() > 255 {
            continue;
        }
        let ip = [
            step(0, 0, packet),
            step(2, 0, packet),
            step(3, 0, packet),
            vec![0xf4, 1, 0x75, 1, 6, 200, 7, 70],
        ];
        add(seeds, "ip", name, &ip.concat());
        let body = &packet[usize::from(packet[0] & 15) * 4..];
        let icmp = [(0, body), (1, body), (2, packet), (3, body)];
        let icmp = icmp.map(|(what, octets)| step(what, 0, octets));
        add(seeds, "icmp", name, &icmp.concat());
    }
    let datagram = udp(([127, 0, 0, 1].into(), [127, 0, 0, 1].into()), (9, 7), b"hi");
    let mut framed = Vec::new();
    for _ in 0..3 {
        framed.push(datagram.len() as u8);
        framed.extend(&datagram);
    }
    add(seeds, "udp", "echo", &framed);
    tcp(seeds);
}

/// A segment from port 9, with these flags and options.
fn segment(dst: u8, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let offset = (5 + options.len() as u8 / 4) << 4;
    let fixed = [[0, 9, 0, dst], [0, 0, 0, 1], [0, 0, 0, 0], [offset, flags, 0x10, 0], [0; 4]];
    [&fixed.concat()[..], options, data].concat()
}

/// Handshakes from both sides, data and ends. Behind a segment of odd length come numbers that fit.
fn tcp(seeds: &mut Vec<Seed>) {
    const SYN_OPTIONS: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let syn = segment(7, 2, &SYN_OPTIONS, b"");
    add(seeds, "tcp-wire", "syn", &syn);
    add(seeds, "tcp-wire", "data", &segment(7, 0x18, &[], b"hello"));
    let blocks = [1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 12];
    add(seeds, "tcp-wire", "sack", &segment(7, 0x10, &blocks, b""));
    let conversation = |parts: &[Vec<u8>]| {
        let mut framed = Vec::new();
        for part in parts {
            framed.push(part.len() as u8);
            framed.extend(part);
        }
        framed
    };
    let passive = [
        segment(7, 2, &[], b""),
        segment(7, 0x10, &[], b"x"),
        segment(7, 0x18, &[], b"hello"),
        segment(7, 0x11, &[], b"y"),
    ];
    add(seeds, "tcp", "passive", &conversation(&passive));
    let active = [
        segment(53, 0x12, &[], b"s"),
        segment(53, 0x18, &[], b"hello"),
        segment(53, 0x14, &[], b"r"),
    ];
    add(seeds, "tcp", "active", &conversation(&active));
    for (name, state) in crate::targets::tcp::states() {
        add(seeds, "tcp-state", name, &state);
    }
}

/// The whole stack.
fn stacks(seeds: &mut Vec<Seed>) {
    let known = step(code::ARP, 0, &[1, 1, 0]);
    let away = step(code::ARP, 0, &[2, 10, 0]);
    let mut add_both = |name: &str, steps: &[Vec<u8>]| {
        for (kind, graph) in [("host", 0), ("router", 1)] {
            let octets = [&[graph][..], &steps.concat()].concat();
            add(seeds, "stack", &format!("{kind}-{name}"), &octets);
        }
    };
    for (name, frame) in frames() {
        if frame.len() <= 255 {
            add_both(name, &[known.clone(), step(code::RAW, 0, &frame)]);
        }
    }
    let udp_session = step(code::OPEN, 0, b"port5000 port7@192.0.2.2");
    add_both(
        "udp",
        &[
            known.clone(),
            step(code::UDP, 0, &[1, 0, 3, 0, b'x']),
            step(code::UDP, 2, &[1, 0, 3, 5, b'y']),
            udp_session.clone(),
            step(code::PUSH, 0, b"\x07hello"),
            step(code::ANSWER, 0, &[]),
            step(code::ERROR, 0, &[3, 3, 8]),
            step(code::PASS, 12, &[]),
            step(code::CLOSE, 0, &[]),
        ],
    );
    let big = [&[31][..], &[b'z'; 100]].concat();
    add_both(
        "fragments",
        &[
            known.clone(),
            step(code::FRAGMENTS, 0, &[1, 0, 17, 60, 20, b'a', b'b', b'c', 4, 5, 6, 7, 8, 9]),
            step(code::FRAGMENTS, 2, &[&[1, 0, 1, 9, 31][..], &[b'f'; 60]].concat()),
            step(code::FRAGMENTS, 6, &[&[1, 0, 17, 3, 9][..], &[b'g'; 60]].concat()),
            udp_session.clone(),
            step(code::PUSH, 0, &big),
            step(code::IP, 0, &[1, 0, 17, 0x20, 0, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
            step(code::PASS, 15, &[]),
        ],
    );
    add_both(
        "icmp",
        &[
            known.clone(),
            away.clone(),
            step(code::OPEN, 1, b"* 192.0.2.2"),
            step(code::PUSH, 0, b"\0ping"),
            step(code::ANSWER, 0, &[]),
            step(code::ICMP, 0, &[1, 0, 13, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            step(code::ICMP, 0, &[1, 5, 8, 0, 0, 1, 0, 1, b'b']),
            step(code::ERROR, 0, &[3, 4, 8, 0, 0, 2, 64]),
            step(code::PASS, 13, &[]),
        ],
    );
    let forwarded = Ip {
        src: YOU,
        dst: BEYOND,
        protocol: frame::UDP,
        id: 9,
        fragment: 0,
        ttl: 9,
        options: &[7, 7, 4, 0, 0, 0, 0, 0],
    };
    let forwarded = forwarded.datagram(&udp((YOU, BEYOND), (1, 2), &[b'f'; 150]));
    add_both(
        "forward",
        &[
            known.clone(),
            step(code::ETHERNET, 0, &forwarded),
            step(code::ANSWER, 1, &[]),
            step(code::IP, 0, &[1, 2, 17, 0, 0, 1, 0, 1, 2, 3]),
            step(code::ARP, 1, &[2, 2, 3]),
            step(code::ETHERNET, 0, &forwarded),
            step(code::FAIL, 2, &[]),
            step(code::ETHERNET, 0, &forwarded),
            step(code::FAIL, 0, &[]),
            step(code::PASS, 11, &[]),
        ],
    );
    add_both(
        "enable",
        &[
            known,
            step(code::ENABLE, 0, b"port53"),
            step(code::MOOD, 2, &[]),
            step(code::UDP, 0, &[1, 0, 3, 2, b'q']),
            step(code::ENABLE, 2, b"*"),
            step(code::IP, 0, &[1, 0, 254, 0, 0, 9, 0, b'r', b'a', b'w']),
            step(code::OPEN, 2, b"* 192.0.2.2"),
            step(code::PUSH, 0, b"\0raw"),
            step(code::MOOD, 1, &[]),
            step(code::IP, 0, &[1, 0, 253, 0, 0, 9, 0, b'r', b'a', b'w']),
        ],
    );
}

/// Attacks on a small network, and requests to a running graph.
fn attacks(seeds: &mut Vec<Seed>) {
    for kind in 0..9 {
        let noise = step(1, 0, &[kind, 7, 200]);
        let ask = step(4, kind, &[1, 2]);
        let pass = step(2, 9, &[]);
        let all = [noise.clone(), ask, pass, noise, step(2, 15, &[])].concat();
        add(seeds, "attack", &format!("noise{kind}"), &all);
    }
    let questions: Vec<u8> =
        (0..32u8).flat_map(|n| step(4, n % 16, &[n, 3, 10, 64, 0, 1])).collect();
    add(seeds, "attack", "questions", &questions);
    let asks = frame::arp(1, (PEER, YOU), ([0; 6], ME));
    let frames = [
        step(0, 0, &frame::ethernet([0xff; 6], PEER, frame::TYPE_ARP, &asks)),
        step(3, 0, b"hello"),
        step(5, 0, b"port5000, port7@10.0.0.1"),
        step(2, 9, &[]),
        step(3, 1, b"hello again"),
    ];
    add(seeds, "attack", "frames", &frames.concat());
    for (name, line) in [
        ("dump", r#"{"ask":"dump"}"#),
        ("trace", r#"{"ask":"trace","messages":7}"#),
        ("capture", r#"{"ask":"capture","edge":"ip>eth"}"#),
        ("nested", r#"{"ask":{"ask":["dump",1e99,null,true,"\u0000"]}}"#),
    ] {
        add(seeds, "request", name, line.as_bytes());
    }
}

/// Participants.
fn texts(seeds: &mut Vec<Seed>) {
    for (name, text) in [
        ("port", "port7@10.0.0.2"),
        ("pair", "port5000@* port7@192.0.2.1"),
        ("ether", "proto2048@02:00:00:00:00:01"),
        ("host6", "[2001:db8::1]"),
        ("any", "* *"),
    ] {
        add(seeds, "participants", name, text.as_bytes());
    }
}
