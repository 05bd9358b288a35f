//! Conversations in a multicast group, in the simulator: on a switch that snoops on IGMP each
//! message is one frame, and what a stranger sends to the group changes nothing.

use crate::total_order::Group;
use core::time::Duration;
use std::rc::Rc;
use xk_core::control::ListSessions;
use xk_core::random::Random;
use xk_core::{HostAddr, Part, Participant, Participants};
use xk_kit::group::{MyMember, Node, Outstanding, PROCESS};
use xk_kit::net::groups::{Filter, LeaveHost, Membership};
use xk_psync::wire::{Header, LISTED, VERSION, kind};
use xk_testkit::kernel::{Top, octets};
use xk_testkit::seeds;

const MS: Duration = Duration::from_millis(1);
const LAYERS: &str = "igmp ip\n psync ip group=\"239.1.1.1\"";
const GROUP: [u8; 4] = [239, 1, 1, 1];

/// A switch that snoops, and three hosts besides the members: one asks which hosts are in groups,
/// one is a stranger, and one has joined the group and is no member.
fn link(faults: &str) -> String {
    let host = |name: &str, address: u8, more: &str| {
        format!(
            "host {name} {{\n sim link=lan\n eth sim\n arp eth\n \
             ip arp {{ address \"10.0.0.{address}/24\"; }}\n {more}\n}}\n"
        )
    };
    let asks = "igmp ip querier=#true query_interval=\"4s\" response_interval=\"1s\"";
    let all = [host("asks", 254, asks), host("stranger", 66, ""), host("other", 67, LAYERS)];
    format!("{faults} snooping=#true\n") + &all.concat()
}

fn group(n: usize, faults: &str, seed: u64) -> Group {
    Group::on(n, "psync", LAYERS, &link(faults), seed)
}

fn push_many(group: &mut Group, at: usize, count: usize) {
    let (session, done) = (group.sessions[at].clone(), Rc::clone(&group.done));
    group.world.spawn(group.hosts[at], move |cx| {
        for _ in 0..count {
            let message = cx.pool().copy_from(128, &[7; 64]).unwrap();
            assert_eq!(session.push(cx, message), Ok(()));
            done.set(done.get() + 1);
        }
    });
}

/// The frames of conversations that each message takes, of one sender or of all of them.
fn frames_of_each(n: usize, senders: usize, count: usize) -> f64 {
    let mut group = group(n, "delay=\"1ms\" rate=\"1Gbit\" queue=10000", 1);
    (0..n).for_each(|at| push_many(&mut group, at, 1));
    group.pass(5000 * MS);
    (0..n).for_each(|at| assert_eq!(group.texts(at).len(), n - 1));
    let before = group.frames();
    (0..senders).for_each(|at| push_many(&mut group, at, count));
    let all = n + senders * count;
    for _ in 0..60_000 {
        if group.done.get() == all {
            break;
        }
        group.pass(MS);
    }
    group.pass(1000 * MS);
    for at in 0..n {
        let own = if at < senders { count } else { 0 };
        assert_eq!(group.texts(at).len(), senders * count - own, "{n} members, {senders} send");
    }
    (group.frames() - before) as f64 / (senders * count) as f64
}

/// Without loss a message takes at most two frames: itself, and what acknowledges it.
#[test]
fn two_frames_a_message_at_most() {
    for n in [2, 4, 8] {
        for senders in [1, n] {
            let frames = frames_of_each(n, senders, 1000 / senders);
            println!("{n} members of which {senders} send: {frames} frames a message");
            assert!(frames <= 2.0, "{n} members, {senders} send: {frames} frames a message");
        }
    }
}

/// Messages that have come up at a host: place and octets.
fn heard(group: &Group, at: usize) -> Vec<(Node, String)> {
    let all = group.tops[at].take_received();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    all.iter().map(|r| (r.message.attribute().unwrap(), text(octets(&r.message)))).collect()
}

