//! Calls of many hosts at once: three servers on a link that loses and doubles, and which of
//! their replies the callers get.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::ListSessions;
use xk_core::object::{CallCause, CallError};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, Reason, SessionRef, Time, Upper,
};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{CallOptions, CancelCall, Gather, GathersReplies};
use xk_reqrep::{NO_CALL, NOT_A_SERVER, REPEATED_REPLY, TOO_MANY_REPLIES};
use xk_sim::{HostId, World};
use xk_testkit::kernel::{HEADROOM, octets};

/// ONC RPC without credentials.
const PLAIN: &str =
    "udp ip; reqrep udp first_wait=\"200ms\" PARAMS; sunselect reqrep; sunprog sunselect name=top";
/// With credentials and shorthands.
const KNOWN: &str = "udp ip; reqrep udp first_wait=\"200ms\" PARAMS; sunselect reqrep\n\
    authsys sunselect machine=\"longer-than-a-shorthand\" user=1000 group=100; authshort sunselect authsys; sunprog authshort name=top";
/// With a port mapper.
const MAPPED: &str = "udp ip; reqrep udp first_wait=\"200ms\" PARAMS; sunselect reqrep; sunprog sunselect\n\
    portmap sunprog name=top indirect=#true PARAMS-OF-PORTMAP";
const ALL: &str = "10.0.0.255";
/// The `echo` of a program that all serve, and what is sent there.
const ECHO: &str = "procedure1@version1@program536870913";
const ARGUMENTS: [u8; 8] = [0, 0, 0, 4, 1, 2, 3, 4];
const SERVED: &str = "version1@program536870913@port2049";
/// The tag of the calls.
const TAG: u64 = 7;

/// A link of these properties with a client and three servers, each with `layers`, at 10.0.0.1 and
/// behind; what each serves.
struct Net {
    world: World,
    seed: u64,
}

impl Net {
    fn new(seed: u64, layers: &str, link: &str, served: [&str; 3]) -> Self {
        Self::with(seed, layers, link, served.map(|at| (at, "")))
    }

    /// A net as of [`Net::new`], and what their IP has besides an address.
    fn with(seed: u64, layers: &str, link: &str, served: [(&str, &str); 3]) -> Self {
        let host = |name: &str, n: usize, ip: &str, more: &str| {
            format!(
                "host {name} {{\n sim link=lan; eth sim; arp eth\n ip arp {{ address \"10.0.0.{n}/24\"; {ip} }}\n icmp ip\n {layers}\n {more}\n}}\n"
            )
        };
        let servers = served.into_iter().zip(2..).map(|((at, ip), n)| {
            let procedures = format!("procedures top at=\"{at}\"");
            host(&format!("server{n}"), n, ip, &procedures)
        });
        let servers: String = servers.collect();
        let source =
            format!("{}{servers}link lan delay=\"1ms\" {link}\n", host("client", 1, "", ""));
        let source = source.replace("PARAMS-OF-PORTMAP", "").replace("PARAMS", "");
        let graph = check(&source, "broadcast.kdl", &xk_catalog::standard());
        let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
        Self { world, seed }
    }

    fn host(&self, name: &str) -> HostId {
        self.world.find(name).expect("the host")
    }

    /// Opens a session of the client, which stays open.
    fn open(&mut self, peer: &str) -> SessionRef {
        let to: Participant = peer.parse().expect("a participant");
        let client = self.host("client");
        let opened = self.world.enter(client, |cx| {
            let top = cx.find_protocol("top").expect("the layer");
            let app = cx.add_protocol("caller", "application", Still);
            top.open(cx, Upper::new(&app), Participants::pair(Part::Any, to))
        });
        opened.expect("a host").expect("a session")
    }

    /// Has the client call `peer` and take all replies; runs until it has been told that there are
    /// no more.
    fn gather(&mut self, peer: &str, time: Duration) -> Gathered {
        let session = self.open(peer);
        self.gather_on(&session, time)
    }

