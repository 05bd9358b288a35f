//! The ways of a session: over the link, by IP, or either.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::map::Map;
use xk_core::object::{OpenError, ProtocolId, SessionSlot, WeakSession};
use xk_core::{HostAddr, Kernel, Part, Participants, ProtocolRef, Secret, SessionRef, Time};
use xk_kit::control::{MyHost, PeerEther, PeerHost, Resolve, max_packet};
use xk_kit::net::neighbour::{self, HostAt, RunsVirtual};
use xk_kit::net::receivers::Openings;
use xk_kit::net::virtual_layer::VirtualSession;
use xk_kit::rpc::call::LargestPush;

/// Time for which an open does not ask again for a host that did not answer.
const NEGATIVE: Duration = Duration::from_secs(20);
/// Interval at which the routes are looked at again for hosts that have moved on the link or off
/// it.
const LOOK: Duration = Duration::from_secs(20);
/// Hosts that are remembered as asked for.
const ASKED_MAX: usize = 1024;
/// Octets of the largest message on the link if no layer there knows: an Ethernet's.
const LINK_MAX: u32 = 1500;

/// Stations whose sessions lead to one session: as many as a host has addresses at a time, and a
/// few.
const HEARD_MAX: usize = 8;

/// One instance of the layer.
pub struct Vip {
    /// The layer that takes hosts on the link.
    pub(crate) link: ProtocolRef,
    /// The layer that takes all hosts.
    pub(crate) net: ProtocolRef,
    /// The marks of the sessions whose ways over the link are being opened.
    pub(crate) openings: Openings<u32>,
    /// Whether the timer for the next look at the routes is set.
    pub(crate) looks: Cell<bool>,
    /// Until when a host is not asked for again.
    pub(crate) asked: Map<HostAddr, Time>,
}

/// The session object.
pub(crate) type VipSession = VirtualSession<Vip>;

/// State of a session.
#[derive(Default)]
pub struct Lowers {
    /// One more than the octets of the largest message that goes over the link; 0 if none does.
    pub(crate) limit: Cell<usize>,
    /// The way over the link, while the host is there.
    pub(crate) link: SessionSlot,
    /// The way by IP, once it was needed.
    pub(crate) net: SessionSlot,
    /// The host of ours at this end; unspecified if left open.
    pub(crate) local: Cell<HostAddr>,
    /// Whether the ways have been looked for.
    pub(crate) is_chosen: Cell<bool>,
    /// Times that the host was reported to have moved.
    pub(crate) moves: Cell<u32>,
    /// Sessions of the link layer that bear the mark.
    pub(crate) heard: RefCell<Vec<WeakSession>>,
}

impl Vip {
    pub(crate) fn new(secret: Secret, link: ProtocolRef, net: ProtocolRef) -> Self {
        let asked = Map::new(secret, ASKED_MAX);
        Self { link, net, openings: Openings::default(), looks: Cell::new(false), asked }
    }

    /// Sets the timer for the next look at the routes.
    pub(crate) fn look_later(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.looks.replace(true) {
            // Without a timer a host that moves is noticed when its address changes.
            let armed = cx.schedule_protocol(this, LOOK, 0).is_ok();
            self.looks.set(armed);
        }
    }
}

impl Lowers {
    pub(crate) fn local_part(&self) -> Part {
        Part::host_or_any(self.local.get())
    }

    /// Lets a session of the link layer lead here.
    pub(crate) fn hear(&self, mark: u32, lower: &SessionRef) {
        lower.head().set_tag(mark);
        let mut heard = self.heard.borrow_mut();
        heard.retain(|weak| {
            let known = weak.upgrade().filter(|s| !s.head().is_closed());
            known.is_some_and(|known| known != *lower)
        });
        if heard.len() >= HEARD_MAX {
            let oldest = heard.remove(0);
            if let Some(oldest) = oldest.upgrade() {
                oldest.head().set_tag(0);
            }
        }
        heard.push(lower.downgrade());
    }