/// A conversation by chance: all messages come to all members, once, after those that their
/// senders had received.
fn converse(seed: u64) {
    let random = Random::new(seed);
    let n = 2 + random.below(8) as usize;
    let loss = random.below(31) as f64 / 100.0;
    let faults = format!(
        "delay=\"{}us\" jitter=\"{}us\" loss=\"{loss}\" duplicate=\"0.1\" reorder=\"0.2\"",
        10 + random.below(5000),
        1 + random.below(5000)
    );
    let mut group = group(n, &faults, seed);
    let (mut sent, mut known) = (vec![0_u32; n], vec![vec![0_u32; n]; n]);
    // Each says how many messages of each member it has received.
    let note = |group: &Group, known: &mut Vec<Vec<u32>>| {
        for (at, own) in known.iter_mut().enumerate() {
            for (node, text) in heard(group, at) {
                let sender = usize::from(node.id.sender);
                own[sender] += 1;
                assert_eq!(own[sender], node.id.seq, "seed {seed}: in order, and once");
                let causes: Vec<u32> = text.split(' ').map(|n| n.parse().unwrap()).collect();
                let has_all = (0..n).all(|of| of == at || of == sender || own[of] >= causes[of]);
                assert!(has_all, "seed {seed}: {node:?} comes before its causes at {at}");
            }
        }
    };
    for _ in 0..15 * n {
        let at = random.below(n as u64) as usize;
        // A message that waits for room would not know what it follows.
        if group.ask(at, Outstanding::default()).unwrap().unheld < 16 {
            note(&group, &mut known);
            let causes: Vec<String> = known[at].iter().map(u32::to_string).collect();
            group.push(at, &causes.join(" "));
            group.pass(Duration::ZERO);
            sent[at] += 1;
        }
        if random.chance(0.4) {
            group.pass(Duration::from_micros(random.below(20_000)));
        }
    }
    group.pass(200_000 * MS);
    note(&group, &mut known);
    for (at, known) in known.iter_mut().enumerate() {
        let own = core::mem::replace(&mut known[at], sent[at]);
        assert_eq!((own, &*known), (0, &sent), "seed {seed}: {at} of {n} has received all");
        assert_eq!(group.ask(at, Outstanding::default()), Some(Outstanding::default()));
    }
}

#[test]
fn conversations_in_a_group_keep_the_order_of_causes() {
    seeds::of(4).run(converse);
}

/// A host that is no member knows all that is sent, and sends to the group in a member's place.
#[test]
fn a_stranger_in_the_group_changes_nothing() {
    let mut group = group(3, "delay=\"1ms\"", 1);
    (0..3).for_each(|at| push_many(&mut group, at, 1));
    group.pass(1000 * MS);
    (0..3).for_each(|at| assert_eq!(group.texts(at).len(), 2));
    let my = group.ask(0, MyMember::default()).unwrap();
    let before: Vec<_> = (0..3).map(|at| group.ask(at, Outstanding::default())).collect();
    let frames = group.frames();
    let stranger = group.world.find("stranger").expect("it is there");
    let kinds = (kind::DATA..=kind::GONE).flat_map(|kind| [(kind, 0), (kind, LISTED)]);
    let packets: Vec<_> = kinds
        .map(|(kind, flags)| Header {
            version: VERSION,
            kind,
            flags,
            entries: 0,
            conversation: my.conversation,
            sender: 0,
            incarnation: 1,
            seq: if kind == kind::DATA { 2 } else { 0 },
            length: 0,
        })
        .collect();
    let count = packets.len() as u64;
    group.world.spawn(stranger, move |cx| {
        let (ip, top) = (cx.find_protocol("ip").unwrap(), Top::add(cx, "top"));
        cx.numbers_mut().override_pair(top.id(), ip.id(), 253);
        let ends = Participants::pair(Part::Any, Part::Host(GROUP.into()));
        let session = top.open(cx, &ip, ends).unwrap();
        for header in packets {
            session.push(cx, cx.pool().copy_from(128, &header.emit()).unwrap()).unwrap();
        }
    });
    group.pass(1000 * MS);
    assert_eq!(group.frames() - frames, count, "none of them is answered");
    for (at, before) in before.into_iter().enumerate() {
        assert_eq!(group.texts(at).len(), 0);
        assert_eq!(group.ask(at, Outstanding::default()), before);
    }
    let drops = group.world.enter(group.hosts[1], |cx| {
        let list = cx.find_protocol("psync").unwrap().head().drops().list();
        list.into_iter().map(|(reason, count)| (reason.name, count)).collect::<Vec<_>>()
    });
    assert_eq!(drops, Some(vec![("not a member", count)]));
    (0..3).for_each(|at| push_many(&mut group, at, 1));
    group.pass(1000 * MS);
    (0..3).for_each(|at| assert_eq!(group.texts(at).len(), 2));
}

