//! Programs attach to a graph that another thread or process runs, and use what they are granted.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use xk_attach::{AttachError, Attached, Door, Grant, PROGRAMS_OF_A_USER_MAX, attach};
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{
    Bsd, Sink, Sock, Sockaddr, Uio, recvfrom, sendto, sobind, soclose, soconnect, socreate,
    soreceive, sosend,
};
use xk_compose::HostSetup;
use xk_core::graph::BuildError;
use xk_core::object::{OpenError, Popped, Served};
use xk_core::participant::PORT;
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef,
    Upper,
};
use xk_domains::Known;
use xk_kit::control::MyHost;
use xk_kit::net::appletalk::{SOCKET, socket};
use xk_kit::net::names::{NbpLookup, NbpRegister};
use xk_lang::HostInstance;
use xk_run::{Idle, Runner};
use xk_streams::Streams;
use xk_streams::tli::{Endpoint, Maxima};

const GRAPH: &str = r#"
host lab {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    udp ip
    echo udp port=7
}
"#;

/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

/// A domain as seen from outside.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    protocols: AtomicUsize,
    sent_away: AtomicUsize,
    pool: AtomicUsize,
}

/// A graph with a door at a path, run by a thread of its own.
struct Domain {
    path: PathBuf,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Domain {
    fn open(name: &str, grants: fn(&Kernel) -> Vec<Grant>) -> Self {
        Self::of(GRAPH, name, grants)
    }

    fn of(graph: &str, name: &str, grants: fn(&Kernel) -> Vec<Grant>) -> Self {
        let graph = graph.to_owned();
        let path = std::env::temp_dir().join(format!("xk-attach-{name}-{}", std::process::id()));
        let (seen, at) = (Arc::<Seen>::default(), path.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let shown = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let entries = xk_catalog::PROTOCOLS;
            let mut setup = HostSetup::from_text(graph, entries);
            setup.idle = Idle::Sleep;
            let door = |kernel: &Kernel, _: &HostInstance<'_>, _: &_| {
                let known = move || Known::of(entries);
                Door::open(kernel, "door", &at, grants(kernel), known)
                    .map_err(|error| std::io::Error::other(error.to_string()))
            };
            let host = setup.open(door, |_, _| Ok(())).expect("the graph runs");
            ready.send(()).unwrap();
            let (kernel, door) = (Rc::clone(&host.kernel), host.top.clone());
            while !shown.stop.load(Ordering::Relaxed) {
                host.runner.run(Some(Duration::from_millis(5)), Rc::new(|_| false)).unwrap();
                shown.protocols.store(kernel.protocols().len(), Ordering::Relaxed);
                let drops = door.head().drops().of(&xk_core::reason::PROHIBITED);
                shown.sent_away.store(drops as usize, Ordering::Relaxed);
                shown.pool.store(kernel.pool().stats().buffers_live as usize, Ordering::Relaxed);
            }
            drop(host.runner);
            kernel.stop();
        });
        is_ready.recv().unwrap();
        Self { path, seen, thread: Some(thread) }
    }

    /// Waits until `what` is as expected.
    fn until(&self, what: impl Fn(&Seen) -> bool) {
        let since = Instant::now();
        while !what(&self.seen) {
            let protocols = self.seen.protocols.load(Ordering::Relaxed);
            assert!(since.elapsed() < STEP_TIME_MAX, "{protocols} protocols are there");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
        assert!(!self.path.exists(), "the socket is removed");
    }
}

fn all(kernel: &Kernel) -> Vec<Grant> {
    let node = |name| kernel.find_protocol(name).unwrap();
    vec![
        Grant { ports: Some(5000..=5999), ..Grant::new(&node("udp")) },
        Grant { types: Some(253..=254), ..Grant::new(&node("ip")) },
    ]
}

/// Function that a program's protocol runs when it starts.
type Act = dyn Fn(&Kernel, &ProtocolRef) -> Result<(), OpenError>;

/// A program's protocol: does something when it starts, and keeps what comes.
struct Own {
    act: Box<Act>,
    came: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Protocol for Own {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        (self.act)(cx, this)
    }

    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static xk_core::Reason> {
        lower.hold();
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        self.came.borrow_mut().push(message.octets().collect());
        Ok(())
    }
}

