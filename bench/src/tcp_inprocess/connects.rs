//! A connection opened, one octet there and back on it, and closed by the client; and octets there
//! and back on one that stays. Both in one process.

use crate::cable::Hosts;
use crate::uppers::{Echo, OneOctet, send_octet};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use xk_core::SessionRef;

/// Virtual time that passes with each connection.
const STEP: Duration = Duration::from_micros(100);
/// The client's ports, one after the other; those that were used wait for late segments, and make
/// room.
const PORT_FIRST: u16 = 20_000;
const PORTS: u64 = 10_000;
/// Connections that there may be, those that wait included.
const SESSIONS_MAX: usize = 1 << 14;

/// Two hosts, one with a server, the other with a client.
struct Pair {
    hosts: Hosts,
    client: OneOctet,
}

impl Pair {
    fn new() -> Self {
        let tcp = format!("tcp ip no_delay=#true sessions_max={SESSIONS_MAX}");
        let client = OneOctet::default();
        let hosts = Hosts::new(&tcp, 2 * SESSIONS_MAX, client.clone(), Echo { holds: true });
        hosts.serve(7);
        Self { hosts, client }
    }

    fn open(&self, port: u16) -> SessionRef {
        self.hosts.open(port, 7).expect("the port may be used")
    }
}

/// Makes so many connections, one after the other.
pub(super) fn connects() -> impl FnMut(u64) {
    let pair = Pair::new();
    let mut number = 0;
    move |count| {
        let Pair { hosts, client } = &pair;
        let before = client.answers.get();
        for _ in 0..count {
            hosts.pass(STEP);
            let session = pair.open(PORT_FIRST + (number % PORTS) as u16);
            number += 1;
            *client.ended.borrow_mut() = Some(session);
            hosts.carry();
        }
        assert_eq!(client.answers.get() - before, count, "all answers came");
    }
}

/// Sends so many octets there and gets them back, one after the other, on one connection.
pub(crate) fn trips() -> impl FnMut(u64) {
    trips_counted(Rc::default())
}

/// Sends octets there and back as [`trips`] does, and counts the frames of both hosts.
fn trips_counted(frames: Rc<Cell<u64>>) -> impl FnMut(u64) {
    let pair = Pair::new();
    let session = pair.open(PORT_FIRST);
    pair.hosts.carry();
    move |count| {
        let Pair { hosts, client } = &pair;
        let before = client.answers.get();
        for _ in 0..count {
            hosts.pass(STEP);
            send_octet(&hosts.a.cx, &session);
            hosts.carry();
        }
        assert_eq!(client.answers.get() - before, count, "all answers came");
        frames.set(hosts.a.sent() + hosts.b.sent());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ports_are_used_again() {
        super::connects()(super::PORTS + 1000);
    }

    #[test]
    fn octets_come_back_on_one_connection() {
        let (trips, frames) = (1000, std::rc::Rc::default());
        super::trips_counted(std::rc::Rc::clone(&frames))(trips);
        // Acknowledgements ride on the octets.
        let frames: u64 = frames.get();
        assert!((2 * trips..2 * trips + 100).contains(&frames), "{frames}");
    }
}
