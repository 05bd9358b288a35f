//! Hosts with programs, and the time that they share.

use crate::outcome::{Digest, Outcome};
use crate::runtime::{Runtime, Task};
use crate::system_unsafe::Entered;
use crate::{Entry, PROTOCOLS, Result, Stack};
use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, restart, simulate, start_world};
use xk_core::graph::Catalog;
use xk_core::{Kernel, Time};
use xk_net::{Crashed, SimHost, take_stirred};
use xk_sim::{HostId, LinkConfig};

/// Octets of stack of a blocking program: reserved, and taken as far as they are touched.
const STACK_OCTETS: usize = 1 << 20;

/// How many hosts [`World::lan`] has addresses for.
const LAN_HOSTS_MAX: usize = 65_534;

/// What a program is called by, once for each start of its host.
#[derive(Clone)]
enum Make {
    Async(Rc<dyn Fn(Stack) -> Task>),
    Blocking(Rc<dyn Fn(Stack) -> Result>),
}

/// How a program has ended.
enum End {
    Returned(Result),
    Panicked(Box<dyn Any + Send>),
}

/// Programs that have ended, by their host and place there.
type Ends = Rc<RefCell<VecDeque<(usize, usize, End)>>>;

struct Program {
    make: Make,
    /// The run waits for it, and once it has ended it is not started again.
    is_client: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be started with the next run.
    Waits,
    Runs,
    Ended,
}

struct Seat {
    name: String,
    sim: Option<SimHost>,
    runtime: Option<Runtime>,
    /// When the runtime wants its next turn.
    wake: Option<Time>,
    programs: Vec<Program>,
}

/// Hosts with programs on a simulated network.
pub struct World {
    graph: CheckedGraph,
    config: SimulationConfig,
    /// By the numbers of the hosts.
    seats: Vec<Seat>,
    world: xk_sim::World,
    /// Hosts whose sockets have told something since their programs had a turn.
    turned: Rc<RefCell<BTreeSet<usize>>>,
    wakes: BTreeSet<(Time, usize)>,
    ends: Ends,
    /// Clients that have not ended.
    clients: usize,
    /// Programs were added, or hosts restarted, since the last run.
    has_news: bool,
    digest: Rc<Digest>,
    with_octets: bool,
    /// Behind all that asks for the time when it is dropped.
    thread: Entered,
}

impl World {
    /// Hosts of these names on one link, each with TCP and UDP on IP on Ethernet; their addresses
    /// are 10.0.0.1 and so on. All chance comes from `seed`.
    ///
    /// # Errors
    /// A mistake in `link`, which has the parameters of a link in a graph file:
    /// `delay="5ms" loss="5%"`.
    pub fn lan(seed: u64, hosts: &[&str], link: &str) -> Result<Self> {
        if hosts.len() > LAN_HOSTS_MAX {
            return Err(format!("{} hosts, and {LAN_HOSTS_MAX} addresses", hosts.len()).into());
        }
        let mut text = format!("link lan {link}\n");
        for (number, name) in (1..).zip(hosts) {
            let (high, low) = (number / 256, number % 256);
            writeln!(
                text,
                "host {name:?} {{ sim link=lan; eth sim; arp eth; \
                 ip arp {{ address \"10.0.{high}.{low}/16\"; }}; icmp ip; udp ip; tcp ip; }}"
            )?;
        }
        Self::from_text(seed, &text, PROTOCOLS)
    }

