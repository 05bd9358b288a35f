//! A conversation of a program's: the session that protocols above have, wherever it goes on.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Describe;
use xk_core::object::{Burst, Closing, Outgoing, PushError, Refused, SessionSlot};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, Upper, reason};
use xk_kit::net::moving::{
    GIVE_FOR, GiveState, MoveError, WAITING, answer_part, bring, ends_of, release, state_of,
};
use xk_kit::net::stream::{
    StreamAbort, StreamError, StreamEvent, StreamInfo, StreamNotice, StreamShutdown, StreamState,
};
use xk_netio::Ticket;

use super::transit::{Place, Transit, Up};
use super::{AGAIN, GIVE_BACK, MOVE, NOT_MOVED, Parts, end_right_soon, follow, schedule};
use crate::membership::Untaken;
use crate::registry::STATE_OCTETS_MAX;

/// Octets at most that wait in a conversation which is passed on: what a state says besides them
/// has room, too.
const PASSED_OCTETS_MAX: u32 = STATE_OCTETS_MAX as u32 / 3 * 2;

/// Time after which a move that waits for answers is tried again.
const ASKED_AGAIN: Duration = Duration::from_micros(100);

/// A conversation, wherever it is.
pub(super) struct Own {
    parts: Rc<Parts>,
    upper: ProtocolRef,
    /// True once the peer has answered.
    is_connected: Cell<bool>,
    /// The session that it stands on now.
    lower: SessionSlot,
    /// Place of the conversation, and the work that waits for its arrival there.
    transit: Transit,
    /// Mark by which the conversation is found.
    mark: Cell<u32>,
    right: Cell<Option<u32>>,
    /// The protocol above has closed it. Where it began it ends there: what was sent is on its way
    /// to that.
    is_left: Cell<bool>,
    /// True if it goes to the registry, since the program ends.
    is_leaving: Cell<bool>,
    /// True once the protocol above was told of its end: nothing more is told.
    is_told: Cell<bool>,
    /// Octets for another program: the registry's ticket, and behind it the state.
    given: RefCell<Vec<u8>>,
}

impl Own {
    /// One on `lower`, that its peer has begun if it `is_passive`.
    pub(super) fn new(
        parts: &Rc<Parts>,
        upper: &ProtocolRef,
        (lower, is_passive): (&SessionRef, bool),
    ) -> Self {
        Self {
            parts: Rc::clone(parts),
            upper: upper.clone(),
            is_connected: Cell::new(is_passive),
            lower: SessionSlot::new(Some(lower.clone())),
            transit: Transit::default(),
            mark: Cell::new(0),
            right: Cell::new(None),
            is_left: Cell::new(false),
            is_leaving: Cell::new(false),
            is_told: Cell::new(false),
            given: RefCell::default(),
        }
    }

    pub(super) fn set_mark(&self, mark: u32) {
        self.mark.set(mark);
    }

    pub(super) fn upper(&self) -> &ProtocolRef {
        &self.upper
    }

    pub(super) fn is_of(&self, upper: &ProtocolRef) -> bool {
        self.upper == *upper
    }

    pub(super) fn stands_on(&self, lower: &SessionRef) -> bool {
        self.lower.has(lower)
    }

    /// Another program has passed it on.
    pub(super) fn is_passed_on(&self) {
        self.is_connected.set(true);
        self.transit.leave_no_room();
    }

    /// Has a shepherd that may wait move it here.
    pub(super) fn move_soon(&self, cx: &Kernel, this: &ProtocolRef) {
        schedule(cx, this, (self.mark.get(), MOVE), Duration::ZERO);
    }

    /// Something has happened to the conversation below; true if the protocol above hears of it
    /// later, behind what has come before.
    pub(super) fn heard(&self, cx: &Kernel, this: &ProtocolRef, event: StreamEvent) -> bool {
        match event {
            StreamEvent::Connected => {
                self.is_connected.set(true);
                self.move_soon(cx, this);
            }
            StreamEvent::Failed(_) | StreamEvent::Closed => self.is_told.set(true),
            StreamEvent::Writable | StreamEvent::EndOfStream => {}
        }
        let is_late = self.transit.is_late();
        if is_late {
            self.transit.keep_event(event);
        }
        is_late
    }

