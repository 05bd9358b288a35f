//! This crate's part within a stack: the protocol above the calls, its sessions, and the shepherds
//! that wait.

use crate::client::Target;
use crate::error::{Error, ErrorKind};
use crate::server::{Service, ServiceCell};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xk_core::object::{CallCause, CallError, ProtocolId, PushError};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::wire::Wire;
use xk_core::{
    Kernel, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Time, Upper,
};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{
    CallOptions, CancelCall, Gather, GathersReplies, PROCEDURE, PROGRAM, VERSION,
};
use xk_run::{CommandWire, Executor};

/// Room for the headers of the layers below, in octets.
pub(crate) const HEADROOM: usize = 128;
/// Sessions that are kept for the next call of one procedure.
const IDLE_MAX: usize = 64;
/// Time that a call waits before it tries a peer again that was not there; doubled each time, up to
/// the second.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Way in which the layer below names a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By its number alone.
    Procedures,
    /// By program, version and number.
    Programs,
}

/// Idle sessions of one target, by procedure.
type Idle = HashMap<(u64, u32), Vec<SessionRef>>;

/// A call that waits.
enum Running {
    /// Waits for its reply, on this session.
    Called(SessionRef),
    /// Waits for the peer to come.
    Pausing(Rc<Semaphore>),
}

/// A request: the target, and until when.
pub(crate) struct Request<'a> {
    pub(crate) target: &'a Target,
    pub(crate) procedure: u32,
    pub(crate) octets: &'a [u8],
    pub(crate) due: Option<Instant>,
    /// Names the call, to take it back by.
    pub(crate) tag: u64,
    /// Reply that is wanted, in a call to many hosts.
    pub(crate) gather: Option<Gather>,
    /// True once it has been taken back.
    pub(crate) cancelled: &'a AtomicBool,
}

/// A reply.
pub(crate) struct Answered {
    pub(crate) octets: Vec<u8>,
    /// Sender of the reply, in a call to many hosts.
    pub(crate) from: Option<Peer>,
}

/// Why a call to many hosts is not made.
const ONE_HOST: &str = "the replies of many hosts can be had only of a broadcast or a group, by way of `reqrep` on `udp` or `host-udp`";

impl Request<'_> {
    fn left(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
}

/// The part of this crate that lives in the stack.
#[derive(Default)]
pub(crate) struct Reactor {
    below: RefCell<Option<(ProtocolRef, Naming)>>,
    this: RefCell<Option<ProtocolRef>>,
    idle: RefCell<Idle>,
    /// Calls that wait, by their tags.
    running: RefCell<HashMap<u64, Running>>,
    /// Calls that were let in and are not over.
    calls: Cell<usize>,
    /// Shepherds that wait for something from another thread, by number.
    waiters: RefCell<HashMap<u64, Rc<Semaphore>>>,
    next_waiter: Cell<u64>,
    services: RefCell<HashMap<ProtocolId, (ProtocolRef, ServiceCell)>>,
    /// Protocol objects whose services have ended, for the next ones: a kernel keeps what it has
    /// once been given.
    spare: RefCell<Vec<(ProtocolRef, ServiceCell)>>,
}

/// Job of another thread in the stack.
pub(crate) type Job = Box<dyn FnOnce(&Kernel, &Rc<Reactor>) + Send>;
/// Queue of the jobs.
pub(crate) type CommandQueue = xk_run::CommandQueue<Job>;

impl Executor for Reactor {
    type Command = Job;

    /// Half of the shepherds are for those that serve.
    fn room(&self, cx: &Kernel) -> usize {
        let max = cx.shepherds().limits().shepherds_max as usize / 2;
        max.max(1).saturating_sub(self.calls.get())
    }

    fn execute(self: &Rc<Self>, cx: &Kernel, job: Job) {
        job(cx, self);
    }
}

/// The protocol object above the calls.
struct Calls(CommandWire<Reactor>);

impl Protocol for Calls {
    fn wire(&self) -> Option<&dyn Wire> {
        Some(&self.0)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let reactor = self.0.executor();
        drop(reactor.idle.take());
        drop(reactor.below.take());
        drop(reactor.this.take());
        drop(reactor.services.take());
        drop(reactor.spare.take());
    }
}

impl Reactor {
    /// Puts the protocol on top of the graph.
    pub(crate) fn stand(
        self: &Rc<Self>,
        cx: &Kernel,
        commands: &Arc<CommandQueue>,
        below: ProtocolRef,
        naming: Naming,
    ) {
        let calls = Calls(CommandWire::new(Arc::clone(commands), Rc::clone(self)));
        *self.below.borrow_mut() = Some((below, naming));
        *self.this.borrow_mut() = Some(cx.add_protocol("rpc", "rpc", calls));
    }

