//! The layer: the number of a conversation tells it from others, and an `OPEN` names its members.

use crate::conversation::{self, BODY_OCTETS_MAX, Inner, Own, Talk, with};
use crate::restart::{Back, Heard, Restart};
use crate::wire::{
    Address, Entry, HEADER_OCTETS, Header, LAST, LISTED, NULL, Opening, VERSION, kind,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::{OpenError, ProtocolId, PushError, Refused, WeakSession};
use xk_core::participant::{AddressError, PARTICIPANTS_MAX};
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason,
    SessionRef, Time, Upper, reason,
};
use xk_kit::Turns;
use xk_kit::control::{MaxPacket, MyHost, MyPort, OptPacket};
use xk_kit::group::{
    self, ANY_PROCESS, CONVERSATION, Context, IsStable, Leave, Leaves, MaskIn, MaskOut, MemberAt,
    MemberState, MyMember, NO_PROCESS, NodeId, OrderOf, Outstanding, PROCESS, PlaceOf, SendNull,
    TakeMembers, TakeNulls, TakeViews,
};
use xk_kit::layer::{Arrival, Layer, Layered, Many, Unsent, Ways, peer_of};
use xk_kit::net::attribute::Peer;
use xk_kit::net::groups::{Filter, JoinHost, Membership};

/// Form of the parameter `group`.
const GROUP_EXPECTED: &str = "a group of hosts, such as 239.1.1.1";
/// Nodes in one answer about the graph.
const CONTEXT_MAX: usize = 64;
xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        window: u32 = int(1..=256, 16,
            "how many messages a member may have sent that another does not have yet"),
        upcalls: u32 = int(1..=64, 1,
            "how many messages of a conversation may be delivered at the same time"),
        sessions_max: u32 = int(1..=1_048_576, 64,
            "how many sessions it holds; idle ones are evicted for new ones"),
        ..
        /// The group of hosts by which messages go to all members.
        group: Option<HostAddr> = None,
    }
    [
        optional("group", ParamKind::Text(GROUP_EXPECTED),
            "a multicast group that all members join below; a message goes to it once"),
    ]
}

/// A conversation that was opened above.
struct Opened {
    upper: ProtocolId,
    ends: Participants,
    conversation: u32,
}

/// The members of a session that is being made.
enum Arriving {
    /// A list of members, and the index of this one.
    New(Opening, u8),
    /// The place in a conversation that this member comes back into.
    Back(Back),
}

impl Arriving {
    fn opening(&self) -> (&Opening, u8) {
        match self {
            Self::New(opening, me) => (opening, *me),
            Self::Back(back) => (&back.opening, back.me),
        }
    }
}

/// Members of the conversations that the packets of other hosts have begun and no protocol above
/// holds, at most, and those of one host.
const BEGUN_MAX: usize = 256;
const BEGUN_OF_HOST_MAX: usize = 64;
/// Part of that for conversations of which one packet has come: a quarter.
const NEW_PART: usize = 4;
/// A host has begun conversations of more members than are kept for one.
pub(crate) static HAS_SHARE: Reason = Reason::new("host has its share", Class::Exhausted);

/// A conversation that the packet of another host has begun.
struct Begun {
    key: u32,
    session: WeakSession,
    by: HostAddr,
    members: usize,
}

/// A conversation that another host has begun and no protocol above holds.
struct Idle {
    session: SessionRef,
    is_of_host: bool,
    members: usize,
    /// One packet of it has come.
    is_new: bool,
    heard_at: Option<Time>,
}

/// Conversations that this host may come back into without an open, and closed ones, at most.
const RETURNS_MAX: usize = 16;
const CLOSED_MAX: usize = 64;

