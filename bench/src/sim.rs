//! The simulator's own speed and memory.
//!
//! A *hop* is one frame sent into one link and handed to one host's interface, with all that the
//! host does with it: here IP and UDP below an echo that sends every datagram back to where it came
//! from, checksums on. Every host is one end of one such pair, so as many datagrams are on their
//! way as there are pairs, and every hop is taken by another host than the one before.

use crate::case::{Better, Case, Goal, Trouble};
use crate::child;
use crate::record::Record;
use std::fmt::Write as _;
use std::time::Instant;
use xk_compose::{SimulationConfig, simulate, start_world};
use xk_core::object::OpenError;
use xk_core::{Kernel, Part, Participant, Participants, Time, Upper};
use xk_sim::{HostId, World};

/// Number of hosts on one switch.
const LINK_HOSTS: usize = 10;
/// From a frame's sending to its arrival.
const DELAY_NS: u64 = 10_000;
/// Hops of one round.
const HOPS: usize = 200_000;
/// The numbers of hosts measured.
const HOSTS: [usize; 3] = [10, 1000, 10_000];
/// Octets of a datagram's payload.
const OCTETS: usize = 64;
/// Room for the headers of UDP, IP and ETH.
const HEADROOM: usize = 128;

/// Half a microsecond a hop are two million a second.
const HOP_GOAL: Goal = Goal::AtMost(500.0);

pub(crate) fn cases() -> Vec<Case> {
    let mut list = vec![
        Case::new(hop_row(HOSTS[0]), 200_000, || {
            let mut network = Bouncing::new(HOSTS[0]).expect("the graph is right");
            move |hops| {
                network.run(hops);
            }
        })
        .goal(HOP_GOAL),
    ];
    for hosts in &HOSTS[1..] {
        list.push(timed(*hosts).goal(HOP_GOAL));
    }
    for hosts in HOSTS {
        let case = Case::measured(format!("{hosts} hosts, memory of a host"), move |effort| {
            let figures = child::ask("sim-memory", &scaled(hosts, effort).to_string())?;
            Ok(figures.first().copied().unwrap_or(f64::NAN).into())
        });
        list.push(case.unit("octets"));
    }
    let [.., most] = HOSTS;
    let whole = Case::measured(format!("{most} hosts, memory of all"), move |effort| {
        let figures = child::ask("sim-memory", &scaled(most, effort).to_string())?;
        Ok((figures.get(1).copied().unwrap_or(f64::NAN) / f64::from(1 << 20)).into())
    });
    list.push(whole.unit("MiB").goal(Goal::AtMost(1024.0)));
    let row = format!("{most} hosts, from the text to the first datagrams' return");
    let build = Case::measured(row, move |effort| {
        let start = Instant::now();
        let network = Bouncing::new(scaled(most, effort)).map_err(Trouble::Failed)?;
        let took = start.elapsed();
        drop(network);
        Ok((took.as_secs_f64() * 1e3).into())
    });
    list.push(build.unit("ms").goal(Goal::AtMost(3000.0)));
    list
}

/// Hops among so many hosts that setting them up under valgrind would take long: their instructions
/// are not counted.
fn timed(hosts: usize) -> Case {
    let mut network = None;
    Case::measured(hop_row(hosts), move |effort| {
        let network = match &mut network {
            Some(network) => network,
            none => none.insert(Bouncing::new(scaled(hosts, effort)).map_err(Trouble::Failed)?),
        };
        let hops = scaled(HOPS, effort) as u64;
        let start = Instant::now();
        let done = network.run(hops);
        Ok((start.elapsed().as_nanos() as f64 / done as f64).into())
    })
}

/// A share of so many, but some.
fn scaled(count: usize, effort: f64) -> usize {
    // An even number, for every host has a neighbour.
    ((count as f64 * effort) as usize / 2 * 2).max(LINK_HOSTS)
}

fn hop_row(hosts: usize) -> String {
    format!("{hosts} hosts, one hop")
}

/// Hops per second, which the goal speaks of.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let per_second = |hosts| {
        let hop = records.iter().find(|r| r.row == hop_row(hosts))?;
        let row = format!("{hosts} hosts, hops per second and core");
        let rates = [hop.max, hop.median, hop.min].map(|ns| 1e3 / ns);
        let goal = Some(Goal::AtLeast(2.0));
        Some(Record { better: Better::Higher, goal, ..hop.computed(row, "million/s", rates) })
    };
    HOSTS.into_iter().filter_map(per_second).collect()
}

/// A network in which every host has sent a datagram to its neighbour or got one, and none is ever
/// lost.
struct Bouncing {
    world: World,
    pairs: u64,
}

