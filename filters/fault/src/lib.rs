//! # Synopsis
//! `fault LOWER loss="5%"` — a layer for any edge that loses, repeats, reorders, damages, delays
//! and slows down messages.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! For each message of the chosen direction, in this order: one larger than `mtu` is refused (going
//! down) or dropped (going up); one is dropped with probability `loss`; one bit of it is flipped,
//! in a private copy, with probability `corrupt`; an Internet packet that is ECN-capable (RFC
//! 3168), with or without an Ethernet header, gets the mark of congestion with probability `mark`;
//! it goes on twice with probability `duplicate`. With a `rate`, messages take their turns on a
//! line of that speed, one for each direction. Then each waits for `delay`, and with probability
//! `reorder` for `reorder_delay` more, so that later ones overtake it.
//!
//! At most `queue` messages are held back; more are dropped, and refused to their senders. All
//! chance comes from the kernel's seed and the layer's name. Every fault is counted among the
//! layer's drops under its own reason: `lost`, `corrupted`, `marked`, `duplicated`, `reordered`,
//! `queue full`, `too big`.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap   device="xk0"
//!     fault tap loss="5%" delay="20ms" direction="down"
//!     eth   fault
//! }
//! ```
//!
//! # Standard
//! None; for marks RFC 3168, section 5.

mod mark;
mod protocol;

pub use protocol::{CORRUPTED, DUPLICATED, Fault, Faults, LOST, MARKED, REORDERED};

use xk_core::Entry;
use xk_core::control::question;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::filter("fault", include_str!("lib.rs"), protocol::build)
    .summary("a layer that loses, repeats, reorders, damages and delays messages")
    .parameters(Faults::PARAMETERS)
    .questions(&[
        question("max-packet", "that of the layer below, at most `mtu`"),
        question("opt-packet", "that of the layer below, at most `mtu`"),
    ])
    .reasons(&[&LOST, &CORRUPTED, &MARKED, &DUPLICATED, &REORDERED]);

#[cfg(test)]
mod tests;
