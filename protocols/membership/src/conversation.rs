//! A conversation of this member: messages of the layer above go through, unless members are being
//! agreed on; members that are silent are found out, those that come back are let in, and votes
//! sent.
//!
//! Nothing is borrowed while a message goes up or down. Votes and signs of life are sent by timers,
//! so that no upcall waits for room for them.

use crate::agreement::{Agreement, Change, Decided, Held, Ignored, Status, Up, status};
use crate::protocol::Membership;
use crate::wire::{self, ALIVE, DATA, DECIDED, HEADER_OCTETS, Header};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::{PushError, Refused};
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Message, Reason, SessionRef, Time, reason};
use xk_kit::group::{
    Aside, IsStable, Leave, MaskIn, MaskOut, MemberState, MyMember, Node, NodeId, Outstanding,
    PlaceOf, SendNull, TakeNulls, TakeViews, View, ViewChange,
};
use xk_kit::layer::Conversation;
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::wait_queue::{Pushes, Room};
use xk_kit::{InOrder, Turns};

/// Time after which a vote is sent again that found no room.
const RETRY: Duration = Duration::from_millis(10);
/// Time that a push may wait while an upcall is under way, which may be what it waits for.
const IN_UPCALL: Duration = Duration::from_secs(1);
/// Time between two signs of life of a member that comes back.
const SIGN: Duration = Duration::from_millis(50);
/// Signs of life in a row that stand for a message that follows this member's.
const SIGNS_MAX: u8 = 16;
/// Room in front of a message for the headers of the layers below.
const HEADROOM: usize = 128;
/// Own votes whose numbers are kept, for the layer above to tell them from its own messages.
const VOTES_MAX: usize = 64;

/// Too few members are heard.
pub(crate) static NO_QUORUM: Reason = Reason::new("no quorum", Class::Exhausted);
/// Another has found that this member has failed.
pub(crate) static OUT: Reason = Reason::new("out of the group", Class::Prohibited);
/// The message comes after the last one of its sender that counts.
pub(crate) static BEYOND_CUT: Reason = Reason::new("beyond the cut", Class::NotMine);
/// More is held back than members may have sent.
pub(crate) static TOO_MANY: Reason = Reason::new("too many held back", Class::Bad);
/// The vote says nothing new.
pub(crate) static OLD_VOTE: Reason = Reason::new("old vote", Class::Bad);
/// By the vote too few members are left.
pub(crate) static TOO_FEW: Reason = Reason::new("too few left", Class::Bad);

/// The session object.
pub(crate) type Own = Conversation<Membership, 0>;

/// Knowledge of another member.
#[derive(Clone)]
struct Watch {
    /// Number of its last message, and the time at which that was new.
    last: u32,
    spoke_at: Time,
    /// A message of this member that it is to follow, and the time at which it had followed the one
    /// before.
    mark: u32,
    followed_at: Time,
    /// Signs of life since then that stood for one.
    signs: u8,
}

/// State of a conversation.
pub struct Talk {
    agreement: RefCell<Agreement<Message>>,
    pub(crate) me: u8,
    incarnation: u16,
    watched: RefCell<Vec<Watch>>,
    /// The members that the layer below does not count, and those that it keeps messages for, as
    /// bits.
    masked: Cell<u64>,
    kept: Cell<u64>,
    /// The members that have told this one that it is out, as bits.
    told: Cell<u64>,
    /// The members that are left while a change is agreed on, and since when.
    open: Cell<Option<(u64, Time)>>,
    has_quorum: Cell<bool>,
    /// The layer above was not told of that, for want of a buffer.
    is_untold: Cell<bool>,
    /// The members that were found failed the last time.
    doubted: Cell<u64>,
    changes: Cell<u32>,
    takes_nulls: Cell<bool>,
    takes_views: Cell<bool>,
    pushes: Pushes,
    /// The messages that are being sent, one after the other.
    turns: Turns<()>,
    /// Number of this member's last message, and the time of that.
    sent: Cell<u32>,
    sent_at: Cell<Time>,
    votes: RefCell<VecDeque<u32>>,
    votes_soon: Cell<bool>,
    tick: Cell<Option<Timer>>,
    /// Messages that have come up and are not taken.
    coming: InOrder<(Node, Option<Header>, Message)>,
    /// Shepherds in upcalls, and the one that passes up what was held back.
    upcalls: RefCell<Vec<Option<u32>>>,
    up: Cell<Option<Option<u32>>>,
    ups: Turns<()>,
}

