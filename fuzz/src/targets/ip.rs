//! IP: the codec, and a router.

use crate::harness::{Rig, Script, build};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::{Part, Participants};
use xk_ip::wire::{HEADER_LEN, HEADER_LEN_MAX, OPTIONS_LEN_MAX, Options, Packet, decrement_ttl};
use xk_ip::{IpFigures, reasons};
use xk_kit::control::{DeliverError, NetworkError, NetworkErrorKind, Start};
use xk_testkit::kernel::{Bottom, Lower, Top};

/// Octets of a link's longest packet.
const LINK_OCTETS: u32 = 576;
/// Number of messages that the layer above sends back.
const ANSWERS_MAX: u64 = 32;

/// Parses `data` as a datagram, writes its header again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    let len = packet.header.header_len();
    let mut octets = [0; HEADER_LEN_MAX];
    let written = packet.header.emit_with(packet.options, &mut octets);
    let written = written.expect("what was read fits");
    let again = Packet::parse(&[written, packet.payload].concat()).map(|p| p.header);
    assert_eq!(again, Ok(packet.header), "the header changed");
    let reserved = data[6] & 0x80 != 0;
    // A checksum of ones for zero is valid, but never written.
    if !reserved && data[10..12] != [0xff, 0xff] {
        assert_eq!(written, &data[..len], "the octets changed");
    }
    let mut room = [0; OPTIONS_LEN_MAX];
    let copied = packet.options.copied(&mut room);
    assert_eq!(Options::parse(copied.octets()), Ok(copied), "options that are copied are good");
    let asked_for = packet.options.iter().filter(|option| option[0] & 0x80 != 0);
    assert!(copied.iter().eq(asked_for), "the options changed");
    let mut fixed = [0; HEADER_LEN];
    fixed.copy_from_slice(&data[..HEADER_LEN]);
    if decrement_ttl(&mut fixed).is_some() {
        let whole = [&fixed, &data[HEADER_LEN..]].concat();
        let next = Packet::parse(&whole).expect("one hop on it is still valid");
        assert_eq!(next.header.ttl + 1, packet.header.ttl);
    }
}

