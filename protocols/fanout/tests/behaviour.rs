//! Tests of this layer's own matters: copies to each host, the members of a room, and the end of
//! ways.

use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;
use xk_core::control::Describe;
use xk_core::graph::{Params, Value};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::participant::AddressError;
use xk_core::{Part, Participants, ProtocolRef, SessionRef, reason};
use xk_fanout::{ENTRY, ROOM};
use xk_kit::control::{MaxPacket, MyHost, PeerHost};
use xk_kit::layer::{MEMBERS_MAX, NOT_A_MEMBER};
use xk_kit::net::attribute::Peer;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

/// The type number of the protocol above.
const NUMBER: u8 = 7;

struct Stack {
    cx: TestKernel,
    bottom: Bottom,
    layer: ProtocolRef,
    top: Top,
}

/// Host number `n`; ours is 1.
fn host(n: u8) -> Part {
    Part::Host([10, 0, 0, n].into())
}

fn peer(n: u8) -> Peer {
    Peer { host: [10, 0, 0, n].into(), port: 0 }
}

/// Our end of a room, and these hosts.
fn room(room: u64, hosts: &[u8]) -> Participants {
    let mut ends = Participants::local(Part::Number(ROOM, room));
    hosts.iter().for_each(|n| ends.push(host(*n).into()));
    ends
}

/// A frame for a room.
fn frame(room: u8, text: &[u8]) -> Vec<u8> {
    [&[0, NUMBER, 0, room, 0, text.len() as u8], text].concat()
}

impl Stack {
    fn new(joins: bool) -> Self {
        Self::on(TestKernel::new(1), joins)
    }

    fn on(cx: TestKernel, joins: bool) -> Self {
        let bottom = Bottom::add(&cx, "bottom", Lower::host([10, 0, 0, 1], 254));
        let mut params = Params::default();
        params.set("joins", Value::Bool(joins));
        let below = core::slice::from_ref(bottom.protocol());
        let layer = ENTRY.add(&cx, "layer", below, &params).unwrap();
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), layer.id(), NUMBER.into());
        cx.start().unwrap();
        Self { cx, bottom, layer, top }
    }

    fn try_open(&self, ends: Participants) -> Result<SessionRef, OpenError> {
        self.top.open(&self.cx, &self.layer, ends)
    }

    fn open(&self, ends: Participants) -> SessionRef {
        self.try_open(ends).unwrap()
    }

    fn push(&self, session: &SessionRef, text: &[u8], to: Option<u8>) -> Result<(), PushError> {
        let mut message = self.cx.message(text);
        if let Some(to) = to {
            message.set_attribute(peer(to)).unwrap();
        }
        session.push(&self.cx, message)
    }

    /// Hosts and octets of the frames sent since the last call.
    fn sent(&self) -> Vec<(Part, Vec<u8>)> {
        let sent = self.bottom.take_sent();
        sent.iter().map(|sent| (sent.peer.unwrap(), octets(&sent.message))).collect()
    }

    fn arrive(&self, from: u8, room: u8, text: &[u8]) -> bool {
        self.bottom.inject(&self.cx, Some(host(from)), self.cx.message(&frame(room, text)))
    }

    /// Senders and texts that came out since the last call.
    fn heard(&self) -> Vec<(Option<Peer>, Vec<u8>)> {
        let received = self.top.take_received();
        received.iter().map(|r| (r.message.attribute(), octets(&r.message))).collect()
    }

    /// The session below to a host.
    fn way(&self, n: u8) -> SessionRef {
        self.bottom.session(&self.cx, Some(host(n)), None).unwrap()
    }

    fn drops(&self, reason: &xk_core::Reason) -> u64 {
        self.layer.head().drops().of(reason)
    }

    fn described(&self, session: &SessionRef) -> String {
        session.ask(&self.cx, Describe::default()).unwrap().text
    }
}

