//! Forwarding (`ip_forward`).

use crate::icmp::{REDIRECT, TIMXCEED, UNREACH};
use crate::in_var::{Route, in_broadcast, is_on, rtalloc};
use crate::ip::{
    CANT_FORWARD, IP_DF, IP_HDR, IP_MAXPACKET, IP_MF, Ip, IpHdr, NO_ROUTE, TTL_EXCEEDED, is_many,
};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::count;
use xk_bsd::{Ifnet, Mbuf, Mt};
use xk_core::{Kernel, Reason, reason};
use xk_kit::net::checksum::checksum;

/// Octets of a header at most.
const HDR_MAX: usize = 60;
/// Offset of the time to live.
const TTL: usize = 8;
/// The bit of an option's number that has it in each fragment.
const COPIED: u8 = 0x80;

/// Whether a packet to this address is ever sent on (RFC 1812, section 5.3.7).
fn may_be_sent_on(addr: Ipv4Addr) -> bool {
    let [first, second, ..] = addr.octets();
    !(first == 0 || first == 127 || first >= 224 || first == 169 && second == 254)
}

/// A header with this length, offset and time to live, and its checksum.
fn sealed(mut head: Vec<u8>, len: usize, off: u16) -> Vec<u8> {
    head[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    head[6..8].copy_from_slice(&off.to_be_bytes());
    head[10..12].fill(0);
    let sum = checksum(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    head
}

/// The header of a fragment behind the first: only options that are to be copied, filled up.
fn of_fragment(head: &[u8]) -> Vec<u8> {
    let mut front = head[..IP_HDR].to_vec();
    let mut options = &head[IP_HDR..];
    while let [kind, rest @ ..] = options {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => rest.first().copied().map_or(1, usize::from).max(2),
        };
        if kind & COPIED != 0 {
            front.extend_from_slice(options.get(..len).unwrap_or_default());
        }
        options = options.get(len..).unwrap_or_default();
    }
    front.resize(front.len().next_multiple_of(4), 0);
    front[0] = 0x40 | (front.len() / 4) as u8;
    front
}

impl Ip {
    /// Sends a packet for another host on its way, or tells its sender why not. `m` begins with
    /// its header, which was checked; it came by `ifp`.
    pub(crate) fn ip_forward(
        &self,
        cx: &Kernel,
        mut m: Mbuf,
        ip: IpHdr,
        ifp: &Rc<Ifnet>,
    ) -> core::result::Result<(), &'static Reason> {
        if is_many(&m) || !may_be_sent_on(ip.dst) || !may_be_sent_on(ip.src) {
            return Err(&CANT_FORWARD);
        }
        let head = m.mtod().get(..ip.hlen.min(HDR_MAX)).map(<[u8]>::to_vec);
        let mut head = head.ok_or(&reason::TRUNCATED)?;
        if head[TTL] <= 1 {
            self.icmp_error(cx, m, TIMXCEED, 0, [0; 4]);
            return Err(&TTL_EXCEEDED);
        }
        let lo = self.lo.get().ok_or(&NO_ROUTE)?;
        let Some(route) = rtalloc(&self.bsd, lo, &self.routes, ip.dst) else {
            count(&self.stat.cantforward);
            self.icmp_error(cx, m, UNREACH, 0, [0; 4]);
            return Err(&NO_ROUTE);
        };
        // What is for all hosts of another network stays outside of it (RFC 2644).
        if route.is_broadcast || in_broadcast(&route.ifp, ip.dst) {
            return Err(&CANT_FORWARD);
        }
        // The packet as it came, for what its sender may have to hear.
        let told = m.m_copym(0, m.m_length().min(ip.hlen + 8)).ok();
        let tell = |kind, code, word| {
            if let Some(mut told) = told {
                told.make_packet(ifp.if_index);
                self.icmp_error(cx, told, kind, code, word);
            }
        };
        head[TTL] -= 1;
        let mtu = route.ifp.if_mtu.get();
        if ip.len > mtu && ip.off & IP_DF != 0 {
            count(&self.stat.cantforward);
            // RFC 1191, section 4: what would have fitted.
            let [high, low] = (mtu.min(usize::from(u16::MAX)) as u16).to_be_bytes();
            tell(UNREACH, 4, [0, 0, high, low]);
            m.m_freem();
            return Err(&reason::TOO_BIG);
        }
        m.m_adj(ip.hlen as isize);
        let sent = if ip.len > mtu {
            self.forward_pieces(cx, &route, m, &head, ip.off)
        } else {
            self.forward_piece(cx, &route, m, sealed(head, ip.len, ip.off))
        };
        match sent {
            Ok(()) => {
                count(&self.stat.forward);
                if route.ifp.if_index == ifp.if_index && is_on(ifp, ip.src) {
                    count(&self.stat.redirects);
                    tell(REDIRECT, 1, route.gateway.octets());
                }
                Ok(())
            }
            Err(error) => {
                count(&self.stat.cantforward);
                match error {
                    // 4.3BSD tells the sender to slow down (RFC 1812 would not).
                    Errno::ENOBUFS => tell(crate::icmp::SOURCEQUENCH, 0, [0; 4]),
                    Errno::ENETUNREACH | Errno::ENETDOWN => tell(UNREACH, 0, [0; 4]),
                    _ => tell(UNREACH, 1, [0; 4]),
                }
                Err(<&Reason>::from(error))
            }
        }
    }

    /// Sends a packet behind a header of its own: what came may be lent.
    fn forward_piece(&self, cx: &Kernel, route: &Route, m: Mbuf, head: Vec<u8>) -> Result {
        let mut front = self.bsd.mbufs().m_gethdr(Mt::Header)?;
        front.align(head.len());
        if !front.put(&head) {
            return Err(Errno::ENOBUFS);
        }
        front.set_next(Some(m));
        front.make_packet(0);
        route.ifp.if_output(cx, front, &self.sockaddr(route.gateway))
    }

    /// Cuts a packet, which may be a piece itself.
    fn forward_pieces(&self, cx: &Kernel, route: &Route, m: Mbuf, head: &[u8], off: u16) -> Result {
        let mtu = route.ifp.if_mtu.get();
        let (first, others) = (head.to_vec(), of_fragment(head));
        let (total, base) = (m.m_length(), off & 0x1fff);
        if usize::from(base) * 8 + total > IP_MAXPACKET {
            return Err(Errno::EMSGSIZE);
        }
        count(&self.stat.fragmented);
        let mut at = 0;
        while at < total {
            let head = if at == 0 { &first } else { &others };
            let piece = mtu.saturating_sub(head.len()) & !7;
            if piece < 8 {
                return Err(Errno::EMSGSIZE);
            }
            let octets = piece.min(total - at);
            let is_last = at + octets == total;
            let more = if is_last { off & IP_MF } else { IP_MF };
            let part = m.m_copym(at, octets)?;
            let head = sealed(head.clone(), head.len() + octets, (base + (at / 8) as u16) | more);
            count(&self.stat.ofragments);
            self.forward_piece(cx, route, part, head)?;
            at += octets;
        }
        Ok(())
    }
}
