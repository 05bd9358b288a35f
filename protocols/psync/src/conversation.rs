//! A conversation of this member: what arrives goes into the graph and up in its order, what is
//! missing is asked for, and what others may lack is told.
//!
//! Nothing is borrowed while a message goes up or down. One timer serves all that is due.

use crate::graph::{Arrival, Begun, Graph, MEMBERS_MAX};
use crate::protocol::Psync;
use crate::wire::{
    ANSWER, Address, Entry, HEADER_OCTETS, Header, LISTED, NULL, Opening, VERSION, kind,
};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use smallvec::SmallVec;
use xk_core::kernel::Timer;
use xk_core::object::{PushError, Refused};
use xk_core::reason::Class;
use xk_core::{Kernel, Message, Participant, Participants, Reason, SessionRef, Time, reason};
use xk_kit::group::{Aside, Node, NodeId as Id};
use xk_kit::layer::{Conversation, Many, NOT_A_MEMBER};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::wait_queue::{Pushes, Room};

/// Largest body of a message, in octets ("RPC in the x-Kernel", section 3.2).
pub(crate) const BODY_OCTETS_MAX: usize = 16 << 10;
/// Octets of an entry.
const ENTRY_OCTETS: usize = Entry::OCTETS;
/// Room in front of a packet for the headers of the layers below.
pub(crate) const HEADROOM: usize = 128;

/// Time after which `OPEN` is sent again first, and at most; number of times that it is sent at
/// this pace, and the time between two from then on.
const OPEN_WAIT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
const OPENS_MAX: u8 = 8;
const OPEN_EVERY: Duration = Duration::from_secs(8);
/// Time before a missing message is asked for, after which it is asked for again, and at most.
const REQUEST_DELAY: Duration = Duration::from_millis(20);
const REQUEST_WAIT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Requests to the first member that must have it, and all requests.
const REQUESTS_FIRST: u8 = 3;
const REQUESTS_MAX: u8 = 10;
/// Time after which a member is asked for its leaves, since it may lack a message, and at most.
const BEACON_WAIT: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// Time after which messages that came into the view are acknowledged.
const ACK_DELAY: Duration = Duration::from_millis(40);
/// Time between two answers to one member.
const ANSWER_EVERY: Duration = Duration::from_millis(100);

/// The conversation is not the one that its number names.
pub(crate) static STRANGE: Reason = Reason::new("not this conversation", Class::NotMine);
/// The message has arrived before.
pub(crate) static DUPLICATE: Reason = Reason::new("came before", Class::NotMine);
/// The number is further on than the window allows.
pub(crate) static BEYOND_WINDOW: Reason = Reason::new("beyond the window", Class::Bad);
/// The predecessors cannot be those of this message.
pub(crate) static BAD_CONTEXT: Reason = Reason::new("bad context", Class::Bad);
/// A predecessor was asked for in vain.
pub(crate) static NO_PREDECESSOR: Reason = Reason::new("predecessor missing", Class::Exhausted);
/// The sender is masked out.
pub(crate) static MASKED: Reason = Reason::new("member masked out", Class::Prohibited);

/// The session object.
pub(crate) type Own = Conversation<Psync, HEADER_OCTETS, Many>;

/// State of a conversation.
#[derive(Default)]
pub struct Talk {
    pub(crate) inner: RefCell<Option<Inner>>,
    /// Pushes that wait for room in the window.
    pushes: Pushes,
    timer: Cell<Option<(Time, Timer)>>,
}

/// One member, as far as the graph does not say.
pub(crate) struct Member {
    pub(crate) address: Address,
    /// The member has answered, or has sent anything else.
    is_open: bool,
    pub(crate) heard_at: Time,
    /// Messages that it may still be sent again in this period, and the beginning of that.
    resends: u32,
    resends_from: Time,
    told_at: Option<Time>,
    /// The last of its messages in the view that it was told of.
    acknowledged: u32,
}

/// A missing message.
struct Want {
    id: Id,
    /// Member that is asked.
    from: u8,
    due: Time,
    tries: u8,
}

