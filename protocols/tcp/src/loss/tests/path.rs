//! A path with one bottleneck, and senders and receivers at its ends: enough of TCP to see loss
//! recovery and congestion control at work.

use crate::Seq;
use crate::congestion::by_name;
use crate::loss::{Ack, Acked, Due, Recovery, SackBlock};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;
use std::vec::Vec;
use xk_core::Time;

/// Properties of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) octets_per_s: u64,
    /// In each direction.
    pub(super) delay: Duration,
    /// Before the bottleneck.
    pub(super) queue_octets: u64,
    /// Segments of a million that are lost at random.
    pub(super) loss_ppm: u32,
    /// Acknowledgments of a million that are lost.
    pub(super) ack_loss_ppm: u32,
    /// Segments of a million that are held up by `held_up`.
    pub(super) reorder_ppm: u32,
    pub(super) held_up: Duration,
    /// Segments of a million that arrive twice.
    pub(super) duplicate_ppm: u32,
    /// Nothing arrives in this time, but late: all waits until its end.
    pub(super) stall: Option<(Time, Time)>,
    /// Nothing that is sent in this time arrives.
    pub(super) outage: Option<(Time, Time)>,
    /// The queue marks instead of dropping from this many octets on.
    pub(super) mark_octets: Option<u64>,
}

impl Path {
    pub(super) fn new(megabits_per_s: u64, rtt_ms: u64) -> Path {
        let octets_per_s = megabits_per_s * 125_000;
        Path {
            octets_per_s,
            delay: Duration::from_millis(rtt_ms) / 2,
            queue_octets: (octets_per_s * rtt_ms / 1000).max(20_000),
            loss_ppm: 0,
            ack_loss_ppm: 0,
            reorder_ppm: 0,
            held_up: Duration::ZERO,
            duplicate_ppm: 0,
            stall: None,
            outage: None,
            mark_octets: None,
        }
    }

    pub(super) fn loss_percent(self, percent: u32) -> Path {
        Path { loss_ppm: percent * 10_000, ..self }
    }
}

/// Chance, from one seed.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn hits(&mut self, ppm: u32) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % 1_000_000 < u64::from(ppm)
    }
}

/// The receiving end.
#[derive(Debug)]
struct Receiver {
    rcv_nxt: Seq,
    /// Blocks that came beyond a hole, the latest first.
    beyond: Vec<SackBlock>,
    unacknowledged: u32,
    ts_recent: Time,
    is_marked: bool,
    last_ack: Seq,
}

#[derive(Debug)]
struct AckSegment {
    ack: Seq,
    sack: Vec<SackBlock>,
    echoed: Time,
    ece: bool,
}

impl Receiver {
    /// Takes a segment in; an acknowledgment, if one goes at once.
    fn segment(&mut self, start: Seq, end: Seq, ts: Time, marked: bool) -> Option<AckSegment> {
        self.is_marked |= marked;
        if start.at_or_before(self.last_ack) && ts >= self.ts_recent {
            self.ts_recent = ts;
        }
        let had_holes = !self.beyond.is_empty();
        let mut dsack = None;
        if end.at_or_before(self.rcv_nxt) {
            dsack = Some(SackBlock { start, end });
        } else if start.at_or_before(self.rcv_nxt) {
            self.rcv_nxt = end;
            while let Some(at) = self.beyond.iter().position(|b| b.start.at_or_before(self.rcv_nxt))
            {
                self.rcv_nxt = self.rcv_nxt.max(self.beyond.remove(at).end);
            }
        } else {
            let mut joined = SackBlock { start, end };
            if self.beyond.iter().any(|b| b.start.at_or_before(start) && end.at_or_before(b.end)) {
                dsack = Some(joined);
            }
            self.beyond.retain(|b| {
                let apart = b.end.before(joined.start) || joined.end.before(b.start);
                if !apart {
                    joined.start = joined.start.min(b.start);
                    joined.end = joined.end.max(b.end);
                }
                apart
            });
            self.beyond.insert(0, joined);
        }
        self.unacknowledged += 1;
        let now =
            dsack.is_some() || had_holes || !self.beyond.is_empty() || self.unacknowledged > 1;
        now.then(|| self.answer(dsack))
    }

