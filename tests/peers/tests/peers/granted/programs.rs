//! The programs themselves: this one, begun again as another user.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use xk_attach::Attached;
use xk_core::control::Describe;
use xk_core::graph::{Params, Value};
use xk_core::object::OpenError;
use xk_core::random::Random;
use xk_core::{
    HostAddr, Kernel, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_domains::{Arrival, Carrier};
use xk_kit::Checksum;
use xk_kit::control::{MaxPacket, MyHost};
use xk_kit::net::template::Headers;
use xk_netio::node::Door;
use xk_netio::{FORGED, GrantChannel, GrantRight, REVOKED, Rate, Ticket};
use xk_peers::testbed::{DEVICE, LINUX, OURS};
use xk_run::{Idle, Runner, real_kernel};
use xk_shm::{Link, Options, Peers};

use super::{HONEST_PORT, HOSTILE_NUMBER, HOSTILE_PORT, STATION};

/// The argument with which this program is one of these, before its name.
pub(crate) const ARGUMENT: &str = "--program";
/// A channel that nothing has fetched is granted again so often.
const GRANT_EVERY: Duration = Duration::from_secs(3);
/// The least rate of a channel that no program here reaches.
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
/// Slots of a ring, octets of one, and where those of the side that has asked for the link begin.
const SLOTS: usize = 512;
const SLOT_OCTETS: usize = 128;
const SLOTS_AT: usize = 4096 + SLOTS * SLOT_OCTETS;

pub(super) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// One program's way.
pub(super) struct Program {
    folder: PathBuf,
    until: Instant,
    random: Random,
}

/// Does what a program of these does, if this process is one.
pub(crate) fn run() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [argument, what, folder, seconds] = &arguments[..] else {
        return None;
    };
    if argument != ARGUMENT {
        return None;
    }
    let lasts = Duration::from_secs(seconds.parse().ok()?);
    let random = Random::new(u64::from(std::process::id()));
    let program = Program { folder: folder.into(), until: Instant::now() + lasts, random };
    let outcome = match what.as_str() {
        "answers" => program.answers(),
        "is-sent-away" => program.is_sent_away(),
        "opens" => program.opens(),
        "asks" => program.asks(),
        "hoards" => program.hoards("udp"),
        "hoards-streams" => program.hoards("tcp"),
        "lingers" => program.lingers(),
        "keeps-silent" => program.keeps_silent(),
        "probes" => program.probes(),
        "comes-again" => program.comes_again(),
        "computes" => program.computes(),
        "floods" => program.floods(),
        "is-let-in" => program.is_let_in(),
        "wild-frames" => program.goes_wild(&program.path("door"), Program::frame),
        "wild-rings" => program.goes_wild(&program.path("door"), Program::poke),
        "half-made" => program.comes_and_goes(&program.path("door")),
        "module" => program.is_module(),
        "answers-frames" => program.answers_frames(),
        "forges" => program.forges(),
        "rewrites" => program.rewrites(),
        "wild-channels" => program.pokes_channels(),
        "never-receives" => program.never_receives(),
        "shows-no-ticket" => program.comes_and_goes(&program.path("tickets")),
        _ => Err(format!("no program is `{what}`").into()),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{what}: {error}");
            ExitCode::FAILURE
        }
    })
}

pub(super) fn end(host: &str, port: u16) -> Participant {
    let host: HostAddr = host.parse().unwrap_or_default();
    Participant::of(Part::Host(host)).with(Part::port(port))
}

/// Action of a program's protocol at its start.
type Act = dyn Fn(&Kernel, &ProtocolRef) -> Result<(), OpenError>;

/// A protocol of a program's own, which sends back what comes.
struct Own(Box<Act>);

impl Protocol for Own {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        (self.0)(cx, this)
    }

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: xk_core::Message,
    ) -> Result<(), xk_core::object::Refused> {
        let _ = lower.push(cx, message);
        Ok(())
    }
}