/// The conversation, once its members are known.
pub(crate) struct Inner {
    pub(crate) graph: Graph<Message>,
    pub(crate) members: Vec<Member>,
    pub(crate) me: u8,
    pub(crate) window: u32,
    pub(crate) number: u32,
    /// Our end of the ways to members.
    local: Participant,
    has_ways: bool,
    wants: Vec<Want>,
    /// `OPEN` is sent next, and the number of times that it was.
    open_due: Option<Time>,
    opens: u8,
    beacon: Option<(Time, Duration)>,
    ack_due: Option<Time>,
    pub(crate) takes_nulls: bool,
}

/// The packets that an event calls for.
type Acts = SmallVec<[Act; 4]>;

/// A packet that is to be sent.
enum Act {
    Leaves { to: u8, wants_answer: bool },
    Request { to: u8, ids: Vec<Id> },
    Resend { to: u8, id: Id },
    Open { to: u8 },
    OpenAck { to: u8 },
}

impl Inner {
    pub(crate) fn new(
        number: u32,
        me: u8,
        opening: &Opening,
        local: Participant,
        upcalls: u32,
        now: Time,
    ) -> Self {
        let window = u32::from(opening.window);
        let member = |address: &Address| Member {
            address: *address,
            is_open: me != 0,
            heard_at: now,
            resends: 2 * window,
            resends_from: now,
            told_at: None,
            acknowledged: 0,
        };
        Self {
            graph: Graph::new(opening.members.len(), me.into(), window, upcalls),
            members: opening.members.iter().map(member).collect(),
            me,
            window,
            number,
            local,
            // The opener's ways were opened with the session.
            has_ways: me == 0,
            wants: Vec::new(),
            open_due: None,
            opens: 0,
            beacon: None,
            ack_due: None,
            takes_nulls: false,
        }
    }

    fn others(&self) -> impl Iterator<Item = u8> + use<> {
        let me = self.me;
        (0..self.members.len() as u8).filter(move |member| *member != me)
    }

    /// Whether this member has opened the conversation, and another has not answered.
    fn is_calling(&self) -> bool {
        let mut others = self.others();
        self.me == 0 && others.any(|other| self.is_to_be_called(other))
    }

    fn is_to_be_called(&self, other: u8) -> bool {
        !self.members[usize::from(other)].is_open && !self.graph.is_masked(other.into())
    }

    fn opening(&self) -> Opening {
        let members = self.members.iter().map(|member| member.address).collect();
        Opening { window: self.window as u16, members }
    }

    /// The header of a packet of this member, or of one that it sends again for another.
    fn header(&self, kind: u8, id: Id, entries: usize, length: usize) -> Header {
        Header {
            version: VERSION,
            kind,
            flags: 0,
            entries: entries as u8,
            conversation: self.number,
            sender: id.sender.into(),
            incarnation: 1,
            seq: id.seq,
            length: length as u32,
        }
    }

    /// The members, by host and port.
    fn member_of(&self, peer: Peer) -> Option<u8> {
        let at = self.members.iter().position(|member| member.address.peer == peer)?;
        Some(at as u8).filter(|at| *at != self.me)
    }

    /// Notes what of a waiting message's context, or of a member's leaves, is to be asked for: with
    /// a message those before it of its sender, which precede it.
    fn want(&mut self, ids: &[Id], from: u8, due: Time) {
        for last in ids.iter().filter(|id| self.graph.may_exist(**id) && id.sender != self.me) {
            for seq in self.graph.last(last.sender.into()) + 1..=last.seq {
                let id = Id { seq, ..*last };
                let is_new = !self.wants.iter().any(|want| want.id == id);
                if is_new && !self.graph.waits(id) {
                    self.wants.push(Want { id, from, due, tries: 0 });
                }
            }
        }
    }

    /// Notes that a message has come: those that are still missing are only lost, and asked for as
    /// at the beginning.
    fn note_progress(&mut self, now: Time) {
        let soon = now.after(REQUEST_WAIT[0]);
        for want in self.wants.iter_mut().filter(|want| want.due > soon) {
            want.due = soon;
            if want.tries + 1 >= REQUESTS_MAX {
                want.tries = REQUESTS_FIRST;
            }
        }
    }

