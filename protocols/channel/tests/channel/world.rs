//! A client and a server, each on a kernel of its own, and a network between them that does what a
//! test says.

use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use xk_channel::{ChannelFigures, Limits};
use xk_core::graph::Params;
use xk_core::kernel::Timer;
use xk_core::numbers::Number;
use xk_core::object::{CallError, PushError};
use xk_core::{Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

/// Kind of the layer below the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// Hosts.
    Hosts,
    /// FRAGMENT over hosts.
    Fragment,
    /// A link.
    Link,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Fate of a packet: the delay of each copy that arrives.
pub(crate) type Fate = Vec<Duration>;

/// Decides on packet number `n` from 0, of those that go one way.
pub(crate) type Network = Rc<dyn Fn(Way, usize, &[u8]) -> Fate>;

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const NUMBER: u32 = 0x65;

/// Does nothing but be there, so that the client's clock stops where the server's must.
struct Ticker;
impl Protocol for Ticker {}

/// One host.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) cx: Rc<TestKernel>,
    pub(crate) bottom: Bottom,
    pub(crate) channel: ProtocolRef,
    pub(crate) top: Top,
}

impl Node {
    pub(crate) fn new(seed: u64, below: Below, own: Ipv4Addr, limits: Limits) -> Self {
        let fragment = xk_catalog::find("fragment").expect("it is in the catalog");
        let cx = Rc::new(TestKernel::with_stacks(seed));
        let numbers = xk_channel::ENTRY.type_numbers();
        for number in numbers.chain(fragment.type_numbers()) {
            cx.numbers_mut().add(number).expect("numbers that agree");
        }
        let number = Number { upper: "top", lower: "channel", number: NUMBER };
        cx.numbers_mut().add(number).expect("a number of its own");
        let lower = match below {
            Below::Link => Lower::link(1500),
            _ => Lower::host(own, 102),
        };
        let bottom = Bottom::add(&cx, "bottom", lower);
        let fragment = (below == Below::Fragment).then(|| {
            fragment
                .add(&cx, "fragment", std::slice::from_ref(bottom.protocol()), &Params::default())
                .expect("it is built")
        });
        let lower = fragment.as_ref().unwrap_or(bottom.protocol()).clone();
        let channel = xk_channel::add(&cx, "channel", lower, limits);
        let top = Top::add(&cx, "top");
        cx.start().expect("it starts");
        let _ = top.enable(&cx, &channel, Participants::local(Part::Any)).expect("it is enabled");
        Self { cx, bottom, channel, top }
    }

    pub(crate) fn figures(&self) -> ChannelFigures {
        let figures = self.channel.ask(&self.cx, ChannelFigures::default());
        figures.expect("figures")
    }
}

/// A packet on its way.
struct Flying {
    at: u64,
    way: Way,
    octets: Vec<u8>,
}

struct State {
    below: Below,
    limits: Limits,
    client: Node,
    server: RefCell<Node>,
    ticker: ProtocolRef,
    tick: Cell<Option<Timer>>,
    network: RefCell<Network>,
    counts: [Cell<usize>; 2],
    /// Questions for fragments, and fragments sent again.
    asked: [Cell<usize>; 2],
    flying: RefCell<VecDeque<Flying>>,
    seeds: Cell<u64>,
}

/// Both, and the network.
#[derive(Clone)]
pub(crate) struct World(Rc<State>);

/// A network without faults.
pub(crate) fn perfect() -> Network {
    Rc::new(|_, _, _| vec![Duration::ZERO])
}

/// A network that loses these packets of one way.
pub(crate) fn losing(way: Way, lost: Vec<usize>) -> Network {
    Rc::new(
        move |w, n, _| {
            if w == way && lost.contains(&n) { Vec::new() } else { vec![Duration::ZERO] }
        },
    )
}

impl World {
    pub(crate) fn new(seed: u64, below: Below) -> Self {
        Self::with(seed, below, Limits::default())
    }

    pub(crate) fn with(seed: u64, below: Below, limits: Limits) -> Self {
        let client = Node::new(2 * seed + 1, below, CLIENT, limits);
        let ticker = client.cx.add_protocol("ticker", "ticker", Ticker);
        Self(Rc::new(State {
            below,
            limits,
            server: RefCell::new(Node::new(2 * seed + 2, below, SERVER, limits)),
            client,
            ticker,
            tick: Cell::new(None),
            network: RefCell::new(perfect()),
            counts: Default::default(),
            asked: Default::default(),
            flying: RefCell::default(),
            seeds: Cell::new(seed.wrapping_mul(7919)),
        }))
    }

    pub(crate) fn client(&self) -> &Node {
        &self.0.client
    }

    pub(crate) fn server(&self) -> Node {
        self.0.server.borrow().clone()
    }

    /// Another network from now on; packets are counted from 0.
    pub(crate) fn set_network(&self, network: Network) {
        let before = self.0.network.replace(network);
        drop(before);
        self.0.counts.iter().for_each(|count| count.set(0));
    }

    /// Number of packets that went so far.
    pub(crate) fn count(&self, way: Way) -> usize {
        self.0.counts[way as usize].get()
    }

