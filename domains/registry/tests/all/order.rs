//! Whatever happens to a conversation at whatever moment of a move happens to it in order: octets,
//! the end of the stream, a reset.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use xk_core::object::Popped;
use xk_core::random::Random;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
};
use xk_kit::net::moving;
use xk_kit::net::stream::{
    StreamAbort, StreamError, StreamEvent, StreamInfo, StreamNotice, StreamSet, StreamSetting,
    StreamShutdown, StreamSpace,
};
use xk_sim::{HostId, LinkConfig, LinkKind};
use xk_testkit::seeds;

use crate::app::Plan;
use crate::moves::COST;
use crate::world::{Hosts, Member};

/// State of a recorder: what it has heard of its stream.
#[derive(Default)]
struct State {
    session: RefCell<Option<SessionRef>>,
    came: RefCell<Vec<u8>>,
    /// The events, each with the number of octets that had come before it.
    events: RefCell<Vec<(usize, StreamEvent)>>,
    /// Octets that came behind an end.
    late: Cell<usize>,
    /// Segments that were sent again until the peer's end.
    again: Cell<u64>,
    echoes: bool,
}

/// An application of one stream that notes what it hears, in order. One that echoes says what it
/// hears, and ends when the peer has.
#[derive(Clone)]
struct Recorder {
    state: Rc<State>,
    this: ProtocolRef,
    lower: ProtocolRef,
}

struct Body(Rc<State>);

impl Recorder {
    fn add(hosts: &Hosts, of: HostId, lower: &ProtocolRef, echoes: bool) -> Self {
        let state = Rc::new(State { echoes, ..State::default() });
        let cx = hosts.world.kernel(of).expect("a kernel");
        let this = cx.add_protocol("recorder", "recorder", Body(Rc::clone(&state)));
        Self { state, this, lower: lower.clone() }
    }

    fn listen(&self, cx: &Kernel) {
        let local: Participants = "port7".parse().expect("participants");
        self.lower.open_enable(cx, Upper::new(&self.this), local).map(drop).expect("it is free");
    }

    fn open(&self, cx: &Kernel, ends: &str) {
        let ends: Participants = ends.parse().expect("participants");
        let session = self.lower.open(cx, Upper::new(&self.this), ends).expect("it opens");
        self.state.session.replace(Some(session));
    }

    fn with(&self, act: impl FnOnce(&SessionRef)) {
        let session = self.state.session.borrow().clone();
        if let Some(session) = &session {
            act(session);
        }
    }

    fn send(&self, cx: &Kernel, octets: &[u8]) {
        self.with(|session| {
            let message = cx.pool().copy_from(128, octets).expect("a buffer");
            let _ = session.push(cx, message);
        });
    }

    fn shut(&self, cx: &Kernel) {
        self.with(|session| {
            let _ = session.ask(cx, StreamShutdown);
        });
    }

    fn reset(&self, cx: &Kernel) {
        self.with(|session| {
            let _ = session.ask(cx, StreamAbort);
        });
        self.close(cx);
    }

    fn close(&self, cx: &Kernel) {
        if let Some(session) = self.state.session.take() {
            session.close(cx);
        }
    }

    /// The events, and how many octets had come before each.
    fn events(&self) -> Vec<(usize, StreamEvent)> {
        let all = self.state.events.borrow();
        let counts = |(_, event): &&(usize, StreamEvent)| {
            !matches!(event, StreamEvent::Connected | StreamEvent::Writable)
        };
        all.iter().filter(counts).copied().collect()
    }

    fn came(&self) -> Vec<u8> {
        self.state.came.borrow().clone()
    }

    /// All that was sent has come, and then the end, and nothing else.
    fn has_ended_well(&self, sent: &[u8]) -> bool {
        let events = self.events();
        let end = (sent.len(), StreamEvent::EndOfStream);
        let closed = (sent.len(), StreamEvent::Closed);
        self.state.late.get() == 0
            && self.came() == sent
            && (events == [end] || events == [end, closed])
    }