    /// The member that is asked for a missing message the next time.
    fn asked(&self, want: &Want) -> u8 {
        if want.tries < REQUESTS_FIRST {
            return want.from;
        }
        let all: Vec<u8> = self.others().collect();
        all[usize::from(want.tries) % all.len()]
    }

    /// Gathers the requests that are due; returns how many waiting messages were given up.
    fn requests(&mut self, now: Time, acts: &mut Acts) -> usize {
        let graph = &self.graph;
        self.wants.retain(|want| !graph.has(want.id) && !graph.waits(want.id));
        let mut wants = core::mem::take(&mut self.wants);
        let mut given_up = 0;
        // As many as a packet has room for, of one member at one time.
        let most = (self.window as usize).min(MEMBERS_MAX);
        for want in wants.iter_mut().filter(|want| want.due <= now) {
            if want.tries == REQUESTS_MAX {
                given_up += self.graph.give_up(want.id);
                continue;
            }
            let asked = self.asked(want);
            let open = acts.iter_mut().find_map(|act| match act {
                Act::Request { to, ids } if *to == asked => Some(ids),
                _ => None,
            });
            match open {
                Some(ids) if ids.len() >= most => {
                    want.due = now.after(REQUEST_DELAY);
                    continue;
                }
                Some(ids) => ids.push(want.id),
                None => acts.push(Act::Request { to: asked, ids: [want.id].into() }),
            }
            let wait = REQUEST_WAIT[0] * (1 << want.tries.min(5));
            (want.due, want.tries) = (now.after(wait.min(REQUEST_WAIT[1])), want.tries + 1);
        }
        wants.retain(|want| want.due > now);
        self.wants = wants;
        given_up
    }

    /// Answers a request: each message that is kept, and the leaves for one that no member lacks.
    fn resend(&mut self, to: u8, ids: &[Id], now: Time, acts: &mut Acts) {
        let member = &mut self.members[usize::from(to)];
        if now.since(member.resends_from) >= ANSWER_EVERY {
            (member.resends, member.resends_from) = (2 * self.window, now);
        }
        for id in ids {
            if self.graph.body(*id).is_some() && self.members[usize::from(to)].resends > 0 {
                self.members[usize::from(to)].resends -= 1;
                acts.push(Act::Resend { to, id: *id });
            } else if id.seq <= self.graph.held_by_all(id.sender.into()) {
                self.answer(to, now, acts);
            }
        }
    }

    /// Tells a member the leaves, but not too often.
    fn answer(&mut self, to: u8, now: Time, acts: &mut Acts) {
        let told_at = self.members[usize::from(to)].told_at;
        if told_at.is_none_or(|told_at| now.since(told_at) >= ANSWER_EVERY) {
            self.tell(to, false, now, acts);
        }
    }

    fn tell(&mut self, to: u8, wants_answer: bool, now: Time, acts: &mut Acts) {
        let seen = self.graph.seen(to.into());
        let member = &mut self.members[usize::from(to)];
        (member.told_at, member.acknowledged) = (Some(now), seen);
        acts.push(Act::Leaves { to, wants_answer });
    }

    /// Messages of a member that came into the view and that it was not told of.
    fn unacknowledged(&self, member: u8) -> u32 {
        let at = usize::from(member);
        self.graph.seen(at) - self.members[at].acknowledged
    }

    /// Acknowledges where half a window is not, and the rest in a moment.
    fn acknowledge(&mut self, now: Time, acts: &mut Acts) {
        for to in self.others() {
            match self.unacknowledged(to) {
                0 => {}
                some if 2 * some >= self.window => self.tell(to, false, now, acts),
                _ => drop(self.ack_due.get_or_insert(now.after(ACK_DELAY))),
            }
        }
    }

