//! Rights that are found by an index in the frames: two modules on one link, and a peer that sends
//! what it likes. No index changes whose a frame is.

use std::rc::Rc;
use xk_core::object::ProtocolId;
use xk_core::{Message, Part, Participants, ProtocolRef, SessionRef};
use xk_domains::{Arrival, Carrier, Queue};
use xk_kit::control::MaxPacket;
use xk_kit::net::template::Headers;
use xk_netio::{
    FORGED, GrantChannel, GrantRight, INDEX_TYPE, Module, Rate, RevokeRight, STRAY_OFFER,
};
use xk_testkit::conformance::messages::pattern;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const THIRD: [u8; 6] = [2, 0, 0, 0, 0, 3];
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
/// The type of the frames of the first conversation; those of others count on.
const TYPE: u16 = 0x3900;

/// A station with a module on its wire.
struct Host {
    cx: TestKernel,
    tap: Bottom,
    netio: ProtocolRef,
    module: Rc<Module>,
    eth: ProtocolRef,
    own: [u8; 6],
    top: Top,
}

/// A program with a right, and the right's number.
struct Program {
    end: Queue,
    right: u32,
}

impl Program {
    fn received(&self, host: &Host) -> Vec<Vec<u8>> {
        let next = || match self.end.receive(&host.cx) {
            Arrival::Frame(frame) => Some(octets(&frame)),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }
}

impl Host {
    fn new(own: [u8; 6], by_index: bool) -> Self {
        let cx = TestKernel::new(6);
        let tap = Bottom::add(&cx, "tap", Lower::wire(own));
        let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
        if by_index {
            module.use_indices();
        }
        let entry = &xk_eth::ENTRY;
        let params = xk_core::graph::Params::default();
        let eth =
            entry.add(&cx, "eth", std::slice::from_ref(&netio), &params).expect("it is built");
        // What no program has a right to comes here.
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), eth.id(), TYPE.into());
        cx.start().expect("it starts");
        assert!(top.enable(&cx, &eth, Participants::local(Part::Any)).is_ok());
        Self { cx, tap, netio, module, eth, own, top }
    }

    /// A conversation with a station, and a program that has the right to it.
    fn program(&self, peer: [u8; 6], kind: u16) -> Program {
        let top = Top::add(&self.cx, &format!("top {kind:x} {peer:?}"));
        self.cx.numbers_mut().override_pair(top.id(), self.eth.id(), kind.into());
        let ends = Participants::pair(Part::Any, Part::Ether(peer));
        let session: SessionRef = top.open(&self.cx, &self.eth, ends).expect("a session");
        let headers = Headers::of(&self.cx, &session).expect("every layer tells");
        session.close(&self.cx);
        self.granted(headers)
    }

    fn granted(&self, headers: Headers) -> Program {
        let granted = self.netio.ask(&self.cx, GrantChannel::new(FREELY)).expect("it is known");
        let of = (ProtocolId(7), Participants::default());
        let right = GrantRight { channel: granted.number, headers, of, number: None };
        let right = self.netio.ask(&self.cx, right).and_then(|right| right.number);
        let (own, end) = Queue::pair(256);
        let ticket = granted.ticket.expect("there is room");
        assert!(self.module.attach(&self.cx, &ticket, Box::new(own)).is_ok());
        Program { end, right: right.expect("there is room") }
    }

    fn revoke(&self, program: &Program) {
        let question = RevokeRight { number: program.right, was_there: false };
        assert!(self.netio.ask(&self.cx, question).is_some_and(|question| question.was_there));
    }

    /// Frames on the wire once the module has looked at its channels.
    fn sent(&self) -> Vec<Vec<u8>> {
        while self.module.carry_all(&self.cx, 64) > 0 {}
        self.tap.take_sent().iter().map(|sent| octets(&sent.message)).collect()
    }

    fn arrives(&self, frame: &[u8]) {
        assert!(self.tap.inject(&self.cx, None, self.cx.message(frame)), "the module has the wire");
    }

    /// A frame of a conversation from this station.
    fn frame(&self, to: [u8; 6], kind: u16) -> Vec<u8> {
        [&to[..], &self.own, &kind.to_be_bytes(), &pattern(60, kind as u8)].concat()
    }

    /// Sends a program's frame, and returns the frames on the wire.
    fn sends(&self, program: &Program, frame: &[u8]) -> Vec<Vec<u8>> {
        program.end.send(&self.cx, frame, &self.cx.message(&[])).expect("there is room");
        self.sent()
    }

    fn says(&self) -> String {
        let question = xk_core::control::Describe::default();
        self.netio.ask(&self.cx, question).expect("it is known").text
    }
}

