//! TCP in one process by xk.

use super::{BUFFER, SEGMENT, WRITE};
use crate::cable::{HEADROOM, Host, at};
use crate::uppers::Sink;
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;
use xk_core::message::PoolConfig;
use xk_core::{Part, Participants, Pool, SessionRef, Time, Upper};
use xk_kit::net::stream::StreamSpace;

/// How much later it is at each turn.
const TURN: Duration = Duration::from_micros(2);

/// Two hosts, a connection between them, and the time.
pub(super) struct Pair {
    a: Host,
    b: Host,
    session: SessionRef,
    received: Rc<Cell<u64>>,
    now: Time,
    data: Vec<u8>,
}

impl Pair {
    pub(super) fn new() -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
        let tcp = format!("tcp ip send_buffer=\"{BUFFER}B\" receive_buffer=\"{BUFFER}B\"");
        let [a, b] = [1, 2].map(|number| Host::new(&pool, number, &tcp));
        let sink = Sink::default();
        let received = Rc::clone(&sink.0);
        let server = b.cx.add_protocol("sink", "server", sink);
        let local = Participants::local(Part::port(7));
        let enabled = b.top.open_enable(&b.cx, Upper::new(&server), local);
        let _ = enabled.expect("the port is free");
        let client = a.cx.add_protocol("sink", "client", Sink::default());
        let participants = Participants::pair(at(5000, 1), at(7, 2));
        let session =
            a.top.open(&a.cx, Upper::new(&client), participants).expect("the peer is on the link");
        let mut pair = Self { a, b, session, received, now: Time::ZERO, data: vec![0x5a; WRITE] };
        // The first octets wait for the connection.
        for _ in 0..1000 {
            pair.turn();
        }
        assert!(pair.received.get() > 0, "the pair has connected");
        pair
    }

    fn turn(&mut self) {
        self.now += TURN;
        let Host { cx, .. } = &self.a;
        for host in [&self.a, &self.b] {
            host.cx.set_now(self.now);
            host.cx.run_due();
        }
        let space = self.session.ask(cx, StreamSpace::default());
        if space.is_some_and(|space| space.octets as usize >= WRITE) {
            let message = cx.pool().copy_from(HEADROOM, black_box(&self.data));
            let pushed = self.session.push(cx, message.expect("the pool has room"));
            pushed.expect("there is space");
        }
        self.b.take_from(&self.a);
        self.a.take_from(&self.b);
    }

    /// Carries the octets of so many segments.
    pub(super) fn stream(mut self) -> impl FnMut(u64) {
        move |segments| {
            let until = self.received.get() + segments * SEGMENT as u64;
            let latest = self.now + Duration::from_secs(60);
            while self.received.get() < until {
                self.turn();
                assert!(self.now < latest, "the stream goes on");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_segment_is_acknowledged() {
        let mut pair = Pair::new();
        let (before, acknowledged) = (pair.received.get(), pair.b.sent());
        while pair.received.get() < before + 1000 * SEGMENT as u64 {
            pair.turn();
        }
        let acknowledgements = pair.b.sent() - acknowledged;
        assert!((450..=1100).contains(&acknowledgements), "{acknowledgements}");
    }
}