    /// Notes that a message of this member goes out, which tells all that it holds.
    fn note_sent(&mut self, now: Time) {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.acknowledged = self.graph.seen(at);
        }
        self.ack_due = None;
        self.beacon = Some((now.after(BEACON_WAIT[0]), BEACON_WAIT[0]));
        if self.opens == 0 && self.is_calling() {
            // The message calls them.
            (self.opens, self.open_due) = (1, Some(now.after(OPEN_WAIT[0])));
        }
    }

    /// Notes that others hold more of this member's messages than before: those that are left are
    /// asked about soon.
    fn note_held(&mut self, before: u32, now: Time) {
        let unheld = self.graph.unheld();
        if unheld < before {
            let wait = BEACON_WAIT[0];
            self.beacon = (unheld > 0).then(|| (now.after(wait), wait));
        }
    }

    /// Does all that is due; returns how many waiting messages were given up.
    fn work(&mut self, now: Time, acts: &mut Acts) -> usize {
        if self.open_due.is_some_and(|due| due <= now) {
            let all = self.others().filter(|to| self.is_to_be_called(*to));
            acts.extend(all.map(|to| Act::Open { to }));
            self.open_due = None;
            if self.is_calling() {
                let wait = OPEN_WAIT[0] * (1 << self.opens.min(5));
                self.opens = self.opens.saturating_add(1);
                let wait = match self.opens < OPENS_MAX {
                    true => wait.min(OPEN_WAIT[1]),
                    false => OPEN_EVERY,
                };
                self.open_due = Some(now.after(wait));
            }
        }
        if self.ack_due.is_some_and(|due| due <= now) {
            self.ack_due = None;
            for to in self.others() {
                if self.unacknowledged(to) > 0 {
                    self.tell(to, false, now, acts);
                }
            }
        }
        if let Some((due, wait)) = self.beacon
            && due <= now
        {
            for to in self.others() {
                if !self.graph.is_told(to.into()) {
                    self.tell(to, true, now, acts);
                }
            }
            let wait = (2 * wait).min(BEACON_WAIT[1]);
            self.beacon = (self.graph.unheld() > 0).then(|| (now.after(wait), wait));
        }
        self.requests(now, acts)
    }

    /// Time at which something is due.
    fn due(&self) -> Option<Time> {
        let wants = self.wants.iter().map(|want| want.due);
        let beacon = self.beacon.map(|(due, _)| due);
        wants.chain(self.open_due).chain(self.ack_due).chain(beacon).min()
    }
}

/// The entries of a packet, which lie in front of the message.
struct Entries {
    ids: [Id; MEMBERS_MAX],
    count: usize,
}

impl Entries {
    fn list(&self) -> &[Id] {
        &self.ids[..self.count]
    }
}

/// Takes the entries off the front; `None` if they are not all there, or name a member that does
/// not exist, or one that was started again.
fn take_entries(header: &Header, members: usize, message: &mut Message) -> Option<Entries> {
    let mut entries = Entries { ids: [Id::default(); _], count: header.entries.into() };
    for id in entries.ids.get_mut(..entries.count)? {
        let Entry { sender, incarnation, seq } = Entry::parse(message.pop_array()?);
        let is_sound = usize::from(sender) < members && incarnation == 1;
        *id = Id { sender: is_sound.then_some(sender as u8)?, seq };
    }
    Some(entries)
}

/// Puts header, entries and perhaps the list of members in front of a message.
fn put_front(
    message: &mut Message,
    mut header: Header,
    entries: &[Id],
    list: Option<&[u8]>,
) -> Result<(), PushError> {
    if let Some(list) = list {
        header.flags |= LISTED;
        let place = message.push_header(list.len()).map_err(|_| PushError::NoBuffers)?;
        place.copy_from_slice(list);
    }
    let octets = message.push_header(HEADER_OCTETS + entries.len() * ENTRY_OCTETS);
    let octets = octets.map_err(|_| PushError::NoBuffers)?;
    let (front, rest) = octets.split_at_mut(HEADER_OCTETS);
    front.copy_from_slice(&header.emit());
    for (place, id) in rest.chunks_exact_mut(ENTRY_OCTETS).zip(entries) {
        let entry = Entry { sender: id.sender.into(), incarnation: 1, seq: id.seq };
        place.copy_from_slice(&entry.emit());
    }
    Ok(())
}

/// Runs `see` on the conversation, if its members are known.
pub(crate) fn with<T>(own: &Own, see: impl FnOnce(&mut Inner) -> T) -> Option<T> {
    own.state.inner.borrow_mut().as_mut().map(see)
}

