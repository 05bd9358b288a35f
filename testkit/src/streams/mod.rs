//! Streams in a random network against a model: everything arrives once and in order, or the
//! connection says why not.
//!
//! One seed makes a network (delay, jitter, loss, duplication, corruption, partitions, a peer that
//! dies), two sides with random parameters, and applications that write in random pieces, read
//! slowly, end one direction, close early or break off. The model of a stream is a counter: octet
//! `n` has one value, and nothing else may come up in its place. A side that is told that the
//! stream ended well must have had all of it delivered at the other side, and one that was broken
//! off never ends well. The side that is opened may have no room for a while, which breaks no
//! stream. A connection may fail only where the network or an application gives it a reason, and
//! each must end in bounded time. Each side has two places, with an object of the protocol each,
//! and in some networks the ends of the streams move from one to the other, again and again.
//!
//! [`sweep`] runs a range of seeds; [`simulate`] replays one.

mod app;
mod network;
mod plan;

use self::app::Side;
use self::network::Network;
use self::plan::{Ending, Plan};
use crate::kernel::{Bottom, Lower, TestKernel};
use crate::seeds::Seeds;
use core::fmt::Write as _;
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_core::graph::Params;
use xk_core::random::Random;
use xk_core::{Entry, Time};

/// Virtual time that a connection may take after the last act of its applications.
const LIMIT: Duration = Duration::from_secs(6 * 3600);
/// More steps than this are taken for a loop without end.
const STEPS_MAX: u64 = 3_000_000;
/// The number that counts in the pseudo-header.
const NUMBER: u8 = 6;

/// Chooses the parameters of one side.
pub type Configure = fn(&Random) -> Params;

/// Outcome of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Connections that ended in order on both sides.
    pub whole: u64,
    /// Connections that broke, for a reason.
    pub broken: u64,
    /// Connections among them that broke though both applications were orderly: a bad network or a
    /// dead peer.
    pub excused: u64,
    /// Octets delivered.
    pub octets: u64,
    /// Segments sent.
    pub segments: u64,
    /// Times that an end moved to another place.
    pub moves: u64,
}

/// The host of a side.
fn host(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

/// Runs the network of one seed to its end.
///
/// # Errors
/// What did not hold, with what the seed had made.
pub fn simulate(entry: &'static Entry, configure: Configure, seed: u64) -> Result<Outcome, String> {
    let plan = Plan::new(seed);
    let mut world = World::new(entry, configure, &plan, seed)?;
    let result = world.run();
    let mut text = String::new();
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(what) => {
            let _ = write!(text, "{what}\n{}", world.describe());
            Outcome::default()
        }
    };
    let live = world.finish();
    if text.is_empty() && live != (0, 0) {
        let _ = write!(text, "{live:?} descriptors and buffers were still in use at the end");
    }
    if text.is_empty() { Ok(outcome) } else { Err(format!("seed {seed}: {text}\n{plan:#?}")) }
}

/// Runs all these seeds; `None` if that is not [all](Seeds::sum).
///
/// # Panics
/// If something did not hold.
pub fn sweep(entry: &'static Entry, configure: Configure, seeds: Seeds) -> Option<Outcome> {
    let sum = seeds.sum(|seed| match simulate(entry, configure, seed) {
        Ok(Outcome { whole, broken, excused, octets, segments, moves }) => {
            [whole, broken, excused, octets, segments, moves]
        }
        Err(what) => panic!("{what}"),
    });
    let outcome = |[whole, broken, excused, octets, segments, moves]: [u64; 6]| Outcome {
        whole,
        broken,
        excused,
        octets,
        segments,
        moves,
    };
    sum.map(outcome)
}

struct World<'a> {
    plan: &'a Plan,
    cx: TestKernel,
    network: Network,
    sides: [Side; 2],
}

