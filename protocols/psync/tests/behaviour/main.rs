//! Conversations of several members, each a kernel of its own; the test carries their packets.

mod by_group;
mod leaving;
mod returns;
mod strangers;

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::object::{OpenError, PushError};
use xk_core::participant::AddressError;
use xk_core::random::Random;
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_kit::group::{
    Aside, Context, IsStable, Leaves, MaskOut, MemberAt, MemberState, MyMember, Node, NodeId,
    NodeOrder, OrderOf, Outstanding, PROCESS, PlaceOf, SendNull, TakeNulls,
};
use xk_kit::net::attribute::Peer;
use xk_psync::ENTRY;
use xk_psync::wire::{Header, kind};
use xk_testkit::kernel::{Bottom, Lower, Task, TestKernel, Top, octets};

const MS: Duration = Duration::from_millis(1);
/// Number of every process.
const NUMBER: u64 = 7;

/// One member: a host with psync on a layer of hosts.
struct Member {
    cx: TestKernel,
    bottom: Bottom,
    layer: ProtocolRef,
    top: Top,
}

fn host(at: usize) -> Part {
    Part::Host([10, 0, 0, at as u8 + 1].into())
}

fn process(number: u64) -> Participant {
    Participant::of(Part::Number(PROCESS, number))
}

