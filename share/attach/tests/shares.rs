//! Programs of many users at one door, in one thread: what each may have of what all share, and
//! what is left of those that have gone.
//!
//! `XK_LONG=1` has 100,000 programs come and go, which send ten million datagrams.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

use xk_attach::{Attached, Door, Grant, PROGRAMS_OF_A_USER_MAX, Visitors};
use xk_core::graph::{Params, Value};
use xk_core::object::{OpenError, USER_SHARE};
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef};
use xk_share::{Carrier, Known, Queue};
use xk_shm::Peer;
use xk_testkit::conformance::{CountingAllocator, counts_allocations, octets_live};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// How many sessions and enables a transport holds here.
const TABLE: usize = 64;
const SHARE: usize = TABLE / USER_SHARE;
/// Frames under way each way.
const SLOTS: usize = 512;
/// Ports of a program's first session and enable.
const PORT: u16 = 5000;

/// Programs that have come to the door, and whose they are.
type Come = Rc<RefCell<VecDeque<(Queue, u32)>>>;

struct Coming(Come);

impl Visitors for Coming {
    fn next(&mut self, room: bool) -> Option<(Box<dyn Carrier>, Peer)> {
        let (queue, uid) = self.0.borrow_mut().pop_front().filter(|_| room)?;
        Some((Box::new(queue), Peer { uid, gid: uid, pid: 77 }))
    }
}

/// Two transports with a door above.
struct Host {
    cx: TestKernel,
    bottoms: [Bottom; 2],
    transports: [ProtocolRef; 2],
    door: Rc<ProtocolRef>,
    come: Come,
}

fn known() -> Known {
    Known::of(&[&xk_udp::ENTRY, &xk_tcp::ENTRY])
}

/// Lets the door look at what there is.
fn look(cx: &Kernel, door: &ProtocolRef) {
    let wire = door.wire().expect("a door is looked after");
    wire.poll(cx, door, usize::MAX);
    wire.flush(cx, door);
}

impl Host {
    fn new() -> Self {
        let cx = TestKernel::new(1);
        let mut params = Params::default();
        for name in ["sessions_max", "enables_max"] {
            params.set(name, Value::Integer(TABLE as i64));
        }
        let bottoms = [17, 6].map(|number| {
            let bottom = Bottom::add(&cx, &format!("below {number}"), Lower::host(OWN, number));
            bottom.keep(false);
            bottom
        });
        let entries = [&xk_udp::ENTRY, &xk_tcp::ENTRY];
        let transports = [0, 1].map(|at| {
            let lowers = [bottoms[at].protocol().clone()];
            entries[at].add(&cx, entries[at].kind, &lowers, &params).expect("it is built")
        });
        let come = Come::default();
        let grants = transports.iter().map(Grant::new).collect();
        let door = Door::add(&cx, "door", Box::new(Coming(Rc::clone(&come))), grants, known);
        cx.start().expect("all start");
        Self { cx, bottoms, transports, door: Rc::new(door), come }
    }

    /// A program of a user, with one protocol.
    fn program(&self, uid: u32) -> Option<Program> {
        let (here, there) = Queue::pair(SLOTS);
        let cx = self.cx.share();
        there.on_put(&self.door, move |door, _| look(&cx, door));
        self.come.borrow_mut().push_back((here, uid));
        self.cx.advance(core::time::Duration::from_millis(20));
        look(&self.cx, &self.door);
        let kernel = TestKernel::small(1, 1 << 20, 16);
        let entries = [&xk_udp::ENTRY, &xk_tcp::ENTRY];
        let attached = Attached::through(Box::new(there.clone()), kernel.share(), &entries).ok()?;
        let own = Top::add(attached.kernel(), "own");
        own.forget(true);
        attached.join().expect("it may join");
        Some(Program { attached, own, end: there })
    }

    /// All that its transports hold of others.
    fn held(&self) -> [usize; 4] {
        let [udp, tcp] = &self.bottoms;
        [udp.held().len(), tcp.held().len(), udp.enables(), tcp.enables()]
    }
}

struct Program {
    attached: Attached,
    own: Top,
    end: Queue,
}

fn end(host: Ipv4Addr, port: u16) -> Participant {
    Participant::of(Part::host(host)).with(Part::port(port))
}

impl Program {
    fn kernel(&self) -> &Kernel {
        self.attached.kernel()
    }

    fn node(&self, name: &str) -> &ProtocolRef {
        self.attached.find(name).expect("it is granted")
    }

    fn open(&self, node: &str, port: u16) -> Result<xk_core::SessionRef, OpenError> {
        let ends = Participants::pair(end(OWN, port), end(PEER, 9));
        self.own.open(self.kernel(), self.node(node), ends)
    }

    fn enable(&self, node: &str, port: u16) -> Result<(), OpenError> {
        let local = Participants::local(Participant::of(Part::Any).with(Part::port(port)));
        self.own.enable(self.kernel(), self.node(node), local).map(drop)
    }

    fn enable_at(&self, node: &str, host: Ipv4Addr, port: u16) -> Result<(), OpenError> {
        let local = Participants::local(end(host, port));
        self.own.enable(self.kernel(), self.node(node), local).map(drop)
    }

    /// Goes, as if it were killed.
    fn goes(self, host: &Host) {
        self.end.close();
        look(&host.cx, &host.door);
        self.kernel().stop();
    }
}

