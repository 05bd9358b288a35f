//! Shared state of protocol and sessions.

use crate::hops::Hops;
use crate::ports::{Port, Ports};
use crate::wire::Long;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::{AtAddr, NetRange, Node};
use xk_appletalk::ddp::{BestRouters, Cable};
use xk_core::map::Map;
use xk_core::object::SessionTable;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, reason};
use xk_kit::control::PeerEther;
use xk_kit::net::appletalk::{CableChanged, now};
use xk_kit::net::ports::Choices;
use xk_kit::net::waiting::Waiting;

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

/// The timer token of datagrams to this node itself.
pub(crate) const TOKEN_LOOP: u64 = 1;
/// Token of the timer of best routers.
pub(crate) const TOKEN_BEST: u64 = 2;
/// Networks whose best router is known.
const BEST_MAX: usize = 64;
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

pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) sessions: SessionTable<u64>,
    /// By protocol type and socket.
    pub(crate) enables: Map<u16, ProtocolRef>,
    pub(crate) choices: Choices,
    /// Changes with all that a way depends on; never 0.
    pub(crate) generation: Cell<u32>,
    pub(crate) has_checksum: bool,
    pub(crate) routes_max: usize,
    pub(crate) hops: Hops,
    /// Messages that wait for an address.
    pub(crate) waiting: Waiting,
    looped: RefCell<VecDeque<Message>>,
    /// The routers by which datagrams of other networks came; of a node that routes nothing.
    best: Option<RefCell<BestRouters>>,
}

/// The number of an enable.
pub(crate) fn enable_key(kind: u8, socket: u8) -> u16 {
    u16::from(kind) << 8 | u16::from(socket)
}

/// Bounds and choices of one instance.
pub(crate) struct Limits {
    pub(crate) has_checksum: bool,
    pub(crate) sessions: usize,
    pub(crate) enables: usize,
    pub(crate) waiting: usize,
    pub(crate) routes: usize,
    pub(crate) has_best: bool,
}

impl Shared {
    pub(crate) fn new(cx: &Kernel, ports: Ports, limits: &Limits) -> Self {
        let secret = cx.secret();
        let has_best = limits.has_best && !ports.is_router();
        Self {
            ports,
            sessions: SessionTable::new(secret, limits.sessions),
            enables: Map::new(secret, limits.enables),
            choices: Choices::default(),
            generation: Cell::new(1),
            has_checksum: limits.has_checksum,
            routes_max: limits.routes,
            hops: Hops::default(),
            waiting: Waiting::new(limits.waiting, limits.waiting),
            looped: RefCell::default(),
            best: has_best.then(|| RefCell::new(BestRouters::new(BEST_MAX))),
        }
    }

    /// A datagram has come by way of a router, if this node minds.
    pub(crate) fn came_by(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (header, lower): (&Long, &SessionRef),
    ) {
        let net = header.from.net;
        let minds = |port: &Port| header.hops() > 0 && !port.cable.get().is_local(net);
        let Some(best) = self.best.as_ref().filter(|_| self.ports.list.first().is_some_and(minds))
        else {
            return;
        };
        // A link without such addresses has one other end.
        let Some(router) = lower.ask(cx, PeerEther::default()) else { return };
        let was_empty = best.borrow().is_empty();
        let is_other = best.borrow_mut().heard(net, router.address, now(cx));
        if is_other {
            self.outdate();
        }
        if was_empty {
            self.arm_best(cx, this);
        }
    }

    /// The router by which datagrams of a network come.
    pub(crate) fn best(&self, cx: &Kernel, net: u16) -> Option<[u8; 6]> {
        let is_local = self.ports.list.first().is_none_or(|port| port.cable.get().is_local(net));
        let best = self.best.as_ref().filter(|_| !is_local)?;
        best.borrow().best(net, now(cx))
    }

    /// Forgets routers that were not heard for long.
    pub(crate) fn age_best(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.best.as_ref().is_some_and(|best| best.borrow_mut().expire(now(cx))) {
            self.outdate();
        }
        self.arm_best(cx, this);
    }

    fn arm_best(&self, cx: &Kernel, this: &ProtocolRef) {
        let next = self.best.as_ref().and_then(|best| best.borrow().next());
        if let Some(next) = next {
            // Without a timer the ways are as they were.
            let _ = cx.schedule_protocol(this, next.saturating_sub(now(cx)), TOKEN_BEST);
        }
    }

    /// All ways are to be found again.
    pub(crate) fn outdate(&self) {
        self.generation.set(self.generation.get().wrapping_add(1).max(1));
    }

    /// Sends what waits for an address.
    pub(crate) fn let_go(&self, cx: &Kernel) {
        for (session, message) in self.waiting.take(|_, ()| true) {
            // Counted below, as if it had gone at once.
            let _ = match session.body::<crate::session::DdpSession>() {
                Some(body) => body.go_on(cx, &session, message),
                None => Ok(()),
            };
        }
    }

    /// Keeps a datagram to this node itself until the stack of calls has ended; false, counted, if
    /// there are too many.
    pub(crate) fn put_looped(&self, cx: &Kernel, this: &ProtocolRef, packet: Message) -> bool {
        let is_full = self.looped.borrow().len() >= LOOPED_MAX;
        let arm = || cx.schedule_protocol(this, Duration::ZERO, TOKEN_LOOP);
        if is_full || arm().is_err() {
            this.discard(packet, &reason::QUEUE_FULL);
            return false;
        }
        self.looped.borrow_mut().push_back(packet);
        true
    }

    /// The datagram to this node itself that waits longest.
    pub(crate) fn take_looped(&self) -> Option<Message> {
        self.looped.borrow_mut().pop_front()
    }

    /// A claim below has come to an end, or was disputed.
    pub(crate) fn claimed(&self, cx: &Kernel, at: usize, node: Node) {
        let Some(port) = self.ports.list.get(at) else { return };
        let cable = port.cable.get();
        port.cable.set(Cable { me: node, ..cable });
        port.is_ready.set(true);
        self.outdate();
        self.let_go(cx);
        self.tell(cx, at);
    }

    /// The networks of a cable are known, or others.
    pub(crate) fn set_cable(&self, cx: &Kernel, at: usize, range: NetRange) {
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

    /// Releases everything; for the protocol's `stop`.
    pub(crate) fn clear(&self, cx: &Kernel) {
        self.waiting.clear();
        drop(self.looped.take());
        self.sessions.clear();
        self.enables.clear();
        self.hops.clear(cx);
        self.ports.routes.take();
    }
}
