use super::*;
use crate::wire::HEADER_LEN;
use proptest::prelude::*;
use std::vec::Vec as StdVec;
use xk_core::Pool;
use xk_core::message::PoolConfig;

fn limits() -> Limits {
    Limits {
        octets_max: 1 << 20,
        source_octets_max: 1 << 18,
        datagrams_max: 1024,
        fragments_max: 128,
        timeout: Duration::from_secs(60),
    }
}

const KEY: Key = (1, 2, 17, 9, false);

fn pool() -> Pool {
    Pool::new(&PoolConfig::with_octets_max(16 << 20)).unwrap()
}

fn payload(len: usize) -> StdVec<u8> {
    (0..len).map(|n| (n * 31 + n / 255) as u8).collect()
}

/// A fragment of `whole`, header stripped.
fn piece(pool: &Pool, whole: &[u8], start: usize, end: usize) -> (Header, Front, Message) {
    let (src, dst) = (Ipv4::new(9, 0, 0, 1), Ipv4::new(9, 0, 0, 2));
    let mut header = Header::new(src, dst, 17, end - start).unwrap();
    header.fragment = Fragment::new(start, end < whole.len()).unwrap();
    let message = pool.copy_from(64, &whole[start..end]).unwrap();
    (header, Front::of(&header), message)
}

fn give(
    reassembly: &mut Reassembly,
    key: Key,
    (header, front, message): (Header, Front, Message),
) -> Outcome {
    reassembly.insert(key, &header, front, message, Time::ZERO)
}

fn why(outcome: &Outcome) -> (usize, &'static str) {
    match outcome {
        Outcome::Dropped(n, reason) => (*n, reason.name),
        Outcome::Held => (0, "held"),
        Outcome::Whole(_) => (0, "whole"),
    }
}

#[test]
fn a_duplicate_is_ignored_and_an_overlap_spoils_all() {
    let (pool, whole) = (pool(), payload(64));
    let mut r = Reassembly::new(limits());
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, 0, 16))).1, "held");
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, 0, 16))), (1, "duplicate fragment"));
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, 32, 48))).1, "held");
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, 8, 32))), (3, "overlapping fragments"));
    assert_eq!((r.fragments(), r.octets()), (0, 0));
    // What is still to come is dropped too.
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, 48, 64))), (1, "overlapping fragments"));
    // The same octets in another range, and other octets in the same range.
    let mut r = Reassembly::new(limits());
    give(&mut r, KEY, piece(&pool, &whole, 0, 16));
    let mut other = whole.clone();
    other[3] ^= 1;
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &other, 0, 16))), (2, "overlapping fragments"));
}

#[test]
fn contradicting_ends_spoil_all() {
    let (pool, whole) = (pool(), payload(64));
    for (first, then) in
        [((32, 64), (whole.len(), 72, 80)), ((40, 48), (40, 0, 40)), ((32, 64), (64, 64, 72))]
    {
        let mut r = Reassembly::new(limits());
        give(&mut r, KEY, piece(&pool, &whole, first.0, first.1));
        let (len, start, end) = then;
        let long = payload(end.max(len));
        let outcome = give(&mut r, KEY, piece(&pool, &long[..end], start, end));
        assert_eq!(why(&outcome).1, "overlapping fragments", "{first:?} {then:?}");
        assert_eq!(r.fragments(), 0);
    }
}

#[test]
fn the_number_and_length_of_fragments_are_bounded() {
    let (pool, whole) = (pool(), payload(1024));
    let limits = Limits { fragments_max: 4, ..limits() };
    let mut r = Reassembly::new(limits);
    for at in 0..4 {
        assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, at * 8, at * 8 + 8))).1, "held");
    }
    assert_eq!(why(&give(&mut r, KEY, piece(&pool, &whole, 64, 72))), (5, "too many fragments"));
    let mut r = Reassembly::new(limits);
    let empty = piece(&pool, &whole, 8, 8);
    assert_eq!(why(&give(&mut r, KEY, empty)), (1, "malformed"));
    let (mut header, front, message) = piece(&pool, &whole, 0, 40);
    header.fragment = Fragment::new(65_504, false).unwrap();
    assert_eq!(why(&r.insert(KEY, &header, front, message, Time::ZERO)), (1, "datagram too long"));
}

#[test]
fn the_oldest_goes_first() {
    let (pool, whole) = (pool(), payload(64));
    let limits = Limits { datagrams_max: 3, octets_max: 3 * (16 + OVERHEAD) + 8, ..limits() };
    let mut r = Reassembly::new(limits);
    let key = |n| (u32::from(n), 2, 17, n, false);
    for n in 0..4 {
        give(&mut r, key(n), piece(&pool, &whole, 0, 16));
    }
    assert_eq!(r.take_evicted(), 1);
    assert!(!r.datagrams.contains_key(&key(0)) && r.datagrams.contains_key(&key(3)));
    assert_eq!(r.fragments(), 3);
    let now = Time::ZERO.after(limits.timeout);
    assert!(r.expire(Time::ZERO).is_none());
    let expired = r.expire(now).unwrap();
    assert_eq!(expired.fragments, 1);
    assert!(expired.first.unwrap().1.eq_octets(&whole[..16]));
    assert!(r.expire(now).is_some() && r.expire(now).is_some() && r.expire(now).is_none());
    assert_eq!((r.octets(), r.fragments(), r.next_deadline()), (0, 0, None));
}

