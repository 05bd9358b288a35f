//! The protocol object: opens, enables, and takes in packets.

use crate::claim::is_station;
use crate::entry::Entry;
use crate::session::{ArpSession, Path};
use crate::shared::{Config, Shared, Token};
use crate::wire::{Error, EthAddr, Ipv4, Operation, PACKET_LEN, PROTOCOL_IPV4, Packet};
use alloc::rc::Rc;
use core::time::Duration;
use xk_core::Secret;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Burst, Enable, OpenError, Refused, SessionSlot};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{MyEther, PeerEther};
use xk_kit::net::addr::ipv4;
use xk_kit::net::drop_sources::Source;
use xk_kit::wire::offload::Offloads;

/// Another station uses a host of ours (RFC 5227, section 2.4).
pub static CONFLICT: Reason = Reason::new("host conflict", Class::Bad);
/// A reply that was not asked for, about a host that is not needed.
pub static UNSOLICITED: Reason = Reason::new("unsolicited", Class::NotMine);
/// A packet came back that this station had sent.
pub static LOOPED: Reason = Reason::new("looped", Class::Bad);

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// One instance, for one link.
pub struct Arp {
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let config = Config::read(build)?;
    let times = [config.retry, config.lifetime, config.negative];
    for (name, time) in ["retry", "lifetime", "negative"].into_iter().zip(times) {
        // Once a second is the most that is allowed (RFC 1122, section 2.3.2.1).
        if !(SECOND..=DAY).contains(&time) {
            return Err(BuildError::param(name, "a time from \"1s\" to \"24h\""));
        }
    }
    let key = build.cx.secret();
    build.add(Arp::new(key, build.lower(0)?, config))
}

impl Arp {
    pub(crate) fn new(secret: Secret, eth: ProtocolRef, config: Config) -> Self {
        Self { shared: Rc::new(Shared::new(secret, eth, config)) }
    }

    /// The host of ours that the local participant names; unspecified if it is left open.
    fn local(participants: &mut Participants) -> Result<Ipv4, AddressError> {
        match participants.local_mut()?.pop() {
            None | Some(Part::Any) => Ok(Ipv4::UNSPECIFIED),
            Some(Part::Host(host)) => ipv4(Wild::Is(host)),
            Some(_) => Err(AddressError::WrongFamily),
        }
    }

    /// Why a packet is not believed, if it is not.
    fn objection(&self, packet: &Packet) -> Option<&'static Reason> {
        if packet.sender_eth == self.shared.mine.get() {
            return Some(&LOOPED);
        }
        let host_fits = is_station(packet.sender_ip) || packet.is_probe();
        (!packet.sender_eth.is_unicast() || !host_fits).then_some(&reason::BAD_SOURCE)
    }

    /// Takes in a packet (RFC 826, packet reception); else says why it was of no use.
    fn receive(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        packet: &Packet,
    ) -> Result<(), &'static Reason> {
        let shared = &self.shared;
        if let Some(reason) = self.objection(packet) {
            return Err(reason);
        }
        let frame_from = lower.ask(cx, PeerEther::default());
        if frame_from.is_some_and(|from| from.address != packet.sender_eth.0) {
            shared.mismatched.set(shared.mismatched.get() + 1);
        }
        if shared.find_conflict(cx, packet) {
            return Err(&CONFLICT);
        }
        let asked = packet.operation == Operation::Request;
        let for_us = shared.claims.is_ours(packet.target_ip);
        let mut merged = false;
        if !packet.sender_ip.is_unspecified() {
            let known = shared.hosts.get(packet.sender_ip);
            // A host that asks us will be sent something soon; what others tell unasked is worth no
            // room.
            let entry = match known {
                None if asked && for_us => shared.get_or_make(cx, packet.sender_ip).or_else(|| {
                    shared.count(&reason::TABLE_FULL);
                    None
                }),
                known => known,
            };
            if let Some(entry) = entry {
                shared.learn(cx, &entry, packet.sender_eth);
                merged = true;
            }
        }
        if asked && for_us {
            let reply = packet.reply(shared.mine.get());
            shared.send(cx, packet.sender_eth, &reply);
            if !packet.is_probe() {
                shared.tell_exchanged(cx, packet);
            }
            return Ok(());
        }
        if merged && !asked && for_us {
            shared.tell_exchanged(cx, packet);
        }
        match (merged, asked) {
            (true, _) => Ok(()),
            (false, true) => Err(&reason::NOT_MINE),
            (false, false) => Err(&UNSOLICITED),
        }
    }

    /// The entry for a new session to `host`.
    fn entry(&self, cx: &Kernel, host: Ipv4, local: Ipv4) -> Result<Rc<Entry>, OpenError> {
        if let Some(eth) = Shared::mapped(host) {
            return Ok(Rc::new(Entry::fixed(host, eth, cx.now())));
        }
        let own = host == local || self.shared.claims.find(host).is_some();
        if !is_station(host) || own {
            return Err(OpenError::Address(AddressError::OutOfRange));
        }
        let entry = self.shared.get_or_make(cx, host);
        entry.ok_or(OpenError::Full)
    }
}