/// A program with one protocol, and what came to it.
struct Program {
    runner: Runner,
    came: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Program {
    fn start(
        here: &Attached,
        act: impl Fn(&Kernel, &ProtocolRef) -> Result<(), OpenError> + 'static,
    ) -> Self {
        let came = Rc::<RefCell<Vec<Vec<u8>>>>::default();
        let own = Own { act: Box::new(act), came: Rc::clone(&came) };
        here.kernel().add_protocol("own", "own", own);
        here.join().expect("it may join");
        let runner = Runner::new(Rc::clone(here.kernel()), Idle::Sleep).expect("a loop");
        runner.start().unwrap_or_else(|(_, error)| panic!("{error}"));
        Self { runner, came }
    }

    fn until_came(&self, count: usize) -> Vec<Vec<u8>> {
        let came = Rc::clone(&self.came);
        let finished = Rc::new(move |_: &Kernel| came.borrow().len() >= count);
        self.runner.run(Some(STEP_TIME_MAX), finished).unwrap();
        self.came.take()
    }
}

fn end(port: u64, host: [u8; 4]) -> Participant {
    Participant::of(Part::Host(HostAddr::from(host))).with(Part::Number(PORT, port))
}

fn pair(local: Participant, peer: Participant) -> Participants {
    let mut both = Participants::local(local);
    both.push(peer);
    both
}

/// Sends a datagram to the domain's echo and takes the answer.
fn echoes(here: &Attached, port: u64, octets: &'static [u8]) {
    let udp = here.find("udp").expect("udp is granted").clone();
    let held = Rc::<Cell<Option<SessionRef>>>::default();
    let keeps = Rc::clone(&held);
    let program = Program::start(here, move |cx, this| {
        let ends = pair(end(port, [10, 0, 0, 1]), end(7, [10, 0, 0, 1]));
        let session = udp.open(cx, Upper::new(this), ends)?;
        let message = cx.pool().copy_from(128, octets).unwrap();
        session.push(cx, message).expect("it is sent");
        keeps.set(Some(session));
        Ok(())
    });
    assert_eq!(program.until_came(1), [octets]);
    if let Some(session) = held.take() {
        session.close(here.kernel());
    }
}

#[test]
fn a_program_uses_what_it_is_granted() {
    let domain = Domain::open("uses", all);
    domain.until(|seen| seen.protocols.load(Ordering::Relaxed) == 6);
    let here = attach(&domain.path).expect("it is let in");
    let names: Vec<_> = here.nodes().iter().map(|node| (node.head().kind(), node.name())).collect();
    assert_eq!(names, [("ip", "ip"), ("udp", "udp")], "and nothing else is shown");
    echoes(&here, 5000, b"hello");
    drop(here);
    // Nothing stays of it.
    domain.until(|seen| seen.protocols.load(Ordering::Relaxed) == 6);
    // The port is free for the next one.
    echoes(&attach(&domain.path).unwrap(), 5000, b"again");
}

#[test]
fn a_program_has_a_transport_of_its_own() {
    let domain = Domain::open("transport", all);
    let here = attach(&domain.path).unwrap();
    let ip = here.find("ip").unwrap().clone();
    let own = here.kernel().find_protocol("own");
    assert!(own.is_none());
    here.kernel()
        .numbers_mut()
        .add(xk_core::numbers::Number { upper: "own", lower: "ip", number: 253 })
        .unwrap();
    let program = Program::start(&here, move |cx, this| {
        let me = Participant::of(Part::Host(HostAddr::from([10, 0, 0, 1])));
        let _enable = ip.open_enable(cx, Upper::new(this), Participants::local(me.clone()))?;
        let session = ip.open(cx, Upper::new(this), pair(me.clone(), me))?;
        assert!(session.ask(cx, MyHost::default()).is_some());
        for octets in [&b"one"[..], b"two"] {
            session.push(cx, cx.pool().copy_from(128, octets).unwrap()).expect("sent");
        }
        Ok(())
    });
    assert_eq!(program.until_came(2), [b"one", b"two"]);
}

#[test]
fn what_is_not_granted_is_refused() {
    let domain = Domain::open("refused", all);
    let here = attach(&domain.path).unwrap();
    let (udp, ip) = (here.find("udp").unwrap().clone(), here.find("ip").unwrap().clone());
    let program = Program::start(&here, move |cx, this| {
        let (local, peer) = (|port| end(port, [10, 0, 0, 1]), end(7, [10, 0, 0, 1]));
        let any = Participant::of(Part::Any).with(Part::Any);
        let open = |local| udp.open(cx, Upper::new(this), pair(local, peer.clone())).map(drop);
        for local in [local(4999), local(6000), local(80), any] {
            assert_eq!(open(local), Err(OpenError::NotPermitted));
        }
        assert_eq!(open(local(5999)), Ok(()));
        let enable = |port| {
            udp.open_enable(cx, Upper::new(this), Participants::local(local(port))).map(drop)
        };
        assert_eq!((enable(53), enable(5353)), (Err(OpenError::NotPermitted), Ok(())));
        // A protocol without a number on `ip`.
        let me = Participants::local(Participant::of(Part::Any));
        let on_ip = ip.open_enable(cx, Upper::new(this), me).map(drop);
        assert_eq!(on_ip, Err(OpenError::NoTypeNumber));
        // What changes or shows what others have.
        assert!(ip.ask(cx, xk_ip::ListRoutes::default()).is_none());
        assert!(udp.ask(cx, xk_core::control::Describe::default()).is_none());
        assert!(udp.ask(cx, xk_core::control::ListSessions::default()).is_none());
        Ok(())
    });
    drop(program);
    // A number that is not granted.
    let here = attach(&domain.path).unwrap();
    struct Nothing;
    impl Protocol for Nothing {}
    let mine = here.kernel().add_protocol("mine", "mine", Nothing);
    let ip = here.find("ip").unwrap().id();
    here.kernel().numbers_mut().override_pair(mine.id(), ip, 6);
    let refused = here.join().expect_err("that is TCP's").to_string();
    assert!(refused.contains("`mine` is not granted number 6 on ip"), "{refused}");
}

#[test]
fn a_program_has_one_place_at_a_registry() {
    struct Places;
    impl Protocol for Places {
        fn open(
            &self,
            cx: &Kernel,
            this: &ProtocolRef,
            upper: Upper<'_>,
            _: Participants,
        ) -> Result<SessionRef, OpenError> {
            struct Place;
            impl xk_core::Session for Place {}
            Ok(cx.new_session(this, upper.receiver, Place))
        }
    }
    let domain = Domain::open("places", |kernel| {
        vec![Grant::new(&kernel.add_protocol("registry", "registry", Places))]
    });
    let here = attach(&domain.path).unwrap();
    let registry = here.find("registry").unwrap().clone();
    let opened = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&opened);
    let _program = Program::start(&here, move |cx, this| {
        for _ in 0..3 {
            let place = registry.open(cx, Upper::new(this), Participants::default());
            seen.borrow_mut().push(place.map(drop));
        }
        Ok(())
    });
    let refused = Err(OpenError::NotPermitted);
    assert_eq!(*opened.borrow(), [Ok(()), refused, refused]);
}