impl Bouncing {
    fn new(hosts: usize) -> Result<Self, String> {
        let mut world = world(&text(hosts), SimulationConfig::default())?;
        for host in (0..hosts).step_by(2) {
            let id = HostId(host as u32);
            let kicked = world.enter(id, |cx| kick(cx, address(host), address(host + 1)));
            kicked
                .unwrap_or(Err(OpenError::NoLower))
                .map_err(|e| format!("host {host} cannot send: {e}"))?;
        }
        let pairs = hosts as u64 / 2;
        let mut network = Self { world, pairs };
        // Addresses are resolved and sessions made on the first ways there and back.
        network.run(20 * pairs);
        Ok(network)
    }

    /// Lets this many hops happen, or some more: those of whole turns, in each of which every pair
    /// has one.
    fn run(&mut self, hops: u64) -> u64 {
        let before = self.world.stats().frames;
        let turns = hops.div_ceil(self.pairs);
        let until = self.world.now().as_ns() + turns * DELAY_NS;
        self.world.run_until(Time::from_ns(until));
        let done = self.world.stats().frames - before;
        assert!(done >= hops, "{done} of {hops} hops happened");
        done
    }
}

/// The world of a graph's text, started.
pub(crate) fn world(text: &str, config: SimulationConfig) -> Result<World, String> {
    let graph = xk_compose::check(text, "bench.kdl", &xk_catalog::standard());
    let graph = graph.map_err(|d| d.to_text())?;
    let mut world = simulate(&graph, config).map_err(|d| d.to_text())?;
    start_world(&graph, &mut world).map_err(|d| d.to_text())?;
    Ok(world)
}

fn address(host: usize) -> [u8; 4] {
    let link = host / LINK_HOSTS;
    [10, (link / 250) as u8, (link % 250) as u8, (host % LINK_HOSTS + 1) as u8]
}

/// The graph: links of ten hosts each.
fn text(hosts: usize) -> String {
    let mut text = format!(
        "host \"h{{n}}\" count={hosts} {{\n sim link=\"lan{{n/{LINK_HOSTS}}}\"\n eth sim\n arp eth\n ip arp {{ \
         address \"10.{{n/{LINK_HOSTS}/250}}.{{n/{LINK_HOSTS}%250}}.{{n%{LINK_HOSTS}+1}}/24\"; }}\n udp ip\n \
         echo udp port=\"{{n%2+{PORT}}}\"\n}}\n"
    );
    for link in 0..hosts.div_ceil(LINK_HOSTS) {
        let _ = writeln!(text, "link lan{link} delay=\"{DELAY_NS}ns\"");
    }
    text
}

/// The port of the echo of even hosts; that of odd ones is the next, since an echo does not answer
/// what comes from a port that its own host serves.
const PORT: u16 = 4000;

/// Has the host's echo send the first datagram to its neighbour's.
fn kick(cx: &Kernel, from: [u8; 4], to: [u8; 4]) -> Result<(), OpenError> {
    let echo = cx.find_protocol("echo").ok_or(OpenError::NoLower)?;
    let udp = cx.find_protocol("udp").ok_or(OpenError::NoLower)?;
    let at = |host: [u8; 4], port| Participant::of(Part::Host(host.into())).with(Part::port(port));
    let ends = Participants::pair(at(from, PORT), at(to, PORT + 1));
    let session = udp.open(cx, Upper::new(&echo), ends)?;
    let message = cx.pool().alloc(HEADROOM, OCTETS);
    let message = message.map_err(|_| OpenError::NoBuffers)?;
    session.push(cx, message).map_err(|_| OpenError::NoRoute)
}

/// Octets of memory that a host takes, and that all take, in a process that does nothing else.
pub(crate) fn memory(hosts: &str) -> Result<Vec<f64>, String> {
    let hosts: usize = hosts.parse().map_err(|_| "not a number of hosts")?;
    // What the program itself needs is there after the smallest network.
    drop(Bouncing::new(2)?);
    let before = child::resident()?;
    let network = Bouncing::new(hosts)?;
    let whole = child::resident()? - before;
    drop(network);
    Ok(vec![whole / hosts as f64, whole])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hop_asked_for_happens_and_none_is_lost() {
        let mut network = Bouncing::new(20).unwrap();
        let before = network.world.stats().frames;
        network.run(1000);
        assert_eq!(network.world.stats().frames - before, 1000);
        assert_eq!(network.world.network().in_flight() as u64, network.pairs);
    }

    #[test]
    fn a_hosts_memory_is_told() {
        let figures = memory("50").unwrap();
        assert_eq!(figures.len(), 2);
    }
}
