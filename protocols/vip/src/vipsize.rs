//! # Synopsis
//! `vipsize SMALL LARGE` — gives each message to the lower protocol that suits its size; no header.
//!
//! # Participants
//! Hosts: those of the layers below.
//!
//! # Behaviour
//! The protocol above has a type number on each protocol below; if one of these has no header, on
//! the protocol below it. It must tolerate messages that overtake one another.
//!
//! The protocols below report the host from which a message comes. They are listed from the one for
//! the smallest messages to the one for the largest: with `vipaddr fragment` only messages too long
//! for a frame are fragmented. A protocol that stands on another one is listed after it, unless it
//! has a `cutoff`.
//!
//! `open` opens a session on each protocol below, and fails if one of them fails. A message goes to
//! the first one whose `cutoff` it does not exceed, and to the last if it exceeds all. The cutoff
//! of a layer is set in the graph, or else is the largest message that the layer sends whole
//! (`opt-packet`).
//!
//! An offer is made to all layers below, and a peer has one session, whichever layer its messages
//! come by. The sessions for answers are opened with the first answer. When a layer below reports
//! that the path to a host has changed (`vipaddr` does), all sessions to it are opened again for
//! the next message. A late refusal ends here, because the layer by which its message came is no
//! longer known.
//!
//! `opt-packet` is the largest cutoff, or the last layer's own. A session passes `last-copy` to the
//! layer by which the last message went, and `free-copy` and `ask-copy` to all layers below; other
//! questions go to the last layer. From below the protocol takes `way-changed`, and passes
//! `network-error` and `is-outstanding` on to the session's upper protocol.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap      device="tap0"
//!     eth      tap
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     vipaddr  arp ip
//!     fragment vipaddr
//!     vipsize  vipaddr fragment
//!     channel  vipsize
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel: Evaluating New Design
//! Techniques" (1989), section 4.3.

mod protocol;

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, ParamKind, Realm, Service, Shape, StackingRules, block, question, required,
};
use xk_kit::net::virtual_layer::{IDLE_MAX, SESSIONS_MAX};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("vipsize", include_str!("vipsize.rs"), protocol::build)
    .summary("gives each message to the lower protocol that suits its size")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .lowers(2..=8)
    .needs(Guarantees::SESSIONS.and(Guarantees::HOSTS))
    .service(Service::adding(Guarantees::REPLY))
    .shape(Shape::Virtual)
    .stacking_rules(&StackingRules { rising: Some("cutoff"), ..StackingRules::NONE })
    .parameters(&[SESSIONS_MAX, IDLE_MAX])
    .blocks(&[
        block("cutoff", 0..=7,
            &[required("octets", ParamKind::Octets, "the largest message")],
            &[],
            "the largest message that goes to a layer, in octets, for each but the last, in their \
             order"),
    ])
    .questions(&[
        question("peer-host", "the peer, of a session"),
        question("peer-on-link", "whether the peer is on the link now"),
        question("max-packet", "that of the last layer"),
        question("opt-packet", "the largest message that goes whole"),
        question("describe", "a session's host and cutoffs"),
        question("list-sessions", "one for each host and upper protocol"),
        question("list-maps", "active: host and upper protocol"),
    ]);
