//! TCP in one process by smoltcp.

use super::{BUFFER, SEGMENT, WRITE};
use crate::smoltcp_cable::{self, Host};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::hint::black_box;

/// How much later it is at each turn.
const TURN: Duration = Duration::from_micros(2);

struct Talker {
    host: Host,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
}

impl Talker {
    fn new(host: Host) -> Self {
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let socket = tcp::Socket::new(buffer(), buffer());
        let mut sockets = SocketSet::new(vec![]);
        let tcp = sockets.add(socket);
        Self { host, sockets, tcp }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.tcp)
    }

    fn poll(&mut self, now: Instant) {
        let Host { device, interface } = &mut self.host;
        interface.poll(now, device, &mut self.sockets);
    }
}

/// Both hosts, and the time.
struct Pair {
    a: Talker,
    b: Talker,
    now: Instant,
    data: Vec<u8>,
    received: u64,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = smoltcp_cable::pair();
        let mut pair = Self {
            a: Talker::new(a),
            b: Talker::new(b),
            now: Instant::ZERO,
            data: vec![0x5a; WRITE],
            received: 0,
        };
        pair.b.socket().listen(7).expect("a fresh socket listens");
        let peer = IpEndpoint::new(IpAddress::v4(10, 0, 0, 2), 7);
        let Talker { host, sockets, tcp } = &mut pair.a;
        let socket: &mut tcp::Socket<'_> = sockets.get_mut(*tcp);
        socket.connect(host.interface.context(), peer, 5000).expect("a fresh socket connects");
        while !pair.a.socket().may_send() {
            pair.turn();
        }
        pair
    }

    /// The sender writes and sends; the receiver gets two frames at a time, takes what they bring,
    /// and acknowledges.
    fn turn(&mut self) {
        self.now += TURN;
        let (a, b) = (&mut self.a, &mut self.b);
        if a.socket().can_send() {
            let _ = a.socket().send_slice(black_box(&self.data));
        }
        a.poll(self.now);
        loop {
            b.host.device.allow(2);
            b.poll(self.now);
            while let Ok(count) = b.socket().recv(|data| (data.len(), data.len())) {
                if count == 0 {
                    break;
                }
                self.received += black_box(count) as u64;
            }
            if b.host.device.waiting() == 0 {
                break;
            }
        }
    }
}

/// Carries the octets of so many segments.
pub(super) fn stream() -> impl FnMut(u64) {
    let mut pair = Pair::new();
    move |segments| {
        let until = pair.received + segments * SEGMENT as u64;
        while pair.received < until {
            pair.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_segment_is_acknowledged() {
        let mut pair = Pair::new();
        let mut acknowledgements = 0;
        while pair.received < 1000 * SEGMENT as u64 {
            pair.turn();
            acknowledgements += pair.a.host.device.waiting();
        }
        assert!((450..=1100).contains(&acknowledgements), "{acknowledgements}");
    }
}
