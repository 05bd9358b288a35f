//! Objects in the simulator: a directory that up to ten hosts invoke while it moves to the one that
//! does so most, on a network that loses, repeats and delays, and hosts that die.

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use xk_compose::{CheckedGraph, SimulationConfig, check, rebuild_host, simulate, start_world};
use xk_core::control::Report;
use xk_core::random::Random;
use xk_core::{Kernel, Part, Participant, Participants};
use xk_objects::objloc::{FindObject, ObjectPlace};
use xk_objects::places::{Act, Known};
use xk_objects::wire::{Moving, NO, OFFER, TAKE, YES};
use xk_sim::{HostId, World};
use xk_testkit::kernel::{Top, octets};
use xk_testkit::seeds;

const EID: u64 = 7;

/// The layers below `objloc`, and its parameters.
const STACKS: [(&str, &str); 3] = [
    ("fragment ip\n channel fragment\n objloc channel", "nodes"),
    ("vip arp ip\n fragment vip\n channel fragment\n objloc channel", "nodes"),
    (
        "udp ip\n reqrep udp dupcache=1024\n \
         objloc reqrep at=port2005 everyone=\"port2005@10.0.0.255\"",
        "",
    ),
];

struct Hosts {
    /// The hosts as they are when they are started again: without the object.
    again: CheckedGraph,
    world: World,
    hosts: Vec<HostId>,
    /// Errors of invocations.
    whys: Vec<String>,
    config: SimulationConfig,
}

impl Hosts {
    fn new(n: usize, stack: usize, link: &str, seed: u64) -> Self {
        let (layers, nodes) = STACKS[stack];
        let all: Vec<String> = (1..=n).map(|at| format!("10.0.0.{at}")).collect();
        let nodes = match nodes {
            "" => String::new(),
            nodes => format!("{nodes}=\"{}\"", all.join(", ")),
        };
        let random = Random::new(seed);
        let host = |at: usize, holds: &str| {
            let holds = if at == 0 { holds } else { "" };
            let (start, interval) = (random.below(5000), 1 + random.below(100));
            format!(
                "host h{at} {{\n sim link=lan\n eth sim\n arp eth\n ip arp {{ address \"{}/24\"; }}\n \
                 {layers} {nodes}\n objinv objloc\n objmove objinv\n directory objinv objmove eid={EID} \
                 worth=6 count=40 start=\"{start}ms\" interval=\"{interval}ms\" {holds}\n}}\n",
                all[at]
            )
        };
        let graph = |holds| {
            let hosts = (0..n).map(|at| host(at, holds));
            let text: String = hosts.chain([format!("link lan {link}\n")]).collect();
            let graph = check(&text, "objects", &xk_catalog::standard());
            graph.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
        };
        let (graph, again) = (graph("holds=#true"), graph(""));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let hosts = (0..n).map(|at| world.find(&format!("h{at}")).unwrap()).collect();
        Self { again, world, hosts, whys: Vec::new(), config }
    }

    /// A host dies, and is started again after some time without what it knew.
    fn restart(&mut self, at: usize, after: Duration) {
        self.world.crash(self.hosts[at]);
        self.world.run_until(self.world.now() + after);
        let rebuilt = rebuild_host(&self.again, &mut self.world, &format!("h{at}"), self.config);
        let id = rebuilt.unwrap_or_else(|e| panic!("{e}")).unwrap();
        self.world.start_host(id).unwrap_or_else(|(_, error)| panic!("{error}"));
    }

    /// The knowledge of a host.
    fn known(&mut self, at: usize) -> Known {
        let question = ObjectPlace { eid: EID, ..ObjectPlace::default() };
        let ask = |cx: &Kernel| cx.find_protocol("objloc").unwrap().ask(cx, question);
        self.world.enter(self.hosts[at], ask).flatten().map(|asked| asked.known).unwrap_or_default()
    }

    /// The counts of the object's places, at hosts that have it.
    fn here(&mut self) -> Vec<u32> {
        let hosts = self.hosts.len();
        let here = |at| match self.known(at) {
            Known::Here(place) => Some(place.count),
            _ => None,
        };
        (0..hosts).filter_map(here).collect()
    }