    fn said(&self) -> String {
        let (came, late) = (self.came().len(), self.state.late.get());
        format!("{came} octets, {late} late, {:?}", self.state.events.borrow())
    }
}

impl Protocol for Body {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        self.0.session.replace(Some(lower.clone()));
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        let is_over = |(_, event): &(usize, StreamEvent)| {
            !matches!(event, StreamEvent::Connected | StreamEvent::Writable)
        };
        if self.0.events.borrow().iter().any(is_over) {
            self.0.late.set(self.0.late.get() + message.len());
        }
        self.0.came.borrow_mut().extend(message.octets());
        if self.0.echoes {
            let _ = lower.push(cx, message);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(StreamNotice { session, event }) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        let (session, event) = (session.clone(), *event);
        let came = self.0.came.borrow().len();
        self.0.events.borrow_mut().push((came, event));
        if event == StreamEvent::EndOfStream {
            let info = session.ask(cx, StreamInfo::default()).unwrap_or_default();
            self.0.again.set(info.retransmissions);
        }
        if self.0.echoes && event == StreamEvent::EndOfStream {
            let _ = session.ask(cx, StreamShutdown);
        }
        if matches!(event, StreamEvent::Closed | StreamEvent::Failed(_))
            && let Some(session) = self.0.session.take()
        {
            session.close(cx);
        }
        Answer::Answered
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.session.take());
    }
}

/// A link that loses nothing, and is as quick as its seed says.
fn sound(seed: u64) -> LinkConfig {
    let delay = Duration::from_nanos(Random::new(seed).fork(4).below(60_000));
    LinkConfig { delay, ..LinkConfig::new("lan", LinkKind::Hub) }
}

/// One that takes a while for as much as a buffer holds.
fn gigabit() -> LinkConfig {
    LinkConfig { rate_bit_s: Some(1_000_000_000), ..sound(1) }
}

const SILENT: Plan = Plan { octets: 0, ends_first: false };

/// The ends of a stream, and its state.
type Given = (Participants, Vec<u8>);

/// A stream between a program and a peer, which speaks.
struct Between {
    hosts: Hosts,
    program: Member,
    ours: Recorder,
    theirs: Recorder,
    chance: Random,
}

impl Between {
    /// A stream that either has just begun.
    fn new(seed: u64, which: (bool, bool)) -> Self {
        Self::on(sound(seed), seed, which)
    }

    /// As [`new`](Self::new), on this link.
    fn on(link: LinkConfig, seed: u64, (is_active, echoes): (bool, bool)) -> Self {
        let mut hosts = Hosts::new(seed, link, SILENT);
        let program = hosts.program(SILENT);
        let ours = Recorder::add(&hosts, program.id, &program.library, echoes);
        let (peer, tcp, _) = hosts.peer.clone();
        let theirs = Recorder::add(&hosts, peer, &tcp, false);
        let (one, other) = (ours.clone(), theirs.clone());
        if is_active {
            hosts.world.spawn(peer, move |cx| other.listen(cx));
            hosts.run(Duration::from_millis(1));
            hosts.world.spawn(program.id, move |cx| one.open(cx, "*, port7@10.0.0.2"));
        } else {
            hosts.world.spawn(program.id, move |cx| one.listen(cx));
            hosts.run(Duration::from_millis(1));
            hosts.world.spawn(peer, move |cx| other.open(cx, "*, port7@10.0.0.1"));
        }
        let chance = Random::new(seed).fork(21);
        let mut between = Self { hosts, program, ours, theirs, chance };
        // Its peer has begun, too.
        while between.theirs.state.session.borrow().is_none()
            || !is_active && between.theirs.state.events.borrow().is_empty()
        {
            between.hosts.run(Duration::from_nanos(500));
        }
        between
    }

