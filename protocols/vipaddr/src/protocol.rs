//! The protocol object: decides at open, and shows the upper protocols hosts where the link knows stations.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::ListMaps;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, Refused, WeakSession};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Time, Upper, reason,
};
use xk_kit::addr::Ipv4;
use xk_kit::call::{LargestPush, NeedsPseudoHeader};
use xk_kit::control::{
    HostConflict, IsOutstanding, MaxPacket, MinPacket, NetworkError, PeerEther, PseudoHeader,
    Resolve, SendError,
};
use xk_kit::neighbour::{HostChanged, RunsVirtual, WatchHosts, is_on_link, peer_host};
use xk_kit::offload::Offloads;
use xk_kit::standins::{StandIn, StandIns, UPPERS_MAX};

/// How long nobody waits for a host that was not there.
const NEGATIVE: Duration = Duration::from_secs(20);
/// How long a host whose address is known is waited for to say that it runs virtual protocols.
const GRACE: Duration = Duration::from_millis(100);
/// How many hosts are remembered as not there.
const ABSENT_MAX: usize = 1024;
/// How many may wait at a time.
const WAITERS_MAX: usize = 256;
/// How many sessions of the link layer lead to hosts' sessions: more than the link layer has by itself.
const HEARD_MAX: usize = 16_384;
/// How many offers it takes at a time.
const OFFERS_MAX: usize = 4 * UPPERS_MAX;

/// A session of the link layer, and that of the layer above it which it is shown as.
#[derive(Clone)]
struct Heard {
    lower: WeakSession,
    shown: SessionRef,
}

/// The session to a host over the link.
#[derive(Clone)]
struct Known {
    session: SessionRef,
    /// True if a message made it, so that nobody above may hold it.
    held: bool,
}

struct Shared {
    link: ProtocolRef,
    net: ProtocolRef,
    wait: Duration,
    uppers: StandIns,
    /// By the id of the link layer's session.
    heard: Map<u64, Heard>,
    /// By host and place of the upper protocol.
    known: Map<(u32, u32), Known>,
    /// While a session over the link is being opened: those of the link layer that were made for it.
    opening: RefCell<Option<Vec<SessionRef>>>,
    waiters: RefCell<Vec<(Ipv4, Rc<Semaphore>)>>,
    absent: Map<u32, Time>,
    offers: RefCell<Vec<(u64, Enable, Enable)>>,
    offer_last: Cell<u64>,
}

/// One instance, or the object by which it receives for one of those above.
pub struct VipAddr {
    shared: Rc<Shared>,
    /// For whom of those above this object receives.
    place: usize,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it too little to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let key = build.cx.boot_key();
    let shared = Shared {
        link: build.lower(0)?,
        net: build.lower(1)?,
        wait: build.params.duration("wait", Duration::from_secs(3)),
        uppers: StandIns::default(),
        heard: Map::new(key, HEARD_MAX),
        known: Map::new(key, HEARD_MAX),
        opening: RefCell::default(),
        waiters: RefCell::default(),
        absent: Map::new(key, ABSENT_MAX),
        offers: RefCell::default(),
        offer_last: Cell::new(0),
    };
    build.add(VipAddr {
        shared: Rc::new(shared),
        place: 0,
    })
}

/// How a host on the link is known now.
enum Presence {
    /// Messages can go over the link.
    Runs,
    /// Its address is known, but not that it runs virtual protocols.
    Answers,
    /// Not even its address is known.
    Silent,
}

impl Shared {
    /// Refuses who depends on IP itself (paper 001, section 5).
    fn admit(&self, cx: &Kernel, upper: Upper<'_>) -> Result<(), OpenError> {
        let number = cx.type_number(upper.selector, self.net.id());
        let net = self.net.head().kind();
        let by_number = cx.numbers_mut().kinds().iter().any(|n| n.lower == net);
        if by_number && number.is_none() {
            // Told now, and not when one of the ways is needed.
            return Err(OpenError::NoTypeNumber);
        }
        let is_ip_only = matches!(number, Some(1 | 6 | 17));
        if is_ip_only || upper.receiver.ask(cx, NeedsPseudoHeader).is_some() {
            return Err(OpenError::NotSupported);
        }
        Ok(())
    }

