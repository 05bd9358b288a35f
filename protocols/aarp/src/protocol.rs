//! The protocol object: opens, enables, and takes in packets.

use crate::session::{AarpSession, To};
use crate::shared::{AarpTable, Config, Shared};
use crate::wire::{ALL_NODES, Error, PACKET_LEN, Packet};
use alloc::rc::Rc;
use alloc::string::String;
use xk_appletalk::addr::{BROADCAST, Node};
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionSlot};
use xk_core::participant::{AddressError, Participant};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{JoinGroup, MyEther};
use xk_kit::net::appletalk::{ClaimNode, NET, NODE};

/// One instance, for one Ethernet.
pub struct Aarp {
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let config = Config::read(build)?;
    let shared = Shared::new(build.cx.secret(), build.lower(0)?, config);
    build.add(Aarp { shared: Rc::new(shared) })
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

/// The reason that corresponds to what is wrong with a packet.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Family(..) | Error::Function(_) => &reason::NOT_SUPPORTED,
        Error::Lengths(..) => &reason::MALFORMED,
    }
}

impl Protocol for Aarp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (shared, upper) = (&self.shared, Upper::new(this));
        let mine = shared.eth.ask(cx, MyEther::default()).ok_or(OpenError::NoLower)?;
        let both = Participants::pair(Part::Any, Part::Ether(ALL_NODES));
        let broadcast = shared.eth.open(cx, upper, both)?;
        shared.begin(this, mine.address, broadcast);
        // A layer that takes all groups has no use for it.
        let _ = shared.eth.ask(cx, JoinGroup { address: ALL_NODES });
        shared.eth.open_enable(cx, upper, Participants::local(Part::Any)).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let to = peer(participants.peer_mut()?)?;
        // Tells now, and not with the first message, if the layer below lacks the number.
        upper.number_on(cx, &shared.eth)?;
        shared.note_upper(upper.receiver);
        let key = (to.number(), upper.receiver.id().0, upper.selector.0);
        if let Some(session) = shared.sessions.found(&key, upper.receiver)? {
            return Ok(session);
        }
        let body = AarpSession {
            shared: Rc::clone(shared),
            key,
            to,
            receiver: upper.receiver.clone(),
            selector: upper.selector,
            lower: SessionSlot::default(),
            hw: Default::default(),
            fresh: Default::default(),
        };
        shared.sessions.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        upper.number_on(cx, &self.shared.eth)?;
        self.shared.note_upper(upper.receiver);
        // Data frames bear the upper's number and come up to it from there, not from here.
        let any = Participants::local(Part::Any);
        self.shared.eth.open_enable(cx, upper, any)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.eth.open_disable(cx, enable);
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let taken = message.pull_up(PACKET_LEN).map_err(Into::into).and_then(|()| {
            let octets = message.peek_slice(PACKET_LEN).unwrap_or_default();
            let packet = Packet::parse(octets).map_err(reason_of)?;
            self.shared.input(cx, &packet)
        });
        taken.map_err(|why| this.refuse(message, why))
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<ClaimNode>() {
            if !shared.claim(cx, question) {
                return Answer::Unknown;
            }
        } else if let Some(table) = ask.get::<AarpTable>() {
            shared.fill(table);
        } else {
            return shared.eth.control(cx, ask);
        }
        Answer::Answered
    }

    fn describe(&self) -> Option<String> {
        Some(self.shared.describe())
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.shared.sessions);
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.eth)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        self.shared.timeout(cx);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.shared.stop(cx);
    }
}
