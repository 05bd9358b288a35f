//! The suite itself: a layer that keeps the laws passes, and each way to break one is found.

use super::{Fixture, Side, all};
use crate::kernel::{self, Lower};
use core::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use xk_core::graph::{Build, BuildError, Family, Params, Realm, Value};
use xk_core::map::Map;
use xk_core::object::{
    Burst, CallCause, CallError, Closing, Enable, OpenError, PushError, Refused, SessionTable,
};
use xk_core::{
    Answer, Ask, Entry, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Session,
    SessionRef, Time, Upper, reason,
};
use xk_kit::net::template::Headers;

/// A way to break a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    ClosesNothing,
    SharesSessions,
    TellsTooLate,
    IgnoresTheReceiver,
    EndsLateRefusals,
    NeedsNoNumber,
    CopiesPayload,
    WantsOneSlice,
    DropsInSilence,
    ReadsBehindTheEnd,
    CountsTwice,
    HasNoBound,
    KeepsMessages,
    StaysAlive,
    AnswersEverything,
    ForwardsNothing,
    LetsCallersWait,
    TurnsBurstsRound,
    HoardsBursts,
    PinsBelow,
    KnowsOneHost,
    BreaksWhatIsHeld,
    LetsGoBelow,
    CountsItsHeader,
    FindsNoBufferInSilence,
    LetsOthersOvertake,
    TellsAnotherHeader,
    TakesOtherHeaders,
    OutlivesBelow,
    CutsPeers,
}

/// Every fault, and the law that it breaks. None is of law 6: a shared buffer cannot be written to
/// at all.
const FAULTS: &[(Fault, &str)] = &[
    (Fault::ClosesNothing, "law 5"),
    (Fault::SharesSessions, "law 3"),
    (Fault::TellsTooLate, "law 2"),
    (Fault::IgnoresTheReceiver, "law 3"),
    (Fault::EndsLateRefusals, "a refusal goes as far down"),
    (Fault::NeedsNoNumber, "law 4"),
    (Fault::CopiesPayload, "law 7"),
    (Fault::WantsOneSlice, "law 1"),
    (Fault::DropsInSilence, "law 8"),
    (Fault::ReadsBehindTheEnd, "index out of bounds"),
    (Fault::CountsTwice, "law 8"),
    (Fault::HasNoBound, "law 8"),
    (Fault::KeepsMessages, "law 8"),
    (Fault::StaysAlive, "law 5"),
    (Fault::AnswersEverything, "law 9"),
    (Fault::ForwardsNothing, "law 9"),
    (Fault::LetsCallersWait, "law 5"),
    (Fault::PinsBelow, "law 5: what 100 strangers"),
    (Fault::KnowsOneHost, "law 8: stranger number 0 is heard"),
    (Fault::BreaksWhatIsHeld, "law 8: a session that is held"),
    (Fault::LetsOthersOvertake, "first messages fare as if nothing blocked"),
    (Fault::LetsGoBelow, "law 8: a session that is held"),
    (Fault::CountsItsHeader, "are no more than `max-packet`"),
    (Fault::FindsNoBufferInSilence, "law 8: what finds no buffer is counted"),
    (Fault::TurnsBurstsRound, "law 5: bursts of"),
    (Fault::HoardsBursts, "law 5"),
    (Fault::TellsAnotherHeader, "was sent, of 0:0700"),
    (Fault::TakesOtherHeaders, "arrives, not of 0:0700"),
    (Fault::OutlivesBelow, "law 5: a session that has not ended"),
    (Fault::CutsPeers, "law 2: what goes to"),
];

/// A layer whose header is the type number, one octet.
struct Layer {
    fault: Fault,
    lower: ProtocolRef,
    sessions: Rc<SessionTable<(u64, u32)>>,
    enables: Map<u32, ProtocolRef>,
    kept: RefCell<Vec<Message>>,
}

struct LayerSession {
    fault: Fault,
    sessions: Rc<SessionTable<(u64, u32)>>,
    number: u32,
    lower: SessionRef,
    upper: ProtocolRef,
    told: Cell<bool>,
}

const SESSIONS_MAX: usize = 64;

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let fault = FAULTS.get(build.params.number::<usize>("fault", usize::MAX));
    let fault = fault.map_or(Fault::None, |(fault, _)| *fault);
    let max = if fault == Fault::HasNoBound { 10_000 } else { SESSIONS_MAX };
    let key = build.cx.secret();
    let mut sessions = SessionTable::new(key, max);
    if fault == Fault::BreaksWhatIsHeld {
        sessions = sessions.with_rank(|_, _| Some((0, Time::ZERO)));
    }
    build.add(Layer {
        fault,
        lower: build.lower(0)?,
        sessions: Rc::new(sessions),
        enables: Map::new(key, 16),
        kept: RefCell::default(),
    })
}

