//! The protocol object: opens, enables, and takes what both ends ask.

use crate::session::{Calling, Serving};
use crate::wire::{self, CONTINUE_OCTETS, Request};
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::Node;
use xk_appletalk::asp::{Asked, Due, Server};
use xk_appletalk::atp::{Options, REPLY_OCTETS_MAX, RESPONSES_MAX};
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError, text};
use xk_core::kernel::Timer;
use xk_core::object::{Enable, OpenError, Refused, SessionTable, WeakSession};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, question, reason,
};
use xk_kit::asks::HEADROOM;
use xk_kit::net::appletalk::{DdpEnds, SOCKET, now, socket};
use xk_kit::rpc::call::{BAD_ARGUMENTS, Transaction};
use xk_kit::rpc::server::Servers;

/// A request of a session that there is not.
pub static NO_SESSION: Reason = Reason::new("no such session", xk_core::reason::Class::NotMine);
/// A command that was executed before.
pub static OUT_OF_TURN: Reason = Reason::new("out of turn", xk_core::reason::Class::NotMine);

/// Attention: a server has the workstation of a session look, as at a server that is about to be
/// shut down. Asked of the server's session, and answered when the workstation has heard it; told
/// upwards at the workstation.
#[derive(Clone, Copy, Debug, Default)]
pub struct AspAttention {
    /// The session.
    pub session: u8,
    /// Code of the subject; not 0.
    pub code: u16,
}

question!(AspAttention { session, code }, "asp-attention", Ask, upward);

/// Interval at which it is looked what is due.
const LOOK: Duration = Duration::from_secs(5);
/// Time that a call waits for its turn.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(60);
/// The result of a command that the protocol above has refused: `aspParamErr`.
const REFUSED: i32 = -1070;

/// Network, node and socket.
pub(crate) type Address = (u16, u8, u8);

xk_core::settings! {
    /// Parameters of the graph: the socket and bounds.
    #[derive(Clone, Debug)]
    pub struct Settings {
        socket: u8 = int(1..=254, 129, "its socket, for requests of servers and of workstations"),
        tries: u8 = int(1..=255, 15, "how often a request is sent"),
        sessions_max: usize = int(1..=255, 32, "how many sessions it serves"),
        ..
        /// Answer to those that ask for its status.
        status: String = String::new(),
    }
    [text("status", "any text", "", "what it says to those that ask for its status")]
}

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) atp: ProtocolRef,
    pub(crate) calling: RefCell<Vec<WeakSession>>,
    /// By number.
    pub(crate) serving: SessionTable<u64>,
    server: RefCell<Server<Address>>,
    uppers: Servers,
    me: RefCell<Option<ProtocolRef>>,
    timer: Cell<Option<Timer>>,
    enabled: Cell<bool>,
    enables: Cell<u64>,
}

impl Shared {
    /// The session below to this socket of a node.
    pub(crate) fn open_socket(
        &self,
        cx: &Kernel,
        to: &Participant,
        number: u8,
    ) -> Result<SessionRef, OpenError> {
        let mut to = to.clone();
        if matches!(to.top(), Some(Part::Number(SOCKET, _))) {
            to.pop();
            to.push(Part::Number(SOCKET, number.into()));
        }
        let me = self.me.borrow().clone().ok_or(OpenError::NoLower)?;
        self.atp.open(cx, Upper::new(&me), Participants::pair(self.own(&to), to))
    }

    /// Our own end of a session with `to`.
    pub(crate) fn own(&self, to: &Participant) -> Participant {
        let any = (1..to.len()).fold(Participant::new(), |all, _| all.with(Part::Any));
        any.with(Part::Number(SOCKET, self.settings.socket.into()))
    }

    /// Enables its socket below, once.
    fn enable(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.enabled.replace(true) {
            return Ok(());
        }
        let at = Participant::of(Part::Number(SOCKET, self.settings.socket.into()));
        let enabled = self.atp.open_enable(cx, Upper::new(this), Participants::local(at));
        self.enabled.set(enabled.is_ok());
        enabled.map(drop)
    }

