//! Hosts at both ends of a layer of calls that stands on anything: a network layer, a link, or one
//! that knows no hosts. The layer has a parameter `address` for where nothing below says its own.

use super::call::{self, PROCEDURE};
use crate::control::{ClaimHost, MyHost, PeerHost};
use alloc::vec::Vec;
use xk_core::graph::{BuildError, Params};
use xk_core::map::Key;
use xk_core::object::{OpenError, SessionTable};
use xk_core::participant::{AddressError, pieces};
use xk_core::reason::{self, Reason};
use xk_core::{
    HostAddr, Kernel, Part, Participant, Participants, ProtocolRef, Session, SessionRef, Upper,
};

/// Own host and the peer's; unspecified where there are none.
pub type Hosts = (HostAddr, HostAddr);

/// The parameter `address`: our host, if it is given.
///
/// # Errors
/// [`BuildError::Param`] if it is no host.
pub fn address(params: &Params) -> Result<Option<HostAddr>, BuildError> {
    let expected = "a host, such as 10.0.0.1";
    match params.parse("address", expected)? {
        Some(HostAddr::UNSPECIFIED) => Err(BuildError::param("address", expected)),
        address => Ok(address),
    }
}

/// Form of a parameter that lists hosts.
pub const HOSTS: &str = "hosts with commas between, such as 10.0.0.2, 10.0.0.3";

/// The hosts of this parameter, which has the form [`HOSTS`]; none if it is not given.
///
/// # Errors
/// [`BuildError::Param`] if one is no host.
pub fn listed(params: &Params, name: &'static str) -> Result<Vec<HostAddr>, BuildError> {
    let host = |text: &str| text.parse().map_err(|_| BuildError::param(name, HOSTS));
    params.text(name).into_iter().flat_map(pieces).map(host).collect()
}

/// Claims our host, if it is given, and takes all that arrives at the layer below.
///
/// # Errors
/// As for `open_enable` of the layer below.
pub fn start(
    cx: &Kernel,
    this: &ProtocolRef,
    lower: &ProtocolRef,
    address: Option<HostAddr>,
) -> Result<(), OpenError> {
    if let Some(host) = address {
        // Where there is nothing to claim, no layer answers.
        let _ = lower.ask(cx, ClaimHost { host });
    }
    let any = Participants::local(Part::Any);
    lower.open_enable(cx, Upper::new(this), any).map(drop)
}

/// Our host, if it is given, or as the session below knows it.
pub fn own(cx: &Kernel, lower: &SessionRef, address: Option<HostAddr>) -> Option<HostAddr> {
    address.or_else(|| lower.ask(cx, MyHost::default()).map(|q| q.host))
}

/// The hosts of a session below that was opened.
///
/// # Errors
/// [`AddressError::Missing`] if the peer is a host and ours is not known: servers could not tell us
/// from other hosts that do not know theirs. The session is closed then.
pub fn opened(
    cx: &Kernel,
    lower: &SessionRef,
    address: Option<HostAddr>,
) -> Result<Hosts, AddressError> {
    let peer = lower.ask(cx, PeerHost::default()).map(|q| q.host);
    let own = own(cx, lower, address);
    if peer.is_some() && own.is_none() {
        lower.close(cx);
        return Err(AddressError::Missing);
    }
    Ok((own.unwrap_or_default(), peer.unwrap_or_default()))
}

/// The session that a first call to a procedure of `upper` through `lower` makes; `make` gives its
/// body and the hosts.
///
/// # Errors
/// Why there is none: [`call::BUSY`] if the table is full, which is counted, or as for
/// [`SessionTable::accept`].
#[cold]
pub fn accept<K: Key, S: Session + 'static>(
    sessions: &SessionTable<K>,
    cx: &Kernel,
    this: &ProtocolRef,
    upper: &ProtocolRef,
    key: K,
    (lower, procedure): (&SessionRef, u32),
    make: impl FnOnce() -> (S, Hosts),
) -> Result<SessionRef, &'static Reason> {
    let part = |host: HostAddr| match host.is_unspecified() {
        true => Participant::new(),
        false => Participant::of(Part::Host(host)),
    };
    let make = || {
        let (body, (own, peer)) = make();
        let named = part(own).with(Part::Number(PROCEDURE, u64::from(procedure)));
        (body, Participants::pair(named, part(peer)))
    };
    let accepted = sessions.accept(cx, this, upper, key, lower.head().source(), make);
    accepted.map_err(|why| match *why == reason::TABLE_FULL {
        true => {
            this.head().drops().count(why);
            &call::BUSY
        }
        false => why,
    })
}
