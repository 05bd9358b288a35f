//! The layer: what it puts in front of a message, and when it hands one up.

use crate::window::Window;
use crate::wire::{HEADER_OCTETS, Header};
use crate::{STALE, Tally};
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Timer;
use xk_core::object::Refused;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, SessionRef, reason};
use xk_kit::layer::{Bounds, Conversation, Layer, Layered};

/// One instance of the layer: what the graph says of it.
pub struct Seq {
    /// How many numbers ahead a message may be and is kept.
    hold: usize,
    /// How long a message that is missing is waited for.
    wait: Duration,
}

/// What a conversation keeps.
pub struct State {
    /// The sequence number of the next message sent.
    next: Cell<u32>,
    window: RefCell<Window<Message>>,
    /// Runs while a message waits: then the first gap is given up.
    timer: Cell<Option<Timer>>,
}

type Own = Conversation<Seq, HEADER_OCTETS>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (hold, wait) = (build.params.number("hold", 32), Duration::from_millis(20));
    let wait = build.params.duration("wait", wait);
    let bounds = Bounds::sessions(build.params.number("sessions_max", 1024));
    let lower = build.lower(0)?;
    build.add(Layered::new(build.cx.secret(), lower, bounds, Seq { hold, wait }))
}

impl Layer<HEADER_OCTETS> for Seq {
    /// The type number of the protocol above.
    type Key = u16;
    type State = State;

    const OCTETS_MAX: usize = u16::MAX as usize;
    const PASSES_OFFERS: bool = true;
    const ONE_BY_ONE: bool = true;

    fn key_for(number: u32) -> Option<u16> {
        number.try_into().ok()
    }

    fn key_of(header: &[u8; HEADER_OCTETS]) -> u16 {
        Header::parse(header).number
    }

    fn length(header: &[u8; HEADER_OCTETS]) -> Option<usize> {
        Some(Header::parse(header).length.into())
    }

    fn offer_for(number: u16) -> u64 {
        number.into()
    }

    fn begin(&self, cx: &Kernel, _: &SessionRef, _: u16) -> State {
        State {
            next: Cell::new(cx.random().next_u64() as u32),
            window: RefCell::new(Window::new(self.hold as u32)),
            timer: Cell::new(None),
        }
    }

    fn header(&self, own: &Own, message: &Message) -> Option<[u8; HEADER_OCTETS]> {
        if message.len() > own.octets_max {
            return None;
        }
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
        let placed = own.state.window.borrow_mut().place(number, message);
        match placed {
            Ok(()) => hand_up(own, cx, this),
            Err(message) => Err(this.refuse(cx, message, &STALE)),
        }
    }

    fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, _: u64) {
        own.state.timer.set(None);
        own.state.window.borrow_mut().skip();
        // What is refused above is counted there; below, no one waits to hear of it.
        drop(hand_up(own, cx, this));
    }

    fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
        let State { window, timer, .. } = &own.state;
        if let Some(timer) = timer.take() {
            cx.cancel(timer);
        }
        let left = window.replace(Window::new(0)).into_messages();
        left.for_each(|message| this.discard(cx, message, &reason::CLOSED));
    }

    fn describe(&self, own: &Own) -> String {
        let Tally { missing, held, .. } = own.state.window.borrow().tally();
        alloc::format!("seq > {}, {missing} missing, {held} held", own.key)
    }

    fn session_control(own: &Own, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Tally>() {
            *question = own.state.window.borrow().tally();
            return Answer::Answered;
        }
        own.answer(cx, ask)
    }
}

/// Hands up the messages whose turn has come, and waits for what the first of the others lacks.
/// The layer below hears of the first one that is refused above.
fn hand_up(own: &Own, cx: &Kernel, this: &SessionRef) -> Result<(), Refused> {
    let State { window, timer, .. } = &own.state;
    // The borrow ends in here, before the message goes up: what is called there may call back.
    let next = || window.borrow_mut().next();
    let mut taken = Ok(());
    loop {
        while let Some(message) = next() {
            if let Some(timer) = timer.take() {
                cx.cancel(timer);
            }
            taken = taken.and(own.upper.demux(cx, this, message));
        }
        if timer.get().is_some() || window.borrow().tally().held == 0 {
            return taken;
        }
        match cx.schedule(this, own.all.layer.wait, 0) {
            Ok(set) => timer.set(Some(set)),
            // No timer left: what is missing is given up at once.
            Err(_) => drop(window.borrow_mut().skip()),
        }
    }
}
