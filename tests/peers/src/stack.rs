//! A graph running on a thread of its own inside a namespace.

use std::cell::Cell;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use xk_attach::{Attached, Grant};
use xk_compose::{CheckedGraph, HostSetup, Lies};
use xk_core::control::{Question, Report};
use xk_core::graph::Realm;
use xk_core::{Kernel, ProtocolRef};
use xk_domains::ring::Ring;
use xk_domains::{Carrier, Known};
use xk_kit::passthrough::EpochOffset;
use xk_run::{Idle, Runner, real_kernel};
use xk_testkit::netns::Space;

use crate::organisation;
use crate::program::{Program, Programs};

/// Memory for the messages of one stack, in octets.
const POOL_OCTETS: usize = 1 << 26;
/// Longest time for a stack to begin, or to answer. A stack on a busy machine takes far less.
const STACK_TIME_MAX: Duration = Duration::from_secs(30);

/// Why domains drop besides: a way between two of them that has no room is as a link that loses,
/// and a peer repeats what is answered later than its loss probe, which crossings take time for.
/// What comes for a conversation that goes to its program at that moment is repeated, too. And the
/// answer to a repeated end of a stream comes when the stream is forgotten already.
const OF_CUTS: [&str; 8] = [
    "queue full",
    "out of window",
    "old timestamp",
    "data after close",
    "closed",
    "moved",
    "no port",
    "late in a cut",
];

/// Something to be done on the stack's own thread; the answer is whether the stack goes on.
type Order = Box<dyn FnOnce(&Kernel) -> bool + Send>;

/// A running graph of one host. It ends when this value is dropped.
pub struct Stack {
    /// Programs that have attached to it, which end first.
    programs: Programs,
    /// Space and path at which programs attach, if they do.
    place: Option<(Option<Space>, PathBuf)>,
    /// The domains, each below all that stand on it.
    parts: Vec<Part>,
}

/// A kernel of a stack on its own thread.
struct Part {
    orders: Sender<Order>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Report of an upper end: see [`Report`].
#[derive(Debug, Clone)]
pub struct TopReport {
    /// The node's name.
    pub name: String,
    /// Names and values.
    pub lines: Vec<(String, String)>,
    /// True if it has done its task.
    pub finished: bool,
    /// True if it failed.
    pub failed: bool,
}

impl TopReport {
    /// The figure of this name; 0 if it is not there.
    #[must_use]
    pub fn figure(&self, name: &str) -> u64 {
        let line = self.lines.iter().find(|(given, _)| given == name);
        line.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    }
}

/// Messages that a stack dropped: protocol, reason, how many.
pub type Drops = Vec<(String, &'static str, u64)>;

impl Stack {
    /// Builds and starts the only host of the graph `source` inside `space`, and runs it.
    ///
    /// # Panics
    /// If the graph has a mistake or cannot be built there; the message is the one that a user
    /// would see.
    #[must_use]
    pub fn start(space: &Space, source: &str) -> Self {
        Self::begin(Some(space.clone()), source)
    }

    /// As above, outside of all namespaces, for graphs that need no privilege.
    ///
    /// # Panics
    /// As [`Stack::start`].
    #[must_use]
    pub fn alone(source: &str) -> Self {
        Self::begin(None, source)
    }

    fn begin(space: Option<Space>, source: &str) -> Self {
        let programs = Programs::default();
        let Some(cut) = organisation::current().cut(source) else {
            let parts = vec![Part::begin(space, run_whole(source.to_owned()))];
            return Self { programs, place: None, parts };
        };
        let whole = source;
        let (source, place) = (cut.text, cut.programs.as_ref().map(|(place, _)| place.clone()));
        let graph = check(&source);
        let host = graph.graph().expand().remove(0);
        let plan = graph.plan_of(&host).expect("the host is of this graph");
        // Both ends of each way between two domains, for the thread that starts there.
        let mut ends: Vec<(usize, usize, Ring)> = Vec::new();
        for (upper, domain) in plan.domains().iter().enumerate() {
            for &lower in domain.lowers() {
                let (one, two) = xk_domains::ring::pair().expect("a ring");
                ends.extend([(upper, lower, one), (lower, upper, two)]);
            }
        }
        let mut parts = Vec::new();
        for &domain in plan.domain_order() {
            let own = ends.extract_if(.., |(at, ..)| *at == domain);
            let own = own.map(|(_, neighbour, ring)| (neighbour, ring)).collect();
            let run = run_domain(source.clone(), domain, own, place.clone());
            parts.push(Part::begin(space.clone(), run));
        }
        if let (Some(place), false) = (&place, cut.own.is_empty()) {
            let run = run_program(whole.to_owned(), cut.own, place.clone());
            parts.push(Part::begin(space.clone(), run));
        }
        let place = place.map(|place| (space, place));
        let mut stack = Self { programs, place, parts };
        let all = cut.programs.map(|(_, all)| all);
        all.into_iter().flatten().for_each(|program| stack.program(program));
        stack
    }

    /// Starts a program that attaches to it.
    ///
    /// # Panics
    /// If its organisation has none, or it does not begin.
    pub fn program(&mut self, program: Program) {
        let (space, path) = self.place.as_ref().expect("an organisation with programs");
        self.programs.start(space.as_ref(), path, program);
    }

    /// Does `work` on the stack's thread, between two turns of its loop, and gives the answer; of a
    /// stack in several domains, on that of the topmost.
    ///
    /// # Panics
    /// If the stack has ended or does not answer.
    pub fn with<T: Send + 'static>(&self, work: impl FnOnce(&Kernel) -> T + Send + 'static) -> T {
        self.parts.last().expect("a domain").with(work)
    }

    /// Does `work` on the thread of each domain, the topmost first.
    fn each<T: Send + 'static>(
        &self,
        work: impl Fn(&Kernel) -> T + Clone + Send + 'static,
    ) -> impl Iterator<Item = T> {
        self.parts.iter().rev().map(move |part| part.with(work.clone()))
    }

