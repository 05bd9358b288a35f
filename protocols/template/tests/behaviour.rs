//! What is this protocol's own: its octets, its drops, its padding.

use xk_core::control::Describe;
use xk_core::graph::{Build, Params};
use xk_core::object::{OpenError, PushError};
use xk_core::{Participants, ProtocolRef, SessionRef, reason};
use xk_kit::control::MaxPacket;
use xk_template::ENTRY;
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
        Self { cx, bottom, layer, top }
    }

    fn open(&self) -> Result<SessionRef, OpenError> {
        self.top.open(&self.cx, &self.layer, Participants::default())
    }

    fn arrive(&self, octets: &[u8]) -> bool {
        self.bottom.inject(&self.cx, None, self.cx.message(octets))
    }
}

/// The message "hi".
const HI: [u8; 6] = [0, NUMBER, 0, 2, b'h', b'i'];

#[test]
fn the_octets_on_the_wire() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let session = stack.open().unwrap();
    for text in [b"hi".as_slice(), b""] {
        session.push(&stack.cx, stack.cx.message(text)).unwrap();
    }
    let sent = stack.bottom.take_sent();
    let sent: Vec<_> = sent.iter().map(|sent| octets(&sent.message)).collect();
    assert_eq!(sent, [HI.to_vec(), vec![0, NUMBER, 0, 0]]);
    let line = session.ask(&stack.cx, Describe::default()).unwrap().text;
    assert_eq!(line, "template > 7");
}

#[test]
fn each_fault_is_counted_under_its_own_reason() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let _session = stack.open().unwrap();
    let drops = |reason| stack.layer.head().drops().of(reason);
    let with = |at: usize, octet| {
        let mut octets = HI;
        octets[at] = octet;
        stack.arrive(&octets)
    };
    assert!(!with(1, 8) && drops(&reason::NO_PROTOCOL) == 1);
    assert!(!with(3, 3) && drops(&reason::BAD_LENGTH) == 1);
    assert!(!stack.arrive(&HI[..3]) && drops(&reason::TRUNCATED) == 1);
    assert!(stack.arrive(&HI));
    assert_eq!(stack.top.received(), 1);
}

#[test]
fn padding_is_cut_off() {
    let stack = Stack::new(NUMBER.into(), 1500);
    let _session = stack.open().unwrap();
    let mut padded = HI.to_vec();
    padded.resize(60, 0);
    assert!(stack.arrive(&padded));
    assert!(stack.top.take_received()[0].message.eq_octets(b"hi"));
}

#[test]
fn what_does_not_fit_is_refused() {
    for (below, max) in [(100, 96), (100_000, 65_535)] {
        let stack = Stack::new(NUMBER.into(), below);
        let session = stack.open().unwrap();
        let push = |len: u32| session.push(&stack.cx, stack.cx.message(&vec![0; len as usize]));
        assert_eq!(push(max), Ok(()));
        assert_eq!(push(max + 1), Err(PushError::TooBig { max }));
        let asked = session.ask(&stack.cx, MaxPacket::default());
        assert_eq!(asked.map(|q| q.octets), Some(max));
    }
    let stack = Stack::new(65_536, 100);
    assert_eq!(stack.open().err(), Some(OpenError::NoTypeNumber));
}
