//! Messages of several fragments that were sent, kept for a peer that lacks some of them.

use crate::protocol::{Fragment, Fragmented};
use crate::wire::{FRAGMENTS_MAX, HEADER_OCTETS, Header, Kind, full_mask};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::{BURST_MAX, Outgoing, PushError};
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::retransmit::CopyState;

/// For how long a message is kept after it was sent, or was last asked for.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(1);
/// Times that a message may be asked for: a receiver asks three times, and the network may double
/// each.
const NACKS_MAX: u8 = 8;

/// In a timer's token: its place is one of these, and not of a message being collected.
pub(crate) const KEPT: u64 = 1 << 32;

/// Asks for fragments of a message that is not kept any more, or was asked for too often.
pub(crate) static LATE_NACK: Reason = Reason::new("late nack", Class::Bad);

const _: () = assert!(BURST_MAX >= FRAGMENTS_MAX);

/// A message that is kept.
pub(crate) struct Outstanding {
    session: SessionRef,
    message: Message,
    sequence: u32,
    count: u8,
    timer: Option<Timer>,
    nacks: u8,
    /// Asked for since the layer above last wanted to know.
    was_asked_for: bool,
}

/// Sends a message that does not fit one packet.
#[cold]
#[inline(never)]
pub(crate) fn push_large(
    own: &Fragmented,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
) -> Result<(), PushError> {
    let count = message.len().div_ceil(own.state.fragment_octets);
    if count > FRAGMENTS_MAX {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    let limit = CallOptions::clip(message.attribute(), cx.now(), Duration::MAX);
    let limit = limit.unwrap_or(Duration::ZERO);
    let limit = (limit != Duration::MAX).then_some(limit);
    if cx.wait(&own.all.layer.vacant, limit).is_err() {
        this.discard(cx, message, &reason::QUEUE_FULL);
        return Err(PushError::QueueFull);
    }
    if this.head().is_closed() {
        cx.signal(&own.all.layer.vacant);
        this.discard(cx, message, &reason::CLOSED);
        return Err(PushError::Closed);
    }
    send_large(own, cx, this, message, count as u8)
        .inspect_err(|_| cx.signal(&own.all.layer.vacant))
}

/// Sends it, a place to keep it being reserved. On failure the place is still free.
fn send_large(
    own: &Fragmented,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    count: u8,
) -> Result<(), PushError> {
    let sequence = own.state.next_sequence();
    let mut packets = Outgoing::new();
    let mask = full_mask(count);
    cut(own, &message, (Kind::Send, sequence, count), mask, &mut packets);
    let Some(first) = packets.pop_at(0) else {
        this.discard(cx, message, &reason::NO_BUFFERS);
        return Err(PushError::NoBuffers);
    };
    let kept = Outstanding {
        session: this.clone(),
        message,
        sequence,
        count,
        timer: None,
        nacks: 0,
        was_asked_for: false,
    };
    let place = own.all.layer.outstanding.put(kept);
    if !keep_on(own, cx, this, place) {
        let kept = own.all.layer.outstanding.take(place);
        if let Some(kept) = kept {
            this.discard(cx, kept.message, &reason::QUEUE_FULL);
        }
        return Err(PushError::QueueFull);
    }
    // If not even the first one goes, the message is not under way. What becomes of the others
    // is counted below, and the receiver will ask for them.
    if let Err(error) = own.lower().push(cx, first) {
        drop(own.all.layer.release_place(cx, place, false));
        return Err(error);
    }
    own.state.last_kept.set(sequence);
    own.all.layer.count(|f| &mut f.messages_sent, 1);
    let _ = own.lower().push_burst(cx, &mut packets);
    Ok(())
}

/// Makes packets of the fragments in `mask`. Each is a reference to the message's own buffers.
fn cut(
    own: &Fragmented,
    message: &Message,
    (kind, sequence, count): (Kind, u32, u8),
    mask: u16,
    packets: &mut Outgoing,
) {
    let size = own.state.fragment_octets;
    for index in (0..usize::from(count)).filter(|i| mask >> i & 1 != 0) {
        let at = index * size;
        let len = size.min(message.len().saturating_sub(at));
        let header = Header {
            kind,
            client: own.state.hosts.0,
            server: own.state.hosts.1,
            number: own.key,
            sequence,
            count,
            mask: 1 << index,
            len: len as u16,
        };
        // One that finds no buffer is counted in the pool, and missed by the receiver.
        if let Ok(mut packet) = message.try_clone_part(at, len)
            && packet.push_array::<HEADER_OCTETS>(&header.emit()).is_ok()
        {
            packets.push(packet);
        }
    }
}

/// Has a message be kept for one more second from now on.
fn keep_on(own: &Fragmented, cx: &Kernel, this: &SessionRef, place: u32) -> bool {
    let before = own.all.layer.outstanding.with(place, |kept| kept.timer.take());
    cx.cancel(before.flatten());
    let token = KEPT | u64::from(place);
    let Ok(timer) = cx.schedule(this, KEPT_FOR, token) else {
        return false;
    };
    own.all.layer.outstanding.with(place, |kept| kept.timer = Some(timer));
    true
}

/// The peer lacks fragments of a message.
#[cold]
pub(crate) fn nacked(
    own: &Fragmented,
    cx: &Kernel,
    this: &SessionRef,
    header: &Header,
    packet: Message,
) {
    let place = own.all.layer.place_of(this, header.sequence);
    let mut packets = Outgoing::new();
    let asked = place.and_then(|place| {
        own.all.layer.outstanding.with(place, |kept| {
            if kept.count != header.count || kept.nacks == NACKS_MAX {
                return None;
            }
            kept.nacks += 1;
            kept.was_asked_for = true;
            let missing = full_mask(kept.count) & !header.mask;
            let what = (Kind::Retransmit, kept.sequence, kept.count);
            cut(own, &kept.message, what, missing, &mut packets);
            Some(place)
        })?
    });
    let Some(place) = asked else {
        this.discard(cx, packet, &LATE_NACK);
        return;
    };
    drop(packet);
    if !keep_on(own, cx, this, place) {
        drop(own.all.layer.release_place(cx, place, true));
    }
    own.all.layer.count(|f| &mut f.nacks_answered, 1);
    own.all.layer.count(|f| &mut f.retransmits, packets.len() as u64);
    // What is lost on the way is asked for again.
    let _ = own.lower().push_burst(cx, &mut packets);
}

impl Fragment {
    /// The place of a message that was sent here.
    fn place_of(&self, this: &SessionRef, sequence: u32) -> Option<u32> {
        self.outstanding.find(|kept| kept.sequence == sequence && kept.session == *this)
    }

    /// The layer above needs the copy no more.
    pub(crate) fn free_kept(&self, cx: &Kernel, this: &SessionRef, ticket: u32) {
        if let Some(place) = self.place_of(this, ticket) {
            drop(self.release_place(cx, place, true));
        }
    }

    /// State of a message that was sent here.
    pub(crate) fn ask_kept(&self, this: &SessionRef, ticket: u32) -> CopyState {
        let asked = self.place_of(this, ticket).and_then(|place| {
            self.outstanding.with(place, |kept| core::mem::take(&mut kept.was_asked_for))
        });
        match asked {
            None => CopyState::Gone,
            Some(true) => CopyState::Collecting,
            Some(false) => CopyState::Silent,
        }
    }

    /// Releases all that was sent here.
    pub(crate) fn free_all(&self, cx: &Kernel, this: &SessionRef) {
        while let Some(place) = self.outstanding.find(|kept| kept.session == *this) {
            drop(self.release_place(cx, place, true));
        }
    }

    /// Releases a message that is kept. A message that waits for the place gets it, unless
    /// `signals` says that the caller still has it.
    #[must_use]
    pub(crate) fn release_place(
        &self,
        cx: &Kernel,
        place: u32,
        signals: bool,
    ) -> Option<Outstanding> {
        let kept = self.outstanding.take(place)?;
        cx.cancel(kept.timer);
        if signals {
            cx.signal(&self.vacant);
        }
        Some(kept)
    }
}
