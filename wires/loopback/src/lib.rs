//! # Synopsis
//! `loopback` — a wire whose two ends are the same: what is sent comes back up.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! A message sent waits in a queue for `delay` and until the executor polls; then it comes up
//! through the wire's only session, never while the sender is still sending. If the queue is full,
//! the message is dropped and counted as "queue full". One poll takes only the messages that were
//! queued when it began, so that an upper protocol that answers everything cannot keep it busy
//! without end.
//!
//! The same buffers come up, without the attributes that were set on the way down. Checksums are
//! computed and verified as on any network, so that tests and measurements match other wires.
//!
//! It has no room (`wire-room`) while `queue` messages wait.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback mtu=1500
//!     "null" loopback
//!     echo "null"
//! }
//! ```
//!
//! # Standard
//! None.

mod protocol;

pub use protocol::{Loopback, Settings};

use xk_core::Entry;
use xk_core::control::question;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::wire("loopback", include_str!("lib.rs"), protocol::build)
    .replaceable()
    .summary("a wire whose two ends are the same: what is sent comes back")
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("max-packet", "the MTU"),
        question("opt-packet", "the MTU"),
        question("link-type", "147: no known form"),
        question("join-group", "nothing to do"),
        question("leave-group", "nothing to do"),
    ]);

#[cfg(test)]
mod tests;
