//! The transmission control block as a machine of its own: segments, calls and time go in,
//! segments, octets and events come out. It knows no kernel, so that it can be tested alone.
//!
//! What comes out is pulled, because what takes it may call back: after everything that goes in,
//! its owner takes [`deliver`](Connection::deliver), [`event`](Connection::event) and
//! [`transmit`](Connection::transmit) until all are empty, and calls [`timer`](Connection::timer)
//! at [`deadline`](Connection::deadline).

pub(crate) mod arrive;
mod ecn;
mod fast;
mod handshake;
mod info;
mod path;
mod predict;
pub(crate) mod receive;
mod run;
mod send;
mod settings;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;
mod user_timeout;
mod value;

pub use arrive::{BAD_ACK, BLIND_RESET, BLIND_SYN, NO_ACK, NOT_READ, OLD_TIMESTAMP, OUT_OF_WINDOW};
pub use ecn::EcnOffer;
pub use fast::Report;
pub use handshake::{Ends, SEGMENT_DEFAULT, Syn, syn};
pub use predict::Predicted;
pub use run::Run;
pub use settings::{BUFFER_MAX, BUFFER_MIN, SEGMENT_MIN, Settings};
pub use transmit::Out;

pub(crate) use receive::Receive;
pub(crate) use send::Send;

use crate::loss::{Lost, Recovery};
use crate::options::Timestamps;
use crate::seq::Seq;
use crate::state::{self, Cause, State};
use crate::wire::{Flags, HEADER_LEN, Header};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::time::Duration;
use xk_core::object::PushError;
use xk_core::{Message, Reason, Time, fields};
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::attribute::Sending;
use xk_kit::net::stream::{StreamError, StreamEvent, StreamSetting};

/// Largest number of outstanding segments.
const SEGMENTS_MAX: u32 = 1 << 15;
/// Least octets of a pool that a piece of a stream takes.
const PIECE_OCTETS: u64 = 2048;

/// Time at which an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckDue {
    No,
    At(Time),
    Now,
}

/// Events for the protocol above, in this order.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    connected: bool,
    writable: bool,
    end: bool,
    failed: Option<StreamError>,
    closed: bool,
}

fields!(Events { connected, writable, end, failed, closed });
fields!(
    enum AckDue {
        No = 0,
        At(time) = 1,
        Now = 2,
    }
);

/// A transmission control block (RFC 9293, section 3.3.1).
pub struct Connection {
    state: State,
    /// This side opened it, be it that the peer did as well.
    is_active: bool,
    ends: Ends,
    /// Shared by all that were never asked for another.
    settings: Rc<Settings>,
    send: Send,
    receive: Receive,
    recovery: Recovery,
    /// Octets of data that the peer takes in a segment.
    peer_segment: u16,
    /// Octets of data in a segment to the peer.
    segment: u16,
    /// Whether segments carry timestamps (RFC 7323, section 3.2).
    timestamps: bool,
    sack: bool,
    /// Data may be marked by routers, and marks are heeded.
    ecn: bool,
    /// The offer in the peer's SYN.
    offer: EcnOffer,
    /// The counts of accurate feedback, if that was agreed on.
    accurate: Option<Box<ecn::Accurate>>,
    /// Segments are not predicted.
    is_odd: bool,
    /// The peer's clock as of the last segment in order, and when that came (RFC 7323, section
    /// 4.3).
    ts_recent: u32,
    ts_recent_at: Time,
    /// Acknowledgement of the last segment sent.
    last_ack_sent: Seq,
    ack_due: AckDue,
    /// Octets that arrived since the last acknowledgement went.
    unacked: u32,
    /// Segments left to be acknowledged at once before others are waited for.
    quick_acks: u8,
    /// Arriving data are answered, as a rule: acknowledgements wait for that.
    is_interactive: bool,
    /// Time at which octets came last.
    data_at: Time,
    /// The largest segment that came.
    peer_full: u32,
    /// Runs of segments, each way.
    runs: run::Runs,
    /// The flags of all segments that tell the peer of marks: that there was one, and the peer has
    /// not said that it knows (RFC 3168, section 6.1.3), or how many there were (RFC 9768).
    echo: Flags,
    /// The next new segment says that the window was reduced.
    cwr: bool,
    /// Our SYN is to be sent for the first time.
    syn_due: bool,
    /// Our SYN, or what it repeats, offers no ECN any more: something on the way may not like it.
    ecn_offered: bool,
    /// Rest of what is being sent again and did not fit one segment.
    again: Option<(Seq, Seq)>,
    /// A loss probe to send.
    probe: Option<Lost>,
    /// A window probe of one octet went, and when (RFC 9293, section 3.8.6.1).
    window_probe: Option<Time>,
    persist_at: Option<Time>,
    persist_count: u32,
    /// Time at which a cork releases the octets that it holds back.
    cork_at: Option<Time>,
    /// True if octets that are held back to fill a segment go all the same, once.
    force: bool,
    /// A segment without data and with an old number is to provoke an answer.
    poke: bool,
    /// Time when the peer was heard last, and the number of probes sent since.
    heard_at: Time,
    keep_alive_count: u32,
    /// Time since which outstanding octets make no progress.
    stuck_since: Option<Time>,
    /// End of TIME-WAIT, or of the time for an orphan's peer.
    ends_at: Option<Time>,
    search: path::PathSearch,
    /// The user timeout that the peer has announced (RFC 5482).
    peer_timeout: Option<Duration>,
    /// Ours is to be announced.
    timeout_due: bool,
    /// State of a Fast Open, if it is one.
    fast: Option<Box<fast::Fast>>,
    /// A reset to send.
    reset: Option<Box<Header>>,
    /// True if arrivals are not taken any more.
    is_deaf: bool,
    events: Events,
    /// Why the network says that the peer cannot be reached, if it does.
    soft_error: Option<StreamError>,
    /// Challenges sent in this second, and which it is.
    challenges: (u32, Time),
    delivered: u64,
}