/// A host in the group that is no member hears all of the conversation, and says nothing.
#[test]
fn a_host_in_the_group_that_is_no_member_keeps_quiet() {
    let mut group = group(3, "delay=\"1ms\"", 1);
    let other = group.world.find("other").expect("it is there");
    let top = group.world.enter(other, |cx| {
        let (top, layer) = (Top::add(cx, "top"), cx.find_protocol("psync").unwrap());
        let process = Participants::local(Participant::of(Part::Number(PROCESS, 7)));
        assert!(top.enable(cx, &layer, process).is_ok());
        top
    });
    let before = group.frames();
    (0..3).for_each(|at| push_many(&mut group, at, 100));
    group.pass(10_000 * MS);
    (0..3).for_each(|at| assert_eq!(group.texts(at).len(), 200));
    let sent = group.frames() - before;
    assert!(sent <= 600, "{sent} frames");
    let (dropped, said) = group
        .world
        .enter(other, |cx| {
            let head = cx.find_protocol("psync").unwrap();
            let sessions = head.ask(cx, ListSessions::first(9)).unwrap().here().count();
            (head.head().drops().list(), sessions)
        })
        .unwrap();
    assert_eq!((said, top.unwrap().take_opened().len()), (0, 0));
    let [(why, count)] = dropped[..] else { panic!("{dropped:?}") };
    assert!(why.name == "sent to many" && count >= 295, "{dropped:?}");
}

/// A member that the switch takes for one that has left gets nothing by the group: then all goes to
/// each member alone, as long as it asks for what it lacks.
#[test]
fn a_conversation_goes_on_though_the_group_does_not_reach_a_member() {
    for (n, senders) in [(3, 1), (4, 1), (4, 4)] {
        let mut group = group(n, "delay=\"1ms\"", 1);
        (0..n).for_each(|at| push_many(&mut group, at, 1));
        group.pass(5000 * MS);
        (0..n).for_each(|at| assert_eq!(group.texts(at).len(), n - 1));
        let membership =
            Membership { group: GROUP.into(), on: HostAddr::UNSPECIFIED, filter: Filter::ALL };
        group.world.enter(group.hosts[n - 1], |cx| {
            cx.find_protocol("ip").unwrap().ask(cx, LeaveHost { membership })
        });
        group.pass(10_000 * MS);
        let (before, start) = (group.frames(), group.world.now());
        (0..senders).for_each(|at| push_many(&mut group, at, 400));
        let all = n + senders * 400;
        while group.done.get() < all && group.world.now().since(start) < 600_000 * MS {
            group.pass(10 * MS);
        }
        let took = group.world.now().since(start);
        group.pass(5000 * MS);
        for at in 0..n {
            let own = if at < senders { 400 } else { 0 };
            assert_eq!(group.texts(at).len(), senders * 400 - own, "{n} members");
        }
        let frames = (group.frames() - before) as f64 / (senders * 400) as f64;
        println!("{n} members of which {senders} send: {took:?}, {frames} frames a message");
        assert!(took < 5000 * MS, "{n} members, {senders} send: {took:?}");
        assert!(frames < 2.0 * n as f64, "{n} members, {senders} send: {frames} frames");
    }
}