    /// The figures of a host's directory.
    fn report(&mut self, at: usize) -> BTreeMap<String, u64> {
        let report = self.world.enter(self.hosts[at], |cx| {
            cx.find_protocol("directory").unwrap().ask(cx, Report::default()).unwrap()
        });
        let lines = report.unwrap().lines.into_iter();
        let lines = lines.inspect(|(name, what)| {
            if name == "why" {
                println!("h{at}: {what}");
                self.whys.push(what.clone());
            }
        });
        lines.filter_map(|(name, figure)| Some((name, figure.parse().ok()?))).collect()
    }

    /// Runs for some seconds; at no time two places have the object.
    fn run(&mut self, seconds: u64) {
        let until = self.world.now() + Duration::from_secs(seconds);
        while self.world.now() < until {
            let next = (self.world.now() + Duration::from_millis(50)).min(until);
            self.world.run_until(next);
            let here = self.here();
            assert!(here.len() <= 1, "the object is at places {here:?}");
        }
    }

    fn sums(&mut self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for at in 0..self.hosts.len() {
            for (name, figure) in self.report(at) {
                *sums.entry(name).or_insert(0) += figure;
            }
        }
        sums
    }
}

#[test]
fn ten_hosts_invoke_an_object_that_moves() {
    for stack in 0..STACKS.len() {
        let mut all = Hosts::new(10, stack, "delay=\"1ms\"", 1);
        all.run(30);
        let sums = all.sums();
        let figure = |name: &str| sums.get(name).copied().unwrap_or(0);
        assert_eq!((figure("invoked"), figure("failed"), figure("lost")), (400, 0, 0), "{sums:?}");
        assert_eq!((figure("entries"), figure("twice")), (400, 0), "{sums:?}");
        assert!((1..100).contains(&figure("moves")), "{sums:?}");
        assert_eq!(all.here().len(), 1);
    }
}

/// Up to ten hosts on a bad network, of which some die and are started again.
fn wander(seed: u64) {
    let random = Random::new(seed);
    let n = 2 + random.below(9) as usize;
    let loss = random.below(31);
    let link = format!(
        "delay=\"1ms\" jitter=\"{}ms\" loss=\"{loss}%\" duplicate=\"{}%\" reorder=\"{}%\"",
        random.below(5),
        random.below(10),
        random.below(10)
    );
    let stack = random.below(STACKS.len() as u64) as usize;
    let dies = random.below(3) == 0;
    let mut all = Hosts::new(n, stack, &link, seed);
    if dies {
        all.run(2);
        let at = random.below(n as u64) as usize;
        all.restart(at, Duration::from_millis(random.below(3000)));
    }
    all.run(120);
    let sums = all.sums();
    let figure = |name: &str| sums.get(name).copied().unwrap_or(0);
    assert_eq!((figure("twice"), figure("lost")), (0, 0), "seed {seed}: {sums:?}");
    if dies {
        return;
    }
    assert_eq!(all.here().len(), 1, "seed {seed}: {sums:?}");
    // One whose reply did not come, or not yet, may have been executed.
    let (invoked, entries) = (figure("invoked"), figure("entries"));
    let most = invoked + figure("failed") + n as u64;
    assert!((invoked..=most).contains(&entries), "seed {seed}: {sums:?}");
    if loss < 20 {
        let is_late = |why: &String| why.contains("timed out");
        assert!(all.whys.iter().all(is_late), "seed {seed}: {:?}", all.whys);
    }
}

#[test]
fn an_object_that_many_invoke_is_at_one_host() {
    seeds::of(10).run(wander);
}

/// Either host of a move dies in each of the milliseconds around it, and is started again.
#[test]
fn a_host_that_dies_in_a_move_leaves_at_most_one_object() {
    let is_coming = |all: &mut Hosts, at| matches!(all.known(at), Known::Coming(_));
    let begin = |stack| Hosts::new(3, stack, "delay=\"1ms\"", 5);
    let mut ends = [0; 2];
    for stack in 0..STACKS.len() {
        let mut all = begin(stack);
        let mut target = None;
        while target.is_none() {
            all.world.run_until(all.world.now() + Duration::from_millis(1));
            target = (0..3).find(|at| is_coming(&mut all, *at));
        }
        let (offered, target) = (all.world.now(), target.unwrap());
        let source = (0..3).find(|at| matches!(all.known(*at), Known::Here(_))).unwrap();
        for (victim, step) in
            [source, target].into_iter().flat_map(|v| (0..12).map(move |s| (v, s)))
        {
            let mut all = begin(stack);
            all.world.run_until(offered + Duration::from_millis(step));
            all.restart(victim, Duration::from_millis(300));
            all.run(120);
            let here = all.here();
            ends[here.len()] += 1;
            let sums = all.sums();
            let wrong = ["twice", "lost"].map(|name| sums.get(name).copied().unwrap_or(0));
            assert_eq!(wrong, [0, 0], "{stack} {victim} {step}: {sums:?}");
            let is_open = (0..3).any(|at| is_coming(&mut all, at));
            assert!(!is_open, "stack {stack}, host {victim} after {step} ms: the move goes on");
        }
    }
    assert!(ends[1] > 20 && ends[0] > 5, "the object is there, or went with its host: {ends:?}");
}