/// One instance of the layer.
pub struct Psync {
    pub(crate) settings: Settings,
    /// The conversations of the protocols above, by what they opened.
    opened: RefCell<Vec<Opened>>,
    /// The conversations that are being opened.
    opening: Turns<u32>,
    begun: RefCell<Vec<Begun>>,
    /// Members of the conversations whose sessions are being made.
    arriving: RefCell<BTreeMap<u32, Arriving>>,
    /// The conversations, by number, that packets have come of, but that this host has lost.
    returns: RefCell<VecDeque<(u32, Restart)>>,
    /// Conversations that the protocols above have closed: this host does not come back into them.
    closed: RefCell<VecDeque<u32>>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let group: Option<HostAddr> = build.params.parse("group", GROUP_EXPECTED)?;
    if group.is_some_and(|group| !group.is_group() || group == HostAddr::BROADCAST) {
        return Err(BuildError::param("group", GROUP_EXPECTED));
    }
    let layer = Psync {
        settings: Settings { group, ..Settings::read(build)? },
        opened: RefCell::default(),
        opening: Turns::default(),
        begun: RefCell::default(),
        arriving: RefCell::default(),
        returns: RefCell::default(),
        closed: RefCell::default(),
    };
    Layered::build(build, layer)
}

/// Takes the number of a process off a participant; 0 for any.
fn pop_process(end: &mut Participant) -> Result<u32, OpenError> {
    let number = end.pop_number(PROCESS)?.value().unwrap_or(0);
    Ok(u32::try_from(number).map_err(|_| AddressError::OutOfRange)?)
}

/// Takes the number of a conversation off a participant that has one on top.
fn pop_conversation(end: &mut Participant) -> Result<Option<u32>, OpenError> {
    let Some(Part::Number(CONVERSATION, _)) = end.top() else {
        return Ok(None);
    };
    let number = end.pop_number(CONVERSATION)?.value().unwrap_or(0);
    let number = u32::try_from(number).map_err(|_| AddressError::OutOfRange)?;
    (number > 0).then_some(Some(number)).ok_or(AddressError::OutOfRange.into())
}

/// Host and port of this end of a session below.
pub(crate) fn own_peer(cx: &Kernel, lower: &SessionRef) -> Peer {
    let host = lower.ask(cx, MyHost::default()).unwrap_or_default().host;
    Peer { host, port: lower.ask(cx, MyPort::default()).unwrap_or_default().port }
}

impl Psync {
    /// Returns the number of the conversation that this upper protocol has opened, or is opening,
    /// with these ends, or else a new one.
    fn number_of(&self, cx: &Kernel, upper: ProtocolId, ends: &Participants) -> u32 {
        let mut opened = self.opened.borrow_mut();
        let mut all = opened.iter();
        if let Some(found) = all.find(|other| other.upper == upper && other.ends == *ends) {
            return found.conversation;
        }
        let conversation = cx.random().next_u32().max(1);
        opened.push(Opened { upper, ends: ends.clone(), conversation });
        conversation
    }

    fn forget(&self, conversation: u32) {
        self.opened.borrow_mut().retain(|opened| opened.conversation != conversation);
    }

    fn note_closed(&self, conversation: u32) {
        let mut closed = self.closed.borrow_mut();
        if closed.len() == CLOSED_MAX {
            closed.pop_front();
        }
        closed.push_back(conversation);
    }

    /// Ends conversations that others have begun and no protocol above holds, until there is room
    /// for one more, of so many members: those of its host, if that has its share.
    fn make_room(&self, Arrival { cx, this, .. }: Arrival<'_>, by: HostAddr, members: usize) {
        loop {
            let mut begun = self.begun.borrow_mut();
            begun.retain(|begun| begun.session().is_some());
            let idle: Vec<Idle> = begun.iter().filter_map(|begun| begun.idle(by)).collect();
            drop(begun);
            let count = |is_counted: &dyn Fn(&Idle) -> bool| {
                let counted = idle.iter().filter(|idle| is_counted(idle));
                members + counted.map(|idle| idle.members).sum::<usize>()
            };
            let has_share = count(&|idle| idle.is_of_host) > BEGUN_OF_HOST_MAX;
            let is_among = |idle: &Idle| idle.is_of_host || !has_share;
            let most = if has_share { BEGUN_OF_HOST_MAX } else { BEGUN_MAX };
            if count(&is_among) <= most {
                return;
            }
            // Those of which but one packet has come may be of strangers in the host's name, and
            // have a part of the room: they end no others beyond it, nor do others end them.
            let is_new = |idle: &Idle| is_among(idle) && idle.is_new;
            let has_part = count(&is_new) > most / NEW_PART;
            let among = idle.iter().filter(|idle| is_among(idle));
            let least = among.min_by_key(|idle| (idle.is_new != has_part, idle.heard_at));
            let Some(Idle { session, .. }) = least else { return };
            if has_share {
                this.head().drops().count(&HAS_SHARE);
            }
            session.abort(cx);
        }
    }

