//! Two hosts on a simulated link: one with its device, a registry and programs in kernels of their
//! own, and an ordinary peer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::control::{Describe, Kind, ListSessions, Listed, Report};
use xk_core::graph::{Params, Value};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::ProtocolId;
use xk_core::random::Random;
use xk_core::shepherd::{Limits, Shepherds};
use xk_core::{Kernel, Message, Pool, ProtocolRef, Time};
use xk_domains::{
    Arrival, Carrier, Known, Port, Queue, SendError, add_port, lower_proxy, upper_proxy,
};
use xk_netio::{Module, Rate};
use xk_registry::Program;
use xk_run::switch::CoroutineSwitch;
use xk_sim::{HostId, LinkConfig, LinkKind, World};

use crate::app::{App, Plan};

/// The host with the registry.
pub(crate) const HERE: [u8; 4] = [10, 0, 0, 1];
/// A host behind a router.
const FAR: [u8; 4] = [10, 0, 1, 2];
/// Address of the peer.
pub(crate) const THERE: [u8; 4] = [10, 0, 0, 2];
const TIME_WAIT: Duration = Duration::from_secs(10);
/// Frames under way between two kernels of a host.
const SLOTS: usize = 1024;
/// Operations of a cut, as octets.
const OPEN: u8 = 1;
const ASK_PROTOCOL: u8 = 21;
const ASK_SESSION: u8 = 22;
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };

fn entry(kind: &str) -> &'static xk_core::Entry {
    xk_catalog::find(kind).expect("it is in the catalog")
}

/// A node of this kind, with the defaults of a graph and what `set` sets.
fn node<'a>(
    cx: &Kernel,
    kind: &str,
    lowers: impl IntoIterator<Item = &'a ProtocolRef>,
    set: impl Fn(&mut Params),
) -> ProtocolRef {
    named(cx, (kind, kind), lowers, set)
}

/// A node of this kind and name.
fn named<'a>(
    cx: &Kernel,
    (kind, name): (&str, &str),
    lowers: impl IntoIterator<Item = &'a ProtocolRef>,
    set: impl Fn(&mut Params),
) -> ProtocolRef {
    let entry = entry(kind);
    for number in entry.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let mut params = Params::default();
    set(&mut params);
    let lowers: Vec<_> = lowers.into_iter().cloned().collect();
    entry.add(cx, name, &lowers, &params).expect("it is built")
}

fn sim(cx: &Kernel) -> ProtocolRef {
    node(cx, "sim", None, |params| params.set("link", Value::Text("lan".into())))
}

