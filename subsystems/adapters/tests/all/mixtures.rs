//! Laws of mixtures: a protocol of one framework in place of another's changes nothing for those
//! above and for peers.

use std::rc::Rc;
use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
use xk_core::graph::Catalog;
use xk_core::{Participants, Protocol, Time, Upper};
use xk_probe::Results;
use xk_sim::World;

/// A subsystem; nothing is the x-kernel.
pub(crate) type Of = Option<&'static str>;

pub(crate) const ALL: [Of; 3] = [None, Some("bsd"), Some("streams")];

/// A line of a subsystem.
pub(crate) fn line(of: Of, line: &str) -> String {
    match of {
        None => format!("{line}\n"),
        Some(of) => format!("subsystem {of} {{ {line}; }}\n"),
    }
}

/// Ethernet, ARP and IP of the x-kernel, on an Ethernet of a subsystem.
pub(crate) fn hosts(ether: Of, last: u8) -> String {
    let ether = match ether {
        None => "eth sim name=ether\n".to_owned(),
        of => line(of, "ether sim"),
    };
    format!("{ether}arp ether\nip arp {{ address \"10.0.0.{last}/24\"; }}\n")
}

pub(crate) fn host(name: &str, lines: &str) -> String {
    format!("host {name} {{\nsim link=lan\n{lines}\n}}\n")
}

/// A world that has run for so long, and what its nodes have counted; or why there is none.
fn run(source: &str, seconds: u64) -> Result<(World, String), String> {
    run_with(&xk_catalog::standard(), source, seconds)
}

/// As [`run`], of these kinds.
pub(crate) fn run_with(
    catalog: &Catalog,
    source: &str,
    seconds: u64,
) -> Result<(World, String), String> {
    let graph = check(source, "mixture", catalog)
        .map_err(|mistakes| format!("{}\n{source}", mistakes.to_text()))?;
    let config = SimulationConfig { seed: 5, ..Default::default() };
    let mut world = simulate(&graph, config).map_err(|e| format!("{e}\n{source}"))?;
    start_world(&graph, &mut world).map_err(|e| format!("{}\n{source}", e.to_text()))?;
    world.run_until_finished(Time::ZERO + Duration::from_secs(seconds));
    let mut all = source.to_owned();
    for host in ["a", "b"] {
        let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
        for protocol in kernel.protocols() {
            let drops = protocol.head().drops().list();
            let report = protocol.ask(kernel, Report::default());
            let lines = report.map(|report| report.lines).unwrap_or_default();
            all += &format!("{host} {}: {lines:?} {drops:?}\n", protocol.name());
        }
    }
    Ok((world, all))
}

/// Results of a probe of host `a`.
pub(crate) fn probe(world: &World, name: &str) -> Results {
    let kernel = world.find("a").and_then(|id| world.kernel(id)).unwrap();
    let probe = kernel.find_protocol(name).unwrap();
    probe.ask(kernel, Results::default()).unwrap()
}

/// Notes in `wrong` what a probe did not get back of so many messages.
fn expect(wrong: &mut String, what: &str, source: &str, (name, count): (&str, u64)) {
    match run(source, 60) {
        Err(why) => *wrong += &format!("{what}: {why}\n"),
        Ok((world, all)) => {
            let results = probe(&world, name);
            if (results.received, results.corrupt) != (count, 0) {
                *wrong += &format!("{what}, {name}: {results:?}\n{all}\n");
            }
        }
    }
}

