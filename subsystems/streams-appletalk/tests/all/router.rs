//! Nodes of STREAMS with the x-kernel's router between two networks, as in graphs/apple-router.kdl.

use std::rc::Rc;
use std::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_core::control::Report;
use xk_core::graph::{Params, Value};
use xk_core::message::PoolConfig;
use xk_core::shepherd::{Limits, Shepherds};
use xk_core::{Entry, Kernel, Pool, ProtocolRef};
use xk_sim::{HostId, LinkConfig, LinkKind, Sighting, Tap, World};
use xk_streams::{Bounds, Stream, Streams};
use xk_streams_appletalk::ddp::{self, Settings};
use xk_streams_appletalk::{aep, atp, nbp, rtmp};

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

fn host(world: &mut World, name: &str) -> HostId {
    let switch = Box::new(xk_run::switch::CoroutineSwitch::new());
    let shepherds = Shepherds::new(switch, Limits { shepherds_max: 32, ..Limits::default() });
    let kernel = Kernel::new(world.host_config(name, shepherds, 1 << 16));
    let id = world.add_host(name, kernel);
    let kernel = world.kernel(id).unwrap();
    // A kind has one number, whatever subsystem it is of.
    let xk = [
        &xk_eth::ENTRY,
        &xk_aarp::ENTRY,
        &xk_ddp::ENTRY,
        &xk_aep::ENTRY,
        &xk_nbp::ENTRY,
        &xk_rtmp::ENTRY,
        &xk_zip::ENTRY,
        &xk_atp::ENTRY,
    ];
    for entry in xk.into_iter().chain([&ddp::ENTRY]) {
        for number in entry.type_numbers() {
            kernel.numbers_mut().add(number).unwrap();
        }
    }
    id
}

