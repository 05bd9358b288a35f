//! Connections that go on at another place: what a session gives away, and what is brought here.

use crate::connection::Connection;
use crate::pending::PendingKey;
use crate::protocol::Tcp;
use crate::session::{Link, TcpSession};
use crate::table::{key, ports};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::map::{Map, MapStats};
use xk_core::object::OpenError;
use xk_core::{
    Answer, Kernel, Message, Participants, ProtocolRef, Secret, SessionRef, Time, Upper, reason,
};
use xk_kit::net::moving::{
    GIVE_FOR, GiveState, HOLD_FOR, KeepEnds, MOVED, STATE_OCTETS_MAX, TakeState, WAITING,
    answer_part,
};
use xk_kit::net::ports::{Origin, pop_ports};

/// A session's timer says that nothing more is asked of what it gives.
pub(crate) const GIVING: u64 = 1;

/// Ends of a connection that has gone elsewhere, or is on its way here: nothing that comes for it
/// is answered.
struct Held {
    /// [`Time::MAX`] until told otherwise.
    until: Cell<Time>,
    /// Octets of its state that have come.
    state: RefCell<Vec<u8>>,
    /// For as long as something keeps them.
    kept: RefCell<Option<Kept>>,
    /// Segments that have come for it since a state is expected.
    early: RefCell<Vec<Message>>,
    is_awaited: Cell<bool>,
}

/// The protocol that keeps ends, its number of them, and the session below by which they are
/// reached, where the network reports errors of messages between them.
struct Kept {
    keeper: Option<ProtocolRef>,
    number: u32,
    lower: SessionRef,
}

/// All ends that are held.
pub(crate) struct Holds {
    held: Map<PendingKey, Rc<Held>>,
    /// Octets of all states.
    octets: Cell<usize>,
    /// Segments that came early, of all.
    early: Cell<usize>,
}

/// Segments that wait for one connection which is on its way here, and for all. Further ones are
/// dropped as if they were lost on the way.
const EARLY_MAX: usize = 64;
const EARLY_ALL_MAX: usize = 1024;

impl Holds {
    pub(crate) fn new(secret: Secret, max: usize) -> Self {
        Self { held: Map::new(secret, max), octets: Cell::new(0), early: Cell::new(0) }
    }

    /// Whether what comes for these ends is answered by nothing.
    pub(crate) fn has(&self, key: &PendingKey, now: Time) -> bool {
        !self.held.is_empty() && self.held.get(key).is_some_and(|held| held.until.get() > now)
    }

    pub(crate) fn stats(&self) -> MapStats {
        self.held.stats()
    }

    /// Holds the ends until then at least; those that are held already are so without a state.
    /// False without room: they are not held.
    fn hold(&self, key: PendingKey, until: Time) -> bool {
        let before = self.held.get(&key).map_or(until, |held| held.until.get());
        let kept = self.held.get(&key).and_then(|held| held.kept.take());
        let early = self.forget(&key);
        self.early.set(self.early.get() + early.len());
        let held = Held {
            until: Cell::new(until.max(before)),
            state: RefCell::default(),
            kept: RefCell::new(kept),
            early: RefCell::new(early),
            is_awaited: Cell::new(false),
        };
        self.held.bind(key, Rc::new(held)).is_ok()
    }

    /// Keeps what has come for a connection that is on its way here: it goes on with that. Gives it
    /// back if there is no room, or none is awaited.
    pub(crate) fn keep(&self, key: &PendingKey, message: Message) -> Result<(), Message> {
        let held = self.held.get(key).filter(|held| held.is_awaited.get());
        let has_room = |held: &Rc<Held>| {
            held.early.borrow().len() < EARLY_MAX && self.early.get() < EARLY_ALL_MAX
        };
        let Some(held) = held.filter(has_room) else {
            return Err(message);
        };
        self.early.set(self.early.get() + 1);
        held.early.borrow_mut().push(message);
        Ok(())
    }

    /// The protocol that keeps the ends, and its number of them; `None` if nothing keeps them.
    pub(crate) fn keeper(&self, key: &PendingKey) -> Option<(Option<ProtocolRef>, u32)> {
        let held = self.held.get(key)?;
        let kept = held.kept.borrow();
        kept.as_ref().map(|kept| (kept.keeper.clone(), kept.number))
    }

    /// The ends are kept by this, or by nothing: the session of before that led to the peer.
    fn set_kept(&self, key: &PendingKey, kept: Option<Kept>) -> Option<SessionRef> {
        let held = self.held.get(key)?;
        held.kept.replace(kept).map(|kept| kept.lower)
    }

