//! A router of ours is replaced by another process again and again while `iperf3` runs through it.

use std::fs;
use std::time::{Duration, Instant};

use xk_peers::testbed::{DEVICE, PROGRAM_TIME_MAX, Testbed, Wire, end};
use xk_testkit::{needs, needs_root};

use crate::program::command;

/// Number of upgrades, and the seconds in which they happen.
const UPGRADES: u32 = 10;
const SECONDS: u32 = 10;

/// Only over TAP devices, which one process can take from another.
pub(crate) fn streams_go_on_under_iperf3(_: Wire) {
    needs_root!("ip", "iperf3", "tcpdump", "tshark");
    let xk = command();
    if !xk.is_file() {
        needs::skip("needs the command xk (cargo build -p xk)");
        return;
    }
    let xk = xk.display().to_string();
    let bed = Testbed::new("upgrade-iperf3");
    let [left, right] = [(); 2].map(|()| bed.linux());
    let ours = bed.net.space().unwrap();
    let graph = bed.folder().join("router.kdl");
    let control = std::env::temp_dir().join(format!("{}.sock", ours.name()));
    let control = control.display().to_string();
    fs::write(
        &graph,
        "host router {
            tap device=xkr1 name=wire1
            tap device=xkr2 name=wire2
            eth wire1 name=eth1
            eth wire2 name=eth2
            arp eth1 name=arp1
            arp eth2 name=arp2
            ip arp1 arp2 forward=#true {
                address \"10.9.1.254/24\" on=arp1
                address \"10.9.2.254/24\" on=arp2
            }
            icmp ip
        }",
    )
    .unwrap();
    let graph = graph.display().to_string();
    let mut running = ours.spawn(&[&xk, "run", "--control", &control, &graph]).unwrap();
    running.wait_for("Ctrl-C ends it.", PROGRAM_TIME_MAX).unwrap();
    for (space, side) in [(&left, 1), (&right, 2)] {
        // The device must be where the next process is: a bridge joins it to the other namespace.
        let (bridge, end, tap) = (format!("b{side}"), format!("x{side}"), format!("xkr{side}"));
        bed.net.veth(space, DEVICE, &ours, &end).unwrap();
        ours.ip(&["link", "add", &bridge, "type", "bridge"]).unwrap();
        for port in [&end, &tap] {
            ours.ip(&["link", "set", port, "master", &bridge]).unwrap();
        }
        ours.up(&bridge).unwrap();
        space.address(DEVICE, &format!("10.9.{side}.1/24")).unwrap();
        space.route("default", &format!("10.9.{side}.254")).unwrap();
    }
    bed.capture(&left, DEVICE, "left");
    let server = right.spawn(&["iperf3", "-s", "-1", "--forceflush"]).unwrap();
    server.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
    let seconds = SECONDS.to_string();
    // As much as a busy machine forwards and the capture keeps.
    let client = ["iperf3", "-J", "-c", "10.9.2.1", "-t", &seconds, "-b", "100M"];
    let client = left.spawn(&client).unwrap();
    let begun = Instant::now();
    for number in 1..=UPGRADES {
        let due = Duration::from_secs(SECONDS.into()) * number / (UPGRADES + 1);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let next = ours.spawn(&[&xk, "upgrade", "--control", &control]).unwrap();
        next.wait_for("Ctrl-C ends it.", PROGRAM_TIME_MAX).unwrap();
        let before = std::mem::replace(&mut running, next);
        let status = before.wait(PROGRAM_TIME_MAX).unwrap();
        assert!(status.success(), "{number}: {}{}", before.output(), running.output());
        assert!(!running.output().contains("lost"), "{number}: {}", running.output());
    }
    let took = begun.elapsed();
    let status = client.wait(PROGRAM_TIME_MAX).unwrap();
    let said = client.output();
    assert!(status.success() && server.wait(PROGRAM_TIME_MAX).unwrap().success(), "{said}");
    let octets = |name: &str| -> Option<u64> {
        let figures = said.split(&format!("\"{name}\":")).nth(1)?;
        let octets = figures.split("\"bytes\":").nth(1)?.split(',').next()?;
        octets.trim().parse().ok()
    };
    let (sent, received) = (octets("sum_sent"), octets("sum_received"));
    let (sent, received) = sent.zip(received).unwrap_or_else(|| panic!("{said}"));
    println!("{sent} octets sent, {received} received, {UPGRADES} upgrades in {took:?}");
    assert!(sent > 10 << 20, "{said}");
    // What the client ends in the middle of its server does not count.
    assert!(received <= sent && sent - received < 1 << 20, "{sent} sent, {received} received");
    assert!(end(&running).success(), "{}", running.output());
    let resets = bed.count("left.pcap", "tcp.flags.reset == 1 && frame.time_relative < 9");
    assert_eq!(resets, 0, "no connection was reset");
}
