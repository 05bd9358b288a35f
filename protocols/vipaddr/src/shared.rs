//! Shared state of the protocol's objects: how hosts are known, and which sessions are shown as
//! which.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::map::Map;
use xk_core::object::{OpenError, WeakSession};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{HostAddr, Kernel, Participants, ProtocolRef, Reason, SessionRef, Time, reason};
use xk_kit::Turns;
use xk_kit::control::{MaxPacket, PeerEther, PeerHost, Resolve};
use xk_kit::net::neighbour::{HostAt, RunsVirtual, WayChanged, is_on_link};
use xk_kit::net::receivers::{Openings, UpperReceiver, UpperReceivers};
use xk_kit::rpc::call::LargestPush;

/// Time for which a host that was not there is not waited for.
const NEGATIVE: Duration = Duration::from_secs(20);
/// Time that a host whose address is known has to say that it runs virtual protocols.
const GRACE: Duration = Duration::from_millis(100);
/// Hosts that are remembered as not there.
const ABSENT_MAX: usize = 1024;
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

pub(crate) struct Shared {
    pub(crate) link: ProtocolRef,
    pub(crate) net: ProtocolRef,
    pub(crate) wait: Duration,
    pub(crate) uppers: UpperReceivers,
    /// Number of changes in what is known of hosts.
    pub(crate) changes: Cell<u64>,
    /// By the id of the link layer's session.
    pub(crate) heard: Map<u64, Heard>,
    /// By host and place of the upper protocol.
    pub(crate) known: Map<(HostAddr, u32), Known>,
    /// While sessions over the link are being opened: those of the link layer that were made for
    /// each.
    pub(crate) openings: Openings<Rc<RefCell<Vec<SessionRef>>>>,
    /// By the id of the link layer's session: messages wait until another has found out how it is
    /// shown.
    pub(crate) turns: Turns<u64>,
    pub(crate) waiters: RefCell<Vec<(HostAddr, Rc<Semaphore>)>>,
    pub(crate) absent: Map<HostAddr, Time>,
}

/// Presence of a host on the link.
pub(crate) enum Presence {
    /// Messages can go over the link.
    Runs,
    /// The host's address is known, but not that it runs virtual protocols.
    Answers,
    /// Not even its address is known.
    Silent,
}

impl Shared {
    pub(crate) fn new(
        cx: &Kernel,
        (link, net): (ProtocolRef, ProtocolRef),
        wait: Duration,
    ) -> Self {
        let key = cx.secret();
        Self {
            link,
            net,
            wait,
            uppers: UpperReceivers::default(),
            changes: Cell::new(0),
            heard: Map::new(key, HEARD_MAX),
            known: Map::new(key, HEARD_MAX),
            openings: Openings::default(),
            turns: Turns::default(),
            waiters: RefCell::default(),
            absent: Map::new(key, ABSENT_MAX),
        }
    }

    pub(crate) fn look(&self, cx: &Kernel, host: HostAddr) -> Presence {
        let asked = Resolve { host, address: None };
        let Some(address) = self.link.ask(cx, asked).and_then(|known| known.address) else {
            return Presence::Silent;
        };
        let asked = RunsVirtual { host, address, runs: false };
        // Where no layer keeps a table all hosts are taken to run it ("RPC in the x-Kernel",
        // section 3.1).
        match self.link.ask(cx, asked) {
            Some(answer) if !answer.runs => Presence::Answers,
            _ => Presence::Runs,
        }
    }

    /// Whether a session to this host goes over the link; waits for its address.
    pub(crate) fn goes_by_link(&self, cx: &Kernel, upper: &ProtocolRef, host: HostAddr) -> bool {
        let link_max = self.link.ask(cx, MaxPacket::default()).map(|q| q.octets);
        let largest = upper.ask(cx, LargestPush::default()).map(|q| q.octets);
        if let (Some(max), Some(largest)) = (link_max, largest)
            && largest > max
        {
            return false;
        }
        if host.is_group() {
            return true;
        }
        if !is_on_link(cx, &self.net, &self.link, host) {
            return false;
        }
        let key = host;
        let now = cx.now();
        let is_absent = self.absent.get(&key).is_some_and(|until| now < until);
        let mut end = if is_absent { now } else { now.after(self.wait) };
        let mut answers = false;
        loop {
            match self.look(cx, host) {
                Presence::Runs => {
                    self.absent.unbind(&key);
                    return true;
                }
                Presence::Answers if !answers => {
                    answers = true;
                    end = end.min(cx.now().after(GRACE));
                }
                Presence::Answers | Presence::Silent => {}
            }
            let left = end.since(cx.now());
            if left.is_zero() || !self.wait_for(cx, host, left) {
                break;
            }
        }
        if self.absent.len() >= ABSENT_MAX {
            let now = cx.now();
            self.absent.retain(|_, until| now < *until);
        }
        // In a full map of absent hosts this one is waited for again.
        let _ = self.absent.replace(key, cx.now().after(NEGATIVE));
        false
    }

