//! The states of a connection and the ways between them: RFC 9293's diagram (section 3.3.2) as a
//! table.

use alloc::string::String;
use core::fmt::{self, Write};
use xk_core::fields;

/// The state of a connection (RFC 9293, section 3.3.2). LISTEN is no state of a connection here:
/// a listener is an enable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is known of the peer any more.
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
    enum State {
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

/// What moves a connection from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// This side opens.
    Open,
    /// A SYN came to a port that is enabled.
    ListenSyn,
    /// The peer's SYN came, and acknowledges ours.
    SynAck,
    /// The peer's SYN came, and does not acknowledge ours: both have opened at once.
    Syn,
    /// Our SYN was acknowledged.
    AckOfSyn,
    /// This side has nothing more to send, and our FIN goes.
    Close,
    /// The peer's FIN came.
    Fin,
    /// Our FIN was acknowledged.
    AckOfFin,
    /// Twice the lifetime of a segment has passed.
    TwoLifetimes,
    /// A reset came, or this side gave up.
    Reset,
}

/// From, because of, to.
pub type Transition = (State, Cause, State);

/// The diagram.
pub static TRANSITIONS: &[Transition] = {
    use Cause::*;
    use State::*;
    &[
        (Closed, Open, SynSent),
        (Closed, ListenSyn, SynReceived),
        (SynSent, SynAck, Established),
        (SynSent, Syn, SynReceived),
        (SynSent, Reset, Closed),
        (SynReceived, AckOfSyn, Established),
        (SynReceived, Close, FinWait1),
        (SynReceived, Fin, CloseWait),
        (SynReceived, Reset, Closed),
        (Established, Close, FinWait1),
        (Established, Fin, CloseWait),
        (Established, Reset, Closed),
        (FinWait1, AckOfFin, FinWait2),
        (FinWait1, Fin, Closing),
        (FinWait1, Reset, Closed),
        (FinWait2, Fin, TimeWait),
        (FinWait2, Reset, Closed),
        (CloseWait, Close, LastAck),
        (CloseWait, Reset, Closed),
        (Closing, AckOfFin, TimeWait),
        (Closing, Reset, Closed),
        (LastAck, AckOfFin, Closed),
        (LastAck, Reset, Closed),
        (TimeWait, TwoLifetimes, Closed),
        (TimeWait, Reset, Closed),
    ]
};

impl State {
    /// The state that follows; `None` if the diagram has no such way.
    #[must_use]
    pub fn next(self, cause: Cause) -> Option<State> {
        let mut ways = TRANSITIONS.iter();
        ways.find(|(from, by, _)| *from == self && *by == cause).map(|(_, _, to)| *to)
    }

    /// Its name in the standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::SynSent => "SYN-SENT",
            State::SynReceived => "SYN-RECEIVED",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::CloseWait => "CLOSE-WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST-ACK",
            State::TimeWait => "TIME-WAIT",
        }
    }

    /// Whether both sides know each other's sequence numbers.
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::SynSent | State::SynReceived)
    }

    /// Whether the peer may still send data, as far as is known.
    #[inline]
    pub const fn receives(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether this side may still take data to send.
    #[inline]
    pub const fn takes_data(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// Whether this side has ended its direction.
    #[inline]
    pub const fn has_ended(self) -> bool {
        matches!(
            self,
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck | State::TimeWait
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cause::Open => "open",
            Cause::ListenSyn => "SYN to a listener",
            Cause::SynAck => "SYN with ACK of SYN",
            Cause::Syn => "SYN",
            Cause::AckOfSyn => "ACK of SYN",
            Cause::Close => "close",
            Cause::Fin => "FIN",
            Cause::AckOfFin => "ACK of FIN",
            Cause::TwoLifetimes => "2 MSL",
            Cause::Reset => "reset",
        })
    }
}

/// Draws the table as text: for each state the ways out of it.
#[must_use]
pub fn diagram() -> String {
    let mut text = String::new();
    let mut last = None;
    for (from, cause, to) in TRANSITIONS {
        let name = if last == Some(*from) { "" } else { from.name() };
        last = Some(*from);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<12} --{cause:-<20}> {to}");
    }
    text
}

/// Draws the table for Graphviz.
#[must_use]
pub fn dot() -> String {
    let mut text = String::from("digraph tcp {\n");
    for (from, cause, to) in TRANSITIONS {
        let _ = writeln!(text, "    \"{from}\" -> \"{to}\" [label=\"{cause}\"];");
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests;
