//! The outstanding segments: sent, and not acknowledged cumulatively (RFC 2018, RFC 6675, RFC
//! 8985).
//!
//! Segments stand in sequence order in one ring. Each is *in flight*, *lost* or *sacked*; two lists
//! run through the ring by links, those in flight in the order of their last transmission, those
//! lost in the order in which they shall be resent. So each acknowledgment costs a search for each
//! of its blocks and constant work for each segment whose state it changes, whatever order the peer
//! chooses: sacked segments remember how many behind them are sacked as well, and these are
//! skipped.

mod newly;
mod ring;

#[cfg(test)]
mod tests;

pub use newly::Newly;

use super::rate::{Rate, Stamp};
use crate::Seq;
use alloc::vec::Vec;
use core::cmp::Reverse;
use ring::{List, Ring};
use xk_core::control::{Field, Reader, Writer};
use xk_core::{Time, fields};

/// More than this is never outstanding: the largest window (RFC 7323, section 2.3).
const OUTSTANDING_OCTETS_MAX: u32 = 1 << 30;

/// A block of a SACK option: `start` is in it, `end` is the first that is not (RFC 2018, section
/// 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SackBlock {
    /// The first octet.
    pub start: Seq,
    /// The one behind the last octet.
    pub end: Seq,
}

/// The place where a segment is believed to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SegmentState {
    InFlight,
    Lost,
    Sacked,
}

fields!(
    enum SegmentState {
        InFlight = 0,
        Lost = 1,
        Sacked = 2,
    }
);

/// A transmission: its moment, and its turn among all of a connection.
///
/// RFC 8985, section 6.2, tells transmissions of one moment apart by sequence numbers; turns do so
/// also for a repair that went right after new data, which would count as lost as soon as these are
/// delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// Time of the transmission.
    pub at: Time,
    turn: u32,
}

fields!(Sending { at, turn });

impl Sending {
    /// Whether it was later than `other`.
    #[must_use]
    pub fn is_after(self, other: Sending) -> bool {
        (self.turn.wrapping_sub(other.turn) as i32) > 0
    }
}

/// One outstanding segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start: Seq,
    /// Sequence numbers that it takes, SYN and FIN included.
    octets: u32,
    /// Time of its last transmission.
    sent: Time,
    /// State of delivery at that transmission.
    stamp: Stamp,
    /// The turn of its last transmission among all of the connection, modulo 2^32.
    turn: u32,
    /// Neighbours in its list; its own number stands for none. If sacked it is in no list, and so
    /// many segments from this one on are known to be sacked as `next` says.
    previous: u32,
    next: u32,
    state: SegmentState,
    /// Transmissions, saturating.
    times: u8,
}

impl Segment {
    fn end(&self) -> Seq {
        self.start + self.octets
    }

    fn sending(&self) -> Sending {
        Sending { at: self.sent, turn: self.turn }
    }

    fn is_original(&self) -> bool {
        self.times == 1
    }
}

/// The outstanding segments of one connection.
#[derive(Debug, Default)]
pub struct Scoreboard {
    ring: Ring,
    una: Seq,
    nxt: Seq,
    flight: List,
    lost: List,
    flight_octets: u32,
    lost_octets: u32,
    sacked_octets: u32,
    sacked_segments: u32,
    segments_max: u32,
    /// Turn of the last transmission.
    turn: u32,
    /// Segments that were looked at for blocks.
    #[cfg(test)]
    steps: u64,
}

