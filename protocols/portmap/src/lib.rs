//! # Synopsis
//! `portmap LOWER` — the port mapper (version 2) and rpcbind (versions 3 and 4) of ONC RPC: tells
//! others at which ports programs are, and finds those of others.
//!
//! # Participants
//! Those of the layer below, passed through:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`. With `port0` or `*` in place of the
//! port, the peer's port mapper is asked for it.
//!
//! # Behaviour
//! - Server: with `serve` it is the program 100000 at port 111. Its table lists the programs that
//!   are enabled above, with version and port, and those of the blocks `map`, for other processes
//!   on the same host. Processes on this host may add and delete further mappings by calls (`SET`,
//!   `UNSET`) from a reserved port, below 1024, as with rpcbind; such calls from elsewhere are
//!   refused as `weak credentials`, whatever user the credential names. No call deletes a mapping
//!   of the graph; one of a user (AUTH_SYS) can be deleted only by that user and by user 0.
//! - If a program is not there in the version asked for, the port of another version is returned,
//!   so that the caller can learn which versions there are. `GETVERSADDR` asks for exactly one
//!   version.
//! - With `indirect`, `CALLIT`, `BCAST` and `INDIRECT` call programs above this layer, but never
//!   the mount protocol or the port mapper itself. They amplify forged requests, so they are off by
//!   default. The first two give no reply on any failure.
//! - Transports are `udp` and `tcp`; a mapping on another is refused.
//! - Client: a session with a definite port is the lower layer's own, and costs nothing. A session
//!   without one asks for the port at its first call, with the protocol `version`, and again after
//!   a call that no host answered or whose program was not there.
//! - A call to a broadcast or a group with `port0` goes through all port mappers there (`CALLIT`,
//!   `BCAST`); a host without the program gives no reply. Each reply has the host and port of the
//!   program as the attribute `peer`, for calls to that host alone. The manual of `reqrep` says how
//!   to get the replies of all hosts.
//! - With `register`, programs enabled above are also registered with that host's port mapper. An
//!   old mapping is deleted first, since a server that crashed may have left it. If the port mapper
//!   does not answer, it is asked again after 1 s, then after twice the time, up to 60 s; a refusal
//!   is final. rpcbind accepts registrations from other hosts only with its option `-i`. When a
//!   program is disabled, its mapping is deleted. A graph that ends leaves its mappings in place.
//!
//! The skeleton of layers of calls (`xk_kit`) does not fit: calls get no header. Opens and enables
//! with a port go to the layer below on behalf of the protocol above, which then has that layer's
//! own sessions; the only sessions of `portmap` are those that ask for a port first.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.2/24"; }
//!     udp        ip
//!     reqrep     udp
//!     sunselect  reqrep
//!     sunprog    sunselect
//!     portmap    sunprog
//!     procedures portmap at="version1@program536870913@port2049"
//! }
//! ```
//!
//! # Standard
//! RFC 1833; RFC 5665, section 5.2.3.3, for universal addresses.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod client;
mod everyone;
mod indirect;
mod protocol;
mod registrar;
mod serve;
mod session;
mod stats;
pub mod table;
pub mod universal;
pub mod wire;

pub use protocol::{Mappings, Portmap, Settings, add, build};

use xk_core::graph::{
    Family, Guarantees, ParamKind, Realm, Shape, block, own_question, question, required, word,
};
use xk_core::reason::Class;
use xk_core::{Entry, Reason};

/// A request to establish or delete a mapping that does not come from this host.
pub use xk_kit::rpc::onc::TOO_WEAK as NOT_FROM_HERE;

/// A call on behalf of others that failed, and of which no host is told (RFC 1833, sections 2.2.1
/// and 3.2).
pub static SILENT: Reason = Reason::new("indirect call failed", Class::NotMine);

/// Form of the parameter `register`.
pub(crate) const REGISTER_EXPECTED: &str = "a host, such as 10.0.0.1, or port1111@10.0.0.1";

const NUMBER: ParamKind = ParamKind::integer(0..=4_294_967_295);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("portmap", include_str!("lib.rs"), build)
    .summary("the port mapper and rpcbind of ONC RPC: tells and finds the ports of programs")
    .above(Family::Other("programs"))
    .on(&[Realm::Rpc], &[Family::Other("programs")])
    .needs(Guarantees::SESSIONS)
    .shape(Shape::Virtual)
    .parameters(Settings::PARAMETERS)
    .blocks(&[
        block("map", 0..=64,
            &[],
            &[
                required("program", NUMBER, "the program"),
                required("version", NUMBER, "its version"),
                word("transport", &["udp", "tcp"], "udp", "the transport that it is on"),
                required("port", ParamKind::integer(1..=65_535), "its port"),
            ],
            "a mapping that is there from the beginning"),
    ])
    .questions(&[
        own_question::<Mappings>("its mappings, and how registering with another went"),
        question("my-procedure", "of a session that finds its port, the procedure"),
        question("my-program", "of the same, the program and its version"),
        question("cancel-call", "of the same, passed on to the session that is waited for"),
    ])
    .reasons(&[&SILENT]);
