//! Shared parts of layers with ports: participants, receivers by port, and facts about the session
//! below.

use crate::control::{
    MaxPacket, MinPacket, MyHost, MyPort, OptPacket, PeerHost, PeerPort, PseudoHeader,
    SpecificDestination,
};
use crate::net::attribute::{LinkCast, Peer, Sending};
use crate::net::template::{HeaderField, Headers};
use crate::rpc::call::LargestReply;
use crate::{Checksum, Turns};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::Secret;
use xk_core::map::{Map, MapStats, Receives};
use xk_core::object::{OpenError, PushError};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason::{self, Class, Reason};
use xk_core::{
    Ask, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, SessionRef,
};

/// Any host of ours.
pub const ANY_HOST: HostAddr = HostAddr::UNSPECIFIED;
/// The first port that is no service's by its number: those below are of the system's services, and
/// some of them answer everything (RFC 6335, section 6).
pub const USER_PORT_FIRST: u16 = 1024;
/// The first ephemeral port (RFC 6335, section 6); the last is 65535.
const EPHEMERAL_FIRST: u16 = 49_152;
/// Number of ephemeral ports.
const EPHEMERAL_COUNT: u16 = 16_384;
/// Lower sessions whose answers are remembered.
const ORIGINS_MAX: usize = 256;

/// The peer wants no reply: it sent from port zero.
pub static NO_REPLY: Reason = Reason::new("no reply wanted", Class::Bad);
/// A message to send that names no peer.
pub static NO_PEER: Reason = Reason::new("no peer", Class::Bad);
/// No protocol of the peer takes this port, as the network said before.
pub static UNREACHABLE: Reason = Reason::new("unreachable", Class::Bad);
/// A message that has no room for one more attribute.
pub static ATTRIBUTES_FULL: Reason = Reason::new("attributes full", Class::Exhausted);

/// Returns one more copy of a message for one of several peers. A copy that finds no buffer is
/// counted at the protocol of the session `this`, as a message that is dropped is.
///
/// # Errors
/// [`PushError::NoBuffers`].
pub fn copy_of(cx: &Kernel, this: &SessionRef, message: &Message) -> Result<Message, PushError> {
    message.try_clone().map_err(|_| {
        this.count_drop(cx, &reason::NO_BUFFERS);
        PushError::NoBuffers
    })
}

