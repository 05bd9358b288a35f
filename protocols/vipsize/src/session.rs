//! A session: one upper protocol's end of the traffic with one host, by several ways.

use crate::protocol::{Key, Shared};
use alloc::format;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_core::control::Describe;
use xk_core::object::{Burst, Closing, OpenError, PushError, Refused, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Question, Session, SessionRef,
};
use xk_kit::control::{MaxPacket, MinPacket, OptPacket, PeerHost, opt_packet};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::{PeerOnLink, is_far};
use xk_kit::net::standins::{self, StandIn};
use xk_kit::rpc::kept::{AskKept, FreeKept, KeptState, LastKept};

/// How many lower protocols there are at most.
pub(crate) const LOWERS_MAX: usize = 8;

/// What a session shares with the protocol.
pub(crate) struct Path {
    pub(crate) key: Key,
    pub(crate) stand_in: StandIn,
    /// Both participants, as the lower protocols are opened with.
    both: RefCell<Participants>,
    /// By which lower sessions lead here.
    pub(crate) mark: Cell<u32>,
    /// The ways, from that of small messages on; none before they are needed.
    lowers: [SessionSlot; LOWERS_MAX],
    /// Octets of the largest message of each way but the last.
    cutoffs: [Cell<usize>; LOWERS_MAX],
    /// How many ways are open.
    count: Cell<usize>,
    /// By which the last message went.
    last_used: Cell<usize>,
    is_closed: Cell<bool>,
}

impl Path {
    pub(crate) fn new(key: Key, stand_in: StandIn, both: Participants) -> Self {
        Self {
            key,
            stand_in,
            both: RefCell::new(both),
            mark: Cell::new(0),
            lowers: Default::default(),
            cutoffs: Default::default(),
            count: Cell::new(0),
            last_used: Cell::new(0),
            is_closed: Cell::new(false),
        }
    }

    fn host(&self) -> Ipv4 {
        Ipv4::from_bits(self.key.0)
    }

    fn last(&self) -> Option<SessionRef> {
        let last = self.count.get().checked_sub(1)?;
        self.lowers.get(last)?.get()
    }

    /// The ways that are open.
    fn ways(&self) -> impl Iterator<Item = SessionRef> {
        let ways = self.lowers.iter().take(self.count.get());
        ways.filter_map(SessionSlot::get)
    }

    /// Opens all ways.
    pub(crate) fn connect(&self, cx: &Kernel, shared: &Shared) -> Result<(), OpenError> {
        let count = shared.lowers.len();
        for (at, lower) in shared.lowers.iter().enumerate() {
            let both = self.both.borrow().clone();
            let opened = lower.open(cx, self.stand_in.upper(), both);
            let session = match opened {
                Ok(session) => session,
                Err(error) => {
                    self.let_go(cx);
                    return Err(error);
                }
            };
            session.head().set_tag(self.mark.get());
            if let (Some(slot), Some(cutoff)) = (self.lowers.get(at), self.cutoffs.get(at)) {
                let known = shared.cutoffs.get(at).copied();
                let otherwise = || opt_packet(cx, &session, u32::MAX) as usize;
                cutoff.set(known.unwrap_or_else(otherwise));
                if let Some(old) = slot.replace(Some(session)) {
                    old.close(cx);
                }
            }
        }
        // To the last one goes whatever is left.
        if let Some(cutoff) = self.cutoffs.get(count.wrapping_sub(1)) {
            cutoff.set(usize::MAX);
        }
        self.count.set(count);
        if self.is_closed.get() {
            // While a layer below waited.
            self.let_go(cx);
            return Err(OpenError::NoLower);
        }
        Ok(())
    }

    /// Closes all ways; they are opened anew for the next message.
    pub(crate) fn let_go(&self, cx: &Kernel) {
        self.count.set(0);
        for slot in &self.lowers {
            if let Some(lower) = slot.take() {
                lower.head().set_tag(0);
                lower.close(cx);
            }
        }
    }
}

pub(crate) struct SizeSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) path: Rc<Path>,
}

/// Asked of a session of its own.
pub(crate) struct ItsPath(pub(crate) Option<Rc<Path>>);

impl Question for ItsPath {
    const NAME: &'static str = "vipsize-path";
}

impl SizeSession {
    /// The way of a message of so many octets.
    #[inline]
    fn way(&self, octets: usize) -> Option<SessionRef> {
        let path = &*self.path;
        let cutoffs = path.cutoffs.iter().take(path.count.get());
        let mut ways = cutoffs.zip(&path.lowers).enumerate();
        let (at, (_, lower)) = ways.find(|(_, (cutoff, _))| octets <= cutoff.get())?;
        path.last_used.set(at);
        lower.get()
    }

