//! Services.

use crate::error::{Error, ErrorKind};
use crate::reactor::{CommandQueue, HEADROOM, Naming, Reactor};
use crate::stack::Stack;
use std::borrow::Cow;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xk_core::object::{Enable, OpenError, ProtocolId, Refused};
use xk_core::{
    Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
};
use xk_kit::rpc::call::{
    BAD_ARGUMENTS, BAD_CREDENTIALS, BUSY, CallOptions, Caller, MyProcedure, NO_PROCEDURE,
    SYSTEM_ERROR,
};
use xk_run::lock;
use xk_xdr::{DecodeError, Decoder, EncodeError, Xdr};

/// Executes calls: a generated server, a closure, or one of your own.
///
/// Calls are executed on the stack's thread, on the shepherd that brought the request. A service
/// may call others through a [`Client`](crate::Client) of any stack of this thread; then only its
/// shepherd waits. Other long work stops the stack: hand it over by [`Call::elsewhere`]. A
/// shepherd's stack has 64 KiB.
pub trait Service: Send + 'static {
    /// Program and version, for stacks that name them.
    fn program(&self) -> Option<(u32, u32)> {
        None
    }

    /// Executes one call.
    ///
    /// # Errors
    /// Why it was not executed, or not to its end; the caller is told.
    fn call(&self, call: &Call<'_>) -> Result<Reply, Refusal>;
}

impl<F: Fn(&Call<'_>) -> Result<Reply, Refusal> + Send + 'static> Service for F {
    fn call(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        self(call)
    }
}

/// A closure that serves one version of a program.
pub struct Program<F> {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// Function that executes calls.
    pub execute: F,
}

impl<F: Fn(&Call<'_>) -> Result<Reply, Refusal> + Send + 'static> Service for Program<F> {
    fn program(&self) -> Option<(u32, u32)> {
        Some((self.program, self.version))
    }

    fn call(&self, call: &Call<'_>) -> Result<Reply, Refusal> {
        (self.execute)(call)
    }
}

/// Reason why a call is not executed, or not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum Refusal {
    /// There is no such procedure.
    NoProcedure,
    /// The arguments are not those of the procedure.
    BadArguments,
    /// The call failed for a reason of the server.
    SystemError,
    /// The server is executing as many calls as it may.
    Busy,
    /// The caller has no permission.
    BadCredentials,
}

impl Refusal {
    fn reason(self) -> &'static Reason {
        match self {
            Self::NoProcedure => &NO_PROCEDURE,
            Self::BadArguments => &BAD_ARGUMENTS,
            Self::SystemError => &SYSTEM_ERROR,
            Self::Busy => &BUSY,
            Self::BadCredentials => &BAD_CREDENTIALS,
        }
    }
}

impl From<DecodeError> for Refusal {
    fn from(_: DecodeError) -> Self {
        Self::BadArguments
    }
}

impl From<EncodeError> for Refusal {
    fn from(_: EncodeError) -> Self {
        Self::SystemError
    }
}

/// Failure of another server, on which this one fails in its turn.
impl From<Error> for Refusal {
    fn from(_: Error) -> Self {
        Self::SystemError
    }
}

/// The octets of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// A reply without octets.
    pub fn empty() -> Self {
        Self::default()
    }

    /// A reply with this value.
    ///
    /// # Errors
    /// It has no representation.
    pub fn of<T: Xdr>(value: &T) -> Result<Self, Refusal> {
        Ok(Self(xk_xdr::to_vec(value)?))
    }
}

impl From<Vec<u8>> for Reply {
    fn from(octets: Vec<u8>) -> Self {
        Self(octets)
    }
}

/// A call that is being executed.
pub struct Call<'a> {
    cx: &'a Kernel,
    reactor: &'a Rc<Reactor>,
    commands: &'a Arc<CommandQueue>,
    procedure: u32,
    caller: Option<Caller>,
    request: &'a Message,
}

impl Call<'_> {
    /// The procedure's number.
    pub fn procedure(&self) -> u32 {
        self.procedure
    }

    /// The caller, if a credential names it.
    pub fn caller(&self) -> Option<Caller> {
        self.caller
    }

    /// Time that the caller still waits, if a layer such as `deadline` tells it. Pass it on to
    /// calls that this one makes.
    pub fn left(&self) -> Option<Duration> {
        let deadline = self.request.attribute::<CallOptions>()?.deadline;
        (!deadline.is_never()).then(|| deadline - self.cx.now())
    }

    /// The arguments' octets.
    pub fn octets(&self) -> Cow<'_, [u8]> {
        match self.request.single_slice() {
            Some(octets) => Cow::Borrowed(octets),
            None => Cow::Owned(self.request.octets().collect()),
        }
    }

    /// Decodes the arguments. Octets that follow them are ignored.
    ///
    /// # Errors
    /// They are not of this type.
    pub fn arguments<T: Xdr>(&self) -> Result<T, Refusal> {
        Ok(T::decode(&mut Decoder::of_message(self.request))?)
    }

    /// Runs long work on a thread of its own. Only this call waits for it; the stack goes on
    /// meanwhile.
    ///
    /// # Errors
    /// The work panicked, or the stack ends.
    pub fn elsewhere<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (promise, later) = self.later();
        std::thread::Builder::new()
            .name("xk-rpc-work".into())
            .spawn(move || promise.keep(work()))
            .map_err(|_| Refusal::Busy)?;
        later.wait()
    }

    /// Makes a value that another thread will supply: give that thread the [`Promise`], and call
    /// [`Later::wait`]. For work on threads of the program's own.
    pub fn later<T: Send + 'static>(&self) -> (Promise<T>, Later<'_, T>) {
        let value = Arc::new(Mutex::new(None));
        let waiter = self.reactor.new_waiter();
        let promise =
            Promise { value: Arc::clone(&value), waiter, commands: Arc::clone(self.commands) };
        let later = Later { value, waiter, cx: self.cx, reactor: self.reactor };
        (promise, later)
    }
}

