//! smoltcp as the peer of `tcp`, on the `sim` wire and in virtual time, in both roles and over bad
//! links. A seed replays.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
use xk_core::kernel::Timer;
use xk_core::object::{OpenError, Popped};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Time, Upper,
};

/// Octets that go each way.
const OCTETS: usize = 150_000;
/// Octets of smoltcp's buffers.
const BUFFER: usize = 32_768;
/// Room in front of a frame.
const HEADROOM: usize = 64;
/// smoltcp's station on the link.
const STATION: [u8; 6] = [2, 0, 0, 0, 9, 9];
/// No run takes longer, in virtual time.
const LIMIT: Time = Time::from_s(3600);

/// The octet at `at` of what smoltcp sends.
fn octet(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// smoltcp's end of the wire: what arrived and what is to go.
#[derive(Default)]
struct Frames {
    arrived: VecDeque<Vec<u8>>,
    leaving: Rc<RefCell<VecDeque<Vec<u8>>>>,
}

struct Arrived(Vec<u8>);
struct Leaving(Rc<RefCell<VecDeque<Vec<u8>>>>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Leaving {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.borrow_mut().push_back(frame);
        result
    }
}

impl Device for Frames {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving)> {
        let frame = self.arrived.pop_front()?;
        Some((Arrived(frame), Leaving(Rc::clone(&self.leaving))))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving> {
        Some(Leaving(Rc::clone(&self.leaving)))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

/// Role of smoltcp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Connects, sends [`OCTETS`] and expects them back.
    Asks,
    /// Sends back everything that comes.
    Answers,
}

struct Stack {
    frames: Frames,
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: SocketHandle,
    role: Role,
    sent: usize,
    received: usize,
    /// Octets that came and were not sent back yet.
    pending: VecDeque<u8>,
    is_over: bool,
}

fn instant(now: Time) -> Instant {
    Instant::from_micros((now.as_ns() / 1000) as i64)
}

impl Stack {
    fn new(role: Role, seed: u64) -> Self {
        let mut frames = Frames::default();
        let mut config = Config::new(EthernetAddress(STATION).into());
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut frames, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            let _ = list.push(IpCidr::new(IpAddress::v4(10, 0, 0, 1), 24));
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        match role {
            Role::Asks => {
                let to = (IpAddress::v4(10, 0, 0, 2), 7);
                socket.connect(interface.context(), to, 50_000).unwrap();
            }
            Role::Answers => socket.listen(7).unwrap(),
        }
        let mut sockets = SocketSet::new(vec![]);
        let tcp = sockets.add(socket);
        Self {
            frames,
            interface,
            sockets,
            tcp,
            role,
            sent: 0,
            received: 0,
            pending: VecDeque::new(),
            is_over: false,
        }
    }

    /// Sends and takes what it can; false if that was nothing.
    fn act(&mut self) -> bool {
        let socket: &mut tcp::Socket<'_> = self.sockets.get_mut(self.tcp);
        let before = (self.sent, self.received, self.is_over);
        while socket.can_recv() {
            let taken = socket.recv(|octets| (octets.len(), octets.to_vec()));
            for octet_taken in taken.unwrap() {
                if self.role == Role::Asks {
                    assert_eq!(octet_taken, octet(self.received), "at {}", self.received);
                } else {
                    self.pending.push_back(octet_taken);
                }
                self.received += 1;
            }
        }
        while socket.can_send() {
            let (sent, pending) = (self.sent, &mut self.pending);
            let role = self.role;
            let count = socket.send(|room| {
                let mut count = 0;
                for place in room {
                    *place = match role {
                        Role::Asks if sent + count < OCTETS => octet(sent + count),
                        Role::Asks => break,
                        Role::Answers => match pending.pop_front() {
                            Some(next) => next,
                            None => break,
                        },
                    };
                    count += 1;
                }
                (count, count)
            });
            self.sent += count.unwrap();
            if count == Ok(0) {
                break;
            }
        }
        let is_done = match self.role {
            Role::Asks => self.sent == OCTETS,
            Role::Answers => socket.state() == tcp::State::CloseWait && self.sent == self.received,
        };
        if is_done {
            socket.close();
        }
        let is_ended = !socket.may_recv() && !socket.may_send();
        self.is_over |= is_ended && self.sent > 0;
        before != (self.sent, self.received, self.is_over)
    }
}

/// smoltcp as a protocol on a wire of ours.
struct Peer {
    wire: ProtocolRef,
    session: RefCell<Option<SessionRef>>,
    stack: Rc<RefCell<Stack>>,
    timer: Cell<Option<Timer>>,
}

impl Peer {
    /// Lets smoltcp do what is due, and comes back when it wants to.
    fn turn(&self, cx: &Kernel, this: &ProtocolRef) {
        let now = instant(cx.now());
        let delay = {
            let Stack { frames, interface, sockets, .. } = &mut *self.stack.borrow_mut();
            interface.poll(now, frames, sockets);
            interface.poll_delay(now, sockets)
        };
        let is_busy = self.stack.borrow_mut().act();
        let leaving = Rc::clone(&self.stack.borrow().frames.leaving);
        let session = self.session.borrow().clone().expect("a started wire");
        while let Some(frame) = { leaving.borrow_mut().pop_front() } {
            let message = cx.pool().copy_from(HEADROOM, &frame).expect("a buffer");
            session.push(cx, message).expect("room on the link");
        }
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        let delay = match (is_busy, delay) {
            (true, _) => Some(1),
            (false, delay) => delay.map(|delay| delay.total_micros().max(1)),
        };
        if let Some(micros) = delay {
            let delay = core::time::Duration::from_micros(micros);
            let timer = cx.schedule_protocol(this, delay, 0).expect("a timer");
            self.timer.set(Some(timer));
        }
    }
}

impl Protocol for Peer {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let wire = &self.wire;
        let session = wire.open(cx, Upper::new(this), Participants::default())?;
        *self.session.borrow_mut() = Some(session);
        self.turn(cx, this);
        Ok(())
    }

    fn demux(&self, cx: &Kernel, this: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        let frame = message.octets().collect();
        self.stack.borrow_mut().frames.arrived.push_back(frame);
        self.turn(cx, this);
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.timer.set(None);
        self.turn(cx, this);
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<Report>(|report| {
            let stack = self.stack.borrow();
            report.finished = stack.is_over || stack.role == Role::Answers;
        })
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}

/// Result of a run.
struct Ran {
    sent: usize,
    received: usize,
    is_over: bool,
    until: Time,
    /// Report of xk's upper end.
    lines: Vec<(String, String)>,
}

fn run(role: Role, link: &str, tcp: &str, seed: u64) -> Ran {
    let top = match role {
        Role::Asks => "echo tcp name=top port=7".to_owned(),
        Role::Answers => format!(
            "probe tcp name=top to=\"port7@10.0.0.1\" count=30 interval=\"1ms\" size={} timeout=\"1000s\"",
            OCTETS / 30
        ),
    };
    let graph = format!(
        "link lan kind=switch rate=\"100Mbit\" {link}\n\
         host xk {{\nsim link=lan\neth sim\narp eth\nip arp {{ address \"10.0.0.2/24\"; }}\nicmp ip\ntcp ip {tcp}\n{top}\n}}\n\
         host peer {{\nsim link=lan\n}}\n"
    );
    let graph = check(&graph, "smoltcp.kdl", &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap_or_else(|m| panic!("{}", m.to_text()));
    let stack = Rc::new(RefCell::new(Stack::new(role, seed)));
    let host = world.find("peer").expect("a host");
    let inside = Rc::clone(&stack);
    world.enter(host, |cx| {
        let wire = cx.find_protocol("sim").expect("a wire");
        let peer =
            Peer { wire, session: RefCell::default(), stack: inside, timer: Cell::default() };
        cx.add_protocol("smoltcp", "smoltcp", peer);
    });
    start_world(&graph, &mut world).unwrap_or_else(|m| panic!("{}", m.to_text()));
    world.run_until_finished(LIMIT);
    let until = world.now();
    let ours = world.find("xk").expect("a host");
    let lines = world.enter(ours, |cx| {
        let top = cx.find_protocol("top").expect("an upper end");
        top.ask(cx, Report::default()).expect("a report").lines
    });
    world.stop();
    let stack = stack.borrow();
    Ran {
        sent: stack.sent,
        received: stack.received,
        is_over: stack.is_over,
        until,
        lines: lines.unwrap_or_default(),
    }
}

const LINKS: [&str; 7] = [
    "delay=\"50us\"",
    "delay=\"20ms\"",
    "delay=\"5ms\" loss=\"1%\"",
    "delay=\"5ms\" loss=\"5%\"",
    "delay=\"5ms\" loss=\"20%\"",
    "delay=\"2ms\" reorder=\"10%\" reorder_delay=\"3ms\" duplicate=\"5%\"",
    "delay=\"2ms\" corrupt=\"2%\" jitter=\"4ms\" loss=\"1%\"",
];

fn parameters() -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let ours = ["", "congestion=cubic", "sack=#false window_scale=#false timestamps=#false"];
    LINKS
        .into_iter()
        .flat_map(move |link| ours.map(|tcp| (link, tcp)))
        .zip(1..)
        .map(|((link, tcp), seed)| (link, tcp, seed))
}

#[test]
fn it_asks_and_gets_everything_back() {
    for (link, tcp, seed) in parameters() {
        let ran = run(Role::Asks, link, tcp, seed);
        let (until, lines) = (ran.until, &ran.lines);
        println!("{link} {tcp}: {until}");
        assert_eq!(
            (ran.sent, ran.received, ran.is_over),
            (OCTETS, OCTETS, true),
            "{link} {tcp}, seed {seed}: {lines:?}"
        );
    }
}

#[test]
fn it_answers_what_ours_asks() {
    for (link, tcp, seed) in parameters() {
        let ran = run(Role::Answers, link, tcp, seed);
        println!("{link} {tcp}: {}", ran.until);
        let figure = |name: &str| {
            let line = ran.lines.iter().find(|(given, _)| given == name);
            line.map(|(_, value)| value.clone())
        };
        assert_eq!(ran.received, OCTETS, "{link} {tcp}, seed {seed}");
        assert_eq!(
            (figure("received").as_deref(), figure("corrupt").as_deref()),
            (Some("30"), Some("0")),
            "{link} {tcp}, seed {seed}: {:?}",
            ran.lines
        );
    }
}
