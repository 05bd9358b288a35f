//! One side of a cut: what passes, and what each side knows of the other.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use xk_core::control::{Field, Handles, Kind, QuestionType, Reader, SessionInfo, Writer};
use xk_core::message::NoBuffers;
use xk_core::object::{CallCause, CallError, Enable, ProtocolId, PushError};
use xk_core::reason::{self, Class};
use xk_core::shepherd::WaitError;
use xk_core::{
    Answer, Ask, Entry, Kernel, Message, Participants, Pool, ProtocolRef, Question, Reason,
    SessionRef, Time,
};
use xk_kit::control::MaxPacket;
use xk_kit::net::template::Headers;
use xk_kit::{questions, reasons};

use crate::account::{Account, Crowding, UPCALLS_MAX};
use crate::carrier::{Arrival, Carrier, SendError};
use crate::deaths::{Heard, Standing};
use crate::exports::{self, Exports};
use crate::frame::{ANSWERED, Head, Header, LASTS, OVERHEAD_MAX, Op, UNKNOWN, octets_of};
use crate::imports::{Fact, Facts, Imports, ProxySession};
use crate::kept::Kept;
use crate::queue::Queue;
use crate::waits::{Answered, Opens, Wait, Waits};

/// A frame about a session or a request that has ended meanwhile.
pub static LATE: Reason = Reason::new("late in a cut", Class::NoPort);
/// The other side is gone, or broke the rules; counted once.
pub static LOST: Reason = Reason::new("other side lost", Class::Exhausted);
/// An enable that the other side refuses now that it was started again.
pub static NOT_ENABLED: Reason = Reason::new("not enabled again", Class::Exhausted);

/// An attribute that the other side may not send, or a value that cannot be true of its message: it
/// was taken off.
pub static NOT_ALLOWED: Reason = Reason::new("attribute not allowed", Class::Prohibited);

/// The message is not sent: the answer to it tells its sender that an earlier one failed.
pub(crate) static FAILED: Reason = Reason::new("one before failed", Class::Bad);

/// The reasons of this crate.
pub static REASONS: &[&Reason] = &[&LATE, &LOST, &NOT_ENABLED, &NOT_ALLOWED, &FAILED];

/// Time that a request which is no call waits for its answer.
pub(crate) const QUESTION_TIME_MAX: Option<Duration> = Some(Duration::from_secs(5));
/// Turns of the other side where the caller cannot be suspended.
const TURNS_MAX: usize = 5000;
/// Frames that wait for room before the other side counts as broken.
const OUTBOX_MAX: usize = 4096;
/// Kinds of questions that a side remembers because the other one asks them of each new session.
const LEARNED_MAX: usize = 64;
/// The longest list that is kept to write the next question into, in octets.
const SCRATCH_OCTETS_MAX: usize = 4096;
/// Messages of a session that wait for an earlier one.
pub(crate) const WAITING_MAX: usize = 64;
/// Room that messages leave to the rest; the offer of a session leaves half of it.
pub(crate) const RESERVE: usize = 8;
/// The fewest frames that a carrier must hold each way for any message to cross.
pub const SLOTS_MIN: usize = RESERVE + 1;
/// Time after which a frame that waits for room is tried again: the other side does not tell of
/// room.
const RETRY: Duration = Duration::from_millis(1);

/// The object of a question on the other side.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// [`Op::AskSession`] or [`Op::AskProtocol`].
    pub(crate) op: Op,
    /// The session's handle, or the protocol's number.
    pub(crate) number: u32,
    /// The protocol itself, or that of the session.
    pub(crate) protocol: ProtocolId,
}