    /// The protocol above has heard of this.
    pub(super) fn is_over(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        session: &SessionRef,
        event: StreamEvent,
    ) {
        if event == StreamEvent::Closed && session.head().opens() == 0 {
            self.let_rest(cx, this);
        }
    }

    /// One that has ended and only waits for late segments does so at the registry.
    fn let_rest(&self, cx: &Kernel, this: &ProtocolRef) {
        let lower = self.lower.get().filter(|_| self.transit.place() == Place::Own);
        let info = lower.and_then(|lower| lower.ask(cx, StreamInfo::default()));
        if info.is_some_and(|info| info.state == StreamState::TimeWait) {
            schedule(cx, this, (self.mark.get(), GIVE_BACK), Duration::ZERO);
        }
    }

    /// Has the registry end it, if the protocol above is done with it: true if it is not there yet.
    pub(super) fn leave(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) -> bool {
        let place = self.transit.place();
        let lower = self.lower.get().filter(|_| matches!(place, Place::Own | Place::Moving));
        let Some(lower) = lower.filter(|_| session.head().opens() == 0) else {
            return false;
        };
        let is_ending = self.is_left.get()
            || self.transit.is_closed()
            || lower.ask(cx, StreamInfo::default()).is_some_and(|info| info.state.has_ended());
        if is_ending && !self.is_leaving.replace(true) {
            schedule(cx, this, (self.mark.get(), GIVE_BACK), Duration::ZERO);
        }
        is_ending
    }

    /// Moves the conversation here; one that is being connected, as soon as its peer has answered.
    pub(super) fn move_here(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) {
        let far = self.lower.live();
        let (Some(far), Some((own, _))) = (far, self.parts.own.get()) else {
            return;
        };
        let is_over = session.head().is_closed() || self.is_left.get();
        if self.transit.place() != Place::Far || is_over {
            return;
        }
        if self.transit.is_asked() {
            // Their answers would be lost with the session there.
            return schedule(cx, this, (self.mark.get(), MOVE), ASKED_AGAIN);
        }
        self.transit.set_place(Place::Moving);
        let waits = !self.is_connected.get();
        let taken = ends_of(cx, &far).ok_or(Untaken::NotGranted).and_then(|ends| {
            let taken = self.parts.member.take_over(cx, (&far, own), &ends, waits)?;
            Ok((ends, taken))
        });
        let (ends, (right, state)) = match taken {
            Ok(taken) => taken,
            Err(why) => {
                let is_later = matches!(why, Untaken::Later);
                if is_later && self.is_connected.get() {
                    // That was told meanwhile.
                    self.move_soon(cx, this);
                } else if !is_later && !far.head().is_closed() {
                    this.head().drops().count(&NOT_MOVED);
                }
                return self.arrive(cx, session, Place::Far);
            }
        };
        let moved = match state {
            Ok(state) if !bring(cx, own, &ends, &state) => Err(MoveError::NotTaken),
            Ok(_) => own.open(cx, Upper::new(this), ends).map_err(MoveError::Open),
            Err(why) => Err(why),
        };
        match moved {
            Ok(here) => {
                follow(self.mark.get(), &here);
                self.right.set(Some(right));
                drop(self.lower.replace(Some(here.clone())));
                far.close(cx);
                let is_unheld = session.head().is_passive() && session.head().opens() == 0;
                if is_unheld && !self.transit.is_closed() {
                    here.ease(cx);
                }
                self.arrive(cx, session, Place::Own);
                if session.head().opens() == 0 {
                    // It may have ended on its way.
                    self.let_rest(cx, this);
                }
            }
            Err(why) => {
                this.head().drops().count(&NOT_MOVED);
                self.parts.member.end_right(cx, right, None);
                match why {
                    MoveError::Open(_) => self.fail(cx, session),
                    // It goes on by itself then.
                    MoveError::NotTaken if !far.head().is_closed() => {
                        schedule(cx, this, (self.mark.get(), AGAIN), GIVE_FOR);
                    }
                    _ => self.arrive(cx, session, Place::Far),
                }
            }
        }
    }

