//! New data in several segments at once: full ones, which differ in their numbers alone.

use super::{Connection, State};
use crate::wire::{Flags, Header};
use xk_core::Time;
use xk_core::object::Outgoing;

/// Full segments of new data, each the next of the one before.
pub struct Run {
    /// The header of the first, without checksum; those of the others differ in their numbers.
    pub header: Header,
    /// Whether nothing follows the last, which says so ([`Flags::PSH`]).
    pub pushes: bool,
    /// Whether a router may mark them instead of dropping them (RFC 3168, section 6.1.5).
    pub markable: bool,
}

impl Connection {
    /// Puts the data of the next full segments behind those in `payloads`, as many as may go now; nothing if that is not more than
    /// one, or if something else goes first, or somebody below cuts more than these: then [`transmit`](Self::transmit) knows what.
    #[inline]
    pub fn transmit_run(&mut self, now: Time, payloads: &mut Outgoing) -> Option<Run> {
        let octets = u32::from(self.segment);
        if self.send.unsent() < 2 * octets || self.runs.are_cut || !self.is_steady() {
            return None;
        }
        let ready = self.send.unsent().min(self.usable()) / octets;
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
        }
        if count == 0 {
            // There will be another occasion: that of the next timer.
            return None;
        }
        self.recovery.sent_run(count, octets, now);
        self.note_sent(now);
        Some(Run {
            header: self.header(now, seq, Flags::NONE),
            pushes: self.send.unsent() == 0,
            markable: self.ecn,
        })
    }

    /// Whether new data go as they come: nothing was lost, nothing else is due, nothing is searched for.
    #[inline]
    fn is_steady(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
            && self.recovery.board().lost_octets() == 0
            && self.again.is_none()
            && self.probe.is_none()
            && self.reset.is_none()
            && !self.force
            && !self.poke
            && !self.cwr
            && !self.receive.has_gap()
            && self.receive.duplicate.is_none()
            && !self.searches_path()
    }
}
