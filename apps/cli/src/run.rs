//! `xk run`: one host of a graph, in real time, with its devices.

use crate::control::{self, Server};
use crate::domains::{self, Domains, Wanted};
use crate::failure::{Failure, show};
use crate::log::Verbosity;
use crate::member::Member;
use crate::output::{grouped, heading};
use crate::user::User;
use crate::wires::WireArgs;
use crate::{file, host, output, user, view};
use std::cell::Cell;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::CheckedGraph;
use xk_core::{Kernel, ProtocolRef, Time};
use xk_lang::{HostInstance, Severity};
use xk_run::{Idle, Runner, RunnerStats, interrupt_unsafe};

/// Time between two status lines.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks whether the anchors have finished.
const FINISHED_EVERY: Duration = Duration::from_millis(20);

/// Run a host of a graph in real time
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Graph file; `-` for the standard input
    file: PathBuf,
    /// Host of the graph; not needed if it has only one
    #[arg(long)]
    host: Option<String>,
    #[command(flatten)]
    wires: WireArgs,
    /// Run the host as a program on the protocol library of the open domain at this socket, with
    /// the domain's `tcp` and `udp` in place of its own and of the layers below these
    #[arg(long, value_name = "SOCKET")]
    library: Option<PathBuf>,
    /// Restarts of domains' processes that are permitted within a minute; one more ends the run
    #[arg(long, value_name = "N", default_value_t = 5)]
    restarts: usize,
    #[command(flatten)]
    control: control::ServerArgs,
    #[command(flatten)]
    how: HowArgs,
}

/// Options for running a host.
#[derive(clap::Args)]
pub(crate) struct HowArgs {
    /// Duration; without it, until all applications of the graph have finished, or until Ctrl-C if
    /// none ever does
    #[arg(long = "for", value_name = "TIME", value_parser = file::duration)]
    limit: Option<Duration>,
    /// Never sleep: the lowest latency for a whole core
    #[arg(long)]
    spin: bool,
    /// Sleep at once when there is nothing to do: the least load
    #[arg(long, conflicts_with = "spin")]
    sleep: bool,
    #[command(flatten)]
    pub(crate) user: user::UserArgs,
    #[command(flatten)]
    pub(crate) log: Verbosity,
}

impl HowArgs {
    /// A loop for a kernel whose graph is built.
    pub(crate) fn runner(&self, kernel: &Rc<Kernel>) -> Result<Rc<Runner>, Failure> {
        let idle = match (self.spin, self.sleep) {
            (true, _) => Idle::Spin,
            (_, true) => Idle::Sleep,
            _ => Idle::default(),
        };
        let runner = Runner::new(Rc::clone(kernel), idle);
        let failed = |error| Failure::new(format!("cannot make a poll loop: {error}"));
        runner.map(Rc::new).map_err(failed)
    }
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let graph =
        file::load_with(&args.file, |name, text| args.wires.put(name, text, args.host.as_deref()))?;
    let how = &args.how;
    how.log.unless_quiet(|| show(graph.warnings()));
    let host = file::pick_host(&graph, args.host.as_deref())?;
    let user = how.user.find()?;
    // Before the socket is made, so that no signal leaves it behind.
    interrupt_unsafe::catch();
    let server = args
        .control
        .serve(user, std::process::id(), |failure| how.log.unless_quiet(|| failure.show()))?;
    let is_cut = domains::are_in(&graph, &host);
    if let Some(path) = &args.library {
        if is_cut {
            return Err(Failure::usage("a host with domains cannot be a program on a library"));
        }
        let member = Member::build(&graph, &host, (path, user))?;
        let runner = how.runner(&member.kernel)?;
        host::start(&graph, &host, &runner, user)?;
        let leave = |runner: &Runner| member.leave(runner);
        return run_and_leave(&graph, &host, runner, server.as_ref(), how, user, &leave);
    }
    if is_cut {
        return in_domains(args, &graph, &host, user, server.as_ref());
    }
    domains::sockets::make_folders(&domains::sockets::of(&graph, &host), &[0], user)?;
    let kernel = host::build(&graph, &host, user)?;
    let nodes: Vec<_> = host.nodes().iter().map(|node| kernel.find_protocol(&node.name)).collect();
    let _doors = xk_compose::open_doors(&graph, &host, 0, &kernel, &nodes)?;
    let runner = how.runner(&kernel)?;
    host::start(&graph, &host, &runner, user)?;
    run(&graph, &host, runner, server.as_ref(), how, user)
}

/// Runs a host that has started to its end.
pub(crate) fn run(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    runner: Rc<Runner>,
    server: Option<&Server>,
    how: &HowArgs,
    user: User,
) -> Result<(), Failure> {
    run_and_leave(graph, host, runner, server, how, user, &|_| {})
}

/// Function to run at the end of a run, while its loop still turns.
type Leave<'l> = &'l dyn Fn(&Runner);

