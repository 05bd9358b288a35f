//! The local domain (`uipc_usrreq.c`): streams and datagrams between sockets of one kernel. It has
//! no header, no wire and no timer: what one end sends is in the other's buffer when the call
//! returns, and what stands there counts against the sender's room.
//!
//! A name is up to fourteen octets, and there is no file behind it: it goes with its socket.

use crate::bsd::Bsd;
use crate::errno::{Errno, Result};
use crate::mbuf::Mbuf;
use crate::protosw::{
    PR_ADDR, PR_ATOMIC, PR_CONNREQUIRED, PR_WANTRCVD, ProtoFns, Protosw, Pru, PruArgs, Sock, Switch,
};
use crate::sockaddr::{AF_UNIX, Sockaddr};
use crate::socket::{SO_ACCEPTCONN, SS_CANTSENDMORE, SS_ISCONNECTED, Socket};
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;
use xk_core::object::ProtocolId;

/// Room of a stream each way, in octets (`unpst_sendspace`, `unpst_recvspace`).
const STREAM_SPACE: usize = 4096;
/// Octets of a datagram at most (`unpdg_sendspace`).
const DGRAM_SEND: usize = 2048;
/// Octets of datagrams that wait at most (`unpdg_recvspace`).
const DGRAM_RECV: usize = 4096;

/// One end (`struct unpcb`).
struct Unpcb {
    socket: Weak<Socket>,
    addr: Cell<Option<Sockaddr>>,
    /// Peer to which it is connected.
    conn: RefCell<Weak<Unpcb>>,
    /// Datagram sockets that are connected to it.
    refs: RefCell<Vec<Weak<Unpcb>>>,
}

/// The domain's names, which both types share.
#[derive(Default)]
struct Names(RefCell<BTreeMap<[u8; 14], Weak<Unpcb>>>);

/// The functions of one type of socket.
pub(crate) struct Unp {
    names: Rc<Names>,
}

/// Puts the domain into the switch of a subsystem, under the number of its block's node.
pub(crate) fn add(cx: &Kernel, bsd: &Bsd, id: ProtocolId) -> Result {
    let names = Rc::<Names>::default();
    for (pr_type, pr_flags) in
        [(Sock::Stream, PR_CONNREQUIRED | PR_WANTRCVD), (Sock::Dgram, PR_ATOMIC | PR_ADDR)]
    {
        let sw = Switch { pr_type, pr_domain: AF_UNIX, pr_protocol: 0, pr_flags };
        bsd.register(cx, id, sw, Rc::new(Unp { names: Rc::clone(&names) }))?;
    }
    Ok(())
}

impl Names {
    fn key(sa: &Sockaddr) -> Result<[u8; 14]> {
        let key: [u8; 14] = sa.data().try_into().map_err(|_| Errno::EINVAL)?;
        if key == [0; 14] { Err(Errno::EINVAL) } else { Ok(key) }
    }

    /// The end of this name, while its socket is there.
    fn find(&self, sa: &Sockaddr) -> Result<Rc<Unpcb>> {
        let found = self.0.borrow().get(&Self::key(sa)?).and_then(Weak::upgrade);
        found.filter(|unp| unp.socket.strong_count() > 0).ok_or(Errno::ECONNREFUSED)
    }

    fn bind(&self, unp: &Rc<Unpcb>, sa: Sockaddr) -> Result {
        if unp.addr.get().is_some() {
            return Err(Errno::EINVAL);
        }
        let key = Self::key(&sa)?;
        let mut names = self.0.borrow_mut();
        // Names of sockets that were dropped without a close are free again.
        names.retain(|_, unp| unp.strong_count() > 0);
        if names.contains_key(&key) {
            return Err(Errno::EADDRINUSE);
        }
        names.insert(key, Rc::downgrade(unp));
        unp.addr.set(Some(sa));
        Ok(())
    }

    fn unbind(&self, unp: &Rc<Unpcb>) {
        let Some(key) = unp.addr.get().and_then(|sa| Self::key(&sa).ok()) else { return };
        // An accepted end has its listener's name, and does not own it.
        let mut names = self.0.borrow_mut();
        if names.get(&key).is_some_and(|owner| owner.ptr_eq(&Rc::downgrade(unp))) {
            names.remove(&key);
        }
    }
}

