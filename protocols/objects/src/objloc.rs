//! # Synopsis
//! `objloc LOWER` — finds objects that move from host to host; the lowest of Emerald's three
//! protocols.
//!
//! # Participants
//! Hosts. If the layer below has ports, as `reqrep` on `udp`, all hosts use the port `at`, which
//! may stand on top: `port2005@10.0.0.2`.
//!
//! # Behaviour
//! `objloc` carries requests of the protocol above to a host unchanged, behind four octets. So a
//! call is executed as often as the layer below guarantees: on `channel` at most once.
//!
//! It keeps the places of objects: those that are here, and for others the host that was last
//! reported. A place has a count, which grows with every move; of two the one with the greater
//! count is valid. `object-place` reads and changes a place. `find-object` finds an object, and may
//! wait for hosts, which are asked in this order:
//!
//! 1. The host that was last reported, then the hosts along forwarding pointers, up to 16. Each
//!    pointer must have a greater count than the one before, so there are no loops.
//! 2. All hosts at once by `everyone`, if the layer below gathers replies (`reqrep` on `udp`):
//!    three times, for `answer_wait`, then for doubled times. Only a host that has the object, or
//!    is about to get it, replies.
//! 3. Each of `nodes` and of the 64 hosts that were heard last, alone, twice. Each replies. A host
//!    counts as heard if it has answered a question, or if the layer below has proved its address.
//!
//! The newest pointer of a host that was asked in the second and third step is followed, too.
//! Shepherds that look for one object at one time share what the first finds.
//!
//! At most `objects_max` objects are here; others come only as long as half of the room is free.
//! The places of at most `hints_max` others are known. The oldest of these is forgotten for a new
//! one, at the cost of a search.
//!
//! # Security
//! Hosts are not authenticated. A forged answer misleads a search for one step: a place that is
//! older than the one that led there is not believed, but counted as `stale place`, and an
//! invocation that does not find the object there searches again.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim      link=lan
//!     eth      sim
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     fragment ip
//!     channel  fragment
//!     objloc   channel nodes="10.0.0.2, 10.0.0.3"
//!     objinv   objloc
//!     caller   objinv to="procedure1@eid7@*"
//! }
//! ```
//!
//! # Standard
//! None; the packet format is xk's own. Jul, Levy, Hutchinson and Black, "Fine-Grained Mobility in
//! the Emerald System", for forwarding addresses and the search. The later system asks each host
//! five times; here twice is enough, because the layer below retransmits a call.

use crate::places::{Act, Known, Place, Places, Step};
use crate::wire::{ASK, ASK_HOLDER, CARRY, Front, Question, Told, VERSION};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Realm, optional, own_question,
};
use xk_core::object::{CallCause, CallError, Enable, OpenError, Refused};
use xk_core::participant::AddressError;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Entry, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef,
    Reason, SessionRef, Upper, question, reason,
};
use xk_kit::Turns;
use xk_kit::answers::is_proved;
use xk_kit::control::PeerHost;
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::between_hosts::{self, HOSTS};
use xk_kit::rpc::call::{CallOptions, Gather, GathersReplies};
use xk_kit::rpc::call_layer::{CallLayer, CallLayered, Calling, Serving, prepend, reply_of};

/// A place that is older than what led there.
pub static STALE: Reason = Reason::new("stale place", Class::Bad);
/// The object that only its holder is asked for is not here.
pub static NOT_HERE: Reason = Reason::new("object not here", Class::NotMine);

/// Room for the headers below in front of a question, in octets.
const HEADROOM: usize = 128;
const FRONT: usize = Front::OCTETS;
/// Most answers to one broadcast.
const ANSWERS_MAX: usize = 16;

/// Looks for an object, and waits for other hosts' answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindObject {
    /// The object.
    pub eid: u64,
    /// A host that may have it, or unspecified.
    pub hint: HostAddr,
    /// Whether it is not, or may not be, where it is said to be, so that hosts are asked.
    pub is_lost: bool,
    /// Out: the place, if it was found.
    pub known: Known,
}
question!(FindObject { eid, hint, is_lost, known }, "find-object", Ask);