/// The number of the offer of a local port and host; [`ANY_HOST`] for any. It is that of the
/// [`Enable`](xk_core::object::Enable), too. An IPv4 host has its bits in it, another a hash of 47
/// bits: which hosts are ours strangers do not choose.
#[must_use]
pub fn offer(port: u16, host: HostAddr) -> u64 {
    let number = match host.to_v4() {
        Some(host) => host.to_bits().into(),
        None => {
            let mixed = host.words().into_iter().fold(0u64, |sum, word| {
                // The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
                // pseudorandom number generators", 2014).
                let mix = (sum ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mix = (mix ^ mix >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mix = (mix ^ mix >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                mix ^ mix >> 31
            });
            1 << 47 | mixed >> 17
        }
    };
    u64::from(port) << 48 | number
}

/// The port of an offer.
pub fn port_of(offer: u64) -> u16 {
    (offer >> 48) as u16
}

/// True for offers of this port, at whichever host: it belongs to one user.
pub fn is_of_port(port: u16) -> impl Fn(&u64) -> bool {
    move |offer| port_of(*offer) == port
}

/// True if this port belongs to another user than the one that `upper` is charged to; 0 is any.
pub fn is_anothers<T: Clone + Receives>(
    offers: &Map<u64, T>,
    port: u16,
    upper: &ProtocolRef,
) -> bool {
    port > 0 && offers.is_anothers(upper.head().payer(), is_of_port(port))
}

/// The receiver of messages to this port and host, which may be a broadcast or a group.
pub fn receiver<T: Clone>(offers: &Map<u64, T>, port: u16, host: Option<HostAddr>) -> Option<T> {
    let at = |host| offers.get(&offer(port, host));
    host.and_then(at).or_else(|| at(ANY_HOST))
}

/// True if all that takes messages to this port and host `fits`.
pub fn is_free<T: Clone>(
    offers: &Map<u64, T>,
    (port, host): (u16, HostAddr),
    fits: impl Fn(&T) -> bool,
) -> bool {
    let at = |host| offers.get(&offer(port, host));
    [ANY_HOST, host].into_iter().filter_map(at).all(|receiver| fits(&receiver))
}

/// Takes the ports off the participants of an active open: ours, 0 for any that is free, and the
/// peer's, 0 if the peer is `*`, everybody. Where no local host is left any will do.
///
/// # Errors
/// [`AddressError`] if a port is zero, or the peer's any.
pub fn pop_ports(ends: &mut Participants) -> Result<(u16, u16), AddressError> {
    let port = pop_own(ends)?;
    let peer = ends.peer_mut()?;
    match !peer.is_empty() && peer.parts().all(|part| *part == Part::Any) {
        true => Ok((port, 0)),
        false => Ok((port, definite(peer.pop_port()?)?)),
    }
}

/// Takes our port off the participants of an active open, 0 for any that is free. Where no local
/// host is left any will do.
fn pop_own(ends: &mut Participants) -> Result<u16, AddressError> {
    let local = ends.local_mut()?;
    let port = match local.pop_port()? {
        Wild::Any => 0,
        port => definite(port)?,
    };
    if local.is_empty() {
        local.push(Part::Any);
    }
    Ok(port)
}

/// Takes both parts off the participants of an active open to several peers: our port, 0 for any
/// that is free, and host; and the port and host of each peer, in order and each once.
///
/// # Errors
/// [`AddressError`] if a port or host of a peer is not definite; [`AddressError::Count`] if a peer
/// has no host, since a link without addresses has one other end.
pub fn pop_peers(ends: &mut Participants) -> Result<((u16, HostAddr), Vec<Peer>), AddressError> {
    let own = (pop_own(ends)?, local_host(ends.local_mut()?)?);
    let peer = |peer: &mut Participant| {
        let port = definite(peer.pop_port()?)?;
        match peer.is_empty() {
            true => Err(AddressError::Count),
            false => Ok(Peer { host: peer.pop_host()?.definite()?, port }),
        }
    };
    let mut peers = ends.peers_mut().iter_mut().map(peer).collect::<Result<Vec<_>, _>>()?;
    peers.sort_unstable();
    peers.dedup();
    Ok((own, peers))
}

/// Takes the port off the participants of an `open_enable`; answers it with the host.
///
/// # Errors
/// [`AddressError`] if the port is not definite, or what is left is no host.
pub fn pop_offer(ends: &mut Participants) -> Result<(u16, HostAddr), AddressError> {
    let local = ends.local_mut()?;
    let port = definite(local.pop_port()?)?;
    Ok((port, local_host(local)?))
}

/// Answers `my-port`, `my-host`, `peer-port` and `peer-host` from what is known of both ends, and
/// that no message arrives longer than it was sent (`min-packet`); true if it was one of them.
pub fn answer(
    ask: &mut Ask<'_>,
    (port, host): (u16, Option<HostAddr>),
    peer: Option<(u16, Option<HostAddr>)>,
) -> bool {
    let (peer_port, peer_host) = (peer.map(|peer| peer.0), peer.and_then(|peer| peer.1));
    if let Some(question) = ask.get::<MyPort>() {
        question.port = port;
    } else if let (Some(question), Some(host)) = (ask.get::<MyHost>(), host) {
        question.host = host;
    } else if let (Some(question), Some(port)) = (ask.get::<PeerPort>(), peer_port) {
        question.port = port;
    } else if let (Some(question), Some(host)) = (ask.get::<PeerHost>(), peer_host) {
        question.host = host;
    } else if let Some(question) = ask.get::<MinPacket>() {
        question.octets = 0;
    } else {
        return false;
    }
    true
}

/// The host that is left of a local participant once its port is popped.
///
/// # Errors
/// [`AddressError`] if it is no host.
pub fn local_host(rest: &Participant) -> Result<HostAddr, AddressError> {
    let mut rest = rest.clone();
    if rest.is_empty() {
        return Ok(ANY_HOST);
    }
    let host = rest.pop_host()?;
    Ok(host.value().unwrap_or(ANY_HOST))
}

/// A definite port, which zero is not.
///
/// # Errors
/// [`AddressError`] if it is any, or zero.
fn definite(port: Wild<u16>) -> Result<u16, AddressError> {
    match port.definite()? {
        0 => Err(AddressError::OutOfRange),
        port => Ok(port),
    }
}

/// All ephemeral ports, from one on that cannot be foretold (RFC 6056, section 3.3.1).
pub fn ephemerals(cx: &Kernel) -> impl Iterator<Item = u16> + use<> {
    let start = cx.random().below(EPHEMERAL_COUNT.into()) as u16;
    (0..EPHEMERAL_COUNT).map(move |n| EPHEMERAL_FIRST + (start + n) % EPHEMERAL_COUNT)
}

/// An ephemeral port that `is_free`.
///
/// # Errors
/// [`OpenError::Full`] if none is.
pub fn ephemeral(cx: &Kernel, is_free: impl Fn(u16) -> bool) -> Result<u16, OpenError> {
    ephemerals(cx).find(|port| is_free(*port)).ok_or(OpenError::Full)
}

/// Numbers that are chosen and not bound yet: what an open asks below may block, and another open
/// chooses meanwhile.
#[derive(Default)]
pub struct Choices(RefCell<Vec<u16>>);

/// A number that was chosen, and is left to no other while this lasts.
pub struct Choice<'a> {
    /// The number.
    pub number: u16,
    choices: &'a Choices,
}

impl Choices {
    /// The first of these numbers that `is_free` and was not chosen.
    ///
    /// # Errors
    /// [`OpenError::Full`] if there is none.
    pub fn choose(
        &self,
        numbers: impl IntoIterator<Item = u16>,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<Choice<'_>, OpenError> {
        let is_chosen = |number: &u16| self.0.borrow().contains(number);
        let is_left = |number: &u16| !is_chosen(number) && is_free(*number);
        let number = numbers.into_iter().find(is_left).ok_or(OpenError::Full)?;
        self.0.borrow_mut().push(number);
        Ok(Choice { number, choices: self })
    }
}

impl Drop for Choice<'_> {
    fn drop(&mut self) {
        self.choices.0.borrow_mut().retain(|number| *number != self.number);
    }
}

/// Answers about sizes from below hold for messages without this layer's header of so many octets.
pub fn less_header(ask: &mut Ask<'_>, header: usize) {
    let header = header as u32;
    let _ = ask.answer::<MaxPacket>(|q| q.octets = q.octets.saturating_sub(header));
    let _ = ask.answer::<OptPacket>(|q| q.octets = q.octets.saturating_sub(header));
    let _ = ask.answer::<LargestReply>(|q| q.octets = q.octets.saturating_sub(header));
}

/// The sums over a pseudo-header without its length.
#[derive(Clone, Copy, Debug)]
pub struct Pseudo {
    /// For messages that are sent.
    pub sent: Checksum,
    /// For those that arrive.
    pub received: Checksum,
    /// True if none may go or come without a checksum.
    pub is_required: bool,
}

/// Facts that a lower session tells about itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The sums over addresses and protocol number; `None` if the lower layer has none.
    pub pseudo: Option<Pseudo>,
    /// Our host.
    pub local: Option<HostAddr>,
    /// Destination of arriving messages: a local host, a broadcast or a group.
    pub destination: Option<HostAddr>,
    /// True if messages that arrive were sent to a broadcast or a group.
    pub many: bool,
    /// The peer's host.
    pub peer: Option<HostAddr>,
}

