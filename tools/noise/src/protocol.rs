//! The protocol object: a session, a timer, a generator.

use crate::generator::{FRAME_OCTETS_MAX, Generator, Kind, Target};
use alloc::string::ToString;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_appletalk::addr::Node;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper, reason,
};
use xk_kit::{Cidr, EthAddr};

/// Groups of frames a second, at most.
const GROUPS_PER_SECOND: u64 = 1000;
/// Octets of an ARP packet behind its Ethernet header.
const ARP_FRAME_OCTETS: usize = 42;

/// One instance.
pub struct Noise {
    lower: ProtocolRef,
    session: SessionSlot,
    generator: RefCell<Generator>,
    target: Target,
    /// Number of frames in all; 0 for no end.
    count: u64,
    rate: u64,
    start: Duration,
    answers: bool,
    sent: Cell<u64>,
    refused: Cell<u64>,
    received: Cell<u64>,
    answered: Cell<u64>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    const HOST: &str = "an IPv4 address, such as 10.0.0.1";
    const ETHER: &str = "a hardware address, such as 02:00:00:00:00:01";
    const NODE: &str = "a node, such as 10.18";
    const NET: &str = "an IPv4 network of at least four hosts, such as 10.0.0.0/8";
    let sources = params.parse::<Cidr>("sources", NET)?;
    let sources = match sources {
        Some(net) => Some(net).filter(|net| net.prefix() <= 30),
        None => "10.0.0.0/8".parse().ok(),
    };
    let target = Target {
        ether: params
            .parse::<EthAddr>("ether", ETHER)?
            .ok_or_else(|| BuildError::param("ether", ETHER))?,
        host: params.parse::<Ipv4Addr>("to", HOST)?.ok_or_else(|| BuildError::param("to", HOST))?,
        node: params.parse::<Node>("node", NODE)?.unwrap_or_default(),
        port: params.number("port", 7),
        sources: sources.ok_or_else(|| BuildError::param("sources", NET))?,
    };
    let kind = params.text("kind").and_then(Kind::from_word);
    let seed = match params.number("seed", 0u64) {
        0 => build.cx.random().next_u64(),
        seed => seed,
    };
    let generator = Generator::new(target, kind.unwrap_or(Kind::Mixed), seed);
    build.add(Noise {
        lower: build.lower(0)?,
        session: SessionSlot::default(),
        generator: RefCell::new(generator),
        target,
        count: params.number("count", 0),
        rate: params.number("rate", 1000u64).max(1),
        start: params.duration("start", Duration::ZERO),
        answers: params.flag("answers"),
        sent: Cell::new(0),
        refused: Cell::new(0),
        received: Cell::new(0),
        answered: Cell::new(0),
    })
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

impl Noise {
    /// Number of frames of one group.
    fn group(&self) -> u64 {
        self.rate.div_ceil(GROUPS_PER_SECOND)
    }

    fn is_done(&self) -> bool {
        self.count > 0 && self.sent.get() >= self.count
    }

    /// Sends a group; one that the wire does not take ends it.
    fn send(&self, cx: &Kernel, session: &SessionRef) {
        let mut frame = [0; FRAME_OCTETS_MAX];
        for _ in 0..self.group() {
            if self.is_done() {
                return;
            }
            let len = self.generator.borrow_mut().next(&mut frame);
            let message = cx.pool().copy_from(0, &frame[..len]);
            let pushed = message.is_ok_and(|message| session.push(cx, message).is_ok());
            if !pushed {
                add(&self.refused);
                // One that is too short for the wire is no reason to wait.
                if len >= 14 {
                    return;
                }
                continue;
            }
            add(&self.sent);
        }
    }

    fn arm(&self, cx: &Kernel, this: &ProtocolRef, delay: Duration) {
        // Without a timer it falls silent, as an attacker within the machine may.
        let _ = cx.schedule_protocol(this, delay, 0);
    }

    /// Answers an ARP request (RFC 826) for a host that it pretends to be.
    fn answer(&self, cx: &Kernel, frame: &[u8; ARP_FRAME_OCTETS]) {
        let asked = Ipv4Addr::new(frame[38], frame[39], frame[40], frame[41]);
        let is_request = frame[12..14] == [8, 6] && frame[20..22] == [0, 1];
        if !is_request || asked == self.target.host || !self.target.sources.contains(asked) {
            return;
        }
        let station = Generator::station_of(asked).0;
        let mut reply = *frame;
        reply[..6].copy_from_slice(&frame[6..12]);
        reply[6..12].copy_from_slice(&station);
        reply[21] = 2;
        reply[22..28].copy_from_slice(&station);
        reply[28..32].copy_from_slice(&asked.octets());
        reply[32..42].copy_from_slice(&frame[22..32]);
        self.reply(cx, &reply);
    }

    fn reply(&self, cx: &Kernel, frame: &[u8]) {
        let (Some(session), Ok(message)) = (self.session.get(), cx.pool().copy_from(0, frame))
        else {
            return;
        };
        if session.push(cx, message).is_ok() {
            add(&self.answered);
        }
    }
}

impl Protocol for Noise {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let session = self.lower.open(cx, Upper::new(this), Participants::default())?;
        drop(self.session.replace(Some(session)));
        self.arm(cx, this, self.start.max(Duration::from_nanos(1)));
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        add(&self.received);
        let mut frame = [0; FRAME_OCTETS_MAX];
        let len = message.copy_to(0, &mut frame);
        if self.answers
            && let Some(request) = frame[..len].first_chunk()
        {
            self.answer(cx, request);
        }
        self.generator.borrow_mut().hear(&frame[..len]);
        let mut reply = [0; FRAME_OCTETS_MAX];
        let completed = self.generator.borrow().complete(&frame[..len], &mut reply);
        if let Some(len) = completed {
            self.reply(cx, &reply[..len]);
        }
        this.discard(message, &reason::NOT_MINE);
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let Some(session) = self.session.get() else {
            return;
        };
        self.send(cx, &session);
        if !self.is_done() {
            let nanos = self.group().saturating_mul(1_000_000_000) / self.rate;
            self.arm(cx, this, Duration::from_nanos(nanos.max(1)));
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(report) = ask.get::<Report>() else {
            return self.lower.control(cx, ask);
        };
        let figures = [
            ("sent", &self.sent),
            ("refused", &self.refused),
            ("received", &self.received),
            ("answered", &self.answered),
        ];
        for (name, figure) in figures {
            let line = (name.to_string(), figure.get().to_string());
            report.lines.push(line);
        }
        report.finished = self.count == 0 || self.is_done();
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.session.close(cx);
    }
}
