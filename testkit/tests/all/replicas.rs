//! Replicas in the simulator: what clients see is one store, over each layer of calls; a checker of
//! linearizability finds it where it is not.

use core::cell::Cell;
use core::time::Duration;
use xk_compose::{Faults, SimulationConfig, check, simulate, start_world};
use xk_core::control::{ListSessions, Report};
use xk_core::random::Random;
use xk_core::{Kernel, Time};
use xk_kit::group::{MaskOut, MemberState, MyMember, View};
use xk_sim::{HostId, World};
use xk_testkit::seeds;

const MS: Duration = Duration::from_millis(1);
/// Time before it fails in which a replica is not heard by the others.
const MUTE: Duration = Duration::from_millis(30);
/// Virtual time after which it is over.
const LIMIT: Duration = Duration::from_secs(200);

/// Layers of calls, from IP up, and the layer that is called.
const CALLS: [(&str, &str); 3] = [
    ("mrpc ip", "mrpc"),
    ("fragment ip\n channel fragment\n select channel", "select"),
    ("vmtp ip", "vmtp"),
];

/// A network of replicas and of one host of clients.
struct Plan<'a> {
    replicas: usize,
    /// Layers of the conversation, and the last of them.
    group: (&'a str, &'a str),
    calls: (&'a str, &'a str),
    /// Parameters of the replicas and of the clients.
    replica: &'a str,
    clients: &'a str,
    link: &'a str,
    /// A block of a graph.
    faults: &'a str,
}

/// A replica at the end.
#[derive(Debug)]
struct Ended {
    state: String,
    /// The members that go on count it, as far as it knows.
    is_in: bool,
}

impl Plan<'_> {
    fn text(&self) -> String {
        let host = |name: &str, address: usize, layers: &str| {
            format!(
                "host {name} {{\n sim link=lan\n eth sim\n arp eth\n \
                 ip arp {{ address \"10.0.0.{address}/24\"; }}\n {}\n {layers}\n}}\n",
                self.calls.0
            )
        };
        let ((layers, group), calls) = (self.group, self.calls.1);
        let replica = |at: usize| {
            let member = |at: usize| format!("member \"process7@10.0.0.{at}\"; ");
            let others = (0..self.replicas).filter(|other| *other != at);
            let members: String = others.map(|other| member(other + 1)).collect();
            let waits = at > 0;
            let top = format!(
                "{layers}\n replica {group} {calls} local=process7 waits=#{waits} {} {{ {members} }}",
                self.replica
            );
            host(&format!("r{at}"), at + 1, &top)
        };
        let server = |at: usize| format!("server \"procedure1@10.0.0.{}\"; ", at + 1);
        let servers: String = (0..self.replicas).map(server).collect();
        let client = format!("replica-client {calls} {} {{ {servers} }}", self.clients);
        let link = format!("link lan {}\n{}\n", self.link, self.faults);
        let hosts = (0..self.replicas).map(replica);
        hosts.chain([host("clients", 100, &client), link]).collect()
    }

    /// Runs it for [`LIMIT`] at most; returns the report of the clients, and the states of the
    /// replicas that are up. One of these may fail after so many operations: the others mask it out
    /// when they have heard the last of it.
    fn run(&self, seed: u64, mut fails: Option<(usize, u64)>) -> (Report, Vec<Option<Ended>>) {
        let text = self.text();
        let graph = check(&text, "replicas", &xk_catalog::standard());
        let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let mut faults = Faults::of(&graph, seed);
        let (mut now, mut failed_at, mut end) = (Duration::ZERO, None, Duration::MAX);
        loop {
            let seen = report(&world, "clients", "replica-client");
            if end == Duration::MAX && (seen.finished || now > LIMIT) {
                // Time for what is still to fail, and to come back.
                end = now + 30_000 * MS;
            }
            if now > end {
                break;
            }
            match (fails, failed_at) {
                (Some((at, operations)), None) if count(&seen, "operations") >= operations => {
                    failed_at = Some(now);
                    self.fail(&mut world, at);
                    now += MUTE;
                }
                (Some((at, _)), Some(when))
                    if now > when + 2000 * MS && self.mask(&mut world, at) =>
                {
                    fails = None;
                }
                _ => {}
            }
            let is_near = fails.is_some() && failed_at.is_none();
            now += if is_near && count(&seen, "operations") > 0 { 2 * MS } else { 250 * MS };
            while faults.next() <= Time::ZERO.after(now) {
                world.run_until(faults.next());
                faults.act(&graph, &mut world, config).unwrap_or_else(|e| panic!("{e}"));
            }
            world.run_until(Time::ZERO.after(now));
        }
        let seen = report(&world, "clients", "replica-client");
        let state = |at| {
            let host = world.find(&format!("r{at}")).filter(|host| world.is_up(*host));
            host.map(|host| Ended {
                state: line(&report(&world, &format!("r{at}"), "replica"), "state").to_owned(),
                is_in: world.enter(host, is_in) == Some(true),
            })
        };
        (seen, (0..self.replicas).map(state).collect())
    }

    /// Lets a replica fail: for the last moments it hears the others, and they do not hear it.
    fn fail(&self, world: &mut World, at: usize) {
        let host = |at: usize| world.find(&format!("r{at}")).unwrap();
        let others = (0..self.replicas).filter(|other| *other != at);
        others.for_each(|other| world.network().deafen(host(at), host(other)));
        let failing = host(at);
        world.run_until(world.now().after(MUTE));
        world.crash(failing);
    }

    /// Masks a replica out at all others, if these have heard the same of it; false if not yet.
    fn mask(&self, world: &mut World, dead: usize) -> bool {
        let session = |cx: &Kernel| {
            let order = cx.find_protocol("order").unwrap();
            let list = order.ask(cx, ListSessions::first(9)).unwrap();
            list.here().next().expect("a conversation").clone()
        };
        let index = dead as u8;
        let others: Vec<HostId> = (0..self.replicas)
            .filter(|at| *at != dead)
            .map(|at| world.find(&format!("r{at}")).unwrap())
            .collect();
        let last = |world: &mut World, host: HostId| {
            let question = MemberState { index, ..MemberState::default() };
            world.enter(host, |cx| session(cx).ask(cx, question).unwrap().last).unwrap()
        };
        let lasts: Vec<u32> = others.iter().map(|host| last(world, *host)).collect();
        let is_same = lasts.iter().all(|last| *last == lasts[0]);
        for host in others.iter().filter(|_| is_same) {
            let masked = world.enter(*host, |cx| session(cx).ask(cx, MaskOut { index, last: 0 }));
            assert!(masked.unwrap().is_some());
        }
        is_same
    }
}

