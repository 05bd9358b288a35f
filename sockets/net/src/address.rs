//! Addresses that programs give.

use std::io;
use std::net::ToSocketAddrs;
use xk_core::HostAddr;

/// A host and a port; an unspecified host and port zero stand for any.
pub(crate) use xk_kit::net::attribute::Peer as Endpoint;

/// Any host, any port.
pub(crate) const ANY: Endpoint = Endpoint { host: HostAddr::UNSPECIFIED, port: 0 };

/// Tries each address in turn, until one does; otherwise the last error counts.
pub(crate) fn each<T>(
    addresses: impl ToSocketAddrs,
    mut attempt: impl FnMut(Endpoint) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address.into()) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| crate::error::invalid("could not resolve to any addresses")))
}
