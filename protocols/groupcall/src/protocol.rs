//! The layer: on each conversation a session for each procedure that is served, and one for each
//! that a protocol above calls.

use crate::calls::{self, CALLS_MAX, Calls};
use crate::served::{Asked, Served};
use crate::wire::{CALL, HEADER_OCTETS, Header, REMINDER, REPLY};
use alloc::format;
use alloc::string::String;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallError, OpenError, PushError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason::{Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, SessionRef, Upper, reason,
};
use xk_kit::group::{Aside, MaskOut, MyMember, Node, Want};
use xk_kit::layer::{Arrival, Conversation, Layer, Layered};
use xk_kit::rpc::call::{
    CallsAtOnce, CancelCall, GathersReplies, MyProcedure, NO_PROCEDURE, PROCEDURE, pop_definite,
    pop_local,
};
use xk_kit::rpc::codes::code_of;
use xk_kit::rpc::retransmit::SavedMessage;
use xk_kit::rpc::server::OfferingServers;

/// A call that was executed, or is, came again.
pub(crate) static REPEATED: Reason = Reason::new("repeated call", Class::NotMine);
/// A caller lacks a reply that there is not yet, or not any more.
pub(crate) static NO_REPLY: Reason = Reason::new("no such reply", Class::NotMine);

/// Room for the headers of the layers below, in octets.
pub(crate) const HEADROOM: usize = 128;
/// The offer of all procedures.
const ANY: u32 = u32::MAX;

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        replies: u32 = int(0..=63, 0,
            "how many replies a call waits for; 0: one of each member that is not masked out"),
        majority: bool = flag(false,
            "whether a call waits for replies of more than half of the other members"),
        first_wait: Duration = duration(Duration::from_millis(100),
            "how long after the call members that have not replied are reminded first"),
        wait_max: Duration = duration(Duration::from_secs(2),
            "the longest time between two reminders"),
        total: Duration = duration(Duration::from_secs(30), "how long a call lasts at most"),
        sessions_max: u32 = int(1..=1_048_576, 1024,
            "how many sessions it holds; idle ones are evicted for new ones"),
    }
}

impl Settings {
    pub(crate) fn want(&self) -> Want {
        match self.replies {
            0 if self.majority => Want::Majority,
            0 => Want::All,
            count => Want::Count(count as u8),
        }
    }
}

/// One instance of the layer.
pub struct GroupCall {
    pub(crate) settings: Settings,
    pub(crate) calls: Calls,
    servers: OfferingServers,
}

/// State of a session.
pub struct State {
    pub(crate) me: u8,
    pub(crate) members: u8,
    pub(crate) procedure: u32,
    /// Whether it is one of those that call.
    pub(crate) calls: bool,
    /// The calls of others that this session has executed.
    served: RefCell<Served<SavedMessage>>,
}

/// The session object.
pub(crate) type Own = Conversation<GroupCall, HEADER_OCTETS>;
type All = Layered<GroupCall, HEADER_OCTETS>;

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on, [`BuildError::Param`] if a call
/// is to wait for a majority and for a number, or a time is 0.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    if settings.majority && settings.replies > 0 {
        return Err(BuildError::param("replies", "0, since a majority is waited for"));
    }
    if settings.first_wait.is_zero() {
        return Err(BuildError::param("first_wait", "more than no time"));
    }
    let (calls, servers) = (Calls::default(), OfferingServers::default());
    Layered::build(build, GroupCall { settings, calls, servers })
}

/// The key of the session that serves a procedure; those that call it have the number of the
/// protocol above besides.
fn serving(procedure: u32) -> u64 {
    procedure.into()
}

/// Takes the procedure off our own end, which is any process then unless it says more.
fn pop_procedure(ends: &mut Participants) -> Result<Wild<u32>, AddressError> {
    let local = ends.local_mut()?;
    let procedure = pop_local(local, PROCEDURE)?;
    if local.is_empty() {
        local.push(Part::Any);
    }
    Ok(procedure)
}

/// Sends a message of this layer's to one member.
pub(crate) fn aside(
    cx: &Kernel,
    lower: &SessionRef,
    member: u8,
    header: Header,
    mut message: Message,
) -> Result<(), PushError> {
    message.clear_attributes();
    message.push_array(&header.emit()).map_err(|_| PushError::NoBuffers)?;
    message.set_attribute(Aside { member }).map_err(|_| PushError::NoBuffers)?;
    lower.push(cx, message)
}