    /// A session of `net` through which messages of the peer come.
    pub(crate) fn heard_by(&self, net: ProtocolId) -> Option<SessionRef> {
        let heard = self.heard.borrow();
        let mut heard = heard.iter().filter_map(WeakSession::upgrade);
        self.net.get().or_else(|| heard.find(|session| session.head().protocol() == net))
    }

    /// Whether messages of the peer have come.
    pub(crate) fn has_heard(&self) -> bool {
        !self.heard.borrow().is_empty()
    }

    /// Releases stations that are another host by now: the next message through one finds out
    /// again whose it is.
    fn unhear(&self, mark: u32, is_other: impl Fn(&SessionRef) -> bool) {
        let heard = self.heard.take();
        let (gone, kept): (Vec<_>, Vec<_>) =
            heard.into_iter().partition(|weak| match weak.upgrade() {
                Some(lower) => lower.head().is_closed() || is_other(&lower),
                None => true,
            });
        self.heard.borrow_mut().extend(kept);
        Self::unmark(mark, &gone);
    }

    /// Sessions of the link layer lead nowhere now: the next message through one finds out
    /// again whose it is.
    pub(crate) fn forget_heard(&self, mark: u32) {
        Self::unmark(mark, &self.heard.take());
    }

    fn unmark(mark: u32, sessions: &[WeakSession]) {
        for session in sessions.iter().filter_map(WeakSession::upgrade) {
            if session.head().tag() == mark {
                session.head().set_tag(0);
            }
        }
    }

    /// Releases the way over the link.
    pub(crate) fn close_link(&self, cx: &Kernel) {
        if let Some(link) = self.link.take() {
            link.head().set_tag(0);
            link.close(cx);
        }
    }

    /// Releases the way by IP; another is opened for the next message that needs it.
    pub(crate) fn close_net(&self, cx: &Kernel) {
        if let Some(net) = self.net.take() {
            net.close(cx);
        }
    }
}

/// Whether the peer is everybody on the link, or a group of them.
pub(crate) fn is_cast(own: &VipSession) -> bool {
    own.host().is_group()
}

/// The largest message that an upper protocol will ever push, in octets.
pub(crate) fn largest(cx: &Kernel, upper: &ProtocolRef) -> u32 {
    let asked = upper.ask(cx, LargestPush::default());
    asked.map_or(u32::MAX, |asked| asked.octets)
}

/// Whether the host is on the link now.
pub(crate) fn is_on_link(own: &VipSession, cx: &Kernel) -> bool {
    is_cast(own) || neighbour::is_on_link(cx, &own.all.layer.net, &own.all.layer.link, own.host())
}

/// Whether the peer would know us by the host of ours that the session is for: in frames we are
/// that of the link.
fn is_known_by_frames(own: &VipSession, cx: &Kernel) -> bool {
    let Part::Host(local) = own.state.local_part() else {
        return true;
    };
    let own = own.all.layer.link.ask(cx, MyHost::default());
    own.is_none_or(|own| own.host == local)
}

/// Releases stations that have been this host and are another one by now.
pub(crate) fn unhear(own: &VipSession, cx: &Kernel) {
    let ether = |session: &SessionRef| {
        let asked = session.ask(cx, PeerEther::default());
        asked.map(|asked| asked.address)
    };
    let known = own.state.link.get().and_then(|link| ether(&link));
    own.state.unhear(own.mark.get(), |lower| {
        if lower.ask(cx, PeerHost::default()).is_some() {
            // The way by IP: it knows hosts itself.
            return false;
        }
        let address = ether(lower);
        match (address, known) {
            (Some(address), Some(known)) => address != known,
            // A host whose address is forgotten may speak until the station is known to be another.
            (Some(address), None) => {
                let found =
                    own.all.layer.link.ask(cx, HostAt { address, host: HostAddr::UNSPECIFIED });
                found.is_some_and(|found| found.host != own.host())
            }
            (None, _) => true,
        }
    });
}