/// The index of a frame, 0 for an offer.
fn index(frame: &[u8]) -> Option<u16> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (frame.len() >= 16 && word(12) == INDEX_TYPE).then(|| word(14))
}

fn with_index(frame: &[u8], index: u16) -> Vec<u8> {
    let tag = [INDEX_TYPE.to_be_bytes(), index.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

/// The offers among frames, which are as long as Ethernet has them at least.
fn offers(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let offers: Vec<_> = frames.iter().filter(|frame| index(frame) == Some(0)).cloned().collect();
    assert!(offers.iter().all(|offer| offer.len() >= 60));
    offers
}

/// Two stations whose programs have told each other's modules their indices.
fn acquainted() -> (Host, Program, Host, Program) {
    let (one, other) = (Host::new(ONE, true), Host::new(OTHER, true));
    let program = one.program(OTHER, TYPE + 1);
    let first = offers(&one.sent());
    assert_eq!(first.len(), 1, "the new right is offered");
    other.arrives(&first[0]);
    assert_eq!(other.netio.head().drops().of(&STRAY_OFFER), 1, "there is no such right yet");
    let peer = other.program(ONE, TYPE + 1);
    let second = offers(&other.sent());
    one.arrives(&second[0]);
    (one, program, other, peer)
}

#[test]
fn both_sides_come_to_use_the_indices_of_the_other() {
    let (one, program, other, peer) = acquainted();
    let (there, back) = (one.frame(OTHER, TYPE + 1), other.frame(ONE, TYPE + 1));
    // The first offer came too early: what comes without an index is answered by another one.
    for frame in one.sends(&program, &there) {
        assert!(index(&frame).is_some_and(|index| index != 0), "it has been told");
        assert_eq!(with_index(&there, index(&frame).unwrap_or(0)), frame, "nothing else differs");
        other.arrives(&frame);
    }
    assert_eq!(peer.received(&other), std::slice::from_ref(&there), "as it was sent");
    let without = other.sends(&peer, &back);
    assert_eq!(without, std::slice::from_ref(&back), "it has not been told");
    one.arrives(&back);
    assert_eq!(program.received(&one), std::slice::from_ref(&back));
    let again = offers(&one.sent());
    assert_eq!(again.len(), 1);
    other.arrives(&again[0]);
    for frame in other.sends(&peer, &back) {
        assert!(index(&frame).is_some_and(|index| index != 0));
        one.arrives(&frame);
    }
    assert_eq!(program.received(&one), [back]);
    assert!(one.says().ends_with("1 by index, 1 by headers, 0 with an index astray"));
    assert_eq!((one.top.received(), other.top.received()), (0, 0));
}

/// A peer without indices never gets a frame with one, and is told few times that there are some.
#[test]
fn a_peer_that_has_none_is_left_in_peace() {
    let one = Host::new(ONE, true);
    let program = one.program(OTHER, TYPE + 1);
    let other = Host::new(OTHER, false);
    let peer = other.program(ONE, TYPE + 1);
    let (there, back) = (one.frame(OTHER, TYPE + 1), other.frame(ONE, TYPE + 1));
    let mut offered = offers(&one.sent()).len();
    for _ in 0..1000 {
        one.arrives(&back);
        let sent = one.sends(&program, &there);
        offered += offers(&sent).len();
        let plain: Vec<_> = sent.iter().filter(|frame| index(frame).is_none()).collect();
        assert_eq!(plain, [&there]);
        assert_eq!(program.received(&one), std::slice::from_ref(&back));
    }
    assert_eq!(offered, 1 + 10, "as often as 1000 has bits, and once at first");
    assert_eq!(other.sends(&peer, &back), [back]);
}

/// The headers of a frame decide whose it is, whatever index it bears: an arbitrary one, that of an
/// ended right, or another's.
#[test]
fn no_index_changes_whose_a_frame_is() {
    let one = Host::new(ONE, true);
    let programs: Vec<_> = (1..=3).map(|n| one.program(OTHER, TYPE + n)).collect();
    let foreign = one.program(THIRD, TYPE + 1);
    one.revoke(&programs[1]);
    drop(one.sent());
    let other = Host::new(OTHER, true);
    for index in 0..=u16::MAX {
        for n in 0..=3_u16 {
            let frame = other.frame(ONE, TYPE + n);
            one.arrives(&match index {
                0 => frame.clone(),
                _ => with_index(&frame, index),
            });
            for (program, own) in programs.iter().zip(1..=3) {
                let got = program.received(&one);
                let is_own = own == n && n != 2;
                assert_eq!(
                    got,
                    if is_own { vec![frame.clone()] } else { vec![] },
                    "{index} {n} {:?}",
                    one.netio.head().drops().list()
                );
            }
        }
        assert!(foreign.received(&one).is_empty(), "{index}: it is another station's");
        assert_eq!(one.top.take_received().len(), 1, "{index}: what has no right goes up");
        drop(one.sent());
    }
    assert!(
        one.says().ends_with(&format!(
            "2 by index, {} by headers, {} with an index astray",
            2 * 65_536 - 2,
            4 * 65_535 - 2
        )),
        "{}",
        one.says()
    );
}

/// Offers are taken from the station alone to which the right's frames go, and of that right.
#[test]
fn forged_offers_are_dropped() {
    let (one, program, other, _peer) = acquainted();
    let there = one.frame(OTHER, TYPE + 1);
    let uses = || index(&one.sends(&program, &there)[0]);
    let told = uses();
    let offer = |from: [u8; 6], to: [u8; 6], index: u16, headers: &[u8]| {
        let tag = [INDEX_TYPE.to_be_bytes(), [0; 2], index.to_be_bytes()].concat();
        [&to[..], &from, &tag, headers].concat()
    };
    let drops = || one.netio.head().drops().of(&STRAY_OFFER);
    let back = other.frame(ONE, TYPE + 1);
    let forged = [
        offer(THIRD, ONE, 77, &back[..14]),
        offer(OTHER, ONE, 77, &other.frame(ONE, TYPE + 2)[..14]),
        offer(THIRD, ONE, 77, &Host::new(THIRD, true).frame(ONE, TYPE + 1)[..14]),
        offer(OTHER, THIRD, 77, &back[..14]),
        offer(OTHER, ONE, 0, &back[..14]),
    ];
    for (count, forged) in (1..).zip(&forged) {
        one.arrives(forged);
        assert_eq!((uses(), drops()), (told, count), "{forged:02x?}");
    }
    let whole = offer(OTHER, ONE, 77, &back[..14]);
    for end in 0..whole.len() {
        one.arrives(&whole[..end]);
        assert_eq!(uses(), told, "cut at {end}");
    }
    for at in 0..whole.len() * 8 {
        let mut altered = whole.clone();
        altered[at / 8] ^= 1 << (at % 8);
        one.arrives(&altered);
        // Only the index itself may be any.
        if !(128..144).contains(&at) {
            assert_eq!(uses(), told, "bit {at}");
        }
        one.arrives(&offer(OTHER, ONE, told.unwrap_or(0), &back[..14]));
    }
    one.arrives(&whole);
    assert_eq!(uses(), Some(77), "the station may have another one");
    assert!(one.top.take_received().is_empty(), "no offer goes up");
}

/// A program has no say in indices.
#[test]
fn a_program_that_sends_an_index_or_an_offer_forges() {
    let (one, program, _other, _peer) = acquainted();
    let there = one.frame(OTHER, TYPE + 1);
    for index in [0, 1, 77] {
        assert!(one.sends(&program, &with_index(&there, index)).is_empty());
    }
    assert_eq!(one.netio.head().drops().of(&FORGED), 3);
}

/// To many at once there is none, nor to any.
#[test]
fn what_goes_to_no_single_station_has_no_index() {
    let one = Host::new(ONE, true);
    one.program([0xff; 6], TYPE + 1);
    let group = [0x01, 0, 0x5e, 0, 0, 1];
    one.program(group, TYPE + 2);
    let top = Top::add(&one.cx, "any");
    one.cx.numbers_mut().override_pair(top.id(), one.eth.id(), u32::from(TYPE) + 3);
    let ends = Participants::pair(Part::Any, Part::Ether(THIRD));
    let session = top.open(&one.cx, &one.eth, ends).expect("a session");
    let headers = Headers::of(&one.cx, &session).expect("every layer tells");
    one.granted(headers.clone().for_any_peer());
    one.granted(Headers { received: Default::default(), ..headers });
    assert_eq!(one.sent(), [[0; 0]; 0]);
}

#[test]
fn frames_are_shorter_by_an_index() {
    let (with, without) = (Host::new(ONE, true), Host::new(ONE, false));
    let largest = |host: &Host| {
        let of_protocol = host.netio.ask(&host.cx, MaxPacket::default()).map(|q| q.octets);
        let top = Top::add(&host.cx, "largest");
        host.cx.numbers_mut().override_pair(top.id(), host.eth.id(), u32::from(TYPE) + 1);
        let ends = Participants::pair(Part::Any, Part::Ether(OTHER));
        let session = top.open(&host.cx, &host.eth, ends).expect("a session");
        let headers = Headers::of(&host.cx, &session).expect("every layer tells");
        let of_session = session.ask(&host.cx, MaxPacket::default()).map(|q| q.octets);
        let (sent, received) = (headers.sent.octets_max(), headers.received.octets_max());
        (of_protocol.unwrap_or(0), of_session.unwrap_or(0), sent, received)
    };
    let (a, b, c, d) = largest(&without);
    assert_eq!(largest(&with), (a - 4, b - 4, c - 4, d));
}

/// Rights come and go: an index that was given up leads to nothing for a while, and there is always
/// one for each right.
#[test]
fn indices_are_used_again_late() {
    let one = Host::new(ONE, true);
    let mut seen = Vec::new();
    for _ in 0..1000 {
        let program = one.program(OTHER, TYPE + 1);
        let offer = offers(&one.sent()).pop().expect("each right has one");
        seen.push(u16::from_be_bytes([offer[16], offer[17]]));
        one.revoke(&program);
        program.end.close();
        one.sent();
    }
    assert!(seen.iter().all(|index| (1..=256).contains(index)), "the table does not grow");
    assert!(seen.windows(256).all(|all| all.iter().filter(|i| **i == all[0]).count() == 1));
}

/// An index may come with a message that lies in several pieces.
#[test]
fn a_frame_in_pieces_is_found_too() {
    let (one, program, other, _peer) = acquainted();
    let back = other.frame(ONE, TYPE + 1);
    let tagged = with_index(&back, 1);
    for cut in 1..tagged.len() {
        let mut message: Message = one.cx.message(&tagged[..cut]);
        message.join(one.cx.message(&tagged[cut..]));
        assert!(one.tap.inject(&one.cx, None, message));
        assert_eq!(program.received(&one), std::slice::from_ref(&back), "cut at {cut}");
    }
}
