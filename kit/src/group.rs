//! Conversations of several members: attributes and questions that the layers of a group share.
//! `psync` answers them; layers above it ask them.

use crate::layer::Receiver;
use crate::net::attribute::Peer;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::map::Map;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing};
use xk_core::participant::Label;
use xk_core::{
    HostAddr, Kernel, Part, Participant, Participants, ProtocolRef, SessionRef, fields, question,
};

/// Label of the number of a process, which is a member of conversations.
pub const PROCESS: Label = Label::new("process");
/// Label of the number of a conversation, on top of the own end of an open: the member comes back
/// into that conversation, since it has lost its state.
pub const CONVERSATION: Label = Label::new("conversation");

/// Offer of a layer of conversations for all processes.
pub const ANY_PROCESS: u64 = u64::MAX;
/// Offer for no process: a message of a conversation does not name one.
pub const NO_PROCESS: u64 = u64::MAX - 1;

/// Returns the offer for the process that the first of some ends names.
#[must_use]
pub fn offer_of(ends: &Participants) -> u64 {
    match ends.iter().next().and_then(|local| local.top()) {
        Some(Part::Number(PROCESS, number)) => *number,
        _ => ANY_PROCESS,
    }
}

/// Returns the protocol that has enabled this process, or else all of them.
#[must_use]
pub fn enabled(offers: &Map<u64, Receiver>, process: u64) -> Option<ProtocolRef> {
    match offers.get(&process).or_else(|| offers.get(&ANY_PROCESS)) {
        Some(Receiver::Protocol(upper)) => Some(upper),
        _ => None,
    }
}

/// A message in the graph of a conversation: its sender and its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// Index of the sender in the list of members.
    pub sender: u8,
    /// Number of the message among those of its sender, from 1; a sender that has come back goes on
    /// with the number behind the last of its messages that the others count.
    pub seq: u32,
}
fields!(NodeId { sender, seq });

/// Place of an arriving message in the graph of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The message.
    pub id: NodeId,
    /// Number of times that its sender had been started when it sent the message.
    pub incarnation: u16,
    /// Length of the longest path to it from a message without predecessors.
    pub depth: u32,
    /// Whether it is empty, and was sent for its place alone ([`SendNull`]).
    pub is_null: bool,
}

impl Attribute for Node {
    const KEY: u32 = xk_core::name_key("node");
    const CROSSES: Crossing = Crossing::UP;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..4].copy_from_slice(&self.id.seq.to_be_bytes());
        octets[4..8].copy_from_slice(&self.depth.to_be_bytes());
        octets[8..10].copy_from_slice(&self.incarnation.to_be_bytes());
        octets[10] = self.id.sender;
        octets[11] = self.is_null.into();
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, sender, is_null, ..] = octets;
        Self {
            id: NodeId { sender, seq: u32::from_be_bytes([a, b, c, d]) },
            incarnation: u16::from_be_bytes([i, j]),
            depth: u32::from_be_bytes([e, f, g, h]),
            is_null: is_null != 0,
        }
    }
}

/// Class of a message that goes down, among messages that may be executed in either order: those of
/// one class, from 1 on. A message without it has its place among all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commutes(pub u8);

impl Attribute for Commutes {
    const KEY: u32 = xk_core::name_key("commutes");
    const CROSSES: Crossing = Crossing::DOWN;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        [self.0; ATTRIBUTE_OCTETS]
    }

    fn decode([class, ..]: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self(class)
    }
}

/// A message beside the conversation, without a place in its graph: it is not repeated, and comes
/// up at once. An attribute of one that goes down, to that member alone, and of one that comes up,
/// from that member, beside its [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Index of the other member.
    pub member: u8,
}

impl Attribute for Aside {
    const KEY: u32 = xk_core::name_key("aside");
    const CROSSES: Crossing = Crossing::BOTH;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        [self.member; ATTRIBUTE_OCTETS]
    }

    fn decode([member, ..]: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self { member }
    }
}

/// Replies of other members that a call to all of them waits for. An attribute of the request; a
/// refusal is a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// One of each member that is not masked out meanwhile.
    #[default]
    All,
    /// Replies of more than half of the other members, whether masked out or not.
    Majority,
    /// So many.
    Count(u8),
}

impl Attribute for Want {
    const KEY: u32 = xk_core::name_key("want");
    const CROSSES: Crossing = Crossing::DOWN;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        (octets[0], octets[1]) = match self {
            Want::All => (0, 0),
            Want::Majority => (1, 0),
            Want::Count(count) => (2, count),
        };
        octets
    }

    fn decode([kind, count, ..]: [u8; ATTRIBUTE_OCTETS]) -> Self {
        match kind {
            0 => Want::All,
            1 => Want::Majority,
            _ => Want::Count(count),
        }
    }
}

