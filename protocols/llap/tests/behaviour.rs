//! Tests of the frames on the cable and of arrivals, octet by octet.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::ddp::{self, Long};
use xk_core::graph::Params;
use xk_core::{Answer, Part, Participant, Participants, ProtocolRef};
use xk_kit::net::appletalk::{ClaimNode, NodeClaimed, node};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

struct Cable {
    cx: TestKernel,
    wire: Bottom,
    llap: ProtocolRef,
    top: Top,
    told: Rc<RefCell<Vec<NodeClaimed>>>,
}

impl Cable {
    /// A node that asks for this number, alone or first.
    fn new(number: u8, is_only: bool) -> Self {
        let cx = TestKernel::new(1);
        let wire = Bottom::add(&cx, "cable", Lower::link(603));
        let lowers = [wire.protocol().clone()];
        let llap = xk_llap::ENTRY.add(&cx, "llap", &lowers, &Params::default()).unwrap();
        let top = Top::add(&cx, "ddp");
        let told = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&told);
        top.on_ask(Rc::new(move |_, ask| match ask.get::<NodeClaimed>() {
            Some(claimed) => {
                heard.borrow_mut().push(*claimed);
                Answer::Answered
            }
            None => Answer::Unknown,
        }));
        cx.start().unwrap();
        let _ = top.enable(&cx, &llap, Participants::local(Part::Any)).unwrap();
        let claim = ClaimNode { claim: 3, first: 10, last: 10, net: 10, node: number, is_only };
        assert!(llap.ask(&cx, claim).is_some());
        Self { cx, wire, llap, top, told }
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        self.wire.take_sent().iter().map(|sent| sent.message.octets().collect()).collect()
    }

    fn arrive(&self, octets: &[u8]) -> bool {
        self.wire.inject(&self.cx, None, self.cx.message(octets))
    }

    fn told(&self) -> Vec<(u8, u16, u8, bool)> {
        let told = self.told.take();
        told.iter().map(|t| (t.claim, t.net, t.node, t.is_disputed)).collect()
    }

    fn open(&self, to: Participant) -> xk_core::SessionRef {
        self.top.open(&self.cx, &self.llap, Participants::pair(Part::Any, to)).unwrap()
    }
}

/// AEP's reply of tailtalk, node 157 to 42.
const REPLY: &[u8] =
    &[0x2a, 0x9d, 1, 0, 0x0d, 0x81, 4, 4, 2, 0x70, 0x69, 0x6e, 0x67, 0x2d, 0x6c, 0x74];

#[test]
fn a_node_asks_ten_times_then_answers_for_its_number() {
    let cable = Cable::new(42, true);
    let early = cable.open(node(10, 157));
    let from = AtAddr::new(10, 42, 0x81);
    let datagram = ddp::join(AtAddr::new(10, 157, 4), from, 4, b"\x01ping-lt", true).unwrap();
    early.push(&cable.cx, cable.cx.message(&datagram)).unwrap();
    for _ in 0..20 {
        cable.cx.advance(Duration::from_millis(100));
    }
    let sent = cable.sent();
    assert_eq!(sent[..10], vec![vec![42, 42, 0x81]; 10]);
    // What waited goes with the short header, since both ends are of one network.
    let short = [&[0x9d, 0x2a, 1, 0, 0x0d, 4, 0x81, 4][..], b"\x01ping-lt"].concat();
    assert_eq!(sent[10..], [short]);
    assert_eq!(cable.told(), [(3, 10, 42, false)]);
    assert!(cable.arrive(&[42, 42, 0x81]));
    assert_eq!(cable.sent(), [[42, 42, 0x82]]);
    assert!(!cable.arrive(&[7, 42, 0x81]));
    assert_eq!(cable.llap.head().drops().of(&xk_llap::CONFLICT), 1);
}

#[test]
fn a_short_header_becomes_a_long_one() {
    let cable = Cable::new(42, true);
    for _ in 0..20 {
        cable.cx.advance(Duration::from_millis(100));
    }
    assert!(cable.arrive(REPLY));
    let received = cable.top.take_received();
    let octets: Vec<u8> = received[0].message.octets().collect();
    let (long, data) = ddp::split(&octets).unwrap();
    let expected = Long::new(AtAddr::new(10, 42, 0x81), AtAddr::new(10, 157, 4), 4, data.len());
    assert_eq!((Some(long), data), (expected, &b"\x02ping-lt"[..]));
    // To another network, and from one, it stays long.
    let other = ddp::join(AtAddr::new(20, 1, 4), AtAddr::new(10, 42, 129), 4, b"x", true).unwrap();
    let router = cable.open(node(10, 157));
    drop(cable.sent());
    router.push(&cable.cx, cable.cx.message(&other)).unwrap();
    assert_eq!(cable.sent(), [[&[157, 42, 2][..], &other].concat()]);
    assert!(cable.arrive(&[&[255, 9, 2][..], &other].concat()));
    assert!(cable.top.take_received()[0].message.eq_octets(&other));
    for len in 0..REPLY.len() {
        // Of what is cut short behind the headers the layer above has to tell.
        cable.arrive(&REPLY[..len]);
    }
    assert!(!cable.arrive(&[43, 157, 1, 0, 5, 1, 1, 4]), "for another");
}

#[test]
fn a_number_that_another_has_is_left_to_it_or_tried_again_later() {
    let any = Cable::new(42, false);
    assert_eq!(any.sent(), [[42, 42, 0x81]]);
    assert!(any.arrive(&[42, 42, 0x82]));
    let next = any.sent();
    assert!(next[0][0] != 42 && next[0][2] == 0x81, "{next:?}");
    let only = Cable::new(42, true);
    drop(only.sent());
    assert!(only.arrive(&[42, 42, 0x82]));
    only.cx.advance(Duration::from_secs(9));
    assert_eq!((only.sent().len(), only.told()), (0, vec![(3, 10, 42, true)]));
    for _ in 0..20 {
        only.cx.advance(Duration::from_millis(200));
    }
    assert_eq!((only.sent().len(), only.told()), (10, vec![(3, 10, 42, false)]));
}