    /// Calls and takes all replies on a session, which stays open.
    fn gather_on(&mut self, session: &SessionRef, time: Duration) -> Gathered {
        let session = session.clone();
        let seen = Rc::new(RefCell::new(Gathered::default()));
        let told = Rc::clone(&seen);
        let client = self.host("client");
        let until = self.world.now().after(time);
        self.world.spawn(client, move |cx| {
            assert!(session.ask(cx, GathersReplies).is_some());
            let mut what = Gather::First;
            loop {
                let end = call(cx, &session, Some(what), until);
                what = Gather::Next;
                let mut gathered = told.borrow_mut();
                match end {
                    Ok(reply) => gathered.replies.push(reply),
                    Err(error) if matches!(error.cause, CallCause::Rejected(_)) => {
                        gathered.refused += 1;
                    }
                    Err(error) => {
                        gathered.end = Some((cx.now(), error.cause));
                        break;
                    }
                }
            }
        });
        self.world.run_until(until.after(Duration::from_secs(1)));
        let gathered = seen.take();
        assert!(gathered.end.is_some(), "it ends, seed {}", self.seed);
        gathered
    }

    fn drops(&self, host: &str, protocol: &str, reason: &Reason) -> u64 {
        let cx = self.world.kernel(self.host(host)).expect("a kernel");
        let protocol = cx.find_protocol(protocol).expect("a protocol");
        protocol.head().drops().of(reason)
    }

    /// Description of the client's only session of `reqrep`.
    fn waiting(&self) -> String {
        let cx = self.world.kernel(self.host("client")).expect("a kernel");
        let reqrep = cx.find_protocol("reqrep").expect("a layer");
        let list = ListSessions::first(1);
        let list = reqrep.ask(cx, list).expect("a list");
        list.sessions[0].info(cx).text
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.world.stop();
    }
}

/// Calls, and serves nothing.
struct Still;

impl Protocol for Still {}

/// Replies, and the reason for the end.
#[derive(Default)]
struct Gathered {
    replies: Vec<(Peer, Vec<u8>)>,
    refused: u64,
    end: Option<(Time, CallCause)>,
}

impl Gathered {
    /// The last number of each host and its port, in order.
    fn hosts(&self) -> Vec<(u8, u16)> {
        let of = |(peer, _): &(Peer, Vec<u8>)| (peer.host.octets()[3], peer.port);
        let mut hosts: Vec<_> = self.replies.iter().map(of).collect();
        hosts.sort_unstable();
        hosts
    }

    fn tries(&self) -> u32 {
        match self.end {
            Some((_, CallCause::TimedOut { tries })) => tries,
            _ => panic!("{:?}", self.end),
        }
    }
}

fn call(
    cx: &Kernel,
    session: &SessionRef,
    gather: Option<Gather>,
    deadline: Time,
) -> Result<(Peer, Vec<u8>), CallError> {
    let mut request: Message = cx.pool().copy_from(HEADROOM, &ARGUMENTS).expect("a buffer");
    let tag = TAG;
    request.set_attribute(CallOptions { deadline, tag }).expect("room");
    if let Some(gather) = gather {
        request.set_attribute(gather).expect("room");
    }
    let reply = session.call(cx, request)?;
    let peer: Peer = reply.attribute().expect("whose reply it is");
    Ok((peer, octets(&reply)))
}

fn to(peer: &str) -> String {
    format!("{ECHO}@port2049@{peer}")
}

