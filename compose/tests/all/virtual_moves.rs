//! Virtual protocols where hosts change what they are: addresses that move to other stations,
//! stations on several links, routers that answer for others, and lies about all of it.

use crate::virtual_world::{ETHER_TYPE, Net, add_route, graph, links, message};
use std::net::Ipv4Addr;
use xk_core::HostAddr;
use xk_core::SessionRef;
use xk_kit::control::ClaimHost;
use xk_kit::net::neighbour::{ArpReply, is_far};
use xk_vip::vipadv::VipTable;

const IP: u16 = 0x0800;

/// A host on the first link, beside those that are there.
fn beside(name: &str, mac: u8, address: &str, lower: &str) -> String {
    format!(
        "host {name} {{\n sim link=lan1\n eth sim address=\"02:00:00:00:00:{mac:02x}\"\n arp eth lifetime=\"10s\"\n \
         ip arp {{ address \"{address}/24\"; }}\n {lower}\n}}\n"
    )
}

/// A graph in which at 20 s the station 02 becomes 10.0.0.5; 10.0.0.2 is the station 09 from then
/// on.
fn renumbered(lower: &str) -> String {
    graph(lower, "")
        + &beside("b5", 2, "10.0.0.5", lower)
        + &beside("twin", 9, "10.0.0.2", lower)
        + &links(
            "{ partition until=\"20s\" between=twin; partition until=\"20s\" between=b5; partition from=\"20s\" between=b; }",
        )
}

#[test]
fn a_station_that_becomes_another_host_speaks_for_that_one() {
    for lower in ["vip arp ip name=low", "vipaddr arp ip name=low"] {
        let mut net = Net::new(&renumbered(lower), 1, Some(1480));
        net.pass_ms(3_000);
        // The first session of `vipaddr` on a shepherd that cannot wait goes by IP and finds the
        // host.
        let first = net.open(1, "10.0.0.1").unwrap();
        net.push(1, &first, &message(0, 100)).unwrap();
        net.pass_ms(22_000);
        let back = net.open(0, "10.0.0.2").unwrap();
        for n in 0..35 {
            let _ = net.push(0, &back, &message(n, 100));
            net.pass_ms(1_000);
        }
        assert!(!net.got(4).is_empty(), "{lower}: 10.0.0.2 is the twin now");
        net.got(0);
        let from_5 = net.open(3, "10.0.0.1").unwrap();
        for n in 0..3 {
            let _ = net.push(3, &from_5, &message(n, 100));
            net.pass_ms(1_000);
        }
        let got = net.got(0);
        let five: Ipv4Addr = "10.0.0.5".parse().unwrap();
        assert_eq!(got.len(), 3, "{lower}");
        assert!(got.iter().all(|(from, _)| *from == five), "{lower}: {got:?}");
    }
}

#[test]
fn a_host_on_two_links_is_its_own_host_of_the_link() {
    // Its first host is that of the other link.
    let dual = "host dual {\n sim link=lan2 name=w2\n sim link=lan1 name=w1\n eth w1 name=eth\n eth w2 name=e2\n arp eth\n arp e2 name=a2\n \
         ip a2 arp { address \"10.0.1.5/24\" on=a2; address \"10.0.0.5/24\" on=arp; }\n vip arp ip\n fragment vip name=low\n}\n";
    let source = graph("vip arp ip\n fragment vip name=low", "") + dual + &links("");
    for to in ["10.0.0.5", "10.0.1.5"] {
        let mut net = Net::new(&source, 1, None);
        net.pass_ms(3_000);
        let session = net.open(0, to).unwrap();
        net.pass_ms(50);
        for len in [100, 4000] {
            net.push(0, &session, &message(len, len)).unwrap();
            net.pass_ms(100);
            let got = net.got(3);
            assert_eq!(got.len(), 1, "{len} octets to {to}");
            assert_eq!(got[0].1, message(len, len));
            // The answer comes from the host that was spoken to.
            let made = net.states[3].3.made.borrow()[0].clone();
            net.push(3, &made, &message(1, len)).unwrap();
            net.pass_ms(100);
            let got = net.got(0);
            assert_eq!(got.len(), 1, "{len} octets from {to}");
            assert_eq!(got[0].0.to_string(), to);
        }
        assert_eq!(net.states[0].3.made.borrow().len(), 0);
    }
}

