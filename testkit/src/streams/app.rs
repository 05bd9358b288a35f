//! The applications of one side.

use super::host;
use super::plan::{EndPlan, Ending, Plan};
use crate::kernel::{Bottom, Sent, TestKernel};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use xk_core::object::{Popped, SessionId};
use xk_core::random::Random;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Time, Upper, reason,
};
use xk_kit::net::moving;
use xk_kit::net::stream::{
    KeepAlive, StreamAbort, StreamConsumed, StreamError, StreamEvent, StreamInfo, StreamNotice,
    StreamRoom, StreamSet, StreamSetting, StreamShutdown, StreamSpace,
};

/// The port of the side that is opened.
const SERVER: u16 = 7;
/// The port of the first stream of the side that opens.
const CLIENT: u16 = 40_000;
/// Makes a side that only reads notice the death of its peer.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes_max: 12 };
/// Times that an end moves.
const MOVES_MAX: u32 = 40;
/// Sessions without a stream that it takes before that is an error.
const STRANGERS_MAX: usize = 64;

/// The octet at a place of a stream's direction.
fn octet(stream: usize, from: usize, at: u64) -> u8 {
    let at = at.wrapping_mul(13) ^ (at >> 8) ^ (at >> 16);
    at as u8 ^ (stream as u8) << 3 ^ (from as u8) << 7
}

/// One end of a stream.
pub(super) struct End {
    plan: EndPlan,
    pub(super) session: Option<SessionRef>,
    pub(super) pushed: u64,
    pub(super) delivered: u64,
    /// Delivered and not yet read, if reading is slow.
    unread: u64,
    connected: bool,
    waits: bool,
    ended: bool,
    peer_ended: bool,
    /// True once it was told that both directions ended in order.
    pub(super) closed: bool,
    pub(super) failed: Option<StreamError>,
    released: bool,
    /// Index of its place among those of its side.
    home: usize,
    /// Times that it has moved, and whether it is on its way to the other place.
    moves: u32,
    journey: Option<Journey>,
}

/// An end between two places.
struct Journey {
    state: Vec<u8>,
    ends: Participants,
    left: bool,
    /// Something was to be written meanwhile.
    writes: bool,
}

impl End {
    fn new(plan: &EndPlan) -> Self {
        Self {
            plan: plan.clone(),
            session: None,
            pushed: 0,
            delivered: 0,
            unread: 0,
            connected: false,
            waits: false,
            ended: false,
            peer_ended: false,
            closed: false,
            failed: None,
            released: false,
            home: 0,
            moves: 0,
            journey: None,
        }
    }

    /// Whether nothing more will happen here.
    pub(super) fn is_over(&self) -> bool {
        self.closed || self.failed.is_some() || self.released
    }

    pub(super) fn describe(&self, cx: &TestKernel) -> String {
        let Some(session) = &self.session else {
            return "no session".to_owned();
        };
        let info = session.ask(cx, StreamInfo::default());
        let (pushed, delivered) = (self.pushed, self.delivered);
        let told = (self.connected, self.peer_ended, self.closed, self.failed);
        let does = (self.waits, self.ended, self.released, self.unread);
        format!(
            "pushed {pushed}, delivered {delivered}, (connected, peer ended, closed, failed) {told:?}, \
             (waits, ended, released, unread) {does:?}, {info:?}"
        )
    }
}

/// Event that came up and waits to be looked at.
enum News {
    Accepted(SessionRef, u16),
    Octets(SessionId, Message),
    Told(SessionId, StreamEvent),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Open,
    Write,
    Read,
    /// Takes a stream from those that wait to be accepted.
    Accept,
    /// The next step to the side's other place.
    Move,
}

/// A side: what stands below, the protocol, and the applications above.
pub(super) struct Side {
    pub(super) place: usize,
    pub(super) places: [(Bottom, ProtocolRef); 2],
    app: ProtocolRef,
    pub(super) moves: u64,
    stays: Option<Duration>,
    pub(super) ends: Vec<End>,
    both_open: Vec<bool>,
    news: Rc<RefCell<Vec<News>>>,
    agenda: BTreeMap<(Time, u64), (usize, Act)>,
    last: u64,
    chance: Random,
    strangers: Vec<SessionRef>,
    /// Number of streams that wait to be accepted, and the longest wait, if that is bounded.
    unaccepted: Rc<Cell<usize>>,
    patience: Option<Duration>,
}

