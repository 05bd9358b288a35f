//! Single rules of the standards, put to a machine by a peer made of headers.

use super::super::*;
use super::channel::ends;
use super::pattern;
use crate::options::{Options, Timestamps};
use alloc::vec::Vec;
use xk_core::Pool;
use xk_core::message::PoolConfig;
use xk_kit::net::attribute::Ecn;
use xk_kit::net::stream::KeepAlive;

const ISS: Seq = Seq(u32::MAX - 5);
const IRS: Seq = Seq(7000);

/// A machine whose peer is the test.
pub(super) struct Lone {
    pub(super) machine: Connection,
    pub(super) pool: Pool,
    pub(super) now: Time,
}

pub(super) fn plain() -> Settings {
    Settings { window_scale: false, timestamps: false, sack: false, ..Settings::default() }
}

impl Lone {
    /// One that has sent its SYN.
    fn opening(settings: Settings) -> (Self, Header) {
        let now = Time::from_s(1);
        let mut lone = Self {
            machine: Connection::open(settings.into(), ends(1, 2), ISS, now),
            pool: Pool::new(&PoolConfig::with_octets_max(8 << 20)).unwrap(),
            now,
        };
        let syn = lone.sent().pop().expect("a SYN");
        (lone, syn.0)
    }

    pub(super) fn new(settings: Settings) -> Self {
        Self::with_window(settings, 60_000)
    }

    /// One that is connected.
    fn with_window(settings: Settings, window: u16) -> Self {
        let (mut lone, syn) = Self::opening(settings);
        let mut answer = lone.header(Flags::SYN | Flags::ACK, 0, 1);
        answer.window = window;
        answer.options = Options {
            segment_max: Some(1000),
            window_scale: syn.options.window_scale.map(|_| 0),
            sack_permitted: syn.options.sack_permitted,
            timestamps: syn
                .options
                .timestamps
                .map(|stamps| Timestamps { value: 100, echo: stamps.value }),
            ..Options::NONE
        };
        lone.take(&answer, b"").unwrap();
        assert_eq!(lone.machine.state(), State::Established);
        assert_eq!(lone.machine.event(), Some(StreamEvent::Connected));
        assert_eq!(lone.sent().len(), 1, "the acknowledgement of the SYN");
        lone
    }

    /// A header of the peer, its numbers from both initial ones on.
    pub(super) fn header(&self, flags: Flags, seq: u32, ack: u32) -> Header {
        let mut header = Header::new(2, 1, IRS + seq, ISS + ack, flags);
        header.window = 60_000;
        header
    }

    pub(super) fn take(&mut self, header: &Header, data: &[u8]) -> Verdict {
        let payload = (!data.is_empty()).then(|| self.pool.copy_from(0, data).unwrap());
        self.machine.segment(self.now, header, payload, None)
    }

    /// All that the machine sends now: header and data.
    pub(super) fn sent(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(out) = self.machine.transmit(self.now) {
            let data = out.payload.map_or(Vec::new(), |m| m.octets().collect());
            all.push((out.header, data));
            assert!(all.len() < 1000, "no end of segments");
        }
        all
    }

    pub(super) fn write(&mut self, octets: &[u8]) {
        let message = self.pool.copy_from(128, octets).unwrap();
        self.machine.send(message).unwrap();
    }

    /// Lets time pass to the machine's next deadline, at most `max`; what it sends then.
    fn wait(&mut self, max: Duration) -> Vec<(Header, Vec<u8>)> {
        let end = self.now + max;
        while let Some(at) = self.machine.deadline()
            && at <= end
        {
            self.now = self.now.max(at);
            self.machine.timer(self.now);
            let sent = self.sent();
            if !sent.is_empty() {
                return sent;
            }
        }
        self.now = end;
        Vec::new()
    }

    fn flags(&mut self) -> Vec<Flags> {
        self.sent().iter().map(|(header, _)| header.flags).collect()
    }
}

#[test]
fn only_the_next_number_resets() {
    // RFC 5961, section 3.2.
    let mut lone = Lone::new(plain());
    let reset = lone.header(Flags::RST, 100, 0);
    assert_eq!(lone.take(&reset, b""), Err(&BLIND_RESET));
    assert_eq!(lone.flags(), [Flags::ACK]);
    let reset = lone.header(Flags::RST, 1_000_000, 0);
    assert_eq!(lone.take(&reset, b""), Err(&OUT_OF_WINDOW));
    assert!(lone.sent().is_empty());
    let reset = lone.header(Flags::RST, 1, 0);
    assert_eq!(lone.take(&reset, b""), Ok(()));
    assert_eq!(lone.machine.state(), State::Closed);
    let error = StreamError::Reset;
    assert_eq!(lone.machine.event(), Some(StreamEvent::Failed(error)));
    assert!(lone.sent().is_empty() && lone.machine.deadline().is_none());
}

