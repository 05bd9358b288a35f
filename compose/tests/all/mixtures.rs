//! Frameworks, filters and cuts together: graphs that passed the check and did not start.

use crate::sim::{built, checked, config};
use std::time::Duration;
use xk_compose::start_world;
use xk_core::Time;
use xk_core::control::Report;
use xk_sim::HostId;

/// A peer of the x-kernel's alone, on the Internet and on AppleTalk.
const INET: &str = r#"sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.2/24"; }; icmp ip
    udp ip; echo udp port=7"#;
const APPLE: &str = "sim link=lan; eth sim; aarp eth; ddp aarp net=\"10-19\" node=18; aep ddp";

const UDP: &str = r#"probe udp to="port7@10.0.0.2" count=5 start="500ms""#;
const ICMP: &str = r#"probe icmp to="10.0.0.2" count=5 start="500ms" size=500"#;
const ARP: &str = r#"ip arp { address "10.0.0.1/24"; }"#;
const BSD: &str = r#"subsystem bsd { ether sim; ip ether { address "10.0.0.1/24"; } }"#;
const AEP: &str = r#"ddp aarp net="10-19" node=17; aep ddp
    probe aep to="node18@net10" start="3s" count=5"#;

/// Hosts, each in words of this file's own, and their peers.
fn hosts() -> Vec<(String, &'static str)> {
    let low = |inside: &str| format!("domain low {{ sim link=lan; {inside} }}\n");
    let ether = |of: &str| low(&format!("subsystem {of} {{ ether sim; }}"));
    let arp = |on: &str| format!("domain mid {{ arp {on}; {ARP}; udp ip; {UDP}; }}");
    vec![
        // ARP and AARP above an interface of a framework, across the cut.
        (ether("bsd") + &arp("ether"), INET),
        (ether("streams") + &arp("ether"), INET),
        (low("subsystem bsd { ether sim; }; tracer ether") + &arp("tracer"), INET),
        (ether("streams") + &format!("domain mid {{ aarp ether; {AEP}; }}"), APPLE),
        // A filter below the cut, and above.
        (low("eth sim; tracer eth") + &arp("tracer"), INET),
        (low("eth sim; fault eth") + &format!("domain d {{ aarp fault; {AEP}; }}"), APPLE),
        // IP of BSD: its wire in another domain, what is above in one more.
        (low("") + &format!("domain mid {{ {BSD}; icmp ip; {ICMP}; }}"), INET),
        (low(BSD) + &format!("domain top {{ icmp ip; {ICMP}; }}"), INET),
        (low("") + &format!("domain mid {{ {BSD}; }}\ndomain top {{ icmp ip; {ICMP}; }}"), INET),
        (
            low("")
                + &format!("domain net {{ {BSD}; subsystem streams {{ udp ip; }} }}\n")
                + &format!("domain app {{ {UDP}; }}"),
            INET,
        ),
        (
            low("subsystem bsd { ether sim; }")
                + &format!("domain mid {{ arp ether; {ARP}; }}\n")
                + &format!(
                    "domain top {{ subsystem streams {{ udp ip; }} }}\ndomain app {{ {UDP}; }}"
                ),
            INET,
        ),
        // What ICMP asks of IP, by way of layers in its own domain and in one between.
        (
            low(&format!("eth sim; arp eth; {ARP}"))
                + &format!("domain d {{ tracer ip; icmp tracer; {ICMP}; }}"),
            INET,
        ),
        (
            low(&format!("eth sim; arp eth; {ARP}"))
                + &format!("domain mid {{ tracer ip; }}\ndomain top {{ icmp tracer; {ICMP}; }}"),
            INET,
        ),
        (
            "sim link=lan; ip sim { address \"10.0.0.1/24\"; }
             domain d process { \"null\" ip; icmp \"null\" { number \"null\"=198; } }"
                .into(),
            INET,
        ),
        // What takes all sockets of its type leaves others theirs.
        (format!("sim link=lan; eth sim; aarp eth; {AEP}\nsubsystem bsd {{ atp ddp; }}"), APPLE),
        // A filter on DDP below ATP of BSD in another domain.
        (
            "sim link=lan; eth sim; aarp eth; ddp aarp; tracer ddp
             domain d thread { subsystem bsd { atp tracer; } }"
                .into(),
            APPLE,
        ),
    ]
}

#[test]
fn what_is_cut_below_frameworks_and_filters_starts_and_is_answered() {
    let mut wrong = String::new();
    for (host, peer) in hosts() {
        let text =
            format!("host a {{\n{host}\n}}\nhost b {{\n{peer}\n}}\nlink lan delay=\"1ms\"\n");
        let graph = checked(&text);
        let mut world = built(&graph, config(1));
        if let Err(mistakes) = start_world(&graph, &mut world) {
            wrong += &format!("{host}\n{mistakes}\n\n");
            continue;
        }
        world.run_until_finished(Time::ZERO + Duration::from_secs(30));
        for id in (0..world.len()).map(|at| HostId(at as u32)) {
            let kernel = world.kernel(id).unwrap();
            let probe = kernel.find_protocol("probe").filter(|probe| !probe.is_proxy());
            let report = probe.and_then(|probe| probe.ask(kernel, Report::default()));
            if let Some(report) = report.filter(|report| !report.finished || report.failed) {
                wrong += &format!("{host}\n{:?}\n\n", report.lines);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
