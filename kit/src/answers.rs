//! Limits on answers to a source that has proved nothing.
//!
//! The sender of a datagram writes its source address, and the answer goes to that address, which
//! may never have asked. So an answer is at most [`TIMES_MAX`] times as long as its question, or is
//! taken from an allowance of its source, of the source's neighbours and of all ([`Allowance`]).
//! Messages to many, and messages from ports that answer by themselves, get no answer
//! ([`may_serve`]), and a loop of the same octets ends ([`Repeats`]).
//!
//! A peer that has returned something which we sent to it has proved that it is there:
//! [`is_proved`].

use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell};
use core::time::Duration;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, Sender};
use xk_core::reason::{Class, Reason};
use xk_core::{HostAddr, Kernel, Message, Secret, SessionRef};

use crate::control::{PeerEther, PeerHost, PeerPort, PeerProved, ServesPort, SpecificDestination};
use crate::net::addr::EthAddr;
use crate::net::ports::USER_PORT_FIRST;

/// Largest ratio of an answer's length to that of its question (RFC 9000, section 8, has the same
/// for QUIC).
pub const TIMES_MAX: usize = 3;

/// An answer that a source has no allowance left for.
pub static UNPROVED: Reason = Reason::new("answer to unproved source", Class::Exhausted);
/// An answer that its node has no allowance left for.
pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);
/// A message to many, for an application that answers one.
pub static TO_MANY: Reason = Reason::new("sent to many", Class::NotMine);
/// A message from a port that answers whatever comes to it.
pub static SERVICE_PORT: Reason = Reason::new("from a service port", Class::NotMine);
/// Octets that go round without end: what we answer is answered.
pub static LOOP: Reason = Reason::new("in a loop", Class::Exhausted);

/// An attribute of a reply: its request held something that was sent to that peer, and that only
/// its receiver can know. It says nothing of other requests of the same source: those may be
/// forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskerProved;

impl Attribute for AskerProved {
    const KEY: u32 = xk_core::name_key("asker-proved");
    const CROSSES: Crossing = Crossing { down: Some(Sender::Domain), up: None };

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        [0; ATTRIBUTE_OCTETS]
    }

    fn decode(_: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self
    }
}

/// Whether the peer of a session has shown that it gets what is sent to it, or is this host itself.
#[must_use]
pub fn is_proved(cx: &Kernel, session: &SessionRef) -> bool {
    session.ask(cx, PeerProved).is_some()
}

/// The host, or else the station, behind a session, for [`Allowance`], as
/// [`HostAddr::source`] counts them; 0 if neither is known.
#[must_use]
pub fn source(cx: &Kernel, session: &SessionRef) -> u64 {
    if let Some(peer) = session.ask(cx, PeerHost::default()) {
        return peer.host.source();
    }
    let station = session.ask(cx, PeerEther::default());
    station.map_or(0, |peer| EthAddr(peer.address).source())
}

/// Whether what comes by a session was sent to one host alone, for protocols whose answers are not
/// made for broadcasts and groups (RFC 1122, section 4.1.3.6).
///
/// # Errors
/// That it was not.
pub fn is_for_one(cx: &Kernel, session: &SessionRef) -> Result<(), &'static Reason> {
    let (host, many) = (HostAddr::UNSPECIFIED, false);
    let sent_to = session.ask(cx, SpecificDestination { host, many });
    match sent_to {
        Some(SpecificDestination { many: true, .. }) => Err(&TO_MANY),
        _ => Ok(()),
    }
}

/// Whether an application that answers every message, of one peer at a time, may take the session
/// that `open_done` offers: not if it is for a broadcast or a group, nor if the peer's port is
/// reserved, or is served here and so, likely, there. Two such applications would answer each other
/// without end.
///
/// # Errors
/// Why not.
pub fn may_serve(cx: &Kernel, session: &SessionRef) -> Result<(), &'static Reason> {
    if is_proved(cx, session) {
        return Ok(());
    }
    is_for_one(cx, session)?;
    let Some(PeerPort { port }) = session.ask(cx, PeerPort::default()) else {
        return Ok(());
    };
    let is_served = || {
        let served = session.ask(cx, ServesPort { port, served: false });
        served.is_some_and(|answer| answer.served)
    };
    if port < USER_PORT_FIRST || is_served() {
        return Err(&SERVICE_PORT);
    }
    Ok(())
}

/// Places for sources, and for their neighbours, which differ in the last eight bits alone.
const SOURCES: usize = 1024;
const NEIGHBOURS: usize = 256;
/// Allowances of all neighbours of a source together, and of all sources, as multiples of that of
/// one.
const NEIGHBOURS_SHARE: u64 = 4;
const ALL_SHARE: u64 = 64;

