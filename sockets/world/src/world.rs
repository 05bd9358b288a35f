//! Hosts with programs, and the time that they share.

use crate::faults::{Counts, Faults};
use crate::outcome::{Both, Late, Outcome, captures};
use crate::runtime::{Runtime, Task};
use crate::system_unsafe::{Entered, HOST};
use crate::threads_unsafe::{abandon_parked, end_parked, forget_parked};
use crate::{Entry, Link, PROTOCOLS, Result, Stack, parts};
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
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::graph::Catalog;
use xk_core::{Kernel, Time};
use xk_net::{Crashed, SimHost, have_spawned, take_stirred};
use xk_sim::{Digest, HostId, Tap};

/// Octets of stack of a blocking program: reserved, and taken as far as they are touched.
const STACK_OCTETS: usize = 1 << 20;

/// Hosts for which [`World::lan`] has addresses.
const LAN_HOSTS_MAX: usize = 65_534;

/// Function that starts a program, called once for each start of its host.
#[derive(Clone)]
enum Make {
    Async(Rc<dyn Fn(Stack) -> Task>),
    Blocking(Rc<dyn Fn(Stack) -> Result>),
}

/// End of a program.
pub(crate) enum ProgramEnd {
    Returned(Result),
    Panicked(Box<dyn Any + Send>),
}

/// Programs that have ended, by their host and place there.
pub(crate) type Ends = Rc<RefCell<VecDeque<(usize, usize, ProgramEnd)>>>;

pub(crate) struct Program {
    make: Make,
    /// The run waits for it, and once it has ended it is not started again.
    pub(crate) is_client: bool,
    pub(crate) state: ProgramState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramState {
    /// Starts with the next run.
    Waits,
    Runs,
    Ended,
}

pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) sim: Option<SimHost>,
    runtime: Option<Runtime>,
    /// Time at which the runtime wants its next turn.
    wake: Option<Time>,
    pub(crate) programs: Vec<Program>,
    pub(crate) is_paused: bool,
    /// True if it would have had a turn while it was paused.
    pub(crate) owes_turn: bool,
}

impl Seat {
    /// Has the system know which host's program goes on.
    pub(crate) fn watch(&self, at: usize) {
        if let Some(sim) = &self.sim {
            sim.on_resume(move || HOST.set(Some(at)));
        }
    }
}

/// Hosts with programs on a simulated network.
pub struct World {
    pub(crate) graph: CheckedGraph,
    pub(crate) config: SimulationConfig,
    /// The seats by the numbers of the hosts.
    pub(crate) seats: Vec<Seat>,
    pub(crate) world: xk_sim::World,
    /// Hosts whose sockets have told something since their programs had a turn.
    pub(crate) turned: Rc<RefCell<BTreeSet<usize>>>,
    wakes: BTreeSet<(Time, usize)>,
    pub(crate) ends: Ends,
    /// Clients that have not ended.
    clients: usize,
    /// Programs were added, or hosts restarted, since the last run.
    pub(crate) has_news: bool,
    digest: Rc<Digest>,
    with_octets: bool,
    pub(crate) faults: Faults,
    /// Counts of the faults that nothing else counts.
    pub(crate) counts: Counts,
    /// The chances that each link has had.
    pub(crate) had_chances: Vec<[Option<&'static str>; 5]>,
    /// Hosts that do not hear each other, one way or both.
    pub(crate) partitions: BTreeSet<(String, String)>,
    /// Behind all that asks for the time when it is dropped.
    pub(crate) thread: Entered,
}

impl World {
    /// Makes hosts with these names on one link, each with TCP and UDP on IP on Ethernet, and Psync
    /// and total order for groups on UDP; their addresses are 10.0.0.1 and so on. All chance comes
    /// from `seed`.
    ///
    /// # Errors
    /// A mistake in `link`, if it is a text: the parameters of a link in a graph file,
    /// `delay="5ms" loss="5%"`.
    pub fn lan(seed: u64, hosts: &[&str], link: impl Into<Link>) -> Result<Self> {
        if hosts.len() > LAN_HOSTS_MAX {
            return Err(format!("{} hosts, and {LAN_HOSTS_MAX} addresses", hosts.len()).into());
        }
        let mut text = format!("link lan {}\n", link.into().text());
        for (number, name) in (1..).zip(hosts) {
            let (high, low) = (number / 256, number % 256);
            writeln!(
                text,
                "host {name:?} {{ sim link=lan; eth sim; arp eth; \
                 ip arp {{ address \"10.0.{high}.{low}/16\"; }}; icmp ip; udp ip; tcp ip; \
                 psync udp; order psync; }}"
            )?;
        }
        Self::from_text(seed, &text, PROTOCOLS)
    }

    /// Makes the hosts of the graph in a file. `entries` are the protocols that it may name.
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

