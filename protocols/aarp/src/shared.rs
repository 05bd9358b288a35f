//! Shared state of protocol and sessions: the machine, the messages that wait for it, and its
//! figures.

use crate::session::{AarpSession, Key};
use crate::wire::{ALL_NODES, Hw, Packet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::aarp::{Aarp as Machine, Action, Config as Times, Resolution, Wish};
use xk_appletalk::addr::{NetRange, Node};
use xk_core::object::SessionTable;
use xk_core::reason::Class;
use xk_core::{
    Kernel, Part, Participants, ProtocolRef, Reason, Secret, SessionRef, Upper, question, reason,
};
use xk_kit::net::appletalk::{ClaimNode, NodeClaimed, now};
use xk_kit::net::waiting::{Alarm, Waiting};

/// Another station uses this node's address.
pub static CONFLICT: Reason = Reason::new("node conflict", Class::Bad);
/// A response that was not asked for.
pub static UNSOLICITED: Reason = Reason::new("unsolicited", Class::NotMine);
/// The hardware of the node could not be found out.
pub static UNRESOLVED: Reason = Reason::new("unresolved", Class::Exhausted);
/// There is no address to send from, and none is being claimed.
pub static NO_ADDRESS: Reason = Reason::new("no address", Class::Exhausted);
/// A packet came back that this station had sent.
pub static LOOPED: Reason = Reason::new("looped", Class::Bad);

/// Room for the lower headers in front of a packet, in octets.
const HEADROOM: usize = 128;
/// Upper protocols that are told of claims.
const UPPERS_MAX: usize = 64;

xk_core::settings! {
    /// Parameters of the graph.
    pub(crate) struct Config {
        nodes_max: usize = int(1..=65_536, 256, "how many nodes it remembers"),
        sessions_max: usize = int(1..=1_048_576, 4096, "how many sessions it holds"),
        queue_max: usize = int(1..=1_048_576, 48, "how many messages wait in one session"),
        waiting_max: usize = int(1..=1_048_576, 1024,
            "how many messages wait in all sessions together"),
        probes: u8 = int(1..=100, 10, "how many probes precede an address of its own"),
        probe_interval: Duration = duration(Duration::from_millis(200), "time between two probes"),
        tries: u8 = int(1..=100, 10, "how often a node is asked for"),
        retry: Duration = duration(Duration::from_millis(200), "time between two requests"),
        lifetime: Duration = duration(Duration::from_secs(60),
            "how long a node is believed without confirmation"),
    }
}

impl Config {
    fn times(&self) -> Times {
        Times {
            probes: self.probes,
            probe_interval: self.probe_interval,
            tries: self.tries,
            retry: self.retry,
            lifetime: self.lifetime,
            nodes_max: self.nodes_max,
        }
    }
}

/// The table, for `xk dump`.
#[derive(Clone, Debug, Default)]
pub struct AarpTable {
    /// This node's address.
    pub me: Option<(u16, u8)>,
    /// Times that another station used the address.
    pub conflicts: u64,
    /// Network, node, and hardware where it is known.
    pub nodes: Vec<(u16, u8, Option<[u8; 6]>)>,
}

question!(AarpTable { me, conflicts, nodes }, "aarp-table", Ask);

pub(crate) struct Shared {
    pub(crate) eth: ProtocolRef,
    pub(crate) config: Config,
    pub(crate) sessions: SessionTable<Key>,
    machine: RefCell<Machine>,
    /// Messages that wait for a node.
    pub(crate) waiting: Waiting<Node>,
    /// The protocol itself, from start to stop.
    me: RefCell<Option<ProtocolRef>>,
    /// The protocols that are told what came of a claim.
    uppers: RefCell<Vec<ProtocolRef>>,
    /// The number of the claim.
    claim: Cell<u8>,
    /// The session to all nodes.
    broadcast: RefCell<Option<SessionRef>>,
    alarm: Alarm,
}

impl Shared {
    pub(crate) fn new(secret: Secret, eth: ProtocolRef, config: Config) -> Self {
        Self {
            eth,
            sessions: SessionTable::new(secret, config.sessions_max),
            machine: RefCell::new(Machine::new([0; 6], config.times())),
            waiting: Waiting::new(config.waiting_max, config.queue_max),
            me: RefCell::default(),
            uppers: RefCell::default(),
            claim: Cell::default(),
            broadcast: RefCell::default(),
            alarm: Alarm::default(),
            config,
        }
    }

    /// The station's hardware is known.
    pub(crate) fn begin(&self, this: &ProtocolRef, hw: Hw, broadcast: SessionRef) {
        *self.machine.borrow_mut() = Machine::new(hw, self.config.times());
        *self.me.borrow_mut() = Some(this.clone());
        *self.broadcast.borrow_mut() = Some(broadcast);
    }

    /// Counts something dropped at the protocol.
    fn count(&self, why: &'static Reason) {
        if let Some(me) = &*self.me.borrow() {
            me.head().drops().count(why);
        }
    }

    /// Number that changes when anything known of nodes does.
    pub(crate) fn changes(&self) -> u32 {
        self.machine.borrow().table().changes()
    }

    /// True if an address is being claimed.
    fn is_claiming(&self) -> bool {
        self.machine.borrow().claim().trying().is_some()
    }

    /// Looks a node up, and asks for it if it is not known.
    pub(crate) fn resolve(&self, cx: &Kernel, node: Node) -> Resolution {
        let (resolution, action) = self.machine.borrow_mut().resolve(node, now(cx));
        if let Some(action) = action {
            self.act(cx, [action]);
            self.arm(cx);
        }
        resolution
    }

    /// Takes a packet in.
    pub(crate) fn input(&self, cx: &Kernel, packet: &Packet) -> Result<(), &'static Reason> {
        use xk_appletalk::aarp::Refusal;
        let mut random = || cx.random().next_u32();
        let heard = self.machine.borrow_mut().input(packet, now(cx), &mut random);
        let actions = heard.map_err(|refusal| match refusal {
            Refusal::BadSource => &reason::BAD_SOURCE,
            Refusal::Looped => &LOOPED,
            Refusal::Unsolicited => &UNSOLICITED,
            Refusal::NotMine => &reason::NOT_MINE,
            Refusal::Full => &reason::TABLE_FULL,
        })?;
        self.act(cx, actions);
        self.arm(cx);
        Ok(())
    }

    /// Begins to be a node; false if there is no such range.
    pub(crate) fn claim(&self, cx: &Kernel, ask: &ClaimNode) -> bool {
        let Some(range) = NetRange::new(ask.first, ask.last) else { return false };
        self.claim.set(ask.claim);
        let node = Node::new(ask.net, ask.node);
        let first = node.is_one().then_some(node);
        let wish = Wish { range, first, only: ask.is_only && first.is_some() };
        let mut random = || cx.random().next_u32();
        self.machine.borrow_mut().wish(wish, now(cx), &mut random);
        self.tick(cx);
        true
    }

    /// Does what is due.
    pub(crate) fn tick(&self, cx: &Kernel) {
        let mut random = || cx.random().next_u32();
        let actions = self.machine.borrow_mut().tick(now(cx), &mut random);
        self.act(cx, actions);
        self.arm(cx);
    }

    /// The timer went off.
    pub(crate) fn timeout(&self, cx: &Kernel) {
        self.alarm.went_off();
        self.tick(cx);
    }

    /// Sets the timer for what is due next.
    fn arm(&self, cx: &Kernel) {
        let (next, me) = (self.machine.borrow().next(), self.me.borrow().clone());
        if let Some((next, me)) = next.zip(me) {
            self.alarm.set(cx, &me, next, 0);
        }
    }

    fn act(&self, cx: &Kernel, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            match action {
                Action::Send(to, packet) => self.send(cx, to, &packet),
                Action::Claimed(node) => {
                    self.tell(cx, node, false);
                    self.let_go(cx, |_| true);
                }
                Action::Conflict(node) => {
                    self.count(&CONFLICT);
                    self.tell(cx, node, true);
                }
                Action::Resolved(node, _) => self.let_go(cx, |of| *of == node),
                Action::Unresolved(node) => {
                    self.waiting.discard(cx, &UNRESOLVED, |_, of| *of == node);
                }
            }
        }
    }

    /// Notes a protocol that is to be told what came of a claim.
    pub(crate) fn note_upper(&self, upper: &ProtocolRef) {
        let mut uppers = self.uppers.borrow_mut();
        if uppers.len() < UPPERS_MAX && !uppers.contains(upper) {
            uppers.push(upper.clone());
        }
    }

    fn tell(&self, cx: &Kernel, Node { net, node }: Node, is_disputed: bool) {
        let told = NodeClaimed { claim: self.claim.get(), net, node, is_disputed };
        let uppers = self.uppers.borrow().clone();
        for upper in uppers {
            let _ = upper.ask(cx, told);
        }
    }

    /// Sends a packet. What keeps it from going is counted; the next one makes up for it.
    fn send(&self, cx: &Kernel, to: Hw, packet: &Packet) {
        let Ok(message) = cx.pool().copy_from(HEADROOM, &packet.octets()) else {
            return self.count(&reason::NO_BUFFERS);
        };
        if to == ALL_NODES {
            let broadcast = self.broadcast.borrow().clone();
            let _ = broadcast.map(|session| session.push(cx, message));
            return;
        }
        let me = self.me.borrow().clone();
        let both = Participants::pair(Part::Any, Part::Ether(to));
        match me.and_then(|me| self.eth.open(cx, Upper::new(&me), both).ok()) {
            Some(session) => {
                let _ = session.push(cx, message);
                session.close(cx);
            }
            None => self.count(&reason::TABLE_FULL),
        }
    }

    // ---- messages that wait ----

    /// True if there is an address to send from, or will be.
    pub(crate) fn is_node(&self) -> bool {
        self.machine.borrow().me().is_some() || self.is_claiming()
    }

    /// Sends what waits, or keeps it again.
    fn let_go(&self, cx: &Kernel, which: impl Fn(&Node) -> bool) {
        for (session, message) in self.waiting.take(|_, of| which(of)) {
            match session.body::<AarpSession>() {
                // Counted below, as if it had gone at once.
                Some(body) => drop(body.go_on(cx, &session, message)),
                None => session.discard(cx, message, &reason::CLOSED),
            }
        }
    }

    pub(crate) fn fill(&self, table: &mut AarpTable) {
        let machine = self.machine.borrow();
        table.me = machine.me().map(|me| (me.net, me.node));
        table.conflicts = machine.claim().conflicts();
        table.nodes = machine.table().iter().map(|(n, hw)| (n.net, n.node, hw)).collect();
    }

    pub(crate) fn describe(&self) -> String {
        let machine = self.machine.borrow();
        let known = machine.table().len();
        match (machine.me(), machine.claim().trying()) {
            (Some(me), _) => alloc::format!("node {me}, {known} others"),
            (None, Some(node)) => alloc::format!("trying {node}"),
            (None, None) => "no node".into(),
        }
    }

    /// Forgets everything; for the protocol's `stop`.
    pub(crate) fn stop(&self, cx: &Kernel) {
        self.waiting.clear();
        for session in self.sessions.sessions(usize::MAX) {
            session.abort(cx);
        }
        self.sessions.clear();
        self.alarm.cancel(cx);
        if let Some(broadcast) = self.broadcast.take() {
            broadcast.close(cx);
        }
        drop((self.me.take(), self.uppers.take()));
    }
}
