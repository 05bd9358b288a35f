//! What protocol and sessions share, and how a session finds its ways.

use crate::session::{Path, VipSession};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, SessionTable};
use xk_core::{Ask, Kernel, Part, Participants, ProtocolRef, Reason, SessionRef, Time};
use xk_kit::control::{MyHost, PeerEther, PeerHost, Resolve, max_packet};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::{HostAt, RunsVirtual, is_on_link};
use xk_kit::net::standins::{Marks, StandIn, StandIns};
use xk_kit::rpc::call::LargestPush;

/// How long a host that was asked for and did not answer is not asked for again by an open.
pub(crate) const NEGATIVE: Duration = Duration::from_secs(20);
/// How often the routes are looked at again for hosts that have moved on the link or off it.
pub(crate) const LOOK: Duration = Duration::from_secs(20);
/// Of so many hosts it is remembered that they were asked for.
const ASKED_MAX: usize = 1024;
/// Octets of the largest message on the link if nobody there knows: an Ethernet's.
const LINK_MAX: u32 = 1500;

/// A session's key: the host, and place of the upper protocol.
pub(crate) type Key = (u32, u32);

/// Both enables of one offer.
pub(crate) struct Offer {
    pub(crate) number: u64,
    pub(crate) link: Enable,
    pub(crate) net: Enable,
}

pub(crate) struct Shared {
    /// The layer that takes hosts on the link.
    pub(crate) link: ProtocolRef,
    /// The layer that takes all hosts.
    pub(crate) net: ProtocolRef,
    pub(crate) uppers: StandIns,
    pub(crate) sessions: SessionTable<Key>,
    pub(crate) marks: Marks,
    pub(crate) offers: RefCell<Vec<Offer>>,
    pub(crate) offer_last: Cell<u64>,
    /// The mark of the session whose way over the link is being opened; 0 for none.
    pub(crate) opening: Cell<u32>,
    /// Whether the timer for the next look at the routes is set.
    pub(crate) looks: Cell<bool>,
    /// Until when a host is not asked for again.
    asked: Map<u32, Time>,
}

/// Whether a host is everybody on the link, or a group of them.
pub(crate) fn is_cast(host: Ipv4) -> bool {
    host == Ipv4::BROADCAST || host.is_multicast()
}

impl Shared {
    pub(crate) fn new(
        cx: &Kernel,
        link: ProtocolRef,
        net: ProtocolRef,
        (sessions_max, idle_max): (usize, usize),
    ) -> Self {
        let key = cx.secret();
        Self {
            link,
            net,
            uppers: StandIns::default(),
            sessions: SessionTable::new(key, sessions_max.min(Marks::MAX)).with_idle_max(idle_max),
            marks: Marks::default(),
            offers: RefCell::default(),
            offer_last: Cell::new(0),
            opening: Cell::new(0),
            looks: Cell::new(false),
            asked: Map::new(key, ASKED_MAX),
        }
    }

    /// The largest message that an upper protocol will ever push, in octets.
    pub(crate) fn largest(cx: &Kernel, upper: &ProtocolRef) -> u32 {
        let asked = upper.ask(cx, LargestPush::default());
        asked.map_or(u32::MAX, |asked| asked.octets)
    }

    /// The largest message on the link, in octets.
    pub(crate) fn link_max(&self, cx: &Kernel, link: &SessionRef) -> u32 {
        max_packet(cx, link, LINK_MAX)
    }

    /// Makes a session and binds it.
    pub(crate) fn make(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        stand_in: StandIn,
        (key, local, passive): (Key, Ipv4, bool),
    ) -> Result<(SessionRef, Rc<Path>), OpenError> {
        let upper = stand_in.receiver.clone();
        let path = Rc::new(Path::new(key, local, stand_in));
        let body = VipSession { shared: Rc::clone(self), path: Rc::clone(&path) };
        let session = if passive {
            let session = cx.new_passive_session(this, &upper, body);
            session.head().set_source(key.0);
            session
        } else {
            cx.new_session(this, &upper, body)
        };
        let bound = self.sessions.bind(cx, key, session.clone());
        let mark = bound.ok().and_then(|()| self.marks.enter(&session));
        let Some(mark) = mark else {
            session.abort(cx);
            return Err(OpenError::Full);
        };
        path.mark.set(mark);
        self.look_later(cx, this);
        Ok((session, path))
    }

