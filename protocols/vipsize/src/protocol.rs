//! The protocol object: opens and enables all below, and leads what arrives to its session.

use crate::session::{ItsPath, LOWERS_MAX, Path, SizeSession};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Burst, Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{HostConflict, IsOutstanding, NetworkError, SendError};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::{UNKNOWN_STATION, WayChanged, peer_host};
use xk_kit::net::standins::{self, Marks, StandIn, StandIns, UPPERS_MAX};

/// How many sessions it holds unless the graph says otherwise.
const SESSIONS_MAX: usize = 65_536;
/// From how many sessions on each that a message makes takes the place of an idle one.
const IDLE_MAX: usize = 4096;
/// How many offers it takes at a time.
const OFFERS_MAX: usize = 4 * UPPERS_MAX;

/// A session's key: the host, and place of the upper protocol.
pub(crate) type Key = (u32, u32);

pub(crate) struct Shared {
    /// From that of small messages to that of large ones.
    pub(crate) lowers: Vec<ProtocolRef>,
    /// Octets of the largest message of each, where the graph says so.
    pub(crate) cutoffs: Vec<usize>,
    pub(crate) sessions: SessionTable<Key>,
    pub(crate) marks: Marks,
    uppers: StandIns,
    offers: RefCell<Vec<(u64, Vec<Enable>)>>,
    offer_last: Cell<u64>,
}

/// One instance, or the object by which it receives for one of those above.
pub struct VipSize {
    shared: Rc<Shared>,
    /// For whom of those above this object receives.
    place: usize,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it too little to stand on, [`BuildError::Param`] if a
/// cutoff is one too many, or is less than the one before.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.lower(1)?;
    let cutoffs: Vec<usize> =
        build.params.blocks("cutoff").map(|block| block.octets("octets", 0)).collect();
    let sessions_max = build.params.number("sessions_max", SESSIONS_MAX);
    let bounds = (sessions_max, build.params.number("idle_max", IDLE_MAX));
    let made = VipSize::new(build.cx, build.lowers.to_vec(), cutoffs, bounds)?;
    build.add(made)
}

/// Adds one to a kernel, for programs that compose without a graph file: on `lowers`, two to eight,
/// from the one for the smallest messages to the one for the largest; `cutoffs` may be fewer, and
/// each that is missing is asked for.
///
/// # Errors
/// [`BuildError::Lower`] if there are too few or too many layers below, [`BuildError::Param`] as
/// for [`build`].
pub fn add(
    cx: &Kernel,
    name: &str,
    lowers: Vec<ProtocolRef>,
    cutoffs: Vec<usize>,
) -> Result<ProtocolRef, BuildError> {
    let made = VipSize::new(cx, lowers, cutoffs, (SESSIONS_MAX, IDLE_MAX))?;
    Ok(cx.add_protocol(crate::ENTRY.kind, name, made))
}

fn path_of(cx: &Kernel, session: &SessionRef) -> Option<Rc<Path>> {
    let mut question = ItsPath(None);
    let answer = session.control(cx, &mut Ask::new(&mut question));
    question.0.filter(|_| answer.is_answered())
}

impl Shared {
    /// The layer for the largest messages.
    pub(crate) fn last(&self) -> Option<&ProtocolRef> {
        self.lowers.last()
    }

    fn make(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        (key, stand_in): (Key, StandIn),
        (both, passive): (Participants, bool),
    ) -> Result<(SessionRef, Rc<Path>), OpenError> {
        let upper = stand_in.receiver.clone();
        let path = Rc::new(Path::new(key, stand_in, both));
        let body = SizeSession { shared: Rc::clone(self), path: Rc::clone(&path) };
        let session = if passive {
            cx.new_passive_session(this, &upper, body)
        } else {
            cx.new_session(this, &upper, body)
        };
        let bound = self.sessions.bind(cx, key, session.clone());
        let mark = bound.ok().and_then(|()| self.marks.enter(&session));
        let Some(mark) = mark else {
            session.abort(cx);
            return Err(OpenError::Full);
        };
        path.mark.set(mark);
        Ok((session, path))
    }
}

