//! A session: one upper protocol's end of the traffic with one host, over the link, by IP, or
//! either.

use crate::shared::{ItsPath, Key, Shared, is_cast};
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::control::Describe;
use xk_core::object::{Burst, Closing, Outgoing, PushError, Refused, SessionSlot, WeakSession};
use xk_core::{Answer, Ask, Kernel, Message, Part, Session, SessionRef, reason};
use xk_kit::control::{
    MaxPacket, MinPacket, MyHost, OptPacket, PeerHost, PseudoHeader, SpecificDestination,
    max_packet, opt_packet,
};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::PeerOnLink;
use xk_kit::net::standins::{self, StandIn};

/// How many stations' sessions lead to one session: as many as a host has addresses at a time, and
/// a few.
const HEARD_MAX: usize = 8;

/// What a session shares with the protocol.
pub(crate) struct Path {
    pub(crate) key: Key,
    /// One more than the octets of the largest message that goes over the link; 0 if none does.
    pub(crate) limit: Cell<usize>,
    /// The way over the link, while the host is there.
    pub(crate) link: SessionSlot,
    /// The way by IP, once it was needed.
    pub(crate) net: SessionSlot,
    /// The host of ours at this end; unspecified if left open.
    local: Cell<Ipv4>,
    /// The broadcast or group that its messages are sent to, if it is for those.
    pub(crate) sent_to: Cell<Option<Ipv4>>,
    /// Who receives for the upper protocol.
    pub(crate) stand_in: StandIn,
    /// By which lower sessions lead here.
    pub(crate) mark: Cell<u32>,
    /// Whether the ways have been looked for.
    pub(crate) is_settled: Cell<bool>,
    pub(crate) is_closed: Cell<bool>,
    /// Sessions of the link layer that bear the mark.
    heard: RefCell<Vec<WeakSession>>,
}

impl Path {
    pub(crate) fn new(key: Key, local: Ipv4, stand_in: StandIn) -> Self {
        Self {
            key,
            limit: Cell::new(0),
            link: SessionSlot::default(),
            net: SessionSlot::default(),
            local: Cell::new(local),
            sent_to: Cell::new(None),
            stand_in,
            mark: Cell::new(0),
            is_settled: Cell::new(false),
            is_closed: Cell::new(false),
            heard: RefCell::default(),
        }
    }

    pub(crate) fn host(&self) -> Ipv4 {
        Ipv4::from_bits(self.key.0)
    }

    pub(crate) fn is_cast(&self) -> bool {
        is_cast(self.host())
    }

    pub(crate) fn local_part(&self) -> Part {
        match self.local.get() {
            host if host.is_unspecified() => Part::Any,
            host => Part::Host(host),
        }
    }

    /// Lets a session of the link layer lead here.
    pub(crate) fn hear(&self, lower: &SessionRef) {
        lower.head().set_tag(self.mark.get());
        let mut heard = self.heard.borrow_mut();
        heard.retain(|weak| {
            let known = weak.upgrade().filter(|s| !s.head().is_closed());
            known.is_some_and(|known| known != *lower)
        });
        if heard.len() >= HEARD_MAX {
            let oldest = heard.remove(0);
            if let Some(oldest) = oldest.upgrade() {
                oldest.head().set_tag(0);
            }
        }
        heard.push(lower.downgrade());
    }

    /// Whether messages of the peer have come.
    pub(crate) fn has_heard(&self) -> bool {
        !self.heard.borrow().is_empty()
    }

    /// Lets go of stations that are another host by now: the next message through one finds out
    /// anew whose it is.
    pub(crate) fn unhear(&self, is_other: impl Fn(&SessionRef) -> bool) {
        let heard = self.heard.take();
        let (gone, kept): (Vec<_>, Vec<_>) =
            heard.into_iter().partition(|weak| weak.upgrade().is_none_or(|lower| is_other(&lower)));
        self.heard.borrow_mut().extend(kept);
        self.unmark(&gone);
    }

