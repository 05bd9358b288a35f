//! Fuzz targets: of the codec (what parses must come out again as it went in), and of the layer
//! between two others.

use crate::wire::{HEADER_LEN, Header, IP_PROTOCOL, Template};
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
    Answer, Ask, Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Session,
    SessionRef, Upper,
};
use xk_kit::Checksum;
use xk_kit::control::{NetworkError, NetworkErrorKind, PeerHost, PseudoHeader};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::ports::Pseudo;

/// Parses `data` as a datagram, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let header = Header::parse(head);
    assert_eq!(header.octets(), *head, "the header changed");
    let Some(payload) = header.payload(rest.len()).and_then(|octets| rest.get(..octets)) else {
        return;
    };
    let (src, dst) = (Ipv4::new(192, 0, 2, 1), Ipv4::new(198, 51, 100, 2));
    let sum = Checksum::pseudo_header(src, dst, IP_PROTOCOL, 0);
    let pseudo = Some(Pseudo { sent: sum, received: sum });
    let template = Template::new((header.src(), header.dst()), pseudo, true);
    let is_intact = template.sum_received(header, payload.len()).is_none_or(|mut sum| {
        sum.add(payload);
        sum.is_valid()
    });
    if is_intact && header.checksum() != 0 {
        let sum = template.sum_sent(payload.len()).map(|mut sum| {
            sum.add(payload);
            sum
        });
        assert_eq!(template.header(payload.len(), sum), header, "the checksum changed");
    }
}

/// A lower layer that stands for IP: one session, which answers for addresses and swallows what is
/// pushed.
struct Below {
    session: RefCell<Option<SessionRef>>,
}

struct BelowSession {
    upper: ProtocolRef,
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
        let body = BelowSession { upper: upper.clone() };
        *self.session.borrow_mut() = Some(cx.new_passive_session(this, &upper, body));
        Ok(Enable(0))
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let session = self.session.borrow().clone();
        session.map_or(Answer::Unknown, |session| session.control(cx, ask))
    }

    /// A timer brings the message that lies in the surroundings.
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        let session = self.session.borrow().clone();
        let data = cx.surroundings::<Vec<u8>>().unwrap_or_default();
        let Some(session) = session else { return };
        let mut rest = &data[..];
        // One octet of length, then the datagram.
        while let Some((len, after)) = rest.split_first() {
            let (datagram, after) = after.split_at(usize::from(*len).min(after.len()));
            rest = after;
            if let Ok(message) = cx.pool().copy_from(128, datagram) {
                drop(session.pop(cx, message));
            }
            report(cx, &session, datagram);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}

/// Reports an error about the datagram to the layer that sent it.
fn report(cx: &Kernel, session: &SessionRef, datagram: &[u8]) {
    let mut start = [0; 16];
    let known = datagram.len().min(start.len());
    start[..known].copy_from_slice(&datagram[..known]);
    let error = NetworkError {
        kind: NetworkErrorKind::PortUnreachable,
        reporter: None,
        session: Some(session.clone()),
        start,
        start_len: known,
    };
    if let Some(udp) = cx.protocol(session.head().upper()) {
        let _ = udp.ask(cx, error);
    }
}

impl Session for BelowSession {
    fn push(&self, _: &Kernel, _: &SessionRef, _: Message) -> Result<(), PushError> {
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if ask.answer::<PeerHost>(|q| q.host = Ipv4::LOCALHOST).is_answered() {
            return Answer::Answered;
        }
        ask.answer::<PseudoHeader>(|q| (q.sum, q.sum_sent) = (17, 17))
    }
}

/// An upper layer that sends everything back.
struct Above(ProtocolRef);

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(Part::port(7));
        let enabled = self.0.open_enable(cx, Upper::new(this), local);
        let unconnected = Participants::pair(Part::port(53), Part::Any);
        self.0.open(cx, Upper::new(this), unconnected)?;
        enabled.map(drop)
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        // What comes from port zero has no way back.
        let _ = lower.push(cx, message);
        Ok(())
    }
}

/// Lets `data` arrive as datagrams, each behind an octet of its length, at a layer whose ports 7
/// (enabled) and 53 (unconnected) are taken; then takes everything down.
///
/// # Panics
/// If a datagram is neither delivered nor counted, or a message is left.
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
    let session = RefCell::default();
    let below = cx.add_protocol("below", "below", Below { session });
    let udp = crate::add(&cx, "udp", below.clone(), 4, true);
    let above = cx.add_protocol("above", "above", Above(udp.clone()));
    cx.surround(Rc::new(data.to_vec()));
    assert!(cx.start().is_ok(), "the stack starts");
    assert!(cx.schedule_protocol(&below, Duration::ZERO, 0).is_ok());
    cx.run_due();
    let (arrived, dropped) = (udp.head().received(), udp.head().drops());
    // The echo's replies that could not be sent are counted at the same object.
    let replies = [
        &xk_kit::net::ports::NO_REPLY,
        &xk_kit::net::ports::UNREACHABLE,
        &xk_kit::net::ports::NO_PEER,
        &crate::unconnected::NO_ROUTE,
    ];
    let unsent: u64 = replies.iter().map(|why| dropped.of(why)).sum();
    let lost = dropped.total() - unsent;
    assert_eq!(arrived, above.head().received() + lost, "each is delivered or counted");
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}
