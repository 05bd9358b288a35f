//! Questions about the hosts on a link: how a host is reached, which host is behind an address,
//! when that changes, and what hosts say of themselves in packets of address resolution.

use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::object::{ProtocolRef, SessionRef};
use xk_core::participant::{Part, Participants};
use xk_core::{Answer, HostAddr, Kernel, Reason, question, reason::Class};

use crate::control::PseudoHeader;

/// The host behind the station that sent a frame is not known.
pub static UNKNOWN_STATION: Reason = Reason::new("unknown station", Class::NotMine);

/// Asked of a network layer: how a host is reached now.
#[derive(Clone, Debug)]
pub struct HostRoute {
    /// In: the host.
    pub host: HostAddr,
    /// Out: the protocol below over which it goes; `None` if it stays here or there is no way.
    pub over: Option<ProtocolRef>,
    /// Out: true if the host is on that link itself, and not behind a router.
    pub direct: bool,
}

question!(HostRoute { host, over, direct }, "host-route", Ask);

/// Question for the host of a hardware address, as far as it is known now.
#[derive(Clone, Copy, Debug)]
pub struct HostAt {
    /// In: the address.
    pub address: [u8; 6],
    /// Out: the host; the lowest if the station is several.
    pub host: HostAddr,
}

question!(HostAt { address, host }, "host-at", Ask);

/// Asked of the layer above a link: from now on tell me by [`HostChanged`] whenever more or less is
/// known of one of its hosts.
#[derive(Clone, Debug)]
pub struct WatchHosts {
    /// The protocol to be told.
    pub watcher: ProtocolRef,
}

question!(WatchHosts { watcher }, "watch-hosts", Tell, standing);

/// The watchers of the hosts on a link, at most 16.
#[derive(Default)]
pub struct Watchers(RefCell<Vec<ProtocolRef>>);

impl Watchers {
    /// Lets a watcher be told. Unknown if there are too many.
    pub fn add(&self, watcher: &ProtocolRef) -> Answer {
        let mut all = self.0.borrow_mut();
        if !all.contains(watcher) && all.len() < 16 {
            all.push(watcher.clone());
        }
        if all.contains(watcher) { Answer::Answered } else { Answer::Unknown }
    }

    /// Tells the watchers that more or less is known of a host now.
    pub fn tell(&self, cx: &Kernel, host: HostAddr) {
        let all = self.0.borrow().clone();
        for watcher in all {
            // A watcher need not care.
            let _ = watcher.ask(cx, HostChanged { host });
        }
    }

    /// Forgets all; for the layer's `stop`.
    pub fn clear(&self) {
        drop(self.0.take());
    }
}

/// Asked upwards of the watchers: the address of this host on the link has become known or has
/// changed, is not known any more, or the host has said something of itself. What holds now is to
/// be asked for.
#[derive(Clone, Copy, Debug)]
pub struct HostChanged {
    /// The host.
    pub host: HostAddr,
}

question!(HostChanged { host }, "host-changed", Tell);

/// Asked of address resolution: packets of this protocol type (RFC 826) are for this protocol, by
/// [`ArpReply`]; it is told of every exchange of ordinary ones by [`ArpExchange`].
#[derive(Clone, Debug)]
pub struct SubscribeType {
    /// The protocol type; not IPv4's.
    pub protocol_type: u16,
    /// The protocol that takes them.
    pub receiver: ProtocolRef,
}

question!(SubscribeType { protocol_type, receiver }, "subscribe-type", Tell, standing);

/// Asked of address resolution: sends a reply of a protocol type in the name of our hosts on the
/// link.
#[derive(Clone, Copy, Debug)]
pub struct SendArpReply {
    /// In: the protocol type.
    pub protocol_type: u16,
    /// In: one host of ours and the station and host it is for; `None` for all stations, once for
    /// each host of ours.
    pub to: Option<(HostAddr, [u8; 6], HostAddr)>,
    /// Out: how many packets were sent: none before a host is ours.
    pub sent: usize,
}

question!(SendArpReply { protocol_type, to, sent }, "send-arp-reply", Ask);

