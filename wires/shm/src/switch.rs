//! A small Ethernet switch for more than two parties at one socket.
//!
//! Each party has memory of its own with the switch and none with the others, so no party can reach
//! another but by frames. A frame is copied out of its sender's ring once, looked at, and copied
//! into the ring of each receiver.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::credentials_unsafe::Peer;
use crate::error::ShmError;
use crate::link::{Link, Lost, timespec};
use crate::listen::{self, Listener};
use crate::meet::{Options, check_path};
use crate::ring::SendError;

/// Most ports of a switch.
pub const PORTS_MAX: usize = 256;
/// Addresses that are known of one port, at most; the one heard longest ago gives way. The bound is
/// per port, so that no party can make the switch forget the others' addresses.
pub const ADDRESSES_A_PORT: usize = 64;
/// The time for which an address is known without being heard (the default of IEEE 802.1Q-2018,
/// section 8.8.3).
pub const AGEING: Duration = Duration::from_secs(300);
/// Frames taken from one port before the next one has its turn.
const BUDGET: usize = 64;
/// Octets of an Ethernet header without tag.
const HEADER_OCTETS: usize = 14;
/// Time that it goes on looking after the last frame before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Interval at which it looks for parties that came or went while it does not sleep.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Reports that one wake-up takes at most; the rest come with the next.
const REPORTS_MAX: usize = 64;

/// A hardware address.
type Address = [u8; 6];

/// The counters of one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames taken from the party.
    pub received: u64,
    /// Frames given to it.
    pub sent: u64,
    /// Frames for it that its ring had no room for.
    pub full: u64,
    /// Frames from it without a whole Ethernet header, or with a group's address as the source.
    pub malformed: u64,
    /// Frames from it with a source address that belongs to another port; they are not forwarded.
    pub foreign: u64,
}

/// The counters of the whole switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Parties that came so far.
    pub came: u64,
    /// Parties that went away.
    pub gone: u64,
    /// Parties that were thrown out because they broke the rules.
    pub broken: u64,
    /// Parties that were refused: no port left, or a hello that will not do.
    pub refused: u64,
    /// Frames that went to all other ports: for everybody, for a group, or for an address that is
    /// not known.
    pub flooded: u64,
}

struct Port {
    link: Link,
    counters: PortCounters,
    /// Addresses of the party, and when each was heard last.
    addresses: Vec<(Address, Instant)>,
    /// Once it went away: the number of frames that are still taken of what it sent before.
    last_frames: Option<u32>,
}

/// A learning switch. Parties come and go by themselves; each `shm` wire that names its path is
/// one.
///
/// An address belongs to the port that used it first until that party goes or is silent for
/// [`AGEING`]: no party can take frames from another by using its address.
pub struct Switch {
    listener: Listener,
    options: Options,
    ports: Vec<Option<Port>>,
    table: HashMap<Address, usize>,
    set: OwnedFd,
    /// Listener, hellos and sockets: what seldom reports.
    slow: OwnedFd,
    counters: SwitchCounters,
    /// Counters of parties that are gone.
    past: PortCounters,
    frame: Vec<u8>,
    look_at: Instant,
}

impl Switch {
    /// A switch of at most `ports` ports that listens at `path`.
    ///
    /// # Errors
    /// [`ShmError`]: the path will not do, or another process listens there.
    pub fn new(path: &Path, ports: usize, options: &Options) -> Result<Self, ShmError> {
        check_path(path)?;
        let make = || epoll::create(CreateFlags::CLOEXEC);
        let (set, slow) = make()
            .and_then(|set| Ok((set, make()?)))
            .map_err(ShmError::system("make an epoll set"))?;
        let taken = || ShmError::Taken { path: path.into(), process: listen::holder(path) };
        let listener = Listener::bind(path, options, &slow)?.ok_or_else(taken)?;
        let added = epoll::add(&set, &slow, EventData::new_u64(0), EventFlags::IN);
        added.map_err(ShmError::system("wait for parties"))?;
        Ok(Self {
            listener,
            options: options.clone(),
            ports: (0..ports.clamp(2, PORTS_MAX)).map(|_| None).collect(),
            table: HashMap::new(),
            set,
            slow,
            counters: SwitchCounters::default(),
            past: PortCounters::default(),
            frame: vec![0; options.geometry.frame_octets_max() as usize],
            look_at: Instant::now(),
        })
    }

    /// Returns the counters.
    pub fn counters(&self) -> SwitchCounters {
        self.counters
    }

