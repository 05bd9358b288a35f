//! Faults that are planned or drawn: hosts and domains that crash and come back, partitions, links
//! that are worse for a while.

use core::time::Duration;
use std::collections::BTreeMap;
use xk_core::Time;
use xk_core::graph::{Params, Value};
use xk_core::random::Random;
use xk_lang::{Diagnostics, DomainKind, HostInstance};
use xk_sim::{LinkConfig, LinkStats, World};

use super::domains::may_start;
use super::{SimulationConfig, domain_name, restart};
use crate::check::faults::{CHANGES, names};
use crate::plan::CheckedGraph;

/// The stream of chance of what happens when.
const LABEL: u64 = 0x6465_6174_6873;

/// After how long it is tried again to start what lacks a domain below.
const AGAIN: Duration = Duration::from_millis(1);

/// Something that happened, by names of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A host or a domain crashed.
    Crashed(String),
    /// A host or a domain was started again.
    Restarted(String),
    /// Another fault began: its line in a graph file.
    Began(String),
    /// A fault that is no crash was over: its line.
    Ended(String),
}

/// The kinds of faults.
#[derive(Clone, Debug)]
enum What {
    /// One of these crashes.
    Crash(Vec<String>),
    /// All of these crash.
    CrashAll(Vec<String>),
    /// Hosts do not hear each other.
    Partition(Vec<String>, Vec<String>),
    /// A link is like this.
    Link(String, Params),
}

/// A fault with its moments.
struct Fault {
    what: What,
    /// The name that it is counted by.
    label: String,
    chance: Random,
    /// Start of its next occurrence; [`Time::MAX`] if there is none.
    next: Time,
    /// The mean from one beginning to the next; `None` if there is one alone.
    every: Option<Duration>,
    /// The time that it lasts, the most of it if it is drawn; `None` to the end of the run.
    lasts: Option<Duration>,
    /// Counts its effects, up to the last one that is over.
    fired: u64,
}

impl Fault {
    /// A time of up to so much.
    fn draw(&self, most: Duration) -> Duration {
        Duration::from_nanos(1 + self.chance.below(most.as_nanos() as u64))
    }

    /// The beginning after this one.
    fn draw_next(&mut self, now: Time) {
        self.next = match self.every {
            Some(mean) => now.after(self.draw(mean * 2)),
            None => Time::MAX,
        };
    }
}

/// Something that is to end.
enum Ending {
    /// A crashed host or domain comes back.
    Crash(String),
    /// The fault at this place of the list is over: its line, and its effect before it began.
    Other(usize, String, u64),
}

/// Faults of a run: planned ones, and others by chance that follows from the seed.
#[derive(Default)]
pub struct Faults {
    list: Vec<Fault>,
    ends: Vec<(Time, Ending)>,
    /// Crashes that are due: the fault's place, the name, the time away.
    crashing: Vec<(usize, String, Option<Duration>)>,
    /// The first configuration of each link that was changed.
    links: BTreeMap<String, LinkConfig>,
    /// Lines of a graph file that say what has begun.
    begun: Vec<String>,
    /// Whether what is drawn has come to its end.
    is_over: bool,
}

impl Faults {
    /// Reads the graph's `faults`; all chance comes from the seed.
    pub fn of(graph: &CheckedGraph, seed: u64) -> Self {
        let mut all = Self::default();
        for (kind, params) in &graph.faults {
            let text = |name| params.text(name).unwrap_or_default().to_owned();
            let names = |name| names(&text(name));
            let what = match *kind {
                "crash" => match &text("name")[..] {
                    "" => What::Crash(choices(graph)),
                    name => What::CrashAll(named(graph, name)),
                },
                "partition" => What::Partition(names("between"), names("and")),
                _ => What::Link(text("name"), params.clone()),
            };
            let time = |name| match params.get(name) {
                Some(Value::Duration(time)) => Some(*time),
                _ => None,
            };
            let lasts = time("away").or_else(|| time("for"));
            all.add(seed, what, label(kind, params), time("at"), time("every"), lasts);
        }
        all
    }

    /// Adds crashes that lie `mean` apart on average; what has crashed is away for up to `mean`. In
    /// a graph that is cut these are domains of the hosts that have several, in others hosts.
    pub fn crash_every(&mut self, graph: &CheckedGraph, seed: u64, mean: Duration) {
        let what = What::Crash(choices(graph));
        self.add(seed, what, "crash".into(), None, Some(mean), Some(mean));
    }

