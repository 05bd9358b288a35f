//! `xk run` of a host with domains: starts the processes that have them, from the bottom up, looks
//! into all of them as into one, and puts them down together, the topmost first.
//!
//! The process that does so has no kernel itself. Each domain is a thread with one, of a process
//! of its own or of the one that has the host's first; each talks with this process over a socket,
//! as a client of the control socket does, and ends when that is closed, so that nothing stays
//! behind when this process is gone.

mod confine;
mod hello;
mod merge;
pub(crate) mod process;
mod seat;
pub(crate) mod sockets;
mod ways;

use crate::control::{Request, Server, ServerJob, gives_state};
use crate::failure::Failure;
use crate::files;
use crate::output::{self, heading};
use crate::user::{User, UserArgs};
use crate::view;
use hello::{Hello, NeighbourSocket, Seat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xk_compose::{CheckedGraph, DomainSetup};
use xk_core::graph::Shape;
use xk_lang::{DomainKind, HostInstance};
use xk_run::interrupt_unsafe;

/// Time between two looks at the processes.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Time in which a domain starts.
const START_WITHIN: Duration = Duration::from_secs(60);
/// Time in which all domains together answer a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Time in which they report at the end what they have done.
const SAY_WITHIN: Duration = Duration::from_millis(1500);
/// Time in which they stop after that.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Time that a message may be on its way through other domains.
const UNDER_WAY: Duration = Duration::from_millis(50);
/// The longest answer of one domain, in octets.
const ANSWER_OCTETS_MAX: u64 = 128 << 20;

/// Within this time what has ended is started again so often as [`Wanted::restarts_max`] says.
const RESTARTS_WITHIN: Duration = Duration::from_secs(60);
/// Number that stands for a client, in place of a neighbour's place.
const CLIENT: u8 = u8::MAX;

/// Has the system kill this process when the one that has started it is gone. To be said again
/// after a change of the user (`PR_SET_PDEATHSIG`).
fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// A host to be run.
pub(crate) struct Wanted<'a> {
    pub(crate) graph: &'a CheckedGraph,
    pub(crate) host: &'a HostInstance<'a>,
    /// User of domains for which the graph names none.
    pub(crate) user: User,
    pub(crate) idle: &'a str,
    pub(crate) verbose: u8,
    pub(crate) limit: Option<Duration>,
    /// Number of times within a minute that processes which have ended are started again.
    pub(crate) restarts_max: usize,
}

/// A process, with the domains that it has.
struct Process {
    domains: Vec<usize>,
    user: User,
    child: Child,
    /// Socket over which it was told what it is: its end is seen there.
    _hello: UnixStream,
}

/// A domain that runs.
struct Running {
    domain: usize,
    stream: BufReader<UnixStream>,
    /// For what it is sent later.
    visits: OwnedFd,
    /// Octets of an answer that have come so far.
    line: Vec<u8>,
    /// True if it has not answered the last request: it is stopped, or kept busy.
    owes: bool,
    /// Something of it is to be finished before the run ends.
    unfinished: bool,
}

impl Running {
    /// Sends it a way to a neighbour.
    fn send(&self, neighbour: usize, socket: &OwnedFd) -> io::Result<()> {
        files::send(&self.visits, u8::try_from(neighbour).unwrap_or(CLIENT), socket)
    }

    /// Puts a request; false if the answer to the one before it is still owed.
    fn put(&mut self, request: &Value) -> bool {
        if self.owes && self.take(Duration::ZERO).is_none() {
            return false;
        }
        self.owes = true;
        // One that has given up may have said why all the same. There is room: it owes nothing.
        let _ = self.stream.get_mut().write_all(format!("{request}\n").as_bytes());
        true
    }

