//! The writer's octets, by themselves and as another reader sees them.

use super::*;
use pcap_parser::pcapng::{Block, parse_block_le};
use proptest::prelude::*;

/// Every block of a file, as `pcap-parser` reads it; panics when anything is left over.
fn blocks(mut octets: &[u8]) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    while !octets.is_empty() {
        let (rest, block) = parse_block_le(octets).expect("a block");
        found.push(block);
        octets = rest;
    }
    found
}

fn option<'a>(options: &'a [pcap_parser::pcapng::PcapNGOption<'_>], code: u16) -> Option<&'a [u8]> {
    options
        .iter()
        .find(|option| option.code.0 == code)
        .map(|option| &option.value[..usize::from(option.len)])
}

#[test]
fn a_section_header_is_the_same_everywhere() {
    let octets = Writer::new(Vec::new(), "xk").unwrap().into_inner();
    let expected = [
        0x0a, 0x0d, 0x0d, 0x0a, 40, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0,
        0, // type, length, magic, version
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // section length not known
        4, 0, 2, 0, b'x', b'k', 0, 0, 0, 0, 0, 0, 40, 0, 0,
        0, // shb_userappl, end of options, length
    ];
    assert_eq!(octets, expected);
}

#[test]
fn another_reader_finds_everything() {
    let mut writer = Writer::new(Vec::new(), "xk").unwrap();
    let eth = Interface::new("client/eth", LinkType::ETHERNET);
    let eth = Interface { description: "a simulated wire", ..eth };
    let eth = writer.add_interface(&eth).unwrap();
    let ip = Interface { snap_octets: 20, ..Interface::new("client/ip", LinkType::IPV4) };
    let ip = writer.add_interface(&ip).unwrap();
    let time_ns = 0x0123_4567_89ab_cdef;
    let frame = Frame::new(time_ns, &[&[1, 2, 3], &[], &[4, 5]]);
    let (direction, comment) = (Direction::Inbound, "eth > ip");
    writer.write(eth, &Frame { direction, comment, ..frame }).unwrap();
    let direction = Direction::Outbound;
    writer.write(ip, &Frame { direction, ..Frame::new(5, &[&[7; 30]]) }).unwrap();
    writer.write(ip, &Frame { wire_octets: 1500, ..Frame::new(6, &[&[8; 4]]) }).unwrap();
    let octets = writer.into_inner();
    let found = blocks(&octets);

    let Block::InterfaceDescription(idb) = &found[1] else { panic!("{found:?}") };
    assert_eq!((idb.linktype.0, idb.snaplen, idb.if_tsresol), (1, 0, 9));
    assert_eq!(option(&idb.options, 2), Some(b"client/eth".as_slice()));
    assert_eq!(option(&idb.options, 3), Some(b"a simulated wire".as_slice()));
    let Block::InterfaceDescription(idb) = &found[2] else { panic!("{found:?}") };
    assert_eq!((idb.linktype.0, idb.snaplen, idb.if_tsresol), (228, 20, 9));

    let Block::EnhancedPacket(epb) = &found[3] else { panic!("{found:?}") };
    assert_eq!((u64::from(epb.ts_high) << 32) | u64::from(epb.ts_low), time_ns);
    assert_eq!((epb.if_id, epb.caplen, epb.origlen), (0, 5, 5));
    assert_eq!(epb.data.get(..5), Some([1, 2, 3, 4, 5].as_slice()));
    assert_eq!(option(&epb.options, 1), Some(b"eth > ip".as_slice()));
    assert_eq!(option(&epb.options, 2), Some(1u32.to_le_bytes().as_slice()));
    let Block::EnhancedPacket(epb) = &found[4] else { panic!("{found:?}") };
    assert_eq!((epb.if_id, epb.caplen, epb.origlen), (1, 20, 30));
    assert_eq!(option(&epb.options, 2), Some(2u32.to_le_bytes().as_slice()));
    let Block::EnhancedPacket(epb) = &found[5] else { panic!("{found:?}") };
    assert_eq!((epb.caplen, epb.origlen), (4, 1500));
    assert!(epb.options.is_empty());
    assert_eq!(found.len(), 6);
}

#[test]
fn what_does_not_fit_is_refused_or_cut() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    let frame = Frame::new(0, &[&[0; 4]]);
    assert_eq!(
        writer.write(InterfaceId(0), &frame).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    // The limit of 65535 octets falls inside a character of two.
    let long = "ä".repeat(40_000);
    let id = writer.add_interface(&Interface::new(&long, LinkType::USER0)).unwrap();
    let huge = vec![0; BLOCK_OCTETS_MAX];
    let before = writer.get_ref().len();
    assert_eq!(
        writer.write(id, &Frame::new(0, &[&huge])).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(writer.get_ref().len(), before);
    let octets = writer.into_inner();
    let found = blocks(&octets);
    let Block::InterfaceDescription(idb) = &found[1] else { panic!("{found:?}") };
    assert_eq!(option(&idb.options, 2).unwrap().len(), 65_534);
}

/// An interface and frames of every length up to a word and one beyond, octet by octet.
#[test]
fn interfaces_and_frames_are_these_octets() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    let before = writer.get_ref().len();
    let lan = Interface { snap_octets: 4, ..Interface::new("lan", LinkType::ETHERNET) };
    let lan = writer.add_interface(&lan).unwrap();
    let frame: [u8; 5] = [0xa1, 0xa2, 0xa3, 0xa4, 0xa5];
    for octets in 0..=frame.len() {
        let time_ns = 0x0102_0304_0506_0708;
        writer.write(lan, &Frame::new(time_ns, &[&frame[..octets]])).unwrap();
    }
    let octets = writer.into_inner();
    let interface = [
        [1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0], // type, length, link type, limit
        [2, 0, 3, 0, b'l', b'a', b'n', 0, 9, 0, 1, 0, 9, 0, 0, 0], // if_name, if_tsresol
    ];
    let interface = [interface.as_flattened(), &[0, 0, 0, 0, 40, 0, 0, 0]].concat();
    let mut expected = interface;
    for (given, (kept, words)) in (0_u8..).zip([(0, 8), (1, 9), (2, 9), (3, 9), (4, 9), (4, 9)]) {
        let length = [4 * words, 0, 0, 0];
        // Type, length, interface, time, kept and given octets.
        expected.extend([[6, 0, 0, 0], length, [0; 4], [4, 3, 2, 1], [8, 7, 6, 5]].as_flattened());
        expected.extend([[kept, 0, 0, 0], [given, 0, 0, 0]].as_flattened());
        let padded = [&frame[..usize::from(kept)], &[0; 3]].concat();
        expected.extend(&padded[..usize::from(kept).next_multiple_of(4)]);
        expected.extend(length);
    }
    assert_eq!(octets[before..], expected);
}

/// A file that ends anywhere, as one does whose writer was killed, has all blocks before that.
#[test]
fn a_file_cut_anywhere_has_the_blocks_before() {
    let mut writer = Writer::new(Vec::new(), "xk").unwrap();
    let mut ends = vec![writer.get_ref().len()];
    let id = writer.add_interface(&Interface::new("eth", LinkType::ETHERNET)).unwrap();
    ends.push(writer.get_ref().len());
    for octets in [0, 1, 60] {
        let frame: &[u8] = &[7; 60][..octets];
        writer.write(id, &Frame { comment: "eth > tap", ..Frame::new(1, &[frame]) }).unwrap();
        ends.push(writer.get_ref().len());
    }
    let octets = writer.into_inner();
    for end in 0..=octets.len() {
        let (mut rest, mut whole) = (&octets[..end], 0);
        while let Ok((behind, _)) = parse_block_le(rest) {
            (rest, whole) = (behind, whole + 1);
        }
        assert_eq!(whole, ends.iter().filter(|at| **at <= end).count(), "{end} octets");
    }
}

/// An output that takes a few octets at a time and is interrupted in between.
struct Slow(Vec<u8>, bool);

impl Write for Slow {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.0.extend(octets.iter().take(3));
        Ok(octets.len().min(3))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_output_gets_the_same_octets() {
    fn fill<W: Write>(out: W) -> W {
        let mut writer = Writer::new(out, "xk").unwrap();
        let id = writer.add_interface(&Interface::new("eth", LinkType::ETHERNET)).unwrap();
        writer.write(id, &Frame { comment: "remark", ..Frame::new(1, &[&[1; 61]]) }).unwrap();
        writer.flush().unwrap();
        writer.into_inner()
    }
    assert_eq!(fill(Slow(Vec::new(), false)).0, fill(Vec::new()));
}

proptest! {
    #[test]
    fn any_frame_is_read_back(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        time_ns: u64,
        comment in ".{0,20}",
        snap_octets in 0u32..50,
    ) {
        let mut writer = Writer::new(Vec::new(), "xk").unwrap();
        let interface = Interface { snap_octets, ..Interface::new("i", LinkType::USER0) };
        let id = writer.add_interface(&interface).unwrap();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        writer.write(id, &Frame { comment: &comment, ..Frame::new(time_ns, &slices) }).unwrap();
        let octets = writer.into_inner();
        let found = blocks(&octets);
        prop_assert_eq!(found.len(), 3);
        let Block::EnhancedPacket(epb) = &found[2] else { panic!("{found:?}") };
        let whole = parts.concat();
        let kept = if snap_octets == 0 { whole.len() } else { whole.len().min(snap_octets as usize) };
        prop_assert_eq!(epb.caplen as usize, kept);
        prop_assert_eq!(epb.origlen as usize, whole.len());
        prop_assert_eq!(&epb.data[..kept], &whole[..kept]);
        prop_assert_eq!(option(&epb.options, 1).unwrap_or_default(), comment.as_bytes());
    }
}
