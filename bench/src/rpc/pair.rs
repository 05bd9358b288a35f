//! A caller of a configuration and its server in two kernels of one thread.

use super::stacks::{Stack, USERS};
use crate::cable::{HEADROOM, Host};
use crate::calls::{Caller, Calls, Turns};
use crate::stack::{pool, waiting_config};
use crate::uppers::{Echo, counter};
use std::cell::Cell;
use std::rc::Rc;
use xk_core::numbers::Number;
use xk_core::object::{CallError, PushError};
use xk_core::{Kernel, Pool, ProtocolRef, SessionRef, Upper};

/// A caller and its server.
pub(crate) type Pair = Calls<User>;

/// The caller.
pub(crate) struct User {
    stack: Stack,
    user: ProtocolRef,
    /// Messages that were sent back.
    answered: Rc<Cell<u64>>,
    /// Octets of a request: as many of them as are set.
    data: Vec<u8>,
    octets: Cell<usize>,
}

fn host(pool: &Pool, number: u8, stack: Stack) -> Host {
    let lines = stack.lines("cable", &format!("10.0.0.{number}"));
    let host = Host::composed(waiting_config(pool, number), number, &lines, stack.top(), &[]);
    for (lower, number) in USERS {
        let upper = "user";
        let _ = host.cx.numbers_mut().add(Number { upper, lower, number });
    }
    host
}

/// Both hosts, with calls of nothing behind them and then of so many octets.
///
/// # Panics
/// If a call brings no reply.
pub(crate) fn pair(stack: Stack, octets: usize) -> Pair {
    let pool = pool();
    let [a, b] = [1, 2].map(|number| host(&pool, number, stack));
    let procedure = b.cx.add_protocol("user", "user", Echo { holds: true });
    let enabled = b.top.open_enable(&b.cx, Upper::new(&procedure), stack.serves());
    let _ = enabled.expect("the procedure is free");
    let (asker, answered) = counter();
    let user = a.cx.add_protocol("user", "user", asker);
    let (data, none) = (vec![0x5a; octets], Cell::new(0));
    let calls = Calls::new(a, b, User { stack, user, answered, data, octets: none });
    calls.caller().octets.set(octets);
    calls.warm_up();
    calls
}

impl Caller for User {
    const HAS_QUEUES: bool = false;

    fn name(&self) -> &'static str {
        self.stack.name()
    }

    fn open(&self, a: &Host) -> Result<SessionRef, String> {
        let opened = a.top.open(&a.cx, Upper::new(&self.user), self.stack.calls("10.0.0.2"));
        opened.map_err(|error| format!("open: {error}"))
    }

    #[inline]
    fn call(&self, turns: &Turns<Self>, session: &SessionRef) -> Result<(), String> {
        let (cx, octets) = (&*turns.a.cx, &self.data[..self.octets.get()]);
        match self.stack.has_calls() {
            true => call(cx, session, octets).map_err(|error| error.describe(cx)),
            false => self.ask(turns, session, octets),
        }
    }
}

impl User {
    /// Sends one message, and carries frames until it has come back.
    #[inline(never)]
    fn ask(&self, turns: &Turns<Self>, session: &SessionRef, octets: &[u8]) -> Result<(), String> {
        let cx = &*turns.a.cx;
        let before = self.answered.get();
        let message = cx.pool().copy_from(HEADROOM, octets).map_err(|error| error.to_string())?;
        session.push(cx, message).map_err(|error| error.to_string())?;
        while self.answered.get() == before {
            if !turns.goes_on(turns.carry() > 0) {
                return Err("no answer".into());
            }
        }
        Ok(())
    }
}

/// One call with these octets.
///
/// # Errors
/// [`CallError`].
#[inline]
pub(crate) fn call(cx: &Kernel, session: &SessionRef, octets: &[u8]) -> Result<(), CallError> {
    let message = cx.pool().copy_from(HEADROOM, octets).map_err(|_| PushError::NoBuffers)?;
    session.call(cx, message).map(drop)
}
