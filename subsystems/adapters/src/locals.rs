//! Our own address at a session of the x-kernel's, by the questions of its family.

use crate::form::{Addr, Form};
use xk_appletalk::addr::AtAddr;
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_core::{Kernel, Part, Participant, SessionRef};
use xk_kit::control::{MyHost, MyPort};
use xk_kit::net::appletalk::DdpEnds;

/// The address from which the session sends, as far as it says.
pub(crate) fn local_of(cx: &Kernel, form: &Form, session: &SessionRef) -> Option<Addr> {
    if form.family == AF_APPLETALK {
        let (net, node, socket) = session.ask(cx, DdpEnds::default())?.local;
        return Addr::parse(&AtAddr::new(net, node, socket).to_sockaddr());
    }
    let host = session.ask(cx, MyHost::default())?.host;
    let mut local = Participant::of(Part::Host(host));
    if form.port_number(&form.any()).is_some() {
        local.push(Part::port(session.ask(cx, MyPort::default())?.port));
    }
    form.to_addr(&local).ok()
}

/// Both ends of a session with sockets of AppleTalk, our own first.
pub(crate) fn ends_of(cx: &Kernel, form: &Form, session: &SessionRef) -> Option<(Addr, Addr)> {
    let ends = session.ask(cx, DdpEnds::default()).filter(|_| form.family == AF_APPLETALK)?;
    let addr = |(net, node, socket)| Addr::parse(&AtAddr::new(net, node, socket).to_sockaddr());
    Some((addr(ends.local)?, addr(ends.peer)?))
}

/// The triple that the questions of AppleTalk have for an address: network, node, socket.
pub(crate) fn triple(addr: &Addr) -> (u16, u8, u8) {
    let at = AtAddr::from_sockaddr(&addr.to_tpi()).unwrap_or_default();
    (at.net, at.node, at.socket)
}