/// Looks at, or changes, what this host knows of an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectPlace {
    /// The object.
    pub eid: u64,
    /// The change.
    pub act: Act,
    /// Out: whether it was possible.
    pub is_done: bool,
    /// Out: the place, after the change.
    pub known: Known,
    /// Out: invocations that are being executed here.
    pub busy: u32,
}
question!(ObjectPlace { eid, act, is_done, known, busy }, "object-place", Ask);

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        objects_max: usize = int(1..=16_777_216, 65_536, "how many objects are here, at most"),
        hints_max: usize = int(1..=16_777_216, 65_536,
            "of how many objects elsewhere the place is known, at most"),
        sessions_max: usize = int(1..=16_777_216, 4096,
            "how many sessions it holds, for calls and for requests each; idle ones are evicted \
             for new ones"),
        answer_wait: Duration = duration(Duration::from_millis(200),
            "how long the first broadcast waits; a host that is asked alone has five times as long"),
        ..
        /// The local participant, a port where the layer below has such.
        at: Participant = Participant::of(Part::Any),
        /// All hosts, if they can be asked at once.
        everyone: Participant = Participant::new(),
        /// Hosts that are asked for each object that is not found.
        nodes: Vec<HostAddr> = Vec::new(),
    }
    [
        optional("at", ParamKind::Participant("port2005"),
            "the port of all hosts, where the layer below has ports"),
        optional("everyone", ParamKind::Participant("port2005@10.0.0.255"),
            "all hosts at once, on a layer below that gathers replies"),
        optional("nodes", ParamKind::Text(HOSTS), "hosts that are asked one by one"),
    ]
}

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("objloc", include_str!("objloc.rs"), build)
    .summary("finds objects that move from host to host")
    .above(NODES_FAMILY)
    .on(&[Realm::Rpc], &[Family::Host, Family::Port])
    .needs(Guarantees::SESSIONS)
    .header_octets(FRONT)
    .numbers(&[("channel", 0x69)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        own_question::<FindObject>("finds an object; may wait for other hosts"),
        own_question::<ObjectPlace>("what is known of an object, and what becomes of it"),
    ])
    .reasons(&[&STALE, &NOT_HERE]);

/// The family of hosts that are asked for objects.
pub const NODES_FAMILY: Family = Family::Other("hosts of objects");

/// One instance.
pub struct ObjLoc {
    settings: Settings,
    places: RefCell<Places>,
    /// Objects that are looked for, each by one shepherd at a time.
    finding: Turns<u64>,
    /// Questions that were asked of all hosts.
    asked: Cell<u64>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a node is no host.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let usual = Settings::read(build)?;
    let settings = Settings {
        at: params.participant("at")?.unwrap_or(usual.at),
        everyone: params.participant("everyone")?.unwrap_or_default(),
        nodes: between_hosts::listed(params, "nodes")?,
        ..usual
    };
    let (secret, lower, most) = (build.cx.secret(), build.lower(0)?, settings.sessions_max);
    let places = RefCell::new(Places::new(secret, settings.objects_max, settings.hints_max));
    let layer = ObjLoc { settings, places, finding: Turns::default(), asked: Cell::new(0) };
    build.add(CallLayered::new(secret, lower, most, (), layer))
}

type All = CallLayered<ObjLoc>;

impl ObjLoc {
    /// The ends of a session below to this host.
    fn ends(&self, host: HostAddr) -> Participants {
        let mut peer = Participant::of(Part::Host(host));
        if let Some(port @ Part::Number(..)) = self.settings.at.top() {
            peer.push(*port);
        }
        Participants::pair(self.settings.at.clone(), peer)
    }

