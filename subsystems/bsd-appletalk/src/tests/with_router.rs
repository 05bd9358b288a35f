//! BSD's nodes with the x-kernel's router between two networks, as in graphs/apple-router.kdl.

use super::*;

/// A router of `lan` (10-19, zone Left) and `right` (20-29, zone Right), and on `right` a node of
/// the x-kernel's, which has registered a name.
fn router(world: &mut World) -> HostId {
    let mut link = LinkConfig::new("right", LinkKind::Switch);
    link.delay = Duration::from_micros(50);
    world.network().add_link(link).unwrap();
    let none = Params::default();
    let id = host(world, "router");
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let mut aarps = Vec::new();
    for (link, names) in [("lan", ["sim1", "eth1", "aarp1"]), ("right", ["sim2", "eth2", "aarp2"])]
    {
        let [sim, eth, aarp] = names;
        let link = Params::from([("link", text(link))]);
        let sim = xk_sim::ENTRY.add(&kernel, sim, &[], &link).unwrap();
        let eth = xk_eth::ENTRY.add(&kernel, eth, &[sim], &none).unwrap();
        aarps.push(xk_aarp::ENTRY.add(&kernel, aarp, &[eth], &none).unwrap());
    }
    let mut ports = Params::default();
    for (net, zone) in [("10-19", "Left"), ("20-29", "Right")] {
        let node = ("node", Value::Integer(1));
        ports.add_block("port", Params::from([("net", text(net)), node, ("zone", text(zone))]));
    }
    let aarps: Vec<&ProtocolRef> = aarps.iter().collect();
    let ddp = add(&kernel, &xk_ddp::ENTRY, &aarps, &ports);
    add(&kernel, &xk_rtmp::ENTRY, &[&ddp], &none);
    let zip = add(&kernel, &xk_zip::ENTRY, &[&ddp], &none);
    add(&kernel, &xk_nbp::ENTRY, &[&ddp, &zip], &none);
    add(&kernel, &xk_aep::ENTRY, &[&ddp], &none);

    let id = host(world, "far");
    let kernel = Rc::clone(world.kernel(id).unwrap());
    let sim = add(&kernel, &xk_sim::ENTRY, &[], &Params::from([("link", text("right"))]));
    let eth = add(&kernel, &xk_eth::ENTRY, &[&sim], &none);
    let aarp = add(&kernel, &xk_aarp::ENTRY, &[&eth], &none);
    let address = Params::from([("net", text("20-29")), ("node", Value::Integer(18))]);
    let ddp = add(&kernel, &xk_ddp::ENTRY, &[&aarp], &address);
    add(&kernel, &xk_rtmp::ENTRY, &[&ddp], &none);
    add(&kernel, &xk_zip::ENTRY, &[&ddp], &none);
    let mut names = Params::default();
    let name = ("name", text("right:XKernel"));
    names.add_block("register", Params::from([name, ("socket", Value::Integer(132))]));
    let name = ("name", text("=:XKernel@Left"));
    let start = ("start", Value::Duration(Duration::from_secs(15)));
    names.add_block("lookup", Params::from([name, start]));
    add(&kernel, &xk_nbp::ENTRY, &[&ddp], &names);
    add(&kernel, &xk_aep::ENTRY, &[&ddp], &none);
    id
}

/// Looks a name up: what is found, with its addresses.
fn look_up(world: &mut World, id: HostId, name: &str) -> Vec<(Sockaddr, String)> {
    let (cx, bsd) = at(world, id);
    let so = socket(&cx, &bsd, (Sock::Raw, TYPE_NBP), 0);
    sendto(&cx, &so, name.as_bytes(), None).unwrap();
    run(world, Duration::from_secs(4));
    let mut found = Vec::new();
    loop {
        let (from, _, octets) = receive(&cx, &so).expect("an end");
        if octets.is_empty() {
            break;
        }
        found.push((from.unwrap(), String::from_utf8_lossy(&octets).into_owned()));
    }
    assert_eq!(receive(&cx, &so).err(), Some(Errno::EWOULDBLOCK));
    soclose(&cx, &so).unwrap();
    found
}

