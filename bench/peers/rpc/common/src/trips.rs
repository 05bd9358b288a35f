//! The times of calls.

use std::time::{Duration, Instant};

/// Share of the time that goes by before anything counts: one of so many.
const WARM: u32 = 5;
/// Calls at most.
const TRIPS_MAX: usize = 1 << 18;

/// The times of calls, one after the other.
pub struct Trips {
    begun: Instant,
    last: Instant,
    time: Duration,
    ns: Vec<u64>,
}

impl Trips {
    /// None yet; to be measured for so long.
    pub fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            last: now,
            time,
            ns: Vec::with_capacity(TRIPS_MAX),
        }
    }

    /// One more call is over. False if it was the last.
    pub fn note(&mut self) -> bool {
        let now = Instant::now();
        let trip = now.duration_since(self.last);
        self.last = now;
        let since = now.duration_since(self.begun);
        if since >= self.time / WARM {
            self.ns.push(trip.as_nanos() as u64);
        }
        since < self.time + self.time / WARM && self.ns.len() < TRIPS_MAX
    }

    /// Prints what was found.
    pub fn tell(mut self) {
        self.ns.sort_unstable();
        let at = |share: f64| {
            let place = (self.ns.len().saturating_sub(1) as f64 * share) as usize;
            self.ns.get(place).copied().unwrap_or(0)
        };
        let whole: u64 = self.ns.iter().sum();
        println!("{} {} {} {whole}", at(0.5), at(0.99), self.ns.len());
    }
}
