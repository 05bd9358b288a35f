//! TCP in one process by xk.

use crate::cable::{HEADROOM, Hosts};
use crate::uppers::Sink;
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;
use xk_core::{SessionRef, Time};
use xk_kit::net::stream::StreamSpace;

/// Octets of data in a segment: what 1500 leave beside the headers and the timestamps option.
pub(super) const SEGMENT: usize = 1448;
/// Octets of each buffer.
pub(super) const BUFFER: usize = 256 * 1024;
/// Octets that the application writes at once.
pub(super) const WRITE: usize = 16 * 1024;
/// Octets of a measurement, in segments.
pub(super) const OPERATIONS: u64 = 40_000;
pub(super) const ROW: &str = "one segment";

/// Virtual time that passes with each turn.
const TURN: Duration = Duration::from_micros(2);

/// Two hosts, a connection between them, and the time.
pub(super) struct Pair {
    hosts: Hosts,
    session: SessionRef,
    received: Rc<Cell<u64>>,
    data: Vec<u8>,
}

impl Pair {
    pub(super) fn new() -> Self {
        let tcp = format!("tcp ip send_buffer=\"{BUFFER}B\" receive_buffer=\"{BUFFER}B\"");
        let sink = Sink::default();
        let received = Rc::clone(&sink.0);
        let hosts = Hosts::new(&tcp, 1 << 12, Sink::default(), sink);
        hosts.serve(7);
        let session = hosts.open(5000, 7).expect("the peer is on the link");
        let pair = Self { hosts, session, received, data: vec![0x5a; WRITE] };
        // The first octets wait for the connection.
        for _ in 0..1000 {
            pair.turn();
        }
        assert!(pair.received.get() > 0, "the pair has connected");
        pair
    }

    fn turn(&self) -> Time {
        let now = self.hosts.pass(TURN);
        let Hosts { a, b, .. } = &self.hosts;
        let cx = &a.cx;
        let space = self.session.ask(cx, StreamSpace::default());
        if space.is_some_and(|space| space.octets as usize >= WRITE) {
            let message = cx.pool().copy_from(HEADROOM, black_box(&self.data));
            let pushed = self.session.push(cx, message.expect("the pool has room"));
            pushed.expect("there is space");
        }
        b.take_from(a);
        a.take_from(b);
        now
    }

    /// Carries the octets of so many segments.
    pub(super) fn stream(self) -> impl FnMut(u64) {
        move |segments| {
            let until = self.received.get() + segments * SEGMENT as u64;
            let latest = self.turn() + Duration::from_secs(60);
            while self.received.get() < until {
                assert!(self.turn() < latest, "the stream goes on");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_segment_is_acknowledged() {
        let pair = Pair::new();
        let (before, acknowledged) = (pair.received.get(), pair.hosts.b.sent());
        while pair.received.get() < before + 1000 * SEGMENT as u64 {
            pair.turn();
        }
        let acknowledgements = pair.hosts.b.sent() - acknowledged;
        assert!((450..=1100).contains(&acknowledgements), "{acknowledgements}");
    }
}