fn far(socket: u8) -> Sockaddr {
    Sockaddr::appletalk(xk_bsd::Release::Bsd43, 20, 18, socket)
}

#[test]
fn a_node_asks_for_its_router_when_it_starts() {
    let mut world = world(1, |_| ());
    router(&mut world);
    world.start().unwrap();
    // Long after the router's data has gone out; the next is 10 s away at most.
    run(&mut world, Duration::from_millis(40_100));
    let frames = Rc::new(Frames::default());
    world.network().set_tap(Some(Rc::clone(&frames) as Rc<dyn Tap>));
    let a = node(&mut world, "a", 17, &[]);
    world.start_host(a).unwrap();
    let cx = Rc::clone(world.kernel(a).unwrap());
    let mut waited = 0;
    while figure(&cx, "rtmp", "router") == 0 && waited < 50 {
        run(&mut world, Duration::from_millis(100));
        waited += 1;
    }
    assert_eq!(figure(&cx, "rtmp", "router"), 10 << 8 | 1, "after {waited} tenths of a second");
    // A request of function 1 to all nodes of the cable, then what the router said to it.
    let frames = frames.0.borrow();
    let of = |kind: u8| {
        frames.iter().filter(|f| f[14..22] == hex("aaaa030800 07809b") && f[34] == kind).count()
    };
    let request = frames.iter().find(|f| f.len() > 35 && f[12] < 6 && f[34] == 5);
    let request = request.expect("a request");
    assert_eq!(request[26..36], hex("0000 000a ff 11 01 01 05 01"));
    assert_eq!((of(5), of(1) >= 1), (1, true));
}

#[test]
fn names_of_all_zones_are_found_by_way_of_the_router() {
    let mut world = world(1, |_| ());
    router(&mut world);
    let a = node_of(&mut world, "a", (17, Some("Left")), &[("a:XKernel", 130)]);
    let b = node_of(&mut world, "b", (18, Some("Left")), &[("b:XKernel", 131)]);
    world.start().unwrap();
    run(&mut world, Duration::from_secs(20));
    let right = vec![(far(132), "right:XKernel@Right".into())];
    assert_eq!(look_up(&mut world, a, "=:XKernel@Right"), right);
    let here = |found: Vec<(Sockaddr, String)>| {
        let mut names: Vec<String> = found.into_iter().map(|(_, name)| name).collect();
        names.sort();
        names
            .into_iter()
            .map(|name| name.split('@').next().unwrap().into())
            .collect::<Vec<String>>()
    };
    for zone in ["*", "Left"] {
        let found = look_up(&mut world, a, &std::format!("=:XKernel@{zone}"));
        assert_eq!(here(found), ["a:XKernel", "b:XKernel"], "{zone}");
    }
    assert_eq!(look_up(&mut world, b, "=:=@Nowhere"), []);
    // And what was found is reached, and answers.
    let (cx, bsd) = at(&world, a);
    let so = ddp_socket(&cx, &bsd, 129);
    sendto(&cx, &so, &[TYPE_AEP, 1, 42], Some(far(4))).unwrap();
    run(&mut world, Duration::from_millis(100));
    let (from, _, octets) = receive(&cx, &so).unwrap();
    assert_eq!((from, octets), (Some(far(4)), vec![TYPE_AEP, 2, 42]));
}

#[test]
fn the_x_kernel_finds_names_of_bsd_through_its_router() {
    let mut world = world(1, |_| ());
    let right = router(&mut world);
    node_of(&mut world, "a", (17, Some("Left")), &[("left:XKernel", 130)]);
    let kernel = Rc::clone(world.kernel(right).unwrap());
    world.start().unwrap();
    run(&mut world, Duration::from_secs(20));
    // Its `nbp` looks up what the graph says, and reports what it has found.
    let nbp = kernel.find_protocol("nbp").unwrap();
    let table = nbp.ask(&kernel, xk_nbp::NbpTable::default()).unwrap();
    let found = std::format!("{:?}", table.found);
    assert!(found.contains("left"), "{found}");
}