/// Whether a host's conversation goes on, with this member.
fn is_in(cx: &Kernel) -> bool {
    let list = cx.find_protocol("order").unwrap().ask(cx, ListSessions::first(9)).unwrap();
    let view = list.here().next().and_then(|session| {
        let index = session.ask(cx, MyMember::default())?.index;
        Some((session.ask(cx, View::default()), index))
    });
    match view {
        // Without `membership` all are in.
        Some((view, index)) => view.is_none_or(|v| v.has_quorum && v.members >> index & 1 == 1),
        None => false,
    }
}

fn report(world: &World, host: &str, node: &str) -> Report {
    let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
    let found = kernel.find_protocol(node).unwrap();
    found.ask(kernel, Report::default()).unwrap()
}

fn line<'a>(report: &'a Report, name: &str) -> &'a str {
    let found = report.lines.iter().find(|(line, _)| line == name);
    found.map_or("", |(_, value)| value)
}

fn count(report: &Report, name: &str) -> u64 {
    line(report, name).parse().unwrap()
}

/// A network that loses, repeats and delays by chance.
fn rough(random: &Random, loss_max: u64) -> String {
    format!(
        "delay=\"{}us\" jitter=\"{}us\" loss=\"{}%\" duplicate=\"5%\" reorder=\"5%\"",
        10 + random.below(3000),
        1 + random.below(5000),
        random.below(loss_max + 1)
    )
}

/// Whether the replicas that are in, so many at least, have one state.
fn are_alike(ended: &[Option<Ended>], least: usize) -> bool {
    let mut all = ended.iter().flatten().filter(|ended| ended.is_in).map(|ended| &ended.state);
    let count = all.clone().count();
    let first = all.next();
    count >= least && all.all(|state| Some(state) == first)
}

/// Replicas of which all go on, or all but one that fails.
fn live(seed: u64, fails: bool) {
    let random = Random::new(seed);
    let plan = Plan {
        replicas: if fails { 3 } else { 2 } + random.below(3) as usize,
        group: ("psync ip\n order psync safe=#true", "order"),
        calls: CALLS[seed as usize % CALLS.len()],
        replica: "patience=\"1s\"",
        clients: "clients=6 count=25 keys=3 deadline=\"400ms\" limit=\"200s\"",
        link: &rough(&random, 15),
        faults: "",
    };
    let when = 20 + random.below(100);
    let at = random.below(plan.replicas as u64) as usize;
    let (seen, states) = plan.run(seed, fails.then_some((at, when)));
    let what = format!("seed {seed}: {:?}\n{}", seen.lines, plan.text());
    assert_eq!(line(&seen, "history"), "linearizable", "{what}");
    assert_eq!(count(&seen, "operations"), 6 * 25, "{what}");
    assert!(are_alike(&states, 1), "{states:?} {what}");
}