impl Layer {
    fn number(&self, cx: &Kernel, this: &ProtocolRef, upper: Upper<'_>) -> Result<u32, OpenError> {
        match self.fault {
            Fault::NeedsNoNumber => Ok(upper.number_on(cx, this).unwrap_or(9)),
            Fault::IgnoresTheReceiver => Upper::new(upper.receiver).number_on(cx, this),
            _ => upper.number_on(cx, this),
        }
    }

    fn body(&self, number: u32, upper: &ProtocolRef, lower: &SessionRef) -> LayerSession {
        LayerSession {
            fault: self.fault,
            sessions: Rc::clone(&self.sessions),
            number,
            lower: lower.clone(),
            upper: upper.clone(),
            told: Cell::new(true),
        }
    }

    fn first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        number: u32,
    ) -> Result<SessionRef, &'static xk_core::Reason> {
        let upper = self.enables.get(&number).ok_or(&reason::NO_PROTOCOL)?;
        if self.fault == Fault::KnowsOneHost && !self.sessions.is_empty() {
            return Err(&reason::TABLE_FULL);
        }
        if self.fault == Fault::PinsBelow {
            lower.hold();
        }
        let body = self.body(number, &upper, lower);
        let late = self.fault == Fault::TellsTooLate;
        body.told.set(!late);
        let session = cx.new_passive_session(this, &upper, lower.head().source(), body);
        let bound = self.sessions.bind(cx, (lower.id().0, number), session.clone());
        let told = bound.and_then(|()| {
            if late {
                return Ok(());
            }
            match self.fault {
                Fault::LetsOthersOvertake => upper.open_done(cx, &session, Participants::default()),
                _ => session.announce(cx, &upper, Participants::default()),
            }
        });
        told.inspect_err(|_| session.abort(cx)).map(|()| session)
    }
}

impl Protocol for Layer {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        if self.fault == Fault::CutsPeers && participants.len() > 2 {
            let first = participants.peers()[0].clone();
            participants = Participants::pair(Part::Any, first);
        }
        let number = self.number(cx, this, upper)?;
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let key = (lower.id().0, number);
        if let Some(session) = self.sessions.get(&key) {
            let same = session.head().upper() == upper.receiver.id();
            if !same && self.fault != Fault::SharesSessions {
                lower.close(cx);
                return Err(OpenError::InUse);
            }
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        let body = self.body(number, upper.receiver, &lower);
        let session = cx.new_session(this, upper.receiver, body);
        let bound = self.sessions.bind(cx, key, session.clone());
        bound.map(|()| session).map_err(|_| OpenError::Full)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = self.number(cx, this, upper)?;
        let bound = self.enables.bind(number, upper.receiver.clone());
        bound.map_err(|_| OpenError::InUse)?;
        Ok(Enable(number.into()))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.enables.unbind(&(enable.0 as u32));
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if self.fault != Fault::WantsOneSlice {
            let _ = message.pull_up(2);
        }
        if self.fault == Fault::ReadsBehindTheEnd {
            assert_eq!(message.front_slice()[1], 0);
        }
        let any = self.fault == Fault::TakesOtherHeaders;
        let header = message.pop_array::<2>().copied();
        let Some([number, _]) = header.filter(|[_, zero]| any || *zero == 0) else {
            if self.fault == Fault::DropsInSilence {
                return Ok(());
            }
            if self.fault == Fault::CountsTwice {
                this.head().drops().count(&reason::MALFORMED);
            }
            return Err(this.refuse(message, &reason::MALFORMED));
        };
        if let (Fault::KeepsMessages, Ok(copy)) = (self.fault, message.try_clone()) {
            self.kept.borrow_mut().push(copy);
        }
        let number = u32::from(number);
        let found = self.sessions.get(&(lower.id().0, number));
        match found.map_or_else(|| self.first(cx, this, lower, number), Ok) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        match self.fault {
            Fault::TurnsBurstsRound => {
                let all: Vec<_> = core::iter::from_fn(|| burst.next()).collect();
                let mut turned = all.into_iter().rev();
                turned.try_for_each(|message| self.demux(cx, this, lower, message))
            }
            Fault::HoardsBursts => {
                let all: Vec<_> = core::iter::from_fn(|| burst.next()).collect();
                for message in all {
                    drop(self.demux(cx, this, lower, message));
                }
                Ok(())
            }
            _ => {
                while let Some(message) = burst.next_through(lower) {
                    self.demux(cx, this, lower, message)?;
                }
                Ok(())
            }
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(list) = ask.get::<xk_core::control::ListSessions>() {
            list.add(&self.sessions);
            return Answer::Answered;
        }
        if let Some(list) = ask.get::<xk_core::control::ListMaps>() {
            list.add("sessions", self.sessions.stats());
            return Answer::Answered;
        }
        self.lower.control(cx, ask)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.enables.clear();
        // Otherwise a circle is left: the table keeps the sessions, and they the table.
        if self.fault != Fault::StaysAlive {
            self.sessions.clear();
            self.kept.take();
        }
    }
}

impl Session for LayerSession {
    fn lower(&self) -> Option<&SessionRef> {
        (self.fault != Fault::LetsGoBelow).then_some(&self.lower)
    }