    pub(crate) fn below(&self) -> Result<(ProtocolRef, Naming), Error> {
        let below = self.below.borrow().clone();
        below.ok_or_else(|| ErrorKind::Ended.into())
    }

    /// Participant by which the layer below knows a peer's procedure, or the procedures offered to
    /// any.
    pub(crate) fn participant(
        &self,
        base: &Participant,
        program: Option<(u32, u32)>,
        procedure: Option<u32>,
    ) -> Result<Participant, Error> {
        let (_, naming) = self.below()?;
        let mut all = base.clone();
        if naming == Naming::Programs {
            let Some((program, version)) = program else {
                let what = "the stack serves programs: name program and version";
                return Err(ErrorKind::Graph(what.into()).into());
            };
            all.push(Part::Number(PROGRAM, program.into()));
            all.push(Part::Number(VERSION, version.into()));
        }
        all.push(match procedure {
            Some(number) => Part::Number(PROCEDURE, number.into()),
            None => Part::Any,
        });
        Ok(all)
    }

    /// Makes a call on this shepherd, which waits for the reply; and until the deadline for the
    /// peer, if no way leads there yet. A peer that says that nothing takes calls is there.
    pub(crate) fn call(&self, cx: &Kernel, request: &Request<'_>) -> Result<Answered, Error> {
        self.calls.set(self.calls.get() + 1);
        let result = self.call_until_there(cx, request);
        let was_full = self.room(cx) == 0;
        self.calls.set(self.calls.get() - 1);
        if was_full {
            request.target.look_again();
        }
        result
    }

