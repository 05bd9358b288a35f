//! Small graphs in which nothing is lost that is not counted, and nothing clashes that could do
//! without.

use crate::sim::{checked, kernel, started};
use std::collections::BTreeMap;
use std::time::Duration;
use xk_core::Time;
use xk_core::control::Report;

/// Counters of a minute: figures of reports and drops by `host/node/name`, of links by `link/name`.
fn counted(source: &str) -> BTreeMap<String, u64> {
    let mut world = started(&checked(source), 1);
    world.run_until(Time::ZERO + Duration::from_secs(60));
    let mut all = BTreeMap::new();
    for host in ["alice", "bob"] {
        let kernel = kernel(&world, host);
        for protocol in kernel.protocols() {
            let name = |what: &str| format!("{host}/{}/{what}", protocol.name());
            for (reason, count) in protocol.head().drops().list() {
                all.insert(name(&format!("dropped, {}", reason.name)), count);
            }
            let report = protocol.ask(kernel, Report::default());
            for (line, text) in report.map(|report| report.lines).unwrap_or_default() {
                if let Ok(count) = text.parse() {
                    all.insert(name(&line), count);
                }
            }
        }
    }
    for (link, stats) in world.network().links() {
        all.extend(stats.list().map(|(name, count)| (format!("{link}/{name}"), count)));
    }
    all
}

fn of(all: &BTreeMap<String, u64>, name: &str) -> u64 {
    all.get(name).copied().unwrap_or(0)
}

/// Messages pushed on STREAMS' `ddp`, of any size, before it has an address and after, are
/// delivered, refused to the caller, or counted as dropped.
#[test]
fn what_streams_ddp_does_not_deliver_is_counted() {
    for size in [586, 587, 1480, 8000] {
        let source = format!(
            r#"
            host bob {{ sim link=lan; subsystem streams {{ ether sim; ddp ether net="10-19" node=12; }}
                echo ddp local="socket140" {{ number ddp=241; }}; }}
            host alice {{ sim link=lan; subsystem streams {{ ether sim; ddp ether net="10-19" node=11; }}
                probe ddp to="socket140@node12@net10" count=5 interval="100ms" size={size} {{ number ddp=241; }}; }}
            link lan delay="1ms"
        "#
        );
        let all = counted(&source);
        let lost = of(&all, "alice/probe/lost");
        let dropped: u64 =
            all.iter().filter(|(name, _)| name.contains("dropped")).map(|(_, count)| count).sum();
        assert_eq!(of(&all, "alice/probe/sent"), 5, "{all:#?}");
        assert_eq!(lost, dropped, "{size} octets: {all:#?}");
        assert_eq!(lost == 0, size <= 586, "{size} octets: {all:#?}");
    }
}

/// A hardware address that the graph gives is no other host's, on whichever side it is given.
#[test]
fn a_hardware_address_that_is_made_up_is_none_that_is_given() {
    for given in ["02:00:00:00:00:02", "02:00:00:00:00:01", "02:01:00:00:00:01"] {
        for giving in 0..2 {
            let wire = |at| match at == giving {
                true => format!("sim link=lan address=\"{given}\""),
                false => "sim link=lan".to_owned(),
            };
            let (alice, bob) = (wire(0), wire(1));
            let source = format!(
                r#"
                host alice {{ {alice}; eth sim; arp eth; ip arp {{ address "10.0.0.1/24"; }}; udp ip;
                    probe udp to="port7@10.0.0.2"; }}
                host bob {{ {bob}; eth sim; arp eth; ip arp {{ address "10.0.0.2/24"; }}; udp ip;
                    echo udp port=7; }}
                link lan delay="1ms"
            "#
            );
            let all = counted(&source);
            assert_eq!(of(&all, "alice/probe/received"), 5, "{given} at {giving}: {all:#?}");
        }
    }
}

/// Octets that are no Ethernet frames show in the figures of a switch.
#[test]
fn what_a_switch_does_not_pass_on_is_counted() {
    let all = counted(
        "host bob { sim link=lan; echo sim; }
        host alice { sim link=lan; probe sim count=3 size=1446; }
        link lan",
    );
    let (sent, delivered) = (of(&all, "lan/sent"), of(&all, "lan/delivered"));
    assert!(sent >= 3, "{all:#?}");
    assert_eq!(sent, delivered + of(&all, "lan/filtered"), "{all:#?}");
}

/// Callers of one peer, through layers that have no ports, and one that serves beside them.
#[test]
fn callers_of_one_peer_do_not_exclude_each_other() {
    for layer in ["atp", "reqrep"] {
        let host = |name: &str, own: u8, to: u8| {
            format!(
                r#"
                host {name} {{ sim link=lan; ip sim {{ address "10.0.0.{own}/24"; }}
                    {layer} ip {{ number ip=200; }}
                    procedures {layer} procedure=1
                    caller {layer} to="10.0.0.{to}" name=one
                    caller {layer} to="10.0.0.{to}" name=two start="3s"
                    caller {layer} to="10.0.0.{to}" name=three start="3s" interval="100ms"; }}
            "#
            )
        };
        let link = "link lan kind=pointtopoint delay=\"1ms\"";
        let all = counted(&format!("{}{}{link}", host("alice", 1, 2), host("bob", 2, 1)));
        for caller in ["one", "two", "three"] {
            for host in ["alice", "bob"] {
                let replies = of(&all, &format!("{host}/{caller}/replies"));
                assert_eq!(replies, 5, "{layer}: {host}/{caller}: {all:#?}");
            }
        }
        for host in ["alice", "bob"] {
            assert_eq!(of(&all, &format!("{host}/procedures/echo")), 15, "{layer}: {all:#?}");
        }
    }
}
