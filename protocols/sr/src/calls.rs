//! Calls that wait for their results, by token, and the sessions below that lead to other machines.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallError, SessionId};
use xk_core::{HostAddr, Kernel, Message, SessionRef};
use xk_kit::Pending;

/// Sessions below that are kept between messages.
const IDLE_MAX: usize = 64;

/// A call that waits for its result.
pub type Call = Pending<Result<Message, CallError>>;

/// The calls of a machine that wait.
pub struct Calls {
    calls: RefCell<BTreeMap<u32, Rc<Call>>>,
    calls_max: usize,
}

impl Calls {
    /// None yet.
    pub fn new(calls_max: usize) -> Self {
        Self { calls: RefCell::default(), calls_max }
    }

    /// A token that no call has, and that no machine knows from those of others.
    pub fn token(&self, cx: &Kernel) -> u32 {
        loop {
            let token = cx.random().next_u32();
            // 0 is that of no call.
            if token != 0 && !self.calls.borrow().contains_key(&token) {
                return token;
            }
        }
    }

    /// A call with this token begins; `None` if too many wait.
    pub fn begin(&self, token: u32, session: SessionId, tag: u64) -> Option<Rc<Call>> {
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= self.calls_max {
            return None;
        }
        let call = Rc::new(Call::default());
        call.begin(session, tag);
        calls.insert(token, Rc::clone(&call));
        Some(call)
    }

    /// A call is over.
    pub fn finish(&self, token: u32) {
        self.calls.borrow_mut().remove(&token);
    }

    /// The result of the call with this token has come; false if there is no such call, or if it
    /// has one.
    pub fn come(&self, cx: &Kernel, token: u32, result: Result<Message, CallError>) -> bool {
        let call = self.calls.borrow().get(&token).cloned();
        let waits = call.as_ref().is_some_and(|call| call.waits());
        if let Some(call) = call {
            call.finish(cx, result);
        }
        waits
    }

    /// Ends the calls that `is` says true of; false if there are none.
    pub fn end(&self, cx: &Kernel, error: CallError, is: impl Fn(&Call) -> bool) -> bool {
        let calls = self.calls.borrow();
        let ended = calls.values().filter(|call| call.waits() && is(call));
        ended.map(|call| call.finish(cx, Err(error))).count() > 0
    }

    /// Forgets all calls.
    pub fn clear(&self) {
        drop(self.calls.take());
    }
}

/// The sessions below that no message is using, by their hosts. None is kept while no session above
/// calls.
#[derive(Default)]
pub struct Outlets {
    idle: RefCell<Vec<(HostAddr, SessionRef)>>,
    users: Cell<usize>,
}

impl Outlets {
    /// One session above more.
    pub fn enter(&self) {
        self.users.set(self.users.get() + 1);
    }

    /// One session above less.
    pub fn leave(&self, cx: &Kernel) {
        self.users.set(self.users.get().saturating_sub(1));
        if self.users.get() == 0 {
            let idle = self.idle.take();
            idle.into_iter().for_each(|(_, session)| session.close(cx));
        }
    }

    /// A session to this host, if one is kept.
    pub fn take(&self, host: HostAddr) -> Option<SessionRef> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(_, session)| !session.head().is_closed());
        let at = idle.iter().position(|(to, _)| *to == host)?;
        Some(idle.swap_remove(at).1)
    }

    /// Keeps a session to this host for the next message, or closes it.
    pub fn give_back(&self, cx: &Kernel, host: HostAddr, session: SessionRef) {
        if session.head().is_closed() {
            return;
        }
        if self.users.get() == 0 || self.idle.borrow().len() >= IDLE_MAX {
            return session.close(cx);
        }
        self.idle.borrow_mut().push((host, session));
    }

    /// Forgets all sessions, without closing.
    pub fn clear(&self) {
        drop(self.idle.take());
    }
}
