//! Fuzz targets: of the codec (what parses must come out again as it went in), and of the layer
//! between two others.

use crate::connection::Settings;
use crate::wire::{CHECKSUM_AT, HEADER_LEN, HEADER_LEN_MAX, Header};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Pool, Protocol, ProtocolRef,
    Session, SessionRef, Upper,
};
use xk_kit::Checksum;
use xk_kit::control::{MyHost, NetworkError, NetworkErrorKind, PeerHost, PseudoHeader};
use xk_kit::net::addr::Ipv4;

/// Parses `data` as a segment, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok((header, length)) = Header::parse(data) else {
        return;
    };
    assert!(length <= data.len(), "the header lies in the segment");
    let mut octets = [0; HEADER_LEN_MAX];
    let written = header.emit(&mut octets);
    let again = Header::parse(&octets[..written]);
    assert_eq!(again, Ok((header, written)), "the header changed");
    assert_eq!(octets[..12], data[..12], "ports or numbers changed");
}

/// A lower layer that stands for IP: one session, which answers for addresses and swallows what is
/// pushed.
struct Below {
    session: Rc<RefCell<Option<SessionRef>>>,
    /// The last segment sent: sequence number and acknowledgement, for answers that fit.
    numbers: Rc<RefCell<[u8; 8]>>,
}

struct BelowSession {
    upper: ProtocolRef,
    numbers: Rc<RefCell<[u8; 8]>>,
}

impl Protocol for Below {
    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let upper = upper.receiver.clone();
        let body = BelowSession { upper: upper.clone(), numbers: Rc::clone(&self.numbers) };
        *self.session.borrow_mut() = Some(cx.new_passive_session(this, &upper, body));
        Ok(Enable(0))
    }

    fn open(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.session.borrow().clone().ok_or(OpenError::NoLower)?;
        session.hold();
        Ok(session)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let session = self.session.borrow().clone();
        session.map_or(Answer::Unknown, |session| session.control(cx, ask))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}

/// A segment with a right checksum and, if it `answers`, numbers next to those of what was sent
/// last.
fn fit(segment: &[u8], numbers: [u8; 8], answers: bool) -> Vec<u8> {
    let mut segment = segment.to_vec();
    let len = segment.len() as u32;
    if let Some(fixed) = segment.first_chunk_mut::<HEADER_LEN>() {
        let near = |at: usize, last: &[u8], more: u8| {
            let last = last.get(at..at + 4).and_then(|four| four.first_chunk());
            let last = u32::from_be_bytes(*last.unwrap_or(&[0; 4]));
            (last.wrapping_add(u32::from(more & 15))).to_be_bytes()
        };
        if answers {
            let (seq, ack) = (near(4, &numbers, fixed[7]), near(0, &numbers, fixed[11]));
            fixed[4..8].copy_from_slice(&seq);
            fixed[8..12].copy_from_slice(&ack);
        }
        fixed[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    }
    let mut sum = Checksum::new();
    sum.add_u32(PSEUDO + len);
    sum.add(&segment);
    if let Some(field) = segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
    segment
}

/// The sum over addresses and protocol number.
const PSEUDO: u32 = 6;

/// Reports an error about the segment to the layer that sent it.
fn report(cx: &Kernel, session: &SessionRef, segment: &[u8]) {
    let mut start = [0; 16];
    let known = segment.len().min(start.len());
    start[..known].copy_from_slice(&segment[..known]);
    let error = NetworkError {
        kind: NetworkErrorKind::PortUnreachable,
        reporter: None,
        session: Some(session.clone()),
        start,
        start_len: known,
    };
    if let Some(tcp) = cx.protocol(session.head().upper()) {
        let _ = tcp.ask(cx, error);
    }
}

impl Session for BelowSession {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        message.copy_to(4, &mut *self.numbers.borrow_mut());
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if ask.answer::<PeerHost>(|q| q.host = Ipv4::LOCALHOST).is_answered() {
            return Answer::Answered;
        }
        if ask.answer::<MyHost>(|q| q.host = Ipv4::LOCALHOST).is_answered() {
            return Answer::Answered;
        }
        ask.answer::<PseudoHeader>(|q| (q.sum, q.sum_sent) = (PSEUDO, PSEUDO))
    }
}

/// An upper layer that sends everything back.
struct Above(ProtocolRef);

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(Part::port(7));
        let enabled = self.0.open_enable(cx, Upper::new(this), local);
        let peer = Participant::of(Part::Host(Ipv4::LOCALHOST)).with(Part::port(9));
        let pair = Participants::pair(Part::port(53), peer);
        self.0.open(cx, Upper::new(this), pair)?;
        enabled.map(drop)
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        // What does not fit the send buffer is counted there.
        let _ = lower.push(cx, message);
        Ok(())
    }
}

/// A segment arrives, and the network says that it found nobody there.
fn arrive(cx: &Kernel, session: &SessionRef, segment: &[u8]) {
    if let Ok(message) = cx.pool().copy_from(128, segment) {
        drop(session.pop(cx, message));
    }
    if segment.len() & 2 != 0 {
        report(cx, session, segment);
    }
}

/// Lets time pass.
fn pass(cx: &Kernel, time: Duration) {
    cx.set_now(cx.now() + time);
    cx.run_due();
}

/// Lets `data` arrive as segments, each behind an octet of its length (odd: with numbers that fit
/// what was sent; 0: nothing arrives, and as many hundredths of a second pass as the next octet
/// says), at a layer whose port 7 is enabled and that opens a connection from port 53; lets minutes
/// pass, then takes everything down.
///
/// # Panics
/// If a message or a timer is left.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 64,
    });
    let session = Rc::default();
    let numbers = Rc::default();
    let below = Below { session: Rc::clone(&session), numbers: Rc::clone(&numbers) };
    let below = cx.add_protocol("below", "below", below);
    let tcp = crate::add(&cx, "tcp", below, 4, Settings::default());
    cx.add_protocol("above", "above", Above(tcp));
    assert!(cx.start().is_ok(), "the stack starts");
    let lower = session.borrow().clone();
    let mut rest = data;
    while let (Some(lower), Some((len, after))) = (&lower, rest.split_first()) {
        let len = usize::from(*len);
        if len == 0 {
            let (hundredths, after) = after.split_first().unwrap_or((&0, after));
            pass(&cx, Duration::from_millis(10) * u32::from(*hundredths));
            rest = after;
            continue;
        }
        let (segment, after) = after.split_at(len.min(after.len()));
        let last: [u8; 8] = *numbers.borrow();
        arrive(&cx, lower, &fit(segment, last, len & 1 == 1));
        rest = after;
    }
    drop(lower);
    for _ in 0..200 {
        pass(&cx, Duration::from_millis(700));
    }
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}