    /// Another session of this number with this node is one of before the server crashed: it is
    /// over.
    pub(crate) fn forget(&self, cx: &Kernel, new: &Calling, number: u8) {
        let node_of = |body: &Calling| peer(cx, &body.listener);
        let (net, node, _) = node_of(new);
        let calling = self.calling.borrow().clone();
        for session in calling.iter().filter_map(WeakSession::upgrade) {
            let Some(body) = session.body::<Calling>() else { continue };
            let (other_net, other_node, _) = node_of(body);
            let is_same = body.number() == Some(number) && (other_net, other_node) == (net, node);
            if is_same && !core::ptr::eq(body, new) {
                body.client.take();
                body.write.take();
            }
        }
    }

    fn arm(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.timer.get().is_none() {
            // Without a timer the next session tries again.
            self.timer.set(cx.schedule_protocol(this, LOOK, 0).ok());
        }
    }

    /// Has a workstation look; whether it has heard.
    pub(crate) fn attend(
        &self,
        cx: &Kernel,
        (net, node, at): Address,
        AspAttention { session, code }: AspAttention,
    ) -> bool {
        let Ok(lower) = self.open_socket(cx, &socket(net, node, at), at) else { return false };
        let user = Request::Attention { session, code }.emit();
        let asked = cx.pool().empty(HEADROOM).ok();
        let tries = self.settings.tries;
        let heard =
            asked.is_some_and(|asked| wire::call(cx, &lower, (user, 1, tries), asked).is_ok());
        lower.close(cx);
        heard
    }

    /// Says to a peer that this end is there. No reply is waited for.
    fn tickle(cx: &Kernel, session: &SessionRef, number: u8) {
        if let Ok(request) = cx.pool().empty(HEADROOM) {
            let user = Request::Tickle { session: number }.emit();
            let _ = wire::call(cx, session, (user, 0, 1), request);
        }
    }

    /// Does what is due at both ends.
    fn look(&self, cx: &Kernel) {
        loop {
            let due = self.server.borrow_mut().poll(now(cx));
            match due {
                Some(Due::Tickle(number, (net, node, at))) => {
                    if let Ok(session) = self.open_socket(cx, &socket(net, node, at), at) {
                        Self::tickle(cx, &session, number);
                        session.close(cx);
                    }
                }
                Some(Due::Lost(number, _)) => self.end(cx, number),
                None => break,
            }
        }
        let calling = self.calling.borrow().clone();
        for session in calling.iter().filter_map(WeakSession::upgrade) {
            let Some(body) = session.body::<Calling>() else { continue };
            let due = body.client.borrow_mut().as_mut().and_then(|client| client.poll(now(cx)));
            match (due, body.opened.live()) {
                (Some(Due::Tickle(number, _)), Some(lower)) => Self::tickle(cx, &lower, number),
                (Some(Due::Lost(..)), _) => drop(body.client.take()),
                _ => {}
            }
        }
    }

    /// Ends a session that is served.
    fn end(&self, cx: &Kernel, number: u8) {
        let session = self.serving.get(&u64::from(number));
        if let Some(session) = session {
            session.abort(cx);
        }
    }
}

/// The peer of a session below; of one without such addresses all are one node.
fn peer(cx: &Kernel, lower: &SessionRef) -> Address {
    lower.ask(cx, DdpEnds::default()).map_or((0, 0, 0), |ends| ends.peer)
}

/// One instance of the layer.
pub struct Asp {
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let status = build.params.text("status").unwrap_or_default().to_string();
    let settings = Settings { status, ..Settings::read(build)? };
    let shared = Shared {
        atp: build.lower(0)?,
        calling: RefCell::default(),
        serving: SessionTable::new(build.cx.secret(), settings.sessions_max),
        server: RefCell::new(Server::new(
            settings.socket,
            settings.sessions_max,
            build.cx.random().next_u32() as u8,
        )),
        uppers: Servers::default(),
        me: RefCell::default(),
        timer: Cell::new(None),
        enabled: Cell::new(false),
        enables: Cell::new(0),
        settings,
    };
    build.add(Asp { shared: Rc::new(shared) })
}

