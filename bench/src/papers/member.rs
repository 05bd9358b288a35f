//! Programs of the organisation that is a protocol library: one that answers or takes what Linux's
//! sockets send, one that opens connections to them, with the parts of what that takes, and one
//! that sends them datagrams. Beside those stand programs that have all protocols in themselves.

use super::mechanisms::node;
use super::segments::Segments;
use super::times::{ANSWER_TIME_MAX, figures};
use crate::cable::HEADROOM;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Display;
use std::io::{Error as IoError, Read, Result as IoResult};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use xk_attach::Attached;
use xk_catalog::PROTOCOLS;
use xk_compose::{HostSetup, OpenHost};
use xk_core::control::Describe;
use xk_core::graph::{Catalog, Value};
use xk_core::object::{Closing, OpenError, Popped};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    Session, SessionRef, Upper,
};
use xk_kit::net::attribute::Peer;
use xk_kit::net::stream::{StreamAbort, StreamEvent, StreamNotice};
use xk_lang::HostInstance;
use xk_netio::Ticket;
use xk_registry::{NOT_MOVED, Program, TakeOver};
use xk_run::{Idle, Runner};

/// Linux's address on the host's TAP device.
const LINUX: [u8; 4] = [10, 9, 0, 1];
/// The first of the ports that connections are opened from, one after the other.
const PORT_FIRST: usize = 20_000;
/// The port that datagrams are sent from, which `graphs/org-library.kdl` grants.
const DATAGRAM_PORT: u16 = 5000;
/// Time after which a first datagram is taken for lost.
const AGAIN: Duration = Duration::from_millis(200);
/// Between two connections, for what the last one leaves behind.
const PAUSE: Duration = Duration::from_millis(3);
/// Tokens of the opener's timers.
const OPEN: u64 = 0;
const END: u64 = 1;
const US_PER_S: f64 = 1e6;

/// The parts of what it takes until a connection is there, in microseconds, in the order of the
/// answer of [`opens`]; the first is all of it.
pub(super) const PARTS: usize = 7;

fn text(error: impl Display) -> String {
    error.to_string()
}