impl Side {
    pub(super) fn new(
        cx: &TestKernel,
        place: usize,
        places: [(Bottom, ProtocolRef); 2],
        plan: &Plan,
    ) -> Self {
        let news = Rc::new(RefCell::default());
        let unaccepted = Rc::default();
        let app = App {
            news: Rc::clone(&news),
            unaccepted: Rc::clone(&unaccepted),
            backlog: plan.backlog.map(|(count, _)| count),
        };
        let app = cx.add_protocol("app", ["app-a", "app-b"][place], app);
        Self {
            place,
            places,
            app,
            moves: 0,
            stays: plan.moves,
            ends: plan.streams.iter().map(|stream| End::new(&stream.ends[place])).collect(),
            both_open: plan.streams.iter().map(|stream| stream.both_open).collect(),
            news,
            agenda: BTreeMap::new(),
            last: 0,
            chance: cx.random().fork(4 + place as u64),
            strangers: Vec::new(),
            unaccepted,
            patience: plan.backlog.map(|(_, patience)| patience),
        }
    }

    pub(super) fn listen(&self, cx: &TestKernel) -> Result<(), String> {
        let port = Participants::local(Part::port(SERVER));
        let enabled = self.places[0].1.open_enable(cx, Upper::new(&self.app), port);
        enabled.map(drop).map_err(|error| format!("open_enable: {error}"))
    }

    /// Puts the opens on the agenda.
    pub(super) fn begin(&mut self, cx: &TestKernel) {
        for n in 0..self.ends.len() {
            if self.place == 0 || self.both_open[n] {
                let start = self.ends[n].plan.start;
                self.later(cx, start, n, Act::Open);
            }
        }
    }

    fn later(&mut self, cx: &TestKernel, delay: Duration, n: usize, act: Act) {
        self.last += 1;
        self.agenda.insert((cx.now().after(delay), self.last), (n, act));
    }

