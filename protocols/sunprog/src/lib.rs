//! # Synopsis
//! `sunprog LOWER` — the table of programs of ONC RPC: the servers of each program, and how a call
//! went.
//!
//! # Participants
//! Procedure, version and program on top of what the layer below needs:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`.
//!
//! - `open`: passed through.
//! - `open_enable`: the program definite, procedure and version `*` or left out for all of them:
//!   `version1@program5@port2049`. One that offers just a procedure is before one that offers a
//!   version, and that before one that offers all versions.
//!
//! # Above
//! Servers and clients of any programs. It needs no type numbers.
//!
//! # Below
//! One to four protocols: `sunselect` right below for empty credentials (AUTH_NONE), or layers of
//! authentication. It calls through the first and serves on all.
//!
//! # Behaviour
//! A call goes down as it is. An accepted reply has four octets in front, which say how it went; a
//! client gets the results, or an error with the reason and, where only the version is wrong, those
//! that there are.
//!
//! A request is for the server of its program, version and procedure. Procedure 0 of every version
//! is answered here, with nothing. What has no server gets a reply that says what is missing: the
//! program, the version (with the lowest and the highest that there are), the procedure. Refusals
//! from above become `garbage arguments`, `no such procedure`, what is wrong with the credentials
//! or, all others, `system error`; those of the class "not mine" remain without a reply. A result
//! that the layers below do not carry (`largest-reply`) is dropped as `too big`, and the
//! client is told `system error`. A broadcast gets no such reply.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim       link=lan
//!     eth       sim
//!     arp       eth
//!     ip        arp { address "10.0.0.2/24"; }
//!     udp       ip
//!     reqrep    udp
//!     sunselect reqrep
//!     sunprog   sunselect
//! }
//! ```
//!
//! # Standard
//! RFC 5531, sections 8 and 9 (`accept_stat`).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
mod table;
pub mod wire;

pub use protocol::{Settings, SunProg, add, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("sunprog", include_str!("lib.rs"), build)
    .summary("the table of programs of ONC RPC: who serves which, and how a call went")
    .above(Family::Other("programs"))
    .on(&[Realm::Rpc], &[Family::Other("credentials")])
    .lowers(1..=4)
    .needs(Guarantees::SESSIONS)
    // In replies; a call has none.
    .header_octets(wire::STAT_OCTETS)
    // In place of a layer for it: the flavor AUTH_NONE.
    .numbers(&[("sunselect", xk_kit::rpc::onc::AUTH_NONE)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("my-procedure", "the number of the procedure that a session serves"),
        question("my-program", "the numbers of its program and version"),
    ]);
