//! The ring against a model, between threads, and with a peer that writes what it likes.

use super::*;
use crate::layout::{CONSUMED_AT, FRAME_OCTETS_LEAST, SIDE_OCTETS};
use proptest::prelude::*;
use std::collections::VecDeque;

fn pair(slots: u32, octets: u32) -> (RingEnd, RingEnd) {
    RingEnd::pair(&Geometry::new(slots, octets).unwrap()).unwrap()
}

/// Frames of which the longest take four of eight slots.
fn spanning_pair() -> (RingEnd, RingEnd) {
    RingEnd::pair(&Geometry::spanning(8, 500, 130).unwrap()).unwrap()
}

/// A frame that says which it is in every octet.
fn frame(number: u64, octets: usize) -> Vec<u8> {
    let octet = |at: usize| (number as usize).wrapping_mul(31).wrapping_add(at * 7) as u8;
    (0..octets).map(octet).collect()
}

fn receive(end: &mut RingEnd) -> Option<Vec<u8>> {
    let mut room = vec![0; end.frame_octets_max()];
    let octets = end.receive(&mut room).unwrap()?;
    room.truncate(octets);
    Some(room)
}

#[test]
fn every_length_arrives_unchanged() {
    let (mut a, mut b) = pair(8, 1514);
    let step = if cfg!(miri) { 37 } else { 1 };
    for octets in (0..=300).step_by(step).chain([119, 120, 121, 512, 513, 1513, 1514]) {
        let sent = frame(octets as u64, octets);
        a.send(&sent).unwrap();
        let (front, back) = sent.split_at(octets / 3);
        b.send_parts(octets, [front, &[], back].into_iter()).unwrap();
        assert_eq!(receive(&mut b).as_ref(), Some(&sent), "{octets}");
        assert_eq!(receive(&mut a).as_ref(), Some(&sent), "{octets}");
        assert_eq!(receive(&mut b), None);
        a.release();
        b.release();
    }
    assert_eq!(a.send(&[0; 1515]), Err(SendError::TooLong));
    assert_eq!(a.send_parts(1515, [].into_iter()), Err(SendError::TooLong));
}

#[test]
fn a_long_frame_takes_several_slots() {
    let (mut a, mut b) = spanning_pair();
    for octets in (0..=500).step_by(if cfg!(miri) { 61 } else { 1 }) {
        let sent = frame(octets as u64, octets);
        let (front, back) = sent.split_at(octets * 2 / 3);
        a.send_parts(octets, [front, back].into_iter()).unwrap();
        let slots = octets.div_ceil(130).max(1) as u32;
        assert_eq!(a.room(9).unwrap(), 8 - slots, "{octets}");
        assert_eq!(receive(&mut b), Some(sent));
        assert_eq!(receive(&mut b), None);
        b.release();
        assert_eq!(a.room(9).unwrap(), 8, "{octets}");
    }
    a.send(&frame(1, 391)).unwrap();
    a.send(&frame(2, 390)).unwrap();
    assert_eq!(a.send(&frame(3, 131)), Err(SendError::Full), "one slot is left");
    a.send(&frame(3, 130)).unwrap();
    for (number, octets) in [(1, 391), (2, 390), (3, 130)] {
        assert_eq!(receive(&mut b), Some(frame(number, octets)));
    }
    assert_eq!(a.send(&frame(0, 501)), Err(SendError::TooLong));
}

#[test]
fn frames_are_cut_to_the_room_and_not_a_word_more() {
    let (mut a, mut b) = pair(8, 200);
    for octets in [0, 1, 7, 8, 60, 61, 119, 120, 121, 200] {
        for room in [0, 1, 13, 64, 121, 210] {
            a.send(&frame(1, octets)).unwrap();
            let mut to = vec![0xee; room];
            let copied = b.arrival().unwrap().unwrap().copy_to(&mut to);
            assert_eq!(copied, octets.min(room));
            assert_eq!(to[..copied], frame(1, octets)[..copied]);
            let touched = copied.next_multiple_of(8).min(room);
            assert!(to[touched..].iter().all(|o| *o == 0xee), "{octets} {room}");
            b.release();
        }
    }
}

#[test]
fn a_full_ring_refuses_until_slots_are_given_back() {
    let (mut a, mut b) = pair(8, 60);
    for number in 0..8 {
        a.send(&frame(number, 60)).unwrap();
    }
    assert_eq!(a.send(&[]), Err(SendError::Full));
    assert_eq!(receive(&mut b), Some(frame(0, 60)));
    assert_eq!(a.send(&[]), Err(SendError::Full), "not given back yet");
    b.release();
    a.send(&frame(8, 60)).unwrap();
    assert_eq!(a.send(&[]), Err(SendError::Full));
    for number in 1..9 {
        assert_eq!(receive(&mut b), Some(frame(number, 60)));
    }
    assert_eq!(receive(&mut b), None);
}

