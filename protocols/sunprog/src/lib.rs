//! # Synopsis
//! `sunprog LOWER` — the table of programs of ONC RPC: the servers of each program, and how a call
//! went.
//!
//! # Participants
//! Procedure, version and program on top of what the layer below needs:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`.
//!
//! - `open`: passed through.
//! - `open_enable`: a definite program; procedure and version may be `*` or left out, for all of
//!   them: `version1@program5@port2049`. An enable for a procedure is preferred to one for a
//!   version, and that to one for all versions.
//!
//! # Behaviour
//! The layers below are layers of authentication, or `sunselect` itself for empty credentials
//! (AUTH_NONE). `sunprog` calls through the first of them and serves on all.
//!
//! A call goes down unchanged. An accepted reply has four octets in front with its status. The
//! client gets the results, or an error with the reason; if only the version is wrong, the error
//! lists the versions that there are.
//!
//! A request goes to the server of its program, version and procedure. `sunprog` itself answers
//! procedure 0 of every version, with an empty reply. A request without a server gets a reply that
//! says what is missing: the program, the version (with the lowest and the highest one there), or
//! the procedure. A refusal from above becomes `garbage arguments`, `no such procedure`, an error
//! of the credentials, or else `system error`; one of the class "not mine" gets no reply. If the
//! layers below cannot carry a result (`largest-reply`), it is dropped as `too big`, and the client
//! is told `system error`. A broadcast gets no such error replies.
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