#[test]
fn a_syn_on_a_connection_is_challenged() {
    // RFC 5961, section 4.2, and not more than so often.
    let mut lone = Lone::new(plain());
    let mut answers = 0;
    for n in 0..50 {
        let syn = lone.header(Flags::SYN, n * 1000, 0);
        assert_eq!(lone.take(&syn, b""), Err(&BLIND_SYN));
        answers += lone.sent().len();
    }
    assert_eq!(answers, 10);
    assert_eq!(lone.machine.state(), State::Established);
}

#[test]
fn acknowledgements_of_what_was_not_sent_are_challenged() {
    // RFC 5961, section 5.2.
    let mut lone = Lone::new(plain());
    for ack in [2, 1_000_000, 0_u32.wrapping_sub(100_000)] {
        let header = lone.header(Flags::ACK, 1, ack);
        assert_eq!(lone.take(&header, b"data"), Err(&BAD_ACK));
        assert_eq!(lone.flags(), [Flags::ACK]);
    }
    assert!(lone.machine.deliver().is_none());
}

#[test]
fn every_second_full_segment_is_acknowledged_and_the_last_one_soon() {
    let mut lone = Lone::new(Settings { quick_acks: false, ..plain() });
    for n in 0..5 {
        let header = lone.header(Flags::ACK, 1 + n * 1000, 1);
        lone.take(&header, &[0; 1000]).unwrap();
        assert_eq!(lone.sent().len(), usize::from(n % 2 == 1), "segment {n}");
    }
    let last = lone.wait(Duration::from_millis(499));
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].0.ack, IRS + 5001);
}

#[test]
fn small_segments_wait_for_company() {
    // RFC 9293, section 3.7.4.
    let mut lone = Lone::new(plain());
    lone.write(b"a");
    assert_eq!(lone.sent().len(), 1);
    lone.write(b"b");
    lone.write(b"c");
    assert!(lone.sent().is_empty());
    let ack = lone.header(Flags::ACK, 1, 2);
    lone.take(&ack, b"").unwrap();
    let sent = lone.sent();
    assert_eq!((sent.len(), &sent[0].1[..]), (1, &b"bc"[..]));
    assert!(lone.machine.set(StreamSetting::NoDelay(true), lone.now));
    lone.write(b"d");
    assert_eq!(lone.sent()[0].1, b"d");
}

#[test]
fn a_cork_holds_until_it_is_drawn() {
    let mut lone = Lone::new(plain());
    assert!(lone.machine.set(StreamSetting::Cork(true), lone.now));
    lone.write(&pattern(1500, 1));
    let sent = lone.sent();
    assert_eq!((sent.len(), sent[0].1.len()), (1, 1000));
    assert!(lone.machine.set(StreamSetting::Cork(false), lone.now));
    assert_eq!(lone.sent()[0].1.len(), 500);
}

#[test]
fn a_closed_window_is_probed_with_an_octet() {
    // RFC 9293, section 3.8.6.1.
    let mut lone = Lone::new(plain());
    lone.write(&pattern(3000, 1));
    assert_eq!(lone.sent().len(), 3);
    let mut ack = lone.header(Flags::ACK, 1, 3001);
    ack.window = 0;
    lone.take(&ack, b"").unwrap();
    lone.write(b"more");
    assert!(lone.sent().is_empty());
    let mut last = lone.now;
    let mut gaps = Vec::new();
    for _ in 0..12 {
        let probe = lone.wait(Duration::from_secs(100));
        assert_eq!(probe.len(), 1);
        assert_eq!((probe[0].0.seq, &probe[0].1[..]), (ISS + 3001, &b"m"[..]));
        gaps.push(lone.now.since(last));
        last = lone.now;
        lone.take(&ack, b"").unwrap();
    }
    assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "{gaps:?}");
    assert_eq!(gaps.last(), Some(&Duration::from_secs(60)));
    // The octet was taken after all, and the window is open.
    let ack = lone.header(Flags::ACK, 1, 3002);
    lone.take(&ack, b"").unwrap();
    let sent = lone.sent();
    assert_eq!((sent[0].0.seq, &sent[0].1[..]), (ISS + 3002, &b"ore"[..]));
    assert_eq!(lone.machine.info(lone.now).retransmissions, 0);
}

