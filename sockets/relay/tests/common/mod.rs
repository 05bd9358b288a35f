//! Programs on a relay.
#![allow(dead_code, reason = "each test file uses its part")]

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use xk_net::{Setup, Stack, Thread};
use xk_relay::{Folder, Relay};
use xk_request::VARIABLE;
use xk_testkit::ALONE;

/// Longer than anything takes here, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) fn relay() -> (Stack<Thread>, Relay) {
    let stack = Setup::from_text(ALONE, xk_catalog::PROTOCOLS).thread().unwrap();
    let relay = Relay::start(stack.clone(), Folder::make().unwrap(), Vec::new()).unwrap();
    (stack, relay)
}

/// The library, as cargo builds it for these tests.
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap();
    let path = path.with_file_name("libxk_preload.so");
    assert!(path.exists(), "{} is missing", path.display());
    path
}

pub(crate) fn start(relay: &Relay, program: &str, arguments: &[&str]) -> Child {
    command(relay, program, arguments).spawn().unwrap()
}

fn command(relay: &Relay, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env(VARIABLE, relay.ticket())
        .stdout(Stdio::piped());
    command
}

/// Runs a command as another user, which takes root.
pub(crate) fn start_as(relay: &Relay, user: u32, program: &str, arguments: &[&str]) -> Child {
    let mut command = command(relay, program, arguments);
    command.uid(user).gid(user).spawn().unwrap()
}

/// Runs a program, and returns what it prints if it ends well.
pub(crate) fn run(relay: &Relay, program: &str, arguments: &[&str]) -> String {
    let child = start(relay, program, arguments);
    let pid = child.id();
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    let Ok(output) = has_ended.recv_timeout(STEP_TIME_MAX) else {
        // Its own children hold no pipe that the test waits for.
        let _ = Command::new("kill").arg(pid.to_string()).status();
        panic!("{program} {arguments:?} does not end");
    };
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}