/// A wish of the other side of a protocol of this one.
pub enum Wish<'a> {
    /// A session with these participants.
    Open(ProtocolId, &'a Participants),
    /// To receive from these participants.
    Enable(ProtocolId, &'a Participants),
    /// An answer to a question that is put to the protocol.
    AskProtocol(ProtocolId, &'static QuestionType),
    /// An answer to a question that is put to one of its sessions, which the other side has.
    AskSession(ProtocolId, &'static QuestionType),
}

/// Says whether the other side may.
pub(crate) type Guard = dyn Fn(&Wish<'_>) -> bool;

/// Makes what stands here for a protocol of the other side that wants to receive.
pub(crate) type Admit = dyn Fn(&Kernel, &Rc<Port>, ProtocolId) -> Option<ProtocolRef>;

/// Finds the protocol of this number in a list.
pub(crate) fn find(
    list: &RefCell<Vec<(ProtocolId, ProtocolRef)>>,
    id: ProtocolId,
) -> Option<ProtocolRef> {
    let list = list.borrow();
    list.iter().find(|(number, _)| *number == id).map(|(_, protocol)| protocol.clone())
}

/// The questions and reasons that both sides of a cut know: those that may cross.
#[derive(Default)]
pub struct Known {
    questions: Vec<&'static QuestionType>,
    reasons: Vec<&'static Reason>,
}

impl Known {
    /// Gathers those that these entries list
    /// ([`Catalog::entries`](xk_core::graph::Catalog::entries)), and those that all protocols
    /// share.
    pub fn of(entries: &[&'static Entry]) -> Self {
        let shared = reasons::SHARED.iter().chain(REASONS);
        let own = entries.iter().flat_map(|entry| entry.reasons);
        let mut reasons: Vec<_> = shared.chain(own).copied().collect();
        reasons.sort_unstable_by_key(|reason| reason.key());
        let own = entries.iter().flat_map(|entry| entry.questions).filter_map(|listed| listed.own);
        let questions = Vec::new();
        Self { questions, reasons }.with(questions::SHARED.iter().chain(own))
    }

    /// These questions, too: those of objects that are in no catalog.
    #[must_use]
    pub fn with(mut self, questions: impl IntoIterator<Item = &'static QuestionType>) -> Self {
        self.questions.extend(questions);
        self.questions.sort_unstable_by_key(|question| question.key);
        self
    }

    pub(crate) fn question(&self, key: u32) -> Option<&'static QuestionType> {
        let at = self.questions.binary_search_by_key(&key, |question| question.key).ok()?;
        self.questions.get(at).copied()
    }

    fn reason(&self, key: u32) -> Option<&'static Reason> {
        let at = self.reasons.binary_search_by_key(&key, |reason| reason.key()).ok()?;
        self.reasons.get(at).copied()
    }
}

/// The carrier of a port; by default one whose other side is gone.
pub(crate) struct Held(pub(crate) Rc<dyn Carrier>);

impl Default for Held {
    fn default() -> Self {
        Self(Rc::new(Queue::ended()))
    }
}

/// One side of a cut between two domains; all edges between them pass through it.
#[derive(Default)]
pub struct Port {
    pub(crate) me: Weak<Port>,
    /// Buffer into which the next question is written.
    pub(crate) scratch: Cell<Vec<u8>>,
    /// Another one after the other side was started again.
    pub(crate) carrier: RefCell<Held>,
    known: Known,
    pub(crate) admit: RefCell<Option<Box<Admit>>>,
    pub(crate) guard: RefCell<Option<Box<Guard>>>,
    /// Protocols of this side that the other may open, enable and ask.
    pub(crate) granted: RefCell<Vec<(ProtocolId, ProtocolRef)>>,
    /// Proxies of protocols of the other side that lie below.
    pub(crate) lowers: RefCell<Vec<(ProtocolId, ProtocolRef)>>,
    /// Proxies of protocols of the other side that lie above.
    pub(crate) uppers: RefCell<Vec<(ProtocolId, ProtocolRef)>>,
    /// Protocols of this side that have opened or enabled on the other: they may be asked, and
    /// told of sessions.
    pub(crate) users: RefCell<Vec<ProtocolRef>>,
    pub(crate) exports: Exports,
    pub(crate) imports: Imports,
    pub(crate) waits: Waits,
    /// Enables made on the other side.
    pub(crate) standing: RefCell<Vec<Standing>>,
    /// Notices to protocols of the other side that hold as long as these live, as octets.
    pub(crate) told: RefCell<Vec<(ProtocolId, Vec<u8>)>>,
    /// Notices of the other side to protocols here that are taken back when it dies.
    pub(crate) heard: RefCell<Vec<Heard>>,
    /// True if enables and notices are to be repeated there.
    pub(crate) replays: Cell<bool>,
    /// Number of enables so far.
    pub(crate) enable_last: Cell<u64>,
    /// Enables made here for the other side: on which protocol, for which.
    pub(crate) enables: RefCell<Vec<(ProtocolId, ProtocolId, Enable)>>,
    /// Messages that came up through sessions that the other side is about to be told of.
    pub(crate) early: RefCell<VecDeque<(SessionRef, Message)>>,
    /// Opens of the other side that are under way here.
    pub(crate) opening: Cell<usize>,
    /// Requests of the other side that are under way here.
    pub(crate) serving: Cell<usize>,
    /// Requests on their way up, and the largest number of them.
    pub(crate) upcalls: Cell<usize>,
    pub(crate) upcalls_max: Cell<usize>,
    /// Account to which work for the other side is charged; none if that side is trusted.
    pub(crate) account: OnceCell<Rc<Account>>,
    pub(crate) crowding: Crowding,
    /// The last request that was put to the other side has had no answer in time.
    pub(crate) is_silent: Cell<bool>,
    /// Tag of the last question of a caller that could not wait for its answer, and the time until
    /// which no other such caller asks.
    pub(crate) unanswered: Cell<Option<(u32, Time)>>,
    /// Questions of the other side to sessions of a protocol, whose answers do not change.
    pub(crate) learned: RefCell<Vec<(ProtocolId, &'static QuestionType, Vec<u8>)>>,
    /// Notices that protocols of the other side, or their sessions, understand.
    pub(crate) understood: RefCell<Vec<(ProtocolId, u32)>>,
    pub(crate) outbox: RefCell<VecDeque<(Head, Message)>>,
    /// Time at which frames that wait for room are tried again.
    pub(crate) retry_at: Cell<Option<Time>>,
    /// The last messages that went up, with their numbers and sessions: one may be refused.
    pub(crate) kept: RefCell<VecDeque<Kept>>,
    /// The timer runs that ends this.
    pub(crate) forgets: Cell<bool>,
    /// Number of messages that have gone up.
    pub(crate) gone_up: Cell<u32>,
    pub(crate) noted: RefCell<Vec<Header>>,
    /// The protocol object that the executor looks after.
    pub(crate) wire: RefCell<Option<ProtocolRef>>,
    /// Token of this port's timer among those of that object.
    pub(crate) tag: Cell<u64>,
    pub(crate) is_lost: Cell<bool>,
    /// Number of times that the other side was lost.
    pub(crate) losses: Cell<u32>,
}

/// Reads and writes questions for this side.
pub(crate) struct Names<'a> {
    port: &'a Port,
    cx: &'a Kernel,
    /// The last session of the other side that was named.
    pub(crate) named: RefCell<Option<SessionRef>>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(port: &'a Port, cx: &'a Kernel) -> Self {
        Self { port, cx, named: RefCell::default() }
    }
}

/// In a session's number: it is one of the reader's own.
const YOURS: u64 = 1 << 32;

impl Handles for Names<'_> {
    fn number(&self, session: &SessionRef) -> Option<u64> {
        match session.body::<ProxySession>() {
            Some(proxy) if core::ptr::eq(&*proxy.port, self.port) => {
                Some(YOURS | u64::from(proxy.handle))
            }
            _ => exports::of(&self.port.exports, session).map(|export| u64::from(export.handle)),
        }
    }

    fn session(&self, number: u64) -> Option<SessionRef> {
        let handle = number as u32;
        if number == YOURS | u64::from(handle) {
            return self.port.exports.get(handle).map(|export| export.session.clone());
        }
        let session = self.port.imports.get(handle).filter(|_| number == u64::from(handle))?;
        // What is told of it may change what was known of it.
        if let Some(proxy) = session.body::<ProxySession>() {
            proxy.facts.clear();
        }
        self.named.replace(Some(session.clone()));
        Some(session)
    }

    fn info(&self, session: &SessionRef) -> Option<SessionInfo> {
        Some(SessionInfo::of(self.cx, session))
    }

    fn protocol(&self, id: ProtocolId) -> Option<ProtocolRef> {
        // One that lies further up may be named for the first time.
        let known = find(&self.port.lowers, id).or_else(|| self.port.own(id));
        known.or_else(|| self.port.upper(self.cx, id))
    }

    fn reason(&self, key: u32) -> Option<&'static Reason> {
        self.port.known.reason(key)
    }

    fn pool(&self) -> &Pool {
        self.cx.pool()
    }
}

impl Port {
    /// A side of a cut on this carrier.
    pub fn new(carrier: Box<dyn Carrier>, known: Known) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            carrier: RefCell::new(Held(carrier.into())),
            known,
            upcalls_max: Cell::new(UPCALLS_MAX),
            ..Self::default()
        })
    }

    /// Lets the other side use a protocol of this one.
    pub fn grant(&self, protocol: &ProtocolRef) {
        self.granted.borrow_mut().push((protocol.id(), protocol.clone()));
    }

    /// Has `make` make what stands here for a protocol of the other side that wants to receive and
    /// that nothing stands for yet: [`upper_proxy`](crate::upper_proxy) does.
    pub fn admit(
        &self,
        make: impl Fn(&Kernel, &Rc<Self>, ProtocolId) -> Option<ProtocolRef> + 'static,
    ) {
        *self.admit.borrow_mut() = Some(Box::new(make));
    }

    /// Has `permit` asked before each open, enable and question of the other side; what it denies
    /// is refused. Without one all that is granted may be used in every way.
    pub fn guard(&self, permit: impl Fn(&Wish<'_>) -> bool + 'static) {
        *self.guard.borrow_mut() = Some(Box::new(permit));
    }

    pub(crate) fn permits(&self, wish: &Wish<'_>) -> bool {
        self.guard.borrow().as_ref().is_none_or(|permit| permit(wish))
    }

    pub(crate) fn carrier(&self) -> Rc<dyn Carrier> {
        Rc::clone(&self.carrier.borrow().0)
    }

    /// True once the other side is gone.
    pub fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    pub(crate) fn strong(&self) -> Option<Rc<Self>> {
        self.me.upgrade()
    }

    /// A protocol of this side that the other has to do with.
    pub(crate) fn own(&self, id: ProtocolId) -> Option<ProtocolRef> {
        find(&self.granted, id)
            .or_else(|| self.users.borrow().iter().find(|user| user.id() == id).cloned())
    }

    /// Notes that a protocol of this side stands on one of the other: it may be asked, and told of
    /// sessions. One that opens or enables is noted by that.
    pub fn note_user(&self, user: &ProtocolRef) {
        let mut users = self.users.borrow_mut();
        if !users.contains(user) {
            users.push(user.clone());
        }
    }

    /// Finds or makes the proxy of a protocol of the other side that lies above.
    pub(crate) fn upper(&self, cx: &Kernel, id: ProtocolId) -> Option<ProtocolRef> {
        find(&self.uppers, id).or_else(|| {
            let admit = self.admit.borrow();
            (admit.as_ref()?)(cx, &self.strong()?, id)
        })
    }

    /// Finds the proxy of a protocol of the other side that lies below. A layer below may pass on
    /// sessions of one that lies lower still: the other side names the layer.
    pub(crate) fn lower(&self, id: ProtocolId) -> Option<ProtocolRef> {
        let first = || self.lowers.borrow().first().map(|(_, lower)| lower.clone());
        find(&self.lowers, id).or_else(first)
    }

    // ---- sending ----

    /// Sends a message if there is room.
    pub(crate) fn offer(
        &self,
        cx: &Kernel,
        header: Header,
        message: &Message,
    ) -> Result<(), PushError> {
        if self.is_lost() {
            return Err(PushError::Closed);
        }
        self.send_noted(cx);
        let reserve = if header.op == Op::OpenDone { RESERVE / 2 } else { RESERVE };
        if !self.has_room(cx, reserve) {
            return Err(PushError::QueueFull);
        }
        let head = self.charged(cx, header).before(message);
        let is_first = self.outbox.borrow().is_empty();
        let sent = match is_first {
            true => self.carrier().send(cx, &head, message),
            false => Err(SendError::Full),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(SendError::NoBuffers) => Err(PushError::NoBuffers),
            // It has a place, but its octets have no room at present.
            Err(SendError::Full) => {
                let kept = message.try_clone().map_err(|NoBuffers| PushError::NoBuffers)?;
                self.outbox.borrow_mut().push_back((head, kept));
                Ok(())
            }
            Err(SendError::TooLong) => Err(PushError::TooBig),
            Err(SendError::Lost) => {
                self.lose(cx);
                Err(PushError::Closed)
            }
        }
    }

    /// False if it is too long for a frame.
    pub(crate) fn crosses(&self, body: &Message) -> bool {
        body.len() + OVERHEAD_MAX <= self.carrier().frame_octets_max()
    }

    /// Sends a frame, or keeps it until there is room.
    pub(crate) fn post(&self, cx: &Kernel, header: Header, body: Message) {
        self.send_noted(cx);
        self.post_frame(cx, header, body);
    }

    fn post_frame(&self, cx: &Kernel, header: Header, body: Message) {
        if self.is_lost() {
            return;
        }
        let frame = (self.charged(cx, header).before(&body), body);
        let waits = !self.outbox.borrow().is_empty() || !self.send(cx, &frame);
        if waits {
            let mut outbox = self.outbox.borrow_mut();
            outbox.push_back(frame);
            let is_broken = outbox.len() > OUTBOX_MAX;
            drop(outbox);
            if is_broken {
                self.lose(cx);
            }
        }
    }

    /// False if there is no room at present.
    fn send(&self, cx: &Kernel, (head, body): &(Head, Message)) -> bool {
        match self.carrier().send(cx, head, body) {
            Err(SendError::Full | SendError::NoBuffers) => return false,
            Err(SendError::TooLong) => self.count(&reason::TOO_BIG),
            Err(SendError::Lost) => self.lose(cx),
            Ok(()) => {}
        }
        true
    }

    /// Sends a header with fields, or keeps it until there is room.
    pub(crate) fn tell(&self, cx: &Kernel, header: Header, fields: &[u8]) {
        match cx.pool().copy_from(0, fields) {
            Ok(body) => self.post(cx, header, body),
            Err(NoBuffers) => self.count(&reason::NO_BUFFERS),
        }
    }

    /// Has a header sent before whatever comes next. Of one session the last counts.
    pub(crate) fn note(&self, header: Header) {
        if self.is_lost() {
            return;
        }
        let mut noted = self.noted.borrow_mut();
        noted.retain(|before| before.first != header.first);
        noted.push(header);
    }

    /// Sends what was noted.
    #[inline]
    pub(crate) fn send_noted(&self, cx: &Kernel) {
        while !self.noted.borrow().is_empty() && self.send_first_noted(cx).is_some() {}
    }

    #[inline(never)]
    fn send_first_noted(&self, cx: &Kernel) -> Option<()> {
        let body = cx.pool().empty(0).ok()?;
        let header = *self.noted.borrow().first()?;
        self.noted.borrow_mut().remove(0);
        self.post_frame(cx, header, body);
        Some(())
    }

    /// Sends what waits for room, and wakes the other side.
    pub fn flush(&self, cx: &Kernel) {
        loop {
            let next = self.outbox.borrow_mut().pop_front();
            let Some(frame) = next else {
                break;
            };
            if !self.send(cx, &frame) {
                self.outbox.borrow_mut().push_front(frame);
                break;
            }
        }
        self.send_noted(cx);
        let waits = !self.outbox.borrow().is_empty() || self.waits_for_room();
        self.retry_at.set(waits.then(|| cx.now().after(RETRY)));
        self.carrier().flush();
    }

    // ---- asking ----

    /// Puts a request to the other side and waits for the answer, as long as `limit` says; `opens`
    /// are the protocol and the receiver of a session that is opened.
    ///
    /// # Errors
    /// [`CallError`]: why there is no answer.
    pub(crate) fn request(
        &self,
        cx: &Kernel,
        (mut header, body): (Header, Message),
        opens: Opens,
        limit: Option<Duration>,
    ) -> Result<Answered, CallError> {
        if self.is_lost() {
            return Err(CallCause::Closed.into());
        }
        if !self.crosses(&body) {
            return Err(PushError::TooBig.into());
        }
        let is_question = matches!(header.op, Op::AskProtocol | Op::AskSession);
        let can_wait = cx.shepherds().current().is_some();
        if is_question && !can_wait && self.is_answer_due(cx) {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        }
        let (tag, wait) = self.waits.begin(opens).ok_or(PushError::QueueFull)?;
        let is_call = matches!(header.op, Op::Call | Op::CallUp);
        *(if is_call { &mut header.second } else { &mut header.first }) = tag;
        self.post(cx, header, body);
        self.carrier().flush();
        let answer = self.wait(cx, &wait, limit);
        self.waits.end(tag);
        let is_silent = matches!(&answer, Err(CallError { cause: CallCause::TimedOut { .. }, .. }));
        self.is_silent.set(is_silent);
        if is_question && !can_wait && is_silent {
            self.unanswered.set(limit.map(|limit| (tag, cx.now().after(limit))));
        }
        answer
    }

    /// True while the other side owes the answer to the last question of a caller that could not
    /// wait. Each question occupies a shepherd there, so a caller that asks again and again, and
    /// cannot wait, would occupy all of them.
    fn is_answer_due(&self, cx: &Kernel) -> bool {
        if self.unanswered.get().is_some() {
            self.poll(cx, usize::MAX);
        }
        self.unanswered.get().is_some_and(|(_, until)| cx.now() < until)
    }

    fn wait(
        &self,
        cx: &Kernel,
        wait: &Wait,
        limit: Option<Duration>,
    ) -> Result<Answered, CallError> {
        // A carrier that delivers at once has brought the answer.
        if let Some(answer) = wait.answer.take() {
            return Ok(answer);
        }
        if self.is_lost() {
            return Err(CallCause::Closed.into());
        }
        let why = match wait.answer.wait(cx, limit) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) | Err(WaitError::Closed | WaitError::Interrupted) => CallCause::Closed,
            Err(WaitError::NoShepherds) => CallCause::NoShepherds,
            Err(WaitError::TimedOut) => CallCause::TimedOut { tries: 1 },
            Err(WaitError::NotOnShepherd) => {
                for _ in 0..TURNS_MAX {
                    self.carrier().turn(cx);
                    self.poll(cx, usize::MAX);
                    if self.is_lost() || !wait.answer.waits() {
                        break;
                    }
                }
                CallCause::TimedOut { tries: 1 }
            }
        };
        wait.answer.take().ok_or(why.into())
    }

    /// Puts a question to something on the other side, of which `facts` are known.
    pub(crate) fn ask(
        &self,
        cx: &Kernel,
        target: Target,
        facts: &Facts,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let (kind, names) = (ask.kind(), Names::of(self, cx));
        let mut out = Writer::reusing(self.scratch.take(), &names);
        ask.put(&mut out);
        let Some(octets) = out.octets() else {
            return Answer::Unknown;
        };
        let len = octets.len();
        // Of what names nothing on either side.
        let may_last = kind.kind == Kind::Fact || kind.key == Headers::KEY;
        if may_last && facts.answer(kind.key, octets, |answer| ask.fill(answer, &names)) {
            self.keep_scratch(out.finish());
            return Answer::Answered;
        }
        kind.key.put(&mut out);
        out.put_list(ask.passed_up_by());
        let Some(mut fields) = out.finish() else {
            return Answer::Unknown;
        };
        // What was written last goes first.
        fields.rotate_left(len);
        let header = Header::new(target.op, 0, target.number);
        // The first time it is asked whether that is understood.
        let (is_tell, told) = (kind.kind == Kind::Tell, (target.protocol, kind.key));
        let may_stand = kind.is_standing || !self.told.borrow().is_empty();
        let mut noted = (may_stand && target.op == Op::AskProtocol).then(|| fields.clone());
        if !kind.is_standing
            && let Some(fields) = noted.take()
        {
            // What is taken back stays so, though the other side may be gone just now.
            self.remember(target.protocol, kind, fields);
        }
        if is_tell && self.understood.borrow().contains(&told) {
            self.tell(cx, header, &fields);
            self.keep_scratch(Some(fields));
            noted.into_iter().for_each(|fields| self.remember(target.protocol, kind, fields));
            return Answer::Answered;
        }
        let body = cx.pool().copy_from(0, &fields);
        self.keep_scratch(Some(fields));
        let Ok(body) = body else {
            return cx.lose_question();
        };
        // What is given away is lost with an answer that comes too late.
        let limit = QUESTION_TIME_MAX.filter(|_| kind.kind != Kind::Transfer);
        let Ok(Answered::Frame(_, mut reply)) = self.request(cx, (header, body), None, limit)
        else {
            return cx.lose_question();
        };
        let (is_answered, lasts) = match reply.pop_array::<1>() {
            Some(&[UNKNOWN]) => (false, false),
            Some(&[ANSWERED]) => (true, kind.kind == Kind::Fact),
            Some(&[LASTS]) => (true, may_last),
            _ => return cx.lose_question(),
        };
        if let Some(fields) = noted.filter(|_| is_answered) {
            self.remember(target.protocol, kind, fields);
        }
        let mut understood = self.understood.borrow_mut();
        if is_tell && is_answered && understood.len() < LEARNED_MAX && !understood.contains(&told) {
            understood.push(told);
        }
        drop(understood);
        if !is_answered {
            return Answer::Unknown;
        }
        let answer = octets_of(&reply);
        let asked = if lasts { ask.write(&names) } else { None };
        // It names what this domain does not know, however often it is asked.
        if !ask.fill(&answer, &names) {
            return Answer::Unknown;
        }
        if let Some(asked) = asked {
            facts.keep((kind.key, asked, answer.into_owned()));
        }
        Answer::Answered
    }

    /// Keeps a list that was written into for the next question, unless it has become long.
    pub(crate) fn keep_scratch(&self, octets: Option<Vec<u8>>) {
        if let Some(octets) = octets.filter(|octets| octets.capacity() <= SCRATCH_OCTETS_MAX) {
            self.scratch.set(octets);
        }
    }

    // ---- reading ----

    /// The field that a frame carries, and nothing else.
    pub(crate) fn read<T: Field>(&self, cx: &Kernel, message: &Message) -> Option<T> {
        let octets = octets_of(message);
        let names = Names::of(self, cx);
        let mut reader = Reader::new(&octets, &names);
        T::take(&mut reader).filter(|_| reader.is_empty())
    }

    /// Fields as octets.
    pub(crate) fn write(&self, cx: &Kernel, fields: &impl Field) -> Vec<u8> {
        let names = Names::of(self, cx);
        let mut out = Writer::new(&names);
        fields.put(&mut out);
        // Fields with a session are questions', which are written elsewhere.
        out.finish().unwrap_or_default()
    }

    /// The type of a question that may cross.
    pub(crate) fn question(&self, key: u32) -> Option<&'static QuestionType> {
        self.known.question(key)
    }

    /// Questions that the other side will ask of a new session, with the answers.
    pub(crate) fn facts_of(&self, cx: &Kernel, session: &SessionRef) -> Vec<Fact> {
        let protocol = session.head().protocol();
        let max_packet = const { &QuestionType::of::<MaxPacket>() };
        let mut wanted = vec![(max_packet, 0_u32.to_le_bytes().to_vec())];
        {
            let learned = self.learned.borrow();
            let of_it = learned.iter().filter(|(of, ..)| *of == protocol);
            wanted.extend(of_it.map(|(_, kind, octets)| (*kind, octets.clone())));
        }
        let names = Names::of(self, cx);
        let mut facts = Vec::new();
        for (kind, octets) in wanted {
            let answer = kind.read(&octets, &names, Vec::new(), |ask| {
                let asked = cx.unless_lost(|| session.control(cx, ask));
                (asked == Ok(Answer::Answered)).then(|| ask.write(&names)).flatten()
            });
            if let Some(answer) = answer.flatten() {
                facts.push((kind.key, octets, answer));
            }
        }
        facts
    }

    /// Remembers what the other side asked a session of this protocol.
    pub(crate) fn learn(&self, protocol: ProtocolId, kind: &'static QuestionType, octets: &[u8]) {
        let mut learned = self.learned.borrow_mut();
        let is_new = kind.key != MaxPacket::KEY
            && !learned.iter().any(|(p, k, q)| *p == protocol && k.key == kind.key && q == octets);
        if is_new && learned.len() < LEARNED_MAX {
            learned.push((protocol, kind, octets.to_vec()));
        }
    }

    // ---- receiving ----

    /// Takes at most `budget` frames from the other side, as long as there is room for answers, and
    /// does what they ask for. Stops when the shepherd no longer leads the loop. Answers how many.
    pub fn poll(&self, cx: &Kernel, budget: usize) -> usize {
        let (mut count, budget) = (0, budget.min(self.answers_max(cx)));
        while count < budget && !self.is_lost() {
            match self.carrier().receive(cx) {
                Arrival::Frame(frame) => {
                    count += 1;
                    if self.take(cx, frame).is_none() {
                        self.lose(cx);
                    }
                }
                Arrival::Nothing | Arrival::NoBuffers => break,
                Arrival::Lost => self.lose(cx),
            }
            // What waited for an answer goes on before the frames behind it are taken.
            if self.waits.were_answered() || cx.must_leave() {
                break;
            }
        }
        count
    }

    /// Counts what is of no session here.
    pub(crate) fn count(&self, why: &'static Reason) {
        if let Some(wire) = &*self.wire.borrow() {
            wire.head().drops().count(why);
        }
    }
}
