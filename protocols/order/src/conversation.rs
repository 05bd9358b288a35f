//! A conversation of this member: what comes up waits for its place in the order, and is answered;
//! what goes down is noted with the place that the layer below gave it.
//!
//! Nothing is borrowed while a message goes up or down.

use crate::protocol::{Order, Settings};
use crate::waves::{Arrived, Dropped, Waves};
use crate::wire::{CLASSES, HEADER_OCTETS, Header, WAVES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::{PushError, Refused};
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Message, Reason, SessionRef, Time, reason};
use xk_kit::group::{
    Aside, Commutes, Leave, MaskIn, MaskOut, MemberState, MyMember, Node, NodeId, NodeOrder,
    OrderOf, Outstanding, PlaceOf, SendNull, TakeNulls, TakeOwn, TakeViews, View, ViewChange,
};
use xk_kit::layer::Conversation;
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::wait_queue::{Pushes, Room};
use xk_kit::{InOrder, Turns};

/// Time after which a null is tried again that found no room.
const RETRY: Duration = Duration::from_millis(10);

/// Time that a push in an upcall may wait for the layer below.
const IN_UPCALL: Duration = Duration::from_secs(1);

/// Others have been passed up that are behind the message.
pub(crate) static LATE: Reason = Reason::new("after its wave", Class::Bad);
/// More messages of one sender wait than it may have sent.
pub(crate) static TOO_MANY: Reason = Reason::new("too many wait", Class::Bad);
/// Too few members are heard.
pub(crate) static REFUSED: Reason = Reason::new("too few members", Class::Exhausted);
/// The sender orders messages in another way.
pub(crate) static OTHER_ORDER: Reason = Reason::new("ordered otherwise", Class::Bad);

/// The session object.
pub(crate) type Own = Conversation<Order, 0>;

/// State of a conversation.
#[derive(Default)]
pub struct Talk {
    /// Own messages are there without their octets, unless they go up.
    waves: RefCell<Waves<Option<Message>>>,
    pub(crate) me: u8,
    incarnation: u16,
    members: u32,
    window: u32,
    /// This member's way of ordering messages, as headers say it.
    by: u8,
    wants_past: bool,
    takes_own: Cell<bool>,
    takes_views: Cell<bool>,
    /// The members by the changes that have gone up, as bits. The layer below is ahead.
    counted: Cell<u64>,
    /// The members that are heard are too few: the layer below refuses what is sent.
    is_refused: Cell<bool>,
    pushes: Pushes,
    /// The pushes that have gone on, one after the other.
    turns: Turns<()>,
    /// Number of those that are not noted yet, and class and octets of those that are below.
    under_way: Cell<u32>,
    unnoted: RefCell<VecDeque<(u8, Option<Message>)>>,
    /// A null is below.
    has_null: Cell<bool>,
    /// This member's last message is sent.
    has_left: Cell<bool>,
    /// Number of this member's last message that is noted, and the time of that.
    noted: Cell<u32>,
    noted_at: Cell<Option<Time>>,
    timer: Cell<Option<Timer>>,
    /// Messages that have come up and are not taken.
    coming: InOrder<Message>,
    /// A timer brings a shepherd that passes messages up.
    is_woken: Cell<bool>,
    /// The shepherd that does, by its number.
    up: Cell<Option<Option<u32>>>,
    ups: Turns<()>,
}

impl Talk {
    pub(crate) fn new(my: MyMember, settings: &Settings) -> Self {
        let (members, window) = (u32::from(my.members).max(1), u32::from(my.window).max(1));
        let wants_past = settings.safe || settings.classes > 0;
        // What a sender may have sent, and what may besides wait for an upcall here.
        let most = 2 * members * window;
        let waves = Waves::new(members as usize, my.index.into(), most, wants_past);
        Self {
            waves: RefCell::new(waves),
            me: my.index,
            incarnation: my.incarnation,
            members,
            window,
            by: if settings.classes > 0 { CLASSES } else { WAVES },
            wants_past,
            counted: Cell::new(u64::MAX >> (64 - members.min(64))),
            ..Self::default()
        }
    }

