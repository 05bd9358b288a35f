//! The faults, and the messages held back for them.

use crate::mark::copy_marked;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use xk_core::graph::{Build, BuildError, ParamKind, optional, word};
use xk_core::message::NoBuffers;
use xk_core::object::{PushError, Refused};
use xk_core::random::Random;
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Reason, Time, reason};
use xk_kit::control::{MaxPacket, OptPacket};
use xk_kit::passthrough::{Direction, Filter, Hop, KeptHop, PassThrough};
use xk_kit::wire::corrupt::copy_flipped;
use xk_kit::wire::offload;
use xk_kit::wire::segments;

/// Dropped by chance.
pub static LOST: Reason = Reason::new("lost", Class::Bad);
/// Went on with one bit flipped.
pub static CORRUPTED: Reason = Reason::new("corrupted", Class::Bad);
/// Went on with the mark of congestion.
pub static MARKED: Reason = Reason::new("marked", Class::Bad);
/// Went on twice.
pub static DUPLICATED: Reason = Reason::new("duplicated", Class::Bad);
/// Held back so that later ones overtake it.
pub static REORDERED: Reason = Reason::new("reordered", Class::Bad);

xk_core::settings! {
    /// Faults of messages; shares are from 0 to 1.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Faults {
        loss: f64 = fraction(0.0, "the share that is dropped"),
        duplicate: f64 = fraction(0.0, "the share that goes on twice"),
        reorder: f64 = fraction(0.0, "the share that later ones overtake"),
        reorder_delay: Duration = duration(Duration::from_millis(1),
            "how long a reordered message is held back"),
        corrupt: f64 = fraction(0.0, "the share with one bit flipped"),
        mark: f64 = fraction(0.0, "the share that is marked for congestion, of what can be"),
        delay: Duration = duration(Duration::ZERO, "how long every message is held back"),
        queue: usize = int(1..=1_000_000, 1000, "how many messages are held back at most"),
        ..
        /// Messages going down suffer.
        down: bool = true,
        /// Messages going up suffer.
        up: bool = true,
        /// Bits per second.
        rate_bit_s: Option<u64> = None,
        /// The largest message.
        mtu_octets: Option<usize> = None,
    }
    [
        word("direction", &["down", "up", "both"], "both", "whose messages suffer"),
        optional("rate", ParamKind::Rate, "bits per second; without it, no limit"),
        optional("mtu", ParamKind::Octets, "the largest message, in octets"),
    ]
}

struct Held {
    hop: KeptHop,
    direction: Direction,
    message: Message,
}

/// Fate of a message.
enum Outcome {
    /// The message goes on now; the second one, if any, right behind it.
    Now(Message, Option<Message>),
    /// Nothing is left to do now.
    Done,
    /// The message was dropped for this reason, for want of room.
    Full(PushError),
}

/// The fault layer's filter.
pub struct Fault {
    faults: Faults,
    random: Random,
    held: RefCell<BTreeMap<u64, Held>>,
    token_next: Cell<u64>,
    /// Times at which the line down and the line up are free.
    free_at: [Cell<Time>; 2],
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let direction = params.text("direction").unwrap_or("both");
    let faults = Faults {
        down: direction != "up",
        up: direction != "down",
        rate_bit_s: params.rate("rate"),
        mtu_octets: params.get("mtu").map(|_| params.octets("mtu", usize::MAX)),
        ..Faults::read(build)?
    };
    let random = build.cx.random().fork(u64::from(xk_core::name_key(build.name)));
    build.add(PassThrough::new(build.lower(0)?, Fault::new(faults, random)))
}

fn count(cx: &Kernel, hop: Hop<'_>, reason: &'static Reason) {
    if let Some(this) = hop.this.protocol(cx) {
        this.head().drops().count(reason);
    }
}

/// `message` with the octets of `copy` in place of its own, counted; without a copy it is dropped.
fn replaced(
    cx: &Kernel,
    hop: Hop<'_>,
    mut message: Message,
    copy: Result<Message, NoBuffers>,
    why: &'static Reason,
) -> Result<Message, Outcome> {
    let Ok(copy) = copy else {
        hop.this.discard(cx, message, &reason::NO_BUFFERS);
        return Err(Outcome::Full(PushError::NoBuffers));
    };
    // The attributes stay with what is left of the message.
    message.truncate(0);
    message.join(copy);
    count(cx, hop, why);
    Ok(message)
}

