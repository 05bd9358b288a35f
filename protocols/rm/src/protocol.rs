//! The protocol object: opens, enables, and finds the record stream that a connection belongs to.

use crate::session::{Pipe, Role};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Time, Upper, reason,
};
use xk_kit::control::{MaxPacket, OptPacket};
use xk_kit::net::stream::{StreamError, StreamEvent, StreamNotice, StreamUse};
use xk_kit::rpc::server::OfferingServers;

xk_core::settings! {
    /// Bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        record_max: usize = octets(1 << 20, "octets of a message, at most, sent and received"),
        queue_max: usize = octets(2 << 20,
            "octets that wait to be sent on one connection, at most"),
        held_max: usize = octets(16 << 20,
            "octets that the connections of all peers together hold, at most, of records that are \
             not whole and of replies that are not read; no less than one record and one queue; of \
             the connections that hold their share or more, those break off first on which nothing \
             got done for longest"),
        sessions_max: usize = int(1..=16_777_216, 4096,
            "how many connections it holds, of peers and of its own each; of the idle ones of \
             peers that used least gives way"),
    }
}

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) lower: ProtocolRef,
    pub(crate) settings: Settings,
    /// Sessions that peers have opened, by connection.
    pub(crate) passive: SessionTable<u64>,
    /// Sessions opened from here, by connection.
    pub(crate) active: Map<u64, SessionRef>,
    /// Sessions opened from here, by both ends and the protocol above.
    pub(crate) opened: RefCell<BTreeMap<(String, u32), SessionRef>>,
    /// Octets that the connections of peers hold.
    pub(crate) held: Cell<usize>,
}

impl Shared {
    /// If peers' connections hold more than they may together, some are broken off, until a quarter
    /// is free: of those that hold their share or more, those first of which nothing got done for
    /// longest.
    pub(crate) fn relieve(&self, cx: &Kernel) {
        let Settings { record_max, queue_max, held_max, .. } = self.settings;
        let max = held_max.max(record_max.saturating_add(queue_max));
        if self.held.get() <= max {
            return;
        }
        let holds = |session: SessionRef| {
            let (octets, since) = session.body::<Pipe>()?.holds();
            (octets > 0).then_some((since, octets, session))
        };
        let sessions = self.passive.sessions(usize::MAX).into_iter();
        let mut all: Vec<(Time, usize, SessionRef)> = sessions.filter_map(holds).collect();
        let share = self.held.get() / all.len().max(1);
        all.retain(|(_, octets, _)| *octets >= share);
        all.sort_unstable_by_key(|(since, ..)| *since);
        for (_, _, session) in all {
            if self.held.get() <= max / 4 * 3 {
                return;
            }
            if let Some(pipe) = session.body::<Pipe>() {
                pipe.holds_most(cx, &session);
            }
        }
    }
}

/// One instance of the layer.
pub struct RecordMarking {
    shared: Rc<Shared>,
    server: OfferingServers,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    if settings.record_max > 1 << 30 {
        return Err(BuildError::param("record_max", "at most 1 GiB"));
    }
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let key = cx.secret();
    let shared = Rc::new(Shared {
        lower,
        settings,
        // One that is held executes a call.
        passive: SessionTable::new(key, settings.sessions_max).with_rank(|cx, session| {
            let is_idle = session.head().opens() == 0;
            is_idle.then(|| session.ask(cx, StreamUse::default())?.rank)?
        }),
        active: Map::new(key, settings.sessions_max),
        opened: RefCell::default(),
        held: Cell::new(0),
    });
    let body = RecordMarking { shared, server: OfferingServers::default() };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

impl RecordMarking {
    /// The session that a connection belongs to.
    fn session(&self, connection: &SessionRef) -> Option<SessionRef> {
        let id = connection.id().0;
        let shared = &self.shared;
        shared.passive.get(&id).or_else(|| shared.active.get(&id))
    }
}

impl Protocol for RecordMarking {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        participants.peer_mut()?;
        let local = participants.local_mut()?;
        if local.is_empty() {
            local.push(Part::Any);
        }
        let key = (participants.to_string(), upper.receiver.id().0);
        let known = self.shared.opened.borrow().get(&key).cloned();
        if let Some(session) = known {
            session.hold();
            return Ok(session);
        }
        if self.shared.opened.borrow().len() >= self.shared.settings.sessions_max {
            return Err(OpenError::Full);
        }
        let role = Role::Active { key: key.clone(), participants: participants.into() };
        let pipe = Pipe::new(&self.shared, upper.receiver, role);
        let session = cx.new_session(this, upper.receiver, pipe);
        self.shared.opened.borrow_mut().insert(key, session.clone());
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let local = participants.local_mut()?;
        self.server.enable(cx, &self.shared.lower, (this, upper), (0, local))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.server.disable(cx, &self.shared.lower, enable);
    }

    /// A peer has connected.
    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        let (upper, _) = self.server.get(0).ok_or(&reason::NO_PROTOCOL)?;
        let pipe = Pipe::new(&self.shared, &upper, Role::Passive);
        let session = cx.new_passive_session(this, &upper, lower.head().source(), pipe);
        // First: to ask may block, and octets may arrive meanwhile.
        self.shared.passive.bind(cx, lower.id().0, session.clone())?;
        lower.hold();
        let done = match session.body::<Pipe>() {
            Some(pipe) if pipe.connected(cx, lower) => {
                let done = upper.open_done(cx, &session, participants);
                done.inspect(|()| pipe.opened(cx, &session))
            }
            // Not a stream: messages are whole without marks.
            _ => Err(&reason::NOT_SUPPORTED),
        };
        done.inspect_err(|_| {
            self.shared.passive.unbind(&lower.id().0);
            session.abort(cx);
        })
    }

    /// A connection has ended without a word, such as with the address space that it lay in.
    fn gone(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if let Some(session) = self.session(lower)
            && let Some(pipe) = session.body::<Pipe>()
        {
            pipe.event(cx, &session, StreamEvent::Failed(StreamError::Aborted));
        }
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.session(lower) {
            Some(session) => session.pop(cx, message),
            None => Err(this.refuse(message, &reason::CLOSED)),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(notice) = ask.get::<StreamNotice>() {
            if notice.session.head().protocol() == this.id() {
                return Answer::Unknown;
            }
            let event = notice.event;
            if let Some(session) = self.session(&notice.session)
                && let Some(pipe) = session.body::<Pipe>()
            {
                pipe.event(cx, &session, event);
            }
            return Answer::Answered;
        }
        let octets = shared.settings.record_max as u32;
        if ask.answer::<MaxPacket>(|q| q.octets = octets).is_answered()
            || ask.answer::<OptPacket>(|q| q.octets = octets).is_answered()
        {
            return Answer::Answered;
        }
        shared.lower.control(cx, ask)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("passive", &self.shared.passive);
        tables.others(self.shared.opened.borrow().values());
        tables.map("active", self.shared.active.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let shared = &self.shared;
        let opened = shared.opened.take();
        shared.passive.clear();
        shared.active.clear();
        self.server.clear();
        drop(opened);
    }
}
