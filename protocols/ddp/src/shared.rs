//! State that protocol and sessions share: keys, best routers, datagrams that wait, cables.

use crate::ports::Port;
use crate::protocol::Ddp;
use crate::session::DdpSession;
use crate::wire::Long;
use alloc::vec::Vec;
use core::time::Duration;
use xk_appletalk::addr::{AtAddr, NetRange, Node};
use xk_appletalk::ddp::Cable;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, reason};
use xk_kit::control::PeerEther;
use xk_kit::machine::At;
use xk_kit::net::appletalk::{CableChanged, now};

/// Why it drops messages, besides the reasons that all protocols share.
pub mod reasons {
    use xk_core::reason::{Class, Reason};

    /// The datagram has passed as many routers as it may.
    pub static HOPS: Reason = Reason::new("too many hops", Class::Prohibited);
    /// No way leads to the network.
    pub static NO_ROUTE: Reason = Reason::new("no route", Class::Bad);
    /// Another node has the address, or uses it in spite of its defence; of no message.
    pub static CONFLICT: Reason = Reason::new("node conflict", Class::Bad);
    /// There is no address of one's own as yet to forward from.
    pub static NO_ADDRESS: Reason = Reason::new("no address", Class::Exhausted);
}

/// Datagrams to this node itself that wait.
const LOOPED_MAX: usize = 256;
/// The port of sessions that leave by whichever leads to their peer.
pub(crate) const PORT_ANY: u8 = 0xff;

/// Key of a session: peer, socket, protocol type, port, and the group that is sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) peer: AtAddr,
    pub(crate) socket: u8,
    pub(crate) kind: u8,
    /// The port whose address is this end's; [`PORT_ANY`].
    pub(crate) port: u8,
    /// The last octet of a zone's group and one; 0 for none.
    pub(crate) group: u8,
}

impl Key {
    pub(crate) const fn number(self) -> u64 {
        let AtAddr { net, node, socket } = self.peer;
        let [a, b] = net.to_be_bytes();
        u64::from_be_bytes([a, b, node, socket, self.socket, self.kind, self.port, self.group])
    }

    /// The group, as hardware has it.
    pub(crate) fn group(self) -> Option<[u8; 6]> {
        self.group.checked_sub(1).map(|last| [0x09, 0x00, 0x07, 0x00, 0x00, last])
    }

    /// The port that it is to leave by.
    pub(crate) fn over(self) -> Option<usize> {
        (self.port != PORT_ANY).then_some(self.port.into())
    }
}

/// The number of an enable.
pub(crate) fn enable_key(kind: u8, socket: u8) -> u16 {
    u16::from(kind) << 8 | u16::from(socket)
}

impl Ddp {
    /// A datagram has come by way of a router, if this node minds.
    pub(crate) fn came_by(&self, at: At<'_>, header: &Long, lower: &SessionRef) {
        let net = header.from.net;
        let minds = |port: &Port| header.hops() > 0 && !port.cable.get().is_local(net);
        let Some(best) = self.best.as_ref().filter(|_| self.ports.list.first().is_some_and(minds))
        else {
            return;
        };
        // A link without such addresses has one other end.
        let Some(router) = lower.ask(at.cx, PeerEther::default()) else { return };
        let was_empty = best.borrow().is_empty();
        let is_other = best.borrow_mut().heard(net, router.address, at.now());
        if is_other {
            self.outdate();
        }
        if was_empty {
            at.wake(best.borrow().next());
        }
    }

    /// The router by which datagrams of a network come.
    pub(crate) fn best(&self, cx: &Kernel, net: u16) -> Option<[u8; 6]> {
        let is_local = self.ports.list.first().is_none_or(|port| port.cable.get().is_local(net));
        let best = self.best.as_ref().filter(|_| !is_local)?;
        best.borrow().best(net, now(cx))
    }

    /// All ways are to be found again.
    pub(crate) fn outdate(&self) {
        self.generation.set(self.generation.get().wrapping_add(1).max(1));
    }

    /// Keeps a datagram to this node itself until the stack of calls has ended; false, counted, if
    /// there are too many.
    pub(crate) fn put_looped(&self, at: At<'_>, packet: Message) -> bool {
        let is_full = self.looped.borrow().len() >= LOOPED_MAX;
        if is_full || at.schedule(Duration::ZERO, 0).is_err() {
            at.this.discard(packet, &reason::QUEUE_FULL);
            return false;
        }
        self.looped.borrow_mut().push_back(packet);
        true
    }

    /// A claim below has come to an end, or was disputed.
    pub(crate) fn claimed(&self, cx: &Kernel, at: usize, node: Node) {
        let Some(port) = self.ports.list.get(at) else { return };
        let cable = port.cable.get();
        port.cable.set(Cable { me: node, ..cable });
        port.is_ready.set(true);
        self.outdate();
        for (session, message) in self.waiting.take(|_, ()| true) {
            // Counted below, as if it had gone at once.
            let _ = session.body::<DdpSession>().map(|body| body.go_on(cx, &session, message));
        }
        self.tell(cx, at);
    }

    /// The networks of a cable are known, or others.
    pub(crate) fn set_range(&self, cx: &Kernel, at: usize, range: NetRange) {
        let Some(port) = self.ports.list.get(at) else { return };
        let cable = port.cable.get();
        let is_other = cable.range != range;
        port.cable.set(Cable { range, ..cable });
        port.is_known.set(true);
        if is_other {
            self.outdate();
            if !range.contains(cable.me.net) {
                // The old address is defended, and used, until there is a new one.
                port.claim(cx, at);
            }
        }
        self.tell(cx, at);
    }

    /// Tells all that are enabled that something is known of a cable.
    pub(crate) fn tell(&self, cx: &Kernel, at: usize) {
        let mut uppers: Vec<ProtocolRef> = Vec::new();
        self.enables.for_each(|_, upper| {
            if !uppers.contains(upper) {
                uppers.push(upper.clone());
            }
        });
        for upper in uppers {
            let _ = upper.ask(cx, CableChanged { port: at as u8 });
        }
    }
}
