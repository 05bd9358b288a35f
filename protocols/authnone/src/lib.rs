//! # Synopsis
//! `authnone LOWER` — empty credentials of ONC RPC: the caller has no name
//!
//! # Participants
//! Those of the layer below, passed through:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`.
//!
//! # Above
//! `sunprog`, or any other protocol of the rpc realm that takes programs; one that serves, any
//! number that call.
//!
//! # Below
//! `sunselect`.
//!
//! # Behaviour
//! A call gets an empty credential and an empty verifier in front, an accepted reply an empty
//! verifier. Of what comes the bodies are skipped. To leave the layer out, with `sunprog` right on
//! `sunselect`, gives the same octets; it is for servers that stand on other layers of
//! authentication besides.
//!
//! A body longer than 400 octets is refused as `bad credentials` or `bad verifier`.
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
//!     authnone  sunselect
//!     authsys   sunselect
//!     sunprog   authnone authsys
//! }
//! ```
//!
//! # Standard
//! RFC 5531, section 10.1.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
mod session;
pub mod wire;

pub use protocol::{add, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service};
use xk_kit::rpc::auth::QUESTIONS;
use xk_kit::rpc::onc::SESSIONS_MAX;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("authnone", include_str!("lib.rs"), build)
    .summary("empty credentials of ONC RPC: the caller has no name")
    .above(Family::Other("credentials"))
    .on(&[Realm::Rpc], &[Family::Inherit])
    .needs(Guarantees::SESSIONS.and(Guarantees::NAMES))
    .service(Service::adding(Guarantees::CREDENTIALS))
    .header_octets(wire::HEADER_OCTETS)
    // The flavor of the credentials.
    .numbers(&[("sunselect", xk_kit::rpc::onc::AUTH_NONE)])
    .parameters(&[SESSIONS_MAX])
    .questions(QUESTIONS);
