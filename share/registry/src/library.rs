//! The library: conversations that the registry's protocol begins and the program's own goes on
//! with, as one protocol object.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{
    Burst, Closing, Enable, OpenError, Outgoing, PushError, Refused, SessionSlot,
};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason, reason::Class,
};
use xk_kit::control::{IsOutstanding, MyHost, MyPort, NetworkError};
use xk_kit::net::moving::{
    GIVE_FOR, GiveState, MoveError, TakeState, answer_part, bring, ends_of, release, state_of,
};
use xk_kit::net::ports::{ANY_HOST, offer, pop_offer};
use xk_kit::net::receivers::Marks;
use xk_kit::net::stream::{
    StreamAbort, StreamError, StreamEvent, StreamInfo, StreamNotice, StreamRoom,
};
use xk_netio::Ticket;

use crate::datagrams;
use crate::membership::{Membership, Untaken};
use crate::registry::STATE_OCTETS_MAX;

mod arrived;
mod later;

use arrived::Arrived;
use later::Later;

/// A conversation goes on through the registry, which has granted no right for it.
pub static NOT_MOVED: Reason = Reason::new("not moved", Class::Exhausted);

/// What a timer of the layer is for; the mark of the session lies above.
const MOVE: u64 = 0;
const GIVE_BACK: u64 = 1;
const END_RIGHT: u64 = 2;
const AGAIN: u64 = 3;
const KIND_BITS: u32 = 8;

/// When a move is tried again that waits for answers.
const ASKED_AGAIN: Duration = Duration::from_micros(100);

/// Where a conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the registry.
    Far,
    /// On its way: what is sent and asked waits.
    Moving,
    /// In the program.
    Own,
    /// Given back, or ended.
    Over,
}

/// What the protocol and its sessions share.
pub(crate) struct Parts {
    /// What stands for the registry's protocol.
    pub(crate) far: ProtocolRef,
    /// The program's own, and what that stands on.
    own: OnceCell<(ProtocolRef, ProtocolRef)>,
    pub(crate) member: Rc<Membership>,
    /// What was enabled: the number below, the port and host, and for which protocol.
    offers: RefCell<Vec<(Enable, u64, ProtocolRef)>>,
    sessions: Marks,
    /// What another program has passed on, with its ticket in front, and between which ends.
    brought: RefCell<(Participants, Vec<u8>)>,
    /// What stands beside this, and has its sessions at the registry through it: that knows a
    /// program by one receiver.
    pub(crate) beside: RefCell<Option<Rc<datagrams::Parts>>>,
}

/// The protocol object.
pub struct Library(pub(crate) Rc<Parts>);

impl Parts {
    pub(crate) fn new(far: ProtocolRef, member: &Rc<Membership>) -> Rc<Self> {
        Rc::new(Self {
            far,
            own: OnceCell::new(),
            member: Rc::clone(member),
            offers: RefCell::default(),
            sessions: Marks::default(),
            brought: RefCell::default(),
            beside: RefCell::default(),
        })
    }

    /// Conversations go on at this protocol from now on.
    pub(crate) fn stand_on(&self, own: (ProtocolRef, ProtocolRef)) {
        let _ = self.own.set(own);
    }

    /// Takes a part of what another program has passed on; false if it is not the next, or too
    /// long.
    fn take_state(&self, question: &mut TakeState) -> bool {
        let (ends, state) = &mut *self.brought.borrow_mut();
        let Some(part) = question.part.take() else {
            return false;
        };
        if question.at == 0 {
            ends.clone_from(&question.ends);
            state.clear();
        }
        let is_next = *ends == question.ends && state.len() == question.at as usize;
        let fits = state.len() + part.len() <= STATE_OCTETS_MAX;
        if is_next && fits {
            state.extend(part.octets());
        }
        is_next && fits
    }

    /// What was passed on between these ends, if that is what was brought last.
    fn take_brought(&self, ends: &Participants) -> Option<Vec<u8>> {
        let is_it = self.brought.borrow().0 == *ends && !self.brought.borrow().1.is_empty();
        is_it.then(|| self.brought.take().1)
    }

