//! The protocol object: opens, enables, and finds the layer of authentication that a request is
//! for.

use crate::session::{Calling, Serving, deny, template};

use crate::trunk::Trunk;
use crate::wire::{CALL_OCTETS, CallHeader, Denied, RPC_VERSION, word};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, SessionRef,
    Upper, reason,
};
use xk_kit::net::offers::Offers;
use xk_kit::net::ports::less_header;
use xk_kit::rpc::onc::{
    AUTH_HEAD_OCTETS, CarriesCredentials, Offered, ProcedureName, TOO_WEAK, WRONG_RPC_VERSION,
    auth_stat,
};

/// Octets of a header and the flavor behind it.
const LOOK_OCTETS: usize = CALL_OCTETS + 4;

/// Program, version, procedure and flavor.
pub(crate) type Name = u128;

fn name(header: CallHeader, flavor: u32) -> Name {
    let words = [header.program, header.version, header.procedure, flavor];
    words.into_iter().fold(0, |name, word| name << 32 | u128::from(word))
}

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many sessions it holds for either direction.
    pub sessions_max: usize,
    /// How many sessions to one peer it opens below, where one has but one call under way.
    pub lines_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sessions_max: 16_384, lines_max: 8 }
    }
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) lower: ProtocolRef,
    pub(crate) calling: SessionTable<crate::session::CallingKey>,
    pub(crate) serving: SessionTable<crate::session::ServingKey>,
    /// The ways to peers, by both ends.
    trunks: RefCell<BTreeMap<String, Rc<Trunk>>>,
}

impl Shared {
    /// One user of a trunk less.
    pub(crate) fn release(&self, cx: &Kernel, trunk: &Rc<Trunk>) {
        let users = trunk.users.get().saturating_sub(1);
        trunk.users.set(users);
        if users > 0 {
            return;
        }
        let mut trunks = self.trunks.borrow_mut();
        if trunks.get(&trunk.ends).is_some_and(|other| Rc::ptr_eq(other, trunk)) {
            trunks.remove(&trunk.ends);
        }
        drop(trunks);
        trunk.close(cx);
    }
}

/// A protocol above that serves requests with credentials of a flavor.
struct Server {
    flavor: u32,
    upper: ProtocolRef,
    carries: bool,
    enables: usize,
}

/// One instance of the layer.
pub struct SunSelect {
    shared: Rc<Shared>,
    settings: Settings,
    servers: RefCell<Vec<Server>>,
    offers: Offers,
    /// Flavor and participant of each enable.
    enabled: RefCell<BTreeMap<u64, (u32, Participant)>>,
    enables_made: Cell<u64>,
    trunks_made: Cell<u64>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::default());
    let settings = Settings {
        sessions_max: params.number("sessions_max", usual.sessions_max),
        lines_max: params.number("lines_max", usual.lines_max),
    };
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let key = cx.secret();
    let shared = Rc::new(Shared {
        lower,
        calling: SessionTable::new(key, settings.sessions_max),
        serving: SessionTable::new(key, settings.sessions_max),
        trunks: RefCell::default(),
    });
    let body = SunSelect {
        shared,
        settings,
        servers: RefCell::default(),
        offers: Offers::default(),
        enabled: RefCell::default(),
        enables_made: Cell::new(0),
        trunks_made: Cell::new(0),
    };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

/// Whether an upper writes and reads credentials itself. It is the one whose number selects,
/// whoever slips in between.
fn carries(cx: &Kernel, upper: Upper<'_>) -> bool {
    let who = upper.selector;
    let asked = cx.protocol(who);
    asked.is_some_and(|upper| upper.ask(cx, CarriesCredentials { who }).is_some())
}

impl SunSelect {
    /// The way between these ends: the one there is, or a new one. It has one user more.
    fn trunk(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        participants: Participants,
    ) -> Result<Rc<Trunk>, OpenError> {
        let trunk = match self.known(&participants.to_string()) {
            Some(trunk) => trunk,
            None => self.open_trunk(cx, this, participants)?,
        };
        trunk.users.set(trunk.users.get() + 1);
        Ok(trunk)
    }

    fn known(&self, ends: &str) -> Option<Rc<Trunk>> {
        let known = self.shared.trunks.borrow().get(ends).cloned();
        known.filter(|trunk| !trunk.first().head().is_closed())
    }

    fn open_trunk(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        participants: Participants,
    ) -> Result<Rc<Trunk>, OpenError> {
        let ends = participants.to_string();
        let id = self.trunks_made.get();
        self.trunks_made.set(id + 1);
        let (lower, max) = (&self.shared.lower, self.settings.lines_max);
        let trunk = Trunk::open(cx, this, lower, participants, (id, ends.clone()), max)?;
        if let Some(other) = self.known(&ends) {
            // Opening blocked, and another call was faster.
            trunk.close(cx);
            return Ok(other);
        }
        self.shared.trunks.borrow_mut().insert(ends, Rc::clone(&trunk));
        Ok(trunk)
    }

    /// A server of this flavor has one enable less; with the last it goes.
    fn leave(&self, flavor: u32) {
        let mut servers = self.servers.borrow_mut();
        if let Some(at) = servers.iter().position(|server| server.flavor == flavor)
            && let Some(server) = servers.get_mut(at)
        {
            server.enables -= 1;
            if server.enables == 0 {
                let gone = servers.swap_remove(at);
                drop(servers);
                drop(gone);
            }
        }
    }