#[test]
fn other_users_are_sent_away_and_one_user_has_a_share() {
    let of_others = |kernel: &Kernel| {
        let uid = Some(rustix::process::geteuid().as_raw() + 1);
        vec![Grant { uid, ..Grant::new(&kernel.find_protocol("udp").unwrap()) }]
    };
    let domain = Domain::open("others", of_others);
    let refused = attach(&domain.path).map(drop).expect_err("another user's");
    assert!(matches!(refused, AttachError::Link(_)), "{refused}");
    drop(domain);
    let domain = Domain::open("share", all);
    let mut programs: Vec<Attached> =
        (0..PROGRAMS_OF_A_USER_MAX).map(|_| attach(&domain.path).expect("within")).collect();
    assert!(attach(&domain.path).is_err(), "one too many");
    domain.until(|seen| seen.sent_away.load(Ordering::Relaxed) > 0);
    programs.pop();
    xk_testkit::await_that!(STEP_TIME_MAX, attach(&domain.path).is_ok(), "there is room again");
}

/// Work of a program, on a shepherd of its kernel.
type Does<T> = fn(&Kernel) -> T;

/// A program that waits for what it does: what it does runs on a shepherd of its kernel.
struct Task<T> {
    act: Cell<Option<Does<T>>>,
    done: Rc<Cell<Option<T>>>,
}