/// A program at the registry whose domain is open at `path`, with what `stand` puts on its library,
/// and on the registry's `udp` if the program has a library for that.
fn member<T>(
    path: &Path,
    registry: &Rc<AtRegistry>,
    stand: impl FnOnce(&Kernel, &Program, ProtocolRef) -> Result<T, String>,
) -> Result<(Attached, Runner, T), String> {
    let ends = Instant::now() + ANSWER_TIME_MAX;
    let attached = loop {
        match Attached::at(path, PROTOCOLS) {
            Ok(attached) => break attached,
            Err(error) if Instant::now() > ends => return Err(text(error)),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let cx = Rc::clone(attached.kernel());
    let node = |name| attached.find(name).cloned().ok_or(format!("`{name}` is not granted"));
    let watch = Watch { lower: node("registry")?, seen: Rc::clone(registry) };
    let watch = cx.add_protocol("watch", "watch", watch);
    let program = Program::add(&cx, "library", node("tcp")?, watch);
    let top = stand(&cx, &program, node("udp")?)?;
    attached.join().map_err(text)?;
    let fetch = |_: &Kernel, ticket: &Ticket, door: &str| {
        xk_netio::node::connect(door, ticket).ok().map(|carrier| carrier as Box<_>)
    };
    program.build(&cx, PROTOCOLS, fetch).map_err(text)?;
    let runner = Runner::new(cx, Idle::default()).map_err(text)?;
    runner.start().map_err(|(at, error)| format!("{}: {error}", at.name()))?;
    Ok((attached, runner, top))
}

/// A program with a library of its own, on which the tool of this name stands at a port, until it
/// is ended. The argument is the name, the port, and where the domain is open.
pub(crate) fn serve(argument: &str) -> Result<Vec<f64>, String> {
    let words: Vec<&str> = argument.splitn(3, ' ').collect();
    let [tool, port, path] = words[..] else {
        return Err("no tool".into());
    };
    let port = port.parse().map_err(text)?;
    let stand = |cx: &Kernel, program: &Program, _| {
        let library = Some(program.library().clone());
        node(cx, tool, library, |params| params.set("port", Value::Integer(port)))
    };
    let (attached, runner, _) = member(Path::new(path), &Rc::default(), stand)?;
    runner.run(None, Rc::new(move |_| attached.is_lost())).map_err(text)?;
    Ok(Vec::new())
}

/// Opens connections from a program to Linux, each alone: the mean microseconds until one is there;
/// if a registry begins its connections, whose domain is open at `path`, those of the [`PARTS`],
/// too; last what half and 99 of 100 connections did not exceed. Without a registry the program has
/// the host of `graph` in itself.
pub(super) fn opens(graph: &str, path: Option<&Path>, count: usize) -> Result<Vec<f64>, String> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(text)?;
    let port = listener.local_addr().map_err(text)?.port();
    std::thread::spawn(move || {
        // Until this process ends; each is reset by its other end.
        while let Ok((mut stream, _)) = listener.accept() {
            let _: IoResult<usize> = stream.read(&mut [0]);
        }
    });
    let Some(path) = path else { return opens_to(graph, None, count, (LINUX, port)) };
    let registry = Rc::<AtRegistry>::default();
    let (attached, runner, opener) = opener(path, &registry, (LINUX, port))?;
    let segments = Segments::to(port).map_err(text)?;
    mean(count, || {
        let times = opener.one(attached.kernel(), &runner)?;
        parts(&times, &registry, &segments)
    })
}

/// A program with a library on which connections to this peer are opened.
fn opener(
    path: &Path,
    registry: &Rc<AtRegistry>,
    peer: ([u8; 4], u16),
) -> Result<(Attached, Runner, Opening), String> {
    let stand = |cx: &Kernel, program: &Program, _| {
        Ok(Opener::add(cx, program.library().clone(), peer, Some(Rc::clone(registry))))
    };
    member(path, registry, stand)
}

/// Opens connections from a program to this peer, as [`opens`] does: the mean microseconds until
/// one is there, and what half and 99 of 100 of them did not exceed.
pub(super) fn opens_to(
    graph: &str,
    path: Option<&Path>,
    count: usize,
    peer: ([u8; 4], u16),
) -> Result<Vec<f64>, String> {
    let Some(path) = path else {
        let host = in_process(graph, |cx, node| Ok(Opener::add(cx, node("tcp")?, peer, None)))?;
        return mean(count, || {
            host.top.one(&host.kernel, &host.runner).map(|times| [times.whole()])
        });
    };
    let (attached, runner, opener) = opener(path, &Rc::default(), peer)?;
    mean(count, || opener.one(attached.kernel(), &runner).map(|times| [times.whole()]))
}

/// Finds a node of a host by its name.
type Find<'a> = &'a dyn Fn(&str) -> Result<ProtocolRef, String>;

/// The host of a graph in this program, with what `stand` puts on it.
fn in_process<T>(
    graph: &str,
    stand: impl FnOnce(&Kernel, Find<'_>) -> Result<T, String>,
) -> Result<OpenHost<T>, String> {
    let stand = |cx: &Kernel, _: &HostInstance<'_>, _: &Catalog| {
        let node = |name: &str| cx.find_protocol(name).ok_or_else(|| format!("no `{name}`"));
        stand(cx, &node).map_err(IoError::other)
    };
    HostSetup::from_text(graph, PROTOCOLS).open(stand, |_, _| Ok(())).map_err(text)
}

/// Sends datagrams from a program to Linux, which sends them back: the mean microseconds until one
/// is there. Where the program's protocols lie is as for [`opens`].
pub(super) fn asks(
    graph: &str,
    path: Option<&Path>,
    (octets, count): (usize, usize),
) -> Result<Vec<f64>, String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(text)?;
    let port = socket.local_addr().map_err(text)?.port();
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        // Until this process ends.
        while let Ok((octets, from)) = socket.recv_from(&mut room) {
            let _: IoResult<usize> = socket.send_to(&room[..octets], from);
        }
    });
    let Some(path) = path else {
        let host = in_process(graph, |cx, node| Ok(Asker::add(cx, node("udp")?, port, octets)))?;
        return host.top.all(&host.kernel, &host.runner, count);
    };
    let stand = |cx: &Kernel, program: &Program, udp| {
        Ok(Asker::add(cx, program.add_datagrams(cx, "datagrams", udp), port, octets))
    };
    let (attached, runner, asker) = member(path, &Rc::default(), stand)?;
    asker.all(attached.kernel(), &runner, count)
}

