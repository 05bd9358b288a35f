//! AppleTalk, whole: the graphs of the repository under several seeds, names, conflicts of
//! addresses, a router and its zones.

use crate::sim::{ask, checked, example, figure, pass, report, started};
use std::time::Duration;
use xk_core::Time;
use xk_kit::net::appletalk::{DdpCable, SetRouter};
use xk_nbp::{NbpLookup, NbpRegister, NbpTable};
use xk_rtmp::RtmpTable;
use xk_sim::World;
use xk_zip::{ZipZones, ZoneList, ZoneRename};

fn cable(world: &World, host: &str) -> DdpCable {
    ask(world, host, "ddp", DdpCable::default())
}

/// Number of pings that came back.
fn pings(world: &World, host: &str) -> (u64, u64) {
    let report = report(world, host, "probe");
    (figure(&report, "sent"), figure(&report, "received"))
}

/// The names found, sorted.
fn found(world: &World, host: &str) -> Vec<String> {
    let mut names: Vec<_> = ask(world, host, "nbp", NbpTable::default())
        .found
        .into_iter()
        .map(|found| format!("{} {}.{}:{}", found.name, found.net, found.node, found.socket))
        .collect();
    names.sort();
    names
}

#[test]
fn two_nodes_ping() {
    let graph = example("apple-xk.kdl");
    for seed in 1..=20 {
        let mut world = started(&graph, seed);
        pass(&mut world, Duration::from_secs(8));
        assert_eq!(pings(&world, "one"), (20, 20), "seed {seed}");
    }
}

#[test]
fn a_router_tells_a_node_all_that_it_needs() {
    let graph = example("apple-router.kdl");
    for seed in 1..=10 {
        let mut world = started(&graph, seed);
        pass(&mut world, Duration::from_secs(30));
        let left = cable(&world, "left");
        assert_eq!((left.first, left.last, left.is_ready), (10, 19, true), "seed {seed}");
        assert!((10..=19).contains(&left.net), "seed {seed}: {left:?}");
        assert_eq!((left.router, &left.zone[..]), ((10, 1), &b"Left"[..]), "seed {seed}");
        assert_eq!(pings(&world, "left"), (20, 20), "seed {seed}");
        let of_left = format!("left:XKernel@Left {}.{}:130", left.net, left.node);
        let all = [of_left.clone(), "right:XKernel@Right 20.18:132".into()];
        let seen = found(&world, "left");
        for name in &all {
            assert!(seen.contains(name), "seed {seed}: {name} in {seen:?}");
        }
        assert_eq!(found(&world, "right"), [of_left], "seed {seed}");
        let report = report(&world, "left", "nbp");
        let figures = [("names", "1"), ("refused", "0"), ("found", &*seen.len().to_string())];
        assert_eq!(report.lines, figures.map(|(a, b)| (a.into(), b.into())), "seed {seed}");
        assert!(report.finished && !report.failed, "seed {seed}");
        let mut zones = ask(&world, "router", "zip", ZipZones::default()).zones;
        zones.sort();
        assert_eq!(zones, ["Left", "Right"]);
    }
}

/// The zones that a host is told of, waited for.
fn zones(world: &mut World, host: &str, which: u8) -> Vec<String> {
    for _ in 0..20 {
        let list = ask(world, host, "zip", ZoneList { which, ..ZoneList::default() });
        if list.is_done {
            let mut zones = list.zones;
            zones.sort();
            return zones;
        }
        pass(world, Duration::from_secs(1));
    }
    panic!("{host} is told of no zones");
}

#[test]
fn a_router_lists_zones_and_tells_of_another_name() {
    let graph = example("apple-router.kdl");
    for seed in 1..=3 {
        let mut world = started(&graph, seed);
        pass(&mut world, Duration::from_secs(15));
        for host in ["left", "router"] {
            let all = zones(&mut world, host, 0);
            assert_eq!(all, ["Left", "Right"], "seed {seed}, {host}");
            for which in [1, 2] {
                assert_eq!(zones(&mut world, host, which), ["Left"], "seed {seed}, {host}");
            }
        }
        let other = ZoneRename { port: 0, zone: "Other".into() };
        ask(&world, "router", "zip", other);
        pass(&mut world, Duration::from_secs(1));
        assert_eq!(cable(&world, "left").zone, b"Other", "seed {seed}");
        assert_eq!(zones(&mut world, "left", 0), ["Other", "Right"], "seed {seed}");
        // The router that tells of it is the node's, and the zone was the node's.
        let right = cable(&world, "right");
        assert_eq!(right.zone, b"Right", "seed {seed}");
    }
}

