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
use xk_core::object::{Enable, OpenError, Refused, SessionTable, WeakSession};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef, Upper,
    question, reason,
};
use xk_kit::asks::HEADROOM;
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{DdpEnds, SOCKET, socket};
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

/// One instance of the layer.
pub struct Asp {
    pub(crate) settings: Settings,
    pub(crate) calling: RefCell<Vec<WeakSession>>,
    /// By number.
    pub(crate) serving: SessionTable<u64>,
    server: RefCell<Server<Address>>,
    uppers: Servers,
    /// Time of the next look at what is due.
    look_at: Cell<Option<Duration>>,
    enabled: Cell<bool>,
    enables: Cell<u64>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let status = build.params.text("status").unwrap_or_default().to_string();
    let settings = Settings { status, ..Settings::read(build)? };
    let (socket, max) = (settings.socket, settings.sessions_max);
    let serving = SessionTable::new(build.cx.secret(), max);
    let chance = build.cx.random().next_u32() as u8;
    let asp = Asp {
        calling: RefCell::default(),
        serving,
        server: RefCell::new(Server::new(socket, max, chance)),
        uppers: Servers::default(),
        look_at: Cell::new(None),
        enabled: Cell::new(false),
        enables: Cell::new(0),
        settings,
    };
    machine::add(build, asp)
}

/// The peer of a session below; of one without such addresses all are one node.
fn peer(cx: &Kernel, lower: &SessionRef) -> Address {
    lower.ask(cx, DdpEnds::default()).map_or((0, 0, 0), |ends| ends.peer)
}

/// A reply without octets.
fn empty(asked: &Options, mut message: Message, user: [u8; 4]) -> Message {
    message.truncate(0);
    wire::reply(asked, message, user)
}

impl Asp {
    /// The session below to this socket of a node.
    pub(crate) fn open_socket(
        &self,
        at: At<'_>,
        to: &Participant,
        number: u8,
    ) -> Result<SessionRef, OpenError> {
        let mut to = to.clone();
        if matches!(to.top(), Some(Part::Number(SOCKET, _))) {
            to.pop();
            to.push(Part::Number(SOCKET, number.into()));
        }
        at.open(self.own(&to), to)
    }

    /// Makes a request of so many packets of reply, or of none, which is not waited for; the reply.
    pub(crate) fn ask(
        &self,
        at: At<'_>,
        lower: &SessionRef,
        (request, packets): (Request, usize),
        octets: &[u8],
    ) -> Option<Message> {
        let tries = if packets == 0 { 1 } else { self.settings.tries };
        let message = at.message(octets)?;
        let replied = wire::call(at.cx, lower, request.emit(), packets, tries, message);
        replied.ok().map(|(reply, _)| reply)
    }

    /// As [`ask`](Self::ask), of a peer.
    pub(crate) fn ask_peer(
        &self,
        at: At<'_>,
        (net, node, to): Address,
        request: (Request, usize),
        octets: &[u8],
    ) -> Option<Message> {
        let lower = self.open_socket(at, &socket(net, node, to), to).ok()?;
        let reply = self.ask(at, &lower, request, octets);
        lower.close(at.cx);
        reply
    }

    /// Our own end of a session with `to`.
    fn own(&self, to: &Participant) -> Participant {
        let any = (1..to.len()).fold(Participant::new(), |all, _| all.with(Part::Any));
        any.with(Part::Number(SOCKET, self.settings.socket.into()))
    }

    /// Enables its socket below, once.
    fn enable(&self, at: At<'_>) -> Result<(), OpenError> {
        if self.enabled.replace(true) {
            return Ok(());
        }
        let enabled = at.enable(Part::Number(SOCKET, self.settings.socket.into()));
        self.enabled.set(enabled.is_ok());
        enabled
    }

    /// The sessions of workstations.
    fn callers(&self) -> impl Iterator<Item = SessionRef> {
        let calling = self.calling.borrow().clone();
        calling.into_iter().filter_map(|session| session.upgrade())
    }

    /// Another session of this number with this node is one of before the server crashed: it is
    /// over.
    pub(crate) fn forget(&self, cx: &Kernel, new: &Calling, number: u8) {
        let (net, node, _) = peer(cx, &new.listener);
        for session in self.callers() {
            let Some(body) = session.body::<Calling>() else { continue };
            let (other_net, other_node, _) = peer(cx, &body.listener);
            let is_same = body.number() == Some(number) && (other_net, other_node) == (net, node);
            if is_same && !core::ptr::eq(body, new) {
                body.client.take();
                body.write.take();
            }
        }
    }

