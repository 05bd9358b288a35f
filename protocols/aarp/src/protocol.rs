//! AARP as a machine on one Ethernet: opens sessions, takes in packets, claims this node's address,
//! and finds the addresses of other nodes.

use crate::session::{AarpSession, Key, To};
use crate::wire::{ALL_NODES, Error, Hw, PACKET_LEN, Packet};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::aarp::{Aarp as Resolver, Action, Config as Times, Refusal, Resolution, Wish};
use xk_appletalk::addr::{BROADCAST, NetRange, Node};
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, SessionSlot, SessionTable};
use xk_core::participant::{AddressError, Participant};
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Part, Participants, ProtocolRef, Reason, SessionRef, Upper, question,
    reason,
};
use xk_kit::control::{JoinGroup, MyEther};
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{ClaimNode, NET, NODE, NodeClaimed};
use xk_kit::net::waiting::Waiting;

/// Another station uses this node's address.
pub static CONFLICT: Reason = Reason::new("node conflict", Class::Bad);
/// A response that was not asked for.
pub static UNSOLICITED: Reason = Reason::new("unsolicited", Class::NotMine);
/// The node did not answer requests for its hardware address.
pub static UNRESOLVED: Reason = Reason::new("unresolved", Class::Exhausted);
/// This node has no address to send from, and claims none.
pub static NO_ADDRESS: Reason = Reason::new("no address", Class::Exhausted);
/// A packet came back that this station had sent.
pub static LOOPED: Reason = Reason::new("looped", Class::Bad);

/// Largest number of upper protocols that are told of claims.
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
    /// Network and node of each entry, with its hardware address if that is known.
    pub nodes: Vec<(u16, u8, Option<[u8; 6]>)>,
}

question!(AarpTable { me, conflicts, nodes }, "aarp-table", Ask);

/// One instance, for one Ethernet.
pub struct Aarp {
    config: Config,
    pub(crate) sessions: SessionTable<Key>,
    resolver: RefCell<Resolver>,
    /// Messages that wait for a node.
    pub(crate) waiting: Waiting<Node>,
    /// The protocols that are told the result of a claim.
    uppers: RefCell<Vec<ProtocolRef>>,
    /// The number of the claim.
    claim: Cell<u8>,
    /// The session to all nodes.
    broadcast: SessionSlot,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it no layer below.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let config = Config::read(build)?;
    let aarp = Aarp {
        sessions: SessionTable::new(build.cx.secret(), config.sessions_max),
        resolver: RefCell::new(Resolver::new([0; 6], config.times())),
        waiting: Waiting::new(config.waiting_max, config.queue_max),
        uppers: RefCell::default(),
        claim: Cell::default(),
        broadcast: SessionSlot::default(),
        config,
    };
    machine::add(build, aarp)
}

/// The node, station or group that a peer names.
fn peer(peer: &mut Participant) -> Result<To, AddressError> {
    if let Some(Part::Ether(hw)) = peer.top().copied() {
        return (hw != [0; 6]).then_some(To::Hw(hw)).ok_or(AddressError::OutOfRange);
    }
    let node = peer.pop_number(NODE)?.definite()?;
    let net = match peer.is_empty() {
        true => None,
        false => peer.pop_number(NET)?.value(),
    };
    let node = u8::try_from(node).map_err(|_| AddressError::OutOfRange)?;
    let net = u16::try_from(net.unwrap_or(0)).map_err(|_| AddressError::OutOfRange)?;
    let node = Node::new(net, node);
    if node.is_one() || node.node == BROADCAST {
        Ok(To::of_node(node))
    } else {
        Err(AddressError::OutOfRange)
    }
}

/// The drop reason for an error in a packet.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Family(..) | Error::Function(_) => &reason::NOT_SUPPORTED,
        Error::Lengths(..) => &reason::MALFORMED,
    }
}

impl Aarp {
    /// Number that changes with each change of the table of nodes.
    pub(crate) fn changes(&self) -> u32 {
        self.resolver.borrow().table().changes()
    }

    /// True if this node has an address to send from, or is claiming one.
    pub(crate) fn is_node(&self) -> bool {
        let resolver = self.resolver.borrow();
        resolver.me().is_some() || resolver.claim().trying().is_some()
    }

    /// Looks a node up, and sends a request for it if it is not known.
    pub(crate) fn resolve(&self, at: At<'_>, node: Node) -> Resolution {
        let (resolution, action) = self.resolver.borrow_mut().resolve(node, at.now());
        if let Some(action) = action {
            self.perform(at, [action]);
            at.wake(self.next());
        }
        resolution
    }

    /// Begins to claim an address; false if the range of networks is not valid.
    fn claim(&self, at: At<'_>, ask: &ClaimNode) -> bool {
        let Some(range) = NetRange::new(ask.first, ask.last) else { return false };
        self.claim.set(ask.claim);
        let node = Node::new(ask.net, ask.node);
        let first = node.is_one().then_some(node);
        let wish = Wish { range, first, only: ask.is_only && first.is_some() };
        let mut random = || at.cx.random().next_u32();
        self.resolver.borrow_mut().wish(wish, at.now(), &mut random);
        self.due(at);
        true
    }

