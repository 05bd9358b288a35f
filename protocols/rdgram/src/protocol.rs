//! The layer: the peer and the type number of the protocol above tell conversations apart.

use crate::calls::{Calls, note_peer};
use crate::wire::{HEADER_OCTETS, Header};
use alloc::format;
use alloc::string::String;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::Refused;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, PeerName, Protocol, ProtocolRef, SessionRef,
    reason,
};
use xk_kit::Turns;
use xk_kit::control::PeerHost;
use xk_kit::layer::{Arrival, Bounds, Conversation, Layer, Layered};

/// Room for the headers below in front of an empty reply, in octets.
const HEADROOM: usize = 128;

/// One instance of the layer.
pub struct Rdgram {
    /// Longest time that a push lasts.
    total: Duration,
    /// The askers of a host, in turn, by the session below that is asked.
    asking: Turns<u64>,
}

type Own = Conversation<Rdgram, HEADER_OCTETS, Calls>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Layered::build(build, Rdgram::new(build.duration("total")?))
}

/// Adds one to a kernel, for programs that compose without a graph file: it holds `sessions_max`
/// sessions, and a push lasts `total` at most.
pub fn add(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    sessions_max: usize,
    total: Duration,
) -> ProtocolRef {
    let bounds = Bounds::sessions(sessions_max);
    let layer = Layered::new(cx.secret(), lower, bounds, Rdgram::new(total));
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}

impl Rdgram {
    fn new(total: Duration) -> Self {
        Self { total, asking: Turns::default() }
    }
}

impl Layer<HEADER_OCTETS, Calls> for Rdgram {
    /// The type number of the protocol above.
    type Key = u32;
    type State = ();

    fn key_of(header: &[u8; HEADER_OCTETS]) -> u32 {
        Header::parse(header).number
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, _: u32) {}

    /// The layer below refuses what is too long.
    fn octets_max(&self, _: &Kernel, _: &SessionRef, _: u32) -> usize {
        usize::MAX
    }

    fn ways(&self, calls: Calls) -> Calls {
        calls.lasting(self.total)
    }

    fn header(&self, own: &Own, _: &Message) -> Option<[u8; HEADER_OCTETS]> {
        Some(Header { number: own.key }.emit())
    }

    fn ends(&self, _: &Kernel, lower: &SessionRef, _: u32) -> Participants {
        Participants::pair(Part::Any, Part::Host(lower.head().peer().host()))
    }

    fn describe(&self, own: &Own) -> String {
        format!("rdgram > {} to {}", own.key, own.ways.peer)
    }

    fn call_demux(
        all: &Layered<Self, HEADER_OCTETS, Calls>,
        Arrival { cx, this, lower }: Arrival<'_>,
        request: Message,
    ) -> Result<Message, Refused> {
        // Not in `open_done`, which other messages overtake while it blocks; what comes meanwhile
        // does not overtake this one.
        if lower.head().peer() == PeerName::UNKNOWN {
            let _turn = all.layer.asking.take(cx, lower.id().0);
            if let Err(why) = note_peer(cx, lower) {
                return Err(this.refuse(request, why));
            }
        }
        // Before it is delivered: what was delivered must be acknowledged.
        let Ok(reply) = cx.pool().empty(HEADROOM) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        all.demux(cx, this, lower, request).map(|()| reply)
    }

    fn session_control(own: &Own, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let host = |question: &mut PeerHost| question.host = own.ways.peer.host();
        match ask.answer(host) {
            Answer::Unknown => own.answer(cx, ask),
            answered => answered,
        }
    }
}