    /// The answer that is owed; `None` if it does not come within this time.
    fn take(&mut self, within: Duration) -> Option<Result<Value, Failure>> {
        let lost = |error: io::Error| Failure::new(format!("a domain does not answer: {error}"));
        // The system knows no wait of no time.
        let within = within.max(Duration::from_millis(1));
        if let Err(error) = self.stream.get_ref().set_read_timeout(Some(within)) {
            return Some(Err(lost(error)));
        }
        let left = ANSWER_OCTETS_MAX.saturating_sub(self.line.len() as u64);
        let read = self.stream.by_ref().take(left).read_until(b'\n', &mut self.line);
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => return Some(Err(lost(error))),
            Ok(0) => return Some(Err(Failure::new("a domain ended before it answered"))),
            Ok(_) => {}
        }
        self.owes = false;
        let answer: Result<Value, _> = serde_json::from_slice(&std::mem::take(&mut self.line));
        Some(answer.map_err(|error| lost(error.into())).and_then(|all| seat::told(&all).cloned()))
    }

    /// Puts a request and waits for the answer.
    fn ask(&mut self, request: &Value, within: Duration) -> Result<Value, Failure> {
        let answer = if self.put(request) { self.take(within) } else { None };
        let late = || Failure::new(format!("a domain does not answer within {within:?}"));
        answer.unwrap_or_else(|| Err(late()))
    }
}

/// Answers of domains, each with its place, and the domains that do not answer.
type Answers = (Vec<(usize, Value)>, Value);

/// A host whose domains run.
pub(crate) struct Domains<'a> {
    wanted: Wanted<'a>,
    setups: Vec<DomainSetup>,
    processes: Vec<Process>,
    running: Vec<Running>,
    /// Times at which processes were started again.
    restarts: Vec<Instant>,
    /// A trace under way, for how many messages, and when a domain had seen them.
    trace: Option<(ServerJob, u64, Option<Instant>)>,
}

/// True if a host has domains to be run apart.
pub(crate) fn are_in(graph: &CheckedGraph, host: &HostInstance<'_>) -> bool {
    let mut rest = graph.domains(host).into_iter();
    rest.any(|domain| matches!(domain.kind, Some(DomainKind::Thread | DomainKind::Process)))
}

fn failed(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// A socket between two domains.
fn way() -> Result<(OwnedFd, OwnedFd), Failure> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    pair.map_err(|errno| failed("no socket")(errno.into()))
}

impl<'a> Domains<'a> {
    /// Starts all domains of a host, each after all that it stands on.
    ///
    /// # Errors
    /// The first that cannot start, and why; those that had started are put down.
    pub(crate) fn start(wanted: Wanted<'a>) -> Result<Self, Failure> {
        let setups = wanted.graph.domains(wanted.host);
        let (processes, running, restarts) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = Self { wanted, setups, processes, running, restarts, trace: None };
        let processes = all.split()?;
        let (lines, pingable) = all.open(processes)?;
        output::print(&format!("{}\n", heading(&format!("host {}", all.wanted.host.name))));
        for line in lines {
            output::print(&format!("  {line}\n"));
        }
        for process in &all.processes {
            output::print(&format!("  {}\n", all.described(process)));
        }
        if let Some(address) = pingable {
            output::print(&format!("try: ping {address}\n"));
        }
        Ok(all)
    }

    /// A process and its domains, in words.
    fn described(&self, process: &Process) -> String {
        let names: Vec<&str> = process.domains.iter().map(|at| self.name(*at)).collect();
        let (pid, uid) = (process.child.id(), process.user.uid.as_raw());
        format!("process {pid}, user {uid}: {}", names.join(", "))
    }

    /// Starts processes, each domain after all that it stands on. Answers lines about devices, and
    /// an address that can be reached.
    fn open(
        &mut self,
        processes: Vec<(Vec<usize>, User)>,
    ) -> Result<(Vec<String>, Option<String>), Failure> {
        let domains: Vec<usize> = processes.iter().flat_map(|(own, _)| own.clone()).collect();
        let seats = self.seats(&processes)?;
        let sockets = sockets::of(self.wanted.graph, self.wanted.host);
        for (domains, user) in processes {
            sockets::make_folders(&sockets, &domains, user)?;
            self.spawn(domains, user)?;
        }
        self.tell(seats)?;
        self.begin(&domains)
    }