/// Begins a conversation that was opened above. The other members hear of it by the first message,
/// or by `OPEN` if there is none at once.
pub(crate) fn begin(own: &Own, cx: &Kernel, this: &SessionRef, inner: Inner) {
    *own.state.inner.borrow_mut() = Some(Inner { open_due: Some(cx.now()), ..inner });
    arm(own, cx, this);
}

/// Sends a message of this member to all others, once the window has room for it.
pub(crate) fn push(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    is_null: bool,
) -> Result<(), PushError> {
    let pushed = push_one(own, cx, this, message, is_null);
    // The room that is left, or that this one did not use, is the next one's.
    let_pushes_go_on(own, cx);
    pushed
}

fn push_one(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
    is_null: bool,
) -> Result<(), PushError> {
    // What goes to all has no one peer.
    let _ = message.remove_attribute::<Peer>();
    if message.len() > room_of(own) {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    if let Some(Aside { member }) = message.remove_attribute() {
        return push_aside(own, cx, this, message, member);
    }
    // One without octets goes at once, where there was room when it was asked for.
    let options = CallOptions::take(&mut message);
    let waited = match is_null {
        true => Ok(()),
        false => own.state.pushes.wait(cx, this.id(), options, || window_of(own)),
    };
    if let Err(error) = waited {
        let full = matches!(error, PushError::QueueFull);
        this.discard(cx, message, if full { &reason::QUEUE_FULL } else { &reason::CLOSED });
        return Err(error);
    }
    let body = match message.try_clone() {
        Ok(body) => body,
        Err(_) => {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
    };
    // Number, context and place in the graph in one step.
    let fitted = with(own, |inner| {
        let length = message.len();
        let sent = inner.graph.send(is_null, body).ok_or(PushError::QueueFull)?;
        inner.note_sent(cx.now());
        let before = inner.graph.predecessors(sent.id);
        let mut header = inner.header(kind::DATA, sent.id, before.len(), length);
        header.flags = if is_null { NULL } else { 0 };
        // A member that has not answered learns of the others with the message.
        let list = inner.is_calling().then(|| inner.opening().emit());
        put_front(&mut message, header, before, list.as_deref())
    });
    let Some(fitted) = fitted else {
        this.discard(cx, message, &reason::CLOSED);
        return Err(PushError::Closed);
    };
    arm(own, cx, this);
    if let Err(error) = fitted {
        this.discard(cx, message, &reason::NO_BUFFERS);
        // It is in the graph: a member that lacks it asks.
        return if error == PushError::NoBuffers { Ok(()) } else { Err(error) };
    }
    open_ways(own, cx, this);
    // A member that cannot be reached now asks for it later.
    let _ = own.send(cx, this, message);
    Ok(())
}

/// Sends a message to one member, beside the graph.
fn push_aside(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
    to: u8,
) -> Result<(), PushError> {
    open_ways(own, cx, this);
    let fitted = with(own, |inner| {
        let member = inner.members.get(usize::from(to)).filter(|_| to != inner.me);
        let peer = member.ok_or((PushError::NoRoute, &NOT_A_MEMBER))?.address.peer;
        let own = Id { sender: inner.me, seq: 0 };
        let header = inner.header(kind::SIDE, own, 0, message.len());
        put_front(&mut message, header, &[], None)
            .and_then(|()| message.set_attribute(peer).map_err(|_| PushError::NoBuffers))
            .map_err(|error| (error, &reason::NO_BUFFERS))
    });
    match fitted.unwrap_or(Err((PushError::Closed, &reason::CLOSED))) {
        Ok(()) => own.send(cx, this, message),
        Err((error, why)) => {
            this.discard(cx, message, why);
            Err(error)
        }
    }
}

/// Octets of the largest message, with room for all entries and the list of members.
pub(crate) fn room_of(own: &Own) -> usize {
    let members = with(own, |inner| inner.members.len()).unwrap_or(0);
    let front = ENTRY_OCTETS * members + Opening::octets(members);
    own.octets_max.saturating_sub(front).min(BODY_OCTETS_MAX)
}

/// Room that the window has for a push.
fn window_of(own: &Own) -> Result<Room, PushError> {
    match with(own, |inner| inner.graph.has_room()) {
        None => Err(PushError::Closed),
        Some(true) => Ok(Room::ForNext),
        Some(false) => Ok(Room::None),
    }
}

/// Lets the pushes go on that the window has room for.
pub(crate) fn let_pushes_go_on(own: &Own, cx: &Kernel) {
    own.state.pushes.go_on(cx, window_of(own));
}

/// Takes a packet, its header off.
pub(crate) fn take(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    header: &[u8; HEADER_OCTETS],
    mut message: Message,
) -> Result<(), Refused> {
    let peer = message.attribute::<Peer>();
    let header = Header::parse(header);
    let mut acts = Acts::new();
    let taken = match with(own, |inner| {
        let from = peer.and_then(|peer| inner.member_of(peer)).ok_or(&NOT_A_MEMBER)?;
        let before = inner.graph.unheld();
        let taken = inner.take(&header, from, &mut message, cx.now(), &mut acts);
        inner.note_held(before, cx.now());
        taken.map(|message| message.map(|(id, before)| (id, before, from)))
    }) {
        Some(taken) => taken,
        None => Err(&STRANGE),
    };
    match taken {
        // Nothing of the conversation has changed.
        Ok(Some((.., from))) if header.kind == kind::SIDE => {
            let peer = peer.map_or(Ok(()), |peer| message.set_attribute(peer));
            return match peer.and(message.set_attribute(Aside { member: from })) {
                Ok(()) => own.upper.demux(cx, this, message),
                Err(_) => Err(this.refuse(cx, message, &reason::NO_BUFFERS)),
            };
        }
        Ok(Some((id, before, from))) => {
            let is_null = header.flags & NULL != 0;
            let arrived = with(own, |inner| {
                let unheld = inner.graph.unheld();
                let arrived = inner.graph.arrive(id, before.list(), is_null, message);
                inner.note_held(unheld, cx.now());
                if matches!(arrived, Arrival::Inserted | Arrival::Waiting) {
                    inner.note_progress(cx.now());
                }
                if arrived == Arrival::Waiting {
                    let own = Id { seq: id.seq - 1, ..id };
                    let missing: Vec<Id> = inner.graph.missing(id).chain([own]).collect();
                    inner.want(&missing, from, cx.now().after(REQUEST_DELAY));
                }
                arrived
            });
            let why = match arrived {
                Some(Arrival::Duplicate) => Some(&DUPLICATE),
                Some(Arrival::BeyondWindow) => Some(&BEYOND_WINDOW),
                Some(Arrival::BadContext) => Some(&BAD_CONTEXT),
                _ => None,
            };
            if let (Some(why), Some(protocol)) = (why, this.protocol(cx)) {
                protocol.head().drops().count(why);
            }
            deliver(own, cx, this);
        }
        Ok(None) => {}
        Err(why) => return Err(this.refuse(cx, message, why)),
    }
    send(own, cx, this, acts);
    let_pushes_go_on(own, cx);
    arm(own, cx, this);
    Ok(())
}

impl Inner {
    /// Reads a packet of the member `from`: returns the message that it is, if it is one, and its
    /// predecessors.
    fn take(
        &mut self,
        header: &Header,
        from: u8,
        message: &mut Message,
        now: Time,
        acts: &mut Acts,
    ) -> Result<Option<(Id, Entries)>, &'static Reason> {
        let n = self.members.len();
        let is_sound = header.version == VERSION
            && header.flags & !(NULL | ANSWER | LISTED) == 0
            && header.incarnation == 1
            && usize::from(header.sender) < n;
        if !is_sound {
            return Err(&reason::MALFORMED);
        }
        if header.kind != kind::RESENT && header.sender != u16::from(from) {
            return Err(&NOT_A_MEMBER);
        }
        if self.graph.is_masked(from.into()) {
            return Err(&MASKED);
        }
        let is_message = matches!(header.kind, kind::DATA | kind::RESENT);
        let is_aside = header.kind == kind::SIDE;
        let has_body = is_message || is_aside;
        if !is_message && header.seq != 0 || !has_body && header.length != 0 {
            return Err(&reason::MALFORMED);
        }
        let entries = take_entries(header, n, message).ok_or(&reason::MALFORMED)?;
        if header.flags & LISTED != 0 {
            let opening = Opening::read(message, 0).ok_or(&reason::MALFORMED)?;
            let same = |(one, other): (&Address, &Member)| one.process == other.address.process;
            let is_same = from == 0
                && opening.members.len() == n
                && opening.members.iter().zip(&self.members).all(same);
            if !is_same {
                return Err(&STRANGE);
            }
            let _ = message.strip(Opening::octets(n));
            acts.push(Act::OpenAck { to: from });
        }
        let length = header.length as usize;
        if length > message.len() || length > BODY_OCTETS_MAX {
            return Err(&reason::BAD_LENGTH);
        }
        let member = &mut self.members[usize::from(from)];
        (member.heard_at, member.is_open) = (now, true);
        match header.kind {
            kind::DATA | kind::RESENT => {
                let id = Id { sender: header.sender as u8, seq: header.seq };
                let is_null = header.flags & NULL != 0;
                if id.sender == self.me || is_null && length > 0 {
                    return Err(&reason::MALFORMED);
                }
                message.truncate(length);
                message.clear_attributes();
                return Ok(Some((id, entries)));
            }
            kind::SIDE if header.flags | header.entries == 0 => {
                message.truncate(length);
                message.clear_attributes();
                return Ok(Some((Id::default(), entries)));
            }
            kind::REQUEST if entries.count <= self.window as usize => {
                self.resend(from, entries.list(), now, acts);
            }
            kind::LEAVES if entries.count <= n => {
                let is_known = self.graph.note_leaves(from.into(), entries.list());
                if !is_known {
                    self.want(entries.list(), from, now);
                } else if header.flags & ANSWER != 0 {
                    self.answer(from, now, acts);
                }
            }
            kind::OPEN if header.flags & LISTED != 0 => {}
            kind::OPEN_ACK if self.me == 0 => {}
            _ => return Err(&reason::MALFORMED),
        }
        Ok(None)
    }
}

/// Passes up what may go up. Each shepherd begins one upcall after the other; if another may run
/// beside it, a timer brings a shepherd for that.
fn deliver(own: &Own, cx: &Kernel, this: &SessionRef) {
    loop {
        let mut acts = Acts::new();
        let next = with(own, |inner| {
            let begun = inner.graph.begin(inner.takes_nulls);
            inner.acknowledge(cx.now(), &mut acts);
            let begun = begun?;
            let body = inner.graph.body(begun.id).map(|(body, _)| body.try_clone());
            Some((begun, body, inner.graph.has_next()))
        });
        send(own, cx, this, acts);
        let Some(Some((begun, body, has_next))) = next else {
            return;
        };
        // The upcall may take long, and may push.
        arm(own, cx, this);
        let_pushes_go_on(own, cx);
        if has_next {
            // The wait of this upcall must not keep the other.
            let _ = cx.schedule(this, Duration::ZERO, DRAIN);
        }
        hand_up(own, cx, this, begun, body.and_then(Result::ok));
        with(own, |inner| inner.graph.returned(begun.id));
    }
}

fn hand_up(own: &Own, cx: &Kernel, this: &SessionRef, begun: Begun, body: Option<Message>) {
    let node = Node { id: begun.id, incarnation: 1, depth: begun.depth, is_null: begun.is_null };
    let marked = body.and_then(|mut body| body.set_attribute(node).is_ok().then_some(body));
    match marked {
        // A refusal ends here: the message is in the graph, and others have it.
        Some(message) => drop(own.upper.demux(cx, this, message)),
        None => this.count_drop(cx, &reason::NO_BUFFERS),
    }
}

/// Token of the timer that brings a shepherd for an upcall.
const DRAIN: u64 = 1;
/// Token of the timer of all that is due.
const WORK: u64 = 0;

/// A timer goes off.
pub(crate) fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
    if token == WORK {
        own.state.timer.set(None);
        work(own, cx, this);
    }
    deliver(own, cx, this);
    let_pushes_go_on(own, cx);
    arm(own, cx, this);
}