/// Limits what goes to sources that have proved nothing: octets beyond [`TIMES_MAX`] times their
/// own, or messages. The number of places is fixed, and a hash under a secret finds a source's:
/// sources may share one, and then its allowance. Many forged sources use up what may go to all;
/// none gives another more.
///
/// What is left of a shared allowance would tell a source what others were sent: whether forged
/// questions of theirs had answers, and so which ports and connections there are (CVE-2016-5696,
/// CVE-2020-25705). So a source's own allowance comes first, and what sources share is charged by
/// chance: nothing to twice the price, and up to a half of it before the first after a quiet time.
/// A source alone gets all of its own nevertheless.
pub struct Allowance {
    /// Nanoseconds for a unit, in 1024 parts; 0 if nothing is allowed.
    cost: u64,
    /// Nanoseconds of arrears that are allowed.
    burst: u64,
    /// Time until which each place is paid for, in nanoseconds: sources, neighbours, all. Made when
    /// it is first needed.
    paid: OnceCell<(Secret, Vec<Cell<u64>>)>,
}

impl Allowance {
    /// `rate` units in a second for each source, and `burst` at once; of its neighbours and of all
    /// together 4 and 64 times as many.
    #[must_use]
    pub fn new(rate: u64, burst: u64) -> Self {
        let cost = (1024 * 1_000_000_000u64).checked_div(rate).unwrap_or(0);
        Self { cost, burst: burst.saturating_mul(cost) / 1024, paid: OnceCell::new() }
    }

    /// Whether an answer of so many octets may go to a source, for a question of so many.
    #[inline]
    pub fn may_answer(&self, cx: &Kernel, source: u64, asked: usize, answer: usize) -> bool {
        // A 64th for the headers of its fragments.
        answer + answer / 64 <= TIMES_MAX * asked || self.take(cx, source, answer)
    }

    /// Takes so many units from the allowance of a source, if there are as many.
    #[cold]
    pub fn take(&self, cx: &Kernel, source: u64, units: usize) -> bool {
        if self.cost == 0 {
            return false;
        }
        let places = SOURCES + NEIGHBOURS + 1;
        let (secret, paid) = self.paid.get_or_init(|| (cx.secret(), vec![Cell::new(0); places]));
        let (now, price) = (cx.now().as_ns(), units as u64 * self.cost / 1024);
        let place = |of: u64, count: usize| (secret.hash(&[of]) % count as u64) as usize;
        let own = paid.get(place(source, SOURCES));
        let Some((own, then)) = own.and_then(|own| Some((own, self.room(own, now, price)?))) else {
            return false;
        };
        // Another number than any source has.
        let neighbours = SOURCES + place(1 << 63 | source >> 8, NEIGHBOURS);
        let random = cx.random();
        let shared = [(neighbours, NEIGHBOURS_SHARE), (SOURCES + NEIGHBOURS, ALL_SHARE)];
        let shared = shared.map(|(at, share)| {
            let place = paid.get(at)?;
            if place.get() <= now {
                place.set(now + random.below(self.burst / 2 + 1));
            }
            // There is room for the price, and up to twice as much is charged: free of charge, a
            // crowd would find a way through what is used up.
            let price = price / share;
            let then = self.room(place, now, price)?;
            Some((place, then - price + price * random.below(3)))
        });
        let is_allowed = shared.iter().all(Option::is_some);
        if is_allowed {
            own.set(then);
            for (place, then) in shared.into_iter().flatten() {
                place.set(then);
            }
        }
        is_allowed
    }

    /// Time until which a place is paid for with this price; `None` if that is too much.
    fn room(&self, place: &Cell<u64>, now: u64, price: u64) -> Option<u64> {
        let then = place.get().max(now) + price;
        (then <= now + self.burst).then_some(then)
    }
}

/// Octets at the front of a message that tell it from others.
const FRONT: usize = 64;
/// Number of messages that are remembered.
const REMEMBERED: usize = 256;
/// Times that one message may come at once; it may come once more after each [`PAUSE`].
const TIMES: u64 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Recent messages, for an application that returns messages over layers which do not tell
/// questions from answers. A message that comes again and again is returned by the peer, too:
/// dropping it once ends the loop.
#[derive(Default)]
pub struct Repeats {
    /// Made when first needed.
    places: OnceCell<(Secret, Vec<Cell<Came>>)>,
}

/// Hash of a message, and the time until which its arrivals have been paid for.
type Came = (u64, u64);

impl Repeats {
    /// Whether this message, which came now by `session`, has not come too often. What comes by
    /// others does not count, or they could tell what this one was sent.
    pub fn may_come(&self, cx: &Kernel, session: &SessionRef, message: &Message) -> bool {
        let mut front = [0; FRONT];
        message.copy_to(0, &mut front);
        let mut words = [message.len() as u64; FRONT / 8 + 2];
        words[1] = session.id().0;
        for (word, octets) in words.iter_mut().skip(2).zip(front.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*octets);
        }
        let (secret, places) =
            self.places.get_or_init(|| (cx.secret(), vec![Cell::new((0, 0)); REMEMBERED]));
        let told = secret.hash(&words);
        let Some(place) = places.get((told % REMEMBERED as u64) as usize) else {
            return true;
        };
        let (now, pause) = (cx.now().as_ns(), PAUSE.as_nanos() as u64);
        let (is, paid) = place.get();
        let then = if is == told { paid.max(now) } else { now } + pause;
        let may = then <= now + TIMES * pause;
        if may {
            place.set((told, then));
        }
        may
    }
}

#[cfg(test)]
mod tests;
