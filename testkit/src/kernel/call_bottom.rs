//! A lower protocol of the rpc realm that carries requests to another like it.

use crate::kernel::losses::lose;
use crate::kernel::pauses::Pauses;
use crate::kernel::{Addressing, CallEnd, HEADROOM, Lower, ReachedBottom, source_of};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use xk_core::control::ListSessions;
use xk_core::message::NoBuffers;
use xk_core::object::{CallCause, CallError, Closing, Enable, OpenError, PushError, Refused};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Session, SessionRef,
    Upper, reason,
};
use xk_kit::control::{MaxPacket, MyHost, OptPacket, PeerHost};
use xk_kit::rpc::call::{CallOptions, CallsAtOnce, CancelCall};

/// Called with every request before it is carried to the peer; may block, and may end the call.
pub type OnCall = Rc<dyn Fn(&Kernel, &SessionRef, &Message) -> Result<(), CallError>>;

/// A call that waits for its reply while another shepherd carries it.
struct Waiting {
    session: SessionRef,
    tag: u64,
    request: RefCell<Option<Message>>,
    end: RefCell<Option<CallEnd>>,
    semaphore: Semaphore,
}

impl Waiting {
    fn finish(&self, cx: &Kernel, end: CallEnd) {
        *self.end.borrow_mut() = Some(end);
        cx.signal(&self.semaphore);
    }
}

/// Sessions that requests made, by the client's bottom and session.
type Served = BTreeMap<(u32, u64), SessionRef>;

struct State {
    lower: Lower,
    peers: RefCell<Vec<CallBottom>>,
    enables: RefCell<Vec<(u64, ProtocolRef, Option<u32>)>>,
    enable_last: Cell<u64>,
    served: RefCell<Served>,
    open: RefCell<Vec<SessionRef>>,
    opens: Cell<u64>,
    calls: Cell<u64>,
    calling: Cell<u32>,
    calling_most: Cell<u32>,
    on_call: RefCell<Option<OnCall>>,
    holds: Cell<bool>,
    /// Calls under way on another shepherd, by their number.
    waiting: RefCell<BTreeMap<u64, Rc<Waiting>>>,
    waiting_last: Cell<u64>,
    pauses: Pauses,
    /// Length of the first slice, if arrivals lie in two slices.
    cut: Cell<Option<usize>>,
}

/// The lowest protocol of a test of the rpc realm. It carries a copy of each request, on the
/// caller's shepherd, to the bottom with the peer's address. Each `open` makes a session, which
/// carries one call at a time.
#[derive(Clone)]
pub struct CallBottom {
    state: Rc<State>,
    protocol: ProtocolRef,
}

impl CallBottom {
    /// Adds a bottom to a kernel. Its kind is `channel`, unless `lower` has one that its own
    /// constructors do not set.
    pub fn add(cx: &Kernel, name: &str, lower: Lower) -> Self {
        let kind = match lower.kind {
            "ip" | "eth" | "bottom" => "channel",
            kind => kind,
        };
        let state = Rc::new(State {
            lower,
            peers: RefCell::default(),
            enables: RefCell::default(),
            enable_last: Cell::new(0),
            served: RefCell::default(),
            open: RefCell::default(),
            opens: Cell::new(0),
            calls: Cell::new(0),
            calling: Cell::new(0),
            calling_most: Cell::new(0),
            on_call: RefCell::default(),
            holds: Cell::new(false),
            waiting: RefCell::default(),
            waiting_last: Cell::new(0),
            pauses: Pauses::default(),
            cut: Cell::new(None),
        });
        let protocol = cx.add_protocol(kind, name, BottomProtocol(Rc::clone(&state)));
        Self { state, protocol }
    }

    /// Joins these bottoms, so that each reaches all, itself included.
    pub fn join(all: &[CallBottom]) {
        for one in all {
            *one.state.peers.borrow_mut() = all.to_vec();
        }
    }

    /// The protocol object, for layers above.
    #[must_use]
    pub fn protocol(&self) -> &ProtocolRef {
        &self.protocol
    }

    /// Properties of the bottom.
    #[must_use]
    pub fn lower(&self) -> &Lower {
        &self.state.lower
    }