    /// The conversation is at a place again: what was asked meanwhile is done, and what came goes
    /// up.
    pub(super) fn arrive(&self, cx: &Kernel, session: &SessionRef, place: Place) {
        let transit = &self.transit;
        if !transit.is_moving() {
            return;
        }
        let Some(lower) = self.lower.get() else {
            return transit.set_place(place);
        };
        // Until all is sent, what comes from above goes behind it.
        let sent = transit.send(cx, &lower);
        transit.set_place(place);
        if sent.is_err() {
            // A gap is worse than an end.
            let _ = lower.ask(cx, StreamAbort);
        }
        if sent.is_err() || lower.head().is_closed() {
            return self.fail(cx, session);
        }
        if transit.put(cx, &lower) {
            self.is_left.set(true);
        } else if transit.take_wants_room() {
            self.notify(cx, session, StreamEvent::Writable);
        }
        self.hand_up(cx, session);
    }

    /// Hands up what came on the way, in order.
    fn hand_up(&self, cx: &Kernel, session: &SessionRef) {
        self.transit.hand_up(|up| match up {
            Up::Octets(message) => {
                if let Err(refused) = self.upper.demux(cx, session, message) {
                    self.refused(cx, session, refused);
                }
            }
            Up::Told(event) => {
                let is_understood = self.notify(cx, session, event);
                if event == StreamEvent::EndOfStream
                    && !is_understood
                    && let Some(lower) = self.lower.get()
                {
                    // A protocol that knows nothing of streams will not end this one.
                    let _ = lower.ask(cx, StreamShutdown);
                }
                if let Some(this) = session.protocol(cx) {
                    self.is_over(cx, &this, session, event);
                }
            }
            Up::Gone => self.end(cx, session),
        });
    }

    /// Tells the protocol above; false if it does not understand.
    fn notify(&self, cx: &Kernel, session: &SessionRef, event: StreamEvent) -> bool {
        self.upper.ask(cx, StreamNotice { session: session.clone(), event }).is_some()
    }

    /// Fails a conversation that was lost on its way or with the registry, unless it ended before.
    /// Messages that have come go up first.
    fn fail(&self, cx: &Kernel, session: &SessionRef) {
        self.transit.set_place(Place::Over);
        if !self.is_told.replace(true) {
            self.transit.keep_event(StreamEvent::Failed(StreamError::Reset));
        }
        self.transit.keep_end();
        self.hand_up(cx, session);
    }

    fn end(&self, cx: &Kernel, session: &SessionRef) {
        self.transit.set_place(Place::Over);
        self.discard_late(cx, session);
        self.end_right(cx, session);
        drop(self.lower.take());
        self.parts.sessions.leave(self.mark.get());
        session.retire(cx);
    }

    fn discard_late(&self, cx: &Kernel, session: &SessionRef) {
        self.transit.take_messages().for_each(|left| session.discard(cx, left, &reason::CLOSED));
    }

    /// However it has ended, its right does.
    fn end_right(&self, cx: &Kernel, session: &SessionRef) {
        if let Some(right) = self.right.take()
            && let Some(this) = session.protocol(cx)
        {
            end_right_soon(cx, &this, right);
        }
    }

    /// Acts on the end of the session below.
    pub(super) fn lower_is_gone(&self, cx: &Kernel, session: &SessionRef) {
        match self.transit.place() {
            // The shepherd that moves it sees to it.
            Place::Moving => {}
            Place::Far if session.head().opens() > 0 && self.parts.member.is_lost() => {
                self.fail(cx, session);
            }
            _ if self.transit.is_late() => self.transit.keep_end(),
            _ => self.end(cx, session),
        }
    }

