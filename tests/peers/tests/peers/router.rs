//! A router of ours between two hosts of Linux.

use std::net::UdpSocket;

use xk_ip::IpFigures;
use xk_peers::testbed::{DEVICE, PROGRAM_TIME_MAX, Routed, Wire};
use xk_testkit::needs_root;

use crate::host::{assert_no_loss, pattern};

/// The right host, and the router's address on the left.
const RIGHT: &str = "10.9.2.1";
const HOP: &str = "10.9.1.254";

pub(crate) fn forwards_pings_of_all_sizes(wire: Wire) {
    needs_root!("ip", "ping", "tcpdump", "tshark");
    let net = Routed::new("forwards_pings", wire);
    let stack = net.start(1500, "");
    net.testbed.capture(&net.right, DEVICE, "right");
    for size in ["56", "1472", "8000", "65000"] {
        let command = ["ping", "-c", "3", "-i", "0.05", "-W", "5", "-s", size, RIGHT];
        assert_no_loss(&net.left.exec(&command).unwrap());
    }
    let flood = ["ping", "-f", "-q", "-c", "1000", "-W", "5", RIGHT];
    assert_no_loss(&net.left.exec(&flood).unwrap());
    let figures = stack.ask("ip", IpFigures::default());
    // A router forwards fragments as they are (RFC 1812, section 4.2.2.7).
    assert_eq!(figures.reassembled, 0);
    assert!(figures.forwarded >= 2 * (3 * (1 + 1 + 6 + 44) + 1000));
    drop(stack);
    net.testbed.judge(&[]);
}

pub(crate) fn shows_in_traceroute(wire: Wire) {
    needs_root!("ip", "traceroute", "tshark");
    let net = Routed::new("traceroute", wire);
    let stack = net.start(1500, "");
    // Echo requests, datagrams to ports counted up, and to one port that the host has closed.
    for method in [&["-I"][..], &[], &["-U", "-p", "40000"]] {
        let command = ["traceroute", "-n", "-w", "5", "-q", "2", "-m", "5"];
        let command = [&command, method, &[RIGHT]].concat();
        let said = net.left.exec(&command).unwrap();
        let hops: Vec<&str> =
            said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, [HOP, RIGHT], "{method:?}: {said}");
        assert!(!said.contains('*'), "{method:?}: {said}");
    }
    drop(stack);
    net.testbed.judge(INTENDED);
}

/// Remarks of `tshark` on packets that probe the path.
const INTENDED: &[(&str, &str)] = &[
    (
        "Time To Live",
        "traceroute and tracepath count the time to live down, to be told where it ends",
    ),
    ("No response seen", "a request whose time to live ends on the way has no reply"),
];

