//! Identifications of datagrams that may be fragmented (RFC 6864, section 4.2): not one twice from
//! one host to another with one protocol while the first may be under way, as far as 65,536 of them
//! allow, and none that others can predict (RFC 7739, section 5.3).
//!
//! They count up from a place that a secret gives each source, destination and protocol. A session
//! keeps its own count; what it has used is noted when it ends, in one of a number of counts
//! that many share, so that the next session of the same kind goes on behind it.

use alloc::boxed::Box;
use core::cell::{Cell, OnceCell};
use xk_core::{Kernel, Secret};

/// Counts that the sessions which have ended share.
const COUNTS: usize = 1024;

pub(crate) struct Identifications {
    secret: Secret,
    /// Made for the first session that ends and has used some.
    used: OnceCell<Box<[Cell<u16>; COUNTS]>>,
}

/// Identifications of one session.
#[derive(Default)]
pub(crate) struct Series {
    next: Cell<u16>,
    first: Cell<u16>,
    count: Cell<u16>,
}

impl Identifications {
    pub(crate) fn new(cx: &Kernel) -> Self {
        Self { secret: cx.secret(), used: OnceCell::new() }
    }

    /// Begins those from one host to another of one protocol, in place of what the series was.
    pub(crate) fn begin(&self, series: &Series, hosts: u64, protocol: u8) {
        self.end(series);
        let hash = self.secret.hash(&[hosts, protocol.into()]);
        let count = (hash >> 16) as u16 % COUNTS as u16;
        let used = self.used.get().map_or(0, |used| used[usize::from(count)].get());
        let first = (hash as u16).wrapping_add(used);
        series.first.set(first);
        series.next.set(first);
        series.count.set(count);
    }

    /// Notes what a series has used.
    pub(crate) fn end(&self, series: &Series) {
        let (first, next) = (series.first.get(), series.next.get());
        if first == next {
            return;
        }
        let used = self.used.get_or_init(|| Box::new([const { Cell::new(0) }; COUNTS]));
        let used = &used[usize::from(series.count.get()) % COUNTS];
        used.set(used.get().wrapping_add(next.wrapping_sub(first)));
        series.first.set(next);
    }
}

impl Series {
    /// The first of so many.
    #[inline(always)]
    pub(crate) fn take(&self, count: u16) -> u16 {
        let id = self.next.get();
        self.next.set(id.wrapping_add(count));
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identifications(key: u64) -> Identifications {
        Identifications { secret: Secret::known([key, 0]), used: OnceCell::new() }
    }

    #[test]
    fn a_session_goes_on_where_the_one_before_ended() {
        let all = identifications(1);
        let mut before = None;
        for _ in 0..5 {
            let series = Series::default();
            all.begin(&series, 7, 17);
            let ids: [u16; 3] = core::array::from_fn(|_| series.take(1));
            assert_eq!(ids[1], ids[0].wrapping_add(1));
            assert!(before.is_none_or(|before: u16| ids[0] == before.wrapping_add(1)));
            before = Some(ids[2]);
            all.end(&series);
            // Ended twice, it counts once.
            all.end(&series);
        }
    }

    #[test]
    fn what_one_peer_sees_tells_nothing_of_another() {
        // The distance between two peers' is another under each secret.
        let distances = (0..100).map(|key| {
            let all = identifications(key);
            let [a, b] = [1, 2].map(|peer| {
                let series = Series::default();
                all.begin(&series, peer, 17);
                series.take(1)
            });
            a.wrapping_sub(b)
        });
        let distances: alloc::collections::BTreeSet<u16> = distances.collect();
        assert!(distances.len() > 95, "{}", distances.len());
    }
}
