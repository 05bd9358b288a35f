//! Conversations of several members: what comes up is a record each, with its place in front.

use super::socket::gather;
use super::{Body, Layer, Socket};
use crate::address::Endpoint;
use crate::error;
use crate::ready::Ready;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::{Enable, PushError, SessionSlot};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef, Time, Upper,
    reason,
};
use xk_kit::control::ServesPort;
use xk_kit::group::{
    Aside, Leave, MemberAt, MemberState, MyMember, Node, Outstanding, PROCESS, TakeOwn, TakeViews,
    View, ViewChange,
};
use xk_kit::rpc::call::CallOptions;
use xk_kit::transfer::Transfer;

/// Records that wait for the program; then those below wait, and at last those that send.
const RECORDS_MAX: usize = 256;
/// Time after which a push is tried again that found no room, and a leaving member looks again.
const AGAIN: Duration = Duration::from_millis(5);
/// Time that a leaving member waits for others at most.
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// Octets of a state that is given to a member.
pub(crate) const STATE_MAX: usize = 1 << 24;

/// Kinds of conversations below, the uppermost first.
pub(crate) const ORDERED: &str = "order";
pub(crate) const PARTIAL: &[&str] = &["membership", "psync"];

/// The members of a conversation to be joined.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    /// Host and port of each; the port is its process, too.
    pub(crate) all: Vec<Endpoint>,
    /// Index of this one; the first opens the conversation.
    pub(crate) me: u8,
    pub(crate) joining: Joining,
}

/// Ways to join a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// All hear all messages in one order.
    pub in_order: bool,
    /// The others let this member in again; also the first waits for that, and opens nothing.
    pub returns: bool,
    /// A member that comes back is given the state of the others.
    pub has_state: bool,
}

xk_kit::header! {
    /// Front of a record.
    pub struct Front {
        /// [`MESSAGE`], [`VIEW`], [`LEFT`], [`WANTED`] or [`STATE`].
        pub kind: u8,
        /// Index of the sender; of this member in a view; of one that has come back.
        pub member: u8,
        /// Whether the members of a view are enough to decide.
        pub has_quorum: u8,
        /// Zero.
        pub zero: u8,
        /// Depth of a message in the graph of the conversation; number of a member's start.
        pub depth: u32,
        /// The members of a view, as bits.
        pub members: u64,
    }
}

/// A message of a member.
pub(crate) const MESSAGE: u8 = 0;
/// The conversation has begun, or its members have changed.
pub(crate) const VIEW: u8 = 1;
/// All others have what this member has sent, or it has waited long enough.
pub(crate) const LEFT: u8 = 2;
/// A member has come back, and is to be given the state as of this place.
pub(crate) const WANTED: u8 = 3;
/// The state that the others have given to this member.
pub(crate) const STATE: u8 = 4;

/// Rest of a record, behind its front.
enum Rest {
    Nothing,
    Message(Message),
    State(Vec<u8>),
}

impl Rest {
    /// Octets of the record.
    fn length(&self) -> usize {
        let rest = match self {
            Self::Nothing => 0,
            Self::Message(message) => message.len(),
            Self::State(octets) => octets.len(),
        };
        Front::OCTETS + rest
    }
}

/// One conversation.
pub(crate) struct Talk {
    members: Members,
    /// The layer that has it.
    below: ProtocolRef,
    enable: Cell<Option<Enable>>,
    session: SessionSlot,
    /// Own messages come up in their places.
    hears_own: Cell<bool>,
    records: RefCell<VecDeque<(Front, Rest)>>,
    /// The states that this member gives to others, and the one that it is given.
    transfer: Transfer,
    /// Number of the start of this member for which the state is to be fetched.
    fetched: Cell<Option<u16>>,
    /// Signalled when one of a full queue was taken.
    room: Semaphore,
    waiting: Cell<u32>,
    /// Until when it waits for others to have what it sent.
    leaves: Cell<Option<Time>>,
}

impl Talk {
    pub(super) fn has(&self, session: &SessionRef) -> bool {
        self.session.get().is_some_and(|own| own == *session)
    }

    pub(super) fn forget(&self) {
        drop((self.session.take(), self.records.take()));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.session.get().is_some_and(|session| session.head().is_closed())
    }

    pub(crate) fn unread(&self) -> usize {
        let records = self.records.borrow();
        records.front().filter(|_| !self.is_fetching()).map_or(0, |(_, rest)| rest.length())
    }

    pub(super) fn addresses(&self) -> (Endpoint, Option<Endpoint>) {
        // A peer shows that it may send.
        let first = self.members.all.iter().enumerate().find(|(at, _)| *at != self.me());
        (self.members.all[self.me()], first.map(|(_, peer)| *peer))
    }

