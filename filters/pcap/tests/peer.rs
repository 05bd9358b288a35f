//! Captures as `tshark` sees them, and the checker of captures as it judges right and wrong ones.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use xk_pcap::{Direction, Frame, Interface, LinkType, Writer};
use xk_testkit::tshark::{CheckError, Severity, check};
use xk_testkit::{needs_program, peer};

fn main() -> ExitCode {
    peer::main(&[
        ("tshark_reads_what_was_written", tshark_reads_what_was_written),
        ("tshark_finds_what_is_wrong", tshark_finds_what_is_wrong),
        ("tshark_reads_nothing_into_a_port", tshark_reads_nothing_into_a_port),
        ("tshark_refuses_a_cut_file", tshark_refuses_a_cut_file),
    ])
}

/// A file that is removed with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, octets: &[u8]) -> Self {
        let path =
            std::env::temp_dir().join(format!("xk-pcap-{}-{name}.pcapng", std::process::id()));
        std::fs::write(&path, octets).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// The complement of the sum of complements (RFC 1071, section 1).
fn checksum(octets: &[u8]) -> [u8; 2] {
    let sum: u32 = octets
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes()
}

/// An ICMP echo request in IPv4.
fn ping() -> Vec<u8> {
    let mut icmp = vec![8, 0, 0, 0, 0, 1, 0, 1];
    icmp.extend(b"hello, hello");
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    packet(1, &icmp)
}

/// An IPv4 packet between two documentation addresses (RFC 5737).
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    ip.extend(payload);
    ip
}

/// A UDP datagram with this checksum field.
fn datagram(sum: u16) -> Vec<u8> {
    let mut udp = vec![0x30, 0x39, 0x30, 0x3a, 0, 12];
    udp.extend(sum.to_be_bytes());
    udp.extend(b"data");
    packet(17, &udp)
}

/// A datagram in an Ethernet frame.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];

fn tshark_reads_what_was_written() {
    needs_program!("tshark");
    let mut writer = Writer::new(Vec::new(), "xk").unwrap();
    let eth = Interface::new("client/eth", LinkType::ETHERNET);
    let eth = writer.add_interface(&Interface { description: "a wire", ..eth }).unwrap();
    let ip = writer.add_interface(&Interface::new("client/ip", LinkType::IPV4)).unwrap();
    let user = writer.add_interface(&Interface::new("client/rpc", LinkType::USER0)).unwrap();
    let ping = ping();
    let parts: &[&[u8]] = &[&ETHERNET, &ping];
    let (direction, comment) = (Direction::Outbound, "client: ip > eth");
    let out = Frame { direction, comment, ..Frame::new(1_000_000_007, parts) };
    writer.write(eth, &out).unwrap();
    let direction = Direction::Inbound;
    writer.write(ip, &Frame { direction, ..Frame::new(1_000_000_009, &[&ping]) }).unwrap();
    writer.write(user, &Frame::new(2_000_000_000, &[b"anything"])).unwrap();
    let file = Scratch::new("reads", &writer.into_inner());
    let report = check(&file.0, &[]).unwrap();
    assert_eq!(report.frames, 3);
    assert!(report.is_clean(), "{report}");

    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.comment",
        "frame.protocols",
    ];
    let mut command = Command::new("tshark");
    command.env("WIRESHARK_CONFIG_DIR", "/nonexistent");
    command.arg("-r").arg(&file.0).args(["-n", "-T", "fields", "-E", "separator=,"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("1.000000007,client/eth,")
            && lines[0].contains(",client: ip > eth,eth:"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("1.000000009,client/ip,") && lines[1].ends_with("ip:icmp:data"),
        "{said}"
    );
    let direction = |line: &str| line.split(',').nth(2).unwrap().to_owned();
    assert_eq!(
        [direction(lines[0]), direction(lines[1])].map(|text| u32::from_str_radix(
            text.trim_start_matches("0x"),
            16
        )
        .unwrap()),
        [2, 1],
        "{said}"
    );
}

/// A segment in the middle of a connection.
fn segment(port: u16, text: &[u8]) -> Vec<u8> {
    let mut tcp = 50_000_u16.to_be_bytes().to_vec();
    tcp.extend(port.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 16, 0, 0, 0, 0, 0]);
    tcp.extend(text);
    let mut summed = vec![192, 0, 2, 1, 192, 0, 2, 2, 0, 6];
    summed.extend((tcp.len() as u16).to_be_bytes());
    summed.extend(&tcp);
    let sum = checksum(&summed);
    tcp[16..18].copy_from_slice(&sum);
    packet(6, &tcp)
}

