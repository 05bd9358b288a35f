//! A connection opened, one octet there and back on it, and closed by the client; and octets there
//! and back on one that stays. Both in one process.

use crate::cable::{HEADROOM, Host, at};
use crate::uppers::Echo;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::message::PoolConfig;
use xk_core::object::Refused;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, SessionRef,
    Time, Upper,
};
use xk_kit::net::stream::{StreamEvent, StreamNotice};

/// How much later it is with each connection.
const STEP: Duration = Duration::from_micros(100);
/// The client's ports, one after the other; those that were used wait for late segments, and make
/// room.
const PORT_FIRST: u16 = 20_000;
const PORTS: u64 = 10_000;
/// Connections that there may be, those that wait included.
const SESSIONS_MAX: usize = 1 << 14;

/// Sends one octet as soon as it is connected, and closes when one has come back.
#[derive(Clone, Default)]
struct Client {
    session: Rc<RefCell<Option<SessionRef>>>,
    answers: Rc<Cell<u64>>,
    stays: Rc<Cell<bool>>,
}

impl Protocol for Client {
    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Message,
    ) -> Result<(), Refused> {
        self.answers.set(self.answers.get() + 1);
        if self.stays.get() {
            return Ok(());
        }
        let held = self.session.take();
        if let Some(held) = held {
            held.close(cx);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(notice) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        if notice.event == StreamEvent::Connected
            && let Ok(octet) = cx.pool().copy_from(HEADROOM, &[0x5a])
        {
            let _ = notice.session.clone().push(cx, octet);
        }
        Answer::Answered
    }
}

/// Two hosts, one with a server, the other with a client.
struct Pair {
    a: Host,
    b: Host,
    client: ProtocolRef,
    body: Client,
    now: Time,
}

impl Pair {
    fn new() -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
        let tcp = format!("tcp ip no_delay=#true sessions_max={SESSIONS_MAX}");
        let host = |number| Host::with_timers(&pool, number, &tcp, 2 * SESSIONS_MAX);
        let (a, b) = (host(1), host(2));
        let server = b.cx.add_protocol("server", "server", Echo { holds: true });
        let local = Participants::local(Part::port(7));
        let enabled = b.top.open_enable(&b.cx, Upper::new(&server), local);
        let _ = enabled.expect("the port is free");
        let body = Client::default();
        let client = a.cx.add_protocol("client", "client", body.clone());
        Self { a, b, client, body, now: Time::ZERO }
    }

    fn pass(&mut self) {
        self.now += STEP;
        for host in [&self.a, &self.b] {
            host.cx.set_now(self.now);
            host.cx.run_due();
        }
    }

    fn open(&self, port: u16) -> SessionRef {
        let both = Participants::pair(at(port, 1), at(7, 2));
        let opened = self.a.top.open(&self.a.cx, Upper::new(&self.client), both);
        opened.expect("the port may be used")
    }

    fn carry(&self) {
        while self.b.take_from(&self.a) + self.a.take_from(&self.b) > 0 {}
    }
}

/// Makes so many connections, one after the other.
pub(super) fn connects() -> impl FnMut(u64) {
    let mut pair = Pair::new();
    let mut number = 0;
    move |count| {
        let before = pair.body.answers.get();
        for _ in 0..count {
            pair.pass();
            let session = pair.open(PORT_FIRST + (number % PORTS) as u16);
            number += 1;
            *pair.body.session.borrow_mut() = Some(session);
            pair.carry();
        }
        let answers = pair.body.answers.get() - before;
        assert_eq!(answers, count, "all answers came");
    }
}

/// Sends so many octets there and gets them back, one after the other, on one connection.
pub(super) fn trips() -> impl FnMut(u64) {
    trips_counted(Rc::default())
}

/// Sends octets there and back as [`trips`] does, and counts the frames of both hosts.
fn trips_counted(frames: Rc<Cell<u64>>) -> impl FnMut(u64) {
    let mut pair = Pair::new();
    pair.body.stays.set(true);
    let session = pair.open(PORT_FIRST);
    pair.carry();
    move |count| {
        let before = pair.body.answers.get();
        for _ in 0..count {
            pair.pass();
            let octet = pair.a.cx.pool().copy_from(HEADROOM, &[0x5a]);
            let _ = session.push(&pair.a.cx, octet.expect("the pool has room"));
            pair.carry();
        }
        let answers = pair.body.answers.get() - before;
        assert_eq!(answers, count, "all answers came");
        frames.set(pair.a.sent() + pair.b.sent());
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
