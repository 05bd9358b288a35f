//! Messages that are lent across a ring, against copies of them.

use proptest::prelude::*;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use xk_core::{Kernel, Message};
use xk_domains::ring::{FRONT, Kin, LENT_MIN, Lending, Ring, SLICES_MAX, Terms, geometry, pair};
use xk_domains::{Arrival, Carrier, SendError};
use xk_run::lending_kernel;
use xk_shm::Link;

/// More than all that a test sends.
const POOL_OCTETS: usize = 1 << 25;
const LIMIT: Duration = Duration::from_secs(5);
const HEAD: [u8; 12] = [13, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn kernel() -> (Rc<Kernel>, OwnedFd) {
    let (kernel, file) = lending_kernel(POOL_OCTETS).unwrap();
    (Rc::new(kernel), file)
}

/// One end with its kernel.
struct End {
    cx: Rc<Kernel>,
    ring: Lending,
}

/// Both ends in this thread; `is_kin` as two threads have them, otherwise as two processes.
fn ends(is_kin: bool) -> (End, End) {
    let (one, two) = pair().unwrap();
    let (kin, other) = if is_kin {
        let (kin, other) = Kin::pair();
        (Some(kin), Some(other))
    } else {
        (None, None)
    };
    let ((cx, file), (other_cx, other_file)) = (kernel(), kernel());
    let second = std::thread::spawn(move || {
        let terms = Terms::agree(&two, Some(&other_file), other, LIMIT).unwrap();
        (two, terms)
    });
    let terms = Terms::agree(&one, Some(&file), kin, LIMIT).unwrap();
    let (two, other_terms) = second.join().unwrap();
    let one = Lending::new(one, cx.pool(), terms).unwrap();
    let two = Lending::new(two, other_cx.pool(), other_terms).unwrap();
    (End { cx, ring: one }, End { cx: other_cx, ring: two })
}

impl End {
    fn message(&self, octets: &[u8]) -> Message {
        self.cx.pool().copy_from(128, octets).unwrap()
    }

    fn live(&self) -> u32 {
        self.cx.pool().stats().buffers_live
    }

    /// The next message, without its head.
    fn next(&self) -> Option<Message> {
        match self.ring.receive(&self.cx) {
            Arrival::Frame(mut frame) => {
                assert_eq!(frame.pop_array::<12>(), Some(&HEAD));
                Some(frame)
            }
            Arrival::Nothing => None,
            Arrival::NoBuffers => panic!("there are buffers"),
            Arrival::Lost => panic!("the other side is there"),
        }
    }
}

fn octets(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8 ^ seed).collect()
}

/// An act of a side.
#[derive(Clone, Debug)]
enum Act {
    /// Sends so many octets, in slices of so many.
    Send(usize, usize),
    /// Takes the next message.
    Take,
    /// Releases the message that it has had longest.
    Drop,
    Flush,
}

