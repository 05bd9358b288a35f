//! The protocol object: opens procedures of peers, enables procedures, and finds who serves a
//! request.

use crate::pool::ChannelPool;
use crate::routes::Routes;
use crate::session::{ClientKey, ClientSession, ServerKey, ServerSession, WholeSession, refusal};
use crate::wire::{HEADER_OCTETS, Header, STATUS_OK, Type};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::participant::{AddressError, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::{NO_PROCEDURE, PROCEDURE, pop_definite, pop_local};

/// How many procedures may be enabled, and how many peers may have channels.
const ENABLES_MAX: usize = 4096;
const PEERS_MAX: usize = 1024;
/// The key of an enable of any procedure.
const ANY: u32 = u32::MAX;

/// The bounds of one instance.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many channels a peer has at most.
    pub channels: usize,
    /// How many sessions there are for clients, and how many for servers.
    pub sessions_max: usize,
}

impl Default for Limits {
    /// Eight channels a peer, 4096 sessions of each kind.
    fn default() -> Self {
        Self { channels: 8, sessions_max: 4096 }
    }
}

impl Limits {
    fn read(build: &Build<'_>) -> Self {
        let usual = Self::default();
        Self {
            channels: build.params.number("channels", usual.channels),
            sessions_max: build.params.number("sessions_max", usual.sessions_max),
        }
    }
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) clients: SessionTable<ClientKey>,
    pub(crate) servers: SessionTable<ServerKey>,
    /// Pools with their numbers, which are never used twice.
    pools: RefCell<Vec<(u64, Rc<ChannelPool>)>>,
    pool_last: Cell<u64>,
}

impl Shared {
    /// The pool's last user has gone.
    pub(crate) fn forget_pool(&self, pool: &Rc<ChannelPool>) {
        let is_other = |(_, other): &(u64, Rc<ChannelPool>)| !Rc::ptr_eq(other, pool);
        self.pools.borrow_mut().retain(is_other);
    }
}

/// One instance of the layer, whether or not it forwards.
pub struct Select {
    lower: ProtocolRef,
    limits: Limits,
    shared: Rc<Shared>,
    /// Procedure, or [`ANY`], to the protocol that serves it.
    enables: Map<u32, ProtocolRef>,
    /// Whose procedures are called elsewhere.
    routes: Routes,
}

/// Builds SELECT from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let select = Select::new(build.cx, build.lower(0)?, Limits::read(build), Routes::none());
    build.add(select)
}

/// Builds the layer that forwards from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a route is none.
pub fn build_forward(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let routes = Routes::read(build.params)?;
    let select = Select::new(build.cx, build.lower(0)?, Limits::read(build), routes);
    build.add(select)
}

/// Adds SELECT to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, limits: Limits) -> ProtocolRef {
    let select = Select::new(cx, lower, limits, Routes::none());
    cx.add_protocol(crate::ENTRY.kind, name, select)
}

impl Select {
    fn new(cx: &Kernel, lower: ProtocolRef, limits: Limits, routes: Routes) -> Self {
        let key = cx.secret();
        let shared = Rc::new(Shared {
            clients: SessionTable::new(key, limits.sessions_max),
            servers: SessionTable::new(key, limits.sessions_max),
            pools: RefCell::default(),
            pool_last: Cell::new(0),
        });
        Self { lower, limits, shared, enables: Map::new(key, ENABLES_MAX), routes }
    }

    /// The pool of channels to this peer, for one more user.
    fn pool(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        participants: Participants,
    ) -> Result<(u64, Rc<ChannelPool>), OpenError> {
        if let Some((number, pool)) = self.find_pool(&participants) {
            pool.join();
            return Ok((number, pool));
        }
        if self.shared.pools.borrow().len() >= PEERS_MAX {
            return Err(OpenError::Full);
        }
        let channels = self.limits.channels.max(1);
        let pool = ChannelPool::open(cx, &self.lower, this, participants.clone(), channels)?;
        // Opening may have blocked, and somebody else been faster.
        if let Some((number, other)) = self.find_pool(&participants) {
            pool.leave(cx);
            other.join();
            return Ok((number, other));
        }
        let number = self.shared.pool_last.get() + 1;
        self.shared.pool_last.set(number);
        let pool = Rc::new(pool);
        let mut pools = self.shared.pools.borrow_mut();
        pools.push((number, Rc::clone(&pool)));
        Ok((number, pool))
    }

    fn find_pool(&self, participants: &Participants) -> Option<(u64, Rc<ChannelPool>)> {
        let pools = self.shared.pools.borrow();
        let mut all = pools.iter();
        all.find(|(_, pool)| pool.participants() == participants).cloned()
    }

