//! Effects of signals on requests. A process of its own: one that starts others meanwhile lends
//! them the sockets that it is just about to hand over, until they are the other program.

mod common;

use common::{relay, run};
use xk_testkit::needs_program;

/// Signals that interrupt whatever the library does: a request that was made twice would find its
/// own address taken.
const INTERRUPTED: &str = include_str!("programs/interrupted.py");

#[test]
fn a_request_is_made_once_whatever_signals_come() {
    needs_program!("python3");
    let (_stack, relay) = relay();
    assert_eq!(run(&relay, "python3", &["-c", INTERRUPTED]), "bound\n");
}