    fn answer(&mut self, dsack: Option<SackBlock>) -> AckSegment {
        self.unacknowledged = 0;
        self.last_ack = self.rcv_nxt;
        let sack = dsack.into_iter().chain(self.beyond.iter().copied()).take(3).collect();
        AckSegment {
            ack: self.rcv_nxt,
            sack,
            echoed: self.ts_recent,
            ece: core::mem::take(&mut self.is_marked),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) recovery: Recovery,
    receiver: Receiver,
    begins: Time,
    /// Octets still to be sent; `None` for any number.
    unsent: Option<u64>,
    pub(super) delivered: u64,
    pub(super) last_acked: Acked,
    pub(super) undone: u32,
    is_sack: bool,
    has_timestamps: bool,
    wake_at: Option<Time>,
}

/// The latest a receiver acknowledges.
const ACK_DELAY: Duration = Duration::from_millis(40);

/// The most that the receiver takes beyond what is acknowledged.
const RECEIVE_WINDOW: u32 = 64 << 20;

pub(super) const MSS: u32 = 1448;

#[derive(Debug)]
enum What {
    Segment { start: Seq, end: Seq, ts: Time, marked: bool },
    Ack(AckSegment),
    DelayedAck,
    Wake,
}

#[derive(Debug)]
struct Event {
    at: Time,
    order: u64,
    flow: usize,
    what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> core::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The path and its connections.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) path: Path,
    pub(super) flows: Vec<Flow>,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    chance: Chance,
    /// Time at which the bottleneck has sent all that it has.
    idle_at: Time,
    pub(super) dropped: u64,
    pub(super) lost: u64,
}

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) congestion: &'a str,
    pub(super) octets: Option<u64>,
    pub(super) is_sack: bool,
    pub(super) has_timestamps: bool,
    pub(super) begins: Time,
}

impl Wish<'_> {
    pub(super) fn endless(congestion: &str) -> Wish<'_> {
        Wish { congestion, octets: None, is_sack: true, has_timestamps: true, begins: Time::ZERO }
    }
}

impl World {
    pub(super) fn new(path: Path, seed: u64) -> World {
        World {
            now: Time::ZERO,
            path,
            flows: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            chance: Chance::new(seed),
            idle_at: Time::ZERO,
            dropped: 0,
            lost: 0,
        }
    }

    pub(super) fn add(&mut self, wish: Wish<'_>) -> usize {
        // Close to where numbers go round.
        let iss = Seq(u32::MAX - 100 * MSS);
        let mut recovery =
            Recovery::new((MSS, 1 << 16), by_name(wish.congestion, MSS).unwrap(), iss);
        recovery.sent(1, wish.begins).unwrap();
        let index = self.flows.len();
        self.flows.push(Flow {
            recovery,
            receiver: Receiver {
                rcv_nxt: iss + 1,
                beyond: Vec::new(),
                unacknowledged: 0,
                ts_recent: Time::ZERO,
                is_marked: false,
                last_ack: iss + 1,
            },
            begins: wish.begins,
            unsent: wish.octets,
            delivered: 0,
            last_acked: Acked::default(),
            undone: 0,
            is_sack: wish.is_sack,
            has_timestamps: wish.has_timestamps,
            wake_at: None,
        });
        let syn_ack =
            AckSegment { ack: iss + 1, sack: Vec::new(), echoed: wish.begins, ece: false };
        self.push(wish.begins + self.path.delay * 2, index, What::Ack(syn_ack));
        index
    }

    fn push(&mut self, at: Time, flow: usize, what: What) {
        self.order += 1;
        self.events.push(Reverse(Event { at, order: self.order, flow, what }));
    }

    /// Goes on until `end`, or until nothing happens any more.
    pub(super) fn run_until(&mut self, end: Time) {
        while let Some(Reverse(event)) = self.events.peek() {
            if event.at > end {
                break;
            }
            let Some(Reverse(event)) = self.events.pop() else {
                break;
            };
            self.now = event.at;
            self.happen(event.flow, event.what);
        }
        self.now = end;
    }

    fn happen(&mut self, index: usize, what: What) {
        let now = self.now;
        match what {
            What::Segment { start, end, ts, marked } => {
                let flow = &mut self.flows[index];
                match flow.receiver.segment(start, end, ts, marked) {
                    Some(ack) => self.answer(index, ack),
                    None => self.push(now + ACK_DELAY, index, What::DelayedAck),
                }
            }
            What::DelayedAck => {
                let flow = &mut self.flows[index];
                if flow.receiver.unacknowledged > 0 {
                    let ack = flow.receiver.answer(None);
                    self.answer(index, ack);
                }
            }
            What::Ack(ack) => {
                self.acknowledge(index, &ack);
                self.pump(index);
            }
            What::Wake => {
                // Others are of timers that were set again since.
                if self.flows[index].wake_at == Some(now) {
                    self.flows[index].wake_at = None;
                    self.wake(index);
                    self.pump(index);
                }
            }
        }
    }

    fn answer(&mut self, index: usize, ack: AckSegment) {
        if !self.chance.hits(self.path.ack_loss_ppm) {
            let at = self.late(self.now + self.path.delay);
            self.push(at, index, What::Ack(ack));
        }
    }

