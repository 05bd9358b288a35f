//! # Synopsis
//! `vmtp LOWER` — the Versatile Message Transaction Protocol: calls between entities, executed at
//! most once, of up to 4 MiB each way, with delivery masks and selective retransmission.
//!
//! # Participants
//! A procedure's number (24 bits, the request code) and a server's entity, both optional, on top of
//! what the layer below needs.
//!
//! - `open`: peer `procedure3@entity7@10.0.0.2`. The default procedure is 0, the default entity the
//!   one with discriminator 1. A group or broadcast address means the group of all such entities.
//! - `open_enable`: `procedure3@entity7`, or `*` for every procedure that no other protocol serves.
//!
//! # Behaviour
//! A session stands for one procedure of one server. Entity identifiers are those of domain 1: a
//! discriminator and the host's Internet address; on Ethernet the last four octets of the station's
//! address, on a bare link 0. A call uses one of the client entities: the one that its session used
//! last, otherwise one last used with the same host, otherwise an unused one, otherwise the least
//! recently used one; while all are busy the call waits. Client identifiers contain random bits, so
//! none is used again after a reboot, nor by a second `vmtp` of the host.
//!
//! A message is sent as a segment, even if it is empty; only one of exactly 20 octets is sent as
//! user data in the header. So every length is preserved. A packet has two blocks of 512 octets, as
//! many as an Ethernet frame takes. A message longer than 16 KiB is sent as a run of packet groups,
//! each after the receiver has acknowledged the one before. The gap between packets starts at `gap`
//! and doubles when the server reports that more than an eighth of the blocks are missing; each
//! call without a loss takes a fourth of it back. A server asks one client after another for
//! missing blocks, when those have had time to come that it asked for before.
//!
//! The response acknowledges the request; the next request of the entity acknowledges the response.
//! An unanswered request is retransmitted after 100 ms (a long one after 300 ms), then after
//! doubled intervals of up to a second; over an internet after 500 ms (a second), then of up to
//! four. Once round trips to the server were measured, the first interval is 100 ms longer than
//! they take (300 ms, 600 ms). Of a request in several packets only the header is retransmitted,
//! and the server reports the blocks that it lacks; the client requests missing blocks of a
//! response 20 ms after its last packet. After eight attempts without a sign of life the call times
//! out. While the server reports that it has the request, the client asks at intervals of up to
//! five seconds. Each retransmission has a number, which its answer repeats: each is answered once,
//! and each answer is used once.
//!
//! Requests are executed on the arriving shepherd. A server keeps a record of each client entity
//! for 120 s. Before it executes the first request of an unknown entity, it asks the client's
//! manager whether this is the entity's current transaction (`probe`): for old duplicates and
//! forged sources no manager confirms it. The question identifies the server's boot; by it a client
//! detects that a server has rebooted, and ends the calls that it sent before as "rebooted". So a
//! call is executed at most once, unless `idempotent` says that responses are not kept: then a
//! repeated request is executed again. A full table of records refuses new clients as "busy",
//! rather than drop a record that a client may still need.
//!
//! `push` sends a request as a datagram: no response, no retransmission. A call to a group ends
//! with the first response; with the attribute `gather` each further call returns the response of
//! another server, until the deadline, and responses with an error are skipped.
//!
//! Requests for the procedures of a `route` are forwarded to another server, which answers the
//! client directly, at the Internet address in the client's identifier. The first server
//! retransmits the request until the other one has it, and meanwhile confirms to a client that asks
//! that it has arrived. A request that was forwarded fifteen times is refused as `forwarded too
//! often`; in the RFC the server then makes a call of its own.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a packet belongs to an entity or a record, which
//! have no sessions, and a checksum follows the data.
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
//! RFC 1045; protocol number 81. The RFC leaves open what is retransmitted after a timeout (here
//! the header, if the message is long), how a length that is no multiple of a block is conveyed (as
//! above), and what an unknown client costs (here one question). Not covered: secure transactions,
//! which are refused and counted as `security not supported`; runs of transactions, which are
//! refused as `streaming not supported`; parts of segments (`MsgDelivery`); principals; migration;
//! user data of little-endian senders; operations of the manager other than ProbeEntity,
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