/// The segments, of which the beginning and the neighbours follow from the others; and the order in
/// which those lost shall be resent.
impl Field for Scoreboard {
    fn put(&self, out: &mut Writer<'_>) {
        (self.una, self.turn, self.segments_max).put(out);
        self.ring.len().put(out);
        for index in 0..self.ring.len() {
            let segment = self.ring.at(self.ring.id_of(index));
            let Segment { octets, sent, stamp, turn, state, times, .. } = *segment;
            (octets, sent, stamp).put(out);
            (turn, state, times).put(out);
        }
        let mut next = self.lost.head;
        while let Some(id) = next {
            let segment = self.ring.at(id);
            id.wrapping_sub(self.ring.first_id()).put(out);
            next = (segment.next != id).then_some(segment.next);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (una, turn, segments_max) = Field::take(from)?;
        let mut board = Self { turn, ..Self::new(una, segments_max) };
        let (count, mut lost) = (u32::take(from)?, 0);
        if count > board.segments_max || segments_max > SEGMENTS_MAX {
            return None;
        }
        for _ in 0..count {
            let (octets, sent, stamp) = Field::take(from)?;
            let (turn, state, times) = <(_, _, u8)>::take(from)?;
            if !board.sent(octets, sent, stamp) {
                return None;
            }
            let segment = board.ring.at_mut(board.ring.last_id()?);
            // One that went before the clock's beginning measures nothing.
            let times = if sent == Time::ZERO { times.max(2) } else { times.max(1) };
            (segment.turn, segment.state, segment.times) = (turn, state, times);
            lost += u32::from(state == SegmentState::Lost);
        }
        board.turn = turn;
        board.recount();
        for _ in 0..lost {
            let index = u32::take(from)?;
            let segment = board.ring.get(index).filter(|s| s.state == SegmentState::Lost)?;
            let id = board.ring.id_of(index);
            // In the list already, it has a neighbour, or is the first.
            if segment.previous != NOWHERE {
                return None;
            }
            board.lost.push_back(&mut board.ring, id);
        }
        Some(board)
    }
}

/// Number of a segment that is in no list yet; no list reaches it.
const NOWHERE: u32 = u32::MAX;

/// No board is larger.
const SEGMENTS_MAX: u32 = 1 << 16;

impl Scoreboard {
    /// Finds the sums, and puts what is in flight in the order of its last transmission; what is
    /// lost is in no list yet.
    fn recount(&mut self) {
        (self.flight, self.lost) = (List::default(), List::default());
        let mut octets = [0; 3];
        let mut flight = Vec::new();
        self.sacked_segments = 0;
        for index in 0..self.ring.len() {
            let id = self.ring.id_of(index);
            let segment = self.ring.at_mut(id);
            (segment.previous, segment.next) = (NOWHERE, 1);
            octets[segment.state as usize] += segment.octets;
            match segment.state {
                SegmentState::InFlight => flight.push((self.turn.wrapping_sub(segment.turn), id)),
                SegmentState::Lost => {}
                SegmentState::Sacked => self.sacked_segments += 1,
            }
        }
        [self.flight_octets, self.lost_octets, self.sacked_octets] = octets;
        flight.sort_by_key(|&(age, _)| Reverse(age));
        for (_, id) in flight {
            self.flight.push_back(&mut self.ring, id);
        }
    }

    /// Whether the segments may have been sent as `rate` has counted.
    pub(super) fn is_of(&self, rate: &Rate) -> bool {
        (0..self.ring.len()).all(|at| self.ring.get(at).is_some_and(|s| s.stamp.is_of(rate)))
    }

    /// Memory that an outstanding segment takes, in octets.
    pub const SEGMENT_OCTETS: usize = size_of::<Segment>();

    /// Nothing outstanding; the next segment begins at `next`. At most `segments_max` may stand
    /// here at once.
    #[must_use]
    pub fn new(next: Seq, segments_max: u32) -> Scoreboard {
        Scoreboard {
            una: next,
            nxt: next,
            segments_max: segments_max.max(1),
            ..Scoreboard::default()
        }
    }

    /// The oldest sequence number that is not acknowledged.
    pub fn una(&self) -> Seq {
        self.una
    }

    /// The sequence number that the next new segment begins with.
    pub fn nxt(&self) -> Seq {
        self.nxt
    }

