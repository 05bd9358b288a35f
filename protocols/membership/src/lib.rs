//! # Synopsis
//! `membership LOWER [suspect=2s]` — the members of a conversation agree which of them have failed,
//! and after which messages; too few go on with nothing.
//!
//! # Participants
//! As of `psync`: the members of the conversation, this one first.
//!
//! # Behaviour
//! A member that is silent for `suspect` is taken as failed, and so is one that has followed no
//! message of this member for four times as long. One that was never heard has four times as long
//! to begin with. To be heard, a member sends a message without octets, a *null*, after a quarter
//! of `suspect` in which it has sent nothing. Where there is no room for that, since another
//! member lacks too much, it tells each beside the conversation.
//!
//! The members *agree* on each change: one tells the others, by a *vote* in the conversation, whom
//! it finds failed. A member that hears such a vote joins it to its own, and votes as well. The
//! change is decided when all that are left have voted alike, and they are more than half of all
//! members of the list: that is the *quorum*. From its own vote to the decision a member passes up
//! nothing, and pushes wait. Messages of a failed member count if one of those that are left had
//! them when it voted: these all members pass up, and no later ones. So all members that are left
//! have the same members, and the same messages of those that are gone.
//!
//! A member that hears too few to decide accuses none, since it may be cut off itself: it refuses
//! pushes as *no quorum*, and goes on when it hears enough again. A member that is accused by a
//! vote is out, even if it is well: it refuses pushes, passes up nothing more, and says so in a
//! vote of its own.
//!
//! The protocol above may ask for the `view` at any time. If it tells its session `take-views`,
//! each change comes up as a message without octets, with the attribute `view-change`, behind the
//! messages that count before it. Loss and return of the quorum come up in the same way. `order`
//! takes views: it counts a member that is gone up to the last of its messages that count.
//!
//! A push waits while a change is agreed on: for the deadline of a message that bears
//! `call-options`, or without end; while an upcall is under way for a second at most. It fails with
//! "no route to the peer" without a quorum, and with "the peer is unreachable" where this member is
//! out.
//!
//! A message with the attribute `aside` passes in both directions at once.
//!
//! A member holds back at most twice the window of messages for each member while a change is
//! agreed on, and of nulls the last of each. The layer below may be `psync`, with the layers that
//! order messages above this one. On `order` there is no opening: there a member that has failed
//! stops the votes as well.
//!
//! # Security
//! A vote comes from a member, as `psync` knows it, and has the numbers of its sender's last one or
//! higher ones; else it is dropped and counted. A member that lies can have others removed, as long
//! as more than half are left. Members that accuse each other in turn can leave too few to decide:
//! then all stop.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.1/24"; }
//!     psync      ip
//!     membership psync
//!     order      membership
//!     chatter    order to="process7@10.0.0.2, process7@10.0.0.3"
//! }
//! ```
//!
//! # Standard
//! Mishra, Peterson and Schlichting, "Consul: A Communication Substrate for Fault-Tolerant
//! Distributed Programs" (1993), for agreement by messages of the conversation. There a member that
//! is heard may be defended by others; here it comes back.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod agreement;
mod conversation;
mod protocol;
pub mod wire;

pub use protocol::{Membership, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("membership", include_str!("lib.rs"), build)
    .summary("the members of a conversation agree which of them have failed")
    .above(Family::Other("processes"))
    .on(&[Realm::Async], &[Family::Other("processes")])
    .needs(Guarantees::SESSIONS.and(Guarantees::PARTIAL))
    .service(Service::changing(
        Guarantees::PARTIAL.and(Guarantees::MANY),
        Guarantees::PROMPT.and(Guarantees::INSTANT)))
    .header_octets(wire::HEADER_OCTETS)
    .takes_peers()
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("view", "of a session: the members that are in, and whether they are enough"),
        question("take-views", "of a session: changes of the members go up"),
        question("take-nulls", "of a session: messages without octets go up, too"),
        question("outstanding", "of a session: what is not through yet, here and below"),
        question("send-null", "of a session: sends a message without octets"),
        question("mask-out", "of a session: refused, since one alone does not decide"),
        question("describe", "a conversation, and who is in"),
    ])
    .reasons(&[
        &conversation::NO_QUORUM, &conversation::OUT, &conversation::BEYOND_CUT,
        &conversation::TOO_MANY, &conversation::OLD_VOTE, &conversation::TOO_FEW]);