impl GroupCall {
    fn server(&self, procedure: u32) -> Option<ProtocolRef> {
        let found = self.servers.get(procedure).or_else(|| self.servers.get(ANY));
        found.map(|(server, _)| server)
    }
}

/// Header of the reply to a call, or of its refusal.
fn reply_to(call: &Header, why: u16) -> Header {
    Header { kind: REPLY, why, first: 0, ..*call }
}

/// The member that a message came from, by its place, or aside.
fn sender(header: &Header, message: &Message) -> Option<u8> {
    match header.kind {
        CALL => message.attribute::<Node>().map(|node| node.id.sender),
        _ => message.attribute::<Aside>().map(|aside| aside.member),
    }
}

impl Layer<HEADER_OCTETS> for GroupCall {
    /// Number of the procedure, and in the upper half of the protocol that calls it.
    type Key = u64;
    type State = State;

    const CARRIES_CALLS: bool = true;

    fn key_of(header: &[u8; HEADER_OCTETS]) -> u64 {
        serving(Header::parse(header).procedure)
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, key: u64) -> State {
        let MyMember { index, members, .. } =
            lower.ask(cx, MyMember::default()).unwrap_or_default();
        State {
            me: index,
            members,
            procedure: key as u32,
            calls: key >> 32 != 0,
            served: RefCell::default(),
        }
    }

    fn servers(&self) -> Option<&OfferingServers> {
        Some(&self.servers)
    }

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        match pop_procedure(ends)? {
            Wild::Is(ANY) => Err(AddressError::OutOfRange.into()),
            Wild::Is(number) => Ok(number.into()),
            Wild::Any => Ok(ANY.into()),
        }
    }

    fn open(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let named = |part: Option<&Part>| matches!(part, Some(Part::Number(PROCEDURE, _)));
        let mut procedure = None;
        for peer in ends.peers_mut().iter_mut().filter(|peer| named(peer.top())) {
            let number = pop_definite(peer, PROCEDURE)?;
            if *procedure.get_or_insert(number) != number {
                return Err(OpenError::NotSupported);
            }
        }
        let procedure = procedure.filter(|number| *number != ANY);
        let procedure = procedure.ok_or(AddressError::Missing)?;
        pop_procedure(&mut ends)?;
        let lower = all.lower.open(cx, Upper::new(this), ends)?;
        let key = u64::from(upper.receiver.id().0 + 1) << 32 | serving(procedure);
        let opened = all.open_on(cx, this, upper.receiver, &lower, key);
        opened.inspect_err(|_| lower.close(cx))
    }

    fn deliver(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        octets: &[u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        let header = match Header::read(octets) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(cx, message, why)),
        };
        let Some(member) = sender(&header, &message) else {
            return Err(this.refuse(cx, message, &reason::MALFORMED));
        };
        match header.kind {
            CALL => serve(own, cx, this, &header, message),
            REMINDER => reply_again(own, cx, this, member, &header, message),
            _ => {
                let lower = own.lower().id();
                let answered = own.all.layer.calls.answer(cx, lower, member, &header, message);
                answered.map_err(|(reply, why)| this.refuse(cx, reply, why))
            }
        }
    }

    /// A call makes the session of its procedure; a reply is for one that calls.
    fn first(
        all: &All,
        at: Arrival<'_>,
        octets: &[u8; HEADER_OCTETS],
        mut message: Message,
    ) -> Result<(), Refused> {
        let Arrival { cx, this, lower } = at;
        let header = match Header::read(octets) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(message, why)),
        };
        let Some(member) = sender(&header, &message) else {
            return Err(this.refuse(message, &reason::MALFORMED));
        };
        if header.kind == REPLY {
            let _ = message.strip(HEADER_OCTETS);
            let answered = all.layer.calls.answer(cx, lower.id(), member, &header, message);
            return answered.map_err(|(reply, why)| this.refuse(reply, why));
        }
        let made = match all.layer.server(header.procedure) {
            // The call is under way still, or was forgotten.
            Some(_) if header.kind == REMINDER => return Err(this.refuse(message, &NO_REPLY)),
            Some(upper) => all.made(at, &upper, serving(header.procedure)),
            None => Err(&NO_PROCEDURE),
        };
        match made {
            Ok(session) => session.pop(cx, message),
            Err(why) => {
                if let Ok(refusal) = cx.pool().empty(HEADROOM) {
                    let _ = aside(cx, lower, member, reply_to(&header, code_of(why)), refusal);
                }
                Err(this.refuse(message, why))
            }
        }
    }

    fn call(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        calls::call(own, cx, this, request)
    }

    fn describe(&self, own: &Own) -> String {
        let (procedure, waiting) = (own.state.procedure, self.calls.len());
        let (kept, octets) = own.state.served.borrow().kept();
        match own.state.calls {
            true => format!("calls procedure {procedure}, {waiting} calls wait"),
            false => format!("serves procedure {procedure}, {kept} calls of {octets} octets kept"),
        }
    }

    fn session_control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let calls = &own.all.layer.calls;
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = own.state.procedure;
        } else if let Some(question) = ask.get::<CallsAtOnce>() {
            question.calls = CALLS_MAX as u32;
        } else if let Some(CancelCall { tag }) = ask.get() {
            return match calls.cancel(cx, this.id(), *tag) {
                true => Answer::Answered,
                false => Answer::Unknown,
            };
        } else if own.state.calls && ask.get::<GathersReplies>().is_some() {
            return Answer::Answered;
        } else {
            let answer = own.answer(cx, ask);
            if answer.is_answered() && ask.get::<MaskOut>().is_some() {
                calls.look(own, cx);
            }
            return answer;
        }
        Answer::Answered
    }

    fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
        own.all.layer.calls.close(cx, this.id());
    }

    fn drain(own: &Own) {
        drop(own.state.served.take());
    }

    fn stop(&self) {
        self.calls.clear();
    }
}

