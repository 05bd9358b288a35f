//! State of a connection, for questions about it.

use super::Connection;
use super::timers::LOWER_HEADER;
use alloc::string::String;
use xk_core::Time;
use xk_kit::net::stream::{StreamDetail, StreamError, StreamInfo, StreamRecovery};

impl Connection {
    /// State of the connection.
    #[must_use]
    pub fn info(&self, now: Time) -> StreamInfo {
        let (rtt, congestion) = (self.recovery.rtt(), self.recovery.congestion());
        StreamInfo {
            state: self.state,
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
            ecn: self.ecn_kind(),
            marked: self.marks().0,
            marked_sent: self.marks().1,
            fast_open: self.fast.as_ref().is_some_and(|fast| fast.taken),
            detail: self.detail(now),
        }
    }

    fn detail(&self, now: Time) -> StreamDetail {
        let (recovery, receive) = (&self.recovery, &self.receive);
        let (board, counters, stage) = (recovery.board(), recovery.counters(), recovery.stage());
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (lost, resent) = board.lost_and_resent();
        let data_at = if self.has_received() { self.data_at } else { self.heard_at };
        let [marks, marks_sent] = self.octets_by_marks();
        let is_scaled = self.send.shift > 0 || receive.shift > 0;
        StreamDetail {
            recovery: stage,
            timeouts: if stage == StreamRecovery::Loss { recovery.rtt().back_offs() } else { 0 },
            probes: self.persist_count.max(self.keep_alive_count),
            outstanding: board.segments(),
            sacked: board.sacked_segments(),
            lost,
            resent,
            since_sent: now.since(recovery.last_sent()),
            since_received: now.since(data_at),
            since_heard: now.since(self.heard_at),
            path: self.ends.path + LOWER_HEADER,
            segment_received: self.peer_full,
            segment_announced: self.ends.segment(&self.settings).into(),
            window: receive.window(),
            receive_buffer: receive.buffer,
            round_trip_min: recovery.rtt_min(),
            pacing_rate: recovery.pacing_rate(),
            timestamps: self.timestamps,
            sack: self.sack,
            ecn: self.ecn,
            scales: is_scaled.then_some((self.send.shift, receive.shift)),
            quick_acks: !self.is_interactive,
            octets_resent: counters.octets_resent,
            octets_arrived: recovery.delivered_octets(),
            duplicates: count(counters.dsacks),
            reordered: recovery.reordered(),
            out_of_order: receive.out_of_order,
            timeouts_ever: count(counters.timeouts),
            marks,
            marks_sent,
        }
    }

    /// Soft error: what the network reported without proof (RFC 1122, section 4.2.3.9).
    pub fn soft_error(&self) -> Option<StreamError> {
        self.soft_error
    }

    /// Returns [`info`](Self::info) as a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let info = self.info(self.heard_at);
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
