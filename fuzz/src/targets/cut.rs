//! Frames across a cut, from a side that sends arbitrary ones: to a port of both halves, and to the
//! door where programs attach.

use crate::harness::{Rig, Script, build, integers, number};
use crate::novelty;
use crate::stranger::{End, Pipe, Stranger};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_attach::{Attached, Door, Grant, Visitors};
use xk_core::graph::Params;
use xk_core::object::ProtocolId;
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_domains::{Carrier, Holdings, Known, Port, add_port, lower_proxy, upper_proxy};
use xk_kit::control::{MaxPacket, MyHost, PeerHost};
use xk_shm::Peer;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Ports and numbers that programs are granted.
const PORTS: core::ops::RangeInclusive<u16> = 5000..=5999;
const NUMBERS: core::ops::RangeInclusive<u32> = 0x88b5..=0x88b6;
/// Number of protocols of the other side that want to receive.
const UPPERS: u32 = 64;
/// Number of questions of this side to the other one.
const ASKS_MAX: usize = 16;

/// A host of a link and of UDP, on each of which the other side may do what it is granted.
struct World {
    rig: Rig,
    wire: Bottom,
    eth: ProtocolRef,
}

fn known() -> Known {
    Known::of(&[&xk_udp::ENTRY, &xk_eth::ENTRY])
}

/// Between two ports.
fn ends(own: u16, peer: u16) -> Participants {
    let end = |host: Ipv4Addr, port| Participant::of(Part::host(host)).with(Part::port(port));
    Participants::pair(end(OWN, own), end(PEER, peer))
}

/// A datagram of the peer to this port.
fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let header = [9, port, len, 0].map(u16::to_be_bytes);
    [header.as_flattened(), payload].concat()
}

impl World {
    fn new() -> Self {
        let params = integers(&[("sessions_max", 16)]);
        let rig = Rig::new(Lower::host(OWN, 17), 64, &xk_udp::ENTRY, &params);
        let wire = Bottom::add(&rig.cx, "wire", Lower::wire(STATION));
        let lowers = [wire.protocol().clone()];
        let eth = build(&rig.cx, &xk_eth::ENTRY, &lowers, &Params::default());
        Self { rig, wire, eth }
    }

    /// A datagram for this port, and a frame of this type, arrive.
    fn arrive(&self, what: u8, octets: &[u8]) {
        let port = PORTS.start() + u16::from(what & 7);
        self.rig.arrive(Some(Part::host(PEER)), &datagram(port, octets));
        let frame = [&STATION[..], &[2, 0, 0, 0, 0, 2, 0x88, 0xb5 + (what & 1)], octets].concat();
        if let Some(frame) = self.rig.message(&frame, usize::MAX) {
            self.wire.inject(&self.rig.cx, None, frame);
        }
    }

    /// Notes the drops of all protocols, as they tell one course of events from another.
    fn note(&self, all: &[&ProtocolRef]) {
        for protocol in all.iter().chain(&[&self.rig.layer, &self.eth]) {
            for (why, count) in protocol.head().drops().list() {
                novelty::note(&(
                    protocol.head().kind(),
                    why.name,
                    u64::BITS - count.leading_zeros(),
                ));
            }
        }
    }
}