    /// Begins where the layer below does: it has messages already if this member has come back.
    pub(crate) fn begin_at(&self, cx: &Kernel, lower: &SessionRef) {
        for index in 0..self.members as u8 {
            let question = MemberState { index, ..MemberState::default() };
            let Some(MemberState { last, depth, .. }) = lower.ask(cx, question) else {
                continue;
            };
            let levels = if last > 0 { depth.saturating_add(1) } else { 0 };
            self.waves.borrow_mut().begin_at(index.into(), last, levels);
            if index == self.me {
                self.noted.set(last);
            }
        }
    }

    /// Number of messages that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.waves.borrow().waiting()
    }

    /// Number of this member's own that wait, or are under way.
    pub(crate) fn mine(&self) -> u32 {
        self.waves.borrow().waiting_of(self.me.into()) + self.under_way.get()
    }

    /// Whether the caller is in an upcall.
    fn is_up(&self, cx: &Kernel) -> bool {
        self.up.get() == Some(cx.shepherds().current())
    }

    /// Room for a push. One in an upcall, which no message can be passed up beside, has more.
    fn room(&self, cx: &Kernel) -> Result<Room, PushError> {
        let mine = self.mine();
        match self.is_up(cx) {
            _ if self.is_refused.get() => Err(PushError::NoRoute),
            true if mine < self.members * self.window => Ok(Room::ForAny),
            true => Err(PushError::QueueFull),
            false if mine < self.window => Ok(Room::ForNext),
            false => Ok(Room::None),
        }
    }

    /// Enters a change at its place: it names the members that are in there.
    fn enter(&self, change: ViewChange) -> ViewChange {
        let bit = change.member.map_or(0, |member| 1 << member);
        let others = self.counted.get() & !bit;
        let members = if change.incarnation == 0 { others } else { others | bit };
        self.counted.set(members);
        ViewChange { members, ..change }
    }

    /// Lets the push go on that waits longest, if there is room.
    fn let_push_go_on(&self, cx: &Kernel) {
        if self.mine() < self.window || self.is_refused.get() {
            self.pushes.go_on(cx, Ok(Room::ForNext));
        }
    }
}