    /// The ports in use: number, party, what it has done, and how many addresses it has.
    pub fn ports(&self) -> impl Iterator<Item = (usize, Peer, PortCounters, usize)> {
        self.ports.iter().enumerate().filter_map(|(number, port)| {
            let port = port.as_ref()?;
            Some((number, port.link.peer(), port.counters, port.addresses.len()))
        })
    }

    /// Sums up the counters of parties that are gone.
    pub fn past(&self) -> PortCounters {
        self.past
    }

    /// Runs until `finished` says so, which is asked at least once a second.
    pub fn run(&mut self, mut finished: impl FnMut(&Self) -> bool) {
        let mut busy = Instant::now();
        while !finished(self) {
            let now = Instant::now();
            if self.turn(now) > 0 {
                busy = now;
            } else if now.saturating_duration_since(busy) < SPIN && self.may_spin() {
                std::hint::spin_loop();
            } else {
                self.sleep(now);
            }
        }
    }

    /// Forwards what there is, a bounded number of frames. Answers how many.
    pub fn turn(&mut self, now: Instant) -> usize {
        if now >= self.look_at {
            self.look(now);
        }
        let mut frames = 0;
        for number in 0..self.ports.len() {
            frames += self.serve(number, now);
        }
        if frames > 0 {
            for port in self.ports.iter_mut().flatten() {
                port.link.flush();
            }
        }
        frames
    }

    /// Takes what one port has.
    fn serve(&mut self, number: usize, now: Instant) -> usize {
        let mut frame = std::mem::take(&mut self.frame);
        let mut count = 0;
        while count < BUDGET {
            let Some(Some(port)) = self.ports.get_mut(number) else {
                break;
            };
            match port.link.receive(&mut frame) {
                Ok(Some(octets)) => {
                    port.counters.received += 1;
                    count += 1;
                    self.forward(number, frame.get(..octets).unwrap_or_default(), now);
                }
                Ok(None) => break,
                Err(_) => {
                    self.remove(number, Lost::Broken);
                    break;
                }
            }
        }
        self.frame = frame;
        if let Some(Some(port)) = self.ports.get_mut(number)
            && let Some(left) = port.last_frames
        {
            let left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
            port.last_frames = Some(left);
            if count == 0 || left == 0 {
                self.remove(number, Lost::Gone);
            }
        }
        count
    }

