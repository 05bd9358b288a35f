//! Shared memory: what a hostile peer can do to a ring.

use crate::novelty;
use xk_shm::{Geometry, INLINE_OCTETS, RingEnd, SendError};

/// Frames a direction: few, so that the ring is full and goes round soon.
const SLOTS: u32 = 8;
/// The longest frame: long enough for buffers.
const FRAME_OCTETS_MAX: usize = 200;

// Where things lie in the memory, as decision 0012 says: a peer knows it.
/// Octets from one side's lines to the other's.
const SIDE_OCTETS: usize = 256;
/// Within a side's lines: how many frames it has consumed.
const CONSUMED_AT: usize = 128;
/// Offset of the slots, those of the first side first.
const SLOTS_AT: usize = 4096;
/// Octets of a slot.
const SLOT_OCTETS: usize = 128;

/// Counts of the honest side.
#[derive(Default)]
struct Counters {
    /// Frames taken; those that were cut; those longer than a slot.
    taken: [u32; 3],
    /// Frames sent; refused by a full ring; refused by an impossible count.
    sent: [u32; 3],
    /// Looks that found an impossible frame; sleeps begun; wake-ups due.
    others: [u32; 3],
}

/// Lets a peer write into the shared memory what `data` says, between the operations of the other
/// side that it says. The honest side takes no more than a ring holds, no frame longer than the
/// link carries, and no more than it should.
pub(crate) fn ring(mut data: &[u8]) {
    let mut counters = Counters::default();
    let geometry = Geometry::new(SLOTS, FRAME_OCTETS_MAX as u32).expect("figures within range");
    let (mut own, mut peer) = RingEnd::pair(&geometry).expect("memory");
    let mut position = 0_u32;
    while let Some((&[operation, a, b, c], rest)) = data.split_first_chunk() {
        data = rest;
        let value = u64::from_le_bytes([a, b, c, operation, c, b, a, 0]);
        match operation & 7 {
            // A word anywhere.
            0 => peer.poke(usize::from(a) << 8 | usize::from(b), value),
            // A mark that fits, or nearly, with a length that may be.
            1 => {
                let next = position.wrapping_add(u32::from(a & 3));
                let at = SLOTS_AT + (SLOTS + next % SLOTS) as usize * SLOT_OCTETS;
                let mark = u64::from(next.wrapping_add(u32::from(a >> 2 & 1)).wrapping_add(1));
                peer.poke(at, mark << 32 | u64::from(b) | u64::from(c & 3) << 30);
            }
            // What it has consumed.
            2 => peer.poke(SIDE_OCTETS + CONSUMED_AT, value >> (b % 64)),
            // Both sides' states and processors.
            3 => peer.poke(usize::from(a) % (2 * SIDE_OCTETS), u64::from(b)),
            // The rules kept: a frame, or what it was sent.
            4 => {
                let octets = usize::from(b).min(FRAME_OCTETS_MAX);
                let _ = peer.send(&[c; FRAME_OCTETS_MAX][..octets]);
            }
            5 => {
                let _ = peer.receive(&mut [0; FRAME_OCTETS_MAX]);
                peer.release();
            }
            // The honest side.
            6 => send(&mut own, a, b, &mut counters),
            _ => position = position.wrapping_add(receive(&mut own, a, &mut counters)),
        }
    }
    let power = |counts: [u32; 3]| counts.map(|count| u32::BITS - count.leading_zeros());
    novelty::note(&[counters.taken, counters.sent, counters.others].map(power));
}

fn send(own: &mut RingEnd, a: u8, b: u8, counters: &mut Counters) {
    let octets = usize::from(b);
    let frame = [a; 256];
    let sent = own.send(&frame[..octets]);
    assert_eq!(sent == Err(SendError::TooLong), octets > FRAME_OCTETS_MAX, "a length of {octets}");
    match sent {
        Ok(()) => counters.sent[0] += 1,
        Err(SendError::Full) => counters.sent[1] += 1,
        Err(SendError::Broken(_)) => counters.sent[2] += 1,
        Err(SendError::TooLong) => {}
    }
    let parts = frame[..octets].chunks(usize::from(a).max(1));
    let _ = own.send_parts(octets, parts);
    counters.others[2] += u32::from(own.must_wake());
}

/// Takes all that there is. Answers how many frames.
fn receive(own: &mut RingEnd, a: u8, counters: &mut Counters) -> u32 {
    let mut count = 0;
    let mut room = [0xee; FRAME_OCTETS_MAX + 16];
    loop {
        let arrival = match own.arrival() {
            Ok(Some(arrival)) => arrival,
            Ok(None) => break,
            // The link would be dropped now; the ring must bear that it is not.
            Err(_) => {
                counters.others[0] += 1;
                return count;
            }
        };
        let octets = arrival.octets();
        assert!(octets <= FRAME_OCTETS_MAX, "a frame of {octets} octets");
        let space = usize::from(a).min(FRAME_OCTETS_MAX);
        let copied = arrival.copy_to(&mut room[..space]);
        assert_eq!(copied, octets.min(space));
        assert!(room[FRAME_OCTETS_MAX..].iter().all(|octet| *octet == 0xee));
        count += 1;
        counters.taken[0] += 1;
        counters.taken[1] += u32::from(copied < octets);
        counters.taken[2] += u32::from(octets > INLINE_OCTETS);
        assert!(count <= SLOTS, "more frames than the ring holds");
    }
    own.release();
    if own.doze() {
        counters.others[1] += 1;
        own.woken();
    }
    let _ = own.shares_processor();
    count
}
