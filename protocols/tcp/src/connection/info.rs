//! How a connection stands, for questions about it.

use super::Connection;
use alloc::string::String;
use xk_kit::net::stream::{StreamError, StreamInfo};

impl Connection {
    /// How the connection stands.
    #[must_use]
    pub fn info(&self) -> StreamInfo {
        let (rtt, congestion) = (self.recovery.rtt(), self.recovery.congestion());
        StreamInfo {
            state: self.state.name().into(),
            segment: u32::from(self.segment),
            round_trip: rtt.smoothed().map(|srtt| (srtt, rtt.variation())),
            timeout: rtt.rto(),
            congestion: congestion.name().into(),
            congestion_window: congestion.window(),
            threshold: congestion.threshold(),
            peer_window: self.send.snd_wnd,
            in_flight: self.recovery.board().outstanding_octets(),
            unsent: self.send.unsent(),
            retransmissions: self.recovery.counters().resent,
            acknowledged: self.send.acknowledged,
            delivered: self.delivered,
        }
    }

    /// What the network says against it that is no proof (RFC 1122, section 4.2.3.9).
    pub fn soft_error(&self) -> Option<StreamError> {
        self.soft_error
    }

    /// What [`info`](Self::info) tells, as a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let info = self.info();
        let counters = self.recovery.counters();
        let mut text = alloc::format!(
            "{}, segment {}, {} cwnd {} ssthresh {}, rto {:?}, peer window {}, in flight {}, unsent {}, window {} of {}",
            info.state,
            info.segment,
            info.congestion,
            info.congestion_window,
            info.threshold,
            info.timeout,
            info.peer_window,
            info.in_flight,
            info.unsent,
            self.receive.window(),
            self.receive.buffer,
        );
        if let Some((srtt, variation)) = info.round_trip {
            text.push_str(&alloc::format!(", rtt {srtt:?} ± {variation:?}"));
        }
        if counters.resent > 0 {
            text.push_str(&alloc::format!(
                ", resent {} ({} timeouts, {} recoveries, {} undone)",
                counters.resent,
                counters.timeouts,
                counters.recoveries,
                counters.undone
            ));
        }
        text
    }
}