    fn lower_gone(&self, cx: &Kernel, this: &SessionRef, _: &SessionRef) {
        if self.fault != Fault::OutlivesBelow {
            this.abort(cx);
        }
    }

    fn call(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<Message, CallError> {
        match self.fault {
            Fault::LetsCallersWait => {
                self.lower.call(cx, message).or(Err(CallCause::TimedOut { tries: 1 }.into()))
            }
            _ => Err(CallCause::NotSupported.into()),
        }
    }

    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        if self.fault == Fault::CopiesPayload {
            let octets = crate::kernel::octets(&message);
            message = cx.pool().copy_from(64, &octets).map_err(|_| PushError::NoBuffers)?;
        }
        let other = self.fault == Fault::TellsAnotherHeader;
        let header = [self.number as u8, u8::from(other && message.len() == 300)];
        if message.push_array(&header).is_err() {
            if self.fault != Fault::FindsNoBufferInSilence {
                this.discard(cx, message, &reason::NO_BUFFERS);
            }
            return Err(PushError::NoBuffers);
        }
        self.lower.push(cx, message)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        let result = self.upper.demux(cx, this, message);
        if !self.told.replace(true) {
            let _ = self.upper.open_done(cx, this, Participants::default());
        }
        result
    }

    fn refused(&self, cx: &Kernel, _: &SessionRef, mut refused: Refused) {
        if self.fault != Fault::EndsLateRefusals && refused.message.uncover(2) {
            self.lower.refused(cx, refused);
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        match self.fault {
            Fault::AnswersEverything => return Answer::Answered,
            Fault::ForwardsNothing => return Answer::Unknown,
            _ => {}
        }
        if let Some(question) = ask.get::<Headers>() {
            let header = [self.number as u8, 0];
            let below = Headers::of(cx, &self.lower);
            return question.found(below.and_then(|b| b.with((&header, &[]), (&header, &[]))));
        }
        let answer = self.lower.control(cx, ask);
        if let Some(max) = ask.get::<xk_kit::control::MaxPacket>()
            && self.fault != Fault::CountsItsHeader
        {
            max.octets = max.octets.saturating_sub(2);
        }
        answer
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if self.fault != Fault::ClosesNothing {
            self.sessions.unbind(&(self.lower.id().0, self.number));
            if !this.head().is_passive() {
                self.lower.close(cx);
            }
        }
        Closing::Done
    }
}

static ENTRY: Entry = Entry::layer("layer", "", build)
    .summary("a layer to test the suite with")
    .on(&[Realm::Async], &[Family::Inherit])
    .header_octets(2);

/// The layer with a fault, by its place in [`FAULTS`].
struct Faulty(Option<usize>);

impl Fixture for Faulty {
    fn entry(&self) -> &'static Entry {
        &ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(kernel::Family::V4), 253)
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        if let Some(fault) = self.0 {
            params.set("fault", Value::Integer(fault as i64));
        }
        params
    }

    fn sessions_max(&self) -> usize {
        SESSIONS_MAX
    }
}

#[test]
fn a_lawful_layer_passes() {
    let findings = all(&Faulty(None));
    let skipped: Vec<_> = findings.skipped.iter().map(|(law, _)| *law).collect();
    assert_eq!(skipped, ["no allocation per message"], "{findings}");
}

#[test]
fn every_fault_is_found() {
    for (place, (fault, law)) in FAULTS.iter().enumerate() {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| all(&Faulty(Some(place))))) else {
            panic!("{fault:?} was not found");
        };
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).into()));
        let text = text.unwrap_or_default();
        assert!(text.contains(law), "{fault:?} was found as: {text}");
    }
}