    /// The hosts of a graph in a file, of protocols of these entries.
    ///
    /// # Errors
    /// If it cannot be read; as for [`from_text`](Self::from_text).
    pub fn from_file(
        seed: u64,
        path: impl AsRef<Path>,
        entries: &[&'static Entry],
    ) -> Result<Self> {
        Self::from_text(seed, &std::fs::read_to_string(path)?, entries)
    }

    /// The hosts of a graph, of protocols of these entries.
    ///
    /// # Errors
    /// The graph's mistakes; if this thread has a world already.
    pub fn from_text(seed: u64, text: &str, entries: &[&'static Entry]) -> Result<Self> {
        let thread = Entered::new(seed).ok_or("this thread has a world already: drop it before")?;
        let catalog = Catalog::new(entries)?;
        let graph = check(text, "graph", &catalog).map_err(|found| found.to_string())?;
        let config = SimulationConfig {
            seed,
            program_stack_octets: STACK_OCTETS,
            ..SimulationConfig::default()
        };
        let mut world = simulate(&graph, config).map_err(|found| found.to_string())?;
        let ids = (0..).map(HostId).take(world.len());
        let seat = |id| Seat {
            name: world.name(id).unwrap_or_default().into(),
            // A router has nothing for programs to stand on.
            sim: world.kernel(id).and_then(|kernel| SimHost::new(kernel).ok()),
            runtime: None,
            wake: None,
            programs: Vec::new(),
        };
        let seats: Vec<Seat> = ids.map(seat).collect();
        start_world(&graph, &mut world).map_err(|found| found.to_string())?;
        for seat in &seats {
            let address = seat.sim.as_ref().and_then(|sim| sim.stack().address());
            if let Some(IpAddr::V4(address)) = address {
                thread.name(&seat.name, address);
            }
        }
        let digest = Rc::new(Digest::default());
        world.network().set_tap(Some(Rc::clone(&digest) as _));
        let turned: Rc<RefCell<BTreeSet<usize>>> = Rc::default();
        let told = Rc::clone(&turned);
        world.on_turn(move |host| {
            if take_stirred() {
                told.borrow_mut().insert(host.0 as usize);
            }
        });
        Ok(Self {
            graph,
            config,
            seats,
            world,
            turned,
            wakes: BTreeSet::new(),
            ends: Ends::default(),
            clients: 0,
            has_news: false,
            digest,
            with_octets: true,
            thread,
        })
    }

    /// An asynchronous program of a host, called when the next run begins and after each restart.
    ///
    /// # Errors
    /// If there is no such host, or nothing there for sockets to stand on.
    pub fn host<F: Future<Output = Result> + 'static>(
        &mut self,
        name: &str,
        program: impl Fn(Stack) -> F + 'static,
    ) -> Result {
        let make = Make::Async(Rc::new(move |stack| Box::pin(program(stack))));
        self.add(name, make, false)
    }

    /// As [`host`](Self::host), of a program that [`run`](Self::run) waits for, and that is not
    /// called again once it has ended.
    ///
    /// # Errors
    /// As for [`host`](Self::host).
    pub fn client<F: Future<Output = Result> + 'static>(
        &mut self,
        name: &str,
        program: impl Fn(Stack) -> F + 'static,
    ) -> Result {
        let make = Make::Async(Rc::new(move |stack| Box::pin(program(stack))));
        self.add(name, make, true)
    }

    /// As [`host`](Self::host), of blocking code, which has a stack of 1 MiB.
    ///
    /// # Errors
    /// As for [`host`](Self::host).
    pub fn blocking_host(
        &mut self,
        name: &str,
        program: impl Fn(Stack) -> Result + 'static,
    ) -> Result {
        self.add(name, Make::Blocking(Rc::new(program)), false)
    }

    /// As [`client`](Self::client), of blocking code, which has a stack of 1 MiB.
    ///
    /// # Errors
    /// As for [`host`](Self::host).
    pub fn blocking_client(
        &mut self,
        name: &str,
        program: impl Fn(Stack) -> Result + 'static,
    ) -> Result {
        self.add(name, Make::Blocking(Rc::new(program)), true)
    }

