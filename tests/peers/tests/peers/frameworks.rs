//! UDP of BSD and STREAMS, and what stands on their Ethernets, beside Linux.

use std::net::UdpSocket;

use xk_peers::stack::Stack;
use xk_peers::testbed::{LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;

use crate::client::assert_all_back;
use crate::host::pattern;

/// IP of the x-kernel on a layer of Ethernet, `ether`.
fn on_ether() -> String {
    format!("arp ether\nip arp {{ address \"{OURS}/24\"; }}\n")
}

/// Hosts of which a layer at least is a framework's, up to `udp`.
fn hosts() -> [(&'static str, String); 6] {
    let bsd = format!("ether wire; ip ether {{ address \"{OURS}/24\"; }}");
    let own = || "eth wire name=ether\n".to_owned() + &on_ether();
    let within = |of: &str, lines: &str| format!("subsystem {of} {{ {lines}; }}\n");
    [
        ("bsd", within("bsd", &(bsd.clone() + "; udp ip"))),
        ("bsd's udp", own() + &within("bsd", "udp ip")),
        ("udp of STREAMS", own() + &within("streams", "udp ip")),
        ("udp of STREAMS on bsd's ip", within("bsd", &bsd) + &within("streams", "udp ip")),
        ("bsd's ether", within("bsd", "ether wire") + &on_ether() + "udp ip\n"),
        ("ether of STREAMS", within("streams", "ether wire") + &on_ether() + "udp ip\n"),
    ]
}

/// Sizes of datagrams, the last of which goes in fragments.
const SIZES: [usize; 5] = [1, 100, 1000, 1472, 4000];

pub(crate) fn datagrams_go_both_ways(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    for (at, (name, lines)) in hosts().into_iter().enumerate() {
        let lan = Lan::new(&format!("frameworks-{at}"), wire);
        let mut probes = String::new();
        let mut servers = Vec::new();
        for (at, size) in SIZES.into_iter().enumerate() {
            let port = 7000 + at;
            let listen = format!("UDP4-LISTEN:{port}");
            let server =
                lan.linux.spawn(&["socat", "-d", "-d", "-b", "65536", &listen, "PIPE"]).unwrap();
            server.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
            servers.push(server);
            probes += &format!(
                "probe udp name=p{size} to=\"port{port}@{LINUX}\" count=5 interval=\"20ms\" timeout=\"10s\" size={size} start=\"{}ms\"\n",
                500 + at * 300
            );
        }
        let wire_line = lan.wire_line();
        let source = format!("host xk {{\n{wire_line}\n{lines}echo udp port=7\n{probes}}}\n");
        let stack = Stack::start(lan.ours(), &source);
        let ask = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
            socket.connect((OURS, 7)).unwrap();
            for octets in SIZES {
                let sent = pattern(octets);
                socket.send(&sent).unwrap();
                let mut back = [0; 8192];
                let got = socket.recv(&mut back);
                assert!(
                    got.as_ref().is_ok_and(|got| back[..*got] == sent),
                    "{name}: {octets} octets: {got:?}"
                );
            }
        };
        lan.linux.enter(ask).unwrap();
        assert_all_back(&stack, 5);
        drop(stack);
        lan.testbed.judge(&[]);
    }
}

/// Linux is told of a port that has no user, whichever framework has UDP.
pub(crate) fn closed_ports_are_refused(wire: Wire) {
    needs_root!("ip", "tshark");
    for (at, (name, lines)) in hosts().into_iter().enumerate() {
        let lan = Lan::new(&format!("frameworks-refuse-{at}"), wire);
        // ICMP of BSD's IP is a part of it.
        let icmp = if lines.contains("ip arp") { "icmp ip\n" } else { "" };
        let wire_line = lan.wire_line();
        let stack =
            Stack::start(lan.ours(), &format!("host xk {{\n{wire_line}\n{lines}{icmp}}}\n"));
        let ask = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
            socket.connect((OURS, 4)).unwrap();
            socket.send(&pattern(100)).unwrap();
            socket.recv(&mut [0; 16]).unwrap_err()
        };
        let error = lan.linux.enter(ask).unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{name}");
        drop(stack);
        lan.testbed.judge(&[]);
    }
}
