//! The plan that a seed makes: the network, and the behaviour of the applications.

use core::time::Duration;
use xk_core::random::Random;

/// End of an application's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The application ends its direction when it has written all, and waits for the peer's end.
    Orderly,
    /// The application releases the stream when it has written all.
    Closes,
    /// The application breaks off once it has written this many octets.
    Aborts(u64),
}

/// One end of a stream.
#[derive(Clone, Debug)]
pub(super) struct EndPlan {
    /// Start, in time since the start of the world.
    pub(super) start: Duration,
    /// Octets that it writes.
    pub(super) octets: u64,
    /// The largest piece that it writes at once.
    pub(super) piece_max: u64,
    /// The longest pause between two pieces.
    pub(super) pause: Duration,
    /// Octets that it reads at a time and the longest pause between two reads; `None` if it takes
    /// all at once.
    pub(super) reads: Option<(u32, Duration)>,
    /// Whether small segments go at once.
    pub(super) no_delay: bool,
    /// End of the stream.
    pub(super) ending: Ending,
}

/// A box in the network, which treats unusual segments badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Middlebox {
    /// Lets no SYN with data pass.
    DropsData,
    /// Cuts the data off SYNs.
    CutsData,
    /// Lets no SYN with a Fast Open option pass.
    DropsOption,
    /// Lets no segment with AccECN's counts of octets (RFC 9768) pass.
    DropsCounts,
    /// Replaces the counts by no-operations.
    StripsCounts,
    /// Sets the counts to zero.
    ClearsCounts,
    /// Sets the counts to other values.
    SpoilsCounts,
}

/// Both ends of a stream.
#[derive(Clone, Debug)]
pub(super) struct StreamPlan {
    /// The side that opens (0), and the side that is opened or opens as well (1).
    pub(super) ends: [EndPlan; 2],
    /// Whether both sides open.
    pub(super) both_open: bool,
}

/// A network, its faults, and its streams.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The largest packet, in octets.
    pub(super) mtu: u32,
    /// The delay of each direction; `jitter` is the largest further delay of a packet.
    pub(super) delay: [Duration; 2],
    pub(super) jitter: Duration,
    /// Number of lost packets in a million; `duplication` and `corruption` are numbers in a million
    /// too.
    pub(super) loss: u32,
    pub(super) duplication: u32,
    pub(super) corruption: u32,
    /// Octets per second of each direction, and octets that may wait for it; `None`: no limit.
    pub(super) rate: Option<(u64, u64)>,
    /// Start and end of a time in which no packet passes.
    pub(super) partition: Option<(Duration, Duration)>,
    /// Time from which on no packet passes.
    pub(super) death: Option<Duration>,
    /// Largest number of streams that wait to be accepted, and the time that each waits.
    pub(super) backlog: Option<(usize, Duration)>,
    /// Longest time after which each end moves to the other place of its side; `None` if no end
    /// moves.
    pub(super) moves: Option<Duration>,
    pub(super) middlebox: Option<Middlebox>,
    /// Number of packets that a router marks, in a million that it may mark.
    pub(super) marks: u32,
    pub(super) streams: Vec<StreamPlan>,
}

/// A random number between the bounds, with each number of binary digits about equally likely.
fn scaled(chance: &Random, min: u64, max: u64) -> u64 {
    let bits = chance.below(u64::from(64 - max.leading_zeros())) as u32;
    (min + chance.below(2 << bits)).min(max)
}

fn ms(chance: &Random, max: u64) -> Duration {
    Duration::from_millis(chance.below(max + 1))
}

fn one_of<T: Copy>(chance: &Random, of: &[T]) -> T {
    of[chance.below(of.len() as u64) as usize]
}

impl EndPlan {
    fn new(chance: &Random, octets_max: u64) -> Self {
        let octets = if chance.chance(0.1) { 0 } else { scaled(chance, 1, octets_max) };
        let reads = chance.chance(0.25).then(|| {
            let at_once = scaled(chance, 200, 65_536) as u32;
            (at_once, ms(chance, 300))
        });
        let ending = match chance.below(20) {
            0 => Ending::Aborts(chance.below(octets + 1)),
            1 | 2 => Ending::Closes,
            _ => Ending::Orderly,
        };
        Self {
            start: ms(chance, 200),
            octets,
            piece_max: scaled(chance, 1, 60_000).max(octets / 400),
            pause: if chance.chance(0.6) { Duration::ZERO } else { ms(chance, 400) },
            reads,
            no_delay: chance.chance(0.3),
            ending,
        }
    }
}

impl StreamPlan {
    fn new(chance: &Random, octets_max: u64) -> Self {
        let mut ends = [0, 1].map(|_| EndPlan::new(chance, octets_max));
        let both_open = chance.chance(0.1);
        if both_open {
            ends[1].start = ends[0].start;
        }
        Self { ends, both_open }
    }
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let chance = Random::new(seed).fork(1);
        let chance = &chance;
        let second = Duration::from_secs(1);
        let rate = chance.chance(0.3).then(|| {
            let rate = scaled(chance, 20_000, 5_000_000);
            (rate, scaled(chance, 10_000, 200_000))
        });
        let partition = chance.chance(0.2).then(|| {
            let from = ms(chance, 3000);
            (from, from + ms(chance, 20_000))
        });
        let octets_max = if rate.is_some() { 60_000 } else { 250_000 };
        let streams = (0..1 + chance.below(3)).map(|_| StreamPlan::new(chance, octets_max));
        let mut plan = Self {
            mtu: one_of(chance, &[576, 1006, 1280, 1500, 1500, 1500, 9000]),
            // At least 1 ms, so that two opens at the same time cross.
            delay: [1, 1].map(|ms| Duration::from_millis(ms + chance.below(120))),
            jitter: if chance.chance(0.5) { Duration::ZERO } else { ms(chance, 60) },
            loss: one_of(chance, &[0, 0, 1_000, 10_000, 50_000, 200_000]),
            duplication: one_of(chance, &[0, 0, 10_000, 100_000]),
            corruption: one_of(chance, &[0, 0, 10_000, 50_000]),
            streams: streams.collect(),
            rate,
            partition,
            death: chance.chance(0.05).then(|| second * chance.below(5) as u32),
            backlog: None,
            moves: None,
            middlebox: None,
            marks: 0,
        };
        // Chosen last, so that older seeds keep their other values.
        plan.backlog = chance.chance(0.3).then(|| (1 + chance.below(2) as usize, ms(chance, 5000)));
        plan.moves = chance.chance(0.4).then(|| Duration::from_millis(scaled(chance, 10, 2000)));
        let boxes = [Middlebox::DropsData, Middlebox::CutsData, Middlebox::DropsOption];
        plan.middlebox = chance.chance(0.2).then(|| one_of(chance, &boxes));
        plan.marks = one_of(chance, &[0, 0, 10_000, 300_000, 1_000_000]);
        if chance.chance(0.2) {
            use Middlebox::{ClearsCounts, DropsCounts, SpoilsCounts, StripsCounts};
            let boxes = [DropsCounts, StripsCounts, ClearsCounts, SpoilsCounts];
            plan.middlebox = Some(one_of(chance, &boxes));
        }
        plan
    }

    /// Whether a connection may time out on this network.
    pub(super) fn is_hostile(&self) -> bool {
        self.death.is_some() || self.loss + self.corruption >= 50_000
    }
}
