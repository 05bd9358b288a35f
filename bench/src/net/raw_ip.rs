//! Raw IP sockets of Linux: IP with no transport above it.

use super::child::failed;
use super::endpoint::Endpoint;
use super::exchange::{self, Line, OCTETS_MAX, WAIT};
use super::space::LINUX;
use super::stack::IP_PROTOCOL;
use crate::case::Trouble;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketAddrV4, SocketFlags,
    SocketType, recvfrom, sendto, socket_with,
};
use serde_json::Value;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

/// Octets of the header that Linux shows in front of what comes: one without options (raw(7)).
const HEADER_OCTETS: usize = 20;

struct RawIp {
    socket: OwnedFd,
    peer: SocketAddrV4,
    flags: RecvFlags,
    buffer: Vec<u8>,
}

impl RawIp {
    fn open(end: &Endpoint) -> io::Result<Self> {
        let protocol = RawProtocol::new(u32::from(IP_PROTOCOL))
            .ok_or_else(|| io::Error::other("no protocol"))?;
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(Protocol::from_raw(protocol)),
        )?;
        set_socket_timeout(&socket, Timeout::Recv, Some(WAIT))?;
        let peer: Ipv4Addr = LINUX[1 - end.side].parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
        Ok(Self {
            socket,
            peer: SocketAddrV4::new(peer, 0),
            flags: match end.spins {
                true => RecvFlags::DONTWAIT,
                false => RecvFlags::empty(),
            },
            buffer: vec![0; OCTETS_MAX],
        })
    }
}

impl Line for RawIp {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match sendto(&self.socket, message, SendFlags::empty(), &self.peer) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        match recvfrom(&self.socket, &mut self.buffer[..], self.flags) {
            Ok((octets, ..)) => each(&self.buffer[HEADER_OCTETS..octets.max(HEADER_OCTETS)]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        Ok(1)
    }
}

pub(super) fn run(end: &Endpoint) -> Result<Value, Trouble> {
    let socket = RawIp::open(end).map_err(failed("cannot open a raw socket"))?;
    exchange::run(end, socket)
}
