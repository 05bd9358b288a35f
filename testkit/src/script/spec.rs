//! Contents of a script, read into types.

use super::wire::TcpOption;
use core::fmt;
use core::time::Duration;
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::stream::{StreamError, StreamSetting};

/// A set of numbers that an expectation allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// Every number.
    #[default]
    Any,
    /// This number.
    Is(u64),
    /// This number and those above.
    AtLeast(u64),
    /// This number and those below.
    AtMost(u64),
    /// A number from the first to the second.
    Between(u64, u64),
}

impl Bound {
    /// Whether `number` is allowed.
    #[must_use]
    pub fn allows(self, number: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Is(n) => number == n,
            Self::AtLeast(n) => number >= n,
            Self::AtMost(n) => number <= n,
            Self::Between(from, to) => (from..=to).contains(&number),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Is(n) => write!(f, "{n}"),
            Self::AtLeast(n) => write!(f, ">={n}"),
            Self::AtMost(n) => write!(f, "<={n}"),
            Self::Between(from, to) => write!(f, "{from}..{to}"),
        }
    }
}

/// A relative sequence or acknowledgment number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Number {
    /// Not written: where the sender stands.
    #[default]
    Next,
    /// Every number.
    Any,
    /// This one.
    Is(u32),
}

/// An option as a script writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSpec {
    /// This option; its numbers are relative.
    Is(TcpOption),
    /// The option of this kind, whatever it says.
    Kind(u8),
    /// A timestamp option: value and echo, either left open.
    Times(Option<u32>, Option<u32>),
    /// No option of this kind.
    Absent(u8),
    /// The Fast Open cookie that the protocol under test has given last.
    LastCookie,
}

/// The options of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionsSpec {
    /// Options that are named.
    pub list: Vec<OptionSpec>,
    /// Whether others may be there.
    pub others: bool,
}

/// A segment as a script writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSpec {
    /// The flags; `None` for any.
    pub flags: Option<u16>,
    /// The first sequence number.
    pub seq: Number,
    /// Octets of data; `None` for any.
    pub octets: Option<u32>,
    /// The acknowledgment number.
    pub ack: Number,
    /// The window field, not scaled.
    pub window: Bound,
    /// The urgent pointer.
    pub urgent: Option<u16>,
    /// The options, if the script speaks of them.
    pub options: Option<OptionsSpec>,
    /// The ECN bits of the layer below, if the script speaks of them.
    pub ecn: Option<u8>,
    /// Expected: the hops and the class of traffic that are asked of the layer below, 0 for as
    /// usual, if the script speaks of them.
    pub hops: Option<u8>,
    /// See [`hops`](Self::hops).
    pub class: Option<u8>,
    /// Injected: all data octets have this value.
    pub fill: Option<u8>,
    /// Injected: the checksum is wrong.
    pub corrupt: bool,
    /// Injected: the data offset says so many words of four octets.
    pub offset: Option<u8>,
    /// Injected: only so many octets of it arrive.
    pub cut: Option<usize>,
    /// Injected: to this port.
    pub to: Option<u16>,
    /// Injected: from this port.
    pub from: Option<u16>,
}

/// Event that a stream tells its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A session was made for an enable.
    Accepted,
    /// The connection that was opened stands.
    Connected,
    /// There is room again.
    Writable,
    /// The peer sends no more.
    EndOfStream,
    /// The stream broke.
    Failed(StreamError),
    /// Both directions have ended.
    Closed,
}

/// One act or expectation.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A segment arrives.
    Inject(SegmentSpec),
    /// A segment is sent.
    Expect(SegmentSpec),
    /// Nothing is sent until now.
    Quiet,
    /// Ignores the segments that were sent until now.
    Skip,
    /// The application enables the port.
    Listen,
    /// The application takes the enable back.
    Unlisten,
    /// The listener has room for one peer more, which is told of segments with at most so many
    /// octets and may send so many, or has not.
    Room(Option<(u16, u32)>),
    /// The application opens a connection.
    Connect,
    /// The application pushes this many octets, and is refused if the second says so.
    Write(u32, bool),
    /// This many octets have come up since the last look.
    Read(u64),
    /// The application says that it has consumed this many octets.
    Consume(u32),
    /// The data pushed so far end a record.
    EndRecord,
    /// The application ends its direction.
    Shutdown,
    /// The application releases the session.
    Close,
    /// The application breaks the connection off.
    Abort,
    /// The application sets something; false if that must be refused.
    Set(StreamSetting, bool),
    /// The application sets something for the connection that it opens next.
    SetNext(StreamSetting),
    /// The application is told something.
    Event(Told),
    /// The connection is in this state.
    State(String),
    /// A figure of the connection.
    Info(String, Bound),
    /// Error that the network has reported and that does not break the connection.
    Soft(Option<StreamError>),
    /// Number of octets that a push takes.
    Space(Bound),
    /// Times that the protocol has dropped for this reason.
    Drops(String, Bound),
    /// Makes the script speak of another connection from here on, by number.
    Flow(u16),
    /// The connection begins again; the peer's first sequence number moves on by so much.
    New(u32),
    /// The path's largest packet is now this, in octets.
    Mtu(u32),
    /// The network reports an error about the segment with this sequence number, or the last.
    Error(NetworkErrorKind, Option<u32>),
}

/// Time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Counted from what came before, not from the beginning.
    pub relative: bool,
    /// The time.
    pub from: Duration,
    /// For an expectation: the latest time.
    pub to: Duration,
}

/// One line of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Number of the line in the file, from 1.
    pub line: usize,
    /// Text of the line.
    pub text: String,
    /// When.
    pub when: When,
    /// What.
    pub act: Act,
}

/// One script.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The line that it begins on.
    pub line: usize,
    /// Title: what it shows.
    pub title: String,
    /// Documents and sections, as `("RFC 9293", "3.10.7.4")`.
    pub covers: Vec<(String, String)>,
    /// Parameters for the protocol, as written.
    pub params: Vec<(String, String)>,
    /// The path's largest packet, in octets.
    pub mtu: u32,
    /// The peer's first sequence number.
    pub isn: u32,
    /// Time by which something may happen earlier or later.
    pub tolerance: Duration,
    /// The lines.
    pub steps: Vec<Step>,
}