pub(crate) fn tells_tracepath_a_smaller_maximum(wire: Wire) {
    needs_root!("ip", "tracepath", "ping", "tshark");
    let net = Routed::new("tracepath", wire);
    let stack = net.start(1400, "");
    let said = net.left.exec(&["tracepath", "-n", RIGHT]).unwrap();
    for part in [HOP, "pmtu 1400", "reached", "Resume: pmtu 1400 hops 2"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // And so is ping, of what must not be cut.
    net.left.ip(&["route", "flush", "cache"]).unwrap();
    let command = ["ping", "-c", "1", "-W", "5", "-M", "do", "-s", "1400", RIGHT];
    let said = net.left.exec(&command).unwrap_err().to_string();
    assert!(said.contains("mtu = 1400") && said.contains(HOP), "{said}");
    let fits = ["ping", "-c", "1", "-W", "5", "-M", "do", "-s", "1372", RIGHT];
    assert_no_loss(&net.left.exec(&fits).unwrap());
    drop(stack);
    net.testbed.judge(INTENDED);
}

pub(crate) fn fragments_for_a_smaller_link(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let net = Routed::new("fragments", wire);
    let stack = net.start(576, "");
    for size in ["1472", "8000"] {
        let command = ["ping", "-c", "3", "-i", "0.05", "-W", "5", "-M", "dont", "-s", size, RIGHT];
        assert_no_loss(&net.left.exec(&command).unwrap());
    }
    // Fragments of 552 octets at most; the last of each is shorter.
    assert!(stack.ask("ip", IpFigures::default()).fragments_sent >= 3 * (3 + 16));
    drop(stack);
    net.testbed.judge(&[]);
}

pub(crate) fn carries_a_stream_of_datagrams(wire: Wire) {
    needs_root!("ip", "iperf3", "tshark");
    let net = Routed::new("iperf3", wire);
    let stack = net.start(1500, "");
    let server = net.right.spawn(&["iperf3", "-s", "-1", "--forceflush"]).unwrap();
    server.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
    // The control connection is TCP, which the router carries like everything else.
    let client = net
        .left
        .spawn(&["iperf3", "-c", RIGHT, "-u", "-b", "20M", "-l", "1400", "-n", "4M"])
        .unwrap();
    let status = client.wait(PROGRAM_TIME_MAX).unwrap();
    let said = client.output();
    assert!(status.success() && said.contains("receiver"), "{said}");
    assert!(server.wait(PROGRAM_TIME_MAX).unwrap().success());
    stack.assert_drops_only(&[]);
    // The total says how many were lost of how many. The router has dropped none: some may be lost
    // in Linux's queues before it, on a machine that does not let it run for a while.
    let received = said.lines().find(|line| line.ends_with("receiver"));
    let lost_percent = received
        .and_then(|line| line.split_once('(')?.1.split_once("%)"))
        .and_then(|(percent, _)| percent.parse::<f64>().ok());
    assert!(lost_percent.is_some_and(|lost| lost < 5.0), "{said}");
    assert!(stack.ask("ip", IpFigures::default()).forwarded > 2900);
    drop(stack);
    net.testbed.judge(&[("D-SACK", "iperf3's own connection, answered late on a busy machine")]);
}

pub(crate) fn tells_what_it_cannot_deliver(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let net = Routed::new("tells", wire);
    let stack = net.start(1500, "");
    // No route; a host that does not answer; a closed port behind us; and our own closed
    // port.
    let command = ["ping", "-c", "1", "-W", "5", "10.200.0.1"];
    let said = net.left.exec(&command).unwrap_err().to_string();
    assert!(said.contains(HOP) && said.contains("Unreachable"), "{said}");
    let command = ["ping", "-c", "1", "-W", "15", "10.9.2.77"];
    let said = net.left.exec(&command).unwrap_err().to_string();
    assert!(said.contains(HOP) && said.contains("Destination Host Unreachable"), "{said}");
    let command = ["ping", "-c", "1", "-W", "5", "-t", "1", RIGHT];
    let said = net.left.exec(&command).unwrap_err().to_string();
    assert!(said.contains(HOP) && said.contains("Time to live"), "{said}");
    for peer in [RIGHT, HOP] {
        let ask = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
            socket.connect((peer, 4)).unwrap();
            socket.send(&pattern(100)).unwrap();
            socket.recv(&mut [0; 16]).unwrap_err()
        };
        let error = net.left.enter(ask).unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    drop(stack);
    net.testbed.judge(INTENDED);
}

pub(crate) fn records_routes(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let net = Routed::new("records", wire);
    let stack = net.start(1500, "");
    let command = ["ping", "-c", "1", "-W", "5", "-R", RIGHT];
    let said = net.left.exec(&command).unwrap();
    let recorded: Vec<&str> = said
        .lines()
        .skip_while(|line| !line.contains("RR:"))
        .map(|line| line.trim_start_matches("RR:").trim())
        .take_while(|line| !line.is_empty())
        .collect();
    // A router records the address of the link that the packet leaves on (RFC 791, section 3.1).
    assert_eq!(recorded, ["10.9.1.1", "10.9.2.254", RIGHT, RIGHT, HOP, "10.9.1.1"], "{said}");
    let command = ["ping", "-c", "1", "-W", "5", "-T", "tsandaddr", RIGHT];
    assert_no_loss(&net.left.exec(&command).unwrap());
    drop(stack);
    net.testbed.judge(&[]);
}
