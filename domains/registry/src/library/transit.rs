//! The place of a conversation, and the work that comes while it moves from one to another: at the
//! end of the move either side gets all of that work, in order.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::mem::discriminant;
use xk_core::object::PushError;
use xk_core::{Ask, Kernel, Message, SessionRef};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamEvent, StreamSet, StreamShutdown, StreamSpace,
};

/// Settings that wait at most.
const SETTINGS_MAX: usize = 16;
/// Octets that are sent meanwhile and wait at most; one message more than that may. So many times
/// as much sent before, and nothing waits: the buffer that it comes to has room.
const OCTETS_MAX: usize = 16 << 10;
const BEFORE_FACTOR: usize = 16;
/// Largest number of messages that wait to go up: more than a ring has slots.
const MESSAGES_MAX: usize = 4096;

/// The place of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the registry.
    #[default]
    Far,
    /// On its way: what happens to it waits.
    Moving,
    /// In the program.
    Own,
    /// Given back, or ended.
    Over,
}

/// An item on its way up.
pub(super) enum Up {
    Octets(Message),
    Told(StreamEvent),
    /// The session below has ended.
    Gone,
}

/// An item on its way down, in order.
enum Down {
    Octets(Message),
    Set(StreamSet),
}

/// Ends of the way down, which take effect behind all items.
#[derive(Clone, Copy, Default)]
struct Ends {
    is_shut: bool,
    is_aborted: bool,
    is_closed: bool,
}

/// A conversation's place, and what waits for it there.
#[derive(Default)]
pub(super) struct Transit {
    place: Cell<Place>,
    /// Questions that the session below has not answered yet: it does not move meanwhile.
    asked: Cell<u32>,
    /// Octets that were sent where the conversation began.
    sent_before: Cell<usize>,
    down: RefCell<VecDeque<Down>>,
    down_octets: Cell<usize>,
    consumed: Cell<u32>,
    ends: Cell<Ends>,
    /// The protocol above waits for room.
    wants_room: Cell<bool>,
    up: RefCell<VecDeque<Up>>,
    is_handing_up: Cell<bool>,
}

impl Transit {
    pub(super) fn place(&self) -> Place {
        self.place.get()
    }

    pub(super) fn set_place(&self, place: Place) {
        self.place.set(place);
    }

    pub(super) fn is_moving(&self) -> bool {
        self.place.get() == Place::Moving
    }