impl Unpcb {
    fn peer(&self) -> Option<(Rc<Unpcb>, Rc<Socket>)> {
        let unp = self.conn.borrow().upgrade()?;
        let so = unp.socket.upgrade()?;
        Some((unp, so))
    }

    /// Name of the socket, or that of none.
    fn name(&self, so: &Socket) -> Sockaddr {
        let none = Sockaddr::unix(so.bsd.mbufs().release(), b"");
        self.addr.get().or(none).unwrap_or_default()
    }
}

/// Joins two ends (`unp_connect2`): datagrams one way, streams both.
fn connect2(cx: &Kernel, so: &Rc<Socket>, unp: &Rc<Unpcb>, so2: &Rc<Socket>) -> Result {
    if so2.so_type != so.so_type {
        return Err(Errno::EPROTOTYPE);
    }
    let unp2 = so2.pcb::<Unpcb>().ok_or(Errno::EINVAL)?;
    unp.conn.replace(Rc::downgrade(&unp2));
    if so.so_type == Sock::Dgram {
        unp2.refs.borrow_mut().push(Rc::downgrade(unp));
    } else {
        unp2.conn.replace(Rc::downgrade(unp));
        so2.soisconnected(cx);
    }
    so.soisconnected(cx);
    Ok(())
}

/// Parts an end from what it is connected to (`unp_disconnect`).
fn disconnect(cx: &Kernel, so: &Rc<Socket>, unp: &Rc<Unpcb>) {
    let peer = unp.conn.replace(Weak::new()).upgrade();
    let Some(unp2) = peer else { return };
    if so.so_type == Sock::Dgram {
        unp2.refs.borrow_mut().retain(|of| !of.ptr_eq(&Rc::downgrade(unp)));
        so.set_state(0, SS_ISCONNECTED);
        return;
    }
    so.soisdisconnected(cx);
    unp2.conn.replace(Weak::new());
    if let Some(so2) = unp2.socket.upgrade() {
        so2.soisdisconnected(cx);
    }
}

impl Unp {
    /// Connects to a name (`unp_connect`); a stream to a new end of the listening socket.
    fn connect(&self, cx: &Kernel, so: &Rc<Socket>, unp: &Rc<Unpcb>, to: &Sockaddr) -> Result {
        let unp2 = self.names.find(to)?;
        let mut so2 = unp2.socket.upgrade().ok_or(Errno::ECONNREFUSED)?;
        if so2.so_type != so.so_type {
            return Err(Errno::EPROTOTYPE);
        }
        if so.so_type == Sock::Stream {
            if so2.options() & SO_ACCEPTCONN == 0 {
                return Err(Errno::ECONNREFUSED);
            }
            so2 = so2.sonewconn(cx, 0).ok_or(Errno::ECONNREFUSED)?;
            let unp3 = so2.pcb::<Unpcb>().ok_or(Errno::EINVAL)?;
            unp3.addr.set(unp2.addr.get());
        }
        connect2(cx, so, unp, &so2)
    }

    fn send(
        &self,
        cx: &Kernel,
        so: &Rc<Socket>,
        unp: &Rc<Unpcb>,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let m = args.need_m()?;
        if so.so_type == Sock::Dgram {
            let to =
                args.nam.as_deref().map(|nam| Sockaddr::of_family(nam, AF_UNIX)).transpose()?;
            return self.send_dgram(cx, so, unp, m, to, args.control.take());
        }
        if so.is(SS_CANTSENDMORE) {
            return Err(Errno::EPIPE);
        }
        let (_, so2) = unp.peer().ok_or(Errno::ENOTCONN)?;
        so2.so_rcv.sbappend(m);
        so.so_snd.set_beyond(&so2.so_rcv);
        so2.sorwakeup(cx);
        Ok(())
    }