    /// A question for an object.
    fn question(cx: &Kernel, kind: u8, eid: u64, wait: Duration, tag: u64) -> Option<Message> {
        let question = Question { version: VERSION, kind, zero: 0, eid };
        let mut message = cx.pool().copy_from(HEADROOM, &question.emit()).ok()?;
        message.set_attribute(CallOptions { deadline: cx.now().after(wait), tag }).ok()?;
        Some(message)
    }

    /// Asks one host.
    fn ask(all: &All, cx: &Kernel, this: &ProtocolRef, host: HostAddr, eid: u64) -> Option<Known> {
        let wait = 5 * all.layer.settings.answer_wait;
        let question = Self::question(cx, ASK, eid, wait, 0)?;
        let lower = all.lower.open(cx, Upper::new(this), all.layer.ends(host)).ok()?;
        let reply = lower.call(cx, question);
        lower.close(cx);
        let known = answer(&reply.ok()?, host)?;
        all.layer.places.borrow().meet(host);
        Some(known)
    }

    /// Asks all hosts at once, and has `hear` hear each answer.
    fn ask_all(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        (eid, round): (u64, u8),
        mut hear: impl FnMut(Option<Known>),
    ) -> Option<()> {
        let Settings { everyone, at, answer_wait, .. } = &all.layer.settings;
        if everyone.is_empty() {
            return None;
        }
        let tag = all.layer.asked.get() + 1;
        all.layer.asked.set(tag);
        let mut question = Self::question(cx, ASK_HOLDER, eid, *answer_wait * (1 << round), tag)?;
        let ends = Participants::pair(at.clone(), everyone.clone());
        let lower = all.lower.open(cx, Upper::new(this), ends).ok()?;
        let mut next = Gather::First;
        for _ in 0..ANSWERS_MAX {
            let further = question.try_clone();
            if lower.ask(cx, GathersReplies).is_none() || question.set_attribute(next).is_err() {
                break;
            }
            match lower.call(cx, question).map_err(|error| error.cause) {
                Ok(mut reply) => {
                    let from = reply.remove_attribute::<Peer>();
                    hear(from.and_then(|from| answer(&reply, from.host)));
                }
                Err(CallCause::Rejected(_) | CallCause::BadReply) => {}
                Err(_) => break,
            }
            let Ok(further) = further else { break };
            (question, next) = (further, Gather::Next);
        }
        lower.close(cx);
        Some(())
    }

    /// Finds an object. One that another shepherd has found meanwhile is where that says.
    fn find(all: &All, cx: &Kernel, this: &ProtocolRef, wanted: &mut FindObject) {
        let layer = &all.layer;
        let FindObject { eid, .. } = *wanted;
        let look = || layer.places.borrow().look(eid);
        let hint = Some(wanted.hint).filter(|host| !host.is_unspecified());
        let before = look();
        wanted.known = before;
        if let (Known::Nothing, Some(host), false) = (before, hint, wanted.is_lost) {
            wanted.known = Known::Away(Place { host, count: 0 });
            return;
        }
        if matches!(before, Known::Here(_)) || !wanted.is_lost && before != Known::Nothing {
            return;
        }
        let _turn = layer.finding.take(cx, eid);
        wanted.known = look();
        if wanted.known != before && wanted.known != Known::Nothing {
            return;
        }
        let mut search = layer.places.borrow().search(eid, hint, &layer.settings.nodes);
        let found = loop {
            match search.step() {
                Step::Ask(host) => search.hear(Self::ask(all, cx, this, host, eid)),
                Step::Broadcast(round) => {
                    let _ =
                        Self::ask_all(all, cx, this, (eid, round), |answer| search.hear(answer));
                }
                Step::Done(found) => break found,
            }
        };
        (0..search.stale).for_each(|_| this.head().drops().count(&STALE));
        let mut places = layer.places.borrow_mut();
        places.act(eid, Act::Forget);
        if let Some(place) = found.place() {
            places.act(eid, Act::Learn(place));
        }
        // It may have come here meanwhile.
        wanted.known = match places.look(eid) {
            Known::Coming(_) => found,
            known => known,
        };
    }

