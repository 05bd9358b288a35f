//! The wire: a member of the group below a graph.

use std::any::Any;
use std::io::IoSlice;
use std::net::Ipv4Addr;

use xk_appletalk::llap::{DATA_OCTETS_MAX, HEADER_OCTETS, SENDER_OCTETS};
use xk_core::graph::{Build, BuildError};
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, reason};
use xk_kit::wire::device::{Anchored, Capabilities, DEVICE_ERROR, Device, Receiving, Unsent};
use xk_kit::wire::entry::{HEADROOM, environment};

use crate::socket::Socket;

/// Octets of the longest frame.
const FRAME_OCTETS_MAX: usize = HEADER_OCTETS + DATA_OCTETS_MAX;
/// Octets of the longest datagram.
const DATAGRAM_OCTETS_MAX: usize = SENDER_OCTETS + FRAME_OCTETS_MAX;

/// Builds the wire from its place in a graph.
///
/// # Errors
/// [`BuildError`] if `interface` is no address, or the system does not let it join the group there.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let wanted = "an IPv4 address, such as 127.0.0.1";
    let interface = build.params.parse::<Ipv4Addr>("interface", wanted)?;
    let socket = Socket::join(interface).map_err(|error| environment("interface", &error))?;
    let sender = build.cx.random().next_u32().to_be_bytes();
    build.add(Anchored::new(LtoUdp { socket, sender }, Capabilities::bare(FRAME_OCTETS_MAX)))
}

/// The wire.
struct LtoUdp {
    socket: Socket,
    /// First octets of our own datagrams.
    sender: [u8; SENDER_OCTETS],
}

impl LtoUdp {
    /// Puts the next frame behind the arrivals; false if there is none, or no room for it.
    fn receive_one(&self, into: &mut Receiving<'_>) -> bool {
        let Receiving { cx, this, arrivals, .. } = into;
        // Without a buffer the datagram stays with the system; the pool counts the failure.
        let Ok(mut message) = cx.pool().alloc(HEADROOM, DATAGRAM_OCTETS_MAX) else {
            return false;
        };
        let Some(room) = message.front_mut() else { return false };
        let octets = match self.socket.receive(room) {
            Ok(Some(octets)) => octets,
            Ok(None) => return false,
            Err(_) => {
                this.head().drops().count(&DEVICE_ERROR);
                return false;
            }
        };
        message.truncate(octets);
        if octets > DATAGRAM_OCTETS_MAX {
            this.discard(message, &reason::TOO_BIG);
        } else if octets < SENDER_OCTETS + HEADER_OCTETS {
            this.discard(message, &reason::MALFORMED);
        } else if message.peek() != Some(&self.sender) {
            let _ = message.strip(SENDER_OCTETS);
            arrivals.push_back(message);
        }
        true
    }
}

impl Device for LtoUdp {
    fn receive(&self, mut into: Receiving<'_>) {
        let all = 0..into.budget;
        all.take_while(|_| self.receive_one(&mut into)).for_each(drop);
    }

    fn send(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        let octets = message.slices().map(|slice| slice.octets);
        let parts: Vec<_> =
            [self.sender.as_slice()].into_iter().chain(octets).map(IoSlice::new).collect();
        let sent = self.socket.send(&parts);
        drop(parts);
        match sent {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unsent::Full(message)),
            Err(_) => Err(Unsent::failed(message)),
        }
    }

    fn describe(&self, _: &Capabilities) -> Option<String> {
        Some(format!("sender {:02x?}", self.sender))
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.socket.fd());
    }
}
