//! A graph, what its hosts say to each other, and what one of them says to a stranger that repeats
//! it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::{Kernel, Participants, Protocol, ProtocolRef, Time, Upper};
use xk_kit::control::MyEther;
use xk_sim::{HostId, Sighting, Tap, World};
use xk_testkit::kernel::{HEADROOM, octets};

/// Time for which clients are listened to.
const LISTEN: Duration = Duration::from_secs(1);
/// Time to wait for answers: longer than TCP repeats a SYN.
const ANSWERS_TIME: Duration = Duration::from_secs(300);

/// The octets of a frame.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Frame(pub(crate) Vec<u8>);

impl Frame {
    fn mac(&self, at: usize) -> [u8; 6] {
        self.0[at..at + 6].try_into().unwrap()
    }

    pub(crate) fn to(&self) -> [u8; 6] {
        self.mac(0)
    }

    pub(crate) fn from(&self) -> [u8; 6] {
        self.mac(6)
    }

    fn ether_type(&self) -> u16 {
        self.get(12)
    }

    pub(crate) fn is_arp(&self) -> bool {
        self.ether_type() == 0x0806
    }

    /// Octets that it carries, without padding as far as IP tells its length.
    pub(crate) fn octets(&self) -> usize {
        match self.ether_type() {
            0x0800 => usize::from(self.get(16)),
            _ => self.0.len() - 14,
        }
    }
}

const ETHER_OCTETS: usize = 14;
const IP_OCTETS: usize = 20;
const UDP_OCTETS: usize = 8;

impl Frame {
    /// Offset of the ports of a datagram or segment, if it has some.
    fn ports(&self) -> Option<usize> {
        let is_ip = self.ether_type() == 0x0800 && self.0[14] == 0x45;
        (is_ip && [6, 17].contains(&self.0[23])).then_some(ETHER_OCTETS + IP_OCTETS)
    }

    pub(crate) fn is_ip(&self) -> bool {
        self.ether_type() == 0x0800
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.ports().is_some() && self.0[23] == 17
    }

    /// The port that it goes to.
    pub(crate) fn port(&self) -> Option<u16> {
        self.ports().map(|at| self.get(at + 2))
    }

    /// The frame from another port, with a checksum that is right or, of UDP, absent.
    pub(crate) fn sent_from(&self, port: u16) -> Self {
        let mut new = self.clone();
        let Some(at) = self.ports() else { return new };
        new.put(at, port);
        if self.is_udp() {
            new.put(at + 6, 0);
            return new;
        }
        // RFC 1624, section 3.
        let [old, sum] = [at, at + 16].map(|at| self.get(at));
        new.put(at + 16, !folded([!sum, !old, port]));
        new
    }

    /// A datagram with the same hosts and this content, without a checksum.
    pub(crate) fn with_content(&self, to: u16, content: &[u8]) -> Self {
        let at = self.ports().unwrap();
        let mut new = Self(self.0[..at + UDP_OCTETS].to_vec());
        new.0.extend(content);
        let len = (UDP_OCTETS + content.len()) as u16;
        new.put(at + 2, to);
        new.put(at + 4, len);
        new.put(at + 6, 0);
        // Not a fragment.
        new.put(20, 0);
        new.put(16, IP_OCTETS as u16 + len);
        new.seal();
        new
    }

    /// The frame in the name of another host, with checksums that are right or, of UDP, absent.
    pub(crate) fn in_name_of(&self, host: [u8; 4]) -> Self {
        let mut new = self.clone();
        let words = |frame: &Self| [26, 28].map(|at| frame.get(at));
        new.0[26..30].copy_from_slice(&host);
        let [a, b] = words(self).map(|word| !word);
        let [c, d] = words(&new);
        match self.0[23] {
            6 => new.put(50, !folded([!self.get(50), a, b, c, d])),
            17 => new.put(40, 0),
            _ => {}
        }
        new.seal();
        new
    }

    /// The frame to another host, by the link to all or as before; a datagram without a checksum.
    pub(crate) fn sent_to(&self, host: [u8; 4], by_all: bool) -> Self {
        let mut new = self.clone();
        if by_all {
            new.0[..6].fill(0xff);
        }
        new.0[30..34].copy_from_slice(&host);
        if self.is_udp() {
            new.put(ETHER_OCTETS + IP_OCTETS + 6, 0);
        }
        new.seal();
        new
    }