    /// A part of what another program goes on with. The registry knows from the first on that it
    /// goes there, and resets the peer if it does not arrive. `None` if it is not this program's.
    fn pass_on(&self, cx: &Kernel, question: &mut GiveState) -> Option<()> {
        // What waits here is of no state.
        if self.transit.place() != Place::Own || self.transit.is_late() {
            return None;
        }
        let own = self.lower.get()?;
        if question.at == 0 {
            // Nothing is given away that another program could not take.
            let waiting = own.ask(cx, GiveState { at: WAITING, ..GiveState::default() })?;
            if waiting.total > PASSED_OCTETS_MAX {
                return None;
            }
            let ticket = self.parts.member.pass_on(cx, self.right.get()?)?;
            self.right.set(None);
            let mut given = ticket.to_vec();
            given.extend(state_of(cx, &own)?);
            drop(self.given.replace(given));
        }
        let octets = self.given.borrow().len();
        if question.at as usize == octets {
            question.total = question.at;
            drop(self.given.take());
            return release(cx, &own, octets - size_of::<Ticket>()).then_some(());
        }
        answer_part(cx.pool(), &self.given.borrow(), question).ok()
    }

    /// Leaves the rest to the registry.
    pub(super) fn give_back(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.transit.is_late() {
            return schedule(cx, this, (self.mark.get(), GIVE_BACK), ASKED_AGAIN);
        }
        let here = self.lower.get().filter(|_| self.transit.place() == Place::Own);
        if let (Some(here), Some(right)) = (here, self.right.take())
            && !self.parts.member.give_back(cx, right, &here)
        {
            self.right.set(Some(right));
        }
    }
}

impl Session for Own {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        match self.lower.get() {
            Some(lower) if !self.transit.is_moving() => {
                self.transit.note_sent(message.len());
                lower.push(cx, message)
            }
            _ => self.push_later(cx, this, message),
        }
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        match self.lower.get() {
            Some(lower) if !self.transit.is_moving() => {
                self.transit.note_sent(burst.iter().map(Message::len).sum());
                lower.push_burst(cx, burst)
            }
            _ => {
                let mut result = Ok(());
                for message in burst.drain(..) {
                    result = result.and(self.push_later(cx, this, message));
                }
                result
            }
        }
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        if self.transit.is_late() {
            let kept = self.transit.keep(message);
            return kept.map_err(|message| this.refuse(cx, message, &reason::QUEUE_FULL));
        }
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        if self.transit.is_late() {
            while let Some(message) = burst.next() {
                self.pop(cx, this, message)?;
            }
            return Ok(());
        }
        self.upper.demux_burst(cx, this, burst)
    }

    fn refused(&self, cx: &Kernel, _: &SessionRef, refused: Refused) {
        if let Some(lower) = self.lower.get() {
            lower.refused(cx, refused);
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("{:?} on {:?}", self.transit.place(), self.lower.get());
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<GiveState>() {
            if self.pass_on(cx, question).is_none() {
                *question = GiveState::default();
            }
            return Answer::Answered;
        }
        if self.transit.is_moving() && self.transit.ask(ask) {
            return Answer::Answered;
        }
        let Some(lower) = self.lower.get() else { return Answer::Unknown };
        self.transit.asking(|| lower.control(cx, ask))
    }

    fn held(&self, _: &SessionRef) {
        if let Some(lower) = self.lower.get() {
            lower.hold();
        }
    }

    fn eased(&self, cx: &Kernel, _: &SessionRef) {
        if let Some(lower) = self.lower.get() {
            lower.ease(cx);
        }
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let Some(lower) = self.lower.get() else {
            return Closing::Done;
        };
        if this.head().is_aborted() {
            self.parts.sessions.leave(self.mark.get());
            drop(self.lower.take());
            lower.abort(cx);
            self.discard_late(cx, this);
            self.end_right(cx, this);
            return Closing::Done;
        }
        if self.transit.is_moving() {
            self.transit.close();
            return Closing::Lingering;
        }
        self.is_left.set(true);
        lower.close(cx);
        if lower.head().is_closed() {
            return Closing::Done;
        }
        if let Some(protocol) = this.protocol(cx) {
            self.let_rest(cx, &protocol);
        }
        Closing::Lingering
    }
}

impl Own {
    /// Keeps a message that is sent while the conversation moves, up to the bound.
    #[cold]
    fn push_later(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        if !self.lower.is_some() {
            this.discard(cx, message, &reason::CLOSED);
            return Err(PushError::Closed);
        }
        self.transit.push(message).map_err(|(message, why)| {
            let is_closed = why == PushError::Closed;
            this.discard(cx, message, if is_closed { &reason::CLOSED } else { &reason::TOO_BIG });
            why
        })
    }
}
