//! The requests in frames of the other side, done here.

use alloc::rc::Rc;
use alloc::vec::Vec;
use xk_core::control::{Field, Kind, Reader, Writer};
use xk_core::object::{CallCause, CallError, Enable, OpenError, ProtocolId, PushError, Refused};
use xk_core::{
    Kernel, Message, Participants, ProtocolRef, Question, Reason, SessionRef, Upper, reason,
};
use xk_kit::net::stream::{StreamEndRecord, StreamShutdown, StreamSpace};
use xk_kit::net::template::Headers;
use xk_kit::rpc::retransmit::LastCopy;

use crate::exports::{self, Export, SESSIONS_MAX};
use crate::frame::{ANSWERED, Header, LASTS, LOST_QUESTION, Op, UNKNOWN, octets_of};
use crate::imports::{self, Fact, ProxySession};
use crate::port::{LATE, Names, Port, Wish, find};
use crate::waits::Answered;

/// Questions about messages that were pushed before, which they do not overtake.
const OF_PUSHES: [u32; 4] =
    [StreamSpace::KEY, StreamShutdown::KEY, StreamEndRecord::KEY, LastCopy::KEY];

/// Answer of an operation that may fail, in octets.
pub(crate) struct Outcome<T, E>(pub(crate) Result<T, E>);

impl<T: Field, E: Field> Field for Outcome<T, E> {
    fn put(&self, out: &mut Writer<'_>) {
        self.0.is_ok().put(out);
        match &self.0 {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self(match bool::take(from)? {
            true => Ok(T::take(from)?),
            false => Err(E::take(from)?),
        }))
    }
}

/// Contents of an [`Op::Opened`]: the number of opens, with this one, and the facts.
type Opened = Outcome<(u32, Vec<Fact>), OpenError>;

/// Contents of an [`Op::OpenDone`]: the protocol that the session comes through and its source, its
/// ends, and facts.
pub(crate) type Offer = ((ProtocolId, u64), Participants, Vec<Fact>);

impl Port {
    /// See [`take`](Self::take).
    pub(crate) fn take_frame(&self, cx: &Kernel, header: Header, mut frame: Message) -> Option<()> {
        let Header { op, first, second, .. } = header;
        if frame.has_attributes() {
            self.sift(op, &mut frame);
        }
        match op {
            Op::Open | Op::Enable => self.begin(cx, header, frame)?,
            Op::Opened => self.opened(cx, header, frame)?,
            Op::Enabled | Op::Return | Op::NoReturn | Op::Answer => match self.waits.find(first) {
                Some(wait) => self.waits.answer(cx, &wait, Answered::Frame(header, frame)),
                None => {
                    if self.unanswered.get().is_some_and(|(tag, _)| tag == first) {
                        self.unanswered.set(None);
                    }
                    self.count(&LATE);
                }
            },
            Op::Disable => self.disable(cx, ProtocolId(first), frame)?,
            Op::OpenDone => self.offered(cx, header, frame)?,
            Op::Demux => self.deliver(cx, (first, second), frame),
            Op::Gone => {
                if let Some(session) = imports::take(&self.imports, first) {
                    session.retire(cx);
                }
            }
            Op::CallUp => self.call_up(cx, header, frame)?,
            Op::AskProtocol | Op::AskSession => self.answer(cx, header, frame)?,
            Op::Failed => {
                if let Some(session) = self.imports.get(first) {
                    let error = self.read(cx, &frame)?;
                    let proxy = session.body::<ProxySession>()?;
                    if error == PushError::TooBig {
                        // How much it takes has changed.
                        proxy.facts.clear();
                    }
                    proxy.failed.set(Some(error));
                }
            }
            Op::Wanted
            | Op::Unwanted
            | Op::Hold
            | Op::Ease
            | Op::Close
            | Op::Push
            | Op::Refused
            | Op::Call => match self.exports.get(first) {
                Some(export) => self.about(cx, &export, header, frame)?,
                // Of a session that ended meanwhile.
                None if op == Op::Call => {
                    let closed = Err(CallError::from(CallCause::Closed));
                    self.reply(cx, second, closed, CallError::rejected);
                }
                None if op == Op::Push => self.count(&LATE),
                None => {}
            },
        }
        Some(())
    }