#[test]
fn each_host_answers_once_through_loss_and_doubling() {
    let mut repeated = 0;
    for (seed, layers) in (1..=12).zip([PLAIN, KNOWN].into_iter().cycle()) {
        let link = "loss=\"20%\" duplicate=\"30%\"";
        let mut net = Net::new(seed, layers, link, [SERVED; 3]);
        // Twice in one session, as a shorthand of one host would be of no use with the others.
        let session = net.open(&to(ALL));
        for _ in 0..2 {
            let begun = net.world.now();
            let gathered = net.gather_on(&session, Duration::from_secs(60));
            let meant = [(2, 2049), (3, 2049), (4, 2049)];
            assert_eq!(gathered.hosts(), meant, "seed {seed}");
            assert!(gathered.replies.iter().all(|(_, said)| said == &ARGUMENTS));
            assert_eq!(gathered.refused, 0, "seed {seed}");
            // At 0, 0.2, 0.6, 1.4, 3, 6.2, 12.6, 20.6 and 28.6 s.
            assert_eq!(gathered.tries(), 9);
            let (ended, _) = gathered.end.expect("an end");
            assert_eq!(ended, begun.after(Duration::from_secs(30)), "`total` is 30 s");
        }
        repeated += net.drops("client", "reqrep", &REPEATED_REPLY);
    }
    assert!(repeated > 100, "{repeated}");
}

#[test]
fn no_more_hosts_than_the_bound() {
    let layers = PLAIN.replace("PARAMS", "replies_max=2");
    let mut net = Net::new(1, &layers, "", [SERVED; 3]);
    let gathered = net.gather(&to(ALL), Duration::from_millis(100));
    assert_eq!(gathered.replies.len(), 2);
    assert_eq!(net.drops("client", "reqrep", &TOO_MANY_REPLIES), 1);
    assert_eq!(gathered.tries(), 1);
}

#[test]
fn servers_do_not_tell_a_broadcast_what_they_refuse() {
    let others =
        ["version3@program536870913@port2049", SERVED, "version1@program536870915@port2049"];
    let mut net = Net::new(1, PLAIN, "", others);
    let gathered = net.gather(&to(ALL), Duration::from_millis(100));
    assert_eq!(gathered.hosts(), [(3, 2049)]);
    assert_eq!(gathered.refused, 0);
    let no_version = Reason::new("no such version", xk_core::reason::Class::NoProtocol);
    assert_eq!(net.drops("server2", "top", &no_version), 1);
    let client = net.world.kernel(net.host("client")).expect("a kernel");
    let reqrep = client.find_protocol("reqrep").expect("a layer");
    assert_eq!(reqrep.head().received(), 1, "nothing else was said");
}

#[test]
fn port_mappers_find_the_program_in_every_version() {
    let at = |port| format!("version1@program536870913@port{port}");
    let places = [at(2049), at(3000), "version1@program9@port2049".into()];
    let places = [&*places[0], &*places[1], &*places[2]];
    for version in [2, 3, 4] {
        let layers = MAPPED.replace("PARAMS-OF-PORTMAP", &format!("version=\"{version}\""));
        let mut net = Net::new(version, &layers, "loss=\"10%\"", places);
        let everyone = format!("{ECHO}@port0@{ALL}");
        let gathered = net.gather(&everyone, Duration::from_secs(5));
        assert_eq!(gathered.hosts(), [(2, 2049), (3, 3000)], "{version}");
        assert!(gathered.replies.iter().all(|(_, said)| said == &ARGUMENTS));
        assert_eq!(gathered.refused, 0);
    }
}

#[test]
fn only_members_of_a_group_answer() {
    let member = (SERVED, "group \"224.0.1.7\";");
    let mut net = Net::with(1, PLAIN, "", [member, (SERVED, ""), member]);
    let gathered = net.gather(&to("224.0.1.7"), Duration::from_millis(100));
    assert_eq!(gathered.hosts(), [(2, 2049), (4, 2049)]);
}

