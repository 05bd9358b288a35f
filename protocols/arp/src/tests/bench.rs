//! The protocol between a link layer that keeps what it gets and an upper that notes what it is
//! asked: for the tests and the fuzz target.

use crate::protocol::Arp;
use crate::shared::Config;
use crate::wire::{EthAddr, Ipv4, PACKET_LEN, Packet};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Config as KernelConfig;
use xk_core::map::Map;
use xk_core::message::PoolConfig;
use xk_core::numbers::Number;
use xk_core::object::{Closing, Enable, OpenError, Popped, PushError, Refused, SessionTable};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Pool, Protocol, ProtocolRef, Reason, Session,
    SessionRef, Upper, reason,
};
use xk_kit::control::{
    ClaimHost, HostConflict, MaxPacket, MyEther, NetworkError, NetworkErrorKind, PeerEther,
    SendError,
};

/// This station's address.
pub(crate) const MINE: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);
/// Another station's.
pub(crate) const PEER: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);
/// The host of ours.
pub(crate) const ME: Ipv4 = Ipv4::new(192, 0, 2, 1);
/// Another host.
pub(crate) const YOU: Ipv4 = Ipv4::new(192, 0, 2, 2);
/// The type number of packets.
pub(crate) const TYPE_ARP: u32 = 0x0806;
/// The upper's type number.
pub(crate) const TYPE_UPPER: u32 = 0x0800;

/// A frame that was sent: to which station, under which number, with which octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) to: EthAddr,
    pub(crate) number: u32,
    pub(crate) octets: Vec<u8>,
}

type Sessions = Rc<SessionTable<([u8; 6], u32)>>;

/// A link layer that keeps what is sent.
struct Link {
    sessions: Sessions,
    enables: Map<u32, ProtocolRef>,
    sent: Rc<RefCell<Vec<Frame>>>,
}

struct LinkSession {
    sessions: Sessions,
    key: ([u8; 6], u32),
    upper: ProtocolRef,
    sent: Rc<RefCell<Vec<Frame>>>,
}

impl Link {
    fn body(&self, key: ([u8; 6], u32), upper: &ProtocolRef) -> LinkSession {
        LinkSession {
            sessions: Rc::clone(&self.sessions),
            key,
            upper: upper.clone(),
            sent: Rc::clone(&self.sent),
        }
    }
}

impl Protocol for Link {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = upper.number_on(cx, this)?;
        let key = (participants.peer_mut()?.pop_ether()?.definite()?, number);
        if let Some(session) = self.sessions.get(&key) {
            session.hold();
            return Ok(session);
        }
        let session = cx.new_session(this, upper.receiver, self.body(key, upper.receiver));
        let bound = self.sessions.bind(cx, key, session.clone());
        bound.map_err(|_| OpenError::Full)?;
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = upper.number_on(cx, this)?;
        let bound = self.enables.bind(number, upper.receiver.clone());
        bound.map_err(|_| OpenError::InUse)?;
        Ok(Enable(u64::from(number)))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.enables.unbind(&(enable.0 as u32));
    }

    /// A frame that arrives: the sender's address, the number, the payload.
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(&[a, b, c, d, e, f, g, h]) = message.pop_array::<8>() else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let key = ([a, b, c, d, e, f], u32::from(u16::from_be_bytes([g, h])));
        if let Some(session) = self.sessions.get(&key) {
            return session.pop(cx, message);
        }
        let Some(upper) = self.enables.get(&key.1) else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        let session = cx.new_passive_session(this, &upper, 0, self.body(key, &upper));
        if let Err(full) = self.sessions.bind(cx, key, session.clone()) {
            return Err(this.refuse(message, full));
        }
        if let Err(why) = upper.open_done(cx, &session, Participants::default()) {
            session.abort(cx);
            return Err(this.refuse(message, why));
        }
        session.pop(cx, message)
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match ask.answer::<MyEther>(|q| q.address = MINE.0) {
            Answer::Unknown => ask.answer::<MaxPacket>(|q| q.octets = 1500),
            answered => answered,
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.sessions.clear();
        self.enables.clear();
    }
}

impl Session for LinkSession {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        self.sent.borrow_mut().push(Frame {
            to: EthAddr(self.key.0),
            number: self.key.1,
            octets: message.octets().collect(),
        });
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        match ask.answer::<PeerEther>(|q| q.address = self.key.0) {
            Answer::Unknown => ask.answer::<MaxPacket>(|q| q.octets = 1500),
            answered => answered,
        }
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.sessions.unbind(&self.key);
        Closing::Done
    }
}

/// Notes of the upper.
#[derive(Default)]
pub(crate) struct Notes {
    /// Messages that came up.
    pub(crate) seen: RefCell<Vec<Vec<u8>>>,
    /// Network errors: kind, first octets, whether the session was named.
    pub(crate) errors: RefCell<Vec<(NetworkErrorKind, Vec<u8>, bool)>>,
    /// Whether it takes messages back that could not go.
    pub(crate) takes_back: Cell<bool>,
    /// Messages that it took back.
    pub(crate) back: RefCell<Vec<Vec<u8>>>,
    /// Conflicts: host and station.
    pub(crate) conflicts: RefCell<Vec<(Ipv4, EthAddr)>>,
    /// Number of sessions that were made for it.
    pub(crate) done: Cell<u32>,
}

struct TestUpper(Rc<Notes>);

