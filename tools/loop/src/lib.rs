//! # Synopsis
//! `loop` — a bottom for tests: what its upper protocol sends comes up to it again.
//!
//! # Realm
//! wire (an anchor: no header)
//!
//! # Participants
//! None; those given are ignored.
//!
//! # Above
//! One protocol that stands on a link.
//!
//! # Below
//! Nothing.
//!
//! # Behaviour
//! There is one session. A message pushed into it comes up from it after `delay`, in order, from a
//! timer and so never within the push. At most `queue` messages are under way; one more is refused.
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (`mtu`), `link-type` (147: no known form), `join-group`
//! (nothing to do), `describe`, `list-sessions`.
//!
//! # Example
//! ```kdl
//! host one {
//!     loop
//!     "null" loop
//!     probe "null"
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod protocol;

pub use protocol::{Loop, Settings, add, build};

use xk_core::Entry;
use xk_core::control::question;

/// What the catalog knows of it.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::wire("loop", include_str!("lib.rs"), build)
    .summary("a bottom for tests: what is sent comes up again")
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("max-packet", "the mtu"),
        question("opt-packet", "the mtu"),
        question("link-type", "147: no known form"),
        question("join-group", "nothing to do"),
    ]);
