//! Streams whose ends, and the layers below these, lie in domains of their own.

use std::time::Duration;

use crate::cuts::cut;
use crate::sim::{built, checked, figure, report, start, started};
use xk_compose::{SimulationConfig, simulate};
use xk_core::Time;
use xk_core::control::Report;
use xk_domains::SLOTS_MIN;
use xk_testkit::seeds;

/// A client that sends to a server and takes back as much, on one link.
fn pair(probe: &str, server: &str, link: &str) -> String {
    format!(
        r#"
host client {{
    sim link=lan
    eth sim
    arp eth
    ip arp {{ address "10.0.0.1/24"; }}
    tcp ip send_buffer="16MiB"
    probe tcp to="port7@10.0.0.2" {probe}
}}
host server {{
    sim link=lan
    eth sim
    arp eth
    ip arp {{ address "10.0.0.2/24"; }}
    tcp ip {server}
    echo tcp port=7
}}
link lan {link}
"#
    )
}

/// Megabytes there and back on a link that loses some, so that long runs wait for one segment.
fn long() -> String {
    let probe = r#"count=150 interval="500us" size=60000 timeout="60s""#;
    pair(probe, "", r#"delay="2ms" rate="1Gbit" loss=0.002"#)
}

#[test]
fn a_long_stream_over_each_cut_finishes() {
    let long = long();
    let uncut = checked(&long);
    let nodes = 6;
    // At all edges, and below each node in turn.
    let cuts = (0..nodes).map(|below| {
        let apart = move |_: usize, node: usize| match below {
            0 => Some(node),
            _ => (node >= below).then_some(0),
        };
        cut(&long, &uncut, &apart)
    });
    let graphs: Vec<_> = cuts.map(|text| checked(&text)).collect();
    seeds::of(150).run(|seed| {
        for (below, graph) in graphs.iter().enumerate() {
            let what = format!("cut below {below}, XK_SEED={seed}");
            let mut world = started(graph, seed);
            world.run_until_finished(Time::ZERO + Duration::from_secs(50));
            let reports = (0..world.len()).filter_map(|at| {
                let kernel = world.kernel(xk_sim::HostId(at as u32))?;
                let probe = kernel.find_protocol("probe").filter(|probe| !probe.is_proxy())?;
                probe.ask(kernel, Report::default())
            });
            let lines = reports.map(|report| report.lines).next().unwrap();
            let figure = |name| lines.iter().find(|(line, _)| line == name).map(|(_, n)| &**n);
            assert_eq!(figure("received"), Some("150"), "{what}: {lines:?}");
        }
    });
}

/// However many streams there are, and however little room there is on the way up to the domain
/// that takes them: none is reset, and all that was sent arrives, as fast as there is room.
#[test]
fn streams_to_a_domain_with_little_room_lose_nothing() {
    const SIZE: usize = 60_000;
    const TIMES: usize = 3;
    const SEGMENT: usize = 1448;
    const CROSSING: Duration = Duration::from_millis(2);
    let host = |number: u8, above: &str| {
        format!(
            "host h{number} {{\nsim link=lan\neth sim\narp eth\n\
             ip arp {{ address \"10.0.0.{number}/24\"; }}\ntcp ip\n{above}}}\n"
        )
    };
    // So many streams, each so many milliseconds after the one before.
    for (slots, streams, apart) in [(SLOTS_MIN, 20, 0), (12, 200, 0), (12, 200, 20), (64, 200, 0)] {
        let probe = |n| {
            format!(
                "probe tcp name=p{n} to=\"port9@10.0.0.2\" start=\"{}ms\" count={TIMES} \
                 interval=\"4s\" size={SIZE} timeout=\"60s\"\n",
                20 + n * apart
            )
        };
        let probes: String = (0..streams).map(probe).collect();
        let sink = "domain sink { discard tcp port=9; }\n";
        let text = host(1, &probes) + &host(2, sink) + "link lan\n";
        let graph = checked(&text);
        let all = streams * TIMES * SIZE;
        // In each crossing as many segments as there are slots for them. Half of that, for what
        // finds no room at first is not handed up the moment that there is some.
        let crossings = (all / SEGMENT).div_ceil(slots - SLOTS_MIN + 1) as u32;
        let limit = Duration::from_secs(13) + CROSSING * crossings * 2;
        seeds::of(100).run(|seed| {
            let what = format!("{slots} slots, {streams} streams {apart} ms apart, XK_SEED={seed}");
            let config = SimulationConfig {
                seed,
                crossing: CROSSING,
                crossing_slots: slots,
                ..SimulationConfig::default()
            };
            let mut world = built(&graph, config);
            start(&graph, &mut world, &what);
            world.run_until(Time::ZERO + limit);
            let reports = (0..world.len()).filter_map(|at| {
                let kernel = world.kernel(xk_sim::HostId(at as u32))?;
                let sink = kernel.find_protocol("discard").filter(|sink| !sink.is_proxy())?;
                sink.ask(kernel, Report::default())
            });
            let lines = reports.flat_map(|report| report.lines);
            let octets = lines.filter(|(name, _)| name == "octets").map(|(_, n)| n);
            assert_eq!(octets.collect::<String>(), all.to_string(), "{what}: within {limit:?}");
        });
    }
    let config = SimulationConfig { crossing_slots: SLOTS_MIN - 1, ..SimulationConfig::default() };
    let text = host(1, "") + &host(2, "domain sink { discard tcp port=9; }\n") + "link lan\n";
    let graph = checked(&text);
    let refused = simulate(&graph, config).err().unwrap().to_string();
    assert!(refused.contains("no message crosses where 8 frames have room"), "{refused}");
}

/// A window that opens at once is more than the queue of the sender's own wire holds: what does not
/// fit waits in the connection, and nothing is lost before it has left the machine.
#[test]
fn a_long_burst_waits_for_the_wire() {
    let probe = r#"count=60 interval="60ms" size=900000 timeout="10s""#;
    let link = r#"delay="5ms" rate="1Gbit" queue=400"#;
    let text = pair(probe, r#"send_buffer="16MiB""#, link);
    let graph = checked(&text);
    seeds::of(150).run(|seed| {
        let mut world = started(&graph, seed);
        world.run_until_finished(Time::ZERO + Duration::from_secs(20));
        let told = report(&world, "client", "probe");
        assert_eq!(figure(&told, "received"), 60, "XK_SEED={seed}: {:?}", told.lines);
        for host in [0, 1] {
            let wire = world.kernel(xk_sim::HostId(host)).unwrap().find_protocol("sim").unwrap();
            assert_eq!(wire.head().drops().total(), 0, "host {host}, XK_SEED={seed}");
        }
    });
}