    /// Octets sent and not acknowledged cumulatively (FlightSize of RFC 5681).
    pub fn outstanding_octets(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Octets believed to be in the network (`pipe` of RFC 6675).
    pub fn in_flight_octets(&self) -> u32 {
        self.flight_octets
    }

    /// Octets believed lost and not resent.
    pub fn lost_octets(&self) -> u32 {
        self.lost_octets
    }

    /// Octets acknowledged selectively.
    pub fn sacked_octets(&self) -> u32 {
        self.sacked_octets
    }

    /// Segments acknowledged selectively.
    pub fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// Segments believed lost and not sent again, and those sent again that are in flight.
    pub fn lost_and_resent(&self) -> (u32, u32) {
        let all = (0..self.ring.len()).filter_map(|at| self.ring.get(at));
        all.fold((0, 0), |(lost, resent), segment| match segment.state {
            SegmentState::Lost => (lost + 1, resent),
            SegmentState::InFlight if !segment.is_original() => (lost, resent + 1),
            _ => (lost, resent),
        })
    }

    /// Segments outstanding.
    pub fn segments(&self) -> u32 {
        self.ring.len()
    }

    /// Number of further segments that find room.
    #[inline]
    pub fn room(&self) -> u32 {
        self.segments_max.saturating_sub(self.ring.len())
    }

    /// Whether no further segment finds room.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Whether nothing is outstanding.
    pub fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// Whether the oldest outstanding segment is sacked: then the peer has forgotten what it told
    /// (RFC 2018, section 8).
    pub fn has_reneged(&self) -> bool {
        self.ring.front().is_some_and(|s| s.state == SegmentState::Sacked)
    }

    /// Records the next `octets` as sent now. `false`, and nothing recorded, if there is no room or
    /// there are no octets.
    pub(super) fn sent(&mut self, octets: u32, now: Time, stamp: Stamp) -> bool {
        if self.is_full()
            || octets == 0
            || octets > OUTSTANDING_OCTETS_MAX - self.outstanding_octets()
        {
            return false;
        }
        let turn = self.take_turn();
        let id = self.ring.push(Segment {
            start: self.nxt,
            octets,
            sent: now,
            stamp,
            turn,
            previous: 0,
            next: 0,
            state: SegmentState::InFlight,
            times: 1,
        });
        self.flight.push_back(&mut self.ring, id);
        self.flight_octets += octets;
        self.nxt += octets;
        true
    }

    fn take_turn(&mut self) -> u32 {
        self.turn = self.turn.wrapping_add(1);
        self.turn
    }

    /// The segment to resend first: where it begins and its octets.
    pub fn next_lost(&self) -> Option<(Seq, u32)> {
        let segment = self.ring.at(self.lost.head?);
        Some((segment.start, segment.octets))
    }

    /// The last segment, if it is in flight, for a loss probe.
    pub fn last_in_flight(&self) -> Option<(Seq, u32)> {
        let segment = self.ring.at(self.ring.last_id()?);
        (segment.state == SegmentState::InFlight).then_some((segment.start, segment.octets))
    }

    /// Records that the segment that begins at `start`, lost or in flight, was resent now; its
    /// octets, or `None` if there is none.
    pub(super) fn resent(&mut self, start: Seq, now: Time, stamp: Stamp) -> Option<u32> {
        let id = match self.lost.head {
            Some(id) if self.ring.at(id).start == start => id,
            _ => self.find(start)?,
        };
        match self.ring.at(id).state {
            SegmentState::Lost => self.leave_lost(id),
            SegmentState::InFlight => self.leave_flight(id),
            SegmentState::Sacked => return None,
        }
        let turn = self.take_turn();
        let segment = self.ring.at_mut(id);
        segment.state = SegmentState::InFlight;
        segment.turn = turn;
        segment.sent = now;
        segment.stamp = stamp;
        segment.times = segment.times.saturating_add(1);
        let octets = segment.octets;
        self.flight.push_back(&mut self.ring, id);
        self.flight_octets += octets;
        Some(octets)
    }

    /// Takes a cumulative acknowledgment in; what it delivers is told to `newly`. The caller has
    /// checked that it lies between [`una`](Scoreboard::una) and [`nxt`](Scoreboard::nxt); anything
    /// else changes nothing.
    pub fn acknowledge(&mut self, ack: Seq, newly: &mut Newly) {
        let advance = ack.since(self.una);
        if advance == 0 || advance > self.outstanding_octets() {
            return;
        }
        newly.acked_octets = advance;
        self.una = ack;
        while let Some(&segment) = self.ring.front() {
            if segment.start.at_or_after(ack) {
                break;
            }
            if segment.end().after(ack) {
                self.cut_front(ack, newly);
                break;
            }
            match segment.state {
                SegmentState::InFlight => self.leave_flight(self.ring.first_id()),
                SegmentState::Lost => self.leave_lost(self.ring.first_id()),
                SegmentState::Sacked => {
                    self.sacked_octets -= segment.octets;
                    self.sacked_segments -= 1;
                }
            }
            if segment.state != SegmentState::Sacked {
                newly.delivered(&segment, true);
            }
            self.ring.pop();
        }
    }

    /// The first segment is acknowledged up to `ack`, which lies in it.
    fn cut_front(&mut self, ack: Seq, newly: &mut Newly) {
        let id = self.ring.first_id();
        let segment = self.ring.at_mut(id);
        let octets = ack.since(segment.start);
        segment.start = ack;
        segment.octets -= octets;
        match segment.state {
            SegmentState::InFlight => self.flight_octets -= octets,
            SegmentState::Lost => self.lost_octets -= octets,
            SegmentState::Sacked => {
                self.sacked_octets -= octets;
                return;
            }
        }
        newly.delivered_octets += octets;
    }

    /// Takes a selective acknowledgment in: segments that lie in it wholly are sacked. `false` if
    /// the block lies outside of what is outstanding, or is none.
    pub fn sack(&mut self, block: SackBlock, newly: &mut Newly) -> bool {
        let outstanding = self.outstanding_octets();
        let (from, to) = (block.start.since(self.una), block.end.since(self.una));
        if from >= to || to > outstanding {
            return false;
        }
        let first = self.ring.first_at_or_after(block.start);
        let mut index = first;
        while let Some(segment) = self.ring.get(index) {
            if segment.end().after(block.end) {
                break;
            }
            index += match segment.state {
                SegmentState::Sacked => segment.next,
                SegmentState::InFlight | SegmentState::Lost => {
                    self.sack_one(index, newly);
                    1
                }
            };
        }
        let _steps = self.ring.compress(first, index);
        #[cfg(test)]
        {
            self.steps += u64::from(_steps);
        }
        true
    }

    fn sack_one(&mut self, index: u32, newly: &mut Newly) {
        let id = self.ring.id_of(index);
        let segment = *self.ring.at(id);
        if segment.state == SegmentState::Lost {
            self.leave_lost(id);
        } else {
            self.leave_flight(id);
        }
        newly.delivered(&segment, false);
        let segment = self.ring.at_mut(id);
        segment.state = SegmentState::Sacked;
        segment.next = 1;
        self.sacked_octets += segment.octets;
        self.sacked_segments += 1;
    }

    /// Believes lost all in flight, oldest transmission first, for which `judge` says so; stops at
    /// the first for which it does not. `judge` gets the segment's last transmission. Octets.
    pub fn lose_while(&mut self, mut judge: impl FnMut(Sending) -> bool) -> u32 {
        let before = self.lost_octets;
        while let Some(id) = self.flight.head {
            let segment = self.ring.at(id);
            if !judge(segment.sending()) {
                break;
            }
            self.lose(id);
        }
        self.lost_octets - before
    }

    /// Believes the oldest outstanding segment lost, if it is in flight. Octets.
    pub fn lose_first(&mut self) -> u32 {
        match self.ring.front() {
            Some(&segment) if segment.state == SegmentState::InFlight => {
                self.lose(self.ring.first_id());
                segment.octets
            }
            _ => 0,
        }
    }

    /// Believes lost what is in flight and larger than `octets_max`: it cannot have passed. Octets.
    pub fn lose_larger(&mut self, octets_max: u32) -> u32 {
        let before = self.lost_octets;
        for index in 0..self.ring.len() {
            let id = self.ring.id_of(index);
            let segment = self.ring.at(id);
            if segment.state == SegmentState::InFlight && segment.octets > octets_max {
                self.lose(id);
            }
        }
        self.order_lost();
        self.lost_octets - before
    }

    fn lose(&mut self, id: u32) {
        self.leave_flight(id);
        let segment = self.ring.at_mut(id);
        segment.state = SegmentState::Lost;
        self.lost_octets += segment.octets;
        let start = segment.start;
        match self.lost.head {
            Some(head) if start.before(self.ring.at(head).start) => {
                self.lost.push_front(&mut self.ring, id);
            }
            _ => self.lost.push_back(&mut self.ring, id),
        }
    }

    /// Puts what is lost in sequence order, as it is to be resent after a timeout.
    pub fn order_lost(&mut self) {
        self.lost = List::default();
        for index in 0..self.ring.len() {
            let id = self.ring.id_of(index);
            if self.ring.at(id).state == SegmentState::Lost {
                self.lost.push_back(&mut self.ring, id);
            }
        }
    }

    /// Believes in flight again all that was believed lost and was not resent: nothing was.
    pub fn find_lost(&mut self) {
        if self.lost.head.is_none() {
            return;
        }
        self.flight_octets += self.lost_octets;
        self.lost_octets = 0;
        self.lost = List::default();
        self.flight = List::default();
        let mut found = Vec::new();
        for index in 0..self.ring.len() {
            let id = self.ring.id_of(index);
            let segment = self.ring.at_mut(id);
            if segment.state != SegmentState::Sacked {
                segment.state = SegmentState::InFlight;
                found.push((self.turn.wrapping_sub(segment.turn), id));
            }
        }
        found.sort_unstable_by_key(|&(age, _)| Reverse(age));
        for (_, id) in found {
            self.flight.push_back(&mut self.ring, id);
        }
    }

    /// Forgets all selective acknowledgments: the peer has (RFC 2018, section 8). What was sacked
    /// is lost.
    pub fn renege(&mut self) {
        for index in 0..self.ring.len() {
            let segment = self.ring.at_mut(self.ring.id_of(index));
            if segment.state == SegmentState::Sacked {
                segment.state = SegmentState::Lost;
                segment.next = 1;
            }
        }
        self.lost_octets += self.sacked_octets;
        self.sacked_octets = 0;
        self.sacked_segments = 0;
        self.order_lost();
    }

    /// Whether [`rest`](Scoreboard::rest) has something to give back.
    pub fn has_slack(&self) -> bool {
        self.ring.has_slack()
    }

    /// Gives back the memory that nothing stands in.
    pub fn rest(&mut self) {
        self.ring.rest();
    }

    /// Counts everything again and compares.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut octets = [0; 3];
        let (mut next, mut sacked, mut lost, mut flight) = (self.una, 0, 0, 0);
        for index in 0..self.ring.len() {
            let segment = self.ring.at(self.ring.id_of(index));
            assert_eq!(segment.start, next);
            next = segment.end();
            octets[segment.state as usize] += segment.octets;
            sacked += u32::from(segment.state == SegmentState::Sacked);
            lost += u32::from(segment.state == SegmentState::Lost);
            flight += u32::from(segment.state == SegmentState::InFlight);
        }
        assert_eq!(next, self.nxt);
        assert_eq!(octets, [self.flight_octets, self.lost_octets, self.sacked_octets]);
        assert_eq!(sacked, self.sacked_segments);
        assert_eq!(
            lost,
            self.ring.count(&self.lost, |_, s| assert_eq!(s.state, SegmentState::Lost))
        );
        let in_order = |last: Time, s: &Segment| {
            assert_eq!(s.state, SegmentState::InFlight);
            assert!(last <= s.sent, "{last} {s:?}");
        };
        assert_eq!(flight, self.ring.count(&self.flight, in_order));
    }

    fn find(&self, start: Seq) -> Option<u32> {
        if start.since(self.una) >= self.outstanding_octets() {
            return None;
        }
        let index = self.ring.first_at_or_after(start);
        let found = self.ring.get(index)?;
        (found.start == start).then(|| self.ring.id_of(index))
    }

    fn leave_flight(&mut self, id: u32) {
        self.flight_octets -= self.ring.at(id).octets;
        self.flight.unlink(&mut self.ring, id);
    }

    fn leave_lost(&mut self, id: u32) {
        self.lost_octets -= self.ring.at(id).octets;
        self.lost.unlink(&mut self.ring, id);
    }
}
