//! Datagrams.

use crate::address::{Endpoint, each};
use crate::driver::{Driver, Here, New, Setting};
use crate::handle::{Handle, any_socket, two_way_socket};
use crate::layer::{GroupChange, Received, Sharing, To};
use crate::ready::Ready;
use crate::stack::{Shown, Source, Stack};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use xk_core::HostAddr;
use xk_kit::net::attribute::{Arrived, Sending};

/// A socket for datagrams, like `std::net::UdpSocket`.
///
/// Datagrams that a program does not read in time are dropped once 208 KiB wait, and counted at the
/// node `sockets`.
pub struct UdpSocket<D: Driver = Here>(Arc<Handle<D>>);

any_socket!(UdpSocket);
two_way_socket!(UdpSocket);

impl<D: Driver> UdpSocket<D> {
    /// Binds the first of these addresses that is available; port 0 is any free one.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn bind(stack: &Stack<D>, local: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_shared(stack, local, Sharing::default())
    }

    /// Binds a port that others may have as well. Connected sockets receive from their peers; a
    /// datagram to several hosts goes to all other sockets.
    pub fn bind_shared(
        stack: &Stack<D>,
        local: impl ToSocketAddrs,
        sharing: Sharing,
    ) -> io::Result<Self> {
        each(local, |local| {
            let socket = stack.driver.make(New::Datagrams(local, sharing))?;
            Ok(Self(Handle::new(&stack.driver, socket)))
        })
    }

    /// Receives from one peer only from now on, and sends to it by [`send`](Self::send). The next
    /// call reports errors from that peer's host.
    ///
    /// # Errors
    /// `ENETUNREACH` if there is no way.
    pub fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        let handle = &*self.0;
        each(peer, |peer| Ok(handle.driver.connect_datagrams(&handle.socket, Some(peer))?))
    }

    /// Receives from every peer again.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn disconnect(&self) -> io::Result<()> {
        Ok(self.0.driver.connect_datagrams(&self.0.socket, None)?)
    }

    /// Receives a datagram; octets that do not fit into the buffer are lost.
    ///
    /// # Errors
    /// `WouldBlock` if it is not to wait or the time is over; what the network has reported.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.fetch(&mut [IoSliceMut::new(buffer)], false)?;
        Ok((received.octets, received.from.into()))
    }

    /// Reads the next datagram without removing it.
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.fetch(&mut [IoSliceMut::new(buffer)], true)?;
        Ok((received.octets, received.from.into()))
    }

    /// Receives a datagram of the connected peer, or of any.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.fetch(&mut [IoSliceMut::new(buffer)], false)?.octets)
    }

    /// Reads the next datagram of the connected peer, or of any, without removing it.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.fetch(&mut [IoSliceMut::new(buffer)], true)?.octets)
    }

    /// Receives a datagram into several buffers; returns the octets stored, its length, and its
    /// sender (recvmsg(2)).
    pub fn recv_vectored(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> io::Result<(usize, usize, SocketAddr)> {
        let received = self.fetch(buffers, peek)?;
        Ok((received.octets, received.length, received.from.into()))
    }

    /// Sends a datagram to the first of these addresses.
    ///
    /// # Errors
    /// `EMSGSIZE`, `ENETUNREACH`, `EACCES` for a broadcast that was not allowed; what the network
    /// has reported.
    pub fn send_to(&self, octets: &[u8], peer: impl ToSocketAddrs) -> io::Result<usize> {
        match peer.to_socket_addrs()?.next() {
            Some(peer) => self.send_vectored(&[IoSlice::new(octets)], Some(peer)),
            None => Err(crate::error::invalid("no addresses to send data to")),
        }
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    /// `EDESTADDRREQ` if there is none; as for [`send_to`](Self::send_to).
    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(octets)], None)
    }

    /// Sends a datagram of several pieces, to the connected peer or to another (sendmsg(2)).
    pub fn send_vectored(
        &self,
        octets: &[IoSlice<'_>],
        peer: Option<SocketAddr>,
    ) -> io::Result<usize> {
        self.put(octets, To { peer: peer.map(Endpoint::from), ..To::default() })
    }

    /// Sends a datagram, to the connected peer or to another, with these options of the header.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to); `ENETUNREACH` from a host that is not ours.
    pub fn send_as(
        &self,
        octets: &[u8],
        peer: Option<SocketAddr>,
        sending: Sending,
    ) -> io::Result<usize> {
        self.put(&[IoSlice::new(octets)], To { peer: peer.map(Endpoint::from), sending })
    }

    /// Reports header fields of arriving datagrams from now on ([`recv_told`](Self::recv_told)).
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn tell_arrivals(&self) -> io::Result<()> {
        self.0.set(Setting::TellArrivals)
    }

    /// Receives a datagram, and its header fields if these are reported.
    ///
    /// # Errors
    /// As for [`recv_from`](Self::recv_from).
    pub fn recv_told(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, Option<Arrived>)> {
        let received = self.fetch(&mut [IoSliceMut::new(buffer)], false)?;
        Ok((received.octets, received.from.into(), received.arrived))
    }

    /// Sets whether datagrams may go to broadcast addresses.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.0.set(Setting::Broadcast(on))?;
        self.0.broadcast.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Value of [`set_broadcast`](Self::set_broadcast).
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(self.0.broadcast.load(Ordering::Relaxed))
    }

    /// Sets the octets of datagrams that may wait to be read (`SO_RCVBUF`); each datagram counts
    /// 256 more than its length.
    pub fn set_receive_buffer(&self, octets: u32) -> io::Result<()> {
        self.0.set(Setting::ReceiveBuffer(octets))
    }

    /// Sets the other sockets that it shares its port with from now on; those that have it already
    /// keep it.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_sharing(&self, sharing: Sharing) -> io::Result<()> {
        self.0.set(Setting::Share(sharing))
    }

    /// Receives what is sent to a group from now on, on the interface that has this host, or on the
    /// one by which the group is reached if that is unspecified. A socket that has not joined the
    /// group, and is bound to it or to any host, receives what others of this host have joined it
    /// for; if it shares its address with others that have, what these want.
    ///
    /// # Errors
    /// `EADDRINUSE` if it has joined it; `EINVAL` for what is no group; `ENODEV` if no interface
    /// has this host; `ENOBUFS` if as many groups are joined as may be.
    pub fn join_multicast_v4(
        &self,
        group: impl Into<HostAddr>,
        interface: impl Into<HostAddr>,
    ) -> io::Result<()> {
        self.change_group_v4(group, interface, GroupChange::Join)
    }

    /// Leaves a group, joined with the same interface. A socket that is closed leaves all.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if it has not joined it.
    pub fn leave_multicast_v4(
        &self,
        group: impl Into<HostAddr>,
        interface: impl Into<HostAddr>,
    ) -> io::Result<()> {
        self.change_group_v4(group, interface, GroupChange::Leave)
    }

    /// Receives what this source sends to a group.
    ///
    /// # Errors
    /// As for [`change_group_v4`](Self::change_group_v4).
    pub fn join_ssm_v4(
        &self,
        source: impl Into<HostAddr>,
        group: impl Into<HostAddr>,
        interface: impl Into<HostAddr>,
    ) -> io::Result<()> {
        self.change_group_v4(group, interface, GroupChange::JoinSource(source.into()))
    }

    /// Receives from this source no more.
    ///
    /// # Errors
    /// As for [`change_group_v4`](Self::change_group_v4).
    pub fn leave_ssm_v4(
        &self,
        source: impl Into<HostAddr>,
        group: impl Into<HostAddr>,
        interface: impl Into<HostAddr>,
    ) -> io::Result<()> {
        self.change_group_v4(group, interface, GroupChange::LeaveSource(source.into()))
    }

    /// Changes the membership in a group (RFC 3376, section 3.1).
    ///
    /// # Errors
    /// As for [`join_multicast_v4`](Self::join_multicast_v4); also `EADDRNOTAVAIL` for a source
    /// that is listed already, or is not; `EINVAL` if the group was joined in the other way, or not
    /// at all; `ENOBUFS` if 64 sources are listed.
    pub fn change_group_v4(
        &self,
        group: impl Into<HostAddr>,
        interface: impl Into<HostAddr>,
        change: GroupChange,
    ) -> io::Result<()> {
        self.0.set(Setting::Group(group.into(), interface.into(), change))
    }

    /// Sets the hops that datagrams to groups may go; 1 at first, which is this link. With 0 they
    /// reach members on this host alone.
    ///
    /// # Errors
    /// `EINVAL` above 255.
    pub fn set_multicast_ttl_v4(&self, hops: u32) -> io::Result<()> {
        let hops = u8::try_from(hops).map_err(|_| Errno::INVAL)?;
        self.0.set(Setting::GroupHops(hops))
    }

    /// Sets whether datagrams to groups that this host has joined come back to it, as at first.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.0.set(Setting::GroupLoop(on))
    }

    /// Sends datagrams to groups from this host of ours and by its interface; by the usual ones if
    /// it is unspecified.
    ///
    /// # Errors
    /// `ENODEV` if no interface has this host.
    pub fn set_multicast_if_v4(&self, interface: impl Into<HostAddr>) -> io::Result<()> {
        self.0.set(Setting::GroupFrom(interface.into()))
    }

    fn put(&self, octets: &[IoSlice<'_>], to: To) -> io::Result<usize> {
        let handle = &*self.0;
        handle.until(Ready::WRITABLE, &handle.write_timeout, || {
            handle.driver.send(&handle.socket, octets, to)
        })
    }

    #[inline]
    fn fetch(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<Received> {
        let handle = &*self.0;
        handle.until(Ready::READABLE, &handle.read_timeout, || {
            handle.driver.receive(&handle.socket, into, peek)
        })
    }
}
