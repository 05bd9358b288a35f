//! # Synopsis
//! `objinv objloc` — invokes operations of objects, wherever these are.
//!
//! # Participants
//! An operation, an object, and a host that may have the object, `procedure2@eid7@10.0.0.2`, or `*`
//! if none is known. A server enables one object, `*@eid7`, which creates it here unless it is
//! known to be elsewhere, or objects of any number, `*@*`, for those that may arrive. `eid0` is the
//! host's own object: every host has one, and only its host identifies it.
//!
//! # Behaviour
//! A call goes to the host where the object is, or was last reported. A host that does not have the
//! object replies where it has gone, and the call goes there next, up to 16 times and always to a
//! place with a greater count. So for the next call a chain of forwarding pointers is one step
//! long. When the chain ends, no host is known, or the call could not be sent, `objloc` searches,
//! twice at most; then the object is `unavailable`. An object that is about to move executes
//! nothing; the call is repeated after 10 ms, doubling up to 320 ms, 64 times at most (19 s), which
//! is longer than a move takes while both hosts answer.
//!
//! A call is repeated only if its host replies that it was not executed, or if it could not be
//! sent. So an invocation is executed at most once if the calls of `objloc` are: on `channel`
//! always, on `reqrep` as long as its `dupcache` remembers. An invocation that timed out, or whose
//! host has rebooted, fails; the place is forgotten.
//!
//! An object that is here is invoked without a message. It does not move while an invocation is
//! executed. Reasons of refusals come back as they do through `select`.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.2/24"; }
//!     udp        ip
//!     reqrep     udp dupcache=128
//!     objloc     reqrep at=port2005 everyone="port2005@10.0.0.255"
//!     objinv     objloc
//!     procedures objinv at="*@eid7"
//! }
//! ```
//!
//! # Standard
//! None; the packet format is xk's own. "The x-Kernel", Figure 3, for objects as participants.

use crate::objloc::{FindObject, NODES_FAMILY, ObjectPlace};
pub use crate::places::NODE;
use crate::places::{Act, HOPS_MAX, Known, Place};
use crate::wire::{ELSEWHERE, EXECUTED, Front, Request, Told, VERSION, reason_of};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, int, question};
use xk_core::map::{Map, MapStats};
use xk_core::object::{CallCause, CallError, Enable, OpenError, PushError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason::Class;
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, Entry, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef,
    Reason, SessionRef, Upper, reason,
};
use xk_kit::rpc::call::{
    CallOptions, MyObject, MyProcedure, NO_PROCEDURE, OBJECT, PROCEDURE, pop_definite, pop_local,
};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, CallLower, Calling, Serving, bad_reply, pop_header, prepend, reply_of,
    reply_with,
};
use xk_kit::rpc::codes::status_of;
use xk_kit::rpc::session_pool::{SessionPool, SessionPools};

/// The object was not found at any host.
pub static UNAVAILABLE: Reason = Reason::new("unavailable", Class::NotMine);
/// The object is about to move for longer than the call waits.
pub static MOVING: Reason = Reason::new("on the move", Class::Exhausted);

const REQUEST: usize = Request::OCTETS;
const REPLY: usize = Front::OCTETS;
/// The key of an enable of any object.
const ANY: u64 = u64::MAX;
const ENABLES_MAX: usize = 65_536;
/// Searches for the object of one call.
const SEARCHES_MAX: u8 = 2;
/// Waits for an object on the move, for one call.
const WAITS_MAX: u8 = 64;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("objinv", include_str!("objinv.rs"), build)
    .summary("invokes operations of objects, wherever these are")
    .above(OBJECTS)
    .on(&[Realm::Rpc], &[NODES_FAMILY])
    .needs(Guarantees::SESSIONS)
    .header_octets(REQUEST)
    .parameters(&[
        int("channels", 1..=65_536, 8, "how many sessions it opens below for a host at most"),
        int("sessions_max", 1..=1_048_576, 4096,
            "how many sessions it holds for callers, and how many for servers; idle ones are \
             evicted for new ones"),
    ])
    .questions(&[
        question("my-object", "which object a session stands for"),
        question("my-procedure", "which operation a session stands for"),
        question("object-place", "passed on to `objloc`"),
        question("cancel-call", "ends the wait of a call"),
    ])
    .reasons(&[&UNAVAILABLE, &MOVING]);

/// The family of participants with an object on top, below an operation.
pub const OBJECTS: Family = Family::Other("objects");