impl VipSize {
    fn new(
        cx: &Kernel,
        lowers: Vec<ProtocolRef>,
        cutoffs: Vec<usize>,
        (sessions_max, idle_max): (usize, usize),
    ) -> Result<Self, BuildError> {
        let count = lowers.len();
        if count < 2 {
            return Err(BuildError::Lower { at: count });
        }
        if count > LOWERS_MAX {
            return Err(BuildError::Param {
                name: "lowers",
                index: LOWERS_MAX,
                expected: "two to eight layers below".into(),
            });
        }
        for (index, cutoff) in cutoffs.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|at| cutoffs.get(at));
            let rises = before.is_none_or(|before| before < cutoff);
            if !rises || index + 1 >= count {
                return Err(BuildError::Param {
                    name: "cutoff",
                    index,
                    expected: "rising cutoffs, one for each layer but the last".into(),
                });
            }
        }
        let key = cx.secret();
        let shared = Shared {
            lowers,
            cutoffs,
            sessions: SessionTable::new(key, sessions_max.min(Marks::MAX)).with_idle_max(idle_max),
            marks: Marks::default(),
            uppers: StandIns::default(),
            offers: RefCell::default(),
            offer_last: Cell::new(0),
        };
        Ok(Self { shared: Rc::new(shared), place: 0 })
    }

    fn place(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
    ) -> Result<(u32, StandIn), OpenError> {
        let shared = &self.shared;
        let place = shared
            .uppers
            .place(cx, this, upper, |place| Self { shared: Rc::clone(shared), place })?;
        let stand_in = shared.uppers.get(place).ok_or(OpenError::Full)?;
        Ok((place as u32, stand_in))
    }

    /// Leads a session below to the one above that it belongs to, made if there is none.
    fn adopt(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let shared = &self.shared;
        let stand_in = shared.uppers.get(self.place);
        let stand_in = stand_in.ok_or(&reason::NO_PROTOCOL)?;
        let find = |below| peer_host(cx, below, lower, participants.clone()).ok();
        let host = shared.lowers.iter().find_map(find);
        let host = host.ok_or(&UNKNOWN_STATION)?;
        let key = (host.to_bits(), self.place as u32);
        let known = shared.sessions.get(&key);
        let known = known.and_then(|session| path_of(cx, &session).map(|path| (session, path)));
        if let Some((session, path)) = known {
            lower.head().set_tag(path.mark.get());
            return Ok(session);
        }
        let upper = stand_in.receiver.clone();
        let both = Participants::pair(Part::Any, Part::Host(host));
        let made = shared.make(cx, this, (key, stand_in), (both.clone(), true));
        let (session, path) = made.map_err(|_| &reason::TABLE_FULL)?;
        if let Err(unwanted) = upper.open_done(cx, &session, both) {
            session.abort(cx);
            return Err(unwanted);
        }
        lower.head().set_tag(path.mark.get());
        Ok(session)
    }

    /// A message through a session below that leads nowhere.
    #[cold]
    #[inline(never)]
    fn demux_lost(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let host = Ipv4::UNSPECIFIED;
        let peer = lower.ask(cx, xk_kit::control::PeerHost { host });
        let ether = || lower.ask(cx, xk_kit::control::PeerEther::default());
        let peer = match peer {
            Some(peer) => Some(Part::Host(peer.host)),
            None => ether().map(|ether| Part::Ether(ether.address)),
        };
        let Some(peer) = peer else {
            return Err(this.refuse(message, &UNKNOWN_STATION));
        };
        let both = Participants::pair(Part::Any, peer);
        match self.adopt(cx, this, lower, both) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }

    /// Passes a question from below about one of its sessions on to the protocol above that.
    fn ask_above(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let is_from_below =
            ask.get::<NetworkError>().is_some() || ask.get::<IsOutstanding>().is_some();
        if is_from_below && !self.shared.uppers.may_ask_above(ask) {
            return Some(Answer::Unknown);
        }
        let find = |lower: &SessionRef| self.shared.marks.get(lower.head().tag());
        let session = if let Some(error) = ask.get::<NetworkError>() {
            let found = error.session.as_ref().and_then(find);
            error.session.clone_from(&found);
            found
        } else if let Some(question) = ask.get::<IsOutstanding>() {
            let found = find(&question.session);
            if let Some(found) = &found {
                question.session = found.clone();
            }
            found
        } else if ask.get::<SendError>().is_some() || ask.get::<HostConflict>().is_some() {
            None
        } else {
            return None;
        };
        let path = session.and_then(|session| path_of(cx, &session));
        Some(path.map_or(Answer::Unknown, |path| path.stand_in.receiver.control(cx, ask)))
    }
}