    /// Who serves requests with credentials of this flavor, and whether he reads them.
    fn server(&self, flavor: u32) -> Option<(ProtocolRef, bool)> {
        let servers = self.servers.borrow();
        let found = servers.iter().find(|server| server.flavor == flavor)?;
        Some((found.upper.clone(), found.carries))
    }

    /// Takes any request.
    #[inline(never)]
    fn call_demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let _ = request.pull_up(LOOK_OCTETS);
        let version = {
            let _ = request.pull_up(4);
            request.peek::<4>().map(|octets| word(octets, 0))
        };
        if version.is_some_and(|version| version != RPC_VERSION) {
            let (low, high) = (RPC_VERSION, RPC_VERSION);
            let refused = this.refuse(request, &WRONG_RPC_VERSION);
            let denied = Denied::RpcMismatch { low, high };
            return deny(cx, refused.message, denied, refused.reason);
        }
        let look = request.peek::<LOOK_OCTETS>();
        let Some((header, flavor)) = look.and_then(|octets| {
            let header = CallHeader::parse(octets.first_chunk()?).ok()?;
            Some((header, word(octets, CALL_OCTETS / 4)))
        }) else {
            return Err(this.refuse(request, &reason::TRUNCATED));
        };
        let key = (lower.id().0, name(header, flavor));
        match self.shared.serving.get(&key) {
            Some(session) => session.call_pop(cx, request),
            None => self.call_demux_first(cx, this, lower, (header, flavor), request),
        }
    }

    /// The first request of its kind: makes the session.
    #[cold]
    fn call_demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        (header, flavor): (CallHeader, u32),
        request: Message,
    ) -> Result<Message, Refused> {
        let Some((upper, carries)) = self.server(flavor) else {
            let refused = this.refuse(request, &TOO_WEAK);
            let stat = auth_stat(&TOO_WEAK).unwrap_or_default();
            return deny(cx, refused.message, Denied::Auth(stat), refused.reason);
        };
        let key = (lower.id().0, name(header, flavor));
        let body = Serving {
            shared: Rc::clone(&self.shared),
            key,
            lower: lower.clone(),
            upper: upper.clone(),
            header,
            carries,
        };
        let ends = || header.name().participants(cx, lower);
        let serving = &self.shared.serving;
        match serving.accept(cx, this, &upper, key, body, ends) {
            Ok(session) => session.call_pop(cx, request),
            Err(why) => Err(this.refuse(request, why)),
        }
    }
}

impl Protocol for SunSelect {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let flavor = upper.number_on(cx, this)?;
        let header = CallHeader::of(ProcedureName::pop(&mut participants)?);
        let trunk = self.trunk(cx, this, participants)?;
        let key = (trunk.id, upper.receiver.id().0, name(header, flavor));
        let body = Calling {
            shared: Rc::clone(&self.shared),
            key,
            trunk,
            header,
            template: template(header),
            carries: carries(cx, upper),
        };
        let calling = &self.shared.calling;
        calling.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let flavor = upper.number_on(cx, this)?;
        let local = participants.local_mut()?;
        // Which programs there are, the table above knows.
        Offered::pop(local)?;
        let carries = carries(cx, upper);
        let other = self.server(flavor);
        if other.is_some_and(|(other, _)| other != *upper.receiver) {
            return Err(OpenError::InUse);
        }
        // Before the layer below is told, which may block: a second protocol finds it in use.
        let mut servers = self.servers.borrow_mut();
        match servers.iter_mut().find(|server| server.flavor == flavor) {
            Some(server) => server.enables += 1,
            None => {
                servers.push(Server { flavor, upper: upper.receiver.clone(), carries, enables: 1 })
            }
        }
        drop(servers);
        let made = self.offers.make(cx, &self.shared.lower, this, local);
        made.inspect_err(|_| self.leave(flavor))?;
        let number = self.enables_made.get();
        self.enables_made.set(number + 1);
        self.enabled.borrow_mut().insert(number, (flavor, local.clone()));
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let gone = self.enabled.borrow_mut().remove(&enable.0);
        let Some((flavor, local)) = gone else {
            return;
        };
        self.offers.withdraw(cx, &self.shared.lower, &local);
        self.leave(flavor);
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        if let Some(octets) = request.peek_in_place::<LOOK_OCTETS>()
            && let Some(front) = octets.first_chunk::<CALL_OCTETS>()
            && let Ok(header) = CallHeader::parse(front)
            && let key = (lower.id().0, name(header, word(octets, CALL_OCTETS / 4)))
            && let Some(session) = self.shared.serving.latest(&key)
        {
            return session.call_pop(cx, request);
        }
        self.call_demux_other(cx, this, lower, request)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.calling);
            question.add(&shared.serving);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.add("calling", shared.calling.stats());
            question.add("serving", shared.serving.stats());
            return Answer::Answered;
        }
        if ask.get::<CarriesCredentials>().is_some() {
            return Answer::Unknown;
        }
        let answer = shared.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, CALL_OCTETS + 2 * AUTH_HEAD_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.calling.clear();
        self.shared.serving.clear();
        let trunks = self.shared.trunks.take();
        let servers = self.servers.take();
        self.offers.clear();
        self.enabled.borrow_mut().clear();
        for trunk in trunks.values() {
            trunk.forget();
        }
        drop((trunks, servers));
    }
}
