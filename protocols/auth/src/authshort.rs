//! # Synopsis
//! `authshort SUNSELECT AUTHSYS` — shorthands for credentials of ONC RPC
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! It receives requests with shorthands from `sunselect`. Through `authsys` on the same `sunselect`
//! it sends and receives requests with full credentials.
//!
//! A client's first call goes through `authsys`. If the reply's verifier has a shorthand, the next
//! calls use it as their credential, 24 octets in place of up to 400; a shorthand longer than the
//! credential is not used. If the server denies it for any reason (it has restarted, perhaps
//! without this layer, or the shorthand is too old), the call is repeated at once through
//! `authsys`, without notice to the caller.
//!
//! A server sends a shorthand with every reply to a full credential whose user `authsys` accepts.
//! It stores none: the shorthand has user, group and the time of issue, and a hash of these and the
//! client's host under a secret of this boot. An invalid shorthand, or one older than `lifetime`,
//! is refused as `credentials no longer valid`. A request with a full credential passes unchanged
//! after `authsys`.
//!
//! A returned shorthand proves that its sender receives packets to that host: `reqrep` does not
//! limit replies to such a request.
//!
//! In a verifier the shorthand is encoded as a full credential, as clients of Sun, libtirpc, BSD
//! and Solaris expect. The server accepts the form that they return, and that of clients that
//! return the verifier's octets unchanged. The client accepts both forms from servers.
//!
//! So `authshort` stands both on `authsys` and beside it, and a graph may leave out both, or only
//! `authshort`.
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
