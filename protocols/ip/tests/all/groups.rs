//! Groups are joined and left at run time, by interface and source.

use crate::common::*;
use core::net::Ipv4Addr;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::graph::Value;
use xk_core::numbers::Number;
use xk_core::object::{Enable, OpenError, Payer};
use xk_core::{
    Answer, HostAddr, Kernel, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper, reason,
};
use xk_ip::wire::{Header, Options};
use xk_kit::control::{AlertRouters, IsLocalHost, JoinGroup, LeaveGroup, MyHost, OptPacket};
use xk_kit::net::addr::{EthAddr, Ipv4};
use xk_kit::net::attribute::{Arrived, Sending};
use xk_kit::net::groups::{
    CameBy, Filter, GroupChanged, JoinHost, LeaveHost, Membership, WatchGroups, WatchedLink,
};
use xk_kit::net::template::Headers;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

fn wish(on: Option<Ipv4Addr>, excludes: bool, sources: &[Ipv4Addr]) -> Membership {
    let sources = sources.iter().map(|source| HostAddr::from(*source)).collect();
    let on = on.map_or(HostAddr::UNSPECIFIED, Into::into);
    Membership { group: GROUP.into(), on, filter: Filter { excludes, sources } }
}

impl Host {
    fn join(&self, membership: &Membership) -> bool {
        self.ip.ask(&self.cx, JoinHost { membership: membership.clone() }).is_some()
    }

    fn leave(&self, membership: &Membership) -> bool {
        self.ip.ask(&self.cx, LeaveHost { membership: membership.clone() }).is_some()
    }

    /// Whether a packet to the group that arrives on an interface is taken.
    fn hears(&self, at: usize, source: Ipv4Addr) -> bool {
        self.inject(at, &Packet::new(source, GROUP, b"all").octets());
        let received = self.received();
        assert!(received.iter().all(|r| r.message.attribute::<Arrived>().is_some()), "it is told");
        !received.is_empty()
    }

    /// The changes of groups that the layers below are told of from now on: interface, and whether
    /// joined.
    fn told(&self) -> Rc<RefCell<Vec<(usize, bool)>>> {
        let told = Rc::<RefCell<Vec<_>>>::default();
        for (at, lower) in self.lowers.iter().enumerate() {
            let all = Rc::clone(&told);
            lower.on_ask(Rc::new(move |_, ask| {
                let of_group = EthAddr::from_ipv4_group(GROUP).0;
                let joined = ask.get::<JoinGroup>().map(|join| (join.address, true));
                let left = ask.get::<LeaveGroup>().map(|leave| (leave.address, false));
                if let Some((address, is_joined)) = joined.or(left) {
                    assert_eq!(address, of_group);
                    all.borrow_mut().push((at, is_joined));
                }
                Answer::Unknown
            }));
        }
        told
    }
}

#[test]
fn a_group_is_taken_where_it_was_joined_and_until_it_is_left() {
    let host = Host::new(Graph::router(), &[1500, 1500]);
    host.enable();
    let told = host.told();
    let far = Ipv4Addr::new(10, 0, 1, 9);
    let is_local = || {
        let asked = IsLocalHost { host: GROUP.into(), local: true };
        host.ip.ask(&host.cx, asked).unwrap().local
    };
    assert!(!host.hears(0, PEER) && !host.hears(1, far) && !is_local());
    let by_route = wish(None, true, &[]);
    let second = wish(Some(Ipv4Addr::new(10, 0, 1, 1)), true, &[]);
    assert!(host.join(&by_route) && host.join(&by_route));
    assert!(host.hears(0, PEER) && !host.hears(1, far) && is_local());
    assert!(host.join(&second));
    assert!(host.hears(0, PEER) && host.hears(1, far));
    assert!(host.leave(&by_route) && host.hears(0, PEER), "it was joined twice");
    assert!(host.leave(&by_route) && !host.leave(&by_route));
    // There is a session of the group, and yet nothing comes.
    assert!(!host.hears(0, PEER) && host.hears(1, far) && is_local());
    assert!(host.leave(&second) && !host.hears(1, far) && !is_local());
    assert_eq!(*told.borrow(), [(0, true), (1, true), (0, false), (1, false)]);
    assert_eq!(host.dropped(&reason::NOT_MINE), 5);
}

