//! # Synopsis
//! `reqrep LOWER` — REQUEST.REPLY: matches replies to requests and repeats requests; the lowest
//! part of ONC RPC.
//!
//! # Participants
//! Those of the layer below, passed through: `port2049@10.0.0.2` on `udp`.
//!
//! # Above
//! One protocol that serves, any number that call: `sunselect`. It needs no type number.
//!
//! # Below
//! One protocol that carries messages: `udp` (what the rest of the world speaks), `rm` (records on
//! a stream), `fragment`, a network layer, a link. Both ends must stand on the same.
//!
//! # Behaviour
//! A request gets eight octets in front: a number (`xid`) and that it is a call. The number finds
//! the reply, which must come from where the request went. Several calls may be under way in one
//! session, in any order.
//!
//! Where the layer below may add octets to a short message (`min-packet` is more than the header:
//! `eth`, `vip`, `vipsize`), the upper bits of the word that says call or reply hold the length of
//! the message, for no other program speaks ONC RPC there.
//!
//! The same octets are sent again after `first_wait`, then after twice as long each time up to
//! `wait_max`, until a reply comes or `total` has passed: zero or more executions, at least one if
//! there is a reply. On a layer that carries records nothing is sent again unless the stream broke,
//! and then at once, over a new one; if the peer refuses that, the call ends. A call obeys the
//! attribute `call-options`. If the network says that no protocol takes it there (port or
//! protocol unreachable), the call ends at once; if it says that there is no way just now, the
//! request is sent again.
//!
//! The server keeps nothing: every request goes up, those that came twice included, on the shepherd
//! that brought it, and the reply goes back under its number. With `dupcache` it remembers the
//! latest requests by source, number and contents: one that is being executed is dropped, to one
//! that was executed the same reply goes again. What is not answered above stays without a reply,
//! and so does what the layer below does not take: `sunprog` asks how much that is
//! (`largest-reply`).
//!
//! A client that asks by datagrams has not shown that it is where its requests say. Replies more
//! than three times as long as their requests go there at `unproved_rate` at most, to neighbours
//! (the same host number but for eight bits) together at four times that, to all at 64 times; what
//! is beyond is dropped as `answer to unproved source`, which a line a minute tells the operator.
//! On `tcp`, on `channel`, and from this very host, all replies go, and so do those to requests
//! with something that only a reply to their host can have told: a shorthand of `authshort`.
//! Nothing else in ONC RPC is such a proof: numbers are the client's own, and a request that comes
//! again may be forged twice.
//!
//! A peer may be many hosts: a broadcast or a group on `udp` or `host-udp`. A plain call there ends
//! with the first reply. One with the attribute `gather` goes on: each further call for the next
//! reply brings that of another host, until the deadline of the first or `total`. The request is
//! sent again meanwhile, for those that did not get it; a host that replies once more is counted as
//! `repeated reply`, one beyond `replies_max` as `too many replies`. What came in time may be asked
//! for up to 10 s later. 64 such calls may be under way. No request is served through such a
//! session.
//!
//! A number that no call waits for is dropped as `no such call`, as is what is neither call nor
//! reply (`malformed`), a call at a client (`not a server`), and a call that finds `requests_max`
//! under way (`server busy`).
//!
//! The skeletons of layers (`xk_kit`) do not fit: that of messages has sessions that push and pop,
//! and that of calls stands on sessions that call. Here a session is pushed into below and called
//! above. It may call and serve at once, so that it is neither of the latter's two.
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
mod dupcache;
mod gather;
mod protocol;
mod session;
pub mod wire;

pub use gather::{REPEATED_REPLY, TOO_MANY_REPLIES};
pub use protocol::{ReqRep, Settings, add, build};
pub use session::{NO_CALL, NOT_A_SERVER, REPEATED, TOO_MANY_CALLS};

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
        &gather::REPEATED_REPLY, &gather::TOO_MANY_REPLIES, &session::NO_CALL,
        &session::NOT_A_SERVER, &session::REPEATED, &session::TOO_MANY_CALLS,
    ]);
