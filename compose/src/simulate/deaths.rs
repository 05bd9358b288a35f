//! Domains that crash at random moments, each started again a while later.

use core::time::Duration;
use xk_core::Time;
use xk_core::random::Random;
use xk_lang::Diagnostics;
use xk_sim::World;

use super::domains::may_start;
use super::{SimulationConfig, domain_name, restart};
use crate::plan::CheckedGraph;

/// The stream of chance of what crashes and when.
const LABEL: u64 = 0x6465_6174_6873;

/// After how long it is tried again to start what lacks a domain below.
const AGAIN: Duration = Duration::from_millis(1);

/// What happened to a domain, by its name in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// It crashed.
    Crashed(String),
    /// It was started again.
    Restarted(String),
}

/// Crashes of domains, by chance that follows from the seed: of each host with several, any.
pub struct Deaths {
    chance: Random,
    mean: Duration,
    names: Vec<String>,
    next: Time,
    down: Vec<(Time, String)>,
}

impl Deaths {
    /// Crashes that lie `mean` apart on average; what has crashed is away for up to `mean`.
    pub fn new(graph: &CheckedGraph, seed: u64, mean: Duration) -> Self {
        let mut names = Vec::new();
        for host in graph.graph.expand() {
            let setups = graph.domains(&host);
            if setups.len() > 1 {
                names.extend(setups.iter().map(|setup| domain_name(&host.name, &setup.name)));
            }
        }
        let mut deaths = Self {
            chance: Random::new(seed).fork(LABEL),
            mean,
            names,
            next: Time::ZERO,
            down: Vec::new(),
        };
        deaths.next = Time::ZERO.after(deaths.draw(2));
        deaths
    }

    fn draw(&self, most: u32) -> Duration {
        let most = self.mean.as_nanos() as u64 * u64::from(most);
        Duration::from_nanos(1 + self.chance.below(most))
    }

    /// When something happens next; [`Time::MAX`] for never.
    pub fn next(&self) -> Time {
        let back = self.down.iter().map(|(at, _)| *at).min().unwrap_or(Time::MAX);
        match self.names.is_empty() {
            true => back,
            false => back.min(self.next),
        }
    }

    /// No more crashes; what is down comes back.
    pub fn end(&mut self) {
        self.names.clear();
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
        if now < self.next || self.names.is_empty() {
            return Ok(None);
        }
        self.next = now.after(self.draw(2));
        let chosen = self.chance.below(self.names.len() as u64) as usize;
        let Some(name) = self.names.get(chosen).cloned() else {
            return Ok(None);
        };
        let Some(id) = world.find(&name).filter(|id| world.is_up(*id)) else {
            return Ok(None);
        };
        world.crash(id);
        self.down.push((now.after(self.draw(1)), name.clone()));
        Ok(Some(Death::Crashed(name)))
    }
}
