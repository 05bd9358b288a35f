//! Putting fragments together (`ip_reass`).

use crate::ip::{IP_HDR, IP_MAXPACKET, IP_MF, IpHdr};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use xk_bsd::Mbuf;

/// Datagrams that wait for fragments at most.
pub(crate) const DATAGRAMS_MAX: usize = 64;
/// Fragments of one datagram at most.
pub(crate) const FRAGMENTS_MAX: usize = 64;
/// Time for which a datagram waits, in half seconds (`IPFRAGTTL`).
const IPFRAGTTL: u8 = 60;

struct Fragment {
    at: usize,
    len: usize,
    m: Mbuf,
}

/// A datagram in pieces (`struct ipq`).
struct Datagram {
    key: (Ipv4Addr, Ipv4Addr, u8, u16),
    ttl: u8,
    /// In the order of their places; none overlaps another.
    fragments: Vec<Fragment>,
    total: Option<usize>,
    /// The first fragment's header.
    front: Option<Mbuf>,
}

/// Datagrams that wait, the oldest first.
#[derive(Default)]
pub(crate) struct Ipq(VecDeque<Datagram>);

impl Ipq {
    /// Takes a fragment; answers the datagram if it is whole, the first fragment's header in front,
    /// and how many fragments were dropped.
    pub(crate) fn ip_reass(&mut self, mut m: Mbuf, ip: IpHdr) -> (Option<Mbuf>, usize) {
        let at = usize::from(ip.off & 0x1fff) * 8;
        let len = ip.len - ip.hlen;
        let is_last = ip.off & IP_MF == 0;
        // Every fragment but the last has a multiple of eight octets.
        let is_bad = len == 0 || !is_last && !len.is_multiple_of(8);
        if is_bad || at + len > IP_MAXPACKET - IP_HDR {
            return (None, 1);
        }
        let mut dropped = 0;
        let key = (ip.src, ip.dst, ip.proto, ip.id);
        let place = match self.0.iter().position(|datagram| datagram.key == key) {
            Some(place) => place,
            None => {
                if self.0.len() >= DATAGRAMS_MAX {
                    dropped += self.0.pop_front().map_or(0, |oldest| oldest.fragments.len());
                }
                self.0.push_back(Datagram {
                    key,
                    ttl: IPFRAGTTL,
                    fragments: Vec::new(),
                    total: None,
                    front: None,
                });
                self.0.len() - 1
            }
        };
        let Some(datagram) = self.0.get_mut(place) else { return (None, dropped + 1) };
        let Ok(data) = m.m_split(ip.hlen) else { return (None, dropped + 1) };
        if !datagram.take(Fragment { at, len, m: data }, is_last) {
            return (None, dropped + 1);
        }
        if at == 0 {
            datagram.front = Some(m);
        }
        if !datagram.is_whole() {
            return (None, dropped);
        }
        let whole = self.0.remove(place).and_then(Datagram::join);
        (whole, dropped)
    }

    /// Ages what waits; answers how many fragments were dropped.
    pub(crate) fn ip_slowtimo(&mut self) -> usize {
        let mut dropped = 0;
        self.0.retain_mut(|datagram| {
            datagram.ttl = datagram.ttl.saturating_sub(1);
            if datagram.ttl == 0 {
                dropped += datagram.fragments.len();
            }
            datagram.ttl > 0
        });
        dropped
    }

    /// Drops all; answers how many fragments.
    pub(crate) fn ip_drain(&mut self) -> usize {
        self.0.drain(..).map(|datagram| datagram.fragments.len()).sum()
    }
}

impl Datagram {
    /// Puts a fragment at its place; false if it overlaps another, contradicts the last, or is one
    /// too many. (BSD cuts overlaps; what cannot come of an honest sender is dropped here.)
    fn take(&mut self, fragment: Fragment, is_last: bool) -> bool {
        let end = fragment.at + fragment.len;
        if self.total.is_some_and(|total| end > total || is_last && end != total) {
            return false;
        }
        let highest = self.fragments.last().map_or(0, |last| last.at + last.len);
        if is_last && highest > end || self.fragments.len() >= FRAGMENTS_MAX {
            return false;
        }
        let place = self.fragments.partition_point(|kept| kept.at < fragment.at);
        let before = place.checked_sub(1).and_then(|place| self.fragments.get(place));
        let overlaps = before.is_some_and(|kept| kept.at + kept.len > fragment.at)
            || self.fragments.get(place).is_some_and(|kept| kept.at < end);
        if overlaps {
            return false;
        }
        if is_last {
            self.total = Some(end);
        }
        self.fragments.insert(place, fragment);
        true
    }

    fn is_whole(&self) -> bool {
        let octets = self.fragments.iter().map(|fragment| fragment.len).sum::<usize>();
        self.total == Some(octets) && self.front.is_some()
    }

    fn join(self) -> Option<Mbuf> {
        let mut whole = self.front?;
        for fragment in self.fragments {
            whole.m_cat(fragment.m);
        }
        let rcvif = whole.m_pkthdr().rcvif;
        whole.make_packet(rcvif);
        Some(whole)
    }
}
