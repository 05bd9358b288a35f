//! Many conversations between two hosts of one process: what `demux` and the paper's table II and
//! figure 6 measure.

use crate::cable::{HEADROOM, Hosts};
use crate::stopwatch::clock_ns;
use crate::uppers::{Echo, counter};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;
use xk_core::SessionRef;

/// Number of conversations that share a port of the answering host.
const PER_PORT: usize = 1024;
/// The first port of each side.
const PORT_FIRST: u16 = 1024;

/// Two hosts, and open sessions between them.
pub(crate) struct ManySessions {
    hosts: Hosts,
    sessions: Vec<SessionRef>,
    received: Rc<Cell<u64>>,
}

/// Choice of the session for a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Always the first.
    One,
    /// The first and the last in turn.
    InTurn,
    /// Any.
    Random,
}

impl ManySessions {
    /// Opens so many; each has sent one message and got it back.
    ///
    /// # Errors
    /// What could not be opened, and why.
    pub(crate) fn new(count: usize) -> Result<Self, String> {
        Self::on(count, PER_PORT)
    }

    /// Opens so many, each with a port of its own on the answering host.
    ///
    /// # Errors
    /// What could not be opened, and why.
    pub(crate) fn with_ports(count: usize) -> Result<Self, String> {
        Self::on(count, 1)
    }

    fn on(count: usize, per_port: usize) -> Result<Self, String> {
        let udp = format!("udp ip sessions_max={}", count.max(16));
        let (client, received) = counter();
        let hosts = Hosts::new(&udp, 1 << 12, client, Echo { holds: false });
        for port in 0..count.div_ceil(per_port) {
            hosts.serve(PORT_FIRST + port as u16);
        }
        let mut many = Self { hosts, sessions: Vec::with_capacity(count), received };
        for n in 0..count {
            let [local, peer] = [n % PER_PORT, n / per_port].map(|port| PORT_FIRST + port as u16);
            let opened = many.hosts.open(local, peer);
            many.sessions.push(opened.map_err(|e| format!("session {n}: {e}"))?);
            many.trip(n, 64);
        }
        if many.received.get() != count as u64 {
            return Err(format!("{} of {count} answers came", many.received.get()));
        }
        Ok(many)
    }

    /// One message there and back.
    #[inline]
    pub(crate) fn trip(&self, session: usize, octets: usize) {
        self.ask(session, octets);
        self.hosts.carry();
    }

    /// One message there, where the answer is made.
    #[inline]
    pub(crate) fn ask(&self, session: usize, octets: usize) {
        let Hosts { a, b, .. } = &self.hosts;
        if let Ok(message) = a.cx.pool().alloc(HEADROOM, octets) {
            let _ = self.sessions[session].push(&a.cx, black_box(message));
        }
        b.take_from(a);
    }

    /// The answer back.
    #[inline]
    pub(crate) fn answer(&self) {
        self.hosts.a.take_from(&self.hosts.b);
    }

    /// So many messages there and back; answers how many came.
    pub(crate) fn trips(&self, choice: Choice, trips: u64) -> u64 {
        let before = self.received.get();
        let mut chooser = Chooser::new(choice, self.sessions.len());
        for _ in 0..trips {
            self.trip(chooser.next(), 64);
        }
        self.received.get() - before
    }

    /// Times of so many round trips in nanoseconds, sorted, without the time of reading the clock.
    pub(crate) fn times(&self, choice: Choice, trips: usize) -> Vec<f64> {
        let mut chooser = Chooser::new(choice, self.sessions.len());
        let clock = clock_ns();
        let mut list: Vec<f64> = (0..trips)
            .map(|_| {
                let session = chooser.next();
                let start = Instant::now();
                self.trip(session, 64);
                start.elapsed().as_nanos() as f64 - clock
            })
            .collect();
        list.sort_by(f64::total_cmp);
        list
    }
}

/// Says which session is next.
pub(crate) struct Chooser {
    choice: Choice,
    count: u64,
    state: u64,
}

impl Chooser {
    pub(crate) fn new(choice: Choice, count: usize) -> Self {
        Self { choice, count: count as u64, state: 0x9e37_79b9_7f4a_7c15 }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> usize {
        match self.choice {
            Choice::One => 0,
            Choice::InTurn => {
                self.state ^= 1;
                if self.state & 1 == 0 { 0 } else { self.count as usize - 1 }
            }
            Choice::Random => {
                // Marsaglia's xorshift with 64 bits, and the high half of a product for the range.
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                ((u128::from(self.state) * u128::from(self.count)) >> 64) as usize
            }
        }
    }
}