    fn send_dgram(
        &self,
        cx: &Kernel,
        so: &Rc<Socket>,
        unp: &Rc<Unpcb>,
        m: Mbuf,
        to: Option<Sockaddr>,
        control: Option<Mbuf>,
    ) -> Result {
        let so2 = match (to, unp.peer()) {
            (Some(_), Some(_)) => return Err(Errno::EISCONN),
            (None, None) => return Err(Errno::ENOTCONN),
            (None, Some((_, so2))) => so2,
            (Some(to), None) => {
                let so2 = self.names.find(&to)?.socket.upgrade().ok_or(Errno::ECONNREFUSED)?;
                if so2.so_type == Sock::Dgram { so2 } else { return Err(Errno::EPROTOTYPE) }
            }
        };
        let from = unp.name(so).to_mbuf(so.bsd.mbufs())?;
        so2.so_rcv.sbappendaddr(from, Some(m), control)?;
        so2.sorwakeup(cx);
        Ok(())
    }

    /// The socket goes (`unp_detach`): those that are connected to it are told.
    fn detach(&self, cx: &Kernel, so: &Rc<Socket>, unp: &Rc<Unpcb>) {
        self.names.unbind(unp);
        disconnect(cx, so, unp);
        for of in unp.refs.take().iter().filter_map(Weak::upgrade) {
            of.conn.replace(Weak::new());
            if let Some(so2) = of.socket.upgrade() {
                so2.set_error(Some(Errno::ECONNRESET));
                so2.set_state(0, SS_ISCONNECTED);
                so2.sorwakeup(cx);
                so2.sowwakeup(cx);
            }
        }
        so.soisdisconnected(cx);
        so.set_pcb(None);
    }
}

impl ProtoFns for Unp {
    /// `uipc_usrreq`.
    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let so = so.ok_or(Errno::EOPNOTSUPP)?;
        if req == Pru::Attach {
            return attach(so);
        }
        let unp = so.pcb::<Unpcb>().ok_or(Errno::EINVAL)?;
        match req {
            Pru::Detach => self.detach(cx, so, &unp),
            Pru::Bind => {
                let sa = Sockaddr::of_family(args.need_nam()?, AF_UNIX)?;
                self.names.bind(&unp, sa)?;
            }
            Pru::Listen if so.so_type == Sock::Dgram => return Err(Errno::EOPNOTSUPP),
            Pru::Listen => drop(unp.addr.get().ok_or(Errno::EINVAL)?),
            Pru::Connect => {
                let to = Sockaddr::of_family(args.need_nam()?, AF_UNIX)?;
                self.connect(cx, so, &unp, &to)?;
            }
            Pru::Connect2 => {
                let so2 = args.so2.take().ok_or(Errno::EINVAL)?;
                connect2(cx, so, &unp, &so2)?;
            }
            Pru::Disconnect => disconnect(cx, so, &unp),
            Pru::Accept | Pru::Peeraddr => {
                let name = match unp.peer() {
                    Some((unp2, so2)) => unp2.name(&so2),
                    // It may have gone between the two calls.
                    None => Sockaddr::unix(so.bsd.mbufs().release(), b"").unwrap_or_default(),
                };
                name.store(args.need_nam()?);
            }
            Pru::Sockaddr => unp.name(so).store(args.need_nam()?),
            Pru::Shutdown => {
                so.socantsendmore(cx);
                if so.so_type == Sock::Stream
                    && let Some((_, so2)) = unp.peer()
                {
                    so2.socantrcvmore(cx);
                }
            }
            Pru::Rcvd => {
                if let Some((_, so2)) = unp.peer() {
                    so2.so_snd.set_beyond(&so.so_rcv);
                    so2.sowwakeup(cx);
                }
            }
            Pru::Send => self.send(cx, so, &unp, args)?,
            Pru::Abort => {
                so.set_error(Some(Errno::ECONNABORTED));
                self.detach(cx, so, &unp);
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }
}

fn attach(so: &Rc<Socket>) -> Result {
    if so.pcb_is_set() {
        return Err(Errno::EISCONN);
    }
    // An accepted end has its listener's room already.
    if so.so_snd.hiwat() == 0 {
        match so.so_type {
            Sock::Dgram => so.soreserve(DGRAM_SEND, DGRAM_RECV)?,
            _ => so.soreserve(STREAM_SPACE, STREAM_SPACE)?,
        }
    }
    so.set_pcb(Some(Rc::new(Unpcb {
        socket: Rc::downgrade(so),
        addr: Cell::new(None),
        conn: RefCell::default(),
        refs: RefCell::default(),
    })));
    Ok(())
}
