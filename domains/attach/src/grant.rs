//! Grants, and whether a wish is within them.

use std::ops::RangeInclusive;

use xk_core::control::{Kind, Question};
use xk_core::object::ProtocolId;
use xk_core::participant::PORT;
use xk_core::{Part, Participants, ProtocolRef};
use xk_domains::Wish;
use xk_kit::control::{IsGroup, IsLocalHost, IsOutstanding, KeepWhole, PeerProved};
use xk_kit::net::appletalk::SOCKET;
use xk_kit::net::groups::{JoinHost, LeaveHost};
use xk_kit::net::moving::GiveState;
use xk_kit::net::names::NbpLookup;
use xk_kit::net::neighbour::PeerOnLink;
use xk_kit::net::ports::USER_PORT_FIRST;
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamEndRecord, StreamInfo, StreamRoom, StreamSet, StreamSetNext,
    StreamShutdown, StreamSoftError, StreamSpace, StreamUse,
};
use xk_kit::rpc::call::CancelCall;
use xk_kit::rpc::retransmit::{AskCopy, FreeCopy, LastCopy};
use xk_shm::Peer;

/// The first of the sockets of AppleTalk that no protocol has by its name (Inside AppleTalk, second
/// edition, chapter 4).
const USER_SOCKET_FIRST: u16 = 128;

/// A right of programs: to use a node of the graph, within bounds.
#[derive(Clone)]
pub struct Grant {
    /// The node.
    pub node: ProtocolRef,
    /// The ports, or sockets of AppleTalk, that may be had on it, in sessions and enables; `None`
    /// for all from [`USER_PORT_FIRST`] or socket 128 on, and then one that the node
    /// chooses, too. Those below are granted by name alone.
    pub ports: Option<RangeInclusive<u16>>,
    /// The type numbers that a program's protocols may have on it; `None` for none.
    pub types: Option<RangeInclusive<u32>>,
    /// The user that has it; `None` for all.
    pub uid: Option<u32>,
    /// The group that has it; `None` for all.
    pub gid: Option<u32>,
}

/// Questions that a program may put to a session that it has, besides those that tell facts: they
/// concern that conversation alone. All others change what other programs see, or show it. Joins of
/// groups are permitted besides, to sessions of UDP, which has a bound for each user.
const OF_SESSIONS: [u32; 21] = [
    AskCopy::KEY,
    CancelCall::KEY,
    FreeCopy::KEY,
    GiveState::KEY,
    IsGroup::KEY,
    IsLocalHost::KEY,
    IsOutstanding::KEY,
    KeepWhole::KEY,
    LastCopy::KEY,
    PeerOnLink::KEY,
    PeerProved::KEY,
    StreamAbort::KEY,
    StreamConsumed::KEY,
    StreamEndRecord::KEY,
    StreamInfo::KEY,
    StreamRoom::KEY,
    StreamSet::KEY,
    StreamShutdown::KEY,
    StreamSoftError::KEY,
    StreamSpace::KEY,
    StreamUse::KEY,
];

/// Questions that a program may put to a protocol that it is granted, besides those that tell
/// facts. None changes anything for others: at most the next session of its own user.
const OF_PROTOCOLS: [u32; 5] =
    [IsGroup::KEY, IsLocalHost::KEY, NbpLookup::KEY, PeerOnLink::KEY, StreamSetNext::KEY];

impl Grant {
    /// The right to use a node in every way, for all users.
    pub fn new(node: &ProtocolRef) -> Self {
        Self { node: node.clone(), ports: None, types: None, uid: None, gid: None }
    }

    /// True if a program of this process has it.
    pub fn is_of(&self, peer: &Peer) -> bool {
        self.uid.is_none_or(|uid| uid == peer.uid) && self.gid.is_none_or(|gid| gid == peer.gid)
    }

    /// True if the local participant is within its ports.
    fn has_port(&self, participants: &Participants) -> bool {
        let local = participants.iter().next();
        let (port, first) = match local.and_then(|local| local.top()) {
            Some(Part::Number(PORT, port)) => (*port, USER_PORT_FIRST),
            Some(Part::Number(SOCKET, socket)) => (*socket, USER_SOCKET_FIRST),
            _ => return self.ports.is_none(),
        };
        let has = |port| match &self.ports {
            Some(ports) => ports.contains(&port),
            None => port == 0 || port >= first,
        };
        u16::try_from(port).is_ok_and(has)
    }

    /// True if a protocol of a program may have this type number on the node.
    fn has_type(&self, node: ProtocolId, number: u32) -> bool {
        self.node.id() == node && self.types.as_ref().is_some_and(|types| types.contains(&number))
    }
}

/// True if one of the grants is for this.
pub(crate) fn permits(grants: &[Grant], wish: &Wish<'_>) -> bool {
    match wish {
        Wish::Open(id, participants) | Wish::Enable(id, participants) => {
            grants.iter().any(|grant| grant.node.id() == *id && grant.has_port(participants))
        }
        Wish::AskProtocol(_, question) => {
            question.kind == Kind::Fact || OF_PROTOCOLS.contains(&question.key)
        }
        Wish::AskSession(of, question) => {
            let key = question.key;
            if [JoinHost::KEY, LeaveHost::KEY].contains(&key) {
                // Other layers pass them on to a protocol, which all have in common.
                let is_it = |grant: &Grant| grant.node.id() == *of;
                return grants
                    .iter()
                    .any(|grant| is_it(grant) && grant.node.head().kind() == "udp");
            }
            // Those of a registry are for what the program has there, which a grant has opened.
            let is_of_registry = xk_registry::QUESTIONS.iter().any(|own| own.key == key);
            question.kind == Kind::Fact || OF_SESSIONS.contains(&key) || is_of_registry
        }
    }
}

/// True if it is for a place at a registry.
pub(crate) fn is_of_registry(grants: &[Grant], wish: &Wish<'_>) -> bool {
    let Wish::Open(id, _) = wish else {
        return false;
    };
    let kind = xk_registry::ENTRY.kind;
    grants.iter().any(|grant| grant.node.id() == *id && grant.node.head().kind() == kind)
}

/// True if one of the grants gives this type number on this node.
pub(crate) fn gives_type(grants: &[Grant], node: ProtocolId, number: u32) -> bool {
    grants.iter().any(|grant| grant.has_type(node, number))
}
