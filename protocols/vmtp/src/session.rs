//! A session: one procedure of one server, called from above or by a peer.

use crate::entities::{Line, STEP};
use crate::shared::{FAR, Key, NEAR, Path, RoundTrip, SERVER, Shared, Timers, timers};
use crate::wire::{BLOCK_OCTETS, DGM, Entity, Header, MRD, SDA, STI};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::{Answer, Ask, HostAddr, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::control::{MaxPacket, MyHost, OptPacket, PeerHost, PeerProved};
use xk_kit::rpc::call::{CallOptions, CancelCall, Gather, GathersReplies, MyProcedure};
use xk_kit::rpc::places::Place;

/// Time in which responses to a request for several come, unless the caller says another.
const GATHER: Duration = Duration::from_secs(10);
/// Time after that in which responses can still be asked for.
const GATHERED_KEPT: Duration = Duration::from_secs(10);

pub(crate) struct VmtpSession {
    pub(crate) shared: Rc<Shared>,
    key: Key,
    pub(crate) lower: SessionRef,
    upper: ProtocolRef,
    /// Our host and the peer's; unspecified where the layer below has none.
    hosts: (HostAddr, HostAddr),
    pub(crate) path: Path,
    /// The header of requests, less what is a request's own.
    pub(crate) template: Header,
    /// The waits, as they suit the round trips that were measured, and where the peer was when
    /// that was last looked at; and those that suit the place alone.
    timers: Cell<Timers>,
    unknown: Cell<Timers>,
    round_trip: Cell<RoundTrip>,
    /// Mask of the transactions that are not measured: none until one was.
    seldom: Cell<u32>,
    /// The entity used last.
    last: Cell<u16>,
    /// Gap between packets that the way bears.
    pub(crate) gap: Cell<u8>,
}

impl VmtpSession {
    pub(crate) fn new(
        cx: &Kernel,
        shared: &Rc<Shared>,
        key: Key,
        (lower, upper): (&SessionRef, &ProtocolRef),
        hosts: (HostAddr, HostAddr),
        server: Entity,
    ) -> Self {
        let timers = timers(cx, &shared.config, lower);
        let template = Header {
            domain: shared.config.domain << 16,
            // Responses of several groups may come.
            control: STI,
            server,
            code: SDA | key.1 as u32,
            ..Header::default()
        };
        Self {
            shared: Rc::clone(shared),
            key,
            lower: lower.clone(),
            upper: upper.clone(),
            hosts,
            path: shared.path(cx, lower),
            template,
            timers: Cell::new(timers),
            unknown: Cell::new(timers),
            round_trip: Cell::default(),
            seldom: Cell::new(0),
            last: Cell::new(0),
            gap: Cell::new(shared.config.gap),
        }
    }

    /// The waits that suit where the peer is now. Looked at again by each call that is not answered
    /// at once, since hosts move.
    #[cold]
    pub(crate) fn look_at_timers(&self, cx: &Kernel) -> Timers {
        self.unknown.set(timers(cx, &self.shared.config, &self.lower));
        self.timers.set(self.round_trip.get().suited(self.unknown.get()));
        self.timers.get()
    }

    fn is_to_many(&self) -> bool {
        self.template.server.is_group()
    }

    /// Takes an entity for a message of so many octets.
    #[inline]
    fn begin(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
        options: Option<CallOptions>,
    ) -> Result<(&Place<Line>, Message), CallError> {
        if request.len() > self.shared.config.message_max {
            this.discard(cx, request, &reason::TOO_BIG);
            return Err(PushError::TooBig.into());
        }
        let way = (&self.lower, self.path);
        let line = self.shared.entities.take(cx, self.last.get(), this, options, way)?;
        self.last.set(line.index);
        Ok((line, request))
    }

    /// Does a call with an entity that is the caller's.
    #[inline]
    fn call_on(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        line: &Line,
        request: Message,
        options: Option<CallOptions>,
    ) -> Result<Message, CallError> {
        let timers = self.timers.get();
        let is_long = request.len() > self.path.blocks as usize * BLOCK_OCTETS;
        let first = if is_long { timers.large } else { timers.small };
        let Some(wait) = CallOptions::clip(options, cx.now(), first) else {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        };
        line.pending.begin(this.id(), options.map_or(0, |options| options.tag));
        line.wait.set(first);
        line.sent.set(cx.now());
        line.due.set(line.sent.get().after(first));
        self.transmit(cx, this, line, request, 0)?;
        self.await_response(cx, line, options, wait)
    }

    /// Learns from a call that has ended what gap the way bears and how long it takes. One of
    /// sixteen is measured that were answered at once.
    #[inline]
    fn learn(&self, cx: &Kernel, line: &Line) {
        let is_measured = (line.transaction.get() / STEP) & self.seldom.get() == 0;
        if line.round.get() != 0 || line.gap.get() != 0 || is_measured {
            self.learn_more(cx, line);
        }
    }

    #[cold]
    fn learn_more(&self, cx: &Kernel, line: &Line) {
        let is_again = line.round.get() != 0;
        let gap = line.gap.get();
        let gap = if is_again { gap } else { gap.saturating_sub(1 + gap / 4) };
        self.gap.set(gap.max(self.shared.config.gap));
        let at_once = || (!is_again).then(|| cx.now().since(line.sent.get()));
        let took = line.took.take().or_else(at_once);
        self.seldom.set(if took.is_some() { 15 } else { 0 });
        match took {
            Some(took) => {
                let round_trip = self.round_trip.get().with(took);
                self.round_trip.set(round_trip);
                self.timers.set(round_trip.suited(self.unknown.get()));
            }
            // Which transmission was answered is not known: the wait stays as long as it has
            // become (Karn and Partridge, "Improving Round-Trip Time Estimates").
            None => {
                let timers = self.timers.get();
                let small = line.wait.get().clamp(timers.small, timers.max.max(timers.small));
                self.timers.set(Timers { small, large: timers.large.max(small), ..timers });
            }
        }
    }

    /// A call for the responses of several, or for the next of them.
    #[cold]
    fn gather(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        what: Gather,
        options: CallOptions,
        request: Message,
    ) -> Result<Message, CallError> {
        let late = || CallError::from(CallCause::TimedOut { tries: 0 });
        let line = match what {
            Gather::First => {
                let left = CallOptions::clip(Some(options), cx.now(), GATHER).ok_or_else(late)?;
                let (line, request) = self.begin(cx, this, request, Some(options))?;
                let until = cx.now().after(left);
                line.gathers.set(Some((until, until.after(GATHERED_KEPT))));
                line.pending.begin(this.id(), options.tag);
                line.wait.set(self.timers.get().small);
                line.due.set(cx.now().after(line.wait.get()));
                if let Err(error) = self.transmit(cx, this, line, request, MRD) {
                    self.end_gathering(cx, line);
                    return Err(error.into());
                }
                if let Some(protocol) = this.protocol(cx) {
                    self.shared.watch(cx, &protocol, until.after(GATHERED_KEPT));
                }
                line
            }
            Gather::Next => {
                self.shared.entities.gathering(this.id(), options.tag).ok_or_else(late)?
            }
        };
        let reply = match line.next_reply() {
            Some(reply) => Ok(reply),
            None => {
                let until = line.gathers.get().map_or(cx.now(), |(until, _)| until);
                let options = Some(CallOptions { deadline: until, ..options });
                let wait = line.due.get().min(until).since(cx.now());
                self.await_response(cx, line, options, wait)
            }
        };
        if reply.is_err() {
            self.end_gathering(cx, line);
        }
        reply
    }

    fn end_gathering(&self, cx: &Kernel, line: &Place<Line>) {
        if line.gathers.get().is_some() {
            self.shared.entities.give_up(cx, line, false);
        }
    }
}

impl Session for VmtpSession {
    #[inline]
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let options = CallOptions::take(&mut request);
        if self.is_to_many()
            && let Some(what) = request.remove_attribute::<Gather>()
            && let Some(options) = options
        {
            return self.gather(cx, this, what, options, request);
        }
        let (line, request) = self.begin(cx, this, request, options)?;
        let result = self.call_on(cx, this, line, request, options);
        let failed =
            matches!(&result, Err(error) if !matches!(error.cause, CallCause::Rejected(_)));
        if !failed {
            self.learn(cx, line);
        }
        self.shared.entities.give_up(cx, line, failed);
        result
    }

    /// Sends a request without response: as a datagram, which may be lost.
    fn push(&self, cx: &Kernel, this: &SessionRef, mut request: Message) -> Result<(), PushError> {
        let options = CallOptions::take(&mut request);
        let (line, request) = match self.begin(cx, this, request, options) {
            Ok(begun) => begun,
            Err(CallError { cause: CallCause::Push(error), .. }) => return Err(error),
            Err(_) => return Err(PushError::QueueFull),
        };
        line.is_datagram.set(true);
        let result = self.transmit(cx, this, line, request, DGM);
        self.shared.entities.give_up(cx, line, false);
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
        let (procedure, peer) = (self.key.1 as u32, self.lower.head().peer().host());
        let server = self.template.server.discriminator();
        let text = alloc::format!("procedure {procedure} {side} {peer}");
        Some(match server {
            SERVER => text,
            server => alloc::format!("{text}, entity {server}"),
        })
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (own, peer) = self.hosts;
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = self.key.1 as u32;
        } else if let Some(question) = ask.get::<PeerHost>().filter(|_| !peer.is_unspecified()) {
            question.host = peer;
        } else if let Some(question) = ask.get::<MyHost>().filter(|_| !own.is_unspecified()) {
            question.host = own;
        } else if ask.get::<PeerProved>().is_some() {
            // A request that its client did not confirm makes no session.
            if !this.head().is_passive() || !self.shared.config.probe {
                return Answer::Unknown;
            }
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = self.shared.config.message_max as u32;
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = self.path.blocks * BLOCK_OCTETS as u32;
        } else if let Some(question) = ask.get::<CancelCall>() {
            let (tag, entities) = (question.tag, &self.shared.entities);
            if tag == 0 || !entities.cancel(cx, this.id(), tag, CallCause::Cancelled) {
                return Answer::Unknown;
            }
        } else if ask.get::<GathersReplies>().is_some() {
            if !self.is_to_many() {
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
        self.shared.entities.cancel(cx, this.id(), 0, CallCause::Closed);
        Closing::Done
    }
}

/// Names of the waits in a graph.
pub(crate) fn timers_of(name: &str) -> Option<Timers> {
    match name {
        "near" => Some(NEAR),
        "far" => Some(FAR),
        _ => None,
    }
}