/// Asked upwards of the taker of a protocol type: a reply of that type came.
#[derive(Clone, Copy, Debug)]
pub struct ArpReply {
    /// The protocol type.
    pub protocol_type: u16,
    /// The host that says it.
    pub host: HostAddr,
    /// The host's hardware address, as it says itself and as the frame shows.
    pub address: [u8; 6],
}

question!(ArpReply { protocol_type, host, address }, "arp-reply", Tell);

/// Asked upwards of the taker of a protocol type: one of our hosts has just answered this host's
/// request, or had its own answered.
#[derive(Clone, Copy, Debug)]
pub struct ArpExchange {
    /// Ours.
    pub own: HostAddr,
    /// The other.
    pub host: HostAddr,
    /// The host's hardware address.
    pub address: [u8; 6],
}

question!(ArpExchange { own, host, address }, "arp-exchange", Tell);

/// Whether a host on the link takes messages of virtual protocols in frames of their own (paper
/// 001, section 3.1). Answered by what keeps a table of such hosts; where none does, all are
/// taken to.
#[derive(Clone, Copy, Debug)]
pub struct RunsVirtual {
    /// In: the host.
    pub host: HostAddr,
    /// In: the hardware address that it is known to have.
    pub address: [u8; 6],
    /// Out: whether it does, at that address.
    pub runs: bool,
}

question!(RunsVirtual { host, address, runs }, "runs-virtual", Ask);

/// Asked of a session: whether its peer is on the link itself, and answers as soon as a link lets
/// it. Answered by what chooses between a link and a network; it holds for the moment, since hosts
/// move.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerOnLink {
    /// Out.
    pub on_link: bool,
}

question!(PeerOnLink { on_link }, "peer-on-link", Ask);

/// Asked upwards by what chooses once, when a session is opened: a session opened to this host now
/// may go another way.
#[derive(Clone, Copy, Debug)]
pub struct WayChanged {
    /// The host.
    pub host: HostAddr,
}

question!(WayChanged { host }, "way-changed", Tell, upward);

/// Whether the peer of a session may be behind routers, so that an answer takes long.
pub fn is_far(cx: &Kernel, session: &SessionRef) -> bool {
    match session.ask(cx, PeerOnLink::default()) {
        Some(asked) => !asked.on_link,
        // Only an internet layer has one.
        None => session.ask(cx, PseudoHeader::default()).is_some(),
    }
}

/// The host that a session made by a message leads to: as the participants of its `open_done` name
/// it; if they name a station, as `link`, the layer above the Ethernet, knows it.
///
/// # Errors
/// [`UNKNOWN_STATION`].
pub fn peer_host(
    cx: &Kernel,
    link: &ProtocolRef,
    lower: &SessionRef,
    mut participants: Participants,
) -> Result<HostAddr, &'static Reason> {
    let named = participants.peer_mut().ok().and_then(|peer| peer.pop());
    if let Some(Part::Host(host)) = named {
        return Ok(host);
    }
    let host = HostAddr::UNSPECIFIED;
    if let Some(Part::Ether(address)) = named {
        let found = link.ask(cx, HostAt { address, host });
        return found.map(|found| found.host).ok_or(&UNKNOWN_STATION);
    }
    let found = lower.ask(cx, crate::control::PeerHost { host });
    found.map(|found| found.host).ok_or(&UNKNOWN_STATION)
}

/// Whether a host is on the link above which `link` is, as the network layer `net` sees it.
pub fn is_on_link(cx: &Kernel, net: &ProtocolRef, link: &ProtocolRef, host: HostAddr) -> bool {
    let asked = HostRoute { host, over: None, direct: false };
    let found = net.ask(cx, asked).filter(|route| route.direct);
    let Some(over) = found.and_then(|route| route.over) else {
        return false;
    };
    let station = |protocol: &ProtocolRef| {
        let own = protocol.ask(cx, crate::control::MyEther::default());
        own.map(|own| own.address)
    };
    // Layers that only look on may lie between: the station is the same.
    over == *link || station(&over).is_some_and(|own| station(link) == Some(own))
}
