//! TCP: the codec, and the layer between two others.

use crate::harness::{Rig, Script, integers};
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_core::{Part, Participant, Participants, SessionRef};
use xk_kit::Checksum;
use xk_kit::control::PseudoHeader;
use xk_kit::net::moving::{bring, state_of};
use xk_tcp::wire::{CHECKSUM_AT, HEADER_LEN, HEADER_LEN_MAX, Header};
use xk_testkit::kernel::{Lower, Top};

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Parses `data` as a segment, writes its header again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Ok((header, length)) = Header::parse(data) else {
        return;
    };
    assert!(length <= data.len(), "the header lies in the segment");
    let mut octets = [0; HEADER_LEN_MAX];
    let written = header.emit(&mut octets);
    let again = Header::parse(&octets[..written]);
    assert_eq!(again, Ok((header, written)), "the header changed");
    assert_eq!(octets[..12], data[..12], "ports or numbers changed");
}

/// A segment with a right checksum. If it `answers`, sequence number and acknowledgement follow
/// those of the last segment that TCP sent.
fn fit(segment: &[u8], pseudo: u32, numbers: [u8; 8], answers: bool) -> Vec<u8> {
    let mut segment = segment.to_vec();
    let len = segment.len() as u32;
    if let Some(fixed) = segment.first_chunk_mut::<HEADER_LEN>() {
        let near = |at: usize, last: &[u8], more: u8| {
            let last = last.get(at..at + 4).and_then(|four| four.first_chunk());
            let last = u32::from_be_bytes(*last.unwrap_or(&[0; 4]));
            (last.wrapping_add(u32::from(more & 15))).to_be_bytes()
        };
        if answers {
            let (seq, ack) = (near(4, &numbers, fixed[7]), near(0, &numbers, fixed[11]));
            fixed[4..8].copy_from_slice(&seq);
            fixed[8..12].copy_from_slice(&ack);
        }
        fixed[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    }
    let mut sum = Checksum::new();
    sum.add_u32(pseudo + len);
    sum.add(&segment);
    if let Some(field) = segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
    segment
}

/// Lets `data` arrive as segments at a layer whose port 7 is enabled and that opens a connection
/// from port 53. In front of each segment an octet has its length. If that is odd, the segment gets
/// numbers that fit the last segment sent; if it is 0, no segment arrives, and the next octet says
/// how many hundredths of a second pass. At the end minutes pass and everything is taken down: no
/// message and no timer may be left.
pub(crate) fn stack(data: &[u8]) {
    let (rig, top) = rig();
    let local = Participants::local(Part::port(7));
    assert!(top.enable(&rig.cx, &rig.layer, local).is_ok(), "port 7 is free");
    assert!(top.open(&rig.cx, &rig.layer, pair()).is_ok(), "port 53 is free");
    arrivals(&rig, &Script::new(data));
    rig.bottom.keep(false);
    rig.cx.advance(Duration::from_secs(140));
    let cx = rig.cx.share();
    rig.stop();
    assert_eq!(cx.timers(), 0, "timers are left");
}

fn rig() -> (Rig, Top) {
    let params = integers(&[("sessions_max", 4)]);
    let rig = Rig::new(Lower::host(HOST, 6), 64, &xk_tcp::ENTRY, &params);
    let top = Top::add(&rig.cx, "top");
    top.forget(true);
    top.echo(true);
    rig.start();
    (rig, top)
}

/// Port 53 with port 9.
fn pair() -> Participants {
    let end = |port| Participant::of(Part::host(HOST)).with(Part::port(port));
    Participants::pair(end(53), end(9))
}

/// Goes on with a connection whose state is in `data`: its length in the first two octets, the
/// least significant first, then the state. If the state is valid, the rest arrives as in
/// [`stack`].
pub(crate) fn state(data: &[u8]) {
    let (rig, top) = rig();
    let script = Script::new(data);
    let octets = u16::from_le_bytes([script.octet_or_zero(), script.octet_or_zero()]);
    let brought = bring(&rig.cx, &rig.layer, &pair(), script.take(octets.into()));
    assert!(brought, "there is room");
    if let Ok(session) = top.open(&rig.cx, &rig.layer, pair()) {
        rig.cx.advance(Duration::from_millis(1));
        let _ = session.push(&rig.cx, rig.cx.message(b"from above"));
        arrivals(&rig, &script);
        session.close(&rig.cx);
        rig.bottom.keep(false);
        rig.cx.advance(Duration::from_secs(140));
    }
    rig.stop();
}

/// States for [`state`] to begin with: a connection that opens, and one with octets on their way
/// and out of order.
pub(crate) fn states() -> [(&'static str, Vec<u8>); 2] {
    let given = |arrives: &[Vec<u8>]| {
        let (rig, top) = rig();
        let session: SessionRef = top.open(&rig.cx, &rig.layer, pair()).expect("port 53 is free");
        let framed: Vec<u8> =
            arrives.iter().flat_map(|s| [&[s.len() as u8], &s[..]].concat()).collect();
        arrivals(&rig, &Script::new(&framed));
        let _ = session.push(&rig.cx, rig.cx.message(&[b'x'; 3000]));
        let state = state_of(&rig.cx, &session).expect("it is not over");
        rig.stop();
        [&(state.len() as u16).to_le_bytes()[..], &state].concat()
    };
    let segment = |flags, [seq, ack]: [u8; 2], data: &[u8]| {
        let fixed =
            [[0, 9, 0, 53], [0, 0, 0, seq], [0, 0, 0, ack], [5 << 4, flags, 0x10, 0], [0; 4]];
        [&fixed.concat()[..], data].concat()
    };
    let answers =
        [segment(0x12, [0, 1], b"s"), segment(0x10, [0, 0], b"1"), segment(0x10, [9, 0], b"3")];
    [("opening", given(&[])), ("connected", given(&answers))]
}

/// Lets segments arrive, each behind an octet of its length.
fn arrivals(rig: &Rig, script: &Script) {
    let from = Some(Part::host(HOST));
    let pseudo = rig.below(from).ask(&rig.cx, PseudoHeader::default()).map_or(0, |q| q.sum);
    let mut numbers = [0; 8];
    while let Some(segment) = script.counted() {
        if segment.is_empty() {
            rig.cx.advance(Duration::from_millis(10) * u32::from(script.octet_or_zero()));
            continue;
        }
        if let Some(last) = rig.bottom.take_sent().last() {
            last.message.copy_to(4, &mut numbers);
        }
        let fitting = fit(segment, pseudo, numbers, segment.len() & 1 == 1);
        rig.arrive(from, &fitting);
        if segment.len() & 2 != 0 {
            rig.report(from, &fitting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;

    #[test]
    fn the_codec_takes_anything() {
        let random = Random::new(5);
        for _ in 0..5000 {
            let mut data = vec![0; random.below(90) as usize];
            random.fill(&mut data);
            if let Some(offset) = data.get_mut(12) {
                *offset |= 0x50;
            }
            wire(&data);
        }
    }

    /// Both states go on; changed ones are none, or do no harm.
    #[test]
    fn any_state_goes_on_or_does_not() {
        let random = Random::new(9);
        let [opening, connected] = states();
        assert!(opening.1.len() < connected.1.len(), "of a connection more is known");
        for (_, whole) in [opening, connected] {
            state(&whole);
            for _ in 0..300 {
                let mut changed = whole.clone();
                for _ in 0..1 + random.below(3) {
                    let at = 2 + random.below(whole.len() as u64 - 2) as usize;
                    changed[at] ^= 1 << random.below(8);
                }
                state(&changed);
            }
        }
    }

    #[test]
    fn the_layer_takes_anything() {
        let random = Random::new(3);
        for round in 0..600 {
            let mut data = Vec::new();
            for _ in 0..random.below(12) {
                let mut segment = vec![0; random.below(100) as usize];
                random.fill(&mut segment);
                // Most of them with ports that are taken, and the flags of an ordinary segment.
                if round % 4 != 0 && segment.len() >= 20 {
                    let ports: [u8; 4] = [[0, 9, 0, 7], [0, 9, 0, 53]][(random.below(2)) as usize];
                    segment[..4].copy_from_slice(&ports);
                    segment[12] = 5 << 4;
                    segment[13] = [2, 16, 16, 17, 24, 18][random.below(6) as usize];
                }
                data.push(segment.len() as u8);
                data.extend(segment);
            }
            stack(&data);
        }
    }
}
