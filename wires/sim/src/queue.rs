//! The frames in flight, in the order of their times, and of their sending where those are equal.

use crate::network::PortId;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use xk_core::{Message, Time};

/// Number of ordered runs that are kept beside the heap.
const LANES: usize = 4;
/// The place of the heap among them.
const HEAP: usize = LANES;

/// Event of a frame.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// The frame is at the far end of its sender's line.
    Arrival {
        /// The sender.
        from: PortId,
    },
    /// The frame has reached this port.
    Delivery {
        /// The receiver.
        to: PortId,
    },
}

/// A frame in flight.
pub(crate) struct Event {
    pub(crate) at: Time,
    sequence: u64,
    pub(crate) message: Message,
    pub(crate) kind: Kind,
}

impl Event {
    fn key(&self) -> (Time, u64) {
        (self.at, self.sequence)
    }
}

impl Ord for Event {
    /// The greatest is what comes first: the heap has the greatest on top.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Event {}

/// A queue by time. Links of one delay and rate give times that mostly grow, so most events go
/// behind the last one of a *lane*, a run in order, at constant cost and with neighbours in memory;
/// what fits behind none goes into a heap.
#[derive(Default)]
pub(crate) struct Queue {
    lanes: [VecDeque<Event>; LANES],
    heap: BinaryHeap<Event>,
    sequence: u64,
    len: usize,
    /// The earliest event's time, and the lane that it is in front of.
    first: Option<(Time, usize)>,
}

impl Queue {
    /// Number of frames in flight.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Time of the earliest event.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.first.map(|(at, _)| at)
    }

    /// Adds an event; it happens after all that were added before for the same time.
    pub(crate) fn push(&mut self, at: Time, kind: Kind, message: Message) {
        let event = Event { at, sequence: self.sequence, message, kind };
        self.sequence += 1;
        self.len += 1;
        let lane = self.lane_for(at);
        match self.lanes.get_mut(lane) {
            Some(lane) => lane.push_back(event),
            None => self.heap.push(event),
        }
        // At equal times the one there before is the earlier.
        if self.first.is_none_or(|(first, _)| at < first) {
            self.first = Some((at, lane));
        }
    }

    /// The lane whose last event is the closest before `at`; an empty one, or the heap, if there is
    /// none.
    fn lane_for(&self, at: Time) -> usize {
        let mut best = HEAP;
        let mut best_at = None;
        for (index, lane) in self.lanes.iter().enumerate() {
            match lane.back().map(|event| event.at) {
                Some(last) if last == at => return index,
                Some(last) if last < at && best_at < Some(last) => {
                    (best, best_at) = (index, Some(last));
                }
                None if best == HEAP => best = index,
                _ => {}
            }
        }
        best
    }

    /// The event that is so many behind the earliest one of its lane.
    #[inline]
    pub(crate) fn ahead(&self, after: usize) -> Option<&Event> {
        let (_, lane) = self.first?;
        self.lanes.get(lane)?.get(after)
    }

    /// Takes the earliest event out.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let (_, lane) = self.first?;
        let event = match self.lanes.get_mut(lane) {
            Some(lane) => lane.pop_front(),
            None => self.heap.pop(),
        };
        self.len -= 1;
        let fronts = self.lanes.iter().map(|lane| lane.front().map(Event::key));
        let fronts = fronts.chain([self.heap.peek().map(Event::key)]);
        let earliest = fronts.enumerate().filter_map(|(lane, key)| Some((key?, lane))).min();
        self.first = earliest.map(|((at, _), lane)| (at, lane));
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::Pool;
    use xk_core::message::PoolConfig;
    use xk_core::random::Random;

    /// Whatever is pushed in whatever order comes out by time, and by the order of pushing where
    /// times are equal.
    #[test]
    fn events_come_in_the_order_of_time_and_of_pushing() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for seed in 0..40 {
            let random = Random::new(seed);
            let (mut queue, mut expected) = (Queue::default(), Vec::new());
            let mut now = 0;
            for number in 0..2000_u32 {
                // Of few distinct times, so that many are equal; now and then one far ahead.
                let ahead = random.below(if number % 7 == 0 { 500 } else { 4 }) * 10;
                let at = Time::from_ns(now + ahead);
                let kind = Kind::Arrival { from: PortId(number) };
                queue.push(at, kind, pool.empty(0).unwrap());
                expected.push((at, number));
                if random.below(3) > 0 {
                    take_first(&mut queue, &mut expected, &mut now);
                }
            }
            while !expected.is_empty() {
                take_first(&mut queue, &mut expected, &mut now);
            }
            assert!(queue.pop().is_none() && queue.len() == 0 && queue.next().is_none());
        }
    }

    fn take_first(queue: &mut Queue, expected: &mut Vec<(Time, u32)>, now: &mut u64) {
        let (at, number) = *expected.iter().min().unwrap();
        expected.retain(|(_, n)| *n != number);
        assert_eq!(queue.next(), Some(at));
        let event = queue.pop().unwrap();
        assert_eq!(event.at, at);
        assert!(matches!(event.kind, Kind::Arrival { from } if from.0 == number));
        assert_eq!(queue.len(), expected.len());
        *now = (*now).max(at.as_ns());
    }
}
