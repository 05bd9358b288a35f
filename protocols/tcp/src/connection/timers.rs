//! Timers of a connection (RFC 9293, section 3.8; RFC 6298).

use super::{AckDue, Connection};
use crate::loss::Due;
use crate::seq::Seq;
use crate::state::{Cause, State};
use crate::wire::{Flags, Header};
use alloc::boxed::Box;
use core::time::Duration;
use xk_core::Time;
use xk_kit::net::stream::StreamError;

/// A connection that has heard nothing for so long is idle.
const QUIET: Duration = Duration::from_millis(100);
/// Time that a cork holds octets back, as programs know it (tcp(7), `TCP_CORK`).
const CORK_MAX: Duration = Duration::from_millis(200);
/// The longest time between two window probes.
const PERSIST_MAX: Duration = Duration::from_secs(60);
/// After so many timeouts in a row large segments may be what does not pass (RFC 4821, section 7.7;
/// RFC 2923, section 2.1).
const BLACK_HOLE_TIMEOUTS: u32 = 2;
/// Octets of a packet that passes nearly everywhere (RFC 8899, section 5.1.2), and of one that must
/// (RFC 9293, section 3.7.1).
const PATHS_BELOW: [u32; 2] = [1200, 576];

/// Octets of the header of the layer below that a path's size counts besides ours.
pub(super) const LOWER_HEADER: u32 = 20;