impl Fault {
    /// A filter with these faults; all chance comes from `random`.
    pub fn new(faults: Faults, random: Random) -> Self {
        Self {
            faults,
            random,
            held: RefCell::default(),
            token_next: Cell::new(0),
            free_at: [const { Cell::new(Time::ZERO) }; 2],
        }
    }

    fn hits(&self, share: f64) -> bool {
        share > 0.0 && self.random.chance(share)
    }

    /// Passes a message on by `go`, if chance and its size let it; what keeps it, `stopped` makes
    /// an answer of.
    fn treat<E>(
        &self,
        cx: &Kernel,
        hop: Hop<'_>,
        direction: Direction,
        message: Message,
        go: &dyn Fn(Message) -> Result<(), E>,
        stopped: &dyn Fn(PushError) -> Result<(), E>,
    ) -> Result<(), E> {
        if segments::of(&message).is_some() {
            return self.treat_apart(cx, hop, direction, message, go, stopped);
        }
        if self.is_too_big(&message) {
            hop.this.discard(cx, message, &reason::TOO_BIG);
            return stopped(PushError::TooBig);
        }
        match self.suffer(cx, hop, direction, message) {
            Outcome::Now(first, second) => {
                let result = go(first);
                if let Some(second) = second {
                    hop.keep().go_on(cx, direction, second);
                }
                result
            }
            Outcome::Done => Ok(()),
            Outcome::Full(error) => stopped(error),
        }
    }

    /// Treats each segment of a run. It is a function of its own, so that a tower of filters needs
    /// no stack for the cutting.
    #[inline(never)]
    fn treat_apart<E>(
        &self,
        cx: &Kernel,
        hop: Hop<'_>,
        direction: Direction,
        run: Message,
        go: &dyn Fn(Message) -> Result<(), E>,
        stopped: &dyn Fn(PushError) -> Result<(), E>,
    ) -> Result<(), E> {
        let treat = |piece| self.treat(cx, hop, direction, piece, go, stopped);
        apart(cx, hop, run).map(treat).fold(Ok(()), Result::and)
    }

    /// Lets chance decide about a message that is not too large.
    fn suffer(
        &self,
        cx: &Kernel,
        hop: Hop<'_>,
        direction: Direction,
        mut message: Message,
    ) -> Outcome {
        // A checksum taken for verified, or computed behind the damage, would hide it.
        if offload::finish_checksum(cx.pool(), &mut message).is_err() {
            hop.this.discard(cx, message, &reason::NO_BUFFERS);
            return Outcome::Full(PushError::NoBuffers);
        }
        if self.hits(self.faults.loss) {
            hop.this.discard(cx, message, &LOST);
            return Outcome::Done;
        }
        if !message.is_empty() && self.hits(self.faults.corrupt) {
            let bit = self.random.below(message.len() as u64 * 8) as usize;
            let copy = copy_flipped(cx.pool(), &message, bit);
            message = match replaced(cx, hop, message, copy, &CORRUPTED) {
                Ok(message) => message,
                Err(full) => return full,
            };
        }
        if self.hits(self.faults.mark)
            && let Some(copy) = copy_marked(cx.pool(), &message)
        {
            message = match replaced(cx, hop, message, copy, &MARKED) {
                Ok(message) => message,
                Err(full) => return full,
            };
        }
        let second = self.hits(self.faults.duplicate).then(|| message.try_clone());
        let Some(second) = second else {
            return self.put_off(cx, hop, direction, message);
        };
        let first = self.put_off(cx, hop, direction, message);
        let Ok(second) = second else {
            count(cx, hop, &reason::NO_BUFFERS);
            return first;
        };
        count(cx, hop, &DUPLICATED);
        let second = self.put_off(cx, hop, direction, second);
        match (first, second) {
            (Outcome::Now(first, None), Outcome::Now(second, None)) => {
                Outcome::Now(first, Some(second))
            }
            // The sender hears of the first one only.
            (Outcome::Done, second @ Outcome::Now(..)) => second,
            (first, _) => first,
        }
    }

