//! Domains that crash at random moments under load, and come back: those next to them release all
//! that was theirs, those above find them again, and others notice nothing.

use std::time::Duration;

use crate::sim::{ask, checked, config, figure, kernel, pass, report, started};
use xk_compose::{CheckedGraph, Cuts, Faults, restart};
use xk_core::control::ListSessions;
use xk_core::random::Random;
use xk_core::{Participants, Time};
use xk_domains::{Arrival, Carrier, Holdings, Queue};
use xk_kit::net::template::Headers;
use xk_netio::{GrantChannel, GrantRight, Module, Rate};
use xk_sim::{HostId, World};
use xk_testkit::seeds;

/// The domains of a host, from the bottom up.
const DOMAINS: [&str; 3] = ["net", "transport", "app"];

/// Two hosts in these domains each, and two in one, on one link.
const GRAPH: &str = r#"
host client {
    domain net { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; } }
    domain transport { udp ip; tcp ip; vip arp ip; fragment vip; channel fragment; select channel; }
    domain app {
        probe udp name=datagrams to="port7@10.0.0.2" count=60 interval="10ms"
        probe tcp name=stream to="port7@10.0.0.2" count=60 interval="10ms" size=3000 timeout="20s"
        caller select name=calls procedure=0 to="10.0.0.2" count=60 interval="10ms"
    }
}
host server {
    domain net { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.2/24"; } }
    domain transport { udp ip; tcp ip; vip arp ip; fragment vip; channel fragment; select channel; }
    domain app { echo udp name=datagrams port=7; echo tcp name=stream port=7; procedures select; }
}
host left {
    sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.3/24"; }
    udp ip; probe udp to="port7@10.0.0.4" count=0 interval="10ms"
}
host right {
    sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.4/24"; }
    udp ip; echo udp port=7
}
link lan delay="50us" rate="100Mbit"
"#;

/// Seeds that have shown faults: a turn given to a shepherd in the moment in which its wait ended;
/// a session of FRAGMENT founded on questions that were lost; connections whose IP had died.
const TELLING: [u64; 3] = [8463, 361, 33];
/// The cost of a seed.
const COST: u64 = 25;
/// Time for which crashes go on.
const CHAOS: Duration = Duration::from_millis(700);
/// Mean time between crashes.
const APART: Duration = Duration::from_millis(60);

/// Holdings of a domain's ports, each with the domain on its other side.
fn holdings(world: &World, name: &str) -> Vec<(usize, Holdings)> {
    let cuts = kernel(world, name).surroundings::<Cuts>().expect("cuts");
    let of = |(other, port): &(usize, std::rc::Rc<xk_domains::Port>)| {
        assert!(!port.is_lost(), "{name}: the way to domain {other} is there");
        (*other, port.holdings())
    };
    cuts.0.iter().map(of).collect()
}

/// Result of a run: the numbers of crashes and of events, and the reports of the upper ends.
type Outcome = (usize, u64, Vec<Vec<(String, String)>>);

fn lives(graph: &CheckedGraph, seed: u64) -> Outcome {
    let what = format!("XK_SEED={seed}");
    let mut world = started(graph, seed);
    let before: Vec<_> = ["server", "client"].map(|host| enables(&world, host)).into();
    let (mut deaths, mut crashes) = (Faults::default(), 0);
    deaths.crash_every(graph, seed, APART);
    while deaths.next() < Time::MAX {
        if deaths.next() >= Time::ZERO.after(CHAOS) {
            deaths.end();
        }
        let next = deaths.next();
        if next == Time::MAX {
            break;
        }
        world.run_until(next);
        let died = deaths.act(graph, &mut world, config(seed));
        if let Some(xk_compose::Event::Crashed(_)) = died.unwrap_or_else(|e| panic!("{what}: {e}"))
        {
            crashes += 1;
        }
    }
    // What is started again finds all that it needs.
    pass(&mut world, Duration::from_secs(2));
    let app = world.find("client/app").expect("a domain");
    world.crash(app);
    restart(graph, &mut world, "client/app", config(seed))
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    pass(&mut world, Duration::from_secs(8));
    let mut told = Vec::new();
    for (name, answer) in [("datagrams", "received"), ("stream", "received"), ("calls", "replies")]
    {
        let report = report(&world, "client/app", name);
        assert!(report.finished && !report.failed, "{what}: {name}: {:?}", report.lines);
        // A call may be the one by which the client learns that the server has rebooted.
        let least = if name == "calls" { 59 } else { 60 };
        assert!(figure(&report, answer) >= least, "{what}: {name}: {:?}", report.lines);
        told.push(report.lines);
    }
    let calm = report(&world, "left", "probe");
    assert_eq!(figure(&calm, "lost"), 0, "{what}: others go on: {:?}", calm.lines);
    assert!(figure(&calm, "received") > 500, "{what}: {:?}", calm.lines);
    for (host, before) in ["server", "client"].iter().zip(before) {
        assert_eq!(enables(&world, host), before, "{what}: what was enabled stands again");
        for pair in DOMAINS.array_windows() {
            fits(&world, host, pair, &what);
        }
    }
    let events = world.stats().events;
    let pool = world.kernel(HostId(0)).expect("a host").pool().clone();
    world.stop();
    drop(world);
    let left = pool.stats();
    assert_eq!((left.descriptors_live, left.buffers_live), (0, 0), "{what}: no message is left");
    (crashes, events, told)
}

/// Number of enables in each domain of a host, for those above.
fn enables(world: &World, host: &str) -> Vec<usize> {
    let names = DOMAINS.map(|domain| format!("{host}/{domain}"));
    let of = |name: &String| holdings(world, name).iter().map(|(_, held)| held.enables).sum();
    names.iter().map(of).collect()
}

/// Nothing is on its way between two domains, and both know of the same sessions.
fn fits(world: &World, host: &str, [lower, upper]: &[&str; 2], what: &str) {
    let place = |domain: &str| 1 + DOMAINS.iter().position(|d| *d == domain).unwrap();
    let held = |of: &str, other: &str| {
        let all = holdings(world, &format!("{host}/{of}"));
        all.into_iter().find(|(at, _)| *at == place(other)).expect("a cut").1
    };
    let (above, below) = (held(upper, lower), held(lower, upper));
    let what = format!("{what}: {host}, {upper} on {lower}: {above:?}, {below:?}");
    assert_eq!(above.imports, below.exports, "{what}: both know of the same sessions");
    assert_eq!(
        above.exports + below.imports + above.enables,
        0,
        "{what}: there is nothing upwards"
    );
    for held in [above, below] {
        assert_eq!((held.waits, held.serving, held.messages), (0, 0, 0), "{what}: nothing waits");
    }
}

#[test]
fn domains_die_and_come_back() {
    let graph = checked(GRAPH);
    let sum = seeds::of(COST).behind(&TELLING).sum(|seed| [lives(&graph, seed).0 as u64]);
    println!("{sum:?} crashes");
    assert!(sum.is_none_or(|[crashes]| crashes > 3));
}

#[test]
fn one_seed_is_one_life() {
    let graph = checked(GRAPH);
    assert_eq!(lives(&graph, 7), lives(&graph, 7));
}

/// A stream's peer is told of the death of what stood above it, whether that held the session or,
/// as `echo` and `discard` do, took what came; and it is told at once.
#[test]
fn peers_of_the_dead_hear_a_reset() {
    for top in ["echo", "discard"] {
        let old = "echo tcp name=stream port=7;";
        let text = GRAPH.replace(old, &format!("{top} tcp name=stream port=7;"));
        let graph = checked(&text);
        let mut world = started(&graph, 1);
        let mut deaths = Faults::default();
        assert!(deaths.crash(
            &graph,
            "server/app",
            Time::ZERO.after(Duration::from_millis(300)),
            None
        ));
        assert!(!deaths.crash(&graph, "server/none", Time::ZERO, None), "there is no such domain");
        world.run_until(deaths.next());
        let before = report(&world, "client/app", "stream");
        assert_eq!(figure(&before, "stream reset"), 0, "{top}: {:?}", before.lines);
        deaths.act(&graph, &mut world, config(1)).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert!(!deaths.is_pending());
        pass(&mut world, Duration::from_millis(50));
        let told = report(&world, "client/app", "stream");
        assert_eq!(figure(&told, "stream reset"), 1, "{top}: {:?}", told.lines);
    }
}

/// A server for each protocol, and streams that say little.
const PER_PROTOCOL: &str = r#"
host client {
    domain net { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; }; tcp ip; }
    domain app { STREAMS }
}
host server {
    domain eth { sim link=lan; eth sim; arp eth; }
    domain ip { ip arp { address "10.0.0.2/24"; } }
    domain tcp { tcp ip; }
    domain app { echo tcp port=7; }
}
link lan delay="50us" rate="100Mbit"
"#;

