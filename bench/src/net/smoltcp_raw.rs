//! smoltcp over a packet socket of its own making, with addresses of its own beside Linux's.

use super::endpoint::Endpoint;
use super::endpoint::failed;
use super::exchange::{self, Line, WAIT};
use super::sockets::port;
use super::space::VETH;
use crate::case::Trouble;
use serde_json::Value;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Medium, RawSocket};
use smoltcp::socket::udp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint};
use std::io;
use std::os::fd::AsRawFd;

/// Messages that a socket holds.
const HELD: usize = 64;

struct Host {
    device: RawSocket,
    interface: Interface,
    sockets: SocketSet<'static>,
    udp: SocketHandle,
    peer: IpEndpoint,
    spins: bool,
}

fn address(side: usize) -> IpAddress {
    IpAddress::v4(10, 77, 3, side as u8 + 1)
}

impl Host {
    fn open(end: &Endpoint) -> io::Result<Self> {
        let mut device = RawSocket::new(VETH[end.side], Medium::Ethernet)?;
        let hardware = EthernetAddress([2, 0, 0, 0, 0x76, end.side as u8 + 1]);
        let mut interface =
            Interface::new(Config::new(hardware.into()), &mut device, Instant::now());
        interface.update_ip_addrs(|list| {
            // The list is empty, so there is room.
            let _ = list.push(IpCidr::new(address(end.side), 24));
        });
        let answers = end.task.is_passive();
        let (mine, other) = (port(end, answers), port(end, !answers));
        let octets = HELD * end.octets.max(64);
        let buffer =
            || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; HELD], vec![0; octets]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(mine).map_err(|error| io::Error::other(error.to_string()))?;
        let mut sockets = SocketSet::new(vec![]);
        let udp = sockets.add(socket);
        let peer = IpEndpoint::new(address(1 - end.side), other);
        Ok(Self { device, interface, sockets, udp, peer, spins: end.spins })
    }

    fn poll(&mut self) {
        self.interface.poll(Instant::now(), &mut self.device, &mut self.sockets);
    }

    /// Takes arrivals in, after a sleep if it may and there are none.
    fn look(&mut self) -> io::Result<()> {
        self.poll();
        if self.spins || self.sockets.get::<udp::Socket<'_>>(self.udp).can_recv() {
            return Ok(());
        }
        let limit = Duration::from_micros(WAIT.as_micros() as u64);
        match smoltcp::phy::wait(self.device.as_raw_fd(), Some(limit)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => self.poll(),
        }
        Ok(())
    }
}

impl Line for Host {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        match socket.send_slice(message, self.peer) {
            Ok(()) => Ok(true),
            Err(udp::SendError::BufferFull) => Ok(false),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.poll();
        Ok(())
    }

    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        self.look()?;
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        let mut count = 0;
        while let Ok((octets, _)) = socket.recv() {
            each(octets);
            count += 1;
        }
        Ok(count)
    }
}

pub(super) fn run(end: &Endpoint) -> Result<Value, Trouble> {
    let host = Host::open(end).map_err(failed("cannot open the interface"))?;
    exchange::run(end, host)
}