impl<T: 'static> Protocol for Task<T> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        cx.schedule_protocol(this, Duration::ZERO, 0).map(drop).map_err(|_| OpenError::Full)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        self.done.set(self.act.take().map(|act| act(cx)));
    }
}

/// Runs `act` in a program with these protocols of its own, and returns its result.
fn perform<T: 'static>(here: &Attached, act: Does<T>) -> T {
    let done = Rc::new(Cell::new(None));
    let task = Task { act: Cell::new(Some(act)), done: Rc::clone(&done) };
    here.kernel().add_protocol("task", "task", task);
    here.join().expect("it may join");
    let runner = Runner::new(Rc::clone(here.kernel()), Idle::Sleep).expect("a loop");
    runner.start().unwrap_or_else(|(_, error)| panic!("{error}"));
    let (answer, seen) = (Rc::new(Cell::new(None)), Rc::clone(&done));
    let shown = Rc::clone(&answer);
    let finished = move |_: &Kernel| match seen.take() {
        Some(done) => {
            shown.set(Some(done));
            true
        }
        None => false,
    };
    runner.run(Some(STEP_TIME_MAX), Rc::new(finished)).unwrap();
    answer.take().expect("it is done in time")
}

/// The domain of a program that asks for datagrams and streams.
const TRANSPORTS: &str = r#"
host lab {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    udp ip
    tcp ip
    echo udp port=7
    echo tcp port=7 name=streams
}
"#;

/// Asks by BSD's sockets; what is granted, and what is not.
fn by_sockets(cx: &Kernel) -> [Vec<u8>; 2] {
    let bsd = Bsd::of(cx).unwrap();
    let at = |port| Sockaddr::inet(bsd.mbufs().release(), [10, 0, 0, 1].into(), port);
    let named = |port| at(port).to_mbuf(bsd.mbufs()).unwrap();
    let make = |kind| socreate(cx, &bsd, AF_INET, kind, 0).unwrap();
    let (datagrams, stream) = (make(Sock::Dgram), make(Sock::Stream));
    assert!(sobind(cx, &datagrams, &mut named(4999)).is_err(), "no such port is granted");
    sobind(cx, &datagrams, &mut named(5100)).unwrap();
    sendto(cx, &datagrams, b"a datagram", Some(at(7))).unwrap();
    let mut room = [0; 64];
    let (len, from) = recvfrom(cx, &datagrams, &mut room).unwrap();
    assert_eq!(from, Some(at(7)));
    let datagram = room[..len].to_vec();
    sobind(cx, &stream, &mut named(5101)).unwrap();
    soconnect(cx, &stream, &mut named(7)).unwrap();
    sosend(cx, &stream, None, Uio::Octets(b"a stream"), None, 0).unwrap();
    let got = soreceive(cx, &stream, Sink::Octets(&mut room), 0).unwrap();
    for so in [datagrams, stream] {
        soclose(cx, &so).unwrap();
    }
    [datagram, room[..got.len].to_vec()]
}

