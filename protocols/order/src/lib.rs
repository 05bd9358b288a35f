//! # Synopsis
//! `order LOWER [safe=#true] [classes=N]` — all members of a conversation receive all messages in
//! the same order.
//!
//! # Participants
//! Those of `psync`: the members of the conversation, this one first.
//!
//! # Behaviour
//! The layer below passes up each message after its predecessors, with its *depth* in the context
//! graph: the length of the longest path that leads to it. Messages of one depth are a *wave*. A
//! wave is complete when every member has sent a message at least as deep, because later messages
//! of a member are deeper. Complete waves are passed up one after the other, the messages of a wave
//! in the order of the members. So each member computes the same order, which extends the order of
//! the layer below. A member that delays a wave delays all members, until it answers or is masked
//! out, which all members must do after the same messages. On `membership` changes of the members
//! come up in their place in the order, if the protocol above has put `take-views`; `view` names
//! the members as of the changes that came up. On `psync` the last message of a member that leaves
//! is ordered like any other, and comes up as such a change.
//!
//! A protocol above that puts `take-own` to its session also gets this member's own messages, in
//! their places. A message that comes up has the attribute `node`, as on `psync`.
//!
//! A member with nothing to send answers a message deeper than its own last one with a *null*, a
//! message without octets. So the messages of a single sender are passed up after one round trip. A
//! null is not answered. A null is sent at once if the sender had this member's last message when
//! it sent, or if half a window is unanswered. Otherwise it is sent `null_gap` after this member's
//! last message, and answers all messages that have arrived by then: a sender that does not wait
//! for answers causes few nulls.
//!
//! With `safe=#true` a message is passed up only after every member has also sent a message that
//! follows it. Then all members have it, so no member can miss a message on which another has
//! acted. This needs nulls from members that would otherwise send none. Without `safe`, members
//! that are cut off from more than half of the others may have passed up messages of their side
//! which the others never receive. These members are out by then. Without these messages, what they
//! have passed up is the beginning of the order of the others.
//!
//! With `classes=N` a message may have the attribute `commutes`, a class from 1 to `N`. Messages
//! that follow an ordered message and have its class are passed up after it as they arrive, without
//! waiting, in an order that may differ between members. All other messages are ordered and safe.
//! `classes` must be equal at all members: a message from a member with other rules of order is
//! dropped. `classes` excludes `safe`, because a message with a class cannot be safe.
//!
//! A push waits while `window` messages of this member (the window of the layer below) have not
//! been passed up here: until the deadline of a message with `call-options`, otherwise without a
//! limit. A push in an upcall would wait for that upcall to end. So it may go beyond `window`, up
//! to `window` times the number of members. It waits for the layer below until its deadline, or one
//! second without one; then it fails.
//!
//! At most `2 n window` messages of one sender wait here, with `n` members. While `n window`
//! messages in all wait for a long upcall, the layer below passes up no more. Messages beyond the
//! bound are dropped, and so is a message whose place precedes one that was passed up: this happens
//! if members mask out another member after different messages.
//!
//! A message with the attribute `aside` passes in both directions at once: it has no place in the
//! order.
//!
//! A member leaves when its session is asked `leave`: once its last message has arrived, the others
//! wait for it no longer. A member whose session is closed otherwise does not answer; the others
//! wait until they mask it out.
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
        question("mask-in", "of a session: counts a member again that has come back"),
        question("describe", "a conversation, and what waits in it"),
    ])
    .reasons(&[&conversation::LATE, &conversation::TOO_MANY, &conversation::REFUSED,
        &conversation::OTHER_ORDER]);
