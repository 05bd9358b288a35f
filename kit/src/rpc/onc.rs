//! Shared parts of the layers of ONC RPC (RFC 5531): procedures in participants, credentials and
//! verifiers, and the reasons for which a server refuses these.
//!
//! The layers, from above: the table of programs, authentication, selection, matching of replies to
//! requests. One of authentication may be left out. It is chosen by the flavor of a credential,
//! which is its type number on the layer of selection.

use crate::control::{MyHost, MyPort, PeerHost, PeerPort};
use crate::rpc::call::{
    BAD_CREDENTIALS, MyProcedure, PROCEDURE, PROGRAM, VERSION, pop_definite, pop_local,
};
use crate::rpc::call_layer::pop_header;
use xk_core::graph::{ParamSpec, int};
use xk_core::object::ProtocolId;
use xk_core::participant::{AddressError, Wild};
use xk_core::question;
use xk_core::reason::Class;
use xk_core::{
    Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Reason, SessionRef,
};

/// The flavor of an empty credential or verifier (RFC 5531, section 8.2).
pub const AUTH_NONE: u32 = 0;
/// The flavor of a Unix user's credential (RFC 5531, appendix A).
pub const AUTH_SYS: u32 = 1;
/// The flavor of a shorthand that a server has given for a longer credential (RFC 5531, appendix
/// A).
pub const AUTH_SHORT: u32 = 2;
/// Octets of the body of a credential or verifier, at most (RFC 5531, section 8.2).
pub const BODY_MAX: usize = 400;

/// The server takes this credential no more: the whole one is wanted (AUTH_REJECTEDCRED).
pub static REJECTED_CREDENTIALS: Reason =
    Reason::new("credentials no longer valid", Class::Prohibited);
/// The verifier is malformed (AUTH_BADVERF).
pub static BAD_VERIFIER: Reason = Reason::new("bad verifier", Class::Prohibited);
/// The verifier has expired, or came before (AUTH_REJECTEDVERF).
pub static REJECTED_VERIFIER: Reason = Reason::new("verifier expired", Class::Prohibited);
/// No layer of the server knows credentials of this flavor, or the server wants better ones
/// (AUTH_TOOWEAK).
pub static TOO_WEAK: Reason = Reason::new("credentials too weak", Class::Prohibited);
/// The peer speaks another version of ONC RPC (RPC_MISMATCH).
pub static WRONG_RPC_VERSION: Reason = Reason::new("wrong RPC version", Class::Bad);

/// Why a credential was not taken, as a reply says it: RFC 5531, section 9, `auth_stat`.
static AUTH_STATS: [(u32, &Reason); 5] = [
    (1, &BAD_CREDENTIALS),
    (2, &REJECTED_CREDENTIALS),
    (3, &BAD_VERIFIER),
    (4, &REJECTED_VERIFIER),
    (5, &TOO_WEAK),
];

/// The `auth_stat` that tells a client of this reason; `None` if it is about something else.
#[must_use]
pub fn auth_stat(reason: &Reason) -> Option<u32> {
    let found = AUTH_STATS.iter().find(|(_, known)| **known == *reason);
    found.map(|(stat, _)| *stat)
}

/// The reason that an `auth_stat` stands for.
#[must_use]
pub fn auth_reason(stat: u32) -> &'static Reason {
    let found = AUTH_STATS.iter().find(|(known, _)| *known == stat);
    found.map_or(&BAD_CREDENTIALS, |(_, reason)| *reason)
}

/// The procedure that a call names (RFC 5531, section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcedureName {
    /// The program.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// The procedure within it.
    pub procedure: u32,
}

/// The procedures that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The program.
    pub program: Wild<u32>,
    /// The program's version.
    pub version: Wild<u32>,
    /// The procedure within it.
    pub procedure: Wild<u32>,
}

