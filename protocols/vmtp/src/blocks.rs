//! Messages in blocks: cut into packets, and put together again (RFC 1045, sections 2.13 and 2.14).

use crate::wire::{
    APG, BARE_OCTETS, BLOCK_OCTETS, CHECKSUM_OCTETS, CMG, Error, GROUP_OCTETS, GROUPS_MAX, Header,
    NER, NSR, STI, Sums, blocks_of, octets_in, padded,
};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::PushError;
use xk_core::{Kernel, Message, SessionRef, Time};
use xk_kit::rpc::retransmit::SavedMessage;

/// Octets of the longest message.
pub const MESSAGE_OCTETS_MAX: usize = GROUP_OCTETS * GROUPS_MAX;
/// Octets free in front of what is made here, for the header and those below.
pub(crate) const HEADROOM: usize = 128;

/// Number of blocks in a packet of so many octets, at least one.
pub(crate) fn blocks_in(packet_octets: usize) -> u32 {
    let blocks = packet_octets.saturating_sub(BARE_OCTETS) / BLOCK_OCTETS;
    blocks.clamp(1, 32) as u32
}

/// The lowest `count` blocks of a mask.
pub(crate) fn lowest(mask: u32, count: u32) -> u32 {
    let mut rest = mask;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    mask & !rest
}

/// Number of groups of a message of so many octets.
pub(crate) fn groups_of(octets: usize) -> u32 {
    octets.div_ceil(GROUP_OCTETS).max(1) as u32
}

/// Octets of one group of such a message.
fn group_octets(octets: usize, group: u32) -> usize {
    octets.saturating_sub(group as usize * GROUP_OCTETS).min(GROUP_OCTETS)
}

/// The first run of blocks in a mask: the first, and the one behind the last.
fn first_run(mask: u32) -> (u32, u32) {
    let start = mask.trailing_zeros();
    let len = (mask.checked_shr(start).unwrap_or(0)).trailing_ones();
    (start, start + len)
}

/// The mask of the blocks from `start` up to `end`.
fn run(start: u32, end: u32) -> u32 {
    let below = |end: u32| 1u32.checked_shl(end).map_or(u32::MAX, |bit| bit - 1);
    below(end) & !below(start)
}

/// A message that is sent, and kept until the peer has it.
#[derive(Default)]
pub(crate) struct Outgoing {
    saved: RefCell<SavedMessage>,
    /// The header of its packets, less what is a packet's own; the transaction of its first group.
    pub(crate) header: Cell<Header>,
    /// Octets of the segment.
    octets: Cell<usize>,
    /// The group that the peer is at.
    pub(crate) group: Cell<u32>,
    /// Blocks of it that wait for the gap between packets, and until when.
    waiting: Cell<Option<(u32, Time)>>,
}

impl Outgoing {
    /// Keeps a message of one packet, of which there may be another copy to send.
    #[inline]
    pub(crate) fn save(&self, header: Header, message: &Message) -> Result<(), PushError> {
        self.begin(header, message.len());
        self.saved.borrow_mut().save(message).map_err(|_| PushError::NoBuffers)
    }

    /// Keeps a message of several packets.
    pub(crate) fn put(&self, header: Header, message: Message) {
        self.begin(header, message.len());
        self.saved.borrow_mut().put(message);
    }

    #[inline]
    fn begin(&self, header: Header, octets: usize) {
        self.header.set(header);
        self.octets.set(octets);
        self.group.set(0);
    }

    /// Keeps nothing any more.
    #[inline]
    pub(crate) fn clear(&self) {
        self.saved.borrow_mut().clear();
        self.waiting.set(None);
    }

    /// Sets the number of the transmission.
    pub(crate) fn set_round(&self, round: u32) {
        self.header.set(self.header.get().with_round(round));
    }

    /// Time at which blocks go that wait for the gap between packets.
    pub(crate) fn due(&self) -> Time {
        self.waiting.get().map_or(Time::MAX, |(_, due)| due)
    }

    /// The blocks that have waited for long enough.
    pub(crate) fn resume(&self, now: Time) -> Option<u32> {
        let (blocks, _) = self.waiting.get().filter(|(_, due)| *due <= now)?;
        self.waiting.set(None);
        Some(blocks)
    }

    /// Whether the peer gets the message in several groups.
    pub(crate) fn is_run(&self) -> bool {
        self.octets.get() > GROUP_OCTETS
    }

    /// Whether the peer gets the message in several packets.
    pub(crate) fn is_long(&self, blocks: u32) -> bool {
        self.octets.get() > blocks as usize * BLOCK_OCTETS
    }

    /// The transaction of the group that the peer is at.
    pub(crate) fn transaction(&self) -> u32 {
        self.header.get().transaction.wrapping_add(self.group.get())
    }

