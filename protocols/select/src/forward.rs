//! # Synopsis
//! `forward LOWER { route 100 199 to="10.0.0.3"; }` — SELECT that calls some procedures at another
//! host.
//!
//! # Participants
//! Those of `select`: a procedure on top of what the layer below needs.
//!
//! # Behaviour
//! To its uppers and to its peers it is `select`: the same header, the same sessions, the same
//! channels. But a request for a procedure of a `route` does not go up: it is called at the
//! host of the route, through the same layer below, and what comes back is the reply. The client
//! sees no difference, and need not know which host executes.
//!
//! Octet 1 of the header counts how often a call was forwarded, which is no business of `select`.
//! One that was forwarded eight times, or that would go back to whom it came from, is refused,
//! counted as "forwarded in a circle". The client hears "system error", as of every call that could
//! not be forwarded; what the executing host refuses for comes back as it is.
//!
//! What is promised of a call's execution is what every hop promises: over `channel` at most once.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.2/24"; }
//!     fragment   ip
//!     channel    fragment
//!     forward    channel {
//!         route 3 5 to="10.0.0.3"
//!     }
//!     procedures forward
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel", section 3.2: a selection layer
//! that forwards, instead of SELECT. How it does it is our own.

use crate::protocol::build_forward;
use crate::{Limits, PROCEDURES, QUESTIONS, REASONS, wire};
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, block, optional, required};

const PROCEDURE: ParamKind = ParamKind::integer(0..=65_535);

/// The catalog entry of the layer that forwards.
#[rustfmt::skip]
pub static FORWARD_ENTRY: Entry = Entry::calls("forward", include_str!("forward.rs"), build_forward)
    .summary("SELECT that calls some procedures at another host")
    .above(PROCEDURES)
    .on(&[Realm::Rpc], &[Family::Host, Family::Link, PROCEDURES])
    .needs(Guarantees::SESSIONS)
    .header_octets(wire::HEADER_OCTETS)
    // Those of `select`, which its peers take it for.
    .numbers(&[("channel", 0x65)])
    .parameters(Limits::PARAMETERS)
    .blocks(&[
        block("route", 0..=1024,
            &[
                required("first", PROCEDURE, "the first procedure"),
                optional("last", PROCEDURE, "the last procedure"),
            ],
            &[
                required("to", ParamKind::Participant("10.0.0.3"),
                    "who serves them"),
            ],
            "procedures, from the first to the last, that are called at another host; without the \
             last it is one, and no procedure has two routes"),
    ])
    .questions(QUESTIONS)
    .reasons(REASONS);