/// Opens the way over the link if the host is there, releases it if not, and finds out
/// whether it can be used.
pub(crate) fn choose(own: &VipSession, cx: &Kernel) {
    while !own.is_closed.get() {
        match cx.unless_lost(|| look(own, cx)) {
            Ok(moves) if moves == own.state.moves.get() => return,
            // What is asked may block, and a move that is told meanwhile makes the answers old.
            Ok(_) => {}
            // The next message finds its way.
            Err(_) => {
                own.state.is_chosen.set(false);
                own.state.limit.set(0);
                own.state.close_link(cx);
                own.state.close_net(cx);
                return;
            }
        }
    }
}

/// Looks at the ways once; answers how many moves were known then.
fn look(own: &VipSession, cx: &Kernel) -> u32 {
    let moves = own.state.moves.get();
    let on_link = is_on_link(own, cx) && is_known_by_frames(own, cx);
    let lost = own.state.link.live().is_none();
    if lost || !on_link {
        own.state.limit.set(0);
        own.state.close_link(cx);
    }
    if on_link {
        if lost {
            // A host that cannot be opened on the link is reached by IP.
            let _ = open_link(own, cx);
        }
        own.state.limit.set(limit(own, cx));
    }
    unhear(own, cx);
    moves
}

fn open_link(own: &VipSession, cx: &Kernel) -> Result<(), OpenError> {
    let both = Participants::pair(own.state.local_part(), Part::Host(own.host()));
    let open = || own.all.layer.link.open(cx, own.receiver.upper(), both);
    let link = own.all.layer.openings.during(own.host(), own.mark.get(), open)?;
    link.head().set_tag(own.mark.get());
    if let Some(twice) = own.state.link.replace(Some(link)) {
        twice.close(cx);
    }
    Ok(())
}

/// One more than the octets of the largest message that goes over the link now; 0 if none does.
fn limit(own: &VipSession, cx: &Kernel) -> usize {
    let Some(link) = own.state.link.get() else {
        return 0;
    };
    let max = max_packet(cx, &link, LINK_MAX) as usize + 1;
    if is_cast(own) {
        return max;
    }
    let Some(known) = link.ask(cx, PeerEther::default()) else {
        return 0;
    };
    own.all.layer.asked.unbind(&own.host());
    let asked = RunsVirtual { host: own.host(), address: known.address, runs: false };
    // Where no table is kept all hosts are taken to run it ("RPC in the x-Kernel", section 3.1).
    match own.all.layer.link.ask(cx, asked) {
        Some(answer) if !answer.runs => 0,
        _ => max,
    }
}

/// Asks for the host's address unless it is known, or did not answer a short time ago.
pub(crate) fn resolve(own: &VipSession, cx: &Kernel) {
    if is_cast(own) || own.state.limit.get() > 0 || own.state.link.get().is_none() {
        return;
    }
    let (host, now) = (own.host(), cx.now());
    let key = host;
    if own.all.layer.asked.get(&key).is_some_and(|until| now < until) {
        return;
    }
    if own.all.layer.asked.len() >= ASKED_MAX {
        own.all.layer.asked.retain(|_, until| now < *until);
    }
    // In a full map of hosts asked for just now this one may be asked for again; no harm is done.
    let _ = own.all.layer.asked.replace(key, now.after(NEGATIVE));
    let address = None;
    let known = cx.unless_lost(|| own.all.layer.link.ask(cx, Resolve { host, address }));
    if known.is_err() {
        own.all.layer.asked.unbind(&key);
    } else if known.is_ok_and(|known| known.is_some_and(|known| known.address.is_some())) {
        own.state.limit.set(limit(own, cx));
    }
}

/// Opens the way by IP.
pub(crate) fn open_net(own: &VipSession, cx: &Kernel) -> Result<SessionRef, OpenError> {
    let open = |local| {
        let both = Participants::pair(local, Part::Host(own.host()));
        own.all.layer.net.open(cx, own.receiver.upper(), both)
    };
    // A host of ours by which the peer spoke to all does not do.
    let net = open(own.state.local_part()).or_else(|_| open(Part::Any))?;
    net.head().set_tag(own.mark.get());
    if let Some(old) = own.state.net.replace(Some(net.clone())) {
        old.close(cx);
    }
    Ok(net)
}