    /// Makes the session of a conversation for its first packet, which is of the host `by`, and
    /// whose members are these.
    fn make(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        at: Arrival<'_>,
        (key, by): (u32, HostAddr),
        arriving: Arriving,
    ) -> Result<SessionRef, &'static Reason> {
        let (opening, me) = arriving.opening();
        if u32::from(opening.window) > all.layer.settings.window {
            // This host alone decides of its memory.
            return Err(&conversation::BEYOND_WINDOW);
        }
        let process = u64::from(opening.members[usize::from(me)].process);
        let upper = group::enabled(&all.offers, process).ok_or(Self::NO_RECEIVER)?;
        // Another packet may be making it with members of its own, or an open.
        let turn = all.layer.opening.take(at.cx, key);
        if !turn.is_taken() {
            return Err(&reason::QUEUE_FULL);
        }
        let members = opening.members.len();
        all.layer.make_room(at, by, members);
        all.layer.arriving.borrow_mut().insert(key, arriving);
        let made = all.made(at, &upper, key);
        all.layer.arriving.borrow_mut().remove(&key);
        if let Ok(session) = &made {
            let (mut begun, session) = (all.layer.begun.borrow_mut(), session.downgrade());
            begun.retain(|other| other.key != key);
            begun.push(Begun { key, session, by, members });
        }
        made
    }

    /// Takes a packet of a conversation that this host does not know. It may have lost it: then the
    /// sender, which is a member, is asked.
    fn ask_back(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        Arrival { cx, lower, .. }: Arrival<'_>,
        header: &Header,
    ) {
        let (layer, number) = (&all.layer, header.conversation);
        if !is_of_member(header)
            || number == 0
            || all.offers.is_empty()
            || Many::admits(cx, lower).is_err()
        {
            return;
        }
        let Ok(peer) = cx.unless_lost(|| peer_of(cx, lower)) else { return };
        let mut returns = layer.returns.borrow_mut();
        if !returns.iter().any(|(other, _)| *other == number) {
            if returns.len() == RETURNS_MAX {
                returns.pop_front();
            }
            returns.push_back((number, Restart::new(cx.random().next_u64(), cx.now())));
        }
        let found = returns.iter_mut().find(|(other, _)| *other == number);
        // The next packet has it asked again, if it is not at once.
        if found.is_some_and(|(_, restart)| restart.may_ask(peer, cx.now())) {
            drop(returns);
            Self::ask_at(all, cx, lower, number, peer);
        }
    }

    /// Asks a member to let this host come back.
    fn ask_at(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        cx: &Kernel,
        lower: &SessionRef,
        number: u32,
        peer: Peer,
    ) {
        let returns = all.layer.returns.borrow();
        let found = returns.iter().find(|(other, _)| *other == number);
        let made = found.and_then(|(_, r)| conversation::question(cx, number, r, peer));
        drop(returns);
        if let Some(message) = made {
            let _ = lower.push(cx, message);
        }
    }

    /// Takes the answer of a member to a host that has lost the conversation.
    fn take_let(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        at: Arrival<'_>,
        header: &Header,
        message: &Message,
    ) -> Result<(), &'static Reason> {
        let (cx, lower, number) = (at.cx, at.lower, header.conversation);
        let (peer, own) = cx.unless_lost(|| (peer_of(cx, lower), own_peer(cx, lower)))?;
        let heard = {
            let mut returns = all.layer.returns.borrow_mut();
            let found = returns.iter_mut().find(|(other, _)| *other == number);
            let (_, restart) = found.ok_or(&conversation::STRANGE)?;
            let mut octets = message.try_clone().map_err(|_| &reason::NO_BUFFERS)?;
            let _ = octets.strip(HEADER_OCTETS);
            restart.take(peer, header, &octets, cx.now(), |address| address.peer == own)?
        };
        match heard {
            Heard::Wait => {}
            Heard::Ask => Self::ask_at(all, cx, lower, number, peer),
            Heard::Back(back) => {
                all.layer.returns.borrow_mut().retain(|(other, _)| *other != number);
                let session = Self::make(all, at, (number, peer.host), Arriving::Back(back))?;
                if let Some(own) = session.body::<Own>() {
                    conversation::begin_again(own, cx, &session, peer);
                }
            }
        }
        Ok(())
    }
}

