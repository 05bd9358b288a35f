//! Segments of a stream that wait for their reader.

use std::collections::VecDeque;
use xk_core::Message;

/// A message, here or on another thread.
pub(crate) trait Octets {
    /// Passes the octets of each slice to `take`, from the front.
    fn each_slice(&self, take: impl FnMut(&[u8]));
}

impl Octets for Message {
    #[inline]
    fn each_slice(&self, take: impl FnMut(&[u8])) {
        self.octet_slices().for_each(take);
    }
}

/// Segments in order, the first of which may have been read in part.
pub(crate) struct Segments<M> {
    list: VecDeque<M>,
    /// Octets that have not been read.
    pub(crate) unread: usize,
    /// Octets of the first that have been read.
    read: usize,
}

/// An end of what has been looked at.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) octets: usize,
    /// Segments to their last octet, and octets of the next.
    pub(crate) whole: usize,
    read: usize,
}

impl<M> Default for Segments<M> {
    fn default() -> Self {
        Self { list: VecDeque::new(), unread: 0, read: 0 }
    }
}

impl<M: Octets> Segments<M> {
    /// Adds a segment of so many octets.
    #[inline]
    pub(crate) fn push(&mut self, segment: M, octets: usize) {
        self.unread += octets;
        self.list.push_back(segment);
    }

    /// The last segment. What makes it longer counts in [`unread`](Self::unread).
    pub(crate) fn last_mut(&mut self) -> Option<&mut M> {
        self.list.back_mut()
    }

    /// Adds all of `more`, of which nothing has been read.
    pub(crate) fn append(&mut self, more: &mut Self) {
        match self.list.is_empty() {
            true => std::mem::swap(&mut self.list, &mut more.list),
            false => self.list.append(&mut more.list),
        }
        self.unread += std::mem::take(&mut more.unread);
    }

    /// The end of all segments.
    #[inline]
    pub(crate) fn end(&self) -> Place {
        Place { octets: self.unread, whole: self.list.len(), read: 0 }
    }

    /// Passes at most `octets_max` octets to `take`, slice by slice; they stay.
    #[inline]
    pub(crate) fn look(&self, octets_max: usize, mut take: impl FnMut(&[u8])) -> Place {
        let (mut octets, mut whole, mut read) = (0, 0, self.read);
        for segment in &self.list {
            let (mut at, mut end) = (0, read);
            segment.each_slice(|slice| {
                if let Some(fresh) = end.checked_sub(at).and_then(|seen| slice.get(seen..)) {
                    let fresh = &fresh[..fresh.len().min(octets_max - octets)];
                    take(fresh);
                    octets += fresh.len();
                    end += fresh.len();
                }
                at += slice.len();
            });
            if end < at {
                read = end;
                break;
            }
            (whole, read) = (whole + 1, 0);
            if octets == octets_max {
                break;
            }
        }
        Place { octets, whole, read }
    }

    /// Goes on behind what was looked at, and hands over the segments that have been read.
    #[inline]
    pub(crate) fn pass(&mut self, to: Place, mut done: impl FnMut(M)) {
        self.unread -= to.octets;
        self.read = to.read;
        self.list.drain(..to.whole).for_each(&mut done);
    }
}
