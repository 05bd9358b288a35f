//! # Synopsis
//! `atp LOWER` — ATP: requests of one packet and replies of up to eight, executed at least once or
//! exactly once.
//!
//! # Participants
//! Those of the layer below, passed through: `socket144@node18@net10` on `ddp`.
//!
//! # Behaviour
//! One protocol above serves for each local participant: `socket144`, or `*` for what no other is
//! enabled for; any number call. On `ddp` it has the type 3. It also stands on `udp` and the like;
//! both ends must stand on the same.
//!
//! A call sends a request with a number (TID) and a bitmap of the wanted responses, and waits for
//! the responses, each with its sequence number. Together they are the reply, of up to 4624 octets.
//! After `interval` the request is sent again for the missing responses, `tries` times in all. Then
//! the call ends as timed out, and the responses are dropped. A call obeys the attribute
//! `call-options`. If the last packet of a reply is marked as such, the reply is complete even with
//! fewer packets than wanted. If a packet asks for it (STS), the request is sent again at once,
//! without counting as a try.
//!
//! With `xo` a request is executed exactly once. The responder remembers it and its reply until the
//! requester releases it or the release timer expires; it repeats responses on request, and drops a
//! request that is being executed. Without `xo`, each request that arrives is executed. A request
//! that the protocol above refuses gets no reply, and may be executed when it comes again.
//!
//! The protocol itself has two limits. A request that is delayed past its release is taken for a
//! new one and executed again. And TIDs repeat after 65536 transactions: if that happens within a
//! release timer and the release was lost, the reply of the first transaction is taken for that of
//! the second.
//!
//! The attribute `transaction` of a request overrides the parameters, and carries the user octets.
//! On a request that goes up it has the requester's options. On a reply it carries the user octets,
//! and on the way down the number of data octets in a packet. `xk_appletalk::atp::Options`
//! describes its twelve octets.
//!
//! At most `remembered` requests are remembered, `remembered_host` of one host, as long as their
//! replies have less than `remembered_octets`. Remembered requests are not evicted: beyond these
//! bounds a new request for exactly once is dropped as `too many remembered`. But four more are
//! remembered for each of up to 64 hosts that have released something in the last minute. So forged
//! requests do not keep such a host from being served. A release of a request without a reply yet,
//! or from another peer, is ignored.
//!
//! A reply can be a hundred times as long as its request, and the layers below prove no source. So
//! a host is sent at most `unreleased` packets a second that may be unwanted: packets after the
//! first of each reply until they are released, and repeated ones. Beyond that its requests are
//! dropped as `too much unreleased`, including those for at least once, which have no release. A
//! stranger that forges releases as well is limited only by its own line: ATP is for a cable with
//! trusted stations.
//!
//! Octets and machines are those of `xk_appletalk::atp`, as in the other subsystems.
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
//! Inside AppleTalk, second edition, chapter 9. The responder never asks for the request again
//! (STS); the requester obeys it.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod calls;
mod client;
mod protocol;
mod server;
pub mod wire;

pub use client::{NO_TRANSACTION, REPEATED_RESPONSE, TOO_MANY_CALLS};
pub use protocol::{Atp, Settings, Transactions, add, build};
pub use server::{
    LATE_REPLY, NOT_A_SERVER, REPEATED_REQUEST, REPLY_TOO_BIG, TOO_MANY_REMEMBERED, UNRELEASED,
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
        &server::LATE_REPLY, &client::NO_TRANSACTION, &server::NOT_A_SERVER,
        &server::REPEATED_REQUEST, &client::REPEATED_RESPONSE, &server::REPLY_TOO_BIG,
        &client::TOO_MANY_CALLS, &server::TOO_MANY_REMEMBERED, &server::UNRELEASED,
    ]);
