//! The layer: which way each message goes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, PushError, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, ProtocolRef, SessionRef,
};
use xk_kit::control::{MaxPacket, OptPacket, opt_packet};
use xk_kit::net::neighbour::{PeerOnLink, WayChanged, is_far};
use xk_kit::net::template::Headers;
use xk_kit::net::virtual_layer::{NO_WAY, Virtual, VirtualLayer, VirtualSession};
use xk_kit::rpc::retransmit::{AskCopy, CopyState, FreeCopy, LastCopy};

/// Sessions that it holds unless the graph says otherwise.
pub(crate) const SESSIONS_MAX: usize = 65_536;
/// From how many sessions on each that a message makes takes the place of an idle one.
pub(crate) const IDLE_MAX: usize = 4096;
/// Largest number of lower protocols.
const LOWERS_MAX: usize = 8;

/// One instance of the layer.
pub struct VipSize {
    /// Octets of the largest message of each layer below, where the graph says so.
    cutoffs: Vec<usize>,
}

type SizeSession = VirtualSession<VipSize>;

/// State of a session.
#[derive(Default)]
pub struct Lowers {
    /// Both participants, as the lower protocols are opened with.
    both: Participants,
    /// The ways, from that of small messages on; none before they are needed.
    lowers: [SessionSlot; LOWERS_MAX],
    /// Octets of the largest message of each way but the last.
    cutoffs: [Cell<usize>; LOWERS_MAX],
    /// Number of open ways.
    count: Cell<usize>,
    /// By which the last message went.
    last_used: Cell<usize>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.lower(1)?;
    let cutoffs: Vec<usize> =
        build.params.blocks("cutoff").map(|block| block.octets("octets", 0)).collect();
    let sessions_max = build.int("sessions_max")?;
    let bounds = (sessions_max, build.int("idle_max")?);
    let made = layered(build.cx, build.lowers.to_vec(), cutoffs, bounds)?;
    build.add(made)
}

/// Adds one to a kernel, for programs that compose without a graph file: on `lowers`, two to eight,
/// from the one for the smallest messages to the one for the largest; `cutoffs` may be fewer, and
/// each that is missing is asked for.
///
/// # Errors
/// [`BuildError::Lower`] if there are too few or too many layers below, [`BuildError::Param`] as
/// for [`build`].
pub fn add(
    cx: &Kernel,
    name: &str,
    lowers: Vec<ProtocolRef>,
    cutoffs: Vec<usize>,
) -> Result<ProtocolRef, BuildError> {
    let made = layered(cx, lowers, cutoffs, (SESSIONS_MAX, IDLE_MAX))?;
    Ok(cx.add_protocol(crate::ENTRY.kind, name, made))
}

fn layered(
    cx: &Kernel,
    lowers: Vec<ProtocolRef>,
    cutoffs: Vec<usize>,
    bounds: (usize, usize),
) -> Result<Virtual<VipSize>, BuildError> {
    let count = lowers.len();
    if count < 2 {
        return Err(BuildError::Lower { at: count });
    }
    if count > LOWERS_MAX {
        return Err(BuildError::Param {
            name: "lowers",
            index: LOWERS_MAX,
            expected: "two to eight layers below".into(),
        });
    }
    for (index, cutoff) in cutoffs.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|at| cutoffs.get(at));
        let rises = before.is_none_or(|before| before < cutoff);
        if !rises || index + 1 >= count {
            return Err(BuildError::Param {
                name: "cutoff",
                index,
                expected: "rising cutoffs, one for each layer but the last".into(),
            });
        }
    }
    Ok(Virtual::new(cx.secret(), lowers, bounds, VipSize { cutoffs }))
}

impl Lowers {
    fn last(&self) -> Option<SessionRef> {
        let last = self.count.get().checked_sub(1)?;
        self.lowers.get(last)?.get()
    }

    /// The ways that are open.
    fn open(&self) -> impl Iterator<Item = SessionRef> {
        let ways = self.lowers.iter().take(self.count.get());
        ways.filter_map(SessionSlot::get)
    }

    /// The cutoffs of the ways that are open, but for the last.
    fn cutoffs(&self) -> impl Iterator<Item = usize> {
        self.cutoffs.iter().take(self.count.get().saturating_sub(1)).map(Cell::get)
    }

    /// The way of a message of so many octets.
    #[inline]
    fn of(&self, octets: usize) -> Option<SessionRef> {
        let cutoffs = self.cutoffs.iter().take(self.count.get());
        let mut ways = cutoffs.zip(&self.lowers).enumerate();
        let (at, (_, lower)) = ways.find(|(_, (cutoff, _))| octets <= cutoff.get())?;
        self.last_used.set(at);
        lower.live()
    }

    /// Closes all ways; they are opened again for the next message.
    fn close(&self, cx: &Kernel) {
        self.count.set(0);
        for slot in &self.lowers {
            if let Some(lower) = slot.take() {
                lower.head().set_tag(0);
                lower.close(cx);
            }
        }
    }
}

impl VirtualLayer for VipSize {
    type State = Lowers;

    fn begin(
        _: &Virtual<Self>,
        _: &Kernel,
        _: &ProtocolRef,
        ends: &Participants,
        is_passive: bool,
    ) -> Lowers {
        let mut both = ends.clone();
        // Which host of ours answers is the layers' below, each of which may have another.
        if is_passive && let Ok(local) = both.local_mut() {
            *local = Participant::of(Part::Any);
        }
        Lowers { both, ..Lowers::default() }
    }

