//! Two machines joined by a channel that loses, repeats and reorders, in virtual time.

mod channel;
mod goodput;
mod moving;
mod rules;
mod runs;

use super::*;
use crate::wire::HEADER_LEN_MAX;
use alloc::vec::Vec;
use channel::{Channel, Faults, Side};
use proptest::prelude::*;

/// `len` octets that differ from their neighbours.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let octet = |at: usize| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ (at >> 16) as u8 ^ seed;
    (0..len).map(octet).collect()
}

#[test]
fn a_handshake_and_data_both_ways() {
    let mut channel = Channel::new(1, Faults::default());
    channel.write(Side::A, &pattern(100_000, 1));
    channel.write(Side::B, &pattern(50_000, 2));
    channel.run();
    assert_eq!(channel.got(Side::B), pattern(100_000, 1));
    assert_eq!(channel.got(Side::A), pattern(50_000, 2));
    assert_eq!(channel.state(Side::A), State::Established);
    channel.shut(Side::A);
    channel.run();
    assert_eq!(
        (channel.state(Side::A), channel.state(Side::B)),
        (State::FinWait2, State::CloseWait)
    );
    // Half closed: the other direction goes on.
    channel.write(Side::B, b"more");
    channel.run();
    assert_eq!(channel.got(Side::A).len(), 50_004);
    channel.shut(Side::B);
    channel.run();
    assert_eq!((channel.state(Side::A), channel.state(Side::B)), (State::Closed, State::Closed));
    assert_eq!(channel.drops(), 0);
}

#[test]
fn both_may_open_at_once() {
    let mut channel = Channel::both_open(2);
    channel.write(Side::A, b"from a");
    channel.write(Side::B, b"from b");
    channel.run();
    assert_eq!(channel.got(Side::B), b"from a");
    assert_eq!(channel.got(Side::A), b"from b");
    channel.shut(Side::A);
    channel.shut(Side::B);
    channel.run();
    assert_eq!((channel.state(Side::A), channel.state(Side::B)), (State::Closed, State::Closed));
}

fn faults() -> impl Strategy<Value = Faults> {
    let shares = (0..200_000_u32, 0..100_000_u32, 0..300_000_u32);
    (shares, any::<bool>()).prop_map(|((loss, repeat, reorder), runs)| Faults {
        loss,
        repeat,
        reorder,
        runs,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_channel_does_octets_arrive_once_and_in_order(
        seed: u64,
        faults in faults(),
        a in 0..200_000_usize,
        b in 0..50_000_usize,
        plain: bool,
    ) {
        let settings = Settings { window_scale: !plain, timestamps: !plain, sack: !plain, ..Settings::default() };
        let mut channel = Channel::with(seed, faults, settings);
        channel.write(Side::A, &pattern(a, 1));
        channel.write(Side::B, &pattern(b, 2));
        channel.shut_later();
        channel.run();
        prop_assert_eq!(channel.failures(), (None, None));
        prop_assert!(channel.got(Side::B) == pattern(a, 1), "{} of {a}", channel.got(Side::B).len());
        prop_assert!(channel.got(Side::A) == pattern(b, 2), "{} of {b}", channel.got(Side::A).len());
        prop_assert_eq!((channel.state(Side::A), channel.state(Side::B)), (State::Closed, State::Closed));
    }

    #[test]
    fn segments_of_any_kind_never_panic(
        seed: u64,
        segments in proptest::collection::vec((any::<[u8; 14]>(), 0..3000_usize, any::<bool>()), 0..60),
    ) {
        let mut channel = Channel::new(seed, Faults::default());
        channel.write(Side::A, &pattern(3000, 1));
        channel.run();
        for (octets, len, near) in segments {
            let mut raw = [0; HEADER_LEN_MAX];
            raw[..14].copy_from_slice(&octets);
            (raw[1], raw[3], raw[12]) = (1, 1, 5 << 4);
            if let Ok((mut header, _)) = Header::parse(&raw) {
                if near {
                    header.seq = channel.rcv_nxt(Side::B) + u32::from(octets[4]) - 8;
                    header.ack = channel.snd_una(Side::B) + u32::from(octets[8] & 7);
                }
                channel.inject(Side::B, &header, &pattern(len, 3));
            }
        }
        channel.run_for(Duration::from_secs(5));
    }
}
