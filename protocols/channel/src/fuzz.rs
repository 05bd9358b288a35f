//! Fuzz targets: of the codec (what parses must come out again as it went in), and of the layer
//! between two others, where no call may be executed twice.

use crate::Limits;
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::ListSessions;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::numbers::Number;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits as Shepherding, NoSwitch, Shepherds};
use xk_core::{
    Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Session, SessionRef, Upper,
};
use xk_kit::rpc::incarnation::{FIRST, TICKET};

/// Parses `data` as a packet, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((octets, _)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    if let Ok(header) = Header::parse(octets) {
        assert_eq!(header.emit(), *octets, "the header changed");
    }
}

/// A lower layer with one session, which notes the ticket in every challenge.
struct Below(RefCell<Option<SessionRef>>);

#[derive(Default)]
struct Seen {
    ticket: Cell<u16>,
    executed: RefCell<BTreeSet<[u8; 8]>>,
}

struct BelowSession(ProtocolRef);

impl Protocol for Below {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let known = self.0.borrow().clone();
        let session = known.unwrap_or_else(|| {
            let body = BelowSession(upper.receiver.clone());
            cx.new_passive_session(this, upper.receiver, body)
        });
        session.hold();
        drop(self.0.replace(Some(session.clone())));
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.open(cx, this, upper, participants)?;
        Ok(Enable(0))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.take());
    }
}

impl Session for BelowSession {
    fn push(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        let header = message.peek::<HEADER_OCTETS>().map(Header::parse);
        if let (Some(Ok(header)), Some(seen)) = (header, cx.surroundings::<Seen>())
            && header.kind == Kind::Nack
            && !header.for_server
            && header.error != 0
        {
            seen.ticket.set(header.error);
        }
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.0.demux(cx, this, message)
    }
}

/// Serves requests that name themselves in their first octets, each only once.
struct Above(ProtocolRef);

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.0.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (name, seen) = (request.peek::<8>().copied(), cx.surroundings::<Seen>());
        let (Some(name), Some(seen)) = (name, seen) else {
            return Err(this.refuse(request, &xk_kit::rpc::call::BAD_ARGUMENTS));
        };
        let is_first = seen.executed.borrow_mut().insert(name);
        assert!(is_first, "a call was executed twice: {name:?}");
        Ok(request)
    }
}

/// How many channels there are at most.
const CHANNELS_MAX: usize = 6;

/// Takes `data` as steps of four octets: a kind, a channel, a number, and how. A step lets a packet
/// arrive, of a client that knows its ticket or not, or time pass, or the client makes a call. Then
/// takes everything down.
///
/// # Panics
/// If a call is executed twice, the bound on channels does not hold, or a message is left.
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
    let limits = Limits { channels_max: CHANNELS_MAX, hosts_max: 2 };
    let channel = crate::add(&cx, "channel", below.clone(), limits);
    let above = cx.add_protocol("above", "above", Above(channel.clone()));
    let seen = alloc::rc::Rc::new(Seen::default());
    cx.surround(alloc::rc::Rc::clone(&seen));
    assert!(cx.start().is_ok(), "the stack starts");
    let to = Participants::default();
    let Ok(lower) = below.open(&cx, Upper::new(&channel), to.clone()) else {
        return;
    };
    let own = channel.open(&cx, Upper::new(&above), to).ok();
    for step in data.as_chunks::<4>().0 {
        act(&cx, &lower, own.as_ref(), &seen, *step);
        let list = ListSessions { max: 0, sessions: alloc::vec::Vec::new(), total: 0 };
        let total = channel.ask(&cx, list).map_or(0, |list| list.total);
        assert!(total <= CHANNELS_MAX, "channels are bounded");
    }
    drop((own, lower));
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}

fn act(
    cx: &Kernel,
    lower: &SessionRef,
    own: Option<&SessionRef>,
    seen: &Seen,
    [kind, channel, sequence, how]: [u8; 4],
) {
    let kind = match kind % 9 {
        0 => {
            cx.set_now(cx.now().after(Duration::from_millis(50) * u32::from(how)));
            cx.run_due();
            return;
        }
        1 => {
            // Nobody can wait here: the call fails once its request has gone.
            if let (Some(own), Ok(request)) = (own, cx.pool().copy_from(128, &[how; 8])) {
                drop(own.call(cx, request));
            }
            return;
        }
        2 => Kind::Probe,
        3 => Kind::Ack,
        4 => Kind::Nack,
        5 => Kind::Reply,
        6 => Kind::Refusal,
        _ => Kind::Request,
    };
    let for_server = match kind {
        Kind::Request => true,
        Kind::Reply | Kind::Refusal => false,
        _ => how & 1 != 0,
    };
    let ticket = match how >> 1 & 3 {
        0 => 0,
        1 => seen.ticket.get(),
        2 => seen.ticket.get() | FIRST,
        _ => u16::from(how) << 8,
    };
    let header = Header {
        kind,
        for_server,
        please_ack: kind == Kind::Probe || how & 8 != 0 && !matches!(kind, Kind::Ack | Kind::Nack),
        payload: (how & 16 != 0).then_some(how >> 5),
        channel: u16::from(channel % 16),
        number: if how & 32 != 0 { 7 } else { 7 + u32::from(how >> 7) },
        sequence: u32::from(sequence),
        error: ticket,
        // One incarnation: the numbers of another would name other calls.
        boot: 77,
    };
    // A client takes a number again only if the server has forgotten it, and then with another
    // ticket.
    let (at, number) = (header.channel.to_be_bytes(), header.sequence.to_be_bytes());
    let shown = (ticket & TICKET).to_be_bytes();
    let body = [at[0], at[1], number[0], number[1], number[2], number[3], shown[0], shown[1]];
    if let Ok(mut message) = cx.pool().copy_from(128, &body)
        && message.push_array(&header.emit()).is_ok()
    {
        drop(lower.pop(cx, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn no_script_executes_a_call_twice() {
        let random = Random::new(1);
        for _ in 0..500 {
            let mut script: Vec<u8> = Vec::new();
            for _ in 0..400 {
                let word = random.next_u32().to_be_bytes();
                // Few channels and numbers, so that many are duplicates.
                script.extend([word[0], word[1] % 9, word[2] % 24, word[3]]);
            }
            fuzz_stack(&script);
            fuzz_wire(&script);
        }
    }
}