    /// Time of its next action.
    pub(super) fn next(&self) -> Option<Time> {
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Octets that each stream was given, and whether that is all. A stream that was broken off has
    /// no end that the peer may see.
    pub(super) fn pushed(&self) -> Vec<(u64, bool)> {
        self.ends.iter().map(|end| (end.pushed, end.ended)).collect()
    }

    fn find(&self, session: SessionId) -> Option<usize> {
        let is = |end: &End| end.session.as_ref().is_some_and(|s| s.id() == session);
        self.ends.iter().position(is)
    }

    /// Looks at what came up, and does what is due. `other` is what the other side has pushed.
    pub(super) fn act(&mut self, cx: &TestKernel, other: &[(u64, bool)]) -> Result<(), String> {
        self.look(cx, other)?;
        while self.next().is_some_and(|at| at <= cx.now()) {
            let Some((_, (n, act))) = self.agenda.pop_first() else {
                break;
            };
            match act {
                Act::Open => self.open(cx, n)?,
                Act::Write => self.write(cx, n)?,
                Act::Read => self.read(cx, n),
                Act::Accept => self.unaccepted.set(self.unaccepted.get() - 1),
                Act::Move => self.go_on(cx, n)?,
            }
        }
        self.look(cx, other)
    }

    fn look(&mut self, cx: &TestKernel, other: &[(u64, bool)]) -> Result<(), String> {
        loop {
            let news = self.news.take();
            if news.is_empty() {
                return Ok(());
            }
            for item in news {
                self.one(cx, item, other)?;
            }
        }
    }

    fn one(&mut self, cx: &TestKernel, item: News, other: &[(u64, bool)]) -> Result<(), String> {
        match item {
            News::Accepted(session, port) => {
                if let Some(patience) = self.patience {
                    let ms = self.chance.below(patience.as_millis() as u64 + 1);
                    self.later(cx, Duration::from_millis(ms), 0, Act::Accept);
                }
                let n = usize::from(port.wrapping_sub(CLIENT));
                if n >= self.ends.len() || self.ends[n].session.is_some() {
                    // A duplicate of a SYN made it. Nothing is said there, and nothing answered.
                    let _ = session.ask(cx, StreamAbort);
                    session.close(cx);
                    self.strangers.push(session);
                    return if self.strangers.len() > STRANGERS_MAX {
                        Err("sessions appear that nobody has opened".to_owned())
                    } else {
                        Ok(())
                    };
                }
                self.ends[n].session = Some(session);
                self.connected(cx, n);
                self.move_later(cx, n);
            }
            News::Octets(session, message) => {
                let Some(n) = self.find(session) else {
                    return Ok(());
                };
                self.receive(cx, n, &message, other[n].0)?;
            }
            News::Told(session, event) => {
                if let Some(n) = self.find(session) {
                    self.told(cx, n, event, other[n])?;
                }
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        cx: &TestKernel,
        n: usize,
        message: &Message,
        pushed: u64,
    ) -> Result<(), String> {
        let from = 1 - self.place;
        let end = &mut self.ends[n];
        if end.is_over() && !end.released || end.peer_ended {
            return Err(format!("stream {n}: octets came up behind the end"));
        }
        for value in message.octets() {
            if value != octet(n, from, end.delivered) || end.delivered >= pushed {
                return Err(format!("stream {n}: octet {} came up wrong", end.delivered));
            }
            end.delivered += 1;
        }
        if let Some((_, pause)) = end.plan.reads {
            let was_empty = end.unread == 0;
            end.unread += message.len() as u64;
            if was_empty {
                self.later(cx, pause, n, Act::Read);
            }
        }
        Ok(())
    }

    fn told(
        &mut self,
        cx: &TestKernel,
        n: usize,
        event: StreamEvent,
        other: (u64, bool),
    ) -> Result<(), String> {
        let end = &mut self.ends[n];
        if end.closed || end.failed.is_some() {
            return Err(format!("stream {n}: {event:?} was told behind the end"));
        }
        match event {
            StreamEvent::Connected => self.connected(cx, n),
            StreamEvent::Writable => {
                if core::mem::take(&mut end.waits) {
                    self.later(cx, Duration::ZERO, n, Act::Write);
                }
            }
            StreamEvent::EndOfStream => {
                if end.delivered != other.0 || !other.1 {
                    return Err(format!(
                        "stream {n}: it ended with {} octets of {} delivered",
                        end.delivered, other.0
                    ));
                }
                end.peer_ended = true;
            }
            StreamEvent::Closed => {
                let both_ended = end.peer_ended && end.ended;
                if !(end.released || both_ended) {
                    return Err(format!("stream {n}: closed before both directions had ended"));
                }
                end.closed = true;
            }
            StreamEvent::Failed(why) => end.failed = Some(why),
        }
        Ok(())
    }

    fn connected(&mut self, cx: &TestKernel, n: usize) {
        let end = &mut self.ends[n];
        if core::mem::replace(&mut end.connected, true) {
            return;
        }
        if let Some(session) = &end.session {
            let settings = [
                StreamSetting::KeepAlive(Some(KEEP_ALIVE)),
                StreamSetting::NoDelay(end.plan.no_delay),
                StreamSetting::ManualWindow(end.plan.reads.is_some()),
            ];
            for setting in settings {
                let _ = session.ask(cx, StreamSet { setting, taken: false });
            }
        }
        self.later(cx, Duration::ZERO, n, Act::Write);
    }

    fn open(&mut self, cx: &TestKernel, n: usize) -> Result<(), String> {
        if self.ends[n].session.is_some() {
            return Ok(());
        }
        let client = Part::port(CLIENT + n as u16);
        let server = Part::port(SERVER);
        let (local, peer) = if self.place == 0 { (client, server) } else { (server, client) };
        let peer = Participant::of(Part::host(host(1 - self.place))).with(peer);
        let participants = Participants::pair(local, peer);
        match self.places[0].1.open(cx, Upper::new(&self.app), participants) {
            Ok(session) => {
                self.ends[n].session = Some(session);
                self.move_later(cx, n);
                Ok(())
            }
            // The peer's SYN was here first, and the stream will be accepted.
            Err(_) if self.place == 1 => Ok(()),
            Err(error) => Err(format!("stream {n}: open: {error}")),
        }
    }

    fn write(&mut self, cx: &TestKernel, n: usize) -> Result<(), String> {
        let place = self.place;
        let end = &mut self.ends[n];
        if let Some(journey) = &mut end.journey {
            journey.writes = true;
            return Ok(());
        }
        let Some(session) = end.session.clone().filter(|_| !end.is_over() && !end.ended) else {
            return Ok(());
        };
        if let Ending::Aborts(at) = end.plan.ending
            && end.pushed >= at
        {
            let _ = session.ask(cx, StreamAbort);
            end.released = true;
            session.close(cx);
            return Ok(());
        }
        if end.pushed == end.plan.octets {
            end.ended = true;
            if end.plan.ending == Ending::Closes {
                end.released = true;
                session.close(cx);
            } else {
                let _ = session.ask(cx, StreamShutdown);
            }
            return Ok(());
        }
        let left = end.plan.octets - end.pushed;
        let space = session.ask(cx, StreamSpace::default()).map_or(0, |q| q.octets);
        let piece = (1 + self.chance.below(end.plan.piece_max)).min(left).min(space.into());
        if piece == 0 {
            end.waits = true;
            return Ok(());
        }
        let start = end.pushed;
        let data: Vec<u8> = (start..start + piece).map(|at| octet(n, place, at)).collect();
        // Before the push, for what it leads to may be looked at before it is back.
        end.pushed += piece;
        if let Err(error) = session.push(cx, cx.message(&data)) {
            end.pushed = start;
            if session.ask(cx, StreamInfo::default()).is_some() && end.failed.is_none() {
                return Err(format!(
                    "stream {n}: a push of {piece} octets into {space}: {error:?}"
                ));
            }
            return Ok(());
        }
        let pause = end.plan.pause.as_millis() as u64;
        let pause = Duration::from_millis(self.chance.below(pause + 1));
        self.later(cx, pause, n, Act::Write);
        Ok(())
    }

    fn read(&mut self, cx: &TestKernel, n: usize) {
        let end = &mut self.ends[n];
        if end.journey.is_some() {
            return self.later(cx, Duration::from_millis(5), n, Act::Read);
        }
        let (Some((at_once, pause)), Some(session)) = (end.plan.reads, end.session.clone()) else {
            return;
        };
        let read = end.unread.min(at_once.into());
        end.unread -= read;
        let goes_on = end.unread > 0;
        if end.is_over() {
            return;
        }
        let _ = session.ask(cx, StreamConsumed { octets: read as u32 });
        if goes_on {
            let pause = Duration::from_millis(self.chance.below(pause.as_millis() as u64 + 1));
            self.later(cx, pause, n, Act::Read);
        }
    }

    /// The layer below a segment for this side: that at which the end of its stream is.
    pub(super) fn bottom_for(&self, message: &Message) -> &Bottom {
        // The client's port says which stream it is; damaged ones may be any.
        let mut ports = message.octets().skip(2 * (1 - self.place)).take(2);
        let client = u16::from_be_bytes([0; 2].map(|none: u8| ports.next().unwrap_or(none)));
        let end = self.ends.get(usize::from(client.wrapping_sub(CLIENT)));
        &self.places[end.map_or(0, |end| end.home)].0
    }

    /// Segments that both places have sent.
    pub(super) fn sent(&self) -> impl Iterator<Item = Sent> + use<> {
        let [first, second] = [0, 1].map(|at| self.places[at].0.take_sent());
        first.into_iter().chain(second)
    }

    fn move_later(&mut self, cx: &TestKernel, n: usize) {
        // Without end it might be away whenever something comes.
        if let Some(stays) = self.stays.filter(|_| self.ends[n].moves < MOVES_MAX) {
            let ms = self.chance.below(stays.as_millis() as u64 + 1);
            self.later(cx, Duration::from_millis(ms), n, Act::Move);
        }
    }

    /// The next step of an end's way: it stops, it is brought to the other place and leaves the old
    /// one, it opens there. What arrives between the steps finds it gone, or not there yet.
    fn go_on(&mut self, cx: &TestKernel, n: usize) -> Result<(), String> {
        let between = Duration::from_millis(self.chance.below(120));
        let turns = self.chance.chance(0.5);
        let end = &mut self.ends[n];
        let Some(session) = end.session.clone().filter(|_| !end.is_over()) else {
            return Ok(());
        };
        let there = &self.places[1 - end.home].1;
        match &mut end.journey {
            None => {
                let ends = moving::ends_of(cx, &session).ok_or("no ends")?;
                if let Some(state) = moving::state_of(cx, &session) {
                    end.journey = Some(Journey { state, ends, left: false, writes: false });
                    self.later(cx, between, n, Act::Move);
                }
            }
            Some(journey) if !journey.left => {
                if !moving::bring(cx, there, &journey.ends, &journey.state) {
                    return Err(format!("stream {n}: its state was not taken"));
                }
                if !moving::release(cx, &session, journey.state.len()) {
                    return Err(format!("stream {n}: it did not leave"));
                }
                session.close(cx);
                journey.left = true;
                if turns {
                    end.home = 1 - end.home;
                    let there = self.places[end.home].1.clone();
                    return self.arrive(cx, n, &there);
                }
                self.later(cx, between, n, Act::Move);
            }
            Some(_) => {
                end.home = 1 - end.home;
                let there = self.places[end.home].1.clone();
                return self.arrive(cx, n, &there);
            }
        }
        Ok(())
    }

    fn arrive(&mut self, cx: &TestKernel, n: usize, there: &ProtocolRef) -> Result<(), String> {
        let end = &mut self.ends[n];
        let Some(journey) = end.journey.take() else {
            return Ok(());
        };
        let opened = there.open(cx, Upper::new(&self.app), journey.ends);
        let session = opened.map_err(|error| format!("stream {n}: it did not arrive: {error}"))?;
        end.session = Some(session);
        end.moves += 1;
        self.moves += 1;
        if journey.writes {
            self.later(cx, Duration::ZERO, n, Act::Write);
        }
        self.move_later(cx, n);
        Ok(())
    }

    /// Releases everything.
    pub(super) fn leave(&self, cx: &TestKernel) {
        for end in &self.ends {
            if let Some(session) = end.session.as_ref().filter(|_| !end.released) {
                let _ = session.ask(cx, StreamAbort);
                session.close(cx);
            }
        }
        self.news.take();
    }
}

struct App {
    news: Rc<RefCell<Vec<News>>>,
    unaccepted: Rc<Cell<usize>>,
    backlog: Option<usize>,
}

impl App {
    fn is_full(&self) -> bool {
        self.backlog.is_some_and(|most| self.unaccepted.get() >= most)
    }
}

impl Protocol for App {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut participants: Participants,
    ) -> Result<(), &'static Reason> {
        // It was to be asked before: this breaks the stream.
        if self.is_full() {
            return Err(&reason::QUEUE_FULL);
        }
        self.unaccepted.set(self.unaccepted.get() + 1);
        lower.hold();
        let port = participants.peer_mut().and_then(|peer| peer.pop_port());
        let port = port.ok().and_then(|port| port.value()).unwrap_or(0);
        self.news.borrow_mut().push(News::Accepted(lower.clone(), port));
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        self.news.borrow_mut().push(News::Octets(lower.id(), message));
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(room) = ask.get::<StreamRoom>() {
            room.full = self.is_full();
            return Answer::Answered;
        }
        ask.answer::<StreamNotice>(|notice| {
            let told = News::Told(notice.session.id(), notice.event);
            self.news.borrow_mut().push(told);
        })
    }
}