    /// The session that stands on `lower`.
    #[inline]
    fn find(&self, lower: &SessionRef) -> Option<SessionRef> {
        let session = self.sessions.get(lower.head().tag())?;
        let is_it = session.body::<Own>()?.lower.get().as_ref() == Some(lower);
        is_it.then_some(session)
    }

    /// What takes peers at this port and host.
    fn receiver(&self, port: u16, host: Option<xk_core::HostAddr>) -> Option<ProtocolRef> {
        let offers = self.offers.borrow();
        let at = |host| {
            let number = offer(port, host);
            offers.iter().find(|(_, of, _)| *of == number).map(|(.., upper)| upper.clone())
        };
        host.and_then(at).or_else(|| at(ANY_HOST))
    }

    /// A session above `lower`; `None` if there is no room.
    fn wrap(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        (lower, is_passive): (&SessionRef, bool),
    ) -> Option<SessionRef> {
        let own = Own {
            parts: Rc::clone(self),
            upper: upper.clone(),
            is_connected: Cell::new(is_passive),
            lower: SessionSlot::new(Some(lower.clone())),
            place: Cell::new(Place::Far),
            mark: Cell::new(0),
            right: Cell::new(None),
            is_left: Cell::new(false),
            has_failed: Cell::new(false),
            given: RefCell::default(),
            later: Later::default(),
            asked: Cell::new(0),
            arrived: Arrived::default(),
        };
        let session = match is_passive {
            true => cx.new_passive_session(this, upper, own),
            false => cx.new_session(this, upper, own),
        };
        let mark = stand(cx, &self.sessions, &session, lower)?;
        session.body::<Own>()?.mark.set(mark);
        Some(session)
    }
}

/// A new session stands on `lower`: the mark by which it is found from there; `None` if there is no
/// room, and it is over.
pub(crate) fn stand(
    cx: &Kernel,
    sessions: &Marks,
    session: &SessionRef,
    lower: &SessionRef,
) -> Option<u32> {
    let mark = sessions.enter(session);
    match mark {
        Some(mark) => follow(mark, lower),
        None => session.retire(cx),
    }
    mark
}

/// The session with this mark is found from `lower`, too, and hears of its end.
pub(crate) fn follow(mark: u32, lower: &SessionRef) {
    lower.head().set_tag(mark);
    lower.watch();
}

fn schedule(cx: &Kernel, this: &ProtocolRef, (mark, kind): (u32, u64), delay: Duration) {
    if cx.schedule_protocol(this, delay, u64::from(mark) << KIND_BITS | kind).is_err() {
        this.head().drops().count(&reason::TABLE_FULL);
    }
}

/// Has a shepherd that may wait tell the registry that a right is no more.
pub(crate) fn end_right_soon(cx: &Kernel, this: &ProtocolRef, right: u32) {
    schedule(cx, this, (right, END_RIGHT), Duration::ZERO);
}

