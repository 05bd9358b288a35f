//! A graph running on a thread of its own inside a namespace.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xk_compose::HostSetup;
use xk_core::Kernel;
use xk_core::control::{Question, Report};
use xk_core::graph::Realm;
use xk_run::Runner;
use xk_testkit::netns::Space;

/// Memory for the messages of one stack, in octets.
const POOL_OCTETS: usize = 1 << 26;
/// How long a stack may take to begin, or to answer. Far more than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something to be done on the stack's own thread; the answer is whether the stack goes on.
type Order = Box<dyn FnOnce(&Kernel) -> bool + Send>;

/// A running graph of one host. It ends when this value is dropped.
pub struct Stack {
    orders: Sender<Order>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What an upper end has to tell: see [`Report`].
#[derive(Debug, Clone)]
pub struct TopReport {
    /// The node's name.
    pub name: String,
    /// Names and values.
    pub lines: Vec<(String, String)>,
    /// It has done what it was asked to do.
    pub finished: bool,
    /// That went wrong.
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
        let (orders, taken) = channel::<Order>();
        let (ready, begun) = channel();
        let (bell, heard) = UnixStream::pair().expect("a pair of sockets");
        let source = source.to_owned();
        let inside = move || {
            let run = || run(&source, &ready, taken, heard);
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
        let stack = Self { orders, bell, thread: Some(thread) };
        match begun.recv_timeout(PATIENCE) {
            Ok(Ok(())) => stack,
            Ok(Err(what)) => panic!("{what}"),
            Err(_) => panic!("the stack did not begin"),
        }
    }

    /// Does `work` on the stack's thread, between two turns of its loop, and gives the answer.
    ///
    /// # Panics
    /// If the stack has ended or does not answer.
    pub fn with<T: Send + 'static>(&self, work: impl FnOnce(&Kernel) -> T + Send + 'static) -> T {
        let (answer, answered) = channel();
        let order: Order = Box::new(move |kernel| {
            let _nobody_waits = answer.send(work(kernel));
            true
        });
        self.order(order);
        answered.recv_timeout(PATIENCE).expect("the stack's answer")
    }

    /// Asks the protocol called `name` a question.
    ///
    /// # Panics
    /// If there is no such protocol or it has no answer.
    pub fn ask<Q: Question + Send + 'static>(&self, name: &str, question: Q) -> Q {
        let wanted = name.to_owned();
        let answer = self.with(move |kernel| {
            let protocol = kernel.find_protocol(&wanted)?;
            protocol.ask(kernel, question)
        });
        answer.unwrap_or_else(|| panic!("`{name}` does not answer"))
    }

    /// What the upper ends report.
    #[must_use]
    pub fn reports(&self) -> Vec<TopReport> {
        self.with(reports)
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

    /// What was dropped so far, and why.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.with(|kernel| {
            let mut drops = Drops::new();
            for protocol in kernel.protocols() {
                for (reason, count) in protocol.head().drops().list() {
                    drops.push((protocol.name().to_owned(), reason.name, count));
                }
            }
            drops
        })
    }

    /// Asserts that nothing was dropped but what `expected` names, as `protocol: reason`.
    ///
    /// # Panics
    /// If something else was.
    pub fn assert_drops_only(&self, expected: &[&str]) {
        let mut drops = self.drops();
        drops.retain(|(protocol, reason, _)| {
            !expected.contains(&format!("{protocol}: {reason}").as_str())
        });
        assert!(drops.is_empty(), "dropped: {drops:?}");
    }

    fn order(&self, order: Order) {
        let _ended = self.orders.send(order);
        let _ended = (&self.bell).write(&[0]);
    }
}

impl Drop for Stack {
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

/// Runs a stack on the calling thread until an order ends it.
fn run(
    source: &str,
    ready: &Sender<Result<(), String>>,
    orders: Receiver<Order>,
    bell: UnixStream,
) {
    let runner = match prepare(source) {
        Ok(runner) => runner,
        Err(what) => {
            let _nobody_waits = ready.send(Err(what));
            return;
        }
    };
    let ended = Rc::new(Cell::new(false));
    let end = Rc::clone(&ended);
    bell.set_nonblocking(true).expect("a setting");
    let ring = bell.try_clone().expect("another handle");
    let obey = move |kernel: &Kernel| {
        while matches!((&ring).read(&mut [0; 64]), Ok(octets) if octets > 0) {}
        for order in orders.try_iter() {
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

/// The poll loop of a started kernel, or what is wrong.
fn prepare(source: &str) -> Result<Rc<Runner>, String> {
    let mut setup = HostSetup::from_text(source, xk_catalog::PROTOCOLS);
    setup.pool_octets_max = POOL_OCTETS;
    let opened = setup.open(|_, _, _| Ok(()), |_, _| Ok(()));
    opened.map(|host| host.runner).map_err(|error| error.to_string())
}

fn reports(kernel: &Kernel) -> Vec<TopReport> {
    let catalog = xk_catalog::standard();
    let mut found = Vec::new();
    for protocol in kernel.protocols() {
        // Others pass the question on.
        let top =
            catalog.find(protocol.head().kind()).is_some_and(|entry| entry.realm == Realm::Top);
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
