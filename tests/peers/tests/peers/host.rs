//! A host of ours, asked by Linux.

use std::fs;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use xk_icmp::IcmpFigures;
use xk_ip::IpFigures;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;

/// Octets of payload: the usual ones, the most that fit a frame, a few fragments, nearly the most
/// there is.
const PING_SIZES: [&str; 4] = ["56", "1472", "8000", "65000"];
/// Nothing that `tshark` remarks on is meant to be there.
const NONE: &[(&str, &str)] = &[];

/// Asserts that every ping came back.
pub(crate) fn assert_no_loss(said: &str) {
    assert!(said.contains(" 0% packet loss"), "{said}");
}

pub(crate) fn answers_pings_of_all_sizes(wire: Wire) {
    needs_root!("ip", "ping", "tcpdump", "tshark");
    let lan = Lan::new("answers_pings", wire);
    let stack = lan.start("", "");
    lan.capture();
    for size in PING_SIZES {
        let command = ["ping", "-c", "3", "-i", "0.05", "-W", "5", "-s", size, OURS];
        assert_no_loss(&lan.linux.exec(&command).unwrap());
    }
    // What does not fit and must not be cut never leaves Linux; what just fits does.
    let fits = ["ping", "-c", "1", "-W", "5", "-M", "do", "-s", "1472", OURS];
    assert_no_loss(&lan.linux.exec(&fits).unwrap());
    let longer = ["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1473", OURS];
    let said = lan.linux.exec(&longer).unwrap_err().to_string();
    assert!(said.contains("essage too long"), "{said}");
    let figures = stack.ask("icmp", IcmpFigures::default());
    assert_eq!(figures.requests_answered, 13);
    assert_eq!(stack.ask("ip", IpFigures::default()).reassembled, 6);
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(NONE);
}

pub(crate) fn answers_a_flood_of_pings(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let lan = Lan::new("answers_a_flood", wire);
    let stack = lan.start("", "");
    let said = lan.linux.exec(&["ping", "-f", "-q", "-c", "3000", "-W", "5", OURS]).unwrap();
    assert_no_loss(&said);
    let preloaded = ["ping", "-f", "-q", "-l", "60", "-c", "600", "-s", "4000", OURS];
    assert_no_loss(&lan.linux.exec(&preloaded).unwrap());
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(NONE);
}

pub(crate) fn answers_pings_with_options(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let lan = Lan::new("answers_options", wire);
    let stack = lan.start("", "");
    for options in [
        &["-R"][..],
        &["-T", "tsandaddr"],
        &["-t", "1"],
        &["-Q", "0xb8"],
        &["-p", "ff00"],
        &["-s", "0"],
        &["-s", "1"],
    ] {
        let command = [&["ping", "-c", "2", "-i", "0.05", "-W", "5"], options, &[OURS]].concat();
        assert_no_loss(&lan.linux.exec(&command).unwrap());
    }
    stack.assert_drops_only(&[]);
    drop(stack);
    lan.testbed.judge(NONE);
}