impl Protocol for Library {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        self.0.member.enter(cx, this)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let passed = self.0.take_brought(&participants);
        if let Some(passed) = &passed
            && !self.0.member.take_on(cx, passed)
        {
            return Err(OpenError::NotSupported);
        }
        let lower = self.0.far.open(cx, upper.through(this), participants)?;
        if let Some(session) = self.0.find(&lower) {
            let is_own = session.body::<Own>().is_some_and(|own| own.upper == *upper.receiver);
            lower.close(cx);
            if !is_own {
                return Err(OpenError::InUse);
            }
            session.hold();
            return Ok(session);
        }
        let Some(session) = self.0.wrap(cx, this, upper.receiver, (&lower, false)) else {
            lower.close(cx);
            return Err(OpenError::Full);
        };
        // Nothing is asked here: until the opener has the session what is told of it goes nowhere.
        if let Some(own) = session.body::<Own>() {
            if passed.is_some() {
                own.is_connected.set(true);
                own.later.leave_no_room();
            }
            schedule(cx, this, (own.mark.get(), MOVE), Duration::ZERO);
        }
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let (port, host) = pop_offer(&mut participants.clone())?;
        let enable = self.0.far.open_enable(cx, upper.through(this), participants)?;
        self.0.offers.borrow_mut().push((enable, offer(port, host), upper.receiver.clone()));
        Ok(enable)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.offers.borrow_mut().retain(|(number, ..)| *number != enable);
        self.0.far.open_disable(cx, enable);
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        let port = lower.ask(cx, MyPort::default()).map_or(0, |asked| asked.port);
        let host = lower.ask(cx, MyHost::default()).map(|asked| asked.host);
        let upper = self.0.receiver(port, host).ok_or(&reason::NO_PORT)?;
        let wrapped = self.0.wrap(cx, this, &upper, (lower, true));
        let session = wrapped.ok_or(&reason::TABLE_FULL)?;
        session.announce(cx, &upper, participants).inspect_err(|_| session.abort(cx))?;
        if let Some(own) = session.body::<Own>() {
            schedule(cx, this, (own.mark.get(), MOVE), Duration::ZERO);
        }
        Ok(())
    }

    fn gone(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        let Some(session) = self.0.find(lower) else {
            let beside = self.0.beside.borrow().clone();
            return beside.into_iter().for_each(|beside| beside.lower_is_gone(cx, lower));
        };
        if let Some(own) = session.body::<Own>() {
            own.lower_is_gone(cx, &session);
        }
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.0.find(lower) {
            Some(session) => session.pop(cx, message),
            None => match self.0.beside.borrow().clone() {
                Some(beside) => beside.arrive(cx, this, lower, message),
                None => Err(this.refuse(message, &reason::CLOSED)),
            },
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if ask.is_upward() && !ask.goes_up_by(this.id()) {
            return Answer::Unknown;
        }
        if let Some(question) = ask.get::<StreamNotice>() {
            let Some(session) = self.0.find(&question.session) else {
                return Answer::Unknown;
            };
            let Some(own) = session.body::<Own>() else {
                return Answer::Unknown;
            };
            let event = question.event;
            let below = core::mem::replace(&mut question.session, session.clone());
            let answer = own.upper.control(cx, ask);
            // The layer below knows its own session alone, and so does the cut on the way back.
            if let Some(question) = ask.get::<StreamNotice>() {
                question.session = below;
            }
            own.happened(cx, this, &session, event);
            return answer;
        }
        if let Some(question) = ask.get::<StreamRoom>() {
            let upper = self.0.receiver(question.port, question.host);
            return upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask));
        }
        let asks = |session: &mut SessionRef| {
            let own = self.0.find(session)?;
            let upper = own.body::<Own>()?.upper.clone();
            *session = own;
            Some(upper)
        };
        if let Some(question) = ask.get::<NetworkError>() {
            let below = question.session.clone();
            let beside = self.0.beside.borrow().clone();
            let beside = beside.and_then(|beside| beside.receiver(question));
            let upper = beside.or_else(|| question.session.as_mut().and_then(asks));
            let answer = upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask));
            if let Some(question) = ask.get::<NetworkError>() {
                question.session = below;
            }
            return answer;
        }
        if let Some(question) = ask.get::<IsOutstanding>() {
            let below = question.session.clone();
            let upper = asks(&mut question.session);
            let answer = upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask));
            if let Some(question) = ask.get::<IsOutstanding>() {
                question.session = below;
            }
            return answer;
        }
        if let Some(question) = ask.get::<TakeState>() {
            question.taken = self.0.take_state(question);
            return Answer::Answered;
        }
        if let Some(list) = ask.get::<ListSessions>() {
            self.0.sessions.list(list);
            return Answer::Answered;
        }
        if ask.is_upward() {
            let own = self.0.own.get();
            let heard = own.and_then(|own| self.0.member.hear(cx, own, ask));
            return heard.map_or(Answer::Unknown, |()| Answer::Answered);
        }
        self.0.far.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.far)
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let (mark, kind) = ((token >> KIND_BITS) as u32, token & ((1 << KIND_BITS) - 1));
        if kind == END_RIGHT {
            self.0.member.end_right(cx, mark, None);
            return;
        }
        let Some(session) = self.0.sessions.get(mark) else {
            return;
        };
        match (session.body::<Own>(), kind) {
            (Some(own), MOVE) => own.move_here(cx, this, &session),
            (Some(own), GIVE_BACK) => own.give_back(cx),
            (Some(own), AGAIN) => own.arrive(cx, &session, Place::Far),
            _ => {}
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.sessions.clear();
        drop((self.0.offers.take(), self.0.beside.take()));
        self.0.member.stop();
    }
}

