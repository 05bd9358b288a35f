//! Streams: what a protocol that carries a stream of octets (TCP) and its uppers agree
//! on.
//!
//! `open` answers at once with a session that is still connecting; [`StreamEvent::Connected`] or
//! [`StreamEvent::Failed`] follows. A passive session is told by `open_done` once it is connected,
//! before its first octets; whether there is room for one is asked before ([`StreamRoom`]). `push`
//! takes all of a message or nothing, so an upper with much to send asks [`StreamSpace`] first and
//! goes on at [`StreamEvent::Writable`]. Octets that have arrived come up by `demux` in order; the
//! receiver has consumed them with that, unless it asked for [`StreamSetting::ManualWindow`]. To
//! close the last handle sends what was pushed, then the end of the stream, in the background;
//! [`StreamAbort`] breaks the stream off.

use crate::control::NetworkErrorKind;
use core::fmt;
use core::time::Duration;
use xk_core::control::Word;
use xk_core::object::SessionRef;
use xk_core::{HostAddr, ProtocolRef, Time, fields, question};

/// Why a stream broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamError {
    /// Nothing there takes connections (`ECONNREFUSED`).
    Refused,
    /// The peer broke the stream off (`ECONNRESET`).
    Reset,
    /// The peer did not answer in time (`ETIMEDOUT`).
    TimedOut,
    /// The network says why nothing reaches the peer (`EHOSTUNREACH` and the like).
    Network(NetworkErrorKind),
    /// This side broke the stream off (`ECONNABORTED`).
    Aborted,
    /// There was no memory, or no room in a table, to go on with (`ENOBUFS`).
    NoBuffers,
}

fields!(
    enum StreamError {
        Refused = 0,
        Reset = 1,
        TimedOut = 2,
        Network(kind) = 3,
        Aborted = 4,
        NoBuffers = 5,
    }
);

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The stream is connected; only after an `open` of this side.
    Connected,
    /// There is room to push again, after [`StreamSpace`] or a push found too little.
    Writable,
    /// The peer sends no more; all octets before have been delivered.
    EndOfStream,
    /// The stream broke. Nothing follows.
    Failed(StreamError),
    /// Both directions have ended in order. Nothing follows.
    Closed,
}

fields!(
    enum StreamEvent {
        Connected = 0,
        Writable = 1,
        EndOfStream = 2,
        Failed(error) = 3,
        Closed = 4,
    }
);

/// Told upwards, to the protocol above: something has happened to a stream of its.
#[derive(Clone, Debug)]
pub struct StreamNotice {
    /// The stream.
    pub session: SessionRef,
    /// The event.
    pub event: StreamEvent,
}
question!(StreamNotice { session, event }, "stream-notice", Tell, upward);

/// Asked of a session: is it still connecting? If so, another protocol than the one above may hear
/// when it no longer is, by [`StreamNotice`], once; of many such the last ones do.
#[derive(Clone, Debug, Default)]
pub struct StreamConnected {
    /// In: what wants to hear of it.
    pub watcher: Option<ProtocolRef>,
    /// Out: it is still connecting.
    pub connecting: bool,
}
question!(StreamConnected { watcher, connecting }, "stream-connected", Ask);

/// Asked upwards, of the protocol that will take the octets of a stream: how much may be on the way
/// to it. One that has had all when it is called does not know the question.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamCredit {
    /// Out: octets, at most, that it has been handed and has not [settled](StreamSettled). It may
    /// refuse some for want of room, and takes them later.
    pub octets: u32,
}
question!(StreamCredit { octets }, "stream-credit", Ask, upward);

/// Asked upwards, of a protocol that gives [`StreamCredit`]: whatever it answers, it has had what
/// was handed to it for the stream before, and has pushed what it pushes at once.
#[derive(Clone, Debug)]
pub struct StreamSettled {
    /// The stream.
    pub session: SessionRef,
}
question!(StreamSettled { session }, "stream-settled", Ask, upward);