impl Begun {
    /// The session, unless it has ended.
    fn session(&self) -> Option<SessionRef> {
        self.session.upgrade().filter(|session| !session.head().is_closed())
    }

    /// The conversation as one to be ended for others of the host `by`, unless it is held above.
    fn idle(&self, by: HostAddr) -> Option<Idle> {
        let session = self.session().filter(|session| session.head().opens() == 0)?;
        let heard_at = session.body::<Own>().and_then(|own| with(own, |inner| inner.heard_at()));
        Some(Idle {
            is_of_host: self.by == by,
            members: self.members,
            is_new: session.head().received() <= 1,
            heard_at: heard_at.flatten(),
            session,
        })
    }
}

/// Whether a packet is one that only members send.
fn is_of_member(header: &Header) -> bool {
    header.version == VERSION
        && matches!(
            header.kind,
            kind::DATA | kind::REQUEST | kind::RESENT | kind::LEAVES | kind::SIDE
        )
}

/// Makes the conversation of a session that was opened: its members are those that it has ways to.
fn found(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    processes: &[u32],
    local: Participant,
) -> Result<(), OpenError> {
    let peers = own.ways.peers();
    // Two of one host and port would be one.
    if peers.len() + 1 != processes.len() {
        return Err(OpenError::InUse);
    }
    let way = own.ways.first().ok_or(OpenError::NoLower)?;
    let all = core::iter::once(own_peer(cx, &way)).chain(peers).zip(processes);
    let members = all.map(|(peer, process)| Address { process: *process, peer }).collect();
    let settings = &own.all.layer.settings;
    let opening = Opening { window: settings.window as u16, members };
    let inner = Inner::new(own.key, 0, &opening, local, settings.upcalls, cx.now());
    conversation::begin(own, cx, this, inner);
    Ok(())
}

impl Layer<HEADER_OCTETS, Many> for Psync {
    /// Number of the conversation.
    type Key = u32;
    type State = Talk;

