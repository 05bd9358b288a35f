//! The layer: what it puts in front of a message, and when it hands one up.

use crate::wire::{HEADER_OCTETS, Header};
use crate::{JUMP, STALE, Tally};
use alloc::collections::BTreeMap;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Timer;
use xk_core::object::Refused;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, SessionRef, reason};
use xk_kit::layer::{Conversation, Layer, Layered};

/// One instance of the layer: its parameters from the graph.
pub struct Seq {
    /// Largest number of waiting messages.
    hold: usize,
    /// Time to wait for a missing message.
    wait: Duration,
}

/// State of a conversation.
#[derive(Default)]
pub struct State {
    /// The number of the next message sent.
    next: Cell<u64>,
    /// The number of the message that goes up next.
    turn: Cell<u64>,
    /// Messages that came before their turn, by number.
    waiting: RefCell<BTreeMap<u64, Message>>,
    /// Runs while a message waits; then those that are missing before it are given up.
    timer: Cell<Option<Timer>>,
    missing: Cell<u64>,
}

type Own = Conversation<Seq, HEADER_OCTETS>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Layered::build(build, Seq { hold: build.int("hold")?, wait: build.duration("wait")? })
}

impl Layer<HEADER_OCTETS> for Seq {
    /// The type number of the protocol above.
    type Key = u16;
    type State = State;

    const OCTETS_MAX: usize = u16::MAX as usize;
    const PASSES_OFFERS: bool = true;
    const ONE_BY_ONE: bool = true;

    fn key_of(header: &[u8; HEADER_OCTETS]) -> u16 {
        Header::parse(header).number
    }

    fn length(header: &[u8; HEADER_OCTETS]) -> Option<usize> {
        Some(Header::parse(header).length.into())
    }

    fn begin(&self, cx: &Kernel, _: &SessionRef, _: u16) -> State {
        // In the lower half of all numbers, so far from the first turn that it is believed.
        let next = Cell::new(cx.random().next_u64() >> 2);
        State { next, turn: Cell::new(u64::MAX / 2), ..State::default() }
    }

    fn header(&self, own: &Own, message: &Message) -> Option<[u8; HEADER_OCTETS]> {
        let (number, length) = (own.key, message.len() as u16);
        let sequence = own.state.next.get();
        own.state.next.set(sequence.wrapping_add(1));
        Some(Header { number, length, sequence }.emit())
    }

    fn deliver(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        header: &[u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        let number = Header::parse(header).sequence;
        let State { turn, waiting, .. } = &own.state;
        if number.abs_diff(turn.get()) > JUMP {
            // The peer began again. What waits goes up first; what is refused is counted above.
            drop(hand_up(own, cx, this, 0));
            turn.set(number);
        }
        if number < turn.get() || waiting.borrow().contains_key(&number) {
            return Err(this.refuse(cx, message, &STALE));
        }
        waiting.borrow_mut().insert(number, message);
        hand_up(own, cx, this, own.all.layer.hold)
    }

    fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, _: u64) {
        let others = own.state.waiting.borrow().len().saturating_sub(1);
        drop(hand_up(own, cx, this, others));
    }

    fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
        cx.cancel(own.state.timer.take());
        let left = own.state.waiting.take().into_values();
        left.for_each(|message| this.discard(cx, message, &reason::CLOSED));
    }

    fn session_control(own: &Own, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Tally>() {
            let held = own.state.waiting.borrow().len() as u64;
            *question = Tally { missing: own.state.missing.get(), held };
            return Answer::Answered;
        }
        own.answer(cx, ask)
    }
}

/// Hands up the messages whose turn has come, and the first of those that wait while they are more
/// than `hold`. The layer below hears of the first one that is refused above.
fn hand_up(own: &Own, cx: &Kernel, this: &SessionRef, hold: usize) -> Result<(), Refused> {
    let State { turn, waiting, timer, missing, .. } = &own.state;
    // The borrow ends in here, before the message goes up: the protocol above may call back.
    let next = || {
        let mut waiting = waiting.borrow_mut();
        let number = *waiting.first_key_value()?.0;
        if number != turn.get() && waiting.len() <= hold {
            return None;
        }
        missing.set(missing.get() + number.saturating_sub(turn.get()));
        turn.set(number.wrapping_add(1));
        waiting.remove(&number)
    };
    let mut taken = Ok(());
    while let Some(message) = next() {
        cx.cancel(timer.take());
        taken = taken.and(own.upper.demux(cx, this, message));
    }
    if timer.get().is_none() && !waiting.borrow().is_empty() {
        timer.set(cx.schedule(this, own.all.layer.wait, 0).ok());
        if timer.get().is_none() {
            // No timer is left, so no message may wait.
            taken = taken.and(hand_up(own, cx, this, 0));
        }
    }
    taken
}