/// Asked upwards, of a protocol that has enabled a port: does it take one peer more there? Asked
/// before a peer is answered, and again before it is connected: where there is no room nothing is
/// said to the peer, which tries again. A protocol above that does not know the question always has
/// room.
#[derive(Clone, Copy, Debug)]
pub struct StreamRoom {
    /// The host that the peer has turned to, if the layer below knows of hosts.
    pub host: Option<HostAddr>,
    /// The port that it has turned to.
    pub port: u16,
    /// Out: there is no room.
    pub full: bool,
    /// Out: announce no larger segments to that peer, in octets of data, and send none.
    pub segment_max: u16,
    /// Out: keep no more of what that peer sends than so many octets, from the first window on.
    pub receive_buffer: u32,
    /// Out: how many peers may have data here before their handshake is done (RFC 7413); if not
    /// changed, as many as the protocol below usually lets.
    pub fast_open: u32,
}
question!(
    StreamRoom { host, port, full, segment_max, receive_buffer, fast_open },
    "stream-room",
    Ask,
    upward
);

impl StreamRoom {
    /// The question for a peer that has turned to `port` of `host`: there is all the room in the
    /// world, unless the answer says otherwise.
    pub fn at(host: Option<HostAddr>, port: u16) -> Self {
        Self {
            host,
            port,
            full: false,
            segment_max: u16::MAX,
            receive_buffer: u32::MAX,
            fast_open: 0,
        }
    }
}

/// Asked of a session: how many octets a push takes now. If it is fewer than there may ever be,
/// [`StreamEvent::Writable`] follows when there are at least a third of those.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamSpace {
    /// Octets.
    pub octets: u32,
}
question!(StreamSpace { octets }, "stream-space", Ask);

/// Told to a session: nothing more will be pushed. The end of the stream follows what was.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamShutdown;
question!(StreamShutdown {}, "stream-shutdown", Tell);

/// Told to a session: what was pushed so far ends a record. No segment carries octets of two.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamEndRecord;
question!(StreamEndRecord {}, "stream-end-record", Tell);

/// Told to a session: break it off at once (with a reset), whatever is under way is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamAbort;
question!(StreamAbort {}, "stream-abort", Tell);

/// Told to a session under [`StreamSetting::ManualWindow`]: the receiver has consumed so many more
/// octets.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamConsumed {
    /// Octets.
    pub octets: u32,
}
question!(StreamConsumed { octets }, "stream-consumed", Tell);

/// Times at which a silent peer is probed (RFC 9293, section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The silence before the first probe.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// Number of unanswered probes that break the stream.
    pub probes_max: u32,
}

fields!(KeepAlive { idle, interval, probes_max });

/// A setting of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamSetting {
    /// Send small segments at once (Nagle's algorithm off, RFC 9293, section 3.7.4).
    NoDelay(bool),
    /// Hold back what fills no segment until told otherwise.
    Cork(bool),
    /// Probe a silent peer, or do not.
    KeepAlive(Option<KeepAlive>),
    /// Time that octets may stay unacknowledged before the stream is broken (RFC 5482); the usual
    /// time if `None`.
    UserTimeout(Option<Duration>),
    /// Announce the user timeout to the peer, and heed the peer's unless one was set here (RFC
    /// 5482).
    AnnounceUserTimeout(bool),
    /// The receiver tells by [`StreamConsumed`] what it has consumed.
    ManualWindow(bool),
    /// The largest receive buffer, in octets.
    ReceiveBuffer(u32),
    /// The largest send buffer, in octets.
    SendBuffer(u32),
    /// The congestion control, by its name as in a graph file.
    Congestion(Word),
    /// Do not announce or send segments with more octets of data than so many.
    SegmentMax(u16),
    /// Give no room to push while so many octets wait to be sent; not 0.
    UnsentMax(u32),
    /// Acknowledge what arrives at once, until it is answered as a rule; or leave acknowledgements
    /// to answers.
    QuickAcks(bool),
    /// Asks a stream that is to be opened to send the first octets with the SYN where the peer has
    /// given a cookie for that, and to ask for one (RFC 7413). The stream says that it is connected
    /// at once then; the SYN waits a moment for octets to carry.
    FastOpen(bool),
    /// Bounds, for a protocol or a listener, the peers of a port that may have octets here before
    /// their handshake is done (RFC 7413); a peer may send them again on another connection, so
    /// what they ask for must bear that.
    FastOpenMax(u32),
    /// Sends all segments with so many hops to go; 0 for as many as usual.
    Hops(u8),
    /// Sends all segments with this class of traffic (RFC 2474), whose two lowest bits are left to
    /// ECN; the usual one if `None`.
    Class(Option<u8>),
    /// Bounds the time that the peer has to end its direction once the stream is closed and its own
    /// end is acknowledged.
    OrphanTimeout(Duration),
}

