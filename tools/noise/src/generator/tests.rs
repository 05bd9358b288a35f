use super::*;
use std::collections::BTreeSet;

fn target() -> Target {
    Target {
        ether: EthAddr([2, 0, 0, 0, 0, 1]),
        host: Ipv4Addr::new(10, 0, 0, 1),
        node: Node::default(),
        port: 7,
        sources: "10.0.0.0/8".parse().unwrap(),
    }
}

#[test]
fn one_seed_is_one_sequence() {
    let frames = |kind, seed| {
        let mut generator = Generator::new(target(), kind, seed);
        let mut frame = [0; FRAME_OCTETS_MAX];
        let mut all = std::vec::Vec::new();
        for _ in 0..500 {
            let len = generator.next(&mut frame);
            all.push(frame[..len].to_vec());
        }
        all
    };
    for word in Kind::WORDS {
        let kind = Kind::from_word(word).unwrap();
        let (one, other) = (frames(kind, 1), frames(kind, 2));
        assert_eq!(one, frames(kind, 1), "{word}");
        assert_ne!(one, other, "{word}");
        let different: BTreeSet<_> = one.iter().collect();
        assert!(different.len() > 400, "{word}");
    }
    assert!(Kind::from_word("silence").is_none());
}

#[test]
fn pings_and_sessions_are_right() {
    for (kind, protocol) in [(Kind::Pings, 1), (Kind::Sessions, 17), (Kind::Syns, 6)] {
        let mut generator = Generator::new(target(), kind, 3);
        let mut frame = [0; FRAME_OCTETS_MAX];
        let mut sources = BTreeSet::new();
        for _ in 0..1000 {
            let len = generator.next(&mut frame);
            let packet = &frame[14..len];
            let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert_eq!((packet[9], length), (protocol, packet.len()));
            assert_eq!(xk_kit::net::checksum::checksum(&packet[..20]), 0);
            let mut sum = xk_kit::Checksum::new();
            if protocol != 1 {
                sum.add(&packet[12..20]);
                sum.add_u16(u16::from(protocol));
                sum.add_u16((packet.len() - 20) as u16);
            }
            sum.add(&packet[20..]);
            assert!(sum.is_valid());
            assert!(packet[12] == 10 && packet[12..16] != [10, 0, 0, 1]);
            sources.insert(packet[12..16].to_vec());
        }
        assert!(sources.len() > 990);
    }
}
