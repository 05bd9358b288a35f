//! BSD's ends and the x-kernel's on one simulated network.

use crate::in_pcb::{INPLOOKUP_WILDCARD, Inpcbs};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::boxed::Box;
use std::string::String;
use std::vec;
use std::vec::Vec;
use xk_bsd::{
    Bsd, Errno, How, Release, SO_BROADCAST, SOL_SOCKET, SS_NBIO, Sock, Sockaddr, Socket,
    getsockname, recvfrom, sendto, sobind, soclose, soconnect, socreate, sosetopt, soshutdown,
};
use xk_core::control::Report;
use xk_core::graph::{Params, Value};
use xk_core::message::PoolConfig;
use xk_core::object::Popped;
use xk_core::shepherd::{Limits, Shepherds};
use xk_core::{
    Entry, Kernel, Message, Participant, Participants, Pool, Protocol, ProtocolRef, SessionRef,
    Upper,
};
use xk_sim::{HostId, LinkConfig, LinkKind, World};

pub(crate) fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// A world with one link.
pub(crate) fn world(seed: u64, change: impl FnOnce(&mut LinkConfig)) -> World {
    let pool = Pool::new(&PoolConfig::with_octets_max(16 << 20)).unwrap();
    let world = World::new(seed, pool);
    let mut link = LinkConfig::new("lan", LinkKind::Switch);
    link.delay = Duration::from_micros(50);
    change(&mut link);
    world.network().add_link(link).unwrap();
    world
}

pub(crate) fn host(world: &mut World, name: &str) -> HostId {
    let switch = Box::new(xk_run::switch::CoroutineSwitch::new());
    let shepherds = Shepherds::new(switch, Limits { shepherds_max: 32, ..Limits::default() });
    let kernel = Kernel::new(world.host_config(name, shepherds, 1 << 16));
    let id = world.add_host(name, kernel);
    let kernel = world.kernel(id).unwrap();
    for entry in [
        &xk_eth::ENTRY,
        &xk_arp::ENTRY,
        &xk_ip::ENTRY,
        &xk_icmp::ENTRY,
        &xk_udp::ENTRY,
        &crate::IP,
        &crate::UDP,
    ] {
        for number in entry.type_numbers() {
            kernel.numbers_mut().add(number).unwrap();
        }
    }
    id
}

pub(crate) fn add(
    kernel: &Kernel,
    entry: &'static Entry,
    lowers: &[&ProtocolRef],
    params: &Params,
) -> ProtocolRef {
    let lowers: Vec<_> = lowers.iter().map(|lower| (*lower).clone()).collect();
    entry.add(kernel, entry.kind, &lowers, params).unwrap()
}

fn with_address(name: &'static str, address: &str) -> Params {
    let mut params = Params::default();
    params.add_block(name, Params::from([("address", text(address))]));
    params
}

/// A host of BSD's.
pub(crate) fn bsd_host(world: &mut World, name: &str, release: &str, address: &str) -> HostId {
    let id = host(world, name);
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let sim = add(&kernel, &xk_sim::ENTRY, &[], &Params::from([("link", text("lan"))]));
    add(&kernel, &xk_bsd::ENTRY, &[], &Params::from([("release", text(release))]));
    let ether = add(&kernel, &crate::ETHER, &[&sim], &Params::default());
    let ip = add(&kernel, &crate::IP, &[&ether], &with_address("address", address));
    add(&kernel, &crate::UDP, &[&ip], &Params::default());
    id
}

/// A host of the x-kernel's, with a protocol on top that keeps and answers.
fn xk_host(world: &mut World, name: &str, address: &str) -> (HostId, ProtocolRef, Rc<Kept>) {
    let id = host(world, name);
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let none = Params::default();
    let sim = add(&kernel, &xk_sim::ENTRY, &[], &Params::from([("link", text("lan"))]));
    let eth = add(&kernel, &xk_eth::ENTRY, &[&sim], &none);
    let arp = add(&kernel, &xk_arp::ENTRY, &[&eth], &none);
    let ip = add(&kernel, &xk_ip::ENTRY, &[&arp], &with_address("address", address));
    add(&kernel, &xk_icmp::ENTRY, &[&ip], &none);
    let udp = add(&kernel, &xk_udp::ENTRY, &[&ip], &none);
    let kept = Rc::new(Kept::default());
    let top = Top { lower: udp, kept: Rc::clone(&kept) };
    let top = kernel.add_protocol("top", "top", top);
    (id, top, kept)
}

