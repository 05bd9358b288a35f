//! # Synopsis
//! `replica GROUP CALLS [{ member "..."; ... }]` — a key-value store on several hosts, which its
//! clients see as one.
//!
//! # Participants
//! `GROUP`, a conversation in total order, has the participants of `order`: with each other
//! `member` the replica opens it, `start` after the beginning; with `waits=#true` it waits until
//! another one does, and refuses a conversation of other hosts. Without any `member` it takes the
//! first that is opened. All enable `local` (default `*`). `CALLS`, a layer of calls, is enabled
//! for `at`.
//!
//! # Behaviour
//! Each member of the conversation has all keys and values. A client calls any of them. The member
//! sends the request to all, itself included; each executes it in its place in the order of the
//! conversation, and the member that was called replies. So operations are *linearizable*: each
//! takes effect at one moment between call and reply. This holds if the order is safe (`order` with
//! `safe=#true`): otherwise a member could reply and fail before another one has the request. Gets
//! go through the order, too. With `local_reads=#true` the called member answers alone, and values
//! may be old.
//!
//! A request has, in network order: number of the client (eight octets, random), number of the
//! request (four, from 1), operation (one), whether a value is expected (one), octets of the key
//! (two), octets of the expected value (two), then key, expected value, and value. Operations are 0
//! get, 1 put, 2 swap (put if the key has the expected value, or if it has none and none is
//! expected), 3 delete. A key has 1 to 256 octets, a value at most 4,096. A reply is a status of
//! one octet, followed by the value that was found:
//!
//! | status | meaning |
//! | --- | --- |
//! | 0 | executed |
//! | 1 | found; the value follows |
//! | 2 | the key has no value |
//! | 3 | the value is not the expected one |
//! | 4 | full: 4,096 keys, or 8 MiB of keys and values |
//! | 5 | a later request of the client has been executed |
//! | 6 | the client is not known |
//! | 7 | no quorum: not executed by this call |
//! | 8 | no answer within `patience`: it may yet be executed |
//!
//! A client without a reply asks another member, with the same number of the request: an operation
//! other than a get that was executed is not executed again, but its status is returned. So the
//! status of the last operation of 1,024 clients is part of the state. A client that is not among
//! them begins with a get, which may be executed twice; a forgotten client begins again, under
//! another number.
//!
//! Without `membership` below `order` a member that fails stops all others. With it, they go on as
//! long as they are more than half of all. A member that was restarted, or counted as failed, comes
//! back: at its place in the order of all requests it fetches the state from another member, and
//! executes the requests behind. A member replies "no quorum" if it cannot send to the
//! conversation: it has none yet, is cut off, or is out. Nothing is executed before all members of
//! the list have been in the conversation; so a restarted member cannot begin another one without
//! them. While `concurrency` requests wait, the next one is refused with "server busy". An invalid
//! request is refused with "garbage arguments".
//!
//! Its `report` has `executed` requests, `keys`, `clients`, `waiting` requests, and `state`, a
//! digest that is equal at members that have executed the same requests.
//!
//! # Security
//! A replica takes part in the first conversation of its members, or without a list in the first
//! for its process, and does not leave it once all its members have been heard. So a stranger that
//! can open one before the replicas do keeps those without a list apart. A client may read and
//! write all keys; with 1,024 new numbers it has the others forgotten, which are told so.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.1/24"; }
//!     psync      ip
//!     membership psync
//!     order      membership safe=#true
//!     mrpc       ip
//!     replica    order mrpc {
//!         member "process7@10.0.0.2"
//!         member "process7@10.0.0.3"
//!     }
//! }
//! ```
//!
//! # Standard
//! None. Schneider, "Implementing Fault-Tolerant Services Using the State Machine Approach" (1990);
//! Herlihy and Wing, "Linearizability" (1990).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod client;
mod protocol;
pub mod store;
pub mod wire;

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, block, required};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("replica", include_str!("lib.rs"), protocol::build)
    .summary("a store of keys that several hosts hold, and whose clients see only one")
    .on(&[Realm::Async, Realm::Rpc], &[Family::Any])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .needs_each(&[Guarantees::TOTAL.and(Guarantees::MANY), Guarantees::NONE])
    .parameters(protocol::Settings::PARAMETERS)
    .blocks(&[block("member", 0..=63,
        &[required("at", ParamKind::Participant(protocol::PEER), "its participant")],
        &[], "another member of the conversation")])
    .questions(&[question("report", "requests executed, keys, clients, a digest of the state")]);

/// The catalog entry of the client.
#[rustfmt::skip]
pub static CLIENT_ENTRY: Entry = Entry::top("replica-client", include_str!("client.rs"), client::build)
    .summary("clients of replicas, which check that they see one store")
    .on(&[Realm::Rpc], &[Family::Any])
    .needs(Guarantees::OPEN)
    .parameters(client::Settings::PARAMETERS)
    .blocks(&[block("server", 1..=64,
        &[required("at", ParamKind::Participant("procedure1@10.0.0.2"), "its participant")],
        &[], "a replica")])
    .questions(&[
        question("try-open", "whether a server can be opened"),
        question("report", "operations, tries, and whether the history is linearizable"),
    ]);