/// Octets that differ from place to place.
pub(crate) fn pattern(octets: usize) -> Vec<u8> {
    (0..octets).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Waits until the file holds `octets`.
fn await_octets(file: &Path, octets: usize) -> Vec<u8> {
    let begun = Instant::now();
    loop {
        let found = fs::read(file).unwrap_or_default();
        if found.len() >= octets || begun.elapsed() > PROGRAM_TIME_MAX {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn echoes_datagrams_of_all_sizes(wire: Wire) {
    needs_root!("ip", "socat", "tcpdump", "tshark");
    let lan = Lan::new("echoes_datagrams", wire);
    let stack = lan.start("", "echo udp port=7");
    lan.capture();
    let folder = lan.testbed.folder();
    for octets in [1, 2, 1472, 1473, 8000, 60_000] {
        let sent = pattern(octets);
        let (from, to) = (folder.join("sent"), folder.join(format!("back-{octets}")));
        fs::write(&from, &sent).unwrap();
        let file = format!("OPEN:{},rdonly!!CREATE:{}", from.display(), to.display());
        let peer = format!("UDP:{OURS}:7");
        let socat = lan.linux.spawn(&["socat", "-b", "65536", "-t", "30", &file, &peer]).unwrap();
        let back = await_octets(&to, octets);
        assert!(
            back == sent,
            "{} octets of {octets} came back; socat said: {}",
            back.len(),
            socat.stop()
        );
    }
    stack.assert_drops_only(&[]);
    drop(stack);
    match wire {
        Wire::TapOffload | Wire::VethOffload | Wire::XdpGeneric | Wire::XdpNative => lan.testbed.judge(&[(
            "hecksum",
            "Linux's own capture shows sums that either side has left to the wire; ours shows them complete, as the next line finds",
        )]),
        _ => lan.testbed.judge(NONE),
    }
    let bad = "udp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\"";
    assert_eq!(lan.testbed.count("ours.pcapng", bad), 0);
    assert!(lan.testbed.count("ours.pcapng", "udp.checksum.status == \"Good\"") >= 12);
}

pub(crate) fn refuses_closed_ports(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    let lan = Lan::new("refuses_ports", wire);
    let stack = lan.start("", "echo udp port=7");
    // A short one, and one in fragments, of which the error quotes the first.
    for octets in [1, 5000] {
        let error = lan
            .linux
            .enter(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
                socket.connect((OURS, 4)).unwrap();
                socket.send(&pattern(octets)).unwrap();
                socket.recv(&mut [0; 16]).unwrap_err()
            })
            .unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    let peer = format!("UDP:{OURS}:4");
    let socat = lan.linux.spawn(&["socat", "-t", "30", "-", &peer]).unwrap();
    socat.write(b"anybody there?\n").unwrap();
    socat.wait_for("Connection refused", PROGRAM_TIME_MAX).unwrap();
    assert_eq!(stack.ask("icmp", IcmpFigures::default()).errors_sent, 3);
    stack.assert_drops_only(&["udp: no port"]);
    drop(stack);
    lan.testbed.judge(NONE);
}

pub(crate) fn refuses_unknown_protocols(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("refuses_protocols", wire);
    let stack = lan.start("", "");
    let address = format!("{OURS}:80").parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, PROGRAM_TIME_MAX).unwrap_err();
    // Linux makes "protocol not available" of the error (RFC 1122, section 4.2.3.9: a hard one).
    let error = lan.linux.enter(connect).unwrap();
    assert_eq!(error.raw_os_error(), Some(92), "{error}");
    stack.assert_drops_only(&["ip: no protocol"]);
    drop(stack);
    lan.testbed.judge(NONE);
}

pub(crate) fn keeps_silent_towards_broadcasts(wire: Wire) {
    needs_root!("ip", "ping", "tshark");
    let lan = Lan::new("keeps_silent", wire);
    let stack = lan.start("", "");
    // RFC 1122, section 3.2.2.6: a host may keep silent; ours does unless told otherwise. And
    // no host tells a broadcast's sender that a port is closed (section 3.2.2).
    for group in ["10.9.0.255", "255.255.255.255", "224.0.0.1"] {
        let command = ["ping", "-c", "2", "-i", "0.05", "-W", "0.3", "-b", "-I", DEVICE, group];
        let said = lan.linux.exec(&command).unwrap_err().to_string();
        assert!(said.contains("100% packet loss"), "{said}");
        let send = || {
            let socket = UdpSocket::bind((LINUX, 0)).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.send_to(b"anybody?", (group, 4)).unwrap();
        };
        lan.linux.enter(send).unwrap();
    }
    let said = lan.linux.exec(&["ping", "-c", "1", "-W", "5", OURS]);
    assert_no_loss(&said.unwrap());
    let figures = stack.ask("icmp", IcmpFigures::default());
    assert_eq!((figures.requests_answered, figures.errors_sent), (1, 0));
    drop(stack);
    lan.testbed.judge(NONE);
}