fn add(
    kernel: &Kernel,
    (entry, name): (&'static Entry, &str),
    lowers: &[&ProtocolRef],
    params: &Params,
) -> ProtocolRef {
    let lowers: Vec<_> = lowers.iter().map(|lower| (*lower).clone()).collect();
    entry.add(kernel, name, &lowers, params).unwrap()
}

/// Links `left` and `right`, a router of 10-19 (zone Left) and 20-29 (zone Right), and on `right` a
/// node of the x-kernel's with a name, which looks for those on the left.
fn world() -> (World, HostId) {
    let pool = Pool::new(&PoolConfig::with_octets_max(16 << 20)).unwrap();
    let mut world = World::new(1, pool);
    for name in ["left", "right"] {
        let mut link = LinkConfig::new(name, LinkKind::Switch);
        link.delay = Duration::from_micros(50);
        world.network().add_link(link).unwrap();
    }
    let none = Params::default();
    let id = host(&mut world, "router");
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let mut aarps = Vec::new();
    for (link, [sim, eth, aarp]) in
        [("left", ["sim1", "eth1", "aarp1"]), ("right", ["sim2", "eth2", "aarp2"])]
    {
        let link = Params::from([("link", text(link))]);
        let sim = add(&kernel, (&xk_sim::ENTRY, sim), &[], &link);
        let eth = add(&kernel, (&xk_eth::ENTRY, eth), &[&sim], &none);
        aarps.push(add(&kernel, (&xk_aarp::ENTRY, aarp), &[&eth], &none));
    }
    let mut ports = Params::default();
    for (net, zone) in [("10-19", "Left"), ("20-29", "Right")] {
        let node = ("node", Value::Integer(1));
        ports.add_block("port", Params::from([("net", text(net)), node, ("zone", text(zone))]));
    }
    let ddp = add(&kernel, (&xk_ddp::ENTRY, "ddp"), &[&aarps[0], &aarps[1]], &ports);
    add(&kernel, (&xk_rtmp::ENTRY, "rtmp"), &[&ddp], &none);
    let zip = add(&kernel, (&xk_zip::ENTRY, "zip"), &[&ddp], &none);
    add(&kernel, (&xk_nbp::ENTRY, "nbp"), &[&ddp, &zip], &none);

    let far = host(&mut world, "far");
    let kernel = Rc::clone(world.kernel(far).unwrap());
    let link = Params::from([("link", text("right"))]);
    let sim = add(&kernel, (&xk_sim::ENTRY, "sim"), &[], &link);
    let eth = add(&kernel, (&xk_eth::ENTRY, "eth"), &[&sim], &none);
    let aarp = add(&kernel, (&xk_aarp::ENTRY, "aarp"), &[&eth], &none);
    let address = Params::from([("net", text("20-29")), ("node", Value::Integer(18))]);
    let ddp = add(&kernel, (&xk_ddp::ENTRY, "ddp"), &[&aarp], &address);
    add(&kernel, (&xk_rtmp::ENTRY, "rtmp"), &[&ddp], &none);
    add(&kernel, (&xk_zip::ENTRY, "zip"), &[&ddp], &none);
    let mut names = Params::default();
    let socket = ("socket", Value::Integer(132));
    names.add_block("register", Params::from([("name", text("right:XKernel")), socket]));
    let start = ("start", Value::Duration(Duration::from_secs(20)));
    names.add_block("lookup", Params::from([("name", text("=:XKernel@Left")), start]));
    add(&kernel, (&xk_nbp::ENTRY, "nbp"), &[&ddp], &names);
    add(&kernel, (&xk_aep::ENTRY, "aep"), &[&ddp], &none);
    (world, far)
}

/// A node of STREAMS on `left`.
fn node(world: &mut World, name: &str, node: u8) -> (HostId, Rc<Streams>) {
    let id = host(world, name);
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let link = Params::from([("link", text("left"))]);
    let sim = add(&kernel, (&xk_sim::ENTRY, "sim"), &[], &link);
    let (streams, _) = xk_streams::add(&kernel, "streams", Bounds::default());
    let device = xk_streams_inet::wire::add(&kernel, "device", sim).unwrap();
    let ether = xk_streams_inet::ether::add(&kernel, "ether", device).unwrap();
    let range = "10-19".parse().unwrap();
    let settings = Settings { range, node: Some(node), ..Settings::default() };
    let ddp = ddp::add(&kernel, "ddp", ether, settings).unwrap();
    aep::add(&kernel, "aep", ddp.clone()).unwrap();
    nbp::add(&kernel, "nbp", ddp.clone()).unwrap();
    rtmp::add(&kernel, "rtmp", ddp.clone()).unwrap();
    atp::add(&kernel, "atp", ddp).unwrap();
    (id, streams)
}

fn run(world: &mut World, by: Duration) {
    let until = world.now().after(by);
    world.run_until(until);
}

/// Does something with a stream of a line, on a shepherd that can wait, and lets it end.
fn on<T: 'static>(
    world: &mut World,
    id: HostId,
    line: &str,
    act: impl FnOnce(&Kernel, &Stream) -> T + 'static,
) -> T {
    let done = Rc::new(std::cell::Cell::new(None));
    let (kept, line) = (Rc::clone(&done), line.to_owned());
    world.spawn(id, move |cx| {
        let streams = Streams::of(cx).unwrap();
        let stream = streams.open(cx, &line).unwrap();
        kept.set(Some(act(cx, &stream)));
        stream.close(cx);
    });
    run(world, Duration::from_secs(5));
    done.take().expect("it has ended")
}

/// Results of a search: addresses and names, in order.
fn look_up(world: &mut World, id: HostId, name: &'static str) -> Vec<(AtAddr, String)> {
    let found = on(world, id, "nbp", move |cx, stream| nbp::lookup(cx, stream, name).unwrap());
    let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
    let mut found: Vec<_> = found.into_iter().map(|(at, name)| (at, text(name))).collect();
    found.sort_by(|one, other| one.1.cmp(&other.1));
    found
}

#[test]
fn names_of_all_zones_are_found_by_way_of_the_router() {
    let (mut world, far) = world();
    let (a, _) = node(&mut world, "a", 17);
    let (b, _) = node(&mut world, "b", 18);
    world.start().unwrap();
    run(&mut world, Duration::from_secs(5));
    for (id, name) in [(a, "a:XKernel"), (b, "b:XKernel")] {
        on(&mut world, id, "nbp", move |cx, stream| {
            nbp::register(cx, stream, name, 130).unwrap();
        });
    }
    let right = (AtAddr::new(20, 18, 132), "right:XKernel@Right".to_owned());
    assert_eq!(look_up(&mut world, a, "=:XKernel@Right"), [right]);
    for zone in ["=:XKernel@*", "=:XKernel@Left", "=:XKernel"] {
        let found = look_up(&mut world, a, zone);
        let at: Vec<AtAddr> = found.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [AtAddr::new(10, 17, 130), AtAddr::new(10, 18, 130)], "{zone}: {found:?}");
    }
    assert_eq!(look_up(&mut world, b, "=:=@Nowhere"), []);
    // The x-kernel's node finds both, through its router.
    let kernel = world.kernel(far).unwrap();
    let nbp = kernel.find_protocol("nbp").unwrap();
    let table = nbp.ask(kernel, xk_nbp::NbpTable::default()).unwrap();
    let found = format!("{:?}", table.found);
    assert!(found.contains("a:XKernel") || found.contains("object: \"a\""), "{found}");
}

