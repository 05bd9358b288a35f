//! Messages of several fragments that are being collected.

use crate::protocol::{Fragment, Fragmented};
use crate::wire::{FRAGMENTS_MAX, Header, Kind, full_mask};
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, SessionRef, Time};

/// First time that a session waits for each fragment of a message, before it asks for those that
/// are missing.
pub(crate) const PER_FRAGMENT: Duration = Duration::from_millis(10);
/// The longest wait between two questions.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);
/// Times that missing fragments are asked for.
pub(crate) const NACKS_MAX: u8 = 3;
/// A session's wait for each fragment never grows beyond this.
const PER_FRAGMENT_MAX: Duration = Duration::from_millis(1000 / FRAGMENTS_MAX as u64);

/// A fragment sent again of a message that is complete, or was given up.
pub(crate) static LATE_FRAGMENT: Reason = Reason::new("late fragment", Class::Bad);
/// A fragment that contradicts those that came before, or says that it is between other hosts.
pub(crate) static FORGED: Reason = Reason::new("forged fragment", Class::Bad);
/// A message was given up: fragments were missing after the last question.
pub(crate) static MISSING: Reason = Reason::new("fragments missing", Class::Bad);
/// A message was given up to make room for another.
pub(crate) static CROWDED_OUT: Reason = Reason::new("crowded out", Class::Exhausted);

/// A message that is being collected.
pub(crate) struct Partial {
    session: SessionRef,
    sequence: u32,
    count: u8,
    held: u16,
    nacks: u8,
    /// A fragment came after it was asked for without need.
    was_hasty: bool,
    wait: Duration,
    since: Time,
    timer: Option<Timer>,
    /// Number of messages that the session collects.
    siblings: Rc<Cell<usize>>,
    /// As the sender wrote them.
    hosts: ([u8; 4], [u8; 4]),
    fragments: [Option<Message>; FRAGMENTS_MAX],
}

/// Result of a fragment.
#[derive(Clone, Copy)]
enum Stored {
    Kept,
    /// The fragment contradicts the others.
    Odd,
    Complete,
}

impl Partial {
    fn store(&mut self, header: &Header, payload: Message) -> (Stored, Option<Message>) {
        if header.count != self.count {
            return (Stored::Odd, Some(payload));
        }
        let Some(slot) = self.fragments.get_mut(header.index()) else {
            return (Stored::Odd, Some(payload));
        };
        let before = slot.replace(payload);
        self.held |= header.mask;
        if self.held == full_mask(self.count) {
            return (Stored::Complete, before);
        }
        (Stored::Kept, before)
    }

    /// The fragments one behind the other.
    fn joined(mut self) -> Option<Message> {
        let mut parts = self.fragments.iter_mut().map_while(Option::take);
        let mut whole = parts.next()?;
        parts.for_each(|part| whole.join(part));
        Some(whole)
    }
}

/// A fragment of a message that has several came: its header is off, and what is behind its end.
#[cold]
pub(crate) fn collect(
    own: &Fragmented,
    cx: &Kernel,
    this: &SessionRef,
    header: &Header,
    payload: Message,
) -> Result<(), Refused> {
    if own.state.was_completed(header.sequence) {
        return Err(this.refuse(cx, payload, &LATE_FRAGMENT));
    }
    let place = match collected(own, this, header.sequence) {
        Some(place) => place,
        // Only what is sent for the first time begins a message.
        None if header.kind == Kind::Retransmit => {
            return Err(this.refuse(cx, payload, &LATE_FRAGMENT));
        }
        None => match begin(own, cx, this, header) {
            Some(place) => place,
            None => return Err(this.refuse(cx, payload, &reason::QUEUE_FULL)),
        },
    };
    let partial = &own.all.layer.partial;
    let stored = partial.with(place, |p| {
        let was_hasty = header.kind == Kind::Send && p.nacks > 0 && !p.was_hasty;
        p.was_hasty |= was_hasty;
        let (stored, spare) = p.store(header, payload);
        (stored, spare, was_hasty)
    });
    let Some((stored, spare, was_hasty)) = stored else {
        return Ok(());
    };
    if was_hasty {
        own.state.per_fragment.set((2 * own.state.per_fragment.get()).min(PER_FRAGMENT_MAX));
    }
    match (stored, spare) {
        (Stored::Odd, Some(payload)) => return Err(this.refuse(cx, payload, &FORGED)),
        (Stored::Odd, None) => return Ok(()),
        (Stored::Kept | Stored::Complete, spare) => drop(spare),
    }
    own.all.layer.count(|f| &mut f.fragments_held, 1);
    match stored {
        Stored::Complete => complete(own, cx, this, place),
        _ => Ok(()),
    }
}

/// The place of a message that is being collected here.
fn collected(own: &Fragmented, this: &SessionRef, sequence: u32) -> Option<u32> {
    let is = |p: &Partial| p.sequence == sequence && p.session == *this;
    let last = own.state.last_partial.get();
    if own.all.layer.partial.with(last, |p| is(p)) == Some(true) {
        return Some(last);
    }
    let place = own.all.layer.partial.find(is)?;
    own.state.last_partial.set(place);
    Some(place)
}