/// Lets `data` say, step by step, what the other side sends and what happens on this one: messages
/// arrive, a protocol here opens, enables, pushes, calls and asks over the cut, time passes. Once
/// the other side is gone nothing of it is left.
pub(crate) fn frames(data: &[u8]) {
    let world = World::new();
    let cx = &world.rig.cx;
    let script = Rc::new(Script::new(data));
    let stranger = Stranger::new(&script);
    let port = Port::new(Box::new(End(Rc::clone(&stranger))), known());
    let there = lower_proxy(cx, &port, world.rig.layer.id(), "udp", "there");
    let top = Top::add(cx, "top");
    top.forget(true);
    top.echo(true);
    port.grant(&world.rig.layer);
    port.grant(&world.eth);
    port.admit(|cx: &Kernel, port: &Rc<Port>, of: ProtocolId| {
        (of.0 < UPPERS).then(|| upper_proxy(cx, port, of, "top", "guest"))
    });
    let wire = add_port(cx, &port, "port");
    for of in (0..UPPERS).map(ProtocolId) {
        cx.numbers_mut().override_pair(of, world.eth.id(), 0x88b5 + of.0 % 2);
    }
    world.rig.start();
    let enables = [&world.rig.bottom, &world.wire].map(Bottom::enables);
    let mut held: Vec<SessionRef> = Vec::new();
    let mut asks = 0;
    while let Some((kind, argument)) = script.step() {
        let first = argument.first().copied().unwrap_or(0);
        let nth = || held.get(usize::from(first) % held.len().max(1)).cloned();
        asks += usize::from(matches!(kind & 15, 9..=12));
        match kind & 15 {
            9..=12 if asks > ASKS_MAX => {}
            8 => world.arrive(kind >> 4, argument),
            9 => held.extend(top.open(cx, &there, ends(PORTS.start() + u16::from(first), 9))),
            10 => {
                let local = Participants::local(Part::port(PORTS.start() + u16::from(first)));
                if let Ok(enable) = top.enable(cx, &there, local)
                    && kind & 16 != 0
                {
                    there.open_disable(cx, enable);
                }
            }
            11 => {
                if let (Some(session), Some(message)) =
                    (nth(), world.rig.message(argument, usize::MAX))
                {
                    let _ = match kind & 16 {
                        0 => session.push(cx, message).is_ok(),
                        _ => session.call(cx, message).is_ok(),
                    };
                }
            }
            12 => {
                let _ = there.ask(cx, MyHost::default());
                if let Some(session) = nth() {
                    let _ = session.ask(cx, MaxPacket::default());
                    let _ = session.ask(cx, PeerHost::default());
                }
            }
            13 => drop(cx.advance(Duration::from_millis(10) * u32::from(first))),
            14 if !held.is_empty() => {
                let session = held.swap_remove(usize::from(first) % held.len());
                session.close(cx);
            }
            15 => {
                stranger.take(first);
                port.flush(cx);
            }
            _ => stranger.put(kind, argument),
        }
        port.poll(cx, 64);
        drop((world.rig.bottom.take_sent(), world.wire.take_sent()));
    }
    let holds = port.holdings();
    novelty::note(&(holds.exports, holds.imports, holds.enables, holds.messages.min(4)));
    stranger.go();
    while !port.is_lost() {
        port.poll(cx, 64);
    }
    assert_eq!(port.holdings(), Holdings::default(), "of a side that is gone");
    assert_eq!([&world.rig.bottom, &world.wire].map(Bottom::enables), enables, "enables are left");
    held.drain(..).for_each(|session| session.close(cx));
    for bottom in [&world.rig.bottom, &world.wire] {
        assert_eq!(bottom.held().len(), 0, "sessions are left");
    }
    world.note(&[&wire, &there]);
    drop((wire, there, top, port));
    world.rig.stop();
}

/// Programs that come when the script says so.
struct Coming {
    script: Rc<Script>,
    come: Rc<Cell<u8>>,
    here: Rc<RefCell<Vec<Rc<Stranger>>>>,
}

impl Visitors for Coming {
    fn next(&mut self, room: bool) -> Option<(Box<dyn Carrier>, Peer)> {
        let left = self.come.get().checked_sub(1).filter(|_| room)?;
        self.come.set(left);
        let stranger = Stranger::new(&self.script);
        self.here.borrow_mut().push(Rc::clone(&stranger));
        Some((Box::new(End(stranger)), Peer { uid: 1000, gid: 1000, pid: 77 }))
    }
}

/// Grants for the programs.
fn grants(world: &World) -> Vec<Grant> {
    vec![
        Grant { ports: Some(PORTS), ..Grant::new(&world.rig.layer) },
        Grant { types: Some(NUMBERS), ..Grant::new(&world.eth) },
    ]
}