/// No connection outlives its program, or that of its peer that said so, whichever of the domains
/// below it died before, when none of its segments was on the way.
#[test]
fn no_connection_is_left_of_a_program_that_is_gone() {
    const STREAMS: u64 = 40;
    const BELOW: [&str; 4] = ["server/eth", "server/ip", "server/tcp", "server/app"];
    let probe = |n| {
        let start = 1 + n * 10;
        format!(
            "probe tcp name=p{n} to=\"port7@10.0.0.2\" start=\"{start}ms\" count=0 \
             interval=\"900ms\" size=100;"
        )
    };
    let streams: String = (0..STREAMS).map(probe).collect();
    let text = PER_PROTOCOL.replace("STREAMS", &streams);
    let graph = checked(&text);
    seeds::of(COST).behind(&TELLING).run(|seed| {
        let chance = Random::new(seed);
        let gone = ["client/app", "server/app"][chance.below(2) as usize];
        let what = format!("XK_SEED={seed}: {gone}");
        let mut world = started(&graph, seed);
        let mut deaths = Faults::default();
        for _ in 0..1 + chance.below(6) {
            let name = BELOW[chance.below(4) as usize];
            let at = Time::ZERO.after(Duration::from_millis(400 + chance.below(2000)));
            let away = Duration::from_micros(1 + chance.below(50_000));
            assert!(deaths.crash(&graph, name, at, Some(away)));
        }
        while deaths.is_pending() {
            world.run_until(deaths.next());
            let _ = deaths
                .act(&graph, &mut world, config(seed))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        // What was lost meanwhile has come again: a reset behind lost octets is only asked about.
        pass(&mut world, Duration::from_millis(3000 + chance.below(2000)));
        assert!(deaths.crash(&graph, gone, world.now(), None));
        let _ =
            deaths.act(&graph, &mut world, config(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
        pass(&mut world, Duration::from_secs(300));
        let left = ask(&world, "server/tcp", "tcp", ListSessions::first(1)).total;
        assert_eq!(left, 0, "{what}: connections that are left");
    });
}

/// The first octets of the frames that one station sends to another, of a protocol of their own.
fn header(from: u8, to: u8) -> [u8; 14] {
    [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]
}

/// A program behind the module of a host, which was granted the frames to and from another station.
struct Program {
    device: HostId,
    own: [u8; 14],
    queue: Queue,
}

impl Program {
    fn new(world: &World, host: &str, [own, peer]: [u8; 2]) -> Self {
        let device = world.find(&format!("{host}/device")).expect("a domain");
        let cx = world.kernel(device).expect("a kernel");
        let netio = cx.find_protocol("netio").expect("a node");
        let module = cx.surroundings::<Module>().expect("it is beside the kernel");
        let rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
        let granted = netio.ask(cx, GrantChannel::new(rate)).expect("it is known");
        let (sent, received) = (header(own, peer), header(peer, own));
        let headers = Headers::of_wire(1514).with((&sent, &[]), (&received, &[]));
        let headers = headers.expect("a template");
        let of = (netio.id(), Participants::default());
        let right = GrantRight { channel: granted.number, headers, of, number: None };
        assert!(netio.ask(cx, right).is_some_and(|right| right.number.is_some()));
        let (end, queue) = Queue::pair(64);
        let ticket = granted.ticket.expect("there is room");
        assert!(module.attach(cx, &ticket, Box::new(end)).is_ok());
        Self { device, own: sent, queue }
    }

    fn send(&self, world: &mut World, number: u64) {
        let (queue, own) = (self.queue.clone(), self.own);
        world.spawn(self.device, move |cx| {
            let frame = [&own[..], &number.to_be_bytes(), &[0; 38]].concat();
            let nothing = cx.pool().empty(0).expect("a descriptor");
            queue.send(cx, &frame, &nothing).expect("the channel is there");
        });
    }

    /// The numbers that have come.
    fn take(&self, world: &World) -> Vec<u64> {
        let cx = world.kernel(self.device).expect("a kernel");
        let mut numbers = Vec::new();
        while let Arrival::Frame(frame) = self.queue.receive(cx) {
            let mut number = [0; 8];
            frame.copy_to(14, &mut number);
            numbers.push(u64::from_be_bytes(number));
        }
        numbers
    }
}

/// The layer on a network I/O module dies and comes back at random moments. The programs that it
/// was to grant channels to notice nothing: no frame is lost, none comes twice.
#[test]
fn programs_behind_a_module_notice_no_death_above_it() {
    const FRAMES: u64 = 1000;
    let mut text = GRAPH.to_owned();
    for station in ["01", "02"] {
        let device = format!("sim link=lan address=\"02:00:00:00:00:{station}\"; netio sim;");
        let domains = format!("domain device {{ {device} }}\n    domain net {{ eth netio;");
        text = text.replacen("domain net { sim link=lan; eth sim;", &domains, 1);
    }
    let graph = checked(&text);
    let sum = seeds::of(COST).behind(&TELLING).sum(|seed| {
        let (mut crashes, what) = (0, format!("XK_SEED={seed}"));
        let mut world = started(&graph, seed);
        let one = Program::new(&world, "client", [1, 2]);
        let other = Program::new(&world, "server", [2, 1]);
        let chance = Random::new(seed);
        let (mut there, mut back) = (Vec::new(), Vec::new());
        for number in 0..FRAMES {
            one.send(&mut world, number);
            other.send(&mut world, number);
            if chance.below(50) == 0 {
                let host = ["client", "server"][chance.below(2) as usize];
                // With a domain all that stands on it, as in `xk run`.
                let least = chance.below(3) as usize;
                let names = DOMAINS[least..].iter().map(|domain| format!("{host}/{domain}"));
                let names: Vec<String> = names.collect();
                for name in names.iter().rev() {
                    world.crash(world.find(name).expect("a domain"));
                }
                pass(&mut world, Duration::from_micros(chance.below(900)));
                for name in &names {
                    let started = restart(&graph, &mut world, name, config(seed));
                    started.unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
                }
                crashes += 1;
            }
            pass(&mut world, Duration::from_millis(1));
            there.extend(other.take(&world));
            back.extend(one.take(&world));
        }
        let all: Vec<u64> = (0..FRAMES).collect();
        assert!(there == all && back == all, "{what}: {} and {} came", there.len(), back.len());
        // And what stands there works.
        pass(&mut world, Duration::from_secs(8));
        let datagrams = report(&world, "client/app", "datagrams");
        assert!(figure(&datagrams, "received") > 0, "{what}: {:?}", datagrams.lines);
        world.stop();
        [crashes]
    });
    println!("{sum:?} crashes");
    assert!(sum.is_none_or(|[crashes]| crashes > 10));
}