fields!(Connection {
    state,
    is_active,
    ends,
    settings,
    send,
    receive,
    recovery,
    peer_segment,
    segment,
    timestamps,
    sack,
    ecn,
    offer,
    accurate,
    is_odd,
    ts_recent,
    ts_recent_at,
    last_ack_sent,
    ack_due,
    unacked,
    quick_acks,
    is_interactive,
    data_at,
    peer_full,
    runs,
    echo,
    cwr,
    syn_due,
    ecn_offered,
    again,
    probe,
    window_probe,
    persist_at,
    persist_count,
    cork_at,
    force,
    poke,
    heard_at,
    keep_alive_count,
    stuck_since,
    ends_at,
    search,
    peer_timeout,
    timeout_due,
    fast,
    reset,
    is_deaf,
    events,
    soft_error,
    challenges,
    delivered,
});

impl Connection {
    /// An active open: the SYN is the first thing to be transmitted.
    #[must_use]
    pub fn open(settings: Rc<Settings>, ends: Ends, iss: Seq, now: Time) -> Self {
        let mut connection = Self::new(settings, ends, iss, Seq(0), now);
        connection.enter(Cause::Open);
        connection.is_active = true;
        connection.syn_due = true;
        connection
    }

    /// A passive open: the peer's SYN has come, ours is the first thing to be transmitted.
    #[must_use]
    pub fn accept(settings: Rc<Settings>, ends: Ends, iss: Seq, peer: &Syn, now: Time) -> Self {
        let mut connection = Self::answered(settings, ends, iss, peer, now);
        // Nothing has gone yet: as at the beginning, but for what the peer said.
        connection.recovery = recovery(&connection.settings, iss);
        connection.syn_due = true;
        connection
    }

    /// A passive open whose SYN was answered already, at `sent`; the peer's acknowledgement is the
    /// first segment to arrive.
    #[must_use]
    pub fn answered(settings: Rc<Settings>, ends: Ends, iss: Seq, peer: &Syn, sent: Time) -> Self {
        let mut connection = Self::new(settings, ends, iss, peer.irs, sent);
        connection.enter(Cause::ListenSyn);
        connection.learn(peer, sent);
        // There is room for one.
        let _ = connection.recovery.sent(1, sent);
        connection.receive.rcv_adv = connection.receive.rcv_nxt + connection.syn_window();
        connection.last_ack_sent = connection.receive.rcv_nxt;
        connection.offer = connection.offer.repeated(1);
        connection
    }