/// Octets sent again have a lower number and acknowledge more: the window is theirs.
#[test]
fn the_window_is_that_of_what_acknowledges_most() {
    let mut lone = Lone::new(plain());
    lone.write(&pattern(3000, 1));
    assert_eq!(lone.sent().len(), 3);
    let mut header = lone.header(Flags::ACK, 1001, 1001);
    header.window = 4000;
    lone.take(&header, &pattern(1000, 2)).unwrap();
    let mut header = lone.header(Flags::ACK, 1, 3001);
    header.window = 2000;
    lone.take(&header, &pattern(1000, 2)).unwrap();
    // This one was sent before.
    let mut header = lone.header(Flags::ACK, 2001, 1001);
    header.window = 4000;
    lone.take(&header, &pattern(1000, 2)).unwrap();
    lone.write(&pattern(9000, 1));
    let ends =
        lone.sent().into_iter().map(|(header, data)| header.seq.since(ISS) + data.len() as u32);
    assert_eq!(ends.max(), Some(5001), "no more than there is room for");
}

#[test]
fn what_lies_behind_a_closed_window_acknowledges() {
    // RFC 9293, section 3.10.7.4.
    let mut lone = Lone::new(plain());
    assert!(lone.machine.set(StreamSetting::ReceiveBuffer(4096), lone.now));
    lone.write(&pattern(3000, 1));
    drop(lone.sent());
    let mut seq = 1;
    while lone.machine.receive.window() > 0 {
        let octets = lone.machine.receive.window().min(1000);
        let header = lone.header(Flags::ACK, seq, 1);
        lone.take(&header, &pattern(octets as usize, 2)).unwrap();
        drop(lone.sent());
        seq += octets;
    }
    let header = lone.header(Flags::ACK, seq + 500, 3001);
    lone.take(&header, b"").unwrap();
    assert_eq!((lone.machine.info(lone.now).in_flight, lone.machine.rcv_nxt()), (0, IRS + seq));
    // A stranger's guess is no better than in an open window.
    let header = lone.header(Flags::ACK, seq + 70_000, 3001);
    assert_eq!(lone.take(&header, b""), Err(&OUT_OF_WINDOW));
}

#[test]
fn a_silly_window_is_not_filled() {
    // RFC 9293, section 3.8.6.2.1: neither a segment nor half of the largest window.
    let mut lone = Lone::new(plain());
    lone.write(&pattern(5000, 1));
    assert_eq!(lone.sent().len(), 5);
    lone.write(&pattern(5000, 1));
    drop(lone.sent());
    let mut ack = lone.header(Flags::ACK, 1, 10_001);
    ack.window = 100;
    lone.take(&ack, b"").unwrap();
    lone.write(&pattern(5000, 1));
    assert!(lone.sent().is_empty());
    // Nor left alone without end.
    let sent = lone.wait(Duration::from_secs(10));
    assert_eq!((sent.len(), sent[0].1.len()), (1, 100));
}

#[test]
fn our_window_opens_by_whole_segments() {
    // RFC 9293, section 3.8.6.2.2.
    let settings =
        Settings { manual_window: true, receive_buffer: 4000, receive_buffer_max: 4000, ..plain() };
    let mut lone = Lone::new(settings);
    for n in 0..4 {
        let header = lone.header(Flags::ACK, 1 + n * 1000, 1);
        lone.take(&header, &[0; 1000]).unwrap();
        while lone.machine.deliver().is_some() {}
        drop(lone.sent());
    }
    // A probe of the closed window is answered, and not taken.
    let probe = lone.header(Flags::ACK, 4001, 1);
    lone.take(&probe, b"x").unwrap();
    let sent = lone.sent();
    assert_eq!((sent[0].0.window, sent[0].0.ack), (0, IRS + 4001));
    lone.machine.consumed(500);
    assert!(lone.sent().is_empty());
    lone.machine.consumed(1500);
    assert_eq!(lone.sent()[0].0.window, 2000);
}