/// Makes room for one more message, and the place for it.
fn begin(own: &Fragmented, cx: &Kernel, this: &SessionRef, header: &Header) -> Option<u32> {
    let (table, limits) = (&own.all.layer, own.all.layer.limits);
    if own.state.partials.get() >= limits.partial_per_peer {
        table.crowd_out(cx, |p| p.session == *this);
    } else if table.partial.len() >= limits.partial_max {
        table.crowd_out(cx, |_| true);
    }
    let wait = (own.state.per_fragment.get() * u32::from(header.count)).min(WAIT_MAX);
    let place = table.partial.put(Partial {
        session: this.clone(),
        sequence: header.sequence,
        count: header.count,
        held: 0,
        nacks: 0,
        was_hasty: false,
        wait,
        since: cx.now(),
        timer: None,
        siblings: Rc::clone(&own.state.partials),
        hosts: (header.client, header.server),
        fragments: [const { None }; FRAGMENTS_MAX],
    });
    let timer = cx.schedule(this, wait, u64::from(place));
    let Ok(timer) = timer else {
        let partial = table.partial.take(place);
        drop(partial);
        return None;
    };
    table.partial.with(place, |p| p.timer = Some(timer));
    own.state.partials.set(own.state.partials.get() + 1);
    own.state.last_partial.set(place);
    Some(place)
}

/// All fragments are there.
fn complete(own: &Fragmented, cx: &Kernel, this: &SessionRef, place: u32) -> Result<(), Refused> {
    let Some(partial) = own.all.layer.take_partial(cx, place) else {
        return Ok(());
    };
    own.state.note_completed(partial.sequence);
    if partial.nacks == 0 {
        let (usual, now) = (PER_FRAGMENT, own.state.per_fragment.get());
        own.state.per_fragment.set(now - (now - usual) / 16);
    }
    own.all.layer.count(|f| &mut f.messages_delivered, 1);
    match partial.joined() {
        Some(whole) => own.upper.demux(cx, this, whole),
        None => Ok(()),
    }
}

/// The timer of a message that is being collected here went off.
pub(crate) fn ask_for_missing(own: &Fragmented, cx: &Kernel, this: &SessionRef, place: u32) {
    let nack = own.all.layer.partial.with(place, |p| {
        p.timer = None;
        if p.nacks == NACKS_MAX {
            return None;
        }
        p.nacks += 1;
        // The first wait is the shorter one; from then on it doubles.
        p.wait = (2 * p.wait).min(WAIT_MAX);
        let header = Header {
            kind: Kind::Nack,
            client: p.hosts.0,
            server: p.hosts.1,
            number: own.key,
            sequence: p.sequence,
            count: p.count,
            mask: p.held,
            len: 0,
        };
        Some((header, p.wait))
    });
    let Some(Some((header, wait))) = nack else {
        own.all.layer.give_up(cx, place, &MISSING);
        return;
    };
    match cx.schedule(this, wait, u64::from(place)) {
        Ok(timer) => drop(own.all.layer.partial.with(place, |p| p.timer = Some(timer))),
        Err(_) => return own.all.layer.give_up(cx, place, &reason::QUEUE_FULL),
    }
    own.all.layer.count(|f| &mut f.nacks_sent, 1);
    let Ok(mut packet) = cx.pool().empty(HEADROOM_OCTETS) else {
        // Counted in the pool; the next one asks.
        return;
    };
    if packet.push_array(&header.emit()).is_err() {
        this.discard(cx, packet, &reason::NO_BUFFERS);
        return;
    }
    // If it is lost, the next one asks.
    let _ = own.lower().push(cx, packet);
}
/// Room in front of a NACK, in octets: for its header and those below.
const HEADROOM_OCTETS: usize = 128;

impl Fragment {
    /// Gives up all that is being collected here.
    pub(crate) fn give_up_all(&self, cx: &Kernel, this: &SessionRef) {
        while let Some(place) = self.partial.find(|p| p.session == *this) {
            self.give_up(cx, place, &reason::CLOSED);
        }
    }

    fn take_partial(&self, cx: &Kernel, place: u32) -> Option<Partial> {
        let partial = self.partial.take(place)?;
        cx.cancel(partial.timer);
        let siblings = &partial.siblings;
        siblings.set(siblings.get().saturating_sub(1));
        Some(partial)
    }

    /// Gives a message up, counted once.
    fn give_up(&self, cx: &Kernel, place: u32, why: &'static Reason) {
        let Some(mut partial) = self.take_partial(cx, place) else {
            return;
        };
        self.count(|f| &mut f.messages_given_up, 1);
        // One of the fragments stands for the message.
        if let Some(fragment) = partial.fragments.iter_mut().find_map(Option::take) {
            partial.session.discard(cx, fragment, why);
        }
    }

    /// Gives the oldest of these up.
    fn crowd_out(&self, cx: &Kernel, is: impl Fn(&Partial) -> bool) {
        if let Some(place) = self.partial.least(|p| is(p).then_some(p.since)) {
            self.give_up(cx, place, &CROWDED_OUT);
        }
    }
}
