//! One domain: a thread with a kernel and a loop of its own, told over a socket when to start and,
//! by its end, when to stop.

use super::confine::Confined;
use super::hello::{Hello, Seat};
use super::ways::{Meeting, NeighbourCarrier, Ways};
use crate::control::{Begun, Clients, Desk, Jobs};
use crate::failure::Failure;
use crate::host;
use crate::log::Verbosity;
use crate::user::{self, User};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use xk_compose::build_domain;
use xk_core::graph::Catalog;
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_domains::{Carrier, Port, Queue};
use xk_run::{Idle, Runner};

/// The longest request before the start.
const START_OCTETS_MAX: u64 = 64;

/// Shared state of the domains of one process.
pub(super) struct Shared {
    pub(super) hello: Hello,
    pub(super) user: User,
    pub(super) confined: Confined,
    /// Number of domains that have not started yet: the last one gives up the last rights.
    pub(super) starting: AtomicUsize,
}

/// Everything that a domain's thread gets.
pub(super) struct Place {
    pub(super) seat: Seat,
    pub(super) meetings: Vec<(usize, Meeting)>,
}

/// Runs a domain to its end.
pub(super) fn run(shared: &Arc<Shared>, place: Place) {
    let Place { seat, meetings } = place;
    let mut answers = UnixStream::from(seat.control);
    let failed = match sit(shared, seat.domain, meetings, &answers, seat.visits) {
        Ok(()) => return,
        Err(failed) => failed,
    };
    let error = match failed {
        Failure::Mistakes(mistakes) => json!({"mistakes": mistakes.to_string()}),
        other => json!({"error": other.text()}),
    };
    let _ = answers.write_all(format!("{error}\n").as_bytes());
}

fn broken(error: io::Error) -> Failure {
    Failure::new(format!("the process that started this one has ended: {error}"))
}

fn sit(
    shared: &Arc<Shared>,
    domain: usize,
    meetings: Vec<(usize, Meeting)>,
    stream: &UnixStream,
    visits: OwnedFd,
) -> Result<(), Failure> {
    let hello = &shared.hello;
    let catalog: Catalog = xk_catalog::standard();
    let graph = xk_compose::check_text(&hello.text, &hello.file, &catalog)?;
    let none = || Failure::new(format!("the graph has no host `{}`", hello.host));
    let host = graph.host(&hello.host).ok_or_else(none)?;
    let setups = graph.domains(&host);
    let setup = setups.get(domain).ok_or_else(none)?;
    if let Some(core) = setup.core {
        pin(core).map_err(|error| {
            Failure::new(format!("domain `{}` cannot run on processor {core}: {error}", setup.name))
        })?;
    }
    let (kernel, pool) = host::lending_kernel()?;
    let ways = Ways::of(&graph, &host, domain, Arc::new(pool));
    let mut carriers = ways.meet(meetings, kernel.pool())?;
    let built = build_domain(&graph, &host, domain, &kernel, &mut |neighbour| {
        // Those above that have not been started with it meet it once it has started.
        let at = carriers.iter().position(|(other, _)| *other == neighbour);
        Ok(at.map_or_else(nowhere, |at| carriers.swap_remove(at).1))
    })?;
    let _doors = xk_compose::open_doors(&graph, &host, domain, &kernel, &built.protocols)?;
    let idle = match hello.idle.as_str() {
        "spin" => Idle::Spin,
        "sleep" => Idle::Sleep,
        _ => Idle::default(),
    };
    let runner = Runner::new(Rc::clone(&kernel), idle)
        .map_err(|error| Failure::new(format!("cannot make a poll loop: {error}")))?;
    let runner = Rc::new(runner);
    // Those below it have started when it is told to start.
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone().map_err(broken)?);
    reader.by_ref().take(START_OCTETS_MAX).read_line(&mut line).map_err(broken)?;
    if line.is_empty() {
        return Ok(());
    }
    xk_compose::started(&graph, &host, runner.start_those(|protocol| !begins(protocol)))?;
    give_up_rights(shared)?;
    let lost = |error| Failure::new(format!("cannot be inspected: {error}"));
    let (jobs, is_over) = (Jobs::new().map_err(lost)?, Arc::new(AtomicBool::new(false)));
    let clients = jobs.clients();
    clients.take(reader, Arc::clone(&is_over)).map_err(lost)?;
    receive(visits, clients, built.ports.clone(), ways, &runner).map_err(lost)?;
    let about = json!({"domain": setup.name, "pid": std::process::id()});
    let begun = Rc::<Begun>::default();
    let desk = Desk::new(jobs, about, host::lowers(&host), &runner).of_domain(&begun);
    desk.stand_at(&runner).map_err(lost)?;
    Verbosity::new(hello.verbose).look_on(&runner).map_err(lost)?;
    let devices = host::devices(&kernel, &host);
    let answer = json!({"ok": {
        "lines": devices.lines,
        "address": devices.address.map(|address| address.to_string()),
        "outside": devices.is_outside,
    }});
    let mut answers = stream;
    answers.write_all(format!("{answer}\n").as_bytes()).map_err(broken)?;
    let turn = |until: Rc<dyn Fn(&Kernel) -> bool>| {
        let ended = runner.run(None, until);
        ended.map_err(|error| Failure::new(format!("the poll loop ended: {error}")))
    };
    let (asked, over) = (Rc::clone(&begun), Arc::clone(&is_over));
    turn(Rc::new(move |_| asked.is_asked() || over.load(Ordering::Acquire)))?;
    if begun.is_asked() {
        xk_compose::started(&graph, &host, runner.start_those(begins))?;
        let unfinished = host::ends_with(&kernel, &host);
        begun.answer(&json!({"ok": {"unfinished": !unfinished.is_empty()}}));
    }
    let ended = turn(Rc::new(move |_| is_over.load(Ordering::Acquire)));
    drop(runner);
    kernel.stop();
    drop(built);
    ended
}

