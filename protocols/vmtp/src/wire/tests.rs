use super::*;
use alloc::vec::Vec;
use xk_core::message::{Pool, PoolConfig};

/// Octets of words in hexadecimal.
fn octets(words: &str) -> Vec<u8> {
    let word = |word| u32::from_str_radix(word, 16).expect("a word").to_be_bytes();
    words.split_whitespace().flat_map(word).collect()
}

/// Request, transaction 1, code 0x64, user data "abcdefghijkl".
const REQUEST: &str = "00000001 0a000001 00010000 00000000 00000001 00000000 00000001 0a000002 \
    00000064 00000000 00000000 61626364 65666768 696a6b6c 00000000 00000000 140766d0";
/// The response: OK, user data "A" to "T".
const ANSWER: &str = "00000001 0a000001 00010000 00000001 00000001 00000000 00000001 0a000002 \
    00000000 41424344 45464748 494a4b4c 4d4e4f50 51525354 00000000 00000000 1408e6f0";
/// The request again: APG, RetransmitCount 1.
const AGAIN: &str = "00000001 0a000001 00010000 40100000 00000001 00000000 00000001 0a000002 \
    00000064 00000000 00000000 61626364 65666768 696a6b6c 00000000 00000000 541766d0";
/// Request with a segment of 16 octets.
const SEGMENT: &str = "00000001 0a000001 00010004 00000000 00000002 00000001 00000001 0a000002 \
    10000065 00000000 00000000 00000000 00000000 00000000 00000000 00000010 00010203 04050607 \
    00010203 04050607 2c2d1075";

fn client() -> Entity {
    Entity::new(1, 0x0a00_0001)
}

fn request() -> Header {
    Header {
        client: client(),
        domain: 1 << 16,
        transaction: 1,
        server: Entity::new(1, 0x0a00_0002),
        code: 0x64,
        user: [0, 0, 0x6162_6364, 0x6566_6768, 0x696a_6b6c, 0, 0],
        ..Header::default()
    }
}

fn with_checksum(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut packet = header.emit().to_vec();
    let mut sums = Sums::of(packet.first_chunk().unwrap());
    sums.add(data);
    packet.extend_from_slice(data);
    packet.extend_from_slice(&sums.finish());
    packet
}

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap()
}

/// The header of a packet, or why `demux` drops it.
fn verdict(packet: &[u8]) -> Result<Header, Error> {
    let message = pool().copy_from(0, packet).unwrap();
    let header = packet.first_chunk().ok_or(Error::Length)?;
    Header::read(header, &message)
}

#[test]
fn the_vectors_are_written_and_read() {
    let answer = Header {
        control: RESPONSE,
        code: code::OK,
        user: [0x4142_4344, 0x4546_4748, 0x494a_4b4c, 0x4d4e_4f50, 0x5152_5354, 0, 0],
        ..request()
    };
    let again = Header { control: APG, ..request() }.with_round(1);
    let segment =
        Header { transaction: 2, code: SDA | 0x65, user: [0, 0, 0, 0, 0, 0, 16], ..request() };
    let data: Vec<u8> = (0..8).chain(0..8).collect();
    let segment = segment.with_data(1, 16);
    for (vector, header, data) in [
        (REQUEST, request(), &[][..]),
        (ANSWER, answer, &[]),
        (AGAIN, again, &[]),
        (SEGMENT, segment, &data),
    ] {
        assert_eq!(with_checksum(&header, data), octets(vector));
        assert_eq!(verdict(&octets(vector)), Ok(header));
    }
    assert_eq!(answer.user_octets(), *b"ABCDEFGHIJKLMNOPQRST");
    assert_eq!((segment.segment_octets(), segment.data_octets()), (16, 16));
    assert_eq!((again.round(), again.wants_answer(), again.forwards()), (1, true, 0));
}

