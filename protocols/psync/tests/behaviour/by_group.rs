//! Members that have joined a multicast group below, by which each message is sent once.

use super::*;
use xk_core::graph::BuildError;
use xk_kit::net::attribute::Arrived;
use xk_psync::wire::LISTED;

pub(crate) const GROUP: [u8; 4] = [239, 1, 1, 1];

impl Member {
    /// A packet to the group arrives, as `ip` passes it up.
    pub(crate) fn arrive_by_group(&self, from: usize, octets: &[u8]) -> bool {
        self.arrive_by(GROUP, from, octets)
    }

    fn arrive_by(&self, group: [u8; 4], from: usize, octets: &[u8]) -> bool {
        let mut message = self.cx.message(octets);
        message.set_attribute(Arrived { to: group.into(), hops: 1, class: 0 }).unwrap();
        let taken = self.bottom.inject_cast(&self.cx, Some(host(from)), group.into(), message);
        taken.is_ok()
    }
}

#[test]
fn a_message_is_sent_once() {
    for n in 2..=8 {
        let net = Net::new(n, &[("group", 1)]);
        for from in [0, 1, n - 1] {
            let before = net.frames.get();
            net.push(from, "once").unwrap();
            let sent = net.sent();
            assert_eq!(net.frames.get() - before, 1, "{n} members");
            let all = sent.iter().map(|packet| (packet.to, packet.by_group));
            // One other member is reached without the group.
            let others = (0..n).filter(|to| *to != from).map(|to| (to, n > 2));
            assert!(all.eq(others), "{n} members");
            sent.iter().for_each(|packet| net.arrive(packet));
            for at in (0..n).filter(|at| *at != from) {
                assert_eq!(net.texts(at), ["once"], "{n} members");
            }
        }
        net.calm();
    }
}

/// Members that have not sent anything yet have ways to the opener alone, and acknowledge what
/// others send by the group nevertheless.
#[test]
fn what_comes_by_the_group_alone_is_acknowledged() {
    let net = Net::new(4, &[("group", 1), ("window", 4)]);
    for round in 0..5 {
        for _ in 0..4 {
            net.push(3, "x").unwrap();
            net.carry(|_| true);
        }
        assert_eq!(net.ask(3, Outstanding::default()).unheld, 0, "round {round}");
        assert!((0..3).all(|at| net.texts(at).len() == 4));
    }
    for member in &net.members {
        assert_eq!(member.drops("not a member"), 0);
    }
}

#[test]
fn what_one_member_lacks_goes_to_it_alone() {
    let net = Net::new(4, &[("group", 1)]);
    net.push(0, "one").unwrap();
    net.carry(|packet| packet.to != 2);
    net.push(0, "two").unwrap();
    net.carry(|_| true);
    assert_eq!(net.texts(2), Vec::<String>::new());
    net.advance(20 * MS);
    for (kind, from, to) in [(kind::REQUEST, 2, 0), (kind::RESENT, 0, 2)] {
        let sent = net.sent();
        let of_kind: Vec<&Packet> = sent.iter().filter(|p| p.octets[1] == kind).collect();
        assert_eq!(of_kind.len(), 1, "kind {kind}");
        let Packet { from: is_from, to: is_to, by_group, .. } = of_kind[0];
        assert_eq!((*is_from, *is_to, *by_group), (from, to, false), "kind {kind}");
        sent.iter().for_each(|packet| net.arrive(packet));
    }
    assert_eq!(net.texts(2), ["one", "two"]);
    net.calm();
}

/// The opener's first messages have the list of members, and begin the conversation at each.
#[test]
fn a_conversation_begins_without_the_group() {
    let members: Vec<Member> = (0..3).map(|at| Member::new(at, &[("group", 1)])).collect();
    let first = members[0].open(&[1, 2]).unwrap();
    first.push(&members[0].cx, members[0].cx.message(b"first")).unwrap();
    let sent = members[0].bottom.take_sent();
    let peers: Vec<_> = sent.iter().map(|sent| sent.peer).collect();
    assert_eq!(peers, [Some(host(1)), Some(host(2))]);
    let listed = octets(&sent[0].message);
    assert!(!members[1].arrive_by_group(0, &listed));
    assert_eq!((members[1].top.take_opened().len(), members[1].drops("sent to many")), (0, 1));
    assert!(members[1].arrive(0, &listed));
    assert_eq!(members[1].texts(), ["first"]);
}

#[test]
fn what_strangers_send_to_the_group_changes_nothing() {
    let net = Net::new(3, &[("group", 1)]);
    net.push(0, "secret").unwrap();
    let data = net.sent().remove(0);
    assert_eq!((data.to, data.by_group), (1, true));
    let member = &net.members[1];
    // A stranger with all octets right, a member that speaks for another, this host's own copy.
    for from in [9, 2, 1] {
        assert!(!member.arrive_by_group(from, &data.octets), "from {from}");
    }
    // Packets that all members would answer, as of a member.
    let kinds = [
        kind::REQUEST,
        kind::RESENT,
        kind::LEAVES,
        kind::OPEN,
        kind::OPEN_ACK,
        kind::RESTART,
        kind::RESTART_ACK,
        kind::SIDE,
        kind::GONE,
    ];
    let changed = |at: usize, octet: u8| {
        let mut octets = data.octets.clone();
        octets[at] = octet;
        octets
    };
    for kind in kinds {
        assert!(!member.arrive_by_group(0, &changed(1, kind)), "kind {kind}");
    }
    assert!(!member.arrive_by_group(0, &changed(2, LISTED)));
    let drops = ["not a member", "sent to many"].map(|name| member.drops(name));
    assert_eq!(drops, [3, kinds.len() as u64 + 1]);
    // Another group, and another conversation.
    assert!(!member.arrive_by([239, 9, 9, 9], 0, &data.octets));
    assert!(!member.arrive_by_group(0, &changed(7, !data.octets[7])));
    assert_eq!((net.sent().len(), net.texts(1).len()), (0, 0), "nothing is answered");
    assert_eq!(net.ask(1, Outstanding::default()), Outstanding::default());
    assert!(net.ask(1, Leaves::default()).leaves.is_empty());
    assert!(member.top.take_opened().is_empty());
    net.arrive(&data);
    assert_eq!(net.texts(1), ["secret"]);
    net.calm();
    // One that has closed the conversation answers members alone.
    net.sessions[1].close(&member.cx);
    drop(member.bottom.take_sent());
    assert!(!member.arrive_by_group(0, &data.octets));
    assert_eq!(member.bottom.take_sent().len(), 0);
    assert!(!member.arrive(0, &data.octets));
    assert_eq!(member.bottom.take_sent().len(), 1, "it is gone");
}

#[test]
fn what_is_no_group_is_refused() {
    for text in ["10.0.0.1", "255.255.255.255", "all"] {
        let cx = TestKernel::with_stacks(1);
        let bottom = Bottom::add(&cx, "bottom", Lower::host([10, 0, 0, 1], 253));
        let mut params = Params::default();
        params.set("group", Value::Text(text.into()));
        let below = core::slice::from_ref(bottom.protocol());
        let built = ENTRY.add(&cx, "psync", below, &params);
        assert!(matches!(built, Err(BuildError::Param { name: "group", .. })), "{text}");
    }
}