    fn late(&self, at: Time) -> Time {
        match self.path.stall {
            Some((from, to)) if at >= from && at < to => to,
            _ => at,
        }
    }

    fn acknowledge(&mut self, index: usize, ack: &AckSegment) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let recovery = &mut flow.recovery;
        let una = recovery.board().una();
        if ack.ack.before(una) {
            return;
        }
        let waiting = flow.unsent != Some(0);
        let told = Ack {
            ack: ack.ack,
            sack: if flow.is_sack { &ack.sack } else { &[] },
            echoed: flow.has_timestamps.then(|| floor_ms(ack.echoed)),
            duplicate: ack.ack == una,
            ece: ack.ece,
            waiting,
        };
        let is_first =
            una == ack.ack - 1 && flow.delivered == 0 && recovery.rtt().smoothed().is_none();
        flow.last_acked = recovery.acknowledge(&told, now);
        flow.delivered += u64::from(flow.last_acked.acked_octets);
        flow.undone += u32::from(flow.last_acked.undone);
        if is_first {
            flow.delivered = 0;
            recovery.established(MSS, flow.is_sack, now);
        }
        let board = recovery.board();
        assert_eq!(board.una(), ack.ack);
    }

    fn wake(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let waiting = flow.unsent != Some(0);
        match flow.recovery.on_timer(now, waiting) {
            Due::ResendProbe(lost) => {
                assert!(flow.recovery.resent(lost.start, now));
                self.transmit(index, lost.start, lost.octets);
            }
            Due::Nothing | Due::Send | Due::SendProbe | Due::Timeout(_) => {}
        }
    }

    /// Sends what may be sent.
    fn pump(&mut self, index: usize) {
        let now = self.now;
        while let Some(lost) = self.flows[index].recovery.next_lost(now) {
            assert!(self.flows[index].recovery.resent(lost.start, now));
            self.transmit(index, lost.start, lost.octets);
        }
        loop {
            let flow = &mut self.flows[index];
            let window = RECEIVE_WINDOW - flow.recovery.board().outstanding_octets();
            let unsent = u32::try_from(flow.unsent.unwrap_or(u64::MAX).min(MSS.into())).unwrap();
            let octets = unsent.min(window);
            if octets == 0 {
                flow.recovery.limited_by_application();
                break;
            }
            if flow.recovery.may_send(now) < octets {
                break;
            }
            let start = flow.recovery.board().nxt();
            flow.recovery.sent(octets, now).unwrap();
            if let Some(unsent) = &mut flow.unsent {
                *unsent -= u64::from(octets);
            }
            self.transmit(index, start, octets);
        }
        let flow = &mut self.flows[index];
        if flow.unsent.is_some() {
            flow.recovery.board().check();
        }
        let waiting = flow.unsent != Some(0);
        if let Some((_, at)) = flow.recovery.timer(waiting) {
            let at = at.max(now);
            if flow.wake_at.is_none_or(|wake_at| at < wake_at) {
                flow.wake_at = Some(at);
                self.push(at, index, What::Wake);
            }
        }
    }

    fn transmit(&mut self, index: usize, start: Seq, octets: u32) {
        let path = self.path;
        let now = self.now;
        let queued = now.max(self.idle_at).since(now).as_nanos() * u128::from(path.octets_per_s);
        let queued = u64::try_from(queued / 1_000_000_000).unwrap();
        if queued + u64::from(octets) > path.queue_octets {
            self.dropped += 1;
            return;
        }
        let takes = Duration::from_nanos(u64::from(octets) * 1_000_000_000 / path.octets_per_s);
        self.idle_at = self.idle_at.max(now) + takes;
        let gone = path.outage.is_some_and(|(from, to)| now >= from && now < to);
        if gone || self.chance.hits(path.loss_ppm) {
            self.lost += 1;
            return;
        }
        let mut at = self.late(self.idle_at + path.delay);
        if self.chance.hits(path.reorder_ppm) {
            at += path.held_up;
        }
        let marked = path.mark_octets.is_some_and(|mark| queued >= mark);
        let ts = floor_ms(now);
        let segment = || What::Segment { start, end: start + octets, ts, marked };
        self.push(at, index, segment());
        if self.chance.hits(path.duplicate_ppm) {
            self.push(at + Duration::from_micros(10), index, segment());
        }
    }

    /// Octets a second that a connection got acknowledged since it began.
    pub(super) fn goodput(&self, index: usize) -> u64 {
        let flow = &self.flows[index];
        let ms = u64::try_from(self.now.since(flow.begins).as_millis()).unwrap();
        flow.delivered * 1000 / ms.max(1)
    }
}

fn floor_ms(time: Time) -> Time {
    Time::from_ms(time.as_ms())
}
