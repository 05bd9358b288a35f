//! The protocol object: opens, enables, and leads what arrives to its session.

use crate::session::Path;
use crate::shared::{Offer, Shared, Unwanted, is_cast, path_of};
use alloc::rc::Rc;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Burst, Enable, OpenError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper,
    reason,
};
use xk_kit::control::{HostConflict, IsOutstanding, NetworkError, SendError, SpecificDestination};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::{HostChanged, WatchHosts, peer_host};
use xk_kit::net::standins::{self, UPPERS_MAX};

/// How many sessions it holds unless the graph says otherwise.
const SESSIONS_MAX: usize = 65_536;
/// From how many sessions on each that a message makes takes the place of an idle one.
const IDLE_MAX: usize = 4096;
/// How many offers it takes at a time.
const OFFERS_MAX: usize = 4 * UPPERS_MAX;

/// One instance, or the object by which it receives for one of those above.
pub struct Vip {
    shared: Rc<Shared>,
    /// For whom of those above this object receives.
    place: usize,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it too little to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.params.number("sessions_max", SESSIONS_MAX);
    let idle_max = build.params.number("idle_max", IDLE_MAX);
    let (link, net) = (build.lower(0)?, build.lower(1)?);
    let shared = Shared::new(build.cx, link, net, (sessions_max, idle_max));
    build.add(Vip::new(shared))
}

/// Adds one to a kernel, for programs that compose without a graph file: on `link`, which takes the
/// hosts of a link, and `net`, which takes all. Every protocol that has a number on IP by then, and
/// none on Ethernet, gets one there: that on IP more than `ether_base`, as the check of a graph
/// does for each that stands on it.
pub fn add(
    cx: &Kernel,
    name: &str,
    (link, net): (ProtocolRef, ProtocolRef),
    ether_base: u32,
) -> ProtocolRef {
    standins::LINK_OR_NET.derive(&mut cx.numbers_mut(), ether_base);
    let shared = Shared::new(cx, link, net, (SESSIONS_MAX, IDLE_MAX));
    cx.add_protocol(crate::ENTRY.kind, name, Vip::new(shared))
}

impl Vip {
    fn new(shared: Shared) -> Self {
        Self { shared: Rc::new(shared), place: 0 }
    }

    /// The place of an upper protocol.
    fn place(&self, cx: &Kernel, this: &ProtocolRef, upper: Upper<'_>) -> Result<usize, OpenError> {
        let shared = &self.shared;
        shared.uppers.place(cx, this, upper, |place| Self { shared: Rc::clone(shared), place })
    }

