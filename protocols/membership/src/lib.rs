//! # Synopsis
//! `membership LOWER [suspect=2s]` — the members of a conversation agree which of them have failed
//! or come back, and after which messages; members without a majority stop.
//!
//! # Participants
//! Those of `psync`: the members of the conversation, this one first.
//!
//! # Behaviour
//! A member that is silent for `suspect` counts as failed, and so does one that has not followed
//! the messages of this member for four times as long. A member that was never heard has four times
//! as long to begin. Every quarter of `suspect`, a member that has sent nothing for the last eighth
//! of it sends a message without octets, a *null*. If there is no room for it, since another member
//! lacks too many messages, each gets a sign of life outside the conversation.
//!
//! The members *agree* on each change: a member announces by a *vote* in the conversation which
//! members it finds failed. A member that receives such a vote adds them to those that it finds
//! failed, and votes as well. The change is decided when all remaining members have cast equal
//! votes, and they are more than half of all members of the list: that is the *quorum*. From its
//! own vote to the decision a member passes up nothing, and pushes wait. A message of a failed
//! member counts if at least one remaining member had it at its vote: all members pass up these
//! messages, and no later ones. So all remaining members have the same view, and the same messages
//! of the failed members.
//!
//! A member that hears too few others to decide accuses none, since it may be cut off itself: it
//! refuses pushes as *no quorum*, and goes on when it hears enough again. A member that is accused
//! in a vote is out, even if it is well: it refuses pushes, passes up nothing more, and confirms
//! this in a vote of its own. So is a member that cannot hold back all that it must.
//!
//! A member that is out *comes back*, with a new session and without its state. If its host was
//! started again, the layer below asks for this. If a removed member hears from a quorum of members
//! that it is out, which they repeat, it gives up the session below, so that its host asks as well.
//! The process must be enabled there. The lowest member that is in then votes for its return. Once
//! this is decided, the member hears the messages of the others, but does not count yet: it passes
//! up nothing, and its pushes wait. When it says that it is there, the members, now with it, vote
//! once more. From that decision on it counts, and all members have it in at the same place. The
//! messages before that place it does not receive: the protocol above fetches its state from the
//! others. One member comes back at a time.
//!
//! A member *leaves* by a last message, when its session is asked `leave`. It has not failed: those
//! that have the message vote at once for a view without it, and all its messages count. It casts
//! no more votes. The quorum is more than half of those members of the list that have not left: if
//! of five members two have failed and a third leaves, the last two have no quorum.
//!
//! The protocol above may ask for the `view` at any time. Once it has put `take-views` to its
//! session, each change comes up as a message without octets, with the attribute `view-change`,
//! after the messages that count before it; so do loss and return of the quorum. `order` takes
//! views, and passes them up in their place among all messages. A member that has come back first
//! hears which others are out, and of its own return.
//!
//! A push waits while a change is being agreed on: until the deadline of a message with
//! `call-options`, otherwise without a limit; in an upcall a second at most. It fails with "no
//! route to the peer" without a quorum, with "the peer is unreachable" if this member is out.
//!
//! A message with the attribute `aside` passes in both directions at once.
//!
//! While a change is being agreed on, at most `2 n window` messages of the `n` members wait, and of
//! each member's nulls only the last. The layer below is `psync`; layers that order messages stand
//! above this one. An `open` on `order` fails: there the missing messages of a failed member would
//! delay the votes as well.
//!
//! # Security
//! A vote is taken only from a member, as `psync` identifies it, and only if it lowers no number of
//! the sender's last vote and raises at least one; otherwise it is ignored and counted. A lying
//! member can have others removed, as long as more than half remain. Members that accuse each other
//! in turn can leave too few to decide: then all stop. They stop as well if more than half lose
//! their state at one time.
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
//! Distributed Programs" (1993), for agreement by messages of the conversation. There other members
//! may defend a member that they still hear; here it is removed all the same. There a
//! member comes back by one round of messages; here by two, so that it has a part in the second.
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
    .summary("the members of a conversation agree which of them have failed or come back")
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
        question("leave", "of a session: sends the last message of this member"),
        question("mask-out", "of a session: refused, since one alone does not decide"),
        question("mask-in", "of a session: refused as well"),
        question("describe", "a conversation, and who is in"),
    ])
    .reasons(&[
        &conversation::NO_QUORUM, &conversation::OUT, &conversation::BEYOND_CUT,
        &conversation::TOO_MANY, &conversation::OLD_VOTE, &conversation::TOO_FEW]);
