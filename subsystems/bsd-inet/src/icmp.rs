//! ICMP (`netinet/ip_icmp.c`).

use crate::ip::{IP_HDR, IPPROTO_ICMP, Ip, IpHdr, is_many};
use core::net::Ipv4Addr;
use xk_bsd::errno::Errno;
use xk_bsd::ifnet::count;
use xk_bsd::{Mbuf, Mt, OutputArg, Prc};
use xk_core::reason;
use xk_core::{Kernel, Reason};

/// Octets of the header.
const ICMP_HDR: usize = 8;
const ECHOREPLY: u8 = 0;
/// Destination unreachable.
pub(crate) const UNREACH: u8 = 3;
/// Slow down.
pub(crate) const SOURCEQUENCH: u8 = 4;
/// There is a shorter way.
pub(crate) const REDIRECT: u8 = 5;
const ECHO: u8 = 8;
/// Too many hops.
pub(crate) const TIMXCEED: u8 = 11;
const PARAMPROB: u8 = 12;
/// Octets of a datagram's data that an error shows.
const SHOWN: usize = 8;

/// The protocols' code for an error's type and code.
fn command(kind: u8, code: u8) -> Option<Prc> {
    Some(match (kind, code) {
        (UNREACH, 0 | 6 | 11) => Prc::UnreachNet,
        (UNREACH, 1 | 7 | 8 | 12) => Prc::UnreachHost,
        (UNREACH, 2) => Prc::UnreachProtocol,
        (UNREACH, 3) => Prc::UnreachPort,
        (UNREACH, 4) => Prc::MsgSize,
        (UNREACH, 5) => Prc::UnreachSrcfail,
        (SOURCEQUENCH, 0) => Prc::Quench,
        (TIMXCEED, 0) => Prc::TimxceedIntrans,
        (TIMXCEED, 1) => Prc::TimxceedReass,
        (PARAMPROB, 0) => Prc::Paramprob,
        _ => return None,
    })
}

impl Ip {
    /// An ICMP packet, IP's header in front (`icmp_input`).
    pub(crate) fn icmp_input(
        &self,
        cx: &Kernel,
        m: Mbuf,
        ip: IpHdr,
    ) -> core::result::Result<(), &'static Reason> {
        let total = m.m_length();
        let len = total.saturating_sub(ip.hlen);
        if len < ICMP_HDR {
            return Err(&reason::TRUNCATED);
        }
        if m.in_cksum(ip.hlen, len) != 0 {
            return Err(&reason::BAD_CHECKSUM);
        }
        count(&self.stat.icmp_in);
        let mut header = [0; ICMP_HDR];
        m.m_copydata(ip.hlen, &mut header);
        let [kind, code, ..] = header;
        if kind == ECHO && code == 0 {
            return self.echo(cx, m, ip);
        }
        let Some(cmd) = command(kind, code) else { return Ok(()) };
        // The datagram that it is about: header, and the first octets of its protocol's.
        let mut shown = [0; 60 + SHOWN];
        let shown_len = m.m_copydata(ip.hlen + ICMP_HDR, &mut shown);
        let shown = shown.get(..shown_len).unwrap_or_default();
        let about = IpHdr::of(shown).ok_or(&reason::TRUNCATED)?;
        let behind = shown.get(about.hlen..).filter(|behind| behind.len() >= SHOWN);
        let behind = behind.filter(|_| about.hlen >= IP_HDR).ok_or(&reason::TRUNCATED)?;
        if !crate::in_var::is_ours(&self.bsd, about.src) {
            return Err(&reason::NOT_MINE);
        }
        let upper = self.pr().and_then(|pr| pr.upper(about.proto));
        if let Some(upper) = upper {
            upper.pr_ctlinput(cx, cmd, &self.sockaddr(about.dst), Some(behind));
        }
        Ok(())
    }

    /// Answers an echo (`icmp_reflect`), but for one that was sent to many.
    fn echo(
        &self,
        cx: &Kernel,
        mut m: Mbuf,
        ip: IpHdr,
    ) -> core::result::Result<(), &'static Reason> {
        if is_many(&m) {
            return Err(&reason::NOT_SUPPORTED);
        }
        m.m_adj(ip.hlen as isize);
        // What arrives may be lent: the header is written into an mbuf of our own.
        let mut header = [0; ICMP_HDR];
        m.m_copydata(0, &mut header);
        m.m_adj(ICMP_HDR as isize);
        (header[0], header[2], header[3]) = (ECHOREPLY, 0, 0);
        let sent = self.send_icmp(cx, header, Some(m), ip.dst, ip.src);
        sent.map_err(<&Reason>::from)?;
        count(&self.stat.icmp_echoes);
        Ok(())
    }

    fn send_icmp(
        &self,
        cx: &Kernel,
        mut header: [u8; ICMP_HDR],
        data: Option<Mbuf>,
        from: Ipv4Addr,
        to: Ipv4Addr,
    ) -> Result<(), Errno> {
        let len = data.as_ref().map_or(0, Mbuf::m_length);
        let sum = xk_kit::net::checksum::Checksum::new();
        let mut sum = data.as_ref().map_or(sum, |data| data.in_cksum_add(sum, 0, len));
        if len % 2 == 1 {
            sum.add(&[0]);
        }
        sum.add(&header);
        header[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut m = self.bsd.mbufs().m_gethdr(Mt::Header)?;
        m.align(ICMP_HDR);
        if !m.put(&header) {
            return Err(Errno::ENOBUFS);
        }
        m.set_next(data);
        m.make_packet(0);
        let arg = OutputArg::new(self.sockaddr(to), Some(self.sockaddr(from)), IPPROTO_ICMP);
        self.ip_output(cx, m, &arg)
    }

    /// Tells the sender of a datagram what became of it (`icmp_error`), never of an error of
    /// ICMP's, a fragment behind the first, or what was sent to many (RFC 1122, section 3.2.2).
    /// `word` is the second of the header. A router speaks from its address on the way to the
    /// sender.
    pub(crate) fn icmp_error(&self, cx: &Kernel, m: Mbuf, kind: u8, code: u8, word: [u8; 4]) {
        let Some(ip) = IpHdr::of(m.mtod()) else { return m.m_freem() };
        let is_error = ip.proto == IPPROTO_ICMP && {
            let mut first = [0; 1];
            m.m_copydata(ip.hlen, &mut first);
            !matches!(first[0], ECHO | ECHOREPLY)
        };
        if is_error || ip.off & 0x1fff != 0 || is_many(&m) || ip.src.is_unspecified() {
            return m.m_freem();
        }
        let shown = m.m_length().min(ip.hlen + SHOWN);
        let data = m.m_copym(0, shown);
        m.m_freem();
        let Ok(mut data) = data else { return };
        data.make_packet(0);
        let [a, b, c, d] = word;
        let header = [kind, code, 0, 0, a, b, c, d];
        let is_ours = crate::in_var::is_ours(&self.bsd, ip.dst) || ip.dst.is_loopback();
        let from = if is_ours { ip.dst } else { Ipv4Addr::UNSPECIFIED };
        if self.send_icmp(cx, header, Some(data), from, ip.src).is_ok() {
            count(&self.stat.icmp_errors);
        }
    }
}
