//! Putting fragments together (RFC 791, section 3.2; RFC 815 in spirit), without a copy and within
//! bounds.

use crate::receive::Front;
use crate::shared::reasons;
use crate::wire::{DATAGRAM_LEN_MAX, Fragment, Header, Options};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::reason::{self, Reason};
use xk_core::{Message, Time};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::Ecn;

/// Key of a datagram's fragments: source, destination, protocol, identification, and whether they
/// never left us.
pub(crate) type Key = (u32, u32, u8, u16, bool);

/// Octets that a fragment counts beside its own: for the rest of the buffer that it holds.
const OVERHEAD: usize = 256;

/// Bounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) octets_max: usize,
    /// Octets of one source.
    pub(crate) source_octets_max: usize,
    pub(crate) datagrams_max: usize,
    pub(crate) fragments_max: usize,
    pub(crate) timeout: Duration,
}

struct Piece {
    start: usize,
    end: usize,
    octets: Message,
}

#[derive(Default)]
struct Datagram {
    /// Names it among all, by age.
    serial: u64,
    until: Time,
    /// In order, without overlap.
    pieces: Vec<Piece>,
    /// Octets of all pieces together.
    have: usize,
    /// Octets of the payload, once the last fragment is there.
    total: Option<usize>,
    /// The header of the first fragment.
    first: Option<(Header, Front)>,
    /// A router has marked one of them.
    is_marked: bool,
    /// Fragments overlapped: whatever else comes is dropped (RFC 5722, section 4).
    spoilt: bool,
}

/// A datagram put together.
pub(crate) struct Whole {
    pub(crate) header: Header,
    pub(crate) front: Front,
    pub(crate) payload: Message,
    pub(crate) fragments: usize,
}

/// Result of a fragment.
pub(crate) enum Outcome {
    /// The fragment waits for others.
    Held,
    /// The fragment was the last that was missing.
    Whole(Whole),
    /// This number of fragments, the new one among them, is dropped.
    Dropped(usize, &'static Reason),
}

/// A datagram given up.
pub(crate) struct Expired {
    pub(crate) fragments: usize,
    pub(crate) from: Ipv4,
    pub(crate) to: Ipv4,
    /// The first fragment, if it was there: its header and payload.
    pub(crate) first: Option<(Front, Message)>,
}

/// Fragments held of one source.
#[derive(Clone, Copy, Default)]
struct Share {
    octets: usize,
    datagrams: usize,
}

/// All incomplete datagrams.
#[derive(Default)]
pub(crate) struct Reassembly {
    limits: Limits,
    datagrams: BTreeMap<Key, Datagram>,
    /// The keys by age.
    order: BTreeMap<u64, Key>,
    /// The keys by source and age.
    by_source: BTreeMap<(u32, u64), Key>,
    shares: BTreeMap<u32, Share>,
    serial: u64,
    /// Octets held, [`OVERHEAD`] included.
    octets: usize,
    fragments: usize,
    evicted: usize,
    /// Empty: the list of the last datagram that was put together, for the next one.
    spare: Vec<Piece>,
}

impl Reassembly {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Number of fragments held.
    pub(crate) fn fragments(&self) -> usize {
        self.fragments
    }

    /// Octets held, 256 for each fragment included.
    #[cfg(test)]
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Number of fragments that were given up for newer ones since the last call.
    pub(crate) fn take_evicted(&mut self) -> usize {
        core::mem::take(&mut self.evicted)
    }

    /// Time at which the oldest datagram is given up.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let (_, key) = self.order.first_key_value()?;
        self.datagrams.get(key).map(|datagram| datagram.until)
    }

    /// Releases everything. Answers how many fragments that were.
    pub(crate) fn clear(&mut self) -> usize {
        self.datagrams.clear();
        self.order.clear();
        self.by_source.clear();
        self.shares.clear();
        self.octets = 0;
        core::mem::take(&mut self.fragments)
    }

    /// Gives up the oldest datagram if its time is over.
    pub(crate) fn expire(&mut self, now: Time) -> Option<Expired> {
        if self.next_deadline()? > now {
            return None;
        }
        let (_, key) = self.order.first_key_value()?;
        let key = *key;
        let mut datagram = self.remove(&key)?;
        let fragments = datagram.pieces.len();
        let first = datagram.first.take().and_then(|(_, front)| {
            let piece = datagram.pieces.into_iter().next()?;
            Some((front, piece.octets))
        });
        Some(Expired { fragments, from: Ipv4::from_bits(key.0), to: Ipv4::from_bits(key.1), first })
    }