impl Offered {
    /// Pops the procedure, version and program off a server's participant, as far as they are
    /// there.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn pop(local: &mut Participant) -> Result<Self, AddressError> {
        let procedure = pop_local(local, PROCEDURE)?;
        let version = pop_local(local, VERSION)?;
        let program = pop_local(local, PROGRAM)?;
        if local.is_empty() {
            local.push(Part::Any);
        }
        Ok(Self { program, version, procedure })
    }
}

impl ProcedureName {
    /// Pops the procedure, version and program off the peer's participant,
    /// `procedure3@version1@program536870913@...`, and off the local one as far as they are there.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn pop(participants: &mut Participants) -> Result<Self, AddressError> {
        Offered::pop(participants.local_mut()?)?;
        let peer = participants.peer_mut()?;
        let procedure = pop_definite(peer, PROCEDURE)?;
        let version = pop_definite(peer, VERSION)?;
        let program = pop_definite(peer, PROGRAM)?;
        if peer.is_empty() {
            peer.push(Part::Any);
        }
        Ok(Self { program, version, procedure })
    }

    /// Answers `my-procedure` and `my-program`; false for other questions.
    pub fn answer(self, ask: &mut Ask<'_>) -> bool {
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = self.procedure;
        } else if let Some(question) = ask.get::<MyProgram>() {
            (question.program, question.version) = (self.program, self.version);
        } else {
            return false;
        }
        true
    }

    /// Both ends of a conversation about this procedure through `lower`, for `open_done`.
    #[must_use]
    pub fn participants(&self, cx: &Kernel, lower: &SessionRef) -> Participants {
        let local = participant(
            lower.ask(cx, MyHost::default()).map(|q| q.host),
            lower.ask(cx, MyPort::default()).map(|q| q.port),
        );
        let peer = participant(
            lower.ask(cx, PeerHost::default()).map(|q| q.host),
            lower.ask(cx, PeerPort::default()).map(|q| q.port),
        );
        let number = |label, n: u32| Part::Number(label, u64::from(n));
        let local = local
            .with(number(PROGRAM, self.program))
            .with(number(VERSION, self.version))
            .with(number(PROCEDURE, self.procedure));
        Participants::pair(local, peer)
    }
}

impl core::fmt::Display for ProcedureName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { program, version, procedure } = self;
        write!(f, "program {program} version {version} procedure {procedure}")
    }
}

fn participant(host: Option<HostAddr>, port: Option<u16>) -> Participant {
    let mut made = host.map(|host| Participant::of(Part::host(host)));
    if let Some(port) = port {
        made = Some(made.unwrap_or_default().with(Part::port(port)));
    }
    made.unwrap_or_else(|| Participant::of(Part::Any))
}

/// The parameter of the layers of ONC RPC that hold sessions in both directions.
#[rustfmt::skip]
pub const SESSIONS_MAX: ParamSpec = int("sessions_max", 1..=16_777_216, 16_384,
    "how many sessions it holds, for calls and for requests each; idle ones are evicted for new \
     ones");

/// Asked of a session of ONC RPC: which program and version it is about. Its procedure answers
/// [`MyProcedure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MyProgram {
    /// The program.
    pub program: u32,
    /// The program's version.
    pub version: u32,
}

question!(MyProgram { program, version }, "my-program", Fact);

/// Asked upwards, of a protocol that opens or enables: it writes credential and verifier itself and
/// reads them itself. For one that does not answer, the layer of selection writes empty ones and
/// takes them off.
#[derive(Clone, Copy, Debug)]
pub struct CarriesCredentials {
    /// The protocol asked: no other answers, wherever the question is forwarded to.
    pub who: ProtocolId,
}

question!(CarriesCredentials { who }, "carries-credentials", Fact, upward);

/// Head of a credential or verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthHead {
    /// The flavor.
    pub flavor: u32,
    /// Octets of its body, at most [`BODY_MAX`].
    pub len: usize,
}

/// Octets of flavor and length in front of a credential's body.
pub const AUTH_HEAD_OCTETS: usize = 8;
/// An empty credential or verifier: AUTH_NONE, no body.
pub const EMPTY_AUTH: [u8; AUTH_HEAD_OCTETS] = [0; AUTH_HEAD_OCTETS];