    /// Holds a message back if it must wait.
    fn put_off(
        &self,
        cx: &Kernel,
        hop: Hop<'_>,
        direction: Direction,
        message: Message,
    ) -> Outcome {
        let mut at = cx.now();
        let free_at = match direction {
            Direction::Down => &self.free_at[0],
            Direction::Up => &self.free_at[1],
        };
        if let Some(rate) = self.faults.rate_bit_s {
            let bits = message.len() as u128 * 8;
            let sending_ns = (bits * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
            let sending_ns = u64::try_from(sending_ns).unwrap_or(u64::MAX);
            at = at.max(free_at.get()) + Duration::from_nanos(sending_ns);
        }
        let sent_at = at;
        at += self.faults.delay;
        if self.hits(self.faults.reorder) {
            count(cx, hop, &REORDERED);
            at += self.faults.reorder_delay;
        }
        let delay = at.since(cx.now());
        if delay.is_zero() {
            return Outcome::Now(message, None);
        }
        if !self.hold(cx, hop, direction, message, delay) {
            return Outcome::Full(PushError::QueueFull);
        }
        if self.faults.rate_bit_s.is_some() {
            free_at.set(sent_at);
        }
        Outcome::Done
    }

    /// False if there is no room; then the message was dropped and counted.
    fn hold(
        &self,
        cx: &Kernel,
        hop: Hop<'_>,
        direction: Direction,
        message: Message,
        delay: Duration,
    ) -> bool {
        let token = self.token_next.get();
        let room = self.held.borrow().len() < self.faults.queue;
        let this = hop.this.protocol(cx).filter(|_| room);
        if this.is_none_or(|this| cx.schedule_protocol(&this, delay, token).is_err()) {
            hop.this.discard(cx, message, &reason::QUEUE_FULL);
            return false;
        }
        self.token_next.set(token.wrapping_add(1));
        let held = Held { hop: hop.keep(), direction, message };
        self.held.borrow_mut().insert(token, held);
        true
    }

    fn is_too_big(&self, message: &Message) -> bool {
        self.faults.mtu_octets.is_some_and(|mtu| message.len() > mtu)
    }
}

/// The packets of a run of segments, each of which suffers by itself; why there are none is
/// counted.
fn apart(cx: &Kernel, hop: Hop<'_>, run: Message) -> impl Iterator<Item = Message> {
    let pieces = match segments::split(run) {
        Ok(pieces) => Some(pieces),
        Err(why) => {
            count(cx, hop, why);
            None
        }
    };
    let counted = move |piece: Result<Message, _>| piece.map_err(|why| count(cx, hop, why)).ok();
    pieces.into_iter().flatten().filter_map(counted)
}

impl Filter for Fault {
    fn down(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), PushError> {
        let go = |message| hop.push(cx, message);
        match self.faults.down {
            true => self.treat(cx, hop, Direction::Down, message, &go, &Err),
            false => go(message),
        }
    }

    fn up(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), Refused> {
        let go = |message| hop.deliver(cx, message);
        match self.faults.up {
            true => self.treat(cx, hop, Direction::Up, message, &go, &|_| Ok(())),
            false => go(message),
        }
    }

    fn control(
        &self,
        _: &Kernel,
        ask: &mut Ask<'_>,
        forward: &dyn Fn(&mut Ask<'_>) -> Answer,
    ) -> Answer {
        let Some(mtu) = self.faults.mtu_octets.filter(|_| self.faults.down) else {
            return forward(ask);
        };
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        let below = forward(ask);
        let least = |octets: u32| {
            if below.is_answered() { octets.min(mtu) } else { mtu }
        };
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = least(q.octets);
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = least(q.octets);
        } else {
            return below;
        }
        Answer::Answered
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, token: u64) {
        let held = self.held.borrow_mut().remove(&token);
        if let Some(Held { hop, direction, message }) = held {
            hop.go_on(cx, direction, message);
        }
    }

    fn stop(&self, _: &Kernel) {
        let held = self.held.take();
        drop(held);
    }
}