#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) received: RefCell<Vec<Vec<u8>>>,
    /// The session that was opened actively.
    pub(crate) session: RefCell<Option<SessionRef>>,
}

/// Answers what comes to port 7 with its octets in capitals.
pub(crate) struct Top {
    pub(crate) lower: ProtocolRef,
    pub(crate) kept: Rc<Kept>,
}

pub(crate) fn port(port: u16) -> Participant {
    format(&std::format!("port{port}"))
}

pub(crate) fn format(text: &str) -> Participant {
    text.parse().unwrap()
}

impl Protocol for Top {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), xk_core::object::OpenError> {
        self.lower.open_enable(cx, Upper::new(this), Participants::local(port(7))).map(drop)
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        let octets: Vec<u8> = message.octets().collect();
        self.kept.received.borrow_mut().push(octets.clone());
        if self.kept.session.borrow().is_none() {
            let answer: Vec<u8> = octets.iter().map(u8::to_ascii_uppercase).collect();
            let answer = cx.pool().copy_from(64, &answer).unwrap();
            lower.push(cx, answer).unwrap();
        }
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.kept.session.take());
    }
}

/// A kernel with its subsystem.
type Host = (Rc<Kernel>, Rc<Bsd>);

pub(crate) fn at(world: &World, id: HostId) -> Host {
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let bsd = Bsd::of(&kernel).unwrap();
    (kernel, bsd)
}

/// A host of BSD's alone.
fn alone(release: &str, address: &str) -> (World, Rc<Kernel>, Rc<Bsd>) {
    let mut world = world(1, |_| ());
    let id = bsd_host(&mut world, "a", release, address);
    world.start().unwrap();
    let (cx, bsd) = at(&world, id);
    (world, cx, bsd)
}

/// Hosts of 4.3BSD and of 4.4BSD on a link.
fn pair(seed: u64, change: impl FnOnce(&mut LinkConfig)) -> (World, [Host; 2]) {
    let mut world = world(seed, change);
    let a = bsd_host(&mut world, "a", "4.3", "10.0.0.1/24");
    let b = bsd_host(&mut world, "b", "4.4", "10.0.0.2/24");
    world.start().unwrap();
    let hosts = [at(&world, a), at(&world, b)];
    (world, hosts)
}

pub(crate) fn sa(host: [u8; 4], port: u16) -> Sockaddr {
    Sockaddr::inet(Release::Bsd43, Ipv4Addr::from(host), port)
}

pub(crate) fn run(world: &mut World, by: Duration) {
    let until = world.now().after(by);
    world.run_until(until);
}

/// A socket that does not wait, bound to this port if it is not 0.
pub(crate) fn socket(cx: &Kernel, bsd: &Rc<Bsd>, port: u16) -> Rc<Socket> {
    let so = socreate(cx, bsd, 2, Sock::Dgram, 17).unwrap();
    so.set_state(SS_NBIO, 0);
    if port != 0 {
        let mut nam = sa([0; 4], port).to_mbuf(bsd.mbufs()).unwrap();
        sobind(cx, &so, &mut nam).unwrap();
    }
    so
}

pub(crate) fn connect(cx: &Kernel, so: &Rc<Socket>, to: Sockaddr) -> Result<(), Errno> {
    let mut nam = to.to_mbuf(so.bsd().mbufs()).unwrap();
    soconnect(cx, so, &mut nam)
}

pub(crate) fn receive(cx: &Kernel, so: &Rc<Socket>) -> Result<(Vec<u8>, Option<Sockaddr>), Errno> {
    let mut room = vec![0; 70_000];
    let (n, from) = recvfrom(cx, so, &mut room)?;
    room.truncate(n);
    Ok((room, from))
}

pub(crate) fn figure(kernel: &Kernel, node: &str, name: &str) -> u64 {
    let report = kernel.find_protocol(node).unwrap().ask(kernel, Report::default()).unwrap();
    let found = report.lines.iter().find(|(n, _)| n == name);
    let value: &String = &found.unwrap_or_else(|| panic!("{name} in {:?}", report.lines)).1;
    value.parse().unwrap()
}

