//! Two hosts in one kernel, in virtual time, each with a whole stack, and a network between them
//! that loses, repeats and delays.

use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::graph::Params;
use xk_core::object::{CallError, Enable, OpenError, Refused};
use xk_core::reason::Reason;
use xk_core::shepherd::{Flow, Semaphore};
use xk_core::{Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::rpc::call::{BAD_ARGUMENTS, MyProcedure, NO_PROCEDURE};
use xk_run::switch::CoroutineSwitch;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, octets};

pub(crate) const PROGRAM: u32 = 0x2000_0001;
pub(crate) const PORT: u16 = 2049;

pub(crate) fn host(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

/// Faults of the network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Messages lost, of a thousand.
    pub(crate) loss: u64,
    /// Messages that come twice, of a thousand.
    pub(crate) duplicate: u64,
    /// Messages that come later than those behind them, of a thousand.
    pub(crate) late: u64,
}

/// Action of a server on a request.
type Act = Rc<dyn Fn(&Kernel, u32, &Message) -> Option<&'static Reason>>;

/// A server: procedure 1 gives back what it got, 2 takes nothing and refuses anything else, 3 waits
/// for ten milliseconds; others there are not.
pub(crate) struct Server {
    lower: ProtocolRef,
    local: String,
    pub(crate) executed: Cell<u64>,
    pub(crate) act: RefCell<Option<Act>>,
    /// Reply of procedure 1, in place of its argument.
    pub(crate) results: RefCell<Option<Vec<u8>>>,
    pub(crate) enable: Cell<Option<Enable>>,
}

pub(crate) struct ServerProtocol(pub(crate) Rc<Server>);

impl Protocol for ServerProtocol {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(self.0.local.parse::<xk_core::Participant>().unwrap());
        let enable = self.0.lower.open_enable(cx, Upper::new(this), local)?;
        self.0.enable.set(Some(enable));
        Ok(())
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let procedure = lower.ask(cx, MyProcedure::default()).unwrap();
        lower.head().set_tag(procedure.number);
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let procedure = lower.head().tag();
        let act = self.0.act.borrow().clone();
        if let Some(reason) = act.and_then(|act| act(cx, procedure, &request)) {
            return Err(this.refuse(request, reason));
        }
        match procedure {
            1 => {}
            2 if request.is_empty() => {}
            2 => return Err(this.refuse(request, &BAD_ARGUMENTS)),
            3 => {
                let never = Semaphore::new(0);
                let _ = cx.wait(&never, Some(Duration::from_millis(10)));
            }
            _ => return Err(this.refuse(request, &NO_PROCEDURE)),
        }
        self.0.executed.set(self.0.executed.get() + 1);
        if let Some(results) = &*self.0.results.borrow() {
            return Ok(cx.pool().copy_from(128, results).unwrap());
        }
        Ok(request)
    }
}

struct Client;
impl Protocol for Client {}

/// Something to be done on a shepherd of its own.
type Job = Box<dyn FnOnce()>;

/// Two hosts.
pub(crate) struct Net {
    pub(crate) cx: TestKernel,
    /// The bottoms of the client's stack and of the server's.
    pub(crate) ends: [Bottom; 2],
    /// The uppermost layers of both stacks.
    pub(crate) tops: [ProtocolRef; 2],
    pub(crate) client: ProtocolRef,
    pub(crate) server: Rc<Server>,
    pub(crate) faults: Cell<Faults>,
    /// Every message that was sent, with its sender.
    pub(crate) wire: RefCell<Vec<(usize, Vec<u8>)>>,
    late: RefCell<VecDeque<(usize, Message)>>,
    jobs: RefCell<VecDeque<Job>>,
    open: Rc<Cell<usize>>,
}

/// Builds a stack upon the layer below.
pub(crate) type Build = dyn Fn(&Kernel, &str, ProtocolRef) -> ProtocolRef;

/// UDP, with its defaults.
pub(crate) fn udp(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    xk_udp::ENTRY.add(cx, name, &[below], &Params::default()).expect("it is built")
}

/// The stack that the rest of the world speaks.
pub(crate) fn classic(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let udp = udp(cx, &format!("udp-{name}"), below);
    over(cx, name, udp, xk_reqrep::Settings::default())
}