    /// Lets some time pass: as much as a part of a move takes.
    fn pause(&mut self) {
        let most = [1, 20_000, 100_000][self.chance.below(3) as usize];
        let pause = Duration::from_nanos(self.chance.below(most));
        self.hosts.run(pause);
    }

    fn at_peer(&mut self, act: impl FnOnce(&Recorder, &Kernel) + 'static) {
        let theirs = self.theirs.clone();
        self.hosts.world.spawn(self.hosts.peer.0, move |cx| act(&theirs, cx));
    }

    fn at_program(&mut self, act: impl FnOnce(&Recorder, &Kernel) + 'static) {
        let ours = self.ours.clone();
        self.hosts.world.spawn(self.program.id, move |cx| act(&ours, cx));
    }

    /// Ends the stream where `taker`'s protocol has it; the peer gets all that was said.
    fn ends_there(mut self, taker: Member, next: Recorder, said: &[u8], what: &str) {
        let last = next.clone();
        self.hosts.world.spawn(taker.id, move |cx| {
            last.shut(cx);
            last.close(cx);
        });
        self.hosts.run(Duration::from_secs(5));
        assert!(self.theirs.has_ended_well(said), "{what}: {}", self.told());
        self.at_peer(|theirs, cx| theirs.close(cx));
        drop((taker, next));
        self.finish(what);
    }

    /// The program says as much as a buffer of so many octets takes: all that it said.
    fn fill(&mut self, buffer: u32) -> Vec<u8> {
        let said = Rc::<RefCell<Vec<u8>>>::default();
        let to = Rc::clone(&said);
        self.at_program(move |ours, cx| {
            let setting = StreamSetting::SendBuffer(buffer);
            ours.with(|session| {
                let _ = session.ask(cx, StreamSet { setting, taken: true });
            });
            let space = || {
                let session = ours.state.session.borrow().clone();
                session.and_then(|session| session.ask(cx, StreamSpace::default()))
            };
            while let Some(StreamSpace { octets: room @ 1.. }) = space() {
                let octets: Vec<u8> = (0..room.min(16_000)).map(|at| (at * 7) as u8).collect();
                ours.send(cx, &octets);
                to.borrow_mut().extend(octets);
            }
        });
        self.hosts.run(Duration::from_micros(1));
        said.take()
    }

    /// The peer says a few things, at moments of a move: all that it said.
    fn speak(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        for n in 0..self.chance.below(4) {
            self.pause();
            let octets: Vec<u8> =
                (0..1 + self.chance.below(3000)).map(|at| (at * 7 + n) as u8).collect();
            said.extend(&octets);
            self.at_peer(move |theirs, cx| theirs.send(cx, &octets));
        }
        self.pause();
        said
    }

    /// The program gives its stream away as soon as it can; `None` if there is none.
    fn give(&mut self) -> Option<Given> {
        let (ours, of, over) = (self.ours.clone(), self.program.id, Rc::new(Cell::new(false)));
        let given = Rc::<RefCell<Option<Given>>>::default();
        while given.borrow().is_none() && !over.get() {
            let (ours, given, over) = (ours.clone(), Rc::clone(&given), Rc::clone(&over));
            self.hosts.world.spawn(of, move |cx| {
                let Some(session) = ours.state.session.borrow().clone() else {
                    return over.set(!ours.events().is_empty());
                };
                let passed = moving::ends_of(cx, &session)
                    .and_then(|ends| Some((ends, moving::state_of(cx, &session)?)))
                    .filter(|(_, state)| moving::release(cx, &session, state.len()));
                if passed.is_some() {
                    ours.close(cx);
                    given.replace(passed);
                }
            });
            self.hosts.run(Duration::from_micros(50));
        }
        given.take()
    }

