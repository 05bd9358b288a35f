//! # Synopsis
//! `atp LOWER` — ATP: requests of one packet and replies of up to eight, executed at least once or
//! exactly once.
//!
//! # Participants
//! Those of the layer below, passed through: `socket144@node18@net10` on `ddp`.
//!
//! # Above
//! Any number that call, and one that serves for each local participant: `socket144`, or `*` for
//! what no other is enabled for. It needs no type number.
//!
//! # Below
//! One protocol that carries messages as they are: `ddp`, where it has the type 3; also `udp` and
//! the like. Both ends must stand on the same.
//!
//! # Behaviour
//! A call sends a request with a number (TID) and a bitmap of the responses wanted, and waits for
//! the responses, each with its sequence number; together they are the reply, up to 4624 octets.
//! After `interval` the request goes again, for what is still missing, `tries` times in all; then
//! the call ends as timed out, and what arrived is dropped. A call obeys the attribute
//! `call-options`. A reply whose last packet says so is complete with fewer packets than were
//! wanted. If a packet asks for it (STS) the request goes again at once, which is no try.
//!
//! With `xo` a request is executed exactly once: the responder remembers it and its reply until the
//! requester releases it or the release timer has run out, sends again what is asked for again, and
//! drops a request that is being executed. Without, each request that arrives is executed. What is
//! refused above gets no reply, and may be executed when it comes again.
//!
//! Two limits are the protocol's own. A request that is delayed past its release is taken for a new
//! one and executed again. And after 65536 transactions within a release timer numbers come again:
//! if a release was lost, the reply of the first is taken for that of the second.
//!
//! The attribute `transaction` of a request says instead of the parameters what is asked for, and
//! the user octets; on a request that goes up it says what the requester asks for, and on replies
//! it bears the user octets, and on its way down how many octets of data a packet has. Its twelve
//! octets are described with `xk_appletalk::atp::Options`.
//!
//! At most `remembered` requests are remembered, `remembered_host` of one host, as long as their
//! replies have less than `remembered_octets`; beyond that a request that is to be executed exactly
//! once is dropped as `too many remembered`, for nothing that is remembered gives way. Of a host
//! that has released something in the last minute, and of 64 such hosts at most, four are
//! remembered all the same: requests in forged names do not keep it from being served. A release of
//! a request that has no reply yet, or of another peer's, releases nothing.
//!
//! A reply can be a hundred times as long as its request, and the layers below prove no source. So
//! a host is sent at most `unreleased` packets a second that it did not ask for as far as can be
//! told: those beyond the first of each reply, until a release makes up for them, and those that
//! are sent again. Beyond that its requests are dropped as `too much unreleased`, those that are
//! executed at least once, which no release follows, too. A stranger that forges releases as well
//! is bounded by nothing but its own line: ATP is for a cable whose stations are trusted.
//!
//! The skeletons of layers (`xk_kit`) do not fit, for the reasons that `reqrep` has: a session is
//! pushed into below and called above, and may call and serve at once. Octets and machines are
//! those of `xk_appletalk::atp`, as in the other subsystems.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim  link=lan
//!     eth  sim
//!     aarp eth
//!     ddp  aarp net="10-19" node=18
//!     atp  ddp tries=8 interval="1s"
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 9. A responder of ours never asks for the request
//! again (STS); a requester answers it.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod calls;
mod protocol;
mod session;
pub mod wire;

pub use protocol::{Atp, Settings, Transactions, add, build};
pub use session::{
    LATE_REPLY, NO_TRANSACTION, NOT_A_SERVER, REPEATED_REQUEST, REPEATED_RESPONSE, REPLY_TOO_BIG,
    TOO_MANY_CALLS, TOO_MANY_REMEMBERED, UNRELEASED,
};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("atp", include_str!("lib.rs"), build)
    .summary("ATP: requests, and replies of up to eight packets; at least once or exactly once")
    .on(&[Realm::Async, Realm::Wire], &[Family::Inherit])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::EXACT)
        .and(Guarantees::REPLY).and(Guarantees::PROMPT))
    .service(Service::adding(Guarantees::TRANSACTIONS))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[("ddp", 3)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        own_question::<Transactions>("how many packets a reply may have"),
        question("cancel-call", "ends the waiting for a reply"),
        question("usual-transaction", "what is asked for where a request says nothing itself"),
        question("max-packet", "the largest request: 578 octets at most"),
        question("opt-packet", "the largest request: 578 octets at most"),
    ])
    .reasons(&[
        &session::LATE_REPLY, &session::NO_TRANSACTION, &session::NOT_A_SERVER,
        &session::REPEATED_REQUEST, &session::REPEATED_RESPONSE, &session::REPLY_TOO_BIG,
        &session::TOO_MANY_CALLS, &session::TOO_MANY_REMEMBERED, &session::UNRELEASED,
    ]);