#[test]
fn positions_pass_the_end_of_their_numbers() {
    let (mut a, mut b) = pair(8, 60);
    let near_the_end = u32::MAX - 20;
    a.sender.next = near_the_end;
    a.sender.consumed = near_the_end;
    b.receiver.next = near_the_end;
    b.receiver.told = near_the_end;
    b.own.consumed().store(near_the_end.into(), Ordering::Relaxed);
    for number in 0..60 {
        a.send(&frame(number, 40)).unwrap();
        if number % 3 == 2 {
            for back in (0..3).rev() {
                assert_eq!(receive(&mut b), Some(frame(number - back, 40)));
            }
            b.release();
        }
    }
}

#[test]
fn a_sleeper_is_woken_once() {
    let (mut a, mut b) = pair(8, 60);
    a.send(b"1").unwrap();
    assert!(!a.must_wake(), "nobody sleeps");
    assert!(!b.doze(), "a frame is there");
    assert_eq!(receive(&mut b), Some(b"1".to_vec()));
    assert!(b.doze());
    assert!(!a.must_wake(), "nothing was sent since");
    a.send(b"2").unwrap();
    assert!(a.must_wake());
    a.send(b"3").unwrap();
    assert!(!a.must_wake(), "it is being woken");
    b.woken();
    assert_eq!(receive(&mut b), Some(b"2".to_vec()));
    assert!(!b.doze());
    assert_eq!(receive(&mut b), Some(b"3".to_vec()));
    assert!(b.doze());
    b.woken();
    a.send(b"4").unwrap();
    assert!(!a.must_wake(), "it woke by itself");
}

#[test]
fn one_processor_for_both_is_known() {
    let (mut a, mut b) = pair(8, 60);
    assert!(!a.shares_processor());
    a.set_processors(4);
    b.set_processors(4);
    assert!(a.shares_processor() && b.shares_processor());
    b.set_processors(6);
    assert!(!a.shares_processor() && !b.shares_processor());
}

