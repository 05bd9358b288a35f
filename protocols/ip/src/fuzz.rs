//! Fuzz targets: of the codec (what parses must come out again as it went in), and of a router.

use crate::wire::{HEADER_LEN, HEADER_LEN_MAX, Ipv4, OptionsBuf, Packet, decrement_ttl};
use alloc::boxed::Box;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{Build, Params, Value};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Closing, Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Session,
    SessionRef, Upper,
};
use xk_kit::control::{DeliverError, NetworkError, NetworkErrorKind, OptPacket};

/// Parses `data` as a datagram, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    let len = packet.header.header_len();
    let mut octets = [0; HEADER_LEN_MAX];
    let written = packet.header.emit_with(packet.options, &mut octets);
    let written = written.expect("what was read fits");
    let again = Packet::parse(&[written, packet.payload].concat()).map(|p| p.header);
    assert_eq!(again, Ok(packet.header), "the header changed");
    let reserved = data[6] & 0x80 != 0;
    // A checksum of ones for zero is valid, but never written.
    if !reserved && data[10..12] != [0xff, 0xff] {
        assert_eq!(written, &data[..len], "the octets changed");
    }
    let mut buf = OptionsBuf::new();
    for option in packet.options {
        buf.push(option).expect("an option that was read can be written");
    }
    assert!(buf.options().into_iter().eq(packet.options), "the options changed");
    assert!(packet.options.copied().options().into_iter().all(|option| option.is_copied()));
    let mut fixed = [0; HEADER_LEN];
    fixed.copy_from_slice(&data[..HEADER_LEN]);
    if decrement_ttl(&mut fixed).is_some() {
        let whole = [&fixed, &data[HEADER_LEN..]].concat();
        let next = Packet::parse(&whole).expect("one hop on it is still valid");
        assert_eq!(next.header.ttl + 1, packet.header.ttl);
    }
}

/// A link with one peer, which swallows what is pushed.
#[derive(Default)]
struct Link(RefCell<Option<SessionRef>>);

struct LinkSession {
    upper: ProtocolRef,
}

impl Protocol for Link {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.session(cx, this, upper.receiver);
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
        self.session(cx, this, upper.receiver);
        Ok(Enable(0))
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(q) = ask.get::<LinkOf>() {
            q.0 = self.0.borrow().clone();
            return Answer::Answered;
        }
        ask.answer::<OptPacket>(|q| q.octets = 576)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.take());
    }
}

impl Link {
    fn session(&self, cx: &Kernel, this: &ProtocolRef, upper: &ProtocolRef) -> SessionRef {
        let known = self.0.borrow().clone();
        known.unwrap_or_else(|| {
            let body = LinkSession { upper: upper.clone() };
            let session = cx.new_passive_session(this, upper, body);
            *self.0.borrow_mut() = Some(session.clone());
            session
        })
    }
}

impl Session for LinkSession {
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

/// An upper layer that sends back the first messages that it takes.
struct Above {
    ip: ProtocolRef,
    answers: Cell<u32>,
}

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.ip.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(left) = self.answers.get().checked_sub(1) {
            self.answers.set(left);
            // What cannot go is not this test's business.
            let _ = lower.push(cx, message);
        }
        Ok(())
    }
}

/// The router under test, and what is around it.
struct Stack {
    cx: Kernel,
    links: [ProtocolRef; 2],
    ip: ProtocolRef,
    above: ProtocolRef,
}