    /// Adds the crash of `HOST`, with all its domains, or of `HOST/DOMAIN` (`HOST/` is the first)
    /// at a moment; it is started again `away` later, or stays down. False if the graph has none of
    /// this name.
    #[must_use]
    pub fn crash(
        &mut self,
        graph: &CheckedGraph,
        name: &str,
        at: Time,
        away: Option<Duration>,
    ) -> bool {
        let names = named(graph, name);
        let is_known = !names.is_empty();
        if is_known {
            let at = at.since(Time::ZERO);
            let label = format!("crash {name}");
            self.add(0, What::CrashAll(names), label, Some(at), None, away);
        }
        is_known
    }

    fn add(
        &mut self,
        seed: u64,
        what: What,
        label: String,
        at: Option<Duration>,
        every: Option<Duration>,
        lasts: Option<Duration>,
    ) {
        let chance = Random::new(seed).fork(LABEL + self.list.len() as u64);
        let next = Time::MAX;
        let mut fault = Fault { what, label, chance, next, every, lasts, fired: 0 };
        match at {
            Some(at) => fault.next = Time::ZERO.after(at),
            None => fault.draw_next(Time::ZERO),
        }
        self.list.push(fault);
    }

    /// Whether something that is planned has not happened yet, or something is to end.
    pub fn is_pending(&self) -> bool {
        let is_planned = |fault: &Fault| fault.every.is_none() && fault.next < Time::MAX;
        let is_to_end = self.ends.iter().any(|(at, _)| *at < Time::MAX);
        let is_to_begin = !self.is_over && self.list.iter().any(is_planned);
        is_to_end || is_to_begin || !self.crashing.is_empty()
    }

    /// Time of the next change; [`Time::MAX`] if there is none.
    pub fn next(&self) -> Time {
        if !self.crashing.is_empty() {
            return Time::ZERO;
        }
        let begins = self.list.iter().map(|fault| fault.next).filter(|_| !self.is_over);
        begins.chain(self.ends.iter().map(|(at, _)| *at)).min().unwrap_or(Time::MAX)
    }

