//! Congestion control: how much may be in the network, and how fast it may go there (RFC 5681, RFC
//! 9438, BBR).
//!
//! An algorithm sees what acknowledgments told ([`Sample`]) and what went wrong ([`Trouble`]) and
//! answers with a window, a threshold and, if it has an opinion, a pacing rate. It knows no
//! segment, no timer and no clock; [`loss::Recovery`](crate::loss::Recovery) tells it all.

mod bbr;
mod cubic;
mod hystart;
mod newreno;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use newreno::NewReno;

use crate::loss::RateSample;
use alloc::boxed::Box;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;
use xk_core::Time;
use xk_core::control::{Field, Reader, Writer};

/// Segments in the initial window (RFC 6928, section 2).
pub const INITIAL_SEGMENTS: u32 = 10;

/// The largest window an algorithm may have, in octets: what the largest scaled receive window
/// admits (RFC 7323, section 2.3).
pub const WINDOW_MAX: u32 = xk_kit::net::stream::StreamInfo::THRESHOLD_NONE;

/// Figures of one acknowledgment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time of its arrival.
    pub now: Time,
    /// Octets by which it advanced: what windows grow by that count acknowledged octets (RFC 3465,
    /// section 2.1).
    pub acked_octets: u32,
    /// Octets that are delivered now and were not before, cumulatively or selectively.
    pub delivered_octets: u32,
    /// Octets that this acknowledgment made the sender believe lost.
    pub lost_octets: u32,
    /// Octets in the network, after the acknowledgment.
    pub in_flight_octets: u32,
    /// Octets in the network, before the acknowledgment.
    pub prior_in_flight_octets: u32,
    /// Round trip of the latest segment that this acknowledges, if it can be told.
    pub rtt: Option<Duration>,
    /// Smoothed round trip.
    pub srtt: Option<Duration>,
    /// The smallest round trip of the last minutes.
    pub min_rtt: Option<Duration>,
    /// The rate of delivery, if this acknowledgment gives one.
    pub rate: Option<RateSample>,
    /// Whether a round trip ended: what was sent after the last such moment begins to be
    /// acknowledged.
    pub round: bool,
    /// Whether the window, not the application or the receiver, was what held the sender up in this
    /// round.
    pub window_limited: bool,
    /// Whether losses are being repaired, in fast recovery or after a timeout, or the
    /// acknowledgment echoes a mark.
    pub recovering: bool,
}

/// A loss or mark that was noticed.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Time at which it was noticed.
    pub now: Time,
    /// Octets sent and not acknowledged cumulatively, before anything was resent (FlightSize of RFC
    /// 5681, section 2).
    pub outstanding_octets: u32,
    /// Octets believed to be in the network.
    pub in_flight_octets: u32,
    /// Octets believed lost.
    pub lost_octets: u32,
    /// Whether this is a repeated timeout, with no progress since the last (RFC 5681, section 3.1:
    /// the threshold stays).
    pub again: bool,
}

/// A congestion control algorithm of one connection.
///
/// Windows and thresholds are in octets, rates in octets a second. All arithmetic saturates.
pub trait Congestion: fmt::Debug {
    /// The name by which [`by_name`] finds it.
    fn name(&self) -> &'static str;

    /// Sets the largest segment, in octets; windows of whole segments keep their number of segments
    /// only while nothing was sent.
    fn set_mss(&mut self, mss_octets: u32);

    /// Begins again with a window of `window_octets`: the connection is established (RFC 5681,
    /// section 3.1).
    fn start(&mut self, window_octets: u32, now: Time);

    /// Something was acknowledged.
    fn on_ack(&mut self, sample: &Sample);

    /// A loss was noticed that no window's end has answered for yet: fast recovery begins.
    fn on_loss(&mut self, trouble: &Trouble);

    /// The retransmission timer expired.
    fn on_timeout(&mut self, trouble: &Trouble);

    /// The network marked a packet instead of dropping it (RFC 3168, section 6.1.2); told at most
    /// once a window.
    fn on_ecn(&mut self, trouble: &Trouble);

