//! The protocol object: decides at open, and shows the upper protocols hosts where the link knows
//! stations.

use super::shared::Shared;
use crate::below;
use alloc::rc::Rc;
use core::cell::RefCell;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{PeerEther, PeerHost};
use xk_kit::net::neighbour::{HostChanged, WayChanged, peer_host};
use xk_kit::net::receivers::{self, UpperReceiver};

/// One instance, or the object by which it receives for one of those above.
pub(crate) struct VipAddr {
    shared: Rc<Shared>,
    /// Place of the upper protocol for which this object receives.
    place: usize,
    /// The way of the message before, which the next one most often comes too.
    latest: RefCell<Option<Latest>>,
}

struct Latest {
    /// The id of the link layer's session.
    lower: u64,
    /// The count of changes then.
    checked: u64,
    shown: SessionRef,
    receiver: ProtocolRef,
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(VipAddr::new(Rc::new(Shared::new(build)?), 0))
}

impl VipAddr {
    fn new(shared: Rc<Shared>, place: usize) -> Self {
        Self { shared, place, latest: RefCell::default() }
    }

    fn place(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
    ) -> Result<(usize, UpperReceiver), OpenError> {
        let shared = &self.shared;
        receivers::admit(cx, &shared.below.net, upper)?;
        shared.uppers.place(cx, this, upper, |place| Self::new(Rc::clone(shared), place))
    }

    fn receiver(&self) -> Result<UpperReceiver, &'static Reason> {
        self.shared.uppers.get(self.place).ok_or(&reason::NO_PROTOCOL)
    }

    /// The receiver of what comes through `lower`, and through which session it is shown, if
    /// nothing has changed since the message before.
    #[inline]
    fn latest(&self, lower: &SessionRef) -> Option<(ProtocolRef, SessionRef)> {
        let latest = self.latest.borrow();
        let latest = latest.as_ref()?;
        let is_it = latest.lower == lower.id().0
            && latest.checked == self.shared.changes.get()
            && !latest.shown.head().is_closed();
        is_it.then(|| (latest.receiver.clone(), latest.shown.clone()))
    }

    /// Shows what comes through a session of the link layer as coming from the host that the
    /// station is. Answers the host's session.
    fn adopt(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let shared = &self.shared;
        let changes = shared.changes.get();
        let receiver = self.receiver()?;
        let host = peer_host(cx, &shared.below.link, lower, participants)?;
        let key = (host, self.place as u32);
        if let Some(session) = shared.known(key) {
            shared.show(cx, lower, &session, changes);
            return Ok(session);
        }
        let both = Participants::pair(Part::Any, Part::Host(host));
        let opened = shared.open_link(cx, &receiver, host, both.clone());
        let noted = opened.and_then(|new| shared.note(cx, key, &new, true).map(|()| new));
        let session = noted.map_err(|_| &reason::TABLE_FULL)?;
        receiver.upper.open_done(cx, &session, both).inspect_err(|_| {
            shared.known.unbind(&key);
            session.close(cx);
        })?;
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
        let Ok(UpperReceiver { upper: receiver, .. }) = self.receiver() else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        if lower.head().protocol() == self.shared.below.net.id() {
            return receiver.demux(cx, lower, message);
        }
        let checked = self.shared.changes.get();
        match self.shown(cx, lower) {
            Ok(shown) => {
                let (lower, to) = (lower.id().0, receiver.clone());
                let latest = Latest { lower, checked, shown: shown.clone(), receiver: to };
                drop(self.latest.replace(Some(latest)));
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
        let host = |session: &SessionRef| session.ask(cx, PeerHost::default()).map(|q| q.host);
        if let Some(shown) = before
            && self.shared.below.is_still(cx, lower, host(&shown), Some(&shown))
        {
            self.shared.show(cx, lower, &shown, changes);
            return Ok(shown);
        }
        let by_host = host(lower);
        match lower.ask(cx, PeerEther::default()).filter(|_| by_host.is_none()) {
            Some(ether) => {
                let both = Participants::pair(Part::Any, Part::Ether(ether.address));
                self.adopt(cx, lower, both)
            }
            None => Ok(lower.clone()),
        }
    }
}

impl Protocol for VipAddr {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.place == 0 {
            self.shared.below.watch(cx, this);
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
        if !shared.goes_by_link(cx, upper.receiver, host) {
            return shared.below.net.open(cx, receiver.upper(), participants);
        }
        let session = shared.open_link(cx, &receiver, host, participants)?;
        let key = (host, place as u32);
        if shared.known(key).as_ref() != Some(&session) {
            shared.note(cx, key, &session, false)?;
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
        let (_, receiver) = self.place(cx, this, upper)?;
        let lowers = [self.shared.below.link.clone(), self.shared.below.net.clone()];
        let offered = |at| below::offered(at, &participants);
        self.shared.uppers.offer(cx, &receiver, &lowers, offered)
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
        let below = &self.shared.below;
        if let Some(made) = below.openings.of(cx, &below.link, lower) {
            made.borrow_mut().push(lower.clone());
            return Ok(());
        }
        let peer = participants.iter().nth(1).and_then(|peer| peer.top());
        if matches!(peer, Some(Part::Ether(_))) {
            return self.adopt(cx, lower, participants).map(drop);
        }
        self.receiver()?.upper.open_done(cx, lower, participants)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.latest(lower) {
            Some((receiver, shown)) => receiver.demux(cx, &shown, message),
            None => self.demux_other(cx, this, lower, message),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(changed) = ask.get::<HostChanged>() {
            shared.changed(cx, changed.host);
            return Answer::Answered;
        }
        if ask.get::<WayChanged>().is_some() || receivers::has_no_answer(ask) {
            return Answer::Unknown;
        }
        let upper = |_: &mut Ask<'_>| self.receiver().ok().map(|receiver| receiver.upper);
        let above = shared.uppers.ask_above(cx, ask, upper);
        above.unwrap_or_else(|| shared.below.net.control(cx, ask))
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.map("heard", self.shared.heard.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.below.net)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        drop(self.latest.take());
        if self.place == 0 {
            self.shared.stop(cx);
        }
    }
}