    /// Sessions of the link layer lead nowhere now: the next message through one finds out anew
    /// whose it is.
    pub(crate) fn forget_heard(&self) {
        self.unmark(&self.heard.take());
    }

    fn unmark(&self, sessions: &[WeakSession]) {
        for session in sessions.iter().filter_map(WeakSession::upgrade) {
            if session.head().tag() == self.mark.get() {
                session.head().set_tag(0);
            }
        }
    }
}

pub(crate) struct VipSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) path: Rc<Path>,
}

impl VipSession {
    /// Whatever does not go over the link, or not as it did.
    #[inline(never)]
    fn push_net(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let path = &*self.path;
        if let Some(net) = path.net.get() {
            let result = net.push(cx, message);
            if result == Err(PushError::Closed) {
                self.drop_net(cx);
            }
            return result;
        }
        self.push_first(cx, this, message)
    }

    /// The first message, and the first that needs the other way.
    #[cold]
    #[inline(never)]
    fn push_first(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let (shared, path) = (&self.shared, &*self.path);
        if !path.is_settled.replace(true) {
            shared.settle(cx, path);
            if message.len() < path.limit.get()
                && let Some(link) = path.link.get()
            {
                return link.push(cx, message);
            }
        }
        if path.is_cast() {
            let max = (path.limit.get() as u32).saturating_sub(1);
            this.discard(cx, message, &reason::TOO_BIG);
            return Err(PushError::TooBig { max });
        }
        match shared.open_net(cx, path) {
            Ok(net) => net.push(cx, message),
            Err(_) => {
                this.discard(cx, message, &crate::NO_WAY);
                Err(PushError::NoRoute)
            }
        }
    }

    /// The session below was closed by others: another is opened for the next message.
    #[cold]
    fn drop_net(&self, cx: &Kernel) {
        if let Some(net) = self.path.net.take() {
            net.close(cx);
        }
    }

    #[cold]
    fn lose_link(&self, cx: &Kernel) {
        self.path.limit.set(0);
        self.shared.settle(cx, &self.path);
    }

    /// The session that messages go by now, if there is one.
    fn current(&self) -> Option<SessionRef> {
        let path = &*self.path;
        let link = path.link.get();
        link.filter(|_| path.limit.get() > 0).or_else(|| path.net.get()).or_else(|| path.link.get())
    }

    /// The host of ours that the peer knows by the way that is used now, if that has one.
    fn own_host(&self, cx: &Kernel) -> Option<Ipv4> {
        let path = &*self.path;
        let host = Ipv4::UNSPECIFIED;
        if let Part::Host(host) = path.local_part() {
            return Some(host);
        }
        // On several links we are several hosts, and to a peer on this one that of its own.
        let asked = match self.current() {
            Some(lower) => lower.ask(cx, MyHost { host }),
            None if path.has_heard() => self.shared.link.ask(cx, MyHost { host }),
            None => self.shared.net.ask(cx, MyHost { host }),
        };
        asked.map(|asked| asked.host)
    }

    /// What a checksum that covers both hosts begins with. From now on this end is one host of
    /// ours, by whichever way: frames do not say which, and the peer sums up what it takes us for.
    fn pseudo_sum(&self, cx: &Kernel) -> Option<u32> {
        let (shared, path) = (&self.shared, &*self.path);
        let number = cx.type_number(path.stand_in.selector, shared.net.id())?;
        let link = path.link.get();
        let host = Ipv4::UNSPECIFIED;
        let on_link = link.and_then(|link| link.ask(cx, MyHost { host }));
        let own = match (path.local_part(), on_link) {
            (Part::Any, Some(on_link)) => Some(on_link.host),
            _ => self.own_host(cx),
        };
        let own = own.filter(|own| !own.is_unspecified())?;
        path.local.set(own);
        if let Some(net) = path.net.get()
            && net.ask(cx, MyHost { host }).is_some_and(|net| net.host != own)
        {
            self.drop_net(cx);
        }
        let words = |host: Ipv4| (host.to_bits() >> 16) + (host.to_bits() & 0xffff);
        Some(words(own) + words(path.host()) + number)
    }