#[test]
fn a_lost_segment_is_sent_again_and_the_timeout_doubles() {
    let mut lone = Lone::new(plain());
    lone.write(b"lost");
    assert_eq!(lone.sent().len(), 1);
    let mut last = lone.now;
    let mut gaps = Vec::new();
    for _ in 0..5 {
        let again = lone.wait(Duration::from_secs(100));
        assert_eq!((again.len(), &again[0].1[..]), (1, &b"lost"[..]));
        gaps.push(lone.now.since(last));
        last = lone.now;
    }
    assert!(gaps.windows(2).all(|pair| pair[1] == pair[0] * 2), "{gaps:?}");
    let ack = lone.header(Flags::ACK, 1, 5);
    lone.take(&ack, b"").unwrap();
    // Memory is given back after a while; then nothing is waited for.
    let rest = lone.machine.deadline().expect("the queues have been used");
    assert!(rest.since(lone.now) <= Duration::from_millis(100));
    lone.machine.timer(rest);
    assert_eq!(lone.machine.deadline(), None);
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let settings = Settings { user_timeout: Some(Duration::from_secs(20)), ..plain() };
    let mut lone = Lone::new(settings);
    lone.write(b"anybody?");
    drop(lone.sent());
    while lone.machine.state() != State::Closed {
        assert!(lone.now < Time::from_s(30));
        drop(lone.wait(Duration::from_secs(5)));
    }
    let error = StreamError::TimedOut;
    assert_eq!(lone.machine.event(), Some(StreamEvent::Failed(error)));
    assert!(lone.now >= Time::from_s(20));
}

#[test]
fn nobody_answers_a_syn() {
    let (mut lone, syn) = Lone::opening(Settings::default());
    let mut count = 0;
    while lone.machine.state() != State::Closed {
        for (header, _) in lone.wait(Duration::from_secs(300)) {
            assert_eq!((header.flags, header.seq), (Flags::SYN, syn.seq));
            count += 1;
        }
    }
    // RFC 9293, section 3.8.3: three minutes at least.
    assert!(lone.now >= Time::from_s(181) && count == 7, "{count}");
    let error = StreamError::TimedOut;
    assert_eq!(lone.machine.event(), Some(StreamEvent::Failed(error)));
}

#[test]
fn a_refusal_is_told() {
    let (mut lone, _) = Lone::opening(plain());
    let blind = lone.header(Flags::RST | Flags::ACK, 0, 9);
    assert_eq!(lone.take(&blind, b""), Err(&BAD_ACK));
    let reset = lone.header(Flags::RST | Flags::ACK, 0, 1);
    lone.take(&reset, b"").unwrap();
    let error = StreamError::Refused;
    assert_eq!(lone.machine.event(), Some(StreamEvent::Failed(error)));
}

#[test]
fn an_old_acknowledgement_of_a_syn_is_reset() {
    // RFC 9293, section 3.5.1, figure 9.
    let (mut lone, _) = Lone::opening(plain());
    let ack = lone.header(Flags::ACK, 0, 500);
    assert_eq!(lone.take(&ack, b""), Err(&BAD_ACK));
    let sent = lone.sent();
    assert_eq!((sent[0].0.flags, sent[0].0.seq), (Flags::RST, ISS + 500));
    assert_eq!(lone.machine.state(), State::SynSent);
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let keep = KeepAlive {
        idle: Duration::from_secs(60),
        interval: Duration::from_secs(10),
        probes_max: 3,
    };
    let mut lone = Lone::new(Settings { keep_alive: Some(keep), ..plain() });
    let probe = lone.wait(Duration::from_secs(100));
    assert_eq!(lone.now, Time::from_s(61));
    assert_eq!((probe[0].0.seq, probe[0].1.len()), (ISS, 0));
    let ack = lone.header(Flags::ACK, 1, 1);
    lone.take(&ack, b"").unwrap();
    let mut probes = 0;
    while lone.machine.state() != State::Closed {
        probes += lone.wait(Duration::from_secs(100)).len();
    }
    // Three probes, and the reset.
    assert_eq!((probes, lone.now), (4, Time::from_s(61 + 60 + 30)));
}

#[test]
fn data_after_close_break_the_connection_off() {
    let mut lone = Lone::new(plain());
    lone.machine.close(lone.now);
    assert_eq!(lone.flags(), [Flags::FIN | Flags::ACK]);
    let data = lone.header(Flags::ACK, 1, 2);
    assert_eq!(lone.take(&data, b"late"), Err(&NOT_READ));
    assert_eq!(lone.flags(), [Flags::RST | Flags::ACK]);
    assert_eq!(lone.machine.state(), State::Closed);
}

#[test]
fn an_orphans_peer_is_not_waited_for_for_ever() {
    let mut lone = Lone::new(plain());
    lone.machine.close(lone.now);
    drop(lone.sent());
    let ack = lone.header(Flags::ACK, 1, 2);
    lone.take(&ack, b"").unwrap();
    assert_eq!(lone.machine.state(), State::FinWait2);
    drop(lone.wait(Duration::from_secs(120)));
    assert_eq!(lone.machine.state(), State::Closed);
}