/// The port that a system chooses says nothing about the contents of a message.
fn tshark_reads_nothing_into_a_port() {
    needs_program!("tshark");
    let text: Vec<u8> = (0..60).collect();
    let mut writer = Writer::new(Vec::new(), "xk").unwrap();
    let ip = writer.add_interface(&Interface::new("ip", LinkType::IPV4)).unwrap();
    // The one that means something is VXLAN's.
    for port in (1..=12_000_u16).filter(|port| *port != 4789) {
        let mut udp = 50_000_u16.to_be_bytes().to_vec();
        udp.extend(port.to_be_bytes());
        udp.extend([0, 68, 0, 0]);
        udp.extend(&text);
        for octets in [packet(17, &udp), segment(port, &text)] {
            writer.write(ip, &Frame::new(0, &[&octets])).unwrap();
        }
    }
    let file = Scratch::new("ports", &writer.into_inner());
    let report = check(&file.0, &[]).unwrap();
    assert_eq!(report.frames, 2 * 11_999);
    let some = report.problems.iter().take(5).map(ToString::to_string);
    let some: Vec<String> = some.collect();
    assert!(report.is_clean(), "{} problems: {some:#?}", report.problems.len());
}

fn tshark_finds_what_is_wrong() {
    needs_program!("tshark");
    let mut wrong_ip = ping();
    wrong_ip[10] ^= 1;
    let mut wrong_icmp = ping();
    wrong_icmp[25] ^= 1;
    let mut writer = Writer::new(Vec::new(), "xk").unwrap();
    let ip = writer.add_interface(&Interface::new("ip", LinkType::IPV4)).unwrap();
    for (at, octets) in [ping(), wrong_ip, wrong_icmp, datagram(0), datagram(1), packet(1, &[8, 0])]
        .iter()
        .enumerate()
    {
        writer.write(ip, &Frame::new(at as u64, &[octets])).unwrap();
    }
    let file = Scratch::new("wrong", &writer.into_inner());
    let report = check(&file.0, &[]).unwrap();
    let frames: Vec<u64> = report.problems.iter().map(|problem| problem.frame).collect();
    for frame in [2, 3, 5, 6] {
        assert!(frames.contains(&frame), "frame {frame}: {report}");
    }
    assert!(!frames.contains(&1) && !frames.contains(&4), "{report}");
    assert!(
        report
            .problems
            .iter()
            .any(|problem| problem.frame == 6 && problem.severity == Severity::Malformed),
        "{report}"
    );
    let lenient = check(&file.0, &["hecksum", "alformed", "No response"]).unwrap();
    assert!(lenient.is_clean() && lenient.allowed >= 4, "{lenient}");
}

fn tshark_refuses_a_cut_file() {
    needs_program!("tshark");
    let mut writer = Writer::new(Vec::new(), "xk").unwrap();
    let ip = writer.add_interface(&Interface::new("ip", LinkType::IPV4)).unwrap();
    writer.write(ip, &Frame::new(0, &[&ping()])).unwrap();
    let octets = writer.into_inner();
    let file = Scratch::new("cut", &octets[..octets.len() - 5]);
    assert!(matches!(check(&file.0, &[]), Err(CheckError::File { .. })));
    assert!(matches!(check("/nonexistent.pcapng", &[]), Err(CheckError::File { .. })));
}