/// One instance.
pub struct ObjInv {
    /// The object, or [`ANY`], to the protocol that serves it.
    enables: Map<u64, ProtocolRef>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (key, pools) = (build.cx.secret(), SessionPools::new(build.int("channels")?));
    let layer = ObjInv { enables: Map::new(key, ENABLES_MAX) };
    let (lower, most) = (build.lower(0)?, build.int("sessions_max")?);
    build.add(CallLayered::new(key, lower, most, pools, layer))
}

/// Outcome of one try of an invocation that was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object has gone there.
    Away(Place),
    /// The host knows nothing of the object, or could not be reached.
    Nothing,
    /// The object executes nothing for now.
    Moving,
}

/// The next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At the place that was said, once it is learned.
    There,
    /// At the place that a search finds.
    Search,
    /// After this time.
    After(Duration),
    /// None.
    Fail(&'static Reason),
}

/// The tries of one invocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    /// Count of the last place.
    pub count: u32,
    hops: u8,
    searches: u8,
    waits: u8,
}

impl Tries {
    /// Decides what to do after a try in vain.
    pub fn after(&mut self, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Away(place) if place.count > self.count && self.hops < HOPS_MAX => {
                self.hops += 1;
                Next::There
            }
            Outcome::Away(_) | Outcome::Nothing if self.searches < SEARCHES_MAX => {
                self.searches += 1;
                Next::Search
            }
            Outcome::Away(_) | Outcome::Nothing => Next::Fail(&UNAVAILABLE),
            Outcome::Moving if self.waits < WAITS_MAX => {
                self.waits += 1;
                Next::After(Duration::from_millis(5 << self.waits.min(6)))
            }
            Outcome::Moving => Next::Fail(&MOVING),
        }
    }
}

/// Ways of a session to the hosts of its object.
pub struct Ways {
    /// The host that was named at the open.
    hint: HostAddr,
    lower: ProtocolRef,
    /// Sessions to the host that was named.
    named: Option<Rc<SessionPool>>,
    /// The host that was called last, and the sessions to it.
    last: RefCell<Option<(HostAddr, Rc<SessionPool>)>>,
}

impl CallLower for Ways {
    type Shared = SessionPools;

    fn open(
        pools: &SessionPools,
        cx: &Kernel,
        lower: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Self, OpenError> {
        let hint = match ends.peer_mut()?.parts().last() {
            Some(Part::Host(host)) => *host,
            _ => HostAddr::UNSPECIFIED,
        };
        let is_known = !hint.is_unspecified();
        let named = is_known.then(|| pools.open(cx, lower, upper, ends)).transpose()?;
        Ok(Self { hint, lower: lower.clone(), named, last: RefCell::default() })
    }

    fn id(&self) -> u64 {
        self.named.as_ref().map_or(u64::MAX, CallLower::id)
    }

    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        match &self.named {
            Some(pool) => pool.call(cx, this, request),
            None => Err(PushError::NoRoute.into()),
        }
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let last = self.last.borrow().as_ref().map(|(_, pool)| Rc::clone(pool));
        match last.as_ref().or(self.named.as_ref()) {
            Some(pool) => CallLower::control(pool, cx, this, ask),
            None => self.lower.control(cx, ask),
        }
    }

    fn end_calls(&self, cx: &Kernel, this: &SessionRef) {
        let last = self.last.borrow().as_ref().map(|(_, pool)| Rc::clone(pool));
        last.iter().chain(&self.named).for_each(|pool| CallLower::end_calls(pool, cx, this));
    }

    fn session(&self) -> Option<&SessionRef> {
        None
    }

    fn close(&self, pools: &SessionPools, cx: &Kernel) {
        let last = self.last.take().map(|(_, pool)| pool);
        last.iter().chain(&self.named).for_each(|pool| pools.leave(cx, pool));
    }

    fn clear(pools: &SessionPools) {
        pools.clear();
    }
}

type Name = (u64, u16);
type Own = Calling<ObjInv>;

/// Pops an object off a participant, where it may be any.
fn pop_object(ends: &mut Participant) -> Result<Wild<u64>, AddressError> {
    match ends.pop_number(OBJECT) {
        Ok(Wild::Is(ANY)) => Err(AddressError::OutOfRange),
        popped => popped,
    }
}

/// Looks at, or changes, what is known of an object.
///
/// # Errors
/// [`reason::NO_ANSWER`] if the question was lost.
pub(crate) fn place(
    cx: &Kernel,
    lower: &ProtocolRef,
    eid: u64,
    act: Act,
) -> Result<ObjectPlace, &'static Reason> {
    let question = ObjectPlace { eid, act, ..ObjectPlace::default() };
    lower.ask(cx, question).ok_or(&reason::NO_ANSWER)
}

