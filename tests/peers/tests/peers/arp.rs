//! Address resolution with Linux.

use xk_ip::IpFigures;
use xk_kit::control::MyEther;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::netns::Space;
use xk_testkit::{await_that, needs_root};

use crate::host::assert_no_loss;

pub(crate) fn answers_arping(wire: Wire) {
    needs_root!("ip", "arping", "tshark");
    let lan = Lan::new("answers_arping", wire);
    let stack = lan.start("", "");
    let own = stack.ask("wire", MyEther::default()).address;
    let own = own.map(|octet| format!("{octet:02X}")).join(":");
    let said = lan.linux.exec(&["arping", "-c", "2", "-w", "10", "-I", DEVICE, OURS]).unwrap();
    // The first goes to everybody, the second to the station alone.
    assert!(said.contains(&format!("[{own}]")), "{said}");
    assert!(said.contains("Received 2 response(s)"), "{said}");
    // One for a free address stays without an answer.
    let nobody = ["arping", "-c", "1", "-w", "1", "-I", DEVICE, "10.9.0.99"];
    assert!(lan.linux.exec(&nobody).is_err());
    drop(stack);
    lan.testbed.judge(&[]);
}

pub(crate) fn is_found_by_duplicate_detection(wire: Wire) {
    needs_root!("ip", "arping", "tshark");
    let lan = Lan::new("duplicate_detection", wire);
    let stack = lan.start("", "");
    let detect = |address| {
        let command = ["arping", "-D", "-c", "2", "-w", "2", "-I", DEVICE, address];
        lan.linux.exec(&command)
    };
    // Status 1: another has it (RFC 5227, section 2.1.1: a probe comes from 0.0.0.0).
    assert!(detect(OURS).is_err());
    assert!(detect("10.9.0.99").is_ok());
    let conflicts = stack.ask("ip", IpFigures::default()).conflicts;
    drop(stack);
    lan.testbed
        .judge(&[("Duplicate IP address", "the one who probes asks for an address that is ours")]);
    // A probe uses no address yet.
    assert_eq!(conflicts, 0);
}

/// Says that `address` lives at Linux's own station.
fn announce(linux: &Space, address: &str) {
    let command = ["arping", "-U", "-c", "1", "-w", "1", "-I", DEVICE, "-s", address, address];
    // Its status tells whether there was an answer, which is not asked here.
    let _status = linux.exec(&command);
}

pub(crate) fn counts_conflicts(wire: Wire) {
    needs_root!("ip", "arping", "tshark");
    let lan = Lan::new("counts_conflicts", wire);
    let stack = lan.start("", "");
    lan.linux.address(DEVICE, &format!("{OURS}/32")).unwrap();
    announce(&lan.linux, OURS);
    await_that!(
        PROGRAM_TIME_MAX,
        stack.ask("ip", IpFigures::default()).conflicts != 0,
        "no conflict counted"
    );
    drop(stack);
    lan.testbed
        .judge(&[("Duplicate IP address", "Linux takes our address, which is what is tested")]);
}

pub(crate) fn finds_a_host_that_moved(wire: Wire) {
    needs_root!("ip", "ping", "arping", "tshark");
    let lan = Lan::new("host_moved", wire);
    let stack = lan.start("", "");
    assert_no_loss(&ping(&lan));
    // Another hardware address for the same host: Linux's own announcement tells (RFC 826 merges
    // what is known already).
    let moved = "02:12:34:56:78:9a";
    lan.linux.ip(&["link", "set", DEVICE, "down"]).unwrap();
    lan.linux.ip(&["link", "set", DEVICE, "address", moved]).unwrap();
    lan.linux.up(DEVICE).unwrap();
    announce(&lan.linux, LINUX);
    assert_no_loss(&ping(&lan));
    drop(stack);
    lan.testbed.judge(&[(
        "Duplicate IP address",
        "the same host has had two stations, one after the other",
    )]);
}

fn ping(lan: &Lan) -> String {
    lan.linux.exec(&["ping", "-c", "2", "-i", "0.1", "-W", "5", OURS]).unwrap()
}
