//! The protocol object: opens, enables, demultiplexes.

use crate::session::{Key, SeqSession, Settings};
use crate::wire::{HEADER_OCTETS, Header, ParseError};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::num::NonZeroU16;
use core::time::Duration;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::message::PullUpError;
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::ports::less_header;

/// How many upper protocols may enable it.
const ENABLES_MAX: usize = 256;

/// One instance of the layer.
pub struct Seq {
    lower: ProtocolRef,
    settings: Settings,
    sessions: Rc<SessionTable<Key>>,
    /// Type number to the protocol that takes messages with it, and where it takes them.
    enables: Map<u16, (ProtocolRef, Participants)>,
    /// What the layer below offers us for them.
    offers: RefCell<Vec<Offer>>,
}

/// An enable below, shared by all uppers that want the same participants.
struct Offer {
    participants: Participants,
    enable: Enable,
    users: usize,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let key = build.cx.secret();
    let sessions_max = build.params.number("sessions_max", 1024);
    build.add(Seq {
        lower: build.lower(0)?,
        settings: Settings {
            hold: build.params.number("hold", 32),
            wait: build.params.duration("wait", Duration::from_millis(20)),
        },
        sessions: Rc::new(SessionTable::new(key, sessions_max)),
        enables: Map::new(key, ENABLES_MAX),
        offers: RefCell::default(),
    })
}

impl Protocol for Seq {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = number_of(cx, this, upper)?;
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let key = (lower.id().0, number.get());
        if let Some(session) = self.sessions.get(&key) {
            if session.head().upper() != upper.receiver.id() {
                lower.close(cx);
                return Err(OpenError::InUse);
            }
            // Held, the session holds the lower one itself.
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        let body = self.session(cx, number, upper.receiver, lower);
        let session = cx.new_session(this, upper.receiver, body);
        if self.sessions.bind(cx, key, session.clone()).is_err() {
            session.close(cx);
            return Err(OpenError::Full);
        }
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let number = number_of(cx, this, upper)?.get();
        let taker = (upper.receiver.clone(), participants.clone());
        if self.enables.bind(number, taker).is_err() {
            return Err(OpenError::InUse);
        }
        if let Err(error) = self.enable_below(cx, this, participants) {
            self.enables.unbind(&number);
            return Err(error);
        }
        Ok(Enable(number.into()))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let number = u16::try_from(enable.0).ok();
        if let Some((_, participants)) = number.and_then(|n| self.enables.unbind(&n)) {
            self.disable_below(cx, &participants);
        }
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let header = match header_of(&mut message) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(message, why)),
        };
        let session = match self.sessions.get(&(lower.id().0, header.number.get())) {
            Some(session) => session,
            None => match self.first(cx, this, lower, header.number) {
                Ok(session) => session,
                Err(why) => return Err(this.refuse(message, why)),
            },
        };
        session.pop(cx, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", self.sessions.stats()));
            question.maps.push(("passive", self.enables.stats()));
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    // Sessions and enables refer to the protocols around us, and those to us: only letting go ends that.
    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.sessions.clear();
        self.enables.clear();
    }
}

impl Seq {
    fn session(
        &self,
        cx: &Kernel,
        number: NonZeroU16,
        upper: &ProtocolRef,
        lower: SessionRef,
    ) -> SeqSession {
        let sessions = Rc::clone(&self.sessions);
        let run = cx.random().next_u64() as u32;
        SeqSession::new(sessions, number, upper.clone(), lower, run, self.settings)
    }

    /// The first message of a conversation makes the session, if somebody has enabled its type number.
    #[cold]
    fn first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        number: NonZeroU16,
    ) -> Result<SessionRef, &'static Reason> {
        let taker = self.enables.get(&number.get());
        let (upper, _) = taker.ok_or(&reason::NO_PROTOCOL)?;
        let body = self.session(cx, number, &upper, lower.clone());
        let session = cx.new_passive_session(this, &upper, body);
        let key = (lower.id().0, number.get());
        let bound = self.sessions.bind(cx, key, session.clone());
        bound
            .and_then(|()| upper.open_done(cx, &session, Participants::default()))
            .inspect_err(|_| session.abort(cx))?;
        Ok(session)
    }

    /// Has the layer below offer us what comes for these participants; once for all uppers that want them.
    fn enable_below(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        participants: Participants,
    ) -> Result<(), OpenError> {
        let mut offers = self.offers.borrow_mut();
        if let Some(offer) = offers.iter_mut().find(|o| o.participants == participants) {
            offer.users += 1;
            return Ok(());
        }
        // No borrow is held while another object runs: it may call us.
        drop(offers);
        let upper = Upper::new(this);
        let enable = self.lower.open_enable(cx, upper, participants.clone())?;
        self.offers.borrow_mut().push(Offer {
            participants,
            enable,
            users: 1,
        });
        Ok(())
    }

    fn disable_below(&self, cx: &Kernel, participants: &Participants) {
        let mut offers = self.offers.borrow_mut();
        let Some(at) = offers.iter().position(|o| o.participants == *participants) else {
            return;
        };
        offers[at].users -= 1;
        if offers[at].users == 0 {
            let enable = offers.swap_remove(at).enable;
            drop(offers);
            self.lower.open_disable(cx, enable);
        }
    }
}

/// The type number of `upper` here.
fn number_of(cx: &Kernel, this: &ProtocolRef, upper: Upper<'_>) -> Result<NonZeroU16, OpenError> {
    let number = u16::try_from(upper.number_on(cx, this)?).ok();
    // One that the header has no room for is as good as none.
    number
        .and_then(NonZeroU16::new)
        .ok_or(OpenError::NoTypeNumber)
}

/// The header in front of a message, checked; what lies behind the message's length is cut off.
#[inline]
fn header_of(message: &mut Message) -> Result<Header, &'static Reason> {
    if message.pull_up(HEADER_OCTETS) == Err(PullUpError::NoBuffers) {
        return Err(&reason::NO_BUFFERS);
    }
    let octets = message.peek().ok_or(&reason::TRUNCATED)?;
    let present = message.len() - HEADER_OCTETS;
    let header = Header::parse(octets, present).map_err(|error| match error {
        ParseError::Number => &reason::MALFORMED,
        ParseError::Length => &reason::BAD_LENGTH,
    })?;
    message.truncate(HEADER_OCTETS + usize::from(header.length));
    Ok(header)
}