    /// Nothing more begins; what is to end does.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Counts the effects of each fault: crashes, frames that a partition held back, frames that
    /// a link lost, doubled, reordered or damaged while it was worse; times that a link was only
    /// slower.
    pub fn fired(&self, world: &World) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (at, fault) in self.list.iter().enumerate() {
            let running = self.ends.iter().map(|(_, end)| match end {
                Ending::Other(of, _, before) if *of == at => {
                    effect(world, &fault.what).saturating_sub(*before)
                }
                _ => 0,
            });
            *all.entry(fault.label.clone()).or_default() += fault.fired + running.sum::<u64>();
        }
        all
    }

    /// The faults that have begun, as lines of `faults` that say the same without chance.
    pub fn begun(&self) -> &[String] {
        &self.begun
    }

    /// Does what is due now, if anything is.
    ///
    /// # Errors
    /// What could not be started again, with its place in the file and why.
    pub fn act(
        &mut self,
        graph: &CheckedGraph,
        world: &mut World,
        config: SimulationConfig,
    ) -> Result<Option<Event>, Box<Diagnostics>> {
        let now = world.now();
        if let Some(crash) = self.crashing.pop() {
            return Ok(self.take_down(world, crash));
        }
        if let Some(at) = self.ends.iter().position(|(at, _)| *at <= now) {
            let (_, end) = self.ends.swap_remove(at);
            return self.finish(graph, world, config, end);
        }
        let due = |fault: &Fault| fault.next <= now && !self.is_over;
        let Some(at) = self.list.iter().position(due) else { return Ok(None) };
        let fault = &mut self.list[at];
        let lasts = match fault.every {
            Some(_) => fault.lasts.map(|most| fault.draw(most)),
            None => fault.lasts,
        };
        fault.draw_next(now);
        let names = match &fault.what {
            What::Crash(names) if names.is_empty() => Vec::new(),
            What::Crash(names) => {
                vec![names[fault.chance.below(names.len() as u64) as usize].clone()]
            }
            What::CrashAll(names) => names.clone(),
            What::Partition(..) | What::Link(..) => return Ok(self.begin(world, at, lasts)),
        };
        self.crashing.extend(names.into_iter().rev().map(|name| (at, name, lasts)));
        let first = self.crashing.pop();
        Ok(first.and_then(|crash| self.take_down(world, crash)))
    }

    /// Takes down what is up.
    fn take_down(
        &mut self,
        world: &mut World,
        (at, name, lasts): (usize, String, Option<Duration>),
    ) -> Option<Event> {
        let id = world.find(&name).filter(|id| world.is_up(*id))?;
        let now = world.now();
        world.crash(id);
        self.list[at].fired += 1;
        // A host whose first domain alone crashes.
        let first = if named_alone(&name, world) { "" } else { "/" };
        self.begun.push(line("crash", &format!("\"{name}{first}\""), now, "away", lasts));
        self.ends.extend(lasts.map(|lasts| (now.after(lasts), Ending::Crash(name.clone()))));
        Some(Event::Crashed(name))
    }

    /// Begins what is no crash. One that is still on when it would begin again goes on.
    fn begin(&mut self, world: &World, at: usize, lasts: Option<Duration>) -> Option<Event> {
        let is_on = |(_, end): &(Time, Ending)| matches!(end, Ending::Other(of, ..) if *of == at);
        if self.ends.iter().any(is_on) {
            return None;
        }
        let (now, what) = (world.now(), self.list[at].what.clone());
        let before = effect(world, &what);
        let line = match &what {
            What::Partition(between, and) => {
                partition(world, between, and, true);
                let mut text = format!("between=\"{}\"", between.join(" "));
                if !and.is_empty() {
                    text.push_str(&format!(" and=\"{}\"", and.join(" ")));
                }
                line("partition", &text, now, "for", lasts)
            }
            What::Link(name, params) => {
                let given =
                    CHANGES.iter().filter_map(|spec| Some((spec.name, params.get(spec.name)?)));
                let said: String =
                    given.map(|(name, value)| format!(" {name}=\"{value}\"")).collect();
                line("link", &format!("\"{name}\"{said}"), now, "for", lasts)
            }
            What::Crash(_) | What::CrashAll(_) => return None,
        };
        self.begun.push(line.clone());
        // One that does not end is counted until the run does.
        let end = lasts.map_or(Time::MAX, |lasts| now.after(lasts));
        self.ends.push((end, Ending::Other(at, line.clone(), before)));
        if let What::Link(name, _) = &what {
            self.change_link(world, name);
        }
        Some(Event::Began(line))
    }

    fn finish(
        &mut self,
        graph: &CheckedGraph,
        world: &mut World,
        config: SimulationConfig,
        end: Ending,
    ) -> Result<Option<Event>, Box<Diagnostics>> {
        match end {
            Ending::Crash(name) => {
                if !may_start(graph, world, &name) {
                    self.ends.push((world.now().after(AGAIN), Ending::Crash(name)));
                    return Ok(None);
                }
                restart(graph, world, &name, config)?;
                Ok(Some(Event::Restarted(name)))
            }
            Ending::Other(at, line, before) => {
                let fault = &mut self.list[at];
                fault.fired += effect(world, &fault.what).saturating_sub(before);
                match fault.what.clone() {
                    What::Partition(between, and) => partition(world, &between, &and, false),
                    What::Link(name, params) => {
                        fault.fired += u64::from(!has_chances(&params));
                        self.change_link(world, &name);
                    }
                    What::Crash(_) | What::CrashAll(_) => {}
                }
                Ok(Some(Event::Ended(line)))
            }
        }
    }

    /// Makes a link what it was at first, with all changes that are on.
    fn change_link(&mut self, world: &World, name: &str) {
        let network = world.network();
        let Some(id) = network.link(name) else { return };
        let (list, ends, links) = (&self.list, &self.ends, &mut self.links);
        network.change_link(id, |config| {
            let first = links.entry(name.into()).or_insert_with(|| config.clone());
            *config = first.clone();
            for (_, end) in ends {
                if let Ending::Other(at, ..) = end
                    && let What::Link(of, params) = &list[*at].what
                    && of == name
                {
                    change(config, params);
                }
            }
        });
    }
}

/// Whether a name that has crashed means itself alone: a domain's, or that of a host of one domain.
fn named_alone(name: &str, world: &World) -> bool {
    let begins = format!("{name}/");
    let all = (0..world.len() as u32).filter_map(|id| world.name(xk_sim::HostId(id)));
    name.contains('/') || !all.into_iter().any(|other| other.starts_with(&begins))
}

