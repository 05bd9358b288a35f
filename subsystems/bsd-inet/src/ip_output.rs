//! Sending (`netinet/ip_output.c`).

use crate::in_var::{Route, rtalloc};
use crate::ip::{IP_DF, IP_HDR, IP_MAXPACKET, IP_MF, IPDEFTTL, Ip};
use core::net::Ipv4Addr;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::count;
use xk_bsd::mbuf::{M_BCAST, M_COPYALL};
use xk_bsd::{ALLOWBROADCAST, Mbuf, Mt, OutputArg};
use xk_core::Kernel;
use xk_kit::net::checksum::checksum;

/// In [`OutputArg::flags`]: the packet may not be cut.
pub(crate) const IP_DONTFRAG: u16 = 0x4000;

/// A header, but for length, offset and checksum.
struct Header {
    id: u16,
    ttl: u8,
    proto: u8,
    src: Ipv4Addr,
    dst: Ipv4Addr,
}

impl Header {
    fn octets(&self, len: usize, off: u16) -> [u8; IP_HDR] {
        let mut h = [0; IP_HDR];
        h[0] = 0x45;
        h[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        h[4..6].copy_from_slice(&self.id.to_be_bytes());
        h[6..8].copy_from_slice(&off.to_be_bytes());
        (h[8], h[9]) = (self.ttl, self.proto);
        h[12..16].copy_from_slice(&self.src.octets());
        h[16..20].copy_from_slice(&self.dst.octets());
        let sum = checksum(&h);
        h[10..12].copy_from_slice(&sum.to_be_bytes());
        h
    }
}

impl Ip {
    /// Puts a header in front of a packet and sends it (`ip_output`).
    ///
    /// # Errors
    /// [`Errno::ENETUNREACH`], [`Errno::EACCES`] for a broadcast that is not allowed,
    /// [`Errno::EMSGSIZE`], [`Errno::ENOBUFS`]; those of the interface.
    pub(crate) fn ip_output(&self, cx: &Kernel, m: Mbuf, arg: &OutputArg) -> Result {
        let lo = self.lo.get().ok_or(Errno::ENETDOWN)?;
        let dst = arg.to.addr();
        let Some(route) = rtalloc(&self.bsd, lo, &self.routes, dst) else {
            count(&self.stat.noroute);
            return Err(Errno::ENETUNREACH);
        };
        let given = arg.from.map(|from| from.addr()).filter(|from| !from.is_unspecified());
        let id = self.ip_id.get();
        self.ip_id.set(id.wrapping_add(1));
        let ttl = if arg.ttl == 0 { IPDEFTTL } else { arg.ttl };
        let src = given.unwrap_or(route.source);
        let header = Header { id, ttl, proto: arg.kind, src, dst };
        count(&self.stat.localout);
        let len = m.m_length() + IP_HDR;
        if len > IP_MAXPACKET {
            return Err(Errno::EMSGSIZE);
        }
        let mtu = route.ifp.if_mtu.get();
        let mut m = m;
        if route.is_broadcast {
            if arg.flags & ALLOWBROADCAST == 0 {
                return Err(Errno::EACCES);
            }
            if len > mtu {
                return Err(Errno::EMSGSIZE);
            }
            m.set_flags(M_BCAST, 0);
        } else {
            m.set_flags(0, M_BCAST);
        }
        if len <= mtu {
            let off = if arg.flags & IP_DONTFRAG != 0 { IP_DF } else { 0 };
            return self.put(cx, &route, m, &header.octets(len, off));
        }
        if arg.flags & IP_DONTFRAG != 0 {
            return Err(Errno::EMSGSIZE);
        }
        self.fragment(cx, &route, m, &header)
    }

    fn put(&self, cx: &Kernel, route: &Route, m: Mbuf, header: &[u8; IP_HDR]) -> Result {
        let mut m = m.m_prepend(IP_HDR)?;
        let room = m.mtod_mut().and_then(|data| data.first_chunk_mut());
        *room.ok_or(Errno::ENOBUFS)? = *header;
        route.ifp.if_output(cx, m, &self.sockaddr(route.gateway))
    }

    /// Cuts a packet: each piece has a header of its own and shares what lies in clusters.
    fn fragment(&self, cx: &Kernel, route: &Route, m: Mbuf, header: &Header) -> Result {
        let piece = route.ifp.if_mtu.get().saturating_sub(IP_HDR) & !7;
        if piece < 8 {
            return Err(Errno::EMSGSIZE);
        }
        count(&self.stat.fragmented);
        let total = m.m_length();
        let mut at = 0;
        while at < total {
            let is_last = at + piece >= total;
            let len = if is_last { M_COPYALL } else { piece };
            let part = m.m_copym(at, len)?;
            let octets = part.m_length();
            let mut front = self.bsd.mbufs().m_gethdr(Mt::Header)?;
            front.align(IP_HDR);
            let off = (at / 8) as u16 | if is_last { 0 } else { IP_MF };
            if !front.put(&header.octets(octets + IP_HDR, off)) {
                return Err(Errno::ENOBUFS);
            }
            front.set_next(Some(part));
            front.make_packet(0);
            count(&self.stat.ofragments);
            route.ifp.if_output(cx, front, &self.sockaddr(route.gateway))?;
            at += octets;
        }
        Ok(())
    }
}
