//! Calls to many in the simulator: one host calls one to seven others on a network that loses,
//! repeats and delays, some of which refuse, are slow, or are cut off and masked out.

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::ListSessions;
use xk_core::object::{CallCause, CallError};
use xk_core::random::Random;
use xk_core::shepherd::Semaphore;
use xk_core::{Part, Participant, Participants, SessionRef};
use xk_kit::group::{MaskOut, MemberState, PROCESS, Want};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{BUSY, CallOptions, CancelCall, Gather, PROCEDURE};
use xk_sim::{HostId, World};
use xk_testkit::kernel::{Top, octets};
use xk_testkit::seeds;

const MS: Duration = Duration::from_millis(1);

/// The end of a call: the reply, or why there is none.
type End = Result<String, CallError>;

/// A host that calls, and others that execute.
struct Group {
    world: World,
    hosts: Vec<HostId>,
    tops: Vec<Top>,
    session: SessionRef,
    /// The requests that each host has executed, in their order.
    executed: Vec<Rc<RefCell<Vec<String>>>>,
}

impl Group {
    fn new(n: usize, layers: &str, link: &str, seed: u64) -> Self {
        let host = |at: usize| {
            let address = at + 1;
            format!(
                "host h{at} {{\n sim link=lan\n eth sim\n arp eth\n \
                 ip arp {{ address \"10.0.0.{address}/24\"; }}\n {layers}\n}}\n"
            )
        };
        let text: String = (0..n).map(host).chain([format!("link lan {link}\n")]).collect();
        let checked = check(&text, "calls", &xk_catalog::standard());
        let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let hosts: Vec<HostId> = (0..n).map(|at| world.find(&format!("h{at}")).unwrap()).collect();
        let (mut tops, mut executed) = (Vec::new(), Vec::new());
        for (at, host) in hosts.iter().enumerate() {
            let list = Rc::new(RefCell::new(Vec::new()));
            executed.push(Rc::clone(&list));
            let top = world.enter(*host, |cx| {
                let top = Top::add(cx, "top");
                if at > 0 {
                    let all = Participant::of(Part::Number(PROCESS, 7)).with(Part::Any);
                    let layer = cx.find_protocol("groupcall").unwrap();
                    assert!(top.enable(cx, &layer, Participants::local(all)).is_ok());
                }
                top
            });
            let top = top.unwrap();
            top.on_serve(Some(Rc::new(move |cx, _, request| {
                let text = String::from_utf8(octets(&request)).unwrap();
                list.borrow_mut().push(text.clone());
                match text.as_bytes()[0] {
                    b's' => drop(cx.wait(&Semaphore::new(0), Some(30 * MS))),
                    b'r' => return Err(&BUSY),
                    // One of them does.
                    b'o' if at == 1 => return Err(&BUSY),
                    _ => {}
                }
                Ok(cx.pool().copy_from(128, format!("{at}:{text}").as_bytes()).unwrap())
            })));
            tops.push(top);
        }
        let session = Rc::new(RefCell::new(None));
        let (top, opened) = (tops[0].clone(), Rc::clone(&session));
        world.spawn(hosts[0], move |cx| {
            let peer = |at: usize| {
                let host = Part::Host([10, 0, 0, at as u8 + 1].into());
                let end = Participant::of(host).with(Part::Number(PROCESS, 7));
                if at == 1 { end.with(Part::Number(PROCEDURE, 9)) } else { end }
            };
            let own = Participant::of(Part::Number(PROCESS, 1));
            let ends = Participants::among(own, (1..n).map(peer));
            let layer = cx.find_protocol("groupcall").unwrap();
            *opened.borrow_mut() = top.open(cx, &layer, ends).ok();
        });
        let until = world.now().after(1000 * MS);
        world.run_until(until);
        let session = session.borrow().clone().expect("it is opened");
        Self { world, hosts, tops, session, executed }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.world.now().after(time);
        self.world.run_until(until);
    }

    /// Calls all; the end is there when the call is over.
    fn call(&mut self, text: &str, want: Want, deadline: Duration) -> Rc<RefCell<Option<End>>> {
        let (session, text) = (self.session.clone(), text.to_owned());
        let end = Rc::new(RefCell::new(None));
        let ends = Rc::clone(&end);
        self.world.spawn(self.hosts[0], move |cx| {
            let mut request = cx.pool().copy_from(128, text.as_bytes()).unwrap();
            request.set_attribute(want).unwrap();
            let options = CallOptions { deadline: cx.now().after(deadline), tag: 7 };
            request.set_attribute(options).unwrap();
            let reply = session.call(cx, request);
            let text = |reply| String::from_utf8(octets(&reply)).unwrap();
            *ends.borrow_mut() = Some(reply.map(text));
        });
        end
    }

