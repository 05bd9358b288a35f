//! Shared parts of drivers of Ethernets (`net/if_ethersubr.c`): headers, families, station
//! addresses.
//!
//! A driver makes an [`Arpcom`] for its interface, gives frames to [`Arpcom::ether_input`], and
//! sends by [`Arpcom::ether_output`]. The protocols above say which frames are theirs
//! ([`Arpcom::add_type`]) and how their addresses become stations' ([`Arpcom::add_resolver`]).

use crate::bsd::{Bsd, NETISR_ARP, NETISR_IP};
use crate::errno::{Errno, Result};
use crate::ifnet::{IFF_ALLMULTI, IFF_RUNNING, IFF_UP, Ifnet, count};
use crate::mbuf::{M_BCAST, M_MCAST, Mbuf};
use crate::sockaddr::{AF_UNSPEC, Sockaddr};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::{Kernel, Reason, reason};

/// Octets of the header.
pub const ETHER_HDR: usize = 14;
/// Octets of the headers of LLC and SNAP.
pub const SNAP_HDR: usize = 8;
/// The largest packet in a frame.
pub const ETHERMTU: usize = 1500;
/// The smallest frame, without its check sequence: what is shorter is padded.
pub const ETHERMIN: usize = 60;
/// All stations.
pub const BROADCAST: [u8; 6] = [0xff; 6];
/// Group addresses that a station joins at most.
pub const GROUPS_MAX: usize = 64;
/// LLC for SNAP: unnumbered information for and from it.
const LLC: [u8; 3] = [0xaa, 0xaa, 3];

/// Name of the protocol that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encap {
    /// Ethernet II: a type.
    Type(u16),
    /// IEEE 802.3 with LLC and SNAP: organisation and protocol.
    Snap([u8; 5]),
}

/// A packet with its station's address.
pub struct Resolved {
    /// The packet.
    pub m: Mbuf,
    /// The station, or a group.
    pub to: [u8; 6],
    /// Name of the protocol in the frame.
    pub encap: Encap,
}

/// Takes frames of a type by itself, with their stations, which the software interrupt's queues do
/// not carry.
pub trait EtherInput {
    /// A packet of a frame, its header taken off. At splnet.
    fn ether_packet(&self, cx: &Kernel, m: Mbuf, to: [u8; 6], from: [u8; 6]);
}

/// Resolves addresses of a family to stations' addresses: ARP, AARP.
pub trait Resolve {
    /// The station of `dst`; none if the packet is held until it is known (`arpresolve`).
    ///
    /// # Errors
    /// [`Errno`]: the packet is freed.
    fn resolve(
        &self,
        cx: &Kernel,
        ac: &Rc<Arpcom>,
        m: Mbuf,
        dst: &Sockaddr,
    ) -> Result<Option<Resolved>>;
}

/// Common part of the interfaces of Ethernets (`struct arpcom`).
pub struct Arpcom {
    bsd: Rc<Bsd>,
    /// The interface (`ac_if`).
    pub ac_if: Rc<Ifnet>,
    enaddr: Cell<[u8; 6]>,
    types: RefCell<Vec<(Encap, u32)>>,
    inputs: RefCell<Vec<(Encap, Weak<dyn EtherInput>)>>,
    resolvers: RefCell<Vec<(u8, Rc<dyn Resolve>)>>,
    groups: RefCell<Vec<[u8; 6]>>,
}

impl Arpcom {
    /// Attaches this interface: `ether_ifattach`. Its families come later.
    pub fn new(bsd: &Rc<Bsd>, ifp: Rc<Ifnet>) -> Rc<Self> {
        ifp.if_hdrlen.set(ETHER_HDR);
        if ifp.if_mtu.get() == 0 {
            ifp.if_mtu.set(ETHERMTU);
        }
        let ac = Rc::new(Self {
            bsd: Rc::clone(bsd),
            ac_if: ifp,
            enaddr: Cell::new([0; 6]),
            types: RefCell::default(),
            inputs: RefCell::default(),
            resolvers: RefCell::default(),
            groups: RefCell::default(),
        });
        bsd.add_arpcom(Rc::clone(&ac));
        ac
    }

    /// The station's address (`ac_enaddr`).
    pub fn enaddr(&self) -> [u8; 6] {
        self.enaddr.get()
    }

    /// Sets the station's address.
    pub fn set_enaddr(&self, address: [u8; 6]) {
        self.enaddr.set(address);
    }

    /// Frames of this protocol go to the software interrupt `bit`.
    pub fn add_type(&self, encap: Encap, bit: u32) {
        let mut types = self.types.borrow_mut();
        types.retain(|(known, _)| *known != encap);
        types.push((encap, bit));
    }