    /// Number of calls made through it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.calls.get()
    }

    /// Number of sessions opened from above.
    #[must_use]
    pub fn opens(&self) -> u64 {
        self.state.opens.get()
    }

    /// Largest number of calls at one time.
    #[must_use]
    pub fn calling_most(&self) -> u32 {
        self.state.calling_most.get()
    }

    /// The sessions that were opened and are not closed.
    #[must_use]
    pub fn open_sessions(&self) -> Vec<SessionRef> {
        self.state.open.borrow().clone()
    }

    /// The sessions made by requests, with a hold from above.
    #[must_use]
    pub fn held(&self) -> Vec<SessionRef> {
        let served = self.state.served.borrow();
        let held = served.values().filter(|session| session.head().opens() > 0);
        held.cloned().collect()
    }

    /// Sets a function that is called with every request before it is carried.
    pub fn on_call(&self, on_call: Option<OnCall>) {
        drop(self.state.on_call.replace(on_call));
    }

    /// Makes `open`, `open_enable`, `control` and `call` block for a varying time of up to `most`,
    /// on shepherds with a stack; at first they do not block.
    pub fn block(&self, most: Duration) {
        self.state.pauses.set(most);
    }

    /// Makes each request and each reply arrive in two slices, the first with so many octets (0: an
    /// empty one), or in one slice with `None`, as at first.
    pub fn cut(&self, at: Option<usize>) {
        self.state.cut.set(at);
    }

    /// Sets whether calls wait before they are carried: until [`CallBottom::release`], their
    /// deadline, or a `cancel-call`.
    pub fn hold(&self, holds: bool) {
        self.state.holds.set(holds);
    }

    /// Lets waiting calls go on; returns their number.
    pub fn release(&self, cx: &Kernel) -> usize {
        let all: Vec<u64> = self.state.waiting.borrow().keys().copied().collect();
        for number in &all {
            self.state.carry_soon(cx, &self.protocol, *number);
        }
        all.len()
    }

    /// Withdraws every enable, so that another protocol can take the place of the one above.
    pub fn withdraw_all(&self) {
        drop(self.state.enables.take());
    }

    /// Number of calls that wait for their reply.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.waiting.borrow().len()
    }

    /// Delivers a request from `peer` (`None` on a link) to the protocol that enabled under
    /// `number`, as if through the session `channel` of the bottom `client`, and returns the reply.
    ///
    /// # Errors
    /// What the layers above refused.
    pub fn deliver(
        &self,
        cx: &Kernel,
        (client, channel): (u32, u64),
        peer: Option<Part>,
        number: Option<u32>,
        request: Message,
    ) -> Result<Message, Refused> {
        let key = (client, channel);
        let found = self.state.served.borrow().get(&key).cloned();
        if let Some(session) = found.filter(|session| !session.head().is_closed()) {
            return session.call_pop(cx, request);
        }
        let upper = {
            let enables = self.state.enables.borrow();
            let found = enables.iter().find(|(_, _, n)| *n == number);
            found.map(|(_, upper, _)| upper.clone())
        };
        let Some(upper) = upper else {
            return Err(self.protocol.refuse(request, &reason::NO_PROTOCOL));
        };
        let body = BottomSession {
            state: Rc::clone(&self.state),
            upper: upper.clone(),
            peer,
            number,
            is_calling: Cell::new(false),
        };
        let session = cx.new_passive_session(&self.protocol, &upper, source_of(peer), body);
        self.state.served.borrow_mut().insert(key, session.clone());
        let both = match (self.state.lower.own(), peer) {
            (Some(own), Some(peer)) => Participants::pair(own, peer),
            _ => Participants::default(),
        };
        if let Err(unwanted) = session.announce(cx, &upper, both) {
            self.state.served.borrow_mut().remove(&key);
            session.abort(cx);
            return Err(self.protocol.refuse(request, unwanted));
        }
        session.call_pop(cx, request)
    }
}

struct BottomProtocol(Rc<State>);

