//! The ring of each direction, and both directions as one end of a link.
//!
//! The sender fills slots in turn and marks each with its place in the sequence; the receiver knows
//! which mark the next slot must bear, so it needs to look at that slot alone: a short frame costs
//! it one cache line. The sender reads nothing to send but how far the receiver is, and that only
//! when its last knowledge says that the ring is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xk_core::{Message, Pool};

use crate::layout::{Geometry, INLINE_OCTETS};
use crate::memory_unsafe::{Lane, Memory, SideLines};

/// A side is awake and will look by itself.
const AWAKE: u64 = 0;
/// A side sleeps, or is about to, and is to be woken.
const ASLEEP: u64 = 1;
/// Octets in front of a header's mark: the frame's length in 24 bits, and eight flags of which none
/// is defined.
const MARK_SHIFT: u32 = 32;

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The ring is full; the receiver has not kept up.
    #[error("the ring is full")]
    Full,
    /// The frame is longer than the link carries.
    #[error("the frame is longer than the link carries")]
    TooLong,
    /// The other side has written what it must not: the link is to be dropped.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// The other side has written something impossible into the shared memory: the link is to be
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A frame longer than the link carries, or with flags that are not defined.
    #[error("the peer announced a frame that cannot be")]
    Frame,
    /// The peer says that it has consumed more than was sent, or less than before.
    #[error("the peer consumed what was not sent")]
    Consumed,
}

/// The word in front of a frame: its length, and the mark of its place in the sequence.
fn header(position: u32, octets: usize) -> u64 {
    // The memory is zero at first, so a mark must not be 0 at the first place.
    u64::from(position.wrapping_add(1)) << MARK_SHIFT | octets as u64
}

/// The sending end of one direction.
struct Sender {
    lane: Lane,
    peer: SideLines,
    /// Frames sent so far, modulo 2^32.
    next: u32,
    /// Frames of which it is known that the receiver has consumed them.
    consumed: u32,
}

impl Sender {
    /// Looks that there are slots and that the frame fits.
    #[inline]
    fn check(&mut self, octets: usize) -> Result<(), SendError> {
        if octets > self.lane.frame_octets_max() {
            return Err(SendError::TooLong);
        }
        if self.lane.slots_of(octets) <= self.room() {
            return Ok(());
        }
        if self.lane.slots_of(octets) <= self.look()? { Ok(()) } else { Err(SendError::Full) }
    }

    /// Number of free slots, as far as is known.
    #[inline]
    fn room(&self) -> u32 {
        self.lane.slots().saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Reads how far the receiver is; the value is bounded before it is believed.
    #[cold]
    fn look(&mut self) -> Result<u32, Broken> {
        let under_way = self.next.wrapping_sub(self.consumed);
        // Acquire: what the receiver copied out it has copied before the slot is written again.
        let consumed = self.peer.consumed().load(Ordering::Acquire);
        let consumed = u32::try_from(consumed).map_err(|_| Broken::Consumed)?;
        let more = consumed.wrapping_sub(self.consumed);
        if more > under_way {
            return Err(Broken::Consumed);
        }
        self.consumed = consumed;
        Ok(self.room())
    }

    #[inline]
    fn finish(&mut self, octets: usize) {
        let slots = self.lane.slots_of(octets);
        for more in (1..slots).rev() {
            // The mark of an earlier lap goes.
            let position = self.next.wrapping_add(more);
            self.lane.header(position).store(header(position, 0), Ordering::Relaxed);
        }
        // Release: a reader that sees the mark sees the whole frame, in however many slots.
        self.lane.header(self.next).store(header(self.next, octets), Ordering::Release);
        self.next = self.next.wrapping_add(slots);
    }
}

/// The receiving end of one direction.
struct Receiver {
    lane: Lane,
    own: SideLines,
    /// Frames consumed so far, modulo 2^32.
    next: u32,
    /// As far as the sender was told.
    told: u32,
}

impl Receiver {
    /// The length of the next frame if it is there. The word is read once.
    #[inline]
    fn look(&self) -> Result<Option<usize>, Broken> {
        // Acquire: with the mark comes the frame.
        let word = self.lane.header(self.next).load(Ordering::Acquire);
        if (word >> MARK_SHIFT) as u32 != self.next.wrapping_add(1) {
            return Ok(None);
        }
        let octets = word as u32 as usize;
        if octets > self.lane.frame_octets_max() {
            return Err(Broken::Frame);
        }
        Ok(Some(octets))
    }

