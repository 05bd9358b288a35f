//! # Synopsis
//! `psync LOWER [window=16] [upcalls=1] [group="239.1.1.1"]` — a conversation of several
//! processes, in which every message arrives after the messages that its sender had received when
//! it sent it.
//!
//! # Participants
//! - `open`: the local end, such as `process1` or `process1@10.0.0.1`, and one to 63 others:
//!   `process7@10.0.0.2, process7@10.0.0.3`. The layer below takes the rest of each participant. No
//!   two may have the same host and port. An `open` with the same list finds the same conversation.
//!   With `conversation4660` on top, as in `conversation4660@process1@10.0.0.1`, a member that has
//!   lost its state comes back into that conversation; its list may be in any order.
//! - `open_enable`: `process7`, or `*` for every process that no other protocol has enabled.
//! - `open_done`: the local end, and then the others in the order of the list.
//!
//! # Behaviour
//! The *members* of a conversation are the processes of an `open`, in its order. The list is sent
//! to each of the others, where the protocol that has enabled the process gets the session. A host
//! refuses a conversation whose window is larger than its own. No process joins later.
//!
//! Message A *precedes* message B if the sender of B had received or sent A before B. The messages
//! form an acyclic graph, the *context graph*, which is the same at all members. A message goes to
//! all members, with the names of its immediate predecessors. It is passed up when the upcalls of
//! all its predecessors have returned. Two messages of which neither precedes the other may come up
//! in either order; with `upcalls` above 1 their upcalls may run at the same time, at most one for
//! each sender. No shepherd waits for its turn. A message that is sent during the upcall of another
//! one follows it.
//!
//! A message that comes up has its place in the graph as the attribute `node`: sender, number, and
//! *depth*, the length of the longest path that leads to it. A message that the protocol above
//! refuses is dropped.
//!
//! A message whose predecessor is missing waits; at most `window` messages of each sender wait.
//! After 20 ms the predecessor, and the messages before it, are requested from the host that sent
//! the waiting message, which has them. From the fourth request on, the other members are asked in
//! turn. After ten requests without progress the waiting message is dropped; later packets name it
//! again.
//!
//! A member keeps a message until all members have it in their *view*, that is until its upcall has
//! begun at all of them. Members announce their views in their messages, or else by the packet
//! `LEAVES`: after half a window, after 40 ms, and on request. A member whose messages others may
//! lack requests their views after 500 ms, then after twice the time, up to 2 s. A push waits while
//! `window` messages of this member are not in all views: until the deadline of a message with the
//! attribute `call-options`, otherwise until there is room. At most 64 pushes wait. So a member
//! that does not answer delays the others until the layer above masks it out.
//!
//! A member *leaves* by a last message without octets, when its session is asked `leave`. The
//! others count it no longer once that message is in their view. It comes up, with the attribute
//! `view-change`, if the protocol above has told its session `take-views`. The leaving member stays
//! until all others have the message: it closes its session once `outstanding` has no `unheld`.
//! Others may leave at the same time. It waits for none of them whose last message it has; but if
//! such a member may not know that, it stays until that one has answered, or has been silent for
//! two seconds. A host that has closed a conversation answers packets of it by `GONE`: a member
//! that leaves as well, or is the only other one, waits for it no longer.
//!
//! With `group` the host joins that multicast group below, and a message is sent once, to the
//! group, in place of once to each other member. Everything else goes to one member: the packets
//! that begin a conversation, requests and retransmissions, views, messages aside. A message goes
//! to each as well while the opener waits for an answer of a member, and in a conversation of two.
//! Take it for conversations of three or more members on one link: packets to a group go no
//! further. All hosts need the same `group`. One without it, or on another link, gets messages by
//! requests, half a second late; if it requests many at once, messages go to each member alone for
//! ten seconds. `ip` has to be below, alone or under layers that pass groups on; `fragment` and
//! layers with ports, such as `udp`, do not. `group` costs the other hosts of the link the frames,
//! unless its switch snoops on IGMP (then the members need `igmp`), and the hosts of other
//! conversations in the same group a drop for each message. A message that the sender's link loses
//! is requested and retransmitted once for each member.
//!
//! A message with the attribute `aside` goes to one member, outside the graph: it has no place
//! there, is not retransmitted, waits for no other message, and comes up with that attribute, even
//! while upcalls run, or if its sender is masked out.
//!
//! A message has at most 16,384 octets, or fewer if the layer below takes less: eight octets for
//! each of 64 predecessors are reserved. A conversation of `n` members keeps at most `2 n window`
//! messages, and `4 window` vectors of `n` numbers.
//!
//! A member that has lost its state, because its host was restarted, comes back when the others let
//! it in. It asks them to: by an `open` with the number of the conversation, or by itself, if its
//! process is enabled and packets arrive of a conversation that the host does not know; then the
//! protocol above gets the session once the member is let in. At the others `member-state` shows
//! that it asks, and the layers above them agree on its return. First each masks the member out.
//! Then each puts `mask-in` without a base, from which on messages are kept for the member, and
//! announces this in a message. Then each puts `mask-in` with the same *base*: all messages that
//! precede these announcements. The member does not get the messages of the base. It has the next
//! *incarnation*, and its numbers continue after its last message in the base. Its pushes wait
//! until it is back. In a conversation of two, each lets the other in by itself, on a base of the
//! messages that the other has acknowledged, at most twice a second, unless the layer above has put
//! `take-members`. A conversation that was closed is not entered again.
//!
//! # Security
//! Packets are accepted only from members, by the host and port that the layer below reports. An
//! attacker that forges these must also guess the number of the conversation, which has 32 random
//! bits; an attacker on the path can read it. By the group only messages of members are accepted;
//! other packets that are sent to it begin nothing and are not answered. Nothing is sent to a host
//! that a stranger's `OPEN` names until the protocol above sends or holds the session, a member has
//! acknowledged a message, or that host has sent a packet. Of conversations that the protocol above
//! does not hold, those that one host has begun may have 64 members together, and all 256: for more
//! those that were silent longest end (`host has its share`). Those of which but one packet has
//! come have a quarter of the room, and end none of the rest. Such a one also ends 30 s after the
//! first message that was sent in it. A member can lie: it can forward altered messages of others,
//! and claim to have messages that it lacks. A member that is told that it has lost messages ends
//! its session, so as to come back: one other is believed of its own messages alone, and two of
//! those of others. Requests of a member, also those to come back, are answered with at most two
//! windows of messages in 100 ms. A request to come back counts once it contains a random number
//! that was sent to the member's host. A running member that is told of a start that was not its
//! own sends a packet; then the start is forgotten.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim   link=lan
//!     eth   sim
//!     arp   eth
//!     ip    arp { address "10.0.0.1/24"; }
//!     psync ip
//!     probe psync to="process7@10.0.0.2, process7@10.0.0.3"
//! }
//! ```
//!
//! # Standard
//! Peterson, Buchholz and Schlichting, "Preserving and Using Context Information in Interprocess
//! Communication" (1989), for the model; its packet format is not published, and this one is xk's
//! own. There a member that comes back fetches all messages; here messages that all members have
//! are discarded, so it starts from a base. Hutchinson and Peterson, "The x-Kernel", section V.C,
//! for concurrent upcalls.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod conversation;
pub mod graph;
mod protocol;
mod restart;
pub mod wire;