#[test]
fn time_wait_answers_a_late_end_and_gives_way() {
    let mut lone = Lone::new(Settings::default());
    lone.machine.shut();
    drop(lone.sent());
    let stamped = |mut header: Header, value| {
        header.options.timestamps = Some(Timestamps { value, echo: 0 });
        header
    };
    let fin = stamped(lone.header(Flags::FIN | Flags::ACK, 1, 2), 200);
    lone.take(&fin, b"").unwrap();
    assert_eq!(lone.machine.state(), State::TimeWait);
    assert_eq!(lone.flags(), [Flags::ACK]);
    lone.now += Duration::from_secs(30);
    assert_eq!(lone.take(&fin, b""), Err(&OUT_OF_WINDOW));
    assert_eq!(lone.flags(), [Flags::ACK]);
    // RFC 6191, section 2.
    let syn = |value| stamped(lone.header(Flags::SYN, 0, 0), value);
    assert!(lone.machine.gives_way_to(&syn(201)));
    assert!(!lone.machine.gives_way_to(&syn(199)));
    drop(lone.wait(Duration::from_secs(59)));
    assert_eq!(lone.machine.state(), State::TimeWait);
    drop(lone.wait(Duration::from_secs(2)));
    assert_eq!(lone.machine.state(), State::Closed);
}

#[test]
fn old_timestamps_are_not_taken() {
    // RFC 7323, section 5.
    let mut lone = Lone::new(Settings::default());
    let mut header = lone.header(Flags::ACK, 1, 1);
    header.options.timestamps = Some(Timestamps { value: 99, echo: 0 });
    assert_eq!(lone.take(&header, b"x"), Err(&OLD_TIMESTAMP));
    assert_eq!(lone.flags(), [Flags::ACK]);
    header.options.timestamps = Some(Timestamps { value: 101, echo: 0 });
    lone.take(&header, b"x").unwrap();
    let sent = lone.wait(Duration::from_secs(1));
    assert_eq!(sent[0].0.options.timestamps.unwrap().echo, 101);
}

#[test]
fn what_is_missing_is_told() {
    // RFC 2018, section 4; RFC 2883, section 4.
    let mut lone =
        Lone::new(Settings { window_scale: false, timestamps: false, ..Settings::default() });
    let mut at = |seq: u32| {
        let header = lone.header(Flags::ACK, 1 + seq, 1);
        let _ = lone.take(&header, &[0; 100]);
        let sent = lone.sent();
        let blocks = sent.last().map(|s| s.0.options.sack);
        let block = |b: &(Seq, Seq)| (b.0.since(IRS + 1), b.1.since(IRS + 1));
        let blocks = blocks.as_ref().map_or(Vec::new(), |b| b.as_slice().to_vec());
        blocks.iter().map(block).collect::<Vec<_>>()
    };
    assert_eq!(at(200), [(200, 300)]);
    assert_eq!(at(400), [(400, 500), (200, 300)]);
    assert_eq!(at(300), [(200, 500)]);
    assert_eq!(at(600), [(600, 700), (200, 500)]);
    // Once more: told first, and then the run that it lies in.
    assert_eq!(at(300), [(300, 400), (200, 500), (600, 700)]);
    assert_eq!(at(0), [(200, 500), (600, 700)]);
    assert_eq!(at(100), [(600, 700)]);
    assert_eq!(at(500), []);
    // Wholly old.
    assert_eq!(at(0), [(0, 100)]);
}

#[test]
fn a_smaller_path_makes_smaller_segments() {
    // RFC 1191, section 6.5.
    let mut lone = Lone::new(plain());
    lone.write(&pattern(2000, 1));
    assert_eq!(lone.sent().len(), 2);
    lone.machine.set_path(520, Time::ZERO);
    let again = lone.sent();
    let octets: Vec<u8> = again.iter().flat_map(|s| s.1.clone()).collect();
    assert!(again.iter().all(|s| s.1.len() <= 500));
    assert_eq!(octets, pattern(2000, 1));
}