/// Two routers between two cables, none of which is heard: whom they are told to send to differs.
fn two_ways(near: &str) -> String {
    let router = |name: &str, node: u8| {
        format!(
            r#"
host {name} {{
    sim link=a name=sim1
    sim link=b name=sim2
    eth sim1 name=eth1
    eth sim2 name=eth2
    aarp eth1 name=aarp1
    aarp eth2 name=aarp2
    ddp aarp1 aarp2 {{
        port net="10" node={node} zone="A"
        port net="20" node={node} zone="B"
    }}
}}"#
        )
    };
    format!(
        r#"
host near {{
    sim link=a
    eth sim
    aarp eth
    ddp aarp net="10" node=17 {near}
    aep ddp
    probe aep to="node18@net20" start="5s" count=100 interval="100ms"
}}
host far {{
    sim link=b
    eth sim
    aarp eth
    ddp aarp net="20" node=18
    aep ddp
}}
{}
{}
link a delay="1ms"
link b delay="1ms"
"#,
        router("first", 1),
        router("second", 2)
    )
}

#[test]
fn datagrams_go_by_the_router_that_answers_come_by() {
    for (near, goes_on) in [("", true), ("best_router=#false", false)] {
        let graph = checked(&two_ways(near));
        let mut world = started(&graph, 1);
        let tell = |world: &World, host: &str, net, node| {
            ask(world, host, "ddp", SetRouter { port: 0, net, node });
        };
        tell(&world, "near", 10, 1);
        tell(&world, "far", 20, 2);
        pass(&mut world, Duration::from_secs(7));
        let (_, received) = pings(&world, "near");
        assert_eq!(received, 20, "{near}: one way there, another back");
        // The one that was told of is there no more, and that one is.
        tell(&world, "near", 10, 99);
        pass(&mut world, Duration::from_secs(12));
        let (sent, received) = pings(&world, "near");
        assert_eq!((sent, received == 100), (100, goes_on), "{near}: {received}");
        // What was not heard by for 40 s is believed no more.
        pass(&mut world, Duration::from_secs(60));
    }
}

/// Three networks in a row, and a ring that closes them when the second router is there.
const ROW: &str = r#"
host one {
    sim link=a
    eth sim
    aarp eth
    ddp aarp net="10-19" node=17
    rtmp ddp
    zip ddp
    nbp ddp { lookup "=:XKernel@C" start="70s"; }
    aep ddp
    probe aep to="node18@net30" start="40s" count=20 interval="100ms" size=585
}
host first {
    sim link=a name=sim1
    sim link=b name=sim2
    eth sim1 name=eth1
    eth sim2 name=eth2
    aarp eth1 name=aarp1
    aarp eth2 name=aarp2
    ddp aarp1 aarp2 {
        port net="10-19" node=1 zone="A"
        port net="20-29" node=1 zone="B"
    }
    rtmp ddp
    zip ddp
    nbp ddp zip
}
host second {
    sim link=b name=sim1
    sim link=c name=sim2
    eth sim1 name=eth1
    eth sim2 name=eth2
    aarp eth1 name=aarp1
    aarp eth2 name=aarp2
    ddp aarp1 aarp2 {
        port net="20-29" node=2 zone="B"
        port net="30-39" node=2 zone="C"
    }
    rtmp ddp
    zip ddp
    nbp ddp zip
}
host two {
    sim link=c
    eth sim
    aarp eth
    ddp aarp net="30-39" node=18
    rtmp ddp
    zip ddp
    nbp ddp { register "far:XKernel" socket=140; }
    aep ddp
}
link a delay="1ms"
link b delay="1ms"
link c delay="1ms"
"#;

#[test]
fn routers_in_a_row_carry_pings_zones_and_names() {
    let graph = checked(ROW);
    for seed in 1..=5 {
        let mut world = started(&graph, seed);
        pass(&mut world, Duration::from_secs(80));
        assert_eq!(pings(&world, "one"), (20, 20), "seed {seed}");
        assert_eq!(found(&world, "one"), ["far:XKernel@C 30.18:140"], "seed {seed}");
        let networks = |host| ask(&world, host, "rtmp", RtmpTable::default()).networks;
        assert_eq!(networks("first"), [(30, 39, 1)]);
        assert_eq!(networks("second"), [(10, 19, 1)]);
        for router in ["first", "second"] {
            let mut zones = ask(&world, router, "zip", ZipZones::default());
            zones.zones.sort();
            assert_eq!((zones.zones, zones.missing), (["A", "B", "C"].map(String::from).into(), 0));
        }
    }
}