    fn me(&self) -> usize {
        self.members.me.into()
    }

    fn put(&self, socket: &Socket, front: Front, rest: Rest) {
        self.records.borrow_mut().push_back((front, rest));
        socket.status.raise(Ready::READABLE);
    }

    fn view(&self, members: u64, has_quorum: bool) -> Front {
        let (kind, member) = (VIEW, self.members.me);
        Front { kind, member, has_quorum: has_quorum.into(), members, ..Front::parse(&[0; _]) }
    }

    /// Takes a message that has come up.
    pub(super) fn take(&self, cx: &Kernel, this: &ProtocolRef, socket: &Socket, message: Message) {
        if let Some(Aside { member }) = message.attribute() {
            let session = self.session.get();
            let taken = session.map(|it| self.transfer.take(cx, &it, member, &message));
            if taken != Some(true) {
                this.discard(message, &reason::MALFORMED);
            }
            return;
        }
        // What others send moves the window.
        socket.status.raise(Ready::WRITABLE);
        while self.records.borrow().len() >= RECORDS_MAX {
            self.waiting.set(self.waiting.get() + 1);
            let waited = cx.wait(&self.room, None);
            self.waiting.set(self.waiting.get() - 1);
            if waited.is_err() || self.is_over() {
                return this.discard(message, &reason::QUEUE_FULL);
            }
        }
        if let Some(change) = message.attribute::<ViewChange>() {
            self.put(socket, self.view(change.members, change.has_quorum), Rest::Nothing);
            return self.change(cx, this, socket, change);
        }
        let Some(Node { id, depth, is_null: false, .. }) = message.attribute() else {
            return this.discard(message, &reason::MALFORMED);
        };
        let front = Front { depth, member: id.sender, ..Front::parse(&[0; _]) };
        self.put(socket, front, Rest::Message(message));
    }

    /// Has the program give its state to a member that is in again, as of this place; that member
    /// fetches it.
    fn change(&self, cx: &Kernel, this: &ProtocolRef, socket: &Socket, change: ViewChange) {
        let ViewChange { member: Some(member), incarnation, .. } = change else {
            return;
        };
        if incarnation == 0 || !self.members.joining.has_state {
            self.transfer.forget(member);
        } else if member != self.members.me {
            let kind = WANTED;
            let front = Front { kind, member, depth: incarnation.into(), ..Front::parse(&[0; _]) };
            self.put(socket, front, Rest::Nothing);
        } else {
            // Its place; what is behind waits for it, but upcalls go on.
            self.put(socket, Front { kind: STATE, member, ..Front::parse(&[0; _]) }, Rest::Nothing);
            self.fetched.set(Some(incarnation));
            let _ = cx.schedule_protocol(this, Duration::ZERO, socket.tag().into());
        }
    }

    /// Whether the next record is a state that has not come yet.
    fn is_fetching(&self) -> bool {
        let records = self.records.borrow();
        matches!(records.front(), Some((Front { kind: STATE, .. }, Rest::Nothing)))
    }

    /// Fetches the state of the others for its place among the records.
    fn fetch(&self, cx: &Kernel, socket: &Socket, start: u16) {
        let session = self.session.get();
        let Some(state) = session.and_then(|it| self.transfer.fetch(cx, &it, start)) else {
            return;
        };
        let mut records = self.records.borrow_mut();
        let is_it = |(front, _): &&mut (Front, Rest)| front.kind == STATE;
        if let Some((_, rest)) = records.iter_mut().find(is_it) {
            *rest = Rest::State(state);
        }
        socket.status.raise(Ready::READABLE);
    }

    /// Gives a state to a member that is in again with a start of this number.
    pub(crate) fn give(&self, member: u8, start: u16, state: Vec<u8>) {
        self.transfer.offer(member, start, state);
    }