    fn new(settings: Rc<Settings>, ends: Ends, iss: Seq, irs: Seq, now: Time) -> Self {
        let (buffer, max) = (settings.receive_buffer, settings.receive_buffer_max);
        let mut receive = Receive::new(irs, buffer, max, 0, now);
        receive.manual = settings.manual_window;
        Self {
            state: State::Closed,
            is_active: false,
            send: Send::new(iss, settings.send_buffer),
            receive,
            recovery: recovery(&settings, iss),
            peer_segment: SEGMENT_DEFAULT,
            segment: SEGMENT_DEFAULT,
            timestamps: false,
            sack: false,
            ecn: false,
            offer: EcnOffer::NONE,
            accurate: None,
            is_odd: false,
            ts_recent: 0,
            ts_recent_at: now,
            last_ack_sent: irs,
            ack_due: AckDue::No,
            unacked: 0,
            quick_acks: arrive::QUICK_ACKS,
            is_interactive: !settings.quick_acks,
            data_at: Time::ZERO,
            peer_full: 1,
            runs: run::Runs::default(),
            echo: Flags::NONE,
            cwr: false,
            syn_due: false,
            ecn_offered: settings.ecn || settings.accurate_ecn,
            again: None,
            probe: None,
            window_probe: None,
            persist_at: None,
            persist_count: 0,
            cork_at: None,
            force: false,
            poke: false,
            heard_at: now,
            keep_alive_count: 0,
            stuck_since: None,
            ends_at: None,
            search: path::PathSearch::default(),
            peer_timeout: None,
            timeout_due: settings.announce_user_timeout,
            fast: None,
            reset: None,
            is_deaf: false,
            events: Events::default(),
            soft_error: None,
            challenges: (0, Time::ZERO),
            delivered: 0,
            ends,
            settings,
        }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// The two ends.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The oldest sequence number that the peer has not acknowledged.
    #[inline]
    pub fn snd_una(&self) -> Seq {
        self.recovery.board().una()
    }

    /// The next sequence number to be sent.
    #[inline]
    pub fn snd_nxt(&self) -> Seq {
        self.recovery.board().nxt()
    }

    /// The next sequence number expected.
    #[inline]
    pub fn rcv_nxt(&self) -> Seq {
        self.receive.rcv_nxt
    }

    /// Whether any octets have come in order.
    #[inline]
    fn has_received(&self) -> bool {
        self.receive.rcv_nxt != self.receive.irs + 1
    }

    /// Octets of data in a segment to the peer.
    pub fn segment_octets(&self) -> u16 {
        self.segment
    }

    /// Takes a message to send.
    ///
    /// # Errors
    /// [`PushError::Closed`] if nothing goes this way any more, [`PushError::TooBig`] if it would
    /// never fit the send buffer, [`PushError::QueueFull`] if it does not fit now; then
    /// [`StreamEvent::Writable`] follows.
    pub fn send(&mut self, message: Message) -> Result<(), PushError> {
        if !self.state.takes_data() || self.send.is_shut {
            return Err(PushError::Closed);
        }
        let octets = message.len();
        if octets > self.send.buffer as usize {
            return Err(PushError::TooBig);
        }
        if octets > self.send.space() as usize {
            self.send.is_wanted = true;
            return Err(PushError::QueueFull);
        }
        if octets > 0 {
            if self.send.unsent() == 0 {
                // It had run dry until now.
                self.recovery.limited_by_application();
            }
            self.send.push(message);
        }
        Ok(())
    }

    /// Octets that [`send`](Self::send) takes now. If it is fewer than ever,
    /// [`StreamEvent::Writable`] follows.
    pub fn space(&mut self) -> u32 {
        if !self.state.takes_data() || self.send.is_shut {
            return 0;
        }
        let unsent_max = self.settings.unsent_max;
        let space = self.send.space().min(unsent_max.saturating_sub(self.send.unsent()));
        self.send.is_wanted |= space < self.send.buffer.min(unsent_max);
        space
    }

    /// Ends a record behind what was sent so far: no segment carries octets of before and behind.
    pub fn end_record(&mut self) {
        self.send.end_record();
    }

    /// Returns the wishes for the headers of packets, if they are not as usual.
    #[inline]
    pub(crate) fn sending(&self) -> Option<Sending> {
        let (hops, class) = (self.settings.hops, self.settings.class);
        let is_usual = hops == 0 && class.is_none();
        (!is_usual).then(|| Sending { hops, class, ..Sending::default() })
    }

    /// Nothing more will be sent: our FIN follows what was (the user's CLOSE of RFC 9293, section
    /// 3.10.4).
    pub fn shut(&mut self) {
        if self.send.is_shut {
            return;
        }
        match self.state {
            State::SynSent | State::SynReceived => self.send.is_shut = true,
            State::Established | State::CloseWait => {
                self.send.is_shut = true;
                self.enter(Cause::Close);
            }
            _ => {}
        }
    }

    /// Nothing above holds it any more: as [`shut`](Self::shut), and what still arrives breaks it
    /// off (RFC 9293, section 3.6.1).
    pub fn close(&mut self, now: Time) {
        (self.is_deaf, self.is_odd) = (true, true);
        if self.state == State::SynSent && self.send.unsent() == 0 {
            self.enter(Cause::Reset);
            return;
        }
        if self.receive.ready_octets() > 0 {
            // What was acknowledged and never read is lost: the peer should not think otherwise
            // (RFC 2525, section 2.17).
            self.abort(now);
            return;
        }
        self.shut();
        if self.state == State::FinWait2 {
            self.ends_at = Some(now + self.settings.orphan_timeout);
        }
    }

    /// Breaks the connection off (RFC 9293, section 3.10.5).
    pub fn abort(&mut self, now: Time) {
        let is_known = matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
        );
        if is_known {
            self.reset = Some(Box::new(self.reset_header(now)));
        }
        self.fail(StreamError::Aborted);
    }

