//! Layers on an Ethernet of another subsystem: their own resolution of addresses, and all above.

use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;

/// Lines of a host up to AppleTalk's transactions and the Internet's datagrams. The first is all of
/// the x-kernel; in the others the interface is another subsystem's.
fn hosts(name: &str, last: u8, apps: [&str; 2]) -> Vec<(String, String)> {
    let address = format!("net=\"10-19\" node={last}");
    let ip = format!("arp ether; ip arp {{ address \"10.0.0.{last}/24\"; }}; udp ip");
    let own = format!("eth sim name=ether; {ip}; aarp ether; ddp aarp {address}; atp ddp");
    let on = |of: &str| {
        format!("subsystem {of} {{ ether sim; }}; {ip}; aarp ether; ddp aarp {address}; atp ddp")
    };
    let mixed = format!(
        "subsystem bsd {{ ether sim; }}; {ip}; subsystem streams {{ ddp ether {address}; atp ddp; }}"
    );
    let all = [("own", own), ("bsd", on("bsd")), ("streams", on("streams")), ("mixed", mixed)];
    let host = |(of, lines): (&str, String)| {
        let text = format!("host {name} {{\nsim link=lan\n{lines}\n{}\n{}\n}}\n", apps[0], apps[1]);
        (of.to_owned(), text)
    };
    all.into_iter().map(host).collect()
}

/// A block lies in a domain of its own, or its wire does, below a layer or not.
#[test]
fn a_wire_in_another_domain_is_one_all_the_same() {
    for of in ["bsd", "streams"] {
        let lines = |lower: &str| {
            format!(
                "subsystem {of} {{ ether {lower}; }}\narp ether\n\
                 ip arp {{ address \"10.0.0.1/24\"; }}\nudp ip\n\
                 probe udp to=\"port7@10.0.0.2\" count=5\n"
            )
        };
        let hosts = [
            format!("sim link=lan\ndomain up {{\n{}}}\n", lines("sim")),
            format!("domain net {{ sim link=lan; }}\ndomain up {{\n{}}}\n", lines("sim")),
            format!(
                "domain net {{ sim link=lan; tracer sim; }}\ndomain up {{\n{}}}\n",
                lines("tracer")
            ),
        ];
        for host in hosts {
            let source = format!(
                "host a {{\n{host}}}\nhost b {{\nsim link=lan\neth sim\narp eth\n\
                 ip arp {{ address \"10.0.0.2/24\"; }}\nudp ip\necho udp port=7\n}}\n\
                 link lan delay=\"1ms\"\n"
            );
            let graph = check(&source, "cut", &xk_catalog::standard())
                .unwrap_or_else(|mistakes| panic!("{}\n{source}", mistakes.to_text()));
            let mut world = simulate(&graph, SimulationConfig::default())
                .unwrap_or_else(|e| panic!("{}\n{source}", e.to_text()));
            start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{}\n{source}", e.to_text()));
            world.run_until_finished(Time::ZERO + Duration::from_secs(60));
            let ids = (0..world.len()).map(|at| xk_sim::HostId(at as u32));
            let mut probes = ids.filter_map(|id| {
                let kernel = world.kernel(id)?;
                let probe = kernel.find_protocol("probe").filter(|probe| !probe.is_proxy())?;
                Some(probe.ask(kernel, Report::default())?.lines)
            });
            let lines = probes.next().unwrap();
            let received = ("received".to_owned(), "5".to_owned());
            assert!(lines.contains(&received), "{lines:?}\n{source}");
        }
    }
}

#[test]
fn everything_stands_on_an_ethernet_of_another_subsystem() {
    let clients = hosts(
        "client",
        1,
        [
            "probe udp to=\"port7@10.0.0.9\" start=\"4s\" count=10 interval=\"50ms\" size=3000",
            "caller atp to=\"socket140@node9@net10\" start=\"4s\" count=10 interval=\"50ms\" size=45",
        ],
    );
    let servers =
        hosts("server", 9, ["echo udp port=7", "procedures atp at=socket140 procedure=1"]);
    let mut wrong = String::new();
    for (client_of, client) in &clients {
        for (server_of, server) in &servers {
            let source = format!("{client}{server}link lan delay=\"1ms\"\n");
            let graph = check(&source, "links", &xk_catalog::standard())
                .unwrap_or_else(|mistakes| panic!("{}\n{source}", mistakes.to_text()));
            let mut world =
                simulate(&graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{e}"));
            start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{}\n{source}", e.to_text()));
            world.run_until_finished(Time::ZERO + Duration::from_secs(60));
            let mut all = source;
            let mut results = [0_u64; 2];
            for host in ["client", "server"] {
                let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
                for protocol in kernel.protocols() {
                    let report = protocol.ask(kernel, Report::default());
                    let lines = report.map(|report| report.lines).unwrap_or_default();
                    let figure = |name: &str| {
                        let line = lines.iter().find(|(line, _)| line == name);
                        line.map_or(0, |(_, count)| count.parse().unwrap())
                    };
                    match protocol.name() {
                        "probe" => results[0] = figure("received"),
                        "caller" => results[1] = figure("replies"),
                        _ => {}
                    }
                    let drops = protocol.head().drops().list();
                    all += &format!("{host} {}: {lines:?} {drops:?}\n", protocol.name());
                }
            }
            world.stop();
            if results != [10, 10] {
                wrong += &format!("{client_of} to {server_of}: {results:?}\n{all}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
