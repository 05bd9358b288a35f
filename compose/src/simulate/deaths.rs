//! Hosts and domains that crash at moments that are planned or drawn, and are started again a while
//! later.

use core::time::Duration;
use xk_core::Time;
use xk_core::random::Random;
use xk_lang::{Diagnostics, DomainKind, HostInstance};
use xk_sim::World;

use super::domains::may_start;
use super::{SimulationConfig, domain_name, restart};
use crate::plan::CheckedGraph;

/// The stream of chance of what crashes and when.
const LABEL: u64 = 0x6465_6174_6873;

/// After how long it is tried again to start what lacks a domain below.
const AGAIN: Duration = Duration::from_millis(1);

/// What happened to a host or a domain, by its name in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// It crashed.
    Crashed(String),
    /// It was started again.
    Restarted(String),
}

/// Crashes of hosts and domains: planned ones, and others by chance that follows from the seed.
pub struct Deaths {
    chance: Random,
    mean: Duration,
    /// What chance may choose from.
    names: Vec<String>,
    next: Time,
    planned: Vec<(Time, String, Option<Duration>)>,
    down: Vec<(Time, String)>,
}

impl Default for Deaths {
    /// None at all.
    fn default() -> Self {
        Self {
            chance: Random::new(0),
            mean: Duration::ZERO,
            names: Vec::new(),
            next: Time::MAX,
            planned: Vec::new(),
            down: Vec::new(),
        }
    }
}

impl Deaths {
    /// Crashes that lie `mean` apart on average; what has crashed is away for up to `mean`. In a
    /// graph that is cut these are domains of the hosts that have several, in others hosts.
    pub fn new(graph: &CheckedGraph, seed: u64, mean: Duration) -> Self {
        let hosts = graph.graph.expand();
        let names = |host| (domains_of(graph, host), &host.name);
        let (cut, whole): (Vec<_>, Vec<_>) =
            hosts.iter().map(names).partition(|(domains, _)| domains.len() > 1);
        let names = if cut.is_empty() { whole } else { cut };
        let mut deaths = Self {
            chance: Random::new(seed).fork(LABEL),
            mean,
            names: names.into_iter().flat_map(|(domains, _)| domains).collect(),
            ..Self::default()
        };
        deaths.next = Time::ZERO.after(deaths.draw(2));
        deaths
    }

    /// Plans the crash of `HOST`, with all its domains, or of `HOST/DOMAIN` (`HOST/` is the first)
    /// at a moment; it is started again `away` later, or stays down. False if the graph has none of
    /// this name.
    #[must_use]
    pub fn plan(
        &mut self,
        graph: &CheckedGraph,
        name: &str,
        at: Time,
        away: Option<Duration>,
    ) -> bool {
        let (host, domain) = name.split_once('/').map_or((name, None), |(h, d)| (h, Some(d)));
        let Some(host) = graph.host(host) else {
            return false;
        };
        let mut names = domains_of(graph, &host);
        if let Some(domain) = domain {
            names.retain(|name| *name == domain_name(&host.name, domain));
        }
        self.planned.extend(names.iter().map(|name| (at, name.clone(), away)));
        !names.is_empty()
    }

    /// Whether something that is planned has not happened yet, or something will be started again.
    pub fn is_pending(&self) -> bool {
        !self.planned.is_empty() || !self.down.is_empty()
    }

    fn draw(&self, most: u32) -> Duration {
        let most = self.mean.as_nanos() as u64 * u64::from(most);
        Duration::from_nanos(1 + self.chance.below(most))
    }

    /// When something happens next; [`Time::MAX`] for never.
    pub fn next(&self) -> Time {
        let back = self.down.iter().map(|(at, _)| *at);
        let planned = self.planned.iter().map(|(at, ..)| *at);
        let drawn = (!self.names.is_empty()).then_some(self.next);
        back.chain(planned).chain(drawn).min().unwrap_or(Time::MAX)
    }

    /// No more crashes; what is down and was to come back does.
    pub fn end(&mut self) {
        self.names.clear();
        self.planned.clear();
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
    ) -> Result<Option<Death>, Box<Diagnostics>> {
        let now = world.now();
        if let Some(at) = self.down.iter().position(|(at, _)| *at <= now) {
            let (_, name) = self.down.swap_remove(at);
            if !may_start(graph, world, &name) {
                self.down.push((now.after(AGAIN), name));
                return Ok(None);
            }
            restart(graph, world, &name, config)?;
            return Ok(Some(Death::Restarted(name)));
        }
        if let Some(at) = self.planned.iter().position(|(at, ..)| *at <= now) {
            let (_, name, away) = self.planned.remove(at);
            return Ok(self.crash(world, name, away));
        }
        if now < self.next || self.names.is_empty() {
            return Ok(None);
        }
        self.next = now.after(self.draw(2));
        let chosen = self.chance.below(self.names.len() as u64) as usize;
        let is_up = |name: &&String| world.find(name).is_some_and(|id| world.is_up(id));
        let Some(name) = self.names.get(chosen).filter(is_up).cloned() else {
            return Ok(None);
        };
        let away = self.draw(1);
        Ok(self.crash(world, name, Some(away)))
    }

    /// Takes down what is up.
    fn crash(&mut self, world: &mut World, name: String, away: Option<Duration>) -> Option<Death> {
        let id = world.find(&name).filter(|id| world.is_up(*id))?;
        world.crash(id);
        self.down.extend(away.map(|away| (world.now().after(away), name.clone())));
        Some(Death::Crashed(name))
    }
}

/// The names in a world of a host's domains; places where programs attach are none there.
fn domains_of(graph: &CheckedGraph, host: &HostInstance<'_>) -> Vec<String> {
    let setups = graph.domains(host);
    let in_world = setups.iter().filter(|setup| setup.kind != Some(DomainKind::Open));
    in_world.map(|setup| domain_name(&host.name, &setup.name)).collect()
}
