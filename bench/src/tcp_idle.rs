//! The cost of a TCP connection while it is idle.
//!
//! Two hosts in a process of its own, joined by a cable. One opens connections to the other; each
//! carries one octet there and back, and then nothing for as long as it takes until no timer is
//! left. Both ends of each connection are of xk and lie in that process, so it holds twice as many
//! as are opened.

use crate::cable::Hosts;
use crate::case::{Case, Goal};
use crate::child;
use crate::uppers::{Echo, OneOctet, send_octet};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_core::control::ListSessions;
use xk_core::{SessionRef, Time};
use xk_kit::net::stream::{StreamInfo, StreamState};

/// Connections, unless [`VARIABLE`] asks for another number.
const USUAL: usize = 20_000;
/// The environment variable for another number.
const VARIABLE: &str = "XK_IDLE";

pub(crate) fn cases() -> Vec<Case> {
    let asked = std::env::var(VARIABLE).ok().and_then(|n| n.parse().ok());
    let count: usize = asked.unwrap_or(USUAL);
    let rows: [(&str, &str, Option<Goal>); 4] = [
        ("memory", "octets", Some(Goal::AtMost(2048.0))),
        ("memory of all", "MiB", None),
        ("to open, one octet there and back", "us", None),
        ("one octet there and back among them", "us", None),
    ];
    let rows =
        rows.map(|(what, unit, goal)| (format!("{} idle ends, {what}", 2 * count), unit, goal));
    child::rows(rows, move |effort| {
        // One that was asked for is not to be told of as another.
        let share = if asked.is_some() { 1.0 } else { effort };
        let some = ((count as f64 * share) as usize).max(100);
        child::ask("tcp-idle", &some.to_string())
    })
}

/// Client ports in use for one port of the server.
const PER_PORT: usize = 50_000;
const CLIENT_PORT_FIRST: u16 = 10_000;
const SERVER_PORT_FIRST: u16 = 1000;
/// Time that passes with each connection (10,000 are opened a second), and in each step of the
/// silence.
const STEP: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_millis(50);
/// Length of the silence: longer than any acknowledgement, probe or retransmission waits on a
/// connection that has been heard.
const IDLE: Duration = Duration::from_secs(10);

/// Two hosts with connections between them.
struct Pair {
    hosts: Hosts,
    sessions: Vec<SessionRef>,
    received: Rc<Cell<u64>>,
}

impl Pair {
    fn new(count: usize) -> Result<Self, String> {
        // One network may have three quarters of a table.
        let tcp = format!("tcp ip sessions_max={}", (count / 3 * 4).max(16) + 16);
        let client = OneOctet::default();
        let received = Rc::clone(&client.answers);
        let hosts = Hosts::new(&tcp, count + 64, client, Echo { holds: true });
        for port in 0..count.div_ceil(PER_PORT) {
            hosts.serve(SERVER_PORT_FIRST + port as u16);
        }
        let mut pair = Self { hosts, sessions: Vec::with_capacity(count), received };
        for n in 0..count {
            let mine = CLIENT_PORT_FIRST + (n % PER_PORT) as u16;
            let opened = pair.hosts.open(mine, SERVER_PORT_FIRST + (n / PER_PORT) as u16);
            pair.sessions.push(opened.map_err(|e| format!("connection {n}: {e}"))?);
            pair.carry();
        }
        if pair.received.get() == count as u64 {
            return Ok(pair);
        }
        Err(format!("{} of {count} answers came", pair.received.get()))
    }

    /// Carries frames until there are no more; answers what time it is.
    fn carry(&self) -> Time {
        let now = self.hosts.pass(STEP);
        self.hosts.carry();
        now
    }

    /// Lets nothing happen until nothing is to be done any more.
    fn rest(&self) {
        let until = self.carry() + IDLE;
        while self.carry() < until {
            self.hosts.pass(PAUSE);
        }
    }

    /// Checks that all connections stand, on both sides.
    fn check(&self) -> Result<(), String> {
        let stands = |session: &&SessionRef| {
            let info = session.ask(&self.hosts.a.cx, StreamInfo::default());
            info.is_some_and(|info| info.state == StreamState::Established)
        };
        let (mine, count) = (self.sessions.iter().filter(stands).count(), self.sessions.len());
        let list = ListSessions::first(0);
        let other = self.hosts.b.top.ask(&self.hosts.b.cx, list);
        let other = other.map_or(0, |list| list.total);
        if (mine, other) == (count, count) {
            return Ok(());
        }
        Err(format!("of {count} connections {mine} and {other} stand"))
    }
}

/// Connections that say something again.
const TRIPS: usize = 1000;

/// Opens so many connections and measures them: octets of one end, MiB of all, microseconds to open
/// one, and for an octet there and back on one of many.
pub(crate) fn measure(count: &str) -> Result<Vec<f64>, String> {
    let count: usize = count.parse().map_err(|_| "not a number of connections")?;
    // What the program itself needs is there after a few.
    drop(Pair::new(8)?);
    let before = child::resident()?;
    let start = Instant::now();
    let pair = Pair::new(count)?;
    let opened = start.elapsed();
    pair.rest();
    pair.check()?;
    let octets = child::resident()? - before;
    let (start, before) = (Instant::now(), pair.received.get());
    for n in 0..TRIPS {
        // A prime apart, so that none is near the one before.
        let session = pair.sessions[n * 7919 % count].clone();
        send_octet(&pair.hosts.a.cx, &session);
        pair.carry();
    }
    let trips = start.elapsed();
    if pair.received.get() - before != TRIPS as u64 {
        return Err("an idle connection did not answer".into());
    }
    let us = |time: Duration, parts: usize| time.as_secs_f64() * 1e6 / parts as f64;
    Ok(vec![
        octets / (2 * count) as f64,
        octets / f64::from(1 << 20),
        us(opened, count),
        us(trips, TRIPS),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_stand_and_answer() {
        let figures = measure("500").unwrap();
        assert_eq!(figures.len(), 4);
        assert!(figures[3] > 0.0);
    }
}