impl Connection {
    /// Time at which to call [`timer`](Self::timer); `None` if time changes nothing.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let mut first: Option<Time> = None;
        let mut consider = |at: Option<Time>| {
            if let Some(at) = at {
                first = Some(first.map_or(at, |earliest| earliest.min(at)));
            }
        };
        if let AckDue::At(at) = self.ack_due {
            consider(Some(at));
        }
        consider(self.ends_at);
        consider(self.persist_at);
        consider(self.cork_at);
        let live = !matches!(self.state, State::Closed | State::TimeWait);
        if live {
            consider(self.recovery.timer(self.is_waiting()).map(|(_, at)| at));
            consider(self.stuck_since.map(|since| since + self.user_timeout()));
            consider(self.keep_alive_at());
            consider(self.has_slack().then(|| self.heard_at + QUIET));
        }
        first
    }

    /// Time of the next probe of a silent peer.
    fn keep_alive_at(&self) -> Option<Time> {
        let keep = self.settings.keep_alive.as_ref()?;
        let is_quiet = self.state.is_synchronized()
            && self.recovery.board().is_empty()
            && self.persist_at.is_none();
        is_quiet.then(|| self.heard_at + keep.idle + keep.interval * self.keep_alive_count)
    }

    /// Time has passed: does what is due. Harmless when nothing is.
    pub fn timer(&mut self, now: Time) {
        if self.state == State::Closed {
            return;
        }
        if let AckDue::At(at) = self.ack_due
            && at <= now
        {
            self.ack_due = AckDue::Now;
            // No answer came that would have taken it along.
            self.is_interactive = !self.settings.quick_acks;
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.end_waiting();
            return;
        }
        if self.state == State::TimeWait {
            return;
        }
        let timeout = self.user_timeout();
        if self.stuck_since.is_some_and(|since| since + timeout <= now) {
            self.give_up(now);
            return;
        }
        match self.recovery.on_timer(now, self.is_waiting()) {
            Due::ResendProbe(lost) => self.probe = Some(lost),
            Due::SendProbe => self.force = true,
            Due::Timeout(times) => self.time_out(times, now),
            Due::Nothing | Due::Send => {}
        }
        if self.persist_at.is_some_and(|at| at <= now) {
            self.persist(now);
        }
        if self.cork_at.is_some_and(|at| at <= now) {
            (self.cork_at, self.force) = (None, true);
            self.time_fast(now);
        }
        self.keep_alive(now);
        self.rest(now);
    }

    /// Whether an idle connection would give memory back.
    fn has_slack(&self) -> bool {
        let is_idle = self.recovery.board().is_empty();
        self.receive.has_slack() || is_idle && (self.send.has_slack() || self.recovery.has_slack())
    }

    /// Gives back memory that an idle connection does not need.
    fn rest(&mut self, now: Time) {
        if now < self.heard_at + QUIET {
            return;
        }
        if self.recovery.board().is_empty() {
            self.send.rest();
            self.recovery.rest();
        }
        self.receive.rest();
    }

    /// TIME-WAIT is over, or the time for an orphan's peer.
    fn end_waiting(&mut self) {
        self.ends_at = None;
        if self.state == State::TimeWait {
            self.enter(Cause::TwoLifetimes);
            self.events.closed = false;
        } else {
            self.enter(Cause::Reset);
        }
    }

    /// Whether a SYN with this header may begin a new connection in place of this one (RFC 6191,
    /// section 2; RFC 9293, section 3.6.1): it can be told from every segment of this one.
    #[must_use]
    pub fn gives_way_to(&self, header: &Header) -> bool {
        if self.state != State::TimeWait
            || !header.flags.has(Flags::SYN)
            || header.flags.any(Flags::ACK | Flags::RST)
        {
            return false;
        }
        match header.options.timestamps {
            Some(stamps) if self.timestamps && stamps.value != self.ts_recent => {
                Seq(stamps.value).after(Seq(self.ts_recent))
            }
            _ => header.seq.after(self.receive.rcv_nxt),
        }
    }

    /// First sequence number of a new connection between the same ends, if this one only waits for
    /// late segments.
    pub fn replacement(&self) -> Option<Seq> {
        // Behind everything that the peer could still take for ours (RFC 9293, section 3.4.1).
        (self.state == State::TimeWait).then(|| self.snd_nxt() + 65_536)
    }

    /// The peer has not answered for too long.
    fn give_up(&mut self, now: Time) {
        let error = self.soft_error.unwrap_or(StreamError::TimedOut);
        if self.state.is_synchronized() {
            self.reset = Some(Box::new(self.reset_header(now)));
        }
        self.fail(error);
    }

    fn time_out(&mut self, times: u32, now: Time) {
        self.again = None;
        match self.state {
            State::SynSent | State::SynReceived => {
                // RFC 3168, section 6.1.1.1: something may drop SYNs that offer ECN.
                if times >= 2 {
                    self.drop_ecn();
                }
                self.time_out_fast();
                if times > self.settings.syn_retries_max {
                    self.give_up(now);
                }
            }
            _ if times >= BLACK_HOLE_TIMEOUTS => {
                self.suspect_fast_hole(times);
                let last = usize::from(times >= 2 * BLACK_HOLE_TIMEOUTS);
                self.suspect_black_hole(PATHS_BELOW[last] - LOWER_HEADER, now);
            }
            _ => {}
        }
    }

    /// The peer's window is closed, or too small, and nothing is under way that would make it
    /// speak; or a cork holds back what it would take.
    pub(super) fn watch_window(&mut self, now: Time) {
        let is_live = self.state.is_synchronized() && self.state != State::TimeWait;
        let waits = is_live && self.send.unsent() > 0;
        let is_corked = waits && self.settings.cork && self.usable() > 0;
        self.cork_at = is_corked.then(|| self.cork_at.unwrap_or(now + CORK_MAX));
        let is_blocked = waits && self.recovery.board().is_empty() && !is_corked;
        if !is_blocked {
            if self.persist_at.is_some() && self.recovery.board().is_empty() {
                self.stuck_since = None;
            }
            (self.persist_at, self.persist_count) = (None, 0);
        } else if self.persist_at.is_none() {
            self.persist_at = Some(now + self.persist_delay());
        }
    }

    /// Time until the next probe: at most the user timeout, which a peer that has vanished would
    /// else outlast by far.
    fn persist_delay(&self) -> Duration {
        let first = self.recovery.rtt().rto();
        let doubled = first * (1_u32 << self.persist_count.min(16));
        doubled.min(PERSIST_MAX).min(self.user_timeout().max(first))
    }

    /// Sends what fits a small window, or probes a closed one (RFC 9293, section 3.8.6.1).
    fn persist(&mut self, now: Time) {
        self.persist_count += 1;
        self.persist_at = Some(now + self.persist_delay());
        self.stuck_since.get_or_insert(now);
        if self.is_waiting() {
            self.force = true;
            // A window that stays small has a small buffer behind it by now: not each piece waits
            // for this timer.
            let send = &mut self.send;
            send.fair_wnd = (send.fair_wnd / 2).max(send.snd_wnd);
        } else {
            self.poke = true;
        }
    }

    fn keep_alive(&mut self, now: Time) {
        let Some(keep) = self.settings.keep_alive else {
            return;
        };
        if self.keep_alive_at().is_none_or(|at| at > now) {
            return;
        }
        if self.keep_alive_count >= keep.probes_max {
            self.give_up(now);
            return;
        }
        self.keep_alive_count += 1;
        self.poke = true;
    }
}