impl Protocol for BottomProtocol {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let state = &self.0;
        let peer = state.lower.peer(participants)?;
        state.pauses.pause(cx);
        state.opens.set(state.opens.get() + 1);
        let body = BottomSession {
            state: Rc::clone(state),
            upper: upper.receiver.clone(),
            peer,
            number: upper.number_on(cx, this).ok(),
            is_calling: Cell::new(false),
        };
        let session = cx.new_session(this, upper.receiver, body);
        state.open.borrow_mut().push(session.clone());
        state.pauses.pause(cx);
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let state = &self.0;
        state.pauses.pause(cx);
        let last = state.enable_last.get() + 1;
        state.enable_last.set(last);
        let number = upper.number_on(cx, this).ok();
        let enable = (last, upper.receiver.clone(), number);
        state.enables.borrow_mut().push(enable);
        state.pauses.pause(cx);
        Ok(Enable(last))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        let mut enables = self.0.enables.borrow_mut();
        enables.retain(|(number, _, _)| *number != enable.0);
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.pauses.pause(cx);
        if let Some(lost) = lose(cx, ask) {
            return lost;
        }
        if let Some(list) = ask.get::<ListSessions>() {
            self.0.open.borrow().iter().for_each(|session| list.push(session));
            return Answer::Answered;
        }
        self.0.answer(ask, None)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, number: u64) {
        self.0.carry_waiting(cx, number);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let state = &self.0;
        let kept = (state.peers.take(), state.enables.take(), state.open.take());
        let rest = (state.served.take(), state.on_call.take(), state.waiting.take());
        // Outside of the borrows: what is dropped may hold the last handle of something else.
        drop((kept, rest));
    }
}

impl State {
    fn answer(&self, ask: &mut Ask<'_>, peer: Option<Part>) -> Answer {
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = self.lower.max_packet;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = self.lower.opt_packet;
        } else if let Some(q) = ask.get::<CallsAtOnce>() {
            q.calls = 1;
        } else if ask.get::<ReachedBottom>().is_some() {
            // Nothing to fill in.
        } else if let (Some(q), Addressing::Host(own)) =
            (ask.get::<MyHost>(), self.lower.addressing)
        {
            q.host = own;
        } else if let (Some(q), Some(Part::Host(host))) = (ask.get::<PeerHost>(), peer) {
            q.host = host;
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    /// Lets another shepherd carry this call as soon as the loop comes to it.
    fn carry_soon(&self, cx: &Kernel, this: &ProtocolRef, number: u64) {
        let scheduled = cx.schedule_protocol(this, Duration::ZERO, number);
        scheduled.expect("a timer for a test");
    }

    /// Carries a call that waits, unless it has ended.
    fn carry_waiting(&self, cx: &Kernel, number: u64) {
        let waiting = self.waiting.borrow().get(&number).cloned();
        let Some(waiting) = waiting else { return };
        let request = waiting.request.take();
        let Some(request) = request else { return };
        let end = match waiting.session.body::<BottomSession>() {
            Some(bottom) => bottom.carry(cx, &waiting.session, request),
            None => Err(CallCause::Closed.into()),
        };
        waiting.finish(cx, end);
    }

    /// Has a call carried by another shepherd and waits for the reply, until its deadline or until
    /// it is taken back.
    fn wait(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        options: Option<CallOptions>,
        request: Message,
    ) -> CallEnd {
        let limit = CallOptions::clip(options, cx.now(), Duration::MAX)
            .ok_or(CallCause::TimedOut { tries: 0 })?;
        let waiting = Rc::new(Waiting {
            session: session.clone(),
            tag: options.map_or(0, |options| options.tag),
            request: RefCell::new(Some(request)),
            end: RefCell::default(),
            semaphore: Semaphore::new(0),
        });
        let number = self.waiting_last.get() + 1;
        self.waiting_last.set(number);
        let waits = Rc::clone(&waiting);
        self.waiting.borrow_mut().insert(number, waits);
        if !self.holds.get()
            && let Some(this) = session.protocol(cx)
        {
            self.carry_soon(cx, &this, number);
        }
        let limit = Some(limit).filter(|limit| *limit != Duration::MAX);
        let waited = cx.wait(&waiting.semaphore, limit);
        self.waiting.borrow_mut().remove(&number);
        match (waiting.end.take(), waited) {
            (Some(end), _) => end,
            (None, Err(WaitError::TimedOut)) => Err(CallCause::TimedOut { tries: 1 }.into()),
            (None, waited) => {
                Err(waited.map_or_else(CallError::from, |()| CallCause::Closed.into()))
            }
        }
    }
}

struct BottomSession {
    state: Rc<State>,
    upper: ProtocolRef,
    peer: Option<Part>,
    number: Option<u32>,
    is_calling: Cell<bool>,
}

impl BottomSession {
    fn start(&self, cx: &Kernel, this: &SessionRef, mut request: Message) -> CallEnd {
        let state = &self.state;
        let options = CallOptions::take(&mut request);
        if request.len() > state.lower.max_packet as usize {
            return Err(PushError::TooBig.into());
        }
        let on_call = state.on_call.borrow().clone();
        if let Some(on_call) = on_call {
            on_call(cx, this, &request)?;
        }
        match options.is_some() || state.holds.get() {
            true => state.wait(cx, this, options, request),
            false => self.carry(cx, this, request),
        }
    }

