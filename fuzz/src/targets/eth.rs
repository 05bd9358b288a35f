//! Ethernet: the codec, and a whole station.

use crate::harness::{Rig, Script, integers, number};
use core::cell::Cell;
use std::rc::Rc;
use xk_core::{Answer, Part, Participants, reason};
use xk_eth::wire::{
    EthAddr, FRAME_LEN_MIN, HEADER_LEN, Header, Kind, SNAP_LEN, Selector, source_and_word,
};
use xk_kit::control::{JoinGroup, LeaveGroup};
use xk_testkit::kernel::{Lower, Top, octets};

const OWN: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);
const PEER: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);
/// The uppers and their numbers: Ethernet II, LLC, SNAP.
const UPPERS: [(&str, u32); 3] = [("typed", 0x0800), ("sap", 0x42), ("snap", 0x2_809b)];
/// Sessions that the station may hold: few, so that eviction happens too.
const SESSIONS_MAX: i64 = 4;
/// Sessions that the target itself holds open.
const HELD_MAX: usize = 8;

/// Parses `data` as a frame, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some((octets, rest)) = data.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let Ok(header) = Header::parse(octets) else {
        return;
    };
    assert_eq!(header.octets(), *octets, "the header changed");
    assert_eq!(source_and_word(octets)[..6], header.src.0, "another source");
    let Kind::Length(length) = header.kind else {
        return;
    };
    let packet = rest.get(..length.get().into()).unwrap_or(rest);
    let Ok((selector, payload)) = Selector::parse_llc(packet) else {
        return;
    };
    let (headers, behind) = packet.split_at(packet.len() - payload.len());
    assert_eq!(behind, payload, "another payload");
    let mut octets = [0; SNAP_LEN];
    let count = selector.emit(&mut octets);
    if let (Selector::Sap(_), [_, ssap, _]) = (selector, headers) {
        // The sender's service access point may be another.
        octets[1] = *ssap;
    }
    assert_eq!(headers, &octets[..count], "LLC changed");
}

/// Feeds a station with what `data` says: frames that arrive, sessions opened and closed, messages
/// sent, groups joined. Every frame that arrives is seen by an upper or counted as dropped.
pub(crate) fn stack(data: &[u8]) {
    let params = integers(&[("sessions_max", SESSIONS_MAX)]);
    let rig = Rig::new(Lower::wire(OWN.0), 16, &xk_eth::ENTRY, &params);
    let told = Rc::new(Cell::new(0));
    let joined = Rc::clone(&told);
    rig.bottom.on_ask(Rc::new(move |_, ask| {
        let is_told = ask.get::<JoinGroup>().is_some() || ask.get::<LeaveGroup>().is_some();
        joined.set(joined.get() + u32::from(is_told));
        Answer::Unknown
    }));
    let tops = UPPERS.map(|(kind, of)| {
        number(&rig.cx, kind, "eth", of);
        Top::add_kind(&rig.cx, kind, kind)
    });
    rig.start();
    for top in &tops {
        top.forget(true);
        let any = Participants::local(Part::Any);
        assert!(top.enable(&rig.cx, &rig.layer, any).is_ok(), "the number is free");
    }
    let arrive = |frame: &[u8], cut: usize| {
        let count = || tops.iter().map(Top::received).sum::<u64>() + rig.dropped_but(&[]);
        let (before, cut) = (count(), if cut == 0 { usize::MAX } else { cut });
        if let Some(message) = rig.message(frame, cut) {
            rig.bottom.inject(&rig.cx, None, message);
            assert_eq!(count(), before + 1, "a frame was neither seen nor counted");
        }
    };
    let (mut held, mut joins) = (Vec::new(), 0);
    let script = Script::new(data);
    while let Some((operation, octets)) = script.step() {
        let place = usize::from(operation >> 4);
        match operation & 7 {
            0 | 1 => arrive(octets, place),
            2 => arrive(&for_the_station(octets, place), place),
            3 => {
                let both = Participants::pair(Part::Any, Part::Ether(peer(octets).0));
                if let Ok(session) = tops[place % tops.len()].open(&rig.cx, &rig.layer, both)
                    && held.len() < HELD_MAX
                {
                    held.push(session);
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
                let address = peer(octets).0;
                let told = match place & 1 == 0 {
                    true => rig.layer.ask(&rig.cx, JoinGroup { address }).is_some(),
                    false => rig.layer.ask(&rig.cx, LeaveGroup { address }).is_some(),
                };
                joins += u32::from(told);
            }
            _ => {
                let unwilling = (place & 1 == 1).then_some(&reason::PROHIBITED);
                tops.iter().for_each(|top| top.refuse_open(unwilling));
            }
        }
    }
    assert_eq!(told.get(), joins, "the wire was not told");
    for sent in rig.bottom.take_sent() {
        let frame = octets(&sent.message);
        assert!(frame.len() >= FRAME_LEN_MIN, "a short frame was sent");
        let header = frame.first_chunk().map(Header::parse);
        let Some(Ok(sent)) = header else { panic!("what was sent is no frame") };
        assert_eq!(sent.src, OWN, "sent under another address");
    }
    drop(held);
    rig.stop();
}

fn peer(octets: &[u8]) -> EthAddr {
    octets.first_chunk().map_or(PEER, |octets| EthAddr(*octets))
}

/// These octets behind a header that the station takes.
fn for_the_station(octets: &[u8], place: usize) -> Vec<u8> {
    let words = [0x0800u16, octets.len() as u16, 3, 0x0806];
    [&OWN.0[..], &PEER.0, &words[place % words.len()].to_be_bytes(), octets].concat()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_frame_is_seen_or_counted(data in vec(any::<u8>(), 0..400)) {
            super::stack(&data);
        }

        #[test]
        fn the_codec_takes_anything(mut data in vec(any::<u8>(), 0..80), short: bool, snap: bool) {
            if short && data.len() > 22 {
                data[12] = 0;
                if snap {
                    data[14..17].copy_from_slice(&[0xaa, 0xaa, 3]);
                }
            }
            super::wire(&data);
        }
    }
}
