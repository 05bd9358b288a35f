use super::*;
use crate::wire::segments::{CWR, FIN_PSH, URG, longest, of};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use xk_core::message::PoolConfig;

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(4 << 20)).unwrap()
}

/// A ones' complement sum taken octet by octet, as RFC 1071, section 4.1, says it: nothing of it is
/// ours.
fn plain_sum(parts: &[&[u8]]) -> u16 {
    let all = parts.concat();
    let words = all.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(pair[0]) << 8 | u32::from(low)
    });
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[derive(Clone, Debug)]
struct Made {
    tagged: bool,
    ip_options: usize,
    tcp_options: usize,
    flags: u8,
    urgent: u16,
    sequence: u32,
    id: u16,
    protocol: u8,
    payload: Vec<u8>,
}

impl Made {
    fn headers(&self) -> (usize, usize, usize) {
        let link = if self.tagged { 18 } else { 14 };
        let packet = link + 20 + 4 * self.ip_options;
        let transport = match self.protocol {
            TCP => 20 + 4 * self.tcp_options,
            _ => 8,
        };
        (link, packet, packet + transport)
    }

    /// The frame; its transport checksum complete, or the sum over the pseudo-header alone.
    fn frame(&self, complete: bool) -> Vec<u8> {
        let (link, packet, payload) = self.headers();
        let mut octets = vec![2; 12];
        if self.tagged {
            octets.extend([0x81, 0, 0, 7]);
        }
        octets.extend([8, 0]);
        let total = (payload - link + self.payload.len()) as u16;
        octets.extend([0x45 + self.ip_options as u8, 0x02]);
        octets.extend(total.to_be_bytes());
        octets.extend(self.id.to_be_bytes());
        octets.extend([0x40, 0, 64, self.protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
        octets.resize(packet, 1);
        let sum = !plain_sum(&[&octets[link..]]);
        octets[link + 10..link + 12].copy_from_slice(&sum.to_be_bytes());
        let segment = (payload - packet + self.payload.len()) as u16;
        octets.extend([0x1f, 0x90, 0, 7]);
        if self.protocol == TCP {
            octets.extend(self.sequence.to_be_bytes());
            octets.extend([9, 9, 9, 9, (5 + self.tcp_options as u8) << 4, self.flags]);
            octets.extend([1, 2, 0, 0]);
            octets.extend(self.urgent.to_be_bytes());
        } else {
            octets.extend(segment.to_be_bytes());
            octets.extend([0, 0]);
        }
        octets.resize(payload, 1);
        octets.extend(&self.payload);
        let pseudo = self.pseudo(segment);
        let sum = match complete {
            true => !plain_sum(&[&pseudo, &octets[packet..]]),
            false => plain_sum(&[&pseudo]),
        };
        let at = packet + sum_at(self.protocol == TCP);
        octets[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        octets
    }

    fn pseudo(&self, segment: u16) -> Vec<u8> {
        let [a, b] = segment.to_be_bytes();
        vec![10, 9, 0, 1, 10, 9, 0, 2, 0, self.protocol, a, b]
    }

    /// Checks packet `at`, at `offset` of the payload.
    fn check(&self, octets: &[u8], (at, offset, size): (usize, usize, usize)) {
        let (link, packet, payload) = self.headers();
        let end = (offset + size).min(self.payload.len());
        let is_last = end == self.payload.len();
        assert_eq!(octets[..link], self.frame(true)[..link]);
        assert_eq!(octets[payload..], self.payload[offset..end]);
        assert_eq!(word(octets, link + 2), Some((octets.len() - link) as u16));
        assert_eq!(word(octets, link + 4), Some(self.id.wrapping_add(at as u16)));
        assert_eq!(plain_sum(&[&octets[link..packet]]), 0xffff, "header's sum");
        let segment = (octets.len() - packet) as u16;
        let pseudo = self.pseudo(segment);
        let sum = plain_sum(&[&pseudo, &octets[packet..]]);
        assert_eq!(sum, 0xffff, "transport's sum");
        if self.protocol == UDP {
            assert_eq!(word(octets, packet + 4), Some(segment));
            return;
        }
        let sequence = u32::from_be_bytes(*octets[packet + 4..].first_chunk().unwrap());
        assert_eq!(sequence, self.sequence.wrapping_add(offset as u32));
        let flags = octets[packet + 13];
        let (mut expected, mut pointer) = (self.flags, usize::from(self.urgent));
        if !is_last {
            expected &= !FIN_PSH;
        }
        if offset > 0 {
            expected &= !CWR;
        }
        if self.flags & URG != 0 {
            pointer = pointer.saturating_sub(offset);
            if pointer == 0 {
                expected &= !URG;
            }
        }
        assert_eq!(flags, expected);
        if flags & URG != 0 {
            assert_eq!(word(octets, packet + 18), Some(pointer as u16));
        }
    }
}

fn made() -> impl Strategy<Value = Made> {
    let numbers = (any::<u8>(), any::<u16>(), any::<u32>(), any::<u16>());
    let shape = (any::<bool>(), 0..6_usize, 0..11_usize, any::<bool>());
    let payload = proptest::collection::vec(any::<u8>(), 1..9000);
    (shape, numbers, payload).prop_map(|(shape, numbers, payload)| Made {
        tagged: shape.0,
        ip_options: shape.1,
        tcp_options: shape.2,
        protocol: if shape.3 { TCP } else { UDP },
        flags: numbers.0,
        urgent: numbers.1,
        sequence: numbers.2,
        id: numbers.3,
        payload,
    })
}

/// The octets as a message of several slices.
fn sliced(pool: &Pool, octets: &[u8], cuts: &[usize]) -> Message {
    let mut message = pool.empty(0).unwrap();
    let mut at = 0;
    for cut in cuts.iter().copied().chain([octets.len()]) {
        let end = cut.clamp(at, octets.len());
        message.join(pool.copy_from(0, &octets[at..end]).unwrap());
        at = end;
    }
    message
}

fn octets_of(message: &Message) -> Vec<u8> {
    message.octets().collect()
}

proptest! {
    #[test]
    fn packets_are_those_that_would_have_been_sent_singly(
        made in made(),
        size in 1..3000_u16,
        complete in any::<bool>(),
        mut cuts in proptest::collection::vec(0..9000_usize, 0..6),
        kept in any::<bool>(),
    ) {
        let pool = pool();
        cuts.sort_unstable();
        let size = size.max((made.payload.len() / 60) as u16);
        let octets = made.frame(complete);
        let mut frame = sliced(&pool, &octets, &cuts);
        prop_assert_eq!(
            mark(&mut frame, size, !complete),
            Some(made.protocol == TCP && !made.tagged)
        );
        let longest = longest(&frame);
        let copy = kept.then(|| frame.try_clone().unwrap());
        let mut offset = 0;
        for (at, piece) in split(frame).unwrap().enumerate() {
            let mut piece = piece.unwrap();
            prop_assert!(of(&piece).is_none());
            let is_open = offload::place(&piece).is_some();
            prop_assert_eq!(is_open, !complete, "its sum is left open as that of the run");
            offload::complete(&pool, &mut piece).unwrap();
            prop_assert!(piece.len() <= longest);
            let payload = piece.len() - made.headers().2;
            prop_assert!(payload <= usize::from(size));
            made.check(&octets_of(&piece), (at, offset, size.into()));
            offset += payload;
        }
        prop_assert_eq!(offset, made.payload.len());
        if let Some(copy) = copy {
            prop_assert!(copy.eq_octets(&octets), "a kept copy is left alone");
        }
    }

}

fn example(protocol: u8, tagged: bool) -> Made {
    Made {
        tagged,
        ip_options: 0,
        tcp_options: 3,
        flags: 0x18,
        urgent: 0,
        sequence: u32::MAX - 1000,
        id: u16::MAX,
        protocol,
        payload: (0..4000_u32).map(|n| n as u8).collect(),
    }
}

#[test]
fn runs_of_tcp_arrive_whole_and_others_apart() {
    let pool = pool();
    let mut arrivals = VecDeque::new();
    let mut arrive = |made: &Made, open: bool| {
        let frame = pool.copy_from(0, &made.frame(!open)).unwrap();
        let arrived = super::arrive(&pool, frame, (1448, open), &mut arrivals);
        arrived.map(|()| arrivals.drain(..).collect::<Vec<_>>())
    };
    let tcp = example(TCP, false);
    let whole = arrive(&tcp, true).unwrap();
    assert_eq!((whole.len(), longest(&whole[0])), (1, 14 + 20 + 32 + 1448));
    assert!(whole[0].eq_octets(&tcp.frame(false)));
    for made in [example(TCP, true), example(UDP, false), example(UDP, true)] {
        let apart = arrive(&made, true).unwrap();
        assert_eq!(apart.len(), 3);
        for (at, piece) in apart.iter().enumerate() {
            assert!(!piece.has_attributes());
            made.check(&octets_of(piece), (at, at * 1448, 1448));
        }
    }
    // Each packet of a damaged run is damaged.
    let mut damaged = example(UDP, false).frame(true);
    *damaged.last_mut().unwrap() ^= 1;
    let frame = pool.copy_from(0, &damaged).unwrap();
    super::arrive(&pool, frame, (1448, false), &mut arrivals).unwrap();
    assert_eq!(arrivals.len(), 3);
    assert!(!arrivals.iter().any(|piece| is_intact(piece, UDP)));
}

#[test]
fn what_is_begun_is_noted() {
    let pool = pool();
    for made in [example(TCP, false), example(UDP, false)] {
        for complete in [true, false] {
            let mut frame = pool.copy_from(0, &made.frame(complete)).unwrap();
            note_begun(&pool, &mut frame).unwrap();
            assert_eq!(frame.has_attributes(), !complete);
            offload::complete(&pool, &mut frame).unwrap();
            assert!(frame.eq_octets(&made.frame(true)));
        }
        let octets = made.frame(false);
        for count in 0..80 {
            let mut cut = pool.copy_from(0, &octets[..count]).unwrap();
            note_begun(&pool, &mut cut).unwrap();
            assert!(!cut.has_attributes());
        }
    }
}

/// Whether the transport checksum of a frame without a tag is right.
fn is_intact(frame: &Message, protocol: u8) -> bool {
    let octets = octets_of(frame);
    let mut sum =
        Checksum::pseudo_header([10, 9, 0, 1], [10, 9, 0, 2], protocol, octets.len() as u32 - 34);
    sum.add(&octets[34..]);
    sum.is_valid()
}

#[test]
fn what_is_longer_than_its_link_is_a_run() {
    let pool = pool();
    let made = example(TCP, false);
    let mut arrivals = VecDeque::new();
    for open in [true, false] {
        let frame = pool.copy_from(0, &made.frame(!open)).unwrap();
        arrive_long(&pool, frame, 1500, &mut arrivals).unwrap();
        let run = arrivals.pop_front().unwrap();
        assert_eq!(longest(&run), 1514);
        assert_eq!(offload::place(&run).is_some(), open);
        assert_eq!(split(run).unwrap().count(), 3);
    }
    let frame = |octets: Vec<u8>| pool.copy_from(0, &octets).unwrap();
    arrive_long(&pool, frame(made.frame(true)), 4060, &mut arrivals).unwrap();
    assert!(of(&arrivals.pop_front().unwrap()).is_none());
    let datagrams = frame(example(UDP, false).frame(true));
    let why = arrive_long(&pool, datagrams, 1500, &mut arrivals).unwrap_err();
    assert_eq!(why.name, reason::TOO_BIG.name);
    // One that was not verified is not made whole by being cut.
    let mut damaged = made.frame(true);
    *damaged.last_mut().unwrap() ^= 1;
    arrive_long(&pool, frame(damaged), 1500, &mut arrivals).unwrap();
    let mut pieces = split(arrivals.pop_front().unwrap()).unwrap().map(Result::unwrap);
    assert!(!pieces.any(|piece| piece.has_attributes() || is_intact(&piece, TCP)));
}

/// A packet of 10.0.0.1 to 10.0.0.2 in a frame, with this checksum, and padding that is no part of
/// it.
fn padded(tagged: bool, protocol: u8, sum: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    frame.extend([8, 0, 0x45, 0, 0, 45, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let mut segment: Vec<u8> = (0..25).collect();
    // A header of TCP says how long it is.
    segment[12] = 0x50;
    segment[sum_at(protocol == TCP)..][..2].copy_from_slice(&sum.to_be_bytes());
    frame.extend(segment);
    frame.extend([0xee; 7]);
    frame
}

fn begun(protocol: u8) -> Checksum {
    Checksum::pseudo_header([10, 0, 0, 1], [10, 0, 0, 2], protocol, 25)
}

#[test]
fn what_is_begun_is_finished() {
    for (protocol, tagged) in [(TCP, false), (UDP, false), (TCP, true), (UDP, true)] {
        let mut open = padded(tagged, protocol, !begun(protocol).finish());
        let at = if tagged { 38 } else { 34 };
        assert_eq!(sum_place(&open), Some((at, sum_at(protocol == TCP))));
        assert!(finish_begun(&mut open));
        let mut sum = begun(protocol);
        sum.add(&open[at..at + 25]);
        assert!(sum.is_valid());
        assert!(open.ends_with(&[0xee; 7]));
        let done = open.clone();
        assert!(!finish_begun(&mut open) && open == done);
    }
}

#[test]
fn nothing_else_is_finished() {
    let sum = !begun(UDP).finish();
    for other in [padded(false, UDP, sum ^ 1), padded(false, UDP, 0)] {
        assert!(!finish_begun(&mut other.clone()));
    }
    let whole = padded(false, UDP, sum);
    let mut others = vec![padded(false, 1, sum)];
    for (at, octet) in [(12, 0x86), (20, 0x20), (21, 1), (14, 0x4f)] {
        others.push(whole.clone());
        others.last_mut().unwrap()[at] = octet;
    }
    others.extend((0..59).map(|octets| whole[..octets].to_vec()));
    for mut other in others {
        let before = other.clone();
        assert_eq!(sum_place(&other), None);
        assert!(!finish_begun(&mut other) && other == before);
    }
}
