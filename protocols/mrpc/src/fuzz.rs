//! Fuzz targets: of the header, and of the layer as server and client between two others, with time
//! steps.

use crate::wire::{ACK, ERROR, HEADER_LEN, Header, NACK, REPLY, REQUEST, SERVER};
use crate::{Config, Parameters};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Pool, Protocol, ProtocolRef,
    Session, SessionRef, Upper, kernel,
};
use xk_kit::control::{MyHost, PeerHost};
use xk_kit::rpc::call::PROCEDURE;

/// Reads `data` as a header, writes it again and compares; says whether it is acceptable, and
/// prints it.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((octets, body)) = data.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let header = Header::parse(octets);
    assert_eq!(header.emit(), *octets, "the header changed");
    if header.check(body.len()).is_ok() {
        assert!(header.body_len() <= body.len(), "no octet beyond the end");
        assert!(header.mask & !header.all() == 0 || header.flags & (REQUEST | REPLY) == 0);
    }
    let _ = alloc::format!("{header}");
}

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// What is left of the input.
#[derive(Default)]
struct Script {
    data: RefCell<Vec<u8>>,
    at: Cell<usize>,
}

impl Script {
    fn next(&self) -> u8 {
        let at = self.at.get();
        self.at.set(at + 1);
        self.data.borrow().get(at).copied().unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.at.get() >= self.data.borrow().len()
    }
}

/// What the layers around the one under test share.
#[derive(Default)]
struct Stage {
    script: Script,
    session: RefCell<Option<SessionRef>>,
    /// The last ticket that was sent.
    ticket: Cell<u16>,
    /// How many calls were executed.
    executed: Cell<u64>,
    /// The calls that were: boot id, ticket, channel and number. Under another ticket it is another
    /// incarnation's.
    known: RefCell<BTreeSet<(u32, u16, u16, u32)>>,
    /// How deep pushes are nested.
    depth: Cell<u32>,
}

impl Stage {
    fn deliver(&self, cx: &Kernel, octets: &[u8]) {
        let session = self.session.borrow().clone();
        if let (Some(session), Ok(message)) = (session, cx.pool().copy_from(128, octets)) {
            drop(session.pop(cx, message));
        }
    }

    /// Any octets.
    fn raw(&self, cx: &Kernel) {
        let len = usize::from(self.script.next());
        let octets: Vec<u8> = (0..len).map(|_| self.script.next()).collect();
        self.deliver(cx, &octets);
    }

    /// A packet that is nearly right: `like` it, but for what the script says.
    fn crafted(&self, cx: &Kernel, like: &Header) {
        let script = &self.script;
        let (fragments, index, kind) = (script.next(), script.next(), script.next());
        let (size, shift) = (u16::from(script.next()), script.next());
        let mut header = *like;
        header.flags ^= u16::from(kind & 0x0f);
        header.fragments = u16::from(fragments % 18);
        header.mask = match header.fragments {
            0 => u16::from(kind >> 6),
            _ => 1 << (index % 16),
        };
        header.sizes = [u16::from(kind >> 4 & 1) * size, size];
        header.offsets = match header.fragments {
            0 => [0, u16::from(shift >> 7)],
            _ => [0, u16::from(index % 16) * size + u16::from(shift >> 6)],
        };
        header.sequence = header.sequence.wrapping_add(u32::from(shift & 0x0f)).wrapping_sub(1);
        let mut octets = header.emit().to_vec();
        octets.resize(HEADER_LEN + header.body_len(), index);
        self.deliver(cx, &octets);
    }

    /// A request to the server half, which is executed once at most.
    fn request(&self, cx: &Kernel) {
        let script = &self.script;
        let (choice, channel) = (script.next(), script.next());
        let mark = if choice & 4 == 0 { 0 } else { xk_kit::rpc::incarnation::FIRST };
        let like = Header {
            flags: if choice & 8 == 0 { REQUEST | SERVER } else { ACK | SERVER },
            client_host: PEER.to_bits(),
            server_host: OWN.to_bits(),
            channel: u16::from(channel % 3),
            process: if choice & 1 == 0 { self.ticket.get() | mark } else { choice.into() },
            sequence: 100 + u32::from(channel >> 2),
            command: u16::from(choice >> 5),
            boot: 7 + u32::from(choice >> 4 & 1),
            ..Header::default()
        };
        let before = self.executed.get();
        self.crafted(cx, &like);
        assert!(self.executed.get() <= before + 1, "one packet, one execution");
    }

    /// What comes while a call waits; the call's request is given.
    fn answers(&self, cx: &Kernel, request: &Header) {
        self.depth.set(self.depth.get() + 1);
        let count = if self.depth.get() > 4 { 0 } else { self.script.next() % 8 };
        for _ in 0..count {
            let choice = self.script.next();
            let flags = [REPLY, ACK, NACK, NACK | ERROR, REPLY | ERROR];
            let like = Header {
                flags: flags[usize::from(choice) % flags.len()],
                process: match choice & 0x40 {
                    0 => request.process & !xk_kit::rpc::incarnation::FIRST,
                    _ => 9,
                },
                // The same number, if the script leaves it alone.
                sequence: request.sequence.wrapping_add(1),
                boot: 50 + u32::from(choice >> 7),
                ..*request
            };
            self.crafted(cx, &like);
        }
        self.depth.set(self.depth.get() - 1);
    }
}