/// Sends the next datagram from where the last one arrives.
struct Asker {
    lower: ProtocolRef,
    /// Linux's.
    port: u16,
    octets: usize,
    session: OnceCell<SessionRef>,
    answers: Cell<usize>,
    /// Time at which the last answer came, or the measurement began.
    last: Cell<Option<Instant>>,
    times: RefCell<Vec<Duration>>,
}

/// The asker as a protocol of a kernel.
struct Asking {
    this: ProtocolRef,
    asker: Rc<Asker>,
}

struct Asks(Rc<Asker>);

impl Asker {
    fn add(cx: &Kernel, lower: ProtocolRef, port: u16, octets: usize) -> Asking {
        let (session, answers) = (OnceCell::new(), Cell::new(0));
        let (last, times) = (Cell::default(), RefCell::default());
        let asker = Rc::new(Self { lower, port, octets, session, answers, last, times });
        Asking { this: cx.add_protocol("asker", "asker", Asks(Rc::clone(&asker))), asker }
    }

    fn send(&self, cx: &Kernel, this: &ProtocolRef) -> Option<()> {
        if self.session.get().is_none() {
            // With everybody, as sockets have it: for such a session a library has a right.
            let ends = Participants::pair(Part::port(DATAGRAM_PORT), Part::Any);
            let _ = self.session.set(self.lower.open(cx, Upper::new(this), ends).ok()?);
        }
        let mut message = cx.pool().alloc(HEADROOM, self.octets).ok()?;
        message.set_attribute(Peer { host: HostAddr::from(LINUX), port: self.port }).ok()?;
        // What is lost is sent again later.
        self.session.get()?.push(cx, message).ok()
    }
}

impl Asking {
    /// The [`figures`] of so many round trips. The first are not counted: addresses are resolved
    /// then, and one is tried again and again.
    fn all(&self, cx: &Kernel, runner: &Runner, count: usize) -> Result<Vec<f64>, String> {
        let run = |limit, answers| {
            let asker = Rc::clone(&self.asker);
            let finished = Rc::new(move |_: &Kernel| asker.answers.get() >= answers);
            runner.run(Some(limit), finished).map_err(text)
        };
        let ends = Instant::now() + ANSWER_TIME_MAX;
        while self.asker.answers.get() == 0 && Instant::now() < ends {
            cx.schedule_protocol(&self.this, Duration::ZERO, OPEN).map_err(text)?;
            run(AGAIN, 1)?;
        }
        // A library asks again for the way to a host that was not known at first.
        run(AGAIN, usize::MAX)?;
        let before = self.asker.answers.get();
        self.asker.last.set(Some(Instant::now()));
        run(ANSWER_TIME_MAX, before + count)?;
        match self.asker.answers.get() - before {
            answers if answers >= count => Ok(figures(self.asker.times.take())),
            answers => {
                Err(format!("{answers} of {count} came within {} s", ANSWER_TIME_MAX.as_secs()))
            }
        }
    }
}

impl Protocol for Asks {
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        if self.0.answers.get() == 0 {
            let _ = self.0.send(cx, this);
        }
    }

    fn demux(&self, cx: &Kernel, this: &ProtocolRef, _: &SessionRef, _: Message) -> Popped {
        self.0.answers.set(self.0.answers.get() + 1);
        if let Some(last) = self.0.last.get() {
            let now = Instant::now();
            self.0.last.set(Some(now));
            self.0.times.borrow_mut().push(now - last);
        }
        let _ = self.0.send(cx, this);
        Ok(())
    }
}