    /// All blocks of the group that the peer is at.
    pub(crate) fn blocks(&self) -> u32 {
        blocks_of(group_octets(self.octets.get(), self.group.get()))
    }

    /// Goes on to the next group; false if this one is the last.
    pub(crate) fn next_group(&self) -> bool {
        let is_more = self.group.get() + 1 < groups_of(self.octets.get());
        if is_more {
            self.group.set(self.group.get() + 1);
        }
        is_more
    }

    /// The header of the packets of the group that the peer is at.
    fn group_header(&self) -> Header {
        let mut header = self.header.get();
        header.transaction = self.transaction();
        let (group, groups) = (self.group.get(), groups_of(self.octets.get()));
        if group > 0 {
            header.control |= NSR;
        }
        if group + 1 < groups {
            header.control |= NER | CMG;
        }
        header
    }

    /// Sends these blocks, in packets of so many; with `control` bits in addition. If there are no
    /// blocks, sends the header alone. With a `gap` only the first packet goes now.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        (mut mask, blocks): (u32, u32),
        control: u32,
        (checks, gap): (bool, Duration),
    ) -> Result<(), PushError> {
        let mut header = self.group_header();
        header.control |= control;
        if self.is_run() {
            // The next group goes when this one is there.
            header.control |= APG | STI;
        }
        if mask == 0 {
            let empty = cx.pool().empty(HEADROOM).map_err(|_| PushError::NoBuffers)?;
            return push(cx, lower, &header, empty, checks);
        }
        let whole = self.saved.borrow().again(cx.pool()).map_err(|_| PushError::NoBuffers)?;
        let whole = whole.ok_or(PushError::NotSupported)?;
        let start = self.group.get() as usize * GROUP_OCTETS;
        let octets = group_octets(self.octets.get(), self.group.get());
        let mut result = Ok(());
        while mask != 0 {
            let now = lowest(mask, blocks);
            let part = cut(&whole, start, octets, now).map_err(|_| PushError::NoBuffers);
            let header = header.with_data(now, padded(octets_in(now, octets)));
            result = result.and(part.and_then(|part| push(cx, lower, &header, part, checks)));
            mask &= !now;
            if !gap.is_zero() {
                break;
            }
        }
        self.waiting.set((mask != 0).then(|| (mask, cx.now().after(gap))));
        result
    }
}

/// Copies these blocks of a group, which begins at `start` and has `octets`, by reference.
fn cut(
    whole: &Message,
    start: usize,
    octets: usize,
    mut mask: u32,
) -> Result<Message, xk_core::message::SplitError> {
    let mut all: Option<Message> = None;
    while mask != 0 {
        let (first, end) = first_run(mask);
        let from = first as usize * BLOCK_OCTETS;
        let to = (end as usize * BLOCK_OCTETS).min(octets);
        let part = whole.try_clone_part(start + from, to.saturating_sub(from))?;
        match &mut all {
            Some(all) => all.join(part),
            None => all = Some(part),
        }
        mask &= !run(first, end);
    }
    match all {
        Some(all) => Ok(all),
        None => whole.try_clone_part(0, 0),
    }
}

/// Puts padding and checksum behind the data of a packet and its header in front, and sends it.
#[inline]
pub(crate) fn push(
    cx: &Kernel,
    lower: &SessionRef,
    header: &Header,
    mut data: Message,
    checks: bool,
) -> Result<(), PushError> {
    let octets = header.emit();
    let len = data.len();
    if len == 0 {
        let sum = if checks { Sums::of(&octets).finish() } else { [0; CHECKSUM_OCTETS] };
        let mut packet = [0; BARE_OCTETS];
        packet[..BARE_OCTETS - CHECKSUM_OCTETS].copy_from_slice(&octets);
        packet[BARE_OCTETS - CHECKSUM_OCTETS..].copy_from_slice(&sum);
        if !data.push_in_place(&packet) && data.push_array(&packet).is_err() {
            return Err(PushError::NoBuffers);
        }
        return lower.push(cx, data);
    }
    let padding = padded(len) - len;
    let mut trailer = [0; 8 + CHECKSUM_OCTETS];
    let trailer = &mut trailer[..padding + CHECKSUM_OCTETS];
    if checks {
        let mut sums = Sums::of(&octets);
        sums.add_message(&data, 0, len);
        sums.add(&trailer[..padding]);
        trailer[padding..].copy_from_slice(&sums.finish());
    }
    let trailer = cx.pool().copy_from(0, trailer).map_err(|_| PushError::NoBuffers)?;
    data.join(trailer);
    if !data.push_in_place(&octets) && data.push_array(&octets).is_err() {
        return Err(PushError::NoBuffers);
    }
    lower.push(cx, data)
}

/// Result of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of it was there already.
    Duplicate,
    /// Others of its group are missing.
    New,
    /// The last part of a group came, and other groups are missing.
    Group,
    /// The message is there.
    Whole,
}

