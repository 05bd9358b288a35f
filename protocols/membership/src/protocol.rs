//! The layer: one conversation on each session below.

use crate::conversation::{self, Own, Talk};
use crate::wire::HEADER_OCTETS;
use alloc::format;
use alloc::string::String;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, Upper, reason,
};
use xk_kit::control::max_packet;
use xk_kit::group::{self, NO_PROCESS, TakeMembers, TakeNulls, TakeViews};
use xk_kit::layer::{Arrival, Layer, Layered, Unsent};

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        suspect: Duration = duration(Duration::from_secs(2),
            "how long a member is silent before it counts as failed; it sends four times as often"),
        sessions_max: u32 = int(1..=1_048_576, 64,
            "how many sessions it holds; idle ones are evicted for new ones"),
    }
}

/// One instance of the layer.
pub struct Membership {
    pub(crate) settings: Settings,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    Layered::build(build, Membership { settings })
}

/// Has a conversation begin to look after its members.
fn watch(cx: &Kernel, session: SessionRef) -> SessionRef {
    if let Some(own) = session.body::<Own>() {
        conversation::watch(own, cx, &session);
    }
    session
}

// A null has no header, so the layer has none for the skeleton: messages bear their own.
impl Layer<0> for Membership {
    /// There is one conversation on each session below.
    type Key = u8;
    type State = Talk;

    /// A conversation that was closed above is over: in the middle of it there is no coming in.
    const NO_RECEIVER: &'static Reason = &reason::CLOSED;
    const ONE_BY_ONE: bool = true;
    const PASSES_OFFERS: bool = true;

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        Ok(group::offer_of(ends))
    }

    fn key_of(_: &[u8; 0]) -> u8 {
        0
    }

    fn offer_for(_: u8) -> u64 {
        NO_PROCESS
    }

    fn octets_max(&self, cx: &Kernel, lower: &SessionRef, _: u8) -> usize {
        (max_packet(cx, lower, u32::MAX) as usize).saturating_sub(HEADER_OCTETS)
    }

    fn open(
        all: &Layered<Self, 0>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = all.lower.open(cx, Upper::new(this), ends)?;
        // In an order of all messages those of a member that has failed stop the votes, too.
        let opened = match lower.ask(cx, TakeNulls) {
            Some(_) => all.open_on(cx, this, upper.receiver, &lower, 0),
            None => Err(OpenError::NotSupported),
        };
        let session = opened.inspect_err(|_| lower.close(cx))?;
        Ok(watch(cx, session))
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, _: u8) -> Talk {
        // Before there are any: they tell that their senders are there.
        let _ = lower.ask(cx, TakeNulls);
        let _ = lower.ask(cx, TakeMembers);
        let _ = lower.ask(cx, TakeViews);
        Talk::new(cx, lower)
    }

    /// A conversation begins above when it begins below, not with the first message: each member
    /// may be the first to send.
    fn open_done(
        all: &Layered<Self, 0>,
        at: Arrival<'_>,
        ends: Participants,
    ) -> Result<(), &'static Reason> {
        let upper = group::enabled(&all.offers, group::offer_of(&ends));
        let upper = upper.ok_or(&reason::NO_PROTOCOL)?;
        let session = all.made(at, &upper, 0)?;
        watch(at.cx, session);
        Ok(())
    }

    fn ends(&self, cx: &Kernel, lower: &SessionRef, _: u8) -> Participants {
        group::ends(cx, lower)
    }

    /// Every message is [unsent](Self::unsent): it may have to wait.
    fn fit(&self, _: &Own, _: &mut Message) -> bool {
        false
    }

    fn unsent(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        _: Unsent,
    ) -> Result<(), PushError> {
        conversation::push(own, cx, this, message)
    }

    fn deliver(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        _: &[u8; 0],
        message: Message,
    ) -> Result<(), Refused> {
        conversation::take(own, cx, this, message)
    }

    fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
        conversation::timeout(own, cx, this, token);
    }

    fn end(own: &Own, cx: &Kernel, _: &SessionRef) {
        conversation::end(own, cx);
    }

    fn drain(own: &Own) {
        conversation::drain(own);
    }

    fn describe(&self, own: &Own) -> String {
        let (members, waiting) = (own.state.members(), own.state.waiting());
        let quorum = if own.state.has_quorum() { "quorum" } else { "no quorum" };
        format!("member {}, in are {members:b}, {quorum}, {waiting} waiting", own.state.me)
    }

    fn session_control(own: &Own, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        conversation::control(own, cx, ask)
    }
}
