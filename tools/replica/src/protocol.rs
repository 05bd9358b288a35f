//! The protocol object: sends requests to all members, executes what comes up in its place, and
//! replies to those that called here.

use crate::store::{SNAPSHOT_MAX, Store};
use crate::wire::{Act, REQUEST_MAX, Reply, Request, Status, Told};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper, reason,
};
use xk_kit::asks::{self, HEADROOM, SHORTEST};
use xk_kit::group::{Aside, MemberAt, MyMember, Node, TakeOwn, TakeViews, ViewChange};
use xk_kit::rpc::call::{BAD_ARGUMENTS, BUSY, CallOptions};
use xk_kit::transfer::Transfer;

/// Tokens of the timers: the conversation is to be opened; this member is to say that it is there,
/// or to fetch the state of the others.
const OPEN: u64 = 0;
const HELLO: u64 = 1;
const FETCH: u64 = 2;
/// Messages that are kept behind a state that is being fetched, before upcalls wait.
const BEHIND_MAX: usize = 256;
/// Time after which what did not succeed is tried again.
const RETRY: Duration = Duration::from_millis(500);
pub(crate) const PEER: &str = "process7@10.0.0.2";

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub(crate) struct Settings {
        start: Duration = duration(Duration::from_millis(200),
            "how long after the beginning the conversation is opened, if none goes on"),
        patience: Duration = duration(Duration::from_secs(5), "how long a request waits"),
        concurrency: usize = int(1..=65_536, 1024, "how many requests wait at a time"),
        waits: bool = flag(false, "whether another member opens the conversation"),
        local_reads: bool = flag(false, "whether a get is answered by this member alone"),
        ..
        /// The other members; empty for a member that takes any conversation of its process.
        members: Vec<Participant> = Vec::new(),
        /// The local participant of the conversation.
        local: Participant = Participant::new(),
        /// The local participant that clients call.
        at: Participant = Participant::of(Part::Any),
    }
    [
        optional("local", ParamKind::Participant(PEER), "the local participant of the conversation"),
        optional("at", ParamKind::Participant("procedure1@10.0.0.2"),
            "the local participant that clients call; `*` if not given"),
    ]
}

/// The conversation of this member.
#[derive(Clone)]
struct Talk {
    session: SessionRef,
    me: u8,
    members: u8,
}

/// A request that waits for its place.
struct Waiter {
    reply: RefCell<Option<Reply>>,
    /// Signalled with the reply.
    replied: Semaphore,
}

/// One instance.
pub(crate) struct Replica {
    group: ProtocolRef,
    calls: ProtocolRef,
    settings: Settings,
    talk: RefCell<Option<Talk>>,
    store: RefCell<Store>,
    /// The state on its way to replicas that come back.
    transfer: Transfer,
    /// Number of the start at which this member fetches its state, and the messages behind that.
    fetching: Cell<Option<u16>>,
    behind: RefCell<VecDeque<Message>>,
    /// Upcalls that wait for the state, and their signal.
    upcalls: Cell<u32>,
    fetched: Semaphore,
    waiting: RefCell<BTreeMap<u32, Rc<Waiter>>>,
    last_tag: Cell<u32>,
}

/// The participants of blocks with this name.
pub(crate) fn participants(
    build: &Build<'_>,
    name: &'static str,
) -> Result<Vec<Participant>, BuildError> {
    let named = build.params.blocks(name).map(|block| block.participant("at"));
    named.map(|named| Ok(named?.unwrap_or_default())).collect()
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::read(build)?);
    let settings = Settings {
        members: participants(build, "member")?,
        local: params.participant("local")?.unwrap_or_default(),
        at: params.participant("at")?.unwrap_or(usual.at),
        ..usual
    };
    build.add(Replica {
        group: build.lower(0)?,
        calls: build.lower(1)?,
        settings,
        talk: RefCell::default(),
        store: RefCell::default(),
        transfer: Transfer::new(SNAPSHOT_MAX),
        fetching: Cell::new(None),
        behind: RefCell::default(),
        upcalls: Cell::new(0),
        fetched: Semaphore::new(0),
        waiting: RefCell::default(),
        last_tag: Cell::new(0),
    })
}