#[test]
fn clients_see_one_store() {
    seeds::of(5).run(|seed| live(seed, false));
}

#[test]
fn a_replica_that_fails_is_masked_out() {
    seeds::of(5).run(|seed| live(seed, true));
}

/// Checks that some histories are found not to be linearizable.
fn found_out(cost: u64, run: impl Fn(u64) -> Report) {
    let found = seeds::of(cost).sum(|seed| {
        let seen = run(seed);
        [u64::from(line(&seen, "history").ends_with("not linearizable"))]
    });
    if let Some([found]) = found {
        println!("{found} histories are not linearizable");
        assert!(found > 0);
    }
}

#[test]
fn gets_that_one_replica_answers_alone_are_found_out() {
    found_out(10, |seed| {
        let plan = Plan {
            replicas: 3,
            group: ("psync ip\n order psync safe=#true", "order"),
            calls: CALLS[0],
            replica: "local_reads=#true",
            clients: "clients=6 count=25 keys=2 interval=\"2ms\"",
            link: "delay=\"1ms\" jitter=\"3ms\" loss=\"5%\"",
            faults: "",
        };
        plan.run(seed, None).0
    });
}

/// A replica that fails has replied to what no other has heard of, unless the order is safe.
#[test]
fn an_order_that_is_not_safe_is_found_out() {
    found_out(3, |seed| {
        let random = Random::new(seed);
        let fails = (random.below(3) as usize, 10 + random.below(100));
        let run = |layers| {
            let plan = Plan {
                replicas: 3,
                group: (layers, "order"),
                calls: CALLS[0],
                replica: "patience=\"1s\"",
                clients: "clients=8 count=20 keys=3 deadline=\"400ms\" limit=\"60s\"",
                link: "delay=\"1ms\" jitter=\"3ms\" loss=\"2%\"",
                faults: "",
            };
            plan.run(seed, Some(fails)).0
        };
        let safe = run("psync ip\n order psync safe=#true");
        assert_eq!(line(&safe, "history"), "linearizable", "seed {seed}: {:?}", safe.lines);
        run("psync ip\n order psync")
    });
}

/// Layers of a conversation that goes on without members that fail.
const MEMBERS: (&str, &str) =
    ("psync ip\n membership psync suspect=\"1s\"\n order membership safe=#true", "order");

/// Replicas of which a minority crashes, is restarted or is cut off, by chance: all but those that
/// stay away come back.
fn minority(seed: u64) {
    let random = Random::new(seed);
    let replicas = 3 + random.below(3) as usize;
    let first = random.below(replicas as u64) as usize;
    let failing: Vec<usize> =
        (0..replicas.div_ceil(2) - 1).map(|n| (first + n) % replicas).collect();
    let gone = Cell::new(0);
    let fault = |at: &usize| {
        let (from, lasts) = (2000 + random.below(1500), 100 + random.below(3000));
        match random.below(3) {
            0 => {
                gone.set(gone.get() + 1);
                format!("crash r{at} at=\"{from}ms\"\n")
            }
            1 => format!("crash r{at} at=\"{from}ms\" away=\"{lasts}ms\"\n"),
            _ => {
                let others = (0..replicas).filter(|other| other != at);
                let others: Vec<String> = others.map(|other| format!("r{other}")).collect();
                let others = others.join(" ");
                format!(
                    "partition between=r{at} and=\"{others}\" at=\"{from}ms\" for=\"{lasts}ms\"\n"
                )
            }
        }
    };
    let text: String = failing.iter().map(fault).collect();
    let plan = Plan {
        replicas,
        group: MEMBERS,
        calls: CALLS[seed as usize % CALLS.len()],
        replica: "patience=\"1s\"",
        clients: "clients=6 count=25 keys=3 deadline=\"400ms\" limit=\"100s\"",
        link: &rough(&random, 10),
        faults: &format!("faults {{\n{text}}}"),
    };
    let (seen, states) = plan.run(seed, None);
    let what = format!("seed {seed}: {:?}\n{}", seen.lines, plan.text());
    if count(&seen, "operations") == 0 && gone.get() > 0 {
        // One that has not said before that it is there stays away: nothing begins without it.
        return;
    }
    assert_eq!(line(&seen, "history"), "linearizable", "{what}");
    assert_eq!(count(&seen, "operations"), 6 * 25, "{what}");
    assert!(are_alike(&states, replicas - gone.get()), "{states:?} {what}");
}