impl Talk {
    /// The state of a conversation on the session `lower`.
    pub(crate) fn new(cx: &Kernel, lower: &SessionRef) -> Self {
        let (now, my) = (cx.now(), lower.ask(cx, MyMember::default()).unwrap_or_default());
        let (members, window) = (usize::from(my.members.max(1)), usize::from(my.window.max(1)));
        // What each may have sent when the others vote, and as much again.
        let mut agreement = Agreement::new(members, my.index.into(), 2 * members * window);
        let watch = Watch { last: 0, spoke_at: now, mark: 0, followed_at: now, signs: 0 };
        let (mut sent, mut masked) = (0, 0);
        if my.incarnation > 1 {
            let state = |index| MemberState { index, ..MemberState::default() };
            let all = (0..my.members).map(|at| lower.ask(cx, state(at)).unwrap_or_default());
            let all: Vec<MemberState> = all.collect();
            sent = all[usize::from(my.index)].last;
            masked = all.iter().fold(0, |bits, one| bits | u64::from(one.is_masked) << one.index);
            agreement.come_back(my.incarnation, all.iter().map(|one| one.last).collect());
        }
        Self {
            agreement: RefCell::new(agreement),
            me: my.index,
            incarnation: my.incarnation,
            watched: RefCell::new(alloc::vec![watch; members]),
            masked: Cell::new(masked),
            kept: Cell::default(),
            told: Cell::default(),
            open: Cell::new(None),
            has_quorum: Cell::new(true),
            is_untold: Cell::new(false),
            doubted: Cell::default(),
            changes: Cell::new(0),
            takes_nulls: Cell::new(false),
            takes_views: Cell::new(false),
            pushes: Pushes::default(),
            turns: Turns::default(),
            sent: Cell::new(sent),
            sent_at: Cell::new(now),
            votes: RefCell::default(),
            votes_soon: Cell::new(false),
            tick: Cell::new(None),
            coming: InOrder::default(),
            upcalls: RefCell::default(),
            up: Cell::new(None),
            ups: Turns::default(),
        }
    }

    pub(crate) fn members(&self) -> u64 {
        self.agreement.borrow().members()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.agreement.borrow().waiting()
    }

    pub(crate) fn has_quorum(&self) -> bool {
        self.has_quorum.get()
    }

    fn room(&self) -> Result<Room, PushError> {
        let agreement = self.agreement.borrow();
        match self.has_quorum.get() {
            _ if agreement.is_out() => Err(PushError::Unreachable),
            _ if agreement.leaves() => Err(PushError::Closed),
            false => Err(PushError::NoRoute),
            true if agreement.is_open() => Ok(Room::None),
            true => Ok(Room::ForNext),
        }
    }

    /// Lets the push go on that waits longest, if there is room, or will be none.
    fn let_push_go_on(&self, cx: &Kernel) {
        if !matches!(self.room(), Ok(Room::None)) {
            self.pushes.go_on(cx, Ok(Room::ForNext));
        }
    }

    /// Has members that are silent be so from now on, those of `members`.
    fn watch_again(&self, now: Time, members: u64) {
        let mut watched = self.watched.borrow_mut();
        let all = watched.iter_mut().enumerate().filter(|(at, _)| members >> at & 1 != 0);
        all.for_each(|(_, watch)| (watch.spoke_at, watch.followed_at, watch.signs) = (now, now, 0));
    }

    fn view(&self) -> ViewChange {
        let has_quorum = self.has_quorum.get() && !self.agreement.borrow().is_strange();
        let members = self.members();
        ViewChange { members, has_quorum, ..ViewChange::default() }
    }
}