/// Vector 5 of the sheet.
#[test]
fn a_connected_block_is_before_a_bound_one_and_that_before_an_open_one() {
    let (_world, cx, bsd) = alone("4.3", "10.0.0.1/24");
    let (here, peer) = (Ipv4Addr::new(10, 0, 0, 1), (Ipv4Addr::new(10, 0, 0, 9), 999));
    let pcbs = Inpcbs::default();
    let block = || pcbs.in_pcballoc(&socreate(&cx, &bsd, 2, Sock::Dgram, 0).unwrap());
    let connected = block();
    pcbs.in_pcbbind(&connected, Some((here, 53))).unwrap();
    pcbs.in_pcbconnect(&connected, peer, here).unwrap();
    let bound = block();
    assert_eq!(pcbs.in_pcbbind(&bound, Some((here, 53))), Err(Errno::EADDRINUSE));
    let reuse = bsd.mbufs().m_copyin(xk_bsd::Mt::Soopts, &1_u32.to_ne_bytes()).ok();
    sosetopt(&cx, &bound.inp_socket, (SOL_SOCKET, xk_bsd::SO_REUSEADDR), reuse).unwrap();
    pcbs.in_pcbbind(&bound, Some((here, 53))).unwrap();
    let open = block();
    let reuse = bsd.mbufs().m_copyin(xk_bsd::Mt::Soopts, &1_u32.to_ne_bytes()).ok();
    sosetopt(&cx, &open.inp_socket, (SOL_SOCKET, xk_bsd::SO_REUSEADDR), reuse).unwrap();
    pcbs.in_pcbbind(&open, Some((Ipv4Addr::UNSPECIFIED, 53))).unwrap();

    let find = |from, to| pcbs.in_pcblookup(from, (to, 53), INPLOOKUP_WILDCARD);
    let is =
        |found: Option<Rc<crate::in_pcb::Inpcb>>, inp| found.is_some_and(|f| Rc::ptr_eq(&f, inp));
    let other = (Ipv4Addr::new(10, 0, 0, 8), 999);
    assert!(is(find(other, here), &bound), "from elsewhere");
    assert!(is(find(peer, here), &connected), "from the peer, though another was found last");
    assert!(is(find(other, Ipv4Addr::new(10, 0, 0, 255)), &open));
    assert!(is(find(peer, here), &connected));
    let (hits, _) = pcbs.figures();
    assert!(is(find(peer, here), &connected));
    assert_eq!(pcbs.figures().0, hits + 1, "the one found last is tried first");
    assert!(pcbs.in_pcblookup(peer, (here, 54), INPLOOKUP_WILDCARD).is_none());
    pcbs.in_pcbdetach(&connected);
    assert!(is(find(peer, here), &bound), "one that is gone is not found");
    pcbs.clear();
}

#[test]
fn ports_are_given_out_and_come_to_an_end() {
    let (_world, cx, bsd) = alone("4.3", "10.0.0.1/24");
    let so = socreate(&cx, &bsd, 2, Sock::Dgram, 0).unwrap();
    let pcbs = Inpcbs::default();
    for n in 0..=(5000 - 1024) {
        let inp = pcbs.in_pcballoc(&so);
        pcbs.in_pcbbind(&inp, None).unwrap();
        assert_eq!(inp.local().1, 1024 + n);
    }
    let inp = pcbs.in_pcballoc(&so);
    assert_eq!(pcbs.in_pcbbind(&inp, None), Err(Errno::EADDRNOTAVAIL));
    pcbs.clear();
}

#[test]
fn datagrams_go_both_ways_between_bsd_and_the_x_kernel() {
    for release in ["4.3", "4.4"] {
        let mut world = world(1, |_| ());
        let a = bsd_host(&mut world, "a", release, "10.0.0.1/24");
        let (b, _, kept) = xk_host(&mut world, "b", "10.0.0.2/24");
        world.start().unwrap();
        let (cx, bsd) = at(&world, a);
        let so = socket(&cx, &bsd, 0);
        // Of every size around what mbufs, clusters, frames and fragments hold.
        for size in [0, 1, 17, 84, 112, 113, 208, 1000, 1024, 1472, 1473, 1500, 2048, 4000, 9000] {
            let octets: Vec<u8> = (0..size).map(|i| b'a' + (i % 23) as u8).collect();
            assert_eq!(sendto(&cx, &so, &octets, Some(sa([10, 0, 0, 2], 7))), Ok(size));
            run(&mut world, Duration::from_millis(20));
            assert_eq!(kept.received.borrow_mut().pop(), Some(octets.clone()), "{size}");
            let (answer, from) = receive(&cx, &so).unwrap();
            assert_eq!(answer, octets.to_ascii_uppercase(), "{size}");
            assert_eq!(from, Some(sa([10, 0, 0, 2], 7)));
        }
        assert_eq!(figure(&cx, "ip", "datagrams put together"), 5);
        assert_eq!(figure(&cx, "ip", "datagrams cut"), 5);
        assert_eq!(figure(&cx, "ether", "arp requests sent"), 2, "one at the start, one for b");
        soclose(&cx, &so).unwrap();
        drop(so);
        assert_eq!(bsd.mbufs().mbstat().in_use, 0);
        let drops = |id, node: &str| {
            let kernel = world.kernel(id).unwrap();
            kernel.find_protocol(node).unwrap().head().drops().total()
        };
        assert_eq!((drops(a, "ip"), drops(a, "udp"), drops(b, "ip")), (0, 0, 0));
    }
}

