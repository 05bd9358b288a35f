//! Faults of a world: by the test, or by a program that runs in it.

use crate::world::{ProgramState, World};
use crate::{Result, parts, system_unsafe};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use xk_compose::restart;
use xk_net::SimHost;
use xk_sim::{HostId, LinkConfig};

/// Difference of a host's clock from the world's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The clock is fast by this.
    Ahead(Duration),
    /// The clock is slow by this.
    Behind(Duration),
}

type Act = Box<dyn FnOnce(&mut World) -> Result + Send>;

/// Lets programs of a world cause the faults that its test can cause; clones are handles of the
/// same one.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<VecDeque<Act>>>);

impl Faults {
    /// Does something to the world at this moment, once the turn of the calling host is over:
    /// `faults.inject(|world| world.crash("server"))`. If it fails, the run ends with the error.
    pub fn inject(&self, act: impl FnOnce(&mut World) -> Result + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(Box::new(act));
    }

    pub(crate) fn take(&self) -> Option<Act> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Counts of each fault, by its name.
pub(crate) type Counts = BTreeMap<String, u64>;

thread_local! {
    /// The counts of the worlds that have ended on this thread.
    static COUNTS: RefCell<Counts> = const { RefCell::new(Counts::new()) };
}

/// Returns those of the faults that have had no effect, in words.
pub(crate) fn idle(fired: &Counts) -> Option<String> {
    let names = fired.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| {
        let remedy = "Let it last longer or be likelier, or take more seeds; or leave it out";
        format!("{}. {remedy}", names.join(", "))
    })
}

/// Takes the counts of the faults of this thread's worlds, of those that have ended since this
/// was last asked.
pub(crate) fn take_counts() -> Counts {
    COUNTS.take()
}

