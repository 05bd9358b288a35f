//! The client: asks the port mapper of a host (RFC 1833, sections 2.2.1 and 3.2).

use crate::serve::{HEADROOM, here};
use crate::universal::{Netid, Universal};
use crate::wire::{Binding, Mapping, Name, PORT, PROGRAM, VERSION_PMAP, VERSION_RPCB4, procedure};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::object::{CallCause, CallError, OpenError, PushError};
use xk_core::participant::PORT as PORT_LABEL;
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::rpc::call::{
    CallOptions, PROCEDURE as PROCEDURE_LABEL, PROGRAM as PROGRAM_LABEL, VERSION,
};
use xk_xdr::Xdr;

/// Client of a port mapper.
pub(crate) struct Client {
    /// The layer that carries the calls.
    pub(crate) lower: ProtocolRef,
    /// The version spoken.
    pub(crate) version: u32,
    /// The transport of the programs that are asked for.
    pub(crate) netid: Netid,
}

/// The sessions called that wait for a port mapper's answer, for a call that is taken back.
pub(crate) type Asking = RefCell<Vec<SessionRef>>;

/// Names a procedure of a program at `rest`, a port and what lies below it.
pub(crate) fn procedure_at(
    rest: Participant,
    program: u32,
    version: u32,
    procedure: u32,
) -> Participant {
    rest.with(Part::Number(PROGRAM_LABEL, program.into()))
        .with(Part::Number(VERSION, version.into()))
        .with(Part::Number(PROCEDURE_LABEL, procedure.into()))
}

/// Error of an `open` that failed, as the caller sees it.
fn unopened(error: OpenError) -> CallError {
    match error {
        OpenError::NoRoute => PushError::NoRoute,
        OpenError::Full => PushError::QueueFull,
        OpenError::NoBuffers => PushError::NoBuffers,
        _ => PushError::NotSupported,
    }
    .into()
}

impl Client {
    /// Opens a session to a procedure of the port mapper at `host`, which may say at which port it
    /// is.
    pub(crate) fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (local, host): (Participant, &Participant),
        procedure: u32,
    ) -> Result<SessionRef, OpenError> {
        let mut rest = host.clone();
        if !matches!(rest.top(), Some(Part::Number(label, _)) if *label == PORT_LABEL) {
            rest.push(Part::port(PORT));
        }
        let peer = procedure_at(rest, PROGRAM, self.version, procedure);
        let participants = Participants::pair(local, peer);
        self.lower.open(cx, Upper::new(this), participants)
    }

    /// Calls a procedure of the port mapper at `host`, which may say at which port it is. `see`
    /// gets our own end of the session.
    fn call<A: Xdr, R: Xdr>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (host, procedure): (&Participant, u32),
        arguments: impl FnOnce(&SessionRef) -> A,
        (asking, options): (&Asking, Option<CallOptions>),
    ) -> Result<R, CallError> {
        let ends = (Participant::of(Part::Any), host);
        let session = self.open(cx, this, ends, procedure).map_err(unopened)?;
        asking.borrow_mut().push(session.clone());
        let result = self.call_on(cx, &session, &arguments(&session), options);
        let mut waiting = asking.borrow_mut();
        if let Some(at) = waiting.iter().position(|other| *other == session) {
            waiting.swap_remove(at);
        }
        drop(waiting);
        session.close(cx);
        result
    }

    fn call_on<A: Xdr, R: Xdr>(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        arguments: &A,
        options: Option<CallOptions>,
    ) -> Result<R, CallError> {
        let no_buffers = || CallError::from(PushError::NoBuffers);
        let mut request =
            xk_xdr::to_message(arguments, cx.pool(), HEADROOM).map_err(|_| no_buffers())?;
        if let Some(options) = options {
            request.set_attribute(options).map_err(|_| no_buffers())?;
        }
        let reply = session.call(cx, request)?;
        xk_xdr::from_message(&reply).map_err(|_| CallCause::BadReply.into())
    }

    /// The port of the program at `host`; `None` if it is not registered there.
    pub(crate) fn find(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        host: &Participant,
        (program, version): (u32, u32),
        waiting: (&Asking, Option<CallOptions>),
    ) -> Result<Option<u16>, CallError> {
        if self.version == VERSION_PMAP {
            let wanted = |_: &SessionRef| self.mapping((program, version, 0));
            let port: u32 = self.call(cx, this, (host, procedure::GET), wanted, waiting)?;
            return match u16::try_from(port) {
                Ok(port) => Ok((port != 0).then_some(port)),
                Err(_) => Err(CallCause::BadReply.into()),
            };
        }
        let wanted = |session: &SessionRef| self.binding(cx, session, (program, version, 0));
        let asked =
            if self.version == VERSION_RPCB4 { procedure::GETVERSADDR } else { procedure::GET };
        let text: Name = self.call(cx, this, (host, asked), wanted, waiting)?;
        if text.is_empty() {
            return Ok(None);
        }
        let address = Universal::parse(&text).ok_or(CallError::from(CallCause::BadReply))?;
        Ok((address.port != 0).then_some(address.port))
    }

    /// Registers a program of this host with the port mapper at `host`, or takes it back; what that
    /// says.
    pub(crate) fn register(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        host: &Participant,
        procedure: u32,
        what: (u32, u32, u16),
    ) -> Result<bool, CallError> {
        let waiting = (&Asking::default(), None);
        if self.version == VERSION_PMAP {
            let mapping = |_: &SessionRef| self.mapping(what);
            return self.call(cx, this, (host, procedure), mapping, waiting);
        }
        let binding = |session: &SessionRef| self.binding(cx, session, what);
        self.call(cx, this, (host, procedure), binding, waiting)
    }

    fn mapping(&self, (program, version, port): (u32, u32, u16)) -> Mapping {
        Mapping { program, version, protocol: self.netid.protocol(), port: port.into() }
    }

    fn binding(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        (program, version, port): (u32, u32, u16),
    ) -> Binding {
        let host = here(cx, session);
        Binding {
            program,
            version,
            netid: self.netid.over(host).name().into(),
            address: Universal { host, port }.emit().into(),
            owner: Name::default(),
        }
    }
}