    /// Frames of this type go to `input` as long as it is there.
    ///
    /// # Errors
    /// [`Errno::EADDRINUSE`] if another takes them, or the subsystem's own protocol does.
    pub fn add_input(&self, encap: Encap, input: Weak<dyn EtherInput>) -> Result {
        let bit = self.types.borrow().iter().find(|(known, _)| *known == encap).map(|(_, b)| *b);
        // ARP is there for IP.
        let owner = if bit == Some(NETISR_ARP) { Some(NETISR_IP) } else { bit };
        let mut inputs = self.inputs.borrow_mut();
        inputs.retain(|(_, input)| input.strong_count() > 0);
        let is_taken = inputs.iter().any(|(known, _)| *known == encap);
        if is_taken || owner.is_some_and(|bit| self.bsd.has_netisr(bit)) {
            return Err(Errno::EADDRINUSE);
        }
        inputs.push((encap, input));
        Ok(())
    }

    /// Addresses of this family are resolved so.
    pub fn add_resolver(&self, family: u8, resolver: Rc<dyn Resolve>) {
        let mut all = self.resolvers.borrow_mut();
        all.retain(|(known, _)| *known != family);
        all.push((family, resolver));
    }

    /// Takes frames to this group from now on: `ether_addmulti`. Answers whether it is a new one.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it is none, [`Errno::ENOBUFS`] beyond [`GROUPS_MAX`].
    pub fn join(&self, group: [u8; 6]) -> Result<bool> {
        if group[0] & 1 == 0 {
            return Err(Errno::EINVAL);
        }
        let mut groups = self.groups.borrow_mut();
        if groups.contains(&group) {
            return Ok(false);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(Errno::ENOBUFS);
        }
        groups.push(group);
        Ok(true)
    }

    /// The groups whose frames it takes.
    pub fn groups(&self) -> Vec<[u8; 6]> {
        self.groups.borrow().clone()
    }

    /// Releases protocols, when the graph is taken down.
    pub(crate) fn stop(&self) {
        drop(self.resolvers.take());
    }

    /// Drops a frame of the driver's, counted at the interface's line and by `figure`.
    #[cold]
    fn refuse(&self, cx: &Kernel, figure: Option<&Cell<u64>>, why: &'static Reason) {
        if let Some(figure) = figure {
            count(figure);
        }
        self.bsd.count_drop(cx, &self.ac_if, why);
    }

