//! # Synopsis
//! `vmtp LOWER` — the Versatile Message Transaction Protocol: calls between entities, executed at
//! most once, of up to 4 MiB each way, with delivery masks and selective retransmission.
//!
//! # Participants
//! A procedure's number (24 bits, the request code) and a server's entity, both of which may be
//! left out, on top of what the layer below needs.
//!
//! - `open`: peer `procedure3@entity7@10.0.0.2`; without a procedure 0, without an entity that with
//!   discriminator 1. A peer that is a group or a broadcast is the group of all such entities.
//! - `open_enable`: `procedure3@entity7`, or `*` for every procedure that no other takes.
//!
//! # Behaviour
//! A session stands for one procedure of one server. An entity's identifier is that of domain 1: a
//! discriminator and the host's Internet address; on Ethernet the last four octets of the
//! station's address, on a bare link 0. A call uses one of the client entities: that which its
//! session used last, else an unused one, else the one used longest ago; if all are busy it waits.
//! Identifiers of clients have bits of this boot, so none is used again after a reboot.
//!
//! A message goes as a segment, also an empty one, but for one of exactly 20 octets, which goes as
//! user data in the header: so each length comes back. Packets have two blocks of 512 octets, as
//! many as an Ethernet takes. A longer message than 16 KiB is a run of packet groups; the next
//! group goes when the receiver has acknowledged the one before. The gap between packets begins
//! with `gap` and doubles when the server lacks some.
//!
//! The response acknowledges the request, the next request of the entity acknowledges the
//! response. A request without answer is sent again after 100 ms (300 ms if it is long), then
//! after twice the time, up to a second; over an internet after 500 ms (a second), up to four. Of
//! a request in several packets only the header goes again, and the server tells the blocks that
//! it lacks; the client asks for missing blocks of a response 20 ms after the last one. After
//! eight tries without a sign of life the call times out. A server that executes the call says so;
//! then it is asked every five seconds at most. Each retransmission bears its number, and so does
//! its answer: each is answered once, and each answer used once.
//!
//! Requests are executed on the arriving shepherd. A server keeps a record of each client entity
//! for 120 s. Before it executes the first request of an unknown one it asks the client's manager
//! whether that is its current transaction (`probe`): old duplicates and forged sources find none
//! that says so. The entity that asks has bits of the server's boot; a client tells by them that a
//! server has rebooted, and ends calls sent before as "rebooted". So a call is executed at most
//! once, unless `idempotent` says that responses are not kept: then a request that comes again is
//! executed again. A full table takes no new clients (they hear "busy") rather than give up a
//! record that a client may still need.
//!
//! `push` sends a request as a datagram: no response, no retransmission. A call to a group ends
//! with the first response; with the attribute `gather` each further call returns that of another
//! server, until the deadline. A response with an error is none of them.
//!
//! Requests of the procedures of a `route` are passed on to another server, which answers the
//! client itself, at the Internet address in the client's identifier. The first server repeats the
//! request until the other has it, and tells a client that asks meanwhile that it is there. A
//! request that was passed on fifteen times is refused as `forwarded too often`, where the RFC has
//! a call of the server's own.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a packet belongs to an entity or a record, for
//! which there is no session, and a checksum follows the data.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.2/24"; }
//!     vmtp       ip
//!     procedures vmtp
//! }
//! ```
//!
//! # Standard
//! RFC 1045; protocol number 81. The RFC leaves open what is sent again after a timeout (a header,
//! if the message is long), how a length below the block's is told (as above), and what a client
//! that is not known costs (one question). Not covered: secure transactions, which are refused and
//! counted as `security not supported`, parts of segments (`MsgDelivery`), principals, migration,
//! little-endian senders' user data, other operations of the manager than ProbeEntity,
//! NotifyVmtpClient, NotifyVmtpServer and NotifyRemoteVmtpClient. User data beside a segment is
//! ignored.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod blocks;
mod client;
mod entities;
mod forward;
mod protocol;
mod reasons;
mod records;
mod server;
mod session;
mod shared;
mod tables;
pub mod wire;

pub use blocks::MESSAGE_OCTETS_MAX;
pub use protocol::{ENTITY, Vmtp, add, build};
pub use reasons::{
    ABORTED, FORGED_DELIVERY, LATE, LOOPED, NO_ENTITY, NO_RECORD, NO_STREAM, NO_TRANSACTION,
    REPLAYED, SECURE, UNFINISHED, UNKNOWN_OPERATION, UNVERIFIED,
};
pub use shared::{FAR, NEAR, PACKET_OCTETS_MAX, Settings, Timers};

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, Needed, NeededOn, ParamKind, Realm, Service, StackingRules, block,
    optional, question, required,
};

/// Numbers of procedures.
const PROCEDURES: ParamKind = ParamKind::integer(0..=0xff_ffff);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("vmtp", include_str!("lib.rs"), build)
    .summary("VMTP: transactions of entities, executed at most once, also by groups of servers")
    .above(Family::Other("entities"))
    .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Ether, Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::PROMPT))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(wire::BARE_OCTETS)
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
        // What a virtual protocol maps 81 to.
        ("eth", 0x3900 + wire::IP_PROTOCOL as u32),
    ])
    .parameters(Settings::PARAMETERS)
    .blocks(&[
        block("route", 0..=1024,
            &[
                required("first", PROCEDURES, "the first procedure"),
                optional("last", PROCEDURES, "the last procedure"),
            ],
            &[
                required("to", ParamKind::Participant("entity7@10.0.0.3"),
                    "the server that answers them"),
            ],
            "procedures, from the first to the last, whose requests are passed on to another server"),
    ])
    .questions(&[
        question("my-procedure", "the procedure that a session stands for"),
        question("peer-host", "the peer of a session"),
        question("my-host", "our host towards it"),
        question("peer-proved", "of a session that serves: the client has confirmed a transaction"),
        question("max-packet", "as `message_max` says"),
        question("opt-packet", "octets of the blocks in a packet, of a session"),
        question("largest-push", "1500"),
        question("gathers-replies", "of a session to a group: it gives the responses of all"),
        question("cancel-call", "ends the wait of the call with this tag"),
    ])
    .reasons(&[
        &reasons::NO_ENTITY, &reasons::FORGED_DELIVERY, &reasons::REPLAYED,
        &reasons::NO_TRANSACTION, &reasons::LATE, &reasons::SECURE, &reasons::NO_RECORD,
        &reasons::UNVERIFIED, &reasons::UNFINISHED, &reasons::ABORTED,
        &reasons::UNKNOWN_OPERATION, &reasons::LOOPED, &reasons::NO_STREAM,
    ]);