/// Nodes that find free addresses by themselves, without a router; all want one name.
fn crowd(count: usize, loss: &str) -> String {
    let host = |at: usize| {
        format!(
            "host h{at} {{ sim link=lan; eth sim; aarp eth; ddp aarp; nbp ddp {{ \
             register \"printer:LaserWriter\" socket=130; }}; aep ddp; }}\n"
        )
    };
    (0..count).map(host).collect::<String>() + &format!("link lan delay=\"1ms\" loss=\"{loss}\"\n")
}

#[test]
fn a_crowd_finds_addresses_of_its_own() {
    for (seed, loss) in [(1, "0%"), (2, "0%"), (3, "10%")] {
        let graph = checked(&crowd(20, loss));
        let mut world = started(&graph, seed);
        pass(&mut world, Duration::from_secs(20));
        let mut nodes: Vec<_> = (0..20)
            .map(|at| cable(&world, &format!("h{at}")))
            .map(|cable| {
                assert!(cable.is_ready && (0xff00..=0xfffe).contains(&cable.net), "seed {seed}");
                (cable.net, cable.node)
            })
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), 20, "seed {seed}: two have one address");
    }
}

#[test]
fn a_given_address_is_only_one_nodes() {
    let host = |at: usize, start: &str| {
        format!(
            "host h{at} {{ sim link=lan; eth sim; aarp eth; ddp aarp net=\"10-19\" node=17; {start} }}\n"
        )
    };
    let source = host(0, "") + &host(1, "") + "link lan delay=\"1ms\"\n";
    for seed in 1..=5 {
        let mut world = started(&checked(&source), seed);
        pass(&mut world, Duration::from_secs(120));
        let ready = (0..2).filter(|at| cable(&world, &format!("h{at}")).is_ready).count();
        assert_eq!(ready, 1, "seed {seed}");
    }
}

#[test]
fn names_are_asked_for_and_given_by_questions() {
    let source = "host a { sim link=lan; eth sim; aarp eth; ddp aarp net=10 node=17; nbp ddp; }
                  host b { sim link=lan; eth sim; aarp eth; ddp aarp net=10 node=18; nbp ddp; }
                  link lan delay=\"1ms\"";
    let mut world = started(&checked(&source.replace("net=10", "net=\"10\"")), 1);
    let register = || NbpRegister { name: "echo:XKernel".into(), socket: 4, ..Default::default() };
    let lookup = |name: &str| NbpLookup { name: name.into(), ..Default::default() };
    // No shepherd waits here: it is asked again.
    assert!(!ask(&world, "a", "nbp", register()).is_done);
    pass(&mut world, Duration::from_secs(10));
    let done = ask(&world, "a", "nbp", register());
    assert!(done.is_done && done.is_taken);
    assert!(!ask(&world, "b", "nbp", register()).is_done);
    assert!(!ask(&world, "b", "nbp", lookup("=:xkernel@*")).is_done);
    assert!(!ask(&world, "a", "nbp", lookup("ECHO:=")).is_done);
    pass(&mut world, Duration::from_secs(10));
    let done = ask(&world, "b", "nbp", register());
    assert!(done.is_done && !done.is_taken, "it exists");
    for (host, name) in [("b", "=:xkernel@*"), ("a", "ECHO:=")] {
        let found = ask(&world, host, "nbp", lookup(name));
        assert!(found.is_done, "{name}");
        let found: Vec<_> = found.found.iter().map(|f| (f.net, f.node, f.socket)).collect();
        assert_eq!(found, [(10, 17, 4)], "{host} {name}");
    }
    world.stop();
    assert!(world.now() > Time::ZERO);
}

#[test]
fn names_that_find_no_room_wait() {
    let names: String = (0..200).map(|at| format!("register \"n{at}:X\"; ")).collect();
    let source = format!(
        "host a {{ sim link=lan; eth sim; aarp eth; ddp aarp net=\"10\" node=17; nbp ddp {{ {names} }} }}
         host b {{ sim link=lan; eth sim; aarp eth; ddp aarp net=\"10\" node=18
                   nbp ddp {{ lookup \"n1\u{2248}:X\" start=\"30s\"; }} }}
         link lan delay=\"1ms\""
    );
    let mut world = started(&checked(&source), 1);
    let figures = |world: &World, host: &str| {
        report(world, host, "nbp").lines.into_iter().map(|(_, figure)| figure).collect::<Vec<_>>()
    };
    pass(&mut world, Duration::from_secs(25));
    assert_eq!(figures(&world, "a"), ["200", "0", "0"], "all have names");
    assert!(!report(&world, "b", "nbp").finished, "it looks up later");
    pass(&mut world, Duration::from_secs(15));
    assert_eq!((&*figures(&world, "b")[2], report(&world, "b", "nbp").finished), ("64", true));
}
