//! Two stations with indices on a simulated link that loses, doubles, delays and damages frames,
//! those with offers too: each frame that arrives is its program's, as it was sent.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::message::PoolConfig;
use xk_core::object::ProtocolId;
use xk_core::random::Random;
use xk_core::shepherd::{Limits, Shepherds};
use xk_core::{Kernel, Participants, Pool, ProtocolRef};
use xk_domains::{Arrival, Carrier, Queue};
use xk_kit::net::template::{HeaderField, Headers};
use xk_netio::{GrantChannel, GrantRight, Module, Rate};
use xk_run::switch::CoroutineSwitch;
use xk_sim::{HostId, LinkConfig, LinkKind, World};
use xk_testkit::seeds;

const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// No bit that is turned makes one of them another.
const CONVERSATIONS: [u16; 3] = [0x0f0f, 0xf0f0, 0xffff];
/// Frames of each conversation each way.
const FRAMES: u32 = 300;

/// Header of a station's frames in a conversation, the peer's station first.
fn header(from: usize, conversation: u16) -> [u8; 16] {
    let mut header = [0; 16];
    header[..6].copy_from_slice(&STATIONS[1 - from]);
    header[6..12].copy_from_slice(&STATIONS[from]);
    header[12..14].copy_from_slice(&[0x39, 0]);
    header[14..].copy_from_slice(&conversation.to_be_bytes());
    header
}

struct Station {
    id: HostId,
    cx: Rc<Kernel>,
    netio: ProtocolRef,
    module: Rc<Module>,
    programs: Vec<Queue>,
}

impl Station {
    fn new(world: &mut World, at: usize) -> Self {
        let limits = Limits { shepherds_max: 8, ..Limits::default() };
        let shepherds = Shepherds::new(Box::new(CoroutineSwitch::new()), limits);
        let name = format!("station {at}");
        let kernel = Kernel::new(world.host_config(&name, shepherds, 64));
        let id = world.add_host(&name, kernel);
        let cx = Rc::clone(world.kernel(id).expect("a kernel"));
        let entry = &xk_sim::ENTRY;
        let mut params = Params::default();
        params.set("link", Value::Text("lan".into()));
        let wire = entry.add(&cx, "sim", &[], &params).expect("it is built");
        let (netio, module) = xk_netio::add(&cx, "netio", wire);
        module.use_indices();
        Self { id, cx, netio, module, programs: Vec::new() }
    }

    fn grant(&mut self, at: usize, conversation: u16) {
        let granted = self.netio.ask(&self.cx, GrantChannel::new(FREELY)).expect("it is known");
        let peer = |at| [(at, HeaderField::Peer(6))];
        let (sent, received) = (header(at, conversation), header(1 - at, conversation));
        let headers = Headers::of_wire(1000).with((&sent, &peer(0)), (&received, &peer(6)));
        let of = (ProtocolId(7), Participants::default());
        let headers = headers.expect("a template");
        let right = GrantRight { channel: granted.number, headers, of, number: None };
        let right = self.netio.ask(&self.cx, right).expect("it is known");
        assert!(right.number.is_some());
        let (own, end) = Queue::pair(1024);
        let ticket = granted.ticket.expect("there is room");
        assert!(self.module.attach(&self.cx, &ticket, Box::new(own)).is_ok());
        self.programs.push(end);
    }

    /// Number of frames that were found by index.
    fn by_index(&self) -> u64 {
        let question = xk_core::control::Describe::default();
        let text = self.netio.ask(&self.cx, question).expect("it is known").text;
        let count = text.split(" by index").next().and_then(|text| text.rsplit(' ').next());
        count.and_then(|count| count.parse().ok()).expect("it tells")
    }
}

/// Arrivals of one conversation, by number, and the count of damaged frames.
#[derive(Default)]
struct Arrived {
    numbers: BTreeSet<u32>,
    damaged: usize,
}

fn run(seed: u64) {
    let chance = Random::new(seed).fork(5);
    let share = |most: u64| chance.below(most) as f64 / 1000.0;
    let link = LinkConfig {
        delay: Duration::from_micros(chance.below(500)),
        jitter: Duration::from_micros(chance.below(2000)),
        loss: share(300),
        duplicate: share(100),
        reorder: share(100),
        corrupt: share(50),
        ..LinkConfig::new("lan", LinkKind::Hub)
    };
    let lost = link.loss;
    let pool = Pool::new(&PoolConfig::with_octets_max(16 << 20)).expect("memory");
    let mut world = World::new(seed, pool.clone());
    world.network().add_link(link).expect("a link");
    let mut stations = [0, 1].map(|at| Station::new(&mut world, at));
    world.start().unwrap_or_else(|(_, protocol, error)| panic!("{}: {error}", protocol.name()));
    let mut arrived: [[Arrived; 3]; 2] = Default::default();
    for number in 0..FRAMES {
        for (at, station) in stations.iter_mut().enumerate() {
            // One side is granted its rights later.
            if number == 10 * at as u32 {
                CONVERSATIONS.iter().for_each(|of| station.grant(at, *of));
            }
            for (program, of) in station.programs.iter().zip(CONVERSATIONS) {
                let mut frame = header(at, of).to_vec();
                frame.extend(number.to_be_bytes().repeat(20));
                let sent = program.send(&station.cx, &frame, &station.cx.pool().empty(0).unwrap());
                assert!(sent.is_ok(), "XK_SEED={seed}");
            }
            world.enter(station.id, |cx| station.module.carry_all(cx, 64));
        }
        let until = world.now().after(Duration::from_millis(1));
        world.run_until(until);
        for (at, station) in stations.iter().enumerate() {
            let programs = station.programs.iter().zip(CONVERSATIONS);
            for ((program, of), arrived) in programs.zip(&mut arrived[at]) {
                while let Arrival::Frame(frame) = program.receive(&station.cx) {
                    let octets: Vec<u8> = frame.octets().collect();
                    assert_eq!(octets[..16], header(1 - at, of), "XK_SEED={seed}");
                    let all: BTreeSet<_> = octets[16..].as_chunks::<4>().0.iter().collect();
                    match (all.len(), all.first()) {
                        (1, Some(number)) => {
                            arrived.numbers.insert(u32::from_be_bytes(**number));
                        }
                        _ => arrived.damaged += 1,
                    }
                }
            }
        }
    }
    for (station, arrived) in stations.iter().zip(&arrived) {
        let by_index = station.by_index();
        let figures = |of: &Arrived| (of.numbers.len(), of.damaged);
        let all: Vec<_> = arrived.iter().map(figures).collect();
        // All but those that the link has lost or damaged, and those before the right.
        let least = (f64::from(FRAMES - 20) * (1.0 - lost - 0.05) * 0.8) as usize;
        let what = format!("XK_SEED={seed}: {all:?}, {by_index} by index");
        assert!(all.iter().all(|(count, _)| *count >= least), "{what}, of {least}");
        // An offer may be lost, and the next one comes after twice as many frames.
        assert!(by_index as usize >= least, "{what}, of {least}");
    }
    world.stop();
    drop((world, stations));
    let left = pool.stats();
    assert_eq!((left.descriptors_live, left.buffers_live), (0, 0), "XK_SEED={seed}");
}

#[test]
fn each_frame_is_its_programs_on_a_bad_link() {
    seeds::of(10).run(run);
}