/// Sends a message of this member, once there is room for it.
pub(crate) fn push(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
) -> Result<(), PushError> {
    let talk = &own.state;
    if message.attribute::<Aside>().is_some() {
        return own.lower().push(cx, message);
    }
    if message.len() > own.octets_max {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    // The layer below waits no longer, either.
    let options = message.attribute::<CallOptions>();
    if options.is_none() && talk.is_up(cx) {
        // Another member may wait in an upcall for this one's to end.
        let options = CallOptions { deadline: cx.now().after(IN_UPCALL), tag: 0 };
        let _ = message.set_attribute(options);
    }
    if let Err(error) = talk.pushes.wait(cx, this.id(), options, || talk.room(cx)) {
        if matches!(error, PushError::NoRoute) {
            talk.let_push_go_on(cx);
        }
        let why = match error {
            PushError::QueueFull => &reason::QUEUE_FULL,
            PushError::NoRoute => &REFUSED,
            _ => &reason::CLOSED,
        };
        this.discard(cx, message, why);
        return Err(error);
    }
    talk.under_way.set(talk.under_way.get() + 1);
    let pushed = push_one(own, cx, this, message);
    if pushed.is_err() {
        talk.under_way.set(talk.under_way.get().saturating_sub(1));
    }
    go_on(own, cx, this);
    pushed
}

fn push_one(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
) -> Result<(), PushError> {
    let talk = &own.state;
    let options = message.attribute::<CallOptions>();
    let class = message.remove_attribute::<Commutes>().map_or(0, |commutes| commutes.0);
    let class = if u32::from(class) > own.all.layer.settings.classes { 0 } else { class };
    let mut body = talk.takes_own.get().then(|| message.try_clone()).transpose();
    if let Ok(Some(body)) = &mut body {
        body.clear_attributes();
    }
    let header = Header { by: talk.by, class }.emit();
    let (Ok(body), Ok(())) = (body, message.push_array(&header)) else {
        this.discard(cx, message, &reason::NO_BUFFERS);
        return Err(PushError::NoBuffers);
    };
    let limit = CallOptions::clip(options, cx.now(), Duration::MAX).unwrap_or_default();
    let limit = (limit != Duration::MAX).then_some(limit);
    let turn = talk.turns.take_within(cx, (), limit);
    if !turn.is_taken() {
        this.discard(cx, message, &reason::QUEUE_FULL);
        return Err(PushError::QueueFull);
    }
    if this.head().is_closed() {
        this.discard(cx, message, &reason::CLOSED);
        return Err(PushError::Closed);
    }
    talk.unnoted.borrow_mut().push_back((class, body));
    let pushed = own.lower().push(cx, message);
    note(own, cx, this);
    // One that has its place is sent, whatever the layer below says.
    match pushed {
        Err(error) if talk.unnoted.borrow_mut().pop_back().is_some() => Err(error),
        _ => Ok(()),
    }
}

/// Notes the places of this member's messages that are in the graph by now.
fn note(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    while talk.has_null.get() || !talk.unnoted.borrow().is_empty() {
        let id = NodeId { sender: talk.me, seq: talk.noted.get() + 1 };
        let Some(place) = place_of(own, cx, id) else {
            return;
        };
        if talk.noted.get() + 1 != id.seq {
            // Another was quicker while the layer below was asked.
            continue;
        }
        talk.noted.set(id.seq);
        talk.noted_at.set(Some(cx.now()));
        let sent = match place.is_null {
            true => None,
            false => talk.unnoted.borrow_mut().pop_front(),
        };
        if sent.is_some() {
            talk.under_way.set(talk.under_way.get().saturating_sub(1));
        }
        let PlaceOf { depth, is_null, past, .. } = place;
        let node = Node { id, incarnation: talk.incarnation, depth, is_null };
        let (class, body) = sent.map_or((0, None), |(class, body)| (class, Some(body)));
        arrive(own, cx, this, Arrived { node, class, past, body });
    }
}

fn place_of(own: &Own, cx: &Kernel, id: NodeId) -> Option<PlaceOf> {
    let wants_past = own.state.wants_past;
    own.lower().ask(cx, PlaceOf { id, wants_past, ..PlaceOf::default() })
}

/// Gives a message its place.
fn arrive(own: &Own, cx: &Kernel, this: &SessionRef, arrived: Arrived<Option<Message>>) {
    let dropped = own.state.waves.borrow_mut().take(arrived);
    count(cx, this, dropped);
}

/// Counts a member no longer.
fn mask(own: &Own, cx: &Kernel, this: &SessionRef, member: u8, last: u32) {
    let dropped = own.state.waves.borrow_mut().mask(member.into(), last);
    count(cx, this, dropped);
}

fn count(cx: &Kernel, this: &SessionRef, dropped: Vec<Dropped>) {
    for why in dropped {
        this.count_drop(cx, if why == Dropped::Late { &LATE } else { &TOO_MANY });
    }
}

/// Takes a message of another member, behind those before it: the layer below may block when it is
/// asked for the place of one.
pub(crate) fn take(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut message: Message,
) -> Result<(), Refused> {
    let talk = &own.state;
    if message.attribute::<Aside>().is_some() {
        return own.upper.demux(cx, this, message);
    }
    let (node, change) = (message.attribute::<Node>(), message.attribute::<ViewChange>());
    match (node, change) {
        (None, Some(change)) if change.member.is_none() => {
            // It has no place, and is known at once.
            talk.is_refused.set(!change.has_quorum);
            let _ = message.set_attribute(ViewChange { members: talk.counted.get(), ..change });
            go_on(own, cx, this);
            let is_wanted = talk.takes_views.get();
            return if is_wanted { own.upper.demux(cx, this, message) } else { Ok(()) };
        }
        (None, Some(_)) => {}
        (Some(node), _) if node.is_null || node.id.sender != talk.me => {}
        _ => return Err(this.refuse(cx, message, &reason::MALFORMED)),
    }
    talk.coming.work(message, |message| match message.attribute::<Node>() {
        Some(node) => take_one(own, cx, this, message, node),
        None => take_change(own, cx, this, message),
    });
    talk.let_push_go_on(cx);
    answer(own, cx, this);
    let most = talk.members * talk.window;
    if talk.waiting() > most && talk.waves.borrow().ready() > most as usize {
        // An upcall takes long: the members that send are not to go on, either.
        deliver(own, cx, this);
    } else {
        wake(own, cx, this);
    }
    Ok(())
}

fn take_one(own: &Own, cx: &Kernel, this: &SessionRef, mut message: Message, node: Node) {
    let talk = &own.state;
    if node.id.sender == talk.me {
        // The layer below has sent one, which has its place among this member's.
        let is_below = talk.has_null.replace(true);
        note(own, cx, this);
        return talk.has_null.set(is_below);
    }
    let header = match node.is_null {
        true => None,
        false => Header::take(&mut message),
    };
    let most = own.all.layer.settings.classes;
    let header = header.filter(|header| header.by == talk.by && u32::from(header.class) <= most);
    if header.is_none() && !node.is_null {
        this.count_drop(cx, &OTHER_ORDER);
    }
    let past = match talk.wants_past {
        true => place_of(own, cx, node.id).map_or(Vec::new(), |place| place.past),
        false => Vec::new(),
    };
    // The last message of a member is a change as well, in its own place.
    let is_last = message.attribute::<ViewChange>().is_some();
    let body = (header.is_some() || is_last).then_some(Some(message));
    let class = header.map_or(0, |header| header.class);
    // What this one follows comes first.
    note(own, cx, this);
    arrive(own, cx, this, Arrived { node, class, past, body });
    if is_last {
        mask(own, cx, this, node.id.sender, node.id.seq);
    }
}

/// Takes a change of the members, which has its place among the messages; all of one that is gone
/// have come before it.
fn take_change(own: &Own, cx: &Kernel, this: &SessionRef, message: Message) {
    let talk = &own.state;
    let change = message.attribute::<ViewChange>().unwrap_or_default();
    talk.is_refused.set(!change.has_quorum);
    let Some(index) = change.member else {
        return;
    };
    if change.incarnation == 0 {
        mask(own, cx, this, index, 0);
    } else if index != talk.me {
        let question = MemberState { index, ..MemberState::default() };
        let last = own.lower().ask(cx, question).map_or(0, |state| state.last);
        let levels = change.depth.saturating_add(1);
        talk.waves.borrow_mut().unmask(index.into(), last, levels);
    }
    talk.waves.borrow_mut().change(index, change.depth, Some(message));
}

/// Sends a null if one is due, and it is time for it; else sets the timer to that.
fn answer(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    // A push that is under way will be an answer.
    let may_send = talk.under_way.get() == 0 && !talk.has_left.get();
    let due = talk.waves.borrow().due().filter(|_| may_send);
    let Some(due) = due else {
        return;
    };
    let gap = own.all.layer.settings.null_gap;
    let waits = talk.noted_at.get().map_or(Duration::ZERO, |at| at.after(gap).since(cx.now()));
    // The sender has this member's last message: it waits for the next.
    let is_followed = || {
        let one = NodeId { sender: talk.me, seq: talk.noted.get() };
        let order = own.lower().ask(cx, OrderOf { one, other: due.to, order: NodeOrder::Unknown });
        order.is_some_and(|asked| asked.order == NodeOrder::Before)
    };
    if waits > Duration::ZERO && 2 * due.unanswered < talk.window && !is_followed() {
        wake_after(own, cx, this, waits);
    } else if talk.has_null.get() || !send_null(own, cx, this) {
        // One that is below may precede the message that is to be answered.
        wake_after(own, cx, this, RETRY);
    }
}

/// Sends a null; false if there is no room for it.
fn send_null(own: &Own, cx: &Kernel, this: &SessionRef) -> bool {
    let talk = &own.state;
    if talk.has_null.replace(true) {
        return true;
    }
    let is_sent = own.lower().ask(cx, SendNull).is_some();
    note(own, cx, this);
    talk.has_null.set(false);
    is_sent
}

/// Sends the last message of this member, unless another is under way.
fn leave(own: &Own, cx: &Kernel, leave: &mut Leave) -> Answer {
    let talk = &own.state;
    if talk.under_way.get() > 0 || talk.has_null.get() {
        return Answer::Answered;
    }
    let Some(Leave { is_sent }) = own.lower().ask(cx, Leave::default()) else {
        return Answer::Unknown;
    };
    leave.is_sent = is_sent;
    talk.has_left.set(is_sent);
    Answer::Answered
}

/// Has another shepherd pass up what has its place for good. This one may hold what the upcalls
/// need, and that of the layer below carries what a push in an upcall waits for.
fn wake(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    let is_needed = talk.up.get().is_none() && !talk.is_woken.get();
    if is_needed && talk.waves.borrow().has_next() {
        talk.is_woken.set(cx.schedule(this, Duration::ZERO, DELIVER).is_ok());
    }
}

/// Passes up what has its place for good, one after the other, behind another shepherd that does.
fn deliver(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    if talk.is_up(cx) {
        return;
    }
    let _turn = talk.ups.take(cx, ());
    if talk.up.get().is_some() {
        // There is no waiting on this shepherd.
        return;
    }
    talk.up.set(Some(cx.shepherds().current()));
    while !this.head().is_closed() {
        let next = talk.waves.borrow_mut().next();
        let Some((node, body)) = next else {
            break;
        };
        if let Some(mut message) = body {
            let change = message.attribute::<ViewChange>();
            let change = change.map(|change| talk.enter(change));
            if change.is_some() && !talk.takes_views.get() {
                continue;
            }
            let marked = match change {
                Some(change) => message.set_attribute(change),
                None => message.set_attribute(node),
            };
            match marked {
                // A refusal ends here, as below: others have passed it up.
                Ok(()) => drop(own.upper.demux(cx, this, message)),
                Err(_) => this.count_drop(cx, &reason::NO_BUFFERS),
            }
        }
    }
    talk.up.set(None);
    talk.let_push_go_on(cx);
}

/// Does what the place of an own message, or the end of a member, permits.
fn go_on(own: &Own, cx: &Kernel, this: &SessionRef) {
    let talk = &own.state;
    talk.let_push_go_on(cx);
    answer(own, cx, this);
    wake(own, cx, this);
}

/// Tokens of the timers: what may go up does, or a null may be due.
const DELIVER: u64 = 0;
const ANSWER: u64 = 1;

fn wake_after(own: &Own, cx: &Kernel, this: &SessionRef, wait: Duration) {
    let timer = own.state.timer.take();
    let timer = timer.or_else(|| cx.schedule(this, wait, ANSWER).ok());
    own.state.timer.set(timer);
}

/// A timer goes off.
pub(crate) fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
    let talk = &own.state;
    if token == ANSWER {
        talk.timer.set(None);
        note(own, cx, this);
        answer(own, cx, this);
    } else {
        talk.is_woken.set(false);
    }
    deliver(own, cx, this);
}