#[test]
fn a_copy_goes_to_each_host_or_to_the_one_that_is_named() {
    let stack = Stack::new(false);
    let session = stack.open(room(3, &[2, 3, 4]));
    stack.push(&session, b"all", None).unwrap();
    let copy = |n| (host(n), frame(3, b"all"));
    assert_eq!(stack.sent(), [copy(2), copy(3), copy(4)]);
    stack.push(&session, b"one", Some(3)).unwrap();
    assert_eq!(stack.sent(), [(host(3), frame(3, b"one"))]);
    assert_eq!(stack.push(&session, b"none", Some(5)), Err(PushError::NoRoute));
    assert_eq!((stack.sent().len(), stack.drops(&NOT_A_MEMBER)), (0, 1));
    assert_eq!(
        stack.described(&session),
        "room 3 of number 7, with [10.0.0.2, 10.0.0.3, 10.0.0.4]"
    );
    let largest = session.ask(&stack.cx, MaxPacket::default()).unwrap();
    assert_eq!(largest.octets, 65_515 - 6);
    assert!(session.ask(&stack.cx, PeerHost::default()).is_none(), "it has several");
}

#[test]
fn only_the_hosts_of_a_room_are_heard_in_it() {
    let stack = Stack::new(false);
    let session = stack.open(room(0, &[2, 3]));
    assert!(stack.arrive(2, 0, b"two") && stack.arrive(3, 0, b"three"));
    let heard = [(Some(peer(2)), b"two".to_vec()), (Some(peer(3)), b"three".to_vec())];
    assert_eq!(stack.heard(), heard);
    assert!(!stack.arrive(4, 0, b"four") && stack.drops(&NOT_A_MEMBER) == 1);
    assert!(!stack.arrive(2, 1, b"another room") && stack.drops(&reason::NO_PROTOCOL) == 1);
    assert_eq!(stack.heard().len(), 0);
    stack.push(&session, b"back", None).unwrap();
    assert_eq!(stack.sent().len(), 2, "the stranger is not answered");
}

#[test]
fn strangers_join_where_they_may() {
    let stack = Stack::new(true);
    let session = stack.open(room(0, &[2]));
    assert!(stack.arrive(3, 0, b"three"));
    assert_eq!(stack.way(3).head().opens(), 1, "held with the room");
    stack.push(&session, b"back", None).unwrap();
    assert_eq!(stack.sent().iter().map(|sent| sent.0).collect::<Vec<_>>(), [host(2), host(3)]);
    assert_eq!(stack.way(3).head().opens(), 1, "held with the room");
    // One that joined gives way to others, one that an open named does not.
    for n in 4..MEMBERS_MAX as u8 + 4 {
        assert!(stack.arrive(n, 0, b"joins"));
    }
    stack.push(&session, b"back", None).unwrap();
    let sent = stack.sent();
    assert_eq!((sent.len(), sent[0].0, sent[1].0), (MEMBERS_MAX, host(2), host(5)));
    assert_eq!(stack.way(3).head().opens(), 0, "given back");
    assert_eq!(stack.way(5).head().opens(), 1);
    session.close(&stack.cx);
    assert!(stack.bottom.held().is_empty(), "a room that is closed holds nothing");
}

#[test]
fn a_first_message_makes_a_room_and_an_open_adds_its_hosts() {
    let stack = Stack::new(false);
    let any = Participants::local(Part::Any);
    assert!(stack.top.enable(&stack.cx, &stack.layer, any).is_ok());
    assert!(stack.arrive(2, 5, b"hello"));
    let made = stack.top.take_opened().pop().unwrap().0;
    assert!(stack.bottom.held().is_empty(), "a stranger's message holds nothing");
    let session = stack.open(room(5, &[2, 3]));
    assert_eq!(session, made);
    assert!(stack.arrive(3, 5, b"hello"), "one of the room by now");
    stack.push(&session, b"back", None).unwrap();
    assert_eq!(stack.sent().iter().map(|sent| sent.0).collect::<Vec<_>>(), [host(2), host(3)]);
    session.close(&stack.cx);
    assert!(stack.bottom.held().is_empty() && session.head().is_closed());
}

