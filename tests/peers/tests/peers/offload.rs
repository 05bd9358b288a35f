//! Checksums left to the wire: whole wherever a frame leaves memory.

use std::net::UdpSocket;

use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Testbed, Wire};
use xk_testkit::needs_root;
use xk_testkit::netns::Space;

use crate::host::pattern;

/// Sizes that are summed by the sender, that are left open, and that go in fragments.
const SIZES: [usize; 6] = [1, 200, 300, 1001, 1472, 4000];
const BAD: &str = "udp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\"";
const GOOD: &str = "udp.checksum.status == \"Good\"";

/// Sends datagrams of all sizes from `space` and expects each back.
fn asks(space: &Space, port: u16, host: &str) {
    let to = (host.to_owned(), port);
    let ask = move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
        socket.connect((to.0.as_str(), to.1)).unwrap();
        let mut octets = vec![0; 65_536];
        for size in SIZES {
            let sent = pattern(size);
            socket.send(&sent).unwrap();
            let count = socket.recv(&mut octets).unwrap();
            assert!(octets[..count] == sent, "{size} octets come back");
        }
    };
    space.enter(ask).unwrap();
}

/// Joins `linux` to a host behind it by a link over which Linux completes all checksums, and has
/// that link captured.
fn third_link(testbed: &Testbed, linux: &Space) -> Space {
    linux.sysctl("net/ipv4/ip_forward", "1").unwrap();
    let behind = testbed.linux();
    testbed.net.veth(linux, "far0", &behind, "far1").unwrap();
    for (space, device, address) in
        [(linux, "far0", "10.9.7.1/24"), (&behind, "far1", "10.9.7.2/24")]
    {
        space.address(device, address).unwrap();
        space.offload_off(device).unwrap();
    }
    behind.route("10.9.0.0/16", "10.9.7.1").unwrap();
    testbed.capture(&behind, "far1", "third");
    behind
}

/// Linux routes between our wire and a link that sums: what crosses the second one is whole, both
/// ways.
pub(crate) fn open_checksums_are_whole_on_a_third_link(wire: Wire) {
    needs_root!("ip", "tcpdump", "tshark");
    let lan = Lan::new("third_link", wire);
    let stack = lan.start("", "echo udp port=7");
    let behind = third_link(&lan.testbed, &lan.linux);
    asks(&behind, 7, OURS);
    asks(&lan.linux, 7, OURS);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[]);
    for capture in ["third.pcap", "ours.pcapng"] {
        assert_eq!(lan.testbed.count(capture, BAD), 0, "{capture}");
        let good = lan.testbed.count(capture, GOOD);
        assert!(good >= 2 * SIZES.len(), "{capture}: {good}");
    }
}

/// A router of ours between a TAP device that leaves checksums and segmentation to us, and a VXLAN
/// in datagrams, which knows of neither; Linux on either side, `10.9.0.1` and `10.9.2.1`. What goes
/// over the VXLAN is captured as `outer`.
struct Between {
    testbed: Testbed,
    left: Space,
    right: Space,
    stack: Stack,
}

fn between(test: &str) -> Between {
    let testbed = Testbed::new(test);
    let linux = testbed.linux();
    let right = testbed.linux();
    testbed.net.veth(&linux, "u1", &right, "u0").unwrap();
    for (space, device, address) in [(&right, "u0", "192.0.2.1/24"), (&linux, "u1", "192.0.2.2/24")]
    {
        space.mtu(device, 1600).unwrap();
        space.address(device, address).unwrap();
        space.offload_off(device).unwrap();
    }
    let add = "link add vx0 mtu 1500 type vxlan id 7 remote 192.0.2.2 local 192.0.2.1 dev u0 dstport 4789";
    let add: Vec<&str> = add.split(' ').collect();
    right.ip(&add).unwrap();
    right.up("vx0").unwrap();
    right.offload_off("vx0").unwrap();
    right.address("vx0", "10.9.2.1/24").unwrap();
    right.route("10.9.0.0/24", "10.9.2.254").unwrap();
    let file = testbed.capture_file("ours");
    let source = format!(
        "host router {{\n\
         tap device={DEVICE} host_address=\"{LINUX}/24\"\n\
         host-eth local=\"192.0.2.2:4789\" peer=\"192.0.2.1:4789\" vni=7 mtu=1500\n\
         pcap host-eth file=\"{}\"\n\
         eth tap name=eth1\narp eth1 name=arp1\neth pcap name=eth2\narp eth2 name=arp2\n\
         ip arp1 arp2 forward=#true {{\naddress \"{OURS}/24\" on=arp1\naddress \"10.9.2.254/24\" on=arp2\n}}\n\
         icmp ip\n}}\n",
        file.display()
    );
    let stack = Stack::start(&linux, &source);
    linux.route("10.9.2.0/24", OURS).unwrap();
    testbed.capture(&right, "u0", "outer");
    Between { testbed, left: linux, right, stack }
}

