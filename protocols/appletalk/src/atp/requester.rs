//! The requester: sends a request until all responses are there (Inside AppleTalk, chapter 9,
//! "ATP-XO protocol" and "ATP interface").

use super::payload::{Packet, Payload, Peer};
use super::slots::Slots;
use super::wire::{DATA_OCTETS_MAX, Header, Kind, RESPONSES_MAX, ReleaseTimer};
use core::num::NonZeroU8;
use core::time::Duration;

/// Grain of timers: work that falls due within this time may wait for work that is due then.
const GRAIN: Duration = Duration::from_millis(10);
/// The shortest interval between two sendings.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The bitmap of so many responses, eight at most.
#[must_use]
pub const fn bitmap_of(responses: usize) -> u8 {
    match responses {
        0 => 0,
        1..RESPONSES_MAX => (1 << responses) - 1,
        _ => u8::MAX,
    }
}

/// Options of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Exactly once, and how long the responder is to remember it; `None`: at least once.
    pub once: Option<ReleaseTimer>,
    /// The user octets of the request.
    pub user: [u8; 4],
    /// The responses wanted. With none of them the request is sent as often as `tries` says, and
    /// then fails: so a peer is told at intervals that this end is there.
    pub bitmap: u8,
    /// Times that the request is sent at most; `None` for without end.
    pub tries: Option<NonZeroU8>,
    /// The time between two sendings, and from the last to the failure; 10 ms at least.
    pub interval: Duration,
}

impl Want {
    /// One that asks at least once for up to eight responses, five times, every two seconds.
    pub const DEFAULT: Self = Self {
        once: None,
        user: [0; 4],
        bitmap: u8::MAX,
        tries: NonZeroU8::new(5),
        interval: Duration::from_secs(2),
    };

    /// Options by a graph's parameters, for a request without its own: `tries` is 0 for without
    /// end, and `release` counts for one that is executed exactly once.
    #[must_use]
    pub fn usual(xo: bool, tries: u8, interval: Duration, release: Duration) -> Self {
        Self {
            once: xo.then(|| ReleaseTimer::at_least(release)),
            tries: NonZeroU8::new(tries),
            interval,
            ..Self::DEFAULT
        }
    }
}

/// The bounds of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transactions under way, at most; 16384 beyond that.
    pub transactions: usize,
}

/// One response that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<P> {
    /// User octets of the response.
    pub user: [u8; 4],
    /// Data of the response.
    pub data: P,
}

/// The responses of a transaction, by sequence number.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrived<P> {
    /// Responses that came.
    pub parts: [Option<Part<P>>; RESPONSES_MAX],
    /// One of them said that it is the last.
    pub end_of_message: bool,
}

impl<P> Arrived<P> {
    const NONE: Self = Self { parts: [const { None }; RESPONSES_MAX], end_of_message: false };

    /// Bitmap of the responses that came.
    #[must_use]
    pub fn bitmap(&self) -> u8 {
        self.parts.iter().rev().fold(0, |map, part| map << 1 | u8::from(part.is_some()))
    }

    /// The user octets of the first that came; zeros if none did.
    #[must_use]
    pub fn user(&self) -> [u8; 4] {
        self.parts.iter().flatten().next().map_or([0; 4], |part| part.user)
    }
}

impl<P: Payload> Arrived<P> {
    /// The data in one, as far as they are without a gap from the first response wanted on; `None`
    /// if that did not come.
    pub fn join(self, wanted: u8) -> Option<P> {
        let wanted = (0..RESPONSES_MAX).filter(|at| wanted & 1 << at != 0);
        let mut whole: Option<P> = None;
        let mut parts = self.parts;
        for at in wanted {
            let Some(part) = parts.get_mut(at).and_then(Option::take) else {
                break;
            };
            match &mut whole {
                Some(whole) => whole.join(part.data),
                None => whole = Some(part.data),
            }
        }
        whole
    }
}

/// Why a transaction does not begin. The request comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// More than 578 octets.
    #[error("a request of more than 578 octets")]
    TooBig,
    /// As many are under way as may be.
    #[error("too many transactions")]
    Full,
    /// No buffer to keep the request in.
    #[error("no buffers")]
    NoBuffers,
}

/// The number of a transaction that has begun and its request, to be sent; or why it has not, with
/// the request and its owner.
pub type Begun<A, P, T> = Result<(u16, Packet<A, P>), (BeginError, P, T)>;

