//! A host with a door, and programs that have come to it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use xk_attach::{Attached, Door, Grant, Visitors};
use xk_core::graph::{Params, Value};
use xk_core::object::{OpenError, USER_SHARE};
use xk_core::{Entry, Kernel, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_domains::{Carrier, Known, Queue};
use xk_shm::Peer;
use xk_testkit::conformance::CountingAllocator;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

use crate::apple::Anything;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const ENTRIES: [&Entry; 2] = [&xk_udp::ENTRY, &xk_tcp::ENTRY];
/// The protocols whose messages cross.
const KNOWN: [&Entry; 3] = [&xk_udp::ENTRY, &xk_tcp::ENTRY, &xk_atp::ENTRY];
/// Counts the sessions and enables of a transport.
pub(crate) const TABLE: usize = 64;
pub(crate) const SHARE: usize = TABLE / USER_SHARE;
/// The first of the ports that all programs are granted, up to 5999.
pub(crate) const PORT: u16 = 5000;
/// The user of programs that take what they can, and that of those that do not.
pub(crate) const HOSTILE: u32 = 1234;
pub(crate) const HONEST: u32 = 2000;
/// Frames under way each way.
const SLOTS: usize = 512;

/// Programs that have come to the door, and their users.
type Come = Rc<RefCell<VecDeque<(Queue, u32)>>>;

struct Coming(Come);

impl Visitors for Coming {
    fn next(&mut self, room: bool) -> Option<(Box<dyn Carrier>, Peer)> {
        let (queue, uid) = self.0.borrow_mut().pop_front().filter(|_| room)?;
        Some((Box::new(queue), Peer { uid, gid: uid, pid: 77 }))
    }
}

/// Lets the door look at what there is.
pub(crate) fn look(cx: &Kernel, door: &ProtocolRef) {
    let wire = door.wire().expect("a door is looked after");
    wire.poll(cx, door, usize::MAX);
    wire.flush(cx, door);
}

pub(crate) fn end(host: Ipv4Addr, port: u16) -> Participant {
    Participant::of(Part::host(host)).with(Part::port(port))
}

/// Two transports and `atp` with a door above.
pub(crate) struct Host {
    pub(crate) cx: TestKernel,
    pub(crate) bottoms: [Bottom; 2],
    pub(crate) transports: [ProtocolRef; 2],
    pub(crate) door: Rc<ProtocolRef>,
    come: Come,
}

impl Host {
    pub(crate) fn new() -> Self {
        let cx = TestKernel::new(1);
        let mut params = Params::default();
        for name in ["sessions_max", "enables_max"] {
            params.set(name, Value::Integer(TABLE as i64));
        }
        let bottoms = [17, 6]
            .map(|number| Bottom::add(&cx, &format!("below {number}"), Lower::host(OWN, number)));
        let transports = [0, 1].map(|at| {
            let lowers = [bottoms[at].protocol().clone()];
            ENTRIES[at].add(&cx, ENTRIES[at].kind, &lowers, &params).expect("it is built")
        });
        let come = Come::default();
        let grant = |node| Grant { ports: Some(PORT..=5999), ..Grant::new(node) };
        let ddp = cx.add_protocol("ddp", "ddp", Anything);
        let atp = xk_atp::ENTRY.add(&cx, "atp", &[ddp], &Params::default()).expect("it is built");
        let grants = transports.iter().map(grant).chain([Grant::new(&atp)]).collect();
        let known = || Known::of(&KNOWN);
        let door = Door::add(&cx, "door", Box::new(Coming(Rc::clone(&come))), grants, known);
        cx.start().expect("all start");
        Self { cx, bottoms, transports, door: Rc::new(door), come }
    }

    /// A program of a user, with one protocol; `None` if it is not let in.
    pub(crate) fn program(&self, uid: u32) -> Option<Program> {
        let (here, there) = Queue::pair(SLOTS);
        let cx = self.cx.share();
        there.on_put(&self.door, move |door, _| look(&cx, door));
        self.come.borrow_mut().push_back((here, uid));
        self.cx.advance(Duration::from_millis(20));
        look(&self.cx, &self.door);
        let kernel = TestKernel::small(1, 1 << 20, 16);
        let attached = Attached::through(Box::new(there.clone()), kernel.share(), &KNOWN).ok()?;
        let own = Top::add(attached.kernel(), "own");
        own.forget(true);
        attached.join().expect("it may join");
        Some(Program { attached, own, end: there })
    }

    /// A protocol of the host's own.
    pub(crate) fn top(&self, name: &str) -> Top {
        Top::add(&self.cx, name)
    }
}

pub(crate) struct Program {
    attached: Attached,
    own: Top,
    pub(crate) end: Queue,
}

impl Program {
    pub(crate) fn kernel(&self) -> &Kernel {
        self.attached.kernel()
    }

    pub(crate) fn node(&self, name: &str) -> &ProtocolRef {
        self.attached.find(name).expect("it is granted")
    }

    pub(crate) fn open(&self, node: &str, port: u16) -> Result<SessionRef, OpenError> {
        self.open_between(node, end(OWN, port), end(PEER, 9))
    }

    pub(crate) fn open_between(
        &self,
        node: &str,
        local: Participant,
        peer: Participant,
    ) -> Result<SessionRef, OpenError> {
        self.own.open(self.kernel(), self.node(node), Participants::pair(local, peer))
    }

    pub(crate) fn enable(&self, node: &str, port: u16) -> Result<(), OpenError> {
        self.enable_of(node, Participant::of(Part::Any).with(Part::port(port)))
    }

    pub(crate) fn enable_of(&self, node: &str, local: Participant) -> Result<(), OpenError> {
        let local = Participants::local(local);
        self.own.enable(self.kernel(), self.node(node), local).map(drop)
    }

    /// Goes, as if it were killed.
    pub(crate) fn goes(self, host: &Host) {
        self.end.close();
        look(&host.cx, &host.door);
        self.kernel().stop();
    }
}