/// The supplier's end of a value. If it is dropped without a value, the waiting caller gets
/// [`Refusal::SystemError`].
pub struct Promise<T> {
    value: Arc<Mutex<Option<T>>>,
    waiter: u64,
    commands: Arc<CommandQueue>,
}

impl<T> Promise<T> {
    /// Supplies the value.
    pub fn keep(self, value: T) {
        *lock(&self.value) = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let waiter = self.waiter;
        let wake = Box::new(move |cx: &Kernel, reactor: &Rc<Reactor>| reactor.wake(cx, waiter));
        // In a stack that has ended no shepherd waits.
        let _ = self.commands.post(wake);
    }
}

/// The receiver's end of a value that another thread supplies.
#[must_use]
pub struct Later<'a, T> {
    value: Arc<Mutex<Option<T>>>,
    waiter: u64,
    cx: &'a Kernel,
    reactor: &'a Rc<Reactor>,
}

impl<T> Later<'_, T> {
    /// Waits for the value; the stack goes on meanwhile.
    ///
    /// # Errors
    /// There will be none, or the stack ends.
    pub fn wait(self) -> Result<T, Refusal> {
        self.reactor.wait(self.cx, self.waiter)?;
        lock(&self.value).take().ok_or(Refusal::SystemError)
    }
}

impl<T> Drop for Later<'_, T> {
    fn drop(&mut self) {
        self.reactor.forget_waiter(self.waiter);
    }
}

/// Error of a second service where procedures have numbers and nothing else.
const ONE_SERVICE: &str = "a service is offered here already, and procedures are known by their numbers alone: serve several \
                           programs or versions on a stack with `sunprog`";

/// A service as long as it is offered.
pub(crate) type ServiceCell = Rc<RefCell<Option<Rc<dyn Service>>>>;

/// The protocol object of one service, and of the next one when that has ended. The layer below
/// leads no call to it in between: what it remembers of callers goes with the offer, or knows
/// procedures by their numbers alone.
pub(crate) struct Offer {
    service: ServiceCell,
    reactor: Rc<Reactor>,
    commands: Arc<CommandQueue>,
}

/// A service that the layer below has taken.
#[derive(Clone, Copy)]
pub(crate) struct Offered {
    this: ProtocolId,
    enable: Enable,
}

impl Offer {
    /// Makes the object and offers it below.
    pub(crate) fn stand(
        cx: &Kernel,
        reactor: &Rc<Reactor>,
        commands: &Arc<CommandQueue>,
        local: Participant,
        service: Box<dyn Service>,
    ) -> Result<Offered, Error> {
        let (below, naming) = reactor.below()?;
        let local = reactor.participant(&local, service.program(), None)?;
        let this = reactor.keep_service(Rc::from(service), |place| {
            let offer = Self {
                service: Rc::clone(place),
                reactor: Rc::clone(reactor),
                commands: Arc::clone(commands),
            };
            cx.add_protocol("service", "service", offer)
        });
        let enabled = below.open_enable(cx, Upper::new(&this), Participants::local(local));
        let enable = enabled.map_err(|error| {
            reactor.drop_service(this.id());
            Error {
                kind: match (error, naming) {
                    (OpenError::InUse, Naming::Procedures) => ErrorKind::Graph(ONE_SERVICE.into()),
                    (error, _) => ErrorKind::Open(error),
                },
                layer: Some(below.name().to_owned()),
            }
        })?;
        Ok(Offered { this: this.id(), enable })
    }
}

impl Protocol for Offer {
    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let asked = lower.ask(cx, MyProcedure::default());
        lower.head().set_tag(asked.map_or(0, |answer| answer.number));
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let service = self.service.borrow().clone();
        let Some(service) = service else {
            return Err(this.refuse(request, &NO_PROCEDURE));
        };
        let call = Call {
            cx,
            reactor: &self.reactor,
            commands: &self.commands,
            procedure: lower.head().tag(),
            caller: request.attribute(),
            request: &request,
        };
        // A panic of the service is its caller's error; nothing of the stack is in between.
        let result = catch_unwind(AssertUnwindSafe(|| service.call(&call)));
        let reply = result.unwrap_or(Err(Refusal::SystemError));
        match reply {
            Ok(Reply(octets)) => match cx.pool().copy_from(HEADROOM, &octets) {
                Ok(reply) => Ok(reply),
                Err(_) => Err(this.refuse(request, &SYSTEM_ERROR)),
            },
            Err(refusal) => Err(this.refuse(request, refusal.reason())),
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.service.take());
    }
}

/// An offered service, which ends when this is dropped. Calls that are being executed are
/// completed.
#[must_use]
pub struct Server {
    stack: Stack,
    offered: Offered,
}

impl Server {
    pub(crate) fn new(stack: Stack, offered: Offered) -> Self {
        Self { stack, offered }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Offered { this, enable } = self.offered;
        self.stack.post(move |cx, reactor| {
            if let Ok((below, _)) = reactor.below() {
                below.open_disable(cx, enable);
            }
            reactor.drop_service(this);
        });
    }
}
