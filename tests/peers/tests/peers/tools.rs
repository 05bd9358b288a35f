//! Other programs that probe hosts and ways.

use xk_peers::testbed::{Lan, OURS, Routed, Wire};
use xk_testkit::needs_root;

pub(crate) fn fping_finds_us(wire: Wire) {
    needs_root!("ip", "fping", "tshark");
    let lan = Lan::new("fping", wire);
    let stack = lan.start("", "");
    // It fails unless all answer.
    let command = ["fping", "-c", "5", "-p", "50", "-t", "5000", "-b", "1000", OURS];
    lan.linux.exec(&command).unwrap();
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn nmap_tells_open_from_closed_ports(wire: Wire) {
    needs_root!("ip", "nmap", "tshark");
    let lan = Lan::new("nmap", wire);
    let stack = lan.start("", "echo udp port=7");
    let said = lan.linux.exec(&["nmap", "-n", "-sU", "-p", "7,9", OURS]).unwrap();
    let line = |port| said.lines().find(|line| line.starts_with(port));
    assert!(line("7/udp").is_some_and(|l| l.contains("open")), "{said}");
    assert!(line("9/udp").is_some_and(|l| l.contains("closed")), "{said}");
    stack.assert_drops_only(&["udp: no port"]);
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn nping_is_answered(wire: Wire) {
    needs_root!("ip", "nping", "tshark");
    let lan = Lan::new("nping", wire);
    let stack = lan.start("", "echo udp port=7");
    for probe in [&["--icmp"][..], &["--udp", "-p", "7", "-g", "40125", "--data-length", "100"]] {
        let command = [&["nping", "-c", "3", "--delay", "100ms"], probe, &[OURS]].concat();
        let said = lan.linux.exec(&command).unwrap();
        assert!(said.contains("Rcvd: 3 "), "{said}");
    }
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn mtr_sees_the_hop(wire: Wire) {
    needs_root!("ip", "mtr", "tshark");
    let net = Routed::new("mtr", wire);
    let stack = net.start(1500, "");
    let command = ["mtr", "-n", "-r", "-c", "2", "10.9.2.1"];
    let said = net.left.exec(&command).unwrap();
    for hop in ["1.|-- 10.9.1.254", "2.|-- 10.9.2.1"] {
        assert!(said.contains(hop), "{said}");
    }
    drop(stack);
    net.testbed
        .judge(&[("Time To Live", "mtr counts the time to live down, to be told where it ends")]);
}
