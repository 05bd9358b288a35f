//! Worlds of hosts with the smallest graph there is: a station on a wire.

mod links;
mod world;

use super::*;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;
use xk_core::control::Report;
use xk_core::graph::{BuildError, Params, Value};
use xk_core::message::PoolConfig;
use xk_core::object::{OpenError, Popped, PushError};
use xk_core::shepherd::{Limits, NoSwitch, Semaphore, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Pool, Protocol, ProtocolRef, SessionRef, Time,
    Upper,
};
use xk_kit::control::{MaxPacket, MyEther, WireRoom};

/// Everybody.
const ALL: u8 = 0xff;

/// Frames that a station has seen: when, and the first 16 octets.
type Log = Rc<RefCell<Vec<(u64, Vec<u8>)>>>;

/// A protocol that opens its wire, notes what comes, and answers each frame with `answers` hops
/// left.
struct Station {
    lower: ProtocolRef,
    session: RefCell<Option<SessionRef>>,
    log: Log,
    answers: bool,
    period: Duration,
    left: Cell<u32>,
    number: u8,
    /// The semaphore at which a frame waits until a timer signals, if it does.
    blocks: Option<Rc<Semaphore>>,
    /// Number of frames after which it has finished; without one it cannot be asked.
    wants: Option<usize>,
}

/// An Ethernet frame between stations known by a number, with 46 octets of payload.
fn frame(cx: &Kernel, to: u8, from: u8, first: u8) -> Message {
    let mut octets = vec![0; 60];
    let group = if to == ALL { 0xff } else { 2 };
    octets[..6].copy_from_slice(&[group, 0, 0, 0, 0, to]);
    octets[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    octets[14] = first;
    cx.pool().copy_from(0, &octets).unwrap()
}

impl Station {
    fn send(&self, cx: &Kernel, message: Message) -> Result<(), PushError> {
        let session = self.session.borrow().clone().unwrap();
        session.push(cx, message)
    }
}

impl Protocol for Station {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let session = self.lower.open(cx, Upper::new(this), Participants::default())?;
        *self.session.borrow_mut() = Some(session);
        if self.left.get() > 0 {
            cx.schedule_protocol(this, self.period, 0)?;
        }
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        let octets: Vec<u8> = message.octets().take(16).collect();
        self.log.borrow_mut().push((cx.now().as_ns(), octets.clone()));
        if let Some(semaphore) = &self.blocks {
            let waited = cx.wait(semaphore, Some(Duration::from_millis(5)));
            self.log.borrow_mut().push((cx.now().as_ns(), format!("{waited:?}").into_bytes()));
        }
        if self.answers && octets[14] > 0 {
            let back = frame(cx, octets[11], octets[5], octets[14] - 1);
            self.send(cx, back).unwrap();
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.left.set(self.left.get() - 1);
        self.send(cx, frame(cx, ALL, self.number, 0)).unwrap();
        if self.left.get() > 0 {
            cx.schedule_protocol(this, self.period, 0).unwrap();
        }
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(wanted) = self.wants else {
            return Answer::Unknown;
        };
        ask.answer::<Report>(|report| report.finished = self.log.borrow().len() >= wanted)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.session.take();
    }
}

/// Behaviour of a station.
#[derive(Clone, Default)]
struct Manner {
    answers: bool,
    broadcasts: u32,
    period: Duration,
    blocks: Option<Rc<Semaphore>>,
    coroutines: bool,
    wants: Option<usize>,
}

struct Net {
    world: World,
    logs: Vec<Log>,
    stations: Vec<ProtocolRef>,
}

fn wire(cx: &Kernel, link: &str) -> Result<ProtocolRef, BuildError> {
    let mut params = Params::default();
    params.set("link", Value::Text(link.into()));
    ENTRY.add(cx, "sim", &[], &params)
}

impl Net {
    fn new(seed: u64, links: Vec<LinkConfig>) -> Self {
        let world = World::new(seed, Pool::new(&PoolConfig::default()).unwrap());
        for link in links {
            world.network().add_link(link).unwrap();
        }
        Self { world, logs: Vec::new(), stations: Vec::new() }
    }

    fn add(&mut self, link: &str, manner: &Manner) -> HostId {
        let name = format!("h{}", self.logs.len() + 1);
        let number = (self.logs.len() as u8).wrapping_add(1);
        let switch: Box<dyn xk_core::shepherd::Switch> = if manner.coroutines {
            Box::new(xk_run::switch::CoroutineSwitch::new())
        } else {
            Box::new(NoSwitch)
        };
        let limits = Limits { shepherds_max: 8, ..Limits::default() };
        let config = self.world.host_config(&name, Shepherds::new(switch, limits), 1000);
        let host = self.world.add_host(&name, Kernel::new(config));
        let log = Log::default();
        let kernel = Rc::clone(self.world.kernel(host).unwrap());
        let station = Station {
            lower: wire(&kernel, link).unwrap(),
            session: RefCell::default(),
            log: Rc::clone(&log),
            answers: manner.answers,
            period: manner.period,
            left: Cell::new(manner.broadcasts),
            number,
            blocks: manner.blocks.clone(),
            wants: manner.wants,
        };
        self.stations.push(kernel.add_protocol("station", "station", station));
        self.logs.push(log);
        host
    }

    /// Hosts as many as asked for, all alike, started.
    fn of(seed: u64, link: LinkConfig, hosts: usize, manner: &Manner) -> Self {
        let name = link.name.clone();
        let mut net = Self::new(seed, vec![link]);
        for _ in 0..hosts {
            net.add(&name, manner);
        }
        net.world.start().unwrap();
        net
    }

    /// Sends a frame from one host now.
    fn send(
        &mut self,
        host: u32,
        message: impl FnOnce(&Kernel) -> Message,
    ) -> Result<(), PushError> {
        let sent = self.world.enter(HostId(host), |cx| {
            let wire = cx.find_protocol("sim").unwrap();
            let station = cx.find_protocol("station").unwrap();
            let session = wire.open(cx, Upper::new(&station), Participants::default()).unwrap();
            let result = session.push(cx, message(cx));
            session.close(cx);
            result
        });
        sent.unwrap()
    }

    fn times(&self, host: usize) -> Vec<u64> {
        self.logs[host].borrow().iter().map(|(at, _)| *at).collect()
    }

    fn stats(&self) -> LinkStats {
        self.world.network().links()[0].1
    }
}

fn link(kind: LinkKind) -> LinkConfig {
    LinkConfig::new("lan", kind)
}
