//! Tests of what is this protocol's own: order, duplicates, the timer, restarts, reasons.

use core::time::Duration;
use proptest::prelude::*;
use xk_core::control::Describe;
use xk_core::graph::{Params, Value};
use xk_core::object::{Enable, OpenError, PushError};
use xk_core::{Part, Participants, ProtocolRef, SessionRef, reason};
use xk_guide::{ENTRY, JUMP, STALE, Tally};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

/// The type number of the protocol above.
const NUMBER: u8 = 7;
/// Time to wait for a gap here.
const WAIT: Duration = Duration::from_millis(20);
/// Largest number of waiting messages.
const HOLD: u64 = 4;

struct Stack {
    cx: TestKernel,
    bottom: Bottom,
    layer: ProtocolRef,
    top: Top,
}

impl Stack {
    fn new() -> Self {
        let cx = TestKernel::new(1);
        let bottom = Bottom::add(&cx, "bottom", Lower::link(1500));
        let mut params = Params::default();
        params.set("wait", Value::Duration(WAIT));
        params.set("hold", Value::Integer(HOLD as i64));
        let layer =
            ENTRY.add(&cx, "layer", core::slice::from_ref(bottom.protocol()), &params).unwrap();
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), layer.id(), NUMBER.into());
        cx.start().unwrap();
        Self { cx, bottom, layer, top }
    }

    fn open(&self) -> SessionRef {
        let opened = self.top.open(&self.cx, &self.layer, Participants::default());
        opened.unwrap()
    }

    fn enable(&self, top: &Top) -> Result<Enable, OpenError> {
        top.enable(&self.cx, &self.layer, Participants::local(Part::Any))
    }

    /// Lets a message with this number arrive, whose text is the number. False if it was refused.
    fn arrive(&self, sequence: u64) -> bool {
        self.inject(&numbered(sequence))
    }

    fn inject(&self, octets: &[u8]) -> bool {
        self.bottom.inject(&self.cx, None, self.cx.message(octets))
    }

    /// Octets that came out since the last call.
    fn heard(&self) -> Vec<u8> {
        let received = self.top.take_received();
        received.iter().flat_map(|r| octets(&r.message)).collect()
    }

    fn drops(&self, reason: &xk_core::Reason) -> u64 {
        self.layer.head().drops().of(reason)
    }

    fn tally(&self, session: &SessionRef) -> Tally {
        session.ask(&self.cx, Tally::default()).unwrap()
    }
}

/// A message of one octet with this number.
fn numbered(sequence: u64) -> Vec<u8> {
    let mut message = vec![0, NUMBER, 0, 1];
    message.extend(sequence.to_be_bytes());
    message.push(sequence as u8);
    message
}

/// The sequence number in a message.
fn sequence_of(octets: &[u8]) -> u64 {
    u64::from_be_bytes(*octets[4..].first_chunk().unwrap())
}

#[test]
fn the_octets_on_the_wire() {
    let stack = Stack::new();
    let session = stack.open();
    for text in [b"hello".as_slice(), b""] {
        session.push(&stack.cx, stack.cx.message(text)).unwrap();
    }
    let sent = stack.bottom.take_sent();
    let sent: Vec<_> = sent.iter().map(|sent| octets(&sent.message)).collect();
    assert_eq!(sent[0][..4], *b"\x00\x07\x00\x05");
    assert_eq!(sent[0][12..], *b"hello");
    assert_eq!(sent[1][..4], *b"\x00\x07\x00\x00");
    assert_eq!(sequence_of(&sent[1]), sequence_of(&sent[0]).wrapping_add(1));
    let long = session.push(&stack.cx, stack.cx.message(&[0; 1489]));
    assert_eq!(long, Err(PushError::TooBig));
}

#[test]
fn each_fault_is_counted_under_its_own_reason() {
    let stack = Stack::new();
    let _session = stack.open();
    let with = |at: usize, octet| {
        let mut octets = numbered(0);
        octets[at] = octet;
        stack.inject(&octets)
    };
    assert!(!with(1, 8) && stack.drops(&reason::NO_PROTOCOL) == 1);
    assert!(!with(3, 2) && stack.drops(&reason::BAD_LENGTH) == 1);
    assert!(!stack.inject(&numbered(0)[..11]) && stack.drops(&reason::TRUNCATED) == 1);
    assert!(stack.arrive(0) && !stack.arrive(0) && stack.drops(&STALE) == 1);
    assert_eq!(stack.heard(), [0]);
}

