//! The protocol object: opens, enables, demultiplexes.

use crate::config::{self, Config};
use crate::interface::Kind;
use crate::path::NextHop;
use crate::receive::Front;
use crate::session::IpSession;
use crate::shared::{
    FLAG_CAST, FLAG_LOOP, Key, Shared, TOKEN_LOOP, TOKEN_PATH_MTU, TOKEN_REASSEMBLY,
};
use crate::wire::{DATAGRAM_LEN_MAX, HEADER_LEN, Header, MTU_MIN, Plain};
use alloc::rc::Rc;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{BURST_MAX, Burst, Enable, Glance, OpenError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::{Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef};
use xk_core::{SessionRef, Upper};
use xk_kit::control::{ClaimHost, MaxPacket, OptPacket};
use xk_kit::net::addr::{Ipv4, ipv4};
use xk_kit::net::attribute::{Arrived, Ecn, LinkCast};

/// One instance: one host.
pub struct Ip {
    pub(crate) shared: Rc<Shared>,
}

/// Packet that an interface carries if no layer below knows: as much as Ethernet.
const MTU_UNKNOWN: u32 = 1500;

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let interfaces = config::interfaces(build)?;
    let routes = config::routes(build, &interfaces)?;
    let shared = Shared::new(build.cx, Config::of(build)?, interfaces, routes);
    build.add(Ip { shared: Rc::new(shared) })
}

/// The number that selects an upper protocol: an octet on the wire.
fn number_on(cx: &Kernel, this: &ProtocolRef, upper: Upper<'_>) -> Result<u8, OpenError> {
    let number = upper.number_on(cx, this)?;
    u8::try_from(number).map_err(|_| OpenError::Address(AddressError::OutOfRange))
}

impl Ip {
    /// Asks one interface's layer below what it carries, and tells it our hosts and groups.
    fn start_interface(&self, cx: &Kernel, at: usize) {
        let Some(interface) = self.shared.interfaces.list.get(at) else {
            return;
        };
        let lower = &interface.lower;
        let known = lower.ask(cx, OptPacket::default()).map(|q| q.octets);
        let known = known.or_else(|| lower.ask(cx, MaxPacket::default()).map(|q| q.octets));
        let mtu = known.unwrap_or(MTU_UNKNOWN);
        let mtu = mtu.clamp(MTU_MIN as u32, DATAGRAM_LEN_MAX as u32) as u16;
        let configured = self.shared.config.mtu.unwrap_or(mtu);
        interface.mtu.set(configured.min(mtu));
        for address in &interface.addresses {
            // A link with one peer has no use for it.
            let host = address.addr().into();
            let _ = lower.ask(cx, ClaimHost { host });
        }
        for group in self.shared.interfaces.memberships.of_interface(at) {
            self.shared.tell_link(cx, at, group, true);
        }
    }

    /// Takes any packet.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        // What a session is there for: its key has been looked at closely before it was made.
        if let Some(plain) = message.peek::<HEADER_LEN>().and_then(Plain::parse)
            && plain.total_len() <= message.len()
            && message.attribute::<LinkCast>().is_none()
            && let Some(session) = self.shared.sessions.get(&Key::of_plain(plain))
        {
            message.truncate(plain.total_len());
            // Cannot fail: the header was just seen.
            let _ = message.strip(HEADER_LEN);
            if plain.is_marked() {
                mark(&mut message);
            }
            if self.shared.tells(plain.protocol()) {
                tell(&mut message, &plain.octets());
            }
            return match session.pop(cx, message) {
                Ok(()) => Ok(()),
                Err(refused) => self.refused_plain(cx, this, plain, refused),
            };
        }
        self.receive(cx, this, Some(lower), message)
    }

    /// Hands up the first packets of a burst, all that belong to the session of the first.
    fn pop_run(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        first: Plain,
        key: Key,
        session: SessionRef,
        burst: Burst<'_>,
    ) {
        let mut headers = [first; BURST_MAX];
        let run = burst.count_while(|at, glance| match plain(&glance) {
            Some(header) if Key::of_plain(header) == key => {
                headers[at % BURST_MAX] = header;
                true
            }
            _ => false,
        });
        let before = burst.taken();
        let part = burst.first(run).behind(HEADER_LEN);
        while let Err(refused) = session.pop_burst(cx, part) {
            let at = (burst.taken() - before).wrapping_sub(1);
            // A refusal is answered before the next packet goes up.
            self.refused_own(cx, this, headers[at % BURST_MAX], refused);
            if !part.goes_on(&session) {
                break;
            }
        }
    }

    /// A whole datagram to us alone was refused above.
    #[cold]
    #[inline(never)]
    fn refused_plain(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        header: Plain,
        refused: Refused,
    ) -> Result<(), Refused> {
        self.refused_own(cx, this, header, refused);
        Ok(())
    }

    #[cold]
    fn refused_own(&self, cx: &Kernel, this: &ProtocolRef, header: Plain, refused: Refused) {
        // A session that a broadcast has made takes those that follow this way.
        let cast = self.shared.interfaces.is_many(Key::of_plain(header).local());
        self.shared.refused(cx, this, &Front::copy(&header.octets()), cast, refused);
    }

    /// The local host that a session to `peer` gets, and the flags of its key.
    fn local_for(&self, local: Wild<Ipv4>, peer: Ipv4) -> Result<(Ipv4, u16), OpenError> {
        let interfaces = &self.shared.interfaces;
        let next = self.shared.next_hop(local.value(), peer);
        let next = next.ok_or(OpenError::NoRoute)?;
        let (chosen, flags) = match next {
            NextHop::Loop => (Some(peer), FLAG_LOOP),
            NextHop::Out { interface, next_hop } => {
                let flags = match interfaces.is_many(peer) {
                    true => FLAG_CAST,
                    false => 0,
                };
                (interfaces.source(interface, next_hop), flags)
            }
        };
        let local = match local {
            Wild::Any => chosen.ok_or(OpenError::NoRoute)?,
            Wild::Is(host) => {
                let fits = match interfaces.kind(host) {
                    Kind::Own => true,
                    Kind::Loopback => flags == FLAG_LOOP,
                    // A host that asks for its address has none yet (RFC 1122, section 3.2.1.3).
                    _ => host == Ipv4::UNSPECIFIED && flags == FLAG_CAST,
                };
                if !fits {
                    return Err(OpenError::Address(AddressError::OutOfRange));
                }
                host
            }
        };
        Ok((local, flags))
    }
}

