//! The responder: has requests executed, and remembers the responses of those that are to be
//! executed exactly once (Inside AppleTalk, chapter 9, "ATP-XO protocol").

use super::hosts::{Hosts, KNOWN_EACH};
use super::payload::{Packet, Payload, Peer};
use super::requester::bitmap_of;
use super::wire::{DATA_OCTETS_MAX, Header, Kind, RESPONSES_MAX, ReleaseTimer};
use alloc::vec::Vec;
use core::time::Duration;

/// Grain of release timers.
const GRAIN: Duration = Duration::from_secs(1);

/// The bounds of what a responder remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Transactions, at most.
    pub transactions: usize,
    /// Largest number of transactions of one host.
    pub per_host: usize,
    /// Octets of responses that are kept; one more reply may go beyond that.
    pub octets: usize,
    /// Packets a second that one host is sent, beyond the first of each reply, without a release of
    /// them; as many at once. 0: no bound.
    pub unreleased: u32,
}

impl Bounds {
    /// 1024 transactions, a quarter of them one host's, 4 MiB, 1024 packets a second.
    pub const DEFAULT: Self =
        Self { transactions: 1024, per_host: 256, octets: 4 << 20, unreleased: 1024 };
}

/// The request being executed: where to send its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket<A> {
    /// The requester.
    pub peer: A,
    /// Our socket, which it asked.
    pub socket: u8,
    /// The transaction.
    pub tid: u16,
    /// Exactly once, with this release timer.
    pub once: Option<ReleaseTimer>,
    /// The responses wanted.
    pub bitmap: u8,
}

/// Verdict on a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<A, P> {
    /// To be executed.
    Execute(Ticket<A>),
    /// The request has been executed: these responses go once more.
    Repeat(Segments<A, P>),
    /// The request is being executed, and its responses will go as it asks.
    InProgress,
    /// The host has, or all have, as many transactions remembered as may be, or the octets are used
    /// up: dropped, and the requester asks again. Of a host that has released something in the last
    /// minute a few are remembered all the same, so that a flood in forged names leaves it room.
    Full,
    /// The host was sent as much as may be that it did not release: dropped, for the source may be
    /// forged and that host one that asked for nothing.
    Unreleased,
}

/// Why a reply is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// More than eight packets.
    #[error("a reply of more than eight packets")]
    TooBig,
    /// The transaction is forgotten: its release timer ran out, or the requester released it.
    #[error("no such request")]
    Unknown,
    /// There is a reply already.
    #[error("replied to already")]
    Repeated,
    /// No buffer to keep it in, or to cut it.
    #[error("no buffers")]
    NoBuffers,
}

/// The responses of one reply, to be sent one by one.
#[derive(Debug, PartialEq, Eq)]
pub struct Segments<A, P> {
    ticket: Ticket<A>,
    user: [u8; 4],
    parts: [Option<P>; RESPONSES_MAX],
    count: usize,
    next: usize,
    omitted: u8,
}

impl<A, P> Segments<A, P> {
    /// Responses that are not sent because the request did not ask for them. A bit above all
    /// requested ones means that the reply is longer than the requester takes.
    #[must_use]
    pub fn omitted(&self) -> u8 {
        self.omitted
    }
}

impl<A: Copy, P> Iterator for Segments<A, P> {
    type Item = Packet<A, P>;

    fn next(&mut self) -> Option<Packet<A, P>> {
        while self.next < self.count {
            let at = self.next;
            self.next += 1;
            let Some(data) = self.parts.get_mut(at).and_then(Option::take) else {
                continue;
            };
            let Ticket { peer, socket, tid, .. } = self.ticket;
            let mut header = Header::new(Kind::Response, at as u8, tid, self.user);
            header.end_of_message = self.next == self.count;
            return Some(Packet { to: peer, socket, header, data: Some(data) });
        }
        None
    }
}

/// A reply that is kept.
struct Kept<P> {
    user: [u8; 4],
    parts: [Option<P>; RESPONSES_MAX],
    count: usize,
    octets: usize,
}

/// A transaction that is to be executed once: the book's response control block.
struct Control<P> {
    timer: ReleaseTimer,
    /// The responses that the latest request asked for.
    bitmap: u8,
    due: Duration,
    reply: Option<Kept<P>>,
}

/// Requester, our socket, transaction.
type Key<A> = (A, u8, u16);

/// The requests that a host's servers execute.
pub struct Responder<A, P> {
    bounds: Bounds,
    /// In the order of the keys. A vector, for it keeps its room: an insertion moves at most as
    /// many octets as a packet has.
    keys: Vec<(Key<A>, u32)>,
    controls: Vec<Option<Control<P>>>,
    free: Vec<u32>,
    octets: usize,
    earliest: Option<Duration>,
    hosts: Hosts,
}