    /// The program passes its stream on to another as soon as it can: true once that has it, or
    /// there is none to pass.
    fn pass_on(&mut self, next: &Recorder, taker: &Member) -> Rc<Cell<bool>> {
        let given = self.give();
        let done = Rc::new(Cell::new(given.is_none()));
        self.pause();
        if let Some((ends, state)) = given {
            let (next, library, over) = (next.clone(), taker.library.clone(), Rc::clone(&done));
            self.hosts.world.spawn(taker.id, move |cx| {
                assert!(moving::bring(cx, &library, &ends, &state), "it is taken");
                let opened = library.open(cx, Upper::new(&next.this), ends);
                next.state.session.replace(Some(opened.expect("it opens")));
                over.set(true);
            });
        }
        done
    }

    fn told(&self) -> String {
        let (ours, theirs) = (self.ours.said(), self.theirs.said());
        format!("program: {ours}; peer: {theirs}; {}", self.hosts.told())
    }

    /// Nothing is left anywhere once all late segments have had their time.
    fn finish(mut self, what: &str) {
        self.hosts.run(Duration::from_secs(60));
        let program = self.hosts.world.kernel(self.program.id);
        let is_there = program.is_some_and(|cx| cx.find_protocol("library").is_some());
        let counts = (
            if is_there { self.hosts.connections(self.program.id, "library") } else { 0 },
            self.hosts.connections(self.hosts.trusted.id, "tcp"),
            self.hosts.device.module.rights(),
        );
        assert_eq!(counts, (0, 0, 0), "{what}: {}", self.told());
        let Self { hosts, program, ours, theirs, .. } = self;
        drop((program, ours, theirs));
        hosts.finish(what);
    }
}

/// Number of moments of each seed.
const MOMENTS: u64 = 30;

/// Runs a test at each moment of each seed, of connections that either side opens.
fn at_moments(test: impl Fn(u64, bool, &str)) {
    seeds::of(COST).run(|seed| {
        for run in (0..MOMENTS).map(|moment| seed * 1000 + moment) {
            for is_active in [true, false] {
                test(run, is_active, &format!("run {run}, active={is_active}"));
            }
        }
    });
}

#[test]
fn the_end_of_a_stream_comes_behind_its_octets() {
    at_moments(|seed, is_active, what| {
        let mut between = Between::new(seed, (is_active, true));
        let said = between.speak();
        between.at_peer(|theirs, cx| theirs.shut(cx));
        between.hosts.run(Duration::from_secs(5));
        let well = [&between.ours, &between.theirs].map(|side| side.has_ended_well(&said));
        assert_eq!(well, [true; 2], "{what}: {} octets, {}", said.len(), between.told());
        // What comes on the way is not lost there.
        assert_eq!(between.theirs.state.again.get(), 0, "{what}: {}", between.told());
        between.at_peer(|theirs, cx| theirs.close(cx));
        between.finish(what);
    });
}

/// A program that says nothing itself hears of it all the same.
#[test]
fn a_reset_comes_behind_the_octets_before_it() {
    at_moments(|seed, is_active, what| {
        let mut between = Between::new(seed, (is_active, false));
        let said = between.speak();
        between.at_peer(|theirs, cx| theirs.reset(cx));
        between.hosts.run(Duration::from_secs(5));
        let (came, events) = (between.ours.came(), between.ours.events());
        let reset = (came.len(), StreamEvent::Failed(StreamError::Reset));
        // One that the program has not been told of yet is lost without a word.
        let is_known = !came.is_empty() || !between.ours.state.events.borrow().is_empty();
        let fine = said.starts_with(&came)
            && between.ours.state.late.get() == 0
            && (events == [reset] || !is_known && events.is_empty());
        assert!(fine, "{what}: {} octets, {}", said.len(), between.told());
        between.finish(what);
    });
}

