//! Shared parts of the protocols of the rpc realm: names of procedures, options of a call, meanings
//! of refusals.
//!
//! A session of the rpc realm stands for one procedure of one peer: its
//! [`call`](xk_core::SessionRef::call) invokes it. The caller names it in the peer's participant,
//! the procedure on top: `procedure3@10.0.0.2`, or
//! `procedure3@version1@program536870913@port2049@10.0.0.2`. A server offers itself by
//! `open_enable` with the same identifiers in the local participant, `*` for any procedure; a
//! request reaches it by `call_demux` through a session which answers [`MyProcedure`]. It may
//! block, and it may call others meanwhile.

use core::time::Duration;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing};
use xk_core::participant::{AddressError, Label, Wild};
use xk_core::reason::Class;
use xk_core::{Message, Part, Participant, Reason, Time};
use xk_core::{fields, question};

/// The label of procedure numbers, and of Sprite's commands.
pub const PROCEDURE: Label = Label::new("procedure");
/// The label of a program's version numbers (RFC 5531, section 8).
pub const VERSION: Label = Label::new("version");
/// The label of program numbers (RFC 5531, section 8).
pub const PROGRAM: Label = Label::new("program");
/// The label of an object's number, which goes with the object from host to host. 0 is a host's own
/// object, which every host has.
pub const OBJECT: Label = Label::new("eid");
/// The label of channel numbers.
pub const CHANNEL: Label = Label::new("channel");

/// No protocol serves this procedure.
pub static NO_PROCEDURE: Reason = Reason::new("no such procedure", Class::NoProtocol);
/// No protocol serves this program.
pub static NO_PROGRAM: Reason = Reason::new("no such program", Class::NoProtocol);
/// The program is served, but in other versions.
pub static NO_VERSION: Reason = Reason::new("no such version", Class::NoProtocol);
/// The arguments are not those of the procedure.
pub static BAD_ARGUMENTS: Reason = Reason::new("garbage arguments", Class::Bad);
/// The procedure failed for reasons of the server's own.
pub static SYSTEM_ERROR: Reason = Reason::new("system error", Class::Exhausted);
/// The server executes as many calls as it may.
pub static BUSY: Reason = Reason::new("server busy", Class::Exhausted);
/// The server does not take these credentials.
pub static BAD_CREDENTIALS: Reason = Reason::new("bad credentials", Class::Prohibited);

/// Question for the procedure that a session of the rpc realm stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MyProcedure {
    /// Number of the procedure.
    pub number: u32,
}

question!(MyProcedure { number }, "my-procedure", Fact);

/// Question for the object that a session of the rpc realm stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MyObject {
    /// Number of the object.
    pub eid: u64,
}

question!(MyObject { eid }, "my-object", Fact);

/// Asked of a session of the rpc realm: how many calls it has under way at once, at most; others
/// wait. One that does not answer takes any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsAtOnce {
    /// Number of calls.
    pub calls: u32,
}

question!(CallsAtOnce { calls }, "calls-at-once", Fact);

/// Asked of a session of the rpc realm that serves: the largest reply that goes through it, in
/// octets, where the layer has no words for one that does not. A layer that has answers nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestReply {
    /// Octets.
    pub octets: u32,
}

question!(LargestReply { octets }, "largest-reply", Fact);

/// Asked upwards, of a protocol about to open one below: the largest message that it will ever
/// push, in octets. One that does not answer may push any.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargestPush {
    /// Octets.
    pub octets: u32,
}

question!(LargestPush { octets }, "largest-push", Fact, upward);

/// Asked upwards, of a protocol about to open one below: it takes the length of its messages, or
/// more than hosts and its number, from the header of the layer below, so that it stands on no
/// other.
#[derive(Clone, Copy, Debug, Default)]
pub struct NeedsPseudoHeader;

question!(NeedsPseudoHeader {}, "needs-pseudo-header", Fact, upward);