    // ---- the lower side ----

    /// Opens or enables.
    fn begin(&self, cx: &Kernel, header: Header, frame: Message) -> Option<()> {
        let (receiver, selector, participants) = self.read(cx, &frame)?;
        let lower = ProtocolId(header.second);
        if header.op == Op::Enable {
            let enable = || self.enable(cx, lower, receiver, selector, participants);
            return self.serve(
                enable,
                || Err(OpenError::Full),
                |enabled| {
                    let fields = self.write(cx, &Outcome(enabled));
                    self.tell(cx, Header::new(Op::Enabled, header.first, 0), &fields);
                },
            );
        }
        self.opening.set(self.opening.get() + 1);
        let open = || self.open(cx, lower, receiver, selector, participants);
        let served = self.serve(
            open,
            || Err(OpenError::Full),
            |opened| {
                let (handle, outcome, export) = match opened {
                    Ok((export, opens, facts)) => {
                        let opened: Opened = Outcome(Ok((opens, facts)));
                        (export.handle, opened, Some(export))
                    }
                    Err(error) => (0, Outcome(Err(error)), None),
                };
                let fields = self.write(cx, &outcome);
                self.tell(cx, Header::new(Op::Opened, header.first, handle), &fields);
                if let Some(export) = export {
                    self.deliver_early(cx, &export);
                }
            },
        );
        self.opening.set(self.opening.get() - 1);
        if self.opening.get() == 0 {
            // Of sessions that were not opened after all.
            self.early.take().iter().for_each(|_| self.count(&LATE));
        }
        served
    }

    /// Opens a session: as the other side knows it from now on, how many opens of it were done, and
    /// its facts. Between the last of these and the answer nothing blocks, so that what comes of
    /// the session crosses behind the answer, and a close is of an answer that was sent.
    fn open(
        &self,
        cx: &Kernel,
        lower: ProtocolId,
        receiver: ProtocolId,
        selector: ProtocolId,
        participants: Participants,
    ) -> Result<(Rc<Export>, u32, Vec<Fact>), OpenError> {
        let wish = Wish::Open(lower, &participants);
        let (lower, proxy) = self.ends(cx, &wish, lower, (receiver, selector))?;
        let (upper, losses) = (Upper { receiver: &proxy, selector }, self.losses.get());
        let session = lower.open(cx, upper, participants)?;
        let facts = self.facts_of(cx, &session);
        if losses != self.losses.get() || session.head().is_closed() {
            session.close(cx);
            return Err(OpenError::NoAnswer);
        }
        let Some(export) = self.export(&session) else {
            session.close(cx);
            return Err(OpenError::Full);
        };
        if export.is_held.replace(true) {
            // The cut is one holder.
            session.close(cx);
        }
        let opens = export.opens.get() + 1;
        export.opens.set(opens);
        Ok((export, opens, facts))
    }

    /// The session as the other side knows it, from now on at the latest; `None` at the bound.
    pub(crate) fn export(&self, session: &SessionRef) -> Option<Rc<Export>> {
        exports::of(&self.exports, session).or_else(|| {
            session.watch();
            exports::add(&self.exports, session)
        })
    }

    fn enable(
        &self,
        cx: &Kernel,
        lower: ProtocolId,
        receiver: ProtocolId,
        selector: ProtocolId,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let wish = Wish::Enable(lower, &participants);
        let (on, proxy) = self.ends(cx, &wish, lower, (receiver, selector))?;
        let (upper, losses) = (Upper { receiver: &proxy, selector }, self.losses.get());
        let enable = on.open_enable(cx, upper, participants)?;
        if losses != self.losses.get() {
            on.open_disable(cx, enable);
            return Err(OpenError::NoLower);
        }
        self.enables.borrow_mut().push((lower, receiver, enable));
        Ok(enable)
    }

