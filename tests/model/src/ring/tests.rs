//! Promises of the rings, in every order in which both sides may run.

use super::*;
use loom::sync::Notify;
use loom::thread;

/// Goes through all that two threads can do with at most three changes from one to the other that
/// neither asked for: more find nothing new in rings of two slots, and take hours.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// A frame that says which it is in every octet.
fn frame(number: u8, octets: usize) -> Vec<u8> {
    vec![number; octets]
}

/// Sends a frame as soon as there is room.
fn send(end: &mut RingEnd, frame: &[u8]) {
    loop {
        match end.send(frame) {
            Ok(()) => return,
            Err(SendError::Full) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The next frame, as soon as it is there.
fn receive(end: &mut RingEnd) -> Vec<u8> {
    let mut room = [0; 32];
    loop {
        if let Some(octets) = end.receive(&mut room).expect("the other side is sound") {
            end.release();
            return room[..octets].to_vec();
        }
        thread::yield_now();
    }
}

/// Frames of these lengths, more than there are slots, arrive whole and in turn.
fn arrive(lengths: &'static [usize]) {
    model(move || {
        let (mut a, mut b) = RingEnd::pair(&Geometry).expect("memory");
        let sender = thread::spawn(move || {
            for (number, octets) in (1..).zip(lengths) {
                send(&mut a, &frame(number, *octets));
            }
        });
        for (number, octets) in (1..).zip(lengths) {
            assert_eq!(receive(&mut b), frame(number, *octets));
        }
        sender.join().expect("the sender");
    });
}

#[test]
fn short_frames_arrive_whole_and_in_turn() {
    arrive(&[8, 1, 8]);
}

#[test]
fn frames_beside_their_slots_arrive_whole_and_in_turn() {
    arrive(&[9, 8, 9]);
}

#[test]
fn frames_of_two_slots_arrive_whole_and_in_turn() {
    arrive(&[17, 17]);
}

#[test]
fn a_sleeper_is_woken() {
    model(|| {
        let (mut a, mut b) = RingEnd::pair(&Geometry).expect("memory");
        let bell = Arc::new(Notify::new());
        let ringer = Arc::clone(&bell);
        let sender = thread::spawn(move || {
            for number in 1..=2 {
                send(&mut a, &frame(number, 8));
                if a.must_wake() {
                    ringer.notify();
                }
            }
        });
        for number in 1..=2 {
            let mut room = [0; 32];
            let octets = loop {
                if let Some(octets) = b.receive(&mut room).expect("the other side is sound") {
                    break octets;
                }
                // A ring that is lost leaves it asleep without end, of which the checker tells.
                if b.doze() {
                    bell.wait();
                    b.woken();
                }
            };
            assert_eq!(room[..octets], frame(number, 8));
        }
        sender.join().expect("the sender");
    });
}