    /// A client's session for this procedure of this peer: the one there is, or a new one.
    fn open_procedure(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        command: u16,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (number, pool) = self.pool(cx, this, participants)?;
        let key = (number, command, upper.id().0);
        let body = ClientSession {
            shared: Rc::clone(&self.shared),
            key,
            pool,
            template: Header::call(command).emit(),
            expected: Header::reply(command, STATUS_OK).emit(),
        };
        self.shared.clients.open(cx, this, upper, key, body)
    }

    /// A session through which calls go to a peer with their header as it is.
    pub(crate) fn open_whole(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (_, pool) = self.pool(cx, this, participants)?;
        let shared = Rc::clone(&self.shared);
        Ok(cx.new_session(this, this, WholeSession { shared, pool }))
    }

    /// Any call that is not one of the last served session's.
    #[inline(never)]
    fn call_demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        // A header that lies in several slices is brought together; one that is not all there stays
        // unread.
        let _ = request.pull_up(HEADER_OCTETS);
        let Some(octets) = request.pop_array::<HEADER_OCTETS>().copied() else {
            return Err(this.refuse(request, &reason::TRUNCATED));
        };
        let header = match Header::parse(&octets) {
            Ok(header) if header.kind == Type::Call => header,
            _ => return Err(this.refuse(request, &reason::MALFORMED)),
        };
        if let Some(to) = self.routes.find(header.command) {
            return self
                .forward(cx, this, lower, to, header, request)
                .or_else(|refused| refusal(header.command, refused));
        }
        let key = (lower.id().0, header.command);
        match self.shared.servers.get(&key) {
            Some(session) => session.call_pop(cx, request),
            None => self.call_demux_first(cx, this, lower, header.command, request),
        }
    }

    /// The first call of a procedure through a channel: makes the session that somebody has
    /// enabled.
    #[cold]
    fn call_demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        command: u16,
        request: Message,
    ) -> Result<Message, Refused> {
        match self.passive_session(cx, this, lower, command) {
            Ok(session) => session.call_pop(cx, request),
            Err(why) => refusal(command, this.refuse(request, why)),
        }
    }

    fn passive_session(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        command: u16,
    ) -> Result<SessionRef, &'static Reason> {
        let enabled = self.enables.get(&command.into());
        let upper = enabled.or_else(|| self.enables.get(&ANY));
        let upper = upper.ok_or(&NO_PROCEDURE)?;
        let key = (lower.id().0, command);
        let body = ServerSession {
            shared: Rc::clone(&self.shared),
            key,
            upper: upper.clone(),
            lower: lower.clone(),
            template: Header::reply(command, STATUS_OK).emit(),
        };
        let (servers, ends) = (&self.shared.servers, Participants::default);
        servers.accept(cx, this, &upper, key, body, ends)
    }
}

impl Protocol for Select {
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
        let command = pop_definite(participants.peer_mut()?, PROCEDURE)?;
        let command = u16::try_from(command).map_err(|_| AddressError::OutOfRange)?;
        let local = participants.local_mut()?;
        pop_local(local, PROCEDURE)?;
        if local.is_empty() {
            local.push(Part::Any);
        }
        self.open_procedure(cx, this, upper.receiver, command, participants)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let key = match pop_local(participants.local_mut()?, PROCEDURE)? {
            Wild::Any => ANY,
            Wild::Is(number) if number <= u32::from(u16::MAX) => number,
            Wild::Is(_) => return Err(AddressError::OutOfRange.into()),
        };
        self.enables.bind(key, upper.receiver.clone())?;
        Ok(Enable(key.into()))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(key) = u32::try_from(enable.0) {
            self.enables.unbind(&key);
        }
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        // Type 1, status 0: a call; octets 1 and 5 say nothing to who serves.
        if let Some([1, _, high, low, 0, _]) = request.peek_in_place::<HEADER_OCTETS>()
            && let key = (lower.id().0, u16::from_be_bytes([*high, *low]))
            && let Some(session) = self.shared.servers.latest(&key)
        {
            request.strip_in_place(HEADER_OCTETS);
            return session.call_pop(cx, request);
        }
        self.call_demux_other(cx, this, lower, request)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.clients);
            question.add(&shared.servers);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.add("active", shared.clients.stats());
            question.add("passive", shared.servers.stats());
            question.add("enables", self.enables.stats());
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
        self.shared.clients.clear();
        self.shared.servers.clear();
        self.enables.clear();
        self.routes.clear();
        let pools = self.shared.pools.take();
        for (_, pool) in &pools {
            pool.clear();
        }
    }
}
