//! TCP in one process by smoltcp.

use super::ours::{BUFFER, SEGMENT, WRITE};
use crate::smoltcp_cable::{self, Host};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::hint::black_box;

/// Virtual time that passes with each turn.
const TURN: Duration = Duration::from_micros(2);

type Talker = Host<tcp::Socket<'static>>;

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
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let (a, b) = smoltcp_cable::pair([(); 2].map(|()| tcp::Socket::new(buffer(), buffer())));
        let mut pair = Self { a, b, now: Instant::ZERO, data: vec![0x5a; WRITE], received: 0 };
        pair.b.socket().listen(7).expect("a fresh socket listens");
        let peer = IpEndpoint::new(IpAddress::v4(10, 0, 0, 2), 7);
        let (socket, context) = pair.a.connecting();
        socket.connect(context, peer, 5000).expect("a fresh socket connects");
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
            b.device.allow(2);
            b.poll(self.now);
            while let Ok(count) = b.socket().recv(|data| (data.len(), data.len())) {
                if count == 0 {
                    break;
                }
                self.received += black_box(count) as u64;
            }
            if b.device.waiting() == 0 {
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
            acknowledgements += pair.a.device.waiting();
        }
        assert!((450..=1100).contains(&acknowledgements), "{acknowledgements}");
    }
}