pub use protocol::{Psync, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("psync", include_str!("lib.rs"), build)
    .summary("a conversation of several processes, in which every message comes after its causes")
    .above(Family::Other("processes"))
    .on(&[Realm::Async], &[Family::Host, Family::Port])
    .needs(Guarantees::SESSIONS.and(Guarantees::HOSTS).and(Guarantees::WHOLE))
    .service(Service::changing(
        Guarantees::EXACT.and(Guarantees::RELIABLE).and(Guarantees::ORDER)
            .and(Guarantees::PARTIAL).and(Guarantees::MANY),
        Guarantees::PROMPT.and(Guarantees::INSTANT)))
    .header_octets(wire::HEADER_OCTETS)
    // Experimental protocol number 1 (RFC 3692, section 2.1).
    .numbers(&[("ip", 253), ("fragment", 0x70)])
    .takes_peers()
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("my-member", "of a session: this member's index, and how many there are"),
        question("member-at", "of a session: process, host and port of a member"),
        question("member-state", "of a session: what is known of a member"),
        question("is-stable", "of a session: whether all members have followed a message"),
        question("order-of", "of a session: the order of two messages"),
        question("place-of", "of a session: depth and past of a message"),
        question("leaves", "of a session: the predecessors of the next message"),
        question("outstanding", "of a session: what is not through yet"),
        question("context", "of a session: nodes of the graph that are kept"),
        question("send-null", "of a session: sends a message without octets"),
        question("take-nulls", "of a session: messages without octets go up, too"),
        question("take-views", "of a session: what says that a member leaves goes up, too"),
        question("leave", "of a session: sends the last message of this member"),
        question("mask-out", "of a session: counts a member no longer"),
        question("mask-in", "of a session: counts a member again that has come back"),
        question("take-members", "of a session: the layer above decides which members are counted"),
        question("describe", "a conversation, and what is outstanding in it"),
    ])
    .reasons(&[
        &conversation::STRANGE, &conversation::DUPLICATE, &conversation::BEYOND_WINDOW,
        &conversation::BAD_CONTEXT, &conversation::NO_PREDECESSOR, &conversation::MASKED,
        &conversation::OTHER_START, &conversation::IMPOSTOR, &conversation::LOST,
        &protocol::HAS_SHARE]);
