//! # Synopsis
//! `objmove objinv` — moves objects to other hosts, in two phases.
//!
//! # Participants
//! An object and its new host, `eid7@10.0.0.2`. A server enables `*` for all objects that arrive.
//!
//! # Behaviour
//! An empty call moves the object to that host; its reply is empty. The server gives and takes
//! images, in calls of sessions that answer `my-object`: it replies to an empty request with the
//! image of the object; any other is the image of one that has arrived. Once the call has returned,
//! the object is the other host's, and its state here obsolete. After an error it stays here.
//!
//! 1. No invocation begins here any more. Those under way have `drain_max` to end. Then the image
//!    is taken.
//! 2. The object is offered with its image, which the other host keeps, but does not use yet.
//! 3. This host gives the object up: from this step on its place is the other host. The call
//!    returns, and the other host is told until it confirms, for three and a half minutes at most.
//!
//! If the offer is refused, or has no answer in three seconds, the object stays, with a new count,
//! so that a late answer has no effect. A host that keeps an image and is told nothing asks the
//! offering host which of them has the object. If that host has been restarted, or has not answered
//! for a minute, this is unknown: then the object lives on at the asking host, if no search finds
//! it elsewhere.
//!
//! So an object is never at two hosts with one count. It is at none only between the third step,
//! which is recorded, and the moment when the other host is told; and every move ends. An object is
//! lost with its host, as is all that a host has in memory. A host that is cut off for a minute
//! just when it moves an object may still have it when the other host takes it; then the place with
//! the greater count is the one that is found.
//!
//! The requests are invocations of the other host's own object, `eid0`. At most `moves_max` objects
//! leave a host at a time, and as many arrive, from one host a quarter of them.
//!
//! # Security
//! A host may offer an object that it has made up, under any number for which this host knows no
//! equal or greater count. Only the host that offered an object can hand it over. If the layer
//! below does not prove addresses, as `reqrep` on `udp`, a host that seems to offer an object is
//! asked whether it does, before the object is kept.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim       link=lan
//!     eth       sim
//!     arp       eth
//!     ip        arp { address "10.0.0.1/24"; }
//!     fragment  ip
//!     channel   fragment
//!     objloc    channel nodes="10.0.0.2, 10.0.0.3"
//!     objinv    objloc
//!     objmove   objinv
//!     directory objinv objmove eid=7
//! }
//! ```
//!
//! # Standard
//! None; the packet format is xk's own. The system of Jul and others sends an object once and
//! forgets it.

use crate::moves::{Due, Moves, Subject, Whose};
use crate::objinv::{NODE, place};
use crate::objloc::FindObject;
use crate::places::{Act, Known, Place};
use crate::wire::{FORGOTTEN, Front, LATER, Moving, NO, OFFER, TAKE, VERSION, WHOSE, YES};
use alloc::string::String;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, duration, int, question};
use xk_core::object::{CallError, Enable, OpenError, PushError, Refused};
use xk_core::participant::AddressError;
use xk_core::reason::Class;
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{
    Ask, Entry, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason,
    SessionRef, Upper, reason,
};
use xk_kit::answers::is_proved;
use xk_kit::control::PeerHost;
use xk_kit::net::waiting::Alarm;
use xk_kit::rpc::call::{CallOptions, MyObject, OBJECT, PROCEDURE};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, pop_header, prepend, reply_of,
};

/// The object is not here, or moves already.
pub static NOT_MOVABLE: Reason = Reason::new("object not movable", Class::Prohibited);
/// Invocations of the object did not end in time.
pub static OBJECT_BUSY: Reason = Reason::new("object busy", Class::Exhausted);
/// The other host did not take the object.
pub static NOT_TAKEN: Reason = Reason::new("object not taken", Class::Exhausted);
/// An object that was given up, and that the other host has lost since.
pub static LOST: Reason = Reason::new("object lost on the move", Class::Exhausted);

/// Time between two looks at invocations that are being executed.
const LOOK: Duration = Duration::from_millis(2);
/// Longest wait for the answer to one request.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Room for the headers below in front of a request, in octets.
const HEADROOM: usize = 128;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("objmove", include_str!("objmove.rs"), build)
    .summary("moves objects to other hosts, in two phases")
    .above(Family::Other("moves"))
    .on(&[Realm::Rpc], &[crate::objinv::OBJECTS])
    .needs(Guarantees::SESSIONS)
    .header_octets(Moving::OCTETS)
    .parameters(&[
        int("moves_max", 1..=1_048_576, 64,
            "how many objects leave at a time, and how many may come, from one host a quarter"),
        int("sessions_max", 1..=1_048_576, 1024,
            "how many sessions it holds, for moves and for images each; idle ones are evicted for \
             new ones"),
        duration("drain_max", Duration::from_secs(1),
            "how long a move waits for invocations that are being executed"),
    ])
    .questions(&[question("my-object", "which object a session stands for")])
    .reasons(&[&NOT_MOVABLE, &OBJECT_BUSY, &NOT_TAKEN, &LOST]);