    /// Looks what is due in a while.
    fn arm(&self, at: At<'_>) {
        self.look_at.set(self.look_at.get().or(Some(at.now() + LOOK)));
        at.wake(self.next());
    }

    /// Ends a session that is served.
    fn end(&self, cx: &Kernel, number: u8) {
        let session = self.serving.get(&u64::from(number));
        session.into_iter().for_each(|session| session.abort(cx));
    }

    /// Asks a workstation for the data of a write.
    fn data(&self, at: At<'_>, session: u8, sequence: u16) -> Option<Message> {
        let peer = self.server.borrow().peer(session)?;
        let room = (REPLY_OCTETS_MAX as u16).to_be_bytes();
        debug_assert_eq!(room.len(), CONTINUE_OCTETS);
        let request = (Request::WriteContinue { session, sequence }, RESPONSES_MAX);
        self.ask_peer(at, peer, request, &room)
    }

    /// A server asks a workstation of ours, or tells it that it is there.
    fn asked_by_server(
        &self,
        at: At<'_>,
        asked: &Options,
        from: Address,
        request: Request,
        message: Message,
    ) -> Result<Message, Refused> {
        for session in self.callers() {
            let Some(body) = session.body::<Calling>() else { continue };
            let (net, node, _) = peer(at.cx, &body.listener);
            if body.number() != request.session() || (net, node) != (from.0, from.1) {
                continue;
            }
            if let Some(client) = &mut *body.client.borrow_mut() {
                client.hear(at.now());
            }
            if let Request::WriteContinue { .. } = request
                && let Some(data) = body.data(request.emit())
            {
                return Ok(wire::reply(asked, data, [0; 4]));
            }
            if let Request::Attention { session, code } = request {
                let _ = body.upper.ask(at.cx, AspAttention { session, code });
            }
            if matches!(request, Request::Tickle { .. } | Request::Attention { .. }) {
                return Ok(wire::reply(asked, message, [0; 4]));
            }
        }
        at.refuse(message, &NO_SESSION)
    }
}