impl<'a> World<'a> {
    fn new(
        entry: &'static Entry,
        configure: Configure,
        plan: &'a Plan,
        seed: u64,
    ) -> Result<Self, String> {
        let cx = TestKernel::new(seed);
        let chance = Random::new(seed).fork(2);
        let side = |side: usize| {
            let params = configure(&chance);
            let place = |lower_name, name| {
                let lower = Lower { opt_packet: plan.mtu - 20, ..Lower::host(host(side), NUMBER) };
                let bottom = Bottom::add(&cx, lower_name, lower);
                let lowers = core::slice::from_ref(bottom.protocol());
                let protocol =
                    entry.add(&cx, name, lowers, &params).map_err(|error| error.to_string())?;
                Ok::<_, String>((bottom, protocol))
            };
            let [lower_names, names] = [["lower-a", "lower-b"], ["a", "b"]];
            let first = place(lower_names[side], names[side])?;
            let second = place(["lower-a2", "lower-b2"][side], ["a2", "b2"][side])?;
            Ok::<_, String>(Side::new(&cx, side, [first, second], plan))
        };
        let sides = [side(0)?, side(1)?];
        cx.start().map_err(|(protocol, error)| format!("{protocol:?}: {error}"))?;
        cx.set_now(Time::from_s(1000));
        let network = Network::new(plan, seed, cx.now());
        Ok(Self { plan, cx, network, sides })
    }

    fn run(&mut self) -> Result<Outcome, String> {
        let end = self.cx.now().after(LIMIT);
        self.sides[1].listen(&self.cx)?;
        for side in &mut self.sides {
            side.begin(&self.cx);
        }
        let mut steps = 0;
        while !self.is_over() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err("it goes on without end".to_owned());
            }
            let due = [
                self.cx.next_expiry(),
                self.network.next(),
                self.sides[0].next(),
                self.sides[1].next(),
            ];
            let Some(next) = due.into_iter().flatten().min() else {
                return Err("nothing is under way, and a connection has not ended".to_owned());
            };
            if next > end {
                return Err("a connection has not ended in time".to_owned());
            }
            self.cx.set_now(next);
            self.cx.run_due();
            self.exchange();
            self.network.deliver(&self.cx, &self.sides);
            self.exchange();
            for place in 0..2 {
                let other = self.sides[1 - place].pushed();
                self.sides[place].act(&self.cx, &other)?;
                self.exchange();
            }
        }
        self.judge()
    }

    /// Gives the network what the sides have sent.
    fn exchange(&mut self) {
        for side in &self.sides {
            for sent in side.sent() {
                self.network.take(&self.cx, side.place, sent.message);
            }
        }
    }

    fn is_over(&self) -> bool {
        (0..self.plan.streams.len()).all(|n| {
            let [a, b] = [&self.sides[0].ends[n], &self.sides[1].ends[n]];
            a.is_over() && (b.is_over() || b.session.is_none())
        })
    }

    /// Compares how the connections ended with the model.
    fn judge(&self) -> Result<Outcome, String> {
        let moves = self.sides[0].moves + self.sides[1].moves;
        let mut outcome = Outcome { segments: self.network.taken, moves, ..Outcome::default() };
        for (n, stream) in self.plan.streams.iter().enumerate() {
            let ends = [&self.sides[0].ends[n], &self.sides[1].ends[n]];
            outcome.octets += ends[0].delivered + ends[1].delivered;
            for (place, end) in ends.iter().enumerate() {
                let other = ends[1 - place];
                let left = stream.ends[1 - place].ending == Ending::Orderly;
                if end.closed && left && other.delivered != end.pushed {
                    return Err(format!(
                        "stream {n}: side {place} was told that all is well, but of its {} octets only {} came up",
                        end.pushed, other.delivered
                    ));
                }
            }
            let orderly = stream.ends.iter().all(|end| end.ending == Ending::Orderly);
            if ends.iter().all(|end| end.closed) {
                outcome.whole += 1;
                continue;
            }
            outcome.broken += 1;
            outcome.excused += u64::from(orderly);
            if orderly && !self.plan.is_hostile() {
                return Err(format!("stream {n} broke without a reason"));
            }
        }
        Ok(outcome)
    }

    fn describe(&self) -> String {
        let mut text = format!("at {:?}\n", self.cx.now());
        for side in &self.sides {
            let _ = writeln!(text, "side {}:", side.place);
            for (n, end) in side.ends.iter().enumerate() {
                let _ = writeln!(text, "  stream {n}: {}", end.describe(&self.cx));
            }
            for (_, protocol) in &side.places {
                let list = protocol.head().drops().list();
                let drops: Vec<_> = list.iter().map(|(r, n)| format!("{} {n}", r.name)).collect();
                let _ = writeln!(text, "  drops: {}", drops.join(", "));
            }
        }
        text
    }

    fn finish(self) -> (u32, u32) {
        let Self { cx, network, sides, .. } = self;
        for side in &sides {
            side.leave(&cx);
        }
        cx.stop();
        for side in &sides {
            drop(side.sent());
        }
        drop((network, sides));
        cx.live()
    }
}
