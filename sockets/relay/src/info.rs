//! `struct tcp_info` (tcp(7), `linux/tcp.h`).

use std::time::Duration;
use xk_net::{StreamInfo, StreamState};

/// Up to and with `tcpi_options2`.
const OCTETS: usize = 280;

/// Bits of `tcpi_options`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALE: u8 = 4;
const ECN: u8 = 8;

/// Segments behind a missing one that begin fast recovery, where none has overtaken another.
const REORDERING: u32 = 3;

/// A time in microseconds.
fn us(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// A time in milliseconds.
fn ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn octet(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The octets of `struct tcp_info` as far as the stack knows its members; the others are zero.
pub(crate) fn tcp_info(info: &StreamInfo) -> Vec<u8> {
    let mut octets = vec![0; OCTETS];
    octets[..8].copy_from_slice(&flags(info));
    for (at, number) in numbers(info) {
        octets[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    for (at, number) in long_numbers(info) {
        octets[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    }
    octets
}

/// The members of one octet or less.
fn flags(info: &StreamInfo) -> [u8; 8] {
    let detail = &info.detail;
    let bits = [
        (detail.timestamps, TIMESTAMPS),
        (detail.sack, SACK),
        (detail.scales.is_some(), WINDOW_SCALE),
        (detail.ecn, ECN),
    ];
    let options = bits.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
    let (peer, own) = detail.scales.unwrap_or_default();
    let timeouts = octet(detail.timeouts);
    [
        state_number(info.state),
        detail.recovery as u8,
        timeouts,
        octet(detail.probes),
        timeouts,
        options,
        peer & 15 | own << 4,
        0,
    ]
}

/// The members of four octets, by their places.
fn numbers(info: &StreamInfo) -> Vec<(usize, u32)> {
    let detail = &info.detail;
    let segment = info.segment.max(1);
    // A round trip within a host takes less than can be told.
    let least = |time: Duration| us(time).max(1);
    let (rtt, variation) =
        info.round_trip.map_or((0, 0), |(rtt, variation)| (least(rtt), us(variation)));
    // Programs compare with what Linux has before the first loss.
    let threshold = match info.threshold {
        StreamInfo::THRESHOLD_NONE.. => i32::MAX as u32,
        octets => octets / segment,
    };
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (came, sent) = (&detail.marks, &detail.marks_sent);
    vec![
        (8, us(info.timeout)),
        (16, info.segment),
        (20, detail.segment_received.max(1)),
        (24, detail.outstanding),
        (28, detail.sacked),
        (32, detail.lost),
        (36, detail.resent),
        (44, ms(detail.since_sent)),
        (52, ms(detail.since_received)),
        (56, ms(detail.since_heard)),
        (60, detail.path),
        (64, detail.receive_buffer),
        (68, rtt),
        (72, variation),
        (76, threshold),
        (80, info.congestion_window / segment),
        (84, detail.segment_announced),
        (88, REORDERING),
        (96, detail.receive_buffer),
        (100, short(info.retransmissions)),
        (144, info.unsent),
        (148, detail.round_trip_min.map_or(0, least)),
        (192, short(detail.octets_arrived.div_ceil(segment.into()))),
        (196, short(info.marked_sent)),
        (216, detail.duplicates),
        (220, detail.reordered),
        (224, detail.out_of_order),
        (228, info.peer_window),
        (232, detail.window),
        (248, short(info.marked)),
        (252, short(sent.capable_one)),
        (256, short(sent.capable_zero)),
        (260, short(sent.experienced)),
        (264, short(came.capable_one)),
        (268, short(came.capable_zero)),
        (272, short(came.experienced)),
        (276, info.ecn as u32),
    ]
}

/// The members of eight octets, by their places.
fn long_numbers(info: &StreamInfo) -> [(usize, u64); 6] {
    let detail = &info.detail;
    let sent = info.acknowledged + u64::from(info.in_flight) + detail.octets_resent;
    [
        (104, detail.pacing_rate.unwrap_or(u64::MAX)),
        (112, u64::MAX),
        (120, info.acknowledged),
        (128, info.delivered),
        (200, sent),
        (208, detail.octets_resent),
    ]
}

/// Linux's number of a state.
fn state_number(state: StreamState) -> u8 {
    match state {
        StreamState::Established => 1,
        StreamState::SynSent => 2,
        StreamState::SynReceived => 3,
        StreamState::FinWait1 => 4,
        StreamState::FinWait2 => 5,
        StreamState::TimeWait => 6,
        StreamState::Closed => 7,
        StreamState::CloseWait => 8,
        StreamState::LastAck => 9,
        StreamState::Closing => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_net::{StreamEcn, StreamMarks};

    fn number_at(info: &StreamInfo, at: usize) -> u32 {
        let octets = tcp_info(info);
        u32::from_ne_bytes(*octets[at..].first_chunk().unwrap())
    }

    #[test]
    fn the_threshold_is_linuxs_until_there_is_one() {
        let mut info = StreamInfo { segment: 1448, ..StreamInfo::default() };
        info.threshold = StreamInfo::THRESHOLD_NONE;
        assert_eq!(number_at(&info, 76), 0x7fff_ffff);
        info.threshold = 14_480;
        assert_eq!(number_at(&info, 76), 10);
    }

    #[test]
    fn each_member_has_its_place() {
        let mut info = StreamInfo { segment: 1000, ..StreamInfo::default() };
        info.state = StreamState::CloseWait;
        info.detail.scales = Some((7, 9));
        (info.detail.sack, info.detail.ecn) = (true, true);
        (info.detail.timeouts, info.detail.lost, info.detail.sacked) = (2, 5, 6);
        info.detail.since_received = Duration::from_millis(77);
        (info.marked, info.marked_sent, info.ecn) = (3, 4, StreamEcn::Accurate);
        let marks =
            |zero| StreamMarks { capable_zero: zero, experienced: zero + 1, capable_one: zero + 2 };
        (info.detail.marks, info.detail.marks_sent) = (marks(100), marks(200));
        let octets = tcp_info(&info);
        assert_eq!(octets[..8], [8, 0, 2, 0, 2, SACK | WINDOW_SCALE | ECN, 0x97, 0]);
        let marks = [(196, 4), (248, 3), (252, 202), (256, 200), (260, 201), (264, 102)];
        let others = [(28, 6), (32, 5), (52, 77), (88, 3), (268, 100), (272, 101), (276, 2)];
        for (at, number) in marks.into_iter().chain(others) {
            assert_eq!(number_at(&info, at), number);
        }
    }
}
