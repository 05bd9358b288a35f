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
//! There is one session. A message pushed into it comes up from it after `delay`, in order, from a timer and so
//! never within the push. At most `queue` messages are under way; one more is refused.
//!
//! # Control
//! Answers `max-packet` and `opt-packet`: `mtu`.
//!
//! # Parameters
//! - `delay`: from the push to the arrival; one nanosecond at least.
//! - `queue`: how many messages are under way at most.
//! - `mtu`: the largest message.
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
use xk_core::control::QuestionInfo;
use xk_core::graph::{Family, NOTHING_BELOW, ParamKind, ParamSpec, Realm, Service};

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "loop",
    summary: "a bottom for tests: what is sent comes up again",
    manual: include_str!("lib.rs"),
    realm: Realm::Wire,
    above: Family::Link,
    below: NOTHING_BELOW,
    service: Service::WIRE,
    header_octets: 0,
    stacking_rules: None,
    numbers: &[],
    parameters: &[
        ParamSpec::new(
            "delay",
            ParamKind::Duration,
            "0s",
            "from the push to the arrival",
        ),
        ParamSpec::new(
            "queue",
            ParamKind::Integer {
                min: 1,
                max: 1_048_576,
            },
            "1024",
            "how many messages are under way at most",
        ),
        ParamSpec::new(
            "mtu",
            ParamKind::Octets,
            "65535",
            "the largest message, in octets",
        ),
    ],
    blocks: &[],
    questions: &[
        QuestionInfo {
            name: "max-packet",
            meaning: "the mtu",
        },
        QuestionInfo {
            name: "opt-packet",
            meaning: "the mtu",
        },
    ],
    probe: None,
    build,
};