    /// Opens all ways.
    fn connect(own: &SizeSession, cx: &Kernel) -> Result<(), OpenError> {
        let (lowers, state) = (&own.all.lowers, &own.state);
        for (at, lower) in lowers.iter().enumerate() {
            let opened = lower.open(cx, own.receiver.upper(), state.both.clone());
            let session = opened.inspect_err(|_| state.close(cx))?;
            session.head().set_tag(own.mark.get());
            if let (Some(slot), Some(cutoff)) = (state.lowers.get(at), state.cutoffs.get(at)) {
                let known = own.all.layer.cutoffs.get(at).copied();
                let otherwise = || opt_packet(cx, &session, u32::MAX) as usize;
                cutoff.set(known.unwrap_or_else(otherwise));
                if let Some(old) = slot.replace(Some(session)) {
                    old.close(cx);
                }
            }
        }
        // To the last one goes whatever is left.
        if let Some(cutoff) = state.cutoffs.get(lowers.len().wrapping_sub(1)) {
            cutoff.set(usize::MAX);
        }
        state.count.set(lowers.len());
        if own.is_closed.get() {
            // While a layer below waited.
            state.close(cx);
            return Err(OpenError::NoLower);
        }
        Ok(())
    }

    #[inline]
    fn push(
        own: &SizeSession,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let Some(way) = own.state.of(message.len()) else {
            return push_first(own, cx, this, message);
        };
        way.push(cx, message)
    }

    fn describe(own: &SizeSession) -> String {
        let cutoffs: Vec<usize> = own.state.cutoffs().collect();
        format!("{}, cutoffs {cutoffs:?}", own.host())
    }

    fn headers(own: &SizeSession, cx: &Kernel) -> Option<Headers> {
        let headers = Headers::of(cx, &own.state.open().next()?)?;
        let cutoff = own.state.cutoffs().next()?;
        Some(Headers { sent: headers.sent.carrying(cutoff), ..headers })
    }

    fn session_control(own: &SizeSession, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(answer) = answer_kept(own, cx, ask) {
            return answer;
        }
        let last = own.state.last();
        if let Some(question) = ask.get::<PeerOnLink>() {
            let Some(last) = last else {
                return Answer::Unknown;
            };
            question.on_link = !is_far(cx, &last);
        } else if let Some(question) = ask.get::<OptPacket>() {
            let Some(octets) = opt_octets(own, cx, last.as_ref()) else {
                return Answer::Unknown;
            };
            question.octets = octets;
        } else {
            return own.answer(cx, last, ask);
        }
        Answer::Answered
    }

    fn told(all: &Virtual<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> bool {
        let Some(changed) = ask.get::<WayChanged>() else {
            return false;
        };
        all.for_host(changed.host, |own| own.state.close(cx));
        true
    }

    fn end(own: &SizeSession, cx: &Kernel) {
        own.state.close(cx);
    }
}

/// The first message of a session that a message made, and the first after a way was closed by
/// others.
#[cold]
#[inline(never)]
fn push_first(
    own: &SizeSession,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
) -> Result<(), PushError> {
    let connected = VipSize::connect(own, cx);
    let way = connected.ok().and_then(|()| own.state.of(message.len()));
    let Some(way) = way else {
        this.discard(cx, message, &NO_WAY);
        return Err(PushError::NoRoute);
    };
    way.push(cx, message)
}

/// Octets of the largest message that goes whole by some way.
fn opt_octets(own: &SizeSession, cx: &Kernel, last: Option<&SessionRef>) -> Option<u32> {
    let of = |lower: &ProtocolRef| lower.ask(cx, OptPacket::default()).map(|own| own.octets);
    let by_last = match last {
        Some(last) => last.ask(cx, OptPacket::default()).map(|own| own.octets),
        // Before there are ways, what the layers say by themselves.
        None => own.all.lowers.iter().filter_map(of).max(),
    };
    let whole = own.state.cutoffs().map(|cutoff| u32::try_from(cutoff).unwrap_or(u32::MAX));
    let most = whole.chain(by_last).max()?;
    let max = last.and_then(|last| last.ask(cx, MaxPacket::default()));
    Some(max.map_or(most, |max| most.min(max.octets)))
}

/// Questions about copies of what was sent (`xk_kit::rpc::retransmit`) are for the way that it
/// went. Any way may have kept it that is asked for by name: names are numbers that the instances
/// count by themselves, from anywhere.
fn answer_kept(own: &SizeSession, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
    let state = &own.state;
    if let Some(question) = ask.get::<LastCopy>() {
        let way = state.lowers.get(state.last_used.get());
        let kept = way.and_then(SessionSlot::get);
        let kept = kept.and_then(|way| way.ask(cx, LastCopy::default()));
        question.ticket = kept.map_or(0, |kept| kept.ticket);
    } else if let Some(question) = ask.get::<FreeCopy>() {
        for way in state.open() {
            let _ = way.ask(cx, *question);
        }
    } else {
        let question = ask.get::<AskCopy>()?;
        let states = state.open().filter_map(|way| way.ask(cx, *question));
        let mut states = states.map(|asked| asked.state);
        let known = states.find(|state| *state != CopyState::Gone);
        question.state = known.unwrap_or_default();
    }
    Some(Answer::Answered)
}
