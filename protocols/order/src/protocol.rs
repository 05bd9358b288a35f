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
use xk_kit::group::{self, MyMember, NO_PROCESS, TakeNulls, TakeViews};
use xk_kit::layer::{Arrival, Layer, Layered, Unsent};

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        safe: bool = flag(false, "whether a message is passed up only once all members have it"),
        classes: u32 = int(0..=255, 0,
            "how many classes of messages there are that commute with those of their class"),
        null_gap: Duration = duration(Duration::from_millis(1),
            "how long after its last message a member answers one that has not followed that; 0s: at once").or_zero(),
        sessions_max: u32 = int(1..=1_048_576, 64,
            "how many sessions it holds; idle ones are evicted for new ones"),
    }
}

/// One instance of the layer.
pub struct Order {
    pub(crate) settings: Settings,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on, [`BuildError::Param`] if it is
/// to be safe and to have classes.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    if settings.safe && settings.classes > 0 {
        return Err(BuildError::param("classes", "0, since messages of a class are not safe"));
    }
    Layered::build(build, Order { settings })
}

// A null has no header, so the layer has none for the skeleton: messages bear their own.
impl Layer<0> for Order {
    /// There is one conversation on each session below.
    type Key = u8;
    type State = Talk;

    /// A conversation that was closed above is over: in the middle of it no order can be known.
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
        let opened = all.open_on(cx, this, upper.receiver, &lower, 0);
        opened.inspect_err(|_| lower.close(cx))
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, _: u8) -> Talk {
        // Before there are any: a null comes after a message that it answers.
        let _ = lower.ask(cx, TakeNulls);
        let _ = lower.ask(cx, TakeViews);
        let my = lower.ask(cx, MyMember::default()).unwrap_or_default();
        let talk = Talk::new(my, &self.settings);
        if my.incarnation > 1 {
            talk.begin_at(cx, lower);
        }
        talk
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
        all.made(at, &upper, 0).map(drop)
    }

    fn ends(&self, cx: &Kernel, lower: &SessionRef, _: u8) -> Participants {
        group::ends(cx, lower)
    }

    /// Every message is [unsent](Self::unsent): it waits, and is noted.
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
        let (all, mine) = (own.state.waiting(), own.state.mine());
        format!("member {}, {all} waiting, {mine} of them its own", own.state.me)
    }

    fn session_control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        conversation::control(own, cx, this, ask)
    }
}