#[test]
fn an_open_is_whole_or_nothing() {
    let stack = Stack::new(false);
    let mut ends = room(0, &[2, 3]);
    ends.push(Part::Ether([2; 6]).into());
    assert_eq!(stack.try_open(ends).unwrap_err(), AddressError::WrongFamily.into());
    assert_eq!(stack.try_open(room(0, &[])).unwrap_err(), AddressError::Count.into());
    assert_eq!(stack.try_open(room(65_536, &[2])).unwrap_err(), AddressError::OutOfRange.into());
    assert!(stack.bottom.held().is_empty());
    let all: Vec<u8> = (2..MEMBERS_MAX as u8 + 2).collect();
    let session = stack.open(room(0, &all));
    assert_eq!(stack.try_open(room(0, &[200, 201])).unwrap_err(), OpenError::Full);
    stack.push(&session, b"all", None).unwrap();
    assert_eq!(stack.sent().len(), MEMBERS_MAX);
    // A host that is named twice gets one copy.
    let other = stack.open(room(1, &[2, 2, 3]));
    stack.push(&other, b"both", None).unwrap();
    assert_eq!(stack.sent().len(), 2);
    session.close(&stack.cx);
    other.close(&stack.cx);
    assert!(stack.bottom.held().is_empty());
}

#[test]
fn a_way_that_ends_is_opened_again_and_the_others_go_on() {
    let stack = Stack::new(true);
    let session = stack.open(room(0, &[2, 3]));
    assert!(stack.arrive(4, 0, b"joins"));
    for n in [2, 4] {
        stack.way(n).abort(&stack.cx);
    }
    assert!(!session.head().is_closed());
    let opens = stack.bottom.opens();
    stack.push(&session, b"all", None).unwrap();
    let sent = stack.sent();
    assert_eq!(sent.iter().map(|sent| sent.0).collect::<Vec<_>>(), [host(2), host(3)]);
    assert_eq!(stack.bottom.opens(), opens + 1);
    // The new way is told of like the first.
    stack.way(2).abort(&stack.cx);
    stack.push(&session, b"all", None).unwrap();
    assert_eq!((stack.sent().len(), stack.bottom.opens()), (2, opens + 2));
}

#[test]
fn a_room_of_strangers_ends_with_its_last_way() {
    let stack = Stack::new(true);
    let any = Participants::local(Part::Any);
    assert!(stack.top.enable(&stack.cx, &stack.layer, any).is_ok());
    assert!(stack.arrive(2, 5, b"hello") && stack.arrive(3, 5, b"hello"));
    let room = stack.top.take_opened().pop().unwrap().0;
    stack.way(2).abort(&stack.cx);
    assert!(!room.head().is_closed());
    stack.way(3).abort(&stack.cx);
    assert!(room.head().is_closed());
}

#[test]
fn a_copy_that_finds_no_buffer_is_counted() {
    let stack = Stack::on(TestKernel::small(1, 1 << 16, 16), false);
    let session = stack.open(room(0, &[2, 3, 4]));
    let message = stack.cx.message(b"all");
    let mut all = Vec::new();
    while let Ok(one) = message.try_clone() {
        all.push(one);
    }
    assert_eq!(session.push(&stack.cx, message), Err(PushError::NoBuffers));
    assert_eq!(stack.drops(&reason::NO_BUFFERS), 2);
    assert_eq!(stack.bottom.sent(), 1, "the last goes as it is");
}

/// A stranger that made a room before it was opened is no part of it.
#[test]
fn an_open_takes_no_stranger_over() {
    let stack = Stack::new(false);
    let any = Participants::local(Part::Any);
    assert!(stack.top.enable(&stack.cx, &stack.layer, any).is_ok());
    assert!(stack.arrive(9, 5, b"stranger"));
    let session = stack.open(room(5, &[2, 3]));
    assert_eq!(stack.top.take_opened().pop().unwrap().0, session);
    stack.push(&session, b"all", None).unwrap();
    assert_eq!(stack.sent().iter().map(|sent| sent.0).collect::<Vec<_>>(), [host(2), host(3)]);
    assert!(!stack.arrive(9, 5, b"stranger") && stack.drops(&NOT_A_MEMBER) == 1);
    assert!(!session.head().is_closed());
}

/// While a question about a room waits below, its peers may come and go.
#[test]
fn a_room_changes_while_a_question_waits() {
    let stack = Stack::on(TestKernel::with_stacks(1), true);
    let session = stack.open(room(0, &[2, 3]));
    stack.bottom.block(Duration::from_millis(10));
    let (asked, closes, bottom) = (session.clone(), session.clone(), stack.bottom.clone());
    let message = stack.cx.message(&frame(0, b"joins"));
    let room = session.clone();
    let is_closed = move || room.head().is_closed();
    let all = stack.cx.run_tasks(
        Duration::from_secs(1),
        vec![
            Box::new(move |cx| assert!(asked.ask(cx, MyHost::default()).is_some())),
            // It is refused if the room is closed by then.
            Box::new(move |cx| assert!(bottom.inject(cx, Some(host(4)), message) || is_closed())),
            Box::new(move |cx| closes.close(cx)),
        ],
        |_| 0,
    );
    assert!(all && stack.bottom.held().is_empty());
}

