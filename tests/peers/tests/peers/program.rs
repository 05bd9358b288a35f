//! The command `xk` with a graph of the repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xk_peers::testbed::{DEVICE, PROGRAM_TIME_MAX, Testbed, Wire, end};
use xk_testkit::{needs, needs_root};

use crate::host::assert_no_loss;

/// Path of the command as cargo builds it: beside the folder of this test program.
pub(crate) fn command() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(2).unwrap_or(Path::new("")).join("xk")
}

/// Only over the TAP device that the graph names.
pub(crate) fn runs_a_graph_file(_: Wire) {
    needs_root!("ip", "ping", "tcpdump", "tshark");
    let command = command();
    if !command.is_file() {
        needs::skip("needs the command xk (cargo build -p xk)");
        return;
    }
    let testbed = Testbed::new("program");
    let linux = testbed.linux();
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/tap.kdl");
    let (command, graph) = (command.to_string_lossy(), graph.to_string_lossy());
    let xk = linux.spawn(&[&command, "run", "--no-control", &graph]).unwrap();
    xk.wait_for("try: ping 10.9.0.2", PROGRAM_TIME_MAX).unwrap();
    testbed.capture(&linux, DEVICE, "linux");
    let ping = ["ping", "-c", "3", "-i", "0.05", "-W", "5", "10.9.0.2"];
    assert_no_loss(&linux.exec(&ping).unwrap());
    testbed.judge(&[]);
    let status = end(&xk);
    let said = xk.output();
    assert!(status.success(), "{status}: {said}");
    // The device goes with the program.
    let shown = linux.exec(&["ip", "-o", "link", "show"]).unwrap();
    assert!(!shown.contains(DEVICE), "{shown}");
}

/// The graph's client finds its server, each a process of its own, over the loopback interface;
/// neither needs privilege.
pub(crate) fn runs_two_hosts_without_privilege(_: Wire) {
    let command = command();
    if !command.is_file() {
        needs::skip("needs the command xk (cargo build -p xk)");
        return;
    }
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/host.kdl");
    let run = |host: &str| {
        let mut line = Command::new(&command);
        line.args(["run", "--no-control", "--host", host]).arg(&graph);
        line.stdout(Stdio::piped()).stderr(Stdio::piped());
        line
    };
    let mut server = run("server").spawn().unwrap();
    for host in ["client", "datagrams"] {
        // Ends when its probes have.
        let output = run(host).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{host}: {output:?}");
        assert!(said.contains("received"), "{host}: {said}");
    }
    server.kill().unwrap();
    let _ = server.wait().unwrap();
}