    fn reset_header(&self, now: Time) -> Header {
        let flags = Flags::RST | Flags::ACK;
        let Ends { local, peer, .. } = self.ends;
        let mut header = Header::new(local, peer, self.snd_nxt(), self.receive.rcv_nxt, flags);
        self.stamp(&mut header, now);
        header
    }

    /// Puts timestamps on a segment that goes now, if they were agreed (RFC 7323, section 3.2).
    #[inline(always)]
    fn stamp(&self, header: &mut Header, now: Time) {
        if self.timestamps {
            header.options.timestamps =
                Some(Timestamps { value: self.ends.clock(now), echo: self.ts_recent });
        }
    }

    /// The session below is gone: nothing can be sent any more.
    pub fn cut_off(&mut self) {
        self.fail(StreamError::Network(NetworkErrorKind::HostUnreachable));
    }

    /// Something that the connection cannot do without is used up.
    pub fn exhausted(&mut self, now: Time) {
        self.abort(now);
        self.events.failed = self.events.failed.and(Some(StreamError::NoBuffers));
    }

    /// Measure of the peer's use of the connection, and the time when it was heard last. The
    /// measure is 0 if the connection only waits for late segments. Otherwise it is the binary
    /// magnitude of the octets that were delivered, less that of the seconds since the peer was
    /// heard, and then the magnitude of the octets that the peer acknowledged.
    #[must_use]
    pub fn used(&self, now: Time) -> (u32, Time) {
        let magnitude = |number: u64| u64::BITS - number.leading_zeros();
        let silent = magnitude(now.since(self.heard_at).as_secs());
        let level = match (self.state, self.delivered) {
            (State::TimeWait, _) => return (0, self.heard_at),
            (_, 0) => 1,
            (_, octets) => 2 + magnitude(octets).saturating_sub(silent),
        };
        let second = magnitude(self.send.acknowledged);
        (level << 8 | second, self.heard_at)
    }

    /// Octets of the pool that it keeps besides those out of order, each piece counted as
    /// [`PIECE_OCTETS`] at least; and the octets that have passed in its life.
    pub(crate) fn held(&self) -> (u64, u64) {
        let of = |(octets, pieces): (u64, usize)| octets.max(pieces as u64 * PIECE_OCTETS);
        let passed = self.send.acknowledged + self.delivered;
        (of(self.send.held()) + of(self.receive.held()), passed)
    }

    /// Releases what is kept out of order; answers how many segments brought it.
    pub(crate) fn drop_runs(&mut self) -> u32 {
        self.receive.drop_runs()
    }