    /// Number of questions for fragments, and of fragments that were sent again.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let [nacks, again] = &self.0.asked;
        (nacks.get(), again.get())
    }

    /// The server forgets all and starts again, under another boot id; its clock goes on.
    pub(crate) fn reboot_server(&self) {
        let state = &self.0;
        state.seeds.set(state.seeds.get() + 1_000_003);
        let node = Node::new(state.seeds.get(), state.below, SERVER, state.limits);
        node.cx.set_now(state.client.cx.now());
        let before = state.server.replace(node);
        before.cx.stop();
    }

    pub(crate) fn open(&self) -> SessionRef {
        let client = &self.0.client;
        let to = match self.0.below {
            Below::Link => Participants::default(),
            _ => Participants::pair(Part::Any, Part::host(SERVER)),
        };
        let opened = client.top.open(&client.cx, &client.channel, to);
        opened.expect("a channel")
    }

    pub(crate) fn message(&self, octets: &[u8]) -> Message {
        self.0.client.cx.message(octets)
    }

    /// Makes calls at the same time, each on its session.
    pub(crate) fn call_all(
        &self,
        calls: Vec<(SessionRef, Message)>,
    ) -> Vec<Result<Message, CallError>> {
        let world = self.clone();
        let carry = move |_: &Kernel| world.carry();
        self.0.client.cx.call_all_carried(calls, carry)
    }

    pub(crate) fn call(&self, session: &SessionRef, octets: &[u8]) -> Result<Vec<u8>, CallError> {
        let calls = vec![(session.clone(), self.message(octets))];
        let end = self.call_all(calls).pop().expect("one call");
        end.map(|reply| self::octets(&reply))
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        let world = self.clone();
        let carry = move |_: &Kernel| world.carry();
        let sleep: xk_testkit::kernel::Task = Box::new(move |cx: &Kernel| {
            let never = xk_core::shepherd::Semaphore::new(0);
            assert!(cx.wait(&never, Some(time)).is_err());
        });
        let ended = self.0.client.cx.run_tasks(time + time, vec![sleep], carry);
        assert!(ended, "time passes");
    }

    /// Moves what is below to the other side, as the network says.
    pub(crate) fn carry(&self) -> usize {
        let state = &self.0;
        let server = self.server();
        let now = state.client.cx.now();
        server.cx.set_now(now);
        let fired = server.cx.run_due();
        let mut moved = fired;
        for (way, node) in [(Way::ToServer, &state.client), (Way::ToClient, &server)] {
            for sent in node.bottom.take_sent() {
                moved += 1;
                self.send(way, octets(&sent.message), now.as_ns());
            }
        }
        loop {
            let mut flying = state.flying.borrow_mut();
            let due = flying.iter().position(|f| f.at <= now.as_ns());
            let Some(packet) = due.and_then(|due| flying.remove(due)) else {
                break;
            };
            drop(flying);
            moved += 1;
            self.deliver(packet);
            if state.client.cx.must_leave() {
                return moved;
            }
        }
        self.set_tick(&server);
        moved
    }

    fn send(&self, way: Way, octets: Vec<u8>, now: u64) {
        let state = &self.0;
        let count = &state.counts[way as usize];
        let number = count.replace(count.get() + 1);
        if state.below == Below::Fragment
            && let kind @ 2.. = octets[0]
        {
            let asked = &state.asked[usize::from(kind == 3)];
            asked.set(asked.get() + 1);
        }
        let network = Rc::clone(&state.network.borrow());
        for delay in network(way, number, &octets) {
            let at = now + delay.as_nanos() as u64;
            state.flying.borrow_mut().push_back(Flying { at, way, octets: octets.clone() });
        }
    }

    /// Lets a packet arrive.
    fn deliver(&self, packet: Flying) {
        self.inject(packet.way, &packet.octets);
    }

    pub(crate) fn inject(&self, way: Way, octets: &[u8]) {
        let server = self.server();
        let (node, from) = match way {
            Way::ToServer => (&server, CLIENT),
            Way::ToClient => (&self.0.client, SERVER),
        };
        let peer = (self.0.below != Below::Link).then_some(Part::host(from));
        // What is refused is counted where it is refused.
        let _ = node.bottom.inject(&node.cx, peer, node.cx.message(octets));
    }

    /// Has the client's clock stop where something is due at the server or on the way.
    fn set_tick(&self, server: &Node) {
        let state = &self.0;
        let now = state.client.cx.now();
        let flying = state.flying.borrow().iter().map(|f| f.at).min();
        let timer = server.cx.next_expiry().map(|t| t.as_ns());
        let next = [flying, timer].into_iter().flatten().min();
        if let Some(timer) = state.tick.take() {
            state.client.cx.cancel(timer);
        }
        if let Some(next) = next {
            let delay = Duration::from_nanos(next.saturating_sub(now.as_ns()));
            let timer = state.client.cx.schedule_protocol(&state.ticker, delay, 0);
            state.tick.set(timer.ok());
        }
    }

    /// Takes everything down and looks that nothing is left.
    pub(crate) fn finish(&self) {
        let server = self.server();
        self.0.client.cx.finish();
        server.cx.finish();
        assert_eq!(self.0.client.cx.live(), (0, 0), "nothing is left of the client");
        assert_eq!(server.cx.live(), (0, 0), "nothing is left of the server");
    }
}

/// `len` octets that tell calls apart.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(0x9e37)) as u8)
        .collect()
}

/// The error that a failing push gives.
pub(crate) fn is_too_big(error: &CallError) -> bool {
    matches!(error.cause, xk_core::object::CallCause::Push(PushError::TooBig))
}
