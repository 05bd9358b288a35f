//! UDP in one process by xk.

use crate::cable::{HEADROOM, Hosts};
use crate::uppers::{Each, counter};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use xk_core::object::{Outgoing, PushError};
use xk_core::{Message, SessionRef};
use xk_kit::net::template::{Headers, Template};

/// Two hosts and sessions between them, which are used in turn.
pub(crate) struct Pair {
    hosts: Hosts,
    sessions: Vec<SessionRef>,
    turn: Cell<usize>,
    received: Rc<Cell<u64>>,
}

impl Pair {
    /// Two hosts where each of these sessions has one of its own at the server.
    pub(crate) fn new(sessions: u16) -> Self {
        Self::with(sessions, |hosts| hosts.serve(7))
    }

    /// Two hosts where one unconnected session receives from all.
    pub(crate) fn to_unconnected(sessions: u16) -> Self {
        Self::with(sessions, |hosts| hosts.receive_from_all(7))
    }

    fn with(sessions: u16, serve: impl FnOnce(&Hosts)) -> Self {
        let (server, received) = counter();
        let hosts = Hosts::new("udp ip", 1 << 12, Each(drop), server);
        serve(&hosts);
        let open = |port| hosts.open(port, 7).expect("the peer is on the link");
        let sessions = (5000..5000 + sessions).map(open).collect();
        let pair = Self { hosts, sessions, turn: Cell::new(0), received };
        // The first message waits for address resolution; then everything is warm.
        for (sent, session) in pair.sessions.iter().enumerate() {
            let _ = session.push(&pair.hosts.a.cx, pair.message(64));
            pair.hosts.carry();
            assert_eq!(pair.received.get(), sent as u64 + 1, "the pair has connected");
        }
        pair
    }

    /// The session whose turn it is.
    #[inline]
    fn session(&self) -> &SessionRef {
        if let [only] = &self.sessions[..] {
            return only;
        }
        let turn = self.turn.get();
        let next = turn + 1;
        self.turn.set(if next < self.sessions.len() { next } else { 0 });
        &self.sessions[turn]
    }

    #[inline]
    fn message(&self, octets: usize) -> Message {
        self.hosts.a.cx.pool().alloc(HEADROOM, octets).expect("the pool has room")
    }

    /// Sends `count` messages: one alone by `push`, several by `push_burst`.
    fn send(&self, octets: usize, count: u64) {
        let sent = if count == 1 {
            let message = self.message(octets);
            self.session().push(&self.hosts.a.cx, black_box(message))
        } else {
            self.send_burst(octets, count)
        };
        sent.expect("the cable takes everything");
    }

    #[inline(never)]
    fn send_burst(&self, octets: usize, count: u64) -> Result<(), PushError> {
        let mut burst: Outgoing = (0..count).map(|_| self.message(octets)).collect();
        self.session().push_burst(&self.hosts.a.cx, black_box(&mut burst))
    }

    /// The template of the headers of the current session's messages, and a frame of this size.
    pub(crate) fn sample(&self, octets: usize) -> (Template, Vec<u8>) {
        let session = self.session();
        let headers = Headers::of(&self.hosts.a.cx, session).expect("every layer tells");
        session.push(&self.hosts.a.cx, self.message(octets)).expect("the cable takes everything");
        let frame = self.hosts.a.kept().pop_front().expect("the frame is on the cable");
        (headers.sent, frame.octets().collect())
    }

    /// Sends and receives messages of this size, in batches.
    pub(crate) fn exchange(self, octets: usize, batch: u64) -> impl FnMut(u64) {
        move |operations| {
            let before = self.received.get();
            let mut left = operations;
            while left > 0 {
                let now = left.min(batch);
                self.send(octets, now);
                self.hosts.b.take_from(&self.hosts.a);
                left -= now;
            }
            assert_eq!(self.received.get() - before, operations, "everything sent arrived");
        }
    }
}