/// The chances of a link, as the graph names them.
fn chances(config: &LinkConfig) -> [(&'static str, bool); 5] {
    [
        ("loss", config.loss > 0.0),
        ("duplicate", config.duplicate > 0.0),
        ("reorder", config.reorder > 0.0),
        ("corrupt", config.corrupt > 0.0),
        ("partition", !config.partitions.is_empty()),
    ]
}

/// A link without one of its chances.
fn without(config: &mut LinkConfig, what: &str) {
    match what {
        "loss" => config.loss = 0.0,
        "duplicate" => config.duplicate = 0.0,
        "reorder" => config.reorder = 0.0,
        "corrupt" => config.corrupt = 0.0,
        _ => config.partitions.clear(),
    }
}

/// A fault that does not fit what is: a mistake, unless it needs one that was left out.
fn unfit(why: String) -> Result {
    if parts::are_fewer() { Ok(()) } else { Err(why.into()) }
}

fn partition_of(one: &str, other: &str) -> String {
    format!("partition of `{one}` and `{other}`")
}

impl World {
    /// The faults, for programs of this world.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Returns how often each fault has had an effect, by name: chances of links; partitions, by
    /// deliveries prevented; pauses, by events delayed; resets, by streams reset; skews, by
    /// readings of that clock.
    pub fn fired(&self) -> BTreeMap<String, u64> {
        let mut counts = self.counts.clone();
        let network = self.world.network();
        for ((name, stats), had) in network.links().iter().zip(&self.had_chances) {
            let fired =
                [stats.lost, stats.duplicated, stats.reordered, stats.corrupted, stats.partitioned];
            for (what, fired) in had.iter().zip(fired) {
                if let Some(what) = what {
                    counts.insert(format!("{what} of link `{name}`"), fired);
                }
            }
        }
        for (one, other) in &self.partitions {
            if let Ok([a, b]) = self.pair(one, other) {
                *counts.entry(partition_of(one, other)).or_default() += network.prevented(a, b);
            }
        }
        for (host, looks) in self.thread.crew().looks() {
            if let Some(seat) = self.seats.get(host) {
                counts.insert(format!("skew of `{}`", seat.name), looks);
            }
        }
        counts
    }

    /// Keeps how often the faults have fired, for the test.
    pub(crate) fn keep_counts(&self) {
        let fired = self.fired();
        COUNTS.with_borrow_mut(|counts| {
            for (name, count) in fired {
                *counts.entry(name).or_default() += count;
            }
        });
    }

    /// The host that a fault is for; `None` if the fault is left out.
    fn on(&self, kind: &str, name: &str) -> Result<Option<usize>> {
        let at = self.find(name)?;
        Ok(parts::has(kind, name, self.now()).then_some(at))
    }

    /// The hosts that a fault is between; `None` if the fault is left out.
    fn between(&self, kind: &str, one: &str, other: &str) -> Result<Option<[HostId; 2]>> {
        let pair = self.pair(one, other)?;
        let name = format!("{one}-{other}");
        Ok(parts::has(kind, &name, self.now()).then_some(pair))
    }

    /// Notes which chances the links have now, and takes those from them that are left out.
    pub(crate) fn note_chances(&mut self) {
        let (network, now) = (self.world.network(), self.world.now());
        let links = network.links();
        self.had_chances.resize(links.len(), [None; 5]);
        for ((name, _), had) in links.iter().zip(&mut self.had_chances) {
            let Some(link) = network.link(name) else { continue };
            let Some(config) = network.config(link) else { continue };
            for (place, (what, has)) in had.iter_mut().zip(chances(&config)) {
                if has && !parts::has_chance(what, name, now) {
                    network.change_link(link, |config| without(config, what));
                } else {
                    *place = place.or(has.then_some(what));
                }
            }
        }
    }

    fn count(&mut self, name: String, fired: u64) {
        *self.counts.entry(name).or_default() += fired;
    }

    /// Crashes a host at this moment; it sends nothing more.
    ///
    /// # Errors
    /// If there is no such host, or it is down.
    pub fn crash(&mut self, name: &str) -> Result {
        let Some(at) = self.on("crash", name)? else { return Ok(()) };
        let id = HostId(at as u32);
        if !self.world.is_up(id) {
            return unfit(format!("host `{name}` is down already"));
        }
        self.silence(at);
        self.world.crash(id);
        self.seats[at].is_paused = false;
        self.thread.crew().pause(at, false);
        for program in &mut self.seats[at].programs {
            if !(program.is_client && program.state == ProgramState::Ended) {
                program.state = ProgramState::Waits;
            }
        }
        // What ended while it was taken down is as if it had not.
        self.ends.borrow_mut().retain(|(host, _, _)| *host != at);
        self.count(format!("crash of `{name}`"), 1);
        Ok(())
    }

    /// Starts a crashed host again. Its programs start with the next run, or at once during a run.
    ///
    /// # Errors
    /// If there is no such host, or it is up; if it cannot start.
    pub fn restart(&mut self, name: &str) -> Result {
        let Some(at) = self.on("restart", name)? else { return Ok(()) };
        if self.world.is_up(HostId(at as u32)) {
            return unfit(format!("host `{name}` is up: it is crashed before"));
        }
        let back = restart(&self.graph, &mut self.world, name, self.config);
        let id = back.map_err(|found| found.to_string())?;
        let kernel = id.and_then(|id| self.world.kernel(id));
        let kernel = kernel.ok_or_else(|| format!("the graph has no host `{name}`"))?;
        self.seats[at].sim = SimHost::new(kernel).ok();
        self.seats[at].watch(at);
        self.has_news = true;
        Ok(())
    }

    /// Suspends a host at this moment, as a machine is suspended: its programs and timers stand
    /// still, and arrivals wait, until [`resume`](Self::resume). Clocks go on.
    ///
    /// # Errors
    /// If there is no such host, or it is down or paused.
    pub fn pause(&mut self, name: &str) -> Result {
        let Some(at) = self.on("pause", name)? else { return Ok(()) };
        let id = HostId(at as u32);
        if !self.world.is_up(id) || !self.world.pause(id) {
            return unfit(format!("host `{name}` is down or paused already"));
        }
        self.seats[at].is_paused = true;
        self.thread.crew().pause(at, true);
        self.count(format!("pause of `{name}`"), 0);
        Ok(())
    }

    /// Lets a paused host go on.
    ///
    /// # Errors
    /// If there is no such host, or it is not paused.
    pub fn resume(&mut self, name: &str) -> Result {
        let Some(at) = self.on("resume", name)? else { return Ok(()) };
        let Some(held) = self.world.resume(HostId(at as u32)) else {
            return unfit(format!("host `{name}` is not paused"));
        };
        let seat = &mut self.seats[at];
        seat.is_paused = false;
        let owes_turn = std::mem::take(&mut seat.owes_turn);
        if owes_turn {
            self.turned.borrow_mut().insert(at);
        }
        let threads = self.thread.crew().pause(at, false);
        self.count(format!("pause of `{name}`"), (held + threads) as u64 + u64::from(owes_turn));
        Ok(())
    }

    /// Cuts two hosts off from each other.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn partition(&mut self, one: &str, other: &str) -> Result {
        let Some([a, b]) = self.between("partition", one, other)? else { return Ok(()) };
        self.world.network().partition(a, b);
        self.partitions.insert((one.into(), other.into()));
        Ok(())
    }

    /// Cuts one direction: `to` no longer hears `from`, but `from` hears `to`.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn deafen(&mut self, from: &str, to: &str) -> Result {
        let Some([a, b]) = self.between("deafen", from, to)? else { return Ok(()) };
        self.world.network().deafen(a, b);
        self.partitions.insert((from.into(), to.into()));
        Ok(())
    }

    /// Joins two hosts again.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn repair(&mut self, one: &str, other: &str) -> Result {
        let Some([a, b]) = self.between("repair", one, other)? else { return Ok(()) };
        let pairs = [(one, other), (other, one)].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let named = pairs.iter().find(|pair| self.partitions.contains(*pair)).cloned();
        let prevented = self.world.network().repair(a, b);
        self.partitions.retain(|pair| !pairs.contains(pair));
        if let Some((one, other)) = named {
            self.count(partition_of(&one, &other), prevented);
        }
        Ok(())
    }

    /// Resets the streams between two hosts, as a middlebox does that forgets them: both ends find
    /// them reset. New ones can be made.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn reset(&mut self, one: &str, other: &str) -> Result {
        let Some([a, b]) = self.between("reset", one, other)? else { return Ok(()) };
        let mut broken = 0;
        for (at, peer) in [(a, b), (b, a)] {
            let [seat, peer] = [at, peer].map(|id| self.seats.get(id.0 as usize));
            let peer = peer.and_then(|seat| seat.sim.as_ref()?.stack().address());
            let Some((sim, peer)) = seat.and_then(|seat| seat.sim.as_ref()).zip(peer) else {
                continue;
            };
            broken += self.world.enter(at, |_| sim.reset(peer)).unwrap_or(0);
        }
        self.count(format!("reset of `{one}` and `{other}`"), broken as u64);
        Ok(())
    }

    /// Sets a host's clock, which `SystemTime` and the C library's `CLOCK_REALTIME` show, off by
    /// this much. Time passes equally fast on all hosts.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn skew(&mut self, name: &str, skew: Skew) -> Result {
        let Some(at) = self.on("skew", name)? else { return Ok(()) };
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let ns = match skew {
            Skew::Ahead(time) => ns(time),
            Skew::Behind(time) => -ns(time),
        };
        system_unsafe::note_skews();
        self.thread.crew().skew(at, ns);
        Ok(())
    }

    /// Changes parameters of a link: delay, rate, chances. The link of [`World::lan`] is `lan`.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn link(&mut self, name: &str, change: impl FnOnce(&mut LinkConfig)) -> Result {
        let network = self.world.network();
        let found = network.link(name).filter(|link| network.stats(*link).is_some());
        let link = found.ok_or_else(|| format!("the world has no link `{name}`"))?;
        if parts::has("link", name, self.world.now()) {
            network.change_link(link, change);
            self.note_chances();
        }
        Ok(())
    }

    fn pair(&self, one: &str, other: &str) -> Result<[HostId; 2]> {
        Ok([HostId(self.find(one)? as u32), HostId(self.find(other)? as u32)])
    }
}
