//! # Synopsis
//! `order LOWER [safe=#true] [classes=N]` — all members of a conversation hear all messages in the
//! same order.
//!
//! # Participants
//! As of `psync`: the members of the conversation, this one first.
//!
//! # Behaviour
//! Messages come from the layer below after those that they follow, with the *depth* of each in the
//! context graph: the length of the longest path that leads to it. Those of one depth are a *wave*.
//! A wave is complete when every member has sent a message at least as deep, for what a member
//! sends later is deeper. Complete waves are passed up one after the other, the messages of a wave
//! in the order of the members. So each member finds the same order by itself, and it extends that
//! of the layer below. A member that holds up a wave holds up all: until it answers, or until the
//! layer above masks it out, at all members after the same messages.
//!
//! The protocol above that tells its session `take-own` gets this member's own messages as well, in
//! their places. A message that comes up has the attribute `node`, as on `psync`.
//!
//! A member that has nothing to send answers with a message without octets, a *null*, when one
//! comes that is deeper than its own last message. So the messages of a single sender are passed up
//! after one round trip. No null is answered. A null goes at once to a sender that had this
//! member's last message when it sent, and when half a window is unanswered. Otherwise it goes
//! `null_gap` after this member's last message, and answers all that came by then: a sender that
//! does not wait for answers gets few.
//!
//! With `safe=#true` a message is passed up when, besides, every member has sent one that follows
//! it: then all members have it, and none can miss it that another has acted upon. It takes nulls
//! of members that would else owe none.
//!
//! With `classes=N` a message may bear the attribute `commutes`, a class from 1 to `N`. Messages of
//! one class that lie between the same others are passed up when they come, without waiting, and in
//! an order that may differ from member to member. All others are ordered and safe. `classes` has
//! to be alike at all members: a message that is ordered otherwise than here is dropped. It does
//! not go with `safe`, which a message of a class cannot be.
//!
//! A push waits while `window` messages of this member, as many as the layer below says, have not
//! been passed up here: for the deadline of a message that bears `call-options`, or without end.
//! One in an upcall would wait for itself. It may go on with as many times `window` as there are
//! members, and waits for the layer below for a second at most, unless it has a deadline; then it
//! fails.
//!
//! Two times as many messages of one sender wait here at most. While half as many in all wait for
//! an upcall that takes long, the layer below passes up no more. What exceeds the bound is dropped,
//! and so is a message whose place is before one that was passed up: this happens if members mask
//! another out after different messages.
//!
//! A message with the attribute `aside` passes in both directions at once: it has no place in the
//! order.
//!
//! A member whose session is closed answers no longer. The others mask it out.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim     link=lan
//!     eth     sim
//!     arp     eth
//!     ip      arp { address "10.0.0.1/24"; }
//!     psync   ip
//!     order   psync
//!     chatter order to="process7@10.0.0.2, process7@10.0.0.3"
//! }
//! ```
//!
//! # Standard
//! Peterson, Buchholz and Schlichting, "Preserving and Using Context Information in Interprocess
//! Communication" (1989), and Mishra, Peterson and Schlichting, "Consul: A Communication Substrate
//! for Fault-Tolerant Distributed Programs" (1993), for waves and for classes of messages that
//! commute. There a wave is complete when one of its messages is stable, which is later.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod conversation;
mod protocol;
pub mod waves;
pub mod wire;

pub use protocol::{Order, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("order", include_str!("lib.rs"), build)
    .summary("all members of a conversation hear all messages in the same order")
    .above(Family::Other("processes"))
    .on(&[Realm::Async], &[Family::Other("processes")])
    .needs(Guarantees::SESSIONS.and(Guarantees::PARTIAL))
    .service(Service::changing(
        Guarantees::PARTIAL.and(Guarantees::TOTAL).and(Guarantees::MANY),
        Guarantees::PROMPT.and(Guarantees::INSTANT)))
    .header_octets(wire::HEADER_OCTETS)
    .takes_peers()
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("take-own", "of a session: own messages go up, too, in their places"),
        question("outstanding", "of a session: what is not through yet, here and below"),
        question("send-null", "of a session: sends a message without octets"),
        question("mask-out", "of a session: counts a member no longer"),
        question("describe", "a conversation, and what waits in it"),
    ])
    .reasons(&[&conversation::LATE, &conversation::TOO_MANY, &conversation::OTHER_ORDER]);
