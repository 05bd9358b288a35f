//! Conversations that go on at another place: the whole state of a session, its octets that wait
//! included, goes as a value to another protocol object of the same kind, in this kernel or any
//! other, and the peer sees nothing of it.
//!
//! A protocol that can do this answers two questions. [`GiveState`] to a session stops it, and
//! then hands its state out in parts; [`TakeState`] brings a state in parts to a protocol object,
//! where the next `open` between the same ends goes on with it. In this order nothing is lost and
//! nothing is there twice:
//!
//! 1. The session stops: it sends nothing and takes nothing. Its state goes to the asker
//!    ([`state_of`]).
//! 2. The other object has the state, and expects the conversation ([`bring`]).
//! 3. The session is told that its state has arrived, and ends without a word to its peer
//!    ([`release`]). Until then it goes on by itself if nothing more is heard for [`GIVE_FOR`].
//! 4. The other object opens.
//!
//! What comes from the peer meanwhile is answered by nothing, for [`HOLD_FOR`]. The other object
//! keeps it from the first part of a state on, within a bound, and goes on with it; all else is as
//! if lost on the way: that is what the protocol's own ways to bear losses are for. What the state
//! holds is the protocol's own matter: its first octets say of which protocol and version it is,
//! points in time are told by how far off they are ([`Writer::at`]), and what is read back is
//! checked as if a stranger had sent it.
//!
//! [`Writer::at`]: xk_core::control::Writer::at

use crate::control::{MyHost, MyPort, NetworkError, PeerHost, PeerPort};
use crate::net::template::Headers;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::control::{Handles, TEXT_MAX};
use xk_core::object::{OpenError, ProtocolId};
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Pool, ProtocolRef, Reason, SessionRef,
    question, reason::Class,
};

/// The message came while a conversation was on its way to another place, or just after.
pub static MOVED: Reason = Reason::new("moved", Class::NoPort);

/// Time that a stopped session waits for the next question before it goes on.
pub const GIVE_FOR: Duration = Duration::from_secs(5);
/// Time during which messages for a conversation that is elsewhere, or about to be opened, get no
/// answer.
pub const HOLD_FOR: Duration = Duration::from_secs(10);
/// The longest state, in octets.
pub const STATE_OCTETS_MAX: usize = 64 << 20;

/// Asks, in place of where a part begins, how many octets of data wait in the session now. It goes
/// on.
pub const WAITING: u32 = u32::MAX;

/// Asked of a session: a part of its state. With the first it stops; once the asker has had all and
/// asks behind the end it is over, and has said nothing to its peer.
#[derive(Debug, Default)]
pub struct GiveState {
    /// Offset of the part, in octets, or [`WAITING`].
    pub at: u32,
    /// Out: octets of the whole state; 0 if there is none to be had.
    pub total: u32,
    /// Out: the part.
    pub part: Option<Message>,
}
question!(GiveState { at, total, part }, "give-state", Ask);

/// Asked of a protocol: takes a part of a state that a session elsewhere has given. The next `open`
/// between these ends goes on with what has come.
#[derive(Debug, Default)]
pub struct TakeState {
    /// The ends, as for `open`; all parts definite.
    pub ends: Participants,
    /// Offset of the part, in octets. With 0 a state begins.
    pub at: u32,
    /// The part.
    pub part: Option<Message>,
    /// Out: it was taken.
    pub taken: bool,
}
question!(TakeState { ends, at, part, taken }, "take-state", Ask);

/// Asked of a protocol by what hands conversations on: these ends are kept for one that is
/// elsewhere, for as long as it takes. Nothing that comes for them is answered, and no `open`
/// between them succeeds unless a state has been brought for it ([`TakeState`]), which ends this.
/// Ends that are kept no longer are free again; those for which a state has been brought are held
/// for [`HOLD_FOR`], as long as an `open` may take.
#[derive(Clone, Debug, Default)]
pub struct KeepEnds {
    /// The ends, as for `open`; all parts definite.
    pub ends: Participants,
    /// From now on, or no longer.
    pub keep: bool,
    /// The protocol that is told of errors that the network reports about them ([`EndsFailed`]).
    pub keeper: Option<ProtocolRef>,
    /// The keeper's number of these ends.
    pub number: u32,
    /// In: `Some` of any if they are asked for. Out: the headers of messages between them as they
    /// are now, if they are kept and the layers below say. If the station that leads to the peer is
    /// another later, so are they.
    pub headers: Option<Headers>,
    /// Out: it is so.
    pub done: bool,
}
question!(KeepEnds { ends, keep, keeper, number, headers, done }, "keep-ends", Ask);