    /// The protocol of this side, and what stands for the receiver.
    fn ends(
        &self,
        cx: &Kernel,
        wish: &Wish<'_>,
        lower: ProtocolId,
        (receiver, selector): (ProtocolId, ProtocolId),
    ) -> Result<(ProtocolRef, ProtocolRef), OpenError> {
        let lower = find(&self.granted, lower).ok_or(OpenError::NoLower)?;
        if !self.permits(wish) {
            return Err(OpenError::NotPermitted);
        }
        let proxy = self.upper(cx, receiver).ok_or(OpenError::NotSupported)?;
        if cx.protocol(selector).is_none() {
            // What its number selects may be asked as well.
            self.upper(cx, selector);
        }
        Ok((lower, proxy))
    }

    fn disable(&self, cx: &Kernel, lower: ProtocolId, frame: Message) -> Option<()> {
        let (receiver, enable) = self.read::<(ProtocolId, Enable)>(cx, &frame)?;
        let mut enables = self.enables.borrow_mut();
        let Some(at) = enables.iter().position(|known| *known == (lower, receiver, enable)) else {
            self.count(&LATE);
            return Some(());
        };
        let _ = enables.swap_remove(at);
        drop(enables);
        if let Some(lower) = self.own(lower) {
            lower.open_disable(cx, enable);
        }
        Some(())
    }

    /// Delivers what came up through a session before the other side knew it.
    fn deliver_early(&self, cx: &Kernel, export: &Rc<Export>) {
        loop {
            let mut early = self.early.borrow_mut();
            let Some(at) = early.iter().position(|(session, _)| *session == export.session) else {
                return;
            };
            let next = early.remove(at);
            drop(early);
            if let Some((session, message)) = next
                && let Some(proxy) = cx.protocol(session.head().upper())
            {
                drop(proxy.demux(cx, &session, message));
            }
        }
    }