    fn call_until_there(&self, cx: &Kernel, request: &Request<'_>) -> Result<Answered, Error> {
        let mut pause = PAUSE_MIN;
        let mut absent = None;
        loop {
            if request.is_cancelled() {
                return Err(CallCause::Cancelled.into());
            }
            if request.left().is_some_and(|left| left.is_zero()) {
                let late = || CallCause::TimedOut { tries: 0 }.into();
                return Err(absent.unwrap_or_else(late));
            }
            let result = self.call_once(cx, request);
            match result.as_ref().err().and_then(Error::cause) {
                // The layers of calls at most once say so of what was not executed: another try
                // executes nothing twice.
                Some(CallCause::Push(PushError::Unreachable)) => absent = result.err(),
                _ => return result,
            }
            self.pause(cx, request, pause)?;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Waits a little, or until the call is taken back.
    fn pause(&self, cx: &Kernel, request: &Request<'_>, time: Duration) -> Result<(), Error> {
        let time = request.left().map_or(time, |left| left.min(time));
        let over = Rc::new(Semaphore::new(0));
        let pausing = Running::Pausing(Rc::clone(&over));
        self.running.borrow_mut().insert(request.tag, pausing);
        let waited = cx.wait(&over, Some(time));
        self.running.borrow_mut().remove(&request.tag);
        match waited {
            Ok(()) => Err(CallCause::Cancelled.into()),
            Err(WaitError::TimedOut) => Ok(()),
            Err(error) => Err(ErrorKind::Call(CallError::from(error).cause).into()),
        }
    }

    fn call_once(&self, cx: &Kernel, request: &Request<'_>) -> Result<Answered, Error> {
        let (target, tag) = (request.target, request.tag);
        let named = |error: CallError| Error {
            kind: ErrorKind::Call(error.cause),
            layer: error.layer.and_then(|layer| cx.name_of(layer)),
        };
        let message = cx.pool().copy_from(HEADROOM, request.octets);
        let mut message = message.map_err(|_| named(PushError::NoBuffers.into()))?;
        let options = CallOptions {
            deadline: request.left().map_or(Time::MAX, |left| cx.now().after(left)),
            tag,
        };
        let noted = message.set_attribute(options);
        let gather = request.gather.map_or(Ok(()), |gather| message.set_attribute(gather));
        if noted.and(gather).is_err() {
            return Err(named(PushError::NoBuffers.into()));
        }
        // From here on it is put back, whatever happens.
        let key = (target.id, request.procedure);
        let session = self.session(cx, target, request.procedure)?;
        if request.gather == Some(Gather::First) && session.ask(cx, GathersReplies).is_none() {
            self.put_back(cx, key, session);
            return Err(ErrorKind::Graph(ONE_HOST.into()).into());
        }
        let called = Running::Called(session.clone());
        self.running.borrow_mut().insert(tag, called);
        let result = session.call(cx, message);
        self.running.borrow_mut().remove(&tag);
        self.put_back(cx, key, session);
        let reply = result.map_err(named)?;
        let mut octets = vec![0; reply.len()];
        reply.copy_to(0, &mut octets);
        let from = reply.attribute();
        Ok(Answered { octets, from })
    }

    /// A session that no other call uses: some layers carry one call at a time on each.
    fn session(&self, cx: &Kernel, target: &Target, procedure: u32) -> Result<SessionRef, Error> {
        let key = (target.id, procedure);
        loop {
            let kept = self.idle.borrow_mut().get_mut(&key).and_then(Vec::pop);
            match kept {
                Some(session) if session.head().is_closed() => drop(session),
                Some(session) => return Ok(session),
                None => break,
            }
        }
        let (below, _) = self.below()?;
        let this = self.this.borrow().clone();
        let this = this.ok_or(Error::from(ErrorKind::Ended))?;
        let peer = self.participant(&target.peer, target.program, Some(procedure))?;
        let both = Participants::pair(Part::Any, peer);
        let opened = below.open(cx, Upper::new(&this), both);
        opened.map_err(|error| Error {
            kind: ErrorKind::Open(error),
            layer: Some(below.name().to_owned()),
        })
    }

    fn put_back(&self, cx: &Kernel, key: (u64, u32), session: SessionRef) {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.entry(key).or_default();
        if kept.len() < IDLE_MAX && !session.head().is_closed() {
            kept.push(session);
            return;
        }
        drop(idle);
        session.close(cx);
    }

    /// No client calls this target any more.
    pub(crate) fn forget(&self, cx: &Kernel, target: u64) {
        let mut gone = Vec::new();
        self.idle.borrow_mut().retain(|(id, _), sessions| {
            if *id == target {
                gone.append(sessions);
            }
            *id != target
        });
        for session in gone {
            session.close(cx);
        }
    }

    /// Takes a call back, if it waits.
    pub(crate) fn cancel(&self, cx: &Kernel, tag: u64) {
        let session = match self.running.borrow().get(&tag) {
            Some(Running::Called(session)) => session.clone(),
            Some(Running::Pausing(over)) => return cx.signal(over),
            None => return,
        };
        // It may have its reply by now; a layer that knows of no cancelling goes on waiting.
        let _ = session.ask(cx, CancelCall { tag });
    }

    /// Takes a call to many hosts back, between two of its replies.
    pub(crate) fn end_broadcast(&self, cx: &Kernel, key: (u64, u32), tag: u64) {
        let idle = self.idle.borrow().get(&key).cloned().unwrap_or_default();
        for session in idle {
            let _ = session.ask(cx, CancelCall { tag });
        }
    }

    /// A place for this shepherd to wait until another thread has it woken.
    pub(crate) fn new_waiter(&self) -> u64 {
        let waiter = self.next_waiter.get() + 1;
        self.next_waiter.set(waiter);
        let semaphore = Rc::new(Semaphore::new(0));
        self.waiters.borrow_mut().insert(waiter, semaphore);
        waiter
    }

    /// Waits there.
    pub(crate) fn wait(&self, cx: &Kernel, waiter: u64) -> Result<(), Error> {
        let semaphore = self.waiters.borrow().get(&waiter).cloned();
        let Some(semaphore) = semaphore else {
            return Err(CallCause::Closed.into());
        };
        let result = cx.wait(&semaphore, None);
        self.waiters.borrow_mut().remove(&waiter);
        result.map_err(|error| ErrorKind::Call(CallError::from(error).cause).into())
    }

    /// No shepherd waits there.
    pub(crate) fn forget_waiter(&self, waiter: u64) {
        self.waiters.borrow_mut().remove(&waiter);
    }

    /// Gives a service a protocol object: one that has served, or a new one that `make` makes.
    pub(crate) fn keep_service(
        &self,
        service: Rc<dyn Service>,
        make: impl FnOnce(&ServiceCell) -> ProtocolRef,
    ) -> ProtocolRef {
        let spare = self.spare.borrow_mut().pop();
        let (object, place) = spare.unwrap_or_else(|| {
            let place = ServiceCell::default();
            (make(&place), place)
        });
        drop(place.replace(Some(service)));
        let known = (object.clone(), place);
        self.services.borrow_mut().insert(object.id(), known);
        object
    }

    /// Releases a service that is not offered any more. What is being executed holds it to its
    /// end.
    pub(crate) fn drop_service(&self, id: ProtocolId) {
        let Some((object, place)) = self.services.borrow_mut().remove(&id) else {
            return;
        };
        let service = place.take();
        self.spare.borrow_mut().push((object, place));
        // Out of the borrow: it may hold handles of this stack.
        drop(service);
    }

    /// Ends the wait.
    pub(crate) fn wake(&self, cx: &Kernel, waiter: u64) {
        let semaphore = self.waiters.borrow().get(&waiter).cloned();
        if let Some(semaphore) = semaphore {
            cx.signal(&semaphore);
        }
    }
}
