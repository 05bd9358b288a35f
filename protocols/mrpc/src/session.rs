//! A session: one procedure of one peer, called from above or by the peer.

use crate::channels::{CANCELLED, CLOSED, Channel, tell_calls};
use crate::fragments::{Cut, Parameters};
use crate::shared::{Key, Shared};
use crate::timers::{ETHERNET, INTERNET, Timers};
use crate::wire::{AREA2_LEN_MAX, HEADER_LEN, Header, REQUEST, SERVER};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, OnceCell};
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, Sender};
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::{Answer, Ask, HostAddr, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::control::{MaxPacket, MyHost, OptPacket, PeerHost, PeerProved, opt_packet};
use xk_kit::net::neighbour::is_far;
use xk_kit::rpc::call::{CallOptions, CancelCall, MyProcedure};
use xk_kit::rpc::incarnation::Server;

/// The largest packet pushed below, in octets ("RPC in the x-Kernel", section 3.1).
pub const PACKET_OCTETS_MAX: usize = 1500;

/// Lets a request go no further than to the peer's dispatcher, which sends its octets back: a probe
/// of the way alone. An attribute of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo;

impl Attribute for Echo {
    const KEY: u32 = xk_core::name_key("mrpc-echo");
    const CROSSES: Crossing = Crossing { down: Some(Sender::Domain), up: None };

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        [0; ATTRIBUTE_OCTETS]
    }

    fn decode(_: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self
    }
}

/// Packet sizes of a lower session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Octets of a fragment: usually, and at most.
    pub(crate) payload: (usize, usize),
}

impl Path {
    /// Asks a lower session.
    pub(crate) fn of(cx: &Kernel, shared: &Shared, lower: &SessionRef) -> Self {
        let config = &shared.config;
        let packet = opt_packet(cx, lower, PACKET_OCTETS_MAX as u32) as usize;
        let max = packet.min(PACKET_OCTETS_MAX).saturating_sub(HEADER_LEN).min(AREA2_LEN_MAX);
        let usual = match config.fragment {
            0 => max,
            octets => octets.min(max),
        };
        Self { payload: (usual, max) }
    }
}

/// The waits for what goes through a lower session.
pub(crate) fn timers(cx: &Kernel, shared: &Shared, lower: &SessionRef) -> Timers {
    shared.config.timers.unwrap_or_else(|| match is_far(cx, lower) {
        true => INTERNET,
        false => ETHERNET,
    })
}

pub(crate) struct MrpcSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    /// Our host and the peer's; unspecified where the layer below has none.
    pub(crate) hosts: (HostAddr, HostAddr),
    /// First number of the calls to the peer.
    pub(crate) begin_at: u32,
    pub(crate) path: Path,
    /// The waits, as they suited where the peer was when that was last looked at.
    pub(crate) timers: Cell<Timers>,
    server: OnceCell<Rc<Server>>,
    /// The channel used last.
    pub(crate) last_channel: Cell<u16>,
    /// The last reply was fragmented.
    pub(crate) has_large_replies: Cell<bool>,
    /// Times that the server acknowledged ten times in a row and did not reply.
    pub(crate) hung: Cell<u64>,
}

/// One call, as its caller wants it.
pub(crate) struct Call {
    pub(crate) options: Option<CallOptions>,
    pub(crate) cut: Cut,
    /// The flags of its packets.
    pub(crate) flags: u16,
}

impl MrpcSession {
    pub(crate) fn new(
        shared: &Rc<Shared>,
        key: Key,
        (lower, upper): (&SessionRef, &ProtocolRef),
        hosts: (HostAddr, HostAddr),
        (path, timers): (Path, Timers),
    ) -> Self {
        Self {
            shared: Rc::clone(shared),
            key,
            lower: lower.clone(),
            upper: upper.clone(),
            hosts,
            begin_at: shared.begin_at(hosts.1),
            path,
            timers: Cell::new(timers),
            server: OnceCell::new(),
            last_channel: Cell::new(0),
            has_large_replies: Cell::new(false),
            hung: Cell::new(0),
        }
    }

    /// The procedure's number.
    pub(crate) fn procedure(&self) -> u16 {
        self.key.1 as u16
    }