#[test]
fn one_of_the_joins_must_want_the_source() {
    let host = Host::simple();
    let heard = || [PEER, OTHER].map(|source| host.hears(0, source));
    let only_peer = wish(None, false, &[PEER]);
    let not_peer = wish(None, true, &[PEER]);
    assert!(host.join(&only_peer));
    assert_eq!(heard(), [true, false]);
    assert!(host.join(&not_peer));
    assert_eq!(heard(), [true, true]);
    assert!(host.leave(&only_peer));
    assert_eq!(heard(), [false, true]);
    assert!(!host.leave(&only_peer) && !host.leave(&wish(None, true, &[])));
    assert!(host.leave(&not_peer));
    assert_eq!(heard(), [false, false]);
}

#[test]
fn a_graph_joins_for_good() {
    let host = Host::new(Graph::host().group("239.1.2.3"), &[1500]);
    host.enable();
    assert!(host.hears(0, PEER));
    let all = wish(None, true, &[]);
    assert!(!host.leave(&all), "nothing was joined at run time");
    assert!(host.join(&wish(None, false, &[OTHER])) && host.hears(0, PEER));
    assert!(host.join(&all) && host.leave(&all) && host.hears(0, PEER));
}

#[test]
fn what_is_no_group_or_too_much_is_refused() {
    let graph = Graph::host().set("memberships_max", Value::Integer(16));
    let host = Host::new(graph, &[1500]);
    let unlike = |change: fn(&mut Membership)| {
        let mut membership = wish(None, true, &[]);
        change(&mut membership);
        membership
    };
    let none = wish(None, false, &[]);
    let unsorted = wish(None, true, &[OTHER, PEER]);
    let many: Vec<_> = (0..=64).map(|n| Ipv4Addr::new(10, 0, 1, n)).collect();
    for wrong in [
        unlike(|m| m.group = PEER.into()),
        unlike(|m| m.group = HostAddr::BROADCAST),
        unlike(|m| m.group = HostAddr::v6([0xff02, 0, 0, 0, 0, 0, 0, 1].into(), 0)),
        unlike(|m| m.on = PEER.into()),
        wish(None, true, &many),
        none,
        unsorted,
    ] {
        assert!(!host.join(&wrong), "{wrong:?}");
    }
    let of = |last: u8| {
        let group = [239, 0, 0, last].into();
        Membership { group, ..wish(None, true, &[]) }
    };
    let user = |uid: u32, last: u8| host.cx.charging(Payer::user(uid), || host.join(&of(last)));
    // Of a user an eighth.
    assert_eq!([1, 2, 3].map(|last| user(1, last)), [true, true, false]);
    assert_eq!([1, 2, 3].map(|last| user(2, last)), [true, true, false]);
    assert!((0..12).all(|last| host.join(&of(last))) && !host.join(&of(99)));
    assert!(host.cx.charging(Payer::user(1), || host.leave(&of(1))));
    assert!(user(1, 7) && !user(1, 8));
}

/// Sends to the group, and returns time to live and source of what went out, and whether it came
/// back.
fn sent(host: &Host, at: usize, sending: Option<Sending>) -> (Option<(u8, Ipv4)>, bool) {
    let session = host.open(GROUP);
    let mut message = host.cx.message(b"all");
    if let Some(sending) = sending {
        message.set_attribute(sending).unwrap();
    }
    session.push(&host.cx, message).unwrap();
    host.cx.run_due();
    let out = host.sent(at).first().map(|octets| header(octets)).map(|sent| (sent.ttl, sent.src));
    let received = host.received();
    for came in &received {
        assert_eq!(came.message.octets().collect::<Vec<_>>(), b"all");
        // An answer goes to ourselves, from our own host.
        let own = came.session.ask(&host.cx, MyHost::default()).unwrap();
        assert_eq!(own.host, HostAddr::from(OWN));
    }
    session.close(&host.cx);
    (out, !received.is_empty())
}

