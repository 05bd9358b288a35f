//! A conversation of this member: what arrives goes into the graph and up in its order, what is
//! missing is asked for, and what others may lack is told.
//!
//! Nothing is borrowed while a message goes up or down. One timer serves all that is due.

use crate::graph::{Arrival, Begun, Graph, MEMBERS_MAX};
use crate::protocol::{Psync, own_peer};
use crate::restart::{Back, Heard, Restart};
use crate::wire::{
    ANSWER, Address, Asking, Entry, HEADER_OCTETS, HELD, Header, LAST, LISTED, Let, NULL, Opening,
    VERSION, base, kind,
};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use smallvec::SmallVec;
use xk_core::kernel::Timer;
use xk_core::object::{PushError, Refused};
use xk_core::reason::Class;
use xk_core::{Kernel, Message, Participant, Participants, Reason, SessionRef, Time, reason};
use xk_kit::answers::TO_MANY;
use xk_kit::group::{Aside, Node, NodeId as Id, ViewChange};
use xk_kit::layer::{Conversation, Many, NOT_A_MEMBER, Ways};
use xk_kit::net::attribute::{Arrived, Peer};
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
/// Messages that a member asks for at once if the group does not reach it, at least; and time for
/// which messages go to each member then.
const LACKED_MIN: u32 = 4;
const ALONE: Duration = Duration::from_secs(10);
/// Requests to the first member that must have it, and all requests.
const REQUESTS_FIRST: u8 = 3;
const REQUESTS_MAX: u8 = 10;
/// Time after which a member is asked for its leaves, since it may lack a message, and at most.
const BEACON_WAIT: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// Time after which messages that came into the view are acknowledged.
const ACK_DELAY: Duration = Duration::from_millis(40);
/// Time between two answers to one member.
const ANSWER_EVERY: Duration = Duration::from_millis(100);
/// Time between two packets to a member that may not know that this one leaves; time of silence
/// after which a member that has left as well needs this one no longer.
const LEAVE_EVERY: Duration = Duration::from_millis(200);
const LINGER: Duration = Duration::from_secs(2);
/// Time after which a message goes up for which there was no buffer.
const NO_BUFFER_WAIT: Duration = Duration::from_millis(10);
/// Time after which a conversation ends that no protocol above holds, if nothing has come of it but
/// the packet that began it, and a message of this member waits for an acknowledgement.
const VAIN_AFTER: Duration = Duration::from_secs(30);
/// Time between two returns of the other member of a conversation of two.
const RETURN_EVERY: Duration = Duration::from_millis(500);

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
/// The packet is of another incarnation of its sender.
pub(crate) static OTHER_START: Reason = Reason::new("of another start", Class::NotMine);
/// The answer is to a start that was not this member's: one says that it were it.
pub(crate) static IMPOSTOR: Reason = Reason::new("another starts as this", Class::Prohibited);
/// This member has held more than it has: its host was started again.
pub(crate) static LOST: Reason = Reason::new("state lost", Class::Exhausted);
/// The sender is masked out.
pub(crate) static MASKED: Reason = Reason::new("member masked out", Class::Prohibited);

/// The session object.
pub(crate) type Own = Conversation<Psync, HEADER_OCTETS, Many>;

/// State of a conversation.
#[derive(Default)]
pub struct Talk {
    pub(crate) inner: RefCell<Option<Inner>>,
    /// The return that is under way, and our end of the ways.
    restart: RefCell<Option<(Restart, Participant)>>,
    /// Pushes that wait for room in the window.
    pushes: Pushes,
    timer: Cell<Option<(Time, Timer)>>,
    /// A timer looks for a buffer for a message that may go up.
    is_stuck: Cell<bool>,
}

/// One member, as far as the graph does not say.
pub(crate) struct Member {
    pub(crate) address: Address,
    /// The member has answered, or has sent anything else.
    is_open: bool,
    /// A packet has come from it, so there is a way to it.
    is_heard: bool,
    /// The member has lost its state and asks for it.
    comeback: Option<Comeback>,
    returned_at: Option<Time>,
    pub(crate) heard_at: Time,
    /// Messages that it may still be sent again in this period, and the beginning of that.
    resends: u32,
    resends_from: Time,
    told_at: Option<Time>,
    /// The last of its messages in the view that it was told of.
    acknowledged: u32,
    /// Time at which it was found to have left, and whether it has said that it knows so.
    left_at: Option<Time>,
    knows: bool,
    /// Whether the other has said that this member had messages of others which this one lacks.
    misses: bool,
}

impl Member {
    /// Number of the start with which it asks to come back; 0 if it does not.
    pub(crate) fn asks(&self) -> u64 {
        self.comeback.as_ref().map_or(0, |comeback| comeback.asks)
    }
}

/// The return of another member.
struct Comeback {
    /// Number that it is to show.
    cookie: u64,
    /// Number of the start with which it asks, and has shown the cookie; 0 before.
    asks: u64,
    /// Number of the start that was let in, and the base.
    let_in: Option<(u64, Vec<u32>)>,
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
    /// Time of the first message of this member.
    sent_at: Option<Time>,
    pub(crate) takes_nulls: bool,
    pub(crate) takes_members: bool,
    pub(crate) takes_views: bool,
    /// Number of the start with which this member has come back; 0 for the first.
    start: u64,
}

/// The packets that an event calls for.
type Acts = SmallVec<[Act; 4]>;

