//! A session that serves: one procedure, called by one peer with credentials of one flavor.

use super::calling::{FULL_OCTETS, FULL_REPLY_OCTETS};
use crate::protocol::{Name, Shared};
use crate::wire::{CALL_OCTETS, CallHeader, Denied, REPLY_OCTETS};
use alloc::rc::Rc;
use xk_core::control::Describe;
use xk_core::object::{Closing, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Reason, Session, SessionRef, reason};
use xk_kit::net::attribute::LinkCast;
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::{BAD_CREDENTIALS, MyProcedure};
use xk_kit::rpc::onc::{AUTH_HEAD_OCTETS, AuthError, AuthHead, MyProgram, auth_stat};

/// Room for the headers below, in octets, in replies made here.
const HEADROOM: usize = 128;

/// The session's key: the session below, and the name with the flavor.
pub(crate) type Key = (u64, Name);

pub(crate) struct Serving {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    pub(crate) header: CallHeader,
    /// Whether the upper reads and writes credentials.
    pub(crate) carries: bool,
}

/// The reply that denies a request, if it may have one: a broadcast gets none. The request goes
/// back with the `reason` if not.
#[cold]
pub(crate) fn deny(
    cx: &Kernel,
    request: Message,
    denied: Denied,
    why: &'static Reason,
) -> Result<Message, Refused> {
    if request.attribute::<LinkCast>().is_some() {
        return Err(Refused::new(request, why));
    }
    let (octets, count) = denied.emit();
    match cx.pool().copy_from(HEADROOM, octets.get(..count).unwrap_or(&octets)) {
        Ok(reply) => Ok(reply),
        Err(_) => Err(Refused::new(request, &reason::NO_BUFFERS)),
    }
}

impl Serving {
    /// Takes the header and, for an upper that carries none, the credentials off a request.
    #[inline]
    fn open_request(&self, request: &mut Message) -> Result<(), AuthError> {
        if self.carries {
            return match request.strip(CALL_OCTETS) {
                true => Ok(()),
                false => Err(AuthError::Truncated),
            };
        }
        let empty = request.peek_behind::<{ 2 * AUTH_HEAD_OCTETS }>(CALL_OCTETS);
        if empty == Some(&[0; 2 * AUTH_HEAD_OCTETS]) && request.strip_in_place(FULL_OCTETS) {
            return Ok(());
        }
        if !request.strip(CALL_OCTETS) {
            return Err(AuthError::Truncated);
        }
        AuthHead::pop(request, |_, _| ())?;
        AuthHead::pop(request, |_, _| ())
    }

    /// What becomes of a request that was refused above.
    #[cold]
    fn refused(&self, cx: &Kernel, refused: Refused) -> Result<Message, Refused> {
        match auth_stat(refused.reason) {
            Some(stat) => deny(cx, refused.message, Denied::Auth(stat), refused.reason),
            None => Err(refused),
        }
    }
}

impl Session for Serving {
    #[inline]
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        if let Err(error) = self.open_request(&mut request) {
            let why = match error {
                AuthError::Truncated => &reason::TRUNCATED,
                AuthError::TooLong => &BAD_CREDENTIALS,
            };
            return self.refused(cx, this.refuse(cx, request, why));
        }
        let mut reply = match self.upper.call_demux(cx, this, request) {
            Ok(reply) => reply,
            Err(refused) => return self.refused(cx, refused),
        };
        // All zeros: accepted, and an empty verifier.
        let put = if self.carries {
            reply.push_array(&[0; REPLY_OCTETS])
        } else {
            reply.push_array(&[0; FULL_REPLY_OCTETS])
        };
        match put {
            Ok(()) => Ok(reply),
            Err(_) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let CallHeader { program, version, procedure } = self.header;
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = procedure;
        } else if let Some(question) = ask.get::<MyProgram>() {
            *question = MyProgram { program, version };
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("serves {} on {:?}", self.header, self.lower);
        } else {
            let answer = self.lower.control(cx, ask);
            if answer.is_answered() {
                let header = if self.carries { REPLY_OCTETS } else { FULL_REPLY_OCTETS };
                less_header(ask, header);
            }
            return answer;
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        let serving = &self.shared.serving;
        serving.release(&self.key, this);
        Closing::Done
    }
}
