//! # Synopsis
//! `reqrep LOWER` — REQUEST.REPLY: matches replies to requests and repeats requests; the lowest
//! part of ONC RPC.
//!
//! # Participants
//! Those of the layer below, passed through: `port2049@10.0.0.2` on `udp`.
//!
//! # Behaviour
//! One protocol above serves, any number call. Other implementations stand on `udp`; `rm` carries
//! records on a stream. Both ends must stand on the same layer.
//!
//! A request gets eight octets in front: a number (`xid`) and the mark of a call. A reply is
//! matched by this number, and must come from the host that the request was sent to. A session may
//! have several calls under way, which end in any order.
//!
//! If the layer below may pad a short message (`min-packet` is more than the header: `eth`, `vip`,
//! `vipsize`), the upper bits of the word that says call or reply have the length of the message.
//! No other implementation uses ONC RPC on such a layer.
//!
//! The same octets are sent again after `first_wait`, then after twice the time up to `wait_max`,
//! until a reply comes or `total` has passed. So the call is executed zero or more times, at least
//! once if there is a reply. On a layer that carries records a request is sent again only if the
//! stream broke, and then at once over a new one; if the peer refuses that, the call ends. A call
//! obeys the attribute `call-options`. If the network reports that the port or protocol is
//! unreachable, the call ends at once; after another report the request is sent again.
//!
//! The server keeps no state: it passes every request up, duplicates included, on the shepherd that
//! brought it, and sends the reply with the same number. With `dupcache` it remembers the latest
//! requests by source, number and contents. A duplicate of a request that is being executed is then
//! dropped; a duplicate of an executed one gets the same reply. A request that the protocol above
//! does not answer gets no reply, and neither does one whose reply is too long for the layer below
//! (`sunprog` asks for that limit by `largest-reply`).
//!
//! A datagram does not prove its source. So replies more than three times as long as their requests
//! are limited: to `unproved_rate` for a host, four times that for its neighbours (the same address
//! but for eight bits) together, and 64 times for all hosts. More are dropped as `answer to
//! unproved source`, which is reported to the operator once a minute. There is no limit on `tcp`,
//! on `channel`, for this host itself, and for requests with a shorthand of `authshort`, which only
//! a reply to their host can have told. Nothing else in ONC RPC proves a source: the client itself
//! chooses the numbers, and a duplicate may be forged as well.
//!
//! A peer may be many hosts: a broadcast or a group on `udp` or `host-udp`. A plain call to it ends
//! with the first reply. A call with the attribute `gather` goes on: each further call for the next
//! reply returns that of another host, until the deadline of the first call or `total`. Meanwhile
//! the request is repeated for hosts that did not get it. A second reply of a host is counted as
//! `repeated reply`, one beyond `replies_max` as `too many replies`. Replies that came in time may
//! be fetched up to 10 s later. 64 such calls may be under way. Such a session serves no requests.
//!
//! Dropped are replies that no call waits for (`no such call`), messages that are neither call nor
//! reply (`malformed`), calls at a client (`not a server`), and calls beyond `requests_max`
//! (`server busy`).
//!
//! # Example
//! ```kdl
//! host server {
//!     sim       link=lan
//!     eth       sim
//!     arp       eth
//!     ip        arp { address "10.0.0.2/24"; }
//!     udp       ip
//!     reqrep    udp dupcache=128
//!     sunselect reqrep
//!     sunprog   sunselect
//! }
//! ```
//!
//! # Standard
//! RFC 5531, sections 4 and 9; the part of it that "RPC in the x-Kernel", section 5, calls
//! REQUEST.REPLY.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod calls;
mod client;
mod dupcache;
mod gather;
mod protocol;
mod server;
pub mod wire;

pub use gather::{REPEATED_REPLY, TOO_MANY_CALLS, TOO_MANY_REPLIES};
pub use protocol::{NO_CALL, ReqRep, Settings, add, build};
pub use server::{NOT_A_SERVER, REPEATED};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("reqrep", include_str!("lib.rs"), build)
    .summary(
        "REQUEST.REPLY: matches replies to requests and repeats requests; zero or more executions",
    )
    .on(&[Realm::Async, Realm::Wire], &[Family::Inherit])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE)
        .and(Guarantees::REPLY).and(Guarantees::PROMPT))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[
        // Unassigned protocol numbers, beside those of the paper's other layers.
        ("ip", 103),
        ("fragment", 103),
    ])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("cancel-call", "ends the waiting for a reply"),
        question("gathers-replies", "of a session to many hosts: it gives the replies of all"),
        question("largest-reply", "what the layer below takes, less the header"),
    ])
    .reasons(&[
        &gather::REPEATED_REPLY, &gather::TOO_MANY_REPLIES, &protocol::NO_CALL,
        &server::NOT_A_SERVER, &server::REPEATED, &gather::TOO_MANY_CALLS,
    ]);
