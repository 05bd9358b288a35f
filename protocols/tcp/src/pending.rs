//! Peers that have sent a SYN and not answered ours: a small note each, in a bounded table (RFC
//! 4987, section 3.2). When it is full, others get cookies.

use crate::connection::{Ends, Syn};
use crate::seq::Seq;
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use xk_core::Secret;
use xk_core::map::Map;
use xk_core::{ProtocolRef, SessionRef, Time};

/// Both hosts, and both ports. Not the lower session: under a flood that is evicted and made again.
pub(crate) type PendingKey = (u64, u32);

/// Time that our SYN waits for its answer before it is sent again; doubled each time (RFC 6298,
/// section 2).
const RETRY: Duration = Duration::from_secs(1);
/// Times that our SYN is sent again: for three minutes at least (RFC 9293, section 3.8.3). A peer
/// whose part of the handshake is done may be cut off as long; under a flood the oldest note goes
/// all the same.
const RETRIES_MAX: u8 = 7;
/// Interval at which the notes are looked through.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// A connection whose SYN was answered and not acknowledged.
#[derive(Clone)]
pub(crate) struct Note {
    pub(crate) iss: Seq,
    pub(crate) syn: Syn,
    pub(crate) ends: Ends,
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    /// Time of our first SYN: if it went again, a measurement from here is too long rather than too
    /// short.
    pub(crate) sent: Time,
    due: Time,
    pub(crate) retries: u8,
}

impl Note {
    /// A note of a SYN that is answered now.
    pub(crate) fn new(
        now: Time,
        (lower, upper): (SessionRef, ProtocolRef),
        (iss, syn, ends): (Seq, Syn, Ends),
    ) -> Self {
        Self { iss, syn, ends, lower, upper, sent: now, due: now + RETRY, retries: 0 }
    }
}

/// The notes.
pub(crate) struct Pending {
    notes: Map<PendingKey, Note>,
    max: usize,
    /// Whether the timer is set.
    pub(crate) is_ticking: Cell<bool>,
}

impl Pending {
    pub(crate) fn new(secret: Secret, max: usize) -> Self {
        let max = max.max(1);
        Self { notes: Map::new(secret, max), max, is_ticking: Cell::new(false) }
    }

    /// Notes one, in place of another of the same key, if there is room.
    pub(crate) fn enter(&self, key: PendingKey, note: Note) {
        let _ = self.notes.replace(key, note);
    }

    /// Whether there is no room for one more.
    pub(crate) fn is_full(&self) -> bool {
        self.notes.len() >= self.max
    }

    pub(crate) fn get(&self, key: &PendingKey) -> Option<Note> {
        self.notes.get(key)
    }

    pub(crate) fn remove(&self, key: &PendingKey) {
        self.notes.unbind(key);
    }

    pub(crate) fn all(&self) -> Vec<(PendingKey, Note)> {
        self.notes.snapshot()
    }

    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    /// Notes whose answer is overdue, to be sent our SYN again, and the number of those given up.
    pub(crate) fn overdue(&self, now: Time) -> (Vec<Note>, u64) {
        let (mut again, mut given_up) = (Vec::new(), 0);
        for (key, mut note) in self.notes.snapshot() {
            if note.due > now {
                continue;
            }
            if note.retries >= RETRIES_MAX {
                self.notes.unbind(&key);
                given_up += 1;
                continue;
            }
            note.retries += 1;
            note.syn.ecn = note.syn.ecn.repeated(note.retries);
            note.due = now + RETRY * (1 << note.retries);
            again.push(note.clone());
            let _ = self.notes.replace(key, note);
        }
        (again, given_up)
    }

    pub(crate) fn stats(&self) -> xk_core::map::MapStats {
        self.notes.stats()
    }

    pub(crate) fn clear(&self) {
        self.notes.clear();
    }
}
