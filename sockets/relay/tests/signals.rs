//! Effects of signals on requests. A process of its own: one that starts others meanwhile lends
//! them the sockets that it is just about to hand over, until they are the other program.

mod common;

use common::{relay, run};
use xk_testkit::needs_program;

/// Signals that interrupt whatever the library does: a request that was made twice would find its
/// own address taken.
const INTERRUPTED: &str = r"
import ctypes, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
handled = 0
def handle(*_):
    global handled
    handled += 1
signal.signal(signal.SIGALRM, handle)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
address = b'\x02\0\x1f\x90\x0a\0\0\x01' + bytes(8)
for turn in range(1000):
    bound = socket.socket()
    assert libc.bind(bound.fileno(), address, 16) == 0, (turn, ctypes.get_errno())
    bound.close()
assert handled > 10
signal.setitimer(signal.ITIMER_REAL, 0)
print('bound')
";

#[test]
fn a_request_is_made_once_whatever_signals_come() {
    needs_program!("python3");
    let (_stack, relay) = relay();
    assert_eq!(run(&relay, "python3", &["-c", INTERRUPTED]), "bound\n");
}
