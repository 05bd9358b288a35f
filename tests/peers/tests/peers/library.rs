//! Programs of Linux that speak with one that has a library of protocols.

use std::fs;
use std::net::SocketAddr;

use xk_peers::organisation::Organisation;
use xk_peers::program::Program;
use xk_peers::stack::Stack;
use xk_peers::testbed::{LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::needs_root;

use crate::exec::passed;
use crate::host::pattern;
use crate::tcp::DAMAGE;

/// A host whose program passes streams to this port on to one of Linux.
fn relays(lan: &Lan, port: u16) -> Stack {
    Organisation::Library.within(|| {
        let mut stack = lan.start("", "tcp ip");
        let to: SocketAddr = format!("{LINUX}:{port}").parse().unwrap();
        stack.program(Program::Relay(port, to));
        stack
    })
}

pub(crate) fn iperf3_measures(wire: Wire) {
    needs_root!("ip", "iperf3", "tshark");
    let lan = Lan::new("library-iperf3", wire);
    let stack = relays(&lan, 5201);
    for kind in [&["-n", "8M"][..], &["-n", "8M", "-R", "-P", "2"]] {
        let server = ["iperf3", "-s", "-1", "--forceflush", "-B", LINUX];
        let server = lan.linux.spawn(&server).unwrap();
        server.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
        let said = lan.linux.exec(&[&["iperf3", "-J", "-c", OURS], kind].concat()).unwrap();
        assert!(passed(&said) >= 8 << 20, "{kind:?}: {said}");
        assert!(server.wait(PROGRAM_TIME_MAX).unwrap().success());
    }
    drop(stack);
    Organisation::Library.within(|| lan.testbed.judge(DAMAGE));
}

pub(crate) fn curl_fetches(wire: Wire) {
    needs_root!("ip", "curl", "python3", "tshark");
    let lan = Lan::new("library-curl", wire);
    let stack = relays(&lan, 8000);
    let folder = lan.testbed.folder();
    let content = pattern(5_000_000);
    fs::write(folder.join("content"), &content).unwrap();
    let at = folder.display().to_string();
    let serve = ["python3", "-u", "-m", "http.server", "-b", LINUX, "-d", &at, "8000"];
    let server = lan.linux.spawn(&serve).unwrap();
    server.wait_for("Serving HTTP", PROGRAM_TIME_MAX).unwrap();
    let to = folder.join("fetched");
    let url = format!("http://{OURS}:8000/content");
    for _ in 0..3 {
        let fetch = ["curl", "-sS", "--fail", "-o", &to.display().to_string(), &url];
        lan.linux.exec(&fetch).unwrap();
        assert!(fs::read(&to).unwrap() == content, "it is as it was");
    }
    drop(stack);
    Organisation::Library.within(|| lan.testbed.judge(DAMAGE));
}

/// Says a few words, an urgent one among them, and ends, at moments of its own; prints how often it
/// was answered otherwise.
const BRIEF: &str = r#"
import random, socket, sys, time
chance, wrong = random.Random(7), 0
for turn in range(60):
    s = socket.create_connection((sys.argv[1], 7000), timeout=20)
    said = b""
    for word in range(chance.randrange(1, 4)):
        time.sleep(chance.choice([0, 0.0001, 0.0005]) * chance.random())
        octets = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 2000)))
        s.send(octets, socket.MSG_OOB if chance.random() < 0.3 else 0)
        said += octets
    time.sleep(chance.choice([0, 0.0001, 0.0005]) * chance.random())
    s.shutdown(socket.SHUT_WR)
    heard = b""
    while octets := s.recv(65536):
        heard += octets
    wrong += heard != said
    s.close()
print("wrong", wrong)
"#;

/// However soon a peer ends, what it said before is heard first. Urgent octets are octets (RFC
/// 6093, section 5).
pub(crate) fn brief_words_are_answered(wire: Wire) {
    needs_root!("ip", "python3", "tshark");
    let lan = Lan::new("library-brief", wire);
    let stack = Organisation::Library.within(|| {
        let mut stack = lan.start("", "tcp ip");
        stack.program(Program::Streams(7000));
        stack
    });
    let said = lan.linux.exec(&["python3", "-c", BRIEF, OURS]).unwrap();
    assert_eq!(said.trim(), "wrong 0");
    drop(stack);
    Organisation::Library.within(|| lan.testbed.judge(DAMAGE));
}

/// Answers each peer with what it says first, and ends behind it.
const ANSWERS: &str = r#"
import socket, sys
listener = socket.create_server((sys.argv[1], 7100))
print("listening", flush=True)
while True:
    s, _ = listener.accept()
    s.sendall(s.recv(99))
    s.recv(99)
    s.close()
"#;

/// A program that ends once its conversations have leaves them to the registry: nothing breaks
/// them off on the wire.
pub(crate) fn a_program_ends_in_order(wire: Wire) {
    needs_root!("ip", "python3", "tshark");
    let lan = Lan::new("library-ends", wire);
    let mut stack = Organisation::Library.within(|| lan.start("", "tcp ip"));
    let server = lan.linux.spawn(&["python3", "-u", "-c", ANSWERS, LINUX]).unwrap();
    server.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
    let asks = Program::Asks(format!("{LINUX}:7100").parse().unwrap(), 10);
    Organisation::Library.within(|| stack.program(asks));
    drop(stack);
    Organisation::Library.within(|| lan.testbed.judge(DAMAGE));
    let count = |filter: &str| lan.testbed.count("ours.pcapng", filter);
    assert!(count(&format!("tcp.flags.fin == 1 && ip.src == {OURS}")) >= 10);
    assert_eq!(count(&format!("tcp.flags.reset == 1 && ip.src == {OURS}")), 0);
}
