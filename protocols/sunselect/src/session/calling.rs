//! A session that calls: one procedure of one peer.

use crate::protocol::{Name, Shared};
use crate::trunk::Trunk;
use crate::wire::{ACCEPTED, CALL_OCTETS, CallHeader, DENIED, Denied, REPLY_OCTETS, word};
use alloc::rc::Rc;
use xk_core::control::Describe;
use xk_core::object::{CallCause, CallError, Closing, PushError, Rejection};
use xk_core::{Answer, Ask, Kernel, Message, Reason, Session, SessionRef, reason};
use xk_kit::net::ports::less_header;
use xk_kit::rpc::auth::pop_verifier;
use xk_kit::rpc::call::{CancelCall, MyProcedure};
use xk_kit::rpc::call_layer::{bad_reply, pop_header};
use xk_kit::rpc::onc::{AUTH_HEAD_OCTETS, MyProgram, WRONG_RPC_VERSION, auth_reason};

/// Octets of the header and two empty credentials.
pub(crate) const FULL_OCTETS: usize = CALL_OCTETS + 2 * AUTH_HEAD_OCTETS;
/// Octets of `reply_stat` and an empty verifier.
pub(crate) const FULL_REPLY_OCTETS: usize = REPLY_OCTETS + AUTH_HEAD_OCTETS;

/// The session's key: the trunk, the protocol above, and the name with the flavor.
pub(crate) type Key = (u64, u32, Name);

pub(crate) struct Calling {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    pub(crate) trunk: Rc<Trunk>,
    pub(crate) header: CallHeader,
    /// The header of every call; an empty credential and verifier for an upper that carries none.
    pub(crate) template: [u8; FULL_OCTETS],
    /// Whether the upper writes and reads credentials.
    pub(crate) carries: bool,
}

/// The header, and two empty credentials behind it.
pub(crate) fn template(header: CallHeader) -> [u8; FULL_OCTETS] {
    let mut octets = [0; FULL_OCTETS];
    octets[..CALL_OCTETS].copy_from_slice(&header.emit());
    octets
}

impl Calling {
    fn put_header(&self, request: &mut Message) -> bool {
        if !self.carries {
            return request.push_in_place(&self.template)
                || request.push_array(&self.template).is_ok();
        }
        match self.template.first_chunk::<CALL_OCTETS>() {
            Some(header) => request.push_in_place(header) || request.push_array(header).is_ok(),
            None => false,
        }
    }

    /// Takes the words that say that the call was accepted off a reply.
    #[inline]
    fn open_reply(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut reply: Message,
    ) -> Result<Message, CallError> {
        let accepted = if self.carries {
            reply.peek_in_place::<REPLY_OCTETS>() == Some(&[0; REPLY_OCTETS])
                && reply.strip_in_place(REPLY_OCTETS)
        } else {
            reply.peek_in_place::<FULL_REPLY_OCTETS>() == Some(&[0; FULL_REPLY_OCTETS])
                && reply.strip_in_place(FULL_REPLY_OCTETS)
        };
        if accepted {
            return Ok(reply);
        }
        self.open_other(cx, this, reply)
    }

    #[cold]
    fn open_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut reply: Message,
    ) -> Result<Message, CallError> {
        match self.read(&mut reply) {
            Ok(None) => Ok(reply),
            Ok(Some(rejection)) => Err(CallCause::Rejected(rejection).into()),
            Err(why) => Err(bad_reply(cx, this, reply, why)),
        }
    }

    /// Takes what this layer reads off a reply: why the call was denied, if it was.
    fn read(&self, reply: &mut Message) -> Result<Option<Rejection>, &'static Reason> {
        let stat = pop_header::<REPLY_OCTETS>(reply)?;
        let denied = match word(&stat, 0) {
            ACCEPTED if self.carries => return Ok(None),
            // A server may send any verifier to one that sent none.
            ACCEPTED => return pop_verifier(reply).map(|()| None),
            DENIED => {
                let mut octets = [0; 12];
                let count = reply.copy_to(0, &mut octets);
                octets.get(..count).and_then(Denied::parse)
            }
            _ => None,
        };
        let (reason, versions) = match denied.ok_or(&reason::MALFORMED)? {
            Denied::RpcMismatch { low, high } => (&WRONG_RPC_VERSION, Some((low, high))),
            Denied::Auth(stat) => (auth_reason(stat), None),
        };
        Ok(Some(Rejection { reason, versions }))
    }
}

impl Session for Calling {
    #[inline]
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        if !self.put_header(&mut request) {
            return Err(PushError::NoBuffers.into());
        }
        let reply = self.trunk.call(cx, &self.shared.lower, this, request)?;
        self.open_reply(cx, this, reply)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let CallHeader { program, version, procedure } = self.header;
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = procedure;
        } else if let Some(question) = ask.get::<MyProgram>() {
            *question = MyProgram { program, version };
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("calls {} on {:?}", self.header, self.trunk.first());
        } else if ask.get::<CancelCall>().is_some() {
            return self.trunk.cancel(cx, ask);
        } else {
            let answer = self.trunk.first().control(cx, ask);
            if answer.is_answered() {
                less_header(ask, if self.carries { CALL_OCTETS } else { FULL_OCTETS });
            }
            return answer;
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(self.trunk.first())
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let calling = &self.shared.calling;
        calling.release(&self.key, this);
        self.shared.release(cx, &self.trunk);
        Closing::Done
    }
}