/// An attacker that forges the host of an offer does not know the run of that host. Where addresses
/// are proved it is the host itself that lies, and that may offer any object.
#[test]
fn an_offer_in_the_name_of_a_host_is_confirmed_by_it() {
    for stack in 0..STACKS.len() {
        let mut all = Hosts::new(3, stack, "delay=\"1ms\"", 1);
        all.run(1);
        let verdicts = Rc::new(RefCell::new(Vec::new()));
        for said in [OFFER, TAKE] {
            let heard = Rc::clone(&verdicts);
            all.world.spawn(all.hosts[1], move |cx| {
                let liar = Top::add(cx, "liar");
                let to = "procedure0@eid0@10.0.0.3".parse::<Participant>().unwrap();
                let lower = cx.find_protocol("objinv").unwrap();
                let lower = liar.open(cx, &lower, Participants::pair(Part::Any, to)).unwrap();
                let forged = Moving::of(said, (9, 5), 0xbad).emit();
                let reply = lower.call(cx, cx.pool().copy_from(128, &forged).unwrap());
                heard.borrow_mut().push(octets(&reply.unwrap())[1]);
            });
            all.run(1);
        }
        match stack {
            2 => assert_eq!(*verdicts.borrow(), [NO, NO]),
            _ => assert_eq!(verdicts.borrow()[0], YES, "stack {stack}"),
        }
    }
}

/// Two hosts that know of each other only by what the one asks the other.
fn pair(layers: &str) -> (World, [HostId; 2]) {
    let host = |at: u8| {
        format!(
            "host h{at} {{\n sim link=lan\n eth sim\n arp eth\n ip arp {{ address \
             \"10.0.0.{at}/24\"; }}\n {layers}\n}}\n"
        )
    };
    let text = format!("{}{}link lan delay=\"1ms\"\n", host(1), host(2));
    let graph = check(&text, "pair", &xk_catalog::standard());
    let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
    let config = SimulationConfig { seed: 1, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
    start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
    let hosts = ["h1", "h2"].map(|name| world.find(name).unwrap());
    (world, hosts)
}

/// Has a host look for an object, and ask others; whether it finds it.
fn find(world: &mut World, host: HostId, eid: u64, hint: &str) -> bool {
    let hint = hint.parse().unwrap();
    let wanted = FindObject { eid, hint, is_lost: true, ..FindObject::default() };
    let found = Rc::new(Cell::new(Known::Nothing));
    let tell = Rc::clone(&found);
    world.spawn(host, move |cx| {
        let asked = cx.find_protocol("objloc").unwrap().ask(cx, wanted);
        tell.set(asked.unwrap().known);
    });
    world.run_until(world.now() + Duration::from_secs(30));
    found.get() != Known::Nothing
}

/// Whether a host is asked for objects because it has asked us depends on whether it is there.
#[test]
fn only_a_host_that_is_there_is_remembered() {
    for (layers, is_proved) in [
        ("fragment ip\n channel fragment\n objloc channel", true),
        ("udp ip\n reqrep udp\n objloc reqrep at=port2005", false),
    ] {
        let (mut world, hosts) = pair(layers);
        assert!(!find(&mut world, hosts[1], 9, "10.0.0.1"), "there is no such object");
        let made = ObjectPlace { eid: 8, act: Act::Create, ..ObjectPlace::default() };
        // The first knows of the second only by its question.
        let create = |cx: &Kernel| cx.find_protocol("objloc").unwrap().ask(cx, made);
        world.enter(hosts[1], create);
        assert_eq!(find(&mut world, hosts[0], 8, "0.0.0.0"), is_proved, "{layers}");
        assert!(!find(&mut world, hosts[0], 7, "10.0.0.2"), "there is no such object");
        assert!(find(&mut world, hosts[0], 8, "0.0.0.0"), "it has answered");
    }
}