    /// Waits until more is known of a host; false if waiting is over, or not possible.
    pub(crate) fn wait_for(&self, cx: &Kernel, host: HostAddr, left: Duration) -> bool {
        if self.waiters.borrow().len() >= WAITERS_MAX {
            return false;
        }
        let semaphore = Rc::new(Semaphore::new(0));
        let entry = (host, Rc::clone(&semaphore));
        self.waiters.borrow_mut().push(entry);
        let result = cx.wait(&semaphore, Some(left));
        let mut waiters = self.waiters.borrow_mut();
        waiters.retain(|(_, other)| !Rc::ptr_eq(other, &semaphore));
        drop(waiters);
        // What is known when the time is over is looked at once more.
        matches!(result, Ok(()) | Err(WaitError::TimedOut))
    }

    /// More or less is known of a host: shepherds that wait for it look again.
    pub(crate) fn wake(&self, cx: &Kernel, host: HostAddr) {
        let waiters = self.waiters.borrow();
        let of_host = waiters.iter().filter(|(other, _)| *other == host);
        let of_host: Vec<_> = of_host.map(|(_, s)| Rc::clone(s)).collect();
        drop(waiters);
        for semaphore in of_host {
            cx.signal(&semaphore);
        }
    }

    /// Opens the session to a host over the link.
    pub(crate) fn open_link(
        &self,
        cx: &Kernel,
        receiver: &UpperReceiver,
        (host, both): (HostAddr, Participants),
    ) -> Result<SessionRef, OpenError> {
        let (made, changes) = (Rc::default(), self.changes.get());
        let open = || self.link.open(cx, receiver.upper(), both);
        let session = self.openings.during(host, Rc::clone(&made), open)?;
        for lower in made.take() {
            self.show(cx, &lower, &session, changes);
        }
        Ok(session)
    }

    /// From now on what comes through `lower` is shown as coming through `session`, as was found
    /// since the count of changes was `checked`: what has changed since is looked at again.
    pub(crate) fn show(&self, cx: &Kernel, lower: &SessionRef, session: &SessionRef, checked: u64) {
        if self.heard.len() >= HEARD_MAX {
            self.sweep(cx);
        }
        let heard = Heard { lower: lower.downgrade(), shown: session.clone(), checked };
        // In a full map the next message through it finds out again, and is refused.
        let _ = self.heard.replace(lower.id().0, heard);
    }

    /// Whether the station behind `lower` is still the host that it is shown as. One whose address
    /// is forgotten may speak until the station is known to be another.
    pub(crate) fn is_still(&self, cx: &Kernel, lower: &SessionRef, shown: &SessionRef) -> bool {
        let ether = |session: &SessionRef| session.ask(cx, PeerEther::default());
        let Some(address) = ether(lower).map(|asked| asked.address) else {
            return false;
        };
        if let Some(known) = ether(shown) {
            return known.address == address;
        }
        let found = self.link.ask(cx, HostAt { address, host: HostAddr::UNSPECIFIED });
        let own = shown.ask(cx, PeerHost::default());
        found.is_none_or(|found| own.is_some_and(|own| own.host == found.host))
    }

    /// More or less is known of a host: those above may have to open their sessions to it again.
    pub(crate) fn changed(&self, cx: &Kernel, host: HostAddr) {
        self.changes.set(self.changes.get() + 1);
        self.wake(cx, host);
        for place in 0..self.uppers.len() {
            if let Some(upper) = self.uppers.get(place) {
                // A protocol need not care.
                let _ = upper.upper.ask(cx, WayChanged { host });
            }
        }
    }

    /// Forgets what leads nowhere any more.
    pub(crate) fn sweep(&self, cx: &Kernel) {
        let is_open = |s: &SessionRef| !s.head().is_closed();
        let lives = |heard: &Heard| {
            let lower = heard.lower.upgrade();
            is_open(&heard.shown) && lower.is_some_and(|lower| is_open(&lower))
        };
        let mut used = Vec::new();
        self.heard.retain(|_, heard| lives(heard));
        self.heard.for_each(|_, heard| used.push(heard.shown.id()));
        used.sort_unstable();
        let idle = |known: &Known| used.binary_search(&known.session.id()).is_err();
        let mut gone = Vec::new();
        self.known.for_each(|key, known| {
            if known.session.head().is_closed() || known.held && idle(known) {
                gone.push(*key);
            }
        });
        for key in gone {
            if let Some(known) = self.known.unbind(&key).filter(|known| known.held) {
                known.session.close(cx);
            }
        }
    }

    /// The session to a host over the link that is in use, if there is one.
    pub(crate) fn known(&self, key: (HostAddr, u32)) -> Option<SessionRef> {
        let known = self.known.get(&key)?;
        (!known.session.head().is_closed()).then_some(known.session)
    }

    pub(crate) fn note(
        &self,
        cx: &Kernel,
        key: (HostAddr, u32),
        known: Known,
    ) -> Result<(), &'static Reason> {
        if self.known.len() >= HEARD_MAX {
            self.sweep(cx);
        }
        self.known.unbind(&key);
        self.known.bind(key, known).map_err(|_| &reason::TABLE_FULL)
    }
}