    fn look(&self, cx: &Kernel, host: Ipv4) -> Presence {
        let asked = Resolve {
            host,
            address: None,
        };
        let Some(address) = self.link.ask(cx, asked).and_then(|known| known.address) else {
            return Presence::Silent;
        };
        let asked = RunsVirtual {
            host,
            address,
            runs: false,
        };
        // Where nobody keeps a table all hosts are taken to run it (paper 001, section 3.1).
        match self.link.ask(cx, asked) {
            Some(answer) if !answer.runs => Presence::Answers,
            _ => Presence::Runs,
        }
    }

    /// Whether a session to this host goes over the link; waits for its address.
    fn goes_by_link(&self, cx: &Kernel, upper: &ProtocolRef, host: Ipv4) -> bool {
        let link_max = self.link.ask(cx, MaxPacket::default()).map(|q| q.octets);
        let largest = upper.ask(cx, LargestPush::default()).map(|q| q.octets);
        if let (Some(max), Some(largest)) = (link_max, largest)
            && largest > max
        {
            return false;
        }
        if host == Ipv4::BROADCAST || host.is_multicast() {
            return true;
        }
        if !is_on_link(cx, &self.net, &self.link, host) {
            return false;
        }
        let key = host.to_bits();
        let now = cx.now();
        let is_absent = self.absent.get(&key).is_some_and(|until| now < until);
        let mut end = if is_absent { now } else { now.after(self.wait) };
        let mut answers = false;
        loop {
            match self.look(cx, host) {
                Presence::Runs => {
                    self.absent.unbind(&key);
                    return true;
                }
                Presence::Answers if !answers => {
                    answers = true;
                    end = end.min(cx.now().after(GRACE));
                }
                Presence::Answers | Presence::Silent => {}
            }
            let left = end.since(cx.now());
            if left.is_zero() || !self.wait_for(cx, host, left) {
                break;
            }
        }
        if self.absent.len() >= ABSENT_MAX {
            let now = cx.now();
            self.absent.retain(|_, until| now < *until);
        }
        // In a full map of absent hosts this one is waited for again.
        let _ = self.absent.replace(key, cx.now().after(NEGATIVE));
        false
    }

    /// Waits until more is known of a host; false if waiting is over, or not possible.
    fn wait_for(&self, cx: &Kernel, host: Ipv4, left: Duration) -> bool {
        if self.waiters.borrow().len() >= WAITERS_MAX {
            return false;
        }
        let semaphore = Rc::new(Semaphore::new(0));
        let entry = (host, Rc::clone(&semaphore));
        self.waiters.borrow_mut().push(entry);
        let result = cx.wait(&semaphore, Some(left));
        let mut waiters = self.waiters.borrow_mut();
        waiters.retain(|(_, other)| !Rc::ptr_eq(other, &semaphore));
        drop(waiters);
        // What is known when the time is over is looked at once more.
        matches!(result, Ok(()) | Err(WaitError::TimedOut))
    }

    /// More or less is known of a host: whoever waits for it looks again.
    fn wake(&self, cx: &Kernel, host: Ipv4) {
        let waiters = self.waiters.borrow();
        let of_host = waiters.iter().filter(|(other, _)| *other == host);
        let of_host: Vec<_> = of_host.map(|(_, s)| Rc::clone(s)).collect();
        drop(waiters);
        for semaphore in of_host {
            cx.signal(&semaphore);
        }
    }

    /// Opens the session to a host over the link.
    fn open_link(
        &self,
        cx: &Kernel,
        stand_in: &StandIn,
        both: Participants,
    ) -> Result<SessionRef, OpenError> {
        let before = self.opening.replace(Some(Vec::new()));
        let opened = self.link.open(cx, stand_in.upper(), both);
        let made = self.opening.replace(before);
        let session = opened?;
        for lower in made.unwrap_or_default() {
            self.show(cx, &lower, &session);
        }
        Ok(session)
    }