    /// Takes a fragment: its header, the octets of that, and its payload.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        header: &Header,
        front: Front,
        payload: Message,
        now: Time,
    ) -> Outcome {
        if payload.is_empty() {
            return Outcome::Dropped(1, &reason::MALFORMED);
        }
        if !self.make_room(&key, payload.len() + OVERHEAD) {
            return Outcome::Dropped(1, &reasons::EVICTED);
        }
        if !self.datagrams.contains_key(&key) {
            self.begin(key, now);
        }
        let (start, more) = (header.fragment.offset(), header.fragment.more());
        let end = start + payload.len();
        let Some(datagram) = self.datagrams.get_mut(&key) else {
            return Outcome::Dropped(1, &reasons::EVICTED);
        };
        let checked = datagram.check(start, end, more, &payload, &self.limits);
        let at = match checked {
            Ok(at) => at,
            Err(why) if *why == reasons::DUPLICATE || datagram.spoilt => {
                return Outcome::Dropped(1, why);
            }
            Err(why) => return Outcome::Dropped(1 + self.spoil(&key), why),
        };
        if !more {
            datagram.total = Some(end);
        }
        datagram.is_marked |= header.ecn() == Ecn::Experienced.bits();
        if start == 0 {
            datagram.first = Some((*header, front));
        }
        datagram.have += payload.len();
        self.octets += payload.len() + OVERHEAD;
        self.shares.entry(key.0).or_default().octets += payload.len() + OVERHEAD;
        self.fragments += 1;
        let piece = Piece { start, end, octets: payload };
        datagram.pieces.insert(at, piece);
        if datagram.total == Some(datagram.have) {
            return self.complete(&key);
        }
        Outcome::Held
    }

    fn begin(&mut self, key: Key, now: Time) {
        self.serial += 1;
        self.order.insert(self.serial, key);
        self.by_source.insert((key.0, self.serial), key);
        self.shares.entry(key.0).or_default().datagrams += 1;
        let datagram = Datagram {
            serial: self.serial,
            until: now.after(self.limits.timeout),
            pieces: core::mem::take(&mut self.spare),
            ..Datagram::default()
        };
        self.datagrams.insert(key, datagram);
    }

    /// The datagram to give up so that `octets` more fit, and one more datagram if `key` is a new
    /// one: the oldest of the same source if that has its share, so that one source cannot have
    /// everybody's given up; else the oldest.
    fn surplus(&self, key: &Key, octets: usize) -> Option<Option<Key>> {
        let new = usize::from(!self.datagrams.contains_key(key));
        let limits = &self.limits;
        let share = self.shares.get(&key.0).copied().unwrap_or_default();
        // A quarter of the datagrams is a source's share.
        let source_full = share.octets + octets > limits.source_octets_max
            || share.datagrams + new > limits.datagrams_max.div_ceil(4);
        let full = self.octets + octets > limits.octets_max
            || self.datagrams.len() + new > limits.datagrams_max;
        if source_full {
            let mut own = self.by_source.range((key.0, 0)..=(key.0, u64::MAX));
            return Some(own.next().map(|(_, key)| *key));
        }
        full.then(|| self.order.first_key_value().map(|(_, key)| *key))
    }

    /// Gives up datagrams until a fragment fits; false if it does not all the same.
    fn make_room(&mut self, key: &Key, octets: usize) -> bool {
        while let Some(surplus) = self.surplus(key, octets) {
            let Some(datagram) = surplus.and_then(|key| self.remove(&key)) else {
                return false;
            };
            self.evicted += datagram.pieces.len();
        }
        true
    }

    /// Takes a datagram out.
    fn remove(&mut self, key: &Key) -> Option<Datagram> {
        let datagram = self.datagrams.remove(key)?;
        self.order.remove(&datagram.serial);
        self.by_source.remove(&(key.0, datagram.serial));
        self.forget(key.0, datagram.have, datagram.pieces.len());
        if let Some(share) = self.shares.get_mut(&key.0) {
            share.datagrams = share.datagrams.saturating_sub(1);
            if share.datagrams == 0 {
                self.shares.remove(&key.0);
            }
        }
        Some(datagram)
    }

    fn forget(&mut self, source: u32, octets: usize, fragments: usize) {
        let octets = octets + fragments * OVERHEAD;
        self.octets = self.octets.saturating_sub(octets);
        if let Some(share) = self.shares.get_mut(&source) {
            share.octets = share.octets.saturating_sub(octets);
        }
        self.fragments = self.fragments.saturating_sub(fragments);
    }

    /// Drops what a datagram has, and remembers to drop what follows. Answers how many fragments it
    /// had.
    fn spoil(&mut self, key: &Key) -> usize {
        let Some(datagram) = self.datagrams.get_mut(key) else {
            return 0;
        };
        let pieces = core::mem::take(&mut datagram.pieces);
        let have = core::mem::take(&mut datagram.have);
        datagram.first = None;
        datagram.spoilt = true;
        self.forget(key.0, have, pieces.len());
        pieces.len()
    }

    /// Joins the pieces of a complete datagram.
    fn complete(&mut self, key: &Key) -> Outcome {
        let Some(mut datagram) = self.remove(key) else {
            return Outcome::Held;
        };
        let fragments = datagram.pieces.len();
        let mut pieces = datagram.pieces.drain(..).map(|piece| piece.octets);
        let (Some((mut header, mut front)), Some(mut payload)) = (datagram.first, pieces.next())
        else {
            return Outcome::Dropped(fragments, &reason::MALFORMED);
        };
        for piece in pieces {
            payload.join(piece);
        }
        self.spare = datagram.pieces;
        header.fragment = Fragment::WHOLE;
        if datagram.is_marked && header.ecn() != 0 {
            // RFC 3168, section 5.3: a mark on one piece is a mark on all.
            header.traffic_class |= Ecn::Experienced.bits();
        }
        if !rewrite(&mut header, &mut front, payload.len()) {
            return Outcome::Dropped(fragments, &reasons::TOO_LONG);
        }
        Outcome::Whole(Whole { header, front, payload, fragments })
    }
}