/// A program passes its stream on to another at any moment of what the peer says, and takes its
/// time between its last word and the other's first. The two hear of it what one would.
fn passes_on(seed: u64, is_active: bool, resets: bool, what: &str) {
    let mut between = Between::new(seed, (is_active, false));
    let taker = between.hosts.program(SILENT);
    let next = Recorder::add(&between.hosts, taker.id, &taker.library, false);
    let mut said = between.speak();
    let given = between.pass_on(&next, &taker);
    said.extend(between.speak());
    let ends_early = between.chance.below(2) == 0;
    let end = move |theirs: &Recorder, cx: &Kernel| match resets {
        true => theirs.reset(cx),
        false => theirs.shut(cx),
    };
    if ends_early {
        between.at_peer(end);
    }
    for _ in 0..100_000 {
        between.pause();
        if given.get() {
            break;
        }
    }
    if !ends_early {
        said.extend(between.speak());
        between.at_peer(end);
    }
    between.hosts.run(Duration::from_secs(5));
    let both: Vec<u8> = [between.ours.came(), next.came()].concat();
    let late = between.ours.state.late.get() + next.state.late.get();
    let events: Vec<_> = between.ours.events().into_iter().chain(next.events()).collect();
    let told = || format!("next: {}; {}", next.said(), between.told());
    assert!(given.get(), "{what}: {}", told());
    assert_eq!(late, 0, "{what}: {}", told());
    let ends: Vec<_> = events.iter().map(|(_, event)| *event).collect();
    if resets {
        assert!(said.starts_with(&both), "{what}: {} octets, {}", said.len(), told());
        assert_eq!(ends, [StreamEvent::Failed(StreamError::Reset)], "{what}: {}", told());
    } else {
        let differs = both.iter().zip(&said).position(|(came, sent)| came != sent);
        let lengths = [both.len(), said.len()];
        assert!(both == said, "{what}: {lengths:?}, {differs:?}: {}", told());
        assert_eq!(ends, [StreamEvent::EndOfStream], "{what}: {}", told());
        let last = next.clone();
        between.hosts.world.spawn(taker.id, move |cx| {
            last.shut(cx);
            last.close(cx);
        });
        between.hosts.run(Duration::from_secs(5));
        assert!(between.theirs.has_ended_well(&[]), "{what}: {}", between.told());
        between.at_peer(|theirs, cx| theirs.close(cx));
    }
    drop((taker, next));
    between.finish(what);
}

#[test]
fn a_stream_that_is_passed_on_ends_behind_its_octets() {
    at_moments(|seed, is_active, what| {
        passes_on(seed, is_active, false, what);
    });
}

/// However much waits when a stream is passed on, or left to the registry, it goes along: as much
/// as buffers take by default. More is not given away until less waits.
#[test]
fn all_that_waits_goes_along() {
    for buffer in [4 << 20, 12 << 20] {
        let what = format!("passed on with {buffer} octets");
        let mut between = Between::on(gigabit(), 1, (true, false));
        let taker = between.hosts.program(SILENT);
        let next = Recorder::add(&between.hosts, taker.id, &taker.library, false);
        between.hosts.run(Duration::from_millis(10));
        let said = between.fill(buffer);
        assert!(said.len() >= buffer as usize, "{what}: {} octets", said.len());
        let given = between.pass_on(&next, &taker);
        between.hosts.run(Duration::from_secs(1));
        assert!(given.get(), "{what}: {}", between.told());
        between.ends_there(taker, next, &said, &what);
    }
    let mut between = Between::on(gigabit(), 1, (true, false));
    between.hosts.run(Duration::from_millis(10));
    let said = between.fill(4 << 20);
    between.at_program(|ours, cx| ours.close(cx));
    assert_eq!(between.hosts.leave(&between.program), 0, "{}", between.told());
    assert!(between.hosts.world.crash(between.program.id));
    between.at_peer(|theirs, cx| theirs.shut(cx));
    between.hosts.run(Duration::from_secs(5));
    assert!(between.theirs.has_ended_well(&said), "left: {}", between.told());
    between.finish("left");
}