fields!(
    enum StreamSetting {
        NoDelay(on) = 0,
        Cork(on) = 1,
        KeepAlive(times) = 2,
        UserTimeout(limit) = 3,
        AnnounceUserTimeout(on) = 4,
        ManualWindow(on) = 5,
        ReceiveBuffer(octets) = 6,
        SendBuffer(octets) = 7,
        Congestion(name) = 8,
        SegmentMax(octets) = 9,
        UnsentMax(octets) = 10,
        QuickAcks(on) = 11,
        FastOpen(on) = 12,
        FastOpenMax(peers) = 13,
        Hops(hops) = 14,
        Class(class) = 15,
        OrphanTimeout(limit) = 16,
    }
);

/// Told to a session, or to a protocol for all sessions to come.
#[derive(Clone, Copy, Debug)]
pub struct StreamSet {
    /// The setting.
    pub setting: StreamSetting,
    /// Out: false if the value is out of bounds.
    pub taken: bool,
}
question!(StreamSet { setting, taken }, "stream-set", Ask);

/// Told to a protocol: the session that the next `open` of the same user makes has this setting,
/// and no other has it for that. What a SYN announces has to be known before.
#[derive(Clone, Copy, Debug)]
pub struct StreamSetNext {
    /// The setting.
    pub set: StreamSet,
}
question!(StreamSetNext { set }, "stream-set-next", Ask);

/// Asked of a session: what the network has said against the stream that does not break it, being
/// no proof (RFC 1122, section 4.2.3.9; RFC 5927): why it makes no progress, as far as
/// is known, and why it will have failed if it does fail. What is acknowledged since takes it back.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamSoftError {
    /// The error.
    pub error: Option<StreamError>,
}
question!(StreamSoftError { error }, "stream-soft-error", Ask);

/// Asked of a session: how much its peer uses the stream, for a table that breaks off the one used
/// least.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamUse {
    /// Out: how much by now, and when the peer was heard last; `None` for a stream that this host
    /// opened and holds.
    pub rank: Option<(u32, Time)>,
}
question!(StreamUse { rank }, "stream-use", Ask);

/// The ways in which the ends of a stream tell each other of packets that routers have marked in
/// place of dropping them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEcn {
    /// Not at all.
    #[default]
    No,
    /// Once in a round trip, that there were some (RFC 3168).
    Classic,
    /// By their number (RFC 9768).
    Accurate,
}

fields!(
    enum StreamEcn {
        No = 0,
        Classic = 1,
        Accurate = 2,
    }
);

/// The state of a connection (RFC 9293, section 3.3.2). LISTEN is no state of a connection here:
/// a listener is an enable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// Nothing is known of the peer any more.
    #[default]
    Closed,
    /// A SYN went; the peer's is awaited.
    SynSent,
    /// Both have sent a SYN; the acknowledgement of ours is awaited.
    SynReceived,
    /// Data flow both ways.
    Established,
    /// We have ended, and the peer has not acknowledged that.
    FinWait1,
    /// We have ended; the peer may still send.
    FinWait2,
    /// The peer has ended; we may still send.
    CloseWait,
    /// Both have ended at once; the acknowledgement of ours is awaited.
    Closing,
    /// The peer ended first, then we; the acknowledgement of ours is awaited.
    LastAck,
    /// Both have ended; segments that are late may come.
    TimeWait,
}

