//! # Synopsis
//! `probe LOWER to="..."` — sends messages and counts, checks and times what comes back.
//!
//! # Participants
//! It opens the layer below with `local` and `to`. A participant that is not given is a wildcard at
//! every layer. `to` may be a list of peers, `to="port7@10.0.0.2, port7@10.0.0.3"`, on a layer
//! whose sessions may have several, such as `udp`.
//!
//! # Behaviour
//! On `icmp` it is ping; on `udp` a client of `echo`; on `eth`, `ip` and `null` it has the number
//! of `echo`.
//!
//! It opens a session at `start` and sends `count` messages, one every `interval`; with an interval
//! of zero, the next one as soon as the one before has come back or timed out. Each message is
//! expected back unchanged from each peer. Answers are not told apart by peer: of three peers, the
//! fourth answer to a message is a duplicate.
//!
//! A message begins with its sequence number (eight octets) and the time of sending in nanoseconds
//! (eight octets), as far as its size allows; the rest is a pattern that depends on the number. A
//! reply of less than eight octets counts as the answer to the oldest message of its size; it is
//! not timed.
//!
//! A message that is not back after `timeout` is lost; if it comes later it counts as late. At most
//! 65536 messages are awaited at a time; beyond that the oldest is given up.
//!
//! On a stream (`tcp`) the octets that come back are cut into messages of the sizes sent, in their
//! order. When the stream breaks, awaited messages are lost and nothing more is sent.
//!
//! Its `report` has `sent`, `received`, `lost`, `corrupt`, `duplicates`, `late`, what could not be
//! sent and what the network reported by kind, why the stream broke, `rtt min`, `rtt avg`, `rtt
//! p50`, `rtt max`, and `why` it has failed. It has finished when every message is answered, lost
//! or failed. It has failed if nothing came back by then, if anything came back corrupt, or if the
//! stream broke. Of what comes from below it takes `network-error` and `stream-notice`.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim   link=lan
//!     eth   sim
//!     arp   eth
//!     ip    arp { address "10.0.0.1/24"; }
//!     udp   ip
//!     probe udp to="port7@10.0.0.2" count=10 interval="100ms" size=8192
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cutter;
mod protocol;
mod tally;
mod window;

pub use protocol::{Probe, Settings, add, build};
pub use tally::{Results, RoundTrips};

use xk_core::Entry;
use xk_core::control::{own_question, question};
use xk_core::graph::{Family, Guarantees, Realm};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("probe", include_str!("lib.rs"), build)
    .summary("sends messages and counts, checks and times what comes back")
    .on(&[Realm::Async, Realm::Wire], &[Family::Any])
    .needs(Guarantees::OPEN.and(Guarantees::EXACT).and(Guarantees::REPLY))
    .numbers(&[
        // Local experimental EtherType 2 (IEEE 802); experimental protocol number (RFC 3692).
        ("eth", 0x88b6),
        ("ip", 254),
        ("null", 7),
        ("rdgram", 7),
        ("fragment", 7),
    ])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("try-open", "whether its peer can be opened"),
        question("report", "messages sent, received, lost; round-trip times"),
        question("network-error", "counted by kind"),
        own_question::<Results>("what it has found, as numbers"),
    ])
    .reasons(&[&protocol::CORRUPT, &protocol::DUPLICATE, &protocol::LATE]);
