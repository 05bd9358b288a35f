//! Data in several segments at once: full ones, which differ in their numbers alone; in a message
//! each, or all in one.

use super::timers::LOWER_HEADER;
use super::{Connection, State};
use crate::wire::{Flags, Header};
use xk_core::Time;
use xk_core::object::Outgoing;

/// Octets of data in the longest run: an IPv4 packet of any length, less the longest headers.
const RUN_OCTETS_MAX: u32 = u16::MAX as u32 - 120;

/// On a path of fewer octets segments may be cut by the layer below: no run goes.
const PATH_OCTETS_MIN: u32 = 552 - LOWER_HEADER;

/// State of a connection about runs of segments.
#[derive(Clone, Copy, Default)]
pub(super) struct Runs {
    /// A layer below cuts those that are sent.
    are_cut: bool,
    /// Octets of each segment in the run that is about to be taken in; 0 if it is none.
    arriving: u16,
}

/// Full segments of new data, each the next of the one before.
pub struct Run {
    /// The header of the first, without checksum; those of the others differ in their numbers.
    pub header: Header,
    /// Whether the last says that the receiver should not wait for more ([`Flags::PSH`]).
    pub pushes: bool,
    /// Whether a router may mark them instead of dropping them (RFC 3168, section 6.1.5).
    pub markable: bool,
}

impl Runs {
    /// Counts the segments that came with so many octets of data.
    pub(super) fn packets(self, octets: u32) -> u32 {
        match self.arriving {
            0 => 1,
            size => octets.div_ceil(size.into()).max(1),
        }
    }
}

impl Connection {
    /// Whether a layer below cuts runs of segments: see [`Out::run`](super::Out::run).
    pub fn set_runs(&mut self, are_cut: bool) {
        self.runs.are_cut = are_cut;
    }

    /// The next segment to be taken in stands for a run of segments of `size` octets each:
    /// acknowledgements are counted by those (RFC 9293, section 3.8.6.3: at least every second
    /// full-sized one).
    pub fn expect_run(&mut self, size: u16) {
        self.runs.arriving = size;
    }

    /// Data have come: how large the largest segment was.
    #[inline]
    pub(super) fn note_full(&mut self, octets: u32) {
        let full = match core::mem::take(&mut self.runs.arriving) {
            0 => octets,
            size => octets.min(u32::from(size)),
        };
        self.peer_full = self.peer_full.max(full);
    }

    /// Octets of new data that go at once, where `octets` would fill a segment: as many whole
    /// segments as may, if a layer below cuts them.
    pub(super) fn run_octets(&self, octets: u32, room: u32, allowed: u32) -> u32 {
        let is_narrow = self.ends.path < PATH_OCTETS_MIN;
        if !self.runs.are_cut || octets != room || is_narrow {
            return octets;
        }
        let most = self.send.unsent_of_record().min(self.usable()).min(allowed);
        let count = (most.min(RUN_OCTETS_MAX) / room).min(self.recovery.board().room());
        octets * count.max(1)
    }

    /// Records what is sent as segments of `one` octets each: they are lost, and sent again,
    /// singly.
    pub(super) fn record_sent(&mut self, octets: u32, one: u32, has_fin: bool, now: Time) {
        let mut left = octets;
        // There is room: `may_send` was more than nothing, and a run has been measured.
        if left > one {
            // The first may be a loss probe, the last may be shorter.
            let _ = self.recovery.sent(one, now);
            let between = (left - one - 1) / one;
            self.recovery.sent_run(between, one, now);
            left -= (1 + between) * one;
        }
        let _ = self.recovery.sent(left + u32::from(has_fin), now);
    }

    /// Puts the data of the next full segments behind those in `payloads`, as many as may go now;
    /// nothing if that is not more than one, or if something else goes first, or a layer below
    /// cuts more than these: then [`transmit`](Self::transmit) knows what.
    #[inline]
    pub fn transmit_run(&mut self, now: Time, payloads: &mut Outgoing) -> Option<Run> {
        let octets = u32::from(self.segment);
        if self.send.unsent() < 2 * octets || self.runs.are_cut || !self.is_steady(now) {
            return None;
        }
        let ready = self.send.unsent_of_record().min(self.usable()) / octets;
        if ready < 2 {
            return None;
        }
        let allowed = self.recovery.may_send(now) / octets;
        let most = ready.min(allowed).min(self.recovery.board().room());
        let most = most.min(payloads.remaining_capacity() as u32);
        if most < 2 {
            return None;
        }
        let seq = self.snd_nxt();
        let mut count = 0;
        while count < most
            && let Ok(payload) = self.send.cut(octets)
        {
            payloads.push(payload);
            count += 1;
            if self.send.pushes {
                break;
            }
        }
        if count == 0 {
            // There will be another occasion: that of the next timer.
            return None;
        }
        self.recovery.sent_run(count, octets, now);
        self.note_sent(now);
        Some(Run {
            header: self.header(now, seq, Flags::NONE),
            pushes: self.send.pushes,
            markable: self.ecn,
        })
    }

    /// Whether new data go as they come: nothing was lost, nothing else is due, nothing is searched
    /// for.
    #[inline]
    fn is_steady(&self, now: Time) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
            && self.recovery.board().lost_octets() == 0
            && self.again.is_none()
            && self.probe.is_none()
            && self.reset.is_none()
            && !self.force
            && !self.poke
            && !self.cwr
            && !self.has_blocks()
            && self.tallies_len() == 0
            && !self.may_probe_path(now)
    }
}
