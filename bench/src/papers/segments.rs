//! The segments of a connection, with the time at which the system saw them at a device.

use super::stamp_unsafe::stamp;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

/// All frames, sent and received (packet(7)), in the order of the network.
const ALL_FRAMES: NonZeroU32 = NonZeroU32::new((3_u16).to_be() as u32).unwrap();
const TCP: u8 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The segments to one port of TCP, on all devices of this network namespace.
pub(super) struct Segments {
    socket: OwnedFd,
    port: u16,
}

impl Segments {
    /// Looks at what goes to this port from now on.
    pub(super) fn to(port: u16) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let all = Some(Protocol::from_raw(ALL_FRAMES));
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, all)?;
        // The first time it is asked for stamps they begin, and there is none.
        let _ = stamp(&socket);
        Ok(Self { socket, port })
    }

    /// Times at which the last handshake began, and its first side ended it, of what came since
    /// the last look; `None` if there was none.
    pub(super) fn handshake(&self) -> io::Result<Option<(SystemTime, SystemTime)>> {
        let (mut begun, mut ended) = (None, None);
        let mut packet = [0; 128];
        while let Ok((octets, _)) = recv(&self.socket, &mut packet[..], RecvFlags::empty()) {
            let at = stamp(&self.socket)?;
            match self.flags(&packet[..octets.min(packet.len())]) {
                Some(SYN) => (begun, ended) = (Some(at), None),
                Some(ACK) => ended = ended.or(Some(at)),
                _ => {}
            }
        }
        Ok(begun.zip(ended))
    }

    /// The flags SYN and ACK of a segment to the port.
    fn flags(&self, packet: &[u8]) -> Option<u8> {
        let header = usize::from(packet.first()? & 0xf) * 4;
        let segment = packet.get(header..).filter(|_| packet.get(9) == Some(&TCP))?;
        let port = u16::from_be_bytes([*segment.get(2)?, *segment.get(3)?]);
        segment.get(13).filter(|_| port == self.port).map(|flags| flags & (SYN | ACK))
    }
}