    /// Octets of the send buffer.
    pub fn buffer(&self) -> u32 {
        self.send.buffer
    }

    /// Ends in disorder.
    fn fail(&mut self, error: StreamError) {
        if self.state == State::Closed {
            return;
        }
        self.fail_fast(error);
        // What waits for late segments has ended in order before.
        if !matches!(self.state, State::TimeWait) {
            self.events.failed = Some(error);
        }
        self.enter(Cause::Reset);
    }

    /// Sets something; false if the value is out of bounds.
    pub fn set(&mut self, setting: StreamSetting, now: Time) -> bool {
        if !Rc::make_mut(&mut self.settings).set(setting) {
            return false;
        }
        match setting {
            StreamSetting::Cork(false) | StreamSetting::NoDelay(true) => self.force = true,
            StreamSetting::ManualWindow(on) => self.receive.manual = on,
            StreamSetting::ReceiveBuffer(octets) => {
                // A window that cannot be announced would be announced again and again.
                let octets = octets.min(self.receive.window_max());
                self.receive.buffer_max = octets;
                self.receive.buffer = self.receive.buffer.min(octets);
            }
            StreamSetting::SendBuffer(octets) => self.send.buffer = octets,
            StreamSetting::Congestion(name) => {
                let segment = u32::from(self.segment);
                if let Some(chosen) = crate::congestion::by_name(&name, segment) {
                    self.recovery.set_congestion(chosen, now);
                }
            }
            StreamSetting::SegmentMax(_) => self.resize(false),
            StreamSetting::QuickAcks(on) => self.set_quick_acks(on),
            StreamSetting::UnsentMax(_) if self.send.is_wanted => self.tell_room(),
            StreamSetting::KeepAlive(_) => {
                self.heard_at = now;
                self.keep_alive_count = 0;
            }
            StreamSetting::UserTimeout(_) | StreamSetting::AnnounceUserTimeout(_) => {
                self.announce_timeout();
            }
            _ => {}
        }
        true
    }

    /// Notes what the peer's SYN says.
    fn learn(&mut self, peer: &Syn, now: Time) {
        let settings = &self.settings;
        let max = settings.receive_buffer_max;
        let is_scaled = settings.window_scale && peer.shift.is_some();
        let shift = if is_scaled { settings.shift() } else { 0 };
        let mut receive = Receive::new(peer.irs, settings.receive_buffer, max, shift, now);
        if !is_scaled {
            receive.buffer_max = max.min(u32::from(u16::MAX));
            receive.buffer = receive.buffer.min(receive.buffer_max);
        }
        receive.manual = settings.manual_window;
        self.receive = receive;
        self.send.shift = peer.shift.filter(|_| is_scaled).unwrap_or(0);
        self.send.snd_wnd = u32::from(peer.window);
        self.send.max_snd_wnd = self.send.snd_wnd;
        self.send.fair_wnd = self.send.snd_wnd;
        self.send.snd_wl1 = peer.irs;
        self.timestamps = settings.timestamps && peer.clock.is_some();
        (self.ts_recent, self.ts_recent_at) = (peer.clock.unwrap_or(0), now);
        self.sack = settings.sack && peer.sack;
        self.peer_segment = peer.segment_max;
        self.agree_on_ecn(peer.ecn, peer.tallies);
        if let Some(field) = peer.user_timeout {
            self.take_user_timeout(field);
        }
        self.resize(false);
        self.heard_at = now;
    }

    /// The window of our SYN, in octets.
    fn syn_window(&self) -> u32 {
        self.settings.receive_buffer.min(u32::from(u16::MAX))
    }

    /// Goes where the diagram leads.
    fn enter(&mut self, cause: Cause) {
        let Some(state) = state::next(self.state, cause) else {
            return;
        };
        self.state = state;
        match state {
            State::Closed => {
                self.events.closed |= self.events.failed.is_none() && cause != Cause::Reset;
                self.send.clear();
                if cause == Cause::Reset {
                    self.receive.clear();
                }
                (self.persist_at, self.cork_at) = (None, None);
                (self.ends_at, self.again) = (None, None);
                self.ack_due = AckDue::No;
            }
            State::TimeWait => {
                self.events.closed = true;
                self.send.clear();
            }
            _ => {}
        }
    }

