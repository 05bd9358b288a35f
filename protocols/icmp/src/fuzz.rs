//! Fuzz targets: of the codec (what parses must come out again as it went in), and of the layer
//! between two others.

use crate::reasons;
use crate::wire::{self, HEADER_LEN, TIMES_LEN, echo_reply};
use alloc::boxed::Box;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::graph::{Build, Params, Value};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Closing, Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Pool, Protocol, ProtocolRef, Session, SessionRef,
    Upper,
};
use xk_kit::control::{DeliverError, NetworkError, SendError, SendErrorCause};

/// Parses `data` as a message, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(message) = wire::Message::parse(data) else {
        return;
    };
    let mut octets = message.header_octets();
    let whole = [&octets, message.body].concat();
    assert_eq!(wire::Message::parse(&whole), Ok(message), "the message changed");
    // Unused octets are written as zero, so only queries come out to the bit.
    if !message.header.is_error() && data[2..4] != [0xff, 0xff] {
        assert_eq!(octets, data[..HEADER_LEN], "the octets changed");
    }
    assert_eq!(message.quoted().is_some(), message.header.is_error());
    if let Some(times) = message.times() {
        let mut octets = [0; TIMES_LEN];
        times.emit(&mut octets);
        assert_eq!(octets, message.body[..TIMES_LEN], "the times changed");
    }
    if echo_reply(&mut octets).is_some() {
        let whole = [&octets, message.body].concat();
        let reply = wire::Message::parse(&whole).expect("the reply to a valid request is valid");
        assert_eq!(Some(reply.header), message.header.reply());
    }
}

/// A layer that takes hosts: one session, which swallows what is pushed.
#[derive(Default)]
struct Below(RefCell<Option<SessionRef>>);

struct BelowSession {
    upper: ProtocolRef,
}

impl Protocol for Below {
    fn open(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.0.borrow().clone().ok_or(OpenError::NoRoute)?;
        session.hold();
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let upper = upper.receiver;
        let body = BelowSession { upper: upper.clone() };
        *self.0.borrow_mut() = Some(cx.new_passive_session(this, upper, body));
        Ok(Enable(0))
    }

    /// Knows the sender of every packet that an error is about.
    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(question) = ask.get::<DeliverError>() else {
            return Answer::Unknown;
        };
        let session = self.0.borrow().clone();
        let error = NetworkError { session: session.clone(), ..question.error.clone() };
        let upper = session.and_then(|session| cx.protocol(session.head().upper()));
        if let Some(upper) = upper {
            let _ = upper.ask(cx, error);
        }
        Answer::Answered
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.take());
    }
}

impl Session for BelowSession {
    fn push(&self, _: &Kernel, _: &SessionRef, _: Message) -> Result<(), PushError> {
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        Closing::Idle
    }
}

/// Takes replies and reports.
struct Pinger;

impl Protocol for Pinger {
    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Message,
    ) -> Result<(), Refused> {
        Ok(())
    }
}

/// Does what `data` says to a layer with one pinging session: arrivals, refused packets, requests,
/// time.
///
/// Each step is an octet that says what, one that says how much, and the octets it needs.
///
/// # Panics
/// If a message is neither answered, delivered, passed on nor counted, or one is left when the
/// graph is taken down.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 16,
    });
    let below = cx.add_protocol("ip", "ip", Below::default());
    let mut params = Params::default();
    params.set("timestamp", Value::Bool(true));
    let mut build = Build {
        cx: &cx,
        entry: &crate::ENTRY,
        name: "icmp",
        lowers: core::slice::from_ref(&below),
        params: &params,
    };
    let icmp = crate::build(&mut build).expect("the graph is right");
    let pinger = cx.add_protocol("pinger", "pinger", Pinger);
    cx.start().expect("it starts");
    let session = icmp.open(&cx, Upper::new(&pinger), Participants::default());
    let session = session.expect("a session below is there");
    let any = Participants::default();
    let lower = below.open(&cx, Upper::new(&icmp), any);
    let lower = lower.expect("a session below is there");
    let mut rest = data;
    while let [what, much, after @ ..] = rest {
        let (octets, after) = after.split_at(usize::from(*much).min(after.len()));
        rest = after;
        let Ok(message) = cx.pool().copy_from(128, octets) else {
            continue;
        };
        match what & 3 {
            0 => drop(lower.pop(&cx, message)),
            1 => drop(lower.pop(&cx, mended(&cx, octets, message))),
            2 => {
                let question = SendError {
                    packet: Some(message),
                    cause: SendErrorCause::NoRoute,
                    link_broadcast: *what & 4 != 0,
                };
                let _ = icmp.ask(&cx, question);
            }
            _ => {
                let _ = session.push(&cx, message);
                cx.set_now(cx.now().after(Duration::from_micros(u64::from(*much))));
            }
        }
    }
    check(&cx, &icmp, &pinger);
    drop((session, lower));
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}

/// The same octets under a good checksum.
fn mended(cx: &Kernel, octets: &[u8], message: Message) -> Message {
    let mut octets = octets.to_vec();
    if let Some(field) = octets.get_mut(2..4) {
        field.fill(0);
        let sum = xk_kit::net::checksum::checksum(&octets).to_be_bytes();
        octets[2..4].copy_from_slice(&sum);
    }
    cx.pool().copy_from(128, &octets).unwrap_or(message)
}

/// Every arrival has one outcome.
fn check(cx: &Kernel, icmp: &ProtocolRef, pinger: &ProtocolRef) {
    let figures = icmp.ask(cx, crate::IcmpFigures::default());
    let figures = figures.unwrap_or_default();
    let drops = icmp.head().drops();
    let untold = drops.of(&reasons::NOT_TOLD) + drops.of(&reasons::RATE_LIMITED);
    let outcomes = figures.requests_answered
        + figures.errors_received
        + pinger.head().received()
        + drops.total()
        - untold;
    assert_eq!(icmp.head().received(), outcomes, "each has one outcome");
}