/// As [`run`]; at the end `leave` is done.
fn run_and_leave(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    runner: Rc<Runner>,
    server: Option<&Server>,
    how: &HowArgs,
    user: User,
    leave: Leave<'_>,
) -> Result<(), Failure> {
    let kernel = Rc::clone(runner.kernel());
    let lowers = host::lowers(host);
    if let Some(server) = server {
        let (file, text) = (graph.warnings().file(), graph.warnings().source());
        let desk = server.desk(&runner, host, file.as_ref());
        let desk = desk.and_then(|desk| server.upgradable(desk, text));
        let attached = desk.and_then(|desk| desk.stand_at(&runner));
        attached.map_err(|error| Failure::file("cannot watch", server.path(), error))?;
    }
    let looks = how.log.look_on(&runner);
    looks.map_err(|error| Failure::new(format!("cannot look on: {error}")))?;
    introduce(&kernel, host, server);
    how.log.say_user(user);
    let turn = Between::new((&kernel, host), &runner, how);
    let ended = runner.run(how.limit, Rc::new(move |kernel| turn.look(kernel)));
    clear_status();
    let dump = view::of_kernel(&kernel, &lowers, 0);
    output::print(&format!("\n{}", view::counters(&dump)));
    let reports = view::reports(&dump);
    if !reports.is_empty() {
        output::print(&format!("\n{}\n{reports}", heading("reports")));
    }
    let failed = view::failures(&dump);
    leave(&runner);
    drop(runner);
    kernel.stop();
    ended.map_err(|error| Failure::new(format!("the poll loop ended: {error}")))?;
    match failed.as_slice() {
        [] => Ok(()),
        some => Err(Failure::new(format!("failed: {}", some.join(", ")))),
    }
}

/// Runs a host that is cut into domains.
fn in_domains(
    args: &Args,
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    user: User,
    server: Option<&Server>,
) -> Result<(), Failure> {
    let missing = xk_compose::check_environment(graph, Some(&host.name), Severity::Error);
    if missing.has_errors() {
        return Err(Failure::Mistakes(Box::new(missing)));
    }
    let how = &args.how;
    let idle = match (how.spin, how.sleep) {
        (true, _) => "spin",
        (_, true) => "sleep",
        _ => "adaptive",
    };
    let (verbose, limit) = (how.log.level(), how.limit);
    let restarts_max = args.restarts;
    let wanted = Wanted { graph, host, user, idle, verbose, limit, restarts_max };
    let mut domains = Domains::start(wanted)?;
    say_end(server);
    let ended = domains.run(server);
    // What ended it is said, and not what follows from that.
    let stopped = domains.stop();
    ended.and(stopped)
}

/// Says what to type to see more, and to end.
fn say_end(server: Option<&Server>) {
    if let Some(server) = server {
        output::print(&format!(
            "look into it: xk dump, xk trace, xk capture (control socket {})\n",
            server.path().display()
        ));
    }
    output::print("Ctrl-C ends it.\n");
}

/// Says the host's name and addresses, and what to type to see it.
fn introduce(kernel: &Kernel, host: &HostInstance<'_>, server: Option<&Server>) {
    output::print(&format!("{}\n", heading(&format!("host {}", host.name))));
    let devices = host::devices(kernel, host);
    for line in &devices.lines {
        output::print(&format!("  {line}\n"));
    }
    if let Some(address) = devices.address.filter(|_| devices.is_outside) {
        output::print(&format!("try: ping {address}\n"));
    }
    say_end(server);
}

/// Work between two turns of the loop.
struct Between {
    runner: std::rc::Weak<Runner>,
    status: bool,
    status_at: Cell<Time>,
    last: Cell<RunnerStats>,
    finished_at: Cell<Time>,
    /// Anchors that have something to finish; empty if the end is given otherwise.
    unfinished: Vec<ProtocolRef>,
}

impl Between {
    fn new(
        (kernel, host): (&Kernel, &HostInstance<'_>),
        runner: &Rc<Runner>,
        how: &HowArgs,
    ) -> Self {
        let ends = how.limit.is_none().then(|| host::ends_with(kernel, host));
        let unfinished = ends.unwrap_or_default();
        Self {
            runner: Rc::downgrade(runner),
            // Lines of what happens would break it.
            status: std::io::stderr().is_terminal() && !how.log.is_verbose(),
            status_at: Cell::new(Time::ZERO),
            last: Cell::default(),
            finished_at: Cell::new(Time::ZERO),
            unfinished,
        }
    }

    /// True if the run is over.
    fn look(&self, kernel: &Kernel) -> bool {
        let now = kernel.now();
        if self.status && now >= self.status_at.get() {
            self.status_at.set(now + STATUS_EVERY);
            self.show_status(kernel);
        }
        if self.unfinished.is_empty() || now < self.finished_at.get() {
            return false;
        }
        self.finished_at.set(now + FINISHED_EVERY);
        let done = |p: &ProtocolRef| xk_show::figures::report(kernel, p).is_none_or(|r| r.finished);
        self.unfinished.iter().all(done)
    }

    fn show_status(&self, kernel: &Kernel) {
        let Some(runner) = self.runner.upgrade() else {
            return;
        };
        let stats = runner.stats();
        let last = self.last.replace(stats);
        let dropped: u64 = kernel.protocols().iter().map(|p| p.head().drops().total()).sum();
        clear_status();
        output::error(&format!(
            "{:.0}: {} arrivals ({} a second), {} dropped, {} turns and {} sleeps a second",
            kernel.now(),
            grouped(stats.arrivals),
            grouped(stats.arrivals - last.arrivals),
            grouped(dropped),
            grouped(stats.turns - last.turns),
            grouped(stats.sleeps - last.sleeps),
        ));
    }
}

fn clear_status() {
    if std::io::stderr().is_terminal() {
        output::steer("\r\x1b[K");
    }
}