fields!(
    enum StreamState {
        Closed = 0,
        SynSent = 1,
        SynReceived = 2,
        Established = 3,
        FinWait1 = 4,
        FinWait2 = 5,
        CloseWait = 6,
        Closing = 7,
        LastAck = 8,
        TimeWait = 9,
    }
);

impl StreamState {
    /// Returns the name in the standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
        }
    }

    /// Whether both sides know each other's sequence numbers.
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::SynSent | Self::SynReceived)
    }

    /// Whether the peer may still send data, as far as is known.
    #[inline]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Whether this side may still take data to send.
    #[inline]
    pub const fn takes_data(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }

    /// Whether this side has ended its direction.
    #[inline]
    pub const fn has_ended(self) -> bool {
        matches!(
            self,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck | Self::TimeWait
        )
    }
}

impl fmt::Display for StreamState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Asked of a session: how the stream stands (as `TCP_INFO` of Linux).
#[derive(Clone, Debug, Default)]
pub struct StreamInfo {
    /// The state of the connection.
    pub state: StreamState,
    /// Octets of data in a segment to the peer.
    pub segment: u32,
    /// Smoothed round trip time and its variation (RFC 6298); `None` before the first measurement.
    pub round_trip: Option<(Duration, Duration)>,
    /// The retransmission timeout.
    pub timeout: Duration,
    /// The congestion control, by its name as in a graph file.
    pub congestion: Word,
    /// The congestion window, in octets.
    pub congestion_window: u32,
    /// The slow-start threshold, in octets; [`THRESHOLD_NONE`](Self::THRESHOLD_NONE) before the
    /// first loss.
    pub threshold: u32,
    /// The peer's window, in octets.
    pub peer_window: u32,
    /// Octets sent and not acknowledged.
    pub in_flight: u32,
    /// Octets pushed and not sent.
    pub unsent: u32,
    /// Segments sent again since the beginning.
    pub retransmissions: u64,
    /// Octets acknowledged by the peer since the beginning.
    pub acknowledged: u64,
    /// Octets delivered above since the beginning.
    pub delivered: u64,
    /// The way in which the two tell each other of packets that routers have marked.
    pub ecn: StreamEcn,
    /// Marked packets that came here, and those of ours that the peer has told of; only under
    /// [`StreamEcn::Accurate`].
    pub marked: u64,
    /// See [`marked`](Self::marked).
    pub marked_sent: u64,
    /// Octets of a SYN were taken, by either side (RFC 7413).
    pub fast_open: bool,
    /// Facts that only a few transports know.
    pub detail: StreamDetail,
}

/// The states of a sender, in the order of Linux's numbers (`TCP_CA_Open` and on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamRecovery {
    /// Nothing is amiss.
    #[default]
    Open,
    /// Something came twice or out of order at the peer.
    Disorder,
    /// The window was reduced because a router has marked packets.
    Reduced,
    /// Lost segments are sent again.
    Recovery,
    /// A retransmission timer has expired.
    Loss,
}

fields!(
    enum StreamRecovery {
        Open = 0,
        Disorder = 1,
        Reduced = 2,
        Recovery = 3,
        Loss = 4,
    }
);