/// One instance.
pub struct ObjMove {
    /// An object that may come has its image, and the session of the protocol that takes it.
    moves: RefCell<Moves<(SessionRef, Message)>>,
    alarm: Alarm,
    drain_max: Duration,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let moves = Moves::new(build.cx.random().next_u32(), build.int("moves_max")?);
    let drain_max = build.duration("drain_max")?;
    let layer = ObjMove { moves: RefCell::new(moves), alarm: Alarm::default(), drain_max };
    let (secret, lower, most) = (build.cx.secret(), build.lower(0)?, build.int("sessions_max")?);
    build.add(CallLayered::new(secret, lower, most, (), layer))
}

type All = CallLayered<ObjMove>;

fn now(cx: &Kernel) -> Duration {
    Duration::from_nanos(cx.now().as_ns())
}

/// The verdict in a reply.
fn verdict(reply: &mut Message) -> Result<u8, &'static Reason> {
    let octets = pop_header::<{ Front::OCTETS }>(reply)?;
    Front::kind_in(&octets).filter(|verdict| *verdict <= FORGOTTEN).ok_or(&reason::MALFORMED)
}

/// Sends a request no longer than an answer may take, or its caller waits.
fn send(
    cx: &Kernel,
    lower: &SessionRef,
    mut request: Message,
    options: Option<CallOptions>,
) -> Result<Message, CallError> {
    let wait = CallOptions::clip(options, cx.now(), ANSWER_MAX).unwrap_or_default();
    let _ = request.set_attribute(CallOptions { deadline: cx.now().after(wait), tag: 0 });
    lower.call(cx, request)
}

/// Puts the own object of a host on top of it.
fn node(mut peer: Participant) -> Participant {
    peer.push(Part::Number(OBJECT, NODE));
    peer.push(Part::Number(PROCEDURE, 0));
    peer
}

impl ObjMove {
    /// Has the timer go off when something is due.
    fn wake(&self, cx: &Kernel, this: &ProtocolRef) {
        if let Some(next) = self.moves.borrow().next() {
            self.alarm.set(cx, this, next, 0);
        }
    }

    /// Sends another host a request without an image; the verdict, if it gives one.
    fn ask(all: &All, cx: &Kernel, this: &ProtocolRef, host: HostAddr, what: Moving) -> Option<u8> {
        let request = cx.pool().copy_from(HEADROOM, &what.emit()).ok()?;
        let ends = Participants::pair(Part::Any, node(Participant::of(Part::Host(host))));
        let lower = all.lower.open(cx, Upper::new(this), ends).ok()?;
        let reply = send(cx, &lower, request, None);
        lower.close(cx);
        verdict(&mut reply.ok()?).ok()
    }

    /// Does what is due for a move.
    fn look_after(all: &All, cx: &Kernel, this: &ProtocolRef, due: Due) {
        let (subject, from, said) = match due {
            Due::Tell(subject, to) => {
                let boot = all.layer.moves.borrow().boot();
                let said = Self::ask(all, cx, this, to, Moving::of(TAKE, subject, boot));
                if said == Some(NO) {
                    this.head().drops().count(&LOST);
                }
                if matches!(said, Some(YES | NO)) {
                    all.layer.moves.borrow_mut().confirmed(subject);
                }
                return;
            }
            Due::Ask(subject, from, boot) => {
                let whose = Moving::of(WHOSE, subject, boot);
                (subject, (from, boot), Self::ask(all, cx, this, from, whose))
            }
            Due::Decide(subject, from, boot) => (subject, (from, boot), Some(FORGOTTEN)),
        };
        let act = match said {
            Some(YES) => Act::Arrive,
            Some(NO) => Act::Drop,
            Some(FORGOTTEN) => {
                let (eid, count) = subject;
                let wanted = FindObject { eid, is_lost: true, ..FindObject::default() };
                let Some(found) = all.lower.ask(cx, wanted) else { return };
                match found.known {
                    Known::Here(_) => Act::Drop,
                    Known::Coming(place) if place.count > count => Act::Drop,
                    _ => Act::Adopt,
                }
            }
            _ => return,
        };
        let _ = Self::end(all, cx, this, subject, from, act);
    }

