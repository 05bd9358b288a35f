//! The wire `xdp` beside the host's own stack, and through the interface's ups and downs.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, LINUX, OURS, PROGRAM_TIME_MAX, Testbed, Wire};
use xk_testkit::netns::Space;
use xk_testkit::{await_that, needs, needs_root};
use xk_xdp::{Object, objects};

use crate::host::assert_no_loss;
use crate::program::command;

/// The address of the host whose interface we share.
const HOST: &str = "10.9.0.3";

/// Linux with [`DEVICE`] on one side of a veth pair, and `x0` on ours.
struct Link {
    testbed: Testbed,
    linux: Space,
    ours: Space,
}

fn link(test: &str, wire: Wire, queues: u32) -> Link {
    let testbed = Testbed::new(&format!("{}-{test}", mode(wire)));
    let (linux, ours) = (testbed.linux(), testbed.net.space().unwrap());
    connect(&linux, &ours, queues);
    Link { testbed, linux, ours }
}

fn connect(linux: &Space, ours: &Space, queues: u32) {
    let queues = queues.to_string();
    let each = ["numtxqueues", &queues, "numrxqueues", &queues];
    let left = [&["link", "add", DEVICE][..], &each, &["type", "veth"]].concat();
    let right = ["peer", "name", "x0", "netns", ours.name()];
    linux.ip(&[&left[..], &right, &each].concat()).unwrap();
    linux.up(DEVICE).unwrap();
    ours.up("x0").unwrap();
    linux.address(DEVICE, &format!("{LINUX}/24")).unwrap();
}

fn mode(wire: Wire) -> &'static str {
    match wire {
        Wire::XdpNative => "native",
        _ => "generic",
    }
}

/// A host of ours on `x0`, with these parameters of its wire.
fn start(link: &Link, wire: Wire, parameters: &str) -> Stack {
    let source = format!(
        "host xk {{\nxdp device=x0 mode={} {parameters} name=wire\neth wire\narp eth\n\
         ip arp {{ address \"{OURS}/24\"; }}\nicmp ip\nudp ip\necho udp port=7\n}}\n",
        mode(wire)
    );
    Stack::start(&link.ours, &source)
}

fn ping(linux: &Space, host: &str) {
    let command = ["ping", "-c", "3", "-i", "0.05", "-W", "5", host];
    assert_no_loss(&linux.exec(&command).unwrap());
}

/// Number of drops for this reason, as `protocol: reason`.
fn dropped(stack: &Stack, what: &str) -> u64 {
    let drops = stack.drops();
    let these =
        drops.iter().filter(|(protocol, reason, _)| format!("{protocol}: {reason}") == what);
    these.map(|(_, _, count)| count).sum()
}

/// Waits until it was dropped.
fn await_drop(stack: &Stack, what: &str) {
    await_that!(PROGRAM_TIME_MAX, dropped(stack, what) != 0, "no {what}: {:?}", stack.drops());
}

pub(crate) fn shares_an_interface(wire: Wire) {
    needs_root!("ip", "ping", "arping", "tcpdump", "tshark");
    for parameters in ["share=address", "address=own share=\"10.9.0.2\""] {
        let link = link("shares", wire, 1);
        link.ours.address("x0", &format!("{HOST}/24")).unwrap();
        link.linux.offload_off(DEVICE).unwrap();
        let stack = start(&link, wire, parameters);
        link.testbed.capture(&link.linux, DEVICE, "linux");
        // Both at once, each by its address.
        let flood = ["ping", "-c", "100", "-i", "0.005", "-W", "5", "-q"];
        let of_host = link.linux.spawn(&[&flood[..], &[HOST]].concat()).unwrap();
        let of_ours = link.linux.exec(&[&flood[..], &[OURS]].concat()).unwrap();
        assert_no_loss(&of_ours);
        of_host.wait(PROGRAM_TIME_MAX).unwrap();
        assert_no_loss(&of_host.output());
        // Questions to all come to both, and each answers for itself.
        for host in [HOST, OURS] {
            let command = ["arping", "-c", "2", "-w", "5", "-I", DEVICE, host];
            let said = link.linux.exec(&command).unwrap();
            assert!(said.contains("Received 2 response"), "{said}");
        }
        let bind = |address: &str| {
            let socket = UdpSocket::bind(address).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
            socket
        };
        let beside = link.ours.enter(|| bind("0.0.0.0:9")).unwrap();
        let from = link.linux.enter(|| bind("10.9.0.1:0")).unwrap();
        from.send_to(b"to all", "10.9.0.255:9").unwrap();
        assert_eq!(beside.recv(&mut [0; 16]).unwrap(), 6);
        await_drop(&stack, "udp: no port");
        // And ours asks Linux, by its own ARP.
        from.connect((OURS, 7)).unwrap();
        from.send(b"echo").unwrap();
        assert_eq!(from.recv(&mut [0; 16]).unwrap(), 4);
        stack.assert_drops_only(&["udp: no port", "arp: not mine"]);
        drop(stack);
        link.testbed.judge(&[]);
        ping(&link.linux, HOST);
    }
}

