//! The ring of outstanding segments, and the lists that run through it.
//!
//! A segment is named by a number that counts on for each new one, modulo 2^32, so that names stay
//! good while older segments leave.

use super::Segment;
use crate::Seq;
use alloc::collections::VecDeque;

/// Outstanding segments in sequence order.
#[derive(Debug, Default)]
pub(super) struct Ring {
    segments: VecDeque<Segment>,
    /// The number of the first.
    base: u32,
}

impl Ring {
    pub(super) fn len(&self) -> u32 {
        // Bounded by the scoreboard far below this.
        self.segments.len() as u32
    }

    pub(super) fn front(&self) -> Option<&Segment> {
        self.segments.front()
    }

    pub(super) fn get(&self, index: u32) -> Option<&Segment> {
        self.segments.get(index as usize)
    }

    pub(super) fn first_id(&self) -> u32 {
        self.base
    }

    pub(super) fn last_id(&self) -> Option<u32> {
        let last = self.len().checked_sub(1)?;
        Some(self.id_of(last))
    }

    pub(super) fn id_of(&self, index: u32) -> u32 {
        self.base.wrapping_add(index)
    }

    /// The segment of that number. Numbers come from this ring and its lists alone, never from a
    /// peer.
    #[inline]
    pub(super) fn at(&self, id: u32) -> &Segment {
        &self.segments[id.wrapping_sub(self.base) as usize]
    }

    /// As [`at`](Ring::at), to change it.
    #[inline]
    pub(super) fn at_mut(&mut self, id: u32) -> &mut Segment {
        &mut self.segments[id.wrapping_sub(self.base) as usize]
    }

    pub(super) fn push(&mut self, segment: Segment) -> u32 {
        let id = self.id_of(self.len());
        self.segments.push_back(segment);
        id
    }

    /// Takes the first out; it must be in no list.
    pub(super) fn pop(&mut self) {
        if self.segments.pop_front().is_some() {
            self.base = self.base.wrapping_add(1);
        }
    }

    /// The index of the first segment that begins at `start` or behind it.
    pub(super) fn first_at_or_after(&self, start: Seq) -> u32 {
        self.segments.partition_point(|s| s.start.before(start)) as u32
    }

    /// All of `first..end` are sacked: lets each that a walk touches point to the end, so that the
    /// next walk is short. The steps that this one took.
    pub(super) fn compress(&mut self, first: u32, end: u32) -> u32 {
        let (mut index, mut steps) = (first, 0);
        while index < end {
            let Some(segment) = self.segments.get_mut(index as usize) else {
                break;
            };
            let step = segment.next.max(1);
            segment.next = end - index;
            index += step;
            steps += 1;
        }
        steps
    }

    /// The length of a list; `see` gets each segment and when the one before it was sent.
    #[cfg(test)]
    pub(super) fn count(&self, list: &List, see: impl Fn(xk_core::Time, &Segment)) -> u32 {
        let (mut count, mut at, mut last) = (0, list.head, xk_core::Time::ZERO);
        while let Some(id) = at {
            let segment = self.at(id);
            see(last, segment);
            last = segment.sent;
            count += 1;
            at = (segment.next != id).then_some(segment.next);
            assert!(at.is_some() || list.tail == Some(id));
        }
        count
    }

    /// Whether [`rest`](Ring::rest) has something to give back.
    pub(super) fn has_slack(&self) -> bool {
        self.segments.is_empty() && self.segments.capacity() > 0
    }

    /// Gives back what nothing stands in.
    pub(super) fn rest(&mut self) {
        if self.segments.is_empty() {
            self.segments = VecDeque::new();
        }
    }
}

/// A list through the ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    pub(super) head: Option<u32>,
    pub(super) tail: Option<u32>,
}

impl List {
    pub(super) fn push_back(&mut self, ring: &mut Ring, id: u32) {
        let segment = ring.at_mut(id);
        segment.next = id;
        segment.previous = self.tail.unwrap_or(id);
        match self.tail {
            Some(tail) => ring.at_mut(tail).next = id,
            None => self.head = Some(id),
        }
        self.tail = Some(id);
    }

    pub(super) fn push_front(&mut self, ring: &mut Ring, id: u32) {
        let segment = ring.at_mut(id);
        segment.previous = id;
        segment.next = self.head.unwrap_or(id);
        match self.head {
            Some(head) => ring.at_mut(head).previous = id,
            None => self.tail = Some(id),
        }
        self.head = Some(id);
    }

    pub(super) fn unlink(&mut self, ring: &mut Ring, id: u32) {
        let &Segment { previous, next, .. } = ring.at(id);
        let (previous, next) = ((previous != id).then_some(previous), (next != id).then_some(next));
        match previous {
            Some(previous) => ring.at_mut(previous).next = next.unwrap_or(previous),
            None => self.head = next,
        }
        match next {
            Some(next) => ring.at_mut(next).previous = previous.unwrap_or(next),
            None => self.tail = previous,
        }
    }
}