/// Why a response is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    /// No transaction of this number with this peer from this socket waits.
    #[error("no such transaction")]
    Unknown,
    /// The response was not asked for, or is there already.
    #[error("repeated response")]
    Repeated,
    /// More than 578 octets.
    #[error("a response of more than 578 octets")]
    TooBig,
}

/// Result of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<A, P, T> {
    /// The response is kept; the request is to be sent again at once if the responder asked for
    /// that.
    Kept(Option<Packet<A, P>>),
    /// The response was the last.
    Done {
        /// Owner of the transaction.
        owner: T,
        /// Bitmap of the wanted responses.
        wanted: u8,
        /// All responses.
        arrived: Arrived<P>,
        /// The release to be sent, of a transaction that is executed exactly once.
        release: Option<Packet<A, P>>,
    },
}

/// Work that has fallen due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<A, P, T> {
    /// To be sent again.
    Again(Packet<A, P>),
    /// No more is heard of this one.
    Failed {
        /// Owner of the transaction.
        owner: T,
        /// Bitmap of the wanted responses.
        wanted: u8,
        /// Responses that came.
        arrived: Arrived<P>,
    },
}

/// A transaction under way.
struct Transaction<A, P, T> {
    peer: A,
    socket: u8,
    once: Option<ReleaseTimer>,
    user: [u8; 4],
    wanted: u8,
    missing: u8,
    /// Times that the request may still be sent; `None` for without end.
    left: Option<u8>,
    interval: Duration,
    due: Duration,
    request: P,
    arrived: Arrived<P>,
    owner: T,
}

impl<A: Peer, P: Payload, T> Transaction<A, P, T> {
    /// The request once more, for what is missing; `None` if there are no buffers.
    fn packet(&self, tid: u16) -> Option<Packet<A, P>> {
        let data = Some(self.request.again()?);
        let header = Header::request(self.once, self.missing, tid, self.user);
        Some(Packet { to: self.peer, socket: self.socket, header, data })
    }

    fn release(&self, tid: u16) -> Option<Packet<A, P>> {
        let header = Header::new(Kind::Release, 0, tid, [0; 4]);
        let (to, socket) = (self.peer, self.socket);
        self.once.map(|_| Packet { to, socket, header, data: None })
    }
}

/// The transactions of a host's users, each with an `owner` that comes back with the reply.
pub struct Requester<A, P, T> {
    slots: Slots<Transaction<A, P, T>>,
    /// Nothing is due before.
    earliest: Option<Duration>,
    /// The places before this one have nothing that is due.
    looked_at: usize,
}

impl<A: Peer, P: Payload, T> Requester<A, P, T> {
    /// One without transactions. The first takes the number after `last`, which is to be random, so
    /// that a host that starts again does not use those of before.
    #[must_use]
    pub fn new(limits: Limits, last: u16) -> Self {
        Self { slots: Slots::new(limits.transactions, last), earliest: None, looked_at: 0 }
    }

    /// Number of transactions under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Begins a transaction of `socket` with `peer`: its number, and the request to be sent.
    ///
    /// # Errors
    /// [`BeginError`], with the request and its owner.
    pub fn begin(
        &mut self,
        now: Duration,
        (socket, peer): (u8, A),
        want: &Want,
        request: P,
        owner: T,
    ) -> Begun<A, P, T> {
        if request.octets() > DATA_OCTETS_MAX {
            return Err((BeginError::TooBig, request, owner));
        }
        let Some(tid) = self.slots.next_number() else {
            return Err((BeginError::Full, request, owner));
        };
        let Some(kept) = request.again() else {
            return Err((BeginError::NoBuffers, request, owner));
        };
        let interval = want.interval.max(INTERVAL_MIN);
        let due = now.saturating_add(interval);
        let transaction = Transaction {
            peer,
            socket,
            once: want.once,
            user: want.user,
            wanted: want.bitmap,
            missing: want.bitmap,
            left: want.tries.map(|tries| tries.get() - 1),
            interval,
            due,
            request: kept,
            arrived: Arrived::NONE,
            owner,
        };
        let header = Header::request(want.once, want.bitmap, tid, want.user);
        self.slots.enter(tid, transaction);
        self.earliest = Some(self.earliest.map_or(due, |earliest| earliest.min(due)));
        Ok((tid, Packet { to: peer, socket, header, data: Some(request) }))
    }

