//! # Synopsis
//! `authsys LOWER` — credentials of Unix users for ONC RPC, without proof: the caller names its
//! user
//!
//! # Participants
//! Those of the layer below, passed through:
//! `procedure3@version1@program536870913@port2049@10.0.0.2`.
//!
//! # Behaviour
//! One protocol above serves, any number call.
//!
//! A call gets a credential in front, with `machine`, `user`, `group` and `groups`, made once, and
//! an empty verifier. A server reads the credential, and passes the request up with the attribute
//! `caller`: the user and the first group. It cannot verify them, because the credential has no
//! proof.
//!
//! With `accept` the server accepts only these users; others are refused as `credentials too weak`,
//! except for procedure 0, which every user with a readable credential may call. A credential that
//! cannot be read is refused as `bad credentials`: names longer than 255 octets, more than 16
//! groups, missing or surplus octets, or a body longer than 400 octets.
//!
//! An accepted reply has an empty verifier, or a shorthand if the protocol above is `authshort`.
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
//!     authsys   sunselect machine="xk" user=1000 group=100 accept="0 1000-1999"
//!     sunprog   authsys
//! }
//! ```
//!
//! # Standard
//! RFC 5531, section 8.2 and appendix A.

mod accept;
mod protocol;
mod session;
pub mod wire;

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, Service, int, optional, text};
use xk_kit::rpc::auth::QUESTIONS;
use xk_kit::rpc::onc::{AUTH_SYS, SESSIONS_MAX};

const MACHINE: &str = "a name of at most 255 octets";
const GROUPS: &str = "at most 16 numbers with spaces between";
const USERS: &str = "numbers and ranges with spaces between, such as 0 1000-1999";

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("authsys", include_str!("authsys.rs"), protocol::build)
    .summary("credentials of Unix users for ONC RPC: the caller's own word for its name")
    .above(Family::Other("credentials"))
    .on(&[Realm::Rpc], &[Family::Inherit])
    .needs(Guarantees::SESSIONS.and(Guarantees::NAMES))
    .service(Service::adding(Guarantees::CREDENTIALS))
    .header_octets(wire::HEADER_OCTETS)
    // The flavor of the credentials.
    .numbers(&[("sunselect", AUTH_SYS)])
    .parameters(&[
        int("user", 0..=4_294_967_295, 65_534, "the number of the caller"),
        int("group", 0..=4_294_967_295, 65_534, "the number of the caller's first group"),
        SESSIONS_MAX,
        text("machine", MACHINE, "xk", "the name of the caller's machine"),
        optional("groups", ParamKind::Text(GROUPS), "the numbers of the caller's other groups"),
        optional("accept", ParamKind::Text(USERS),
            "the users whom a server takes; all if not given"),
    ])
    .questions(QUESTIONS);
