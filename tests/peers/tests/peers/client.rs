//! A host of ours that asks Linux.

use std::time::Duration;

use xk_ip::IpFigures;
use xk_peers::stack::Stack;
use xk_peers::testbed::{LINUX, Lan, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;

/// Waits for all probes and asserts that each message came back as it went.
pub(crate) fn assert_all_back(stack: &Stack, each: u64) {
    for report in stack.finish(PROGRAM_TIME_MAX) {
        assert_eq!(report.figure("received"), each, "{report:#?}");
        assert!(!report.failed, "{report:#?}");
    }
}

pub(crate) fn pings_in_all_sizes(wire: Wire) {
    needs_root!("ip", "tcpdump", "tshark");
    let lan = Lan::new("pings", wire);
    let mut probes = String::new();
    // Linux's station is known when the long ones begin: no more than 16 fragments wait for it.
    for (size, start) in [(0, 0), (1, 0), (56, 0), (1472, 0), (8000, 300), (65_000, 600)] {
        probes += &format!(
            "probe icmp name=p{size} to=\"{LINUX}\" count=5 interval=\"50ms\" timeout=\"10s\" size={size} start=\"{start}ms\"\n"
        );
    }
    let stack = lan.start("", &probes);
    assert_all_back(&stack, 5);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn sends_datagrams_of_all_sizes(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    let lan = Lan::new("sends_datagrams", wire);
    let mut servers = Vec::new();
    let mut probes = String::new();
    // One after the other, for the same reason as above.
    for (at, size) in [1, 64, 1472, 1473, 8000, 60_000].into_iter().enumerate() {
        let port = 7000 + at;
        let listen = format!("UDP4-LISTEN:{port}");
        // Only one peer comes, so no process of its own is needed for each.
        let server =
            lan.linux.spawn(&["socat", "-d", "-d", "-b", "65536", &listen, "PIPE"]).unwrap();
        server.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
        servers.push(server);
        probes += &format!(
            "probe udp name=p{size} to=\"port{port}@{LINUX}\" count=5 interval=\"0s\" timeout=\"10s\" size={size} start=\"{}ms\"\n",
            at * 200
        );
    }
    let stack = lan.start("", &probes);
    assert_all_back(&stack, 5);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn learns_of_closed_ports(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("learns_of_ports", wire);
    let probe = format!("probe udp to=\"port4@{LINUX}\" count=4 interval=\"1s\" timeout=\"2s\"\n");
    let stack = lan.start("", &probe);
    let reports = stack.finish(PROGRAM_TIME_MAX);
    let report = &reports[0];
    // The second push fails for the first one's error; the third goes out again, and so on.
    assert_eq!(report.figure("received"), 0, "{report:#?}");
    let (told, refused) =
        (report.figure("port unreachable"), report.figure("not sent: unreachable"));
    assert_eq!((told, refused), (2, 2), "{report:#?}");
    assert_eq!(stack.ask("ip", IpFigures::default()).errors_delivered, 2);
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn learns_of_unreachable_hosts(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("learns_of_hosts", wire);
    lan.linux.sysctl("net/ipv4/ip_forward", "1").unwrap();
    // Linux as router: one network it has no route to, one it is told to refuse.
    lan.linux.ip(&["route", "add", "prohibit", "10.77.0.0/16"]).unwrap();
    let probes = "probe udp name=nowhere to=\"port7@10.66.0.1\" count=1 timeout=\"1s\"\n\
                  probe udp name=forbidden to=\"port7@10.77.0.1\" count=1 timeout=\"1s\"\n\
                  probe udp name=silent to=\"port7@10.9.0.77\" count=1 timeout=\"8s\"\n";
    let stack = lan.start("", probes);
    let reports = stack.finish(PROGRAM_TIME_MAX);
    for (name, what) in [
        ("nowhere", "net unreachable"),
        ("forbidden", "prohibited"),
        ("silent", "host unreachable"),
    ] {
        let report = reports.iter().find(|r| r.name == name).unwrap();
        assert_eq!(report.figure(what), 1, "{report:#?}");
    }
    stack.assert_drops_only(&["arp: unresolved"]);
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn finds_the_maximum_of_a_path(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("finds_maximum", wire);
    // Linux as router, and behind it a link of 1300 octets.
    lan.linux.sysctl("net/ipv4/ip_forward", "1").unwrap();
    let behind = lan.testbed.linux();
    lan.testbed.net.veth(&lan.linux, "far0", &behind, "far1").unwrap();
    for (space, device, address) in
        [(&lan.linux, "far0", "10.9.7.1/24"), (&behind, "far1", "10.9.7.2/24")]
    {
        space.mtu(device, 1300).unwrap();
        space.address(device, address).unwrap();
        space.offload_off(device).unwrap();
    }
    behind.route("10.9.0.0/24", "10.9.7.1").unwrap();
    let probe = "probe icmp to=\"10.9.7.2\" count=4 interval=\"1s\" timeout=\"3s\" size=1400\n";
    let stack = lan.start("dont_fragment=#true", probe);
    let reports = stack.finish(PROGRAM_TIME_MAX + Duration::from_secs(5));
    let report = &reports[0];
    // The first is lost to the discovery (RFC 1191); from then on ours cuts what it sends.
    assert_eq!((report.figure("packet too big"), report.figure("received")), (1, 3), "{report:#?}");
    drop(stack);
    lan.testbed.judge(&[]);
}