    /// Answers a question of another host.
    fn answer(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (octets, request) = this.header(request)?;
        let Question { kind, eid, .. } = Question::parse(&octets);
        let known = self.places.borrow().look(eid);
        if kind == ASK_HOLDER && !matches!(known, Known::Here(_) | Known::Coming(_)) {
            return Err(this.refuse(request, &NOT_HERE));
        }
        reply_of(cx, request, &Told::of(known).emit())
    }
}

/// Reads the answer of a host.
pub(crate) fn answer(reply: &Message, from: HostAddr) -> Option<Known> {
    let mut octets = [0; Told::OCTETS];
    let is_whole = reply.copy_to(0, &mut octets) == Told::OCTETS;
    is_whole.then(|| Told::parse(&octets).known(from))?
}

impl CallLayer for ObjLoc {
    type Name = ();
    type Lower = SessionRef;
    type Calls = ();
    type Serves = ();

    fn request_octets(&self, _: Option<&()>) -> usize {
        FRONT
    }

    fn reply_octets(&self, (): &()) -> usize {
        0
    }

    fn start(all: &All, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let at = Participants::local(all.layer.settings.at.clone());
        all.lower.open_enable(cx, Upper::new(this), at).map(drop)
    }

    /// Takes a host, with or without the port that all have.
    fn pop_name(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<(), OpenError> {
        let given = ends.peer_mut()?;
        let host = match given.parts().last() {
            Some(Part::Host(host)) => *host,
            Some(Part::Any) => return Err(AddressError::Wildcard.into()),
            Some(_) => return Err(AddressError::WrongFamily.into()),
            None => return Err(AddressError::Missing.into()),
        };
        let is_alone = given.len() == 1;
        let mut own = self.ends(host);
        if !is_alone && own.peer_mut()? != given {
            return Err(AddressError::OutOfRange.into());
        }
        *ends = own;
        Ok(())
    }

    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    fn enable(
        all: &All,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        all.serve(upper, || Ok(Enable(0)))
    }

    fn disable(all: &All, _: &Kernel, _: Enable) {
        all.serve_no_more();
    }

    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        prepend(&mut request, &Front::of(CARRY).emit())?;
        own.next(cx, this, request)
    }

    #[inline(always)]
    fn name_in(request: &Message) -> Option<()> {
        let front = request.peek_in_place::<FRONT>()?;
        (*front == Front::of(CARRY).emit()).then_some(())
    }

    fn first(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (octets, request) = this.header::<FRONT>(request)?;
        let kind = Front::kind_in(&octets);
        if is_proved(cx, lower)
            && let Some(from) = lower.ask(cx, PeerHost::default())
        {
            all.layer.places.borrow().meet(from.host);
        }
        match kind {
            Some(CARRY) => match all.serving(lower, ()) {
                Some(session) => session.call_pop(cx, request),
                None => all.accept_for_server(cx, this, lower, request, || ()),
            },
            Some(ASK | ASK_HOLDER) => all.layer.answer(cx, this, request),
            _ => Err(this.refuse(request, &reason::MALFORMED)),
        }
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        // It was seen there when the session was looked for.
        let _ = request.strip(FRONT);
        own.next(cx, this, request)
    }

    fn control(all: &All, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(wanted) = ask.get::<FindObject>() {
            Self::find(all, cx, this, wanted);
        } else if let Some(asked) = ask.get::<ObjectPlace>() {
            let mut places = all.layer.places.borrow_mut();
            asked.is_done = places.act(asked.eid, asked.act);
            asked.known = places.look(asked.eid);
            asked.busy = places.busy(asked.eid).unwrap_or(0);
        } else {
            return all.answer(cx, ask);
        }
        Answer::Answered
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        let (here, hints) = own.all.layer.places.borrow().len();
        Some(alloc::format!("objloc > {:?}, {here} objects here, {hints} elsewhere", own.lower))
    }
}
