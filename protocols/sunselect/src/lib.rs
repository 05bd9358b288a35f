//! # Synopsis
//! `sunselect LOWER` — SUN.SELECT: names program, version and procedure of a call and finds the
//! layer of authentication.
//!
//! # Participants
//! Procedure, version and program on top of what the layer below needs:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`.
//!
//! - `open`: all three parts of the peer definite; in the local participant they are optional.
//! - `open_enable`: all three may be left out or be `*`: `port2049` is enough, because `sunprog`
//!   knows the programs.
//!
//! # Behaviour
//! The type number of a layer of authentication above is the flavor of its credentials (RFC 5531,
//! section 8.2): `authnone` 0, `authsys` 1, `authshort` 2; in place of all of them `sunprog` stands
//! there, 0 as well. Other implementations stand on `reqrep`; `channel` is for at most once, then
//! without the number and type of `reqrep`.
//!
//! A call gets sixteen octets in front: the version of ONC RPC (2), program, version, procedure.
//! Credential and verifier follow; a layer of authentication above writes them, and without such a
//! layer `sunselect` writes and removes two empty ones. All procedures of one peer share a session
//! below. If that carries one call at a time, further sessions are opened for calls at the same
//! time, `lines_max` at most; more calls wait.
//!
//! A request of another version of ONC RPC is denied, with the supported version. The flavor of its
//! credential selects the layer above; if no layer has that flavor, the request is denied as
//! `credentials too weak`. If the layer of authentication refuses it, it is denied with that
//! layer's reason. An accepted reply gets four octets in front. A request too short for its header
//! gets no reply, and neither does a broadcast that would be denied.
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
//! RFC 5531, sections 8 and 9; the part of it that "RPC in the x-Kernel", section 5, calls
//! SUN.SELECT.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
pub mod wire;

pub use protocol::{Settings, SunSelect, add, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("sunselect", include_str!("lib.rs"), build)
    .summary("SUN.SELECT: names program, version and procedure of a call")
    .above(Family::Other("credentials"))
    .on(&[Realm::Rpc], &[
        Family::Port, Family::Host, Family::Ether, Family::Link, Family::Other("entities"),
    ])
    .needs(Guarantees::SESSIONS)
    .service(Service::adding(Guarantees::NAMES))
    .header_octets(wire::CALL_OCTETS)
    // Not assigned: beside that of `select`.
    .numbers(&[("channel", 0x67)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("my-procedure", "the number of the procedure that a session calls or serves"),
        question("my-program", "the numbers of its program and version"),
        question("cancel-call", "ends the waiting for a reply, or for a session below"),
    ]);