    /// From now on what comes through `lower` is shown as coming through `session`.
    fn show(&self, cx: &Kernel, lower: &SessionRef, session: &SessionRef) {
        if self.heard.len() >= HEARD_MAX {
            self.sweep(cx);
        }
        let heard = Heard {
            lower: lower.downgrade(),
            shown: session.clone(),
        };
        // In a full map the next message through it finds out anew, and is refused.
        let _ = self.heard.replace(lower.id().0, heard);
    }

    /// Forgets what leads nowhere any more.
    fn sweep(&self, cx: &Kernel) {
        let is_open = |s: &SessionRef| !s.head().is_closed();
        let lives = |heard: &Heard| {
            let lower = heard.lower.upgrade();
            is_open(&heard.shown) && lower.is_some_and(|lower| is_open(&lower))
        };
        let mut used = Vec::new();
        self.heard.retain(|_, heard| lives(heard));
        self.heard.for_each(|_, heard| used.push(heard.shown.id()));
        used.sort_unstable();
        let idle = |known: &Known| used.binary_search(&known.session.id()).is_err();
        let mut gone = Vec::new();
        self.known.for_each(|key, known| {
            if known.session.head().is_closed() || known.held && idle(known) {
                gone.push(*key);
            }
        });
        for key in gone {
            if let Some(known) = self.known.unbind(&key).filter(|known| known.held) {
                known.session.close(cx);
            }
        }
    }

    /// The session to a host over the link that is in use, if there is one.
    fn known(&self, key: (u32, u32)) -> Option<SessionRef> {
        let known = self.known.get(&key)?;
        (!known.session.head().is_closed()).then_some(known.session)
    }

    fn note(&self, cx: &Kernel, key: (u32, u32), known: Known) -> Result<(), &'static Reason> {
        if self.known.len() >= HEARD_MAX {
            self.sweep(cx);
        }
        self.known.unbind(&key);
        self.known.bind(key, known).map_err(|_| &reason::TABLE_FULL)
    }
}

impl VipAddr {
    fn place(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
    ) -> Result<(u32, StandIn), OpenError> {
        let shared = &self.shared;
        let place = shared.uppers.place(cx, this, upper, |place| Self {
            shared: Rc::clone(shared),
            place,
        })?;
        let stand_in = shared.uppers.get(place).ok_or(OpenError::Full)?;
        Ok((place as u32, stand_in))
    }

    /// Shows what comes through a session of the link layer as coming from the host that the station is. Answers the host's
    /// session, and whether the upper protocol has been told of it just now.
    fn adopt(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let shared = &self.shared;
        let stand_in = shared.uppers.get(self.place);
        let stand_in = stand_in.ok_or(&reason::NO_PROTOCOL)?;
        let host = peer_host(cx, &shared.link, lower, participants)?;
        let key = (host.to_bits(), self.place as u32);
        if let Some(session) = shared.known(key) {
            shared.show(cx, lower, &session);
            return Ok(session);
        }
        let both = Participants::pair(Part::Any, Part::Host(host));
        let opened = shared.open_link(cx, &stand_in, both.clone());
        let session = opened.map_err(|_| &reason::TABLE_FULL)?;
        let held = true;
        let known = Known {
            session: session.clone(),
            held,
        };
        let told = shared.note(cx, key, known);
        let told = told.and_then(|()| stand_in.receiver.open_done(cx, &session, both));
        if let Err(unwanted) = told {
            shared.known.unbind(&key);
            session.close(cx);
            return Err(unwanted);
        }
        shared.show(cx, lower, &session);
        Ok(session)
    }