fn options() -> Options {
    Options { peers: Peers::Any, geometry: xk_domains::ring::geometry() }
}

impl Program {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    fn chance(&self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    // ---- at the place where programs attach ----

    /// An honest one: sends back what comes to its port.
    fn answers(&self) -> Outcome {
        let door = self.path("door");
        let stack = xk_net::Setup::attached(door, xk_catalog::PROTOCOLS).here()?;
        let socket = xk_net::UdpSocket::bind(&stack, (OURS, HONEST_PORT))?;
        let mut octets = [0; 1000];
        while self.goes_on() {
            let (count, from) = socket.recv_from(&mut octets)?;
            let _ = socket.send_to(&octets[..count], from);
        }
        Ok(())
    }

    /// One that is granted nothing.
    fn is_sent_away(&self) -> Outcome {
        match xk_attach::attach(self.path("door")) {
            Ok(_) => Err("it was let in".into()),
            Err(error) => {
                println!("{error}");
                Ok(())
            }
        }
    }

    /// Attaches with a protocol that has a number on IP.
    fn attached(
        &self,
        act: impl Fn(&Kernel, &ProtocolRef, &Attached) -> Result<(), OpenError> + 'static,
    ) -> Result<Runner, Box<dyn std::error::Error>> {
        let here = Rc::new(xk_attach::attach(self.path("door"))?);
        let kernel = Rc::clone(here.kernel());
        let number = xk_core::numbers::Number { upper: "own", lower: "ip", number: HOSTILE_NUMBER };
        let _ = kernel.numbers_mut().add(number);
        let of = Rc::clone(&here);
        let own = Own(Box::new(move |cx, this| act(cx, this, &of)));
        kernel.add_protocol("own", "own", own);
        here.join()?;
        let runner = Runner::new(kernel, Idle::Sleep)?;
        runner.start().map_err(|(_, error)| format!("it does not start: {error}"))?;
        Ok(runner)
    }

    /// Opens what is another's, and as much as it can of its own; sends through all of it.
    fn opens(&self) -> Outcome {
        let mut rounds = 0;
        while self.goes_on() {
            rounds += 1;
            let runner = self.attached(move |cx, this, here| {
                let (Some(udp), Some(ip)) = (here.find("udp"), here.find("ip")) else {
                    return Err(OpenError::NoLower);
                };
                let mut held = Vec::new();
                let mut open = |on: &ProtocolRef, own: Participant, peer: Participant| {
                    let opened = on.open(cx, Upper::new(this), Participants::pair(own, peer));
                    held.extend(opened);
                };
                let bare = |host| Participant::of(Part::Host(HostAddr::from(host)));
                let (any, port) = (Participant::of(Part::Any), Participant::of(Part::port(80)));
                for own in [LINUX, "10.9.0.77", "0.0.0.0", "127.0.0.1", "255.255.255.255"] {
                    open(udp, end(own, HOSTILE_PORT), end(LINUX, 9));
                }
                for own in [7, 53, HONEST_PORT, HOSTILE_PORT - 1, 0, u16::MAX] {
                    open(udp, end(OURS, own), end(LINUX, 9));
                }
                open(udp, any.clone(), end(LINUX, 9));
                open(udp, port, end(LINUX, 9));
                open(ip, bare([10, 9, 0, 77]), bare([10, 9, 0, 1]));
                open(ip, bare([10, 9, 0, 1]), bare([10, 9, 0, 1]));
                open(ip, any, bare([10, 9, 0, 1]));
                open(ip, bare([10, 9, 0, 2]), bare([10, 9, 0, 1]));
                for more in 0..200 {
                    open(udp, end(OURS, HOSTILE_PORT + more), end(LINUX, 9 + more));
                }
                for port in [7, 53, HONEST_PORT, HOSTILE_PORT + 900] {
                    let local = Participants::local(end(OURS, port));
                    let _ = udp.open_enable(cx, Upper::new(this), local);
                }
                for session in held {
                    for octets in [0, 1, 100, 1400, 3000] {
                        let Ok(message) = cx.pool().copy_from(128, &vec![b'h'; octets]) else {
                            continue;
                        };
                        let is_large = octets > 1400;
                        // A datagram in fragments is not forged, but looks like it.
                        if !is_large {
                            let _ = session.push(cx, message);
                        }
                    }
                }
                Ok(())
            });
            // Programs come faster than those before are seen to be gone.
            let Ok(runner) = runner else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            runner.run(Some(Duration::from_millis(100)), Rc::new(|_| false))?;
        }
        println!("{rounds} rounds");
        Ok(())
    }

    /// Puts questions without end, and enables and withdraws.
    fn asks(&self) -> Outcome {
        let until = self.until;
        let asked = Rc::new(RefCell::new(0_u64));
        let count = Rc::clone(&asked);
        let runner = self.attached(move |cx, this, here| {
            while Instant::now() < until {
                for node in here.nodes() {
                    let _ = node.ask(cx, MyHost::default());
                    let _ = node.ask(cx, MaxPacket::default());
                    let _ = node.ask(cx, Describe::default());
                    let local = Participants::local(end(OURS, HOSTILE_PORT + 1));
                    if let Ok(enable) = node.open_enable(cx, Upper::new(this), local) {
                        node.open_disable(cx, enable);
                    }
                    *count.borrow_mut() += 4;
                }
            }
            Ok(())
        })?;
        runner.run(Some(Duration::from_millis(100)), Rc::new(|_| false))?;
        println!("{} questions", asked.borrow());
        Ok(())
    }

    /// Comes again and again, and does something that no sound program does.
    fn goes_wild(&self, path: &Path, act: fn(&Self, &mut Link)) -> Outcome {
        let mut rounds = 0;
        while self.goes_on() {
            let Ok(mut link) = Link::connect(path, &options()) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            rounds += 1;
            for _ in 0..200 {
                act(self, &mut link);
                if link.check().is_err() {
                    break;
                }
            }
            link.flush();
            if rounds % 4 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        println!("{rounds} links");
        Ok(())
    }

    /// A frame of any operation, with small or wild numbers and anything behind.
    fn frame(&self, link: &mut Link) {
        let mut frame = vec![0; 12 + self.chance(80)];
        self.random.fill(&mut frame);
        frame[0] = self.chance(25) as u8;
        frame[1] = if self.chance(4) == 0 { self.chance(6) as u8 } else { 0 };
        frame[2..4].fill(0);
        if self.chance(4) != 0 {
            frame[4..12].iter_mut().for_each(|octet| *octet &= 3);
            let (tail, end) = (frame.len() - 12, frame.len());
            if self.chance(2) == 0 {
                frame[end - tail..].iter_mut().for_each(|octet| *octet &= 3);
            }
        }
        let _ = link.send(&frame);
        if self.chance(8) == 0 {
            link.flush();
        }
    }

    /// A word among the figures of both sides, in the slots, or anywhere.
    fn poke(&self, link: &mut Link) {
        let memory = link.end().memory_octets() / 8;
        let at = match self.chance(4) {
            0 | 1 => self.chance(64),
            2 => SLOTS_AT / 8 + self.chance(SLOTS * SLOT_OCTETS / 8),
            _ => self.chance(memory),
        };
        let wild = self.random.below(u64::MAX);
        // Also backwards by one, and by all.
        let value = [wild, wild >> 54, u64::MAX, 0][self.chance(4)];
        link.end().poke(at * 8, value);
        self.frame(link);
    }

    /// Thousands that begin and do not go on: sockets without a word, links without one.
    fn comes_and_goes(&self, path: &Path) -> Outcome {
        let (mut sockets, mut links, mut count) = (Vec::new(), Vec::new(), 0_u64);
        while self.goes_on() {
            count += 1;
            if count % 2 == 0 {
                links.extend(Link::connect(path, &options()));
            } else {
                sockets.extend(silent(path));
            }
            // Those that are held fill the place; those that go must not stay.
            if sockets.len() + links.len() > 200 {
                let gone = self.chance(200);
                sockets.truncate(gone);
                links.truncate(gone);
            }
        }
        println!("{count} came");
        Ok(())
    }

    // ---- at the door for channels ----

    /// The trusted part: device, module, door, and sessions whose headers it grants. A channel for
    /// each of both programs waits at any time.
    fn is_module(&self) -> Outcome {
        let kernel = Rc::new(real_kernel(64 << 20)?);
        let cx = &*kernel;
        let text = |name, value: &str| (name, Value::Text(value.into()));
        let wire = [
            text("device", DEVICE),
            text("host_address", &format!("{LINUX}/24")),
            ("offload", Value::Bool(false)),
        ];
        let tap = node(cx, "tap", &[], &wire, None);
        let (netio, module) = xk_netio::add(cx, "netio", tap);
        let eth = node(cx, "eth", &[&netio], &[text("address", STATION)], None);
        let arp = node(cx, "arp", &[&eth], &[], None);
        let address = text("address", &format!("{OURS}/24"));
        let ip = node(cx, "ip", &[&arp], &[], Some(address));
        let icmp = node(cx, "icmp", &[&ip], &[], None);
        let udp = node(cx, "udp", &[&ip], &[], None);
        let door = Door::open(cx, "door", &self.path("tickets"), Rc::clone(&module))?;
        let held = Rc::new(RefCell::new(Vec::<SessionRef>::new()));
        let opened = Rc::clone(&held);
        let owner = Own(Box::new(move |cx, this| {
            for port in [HONEST_PORT, HOSTILE_PORT] {
                let ends = Participants::pair(end(OURS, port), Participant::of(Part::Any));
                opened.borrow_mut().push(udp.open(cx, Upper::new(this), ends)?);
            }
            Ok(())
        }));
        cx.add_protocol("owner", "owner", owner);
        let runner = Runner::new(Rc::clone(&kernel), Idle::Sleep)?;
        runner.start().map_err(|(_, error)| format!("it does not start: {error}"))?;
        let mut given: [Option<(u32, Instant)>; 2] = [None, None];
        println!("ready");
        let mut said = Instant::now();
        while self.goes_on() {
            runner.run(Some(Duration::from_millis(5)), Rc::new(|_| false))?;
            for (at, session) in held.borrow().iter().enumerate() {
                let (_, waiting) = module.counts();
                if waiting > 0 && given[at].is_some_and(|(_, when)| when.elapsed() < GRANT_EVERY) {
                    continue;
                }
                let name = ["ticket-honest", "ticket-hostile"][at];
                if let Some(number) = self.grant(cx, &netio, session, name)? {
                    given[at] = Some((number, Instant::now()));
                }
            }
            if said.elapsed() > Duration::from_millis(200) {
                said = Instant::now();
                let of = |why| netio.head().drops().of(why);
                println!("{} did not fit, {} channels revoked", of(&FORGED), of(&REVOKED));
            }
        }
        drop((door, icmp));
        Ok(())
    }

    /// Grants a channel with the headers of a session, and writes what fetches it where programs
    /// read it; nothing if another program has the right.
    fn grant(
        &self,
        cx: &Kernel,
        netio: &ProtocolRef,
        session: &SessionRef,
        name: &str,
    ) -> Result<Option<u32>, Box<dyn std::error::Error>> {
        let headers = Headers::of(cx, session).ok_or("a layer does not tell its headers")?;
        let headers = headers.for_any_peer();
        let question = GrantChannel::new(FREELY);
        let granted = netio.ask(cx, question).ok_or("the module does not answer")?;
        let Some(ticket) = granted.ticket else {
            return Ok(None);
        };
        let of = (session.head().protocol(), Participants::default());
        let right = GrantRight { channel: granted.number, headers, of, number: None };
        let right = netio.ask(cx, right).and_then(|right| right.number);
        if right.is_none() {
            let question = xk_netio::RevokeChannel { number: granted.number, was_there: false };
            let _ = netio.ask(cx, question);
            return Ok(None);
        }
        let (path, new) = (self.path(name), self.path("ticket-new"));
        std::fs::write(&new, ticket)?;
        std::fs::rename(new, path)?;
        Ok(Some(granted.number))
    }

    /// A link with the ticket of this name shown, once there is one that fetches.
    fn channel(&self, name: &str) -> Option<Link> {
        while self.goes_on() {
            let ticket = std::fs::read(self.path(name)).ok();
            let ticket = ticket.and_then(|octets| Ticket::try_from(&octets[..]).ok());
            let link = ticket.and_then(|ticket| {
                let mut link = Link::connect(&self.path("tickets"), &options()).ok()?;
                link.send(&ticket).ok()?;
                link.flush();
                link.receive_beside(1, Duration::from_secs(2)).ok()?;
                link.check().ok().map(|()| link)
            });
            if link.is_some() {
                return link;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// An honest one: sends back the datagrams that come, with headers of its own.
    fn answers_frames(&self) -> Outcome {
        let kernel = real_kernel(16 << 20)?;
        while let Some(link) = self.channel("ticket-honest") {
            let ring = xk_domains::ring::Ring::new(link);
            loop {
                match ring.receive(&kernel) {
                    Arrival::Frame(frame) => {
                        let octets: Vec<u8> = frame.octets().collect();
                        let Some(answer) = answer(&octets) else { continue };
                        let empty = kernel.pool().empty(0).map_err(|_| "no buffers")?;
                        let _ = ring.send(&kernel, &answer, &empty);
                        ring.flush();
                    }
                    Arrival::Nothing | Arrival::NoBuffers => {
                        ring.turn(&kernel);
                        kernel.set_now(kernel.now().after(Duration::from_millis(1)));
                    }
                    Arrival::Lost => break,
                }
            }
        }
        Ok(())
    }

    /// Sends frames of its right, and between them ones in which something else stands: a field, a
    /// bit, a length.
    fn forges(&self) -> Outcome {
        let mut sent = 0_u64;
        while let Some(mut link) = self.channel("ticket-hostile") {
            while self.goes_on() && link.check().is_ok() {
                let own = datagram(HOSTILE_PORT, &[b'h'; 20]);
                let forged = self.forged(&own);
                for frame in [&own, &forged] {
                    sent += u64::from(link.send(frame).is_ok());
                }
                link.flush();
                if sent.is_multiple_of(64) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        println!("{sent} frames");
        Ok(())
    }

    /// A frame that is not as granted.
    fn forged(&self, own: &[u8]) -> Vec<u8> {
        let mut forged = own.to_vec();
        match self.chance(9) {
            // Source address, source port, station, protocol, type, more fragments, offset.
            0 => forged[29] = 77,
            1 => forged[34..36].copy_from_slice(&HONEST_PORT.to_be_bytes()),
            2 => forged[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]),
            3 => forged[23] = 6,
            4 => forged[12..14].copy_from_slice(&[8, 6]),
            5 => forged[20] |= 0x20,
            6 => forged[21] = 1 + self.chance(255) as u8,
            7 => forged.truncate(self.chance(42)),
            // A length that leaves room for more behind; options.
            _ => match self.chance(2) {
                0 => forged[17] = forged[17].wrapping_add(1),
                _ => forged[14] = 0x46,
            },
        }
        forged
    }

    /// Writes other addresses into frames that lie in the ring, while they are looked at.
    fn rewrites(&self) -> Outcome {
        let mut rounds = 0_u64;
        while let Some(mut link) = self.channel("ticket-hostile") {
            // The first frame was the ticket.
            let mut slot = 1;
            while self.goes_on() && link.check().is_ok() {
                let own = datagram(HOSTILE_PORT, &[b'h'; 20]);
                if link.send(&own).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                link.flush();
                rounds += 1;
                let place = SLOTS_AT + slot % SLOTS * SLOT_OCTETS + 8;
                slot += 1;
                let word =
                    |at: usize| own.get(at..at + 8).and_then(|eight| eight.first_chunk()).copied();
                // The words that hold the source: of the host, and its port.
                for turn in 0..400 {
                    for at in [24, 32] {
                        let mut eight: [u8; 8] = word(at).unwrap_or_default();
                        if turn % 2 == 0 {
                            eight.iter_mut().for_each(|octet| *octet ^= 0x55);
                        }
                        link.end().poke(place + at, u64::from_ne_bytes(eight));
                    }
                }
            }
        }
        println!("{rounds} frames");
        Ok(())
    }

    /// Writes anything anywhere into the ring of a channel.
    fn pokes_channels(&self) -> Outcome {
        let mut rounds = 0_u64;
        while let Some(mut link) = self.channel("ticket-hostile") {
            rounds += 1;
            while self.goes_on() && link.check().is_ok() {
                self.poke(&mut link);
                let _ = link.send(&datagram(HOSTILE_PORT, &[b'h'; 20]));
                link.flush();
            }
        }
        println!("{rounds} channels");
        Ok(())
    }

    /// Sends what comes back to it, and never takes it.
    fn never_receives(&self) -> Outcome {
        let mut sent = 0_u64;
        while let Some(mut link) = self.channel("ticket-hostile") {
            while self.goes_on() && link.check().is_ok() {
                // To the closed port of a host that tells of that.
                sent += u64::from(link.send(&datagram(HOSTILE_PORT, &[b'h'; 1000])).is_ok());
                link.flush();
            }
        }
        println!("{sent} frames");
        Ok(())
    }
}

/// A socket that has come to a path and says nothing.
fn silent(path: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A node of the catalog, with the defaults of a graph.
fn node(
    cx: &Kernel,
    kind: &str,
    lowers: &[&ProtocolRef],
    values: &[(&'static str, Value)],
    address: Option<(&'static str, Value)>,
) -> ProtocolRef {
    let entry = xk_catalog::find(kind).expect("it is in the catalog");
    for number in entry.type_numbers() {
        let _ = cx.numbers_mut().add(number);
    }
    let mut params = Params::default();
    for (name, value) in values {
        params.set(name, value.clone());
    }
    if let Some((name, value)) = address {
        let mut block = Params::default();
        block.set(name, value);
        params.add_block("address", block);
    }
    let lowers: Vec<_> = lowers.iter().map(|lower| (*lower).clone()).collect();
    entry.add(cx, kind, &lowers, &params).expect("it is built")
}

/// A datagram of our host, to Linux's port 9 at any station.
fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    framed([2, 0, 0, 0, 0, 1], [10, 9, 0, 1], (port, 9), payload)
}

fn framed(to: [u8; 6], host: [u8; 4], (own, peer): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 0x77, 8, 0]].concat();
    let all = (28 + payload.len()) as u16;
    let mut ip =
        [&[0x45, 0][..], &all.to_be_bytes(), &[0; 4], &[64, 17, 0, 0, 10, 9, 0, 2], &host].concat();
    let mut sum = Checksum::new();
    sum.add(&ip);
    ip[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    frame.extend(ip);
    let udp = [own, peer, all - 20, 0].map(u16::to_be_bytes);
    frame.extend(udp.as_flattened());
    frame.extend(payload);
    frame
}

/// Answer of an honest program to a datagram for its port.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let octets = usize::from(u16::from_be_bytes([*frame.get(38)?, *frame.get(39)?]));
    let (station, host) = (frame.get(6..12)?.first_chunk()?, frame.get(26..30)?.first_chunk()?);
    let peer = u16::from_be_bytes([*frame.get(34)?, *frame.get(35)?]);
    Some(framed(*station, *host, (HONEST_PORT, peer), frame.get(42..34 + octets)?))
}
