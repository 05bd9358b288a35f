//! What is this protocol's own: its drops, its padding, its counting of what is missing.

use xk_core::control::Describe;
use xk_core::graph::{Build, Params};
use xk_core::object::{OpenError, PushError};
use xk_core::{Participants, ProtocolRef, SessionRef, reason};
use xk_template::{ENTRY, Missing, WRONG_VERSION};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

/// The type number of the protocol above.
const NUMBER: u8 = 7;

struct Stack {
    cx: TestKernel,
    bottom: Bottom,
    layer: ProtocolRef,
    top: Top,
}

impl Stack {
    fn new(number: u32, octets_max: u32) -> Self {
        let cx = TestKernel::new(1);
        let bottom = Bottom::add(&cx, "bottom", Lower::link(octets_max));
        let mut build = Build {
            cx: &cx,
            entry: &ENTRY,
            name: "layer",
            lowers: &[bottom.protocol().clone()],
            params: &Params::default(),
        };
        let layer = (ENTRY.build)(&mut build).unwrap();
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), layer.id(), number);
        cx.start().unwrap();
        Self {
            cx,
            bottom,
            layer,
            top,
        }
    }

    fn open(&self) -> Result<SessionRef, OpenError> {
        self.top
            .open(&self.cx, &self.layer, Participants::default())
    }

    fn arrive(&self, octets: &[u8]) -> bool {
        self.bottom.inject(&self.cx, None, self.cx.message(octets))
    }

    fn missing(&self, session: &SessionRef) -> u64 {
        session
            .ask(&self.cx, Missing::default())
            .map_or(0, |q| q.messages)
    }
}

/// A message "hi" with this sequence number.
fn numbered(sequence: u32) -> Vec<u8> {
    let mut message = vec![1, NUMBER, 0, 2];
    message.extend(sequence.to_be_bytes());
    message.extend(b"hi");
    message
}

#[test]
fn the_octets_on_the_wire() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let session = stack.open().unwrap();
    for text in [b"hello".as_slice(), b"", b"hi"] {
        session.push(&stack.cx, stack.cx.message(text)).unwrap();
    }
    let sent: Vec<_> = stack.bottom.take_sent();
    let sent: Vec<_> = sent.iter().map(|sent| octets(&sent.message)).collect();
    assert_eq!(sent[0], b"\x01\x07\x00\x05\x00\x00\x00\x00hello");
    assert_eq!(sent[1], b"\x01\x07\x00\x00\x00\x00\x00\x01");
    assert_eq!(sent[2], numbered(2));
}

#[test]
fn each_fault_is_counted_under_its_own_reason() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let session = stack.open().unwrap();
    let drops = |reason| stack.layer.head().drops().of(reason);
    let good = numbered(0);
    let with = |at: usize, octet| {
        let mut octets = good.clone();
        octets[at] = octet;
        stack.arrive(&octets)
    };
    assert!(!with(0, 2) && drops(&WRONG_VERSION) == 1);
    assert!(!with(1, 0) && drops(&reason::MALFORMED) == 1);
    assert!(!with(1, 8) && drops(&reason::NO_PROTOCOL) == 1);
    assert!(!with(3, 3) && drops(&reason::BAD_LENGTH) == 1);
    assert!(!stack.arrive(&good[..7]) && drops(&reason::TRUNCATED) == 1);
    assert!(stack.arrive(&good));
    assert_eq!((stack.top.received(), stack.missing(&session)), (1, 0));
}

#[test]
fn padding_is_cut_off() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let _session = stack.open().unwrap();
    let mut padded = numbered(0);
    padded.resize(60, 0);
    assert!(stack.arrive(&padded));
    assert!(stack.top.take_received()[0].message.eq_octets(b"hi"));
}

#[test]
fn what_is_missing_is_counted() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let session = stack.open().unwrap();
    // Arrivals, and how many are missing then: the first may be any; one too late changes nothing; numbers wrap.
    let arrivals = [
        (u32::MAX - 1, 0),
        (u32::MAX, 0),
        (0, 0),
        (3, 2),
        (1, 2),
        (4, 2),
        (6, 3),
    ];
    for (sequence, missing) in arrivals {
        assert!(stack.arrive(&numbered(sequence)));
        assert_eq!(stack.missing(&session), missing, "after {sequence}");
    }
    let line = session.ask(&stack.cx, Describe::default()).unwrap().text;
    assert_eq!(line, "template > 7, 3 missing");
}

#[test]
fn what_does_not_fit_is_refused() {
    let stack = Stack::new(NUMBER.into(), 100);
    let session = stack.open().unwrap();
    let push = |len| session.push(&stack.cx, stack.cx.message(&vec![0; len]));
    assert_eq!(push(92), Ok(()));
    assert_eq!(push(93), Err(PushError::TooBig { max: 92 }));
    assert_eq!(push(65_536), Err(PushError::TooBig { max: 65_535 }));
    for number in [0, 256] {
        let stack = Stack::new(number, 100);
        assert_eq!(stack.open().err(), Some(OpenError::NoTypeNumber));
    }
}
