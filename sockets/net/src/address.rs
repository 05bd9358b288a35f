//! Addresses that programs give.

use rustix::io::Errno;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};

/// Any host, any port.
pub(crate) const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// An address of version 4.
///
/// # Errors
/// `EAFNOSUPPORT` for any other.
pub(crate) fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(address) => match address.ip().to_ipv4_mapped() {
            Some(host) => Ok(SocketAddrV4::new(host, address.port())),
            None => Err(Errno::AFNOSUPPORT.into()),
        },
    }
}

/// Tries each address in turn, until one does; otherwise the last error counts.
pub(crate) fn each<T>(
    addresses: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddrV4) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match v4(address).and_then(&mut attempt) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| crate::error::invalid("could not resolve to any addresses")))
}
