//! The library: conversations that the registry's protocol begins and the program's own goes on
//! with, as one protocol object.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{OnceCell, RefCell};
use core::time::Duration;
use xk_core::control::ListSessions;
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason, reason::Class,
};
use xk_kit::Marks;
use xk_kit::control::{IsOutstanding, MyHost, MyPort, NetworkError};
use xk_kit::net::moving::TakeState;
use xk_kit::net::ports::{ANY_HOST, offer, pop_offer};
use xk_kit::net::stream::{StreamNotice, StreamRoom};

use crate::datagrams;
use crate::membership::Membership;
use crate::registry::STATE_OCTETS_MAX;

mod conversation;
mod transit;

use conversation::Own;
use transit::Place;

/// A conversation goes on through the registry, which has granted no right for it.
pub static NOT_MOVED: Reason = Reason::new("not moved", Class::Exhausted);

/// Purposes of the layer's timers; the mark of the session lies in the bits above.
const MOVE: u64 = 0;
const GIVE_BACK: u64 = 1;
const END_RIGHT: u64 = 2;
const AGAIN: u64 = 3;
const KIND_BITS: u32 = 8;

/// Shared state of the protocol and its sessions.
pub(crate) struct Parts {
    /// Proxy of the registry's protocol.
    pub(crate) far: ProtocolRef,
    /// The program's own, and what that stands on.
    own: OnceCell<(ProtocolRef, ProtocolRef)>,
    pub(crate) member: Rc<Membership>,
    /// Enables: the number below, the port and host, and for which protocol.
    offers: RefCell<Vec<(Enable, u64, ProtocolRef)>>,
    sessions: Marks,
    /// State that another program has passed on, with its ticket in front, and its ends.
    brought: RefCell<(Participants, Vec<u8>)>,
    /// Layer of datagrams beside this one, which has its sessions at the registry through it: the
    /// registry knows a program by one receiver.
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

    /// Has the registry end what has been closed and has not ended: how many are not there yet.
    pub(crate) fn leave(&self, cx: &Kernel, this: &ProtocolRef) -> usize {
        let leaves = |session: &&SessionRef| {
            session.body::<Own>().is_some_and(|own| own.leave(cx, this, session))
        };
        self.sessions.all().iter().filter(leaves).count()
    }

    /// Takes the state that was passed on between these ends, if it was brought last.
    fn take_brought(&self, ends: &Participants) -> Option<Vec<u8>> {
        let is_it = self.brought.borrow().0 == *ends && !self.brought.borrow().1.is_empty();
        is_it.then(|| self.brought.take().1)
    }

    /// The session that stands on `lower`.
    #[inline]
    fn find(&self, lower: &SessionRef) -> Option<SessionRef> {
        let session = self.sessions.get(lower.head().tag())?;
        session.body::<Own>()?.stands_on(lower).then_some(session)
    }

    /// The protocol that takes peers at this port and host.
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
        let own = Own::new(self, upper, (lower, is_passive));
        let session = match is_passive {
            true => cx.new_passive_session(this, upper, lower.head().source(), own),
            false => cx.new_session(this, upper, own),
        };
        let mark = stand(cx, &self.sessions, &session, lower)?;
        session.body::<Own>()?.set_mark(mark);
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
    let mark = sessions.mark(session);
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
            let is_own = session.body::<Own>().is_some_and(|own| own.is_of(upper.receiver));
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
                own.is_passed_on();
            }
            own.move_soon(cx, this);
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
            own.move_soon(cx, this);
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
            if own.heard(cx, this, event) {
                return Answer::Answered;
            }
            let below = core::mem::replace(&mut question.session, session.clone());
            let answer = own.upper().control(cx, ask);
            // The layer below knows its own session alone, and so does the cut on the way back.
            if let Some(question) = ask.get::<StreamNotice>() {
                question.session = below;
            }
            own.is_over(cx, this, &session, event);
            return answer;
        }
        if let Some(question) = ask.get::<StreamRoom>() {
            let upper = self.0.receiver(question.port, question.host);
            return upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask));
        }
        let asks = |session: &mut SessionRef| {
            let own = self.0.find(session)?;
            let upper = own.body::<Own>()?.upper().clone();
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
            (Some(own), GIVE_BACK) => own.give_back(cx, this),
            (Some(own), AGAIN) => own.arrive(cx, &session, Place::Far),
            _ => {}
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.sessions.take_all());
        drop((self.0.offers.take(), self.0.beside.take()));
        self.0.member.stop();
    }
}

#[cfg(test)]
mod tests;