    fn drops(&mut self, at: usize) -> Vec<(&'static str, u64)> {
        let list = self.world.enter(self.hosts[at], |cx| {
            cx.find_protocol("groupcall").unwrap().head().drops().list()
        });
        list.unwrap().into_iter().map(|(reason, count)| (reason.name, count)).collect()
    }

    /// A session of this host's in the conversation, if a call has come there.
    fn session_at(&self, at: usize) -> Option<SessionRef> {
        match at {
            0 => Some(self.session.clone()),
            _ => self.tops[at].take_opened().pop().map(|(session, _)| session),
        }
    }
}

fn layers(seed: u64) -> String {
    match seed % 3 {
        0 => "psync ip\n groupcall psync total=\"200s\"".into(),
        1 => "psync ip window=4\n order psync\n groupcall order total=\"200s\"".into(),
        _ => "psync ip upcalls=3\n order psync safe=#true\n groupcall order total=\"200s\"".into(),
    }
}

/// Calls by chance. Of a third of the groups a member is cut off on the way, and masked out.
fn converse(seed: u64) {
    let random = Random::new(seed);
    let n = 2 + random.below(7) as usize;
    let link = format!(
        "delay=\"{}us\" jitter=\"{}us\" loss=\"{}\" duplicate=\"0.1\" reorder=\"0.2\"",
        10 + random.below(5000),
        1 + random.below(5000),
        random.below(31) as f64 / 100.0
    );
    let mut group = Group::new(n, &layers(seed), &link, seed);
    let mut calls = Vec::new();
    let mut talk = |group: &mut Group, count: usize| {
        for _ in 0..count {
            let kind = ["f", "f", "f", "s", "r", "o"][random.below(6) as usize];
            let text = format!("{kind}{}", calls.len());
            let want = match random.below(4) {
                0 => Want::Majority,
                1 => Want::Count(1 + random.below(n as u64 - 1) as u8),
                _ => Want::All,
            };
            let end = group.call(&text, want, Duration::from_secs(150));
            calls.push((text, want, end));
            if random.chance(0.5) {
                group.pass(Duration::from_micros(random.below(30_000)));
            }
        }
    };
    talk(&mut group, 12);
    let dies = n > 2 && random.chance(0.3);
    let dead = n - 1;
    if dies {
        group.pass(random.below(100) as u32 * MS);
        (0..dead)
            .for_each(|at| group.world.network().partition(group.hosts[dead], group.hosts[at]));
        group.pass(60_000 * MS);
        let sessions: Option<Vec<SessionRef>> = (0..dead).map(|at| group.session_at(at)).collect();
        let Some(sessions) = sessions else {
            return;
        };
        let state = MemberState { index: dead as u8, ..MemberState::default() };
        let ask = |group: &mut Group, at: usize| {
            let host = group.hosts[at];
            group.world.enter(host, |cx| sessions[at].ask(cx, state)).unwrap().unwrap().last
        };
        let all: BTreeSet<u32> = (0..dead).map(|at| ask(&mut group, at)).collect();
        if all.len() > 1 {
            // Membership would have those that heard more of it say so.
            return;
        }
        for (at, session) in sessions.iter().enumerate() {
            let mask = MaskOut { index: dead as u8, last: 0 };
            let masked = group.world.enter(group.hosts[at], |cx| session.ask(cx, mask));
            assert!(masked.unwrap().is_some(), "seed {seed}");
        }
        talk(&mut group, 6);
    }
    group.pass(200_000 * MS);
    let live = if dies { dead } else { n };
    let one = group.executed[1].borrow().clone();
    for at in 1..live {
        assert_eq!(*group.executed[at].borrow(), one, "seed {seed}: at {at} of {n}");
        let drops = group.drops(at);
        let is_repeated = drops.iter().any(|(name, _)| *name == "repeated call");
        assert!(!is_repeated, "seed {seed}: {drops:?}");
    }
    if dies {
        let before = group.executed[dead].borrow();
        assert_eq!(one[..before.len()], before[..], "seed {seed}: what the dead one executed");
    }
    assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), one.len(), "seed {seed}: once each");
    assert_eq!(one.len(), calls.len(), "seed {seed}: all calls are executed");
    for (text, want, end) in &calls {
        let end = end.borrow();
        let end = end.as_ref().unwrap_or_else(|| panic!("seed {seed}: {text} is not over"));
        let at = |end: &str| end.split_once(':').map(|(at, of)| (at.parse().unwrap(), of == text));
        match end {
            Ok(reply) => {
                let (at, is_its): (usize, bool) = at(reply).unwrap();
                assert!(is_its && at > 0 && at < n, "seed {seed}: {reply} to {text}");
                assert!(!text.starts_with('r') && (at, &text[..1]) != (1, "o"), "seed {seed}");
            }
            Err(CallError { cause: CallCause::Rejected(why), .. }) => match why.reason.name {
                "too few members" => assert!(dies && *want != Want::All, "seed {seed}: {text}"),
                _ => assert!(
                    text.starts_with('r')
                        || text.starts_with('o') && *want != Want::All
                        || live == 2,
                    "seed {seed}: {text}"
                ),
            },
            Err(error) => panic!("seed {seed}: {text}: {error}"),
        }
    }
}