    /// All that was outstanding when recovery began is acknowledged.
    fn recovered(&mut self, now: Time);

    /// The last reduction was wrong: nothing had been lost.
    fn undo(&mut self, now: Time);

    /// The sender starts again after `idle` without anything in flight; `rto` is its retransmission
    /// timeout (RFC 5681, section 4.1).
    fn after_idle(&mut self, now: Time, idle: Duration, rto: Duration);

    /// Octets that may be in the network.
    fn window(&self) -> u32;

    /// Below this window the sender is in slow start, in octets; fast recovery aims at it (RFC
    /// 6937, section 3).
    fn threshold(&self) -> u32;

    /// The rate to send at, in octets a second; `None` leaves it to the window.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Whether [`window`](Congestion::window) rules in fast recovery too, instead of proportional
    /// rate reduction.
    fn rules_recovery(&self) -> bool {
        false
    }

    /// Writes its state.
    fn write(&self, out: &mut Writer<'_>);

    /// Whether its state, if it was read, is such as the algorithm makes.
    fn is_sound(&self) -> bool;
}

/// Encodes the name, then the state.
impl Field for Box<dyn Congestion> {
    fn put(&self, out: &mut Writer<'_>) {
        Name(self.name()).put(out);
        self.write(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(match Name::take(from)?.0 {
            "bbr" => Box::new(Bbr::take(from)?),
            "cubic" => Box::new(Cubic::take(from)?),
            _ => Box::new(NewReno::take(from)?),
        })
    }
}

/// Whether an algorithm that was read can be reckoned with.
fn is_sound(mss: u32, windows: &[u32]) -> bool {
    (1..1 << 16).contains(&mss) && windows.iter().all(|window| *window <= WINDOW_MAX)
}

/// The names that [`by_name`] knows; a connection's state says which by its place.
pub const NAMES: &[&str] = &["cubic", "newreno", "bbr"];
/// One of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(&'static str);

impl Name {
    /// The one of this name.
    pub fn of(name: &str) -> Option<Self> {
        NAMES.iter().copied().find(|known| *known == name).map(Self)
    }

    /// Place of the name among [`NAMES`].
    fn number(self) -> u8 {
        NAMES.iter().position(|name| *name == self.0).unwrap_or(0) as u8
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl Field for Name {
    fn put(&self, out: &mut Writer<'_>) {
        self.number().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        NAMES.get(usize::from(u8::take(from)?)).copied().map(Self)
    }
}

/// The one that is used unless the graph says otherwise.
pub const DEFAULT: &str = NAMES[0];

/// A fresh algorithm for a connection whose largest segment has `mss_octets`; `None` for a name
/// that is not in [`NAMES`].
#[must_use]
pub fn by_name(name: &str, mss_octets: u32) -> Option<Box<dyn Congestion>> {
    match name {
        "bbr" => Some(Box::new(Bbr::new(mss_octets))),
        "cubic" => Some(Box::new(Cubic::new(mss_octets))),
        "newreno" => Some(Box::new(NewReno::new(mss_octets))),
        _ => None,
    }
}

/// The initial window, in octets (RFC 6928, section 2).
#[must_use]
pub fn initial_window_octets(mss_octets: u32) -> u32 {
    let segments = mss_octets.saturating_mul(INITIAL_SEGMENTS);
    segments.min(mss_octets.saturating_mul(2).max(14_600))
}

/// The window after `idle`: halved once for each timeout that passed, down to the restart window
/// (RFC 5681, section 4.1; RFC 2861).
#[must_use]
fn window_after_idle(window: u32, mss: u32, idle: Duration, rto: Duration) -> u32 {
    let restart = initial_window_octets(mss).min(window);
    let timeouts = idle.as_nanos() / rto.as_nanos().max(1);
    let halvings = u32::try_from(timeouts).unwrap_or(u32::MAX);
    window.checked_shr(halvings).unwrap_or(0).max(restart)
}
