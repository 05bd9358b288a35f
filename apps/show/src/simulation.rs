//! A graph as a simulated network: run it, and tell what happened.

use crate::failure::Failure;
use crate::figures;
use crate::output::{grouped, heading};
use crate::table::Table;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use xk_compose::{CaptureError, Captures, CheckedGraph, Event, Faults, SimulationConfig};
use xk_core::control::Report;
use xk_core::{ProtocolRef, Time};
use xk_run::interrupt_unsafe;
use xk_sim::{Ended, HostId, World};

/// Virtual time between two looks whether Ctrl-C was typed.
const SLICE: Duration = Duration::from_millis(100);
/// Rows of a table beyond which it is drawn together.
const ROWS_MAX: usize = 40;

/// A simulated network.
pub struct Simulation<'g> {
    world: World,
    captures: Option<Rc<Captures>>,
    anchors: Vec<(HostId, ProtocolRef)>,
    /// Whether any had something to do at the beginning: then the end of it is the end of the run.
    finishes: bool,
    graph: &'g CheckedGraph,
    config: SimulationConfig,
    faults: Faults,
    happened: Vec<(Time, Event)>,
}

/// Says that a capture could not be written.
fn unwritten(error: CaptureError) -> Failure {
    Failure::new(error.to_string())
}

/// An anchor's report.
pub struct Told {
    /// The host's name.
    pub host: String,
    /// The anchor's name.
    pub node: String,
    /// The anchor's answer to `report`.
    pub report: Report,
}

impl Told {
    /// Names the anchor.
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.node)
    }

    /// Names the anchor if it says that what it was asked to do went wrong, and why if it says
    /// that.
    pub fn failure(&self) -> Option<String> {
        self.report.failed.then(|| format!("{}{}", self.name(), why(&self.report)))
    }

    /// Names the anchor if it has not done yet what it was asked to do.
    pub fn open(&self) -> Option<String> {
        (!self.report.finished).then(|| self.name())
    }
}

impl<'g> Simulation<'g> {
    /// Builds and starts all hosts of the graph. Frames go to files in `pcap`, if that is given.
    pub fn new(graph: &'g CheckedGraph, seed: u64, pcap: Option<&Path>) -> Result<Self, Failure> {
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = xk_compose::simulate(graph, config)?;
        let captures = match pcap {
            Some(folder) => {
                let captures = Captures::new(folder, world.network());
                let captures = Rc::new(captures.map_err(unwritten)?);
                world.network().set_tap(Some(Rc::clone(&captures) as Rc<_>));
                Some(captures)
            }
            None => None,
        };
        xk_compose::start_world(graph, &mut world)?;
        let mut simulation = Self {
            world,
            captures,
            anchors: Vec::new(),
            finishes: false,
            graph,
            config,
            faults: Faults::of(graph, seed),
            happened: Vec::new(),
        };
        for at in 0..simulation.world.len() {
            simulation.find_anchors(HostId(u32::try_from(at).unwrap_or(u32::MAX)));
        }
        Ok(simulation)
    }

    fn find_anchors(&mut self, id: HostId) {
        let Some(kernel) = self.world.kernel(id) else {
            return;
        };
        for protocol in kernel.protocols() {
            if let Some(report) = figures::report(kernel, &protocol) {
                self.finishes |= !report.finished;
                self.anchors.push((id, protocol));
            }
        }
    }

    /// The faults, for adding to them.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// The faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Does what is due: something crashes, or comes back.
    fn act(&mut self) -> Result<(), Failure> {
        let Some(event) = self.faults.act(self.graph, &mut self.world, self.config)? else {
            return Ok(());
        };
        if let Event::Crashed(name) | Event::Restarted(name) = &event
            && let Some(id) = self.world.find(name)
        {
            self.anchors.retain(|(of, _)| *of != id);
            self.find_anchors(id);
        }
        self.happened.push((self.world.now(), event));
        Ok(())
    }

