//! UDP there and back over a host that is cut below the application, beside the same host uncut and
//! the bare exchange: both threads spinning, both sleeping on one core, both sleeping on two.

use super::operations::BARE;
use crate::case::{Case, Goal, Sample, Trouble};
use crate::cores::{cores, place};
use crate::net::testbed::Mode;
use crate::record::Record;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xk_catalog::PROTOCOLS;
use xk_compose::{CheckedGraph, Lies, build_part, check_text};
use xk_core::graph::Catalog;
use xk_core::object::{OpenError, Popped, ProtocolId};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef,
    Upper,
};
use xk_domains::ring::{Ring, geometry, pair};
use xk_domains::{Known, Port, add_port, lower_proxy, upper_proxy};
use xk_run::{Idle, Runner, real_kernel};
use xk_shm::Link;

const GRAPH: &str = r#"
host alone {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    udp ip
    echo udp port=7
}
"#;
/// The ports of both ends; `echo` answers none below 1024.
const CLIENT_PORT: u16 = 5000;
const ECHO_PORT: u16 = 7;
/// Octets of each kernel's pool.
const POOL_OCTETS: usize = 1 << 22;
const OWN_FIRST: u32 = 1000;
/// Octets of a datagram.
const OCTETS: usize = 8;
/// Length of a round.
const TIME: Duration = Duration::from_millis(300);
/// The host when it is not cut.
const UNCUT: &str = "one kernel";

/// A row of each way in which both threads wait for each other.
const ROWS: [(&str, Mode); 3] = [
    (SPINNING, Mode::Spinning),
    ("sleeping on one core", Mode::OneCore),
    ("sleeping on two cores", Mode::TwoCores),
];
const SPINNING: &str = "spinning";

/// The cores of the side above and of the one below.
fn cores_of(mode: Mode) -> [Option<usize>; 2] {
    let (cores, first) = (cores(), cores().first().copied());
    match mode {
        Mode::Unpinned => [None; 2],
        Mode::OneCore => [first; 2],
        Mode::Spinning | Mode::TwoCores => [first, cores.get(1).copied().or(first)],
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (row, mode) in ROWS {
        let case = Case::measured(row, move |effort| alone(mode, effort, cut)).beside(UNCUT);
        let case = case.beside(BARE);
        list.push(match mode {
            Mode::Spinning | Mode::Unpinned => case,
            Mode::OneCore => case.goal(Goal::AtMostTimes(1.2)),
            Mode::TwoCores => case.goal(Goal::AtMostTimes(2.0)),
        });
        list.push(Case::measured(row, move |effort| alone(mode, effort, uncut)).of(UNCUT));
        list.push(Case::measured(row, move |effort| alone(mode, effort, bare)).of(BARE));
    }
    list
}

/// Time of the cut beyond the bare exchange and the uncut host.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let of = |system| records.iter().find(|r| r.row == SPINNING && r.system == system);
    let (Some(cut), Some(uncut), Some(bare)) = (of("xk"), of(UNCUT), of(BARE)) else {
        return Vec::new();
    };
    let over = cut.beyond("spinning, over bare and uncut", &[uncut, bare], 1.0);
    vec![Record { goal: Some(Goal::AtMost(300.0)), ..over }]
}

/// Measures on a thread of its own, which is put on a core.
fn alone(
    mode: Mode,
    effort: f64,
    measure: fn(Mode, Duration) -> Result<Sample, Trouble>,
) -> Result<Sample, Trouble> {
    let thread = std::thread::spawn(move || {
        let _ = place(cores_of(mode)[0]);
        measure(mode, TIME.mul_f64(effort))
    });
    thread.join().unwrap_or_else(|_| Err(Trouble::Failed("it panicked".into())))
}

fn sample(begun: Instant, trips: u64) -> Result<Sample, Trouble> {
    if trips == 0 {
        return Err(Trouble::Failed("nothing came back".into()));
    }
    Ok((begun.elapsed().as_nanos() as f64 / trips as f64).into())
}

fn bare(mode: Mode, time: Duration) -> Result<Sample, Trouble> {
    let (mut link, mut other) = Link::pair(&geometry())?;
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let sleeps = mode != Mode::Spinning;
    let limit = Some(Duration::from_millis(100));
    let echo = std::thread::spawn(move || {
        let _ = place(cores_of(mode)[1]);
        let mut frame = [0; 2048];
        while !ended.load(Ordering::Relaxed) {
            match other.receive(&mut frame) {
                Ok(Some(octets)) => {
                    let _ = other.send(&frame[..octets]);
                    other.flush();
                }
                Ok(None) if sleeps => drop(other.wait(limit)),
                _ => std::hint::spin_loop(),
            }
        }
    });
    let (mut frame, begun, mut trips) = ([0; 2048], Instant::now(), 0_u64);
    while !trips.is_multiple_of(64) || begun.elapsed() < time {
        let _ = link.send(&frame[..OCTETS]);
        link.flush();
        while !matches!(link.receive(&mut frame), Ok(Some(_))) {
            if sleeps {
                let _ = link.wait(limit);
            }
        }
        trips += 1;
    }
    let found = sample(begun, trips);
    stop.store(true, Ordering::Relaxed);
    let _ = echo.join();
    found
}