    /// Asks the protocol called `name` a question.
    ///
    /// # Panics
    /// If there is no such protocol or it has no answer.
    pub fn ask<Q: Question + Clone + Send + 'static>(&self, name: &str, question: Q) -> Q {
        let wanted = name.to_owned();
        let mut answers = self.each(move |kernel| {
            let protocol = kernel.find_protocol(&wanted).filter(|found| !found.is_proxy())?;
            protocol.ask(kernel, question.clone())
        });
        answers.find_map(|answer| answer).unwrap_or_else(|| panic!("`{name}` does not answer"))
    }

    /// Reports of the upper ends.
    #[must_use]
    pub fn reports(&self) -> Vec<TopReport> {
        self.each(reports).flatten().collect()
    }

    /// Waits until all upper ends have finished, and gives their reports.
    ///
    /// # Panics
    /// If they have not within `limit`.
    #[must_use]
    pub fn finish(&self, limit: Duration) -> Vec<TopReport> {
        let begun = Instant::now();
        loop {
            let reports = self.reports();
            if reports.iter().all(|report| report.finished) {
                return reports;
            }
            assert!(begun.elapsed() < limit, "not finished: {reports:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Drops so far, by reason.
    #[must_use]
    pub fn drops(&self) -> Drops {
        let drops = self.each(|kernel| {
            let mut drops = Drops::new();
            for protocol in kernel.protocols() {
                for (reason, count) in protocol.head().drops().list() {
                    drops.push((protocol.name().to_owned(), reason.name, count));
                }
            }
            drops
        });
        drops.flatten().collect()
    }

    /// Asserts that nothing was dropped but what `expected` names, as `protocol: reason`.
    ///
    /// # Panics
    /// If something else was.
    pub fn assert_drops_only(&self, expected: &[&str]) {
        let mut drops = self.drops();
        drops.retain(|(protocol, reason, _)| {
            let is_of_cuts = self.parts.len() > 1 && OF_CUTS.contains(reason);
            !is_of_cuts && !expected.contains(&format!("{protocol}: {reason}").as_str())
        });
        assert!(drops.is_empty(), "dropped: {drops:?}");
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.programs));
        // The topmost domain first.
        while self.parts.pop().is_some() {}
    }
}