    /// The network and its hosts.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A simulation for watching.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Runs until everybody has done what was asked and nothing that is planned is left, at most up
    /// to `until`. True if nothing more is to be done.
    ///
    /// # Errors
    /// What crashed and could not be started again.
    pub fn run(&mut self, until: Time) -> Result<bool, Failure> {
        // Every slice begins with a look at all hosts: the more there are, the longer it is.
        let step = SLICE * u32::try_from(1 + self.world.len() / 1000).unwrap_or(u32::MAX);
        while self.world.now() < until && !interrupt_unsafe::is_requested() {
            if self.faults.next() <= self.world.now() {
                self.act()?;
                continue;
            }
            let quiet_until = self.world.next_event().unwrap_or(until);
            let next = (self.world.now() + step).max(quiet_until);
            let next = next.min(until).min(self.faults.next());
            if !self.finishes || self.faults.is_pending() {
                self.world.run_until(next);
            } else if self.world.run_until_finished(next) == Ended::Finished {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes captures out, and names their files.
    pub fn finish(&self) -> Result<Vec<PathBuf>, Failure> {
        let captures = self.captures.as_ref();
        captures.map_or(Ok(Vec::new()), |captures| captures.finish().map_err(unwritten))
    }

    /// A line for each host: what it sent and received on its wires, what it dropped, how far its
    /// anchors are.
    pub fn live(&self) -> String {
        let mut table = Table::new(&["host", "sent", "received", "dropped", "report"]);
        for at in 0..self.world.len().min(ROWS_MAX) {
            let id = HostId(u32::try_from(at).unwrap_or(u32::MAX));
            let Some(kernel) = self.world.kernel(id) else {
                continue;
            };
            let (mut sent, mut received, mut dropped) = (0, 0, 0);
            for protocol in kernel.protocols() {
                dropped += protocol.head().drops().total();
                if protocol.head().kind() == "sim" {
                    let sessions = figures::sessions_of(kernel, &protocol);
                    let crossed = figures::crossed(&protocol, &sessions);
                    sent += crossed.0;
                    received += crossed.1;
                }
            }
            table.row([
                self.world.name(id).unwrap_or_default().to_owned(),
                grouped(sent),
                grouped(received),
                grouped(dropped),
                self.live_report(id),
            ]);
        }
        table.render()
    }

    fn live_report(&self, host: HostId) -> String {
        let mut text = Vec::new();
        for (_, anchor) in self.anchors.iter().filter(|(id, _)| *id == host) {
            let Some(report) = self.report(host, anchor) else {
                continue;
            };
            let some: Vec<String> = report
                .lines
                .iter()
                .take(3)
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            text.push(format!("{}: {}", anchor.name(), some.join(", ")));
        }
        text.join("; ")
    }

    /// Whether there is anything that ends.
    pub fn finishes(&self) -> bool {
        self.finishes
    }

    fn report(&self, host: HostId, anchor: &ProtocolRef) -> Option<Report> {
        anchor.ask(self.world.kernel(host)?, Report::default())
    }

    /// Asks every anchor for what it has to tell.
    pub fn told(&self) -> Vec<Told> {
        let told = |(id, anchor): &(HostId, ProtocolRef)| {
            let report = self.report(*id, anchor)?;
            let host = self.world.name(*id).unwrap_or_default().to_owned();
            Some(Told { host, node: anchor.name().to_owned(), report })
        };
        self.anchors.iter().filter_map(told).collect()
    }

    /// The anchors that say that what they were asked to do went wrong, and why if they say that.
    pub fn failures(&self) -> Vec<String> {
        self.told().iter().filter_map(Told::failure).collect()
    }

    /// The anchors that have not done yet what they were asked to do.
    pub fn open(&self) -> Vec<String> {
        self.told().iter().filter_map(Told::open).collect()
    }

    /// Summary of the run: reports, links, drops. It depends on the seed alone.
    pub fn summary(&self) -> String {
        let mut out = format!("{}\n{}", heading("reports"), self.reports());
        if !self.happened.is_empty() {
            out.push_str(&format!("\n{}\n{}", heading("faults"), self.faults_text()));
        }
        let links = self.links();
        if !links.is_empty() {
            out.push_str(&format!("\n{}\n{links}", heading("links")));
        }
        let drops = self.drops();
        if !drops.is_empty() {
            out.push_str(&format!("\n{}\n{}", heading("drops"), drops.render()));
        }
        out
    }

    fn reports(&self) -> String {
        let mut told = self.told();
        let total = told.len();
        let failed = told.iter().filter(|t| t.report.failed).count();
        let open = told.iter().filter(|t| !t.report.finished).count();
        if total > ROWS_MAX {
            // What went wrong comes first.
            told.sort_by_key(|t| (!t.report.failed, t.report.finished));
            told.truncate(ROWS_MAX);
        }
        let mut out = String::new();
        for t in &told {
            let line = figures::report_line(&t.report);
            out.push_str(&format!("{}: {line}\n", t.name()));
        }
        if total > told.len() {
            out.push_str(&format!(
                "... and {} more; of all {total}, {failed} failed and {open} did not finish\n",
                total - told.len()
            ));
        }
        out
    }

    fn faults_text(&self) -> String {
        let line = |(at, event): &(Time, Event)| match event {
            Event::Crashed(name) => format!("{at} {name} crashed\n"),
            Event::Restarted(name) => format!("{at} {name} was started again\n"),
            Event::Began(line) => format!("{at} began: {line}\n"),
            Event::Ended(line) => format!("{at} over: {line}\n"),
        };
        let mut out: String = self.happened.iter().take(ROWS_MAX).map(line).collect();
        if self.happened.len() > ROWS_MAX {
            out.push_str(&format!("... and {} more\n", self.happened.len() - ROWS_MAX));
        }
        out
    }

    /// The figures of each link that are not zero.
    fn links(&self) -> String {
        let mut out = String::new();
        let links = self.world.network().links();
        for (name, stats) in links.iter().take(ROWS_MAX) {
            let figures: Vec<String> = stats
                .list()
                .iter()
                .filter(|(_, n)| *n > 0)
                .map(|(what, n)| format!("{what} {}", grouped(*n)))
                .collect();
            out.push_str(&format!("{name}: {}\n", figures.join(", ")));
        }
        if links.len() > ROWS_MAX {
            out.push_str(&format!("... and {} more\n", links.len() - ROWS_MAX));
        }
        out
    }

    /// Table of drops and reasons: per host and protocol, or per kind where that would be too long.
    fn drops(&self) -> Table {
        let mut all: BTreeMap<(String, String, &'static str), u64> = BTreeMap::new();
        for at in 0..self.world.len() {
            let id = HostId(u32::try_from(at).unwrap_or(u32::MAX));
            let Some(kernel) = self.world.kernel(id) else {
                continue;
            };
            let host = self.world.name(id).unwrap_or_default();
            for p in kernel.protocols() {
                for (reason, count) in p.head().drops().list() {
                    let who = format!("{host}/{}", p.name());
                    let key = (who, p.head().kind().to_owned(), reason.name);
                    *all.entry(key).or_default() += count;
                }
            }
        }
        let mut table = Table::new(&["dropped by", "reason", "count"]);
        if all.len() <= ROWS_MAX {
            for ((who, _, reason), count) in all {
                table.row([who, reason.into(), grouped(count)]);
            }
            return table;
        }
        let mut kinds: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
        for ((_, kind, reason), count) in all {
            *kinds.entry((kind, reason)).or_default() += count;
        }
        for ((kind, reason), count) in kinds {
            table.row([format!("all {kind}"), reason.into(), grouped(count)]);
        }
        table
    }
}

/// Returns the reason that a report of a failure has, if it has one.
fn why(report: &Report) -> String {
    let found = report.lines.iter().find(|(name, _)| name == "why");
    found.map_or_else(String::new, |(_, why)| format!(" ({why})"))
}