impl Replica {
    /// The conversation, if it goes on.
    fn talk(&self) -> Option<Talk> {
        self.talk.borrow().clone().filter(|talk| !talk.session.head().is_closed())
    }

    /// Whether the conversation goes on, and all members have been in it.
    fn has_begun(&self) -> bool {
        self.talk().is_some_and(|talk| self.store.borrow().has_begun(talk.members))
    }

    /// Takes part in a conversation, with nothing yet. Its first message may come while `open` or
    /// `open_done` of it still waits for an answer.
    fn begin(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) -> Option<Talk> {
        let _ = session.ask(cx, TakeOwn);
        let _ = session.ask(cx, TakeViews);
        let my = session.ask(cx, MyMember::default())?;
        if !self.is_of_members(cx, session, my) {
            return None;
        }
        match self.talk() {
            Some(talk) if talk.session.id() == session.id() => return Some(talk),
            // One that has state does not leave it for another conversation.
            Some(_) if self.has_begun() => return None,
            _ => {}
        }
        let talk = Talk { session: session.clone(), me: my.index, members: my.members };
        *self.store.borrow_mut() = Store::default();
        self.stop_fetching(cx);
        let before = self.talk.borrow_mut().replace(talk.clone());
        if let Some(Talk { session, .. }) = before {
            match session.head().is_passive() {
                true => session.ease(cx),
                false => session.close(cx),
            }
        }
        if my.incarnation <= 1 {
            plan(cx, this, SHORTEST, HELLO);
        }
        Some(talk)
    }

    /// Whether a conversation is that of the members of the graph, where these are given.
    fn is_of_members(&self, cx: &Kernel, session: &SessionRef, my: MyMember) -> bool {
        let members = &self.settings.members;
        let is_listed = |index: u8| {
            let asked = session.ask(cx, MemberAt { index, ..MemberAt::default() });
            let host = Part::Host(asked.unwrap_or_default().host);
            members.iter().any(|member| member.parts().any(|part| *part == host))
        };
        let mut others = (0..my.members).filter(|index| *index != my.index);
        members.is_empty() || usize::from(my.members) == members.len() + 1 && others.all(is_listed)
    }

    /// Opens the conversation, unless one goes on.
    fn open(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.talk().is_some() {
            return;
        }
        let ends = asks::ends(&self.settings.local, &self.settings.members);
        match self.group.open(cx, Upper::new(this), ends) {
            Ok(session) => {
                if self.begin(cx, this, &session).is_none() {
                    session.close(cx);
                }
            }
            Err(_) => plan(cx, this, RETRY, OPEN),
        }
    }

    /// Says to all that this member is there.
    fn hello(&self, cx: &Kernel, this: &ProtocolRef) {
        let Some(talk) = self.talk() else { return };
        if self.tell(cx, &talk.session, &Told::Hello).is_err() {
            plan(cx, this, RETRY, HELLO);
        }
    }

    fn tell(&self, cx: &Kernel, session: &SessionRef, told: &Told<'_>) -> Result<(), PushError> {
        let made = cx.pool().copy_from(HEADROOM, &told.emit());
        let mut message = made.map_err(|_| PushError::NoBuffers)?;
        let deadline = cx.now().after(self.settings.patience);
        let options = CallOptions { deadline, tag: 0 };
        message.set_attribute(options).map_err(|_| PushError::NoBuffers)?;
        session.push(cx, message)
    }

