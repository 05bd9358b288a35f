//! The protocol object: opens, enables, demultiplexes.

use crate::session::{Key, NullSession};
use crate::wire::{HEADER_OCTETS, Header};
use alloc::rc::Rc;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Burst, Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper, reason,
};
use xk_kit::ports::less_header;

/// What protocol and sessions share.
pub(crate) struct Table {
    pub(crate) sessions: SessionTable<Key>,
}

/// One instance of the layer.
pub struct Null {
    lower: ProtocolRef,
    table: Rc<Table>,
    /// Type number to the protocol that takes messages with it.
    enables: Map<u32, ProtocolRef>,
}

/// How many upper protocols may enable it.
const ENABLES_MAX: usize = 256;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.params.number("sessions_max", 1024);
    Ok(add(build.cx, build.name, build.lower(0)?, sessions_max))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, sessions_max: usize) -> ProtocolRef {
    let key = cx.secret();
    let table = Rc::new(Table {
        sessions: SessionTable::new(key, sessions_max),
    });
    let enables = Map::new(key, ENABLES_MAX);
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Null {
            lower,
            table,
            enables,
        },
    )
}

impl Null {
    fn session(&self, number: u32, upper: &ProtocolRef, lower: SessionRef) -> NullSession {
        NullSession {
            table: Rc::clone(&self.table),
            key: (lower.id().0, number),
            lower,
            upper: upper.clone(),
            template: Header { number }.emit(),
        }
    }
}

impl Protocol for Null {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(xk_core::Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = upper.number_on(cx, this)?;
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let key = (lower.id().0, number);
        if let Some(session) = self.table.sessions.get(&key) {
            if session.head().upper() != upper.receiver.id() {
                lower.close(cx);
                return Err(OpenError::InUse);
            }
            // Held, the session holds the lower one itself.
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        let session = cx.new_session(
            this,
            upper.receiver,
            self.session(number, upper.receiver, lower.clone()),
        );
        match self.table.sessions.bind(cx, key, session.clone()) {
            Ok(()) => Ok(session),
            Err(_) => {
                session.close(cx);
                Err(OpenError::Full)
            }
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = upper.number_on(cx, this)?;
        match self.enables.bind(number, upper.receiver.clone()) {
            Ok(()) => Ok(Enable(u64::from(number))),
            Err(_) => Err(OpenError::InUse),
        }
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(number) = u32::try_from(enable.0) {
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
        if let Some(octets) = message.peek_in_place::<HEADER_OCTETS>()
            && let key = (lower.id().0, Header::parse(octets).number)
            && let Some(session) = self.table.sessions.latest(&key)
        {
            message.strip_in_place(HEADER_OCTETS);
            return session.pop(cx, message);
        }
        self.demux_other(cx, this, lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while burst.goes_on(lower) {
            if let Some(first) = burst.peek::<HEADER_OCTETS>(0)
                && let first = first.octets
                && let key = (lower.id().0, Header::parse(&first).number)
                && let Some(session) = self.table.sessions.get(&key)
            {
                let run = burst.count_while(|_, glance| glance.octets == first);
                session.pop_burst(cx, burst.first(run).behind(HEADER_OCTETS))?;
            } else if let Some(message) = burst.next() {
                self.demux_other(cx, this, lower, message)?;
            }
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.table.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", self.table.sessions.stats()));
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

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.table.sessions.clear();
        self.enables.clear();
    }
}

impl Null {
    /// Takes any message.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        // A header that lies in several slices is brought together; one that is not all there stays unread.
        let _ = message.pull_up(HEADER_OCTETS);
        let Some(octets) = message.pop_array::<HEADER_OCTETS>() else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let key = (lower.id().0, Header::parse(octets).number);
        match self.table.sessions.get(&key) {
            Some(session) => session.pop(cx, message),
            None => self.demux_first(cx, this, lower, key.1, message),
        }
    }

    /// The first message of a conversation: makes the session that somebody has enabled.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        number: u32,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(upper) = self.enables.get(&number) else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        let session =
            cx.new_passive_session(this, &upper, self.session(number, &upper, lower.clone()));
        if let Err(full) = self
            .table
            .sessions
            .bind(cx, (lower.id().0, number), session.clone())
        {
            session.abort(cx);
            return Err(this.refuse(message, full));
        }
        if let Err(unwanted) = upper.open_done(cx, &session, Participants::default()) {
            session.abort(cx);
            return Err(this.refuse(message, unwanted));
        }
        session.pop(cx, message)
    }
}
