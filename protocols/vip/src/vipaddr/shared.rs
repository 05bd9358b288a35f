//! Shared state of the protocol's objects: how hosts are known, and which sessions are shown as
//! which.

use crate::below::Below;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{OpenError, WeakSession};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{HostAddr, Kernel, Participants, ProtocolRef, SessionRef};
use xk_kit::Turns;
use xk_kit::control::MaxPacket;
use xk_kit::net::neighbour::WayChanged;
use xk_kit::net::receivers::{UpperReceiver, UpperReceivers};
use xk_kit::rpc::call::LargestPush;

/// Time that a host whose address is known has to say that it runs virtual protocols.
const GRACE: Duration = Duration::from_millis(100);
/// Largest number of opens that wait at a time.
const WAITERS_MAX: usize = 256;
/// Sessions of the link layer that lead to hosts' sessions: more than the link layer has by itself.
const HEARD_MAX: usize = 16_384;

/// A session of the link layer, and that of the layer above it which it is shown as.
#[derive(Clone)]
pub(crate) struct Heard {
    pub(crate) lower: WeakSession,
    pub(crate) shown: SessionRef,
    /// The count of changes before it was last found to be so.
    pub(crate) checked: u64,
}

/// The session to a host over the link.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) session: SessionRef,
    /// True if a message made it, so that no protocol above may hold it.
    pub(crate) held: bool,
}

/// State of the objects of one instance.
pub(crate) struct Shared {
    /// The layers below; sessions over the link are opened with those of the link layer that are
    /// made meanwhile.
    pub(crate) below: Below<Rc<RefCell<Vec<SessionRef>>>>,
    wait: Duration,
    pub(crate) uppers: UpperReceivers,
    /// Number of changes in what is known of hosts.
    pub(crate) changes: Cell<u64>,
    /// The hosts heard, by the id of the link layer's session.
    pub(crate) heard: Map<u64, Heard>,
    /// The hosts known, by host and place of the upper protocol.
    pub(crate) known: Map<(HostAddr, u32), Known>,
    /// The order of messages, by the id of the link layer's session: they wait until another has
    /// found out how that session is shown.
    pub(crate) turns: Turns<u64>,
    waiters: RefCell<Vec<(HostAddr, Rc<Semaphore>)>>,
}

impl Shared {
    pub(crate) fn new(build: &Build<'_>) -> Result<Self, BuildError> {
        let key = build.cx.secret();
        Ok(Self {
            below: Below::new(build)?,
            wait: build.duration("wait")?,
            uppers: UpperReceivers::default(),
            changes: Cell::new(0),
            heard: Map::new(key, HEARD_MAX),
            known: Map::new(key, HEARD_MAX),
            turns: Turns::default(),
            waiters: RefCell::default(),
        })
    }

    /// Whether a session to this host goes over the link; waits for its address.
    pub(crate) fn goes_by_link(&self, cx: &Kernel, upper: &ProtocolRef, host: HostAddr) -> bool {
        let below = &self.below;
        let link_max = below.link.ask(cx, MaxPacket::default()).map(|q| q.octets);
        let largest = upper.ask(cx, LargestPush::default()).map(|q| q.octets);
        if link_max.zip(largest).is_some_and(|(max, largest)| largest > max) {
            return false;
        }
        if host.is_group() || !below.is_on_link(cx, host) {
            return host.is_group();
        }
        let now = cx.now();
        let mut end = if below.is_absent(now, host) { now } else { now.after(self.wait) };
        let mut answers = false;
        loop {
            if let Some(address) = below.resolve(cx, host) {
                if below.runs(cx, host, address) {
                    below.absent.remove(&host);
                    return true;
                }
                if !answers {
                    answers = true;
                    end = end.min(cx.now().after(GRACE));
                }
            }
            let left = end.since(cx.now());
            if left.is_zero() || !self.wait_for(cx, host, left) {
                below.note_absent(cx.now(), host);
                return false;
            }
        }
    }