/// The session of this number that is served, made if this is its first command.
fn session(all: &Rc<Running<Asp>>, at: At<'_>, number: u8) -> Result<SessionRef, &'static Reason> {
    let key = u64::from(number);
    if let Some(session) = all.serving.get(&key) {
        return Ok(session);
    }
    let (upper, _) = all.uppers.get(0).ok_or(&reason::NO_PROTOCOL)?;
    let peer = all.server.borrow().peer(number).ok_or(&NO_SESSION)?;
    let (net, node, to) = peer;
    let make = || {
        let body = Serving { shared: Rc::clone(all), number, peer, upper: upper.clone() };
        (body, Participants::pair(Part::Any, socket(net, node, to)))
    };
    all.serving.accept(at.cx, at.this, &upper, key, Node::new(net, node).source(), make)
}

/// Has a command executed above.
fn execute(
    all: &Rc<Running<Asp>>,
    at: At<'_>,
    asked: &Options,
    number: u8,
    request: Message,
) -> Result<Message, Refused> {
    let session = match session(all, at, number) {
        Ok(session) => session,
        Err(why) => return at.refuse(request, why),
    };
    let replied = session.call_pop(at.cx, request);
    match replied.and_then(|reply| match reply.len() > REPLY_OCTETS_MAX {
        true => at.refuse(reply, &reason::TOO_BIG),
        false => Ok(reply),
    }) {
        Ok(reply) => Ok(wire::reply(asked, reply, [0; 4])),
        // Counted above.
        Err(refused) => Ok(empty(asked, refused.message, REFUSED.to_be_bytes())),
    }
}

impl Machine for Asp {
    fn start(&self, _: At<'_>) -> Result<(), OpenError> {
        Ok(())
    }

    fn open(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let to = participants.peer_mut()?.clone();
        all.enable(at)?;
        let listener = at.open(all.own(&to), to.clone())?;
        let session =
            at.cx.new_session(at.this, upper.receiver, Calling::new(all, to, listener, upper));
        all.calling.borrow_mut().push(session.downgrade());
        all.arm(at);
        Ok(session)
    }

    fn open_enable(
        &self,
        at: At<'_>,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.uppers.enter(0, upper)?;
        self.enable(at).inspect_err(|_| self.uppers.leave(0))?;
        self.enables.set(self.enables.get() + 1);
        Ok(Enable(self.enables.get()))
    }

    fn open_disable(&self, _: At<'_>, _: Enable) {
        self.uppers.leave(0);
    }

    fn call(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<Message, Refused> {
        let asked = wire::options(&mut message);
        let parsed = asked.and_then(|asked| Some((asked, Request::parse(asked.user).ok()?)));
        let Some((asked, request)) = parsed else {
            return at.refuse(message, &BAD_ARGUMENTS);
        };
        let from = peer(at.cx, lower);
        let (net, node, _) = from;
        let is_served = all.uppers.get(0).is_some();
        match request {
            Request::WriteContinue { .. } | Request::Attention { .. } => {
                return all.asked_by_server(at, &asked, from, request, message);
            }
            Request::Tickle { .. } if !is_served => {
                return all.asked_by_server(at, &asked, from, request, message);
            }
            _ if !is_served => return at.refuse(message, &reason::NO_PROTOCOL),
            _ => {}
        }
        let is_same_node = |other: &Address| (other.0, other.1) == (net, node);
        let of_it = |socket| (net, node, socket);
        let done = all.server.borrow_mut().request(at.now(), request, of_it, is_same_node);
        match done {
            Asked::Status => match at.cx.pool().copy_from(HEADROOM, all.settings.status.as_bytes())
            {
                Ok(status) => Ok(wire::reply(&asked, status, [0; 4])),
                Err(_) => at.refuse(message, &reason::NO_BUFFERS),
            },
            Asked::Reply(user) => {
                all.arm(at);
                Ok(empty(&asked, message, user))
            }
            Asked::Execute(number) => execute(all, at, &asked, number, message),
            Asked::ExecuteWrite(number) => {
                let sequence = match request {
                    Request::Write { sequence, .. } => sequence,
                    _ => 0,
                };
                let Some(data) = all.data(at, number, sequence) else {
                    return Ok(empty(&asked, message, REFUSED.to_be_bytes()));
                };
                // Behind the command block, which may be empty.
                let block = message.len() as u16;
                message.join(data);
                if block > 0 {
                    let beside = Options { amount: block, ..asked };
                    // There is room: it was taken off it.
                    let _ = message.set_attribute(Transaction(beside.emit()));
                }
                execute(all, at, &asked, number, message)
            }
            Asked::Closed(number) => {
                all.end(at.cx, number);
                Ok(empty(&asked, message, [0; 4]))
            }
            Asked::Nothing if matches!(request, Request::Tickle { .. }) => {
                Ok(wire::reply(&asked, message, [0; 4]))
            }
            Asked::Nothing => at.refuse(message, &OUT_OF_TURN),
        }
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("served", &self.serving);
        tables.others(&self.callers().collect::<Vec<_>>());
    }

    fn next(&self) -> Option<Duration> {
        self.look_at.get()
    }

    /// Does what is due at both ends.
    fn due(&self, at: At<'_>) {
        self.look_at.set(None);
        loop {
            let due = self.server.borrow_mut().poll(at.now());
            match due {
                Some(Due::Tickle(session, peer)) => {
                    let _ = self.ask_peer(at, peer, (Request::Tickle { session }, 0), &[]);
                }
                Some(Due::Lost(number, _)) => self.end(at.cx, number),
                None => break,
            }
        }
        for session in self.callers() {
            let Some(body) = session.body::<Calling>() else { continue };
            let due = body.client.borrow_mut().as_mut().and_then(|client| client.poll(at.now()));
            match (due, body.opened.live()) {
                (Some(Due::Tickle(session, _)), Some(lower)) => {
                    let _ = self.ask(at, &lower, (Request::Tickle { session }, 0), &[]);
                }
                (Some(Due::Lost(..)), _) => drop(body.client.take()),
                _ => {}
            }
        }
        if !self.calling.borrow().is_empty() || !self.server.borrow().is_empty() {
            self.arm(at);
        }
    }

    fn stop(&self, _: &Kernel) {
        self.serving.clear();
        self.uppers.clear();
        drop(self.calling.take());
    }
}