fn block(values: &[(&'static str, &str)]) -> Params {
    let mut block = Params::default();
    for (name, value) in values {
        block.set(name, Value::Text(String::from(*value)));
    }
    block
}

fn params() -> Params {
    let mut params = Params::default();
    params.set("forward", Value::Bool(true));
    params.set("sessions_max", Value::Integer(8));
    params.set("reassembly_octets_max", Value::Octets(8192));
    params.add_block("address", block(&[("address", "10.0.0.1/24"), ("on", "a")]));
    params.add_block("address", block(&[("address", "10.0.1.1/24"), ("on", "b")]));
    params.add_block("route", block(&[("network", "default"), ("via", "10.0.1.2")]));
    params
}

/// Under a good version, length and checksum.
fn mended(octets: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    let len = octets.len() as u16;
    if let Some(header) = octets.first_chunk_mut::<HEADER_LEN>() {
        header[0] = 0x45;
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[10..12].fill(0);
        let sum = xk_kit::net::checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    octets
}

/// Does what `data` says to a router with two links: arrivals, sending, reports, time. Each step is
/// an octet that says what, one that says how much, and what that needs. Each packet is delivered,
/// held, sent on or counted.
pub(crate) fn stack(data: &[u8]) {
    let (rig, top, links) = router();
    let script = Script::new(data);
    while let (Some(what), Some(much)) = (script.octet(), script.octet()) {
        let peer = match much & 3 {
            0 => Ipv4Addr::new(10, 0, 0, 1),
            1 => Ipv4Addr::new(10, 0, 1, much),
            2 => Ipv4Addr::BROADCAST,
            _ => Ipv4Addr::new(192, 0, 2, much),
        };
        let link = &links[usize::from(what & 1)];
        match what & 7 {
            0 | 1 => arrive(&rig, link, script.take(much.into())),
            2 | 3 => arrive(&rig, link, &mended(script.take(much.into()))),
            4 => send(&rig, &top, peer, usize::from(what) * 37),
            5 => report(&rig, peer, u32::from(what) * 6),
            6 => drop(rig.cx.advance(Duration::from_millis(much.into()))),
            _ => drop(rig.cx.advance(Duration::from_secs(much.into()))),
        }
    }
    rig.cx.advance(Duration::ZERO);
    check(&rig, &top);
    rig.stop();
}

/// A router between two links that take everything, with an echo above.
fn router() -> (Rig, Top, [Bottom; 2]) {
    let cx = Rig::kernel(64);
    let links = ["a", "b"].map(|name| Bottom::add(&cx, name, Lower::link(LINK_OCTETS)));
    let lowers = links.each_ref().map(|link| link.protocol().clone());
    let layer = build(&cx, &xk_ip::ENTRY, &lowers, &params());
    let top = Top::add(&cx, "top");
    top.forget(true);
    top.echo(true);
    let echo = top.clone();
    top.on_demux(Some(Rc::new(move |_, _, number| {
        echo.echo(number <= ANSWERS_MAX);
        Ok(())
    })));
    cx.numbers_mut().override_pair(top.id(), layer.id(), 17);
    let [bottom, _] = links.clone();
    let rig = Rig { cx, bottom, layer };
    rig.start();
    let any = Participants::local(Part::Any);
    assert!(top.enable(&rig.cx, &rig.layer, any).is_ok(), "the number is free");
    links.iter().for_each(|link| link.keep(false));
    (rig, top, links)
}

/// Lets a packet arrive on a link.
fn arrive(rig: &Rig, link: &Bottom, octets: &[u8]) {
    if let Some(message) = rig.message(octets, usize::MAX) {
        link.inject(&rig.cx, None, message);
    }
}

/// Opens a session, sends, and closes it.
fn send(rig: &Rig, top: &Top, peer: Ipv4Addr, len: usize) {
    let pair = Participants::pair(Part::Any, Part::host(peer));
    let Ok(session) = top.open(&rig.cx, &rig.layer, pair) else {
        return;
    };
    if let Some(message) = rig.message(&vec![0; len], usize::MAX) {
        let _ = session.push(&rig.cx, message);
    }
    session.close(&rig.cx);
}

/// Reports that a packet was too big for its path.
fn report(rig: &Rig, destination: Ipv4Addr, mtu: u32) {
    let kind = NetworkErrorKind::PacketTooBig { mtu };
    let error = NetworkError { start: Start::new(&[0; 8]), ..NetworkError::new(kind) };
    let (source, destination) = ([10, 0, 0, 1].into(), destination.into());
    let _ = rig.layer.ask(&rig.cx, DeliverError { source, destination, protocol: 17, error });
}

/// Every arrival has one outcome.
fn check(rig: &Rig, top: &Top) {
    let figures = rig.layer.ask(&rig.cx, IpFigures::default()).unwrap_or_default();
    let outcomes = top.received() - figures.reassembled
        + figures.fragments_joined
        + figures.fragments_held as u64
        + figures.forwarded
        + rig.dropped_but(&[reasons::UNMATCHED_ERROR.name]);
    let arrived = rig.layer.head().received() + figures.looped;
    assert_eq!(arrived, outcomes, "each is delivered, held, sent on or counted");
}

#[cfg(test)]
mod tests {
    use super::{stack, wire};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use xk_kit::net::checksum::checksum;

    /// Steps: mostly packets that nearly fit, fragments among them.
    fn step() -> impl Strategy<Value = Vec<u8>> {
        let host = prop_oneof![
            Just([10, 0, 0, 1]),
            Just([10, 0, 1, 7]),
            Just([10, 0, 0, 9]),
            Just([192, 0, 2, 1]),
            Just([255, 255, 255, 255]),
            any::<[u8; 4]>(),
        ];
        let place = (0u8..4, any::<bool>());
        let packet = (0u8..4, host.clone(), host, place, 0u8..3, 0usize..60).prop_map(
            |(what, src, dst, (at, more), id, len)| {
                let mut packet = vec![0x45, 0, 0, 0, 0, id, u8::from(more) * 0x20, at, 3, 17, 0, 0];
                packet.extend_from_slice(&src);
                packet.extend_from_slice(&dst);
                packet.extend((0..len & !(7 * usize::from(more))).map(|n| n as u8));
                [vec![what, packet.len() as u8], packet].concat()
            },
        );
        let noise = vec(any::<u8>(), 0..80);
        let other = (4u8..8, any::<[u8; 2]>())
            .prop_map(|(what, [high, much])| vec![what | high << 3, much]);
        prop_oneof![6 => packet, 1 => noise, 2 => other]
    }

    proptest! {
        #[test]
        fn a_router_takes_anything(steps in vec(step(), 0..60)) {
            stack(&steps.concat());
        }

        #[test]
        fn the_codec_takes_anything(mut data in vec(any::<u8>(), 60..80), words in 5u8..16,
            options in vec(prop_oneof![
                Just(0u8), Just(1), Just(3), Just(4), Just(7), Just(8), Just(68), Just(131), Just(148)
            ], 40)) {
            let len = usize::from(words) * 4;
            data[0] = 0x40 | words;
            data[2..4].copy_from_slice(&72u16.to_be_bytes());
            data[20..60].copy_from_slice(&options);
            data[10..12].fill(0);
            let sum = checksum(&data[..len]);
            data[10..12].copy_from_slice(&sum.to_be_bytes());
            wire(&data);
        }
    }
}
