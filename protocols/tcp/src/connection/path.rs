//! The largest packet on the path, found without the network's help (RFC 4821, section 7; RFC 8899,
//! section 5): when large segments vanish without a report, smaller ones go; and after a while a
//! larger one is tried, with data that is to be sent anyway. A probe that gets lost is no sign of
//! congestion.

use super::{Connection, HEADER};
use crate::loss::Phase;
use crate::options::TIMESTAMPS_LEN;
use crate::seq::Seq;
use core::time::Duration;
use xk_core::{Time, fields};

/// Time for which a smaller path is believed before a larger one is tried (RFC 1191, section 6.3;
/// PMTU_RAISE_TIMER of RFC 8899, section 5.1.1): a little longer than a network layer does.
const RAISE_AFTER: Duration = Duration::from_secs(610);
/// Time after the discovery of a black hole at which the search for a size that passes begins.
const SEARCH_AFTER: Duration = Duration::from_secs(1);
/// Octets that a probe must win at least (RFC 8899, section 5.3.3).
const STEP_MIN: u32 = 16;
/// Number of lost probes of one size that show it is too large; one may be an accident.
const PROBES_MAX: u8 = 2;

/// A segment larger than is known to pass.
#[derive(Clone, Copy, Debug)]
struct Probe {
    start: Seq,
    end: Seq,
    path: u32,
}

fields!(Probe { start, end, path });

/// The search for a larger path than the one believed in; all in octets as `path` counts, without
/// the header below.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathSearch {
    /// Size of the path before it became smaller; 0 if it did not.
    top: u32,
    /// The largest that is worth a probe in this search.
    ceiling: u32,
    /// No probe before.
    at: Time,
    /// Probes of this size that got lost.
    lost: u8,
    probe: Option<Probe>,
}

fields!(PathSearch { top, ceiling, at, lost, probe });

/// No path is larger, in octets.
pub(super) const PATH_MAX: u32 = 1 << 24;

impl PathSearch {
    /// Whether it may be under way.
    pub(super) fn is_sound(&self) -> bool {
        let paths = [self.top, self.ceiling, self.probe.map_or(1, |probe| probe.path)];
        paths.iter().all(|path| *path <= PATH_MAX)
            && self.lost < PROBES_MAX
            && self.probe.is_none_or(|probe| probe.path > 0)
    }

    /// The path became smaller than `old`; `is_hole` if no report says what would pass.
    fn lowered(&mut self, old: u32, now: Time, is_hole: bool) {
        self.top = self.top.max(old);
        (self.probe, self.lost) = (None, 0);
        if is_hole {
            (self.ceiling, self.at) = (old - 1, now + SEARCH_AFTER);
        } else {
            (self.ceiling, self.at) = (self.top, now + RAISE_AFTER);
        }
    }

    /// The size to try next, if `path` is believed.
    fn next(&mut self, path: u32, now: Time) -> Option<u32> {
        if self.probe.is_some() || self.top <= path || now < self.at {
            return None;
        }
        if self.ceiling < path + STEP_MIN {
            // As large as it gets; perhaps it gets larger.
            (self.ceiling, self.at) = (self.top, now + RAISE_AFTER);
            return None;
        }
        // What it was before is the likeliest after a while, and halves find the rest.
        Some(if self.ceiling == self.top {
            self.top
        } else {
            path + (self.ceiling - path).div_ceil(2)
        })
    }

    /// The probe did not arrive.
    fn failed(&mut self) {
        let Some(probe) = self.probe.take() else {
            return;
        };
        self.lost += 1;
        if self.lost >= PROBES_MAX {
            (self.ceiling, self.lost) = (probe.path - 1, 0);
        }
    }

    /// The path that has proved itself when all before `una` is acknowledged.
    fn arrived(&mut self, una: Seq) -> Option<u32> {
        let probe = self.probe.filter(|probe| una.at_or_after(probe.end))?;
        (self.probe, self.lost) = (None, 0);
        Some(probe.path)
    }
}

impl Connection {
    /// The layer below carries messages of at most `path` octets whole now.
    pub fn set_path(&mut self, path: u32, now: Time) {
        let is_probe = self.search.probe.is_some_and(|probe| probe.path > path);
        if is_probe && path >= self.ends.path {
            // Only the probe was too large, and is not under way.
            self.search.failed();
            (self.search.ceiling, self.search.lost) = (path, 0);
            self.recovery.set_mss(u32::from(self.segment), true);
            return;
        }
        self.follow_path(path, now, false);
    }

    fn follow_path(&mut self, path: u32, now: Time, is_hole: bool) {
        let is_smaller = path < self.ends.path;
        if is_smaller {
            // What the peer does not take is not missed.
            let useful = u32::from(self.peer_segment.min(self.settings.segment_max)) + HEADER;
            let old = self.ends.path.min(useful);
            if path < old {
                self.search.lowered(old, now, is_hole);
            }
        }
        self.ends.path = path;
        self.resize(is_smaller);
    }

    /// Finds out how much data a segment carries (RFC 6691); `lost` if larger ones did not arrive.
    pub(super) fn resize(&mut self, lost: bool) {
        let whole = self.ends.segment(&self.settings).min(self.peer_segment);
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 };
        let segment = whole.saturating_sub(options as u16).max(1);
        if segment != self.segment {
            self.segment = segment;
            self.recovery.set_mss(u32::from(segment), lost);
        }
    }

    /// Large segments do not arrive, and no report says why: smaller ones may.
    pub(super) fn suspect_black_hole(&mut self, path: u32, now: Time) {
        let lost = self.recovery.board().next_lost().map(|(_, octets)| octets);
        let is_large = lost.is_some_and(|octets| octets + HEADER > path);
        if is_large && path < self.ends.path {
            self.follow_path(path, now, true);
        }
    }

    /// Whether the next new segment might be a probe of the path.
    #[inline]
    pub(super) fn may_probe_path(&self, now: Time) -> bool {
        self.search.top > self.ends.path && now >= self.search.at
    }

    /// Octets of the next new segment if that is to be a probe of the path.
    pub(super) fn path_probe(&mut self, now: Time, unsent: u32, usable: u32) -> Option<u32> {
        if !self.may_probe_path(now) || self.recovery.phase() != Phase::Open {
            return None;
        }
        let path = self.search.next(self.ends.path, now)?;
        let octets = path.saturating_sub(self.ends.path) + u32::from(self.segment);
        let fits = octets <= unsent.min(usable) && octets <= self.recovery.may_send(now);
        if !fits {
            return None;
        }
        let start = self.snd_nxt();
        self.search.probe = Some(Probe { start, end: start + octets, path });
        self.recovery.path_probe(start);
        Some(octets)
    }

    /// The probe could not be made after all.
    pub(super) fn forget_path_probe(&mut self) {
        self.search.probe = None;
    }

    /// Notes that the segment which begins at `start` is sent again.
    #[inline]
    pub(super) fn note_resent(&mut self, start: Seq) {
        if self.search.probe.is_some_and(|probe| probe.start == start) {
            self.search.failed();
        }
    }

    /// All before `una` is acknowledged.
    #[inline]
    pub(super) fn note_arrived(&mut self, una: Seq) {
        if self.search.probe.is_some()
            && let Some(path) = self.search.arrived(una)
        {
            self.ends.path = path;
            if path >= self.search.top {
                self.search = PathSearch::default();
            }
            self.resize(false);
        }
    }
}