#[test]
fn what_cannot_be_is_seen() {
    let (mut a, mut b) = pair(8, 60);
    let slot = Geometry::new(8, 60).unwrap().slots_at(0);
    for octets in [61, u64::from(u32::MAX), 1 << 24] {
        a.poke(slot, 1 << MARK_SHIFT | octets);
        assert_eq!(b.arrival().err(), Some(Broken::Frame));
        assert!(!b.doze(), "it is looked at before anybody sleeps");
    }
    for number in 0..8 {
        a.send(&frame(number, 60)).unwrap();
    }
    for consumed in [9, u64::from(u32::MAX), 1 << 31, 1 << 32] {
        b.poke(SIDE_OCTETS + CONSUMED_AT, consumed);
        assert_eq!(a.send(&[]), Err(SendError::Broken(Broken::Consumed)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(bool, usize),
    Receive(bool),
    Release(bool),
    Doze(bool),
    Wake(bool),
}

fn step(octets_max: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 0..=octets_max + 2).prop_map(|(side, n)| Step::Send(side, n)),
        4 => any::<bool>().prop_map(Step::Receive),
        2 => any::<bool>().prop_map(Step::Release),
        1 => any::<bool>().prop_map(Step::Doze),
        1 => any::<bool>().prop_map(Step::Wake),
    ]
}

/// Model of the ring of one direction.
#[derive(Default)]
struct Model {
    queue: VecDeque<Vec<u8>>,
    /// Slots that are taken: of frames in the queue, and of those consumed but not given back.
    taken: usize,
    sent: u64,
    unflushed: bool,
    receiver_sleeps: bool,
}

/// Steps of one case.
const STEPS: usize = if cfg!(miri) { 40 } else { 250 };
const CASES: u32 = if cfg!(miri) { 4 } else { 256 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_a_queue_does(kind in 0usize..3, steps in prop::collection::vec(step(500), 1..STEPS)) {
        let octets_max = [100, 200, 500][kind];
        let (a, b) = if kind == 2 { spanning_pair() } else { pair(8, octets_max as u32) };
        let slots_of = |octets: usize| if kind == 2 { octets.div_ceil(130).max(1) } else { 1 };
        let queued = |queue: &VecDeque<Vec<u8>>| queue.iter().map(|frame| slots_of(frame.len())).sum::<usize>();
        let (mut ends, mut models) = ([a, b], [Model::default(), Model::default()]);
        for step in steps {
            match step {
                Step::Send(side, octets) => {
                    let (end, model) = (&mut ends[usize::from(side)], &mut models[usize::from(side)]);
                    let octets = octets % (octets_max + 3);
                    let octets_sent = frame(model.sent, octets);
                    let expected = if octets > octets_max {
                        Err(SendError::TooLong)
                    } else if model.taken + slots_of(octets) > 8 {
                        Err(SendError::Full)
                    } else {
                        Ok(())
                    };
                    prop_assert_eq!(end.send(&octets_sent), expected);
                    if expected.is_ok() {
                        model.queue.push_back(octets_sent);
                        model.taken += slots_of(octets);
                        model.sent += 1;
                        model.unflushed = true;
                    }
                }
                Step::Receive(side) => {
                    let model = &mut models[usize::from(!side)];
                    prop_assert_eq!(receive(&mut ends[usize::from(side)]), model.queue.pop_front());
                }
                Step::Release(side) => {
                    let model = &mut models[usize::from(!side)];
                    ends[usize::from(side)].release();
                    model.taken = queued(&model.queue);
                }
                Step::Doze(side) => {
                    let model = &mut models[usize::from(!side)];
                    let dozes = ends[usize::from(side)].doze();
                    prop_assert_eq!(dozes, model.queue.is_empty());
                    model.taken = queued(&model.queue);
                    model.receiver_sleeps = dozes;
                }
                Step::Wake(side) => {
                    let model = &mut models[usize::from(side)];
                    let wakes = ends[usize::from(side)].must_wake();
                    prop_assert_eq!(wakes, model.unflushed && model.receiver_sleeps);
                    model.receiver_sleeps &= !model.unflushed;
                    model.unflushed = false;
                }
            }
        }
    }

    #[test]
    fn a_peer_may_write_anything(spans in any::<bool>(), pokes in prop::collection::vec((any::<usize>(), any::<u64>(), 0u64..4), 1..STEPS)) {
        let geometry = if spans { Geometry::spanning(8, 500, 130) } else { Geometry::new(8, 200) };
        let geometry = geometry.unwrap();
        let (mut own, peer) = RingEnd::pair(&geometry).unwrap();
        let mut room = [0; 500];
        let octets_max = u64::from(geometry.frame_octets_max());
        for (at, value, kind) in pokes {
            // A word anywhere, a mark that fits with a length that may, or a figure of its own
            // lines.
            match kind {
                0 => peer.poke(at % peer.memory_octets(), value),
                1 => peer.poke(geometry.slots_at(1) + at % 8 * 128, header((at % 16) as u32, (value % (octets_max + 10)) as usize)),
                2 => peer.poke(SIDE_OCTETS + CONSUMED_AT, value % 12),
                _ => peer.poke(at % 512, value % 3),
            }
            let _ = own.send(&room[..(value % (octets_max + 1)) as usize]);
            let _ = own.room((value % 12) as u32);
            let _ = own.must_wake();
            let mut received = 0;
            while received < 20 && matches!(own.receive(&mut room), Ok(Some(_))) {
                received += 1;
            }
            prop_assert!(received <= 8, "one lap at most without a new word");
            let _ = own.doze();
            own.woken();
        }
    }
}

/// Two threads that exchange frames and sleep in between; a lost wake-up would leave both asleep.
#[test]
fn two_threads_lose_nothing_and_sleep_through_nothing() {
    let rounds: u64 = if cfg!(miri) { 25 } else { 30_000 };
    let (mut a, mut b) = pair(8, 200);
    let (wake_a, asleep_a) = std::sync::mpsc::sync_channel::<()>(1 << 16);
    let (wake_b, asleep_b) = std::sync::mpsc::sync_channel::<()>(1 << 16);
    let patience = std::time::Duration::from_secs(60);
    let wait = move |end: &mut RingEnd, asleep: &std::sync::mpsc::Receiver<()>| {
        if end.doze() {
            asleep.recv_timeout(patience).expect("a wake-up");
            end.woken();
        }
    };
    let echo = std::thread::spawn(move || {
        for number in 0..rounds {
            let received = loop {
                match receive(&mut b) {
                    Some(received) => break received,
                    None => wait(&mut b, &asleep_b),
                }
            };
            assert_eq!(received, frame(number, (number % 201) as usize));
            b.release();
            b.send(&received).unwrap();
            if b.must_wake() {
                wake_a.send(()).unwrap();
            }
        }
    });
    let (mut sent, mut seen) = (0, 0);
    while seen < rounds {
        while sent < rounds && sent - seen < 5 {
            a.send(&frame(sent, (sent % 201) as usize)).unwrap();
            sent += 1;
        }
        if a.must_wake() {
            wake_b.send(()).unwrap();
        }
        match receive(&mut a) {
            Some(received) => {
                assert_eq!(received, frame(seen, (seen % 201) as usize));
                seen += 1;
            }
            None => wait(&mut a, &asleep_a),
        }
        a.release();
    }
    echo.join().unwrap();
}

#[test]
fn the_least_frame_is_short_enough_for_a_slot() {
    assert!(FRAME_OCTETS_LEAST as usize <= INLINE_OCTETS);
}