impl<A: Peer, P: Payload> Responder<A, P> {
    /// One that remembers nothing yet.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            keys: Vec::new(),
            controls: Vec::new(),
            free: Vec::new(),
            octets: 0,
            earliest: None,
            hosts: Hosts::new(bounds.unreleased),
        }
    }

    /// Number of remembered transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Octets of the responses that are kept.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets
    }

    fn place(&self, key: &Key<A>) -> Result<usize, usize> {
        self.keys.binary_search_by(|(other, _)| other.cmp(key))
    }

    fn control(&mut self, key: &Key<A>) -> Option<&mut Control<P>> {
        let at = self.place(key).ok()?;
        let (_, slot) = self.keys.get(at)?;
        self.controls.get_mut(*slot as usize)?.as_mut()
    }

    fn touch(&mut self, due: Duration) {
        self.earliest = Some(self.earliest.map_or(due, |earliest| earliest.min(due)));
    }

    /// A request from `from` to `socket`.
    pub fn request(
        &mut self,
        now: Duration,
        (from, socket): (A, u8),
        header: &Header,
    ) -> Verdict<A, P> {
        let (tid, bitmap, once) = (header.tid, header.number, header.once());
        let ticket = Ticket { peer: from, socket, tid, once, bitmap };
        let host = from.host();
        if !self.hosts.may(host, now) {
            return Verdict::Unreleased;
        }
        let Some(timer) = once else {
            return Verdict::Execute(ticket);
        };
        let key = (from, socket, tid);
        if let Some(control) = self.control(&key) {
            control.timer = timer;
            control.bitmap = bitmap;
            let due = now.saturating_add(timer.time());
            control.due = due;
            let verdict = match &control.reply {
                Some(kept) => Verdict::Repeat(segments(ticket, kept)),
                None => Verdict::InProgress,
            };
            self.touch(due);
            if let Verdict::Repeat(segments) = &verdict {
                let packets = segments.parts.iter().flatten().count();
                self.hosts.spend(host, packets, now);
            }
            return verdict;
        }
        let Bounds { transactions, per_host, octets, .. } = self.bounds;
        let of_host = || self.keys.iter().filter(|((peer, ..), _)| peer.host() == host).count();
        let len = self.keys.len();
        let is_full = len >= transactions || self.octets >= octets;
        let has_share = || self.hosts.is_known(host, now) && of_host() < KNOWN_EACH.min(per_host);
        if len >= per_host && of_host() >= per_host || is_full && !has_share() {
            return Verdict::Full;
        }
        let due = now.saturating_add(timer.time());
        let control = Control { timer, bitmap, due, reply: None };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.controls.push(None);
                self.controls.len() as u32 - 1
            }
        };
        if let Some(place) = self.controls.get_mut(slot as usize) {
            *place = Some(control);
        }
        let at = self.place(&key).unwrap_or_else(|at| at);
        self.keys.insert(at, (key, slot));
        self.touch(due);
        Verdict::Execute(ticket)
    }

    /// The reply to a request: the responses to be sent, each with these user octets and at most
    /// `packet_octets` of data (578 beyond that). One response at least, be it empty.
    ///
    /// # Errors
    /// [`ReplyError`], with what is left of the data.
    pub fn reply(
        &mut self,
        now: Duration,
        ticket: &Ticket<A>,
        user: [u8; 4],
        packet_octets: usize,
        data: P,
    ) -> Result<Segments<A, P>, (ReplyError, P)> {
        let packet_octets = packet_octets.clamp(1, DATA_OCTETS_MAX);
        let octets = data.octets();
        let count = octets.div_ceil(packet_octets).max(1);
        if count > RESPONSES_MAX {
            return Err((ReplyError::TooBig, data));
        }
        if ticket.once.is_none() {
            let parts = cut(data, packet_octets, count)?;
            let mut all = Segments { ticket: *ticket, user, parts, count, next: 0, omitted: 0 };
            for (at, part) in all.parts.iter_mut().enumerate() {
                if ticket.bitmap & 1 << at == 0 && part.take().is_some() {
                    all.omitted |= 1 << at;
                }
            }
            let packets = all.parts.iter().flatten().count();
            self.hosts.spend(ticket.peer.host(), packets.saturating_sub(1), now);
            return Ok(all);
        }
        let key = (ticket.peer, ticket.socket, ticket.tid);
        let Some(control) = self.control(&key) else {
            return Err((ReplyError::Unknown, data));
        };
        if control.reply.is_some() {
            return Err((ReplyError::Repeated, data));
        }
        let parts = cut(data, packet_octets, count)?;
        let kept = control.reply.insert(Kept { user, parts, count, octets });
        let due = now.saturating_add(control.timer.time());
        control.due = due;
        let ticket = Ticket { bitmap: control.bitmap, ..*ticket };
        let mut segments = segments(ticket, kept);
        // Sent first is the reply itself, with the room in front of it; kept is the copy.
        for (sent, kept) in segments.parts.iter_mut().zip(&mut kept.parts) {
            if let (Some(sent), Some(kept)) = (sent, kept) {
                core::mem::swap(sent, kept);
            }
        }
        self.octets += octets;
        self.touch(due);
        let packets = segments.parts.iter().flatten().count();
        self.hosts.spend(ticket.peer.host(), packets.saturating_sub(1), now);
        Ok(segments)
    }

    /// The request is not executed: it may be when it comes again.
    pub fn refuse(&mut self, ticket: &Ticket<A>) {
        let key = (ticket.peer, ticket.socket, ticket.tid);
        if ticket.once.is_some()
            && let Ok(at) = self.place(&key)
            && self.control(&key).is_some_and(|control| control.reply.is_none())
        {
            self.forget(at);
        }
    }

    /// A release from `from` to `socket`: whether there was what it releases. One of a request that
    /// has no reply yet is not the requester's, or is late, and releases nothing.
    pub fn release(&mut self, now: Duration, (from, socket): (A, u8), tid: u16) -> bool {
        let key = (from, socket, tid);
        let kept = self.control(&key).and_then(|control| control.reply.as_ref());
        let packets = kept.map(|kept| kept.count);
        let (Ok(at), Some(packets)) = (self.place(&key), packets) else { return false };
        self.forget(at);
        self.hosts.release(from.host(), packets.saturating_sub(1), now);
        true
    }

    fn forget(&mut self, at: usize) {
        let (_, slot) = self.keys.remove(at);
        let control = self.controls.get_mut(slot as usize).and_then(Option::take);
        if let Some(kept) = control.and_then(|control| control.reply) {
            self.octets -= kept.octets;
        }
        self.free.push(slot);
    }

    /// Forgets all of a socket of ours that is closed.
    pub fn close(&mut self, socket: u8) {
        self.forget_where(|(_, own, _), _| *own == socket);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.forget_where(|_, _| true);
    }

    /// Time of the next [`poll`](Self::poll); `None` if nothing will be due. May be too early.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.earliest
    }

    /// Forgets what nothing was heard of for too long: how many, and of how many of those no reply
    /// was ever made.
    pub fn poll(&mut self, now: Duration) -> (usize, usize) {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return (0, 0);
        }
        let gone = self.forget_where(|_, control| control.due <= now);
        let next = self.controls.iter().flatten().map(|control| control.due).min();
        self.earliest = next.map(|due| due.max(now.saturating_add(GRAIN)));
        gone
    }

    fn forget_where(&mut self, mut is: impl FnMut(&Key<A>, &Control<P>) -> bool) -> (usize, usize) {
        let Self { keys, controls, free, octets, .. } = self;
        let (mut gone, mut without) = (0, 0);
        keys.retain(|(key, slot)| {
            let Some(place) = controls.get_mut(*slot as usize) else {
                return false;
            };
            let Some(control) = place.take_if(|control| is(key, control)) else {
                return true;
            };
            gone += 1;
            match control.reply {
                Some(kept) => *octets -= kept.octets,
                None => without += 1,
            }
            free.push(*slot);
            false
        });
        (gone, without)
    }
}

/// The responses that a request asks for, of what is kept.
fn segments<A, P: Payload>(ticket: Ticket<A>, kept: &Kept<P>) -> Segments<A, P> {
    let asked = ticket.bitmap;
    let parts = core::array::from_fn(|at| {
        let part = kept.parts.get(at)?.as_ref()?;
        (asked & 1 << at != 0).then(|| part.again()).flatten()
    });
    let omitted = bitmap_of(kept.count) & !asked;
    Segments { ticket, user: kept.user, parts, count: kept.count, next: 0, omitted }
}

/// Cuts a reply into `count` parts of at most so many octets.
fn cut<P: Payload>(
    data: P,
    octets: usize,
    count: usize,
) -> Result<[Option<P>; RESPONSES_MAX], (ReplyError, P)> {
    let mut parts = [const { None }; RESPONSES_MAX];
    let mut rest = data;
    let (before, last) = parts.split_at_mut(count - 1);
    for part in before {
        match rest.cut(octets) {
            Some(front) => *part = Some(front),
            None => return Err((ReplyError::NoBuffers, rest)),
        }
    }
    if let Some(last) = last.first_mut() {
        *last = Some(rest);
    }
    Ok(parts)
}
