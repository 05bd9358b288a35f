//! The protocol object: opens, enables, demultiplexes.

use crate::WRONG_VERSION;
use crate::session::{Key, TemplateSession};
use crate::wire::{HEADER_OCTETS, Header, ParseError};
use alloc::rc::Rc;
use core::num::NonZeroU8;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::message::PullUpError;
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::ports::less_header;

/// How many upper protocols may enable it: as many as there are type numbers.
const ENABLES_MAX: usize = 255;

/// One instance of the layer.
pub struct Template {
    lower: ProtocolRef,
    sessions: Rc<SessionTable<Key>>,
    /// Type number to the protocol that takes messages with it.
    enables: Map<u8, ProtocolRef>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let key = build.cx.secret();
    let sessions_max = build.params.number("sessions_max", 1024);
    build.add(Template {
        lower: build.lower(0)?,
        sessions: Rc::new(SessionTable::new(key, sessions_max)),
        enables: Map::new(key, ENABLES_MAX),
    })
}

impl Protocol for Template {
    // Bottom-up at the start: from now on the layer below offers us what comes for our number.
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = number_of(cx, this, upper)?;
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let key = (lower.id().0, number.get());
        if let Some(session) = self.sessions.get(&key) {
            if session.head().upper() != upper.receiver.id() {
                lower.close(cx);
                return Err(OpenError::InUse);
            }
            // Held, the session holds the lower one itself.
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        let body = self.session(number, upper.receiver, lower);
        let session = cx.new_session(this, upper.receiver, body);
        if self.sessions.bind(cx, key, session.clone()).is_err() {
            session.close(cx);
            return Err(OpenError::Full);
        }
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = number_of(cx, this, upper)?.get();
        match self.enables.bind(number, upper.receiver.clone()) {
            Ok(()) => Ok(Enable(number.into())),
            Err(_) => Err(OpenError::InUse),
        }
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(number) = u8::try_from(enable.0) {
            self.enables.unbind(&number);
        }
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let header = match header_of(&mut message) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(message, why)),
        };
        let session = match self.sessions.get(&(lower.id().0, header.number.get())) {
            Some(session) => session,
            None => match self.first(cx, this, lower, header.number) {
                Ok(session) => session,
                Err(why) => return Err(this.refuse(message, why)),
            },
        };
        session.pop(cx, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", self.sessions.stats()));
            question.maps.push(("passive", self.enables.stats()));
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    // Sessions and enables refer to the protocols around us, and those to us: only letting go ends that.
    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.sessions.clear();
        self.enables.clear();
    }
}

impl Template {
    fn session(
        &self,
        number: NonZeroU8,
        upper: &ProtocolRef,
        lower: SessionRef,
    ) -> TemplateSession {
        TemplateSession::new(Rc::clone(&self.sessions), number, upper.clone(), lower)
    }

    /// The first message of a conversation makes the session, if somebody has enabled its type number.
    #[cold]
    fn first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        number: NonZeroU8,
    ) -> Result<SessionRef, &'static Reason> {
        let upper = self.enables.get(&number.get());
        let upper = upper.ok_or(&reason::NO_PROTOCOL)?;
        let body = self.session(number, &upper, lower.clone());
        let session = cx.new_passive_session(this, &upper, body);
        let key = (lower.id().0, number.get());
        let bound = self.sessions.bind(cx, key, session.clone());
        bound
            .and_then(|()| upper.open_done(cx, &session, Participants::default()))
            .inspect_err(|_| session.abort(cx))?;
        Ok(session)
    }
}

/// The type number of `upper` here.
fn number_of(cx: &Kernel, this: &ProtocolRef, upper: Upper<'_>) -> Result<NonZeroU8, OpenError> {
    let number = u8::try_from(upper.number_on(cx, this)?).ok();
    // One that the header has no room for is as good as none.
    number
        .and_then(NonZeroU8::new)
        .ok_or(OpenError::NoTypeNumber)
}

/// The header in front of a message, checked; what lies behind the message's length is cut off.
#[inline]
fn header_of(message: &mut Message) -> Result<Header, &'static Reason> {
    if message.pull_up(HEADER_OCTETS) == Err(PullUpError::NoBuffers) {
        return Err(&reason::NO_BUFFERS);
    }
    let octets = message.peek().ok_or(&reason::TRUNCATED)?;
    let present = message.len() - HEADER_OCTETS;
    let header = Header::parse(octets, present).map_err(|error| match error {
        ParseError::Version => &WRONG_VERSION,
        ParseError::Number => &reason::MALFORMED,
        ParseError::Length => &reason::BAD_LENGTH,
    })?;
    message.truncate(HEADER_OCTETS + usize::from(header.length));
    Ok(header)
}
