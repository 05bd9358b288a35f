//! # Synopsis
//! `select LOWER` — SELECT: which procedure of which peer, over a fixed pool of channels.
//!
//! # Participants
//! A procedure on top of what the layer below needs: `procedure3@10.0.0.2`.
//!
//! - `open`: peer `procedure3@10.0.0.2`, the procedure from 0 to 65535. The local participant may
//!   leave the procedure out.
//! - `open_enable`: `procedure3` or `*`, with or without a host.
//!
//! # Behaviour
//! Each session below carries one call at a time: of `channel`, or of `reqrep`.
//!
//! A client's session stands for one procedure of one peer; a second open returns the same session.
//! All sessions to a peer share at most `channels` channels. The first one is opened with the first
//! session, another one whenever a call finds all in use. They are kept until the last session to
//! the peer is closed. When all are in use and no more may be opened, callers block: first come,
//! first served, each until its deadline (`call-options`) or until it is cancelled (`cancel-call`).
//!
//! A call gets a header of six octets: type 1, the procedure, status 0. The reply has type 2, the
//! same procedure and a status: 1 it was executed, 2 it failed, 3 no such procedure, 4 server busy,
//! 5 garbage arguments, 6 no such program, 7 no such version, 8 bad credentials. A refusal for any
//! other reason is status 2. The client's call fails with the reason of the status. A reply for
//! another procedure, or one that is malformed, is counted, and the call fails as a bad reply.
//!
//! A request goes to the protocol that has enabled its procedure, else to the one that has enabled
//! all. The first request through a channel makes a session, which answers `my-procedure`. It has a
//! hold on the channel below while it is held above.
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
//!     select     channel channels=8
//!     procedures select
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel", section 3.2 and appendix;
//! values of type and status from the x-kernel 3.2.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod forward;
mod protocol;
mod routes;
pub mod wire;

pub use forward::FORWARD_ENTRY;
pub use protocol::{Limits, Select, add, build, build_forward};
pub use routes::{HOPS_MAX, LOOPED};

use xk_core::graph::{Family, Guarantees, QuestionInfo, Realm, question};
use xk_core::{Entry, Reason};

/// The family of participants with a procedure on top.
pub const PROCEDURES: Family = Family::Other("procedures");

#[rustfmt::skip]
const QUESTIONS: &[QuestionInfo] = &[
    question("my-procedure", "which procedure a session stands for"),
    question("cancel-call", "ends the wait of a call for a channel, or for its reply"),
];

const REASONS: &[&Reason] = &[&LOOPED, &wire::STATUS_UNKNOWN];

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("select", include_str!("lib.rs"), build)
    .summary("SELECT: which procedure of which peer, over a fixed pool of channels")
    .above(PROCEDURES)
    .on(&[Realm::Rpc], &[Family::Host, Family::Link, PROCEDURES])
    .needs(Guarantees::SESSIONS)
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[("channel", 0x65)])
    .parameters(Limits::PARAMETERS)
    .questions(QUESTIONS)
    .reasons(REASONS);
