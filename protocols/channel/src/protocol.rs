//! The protocol object: opens, enables, demultiplexes.

use crate::session::client::ClientSession;
use crate::session::server::ServerSession;
use crate::session::state::{ChannelState, admit, sweep};
use crate::session::{ChannelEnd, LATE};
use crate::table::{ChannelFigures, Key, Path, SERVER_SIDE, SWEEP, Table, name_peer, peer_of};
use crate::wire::{HEADER_OCTETS, Header, Kind, SERVER, flags_of, names_of};
use alloc::rc::Rc;
use core::cell::Cell;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::participant::AddressError;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, PeerName, Protocol, ProtocolRef,
    Reason, SessionRef, Upper, reason,
};
use xk_kit::answers::is_for_one;
use xk_kit::rpc::call::CHANNEL;
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::codes::code_of;

/// Largest number of upper protocols that enable it.
const ENABLES_MAX: usize = 256;

xk_core::settings! {
    /// Bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Limits {
        channels_max: usize = int(1..=16_777_216, 16_384,
            "how many channels it holds, of both sides; idle ones of the server's side are evicted \
             for new ones"),
        hosts_max: usize = int(1..=16_777_216, 4096,
            "how many clients, and how many servers, it knows"),
    }
}

/// One instance of the layer.
pub struct Channel {
    lower: ProtocolRef,
    table: Rc<Table>,
    /// Type number to the protocol that serves its requests.
    enables: Map<u32, ProtocolRef>,
    /// The channel opened last.
    last: Cell<u16>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let limits = Limits::read(build)?;
    Ok(add(build.cx, build.name, build.lower(0)?, limits))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, limits: Limits) -> ProtocolRef {
    let body = Channel {
        lower,
        table: Rc::new(Table::new(cx, limits.channels_max, limits.hosts_max)),
        enables: Map::new(cx.secret(), ENABLES_MAX),
        last: Cell::new(0),
    };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

/// Pops a channel number off a participant, where it may be any, or be left out.
fn pop_channel(participant: &mut Participant) -> Result<Option<u16>, AddressError> {
    match participant.top() {
        // A sole wildcard is the host's.
        Some(Part::Any) if participant.len() > 1 => {
            participant.pop();
            Ok(None)
        }
        Some(Part::Number(label, _)) if *label == CHANNEL => {
            let number = participant.pop_number(CHANNEL)?.definite()?;
            let number = u16::try_from(number).map_err(|_| AddressError::OutOfRange)?;
            Ok(Some(number))
        }
        _ => Ok(None),
    }
}

/// The key of an arriving packet.
#[inline(always)]
fn key_of(cx: &Kernel, lower: &SessionRef, octets: &[u8; HEADER_OCTETS]) -> Key {
    let (channel, number, _) = names_of(octets);
    let side = if flags_of(octets) & SERVER == 0 { 0 } else { SERVER_SIDE };
    (peer_of(cx, lower), number, u32::from(channel) | side)
}

impl Channel {
    /// A free channel to this peer, one that was closed or the next one: its number and its last
    /// sequence number.
    fn choose(&self, peer: PeerName, number: u32) -> Result<(u16, u32), OpenError> {
        if let Some(woken) = self.table.wake(peer, number, None) {
            return Ok(woken);
        }
        for _ in 0..=u16::MAX {
            let channel = self.last.get().wrapping_add(1);
            self.last.set(channel);
            if !self.table.sessions_has(&(peer, number, u32::from(channel))) {
                return Ok((channel, self.table.floor(peer)));
            }
        }
        Err(OpenError::Full)
    }

    /// Opens a client's session on `lower`, whose hold it takes over; after an error the hold is
    /// still the caller's. Nothing in it blocks, so a channel that is free when it is chosen is
    /// still free when it is bound.
    fn open_on(
        &self,
        cx: &Kernel,
        (this, upper): (&ProtocolRef, &ProtocolRef),
        (peer, number, channel): (PeerName, u32, Option<u16>),
        (lower, path): (&SessionRef, Path),
    ) -> Result<SessionRef, OpenError> {
        let sessions = &self.table.sessions;
        let (channel, sequence) = match channel {
            None => self.choose(peer, number)?,
            Some(channel) => {
                let key = (peer, number, u32::from(channel));
                if let Some(session) = sessions.found(&key, upper)? {
                    // A session that is held holds the one below itself.
                    lower.close(cx);
                    return Ok(session);
                }
                let woken = self.table.wake(peer, number, Some(channel));
                woken.unwrap_or_else(|| (channel, self.table.floor(peer)))
            }
        };
        let key = (peer, number, u32::from(channel));
        // Its hold is that of the session, which gives it back if there is no room for that.
        lower.hold();
        let body = ClientSession::new(&self.table, key, (lower.clone(), path), sequence);
        let opened = sessions.open(cx, this, upper, key, body)?;
        lower.close(cx);
        Ok(opened)
    }

    /// Takes any packet.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (octets, message) = this.header(message)?;
        let key = key_of(cx, lower, &octets);
        let Some(session) = self.table.sessions.get(&key) else {
            return self.demux_first(cx, this, lower, key, octets, message);
        };
        self.table.last_lower.set(lower.id().0);
        // Each by itself: another channel may have come through the new session below before.
        if let Some(server) = session.body::<ServerSession>() {
            server.move_to(cx, lower);
        }
        session.pop(cx, message)
    }

    /// A packet of a channel that is not known.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        key: Key,
        octets: [u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        if key.0 == PeerName::UNKNOWN {
            return Err(this.refuse(message, &reason::NO_ANSWER));
        }
        let Ok(header) = Header::parse(&octets) else {
            return Err(this.refuse(message, &reason::MALFORMED));
        };
        if !header.for_server {
            return self.demux_nobodys(cx, this, lower, key, &header, message);
        }
        if !matches!(header.kind, Kind::Request | Kind::Probe) {
            return Err(this.refuse(message, &LATE));
        }
        let answer = |kind, error| {
            let (end, marks) =
                (ChannelEnd::new(&self.table, key, Kind::Reply), Path::of(cx, lower).marks);
            end.send(cx, (lower, this.id()), marks, (kind, header.sequence, error));
        };
        let admitted = admit(cx, &self.table, key.0, &header, |ticket| answer(Kind::Nack, ticket));
        if let Err(why) = admitted {
            return Err(this.refuse(message, why));
        }
        let Some(upper) = self.enables.get(&key.1) else {
            answer(Kind::Refusal, code_of(&reason::NO_PROTOCOL));
            this.discard(message, &reason::NO_PROTOCOL);
            return Ok(());
        };
        if header.kind == Kind::Probe {
            // The request has not come.
            answer(Kind::Nack, 0);
            drop(message);
            return Ok(());
        }
        let made = self.make(cx, this, &upper, lower, key, &header);
        match made {
            Ok(session) => session.pop(cx, message),
            Err(why) => {
                answer(Kind::Refusal, code_of(why));
                this.discard(message, why);
                Ok(())
            }
        }
    }

    /// Makes the session of the server's side for a protocol that has enabled it.
    fn make(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        lower: &SessionRef,
        key: Key,
        header: &Header,
    ) -> Result<SessionRef, &'static xk_core::Reason> {
        let make = || {
            let begun = (key, ChannelState::new(header.boot, header.error));
            let body = ServerSession::new(cx, &self.table, (this, upper), begun, lower);
            let mut peer = Participant::new();
            let host = key.0.host();
            if !host.is_unspecified() {
                peer.push(Part::Host(host));
            }
            peer.push(Part::Number(CHANNEL, u64::from(header.channel)));
            (body, Participants::pair(Part::Any, peer))
        };
        self.table.sessions.accept(cx, this, upper, key, lower.head().source(), make)
    }

    /// A packet for a client that has no such channel: one that asks for an acknowledgement gets
    /// it, for no call waits.
    fn demux_nobodys(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        key: Key,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        if header.please_ack
            && let Some(server) = self.table.servers.known(key.0)
            && server.boot() == header.boot
        {
            let (end, marks) =
                (ChannelEnd::new(&self.table, key, Kind::Request), Path::of(cx, lower).marks);
            let ack = (Kind::Ack, header.sequence.wrapping_add(1), server.ticket());
            end.send(cx, (lower, this.id()), marks, ack);
        }
        Err(this.refuse(message, &LATE))
    }
}

