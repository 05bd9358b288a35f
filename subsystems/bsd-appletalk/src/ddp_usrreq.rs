//! Users of DDP (`ddp_usrreq.c`): control blocks, sockets, ioctls.

use crate::ddp::{DDP_MAXDATA, Ddp, Ddpcb, Port};
use crate::{
    SIOCDATSOCKET, SIOCGATROUTER, SIOCSATROUTER, SIOCSATSOCKET, at_addr, nam_addr, sockaddr,
};
use alloc::rc::Rc;
use core::cell::Cell;
use xk_appletalk::addr::{AtAddr, NetRange, Node};
use xk_appletalk::ddp::Long;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::{SIOCADDMULTI, count};
use xk_bsd::{
    Mbuf, OutputArg, Pru, PruArgs, SIOCGIFMTU, SIOCGIFSRCADDR, SS_ISCONNECTED, Sockaddr, Socket,
};
use xk_core::reason;
use xk_core::{Kernel, Reason};

/// Octets sent at once at most: the type and the data.
const SENDSPACE: usize = DDP_MAXDATA + 1;
/// Octets received that wait at most.
const RECVSPACE: usize = 10 * (DDP_MAXDATA + 1 + 16);

impl Ddp {
    /// Gives a datagram to a user, its type in front.
    pub(crate) fn append(
        &self,
        cx: &Kernel,
        ddp: &Rc<Ddpcb>,
        header: &Long,
        m: Mbuf,
    ) -> core::result::Result<(), &'static Reason> {
        if ddp.faddr.get().is_some_and(|peer| peer != header.from) {
            return Err(&reason::BAD_SOURCE);
        }
        let mut m = m.m_prepend(1)?;
        if let Some(first) = m.mtod_mut().and_then(<[u8]>::first_mut) {
            *first = header.kind;
        }
        let from = sockaddr(&self.bsd, header.from).to_mbuf(self.bsd.mbufs())?;
        let so = ddp.socket.upgrade().ok_or(&reason::CLOSED)?;
        if so.so_rcv.sbappendaddr(from, Some(m), None).is_err() {
            count(&self.fullsock);
            return Err(&reason::QUEUE_FULL);
        }
        so.sorwakeup(cx);
        Ok(())
    }

    /// Requests of users (`ddp_usrreq`).
    pub(crate) fn ddp_usrreq(
        &self,
        cx: &Kernel,
        so: &Rc<Socket>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        if req == Pru::Attach {
            so.soreserve(SENDSPACE, RECVSPACE)?;
            let (laddr, faddr) = (Cell::default(), Cell::new(None));
            so.set_pcb(Some(Rc::new(Ddpcb { laddr, faddr, socket: Rc::downgrade(so) })));
            return Ok(());
        }
        let ddp = so.pcb::<Ddpcb>().ok_or(Errno::EINVAL)?;
        match req {
            Pru::Detach | Pru::Abort => {
                self.ports.borrow_mut().remove(&ddp.laddr.get().socket);
                so.set_pcb(None);
                if req == Pru::Abort {
                    so.soisdisconnected(cx);
                }
            }
            Pru::Bind => self.bind_user(&ddp, nam_addr(args.need_nam()?)?)?,
            Pru::Connect => {
                if ddp.faddr.get().is_some() {
                    return Err(Errno::EISCONN);
                }
                let peer = nam_addr(args.need_nam()?)?;
                self.bind_any(&ddp)?;
                ddp.faddr.set(Some(peer));
                so.soisconnected(cx);
            }
            Pru::Disconnect => {
                ddp.faddr.take().ok_or(Errno::ENOTCONN)?;
                so.set_state(0, SS_ISCONNECTED);
            }
            Pru::Shutdown => so.socantsendmore(cx),
            Pru::Send => {
                let m = args.need_m()?;
                let to = match (&args.nam, ddp.faddr.get()) {
                    (Some(_), Some(_)) => return Err(Errno::EISCONN),
                    (Some(nam), None) => nam_addr(nam)?,
                    (None, Some(peer)) => peer,
                    (None, None) => return Err(Errno::ENOTCONN),
                };
                self.bind_any(&ddp)?;
                // The first octet is the type.
                let mut m = m.m_pullup(1)?;
                let kind = m.mtod().first().copied().ok_or(Errno::EINVAL)?;
                m.m_adj(1);
                let from = Some(sockaddr(&self.bsd, ddp.laddr.get()));
                let arg = OutputArg::new(sockaddr(&self.bsd, to), from, kind);
                return self.ddp_output(cx, m, &arg);
            }
            Pru::Sockaddr => {
                let laddr = self.me().socket(ddp.laddr.get().socket);
                sockaddr(&self.bsd, laddr).store(args.need_nam()?);
            }
            Pru::Peeraddr => {
                let peer = ddp.faddr.get().ok_or(Errno::ENOTCONN)?;
                sockaddr(&self.bsd, peer).store(args.need_nam()?);
            }
            Pru::Sense => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn bind_user(&self, ddp: &Rc<Ddpcb>, at: AtAddr) -> Result {
        if ddp.laddr.get().socket != 0 {
            return Err(Errno::EINVAL);
        }
        let is_ours = at.at() == Node::default() || at.at() == self.me();
        if !is_ours {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let socket = self.bind(at.socket, Port::User(Rc::clone(ddp)))?;
        ddp.laddr.set(AtAddr { socket, ..at });
        Ok(())
    }

    fn bind_any(&self, ddp: &Rc<Ddpcb>) -> Result {
        if ddp.laddr.get().socket == 0 { self.bind_user(ddp, AtAddr::default()) } else { Ok(()) }
    }

    /// Ioctls (`at_control`).
    pub(crate) fn at_control(&self, cx: &Kernel, args: &mut PruArgs<'_>) -> Result {
        let (cmd, nam) = (args.cmd, args.need_nam()?);
        if cmd == SIOCGIFMTU {
            let room = nam.mtod_mut().and_then(<[u8]>::first_chunk_mut).ok_or(Errno::EINVAL)?;
            *room = (DDP_MAXDATA as u32).to_be_bytes();
            return Ok(());
        }
        let sa = Sockaddr::of(nam)?;
        let at = at_addr(&sa);
        match cmd {
            SIOCADDMULTI => {
                let group = sa.data().first_chunk::<6>().ok_or(Errno::EINVAL)?;
                self.ifp.if_ioctl(cx, SIOCADDMULTI, &mut { *group })?;
            }
            SIOCGIFSRCADDR => {
                let me = self.cable.get().ok_or(Errno::EADDRNOTAVAIL)?.me;
                sockaddr(&self.bsd, me.socket(at.socket)).store(nam);
            }
            SIOCSATSOCKET => {
                let socket = self.bind(at.socket, Port::Protocol)?;
                sockaddr(&self.bsd, self.me().socket(socket)).store(nam);
            }
            SIOCDATSOCKET => {
                self.ports.borrow_mut().remove(&at.socket);
            }
            SIOCSATROUTER => {
                let mut cable = self.cable.get().ok_or(Errno::EADDRNOTAVAIL)?;
                let two = |at: usize| u16::from_be_bytes([sa.0[at], sa.0[at + 1]]);
                cable.router = Some(at.at()).filter(|router| router.is_one());
                if let Some(range) = NetRange::new(two(8), two(10)) {
                    cable.range = range;
                }
                self.cable.set(Some(cable));
            }
            SIOCGATROUTER => {
                let cable = self.cable.get().ok_or(Errno::EADDRNOTAVAIL)?;
                let mut sa = sockaddr(&self.bsd, cable.router.unwrap_or_default().socket(0));
                sa.0[8..10].copy_from_slice(&cable.range.first().to_be_bytes());
                sa.0[10..12].copy_from_slice(&cable.range.last().to_be_bytes());
                sa.store(nam);
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }
}