    /// Serves a frame of the other side about a session of this one.
    fn about(
        &self,
        cx: &Kernel,
        export: &Rc<Export>,
        header: Header,
        frame: Message,
    ) -> Option<()> {
        let session = &export.session;
        match header.op {
            Op::Wanted => {
                if export.is_offered.replace(false) {
                    session.ease(cx);
                }
            }
            Op::Unwanted => {
                let why = self.read::<&'static Reason>(cx, &frame)?;
                self.unwanted(cx, export, why);
            }
            Op::Hold => {
                if !export.is_held.replace(true) {
                    session.hold();
                }
            }
            // What was pushed before goes first.
            Op::Ease | Op::Close if export.is_pushing.get() => export.let_go.set(Some(header)),
            Op::Ease | Op::Close => self.let_go(cx, export, header),
            Op::Push if export.is_pushing.get() => {
                if export.wait(header, frame).is_err() {
                    self.count(&reason::QUEUE_FULL);
                    self.failed(cx, export, PushError::QueueFull);
                }
            }
            Op::Push => self.push(cx, export, frame),
            Op::Refused => {
                let why = self.read::<&'static Reason>(cx, &frame)?;
                self.refused(cx, export, header.second, why);
            }
            Op::Call => {
                let call = || session.call(cx, frame);
                let full = || Err(CallError::from(CallCause::NoShepherds));
                let reply = |reply| self.reply(cx, header.second, reply, CallError::rejected);
                self.serve(call, full, reply)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn push(&self, cx: &Kernel, export: &Rc<Export>, message: Message) {
        let Some(_way) = self.under_way() else {
            return self.failed(cx, export, PushError::QueueFull);
        };
        export.is_pushing.set(true);
        let mut next = Some((Header::new(Op::Push, export.handle, 0), message));
        while let Some((header, frame)) = next {
            if header.op == Op::Push {
                if let Err(error) = export.session.push(cx, frame) {
                    self.failed(cx, export, error);
                }
            } else if self.put_question(cx, header, &frame).is_none() {
                self.lose(cx);
            }
            next = export.waiting.borrow_mut().pop_front();
        }
        export.is_pushing.set(false);
        if let Some(header) = export.let_go.take() {
            self.let_go(cx, export, header);
        }
    }

    /// The other side holds a session no more.
    fn let_go(&self, cx: &Kernel, export: &Export, header: Header) {
        let session = &export.session;
        // Otherwise the answer to an open is on its way there, and it holds the session after all.
        if export.opens.get() == header.second && export.is_held.replace(false) {
            let closes = header.op == Op::Close;
            export.was_closed.set(closes);
            if closes { session.close(cx) } else { session.ease(cx) }
        }
        if session.head().is_closed() {
            self.ended(cx, export);
        }
    }

    fn failed(&self, cx: &Kernel, export: &Export, error: PushError) {
        let fields = self.write(cx, &error);
        self.tell(cx, Header::new(Op::Failed, export.handle, 0), &fields);
    }

    /// A message that went up was refused.
    fn refused(&self, cx: &Kernel, export: &Export, number: u32, why: &'static Reason) {
        if export.going_up.get() > 0 {
            // The caller that handed it up is still there.
            export.refused.set(Some(why));
        } else if let Some(message) = self.take_kept(number, export.handle) {
            export.session.refused(cx, Refused::new(message, why));
        }
    }

    /// A session that was offered is not wanted.
    fn unwanted(&self, cx: &Kernel, export: &Rc<Export>, why: &'static Reason) {
        let session = &export.session;
        self.exports.leave(export.handle);
        if export.is_offered.replace(false) {
            session.ease(cx);
        }
        if export.going_up.get() > 0 {
            export.unwanted.set(Some(why));
            return;
        }
        if export.is_held.replace(false) {
            session.close(cx);
        }
        session.abort(cx);
    }

    /// A session has ended: the other side is told.
    pub(crate) fn ended(&self, cx: &Kernel, export: &Export) {
        if self.exports.leave(export.handle).is_some() {
            self.tell(cx, Header::new(Op::Gone, export.handle, 0), &[]);
        }
    }

    // ---- the upper side ----

    /// An open is answered.
    fn opened(&self, cx: &Kernel, header: Header, frame: Message) -> Option<()> {
        let Outcome(outcome): Opened = self.read(cx, &frame)?;
        let wait = self.waits.find(header.first);
        let opens = wait.as_ref().and_then(|wait| wait.opens());
        let (Some(wait), Some((protocol, upper))) = (wait, opens) else {
            if let Ok((opens, _)) = outcome {
                self.not_taken(cx, header.second, opens);
            }
            return Some(());
        };
        let session = match outcome {
            Ok((opens, facts)) => {
                Ok(self.import(cx, header.second, opens, (protocol, upper), facts)?)
            }
            Err(error) => Err(error),
        };
        self.waits.answer(cx, &wait, Answered::Session(session));
        Some(())
    }

    /// An open was answered too late.
    fn not_taken(&self, cx: &Kernel, handle: u32, opens: u32) {
        let session = self.imports.get(handle).filter(|session| session.head().opens() > 0);
        match session.as_ref().and_then(|session| session.body::<ProxySession>()) {
            Some(proxy) => proxy.opens.set(opens.max(proxy.opens.get())),
            None => self.tell(cx, Header::new(Op::Close, handle, opens), &[]),
        }
    }

    /// Returns the proxy of a session that was opened, held once more.
    fn import(
        &self,
        cx: &Kernel,
        handle: u32,
        opens: u32,
        (protocol, upper): (ProtocolId, ProtocolRef),
        facts: Vec<Fact>,
    ) -> Option<SessionRef> {
        let known = self.imports.get(handle).filter(|session| !session.head().is_closed());
        if let Some(session) = known {
            let proxy = session.body::<ProxySession>()?;
            if proxy.upper != upper {
                return None;
            }
            // Answers may overtake each other.
            proxy.opens.set(opens.max(proxy.opens.get()));
            proxy.learn(facts);
            session.hold();
            return Some(session);
        }
        let this = self.lower(protocol)?;
        let body = ProxySession::new(&self.strong()?, (handle, opens), protocol, &upper, facts);
        let session = cx.new_session(&this, &upper, body);
        self.imports.put(SESSIONS_MAX, handle, Some(session.clone())).map(|_| session)
    }

    /// A session was made on the other side for an enable of this one.
    fn offered(&self, cx: &Kernel, header: Header, frame: Message) -> Option<()> {
        let ((protocol, source), participants, facts): Offer = self.read(cx, &frame)?;
        let (handle, receiver) = (header.first, ProtocolId(header.second));
        let users = self.users.borrow();
        let upper = users.iter().find(|user| user.id() == receiver).cloned();
        drop(users);
        let (upper, this) = (upper?, self.lower(protocol)?);
        let body = ProxySession::new(&self.strong()?, (handle, 0), protocol, &upper, facts);
        let session = cx.new_passive_session(&this, &upper, source, body);
        self.imports.put(SESSIONS_MAX, handle, Some(session.clone()))?;
        match session.announce(cx, &upper, participants) {
            Ok(()) => self.tell(cx, Header::new(Op::Wanted, handle, 0), &[]),
            Err(why) => {
                imports::take(&self.imports, handle);
                let fields = self.write(cx, &why);
                self.tell(cx, Header::new(Op::Unwanted, handle, 0), &fields);
                session.retire(cx);
            }
        }
        Some(())
    }

    /// A message for a session here.
    fn deliver(&self, cx: &Kernel, (handle, number): (u32, u32), message: Message) {
        let Some(session) = self.imports.get(handle) else {
            self.count(&LATE);
            return;
        };
        if session.head().is_closed() {
            // Closed here whatever holds it: the next message is to be offered again.
            imports::take(&self.imports, handle);
            session.discard(cx, message, &reason::CLOSED);
            self.refuse(cx, handle, number, &reason::CLOSED);
            let fields = self.write(cx, &&reason::CLOSED);
            self.tell(cx, Header::new(Op::Unwanted, handle, 0), &fields);
        } else if let Err(refused) = session.pop(cx, message) {
            self.refuse(cx, handle, number, refused.reason);
        }
    }

    /// Tells the other side of a message that is refused here.
    pub(crate) fn refuse(&self, cx: &Kernel, handle: u32, number: u32, why: &'static Reason) {
        let fields = self.write(cx, &why);
        self.tell(cx, Header::new(Op::Refused, handle, number), &fields);
    }

    /// Answers a request of the rpc realm. One that waits is told of a reply that no frame holds.
    fn reply<E: Field>(
        &self,
        cx: &Kernel,
        tag: u32,
        reply: Result<Message, E>,
        refused: fn(&'static Reason) -> E,
    ) {
        let reply = reply.and_then(|reply| match self.crosses(&reply) {
            true => Ok(reply),
            false => {
                self.count(&reason::TOO_BIG);
                Err(refused(&reason::TOO_BIG))
            }
        });
        match reply {
            Ok(reply) => self.post(cx, Header::new(Op::Return, tag, 0), reply),
            Err(why) => {
                let fields = self.write(cx, &why);
                self.tell(cx, Header::new(Op::NoReturn, tag, 0), &fields);
            }
        }
    }

    /// A request for a session here.
    fn call_up(&self, cx: &Kernel, header: Header, message: Message) -> Option<()> {
        let call = || match self.imports.get(header.first) {
            Some(session) => session.call_pop(cx, message).map_err(|refused| refused.reason),
            None => {
                self.count(&LATE);
                Err(&reason::CLOSED)
            }
        };
        let full = || Err(&reason::QUEUE_FULL);
        self.serve(call, full, |answer| self.reply(cx, header.second, answer, |why| why))
    }

    // ---- both ----

    /// Puts a question here.
    fn answer(&self, cx: &Kernel, header: Header, mut frame: Message) -> Option<()> {
        let key = u32::from_le_bytes(*frame.peek::<4>()?);
        if header.op == Op::AskSession
            && OF_PUSHES.contains(&key)
            && let Some(export) = self.exports.get(header.second)
            && export.is_pushing.get()
        {
            match export.wait(header, frame) {
                Ok(()) => return Some(()),
                Err(back) => frame = back,
            }
        }
        self.put_question(cx, header, &frame)
    }

    fn put_question(&self, cx: &Kernel, header: Header, frame: &Message) -> Option<()> {
        let (tag, number) = (header.first, header.second);
        let (octets, names) = (octets_of(frame), Names::of(self, cx));
        let mut from = Reader::new(&octets, &names);
        let (key, passed) = <(u32, Vec<ProtocolId>)>::take(&mut from)?;
        let lost = || -> Option<Vec<u8>> {
            let _ = cx.lose_question();
            None
        };
        let put = || {
            let kind = self.question(key)?;
            let answer = kind.read(from.rest(), &names, passed, |ask| {
                // It is answered behind what came for the session before.
                if let Some(session) = names.named.take() {
                    let _ = session.wait_until_open(cx);
                }
                let permits = |wish: Wish<'_>| self.permits(&wish).then_some(());
                let mut answered = ANSWERED;
                let answer = if header.op == Op::AskSession {
                    let Some(export) = self.exports.get(number) else {
                        return lost();
                    };
                    let of = export.session.head().protocol();
                    permits(Wish::AskSession(of, kind))?;
                    let answer = export.session.control(cx, ask);
                    if answer.is_answered() && kind.kind == Kind::Fact {
                        self.learn(of, kind, from.rest());
                    }
                    // A wire puts nothing in front, whatever becomes of its peers.
                    let is_wire = || cx.protocol(of).is_some_and(|of| of.wire().is_some());
                    if kind.key == Headers::KEY && is_wire() {
                        answered = LASTS;
                    }
                    answer
                } else {
                    let of = ProtocolId(number);
                    permits(Wish::AskProtocol(of, kind))?;
                    self.may_hear(kind).then_some(())?;
                    let losses = self.losses.get();
                    let answer = self.own(of)?.control(cx, ask);
                    match answer.is_answered() {
                        true if losses == self.losses.get() => self.hear(of, kind, from.rest()),
                        // The other side has died meanwhile.
                        true => self.disown(cx, of, kind, from.rest()),
                        false => {}
                    }
                    answer
                };
                if !answer.is_answered() || tag == 0 {
                    return None;
                }
                let mut out = Writer::reusing(self.scratch.take(), &names);
                answered.put(&mut out);
                ask.put(&mut out);
                out.finish()
            });
            // It may name a session that has ended meanwhile.
            answer.unwrap_or_else(lost)
        };
        self.serve(
            || cx.unless_lost(put),
            || Err(&reason::QUEUE_FULL),
            |answer| {
                if tag != 0 {
                    let answer = answer.map_err(|_| &[LOST_QUESTION]);
                    let fields = match &answer {
                        Ok(answer) => answer.as_deref().unwrap_or(&[UNKNOWN]),
                        Err(lost) => &lost[..],
                    };
                    self.tell(cx, Header::new(Op::Answer, tag, 0), fields);
                    self.keep_scratch(answer.ok().flatten());
                }
            },
        )
    }
}