/// A block with one argument.
fn block(
    params: &mut Params,
    name: &'static str,
    key: &'static str,
    text: &str,
    more: &[(&'static str, &str)],
) {
    let mut block = Params::default();
    block.set(key, Value::Text(text.into()));
    for (key, text) in more {
        block.set(key, Value::Text((*text).into()));
    }
    params.add_block(name, block);
}

/// Ethernet, ARP, IP and ICMP above a wire, for a host of this address that reaches others by the
/// router.
fn net(cx: &Kernel, wire: &ProtocolRef, host: [u8; 4], router: Option<&str>) -> ProtocolRef {
    let eth = node(cx, "eth", Some(wire), |_| {});
    let arp = node(cx, "arp", Some(&eth), |_| {});
    let ip = node(cx, "ip", Some(&arp), |params| {
        let [a, b, c, d] = host;
        block(params, "address", "address", &format!("{a}.{b}.{c}.{d}/24"), &[]);
        if let Some(router) = router {
            block(params, "route", "network", "default", &[("via", router)]);
        }
        if host == HERE {
            // What a program's own has by default is other.
            params.set("ttl", Value::Integer(33));
            params.set("mtu", Value::Integer(1300));
        }
    });
    node(cx, "icmp", Some(&ip), |_| {});
    ip
}

/// [`net`], TCP and UDP.
fn stack(cx: &Kernel, wire: &ProtocolRef, host: [u8; 4], router: &str) -> [ProtocolRef; 2] {
    let ip = net(cx, wire, host, Some(router));
    let time_wait = |params: &mut Params| params.set("time_wait", Value::Duration(TIME_WAIT));
    [node(cx, "tcp", Some(&ip), time_wait), node(cx, "udp", Some(&ip), |_| {})]
}

/// The kernel of a registry, and what it is made of.
pub(crate) struct Trusted {
    pub(crate) id: HostId,
    pub(crate) tcp: ProtocolRef,
    pub(crate) udp: ProtocolRef,
    pub(crate) registry: ProtocolRef,
    /// Port towards the device.
    below: Rc<Port>,
    /// Frames that it has sent there.
    pub(crate) sent: Sent,
}

/// The kernel that has the device.
pub(crate) struct Device {
    pub(crate) id: HostId,
    pub(crate) module: Rc<Module>,
}

/// A program's kernel, and what stands there for the registry's transports and for the registry.
pub(crate) struct Seat {
    pub(crate) id: HostId,
    pub(crate) cx: Rc<Kernel>,
    pub(crate) far: ProtocolRef,
    pub(crate) far_udp: ProtocolRef,
    pub(crate) registry: ProtocolRef,
    /// Frames that it has sent to the registry.
    pub(crate) sent: Sent,
}

/// A program's kernel.
pub(crate) struct Member {
    pub(crate) id: HostId,
    pub(crate) app: App,
    pub(crate) library: ProtocolRef,
    pub(crate) datagrams: ProtocolRef,
    /// Frames that it has sent to the registry.
    pub(crate) sent: Sent,
    program: Rc<Program>,
}

/// A protocol's report as text, empty without one.
fn said_by(cx: &Kernel, protocol: &ProtocolRef) -> String {
    let lines = protocol.ask(cx, Report::default()).unwrap_or_default().lines;
    let lines: Vec<String> = lines.iter().map(|(name, value)| format!("{name} {value}")).collect();
    lines.join(", ")
}

/// All of it.
pub(crate) struct Hosts {
    pub(crate) world: World,
    pub(crate) pool: Pool,
    pub(crate) device: Device,
    pub(crate) trusted: Trusted,
    /// The device's way to the registry.
    above: Rc<Port>,
    pub(crate) peer: (HostId, ProtocolRef, App),
    chance: Random,
    /// The programs so far.
    programs: usize,
    last: Option<HostId>,
    /// Time until which programs read nothing that the registry sends.
    stalled: Rc<Cell<Time>>,
}

fn kernel(world: &World, name: &str) -> Kernel {
    let limits = Limits { shepherds_max: 64, ..Limits::default() };
    let shepherds = Shepherds::new(Box::new(CoroutineSwitch::new()), limits);
    let config: Config = world.host_config(name, shepherds, 1 << 16);
    Kernel::new(config)
}

fn queue(chance: &Random) -> (Queue, Queue) {
    let delay = (Duration::from_micros(1), Duration::from_micros(9));
    Queue::delayed(SLOTS, delay, &chance.fork(chance.below(u64::MAX)))
}

/// Frames sent from a side of a cut: the operation, and the first number behind the header.
pub(crate) type Sent = Rc<RefCell<Vec<(u8, u32)>>>;

/// The names of what was sent that is answered, in order.
pub(crate) fn requests(sent: &Sent) -> Vec<&'static str> {
    let shared = || xk_kit::questions::SHARED.iter();
    let all = || xk_registry::QUESTIONS.iter().chain(&xk_netio::QUESTIONS).chain(shared());
    let name = |(op, key): (u8, u32)| match op {
        OPEN => Some("open"),
        ASK_PROTOCOL | ASK_SESSION => {
            let asked = all().find(|question| question.key == key)?;
            (asked.kind != Kind::Tell).then_some(asked.name)
        }
        _ => None,
    };
    sent.take().into_iter().filter_map(name).collect()
}

/// A program's end of its cut, where nothing is read until some time, or the registry's; what it
/// sends is noted.
struct Stalling(Queue, Rc<Cell<Time>>, Sent);

impl Carrier for Stalling {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn frame_octets_max(&self) -> usize {
        self.0.frame_octets_max()
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        let first = body.peek::<4>().map_or(0, |octets| u32::from_le_bytes(*octets));
        self.2.borrow_mut().push((head.first().copied().unwrap_or_default(), first));
        self.0.send(cx, head, body)
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        if cx.now() < self.1.get() { Arrival::Nothing } else { self.0.receive(cx) }
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.0.is_lost(cx)
    }

    fn next_poll(&self) -> Option<Time> {
        self.0.next_poll().map(|at| at.max(self.1.get()))
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Returns a function that cuts a kernel off from others.
fn closing(ends: Vec<Queue>) -> Rc<dyn Fn()> {
    Rc::new(move || ends.iter().for_each(Queue::close))
}

/// Questions and reasons that cross between the module and a registry.
fn known() -> Known {
    Known::of(xk_catalog::PROTOCOLS).with(&xk_netio::QUESTIONS)
}

/// A registry, beside a transport, in a kernel of its own, on the module of `device`.
fn trusted(
    world: &mut World,
    device: &Device,
    (up, down): (Queue, Queue),
    netio: ProtocolId,
) -> Trusted {
    let kernel = kernel(world, "registry");
    let id = world.add_host("registry", kernel);
    let cx = Rc::clone(world.kernel(id).expect("a kernel"));
    let sent = Sent::default();
    let end = Stalling(up.clone(), Rc::default(), Rc::clone(&sent));
    let below = Port::new(Box::new(end), known());
    let netio = lower_proxy(&cx, &below, netio, "netio", "netio");
    add_port(&cx, &below, "port");
    world.join([id, device.id], [closing(vec![up]), closing(vec![down])]);
    let [tcp, udp] = stack(&cx, &netio, HERE, "10.0.0.254");
    let registry = xk_registry::add(&cx, "registry", netio, FREELY);
    below.note_user(&registry);
    Trusted { id, tcp, udp, registry, below, sent }
}

/// Adds the proxy of the registry to the kernel that has the device.
fn stand_for(registry: &ProtocolRef, world: &World, (device, above): (HostId, &Rc<Port>)) {
    let cx = world.kernel(device).expect("a kernel");
    upper_proxy(cx, above, registry.id(), "registry", "registry");
}

/// The module on a device, in a kernel that has nothing yet, with a way to the registry.
fn device(world: &World, id: HostId, down: Queue) -> (Device, Rc<Port>, ProtocolId) {
    let cx = Rc::clone(world.kernel(id).expect("a kernel"));
    let (netio, module) = xk_netio::add(&cx, "netio", sim(&cx));
    let above = Port::new(Box::new(down), known());
    above.grant(&netio);
    above.admit(|cx: &Kernel, port: &Rc<Port>, id: ProtocolId| {
        Some(upper_proxy(cx, port, id, "above", "above"))
    });
    add_port(&cx, &above, "port to the registry");
    (Device { id, module }, above, netio.id())
}

impl Hosts {
    pub(crate) fn new(seed: u64, link: LinkConfig, plan: Plan) -> Self {
        let pool = Pool::new(&PoolConfig::with_octets_max(64 << 20)).expect("memory");
        let mut world = World::new(seed, pool.clone());
        world.network().add_link(link).expect("a link");
        let far = LinkConfig::new("far", LinkKind::Hub);
        world.network().add_link(far).expect("a link");

        let id = {
            let kernel = kernel(&world, "here");
            world.add_host("here", kernel)
        };
        let chance = Random::new(seed).fork(7);
        let (up, down) = queue(&chance);
        let (device, above, netio) = device(&world, id, down.clone());
        let trusted = trusted(&mut world, &device, (up, down), netio);
        stand_for(&trusted.registry, &world, (device.id, &above));

        let id = {
            let kernel = kernel(&world, "there");
            world.add_host("there", kernel)
        };
        let cx = Rc::clone(world.kernel(id).expect("a kernel"));
        let [tcp, _] = stack(&cx, &sim(&cx), THERE, "10.0.0.254");
        let app = App::add(&cx, "app", tcp.clone(), plan);
        let peer = (id, tcp, app);
        world.start().unwrap_or_else(|(_, protocol, error)| panic!("{}: {error}", protocol.name()));
        let stalled = Rc::new(Cell::new(Time::ZERO));
        Self { world, pool, device, trusted, above, peer, chance, programs: 0, last: None, stalled }
    }

    /// Adds a program with a library, above which is an application.
    pub(crate) fn program(&mut self, plan: Plan) -> Member {
        let Seat { id, cx, far, far_udp, registry, sent } = self.seat();
        let (frames, module_end) = queue(&self.chance);
        let device_kernel = Rc::clone(self.world.kernel(self.device.id).expect("a kernel"));
        let program = Rc::new(Program::add(&cx, "library", far, registry));
        let (library, leaves) = (program.library().clone(), Rc::clone(&program));
        let datagrams = program.add_datagrams(&cx, "datagrams", far_udp);
        let ends = [closing(vec![frames.clone()]), closing(vec![module_end.clone()])];
        self.world.join([id, self.device.id], ends);
        let module = Rc::clone(&self.device.module);
        let built = Rc::new(std::cell::Cell::new(false));
        let done = Rc::clone(&built);
        self.world.spawn(id, move |cx| {
            let fetch = |_: &Kernel, ticket: &xk_netio::Ticket, _: &str| {
                let fetched = module.attach(&device_kernel, ticket, Box::new(module_end));
                fetched.is_ok().then(|| Box::new(frames) as Box<dyn Carrier>)
            };
            program.build(cx, xk_catalog::PROTOCOLS, fetch).unwrap_or_else(|e| panic!("{e}"));
            done.set(true);
        });
        while !built.get() && self.world.step() {}
        assert!(built.get(), "the program has its stack");
        let app = App::add(&cx, "app", library.clone(), plan);
        self.world.start_host(id).unwrap_or_else(|(p, error)| panic!("{}: {error}", p.name()));
        Member { id, app, library, datagrams, sent, program: leaves }
    }

    /// A program's kernel, with what stands for what it is granted.
    pub(crate) fn seat(&mut self) -> Seat {
        self.programs += 1;
        let name = format!("program {}", self.programs);
        let id = {
            let kernel = kernel(&self.world, &name);
            self.world.add_host(&name, kernel)
        };
        self.last = Some(id);
        let (down, up) = queue(&self.chance);
        let known = || Known::of(xk_catalog::PROTOCOLS).with(&xk_registry::QUESTIONS);
        let below = Port::new(Box::new(up.clone()), known());
        below.grant(&self.trusted.tcp);
        below.grant(&self.trusted.udp);
        below.grant(&self.trusted.registry);
        let of = format!("of {name}");
        below.admit(move |cx: &Kernel, port: &Rc<Port>, id: ProtocolId| {
            Some(upper_proxy(cx, port, id, "program", &of))
        });
        self.world.enter(self.trusted.id, |cx| add_port(cx, &below, &format!("port to {name}")));

        let cx = Rc::clone(self.world.kernel(id).expect("a kernel"));
        let sent = Sent::default();
        let end = Stalling(down.clone(), Rc::clone(&self.stalled), Rc::clone(&sent));
        let above = Port::new(Box::new(end), known());
        let far = lower_proxy(&cx, &above, self.trusted.tcp.id(), "tcp", "far tcp");
        let far_udp = lower_proxy(&cx, &above, self.trusted.udp.id(), "udp", "far udp");
        let registry =
            lower_proxy(&cx, &above, self.trusted.registry.id(), "registry", "far registry");
        add_port(&cx, &above, "port");
        self.world.join([id, self.trusted.id], [closing(vec![down]), closing(vec![up])]);
        Seat { id, cx, far, far_udp, registry, sent }
    }

    /// For so long programs read nothing that the registry sends, as if it were stopped.
    pub(crate) fn stall_registry(&self, time: Duration) {
        self.stalled.set(self.world.now().after(time));
    }

    /// The program leaves what it has closed to the registry: how much it keeps nevertheless.
    pub(crate) fn leave(&mut self, program: &Member) -> usize {
        let left = Rc::new(Cell::new(usize::MAX));
        for _ in 0..1000 {
            let (own, of) = (Rc::clone(&left), Rc::clone(&program.program));
            self.world.spawn(program.id, move |cx| own.set(of.leave(cx)));
            self.run(Duration::from_micros(100));
            if left.get() == 0 {
                break;
            }
        }
        left.get()
    }

    /// The registry dies, by a kill.
    pub(crate) fn kill_registry(&mut self) {
        assert!(self.world.crash(self.trusted.id), "it is there");
    }

    /// Starts the registry again.
    pub(crate) fn start_registry(&mut self) {
        let (up, down) = queue(&self.chance);
        let netio = self.world.kernel(self.device.id).expect("a kernel").find_protocol("netio");
        let netio = netio.expect("a module").id();
        self.trusted = trusted(&mut self.world, &self.device, (up, down.clone()), netio);
        let above = Rc::clone(&self.above);
        self.world.enter(self.device.id, |cx| above.reconnect(cx, Box::new(down)));
        let started = self.world.start_host(self.trusted.id);
        started.unwrap_or_else(|(p, error)| panic!("{}: {error}", p.name()));
    }

    /// The module dies, by a kill.
    pub(crate) fn kill_module(&mut self) {
        assert!(self.world.crash(self.device.id), "it is there");
    }

    /// Starts the module again, below the present registry.
    pub(crate) fn start_module(&mut self) {
        let id = self.device.id;
        let kernel = kernel(&self.world, "here");
        self.world.reboot(id, kernel);
        let (up, down) = queue(&self.chance);
        (self.device, self.above, _) = device(&self.world, id, down.clone());
        stand_for(&self.trusted.registry, &self.world, (id, &self.above));
        let ends = [closing(vec![up.clone()]), closing(vec![down])];
        self.world.join([self.trusted.id, id], ends);
        let started = self.world.start_host(id);
        started.unwrap_or_else(|(p, error)| panic!("{}: {error}", p.name()));
        let below = Rc::clone(&self.trusted.below);
        self.world.enter(self.trusted.id, |cx| below.reconnect(cx, Box::new(up)));
    }

    /// The registry's report as text.
    pub(crate) fn registry_says(&self) -> String {
        let kernel = self.world.kernel(self.trusted.id).expect("a kernel");
        said_by(kernel, &self.trusted.registry)
    }

    /// A router at 10.0.0.254 to another link, for packets of 1000 octets at most.
    pub(crate) fn router(&mut self, name: &str) -> HostId {
        let kernel = kernel(&self.world, name);
        let id = self.world.add_host(name, kernel);
        let cx = Rc::clone(self.world.kernel(id).expect("a kernel"));
        let arp = |link: &str| {
            let at = |kind: &str| format!("{kind} {link}");
            let wire = named(&cx, ("sim", &at("sim")), None, |params| {
                params.set("link", Value::Text(link.into()));
            });
            let eth = named(&cx, ("eth", &at("eth")), Some(&wire), |_| {});
            named(&cx, ("arp", &at("arp")), Some(&eth), |_| {})
        };
        let ip = node(&cx, "ip", &[arp("lan"), arp("far")], |params| {
            params.set("forward", Value::Bool(true));
            params.set("mtu", Value::Integer(1000));
            block(params, "address", "address", "10.0.0.254/24", &[("on", "arp lan")]);
            block(params, "address", "address", "10.0.1.254/24", &[("on", "arp far")]);
        });
        node(&cx, "icmp", Some(&ip), |_| {});
        let started = self.world.start_host(id);
        started.unwrap_or_else(|(p, error)| panic!("{}: {error}", p.name()));
        id
    }

    /// A host behind it, 10.0.1.2, with an application.
    pub(crate) fn far(&mut self, plan: Plan) -> (HostId, App) {
        let kernel = kernel(&self.world, "far");
        let id = self.world.add_host("far", kernel);
        let cx = Rc::clone(self.world.kernel(id).expect("a kernel"));
        let wire = node(&cx, "sim", None, |params| params.set("link", Value::Text("far".into())));
        let [tcp, _] = stack(&cx, &wire, FAR, "10.0.1.254");
        let app = App::add(&cx, "app", tcp, plan);
        let started = self.world.start_host(id);
        started.unwrap_or_else(|(p, error)| panic!("{}: {error}", p.name()));
        (id, app)
    }

    /// Lets so much time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.world.now().after(time);
        self.world.run_until(until);
    }

    /// Number of connections of a TCP.
    pub(crate) fn connections(&self, id: HostId, name: &str) -> usize {
        let kernel = self.world.kernel(id).expect("a kernel");
        let tcp = kernel.find_protocol(name).expect("a protocol");
        tcp.ask(kernel, ListSessions::first(9)).map_or(0, |list| list.total)
    }

    /// The sessions of all hosts.
    pub(crate) fn told(&self) -> String {
        let ids = [Some(self.device.id), Some(self.trusted.id), Some(self.peer.0), self.last];
        let mut told = String::new();
        for kernel in ids.iter().flatten().filter_map(|id| self.world.kernel(*id)) {
            for protocol in kernel.protocols() {
                let said = said_by(kernel, &protocol);
                let drops = protocol.head().drops().list();
                let drops: Vec<_> = drops.iter().map(|(why, n)| (why.name, n)).collect();
                told += &format!("{}: {said} {drops:?}\n", protocol.name());
                let list = protocol.ask(kernel, ListSessions::first(9)).unwrap_or_default();
                for session in list.sessions {
                    let text = match session {
                        Listed::Here(session) => {
                            let asked = session.ask(kernel, Describe::default());
                            asked.map_or_else(String::new, |told| told.text)
                        }
                        Listed::Elsewhere(_) => String::from("elsewhere"),
                    };
                    told += &format!("{}: {text}\n", protocol.name());
                }
            }
        }
        told
    }

    /// Takes all down: nothing is left.
    pub(crate) fn finish(mut self, what: &str) {
        self.world.stop();
        let Self { world, pool, device, trusted, above, peer, .. } = self;
        drop((world, device, trusted, above, peer));
        let left = pool.stats();
        assert_eq!((left.descriptors_live, left.buffers_live), (0, 0), "{what}: messages are left");
    }
}
