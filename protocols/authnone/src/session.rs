//! The headers of a session: two empty pairs in front of requests, one in front of replies.

use crate::wire::{EMPTY, HEADER_OCTETS};
use xk_core::message::NoBuffers;
use xk_core::{Kernel, Message, Reason};
use xk_kit::rpc::auth::{Asker, Flavor, SHORTHAND_OCTETS, pop_credential, pop_verifier};
use xk_kit::rpc::call::Caller;
use xk_kit::rpc::onc::EMPTY_AUTH;

/// AUTH_NONE.
pub(crate) struct Nobody;

impl Flavor for Nobody {
    fn header_octets(&self) -> usize {
        HEADER_OCTETS
    }

    fn seal(&self, request: &mut Message) -> Result<(), NoBuffers> {
        request.push_array(&EMPTY)
    }

    fn judge(
        &self,
        _: &Kernel,
        _: Asker,
        request: &mut Message,
    ) -> Result<Option<Caller>, &'static Reason> {
        if request.peek_in_place::<HEADER_OCTETS>() == Some(&EMPTY)
            && request.strip_in_place(HEADER_OCTETS)
        {
            return Ok(None);
        }
        // A body that should not be there says nothing, and does no harm.
        pop_credential(request, |_, _| ())?;
        pop_verifier(request)?;
        Ok(None)
    }

    fn verify(
        &self,
        reply: &mut Message,
        _: Option<Caller>,
        _: impl FnOnce(Caller) -> Option<[u8; SHORTHAND_OCTETS]>,
    ) -> Result<(), NoBuffers> {
        reply.push_array(&EMPTY_AUTH)
    }
}
