//! # Synopsis
//! `forward LOWER { route 100 199 to="10.0.0.3"; }` — SELECT that calls some procedures at another
//! host.
//!
//! # Participants
//! Those of `select`: a procedure on top of what the layer below needs.
//!
//! # Behaviour
//! For its uppers and its peers it is `select`, with the same header, sessions and channels. But a
//! request for a procedure of a `route` does not go up: `forward` calls the procedure at the host
//! of the route, through the same layer below, and returns the result as the reply. The client sees
//! no difference, and need not know which host executes the call.
//!
//! Octet 1 of the header, which `select` ignores, counts how often a call was forwarded. A call
//! that was forwarded eight times, or that would go back to its sender, is refused and counted as
//! "forwarded in a circle". The client gets "system error", as for every call that could not be
//! forwarded; the reason of a refusal by the executing host is returned unchanged.
//!
//! A call has the guarantee of each hop: over `channel` it is executed at most once.
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
//! that forwards, in place of SELECT. The details are xk's own.

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
