//! The user timeout, for which octets may stay unacknowledged, and the option by which both sides
//! agree on one (RFC 5482).

use super::{AckDue, Connection, Settings};
use core::time::Duration;

/// Between what values a peer's timeout is heeded (L_LIMIT and U_LIMIT of RFC 5482, section 3.1).
const ADOPTED_MIN: Duration = Duration::from_secs(100);
/// See [`ADOPTED_MIN`].
const ADOPTED_MAX: Duration = Duration::from_secs(3600);
/// The bit that makes minutes of seconds (RFC 5482, section 3.3).
const MINUTES: u16 = 1 << 15;

/// A timeout as the option has it: never less, and not 0, which is reserved (RFC 5482, sections 3.3
/// and 3.4).
fn field(time: Duration) -> u16 {
    let part = u64::from(time.subsec_nanos() > 0);
    let seconds = time.as_secs().saturating_add(part);
    let most = MINUTES - 1;
    match u16::try_from(seconds.max(1)) {
        Ok(seconds) if seconds <= most => seconds,
        _ => MINUTES | u16::try_from(seconds.div_ceil(60)).unwrap_or(most).min(most),
    }
}

/// The timeout that an option says; `None` for the reserved value.
fn timeout(field: u16) -> Option<Duration> {
    let unit = if field & MINUTES != 0 { 60 } else { 1 };
    let time = Duration::from_secs(u64::from(field & !MINUTES) * unit);
    (!time.is_zero()).then_some(time)
}

impl Settings {
    /// The user timeout option of segments of this side, if it sends any.
    pub(super) fn announced(&self) -> Option<u16> {
        self.announce_user_timeout.then(|| field(self.timeout()))
    }
}

impl Connection {
    /// Time that octets may stay unacknowledged: what the application has set, or else the longest
    /// of both sides' (RFC 5482, section 3.1).
    pub(super) fn user_timeout(&self) -> Duration {
        let own = self.settings.timeout();
        match self.peer_timeout {
            Some(peer) if self.settings.announce_user_timeout && !self.settings.is_timeout_own => {
                own.max(peer).clamp(ADOPTED_MIN, ADOPTED_MAX)
            }
            _ => own,
        }
    }

    /// The peer's user timeout option.
    pub(super) fn take_user_timeout(&mut self, field: u16) {
        if let Some(time) = timeout(field) {
            self.peer_timeout = Some(time);
        }
    }

    /// The peer is to be told of the timeout: with the next acknowledgement, which goes now.
    pub(super) fn announce_timeout(&mut self) {
        if self.settings.announce_user_timeout && self.state.is_synchronized() {
            self.timeout_due = true;
            self.ack_due = AckDue::Now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5482, section 3.3.
    #[test]
    fn the_field_holds_seconds_or_minutes() {
        let secs = Duration::from_secs;
        for (time, written) in [
            (secs(0), 1),
            (Duration::from_millis(1500), 2),
            (secs(300), 300),
            (secs(32_767), 32_767),
            (secs(32_768), 0x8000 | 547),
            (secs(60 * 32_767), 0xffff),
            (Duration::MAX, 0xffff),
        ] {
            assert_eq!(field(time), written, "{time:?}");
            assert!(timeout(written).unwrap() >= time.min(secs(60 * 32_767)));
        }
        assert_eq!((timeout(0), timeout(0x8000)), (None, None));
    }
}
