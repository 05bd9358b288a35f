//! Programs of Linux that speak with one that has a library of protocols.

use std::fs;
use std::net::SocketAddr;

use xk_peers::organisation::Organisation;
use xk_peers::program::Program;
use xk_peers::stack::Stack;
use xk_peers::testbed::{LINUX, Lan, OURS, PATIENCE, Wire};
use xk_testkit::{needs_program, needs_root};

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
    needs_root!();
    needs_program!("ip", "iperf3", "tshark");
    let lan = Lan::new("library-iperf3", wire);
    let stack = relays(&lan, 5201);
    for kind in [&["-n", "8M"][..], &["-n", "8M", "-R", "-P", "2"]] {
        let server = ["iperf3", "-s", "-1", "--forceflush", "-B", LINUX];
        let server = lan.linux.spawn(&server).unwrap();
        server.wait_for("listening", PATIENCE).unwrap();
        let said = lan.linux.exec(&[&["iperf3", "-J", "-c", OURS], kind].concat()).unwrap();
        assert!(passed(&said) >= 8 << 20, "{kind:?}: {said}");
        assert!(server.wait(PATIENCE).unwrap().success());
    }
    drop(stack);
    Organisation::Library.within(|| lan.testbed.judge(DAMAGE));
}

pub(crate) fn curl_fetches(wire: Wire) {
    needs_root!();
    needs_program!("ip", "curl", "python3", "tshark");
    let lan = Lan::new("library-curl", wire);
    let stack = relays(&lan, 8000);
    let folder = lan.testbed.folder();
    let content = pattern(5_000_000);
    fs::write(folder.join("content"), &content).unwrap();
    let at = folder.display().to_string();
    let serve = ["python3", "-u", "-m", "http.server", "-b", LINUX, "-d", &at, "8000"];
    let server = lan.linux.spawn(&serve).unwrap();
    server.wait_for("Serving HTTP", PATIENCE).unwrap();
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