impl Member {
    fn new(at: usize, parameters: &[(&'static str, i64)]) -> Self {
        Self::started(at, 1, parameters)
    }

    /// A member's host that was started so many times.
    fn started(at: usize, starts: u64, parameters: &[(&'static str, i64)]) -> Self {
        Self::on(TestKernel::with_stacks(at as u64 + 100 * starts), at, parameters)
    }

    fn on(cx: TestKernel, at: usize, parameters: &[(&'static str, i64)]) -> Self {
        let mut lower = Lower::host([10, 0, 0, at as u8 + 1], 253);
        let mut params = Params::default();
        for (name, value) in parameters {
            match *name {
                "max-packet" => lower.max_packet = *value as u32,
                "group" => params.set("group", Value::Text("239.1.1.1".into())),
                _ => params.set(name, Value::Integer(*value)),
            }
        }
        let bottom = Bottom::add(&cx, "bottom", lower);
        let below = core::slice::from_ref(bottom.protocol());
        let layer = ENTRY.add(&cx, "psync", below, &params).unwrap();
        let top = Top::add(&cx, "top");
        cx.start().unwrap();
        assert!(top.enable(&cx, &layer, Participants::local(process(NUMBER))).is_ok());
        Self { cx, bottom, layer, top }
    }

    fn open(&self, others: &[usize]) -> Result<SessionRef, OpenError> {
        let peers = others.iter().map(|at| Participant::of(host(*at)).with(process_part()));
        self.top.open(&self.cx, &self.layer, Participants::among(process(1), peers))
    }

    fn arrive(&self, from: usize, octets: &[u8]) -> bool {
        self.bottom.inject(&self.cx, Some(host(from)), self.cx.message(octets))
    }

    /// The session that another member's `OPEN` made, held from now on.
    fn opened(&self) -> SessionRef {
        let (session, _) = self.top.take_opened().remove(0);
        session.hold();
        session
    }

    fn heard(&self) -> Vec<(Node, Vec<u8>)> {
        let all = self.top.take_received();
        all.iter().map(|r| (r.message.attribute().unwrap(), octets(&r.message))).collect()
    }

    fn texts(&self) -> Vec<String> {
        let all = self.heard();
        all.into_iter().map(|(_, octets)| String::from_utf8(octets).unwrap()).collect()
    }

    fn drops(&self, name: &str) -> u64 {
        let all = self.layer.head().drops().list();
        all.iter().filter(|(reason, _)| reason.name == name).map(|(_, count)| count).sum()
    }
}

fn process_part() -> Part {
    Part::Number(PROCESS, NUMBER)
}

/// A packet under way, or a copy of one that was sent to the group.
#[derive(Clone)]
struct Packet {
    from: usize,
    to: usize,
    by_group: bool,
    octets: Vec<u8>,
}

/// Members of one conversation, and the network.
struct Net {
    members: Vec<Member>,
    sessions: Vec<SessionRef>,
    /// Incarnations of the members, as they should be.
    incarnations: Vec<u16>,
    frames: Cell<u64>,
}

impl Net {
    /// `n` members, the first of which has opened the conversation.
    fn new(n: usize, parameters: &[(&'static str, i64)]) -> Self {
        let members: Vec<Member> = (0..n).map(|at| Member::new(at, parameters)).collect();
        let others: Vec<usize> = (1..n).collect();
        let first = members[0].open(&others).unwrap();
        members[0].cx.advance(Duration::ZERO);
        let mut net =
            Self { members, sessions: vec![first], incarnations: vec![1; n], frames: Cell::new(0) };
        net.carry(|_| true);
        for at in 1..n {
            net.sessions.push(net.members[at].opened());
        }
        net.carry(|_| true);
        net
    }

    /// The packets sent since the last call.
    fn sent(&self) -> Vec<Packet> {
        let mut all = Vec::new();
        for (from, member) in self.members.iter().enumerate() {
            for sent in member.bottom.take_sent() {
                self.frames.set(self.frames.get() + 1);
                let octets = octets(&sent.message);
                let by_group = sent.peer == Some(Part::Host(by_group::GROUP.into()));
                let is_for = |to: &usize| sent.peer == Some(host(*to)) || by_group && *to != from;
                let before = all.len();
                for to in (0..self.members.len()).filter(is_for) {
                    all.push(Packet { from, to, by_group, octets: octets.clone() });
                }
                assert!(all.len() > before, "a packet for a member");
            }
        }
        all
    }

    fn arrive(&self, packet: &Packet) {
        let to = &self.members[packet.to];
        match packet.by_group {
            true => to.arrive_by_group(packet.from, &packet.octets),
            false => to.arrive(packet.from, &packet.octets),
        };
    }

    /// Carries packets until none is under way; those that are not `kept` are lost.
    fn carry(&self, kept: impl Fn(&Packet) -> bool) {
        for _ in 0..1000 {
            let all = self.sent();
            if all.is_empty() {
                return;
            }
            all.iter().filter(|packet| kept(packet)).for_each(|packet| self.arrive(packet));
        }
        panic!("packets without end");
    }

    fn advance(&self, by: Duration) {
        for member in &self.members {
            member.cx.advance(by);
        }
    }

    fn push(&self, at: usize, text: &str) -> Result<(), PushError> {
        let cx = &self.members[at].cx;
        self.sessions[at].push(cx, cx.message(text.as_bytes()))
    }

    fn ask<Q: xk_core::control::Question>(&self, at: usize, question: Q) -> Q {
        self.sessions[at].ask(&self.members[at].cx, question).unwrap()
    }

    fn texts(&self, at: usize) -> Vec<String> {
        self.members[at].texts()
    }

    /// Lets time pass, and carries everything, until nothing is outstanding.
    fn calm(&self) {
        for _ in 0..200 {
            self.carry(|_| true);
            let all = (0..self.members.len()).map(|at| self.ask(at, Outstanding::default()));
            if all.into_iter().all(|one| one == Outstanding::default()) {
                return;
            }
            self.advance(50 * MS);
        }
        let all = (0..self.members.len()).map(|at| self.ask(at, Outstanding::default()));
        panic!("something is outstanding: {:?}", all.collect::<Vec<_>>());
    }
}

#[test]
fn all_hear_all_in_the_order_of_causes() {
    let net = Net::new(3, &[]);
    net.push(0, "question").unwrap();
    let question = net.sent();
    // One host gets it late.
    net.arrive(&question[0]);
    assert_eq!(net.texts(1), ["question"]);
    net.push(1, "answer").unwrap();
    net.carry(|_| true);
    assert_eq!((net.texts(0), net.texts(2)), (vec!["answer".into()], Vec::<String>::new()));
    net.arrive(&question[1]);
    assert_eq!(net.texts(2), ["question", "answer"], "the cause comes first");
    net.calm();
}

#[test]
fn what_is_said_aside_has_no_place_in_the_graph() {
    let net = Net::new(3, &[("window", 1)]);
    net.push(0, "fills the window").unwrap();
    let lost = net.sent();
    let aside = |at: usize, member: u8| {
        let mut message = net.members[at].cx.message(b"aside");
        message.set_attribute(Aside { member }).unwrap();
        net.sessions[at].push(&net.members[at].cx, message)
    };
    assert_eq!(
        (aside(0, 2), aside(0, 0), aside(0, 3)),
        (Ok(()), Err(PushError::NoRoute), Err(PushError::NoRoute))
    );
    let sent = net.sent();
    assert_eq!(sent.iter().map(|packet| packet.to).collect::<Vec<_>>(), [2], "to one member");
    net.arrive(&sent[0]);
    let heard = net.members[2].top.take_received();
    let message = &heard[0].message;
    assert_eq!((heard.len(), octets(message)), (1, b"aside".to_vec()));
    assert_eq!(message.attribute(), Some(Aside { member: 0 }));
    assert_eq!(message.attribute::<Node>(), None);
    assert!(message.attribute::<Peer>().is_some(), "it bears its sender");
    // One that another than the sender brings, or with a number, is none.
    let other = Packet { from: 1, ..sent[0].clone() };
    net.arrive(&other);
    let mut numbered = sent[0].clone();
    numbered.octets[15] = 1;
    net.arrive(&numbered);
    assert_eq!((net.members[2].drops("not a member"), net.members[2].drops("malformed")), (1, 1));
    lost.iter().for_each(|packet| net.arrive(packet));
    assert_eq!(
        (net.texts(1), net.texts(2)),
        (vec!["fills the window".into()], vec!["fills the window".into()])
    );
    net.calm();
}

#[test]
fn each_knows_the_members_and_the_graph() {
    let net = Net::new(3, &[("window", 8)]);
    for at in 0..3 {
        let my = net.ask(at, MyMember::default());
        assert_eq!((my.index, my.members, my.window, my.incarnation), (at as u8, 3, 8, 1));
        let second = net.ask(at, MemberAt { index: 2, ..MemberAt::default() });
        assert_eq!(second.process, NUMBER as u32);
        assert_eq!(Part::Host(second.host), host(2));
    }
    for text in ["a", "b"] {
        net.push(0, text).unwrap();
        net.carry(|_| true);
        net.push(1, text).unwrap();
        net.push(2, text).unwrap();
        net.carry(|_| true);
    }
    let [a, b, c, d] = [(0, 1), (1, 1), (2, 1), (0, 2)].map(|(sender, seq)| NodeId { sender, seq });
    let order = |one, other| net.ask(1, OrderOf { one, other, order: NodeOrder::Unknown }).order;
    assert_eq!((order(a, b), order(b, a)), (NodeOrder::Before, NodeOrder::After));
    assert_eq!((order(b, c), order(b, d)), (NodeOrder::Concurrent, NodeOrder::Before));
    assert_eq!(order(a, NodeId { sender: 0, seq: 99 }), NodeOrder::Unknown);
    assert!(net.ask(1, IsStable { id: b, ..IsStable::default() }).by_all);
    let last = net.ask(0, IsStable { id: NodeId { sender: 1, seq: 2 }, ..IsStable::default() });
    assert_eq!((last.by_all, last.members), (false, 0b010));
    let leaves = net.ask(0, Leaves::default()).leaves;
    assert_eq!(leaves, [NodeId { sender: 1, seq: 2 }, NodeId { sender: 2, seq: 2 }]);
    let state = net.ask(0, MemberState { index: 1, ..MemberState::default() });
    assert_eq!((state.last, state.depth, state.is_masked), (2, 3, false));
    let nodes = net.ask(0, Context::default()).nodes;
    assert_eq!(nodes.len(), 6);
    assert_eq!(nodes[1], (d, 2, vec![b, c]));
    net.calm();
}

#[test]
fn what_is_lost_is_asked_for() {
    let net = Net::new(3, &[]);
    net.push(0, "one").unwrap();
    net.carry(|packet| packet.to != 2);
    net.texts(1);
    net.push(1, "two").unwrap();
    net.carry(|_| true);
    assert_eq!(net.texts(2), Vec::<String>::new());
    assert_eq!(net.ask(2, Outstanding::default()).waiting, 1);
    net.advance(20 * MS);
    let request = net.sent();
    let asked: Vec<_> = request.iter().filter(|p| p.octets[1] == kind::REQUEST).collect();
    assert_eq!((asked.len(), asked[0].to), (1, 1), "the sender of what waits has it");
    request.iter().for_each(|packet| net.arrive(packet));
    net.carry(|_| true);
    assert_eq!(net.texts(2), ["one", "two"]);
    // The last message has none behind it that would show its loss.
    net.push(2, "three").unwrap();
    net.carry(|_| false);
    net.advance(500 * MS);
    net.carry(|_| true);
    net.advance(50 * MS);
    net.carry(|_| true);
    assert_eq!(
        (net.texts(0), net.texts(1)),
        (vec!["two".into(), "three".into()], vec!["three".into()])
    );
    net.calm();
}

#[test]
fn an_open_is_repeated_until_each_has_answered() {
    let members: Vec<Member> = (0..3).map(|at| Member::new(at, &[])).collect();
    let first = members[0].open(&[1, 2]).unwrap();
    let net =
        Net { members, sessions: vec![first], incarnations: vec![1; 3], frames: Cell::new(0) };
    let opens = |sent: &[Packet]| {
        let all = sent.iter().filter(|packet| packet.octets[1] == kind::OPEN);
        all.map(|packet| packet.to).collect::<Vec<_>>()
    };
    net.advance(Duration::ZERO);
    assert_eq!(opens(&net.sent()), [1, 2]);
    net.advance(100 * MS);
    let again = net.sent();
    assert_eq!(opens(&again), [1, 2]);
    net.arrive(&again[0]);
    net.carry(|_| true);
    net.advance(200 * MS);
    assert_eq!(opens(&net.sent()), [2]);
    // Even one that starts much later is a member.
    net.advance(Duration::from_secs(60));
    let late = net.sent();
    assert!((9..20).contains(&opens(&late).len()));
    net.arrive(late.last().unwrap());
    net.carry(|_| true);
    net.advance(Duration::from_secs(60));
    assert_eq!(opens(&net.sent()), Vec::<usize>::new());
}

#[test]
fn a_push_waits_for_the_window() {
    let net = Rc::new(Net::new(2, &[("window", 4)]));
    let done: Rc<RefCell<Vec<u32>>> = Rc::default();
    let cx = &net.members[0].cx;
    let task = |n: u32| {
        let (done, session, message) =
            (Rc::clone(&done), net.sessions[0].clone(), cx.message(&[n as u8]));
        Box::new(move |cx: &Kernel| {
            assert_eq!(session.push(cx, message), Ok(()));
            done.borrow_mut().push(n);
        }) as Task
    };
    let tasks = (0..10).map(task).collect();
    let (most, inner) = (Rc::new(Cell::new(0)), Rc::clone(&net));
    let seen = Rc::clone(&most);
    let finished = cx.run_tasks(Duration::from_secs(10), tasks, move |_| {
        let (net, most) = (&inner, &seen);
        let sent = net.sent();
        most.set(most.get().max(sent.len()));
        sent.iter().for_each(|packet| net.arrive(packet));
        net.members[1].cx.advance(MS);
        net.sent().iter().for_each(|packet| net.arrive(packet));
        sent.len()
    });
    assert!(finished && most.get() <= 4, "{}", most.get());
    net.calm();
    assert_eq!(*done.borrow(), (0..10).collect::<Vec<_>>(), "first come, first served");
    assert_eq!(net.members[1].heard().len(), 10);
}

#[test]
fn upcalls_of_concurrent_messages_run_together_and_no_others() {
    let members = 4;
    for (upcalls, together) in [(1, 1), (2, 2), (4, 3)] {
        let net = Net::new(members, &[("upcalls", upcalls)]);
        let (running, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let seen = (Rc::clone(&running), Rc::clone(&most));
        net.members[0].top.on_demux(Some(Rc::new(move |cx, _, _| {
            let (running, most) = &seen;
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            let _ = cx.wait(&Semaphore::new(0), Some(10 * MS));
            running.set(running.get() - 1);
            Ok(())
        })));
        // Three that are concurrent, and one that follows all of them.
        (1..members).for_each(|at| net.push(at, "first").unwrap());
        let first = net.sent();
        first.iter().filter(|packet| packet.to == 1).for_each(|packet| net.arrive(packet));
        net.push(1, "second").unwrap();
        let second = net.sent();
        let cx = &net.members[0].cx;
        let to_me = first.iter().chain(&second).filter(|p| p.to == 0 && p.octets[1] == kind::DATA);
        let packets: Vec<Packet> = to_me.cloned().collect();
        assert_eq!(packets.len(), 4);
        let task = |packet: Packet| {
            let (bottom, message) = (net.members[0].bottom.clone(), cx.message(&packet.octets));
            let from = host(packet.from);
            Box::new(move |cx: &Kernel| {
                let _taken = bottom.inject(cx, Some(from), message);
            }) as Task
        };
        let finished =
            cx.run_tasks(Duration::from_secs(1), packets.into_iter().map(task).collect(), |_| 0);
        cx.advance(100 * MS);
        assert!(finished);
        assert_eq!(most.get(), together, "with {upcalls} upcalls");
        let texts = net.texts(0);
        assert_eq!((texts.len(), texts.last().map(String::as_str)), (4, Some("second")));
    }
}

#[test]
fn nulls_are_heard_by_those_that_take_them() {
    let net = Net::new(3, &[]);
    net.ask(1, TakeNulls);
    net.push(0, "one").unwrap();
    net.carry(|_| true);
    net.ask(2, SendNull);
    net.calm();
    let heard: Vec<bool> = net.members[1].heard().iter().map(|(node, _)| node.is_null).collect();
    assert_eq!((heard, net.texts(0)), (vec![false, true], Vec::<String>::new()));
    let first = NodeId { sender: 0, seq: 1 };
    assert_eq!(net.ask(0, IsStable { id: first, ..IsStable::default() }).members, 0b101);
}

/// An upcall that sends a null must not wait for room that other upcalls would make.
#[test]
fn a_null_does_not_wait_for_the_window() {
    let net = Net::new(2, &[("window", 2)]);
    (0..2).for_each(|_| net.push(0, "x").unwrap());
    assert!(net.sessions[0].ask(&net.members[0].cx, SendNull).is_none(), "no room");
    net.calm();
    net.ask(0, SendNull);
    net.calm();
    let place = |seq, wants_past| {
        let id = NodeId { sender: 0, seq };
        net.sessions[1].ask(&net.members[1].cx, PlaceOf { id, wants_past, ..PlaceOf::default() })
    };
    let null = place(3, true).unwrap();
    assert_eq!((null.depth, null.is_null, null.past), (2, true, vec![3, 0]));
    let second = place(2, false).unwrap();
    assert_eq!((second.depth, second.is_null, second.past), (1, false, vec![]));
    assert!(place(4, true).is_none());
    assert_eq!(net.members[0].drops("queue full"), 0);
}

#[test]
fn a_member_that_is_masked_out_holds_no_other_up() {
    let net = Net::new(3, &[("window", 2)]);
    for _ in 0..2 {
        net.push(0, "x").unwrap();
    }
    net.carry(|packet| packet.to != 2);
    net.advance(50 * MS);
    net.carry(|packet| packet.to != 2 && packet.from != 2);
    assert_eq!(net.ask(0, Outstanding::default()).unheld, 2);
    let masked = net.ask(0, MaskOut { index: 2, last: 9 });
    assert_eq!((masked.last, net.ask(0, Outstanding::default()).unheld), (0, 0));
    net.push(0, "goes").unwrap();
    net.members[2].texts();
    net.push(2, "late").unwrap();
    net.carry(|packet| packet.to == 0 || packet.from == 0);
    assert_eq!(net.members[0].drops("member masked out"), 1);
    assert!(net.sessions[0].ask(&net.members[0].cx, MaskOut { index: 0, last: 0 }).is_none());
}

/// Messages that a member sent before it was masked out precede those that others sent after them.
#[test]
fn messages_of_a_masked_member_come_from_others() {
    let net = Net::new(3, &[]);
    net.push(2, "last words").unwrap();
    net.carry(|packet| packet.to == 1);
    net.push(1, "after them").unwrap();
    net.carry(|packet| packet.to == 0);
    net.ask(0, MaskOut { index: 2, last: 0 });
    net.advance(20 * MS);
    net.carry(|packet| packet.from != 2 && packet.to != 2);
    assert_eq!(net.texts(0), ["last words", "after them"]);
}

/// A request has room for 64 messages, however large the window is.
#[test]
fn a_large_window_is_asked_for_in_parts() {
    let net = Net::new(2, &[("window", 200)]);
    (0..150).for_each(|n| net.push(0, &format!("{n}")).unwrap());
    drop(net.sent());
    net.push(0, "last").unwrap();
    net.carry(|_| true);
    for _ in 0..20 {
        net.advance(20 * MS);
        net.carry(|_| true);
    }
    let texts = net.texts(1);
    assert_eq!((texts.len(), texts.last().map(String::as_str)), (151, Some("last")));
    assert_eq!(net.members[0].drops("malformed"), 0);
}

#[test]
fn questions_about_no_member_harm_nothing() {
    let net = Net::new(2, &[]);
    let id = NodeId { sender: 200, seq: 1 };
    assert!(!net.ask(0, IsStable { id, ..IsStable::default() }).by_all);
    let order = OrderOf { one: id, other: id, order: NodeOrder::Before };
    assert_eq!(net.ask(0, order).order, NodeOrder::Unknown);
    assert!(
        net.sessions[0]
            .ask(&net.members[0].cx, MemberAt { index: 9, ..MemberAt::default() })
            .is_none()
    );
    let state = MemberState { index: 9, ..MemberState::default() };
    assert!(net.sessions[0].ask(&net.members[0].cx, state).is_none());
}

#[test]
fn an_opener_does_not_choose_how_much_memory_others_take() {
    let (small, large) = (Member::new(0, &[("window", 8)]), Member::new(1, &[("window", 9)]));
    large.open(&[0, 2]).unwrap();
    large.cx.advance(Duration::ZERO);
    let open = octets(&large.bottom.take_sent()[0].message);
    assert!(!small.arrive(1, &open));
    assert_eq!(small.drops("beyond the window"), 1);
}

#[test]
fn an_open_needs_two_to_64_different_members() {
    let member = Member::new(0, &[]);
    let count = OpenError::Address(AddressError::Count);
    let many: Vec<usize> = (1..65).collect();
    assert_eq!((member.open(&[]).err(), member.open(&many).err()), (Some(count), Some(count)));
    assert_eq!(member.open(&[1, 1]).err(), Some(OpenError::InUse));
    assert_eq!(member.bottom.held().len(), 0, "nothing is left open below");
    let one = member.open(&[1, 2]).unwrap();
    assert_eq!(member.open(&[1, 2]).unwrap(), one, "the same list is the same conversation");
    assert_ne!(member.open(&[2, 1]).unwrap(), one);
    one.close(&member.cx);
    one.close(&member.cx);
    assert!(one.head().is_closed());
    assert_ne!(member.open(&[1, 2]).unwrap(), one, "a closed one is over");
}

#[test]
fn strangers_are_not_heard_and_get_nothing() {
    let net = Net::new(3, &[]);
    net.push(0, "secret").unwrap();
    let data = net.sent().remove(0);
    let mut request = Header::parse(data.octets.first_chunk().unwrap());
    (request.kind, request.entries, request.length) = (kind::REQUEST, 1, 0);
    (request.sender, request.seq, request.flags) = (1, 0, 0);
    let request = [&request.emit()[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
    // A stranger with all octets right, and a member that speaks for another.
    assert!(!net.members[0].arrive(9, &request));
    assert!(!net.members[1].arrive(9, &data.octets));
    assert!(!net.members[1].arrive(2, &data.octets));
    assert_eq!(net.sent().len(), 0);
    assert!(net.members[0].arrive(1, &request));
    assert_eq!(net.sent().len(), 1, "a member gets it");
    assert_eq!(net.texts(1), Vec::<String>::new());
}

/// Without a buffer a message stays in its place, and comes up later.
#[test]
fn no_message_is_lost_for_want_of_a_buffer() {
    let net = Net::new(2, &[]);
    for n in 0..3 {
        net.push(0, &format!("{n}")).unwrap();
    }
    let packets = net.sent();
    let cx = &net.members[1].cx;
    let arriving: Vec<_> = packets.iter().map(|packet| cx.message(&packet.octets)).collect();
    let mut all = Vec::new();
    let (pool, mut frees) = (cx.pool(), arriving.into_iter());
    let mut fill = || {
        while let Ok(message) = pool.empty(0) {
            all.push(message);
        }
    };
    fill();
    for message in frees.by_ref() {
        net.members[1].bottom.inject(cx, Some(host(0)), message);
        fill();
    }
    assert_eq!(net.texts(1), Vec::<String>::new(), "there is no buffer");
    drop(all);
    net.advance(10 * MS);
    assert_eq!(net.texts(1), ["0", "1", "2"]);
    net.calm();
}

#[test]
fn requests_are_answered_within_bounds() {
    let net = Net::new(2, &[("window", 8)]);
    (0..8).for_each(|_| net.push(0, "body").unwrap());
    let mut header = Header::parse(net.sent()[0].octets.first_chunk().unwrap());
    (header.kind, header.entries, header.length) = (kind::REQUEST, 8, 0);
    (header.sender, header.seq, header.flags) = (1, 0, 0);
    let entries: Vec<u8> = (1..=8).flat_map(|n| [0, 0, 0, 1, 0, 0, 0, n]).collect();
    let request = [&header.emit()[..], &entries].concat();
    for _ in 0..1000 {
        net.members[0].arrive(1, &request);
    }
    assert_eq!(net.sent().len(), 16, "twice the window in 100 ms");
    net.members[0].cx.advance(100 * MS);
    net.members[0].arrive(1, &request);
    assert_eq!(net.sent().len(), 8);
    // Entries that are not there, or too many.
    for (count, octets) in
        [(9, &entries[..]), (255, &entries), (8, &entries[..63]), (1, &[0, 9, 0, 1, 0, 0, 0, 1])]
    {
        header.entries = count;
        assert!(!net.members[0].arrive(1, &[&header.emit()[..], octets].concat()), "{count}");
    }
}

#[test]
fn opens_of_strangers_are_bounded() {
    let member = Member::new(0, &[("sessions_max", 16)]);
    let other = Member::new(1, &[]);
    other.open(&[0, 2]).unwrap();
    other.cx.advance(Duration::ZERO);
    let open = octets(&other.bottom.take_sent()[0].message);
    assert!(member.arrive(1, &open));
    let held = member.opened();
    for n in 0..1000_u32 {
        let mut octets = open.clone();
        octets[4..8].copy_from_slice(&(n + 1).to_be_bytes());
        member.arrive(30 + n as usize % 200, &octets);
    }
    assert!(!held.head().is_closed(), "one that is held stays");
    let sent = member.bottom.take_sent();
    assert!(sent.iter().all(|sent| sent.peer != Some(host(2))), "a named host hears nothing");
    for (at, octet) in [(0, 2), (1, 4), (2, 0), (3, 1), (9, 1), (11, 2), (21, 0), (43, 9)] {
        let mut octets = open.clone();
        octets[4..8].copy_from_slice(&[9; 4]);
        octets[at] = octet;
        assert!(!member.arrive(1, &octets), "octet {at}");
    }
}

/// A random conversation: loss, duplicates and late packets, as many as the seed says; perhaps by a
/// group.
fn converse(seed: u64, by_group: bool) {
    let random = Random::new(seed);
    let n = 2 + random.below(8) as usize;
    let window = 2 + random.below(15) as i64;
    let loss = random.below(300_000) as u32;
    let mut parameters = vec![("window", window), ("upcalls", 1 + random.below(3) as i64)];
    parameters.extend(by_group.then_some(("group", 1)));
    let net = Net::new(n, &parameters);
    let mut under_way: Vec<Packet> = Vec::new();
    let mut sent = vec![0_u32; n];
    let mut heard: Vec<Vec<NodeId>> = vec![Vec::new(); n];
    // What each message follows: its sender's own, and all that it had heard.
    let mut causes: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
    let mut lost = 0;
    for _ in 0..400 {
        let at = random.below(n as u64) as usize;
        let unheld = net.ask(at, Outstanding::default()).unheld;
        if random.chance(0.3) && i64::from(unheld) < window {
            sent[at] += 1;
            let id = NodeId { sender: at as u8, seq: sent[at] };
            let own = (1..sent[at]).map(|seq| NodeId { sender: at as u8, seq });
            causes.insert(id, heard[at].iter().copied().chain(own).collect());
            net.push(at, &format!("{at}:{}", sent[at])).unwrap();
        }
        for packet in net.sent() {
            if random.chance_per_million(loss) {
                lost += 1;
                continue;
            }
            if random.chance(0.1) {
                under_way.push(packet.clone());
            }
            under_way.push(packet);
        }
        for _ in 0..random.below(6) {
            if !under_way.is_empty() {
                let packet = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
                net.arrive(&packet);
            }
        }
        if random.chance(0.2) {
            net.advance(Duration::from_millis(random.below(30)));
        }
        note(&net, &mut heard, &causes, seed);
    }
    under_way.iter().for_each(|packet| net.arrive(packet));
    net.calm();
    note(&net, &mut heard, &causes, seed);
    let all: u32 = sent.iter().sum();
    for (at, heard) in heard.iter().enumerate() {
        assert_eq!(heard.len() as u32, all - sent[at], "seed {seed}: member {at} has heard all");
    }
    let needed = u64::from(all) * (n as u64 - 1);
    // Packets of messages, acknowledgements of half windows or 40 ms, and what follows losses.
    assert!(net.frames.get() <= 4 * (needed + lost) + 600, "seed {seed}: {}", net.frames.get());
}

#[test]
fn a_third_lost_slows_it_down_and_no_more() {
    for seed in 1..20 {
        let (random, net) = (Random::new(seed), Net::new(3, &[]));
        let (mut sent, mut heard, mut took) = ([0; 3], [0; 3], Duration::ZERO);
        while heard.iter().sum::<usize>() < 600 {
            for (at, sent) in sent.iter_mut().enumerate() {
                let unheld = net.ask(at, Outstanding::default()).unheld;
                if *sent < 100 && unheld < 16 {
                    net.push(at, "x").unwrap();
                    *sent += 1;
                }
            }
            net.carry(|_| random.chance(0.7));
            net.advance(10 * MS);
            took += 10 * MS;
            (0..3).for_each(|at| heard[at] += net.members[at].heard().len());
            assert!(took < Duration::from_secs(60), "seed {seed}: {sent:?} {heard:?}");
        }
    }
}

/// Notes what was heard, and looks whether all of its causes had been.
fn note(
    net: &Net,
    heard: &mut [Vec<NodeId>],
    causes: &BTreeMap<NodeId, BTreeSet<NodeId>>,
    seed: u64,
) {
    for (at, heard) in heard.iter_mut().enumerate() {
        for (node, octets) in net.members[at].heard() {
            assert_eq!(octets, format!("{}:{}", node.id.sender, node.id.seq).into_bytes());
            let has = |id: &NodeId| usize::from(id.sender) == at || heard.contains(id);
            assert!(causes[&node.id].iter().all(has), "seed {seed}: {node:?} too early at {at}");
            assert!(!heard.contains(&node.id), "seed {seed}: {node:?} twice at {at}");
            heard.push(node.id);
        }
    }
}

#[test]
fn random_conversations_keep_the_order() {
    let seeds = std::env::var("XK_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let first = std::env::var("XK_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    (first..first + seeds).for_each(|seed| converse(seed, false));
    (first..first + seeds).for_each(|seed| converse(seed, true));
}