/// Sends a message of this member, unless the members that are heard are too few, once none is to
/// be agreed on.
pub(crate) fn push(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
) -> Result<(), PushError> {
    let talk = &own.state;
    if message.len() > own.octets_max {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    let header = Header { kind: DATA, members: 0 }.emit();
    if message.attribute::<Aside>().is_some() && message.push_array(&header).is_ok() {
        return own.lower().push(cx, message);
    }
    // The layer below waits no longer, either.
    let mut options = message.attribute::<CallOptions>();
    if options.is_none() && talk.upcalls.borrow().contains(&cx.shepherds().current()) {
        let limit = CallOptions { deadline: cx.now().after(IN_UPCALL), tag: 0 };
        let _ = message.set_attribute(limit);
        options = Some(limit);
    }
    let sent = match message.push_array(&header) {
        Ok(()) => send(own, cx, this, message, options),
        Err(_) => {
            this.discard(cx, message, &reason::NO_BUFFERS);
            Err(PushError::NoBuffers)
        }
    };
    talk.let_push_go_on(cx);
    sent
}

/// Sends a message, once none is to be agreed on: what comes after a vote and before its decision
/// would have no place in the order of all messages.
fn send(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    options: Option<CallOptions>,
) -> Result<(), PushError> {
    let talk = &own.state;
    let refuse = |message, error| {
        let why = match error {
            PushError::QueueFull => &reason::QUEUE_FULL,
            PushError::NoRoute => &NO_QUORUM,
            PushError::Unreachable => &OUT,
            _ => &reason::CLOSED,
        };
        this.discard(cx, message, why);
        Err(error)
    };
    loop {
        if let Err(error) = talk.pushes.wait(cx, this.id(), options, || talk.room()) {
            return refuse(message, error);
        }
        let limit = CallOptions::clip(options, cx.now(), Duration::MAX).unwrap_or_default();
        let limit = (limit != Duration::MAX).then_some(limit);
        let turn = talk.turns.take_within(cx, (), limit);
        if !turn.is_taken() {
            return refuse(message, PushError::QueueFull);
        }
        if this.head().is_closed() {
            return refuse(message, PushError::Closed);
        }
        // A vote may have been sent meanwhile.
        if !matches!(talk.room(), Ok(Room::None)) {
            own.lower().push(cx, message)?;
            talk.note_sent(cx);
            return Ok(());
        }
    }
}

impl Talk {
    /// Notes that a message of this member is in the graph; returns its number.
    fn note_sent(&self, cx: &Kernel) -> u32 {
        let seq = self.sent.get() + 1;
        self.sent.set(seq);
        self.sent_at.set(cx.now());
        seq
    }
}

/// Sends a message without octets at once; returns its number.
fn send_null(own: &Own, cx: &Kernel) -> Option<u32> {
    let turn = own.state.turns.take_within(cx, (), Some(Duration::ZERO));
    let is_sent = turn.is_taken() && own.lower().ask(cx, SendNull).is_some();
    is_sent.then(|| own.state.note_sent(cx))
}

/// Sends the last message of this member, unless another is being sent.
fn leave(own: &Own, cx: &Kernel, question: &mut Leave) -> Answer {
    let talk = &own.state;
    let turn = talk.turns.take_within(cx, (), Some(Duration::ZERO));
    question.is_sent = talk.agreement.borrow().leaves();
    if question.is_sent || !turn.is_taken() {
        return Answer::Answered;
    }
    let Some(Leave { is_sent }) = own.lower().ask(cx, Leave::default()) else {
        return Answer::Unknown;
    };
    question.is_sent = is_sent;
    if is_sent {
        talk.note_sent(cx);
        talk.agreement.borrow_mut().leave(talk.me.into());
        talk.let_push_go_on(cx);
    }
    Answer::Answered
}

fn place_of(own: &Own, cx: &Kernel, id: NodeId) -> Option<PlaceOf> {
    own.lower().ask(cx, PlaceOf { id, wants_past: true, ..PlaceOf::default() })
}

/// Takes a message of another member.
pub(crate) fn take(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
) -> Result<(), Refused> {
    let talk = &own.state;
    if let Some(Aside { member }) = message.attribute() {
        return take_aside(own, cx, this, message, member);
    }
    let node = message.attribute::<Node>().filter(|node| node.id.sender != talk.me);
    let Some(node) = node else {
        return Err(this.refuse(cx, message, &reason::MALFORMED));
    };
    if talk.agreement.borrow().is_out() {
        return Err(this.refuse(cx, message, &OUT));
    }
    let is_free = {
        let agreement = talk.agreement.borrow();
        // Another shepherd may be passing up or taking what comes before.
        let is_idle = talk.up.get().is_none() && !talk.coming.is_working();
        is_idle && agreement.is_calm() && agreement.counts(node.id)
    };
    if !node.is_null {
        // It may lie in several slices.
        let _ = message.pull_up(HEADER_OCTETS);
    }
    let octets = message.peek::<HEADER_OCTETS>().filter(|_| !node.is_null);
    let header = octets.map(Header::parse);
    if is_free && header == Some(Header { kind: DATA, members: 0 }) {
        let _ = message.pop_array::<HEADER_OCTETS>();
        let _ = message.remove_attribute::<ViewChange>();
        talk.agreement.borrow_mut().note(node.id);
        return hand_up(own, cx, this, message);
    }
    // The layer below may block when it is asked for the place of a vote.
    let take = |(node, header, message)| take_one(own, cx, this, (node, header), message);
    if talk.coming.work((node, header, message), take) {
        act(own, cx, this);
        deliver(own, cx, this);
    }
    Ok(())
}

/// Gives a message to the agreement, and the vote that it may be.
fn take_one(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    (node, header): (Node, Option<Header>),
    mut message: Message,
) {
    let talk = &own.state;
    let is_last = message.remove_attribute::<ViewChange>().is_some();
    let is_data = header == Some(Header { kind: DATA, members: 0 });
    if header.is_some() {
        let _ = message.pop_array::<HEADER_OCTETS>();
    }
    let roll = header.filter(|header| header.kind == wire::VOTE);
    let roll = roll.and_then(|header| wire::read(header, &message));
    if !is_data {
        // For the layer above it has its place alone.
        message.truncate(0);
        let _ = message.set_attribute(Node { is_null: true, ..node });
        if !node.is_null && roll.is_none() {
            this.count_drop(cx, &reason::MALFORMED);
        }
    }
    let vote = roll.map(|roll| (roll, place_of(own, cx, node.id).unwrap_or_default().past));
    let (taken, voted) = {
        let mut agreement = talk.agreement.borrow_mut();
        let held = Held { id: node.id, is_null: !is_data, body: message };
        let taken = agreement.take(held);
        let from = node.id.sender.into();
        if is_last {
            agreement.leave(from);
        }
        let place = (node.id.seq, node.depth);
        (taken, vote.map(|(roll, past)| agreement.vote(from, &roll, place, past)))
    };
    [taken, voted.unwrap_or(Ok(()))].into_iter().filter_map(Result::err).for_each(|why| {
        let why = match why {
            Ignored::Old => &OLD_VOTE,
            Ignored::TooFew => &TOO_FEW,
            Ignored::TooMany => &TOO_MANY,
        };
        this.count_drop(cx, why);
    });
}

/// Takes a message beside the conversation.
fn take_aside(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
    from: u8,
) -> Result<(), Refused> {
    let talk = &own.state;
    let _ = message.pull_up(HEADER_OCTETS);
    let header = message.pop_array::<HEADER_OCTETS>().map(Header::parse);
    match (header, header.and_then(|header| wire::read(header, &message))) {
        (Some(Header { kind: DATA, members: 0 }), _) => hand_up(own, cx, this, message),
        (Some(Header { kind: ALIVE, members: 0 }), _) => {
            if let Some(watch) = talk.watched.borrow_mut().get_mut(usize::from(from)) {
                watch.spoke_at = cx.now();
                // It hears enough others, and can only not say so by a message that follows theirs.
                if watch.signs < SIGNS_MAX {
                    (watch.followed_at, watch.signs) = (cx.now(), watch.signs + 1);
                }
            }
            talk.agreement.borrow_mut().hello(from.into());
            act(own, cx, this);
            Ok(())
        }
        (Some(Header { kind: DECIDED, .. }), Some(roll)) => {
            // A lie of one, or of a few, is not enough.
            if talk.agreement.borrow().is_out_by(&roll) {
                talk.told.set(talk.told.get() | 1 << from);
            }
            Ok(())
        }
        _ => Err(this.refuse(cx, message, &reason::MALFORMED)),
    }
}

fn hand_up(own: &Own, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
    let upcalls = &own.state.upcalls;
    let shepherd = cx.shepherds().current();
    upcalls.borrow_mut().push(shepherd);
    let taken = own.upper.demux(cx, this, message);
    let mut upcalls = upcalls.borrow_mut();
    let at = upcalls.iter().rposition(|other| *other == shepherd);
    let _ = at.map(|at| upcalls.swap_remove(at));
    drop(upcalls);
    taken
}

/// Has the layer below count as the agreement calls for: members that are to go are masked before
/// the vote, so that what comes of them afterwards is what others have followed; for one that is to
/// come back messages are kept from the vote on.
fn mask(own: &Own, cx: &Kernel) {
    let talk = &own.state;
    let wanted = talk.agreement.borrow().wanted().to_vec();
    for (number, index) in wanted.into_iter().zip(0..).filter(|(_, at)| *at != talk.me) {
        let bit = 1 << index;
        let (masked, kept) = (talk.masked.get(), talk.kept.get());
        match status(number) {
            Status::Out if (masked | kept) & bit == 0 => {
                talk.masked.set(masked | bit);
                let _ = own.lower().ask(cx, MaskOut { index, last: 0 });
            }
            Status::Coming(_) if masked & !kept & bit != 0 => {
                let question = MaskIn { index, ..MaskIn::default() };
                if own.lower().ask(cx, question).is_some() {
                    talk.kept.set(kept | bit);
                }
            }
            _ => {}
        }
    }
}

/// Has the layer below count a member again, unless it does so already.
fn let_in(own: &Own, cx: &Kernel, change: &Change, base: Vec<u32>) {
    let (talk, index) = (&own.state, change.member);
    let (bit, Change { incarnation, .. }) = (1 << index, *change);
    let Status::Coming(start) = change.status else {
        return;
    };
    if talk.kept.get() & bit != 0 {
        let is_in = own.lower().ask(cx, MaskIn { index, incarnation, start, base }).is_some();
        talk.kept.set(talk.kept.get() & !bit);
        talk.masked.set(talk.masked.get() & !bit);
        if !is_in {
            talk.agreement.borrow_mut().fail();
        }
        talk.watch_again(cx.now(), 1 << index);
    }
}

/// Does what the agreement calls for.
fn act(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    mask(own, cx);
    let (hoped, is_open, is_unsaid) = {
        let agreement = talk.agreement.borrow();
        (agreement.hoped(), agreement.is_open(), agreement.unsaid().is_some())
    };
    let since = talk.open.get().filter(|(left, _)| *left == hoped);
    talk.open.set(is_open.then(|| since.unwrap_or((hoped, cx.now()))));
    if is_unsaid && !talk.votes_soon.get() {
        talk.votes_soon.set(cx.schedule(this, Duration::ZERO, VOTE).is_ok());
    }
    look(own, cx, this, talk.has_quorum.get());
    talk.let_push_go_on(cx);
}

/// Notes whether enough members are heard, and tells the layer above if that is new.
fn look(own: &Own, cx: &Kernel, this: &SessionRef, is_heard: bool) {
    let talk = &own.state;
    let has_quorum = is_heard && !talk.agreement.borrow().is_out();
    if talk.has_quorum.replace(has_quorum) != has_quorum {
        talk.is_untold.set(!tell(own, cx, this, talk.view()));
        talk.let_push_go_on(cx);
    }
}

/// Tells the layer above of a change; false if there is no buffer for that.
fn tell(own: &Own, cx: &Kernel, this: &SessionRef, change: ViewChange) -> bool {
    !own.state.takes_views.get()
        || pass(own, cx, this, |message| message.set_attribute(change).is_ok())
}

/// Tells the layer above that a message of this member has a place, which it did not send.
fn tell_own(own: &Own, cx: &Kernel, this: &SessionRef, seq: u32) {
    let id = NodeId { sender: own.state.me, seq };
    if own.state.takes_nulls.get()
        && let Some(PlaceOf { depth, .. }) = place_of(own, cx, id)
    {
        let node = Node { id, incarnation: own.state.incarnation, depth, is_null: true };
        // The next one makes up for it.
        pass(own, cx, this, |message| message.set_attribute(node).is_ok());
    }
}

/// Passes up a message without octets; false if there is no buffer for it.
fn pass(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mark: impl FnOnce(&mut Message) -> bool,
) -> bool {
    let marked = cx.pool().empty(HEADROOM).ok();
    let marked = marked.and_then(|mut message| mark(&mut message).then_some(message));
    marked.map(|message| drop(hand_up(own, cx, this, message))).is_some()
}

/// Passes up what is held back no longer, one after the other, behind another shepherd that does.
fn deliver(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    if talk.up.get() == Some(cx.shepherds().current()) {
        return;
    }
    let _turn = talk.ups.take(cx, ());
    if talk.up.get().is_some() {
        // There is no waiting on this shepherd.
        return;
    }
    talk.up.set(Some(cx.shepherds().current()));
    let mut is_stuck = talk.is_untold.get() && !tell(own, cx, this, talk.view());
    talk.is_untold.set(is_stuck);
    while !is_stuck && !this.head().is_closed() {
        let next = talk.agreement.borrow_mut().next();
        match next {
            None => break,
            Some(Up::Message(held)) if held.is_null && !talk.takes_nulls.get() => {}
            // A refusal ends here, as below: others have passed it up.
            Some(Up::Message(held)) => drop(hand_up(own, cx, this, held.body)),
            Some(Up::BeyondCut) => this.count_drop(cx, &BEYOND_CUT),
            // The place counts, the octets are part of the state that this member is given.
            Some(Up::Place(Held { id, body: mut message, .. })) => {
                let node = message.attribute::<Node>();
                message.truncate(0);
                let marked =
                    node.map(|node| message.set_attribute(Node { id, is_null: true, ..node }));
                if talk.takes_nulls.get() && marked == Some(Ok(())) {
                    let _ = hand_up(own, cx, this, message);
                }
            }
            Some(Up::LetIn(change, base)) => let_in(own, cx, &change, base),
            Some(Up::View(decided)) => {
                let before = talk.changes.replace(talk.changes.get() + 1);
                if !enter(own, cx, this, decided) {
                    talk.changes.set(before);
                    is_stuck = true;
                }
            }
        }
        mask(own, cx);
    }
    talk.up.set(None);
    if is_stuck {
        // The timer of votes looks here again.
        talk.votes_soon.set(cx.schedule(this, RETRY, VOTE).is_ok());
    }
}

/// Enters a roll that is decided, change by change; false if what is left waits for a buffer.
fn enter(own: &Own, cx: &Kernel, this: &SessionRef, mut decided: Decided) -> bool {
    let talk = &own.state;
    for (at, change) in decided.changes.iter().enumerate() {
        let bit = 1 << change.member;
        match change.status {
            Status::Coming(_) => {
                let_in(own, cx, change, decided.past.clone());
                continue;
            }
            Status::Out if change.member != talk.me => {
                talk.kept.set(talk.kept.get() & !bit);
                talk.masked.set(talk.masked.get() | bit);
                let _ = own.lower().ask(cx, MaskOut { index: change.member, last: 0 });
            }
            _ => talk.watch_again(cx.now(), if change.member == talk.me { u64::MAX } else { bit }),
        }
        let Decided { members, depth, .. } = decided;
        let (member, incarnation) = (Some(change.member), change.incarnation);
        let view = ViewChange { members, member, depth, incarnation, ..talk.view() };
        if !tell(own, cx, this, view) {
            drop(decided.changes.drain(..at));
            talk.agreement.borrow_mut().put_back(Up::View(decided));
            return false;
        }
    }
    true
}

/// Tokens of the timers: a look at the members is due; a vote is.
const TICK: u64 = 0;
const VOTE: u64 = 1;

/// Begins to look after the members.
pub(crate) fn watch(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let timer = talk.tick.take();
    let every = own.all.layer.settings.suspect / 4;
    let every = if talk.agreement.borrow().is_strange() { every.min(SIGN) } else { every };
    talk.tick.set(timer.or_else(|| cx.schedule(this, every, TICK).ok()));
}

/// A timer goes off.
pub(crate) fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
    let talk = &own.state;
    if token == VOTE {
        talk.votes_soon.set(false);
        vote(own, cx, this);
    } else {
        talk.tick.set(None);
        if talk.told.get().count_ones() >= talk.agreement.borrow().quorum() {
            // The next packet of the conversation has the layer below ask to come back.
            own.lower().abort(cx);
            return;
        }
        let is_strange = talk.agreement.borrow().is_strange();
        match is_strange {
            true => sign(own, cx, u64::MAX),
            false => look_after(own, cx, this),
        }
        watch(own, cx, this);
    }
    act(own, cx, this);
    deliver(own, cx, this);
}