#[test]
fn calls_are_executed_once_at_all_in_one_order() {
    seeds::of(1).run(converse);
}

fn end(of: &Rc<RefCell<Option<End>>>) -> End {
    of.borrow().clone().expect("the call is over")
}

#[test]
fn a_call_ends_with_the_replies_that_it_wants() {
    let mut group = Group::new(4, "psync ip\n groupcall psync", "delay=\"1ms\"", 1);
    let warm = group.call("f0", Want::All, 10_000 * MS);
    group.pass(1000 * MS);
    assert!(end(&warm).is_ok());
    group.world.network().partition(group.hosts[0], group.hosts[3]);
    let waits = [
        (Want::Count(1), true),
        (Want::Majority, true),
        (Want::Count(2), true),
        (Want::Count(3), false),
        (Want::All, false),
    ];
    let calls = waits.map(|(want, _)| group.call("f1", want, 5000 * MS));
    group.pass(1000 * MS);
    for ((want, is_over), call) in waits.iter().zip(&calls) {
        assert_eq!(call.borrow().is_some(), *is_over, "{want:?}");
    }
    // One member fewer is not one that has replied.
    let session = group.session.clone();
    let mask = MaskOut { index: 3, last: 0 };
    assert!(group.world.enter(group.hosts[0], |cx| session.ask(cx, mask)).unwrap().is_some());
    group.pass(10 * MS);
    assert!(end(&calls[4]).is_ok(), "all that are left have replied");
    let few = end(&calls[3]).unwrap_err();
    assert!(matches!(few.cause, CallCause::Rejected(r) if r.reason.name == "too few members"));
    // The other two are gone as well; a call to all is refused, one that has a deadline ends at it.
    let late = group.call("s2", Want::All, 20 * MS);
    group.pass(100 * MS);
    assert!(matches!(end(&late), Err(CallError { cause: CallCause::TimedOut { .. }, .. })));
    let mask = MaskOut { index: 2, last: 0 };
    group.world.enter(group.hosts[0], |cx| session.ask(cx, mask)).unwrap().unwrap();
    let mask = MaskOut { index: 1, last: 0 };
    group.world.enter(group.hosts[0], |cx| session.ask(cx, mask)).unwrap().unwrap();
    let none = group.call("f3", Want::All, 5000 * MS);
    group.pass(10 * MS);
    assert!(matches!(end(&none), Err(CallError { cause: CallCause::Rejected(_), .. })));
}

#[test]
fn replies_are_gathered_one_by_one() {
    let mut group = Group::new(4, "psync ip\n groupcall psync", "delay=\"1ms\" loss=\"20%\"", 3);
    let (session, ends) = (group.session.clone(), Rc::new(RefCell::new(Vec::new())));
    let all = Rc::clone(&ends);
    group.world.spawn(group.hosts[0], move |cx| {
        for gather in [Gather::First, Gather::Next, Gather::Next, Gather::Next, Gather::Next] {
            let mut request = cx.pool().copy_from(128, b"o1").unwrap();
            let options = CallOptions { deadline: cx.now().after(20_000 * MS), tag: 5 };
            request.set_attribute(options).unwrap();
            request.set_attribute(gather).unwrap();
            let reply = session.call(cx, request);
            all.borrow_mut().push(reply.map(|r| (octets(&r), r.attribute::<Peer>().is_some())));
        }
    });
    group.pass(19_000 * MS);
    let ends = ends.take();
    let replies: BTreeSet<_> = ends.iter().filter_map(|end| end.as_ref().ok()).collect();
    let wanted: BTreeSet<_> = [(b"2:o1".to_vec(), true), (b"3:o1".to_vec(), true)].into();
    assert_eq!(replies.into_iter().cloned().collect::<BTreeSet<_>>(), wanted);
    let causes: Vec<CallCause> =
        ends.iter().filter_map(|end| end.as_ref().err()).map(|error| error.cause).collect();
    let refused = causes.iter().filter(|cause| matches!(cause, CallCause::Rejected(_))).count();
    assert_eq!(refused, 1, "{causes:?}");
    let over = |cause: &CallCause| matches!(cause, CallCause::TimedOut { .. });
    assert_eq!(causes.iter().filter(|cause| over(cause)).count(), 2, "{causes:?}");
    assert_eq!(*group.executed[3].borrow(), ["o1"], "once");
}

