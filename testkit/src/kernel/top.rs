//! An upper protocol that remembers what it is told, serves calls, and refuses what a test wants
//! refused.

use super::OnAsk;
use super::losses::lose;
use core::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_core::object::{Enable, OpenError, ProtocolId, Refused, SessionId};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Time,
    Upper, reason,
};
use xk_kit::control::NetworkError;
use xk_kit::rpc::call::MyProcedure;

/// A notice to a [`Top`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session was made on its behalf (`open_done`).
    OpenDone(SessionId),
    /// A message of so many octets came through this session.
    Demux(SessionId, usize),
    /// The network reported an error.
    Error,
}

/// A message that reached the top.
#[derive(Debug)]
pub struct Received {
    /// The session that it came through.
    pub session: SessionRef,
    /// The message.
    pub message: Message,
    /// Time of its arrival.
    pub at: Time,
}

#[derive(Default)]
struct State {
    events: RefCell<Vec<Event>>,
    received: RefCell<Vec<Received>>,
    received_count: Cell<u64>,
    gone: RefCell<Vec<SessionId>>,
    opened: RefCell<Vec<(SessionRef, Participants)>>,
    procedures: RefCell<Vec<u32>>,
    served: Cell<u64>,
    serving: Cell<u32>,
    serving_most: Cell<u32>,
    on_serve: RefCell<Option<OnServe>>,
    errors: RefCell<Vec<NetworkError>>,
    refuse_open: Cell<Option<&'static Reason>>,
    refuse: Cell<Option<&'static Reason>>,
    forgets: Cell<bool>,
    echoes: Cell<bool>,
    on_open: RefCell<Option<OnOpen>>,
    on_demux: RefCell<Option<OnDemux>>,
    on_ask: RefCell<Option<OnAsk>>,
    down: RefCell<Option<ProtocolRef>>,
    /// Questions that it has passed down.
    passed_down: Cell<u32>,
}

/// Largest number of questions passed down: a question that goes round and round comes to an end.
const PASSED_DOWN_MAX: u32 = 16;

/// Called in `open_done` of a [`Top`], before it records the session; may block.
pub type OnOpen = Rc<dyn Fn(&Kernel, &SessionRef)>;

/// Called for every message that reaches a [`Top`], with its number from 1 on; may block, and may
/// refuse the message.
pub type OnDemux = Rc<dyn Fn(&Kernel, &SessionRef, u64) -> Result<(), &'static Reason>>;

/// Serves a request; may block. Returns the reply, or the reason why there is none.
pub type OnServe = Rc<dyn Fn(&Kernel, &SessionRef, Message) -> Result<Message, &'static Reason>>;

/// The highest protocol of a test: keeps messages, and by default replies to every request with its
/// octets.
#[derive(Clone)]
pub struct Top {
    state: Rc<State>,
    protocol: ProtocolRef,
}

impl Top {
    /// Adds a top of the kind `top` to a kernel.
    pub fn add(cx: &Kernel, name: &str) -> Self {
        Self::add_kind(cx, "top", name)
    }

    /// Adds a top of this kind, for the tables of type numbers.
    pub fn add_kind(cx: &Kernel, kind: &'static str, name: &str) -> Self {
        let state = Rc::new(State::default());
        let protocol = cx.add_protocol(kind, name, TopProtocol(Rc::clone(&state)));
        Self { state, protocol }
    }

    /// The protocol.
    #[must_use]
    pub fn protocol(&self) -> &ProtocolRef {
        &self.protocol
    }