fn work(own: &Own, cx: &Kernel, this: &SessionRef) {
    let mut acts = Acts::new();
    let given_up = with(own, |inner| inner.work(cx.now(), &mut acts)).unwrap_or(0);
    (0..given_up).for_each(|_| this.count_drop(cx, &NO_PREDECESSOR));
    send(own, cx, this, acts);
    arm(own, cx, this);
}

/// Sets the timer to what is due next.
fn arm(own: &Own, cx: &Kernel, this: &SessionRef) {
    let Some(due) = with(own, |inner| inner.due()).flatten() else {
        return;
    };
    let before = own.state.timer.take();
    if let Some((at, timer)) = before
        && at <= due
    {
        own.state.timer.set(Some((at, timer)));
        return;
    }
    let _ = cx.cancel(before.map(|(_, timer)| timer));
    let wait = due.since(cx.now());
    if let Ok(timer) = cx.schedule(this, wait, WORK) {
        own.state.timer.set(Some((due, timer)));
    }
}

/// Opens the ways to the members that an `OPEN` named, before the first packet for them.
fn open_ways(own: &Own, cx: &Kernel, this: &SessionRef) {
    let ends = with(own, |inner| {
        if core::mem::replace(&mut inner.has_ways, true) {
            return None;
        }
        let peers =
            inner.others().map(|at| Participant::from(inner.members[usize::from(at)].address.peer));
        Some((inner.local.clone(), peers.collect::<Vec<_>>()))
    });
    let Some((local, peers)) = ends.flatten() else {
        return;
    };
    if own.extend(cx, this, &Participants::among(local.clone(), peers.iter().cloned())).is_ok() {
        return;
    }
    // One that cannot be reached keeps no other from being, and is tried again.
    for peer in peers {
        if own.extend(cx, this, &Participants::pair(local.clone(), peer)).is_err() {
            with(own, |inner| inner.has_ways = false);
        }
    }
}

