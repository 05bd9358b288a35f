//! # Synopsis
//! `channel LOWER` — pairs requests with replies, one call at a time per channel, each executed at
//! most once.
//!
//! # Participants
//! A host, `10.0.0.2`, or nothing on a link; a channel number may lie on top:
//! `channel3@10.0.0.2`. Without one, or with `*`, each open makes a session on the next free
//! channel. The type number of the protocol above selects it.
//!
//! # Above
//! Protocols of the rpc realm: `select`, which chooses channels and procedures, reliable datagrams,
//! or an application that needs but one procedure.
//!
//! # Below
//! One protocol of the async realm: `fragment` for large messages, or what carries small ones
//! (`ip`, `vip`, `vipsize`), or a link.
//!
//! # Behaviour
//! A session opened from above is a channel. Its `call` sends the request, keeps a reference to it,
//! and waits for the reply; further calls on the session wait for their turn. Nothing but request
//! and reply is sent if nothing is lost: a reply acknowledges its request, a request the reply
//! before. A request that is not answered is sent again after 100 ms if it goes in one packet. For
//! one that takes several packets below, the server is asked after 500 ms and 10 ms for each
//! packet, by a packet without payload, and only if it says that it has not got the request, and is
//! not still collecting, is it sent again. The wait doubles to 5 s. A server that works on it says
//! so when asked. After eight tries without a sign of life the call has timed out; `call-options`
//! may end it sooner, `cancel-call` at once.
//!
//! The server executes a request whose sequence number comes after the last one of the channel, and
//! keeps a reference to the reply until the next request or an acknowledgement. It asks for one
//! after 2, 4, 8 and 16 s and gives the reply up a minute later. A client that goes on to another
//! call has abandoned the one before: its reply is suppressed. A refusal from above travels back as
//! an error reply with its reason, and so does `too big` in place of a reply that the layer
//! below does not carry.
//!
//! At most once holds across reboots of either side: each request bears a ticket of the server that
//! is running now, without which it is not executed but answered by a challenge with the ticket.
//! This costs one round trip at the first contact. A call that was sent to a server that has
//! rebooted since fails with `rebooted`; whether it was executed is not known. Channels of the
//! server's side that are idle may be evicted; the client is challenged again then.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a session below carries messages, and those above
//! take calls. A channel is found by the peer's host and numbers in the header, and moves to
//! another session below with its client. A client's and a server's session have little in common.
//!
//! Flags have five free bits: where the layer below may add octets to a short packet, they hold the
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

mod codes;
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