/// Makes the first fragment's header the whole datagram's.
fn rewrite(header: &mut Header, front: &mut Front, payload: usize) -> bool {
    let Some((_, options)) = front.octets().split_first_chunk::<{ crate::wire::HEADER_LEN }>()
    else {
        return false;
    };
    let Ok(options) = Options::parse(options) else {
        return false;
    };
    let mut octets = [0; crate::wire::HEADER_LEN_MAX];
    if header.set_lengths(options, payload).is_err() {
        return false;
    }
    let Ok(written) = header.emit_with(options, &mut octets) else {
        return false;
    };
    *front = Front::copy(written);
    true
}

impl Datagram {
    /// The place among the pieces for octets `start..end`, or why they cannot have it.
    fn check(
        &self,
        start: usize,
        end: usize,
        more: bool,
        payload: &Message,
        limits: &Limits,
    ) -> Result<usize, &'static Reason> {
        if self.spoilt {
            return Err(&reasons::OVERLAP);
        }
        if end > DATAGRAM_LEN_MAX - crate::wire::HEADER_LEN {
            return Err(&reasons::TOO_LONG);
        }
        let at = self.pieces.partition_point(|piece| piece.start < start);
        let next = self.pieces.get(at);
        let before = at.checked_sub(1).and_then(|at| self.pieces.get(at));
        if let Some(same) = next.filter(|piece| (piece.start, piece.end) == (start, end))
            && (more || self.total == Some(end))
            && same.octets.octets().eq(payload.octets())
        {
            return Err(&reasons::DUPLICATE);
        }
        let overlaps = before.is_some_and(|piece| piece.end > start)
            || next.is_some_and(|piece| piece.start < end);
        // What lies behind the end, or another end, contradicts it: the same attack.
        let furthest = self.pieces.last().map_or(0, |piece| piece.end);
        let contradicts = match (self.total, more) {
            (Some(total), true) => end >= total,
            (Some(total), false) => end != total,
            (None, true) => false,
            (None, false) => furthest > end,
        };
        if overlaps || contradicts {
            return Err(&reasons::OVERLAP);
        }
        if self.pieces.len() >= limits.fragments_max {
            return Err(&reasons::TOO_MANY_FRAGMENTS);
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests;