impl Arp {
    /// Takes in a packet of a further type: it says something of its sender, and nothing here
    /// changes by it.
    #[cold]
    fn receive_other(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        number: u16,
        receiver: &ProtocolRef,
        message: &Message,
    ) -> Result<(), (Ipv4, &'static Reason)> {
        let nobody = |why| (Ipv4::UNSPECIFIED, why);
        let octets = message.peek::<PACKET_LEN>();
        let octets = octets.ok_or(nobody(&reason::TRUNCATED))?;
        let packet = Packet::parse_as(octets, number).map_err(|error| nobody(reason_of(error)))?;
        let bad = |why| Err((packet.sender_ip, why));
        if let Some(why) = self.objection(&packet) {
            return bad(why);
        }
        if packet.operation != Operation::Reply || !is_station(packet.sender_ip) {
            return bad(&reason::NOT_SUPPORTED);
        }
        if self.shared.claims.find(packet.sender_ip).is_some() {
            return bad(&CONFLICT);
        }
        let frame_from = lower.ask(cx, PeerEther::default());
        if frame_from.is_some_and(|from| from.address != packet.sender_eth.0) {
            // No station speaks for others here.
            return bad(&reason::BAD_SOURCE);
        }
        match Shared::hear(cx, number, receiver, &packet) {
            true => Ok(()),
            false => bad(&UNSOLICITED),
        }
    }

    /// Takes in what came through `lower`; else refuses it, and counts that against its sender.
    fn take_in(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let number = message.peek::<4>().map(Packet::protocol_type);
        let other = number.filter(|number| *number != PROTOCOL_IPV4);
        if let Some(number) = other
            && let Some(receiver) = self.shared.others.of_type(number)
        {
            // A packet in several slices is brought together; one that is not all there stays
            // unread.
            let _ = message.pull_up(PACKET_LEN);
            let taken = self.receive_other(cx, lower, number, &receiver, &message);
            return taken.map_err(|(host, why)| {
                self.shared.drop_sources.count(Source::Host(host.into()), why);
                this.refuse(message, why)
            });
        }
        let packet = match parse(&mut message) {
            Ok(packet) => packet,
            Err(why) => return Err(this.refuse(message, why)),
        };
        match self.receive(cx, lower, &packet) {
            Ok(()) => Ok(()),
            Err(why) => {
                // Every station hears the requests for all others: no fault of those that ask.
                if *why != reason::NOT_MINE {
                    let source = Source::Host(packet.sender_ip.into());
                    self.shared.drop_sources.count(source, why);
                }
                Err(this.refuse(message, why))
            }
        }
    }
}

/// Ends a session below that a packet made: each station on the link sends some, and what is sent
/// to one has a session of its own.
fn let_go(cx: &Kernel, lower: &SessionRef) {
    if lower.head().is_passive() {
        lower.hold();
        lower.close(cx);
    }
}