/// A push to all goes to the others when one of them leaves meanwhile.
#[test]
fn a_copy_reaches_each_that_stays() {
    let stack = Stack::new(true);
    let session = stack.open(room(0, &[2]));
    (3..6).for_each(|n| assert!(stack.arrive(n, 0, b"joins")));
    let gone = stack.way(3);
    let ends = gone.clone();
    stack.bottom.on_push(Rc::new(move |cx, _| ends.abort(cx)));
    stack.push(&session, b"all", None).unwrap_or_default();
    let sent: Vec<_> = stack.sent().iter().map(|sent| sent.0).collect();
    assert!([2, 4, 5].iter().all(|n| sent.contains(&host(*n))), "{sent:?}");
    assert!(gone.head().is_closed());
}

/// A stranger that came first keeps no other host out, and strangers that joined do not either.
#[test]
fn a_stranger_takes_no_other_hosts_place() {
    let stack = Stack::new(false);
    let any = Participants::local(Part::Any);
    assert!(stack.top.enable(&stack.cx, &stack.layer, any).is_ok());
    assert!(stack.arrive(2, 5, b"first") && stack.arrive(3, 5, b"second"));
    let heard = [(Some(peer(2)), b"first".to_vec()), (Some(peer(3)), b"second".to_vec())];
    assert_eq!(stack.heard(), heard);
    let made = stack.top.take_opened();
    assert!(made[0].0.head().is_closed() && !made[1].0.head().is_closed());
    // The protocol above holds a room: its hosts alone are heard.
    made[1].0.hold();
    assert!(!stack.arrive(2, 5, b"third") && stack.drops(&NOT_A_MEMBER) == 1);
    let stack = Stack::new(true);
    let session = stack.open(room(0, &[2]));
    (3..100).for_each(|n| assert!(stack.arrive(n, 0, b"joins")));
    assert_eq!(stack.open(room(0, &[200])), session);
    stack.push(&session, b"to one", Some(200)).unwrap();
    assert_eq!(stack.sent().len(), 1);
}

#[test]
fn a_late_refusal_goes_back_by_the_way_of_its_message() {
    let stack = Stack::new(false);
    let _session = stack.open(room(0, &[2, 3]));
    assert!(stack.arrive(2, 0, b"two") && stack.arrive(3, 0, b"three"));
    // The way to 2 has ended by now: its sender is not told, and no way is opened for it.
    stack.way(2).abort(&stack.cx);
    let opens = stack.bottom.opens();
    for taken in stack.top.take_received() {
        taken.session.refused(&stack.cx, Refused::new(taken.message, &reason::NO_PORT));
    }
    assert_eq!(stack.bottom.take_refused(), [(&reason::NO_PORT, frame(0, b"three"))]);
    assert_eq!(stack.bottom.opens(), opens);
}

/// A push waits for a way to open again; meanwhile the room is closed.
#[test]
fn a_room_may_close_while_a_way_opens() {
    let stack = Stack::on(TestKernel::with_stacks(1), false);
    let session = stack.open(room(0, &[2]));
    stack.way(2).abort(&stack.cx);
    stack.bottom.block(Duration::from_millis(10));
    let (pushed, sender) = (Rc::new(Cell::new(None)), session.clone());
    let into = Rc::clone(&pushed);
    let message = stack.cx.message(b"late");
    let closes = session.clone();
    let all = stack.cx.run_tasks(
        Duration::from_secs(1),
        vec![
            Box::new(move |cx| into.set(Some(sender.push(cx, message)))),
            Box::new(move |cx| closes.close(cx)),
        ],
        |_| 0,
    );
    assert!(all);
    assert_eq!(pushed.get(), Some(Err(PushError::Closed)));
    assert!(stack.bottom.held().is_empty(), "the way is closed again");
    assert_eq!(stack.cx.live().0, 0, "the message is gone");
}