fn block(values: &[(&'static str, &str)]) -> Params {
    let mut block = Params::default();
    for (name, value) in values {
        block.set(name, Value::Text(String::from(*value)));
    }
    block
}

impl Stack {
    fn new(pool: &Pool) -> Option<Self> {
        let cx = Kernel::new(Config {
            random: Random::new(1),
            pool: pool.clone(),
            shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
            timers_max: 64,
        });
        let links = ["a", "b"].map(|name| cx.add_protocol("link", name, Link::default()));
        let mut params = Params::default();
        params.set("forward", Value::Bool(true));
        params.set("sessions_max", Value::Integer(8));
        params.set("reassembly_octets_max", Value::Octets(8192));
        params.add_block("address", block(&[("address", "10.0.0.1/24")]));
        let second = [("address", "10.0.1.1/24"), ("on", "b")];
        params.add_block("address", block(&second));
        let route = [("network", "default"), ("via", "10.0.1.2")];
        params.add_block("route", block(&route));
        let mut build =
            Build { cx: &cx, entry: &crate::ENTRY, name: "ip", lowers: &links, params: &params };
        let ip = crate::build(&mut build).ok()?;
        let above = Above { ip: ip.clone(), answers: Cell::new(32) };
        let above = cx.add_protocol("above", "above", above);
        cx.numbers_mut().override_pair(above.id(), ip.id(), 17);
        cx.start().ok()?;
        Some(Self { cx, links, ip, above })
    }

    /// Lets octets arrive; with `mend`, under a good version, length and checksum.
    fn arrive(&self, at: usize, octets: &[u8], mend: bool) {
        let mut octets = octets.to_vec();
        let len = octets.len() as u16;
        if mend && let Some(header) = octets.first_chunk_mut::<HEADER_LEN>() {
            header[0] = 0x45;
            header[2..4].copy_from_slice(&len.to_be_bytes());
            header[10..12].fill(0);
            let sum = xk_kit::net::checksum::checksum(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let asked = self.links[at].ask(&self.cx, LinkOf(None)).and_then(|q| q.0);
        let (Some(session), Ok(message)) = (asked, self.cx.pool().copy_from(128, &octets)) else {
            return;
        };
        drop(session.pop(&self.cx, message));
    }

    /// Opens a session, sends, and closes it.
    fn send(&self, peer: Ipv4, len: usize) {
        let pair = Participants::pair(Part::Any, Part::Host(peer));
        let Ok(session) = self.ip.open(&self.cx, Upper::new(&self.above), pair) else {
            return;
        };
        if let Ok(message) = self.cx.pool().alloc(128, len) {
            let _ = session.push(&self.cx, message);
        }
        session.close(&self.cx);
    }

    /// Reports that a packet was too big for its path.
    fn report(&self, peer: Ipv4, mtu: u32) {
        let error = NetworkError {
            kind: NetworkErrorKind::PacketTooBig { mtu },
            reporter: None,
            session: None,
            start: [0; 16],
            start_len: 8,
        };
        let question =
            DeliverError { source: Ipv4::new(10, 0, 0, 1), destination: peer, protocol: 17, error };
        let _ = self.ip.ask(&self.cx, question);
    }

    fn pass(&self, time: Duration) {
        let end = self.cx.now().after(time);
        self.cx.run_due();
        while let Some(next) = self.cx.next_expiry().filter(|next| *next <= end) {
            self.cx.set_now(next);
            self.cx.run_due();
        }
        self.cx.set_now(end);
    }

    /// Every arrival has one outcome.
    fn check(&self) {
        let figures = self.ip.ask(&self.cx, crate::IpFigures::default());
        let figures = figures.unwrap_or_default();
        let drops = self.ip.head().drops();
        let reports = drops.of(&crate::reasons::UNMATCHED_ERROR);
        let outcomes = self.above.head().received() - figures.reassembled
            + figures.fragments_joined
            + figures.fragments_held as u64
            + figures.forwarded
            + drops.total()
            - reports;
        let arrived = self.ip.head().received() + figures.looped;
        assert_eq!(arrived, outcomes, "each is delivered, held, sent on or counted");
    }
}

/// The session of a link.
struct LinkOf(Option<SessionRef>);

impl xk_core::Question for LinkOf {
    const NAME: &'static str = "link-of";
}

/// Does what `data` says to a router with two links: arrivals, sending, reports, time.
///
/// Each step is an octet that says what, one that says how much, and what that needs.
///
/// # Panics
/// If a packet has not one outcome, or a message is left when the graph is taken down.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let stack = Stack::new(&pool).expect("the graph is right");
    let mut rest = data;
    while let [what, much, after @ ..] = rest {
        let peer = match much & 3 {
            0 => Ipv4::new(10, 0, 0, 1),
            1 => Ipv4::new(10, 0, 1, *much),
            2 => Ipv4::BROADCAST,
            _ => Ipv4::new(192, 0, 2, *much),
        };
        let mut taken = 0;
        match what & 7 {
            0..=3 => {
                taken = usize::from(*much).min(after.len());
                let (octets, mend) = (&after[..taken], *what & 2 != 0);
                stack.arrive(usize::from(*what & 1), octets, mend);
            }
            4 => stack.send(peer, usize::from(*what) * 37),
            5 => stack.report(peer, u32::from(*what) * 6),
            6 => stack.pass(Duration::from_millis(u64::from(*much))),
            _ => stack.pass(Duration::from_secs(u64::from(*much))),
        }
        rest = &after[taken..];
    }
    stack.pass(Duration::ZERO);
    stack.check();
    stack.cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}