    fn forward(&mut self, from: usize, frame: &[u8], now: Instant) {
        let header = frame.first_chunk::<HEADER_OCTETS>();
        let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..]) = header else {
            return self.count(from, |port| port.malformed += 1);
        };
        let destination = [*d0, *d1, *d2, *d3, *d4, *d5];
        let source = [*s0, *s1, *s2, *s3, *s4, *s5];
        if s0 & 1 != 0 {
            return self.count(from, |port| port.malformed += 1);
        }
        if !self.learn(from, source, now) {
            return self.count(from, |port| port.foreign += 1);
        }
        let known = (d0 & 1 == 0).then(|| self.find(destination, now)).flatten();
        match known {
            // Back where it came from: the party has it.
            Some(to) if to == from => {}
            Some(to) => self.send(to, frame),
            None => {
                self.counters.flooded += 1;
                for to in (0..self.ports.len()).filter(|to| *to != from) {
                    self.send(to, frame);
                }
            }
        }
    }

    fn count(&mut self, number: usize, count: impl FnOnce(&mut PortCounters)) {
        if let Some(Some(port)) = self.ports.get_mut(number) {
            count(&mut port.counters);
        }
    }

    /// Notes that `source` is at the port. False if it is another's.
    fn learn(&mut self, from: usize, source: Address, now: Instant) -> bool {
        match self.table.get(&source) {
            Some(owner) if *owner == from => {
                let Some(Some(port)) = self.ports.get_mut(from) else {
                    return false;
                };
                if let Some(at) = port.addresses.iter().position(|(a, _)| *a == source) {
                    port.addresses[at].1 = now;
                    // A station that speaks often is found at once.
                    port.addresses.swap(0, at);
                }
                true
            }
            Some(_) => match self.find(source, now) {
                Some(_) => false,
                None => self.learn(from, source, now),
            },
            None => {
                let Some(Some(port)) = self.ports.get_mut(from) else {
                    return false;
                };
                if port.addresses.len() >= ADDRESSES_A_PORT
                    && let Some(oldest) =
                        (0..port.addresses.len()).min_by_key(|at| port.addresses[*at].1)
                {
                    let (address, _) = port.addresses.swap_remove(oldest);
                    self.table.remove(&address);
                }
                port.addresses.push((source, now));
                self.table.insert(source, from);
                true
            }
        }
    }

    /// The port of an address; one not heard for too long is forgotten.
    fn find(&mut self, address: Address, now: Instant) -> Option<usize> {
        let number = *self.table.get(&address)?;
        let port = self.ports.get_mut(number)?.as_mut()?;
        let at = port.addresses.iter().position(|(a, _)| *a == address)?;
        if now.saturating_duration_since(port.addresses[at].1) < AGEING {
            return Some(number);
        }
        port.addresses.swap_remove(at);
        self.table.remove(&address);
        None
    }

    fn send(&mut self, to: usize, frame: &[u8]) {
        let Some(Some(port)) = self.ports.get_mut(to) else {
            return;
        };
        match port.link.send(frame) {
            Ok(()) => port.counters.sent += 1,
            Err(SendError::Full | SendError::TooLong) => port.counters.full += 1,
            Err(SendError::Broken(_)) => self.remove(to, Lost::Broken),
        }
    }

    fn remove(&mut self, number: usize, why: Lost) {
        let Some(port) = self.ports.get_mut(number).and_then(Option::take) else {
            return;
        };
        // The other side may keep its end of the pipe open, so it does not leave the set by itself.
        let _ = epoll::delete(&self.set, port.link.bell());
        for (address, _) in &port.addresses {
            self.table.remove(address);
        }
        let (past, counters) = (&mut self.past, port.counters);
        past.received += counters.received;
        past.sent += counters.sent;
        past.full += counters.full;
        past.malformed += counters.malformed;
        past.foreign += counters.foreign;
        match why {
            Lost::Gone => self.counters.gone += 1,
            Lost::Broken => self.counters.broken += 1,
        }
    }

    /// Looks which parties have come and gone.
    fn look(&mut self, now: Instant) {
        self.look_at = now + LOOK_EVERY;
        for number in 0..self.ports.len() {
            let Some(Some(port)) = self.ports.get_mut(number) else {
                continue;
            };
            match port.link.check() {
                Ok(()) => {}
                Err(Lost::Gone) if port.last_frames.is_none() => {
                    port.last_frames = Some(port.link.end_slots());
                }
                Err(Lost::Gone) => {}
                Err(Lost::Broken) => self.remove(number, Lost::Broken),
            }
        }
        let free = self.ports.iter().position(Option::is_none);
        let link = self.listener.step(now, free.is_some(), &self.options, &self.slow);
        if self.listener.take_error().is_some() {
            self.counters.refused += 1;
        }
        let (Some(link), Some(number)) = (link, free) else {
            return;
        };
        let edge = EventFlags::IN | EventFlags::ET;
        // Others may be waiting behind this one.
        self.look_at = now;
        if epoll::add(&self.set, link.bell(), EventData::new_u64(1), edge).is_err() {
            self.counters.refused += 1;
            return;
        }
        self.counters.came += 1;
        if let Some(place) = self.ports.get_mut(number) {
            *place = Some(Port {
                link,
                counters: PortCounters::default(),
                addresses: Vec::new(),
                last_frames: None,
            });
        }
    }

    /// Whether looking again and again keeps no party from sending.
    fn may_spin(&self) -> bool {
        let mut ports = self.ports.iter().flatten();
        ports.all(|port| !port.link.shares_processor())
    }

    fn sleep(&mut self, now: Instant) {
        // All are told before it sleeps, and all that were told are told again.
        let mut rests = true;
        for port in self.ports.iter_mut().flatten() {
            rests &= port.last_frames.is_none() && port.link.doze();
        }
        if rests {
            let pending = self.listener.next_step();
            let limit =
                pending.map_or(SLEEP_MAX, |at| at.saturating_duration_since(now).min(SLEEP_MAX));
            let mut events: Vec<Event> = Vec::with_capacity(REPORTS_MAX);
            let room = rustix::buffer::spare_capacity(&mut events);
            let timeout = timespec(limit);
            let slept = epoll::wait(&self.set, room, Some(&timeout)).is_ok();
            if slept && (events.is_empty() || events.iter().any(|event| event.data.u64() == 0)) {
                self.look_at = now;
            }
        }
        for number in 0..self.ports.len() {
            if let Some(Some(port)) = self.ports.get_mut(number)
                && port.link.woken().is_err()
            {
                self.remove(number, Lost::Broken);
            }
        }
    }
}

#[cfg(test)]
mod tests;
