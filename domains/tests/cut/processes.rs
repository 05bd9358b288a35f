//! The upper half is a process of its own: this test program, started again.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::half::{Cut, Half, Lends, Side};
use super::{IDLE, Place, Signals, converse, far, outlives};
use xk_domains::ring::Ring;

/// The graph of the upper half in a process that a test starts; its socket is the standard input.
const GRAPH: &str = "XK_RING_GRAPH";
/// The highest node below the cut.
const LAST: &str = "XK_RING_LAST";
/// Set if the halves lend each other messages.
const LENDS: &str = "XK_RING_LENDS";
/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

/// Main function of the processes that the tests start; does nothing elsewhere.
#[test]
fn upper_half() {
    let (Ok(text), Ok(last)) = (std::env::var(GRAPH), std::env::var(LAST)) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let ring = Ring::ask(socket, STEP_TIME_MAX).unwrap();
    let lends = lends(std::env::var_os(LENDS).is_some());
    let near = Half::new(&text, IDLE, Some(Cut { side: Side::Above, last: &last, ring, lends }));
    converse(&near, None);
    if std::env::var_os("XK_RING_STAYS").is_some() {
        println!("upper half: stays");
        near.run_until("it is killed", || false);
    }
}

fn lends(is_so: bool) -> Lends {
    if is_so { Lends::ToProcess } else { Lends::Nothing }
}

/// A process with the upper half, and the socket to it.
fn start(text: &str, last: &str, stays: bool, is_lent: bool) -> (Child, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::upper_half", "--nocapture"]);
    command.env(GRAPH, text).env(LAST, last).stdin(Stdio::from(theirs)).stdout(Stdio::piped());
    if stays {
        command.env("XK_RING_STAYS", "1");
    }
    if is_lent {
        command.env(LENDS, "1");
    }
    (command.spawn().unwrap(), ours)
}

/// Host 1 is cut above the node `last`; its upper half ends by itself, or is killed.
fn holds(last: &'static str, kind: &'static str, is_killed: bool, is_lent: bool) {
    let place = Place::new();
    let signals = Signals::default();
    let far_text = place.host(2);
    let (stop, errors) = (signals.stop.clone(), signals.errors.clone());
    let far = thread::spawn(move || far(&far_text, &stop, &errors));
    let (mut upper, socket) = start(&place.host(1), last, is_killed, is_lent);
    let mut lines = BufReader::new(upper.stdout.take().unwrap()).lines();
    let ring = Ring::grant(socket, STEP_TIME_MAX).unwrap();
    let cut = Cut { side: Side::Below, last, ring, lends: lends(is_lent) };
    let below = Half::new(&place.host(1), IDLE, Some(cut));
    let killer = thread::spawn(move || {
        let stays = lines.any(|line| line.unwrap().contains("upper half: stays"));
        assert_eq!(stays, is_killed);
        if is_killed {
            upper.kill().unwrap();
        }
        let status = upper.wait().unwrap();
        assert_eq!(status.success(), !is_killed, "{status}");
    });
    outlives(&below, kind);
    killer.join().expect("the upper half");
    drop(signals);
    far.join().expect("the far host");
}

#[test]
fn a_protocol_and_the_one_below_it_lie_in_two_processes() {
    holds("icmp", "udp", false, false);
}

#[test]
fn an_application_in_a_process_of_its_own_is_killed() {
    holds("udp", "app", true, false);
}

#[test]
fn a_process_that_is_killed_had_lent_messages_and_was_lent_some() {
    holds("udp", "app", true, true);
}