impl Protocol for Channel {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        participants.check_one_peer()?;
        let number = upper.number_on(cx, this)?;
        let (mut channel, mut host) = (None, None);
        if let Ok(local) = participants.local_mut() {
            channel = pop_channel(local)?;
            if local.is_empty() {
                local.push(Part::Any);
            }
        }
        if let Ok(peer) = participants.peer_mut() {
            channel = pop_channel(peer)?.or(channel);
            if let Some(Part::Host(address)) = peer.top() {
                host = Some(*address);
            }
        }
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let peer = name_peer(cx, &lower, host);
        let (who, which) = ((this, upper.receiver), (peer, number, channel));
        let opened = self.open_on(cx, who, which, (&lower, Path::of(cx, &lower)));
        opened.inspect_err(|_| lower.close(cx))
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = upper.number_on(cx, this)?;
        match self.enables.enable(number, upper.receiver.clone(), |_| false) {
            Ok(()) => Ok(Enable(u64::from(number))),
            Err(_) => Err(OpenError::InUse),
        }
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(number) = u32::try_from(enable.0) {
            self.enables.unbind(&number);
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        is_for_one(cx, lower)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(octets) = message.peek_in_place::<HEADER_OCTETS>()
            && let key = key_of(cx, lower, octets)
            && self.table.last_lower.get() == lower.id().0
            && let Some(session) = self.table.sessions.latest(&key)
        {
            return session.pop_owned(cx, message);
        }
        self.demux_other(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ChannelFigures>() {
            *question = self.table.figures();
            return Answer::Answered;
        }
        less(self.lower.control(cx, ask), ask, HEADER_OCTETS)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.table.sessions);
        tables.map("passive", self.enables.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    /// The sweep.
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let goes_on = sweep(cx, &self.table) && cx.schedule_protocol(this, SWEEP, 0).is_ok();
        self.table.sweeps.set(goes_on);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.table.sessions.clear();
        self.enables.clear();
    }
}
