//! The layer: a conversation is one upper protocol's pings to one node; requests are answered.

use crate::wire::{DATA_LEN_MAX, Function, HEADER_LEN};
use alloc::string::String;
use core::cell::Cell;
use xk_appletalk::ddp::SOCKET_ECHO;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef,
    Upper, question, reason,
};
use xk_kit::Turns;
use xk_kit::layer::{Arrival, Bounds, Conversation, Layer, Layered};
use xk_kit::net::appletalk::{DdpEnds, NODE, SOCKET};
use xk_kit::net::attribute::LinkCast;

/// Why it drops messages, besides the reasons that all protocols share.
pub mod reasons {
    use xk_core::reason::{Class, Reason};

    /// An echo request to all stations.
    pub static BROADCAST: Reason = Reason::new("broadcast request", Class::NotMine);
    /// The layer below did not take an answer.
    pub static NOT_SENT: Reason = Reason::new("not sent", Class::Exhausted);
    /// A reply that no session waits for.
    pub static UNMATCHED: Reason = Reason::new("unmatched reply", Class::NotMine);
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AepFigures {
    /// Requests answered.
    pub answered: u64,
}

question!(AepFigures { answered }, "aep-figures", Ask);

/// The owner of pings: the upper protocol, and the node as a number.
type Owner = (u32, u64);

/// One instance.
pub struct Aep {
    /// The socket of each upper protocol's pings to each node.
    owners: Map<Owner, u8>,
    /// Opens under way.
    opening: Turns<Owner>,
    answered: Cell<u64>,
}

type Pings = Layered<Aep, HEADER_LEN>;
type Pinging = Conversation<Aep, HEADER_LEN>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions = build.int("sessions_max")?;
    let secret = build.cx.secret();
    let aep = Aep {
        owners: Map::new(secret, sessions),
        opening: Turns::default(),
        answered: Cell::new(0),
    };
    let lower = build.lower(0)?;
    build.add(Layered::new(secret, lower, Bounds::sessions(sessions), aep))
}

/// A node as a number.
fn number(node: &Participant) -> u64 {
    node.parts().fold(0, |number, part| match part {
        Part::Number(NODE, node) => number | node & 0xff,
        Part::Number(_, net) => number | net << 8,
        _ => number,
    })
}

impl Layer<HEADER_LEN> for Aep {
    /// The function: replies come to the session that the requests went by.
    type Key = u8;
    /// Owner of the session; `None` if it was never bound.
    type State = Cell<Option<Owner>>;

    const NO_RECEIVER: &'static Reason = &reasons::UNMATCHED;
    const OCTETS_MAX: usize = DATA_LEN_MAX;

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: &mut Participants,
    ) -> Result<u64, OpenError> {
        // Requests are answered here.
        Err(OpenError::NotSupported)
    }

    #[inline(always)]
    fn key_of([function]: &[u8; HEADER_LEN]) -> u8 {
        *function
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, _: u8) -> Cell<Option<Owner>> {
        Cell::new(None)
    }

    #[inline(always)]
    fn header(&self, _: &Pinging, _: &Message) -> Option<[u8; HEADER_LEN]> {
        Some([Function::Request as u8])
    }

    fn end(own: &Pinging, _: &Kernel, _: &SessionRef) {
        if let Some(owner) = own.state.take() {
            own.all.layer.owners.unbind(&owner);
        }
    }

    fn describe(&self, own: &Pinging) -> String {
        alloc::format!("echo on {:?}", own.lower())
    }

    fn start(all: &Pings, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let socket = Participants::local(Part::Number(SOCKET, SOCKET_ECHO.into()));
        all.lower.open_enable(cx, Upper::new(this), socket).map(drop)
    }

    fn open(
        all: &Pings,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let aep = &all.layer;
        let peer = ends.peer_mut()?;
        let owner = (upper.receiver.id().0, number(peer));
        peer.push(Part::Number(SOCKET, SOCKET_ECHO.into()));
        let _turn = aep.opening.take(cx, owner);
        let socket = match aep.owners.get(&owner) {
            None | Some(0) => Part::Any,
            Some(socket) => Part::Number(SOCKET, socket.into()),
        };
        *ends.local_mut()? = socket.into();
        let lower = all.lower.open(cx, Upper::new(this), ends)?;
        let opened = all.open_on(cx, this, upper.receiver, &lower, Function::Reply as u8);
        let session = opened.inspect_err(|_| lower.close(cx))?;
        if let Some(own) = session.body::<Pinging>()
            && own.state.get().is_none()
        {
            let socket = lower.ask(cx, DdpEnds::default()).map_or(0, |ends| ends.local.2);
            // There are no more of them than sessions.
            if aep.owners.bind(owner, socket).is_ok() {
                own.state.set(Some(owner));
            }
        }
        Ok(session)
    }

    fn first(
        all: &Pings,
        at: Arrival<'_>,
        octets: &[u8; HEADER_LEN],
        message: Message,
    ) -> Result<(), Refused> {
        let refuse = |message, why| all.refuse(at, Some(octets), message, why);
        match Function::parse(octets[0]) {
            Ok(Function::Request) if message.attribute::<LinkCast>().is_some() => {
                refuse(message, &reasons::BROADCAST)
            }
            Ok(Function::Request) => answer(all, at, octets, message),
            Ok(Function::Reply) => refuse(message, &reasons::UNMATCHED),
            Err(_) => refuse(message, &reason::NOT_SUPPORTED),
        }
    }

    fn control(all: &Pings, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<AepFigures>() {
            question.answered = all.layer.answered.get();
            return Answer::Answered;
        }
        all.answer(cx, ask)
    }

    fn stop(&self) {
        self.owners.clear();
    }
}

/// Sends a request back as a reply: the payload stays where it is.
fn answer(
    all: &Pings,
    at: Arrival<'_>,
    octets: &[u8; HEADER_LEN],
    mut message: Message,
) -> Result<(), Refused> {
    if !message.strip(HEADER_LEN) {
        return all.refuse(at, Some(octets), message, &reason::TRUNCATED);
    }
    let sent = message
        .push_array(&[Function::Reply as u8])
        .map_err(|_| PushError::NoBuffers)
        .and_then(|()| at.lower.push(at.cx, message));
    let drops = at.this.head().drops();
    match sent {
        Ok(()) => all.layer.answered.set(all.layer.answered.get() + 1),
        Err(PushError::NoBuffers) => drops.count(&reason::NO_BUFFERS),
        Err(_) => drops.count(&reasons::NOT_SENT),
    }
    Ok(())
}