/// Asks by the transport interface.
fn by_tli(cx: &Kernel) -> [Vec<u8>; 2] {
    let streams = Streams::of(cx).unwrap();
    let at = |port: u16| {
        let mut octets = [AF_INET, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        octets[2..4].copy_from_slice(&port.to_be_bytes());
        octets
    };
    let open = |driver| Endpoint::open(cx, &streams, driver).unwrap().0;
    let (datagrams, stream) = (open("tli/udp"), open("tli/tcp"));
    assert!(datagrams.bind(cx, Some(&at(4999)), 0).is_err(), "no such port is granted");
    datagrams.bind(cx, Some(&at(5100)), 0).unwrap();
    datagrams.sndudata(cx, &at(7), &[], b"a datagram").unwrap();
    let unit = datagrams.rcvudata(cx, Maxima::ALL).unwrap();
    assert_eq!(*unit.addr, at(7));
    stream.bind(cx, Some(&at(5101)), 0).unwrap();
    stream.connect(cx, &at(7), &[], &[]).unwrap();
    stream.snd(cx, b"a stream", 0).unwrap();
    let got = stream.rcv(cx, 64).unwrap().0;
    for end in [datagrams, stream] {
        end.close(cx).unwrap();
    }
    [unit.data, got]
}

#[test]
fn programs_use_the_interfaces_of_frameworks_on_what_they_are_granted() {
    let grants = |kernel: &Kernel| {
        let of = |name| Grant::new(&kernel.find_protocol(name).unwrap());
        ["udp", "tcp"].map(|name| Grant { ports: Some(5000..=5999), ..of(name) }).into()
    };
    let domain = Domain::of(TRANSPORTS, "frameworks", grants);
    type Add = fn(&Kernel, &[ProtocolRef]) -> Result<ProtocolRef, BuildError>;
    let ways: [(Add, Does<[Vec<u8>; 2]>); 2] =
        [(xk_adapters::add_sockets, by_sockets), (xk_adapters::add_tli, by_tli)];
    for (add, act) in ways {
        let here = attach(&domain.path).expect("it is let in");
        let lowers = ["udp", "tcp"].map(|name| here.find(name).expect("it is granted").clone());
        add(here.kernel(), &lowers).expect("it stands there");
        assert_eq!(perform(&here, act), [b"a datagram".to_vec(), b"a stream".to_vec()]);
    }
}

/// A host of AppleTalk on a network of two, each a UDP socket of a loopback address of its own.
fn apple(own: u8, uppers: &str) -> String {
    let (pid, peer) = (std::process::id(), own ^ 1);
    let [.., a, b] = pid.to_be_bytes();
    format!(
        r#"host apple{own} {{
            host-eth local="127.{a}.{b}.{own}:47891" peer="127.{a}.{b}.{peer}:47891"
            eth host-eth
            aarp eth
            ddp aarp net="10-19" node={own}
            atp ddp
            {uppers}
        }}"#
    )
}

/// Calls the procedure behind a socket on its node.
fn call(cx: &Kernel, peer: Participant, octets: &[u8]) -> Vec<u8> {
    let [atp, task] = ["atp", "task"].map(|name| cx.find_protocol(name).expect("it is there"));
    let ends = pair(Participant::of(Part::Any), peer);
    let session = atp.open(cx, Upper::new(&task), ends).expect("it leads there");
    let reply = session.call(cx, cx.pool().copy_from(128, octets).unwrap()).expect("a reply");
    reply.octets().collect()
}

/// Finds a name of another host, and calls what has it.
fn by_name(cx: &Kernel) -> (String, Vec<u8>) {
    let nbp = cx.find_protocol("nbp").expect("it is granted");
    let lookup =
        || nbp.ask(cx, NbpLookup { name: "adder:XKernel@*".into(), ..NbpLookup::default() });
    let found = (0..20).find_map(|_| lookup()?.found.pop()).expect("it is found");
    // What changes or shows what others have.
    let name = NbpRegister { name: "mine:XKernel@*".into(), socket: 140, ..NbpRegister::default() };
    assert!(nbp.ask(cx, name).is_none());
    assert!(nbp.ask(cx, xk_nbp::NbpTable::default()).is_none());
    let at = socket(found.net, found.node, found.socket);
    (found.name, call(cx, at, b"by name"))
}

/// Serves at a socket: its replies are the requests backwards.
struct Backwards;

impl Protocol for Backwards {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let atp = cx.find_protocol("atp").ok_or(OpenError::NoLower)?;
        let local = Participant::of(Part::Number(SOCKET, 150));
        atp.open_enable(cx, Upper::new(this), Participants::local(local)).map(drop)
    }

    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static xk_core::Reason> {
        Ok(())
    }

    fn call_demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, request: Message) -> Served {
        let mut octets: Vec<u8> = request.octets().collect();
        octets.reverse();
        Ok(cx.pool().copy_from(128, &octets).expect("room"))
    }
}