pub(crate) fn uses_several_queues(wire: Wire) {
    needs_root!("ip");
    let link = link("queues", wire, 2);
    // Linux chooses among the sending queues, each of which leads to a receiving queue, by the
    // processor that sends if it is told to and by the flow otherwise
    // (Documentation/networking/scaling.rst, XPS).
    let processors = processors();
    for (queue, processor) in processors.iter().enumerate().take(2) {
        let mask = format!("{:x}", 1_u32.checked_shl(*processor).unwrap_or(0));
        let file = format!("/sys/class/net/{DEVICE}/queues/tx-{queue}/xps_cpus");
        // A kernel without it goes by the flow.
        let _ = link.linux.exec(&["sh", "-c", &format!("echo {mask} > {file}")]);
    }
    let answered = |patience: Duration| {
        let ask = |flow: usize| {
            if let Some(processor) = processors.get(flow % 2) {
                let mut one = CpuSet::new();
                one.set(*processor as usize);
                sched_setaffinity(None, &one).unwrap();
            }
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            socket.set_read_timeout(Some(patience)).unwrap();
            socket.connect((OURS, 7)).unwrap();
            socket.send(b"which way?").unwrap();
            socket.recv(&mut [0; 16]).is_ok()
        };
        let all = || (0..24).filter(|flow| ask(*flow)).count();
        link.linux.enter(all).unwrap()
    };
    let stack = start(&link, wire, "queues=2");
    assert_eq!(answered(PROGRAM_TIME_MAX), 24);
    stack.assert_drops_only(&[]);
    drop(stack);
    // In generic mode a veth device counts all arrivals as its first queue's.
    if wire == Wire::XdpNative {
        let _stack = start(&link, wire, "queues=1");
        let some = answered(Duration::from_millis(100));
        if !(1..24).contains(&some) {
            needs::skip(&format!(
                "needs a kernel that spreads flows over two queues: of 24, {some} went to the first"
            ));
        }
    }
}

/// The first and the last processor that this process may use, if they are two that a mask of 32
/// bits can name.
fn processors() -> Vec<u32> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut all: Vec<u32> = (0..32).filter(|at| allowed.is_set(*at as usize)).collect();
    all.drain(1..all.len().saturating_sub(1).max(1));
    if all.len() == 2 { all } else { Vec::new() }
}

pub(crate) fn outlasts_its_interface(wire: Wire) {
    needs_root!("ip", "ping");
    let link = link("outlasts", wire, 1);
    let stack = start(&link, wire, "");
    ping(&link.linux, OURS);
    for _ in 0..2 {
        link.ours.ip(&["link", "set", "x0", "down"]).unwrap();
        await_drop(&stack, "wire: device down");
        link.ours.up("x0").unwrap();
        ping(&link.linux, OURS);
    }
    assert_eq!(dropped(&stack, "wire: device gone"), 0);
    link.ours.ip(&["link", "del", "x0"]).unwrap();
    await_drop(&stack, "wire: device gone");
    drop(stack);
    // Another of the same name serves the next.
    connect(&link.linux, &link.ours, 1);
    let _stack = start(&link, wire, "");
    ping(&link.linux, OURS);
}

pub(crate) fn starts_again_at_once(wire: Wire) {
    needs_root!("ip", "ping");
    let link = link("again", wire, 1);
    for _ in 0..5 {
        let _stack = start(&link, wire, "");
        let command = ["ping", "-c", "1", "-W", "5", OURS];
        assert_no_loss(&link.linux.exec(&command).unwrap());
    }
}

