//! Programs that ask more of streams than their octets: each runs on a stack and on Linux's
//! loopback, and prints the same.

mod common;

use common::{relay, run};
use std::process::Command;
use xk_testkit::needs_program;

/// Runs a script with the host to use as its argument, on a stack and on Linux.
fn as_on_linux(script: &str) {
    needs_program!("python3");
    let script = include_str!("streams/prelude.py").to_owned() + script;
    let (_stack, relay) = relay();
    let ours = run(&relay, "python3", &["-c", &script, "10.0.0.1"]);
    let linux = Command::new("python3").args(["-c", &script, "127.0.0.1"]).output().unwrap();
    assert!(linux.status.success(), "{}", String::from_utf8_lossy(&linux.stderr));
    assert_eq!(ours, String::from_utf8(linux.stdout).unwrap());
    assert!(!ours.is_empty());
}

/// Scripts of `streams`, each behind `prelude.py`.
macro_rules! scripts {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            as_on_linux(include_str!(concat!("streams/", stringify!($name), ".py")));
        }
    )*};
}

scripts! {
    what_is_unread_is_told_with_what_is_read
    what_a_listener_tells_its_streams_tell
    what_the_peer_has_not_acknowledged_is_told
    no_more_waits_unsent_than_a_program_says
    acknowledgements_are_quick_until_answers_follow
    how_a_stream_stands_is_told_as_by_linux
    what_was_to_go_without_a_copy_is_told_complete
    datagrams_have_times_in_either_form
    first_octets_go_with_the_beginning
}