/// The state of a stream in detail, for programs that ask for `TCP_INFO`; part of [`StreamInfo`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamDetail {
    /// The sender's state.
    pub recovery: StreamRecovery,
    /// Retransmission timers expired since the last progress.
    pub timeouts: u32,
    /// Probes of a closed window, or of a silent peer, without an answer.
    pub probes: u32,
    /// Segments outstanding.
    pub outstanding: u32,
    /// Segments of these that were acknowledged selectively.
    pub sacked: u32,
    /// Segments of these that are believed lost and were not sent again yet.
    pub lost: u32,
    /// Segments of these that were sent again and are in flight.
    pub resent: u32,
    /// Time since octets were sent last; a SYN counts.
    pub since_sent: Duration,
    /// Time since octets came last; since anything did if none ever have.
    pub since_received: Duration,
    /// Time since anything came.
    pub since_heard: Duration,
    /// Octets of the largest packet on the path.
    pub path: u32,
    /// Octets of data in the largest segment that came.
    pub segment_received: u32,
    /// Octets of data in a segment that the peer was told of.
    pub segment_announced: u32,
    /// The window that the peer was told of, in octets.
    pub window: u32,
    /// The receive buffer, in octets.
    pub receive_buffer: u32,
    /// The smallest round trip of the last minutes.
    pub round_trip_min: Option<Duration>,
    /// The rate at which segments are spread, in octets a second.
    pub pacing_rate: Option<u64>,
    /// Segments have timestamps.
    pub timestamps: bool,
    /// Both sides speak of what came out of order.
    pub sack: bool,
    /// Routers may mark.
    pub ecn: bool,
    /// The shifts of the peer's windows and of ours, if they are scaled.
    pub scales: Option<(u8, u8)>,
    /// Acknowledgements wait for no answer.
    pub quick_acks: bool,
    /// Octets sent again since the beginning.
    pub octets_resent: u64,
    /// Octets that the peer has, whether acknowledged in order or not.
    pub octets_arrived: u64,
    /// Duplicates that the peer has reported.
    pub duplicates: u32,
    /// Times that segments were seen to overtake each other.
    pub reordered: u32,
    /// Segments that came out of order.
    pub out_of_order: u32,
    /// Retransmission timers that have expired since the beginning.
    pub timeouts_ever: u32,
    /// Octets that came, by the marks of their packets, and those of ours that the peer has told
    /// of; only under [`StreamEcn::Accurate`].
    pub marks: StreamMarks,
    /// See [`marks`](Self::marks).
    pub marks_sent: StreamMarks,
}

/// Octets of packets that routers could mark, by what was on these (RFC 9768, section 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMarks {
    /// Octets with ECT(0).
    pub capable_zero: u64,
    /// Octets that a router has marked.
    pub experienced: u64,
    /// Octets with ECT(1).
    pub capable_one: u64,
}

fields!(StreamMarks { capable_zero, experienced, capable_one });

fields!(StreamDetail {
    recovery,
    timeouts,
    probes,
    outstanding,
    sacked,
    lost,
    resent,
    since_sent,
    since_received,
    since_heard,
    path,
    segment_received,
    segment_announced,
    window,
    receive_buffer,
    round_trip_min,
    pacing_rate,
    timestamps,
    sack,
    ecn,
    scales,
    quick_acks,
    octets_resent,
    octets_arrived,
    duplicates,
    reordered,
    out_of_order,
    timeouts_ever,
    marks,
    marks_sent,
});

impl StreamInfo {
    /// The threshold of a stream that has seen no loss, in octets: the largest window.
    pub const THRESHOLD_NONE: u32 = 1 << 30;
}
question!(
    StreamInfo {
        state,
        segment,
        round_trip,
        timeout,
        congestion,
        congestion_window,
        threshold,
        peer_window,
        in_flight,
        unsent,
        retransmissions,
        acknowledged,
        delivered,
        ecn,
        marked,
        marked_sent,
        fast_open,
        detail
    },
    "stream-info",
    Ask
);

/// Asked of a session: what is pushed into it is a record, which arrives whole or, if the stream
/// breaks, not at all; the protocol above is told by [`StreamNotice`] that it broke. Nothing needs
/// to be sent twice meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct CarriesRecords;
question!(CarriesRecords {}, "carries-records", Fact);
