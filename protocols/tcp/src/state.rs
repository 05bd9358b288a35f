//! The states of a connection and the ways between them: RFC 9293's diagram (section 3.3.2) as a
//! table.

use alloc::string::String;
use core::fmt::{self, Write};
pub use xk_kit::net::stream::StreamState as State;

/// Cause of a change of state.
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

/// The state that follows; `None` if the diagram has no such way.
#[must_use]
pub fn next(state: State, cause: Cause) -> Option<State> {
    let mut ways = TRANSITIONS.iter();
    ways.find(|(from, by, _)| *from == state && *by == cause).map(|(_, _, to)| *to)
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
