//! A session to a program of many hosts: their port mappers call it, each at the port that it has
//! there (RFC 1833, sections 2.2.1 and 3.2: `CALLIT`, `BCAST`). A host without the program is
//! silent.

use crate::protocol::Shared;
use crate::session::Key;
use crate::universal::Universal;
use crate::wire::{Name, VERSION_PMAP};
use alloc::rc::Rc;
use alloc::string::String;
use xk_core::object::{CallCause, CallError, Closing, PushError};
use xk_core::{Answer, Ask, Kernel, Message, Session, SessionRef};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::onc::ProcedureName;
use xk_xdr::{Decoder, Xdr};

/// Octets in front of the arguments: program, version, procedure, length.
const FRONT_OCTETS: usize = 16;
/// Octets of a result that hold everything in front: a length, an address of 255 octets with
/// padding, and one more length.
const LOOK_OCTETS: usize = 4 + 256 + 4;

pub(crate) struct Everyone {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    pub(crate) name: ProcedureName,
    /// Calls `CALLIT` of the port mappers.
    pub(crate) lower: SessionRef,
}

impl Everyone {
    /// Puts what names the procedure in front of its arguments.
    fn wrap(&self, cx: &Kernel, request: &mut Message) -> Result<(), PushError> {
        let len = request.len();
        let padding = len.next_multiple_of(4) - len;
        if padding > 0 {
            let zeros = cx.pool().copy_from(0, &[0; 3][..padding]);
            request.join(zeros.map_err(|_| PushError::NoBuffers)?);
        }
        let ProcedureName { program, version, procedure } = self.name;
        let mut front = [0; FRONT_OCTETS];
        let words = [program, version, procedure, len as u32];
        for (to, from) in front.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&from.to_be_bytes());
        }
        request.push_array(&front).map_err(|_| PushError::NoBuffers)
    }

    /// Leaves of a reply the procedure's results, with the program's port in place of the port
    /// mapper's.
    fn unwrap(&self, reply: &mut Message) -> Option<()> {
        let mut octets = [0; LOOK_OCTETS];
        let count = reply.copy_to(0, &mut octets);
        let mut decoder = Decoder::new(octets.get(..count)?);
        let port = if self.shared.client.version == VERSION_PMAP {
            u16::try_from(u32::decode(&mut decoder).ok()?).ok()?
        } else {
            Universal::parse(&Name::decode(&mut decoder).ok()?)?.port
        };
        let len = usize::try_from(u32::decode(&mut decoder).ok()?).ok()?;
        let front = count - decoder.left();
        if reply.len() - front < len || !reply.strip(front) {
            return None;
        }
        reply.truncate(len);
        if let Some(Peer { host, .. }) = reply.remove_attribute() {
            reply.set_attribute(Peer { host, port }).ok()?;
        }
        Some(())
    }
}

impl Session for Everyone {
    fn call(
        &self,
        cx: &Kernel,
        _: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        self.wrap(cx, &mut request)?;
        let mut reply = self.lower.call(cx, request)?;
        match self.unwrap(&mut reply) {
            Some(()) => Ok(reply),
            None => Err(CallCause::BadReply.into()),
        }
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        Some(alloc::format!("{} of everyone on {:?}", self.name, self.lower))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if self.name.answer(ask) {
            return Answer::Answered;
        }
        less(self.lower.control(cx, ask), ask, FRONT_OCTETS)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let sessions = &self.shared.sessions;
        sessions.release(&self.key, this);
        self.lower.close(cx);
        Closing::Done
    }
}