/// A conversation, wherever it is.
pub(crate) struct Own {
    parts: Rc<Parts>,
    upper: ProtocolRef,
    /// Its peer has answered.
    is_connected: Cell<bool>,
    /// The session that it stands on now.
    lower: SessionSlot,
    /// Questions that the session below has not answered yet: it does not move meanwhile.
    asked: Cell<u32>,
    /// What has arrived on its way goes up at its end.
    arrived: Arrived,
    place: Cell<Place>,
    /// By what it is found.
    mark: Cell<u32>,
    right: Cell<Option<u32>>,
    /// It was closed where it began, and ends there: what was sent is on its way to that.
    is_left: Cell<bool>,
    /// The protocol above has been told that it is lost.
    has_failed: Cell<bool>,
    /// What goes to another program: the registry's ticket, and behind it the state.
    given: RefCell<Vec<u8>>,
    later: Later,
}

impl Own {
    /// Something has happened to the conversation, and the protocol above knows.
    fn happened(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef, event: StreamEvent) {
        match event {
            StreamEvent::Connected => {
                self.is_connected.set(true);
                schedule(cx, this, (self.mark.get(), MOVE), Duration::ZERO);
            }
            StreamEvent::Closed if session.head().opens() == 0 => self.let_rest(cx, this),
            StreamEvent::Failed(_) => self.has_failed.set(true),
            _ => {}
        }
    }

    /// One that has ended and only waits for late segments does so at the registry.
    fn let_rest(&self, cx: &Kernel, this: &ProtocolRef) {
        let lower = self.lower.get().filter(|_| self.place.get() == Place::Own);
        let info = lower.and_then(|lower| lower.ask(cx, StreamInfo::default()));
        if info.is_some_and(|info| &*info.state == "TIME-WAIT") {
            schedule(cx, this, (self.mark.get(), GIVE_BACK), Duration::ZERO);
        }
    }

