//! # Synopsis
//! `mrpc LOWER` — monolithic Sprite RPC: calls between hosts, executed at most once, of up to 16
//! KiB each way, with channels, implicit acknowledgement and fragmentation in one header.
//!
//! # Participants
//! A procedure's number (16 bits, Sprite's command) on top of what the layer below needs.
//!
//! - `open`: peer `procedure3@10.0.0.2`, over a bare link `procedure3`; the local participant may
//!   be left open.
//! - `open_enable`: `procedure3`, or `*` for every procedure that no other takes.
//!
//! # Behaviour
//! A session stands for one procedure of one peer. Over a link with one other end hosts are
//! 0.0.0.0. `mrpc` pushes at most one packet of the layer below, 1500 octets or less, and answers
//! `largest-push` so. Over `arp` without `ip`, `address` is this host's address.
//!
//! A call uses one of the channels: the one that its session used last; else one last used with the
//! same server; else an unused one; else the one used longest ago. If all are busy the call waits.
//! The reply acknowledges the request, the next request on the channel acknowledges the reply. A
//! request without an answer is sent again after 100 ms (500 ms if a message is fragmented), then
//! after twice the time, up to a second; over an internet after 500 ms (a second), up to four.
//! After eight tries without a sign of life the call times out. A server that is executing the call
//! acknowledges it; then the client asks every five seconds at most, as long as the caller waits. A
//! server without a free process says so. It is asked again after two seconds, then after twice the
//! time, up to fifteen seconds; at the eighth time the call is rejected as "server busy".
//!
//! Messages longer than a fragment are sent in up to sixteen fragments; only those that the peer
//! reports missing are sent again. Each retransmission carries the number of its round, and so does
//! its answer. Each round is answered once, and each answer used once, so duplicated or reordered
//! packets do not multiply. A message that needs both areas of the header has the attribute
//! `Parameters`, which says how much of it is area 1, at most 1024 octets.
//!
//! Requests are executed on the arriving shepherd, and a procedure may block and call. Duplicates
//! that come during the execution are acknowledged. Later duplicates that ask for the reply get the
//! saved reply, or its last fragment if it is fragmented. A reply is kept until the client calls
//! again on the channel or acknowledges it, which the server asks for every two seconds; after
//! three minutes it is dropped.
//!
//! A server executes only calls of clients whose boot it knows. It challenges the first call of
//! each boot of a client: it answers with a ticket (a negative acknowledgement with the error flag,
//! the ticket in place of the server process), and the client sends the call again with the ticket.
//! A client without a ticket sends only the last fragment of a fragmented call. So no call is
//! executed twice by a server that has rebooted or has forgotten a client, and no old duplicate is
//! executed. If the server reboots during a call, the client gets "rebooted", and the call may have
//! been executed.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a packet belongs to a channel or a process, for
//! which there is no session. A session stands for a procedure, takes calls, and shares the
//! channels with all others. It is found once a request is complete.
//!
//! A request with the attribute `Echo` is answered by the peer's dispatcher, without a process.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim  link=lan
//!     eth  sim
//!     arp  eth
//!     mrpc arp address="10.0.0.2"
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel" (1989), section 3 and appendix;
//! Welch, The Sprite Remote Procedure Call System; protocol number 90 by RFC 1700. Departures:
//! requests carry tickets; call numbers begin anywhere; only numbers above the last one of a
//! channel are accepted; three bits that only Sprite used have the number of the round; a partial
//! acknowledgement is answered at once; the eighth negative one ends the call. Not covered:
//! broadcasts, a delay between fragments.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod channels;
mod client;
mod fragments;
mod processes;
mod protocol;
mod reasons;
mod server;
mod session;
mod shared;
pub mod timers;
pub mod wire;

pub use fragments::Parameters;
pub use protocol::{Mrpc, add, build};
pub use reasons::{
    FORGED_FRAGMENT, INCOMPLETE, LATE, NO_CALL, NO_PROCESS, REPLAYED, STUCK, SUPPRESSED,
    UNKNOWN_CHANNEL, WRONG_BOOT,
};
pub use session::{Echo, PACKET_OCTETS_MAX};
pub use shared::Config;

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, Needed, NeededOn, Realm, Service, StackingRules, question,
};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("mrpc", include_str!("lib.rs"), build)
    .summary("monolithic Sprite RPC: calls, executed at most once")
    .above(Family::Other("procedures"))
    .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::PROMPT))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(wire::HEADER_LEN)
    .stacking_rules(&StackingRules {
        needed: &[
            Needed {
                parameter: "address",
                on: NeededOn::Kind { kind: "arp", unless: "ip" },
                why: "nobody there says which host this one is, since no `ip` stands on it",
                instead: "say it: `address=\"10.0.0.1\"`",
            },
        ],
        own_address: Some("address"),
        ..StackingRules::NONE
    })
    .numbers(&[
        ("ip", wire::IP_PROTOCOL as u32),
        // What a virtual protocol maps 90 to.
        ("eth", 0x3900 + wire::IP_PROTOCOL as u32),
    ])
    .parameters(Config::PARAMETERS)
    .questions(&[
        question("my-procedure", "the procedure that a session stands for"),
        question("peer-host", "the peer of a session"),
        question("my-host", "our host towards it"),
        question("peer-proved", "of a session that serves: the client has returned our ticket"),
        question("max-packet", "16384"),
        question("opt-packet", "octets of a fragment, of a session"),
        question("largest-push", "1500"),
        question("cancel-call", "ends the wait of the call with this tag"),
    ])
    .reasons(&[
        &reasons::WRONG_BOOT, &reasons::REPLAYED, &reasons::UNKNOWN_CHANNEL,
        &reasons::FORGED_FRAGMENT, &reasons::NO_CALL, &reasons::LATE,
        &reasons::NO_PROCESS, &reasons::STUCK, &reasons::SUPPRESSED, &reasons::INCOMPLETE,
        &reasons::PARAMETERS_TOO_BIG,
    ]);
