//! A stream that runs allocates nothing: neither per segment, nor per acknowledgement, nor per
//! loss.

use core::time::Duration;
use xk_core::message::PoolConfig;
use xk_core::random::Random;
use xk_core::{Pool, Time};
use xk_tcp::connection::{Ends, Out, Syn};
use xk_tcp::{Connection, Seq, Settings};
use xk_testkit::conformance::allocations;

const ROUND_TRIP: Duration = Duration::from_millis(1);

struct Pair {
    a: Connection,
    b: Connection,
    pool: Pool,
    random: Random,
    now: Time,
    /// Under way to either, for at most one round.
    wires: [Vec<Out>; 2],
    loss: u32,
    delivered: usize,
    segments: usize,
}

fn ends(local: u16, peer: u16) -> Ends {
    Ends { local, peer, path: 1480, clock_offset: 5 }
}

impl Pair {
    fn new(loss: u32) -> Self {
        let now = Time::from_s(1);
        let settings = Settings::default();
        let mut a = Connection::open(settings.clone().into(), ends(1, 2), Seq(10), now);
        let syn = a.transmit(now).expect("a SYN").header;
        let b = Connection::accept(settings.into(), ends(2, 1), Seq(20), &Syn::of(&syn), now);
        Self {
            a,
            b,
            pool: Pool::new(&PoolConfig::with_octets_max(64 << 20)).unwrap(),
            random: Random::new(1),
            now,
            wires: [Vec::with_capacity(8192), Vec::with_capacity(8192)],
            loss,
            delivered: 0,
            segments: 0,
        }
    }

    /// Half a round trip.
    fn step(&mut self) {
        self.now += ROUND_TRIP / 2;
        let (a, b) = (&mut self.a, &mut self.b);
        while a.space() >= 8192 {
            a.send(self.pool.alloc(128, 8192).unwrap()).unwrap();
        }
        for (side, machine) in [&mut *a, &mut *b].into_iter().enumerate() {
            for out in self.wires[side].drain(..) {
                // What comes late or twice is dropped with its reason.
                let _ = machine.segment(self.now, &out.header, out.payload, None);
            }
            if machine.deadline().is_some_and(|at| at <= self.now) {
                machine.timer(self.now);
            }
            while let Some(message) = machine.deliver() {
                self.delivered += message.len();
            }
            while machine.event().is_some() {}
        }
        for (side, machine) in [b, a].into_iter().enumerate() {
            let mut sent = 0;
            while sent < 4000
                && let Some(out) = machine.transmit(self.now)
            {
                sent += 1;
                self.segments += 1;
                if !self.random.chance_per_million(self.loss) {
                    self.wires[side].push(out);
                }
            }
        }
    }
}

#[test]
fn a_running_stream_allocates_nothing() {
    for loss in [0, 10_000] {
        let mut pair = Pair::new(loss);
        for _ in 0..10_000 {
            pair.step();
        }
        let (before, delivered, segments) = (allocations(), pair.delivered, pair.segments);
        for _ in 0..1000 {
            pair.step();
        }
        let count = allocations() - before;
        let (octets, segments) = (pair.delivered - delivered, pair.segments - segments);
        println!("loss {loss}: {octets} octets in {segments} segments, {count} allocations");
        assert!(octets > 1_000_000, "{octets}");
        assert_eq!(count, 0, "allocations for {segments} segments");
    }
}