/// Sends a vote at once; returns its number.
fn send_vote(own: &Own, cx: &Kernel, roll: &[u64]) -> Option<u32> {
    let turn = own.state.turns.take_within(cx, (), Some(Duration::ZERO));
    let mut message = cx.pool().copy_from(HEADROOM, &wire::emit(wire::VOTE, roll)).ok()?;
    message.set_attribute(CallOptions { deadline: cx.now(), tag: 0 }).ok()?;
    if !turn.is_taken() {
        return None;
    }
    {
        // The layer above may ask what has this number before the push returns.
        let mut votes = own.state.votes.borrow_mut();
        votes.push_back(own.state.sent.get() + 1);
        while votes.len() > VOTES_MAX {
            votes.pop_front();
        }
    }
    if own.lower().push(cx, message).is_err() {
        own.state.votes.borrow_mut().pop_back();
        return None;
    }
    Some(own.state.note_sent(cx))
}

/// Sends octets to some members, beside the conversation.
fn tell_aside(own: &Own, cx: &Kernel, members: u64, octets: &[u8]) {
    let (count, me) = (own.state.watched.borrow().len() as u8, own.state.me);
    for member in (0..count).filter(|at| *at != me && members >> at & 1 != 0) {
        if let Ok(mut message) = cx.pool().copy_from(HEADROOM, octets)
            && message.set_attribute(Aside { member }).is_ok()
        {
            let _ = own.lower().push(cx, message);
        }
    }
}

