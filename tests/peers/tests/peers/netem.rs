//! A bad link that none of us wrote: a router of Linux's own, with the queueing discipline `netem`
//! on both its links, in a process of its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xk_net::UdpSocket;
use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire, end};
use xk_testkit::uml::{Guest, Machine};
use xk_testkit::{needs_program, needs_uml};
use xk_xdr::Opaque;

use crate::ends::{Ends, Opener, capture, graph, part_from, start};
use crate::host::pattern;
use crate::rpc::{self, TRIAL, needs_rpc, trial};
use crate::tcp::DAMAGE;

/// Faults of each direction.
const FAULTS: &str = "delay 4ms 3ms loss 4% duplicate 3% reorder 10%";

/// The router's shell: what the one link asks for is answered with the router's own address if it
/// is on the other (proxy ARP, RFC 1027), so both ends take it for a link.
fn script() -> String {
    let side = |device: &str, address: &str, host: &str| {
        format!(
            "ip link set {device} up\n\
             ip addr add {address}/32 dev {device}\n\
             ip route add {host}/32 dev {device}\n\
             echo 1 > /proc/sys/net/ipv4/conf/{device}/proxy_arp\n\
             echo 0 > /proc/sys/net/ipv4/conf/{device}/send_redirects\n\
             echo 0 > /proc/sys/net/ipv4/neigh/{device}/proxy_delay\n\
             tc qdisc add dev {device} root netem {FAULTS}"
        )
    };
    let sides = [side("vec0", "10.9.0.253", OURS), side("vec1", "10.9.0.254", LINUX)];
    format!("{}\necho 1 > /proc/sys/net/ipv4/ip_forward", sides.join("\n"))
}

/// A link between a stack of ours and Linux that is the router.
fn join(test: &str) -> (Lan, Guest) {
    let lan = Lan::unjoined(test, Wire::Veth);
    let guest = Machine::new("router", lan.testbed.folder())
        .tap("x0")
        .tap("x1")
        .modules(&["net/sched/sch_netem"])
        .script(&script())
        .start(&lan.ours)
        .unwrap();
    // The device stays the guest's, whichever namespace its other end is in.
    lan.ours.ip(&["link", "set", "x1", "netns", lan.linux.name()]).unwrap();
    lan.linux.ip(&["link", "set", "x1", "name", DEVICE]).unwrap();
    lan.linux.up(DEVICE).unwrap();
    lan.linux.address(DEVICE, &format!("{LINUX}/24")).unwrap();
    lan.linux.offload_off(DEVICE).unwrap();
    (lan, guest)
}

/// Frames that netem has lost, on both links together.
fn lost(guest: &Guest) -> u64 {
    let said = guest.exec("tc -s qdisc show", PROGRAM_TIME_MAX).unwrap();
    assert_eq!(said.matches("qdisc netem").count(), 2, "{said}");
    let dropped = said.split("dropped ").skip(1).filter_map(|rest| rest.split(',').next());
    dropped.filter_map(|count| count.parse::<u64>().ok()).sum()
}

pub(crate) fn carries_streams_datagrams_and_calls(_: Wire) {
    needs_rpc!();
    needs_program!("tc");
    needs_uml!();
    let (lan, guest) = join("netem");
    streams(&lan);
    let after_streams = lost(&guest);
    assert!(after_streams > 0);
    datagrams(&lan);
    let after_datagrams = lost(&guest);
    assert!(after_datagrams > after_streams);
    calls(&lan);
    println!("lost on the way: {}", lost(&guest));
    drop(guest);
    lan.testbed.judge(&[DAMAGE, &[("Connection reset", "a server that ends")]].concat());
}

/// Each end opens one; its contents are compared at the other.
fn streams(lan: &Lan) {
    let captured = capture(lan, "wire");
    let stack = start(lan, &graph(lan, (&captured, "pcap"), "", ""));
    for opener in [Opener::Linux, Opener::Ours] {
        let ends = Ends::open(lan, &stack, opener);
        ends.exchange(400_000, 400_000, [None; 2], 2 * PROGRAM_TIME_MAX);
    }
    part_from(stack);
}

/// As long as the datagrams here are.
const DATAGRAM: usize = 900;