impl Origin {
    /// Asks a lower session.
    pub fn ask(cx: &Kernel, lower: &SessionRef) -> Self {
        let begun = |sum| {
            let mut begun = Checksum::new();
            begun.add_u32(sum);
            begun
        };
        let pseudo = lower.ask(cx, PseudoHeader::default()).map(|q| {
            let (sent, received) = (begun(q.sum_sent), begun(q.sum));
            Pseudo { sent, received, is_required: q.is_required }
        });
        let local = lower.ask(cx, MyHost::default()).map(|q| q.host);
        let sent_to = lower.ask(cx, SpecificDestination::default());
        Self {
            pseudo,
            local,
            destination: sent_to.map(|q| q.host).or(local),
            many: sent_to.is_some_and(|q| q.many),
            peer: lower.ask(cx, PeerHost::default()).map(|q| q.host),
        }
    }

    /// Puts a header behind those of the layers below that begins with the sender's port and the
    /// receiver's: ours and the peer's in what is sent. `header` makes it of the two; `fields` are
    /// those that are alike on both ways, and the checksum is at `checksum_at`.
    #[must_use]
    pub fn headers<const N: usize>(
        &self,
        below: Headers,
        (local, peer): (u16, u16),
        header: impl Fn((u16, u16)) -> [u8; N],
        (checksum_at, fields): (u8, &[(u8, HeaderField)]),
    ) -> Option<Headers> {
        let [sent, received] = [(local, peer), (peer, local)].map(header);
        let fields = |peer_at, sum: Option<Checksum>| {
            let known = sum.map(|sum| HeaderField::Sum { from: 0, pseudo: sum.folded() });
            let checksum = known.unwrap_or(HeaderField::Free(2));
            [&[(peer_at, HeaderField::Peer(2)), (checksum_at, checksum)], fields].concat()
        };
        let to = fields(2, self.pseudo.map(|pseudo| pseudo.sent));
        let from = fields(0, self.pseudo.map(|pseudo| pseudo.received));
        below.with((&sent, &to), (&received, &from))
    }