impl Protocol for Ip {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for (at, interface) in self.shared.interfaces.list.iter().enumerate() {
            let any = Participants::local(Part::Any);
            let _ = interface.lower.open_enable(cx, Upper::new(this), any)?;
            self.start_interface(cx, at);
        }
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = number_on(cx, this, upper)?;
        let peer = ipv4(Wild::Is(participants.peer_mut()?.pop_host()?.definite()?))?;
        let local = match participants.local_mut()?.pop_host()? {
            Wild::Any => Wild::Any,
            host => Wild::Is(ipv4(host)?),
        };
        let (local, flags) = self.local_for(local, peer)?;
        let key = Key::new(local, peer, u16::from(number) | flags);
        let sessions = &self.shared.sessions;
        if let Some(session) = sessions.found(&key, upper.receiver)? {
            return Ok(session);
        }
        let body = IpSession::new(&self.shared, key, local, upper.receiver);
        body.resolve(cx, this)?;
        sessions.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let number = number_on(cx, this, upper)?;
        let host = ipv4(participants.local_mut()?.pop_host()?)?.to_bits();
        let is_same = |(_, other): &(u32, u8)| *other == number;
        self.shared.enables.enable((host, number), upper.receiver.clone(), is_same)?;
        Ok(Enable(u64::from(host) << 8 | u64::from(number)))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        let (host, number) = ((enable.0 >> 8) as u32, (enable.0 & 0xff) as u8);
        self.shared.enables.unbind(&(host, number));
    }

    /// A session to a next hop that has ended by itself, or with what it stood on. That is no end
    /// of those above, which find out here, for a look at each packet would cost each.
    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if lower.head().opens() > 0 {
            self.shared.outdate();
        }
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if let Some(octets) = message.peek_in_place::<HEADER_LEN>()
            && let Some(plain) = Plain::of_whole(octets, message.len())
            && !message.has_attributes()
            && !plain.is_marked()
            && !self.shared.tells(plain.protocol())
            && let Some(session) = self.shared.sessions.latest(&Key::of_plain(plain))
        {
            message.strip_in_place(HEADER_LEN);
            return match session.pop(cx, message) {
                Ok(()) => Ok(()),
                Err(refused) => self.refused_plain(cx, this, plain, refused),
            };
        }
        self.demux_other(cx, this, lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while burst.goes_on(lower) {
            if let Some(first) = burst.peek(0).and_then(|first| plain(&first))
                && !self.shared.tells(first.protocol())
                && let key = Key::of_plain(first)
                && let Some(session) = self.shared.sessions.get(&key)
            {
                self.pop_run(cx, this, first, key, session, burst);
            } else if let Some(message) = burst.next() {
                self.demux_other(cx, this, lower, message)?;
            }
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.answer(cx, this, ask)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.shared.sessions);
        tables.map("passive", self.shared.enables.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.shared.interfaces.list.first().map(|i| &i.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            TOKEN_LOOP => {
                if let Some((payer, packet)) = self.shared.take_looped() {
                    // A refusal of our own packet is counted, and nothing is below to hear of it.
                    let receive = || drop(self.receive(cx, this, None, packet));
                    match payer {
                        Some(payer) => cx.charging(payer, receive),
                        None => receive(),
                    }
                }
            }
            TOKEN_REASSEMBLY => self.expire_fragments(cx, this),
            TOKEN_PATH_MTU => self.shared.expire_path_mtus(cx, this),
            _ => {}
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.shared.clear(cx);
    }
}

/// Tells the layer above that a router has marked this (RFC 3168, section 5).
pub(crate) fn mark(message: &mut Message) {
    // If a message is full of attributes, this mark is lost as a packet would be: none but its
    // sender is the slower.
    let _ = message.set_attribute(Ecn::Experienced);
}

/// Tells the layer above what the header said that this has arrived with.
pub(crate) fn tell(message: &mut Message, header: &[u8; HEADER_LEN]) {
    let [_, class, _, _, _, _, _, _, hops, _, _, _, _, _, _, _, a, b, c, d] = *header;
    // A message full of attributes goes without.
    let _ = message.set_attribute(Arrived { to: [a, b, c, d].into(), hops, class });
}

/// The header of a packet, if that is a whole datagram to us alone and no longer than it says, with
/// nothing to tell above.
#[inline(always)]
fn plain(glance: &Glance<HEADER_LEN>) -> Option<Plain> {
    let header = Plain::of_whole(&glance.octets, glance.len)?;
    (!glance.has_attributes && !header.is_marked()).then_some(header)
}

/// The key of the session that a packet belongs to.
#[inline]
pub(crate) fn key_of(header: &Header, flags: u16) -> Key {
    Key::new(header.dst, header.src, u16::from(header.protocol) | flags)
}