/// Has a call executed above, and sends the reply.
fn serve(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    header: &Header,
    request: Message,
) -> Result<(), Refused> {
    let Some(Node { id, incarnation, .. }) = request.attribute() else {
        return Err(this.refuse(cx, request, &reason::MALFORMED));
    };
    let served = &own.state.served;
    let from = (id.sender, incarnation);
    if !served.borrow_mut().begin(from, header.call, header.first) {
        return Err(this.refuse(cx, request, &REPEATED));
    }
    // What is in use is not evicted.
    this.hold();
    let (why, reply) = match own.upper.call_demux(cx, this, request) {
        Ok(reply) if reply.len() <= own.octets_max => (0, Some(reply)),
        Ok(reply) => {
            this.discard(cx, reply, &reason::TOO_BIG);
            (code_of(&reason::TOO_BIG), None)
        }
        Err(refused) => (code_of(refused.reason), None),
    };
    let message = reply.map_or_else(|| cx.pool().empty(HEADROOM), Ok);
    let mut kept = SavedMessage::new();
    match message.and_then(|mut message| {
        message.clear_attributes();
        message.push_array(&reply_to(header, why).emit())?;
        kept.save(&message).map(|()| message)
    }) {
        Ok(message) => {
            let octets = message.len();
            served.borrow_mut().end(id.sender, header.call, kept, octets, cx.now());
            send_reply(own, cx, id.sender, message);
        }
        // Without it the caller waits for its deadline.
        Err(_) => this.count_drop(cx, &reason::NO_BUFFERS),
    }
    this.ease(cx);
    Ok(())
}

fn send_reply(own: &Own, cx: &Kernel, member: u8, mut message: Message) {
    if message.set_attribute(Aside { member }).is_ok() {
        // One that is lost is asked for.
        let _ = own.lower().push(cx, message);
    }
}

/// Sends a reply again that a caller lacks.
fn reply_again(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    member: u8,
    header: &Header,
    reminder: Message,
) -> Result<(), Refused> {
    let mut served = own.state.served.borrow_mut();
    let again = match served.again(member, header.call, header.first, cx.now()) {
        Asked::Reply(reply) => reply.again(cx.pool()),
        Asked::Nothing => return Err(this.refuse(cx, reminder, &NO_REPLY)),
    };
    drop(served);
    if let Ok(Some(message)) = again {
        send_reply(own, cx, member, message);
    }
    Ok(())
}
