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
    Leave, MemberAt, MemberState, MyMember, Node, Outstanding, PROCESS, TakeOwn, TakeViews, View,
    ViewChange,
};
use xk_kit::rpc::call::CallOptions;

/// Records that wait for the program; then those below wait, and at last those that send.
const RECORDS_MAX: usize = 256;
/// Time after which a push is tried again that found no room, and a leaving member looks again.
const AGAIN: Duration = Duration::from_millis(5);
/// Time that a leaving member waits for others at most.
const LEAVE_MAX: Duration = Duration::from_secs(10);

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
    /// Whether all hear all messages in one order.
    pub(crate) in_order: bool,
}

xk_kit::header! {
    /// Front of a record.
    pub struct Front {
        /// [`MESSAGE`], [`VIEW`] or [`LEFT`].
        pub kind: u8,
        /// Index of the sender; of this member in a view.
        pub member: u8,
        /// Whether the members of a view are enough to decide.
        pub has_quorum: u8,
        /// Zero.
        pub zero: u8,
        /// Depth of a message in the graph of the conversation.
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

/// Octets of a record.
fn length_of(message: Option<&Message>) -> usize {
    Front::OCTETS + message.map_or(0, Message::len)
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
    /// Records by their fronts; only messages have octets besides.
    records: RefCell<VecDeque<(Front, Option<Message>)>>,
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
        self.records.borrow().front().map_or(0, |(_, message)| length_of(message.as_ref()))
    }

    pub(super) fn addresses(&self) -> (Endpoint, Option<Endpoint>) {
        // A peer shows that it may send.
        let first = self.members.all.iter().enumerate().find(|(at, _)| *at != self.me());
        (self.members.all[self.me()], first.map(|(_, peer)| *peer))
    }

    fn me(&self) -> usize {
        self.members.me.into()
    }

    fn put(&self, socket: &Socket, front: Front, message: Option<Message>) {
        self.records.borrow_mut().push_back((front, message));
        socket.status.raise(Ready::READABLE);
    }

    fn view(&self, members: u64, has_quorum: bool) -> Front {
        let (kind, member) = (VIEW, self.members.me);
        Front { kind, member, has_quorum: has_quorum.into(), members, ..Front::parse(&[0; _]) }
    }

    /// Takes a message that has come up.
    pub(super) fn take(&self, cx: &Kernel, this: &ProtocolRef, socket: &Socket, message: Message) {
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
            return self.put(socket, self.view(change.members, change.has_quorum), None);
        }
        let Some(Node { id, depth, is_null: false, .. }) = message.attribute() else {
            return this.discard(message, &reason::MALFORMED);
        };
        let front = Front { depth, member: id.sender, ..Front::parse(&[0; _]) };
        self.put(socket, front, Some(message));
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
        let mut records = self.records.borrow_mut();
        let Some((front, message)) = records.front() else {
            if self.is_over() {
                return Err(Errno::NETDOWN);
            }
            socket.status.lower(Ready::READABLE);
            return Err(Errno::AGAIN);
        };
        let (length, front) = (length_of(message.as_ref()), front.emit());
        let mut octets = 0;
        let mut give = |slice: &[u8]| {
            let fits = slice.len().min(octets_max - octets);
            take(&slice[..fits]);
            octets += fits;
        };
        give(&front);
        let slices = message.iter().flat_map(Message::slices);
        slices.for_each(|slice| give(slice.octets));
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
            self.put(socket, Front { depth, member: index, ..Front::parse(&[0; _]) }, Some(own));
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
            self.put(socket, Front { kind, ..Front::parse(&[0; _]) }, None);
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
            let place = if members.in_order { &places.ordered } else { &places.partial };
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
        let is_first = members.me == 0;
        let socket = self.add(Body::Talk(Box::new(Talk {
            members,
            below: below.clone(),
            enable: Cell::new(None),
            session: SessionSlot::default(),
            hears_own: Cell::new(false),
            records: RefCell::default(),
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
        talk.put(socket, talk.view(known.members, known.has_quorum), None);
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
