//! Calls through adapters, whose requests and replies are datagrams with options on ATP of another
//! subsystem: each comes to an end, of its own, whatever is full or gone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_appletalk::atp::{Options, ReleaseTimer, Want};
use xk_bsd::Bsd;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::object::{CallCause, CallError, OpenError, PushError, Served};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Time,
    Upper,
};
use xk_kit::rpc::call::Transaction;
use xk_sim::World;
use xk_streams::Streams;

/// Subsystems with an ATP below adapters.
const OTHERS: [&str; 2] = ["bsd", "streams"];

fn source(subsystem: &str, bounds: &str) -> String {
    let host = |name: &str, node: u8| {
        format!(
            "host {name} {{ sim link=lan; subsystem {subsystem} {bounds} {{ ether sim; \
             ddp ether net=\"10-19\" node={node}; atp ddp; }}; tracer atp; }}\n"
        )
    };
    format!("{}{}link lan delay=\"1ms\"\n", host("client", 17), host("server", 18))
}

/// Executes: takes its time, and replies with the request.
struct Server {
    lower: ProtocolRef,
    log: Rc<Log>,
}

#[derive(Default)]
struct Log {
    takes: Cell<Duration>,
    results: RefCell<Vec<Result<Vec<u8>, CallCause>>>,
}

impl Protocol for Server {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for socket in ["socket140", "socket141"] {
            let local = Participants::local(parsed(socket));
            let _ = self.lower.open_enable(cx, Upper::new(this), local)?;
        }
        Ok(())
    }

    fn call_demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, request: Message) -> Served {
        if !self.log.takes.get().is_zero() {
            let _ = cx.wait(&Semaphore::new(0), Some(self.log.takes.get()));
        }
        // The request itself is the reply, with what came beside it.
        Ok(request)
    }
}

fn parsed(text: &str) -> Participant {
    text.parse().expect("a participant")
}

struct Client;

impl Protocol for Client {}

struct Rig {
    world: World,
    client: ProtocolRef,
    log: Rc<Log>,
}