    /// Whether questions are at the session below, whose answers would be lost with it.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.get() > 0
    }

    /// Puts a question to the session below.
    pub(super) fn asking<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.asked.set(self.asked.get() + 1);
        let answer = ask();
        self.asked.set(self.asked.get() - 1);
        answer
    }

    /// Notes octets that are sent where the conversation began.
    pub(super) fn note_sent(&self, octets: usize) {
        if self.place.get() == Place::Far {
            self.sent_before.set(self.sent_before.get().saturating_add(octets));
        }
    }

    /// Nothing may wait: the conversation brings octets that wait to be sent, perhaps as many as
    /// its buffer holds.
    pub(super) fn leave_no_room(&self) {
        self.sent_before.set(usize::MAX);
    }

    // ---- down ----

    /// Octets that may wait.
    fn room(&self) -> usize {
        let has_room = self.sent_before.get() < BEFORE_FACTOR * OCTETS_MAX;
        if has_room { OCTETS_MAX } else { 0 }
    }

    /// Keeps a message, or gives it back where there is no room, or none behind the end.
    pub(super) fn push(&self, message: Message) -> Result<(), (Message, PushError)> {
        let Ends { is_shut, is_aborted, is_closed } = self.ends.get();
        if is_shut || is_aborted || is_closed {
            return Err((message, PushError::Closed));
        }
        if self.down_octets.get() >= self.room() {
            self.wants_room.set(true);
            return Err((message, PushError::TooBig));
        }
        self.down_octets.set(self.down_octets.get() + message.len().max(1));
        self.down.borrow_mut().push_back(Down::Octets(message));
        Ok(())
    }

    /// Keeps what is asked; false if the question is none that can wait.
    pub(super) fn ask(&self, ask: &mut Ask<'_>) -> bool {
        if let Some(question) = ask.get::<StreamSpace>() {
            question.octets = self.room().saturating_sub(self.down_octets.get()) as u32;
            self.wants_room.set(true);
        } else if let Some(question) = ask.get::<StreamConsumed>() {
            self.consumed.set(self.consumed.get().saturating_add(question.octets));
        } else if ask.get::<StreamShutdown>().is_some() {
            self.ends.set(Ends { is_shut: true, ..self.ends.get() });
        } else if ask.get::<StreamAbort>().is_some() {
            self.ends.set(Ends { is_aborted: true, ..self.ends.get() });
        } else if let Some(question) = ask.get::<StreamSet>() {
            let mut down = self.down.borrow_mut();
            let set = down.iter().filter(|what| matches!(what, Down::Set(_))).count();
            question.taken = set < SETTINGS_MAX;
            if question.taken {
                down.push_back(Down::Set(*question));
            }
        } else {
            return false;
        }
        true
    }

    /// The protocol above releases it.
    pub(super) fn close(&self) {
        self.ends.set(Ends { is_closed: true, ..self.ends.get() });
    }

    /// Whether the protocol above has released it on its way.
    pub(super) fn is_closed(&self) -> bool {
        self.ends.get().is_closed
    }

    /// Sends to `lower` what was sent meanwhile, what is sent while this blocks included.
    ///
    /// # Errors
    /// That of the first message that it does not take; the others are still there.
    pub(super) fn send(&self, cx: &Kernel, lower: &SessionRef) -> Result<(), PushError> {
        loop {
            let next = self.down.borrow_mut().pop_front();
            match next {
                Some(Down::Octets(message)) => lower.push(cx, message)?,
                Some(Down::Set(set)) => drop(lower.ask(cx, set)),
                None => {
                    self.down_octets.set(0);
                    return Ok(());
                }
            }
        }
    }

    /// Asks `lower` what was asked meanwhile, once all is sent; true if it has been closed by that.
    pub(super) fn put(&self, cx: &Kernel, lower: &SessionRef) -> bool {
        let octets = self.consumed.take();
        if octets > 0 {
            let _ = lower.ask(cx, StreamConsumed { octets });
        }
        let Ends { is_shut, is_aborted, is_closed } = self.ends.take();
        if is_shut {
            let _ = lower.ask(cx, StreamShutdown);
        }
        if is_aborted {
            let _ = lower.ask(cx, StreamAbort);
        }
        if is_closed {
            lower.close(cx);
        }
        is_closed
    }

    /// Whether the protocol above waits for room that there is now.
    pub(super) fn take_wants_room(&self) -> bool {
        self.wants_room.take()
    }

    // ---- up ----

    /// Whether what comes up now goes behind what waits.
    pub(super) fn is_late(&self) -> bool {
        self.is_moving() || self.is_handing_up.get() || !self.up.borrow().is_empty()
    }

    /// Keeps a message that comes up, or gives it back where there is no room.
    pub(super) fn keep(&self, message: Message) -> Result<(), Message> {
        let mut up = self.up.borrow_mut();
        if up.len() >= MESSAGES_MAX {
            return Err(message);
        }
        up.push_back(Up::Octets(message));
        Ok(())
    }

    /// Keeps what has happened, behind what came before. Each kind is kept once: there is room for
    /// all of them.
    pub(super) fn keep_event(&self, event: StreamEvent) {
        let mut up = self.up.borrow_mut();
        let is_it = |kept: &Up| matches!(kept, Up::Told(other) if discriminant(other) == discriminant(&event));
        if !up.iter().any(is_it) {
            up.push_back(Up::Told(event));
        }
    }

    /// Notes the end of the session below, behind the messages before it.
    pub(super) fn keep_end(&self) {
        let mut up = self.up.borrow_mut();
        if !matches!(up.back(), Some(Up::Gone)) {
            up.push_back(Up::Gone);
        }
    }

    /// Hands all to `up`, unless it moves again, or another shepherd does.
    pub(super) fn hand_up(&self, mut up: impl FnMut(Up)) {
        if self.is_handing_up.replace(true) {
            return;
        }
        while !self.is_moving() {
            let Some(next) = self.up.borrow_mut().pop_front() else { break };
            up(next);
        }
        self.is_handing_up.set(false);
    }

    /// The messages that reach neither side.
    pub(super) fn take_messages(&self) -> impl Iterator<Item = Message> + use<> {
        let up = self.up.take().into_iter().filter_map(|up| match up {
            Up::Octets(message) => Some(message),
            Up::Told(_) | Up::Gone => None,
        });
        let down = self.down.take().into_iter().filter_map(|down| match down {
            Down::Octets(message) => Some(message),
            Down::Set(_) => None,
        });
        down.chain(up)
    }
}