impl ObjInv {
    fn server(&self, eid: u64) -> Option<ProtocolRef> {
        self.enables.get(&eid).or_else(|| self.enables.get(&ANY))
    }

    /// The session for the invocations of an operation that come through `lower`.
    fn session(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        name: Name,
    ) -> Result<SessionRef, &'static Reason> {
        if let Some(session) = all.serving(lower, name) {
            return Ok(session);
        }
        let upper = all.layer.server(name.0).ok_or(&NO_PROCEDURE)?;
        all.accept(cx, this, (lower, &upper), name, || ((), Participants::default()))
    }

    /// Has an object that is here execute an operation; `None` if it is not here, or moves.
    fn execute(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Result<Message, Refused>, (Known, Message)> {
        let eid = own.name.0;
        match place(cx, &own.all.lower, eid, Act::Enter) {
            Ok(entered) if entered.is_done => {
                let served = own.next(cx, this, request);
                let _ = place(cx, &own.all.lower, eid, Act::Leave);
                Ok(served)
            }
            Ok(entered) => Err((entered.known, request)),
            Err(why) => Ok(Err(this.refuse(cx, request, why))),
        }
    }

    /// Invokes an object that is here, or was when it was looked for.
    fn call_here(
        own: &Own,
        cx: &Kernel,
        (this, protocol): (&SessionRef, &ProtocolRef),
        request: Message,
    ) -> Result<Result<Message, CallError>, Outcome> {
        let session = match Self::session(&own.all, cx, protocol, this, own.name) {
            Ok(session) => session,
            Err(why) => return Ok(Err(CallError::rejected(why))),
        };
        let Some(serving) = session.body::<Serving<Self>>() else { return Err(Outcome::Nothing) };
        match Self::execute(serving, cx, &session, request) {
            Ok(Ok(reply)) => Ok(Ok(reply)),
            Ok(Err(refused)) => Ok(Err(CallError::rejected(refused.reason))),
            Err((Known::Away(place), _)) => Err(Outcome::Away(place)),
            Err((Known::Nothing, _)) => Err(Outcome::Nothing),
            Err(_) => Err(Outcome::Moving),
        }
    }

    /// Sessions to this host; those to the host before are given back.
    fn pool(
        own: &Own,
        cx: &Kernel,
        protocol: &ProtocolRef,
        host: HostAddr,
    ) -> Result<Rc<SessionPool>, OpenError> {
        let ways = &own.lower;
        if let Some(named) = ways.named.as_ref().filter(|pool| host == ways.hint && !pool.is_over())
        {
            return Ok(Rc::clone(named));
        }
        if let Some((last, pool)) = &*ways.last.borrow()
            && *last == host
            && !pool.is_over()
        {
            return Ok(Rc::clone(pool));
        }
        let ends = Participants::pair(Part::Any, Part::Host(host));
        let pool = own.all.shared.open(cx, &own.all.lower, Upper::new(protocol), ends)?;
        if let Some((_, before)) = ways.last.replace(Some((host, Rc::clone(&pool)))) {
            own.all.shared.leave(cx, &before);
        }
        Ok(pool)
    }

    /// Invokes an object at another host.
    fn call_there(
        own: &Own,
        cx: &Kernel,
        (this, protocol): (&SessionRef, &ProtocolRef),
        to: Place,
        mut request: Message,
    ) -> Result<Result<Message, CallError>, Outcome> {
        let (eid, operation) = own.name;
        let header = Request { version: VERSION, zero: 0, operation, count: to.count, eid };
        let Ok(pool) = Self::pool(own, cx, protocol, to.host) else { return Err(Outcome::Nothing) };
        if prepend(&mut request, &header.emit()).is_err() {
            return Ok(Err(PushError::NoBuffers.into()));
        }
        let mut reply = match pool.call(cx, this, request) {
            Ok(reply) => reply,
            Err(CallError {
                cause: CallCause::Push(PushError::NoRoute | PushError::Unreachable),
                ..
            }) => return Err(Outcome::Nothing),
            Err(CallError { cause: CallCause::NobodyThere, .. }) => return Err(Outcome::Nothing),
            Err(error) => {
                if matches!(error.cause, CallCause::TimedOut { .. } | CallCause::Rebooted) {
                    let _ = place(cx, &own.all.lower, eid, Act::Forget);
                }
                return Ok(Err(error));
            }
        };
        let bad = |reply, why| Ok(Err(bad_reply(cx, this, reply, why)));
        let octets = match pop_header::<REPLY>(&mut reply) {
            Ok(octets) => octets,
            Err(why) => return bad(reply, why),
        };
        match Front::kind_in(&octets) {
            Some(EXECUTED) => Ok(Ok(reply)),
            Some(ELSEWHERE) => match crate::objloc::answer(&reply, to.host) {
                Some(Known::Away(place)) => Err(Outcome::Away(place)),
                Some(Known::Nothing) => Err(Outcome::Nothing),
                Some(_) => Err(Outcome::Moving),
                None => bad(reply, &reason::MALFORMED),
            },
            Some(status) => Ok(Err(CallError::rejected(reason_of(status)))),
            None => bad(reply, &reason::MALFORMED),
        }
    }

    /// Tries an invocation once.
    fn try_once(
        own: &Own,
        cx: &Kernel,
        at: (&SessionRef, &ProtocolRef),
        (tries, is_lost): (&mut Tries, bool),
        request: Message,
    ) -> Result<Result<Message, CallError>, Outcome> {
        let (eid, hint) = (own.name.0, own.lower.hint);
        if eid == NODE {
            return Self::call_there(own, cx, at, Place { host: hint, count: 0 }, request);
        }
        let wanted = FindObject { eid, hint, is_lost, known: Known::Nothing };
        let Some(found) = own.all.lower.ask(cx, wanted) else {
            return Ok(Err(CallError::rejected(&reason::NO_ANSWER)));
        };
        match found.known {
            Known::Nothing => Err(Outcome::Nothing),
            Known::Coming(place) if place.host.is_unspecified() => Err(Outcome::Moving),
            Known::Here(_) => Self::call_here(own, cx, at, request),
            Known::Away(place) | Known::Coming(place) => {
                tries.count = place.count;
                Self::call_there(own, cx, at, place, request)
            }
        }
    }

    /// Waits, no longer than the call may.
    fn wait(cx: &Kernel, options: Option<CallOptions>, time: Duration) -> Result<(), CallError> {
        let time = CallOptions::clip(options, cx.now(), time);
        let time = time.ok_or(CallCause::TimedOut { tries: 0 })?;
        // It is never signalled.
        match cx.wait(&Semaphore::new(0), Some(time)) {
            Err(xk_core::shepherd::WaitError::TimedOut) => Ok(()),
            Err(error) => Err(CallError::from(error)),
            Ok(()) => Ok(()),
        }
    }
}