#[test]
fn a_router_that_answers_for_a_host_is_not_taken_for_it() {
    // The host has moved to the other link; the router answers for it, so that only it has to know.
    let moved = "host moved {\n sim link=lan2\n eth sim\n arp eth\n \
         ip arp { address \"10.0.1.9/24\"; address \"10.0.0.2/32\"; route default via=\"10.0.1.254\"; }\n vip arp ip name=low\n}\n";
    let source = graph("vip vipadv ip name=low", "vipadv arp")
        + moved
        + &links("{ partition from=\"10s\" between=b; }");
    let mut net = Net::new(&source, 1, Some(1480));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(50);
    net.frames.0.take();
    net.push(0, &session, &message(1, 100)).unwrap();
    net.pass_ms(7_000);
    assert_eq!(net.sent("a"), [ETHER_TYPE]);
    assert_eq!(net.got(1).len(), 1);
    let id = net.world.find("router").unwrap();
    net.world.enter(id, |cx| {
        let host = "10.0.0.2".parse().unwrap();
        let arp = cx.find_protocol("a1").unwrap();
        assert!(arp.ask(cx, ClaimHost { host }).is_some());
    });
    add_route(&mut net, "router", None, "a2");
    let mut arrived = Vec::new();
    for n in 0..60 {
        let _ = net.push(0, &session, &message(n, 100));
        net.pass_ms(1_000);
        arrived.push(net.got(3).len());
    }
    assert!(arrived[30..].iter().all(|n| *n == 1), "{arrived:?}");
    assert!(!session.head().is_closed());
}

#[test]
fn where_a_peer_is_can_be_asked_and_follows_it() {
    let source = graph("vip arp ip name=low", "") + &links("");
    let mut net = Net::new(&source, 1, Some(1480));
    let near = net.open(0, "10.0.0.2").unwrap();
    let far = net.open(0, "10.0.1.2").unwrap();
    let id = net.states[0].0;
    let ask = |net: &mut Net, session: &SessionRef| {
        let session = session.clone();
        net.world.enter(id, |cx| is_far(cx, &session)).unwrap()
    };
    // From the first, before a host has answered for an address.
    assert_eq!((ask(&mut net, &near), ask(&mut net, &far)), (false, true));
    net.pass_ms(3_000);
    assert_eq!((ask(&mut net, &near), ask(&mut net, &far)), (false, true));
    add_route(&mut net, "a", Some("10.0.0.254"), "");
    assert!(ask(&mut net, &near));
}

/// Contents of the table of a host's `vipadv`.
fn table(net: &mut Net, host: &str) -> (usize, Vec<HostAddr>) {
    let id = net.world.find(host).unwrap();
    let asked = net.world.enter(id, |cx| {
        let vipadv = cx.find_protocol("vipadv").unwrap();
        let max = usize::MAX;
        let asked = VipTable { max, ..VipTable::default() };
        vipadv.ask(cx, asked).unwrap()
    });
    let asked = asked.unwrap();
    (asked.total, asked.hosts.iter().map(|h| h.host).collect())
}