/// A lower layer with one peer, which notes tickets and has the script answer.
struct Below(Rc<Stage>);

impl Protocol for Below {
    fn open(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.0.session.borrow().clone();
        let session = session.ok_or(OpenError::NoLower)?;
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
        let body = BelowSession(upper.receiver.clone(), Rc::clone(&self.0));
        let session = cx.new_passive_session(this, upper.receiver, body);
        session.hold();
        *self.0.session.borrow_mut() = Some(session);
        Ok(Enable(0))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.session.take());
    }
}

struct BelowSession(ProtocolRef, Rc<Stage>);

impl Session for BelowSession {
    fn push(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        let mut octets = [0; HEADER_LEN];
        assert_eq!(message.copy_to(0, &mut octets), HEADER_LEN, "a header is in front");
        assert!(message.len() <= crate::PACKET_OCTETS_MAX, "one packet");
        let header = Header::parse(&octets);
        assert_eq!(header.check(message.len() - HEADER_LEN), Ok(()), "what is sent is right");
        if header.flags & SERVER == 0 {
            self.1.ticket.set(header.process);
        } else if header.flags & REQUEST != 0 {
            self.1.answers(cx, &header);
        }
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        let mut octets = [0; HEADER_LEN];
        let is_whole = message.copy_to(0, &mut octets) == HEADER_LEN;
        let before = self.1.executed.get();
        let result = self.0.demux(cx, this, message);
        if is_whole && self.1.executed.get() > before {
            let header = Header::parse(&octets);
            let ticket = header.process & !xk_kit::rpc::incarnation::FIRST;
            let call = (header.boot, ticket, header.channel, header.sequence);
            assert!(self.1.known.borrow_mut().insert(call), "executed twice: {header}");
        }
        result
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if ask.answer::<PeerHost>(|q| q.host = PEER).is_answered() {
            return Answer::Answered;
        }
        ask.answer::<MyHost>(|q| q.host = OWN)
    }
}

/// An upper layer that sends requests back, but for those of procedure 1.
struct Above(ProtocolRef, Rc<Stage>);

impl Protocol for Above {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for procedure in [0, 1, 2] {
            let local = Participants::local(Part::Number(PROCEDURE, procedure));
            let _ = self.0.open_enable(cx, Upper::new(this), local)?;
        }
        Ok(())
    }

    fn call_demux(
        &self,
        _: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        self.1.executed.set(self.1.executed.get() + 1);
        if message.len() % 7 == 1 {
            return Err(this.refuse(message, &xk_kit::rpc::call::BAD_ARGUMENTS));
        }
        Ok(message)
    }
}

fn call(cx: &Kernel, session: &SessionRef, script: &Script) {
    let (len, area1) = (usize::from(script.next()) * 80, u16::from(script.next()));
    let octets = alloc::vec![1; len];
    let Ok(mut message) = cx.pool().copy_from(128, &octets) else {
        return;
    };
    if area1 & 1 != 0 {
        let _ = message.set_attribute(Parameters { octets: area1 });
    }
    drop(session.call(cx, message));
}

/// Lets `data` be the script of what arrives, is called, and how time goes by, at a host with three
/// procedures; then takes everything down.
///
/// # Panics
/// If a call is executed twice, a packet sent is wrong, or a message is left.
pub fn fuzz_stack(data: &[u8]) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(1 << 20)) else {
        return;
    };
    let cx = Kernel::new(kernel::Config {
        random: Random::new(1),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 16,
    });
    let stage = Rc::new(Stage::default());
    *stage.script.data.borrow_mut() = data.to_vec();
    let below = cx.add_protocol("below", "below", Below(Rc::clone(&stage)));
    let config = Config { processes_max: 2, ..Config::default() };
    let mrpc = crate::add(&cx, "mrpc", below, config);
    let above = cx.add_protocol("above", "above", Above(mrpc.clone(), Rc::clone(&stage)));
    assert!(cx.start().is_ok(), "the stack starts");
    let peer = Participant::of(Part::Host(PEER)).with(Part::Number(PROCEDURE, 2));
    let both = Participants::pair(Part::Any, peer);
    let session = mrpc.open(&cx, Upper::new(&above), both);
    assert!(session.is_ok(), "a session opens");
    while !stage.script.is_over() {
        match stage.script.next() % 8 {
            0 => stage.raw(&cx),
            1..=4 => stage.request(&cx),
            5 => {
                let ms = 1 << (stage.script.next() % 18);
                cx.set_now(cx.now().after(Duration::from_millis(ms)));
                cx.run_due();
            }
            _ => {
                if let Ok(session) = &session {
                    call(&cx, session, &stage.script);
                }
            }
        }
    }
    drop(session);
    cx.stop();
    assert_eq!(pool.stats().descriptors_live, 0, "nothing is left");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_script_keeps_the_laws(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::fuzz_stack(&data);
            super::fuzz_wire(&data);
        }
    }
}
