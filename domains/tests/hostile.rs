//! A peer that writes what it likes into the memory, sends what it likes as a frame, or does not
//! answer.

use proptest::prelude::*;
use std::iter;
use std::rc::Rc;
use std::time::Duration;
use xk_core::Kernel;
use xk_domains::ring::{Ring, geometry};
use xk_domains::{Arrival, Carrier, Known, Port, Queue, add_port, lower_proxy, upper_proxy};
use xk_kit::control::MaxPacket;
use xk_shm::Link;
use xk_testkit::kernel::{Bottom, Lower, TestKernel};

const CASES: u32 = 64;

/// An act of the peer.
#[derive(Clone, Debug)]
enum Act {
    /// Writes a word anywhere.
    Poke(usize, u64),
    /// Writes a word among the first ones, where the figures of both sides are.
    Figure(usize, u64),
    /// Marks a slot as a frame of a length.
    Mark(u32, u64),
    /// Sends a frame of these octets.
    Send(Vec<u8>),
}

fn act() -> impl Strategy<Value = Act> {
    let octets = prop::collection::vec(any::<u8>(), 0..200);
    // Headers of frames that make sense, with anything behind.
    let frame = (0u8..25, 0u8..6, any::<[u8; 8]>(), octets.clone()).prop_map(
        |(op, attributes, numbers, behind)| {
            let small = numbers.map(|octet| octet & 3);
            [&[op, attributes, 0, 0][..], &small, &behind].concat()
        },
    );
    prop_oneof![
        (any::<usize>(), any::<u64>()).prop_map(|(at, value)| Act::Poke(at, value)),
        (0usize..64, 0u64..600).prop_map(|(at, value)| Act::Figure(at * 8, value)),
        (0u32..8, 0u64..1 << 18).prop_map(|(position, octets)| Act::Mark(position, octets)),
        octets.prop_map(Act::Send),
        frame.prop_map(Act::Send),
    ]
}

/// Octets of a slot, and where those of the second side begin.
const SLOT_OCTETS: usize = 128;
const SLOTS_AT: usize = 4096 + 512 * SLOT_OCTETS;

fn do_it(link: &mut Link, act: &Act) {
    let memory = link.end().memory_octets();
    match act {
        Act::Poke(at, value) => link.end().poke(at % memory, *value),
        Act::Figure(at, value) => link.end().poke(*at, *value),
        Act::Mark(position, octets) => {
            let place = SLOTS_AT + (*position as usize % 512) * SLOT_OCTETS;
            link.end().poke(place, u64::from(position + 1) << 32 | octets);
        }
        Act::Send(octets) => drop(link.send(octets)),
    }
}

#[test]
fn a_sleeper_sees_at_once_that_a_peer_has_gone() {
    let cx = TestKernel::new(1);
    let (own, peer) = Link::pair(&geometry()).expect("shared memory");
    let ring = Ring::new(own);
    assert!(matches!(ring.receive(&cx), Arrival::Nothing));
    drop(peer);
    ring.woken();
    assert!(matches!(ring.receive(&cx), Arrival::Nothing));
    assert!(matches!(ring.receive(&cx), Arrival::Lost), "no time has passed");
}

/// One that is woken by frames looks for the peer's end no more often than one that does not sleep,
/// but does not sleep beyond that.
#[test]
fn a_sleeper_sees_soon_that_a_peer_has_sent_and_gone() {
    let cx = TestKernel::new(1);
    let (own, mut peer) = Link::pair(&geometry()).expect("shared memory");
    let ring = Ring::new(own);
    assert!(matches!(ring.receive(&cx), Arrival::Nothing));
    assert_eq!(ring.next_poll(), None);
    peer.send(b"the last frame").expect("room");
    drop(peer);
    ring.woken();
    assert!(matches!(ring.receive(&cx), Arrival::Frame(_)), "what it sent is still taken");
    assert!(matches!(ring.receive(&cx), Arrival::Nothing));
    let next = ring.next_poll().expect("it wants to look again");
    assert!(next.since(cx.now()) <= Duration::from_millis(10));
    cx.advance(next.since(cx.now()));
    assert!(matches!(ring.receive(&cx), Arrival::Nothing));
    assert!(matches!(ring.receive(&cx), Arrival::Lost));
}