    /// Has all members execute a request; waits for the reply of this one.
    fn ask_all(&self, cx: &Kernel, request: Request<'_>) -> Reply {
        let Some(talk) = self.talk().filter(|_| self.has_begun()) else {
            return Status::NoQuorum.into();
        };
        if self.settings.local_reads && request.act == Act::Get {
            let store = self.store.borrow();
            // Others have to know the client as well.
            if store.knows(request.client) {
                return store.get(request.key);
            }
        }
        let until = cx.now().after(self.settings.patience);
        let tag = self.last_tag.get().wrapping_add(1);
        self.last_tag.set(tag);
        let waiter = Rc::new(Waiter { reply: RefCell::default(), replied: Semaphore::new(0) });
        self.waiting.borrow_mut().insert(tag, Rc::clone(&waiter));
        let sent = self.tell(cx, &talk.session, &Told::Request { tag, request });
        if sent.is_ok() {
            // Without a reply it has waited in vain.
            let _ = cx.wait(&waiter.replied, Some(until.since(cx.now())));
        }
        self.waiting.borrow_mut().remove(&tag);
        let reply = waiter.reply.borrow_mut().take();
        let why = match sent {
            // It is neither sent nor executed.
            Err(PushError::NoRoute | PushError::Unreachable | PushError::Closed) => {
                Status::NoQuorum
            }
            _ => Status::Late,
        };
        reply.unwrap_or(why.into())
    }

    /// Executes what has come to its place in the order.
    fn execute(&self, cx: &Kernel, talk: &Talk, from: u8, told: &Told<'_>) {
        match told {
            Told::Hello => {
                // One that has come back has its state.
                self.transfer.forget(from);
                self.store.borrow_mut().hello(from);
            }
            Told::Request { tag, request } => {
                let has_begun = self.store.borrow().has_begun(talk.members);
                let reply = match has_begun {
                    true => self.store.borrow_mut().execute(request),
                    false => Status::NoQuorum.into(),
                };
                let waiter = self.waiting.borrow().get(tag).filter(|_| from == talk.me).cloned();
                if let Some(waiter) = waiter {
                    *waiter.reply.borrow_mut() = Some(reply);
                    cx.signal(&waiter.replied);
                }
            }
        }
    }

    /// Takes what has its place in the order.
    fn take(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        talk: &Talk,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(change) = message.attribute::<ViewChange>() {
            self.change(cx, this, talk, change);
            return Ok(());
        }
        let octets: Vec<u8> = message.octets().take(REQUEST_MAX + HEADROOM).collect();
        match (message.attribute::<Node>(), Told::parse(&octets)) {
            (Some(node), Ok(told)) => self.execute(cx, talk, node.id.sender, &told),
            _ => return Err(this.refuse(message, &reason::MALFORMED)),
        }
        Ok(())
    }

    /// Takes a change of the members in its place in the order: to one that has come back all have
    /// the same state to give; itself it fetches that before it takes what is behind. Upcalls go on
    /// meanwhile.
    fn change(&self, cx: &Kernel, this: &ProtocolRef, talk: &Talk, change: ViewChange) {
        let ViewChange { member: Some(member), incarnation, .. } = change else {
            return;
        };
        if incarnation == 0 {
            self.transfer.forget(member);
        } else if member != talk.me {
            self.transfer.offer(member, incarnation, self.store.borrow().snapshot());
        } else {
            self.fetching.set(Some(incarnation));
            plan(cx, this, SHORTEST, FETCH);
        }
    }

    /// Fetches the state of the others, and takes what has come behind its place.
    fn fetch(&self, cx: &Kernel, this: &ProtocolRef) {
        let (Some(start), Some(talk)) = (self.fetching.get(), self.talk()) else {
            return self.stop_fetching(cx);
        };
        let state = self.transfer.fetch(cx, &talk.session, start);
        if self.fetching.get() != Some(start) {
            // Another conversation has begun.
            return;
        }
        if let Some(store) = state.and_then(|state| Store::restore(&state).ok()) {
            *self.store.borrow_mut() = store;
            plan(cx, this, SHORTEST, HELLO);
        }
        while self.fetching.get() == Some(start) {
            let next = self.behind.borrow_mut().pop_front();
            let Some(message) = next else {
                return self.stop_fetching(cx);
            };
            // Counted where it is refused.
            drop(self.take(cx, this, &talk, message));
        }
    }

    /// Has upcalls take what they bring from now on, those first that wait.
    fn stop_fetching(&self, cx: &Kernel) {
        self.fetching.set(None);
        drop(self.behind.take());
        (0..self.upcalls.get()).for_each(|_| cx.signal(&self.fetched));
    }

