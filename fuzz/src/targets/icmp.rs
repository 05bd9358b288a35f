//! ICMP: the codec, and the layer between two others.

use crate::harness::{Rig, Script};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::{Answer, HostAddr, Part, Participants};
use xk_icmp::wire::{self, HEADER_LEN, TIMES_LEN, echo_reply};
use xk_icmp::{IcmpFigures, reasons};
use xk_kit::control::{DeliverError, NetworkError, SendError, SendErrorCause};
use xk_testkit::kernel::{Lower, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Part = Part::Host(HostAddr::v4(Ipv4Addr::new(192, 0, 2, 2)));

/// Parses `data` as a message, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Ok(message) = wire::Message::parse(data) else {
        return;
    };
    let mut octets = message.header_octets();
    let whole = [&octets, message.body].concat();
    assert_eq!(wire::Message::parse(&whole), Ok(message), "the message changed");
    // Unused octets are written as zero, so only queries come out to the bit.
    if !message.header.is_error() && data[2..4] != [0xff, 0xff] {
        assert_eq!(octets, data[..HEADER_LEN], "the octets changed");
    }
    assert_eq!(message.quoted().is_some(), message.header.is_error());
    if let Some(times) = message.times() {
        let mut octets = [0; TIMES_LEN];
        times.emit(&mut octets);
        assert_eq!(octets, message.body[..TIMES_LEN], "the times changed");
    }
    if echo_reply(&mut octets).is_some() {
        let whole = [&octets, message.body].concat();
        let reply = wire::Message::parse(&whole).expect("the reply to a valid request is valid");
        assert_eq!(Some(reply.header), message.header.reply());
    }
}

/// These octets under a good checksum.
fn mended(octets: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    if let Some(field) = octets.get_mut(2..4) {
        field.fill(0);
        let sum = xk_kit::net::checksum::checksum(&octets).to_be_bytes();
        octets[2..4].copy_from_slice(&sum);
    }
    octets
}

/// Does what `data` says to a layer with one pinging session: arrivals, refused packets, requests,
/// time. Each message is answered, delivered, passed on or counted.
pub(crate) fn stack(data: &[u8]) {
    let mut params = Params::default();
    params.set("timestamp", Value::Bool(true));
    let rig = Rig::new(Lower::host(OWN, 1), 16, &xk_icmp::ENTRY, &params);
    let top = Top::add(&rig.cx, "pinger");
    top.forget(true);
    rig.start();
    let both = Participants::pair(Part::Any, PEER);
    let session = top.open(&rig.cx, &rig.layer, both).expect("a session below is there");
    // The lower layer knows the sender of every packet that an error is about.
    let (layer, sender) = (rig.layer.clone(), rig.below(Some(PEER)));
    rig.bottom.on_ask(Rc::new(move |cx, ask| {
        let Some(question) = ask.get::<DeliverError>() else {
            return Answer::Unknown;
        };
        let error = NetworkError { session: Some(sender.clone()), ..question.error.clone() };
        let _ = layer.ask(cx, error);
        Answer::Answered
    }));
    let script = Script::new(data);
    while let Some((what, octets)) = script.step() {
        match what & 3 {
            0 => rig.arrive(Some(PEER), octets),
            1 => rig.arrive(Some(PEER), &mended(octets)),
            2 => {
                let (cause, link_broadcast) = (SendErrorCause::NoRoute, what & 4 != 0);
                let packet = rig.message(octets, usize::MAX);
                let _ = rig.layer.ask(&rig.cx, SendError { packet, cause, link_broadcast });
            }
            _ => {
                if let Some(message) = rig.message(octets, usize::MAX) {
                    let _ = session.push(&rig.cx, message);
                }
                rig.cx.advance(Duration::from_micros(octets.len() as u64));
            }
        }
    }
    let figures = rig.layer.ask(&rig.cx, IcmpFigures::default()).unwrap_or_default();
    let untold = [reasons::NOT_TOLD.name, reasons::RATE_LIMITED.name];
    let outcomes = figures.requests_answered
        + figures.errors_received
        + top.received()
        + rig.dropped_but(&untold);
    assert_eq!(rig.layer.head().received(), outcomes, "each has one outcome");
    drop(session);
    rig.stop();
}

#[cfg(test)]
mod tests {
    use super::{mended, wire};
    use crate::frame::Ip;
    use core::net::Ipv4Addr;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A packet that an error quotes.
    fn quoted() -> impl Strategy<Value = Vec<u8>> {
        let [src, dst] = [1, 2].map(|last| Ipv4Addr::new(192, 0, 2, last));
        vec(any::<u8>(), 0..20).prop_map(move |payload| {
            let protocol = [1, 17][payload.len() % 2];
            let packet = Ip { src, dst, protocol, id: 1, fragment: 0, ttl: 64, options: &[] };
            packet.datagram(&payload)
        })
    }

    /// Steps: messages of all types, errors that quote, packets that were refused.
    fn step() -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![quoted(), vec(any::<u8>(), 0..20)];
        let kind = prop_oneof![Just(0u8), Just(3), Just(8), Just(11), Just(13), any::<u8>()];
        let message = (0u8..2, kind, 0u8..5, any::<u32>(), body).prop_map(
            |(what, kind, code, rest, body)| {
                let message = [&[kind, code, 0, 0][..], &rest.to_be_bytes(), &body].concat();
                [vec![what, message.len() as u8], message].concat()
            },
        );
        let refused = (any::<bool>(), quoted()).prop_map(|(cast, packet)| {
            [vec![2 | u8::from(cast) << 2, packet.len() as u8], packet].concat()
        });
        let noise = vec(any::<u8>(), 0..60);
        prop_oneof![4 => message, 2 => refused, 1 => noise, 1 => Just(vec![3, 0])]
    }

    proptest! {
        #[test]
        fn the_layer_takes_anything(steps in vec(step(), 0..60)) {
            super::stack(&steps.concat());
        }

        #[test]
        fn the_codec_takes_anything(mut data in vec(any::<u8>(), 8..60), known: bool,
            quoted in prop::option::of(quoted())) {
            if known {
                // A type that there is, and one of its codes.
                let kinds = [(0, 1), (3, 16), (5, 4), (8, 1), (11, 2), (12, 3), (13, 1), (14, 1)];
                let (kind, codes) = kinds[usize::from(data[0]) % kinds.len()];
                (data[0], data[1]) = (kind, data[1] % codes);
            }
            if let Some(quoted) = quoted {
                data.truncate(8);
                data.extend(quoted);
            }
            wire(&mended(&data));
        }
    }
}