    fn carry(&self, cx: &Kernel, this: &SessionRef, request: Message) -> CallEnd {
        let state = &self.state;
        let peer = {
            let peers = state.peers.borrow();
            let is_peer = |other: &&CallBottom| match self.peer {
                Some(_) => other.state.lower.own() == self.peer,
                None => !Rc::ptr_eq(&other.state, state),
            };
            peers.iter().find(is_peer).cloned()
        };
        let peer = peer.ok_or(CallCause::TimedOut { tries: 1 })?;
        // As on every real way, what arrives is no reference to what the sender has, and bears no
        // attributes.
        let arriving = copied(cx, &request, state.cut.get())?;
        drop(request);
        let from = (this.head().protocol().0, this.id().0);
        match peer.deliver(cx, from, state.lower.own(), self.number, arriving) {
            Ok(reply) => copied(cx, &reply, state.cut.get()),
            Err(refused) => Err(CallError::rejected(refused.reason)),
        }
    }
}

fn copied(cx: &Kernel, message: &Message, cut: Option<usize>) -> Result<Message, CallError> {
    if let Some(cut) = cut {
        let octets: Vec<u8> = message.octets().collect();
        return in_two_slices(cx, &octets, cut).map_err(|_| PushError::NoBuffers.into());
    }
    let copy = cx.pool().alloc(HEADROOM, message.len());
    let mut copy = copy.map_err(|_| PushError::NoBuffers)?;
    let mut at = 0;
    for slice in message.octet_slices() {
        at += copy.copy_in(at, slice);
    }
    Ok(copy)
}

/// Makes a message of two slices, the first of `cut` octets, or of fewer if there are not so many.
///
/// # Errors
/// [`NoBuffers`].
pub fn in_two_slices(cx: &Kernel, octets: &[u8], cut: usize) -> Result<Message, NoBuffers> {
    let (front, back) = octets.split_at(cut.min(octets.len()));
    let mut message = cx.pool().copy_from(HEADROOM, front)?;
    message.join(cx.pool().copy_from(0, back)?);
    Ok(message)
}

impl Session for BottomSession {
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        assert!(!self.is_calling.replace(true), "two calls at a time on one session below");
        let state = &self.state;
        state.calls.set(state.calls.get() + 1);
        state.calling.set(state.calling.get() + 1);
        state.calling_most.set(state.calling_most.get().max(state.calling.get()));
        state.pauses.pause(cx);
        let result = self.start(cx, this, request);
        state.calling.set(state.calling.get() - 1);
        self.is_calling.set(false);
        result
    }

    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        self.upper.call_demux(cx, this, request)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.state.pauses.pause(cx);
        if let Some(lost) = lose(cx, ask) {
            return lost;
        }
        if let Some(cancel) = ask.get::<CancelCall>() {
            let is_it =
                |waiting: &&Rc<Waiting>| (&waiting.session, waiting.tag) == (this, cancel.tag);
            let found = self.state.waiting.borrow().values().find(is_it).cloned();
            let Some(found) = found else {
                return Answer::Unknown;
            };
            found.finish(cx, Err(CallCause::Cancelled.into()));
            return Answer::Answered;
        }
        self.state.answer(ask, self.peer)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.state.open.borrow_mut().retain(|session| session != this);
        for waiting in self.state.waiting.borrow().values().filter(|w| w.session == *this) {
            waiting.finish(cx, Err(CallCause::Closed.into()));
        }
        Closing::Done
    }
}
