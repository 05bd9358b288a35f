//! Marks of congestion, as a router leaves them on Internet packets instead of dropping them (RFC
//! 3168, section 5).

use xk_core::message::NoBuffers;
use xk_core::{Message, Pool};
use xk_kit::net::checksum::update_u16;

/// Octets of an Ethernet header.
const ETHERNET: usize = 14;
/// The type of Internet packets in it.
const TYPE_IP: [u8; 2] = [8, 0];
/// Offset of the checksum in an Internet header.
const CHECKSUM_AT: usize = 10;
/// Congestion experienced.
const EXPERIENCED: u8 = 3;
/// Room in front of a marked copy, in octets.
const HEADROOM: usize = 128;

fn octets<const N: usize>(message: &Message, at: usize) -> Option<[u8; N]> {
    let mut octets = [0; N];
    (message.copy_to(at, &mut octets) == N).then_some(octets)
}

/// Position of an Internet header: behind an Ethernet header, or at 0.
fn header_at(message: &Message) -> Option<usize> {
    let is_ethernet = octets(message, ETHERNET - 2) == Some(TYPE_IP);
    let at = if is_ethernet { ETHERNET } else { 0 };
    let [first] = octets(message, at)?;
    (first >> 4 == 4).then_some(at)
}

/// A copy of `message` with the mark, and without attributes; `None` if it is no packet whose
/// sender could be told.
///
/// # Errors
/// [`NoBuffers`], counted at the pool.
pub(crate) fn copy_marked(pool: &Pool, message: &Message) -> Option<Result<Message, NoBuffers>> {
    let at = header_at(message)?;
    let [version, class] = octets(message, at)?;
    let checksum: [u8; 2] = octets(message, at + CHECKSUM_AT)?;
    if class & EXPERIENCED == 0 || class & EXPERIENCED == EXPERIENCED {
        return None;
    }
    let new = class | EXPERIENCED;
    let word = |class| u16::from_be_bytes([version, class]);
    let checksum = update_u16(u16::from_be_bytes(checksum), word(class), word(new));
    let copy = pool.alloc(HEADROOM, message.len()).map(|mut copy| {
        let mut to = 0;
        for slice in message.slices() {
            to += copy.copy_in(to, slice.octets);
        }
        copy.copy_in(at + 1, &[new]);
        copy.copy_in(at + CHECKSUM_AT, &checksum.to_be_bytes());
        copy
    });
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::message::PoolConfig;

    #[test]
    fn only_what_can_be_marked_is() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let packet = |class: u8| {
            let mut octets =
                [0x45, class, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let sum = xk_kit::net::checksum::checksum(&octets);
            octets[10..12].copy_from_slice(&sum.to_be_bytes());
            octets.to_vec()
        };
        let ethernet = [&[2; 12][..], &TYPE_IP].concat();
        for front in [&[][..], &ethernet] {
            for (class, marked) in [(0, false), (1, true), (2, true), (3, false), (0xba, true)] {
                let sent = [front, &packet(class)].concat();
                let message = pool.copy_from(0, &sent).unwrap();
                let copy = copy_marked(&pool, &message);
                assert_eq!(copy.is_some(), marked, "{class}");
                if let Some(copy) = copy {
                    let meant = [front, &packet(class | 3)].concat();
                    assert!(copy.unwrap().eq_octets(&meant), "{class}");
                }
            }
        }
        for other in [&[][..], &[0x45], &[0x60; 40], &[2; 14]] {
            let message = pool.copy_from(0, other).unwrap();
            assert!(copy_marked(&pool, &message).is_none());
        }
    }
}
