//! Fast Open (RFC 7413): data in the SYN, for peers that have given a cookie, and data for a peer
//! that has shown one before its handshake is done.
//!
//! The data that a SYN carries count as sent only once the peer acknowledges them: what it does not
//! take goes behind the handshake as on any connection, and a SYN that goes again has neither data
//! nor option.

use super::{Connection, Ends, Settings, Syn};
use crate::options::Cookie;
use crate::seq::Seq;
use crate::state::State;
use crate::wire::{Flags, Header};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::time::Duration;
use xk_core::control::{Field, Reader, Writer};
use xk_core::{Message, Time, fields};
use xk_kit::net::stream::StreamError;

/// Bounds the wait of a SYN for data to carry. Some protocols wait for the peer's octets first.
const DATA_WAIT: Duration = Duration::from_millis(40);
/// Octets of the largest segment that a SYN fills: larger ones confuse what is on the way (RFC
/// 7413, section 4.1.3).
const SEGMENT_MAX: u16 = 1460;
/// After so many timeouts in a row without a word from the peer the path is one that lets no
/// connection pass that began with a Fast Open.
const HOLE_TIMEOUTS: u32 = 2;

/// Result of an active open about the peer's Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The peer gave a cookie, and takes so many octets in a segment.
    Given(Cookie, u16),
    /// The peer took the SYN's data, and takes so many octets in a segment.
    Taken(u16),
    /// The peer took no notice.
    Refused,
    /// A SYN with an option or data gets lost, or is answered by an error.
    Lost,
    /// Nothing more passes, once data went with the SYN.
    Hole,
}

fields!(
    enum Report {
        Given(cookie, segment) = 0,
        Taken(segment) = 1,
        Refused = 2,
        Lost = 3,
        Hole = 4,
    }
);

/// State of a connection's Fast Open.
#[derive(Clone, Debug)]
pub(super) struct Fast {
    /// The cookie on the next SYN of ours: the peer's, a request for one, or one that we give.
    cookie: Option<Cookie>,
    /// Octets of data in a SYN at most, options not counted.
    room: u16,
    /// The SYN goes as soon as there are data, and at this time without.
    waits: Option<Time>,
    /// The protocol above is to be told that it may write.
    tells: bool,
    /// Time at which the SYN went that bore a cookie or a request, and the number of octets of data
    /// in it.
    sent: Option<(Time, u32)>,
    /// A SYN had to go again, as any other.
    again: bool,
    /// Data of a SYN were taken, by whichever side.
    pub(super) taken: bool,
    /// Time at which the handshake was done.
    stands: Option<Time>,
    report: Option<Report>,
}

fields!(Fast { cookie, room, waits, tells, sent, again, taken, stands, report });

impl Field for Box<Fast> {
    fn put(&self, out: &mut Writer<'_>) {
        (**self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Fast::take(from).filter(|fast| fast.is_sound()).map(Self::new)
    }
}

impl Fast {
    fn new(cookie: Option<Cookie>, room: u16) -> Self {
        Self {
            cookie,
            room,
            waits: None,
            tells: false,
            sent: None,
            again: false,
            taken: false,
            stands: None,
            report: None,
        }
    }

    /// Whether the number of octets is one that a SYN can have.
    fn is_sound(&self) -> bool {
        self.sent.is_none_or(|(_, octets)| octets <= u32::from(SEGMENT_MAX))
    }
}

impl Connection {
    /// A passive open of a peer whose cookie is good: what its SYN carries is there at once, and
    /// what is written goes before the handshake is done. `cookie` is one to give, in place of the
    /// peer's.
    #[must_use]
    pub fn accept_fast(
        settings: Rc<Settings>,
        ends: Ends,
        iss: Seq,
        peer: &Syn,
        data: Option<Message>,
        cookie: Option<Cookie>,
        now: Time,
    ) -> Self {
        let mut connection = Self::accept(settings, ends, iss, peer, now);
        let mut fast = Fast::new(cookie, 0);
        let receive = &mut connection.receive;
        if let Some(mut data) = data {
            data.truncate(receive.buffer as usize);
            fast.taken = !data.is_empty();
            receive.append(data);
            receive.rcv_adv = receive.rcv_nxt;
        }
        connection.fast = Some(Box::new(fast));
        connection.recovery.begin(u32::from(connection.segment), connection.sack, now);
        connection
    }

    /// Whether an active open that has not begun is to be fast.
    #[must_use]
    pub fn wants_fast(&self) -> bool {
        self.settings.fast_open && self.syn_due
    }

    /// Has an active open that has not begun be fast: with the peer's cookie, and so many octets in
    /// a segment as the peer took before; with a request for one if there is none. With a cookie
    /// the SYN waits a while for data.
    pub fn open_fast(&mut self, known: Option<(Cookie, u16)>, now: Time) {
        let cookie = known.map_or(Cookie::REQUEST, |(cookie, _)| cookie);
        let most = known.map_or(0, |(_, segment)| segment.min(SEGMENT_MAX));
        let mut fast = Fast::new(Some(cookie), most.min(self.ends.segment(&self.settings)));
        if known.is_some() {
            (fast.tells, fast.waits) = (true, Some(now + DATA_WAIT));
            self.syn_due = false;
            self.cork_at = Some(now);
        }
        self.fast = Some(Box::new(fast));
    }

