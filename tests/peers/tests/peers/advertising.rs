//! Hosts that say by packets of address resolution that they run virtual protocols, beside Linux,
//! which runs none.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use xk_core::control::ListSessions;
use xk_icmp::IcmpFigures;
use xk_kit::control::MyEther;
use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;
use xk_vip::vipadv::VipTable;

use crate::host::{assert_no_loss, pattern};

/// In this time one interval of a second has passed, and a tenth more.
const SAID_AGAIN: Duration = Duration::from_millis(1300);
/// Number of times that Linux forgets our address and asks for it.
const EXCHANGES: usize = 3;

pub(crate) fn does_not_disturb_linux(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let lan = Lan::new("advertising", wire);
    // The hardest case: Linux believes whatever is told unasked, if only it is of its own type.
    lan.linux.sysctl("net/ipv4/conf/all/arp_accept", "1").unwrap();
    let begun = Instant::now();
    let every = "count=8 interval=\"100ms\" start=\"100ms\"";
    let stack = lan.start(
        "",
        &format!(
            "vipadv arp interval=\"1s\"\nvip vipadv ip\nfragment vip\necho udp port=7\n\
             probe icmp name=pings to=\"{LINUX}\" {every} timeout=\"10s\"\n\
             probe fragment name=virtual to=\"{LINUX}\" {every} timeout=\"500ms\" size=100\n"
        ),
    );
    let own = stack.ask("wire", MyEther::default()).address;
    let own = own.map(|octet| format!("{octet:02x}")).join(":");
    for round in 0..EXCHANGES {
        lan.linux.ip(&["neigh", "flush", "dev", DEVICE]).unwrap();
        let said = lan.linux.exec(&["ping", "-c", "2", "-i", "0.1", "-W", "5", OURS]);
        assert_no_loss(&said.unwrap());
        assert_echo(&lan, 100 + round);
        assert_neighbours(&lan, &own);
    }
    std::thread::sleep(SAID_AGAIN.saturating_sub(begun.elapsed()));
    assert_probes(&stack);
    assert_goes_by_ip(&stack);
    // What was said since has changed nothing.
    assert_neighbours(&lan, &own);
    let figures = stack.ask("icmp", IcmpFigures::default());
    assert_eq!(figures.requests_answered, 2 * EXCHANGES as u64);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(&[]);
    assert_said(&lan, &own);
}

/// Checks that echo returns what Linux sends to its port.
fn assert_echo(lan: &Lan, octets: usize) {
    let sent = pattern(octets);
    let ask = || {
        let socket = UdpSocket::bind((LINUX, 0)).unwrap();
        socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
        socket.send_to(&sent, (OURS, 7)).unwrap();
        let mut back = vec![0; 2000];
        let octets = socket.recv(&mut back).unwrap();
        back.truncate(octets);
        back
    };
    assert_eq!(lan.linux.enter(ask).unwrap(), sent);
}

/// Linux knows us by our address, and no other host.
fn assert_neighbours(lan: &Lan, own: &str) {
    let said = lan.linux.exec(&["ip", "-4", "neigh", "show", "dev", DEVICE]).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    let expected = format!("{OURS} lladdr {own} ");
    assert!(lines[0].starts_with(&expected), "{said}");
    assert!(!said.contains("FAILED"), "{said}");
}

/// Linux answers our pings; what it does not run it refuses, as it does without virtual protocols.
fn assert_probes(stack: &Stack) {
    for report in stack.finish(PROGRAM_TIME_MAX) {
        match report.name.as_str() {
            "pings" => {
                assert_eq!(report.figure("received"), 8, "{report:#?}");
                assert!(!report.failed, "{report:#?}");
            }
            "virtual" => assert_eq!(report.figure("sent"), 8, "{report:#?}"),
            _ => {}
        }
    }
}

/// Checks that the session to Linux goes by IP: no host has said that Linux runs virtual protocols.
fn assert_goes_by_ip(stack: &Stack) {
    assert_eq!(stack.ask("vipadv", VipTable::default()).total, 0);
    let text = stack.with(|cx| {
        let vip = cx.find_protocol("vip")?;
        let question = ListSessions::first(2);
        let [session] = <[_; 1]>::try_from(vip.ask(cx, question)?.sessions).ok()?;
        Some(session.info(cx).text)
    });
    assert_eq!(text, Some(format!("{LINUX}, by IP")));
}

/// All that was to be said went over the wire, and no message of a virtual protocol did.
fn assert_said(lan: &Lan, own: &str) {
    let count = |filter: &str| lan.testbed.count("ours.pcapng", filter);
    let ours = format!(
        "eth.type == 0x0806 && arp.proto.type == 0x3900 && arp.opcode == 2 && arp.src.hw_mac == {own} && \
         eth.src == {own}"
    );
    let to_all = count(&format!("{ours} && eth.dst == ff:ff:ff:ff:ff:ff"));
    assert!(to_all >= 2, "at the start and after an interval: {to_all}");
    let to_one = count(&format!("{ours} && eth.dst.ig == 0"));
    assert!(to_one >= EXCHANGES, "after each exchange: {to_one}");
    let others = format!(
        "(arp.proto.type == 0x3900 && !({ours})) || (eth.type >= 0x3900 && eth.type <= 0x39ff)"
    );
    assert_eq!(count(&others), 0);
    let by_ip = format!("ip.src == {OURS} && ip.dst == {LINUX} && !icmp && !udp");
    assert_eq!(count(&by_ip), 8);
}