    /// Makes the hosts of a graph. `entries` are the protocols that it may name.
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
            is_paused: false,
            owes_turn: false,
        };
        let seats: Vec<Seat> = ids.map(seat).collect();
        seats.iter().enumerate().for_each(|(at, seat)| seat.watch(at));
        start_world(&graph, &mut world).map_err(|found| found.to_string())?;
        for seat in &seats {
            let address = seat.sim.as_ref().and_then(|sim| sim.stack().address());
            if let Some(IpAddr::V4(address)) = address {
                thread.crew().add_name(&seat.name, address);
            }
        }
        let digest = Rc::new(Digest::with_octets());
        let tap: Rc<dyn Tap> = match captures(world.network())? {
            Some(captures) => Rc::new(Both(Rc::clone(&digest), captures)),
            None => Rc::clone(&digest) as _,
        };
        world.network().set_tap(Some(tap));
        let turned: Rc<RefCell<BTreeSet<usize>>> = Rc::default();
        let told = Rc::clone(&turned);
        world.on_turn(move |host| {
            if take_stirred() {
                told.borrow_mut().insert(host.0 as usize);
            }
        });
        let mut made = Self {
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
            faults: Faults::default(),
            counts: Counts::new(),
            had_chances: Vec::new(),
            partitions: BTreeSet::new(),
            thread,
        };
        made.note_chances();
        Ok(made)
    }

    /// Adds an asynchronous program to a host; it is called when the next run begins, and after
    /// each restart.
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

    /// Adds a program like [`host`](Self::host), but [`run`](Self::run) waits for its end, and it
    /// is not called again once it has ended.
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

    /// Adds blocking code like [`host`](Self::host); it has a stack of 1 MiB.
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

    /// Adds blocking code like [`client`](Self::client); it has a stack of 1 MiB.
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
        if !parts::has("program", name, self.world.now()) {
            return Ok(());
        }
        seat.programs.push(Program { make, is_client, state: ProgramState::Waits });
        self.clients += usize::from(is_client);
        self.has_news = true;
        Ok(())
    }

    pub(crate) fn find(&self, name: &str) -> Result<usize> {
        let found = self.seats.iter().position(|seat| seat.name == name);
        found.ok_or_else(|| format!("the world has no host `{name}`").into())
    }

    /// Allows random octets in frames, and does not compare outcomes by them: for programs that
    /// encrypt.
    pub fn allow_random_octets(&mut self) {
        self.with_octets = false;
    }

    /// The address of a host; `None` while it is down.
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

    /// Outcome so far.
    pub fn outcome(&self) -> Outcome {
        Outcome::of(&self.digest, self.now(), self.with_octets)
    }

    /// Takes a host's programs away from their sockets, and drops the tasks: none has a last word.
    pub(crate) fn silence(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        drop(seat.sim.take());
        drop(seat.runtime.take());
        // Those of its runtime end; others never run again.
        let others = self.thread.run_threads();
        self.turned.borrow_mut().extend(others);
        self.thread.crew().abandon(at);
        abandon_parked(self.thread.crew(), at);
        if let Some(wake) = seat.wake.take() {
            self.wakes.remove(&(wake, at));
        }
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
            let waits =
                |program: &Program| program.is_client && program.state != ProgramState::Ended;
            if seat.programs.iter().any(waits) {
                let is_up = self.world.is_up(HostId(at as u32));
                let down = if is_up { "" } else { " (which is down)" };
                names.push(format!("`{}`{down}", seat.name));
            }
        }
        let names = names.join(", ");
        let place = self.place();
        Err(Late(format!("{place}after {limit:?} the clients of {names} still run")).into())
    }

    /// Run and time, for messages.
    fn place(&self) -> String {
        format!("seed {}, at {}: ", self.config.seed, self.now())
    }

    /// True once every client has ended, if the run `stops` then.
    fn run_until(&mut self, until: Time, stops: bool) -> Result<bool> {
        if self.thread.crew().is_running() {
            return Err("the world runs already".into());
        }
        let before = self.thread.crew().set_running(true);
        let cut = parts::until().filter(|cut| *cut < until);
        let ended = catch(|| self.run_on(cut.unwrap_or(until), stops));
        self.thread.crew().set_running(before);
        let is_over = ended.unwrap_or_else(|payload| resume_unwind(payload))?;
        match cut {
            Some(_) if !is_over => Err(Late(format!("{}XK_UNTIL is over", self.place())).into()),
            _ => Ok(is_over),
        }
    }

    fn run_on(&mut self, until: Time, stops: bool) -> Result<bool> {
        loop {
            self.launch()?;
            self.turn_all();
            self.take_mistake()?;
            self.take_ends()?;
            if self.take_faults()? {
                continue;
            }
            if stops && self.clients == 0 {
                return Ok(true);
            }
            let event = self.world.next_event().unwrap_or(Time::MAX);
            let wake = self.wakes.first().map_or(Time::MAX, |(at, _)| *at);
            let thread = self.thread.crew().next_ns().map_or(Time::MAX, Time::from_ns);
            // What has run ahead of the world's time is over at once.
            let wake = wake.min(thread).max(self.now());
            let next = event.min(wake);
            self.thread.set_now(next.min(until).as_ns());
            if next > until {
                self.world.pass(until);
                return Ok(false);
            }
            if event <= wake {
                self.world.step();
                HOST.set(None);
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
            let next = self.turned.borrow_mut().pop_first();
            if let Some(at) = next {
                self.turn(at);
                continue;
            }
            let ran = self.thread.run_threads();
            let has_more = !ran.is_empty() | self.run_programs();
            self.turned.borrow_mut().extend(ran);
            if !has_more {
                return;
            }
        }
    }

    /// Runs blocking programs that others have started or woken; false if there are none.
    fn run_programs(&mut self) -> bool {
        let mut has_any = false;
        if have_spawned() {
            for at in 0..self.seats.len() {
                let spawned = self.seats[at].sim.as_ref().map(SimHost::take_spawned);
                for program in spawned.unwrap_or_default() {
                    has_any = true;
                    self.spawn(at, move || {
                        // That of a host that has crashed ends here.
                        drop(catch(program));
                    });
                }
            }
        }
        for host in end_parked(self.thread.crew()) {
            has_any = true;
            self.world.enter(HostId(host as u32), |_| ());
            HOST.set(None);
        }
        has_any
    }

    /// Has a host's blocking program begin.
    fn spawn(&mut self, at: usize, program: impl FnOnce() + 'static) {
        self.world.spawn(HostId(at as u32), move |_| {
            HOST.set(Some(at));
            program();
        });
        HOST.set(None);
    }

    /// Does to the world what programs want; whether they wanted something.
    fn take_faults(&mut self) -> Result<bool> {
        let Some(act) = self.faults.take() else { return Ok(false) };
        let done = act(self);
        done.map_err(|error| format!("{}a fault: {error}", self.place()))?;
        Ok(true)
    }

    /// Ends the run if a program did what a world cannot do.
    fn take_mistake(&self) -> Result {
        let Some((host, what)) = self.thread.crew().take_mistake() else { return Ok(()) };
        let seat = host.and_then(|at| self.seats.get(at));
        let program = seat.map_or("a program".into(), |seat| format!("host `{}`", seat.name));
        Err(format!("{}{program} {what}", self.place()).into())
    }

    /// Lets the tasks of a host do what they can do now.
    fn turn(&mut self, at: usize) {
        let now = self.now();
        let seat = &mut self.seats[at];
        if seat.is_paused {
            seat.owes_turn = true;
            return;
        }
        let Some(runtime) = &mut seat.runtime else { return };
        let turn = || self.world.enter(HostId(at as u32), |_| runtime.turn(now)).flatten();
        let wake = self.thread.on_host(at, turn);
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
                if program.state != ProgramState::Waits {
                    continue;
                }
                program.state = ProgramState::Runs;
                let (stack, ends) = (stack.clone(), Rc::clone(&self.ends));
                let end = move |end| ends.borrow_mut().push_back((at, place, end));
                match &program.make {
                    Make::Async(make) => {
                        let runtime = match &mut seat.runtime {
                            Some(runtime) => runtime,
                            none => none
                                .insert(Runtime::new(now, &self.thread).map_err(|error| {
                                format!(
                                    "host `{}` has no runtime: {error}; one needs 3 descriptors, \
                                     `ulimit -Hn` says how many there may be",
                                    seat.name
                                )
                            })?),
                        };
                        let task = self.thread.on_host(at, || make(stack));
                        runtime.spawn(guarded(task, end));
                        self.turned.borrow_mut().insert(at);
                    }
                    Make::Blocking(make) => {
                        let make = Rc::clone(make);
                        blocking.push(move || match catch(|| make(stack)) {
                            Err(payload) if payload.is::<Crashed>() => {}
                            ended => end(ProgramEnd::of(ended)),
                        });
                    }
                }
            }
            for program in blocking {
                self.spawn(at, program);
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
            program.state = ProgramState::Ended;
            self.clients -= usize::from(program.is_client);
            let host = &self.seats[at].name;
            match end {
                ProgramEnd::Returned(Ok(())) => {}
                ProgramEnd::Returned(Err(error)) => {
                    return Err(format!("{}host `{host}`: {error}", self.place()).into());
                }
                ProgramEnd::Panicked(payload) => {
                    eprintln!("{}host `{host}` has panicked", self.place());
                    resume_unwind(payload);
                }
            }
        }
    }
}

type Caught = std::result::Result<Result, Box<dyn Any + Send>>;

impl ProgramEnd {
    fn of(ended: Caught) -> Self {
        ended.map_or_else(Self::Panicked, Self::Returned)
    }
}

/// Runs a program, and returns its result or its panic. A program that has panicked is not called
/// again.
fn catch<T>(run: impl FnOnce() -> T) -> std::result::Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(run))
}

/// Runs an asynchronous program to its end.
async fn guarded(mut program: Task, end: impl FnOnce(ProgramEnd)) {
    let ended = poll_fn(|cx| match catch(|| program.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
        Err(payload) => Poll::Ready(Err(payload)),
    });
    end(ProgramEnd::of(ended.await));
}

impl Drop for World {
    fn drop(&mut self) {
        self.keep_counts();
        parts::end(self.now());
        for at in 0..self.seats.len() {
            self.silence(at);
        }
        self.world.stop();
        forget_parked();
    }
}