    /// Passes the octets of the next record to `take`, at most `octets_max` of them.
    ///
    /// # Errors
    /// `EAGAIN` if there is none; `ENETDOWN` if the conversation is over.
    pub(crate) fn receive(
        &self,
        cx: &Kernel,
        socket: &Socket,
        octets_max: usize,
        peek: bool,
        mut take: impl FnMut(&[u8]),
    ) -> Result<super::Received, Errno> {
        let is_fetching = self.is_fetching();
        let mut records = self.records.borrow_mut();
        let Some((front, rest)) = records.front().filter(|_| !is_fetching) else {
            if self.is_over() {
                return Err(Errno::NETDOWN);
            }
            socket.status.lower(Ready::READABLE);
            return Err(Errno::AGAIN);
        };
        let (length, front) = (rest.length(), front.emit());
        let mut octets = 0;
        let mut give = |slice: &[u8]| {
            let fits = slice.len().min(octets_max - octets);
            take(&slice[..fits]);
            octets += fits;
        };
        give(&front);
        match rest {
            Rest::Nothing => {}
            Rest::Message(message) => message.slices().for_each(|slice| give(slice.octets)),
            Rest::State(state) => give(state),
        }
        if !peek {
            drop(records.pop_front());
            if records.is_empty() {
                socket.status.lower(Ready::READABLE);
            }
            if self.waiting.get() > 0 {
                cx.signal(&self.room);
            }
        }
        Ok(super::Received { octets, length, from: self.addresses().0, arrived: None })
    }

    /// Sends a message to all members.
    ///
    /// # Errors
    /// `EAGAIN` until the conversation has begun, and while it has no room.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        socket: &Socket,
        from: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        let Some(session) = self.session.get() else {
            socket.status.lower(Ready::WRITABLE);
            return Err(Errno::AGAIN);
        };
        if session.head().is_closed() {
            return Err(Errno::NETDOWN);
        }
        if self.leaves.get().is_some() {
            return Err(Errno::PIPE);
        }
        let length = from.iter().map(|slice| slice.len()).sum::<usize>();
        let mut message = gather(cx, from, 0, length).map_err(|_| Errno::NOBUFS)?;
        let own = (!self.hears_own.get()).then(|| message.try_clone()).transpose();
        let own = own.map_err(|_| Errno::NOBUFS)?;
        // The program waits by itself.
        let at_once = CallOptions { deadline: cx.now(), tag: 0 };
        message.set_attribute(at_once).map_err(|_| Errno::NOBUFS)?;
        match session.push(cx, message) {
            Ok(()) => {}
            Err(PushError::QueueFull) => {
                socket.status.lower(Ready::WRITABLE);
                let _ = cx.schedule_protocol(this, AGAIN, socket.tag().into());
                return Err(Errno::AGAIN);
            }
            Err(error) => return Err(error::of_push(error)),
        }
        if let Some(own) = own {
            let index = self.members.me;
            let asked = session.ask(cx, MemberState { index, ..MemberState::default() });
            let depth = asked.map_or(0, |state| state.depth);
            let front = Front { depth, member: index, ..Front::parse(&[0; _]) };
            self.put(socket, front, Rest::Message(own));
        }
        Ok(length)
    }

    /// Sends nothing from now on; a record says when the others have what it has sent.
    pub(crate) fn leave(&self, cx: &Kernel, this: &ProtocolRef, socket: &Socket) {
        if self.leaves.get().is_none() {
            self.leaves.set(Some(cx.now().after(LEAVE_MAX)));
            self.look(cx, this, socket);
        }
    }

    /// Looks whether it may leave, or send.
    pub(super) fn look(&self, cx: &Kernel, this: &ProtocolRef, socket: &Socket) {
        if let Some(start) = self.fetched.take() {
            return self.fetch(cx, socket, start);
        }
        let Some(until) = self.leaves.get() else {
            socket.status.raise(Ready::WRITABLE);
            return;
        };
        let session = self.session.get();
        let said = session.as_ref().and_then(|it| it.ask(cx, Leave::default()));
        let asked = session.and_then(|it| it.ask(cx, Outstanding::default()));
        let is_held =
            said.is_none_or(|said| said.is_sent) && asked.is_none_or(|asked| asked.unheld == 0);
        if is_held || cx.now() >= until {
            let kind = LEFT;
            self.put(socket, Front { kind, ..Front::parse(&[0; _]) }, Rest::Nothing);
        } else if cx.schedule_protocol(this, AGAIN, socket.tag().into()).is_err() {
            self.leaves.set(Some(Time::ZERO));
        }
    }
}

/// A participant of a conversation; on layers with ports with its port.
fn member(at: Endpoint, host: Part, has_ports: bool) -> Participant {
    let end = Participant::of(host);
    let end = if has_ports { end.with(Part::port(at.port)) } else { end };
    end.with(Part::Number(PROCESS, at.port.into()))
}

