//! Fetching ahead of the frames to come what they will pass.
//!
//! With thousands of hosts nearly all that a frame passes has left the caches since its host had
//! the frame before, and each line is asked for only when the one before has come. Most of it lies
//! where it lay then: the lines are noted, and asked for together while the frames before are
//! handed over. Nothing depends on it but time: a line that was noted and is another's by now is
//! fetched in vain.

use super::{Host, World};
use crate::prefetch_unsafe::prefetch;
use std::collections::BTreeSet;
use xk_core::control::ListSessions;
use xk_core::object::span;

/// Fewer hosts fit the caches.
pub(super) const HOSTS_MIN: usize = 256;
/// Frames between the fetch of the list of a host's lines, or of the lines, and the host's own.
const LIST_AHEAD: usize = 4;
const LINES_AHEAD: usize = 2;
/// Number of the frame at which the lines of a host are noted first, and of frames after which they
/// are noted again.
const FIRST: u32 = 4;
const AGAIN: u32 = 4096;
/// Octets of a line.
const LINE: usize = 64;
/// Octets of an object that are noted: what every message needs lies in front.
const OBJECT_OCTETS: usize = 4 * LINE;
/// Sessions of a protocol that are noted, and lines of a host in all.
const SESSIONS_MAX: usize = 4;
const LINES_MAX: usize = 64;

/// The lines that frames for one host pass.
#[derive(Default)]
pub(super) struct Passed {
    lines: Vec<usize>,
    frames: u32,
}

impl World {
    /// Fetches what the frames to come will pass, while there are so many hosts that it pays.
    pub(super) fn look_ahead(&mut self) {
        if self.hosts.len() < self.ahead_from {
            return;
        }
        if let Some((host, lines)) = self.network.reached_by(LIST_AHEAD) {
            self.passed.resize_with(self.hosts.len(), Passed::default);
            let at = host.0 as usize;
            let (Some(host), Some(passed)) = (self.hosts.get(at), self.passed.get_mut(at)) else {
                return;
            };
            passed.frames = passed.frames.wrapping_add(1);
            if passed.frames == FIRST || passed.frames.is_multiple_of(AGAIN) {
                passed.lines = lines_of(host);
            }
            let list = span(passed.lines.as_slice());
            let few = lines.into_iter().map(front).chain([span(host), list]);
            few.flat_map(lines_in).for_each(prefetch);
        }
        if let Some((host, _)) = self.network.reached_by(LINES_AHEAD)
            && let Some(passed) = self.passed.get(host.0 as usize)
        {
            passed.lines.iter().copied().for_each(prefetch);
        }
    }

    /// Returns the number of lines noted.
    #[cfg(test)]
    pub(crate) fn lines_noted(&self) -> usize {
        self.passed.iter().map(|passed| passed.lines.len()).sum()
    }
}

/// As much of an object as is noted.
fn front((at, octets): (usize, usize)) -> (usize, usize) {
    (at, octets.min(OBJECT_OCTETS))
}

fn lines_in((at, octets): (usize, usize)) -> impl Iterator<Item = usize> {
    (at & !(LINE - 1)..at + octets).step_by(LINE)
}

/// The lines of a host's kernel, its protocols and their sessions.
fn lines_of(host: &Host) -> Vec<usize> {
    let kernel = &*host.kernel;
    let mut spans = vec![span(kernel)];
    // What looks on sees no question of ours.
    for protocol in kernel.protocols().iter().filter(|p| !p.is_proxy() && !kernel.is_observed()) {
        spans.extend(protocol.spans());
        let list = protocol.ask(kernel, ListSessions::first(SESSIONS_MAX)).unwrap_or_default();
        spans.extend(list.here().flat_map(|session| session.spans()));
    }
    let lines: BTreeSet<usize> = spans.into_iter().map(front).flat_map(lines_in).collect();
    lines.into_iter().take(LINES_MAX).collect()
}