    /// Destination of an arrived message. If the link cast it to many and no layer below knows the
    /// destination, that is all hosts.
    #[must_use]
    pub fn destination_of(&self, message: &Message) -> Option<HostAddr> {
        match self.many || !is_cast(message) {
            true => self.destination,
            false => Some(HostAddr::BROADCAST),
        }
    }

    /// Whether this message that has arrived was sent to more than one host.
    #[must_use]
    pub fn is_for_many(&self, message: &Message) -> bool {
        self.many || is_cast(message)
    }

    /// Both ends of a conversation between these ports, for `open_done`.
    #[must_use]
    pub fn participants(&self, local: u16, peer: u16) -> Participants {
        let participant = |host: Option<HostAddr>, port| {
            let host = host.map(|host| Participant::of(Part::Host(host)));
            host.unwrap_or_default().with(Part::port(port))
        };
        Participants::pair(participant(self.local, local), participant(self.peer, peer))
    }
}

/// Our host that a message comes from: the one that its sender asks for, or else this one.
#[must_use]
pub fn source_of(message: &Message, usual: HostAddr) -> HostAddr {
    let asked = match message.has_attributes() {
        true => message.attribute::<Sending>().map(|sending| sending.from),
        false => None,
    };
    asked.filter(|host| !host.is_unspecified()).unwrap_or(usual)
}

/// Whether the link has cast a message for many.
fn is_cast(message: &Message) -> bool {
    message.has_attributes() && message.attribute::<LinkCast>().is_some()
}

/// Facts about lower sessions, each asked once while there is room.
pub struct Origins {
    known: Map<u64, Origin>,
    asked: Turns<u64>,
}

impl Origins {
    /// None yet; `secret` as for a [`Map`].
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self { known: Map::new(secret, ORIGINS_MAX), asked: Turns::default() }
    }

    /// Facts about this session; empty if a question to it was lost.
    pub fn of(&self, cx: &Kernel, lower: &SessionRef) -> Origin {
        self.learned(cx, lower).unwrap_or_default()
    }

    /// Facts about this session, for use at once.
    ///
    /// # Errors
    /// [`reason::NO_ANSWER`] if a question to it was lost.
    pub fn learned(&self, cx: &Kernel, lower: &SessionRef) -> Result<Origin, &'static Reason> {
        let id = lower.id().0;
        self.known.get(&id).map_or_else(|| self.ask(cx, lower, id), Ok)
    }

    #[cold]
    fn ask(&self, cx: &Kernel, lower: &SessionRef, id: u64) -> Result<Origin, &'static Reason> {
        let _turn = self.asked.take(cx, id);
        if let Some(origin) = self.known.get(&id) {
            return Ok(origin);
        }
        let origin = cx.unless_lost(|| Origin::ask(cx, lower))?;
        if self.known.len() >= ORIGINS_MAX {
            self.known.clear();
        }
        let _ = self.known.bind(id, origin);
        Ok(origin)
    }

    /// Figures of the lookups.
    pub fn stats(&self) -> MapStats {
        self.known.stats()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_port_of_a_host_has_a_number_of_its_own(
            hosts: [u128; 2], ports: [u16; 2], v4: [u32; 2], scope in 1u32..9,
        ) {
            let [a, b] = hosts.map(|bits| HostAddr::v6(bits.into(), 0));
            let link = [0, scope].map(|scope| HostAddr::v6((0xfe80 << 112 | 1u128).into(), scope));
            let v4 = v4.map(|bits| HostAddr::from(bits.to_be_bytes()));
            let all = [a, b, link[0], link[1], v4[0], v4[1], ANY_HOST];
            for (one, other) in all.iter().flat_map(|one| all.map(|other| (*one, other))) {
                for to in ports {
                    let is_same = one == other && ports[0] == to;
                    let numbers = (offer(ports[0], one), offer(to, other));
                    prop_assert_eq!(numbers.0 == numbers.1, is_same, "{} {}", one, other);
                }
            }
        }
    }
}