    fn perform(&self, at: At<'_>, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            match action {
                Action::Send(to, packet) => self.send(at, to, &packet),
                Action::Claimed(node) => {
                    self.tell(at, node, false);
                    self.let_go(at, |_| true);
                }
                Action::Conflict(node) => {
                    at.count(&CONFLICT);
                    self.tell(at, node, true);
                }
                Action::Resolved(node, _) => self.let_go(at, |of| *of == node),
                Action::Unresolved(node) => {
                    self.waiting.discard(at.cx, &UNRESOLVED, |_, of| *of == node);
                }
            }
        }
    }

    /// Adds a protocol to those that are told the result of a claim.
    fn note_upper(&self, upper: &ProtocolRef) {
        let mut uppers = self.uppers.borrow_mut();
        if uppers.len() < UPPERS_MAX && !uppers.contains(upper) {
            uppers.push(upper.clone());
        }
    }

    fn tell(&self, at: At<'_>, Node { net, node }: Node, is_disputed: bool) {
        let told = NodeClaimed { claim: self.claim.get(), net, node, is_disputed };
        let uppers = self.uppers.borrow().clone();
        for upper in uppers {
            let _ = upper.ask(at.cx, told);
        }
    }

    /// Sends a packet. A failure is only counted, because the packet is repeated or asked for
    /// again.
    fn send(&self, at: At<'_>, to: Hw, packet: &Packet) {
        let Some(message) = at.message(&packet.octets()) else { return };
        if to == ALL_NODES {
            let _ = self.broadcast.get().map(|session| session.push(at.cx, message));
            return;
        }
        match at.open(Part::Any, Part::Ether(to)) {
            Ok(session) => {
                let _ = session.push(at.cx, message);
                session.close(at.cx);
            }
            Err(_) => at.count(&reason::TABLE_FULL),
        }
    }

    /// Sends the messages that wait for these nodes; a message may have to wait again.
    fn let_go(&self, at: At<'_>, which: impl Fn(&Node) -> bool) {
        for (session, message) in self.waiting.take(|_, of| which(of)) {
            match session.body::<AarpSession>() {
                // A refusal is counted at the layer that refuses.
                Some(body) => drop(body.go_on(at.cx, &session, message)),
                None => session.discard(at.cx, message, &reason::CLOSED),
            }
        }
    }
}

impl Machine for Aarp {
    const OCTETS_MAX: usize = PACKET_LEN;

    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        let mine = at.ask(MyEther::default()).ok_or(OpenError::NoLower)?;
        let broadcast = at.open(Part::Any, Part::Ether(ALL_NODES))?;
        *self.resolver.borrow_mut() = Resolver::new(mine.address, self.config.times());
        drop(self.broadcast.replace(Some(broadcast)));
        at.tell(JoinGroup { address: ALL_NODES });
        at.enable(Part::Any)
    }

    fn open(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let to = peer(ends.peer_mut()?)?;
        // Tells now, and not with the first message, if the layer below lacks the number.
        upper.number_on(at.cx, at.lower)?;
        all.note_upper(upper.receiver);
        let key = (to.number(), upper.receiver.id().0, upper.selector.0);
        if let Some(session) = all.sessions.found(&key, upper.receiver)? {
            return Ok(session);
        }
        let body = AarpSession::new(all, key, to, upper);
        all.sessions.open(at.cx, at.this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        at: At<'_>,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        upper.number_on(at.cx, at.lower)?;
        self.note_upper(upper.receiver);
        // Data frames bear the upper's number and come up to it from there, not from here.
        at.lower.open_enable(at.cx, upper, Participants::local(Part::Any))
    }

    fn open_disable(&self, at: At<'_>, enable: Enable) {
        at.lower.open_disable(at.cx, enable);
    }

    fn hear(&self, at: At<'_>, _: &SessionRef, octets: &[u8]) -> Result<(), &'static Reason> {
        let packet = Packet::parse(octets).map_err(reason_of)?;
        let mut random = || at.cx.random().next_u32();
        let heard = self.resolver.borrow_mut().input(&packet, at.now(), &mut random);
        let actions = heard.map_err(|refusal| match refusal {
            Refusal::BadSource => &reason::BAD_SOURCE,
            Refusal::Looped => &LOOPED,
            Refusal::Unsolicited => &UNSOLICITED,
            Refusal::NotMine => &reason::NOT_MINE,
            Refusal::Full => &reason::TABLE_FULL,
        })?;
        self.perform(at, actions);
        Ok(())
    }

    fn next(&self) -> Option<Duration> {
        self.resolver.borrow().next()
    }

    fn due(&self, at: At<'_>) {
        let mut random = || at.cx.random().next_u32();
        let actions = self.resolver.borrow_mut().tick(at.now(), &mut random);
        self.perform(at, actions);
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(question) = ask.get::<ClaimNode>() {
            if !self.claim(at, question) {
                return Some(Answer::Unknown);
            }
        } else {
            let table = ask.get::<AarpTable>()?;
            let resolver = self.resolver.borrow();
            table.me = resolver.me().map(|me| (me.net, me.node));
            table.conflicts = resolver.claim().conflicts();
            table.nodes = resolver.table().iter().map(|(n, hw)| (n.net, n.node, hw)).collect();
        }
        Some(Answer::Answered)
    }

    fn describe(&self) -> Option<String> {
        let resolver = self.resolver.borrow();
        let known = resolver.table().len();
        Some(match (resolver.me(), resolver.claim().trying()) {
            (Some(me), _) => alloc::format!("node {me}, {known} others"),
            (None, Some(node)) => alloc::format!("trying {node}"),
            (None, None) => "no node".into(),
        })
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.sessions);
    }

    fn stop(&self, cx: &Kernel) {
        self.waiting.clear();
        for session in self.sessions.sessions(usize::MAX) {
            session.abort(cx);
        }
        self.sessions.clear();
        self.broadcast.close(cx);
        drop(self.uppers.take());
    }
}
