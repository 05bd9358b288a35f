//! # Synopsis
//! `channel LOWER` — pairs requests with replies, one call at a time per channel, each executed at
//! most once.
//!
//! # Participants
//! A host, `10.0.0.2`, or nothing on a link; a channel number may lie on top:
//! `channel3@10.0.0.2`. Without one, or with `*`, each open makes a session on the next free
//! channel. The type number of the protocol above selects it.
//!
//! # Behaviour
//! Above stands `select`, which chooses channels and procedures, reliable datagrams, or an
//! application that needs but one procedure; below `fragment` for large messages, or what carries
//! small ones (`ip`, `vip`, `vipsize`, a link).
//!
//! A session opened from above is a channel. Its `call` sends the request, keeps a reference to it,
//! and waits for the reply; further calls on the session wait for their turn. A reply acknowledges
//! its request, and a request the reply before it. So without losses nothing else is sent.
//!
//! A request in one packet is sent again after 100 ms without an answer. For a request in several
//! packets, the client first asks the server by a packet without payload, after 500 ms and 10 ms
//! for each packet. It sends the request again only if the server has not got it and is not
//! collecting its packets. The wait doubles up to 5 s. A server that is executing the call says so
//! when asked. After eight tries without a sign of life the call times out; `call-options` may end
//! it sooner, and `cancel-call` ends it at once.
//!
//! The server executes a request whose sequence number is above the last one of the channel, and
//! keeps a reference to the reply until the next request or an acknowledgement. It asks for an
//! acknowledgement after 2, 4, 8 and 16 s, and drops the reply a minute later. A client that makes
//! another call has abandoned the one before, and its reply is suppressed. A refusal from above is
//! sent back as an error reply with its reason. If the layer below does not carry a reply, the
//! client gets `too big` in its place.
//!
//! Calls are executed at most once even across reboots of either side. Each request bears a ticket
//! of the running server. A request without it is not executed, but answered by a challenge with
//! the ticket; this costs one round trip at the first contact. If the server has rebooted since the
//! call was sent, the call fails with `rebooted`, and may have been executed. Idle channels of the
//! server's side may be evicted; their clients are then challenged again.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a session below carries messages, and those above
//! take calls. A channel is found by the peer's host and numbers in the header, and moves to
//! another session below with its client. A client's and a server's session have little in common.
//!
//! The flags have five free bits. If the layer below may pad short packets, these bits have the
//! length of a payload of up to 30 octets.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     fragment   loopback
//!     channel    fragment
//!     procedures channel procedure=1
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel", sections 3.2 and 4.2, and its
//! appendix for the header; tickets, marks and the codes of refusals are ours.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
mod session;

mod table;
pub mod wire;

pub use protocol::{Channel, Limits, add, build};
pub use table::ChannelFigures;

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("channel", include_str!("lib.rs"), build)
    .summary("request and reply, at most once")
    .above(Family::Host)
    .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE)
        .and(Guarantees::REPLY).and(Guarantees::PROMPT))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[("ip", 102), ("fragment", 102), ("null", 102)])
    .parameters(Limits::PARAMETERS)
    .questions(&[
        question("peer-proved", "of a session that serves: the client has returned our ticket"),
        question("cancel-call", "takes back the call of this name"),
        own_question::<ChannelFigures>("calls, resends, probes, acknowledgements, challenges, executions"),
    ])
    .reasons(&[
        &session::LATE, &session::client::STRAY, &session::client::INSATIABLE,
        &session::server::ABANDONED, &session::server::IMPATIENT,
        &session::server::UNACKNOWLEDGED,
    ]);