#[test]
fn the_x_kernel_opens_and_bsd_answers() {
    let mut world = world(1, |_| ());
    let a = bsd_host(&mut world, "a", "4.4", "10.0.0.1/24");
    let (b, top, kept) = xk_host(&mut world, "b", "10.0.0.2/24");
    world.start().unwrap();
    let (cx, bsd) = at(&world, a);
    let so = socket(&cx, &bsd, 2005);
    let udp = world.kernel(b).unwrap().find_protocol("udp").unwrap();
    let opened = Rc::clone(&kept);
    world.spawn(b, move |cx| {
        let to = format("port2005@10.0.0.1");
        let ends = Participants::pair(port(3000), to);
        let session = udp.open(cx, Upper::new(&top), ends).unwrap();
        session.push(cx, cx.pool().copy_from(64, b"question").unwrap()).unwrap();
        opened.session.replace(Some(session));
    });
    run(&mut world, Duration::from_millis(50));
    let (octets, from) = receive(&cx, &so).unwrap();
    assert_eq!((&octets[..], from), (&b"question"[..], Some(sa([10, 0, 0, 2], 3000))));
    sendto(&cx, &so, b"answer", from).unwrap();
    run(&mut world, Duration::from_millis(50));
    assert_eq!(*kept.received.borrow(), [b"answer".to_vec()]);
}

#[test]
fn a_port_that_is_not_there_is_told_to_a_connected_socket() {
    let mut world = world(1, |_| ());
    let a = bsd_host(&mut world, "a", "4.3", "10.0.0.1/24");
    xk_host(&mut world, "b", "10.0.0.2/24");
    world.start().unwrap();
    let (cx, bsd) = at(&world, a);
    let so = socket(&cx, &bsd, 0);
    connect(&cx, &so, sa([10, 0, 0, 2], 9)).unwrap();
    assert_eq!(getsockname(&cx, &so), Ok(sa([10, 0, 0, 1], 1024)));
    assert_eq!(sendto(&cx, &so, b"x", None), Ok(1));
    run(&mut world, Duration::from_millis(50));
    assert_eq!(receive(&cx, &so), Err(Errno::ECONNREFUSED));
    assert_eq!(receive(&cx, &so), Err(Errno::EWOULDBLOCK), "once");
}

#[test]
fn bsd_tells_that_a_port_is_not_there() {
    let (mut world, [(cx, bsd), (far, _)]) = pair(1, |_| ());
    let so = socket(&cx, &bsd, 0);
    connect(&cx, &so, sa([10, 0, 0, 2], 9)).unwrap();
    assert_eq!(sendto(&cx, &so, b"x", None), Ok(1));
    run(&mut world, Duration::from_millis(50));
    assert_eq!(sendto(&cx, &so, b"y", None), Err(Errno::ECONNREFUSED));
    assert_eq!(figure(&far, "ip", "icmp errors sent"), 1);
    assert_eq!(figure(&far, "udp", "for no port"), 1);
}

#[test]
fn what_is_sent_to_this_host_goes_round() {
    let (_world, cx, bsd) = alone("4.3", "10.0.0.1/24");
    let (one, two) = (socket(&cx, &bsd, 0), socket(&cx, &bsd, 99));
    for host in [[10, 0, 0, 1], [127, 0, 0, 1]] {
        sendto(&cx, &one, b"round", Some(sa(host, 99))).unwrap();
        assert_eq!(receive(&cx, &two).map(|(octets, _)| octets), Ok(b"round".to_vec()));
    }
}