/// The upper part of the stack.
pub(crate) fn over(
    cx: &Kernel,
    name: &str,
    below: ProtocolRef,
    settings: xk_reqrep::Settings,
) -> ProtocolRef {
    let reqrep = xk_reqrep::add(cx, &format!("reqrep-{name}"), below, settings);
    let select = xk_sunselect::add(
        cx,
        &format!("sunselect-{name}"),
        reqrep,
        xk_sunselect::Settings::default(),
    );
    let settings = xk_sunprog::Settings::default();
    let prog = xk_sunprog::add(cx, &format!("sunprog-{name}"), select.clone(), &[], settings);
    cx.numbers_mut().override_pair(prog.id(), select.id(), 0);
    prog
}

impl Net {
    pub(crate) fn new(seed: u64, build: &Build) -> Rc<Self> {
        let local = format!("version1@program{PROGRAM}@port{PORT}");
        Self::with(seed, build, [1, 2].map(|n| Lower::host(host(n), 17)), &local)
    }

    /// As above, with other things below, and a server of this participant.
    pub(crate) fn with(seed: u64, build: &Build, below: [Lower; 2], local: &str) -> Rc<Self> {
        let cx = TestKernel::with_switch(seed, Box::new(CoroutineSwitch::new()));
        let [a, b] = below;
        let ends = [Bottom::add(&cx, "below-client", a), Bottom::add(&cx, "below-server", b)];
        let tops = [
            build(&cx, "client", ends[0].protocol().clone()),
            build(&cx, "server", ends[1].protocol().clone()),
        ];
        let server = Rc::new(Server {
            lower: tops[1].clone(),
            local: local.into(),
            executed: Cell::new(0),
            act: RefCell::default(),
            results: RefCell::default(),
            enable: Cell::new(None),
        });
        cx.add_protocol("server", "server", ServerProtocol(Rc::clone(&server)));
        let client = cx.add_protocol("client", "client", Client);
        cx.start().unwrap();
        Rc::new(Self {
            cx,
            ends,
            tops,
            client,
            server,
            faults: Cell::default(),
            wire: RefCell::default(),
            late: RefCell::default(),
            jobs: RefCell::default(),
            open: Rc::new(Cell::new(0)),
        })
    }

    /// A session to procedure `procedure` of the server.
    pub(crate) fn open(&self, procedure: u32) -> SessionRef {
        self.open_as(&format!(
            "*, procedure{procedure}@version1@program{PROGRAM}@port{PORT}@10.0.0.2"
        ))
    }

    pub(crate) fn open_as(&self, participants: &str) -> SessionRef {
        let participants = participants.parse().unwrap();
        self.tops[0].open(&self.cx, Upper::new(&self.client), participants).unwrap()
    }

    /// Has something done on a shepherd when [`Net::run`] is called.
    pub(crate) fn then(self: &Rc<Self>, job: impl FnOnce(&Net) + 'static) {
        let net = Rc::clone(self);
        self.open.set(self.open.get() + 1);
        self.jobs.borrow_mut().push_back(Box::new(move || {
            job(&net);
            net.open.set(net.open.get() - 1);
        }));
    }

    /// As above, before everything else.
    pub(crate) fn then_first(self: &Rc<Self>, job: impl FnOnce(&Net) + 'static) {
        self.then(job);
        self.jobs.borrow_mut().rotate_right(1);
    }

    /// Calls, and runs until there is an answer.
    pub(crate) fn call(
        self: &Rc<Self>,
        session: &SessionRef,
        arguments: &[u8],
    ) -> Result<Vec<u8>, CallError> {
        let result = Rc::new(RefCell::new(None));
        let (to, session, arguments) = (Rc::clone(&result), session.clone(), arguments.to_vec());
        self.then(move |net| {
            let reply = session.call(&net.cx, net.cx.message(&arguments));
            *to.borrow_mut() = Some(reply.map(|reply| octets(&reply)));
        });
        self.run();
        result.take().expect("the call has ended")
    }