    /// Sets the timer for the next look at the routes.
    pub(crate) fn look_later(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.looks.replace(true) {
            // Without a timer a host that moves is noticed when its address changes.
            let armed = cx.schedule_protocol(this, LOOK, 0).is_ok();
            self.looks.set(armed);
        }
    }

    /// Whether the host is on the link now.
    pub(crate) fn is_on_link(&self, cx: &Kernel, path: &Path) -> bool {
        path.is_cast() || is_on_link(cx, &self.net, &self.link, path.host())
    }

    /// Whether the peer would know us by the host of ours that the session is for: in frames we are
    /// that of the link.
    fn is_known_by_frames(&self, cx: &Kernel, path: &Path) -> bool {
        let Part::Host(local) = path.local_part() else {
            return true;
        };
        let host = Ipv4::UNSPECIFIED;
        let own = self.link.ask(cx, MyHost { host });
        own.is_none_or(|own| own.host == local)
    }

    /// Lets go of stations that have been this host and are another one by now.
    fn unhear(&self, cx: &Kernel, path: &Path) {
        let ether = |session: &SessionRef| {
            let asked = session.ask(cx, PeerEther::default());
            asked.map(|asked| asked.address)
        };
        let known = path.link.get().and_then(|link| ether(&link));
        path.unhear(|lower| {
            let host = Ipv4::UNSPECIFIED;
            if lower.ask(cx, PeerHost { host }).is_some() {
                // The way by IP: it knows hosts itself.
                return false;
            }
            let address = ether(lower);
            match (address, known) {
                (Some(address), Some(known)) => address != known,
                // A host whose address is forgotten may speak until the station is known to be
                // another.
                (Some(address), None) => {
                    let found = self.link.ask(cx, HostAt { address, host });
                    found.is_some_and(|found| found.host != path.host())
                }
                (None, _) => true,
            }
        });
    }

    /// Opens the way over the link if the host is there, lets go of it if not, and finds out
    /// whether it can be used.
    pub(crate) fn settle(&self, cx: &Kernel, path: &Path) {
        if path.is_closed.get() {
            return;
        }
        let on_link = self.is_on_link(cx, path) && self.is_known_by_frames(cx, path);
        let lost = path.link.get().is_none_or(|link| link.head().is_closed());
        if lost || !on_link {
            path.limit.set(0);
            self.close_link(cx, path);
        }
        if on_link {
            if lost {
                // Whoever cannot be opened on the link is reached by IP.
                let _ = self.open_link(cx, path);
            }
            path.limit.set(self.limit(cx, path));
        }
        self.unhear(cx, path);
    }

    /// Lets go of the way over the link.
    pub(crate) fn close_link(&self, cx: &Kernel, path: &Path) {
        if let Some(link) = path.link.take() {
            link.head().set_tag(0);
            link.close(cx);
        }
    }

    fn open_link(&self, cx: &Kernel, path: &Path) -> Result<(), OpenError> {
        let before = self.opening.replace(path.mark.get());
        let both = Participants::pair(path.local_part(), Part::Host(path.host()));
        let opened = self.link.open(cx, path.stand_in.upper(), both);
        self.opening.set(before);
        let link = opened?;
        link.head().set_tag(path.mark.get());
        if let Some(twice) = path.link.replace(Some(link)) {
            twice.close(cx);
        }
        Ok(())
    }