impl Protocol for VipSize {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let host = participants.clone().peer_mut()?.pop_host()?.definite()?;
        let (place, stand_in) = self.place(cx, this, upper)?;
        let key = (host.to_bits(), place);
        if let Some(session) = shared.sessions.get(&key) {
            session.hold();
            return Ok(session);
        }
        let made = shared.make(cx, this, (key, stand_in), (participants, false));
        let (session, path) = made?;
        match path.connect(cx, shared) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.abort(cx);
                Err(error)
            }
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let shared = &self.shared;
        let (_, stand_in) = self.place(cx, this, upper)?;
        if shared.offers.borrow().len() >= OFFERS_MAX {
            return Err(OpenError::Full);
        }
        let mut made = Vec::new();
        for lower in &shared.lowers {
            match lower.open_enable(cx, stand_in.upper(), participants.clone()) {
                Ok(enable) => made.push(enable),
                Err(error) => {
                    for (lower, enable) in shared.lowers.iter().zip(made) {
                        lower.open_disable(cx, enable);
                    }
                    return Err(error);
                }
            }
        }
        let number = shared.offer_last.get() + 1;
        shared.offer_last.set(number);
        shared.offers.borrow_mut().push((number, made));
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let mut offers = self.shared.offers.borrow_mut();
        let at = offers.iter().position(|(number, _)| *number == enable.0);
        let offer = at.map(|at| offers.swap_remove(at));
        drop(offers);
        for (lower, enable) in self.shared.lowers.iter().zip(offer.into_iter().flat_map(|o| o.1)) {
            lower.open_disable(cx, enable);
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        self.adopt(cx, this, lower, participants).map(drop)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.shared.marks.get(lower.head().tag()) {
            Some(session) => session.pop(cx, message),
            None => self.demux_lost(cx, this, lower, message),
        }
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        if let Some(session) = self.shared.marks.get(lower.head().tag()) {
            return session.pop_burst(cx, burst);
        }
        while let Some(message) = burst.next_through(lower) {
            self.demux(cx, this, lower, message)?;
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", shared.sessions.stats()));
            return Answer::Answered;
        }
        if let Some(changed) = ask.get::<WayChanged>() {
            let key = (changed.host.to_bits(), self.place as u32);
            let session = shared.sessions.get(&key);
            if let Some(path) = session.and_then(|session| path_of(cx, &session)) {
                path.let_go(cx);
            }
            return Answer::Answered;
        }
        if standins::has_no_answer(ask) {
            return Answer::Unknown;
        }
        if let Some(answer) = self.ask_above(cx, ask) {
            return answer;
        }
        let last = shared.last();
        last.map_or(Answer::Unknown, |last| last.control(cx, ask))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.shared.last()
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        if self.place != 0 {
            return;
        }
        let shared = &self.shared;
        for session in shared.sessions.sessions(usize::MAX) {
            session.abort(cx);
        }
        shared.sessions.clear();
        shared.marks.clear();
        shared.uppers.clear();
        drop(shared.offers.take());
    }
}