impl Asp {
    /// The session of this number that is served, made if this is its first command.
    fn session(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        number: u8,
    ) -> Result<SessionRef, &'static Reason> {
        let shared = &self.shared;
        let key = u64::from(number);
        if let Some(session) = shared.serving.get(&key) {
            return Ok(session);
        }
        let (upper, _) = shared.uppers.get(0).ok_or(&reason::NO_PROTOCOL)?;
        let peer = shared.server.borrow().peer(number).ok_or(&NO_SESSION)?;
        let (net, node, at) = peer;
        let source = Node::new(net, node).source();
        let make = || {
            let shared = Rc::clone(shared);
            let body = Serving { shared, number, peer, upper: upper.clone() };
            (body, Participants::pair(Part::Any, socket(net, node, at)))
        };
        shared.serving.accept(cx, this, &upper, key, source, make)
    }

    /// Asks a workstation for the data of a write.
    fn data(&self, cx: &Kernel, session: u8, sequence: u16) -> Option<Message> {
        let shared = &self.shared;
        let (net, node, at) = shared.server.borrow().peer(session)?;
        let lower = shared.open_socket(cx, &socket(net, node, at), at).ok()?;
        let room = (REPLY_OCTETS_MAX as u16).to_be_bytes();
        debug_assert_eq!(room.len(), CONTINUE_OCTETS);
        let user = Request::WriteContinue { session, sequence }.emit();
        let asked = cx.pool().copy_from(HEADROOM, &room).ok();
        let tries = shared.settings.tries;
        let data = asked
            .and_then(|asked| wire::call(cx, &lower, (user, RESPONSES_MAX, tries), asked).ok());
        lower.close(cx);
        data.map(|(data, _)| data)
    }

    /// Has a command executed above.
    fn execute(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (asked, number): (&Options, u8),
        request: Message,
    ) -> Result<Message, Refused> {
        let session = match self.session(cx, this, number) {
            Ok(session) => session,
            Err(why) => return Err(this.refuse(request, why)),
        };
        let replied = session.call_pop(cx, request);
        match replied.and_then(|reply| match reply.len() > REPLY_OCTETS_MAX {
            true => Err(this.refuse(reply, &reason::TOO_BIG)),
            false => Ok(reply),
        }) {
            Ok(reply) => Ok(wire::reply(asked, reply, [0; 4])),
            // Counted above.
            Err(mut refused) => {
                refused.message.truncate(0);
                Ok(wire::reply(asked, refused.message, REFUSED.to_be_bytes()))
            }
        }
    }

    /// A server asks a workstation of ours, or tells it that it is there.
    fn asked_by_server(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (asked, from): (&Options, Address),
        (request, message): (Request, Message),
    ) -> Result<Message, Refused> {
        let calling = self.shared.calling.borrow().clone();
        let all = calling.iter().filter_map(WeakSession::upgrade);
        let of_it = all.filter(|session| {
            session.body::<Calling>().is_some_and(|body| {
                let (net, node, _) = peer(cx, &body.listener);
                body.number() == request.session() && (net, node) == (from.0, from.1)
            })
        });
        for session in of_it {
            let Some(body) = session.body::<Calling>() else { continue };
            if let Some(client) = &mut *body.client.borrow_mut() {
                client.hear(now(cx));
            }
            if let Request::WriteContinue { .. } = request
                && let Some(data) = body.data(request.emit())
            {
                return Ok(wire::reply(asked, data, [0; 4]));
            }
            if let Request::Attention { session, code } = request {
                let _ = body.upper.ask(cx, AspAttention { session, code });
            }
            if matches!(request, Request::Tickle { .. } | Request::Attention { .. }) {
                return Ok(wire::reply(asked, message, [0; 4]));
            }
        }
        Err(this.refuse(message, &NO_SESSION))
    }
}