    fn add(&mut self, name: &str, make: Make, is_client: bool) -> Result {
        let at = self.find(name)?;
        let seat = &mut self.seats[at];
        let id = HostId(at as u32);
        if seat.sim.is_none() && self.world.is_up(id) {
            return Err(format!("host `{name}` has neither one `tcp` nor one `udp`").into());
        }
        seat.programs.push(Program { make, is_client, state: State::Waits });
        self.clients += usize::from(is_client);
        self.has_news = true;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize> {
        let found = self.seats.iter().position(|seat| seat.name == name);
        found.ok_or_else(|| format!("the world has no host `{name}`").into())
    }

    /// From now on the octets of frames may be random, and outcomes are not compared by them: for
    /// programs that encrypt.
    pub fn allow_random_octets(&mut self) {
        self.with_octets = false;
    }

    /// The address of a host; none while it is down.
    pub fn address(&self, name: &str) -> Option<IpAddr> {
        self.seats[self.find(name).ok()?].sim.as_ref()?.stack().address()
    }

    /// The kernel of a host, for its counters and traces.
    pub fn kernel(&self, name: &str) -> Option<&Rc<Kernel>> {
        self.world.kernel(HostId(self.find(name).ok()? as u32))
    }

    /// The virtual time since the world began.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// What came of it so far.
    pub fn outcome(&self) -> Outcome {
        self.digest.outcome(self.now(), self.with_octets)
    }

    /// Takes a host down at this moment, without a last word.
    ///
    /// # Errors
    /// If there is no such host, or it is down.
    pub fn crash(&mut self, name: &str) -> Result {
        let at = self.find(name)?;
        let id = HostId(at as u32);
        if !self.world.is_up(id) {
            return Err(format!("host `{name}` is down already").into());
        }
        self.silence(at);
        self.world.crash(id);
        for program in &mut self.seats[at].programs {
            if !(program.is_client && program.state == State::Ended) {
                program.state = State::Waits;
            }
        }
        // What ended while it was taken down is as if it had not.
        self.ends.borrow_mut().retain(|(host, _, _)| *host != at);
        Ok(())
    }

    /// Takes a host's programs away from their sockets, and drops the tasks: none has a last word.
    fn silence(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        drop(seat.sim.take());
        drop(seat.runtime.take());
        if let Some(wake) = seat.wake.take() {
            self.wakes.remove(&(wake, at));
        }
    }

    /// Builds and starts a host that has crashed again; its programs start with the next run.
    ///
    /// # Errors
    /// If there is no such host, or it is up; if it cannot start.
    pub fn restart(&mut self, name: &str) -> Result {
        let at = self.find(name)?;
        if self.world.is_up(HostId(at as u32)) {
            return Err(format!("host `{name}` is up: it is crashed before").into());
        }
        let back = restart(&self.graph, &mut self.world, name, self.config);
        let id = back.map_err(|found| found.to_string())?;
        let kernel = id.and_then(|id| self.world.kernel(id));
        let kernel = kernel.ok_or_else(|| format!("the graph has no host `{name}`"))?;
        self.seats[at].sim = SimHost::new(kernel).ok();
        self.has_news = true;
        Ok(())
    }

    /// From now on neither of two hosts hears the other.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn partition(&mut self, one: &str, other: &str) -> Result {
        let [one, other] = self.pair(one, other)?;
        self.world.network().partition(one, other);
        Ok(())
    }