    /// Puts the checksum of the IP header right.
    fn seal(&mut self) {
        self.put(24, 0);
        let words = (ETHER_OCTETS..ETHER_OCTETS + IP_OCTETS).step_by(2);
        let sum = folded(words.map(|at| self.get(at)));
        self.put(24, !sum);
    }

    fn get(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    fn put(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// The ones' complement sum.
fn folded(words: impl IntoIterator<Item = u16>) -> u16 {
    let sum: u32 = words.into_iter().map(u32::from).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Sees all frames.
#[derive(Default)]
struct Watch(RefCell<Vec<(HostId, Frame)>>);

impl Tap for Watch {
    fn frame(&self, seen: Sighting<'_>) {
        let octets = octets(seen.frame);
        // What is shorter has no source to forge.
        if octets.len() >= 34 {
            self.0.borrow_mut().push((seen.host, Frame(octets)));
        }
    }
}

/// Stands on the wire of a host that does not live.
struct Forger;

impl Protocol for Forger {}

/// A message that may be forged.
pub(crate) struct Forgery {
    pub(crate) victim: HostId,
    victim_name: String,
    /// The host that sent it, and whose wire it goes out by.
    sender: HostId,
    /// Packets of ARP that the sender sent before.
    before: Vec<Frame>,
    pub(crate) frame: Frame,
    number: usize,
}

impl fmt::Display for Forgery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} to {}", self.number, self.victim_name)
    }
}

impl Forgery {
    pub(crate) fn is_to(&self, name: &str) -> bool {
        self.victim_name == name
    }

    /// The forgery with another frame.
    pub(crate) fn with(&self, frame: Frame) -> Self {
        Self { victim_name: self.victim_name.clone(), before: self.before.clone(), frame, ..*self }
    }
}

/// A graph that can be simulated again and again.
pub(crate) struct Scene {
    graph: CheckedGraph,
    seed: Cell<u64>,
}

impl Scene {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let graph = check(text, name, &xk_catalog::standard());
        let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let seed = Cell::new(1);
        Self { graph, seed }
    }

    /// A world of its own seed, no host alive.
    fn world(&self) -> (World, Rc<Watch>) {
        let config = SimulationConfig {
            seed: self.seed.replace(self.seed.get() + 1),
            ..SimulationConfig::default()
        };
        let world = simulate(&self.graph, config).unwrap_or_else(|e| panic!("{e}"));
        let watch = Rc::new(Watch::default());
        world.network().set_tap(Some(watch.clone()));
        (world, watch)
    }