#[test]
fn a_minority_may_fail() {
    seeds::of(5).run(minority);
}

/// A majority fails: nothing is done any more, and what was done stays so.
#[test]
fn without_a_majority_nothing_is_done() {
    seeds::of(30).run(|seed| {
        let plan = Plan {
            replicas: 3,
            group: MEMBERS,
            calls: CALLS[0],
            replica: "patience=\"1s\"",
            clients: "clients=4 count=40 keys=3 deadline=\"400ms\" limit=\"2s\"",
            link: "delay=\"1ms\" jitter=\"3ms\" loss=\"5%\"",
            faults: "faults { crash r0 at=\"2500ms\" away=\"1s\"; crash r1 at=\"2500ms\" away=\"1s\"; }",
        };
        let (seen, states) = plan.run(seed, None);
        assert_eq!(line(&seen, "history"), "linearizable", "seed {seed}: {:?}", seen.lines);
        assert!(count(&seen, "operations") < 160 && count(&seen, "unknown") > 0, "seed {seed}");
        let states: Vec<String> = states.into_iter().flatten().map(|ended| ended.state).collect();
        let is_new = states[0] == states[1];
        assert!(is_new && states[2] != states[0], "what is restarted begins with nothing");
    });
}

/// A host that is none of the members opens a conversation before these do.
#[test]
fn a_stranger_does_not_keep_replicas_apart() {
    let plan = Plan {
        replicas: 3,
        group: MEMBERS,
        calls: CALLS[0],
        replica: "",
        clients: "clients=2 count=10",
        link: "delay=\"1ms\"",
        faults: "host stranger {\n sim link=lan\n eth sim\n arp eth\n ip arp { address \"10.0.0.66/24\"; }\n \
            psync ip\n membership psync\n order membership safe=#true\n mrpc ip\n replica order mrpc start=\"1ms\" \
            { member \"process7@10.0.0.2\"; member \"process7@10.0.0.3\"; } }",
    };
    let (seen, states) = plan.run(1, None);
    assert_eq!(line(&seen, "history"), "linearizable", "{:?}", seen.lines);
    assert!(are_alike(&states, 3), "{states:?}");
}

const EXAMPLE: &str = include_str!("../../../graphs/replica.kdl");

/// The line of the README: all clients come to their end while a host crashes.
#[test]
fn the_example_goes_on_without_a_host() {
    goes_on_without_a_host(EXAMPLE);
}

/// At a cut no upcall waits for the one before, so messages behind the state come while it is being
/// fetched.
#[test]
fn a_replica_that_comes_back_above_a_cut_misses_nothing() {
    let (begin, end) = EXAMPLE.split_once("host b {").unwrap();
    let (layers, end) = end.split_once("    replica ").unwrap();
    let (replica, end) = end.split_once("\n}\n").unwrap();
    let text =
        format!("{begin}host b {{{layers} domain store {{\n replica {replica}\n}}\n}}\n{end}");
    goes_on_without_a_host(&text);
}

/// Crashes host `b` of a graph, which comes back.
fn goes_on_without_a_host(text: &str) {
    let graph = check(text, "replica.kdl", &xk_catalog::standard());
    let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    for seed in 1..6 {
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let mut faults = Faults::default();
        assert!(faults.crash(&graph, "b", Time::from_ms(2000), Some(1000 * MS)));
        while faults.next() < Time::MAX {
            world.run_until(faults.next().max(world.now()));
            faults.act(&graph, &mut world, config).unwrap_or_else(|e| panic!("{e}"));
        }
        world.run_until(Time::from_ms(60_000));
        let ended = ["a", "b", "c"].map(|name| {
            let is_in = world.enter(world.find(name).unwrap(), is_in) == Some(true);
            let store = format!("{name}/store");
            let store = if world.find(&store).is_some() { &store } else { name };
            Some(Ended {
                state: line(&report(&world, store, "replica"), "state").to_owned(),
                is_in,
            })
        });
        assert!(are_alike(&ended, 3), "seed {seed}: {ended:?}");
        let seen = report(&world, "clients", "replica-client");
        println!("seed {seed}: {:?}", seen.lines);
        assert!(seen.finished && !seen.failed, "seed {seed}: {:?}", seen.lines);
        assert_eq!(count(&seen, "operations"), 4 * 50, "seed {seed}: {:?}", seen.lines);
    }
}