    fn answer_size(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let (shared, path) = (&self.shared, &*self.path);
        if let Some(question) = ask.get::<MaxPacket>() {
            let link_max = (path.limit.get() as u32).saturating_sub(1);
            question.octets = match path.net.get() {
                _ if path.is_cast() => link_max,
                Some(net) => max_packet(cx, &net, link_max),
                None => {
                    let net = shared.net.ask(cx, MaxPacket::default());
                    net.map_or(link_max, |net| net.octets.max(link_max))
                }
            };
            return Some(Answer::Answered);
        }
        let question = ask.get::<OptPacket>()?;
        if path.limit.get() > 0 {
            question.octets = path.limit.get() as u32 - 1;
            return Some(Answer::Answered);
        }
        let net = path.net.get();
        let known = match net {
            Some(net) => Some(opt_packet(cx, &net, 0)).filter(|octets| *octets > 0),
            None => shared.net.ask(cx, OptPacket::default()).map(|q| q.octets),
        };
        question.octets = known?;
        Some(Answer::Answered)
    }
}

impl Session for VipSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let path = &*self.path;
        if message.len() < path.limit.get()
            && let Some(link) = path.link.get()
        {
            let result = link.push(cx, message);
            if result == Err(PushError::Closed) {
                self.lose_link(cx);
            }
            return result;
        }
        self.push_net(cx, this, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let limit = self.path.limit.get();
        let link = self.path.link.get();
        let link = link.filter(|link| !link.head().is_closed());
        if let Some(link) = link
            && burst.iter().all(|message| message.len() < limit)
        {
            return link.push_burst(cx, burst);
        }
        let mut result = Ok(());
        for message in burst.drain(..) {
            result = result.and(self.push(cx, this, message));
        }
        result
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.path.stand_in.receiver.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.path.stand_in.receiver.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let path = &*self.path;
        if let Some(question) = ask.get::<ItsPath>() {
            question.0 = Some(Rc::clone(&self.path));
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<PeerHost>() {
            question.host = path.host();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<MyHost>() {
            let Some(host) = self.own_host(cx) else {
                return Answer::Unknown;
            };
            question.host = host;
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<PseudoHeader>() {
            let Some(sum) = self.pseudo_sum(cx) else {
                return Answer::Unknown;
            };
            (question.sum, question.sum_sent) = (sum, sum);
            return Answer::Answered;
        }
        if let Some(host) = path.sent_to.get()
            && let Some(question) = ask.get::<SpecificDestination>()
        {
            (question.host, question.many) = (host, true);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<PeerOnLink>() {
            question.on_link = self.shared.is_on_link(cx, path);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<MinPacket>() {
            question.octets = standins::LINK_MIN;
            return Answer::Answered;
        }
        if standins::has_no_answer(ask) {
            return Answer::Unknown;
        }
        if let Some(question) = ask.get::<Describe>() {
            let way = match (path.limit.get(), path.net.is_some()) {
                (0, _) => "by IP",
                (_, false) => "over the link",
                (_, true) => "over the link, long messages by IP",
            };
            question.text = format!("{}, {way}", path.host());
            return Answer::Answered;
        }
        if let Some(answer) = self.answer_size(cx, ask) {
            return answer;
        }
        match self.current() {
            Some(lower) => lower.control(cx, ask),
            None => self.shared.net.control(cx, ask),
        }
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let (shared, path) = (&self.shared, &*self.path);
        path.is_closed.set(true);
        path.limit.set(0);
        shared.sessions.release(&path.key, this);
        path.forget_heard();
        shared.close_link(cx, path);
        self.drop_net(cx);
        shared.marks.leave(path.mark.get());
        Closing::Done
    }
}
