//! The socket: bound, joined to the group, read and written.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, bind, recv,
    sendmsg_addr, socket_with, sockopt,
};
use xk_appletalk::llap::{LTOUDP_GROUP, LTOUDP_PORT};

/// Group to which frames go.
const GROUP: Ipv4Addr =
    Ipv4Addr::new(LTOUDP_GROUP[0], LTOUDP_GROUP[1], LTOUDP_GROUP[2], LTOUDP_GROUP[3]);

/// A member of the group.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Joins the group at the interface with this address, or where the system's routes say.
    ///
    /// # Errors
    /// What the system says.
    pub fn join(interface: Option<Ipv4Addr>) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        // Programs of one host share the cable.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(GROUP, LTOUDP_PORT))?;
        let at = interface.unwrap_or(Ipv4Addr::UNSPECIFIED);
        sockopt::set_ip_add_membership(&socket, &GROUP, &at)?;
        sockopt::set_ip_multicast_ttl(&socket, 1)?;
        sockopt::set_ip_multicast_loop(&socket, true)?;
        if let Some(at) = interface {
            sockopt::set_ip_multicast_if(&socket, &at)?;
        }
        Ok(Self(socket))
    }

    /// Takes the next datagram: how many octets it has, which may be more than there is room for;
    /// `None` when there is none now.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, room, RecvFlags::TRUNC) {
            Ok((_, octets)) => Ok(Some(octets)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a datagram of these parts; false if there is no room for it now.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<bool> {
        let to = SocketAddrV4::new(GROUP, LTOUDP_PORT);
        let mut none = SendAncillaryBuffer::default();
        match sendmsg_addr(&self.0, &to, parts, &mut none, SendFlags::empty()) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The descriptor, to wait for readiness on.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }
}
