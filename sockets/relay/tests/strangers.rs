//! Another user of the machine gets nothing of a program under a relay, and no user exhausts it.

mod common;

use common::{relay, run, start, start_as};
use std::process::{Command, Stdio};
use xk_testkit::{needs_program, needs_root};

/// A program that speaks to itself through the stack all the time, and believes only what it has
/// said itself.
const HONEST: &str = include_str!("programs/honest.py");

#[test]
fn another_user_gets_nothing() {
    needs_root!("python3");
    let (_stack, relay) = relay();
    let honest = start(&relay, "python3", &["-c", HONEST, "2"]);
    let stranger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stranger.py");
    let stranger =
        Command::new("python3").args([stranger, "1.5"]).stdout(Stdio::piped()).spawn().unwrap();
    let got = stranger.wait_with_output().unwrap();
    let honest = honest.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&got.stdout),
        "reached 0\nforged 0\nstolen 0\nanswered 0\nlisted 0\n"
    );
    assert_eq!(String::from_utf8_lossy(&honest.stdout), "served True\n");
}

/// A user that the relay lets in, with the path that programs have, and that comes again and again
/// and never asks.
const SILENT: &str = include_str!("programs/silent.py");

#[test]
fn askers_that_never_ask_exhaust_nothing() {
    needs_root!("python3");
    let (_stack, relay) = relay();
    let flood = start_as(&relay, 65534, "python3", &["-c", SILENT]);
    assert_eq!(run(&relay, "python3", &["-c", HONEST, "1"]), "served True\n");
    let flood = flood.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&flood.stdout), "many\nheld\n");
}

/// A program's own sockets of unix(7) stay its own, whatever others call theirs.
const DISGUISED: &str = include_str!("programs/disguised.py");

#[test]
fn a_disguise_is_seen_through() {
    needs_program!("python3");
    let (_stack, relay) = relay();
    assert_eq!(run(&relay, "python3", &["-c", DISGUISED]), "seen through\n");
}

#[test]
fn nothing_is_left_of_names() {
    needs_program!("python3");
    let (_stack, relay) = relay();
    let ticket: xk_request::Ticket = xk_request::read(relay.ticket().as_bytes()).unwrap();
    let folder = std::path::PathBuf::from(ticket.folder);
    assert_eq!(run(&relay, "python3", &["-c", HONEST, "0.2"]), "served True\n");
    let own = run(&relay, "python3", &["-c", "import os; print(os.environ['XK_EXEC'])"]);
    assert_eq!(own.trim(), relay.ticket());
    drop(relay);
    assert!(!folder.exists(), "{}", folder.display());
}

#[test]
fn what_killed_processes_left_is_removed() {
    let Ok(own) = xk_relay::own_folder() else {
        xk_testkit::needs::skip("this user has no folder for sockets");
        return;
    };
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let age = |path: &std::path::Path| {
        let directory = std::fs::File::open(path).unwrap();
        directory.set_modified(long_ago).unwrap();
    };
    let left = own.join(format!("xk-{:032x}", std::process::id()));
    let other = own.join(format!("xk-of-others-{}", std::process::id()));
    for path in [&left, &other] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("door"), "").unwrap();
        age(path);
    }
    let alive = xk_relay::Folder::make().unwrap();
    age(alive.path());
    let _new = xk_relay::Folder::make().unwrap();
    assert!(!left.exists() && other.exists() && alive.path().exists());
    std::fs::remove_dir_all(other).unwrap();
}
