//! One link: what it does to the frames that cross it.

use crate::config::{LinkConfig, LinkKind, Partition};
use crate::line::{Waiting, sending_ns};
use crate::network::PortId;
use crate::snooping::Snooping;
use crate::stations::{Address, Stations};
use crate::stats::LinkStats;
use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;
use xk_core::random::Random;
use xk_core::{Message, Time};

/// Octets of an Ethernet header, which the MTU leaves out.
pub(crate) const HEADER_OCTETS: usize = 14;

/// State of a link. Fields that every frame needs come first and in this order: with thousands of
/// links each line of memory is a miss.
#[repr(C, align(64))]
pub(crate) struct Link {
    kind: LinkKind,
    /// Whether chance or a partition may have a say: most links only delay.
    is_fair: bool,
    rate_bit_s: Option<u64>,
    delay: Duration,
    pub(crate) stations: Stations,
    pub(crate) stats: LinkStats,
    /// The wires on it, in the order of attachment.
    pub(crate) ports: Vec<PortId>,
    /// Time at which the medium of a hub is free.
    medium_free_at: Time,
    pub(crate) random: Random,
    pub(crate) config: LinkConfig,
    pub(crate) name: Rc<str>,
    /// The groups that a switch hears of, if it snoops.
    pub(crate) snooping: Option<Box<Snooping>>,
}

/// A port's two ends of a line: into the link, and out of a switch.
#[derive(Default)]
pub(crate) struct Ends {
    into: Waiting,
    into_free_at: Time,
    out: Waiting,
    out_free_at: Time,
}

/// Places at which a switch found the stations of a port's last frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hints {
    source: u32,
    destination: u32,
}

/// Decision of chance for one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The delivery does not happen, and is counted.
    Dropped,
    /// The delivery happens.
    Delivered {
        /// This bit is flipped.
        flip: Option<usize>,
        /// True if it happens twice.
        twice: bool,
    },
}

impl Link {
    pub(crate) fn new(config: LinkConfig, random: Random) -> Self {
        Self {
            kind: config.kind,
            is_fair: is_fair(&config),
            rate_bit_s: config.rate_bit_s,
            delay: config.delay,
            name: config.name.as_str().into(),
            stations: Stations::new(config.addresses_max, config.ageing),
            snooping: (config.snooping && config.kind == LinkKind::Switch)
                .then(|| Box::new(Snooping::new(config.addresses_max))),
            config,
            random,
            stats: LinkStats::default(),
            ports: Vec::new(),
            medium_free_at: Time::ZERO,
        }
    }