fn act() -> impl Strategy<Value = (bool, Act)> {
    let lengths = prop_oneof![0..200usize, LENT_MIN - 2..LENT_MIN + 3, 4000..66_000usize];
    let slices = prop_oneof![2 => Just(usize::MAX), 1 => 300..3000usize];
    let act = prop_oneof![
        4 => (lengths, slices).prop_map(|(octets, slice)| Act::Send(octets, slice)),
        4 => Just(Act::Take),
        3 => Just(Act::Drop),
        1 => Just(Act::Flush),
    ];
    (any::<bool>(), act)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever both sides send, keep and release: what arrives is what was sent, and stays so;
    /// in the end all buffers are back.
    #[test]
    fn what_arrives_is_what_was_sent(acts in prop::collection::vec(act(), 1..120), is_kin: bool) {
        let (one, two) = ends(is_kin);
        let ends = [one, two];
        let mut under_way = [VecDeque::new(), VecDeque::new()];
        let mut kept: [VecDeque<(Message, Vec<u8>)>; 2] = Default::default();
        for (number, (is_second, act)) in acts.iter().enumerate() {
            let at = usize::from(*is_second);
            let end = &ends[at];
            match act {
                Act::Send(count, slice) => {
                    let sent = octets(*count, number as u8);
                    let mut parts = sent.chunks((*slice).min(sent.len().max(1)));
                    let mut message = end.message(parts.next().unwrap_or_default());
                    parts.for_each(|part| message.join(end.message(part)));
                    match end.ring.send(&end.cx, &HEAD, &message) {
                        Ok(()) => under_way[at].push_back(sent),
                        Err(error) => prop_assert_eq!(error, SendError::Full),
                    }
                }
                Act::Take => {
                    let sent = under_way[1 - at].pop_front();
                    let came = end.next();
                    prop_assert_eq!(came.is_some(), sent.is_some());
                    if let Some((message, sent)) = came.zip(sent) {
                        prop_assert!(message.eq_octets(&sent));
                        kept[at].push_back((message, sent));
                    }
                }
                Act::Drop => drop(kept[at].pop_front()),
                Act::Flush => end.ring.flush(),
            }
            for (message, sent) in kept.iter().flatten() {
                prop_assert!(message.eq_octets(sent), "it stays as it was");
            }
        }
        drop(kept);
        for at in [0, 1] {
            while ends[at].next().is_some() {}
        }
        // What has come back goes along with the next frame.
        for at in [0, 1] {
            ends[at].ring.send(&ends[at].cx, &HEAD, &ends[at].message(&[])).unwrap();
        }
        for end in &ends {
            prop_assert!(end.next().is_some());
            prop_assert_eq!(end.ring.lent(), 0);
            prop_assert_eq!(end.live(), 0);
        }
    }

    /// A neighbour that sends what it likes gives messages, or is lost.
    #[test]
    fn a_neighbour_may_send_anything(
        frames in prop::collection::vec((0u8..4, any::<[u8; 7]>(), prop::collection::vec(any::<u8>(), 0..200)), 1..40),
    ) {
        let (own, mut peer) = Link::pair(&geometry()).unwrap();
        let own = Ring::new(own);
        let (_, file) = kernel();
        peer.send_beside(&[1], &[std::os::fd::AsFd::as_fd(&file)]).unwrap();
        let (cx, own_file) = kernel();
        let terms = Terms::agree(&own, Some(&own_file), None, LIMIT).unwrap();
        let _ = peer.receive_beside(1, LIMIT).unwrap();
        let end = End { ring: Lending::new(own, cx.pool(), terms).unwrap(), cx };
        let lent = end.message(&octets(9000, 1));
        for (kind, front, behind) in frames {
            let mut frame = [&front[..], &behind].concat();
            match kind {
                // Of a loan, with small numbers.
                0 => {
                    let small: Vec<u8> = behind.iter().map(|octet| octet & 3).collect();
                    frame = [&[0x81, front[0] & 3, 0, 0], &small[..]].concat();
                }
                1 => frame = [&[0x82, 0, 0, 0, front[0] & 3, 0, 0, 0], &behind[..]].concat(),
                2 => frame.insert(0, 0x81),
                _ => {}
            }
            let _ = peer.send(&frame);
            let _ = end.ring.send(&end.cx, &HEAD, &lent);
            match end.ring.receive(&end.cx) {
                Arrival::Frame(frame) => prop_assert!(frame.len() <= end.ring.frame_octets_max()),
                Arrival::Nothing => {}
                Arrival::NoBuffers => prop_assert!(false, "there are buffers"),
                Arrival::Lost => break,
            }
        }
        end.ring.close();
        drop(lent);
        prop_assert_eq!(end.live(), 0, "a process that is gone keeps nothing");
    }
}

/// A thread that still reads what was lent when the lender ends reads the same as before.
#[test]
fn what_a_thread_reads_outlives_its_lender() {
    let (one, two) = ends(true);
    let sent = octets(20_000, 3);
    one.ring.send(&one.cx, &HEAD, &one.message(&sent)).unwrap();
    let read = two.next().unwrap();
    one.ring.close();
    let more = || one.cx.pool().copy_from(0, &octets(16_000, 9)).ok();
    let others: Vec<_> = std::iter::from_fn(more).collect();
    assert!(read.eq_octets(&sent), "after {} others", others.len());
    drop((one, others));
    assert!(read.eq_octets(&sent));
}

/// Between two threads nothing is copied but the front, and between two processes the reader has a
/// copy of its own.
#[test]
fn only_the_front_is_copied_between_threads() {
    for is_kin in [true, false] {
        let (one, two) = ends(is_kin);
        let sent = octets(20_000, 5);
        one.ring.send(&one.cx, &HEAD, &one.message(&sent)).unwrap();
        let read = two.next().unwrap();
        assert_eq!(read.slices().next().unwrap().octets.len(), FRONT);
        assert_eq!(read.lies_in(two.cx.pool()), !is_kin);
        assert_eq!(one.ring.lent(), 1);
    }
}

/// A message in more slices than a frame names is copied.
#[test]
fn a_message_in_many_slices_is_copied() {
    let (one, two) = ends(true);
    let sent = octets(SLICES_MAX * 100 + 400, 7);
    let mut parts = sent.chunks(100);
    let mut message = one.message(parts.next().unwrap());
    parts.for_each(|part| message.join(one.message(part)));
    one.ring.send(&one.cx, &HEAD, &message).unwrap();
    assert_eq!(one.ring.lent(), 0);
    assert!(two.next().unwrap().eq_octets(&sent));
}
