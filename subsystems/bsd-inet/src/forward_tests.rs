//! A gateway of BSD's between two networks, with hosts of BSD's and of the x-kernel's.

use crate::tests::{
    Kept, Top, add, at, connect, figure, format, host, receive, run, sa, socket, text, world,
};
use alloc::rc::Rc;
use core::time::Duration;
use std::vec;
use std::vec::Vec;
use xk_bsd::{Errno, SO_BROADCAST, SOL_SOCKET, sendto, sosetopt};
use xk_core::graph::{Params, Value};
use xk_core::{Kernel, Participants, ProtocolRef, Upper};
use xk_sim::{HostId, LinkConfig, LinkKind, World};

/// A world with `lan` and `far`, which takes packets of so many octets.
fn two_links(mtu: usize) -> World {
    let world = world(1, |_| ());
    let mut link = LinkConfig::new("far", LinkKind::Switch);
    (link.delay, link.mtu_octets) = (Duration::from_micros(50), mtu);
    world.network().add_link(link).unwrap();
    world
}

fn addresses(params: &mut Params, all: &[(&'static str, &'static str)], on: &[&'static str]) {
    for (at, (_, address)) in all.iter().enumerate() {
        let mut block = Params::from([("address", text(address))]);
        if let Some(on) = on.get(at) {
            block.set("on", text(on));
        }
        params.add_block("address", block);
    }
}

fn routes(params: &mut Params, all: &[(&'static str, &'static str)]) {
    for (network, via) in all {
        let route = Params::from([("network", text(network)), ("via", text(via))]);
        params.add_block("route", route);
    }
}

type Text = (&'static str, &'static str);

/// A host of BSD's with an interface on each of these links.
fn bsd_on(world: &mut World, name: &str, on: &[Text], ways: &[Text], gateway: bool) -> HostId {
    let id = host(world, name);
    let kernel = Rc::clone(world.kernel(id).unwrap());
    add(&kernel, &xk_bsd::ENTRY, &[], &Params::default());
    const NAMES: [(&str, &str); 2] = [("sim0", "le0"), ("sim1", "le1")];
    let mut ethers = Vec::new();
    for ((link, _), (sim, le)) in on.iter().zip(NAMES) {
        let params = Params::from([("link", text(link))]);
        let sim = xk_sim::ENTRY.add(&kernel, sim, &[], &params).unwrap();
        ethers.push(crate::ETHER.add(&kernel, le, &[sim], &Params::default()).unwrap());
    }
    let mut params = Params::from([("gateway", Value::Bool(gateway))]);
    addresses(&mut params, on, &["le0", "le1"]);
    routes(&mut params, ways);
    let ethers: Vec<&ProtocolRef> = ethers.iter().collect();
    let ip = add(&kernel, &crate::IP, &ethers, &params);
    add(&kernel, &crate::UDP, &[&ip], &Params::default());
    id
}

/// A host of the x-kernel's on a link; answers what comes to port 7, and keeps what comes.
fn xk_on(
    world: &mut World,
    name: &str,
    on: Text,
    ways: &[Text],
) -> (HostId, ProtocolRef, Rc<Kept>) {
    let id = host(world, name);
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let none = Params::default();
    let sim = add(&kernel, &xk_sim::ENTRY, &[], &Params::from([("link", text(on.0))]));
    let eth = add(&kernel, &xk_eth::ENTRY, &[&sim], &none);
    let arp = add(&kernel, &xk_arp::ENTRY, &[&eth], &none);
    let mut params = Params::default();
    addresses(&mut params, &[on], &[]);
    routes(&mut params, ways);
    let ip = add(&kernel, &xk_ip::ENTRY, &[&arp], &params);
    add(&kernel, &xk_icmp::ENTRY, &[&ip], &none);
    let udp = add(&kernel, &xk_udp::ENTRY, &[&ip], &none);
    let kept = Rc::new(Kept::default());
    let top = Top { lower: udp, kept: Rc::clone(&kept) };
    let top = kernel.add_protocol("top", "top", top);
    (id, top, kept)
}

/// A gateway between `lan` and `far`, a host of BSD's on `lan`, one of the x-kernel's on `far`.
struct Net {
    world: World,
    bsd: HostId,
    gateway: HostId,
    xk: (HostId, ProtocolRef, Rc<Kept>),
}

fn net(mtu: usize, gateway: bool) -> Net {
    let mut world = two_links(mtu);
    let on = [("lan", "10.0.0.254/24"), ("far", "10.1.0.254/24")];
    let gateway = bsd_on(&mut world, "gateway", &on, &[], gateway);
    let way = [("default", "10.0.0.254")];
    let bsd = bsd_on(&mut world, "bsd", &[("lan", "10.0.0.1/24")], &way, false);
    let xk = xk_on(&mut world, "xk", ("far", "10.1.0.2/24"), &[("default", "10.1.0.254")]);
    world.start().unwrap();
    Net { world, bsd, gateway, xk }
}

impl Net {
    /// Lets each learn the addresses of its neighbours: ARP keeps one packet meanwhile.
    fn warm(&mut self) {
        let (cx, bsd) = at(&self.world, self.bsd);
        let so = socket(&cx, &bsd, 0);
        sendto(&cx, &so, b"warm", Some(sa([10, 1, 0, 2], 7))).unwrap();
        run(&mut self.world, Duration::from_millis(30));
        assert_eq!(receive(&cx, &so).unwrap().0, b"WARM");
        assert_eq!(self.xk.2.received.take(), [b"warm".to_vec()]);
        xk_bsd::soclose(&cx, &so).unwrap();
    }
}

fn drops(kernel: &Kernel) -> u64 {
    kernel.find_protocol("ip").unwrap().head().drops().total()
}

#[test]
fn datagrams_cross_a_gateway_and_come_back() {
    let mut net = net(1500, true);
    let (cx, bsd) = at(&net.world, net.bsd);
    let so = socket(&cx, &bsd, 0);
    for size in [0, 1, 500, 1472, 1473, 6000] {
        let octets: Vec<u8> = (0..size).map(|i| b'a' + (i % 23) as u8).collect();
        assert_eq!(sendto(&cx, &so, &octets, Some(sa([10, 1, 0, 2], 7))), Ok(size));
        run(&mut net.world, Duration::from_millis(30));
        assert_eq!(net.xk.2.received.borrow_mut().pop(), Some(octets.clone()), "{size}");
        let (answer, from) = receive(&cx, &so).unwrap();
        assert_eq!((answer, from), (octets.to_ascii_uppercase(), Some(sa([10, 1, 0, 2], 7))));
    }
    let gateway = Rc::clone(net.world.kernel(net.gateway).unwrap());
    // Four whole and six pieces of one each way, and five of the last.
    assert_eq!(figure(&gateway, "ip", "datagrams sent on"), 2 * (4 + 2 + 5));
    assert_eq!(figure(&gateway, "ip", "datagrams cut"), 0);
    assert_eq!((drops(&gateway), at(&net.world, net.gateway).1.mbufs().mbstat().in_use), (0, 0));
}

#[test]
fn a_packet_is_cut_for_a_narrow_link_and_put_together_behind_it() {
    let mut net = net(576, true);
    net.warm();
    let (cx, bsd) = at(&net.world, net.bsd);
    let so = socket(&cx, &bsd, 0);
    for size in [549, 1472, 5000] {
        let octets: Vec<u8> = (0..size).map(|i| b'a' + (i % 23) as u8).collect();
        assert_eq!(sendto(&cx, &so, &octets, Some(sa([10, 1, 0, 2], 7))), Ok(size));
        run(&mut net.world, Duration::from_millis(50));
        assert_eq!(net.xk.2.received.borrow_mut().pop(), Some(octets.clone()), "{size}");
        assert_eq!(receive(&cx, &so).unwrap().0, octets.to_ascii_uppercase());
    }
    let gateway = net.world.kernel(net.gateway).unwrap();
    assert!(figure(gateway, "ip", "datagrams cut") >= 5, "pieces are cut as whole ones are");
}

#[test]
fn the_x_kernel_pings_bsd_through_a_gateway_and_the_gateway_itself() {
    let mut net = net(1500, true);
    net.warm();
    let (xk, top, kept) = (net.xk.0, net.xk.1.clone(), Rc::clone(&net.xk.2));
    for to in ["10.0.0.1", "10.1.0.254", "10.0.0.254"] {
        let icmp = net.world.kernel(xk).unwrap().find_protocol("icmp").unwrap();
        let (top, opened) = (top.clone(), Rc::clone(&kept));
        let ends = Participants::pair(format("*"), format(to));
        net.world.spawn(xk, move |cx| {
            let session = icmp.open(cx, Upper::new(&top), ends).unwrap();
            for ping in [&b"ping"[..], b"", &[7; 3000]] {
                session.push(cx, cx.pool().copy_from(64, ping).unwrap()).unwrap();
            }
            opened.session.replace(Some(session));
        });
        run(&mut net.world, Duration::from_millis(100));
        let mut got = kept.received.borrow_mut().drain(..).collect::<Vec<_>>();
        got.sort();
        assert_eq!(got, [vec![], vec![7; 3000], b"ping".to_vec()], "{to}");
        drop(kept.session.take());
    }
    let host = net.world.kernel(net.bsd).unwrap();
    assert_eq!(figure(host, "ip", "icmp echoes answered"), 3);
    assert_eq!(figure(net.world.kernel(net.gateway).unwrap(), "ip", "icmp echoes answered"), 6);
}

#[test]
fn the_x_kernel_hears_of_ports_and_hosts_that_are_not_there() {
    let mut net = net(1500, true);
    let xk = net.xk.0;
    let figures = |world: &World| {
        let kernel = world.kernel(xk).unwrap();
        let icmp = kernel.find_protocol("icmp").unwrap();
        icmp.ask(kernel, xk_icmp::IcmpFigures::default()).unwrap().errors_received
    };
    let mut told = 0;
    // A port of BSD's that is not there; a network that the gateway has no way to.
    for (to, after) in [("port9@10.0.0.1", 100), ("port9@172.16.0.1", 100)] {
        let udp = net.world.kernel(xk).unwrap().find_protocol("udp").unwrap();
        let (top, opened) = (net.xk.1.clone(), Rc::clone(&net.xk.2));
        let ends = Participants::pair(format("port3000"), format(to));
        net.world.spawn(xk, move |cx| {
            let session = udp.open(cx, Upper::new(&top), ends).unwrap();
            session.push(cx, cx.pool().copy_from(64, b"x").unwrap()).unwrap();
            opened.session.replace(Some(session));
        });
        run(&mut net.world, Duration::from_millis(after));
        told += 1;
        assert_eq!(figures(&net.world), told, "{to}");
        drop(net.xk.2.session.take());
    }
    let gateway = net.world.kernel(net.gateway).unwrap();
    assert_eq!(figure(gateway, "ip", "icmp errors sent"), 1);
    assert_eq!(figure(gateway, "ip", "datagrams not sent on"), 1);
}

#[test]
fn what_is_at_its_last_hop_is_dropped_and_its_sender_told() {
    // Two gateways that each take the other for the way: a packet goes round until it has no hops.
    let mut world = two_links(1500);
    let ways = [("default", "10.0.0.253")];
    let one = bsd_on(&mut world, "one", &[("lan", "10.0.0.254/24")], &ways, true);
    let ways = [("default", "10.0.0.254")];
    let two = bsd_on(&mut world, "two", &[("lan", "10.0.0.253/24")], &ways, true);
    let host = bsd_on(&mut world, "bsd", &[("lan", "10.0.0.1/24")], &ways, false);
    world.start().unwrap();
    let (cx, bsd) = at(&world, host);
    let so = socket(&cx, &bsd, 0);
    connect(&cx, &so, sa([10, 9, 9, 9], 7)).unwrap();
    assert_eq!(sendto(&cx, &so, b"round", None), Ok(5));
    run(&mut world, Duration::from_millis(500));
    let sent = |id| figure(world.kernel(id).unwrap(), "ip", "datagrams sent on");
    assert_eq!(sent(one) + sent(two), 63, "64 hops, of which the last is none");
    let errors = |id| figure(world.kernel(id).unwrap(), "ip", "icmp errors sent");
    let redirects = |id| figure(world.kernel(id).unwrap(), "ip", "redirects sent");
    // Time exceeded once; each hop on the link that it came by says that there is a shorter way.
    assert_eq!(redirects(one) + redirects(two), 63);
    assert_eq!(errors(one) + errors(two), 64);
    assert_eq!(drops(world.kernel(one).unwrap()) + drops(world.kernel(two).unwrap()), 1);
    world.stop();
}

#[test]
fn a_host_sends_nothing_on_and_a_gateway_not_everything() {
    let mut off = net(1500, false);
    let (cx, bsd) = at(&off.world, off.bsd);
    let so = socket(&cx, &bsd, 0);
    sendto(&cx, &so, b"x", Some(sa([10, 1, 0, 2], 7))).unwrap();
    run(&mut off.world, Duration::from_millis(30));
    assert_eq!(drops(off.world.kernel(off.gateway).unwrap()), 1);
    assert!(off.xk.2.received.borrow().is_empty());
    off.world.stop();

    let mut net = net(1500, true);
    let (cx, bsd) = at(&net.world, net.bsd);
    let so = socket(&cx, &bsd, 0);
    let option = bsd.mbufs().m_copyin(xk_bsd::Mt::Soopts, &1_u32.to_ne_bytes()).ok();
    sosetopt(&cx, &so, (SOL_SOCKET, SO_BROADCAST), option).unwrap();
    // For all hosts of the network behind it, for this link, for itself alone.
    for to in [[10, 1, 0, 255], [169, 254, 1, 1], [240, 0, 0, 1]] {
        sendto(&cx, &so, b"x", Some(sa(to, 7))).unwrap();
        run(&mut net.world, Duration::from_millis(30));
    }
    let gateway = net.world.kernel(net.gateway).unwrap();
    assert_eq!((drops(gateway), figure(gateway, "ip", "datagrams sent on")), (3, 0));
    assert_eq!(figure(gateway, "ip", "icmp errors sent"), 0);
    assert!(net.xk.2.received.borrow().is_empty());
}

#[test]
fn a_host_behind_a_gateway_that_is_not_there_is_told_of() {
    let mut net = net(1500, true);
    let (cx, bsd) = at(&net.world, net.bsd);
    let so = socket(&cx, &bsd, 0);
    connect(&cx, &so, sa([10, 1, 0, 77], 7)).unwrap();
    // ARP asks five times, once a second; then the gateway knows that the host is down.
    let mut told = Vec::new();
    for _ in 0..8 {
        told.extend(sendto(&cx, &so, b"x", None).err());
        run(&mut net.world, Duration::from_millis(1001));
    }
    assert_eq!(told.first(), Some(&Errno::EHOSTUNREACH), "{told:?}");
}

#[test]
fn a_gateway_without_mbufs_drops_and_goes_on() {
    let mut net = net(1500, true);
    let (_, gateway) = at(&net.world, net.gateway);
    let (cx, bsd) = at(&net.world, net.bsd);
    let so = socket(&cx, &bsd, 0);
    let ask = |world: &mut World| {
        sendto(&cx, &so, b"x", Some(sa([10, 1, 0, 2], 7))).unwrap();
        run(world, Duration::from_millis(30));
        receive(&cx, &so).is_ok()
    };
    assert!(ask(&mut net.world));
    let held: Vec<_> =
        core::iter::from_fn(|| gateway.mbufs().m_get(xk_bsd::Mt::Data).ok()).collect();
    for _ in 0..20 {
        assert!(!ask(&mut net.world));
    }
    assert!(gateway.mbufs().mbstat().drops > 0);
    drop(held);
    assert!(ask(&mut net.world));
    assert_eq!(gateway.mbufs().mbstat().in_use, 0);
}