/// A message of which some blocks have come.
#[derive(Default)]
pub(crate) struct Incoming {
    /// The header of the first packet; `None` if none has come.
    header: Cell<Option<Header>>,
    /// The group that is collected, and the blocks of it that are held.
    group: Cell<u32>,
    held: Cell<u32>,
    /// Runs of blocks held, of this group and those before, by group and first block.
    parts: RefCell<Vec<(u32, u32, Message)>>,
}

impl Incoming {
    /// Begins a message with the header of one of its packets.
    pub(crate) fn begin(&self, header: &Header) {
        self.clear();
        self.header.set(Some(*header));
    }

    /// The header of the first packet, if one has come.
    pub(crate) fn first(&self) -> Option<Header> {
        self.header.get()
    }

    /// Whether a packet is of a group that is there.
    pub(crate) fn is_before(&self, header: &Header) -> bool {
        let first = self.header.get().map_or(0, |first| first.transaction);
        header.transaction.wrapping_sub(first) < self.group.get()
    }

    /// Whether a packet is of a group that is not collected yet.
    pub(crate) fn is_behind(&self, header: &Header) -> bool {
        let first = self.header.get().map_or(0, |first| first.transaction);
        header.transaction.wrapping_sub(first) > self.group.get()
    }

    /// Drops what is held.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.header.get().is_some() {
            self.clear_begun();
        }
    }

    #[inline(never)]
    fn clear_begun(&self) {
        self.header.set(None);
        self.group.set(0);
        self.held.set(0);
        self.parts.borrow_mut().clear();
    }

    /// Blocks held of the group that is collected.
    pub(crate) fn held(&self) -> u32 {
        self.held.get()
    }

    /// Number of blocks missing of the group that is collected.
    pub(crate) fn missing(&self) -> u32 {
        let octets = self.header.get().map_or(0, |first| first.segment_octets());
        (blocks_of(group_octets(octets, self.group.get())) & !self.held.get()).count_ones()
    }

    /// Number of the group that is collected.
    pub(crate) fn group(&self) -> u32 {
        self.group.get()
    }

    /// Takes a part of the message: `data` is what lies between the header and the checksum.
    ///
    /// # Errors
    /// The part contradicts those before, or itself: dropped.
    pub(crate) fn take(&self, header: &Header, mut data: Message) -> Result<Taken, Error> {
        let first = self.header.get().unwrap_or(*header);
        let size = header.segment_octets();
        let is_same = (first.client, first.server, first.code)
            == (header.client, header.server, header.code)
            && first.user == header.user;
        let group = header.transaction.wrapping_sub(first.transaction);
        if !is_same || group >= groups_of(size) {
            return Err(Error::Delivery);
        }
        let octets = group_octets(size, group);
        let own = octets_in(header.delivery, octets);
        if header.delivery & !blocks_of(octets) != 0 || data.len() != padded(own) {
            return Err(Error::Delivery);
        }
        if group != self.group.get() {
            // One before is there; one behind was not asked for.
            return Ok(Taken::Duplicate);
        }
        data.truncate(own);
        let mut fresh = header.delivery & !self.held.get();
        if fresh == 0 && self.held.get() != blocks_of(octets) {
            return Ok(Taken::Duplicate);
        }
        let mut data = Some(data);
        while fresh != 0 {
            let (start, end) = first_run(fresh);
            let from = (header.delivery & run(0, start)).count_ones() as usize * BLOCK_OCTETS;
            let to = (from + (end - start) as usize * BLOCK_OCTETS).min(own);
            let part = match &data {
                Some(whole) if from > 0 || to < own => whole.try_clone_part(from, to - from).ok(),
                _ => data.take(),
            };
            // Without a buffer it is as good as lost.
            if let Some(part) = part {
                self.held.set(self.held.get() | run(start, end));
                self.parts.borrow_mut().push((group, start, part));
            }
            fresh &= !run(start, end);
        }
        if self.held.get() != blocks_of(octets) {
            return Ok(Taken::New);
        }
        self.held.set(0);
        if group + 1 < groups_of(size) {
            self.group.set(group + 1);
            return Ok(Taken::Group);
        }
        Ok(Taken::Whole)
    }

    /// Gives up the whole message.
    pub(crate) fn finish(&self, cx: &Kernel) -> Option<Message> {
        let mut parts = self.parts.take();
        parts.sort_unstable_by_key(|(group, start, _)| (*group, *start));
        let mut whole: Option<Message> = None;
        for (_, _, part) in parts.drain(..) {
            match &mut whole {
                Some(whole) => whole.join(part),
                None => whole = Some(part),
            }
        }
        *self.parts.borrow_mut() = parts;
        self.clear();
        whole.or_else(|| cx.pool().empty(HEADROOM).ok())
    }
}

#[cfg(test)]
mod tests;