    /// The timer of an active open whose SYN waits for data.
    pub(super) fn time_fast(&mut self, now: Time) {
        let Some(fast) = self.fast.as_mut() else {
            return;
        };
        self.events.connected |= core::mem::take(&mut fast.tells);
        self.cork_at = fast.waits.filter(|at| *at > now);
    }

    /// Whether the SYN has waited for data, and need not any more.
    pub(super) fn is_syn_ripe(&mut self, now: Time) -> bool {
        let is_ready = self.send.unsent() > 0 || self.send.is_shut;
        let Some(fast) = self.fast.as_mut() else {
            return false;
        };
        if !fast.waits.is_some_and(|at| is_ready || at <= now) {
            return false;
        }
        fast.waits = None;
        self.cork_at = None;
        true
    }

    /// Whether the protocol above need not wait for the handshake.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        self.fast.as_ref().is_some_and(|fast| fast.room > 0 && !fast.tells)
    }

    /// Whether what is written goes before the handshake is done: the peer has shown a cookie.
    pub(super) fn sends_early(&self) -> bool {
        self.fast.is_some() && !self.is_active && self.state == State::SynReceived
    }

    /// Puts the option on a SYN that goes now, and answers with the data that go with it.
    pub(super) fn fill_syn(&mut self, header: &mut Header, now: Time) -> Option<Message> {
        let fast = self.fast.as_mut()?;
        let cookie = fast.cookie.take()?;
        header.options.fast_open = Some(cookie);
        if !self.is_active || cookie.is_request() {
            fast.sent = Some((now, 0));
            return None;
        }
        let room = usize::from(fast.room).saturating_sub(header.options.length());
        let data = self.send.peek(room as u32);
        match &data {
            Some(data) => fast.sent = Some((now, data.len() as u32)),
            // Without data there is nothing to win.
            None => header.options.fast_open = None,
        }
        data
    }

    /// A SYN was not answered in time: it goes again without option and data (RFC 7413, section
    /// 4.2.2).
    pub(super) fn time_out_fast(&mut self) {
        if let Some(fast) = self.fast.as_mut() {
            (fast.cookie, fast.again) = (None, true);
        }
    }

    /// Octets of data that went with our SYN.
    pub(super) fn syn_data(&self) -> u32 {
        self.fast.as_ref().and_then(|fast| fast.sent).map_or(0, |(_, octets)| octets)
    }

    /// The peer's SYN answers ours: of the data that went with that, those that it acknowledges
    /// count as sent. What does not goes now.
    pub(super) fn take_fast_answer(&mut self, header: &Header) {
        let Some(fast) = self.fast.as_mut().filter(|_| self.is_active) else {
            return;
        };
        let (sent, segment) = (fast.sent, self.peer_segment);
        let Some((at, octets)) = sent.filter(|_| header.flags.has(Flags::ACK)) else {
            return;
        };
        let acked = header.ack.since(self.send.iss + 1).min(octets).min(self.send.unsent());
        fast.taken = acked > 0;
        let given = header.options.fast_open.filter(|cookie| !cookie.is_request());
        fast.report = Some(match given {
            Some(cookie) => Report::Given(cookie, segment),
            None if fast.taken => Report::Taken(segment),
            None if fast.again => Report::Lost,
            None => Report::Refused,
        });
        // There is room for one segment more.
        if acked > 0 && self.send.cut(acked).is_ok() {
            let _ = self.recovery.sent(acked, at);
        }
    }

    /// The handshake is done; answers whether the protocol above is to be told.
    pub(super) fn end_fast(&mut self, now: Time) -> bool {
        let is_told = self.is_fast();
        if let Some(fast) = self.fast.as_mut() {
            (fast.stands, fast.waits, fast.cookie) = (Some(now), None, None);
        }
        self.is_active && !is_told
    }

    /// The connection fails: before it stood, the SYN may be what does not pass.
    pub(super) fn fail_fast(&mut self, error: StreamError) {
        if self.state == State::SynSent
            && !matches!(error, StreamError::Refused | StreamError::Aborted)
            && let Some(fast) = self.fast.as_mut()
            && fast.sent.is_some()
        {
            fast.report = Some(Report::Lost);
        }
    }

    /// Nothing was acknowledged for so many timeouts in a row.
    pub(super) fn suspect_fast_hole(&mut self, times: u32) {
        let heard = self.heard_at;
        if let Some(fast) = self.fast.as_mut()
            && times == HOLE_TIMEOUTS
            && self.is_active
            && fast.taken
            && fast.stands == Some(heard)
        {
            fast.report = Some(Report::Hole);
        }
    }

    /// Whether it began with a Fast Open, of whichever side, or is to.
    #[inline]
    pub fn has_fast(&self) -> bool {
        self.fast.is_some()
    }

    /// Takes what was found out of the peer's Fast Open, once.
    pub fn fast_report(&mut self) -> Option<Report> {
        self.fast.as_mut()?.report.take()
    }
}