impl Rig {
    fn new(source: &str) -> Self {
        let graph: CheckedGraph = check(source, "calls", &xk_catalog::standard())
            .unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
        let mut world =
            simulate(&graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{e}"));
        let log = Rc::new(Log::default());
        let lower = |world: &World, host: &str| {
            let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
            kernel.find_protocol("tracer").unwrap()
        };
        let server = Server { lower: lower(&world, "server"), log: Rc::clone(&log) };
        let kernel = |host: &str| world.find(host).and_then(|id| world.kernel(id)).unwrap();
        kernel("server").add_protocol("procedures", "app", server);
        let client = kernel("client").add_protocol("caller", "app", Client);
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{}", e.to_text()));
        world.run_until(Time::ZERO + Duration::from_secs(5));
        Self { world, client, log }
    }

    fn open(&self, socket: u8) -> SessionRef {
        let cx = self.kernel("client");
        let lower = cx.find_protocol("tracer").unwrap();
        let to = parsed(&format!("socket{socket}@node18@net10"));
        let ends = Participants::pair(parsed("*@*@*"), to);
        lower.open(cx, Upper::new(&self.client), ends).expect("a session")
    }

    fn kernel(&self, host: &str) -> &Kernel {
        self.world.find(host).and_then(|id| self.world.kernel(id)).unwrap()
    }

    /// Makes a call on a shepherd of its own; what came of it is among the results.
    fn call(&mut self, session: &SessionRef, request: Vec<u8>) {
        let (session, log) = (session.clone(), Rc::clone(&self.log));
        let client = self.world.find("client").unwrap();
        self.world.spawn(client, move |cx| {
            let result = call_once(cx, &session, &request);
            let result = result.map_err(|error| error.cause);
            log.results.borrow_mut().push(result);
        });
    }

    fn run(&mut self, seconds: u64) -> Vec<Result<Vec<u8>, CallCause>> {
        let until = self.world.now().after(Duration::from_secs(seconds));
        self.world.run_until(until);
        self.log.results.take()
    }
}

/// Exactly once, eight tries, one each second.
fn call_once(cx: &Kernel, session: &SessionRef, request: &[u8]) -> Result<Vec<u8>, CallError> {
    let mut message = cx.pool().copy_from(64, request)?;
    let (once, interval) = (Some(ReleaseTimer::HalfMinute), Duration::from_secs(1));
    let want = Want { once, interval, tries: 8.try_into().ok(), ..Want::DEFAULT };
    let options = Options::request(&want, 0).emit();
    message.set_attribute(Transaction(options)).map_err(|_| PushError::NoBuffers)?;
    session.call(cx, message).map(|reply| reply.octets().collect())
}

/// One request that cannot go ends its own call, and no other of the session or of the peer.
#[test]
fn an_error_of_one_call_is_no_other_calls() {
    for of in OTHERS {
        let mut rig = Rig::new(&source(of, ""));
        rig.log.takes.set(Duration::from_millis(300));
        let session = rig.open(140);
        let other = rig.open(140);
        rig.call(&session, vec![1; 45]);
        rig.call(&other, vec![2; 45]);
        rig.call(&session, vec![3; 579]);
        let results = rig.run(30);
        let too_big = Err(CallCause::Push(PushError::TooBig));
        assert_eq!(results[0], too_big, "{of}");
        let mut replies: Vec<_> = results.into_iter().skip(1).collect();
        replies.sort_by_key(|reply| reply.clone().ok());
        assert_eq!(replies, [Ok(vec![1; 45]), Ok(vec![2; 45])], "{of}");
    }
}

/// The protocol below says that it has given up, and finds no buffer for that: the call ends all
/// the same.
#[test]
fn a_call_ends_when_there_are_no_buffers_to_say_so() {
    for (of, bounds) in [("bsd", "mbufs=64"), ("streams", "blocks_max=64")] {
        let mut rig = Rig::new(&source(of, bounds));
        rig.log.takes.set(Duration::from_millis(300));
        let session = rig.open(140);
        rig.call(&session, vec![1; 45]);
        let (mut mbufs, mut blocks) = (Vec::new(), Vec::new());
        if let Some(bsd) = Bsd::of(rig.kernel("client")) {
            while let Ok(m) = bsd.mbufs().m_get(xk_bsd::Mt::Data) {
                mbufs.push(m);
            }
        }
        if let Some(streams) = Streams::of(rig.kernel("client")) {
            while let Some(mp) = streams.blocks().copy(xk_streams::Kind::PcProto, 0, &[1; 4]) {
                blocks.push(mp);
            }
        }
        let results = rig.run(60);
        assert!(matches!(results[..], [Err(CallCause::TimedOut { .. })]), "{of}: {results:?}");
        drop((mbufs, blocks));
        rig.call(&session, vec![2; 45]);
        assert_eq!(rig.run(30), [Ok(vec![2; 45])], "{of}: it goes on");
    }
}

/// Each offer answers from its own socket.
#[test]
fn two_offers_answer_each_from_its_own_socket() {
    for of in OTHERS {
        let mut rig = Rig::new(&source(of, ""));
        let sessions = [140, 141].map(|socket| rig.open(socket));
        for (n, session) in (0..).zip(&sessions) {
            rig.call(session, vec![n; 45]);
        }
        let mut results = rig.run(30);
        results.sort_by_key(|reply| reply.clone().ok());
        assert_eq!(results, [Ok(vec![0; 45]), Ok(vec![1; 45])], "{of}");
    }
}

/// Sessions are opened until there is no port, socket or stream left, which is said as such; closed
/// ones leave room for as many again.
#[test]
fn doors_are_bounded_and_come_back() {
    const IP: &str = "ip ether { address \"10.0.0.1/24\"; }; udp ip";
    const DDP: &str = "ddp ether net=\"10-19\" node=17; atp ddp";
    let on_xk = "eth sim; arp eth; ip arp { address \"10.0.0.1/24\"; }; \
                 subsystem streams { udp ip; }";
    for (lines, lower, to) in [
        (format!("subsystem bsd {{ ether sim; {DDP}; }}"), "atp", "socket140@node18@net10"),
        (format!("subsystem streams {{ ether sim; {DDP}; }}"), "atp", "socket140@node18@net10"),
        (format!("subsystem bsd {{ ether sim; {IP}; }}"), "udp", "port7@10.0.0.2"),
        (on_xk.to_owned(), "udp", "port7@10.0.0.2"),
    ] {
        let source = format!("host h {{ sim link=lan; {lines}; tracer {lower}; }}\nlink lan\n");
        let graph = check(&source, "doors", &xk_catalog::standard())
            .unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
        let mut world =
            simulate(&graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{e}"));
        let kernel = |world: &World| Rc::clone(world.kernel(world.find("h").unwrap()).unwrap());
        let client = kernel(&world).add_protocol("caller", "app", Client);
        let number = kernel(&world).find_protocol("tracer").unwrap().id();
        kernel(&world).numbers_mut().override_pair(client.id(), number, 9);
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{}", e.to_text()));
        world.run_until(Time::ZERO + Duration::from_secs(5));
        let cx = kernel(&world);
        let tracer = cx.find_protocol("tracer").unwrap();
        let open = || {
            let local = Participant::of(Part::Any);
            let ends = Participants::pair(local, parsed(to));
            tracer.open(&cx, Upper::new(&client), ends)
        };
        let mut counts = Vec::new();
        for _ in 0..2 {
            let mut sessions = Vec::new();
            let refused = loop {
                match open() {
                    Ok(session) => sessions.push(session),
                    Err(error) => break error,
                }
                assert!(sessions.len() < 5000, "{lines}: no bound");
            };
            assert_eq!(refused, OpenError::Full, "{lines} after {}", sessions.len());
            counts.push(sessions.len());
            sessions.iter().for_each(|session| session.close(&cx));
            drop(sessions);
        }
        assert!(counts[0] > 100 && counts[0] == counts[1], "{lines}: {counts:?}");
    }
}
