//! Streams to and from Linux.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;

use crate::client::assert_all_back;
use crate::host::pattern;

/// Octets of a stream: one, a segment, one more, several windows, and as many as a second or two
/// takes.
const SIZES: [usize; 5] = [1, 1448, 1449, 300_000, 4 << 20];

/// Sign allowed in a capture of a link between two ends on one machine, where either side may have
/// left sums to the wire.
const OPEN_SUMS: (&str, &str) =
    ("hecksum", "Linux's own capture shows sums that either side has left to the wire");

/// Sign of `socat` with a peer that sends everything back while it still writes: neither side reads
/// for a while.
const FULL: [(&str, &str); 2] = [
    ("completely full", "whoever sends everything back takes no more than it gets rid of"),
    ("Zero Window", "the same"),
];

/// Signs of a lossy link, or of a ring that overflows on a busy machine, in streams.
pub(crate) const DAMAGE: &[(&str, &str)] = &[
    ("etransmission", "the link loses segments"),
    ("revious segment", "the link loses segments"),
    ("out-of-order", "the link reorders segments"),
    ("D-SACK", "the link repeats segments"),
    ("uplicate ACK", "the link loses and repeats segments"),
    ("ACKed segment that wasn't captured", "the link loses segments behind the capture"),
    OPEN_SUMS,
    ("exceeds packet length", "the link flips bits"),
    ("onnection reset", "what comes again behind the end is refused"),
    FULL[0],
    FULL[1],
];

/// Filter for segments longer than their link's.
const RUNS: &str = "tcp.len > 1460";

/// Sends `octets` through `socat` to the peer, which sends them back; `socat` ends its direction,
/// then the peer its own.
fn there_and_back(lan: &Lan, folder: &Path, octets: usize, limit: Duration) {
    let sent = pattern(octets);
    let (from, to) = (folder.join("sent"), folder.join(format!("back-{octets}")));
    fs::write(&from, &sent).unwrap();
    let file = format!("OPEN:{},rdonly!!CREATE:{}", from.display(), to.display());
    let peer = format!("TCP:{OURS}:7");
    let patience = limit.as_secs().to_string();
    let command = ["socat", "-b", "65536", "-t", &patience, &file, &peer];
    let begun = Instant::now();
    let said = lan.linux.exec(&command);
    let back = fs::read(&to).unwrap_or_default();
    assert!(back == sent, "{} octets of {octets} came back; socat said: {said:?}", back.len());
    assert!(said.is_ok(), "{said:?}");
    assert!(begun.elapsed() < limit, "the other direction never ended");
}

pub(crate) fn echoes_streams_of_all_sizes(wire: Wire) {
    needs_root!("ip", "socat", "tcpdump", "tshark");
    let lan = Lan::new("echoes_streams", wire);
    let stack = lan.start("", "tcp ip\necho tcp port=7");
    for octets in SIZES {
        there_and_back(&lan, lan.testbed.folder(), octets, PROGRAM_TIME_MAX);
    }
    // Linux looks now and then whether a closed window has opened; on a busy machine a ring may
    // overflow.
    stack.assert_drops_only(&[
        "tcp: out of window",
        "wire: lost in device",
        "wire: socket buffer full",
    ]);
    drop(stack);
    lan.testbed.judge(DAMAGE);
    // Where Linux leaves cutting to the wire, which is memory, its runs of segments come as they
    // are.
    let is_joined = matches!(
        wire,
        Wire::TapOffload | Wire::VethOffload | Wire::VxlanOffload | Wire::XdpGeneric
    );
    let runs = lan.testbed.count("ours.pcapng", RUNS);
    assert_eq!(runs > 0, is_joined, "{runs}");
}

pub(crate) fn asks_a_server(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    let lan = Lan::new("asks_a_server", wire);
    let server = lan
        .linux
        .spawn(&[
            "socat",
            "-d",
            "-d",
            // No more than a pipe takes once it says that it does: a larger write could wait for
            // the reader, which is the same socat.
            "-b",
            "4096",
            "TCP4-LISTEN:5007,fork,reuseaddr",
            "PIPE",
        ])
        .unwrap();
    server.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
    let mut probes = String::from("tcp ip\n");
    for size in [1, 1448, 20_000] {
        probes += &format!(
            "probe tcp name=p{size} to=\"port5007@{LINUX}\" count=50 interval=\"2ms\" timeout=\"10s\" size={size}\n"
        );
    }
    let stack = lan.start("", &probes);
    assert_all_back(&stack, 50);
    drop(stack);
    // On a busy machine an answer may come later than a loss probe.
    lan.testbed.judge(&[OPEN_SUMS, ("D-SACK", "a probe"), ("etransmission", "a probe")]);
}

pub(crate) fn is_refused(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    let lan = Lan::new("is_refused", wire);
    let stack = lan.start("", "tcp ip\nprobe tcp to=\"port4@10.9.0.1\" count=1 timeout=\"5s\"");
    // There is no listener here: Linux is told at once.
    let begun = Instant::now();
    let peer = format!("TCP:{OURS}:9");
    let said = lan.linux.exec(&["socat", "-u", "OPEN:/dev/null", &peer]);
    let said = said.unwrap_err().to_string();
    assert!(said.contains("Connection refused"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Nor there: we are told at once.
    for report in stack.finish(PROGRAM_TIME_MAX) {
        assert_eq!(report.figure("received"), 0, "{report:#?}");
    }
    drop(stack);
    lan.testbed.judge(&[("onnection reset", "nobody listens")]);
}

/// Linux cuts the runs that we leave to an interface which itself cuts nothing.
pub(crate) fn an_interface_cuts_nothing(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    let lan = Lan::new("cuts_nothing", wire);
    lan.ours.offload_off("x0").unwrap();
    lan.linux.offload_off(DEVICE).unwrap();
    let stack = lan.start("", "tcp ip\necho tcp port=7");
    there_and_back(&lan, lan.testbed.folder(), 4 << 20, PROGRAM_TIME_MAX);
    drop(stack);
    lan.testbed.judge(DAMAGE);
}

/// Linux hands over runs of segments, and the fault takes them apart before it harms any.
pub(crate) fn runs_suffer_by_segments(wire: Wire) {
    needs_root!("ip", "socat", "tshark");
    let lan = Lan::new("runs_suffer", wire);
    for damage in ["loss=\"1%\"", "loss=\"5%\" reorder=\"10%\" duplicate=\"2%\""] {
        let below = format!("fault wire name=bad {damage}\n");
        let stack = lan.start_over(&below, "bad", "", "tcp ip\necho tcp port=7");
        there_and_back(&lan, lan.testbed.folder(), 1 << 20, 2 * PROGRAM_TIME_MAX);
        drop(stack);
        lan.testbed.judge(DAMAGE);
        assert_eq!(lan.testbed.count("ours.pcapng", RUNS), 0);
    }
}