    const OCTETS_MAX: usize = BODY_OCTETS_MAX;
    const ONE_BY_ONE: bool = true;
    const PASSES_OFFERS: bool = true;

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        let local = ends.local_mut()?;
        let process = match local.top() {
            Some(Part::Number(PROCESS, _)) => pop_process(local)?.into(),
            _ => ANY_PROCESS,
        };
        if local.is_empty() {
            local.push(Part::Any);
        }
        Ok(process)
    }

    fn key_of(header: &[u8; HEADER_OCTETS]) -> u32 {
        Header::parse(header).conversation
    }

    fn offer_for(_: u32) -> u64 {
        NO_PROCESS
    }

    fn open(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        asked: Participants,
    ) -> Result<SessionRef, OpenError> {
        if !(2..=PARTICIPANTS_MAX).contains(&asked.len()) {
            return Err(AddressError::Count.into());
        }
        let user = upper.receiver.id();
        let mut ends: Vec<Participant> = asked.iter().cloned().collect();
        let number = pop_conversation(&mut ends[0])?;
        let processes: Result<Vec<u32>, OpenError> = ends.iter_mut().map(pop_process).collect();
        let (processes, mut local) = (processes?, ends.remove(0));
        if local.is_empty() {
            local.push(Part::Any);
        }
        let ends = Participants::among(local.clone(), ends);
        let key = number.unwrap_or_else(|| all.layer.number_of(cx, user, &asked));
        // What the layer below is asked may block; another may open the same meanwhile.
        let _turn = all.layer.opening.take(cx, key);
        let opened = all.open_at(cx, this, upper.receiver, key, ends);
        let session = opened.inspect_err(|_| all.layer.forget(key))?;
        if let Some(own) = session.body::<Own>()
            && !conversation::is_begun(own)
            && number.is_some()
        {
            conversation::come_back(own, cx, &session, local);
        } else if let Some(own) = session.body::<Own>()
            && !conversation::is_begun(own)
            && let Err(error) = found(own, cx, &session, &processes, local)
        {
            all.layer.forget(key);
            session.close(cx);
            return Err(error);
        }
        Ok(session)
    }

    /// Joins the group, and takes what comes by it, also for members that have enabled nothing.
    fn start(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        cx: &Kernel,
        this: &ProtocolRef,
    ) -> Result<(), OpenError> {
        let Some(group) = all.layer.settings.group else {
            return Ok(());
        };
        all.pass_offer(cx, this, NO_PROCESS, &mut Participants::local(Part::Any))?;
        let membership = Membership { group, on: HostAddr::UNSPECIFIED, filter: Filter::ALL };
        all.lower.ask(cx, JoinHost { membership }).map(drop).ok_or(OpenError::NoRoute)
    }

    fn open_done(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        at: Arrival<'_>,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        Many::comes_by_group(at.cx, at.lower, all.layer.settings.group).map(drop)
    }

    fn ways(&self, ways: Many) -> Many {
        ways.in_group(self.settings.group)
    }

    fn begin(&self, cx: &Kernel, _: &SessionRef, key: u32) -> Talk {
        let talk = Talk::default();
        let arriving = self.arriving.borrow();
        let Some(arriving) = arriving.get(&key) else {
            return talk;
        };
        let (opening, me) = arriving.opening();
        let local = match opening.members[usize::from(me)].peer.port {
            0 => Part::Any.into(),
            port => Participant::of(Part::Any).with(Part::port(port)),
        };
        let (upcalls, now) = (self.settings.upcalls, cx.now());
        let inner = match arriving {
            Arriving::New(opening, me) => Inner::new(key, *me, opening, local, upcalls, now),
            Arriving::Back(back) => Inner::resume(key, back, local, upcalls, now, false),
        };
        *talk.inner.borrow_mut() = Some(inner);
        talk
    }

    /// Only a packet with the list of members begins a conversation that was not opened above.
    fn first(
        all: &Layered<Self, HEADER_OCTETS, Many>,
        at: Arrival<'_>,
        header: &[u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        if all.layer.settings.group.is_some()
            && let Err(why) = Many::admits(at.cx, at.lower)
        {
            // What came by the group begins nothing, and is not answered.
            return all.refuse(at, Some(header), message, why);
        }
        let parsed = Header::parse(header);
        let key = parsed.conversation;
        if all.layer.closed.borrow().contains(&key) {
            // What was closed above is over, whatever the others make of it: a member is told.
            if is_of_member(&parsed)
                && let Some(message) = conversation::gone(at.cx, key)
            {
                let _ = at.lower.push(at.cx, message);
            }
            return all.refuse(at, Some(header), message, &reason::CLOSED);
        }
        if parsed.kind == kind::RESTART_ACK {
            let taken = Self::take_let(all, at, &parsed, &message);
            return taken.or_else(|why| all.refuse(at, Some(header), message, why));
        }
        if parsed.flags & LISTED == 0 {
            Self::ask_back(all, at, &parsed);
            return all.refuse(at, Some(header), message, &conversation::STRANGE);
        }
        let arriving = match at.cx.unless_lost(|| read_list(at, &parsed, &message)) {
            Ok(Some(arriving)) => arriving,
            Ok(None) => return all.refuse(at, Some(header), message, &reason::MALFORMED),
            Err(lost) => return all.refuse(at, Some(header), message, lost),
        };
        let by = arriving.opening().0.members[0].peer.host;
        match Self::make(all, at, (key, by), arriving) {
            Ok(session) => all.hand(at, session, message),
            Err(why) => all.refuse(at, Some(header), message, why),
        }
    }

    fn ends(&self, _: &Kernel, _: &SessionRef, key: u32) -> Participants {
        let arriving = self.arriving.borrow();
        let Some((opening, me)) = arriving.get(&key).map(Arriving::opening) else {
            return Participants::default();
        };
        let participant = |address: &Address| {
            Participant::from(address.peer).with(Part::Number(PROCESS, address.process.into()))
        };
        let me = usize::from(me);
        let others = opening.members.iter().enumerate().filter(|(at, _)| *at != me);
        Participants::among(
            participant(&opening.members[me]),
            others.map(|(_, address)| participant(address)),
        )
    }

    /// A member that is heard the first time has its way from then on.
    fn joins(own: &Own, _: &Kernel, message: &Message) -> bool {
        let peer = message.attribute::<Peer>();
        with(own, |inner| peer.is_some_and(|peer| inner.member_of(peer).is_some())).unwrap_or(false)
    }

    /// Every message is [unsent](Self::unsent), since its entries lie behind the header.
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
        conversation::push(own, cx, this, message, 0)
    }

    fn deliver(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        header: &[u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        conversation::take(own, cx, this, header, message)
    }

    fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
        conversation::timeout(own, cx, this, token);
    }

    fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
        own.all.layer.forget(own.key);
        // One that was lost otherwise may be come back into.
        if !this.head().is_aborted() {
            own.all.layer.note_closed(own.key);
        }
        conversation::end(own, cx, this);
    }

    fn drain(own: &Own) {
        conversation::drain(own);
    }

    fn describe(&self, own: &Own) -> String {
        let text = with(own, |inner| {
            let (ready, waiting) = inner.graph.outstanding();
            let (n, me, unheld) = (inner.members.len(), inner.me, inner.graph.unheld());
            format!("member {me} of {n}, {ready} ready, {waiting} waiting, {unheld} unheld")
        });
        format!("conversation {}, {}", own.key, text.as_deref().unwrap_or("over"))
    }

    fn session_control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if ask.get::<SendNull>().is_some() {
            let is_sent = conversation::push_null(own, cx, this, NULL);
            return if is_sent { Answer::Answered } else { Answer::Unknown };
        }
        if let Some(leave) = ask.get::<Leave>()
            && let Some(has_left) = with(own, |inner| inner.graph.has_left(inner.me.into()))
        {
            leave.is_sent = has_left || conversation::push_null(own, cx, this, NULL | LAST);
            return Answer::Answered;
        }
        let cookie = if ask.get::<MaskIn>().is_some() { cx.random().next_u64() } else { 0 };
        match with(own, |inner| inner.answer_to(cx.now(), cookie, ask)) {
            Some(Answer::Answered) => {
                if let Some(MaskIn { index, .. }) = ask.get() {
                    conversation::tell_let_in(own, cx, this, *index);
                }
                // A member that is out, or in again, changes what is held by all.
                if ask.get::<MaskOut>().is_some() || ask.get::<MaskIn>().is_some() {
                    conversation::let_pushes_go_on(own, cx);
                }
                Answer::Answered
            }
            _ => {
                let answer = own.answer(cx, ask);
                let room = conversation::room_of(own) as u32;
                let _ = ask.answer::<MaxPacket>(|q| q.octets = q.octets.min(room));
                let _ = ask.answer::<OptPacket>(|q| q.octets = q.octets.min(room));
                answer
            }
        }
    }

    fn stop(&self) {
        self.begun.borrow_mut().clear();
        self.opened.borrow_mut().clear();
        self.arriving.borrow_mut().clear();
        self.returns.borrow_mut().clear();
        self.closed.borrow_mut().clear();
    }
}