/// Holdings of this process: resident memory in KiB, and descriptors.
fn holdings() -> (u64, usize) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let words = line.unwrap().split_whitespace().nth(1);
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    (words.unwrap().parse().unwrap(), descriptors)
}

/// The programs, maps and links of a process, as text.
fn belongings(process: u32, known: &[u32]) -> Vec<String> {
    let name = format!("xk_{process}");
    let mut found = Vec::new();
    for kind in [Object::Program, Object::Map] {
        let ours = objects(kind).unwrap().into_iter();
        let ours = ours.filter(|object| object.name == name);
        found.extend(ours.map(|object| format!("{kind:?} {}", object.id)));
    }
    let links = objects(Object::Link).unwrap().into_iter();
    let links = links.filter(|link| link.program.is_some_and(|id| known.contains(&id)));
    found.extend(links.map(|link| format!("Link {}", link.id)));
    found
}

/// The graph of the repository, in a process that is killed again and again; a stack of ours asks
/// it all the while. So often by default; `XK_KILLS=100` for the full length.
pub(crate) fn leaves_nothing_behind(wire: Wire) {
    needs_root!("ip");
    let command = command();
    if !command.is_file() {
        needs::skip("needs the command xk (cargo build -p xk)");
        return;
    }
    let kills: u32 = std::env::var("XK_KILLS").map_or(10, |text| text.parse().unwrap());
    let testbed = Testbed::new(&format!("{}-killed", mode(wire)));
    let (here, there) = (testbed.net.space().unwrap(), testbed.net.space().unwrap());
    testbed.net.veth(&here, "x0", &there, "eth0").unwrap();
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/xdp.kdl");
    let source = fs::read_to_string(graph).unwrap();
    let graph = testbed.folder().join("xdp.kdl");
    fs::write(&graph, source.replace("mode=auto", &format!("mode={}", mode(wire)))).unwrap();
    let peer = Stack::start(
        &here,
        "host peer {\nxdp device=x0 mode=generic\neth xdp\narp eth\nip arp { address \"192.168.1.1/24\"; }\n\
         icmp ip\nprobe icmp to=\"192.168.1.200\" count=1000000 interval=\"5ms\" timeout=\"50ms\"\n}\n",
    );
    let received = || peer.reports()[0].figure("received");
    let await_growth = |what: &dyn Fn() -> String, figure: &dyn Fn() -> u64| {
        let (begun, before) = (Instant::now(), figure());
        while figure() < before + 5 {
            assert!(begun.elapsed() < PROGRAM_TIME_MAX, "no more {}: {:?}", what(), peer.reports());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut settled = None;
    for round in 0..kills {
        let (command, graph) = (command.to_string_lossy(), graph.to_string_lossy());
        let xk = there.spawn(&[&command, "run", "--no-control", &graph]).unwrap();
        await_growth(&|| format!("answers; xk said: {}", xk.output()), &received);
        let process = xk.id();
        let own = objects(Object::Program).unwrap().into_iter();
        let own = own.filter(|object| object.name == format!("xk_{process}"));
        let own: Vec<u32> = own.map(|object| object.id).collect();
        assert_eq!(belongings(process, &own).len(), 3, "round {round}");
        let _said = xk.stop();
        // The system works the end off in the background.
        let begun = Instant::now();
        while !belongings(process, &own).is_empty() {
            let left = belongings(process, &own);
            assert!(begun.elapsed() < PROGRAM_TIME_MAX, "round {round} left {left:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        let shown = there.exec(&["ip", "-d", "link", "show", "eth0"]).unwrap();
        assert!(!shown.contains("xdp"), "round {round}: {shown}");
        // The peer tells: its messages are lost.
        let lost = || peer.reports()[0].figure("lost");
        await_growth(&|| "losses".to_owned(), &lost);
        if round == 2 {
            settled = Some(holdings());
        }
    }
    let (first, last) = (settled.unwrap_or_else(holdings), holdings());
    println!("{kills} kills: resident KiB and descriptors {first:?}, then {last:?}");
    assert!(last.0 < first.0 + 4096, "memory grew: {first:?} {last:?}");
    assert!(last.1 <= first.1, "descriptors grew: {first:?} {last:?}");
}