#[test]
fn what_is_sent_to_a_group_comes_back_if_it_is_joined_here() {
    let host = Host::simple();
    let own = OWN;
    for _ in 0..2 {
        assert_eq!(sent(&host, 0, None), (Some((1, own)), false));
        assert!(host.join(&wish(None, true, &[])));
        for _ in 0..2 {
            assert_eq!(sent(&host, 0, None), (Some((1, own)), true));
        }
        let far = Sending { hops: 9, ..Sending::default() };
        assert_eq!(sent(&host, 0, Some(far)), (Some((9, own)), true));
        let out = Sending { stays_out: true, ..Sending::default() };
        assert_eq!(sent(&host, 0, Some(out)), (Some((1, own)), false));
        let inside = Sending { stays_in: true, ..Sending::default() };
        assert_eq!(sent(&host, 0, Some(inside)), (None, true));
        assert!(host.leave(&wish(None, true, &[])));
    }
    // Ourselves are no source that is wanted.
    assert!(host.join(&wish(None, false, &[PEER])));
    assert_eq!(sent(&host, 0, None), (Some((1, own)), false));
}

#[test]
fn the_host_it_comes_from_says_the_interface() {
    let second = Ipv4Addr::new(10, 0, 1, 1);
    let host = Host::new(Graph::router().route("224.0.0.0/4", Some("10.0.0.254")), &[1500, 1500]);
    let send = |local: Part| {
        let pair = Participants::pair(local, Part::host(GROUP));
        let session = host.top.open(&host.cx, &host.ip, pair).unwrap();
        session.push(&host.cx, host.cx.message(b"all")).unwrap();
        let sent = [0, 1].map(|at| host.sent(at).iter().map(|o| header(o).src).next());
        session.close(&host.cx);
        sent
    };
    assert_eq!(send(Part::Any), [Some(OWN), None]);
    assert_eq!(send(Part::host(second)), [None, Some(second)]);
}

/// Number of the protocol that watches.
const WATCHER: u8 = 2;

