//! Sockets of programs on the adapter: what the line `sockets` of BSD's stands for.

use super::Half;
use super::connections::Connections;
use super::datagrams::Datagrams;
use crate::edge::Fault;
use crate::form::{Addr, Ports};
use alloc::rc::{Rc, Weak};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::{PR_ADDR, PR_ATOMIC, PR_CONNREQUIRED, PR_WANTRCVD, Sockaddr, Switch};
use xk_core::Kernel;
use xk_core::object::ProtocolId;

use xk_bsd::{Mbuf, Sock};

/// The sockets above, of one kind of service.
pub(super) trait Users {
    /// The graph is taken down.
    fn stop(&self, cx: &Kernel);
}

/// Puts an entry for sockets into the protocol switch: that of the adapter's node, for what stands
/// above it.
pub(super) fn register(
    half: &Rc<Half>,
    cx: &Kernel,
    (node, selector): (ProtocolId, ProtocolId),
) -> core::result::Result<Rc<dyn Users>, Fault> {
    let (kind, number) = half.form.sockets.ok_or(Fault::NotSupported)?;
    let flags = match kind {
        Sock::Stream => PR_CONNREQUIRED | PR_WANTRCVD,
        _ => PR_ATOMIC | PR_ADDR,
    };
    let switch =
        Switch { pr_type: kind, pr_domain: half.form.family, pr_protocol: number, pr_flags: flags };
    let place = Place { half: Rc::downgrade(half), selector, ports: Ports::default() };
    let users: Rc<dyn Users> = match kind {
        Sock::Stream => {
            let circuits = half.below.circuits().ok_or(Fault::NotSupported)?;
            let users = Rc::new(Connections::new(place, circuits));
            half.bsd.register(cx, node, switch, Rc::clone(&users) as _)?;
            users
        }
        _ => {
            let users = Rc::new(Datagrams::new(place, type_of(half, cx, (node, selector))));
            half.bsd.register(cx, node, switch, Rc::clone(&users) as _)?;
            users
        }
    };
    Ok(users)
}

/// The number that selects the protocol above, where users see it in front of their data.
fn type_of(half: &Half, cx: &Kernel, (node, selector): (ProtocolId, ProtocolId)) -> Option<u8> {
    let mut at = cx.protocol(node).filter(|_| half.form.type_in_front)?;
    while let Some(below) = at.numbers_below().cloned() {
        at = below;
    }
    cx.type_number(selector, at.id()).and_then(|number| u8::try_from(number).ok())
}

/// The protocol above that sockets send and receive as, and the half below it.
pub(super) struct Place {
    half: Weak<Half>,
    pub(super) selector: ProtocolId,
    ports: Ports,
}

impl Place {
    pub(super) fn half(&self) -> Result<Rc<Half>> {
        self.half.upgrade().ok_or(Errno::ENETDOWN)
    }

    /// Binds a socket to an address, or to a port that is free if it has none.
    pub(super) fn bind<T>(
        &self,
        half: &Half,
        local: Addr,
        open: impl FnMut(Addr) -> core::result::Result<T, Fault>,
    ) -> Result<(Addr, T)> {
        self.ports.open(half.form, local, open).map_err(|fault| match fault {
            Fault::InUse if !half.has_port(&local) => Errno::EADDRNOTAVAIL,
            fault => fault.into(),
        })
    }
}

impl Half {
    /// The address in an mbuf.
    pub(super) fn addr_of(&self, nam: &Mbuf) -> Result<Addr> {
        let sa = Sockaddr::of(nam)?;
        if sa.family() != self.form.family {
            return Err(Errno::EAFNOSUPPORT);
        }
        Ok(Addr::from(sa))
    }

    pub(super) fn sockaddr(&self, addr: Addr) -> Sockaddr {
        addr.to_sockaddr(self.bsd.mbufs().release())
    }

    pub(super) fn has_port(&self, addr: &Addr) -> bool {
        self.form.port_number(addr).is_none_or(|port| port != 0)
    }
}