    /// Holds ends that nothing keeps any more for as long as an open may take; false if none is
    /// expected.
    fn await_open(&self, key: &PendingKey, now: Time) -> bool {
        let held = self.held.get(key).filter(|held| held.is_awaited.get());
        held.inspect(|held| held.until.set(now + HOLD_FOR)).is_some()
    }

    /// Takes a part of a state; false if it is not the next, or there is no room.
    fn take(&self, key: PendingKey, question: &mut TakeState, now: Time) -> bool {
        let Some(part) = question.part.take() else {
            return false;
        };
        if question.at == 0 {
            self.hold(key, now + HOLD_FOR);
        }
        let Some(held) = self.held.get(&key).filter(|held| held.until.get() > now) else {
            return false;
        };
        held.is_awaited.set(true);
        let octets = self.octets.get() + part.len();
        let state = &mut *held.state.borrow_mut();
        if state.len() != question.at as usize || octets > STATE_OCTETS_MAX {
            return false;
        }
        self.octets.set(octets);
        state.extend(part.octets());
        held.until.set(held.until.get().max(now + HOLD_FOR));
        true
    }

    /// The connection that has come for these ends; `None` if none has, or what has is none.
    fn brought(&self, cx: &Kernel, key: &PendingKey) -> Option<Connection> {
        let held = self.held.get(key)?;
        let state = held.state.borrow();
        Connection::read(&state, cx.pool(), cx.now())
    }

    /// Whether a state has come for these ends.
    pub(crate) fn is_expected(&self, key: &PendingKey) -> bool {
        self.held.get(key).is_some_and(|held| !held.state.borrow().is_empty())
    }

    /// Answers segments for these ends again, and returns those that have come early.
    fn forget(&self, key: &PendingKey) -> Vec<Message> {
        let Some(held) = self.held.unbind(key) else {
            return Vec::new();
        };
        let early = held.early.take();
        self.octets.set(self.octets.get() - held.state.borrow().len());
        self.early.set(self.early.get() - early.len());
        early
    }

    /// Forgets those whose time is over; false if no time is over later.
    pub(crate) fn tick(&self, now: Time, this: &ProtocolRef) -> bool {
        let mut later = false;
        for (key, held) in self.held.snapshot() {
            match held.until.get() {
                until if until <= now => discard(this, self.forget(&key)),
                until => later |= until < Time::MAX,
            }
        }
        later
    }

    pub(crate) fn clear(&self) {
        self.held.clear();
        self.octets.set(0);
        self.early.set(0);
    }
}

fn discard(this: &ProtocolRef, early: Vec<Message>) {
    early.into_iter().for_each(|message| this.discard(message, &MOVED));
}

impl Tcp {
    /// The key that holds a connection between these ends, and the session below, to be closed.
    fn key_of(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        mut ends: Participants,
    ) -> Result<(PendingKey, SessionRef), OpenError> {
        let (local, peer) = pop_ports(&mut ends)?;
        if local == 0 || peer == 0 {
            return Err(OpenError::NotSupported);
        }
        let lower = self.lower.open(cx, Upper::new(this), ends)?;
        let origin = self.table.origins.of(cx, &lower);
        let key = (self.hosts(cx, &origin, &lower), ports(local, peer));
        Ok((key, lower))
    }

    /// A part of a connection that comes from elsewhere.
    pub(crate) fn take_state(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        question: &mut TakeState,
    ) -> Result<(), OpenError> {
        let (key, lower) = self.key_of(cx, this, question.ends.clone())?;
        lower.close(cx);
        question.taken = self.table.holds.take(key, question, cx.now());
        self.table.keep_ticking(cx, this);
        Ok(())
    }

    /// Ends that are kept for a connection elsewhere, or no longer.
    pub(crate) fn keep_ends(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        question: &mut KeepEnds,
    ) -> Result<(), OpenError> {
        let (key, lower) = self.key_of(cx, this, question.ends.clone())?;
        let holds = &self.table.holds;
        if question.keep && holds.hold(key, Time::MAX) {
            let origin = self.table.origins.of(cx, &lower);
            let pair = pop_ports(&mut question.ends.clone())?;
            let headers = question.headers.take();
            question.headers =
                headers.and_then(|_| crate::session::headers(cx, (&origin, &lower), pair));
            let (keeper, number) = (question.keeper.take(), question.number);
            let before = holds.set_kept(&key, Some(Kept { keeper, number, lower }));
            before.inspect(|before| before.close(cx));
            question.done = true;
        } else {
            let before = holds.set_kept(&key, None);
            if before.is_some() && holds.await_open(&key, cx.now()) {
                self.table.keep_ticking(cx, this);
            } else {
                discard(this, holds.forget(&key));
            }
            before.iter().chain([&lower]).for_each(|lower| lower.close(cx));
            question.done = !question.keep;
        }
        Ok(())
    }