/// Options of one call. An attribute of the request; without it the layers' own timers decide
/// alone, and the call cannot be taken back. A layer of calls leaves it on packets for which the
/// layer below may have to wait: those of more than one packet there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Time at which the caller stops waiting; [`Time::MAX`] for never.
    pub deadline: Time,
    /// Names the call for [`CancelCall`]; 0 for none.
    pub tag: u64,
}

impl CallOptions {
    /// Time that may be waited from `now` on, `own` at most; `None` if the deadline has passed.
    pub fn clip(options: Option<Self>, now: Time, own: Duration) -> Option<Duration> {
        let Some(deadline) = options.map(|o| o.deadline).filter(|d| *d != Time::MAX) else {
            return Some(own);
        };
        let left = deadline.as_ns().checked_sub(now.as_ns())?;
        (left > 0).then(|| Duration::from_nanos(left).min(own))
    }

    /// Takes the options off a request: the layer that waits for the reply reads them once.
    pub fn take(request: &mut Message) -> Option<Self> {
        if !request.has_attributes() {
            return None;
        }
        request.remove_attribute()
    }
}

impl Attribute for CallOptions {
    const KEY: u32 = xk_core::name_key("call-options");
    const CROSSES: Crossing = Crossing::DOWN;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..8].copy_from_slice(&self.deadline.as_ns().to_le_bytes());
        octets[8..16].copy_from_slice(&self.tag.to_le_bytes());
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [deadline, tag] = [0, 8].map(|at| {
            let part = octets.get(at..at + 8).and_then(|o| o.first_chunk());
            u64::from_le_bytes(*part.unwrap_or(&[0; 8]))
        });
        Self { deadline: Time::from_ns(deadline), tag }
    }
}

/// Takes a call back: its caller stops waiting for the reply, with
/// [`Cancelled`](xk_core::object::CallCause::Cancelled). Asked of the session that was called; each
/// layer passes it on to those below on which it may wait.
#[derive(Clone, Copy, Debug)]
pub struct CancelCall {
    /// The [`CallOptions::tag`] of the call.
    pub tag: u64,
}

question!(CancelCall { tag }, "cancel-call", Ask);

/// A call to a peer that is many hosts ([`IsGroup`](crate::control::IsGroup)) for the replies of
/// all of them (RFC 5531, section 8.4.2). An attribute of the request, beside [`CallOptions`] with
/// a tag; the deadline there ends the gathering. The reply bears whose it is as
/// [`Peer`](crate::net::attribute::Peer). Only for a session that answers [`GathersReplies`].
///
/// What a single host answers may be no reply to the layers above: then the call fails with
/// [`Rejected`](xk_core::object::CallCause::Rejected) or
/// [`BadReply`](xk_core::object::CallCause::BadReply), and the next is to be asked for all the
/// same. [`TimedOut`](xk_core::object::CallCause::TimedOut) says that there is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Send the request; the reply is that of the first host.
    First,
    /// Send nothing; the reply is that of the next host to the request with the same tag.
    Next,
}

impl Attribute for Gather {
    const KEY: u32 = xk_core::name_key("gather");
    const CROSSES: Crossing = Crossing::DOWN;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[0] = self as u8;
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        if octets[0] == 0 { Gather::First } else { Gather::Next }
    }
}

/// Asked of a session of the rpc realm: it reaches many hosts and understands [`Gather`]. Answered
/// only where that is so.
#[derive(Clone, Copy, Debug)]
pub struct GathersReplies;

question!(GathersReplies {}, "gathers-replies", Fact);

/// The caller, as far as a credential names it (RFC 5531, section 8.2 and appendix A). An attribute
/// of a request on its way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The credential's flavor: 0 none, 1 AUTH_SYS, 2 AUTH_SHORT.
    pub flavor: u32,
    /// The user, as the caller's machine counts users.
    pub user: u32,
    /// The user's first group.
    pub group: u32,
}

fields!(Caller { flavor, user, group });