#[test]
fn one_source_gives_up_its_own() {
    let (pool, whole) = (pool(), payload(64));
    let limits = Limits { datagrams_max: 40, source_octets_max: 4 * (16 + OVERHEAD), ..limits() };
    let mut r = Reassembly::new(limits);
    let quiet = (9, 2, 17, 0, false);
    give(&mut r, quiet, piece(&pool, &whole, 0, 16));
    let key = |n| (1, 2, 17, n, false);
    for n in 0..1000 {
        give(&mut r, key(n), piece(&pool, &whole, 0, 16));
    }
    assert_eq!(r.take_evicted(), 996);
    assert!(r.datagrams.contains_key(&quiet) && r.datagrams.contains_key(&key(999)));
    assert_eq!((r.datagrams.len(), r.shares.len(), r.by_source.len()), (5, 2, 5));
    // Datagrams that hold nothing any more count as well.
    for n in 0..1000 {
        give(&mut r, key(n), piece(&pool, &whole, 0, 16));
        give(&mut r, key(n), piece(&pool, &whole, 8, 24));
    }
    assert_eq!(r.datagrams.len(), 11);
    let ended = give(&mut r, quiet, piece(&pool, &whole, 16, 64));
    assert_eq!(why(&ended).1, "whole");
    let now = Time::ZERO.after(limits.timeout);
    while r.expire(now).is_some() {}
    assert_eq!((r.shares.len(), r.by_source.len(), r.order.len()), (0, 0, 0));
}

/// Cuts that divide `len` octets, at multiples of eight.
fn cuts(len: usize, at: &[usize]) -> StdVec<(usize, usize)> {
    let mut ends: StdVec<usize> = at.iter().map(|a| (a % len.max(1)) & !7).collect();
    ends.extend([0, len]);
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|w| (w[0], w[1])).collect()
}

proptest! {
    #[test]
    fn any_order_gives_the_original(
        len in 9usize..9000,
        at in proptest::collection::vec(any::<usize>(), 1..40),
        order in any::<prop::sample::Index>(),
        twice in any::<u64>(),
    ) {
        let (pool, whole) = (pool(), payload(len));
        let mut pieces = cuts(len, &at);
        prop_assume!(pieces.len() > 1);
        let mut random = order.index(usize::MAX);
        for i in (1..pieces.len()).rev() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            pieces.swap(i, (random >> 33) % (i + 1));
        }
        let mut r = Reassembly::new(limits());
        let count = pieces.len();
        for (n, (start, end)) in pieces.into_iter().enumerate() {
            let last = n + 1 == count;
            match give(&mut r, KEY, piece(&pool, &whole, start, end)) {
                Outcome::Held => prop_assert!(!last),
                Outcome::Dropped(..) => prop_assert!(false, "dropped"),
                Outcome::Whole(w) => {
                    prop_assert!(last);
                    prop_assert!(w.payload.eq_octets(&whole));
                    prop_assert_eq!(w.fragments, count);
                    prop_assert_eq!(w.header.payload_len(), len);
                    prop_assert_eq!(w.header.fragment, Fragment::WHOLE);
                    let fixed: &[u8; HEADER_LEN] = w.front.octets().first_chunk().unwrap();
                    prop_assert_eq!(Header::parse(fixed), Ok(w.header));
                }
            }
            if !last && (twice >> (n % 64)) & 1 == 1 {
                let again = give(&mut r, KEY, piece(&pool, &whole, start, end));
                prop_assert_eq!(why(&again), (1, "duplicate fragment"));
            }
        }
        prop_assert_eq!((r.octets(), r.fragments(), r.datagrams.len(), r.order.len()), (0, 0, 0, 0));
    }

    #[test]
    fn whatever_comes_the_bounds_hold_and_all_is_counted(
        fragments in proptest::collection::vec((0u16..6, 0usize..12, 1usize..6, any::<bool>()), 1..200),
    ) {
        let pool = pool();
        let limits = Limits { octets_max: 3000, datagrams_max: 4, fragments_max: 5, ..limits() };
        let mut r = Reassembly::new(limits);
        let whole = payload(256);
        let (mut given, mut gone) = (0, 0);
        for (id, start, blocks, last) in fragments {
            let (start, end) = (start * 8, start * 8 + blocks * 8);
            let piece = piece(&pool, if last { &whole[..end] } else { &whole }, start, end);
            if !piece.0.fragment.is_part() { continue; }
            given += 1;
            match give(&mut r, (1, 2, 17, id, false), piece) {
                Outcome::Held => {}
                Outcome::Dropped(n, _) => gone += n,
                Outcome::Whole(w) => {
                    prop_assert!(w.payload.eq_octets(&whole[..w.payload.len()]));
                    gone += w.fragments;
                }
            }
            gone += r.take_evicted();
            prop_assert!(r.octets() <= limits.octets_max && r.datagrams.len() <= limits.datagrams_max);
            prop_assert_eq!(r.order.len(), r.datagrams.len());
            prop_assert_eq!(given, gone + r.fragments());
        }
        while let Some(expired) = r.expire(Time::MAX) { gone += expired.fragments; }
        prop_assert_eq!((given, r.octets(), r.fragments()), (gone, 0, 0));
    }
}
