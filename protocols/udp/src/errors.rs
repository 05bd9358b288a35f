//! What the network reports about datagrams sent from here.

use crate::protocol::{Udp, key};
use crate::session::unreachable_port;
use crate::table::Taker;
use crate::wire::HEADER_LEN;
use xk_core::{Answer, Ask, Kernel, ProtocolRef};
use xk_kit::control::NetworkError;
use xk_kit::ports::taker;

impl Udp {
    /// A report about a datagram sent from here: finds its session and passes the report on.
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
        // A report that comes back from above, where nobody understood it, ends here.
        if lower.head().protocol() == this.id() || error.start_len < HEADER_LEN {
            return Answer::Unknown;
        }
        let [a, b, c, d, ..] = error.start;
        let (local, peer) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let connected = self.table.sessions.get(&key(&lower, local, peer));
        let found = connected.or_else(|| {
            let origin = self.origins.of(cx, &lower);
            match taker(&self.table.takers, local, origin.local) {
                Some(Taker::Unconnected(session)) => Some(session),
                _ => None,
            }
        });
        let Some(session) = found else {
            return Answer::Unknown;
        };
        unreachable_port(cx, &session, error.kind);
        error.start.copy_within(HEADER_LEN.., 0);
        error.start_len = error.start_len.min(error.start.len()) - HEADER_LEN;
        error.session = Some(session.clone());
        match cx.protocol(session.head().upper()) {
            Some(upper) => upper.control(cx, ask),
            None => Answer::Unknown,
        }
    }
}