/// A change of the members of a conversation, or of its quorum: of a message without octets that
/// goes up, in its place between those that count before and after it ([`TakeViews`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewChange {
    /// The members that are in from now on, as bits.
    pub members: u64,
    /// Whether those that are heard are enough to decide.
    pub has_quorum: bool,
    /// Index of the member that has gone or come back; `None` if none has.
    pub member: Option<u8>,
    /// Depth of the change in the graph: messages that count before it are less deep, those behind
    /// it are deeper.
    pub depth: u32,
    /// Number of times that it has been started; 0 if it has gone.
    pub incarnation: u16,
}

impl Attribute for ViewChange {
    const KEY: u32 = xk_core::name_key("view-change");
    const CROSSES: Crossing = Crossing::UP;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..8].copy_from_slice(&self.members.to_be_bytes());
        octets[8..12].copy_from_slice(&self.depth.to_be_bytes());
        octets[12..14].copy_from_slice(&self.incarnation.to_be_bytes());
        octets[14] = self.member.unwrap_or(u8::MAX);
        octets[15] = self.has_quorum.into();
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, member, has_quorum, ..] = octets;
        Self {
            members: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            has_quorum: has_quorum != 0,
            member: Some(member).filter(|member| *member != u8::MAX),
            depth: u32::from_be_bytes([i, j, k, l]),
            incarnation: u16::from_be_bytes([m, n]),
        }
    }
}

/// Returns the ends of a session's conversation, as `open_done` has them: this member, and then the
/// others in the order of the list.
#[must_use]
pub fn ends(cx: &Kernel, session: &SessionRef) -> Participants {
    let my = session.ask(cx, MyMember::default()).unwrap_or_default();
    let end = |index| {
        let member = session.ask(cx, MemberAt { index, ..MemberAt::default() }).unwrap_or_default();
        let peer = Peer { host: member.host, port: member.port };
        Participant::from(peer).with(Part::Number(PROCESS, member.process.into()))
    };
    Participants::among(end(my.index), (0..my.members).filter(|at| *at != my.index).map(end))
}

/// Asked of a session: this member's place in the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MyMember {
    /// Index in the list of members.
    pub index: u8,
    /// Number of members, this one included.
    pub members: u8,
    /// Number of the conversation.
    pub conversation: u32,
    /// Number of times that this member has been started.
    pub incarnation: u16,
    /// Messages that this member may have sent and another not have yet.
    pub window: u16,
}
question!(MyMember { index, members, conversation, incarnation, window }, "my-member", Fact);

/// Asked of a session: the member with an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberAt {
    /// Index in the list of members.
    pub index: u8,
    /// Out: number of the process.
    pub process: u32,
    /// Out: its host.
    pub host: HostAddr,
    /// Out: its port on the layer below; 0 where that has none.
    pub port: u16,
}
question!(MemberAt { index, process, host, port }, "member-at", Ask);

/// Asked of a session: the state of a member, as this one knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberState {
    /// Index in the list of members.
    pub index: u8,
    /// Out: number of times that it has been started.
    pub incarnation: u16,
    /// Out: number of its last message in the graph; 0 if it has sent none.
    pub last: u32,
    /// Out: depth of that message.
    pub depth: u32,
    /// Out: whether it is masked out.
    pub is_masked: bool,
    /// Out: time since something was heard of it.
    pub silent: Duration,
    /// Out: number, of 48 bits, of a start of the member with which it asks to come back
    /// ([`MaskIn`]); 0 if it does not. One that is counted has lost its state, then, and is to be
    /// masked out first.
    pub asks: u64,
}
question!(
    MemberState { index, incarnation, last, depth, is_masked, silent, asks },
    "member-state",
    Ask
);

/// Asked of a session: whether every member has followed a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IsStable {
    /// The message.
    pub id: NodeId,
    /// Out: whether each member that is not masked out has sent a message that this one precedes.
    pub by_all: bool,
    /// Out: the members that have, as bits; the sender counts.
    pub members: u64,
}
question!(IsStable { id, by_all, members }, "is-stable", Ask);

/// Order of two messages in the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// One of them is not in the graph, or no longer.
    #[default]
    Unknown,
    /// The first precedes the second.
    Before,
    /// The second precedes the first.
    After,
    /// Neither precedes the other.
    Concurrent,
}
fields!(
    enum NodeOrder {
        Unknown = 0,
        Before = 1,
        After = 2,
        Concurrent = 3,
    }
);