/// A datagram of this number.
fn datagram(number: u16) -> Vec<u8> {
    [&number.to_be_bytes()[..], &pattern(DATAGRAM)[usize::from(number) % 7..]].concat()
}

/// Datagrams there and back, of which some are lost, and some come twice; none is another.
///
/// At most [`WINDOW`] are under way: a guest that has no processor for a while loses no more.
fn datagrams(lan: &Lan) {
    const COUNT: u16 = 400;
    const WINDOW: usize = 16;
    let bind = || std::net::UdpSocket::bind((LINUX, 0)).unwrap();
    let linux = lan.linux.enter(bind).unwrap();
    linux.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let to: SocketAddr = linux.local_addr().unwrap();
    let setup = graph(lan, ("", "wire"), "", "udp ip");
    let stack = start(lan, &setup);
    let ours = UdpSocket::bind(&stack, (OURS, 7000)).unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let is_over = AtomicBool::new(false);
    let echo = || {
        let mut buffer = [0; 2048];
        while !is_over.load(Ordering::Relaxed) {
            if let Ok((octets, from)) = linux.recv_from(&mut buffer) {
                linux.send_to(&buffer[..octets], from).unwrap();
            }
        }
    };
    let (mut seen, mut repeated) = (vec![false; usize::from(COUNT)], 0);
    std::thread::scope(|scope| {
        scope.spawn(echo);
        let (mut numbers, mut under_way) = (0..COUNT, BTreeSet::new());
        let mut buffer = [0; 2048];
        loop {
            for number in numbers.by_ref().take(WINDOW - under_way.len()) {
                ours.send_to(&datagram(number), to).unwrap();
                under_way.insert(number);
            }
            let Ok((octets, from)) = ours.recv_from(&mut buffer) else {
                if numbers.is_empty() {
                    break;
                }
                under_way.clear();
                continue;
            };
            assert_eq!(from, to);
            let number = u16::from_be_bytes([buffer[0], buffer[1]]);
            assert_eq!(buffer[..octets], datagram(number), "{number}");
            under_way.remove(&number);
            repeated += usize::from(std::mem::replace(&mut seen[usize::from(number)], true));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let came = seen.iter().filter(|seen| **seen).count();
    println!("{came} datagrams of {COUNT} came back, {repeated} more than once");
    assert!(came > usize::from(COUNT) * 2 / 3 && came < usize::from(COUNT), "{came}");
    assert!(repeated > 0);
    drop(ours);
    part_from(stack);
}

/// Calls of ours to the C server, which sees some twice and others only when they are repeated.
fn calls(lan: &Lan) {
    const PORT: u16 = 2049;
    let layers = "reqrep udp\nsunselect reqrep\nsunprog sunselect\n\
        tcp ip\nrm tcp\nreqrep rm name=reqrep-tcp\nsunselect reqrep-tcp name=sunselect-tcp\n\
        sunprog sunselect-tcp name=sunprog-tcp\n";
    let file = lan.testbed.capture_file("calls");
    let stack = Stack::start(
        &lan.ours,
        &format!(
            "host xk {{\n{}\npcap wire file=\"{}\"\neth pcap\narp eth\n\
             ip arp {{ address \"{OURS}/24\"; }}\nicmp ip\nudp ip\n{layers}}}\n",
            lan.wire_line(),
            file.display()
        ),
    );
    let server = rpc::serve(&lan.linux, PORT);
    let at =
        |procedure: u32| format!("procedure{procedure}@version1@program{TRIAL}@port{PORT}@{LINUX}");
    let octets: Opaque<8192> = pattern(4000).into();
    for layer in ["sunprog", "sunprog-tcp"] {
        for number in 0..30 {
            let sum = trial::call(&stack, layer, at(2), trial::octets(&[number, -5]));
            assert_eq!(sum, Ok(trial::octets(&(number - 5))), "{layer}, {number}");
        }
        // Of a datagram in three fragments each way.
        let echoed = trial::call(&stack, layer, at(1), trial::octets(&octets));
        assert_eq!(echoed, Ok(trial::octets(&octets)), "{layer}");
    }
    let _status = end(&server);
    drop(stack);
}