/// The mean of each figure that `measure` finds, in microseconds, then what half and 99 of 100 of
/// the first one did not exceed. The first time is not counted: addresses are resolved then.
fn mean<const N: usize>(
    count: usize,
    mut measure: impl FnMut() -> Result<[Duration; N], String>,
) -> Result<Vec<f64>, String> {
    measure()?;
    let (mut sums, mut times) = ([Duration::ZERO; N], Vec::with_capacity(count));
    for _ in 0..count {
        let found = measure()?;
        times.extend(found.first());
        sums.iter_mut().zip(found).for_each(|(sum, figure)| *sum += figure);
    }
    let means = sums.map(|sum| sum.as_secs_f64() * US_PER_S / count as f64);
    let [_, p50, p99] = figures(times)[..] else { return Ok(means.into()) };
    Ok(means.into_iter().chain([p50, p99]).collect())
}

/// Times at which a connection was begun, and was there.
struct Times {
    begun: SystemTime,
    there: SystemTime,
}

fn between(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

impl Times {
    fn whole(&self) -> Duration {
        between(self.begun, self.there)
    }
}

/// Times of the parts of one connection by the registry. Segments are stamped at the device. The
/// time of a question to the registry and back is that of one asked just before, which it answers
/// at once. The connection is asked for while the peer's answer is under way.
fn parts(
    times: &Times,
    registry: &AtRegistry,
    segments: &Segments,
) -> Result<[Duration; PARTS], String> {
    let (first, last) = segments.handshake().map_err(text)?.ok_or("no handshake was seen")?;
    let [asked, granted] = registry.taken.take().ok_or("nothing was taken over")?;
    let there_and_back = registry.there_and_back.get();
    let way = there_and_back / 2;
    let parts = [
        between(first, last),
        between(times.begun, first).saturating_sub(way),
        between(last.max(asked + way), granted).saturating_sub(way),
        there_and_back,
        between(granted, times.there),
    ];
    let whole = times.whole();
    let rest = whole.saturating_sub(parts.iter().sum());
    let [peer, outbound, channels, server, state] = parts;
    Ok([whole, peer, outbound, channels, server, state, rest])
}

/// Times of the questions that a program put to the registry.
#[derive(Default)]
struct AtRegistry {
    session: OnceCell<SessionRef>,
    there_and_back: Cell<Duration>,
    /// Times at which the last [`TakeOver`] was put, and was answered.
    taken: Cell<Option<[SystemTime; 2]>>,
}

/// Stands between a library and the registry, and looks at the clock.
struct Watch {
    lower: ProtocolRef,
    seen: Rc<AtRegistry>,
}

impl Protocol for Watch {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let receiver = upper.receiver;
        let lower = self.lower.open(cx, upper, participants)?;
        let _ = self.seen.session.set(lower.clone());
        let seen = Rc::clone(&self.seen);
        Ok(cx.new_session(this, receiver, Watched { lower, seen }))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }
}

struct Watched {
    lower: SessionRef,
    seen: Rc<AtRegistry>,
}

impl Session for Watched {
    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let asked = ask.get::<TakeOver>().map(|_| SystemTime::now());
        let answer = self.lower.control(cx, ask);
        self.seen
            .taken
            .set(asked.map(|asked| [asked, SystemTime::now()]).or(self.seen.taken.get()));
        answer
    }

    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        self.lower.close(cx);
        Closing::Done
    }
}

/// Opens one connection after the other.
struct Opener {
    lower: ProtocolRef,
    peer: ([u8; 4], u16),
    /// Place at which its connections begin, if they go on elsewhere.
    registry: Option<Rc<AtRegistry>>,
    opened: Cell<usize>,
    session: RefCell<Option<SessionRef>>,
    begun: Cell<Option<SystemTime>>,
    is_connected: Cell<bool>,
    there: Cell<Option<SystemTime>>,
    trouble: RefCell<Option<String>>,
}

/// The opener as a protocol of a kernel.
struct Opening {
    this: ProtocolRef,
    opener: Rc<Opener>,
}