    /// Changes what it is like, but for what ports and interfaces have taken over from it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut LinkConfig)) {
        let mut config = self.config.clone();
        change(&mut config);
        let before = &self.config;
        config.name.clone_from(&before.name);
        config.partitions.clone_from(&before.partitions);
        (config.kind, config.mtu_octets) = (before.kind, before.mtu_octets);
        (config.addresses_max, config.ageing) = (before.addresses_max, before.ageing);
        config.snooping = before.snooping;
        (self.delay, self.rate_bit_s) = (config.delay, config.rate_bit_s);
        self.is_fair = is_fair(&config);
        self.config = config;
    }

    pub(crate) fn frame_octets_max(&self) -> usize {
        self.config.mtu_octets.saturating_add(HEADER_OCTETS)
    }

    /// Time at which a frame that a host sends now arrives at the other side; `None` if the port's
    /// queue is full.
    pub(crate) fn send(&mut self, now: Time, ends: &mut Ends, octets: usize) -> Option<Time> {
        let Some(rate) = self.rate_bit_s else {
            return Some(now + self.delay);
        };
        let free_at = match self.kind {
            LinkKind::Hub => &mut self.medium_free_at,
            LinkKind::Switch | LinkKind::PointToPoint => &mut ends.into_free_at,
        };
        let max = self.config.queue_frames_max;
        let departure = ends.into.take_turn(now, free_at, sending_ns(octets, rate), max)?;
        Some(departure + self.delay)
    }

    /// Time until a host's port takes a frame.
    pub(crate) fn room_after(&self, now: Time, ends: &Ends) -> Duration {
        match self.rate_bit_s {
            Some(_) => ends.into.room_after(now, self.config.queue_frames_max),
            None => Duration::ZERO,
        }
    }

    /// Time at which a frame that the link has now reaches a receiver: at once, but out of a switch
    /// when its turn has come; `None` if the port's queue is full.
    pub(crate) fn leave(&self, now: Time, ends: &mut Ends, octets: usize) -> Option<Time> {
        match (self.kind, self.rate_bit_s) {
            (LinkKind::Switch, Some(rate)) => {
                let sending_ns = sending_ns(octets, rate);
                let max = self.config.queue_frames_max;
                ends.out.take_turn(now, &mut ends.out_free_at, sending_ns, max)
            }
            _ => Some(now),
        }
    }

    /// Whether a frame crosses it after its delay and nothing else can happen to it.
    pub(crate) fn only_delays(&self) -> bool {
        self.is_fair && (self.kind != LinkKind::Switch || self.rate_bit_s.is_none())
    }

    /// Switches an arriving frame: the one port it goes to, or `None` for all others.
    pub(crate) fn forward(
        &mut self,
        now: Time,
        from: PortId,
        hints: &mut Hints,
        header: Option<&[u8; 12]>,
    ) -> Option<PortId> {
        if self.kind != LinkKind::Switch {
            return None;
        }
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = header?;
        let (destination, source): (Address, Address) =
            ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        if !self.stations.learn(now, source, from, &mut hints.source) {
            self.stats.not_learned += 1;
        }
        if d0 & 1 != 0 {
            return None;
        }
        let found = self.stations.find(now, &destination, &mut hints.destination);
        if found.is_none() {
            self.stats.flooded += 1;
        }
        found
    }

    /// Returns the ports that a frame to a group goes to, if a switch that snoops knows.
    pub(crate) fn members(
        &mut self,
        now: Time,
        from: PortId,
        header: Option<&[u8; 12]>,
        frame: &Message,
    ) -> Option<BTreeSet<PortId>> {
        let snooping = self.snooping.as_mut()?;
        let ports = header
            .filter(|header| header[0] & 1 != 0)
            .and_then(|_| snooping.ports(now, from, frame))?;
        self.stats.snooped += 1;
        Some(ports)
    }

    /// Lets chance decide about one delivery between hosts on these sides of the partitions.
    pub(crate) fn decide(&mut self, now: Time, from: &[u8], to: &[u8], octets: usize) -> Fate {
        let cut = |(p, (a, b)): (&Partition, (&u8, &u8))| {
            p.from <= now && now < p.until && *a != 0 && *b != 0 && a != b
        };
        if self.config.partitions.iter().zip(from.iter().zip(to)).any(cut) {
            self.stats.partitioned += 1;
            return Fate::Dropped;
        }
        if self.hits(self.config.loss) {
            self.stats.lost += 1;
            return Fate::Dropped;
        }
        let flip = (self.hits(self.config.corrupt) && octets > 0).then(|| {
            self.stats.corrupted += 1;
            self.random.below(octets as u64 * 8) as usize
        });
        let twice = self.hits(self.config.duplicate);
        self.stats.duplicated += u64::from(twice);
        Fate::Delivered { flip, twice }
    }

    /// Extra delay of a delivery.
    pub(crate) fn extra(&mut self) -> Duration {
        let mut extra = Duration::ZERO;
        if !self.config.jitter.is_zero() {
            let jitter_ns = u64::try_from(self.config.jitter.as_nanos()).unwrap_or(u64::MAX);
            extra = Duration::from_nanos(self.random.below(jitter_ns.saturating_add(1)));
        }
        if self.hits(self.config.reorder) {
            self.stats.reordered += 1;
            extra = extra.saturating_add(self.config.reorder_delay);
        }
        extra
    }

    /// Draws only where there is something to draw for.
    fn hits(&self, share: f64) -> bool {
        share > 0.0 && self.random.chance(share)
    }
}

/// Whether neither chance nor a partition ever has a say.
fn is_fair(config: &LinkConfig) -> bool {
    let chances = [config.loss, config.duplicate, config.reorder, config.corrupt];
    chances.iter().all(|share| *share <= 0.0)
        && config.jitter.is_zero()
        && config.partitions.is_empty()
}