#[test]
fn a_gap_is_filled_or_given_up() {
    let stack = Stack::new();
    let session = stack.open();
    assert!(stack.arrive(0) && stack.arrive(2) && stack.arrive(1));
    assert_eq!(stack.heard(), [0, 1, 2]);
    assert_eq!(stack.cx.timers(), 0, "nothing to wait for");

    assert!(stack.arrive(4) && stack.arrive(6));
    assert_eq!((stack.heard(), stack.tally(&session).held), (vec![], 2));
    stack.cx.advance(WAIT - Duration::from_nanos(1));
    assert!(stack.heard().is_empty());
    stack.cx.advance(Duration::from_nanos(1));
    assert_eq!(stack.heard(), [4], "the first gap is given up");
    assert!(!stack.arrive(3) && stack.drops(&STALE) == 1, "too late");
    stack.cx.advance(WAIT);
    assert_eq!(stack.heard(), [6], "each gap is waited for");
    let tally = Tally { missing: 2, held: 0 };
    assert_eq!(stack.tally(&session), tally);
    let line = session.ask(&stack.cx, Describe::default()).unwrap().text;
    assert_eq!(line, "number 7");
}

#[test]
fn no_more_wait_than_are_held() {
    let stack = Stack::new();
    let _session = stack.open();
    for number in [0, 2, 4, 6, 8, 10] {
        assert!(stack.arrive(number));
    }
    // Four wait at most: for 10 the first of them went up.
    assert_eq!(stack.heard(), [0, 2]);
    stack.cx.advance(WAIT);
    assert_eq!(stack.heard(), [4]);
    assert!(stack.arrive(5) && stack.arrive(7));
    assert_eq!(stack.heard(), [5, 6, 7, 8]);
}

#[test]
fn numbers_come_out_in_order() {
    // What arrives, what comes out, how many are missing, how many wait.
    let cases: &[(&[u64], &[u8], u64, u64)] = &[
        (&[5, 6, 7], &[5, 6, 7], 0, 0),
        (&[5, 7, 6, 8], &[5, 6, 7, 8], 0, 0),
        (&[5, 5, 6, 5, 7, 7], &[5, 6, 7], 0, 0),
        (&[5, 8, 8, 7, 6], &[5, 6, 7, 8], 0, 0),
        (&[5, 8], &[5], 0, 1),
        (&[5, 4, 3], &[5], 0, 0),
        (&[5, 7, 9, 11, 13, 15], &[5, 7], 1, 4),
        (&[u64::MAX, 1, 0], &[255, 0, 1], 0, 0),
    ];
    for (numbers, expected, missing, held) in cases {
        let stack = Stack::new();
        let session = stack.open();
        for number in *numbers {
            let _ = stack.arrive(*number);
        }
        assert_eq!(stack.heard(), *expected, "{numbers:?}");
        let tally = Tally { missing: *missing, held: *held };
        assert_eq!(stack.tally(&session), tally, "{numbers:?}");
    }
}

proptest! {
    #[test]
    fn nothing_comes_twice_or_out_of_order(
        numbers in prop::collection::vec(0..64_u64, 0..200),
    ) {
        let stack = Stack::new();
        let session = stack.open();
        for number in numbers {
            let _ = stack.arrive(number);
            prop_assert!(stack.tally(&session).held <= HOLD);
        }
        while stack.cx.timers() > 0 {
            stack.cx.advance(WAIT);
        }
        let heard = stack.heard();
        prop_assert!(heard.is_sorted_by(|a, b| a < b), "{heard:?}");
        prop_assert_eq!(stack.tally(&session).held, 0);
    }
}

#[test]
fn a_peer_that_begins_again_is_believed() {
    let stack = Stack::new();
    let _session = stack.open();
    assert!(stack.arrive(100) && !stack.arrive(0));
    assert!(stack.arrive(1000 * JUMP) && stack.arrive(1) && stack.arrive(2));
    assert_eq!(stack.heard(), [100, 0, 1, 2]);
}

#[test]
fn closing_counts_what_was_kept() {
    let stack = Stack::new();
    let session = stack.open();
    assert!(stack.arrive(0) && stack.arrive(2));
    session.close(&stack.cx);
    assert_eq!(stack.drops(&reason::CLOSED), 1);
    assert_eq!(stack.cx.timers(), 0);
}

#[test]
fn two_uppers_share_one_enable_below() {
    let stack = Stack::new();
    let other = Top::add(&stack.cx, "other");
    stack.cx.numbers_mut().override_pair(other.id(), stack.layer.id(), 8);
    let first = stack.enable(&stack.top).unwrap();
    let second = stack.enable(&other).unwrap();
    assert!(stack.enable(&other).is_err(), "the number is taken");
    stack.layer.open_disable(&stack.cx, first);
    let mut message = numbered(0);
    message[1] = 8;
    assert!(stack.inject(&message), "the other one still takes messages");
    stack.layer.open_disable(&stack.cx, second);
    assert!(!stack.arrive(0), "nobody enables any more");
}

#[test]
fn what_never_left_has_no_number() {
    let stack = Stack::new();
    let session = stack.open();
    let push = |len| session.push(&stack.cx, stack.cx.message(&vec![0; len]));
    assert!(push(1).is_ok() && push(9000).is_err() && push(1).is_ok());
    let sent = stack.bottom.take_sent();
    let numbers: Vec<_> = sent.iter().map(|s| sequence_of(&octets(&s.message))).collect();
    assert_eq!(numbers[1], numbers[0].wrapping_add(1));
}