/// Each question occupies a shepherd of the side that is to answer it.
#[test]
fn a_caller_that_cannot_wait_has_one_question_at_the_other_side() {
    let cx = TestKernel::new(1);
    let (own, peer) = Queue::pair(256);
    let port = Port::new(Box::new(own), Known::of(&[]));
    add_port(&cx, &port, "port");
    let bottom = Bottom::add(&cx, "bottom", Lower::host([10, 0, 0, 1], 253));
    let proxy = lower_proxy(&cx, &port, bottom.protocol().id(), "bottom", "proxy");
    let ask = || assert!(proxy.ask(&cx, MaxPacket::default()).is_none());
    let asked = || iter::from_fn(|| matches!(peer.receive(&cx), Arrival::Frame(_)).then_some(()));
    (0..100).for_each(|_| ask());
    assert_eq!(asked().count(), 1);
    // It never answers, or its answer found no buffer.
    cx.advance(Duration::from_secs(5));
    (0..100).for_each(|_| ask());
    let other = Port::new(Box::new(peer.clone()), Known::of(&[]));
    other.grant(bottom.protocol());
    add_port(&cx, &other, "other port");
    assert_eq!((other.poll(&cx, 64), other.poll(&cx, 64)), (1, 0));
    // The answer has come, though too late.
    (0..100).for_each(|_| ask());
    assert_eq!(other.poll(&cx, 64), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    /// The carrier gives frames that fit, or is lost; it gives no more of them than its peer could
    /// have sent, and holds nothing.
    #[test]
    fn a_peer_that_writes_anything_gives_frames_or_ends(acts in prop::collection::vec(act(), 1..60)) {
        let cx = TestKernel::new(1);
        let (own, mut peer) = Link::pair(&geometry()).expect("shared memory");
        let ring = Ring::new(own);
        let body = cx.message(&[7; 300]);
        for act in &acts {
            do_it(&mut peer, act);
            let _ = ring.send(&cx, &[1; 12], &body);
            prop_assert!(ring.room() <= 512);
            for frames in 0.. {
                prop_assert!(frames <= 512, "one lap at most without a new word");
                match ring.receive(&cx) {
                    Arrival::Frame(frame) => prop_assert!(frame.len() <= ring.frame_octets_max()),
                    _ => break,
                }
            }
            ring.flush();
        }
        drop(body);
        prop_assert_eq!(cx.live(), (0, 0));
    }

    /// The side below bears it, and releases all when the peer is gone.
    #[test]
    fn a_port_bears_a_peer_that_writes_anything(acts in prop::collection::vec(act(), 1..60)) {
        let cx = TestKernel::new(1);
        let (own, mut peer) = Link::pair(&geometry()).expect("shared memory");
        let bottom = Bottom::add(&cx, "bottom", Lower::host([10, 0, 0, 1], 253));
        let port = Port::new(Box::new(Ring::new(own)), Known::of(&[]));
        port.grant(bottom.protocol());
        port.admit(|cx: &Kernel, port: &Rc<Port>, of| Some(upper_proxy(cx, port, of, "top", "top")));
        let wire = add_port(&cx, &port, "port");
        for act in &acts {
            do_it(&mut peer, act);
            port.poll(&cx, 64);
            port.flush(&cx);
        }
        drop(peer);
        for _ in 0..2048 {
            cx.advance(std::time::Duration::from_millis(10));
            port.poll(&cx, 64);
        }
        prop_assert!(port.is_lost(), "it is seen that the peer is gone");
        prop_assert_eq!(bottom.held().len(), 0);
        prop_assert_eq!(bottom.enables(), 0);
        drop(wire);
        cx.stop();
        prop_assert_eq!(cx.live(), (0, 0));
    }
}
