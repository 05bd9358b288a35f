//! # Synopsis
//! `authnone LOWER` — empty credentials of ONC RPC: the caller has no name
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! A call gets an empty credential and an empty verifier in front, an accepted reply an empty
//! verifier. The bodies of arriving ones are skipped. `sunprog` directly on `sunselect`, without
//! this layer, sends the same octets; the layer is for servers that also stand on other layers of
//! authentication.
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

use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, Service};
use xk_core::message::NoBuffers;
use xk_core::{Entry, Kernel, Message, ProtocolRef, Reason};
use xk_kit::rpc::auth::{
    self, Asker, Flavor, QUESTIONS, SHORTHAND_OCTETS, pop_credential, pop_verifier,
};
use xk_kit::rpc::call::Caller;
use xk_kit::rpc::onc::{AUTH_HEAD_OCTETS, AUTH_NONE, EMPTY_AUTH, SESSIONS_MAX};

/// Octets of credential and verifier.
const HEADER_OCTETS: usize = 2 * AUTH_HEAD_OCTETS;
/// Both, as they are sent (RFC 5531, section 10.1).
const EMPTY: [u8; HEADER_OCTETS] = [0; HEADER_OCTETS];

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("authnone", include_str!("authnone.rs"), build)
    .summary("empty credentials of ONC RPC: the caller has no name")
    .above(Family::Other("credentials"))
    .on(&[Realm::Rpc], &[Family::Inherit])
    .needs(Guarantees::SESSIONS.and(Guarantees::NAMES))
    .service(Service::adding(Guarantees::CREDENTIALS))
    .header_octets(HEADER_OCTETS)
    // The flavor of the credentials.
    .numbers(&[("sunselect", AUTH_NONE)])
    .parameters(&[SESSIONS_MAX])
    .questions(QUESTIONS);

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.int(SESSIONS_MAX.name)?;
    build.add(auth::layered(build.cx.secret(), build.lower(0)?, Nobody, sessions_max))
}

/// AUTH_NONE.
struct Nobody;

impl Flavor for Nobody {
    fn header_octets(&self) -> usize {
        HEADER_OCTETS
    }

    fn seal(&self, request: &mut Message) -> Result<(), NoBuffers> {
        request.push_array(&EMPTY)
    }

    fn judge(
        &self,
        _: &Kernel,
        _: Asker,
        request: &mut Message,
    ) -> Result<Option<Caller>, &'static Reason> {
        if request.peek_in_place::<HEADER_OCTETS>() == Some(&EMPTY)
            && request.strip_in_place(HEADER_OCTETS)
        {
            return Ok(None);
        }
        // A body that should not be there says nothing, and does no harm.
        pop_credential(request, |_, _| ())?;
        pop_verifier(request)?;
        Ok(None)
    }

    fn verify(
        &self,
        reply: &mut Message,
        _: Option<Caller>,
        _: impl FnOnce(Caller) -> Option<[u8; SHORTHAND_OCTETS]>,
    ) -> Result<(), NoBuffers> {
        reply.push_array(&EMPTY_AUTH)
    }
}