/// Asked of a session: the order of two messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderOf {
    /// The first message.
    pub one: NodeId,
    /// The second message.
    pub other: NodeId,
    /// Out: their order.
    pub order: NodeOrder,
}
question!(OrderOf { one, other, order }, "order-of", Ask);

/// Asked of a session: the place of a message in the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceOf {
    /// The message.
    pub id: NodeId,
    /// Whether [`past`](Self::past) is asked for.
    pub wants_past: bool,
    /// Out: length of the longest path to it from a message without predecessors.
    pub depth: u32,
    /// Out: whether it was sent for its place alone ([`SendNull`]).
    pub is_null: bool,
    /// Out: for each member the number of its last message that is this one or precedes it.
    pub past: Vec<u32>,
}
question!(PlaceOf { id, wants_past, depth, is_null, past }, "place-of", Ask);

/// Asked of a session: the leaves of this member's view, which are the predecessors of the next
/// message that it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaves {
    /// Out: the leaves.
    pub leaves: Vec<NodeId>,
}
question!(Leaves { leaves }, "leaves", Ask);

/// Asked of a session: what is not through yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Out: messages in the graph that have not been delivered here.
    pub ready: u32,
    /// Out: messages that wait for a predecessor.
    pub waiting: u32,
    /// Out: messages of this member that another may not have; of one that leaves, members besides
    /// that it has to stay for.
    pub unheld: u32,
}
question!(Outstanding { ready, waiting, unheld }, "outstanding", Ask);

/// Asked of a session: nodes of the graph that are kept, for a drawing. At most 64 are answered at
/// one time; the next question starts behind the last of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The message behind which the answer starts; the default for the first.
    pub from: NodeId,
    /// Out: messages in the order of senders and numbers: the message, its depth, its
    /// predecessors.
    pub nodes: Vec<(NodeId, u32, Vec<NodeId>)>,
}
question!(Context { from, nodes }, "context", Ask);

/// Asked of a session: send a message without octets, which answers those before it. It does not
/// wait: without room for one more message nothing is sent, and nothing answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendNull;
question!(SendNull {}, "send-null", Ask);

/// Asked of a session: leave the conversation, by a last message without octets. The others count
/// this member no longer once that is in their views, so all of them have the same messages of it.
/// What is pushed later is refused. Once [`Outstanding`] has no `unheld`, the session may be
/// closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leave {
    /// Out: whether the message is sent; else there is no room yet, and it is to be asked again.
    pub is_sent: bool,
}
question!(Leave { is_sent }, "leave", Ask);

/// Told to a session: pass up messages without octets, too ([`Node::is_null`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeNulls;
question!(TakeNulls {}, "take-nulls", Tell);

/// Told to a session of a layer that orders messages: pass up this member's own messages as well,
/// in their places.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeOwn;
question!(TakeOwn {}, "take-own", Tell);

/// Asked of a session of a layer that agrees on members: the members that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Out: those that are in, as bits.
    pub members: u64,
    /// Out: whether those that are heard are enough to decide; pushes are refused where not.
    pub has_quorum: bool,
    /// Out: number of changes that were decided.
    pub changes: u32,
}
question!(View { members, has_quorum, changes }, "view", Ask);

/// Told to a session of a layer that agrees on members: pass up every change ([`ViewChange`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeViews;
question!(TakeViews {}, "take-views", Tell);

/// Asked of a session: count a member no longer, since it has failed; its further messages are
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskOut {
    /// Index in the list of members.
    pub index: u8,
    /// Out: number of its last message that comes up, as far as this member knows.
    pub last: u32,
}
question!(MaskOut { index, last }, "mask-out", Ask);

/// Asked of a session: count a masked member again, which has come back without its state. The
/// layer above asks twice. First, when it agrees to the return, without a base: from then on this
/// member keeps for the other what is not in its own view yet. Then, when all have agreed, with the
/// base: what is behind it the other is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaskIn {
    /// Index in the list of members.
    pub index: u8,
    /// Number of times that the member has been started, above that of before.
    pub incarnation: u16,
    /// Number of the start ([`MemberState::asks`]).
    pub start: u64,
    /// For each member the number of its last message that the other does not get: the greatest of
    /// the views in which members have agreed. Of the member itself it is the last that counts: its
    /// next one has the number behind that. Empty to keep messages only.
    pub base: Vec<u32>,
}
question!(MaskIn { index, incarnation, start, base }, "mask-in", Ask);

/// Told to a session: the layer above agrees with its like at other members on those that are
/// counted. Without it, in a conversation of two, each lets the other back in by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeMembers;
question!(TakeMembers {}, "take-members", Tell);