#[test]
fn calls_are_taken_back_wherever_they_wait() {
    let mut group = Group::new(2, "psync ip\n groupcall psync", "delay=\"1ms\"", 1);
    group.world.network().partition(group.hosts[0], group.hosts[1]);
    // The window has room for 16 requests; the others wait there.
    let calls: Vec<_> = (0..40).map(|_| group.call("f", Want::All, 3000 * MS)).collect();
    group.pass(10 * MS);
    assert!(calls.iter().all(|call| call.borrow().is_none()));
    let session = group.session.clone();
    let cancel = CancelCall { tag: 7 };
    let known = group.world.enter(group.hosts[0], |cx| session.ask(cx, cancel)).unwrap();
    assert!(known.is_some());
    group.pass(5000 * MS);
    for call in &calls {
        assert!(matches!(end(call), Err(CallError { cause: CallCause::Cancelled, .. })));
    }
}

/// Members that send what no member of good faith does.
#[test]
fn members_that_lie_are_dropped_and_counted() {
    let mut group = Group::new(3, "psync ip\n groupcall psync", "delay=\"1ms\"", 1);
    let warm = group.call("f0", Want::All, 10_000 * MS);
    group.pass(1000 * MS);
    assert!(end(&warm).is_ok());
    let frames = Rc::new(Cell::new(0));
    // Host 2 lies, by the session of its conversation.
    let below = group.world.enter(group.hosts[2], |cx| {
        let psync = cx.find_protocol("psync").unwrap();
        let found = psync.ask(cx, ListSessions::first(1)).unwrap();
        found.here().next().unwrap().clone()
    });
    let below = below.unwrap();
    let header = |kind: u8, why: u8, call: u32, procedure: u32, first: u32| {
        let words = [call, procedure, first].map(u32::to_be_bytes).concat();
        [&[kind, 0, 0, why][..], &words].concat()
    };
    let lies = [
        // Replies to calls that there are not, a refusal of one, and reminders of calls unheard of.
        (Some(0), header(2, 0, 1, 9, 0), 0, "no such call"),
        (Some(0), header(2, 4, 1, 9, 0), 0, "no such call"),
        (Some(1), header(3, 0, 1, 9, 1), 1, "no such reply"),
        // A call aside, a reply in the conversation, and what is neither.
        (Some(1), header(1, 0, 1, 9, 1), 1, "malformed"),
        (None, header(2, 0, 1, 9, 0), 1, "malformed"),
        (Some(0), header(9, 0, 1, 9, 0), 0, "malformed"),
        (Some(0), vec![2, 0], 0, "truncated"),
    ];
    for (to, octets, at, why) in lies {
        let count = |group: &mut Group| {
            let drops = group.drops(at);
            drops.iter().filter(|(name, _)| *name == why).map(|(_, count)| count).sum::<u64>()
        };
        let before = count(&mut group);
        let (below, sent) = (below.clone(), Rc::clone(&frames));
        group.world.spawn(group.hosts[2], move |cx| {
            for _ in 0..10 {
                let mut message = cx.pool().copy_from(128, &octets).unwrap();
                if let Some(member) = to {
                    message.set_attribute(xk_kit::group::Aside { member }).unwrap();
                }
                sent.set(sent.get() + u32::from(below.push(cx, message).is_ok()));
            }
        });
        group.pass(1000 * MS);
        assert_eq!(count(&mut group) - before, 10, "{why} at {at}");
    }
    assert_eq!(frames.get(), 70);
    // All go on, and the liar's own replies count as they are.
    let call = group.call("f1", Want::All, 10_000 * MS);
    group.pass(1000 * MS);
    assert!(end(&call).is_ok());
    assert_eq!(*group.executed[1].borrow(), ["f0", "f1"]);
}