/// Told upwards to what keeps ends for a conversation elsewhere: the network reports an error about
/// a message of that.
#[derive(Clone, Debug)]
pub struct EndsFailed {
    /// The keeper's number of the ends.
    pub number: u32,
    /// The error, of no session here.
    pub error: NetworkError,
}
question!(EndsFailed { number, error }, "ends-failed", Tell, upward);

/// Asked of a protocol whose sessions are about to move: makes those of conversations that have
/// begun and have no session yet. The protocol above is not told of them, as it is not told of
/// those that move.
#[derive(Debug, Default)]
pub struct HalfOpen {
    /// Out: of so many none was made, for want of room.
    pub left: usize,
}
question!(HalfOpen { left }, "half-open", Ask);

/// For states: they name no objects.
pub struct Nameless<'a>(pub &'a Pool);

impl Handles for Nameless<'_> {
    fn number(&self, _: &SessionRef) -> Option<u64> {
        None
    }

    fn session(&self, _: u64) -> Option<SessionRef> {
        None
    }

    fn protocol(&self, _: ProtocolId) -> Option<ProtocolRef> {
        None
    }

    fn reason(&self, _: u32) -> Option<&'static Reason> {
        None
    }

    fn pool(&self) -> &Pool {
        self.0
    }
}

/// Answers with the part of `state` that is asked for.
///
/// # Errors
/// [`OpenError::NoBuffers`].
pub fn answer_part(pool: &Pool, state: &[u8], question: &mut GiveState) -> Result<(), OpenError> {
    let rest = state.get(question.at as usize..).unwrap_or_default();
    let part = rest.get(..TEXT_MAX).unwrap_or(rest);
    question.total = state.len() as u32;
    question.part = Some(pool.copy_from(0, part).map_err(|_| OpenError::NoBuffers)?);
    Ok(())
}

/// Stops a session and has its state; `None` if it has none to give, or breaks off. It goes on
/// after [`GIVE_FOR`] unless it is [`released`](release).
pub fn state_of(cx: &Kernel, session: &SessionRef) -> Option<Vec<u8>> {
    rest_of(cx, session, Vec::new())
}

/// As [`state_of`], of a session that has given the first octets of its state, and more.
pub fn rest_of(cx: &Kernel, session: &SessionRef, mut state: Vec<u8>) -> Option<Vec<u8>> {
    loop {
        let at = u32::try_from(state.len()).ok()?;
        let given = session.ask(cx, GiveState { at, ..GiveState::default() })?;
        let (total, part) = (given.total as usize, given.part?);
        if total > STATE_OCTETS_MAX || part.is_empty() || total - state.len() < part.len() {
            return None;
        }
        state.extend(part.octets());
        if state.len() == total {
            return Some(state);
        }
    }
}

/// Ends a session whose state, of so many octets, has arrived elsewhere; false if it goes on.
pub fn release(cx: &Kernel, session: &SessionRef, octets: usize) -> bool {
    let asked = GiveState { at: octets as u32, ..GiveState::default() };
    session.ask(cx, asked).is_some_and(|given| given.total as usize == octets)
}

/// Brings a state to a protocol, which expects the conversation between `ends` then; false if it
/// does not take it.
pub fn bring(cx: &Kernel, protocol: &ProtocolRef, ends: &Participants, state: &[u8]) -> bool {
    let mut at = 0;
    state.chunks(TEXT_MAX).all(|part| {
        let Ok(part) = cx.pool().copy_from(0, part) else {
            return false;
        };
        let octets = part.len() as u32;
        let asked = TakeState { ends: ends.clone(), at, part: Some(part), taken: false };
        at += octets;
        protocol.ask(cx, asked).is_some_and(|answer| answer.taken)
    })
}

/// The ends of a session between two hosts and ports, as for `open`.
pub fn ends_of(cx: &Kernel, session: &SessionRef) -> Option<Participants> {
    let end = |host, port| Participant::of(Part::Host(host)).with(Part::port(port));
    let local = (session.ask(cx, MyHost::default())?.host, session.ask(cx, MyPort::default())?);
    let peer = (session.ask(cx, PeerHost::default())?.host, session.ask(cx, PeerPort::default())?);
    Some(Participants::pair(end(local.0, local.1.port), end(peer.0, peer.1.port)))
}

/// Why a conversation did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The session has no state to give: it is over, or its protocol cannot.
    NothingGiven,
    /// The other protocol did not take it. The session goes on after [`GIVE_FOR`].
    NotTaken,
    /// The state was given and could not be opened there: the conversation is over.
    Open(OpenError),
}