impl AuthHead {
    /// Takes flavor and length off the front of a message, and then `read` sees the body, which
    /// goes with its padding.
    ///
    /// # Errors
    /// [`AuthError`]; of the message as much is gone as was read.
    pub fn pop<T>(
        message: &mut Message,
        read: impl FnOnce(Self, &[u8]) -> T,
    ) -> Result<T, AuthError> {
        let octets = pop_header(message).map_err(|_| AuthError::Truncated)?;
        let word = u64::from_be_bytes(octets);
        let flavor = (word >> 32) as u32;
        let len = usize::try_from(word as u32).unwrap_or(usize::MAX);
        if len > BODY_MAX {
            return Err(AuthError::TooLong);
        }
        let padded = len.next_multiple_of(4);
        if padded == 0 {
            return Ok(read(Self { flavor, len }, &[]));
        }
        let _ = message.pull_up(padded);
        let body = message.pop_header(padded).ok_or(AuthError::Truncated)?;
        Ok(read(Self { flavor, len }, body.get(..len).unwrap_or(body)))
    }

    /// Flavor and length as they are sent.
    #[must_use]
    pub fn emit(self) -> [u8; AUTH_HEAD_OCTETS] {
        (u64::from(self.flavor) << 32 | self.len as u64).to_be_bytes()
    }
}

/// Why a credential or verifier cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The message ends in it.
    Truncated,
    /// The body is longer than [`BODY_MAX`] octets.
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use xk_core::message::{Pool, PoolConfig};

    #[test]
    fn a_name_is_popped_off_both_ends() {
        let text = "*, procedure3@version2@program100003@port2049@10.0.0.2";
        let mut participants: Participants = text.parse().expect("participants");
        let name = ProcedureName::pop(&mut participants).expect("a name");
        assert_eq!((name.program, name.version, name.procedure), (100_003, 2, 3));
        assert_eq!(participants.to_string(), "*, port2049@10.0.0.2");
        let text = "*@version1@program5@port7, procedure1@program5@10.0.0.2";
        let mut participants: Participants = text.parse().expect("participants");
        assert_eq!(ProcedureName::pop(&mut participants), Err(AddressError::WrongFamily));
    }

    #[test]
    fn an_offer_may_leave_everything_open() {
        let mut local: Participant = "*".parse().expect("a participant");
        let offered = Offered::pop(&mut local).expect("an offer");
        assert_eq!(
            (offered.program, offered.version, offered.procedure),
            (Wild::Any, Wild::Any, Wild::Any)
        );
        assert_eq!(local.to_string(), "*");
    }

    #[test]
    fn reasons_and_numbers_are_the_same() {
        for stat in 1..=5 {
            assert_eq!(auth_stat(auth_reason(stat)), Some(stat));
        }
        assert_eq!(auth_stat(&xk_core::reason::TRUNCATED), None);
        assert_eq!(*auth_reason(13), BAD_CREDENTIALS);
    }

    #[test]
    fn every_truncation_of_a_credential_is_noticed() {
        let pool = Pool::new(&PoolConfig::default()).expect("a pool");
        let octets = [0, 0, 0, 1, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0];
        for len in 0..=octets.len() {
            let mut message = pool.copy_from(16, &octets[..len]).expect("a buffer");
            let read =
                AuthHead::pop(&mut message, |head, body| (head.flavor, body == [1, 2, 3, 4, 5]));
            let whole = len == octets.len();
            assert_eq!(read, if whole { Ok((1, true)) } else { Err(AuthError::Truncated) });
            assert!(message.is_empty() || !whole);
        }
        let long = [0, 0, 0, 1, 0, 0, 1, 0x91];
        let mut message = pool.copy_from(16, &long).expect("a buffer");
        assert_eq!(AuthHead::pop(&mut message, |_, _| ()), Err(AuthError::TooLong));
    }
}