/// Reply to an invocation that was not executed.
fn refusal(cx: &Kernel, mut refused: Refused) -> Result<Message, Refused> {
    refused.message.truncate(0);
    let status = status_of(refused.reason);
    reply_of(cx, refused.message, &Front::of(status).emit())
}

/// Reply that says where the object is.
fn elsewhere(cx: &Kernel, request: Message, known: Known) -> Result<Message, Refused> {
    let mut octets = [0; REPLY + Told::OCTETS];
    octets[..REPLY].copy_from_slice(&Front::of(ELSEWHERE).emit());
    octets[REPLY..].copy_from_slice(&Told::of(known).emit());
    reply_of(cx, request, &octets)
}

impl CallLayer for ObjInv {
    type Name = Name;
    type Lower = Ways;
    type Calls = ();
    type Serves = ();

    fn request_octets(&self, _: Option<&()>) -> usize {
        REQUEST
    }

    fn reply_octets(&self, (): &()) -> usize {
        REPLY
    }

    fn start(all: &CallLayered<Self>, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        all.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn pop_name(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<Name, OpenError> {
        let peer = ends.peer_mut()?;
        let operation = pop_definite(peer, PROCEDURE)?;
        let operation = u16::try_from(operation).map_err(|_| AddressError::OutOfRange)?;
        let eid = pop_object(peer)?.definite()?;
        match peer.parts().last() {
            Some(Part::Host(_)) => {}
            // A port alone is no host.
            Some(Part::Number(..) | Part::Ether(_)) => return Err(AddressError::WrongFamily.into()),
            _ if eid == NODE => return Err(AddressError::Missing.into()),
            _ => {}
        }
        *ends = Participants::pair(Part::Any, core::mem::take(peer));
        Ok((eid, operation))
    }

    #[inline(always)]
    fn name_in(request: &Message) -> Option<Name> {
        let header = Request::parse(request.peek_in_place()?);
        ((header.version, header.zero) == (VERSION, 0)).then_some((header.eid, header.operation))
    }

    fn answer_name((eid, operation): Name, ask: &mut Ask<'_>) -> bool {
        ask.answer::<MyProcedure>(|question| question.number = operation.into()).is_answered()
            || ask.answer::<MyObject>(|question| question.eid = eid).is_answered()
    }

    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    fn call(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let protocol = this.protocol(cx).ok_or(PushError::Closed)?;
        let options = request.attribute::<CallOptions>();
        let (mut tries, mut is_lost) = (Tries::default(), false);
        loop {
            // The original keeps the room for headers, so a clone waits for another try.
            let spare = request.try_clone()?;
            let once = core::mem::replace(&mut request, spare);
            let tried = Self::try_once(own, cx, (this, &protocol), (&mut tries, is_lost), once);
            let outcome = match tried {
                Ok(result) => return result,
                Err(outcome) => outcome,
            };
            if this.head().is_closed() {
                return Err(CallCause::Closed.into());
            }
            is_lost = false;
            match tries.after(outcome) {
                Next::There => {
                    if let Outcome::Away(there) = outcome {
                        let _ = place(cx, &own.all.lower, own.name.0, Act::Learn(there));
                    }
                }
                Next::Search if own.name.0 != NODE => is_lost = true,
                Next::Search => return Err(PushError::Unreachable.into()),
                Next::After(time) => Self::wait(cx, options, time)?,
                Next::Fail(why) => return Err(CallError::rejected(why)),
            }
            if CallOptions::clip(options, cx.now(), Duration::MAX).is_none() {
                return Err(CallCause::TimedOut { tries: 0 }.into());
            }
        }
    }

    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (octets, request) = this.header::<REQUEST>(request)?;
        let header = Request::parse(&octets);
        if (header.version, header.zero) != (VERSION, 0) {
            return Err(this.refuse(request, &reason::MALFORMED));
        }
        let name = (header.eid, header.operation);
        // Only an object that is here gets a session.
        match place(cx, &all.lower, header.eid, Act::Look) {
            Ok(looked) if matches!(looked.known, Known::Here(_)) => {
                match Self::session(all, cx, this, lower, name) {
                    Ok(session) => session.call_pop(cx, request),
                    Err(why) => refusal(cx, this.refuse(request, why)),
                }
            }
            Ok(looked) => elsewhere(cx, request, looked.known),
            Err(why) => Err(this.refuse(request, why)),
        }
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        // It was seen there when the session was looked for.
        let _ = request.strip_in_place(REQUEST) || request.strip(REQUEST);
        match Self::execute(own, cx, this, request) {
            Ok(Ok(reply)) => reply_with(cx, this, reply, &Front::of(EXECUTED).emit()),
            Ok(Err(refused)) => refusal(cx, refused),
            Err((known, request)) => elsewhere(cx, request, known),
        }
    }

    fn describe_calls(own: &Own) -> Option<String> {
        let ((eid, operation), hint) = (own.name, own.lower.hint);
        Some(alloc::format!("calls operation {operation} of object {eid}, named at {hint}"))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        let (eid, operation) = own.name;
        Some(alloc::format!("serves operation {operation} of object {eid}"))
    }

    fn enable(
        all: &CallLayered<Self>,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let local = ends.local_mut()?;
        pop_local(local, PROCEDURE)?;
        let key = match local.is_empty() {
            true => ANY,
            false => pop_object(local)?.value().unwrap_or(ANY),
        };
        all.layer.enables.enable(key, upper.receiver.clone(), |_| false)?;
        if key != ANY {
            let made = place(cx, &all.lower, key, Act::Create);
            // One that is elsewhere may come.
            let why = match made.map(|made| made.is_done || made.known != Known::Nothing) {
                Ok(true) => return Ok(Enable(key)),
                Ok(false) => OpenError::Full,
                Err(_) => OpenError::NoRoute,
            };
            all.layer.enables.unbind(&key);
            return Err(why);
        }
        Ok(Enable(key))
    }

    fn disable(all: &CallLayered<Self>, cx: &Kernel, enable: Enable) {
        if all.layer.enables.unbind(&enable.0).is_some() && enable.0 != ANY {
            let _ = place(cx, &all.lower, enable.0, Act::Drop);
        }
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        Some(("enables", self.enables.stats()))
    }

    fn stop(&self) {
        self.enables.clear();
    }
}