/// Gives a sign of life to some members.
fn sign(own: &Own, cx: &Kernel, members: u64) {
    tell_aside(own, cx, members, &Header { kind: ALIVE, members: 0 }.emit());
}

/// Sends the vote that is due.
fn vote(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let Some(roll) = talk.agreement.borrow().unsaid().map(<[u64]>::to_vec) else {
        return;
    };
    let sent = send_vote(own, cx, &roll);
    let Some(seq) = sent else {
        talk.votes_soon.set(cx.schedule(this, RETRY, VOTE).is_ok());
        return;
    };
    let place = place_of(own, cx, NodeId { sender: talk.me, seq });
    let PlaceOf { depth, past, .. } = place.unwrap_or_default();
    let _ = talk.agreement.borrow_mut().vote(talk.me.into(), &roll, (seq, depth), past);
    tell_own(own, cx, this, seq);
}

/// Looks which members are silent, or do not hear; gives a sign of life.
fn look_after(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let (now, suspect) = (cx.now(), own.all.layer.settings.suspect);
    let (hoped, quorum, missing, decided, wanted) = {
        let agreement = talk.agreement.borrow();
        let rolls = (agreement.decided().to_vec(), agreement.wanted().to_vec());
        (agreement.hoped(), agreement.quorum(), agreement.missing(), rolls.0, rolls.1)
    };
    let me = 1_u64 << talk.me;
    let (mut failed, mut recent, mut lost, mut out) = (0, me, 0, 0);
    for index in (0..decided.len() as u8).filter(|at| *at != talk.me) {
        let state = own.lower().ask(cx, MemberState { index, ..MemberState::default() });
        let (asks, at) = (state.map_or(0, |state| state.asks), usize::from(index));
        if status(decided[at]) == Status::Out {
            out |= 1 << index;
            talk.agreement.borrow_mut().admit(at, asks);
            continue;
        }
        // One that is counted has lost its state, if it asks; or it has not heard of the others
        // yet.
        let has_begun = state.is_some_and(|state| state.last > 0);
        lost |= u64::from(asks != 0 && has_begun) << index;
        if status(wanted[at]) == Status::Out {
            continue;
        }
        let id = NodeId { sender: talk.me, seq: talk.watched.borrow()[usize::from(index)].mark };
        let stable = own.lower().ask(cx, IsStable { id, ..IsStable::default() });
        let is_followed = stable.is_some_and(|stable| stable.members >> index & 1 != 0);
        let watch = &mut talk.watched.borrow_mut()[usize::from(index)];
        let state = state.unwrap_or_default();
        if state.last > watch.last {
            (watch.last, watch.spoke_at) = (state.last, now);
        }
        // Others may pass on what it says; any packet of its own is a sign of life as well.
        let silent = now.since(watch.spoke_at).min(state.silent);
        // One that does not speak cannot say that it hears.
        if is_followed || id.seq == 0 || silent >= suspect / 2 {
            (watch.mark, watch.followed_at, watch.signs) = (talk.sent.get(), now, 0);
        }
        // It takes longer to begin a conversation, or to come back into it.
        let is_new = watch.last == 0 || status(decided[at]) != Status::In;
        let limit = if is_new { 4 * suspect } else { suspect };
        if silent >= limit || now.since(watch.followed_at) >= 4 * suspect {
            failed |= 1 << index;
        }
        recent |= u64::from(silent < suspect * 3 / 4) << index;
    }
    failed |= lost;
    let is_stalled = |(_, since)| now.since(since) >= 4 * suspect;
    if talk.open.get().is_some_and(is_stalled) {
        failed |= missing & !me;
    }
    // Where all are silent it is this member that is cut off, and it accuses none.
    let can_tell = (recent & !failed).count_ones() >= quorum;
    let is_heard = (hoped & !failed).count_ones() >= quorum;
    if is_heard && !talk.has_quorum.get() {
        // The others are heard again one after the other.
        talk.watch_again(now, u64::MAX);
    }
    // After such a time, and short ones go unnoticed, the others are heard again one after the
    // other: one that is accused was found failed before, too.
    let found = if can_tell { failed } else { 0 };
    let accused = found & (talk.doubted.replace(found) | lost);
    if accused != 0 {
        talk.agreement.borrow_mut().suspect(accused);
    }
    look(own, cx, this, is_heard);
    if out != 0 && talk.has_quorum.get() {
        tell_aside(own, cx, out, &wire::emit(DECIDED, &decided));
    }
    let is_silent = {
        let agreement = talk.agreement.borrow();
        agreement.is_out() || agreement.leaves()
    };
    if now.since(talk.sent_at.get()) < suspect / 8 || is_silent {
        return;
    }
    match send_null(own, cx) {
        Some(seq) => tell_own(own, cx, this, seq),
        // The window is full, perhaps of messages that a member lacks which has failed.
        None if talk.has_quorum.get() => sign(own, cx, hoped),
        None => {}
    }
}