    #[inline]
    fn consume(&mut self, octets: usize) {
        self.next = self.next.wrapping_add(self.lane.slots_of(octets));
    }
}

/// A frame in the ring, not copied out yet. Dropped without a copy, it is found there again.
pub struct Arrival<'a> {
    receiver: &'a mut Receiver,
    octets: usize,
}

impl Arrival<'_> {
    /// Length of the frame in octets: at most what the link carries.
    #[inline]
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the octets that [`copy_to`](Self::copy_to) writes at best: the length, rounded up to
    /// words for a short frame, since whole words are copied quicker.
    #[inline]
    pub fn octets_rounded(&self) -> usize {
        if self.octets <= INLINE_OCTETS { self.octets.next_multiple_of(8) } else { self.octets }
    }

    /// Copies the frame out and consumes it. `to` may be shorter, then the frame is cut, or longer:
    /// then up to seven octets behind the frame are overwritten as well. Answers how many octets of
    /// the frame `to` has now.
    #[inline]
    pub fn copy_to(self, to: &mut [u8]) -> usize {
        let Self { receiver, octets } = self;
        let copied = octets.min(to.len());
        if octets <= INLINE_OCTETS {
            let rounded = octets.next_multiple_of(8).min(to.len());
            receiver.lane.read_inline(receiver.next, &mut to[..rounded]);
        } else {
            receiver.lane.read_buffer(receiver.next, &mut to[..copied]);
        }
        receiver.consume(octets);
        receiver.lane.prefetch(receiver.next.wrapping_add(1));
        copied
    }

    /// Copies the frame into a message of `pool` with `headroom` octets in front, and consumes it.
    ///
    /// # Errors
    /// This, if there is no buffer.
    #[inline]
    pub fn into_message(self, pool: &Pool, headroom: usize) -> Result<Message, Self> {
        let (octets, rounded) = (self.octets, self.octets_rounded());
        let Ok(mut message) = pool.alloc(headroom, rounded) else {
            return Err(self);
        };
        match message.front_mut() {
            Some(front) if front.len() == rounded => {
                self.copy_to(front);
            }
            _ => {
                // In a pool of small buffers it lies in several.
                let mut whole = vec![0; octets];
                self.copy_to(&mut whole);
                message.copy_in(0, &whole);
            }
        }
        message.truncate(octets);
        Ok(message)
    }

    /// Consumes the frame without a copy.
    pub fn skip(self) {
        self.receiver.consume(self.octets);
    }
}

/// One end of a link: all that it does in memory, without the operating system.
///
/// Neither of two ends trusts the other. What the other one writes can be a frame of no meaning or
/// an error ([`Broken`]), after which the end is to be dropped; nothing else.
pub struct RingEnd {
    sender: Sender,
    receiver: Receiver,
    own: SideLines,
    peer: SideLines,
    /// The processors that this side may run on, as it has said.
    processors: u64,
    /// Frames were sent since the other side was last looked after.
    unflushed: bool,
}

impl RingEnd {
    /// The end of `side` (0 or 1) in a memory that is zero or that the other side has begun to use.
    pub(crate) fn new(memory: &Arc<Memory>, geometry: &Geometry, side: usize) -> Option<Self> {
        let other = side ^ 1;
        Some(Self {
            sender: Sender {
                lane: Lane::new(memory, geometry, side)?,
                peer: SideLines::new(memory, other)?,
                next: 0,
                consumed: 0,
            },
            receiver: Receiver {
                lane: Lane::new(memory, geometry, other)?,
                own: SideLines::new(memory, side)?,
                next: 0,
                told: 0,
            },
            own: SideLines::new(memory, side)?,
            peer: SideLines::new(memory, other)?,
            processors: 0,
            unflushed: false,
        })
    }

