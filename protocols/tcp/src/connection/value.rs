//! A connection as a value in octets, for another place to go on with it: all that it is, with the
//! octets that wait on either side. Points in time are told by how far off they are, so that the
//! reader may have another clock.
//!
//! The octets begin with [`MAGIC`] and [`VERSION`]. What is read was perhaps written by an enemy:
//! it is a connection if its numbers fit each other and can be reckoned with, and none if not.

use super::path::PATH_MAX;
use super::run::Runs;
use super::settings::{BUFFER_MAX, SEGMENT_MIN};
use super::{AckDue, Connection, Ends};
use crate::options::TIMESTAMPS_LEN;
use crate::seq::Seq;
use crate::state::State;
use crate::wire::{HEADER_LEN_MAX, Header};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::control::{Field, Reader, Writer};
use xk_core::{Message, Pool, Time};
use xk_kit::net::moving::{Nameless, STATE_OCTETS_MAX};

/// First octets of an encoded connection.
const MAGIC: [u8; 4] = *b"TCPc";
/// Counts on when the fields change.
const VERSION: u16 = 4;

/// Octets of the messages that waiting octets are read into, and what is free in front of them.
const CHUNK_OCTETS: usize = 32 << 10;
const HEADROOM: usize = 128;

impl Connection {
    /// All of it as octets, at `now`; `None` if it is over, or has more octets than go.
    #[must_use]
    pub fn write(&self, pool: &Pool, now: Time) -> Option<Vec<u8>> {
        if self.state == State::Closed {
            return None;
        }
        let names = Nameless(pool);
        let mut out = Writer::at(&names, now);
        (MAGIC, VERSION).put(&mut out);
        self.put(&mut out);
        out.finish().filter(|octets| octets.len() <= STATE_OCTETS_MAX)
    }

    /// Octets of data among those that are written.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.send.waiting().saturating_add(self.receive.waiting())
    }

    /// The connection that these octets are, at `now`; `None` if they are none, or there is no room
    /// for those that wait.
    #[must_use]
    pub fn read(octets: &[u8], pool: &Pool, now: Time) -> Option<Self> {
        let names = Nameless(pool);
        let mut from = Reader::at(octets, &names, now);
        if <([u8; 4], u16)>::take(&mut from)? != (MAGIC, VERSION) {
            return None;
        }
        let connection = Self::take(&mut from)?;
        (from.is_empty() && connection.is_sound()).then_some(connection)
    }

    /// The connection that stays behind when this one moves: it is over, and sends nothing.
    #[must_use]
    pub fn left(&self, now: Time) -> Self {
        Self::new(Rc::clone(&self.settings), self.ends, self.send.iss, self.receive.irs, now)
    }

    /// Goes on here, over a path of `path` octets. Segments that came meanwhile were lost, so the
    /// peer is told at once where the stream is. It waits for late segments no longer than others
    /// here.
    pub fn arrived(&mut self, path: u32, time_wait: Duration, now: Time) {
        self.set_path(path, now);
        if self.state == State::TimeWait {
            self.ends_at = self.ends_at.map(|at| at.min(now + time_wait));
        } else if self.state.is_synchronized() {
            self.ack_due = AckDue::Now;
        }
    }

    /// Whether this side opened it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Whether the numbers are such as a connection has: nothing overflows and no loop goes on that
    /// is made with them.
    fn is_sound(&self) -> bool {
        let is_timed = self.state != State::TimeWait || self.ends_at.is_some();
        self.state != State::Closed
            && is_timed
            && self.ends.local > 0
            && self.ends.peer > 0
            && self.ends.path <= PATH_MAX
            && self.settings.is_sound()
            && (self.state == State::SynSent || self.receive.is_announceable())
            && self.segment >= SEGMENT_MIN - TIMESTAMPS_LEN as u16
            && self.peer_segment >= SEGMENT_MIN
            && self.peer_full < 1 << 20
            && self.persist_count < 1 << 20
            && self.keep_alive_count < 1 << 20
            && self.delivered < 1 << 62
            && self.search.is_sound()
            && self.recovery.is_sound()
            && self.is_in_step()
    }

    /// Whether what was sent is what is outstanding, and what is to be sent again lies in that.
    fn is_in_step(&self) -> bool {
        let (una, nxt) = (self.snd_una(), self.snd_nxt());
        let lies_in = |from: Seq, end: Seq| {
            from.at_or_before(end)
                && end.at_or_before(nxt)
                && (from.at_or_after(una) || una.since(from) <= BUFFER_MAX)
        };
        let is_again = self.again.is_none_or(|(from, end)| lies_in(from, end));
        let is_probe = self.probe.is_none_or(|lost| lies_in(lost.start, lost.start + lost.octets));
        is_again && is_probe && self.send.is_outstanding(una, nxt)
    }
}

/// The clock is told by what it shows.
impl Field for Ends {
    fn put(&self, out: &mut Writer<'_>) {
        (self.local, self.peer).put(out);
        (self.path, self.clock(out.now())).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let ((local, peer), (path, clock)) = <((u16, u16), (u32, u32))>::take(from)?;
        let ends = Self { local, peer, path, clock_offset: 0 };
        Some(Self { clock_offset: clock.wrapping_sub(ends.clock(from.now())), ..ends })
    }
}

/// Not moved: the layer below at another place decides on its own what it cuts.
impl Field for Runs {
    fn put(&self, _: &mut Writer<'_>) {}

    fn take(_: &mut Reader<'_>) -> Option<Self> {
        Some(Self::default())
    }
}

/// A reset that is to go yet.
impl Field for Box<Header> {
    fn put(&self, out: &mut Writer<'_>) {
        let mut octets = [0; HEADER_LEN_MAX];
        let length = self.emit(&mut octets);
        (length as u8).put(out);
        out.put_octets(&octets[..length]);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let length = u8::take(from)?;
        let octets = from.octets(length.into())?;
        Header::parse(octets).ok().map(|(header, _)| Self::new(header))
    }
}

/// Writes the octets of messages from `skipped` on, and before them how many there are.
pub(super) fn put_octets<'a>(
    messages: impl Iterator<Item = &'a Message> + Clone,
    mut skipped: usize,
    out: &mut Writer<'_>,
) {
    let all: usize = messages.clone().map(Message::len).sum();
    (all.saturating_sub(skipped) as u32).put(out);
    for octets in messages.flat_map(Message::octet_slices) {
        let rest = octets.get(skipped..).unwrap_or_default();
        skipped = skipped.saturating_sub(octets.len());
        out.put_octets(rest);
    }
}

/// Reads what [`put_octets`] has written.
pub(super) fn take_octets(from: &mut Reader<'_>) -> Option<Vec<Message>> {
    let count = u32::take(from)? as usize;
    let octets = from.octets(count)?;
    let chunks = octets.chunks(CHUNK_OCTETS);
    chunks.map(|chunk| from.pool().copy_from(HEADROOM, chunk).ok()).collect()
}