    /// Record of the peer as a server.
    #[inline]
    pub(crate) fn server(&self) -> &Rc<Server> {
        self.server.get_or_init(|| self.shared.servers.of(self.hosts.1.into()))
    }

    /// The waits that suit where the peer is now. Looked at again by each call that is not answered
    /// at once, since hosts move.
    #[cold]
    pub(crate) fn look_at_timers(&self, cx: &Kernel) -> Timers {
        self.timers.set(timers(cx, &self.shared, &self.lower));
        self.timers.get()
    }

    /// The header of the packets of a call, less what is the packet's own.
    #[inline]
    pub(crate) fn template(&self, flags: u16, channel: u16, ticket: u16, sequence: u32) -> Header {
        Header {
            flags,
            client_host: self.hosts.0.folded(),
            server_host: self.hosts.1.folded(),
            channel,
            process: ticket,
            sequence,
            command: self.procedure(),
            boot: self.shared.boot,
            ..Header::default()
        }
    }

    /// A call with what its attributes ask for, which are taken off the request.
    #[cold]
    fn with_attributes(&self, request: &mut Message) -> (Option<CallOptions>, usize, u16) {
        let options = CallOptions::take(request);
        let area1 = request.remove_attribute::<Parameters>();
        let echo = match request.remove_attribute::<Echo>() {
            Some(_) => crate::wire::ECHO,
            None => 0,
        };
        (options, area1.map_or(0, |p| p.octets.into()), echo)
    }
}

impl Session for MrpcSession {
    #[inline]
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let (options, area1, echo) = match request.has_attributes() {
            true => self.with_attributes(&mut request),
            false => (None, 0, 0),
        };
        let Some(cut) = Cut::new(request.len(), area1, self.path.payload) else {
            this.discard(cx, request, &xk_core::reason::TOO_BIG);
            return Err(PushError::TooBig.into());
        };
        let (channels, host) = (&self.shared.channels, &self.hosts.1);
        let is_its = |channel: &Channel| channel.host.get() == *host;
        let suited = (is_its, |channel: &Channel| channel.host.set(*host));
        let channel = channels.take(cx, self.last_channel.get(), this, options, suited)?;
        self.last_channel.set(channel.index);
        let call = Call { options, cut, flags: REQUEST | SERVER | echo };
        let result = self.call_on(cx, this, channel, &call, request);
        let failed = match &result {
            Ok(reply) => {
                self.has_large_replies.set(reply.len() > self.path.payload.0);
                false
            }
            Err(error) => !matches!(error.cause, CallCause::Rejected(_)),
        };
        channel.end(failed);
        channels.give_up(cx, channel, failed);
        result
    }

    #[inline]
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        self.upper.call_demux(cx, this, message)
    }

    fn describe(&self, this: &SessionRef) -> Option<String> {
        let side = if this.head().is_passive() { "from" } else { "of" };
        let (procedure, peer) = (self.key.1, self.lower.head().peer().host());
        let (octets, hung) = (self.path.payload.0, self.hung.get());
        let whose = alloc::format!("procedure {procedure} {side} {peer}");
        Some(alloc::format!("{whose}, fragments of {octets}, server hung {hung} times"))
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (own, peer) = self.hosts;
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = self.key.1;
        } else if let Some(question) = ask.get::<PeerHost>() {
            question.host = peer;
        } else if let Some(question) = ask.get::<MyHost>() {
            question.host = own;
        } else if ask.get::<PeerProved>().is_some() {
            // A request without our ticket makes no session.
            if !this.head().is_passive() {
                return Answer::Unknown;
            }
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = AREA2_LEN_MAX as u32;
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = self.path.payload.0 as u32;
        } else if let Some(question) = ask.get::<CancelCall>() {
            let (tag, channels) = (question.tag, &self.shared.channels);
            if tag == 0 || !tell_calls(channels, cx, this.id(), tag, CANCELLED) {
                return Answer::Unknown;
            }
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.release(&self.key, this);
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        tell_calls(&self.shared.channels, cx, this.id(), 0, CLOSED);
        Closing::Done
    }
}
