//! The ways of a session: over the link, by IP, or either.

use crate::below::Below;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{OpenError, ProtocolId, SessionSlot, WeakSession};
use xk_core::{HostAddr, Kernel, Part, Participants, ProtocolRef, SessionRef};
use xk_kit::control::{MyHost, PeerEther, PeerHost, max_packet};
use xk_kit::net::virtual_layer::VirtualSession;

/// Interval at which the routes are looked at again for hosts that have moved on the link or off
/// it.
const LOOK: Duration = Duration::from_secs(20);
/// Octets of the largest message on the link if no layer there knows: an Ethernet's.
const LINK_MAX: u32 = 1500;
/// Stations whose sessions lead to one session: a few more than a host has addresses at a time.
const HEARD_MAX: usize = 8;

/// One instance of the layer.
pub(crate) struct Vip {
    /// The layers below; ways over the link are opened for the marks of sessions.
    pub(crate) below: Below<u32>,
    /// Whether the timer for the next look at the routes is set.
    pub(crate) looks: Cell<bool>,
}

/// The session object.
pub(crate) type VipSession = VirtualSession<Vip>;

/// State of a session.
#[derive(Default)]
pub(crate) struct Lowers {
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
        if heard.len() >= HEARD_MAX
            && let Some(oldest) = heard.remove(0).upgrade()
        {
            oldest.head().set_tag(0);
        }
        heard.push(lower.downgrade());
    }

    /// A session of `net` through which messages of the peer come.
    pub(crate) fn heard_by(&self, net: ProtocolId) -> Option<SessionRef> {
        let heard = self.heard.borrow();
        let mut heard = heard.iter().filter_map(WeakSession::upgrade);
        self.net.get().or_else(|| heard.find(|session| session.head().protocol() == net))
    }

    /// Releases stations that are another host by now: the next message through one finds out
    /// again whose it is.
    fn unhear(&self, mark: u32, is_other: impl Fn(&SessionRef) -> bool) {
        let mut heard = self.heard.take();
        heard.retain(|weak| {
            let Some(lower) = weak.upgrade() else {
                return false;
            };
            let is_kept = !lower.head().is_closed() && !is_other(&lower);
            if !is_kept && lower.head().tag() == mark {
                lower.head().set_tag(0);
            }
            is_kept
        });
        self.heard.borrow_mut().extend(heard);
    }

    /// Releases both ways; others are opened for the next message that needs them.
    fn lose(&self, cx: &Kernel) {
        self.limit.set(0);
        close(cx, &self.link);
        close(cx, &self.net);
    }

    /// Releases the ways and all stations.
    pub(crate) fn end(&self, cx: &Kernel, mark: u32) {
        self.unhear(mark, |_| true);
        self.lose(cx);
    }
}

/// Releases a way.
pub(crate) fn close(cx: &Kernel, way: &SessionSlot) {
    if let Some(way) = way.take() {
        way.head().set_tag(0);
        way.close(cx);
    }
}

/// Whether the peer would know us by the host of ours that the session is for: in frames we are
/// that of the link.
fn is_known_by_frames(own: &VipSession, cx: &Kernel) -> bool {
    let on_link = || own.all.layer.below.link.ask(cx, MyHost::default());
    match own.state.local_part() {
        Part::Host(local) => on_link().is_none_or(|on_link| on_link.host == local),
        _ => true,
    }
}

/// Releases stations that have been this host and are another one by now.
pub(crate) fn unhear(own: &VipSession, cx: &Kernel) {
    let (host, link) = (own.host(), own.state.link.get());
    own.state.unhear(own.mark.get(), |lower| {
        // The way by IP knows hosts itself.
        lower.ask(cx, PeerHost::default()).is_none()
            && !own.all.layer.below.is_still(cx, lower, Some(host), link.as_ref())
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
                own.state.lose(cx);
                return;
            }
        }
    }
}

/// Looks at the ways once; answers how many moves were known then.
fn look(own: &VipSession, cx: &Kernel) -> u32 {
    let moves = own.state.moves.get();
    let on_link = own.all.layer.below.is_on_link(cx, own.host()) && is_known_by_frames(own, cx);
    let lost = own.state.link.live().is_none();
    if lost || !on_link {
        own.state.limit.set(0);
        close(cx, &own.state.link);
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

/// Takes a session into the slot of its way.
fn enter(own: &VipSession, cx: &Kernel, slot: &SessionSlot, way: SessionRef) {
    way.head().set_tag(own.mark.get());
    if let Some(old) = slot.replace(Some(way)) {
        old.close(cx);
    }
}

fn open_link(own: &VipSession, cx: &Kernel) -> Result<(), OpenError> {
    let (host, below) = (own.host(), &own.all.layer.below);
    let both = Participants::pair(own.state.local_part(), Part::Host(host));
    let open = || below.link.open(cx, own.receiver.upper(), both);
    let link = below.openings.during(host, own.mark.get(), open)?;
    enter(own, cx, &own.state.link, link);
    Ok(())
}

/// One more than the octets of the largest message that goes over the link now; 0 if none does.
fn limit(own: &VipSession, cx: &Kernel) -> usize {
    let Some(link) = own.state.link.get() else {
        return 0;
    };
    let max = max_packet(cx, &link, LINK_MAX) as usize + 1;
    if own.host().is_group() {
        return max;
    }
    let Some(known) = link.ask(cx, PeerEther::default()) else {
        return 0;
    };
    own.all.layer.below.absent.remove(&own.host());
    if own.all.layer.below.runs(cx, own.host(), known.address) { max } else { 0 }
}

/// Asks for the host's address unless it is known, or did not answer a short time ago.
pub(crate) fn resolve(own: &VipSession, cx: &Kernel) {
    let (below, host, now) = (&own.all.layer.below, own.host(), cx.now());
    let is_asked =
        own.host().is_group() || own.state.limit.get() > 0 || own.state.link.get().is_none();
    if is_asked || below.is_absent(now, host) {
        return;
    }
    below.note_absent(now, host);
    match cx.unless_lost(|| below.resolve(cx, host)) {
        Ok(Some(_)) => own.state.limit.set(limit(own, cx)),
        Ok(None) => {}
        Err(_) => drop(below.absent.remove(&host)),
    }
}

/// Opens the way by IP.
pub(crate) fn open_net(own: &VipSession, cx: &Kernel) -> Result<SessionRef, OpenError> {
    let open = |local| {
        let both = Participants::pair(local, Part::Host(own.host()));
        own.all.layer.below.net.open(cx, own.receiver.upper(), both)
    };
    // A host of ours by which the peer spoke to all does not do.
    let net = open(own.state.local_part()).or_else(|_| open(Part::Any))?;
    enter(own, cx, &own.state.net, net.clone());
    Ok(net)
}