/// Nothing leaves the host under a port or number that programs are not granted.
fn is_granted(world: &World) {
    for sent in world.rig.bottom.take_sent() {
        let datagram = octets(&sent.message);
        let port = u16::from_be_bytes([datagram[0], datagram[1]]);
        assert!(PORTS.contains(&port), "a datagram from port {port}");
    }
    for sent in world.wire.take_sent() {
        let frame = octets(&sent.message);
        let number = u32::from(u16::from_be_bytes([frame[12], frame[13]]));
        assert_eq!(frame[6..12], STATION, "a frame of another station");
        assert!(NUMBERS.contains(&number), "a frame of type {number:04x}");
    }
}

/// Lets `data` say, step by step, which programs come to a door, what they send, and what happens
/// meanwhile. Nothing leaves that they are not granted, and nothing of them is left.
pub(crate) fn attach(data: &[u8]) {
    let world = World::new();
    let cx = &world.rig.cx;
    let script = Rc::new(Script::new(data));
    let (come, here) = (Rc::new(Cell::new(1)), Rc::<RefCell<Vec<Rc<Stranger>>>>::default());
    let coming =
        Coming { script: Rc::clone(&script), come: Rc::clone(&come), here: Rc::clone(&here) };
    let door = Door::add(cx, "door", Box::new(coming), grants(&world), known);
    world.rig.start();
    let (protocols, enables) =
        (cx.protocols().len(), [&world.rig.bottom, &world.wire].map(Bottom::enables));
    let poll = || {
        let wire = door.wire().expect("a door is looked after");
        wire.poll(cx, &door, 64);
        wire.flush(cx, &door);
        is_granted(&world);
    };
    poll();
    while let Some((kind, argument)) = script.step() {
        let first = argument.first().copied().unwrap_or(0);
        let program = |kind: u8| {
            let here = here.borrow();
            here.len().checked_sub(1 + usize::from(kind >> 6)).and_then(|at| here.get(at).cloned())
        };
        match kind & 15 {
            8 => world.arrive(kind >> 4, argument),
            9 => come.set(come.get().saturating_add(1)),
            10 => program(kind).into_iter().for_each(|program| program.go()),
            11..=13 => drop(cx.advance(Duration::from_millis(10) * u32::from(first))),
            14 | 15 => program(kind).into_iter().for_each(|program| program.take(first)),
            _ => program(kind).into_iter().for_each(|program| program.put(kind, argument)),
        }
        poll();
    }
    novelty::note(&(cx.protocols().len() - protocols));
    come.set(0);
    here.borrow().iter().for_each(|program| program.go());
    // Frames that wait for buffers, and a look after the last have gone.
    for _ in 0..4 {
        poll();
        cx.advance(Duration::from_secs(10));
    }
    assert_eq!(cx.protocols().len(), protocols, "of programs that are gone");
    assert_eq!([&world.rig.bottom, &world.wire].map(Bottom::enables), enables, "enables are left");
    for bottom in [&world.rig.bottom, &world.wire] {
        assert_eq!(bottom.held().len(), 0, "sessions are left");
    }
    world.note(&[&door]);
    drop(door);
    world.rig.stop();
}

/// Frames as steps of a script.
fn steps(frames: &[Vec<u8>]) -> Vec<u8> {
    let short = frames.iter().filter(|frame| frame.len() < 256);
    short.flat_map(|frame| [&[0, frame.len() as u8][..], frame].concat()).collect()
}