#[test]
fn a_user_has_a_share_of_each_table_whatever_its_programs_do() {
    let host = Host::new();
    let hostile: Vec<Program> = (0..3).map(|_| host.program(1234).unwrap()).collect();
    let honest = host.program(2000).unwrap();
    for node in ["udp", "tcp"] {
        let count = |act: &dyn Fn(&Program, u16) -> bool| {
            let ports = PORT..PORT + 2 * TABLE as u16;
            ports.zip(hostile.iter().cycle()).filter(|(port, program)| act(program, *port)).count()
        };
        assert_eq!(count(&|program, port| program.open(node, port).is_ok()), SHARE, "{node}");
        assert_eq!(count(&|program, port| program.enable(node, port).is_ok()), SHARE, "{node}");
        let port = PORT + 1000;
        assert!(honest.open(node, port).is_ok() && honest.enable(node, port).is_ok(), "{node}");
        // And the host itself.
        let top = Top::add(&host.cx, "top");
        let transport = host.transports.iter().find(|of| of.name() == node).unwrap();
        for port in 0..SHARE as u16 + 1 {
            let ends = Participants::pair(end(OWN, 7000 + port), end(PEER, 9));
            assert!(top.open(&host.cx, transport, ends).is_ok(), "{node}");
        }
    }
    // What has gone makes room for others of its user.
    let mut hostile = hostile.into_iter();
    hostile.next().unwrap().goes(&host);
    let left = hostile.next().unwrap();
    assert!(left.open("udp", PORT + 500).is_ok() && left.enable("udp", PORT + 500).is_ok());
}

#[test]
fn a_port_is_of_the_user_that_has_it_whatever_the_host() {
    let host = Host::new();
    let (first, other) = (host.program(2000).unwrap(), host.program(1234).unwrap());
    let again = host.program(2000).unwrap();
    let top = Top::add(&host.cx, "top");
    for node in ["udp", "tcp"] {
        first.enable(node, PORT).expect("it is free");
        assert_eq!(other.enable_at(node, OWN, PORT), Err(OpenError::InUse), "{node}");
        assert_eq!(other.open(node, PORT).map(drop), Err(OpenError::InUse), "{node}");
        assert!(again.enable_at(node, OWN, PORT).is_ok(), "{node}: of the same user");
        // The other way round.
        other.enable_at(node, OWN, PORT + 1).expect("it is free");
        assert_eq!(first.enable(node, PORT + 1), Err(OpenError::InUse), "{node}");
        // A port of the host's own.
        let transport = host.transports.iter().find(|of| of.name() == node).unwrap();
        let local = Participants::local(Participant::of(Part::Any).with(Part::port(PORT + 2)));
        let _held = top.enable(&host.cx, transport, local).expect("it is free");
        assert_eq!(other.enable_at(node, OWN, PORT + 2), Err(OpenError::InUse), "{node}");
        assert_eq!(other.open(node, PORT + 2).map(drop), Err(OpenError::InUse), "{node}");
    }
    first.goes(&host);
    again.goes(&host);
    for node in ["udp", "tcp"] {
        assert!(other.enable_at(node, OWN, PORT).is_ok(), "{node}: nobody has it any more");
    }
}

#[test]
fn a_user_has_a_share_of_the_places_at_a_door() {
    let host = Host::new();
    let hostile = (0..2 * PROGRAMS_OF_A_USER_MAX).filter_map(|_| host.program(1234));
    let hostile: Vec<Program> = hostile.collect();
    assert_eq!(hostile.len(), PROGRAMS_OF_A_USER_MAX);
    assert!(host.program(2000).is_some());
}

#[test]
fn nothing_grows_with_the_programs_that_have_come_and_gone() {
    assert!(counts_allocations(), "octets are counted");
    let (programs, datagrams) = match std::env::var_os("XK_LONG") {
        Some(_) => (100_000, 100),
        None => (3000, 4),
    };
    let host = Host::new();
    let (mut before, mut nothing) = (0, host.held());
    let protocols = host.cx.protocols().len();
    for number in 0..programs {
        if number == programs / 4 {
            (before, nothing) = (octets_live(), host.held());
        }
        let program = host.program(1000 + number % 3).expect("it is let in");
        for node in ["udp", "tcp"] {
            // The one in the middle goes first.
            let sessions: Vec<_> = (0..3).map(|at| program.open(node, PORT + at)).collect();
            program.enable(node, PORT).expect("within its share");
            let sessions: Vec<_> = sessions.into_iter().map(Result::unwrap).collect();
            if node == "udp" {
                for _ in 0..datagrams {
                    let datagram = program.kernel().pool().copy_from(128, b"to a peer").unwrap();
                    sessions[0].push(program.kernel(), datagram).expect("it crosses");
                }
            }
            sessions[1].close(program.kernel());
        }
        program.goes(&host);
    }
    assert_eq!(host.held(), nothing, "as with the first quarter of them");
    assert_eq!(host.cx.protocols().len(), protocols);
    assert!(host.bottoms[0].sent() >= programs as u64 * datagrams, "datagrams are sent");
    let grown = octets_live() - before;
    println!("{programs} programs, {} datagrams: {grown} octets more", host.bottoms[0].sent());
    // A few lists and pools grow once more; a clock of each would be a megabyte at the least.
    assert!(grown < 192 << 10, "{grown} octets more than after a quarter of them");
}