#[test]
fn a_flood_of_hosts_that_nobody_needs_drives_out_none_that_is_spoken_to() {
    let source = graph("vip vipadv ip name=low", "vipadv arp entries_max=64") + &links("");
    let mut net = Net::new(&source, 1, Some(1480));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(50);
    let id = net.states[0].0;
    for n in 0..1_000_u32 {
        net.world.enter(id, |cx| {
            let vipadv = cx.find_protocol("vipadv").unwrap();
            let [_, _, high, low] = n.to_be_bytes();
            let heard = ArpReply {
                protocol_type: xk_vip::ETHER_BASE,
                host: [10, 0, 7 + high, low].into(),
                address: [2, 7, 7, 7, high, low],
            };
            assert!(vipadv.ask(cx, heard).is_some());
        });
        net.pass_ms(1);
    }
    let (total, hosts) = table(&mut net, "a");
    assert_eq!(total, 64);
    assert!(hosts.contains(&"10.0.0.2".parse().unwrap()));
    net.frames.0.take();
    net.push(0, &session, &message(1, 100)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.sent("a"), [ETHER_TYPE]);
    // A host that is new still gets in.
    let last = HostAddr::from([10, 0, 10, 231]);
    assert!(hosts.contains(&last), "{hosts:?}");
}

#[test]
fn directed_broadcasts_go_by_ip_to_all() {
    let source = graph("vip arp ip name=low", "") + &links("");
    let mut net = Net::new(&source, 1, Some(1480));
    net.pass_ms(3_000);
    let all = net.open(0, "10.0.0.255").unwrap();
    net.pass_ms(5_000);
    net.frames.0.take();
    net.push(0, &all, &message(1, 100)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.sent("a"), [IP]);
    assert_eq!(net.got(1).len(), 1);
    // And this host itself is reached by nothing but IP.
    let own = net.open(0, "10.0.0.1").unwrap();
    net.push(0, &own, &message(2, 100)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.sent("a"), [0; 0]);
    let got = net.got(0);
    assert_eq!(got.len(), 1, "{got:?}");
}

/// Sprite RPC on `vip`, to a host that moves to another link 75 ms away; what the client sends in a
/// second, and by which frames.
#[test]
fn timers_follow_where_a_peer_is() {
    let host = |name: &str, lan: &str, addresses: &str, gateway: &str, above: &str| {
        format!(
            "host {name} {{\n sim link={lan}\n eth sim\n arp eth lifetime=\"10s\"\n ip arp {{ {addresses} route default via=\"{gateway}\"; }}\n \
             vip arp ip\n mrpc vip\n {above}\n}}\n"
        )
    };
    let source = [
        host("a", "lan1", "address \"10.0.0.1/24\";", "10.0.0.254",
            "caller mrpc to=\"procedure0@10.0.0.2\" count=120 interval=\"1s\""),
        host("b", "lan1", "address \"10.0.0.2/24\";", "10.0.0.254", "procedures mrpc"),
        host("moved", "lan2", "address \"10.0.1.9/24\"; address \"10.0.0.2/32\";", "10.0.1.254", "procedures mrpc"),
        "host router {\n sim link=lan1 name=w1\n sim link=lan2 name=w2\n eth w1 name=e1\n eth w2 name=e2\n arp e1 name=a1\n \
         arp e2 name=a2\n ip a1 a2 forward=#true { address \"10.0.0.254/24\" on=a1; address \"10.0.1.254/24\" on=a2; }\n}\n".into(),
        "link lan1 delay=\"1ms\" { partition from=\"20s\" between=b; }\nlink lan2 delay=\"75ms\"\n".into(),
    ]
    .concat();
    let mut net = Net::new(&source, 1, None);
    let second = |net: &mut Net| {
        net.frames.0.take();
        net.pass_ms(1_000);
        net.sent("a")
    };
    let mut kinds: Vec<_> = (0..25).map(|_| second(&mut net)).collect();
    assert!(kinds[5..19].iter().all(|k| *k == [ETHER_TYPE]), "{kinds:?}");
    add_route(&mut net, "a", Some("10.0.0.254"), "");
    add_route(&mut net, "router", None, "a2");
    kinds = (0..95).map(|_| second(&mut net)).collect();
    // By IP, and each but the first once: the wait is longer than the way there and back.
    assert!(kinds[60..].iter().all(|k| *k == [IP]), "{kinds:?}");
}