    /// Keeps a message until the state before it is there; back if this upcall has waited for that.
    fn keep(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        talk: &Talk,
        message: Message,
    ) -> Result<Option<Message>, Refused> {
        let mut behind = self.behind.borrow_mut();
        if behind.len() < BEHIND_MAX && self.upcalls.get() == 0 {
            behind.push_back(message);
            return Ok(None);
        }
        drop(behind);
        self.upcalls.set(self.upcalls.get() + 1);
        let waited = cx.wait(&self.fetched, None);
        self.upcalls.set(self.upcalls.get() - 1);
        match waited {
            // Another conversation may have begun.
            Ok(()) if self.talk().is_none_or(|now| now.session.id() != talk.session.id()) => {
                Err(this.refuse(message, &reason::CLOSED))
            }
            Ok(()) => Ok(Some(message)),
            Err(_) => Err(this.refuse(message, &reason::QUEUE_FULL)),
        }
    }

    fn report(&self, report: &mut Report) {
        let store = self.store.borrow();
        let line = |name: &str, count: u64| (name.into(), count.to_string());
        report.lines = alloc::vec![
            line("executed", store.executed()),
            line("keys", store.keys() as u64),
            line("clients", store.clients() as u64),
            line("waiting", self.waiting.borrow().len() as u64),
            ("state".into(), format!("{:016x}", store.digest())),
        ];
        report.finished = true;
    }
}

fn plan(cx: &Kernel, this: &ProtocolRef, after: Duration, token: u64) {
    // Without a timer this member stays out: others go on.
    let _ = cx.schedule_protocol(this, after, token);
}

impl Protocol for Replica {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = match self.settings.local.is_empty() {
            true => Participant::of(Part::Any),
            false => self.settings.local.clone(),
        };
        self.group.open_enable(cx, Upper::new(this), Participants::local(local)).map(drop)?;
        let at = Participants::local(self.settings.at.clone());
        self.calls.open_enable(cx, Upper::new(this), at).map(drop)?;
        if !self.settings.members.is_empty() && !self.settings.waits {
            plan(cx, this, self.settings.start.max(SHORTEST), OPEN);
        }
        Ok(())
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        if lower.protocol(cx).as_ref() != Some(&self.group) {
            return Ok(());
        }
        self.begin(cx, this, lower).ok_or(&reason::TABLE_FULL)?;
        lower.hold();
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let talk = match self.talk() {
            None => self.begin(cx, this, lower),
            talk => talk.filter(|talk| talk.session.id() == lower.id()),
        };
        let Some(talk) = talk else {
            return Err(this.refuse(message, &reason::CLOSED));
        };
        if let Some(Aside { member }) = message.attribute() {
            let is_taken = self.transfer.take(cx, &talk.session, member, &message);
            return is_taken.then_some(()).ok_or_else(|| this.refuse(message, &reason::MALFORMED));
        }
        let message = match self.fetching.get() {
            Some(_) => self.keep(cx, this, &talk, message)?,
            None => Some(message),
        };
        message.map_or(Ok(()), |message| self.take(cx, this, &talk, message))
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        if self.waiting.borrow().len() >= self.settings.concurrency {
            return Err(this.refuse(request, &BUSY));
        }
        let octets: Vec<u8> = request.octets().take(REQUEST_MAX + 1).collect();
        let Ok(parsed) = Request::parse(&octets) else {
            return Err(this.refuse(request, &BAD_ARGUMENTS));
        };
        let reply = self.ask_all(cx, parsed);
        let made = cx.pool().copy_from(HEADROOM, &reply.emit());
        made.map_err(|_| this.refuse(request, &reason::NO_BUFFERS))
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            OPEN => self.open(cx, this),
            FETCH => self.fetch(cx, this),
            _ => self.hello(cx, this),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(report) = ask.get::<Report>() {
            self.report(report);
            return Answer::Answered;
        }
        self.group.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.group)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        drop(self.talk.take());
        self.stop_fetching(cx);
    }
}