/// DDP types of all datagrams on the links.
#[derive(Default)]
struct Types(std::cell::RefCell<Vec<(u8, usize)>>);

impl Tap for Types {
    fn frame(&self, sighting: Sighting<'_>) {
        let frame: Vec<u8> = sighting.frame.octets().collect();
        if frame.get(17..22) == Some(&[8, 0, 7, 0x80, 0x9b]) {
            self.0.borrow_mut().push((frame[34], frame.len()));
        }
    }
}

#[test]
fn a_node_asks_for_its_router_when_it_starts_and_pads_what_is_short() {
    let (mut world, _) = world();
    world.start().unwrap();
    // Right after the router's data has gone out.
    run(&mut world, Duration::from_millis(40_100));
    let types = Rc::new(Types::default());
    world.network().set_tap(Some(Rc::clone(&types) as Rc<dyn Tap>));
    let (a, _) = node(&mut world, "a", 17);
    world.start_host(a).unwrap();
    run(&mut world, Duration::from_secs(5));
    let seen = types.0.take();
    let of = |kind: u8| seen.iter().filter(|(of, _)| *of == kind).count();
    assert_eq!(of(5), 1, "{seen:?}");
    assert!(of(1) >= 1, "{seen:?}");
    assert!(seen.iter().all(|(_, octets)| *octets >= 60), "{seen:?}");
    // The node knows its router: a datagram for another network goes.
    let kernel = Rc::clone(world.kernel(a).unwrap());
    let found = look_up(&mut world, a, "right:XKernel@Right");
    assert_eq!(found.len(), 1);
    let drops = kernel.find_protocol("ddp").unwrap().head().drops().list();
    assert!(drops.iter().all(|(reason, _)| reason.name != "no route"), "{drops:?}");
    let report = kernel.find_protocol("ddp").unwrap().ask(&kernel, Report::default()).unwrap();
    assert!(report.lines.contains(&("address".into(), "10.17".into())));
}

#[test]
fn sockets_of_transactions_are_claimed_of_ddp() {
    let (mut world, _) = world();
    let (a, streams) = node(&mut world, "a", 17);
    world.start().unwrap();
    run(&mut world, Duration::from_secs(5));
    let cx = Rc::clone(world.kernel(a).unwrap());
    let bind = |line: &str, socket: u8| {
        let stream = streams.open(&cx, line).unwrap();
        stream.set_nonblocking(true);
        let addr = AtAddr::new(0, 0, socket).to_sockaddr();
        let bound = crate::rig::bind(&cx, &stream, if socket == 0 { &[] } else { &addr });
        (stream, bound)
    };
    let (transactions, bound) = bind("atp", 200);
    assert_eq!(bound, Ok(()));
    let (datagrams, refused) = bind("ddp", 200);
    assert!(refused.unwrap_err().contains("EADDRINUSE"));
    let (other, bound) = bind("ddp", 201);
    assert_eq!(bound, Ok(()));
    let (second, refused) = bind("atp", 201);
    assert!(refused.unwrap_err().contains("EADDRINUSE"));
    // Any that is free is none of DDP's.
    let (third, bound) = bind("ddp", 128);
    assert_eq!(bound, Ok(()));
    let (any, bound) = bind("atp", 0);
    assert_eq!(bound, Ok(()));
    // What is released is free for the other.
    transactions.close(&cx);
    let (again, bound) = bind("ddp", 200);
    assert_eq!(bound, Ok(()));
    for stream in [datagrams, other, second, third, any, again] {
        stream.close(&cx);
    }
}
