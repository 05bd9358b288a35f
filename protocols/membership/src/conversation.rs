//! A conversation of this member: messages of the layer above go through, unless members are being
//! agreed on; members that are silent are found out, and votes sent.
//!
//! Nothing is borrowed while a message goes up or down. Votes and signs of life are sent by timers,
//! so that no upcall waits for room for them.

use crate::agreement::{Agreement, Change, Held, Ignored, Up};
use crate::protocol::Membership;
use crate::wire::{self, ALIVE, DATA, HEADER_OCTETS, Header};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::{PushError, Refused};
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Message, Reason, SessionRef, Time, reason};
use xk_kit::Turns;
use xk_kit::group::{
    Aside, IsStable, Leave, MaskOut, MemberState, MyMember, Node, NodeId, Outstanding, PlaceOf,
    SendNull, TakeNulls, TakeViews, View, ViewChange,
};
use xk_kit::layer::Conversation;
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::wait_queue::{Pushes, Room};

/// Time after which a vote is sent again that found no room.
const RETRY: Duration = Duration::from_millis(10);
/// Time that a push may wait while an upcall is under way, which may be what it waits for.
const IN_UPCALL: Duration = Duration::from_secs(1);
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
}

/// State of a conversation.
pub struct Talk {
    agreement: RefCell<Agreement<Message>>,
    pub(crate) me: u8,
    watched: RefCell<Vec<Watch>>,
    /// The members that the layer below does not count, as bits.
    masked: Cell<u64>,
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
    /// Shepherds in upcalls, and the one that passes up what was held back.
    upcalls: RefCell<Vec<Option<u32>>>,
    up: Cell<Option<Option<u32>>>,
    ups: Turns<()>,
}