    /// Goes on with the connection that was brought for these ends, on a lower session whose hold
    /// it takes over.
    pub(crate) fn go_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        lower: &SessionRef,
        origin: Origin,
        ends: PendingKey,
    ) -> Result<SessionRef, OpenError> {
        let path = crate::origin::path(cx, lower);
        let link = Link::new(cx, lower, origin, ends.0);
        let (table, key) = (&self.table, key(lower, ends.1));
        if let Some(old) = table.sessions.get(&key) {
            self.make_way(cx, &key, &old).ok_or(OpenError::InUse)?;
        }
        let mut connection = table.holds.brought(cx, &ends).ok_or(OpenError::NotSupported)?;
        if ports(connection.ends().local, connection.ends().peer) != ends.1 {
            return Err(OpenError::NotSupported);
        }
        connection.arrived(path, table.settings.borrow().time_wait, cx.now());
        let is_passive = !connection.is_active();
        let body = TcpSession::new(cx, table, link, key, upper.receiver, connection);
        let session = match is_passive {
            true => cx.new_passive_session(this, upper.receiver, lower.head().source(), body),
            false => cx.new_session(this, upper.receiver, body),
        };
        if is_passive {
            session.hold();
        }
        if table.sessions.bind(cx, key, session.clone()).is_err() {
            session.retire(cx);
            return Err(OpenError::Full);
        }
        let before = table.holds.set_kept(&ends, None);
        before.inspect(|before| before.close(cx));
        let early = table.holds.forget(&ends);
        // The opener knows of the session before it hears of it.
        if let Some(own) = session.body::<TcpSession>() {
            own.early.replace(early);
            own.wake(cx, &session, cx.now(), 0);
        }
        Ok(session)
    }
}

impl TcpSession {
    /// A part of the connection for another place. With the first it stops here; behind the last it
    /// is over.
    pub(crate) fn give_state(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        question: &mut GiveState,
    ) -> Answer {
        if question.at == WAITING {
            question.total = self.connection.borrow().waiting();
            return Answer::Answered;
        }
        if self.given.borrow().is_none() && !self.stop(cx, this) {
            *question = GiveState::default();
            return Answer::Answered;
        }
        let given = self.given.borrow();
        let state = given.as_deref().unwrap_or_default();
        if question.at as usize == state.len() {
            question.total = question.at;
            drop(given);
            self.given.take();
            self.finish(cx, this);
            return Answer::Answered;
        }
        if answer_part(cx.pool(), state, question).is_err() {
            *question = GiveState::default();
        }
        drop(given);
        self.wake(cx, this, cx.now() + GIVE_FOR, GIVING);
        Answer::Answered
    }

    /// Stops the connection: what is asked for is its state. False if there is none.
    fn stop(&self, cx: &Kernel, this: &SessionRef) -> bool {
        if self.is_finished.get() || !self.is_bound(this) {
            return false;
        }
        let Some(state) = self.connection.borrow().write(cx.pool(), cx.now()) else {
            return false;
        };
        self.given.replace(Some(state));
        let left = self.connection.borrow().left(cx.now());
        drop(self.connection.replace(left));
        self.table.sessions.unbind(&self.key);
        self.table.holds.hold((self.link.hosts, self.key.1), cx.now() + HOLD_FOR);
        if let Some(protocol) = this.protocol(cx) {
            self.table.keep_ticking(cx, &protocol);
        }
        true
    }

    /// Nothing took the connection: it goes on here, if it was stopped.
    pub(crate) fn take_back(&self, cx: &Kernel, this: &SessionRef) {
        let Some(state) = self.given.take() else {
            return;
        };
        let Some(mut connection) = Connection::read(&state, cx.pool(), cx.now()) else {
            this.count_drop(cx, &reason::NO_BUFFERS);
            self.finish(cx, this);
            return;
        };
        connection.set_runs(self.link.offloads.tx_segments);
        self.connection.replace(connection);
        if self.table.sessions.bind(cx, self.key, this.clone()).is_err() {
            self.give_up(cx, this, &reason::TABLE_FULL);
        }
    }
}
