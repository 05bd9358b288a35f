//! FRAGMENT: the codec, and the layer between two others.

use crate::harness::{Rig, Script, integers, number};
use core::time::Duration;
use xk_core::{Part, Participants};
use xk_fragment::FragmentFigures;
use xk_fragment::wire::{HEADER_OCTETS, Header, Kind};
use xk_testkit::kernel::{Lower, Top};

/// Parses `data` as a packet, writes its header again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some((octets, payload)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    let Ok(header) = Header::parse(octets, payload.len()) else {
        return;
    };
    let mut expected = *octets;
    // The second octet means nothing.
    expected[1] = 0;
    assert_eq!(header.emit(), expected, "the header changed");
    assert!(usize::from(header.len) <= payload.len(), "the payload grew");
    assert!(
        header.kind == Kind::Nack || header.index() < usize::from(header.count),
        "the fragment is one of the message's"
    );
}

/// Largest number of messages collected, and of those kept.
const BOUND: i64 = 5;
/// Octets of the longest packet: few, so that what came in one packet is echoed in several.
const PACKET_OCTETS: u32 = 100;

/// Lets `data` arrive as packets, each behind an octet of its length, at an echo; a length of 0
/// lets as many hundredths of a second pass as the octet behind it says. No bound is passed.
pub(crate) fn stack(data: &[u8]) {
    let params = integers(&[
        ("sessions_max", 4),
        ("outstanding_max", BOUND),
        ("partial_max", BOUND),
        ("partial_per_peer", BOUND - 1),
    ]);
    let rig = Rig::new(Lower::link(PACKET_OCTETS), 64, &xk_fragment::ENTRY, &params);
    number(&rig.cx, "top", "fragment", 7);
    let top = Top::add(&rig.cx, "top");
    top.forget(true);
    top.echo(true);
    rig.start();
    let any = Participants::local(Part::Any);
    assert!(top.enable(&rig.cx, &rig.layer, any).is_ok(), "the number is free");
    let script = Script::new(data);
    while let Some(packet) = script.counted() {
        if packet.is_empty() {
            rig.cx.advance(Duration::from_millis(10) * u32::from(script.octet_or_zero()));
            continue;
        }
        rig.arrive(None, packet);
        let figures = rig.layer.ask(&rig.cx, FragmentFigures::default()).unwrap_or_default();
        assert!(figures.partial < BOUND as u64, "it collects within its bound");
        assert!(figures.outstanding <= BOUND as u64, "it keeps within its bound");
    }
    rig.stop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;

    fn packet(kind: Kind, sequence: u32, count: u8, mask: u16) -> Vec<u8> {
        let len = if kind == Kind::Nack { 0 } else { 200 };
        let header =
            Header { kind, client: [0; 4], server: [0; 4], number: 7, sequence, count, mask, len };
        let mut packet = Vec::from([HEADER_OCTETS as u8 + len as u8]);
        packet.extend(header.emit());
        packet.resize(packet.len() + usize::from(len), 0x5a);
        packet
    }

    #[test]
    fn damaged_conversations_do_no_harm() {
        let mut script = Vec::new();
        for sequence in 0..12 {
            for index in 0..3 {
                if (sequence + index) % 4 != 0 {
                    script.extend(packet(Kind::Send, sequence, 3, 1 << index));
                }
            }
            script.extend([0, (sequence % 7) as u8]);
            script.extend(packet(Kind::Retransmit, sequence, 3, 4));
            script.extend(packet(Kind::Nack, sequence, 3, 3));
            script.extend(packet(Kind::Send, 100 + sequence, 1, 1));
        }
        stack(&script);
        let random = Random::new(1);
        for _ in 0..300 {
            let mut damaged = script.clone();
            for _ in 0..=random.below(20) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.next_u64() as u8;
            }
            stack(&damaged);
            wire(&damaged[1..]);
        }
    }
}
