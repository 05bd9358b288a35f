//! The protocol object: decides at open, and shows the upper protocols hosts where the link knows
//! stations.

use crate::shared::{Known, Shared};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{HostConflict, IsOutstanding, NetworkError, PeerEther, PeerHost, SendError};
use xk_kit::net::neighbour::{HostChanged, WatchHosts, WayChanged, peer_host};
use xk_kit::net::receivers::{self, UpperReceiver};

/// Longest time that `open` waits for a host's address unless the graph says otherwise.
pub(crate) const WAIT: Duration = Duration::from_secs(3);

/// One instance, or the object by which it receives for one of those above.
pub struct VipAddr {
    shared: Rc<Shared>,
    /// For whom of those above this object receives.
    place: usize,
    latest: Latest,
}

/// Sessions of the message before, since the next one most often comes through them too.
#[derive(Default)]
struct Latest {
    /// The link layer's session.
    lower: Cell<u64>,
    /// The count of changes then.
    checked: Cell<u64>,
    shown: SessionSlot,
    receiver: RefCell<Option<ProtocolRef>>,
}

impl Latest {
    /// The receiver of what comes through `lower`, and through which session it is shown, if
    /// nothing has changed since.
    #[inline]
    fn get(&self, lower: &SessionRef, changes: u64) -> Option<(ProtocolRef, SessionRef)> {
        if self.lower.get() != lower.id().0 || self.checked.get() != changes {
            return None;
        }
        let shown = self.shown.live()?;
        Some((self.receiver.borrow().clone()?, shown))
    }

    fn set(&self, lower: &SessionRef, changes: u64, receiver: &ProtocolRef, shown: &SessionRef) {
        self.lower.set(lower.id().0);
        self.checked.set(changes);
        let before = self.shown.replace(Some(shown.clone()));
        let other = self.receiver.replace(Some(receiver.clone()));
        drop((before, other));
    }

    fn clear(&self) {
        self.lower.set(0);
        drop((self.shown.take(), self.receiver.take()));
    }
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let wait = build.duration("wait")?;
    let lowers = (build.lower(0)?, build.lower(1)?);
    let shared = Shared::new(build.cx, lowers, wait);
    build.add(VipAddr::new(shared))
}

/// Adds one to a kernel, for programs that compose without a graph file: on `link`, which takes the
/// hosts of a link, and `net`, which takes all. Every protocol that has a number on IP by then, and
/// none on Ethernet, gets one there: that on IP more than `ether_base`, as the check of a graph
/// does for each that stands on it.
pub fn add(
    cx: &Kernel,
    name: &str,
    lowers: (ProtocolRef, ProtocolRef),
    ether_base: u32,
) -> ProtocolRef {
    receivers::LINK_OR_NET.derive(&mut cx.numbers_mut(), ether_base);
    let shared = Shared::new(cx, lowers, WAIT);
    cx.add_protocol(crate::ENTRY.kind, name, VipAddr::new(shared))
}

impl VipAddr {
    fn new(shared: Shared) -> Self {
        Self { shared: Rc::new(shared), place: 0, latest: Latest::default() }
    }

    fn place(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
    ) -> Result<(usize, UpperReceiver), OpenError> {
        let shared = &self.shared;
        receivers::admit(cx, &shared.net, upper)?;
        shared.uppers.place(cx, this, upper, |place| Self {
            shared: Rc::clone(shared),
            place,
            latest: Latest::default(),
        })
    }

    /// Shows what comes through a session of the link layer as coming from the host that the
    /// station is. Answers the host's session, and whether the upper protocol has been told of it
    /// just now.
    fn adopt(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let shared = &self.shared;
        let changes = shared.changes.get();
        let receiver = shared.uppers.get(self.place);
        let receiver = receiver.ok_or(&reason::NO_PROTOCOL)?;
        let host = peer_host(cx, &shared.link, lower, participants)?;
        let key = (host, self.place as u32);
        if let Some(session) = shared.known(key) {
            shared.show(cx, lower, &session, changes);
            return Ok(session);
        }
        let both = Participants::pair(Part::Any, Part::Host(host));
        let opened = shared.open_link(cx, &receiver, (host, both.clone()));
        let session = opened.map_err(|_| &reason::TABLE_FULL)?;
        let held = true;
        let known = Known { session: session.clone(), held };
        let told = shared.note(cx, key, known);
        let told = told.and_then(|()| receiver.upper.open_done(cx, &session, both));
        if let Err(unwanted) = told {
            shared.known.unbind(&key);
            session.close(cx);
            return Err(unwanted);
        }
        shared.show(cx, lower, &session, changes);
        Ok(session)
    }

