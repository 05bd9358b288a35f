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

/// Largest number of lower protocols.
const LOWERS_MAX: usize = 8;

/// One instance of the layer.
struct VipSize {
    /// Octets of the largest message of each layer below, where the graph says so.
    cutoffs: Vec<usize>,
}

type SizeSession = VirtualSession<VipSize>;

/// One way of a session.
#[derive(Default)]
struct CutoffWay {
    session: SessionSlot,
    /// Octets of the largest message.
    cutoff: Cell<usize>,
}

/// State of a session.
#[derive(Default)]
struct Lowers {
    /// Both participants, as the lower protocols are opened with.
    both: Participants,
    /// The ways, from that of small messages on; none before they are needed.
    ways: [CutoffWay; LOWERS_MAX],
    /// Number of open ways.
    count: Cell<usize>,
    /// The way by which the last message went.
    last_used: Cell<usize>,
}

/// Builds it from its place in a graph.
pub(super) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.lower(1)?;
    let count = build.lowers.len();
    if count > LOWERS_MAX {
        return Err(BuildError::param("lowers", "two to eight layers below"));
    }
    let blocks = build.params.blocks("cutoff");
    let cutoffs: Vec<usize> = blocks.map(|block| block.octets("octets", 0)).collect();
    let falls = |&at: &usize| at > 0 && cutoffs.get(at - 1) >= cutoffs.get(at);
    if let Some(index) = (0..cutoffs.len()).find(|at| at + 1 >= count || falls(at)) {
        let expected = "rising cutoffs, one for each layer but the last".into();
        return Err(BuildError::Param { name: "cutoff", index, expected });
    }
    Virtual::build(build, VipSize { cutoffs })
}

impl Lowers {
    /// The ways that are open.
    fn open(&self) -> &[CutoffWay] {
        self.ways.get(..self.count.get()).unwrap_or_default()
    }

    fn sessions(&self) -> impl Iterator<Item = SessionRef> {
        self.open().iter().filter_map(|way| way.session.get())
    }

    fn last(&self) -> Option<SessionRef> {
        self.open().last()?.session.get()
    }

    /// The cutoffs of the ways that are open, but for the last.
    fn cutoffs(&self) -> impl Iterator<Item = usize> {
        self.ways.iter().take(self.count.get().saturating_sub(1)).map(|way| way.cutoff.get())
    }

    /// The way of a message of so many octets.
    #[inline]
    fn of(&self, octets: usize) -> Option<SessionRef> {
        let mut ways = self.open().iter().enumerate();
        let (at, way) = ways.find(|(_, way)| octets <= way.cutoff.get())?;
        self.last_used.set(at);
        way.session.live()
    }

    /// Closes all ways; they are opened again for the next message.
    fn close(&self, cx: &Kernel) {
        self.count.set(0);
        for lower in self.ways.iter().filter_map(|way| way.session.take()) {
            lower.head().set_tag(0);
            lower.close(cx);
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
        for (at, (lower, way)) in lowers.iter().zip(&state.ways).enumerate() {
            let opened = lower.open(cx, own.receiver.upper(), state.both.clone());
            let session = opened.inspect_err(|_| state.close(cx))?;
            session.head().set_tag(own.mark.get());
            way.cutoff.set(match own.all.layer.cutoffs.get(at) {
                // To the last one goes whatever is left.
                _ if at + 1 == lowers.len() => usize::MAX,
                Some(cutoff) => *cutoff,
                None => opt_packet(cx, &session, u32::MAX) as usize,
            });
            if let Some(old) = way.session.replace(Some(session)) {
                old.close(cx);
            }
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
        match own.state.of(message.len()) {
            Some(way) => way.push(cx, message),
            None => push_first(own, cx, this, message),
        }
    }

    fn describe(own: &SizeSession) -> String {
        let cutoffs: Vec<usize> = own.state.cutoffs().collect();
        format!("{}, cutoffs {cutoffs:?}", own.host())
    }

    fn headers(own: &SizeSession, cx: &Kernel) -> Option<Headers> {
        let headers = Headers::of(cx, &own.state.sessions().next()?)?;
        let cutoff = own.state.cutoffs().next()?;
        Some(Headers { sent: headers.sent.carrying(cutoff), ..headers })
    }

    fn session_control(own: &SizeSession, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        let last = own.state.last();
        let found = if let Some(question) = ask.get::<PeerOnLink>() {
            last.map(|last| question.on_link = !is_far(cx, &last))
        } else if let Some(question) = ask.get::<OptPacket>() {
            opt_octets(own, cx, last.as_ref()).map(|octets| question.octets = octets)
        } else {
            return answer_kept(own, cx, ask).unwrap_or_else(|| own.answer(cx, last, ask));
        };
        found.map_or(Answer::Unknown, |()| Answer::Answered)
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
        let way = state.ways.get(state.last_used.get()).and_then(|way| way.session.get());
        let kept = way.and_then(|way| way.ask(cx, LastCopy::default()));
        question.ticket = kept.map_or(0, |kept| kept.ticket);
    } else if let Some(question) = ask.get::<FreeCopy>() {
        for way in state.sessions() {
            let _ = way.ask(cx, *question);
        }
    } else {
        let question = ask.get::<AskCopy>()?;
        let states = state.sessions().filter_map(|way| way.ask(cx, *question));
        let mut states = states.map(|asked| asked.state);
        let known = states.find(|state| *state != CopyState::Gone);
        question.state = known.unwrap_or_default();
    }
    Some(Answer::Answered)
}