/// TCP covers no hosts on a layer with ports, whose own checksum does: so it is the same on each.
#[test]
fn tcp_goes_over_every_udp_to_every_other() {
    let mut wrong = String::new();
    for one in ALL {
        for other in ALL {
            let udp = |of| line(of, "udp ip") + "tcp udp local=\"port9000\"\n";
            let probes = "probe tcp to=\"port7@port9000@10.0.0.2\" count=10 size=4000 start=\"500ms\" name=one\n\
                          probe tcp to=\"port7@port9000@10.0.0.2\" count=3 size=100 start=\"2s\" name=two";
            let a = host("a", &(hosts(None, 1) + &udp(one) + probes));
            let b = host("b", &(hosts(None, 2) + &udp(other) + "echo tcp port=7"));
            let source = format!("{a}{b}link lan delay=\"1ms\"\n");
            for probe in [("one", 10), ("two", 3)] {
                expect(&mut wrong, &format!("{one:?} to {other:?}"), &source, probe);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Layers of calls, which ask an Ethernet for stations alone, work on each Ethernet.
#[test]
fn calls_and_their_replies_go_over_every_ethernet() {
    let mut wrong = String::new();
    for one in ALL {
        for other in ALL {
            let ether = |of: Of| match of {
                None => "eth sim name=ether\n".to_owned(),
                of => line(of, "ether sim"),
            };
            let calls = "reqrep ether { number ether=0x88b5; }\n";
            let caller = "caller reqrep to=\"02:00:00:00:00:02\" count=3 size=100";
            let station = |name: &str, last: u8, lines: &str| {
                format!(
                    "host {name} {{\nsim link=lan address=\"02:00:00:00:00:0{last}\"\n{lines}\n}}\n"
                )
            };
            let a = station("a", 1, &(ether(one) + calls + caller));
            let b = station("b", 2, &(ether(other) + calls + "procedures reqrep procedure=1"));
            let source = format!("{a}{b}link lan\n");
            match run(&source, 60) {
                Err(why) => wrong += &why,
                Ok((_, all)) => {
                    if !all.contains("(\"replies\", \"3\")") {
                        wrong += &all;
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A layer above an Ethernet has what the link carries, no more and no less.
#[test]
fn the_links_size_is_that_of_every_ethernet() {
    use xk_kit::control::MaxPacket;
    let mut wrong = String::new();
    for ether in ALL {
        for mtu in [1500, 1000, 600] {
            let a = host(
                "a",
                &(hosts(ether, 1) + "udp ip\nprobe udp to=\"port7@10.0.0.2\" count=5 size=3000"),
            );
            let b = host("b", &(hosts(ether, 2) + "udp ip\necho udp port=7"));
            let source = format!("{a}{b}link lan mtu={mtu}\n");
            expect(&mut wrong, &format!("{ether:?}, {mtu}"), &source, ("probe", 5));
            let Ok((world, _)) = run(&source, 1) else { continue };
            let kernel = world.find("a").and_then(|id| world.kernel(id)).unwrap();
            let arp = kernel.find_protocol("arp").unwrap();
            let octets = arp.ask(kernel, MaxPacket::default()).map(|q| q.octets);
            if octets != Some(mtu) {
                wrong += &format!("{ether:?}: ARP carries {octets:?} of {mtu}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A datagram for no port comes back as an error, whichever framework has UDP and which IP.
#[test]
fn a_port_that_is_nobodys_is_told_of_everywhere() {
    let mut wrong = String::new();
    for udp in ALL {
        for ip in [None, Some("bsd")] {
            let below = match ip {
                None => hosts(None, 2) + "icmp ip\n",
                of => line(of, "ether sim; ip ether { address \"10.0.0.2/24\"; }"),
            };
            let a = host(
                "a",
                &(hosts(None, 1)
                    + "icmp ip\nudp ip\nprobe udp to=\"port9@10.0.0.2\" count=10 start=\"500ms\""),
            );
            let udp_line = match (udp, ip) {
                (udp, ip) if udp == ip && udp.is_some() => continue,
                (udp, _) => line(udp, "udp ip"),
            };
            let b = host("b", &(below + &udp_line));
            let source = format!("{a}{b}link lan delay=\"1ms\"\n");
            match run(&source, 60) {
                Err(why) => wrong += &why,
                Ok((world, all)) => {
                    let results = probe(&world, "probe");
                    if results.errors == 0 || results.received > 0 {
                        wrong += &format!("{udp:?} on {ip:?}: {results:?}\n{all}\n");
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A station that speaks by hand.
struct Station;

impl Protocol for Station {}

/// A frame that an Ethernet does not pass on is counted once, under a reason, by each Ethernet.
#[test]
fn every_ethernet_says_what_it_drops() {
    const MINE: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 1];
    let frame = |to: [u8; 6], from: [u8; 6], number: u16, payload: &[u8]| {
        [&to[..], &from, &number.to_be_bytes(), payload].concat()
    };
    let many = [7; 46];
    let frames = [
        ("a type that is nobody's", frame(MINE, PEER, 0x88b6, &many)),
        ("a tag", frame(MINE, PEER, 0x8100, &many)),
        ("another station's", frame([2, 0, 0, 0, 0, 9], PEER, 0x0800, &many)),
        ("from a group", frame(MINE, [1, 0, 0, 0, 0, 1], 0x0800, &many)),
        ("from itself", frame(MINE, MINE, 0x0800, &many)),
        ("LLC without SNAP", frame(MINE, PEER, 16, &many)),
        ("a length that lies", frame(MINE, PEER, 1000, &many)),
        ("no payload", frame(MINE, PEER, 0x0800, &[])),
        ("bad ARP", frame([0xff; 6], PEER, 0x0806, &many)),
        ("short ARP", frame(MINE, PEER, 0x0806, &[0])),
    ];
    let native = "ether sim; ip ether { address \"10.0.0.2/24\"; }";
    let below = ALL.map(|of| (format!("on {of:?}"), hosts(of, 2)));
    let below = below.into_iter().chain([("of bsd alone".to_owned(), line(Some("bsd"), native))]);
    let mut wrong = String::new();
    for (what, lines) in below {
        let b = format!("host b {{\nsim link=lan address=\"02:00:00:00:00:02\"\n{lines}}}\n");
        let source = host("a", "") + &b + "link lan kind=pointtopoint\n";
        let (mut world, _) = run(&source, 1).unwrap();
        let a = Rc::clone(world.find("a").and_then(|id| world.kernel(id)).unwrap());
        let sim = a.find_protocol("sim").unwrap();
        let station = a.add_protocol("station", "station", Station);
        let wire = sim.open(&a, Upper::new(&station), Participants::default()).unwrap();
        let b = Rc::clone(world.find("b").and_then(|id| world.kernel(id)).unwrap());
        let drops = || -> u64 { b.protocols().iter().map(|p| p.head().drops().total()).sum() };
        for (name, octets) in &frames {
            let before = drops();
            wire.push(&a, a.pool().copy_from(0, octets).unwrap()).unwrap();
            world.run_until(world.now().after(Duration::from_millis(10)));
            if drops() != before + 1 {
                wrong += &format!("{what}: {name}: {} drops\n", drops() - before);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