/// Runs a call of the client on a session and gives its end, with how long it took.
fn run(
    net: &mut Net,
    session: &SessionRef,
    (gather, deadline): (Option<Gather>, Time),
) -> Rc<RefCell<Option<Result<Ipv4Addr, CallCause>>>> {
    let ended = Rc::new(RefCell::new(None));
    let (told, session) = (Rc::clone(&ended), session.clone());
    let client = net.host("client");
    net.world.spawn(client, move |cx| {
        let end = call(cx, &session, gather, deadline);
        let end = end.map(|(peer, _)| peer.host.to_v4().unwrap()).map_err(|e| e.cause);
        *told.borrow_mut() = Some(end);
    });
    ended
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_plain_call_ends_with_the_first_reply() {
    let mut net = Net::new(1, PLAIN, "", [SERVED; 3]);
    let session = net.open(&to(ALL));
    let ended = run(&mut net, &session, (None, Time::MAX));
    net.world.run_until(Time::ZERO.after(SECOND));
    assert!(matches!(ended.take(), Some(Ok(_))));
    assert_eq!(net.drops("client", "reqrep", &NO_CALL), 2, "the others");
    // Of one host nothing can be gathered.
    let one = net.open(&to("10.0.0.2"));
    let cx = net.world.kernel(net.host("client")).expect("a kernel");
    assert!(one.ask(cx, GathersReplies).is_none());
    assert!(session.ask(cx, GathersReplies).is_some());
}

#[test]
fn it_can_be_taken_back_and_asked_late() {
    let mut net = Net::new(1, PLAIN, "", [SERVED, SERVED, "version1@program9@port2049"]);
    let session = net.open(&to(ALL));
    let client = net.host("client");
    let later = |net: &Net, s: u32| net.world.now().after(s * SECOND);
    let first = (Some(Gather::First), later(&net, 60));
    let next = (Some(Gather::Next), later(&net, 60));
    let ends: Vec<_> = [first, next, next]
        .into_iter()
        .map(|what| {
            let end = run(&mut net, &session, what);
            net.world.run_until(later(&net, 1));
            end
        })
        .collect();
    assert!(matches!(*ends[0].borrow(), Some(Ok(_))));
    assert!(matches!(*ends[1].borrow(), Some(Ok(_))));
    assert!(ends[2].borrow().is_none(), "it waits");
    let cancel = |cx: &Kernel| session.ask(cx, CancelCall { tag: TAG }).is_some();
    assert_eq!(net.world.enter(client, cancel), Some(true));
    net.world.run_until(later(&net, 1));
    assert_eq!(ends[2].take(), Some(Err(CallCause::Cancelled)));
    assert_eq!(net.world.enter(client, cancel), Some(false), "gone");
    // What has come until the deadline is kept for ten seconds, and no longer.
    for (pause, is_kept) in [(5, true), (15, false)] {
        let due = later(&net, 2);
        let _first = run(&mut net, &session, (Some(Gather::First), due));
        net.world.run_until(due.after(pause * SECOND));
        let late = run(&mut net, &session, (Some(Gather::Next), due));
        net.world.run_until(later(&net, 1));
        assert_eq!(matches!(late.take(), Some(Ok(_))), is_kept, "{pause}");
    }
    let waiting = net.waiting();
    assert!(waiting.ends_with(", 0 calls wait"), "{waiting}");
}

#[test]
fn nobody_is_served_through_a_session_to_many() {
    let mut net = Net::new(1, PLAIN, "", [SERVED; 3]);
    let session = net.open(&to(ALL));
    let ended = run(&mut net, &session, (None, Time::MAX));
    net.world.run_until(Time::ZERO.after(SECOND));
    assert!(matches!(ended.take(), Some(Ok(_))));
    // A server calls the client at the port that it calls from.
    let cx = net.world.kernel(net.host("client")).expect("a kernel");
    let port = session.ask(cx, xk_kit::control::MyPort::default());
    let port = port.expect("a port").port;
    let peer: Participant = format!("{ECHO}@port{port}@10.0.0.1").parse().expect("one");
    let server = net.host("server2");
    net.world.spawn(server, move |cx| {
        let top = cx.find_protocol("top").expect("the layer");
        let app = cx.add_protocol("caller", "application", Still);
        let both = Participants::pair(Part::Any, peer);
        let session = top.open(cx, Upper::new(&app), both).expect("a session");
        let request = cx.pool().copy_from(HEADROOM, &ARGUMENTS).expect("a buffer");
        assert!(session.call(cx, request).is_err());
    });
    net.world.run_until(Time::ZERO.after(2 * SECOND));
    assert!(net.drops("client", "reqrep", &NOT_A_SERVER) > 0);
}