    /// Questions about copies of what was sent (`xk_kit::rpc::kept`) are for the way that it went.
    /// Any way may have kept it that is asked for by name: names are numbers that the instances
    /// count by themselves, from anywhere.
    fn answer_kept(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let path = &*self.path;
        if let Some(question) = ask.get::<LastKept>() {
            let way = path.lowers.get(path.last_used.get());
            let kept = way.and_then(SessionSlot::get);
            let kept = kept.and_then(|way| way.ask(cx, LastKept::default()));
            question.ticket = kept.map_or(0, |kept| kept.ticket);
        } else if let Some(question) = ask.get::<FreeKept>() {
            for way in path.ways() {
                let _ = way.ask(cx, *question);
            }
        } else {
            let question = ask.get::<AskKept>()?;
            let states = path.ways().filter_map(|way| way.ask(cx, *question));
            let mut states = states.map(|asked| asked.state);
            let known = states.find(|state| *state != KeptState::Gone);
            question.state = known.unwrap_or_default();
        }
        Some(Answer::Answered)
    }

    /// The first message of a session that a message made, and the first after a way was closed by
    /// others.
    #[cold]
    #[inline(never)]
    fn push_first(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let connected = self.path.connect(cx, &self.shared);
        let way = connected.ok().and_then(|()| self.way(message.len()));
        let Some(way) = way else {
            this.discard(cx, message, &crate::NO_WAY);
            return Err(PushError::NoRoute);
        };
        way.push(cx, message)
    }
}

impl Session for SizeSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let Some(way) = self.way(message.len()) else {
            return self.push_first(cx, this, message);
        };
        let result = way.push(cx, message);
        if result == Err(PushError::Closed) {
            // All are opened anew for the next message.
            self.path.let_go(cx);
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
        let (shared, path) = (&self.shared, &*self.path);
        if let Some(question) = ask.get::<ItsPath>() {
            question.0 = Some(Rc::clone(&self.path));
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<PeerHost>() {
            question.host = path.host();
            return Answer::Answered;
        }
        if let Some(answer) = self.answer_kept(cx, ask) {
            return answer;
        }
        if let Some(question) = ask.get::<MinPacket>() {
            question.octets = standins::LINK_MIN;
            return Answer::Answered;
        }
        if standins::has_no_answer(ask) {
            return Answer::Unknown;
        }
        if let Some(question) = ask.get::<Describe>() {
            let count = path.count.get().saturating_sub(1);
            let cutoffs = path.cutoffs.iter().take(count).map(Cell::get);
            let cutoffs: alloc::vec::Vec<usize> = cutoffs.collect();
            question.text = format!("{}, cutoffs {cutoffs:?}", path.host());
            return Answer::Answered;
        }
        let last = path.last();
        if let Some(question) = ask.get::<PeerOnLink>() {
            let Some(last) = last else {
                return Answer::Unknown;
            };
            question.on_link = !is_far(cx, &last);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<OptPacket>() {
            let of = |lower: &ProtocolRef| lower.ask(cx, OptPacket::default());
            let own = match &last {
                Some(last) => last.ask(cx, OptPacket::default()),
                // Before there are ways, what the layers say by themselves.
                None => {
                    let all = shared.lowers.iter().filter_map(of);
                    all.max_by_key(|own| own.octets)
                }
            };
            let count = path.count.get().saturating_sub(1);
            let cutoffs = path.cutoffs.iter().take(count);
            let whole = cutoffs.map(|cutoff| u32::try_from(cutoff.get()).unwrap_or(u32::MAX));
            let max = last.as_ref().and_then(|last| last.ask(cx, MaxPacket::default()));
            let most = whole.chain(own.map(|own| own.octets)).max();
            let Some(most) = most else {
                return Answer::Unknown;
            };
            question.octets = max.map_or(most, |max| most.min(max.octets));
            return Answer::Answered;
        }
        match (last, shared.last()) {
            (Some(last), _) => last.control(cx, ask),
            (None, Some(lower)) => lower.control(cx, ask),
            (None, None) => Answer::Unknown,
        }
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let (shared, path) = (&self.shared, &*self.path);
        shared.sessions.release(&path.key, this);
        path.is_closed.set(true);
        path.let_go(cx);
        shared.marks.leave(path.mark.get());
        Closing::Done
    }
}