    /// A message through a session of the link layer whose host was forgotten, or through one that needs no showing.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(stand_in) = self.shared.uppers.get(self.place) else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        let host = Ipv4::UNSPECIFIED;
        let by_host = lower.ask(cx, xk_kit::control::PeerHost { host });
        let Some(ether) = lower
            .ask(cx, PeerEther::default())
            .filter(|_| by_host.is_none())
        else {
            return stand_in.receiver.demux(cx, lower, message);
        };
        let both = Participants::pair(Part::Any, Part::Ether(ether.address));
        match self.adopt(cx, lower, both) {
            Ok(shown) => stand_in.receiver.demux(cx, &shown, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }

    /// Passes a question from below about a session on to the protocol above.
    fn ask_above(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        if ask.get::<SendError>().is_some() || ask.get::<HostConflict>().is_some() {
            // The packet's beginning follows, and IP is told of the conflict too.
            return Some(Answer::Unknown);
        }
        if ask.get::<NetworkError>().is_none() && ask.get::<IsOutstanding>().is_none() {
            return None;
        }
        let upper = self.shared.uppers.get(self.place);
        Some(upper.map_or(Answer::Unknown, |upper| upper.receiver.control(cx, ask)))
    }
}

impl Protocol for VipAddr {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.place == 0 {
            let watcher = this.clone();
            // One that does not tell is looked at when the time is over.
            let _ = self.shared.link.ask(cx, WatchHosts { watcher });
        }
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        shared.admit(cx, upper)?;
        let mut wanted = participants.clone();
        let host = wanted.peer_mut()?.pop_host()?.definite()?;
        let (place, stand_in) = self.place(cx, this, upper)?;
        if shared.goes_by_link(cx, upper.receiver, host) {
            let session = shared.open_link(cx, &stand_in, participants)?;
            let key = (host.to_bits(), place);
            let is_known = shared.known(key).is_some_and(|known| known == session);
            let known = Known {
                session: session.clone(),
                held: false,
            };
            if !is_known && shared.note(cx, key, known).is_err() {
                session.close(cx);
                return Err(OpenError::Full);
            }
            return Ok(session);
        }
        shared.net.open(cx, stand_in.upper(), participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let shared = &self.shared;
        shared.admit(cx, upper)?;
        let (_, stand_in) = self.place(cx, this, upper)?;
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
        shared.offers.borrow_mut().push((number, link, net));
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let mut offers = self.shared.offers.borrow_mut();
        let at = offers.iter().position(|(number, ..)| *number == enable.0);
        let offer = at.map(|at| offers.swap_remove(at));
        drop(offers);
        if let Some((_, link, net)) = offer {
            self.shared.link.open_disable(cx, link);
            self.shared.net.open_disable(cx, net);
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        if let Some(made) = &mut *self.shared.opening.borrow_mut() {
            made.push(lower.clone());
            return Ok(());
        }
        let peer = participants.iter().nth(1).and_then(|peer| peer.top());
        if matches!(peer, Some(Part::Ether(_))) {
            return self.adopt(cx, lower, participants).map(drop);
        }
        let stand_in = self.shared.uppers.get(self.place);
        let stand_in = stand_in.ok_or(&reason::NO_PROTOCOL)?;
        stand_in.receiver.open_done(cx, lower, participants)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(heard) = self.shared.heard.get(&lower.id().0)
            && !heard.shown.head().is_closed()
            && let Some(stand_in) = self.shared.uppers.get(self.place)
        {
            return stand_in.receiver.demux(cx, &heard.shown, message);
        }
        self.demux_other(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(changed) = ask.get::<HostChanged>() {
            shared.wake(cx, changed.host);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("heard", shared.heard.stats()));
            return Answer::Answered;
        }
        // A question for those above that nobody there has understood comes back: it ends here.
        // Short messages may go over a link that adds octets, whatever other ways do.
        let is_upward = ask.get::<LargestPush>().is_some() || ask.get::<MinPacket>().is_some();
        let is_ips =
            ask.get::<NeedsPseudoHeader>().is_some() || ask.get::<PseudoHeader>().is_some();
        if is_upward || is_ips || ask.get::<Offloads>().is_some() {
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

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        if self.place != 0 {
            return;
        }
        let shared = &self.shared;
        shared.heard.clear();
        for (_, known) in shared.known.snapshot() {
            if known.held {
                known.session.close(cx);
            }
        }
        shared.known.clear();
        shared.uppers.clear();
        shared.absent.clear();
        let (offers, waiters) = (shared.offers.take(), shared.waiters.take());
        drop((offers, waiters));
    }
}
