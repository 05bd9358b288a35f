//! Hosts of which each layer is a domain of its own that dies alone, and comes back below those
//! that it bears.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::sim::{checked, config, figure, pass, report, started};
use xk_compose::restart;
use xk_kit::control::MyEther;
use xk_sim::World;

/// A host of which each layer is a domain of its own, and one that uses it before and after.
const LAYERS: &str = r#"
host server {
    domain wire { sim link=lan address="02:00:00:00:00:02"; }
    domain link { eth sim; }
    domain resolution { arp eth; }
    domain net { ip arp { address "10.0.0.2/24"; } }
    domain errors { icmp ip; }
    domain datagrams { udp ip; }
    domain streams { tcp ip; }
    domain virtual { vip arp ip; }
    domain calls { fragment vip; channel fragment; select channel; }
    domain app {
        echo udp name=datagrams port=7; echo tcp name=stream port=7; procedures select
        probe udp name=own to="port7@10.0.0.1" count=0 interval="100ms"
    }
}
host client {
    sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; }
    icmp ip; udp ip; tcp ip; vip arp ip; fragment vip; channel fragment; select channel
    echo udp name=datagrams-of-server port=7
    probe udp name=early to="port7@10.0.0.2" count=20 interval="10ms"
    probe tcp name=early-stream to="port7@10.0.0.2" count=20 interval="10ms"
    probe udp name=datagrams to="port7@10.0.0.2" start="3s" count=20 interval="10ms"
    probe tcp name=stream to="port7@10.0.0.2" start="3s" count=20 interval="10ms"
    probe udp name=nothing to="port9@10.0.0.2" start="3s" count=5 interval="200ms"
    caller select name=calls procedure=0 to="10.0.0.2" start="3s" count=20 interval="10ms"
}
link lan delay="50us" rate="100Mbit"
"#;

/// A graph works again once any one layer has died and come back, though those above have not: the
/// next one is told what the one before was told.
#[test]
fn a_layer_that_comes_back_knows_what_the_one_before_was_told() {
    let graph = checked(LAYERS);
    let domains: Vec<&str> = LAYERS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("domain ")?.split(' ').next())
        .collect();
    assert_eq!(domains.len(), 10);
    let mut broken = Vec::new();
    for domain in domains.iter().copied().chain(["none"]) {
        let mut world = started(&graph, 1);
        pass(&mut world, Duration::from_millis(500));
        let name = format!("server/{domain}");
        if let Some(id) = world.find(&name) {
            world.crash(id);
            pass(&mut world, Duration::from_millis(50));
            restart(&graph, &mut world, &name, config(1)).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        pass(&mut world, Duration::from_secs(20));
        for (probe, line, least) in [
            // A layer finds by a message that its session below has ended: that is lost.
            ("datagrams", "received", 16),
            ("stream", "received", 20),
            ("nothing", "port unreachable", 1),
            // A call may be the one by which the client learns that the server has rebooted.
            ("calls", "replies", 19),
        ] {
            let report = report(&world, "client", probe);
            if figure(&report, line) < least {
                broken.push(format!("{domain} died: {probe}: {:?}", report.lines));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Facts that a layer has stated are asked again of the layer that replaces it.
#[test]
fn a_layer_that_comes_back_says_what_it_is() {
    let with = |address: &str| {
        let text = LAYERS.replacen("eth sim;", &format!("eth sim address={address:?};"), 1);
        checked(&text)
    };
    let (first, next) = (with("02:00:00:00:00:02"), with("02:00:00:00:00:03"));
    let mut world = started(&first, 1);
    let (said, above) = (Rc::new(Cell::default()), world.find("server/resolution").unwrap());
    let asked = |world: &mut World| {
        let tell = Rc::clone(&said);
        world.spawn(above, move |cx| {
            let eth = cx.find_protocol("eth").expect("what stands for it");
            tell.set(eth.ask(cx, MyEther::default()).expect("it answers").address);
        });
        pass(world, Duration::from_millis(10));
        said.get()
    };
    assert_eq!(asked(&mut world), [2, 0, 0, 0, 0, 2]);
    world.crash(world.find("server/link").expect("a domain"));
    restart(&next, &mut world, "server/link", config(1)).unwrap_or_else(|error| panic!("{error}"));
    pass(&mut world, Duration::from_millis(10));
    assert_eq!(asked(&mut world), [2, 0, 0, 0, 0, 3]);
}