/// Reads the list of a packet, header still in front, whose sender is the first of the members:
/// what it says, with the sender's host and port as they are seen here, and the index of this
/// member.
fn read_list(
    Arrival { cx, lower, .. }: Arrival<'_>,
    header: &Header,
    message: &Message,
) -> Option<Arriving> {
    let is_sound = header.version == VERSION
        && matches!(header.kind, kind::DATA | kind::OPEN)
        && header.sender == 0
        && header.incarnation == 1
        && header.conversation != 0;
    let at = HEADER_OCTETS + Entry::OCTETS * usize::from(header.entries);
    let mut opening = Opening::read(message, at).filter(|_| is_sound)?;
    opening.members.get_mut(0)?.peer = peer_of(cx, lower);
    let own = own_peer(cx, lower);
    let members = &opening.members;
    let at_peer = |peer: Peer| members.iter().position(|member| member.peer == peer);
    let me = at_peer(own).filter(|me| *me > 0)?;
    let is_once = |(at, member): (usize, &Address)| at_peer(member.peer) == Some(at);
    let is_sound = members.iter().enumerate().all(is_once);
    is_sound.then_some(Arriving::New(opening, me as u8))
}

impl Inner {
    /// Answers what only this layer knows.
    fn answer_to(&mut self, now: Time, cookie: u64, ask: &mut Ask<'_>) -> Answer {
        if let Some(MaskIn { index, incarnation, start, base }) = ask.get() {
            let at = usize::from(*index);
            let is_done = match base.is_empty() {
                true => *index != self.me && self.graph.keep_for(at),
                false if !self.graph.is_masked(at) => false,
                false => {
                    let place = (*start, base.clone());
                    self.let_in(*index, *incarnation, place, now, cookie)
                }
            };
            return if is_done { Answer::Answered } else { Answer::Unknown };
        }
        let unheld = if ask.get::<Outstanding>().is_some() { self.unheld(now) } else { 0 };
        let (members, graph) = (&self.members, &mut self.graph);
        if let Some(question) = ask.get::<MyMember>() {
            *question = MyMember {
                index: self.me,
                members: members.len() as u8,
                conversation: self.number,
                incarnation: graph.incarnation(self.me.into()),
                window: self.window as u16,
            };
        } else if let Some(question) = ask.get::<MemberAt>() {
            let Some(member) = members.get(usize::from(question.index)) else {
                return Answer::Unknown;
            };
            let Address { process, peer: Peer { host, port } } = member.address;
            *question = MemberAt { index: question.index, process, host, port };
        } else if let Some(question) = ask.get::<MemberState>() {
            let at = usize::from(question.index);
            let Some(member) = members.get(at) else {
                return Answer::Unknown;
            };
            let last = graph.last(at);
            let id = NodeId { sender: question.index, seq: last };
            *question = MemberState {
                index: question.index,
                incarnation: graph.incarnation(at),
                last,
                depth: graph.depth(id).unwrap_or(0),
                is_masked: graph.is_masked(at),
                silent: now.since(member.heard_at),
                asks: member.asks(),
            };
        } else if let Some(question) = ask.get::<IsStable>() {
            question.by_all = graph.is_stable(question.id);
            question.members = graph.followers(question.id);
        } else if let Some(question) = ask.get::<OrderOf>() {
            question.order = graph.order(question.one, question.other);
        } else if let Some(question) = ask.get::<PlaceOf>() {
            let Some(depth) = graph.depth(question.id) else {
                return Answer::Unknown;
            };
            (question.depth, question.is_null) = (depth, graph.is_null(question.id));
            if question.wants_past {
                question.past = graph.vector(question.id).unwrap_or(&[]).to_vec();
            }
        } else if let Some(question) = ask.get::<Leaves>() {
            question.leaves = graph.leaves().to_vec();
        } else if let Some(question) = ask.get::<Outstanding>() {
            let (ready, waiting) = graph.outstanding();
            *question = Outstanding { ready: ready as u32, waiting: waiting as u32, unheld };
        } else if let Some(question) = ask.get::<Context>() {
            let mut kept: Vec<NodeId> = graph.kept().filter(|id| *id > question.from).collect();
            kept.sort_unstable();
            let node =
                |id: NodeId| (id, graph.depth(id).unwrap_or(0), graph.predecessors(id).to_vec());
            question.nodes = kept.into_iter().take(CONTEXT_MAX).map(node).collect();
        } else if ask.get::<TakeNulls>().is_some() {
            self.takes_nulls = true;
        } else if ask.get::<TakeViews>().is_some() {
            self.takes_views = true;
        } else if ask.get::<TakeMembers>().is_some() {
            self.takes_members = true;
        } else if let Some(question) = ask.get::<MaskOut>() {
            if usize::from(question.index) >= members.len() || question.index == self.me {
                return Answer::Unknown;
            }
            question.last = graph.mask_out(question.index.into());
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }
}