#[test]
fn a_broadcast_must_be_allowed_and_goes_to_all_sockets_of_the_port() {
    let (mut world, [(cx, bsd), (far, other)]) = pair(1, |_| ());
    let so = socket(&cx, &bsd, 0);
    let option = || bsd.mbufs().m_copyin(xk_bsd::Mt::Soopts, &1_u32.to_ne_bytes()).ok();
    let heard = socket(&far, &other, 99);
    for to in [[10, 0, 0, 255], [255; 4]] {
        assert_eq!(sendto(&cx, &so, b"all", Some(sa(to, 99))), Err(Errno::EACCES));
    }
    sosetopt(&cx, &so, (SOL_SOCKET, SO_BROADCAST), option()).unwrap();
    for to in [[10, 0, 0, 255], [255; 4]] {
        sendto(&cx, &so, b"all", Some(sa(to, 99))).unwrap();
        run(&mut world, Duration::from_millis(10));
        assert_eq!(receive(&far, &heard).map(|(octets, _)| octets), Ok(b"all".to_vec()), "{to:?}");
    }
    // To a port that is not there: no error goes back.
    sendto(&cx, &so, b"all", Some(sa([10, 0, 0, 255], 98))).unwrap();
    run(&mut world, Duration::from_millis(10));
    assert_eq!(figure(&far, "ip", "icmp errors sent"), 0);
    let big = vec![0; 2000];
    let sent = sendto(&cx, &so, &big, Some(sa([10, 0, 0, 255], 99)));
    assert_eq!(sent, Err(Errno::EMSGSIZE), "a broadcast is not cut");
}

#[test]
fn arp_holds_one_packet_asks_five_times_and_gives_up_for_twenty_seconds() {
    let (mut world, cx, bsd) = alone("4.3", "10.0.0.1/24");
    let so = socket(&cx, &bsd, 0);
    let asked = |cx: &Kernel| figure(cx, "ether", "arp requests sent") - 1;
    let send = |world: &mut World| {
        let sent = sendto(&cx, &so, b"x", Some(sa([10, 0, 0, 77], 9)));
        run(world, Duration::from_millis(250));
        sent
    };
    let mut last = Ok(1);
    for _ in 0..20 {
        last = send(&mut world);
        assert!(last.is_ok());
    }
    assert_eq!((last, asked(&cx)), (Ok(1), 5), "once a second, five times");
    assert_eq!(figure(&cx, "ether", "held packets replaced"), 19);
    assert_eq!(send(&mut world), Err(Errno::EHOSTDOWN));
    run(&mut world, Duration::from_secs(19));
    assert_eq!(send(&mut world), Err(Errno::EHOSTDOWN));
    run(&mut world, Duration::from_secs(1));
    assert_eq!((send(&mut world), asked(&cx)), (Ok(1), 6));
    assert_eq!(bsd.mbufs().mbstat().in_use, 2, "one packet is held: its headers, its data");
}

#[test]
fn arps_table_is_bounded() {
    let (_world, cx, bsd) = alone("4.3", "10.0.0.1/16");
    let so = socket(&cx, &bsd, 0);
    for n in 0..1000_u16 {
        let [high, low] = n.to_be_bytes();
        sendto(&cx, &so, b"x", Some(sa([10, 0, high + 1, low], 9))).unwrap();
    }
    assert_eq!(figure(&cx, "ether", "arp entries evicted"), 1000 - crate::arp::ARPTAB_SIZE as u64);
    assert_eq!(bsd.mbufs().mbstat().in_use as usize, 2 * crate::arp::ARPTAB_SIZE);
}

#[test]
fn the_first_packet_for_an_address_arrives_when_that_is_known() {
    let (mut world, [(cx, bsd), (far, other)]) = pair(1, |_| ());
    let (so, heard) = (socket(&cx, &bsd, 0), socket(&far, &other, 99));
    for octets in [b"first", b"newer"] {
        sendto(&cx, &so, octets, Some(sa([10, 0, 0, 2], 99))).unwrap();
    }
    run(&mut world, Duration::from_millis(10));
    assert_eq!(receive(&far, &heard).map(|(octets, _)| octets), Ok(b"newer".to_vec()));
    assert_eq!(receive(&far, &heard), Err(Errno::EWOULDBLOCK), "a newer one replaces it");
}