/// Sends the packets that an event calls for. They open no ways: a member that is to be answered
/// has been heard, and so has one.
fn send(own: &Own, cx: &Kernel, this: &SessionRef, acts: Acts) {
    for act in acts {
        let made = with(own, |inner| inner.packet(cx, &act)).flatten();
        if let Some(message) = made {
            // What is lost is sent again.
            let _ = own.send(cx, this, message);
        }
    }
}

impl Inner {
    /// Makes a packet; `None` if there is no buffer, or nothing to say any more.
    fn packet(&self, cx: &Kernel, act: &Act) -> Option<Message> {
        let own = Id { sender: self.me, seq: 0 };
        let empty = || cx.pool().empty(HEADROOM).ok();
        let (to, mut message, header, entries) = match act {
            Act::Leaves { to, wants_answer } => {
                let leaves = self.graph.leaves();
                let mut header = self.header(kind::LEAVES, own, leaves.len(), 0);
                header.flags = if *wants_answer { ANSWER } else { 0 };
                (to, empty()?, header, leaves)
            }
            Act::Request { to, ids } => {
                (to, empty()?, self.header(kind::REQUEST, own, ids.len(), 0), ids.as_slice())
            }
            Act::Resend { to, id } => {
                let (body, is_null) = self.graph.body(*id)?;
                let before = self.graph.predecessors(*id);
                let mut header = self.header(kind::RESENT, *id, before.len(), body.len());
                header.flags = if is_null { NULL } else { 0 };
                (to, body.try_clone().ok()?, header, before)
            }
            Act::Open { to } => (to, empty()?, self.header(kind::OPEN, own, 0, 0), &[][..]),
            Act::OpenAck { to } => (to, empty()?, self.header(kind::OPEN_ACK, own, 0, 0), &[][..]),
        };
        let list = matches!(act, Act::Open { .. }).then(|| self.opening().emit());
        put_front(&mut message, header, entries, list.as_deref()).ok()?;
        message.set_attribute(self.members[usize::from(*to)].address.peer).ok()?;
        Some(message)
    }
}

/// Ends a conversation: pushes that wait fail.
pub(crate) fn end(own: &Own, cx: &Kernel) {
    own.state.pushes.end(cx);
    let timer = own.state.timer.take();
    let _ = cx.cancel(timer.map(|(_, timer)| timer));
    drop(own.state.inner.take());
}
