//! # Synopsis
//! `chatter LOWER [to="..."]` — sends messages to a group, and checks that messages arrive after
//! their causes, and in one order if the layer below promises one.
//!
//! # Participants
//! With `to` it opens the layer below with `local` and these peers. Without `to` it enables `local`
//! (default `*`), and takes the first conversation that a peer opens.
//!
//! # Behaviour
//! It sends `count` messages, `interval` apart, from the beginning of the conversation on. A
//! message contains its sender, its number, and for each other member the number of the last
//! message that the sender had received from that member. So a receiver knows which messages must
//! precede it: a message that arrives before one of these counts as `early`, a repeated one as
//! `twice`. If these numbers do not fit into `size` octets, the message is longer.
//!
//! If the layer below passes up own messages in their places (`take-own`), as `order` does, each
//! message also has the number of messages that its sender had received, and a digest of them. A
//! receiver must have received the same messages in the same order; otherwise it counts `disorder`.
//!
//! The sessions of the layer below may have several peers: on `psync`, or on `fanout` and `udp`,
//! which promise no order.
//!
//! Its `report` has `sent`, `received`, `members` heard, `early`, `twice` and `failed` pushes, and
//! on a layer that orders messages also `disorder` and `order`, the digest of all received
//! messages. It has finished when it has sent all messages and has received `count` messages of
//! each peer, and its own if they come up, or if none arrived for `timeout`. It has failed if a
//! push failed, or if a message was early, repeated, out of order or missing by then. If the layer
//! below names the members that are in (`view`), as `membership` does, it waits for these only. A
//! member that has come back into the conversation after a restart counts as another one. It waits
//! for no others, and checks what it receives from its return on, but not the digest.
//!
//! A member is identified by a random number of 32 bits. At most 64 members are counted; messages
//! of others are dropped as `stranger`.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim     link=lan
//!     eth     sim
//!     arp     eth
//!     ip      arp { address "10.0.0.1/24"; }
//!     psync   ip
//!     chatter psync to="process7@10.0.0.2, process7@10.0.0.3"
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod heard;
mod protocol;

pub use protocol::{Chatter, build};

use protocol::Settings;
use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("chatter", include_str!("lib.rs"), build)
    .summary("talks to a group, and checks that what it hears comes after its causes")
    .on(&[Realm::Async], &[Family::Any])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT).and(Guarantees::WHOLE))
    .numbers(&[("fanout", 8)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("try-open", "whether its peers can be opened"),
        question("report", "messages sent and heard, and those out of order"),
    ])
    .reasons(&[&protocol::STRANGER]);