#[test]
fn large_segments_that_vanish_become_smaller() {
    let mut settings = plain();
    settings.segment_max = 1000;
    let mut lone = Lone::new(settings);
    lone.write(&pattern(1000, 1));
    assert_eq!(lone.sent()[0].1.len(), 1000);
    let mut largest = 0;
    for _ in 0..6 {
        let sent = lone.wait(Duration::from_secs(100));
        largest = sent.iter().map(|s| s.1.len()).max().unwrap();
    }
    assert!(largest <= 576 - 40, "{largest}");
}

#[test]
fn ends_and_errors_of_a_caller() {
    let mut lone = Lone::new(plain());
    let large = lone.pool.copy_from(0, &[0; 100]).unwrap();
    lone.machine.set(StreamSetting::SendBuffer(2048), lone.now);
    for _ in 0..20 {
        let message = large.try_clone().unwrap();
        lone.machine.send(message).unwrap();
    }
    assert_eq!(lone.machine.space(), 48);
    assert_eq!(lone.machine.send(large), Err(PushError::QueueFull));
    drop(lone.sent());
    let ack = lone.header(Flags::ACK, 1, 2001);
    lone.take(&ack, b"").unwrap();
    assert_eq!(lone.machine.event(), Some(StreamEvent::Writable));
    lone.machine.shut();
    let message = lone.pool.copy_from(0, b"x").unwrap();
    assert_eq!(lone.machine.send(message), Err(PushError::Closed));
    assert!(!lone.machine.set(StreamSetting::SegmentMax(1), lone.now));
    assert!(!lone.machine.set(StreamSetting::Congestion("none".into()), lone.now));
    lone.machine.abort(lone.now);
    let error = StreamError::Aborted;
    assert_eq!(lone.machine.event(), Some(StreamEvent::Failed(error)));
    assert_eq!(lone.machine.event(), None);
}

#[test]
fn congestion_that_is_told_is_answered() {
    // RFC 3168, section 6.1.
    let settings = Settings { ecn: true, ..plain() };
    let (mut lone, syn) = Lone::opening(settings);
    assert!(syn.flags.has(Flags::ECE | Flags::CWR));
    let answer = lone.header(Flags::SYN | Flags::ACK | Flags::ECE, 0, 1);
    lone.take(&answer, b"").unwrap();
    drop(lone.sent());
    let data = lone.header(Flags::ACK, 1, 1);
    let payload = lone.pool.copy_from(0, b"x").unwrap();
    lone.machine.segment(lone.now, &data, Some(payload), Some(Ecn::Experienced)).unwrap();
    let sent = lone.wait(Duration::from_secs(1));
    assert!(sent[0].0.flags.has(Flags::ECE));
    lone.write(&pattern(1000, 1));
    let out = lone.machine.transmit(lone.now).unwrap();
    assert!(out.markable && out.header.flags.has(Flags::ECE));
    let echo = lone.header(Flags::ACK | Flags::ECE | Flags::CWR, 2, 537);
    lone.take(&echo, b"").unwrap();
    lone.write(&pattern(1000, 1));
    let out = lone.machine.transmit(lone.now).unwrap();
    assert!(out.header.flags.has(Flags::CWR) && !out.header.flags.has(Flags::ECE));
}

#[test]
fn the_machine_is_small() {
    assert!(size_of::<Connection>() <= 1536, "{}", size_of::<Connection>());
}

/// A larger buffer than the window can tell of would be announced without end.
#[test]
fn a_buffer_grows_no_larger_than_the_window_can_tell() {
    let mut lone = Lone::new(plain());
    assert!(lone.machine.set(StreamSetting::ReceiveBuffer(1 << 22), lone.now));
    for n in 0..400 {
        let header = lone.header(Flags::ACK, 1 + 1000 * n, 1);
        lone.take(&header, &pattern(1000, 2)).unwrap();
        while lone.machine.deliver().is_some() {}
        assert!(lone.sent().len() <= 2, "segment {n}");
    }
}

/// A segment that cannot be sent again for want of memory waits for the next occasion.
#[test]
fn a_lost_segment_without_memory_is_no_loop() {
    let mut lone = Lone::new(plain());
    lone.write(&pattern(5000, 1));
    assert_eq!(lone.sent().len(), 5);
    let mut taken = Vec::from([lone.pool.copy_from(0, &[0; 64]).unwrap()]);
    while let Ok(message) = taken[0].try_clone() {
        taken.push(message);
    }
    assert!(lone.wait(Duration::from_secs(3)).len() <= 2);
    drop(taken);
    let again = lone.wait(Duration::from_secs(10));
    let (header, data) = &again[0];
    assert!(header.seq == ISS + 1 && !data.is_empty() && pattern(5000, 1).starts_with(data));
}
