use super::*;
use crate::wire::frames;
use alloc::vec;
use proptest::prelude::*;
use xk_core::message::PoolConfig;

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(4 << 20)).unwrap()
}

/// A layer's header of twelve octets: a length that counts what is behind it, at 6, a number at 2,
/// no checksum.
const STRANGE: NetworkHeader = NetworkHeader {
    octets: 12,
    length: Some(Length { at: 6, with_header: false }),
    number: Some(2),
    sum: None,
};

/// A run of TCP's behind such a header, its checksum open or complete; the network layer has said
/// this.
fn strange(
    pool: &Pool,
    payload: &[u8],
    (size, open): (u16, bool),
    network: NetworkHeader,
) -> Message {
    let mut segment = vec![0x1f, 0x90, 0, 7, 0, 0, 1, 0, 9, 9, 9, 9, 0x50, 0x19, 1, 2, 0, 0, 0, 0];
    segment.extend(payload);
    let mut sum = pseudo(segment.len());
    if !open {
        sum.add(&segment);
    }
    let sum = if open { !sum.finish() } else { sum.finish() };
    segment[TCP_SUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    let mut message = pool.copy_from(64, &segment).unwrap();
    let octets = segment.len() as u32;
    let run = Segments { segment: octets, header: 20, size, ..Segments::default() };
    message.set_attribute(run).unwrap();
    if open {
        let partial = TransportChecksum::Partial { segment: octets, field: TCP_SUM_AT as u16 };
        message.set_attribute(partial).unwrap();
    }
    note_network(&mut message, network);
    let header = message.push_header(12).unwrap();
    header.copy_from_slice(&[7, 7, 0xff, 0xff, 7, 7, 0, 0, 7, 7, 7, 7]);
    header[6..8].copy_from_slice(&(octets as u16).to_be_bytes());
    message
}

/// The sum over the pseudo-header of two hosts of no known family.
fn pseudo(segment: usize) -> Checksum {
    let mut sum = Checksum::new();
    sum.add(&[0xab; 32]);
    sum.add_u16(6);
    sum.add_u32(segment as u32);
    sum
}

#[test]
fn a_run_is_cut_whatever_the_network_layer() {
    let pool = pool();
    let payload: Vec<u8> = (0..2500_u32).map(|n| n as u8).collect();
    for (front, open) in [(0, true), (0, false), (14, true), (23, false)] {
        let untold = strange(&pool, &payload, (1000, open), NetworkHeader::default());
        assert!(split(untold).is_err(), "no layer has said what is in front");
        let mut run = strange(&pool, &payload, (1000, open), STRANGE);
        run.push_header(front).unwrap().fill(0xee);
        assert!(!frames::is_for_devices(&run), "a device would not know it");
        let mut got: Vec<u8> = Vec::new();
        for (at, piece) in split(run).unwrap().enumerate() {
            let mut piece = piece.unwrap();
            assert_eq!(offload::place(&piece).is_some(), open);
            offload::complete(&pool, &mut piece).unwrap();
            let octets: Vec<u8> = piece.octets().collect();
            let (header, segment) = octets[front..].split_at(12);
            assert_eq!(octets[..front], vec![0xee; front]);
            assert_eq!(word(header, 2), Some(0xffff_u16.wrapping_add(at as u16)));
            assert_eq!(word(header, 6), Some(segment.len() as u16));
            assert_eq!(segment[SEQUENCE_AT..8], (256 + 1000 * at as u32).to_be_bytes());
            assert_eq!(segment[FLAGS_AT], if at == 2 { 0x19 } else { 0x10 });
            let mut sum = pseudo(segment.len());
            sum.add(segment);
            assert!(sum.is_valid(), "packet {at}, {front} octets in front, open: {open}");
            got.extend(&segment[20..]);
        }
        assert_eq!(got, payload);
    }
}

#[test]
fn a_run_above_the_network_layer_is_its_transports_alone() {
    let pool = pool();
    let mut run = strange(&pool, &[5; 300], (100, true), NetworkHeader::default());
    assert!(run.strip(12));
    assert_eq!(split(run.try_clone().unwrap()).unwrap().count(), 3);
    run.push_header(1).unwrap().fill(0);
    note_network(&mut run, STRANGE);
    run.push_header(12).unwrap().fill(7);
    assert!(split(run).is_err(), "something lies between");
}

#[test]
fn what_a_network_layer_says_is_kept() {
    for network in [STRANGE, NetworkHeader::ipv4(60), NetworkHeader::default()] {
        let run = Segments { segment: 5000, header: 32, size: 1400, network };
        assert_eq!(Segments::decode(run.encode()), run);
    }
    let outside = NetworkHeader { number: Some(11), ..STRANGE };
    assert!(STRANGE.is_sound() && NetworkHeader::default().is_sound() && !outside.is_sound());
}

#[test]
fn a_programs_network_header_is_its_own_octets() {
    let pool = pool();
    let run = strange(&pool, &[5; 300], (100, true), STRANGE);
    let told = of(&run).unwrap();
    assert!(told.fits(&run, Sender::Program));
    let network = NetworkHeader { octets: 13, ..STRANGE };
    assert!(!Segments { network, ..told }.fits(&run, Sender::Program));
}

proptest! {
    #[test]
    fn no_run_is_a_danger(
        octets in proptest::collection::vec(any::<u8>(), 0..200),
        segment in any::<u32>(),
        header in any::<u16>(),
        size in any::<u16>(),
        network in any::<[u8; 5]>(),
    ) {
        let pool = pool();
        let mut message = pool.copy_from(0, &octets).unwrap();
        let run = Segments { segment, header, size, network: NetworkHeader::decode(network) };
        message.set_attribute(run).unwrap();
        prop_assert_eq!(of(&message), Some(run));
        prop_assert!(longest(&message) <= octets.len());
        if let Ok(pieces) = split(message) {
            prop_assert!(pieces.count() <= octets.len());
        }
    }

    #[test]
    fn room_is_filled_at_least_half(octets in 0..70_000_usize, headroom in 0..200_usize) {
        let pool = pool();
        let mut pieces = Vec::new();
        room(&pool, headroom, octets, &mut pieces).unwrap();
        prop_assert!(pieces[0].headroom() >= headroom);
        prop_assert!(pieces.len() <= 9);
        for piece in pieces.iter().filter(|piece| piece.len() > SMALL_OCTETS) {
            prop_assert!(piece.len() >= PIECE_OCTETS / 2);
        }
        prop_assert_eq!(join(&mut pieces).unwrap().len(), octets);
    }
}

#[test]
fn a_message_in_too_large_a_buffer_moves() {
    let pool = pool();
    let message = |octets: usize| {
        let mut message = pool.alloc(0, PIECE_OCTETS).unwrap();
        message.front_mut().unwrap().fill(7);
        message.truncate(octets);
        message
    };
    for octets in [1, 2048, 8191, 8192, 16_384] {
        let compact = compact(&pool, message(octets), PIECE_OCTETS);
        assert!(compact.eq_octets(&vec![7; octets]));
        let slices = compact.slices().count();
        assert_eq!(slices > 1, (2049..8192).contains(&octets));
    }
}