    /// Takes an object that is kept here, or drops it; whether it is here then.
    fn end(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        subject: Subject,
        from: (HostAddr, u32),
        mut act: Act,
    ) -> bool {
        let kept = all.layer.moves.borrow_mut().release(subject, from);
        let Some((server, image)) = kept else { return false };
        if act != Act::Drop && server.call_pop(cx, image).is_err() {
            this.head().drops().count(&LOST);
            act = Act::Drop;
        }
        server.ease(cx);
        place(cx, &all.lower, subject.0, act).is_ok_and(|p| p.is_done) && act != Act::Drop
    }

    /// Keeps an object that another host offers; false if it cannot. A host that may be forged is
    /// asked whether it does.
    fn keep(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        (lower, from): (&SessionRef, HostAddr),
        header: Moving,
        image: Message,
    ) -> bool {
        let subject @ (eid, count) = (header.eid, header.count);
        let Ok(server) = all.server_of(cx, this, lower, eid, || ()) else { return false };
        let (keep, run) = (|| (server.clone(), image), (from, header.boot));
        let time = is_proved(cx, lower).then(|| now(cx));
        let kept = all.layer.moves.borrow_mut().keep(subject, run, time, keep);
        if kept != Some(true) {
            return kept.is_some();
        }
        server.hold();
        let is_offered = || {
            let said = Self::ask(all, cx, this, from, Moving::of(WHOSE, subject, header.boot));
            matches!(said, Some(LATER | YES))
        };
        let is_offered = time.is_some() || is_offered();
        all.layer.moves.borrow_mut().offered(eid, now(cx));
        let expect = Act::Expect(Place { host: from, count });
        if !is_offered || !place(cx, &all.lower, eid, expect).is_ok_and(|placed| placed.is_done) {
            let _ = all.layer.moves.borrow_mut().release(subject, run);
            server.ease(cx);
            return false;
        }
        all.layer.wake(cx, this);
        true
    }

    /// Waits until no invocation is being executed.
    fn drain(all: &All, cx: &Kernel, eid: u64) -> Result<(), &'static Reason> {
        let until = cx.now().after(all.layer.drain_max);
        while place(cx, &all.lower, eid, Act::Look)?.busy > 0 {
            // It is never signalled.
            let waited = || cx.wait(&Semaphore::new(0), Some(LOOK)) == Err(WaitError::TimedOut);
            if cx.now() >= until || !waited() {
                return Err(&OBJECT_BUSY);
            }
        }
        Ok(())
    }

    /// Offers an object that does nothing any more, and gives it up if the other host keeps it.
    fn offer(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        to: Place,
        request: Message,
    ) -> Result<Message, CallError> {
        let (all, subject) = (&own.all, (own.name, to.count));
        let protocol = this.protocol(cx).ok_or(PushError::Closed)?;
        let options = request.attribute::<CallOptions>();
        Self::drain(all, cx, own.name).map_err(CallError::rejected)?;
        let server = all.server_of(cx, &protocol, this, own.name, || ());
        let image = server.map(|server| server.call_pop(cx, request));
        let image = image.map_err(CallError::rejected)?;
        let mut image = image.map_err(|refused| CallError::rejected(refused.reason))?;
        let boot = all.layer.moves.borrow().boot();
        prepend(&mut image, &Moving::of(OFFER, subject, boot).emit())?;
        let mut reply = send(cx, &own.lower, image, options)?;
        match verdict(&mut reply) {
            Ok(YES) if all.layer.moves.borrow_mut().commit(subject, now(cx)) => {}
            Ok(_) => return Err(CallError::rejected(&NOT_TAKEN)),
            Err(why) => return Err(bad_reply(cx, this, reply, why)),
        }
        let _ = place(cx, &all.lower, own.name, Act::Depart(to));
        // The other host is told by the timer: the call returns before the object can come back.
        all.layer.wake(cx, &protocol);
        reply.truncate(0);
        Ok(reply)
    }
}

impl CallLayer for ObjMove {
    /// The object.
    type Name = u64;
    type Lower = SessionRef;
    type Calls = ();
    type Serves = ();

    fn request_octets(&self, _: Option<&()>) -> usize {
        Moving::OCTETS
    }

    fn reply_octets(&self, (): &()) -> usize {
        Front::OCTETS
    }