/// The reason that corresponds to what is wrong with a packet.
fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        // Other hardware, other protocols, other operations (RARP) share the type number.
        Error::Hardware(_) | Error::Protocol(_) | Error::Operation(_) => &reason::NOT_SUPPORTED,
        Error::AddressLength(..) => &reason::MALFORMED,
    }
}

/// Reads a packet; else says why it is none.
fn parse(message: &mut Message) -> Result<Packet, &'static Reason> {
    message.pull_up(PACKET_LEN)?;
    let octets = message.peek_slice(PACKET_LEN).unwrap_or_default();
    Packet::parse_slice(octets).map_err(reason_of)
}

impl Protocol for Arp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (shared, upper) = (&self.shared, Upper::new(this));
        let mine = shared.eth.ask(cx, MyEther::default());
        shared.mine.set(EthAddr(mine.ok_or(OpenError::NoLower)?.address));
        let all = Part::Ether(EthAddr::BROADCAST.0);
        let both = Participants::pair(Part::Any, all);
        let broadcast = shared.eth.open(cx, upper, both)?;
        drop(shared.broadcast.replace(Some(broadcast)));
        *shared.me.borrow_mut() = Some(this.clone());
        let any = Participants::local(Part::Any);
        shared.eth.open_enable(cx, upper, any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let local = Self::local(&mut participants)?;
        let host = ipv4(Wild::Is(participants.peer_mut()?.pop_host()?.definite()?))?;
        let key = (host.to_bits(), upper.receiver.id().0, upper.selector.0);
        if let Some(session) = shared.sessions.get(&key) {
            session.hold();
            return Ok(session);
        }
        // Tells now, and not with the first message, if the layer below lacks the number.
        upper.number_on(cx, &shared.eth)?;
        let entry = self.entry(cx, host, local)?;
        let path = Rc::new(Path {
            key,
            receiver: upper.receiver.clone(),
            selector: upper.selector,
            local,
            lower: SessionSlot::default(),
            waiting: Default::default(),
            is_closed: Default::default(),
            entry,
        });
        let body = ArpSession { shared: Rc::clone(shared), path: Rc::clone(&path) };
        let session = cx.new_session(this, upper.receiver, body);
        if shared.sessions.bind(cx, key, session.clone()).is_err() {
            session.retire(cx);
            shared.forget_idle(cx, &path.entry);
            return Err(OpenError::Full);
        }
        path.entry.paths.borrow_mut().push(Rc::downgrade(&path));
        shared.note_upper(upper.receiver);
        if let Some(eth) = path.entry.address() {
            shared.link(cx, &path, eth);
        }
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        if !participants.is_empty() {
            Self::local(&mut participants)?;
        }
        upper.number_on(cx, &self.shared.eth)?;
        self.shared.note_upper(upper.receiver);
        // Data frames bear the upper's number and come up to it from there, not from here.
        let any = Participants::local(Part::Any);
        self.shared.eth.open_enable(cx, upper, any)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.eth.open_disable(cx, enable);
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let taken = self.take_in(cx, this, lower, message);
        let_go(cx, lower);
        taken
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        let mut taken = Ok(());
        while taken.is_ok()
            && let Some(message) = burst.next_through(lower)
        {
            taken = self.take_in(cx, this, lower, message);
        }
        // What is left comes through it again.
        if burst.is_empty() {
            let_go(cx, lower);
        }
        taken
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.id(), || Offloads::of_protocol(cx, &shared.eth));
        } else if !shared.drop_sources.answer(this, ask) {
            return shared.control(cx, ask).unwrap_or_else(|| shared.eth.control(cx, ask));
        }
        Answer::Answered
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.shared.sessions);
        tables.map("hosts", self.shared.hosts.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.eth)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, token: u64) {
        match Token::read(token) {
            Token::Entry(host) => self.shared.entry_timeout(cx, host),
            Token::Claim(host) => self.shared.claim_timeout(cx, host),
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.shared.stop(cx);
    }
}