/// A fault as a graph file says it: what it is, when it begins, and how long it lasts.
fn line(kind: &str, what: &str, now: Time, name: &str, lasts: Option<Duration>) -> String {
    let mut text = format!("{kind} {what} at=\"{}ns\"", now.as_ns());
    if let Some(lasts) = lasts {
        text.push_str(&format!(" {name}=\"{}ns\"", lasts.as_nanos()));
    }
    text
}

/// Names a fault in counts.
fn label(kind: &str, params: &Params) -> String {
    let text = |name| params.text(name).unwrap_or_default();
    let what = match kind {
        "partition" => format!("{} {}", text("between"), text("and")),
        _ => text("name").to_owned(),
    };
    format!("{kind} {}", what.trim()).trim_end().to_owned()
}

/// Counts the effects that faults of this kind have had so far, whichever of them.
fn effect(world: &World, what: &What) -> u64 {
    let network = world.network();
    match what {
        What::Crash(_) | What::CrashAll(_) => 0,
        What::Partition(..) => network.links().iter().map(|(_, stats)| stats.partitioned).sum(),
        What::Link(name, params) => {
            let stats = network.link(name).and_then(|id| network.stats(id));
            let stats = stats.unwrap_or_default();
            let LinkStats { lost, duplicated, reordered, corrupted, .. } = stats;
            let of = |name, count| if params.get(name).is_some() { count } else { 0 };
            of("loss", lost)
                + of("duplicate", duplicated)
                + of("reorder", reordered)
                + of("corrupt", corrupted)
        }
    }
}

fn has_chances(params: &Params) -> bool {
    ["loss", "duplicate", "reorder", "corrupt"].iter().any(|name| params.get(name).is_some())
}

fn change(config: &mut LinkConfig, params: &Params) {
    let share = |name, to: &mut f64| {
        if params.get(name).is_some() {
            *to = params.fraction(name);
        }
    };
    share("loss", &mut config.loss);
    share("duplicate", &mut config.duplicate);
    share("reorder", &mut config.reorder);
    share("corrupt", &mut config.corrupt);
    config.delay = params.duration("delay", config.delay);
    config.jitter = params.duration("jitter", config.jitter);
    config.rate_bit_s = params.rate("rate").or(config.rate_bit_s);
}

/// Parts hosts, or joins them again; against all others if the second side is empty.
fn partition(world: &World, between: &[String], and: &[String], parts: bool) {
    let all =
        |names: &[String]| names.iter().filter_map(|name| world.find(name)).collect::<Vec<_>>();
    let one = all(between);
    let other = match and.is_empty() {
        false => all(and),
        true => {
            (0..world.len() as u32).map(xk_sim::HostId).filter(|id| !one.contains(id)).collect()
        }
    };
    for one in &one {
        for other in &other {
            if parts {
                world.network().partition(*one, *other);
            } else {
                world.network().repair(*one, *other);
            }
        }
    }
}

/// Lists the names that chance may choose from: domains of the hosts that have several, or else
/// hosts.
fn choices(graph: &CheckedGraph) -> Vec<String> {
    let hosts = graph.graph.expand();
    let domains = hosts.iter().map(|host| domains_of(graph, host));
    let (cut, whole): (Vec<_>, Vec<_>) = domains.partition(|domains| domains.len() > 1);
    let names = if cut.is_empty() { whole } else { cut };
    names.into_iter().flatten().collect()
}

/// The names in a world of `HOST`'s domains, or that of `HOST/DOMAIN`; none if there is no such.
fn named(graph: &CheckedGraph, name: &str) -> Vec<String> {
    let (host, domain) = name.split_once('/').map_or((name, None), |(h, d)| (h, Some(d)));
    let Some(host) = graph.host(host) else {
        return Vec::new();
    };
    let mut names = domains_of(graph, &host);
    if let Some(domain) = domain {
        names.retain(|name| *name == domain_name(&host.name, domain));
    }
    names
}

/// The names in a world of a host's domains; places where programs attach are none there.
fn domains_of(graph: &CheckedGraph, host: &HostInstance<'_>) -> Vec<String> {
    let setups = graph.domains(host);
    let in_world = setups.iter().filter(|setup| setup.kind != Some(DomainKind::Open));
    in_world.map(|setup| domain_name(&host.name, &setup.name)).collect()
}