#[test]
fn a_packet_cut_at_any_length_or_with_a_wrong_bit_is_none() {
    let packet = octets(SEGMENT);
    for len in 0..packet.len() {
        assert_eq!(verdict(&packet[..len]), Err(Error::Length), "{len} octets");
    }
    let mut longer = packet.clone();
    longer.push(0);
    assert_eq!(verdict(&longer), Err(Error::Length));
    for bit in 0..8 * packet.len() {
        let mut wrong = packet.clone();
        wrong[bit / 8] ^= 0x80 >> (bit % 8);
        assert!(verdict(&wrong).is_err(), "bit {bit}");
    }
}

#[test]
fn fields_that_none_may_have_are_refused() {
    let fix = |change: &dyn Fn(&mut Header)| {
        let mut header = request();
        change(&mut header);
        let data = [0; 64];
        verdict(&with_checksum(&header, &data[..header.data_octets().min(64)]))
    };
    assert_eq!(fix(&|h| h.domain |= 1 << 29), Err(Error::Version));
    assert_eq!(fix(&|h| h.domain |= 3), Err(Error::Length));
    assert_eq!(fix(&|h| h.domain |= 4098), Err(Error::Length));
    assert_eq!(fix(&|h| h.code |= 0x0800_0000), Err(Error::Reserved));
    let too_long = |h: &mut Header| {
        h.code |= SDA;
        h.user[6] = 1 + (4 << 20);
    };
    assert_eq!(fix(&too_long), Err(Error::Delivery));
}

#[test]
fn no_checksum_and_that_of_the_header_alone_will_do() {
    let mut packet = octets(SEGMENT);
    packet.splice(80.., [0; 4]);
    assert!(verdict(&packet).is_ok());
    let header =
        Header { domain: 1 << 16 | HCO, code: SDA, user: [0, 0, 0, 0, 0, 0, 8], ..request() };
    let header = header.with_data(1, 8);
    let mut packet = header.emit().to_vec();
    let sum = Sums::of(packet.first_chunk().unwrap()).finish();
    packet.extend_from_slice(b"whatever");
    packet.extend_from_slice(&sum);
    assert_eq!(verdict(&packet), Ok(header));
    packet[8] ^= 1;
    assert_eq!(verdict(&packet), Err(Error::Checksum));
}

#[test]
fn sums_do_not_depend_on_how_a_message_is_cut() {
    let data: Vec<u8> = (0..200u8).map(|at| at.wrapping_mul(37)).collect();
    let header = request().emit();
    let mut whole = Sums::of(&header);
    whole.add(&data);
    for cut in 1..data.len() {
        let mut message = pool().copy_from(0, &data[..cut]).unwrap();
        message.join(pool().copy_from(0, &data[cut..]).unwrap());
        let mut sums = Sums::of(&header);
        sums.add_message(&message, 0, 50);
        sums.add_message(&message, 50, 150);
        assert_eq!(sums.finish(), whole.finish(), "cut at {cut}");
    }
    // A sum of zero goes as all ones.
    assert_eq!(Sums::of(&[0; HEADER_OCTETS]).finish(), [0xff; 4]);
}

#[test]
fn entities_have_flags_a_discriminator_and_a_host() {
    let entity = Entity::new(0xffff_ffff, 0x0a00_0001);
    assert_eq!(entity, Entity(0x0fff_ffff_0a00_0001));
    assert!(!entity.is_group() && entity.group().is_group());
    assert_eq!(entity.group().discriminator(), Entity::DISCRIMINATOR_MAX);
    assert_eq!(Entity::new(1, 0xe000_0100).group(), Entity::MANAGERS);
    assert_eq!(Entity::MANAGERS.host(), 0xe000_0100);
}

#[test]
fn blocks_and_their_octets() {
    assert_eq!(
        [0, 1, 512, 513, 16_383, 16_384, 20_000].map(blocks_of),
        [0, 1, 1, 3, u32::MAX, u32::MAX, u32::MAX]
    );
    assert_eq!(octets_in(0, 1000), 0);
    assert_eq!(octets_in(1, 1000), 512);
    assert_eq!(octets_in(2, 1000), 488);
    assert_eq!(octets_in(3, 1000), 1000);
    assert_eq!(octets_in(3, 1024), 1024);
    assert_eq!(octets_in(u32::MAX, 16_384), 16_384);
}
