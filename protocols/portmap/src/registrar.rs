//! Registers what is served above with the port mapper of a host, and takes it back.

use crate::client::Client;
use crate::wire::procedure;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{CallCause, CallError};
use xk_core::{Kernel, Participant, ProtocolRef};
use xk_kit::net::notice::notice;

/// The wait before it tries again first, and at most.
const WAIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Program, version and port.
pub(crate) type What = (u32, u32, u16);

/// One thing to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Act {
    what: What,
    is_set: bool,
}

/// Registrations that are still to be told, and the results of the others.
pub(crate) struct Registrar {
    host: Participant,
    acts: RefCell<Vec<Act>>,
    wait: Cell<Duration>,
    is_at_work: Cell<bool>,
    pub(crate) accepted: Cell<u64>,
    pub(crate) refused: Cell<u64>,
}

impl Registrar {
    /// Tells the port mapper at `host`.
    pub(crate) fn new(host: Participant) -> Self {
        Self {
            host,
            acts: RefCell::default(),
            wait: Cell::new(WAIT[0]),
            is_at_work: Cell::new(false),
            accepted: Cell::new(0),
            refused: Cell::new(0),
        }
    }

    /// Notes that a program is served from now on, or no more; there are no more notes than
    /// enables. It is told by a timer, for this must not block.
    pub(crate) fn note(&self, cx: &Kernel, this: &ProtocolRef, what: What, is_set: bool) {
        let mut acts = self.acts.borrow_mut();
        acts.retain(|act| act.what != what);
        acts.push(Act { what, is_set });
        let is_first = acts.len() == 1;
        drop(acts);
        if is_first && !self.is_at_work.get() {
            self.schedule(cx, this, Duration::ZERO);
        }
    }

    fn schedule(&self, cx: &Kernel, this: &ProtocolRef, after: Duration) {
        if cx.schedule_protocol(this, after, 0).is_err() {
            notice(cx, || alloc::format!("{}: no timer to register by", this.name()));
        }
    }

    /// Tells all there is to tell; what cannot be told is tried again later.
    pub(crate) fn work(&self, cx: &Kernel, this: &ProtocolRef, client: &Client) {
        if self.is_at_work.replace(true) {
            return;
        }
        loop {
            let next = self.acts.borrow().first().copied();
            let Some(act) = next else {
                self.wait.set(WAIT[0]);
                break;
            };
            let told = match self.tell(cx, this, client, act) {
                // Denied: asking again would change nothing.
                Err(error) if matches!(error.cause, CallCause::Rejected(_)) => Ok(false),
                told => told,
            };
            match told {
                Ok(is_accepted) => {
                    self.acts.borrow_mut().retain(|other| *other != act);
                    self.count(cx, this, act, is_accepted);
                }
                Err(error) => {
                    let (wait, host) = (self.wait.get(), &self.host);
                    notice(cx, || {
                        let why = error.describe(cx);
                        alloc::format!("{}: {host} registers nothing: {why}", this.name())
                    });
                    self.wait.set((2 * wait).min(WAIT[1]));
                    self.schedule(cx, this, wait);
                    break;
                }
            }
        }
        self.is_at_work.set(false);
    }

    fn tell(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        client: &Client,
        act: Act,
    ) -> Result<bool, CallError> {
        // A mapping left by a server that ended without a word stands in the way.
        let unset = client.register(cx, this, &self.host, procedure::UNSET, act.what)?;
        if !act.is_set {
            return Ok(unset);
        }
        client.register(cx, this, &self.host, procedure::SET, act.what)
    }

    fn count(&self, cx: &Kernel, this: &ProtocolRef, act: Act, is_accepted: bool) {
        let count = if is_accepted { &self.accepted } else { &self.refused };
        count.set(count.get() + 1);
        if act.is_set && !is_accepted {
            let (program, version, _) = act.what;
            notice(cx, || {
                let (name, host) = (this.name(), &self.host);
                alloc::format!(
                    "{name}: {host} refuses to register program {program} version {version}"
                )
            });
        }
    }

    /// Forgets what was to be told.
    pub(crate) fn clear(&self) {
        self.acts.borrow_mut().clear();
    }
}