    fn plan(&self) -> Result<&'a xk_compose::HostPlan, Failure> {
        let none = || Failure::new("the host is not of this graph");
        self.wanted.graph.plan_of(self.wanted.host).ok_or_else(none)
    }

    /// Domains of each process, with its user; the first process has those that are threads.
    fn split(&self) -> Result<Vec<(Vec<usize>, User)>, Failure> {
        let plan = self.plan()?;
        let has_nodes = |at: usize| plan.places().iter().any(|place| place.domain() == at);
        let is_thread = |at: &usize| match self.setups[*at].kind {
            None => has_nodes(*at),
            Some(kind) => kind == DomainKind::Thread,
        };
        let threads: Vec<usize> = (0..self.setups.len()).filter(is_thread).collect();
        let mut processes = Vec::new();
        if !threads.is_empty() {
            processes.push((threads, self.wanted.user));
        }
        for (at, setup) in self.setups.iter().enumerate() {
            if setup.kind == Some(DomainKind::Process) {
                let user = match &setup.user {
                    Some(_) => UserArgs { user: setup.user.clone() }.find()?,
                    None => self.wanted.user,
                };
                processes.push((vec![at], user));
            }
        }
        Ok(processes)
    }

    /// The seats of the domains of processes that are to be started, with the sockets between those
    /// of different processes. A neighbour below that runs is sent its end.
    fn seats(&mut self, processes: &[(Vec<usize>, User)]) -> Result<Vec<Seat>, Failure> {
        let no_socket = failed("no socket");
        let process_of =
            |domain: usize| processes.iter().position(|(domains, _)| domains.contains(&domain));
        let mut seats = Vec::new();
        for domain in processes.iter().flat_map(|(domains, _)| domains.iter().copied()) {
            let (ours, theirs) = UnixStream::pair().map_err(&no_socket)?;
            let (visits, visited) = way()?;
            let stream = BufReader::new(ours);
            let (line, owes, unfinished) = (Vec::new(), false, false);
            self.running.push(Running { domain, stream, visits, line, owes, unfinished });
            let control = OwnedFd::from(theirs);
            seats.push(Seat { domain, control, visits: visited, ways: Vec::new() });
        }
        for (upper, domain) in self.plan()?.domains().iter().enumerate() {
            for &lower in domain.lowers() {
                if process_of(upper).is_none() || process_of(upper) == process_of(lower) {
                    continue;
                }
                let (one, two) = way()?;
                for (at, neighbour, socket) in [(upper, lower, one), (lower, upper, two)] {
                    if let Some(seat) = seats.iter_mut().find(|seat| seat.domain == at) {
                        seat.ways.push(NeighbourSocket { neighbour, socket });
                    } else if let Some(running) = self.running.iter().find(|r| r.domain == at) {
                        running.send(neighbour, &socket).map_err(&no_socket)?;
                    }
                }
            }
        }
        Ok(seats)
    }

    /// Gives those that stand on these domains, and were not started with them, a way there again:
    /// what they had enabled is enabled on protocols that have started.
    fn rejoin(&self, domains: &[usize]) -> Result<(), Failure> {
        for (upper, domain) in self.plan()?.domains().iter().enumerate() {
            let again = domain.lowers().iter().filter(|lower| domains.contains(lower));
            for &lower in again.filter(|_| !domains.contains(&upper)) {
                let (one, two) = way()?;
                for (at, neighbour, socket) in [(upper, lower, one), (lower, upper, two)] {
                    if let Some(running) = self.running.iter().find(|r| r.domain == at) {
                        // One that has ended meanwhile is found to have by the next look.
                        let _ = running.send(neighbour, &socket);
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts a process, which waits to be told what it is.
    fn spawn(&mut self, domains: Vec<usize>, user: User) -> Result<(), Failure> {
        let (ours, theirs) = UnixStream::pair().map_err(failed("no socket"))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("domain").stdin(Stdio::from(OwnedFd::from(theirs)));
        // Its name among the processes; and Ctrl-C is for this process alone.
        let names: Vec<&str> = domains.iter().map(|at| self.name(*at)).collect();
        command.arg0(format!("xk: {}/{}", self.wanted.host.name, names.join(",")));
        command.process_group(0).env_clear();
        let child = command.spawn().map_err(failed("cannot start a process"))?;
        self.processes.push(Process { domains, user, child, _hello: ours });
        Ok(())
    }

    /// Tells each process what it is.
    fn tell(&mut self, seats: Vec<Seat>) -> Result<(), Failure> {
        let mut seats = seats;
        let (mistakes, wanted) = (self.wanted.graph.warnings(), &self.wanted);
        for process in &mut self.processes {
            let own = |seat: &mut Seat| process.domains.contains(&seat.domain);
            let own: Vec<Seat> = seats.extract_if(.., own).collect();
            if own.is_empty() {
                continue;
            }
            let hello = Hello {
                file: mistakes.file().into(),
                text: mistakes.source().into(),
                host: wanted.host.name.to_string(),
                user: (process.user.uid.as_raw(), process.user.gid.as_raw()),
                idle: wanted.idle.into(),
                verbose: wanted.verbose,
                seats: own,
            };
            hello
                .send(&mut process._hello)
                .map_err(failed("cannot send a process its description"))?;
        }
        Ok(())
    }

    /// Starts these domains, from the bottom up; then has what begins by itself begin in all.
    fn begin(&mut self, domains: &[usize]) -> Result<(Vec<String>, Option<String>), Failure> {
        let (mut lines, mut address, mut is_outside) = (Vec::new(), None, false);
        for &domain in self.plan()?.domain_order().iter().filter(|at| domains.contains(at)) {
            let Some(running) = self.running.iter_mut().find(|r| r.domain == domain) else {
                continue;
            };
            let told = running.ask(&json!({"ask": "start"}), START_WITHIN)?;
            let own = told["lines"].as_array().cloned().unwrap_or_default();
            lines.extend(own.iter().filter_map(|line| Some(line.as_str()?.to_owned())));
            address = address.or_else(|| told["address"].as_str().map(str::to_owned));
            is_outside |= told["outside"] == true;
        }
        for running in self.running.iter_mut().filter(|r| domains.contains(&r.domain)) {
            let told = running.ask(&json!({"ask": "begin"}), START_WITHIN)?;
            running.unfinished = told["unfinished"] == true;
        }
        Ok((lines, address.filter(|_| is_outside)))
    }

    fn name(&self, domain: usize) -> &str {
        match self.setups.get(domain) {
            Some(setup) if !setup.name.is_empty() => &setup.name,
            _ => "first domain",
        }
    }

    /// Runs until a signal asks for the end, the time is over, or all that is to be finished is.
    ///
    /// # Errors
    /// If a process ends by itself.
    pub(crate) fn run(&mut self, server: Option<&Server>) -> Result<(), Failure> {
        let begun = Instant::now();
        let jobs = server.map(Server::jobs).transpose();
        let jobs = jobs.map_err(failed("cannot be inspected"))?;
        let finishes = self.wanted.limit.is_none() && self.running.iter().any(|r| r.unfinished);
        loop {
            if let Some(jobs) = &jobs {
                let mut files = [PollFd::new(jobs.doorbell(), PollFlags::IN)];
                let _ = poll(&mut files, Some(&LOOK_EVERY));
                while let Some(job) = jobs.next() {
                    self.answer(job);
                }
            } else {
                let _ = poll(&mut [], Some(&LOOK_EVERY));
            }
            if self.look_after()? {
                continue;
            }
            self.look_at_trace();
            if finishes {
                for running in self.running.iter_mut().filter(|running| running.unfinished) {
                    // One that has ended does not answer, and is looked after in the next turn.
                    if running.put(&json!({"ask": "unfinished"}))
                        && let Some(left) = running.take(ANSWER_WITHIN)
                    {
                        running.unfinished = left.is_ok_and(|left| left == true);
                    }
                }
                if !self.running.iter().any(|running| running.unfinished) {
                    return Ok(());
                }
            }
            let is_over = self.wanted.limit.is_some_and(|limit| begun.elapsed() >= limit);
            if is_over || interrupt_unsafe::is_requested() {
                return Ok(());
            }
        }
    }

    /// Sees whether a process has ended, and starts it again. What stands on its protocols, in
    /// other processes, goes on and finds them again. True if one had.
    ///
    /// # Errors
    /// If that was too often, or one does not start.
    fn look_after(&mut self) -> Result<bool, Failure> {
        let mut ended: Vec<usize> = Vec::new();
        let mut what = Vec::new();
        for process in &mut self.processes {
            let status = process.child.try_wait().map_err(failed("cannot wait for a process"))?;
            if let Some(status) = status {
                ended.extend(&process.domains);
                what.push((process.domains.clone(), status));
            }
        }
        if ended.is_empty() {
            return Ok(false);
        }
        for (domains, status) in what {
            let names: Vec<&str> = domains.iter().map(|at| self.name(*at)).collect();
            output::error(&format!(
                "xk: the process of {} has ended: {status}\n",
                names.join(", ")
            ));
        }
        self.restarts.retain(|at| at.elapsed() < RESTARTS_WITHIN);
        self.restarts.push(Instant::now());
        let (count, most) = (self.restarts.len(), self.wanted.restarts_max);
        if count > most {
            let since = self.restarts.first().map_or(Duration::ZERO, Instant::elapsed);
            return Err(Failure::new(format!(
                "ends the host: processes have ended {count} times within {} s, and at most {most} are \
                 started again within {} s",
                since.as_secs() + 1,
                RESTARTS_WITHIN.as_secs()
            ))
            .help("the causes are above, -v shows more; --restarts N permits more restarts"));
        }
        let mut again = self.split()?;
        again.retain(|(own, _)| own.iter().any(|at| ended.contains(at)));
        let domains: Vec<usize> = again.iter().flat_map(|(own, _)| own.clone()).collect();
        self.running.retain(|running| !domains.contains(&running.domain));
        let is_over = |process: &mut Process| process.domains.iter().any(|at| domains.contains(at));
        for mut process in self.processes.extract_if(.., is_over) {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        self.open(again)?;
        self.rejoin(&domains)?;
        let new = self.processes.iter().filter(|p| domains.contains(&p.domains[0]));
        for process in new {
            output::error(&format!("xk: started again: {}\n", self.described(process)));
        }
        Ok(true)
    }

    fn answer(&mut self, job: ServerJob) {
        let answered = match job.request() {
            Request::About => Ok(self.about()),
            Request::Dump => self.dump(ANSWER_WITHIN),
            Request::Trace { messages } => {
                let messages = *messages;
                match self.trace.is_some() {
                    true => Err(Failure::new("another trace is under way")),
                    false => match self.ask_all(&json!({"ask": "watch"}), ANSWER_WITHIN) {
                        Ok(_) => {
                            self.trace = Some((job, messages, None));
                            return;
                        }
                        Err(failure) => Err(failure),
                    },
                }
            }
            Request::Capture { edge } => match self.capture(edge) {
                Ok(source) => {
                    let _ = job.answer_from(source);
                    return;
                }
                Err(failure) => Err(failure),
            },
            Request::Upgrade => Err(Failure::new(format!(
                "host `{}` has domains, which cannot be handed over: {}",
                self.wanted.host.name,
                self.left_behind()
            ))),
            _ => Err(Failure::new("only a single domain answers this")),
        };
        job.answer(&match answered {
            Ok(answer) => json!({"ok": answer}),
            Err(failure) => json!({"error": failure.text()}),
        });
    }

    /// Puts a request to all domains: the answers, and which do not answer in time.
    ///
    /// # Errors
    /// What one says is wrong.
    fn ask_all(&mut self, request: &Value, within: Duration) -> Result<Answers, Failure> {
        let until = Instant::now() + within;
        let asked: Vec<bool> = self.running.iter_mut().map(|one| one.put(request)).collect();
        let (mut all, mut silent) = (Vec::new(), Vec::new());
        for (running, asked) in self.running.iter_mut().zip(asked) {
            let left = until.saturating_duration_since(Instant::now());
            match asked.then(|| running.take(left)).flatten() {
                Some(Ok(answer)) => all.push((running.domain, answer)),
                Some(Err(failure)) if !running.owes => return Err(failure),
                // It has ended, or waits, as for a question to one that has stopped.
                _ => silent.push(running.domain),
            }
        }
        let silent = silent.into_iter();
        let said =
            silent.map(|at| json!({"domain": self.name(at), "stopped": self.is_stopped(at)}));
        Ok((all, said.collect()))
    }

    /// Whether a signal has stopped the process of a domain (proc_pid_stat(5)).
    fn is_stopped(&self, domain: usize) -> bool {
        let mut own = self.processes.iter().filter(|process| process.domains.contains(&domain));
        let stat = |of: &Process| std::fs::read_to_string(format!("/proc/{}/stat", of.child.id()));
        own.any(|of| stat(of).is_ok_and(|stat| stat.contains(") T ")))
    }

    /// Answers a trace once a domain has seen as many messages as it is of.
    fn look_at_trace(&mut self) {
        let Some((_, messages, seen_at)) = self.trace else {
            return;
        };
        let seen = self.ask_all(&json!({"ask": "watched"}), ANSWER_WITHIN);
        let is_done = |(seen, _): &Answers| {
            seen.iter().any(|(_, seen)| seen["messages"].as_u64().unwrap_or(0) >= messages)
        };
        // In other domains the last of them may be under way still.
        match (seen.as_ref().is_ok_and(|seen| !is_done(seen)), seen_at) {
            (true, _) => return,
            (false, Some(at)) if at.elapsed() < UNDER_WAY => return,
            (false, Some(_)) => {}
            (false, None) => {
                if let Some((.., seen_at)) = &mut self.trace {
                    *seen_at = Some(Instant::now());
                }
                return;
            }
        }
        let all = self.ask_all(&json!({"ask": "watched", "last": true}), ANSWER_WITHIN);
        let traced = all.map(|(all, silent)| {
            let name = |domain| self.name(domain).to_owned();
            let all = all.into_iter().map(|(at, seen)| (name(at), seen)).collect();
            let mut traced = merge::traces(all, messages);
            traced["silent"] = silent;
            traced
        });
        if let Some((job, ..)) = self.trace.take() {
            job.answer(&match traced {
                Ok(traced) => json!({"ok": traced}),
                Err(failure) => json!({"error": failure.text()}),
            });
        }
    }

    /// Captures what crosses an edge, at the domain that has the protocol below it.
    fn capture(&mut self, edge: &str) -> Result<UnixStream, Failure> {
        let lower = edge.split_once('>').map_or(edge, |(_, lower)| lower).trim();
        let at = self.wanted.host.nodes().iter().position(|node| *node.name == lower);
        let place = at.and_then(|at| self.plan().ok()?.places().get(at));
        let none = || Failure::new(format!("no protocol `{lower}`"));
        let domain = place.ok_or_else(none)?.domain();
        let running = self.running.iter().find(|running| running.domain == domain);
        let (mut ours, theirs) = UnixStream::pair().map_err(failed("no socket"))?;
        let visits = &running.ok_or_else(none)?.visits;
        files::send(visits, CLIENT, &OwnedFd::from(theirs)).map_err(failed("no way to it"))?;
        let request = json!({"ask": "capture", "edge": edge});
        ours.write_all(format!("{request}\n").as_bytes()).map_err(failed("no way to it"))?;
        Ok(ours)
    }

    /// Dumps all domains as one graph.
    fn dump(&mut self, within: Duration) -> Result<Value, Failure> {
        let (parts, silent) = self.ask_all(&json!({"ask": "dump"}), within)?;
        let order: Vec<String> =
            self.wanted.host.nodes().iter().map(|n| n.name.to_string()).collect();
        let mut dump = merge::dumps(parts, &order, |domain| self.name(domain).to_owned());
        dump["silent"] = silent;
        dump["about"] = self.about();
        Ok(dump)
    }

    /// The host and its file.
    fn about(&self) -> Value {
        json!({
            "host": self.wanted.host.name,
            "file": self.wanted.graph.warnings().file(),
            "pid": std::process::id(),
        })
    }

    /// Puts all domains down, the topmost first, and shows what they have done.
    ///
    /// # Errors
    /// If one of its anchors has failed.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        let dump = self.dump(SAY_WITHIN);
        self.put_down();
        let dump = dump?;
        output::print(&format!("\n{}", view::counters(&dump)));
        let reports = view::reports(&dump);
        if !reports.is_empty() {
            output::print(&format!("\n{}\n{reports}", heading("reports")));
        }
        match view::failures(&dump).as_slice() {
            [] => Ok(()),
            some => Err(Failure::new(format!("failed: {}", some.join(", ")))),
        }
    }

    /// Names what each domain has that no other process goes on with.
    fn left_behind(&self) -> String {
        let places = self.plan().map_or(&[][..], |plan| plan.places());
        let nodes = self.wanted.host.nodes();
        let of_node = |(place, node): (&xk_compose::Place, &xk_lang::Node)| {
            let (entry, name) = (place.entry(), &node.name.value);
            match entry.shape {
                Shape::Wire => Some(format!("the device of `{name}`")),
                _ if gives_state(entry) => Some(format!("the connections of `{name}`")),
                _ if !entry.is_replaceable => {
                    Some(format!("the state of `{name}` about its peers"))
                }
                _ => None,
            }
        };
        let of_domain = |(domain, setup): (usize, &DomainSetup)| {
            let own = places.iter().zip(nodes.iter()).filter(|(place, _)| place.domain() == domain);
            let mut all: Vec<String> = own.filter_map(of_node).collect();
            if setup.kind == Some(DomainKind::Open) {
                all.push("the programs that have attached".into());
            }
            (!all.is_empty()).then(|| format!("{} has {}", self.name(domain), all.join(", ")))
        };
        let domains = self.setups.iter().enumerate().filter_map(of_domain);
        domains.collect::<Vec<_>>().join("; ")
    }

    fn put_down(&mut self) {
        // What does not answer does not stop by itself, and others may wait for it.
        let is_silent = |running: &&Running| running.owes || self.is_stopped(running.domain);
        let silent: Vec<usize> = self.running.iter().filter(is_silent).map(|r| r.domain).collect();
        for process in &mut self.processes {
            if process.domains.iter().any(|domain| silent.contains(domain)) {
                let _ = process.child.kill();
            }
        }
        let begun = Instant::now();
        let order = self.plan().map_or(&[][..], |plan| plan.domain_order());
        for domain in order.iter().rev() {
            let Some(at) = self.running.iter().position(|running| running.domain == *domain) else {
                continue;
            };
            let mut stream = self.running.swap_remove(at).stream;
            let left = STOP_WITHIN.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            let _ = stream.get_ref().shutdown(Shutdown::Write);
            let _ = stream.get_ref().set_read_timeout(Some(left));
            // To its end.
            while stream.fill_buf().is_ok_and(|left| !left.is_empty()) {
                let octets = stream.buffer().len();
                stream.consume(octets);
            }
        }
        for process in &mut self.processes {
            while begun.elapsed() < STOP_WITHIN && matches!(process.child.try_wait(), Ok(None)) {
                let _ = poll(&mut [], Some(&LOOK_EVERY));
            }
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        if !self.processes.is_empty() {
            sockets::remove(&sockets::of(self.wanted.graph, self.wanted.host));
        }
        self.processes.clear();
    }
}

impl Drop for Domains<'_> {
    fn drop(&mut self) {
        self.put_down();
    }
}