    /// Waits until more is known of a host; false if waiting is over, or not possible.
    fn wait_for(&self, cx: &Kernel, host: HostAddr, left: Duration) -> bool {
        if self.waiters.borrow().len() >= WAITERS_MAX {
            return false;
        }
        let semaphore = Rc::new(Semaphore::new(0));
        self.waiters.borrow_mut().push((host, Rc::clone(&semaphore)));
        let result = cx.wait(&semaphore, Some(left));
        self.waiters.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &semaphore));
        // What is known when the time is over is looked at once more.
        matches!(result, Ok(()) | Err(WaitError::TimedOut))
    }

    /// Opens the session to a host over the link.
    pub(crate) fn open_link(
        &self,
        cx: &Kernel,
        receiver: &UpperReceiver,
        host: HostAddr,
        both: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (made, changes) = (Rc::default(), self.changes.get());
        let open = || self.below.link.open(cx, receiver.upper(), both);
        let session = self.below.openings.during(host, Rc::clone(&made), open)?;
        for lower in made.take() {
            self.show(cx, &lower, &session, changes);
        }
        Ok(session)
    }

    /// Shows messages that come through `lower` as coming through `session` from now on. This was
    /// found while the count of changes was `checked`; later changes are looked at again.
    pub(crate) fn show(&self, cx: &Kernel, lower: &SessionRef, session: &SessionRef, checked: u64) {
        if self.heard.len() >= HEARD_MAX {
            self.sweep(cx);
        }
        let heard = Heard { lower: lower.downgrade(), shown: session.clone(), checked };
        // In a full map the next message through it finds out again, and is refused.
        let _ = self.heard.replace(lower.id().0, heard);
    }

    /// More or less is known of a host: shepherds that wait for it look again, and those above may
    /// have to open their sessions to it again.
    pub(crate) fn changed(&self, cx: &Kernel, host: HostAddr) {
        self.changes.set(self.changes.get() + 1);
        let mut waiters = self.waiters.borrow().clone();
        waiters.retain(|(other, _)| *other == host);
        waiters.iter().for_each(|(_, semaphore)| cx.signal(semaphore));
        for upper in (0..self.uppers.len()).filter_map(|place| self.uppers.get(place)) {
            // A protocol need not care.
            let _ = upper.upper.ask(cx, WayChanged { host });
        }
    }

    /// Forgets what leads nowhere any more.
    fn sweep(&self, cx: &Kernel) {
        let is_open = |s: &SessionRef| !s.head().is_closed();
        self.heard.retain(|_, heard| {
            is_open(&heard.shown) && heard.lower.upgrade().is_some_and(|lower| is_open(&lower))
        });
        let mut used = Vec::new();
        self.heard.for_each(|_, heard| used.push(heard.shown.id()));
        used.sort_unstable();
        let mut gone = Vec::new();
        self.known.retain(|_, known| {
            let is_used = !known.held || used.binary_search(&known.session.id()).is_ok();
            let is_kept = is_used && is_open(&known.session);
            if !is_kept {
                gone.push(known.clone());
            }
            is_kept
        });
        gone.iter().filter(|known| known.held).for_each(|known| known.session.close(cx));
    }

    /// The session to a host over the link that is in use, if there is one.
    pub(crate) fn known(&self, key: (HostAddr, u32)) -> Option<SessionRef> {
        let known = self.known.get(&key)?;
        (!known.session.head().is_closed()).then_some(known.session)
    }

    /// Notes the session to a host, and closes it if there is no room; `held` as in [`Known`].
    pub(crate) fn note(
        &self,
        cx: &Kernel,
        key: (HostAddr, u32),
        session: &SessionRef,
        held: bool,
    ) -> Result<(), OpenError> {
        if self.known.len() >= HEARD_MAX {
            self.sweep(cx);
        }
        self.known.unbind(&key);
        let bound = self.known.bind(key, Known { session: session.clone(), held });
        bound.map_err(|_| {
            session.close(cx);
            OpenError::Full
        })
    }

    /// Forgets all, and closes the sessions that messages made.
    pub(crate) fn stop(&self, cx: &Kernel) {
        self.heard.clear();
        for (_, known) in self.known.snapshot() {
            if known.held {
                known.session.close(cx);
            }
        }
        self.known.clear();
        self.uppers.clear();
        self.below.absent.clear();
        drop(self.waiters.take());
    }
}