    /// The handshake is done.
    fn establish(&mut self, now: Time) {
        if self.is_active || self.fast.is_none() {
            self.recovery.established(u32::from(self.segment), self.sack, now);
        } else {
            self.recovery.proved();
        }
        // A passive open is told by `open_done`.
        self.events.connected = self.end_fast(now);
        self.soft_error = None;
        if self.send.is_shut {
            self.enter(Cause::Close);
        }
    }

    /// The network says about what was sent at `seq` (`None`: about everything) that it did not
    /// arrive.
    pub fn unreachable(&mut self, kind: NetworkErrorKind, seq: Option<Seq>) {
        let is_ours = seq.is_none_or(|seq| {
            let una = self.snd_una();
            seq.at_or_after(una) && seq.at_or_before(self.snd_nxt())
        });
        if !is_ours {
            return;
        }
        let (error, is_answer) = match kind {
            NetworkErrorKind::PortUnreachable => (StreamError::Refused, true),
            NetworkErrorKind::ProtocolUnreachable => (StreamError::Network(kind), true),
            _ => (StreamError::Network(kind), false),
        };
        // RFC 5927, section 6: a connection that stands is not broken by what any host could have
        // written.
        match self.state {
            // "No port" is an answer; where no way is there may soon be one (RFC 9293, section
            // 3.9.2.2).
            State::SynSent if seq.is_some() && is_answer => self.fail(error),
            _ => self.soft_error = Some(error),
        }
    }

    /// Whether the network may speak of a segment at `seq`: it is outstanding (RFC 5927, section
    /// 4.1).
    #[must_use]
    pub fn is_outstanding(&self, seq: Seq) -> bool {
        seq.at_or_after(self.snd_una()) && seq.before(self.snd_nxt())
    }

    /// The next octets for the receiver.
    pub fn deliver(&mut self) -> Option<Message> {
        let message = self.receive.deliver()?;
        self.delivered += message.len() as u64;
        Some(message)
    }

    /// The next octets for the receiver, at most `octets`, which is not 0.
    pub fn deliver_at_most(&mut self, octets: usize) -> Option<Message> {
        let message = self.receive.deliver_at_most(octets)?;
        self.delivered += message.len() as u64;
        Some(message)
    }

    /// Puts back what was delivered last: it is delivered next.
    pub(crate) fn deliver_again(&mut self, message: Message) {
        self.delivered -= message.len() as u64;
        self.receive.deliver_again(message);
    }

    /// Octets of the message that [`deliver`](Self::deliver) gives next.
    pub fn next_len(&self) -> Option<usize> {
        self.receive.next_len()
    }

    /// The receiver has consumed so many octets; only under [`StreamSetting::ManualWindow`].
    pub fn consumed(&mut self, octets: u32) {
        self.receive.consumed(octets);
    }

    /// The next event; the end of the peer's stream comes behind its last octets.
    pub fn event(&mut self) -> Option<StreamEvent> {
        let events = &mut self.events;
        if core::mem::take(&mut events.connected) {
            return Some(StreamEvent::Connected);
        }
        if let Some(error) = events.failed.take() {
            *events = Events::default();
            return Some(StreamEvent::Failed(error));
        }
        if core::mem::take(&mut events.writable) {
            return Some(StreamEvent::Writable);
        }
        if self.receive.next_len().is_some() {
            return None;
        }
        if core::mem::take(&mut events.end) {
            return Some(StreamEvent::EndOfStream);
        }
        core::mem::take(&mut events.closed).then_some(StreamEvent::Closed)
    }
}

/// Recovery for a connection that begins with `iss`.
fn recovery(settings: &Settings, iss: Seq) -> Recovery {
    let segment = u32::from(SEGMENT_DEFAULT);
    let congestion = crate::congestion::by_name(&settings.congestion, segment)
        .unwrap_or_else(|| Box::new(crate::congestion::NewReno::new(segment)));
    Recovery::new((segment, SEGMENTS_MAX), congestion, iss)
}

/// Why a segment was dropped, or not.
pub type Verdict = Result<(), &'static Reason>;

/// Octets of a header without options, as sizes of packets count.
pub(crate) const HEADER: u32 = HEADER_LEN as u32;