#[test]
fn programs_find_call_and_serve_sockets_of_appletalk() {
    let grants = |kernel: &Kernel| {
        let of = |name| Some(Grant::new(&kernel.find_protocol(name)?));
        ["atp", "nbp"].into_iter().filter_map(of).collect()
    };
    let uppers = "procedures atp at=socket140 procedure=1
nbp ddp { register \"adder:XKernel\" socket=140; }";
    let asked = Domain::of(&apple(16, uppers), "apple-asked", grants);
    let asking = Domain::of(&apple(17, "nbp ddp interval=\"200ms\""), "apple-asking", grants);
    let here = attach(&asking.path).expect("it is let in");
    assert_eq!(perform(&here, by_name), ("adder:XKernel@*".into(), b"by name".to_vec()));
    drop(here);
    // A program of the one host serves one of the other.
    let (path, stop) = (asked.path.clone(), Arc::new(AtomicBool::new(false)));
    let (ends, (ready, is_ready)) = (Arc::clone(&stop), std::sync::mpsc::channel());
    let serves = std::thread::spawn(move || {
        let here = attach(&path).expect("it is let in");
        here.kernel().add_protocol("backwards", "backwards", Backwards);
        here.join().expect("it may join");
        let runner = Runner::new(Rc::clone(here.kernel()), Idle::Sleep).expect("a loop");
        runner.start().unwrap_or_else(|(_, error)| panic!("{error}"));
        ready.send(()).unwrap();
        while !ends.load(Ordering::Relaxed) {
            runner.run(Some(Duration::from_millis(5)), Rc::new(|_| false)).unwrap();
        }
    });
    is_ready.recv().unwrap();
    let here = attach(&asking.path).expect("it is let in");
    let reply = perform(&here, |cx| call(cx, socket(10, 16, 150), b"forwards"));
    assert_eq!(reply, b"sdrawrof");
    stop.store(true, Ordering::Relaxed);
    serves.join().unwrap();
}

/// Environment variable with the path of the domain; set by the test that starts the program.
const PATH: &str = "XK_ATTACH_PATH";

/// The program that is killed: sends and takes until its end.
#[test]
#[ignore = "a program that the tests start"]
fn program() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let here = attach(Path::new(&path)).unwrap();
    let udp = here.find("udp").unwrap().clone();
    let program = Program::start(&here, move |cx, this| {
        let _enable =
            udp.open_enable(cx, Upper::new(this), Participants::local(end(5001, [10, 0, 0, 1])))?;
        for port in 5002..5040 {
            let ends = pair(end(port, [10, 0, 0, 1]), end(7, [10, 0, 0, 1]));
            let session = udp.open(cx, Upper::new(this), ends)?;
            for _ in 0..20 {
                let _ = session.push(cx, cx.pool().copy_from(128, &[7; 700]).unwrap());
            }
        }
        Ok(())
    });
    println!("attached");
    loop {
        let _ = program.until_came(10);
    }
}

fn start(path: &Path) -> Child {
    let itself = std::env::current_exe().unwrap();
    Command::new(itself)
        .args(["--exact", "program", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PATH, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn nothing_is_left_of_a_program_that_is_killed() {
    let domain = Domain::open("killed", all);
    domain.until(|seen| seen.protocols.load(Ordering::Relaxed) == 6);
    let mut pool = Vec::new();
    for round in 0..6_u64 {
        let mut program = start(&domain.path);
        if round > 0 {
            // Desk, and its protocol.
            domain.until(|seen| seen.protocols.load(Ordering::Relaxed) == 8);
            std::thread::sleep(Duration::from_millis(round * 3));
        }
        kill_process(Pid::from_child(&program), Signal::KILL).unwrap();
        program.wait().unwrap();
        domain.until(|seen| seen.protocols.load(Ordering::Relaxed) == 6);
        pool.push(domain.seen.pool.load(Ordering::Relaxed));
        // Its ports are free, and others go on.
        echoes(&attach(&domain.path).unwrap(), 5002 + round, b"still here");
    }
    println!("buffers in use after each: {pool:?}");
}
