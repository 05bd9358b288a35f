//! # Synopsis
//! `chatter LOWER [to="..."]` — sends messages to a group, and checks that those it hears come
//! after their causes, and in one order where the layer below promises one.
//!
//! # Participants
//! With `to` it opens the layer below with `local` and these peers. Without, it enables `local`,
//! `*` unless it is given, and takes the first conversation that a peer opens.
//!
//! # Behaviour
//! It sends `count` messages, one every `interval`, from the beginning of the conversation on. A
//! message has its sender, its number, and the number of the last message of each other member
//! that its sender had had by then. So a receiver knows what must have come before: a message of
//! which something has not is `early`, one that has come before is `twice`. Octets that do not fit
//! a message of `size` octets make it longer.
//!
//! Where the layer below passes up own messages in their places (`take-own`), as `order` does, each
//! message also says how many its sender had heard, and a digest of them. A receiver must have
//! heard the same messages in the same order; one that has heard another order counts `disorder`.
//!
//! The layer below is one whose sessions may have several peers, such as `psync`, or `fanout` and
//! `udp`, which promise no order.
//!
//! It reports `sent`, `received`, `members` heard, `early`, `twice`, and `failed` pushes, and on a
//! layer that orders `disorder` and `order`, the digest of all that it heard. It has finished when
//! it has sent all and has received `count` messages of each peer, and its own where they come up,
//! or has heard none for `timeout`. It has failed if a message was early, twice, in another order
//! or missing by then.
//!
//! A member is known by a random number of 32 bits. At most 64 are counted; messages of others are
//! dropped as `stranger`.
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