#[test]
fn fragments_are_put_together_in_whatever_order_and_under_loss_they_go() {
    let (mut world, [(cx, bsd), (far, other)]) = pair(7, |link| {
        (link.loss, link.duplicate, link.reorder) = (0.05, 0.1, 0.3);
        link.reorder_delay = Duration::from_millis(3);
    });
    let (so, heard) = (socket(&cx, &bsd, 0), socket(&far, &other, 99));
    let mut arrived = 0;
    for n in 0..200_u32 {
        let octets: Vec<u8> = (0..5000 + n).map(|i| (i * 31 + n) as u8).collect();
        let _ = sendto(&cx, &so, &octets, Some(sa([10, 0, 0, 2], 99)));
        run(&mut world, Duration::from_millis(20));
        while let Ok((got, _)) = receive(&far, &heard) {
            assert_eq!(got, octets);
            arrived += 1;
        }
    }
    assert!((100..200).contains(&arrived), "{arrived}");
    // What is left of those that were not whole goes in thirty seconds.
    run(&mut world, Duration::from_secs(31));
    assert_eq!(other.mbufs().mbstat().in_use, 0);
}

#[test]
fn a_flood_of_fragments_is_bounded() {
    let (mut world, [(cx, bsd), (_, other)]) = pair(1, |_| ());
    let so = socket(&cx, &bsd, 99);
    let lan = world.network().link("lan").unwrap();
    sendto(&cx, &so, b"x", Some(sa([10, 0, 0, 2], 98))).unwrap();
    run(&mut world, Duration::from_millis(10));
    // Half of what is sent is lost, so that hardly any datagram is whole.
    world.network().change_link(lan, |link| link.loss = 0.5);
    for _ in 0..2000 {
        let _ = sendto(&cx, &so, &[0; 9000], Some(sa([10, 0, 0, 2], 98)));
        run(&mut world, Duration::from_millis(2));
    }
    let in_use = other.mbufs().mbstat().in_use as usize;
    // A fragment keeps its cluster, the first one its header too.
    assert!(in_use <= crate::reass::DATAGRAMS_MAX * (7 * 2 + 1), "{in_use}");
}

#[test]
fn no_damage_to_a_frame_panics_or_stays() {
    let (mut world, [(cx, bsd), (far, other)]) = pair(3, |link| link.corrupt = 0.8);
    let (so, heard) = (socket(&cx, &bsd, 98), socket(&far, &other, 99));
    for n in 0..2000 {
        let _ = sendto(&cx, &so, &vec![n as u8; n * 7 % 3000], Some(sa([10, 0, 0, 2], 99)));
        run(&mut world, Duration::from_millis(5));
        while receive(&far, &heard).is_ok() {}
    }
    soshutdown(&far, &heard, How::Both).unwrap();
    run(&mut world, Duration::from_secs(60));
    soclose(&far, &heard).unwrap();
    drop(heard);
    // ARP may hold one for an address that was damaged.
    assert!(other.mbufs().mbstat().in_use < 10);
}

#[test]
fn one_seed_gives_one_run() {
    let trace = |seed| {
        let mut world = world(seed, |link| (link.loss, link.reorder) = (0.2, 0.2));
        let a = bsd_host(&mut world, "a", "4.3", "10.0.0.1/24");
        let (_, _, kept) = xk_host(&mut world, "b", "10.0.0.2/24");
        world.start().unwrap();
        let (cx, bsd) = at(&world, a);
        let so = socket(&cx, &bsd, 0);
        let mut got = Vec::new();
        for n in 0..50_u8 {
            let _ = sendto(&cx, &so, &[n; 40], Some(sa([10, 0, 0, 2], 7)));
            run(&mut world, Duration::from_millis(3));
            got.push(receive(&cx, &so));
        }
        world.stop();
        let received = kept.received.borrow().clone();
        (got, received)
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn nothing_is_left_when_the_graph_is_taken_down() {
    let (mut world, cx, bsd) = alone("4.3", "10.0.0.1/24");
    let so = socket(&cx, &bsd, 99);
    let weak = (Rc::downgrade(&so), Rc::downgrade(&bsd));
    drop((so, bsd));
    world.stop();
    drop((cx, world));
    assert_eq!((weak.0.strong_count(), weak.1.strong_count()), (0, 0));
}
