//! What a TCP connection takes while it has nothing to do.
//!
//! Two hosts in a process of its own, joined by a cable. One opens connections to the other; each
//! carries one octet there and back, and then nothing for as long as it takes until no timer is
//! left. Both ends of each connection are of xk and lie in that process, so it holds twice as many
//! as are opened.

use crate::cable::{HEADROOM, Host, at};
use crate::case::{Benchmark, Case, Goal};
use crate::child;
use crate::uppers::Echo;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_core::control::ListSessions;
use xk_core::message::PoolConfig;
use xk_core::object::Refused;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, SessionRef,
    Time, Upper,
};
use xk_kit::net::stream::{StreamEvent, StreamInfo, StreamNotice};

pub(crate) fn benchmark() -> Benchmark {
    Benchmark::new(
        "tcp-idle",
        "idle TCP connections in one process, both ends of each: resident memory of one end with its session, table entries and \
         timers; XK_IDLE=1000000 has a million connections",
        "octets",
        cases,
    )
    .why(include_str!("why/tcp-idle.md"))
}

/// Connections, unless [`VARIABLE`] asks for another number.
const USUAL: usize = 20_000;
/// The environment variable for another number.
const VARIABLE: &str = "XK_IDLE";

fn cases() -> Vec<Case> {
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
/// How much later it is with each connection (10,000 are opened a second), and while nothing is
/// said.
const STEP: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_millis(50);
/// How long nothing is said: longer than any acknowledgement, probe or retransmission waits on a
/// connection that has been heard.
const IDLE: Duration = Duration::from_secs(10);

/// Sends one octet as soon as it is connected, and counts what comes.
#[derive(Clone, Default)]
struct Client(Rc<Cell<u64>>);

impl Protocol for Client {
    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.0.set(self.0.get() + message.len() as u64);
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(notice) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        if notice.event == StreamEvent::Connected {
            send(cx, &notice.session);
        }
        Answer::Answered
    }
}

fn send(cx: &Kernel, session: &SessionRef) {
    if let Ok(octet) = cx.pool().copy_from(HEADROOM, &[0x5a]) {
        let _ = session.push(cx, octet);
    }
}

/// Two hosts with connections between them.
struct Pair {
    a: Host,
    b: Host,
    sessions: Vec<SessionRef>,
    received: Rc<Cell<u64>>,
    now: Time,
}

impl Pair {
    fn new(count: usize) -> Result<Self, String> {
        let pool = Pool::new(&PoolConfig::default()).map_err(|e| e.to_string())?;
        // One network may have three quarters of a table.
        let tcp = format!("tcp ip sessions_max={}", (count / 3 * 4).max(16) + 16);
        let host = |number| Host::with_timers(&pool, number, &tcp, count + 64);
        let (a, b) = (host(1), host(2));
        let server = b.cx.add_protocol("server", "server", Echo { holds: true });
        for port in 0..count.div_ceil(PER_PORT) {
            let local = Participants::local(Part::port(SERVER_PORT_FIRST + port as u16));
            let enabled = b.top.open_enable(&b.cx, Upper::new(&server), local);
            let _stands = enabled.map_err(|e| format!("no port: {e}"))?;
        }
        let client = Client::default();
        let received = Rc::clone(&client.0);
        let client = a.cx.add_protocol("client", "client", client);
        let mut pair =
            Self { a, b, sessions: Vec::with_capacity(count), received, now: Time::ZERO };
        for n in 0..count {
            let mine = at(CLIENT_PORT_FIRST + (n % PER_PORT) as u16, 1);
            let peer = at(SERVER_PORT_FIRST + (n / PER_PORT) as u16, 2);
            let both = Participants::pair(mine, peer);
            let opened = pair.a.top.open(&pair.a.cx, Upper::new(&client), both);
            pair.sessions.push(opened.map_err(|e| format!("connection {n}: {e}"))?);
            pair.carry();
        }
        if pair.received.get() == count as u64 {
            return Ok(pair);
        }
        Err(format!("{} of {count} answers came", pair.received.get()))
    }

    /// Carries frames until there are no more.
    fn carry(&mut self) {
        self.pass(STEP);
        while self.b.take_from(&self.a) + self.a.take_from(&self.b) > 0 {}
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for host in [&self.a, &self.b] {
            host.cx.set_now(self.now);
            host.cx.run_due();
        }
    }

    /// Lets nothing happen until nothing is to be done any more.
    fn rest(&mut self) {
        let until = self.now + IDLE;
        while self.now < until {
            self.pass(PAUSE);
            self.carry();
        }
    }

    /// That all connections stand, on both sides.
    fn check(&self) -> Result<(), String> {
        let stands = |session: &&SessionRef| {
            let info = session.ask(&self.a.cx, StreamInfo::default());
            info.is_some_and(|info| info.state == "ESTABLISHED")
        };
        let (mine, count) = (self.sessions.iter().filter(stands).count(), self.sessions.len());
        let list = ListSessions::first(0);
        let other = self.b.top.ask(&self.b.cx, list);
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
    let resident = || child::memory_octets("VmRSS").ok_or("no /proc to read memory from");
    let before = resident()?;
    let start = Instant::now();
    let mut pair = Pair::new(count)?;
    let opened = start.elapsed();
    pair.rest();
    pair.check()?;
    let octets = resident()? - before;
    let (start, before) = (Instant::now(), pair.received.get());
    for n in 0..TRIPS {
        // A prime apart, so that none is near the one before.
        let session = pair.sessions[n * 7919 % count].clone();
        send(&pair.a.cx, &session);
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