struct Opens(Rc<Opener>);

impl Opener {
    fn add(
        cx: &Kernel,
        lower: ProtocolRef,
        peer: ([u8; 4], u16),
        registry: Option<Rc<AtRegistry>>,
    ) -> Opening {
        let opener = Rc::new(Self {
            lower,
            peer,
            registry,
            opened: Cell::new(0),
            session: RefCell::default(),
            begun: Cell::default(),
            is_connected: Cell::new(false),
            there: Cell::default(),
            trouble: RefCell::default(),
        });
        Opening { this: cx.add_protocol("opener", "opener", Opens(Rc::clone(&opener))), opener }
    }

    /// On a shepherd, which waits for what others answer.
    fn open(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if let Some(registry) = &self.registry
            && let Some(session) = registry.session.get()
        {
            let begun = Instant::now();
            let _ = session.ask(cx, Describe::default());
            registry.there_and_back.set(begun.elapsed());
        }
        let port = PORT_FIRST + self.opened.get() % PORT_FIRST;
        self.opened.set(self.opened.get() + 1);
        let (host, peers) = self.peer;
        let peer = Participant::of(Part::Host(HostAddr::from(host))).with(Part::port(peers));
        let ends = Participants::pair(Part::port(port as u16), peer);
        self.begun.set(Some(SystemTime::now()));
        let session = self.lower.open(cx, Upper::new(this), ends)?;
        *self.session.borrow_mut() = Some(session);
        Ok(())
    }

    /// Whether the connection is where it is to be used.
    fn is_there(&self, cx: &Kernel) -> bool {
        let session = self.session.borrow().clone();
        let Some(session) = session.filter(|_| self.is_connected.get()) else {
            return false;
        };
        if self.registry.is_some() {
            let told = session.ask(cx, Describe::default());
            if !told.is_some_and(|told| told.text.starts_with("Own")) {
                return false;
            }
        }
        self.there.set(Some(SystemTime::now()));
        true
    }
}

impl Opening {
    /// Opens a connection, and ends it.
    fn one(&self, cx: &Kernel, runner: &Runner) -> Result<Times, String> {
        let Self { this, opener } = self;
        opener.is_connected.set(false);
        opener.there.set(None);
        let timer = |token| cx.schedule_protocol(this, Duration::ZERO, token).map_err(text);
        timer(OPEN)?;
        let looked = Rc::clone(opener);
        let finished = move |cx: &Kernel| looked.trouble.borrow().is_some() || looked.is_there(cx);
        runner.run(Some(ANSWER_TIME_MAX), Rc::new(finished)).map_err(text)?;
        if let Some(trouble) = opener.trouble.take() {
            return Err(trouble);
        }
        let times = opener.begun.get().zip(opener.there.get());
        let late = || {
            let session = opener.session.borrow().clone();
            let place = session.and_then(|session| session.ask(cx, Describe::default()));
            let place = place.map_or_else(|| "it was not opened".into(), |told| told.text);
            let told = opener.is_connected.get();
            let left = opener.lower.head().drops().of(&NOT_MOVED);
            let seconds = ANSWER_TIME_MAX.as_secs();
            format!(
                "no connection within {seconds} s: {place}, connected: {told}, not moved: {left}"
            )
        };
        let (begun, there) = times.ok_or_else(late)?;
        timer(END)?;
        runner.run(Some(PAUSE), Rc::new(|_| false)).map_err(text)?;
        Ok(Times { begun, there })
    }
}

impl Protocol for Opens {
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let opener = &self.0;
        if token == OPEN {
            if let Err(error) = opener.open(cx, this) {
                *opener.trouble.borrow_mut() = Some(text(error));
            }
        } else if let Some(session) = opener.session.take() {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<StreamNotice>(|notice| match notice.event {
            StreamEvent::Connected => self.0.is_connected.set(true),
            StreamEvent::Failed(why) if self.0.there.get().is_none() => {
                *self.0.trouble.borrow_mut() = Some(format!("a connection failed: {why:?}"));
            }
            _ => {}
        })
    }
}