    /// A frame of the driver's (`ether_input`): its header is taken off, and the packet queued for
    /// its protocol. At splimp.
    pub fn ether_input(&self, cx: &Kernel, m: Mbuf) {
        let ifp = &self.ac_if;
        count(&ifp.if_data.ipackets);
        ifp.if_data.ibytes.set(ifp.if_data.ibytes.get() + m.m_pkthdr().len as u64);
        let errors = Some(&ifp.if_data.ierrors);
        if !ifp.is(IFF_UP) {
            return self.refuse(cx, None, &reason::CLOSED);
        }
        let header = m.m_pullup(ETHER_HDR).ok().and_then(|m| {
            let header: [u8; ETHER_HDR] = *m.mtod().first_chunk()?;
            Some((m, header))
        });
        let Some((m, header)) = header else {
            return self.refuse(cx, errors, &reason::TRUNCATED);
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = header;
        let (to, from) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        let mut m = m;
        m.m_adj(ETHER_HDR as isize);
        if to == BROADCAST {
            m.set_flags(M_BCAST, 0);
        } else if to[0] & 1 != 0 {
            if !ifp.is(IFF_ALLMULTI) && !self.groups.borrow().contains(&to) {
                return self.refuse(cx, None, &reason::NOT_MINE);
            }
            m.set_flags(M_MCAST, 0);
        } else if to != self.enaddr.get() {
            return self.refuse(cx, None, &reason::NOT_MINE);
        }
        if to[0] & 1 != 0 {
            count(&ifp.if_data.imcasts);
        }
        // A group cannot send, and what this station sends does not come from others.
        if from[0] & 1 != 0 || from == self.enaddr.get() {
            return self.refuse(cx, errors, &reason::BAD_SOURCE);
        }
        let number = u16::from_be_bytes([t0, t1]);
        let (m, encap) = if usize::from(number) > ETHERMTU {
            (m, Encap::Type(number))
        } else {
            match snap(m, usize::from(number)) {
                Ok(found) => found,
                Err(why) => return self.refuse(cx, errors, why),
            }
        };
        let input = self.inputs.borrow().iter().find(|(known, _)| *known == encap).cloned();
        if let Some(input) = input.and_then(|(_, input)| input.upgrade()) {
            return input.ether_packet(cx, m, to, from);
        }
        let bit = self.types.borrow().iter().find(|(known, _)| *known == encap).map(|(_, b)| *b);
        match bit {
            Some(bit) => self.bsd.netisr_input(cx, bit, ifp, m),
            None => self.refuse(cx, Some(&ifp.if_data.noproto), &reason::NO_PROTOCOL),
        }
    }

    /// Sends a packet (`ether_output`): resolves its address, puts the header in front, queues the
    /// frame and starts the driver.
    ///
    /// # Errors
    /// [`Errno::ENETDOWN`], [`Errno::EAFNOSUPPORT`], [`Errno::ENOBUFS`]; those of the resolver.
    pub fn ether_output(self: &Rc<Self>, cx: &Kernel, m: Mbuf, dst: &Sockaddr) -> Result {
        let ifp = &self.ac_if;
        if !ifp.is(IFF_UP | IFF_RUNNING) {
            m.m_freem();
            return Err(Errno::ENETDOWN);
        }
        if dst.family() == AF_UNSPEC {
            let [d0, d1, d2, d3, d4, d5, _, _, _, _, _, _, t0, t1] =
                *dst.data().first_chunk().ok_or(Errno::EINVAL)?;
            let encap = Encap::Type(u16::from_be_bytes([t0, t1]));
            return self.send(cx, Resolved { m, to: [d0, d1, d2, d3, d4, d5], encap });
        }
        let resolver = {
            let all = self.resolvers.borrow();
            all.iter().find(|(family, _)| *family == dst.family()).map(|(_, r)| Rc::clone(r))
        };
        let Some(resolver) = resolver else {
            m.m_freem();
            return Err(Errno::EAFNOSUPPORT);
        };
        match resolver.resolve(cx, self, m, dst)? {
            Some(resolved) => self.send(cx, resolved),
            None => Ok(()),
        }
    }

    /// Sends a packet to a station or a group.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`]; [`Errno::EMSGSIZE`] if it is longer than the link takes.
    pub fn send(&self, cx: &Kernel, packet: Resolved) -> Result {
        let Resolved { m, to, encap } = packet;
        let ifp = &self.ac_if;
        let len = m.m_length();
        let (front, number) = match encap {
            Encap::Type(number) => (ETHER_HDR, number),
            Encap::Snap(_) => (ETHER_HDR + SNAP_HDR, (SNAP_HDR + len) as u16),
        };
        if len + front - ETHER_HDR > ifp.if_mtu.get() {
            m.m_freem();
            count(&ifp.if_data.oerrors);
            return Err(Errno::EMSGSIZE);
        }
        let mut m = m.m_prepend(front)?;
        let room = m.mtod_mut().and_then(|data| data.get_mut(..front)).ok_or(Errno::ENOBUFS)?;
        room[..6].copy_from_slice(&to);
        room[6..12].copy_from_slice(&self.enaddr.get());
        room[12..14].copy_from_slice(&number.to_be_bytes());
        if let Encap::Snap(protocol) = encap {
            room[14..17].copy_from_slice(&LLC);
            room[17..22].copy_from_slice(&protocol);
        }
        if to[0] & 1 != 0 {
            count(&ifp.if_data.omcasts);
        }
        ifp.if_snd.enqueue(m)?;
        ifp.if_data.obytes.set(ifp.if_data.obytes.get() + (len + front) as u64);
        ifp.if_start(cx);
        Ok(())
    }
}

/// The packet of an IEEE 802.3 frame, without padding and SNAP's header.
fn snap(mut m: Mbuf, length: usize) -> core::result::Result<(Mbuf, Encap), &'static Reason> {
    let padding = m.m_pkthdr().len.checked_sub(length).ok_or(&reason::BAD_LENGTH)?;
    m.m_adj(-(padding as isize));
    let mut m = m.m_pullup(SNAP_HDR).map_err(|_| &reason::TRUNCATED)?;
    let header: &[u8; SNAP_HDR] = m.mtod().first_chunk().ok_or(&reason::TRUNCATED)?;
    let [a, b, c, protocol @ ..] = *header;
    if [a, b, c] != LLC {
        return Err(&reason::NO_PROTOCOL);
    }
    m.m_adj(SNAP_HDR as isize);
    Ok((m, Encap::Snap(protocol)))
}

/// Pads a frame that is too short.
///
/// # Errors
/// [`Errno::ENOBUFS`].
pub fn pad(m: Mbuf) -> Result<Mbuf> {
    let mut m = m;
    let len = m.m_length();
    if len < ETHERMIN {
        m.m_copyback(len, &[0; ETHERMIN][len..])?;
    }
    Ok(m)
}