fn graph() -> Result<CheckedGraph, Trouble> {
    let catalog = Catalog::new(PROTOCOLS).map_err(|e| Trouble::Failed(format!("{e:?}")))?;
    check_text(GRAPH, "domain", &catalog).map_err(|e| Trouble::Failed(format!("{e:?}")))
}

/// The host of the graph in `kernel`; what stands for `udp` if it lies on the other side of `port`.
fn build(
    kernel: &Rc<Kernel>,
    port: Option<&Rc<Port>>,
    is_above: bool,
) -> Result<ProtocolRef, Trouble> {
    let graph = graph()?;
    let hosts = graph.graph().expand();
    let host = hosts.first().ok_or_else(|| Trouble::Failed("no host".into()))?;
    let own_first = OWN_FIRST * if is_above { 2 } else { 1 };
    let (mut number, mut udp) = (0, None);
    let built = build_part(&graph, host, kernel, own_first, &mut |site| {
        let id = ProtocolId(number);
        number += 1;
        match port.filter(|_| is_above) {
            None => Lies::Here,
            Some(port) if *site.node.name == *"udp" => {
                udp = Some(lower_proxy(kernel, port, id, "udp", "udp"));
                Lies::Elsewhere(udp.clone())
            }
            Some(_) => Lies::Elsewhere(None),
        }
    });
    let built = built.map_err(|mistakes| Trouble::Failed(format!("{mistakes:?}")))?;
    let here = || built.into_iter().flatten().find(|built| *built.name() == *"udp");
    udp.or_else(here).ok_or_else(|| Trouble::Failed("no udp".into()))
}

fn cut(mode: Mode, time: Duration) -> Result<Sample, Trouble> {
    let (above, below) = pair()?;
    let below = std::thread::spawn(move || -> Result<(), Trouble> {
        let _ = place(cores_of(mode)[1]);
        let kernel = kernel()?;
        let port = Port::new(Box::new(below), Known::of(PROTOCOLS));
        port.grant(&build(&kernel, Some(&port), false)?);
        port.admit(|cx: &Kernel, port: &Rc<Port>, of| {
            Some(upper_proxy(cx, port, of, "user", "user"))
        });
        add_port(&kernel, &port, "port");
        let runner = start(kernel, mode)?;
        Ok(runner.run(None, Rc::new(move |_| port.is_lost()))?)
    });
    let found = measure(mode, time, Some(above));
    let ended = below.join().unwrap_or_else(|_| Err(Trouble::Failed("it panicked".into())));
    found.and_then(|found| ended.map(|()| found))
}

fn uncut(mode: Mode, time: Duration) -> Result<Sample, Trouble> {
    measure(mode, time, None)
}

fn kernel() -> Result<Rc<Kernel>, Trouble> {
    Ok(Rc::new(real_kernel(POOL_OCTETS)?))
}

fn start(kernel: Rc<Kernel>, mode: Mode) -> Result<Runner, Trouble> {
    let idle = if mode == Mode::Spinning { Idle::Spin } else { Idle::Sleep };
    let runner = Runner::new(kernel, idle)?;
    runner.start().map_err(|(at, why)| Trouble::Failed(format!("{}: {why}", at.name())))?;
    Ok(runner)
}

/// Runs the side of the application, or all of it.
fn measure(mode: Mode, time: Duration, ring: Option<Ring>) -> Result<Sample, Trouble> {
    let kernel = kernel()?;
    let port = ring.map(|ring| Port::new(Box::new(ring), Known::of(PROTOCOLS)));
    let udp = build(&kernel, port.as_ref(), port.is_some())?;
    if let Some(port) = &port {
        add_port(&kernel, port, "port");
    }
    let user = Rc::new(User { udp, trips: Cell::new(0), session: RefCell::default() });
    kernel.add_protocol("user", "user", Application(Rc::clone(&user)));
    let runner = start(kernel, mode)?;
    let (warm, trips) = (Duration::from_millis(20), |user: &User| user.trips.get());
    let run = |limit| runner.run(Some(limit), Rc::new(|_| false));
    run(warm)?;
    let (begun, before) = (Instant::now(), trips(&user));
    run(time)?;
    let found = sample(begun, trips(&user) - before);
    if let Some(port) = &port {
        port.stop();
    }
    found
}

/// Sends the next datagram from where the last one arrives.
struct User {
    udp: ProtocolRef,
    trips: Cell<u64>,
    session: RefCell<Option<SessionRef>>,
}

struct Application(Rc<User>);

impl Protocol for Application {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let host = Participant::of(Part::Host(HostAddr::from([10, 0, 0, 1])));
        let ends = Participants::pair(Part::port(CLIENT_PORT), host.with(Part::port(ECHO_PORT)));
        let session = self.0.udp.open(cx, Upper::new(this), ends)?;
        let first = cx.pool().alloc(128, OCTETS).map_err(|_| OpenError::NoBuffers)?;
        let _ = session.push(cx, first);
        *self.0.session.borrow_mut() = Some(session);
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        self.0.trips.set(self.0.trips.get() + 1);
        let _ = lower.push(cx, message);
        Ok(())
    }
}
