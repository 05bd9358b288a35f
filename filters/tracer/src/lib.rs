//! # Synopsis
//! `tracer LOWER` — a layer that remembers what crosses the edge that it stands on.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! Passes everything on unchanged, and records each crossing: its time, direction, length, session,
//! and first octets. It keeps the last `ring` crossings. If the program that runs the kernel has
//! given it a [`TraceLines`], that also gets a line of text for each.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim    link="lan"
//!     eth    sim
//!     arp    eth
//!     ip     arp { address "10.0.0.1/24"; }
//!     tracer ip
//!     udp    tracer
//! }
//! ```
//!
//! # Standard
//! None.

mod protocol;

pub use protocol::{Crossing, FIRST_OCTETS_MAX, TraceLines, TraceLog, Tracer};

use xk_core::Entry;
use xk_core::control::own_question;
use xk_core::graph::int;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::filter("tracer", include_str!("lib.rs"), protocol::build)
    .summary("a layer that remembers what crosses its edge")
    .parameters(&[
        int("ring", 1..=1_000_000, 1000, "how many crossings it remembers"),
        int("octets", 0..=FIRST_OCTETS_MAX as i64, 16,
            "how many of a message's first octets it keeps, at most 64"),
    ])
    .questions(&[own_question::<TraceLog>("the last crossings, oldest first")]);

#[cfg(test)]
mod tests;
