//! SYN cookies (RFC 4987, section 3.6): when the notes of peers that sent a SYN are used up, what
//! has to be known of another one goes into our initial sequence number and the low bits of our
//! timestamp, and comes back with its acknowledgement.
//!
//! A cookie holds the largest segment, roughly; shift and SACK only for peers with timestamps. ECN
//! is not offered.

use crate::connection::{EcnOffer, Syn};
use crate::isn::Secrets;
use crate::options::Timestamps;
use crate::seq::Seq;
use crate::wire::Header;
use core::cell::Cell;
use core::time::Duration;
use xk_core::Time;

/// The sizes of segments that a cookie can tell, in octets.
const SEGMENTS: [u16; 4] = [536, 1300, 1440, 1460];
/// Length of one period. A cookie is good in its own and the next.
const PERIOD_MS: u64 = 64_000;
/// Bits of the number of the period.
const PERIOD_BITS: u32 = 6;
/// Time after the last cookie was sent during which acknowledgements are looked at as cookies.
const LISTEN: Duration = Duration::from_millis(2 * PERIOD_MS);
/// Bits of a timestamp that tell what the peer offered: its shift (15: none), and SACK.
const OFFER_BITS: u32 = 5;
const NO_SHIFT: u32 = 15;

/// Whether cookies went lately.
#[derive(Default)]
pub(crate) struct Cookies {
    until: Cell<Time>,
}

fn period(now: Time) -> u64 {
    now.as_ms() / PERIOD_MS
}

/// The sequence number: 2 bits for the segment, 6 for the period, 24 that no peer can guess.
fn sequence(secrets: &Secrets, key: (u64, u32), irs: Seq, period: u64, segment: u32) -> Seq {
    let low = period as u32 & ((1 << PERIOD_BITS) - 1);
    let open = segment << 30 | low << 24;
    Seq(open | secrets.cookie(key, irs, period, segment) & 0x00ff_ffff)
}

impl Cookies {
    /// The sequence number that answers a SYN.
    pub(crate) fn bake(&self, secrets: &Secrets, key: (u64, u32), peer: &Syn, now: Time) -> Seq {
        self.until.set(now + LISTEN);
        let segment = SEGMENTS.iter().rposition(|size| *size <= peer.segment_max).unwrap_or(0);
        sequence(secrets, key, peer.irs, period(now), segment as u32)
    }

    /// Contents of the peer's SYN, if `header` acknowledges a cookie.
    pub(crate) fn taste(
        &self,
        secrets: &Secrets,
        key: (u64, u32),
        header: &Header,
        now: Time,
    ) -> Option<(Seq, Syn)> {
        if now >= self.until.get() {
            return None;
        }
        let (iss, irs) = (header.ack - 1, header.seq - 1);
        let segment = iss.0 >> 30;
        let current = period(now);
        [Some(current), current.checked_sub(1)]
            .into_iter()
            .flatten()
            .find(|period| sequence(secrets, key, irs, *period, segment) == iss)?;
        let stamps = header.options.timestamps;
        let offer = stamps.map_or(NO_SHIFT << 1, |stamps| stamps.echo);
        let shift = (offer >> 1) & NO_SHIFT;
        let syn = Syn {
            irs,
            window: header.window,
            segment_max: SEGMENTS[segment as usize % SEGMENTS.len()],
            shift: (shift != NO_SHIFT).then_some(shift as u8),
            clock: stamps.map(|stamps| stamps.value),
            sack: offer & 1 == 1,
            ecn: EcnOffer::NONE,
            tallies: None,
            user_timeout: header.options.user_timeout,
            fast_open: None,
        };
        Some((iss, syn))
    }
}

/// Puts what the peer offered into our timestamp: never one later than our clock, or the next would
/// be older.
pub(crate) fn mark(stamps: &mut Timestamps, peer: &Syn) {
    let mask = (1 << OFFER_BITS) - 1;
    let shift = peer.shift.map_or(NO_SHIFT, u32::from);
    let marked = stamps.value & !mask | shift << 1 | u32::from(peer.sack);
    stamps.value =
        if Seq(marked).after(Seq(stamps.value)) { marked.wrapping_sub(mask + 1) } else { marked };
}

/// SYN that offers a peer only what needs no state here.
pub(crate) fn offer(peer: &Syn) -> Syn {
    let has_clock = peer.clock.is_some();
    Syn {
        shift: peer.shift.filter(|_| has_clock),
        sack: peer.sack && has_clock,
        ecn: EcnOffer::NONE,
        fast_open: None,
        ..*peer
    }
}