impl Protocol for Asp {
    fn start(&self, _: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        *self.shared.me.borrow_mut() = Some(this.clone());
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let to = participants.peer_mut()?.clone();
        shared.enable(cx, this)?;
        let both = Participants::pair(shared.own(&to), to.clone());
        let listener = shared.atp.open(cx, Upper::new(this), both)?;
        let body = Calling {
            shared: Rc::clone(shared),
            to,
            listener,
            client: RefCell::default(),
            opened: Default::default(),
            turn: Semaphore::new(1),
            write: RefCell::default(),
            upper: upper.receiver.clone(),
        };
        let session = cx.new_session(this, upper.receiver, body);
        shared.calling.borrow_mut().push(session.downgrade());
        shared.arm(cx, this);
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let shared = &self.shared;
        shared.uppers.enter(0, upper)?;
        shared.enable(cx, this).inspect_err(|_| shared.uppers.leave(0))?;
        shared.enables.set(shared.enables.get() + 1);
        Ok(Enable(shared.enables.get()))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, _: Enable) {
        self.shared.uppers.leave(0);
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<Message, Refused> {
        let shared = &self.shared;
        let asked = wire::options(&mut message);
        let parsed = asked.and_then(|asked| Some((asked, Request::parse(asked.user).ok()?)));
        let Some((asked, request)) = parsed else {
            return Err(this.refuse(message, &BAD_ARGUMENTS));
        };
        let from = peer(cx, lower);
        let (net, node, _) = from;
        let is_servers =
            matches!(request, Request::WriteContinue { .. } | Request::Attention { .. });
        if is_servers {
            return self.asked_by_server(cx, this, (&asked, from), (request, message));
        }
        if shared.uppers.get(0).is_none() {
            let what = (request, message);
            return match request {
                Request::Tickle { .. } => self.asked_by_server(cx, this, (&asked, from), what),
                _ => Err(this.refuse(what.1, &reason::NO_PROTOCOL)),
            };
        }
        let is_same_node = |other: &Address| (other.0, other.1) == (net, node);
        let at = |socket| (net, node, socket);
        let done = shared.server.borrow_mut().request(now(cx), request, at, is_same_node);
        match done {
            Asked::Status => match cx.pool().copy_from(HEADROOM, shared.settings.status.as_bytes())
            {
                Ok(status) => Ok(wire::reply(&asked, status, [0; 4])),
                Err(_) => Err(this.refuse(message, &reason::NO_BUFFERS)),
            },
            Asked::Reply(user) => {
                shared.arm(cx, this);
                message.truncate(0);
                Ok(wire::reply(&asked, message, user))
            }
            Asked::Execute(number) => self.execute(cx, this, (&asked, number), message),
            Asked::ExecuteWrite(number) => {
                let sequence = match request {
                    Request::Write { sequence, .. } => sequence,
                    _ => 0,
                };
                match self.data(cx, number, sequence) {
                    Some(data) => {
                        // Behind the command block, which may be empty.
                        let block = message.len() as u16;
                        message.join(data);
                        if block > 0 {
                            let beside = Options { amount: block, ..asked };
                            // There is room: it was taken off it.
                            let _ = message.set_attribute(Transaction(beside.emit()));
                        }
                        self.execute(cx, this, (&asked, number), message)
                    }
                    None => {
                        message.truncate(0);
                        Ok(wire::reply(&asked, message, REFUSED.to_be_bytes()))
                    }
                }
            }
            Asked::Closed(number) => {
                shared.end(cx, number);
                message.truncate(0);
                Ok(wire::reply(&asked, message, [0; 4]))
            }
            Asked::Nothing if matches!(request, Request::Tickle { .. }) => {
                Ok(wire::reply(&asked, message, [0; 4]))
            }
            Asked::Nothing => Err(this.refuse(message, &OUT_OF_TURN)),
        }
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("served", &self.shared.serving);
        let calling = self.shared.calling.borrow();
        tables.others(&calling.iter().filter_map(WeakSession::upgrade).collect::<Vec<_>>());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.atp)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let shared = &self.shared;
        shared.timer.set(None);
        shared.look(cx);
        let is_idle = shared.calling.borrow().is_empty() && shared.server.borrow().is_empty();
        if !is_idle {
            shared.arm(cx, this);
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        let shared = &self.shared;
        cx.cancel(shared.timer.take());
        shared.serving.clear();
        shared.uppers.clear();
        drop((shared.calling.take(), shared.me.take()));
    }
}
