//! # Synopsis
//! `psync LOWER [window=16] [upcalls=1]` — a conversation of several processes, in which every
//! message comes after those that its sender had when it sent.
//!
//! # Participants
//! - `open`: our own end, such as `process1` or `process1@10.0.0.1`, and one to 63 others:
//!   `process7@10.0.0.2, process7@10.0.0.3`. The layer below takes what is left of each. No two may
//!   have the same host and port. An `open` with the same list finds the same conversation.
//! - `open_enable`: `process7`, or `*` for every process that is enabled by no other protocol.
//! - `open_done`: our own end, and then the others in the order of the list.
//!
//! # Behaviour
//! The *members* of a conversation are the processes of an `open`, in its order. The protocol sends
//! the list to each of the others, where the protocol that has enabled the process gets the
//! session; a host refuses a conversation whose window is larger than its own. Members do not come
//! or go later: one that has lost its session does not find its way back, and the layer above masks
//! it out, at all members.
//!
//! A message *precedes* another if the sender of the other had it when it sent. The messages form a
//! graph without circles, the *context graph*, and all members see the same graph. A message sent
//! goes to all members, with its immediate predecessors. It is passed up when the upcalls of all of
//! them have returned. Two messages that do not precede each other may come up in either order;
//! with `upcalls` above 1 they may be in their upcalls at the same time, one of each sender at
//! most. No shepherd waits for its turn. A message that is sent during the upcall of another
//! follows that.
//!
//! A message that comes up has its place as the attribute `node`: sender, number, and *depth*, the
//! length of the longest path that leads to it. What the protocol above refuses is dropped there.
//!
//! A message whose predecessor is missing waits, at most `window` of each sender. After 20 ms the
//! predecessor is asked for at the host that the waiting message came from, which has it, together
//! with the messages before it; then, from the fourth time on, at the others in turn. After ten
//! times without any progress the waiting message is dropped; later packets name it again.
//!
//! A member keeps a message until all members have it in their *view*, that is until its upcall has
//! begun there. Members tell their views by their messages, or else by `LEAVES`: after half a
//! window, after 40 ms, and when they are asked. A member that has sent something that others may
//! lack asks them after 500 ms, then after twice the time, up to 2 s. A push waits while `window`
//! messages of this member are not in all views: for the deadline of a message that bears
//! `call-options`, or until there is room. 64 pushes wait at most. A member that does not answer so
//! holds up the others until the layer above masks it out.
//!
//! A message with the attribute `aside` goes to one member, beside the graph: it has no place, is
//! not sent again when it is lost, waits for no other, and comes up with that attribute, while
//! upcalls run as well.
//!
//! A message has 16,384 octets at most, less where the layer below takes less: eight octets for
//! each of 64 predecessors are kept free. A conversation of `n` members keeps at most `n` times
//! twice the window of messages, and four times the window of vectors of `n` numbers.
//!
//! # Security
//! A packet is taken from members alone, by the host and port that the layer below says. One that
//! can forge these must guess the number of the conversation, which has 32 random bits; one on the
//! way can read it. Nothing is sent to the hosts that a stranger's `OPEN` names before the protocol
//! above sends or the host itself is heard. A member can lie: it can send others' messages again
//! with other octets, and claim to hold what it lacks. Requests are answered with twice the window
//! of messages in 100 ms at most.
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
//! Communication" (1989), for the model; its packets are not published, and ours are our own.
//! Hutchinson and Peterson, "The x-Kernel", section V.C, for upcalls at the same time.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod conversation;
pub mod graph;
mod protocol;
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
        question("mask-out", "of a session: counts a member no longer"),
        question("describe", "a conversation, and what is outstanding in it"),
    ])
    .reasons(&[
        &conversation::STRANGE, &conversation::DUPLICATE, &conversation::BEYOND_WINDOW,
        &conversation::BAD_CONTEXT, &conversation::NO_PREDECESSOR, &conversation::MASKED]);
