//! Progress and results of the user of a measured graph.

use super::endpoint::{Endpoint, Task};
use super::exchange::{ANSWER_TIME_MAX, Trips, Window};
use crate::case::Trouble;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use xk_core::{Kernel, Protocol, ProtocolRef, Time};

/// The protocol at the top of a measured graph; clones are the same one.
pub(super) trait Top: Protocol + Clone {
    fn course(&self) -> &Course;

    /// Does its work between two turns of the poll loop.
    fn turn(&self, _: &Kernel, _: &ProtocolRef) {}

    /// Returns the result, in the same form as over a line.
    ///
    /// # Errors
    /// That nothing was, and why.
    fn result(&self) -> Result<Value, Trouble> {
        self.course().result()
    }
}

/// Progress of one user.
pub(super) struct Course {
    pub(super) task: Task,
    /// Longest time for the poll loop to run.
    pub(super) limit: Duration,
    pub(super) begun: Cell<Option<Time>>,
    pub(super) now: Cell<Time>,
    /// Time at which something last came, or of the beginning.
    heard: Cell<Time>,
    pub(super) answered: Cell<bool>,
    pub(super) done: Cell<bool>,
    broken: RefCell<Option<String>>,
    pub(super) trips: RefCell<Trips>,
    pub(super) window: RefCell<Window>,
}

impl Course {
    pub(super) fn new(end: &Endpoint) -> Self {
        Self {
            task: end.task,
            limit: end.time * 2 + ANSWER_TIME_MAX * 4,
            begun: Cell::new(None),
            now: Cell::new(Time::ZERO),
            heard: Cell::new(Time::ZERO),
            answered: Cell::new(false),
            done: Cell::new(false),
            broken: RefCell::default(),
            trips: RefCell::new(Trips::new(end.time)),
            window: RefCell::new(Window::new(end.time)),
        }
    }

    /// Ends the measurement with an error.
    #[cold]
    pub(super) fn breaks(&self, why: impl Into<String>) {
        *self.broken.borrow_mut() = Some(why.into());
    }

    /// The answer is whole. False if it was the last.
    #[inline]
    pub(super) fn goes_on(&self, now: Time) -> bool {
        self.heard.set(now);
        if !self.answered.replace(true) {
            self.trips.borrow_mut().begin();
        } else if !self.trips.borrow_mut().note() {
            self.done.set(true);
        }
        !self.done.get()
    }

    /// Looks at the clock. True if it is over.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.now.set(now);
        let begun = self.begun.get().unwrap_or_else(|| {
            self.begun.set(Some(now));
            self.heard.set(now);
            now
        });
        if self.done.get() || self.broken.borrow().is_some() {
            return true;
        }
        match self.task {
            Task::Ask | Task::Connect => {
                // Before the first answer a lost SYN, and a lost question for an address, may each
                // take a second.
                let patience = if self.answered.get() { 1 } else { 2 } * ANSWER_TIME_MAX;
                now.since(self.heard.get()) > patience
            }
            Task::Receive => self.window.borrow_mut().look(now.since(begun)),
            _ => false,
        }
    }

    /// See [`Top::result`].
    pub(super) fn result(&self) -> Result<Value, Trouble> {
        if let Some(what) = self.broken.take() {
            return Err(Trouble::Failed(what));
        }
        match self.task {
            Task::Ask | Task::Connect | Task::Call if self.done.get() => {
                Ok(self.trips.replace(Trips::new(Duration::ZERO)).result())
            }
            Task::Ask | Task::Connect | Task::Call => {
                Err(Trouble::Failed(format!("no answer within {ANSWER_TIME_MAX:?}")))
            }
            Task::Receive => self.window.borrow().result(),
            _ => Ok(json!({})),
        }
    }
}