impl Attribute for Caller {
    const KEY: u32 = xk_core::name_key("caller");
    const CROSSES: Crossing = Crossing::UP;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        for (at, word) in [self.flavor, self.user, self.group].into_iter().enumerate() {
            octets[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [flavor, user, group] = [0, 4, 8].map(|at| {
            let part = octets.get(at..at + 4).and_then(|o| o.first_chunk());
            u32::from_le_bytes(*part.unwrap_or(&[0; 4]))
        });
        Self { flavor, user, group }
    }
}

/// Octets of a layer of transactions that go beside a request or a reply; only the layer and those
/// above it that know it read them. For ATP they are `xk_appletalk::atp::Options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction(pub [u8; 12]);

/// Asked of a layer of transactions: what goes beside a request that comes without a
/// [`Transaction`], as its parameters say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsualTransaction {
    /// The octets of a [`Transaction`].
    pub octets: [u8; 12],
}

question!(UsualTransaction { octets }, "usual-transaction", Fact);

impl Attribute for Transaction {
    const KEY: u32 = xk_core::name_key("transaction");
    const CROSSES: Crossing = Crossing::BOTH;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..12].copy_from_slice(&self.0);
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self(*octets.first_chunk().unwrap_or(&[0; 12]))
    }
}

/// Pops a number with this label off a peer's participant: it must be definite.
///
/// # Errors
/// [`AddressError`].
pub fn pop_definite(peer: &mut Participant, label: Label) -> Result<u32, AddressError> {
    let number = peer.pop_number(label)?.definite()?;
    u32::try_from(number).map_err(|_| AddressError::OutOfRange)
}

/// Pops the identifier with this label off a local participant, where it may be any, or be left out
/// altogether.
///
/// # Errors
/// [`AddressError`] if it is beyond 32 bits.
pub fn pop_local(local: &mut Participant, label: Label) -> Result<Wild<u32>, AddressError> {
    match local.top() {
        Some(Part::Any) => {
            local.pop();
            Ok(Wild::Any)
        }
        Some(Part::Number(l, _)) if *l == label => pop_definite(local, label).map(Wild::Is),
        _ => Ok(Wild::Any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_another_address_space() {
        let options = CallOptions {
            deadline: Time::from_ns(0x0102_0304_0506_0708),
            tag: 0x1112_1314_1516_1718,
        };
        assert_eq!(CallOptions::decode(options.encode()), options);
        let caller = Caller { flavor: 1, user: 1000, group: 100 };
        assert_eq!(Caller::decode(caller.encode()), caller);
        let transaction = Transaction(*b"twelve octet");
        assert_eq!(Transaction::decode(transaction.encode()), transaction);
        for gather in [Gather::First, Gather::Next] {
            assert_eq!(Gather::decode(gather.encode()), gather);
        }
    }

    #[test]
    fn a_deadline_shortens_a_wait_and_ends_it() {
        let now = Time::from_ns(1_000);
        let own = Duration::from_nanos(500);
        let until = |ns| Some(CallOptions { deadline: Time::from_ns(ns), tag: 0 });
        assert_eq!(CallOptions::clip(None, now, own), Some(own));
        assert_eq!(CallOptions::clip(until(1_200), now, own), Some(Duration::from_nanos(200)));
        assert_eq!(CallOptions::clip(until(9_000), now, own), Some(own));
        assert_eq!(CallOptions::clip(until(1_000), now, own), None);
        assert_eq!(CallOptions::clip(until(10), now, own), None);
    }

    #[test]
    fn local_identifiers_may_be_left_out() {
        let text = "procedure3@version2@*";
        let mut local: Participant = text.parse().expect("a participant");
        assert_eq!(pop_local(&mut local, PROCEDURE), Ok(Wild::Is(3)));
        assert_eq!(pop_local(&mut local, PROGRAM), Ok(Wild::Any));
        assert_eq!(pop_local(&mut local, VERSION), Ok(Wild::Is(2)));
        assert_eq!(pop_local(&mut local, PROGRAM), Ok(Wild::Any));
        assert!(local.is_empty());
        let mut peer: Participant = "procedure4294967296@10.0.0.2".parse().expect("a participant");
        assert_eq!(pop_definite(&mut peer, PROCEDURE), Err(AddressError::OutOfRange));
    }
}
