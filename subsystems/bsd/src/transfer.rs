//! Sending and receiving on sockets: `sosend` and `soreceive`.

use crate::bsd::Bsd;
use crate::errno::{Errno, Result};
use crate::mbuf::{MAX_HDR, Mbuf, Mt, Release};
use crate::protosw::{PR_ADDR, PR_ATOMIC, PR_CONNREQUIRED, PR_WANTRCVD, Pru, PruArgs};
use crate::sockaddr::Sockaddr;
use crate::sockbuf::is_data;
use crate::socket::{
    SS_CANTRCVMORE, SS_CANTSENDMORE, SS_ISCONFIRMING, SS_ISCONNECTED, SS_ISCONNECTING, Socket,
};
use alloc::rc::Rc;
use xk_core::Kernel;

/// Out-of-band data.
pub const MSG_OOB: u16 = 0x1;
/// Received data stay in the buffer.
pub const MSG_PEEK: u16 = 0x2;
/// The message was longer than the room for it; the rest is gone.
pub const MSG_TRUNC: u16 = 0x10;
/// Waits for all octets that were asked for.
pub const MSG_WAITALL: u16 = 0x40;
/// This call does not wait.
pub const MSG_DONTWAIT: u16 = 0x80;

/// Data that a user sends.
pub enum Uio<'a> {
    /// Octets, which are copied into mbufs by the rules of the release.
    Octets(&'a [u8]),
    /// A packet that is ready: of a protocol whose messages are atomic.
    Top(Mbuf),
}

/// Octets in mbufs, as `sosend` makes them: with `space` octets at most, and room for headers in
/// front of a message that is atomic. Answers the chain and how many it holds.
///
/// # Errors
/// [`Errno::ENOBUFS`].
pub fn uiomove(bsd: &Bsd, octets: &[u8], space: usize, is_atomic: bool) -> Result<(Mbuf, usize)> {
    let mbufs = bsd.mbufs();
    let (release, total) = (mbufs.release(), octets.len().min(space));
    let is_44 = release == Release::Bsd44;
    let mut top = mbufs.m_gethdr(Mt::Data)?;
    let (mut m, mut at) = (&mut top, 0);
    loop {
        let (resid, room) = (octets.len() - at, space - at);
        if resid >= release.minclsize() && room >= release.mclbytes() && m.mclget().is_ok() {
            if is_44 && is_atomic && at == 0 {
                m.set_offset(MAX_HDR);
            }
        } else if is_44 && is_atomic && at == 0 && resid < m.size() {
            m.align(resid);
        }
        let n = m.trailing_space().min(total - at);
        let filled = m.put(octets.get(at..at + n).unwrap_or_default());
        debug_assert!(filled, "there was room");
        at += n;
        if at >= total {
            break;
        }
        let fresh = mbufs.m_get(Mt::Data)?;
        m.set_next(Some(fresh));
        m = m.last_mut();
    }
    top.m_pkthdr_mut().len = total;
    Ok((top, total))
}

/// Sends on a socket, to `nam` if that is given: `sosend`. Waits for room. Answers how many octets
/// went: all of them, unless it is a stream and the call must not wait.
///
/// # Errors
/// [`Errno::EPIPE`], [`Errno::ENOTCONN`], [`Errno::EDESTADDRREQ`], [`Errno::EMSGSIZE`],
/// [`Errno::EWOULDBLOCK`], [`Errno::ENOBUFS`]; those of the protocol.
pub fn sosend(
    cx: &Kernel,
    so: &Rc<Socket>,
    mut nam: Option<Mbuf>,
    uio: Uio<'_>,
    control: Option<Mbuf>,
    flags: u16,
) -> Result<usize> {
    let may_wait = so.may_wait() && flags & MSG_DONTWAIT == 0;
    let bsd = &so.bsd;
    so.so_snd.sblock(cx, bsd, may_wait)?;
    let sent = bsd.splnet(cx, || {
        let mut sending = Sending { so, nam: nam.as_mut(), control, flags, may_wait, sent: 0 };
        let done = sending.send(cx, uio);
        match done {
            Err(Errno::EWOULDBLOCK | Errno::EINTR) if sending.sent > 0 => Ok(sending.sent),
            done => done.map(|()| sending.sent),
        }
    });
    so.so_snd.sbunlock(cx);
    if let Some(nam) = nam {
        nam.m_freem();
    }
    sent
}