    fn start(all: &All, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let node = Participant::of(Part::Number(OBJECT, NODE)).with(Part::Any);
        all.lower.open_enable(cx, Upper::new(this), Participants::local(node)).map(drop)
    }

    fn pop_name(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        let peer = ends.peer_mut()?;
        let eid = peer.pop_number(OBJECT)?.definite()?;
        if eid == NODE || eid == u64::MAX {
            return Err(AddressError::OutOfRange.into());
        }
        *ends = Participants::pair(Part::Any, node(core::mem::take(peer)));
        Ok(eid)
    }

    /// Every request is looked at by [`first`](Self::first).
    fn name_in(_: &Message) -> Option<u64> {
        None
    }

    fn answer_name(eid: u64, ask: &mut Ask<'_>) -> bool {
        ask.answer::<MyObject>(|question| question.eid = eid).is_answered()
    }

    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    fn enable(
        all: &All,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        all.serve(upper, || Ok(Enable(0)))
    }

    fn disable(all: &All, _: &Kernel, _: Enable) {
        all.serve_no_more();
    }

    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let (all, eid) = (&own.all, own.name);
        request.truncate(0);
        let host = own.lower.ask(cx, PeerHost::default()).unwrap_or_default().host;
        let frozen = place(cx, &all.lower, eid, Act::Freeze).map_err(CallError::rejected)?;
        if !frozen.is_done {
            return Err(CallError::rejected(&NOT_MOVABLE));
        }
        let count = frozen.known.place().map_or(0, |place| place.count + 1);
        let is_offered =
            !host.is_unspecified() && all.layer.moves.borrow_mut().offer((eid, count), host);
        let moved = match is_offered {
            true => Self::offer(own, cx, this, Place { host, count }, request),
            false => Err(CallError::rejected(&NOT_MOVABLE)),
        };
        if moved.is_err() {
            let _ = is_offered && all.layer.moves.borrow_mut().abort(eid);
            let _ = place(cx, &all.lower, eid, Act::Thaw);
        }
        moved
    }

    fn first(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (octets, mut request) = this.header::<{ Moving::OCTETS }>(request)?;
        let header = Moving::parse(&octets);
        let from = lower.ask(cx, PeerHost::default()).unwrap_or_default().host;
        if (header.version, header.zero) != (VERSION, 0) || from.is_unspecified() {
            return Err(this.refuse(request, &reason::MALFORMED));
        }
        let subject = (header.eid, header.count);
        let _ = request.strip(Moving::OCTETS);
        let said = match header.kind {
            OFFER => {
                let Ok(rest) = cx.pool().empty(HEADROOM) else {
                    return Err(this.refuse(request, &reason::NO_BUFFERS));
                };
                let image = core::mem::replace(&mut request, rest);
                match Self::keep(all, cx, this, (lower, from), header, image) {
                    true => YES,
                    false => NO,
                }
            }
            TAKE if Self::end(all, cx, this, subject, (from, header.boot), Act::Arrive) => YES,
            // It may have come before, and gone on.
            TAKE => match place(cx, &all.lower, header.eid, Act::Look).map(|looked| looked.known) {
                Ok(Known::Here(place) | Known::Away(place)) if place.count >= header.count => YES,
                Ok(Known::Coming(place)) if place.count > header.count => YES,
                // Its image is being taken.
                Ok(Known::Coming(place)) if place.count == header.count => LATER,
                Ok(_) => NO,
                Err(why) => return Err(this.refuse(request, why)),
            },
            WHOSE => match all.layer.moves.borrow().whose(subject, from, header.boot) {
                Whose::Yours => YES,
                Whose::NotYours => NO,
                Whose::Wait => LATER,
                Whose::Forgotten => FORGOTTEN,
            },
            _ => return Err(this.refuse(request, &reason::NOT_SUPPORTED)),
        };
        reply_of(cx, request, &Front::of(said).emit())
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        image: Message,
    ) -> Result<Message, Refused> {
        own.next(cx, this, image)
    }

    fn timeout(all: &All, cx: &Kernel, this: &ProtocolRef, _: u64) {
        all.layer.alarm.went_off();
        let due = all.layer.moves.borrow_mut().due(now(cx));
        // First: what follows may block.
        all.layer.wake(cx, this);
        due.into_iter().for_each(|due| Self::look_after(all, cx, this, due));
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        let (leave, come) = own.all.layer.moves.borrow().len();
        Some(alloc::format!("moves object {}; {leave} leave, {come} may come", own.name))
    }

    fn stop(&self) {
        self.moves.borrow_mut().clear();
    }
}