/// A packet that is to be sent.
enum Act {
    Leaves {
        to: u8,
        wants_answer: bool,
    },
    Request {
        to: u8,
        ids: Vec<Id>,
    },
    Resend {
        to: u8,
        id: Id,
    },
    Open {
        to: u8,
    },
    OpenAck {
        to: u8,
    },
    /// Says what the member was known to hold: one that does not has lost its state.
    Held {
        to: u8,
    },
    /// Says to a member that leaves that its last message is in the view.
    Seen {
        to: u8,
    },
    /// Says to a member that leaves that this one knows so much of it, and leaves as well.
    Gone {
        to: u8,
    },
    /// The answer to a member that wants to come back; with the base from a member on, if it may.
    Let {
        to: u8,
        start: u64,
        first: Option<u16>,
    },
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
            is_heard: false,
            comeback: None,
            returned_at: None,
            heard_at: now,
            resends: 2 * window,
            resends_from: now,
            told_at: None,
            acknowledged: 0,
            left_at: None,
            knows: false,
            misses: false,
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
            sent_at: None,
            takes_nulls: false,
            takes_members: false,
            takes_views: false,
            start: 0,
        }
    }

    /// The conversation of a member that comes back; `has_ways` if its ways are open already.
    pub(crate) fn resume(
        number: u32,
        back: &Back,
        local: Participant,
        upcalls: u32,
        now: Time,
        has_ways: bool,
    ) -> Self {
        let mut inner = Self::new(number, back.me, &back.opening, local, upcalls, now);
        inner.graph = Graph::resume(back.me.into(), inner.window, upcalls, &back.base);
        for (at, member) in inner.members.iter_mut().enumerate() {
            (member.is_open, member.acknowledged) = (true, inner.graph.seen(at));
        }
        (inner.start, inner.has_ways) = (back.start, has_ways);
        // The others say what they hold, and what has been sent since.
        inner.beacon = Some((now, BEACON_WAIT[0]));
        inner
    }

    /// Time at which a member was last heard.
    pub(crate) fn heard_at(&self) -> Option<Time> {
        self.others().map(|other| self.members[usize::from(other)].heard_at).max()
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
            incarnation: match id.seq {
                0 => self.graph.incarnation(id.sender.into()),
                _ => self.graph.incarnation_of(id),
            },
            seq: id.seq,
            length: length as u32,
        }
    }

    /// The other members, by host and port.
    pub(crate) fn member_of(&self, peer: Peer) -> Option<u8> {
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
        let all = self.others().filter(|other| !self.graph.is_masked((*other).into()));
        let all: Vec<u8> = all.collect();
        all.get(usize::from(want.tries) % all.len().max(1)).copied().unwrap_or(want.from)
    }

    /// Gathers the requests that are due, and gives up what was asked for in vain.
    fn requests(&mut self, now: Time, acts: &mut Acts) {
        let graph = &self.graph;
        self.wants.retain(|want| !graph.has(want.id) && !graph.waits(want.id));
        let mut wants = core::mem::take(&mut self.wants);
        // As many as a packet has room for, of one member at one time.
        let most = (self.window as usize).min(MEMBERS_MAX);
        for want in wants.iter_mut().filter(|want| want.due <= now) {
            if want.tries == REQUESTS_MAX {
                self.graph.give_up(want.id);
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
    }

    /// Answers a request: each message that is kept, and the leaves for one that no member lacks.
    fn resend(&mut self, to: u8, ids: &[Id], now: Time, acts: &mut Acts) {
        for id in ids {
            if self.graph.body(*id).is_some() && self.may_resend(to, now) {
                acts.push(Act::Resend { to, id: *id });
            } else if id.seq <= self.graph.held_by_all(id.sender.into()) {
                self.remind(to, Act::Held { to }, now, acts);
            }
        }
    }

    /// Whether a member may be sent one more packet that it asks for.
    fn may_resend(&mut self, to: u8, now: Time) -> bool {
        let member = &mut self.members[usize::from(to)];
        if now.since(member.resends_from) >= ANSWER_EVERY {
            (member.resends, member.resends_from) = (2 * self.window, now);
        }
        let left = member.resends.checked_sub(1);
        member.resends = left.unwrap_or(0);
        left.is_some()
    }

    /// Lets a member back in on a base; false if that cannot be. `cookie` is a random number.
    pub(crate) fn let_in(
        &mut self,
        member: u8,
        incarnation: u16,
        (start, base): (u64, Vec<u32>),
        now: Time,
        cookie: u64,
    ) -> bool {
        let at = usize::from(member);
        if !self.graph.let_in(at, incarnation, &base) {
            return false;
        }
        self.wants.retain(|want| want.id.sender != member || want.id.seq <= base[at]);
        let acknowledged = self.graph.seen(at);
        let found = &mut self.members[at];
        (found.is_open, found.heard_at, found.told_at) = (true, now, None);
        (found.acknowledged, found.returned_at) = (acknowledged, Some(now));
        let cookie = found.comeback.as_ref().map_or(cookie, |comeback| comeback.cookie);
        found.comeback = Some(Comeback { cookie, asks: 0, let_in: Some((start, base)) });
        self.beacon = Some((now.after(BEACON_WAIT[0]), BEACON_WAIT[0]));
        true
    }

    /// Answers a member that wants to come back. Of two, this one alone lets the other in: with
    /// what it has not acknowledged.
    fn take_restart(&mut self, from: u8, asked: Asking, now: Time, cookie: u64, acts: &mut Acts) {
        if !self.may_resend(from, now) {
            return;
        }
        let (at, me, start) = (usize::from(from), usize::from(self.me), asked.start);
        let of_two = self.members.len() == 2 && !self.takes_members;
        let is_new = self.members.len() == 2 && self.me == 0 && self.graph.is_fresh(at);
        let member = &mut self.members[at];
        let is_seldom = member.returned_at.is_none_or(|at| now.since(at) >= RETURN_EVERY);
        let new = || Comeback { cookie: cookie.max(1), asks: 0, let_in: None };
        let comeback = member.comeback.get_or_insert_with(new);
        let is_in = |comeback: &Comeback| comeback.let_in.as_ref().is_some_and(|l| l.0 == start);
        let is_proved = comeback.cookie == asked.cookie && start != 0;
        if is_proved && is_new && !of_two {
            // It has lost nothing: the protocol above it has refused, or was not there yet.
            (member.is_open, member.comeback) = (false, None);
            (self.opens, self.open_due) = (0, Some(now));
            return;
        }
        if is_proved && !is_in(comeback) {
            comeback.asks = start;
            let incarnation = self.graph.incarnation(at).checked_add(1);
            if let Some(incarnation) = incarnation.filter(|_| of_two && is_seldom) {
                let mut base = alloc::vec![0; 2];
                (base[me], base[at]) = (self.graph.held_by_all(me), self.graph.seen(at));
                self.let_in(from, incarnation, (start, base), now, cookie);
            }
        }
        let comeback = self.members[at].comeback.as_ref();
        let is_in = is_proved && comeback.is_some_and(is_in);
        acts.push(Act::Let { to: from, start, first: is_in.then_some(asked.first) });
    }

    /// Body of an answer to a member that wants to come back, in so many octets at most.
    fn base_for(&self, to: u8, start: u64, first: Option<u16>, most: usize) -> Vec<u8> {
        let comeback = self.members[usize::from(to)].comeback.as_ref();
        let cookie = comeback.map_or(0, |comeback| comeback.cookie);
        let me = if first.is_some() { to.into() } else { 0 };
        let mut octets = Let { start, cookie, me, first: first.unwrap_or(0) }.emit().to_vec();
        let from = comeback.and_then(|comeback| comeback.let_in.as_ref()).zip(first);
        if let Some(((_, vector), first)) = from {
            for sender in usize::from(first)..self.members.len() {
                let mut of = self.graph.base_of(sender, vector);
                let room = most.saturating_sub(octets.len() + base::FRONT_OCTETS) / 4;
                if of.depths.len() > room && sender > usize::from(first) {
                    break;
                }
                // The older a depth, the less likely is a message to come that needs it.
                of.depths.drain(..of.depths.len().saturating_sub(room));
                base::emit(&of, &mut octets);
            }
        }
        octets
    }

    /// Tells a member the leaves, but not too often.
    fn answer(&mut self, to: u8, now: Time, acts: &mut Acts) {
        let told_at = self.members[usize::from(to)].told_at;
        if told_at.is_none_or(|told_at| now.since(told_at) >= ANSWER_EVERY) {
            self.tell(to, false, now, acts);
        }
    }

    /// Tells a member what it was known to hold, but not too often.
    fn remind(&mut self, to: u8, act: Act, now: Time, acts: &mut Acts) {
        let told_at = &mut self.members[usize::from(to)].told_at;
        if told_at.is_none_or(|told_at| now.since(told_at) >= ANSWER_EVERY) {
            *told_at = Some(now);
            acts.push(act);
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
        self.sent_at.get_or_insert(now);
        let wait = self.beacon_wait();
        self.beacon = Some((now.after(wait), wait));
        if self.opens == 0 && self.is_calling() {
            // The message calls them.
            (self.opens, self.open_due) = (1, Some(now.after(OPEN_WAIT[0])));
        }
    }

    /// Notes that others hold more of this member's messages than before: those that are left are
    /// asked about soon.
    fn note_held(&mut self, before: u32, now: Time) {
        if self.graph.unheld() < before {
            let wait = self.beacon_wait();
            self.beacon = (self.unheld(now) > 0).then(|| (now.after(wait), wait));
        }
    }

    /// Time after which the leaves of others are asked for first.
    fn beacon_wait(&self) -> Duration {
        if self.graph.has_left(self.me.into()) { LEAVE_EVERY } else { BEACON_WAIT[0] }
    }

    /// Whether this member, which leaves, stays for another that has left, but may not know that
    /// its last message has come.
    fn lingers_for(&self, other: u8, now: Time) -> bool {
        let (at, member) = (usize::from(other), &self.members[usize::from(other)]);
        let is_silent = |left_at: Time| now.since(left_at.max(member.heard_at)) >= LINGER;
        self.graph.has_left(self.me.into())
            && self.graph.has_left(at)
            && !self.graph.has_all(at)
            && !member.knows
            && !member.left_at.is_some_and(is_silent)
    }

    /// Number of messages of this member that another may not have, or of members that it stays
    /// for.
    pub(crate) fn unheld(&self, now: Time) -> u32 {
        let waits = self.others().filter(|other| self.lingers_for(*other, now));
        self.graph.unheld().max(waits.count() as u32)
    }

    /// Notes which members have left.
    fn note_left(&mut self, now: Time) {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.left_at = self.graph.has_left(at).then(|| member.left_at.unwrap_or(now));
        }
    }

    /// Does all that is due.
    fn work(&mut self, now: Time, acts: &mut Acts) {
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
                if self.lingers_for(to, now) {
                    acts.push(Act::Seen { to });
                } else if !self.graph.is_masked(to.into()) && !self.graph.has_all(to.into()) {
                    self.tell(to, true, now, acts);
                }
            }
            let is_leaving = self.graph.has_left(self.me.into());
            let wait = if is_leaving { LEAVE_EVERY } else { (2 * wait).min(BEACON_WAIT[1]) };
            self.beacon = (self.unheld(now) > 0).then(|| (now.after(wait), wait));
        }
        self.requests(now, acts);
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

/// Takes the entries off the front.
///
/// # Errors
/// Why not: they are not all there, name a member that does not exist, or a message of another
/// incarnation. Of a request only such a message is left out: the member that asks for it may not
/// have let its sender in yet, and lacks others.
fn take_entries<B>(
    header: &Header,
    graph: &Graph<B>,
    message: &mut Message,
) -> Result<Entries, &'static Reason> {
    let (all, mut entries) = (header.entries.into(), Entries { ids: [Id::default(); _], count: 0 });
    if all > entries.ids.len() {
        return Err(&reason::MALFORMED);
    }
    // They may lie in several slices.
    let _ = message.pull_up(all * ENTRY_OCTETS);
    for _ in 0..all {
        let entry = Entry::parse(message.pop_array().ok_or(&reason::MALFORMED)?);
        let id = Id { sender: entry.sender as u8, seq: entry.seq };
        if usize::from(entry.sender) >= graph.members() {
            return Err(&reason::MALFORMED);
        }
        if graph.is_of(id, entry.incarnation) {
            entries.ids[entries.count] = id;
            entries.count += 1;
        } else if header.kind != kind::REQUEST {
            return Err(&OTHER_START);
        }
    }
    Ok(entries)
}

