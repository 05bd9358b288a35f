//! The upper side of a wire: one upper protocol, one session.

use core::cell::{Cell, RefCell};
use xk_core::control::ListSessions;
use xk_core::object::{Arrivals, Closing, Enable, OpenError};
use xk_core::reason;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Session, SessionRef, Upper,
};

/// What every wire keeps of the layer above: who it is, and the wire's only session.
///
/// The upper protocol opens the session, or enables, or both; without an open, the first arrival
/// makes the session.
#[derive(Default)]
pub struct WireEnd {
    upper: RefCell<Option<ProtocolRef>>,
    /// The number of the enable in force; 0 if there is none.
    enabled: Cell<u64>,
    /// That of the last one.
    enable_last: Cell<u64>,
    session: RefCell<Option<SessionRef>>,
}

impl WireEnd {
    fn claim(&self, receiver: &ProtocolRef) -> Result<(), OpenError> {
        match &*self.upper.borrow() {
            Some(upper) if upper != receiver => return Err(OpenError::InUse),
            _ => {}
        }
        *self.upper.borrow_mut() = Some(receiver.clone());
        Ok(())
    }

    fn is_enabled(&self) -> bool {
        self.enabled.get() != 0
    }

    /// Takes the wire from a protocol that neither enables any more nor holds the session which its
    /// enable once made.
    fn evict_idle(&self, cx: &Kernel, receiver: &ProtocolRef) {
        let session = self.session().filter(|_| !self.is_enabled());
        if let Some(idle) = session
            && idle.head().opens() == 0
            && idle.head().upper() != receiver.id()
        {
            idle.abort(cx);
        }
    }

    /// The session, if there is one.
    pub fn session(&self) -> Option<SessionRef> {
        self.session.borrow().clone()
    }

    /// Opens the wire's only session, which `body` makes if it is not there yet.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another protocol has the wire.
    pub fn open<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        body: impl FnOnce(ProtocolRef) -> S,
    ) -> Result<SessionRef, OpenError> {
        self.evict_idle(cx, upper.receiver);
        self.claim(upper.receiver)?;
        if let Some(session) = self.session() {
            session.hold();
            return Ok(session);
        }
        let session = cx.new_session(this, upper.receiver, body(upper.receiver.clone()));
        *self.session.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    /// Notes that `upper` takes what arrives. Enabled once more, it has one enable all the same.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another protocol has the wire.
    pub fn open_enable(&self, upper: Upper<'_>) -> Result<Enable, OpenError> {
        self.claim(upper.receiver)?;
        if !self.is_enabled() {
            self.enable_last.set(self.enable_last.get() + 1);
            self.enabled.set(self.enable_last.get());
        }
        Ok(Enable(self.enabled.get()))
    }

    /// Withdraws the offer, if this is the one in force: one withdrawn before withdraws nothing of
    /// who came after. A session that it made stays until another protocol opens the wire.
    pub fn open_disable(&self, enable: Enable) {
        if !self.is_enabled() || enable.0 != self.enabled.get() {
            return;
        }
        self.enabled.set(0);
        if self.session.borrow().is_none() {
            drop(self.upper.take());
        }
    }

    /// Passes an arrival up, making the session if need be. A refusal ends here: the refuser has
    /// counted it.
    pub fn deliver<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        message: Message,
        body: impl FnOnce(ProtocolRef) -> S,
    ) {
        if let Some(session) = self.session() {
            drop(session.pop(cx, message));
            return;
        }
        let upper = self.upper.borrow().clone().filter(|_| self.is_enabled());
        let Some(upper) = upper else {
            this.discard(message, &reason::NO_PROTOCOL);
            return;
        };
        let session = cx.new_passive_session(this, &upper, body(upper.clone()));
        *self.session.borrow_mut() = Some(session.clone());
        match upper.open_done(cx, &session, Participants::default()) {
            Ok(()) => drop(session.pop(cx, message)),
            Err(why) => {
                self.session.take();
                session.retire(cx);
                this.discard(message, why);
            }
        }
    }

    /// Passes up what waits, in bursts, but for a first arrival that makes the session. Takes at
    /// most `budget` messages, and stops when the shepherd that carries them no longer leads the
    /// loop. Answers how many it took: for the wire's `poll`.
    pub fn deliver_all<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        arrivals: &Arrivals,
        budget: usize,
        body: impl Fn(ProtocolRef) -> S,
    ) -> usize {
        let mut count = 0;
        while count < budget && !cx.must_leave() {
            let taken = match self.session() {
                Some(session) => arrivals.deliver(cx, &session, budget - count),
                None => match arrivals.pop_front() {
                    Some(message) => {
                        self.deliver(cx, this, message, &body);
                        1
                    }
                    None => 0,
                },
            };
            if taken == 0 {
                break;
            }
            count += taken;
        }
        count
    }

    /// Answers [`ListSessions`]: for the wire's `control`.
    pub fn control(&self, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<ListSessions>(|list| {
            list.sessions.extend(self.session());
            list.total = list.sessions.len();
        })
    }

    /// For the session's `close`: it stays while arrivals are wanted.
    pub fn close(&self) -> Closing {
        if self.is_enabled() {
            return Closing::Idle;
        }
        drop(self.session.take());
        drop(self.upper.take());
        Closing::Done
    }

    /// For the wire's `stop`.
    pub fn stop(&self) {
        self.enabled.set(0);
        drop(self.session.take());
        drop(self.upper.take());
    }
}
