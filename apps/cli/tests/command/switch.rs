//! `xk switch` with three parties, each an `xk run` in a process of its own.

use crate::STEP_TIME_MAX;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A folder of the test's own, which goes with it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A command that is killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_xk"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("xk can be started");
        Self(child)
    }

    /// Waits for its end, and gives what it said.
    fn finish(&mut self) -> String {
        let mut said = String::new();
        let out = self.0.stdout.take().expect("a pipe");
        { out }.read_to_string(&mut said).expect("text");
        let status = self.0.wait().expect("an end");
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the graph of a party with this number and these layers on top.
fn party(folder: &Path, number: u8, tops: &str) -> String {
    let path = folder.join("lab.sock").display().to_string();
    let graph = format!(
        "host party{number} {{\n    shm path={path:?}\n    eth shm\n    arp eth\n    \
         ip arp {{ address \"10.0.0.{number}/24\"; }}\n    icmp ip\n    udp ip\n    {tops}\n}}\n"
    );
    let file = folder.join(format!("{number}.kdl"));
    std::fs::write(&file, graph).expect("a file");
    file.display().to_string()
}

#[test]
fn three_parties_reach_each_other() {
    let name = format!("xk-test-switch-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir(&folder.0).expect("a folder");
    // If root runs this, the parties become another user, which removes the socket.
    std::fs::set_permissions(&folder.0, Permissions::from_mode(0o777)).expect("a mode");
    let socket = folder.0.join("lab.sock");
    let mut switch = Running::start(&["switch", &socket.display().to_string(), "--ports", "4"]);
    xk_testkit::await_that!(STEP_TIME_MAX, socket.exists(), "the switch does not begin");
    let answers = [1, 2].map(|number| party(&folder.0, number, "echo udp port=7"));
    let answering =
        [&answers[0], &answers[1]].map(|file| Running::start(&["run", "--no-control", file]));
    let asks = "probe icmp to=\"10.0.0.1\" count=20 interval=\"5ms\" start=\"200ms\" timeout=\"20s\"\n    \
                probe udp name=client to=\"port7@10.0.0.2\" count=20 interval=\"5ms\" size=1400 start=\"200ms\" timeout=\"20s\"";
    let asks = party(&folder.0, 3, asks);
    let mut asking = Running::start(&["run", "--no-control", &asks]);
    let said = asking.finish();
    for name in ["probe", "client"] {
        let report = format!("{name}: ok, sent 20, received 20, lost 0, corrupt 0");
        assert!(said.contains(&report), "{said}");
    }
    // It has noticed that one is gone.
    let mut says = BufReader::new(switch.0.stdout.take().expect("a pipe"));
    let mut lines = says.by_ref().lines().map(|line| line.expect("text"));
    let went = lines.by_ref().skip_while(|line| line != "3 parties");
    assert_eq!(went.take(2).last().as_deref(), Some("2 parties"));
    // Without the switch they would meet at the socket by themselves.
    drop(answering);
    kill_process(Pid::from_child(&switch.0), Signal::INT).expect("a signal");
    let mut said = String::new();
    says.read_to_string(&mut said).expect("text");
    assert!(switch.0.wait().expect("an end").success(), "{said}");
    assert!(said.contains("3 came"), "{said}");
    assert!(!socket.exists(), "the socket goes with the switch");
}