/// Scripts for [`frames`] to begin with, of what two sound sides send: the one above, and the one
/// below.
pub(crate) fn frame_seeds() -> [(&'static str, Vec<u8>); 2] {
    let (below, above) = (World::new(), TestKernel::new(1));
    let [pipe_below, pipe_above] = Pipe::pair();
    let port = Port::new(Box::new(pipe_below.clone()), known());
    port.grant(&below.rig.layer);
    port.grant(&below.eth);
    let there = Port::new(Box::new(pipe_above.clone()), known());
    // The numbers are those that `frames` gives.
    let nothing = ["bottom", "udp", "wire", "eth"];
    let nothing = nothing.map(|name| Top::add(&above, name));
    let udp = lower_proxy(&above, &there, below.rig.layer.id(), "udp", "there");
    let top = Top::add(&above, "top");
    top.echo(true);
    port.admit(|cx: &Kernel, port: &Rc<Port>, of: ProtocolId| {
        Some(upper_proxy(cx, port, of, "top", "guest"))
    });
    let below = Rc::new(below);
    let turn = (Rc::clone(&port), Rc::clone(&below));
    *pipe_above.turn.borrow_mut() = Some(Box::new(move || {
        turn.0.poll(&turn.1.rig.cx, 64);
    }));
    let both = || {
        for _ in 0..4 {
            port.poll(&below.rig.cx, 64);
            there.poll(&above, 64);
            there.flush(&above);
            port.flush(&below.rig.cx);
        }
    };
    let session = top.open(&above, &udp, ends(5001, 9)).expect("it opens");
    let local = Participants::local(Part::port(5002));
    let enable = top.enable(&above, &udp, local).expect("it is free");
    let _ = session.push(&above, above.message(b"down"));
    let _ = session.ask(&above, PeerHost::default());
    let _ = udp.ask(&above, MyHost::default());
    both();
    for what in [1, 2, 2] {
        below.arrive(what, b"up");
        both();
    }
    session.close(&above);
    udp.open_disable(&above, enable);
    both();
    let (down, up) = (pipe_above.sent.take(), pipe_below.sent.take());
    // Behind the end messages still arrive.
    let mut from_above = steps(&down);
    from_above.extend([0x18, 2, b'u', b'p', 0x28, 2, b'u', b'p', 15, 1, 9]);
    let asks = [[9, 1, 1], [10, 1, 2], [11, 1, 0], [12, 1, 0]].concat();
    let from_below = [asks, steps(&up), vec![14, 1, 0]].concat();
    pipe_above.close();
    drop(nothing);
    [("above", from_above), ("below", from_below)]
}

/// A script for [`attach`] to begin with, of what a sound program sends.
pub(crate) fn attach_seed() -> Vec<u8> {
    let world = World::new();
    let [pipe, program] = Pipe::pair();
    let visitor = RefCell::new(Some(pipe));
    struct One(RefCell<Option<Pipe>>);
    impl Visitors for One {
        fn next(&mut self, _: bool) -> Option<(Box<dyn Carrier>, Peer)> {
            let pipe = self.0.take()?;
            Some((Box::new(pipe), Peer { uid: 1000, gid: 1000, pid: 77 }))
        }
    }
    let door = Door::add(&world.rig.cx, "door", Box::new(One(visitor)), grants(&world), known);
    let kernel = TestKernel::new(1);
    number(&kernel, "own", "eth", 0x88b5);
    let world = Rc::new(world);
    let (at, of) = (door.clone(), Rc::clone(&world));
    *program.turn.borrow_mut() = Some(Box::new(move || {
        let wire = at.wire().expect("a door is looked after");
        wire.poll(&of.rig.cx, &at, 64);
        wire.flush(&of.rig.cx, &at);
    }));
    let here = Attached::through(Box::new(program.clone()), kernel.share(), &[&xk_udp::ENTRY]);
    let here = here.expect("the door answers");
    let own = Top::add_kind(here.kernel(), "own", "own");
    here.join().expect("it may");
    let udp = here.find("udp").expect("it is granted").clone();
    let session = own.open(here.kernel(), &udp, ends(5001, 9)).expect("it is granted");
    let local = Participants::local(Part::port(5002));
    let _ = own.enable(here.kernel(), &udp, local);
    if let Some(eth) = here.find("eth") {
        let _ = own.enable(here.kernel(), eth, Participants::local(Part::Any));
    }
    let _ = session.push(here.kernel(), kernel.message(b"down"));
    let _ = session.ask(here.kernel(), PeerHost::default());
    session.close(here.kernel());
    let mut script = steps(&program.sent.take());
    script.extend([0x18, 2, b'u', b'p', 9, 0, 13, 1, 255]);
    script
}