    /// Lets everything happen until all jobs are done.
    pub(crate) fn run(self: &Rc<Self>) {
        let net = Rc::clone(self);
        let body = Rc::new(move || net.step());
        self.cx.shepherds().run(body).expect("a shepherd");
    }

    fn step(&self) -> Flow {
        let job = self.jobs.borrow_mut().pop_front();
        if let Some(job) = job {
            job();
            return Flow::Continue;
        }
        if self.carry() {
            return Flow::Continue;
        }
        // A shepherd that goes on now does so before time passes.
        if self.cx.shepherds().has_ready() {
            return Flow::Continue;
        }
        if self.open.get() == 0 {
            return Flow::Stop;
        }
        if let Some(next) = self.cx.next_expiry() {
            self.cx.set_now(next);
            self.cx.run_due();
        }
        Flow::Continue
    }

    /// Carries what was sent, and answers whether there was anything.
    pub(crate) fn carry(&self) -> bool {
        for (from, end) in self.ends.iter().enumerate() {
            for sent in end.take_sent() {
                self.wire.borrow_mut().push((from, octets(&sent.message)));
                self.put(from, sent.message);
            }
        }
        let next = self.late.borrow_mut().pop_front();
        let Some((from, message)) = next else {
            return false;
        };
        let peer = match self.ends[from].lower().addressing {
            xk_testkit::kernel::Addressing::Link => None,
            _ => self.ends[from].lower().own(),
        };
        // Attributes and headroom stay where they were, as on a real wire.
        let message = self.cx.message(&octets(&message));
        self.ends[1 - from].inject(&self.cx, peer, message);
        true
    }

    fn put(&self, from: usize, message: Message) {
        let Faults { loss, duplicate, late } = self.faults.get();
        let chance = |of| self.cx.random().below(1000) < of;
        if chance(loss) {
            return;
        }
        let mut queue = self.late.borrow_mut();
        if chance(duplicate) {
            queue.push_back((from, message.try_clone().unwrap()));
        }
        if chance(late) {
            let at = self.cx.random().below(queue.len() as u64 + 1) as usize;
            queue.insert(at, (from, message));
        } else {
            queue.push_back((from, message));
        }
    }

    /// Lets a datagram with this payload arrive at the server from port 1023 of host 1, and gives
    /// the payload of the answer.
    pub(crate) fn datagram(self: &Rc<Self>, payload: &[u8]) -> Option<Vec<u8>> {
        self.datagram_from(1023, payload)
    }

    pub(crate) fn datagram_from(self: &Rc<Self>, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
        self.datagram_of(Part::host(host(1)), (port, PORT), payload)
    }

    /// As above, at another port of the server.
    pub(crate) fn datagram_at(self: &Rc<Self>, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
        self.datagram_of(Part::host(host(1)), (1023, port), payload)
    }

    /// As above, from any host.
    pub(crate) fn datagram_of(
        self: &Rc<Self>,
        peer: Part,
        (from, to): (u16, u16),
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let len = payload.len() as u16 + 8;
        // Without a checksum, which UDP allows.
        let mut octets_sent: Vec<u8> =
            [from, to, len, 0].into_iter().flat_map(u16::to_be_bytes).collect();
        octets_sent.extend(payload);
        let before = self.wire.borrow().len();
        self.then(move |net| {
            let message = net.cx.message(&octets_sent);
            net.ends[1].inject(&net.cx, Some(peer), message);
        });
        self.run();
        let wire = self.wire.borrow();
        let answer = wire.iter().skip(before).find(|(from, _)| *from == 1)?;
        Some(answer.1[8..].to_vec())
    }

    pub(crate) fn drops(&self, protocol: &str, reason: &Reason) -> u64 {
        let found = self.cx.find_protocol(protocol).expect("a protocol");
        found.head().drops().of(reason)
    }

    /// Takes everything down; nothing may be left.
    pub(crate) fn finish(self: &Rc<Self>) {
        self.cx.stop();
        self.late.borrow_mut().clear();
        drop(self.ends[0].take_sent());
        drop(self.ends[1].take_sent());
        assert_eq!(self.cx.live(), (0, 0), "no message is left");
    }
}

/// Words in network order.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