/// Answers what only this layer knows.
pub(crate) fn control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
    let talk = &own.state;
    if ask.get::<TakeOwn>().is_some() {
        talk.takes_own.set(true);
        return Answer::Answered;
    }
    if ask.get::<TakeViews>().is_some() {
        talk.takes_views.set(true);
    }
    if let Some(question) = ask.get::<Leave>() {
        return leave(own, cx, question);
    }
    if ask.get::<SendNull>().is_some() {
        let is_sent = talk.under_way.get() > 0 || send_null(own, cx, this);
        go_on(own, cx, this);
        return if is_sent { Answer::Answered } else { Answer::Unknown };
    }
    if ask.get::<TakeNulls>().is_some() {
        // They have no place in the order.
        return Answer::Unknown;
    }
    let answer = own.answer(cx, ask);
    if answer.is_answered() {
        less_header(ask, HEADER_OCTETS);
        let _ = ask.answer::<Outstanding>(|q| q.ready += talk.waiting());
        let _ = ask.answer::<View>(|q| q.members = talk.counted.get());
        if let Some(MaskIn { index, base, .. }) = ask.get()
            && let Some(seq) = base.get(usize::from(*index))
        {
            let ids = base.iter().zip(0..).map(|(seq, sender)| NodeId { sender, seq: *seq });
            let depths =
                ids.filter_map(|id| own.lower().ask(cx, PlaceOf { id, ..PlaceOf::default() }));
            let levels = depths.map(|place| place.depth.saturating_add(1)).max().unwrap_or(0);
            talk.waves.borrow_mut().unmask((*index).into(), *seq, levels);
            go_on(own, cx, this);
        }
        if let Some(MaskOut { index, last }) = ask.get() {
            mask(own, cx, this, *index, *last);
            go_on(own, cx, this);
        }
    }
    answer
}

/// Ends a conversation: pushes that wait fail.
pub(crate) fn end(own: &Own, cx: &Kernel) {
    own.state.pushes.end(cx);
    let _ = cx.cancel(own.state.timer.take());
}

/// Gives back the messages that wait.
pub(crate) fn drain(own: &Own) {
    own.state.waves.borrow_mut().clear();
    own.state.coming.clear();
}
