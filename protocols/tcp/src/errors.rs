//! Errors that the network reports about segments sent from here (RFC 9293, section 3.9.2.2; RFC
//! 5927).

use crate::protocol::Tcp;
use crate::seq::Seq;
use crate::session::{has_outstanding, is_over, report};
use crate::table::{key, ports};
use xk_core::{Answer, Ask, Kernel, ProtocolRef, SessionRef};
use xk_kit::control::{IsOutstanding, NetworkError, Start};
use xk_kit::net::moving::EndsFailed;

/// Both ports, as in a key, and the sequence number of a segment that was sent.
fn known(start: &Start) -> Option<(u32, Seq)> {
    let [a, b, c, d, e, f, g, h, ..] = **start else {
        return None;
    };
    let pair = ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some((pair, Seq(u32::from_be_bytes([e, f, g, h]))))
}

impl Tcp {
    /// A report about a segment sent from here: finds its session.
    pub(crate) fn network_error(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let Some(error) = ask.get::<NetworkError>() else {
            return Answer::Unknown;
        };
        let Some(lower) = error.session.clone() else {
            return Answer::Unknown;
        };
        // A report that comes back from above, where nothing understood it, ends here.
        if lower.head().protocol() == this.id() {
            return Answer::Unknown;
        }
        let Some((pair, seq)) = known(&error.start) else {
            // What was sent is not known: all connections through this session are meant, such as
            // when the next hop does not answer.
            return self.network_error_to_all(cx, error, &lower);
        };
        match self.table.sessions.get(&key(&lower, pair)) {
            Some(session) => {
                report(cx, &session, error.kind, Some(seq));
                Answer::Answered
            }
            None => self.tell_keeper(cx, &lower, pair, error),
        }
    }

    /// A report about a connection that is elsewhere is for what keeps its ends.
    #[cold]
    fn tell_keeper(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        pair: u32,
        error: &NetworkError,
    ) -> Answer {
        let hosts = self.hosts(cx, &self.table.origins.of(cx, lower), lower);
        let Some((Some(keeper), number)) = self.table.holds.keeper(&(hosts, pair)) else {
            return Answer::Unknown;
        };
        let error = NetworkError { session: None, ..error.clone() };
        let _ = keeper.ask(cx, EndsFailed { number, error });
        Answer::Answered
    }

    /// Whether a connection has sent a segment that begins so, and not heard of it (RFC 5927,
    /// section 4.1); unknown of one that is elsewhere, which looks for itself.
    pub(crate) fn is_outstanding(&self, cx: &Kernel, about: &mut IsOutstanding) -> Answer {
        let Some((pair, seq)) = known(&about.start) else {
            about.is = false;
            return Answer::Answered;
        };
        let session = self.table.sessions.get(&key(&about.session, pair));
        about.is = session.as_ref().is_some_and(|session| has_outstanding(session, seq));
        let lower = &about.session;
        let hosts = || self.hosts(cx, &self.table.origins.of(cx, lower), lower);
        match session.is_none() && self.table.holds.keeper(&(hosts(), pair)).is_some() {
            true => Answer::Unknown,
            false => Answer::Answered,
        }
    }

    fn network_error_to_all(
        &self,
        cx: &Kernel,
        error: &NetworkError,
        lower: &SessionRef,
    ) -> Answer {
        let mut found = Answer::Unknown;
        for session in self.table.sessions.sessions(usize::MAX) {
            if is_over(&session, lower) {
                report(cx, &session, error.kind, None);
                found = Answer::Answered;
            }
        }
        found
    }
}