impl Protocol for TestUpper {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        self.0.done.set(self.0.done.get() + 1);
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        self.0.seen.borrow_mut().push(message.octets().collect());
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(error) = ask.get::<NetworkError>() {
            let line = (error.kind, error.start.to_vec(), error.session.is_some());
            self.0.errors.borrow_mut().push(line);
            return Answer::Answered;
        }
        if let Some(returned) = ask.get::<SendError>() {
            let packet = returned.packet.take_if(|_| self.0.takes_back.get());
            let octets = packet.map(|packet| packet.octets().collect());
            let taken = octets.is_some();
            self.0.back.borrow_mut().extend(octets);
            return if taken { Answer::Answered } else { Answer::Unknown };
        }
        ask.answer::<HostConflict>(|q| {
            let line = (q.host.to_v4().expect("a host of ours"), EthAddr(q.address));
            self.0.conflicts.borrow_mut().push(line);
        })
    }
}

/// The protocol and its surroundings.
pub(crate) struct Bench {
    pub(crate) cx: Kernel,
    link: ProtocolRef,
    link_sessions: Sessions,
    pub(crate) arp: ProtocolRef,
    pub(crate) upper: ProtocolRef,
    /// A second upper, with a number of its own.
    pub(crate) other: ProtocolRef,
    pub(crate) sent: Rc<RefCell<Vec<Frame>>>,
    pub(crate) notes: Rc<Notes>,
    /// The session through which frames arrive.
    wire: SessionRef,
}

/// A session without properties, for the link layer to receive from.
struct Wire;

impl Session for Wire {}

impl Bench {
    /// A started graph; nothing is claimed yet.
    pub(crate) fn new(config: Config, timers_max: usize) -> Option<Self> {
        let cx = Kernel::new(KernelConfig {
            random: Random::new(1),
            pool: Pool::new(&PoolConfig::with_octets_max(4 << 20)).ok()?,
            shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
            timers_max,
        });
        let key = cx.secret();
        let sent = Rc::<RefCell<Vec<Frame>>>::default();
        let link_sessions = Rc::new(SessionTable::new(key, 4096));
        let link = Link {
            sessions: Rc::clone(&link_sessions),
            enables: Map::new(key, 16),
            sent: Rc::clone(&sent),
        };
        let link = cx.add_protocol("link", "link", link);
        let arp = cx.add_protocol("arp", "arp", Arp::new(key, link.clone(), config));
        let notes = Rc::<Notes>::default();
        let upper = cx.add_protocol("upper", "upper", TestUpper(Rc::clone(&notes)));
        let other = cx.add_protocol("other", "other", TestUpper(Rc::clone(&notes)));
        for (upper, number) in [("arp", TYPE_ARP), ("upper", TYPE_UPPER), ("other", 0x0801)] {
            let lower = "link";
            let entry = Number { upper, lower, number };
            cx.numbers_mut().add(entry).ok()?;
        }
        cx.start().ok()?;
        let any = Participants::local(Part::Any);
        let _ = arp.open_enable(&cx, Upper::new(&upper), any).ok()?;
        let wire = cx.new_session(&link, &link, Wire);
        Some(Self { cx, link, link_sessions, arp, upper, other, sent, notes, wire })
    }

    /// Counts the sessions of the link layer.
    pub(crate) fn link_sessions(&self) -> usize {
        self.link_sessions.len()
    }

    /// Makes a host ours; false if that was refused.
    pub(crate) fn claim(&self, host: Ipv4) -> bool {
        self.arp.ask(&self.cx, ClaimHost { host: host.into() }).is_some()
    }

    /// Opens a session of an upper to a host, in the name of [`ME`].
    pub(crate) fn open_for(
        &self,
        upper: &ProtocolRef,
        host: Ipv4,
    ) -> Result<SessionRef, OpenError> {
        let both = Participants::pair(Part::host(ME), Part::host(host));
        self.arp.open(&self.cx, Upper::new(upper), both)
    }

    /// Sends octets.
    pub(crate) fn push(&self, session: &SessionRef, octets: &[u8]) -> Result<(), PushError> {
        let message = self.cx.pool().copy_from(128, octets);
        session.push(&self.cx, message.map_err(|_| PushError::NoBuffers)?)
    }

    /// Lets octets arrive from a station, under a number.
    pub(crate) fn arrive(&self, from: EthAddr, number: u32, octets: &[u8]) {
        let mut frame = Vec::new();
        frame.extend_from_slice(&from.0);
        frame.extend_from_slice(&(number as u16).to_be_bytes());
        frame.extend_from_slice(octets);
        if let Ok(message) = self.cx.pool().copy_from(0, &frame) {
            // What refuses it has counted it.
            drop(self.link.demux(&self.cx, &self.wire, message));
        }
    }

    /// Lets a packet arrive from the station that is its sender.
    pub(crate) fn hear(&self, packet: &Packet) {
        let mut octets = [0; PACKET_LEN];
        packet.emit(&mut octets);
        self.arrive(packet.sender_eth, TYPE_ARP, &octets);
    }

    /// Lets time pass, in steps of 100 ms at most, so that timers go off one after the other.
    pub(crate) fn pass(&self, time: Duration) {
        let end = self.cx.now().after(time);
        while self.cx.now() < end {
            let next = self.cx.now().after(Duration::from_millis(100));
            self.cx.set_now(next.min(end));
            self.cx.run_due();
        }
    }
}