    /// Messages that the hosts send to each other: from each to each the first `max` that differ.
    pub(crate) fn forgeries(&self, max: usize) -> Vec<Forgery> {
        let (mut world, watch) = self.world();
        start_world(&self.graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
        world.run_until(Time::ZERO + LISTEN);
        world.stop();
        let seen = watch.0.take();
        let hosts: BTreeMap<[u8; 6], HostId> =
            seen.iter().map(|(host, frame)| (frame.from(), *host)).collect();
        let mut found: Vec<Forgery> = Vec::new();
        for (number, (sender, frame)) in seen.iter().enumerate() {
            let of_sender = seen.iter().take(number).filter(|(host, _)| host == sender);
            let arp = of_sender.filter(|(_, frame)| frame.is_arp());
            let before: Vec<Frame> = arp.map(|(_, frame)| frame.clone()).take(4).collect();
            let is_to_all = frame.to()[0] & 1 == 1;
            let victims = hosts
                .iter()
                .filter(|(mac, host)| *host != sender && (is_to_all || **mac == frame.to()));
            for (_, victim) in victims {
                let same = found.iter().filter(|f| (f.sender, f.victim) == (*sender, *victim));
                if frame.is_arp()
                    || same.clone().count() >= max
                    || same.clone().any(|f| f.frame == *frame)
                {
                    continue;
                }
                found.push(Forgery {
                    victim: *victim,
                    victim_name: world.name(*victim).unwrap_or_default().to_owned(),
                    sender: *sender,
                    before: before.clone(),
                    frame: frame.clone(),
                    number,
                });
            }
        }
        found
    }

    /// Answers of the victim to the forged source when the message comes `times` times, from as
    /// many ports, a hundred in a second.
    pub(crate) fn answers(&self, forgery: &Forgery, times: usize) -> Vec<Frame> {
        let (mut world, watch) = self.world();
        if world.start_host(forgery.victim).is_err() {
            return Vec::new();
        }
        let forged = forgery.before.iter().cloned();
        let first = (times > 0).then(|| forgery.frame.clone());
        let again = (1..times).map(|n| forgery.frame.sent_from(20_000 + n as u16));
        let forged = forged.chain(first).chain(again);
        for frame in forged {
            send(&mut world, forgery.sender, &frame);
            let next = world.now() + Duration::from_millis(10);
            world.run_until(next);
        }
        let end = world.now() + ANSWERS_TIME;
        world.run_until(end);
        world.stop();
        let seen = watch.0.take();
        let to_source = seen
            .into_iter()
            .filter(|(host, frame)| *host == forgery.victim && frame.to() == forgery.frame.from());
        to_source.map(|(_, frame)| frame).collect()
    }
}

impl Scene {
    /// Octets of each answer of the victim to the source of a message which comes `times` times,
    /// from as many ports, right after `others`; all from one seed.
    pub(crate) fn answers_after(
        &self,
        forgery: &Forgery,
        others: &[Frame],
        times: usize,
    ) -> Vec<usize> {
        self.seed.set(1);
        let (mut world, watch) = self.world();
        if world.start_host(forgery.victim).is_err() {
            return Vec::new();
        }
        for frame in &forgery.before {
            send(&mut world, forgery.sender, frame);
        }
        world.run_until(Time::from_ms(100));
        let own = (0..times).map(|n| forgery.frame.sent_from(20_000 + n as u16));
        let own: Vec<Frame> = own.collect();
        for frame in others.iter().chain(&own) {
            send(&mut world, forgery.sender, frame);
            let next = world.now() + Duration::from_micros(100);
            world.run_until(next);
        }
        let end = world.now() + Duration::from_millis(500);
        world.run_until(end);
        world.stop();
        let (seen, source) = (watch.0.take(), forgery.frame.from());
        let to_source = seen.into_iter().map(|(_, frame)| frame);
        let own = to_source.filter(|frame| frame.to() == source && !frame.is_arp());
        own.map(|frame| frame.octets()).collect()
    }

    /// Frames that all living hosts send in the last second of twenty, after one of them has sent
    /// these frames.
    pub(crate) fn rest(&self, sender: &str, frames: &[Frame]) -> Vec<Frame> {
        let (mut world, watch) = self.world();
        start_world(&self.graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let sender = world.find(sender).unwrap();
        for frame in frames {
            send(&mut world, sender, frame);
            let next = world.now() + Duration::from_millis(10);
            world.run_until(next);
        }
        let end = Time::from_s(20);
        world.run_until(Time::from_s(19));
        watch.0.take();
        world.run_until(end);
        world.stop();
        watch.0.take().into_iter().map(|(_, frame)| frame).collect()
    }
}

/// Sends a frame by the wire of a host.
fn send(world: &mut World, host: HostId, frame: &Frame) {
    world.enter(host, |cx| {
        let app = cx.find_protocol("forger");
        let app = app.unwrap_or_else(|| cx.add_protocol("forger", "forger", Forger));
        let wire = wire(cx, frame.from());
        let session = wire.open(cx, Upper::new(&app), Participants::default()).unwrap();
        let message = cx.pool().copy_from(HEADROOM, &frame.0).unwrap();
        let _ = session.push(cx, message);
        session.close(cx);
    });
}

/// The wire whose address this is; else any, of a forger.
fn wire(cx: &Kernel, address: [u8; 6]) -> ProtocolRef {
    let all = cx.protocols().into_iter();
    let wires: Vec<ProtocolRef> = all.filter(|p| p.head().kind() == "sim").collect();
    let is_own = |wire: &&ProtocolRef| {
        let own = wire.ask(cx, MyEther::default());
        own.is_some_and(|own| own.address == address)
    };
    wires.iter().find(is_own).unwrap_or(&wires[0]).clone()
}