pub(crate) fn a_router_completes_what_another_wire_does_not(_: Wire) {
    needs_root!("ip", "tcpdump", "tshark");
    let Between { testbed, left, right, stack } = between("router_completes");
    let echo = right.spawn(&["socat", "-b", "65536", "UDP4-LISTEN:7,fork", "EXEC:cat"]).unwrap();
    let listening = || {
        let said = right.exec(&["ss", "-uln"]).unwrap();
        said.contains(":7 ")
    };
    while !listening() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    asks(&left, 7, "10.9.2.1");
    drop(echo);
    stack.assert_drops_only(&[]);
    drop(stack);
    testbed.judge(&[]);
    for capture in ["outer.pcap", "ours.pcapng"] {
        assert_eq!(testbed.count(capture, BAD), 0, "{capture}");
        assert!(testbed.count(capture, GOOD) >= 2 * SIZES.len(), "{capture}");
    }
}

/// Octets of a stream that goes through a router.
const STREAM_OCTETS: usize = 1 << 20;

/// Signs of loss allowed behind a router that cuts runs: on a busy machine the VXLAN's socket has
/// less room than the first window.
const LOST: [(&str, &str); 6] = [
    ("etransmission", "a full queue on the way"),
    ("uplicate ACK", "a full queue on the way"),
    ("revious segment", "a full queue on the way"),
    ("out-of-order", "a full queue on the way"),
    ("D-SACK", "a loss probe that was not needed"),
    ("completely full", "socat writes more at once than the window has room for"),
];

pub(crate) fn a_router_cuts_what_another_wire_does_not(_: Wire) {
    needs_root!("ip", "socat", "tcpdump", "tshark");
    let Between { testbed, left, right, stack } = between("router_cuts");
    let [sent, come] = ["sent", "come"].map(|name| testbed.folder().join(name));
    std::fs::write(&sent, pattern(STREAM_OCTETS)).unwrap();
    let [from, to] = [&sent, &come].map(|file| file.to_string_lossy());
    let to = format!("CREATE:{to}");
    let server =
        right.spawn(&["socat", "-d", "-d", "-u", "TCP4-LISTEN:5007,reuseaddr", &to]).unwrap();
    server.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
    let open = format!("OPEN:{from}");
    let client = ["socat", "-b", "262144", "-u", &open, "TCP:10.9.2.1:5007"];
    left.exec(&client).unwrap();
    assert!(server.wait(PROGRAM_TIME_MAX).unwrap().success());
    assert!(std::fs::read(&come).unwrap() == pattern(STREAM_OCTETS));
    stack.assert_drops_only(&["wire: device full", "host-eth: device full"]);
    drop(stack);
    testbed.judge(&LOST);
    // Linux sends runs into the router, and what leaves it is cut: whole frames, with right sums.
    assert!(testbed.count("ours.pcapng", "tcp.len > 1448") > 0, "no runs");
    assert_eq!(testbed.count("outer.pcap", "tcp.len > 1448"), 0);
    let bad = "tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\"";
    assert_eq!(testbed.count("outer.pcap", bad), 0);
    let good = "tcp.checksum.status == \"Good\" && tcp.len > 0";
    assert!(testbed.count("outer.pcap", good) >= STREAM_OCTETS / 1448);
}
