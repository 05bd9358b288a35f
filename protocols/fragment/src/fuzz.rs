//! Fuzz targets: of the codec (what parses must come out again as it went in), and of the layer
//! between two others.

use crate::wire::{HEADER_OCTETS, Header, Kind};
use crate::{FragmentFigures, Limits};
use alloc::boxed::Box;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::numbers::Number;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits as Shepherding, NoSwitch, Shepherds};
use xk_core::{
    Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Session, SessionRef, Upper,
};

/// Parses `data` as a packet, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((octets, payload)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    let Ok(header) = Header::parse(octets, payload.len()) else {
        return;
    };
    let mut expected = *octets;
    // Nobody reads the second octet.
    expected[1] = 0;
    assert_eq!(header.emit(), expected, "the header changed");
    assert!(usize::from(header.len) <= payload.len(), "the payload grew");
    assert!(
        header.kind == Kind::Nack || header.index() < usize::from(header.count),
        "the fragment is one of the message's"
    );
}

/// A lower layer with one session, which swallows what is pushed.
struct Below(RefCell<Option<SessionRef>>);

struct BelowSession(ProtocolRef);

impl Protocol for Below {
    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let upper = upper.receiver;
        let session = cx.new_passive_session(this, upper, BelowSession(upper.clone()));
        drop(self.0.replace(Some(session)));
        Ok(Enable(0))
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let session = self.0.borrow().clone();
        match session {
            Some(session) => session.pop(cx, message),
            None => Err(this.refuse(message, &xk_core::reason::CLOSED)),
        }
    }

    /// The harness asks for the session by opening it.
    fn open(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.0.borrow().clone().ok_or(OpenError::NoLower)?;
        session.hold();
        Ok(session)
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
        self.0.demux(cx, this, message)
    }
}

/// An upper layer that sends everything back, sixteen times as long: what fits one packet comes
/// back in several.
struct Above(ProtocolRef);

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.0.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        for _ in 0..4 {
            if let Ok(copy) = message.try_clone() {
                message.join(copy);
            }
        }
        // What is too large is counted below.
        let _ = lower.push(cx, message);
        Ok(())
    }
}

/// How many messages are collected, and kept, at most.
const BOUND: usize = 5;

/// Lets `data` arrive as packets, each behind an octet of its length; a length of 0 lets as many
/// hundredths of a second pass as the octet behind it says. Then takes everything down.
///
/// # Panics
/// If a bound does not hold, or a message is left.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Shepherding::default()),
        timers_max: 64,
    });
    let number = Number { upper: "above", lower: crate::ENTRY.kind, number: 7 };
    assert!(cx.numbers_mut().add(number).is_ok(), "one number");
    let below = cx.add_protocol("below", "below", Below(RefCell::default()));
    let limits = Limits {
        sessions_max: 4,
        outstanding_max: BOUND,
        partial_max: BOUND,
        partial_per_peer: BOUND - 1,
    };
    let fragment = crate::add(&cx, "fragment", below.clone(), limits);
    let above = cx.add_protocol("above", "above", Above(fragment.clone()));
    assert!(cx.start().is_ok(), "the stack starts");
    let Ok(session) = below.open(&cx, Upper::new(&above), Participants::default()) else {
        return;
    };
    let mut rest = data;
    while let Some((len, after)) = rest.split_first() {
        if *len == 0 {
            let hundredths = after.first().copied().unwrap_or(0);
            cx.set_now(cx.now().after(Duration::from_millis(10) * u32::from(hundredths)));
            cx.run_due();
            rest = after.get(1..).unwrap_or(&[]);
            continue;
        }
        let (packet, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        if let Ok(message) = cx.pool().copy_from(128, packet) {
            drop(session.pop(&cx, message));
        }
        let figures = fragment.ask(&cx, FragmentFigures::default());
        let figures = figures.unwrap_or_default();
        assert!(figures.partial < BOUND as u64, "it collects within its bound");
        assert!(figures.outstanding <= BOUND as u64, "it keeps within its bound");
    }
    session.close(&cx);
    drop(session);
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn packet(kind: Kind, sequence: u32, count: u8, mask: u16) -> Vec<u8> {
        let len = if kind == Kind::Nack { 0 } else { 200 };
        let header =
            Header { kind, client: [0; 4], server: [0; 4], number: 7, sequence, count, mask, len };
        let mut packet = Vec::from([HEADER_OCTETS as u8 + len as u8]);
        packet.extend(header.emit());
        packet.resize(packet.len() + usize::from(len), 0x5a);
        packet
    }

    #[test]
    fn damaged_conversations_do_no_harm() {
        let mut script = Vec::new();
        for sequence in 0..12 {
            for index in 0..3 {
                if (sequence + index) % 4 != 0 {
                    script.extend(packet(Kind::Send, sequence, 3, 1 << index));
                }
            }
            script.extend([0, (sequence % 7) as u8]);
            script.extend(packet(Kind::Retransmit, sequence, 3, 4));
            script.extend(packet(Kind::Nack, sequence, 3, 3));
            script.extend(packet(Kind::Send, 100 + sequence, 1, 1));
        }
        fuzz_stack(&script);
        let random = Random::new(1);
        for _ in 0..300 {
            let mut damaged = script.clone();
            for _ in 0..=random.below(20) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.next_u64() as u8;
            }
            fuzz_stack(&damaged);
            fuzz_wire(&damaged[1..]);
        }
    }
}
