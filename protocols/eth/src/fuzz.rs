//! Fuzz targets: the codec (what parses must come out again as it went in) and a whole station.

use crate::bench::{Bench, MINE, PEER, UPPERS};
use crate::wire::{
    EthAddr, FRAME_LEN_MIN, Frame, HEADER_LEN, Kind, SNAP_LEN, Selector, source_and_word,
};
use alloc::vec::Vec;
use xk_kit::control::JoinGroup;

/// Parses `data` as a frame, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(frame) = Frame::parse(data) else {
        return;
    };
    let header = frame.header.octets();
    assert_eq!(header, data[..HEADER_LEN], "the header changed");
    let source = source_and_word(&header);
    assert_eq!(source[..6], frame.header.src.0, "another source");
    let rest = &data[HEADER_LEN..];
    let trimmed = match frame.header.kind {
        Kind::Type(_) => rest,
        Kind::Length(length) => &rest[..usize::from(length.get())],
    };
    let (headers, payload) = trimmed.split_at(trimmed.len() - frame.payload.len());
    assert_eq!(payload, frame.payload, "another payload");
    let mut octets = [0; SNAP_LEN];
    let count = frame.selector.emit(&mut octets);
    if let (Selector::Sap(_), [_, ssap, _]) = (frame.selector, headers) {
        // The sender's service access point may be another.
        octets[1] = *ssap;
    }
    assert_eq!(headers, &octets[..count], "LLC changed");
}

/// Sessions that the fuzz target's station may hold: few, so that eviction happens too.
const SESSIONS_MAX: usize = 4;
/// Sessions that the target itself holds open.
const HELD_MAX: usize = 8;

/// Feeds a station with what `data` says: frames that arrive, sessions opened and closed, messages
/// sent, groups joined. Every frame that arrives is seen by an upper or counted as dropped.
///
/// # Panics
/// If a frame gets lost, or a frame sent is none.
pub fn fuzz_stack(mut data: &[u8]) {
    let Some(bench) = Bench::new(SESSIONS_MAX) else {
        return;
    };
    let mut held = Vec::new();
    let mut joins = 0;
    while let Some((&[operation, len], rest)) = data.split_first_chunk() {
        let len = usize::from(len).min(rest.len());
        let (octets, rest) = rest.split_at(len);
        data = rest;
        let place = usize::from(operation >> 4);
        match operation & 7 {
            0 | 1 => arrive(&bench, octets, place),
            2 => arrive(&bench, &for_the_station(octets, place), place),
            3 => {
                if let Ok(session) = bench.open(place % UPPERS.len(), peer(octets))
                    && held.len() < HELD_MAX
                {
                    held.push(session);
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
                let address = peer(octets).0;
                let joined = bench.eth.ask(&bench.cx, JoinGroup { address });
                joins += u32::from(joined.is_some());
            }
            _ => bench.notes.unwilling.set(place & 1 == 1),
        }
    }
    assert_eq!(bench.joined.get(), joins, "the wire was not told");
    for frame in bench.sent.borrow().iter() {
        assert!(frame.len() >= FRAME_LEN_MIN, "a short frame was sent");
        let Ok(sent) = Frame::parse(frame) else {
            panic!("what was sent is no frame");
        };
        assert_eq!(sent.header.src, MINE, "sent under another address");
    }
}

fn peer(octets: &[u8]) -> EthAddr {
    octets.first_chunk().map_or(PEER, |octets| EthAddr(*octets))
}

/// These octets behind a header that the station takes.
fn for_the_station(octets: &[u8], place: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&MINE.0);
    frame.extend_from_slice(&PEER.0);
    let words = [0x0800u16, octets.len() as u16, 3, 0x0806];
    frame.extend_from_slice(&words[place % words.len()].to_be_bytes());
    frame.extend_from_slice(octets);
    frame
}

fn arrive(bench: &Bench, frame: &[u8], cut: usize) {
    let count = || bench.notes.seen.borrow().len() as u64 + bench.dropped();
    let before = count();
    match cut {
        0 => bench.arrive(frame),
        _ => bench.arrive_cut(frame, cut),
    }
    assert_eq!(count(), before + 1, "a frame was neither seen nor counted");
}