/// A stream whose state finds no room where the registry has states is not lost: whatever has it
/// shows it once more.
#[test]
fn what_finds_no_room_is_shown_again() {
    let mut between = Between::on(gigabit(), 1, (true, false));
    let taker = between.hosts.program(SILENT);
    let next = Recorder::add(&between.hosts, taker.id, &taker.library, false);
    between.hosts.run(Duration::from_millis(10));
    let said = between.fill(1 << 20);
    // Other states take all the room there is.
    let (trusted, tcp) = (between.hosts.trusted.id, between.hosts.trusted.tcp.clone());
    let others: Participants = "port9@10.0.0.1, port9@10.0.0.2".parse().expect("participants");
    let (to, ends) = (tcp.clone(), others.clone());
    between.hosts.world.spawn(trusted, move |cx| {
        assert!(moving::bring(cx, &to, &ends, &vec![0; moving::STATE_OCTETS_MAX]));
    });
    between.hosts.run(Duration::from_millis(1));
    let (ends, state) = between.give().expect("a stream");
    for has_room in [false, true] {
        let (next, library) = (next.clone(), taker.library.clone());
        let (ends, state, shown) = (ends.clone(), state.clone(), Rc::new(Cell::new(None)));
        let seen = Rc::clone(&shown);
        between.hosts.world.spawn(taker.id, move |cx| {
            assert!(moving::bring(cx, &library, &ends, &state), "it is taken");
            let opened = library.open(cx, Upper::new(&next.this), ends);
            seen.set(Some(opened.is_ok()));
            next.state.session.replace(opened.ok());
        });
        between.hosts.run(Duration::from_millis(500));
        assert_eq!(shown.get(), Some(has_room), "{}", between.told());
        let free = moving::KeepEnds { ends: others.clone(), ..moving::KeepEnds::default() };
        let tcp = tcp.clone();
        between.hosts.world.spawn(trusted, move |cx| drop(tcp.ask(cx, free)));
        between.hosts.run(Duration::from_millis(1));
    }
    drop(tcp);
    between.ends_there(taker, next, &said, "shown again");
}

#[test]
fn a_reset_finds_a_stream_that_is_passed_on() {
    at_moments(|seed, is_active, what| {
        passes_on(seed, is_active, true, what);
    });
}

/// A program ends in order at any moment of the end of its stream: the registry sees to the rest.
/// No peer hears of anything but the end.
#[test]
fn what_a_program_leaves_in_order_ends_in_order() {
    at_moments(|seed, is_active, what| {
        let mut between = Between::new(seed, (is_active, false));
        let said = between.speak();
        let ends_first = between.chance.below(2) == 0;
        let mut octets = said.clone();
        if !ends_first {
            between.at_peer(|theirs, cx| theirs.shut(cx));
        }
        octets.truncate(1000);
        let answer = octets.clone();
        between.hosts.run(Duration::from_secs(1));
        // While there is something to be heard it is heard.
        assert_eq!(between.ours.came(), said, "{what}: {}", between.told());
        between.at_program(move |ours, cx| {
            if !octets.is_empty() {
                ours.send(cx, &octets);
            }
            ours.shut(cx);
        });
        between.pause();
        if ends_first && between.chance.below(2) == 0 {
            between.at_peer(|theirs, cx| theirs.shut(cx));
            between.pause();
        }
        between.at_program(|ours, cx| ours.close(cx));
        between.pause();
        let left = between.hosts.leave(&between.program);
        assert_eq!(left, 0, "{what}: {}", between.told());
        let id = between.program.id;
        assert!(between.hosts.world.crash(id), "{what}");
        between.pause();
        between.at_peer(|theirs, cx| theirs.shut(cx));
        between.hosts.run(Duration::from_secs(5));
        assert!(between.theirs.has_ended_well(&answer), "{what}: {}", between.told());
        let says = between.hosts.registry_says();
        assert!(says.ends_with("reset 0"), "{what}: {says}");
        between.finish(what);
    });
}