    /// From now on they hear each other again.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn repair(&mut self, one: &str, other: &str) -> Result {
        let [one, other] = self.pair(one, other)?;
        self.world.network().repair(one, other);
        Ok(())
    }

    fn pair(&self, one: &str, other: &str) -> Result<[HostId; 2]> {
        Ok([HostId(self.find(one)? as u32), HostId(self.find(other)? as u32)])
    }

    /// Changes what a link is like from now on: delay, rate, chances. That of [`World::lan`] is
    /// `lan`.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn link(&mut self, name: &str, change: impl FnOnce(&mut LinkConfig)) -> Result {
        let network = self.world.network();
        let found = network.link(name).filter(|link| network.stats(*link).is_some());
        let link = found.ok_or_else(|| format!("the world has no link `{name}`"))?;
        network.change_link(link, change);
        Ok(())
    }

    /// Runs for a time.
    ///
    /// # Errors
    /// The first error of a program.
    ///
    /// # Panics
    /// As the first program that does.
    pub fn run_for(&mut self, time: Duration) -> Result<Outcome> {
        let until = self.now().after(time);
        self.run_until(until, false)?;
        Ok(self.outcome())
    }

    /// Runs until every client has ended.
    ///
    /// # Errors
    /// The first error of a program; if `limit` is over before.
    ///
    /// # Panics
    /// As the first program that does.
    pub fn run(&mut self, limit: Duration) -> Result<Outcome> {
        let until = self.now().after(limit);
        if self.run_until(until, true)? {
            return Ok(self.outcome());
        }
        let mut names = Vec::new();
        for (at, seat) in self.seats.iter().enumerate() {
            let waits = |program: &Program| program.is_client && program.state != State::Ended;
            if seat.programs.iter().any(waits) {
                let is_up = self.world.is_up(HostId(at as u32));
                let down = if is_up { "" } else { " (which is down)" };
                names.push(format!("`{}`{down}", seat.name));
            }
        }
        let names = names.join(", ");
        Err(format!("{}after {limit:?} the clients of {names} still run", self.place()).into())
    }

    /// Which run it is, and when, for messages.
    fn place(&self) -> String {
        format!("seed {}, at {}: ", self.config.seed, self.now())
    }

    /// True once every client has ended, if the run `stops` then.
    fn run_until(&mut self, until: Time, stops: bool) -> Result<bool> {
        self.launch()?;
        loop {
            self.turn_all();
            self.take_ends()?;
            if stops && self.clients == 0 {
                return Ok(true);
            }
            let event = self.world.next_event().unwrap_or(Time::MAX);
            let wake = self.wakes.first().map_or(Time::MAX, |(at, _)| *at);
            let next = event.min(wake);
            self.thread.set_now(next.min(until).as_ns());
            if next > until {
                self.world.pass(until);
                return Ok(false);
            }
            if event <= wake {
                self.world.step();
                continue;
            }
            self.world.pass(wake);
            while let Some((at, host)) = self.wakes.first().copied()
                && at <= wake
            {
                self.wakes.pop_first();
                self.seats[host].wake = None;
                self.turned.borrow_mut().insert(host);
            }
        }
    }

    /// Gives the tasks of each host a turn on which something has happened.
    fn turn_all(&mut self) {
        loop {
            let Some(at) = self.turned.borrow_mut().pop_first() else { return };
            self.turn(at);
        }
    }

    /// Lets the tasks of a host do what they can do now.
    fn turn(&mut self, at: usize) {
        let now = self.now();
        let seat = &mut self.seats[at];
        let Some(runtime) = &mut seat.runtime else { return };
        let wake = self.world.enter(HostId(at as u32), |_| runtime.turn(now)).flatten();
        if seat.wake != wake {
            if let Some(before) = seat.wake {
                self.wakes.remove(&(before, at));
            }
            self.wakes.extend(wake.map(|wake| (wake, at)));
            seat.wake = wake;
        }
    }

    /// Starts the programs that are to be.
    fn launch(&mut self) -> Result {
        if !std::mem::take(&mut self.has_news) {
            return Ok(());
        }
        // Hosts may have taken a while to start.
        let now = self.now();
        self.thread.set_now(now.as_ns());
        for at in 0..self.seats.len() {
            let seat = &mut self.seats[at];
            let Some(stack) = seat.sim.as_ref().map(SimHost::stack) else { continue };
            let mut blocking = Vec::new();
            for (place, program) in seat.programs.iter_mut().enumerate() {
                if program.state != State::Waits {
                    continue;
                }
                program.state = State::Runs;
                let (stack, ends) = (stack.clone(), Rc::clone(&self.ends));
                let end = move |end| ends.borrow_mut().push_back((at, place, end));
                match &program.make {
                    Make::Async(make) => {
                        let runtime = match &mut seat.runtime {
                            Some(runtime) => runtime,
                            none => none.insert(Runtime::new(now).map_err(|error| {
                                format!(
                                    "host `{}` has no runtime: {error}; one needs 3 descriptors, \
                                     `ulimit -Hn` says how many there may be",
                                    seat.name
                                )
                            })?),
                        };
                        runtime.spawn(guarded(make(stack), end));
                        self.turned.borrow_mut().insert(at);
                    }
                    Make::Blocking(make) => {
                        let make = Rc::clone(make);
                        blocking.push(move || match catch(|| make(stack)) {
                            Err(payload) if payload.is::<Crashed>() => {}
                            ended => end(End::of(ended)),
                        });
                    }
                }
            }
            for program in blocking {
                self.world.spawn(HostId(at as u32), move |_| program());
            }
        }
        Ok(())
    }

    /// Notes which programs have ended.
    fn take_ends(&mut self) -> Result {
        loop {
            let Some((at, place, end)) = self.ends.borrow_mut().pop_front() else {
                return Ok(());
            };
            let program = &mut self.seats[at].programs[place];
            program.state = State::Ended;
            self.clients -= usize::from(program.is_client);
            let host = &self.seats[at].name;
            match end {
                End::Returned(Ok(())) => {}
                End::Returned(Err(error)) => {
                    return Err(format!("{}host `{host}`: {error}", self.place()).into());
                }
                End::Panicked(payload) => {
                    eprintln!("{}host `{host}` has panicked", self.place());
                    resume_unwind(payload);
                }
            }
        }
    }
}

type Caught = std::result::Result<Result, Box<dyn Any + Send>>;

impl End {
    fn of(ended: Caught) -> Self {
        ended.map_or_else(Self::Panicked, Self::Returned)
    }
}

/// What a program answers, or what it has panicked with. It is not called again.
fn catch<T>(run: impl FnOnce() -> T) -> std::result::Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(run))
}

/// Runs an asynchronous program to its end.
async fn guarded(mut program: Task, end: impl FnOnce(End)) {
    let ended = poll_fn(|cx| match catch(|| program.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
        Err(payload) => Poll::Ready(Err(payload)),
    });
    end(End::of(ended.await));
}

impl Drop for World {
    fn drop(&mut self) {
        for at in 0..self.seats.len() {
            self.silence(at);
        }
        self.world.stop();
    }
}
