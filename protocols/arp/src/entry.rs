//! The entry of one host: its address, and the state of its resolution.

use crate::session::Path;
use crate::wire::{EthAddr, Ipv4};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::time::Duration;
use xk_core::Time;
use xk_core::kernel::Timer;

/// Least time between two requests for one host (RFC 1122, section 2.3.2.1).
pub(crate) const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// State of the resolution of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Nothing known, nothing asked.
    Idle,
    /// Requests are being sent to all.
    Asking,
    /// The address is known and was confirmed not long ago.
    Known,
    /// The address is known, but old: the station itself is asked. Meanwhile the address is used.
    Checking,
    /// No station answered. For a while none is asked.
    Failed,
}

/// Event of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message is to go to the host, or its address is asked for.
    Wanted,
    /// The host's address was heard.
    Heard,
    /// No answer to the last request; more may be sent.
    Silent,
    /// No answer to the last of all requests.
    Exhausted,
    /// Not confirmed for its lifetime, but used since.
    Aged,
    /// Neither confirmed nor used for its lifetime.
    Unused,
    /// The time after a failure is over.
    Forgiven,
}

/// Action on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// Ask all stations.
    Ask,
    /// Ask the station that had the address.
    Poll,
    /// Lead the sessions to the address and send the waiting messages.
    Link,
    /// Drop the waiting messages, and tell the protocols above.
    Fail,
    /// Take the sessions off the address.
    Unlink,
}

impl Resolution {
    /// The next state, and what is to be done (RFC 826; RFC 1122, section 2.3.2.1: time-out and
    /// unicast poll).
    pub(crate) fn next(self, event: Event) -> (Resolution, Action) {
        match (self, event) {
            (_, Event::Heard) => (Resolution::Known, Action::Link),
            (Resolution::Idle, Event::Wanted) => (Resolution::Asking, Action::Ask),
            (Resolution::Asking, Event::Silent) => (Resolution::Asking, Action::Ask),
            (Resolution::Asking, Event::Exhausted) => (Resolution::Failed, Action::Fail),
            (Resolution::Known, Event::Aged) => (Resolution::Checking, Action::Poll),
            (Resolution::Known, Event::Unused) => (Resolution::Idle, Action::Unlink),
            (Resolution::Checking, Event::Silent) => (Resolution::Checking, Action::Poll),
            (Resolution::Checking, Event::Exhausted) => (Resolution::Idle, Action::Unlink),
            (Resolution::Failed, Event::Forgiven) => (Resolution::Idle, Action::Nothing),
            (state, _) => (state, Action::Nothing),
        }
    }

    /// Whether there is an address to send to.
    pub(crate) fn is_usable(self) -> bool {
        matches!(self, Resolution::Known | Resolution::Checking)
    }

    /// Name of the state, for a person.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Resolution::Idle => "idle",
            Resolution::Asking => "asking",
            Resolution::Known => "known",
            Resolution::Checking => "checking",
            Resolution::Failed => "failed",
        }
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One host of the link.
pub(crate) struct Entry {
    pub(crate) host: Ipv4,
    pub(crate) state: Cell<Resolution>,
    /// Hardware address, while the state is usable.
    pub(crate) eth: Cell<EthAddr>,
    /// The local host that requests for it name as their sender.
    pub(crate) source: Cell<Ipv4>,
    /// Requests sent in this state, after the first.
    pub(crate) retries: Cell<u32>,
    /// Time at which the address was last confirmed, else at which the state was entered.
    pub(crate) since: Cell<Time>,
    /// Time of the last request for it.
    pub(crate) asked: Cell<Option<Time>>,
    /// Whether anything was sent there since the last confirmation.
    pub(crate) used: Cell<bool>,
    /// Number of messages up to which the sessions of an entry count as unused, when an entry to
    /// give up is looked for: the number that they had sent at the last look, at first one.
    pub(crate) sent_seen: Cell<u64>,
    pub(crate) timer: Cell<Option<Timer>>,
    /// Paths that the sessions to this host share with the entry.
    pub(crate) paths: RefCell<Vec<Weak<Path>>>,
}

impl Entry {
    pub(crate) fn new(host: Ipv4, now: Time) -> Self {
        Self {
            host,
            state: Cell::new(Resolution::Idle),
            eth: Cell::new(EthAddr::ZERO),
            source: Cell::new(Ipv4::UNSPECIFIED),
            retries: Cell::new(0),
            since: Cell::new(now),
            asked: Cell::new(None),
            used: Cell::new(false),
            sent_seen: Cell::new(1),
            timer: Cell::new(None),
            paths: RefCell::default(),
        }
    }

    /// An entry that never changes: a broadcast or a group.
    pub(crate) fn fixed(host: Ipv4, eth: EthAddr, now: Time) -> Self {
        let entry = Self::new(host, now);
        entry.state.set(Resolution::Known);
        entry.eth.set(eth);
        entry
    }

    /// The sessions' parts, as they are now.
    pub(crate) fn paths(&self) -> Vec<Rc<Path>> {
        self.paths.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// The address, if it is known now.
    pub(crate) fn address(&self) -> Option<EthAddr> {
        self.state.get().is_usable().then(|| self.eth.get())
    }

    /// Whether nothing needs the entry. An entry that was just asked for is kept, so that it is not
    /// asked for again at once.
    pub(crate) fn is_useless(&self, now: Time) -> bool {
        let asking = matches!(self.state.get(), Resolution::Asking | Resolution::Checking);
        !asking && !self.is_asked_recently(now) && self.paths.borrow().is_empty()
    }

    /// Whether it was asked for within the last second (RFC 1122, section 2.3.2.1).
    pub(crate) fn is_asked_recently(&self, now: Time) -> bool {
        let recent = |at| now.since(at) < REQUEST_INTERVAL;
        self.asked.get().is_some_and(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::string::String;

    #[test]
    fn every_state_meets_every_event() {
        use Event::{Aged, Exhausted, Forgiven, Heard, Silent, Unused, Wanted};
        use Resolution::{Asking, Checking, Failed, Idle, Known};
        let mut table = String::new();
        for state in [Idle, Asking, Known, Checking, Failed] {
            for event in [Wanted, Heard, Silent, Exhausted, Aged, Unused, Forgiven] {
                let (next, action) = state.next(event);
                if (next, action) != (state, Action::Nothing) {
                    let _ = writeln!(table, "{state} {event:?}: {next} {action:?}");
                }
            }
        }
        let expected = "\
idle Wanted: asking Ask
idle Heard: known Link
asking Heard: known Link
asking Silent: asking Ask
asking Exhausted: failed Fail
known Heard: known Link
known Aged: checking Poll
known Unused: idle Unlink
checking Heard: known Link
checking Silent: checking Poll
checking Exhausted: idle Unlink
failed Heard: known Link
failed Forgiven: idle Nothing
";
        assert_eq!(table, expected);
    }
}