impl Talk {
    pub(crate) fn new(now: Time, my: MyMember) -> Self {
        let (members, window) = (usize::from(my.members.max(1)), usize::from(my.window.max(1)));
        let watch = Watch { last: 0, spoke_at: now, mark: 0, followed_at: now };
        Self {
            // What each may have sent when the others vote, and as much again.
            agreement: RefCell::new(Agreement::new(members, my.index.into(), 2 * members * window)),
            me: my.index,
            watched: RefCell::new(alloc::vec![watch; members]),
            masked: Cell::new(0),
            open: Cell::new(None),
            has_quorum: Cell::new(true),
            is_untold: Cell::new(false),
            doubted: Cell::default(),
            changes: Cell::new(0),
            takes_nulls: Cell::new(false),
            takes_views: Cell::new(false),
            pushes: Pushes::default(),
            turns: Turns::default(),
            sent: Cell::new(0),
            sent_at: Cell::new(now),
            votes: RefCell::default(),
            votes_soon: Cell::new(false),
            tick: Cell::new(None),
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

    fn view(&self) -> ViewChange {
        let (members, has_quorum) = (self.members(), self.has_quorum.get());
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
    if let Err(error) = talk.pushes.wait(cx, this.id(), options, || talk.room()) {
        let why = match error {
            PushError::QueueFull => &reason::QUEUE_FULL,
            PushError::NoRoute => &NO_QUORUM,
            PushError::Unreachable => &OUT,
            _ => &reason::CLOSED,
        };
        this.discard(cx, message, why);
        talk.let_push_go_on(cx);
        return Err(error);
    }
    let sent = match message.push_array(&header) {
        Ok(()) => {
            let limit = CallOptions::clip(options, cx.now(), Duration::MAX).unwrap_or_default();
            send(own, cx, this, message, (limit != Duration::MAX).then_some(limit)).map(drop)
        }
        Err(_) => {
            this.discard(cx, message, &reason::NO_BUFFERS);
            Err(PushError::NoBuffers)
        }
    };
    talk.let_push_go_on(cx);
    sent
}

/// Sends a message, and returns its number; waits for its turn no longer than `limit`.
fn send(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    limit: Option<Duration>,
) -> Result<u32, PushError> {
    let turn = own.state.turns.take_within(cx, (), limit);
    if !turn.is_taken() {
        this.discard(cx, message, &reason::QUEUE_FULL);
        return Err(PushError::QueueFull);
    }
    if this.head().is_closed() {
        this.discard(cx, message, &reason::CLOSED);
        return Err(PushError::Closed);
    }
    own.lower().push(cx, message)?;
    Ok(own.state.note_sent(cx))
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
    let header = match node.is_null {
        true => None,
        false => message.pop_array::<HEADER_OCTETS>().map(Header::parse),
    };
    let is_data = header == Some(Header { kind: DATA, members: 0 });
    let is_last = message.remove_attribute::<ViewChange>().is_some();
    let is_free = {
        let agreement = talk.agreement.borrow();
        // Another shepherd may be passing up what comes before.
        is_data
            && talk.up.get().is_none()
            && agreement.is_calm()
            && agreement.check(node.id).is_ok()
    };
    if is_free {
        talk.agreement.borrow_mut().note(node.id);
        return hand_up(own, cx, this, message);
    }
    let roll = header.and_then(|header| wire::read(header, &message));
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
        (taken, vote.map(|(roll, past)| agreement.vote(from, &roll, node.id.seq, past)))
    };
    [taken, voted.unwrap_or(Ok(()))].into_iter().filter_map(Result::err).for_each(|why| {
        let why = match why {
            Ignored::Old => &OLD_VOTE,
            Ignored::TooFew => &TOO_FEW,
            Ignored::BeyondCut => &BEYOND_CUT,
            Ignored::TooMany => &TOO_MANY,
        };
        this.count_drop(cx, why);
    });
    act(own, cx, this);
    deliver(own, cx, this);
    Ok(())
}

/// Takes a message beside the conversation.
fn take_aside(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
    from: u8,
) -> Result<(), Refused> {
    match message.pop_array::<HEADER_OCTETS>().map(Header::parse) {
        Some(Header { kind: DATA, members: 0 }) => hand_up(own, cx, this, message),
        Some(Header { kind: ALIVE, members: 0 }) => {
            // It hears enough others, and can only not say so by a message that follows theirs.
            if let Some(watch) = own.state.watched.borrow_mut().get_mut(usize::from(from)) {
                (watch.spoke_at, watch.followed_at) = (cx.now(), cx.now());
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

/// Does what the agreement calls for: members that are to go are masked before the vote, so that
/// what comes of them afterwards is what others have followed.
fn act(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let (hoped, is_open, is_unsaid) = {
        let agreement = talk.agreement.borrow();
        (agreement.hoped(), agreement.is_open(), agreement.unsaid().is_some())
    };
    let count = talk.watched.borrow().len() as u8;
    let is_to_go = |at: &u8| *at != talk.me && (hoped | talk.masked.get()) >> at & 1 == 0;
    for index in (0..count).filter(is_to_go) {
        talk.masked.set(talk.masked.get() | 1 << index);
        let _ = own.lower().ask(cx, MaskOut { index, last: 0 });
    }
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
        let node = Node { id, incarnation: 1, depth, is_null: true };
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

/// Tells the layer above of a decided view, change by change; false if what is left waits for a
/// buffer.
fn tell_view(own: &Own, cx: &Kernel, this: &SessionRef, members: u64, changes: &[Change]) -> bool {
    let talk = &own.state;
    for (at, change) in changes.iter().enumerate() {
        let (member, last) = (Some(change.member), change.cut);
        let incarnation = change.incarnation;
        let view = ViewChange { members, member, last, incarnation, ..talk.view() };
        if !tell(own, cx, this, view) {
            let left = Up::View(members, changes[at..].to_vec());
            talk.agreement.borrow_mut().put_back(left);
            return false;
        }
    }
    true
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
            Some(Up::View(members, changes)) => {
                let before = talk.changes.replace(talk.changes.get() + 1);
                if !tell_view(own, cx, this, members, &changes) {
                    talk.changes.set(before);
                    is_stuck = true;
                }
            }
        }
    }
    talk.up.set(None);
    if is_stuck {
        // The timer of votes looks here again.
        talk.votes_soon.set(cx.schedule(this, RETRY, VOTE).is_ok());
    }
}

/// Tokens of the timers: a look at the members is due; a vote is.
const TICK: u64 = 0;
const VOTE: u64 = 1;

/// Begins to look after the members.
pub(crate) fn watch(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let timer = talk.tick.take();
    let every = own.all.layer.settings.suspect / 4;
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
        if !talk.agreement.borrow().is_out() {
            look_after(own, cx, this);
            watch(own, cx, this);
        }
    }
    act(own, cx, this);
    deliver(own, cx, this);
}

/// Sends a vote at once; returns its number.
fn send_vote(own: &Own, cx: &Kernel, roll: &[u16]) -> Option<u32> {
    let turn = own.state.turns.take_within(cx, (), Some(Duration::ZERO));
    let mut message = cx.pool().copy_from(HEADROOM, &wire::emit(roll)).ok()?;
    message.set_attribute(CallOptions { deadline: cx.now(), tag: 0 }).ok()?;
    let is_sent = turn.is_taken() && own.lower().push(cx, message).is_ok();
    is_sent.then(|| own.state.note_sent(cx))
}

/// Sends the vote that is due.
fn vote(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let Some(roll) = talk.agreement.borrow().unsaid().map(<[u16]>::to_vec) else {
        return;
    };
    let sent = send_vote(own, cx, &roll);
    let Some(seq) = sent else {
        talk.votes_soon.set(cx.schedule(this, RETRY, VOTE).is_ok());
        return;
    };
    {
        let mut votes = talk.votes.borrow_mut();
        votes.push_back(seq);
        while votes.len() > VOTES_MAX {
            votes.pop_front();
        }
    }
    let place = place_of(own, cx, NodeId { sender: talk.me, seq });
    let past = place.unwrap_or_default().past;
    let _ = talk.agreement.borrow_mut().vote(talk.me.into(), &roll, seq, past);
    tell_own(own, cx, this, seq);
}

/// Looks which members are silent, or do not hear; gives a sign of life.
fn look_after(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let (now, suspect) = (cx.now(), own.all.layer.settings.suspect);
    let (hoped, quorum, missing) = {
        let agreement = talk.agreement.borrow();
        (agreement.hoped(), agreement.quorum(), agreement.missing())
    };
    let me = 1_u64 << talk.me;
    let (mut failed, mut recent) = (0, me);
    let count = talk.watched.borrow().len() as u8;
    for index in (0..count).filter(|at| (hoped & !me) >> at & 1 != 0) {
        let state = own.lower().ask(cx, MemberState { index, ..MemberState::default() });
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
            (watch.mark, watch.followed_at) = (talk.sent.get(), now);
        }
        // It takes longer to begin a conversation.
        let limit = if watch.last == 0 { 4 * suspect } else { suspect };
        if silent >= limit || now.since(watch.followed_at) >= 4 * suspect {
            failed |= 1 << index;
        }
        recent |= u64::from(silent < suspect * 3 / 4) << index;
    }
    let is_stalled = |(_, since)| now.since(since) >= 4 * suspect;
    if talk.open.get().is_some_and(is_stalled) {
        failed |= missing & !me;
    }
    // Where all are silent it is this member that is cut off, and it accuses none.
    let can_tell = (recent & !failed).count_ones() >= quorum;
    let is_heard = (hoped & !failed).count_ones() >= quorum;
    if is_heard && !talk.has_quorum.get() {
        // The others are heard again one after the other.
        for watch in talk.watched.borrow_mut().iter_mut() {
            (watch.spoke_at, watch.followed_at) = (now, now);
        }
    }
    // After such a time, and short ones go unnoticed, the others are heard again one after the
    // other: one that is accused was found failed before, too.
    let found = if can_tell { failed } else { 0 };
    let accused = found & talk.doubted.replace(found);
    if accused != 0 {
        talk.agreement.borrow_mut().suspect(accused);
    }
    look(own, cx, this, is_heard);
    if now.since(talk.sent_at.get()) < suspect / 8 || talk.agreement.borrow().leaves() {
        return;
    }
    match send_null(own, cx) {
        Some(seq) => tell_own(own, cx, this, seq),
        // The window is full, perhaps of messages that a member lacks which has failed.
        None if talk.has_quorum.get() => {
            for member in (0..count).filter(|at| (hoped & !me) >> at & 1 != 0) {
                let header = Header { kind: ALIVE, members: 0 }.emit();
                if let Ok(mut message) = cx.pool().copy_from(HEADROOM, &header)
                    && message.set_attribute(Aside { member }).is_ok()
                {
                    let _ = own.lower().push(cx, message);
                }
            }
        }
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
    } else if ask.get::<MaskOut>().is_some() {
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
    own.state.agreement.borrow_mut().clear();
}