    /// Both ends of a link within one process, on the heap: for tests, and for two threads.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn pair(geometry: &Geometry) -> io::Result<(Self, Self)> {
        let memory = Arc::new(Memory::heap(geometry.octets())?);
        let end = |side| Self::new(&memory, geometry, side).ok_or(io::ErrorKind::InvalidInput);
        Ok((end(0)?, end(1)?))
    }

    /// The longest frame, in octets.
    pub fn frame_octets_max(&self) -> usize {
        self.sender.lane.frame_octets_max()
    }

    /// Returns the number of frames that a direction holds.
    pub fn slots(&self) -> u32 {
        self.sender.lane.slots()
    }

    /// Returns the slots that are free for sending, if `enough` are known to be: else looks how far
    /// the other side is.
    ///
    /// # Errors
    /// [`Broken`]: drop the link.
    #[inline]
    pub fn room(&mut self, enough: u32) -> Result<u32, Broken> {
        let room = self.sender.room();
        if room >= enough { Ok(room) } else { self.sender.look() }
    }

    /// Puts a frame into the ring, where the other side can see it at once.
    /// [`must_wake`](Self::must_wake) tells whether it has to be woken for that.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.sender.check(frame.len())?;
        let position = self.sender.next;
        if frame.len() <= INLINE_OCTETS {
            self.sender.lane.write_inline(position, frame);
        } else {
            self.sender.lane.write_buffer(position, 0, frame);
        }
        self.sender.finish(frame.len());
        self.unflushed = true;
        Ok(())
    }

    /// Sends a frame of `octets` octets in parts; what the parts lack is filled with
    /// whatever lies there, and what they have more is cut.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    pub fn send_parts<'a>(
        &mut self,
        octets: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), SendError> {
        self.sender.check(octets)?;
        let (position, lane) = (self.sender.next, &self.sender.lane);
        let mut short = [0; INLINE_OCTETS];
        let mut at = 0;
        for part in parts {
            let part = &part[..part.len().min(octets - at)];
            if octets > INLINE_OCTETS {
                lane.write_buffer(position, at, part);
            } else if let Some(place) = short.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
            at += part.len();
        }
        if octets <= INLINE_OCTETS {
            lane.write_inline(position, &short[..octets]);
        }
        self.sender.finish(octets);
        self.unflushed = true;
        Ok(())
    }

    /// The next frame, if there is one.
    ///
    /// # Errors
    /// [`Broken`]: drop the link.
    #[inline]
    pub fn arrival(&mut self) -> Result<Option<Arrival<'_>>, Broken> {
        let found = self.receiver.look()?;
        let receiver = &mut self.receiver;
        Ok(found.map(|octets| Arrival { receiver, octets }))
    }

    /// Copies the next frame out, cut to what `to` takes. Answers its length; `None` if there is
    /// none.
    ///
    /// # Errors
    /// [`Broken`]: drop the link.
    #[inline]
    pub fn receive(&mut self, to: &mut [u8]) -> Result<Option<usize>, Broken> {
        Ok(self.arrival()?.map(|arrival| arrival.copy_to(to)))
    }

    /// Gives the slots of all consumed frames back. To be called once after several frames: until
    /// then the sender keeps them.
    #[inline]
    pub fn release(&mut self) {
        let receiver = &mut self.receiver;
        if receiver.told != receiver.next {
            receiver.told = receiver.next;
            // Release: what was copied out is copied before the sender may write there again.
            let consumed = u64::from(receiver.next);
            receiver.own.consumed().store(consumed, Ordering::Release);
        }
    }

    /// After frames were sent: true if the other side sleeps and is to be woken. True once only for
    /// each of its sleeps.
    #[inline]
    pub fn must_wake(&mut self) -> bool {
        if !core::mem::take(&mut self.unflushed) {
            return false;
        }
        // An exchange on either side puts both in one order: if it comes before the sleeper's, the
        // sleeper's look into the ring sees the frame; if after, this one sees that it sleeps. The
        // line stays with the sender while neither sleeps.
        self.peer.state().swap(AWAKE, Ordering::AcqRel) == ASLEEP
    }

    /// Tells the other side that this one is about to sleep. False if it must not: a frame, or
    /// something impossible, is there.
    #[must_use]
    pub fn doze(&mut self) -> bool {
        self.release();
        self.own.state().swap(ASLEEP, Ordering::AcqRel);
        if matches!(self.receiver.look(), Ok(None)) {
            return true;
        }
        self.woken();
        false
    }

    /// Tells the other side that this one is awake.
    pub fn woken(&mut self) {
        // An exchange, too: behind a mere store the next look need not see the frame of a side that
        // has looked at the state before that store.
        self.own.state().swap(AWAKE, Ordering::Acquire);
    }

    /// Tells the other side on which processors this one may run, a bit each; 0 if that cannot be
    /// said in 64 bits.
    pub fn set_processors(&mut self, mask: u64) {
        self.processors = mask;
        self.own.processors().store(mask, Ordering::Relaxed);
    }

    /// True if both sides can only ever run on one and the same processor, as far as they have
    /// said: then a side that spins keeps the other from answering.
    pub fn shares_processor(&self) -> bool {
        let own = self.processors;
        own.count_ones() == 1 && own == self.peer.processors().load(Ordering::Relaxed)
    }

    /// Writes a word anywhere in the shared memory, as a hostile peer can: for tests of the other
    /// end.
    pub fn poke(&self, at: usize, value: u64) {
        self.sender.lane.poke(at, value);
    }

    /// Octets of the shared memory.
    pub fn memory_octets(&self) -> usize {
        self.sender.lane.memory_octets()
    }
}

#[cfg(test)]
mod tests;