    /// Moves the conversation here; one that is being connected, as soon as its peer has answered.
    fn move_here(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) {
        let far = self.lower.live();
        let (Some(far), Some((own, _))) = (far, self.parts.own.get()) else {
            return;
        };
        let is_over = session.head().is_closed() || self.is_left.get();
        if self.place.get() != Place::Far || is_over {
            return;
        }
        if self.asked.get() > 0 {
            // Their answers would be lost with the session there.
            return schedule(cx, this, (self.mark.get(), MOVE), ASKED_AGAIN);
        }
        self.place.set(Place::Moving);
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
                    schedule(cx, this, (self.mark.get(), MOVE), Duration::ZERO);
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
                if is_unheld && !self.later.is_closed.get() {
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

    /// The conversation is at a place again: what was asked meanwhile is done.
    fn arrive(&self, cx: &Kernel, session: &SessionRef, place: Place) {
        if self.place.get() != Place::Moving {
            return;
        }
        let Some(lower) = self.lower.get() else {
            return self.place.set(place);
        };
        // Until all is sent, what comes from above goes behind it.
        let sent = self.later.send(cx, &lower);
        self.place.set(place);
        if sent.is_err() {
            // A gap is worse than an end.
            let _ = lower.ask(cx, StreamAbort);
        }
        if sent.is_err() || lower.head().is_closed() {
            return self.fail(cx, session);
        }
        self.later.put(cx, &lower);
        if self.later.is_closed.take() {
            lower.close(cx);
        } else if self.later.wants_room.take() {
            self.notify(cx, session, StreamEvent::Writable);
        }
        let is_there = || self.place.get() != Place::Moving;
        self.arrived.hand_up(is_there, |message| {
            if let Err(refused) = self.upper.demux(cx, session, message) {
                self.refused(cx, session, refused);
            }
        });
    }

    /// Whether messages that arrive now wait.
    fn is_late(&self) -> bool {
        self.place.get() == Place::Moving || self.arrived.comes_first()
    }

    fn notify(&self, cx: &Kernel, session: &SessionRef, event: StreamEvent) {
        let _ = self.upper.ask(cx, StreamNotice { session: session.clone(), event });
    }

    /// It was lost on its way, or with the registry.
    fn fail(&self, cx: &Kernel, session: &SessionRef) {
        self.place.set(Place::Over);
        if !self.has_failed.replace(true) {
            self.notify(cx, session, StreamEvent::Failed(StreamError::Reset));
        }
        self.end(cx, session);
    }

    fn end(&self, cx: &Kernel, session: &SessionRef) {
        self.place.set(Place::Over);
        for message in self.later.take_pushed() {
            session.discard(cx, message, &reason::CLOSED);
        }
        for message in self.arrived.take() {
            session.discard(cx, message, &reason::CLOSED);
        }
        self.end_right(cx, session);
        drop(self.lower.take());
        self.parts.sessions.leave(self.mark.get());
        session.retire(cx);
    }

    /// However it has ended, its right does.
    fn end_right(&self, cx: &Kernel, session: &SessionRef) {
        if let Some(right) = self.right.take()
            && let Some(this) = session.protocol(cx)
        {
            end_right_soon(cx, &this, right);
        }
    }

    /// What it stood on has ended.
    fn lower_is_gone(&self, cx: &Kernel, session: &SessionRef) {
        match self.place.get() {
            // The shepherd that moves it sees to it.
            Place::Moving => {}
            Place::Far if session.head().opens() > 0 && self.parts.member.is_lost() => {
                self.fail(cx, session);
            }
            _ => self.end(cx, session),
        }
    }

    /// A part of what another program goes on with. The registry knows from the first on that it
    /// goes there, and resets the peer if it does not arrive. `None` if it is not this program's.
    fn pass_on(&self, cx: &Kernel, question: &mut GiveState) -> Option<()> {
        if self.place.get() != Place::Own {
            return None;
        }
        let own = self.lower.get()?;
        if question.at == 0 {
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
    fn give_back(&self, cx: &Kernel) {
        let here = self.lower.get().filter(|_| self.place.get() == Place::Own);
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
            Some(lower) if self.place.get() != Place::Moving => {
                self.note_sent(message.len());
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
            Some(lower) if self.place.get() != Place::Moving => {
                self.note_sent(burst.iter().map(Message::len).sum());
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
        if self.is_late() {
            let kept = self.arrived.keep(message);
            return kept.map_err(|message| this.refuse(cx, message, &reason::QUEUE_FULL));
        }
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        if self.is_late() {
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
            question.text = alloc::format!("{:?} on {:?}", self.place.get(), self.lower.get());
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<GiveState>() {
            if self.pass_on(cx, question).is_none() {
                *question = GiveState::default();
            }
            return Answer::Answered;
        }
        if self.place.get() == Place::Moving && self.later.ask(ask) {
            return Answer::Answered;
        }
        let Some(lower) = self.lower.get() else { return Answer::Unknown };
        self.asked.set(self.asked.get() + 1);
        let answer = lower.control(cx, ask);
        self.asked.set(self.asked.get() - 1);
        answer
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
            self.end_right(cx, this);
            return Closing::Done;
        }
        if self.place.get() == Place::Moving {
            self.later.is_closed.set(true);
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
    /// What is sent while the conversation moves waits for it, up to the bound.
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
        self.later.push(message).map_err(|message| {
            this.discard(cx, message, &reason::TOO_BIG);
            PushError::TooBig
        })
    }

    /// Notes what is sent where the conversation began.
    fn note_sent(&self, octets: usize) {
        if self.place.get() == Place::Far {
            self.later.note_sent(octets);
        }
    }
}

#[cfg(test)]
mod tests;
