//! # Synopsis
//! `authshort SUNSELECT AUTHSYS` — shorthands for credentials of ONC RPC
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! Of the two below, it takes requests with shorthands from `sunselect`. By `authsys` on the same
//! `sunselect` it calls with whole credentials, and takes requests with them.
//!
//! A client's first call goes through `authsys`. If the reply's verifier holds a shorthand, the
//! next calls have that for their credential, 24 octets in place of up to 400; one that is longer
//! than the credential itself is not used. If the server denies it, for whatever reason (it has
//! started again, perhaps without this layer, or the shorthand is too old), the call is made again
//! through `authsys`, at once, and the caller hears nothing of it.
//!
//! A server gives a shorthand with every reply to a whole credential whose user `authsys` accepts.
//! It keeps none: the shorthand holds user, group and the time when it was given, with a hash under
//! a secret of this boot over them and the client's host. What does not fit, or is older than
//! `lifetime`, is refused as `credentials no longer valid`. A request with a whole credential
//! passes as `authsys` took it.
//!
//! A shorthand that comes back proves that its sender gets what is sent to that host: `reqrep`
//! holds no long reply to such a request back.
//!
//! In a verifier the shorthand lies as a whole credential, which is what Sun's clients and those of
//! libtirpc, BSD and Solaris want; the server takes what they send back, and what clients send back
//! that take the verifier's octets as they are. The client understands both forms of servers.
//!
//! So `authshort` stands on `authsys` as well as beside it, and a graph that leaves both out, or
//! the upper one, loses nothing else.
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
//!     authsys   sunselect
//!     authshort sunselect authsys
//!     sunprog   authshort
//! }
//! ```
//!
//! # Standard
//! RFC 5531, section 8.2 and appendix A.

mod protocol;
mod wire;

use core::time::Duration;
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, duration};
use xk_kit::rpc::auth::QUESTIONS;
use xk_kit::rpc::onc::{AUTH_SHORT, SESSIONS_MAX};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("authshort", include_str!("authshort.rs"), protocol::build)
    .summary("shorthands for credentials of ONC RPC")
    .above(Family::Other("credentials"))
    .on(&[Realm::Rpc], &[Family::Inherit])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .needs_each(&[Guarantees::NAMES, Guarantees::CREDENTIALS])
    .service(Service::adding(Guarantees::CREDENTIALS))
    .header_octets(wire::HEADER_OCTETS)
    // The flavor of the credentials.
    .numbers(&[("sunselect", AUTH_SHORT)])
    .parameters(&[
        duration("lifetime", Duration::from_secs(3600), "how long a shorthand is good"),
        SESSIONS_MAX,
    ])
    .questions(QUESTIONS);
