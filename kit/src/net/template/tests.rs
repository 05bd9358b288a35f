use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

/// TCP in IPv4 in Ethernet, 10.0.0.1 port 40000 to 10.0.0.2 port 80.
const SEGMENT: [u8; 54] = [
    0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0, // Ethernet
    0x45, 0, 0, 40, 0, 1, 0x40, 0, 0x40, 6, 0x26, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP
];

fn of_segment() -> Template {
    let (eth, rest) = SEGMENT.split_at(14);
    let (ip, tcp) = rest.split_at(20);
    let of_ip = [
        (1, HeaderField::Free(1)),
        (2, HeaderField::Length { from: 0 }),
        (4, HeaderField::Free(2)),
        (6, HeaderField::Bits(0x3f)),
        (8, HeaderField::Free(1)),
        (10, HeaderField::HeaderSum { from: 0, octets: 20 }),
        (16, HeaderField::Peer(4)),
    ];
    let of_tcp = [
        (2, HeaderField::Peer(2)),
        (4, HeaderField::Free(12)),
        (16, HeaderField::Sum { from: 0, pseudo: 0 }),
        (18, HeaderField::Free(2)),
    ];
    let template = Template::wire(1514).header(eth, &[(0, HeaderField::Peer(6))]);
    let template = template.unwrap().padded_to(46).header(ip, &of_ip);
    template.unwrap().header(tcp, &of_tcp).unwrap()
}

/// The segment with `data` octets behind it, padded to `least` octets.
fn segment(data: u8, least: usize) -> Vec<u8> {
    let mut octets = SEGMENT.to_vec();
    octets[17] += data;
    octets.resize((54 + usize::from(data)).max(least), 0);
    octets
}

fn admits(template: &Template, octets: &[u8]) -> bool {
    Check::new(template).admits(&octets[..octets.len().min(OCTETS_MAX)], octets.len())
}

#[test]
fn a_template_is_shown_by_what_is_alike() {
    let text = "0:020000000002020000000001080045 20:3fff=0000 23:06 26:0a0000010a0000029c400050";
    assert_eq!(of_segment().to_string(), text);
    let any = "6:020000000001080045 20:3fff=0000 23:06 26:0a000001 34:9c40";
    assert_eq!(of_segment().for_any_peer().to_string(), any);
}

#[test]
fn what_is_alike_is_held_to() {
    let template = of_segment();
    for data in [0, 1, 6, 7, 100] {
        assert!(admits(&template, &segment(data, 60)), "{data} octets");
    }
    let any = template.clone().for_any_peer();
    let change = |at: usize, octet: u8| {
        let mut octets = segment(20, 60);
        octets[at] = octet;
        (admits(&template, &octets), admits(&any, &octets))
    };
    // Source port, source host, header length, offset, more fragments, reserved flag, protocol.
    let forged = [(35, 0x41), (29, 3), (14, 0x46), (21, 1), (20, 0x20), (23, 17), (6, 4), (12, 9)];
    for (at, octet) in forged {
        assert_eq!(change(at, octet), (false, false), "octet {at}");
    }
    // The peer's station, host and port.
    for at in [5, 33, 37] {
        assert_eq!(change(at, 99), (false, true), "octet {at}");
    }
    for at in [15, 18, 22, 24, 38, 47, 51] {
        assert_eq!(change(at, 99), (true, true), "octet {at}");
    }
}

#[test]
fn lengths_are_those_of_the_message() {
    let template = of_segment();
    let mut longer = segment(20, 60);
    longer.push(0);
    assert!(!admits(&template, &longer), "more than the header counts");
    assert!(!admits(&template, &longer[..73]), "less than the header counts");
    let mut within = segment(0, 60);
    within[17] = 39;
    assert!(!admits(&template, &within), "less than the headers");
    assert!(!admits(&template.clone().carrying(19), &segment(20, 60)), "too long");
    // A second length within the first ends where that one does.
    let datagram = |outer: u8, inner: u8| {
        let fields = [(0, HeaderField::Length { from: 0 })];
        let template = Template::wire(100).header(&[0; 2], &fields).unwrap();
        let template = template.header(&[0; 2], &fields).unwrap().padded_to(100);
        admits(&template, &[0, outer, 0, inner, 1, 2, 3, 4])
    };
    assert!(datagram(8, 6) && datagram(7, 5) && datagram(4, 2));
    assert!(!datagram(8, 5) && !datagram(7, 6) && !datagram(3, 1) && !datagram(9, 7));
}

#[test]
fn what_is_cut_is_refused() {
    let template = of_segment();
    let whole = segment(0, 54);
    for end in 0..54 {
        assert!(!admits(&template, &whole[..end]), "{end} octets");
    }
    assert!(admits(&template, &whole));
}

#[test]
fn more_than_it_holds_is_no_template() {
    let full = Template::wire(1500).header(&[0; OCTETS_MAX], &[]).unwrap();
    assert!(full.clone().header(&[0], &[]).is_none());
    assert!(full.header(&[], &[]).is_some());
    let outside = [
        (0, HeaderField::Free(3)),
        (1, HeaderField::Length { from: 0 }),
        (0, HeaderField::HeaderSum { from: 1, octets: 2 }),
        (0, HeaderField::Sum { from: 3, pseudo: 0 }),
        (255, HeaderField::Peer(255)),
    ];
    for field in outside {
        assert!(Template::wire(1500).header(&[0; 2], &[field]).is_none(), "{field:?}");
    }
}

proptest! {
    /// Against a comparison octet by octet.
    #[test]
    fn words_compare_as_octets_do(
        header in prop::collection::vec(any::<u8>(), 0..70),
        free in prop::collection::vec((0..70_u8, 0..6_u8), 0..6),
        bits in (0..70_u8, any::<u8>()),
        flips in prop::collection::vec((0..90_usize, 0..8_u8), 0..3),
        payload in 0..20_usize,
    ) {
        let mut template = Template::wire(2000).header(&header, &[]).unwrap();
        let fields = free.iter().map(|(at, octets)| (*at, HeaderField::Free(*octets)));
        for field in fields.chain([(bits.0, HeaderField::Bits(bits.1))]) {
            let mut more = template.clone();
            more.fields.push(field);
            if more.is_sound() {
                template = more;
            }
        }
        let mut message = header.clone();
        message.resize(header.len() + payload, 0x5a);
        for (at, bit) in flips {
            if let Some(octet) = message.get_mut(at) {
                *octet ^= 1 << bit;
            }
        }
        let mask = template.mask();
        let expected = message.iter().zip(&header).zip(mask).all(|((a, b), mask)| (a ^ b) & mask == 0);
        prop_assert_eq!(admits(&template, &message), expected);
        prop_assert!(message.is_empty() || !admits(&template, &message[..header.len().saturating_sub(1)]) || header.is_empty());
    }
}
