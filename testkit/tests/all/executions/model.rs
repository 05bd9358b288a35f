//! Record of every call: the number of its executions, and its end.

use crate::executions::plan::Promise;
use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use xk_core::object::CallError;

/// Octets at the beginning of a request and a reply: the call's number, and the size of the reply.
pub(crate) const MARK: usize = 16;

/// Totals over all seeds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Calls made.
    pub(crate) calls: u64,
    /// Calls that brought a reply.
    pub(crate) replies: u64,
    /// Calls that failed.
    pub(crate) failures: u64,
    /// Executions.
    pub(crate) executions: u64,
    /// Crashes.
    pub(crate) crashes: u64,
}

/// State of a call.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Under way.
    Called,
    /// Ended with its reply.
    Replied,
    /// Ended with an error.
    Failed,
    /// The client crashed meanwhile.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    state: State,
    executions: u32,
    /// Number of the server's crashes before the last execution.
    crashes: u64,
}

/// All calls of one seed.
pub(crate) struct Model {
    promise: Promise,
    calls: RefCell<BTreeMap<u64, Call>>,
    /// Why calls failed, for the reader of what did not hold.
    errors: RefCell<BTreeMap<u64, CallError>>,
    /// The first thing that did not hold.
    wrong: RefCell<Option<String>>,
    pub(crate) crashes: Cell<u64>,
    /// Crashes of the server.
    pub(crate) server_crashes: Cell<u64>,
}

/// The octet at `at` of the request (`salt` 1) or reply (`salt` 2) of a call.
fn octet(call: u64, salt: u64, at: usize) -> u8 {
    (call.wrapping_mul(7).wrapping_add(salt.wrapping_mul(101)) as usize).wrapping_add(at) as u8
}

/// The request (`salt` 1) or reply (`salt` 2) of a call, `size` octets behind the mark, which says
/// how many come back.
pub(crate) fn message(call: u64, salt: u64, size: usize, back: usize) -> Vec<u8> {
    let mark = call.to_be_bytes().into_iter().chain((back as u64).to_be_bytes());
    mark.chain((0..size).map(|at| octet(call, salt, at))).collect()
}

/// The number of the call that octets belong to and the size of its reply, if they are what
/// [`message`] makes.
pub(crate) fn read(octets: &[u8], salt: u64) -> Option<(u64, usize)> {
    let (mark, rest) = octets.split_first_chunk::<MARK>()?;
    let (call, back) = mark.split_first_chunk::<8>()?;
    let (call, back) = (u64::from_be_bytes(*call), back.first_chunk::<8>()?);
    let mut all = rest.iter().enumerate();
    let is_right = all.all(|(at, found)| *found == octet(call, salt, at));
    is_right.then_some((call, u64::from_be_bytes(*back) as usize))
}

impl Model {
    pub(crate) fn new(promise: Promise) -> Self {
        Self {
            promise,
            calls: RefCell::default(),
            errors: RefCell::default(),
            wrong: RefCell::default(),
            crashes: Cell::new(0),
            server_crashes: Cell::new(0),
        }
    }

    /// Something did not hold.
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(what);
    }

    /// A call is about to be made.
    pub(crate) fn call(&self, call: u64) {
        let state = State::Called;
        let made = Call { state, executions: 0, crashes: 0 };
        self.calls.borrow_mut().insert(call, made);
    }

    /// The server executes a request. Answers the call's number and the size of its reply.
    pub(crate) fn execute(&self, request: &[u8]) -> Option<(u64, usize)> {
        let Some((number, back)) = read(request, 1) else {
            self.wrong(format!("the server got {} octets that nobody sent", request.len()));
            return None;
        };
        let mut calls = self.calls.borrow_mut();
        let Some(call) = calls.get_mut(&number) else {
            drop(calls);
            self.wrong(format!("the server got call {number}, which nobody made"));
            return None;
        };
        call.executions += 1;
        let crashes = self.server_crashes.get();
        let may = match self.promise {
            Promise::AtMostOnce => false,
            Promise::AtLeastOnce => true,
            Promise::OnceUntilReleased => {
                matches!(call.state, State::Replied) || call.crashes < crashes
            }
        };
        call.crashes = crashes;
        let twice = call.executions > 1 && !may;
        drop(calls);
        if twice {
            self.wrong(format!("call {number} was executed twice"));
        }
        Some((number, back))
    }

    /// A call has ended with this reply.
    pub(crate) fn reply(&self, number: u64, size: usize, reply: &[u8]) {
        let right = read(reply, 2).is_some_and(|(of, _)| of == number);
        if !right || reply.len() != MARK + size {
            self.wrong(format!(
                "call {number} for {size} octets got a wrong reply of {} octets",
                reply.len()
            ));
        }
        let executions = self.end(number, State::Replied);
        if executions == 0 {
            self.wrong(format!("call {number} got a reply and was never executed"));
        }
    }

    /// A call has failed.
    pub(crate) fn fail(&self, number: u64, error: CallError) {
        self.errors.borrow_mut().insert(number, error);
        self.end(number, State::Failed);
    }

    /// The client of a call is no more.
    pub(crate) fn gone(&self, number: u64) {
        self.end(number, State::Gone);
    }

    fn end(&self, number: u64, state: State) -> u32 {
        let mut calls = self.calls.borrow_mut();
        calls.get_mut(&number).map_or(0, |call| {
            call.state = state;
            call.executions
        })
    }

    /// Why calls failed.
    pub(crate) fn errors(&self) -> String {
        format!("{:?}", self.errors.borrow())
    }

    /// Whether this call brought its reply.
    pub(crate) fn is_replied(&self, number: u64) -> bool {
        let calls = self.calls.borrow();
        matches!(calls.get(&number), Some(call) if matches!(call.state, State::Replied))
    }

    /// Whether a call is still under way.
    pub(crate) fn is_busy(&self) -> bool {
        let calls = self.calls.borrow();
        calls.values().any(|call| matches!(call.state, State::Called))
    }

    /// Returns the totals, or the first promise that did not hold.
    pub(crate) fn judge(&self) -> Result<Counts, String> {
        let calls = self.calls.borrow();
        let of =
            |wanted: fn(&State) -> bool| calls.values().filter(|c| wanted(&c.state)).count() as u64;
        if let Some(wrong) = self.wrong.borrow().clone() {
            return Err(format!("{wrong}\n{calls:?}\n{:?}", self.errors.borrow()));
        }
        if let Some((number, _)) = calls.iter().find(|(_, c)| matches!(c.state, State::Called)) {
            return Err(format!("call {number} has not ended\n{calls:?}"));
        }
        Ok(Counts {
            calls: calls.len() as u64,
            replies: of(|state| matches!(state, State::Replied)),
            failures: of(|state| matches!(state, State::Failed)),
            executions: calls.values().map(|c| u64::from(c.executions)).sum(),
            crashes: self.crashes.get(),
        })
    }
}