struct Sending<'a> {
    so: &'a Rc<Socket>,
    nam: Option<&'a mut Mbuf>,
    control: Option<Mbuf>,
    flags: u16,
    may_wait: bool,
    sent: usize,
}

impl Sending<'_> {
    fn send(&mut self, cx: &Kernel, uio: Uio<'_>) -> Result {
        let is_atomic = self.so.so_proto.sw.pr_flags & PR_ATOMIC != 0;
        match uio {
            Uio::Top(top) => {
                let resid = top.m_length();
                self.space(cx, resid, true)?;
                self.request(cx, top, resid)
            }
            Uio::Octets(octets) => {
                let mut left = octets;
                loop {
                    let space = self.space(cx, left.len(), is_atomic)?;
                    let bsd = &self.so.bsd;
                    let copy = || uiomove(bsd, left, space, is_atomic);
                    let copied = if self.may_wait { bsd.m_wait(cx, copy) } else { copy() };
                    let (top, n) = copied?;
                    self.request(cx, top, n)?;
                    left = &left[n..];
                    if left.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits until the socket takes something; answers how many octets.
    fn space(&mut self, cx: &Kernel, resid: usize, is_atomic: bool) -> Result<usize> {
        let so = self.so;
        let clen = self.control.as_ref().map_or(0, Mbuf::m_length);
        let (sb, sw) = (&so.so_snd, &so.so_proto.sw);
        loop {
            if so.is(SS_CANTSENDMORE) {
                return Err(Errno::EPIPE);
            }
            if let Some(error) = so.take_error() {
                return Err(error);
            }
            if !so.is(SS_ISCONNECTED) {
                let is_confirming = so.is(SS_ISCONFIRMING);
                if sw.pr_flags & PR_CONNREQUIRED != 0 && !is_confirming {
                    return Err(Errno::ENOTCONN);
                }
                if self.nam.is_none() && !is_confirming {
                    return Err(Errno::EDESTADDRREQ);
                }
            }
            if is_atomic && resid > sb.hiwat() || clen > sb.hiwat() {
                return Err(Errno::EMSGSIZE);
            }
            let extra = if self.flags & MSG_OOB != 0 { 1024 } else { 0 };
            let space = sb.sbspace() + extra;
            let is_short =
                space < resid + clen && (is_atomic || space < sb.lowat().max(1) || space < clen);
            if !is_short {
                return Ok(space - clen);
            }
            if !self.may_wait {
                return Err(Errno::EWOULDBLOCK);
            }
            sb.sbwait(cx, &so.bsd)?;
        }
    }

    fn request(&mut self, cx: &Kernel, top: Mbuf, octets: usize) -> Result {
        let req = if self.flags & MSG_OOB != 0 { Pru::SendOob } else { Pru::Send };
        let (m, control) = (Some(top), self.control.take());
        let mut args = PruArgs { m, nam: self.nam.as_deref_mut(), control, ..PruArgs::default() };
        self.so.so_proto.pr_usrreq(cx, Some(self.so), req, &mut args)?;
        self.sent += octets;
        Ok(())
    }
}

/// Place into which [`soreceive`] puts data.
pub enum Sink<'a> {
    /// The mbufs themselves, at most so many octets of them.
    Chain(usize),
    /// A copy.
    Octets(&'a mut [u8]),
}

/// Result of [`soreceive`].
#[derive(Debug, Default)]
pub struct Received {
    /// Octets of data.
    pub len: usize,
    /// The sender's address, of a protocol with [`PR_ADDR`].
    pub nam: Option<Mbuf>,
    /// Control information.
    pub control: Option<Mbuf>,
    /// Data, of a [`Sink::Chain`].
    pub m: Option<Mbuf>,
    /// [`MSG_TRUNC`].
    pub flags: u16,
}

impl Received {
    /// The sender.
    pub fn from(&self) -> Option<Sockaddr> {
        self.nam.as_ref().and_then(|nam| Sockaddr::of(nam).ok())
    }
}

/// Receives on a socket: `soreceive`. Waits for data. Of a protocol whose messages are atomic one
/// message; the rest of one that is too long is gone. No data of one that is not is the end.
///
/// # Errors
/// [`Errno::ENOTCONN`], [`Errno::EWOULDBLOCK`], [`Errno::ENOBUFS`]; the error that waits.
pub fn soreceive(cx: &Kernel, so: &Rc<Socket>, sink: Sink<'_>, flags: u16) -> Result<Received> {
    let bsd = &so.bsd;
    if flags & MSG_OOB != 0 {
        let m = bsd.mbufs().m_get(Mt::Data)?;
        let mut args = PruArgs::data(m);
        so.usrreq(cx, Pru::RcvOob, &mut args)?;
        let m = args.need_m()?;
        let mut got = Received::default();
        take(m, sink, 0, &mut got)?;
        return Ok(got);
    }
    let may_wait = so.may_wait() && flags & MSG_DONTWAIT == 0;
    so.so_rcv.sblock(cx, bsd, may_wait)?;
    let got = bsd.splnet(cx, || {
        let wanted = match &sink {
            Sink::Chain(octets) => *octets,
            Sink::Octets(octets) => octets.len(),
        };
        if so.is(SS_ISCONFIRMING) && wanted > 0 {
            // To receive is to confirm.
            let _ = so.so_proto.pr_usrreq(cx, Some(so), Pru::Rcvd, &mut PruArgs::default());
        }
        if !wait_for_data(cx, so, wanted, flags, may_wait)? {
            return Ok(Received::default());
        }
        // Out-of-band data stops a call at its mark.
        let sink = match (sink, so.up_to_mark()) {
            (Sink::Octets(to), Some(octets)) => {
                let n = to.len().min(octets);
                Sink::Octets(&mut to[..n])
            }
            (Sink::Chain(n), Some(octets)) => Sink::Chain(n.min(octets)),
            (sink, None) => sink,
        };
        let got = receive_record(so, sink, flags)?;
        if flags & MSG_PEEK == 0 {
            so.move_mark(got.len);
        }
        if so.so_proto.sw.pr_flags & PR_WANTRCVD != 0 && so.pcb_is_set() && flags & MSG_PEEK == 0 {
            let mut args = PruArgs::default();
            // As in BSD: what the protocol answers concerns its window, not this call.
            let _ = so.so_proto.pr_usrreq(cx, Some(so), Pru::Rcvd, &mut args);
        }
        Ok(got)
    });
    so.so_rcv.sbunlock(cx);
    got
}

/// Waits until there is something to receive; false at the end.
fn wait_for_data(
    cx: &Kernel,
    so: &Rc<Socket>,
    wanted: usize,
    flags: u16,
    may_wait: bool,
) -> Result<bool> {
    let (sb, sw) = (&so.so_rcv, &so.so_proto.sw);
    loop {
        let is_atomic = sw.pr_flags & PR_ATOMIC != 0;
        let all = flags & MSG_WAITALL != 0 && wanted <= sb.hiwat();
        let few = sb.cc() < wanted && (sb.cc() < sb.lowat() || all) && may_wait;
        if !sb.is_empty() && (is_atomic || !few || so.is(SS_CANTRCVMORE)) {
            return Ok(true);
        }
        if let Some(error) = so.error() {
            if !sb.is_empty() {
                return Ok(true);
            }
            if flags & MSG_PEEK == 0 {
                so.set_error(None);
            }
            return Err(error);
        }
        if so.is(SS_CANTRCVMORE) {
            return Ok(!sb.is_empty());
        }
        let connected = so.state() & (SS_ISCONNECTED | SS_ISCONNECTING | SS_ISCONFIRMING) != 0;
        if !connected && sw.pr_flags & PR_CONNREQUIRED != 0 {
            return Err(Errno::ENOTCONN);
        }
        if wanted == 0 && !is_atomic {
            return Ok(false);
        }
        if !may_wait {
            return Err(Errno::EWOULDBLOCK);
        }
        sb.sbwait(cx, &so.bsd)?;
    }
}

fn receive_record(so: &Rc<Socket>, sink: Sink<'_>, flags: u16) -> Result<Received> {
    let mut got = Received::default();
    let is_peek = flags & MSG_PEEK != 0;
    if is_peek {
        let copy = so.so_rcv.take_record().map(|mut record| {
            let copy = copy_record(&mut record);
            so.so_rcv.put_back(record);
            copy
        });
        let Some(copy) = copy.transpose()? else { return Ok(got) };
        let rest = split_names(so, copy, &mut got);
        if let Some(data) = rest {
            take(data, sink, 0, &mut got)?;
        }
        return Ok(got);
    }
    let Some(record) = so.so_rcv.take_record() else { return Ok(got) };
    // What is taken out is not the buffer's any more; what of it stays is put back.
    so.so_rcv.unaccount(&record);
    if let Some(data) = split_names(so, record, &mut got) {
        let rest = take(data, sink, so.so_proto.sw.pr_flags, &mut got)?;
        if let Some(rest) = rest {
            so.so_rcv.put_back_counted(rest);
        }
    }
    Ok(got)
}

fn copy_record(record: &mut Mbuf) -> Result<Mbuf> {
    let kinds: alloc::vec::Vec<_> = record.mbufs().map(|m| (m.m_type(), m.m_len())).collect();
    let mut chain: Option<Mbuf> = None;
    let mut at = 0;
    for (kind, len) in kinds {
        let mut copy = record.m_copym(at, len)?;
        copy.set_type(kind);
        at += len;
        match &mut chain {
            Some(chain) => drop(chain.last_mut().set_next(Some(copy))),
            None => chain = Some(copy),
        }
    }
    chain.ok_or(Errno::ENOBUFS)
}

/// Takes address and control information off a record; answers its data.
fn split_names(so: &Rc<Socket>, record: Mbuf, got: &mut Received) -> Option<Mbuf> {
    let has_name = so.so_proto.sw.pr_flags & PR_ADDR != 0;
    let mut next = Some(record);
    while let Some(mut m) = next {
        if is_data(&m) {
            return Some(m);
        }
        next = m.take_next();
        if m.m_type() == Mt::Soname && has_name && got.nam.is_none() {
            got.nam = Some(m);
        } else if got.control.is_none() {
            got.control = Some(m);
        } else {
            m.m_freem();
        }
    }
    None
}

/// Moves data into the sink; answers what is left of it, if the protocol is not atomic.
fn take(data: Mbuf, sink: Sink<'_>, pr_flags: u16, got: &mut Received) -> Result<Option<Mbuf>> {
    let rest = match sink {
        Sink::Octets(to) => {
            // Wholly taken mbufs are freed, the first of the rest is cut.
            let mut next = Some(data);
            while let Some(mut m) = next {
                let n = m.m_len().min(to.len() - got.len);
                to[got.len..got.len + n].copy_from_slice(&m.mtod()[..n]);
                got.len += n;
                if n < m.m_len() {
                    m.m_adj(n as isize);
                    next = Some(m);
                    break;
                }
                next = m.m_free();
            }
            next
        }
        Sink::Chain(wanted) => {
            let (total, mut data) = (data.m_length(), data);
            got.len = total.min(wanted);
            let rest = if wanted < total { Some(data.m_split(wanted)?) } else { None };
            got.m = Some(data);
            rest
        }
    };
    let Some(rest) = rest else { return Ok(None) };
    if pr_flags & PR_ATOMIC != 0 {
        got.flags |= MSG_TRUNC;
        rest.m_freem();
        return Ok(None);
    }
    Ok(Some(rest))
}

/// Sends octets, to `to` if that is given: what sendto(2) does.
///
/// # Errors
/// As of [`sosend`].
pub fn sendto(cx: &Kernel, so: &Rc<Socket>, octets: &[u8], to: Option<Sockaddr>) -> Result<usize> {
    let nam = to.map(|to| to.to_mbuf(so.bsd.mbufs())).transpose()?;
    sosend(cx, so, nam, Uio::Octets(octets), None, 0)
}

/// Receives octets, and from where they came: what recvfrom(2) does.
///
/// # Errors
/// As of [`soreceive`].
pub fn recvfrom(
    cx: &Kernel,
    so: &Rc<Socket>,
    octets: &mut [u8],
) -> Result<(usize, Option<Sockaddr>)> {
    let got = soreceive(cx, so, Sink::Octets(octets), 0)?;
    let from = got.from();
    [got.nam, got.control].into_iter().flatten().for_each(Mbuf::m_freem);
    Ok((got.len, from))
}