/// Has a protocol watch the host's groups, and returns that one, and the notices that it gets.
fn watched(host: &Host) -> (Top, Rc<RefCell<Vec<String>>>) {
    let watcher = Top::add_kind(&host.cx, "igmp", "watcher");
    let number = Number { upper: "igmp", lower: "ip", number: WATCHER.into() };
    host.cx.numbers_mut().add(number).unwrap();
    let told = Rc::<RefCell<Vec<String>>>::default();
    let all = Rc::clone(&told);
    watcher.on_ask(Rc::new(move |_, ask| {
        if let Some(WatchedLink { interface, host, octets }) = ask.get() {
            all.borrow_mut().push(format!("{interface}: {host}, {octets}"));
        } else if let Some(GroupChanged { interface, group, filter }) = ask.get() {
            let Filter { excludes, sources } = filter;
            let but = if *excludes { "but " } else { "" };
            all.borrow_mut().push(format!("{interface}: {group} {but}{sources:?}"));
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }));
    let _ = watcher.enable(&host.cx, &host.ip, Participants::local(Part::Any)).unwrap();
    let asked = WatchGroups { watcher: watcher.protocol().clone(), number: WATCHER.into() };
    assert!(host.ip.ask(&host.cx, asked).is_some());
    (watcher, told)
}

#[test]
fn a_watcher_is_told_of_what_is_wanted_of_each_group() {
    let host = Host::new(Graph::router().group("239.9.9.9"), &[1500, 576]);
    let second = wish(Some(Ipv4Addr::new(10, 0, 1, 1)), false, &[PEER]);
    assert!(host.join(&second));
    let (_watcher, told) = watched(&host);
    let all = [
        "0: 10.0.0.1, 1500",
        "0: 224.0.0.1 but []",
        "0: 239.9.9.9 but []",
        "1: 10.0.1.1, 576",
        "1: 224.0.0.1 but []",
        "1: 239.1.2.3 [10.0.0.2]",
        "1: 239.9.9.9 but []",
    ];
    assert_eq!(told.take(), all);
    let (everything, other) = (wish(None, true, &[]), wish(None, false, &[OTHER]));
    for (joins, wish, what) in [
        (true, &everything, Some("0: 239.1.2.3 but []")),
        (true, &everything, None),
        (true, &other, None),
        (false, &everything, None),
        (false, &everything, Some("0: 239.1.2.3 [10.0.0.3]")),
        (false, &second, Some("1: 239.1.2.3 []")),
        (false, &other, Some("0: 239.1.2.3 []")),
    ] {
        assert!(if joins { host.join(wish) } else { host.leave(wish) });
        assert_eq!(told.take(), what.into_iter().collect::<Vec<_>>(), "{wish:?}");
    }
}

#[test]
fn a_watcher_hears_of_a_group_from_everyone_and_by_which_way() {
    let host = Host::new(Graph::router(), &[1500, 1500]);
    assert!(host.join(&wish(Some(Ipv4Addr::new(10, 0, 1, 1)), false, &[OTHER])));
    let (watcher, _) = watched(&host);
    let heard = |at, source, options: &[u8]| {
        let packet = Packet {
            protocol: WATCHER,
            options: options.to_vec(),
            ..Packet::new(source, GROUP, b"all")
        };
        host.inject(at, &packet.octets());
        let came = watcher.take_received();
        came.first().map(|came| came.message.attribute::<CameBy>())
    };
    let by = |alerts| Some(Some(CameBy { interface: 1, alerts }));
    let alert = [148, 4, 0, 0];
    assert_eq!(heard(1, OTHER, &[]), by(false));
    assert_eq!(heard(1, PEER, &alert), by(true));
    // A switch without a host.
    assert_eq!(heard(1, Ipv4Addr::UNSPECIFIED, &alert), by(true));
    assert_eq!(heard(0, OTHER, &alert), None);
    assert_eq!(heard(1, Ipv4Addr::new(10, 0, 0, 1), &alert), None);
    // Data are as before.
    host.enable();
    assert!(host.hears(1, OTHER) && !host.hears(1, PEER));
    assert!(!host.hears(1, Ipv4Addr::UNSPECIFIED));
}

#[test]
fn routers_look_at_what_a_session_sends_if_it_asks() {
    let host = Host::simple();
    let group = host.open(GROUP);
    let alone = host.open(PEER);
    for session in [group, alone] {
        let room = |session: &SessionRef| session.ask(&host.cx, OptPacket::default()).unwrap();
        let before = room(&session).octets;
        assert!(session.ask(&host.cx, AlertRouters).is_some());
        assert_eq!(room(&session).octets, before - 4);
        let mut message = host.cx.message(b"look");
        let asked = Sending { hops: 7, class: Some(0xc0), ..Sending::default() };
        message.set_attribute(asked).unwrap();
        session.push(&host.cx, message).unwrap();
        session.push(&host.cx, host.cx.message(&[1; 3000])).unwrap();
        let sent = host.sent(0);
        let (first, options) = whole(&sent[0]);
        assert_eq!((first.ttl, first.traffic_class), (7, 0xc0));
        assert_eq!((options, &sent[0][24..]), (Options::ALERT, &b"look"[..]));
        assert_eq!(sent.len(), 4);
        for piece in &sent[1..] {
            assert!(whole(piece).1.alerts() && piece.len() <= 1500);
        }
        assert!(session.ask(&host.cx, Headers::default()).is_none());
    }
}

fn whole(octets: &[u8]) -> (Header, Options<'_>) {
    let (fixed, rest) = octets.split_first_chunk().unwrap();
    let header = Header::parse(fixed).unwrap();
    (header, header.parse_options(fixed, rest).unwrap())
}

/// Has frames come up from the layer below it, as `arp` does.
struct Resolver(ProtocolRef);

impl Protocol for Resolver {
    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        self.0.open(cx, upper, ends)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.open_enable(cx, upper, ends)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0)
    }
}

#[test]
fn a_group_is_taken_where_it_was_joined_by_layers_that_resolve_hosts_too() {
    let graph = Graph::new().address("10.0.0.1/24", "arp0").address("10.0.1.1/24", "arp1");
    let cx = TestKernel::new(7);
    let lowers = ["low0", "low1"].map(|name| Bottom::add(&cx, name, Lower::link(1500)));
    let resolvers = [("arp0", &lowers[0]), ("arp1", &lowers[1])]
        .map(|(name, low)| cx.add_protocol("arp", name, Resolver(low.protocol().clone())));
    let ip = xk_ip::ENTRY.add(&cx, "ip", &resolvers, &graph.0).unwrap();
    let top = Top::add_kind(&cx, "udp", "top");
    cx.numbers_mut().add(Number { upper: "udp", lower: "ip", number: NUMBER.into() }).unwrap();
    cx.start().unwrap();
    let host = Host { cx, lowers: lowers.into(), ip, top };
    host.enable();
    assert!(host.join(&wish(Some(Ipv4Addr::new(10, 0, 1, 1)), true, &[])));
    assert!(host.hears(1, PEER) && !host.hears(0, PEER));
}