    /// A response from `from` to `socket`.
    ///
    /// # Errors
    /// Why it is dropped, with the data.
    pub fn response(
        &mut self,
        now: Duration,
        (from, socket): (A, u8),
        header: &Header,
        data: P,
    ) -> Result<Heard<A, P, T>, (Unheard, P)> {
        let Some(transaction) = self.slots.get_mut(header.tid) else {
            return Err((Unheard::Unknown, data));
        };
        if !transaction.peer.is(&from) || transaction.socket != socket {
            return Err((Unheard::Unknown, data));
        }
        let bit = 1u8.checked_shl(u32::from(header.number)).unwrap_or(0);
        if transaction.missing & bit == 0 {
            return Err((Unheard::Repeated, data));
        }
        if data.octets() > DATA_OCTETS_MAX {
            return Err((Unheard::TooBig, data));
        }
        transaction.missing &= !bit;
        if let Some(part) = transaction.arrived.parts.get_mut(usize::from(header.number)) {
            *part = Some(Part { user: header.user, data });
        }
        if header.end_of_message {
            // None behind it is of this reply, whatever came before.
            transaction.missing &= bit - 1;
            transaction.arrived.end_of_message = true;
            let behind = usize::from(header.number) + 1;
            transaction.arrived.parts.iter_mut().skip(behind).for_each(|part| *part = None);
        }
        if transaction.missing != 0 {
            let again = match header.send_status {
                true => {
                    // Later than the earliest that is known.
                    transaction.due = now.saturating_add(transaction.interval);
                    transaction.packet(header.tid)
                }
                false => None,
            };
            return Ok(Heard::Kept(again));
        }
        match self.slots.remove(header.tid) {
            Some(done) => Ok(Heard::Done {
                release: done.release(header.tid),
                owner: done.owner,
                wanted: done.wanted,
                arrived: done.arrived,
            }),
            None => Ok(Heard::Kept(None)),
        }
    }

    /// Ends a transaction before its time: its owner, and what came.
    pub fn cancel(&mut self, tid: u16) -> Option<(T, Arrived<P>)> {
        let transaction = self.slots.remove(tid)?;
        Some((transaction.owner, transaction.arrived))
    }

    /// The owner of a transaction under way.
    pub fn owner(&self, tid: u16) -> Option<&T> {
        self.slots.get(tid).map(|transaction| &transaction.owner)
    }

    /// The number of a transaction whose owner `is` says true of.
    pub fn find(&self, mut is: impl FnMut(&T) -> bool) -> Option<u16> {
        self.slots.iter().find(|(_, transaction)| is(&transaction.owner)).map(|(tid, _)| tid)
    }

    /// Time of the next [`poll`](Self::poll); `None` if nothing will be due. May be too early.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.earliest
    }

    /// One transaction that is due, until there is none.
    pub fn poll(&mut self, now: Duration) -> Option<Due<A, P, T>> {
        if self.earliest? > now {
            return None;
        }
        while let Some(place) = self.slots.at(self.looked_at) {
            self.looked_at += 1;
            let Some((tid, transaction)) = place else {
                continue;
            };
            if transaction.due > now {
                continue;
            }
            if let Some(due) = self.expire(tid, now) {
                return Some(due);
            }
        }
        self.looked_at = 0;
        let next = self.slots.iter().map(|(_, transaction)| transaction.due).min();
        self.earliest = next.map(|due| due.max(now.saturating_add(GRAIN)));
        None
    }

    /// Time at which a transaction is sent again or fails, for a shell that waits for each by
    /// itself and calls [`expire`](Self::expire) instead of [`poll`](Self::poll); `None` if it is
    /// over.
    #[must_use]
    pub fn due_of(&self, tid: u16) -> Option<Duration> {
        self.slots.get(tid).map(|transaction| transaction.due)
    }

    /// The next try of a transaction, or its end; `None` if it is not due, is over, or could not be
    /// sent again for want of buffers.
    pub fn expire(&mut self, tid: u16, now: Duration) -> Option<Due<A, P, T>> {
        let transaction = self.slots.get_mut(tid).filter(|transaction| transaction.due <= now)?;
        if transaction.left == Some(0) {
            let Transaction { owner, wanted, arrived, .. } = self.slots.remove(tid)?;
            return Some(Due::Failed { owner, wanted, arrived });
        }
        transaction.left = transaction.left.map(|left| left - 1);
        transaction.due = now.saturating_add(transaction.interval);
        transaction.packet(tid).map(Due::Again)
    }
}
