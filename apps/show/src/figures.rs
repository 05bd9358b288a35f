//! The figures of a kernel's protocols: what crossed them, and what the anchors report.

use xk_core::control::{ListSessions, Report};
use xk_core::{Kernel, ProtocolRef};

/// Bounds the sessions of one protocol that are looked at.
const SESSIONS_MAX: usize = 1 << 16;

/// Returns the sessions that a protocol lists, which may be those of the protocol below.
#[must_use]
pub fn sessions_at(kernel: &Kernel, protocol: &ProtocolRef) -> ListSessions {
    protocol.ask(kernel, ListSessions::first(SESSIONS_MAX)).unwrap_or_default()
}

/// Returns a protocol's own sessions, and how many there are.
#[must_use]
pub fn sessions_of(kernel: &Kernel, protocol: &ProtocolRef) -> ListSessions {
    let list = sessions_at(kernel, protocol);
    let own = list.sessions.iter().all(|listed| listed.protocol() == protocol.id());
    if own { list } else { ListSessions::default() }
}

/// Returns an empty list with room for the sessions of one protocol.
#[must_use]
pub fn no_sessions() -> ListSessions {
    ListSessions::first(SESSIONS_MAX)
}

/// Returns how many messages a protocol has sent and received, through these sessions of its and
/// through those that are no more.
#[must_use]
pub fn crossed(protocol: &ProtocolRef, sessions: &ListSessions) -> (u64, u64) {
    let (mut sent, mut received) = protocol.head().folded();
    for session in sessions.here() {
        sent += session.head().sent();
        received += session.head().received();
    }
    (sent, received)
}

/// Returns what a protocol reports of itself. One that does not passes the question on, and what is
/// below answers.
#[must_use]
pub fn report(kernel: &Kernel, protocol: &ProtocolRef) -> Option<Report> {
    let of = |protocol: &ProtocolRef| protocol.ask(kernel, Report::default());
    let own = of(protocol)?;
    let below = protocol.lower().and_then(of);
    below.is_none_or(|below| below.lines != own.lines).then_some(own)
}

/// Writes a report in one line.
#[must_use]
pub fn report_line(report: &Report) -> String {
    let state = match (report.failed, report.finished) {
        (true, _) => "FAILED",
        (_, true) => "ok",
        _ => "not finished",
    };
    let mut line = state.to_owned();
    for (name, value) in &report.lines {
        line.push_str(&format!(", {name} {value}"));
    }
    line
}