    /// Opens a session on `lower`.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn open(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        lower.open(cx, Upper::new(&self.protocol), participants)
    }

    /// Opens a session on `lower` under the number of `selector`, as a virtual protocol below
    /// `selector` does.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn open_through(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        selector: &ProtocolRef,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let upper = Upper::new(selector).through(&self.protocol);
        lower.open(cx, upper, participants)
    }

    /// Passes every question on to this protocol from now on, as layers do with questions that they
    /// do not know.
    pub fn pass_down(&self, to: &ProtocolRef) {
        *self.state.down.borrow_mut() = Some(to.clone());
        self.state.passed_down.set(0);
    }

    /// Number of questions that it has passed down since.
    #[must_use]
    pub fn passed_down(&self) -> u32 {
        self.state.passed_down.get()
    }

    /// Enables on `lower`.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn enable(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        lower.open_enable(cx, Upper::new(&self.protocol), participants)
    }

    /// Enables on `lower` under the number of `selector`, as a virtual protocol below `selector`
    /// does.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn enable_through(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        selector: &ProtocolRef,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let upper = Upper::new(selector).through(&self.protocol);
        lower.open_enable(cx, upper, participants)
    }

    /// The protocol's id, to which its type number is bound.
    #[must_use]
    pub fn id(&self) -> ProtocolId {
        self.protocol.id()
    }

    /// Takes the notices since the last call, oldest first.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.state.events.take()
    }

    /// Takes the messages received since the last call, oldest first.
    #[must_use]
    pub fn take_received(&self) -> Vec<Received> {
        self.state.received.take()
    }

    /// Number of messages accepted so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.state.received_count.get()
    }

    /// Takes the sessions made on its behalf since the last call, with their participants.
    #[must_use]
    pub fn take_opened(&self) -> Vec<(SessionRef, Participants)> {
        self.state.opened.take()
    }

    /// Takes the sessions reported as ended since the last call.
    #[must_use]
    pub fn take_gone(&self) -> Vec<SessionId> {
        self.state.gone.take()
    }

    /// Takes the procedures of the sessions made on its behalf since the last call.
    #[must_use]
    pub fn take_procedures(&self) -> Vec<u32> {
        self.state.procedures.take()
    }

    /// Number of requests that reached it.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.state.served.get()
    }

    /// Number of requests being served.
    #[must_use]
    pub fn serving(&self) -> u32 {
        self.state.serving.get()
    }

    /// Largest number of requests served at one time.
    #[must_use]
    pub fn serving_most(&self) -> u32 {
        self.state.serving_most.get()
    }

    /// Takes the errors reported since the last call.
    #[must_use]
    pub fn take_errors(&self) -> Vec<NetworkError> {
        self.state.errors.take()
    }

    /// Makes it refuse every session made on its behalf with this reason, or none.
    pub fn refuse_open(&self, reason: Option<&'static Reason>) {
        self.state.refuse_open.set(reason);
    }

    /// Makes it refuse every message with this reason, or none.
    pub fn refuse(&self, reason: Option<&'static Reason>) {
        self.state.refuse.set(reason);
    }

    /// Sets whether it only counts messages and does not keep them; at first it keeps them.
    pub fn forget(&self, forgets: bool) {
        self.state.forgets.set(forgets);
    }

    /// Sets whether it sends every message back through its session.
    pub fn echo(&self, echoes: bool) {
        self.state.echoes.set(echoes);
    }

    /// Sets a function that is called first in `open_done`.
    pub fn on_open(&self, on_open: Option<OnOpen>) {
        drop(self.state.on_open.replace(on_open));
    }

    /// Sets a function that is called first with every message.
    pub fn on_demux(&self, on_demux: Option<OnDemux>) {
        let before = self.state.on_demux.replace(on_demux);
        drop(before);
    }

    /// Sets a function that serves requests, or restores the default.
    pub fn on_serve(&self, on_serve: Option<OnServe>) {
        drop(self.state.on_serve.replace(on_serve));
    }

    /// Sets a function that may answer questions to it first.
    pub fn on_ask(&self, on_ask: OnAsk) {
        *self.state.on_ask.borrow_mut() = Some(on_ask);
    }

    /// Drops everything that it has kept.
    pub fn clear(&self) {
        self.state.clear();
    }
}

impl State {
    fn note(&self, event: Event) {
        if !self.forgets.get() {
            self.events.borrow_mut().push(event);
        }
    }

    fn clear(&self) {
        let received = self.received.take();
        let opened = self.opened.take();
        let errors = self.errors.take();
        let calls = (self.on_demux.take(), self.on_ask.take(), self.on_serve.take());
        let opens = self.on_open.take();
        let down = self.down.take();
        self.events.take();
        self.procedures.take();
        // Outside of the borrows: what is dropped may hold the last handle of something else.
        drop((received, opened, errors, calls, opens, down));
    }
}

struct TopProtocol(Rc<State>);

impl Protocol for TopProtocol {
    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        let state = &self.0;
        let on_open = state.on_open.borrow().clone();
        if let Some(on_open) = on_open {
            on_open(cx, lower);
        }
        if let Some(reason) = state.refuse_open.get() {
            return Err(reason);
        }
        state.note(Event::OpenDone(lower.id()));
        if !state.forgets.get() {
            state.opened.borrow_mut().push((lower.clone(), participants));
            let procedure = lower.ask(cx, MyProcedure::default());
            state.procedures.borrow_mut().extend(procedure.map(|answer| answer.number));
        }
        Ok(())
    }

    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        self.0.gone.borrow_mut().push(lower.id());
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let state = &self.0;
        if let Some(reason) = state.refuse.get() {
            return Err(this.refuse(message, reason));
        }
        state.note(Event::Demux(lower.id(), message.len()));
        state.received_count.set(state.received_count.get() + 1);
        let on_demux = state.on_demux.borrow().clone();
        if let Some(Err(reason)) =
            on_demux.map(|on_demux| on_demux(cx, lower, state.received_count.get()))
        {
            return Err(this.refuse(message, reason));
        }
        if state.echoes.get() {
            // What cannot be sent is counted by the layer that did not take it.
            let _ = lower.push(cx, message);
        } else if !state.forgets.get() {
            state.received.borrow_mut().push(Received {
                session: lower.clone(),
                message,
                at: cx.now(),
            });
        }
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let state = &self.0;
        state.served.set(state.served.get() + 1);
        let on_serve = state.on_serve.borrow().clone();
        let Some(on_serve) = on_serve else {
            return Ok(request);
        };
        let Ok(rest) = cx.pool().empty(0) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        state.serving.set(state.serving.get() + 1);
        state.serving_most.set(state.serving_most.get().max(state.serving.get()));
        let reply = on_serve(cx, lower, request);
        state.serving.set(state.serving.get() - 1);
        reply.map_err(|why| this.refuse(rest, why))
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(lost) = lose(cx, ask) {
            return lost;
        }
        let on_ask = self.0.on_ask.borrow().clone();
        if on_ask.is_some_and(|on_ask| on_ask(cx, ask).is_answered()) {
            return Answer::Answered;
        }
        let down = self.0.down.borrow().clone();
        if let Some(down) = down {
            let passed = self.0.passed_down.get() + 1;
            self.0.passed_down.set(passed);
            return match passed > PASSED_DOWN_MAX {
                true => Answer::Unknown,
                false => down.control(cx, ask),
            };
        }
        let Some(error) = ask.get::<NetworkError>() else {
            return Answer::Unknown;
        };
        let error = error.clone();
        self.0.note(Event::Error);
        self.0.errors.borrow_mut().push(error);
        Answer::Answered
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.clear();
    }
}