impl Part {
    /// Runs `body` on a thread, until it is ready for orders.
    fn begin(space: Option<Space>, body: impl FnOnce(Orders) + Send + 'static) -> Self {
        let (orders, taken) = channel::<Order>();
        let (ready, begun) = channel();
        let (bell, heard) = UnixStream::pair().expect("a pair of sockets");
        let inside = move || {
            let run = || body(Orders { ready, taken, bell: heard });
            match space {
                None => run(),
                Some(space) => {
                    if let Err(error) = space.enter(run) {
                        panic!("{error}");
                    }
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("stack".into()).spawn(inside).expect("a thread");
        let part = Self { orders, bell, thread: Some(thread) };
        match begun.recv_timeout(STACK_TIME_MAX) {
            Ok(Ok(())) => part,
            Ok(Err(what)) => panic!("{what}"),
            Err(_) => panic!("the stack did not begin"),
        }
    }

    fn with<T: Send + 'static>(&self, work: impl FnOnce(&Kernel) -> T + Send + 'static) -> T {
        let (answer, answered) = channel();
        let order: Order = Box::new(move |kernel| {
            let _nobody_waits = answer.send(work(kernel));
            true
        });
        self.order(order);
        answered.recv_timeout(STACK_TIME_MAX).expect("the stack's answer")
    }

    fn order(&self, order: Order) {
        let _ended = self.orders.send(order);
        let _ended = (&self.bell).write(&[0]);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.order(Box::new(|_| false));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the stack panicked; its message is above");
        }
    }
}

/// Orders to a thread with a kernel, and the channel by which it reports its start.
struct Orders {
    ready: Sender<Result<(), String>>,
    taken: Receiver<Order>,
    bell: UnixStream,
}

impl Orders {
    /// Runs a started kernel until an order ends it, or says what is wrong.
    fn obey(self, prepared: Result<Rc<Runner>, String>) {
        let runner = match prepared {
            Ok(runner) => runner,
            Err(what) => {
                let _nobody_waits = self.ready.send(Err(what));
                return;
            }
        };
        let Self { ready, taken, bell } = self;
        let ended = Rc::new(Cell::new(false));
        let end = Rc::clone(&ended);
        bell.set_nonblocking(true).expect("a setting");
        let ring = bell.try_clone().expect("another handle");
        let obey = move |kernel: &Kernel| {
            while matches!((&ring).read(&mut [0; 64]), Ok(octets) if octets > 0) {}
            for order in taken.try_iter() {
                end.set(!order(kernel) || end.get());
            }
        };
        runner.watch(OwnedFd::from(bell), Rc::new(obey)).expect("an epoll set");
        let _nobody_waits = ready.send(Ok(()));
        runner.run(None, Rc::new(move |_| ended.get())).expect("a poll loop");
        let kernel = Rc::clone(runner.kernel());
        drop(runner);
        kernel.stop();
    }
}

/// Runs the whole of a graph on the calling thread.
fn run_whole(source: String) -> impl FnOnce(Orders) + Send {
    move |orders| {
        let mut setup = HostSetup::from_text(source, xk_catalog::PROTOCOLS);
        setup.pool_octets_max = POOL_OCTETS;
        let opened = setup.open(|_, _, _| Ok(()), |_, _| Ok(()));
        orders.obey(opened.map(|host| host.runner).map_err(|error| error.to_string()));
    }
}

/// Runs one domain of a graph on the calling thread, with the ways to its neighbours, of which
/// those below it run. Where there is a registry programs attach at `place`.
fn run_domain(
    source: String,
    domain: usize,
    mut ways: Vec<(usize, Ring)>,
    place: Option<PathBuf>,
) -> impl FnOnce(Orders) + Send {
    move |orders| {
        let graph = check(&source);
        let host = graph.graph().expand().remove(0);
        let kernel = Rc::new(real_kernel(POOL_OCTETS).expect("a kernel"));
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        kernel.surround(Rc::new(EpochOffset(since_1970)));
        let carrier = &mut |neighbour| -> io::Result<Box<dyn Carrier>> {
            let at = ways.iter().position(|(other, _)| *other == neighbour);
            Ok(Box::new(ways.swap_remove(at.ok_or(io::ErrorKind::NotFound)?).1))
        };
        let built = xk_compose::build_domain(&graph, &host, domain, &kernel, carrier);
        let started = built.and_then(|built| {
            place.inspect(|place| open(&kernel, place));
            let runner = Runner::new(Rc::clone(&kernel), Idle::default()).expect("a poll loop");
            xk_compose::started(&graph, &host, runner.start())?;
            Ok((built, Rc::new(runner)))
        });
        match started {
            Ok((_built, runner)) => orders.obey(Ok(runner)),
            Err(mistakes) => orders.obey(Err(mistakes.to_string())),
        }
    }
}

/// Runs these nodes of a graph on the calling thread: they are a program's own protocols, on a
/// library of the transports, and it attaches at `place`.
fn run_program(source: String, own: Vec<String>, place: PathBuf) -> impl FnOnce(Orders) + Send {
    move |orders| {
        let graph = check(&source);
        let host = graph.graph().expand().remove(0);
        let here = Attached::at(&place, xk_catalog::PROTOCOLS).expect("a place");
        let kernel = Rc::clone(here.kernel());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        kernel.surround(Rc::new(EpochOffset(since_1970)));
        let far = |name| here.find(name).cloned().expect("it is granted");
        let program = xk_registry::Program::add(&kernel, "library", far("tcp"), far("registry"));
        let datagrams = program.add_datagrams(&kernel, "datagrams", far("udp"));
        let built = xk_compose::build_some(&graph, &host, &kernel, &mut |site| match (
            own.contains(&site.node.name.value),
            site.place.entry().kind,
        ) {
            (true, _) => Lies::Here,
            (_, "tcp") => Lies::Elsewhere(Some(program.library().clone())),
            (_, "udp") => Lies::Elsewhere(Some(datagrams.clone())),
            _ => Lies::Elsewhere(None),
        });
        let started = built.and_then(|built| {
            here.join().expect("it is known");
            let fetch = |_: &Kernel, ticket: &_, door: &str| {
                Some(xk_netio::node::connect(door, ticket).expect("a channel") as Box<_>)
            };
            program.build(&kernel, xk_catalog::PROTOCOLS, fetch).expect("a stack of its own");
            let runner = Runner::new(Rc::clone(&kernel), Idle::default()).expect("a poll loop");
            xk_compose::started(&graph, &host, runner.start())?;
            Ok((built, Rc::new(runner)))
        });
        match started {
            Ok((_built, runner)) => orders.obey(Ok(runner)),
            Err(mistakes) => orders.obey(Err(mistakes.to_string())),
        }
    }
}

/// Opens a place for programs, which may have the registry of this kernel and its transports.
fn open(kernel: &Kernel, place: &Path) {
    let is_of = |protocol: &ProtocolRef| {
        !protocol.is_proxy() && ["tcp", "udp", "registry"].contains(&protocol.head().kind())
    };
    let all: Vec<_> = kernel.protocols().into_iter().filter(is_of).collect();
    if all.iter().any(|protocol| protocol.head().kind() == "registry") {
        let known = || Known::of(xk_catalog::PROTOCOLS);
        // Ports of services are granted by name alone.
        let services = |node| Grant { ports: Some(1..=1023), ..Grant::new(node) };
        let grants = all.iter().map(Grant::new).chain(all.iter().map(services)).collect();
        xk_attach::Door::open(kernel, "programs", place, grants, known).expect("a place");
    }
}

/// # Panics
/// If it has a mistake.
fn check(source: &str) -> CheckedGraph {
    let checked = xk_compose::check(source, "graph", &xk_catalog::standard());
    checked.unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn reports(kernel: &Kernel) -> Vec<TopReport> {
    let catalog = xk_catalog::standard();
    let mut found = Vec::new();
    for protocol in kernel.protocols() {
        // Others pass the question on.
        let top = !protocol.is_proxy()
            && catalog.find(protocol.head().kind()).is_some_and(|entry| entry.realm == Realm::Top);
        if top && let Some(report) = protocol.ask(kernel, Report::default()) {
            found.push(TopReport {
                name: protocol.name().to_owned(),
                lines: report.lines,
                finished: report.finished,
                failed: report.failed,
            });
        }
    }
    found
}