/// Puts header, entries and perhaps the list of members in front of a message.
fn put_front(
    message: &mut Message,
    mut header: Header,
    entries: &[Id],
    incarnation_of: impl Fn(Id) -> u16,
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
        let incarnation = incarnation_of(*id);
        let entry = Entry { sender: id.sender.into(), incarnation, seq: id.seq };
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

/// Begins the return of a member into a conversation: the others are asked until one of them
/// answers that it may.
pub(crate) fn come_back(own: &Own, cx: &Kernel, this: &SessionRef, local: Participant) {
    let restart = Restart::new(cx.random().next_u64(), cx.now());
    *own.state.restart.borrow_mut() = Some((restart, local));
    arm(own, cx, this);
}

/// Whether the conversation goes on, or is being returned to.
pub(crate) fn is_begun(own: &Own) -> bool {
    own.state.inner.borrow().is_some() || own.state.restart.borrow().is_some()
}

/// Sends a null, without waiting for room: an upcall that waited here would keep others from making
/// any. `flags` are [`NULL`] and perhaps [`LAST`].
pub(crate) fn push_null(own: &Own, cx: &Kernel, this: &SessionRef, flags: u8) -> bool {
    let may_go =
        |inner: &mut Inner| inner.graph.has_room() && !inner.graph.has_left(inner.me.into());
    with(own, may_go) == Some(true)
        && cx
            .pool()
            .empty(HEADROOM)
            .is_ok_and(|message| push(own, cx, this, message, flags).is_ok())
}

/// Sends a message of this member to all others, once the window has room for it; `flags` are
/// [`NULL`] and [`LAST`].
pub(crate) fn push(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    flags: u8,
) -> Result<(), PushError> {
    let pushed = push_one(own, cx, this, message, flags);
    // The room that is left, or that this one did not use, is the next one's.
    let_pushes_go_on(own, cx);
    pushed
}

fn push_one(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
    flags: u8,
) -> Result<(), PushError> {
    let is_null = flags & NULL != 0;
    // What goes to all has no one peer.
    let _ = message.remove_attribute::<Peer>();
    if message.len() > room_of(own) {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    if let Some(Aside { member }) = message.remove_attribute() {
        return push_aside(own, cx, this, message, member);
    }
    // To one that has come back the others say what they hold, which opens its window. A null of a
    // layer in between goes to those that were heard, until this is known to be no stranger's.
    if !is_null || is_known(own, this) {
        open_ways(own, cx, this);
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
    let mut is_listed = false;
    let fitted = with(own, |inner| {
        let length = message.len();
        let sent = inner.graph.send(is_null, body).ok_or(PushError::QueueFull)?;
        if flags & LAST != 0 {
            inner.graph.end_with(sent.id);
            // One that has not answered for long is called soon again.
            inner.opens = 0;
        }
        inner.note_sent(cx.now());
        let before = inner.graph.predecessors(sent.id);
        let mut header = inner.header(kind::DATA, sent.id, before.len(), length);
        header.flags = flags;
        // A member that has not answered learns of the others with the message.
        let list = inner.is_calling().then(|| inner.opening().emit());
        is_listed = list.is_some();
        let incarnation_of = |id| inner.graph.incarnation_of(id);
        put_front(&mut message, header, before, incarnation_of, list.as_deref())
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
    // A member that cannot be reached now asks for it later. By a group no conversation begins.
    let _ = match is_listed {
        true => own.send(cx, this, message),
        false => own.send_to_all(cx, this, message),
    };
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
    let is_heard =
        |inner: &mut Inner| inner.members.get(usize::from(to)).is_some_and(|m| m.is_heard);
    if with(own, is_heard) != Some(true) {
        open_ways(own, cx, this);
    }
    let fitted = with(own, |inner| {
        let member = inner.members.get(usize::from(to)).filter(|_| to != inner.me);
        let peer = member.ok_or((PushError::NoRoute, &NOT_A_MEMBER))?.address.peer;
        let own = Id { sender: inner.me, seq: 0 };
        let header = inner.header(kind::SIDE, own, 0, message.len());
        put_front(&mut message, header, &[], |_| 0, None)
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
    let has_room = |inner: &mut Inner| {
        (!inner.graph.has_left(inner.me.into())).then(|| inner.graph.has_room())
    };
    match with(own, has_room).unwrap_or(None) {
        None if own.state.restart.borrow().is_some() => Ok(Room::None),
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
    let by_group = message.attribute::<Arrived>().is_some_and(|arrived| arrived.to.is_group());
    if by_group && (header.kind != kind::DATA || header.flags & LISTED != 0) {
        // All members would answer.
        return Err(this.refuse(cx, message, &TO_MANY));
    }
    if matches!(header.kind, kind::RESTART | kind::RESTART_ACK) {
        let taken = match header.kind {
            kind::RESTART => take_restart(own, cx, this, &header, &message),
            _ => take_let(own, cx, this, &header, &message),
        };
        return taken.map_err(|why| this.refuse(cx, message, why));
    }
    if header.kind == kind::GONE {
        let taken = take_gone(own, cx, peer, &header);
        return taken.map_err(|why| this.refuse(cx, message, why));
    }
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
                    if header.flags & LAST != 0 {
                        inner.graph.end_with(id);
                    }
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
            count_given_up(own, cx, this);
            deliver(own, cx, this);
        }
        Ok(None) if header.kind == kind::REQUEST => {
            let least = (own.all.layer.settings.window / 2).max(LACKED_MIN);
            if u32::from(header.entries) >= least {
                own.ways.avoid_group(cx.now().after(ALONE));
            }
        }
        Ok(None) => {}
        Err(why) => {
            send(own, cx, this, acts);
            let refused = this.refuse(cx, message, why);
            if core::ptr::eq(why, &raw const LOST) {
                // The next packet of the conversation has the host ask to come back.
                this.abort(cx);
            }
            return Err(refused);
        }
    }
    send(own, cx, this, acts);
    let_pushes_go_on(own, cx);
    arm(own, cx, this);
    Ok(())
}

/// Takes the answer of a host that has left the conversation, to one that leaves as well or is the
/// only other member: this one waits for it no longer. Of more that go on, each may have heard
/// another last message of it, so these wait for the layer above.
fn take_gone(
    own: &Own,
    cx: &Kernel,
    peer: Option<Peer>,
    header: &Header,
) -> Result<(), &'static Reason> {
    let taken = with(own, |inner| {
        let from = peer.and_then(|peer| inner.member_of(peer)).ok_or(&NOT_A_MEMBER)?;
        let is_sound = header.version == VERSION
            && header.flags == 0
            && header.entries == 0
            && header.seq == 0
            && header.length == 0;
        if !is_sound {
            return Err(&reason::MALFORMED);
        }
        let of_two = inner.members.len() == 2 && !inner.takes_members;
        if of_two || inner.graph.has_left(inner.me.into()) {
            inner.graph.mask_out(from.into());
            inner.members[usize::from(from)].knows = true;
        }
        Ok(())
    });
    taken.unwrap_or(Err(&STRANGE))?;
    let_pushes_go_on(own, cx);
    Ok(())
}

/// Makes the answer to a packet of a conversation that this host has left.
pub(crate) fn gone(cx: &Kernel, number: u32) -> Option<Message> {
    let mut message = cx.pool().empty(HEADROOM).ok()?;
    put_front(&mut message, plain(kind::GONE, number, 0), &[], |_| 0, None).ok()?;
    Some(message)
}

/// The header of a packet that needs no member.
fn plain(kind: u8, number: u32, length: usize) -> Header {
    Header {
        version: VERSION,
        kind,
        flags: 0,
        entries: 0,
        conversation: number,
        sender: 0,
        incarnation: 0,
        seq: 0,
        length: length as u32,
    }
}

/// Takes the question of a member that wants to come back.
fn take_restart(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    header: &Header,
    message: &Message,
) -> Result<(), &'static Reason> {
    let (peer, mut octets) = (message.attribute::<Peer>(), [0; Asking::OCTETS]);
    let is_sound = header.version == VERSION
        && header.flags == 0
        && header.entries == 0
        && header.seq == 0
        && header.length as usize == octets.len()
        && message.copy_to(0, &mut octets) == octets.len();
    let (cookie, mut acts) = (cx.random().next_u64(), Acts::new());
    let taken = with(own, |inner| {
        let from = peer.and_then(|peer| inner.member_of(peer)).ok_or(&NOT_A_MEMBER)?;
        if !is_sound {
            return Err(&reason::MALFORMED);
        }
        inner.take_restart(from, Asking::parse(&octets), cx.now(), cookie, &mut acts);
        Ok(())
    });
    taken.unwrap_or(Err(&STRANGE))?;
    send(own, cx, this, acts);
    arm(own, cx, this);
    Ok(())
}

/// Takes the answer to the question of this member, which wants to come back.
fn take_let(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    header: &Header,
    message: &Message,
) -> Result<(), &'static Reason> {
    let peer = message.attribute::<Peer>().ok_or(&NOT_A_MEMBER)?;
    let mut acts = Acts::new();
    if let Some(taken) = with(own, |inner| inner.take_late_let(peer, message, cx.now(), &mut acts))
    {
        // A member that hears of this one again forgets the other.
        send(own, cx, this, acts);
        arm(own, cx, this);
        return taken;
    }
    let me = own.ways.first().map(|way| own_peer(cx, &way));
    let peers = own.ways.peers();
    let heard = {
        let mut restart = own.state.restart.borrow_mut();
        let (restart, _) = restart.as_mut().ok_or(&STRANGE)?;
        restart.take(peer, header, message, cx.now(), |address| Some(address.peer) == me)?
    };
    match heard {
        Heard::Wait => {}
        Heard::Ask => ask_back(own, cx, this, peer),
        Heard::Back(back) => {
            let members = &back.opening.members;
            let is_member = |peer: &Peer| members.iter().any(|member| member.peer == *peer);
            let settings = &own.all.layer.settings;
            if u32::from(back.opening.window) > settings.window {
                return Err(&BEYOND_WINDOW);
            }
            if members.len() != peers.len() + 1 || !peers.iter().all(is_member) {
                return Err(&STRANGE);
            }
            let Some((_, local)) = own.state.restart.take() else {
                return Ok(());
            };
            let inner = Inner::resume(own.key, &back, local, settings.upcalls, cx.now(), true);
            *own.state.inner.borrow_mut() = Some(inner);
            arm(own, cx, this);
        }
    }
    Ok(())
}

/// Begins a conversation again whose session a member's answer has made.
pub(crate) fn begin_again(own: &Own, cx: &Kernel, this: &SessionRef, from: Peer) {
    with(own, |inner| {
        if let Some(from) = inner.member_of(from) {
            inner.members[usize::from(from)].is_heard = true;
        }
    });
    arm(own, cx, this);
}

/// Makes the question of a member that wants to come back.
pub(crate) fn question(cx: &Kernel, number: u32, restart: &Restart, to: Peer) -> Option<Message> {
    let body = restart.question(to);
    let header = plain(kind::RESTART, number, body.len());
    let mut message = cx.pool().copy_from(HEADROOM, &body).ok()?;
    put_front(&mut message, header, &[], |_| 0, None).ok()?;
    Some(message)
}

/// Asks a member to let this one come back.
fn ask_back(own: &Own, cx: &Kernel, this: &SessionRef, to: Peer) {
    let restart = own.state.restart.borrow();
    let made = restart.as_ref().and_then(|(restart, _)| question(cx, own.key, restart, to));
    drop(restart);
    if let Some(mut message) = made
        && message.set_attribute(to).is_ok()
    {
        let _ = own.send(cx, this, message);
    }
}

/// Asks all others to let this one come back, if it is time.
fn ask_all_back(own: &Own, cx: &Kernel, this: &SessionRef) {
    let is_due = match &mut *own.state.restart.borrow_mut() {
        Some((restart, _)) if restart.due <= cx.now() => {
            restart.note_asked(cx.now());
            true
        }
        _ => false,
    };
    if is_due {
        own.ways.peers().into_iter().for_each(|peer| ask_back(own, cx, this, peer));
    }
}

/// Answers a member that was let in, which may wait for it.
pub(crate) fn tell_let_in(own: &Own, cx: &Kernel, this: &SessionRef, member: u8) {
    let start = with(own, |inner| {
        let comeback = inner.members.get(usize::from(member))?.comeback.as_ref()?;
        comeback.let_in.as_ref().map(|(start, _)| *start)
    });
    if let Some(start) = start.flatten() {
        let act = Act::Let { to: member, start, first: Some(0) };
        send(own, cx, this, core::iter::once(act).collect());
    }
    arm(own, cx, this);
}

impl Inner {
    /// Takes an answer to a member that has come back, or never went.
    fn take_late_let(
        &mut self,
        peer: Peer,
        message: &Message,
        now: Time,
        acts: &mut Acts,
    ) -> Result<(), &'static Reason> {
        let from = self.member_of(peer).ok_or(&NOT_A_MEMBER)?;
        let mut octets = [0; Let::OCTETS];
        let listed = Opening::octets(self.members.len());
        let is_mine = [0, listed].into_iter().any(|at| {
            message.copy_to(at, &mut octets) == octets.len()
                && Let::parse(&octets).start == self.start
        });
        if is_mine && self.start != 0 {
            self.members[usize::from(from)].is_heard = true;
            self.beacon = self.beacon.map(|(_, wait)| (now, wait));
            return Ok(());
        }
        self.answer(from, now, acts);
        Err(&IMPOSTOR)
    }

    /// Takes what another member has known this one to hold. A host that was started again, and
    /// made a member by an old packet, does not. One alone is believed of its own messages only.
    fn take_held(
        &mut self,
        header: &Header,
        from: u8,
        message: &mut Message,
    ) -> Result<Option<(Id, Entries)>, &'static Reason> {
        let mut misses = false;
        let _ = message.pull_up(usize::from(header.entries) * ENTRY_OCTETS);
        for _ in 0..header.entries {
            let entry = Entry::parse(message.pop_array().ok_or(&reason::MALFORMED)?);
            let id = Id { sender: entry.sender as u8, seq: entry.seq };
            if usize::from(entry.sender) >= self.members.len() {
                return Err(&reason::MALFORMED);
            }
            if !self.graph.has(id) {
                misses = true;
                if id.sender == from {
                    return Err(&LOST);
                }
            }
        }
        self.members[usize::from(from)].misses = misses;
        let count = self.members.iter().filter(|member| member.misses).count();
        if count > 1 { Err(&LOST) } else { Ok(None) }
    }

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
        let is_held = header.kind == kind::LEAVES && header.flags == HELD;
        let is_sound = header.version == VERSION
            && (is_held || header.flags & !(NULL | ANSWER | LISTED | LAST) == 0)
            && usize::from(header.sender) < n;
        if !is_sound {
            return Err(&reason::MALFORMED);
        }
        if header.kind != kind::RESENT && header.sender != u16::from(from) {
            return Err(&NOT_A_MEMBER);
        }
        if is_held {
            return self.take_held(header, from, message);
        }
        let has_left = self.graph.has_left(from.into());
        // Beside the graph those that have lost each other may talk, too.
        let is_aside = header.kind == kind::SIDE;
        if self.graph.is_masked(from.into()) && !has_left && !is_aside {
            self.remind(from, Act::Held { to: from }, now, acts);
            return Err(&MASKED);
        }
        let is_message = matches!(header.kind, kind::DATA | kind::RESENT);
        let has_body = is_message || is_aside;
        if !is_message && header.seq != 0 || !has_body && header.length != 0 {
            return Err(&reason::MALFORMED);
        }
        let id = Id { sender: header.sender as u8, seq: header.seq };
        let is_of_now = match is_message {
            true => self.graph.is_of(id, header.incarnation),
            false => is_aside || self.graph.incarnation(from.into()) == header.incarnation,
        };
        if !is_of_now {
            return Err(&OTHER_START);
        }
        let entries = take_entries(header, &self.graph, message)?;
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
        (member.heard_at, member.is_open, member.is_heard) = (now, true, true);
        // It lives: none starts in its place any more.
        member.comeback = None;
        match header.kind {
            kind::DATA | kind::RESENT => {
                let is_null = header.flags & NULL != 0;
                let is_odd = is_null && length > 0 || !is_null && header.flags & LAST != 0;
                if id.sender == self.me || is_odd {
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
            kind::LEAVES if header.flags == LAST => match entries.list() {
                [id] if id.sender == self.me => {
                    self.graph.note_seen(from.into(), id.seq);
                    if self.graph.is_last(*id) {
                        acts.push(Act::Gone { to: from });
                    }
                }
                _ => return Err(&reason::MALFORMED),
            },
            kind::LEAVES if entries.count <= n && header.flags & LAST == 0 => {
                let is_known = self.graph.note_leaves(from.into(), entries.list());
                if !is_known {
                    self.want(entries.list(), from, now);
                    // The way from there is no longer as bad as it was.
                    self.note_progress(now);
                }
                if header.flags & ANSWER != 0 && has_left {
                    // It waits until it hears that its last message has come.
                    self.remind(from, Act::Seen { to: from }, now, acts);
                } else if header.flags & ANSWER != 0 && is_known {
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
            let left = inner.graph.left();
            let copy = |body: &Message| body.try_clone().ok();
            let begun = inner.graph.begin(inner.takes_nulls, inner.takes_views, copy);
            if inner.graph.left() != left {
                inner.note_left(cx.now());
            }
            inner.acknowledge(cx.now(), &mut acts);
            (begun, inner.graph.has_next())
        });
        send(own, cx, this, acts);
        let Some((Some((begun, body)), has_next)) = next else {
            // It stays where it is until there is a buffer.
            let is_stuck = next.is_some_and(|(_, has_next)| has_next);
            if is_stuck && !own.state.is_stuck.get() {
                own.state.is_stuck.set(cx.schedule(this, NO_BUFFER_WAIT, STUCK).is_ok());
            }
            return;
        };
        // The upcall may take long, and may push.
        arm(own, cx, this);
        let_pushes_go_on(own, cx);
        if has_next {
            // The wait of this upcall must not keep the other.
            let _ = cx.schedule(this, Duration::ZERO, DRAIN);
        }
        hand_up(own, cx, this, begun, body);
        with(own, |inner| inner.graph.returned(begun.id));
    }
}

fn hand_up(own: &Own, cx: &Kernel, this: &SessionRef, begun: Begun, mut body: Message) {
    let Begun { id, depth, is_null } = begun;
    let seen = with(own, |inner| {
        let leaves = inner.takes_views && inner.graph.is_last(id);
        let change = leaves.then(|| ViewChange {
            members: inner.graph.counted(),
            has_quorum: true,
            member: Some(id.sender),
            depth,
            incarnation: 0,
        });
        (inner.graph.incarnation_of(id), change)
    });
    let (incarnation, change) = seen.unwrap_or_default();
    let node = Node { id, incarnation, depth, is_null };
    // It bears no others.
    let _ = change.map_or(Ok(()), |change| body.set_attribute(change));
    let _ = body.set_attribute(node);
    // A refusal ends here: the message is in the graph, and others have it.
    drop(own.upper.demux(cx, this, body));
}

/// Token of the timer that brings a shepherd for an upcall.
const DRAIN: u64 = 1;
/// Token of the timer of all that is due.
const WORK: u64 = 0;
/// Token of the timer that looks for a buffer again.
const STUCK: u64 = 2;

/// A timer goes off.
pub(crate) fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
    if token == WORK {
        own.state.timer.set(None);
        work(own, cx, this);
        count_given_up(own, cx, this);
    } else if token == STUCK {
        own.state.is_stuck.set(false);
    }
    deliver(own, cx, this);
    let_pushes_go_on(own, cx);
    arm(own, cx, this);
}

fn work(own: &Own, cx: &Kernel, this: &SessionRef) {
    let head = this.head();
    let sent_at = with(own, |inner| inner.sent_at.filter(|_| inner.graph.unheld() > 0)).flatten();
    if head.is_passive()
        && head.opens() == 0
        && head.received() <= 1
        && sent_at.is_some_and(|at| cx.now().since(at) >= VAIN_AFTER)
    {
        // A stranger may have begun it in the name of a host that knows nothing of it.
        this.abort(cx);
        return;
    }
    ask_all_back(own, cx, this);
    // One that has come back asks all what they hold of it, or it could not send.
    let is_back = with(own, |inner| inner.start != 0) == Some(true);
    if sent_at.is_some() && is_known(own, this) || is_back && is_held(this) {
        open_ways(own, cx, this);
    }
    let mut acts = Acts::new();
    with(own, |inner| inner.work(cx.now(), &mut acts));
    send(own, cx, this, acts);
    arm(own, cx, this);
}

/// Counts the messages that were given up.
fn count_given_up(own: &Own, cx: &Kernel, this: &SessionRef) {
    let given_up = with(own, |inner| inner.graph.take_given_up()).unwrap_or(0);
    (0..given_up).for_each(|_| this.count_drop(cx, &NO_PREDECESSOR));
}

/// Sets the timer to what is due next.
fn arm(own: &Own, cx: &Kernel, this: &SessionRef) {
    let restart = own.state.restart.borrow().as_ref().map(|(restart, _)| restart.due);
    let Some(due) = with(own, |inner| inner.due()).flatten().or(restart) else {
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

/// Whether a protocol above takes part in the conversation, or a member has acknowledged a message
/// of this one.
fn is_known(own: &Own, this: &SessionRef) -> bool {
    is_held(this) || with(own, |inner| inner.graph.is_known()) == Some(true)
}

/// Whether a protocol above takes part in the conversation.
fn is_held(this: &SessionRef) -> bool {
    !this.head().is_passive() || this.head().opens() > 0
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
        let hurry = |inner: &mut Inner| {
            if let Some((due, _)) = inner.beacon.as_mut().filter(|_| inner.start != 0) {
                *due = cx.now();
            }
        };
        with(own, hurry);
        arm(own, cx, this);
        return;
    }
    // One that cannot be reached keeps no other from being, and is tried again.
    for peer in peers {
        if own.extend(cx, this, &Participants::pair(local.clone(), peer)).is_err() {
            with(own, |inner| inner.has_ways = false);
        }
    }
}

/// Sends the packets that an event calls for. They open no ways: a member that was not heard gets
/// none unless there are.
fn send(own: &Own, cx: &Kernel, this: &SessionRef, acts: Acts) {
    for act in acts {
        let made = with(own, |inner| inner.packet(cx, &act, own.octets_max)).flatten();
        if let Some(message) = made {
            // What is lost is sent again.
            let _ = own.send(cx, this, message);
        }
    }
}

impl Inner {
    /// Makes a packet; `None` if there is no buffer, or nothing to say any more.
    fn packet(&self, cx: &Kernel, act: &Act, most: usize) -> Option<Message> {
        let own = Id { sender: self.me, seq: 0 };
        let empty = || cx.pool().empty(HEADROOM).ok();
        let mut held: Vec<Id> = Vec::new();
        let (to, mut message, header, entries) = match act {
            Act::Leaves { to, wants_answer } => {
                let leaves = self.graph.leaves();
                let mut header = self.header(kind::LEAVES, own, leaves.len(), 0);
                header.flags = if *wants_answer { ANSWER } else { 0 };
                (to, empty()?, header, leaves)
            }
            Act::Held { to } => {
                held.extend(self.graph.holds(usize::from(*to)));
                let mut header = self.header(kind::LEAVES, own, held.len(), 0);
                header.flags = HELD;
                (to, empty()?, header, held.as_slice())
            }
            Act::Seen { to } => {
                held.push(Id { sender: *to, seq: self.graph.seen(usize::from(*to)) });
                let mut header = self.header(kind::LEAVES, own, held.len(), 0);
                header.flags = LAST;
                (to, empty()?, header, held.as_slice())
            }
            Act::Gone { to } => (to, empty()?, plain(kind::GONE, self.number, 0), &[][..]),
            Act::Request { to, ids } => {
                (to, empty()?, self.header(kind::REQUEST, own, ids.len(), 0), ids.as_slice())
            }
            Act::Resend { to, id } => {
                let (body, is_null) = self.graph.body(*id)?;
                let before = self.graph.predecessors(*id);
                let mut header = self.header(kind::RESENT, *id, before.len(), body.len());
                header.flags = if is_null { NULL } else { 0 };
                header.flags |= if self.graph.is_last(*id) { LAST } else { 0 };
                (to, body.try_clone().ok()?, header, before)
            }
            Act::Open { to } => (to, empty()?, self.header(kind::OPEN, own, 0, 0), &[][..]),
            Act::OpenAck { to } => (to, empty()?, self.header(kind::OPEN_ACK, own, 0, 0), &[][..]),
            Act::Let { to, start, first } => {
                let listed = Opening::octets(self.members.len());
                let body = self.base_for(*to, *start, *first, most.saturating_sub(listed));
                let header = self.header(kind::RESTART_ACK, own, 0, body.len());
                (to, cx.pool().copy_from(2 * HEADROOM, &body).ok()?, header, &[][..])
            }
        };
        let is_near = self.has_ways || self.members[usize::from(*to)].is_heard;
        if !is_near && !matches!(act, Act::Let { .. }) {
            return None;
        }
        let is_listed = matches!(act, Act::Open { .. } | Act::Let { first: Some(_), .. });
        let list = is_listed.then(|| self.opening().emit());
        let incarnation_of = |id| self.graph.incarnation_of(id);
        put_front(&mut message, header, entries, incarnation_of, list.as_deref()).ok()?;
        message.set_attribute(self.members[usize::from(*to)].address.peer).ok()?;
        Some(message)
    }
}

/// Ends a conversation: pushes that wait fail, and those that leave as well need not ask.
pub(crate) fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
    let left = with(own, |inner| {
        let all = inner.others().filter(|other| inner.graph.has_left((*other).into()));
        all.map(|to| Act::Gone { to }).collect()
    });
    send(own, cx, this, left.unwrap_or_default());
    own.state.pushes.end(cx);
    let timer = own.state.timer.take();
    let _ = cx.cancel(timer.map(|(_, timer)| timer));
}

/// Gives back the graph with its messages.
pub(crate) fn drain(own: &Own) {
    drop(own.state.restart.take());
    drop(own.state.inner.take());
}
