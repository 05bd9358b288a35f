//! The headers of a session: a Unix user's credential in front of requests, and the server's
//! verdict on it.

use super::accept::Accept;
use super::wire::Credential;
use alloc::vec::Vec;
use xk_core::message::NoBuffers;
use xk_core::{Kernel, Message, Reason};
use xk_kit::rpc::auth::{Asker, Flavor, SHORTHAND_OCTETS, pop_credential, pop_verifier};
use xk_kit::rpc::call::{BAD_CREDENTIALS, Caller};
use xk_kit::rpc::onc::{AUTH_HEAD_OCTETS, AUTH_SHORT, AUTH_SYS, AuthHead, EMPTY_AUTH, TOO_WEAK};

/// AUTH_SYS.
pub(super) struct User {
    /// Credential and verifier, as they are sent.
    pub(super) header: Vec<u8>,
    /// Users that a server takes; all if there is none.
    pub(super) accept: Option<Accept>,
}

impl User {
    /// Whether a server takes this user.
    fn takes(&self, user: u32) -> bool {
        self.accept.as_ref().is_none_or(|accept| accept.takes(user))
    }
}

impl Flavor for User {
    fn header_octets(&self) -> usize {
        self.header.len()
    }

    fn seal(&self, request: &mut Message) -> Result<(), NoBuffers> {
        let room = request.push_header(self.header.len())?;
        room.copy_from_slice(&self.header);
        Ok(())
    }

    fn judge(
        &self,
        _: &Kernel,
        asker: Asker,
        request: &mut Message,
    ) -> Result<Option<Caller>, &'static Reason> {
        let read = pop_credential(request, |_, body| {
            Credential::parse(body).map(|credential| Caller {
                flavor: AUTH_SYS,
                user: credential.user,
                group: credential.group,
            })
        });
        let caller = read?.map_err(|_| &BAD_CREDENTIALS)?;
        pop_verifier(request)?;
        if asker.is_null || self.takes(caller.user) { Ok(Some(caller)) } else { Err(&TOO_WEAK) }
    }

    fn verify(
        &self,
        reply: &mut Message,
        caller: Option<Caller>,
        issue: impl FnOnce(Caller) -> Option<[u8; SHORTHAND_OCTETS]>,
    ) -> Result<(), NoBuffers> {
        // By the null procedure comes every caller; a shorthand would be good for all of them.
        let accepted = caller.filter(|caller| self.takes(caller.user));
        let Some(shorthand) = accepted.and_then(issue) else {
            return reply.push_array(&EMPTY_AUTH);
        };
        let head = AuthHead { flavor: AUTH_SHORT, len: SHORTHAND_OCTETS };
        let mut verifier = [0; AUTH_HEAD_OCTETS + SHORTHAND_OCTETS];
        verifier[..AUTH_HEAD_OCTETS].copy_from_slice(&head.emit());
        verifier[AUTH_HEAD_OCTETS..].copy_from_slice(&shorthand);
        reply.push_array(&verifier)
    }

    fn shorthand<'a>(&self, verifier: AuthHead, body: &'a [u8]) -> Option<&'a [u8]> {
        (verifier.flavor == AUTH_SHORT && !body.is_empty()).then_some(body)
    }
}