    /// Finds the ways of a session that was opened from above.
    fn connect(&self, cx: &Kernel, upper: Upper<'_>, path: &Path) -> Result<(), OpenError> {
        let shared = &self.shared;
        path.is_settled.set(true);
        shared.settle(cx, path);
        shared.resolve(cx, path);
        let largest = Shared::largest(cx, upper.receiver) as usize;
        if largest < path.limit.get() {
            return Ok(());
        }
        if path.is_cast() {
            // Some of them would go to all on the link, the others to nobody.
            return Err(OpenError::NotSupported);
        }
        match shared.open_net(cx, path) {
            Ok(_) => Ok(()),
            // Nothing but the link leads there; long messages find that out.
            Err(_) if path.limit.get() > 0 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The session that a message's peer has with the upper protocol of this object, made if there
    /// is none.
    fn session_for(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(SessionRef, Rc<Path>), Unwanted> {
        let shared = &self.shared;
        let stand_in = shared.uppers.get(self.place);
        let stand_in = stand_in.ok_or(&reason::NO_PROTOCOL)?;
        let local = local_host(&participants);
        let host = peer_host(cx, &shared.link, lower, participants)?;
        let sent_to = SpecificDestination { host: Ipv4::UNSPECIFIED, many: false };
        let sent_to = lower.ask(cx, sent_to).filter(|to| to.many);
        // What is sent to all is not for those who serve one at a time.
        let is_to_many = u32::from(sent_to.is_some()) * TO_MANY;
        let key = (host.to_bits(), self.place as u32 | is_to_many);
        if let Some(session) = shared.sessions.get(&key)
            && let Some(path) = path_of(cx, &session)
        {
            return Ok((session, path));
        }
        let upper = stand_in.receiver.clone();
        let made = shared.make(cx, this, stand_in, (key, local, true));
        let (session, path) = made.map_err(|_| &reason::TABLE_FULL)?;
        path.sent_to.set(sent_to.map(|to| to.host));
        let own = path.local_part();
        let both = Participants::pair(own, Part::Host(host));
        if let Err(unwanted) = upper.open_done(cx, &session, both) {
            session.abort(cx);
            return Err(unwanted);
        }
        Ok((session, path))
    }

    /// Leads a session below to the one above that it belongs to.
    fn adopt(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<SessionRef, Unwanted> {
        let opening = self.shared.marks.get(self.shared.opening.get());
        let (session, path) = match opening.and_then(|s| path_of(cx, &s).map(|path| (s, path))) {
            Some(found) => found,
            None => self.session_for(cx, this, lower, participants)?,
        };
        path.hear(lower);
        Ok(session)
    }

    /// A message through a session below that leads nowhere: its peer was forgotten, or has become
    /// another.
    #[cold]
    #[inline(never)]
    fn demux_lost(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let ether = lower.ask(cx, xk_kit::control::PeerEther::default());
        let host = lower.ask(cx, xk_kit::control::PeerHost { host: Ipv4::UNSPECIFIED });
        let peer = match (host, ether) {
            (Some(host), _) => Part::Host(host.host),
            (None, Some(ether)) => Part::Ether(ether.address),
            (None, None) => return Err(this.refuse(message, &reason::NO_PROTOCOL)),
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
            // The packet's beginning follows, and IP is told of the conflict too.
            None
        } else {
            return None;
        };
        let upper = session.and_then(|session| path_of(cx, &session));
        Some(upper.map_or(Answer::Unknown, |path| path.stand_in.receiver.control(cx, ask)))
    }
}

/// Beside a place: the session of a peer's messages to a broadcast or a group.
const TO_MANY: u32 = 1 << 31;

/// The host of ours that the participants of a passive open name; unspecified if that is none that
/// answers can come from.
fn local_host(participants: &Participants) -> Ipv4 {
    match participants.iter().next().and_then(|local| local.top()) {
        Some(Part::Host(host)) if !is_cast(*host) => *host,
        _ => Ipv4::UNSPECIFIED,
    }
}

impl Protocol for Vip {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.place == 0 {
            let watcher = this.clone();
            // One that does not tell knows of no changes.
            let _ = self.shared.link.ask(cx, WatchHosts { watcher });
        }
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        standins::admit(cx, &shared.net, upper)?;
        let host = participants.peer_mut()?.pop_host()?.definite()?;
        let local = participants.local_mut()?.pop_host()?;
        if host.is_unspecified() {
            return Err(OpenError::Address(AddressError::OutOfRange));
        }
        let place = self.place(cx, this, upper)?;
        let key = (host.to_bits(), place as u32);
        if let Some(session) = shared.sessions.get(&key) {
            session.hold();
            return Ok(session);
        }
        let stand_in = shared.uppers.get(place).ok_or(OpenError::Full)?;
        let local = match local {
            Wild::Any => Ipv4::UNSPECIFIED,
            Wild::Is(host) => host,
        };
        let (session, path) = shared.make(cx, this, stand_in, (key, local, false))?;
        match self.connect(cx, upper, &path) {
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
        standins::admit(cx, &shared.net, upper)?;
        let place = self.place(cx, this, upper)?;
        let stand_in = shared.uppers.get(place).ok_or(OpenError::Full)?;
        if shared.offers.borrow().len() >= OFFERS_MAX {
            return Err(OpenError::Full);
        }
        let net = shared.net.open_enable(cx, stand_in.upper(), participants)?;
        let any = Participants::local(Part::Any);
        let link = match shared.link.open_enable(cx, stand_in.upper(), any) {
            Ok(link) => link,
            Err(error) => {
                shared.net.open_disable(cx, net);
                return Err(error);
            }
        };
        let number = shared.offer_last.get() + 1;
        shared.offer_last.set(number);
        let offer = Offer { number, link, net };
        shared.offers.borrow_mut().push(offer);
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let mut offers = self.shared.offers.borrow_mut();
        let at = offers.iter().position(|offer| offer.number == enable.0);
        let offer = at.map(|at| offers.swap_remove(at));
        drop(offers);
        if let Some(offer) = offer {
            self.shared.link.open_disable(cx, offer.link);
            self.shared.net.open_disable(cx, offer.net);
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), Unwanted> {
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
        if let Some(question) = ask.get::<HostChanged>() {
            shared.changed(cx, question.host);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", shared.sessions.stats()));
            return Answer::Answered;
        }
        if standins::has_no_answer(ask) {
            return Answer::Unknown;
        }
        if let Some(answer) = self.ask_above(cx, ask) {
            return answer;
        }
        shared.net.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.net)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.shared.look(cx, this);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        if self.place == 0 {
            self.shared.stop(cx);
        }
    }
}