/// Answers what only this layer knows.
pub(crate) fn control(own: &Own, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
    let talk = &own.state;
    if ask.get::<TakeNulls>().is_some() {
        talk.takes_nulls.set(true);
    } else if ask.get::<TakeViews>().is_some() {
        talk.takes_views.set(true);
    } else if let Some(view) = ask.get::<View>() {
        let ViewChange { members, has_quorum, .. } = talk.view();
        *view = View { members, has_quorum, changes: talk.changes.get() };
    } else if let Some(question) = ask.get::<Leave>() {
        return leave(own, cx, question);
    } else if ask.get::<SendNull>().is_some() {
        return if send_null(own, cx).is_some() { Answer::Answered } else { Answer::Unknown };
    } else if ask.get::<MaskOut>().is_some() || ask.get::<MaskIn>().is_some() {
        // One alone does not decide.
        return Answer::Unknown;
    } else {
        let answer = own.answer(cx, ask);
        less_header(ask, HEADER_OCTETS);
        let _ = ask.answer::<Outstanding>(|q| q.ready += talk.waiting() as u32);
        let _ = ask.answer::<PlaceOf>(|q| {
            q.is_null |= q.id.sender == talk.me && talk.votes.borrow().contains(&q.id.seq);
        });
        return answer;
    }
    Answer::Answered
}

/// Ends a conversation: pushes that wait fail.
pub(crate) fn end(own: &Own, cx: &Kernel) {
    own.state.pushes.end(cx);
    let _ = cx.cancel(own.state.tick.take());
}

/// Gives back the messages that wait.
pub(crate) fn drain(own: &Own) {
    own.state.agreement.borrow_mut().clear();
    own.state.coming.clear();
}