    /// A message through another session than the one before.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(receiver) = self.shared.uppers.get(self.place) else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        let receiver = &receiver.upper;
        if lower.head().protocol() == self.shared.net.id() {
            return receiver.demux(cx, lower, message);
        }
        let changes = self.shared.changes.get();
        match self.shown(cx, lower) {
            Ok(shown) => {
                self.latest.set(lower, changes, receiver, &shown);
                receiver.demux(cx, &shown, message)
            }
            Err(why) => Err(this.refuse(message, why)),
        }
    }

    /// The session that what comes through `lower` is shown as coming through. Of several messages
    /// one finds that out, and the others wait for it, so that they keep their order.
    fn shown(&self, cx: &Kernel, lower: &SessionRef) -> Result<SessionRef, &'static Reason> {
        let (shared, id) = (&self.shared, lower.id().0);
        let mut turn = None;
        loop {
            let heard = shared.heard.get(&id).filter(|heard| !heard.shown.head().is_closed());
            if let Some(heard) = &heard
                && heard.checked == shared.changes.get()
            {
                return Ok(heard.shown.clone());
            }
            if turn.is_some() {
                return self.find_shown(cx, lower, heard.map(|heard| heard.shown));
            }
            turn = Some(shared.turns.take(cx, id));
        }
    }

    /// Finds out whether `lower` is still to be shown as before: its host may be another by now, or
    /// was forgotten, or it needs no showing.
    fn find_shown(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        before: Option<SessionRef>,
    ) -> Result<SessionRef, &'static Reason> {
        let changes = self.shared.changes.get();
        if let Some(shown) = before.filter(|shown| self.shared.is_still(cx, lower, shown)) {
            self.shared.show(cx, lower, &shown, changes);
            return Ok(shown);
        }
        let by_host = lower.ask(cx, PeerHost::default());
        match lower.ask(cx, PeerEther::default()).filter(|_| by_host.is_none()) {
            Some(ether) => {
                let both = Participants::pair(Part::Any, Part::Ether(ether.address));
                self.adopt(cx, lower, both)
            }
            None => Ok(lower.clone()),
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
        if !self.shared.uppers.may_ask_above(ask) {
            return Some(Answer::Unknown);
        }
        let upper = self.shared.uppers.get(self.place);
        Some(upper.map_or(Answer::Unknown, |known| known.upper.control(cx, ask)))
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
        let mut wanted = participants.clone();
        let host = wanted.peer_mut()?.pop_host()?.definite()?;
        let (place, receiver) = self.place(cx, this, upper)?;
        if shared.goes_by_link(cx, upper.receiver, host) {
            let session = shared.open_link(cx, &receiver, (host, participants))?;
            let key = (host, place as u32);
            let is_known = shared.known(key).is_some_and(|known| known == session);
            let known = Known { session: session.clone(), held: false };
            if !is_known && shared.note(cx, key, known).is_err() {
                session.close(cx);
                return Err(OpenError::Full);
            }
            return Ok(session);
        }
        shared.net.open(cx, receiver.upper(), participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let shared = &self.shared;
        let (_, receiver) = self.place(cx, this, upper)?;
        let any = Participants::local(Part::Any);
        let lowers = [shared.link.clone(), shared.net.clone()];
        shared.uppers.offer(cx, &receiver, &lowers, |at| match at {
            0 => any.clone(),
            _ => participants.clone(),
        })
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.uppers.withdraw(cx, enable);
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        if let Some(made) = self.shared.openings.of(cx, &self.shared.link, lower) {
            made.borrow_mut().push(lower.clone());
            return Ok(());
        }
        let peer = participants.iter().nth(1).and_then(|peer| peer.top());
        if matches!(peer, Some(Part::Ether(_))) {
            return self.adopt(cx, lower, participants).map(drop);
        }
        let receiver = self.shared.uppers.get(self.place);
        let receiver = receiver.ok_or(&reason::NO_PROTOCOL)?;
        receiver.upper.open_done(cx, lower, participants)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.latest.get(lower, self.shared.changes.get()) {
            Some((receiver, shown)) => receiver.demux(cx, &shown, message),
            None => self.demux_other(cx, this, lower, message),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(changed) = ask.get::<HostChanged>() {
            shared.changed(cx, changed.host);
        } else if ask.get::<WayChanged>().is_some() || receivers::has_no_answer(ask) {
            return Answer::Unknown;
        } else {
            return self.ask_above(cx, ask).unwrap_or_else(|| shared.net.control(cx, ask));
        }
        Answer::Answered
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.map("heard", self.shared.heard.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.net)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.latest.clear();
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
        drop(shared.waiters.take());
    }
}