    /// One more than the octets of the largest message that goes over the link now; 0 if none does.
    fn limit(&self, cx: &Kernel, path: &Path) -> usize {
        let Some(link) = path.link.get() else {
            return 0;
        };
        let max = self.link_max(cx, &link) as usize + 1;
        if path.is_cast() {
            return max;
        }
        let Some(known) = link.ask(cx, PeerEther::default()) else {
            return 0;
        };
        self.asked.unbind(&path.host().to_bits());
        let asked = RunsVirtual { host: path.host(), address: known.address, runs: false };
        // Where nobody keeps a table all hosts are taken to run it ("RPC in the x-Kernel", section
        // 3.1).
        match self.link.ask(cx, asked) {
            Some(answer) if !answer.runs => 0,
            _ => max,
        }
    }

    /// Asks for the host's address unless it is known, or did not answer a short time ago.
    pub(crate) fn resolve(&self, cx: &Kernel, path: &Path) {
        if path.is_cast() || path.limit.get() > 0 || path.link.get().is_none() {
            return;
        }
        let (host, now) = (path.host(), cx.now());
        let key = host.to_bits();
        if self.asked.get(&key).is_some_and(|until| now < until) {
            return;
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.retain(|_, until| now < *until);
        }
        // In a full map of hosts asked for just now this one may be asked for again; no harm is
        // done.
        let _ = self.asked.replace(key, now.after(NEGATIVE));
        let address = None;
        let known = self.link.ask(cx, Resolve { host, address });
        if known.is_some_and(|known| known.address.is_some()) {
            path.limit.set(self.limit(cx, path));
        }
    }

    /// Opens the way by IP.
    pub(crate) fn open_net(&self, cx: &Kernel, path: &Path) -> Result<SessionRef, OpenError> {
        let open = |local| {
            let both = Participants::pair(local, Part::Host(path.host()));
            self.net.open(cx, path.stand_in.upper(), both)
        };
        // A host of ours by which the peer spoke to all does not do.
        let net = open(path.local_part()).or_else(|_| open(Part::Any))?;
        net.head().set_tag(path.mark.get());
        if let Some(old) = path.net.replace(Some(net.clone())) {
            old.close(cx);
        }
        Ok(net)
    }

    /// Looks at the ways of all sessions to a host again, of one upper protocol or of all.
    pub(crate) fn changed(&self, cx: &Kernel, host: Ipv4) {
        for at in 0..self.uppers.len() {
            if let Some(path) = self.path(cx, (host.to_bits(), at as u32)) {
                self.settle(cx, &path);
            }
        }
    }

    /// What the session with this key shares with the protocol.
    pub(crate) fn path(&self, cx: &Kernel, key: Key) -> Option<Rc<Path>> {
        let session = self.sessions.get(&key)?;
        path_of(cx, &session)
    }

    /// Looks at all sessions again.
    pub(crate) fn look(&self, cx: &Kernel, this: &ProtocolRef) {
        self.looks.set(false);
        for session in self.sessions.sessions(usize::MAX) {
            match path_of(cx, &session) {
                Some(path) if path.is_settled.get() => self.settle(cx, &path),
                // One that has not sent yet finds its ways when it does.
                Some(path) => self.unhear(cx, &path),
                None => {}
            }
        }
        if !self.sessions.is_empty() {
            self.look_later(cx, this);
        }
    }

    pub(crate) fn stop(&self, cx: &Kernel) {
        for session in self.sessions.sessions(usize::MAX) {
            session.abort(cx);
        }
        self.sessions.clear();
        self.marks.clear();
        self.uppers.clear();
        self.asked.clear();
        drop(self.offers.take());
    }
}

/// Asked of a session of its own.
pub(crate) struct ItsPath(pub(crate) Option<Rc<Path>>);

impl xk_core::Question for ItsPath {
    const NAME: &'static str = "vip-path";
}

pub(crate) fn path_of(cx: &Kernel, session: &SessionRef) -> Option<Rc<Path>> {
    let mut question = ItsPath(None);
    let answer = session.control(cx, &mut Ask::new(&mut question));
    question.0.filter(|_| answer.is_answered())
}

/// Refused above while its session was made.
pub(crate) type Unwanted = &'static Reason;
