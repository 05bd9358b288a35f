//! # Synopsis
//! `sunselect LOWER` — SUN.SELECT: names program, version and procedure of a call and finds the
//! layer of authentication.
//!
//! # Participants
//! Procedure, version and program on top of what the layer below needs:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`.
//!
//! - `open`: the peer's all definite; the local participant may have them and may leave them out.
//! - `open_enable`: they may be left out or be `*`: `port2049` will do. Which programs there are is
//!   a matter of `sunprog`.
//!
//! # Above
//! Layers of authentication and, in place of all of them, `sunprog`. The type number of each is the
//! flavor of its credentials (RFC 5531, section 8.2): `authnone` 0, `authsys` 1, `authshort` 2,
//! `sunprog` 0 as well.
//!
//! # Below
//! `reqrep` (what the rest of the world speaks) or `channel` (at most once, without number and type
//! in front).
//!
//! # Behaviour
//! A call gets sixteen octets in front: the version of ONC RPC (2), program, version, procedure.
//! Credential and verifier follow, which the layer above writes; for one that does not, two empty
//! ones are written here and taken off. All procedures of one peer share a session below; where
//! that has but one call under way, as many are opened as calls at once, `lines_max` at most, and
//! more calls wait.
//!
//! A request of another version of ONC RPC is denied with the version there is. The flavor of its
//! credential then names the layer above; a flavor that no layer takes is denied as
//! `credentials too weak`. What the layer of authentication refuses for one of its reasons is
//! denied with that; an accepted reply gets four octets in front. A request too short for its
//! header gets no reply, and neither does a broadcast that would be denied.
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
    .on(&[Realm::Rpc], &[Family::Port, Family::Host, Family::Ether, Family::Link])
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