/// Tells a protocol that does something by itself by its parameter `start`. Such a protocol starts
/// once all domains of its host have: any of them may serve what it calls. So does a place where
/// programs attach.
fn begins(protocol: &ProtocolRef) -> bool {
    let kind = protocol.head().kind();
    let has_start = |entry: &Entry| entry.parameters.iter().any(|p| p.name == "start");
    kind == "door" || xk_catalog::find(kind).is_some_and(has_start)
}

/// Carrier to a neighbour that is not there.
fn nowhere() -> Box<dyn Carrier> {
    Box::new(Queue::ended())
}

/// Takes what comes over `visits`: clients that look in, and neighbours that have been started
/// again, or have not been when this domain was.
fn receive(
    visits: OwnedFd,
    clients: Clients,
    ports: Vec<(usize, Rc<Port>)>,
    ways: Ways,
    runner: &Runner,
) -> io::Result<()> {
    let (back, returned) = channel::<(usize, NeighbourCarrier)>();
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let (rung, rings, arrivals) = (Arc::clone(&bell), bell.try_clone()?, visits.try_clone()?);
    let take = move || -> io::Result<()> {
        // A shepherd that has waited since it was told may find that another has taken it.
        let (tag, file) = crate::files::take_now(&visits)?;
        if tag == super::CLIENT {
            return clients.take(BufReader::new(UnixStream::from(file)), Arc::default());
        }
        // The loop does not wait for it.
        let (back, rung, neighbour) = (back.clone(), Arc::clone(&rung), usize::from(tag));
        let ways = ways.clone();
        std::thread::Builder::new().name("meet".into()).spawn(move || {
            if let Ok(way) = ways.to(neighbour, Meeting::Socket(file))
                && back.send((neighbour, way)).is_ok()
            {
                let _ = rustix::io::write(&rung, &1u64.to_ne_bytes());
            }
        })?;
        Ok(())
    };
    let visited = move |_: &Kernel| {
        // A sender that has gone is seen by its other socket.
        let _ = take();
    };
    runner.watch(arrivals, Rc::new(visited))?;
    let renew = move |cx: &Kernel| {
        let _ = rustix::io::read(&bell, &mut [0; 8]);
        while let Ok((neighbour, way)) = returned.try_recv() {
            if let Some((_, port)) = ports.iter().find(|(other, _)| *other == neighbour)
                && let Ok(carrier) = way.carrier(cx.pool())
            {
                port.reconnect(cx, carrier);
            }
        }
    };
    runner.watch(rings, Rc::new(renew))?;
    Ok(())
}

/// Runs this thread on one processor.
fn pin(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Takes this thread's rights away: its devices are open. The last thread of the process takes the
/// user's as well.
fn give_up_rights(shared: &Shared) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot leave rights: {error}"));
    if shared.starting.fetch_sub(1, Ordering::AcqRel) == 1 {
        shared.user.give_up_root()?;
        super::die_with_parent().map_err(failed)?;
    }
    user::shed().map_err(failed)?;
    shared.confined.enter().map_err(failed)
}

/// Returns `answer`, if it is no error.
pub(super) fn told(answer: &Value) -> Result<&Value, Failure> {
    if let Some(text) = answer["mistakes"].as_str() {
        crate::output::error(text);
        return Err(Failure::Said);
    }
    match answer["error"].as_str() {
        Some(error) => Err(Failure::new(error)),
        None => Ok(&answer["ok"]),
    }
}