impl Layer {
    /// A socket of a conversation: opened if this member is the first, else waited for.
    pub(crate) fn converse(&self, cx: &Kernel, members: Members) -> Result<Rc<Socket>, Errno> {
        self.stands()?;
        let below = {
            let places = self.places.borrow();
            let place = if members.joining.in_order { &places.ordered } else { &places.partial };
            place.clone().ok_or(Errno::PROTONOSUPPORT)?
        };
        let me = members.all.get(usize::from(members.me)).ok_or(Errno::INVAL)?;
        let served = ServesPort { port: me.port, ..ServesPort::default() };
        // Only a layer with ports answers.
        let ports = below.ask(cx, served).is_some();
        let own = member(*me, Part::Any, ports);
        let others = members.all.iter().enumerate().filter(|(at, _)| *at > 0);
        let peers = others.map(|(_, at)| member(*at, Part::Host(at.host), ports));
        let ends = Participants::among(own.clone(), peers);
        let is_first = members.me == 0 && !members.joining.returns;
        let socket = self.add(Body::Talk(Box::new(Talk {
            members,
            below: below.clone(),
            enable: Cell::new(None),
            session: SessionSlot::default(),
            hears_own: Cell::new(false),
            records: RefCell::default(),
            transfer: Transfer::new(STATE_MAX),
            fetched: Cell::new(None),
            room: Semaphore::new(0),
            waiting: Cell::new(0),
            leaves: Cell::new(None),
        })))?;
        let Body::Talk(talk) = &socket.body else {
            return Err(Errno::INVAL);
        };
        let this = self.this()?;
        let result = match is_first {
            true => below.open(cx, Upper::new(&this), ends).map(|session| {
                self.begin_talk(cx, &socket, talk, session);
            }),
            false => below
                .open_enable(cx, Upper::new(&this), Participants::local(own))
                .map(|enable| talk.enable.set(Some(enable))),
        };
        if let Err(error) = result {
            self.close(cx, &socket);
            return Err(error::of_open(error, !is_first));
        }
        Ok(socket)
    }

    fn begin_talk(&self, cx: &Kernel, socket: &Socket, talk: &Talk, session: SessionRef) {
        session.head().set_tag(socket.tag());
        session.watch();
        // Messages may come while the layer below is asked.
        drop(talk.session.replace(Some(session.clone())));
        talk.hears_own.set(session.ask(cx, TakeOwn).is_some());
        let _ = session.ask(cx, TakeViews);
        let all = u64::MAX >> (64 - talk.members.all.len() as u32);
        let known = session.ask(cx, View::default());
        let known = known.unwrap_or(View { members: all, has_quorum: true, changes: 0 });
        talk.put(socket, talk.view(known.members, known.has_quorum), Rest::Nothing);
        socket.status.raise(Ready::WRITABLE);
    }

    /// A conversation has begun below that another member has opened.
    pub(super) fn begun(&self, cx: &Kernel, lower: &SessionRef) -> Result<(), &'static Reason> {
        let my = lower.ask(cx, MyMember::default()).unwrap_or_default();
        let at = |index| lower.ask(cx, MemberAt { index, ..MemberAt::default() });
        let all: Option<Vec<MemberAt>> = (0..my.members).map(at).collect();
        let all = all.ok_or(&reason::NO_PROTOCOL)?;
        let is_it = |socket: &&Rc<Socket>| match &socket.body {
            Body::Talk(talk) => {
                let members = &talk.members;
                let same = |(one, other): (&MemberAt, &Endpoint)| {
                    (one.host, one.process) == (other.host, other.port.into())
                };
                talk.session.get().is_none()
                    && members.me == my.index
                    && members.all.len() == all.len()
                    // The first has a process of its own choice.
                    && all.iter().zip(&members.all).skip(1).all(same)
                    && all[0].host == members.all[0].host
            }
            _ => false,
        };
        let table = self.table.borrow();
        let socket = table.iter().flatten().find(is_it).cloned();
        drop(table);
        let socket = socket.ok_or(&reason::NO_PROTOCOL)?;
        if let Body::Talk(talk) = &socket.body {
            lower.hold();
            self.begin_talk(cx, &socket, talk, lower.clone());
        }
        Ok(())
    }

    pub(super) fn close_talk(&self, cx: &Kernel, talk: &Talk) {
        if let Some(enable) = talk.enable.take() {
            talk.below.open_disable(cx, enable);
        }
        if let Some(session) = talk.session.take() {
            match session.head().is_passive() {
                true => session.ease(cx),
                false => session.close(cx),
            }
        }
        talk.room.close(cx.shepherds());
        drop(talk.records.take());
    }

    /// A socket's timer has gone off.
    pub(super) fn look(&self, cx: &Kernel, socket: &Socket) {
        match (&socket.body, self.this()) {
            (Body::Talk(talk), Ok(this)) => talk.look(cx, &this, socket),
            _ => socket.status.raise(Ready::WRITABLE),
        }
    }
}
