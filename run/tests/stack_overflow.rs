//! A shepherd that overflows its stack is named before the process ends.

use std::process::Command;
use std::rc::Rc;

use xk_core::shepherd::{Flow, Limits, Shepherds};
use xk_run::switch::CoroutineSwitch;

/// Tells the child process from the test that starts it.
const ROLE: &str = "XK_TEST_OVERFLOW";

fn child(role: &str) -> (Option<i32>, String) {
    let program = std::env::current_exe().expect("own path");
    let output = Command::new(program)
        .args(["--exact", "overflows_in_a_child", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .output()
        .expect("child ran");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 32]);
    if depth == u64::MAX {
        return 0;
    }
    recurse(depth + 1) + frame[7]
}

#[test]
#[ignore = "ends its process; run by the tests below"]
fn overflows_in_a_child() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let limits = Limits { shepherds_max: 2, stack_octets: 100_000 };
    let shepherds = Shepherds::new(Box::new(CoroutineSwitch::new()), limits);
    match role.as_str() {
        "shepherd" => {
            let ran = shepherds.run(Rc::new(|| {
                recurse(0);
                Flow::Stop
            }));
            panic!("survived: {ran:?}");
        }
        "thread" => {
            recurse(0);
        }
        _ => {}
    }
}

#[test]
fn the_shepherd_is_named() {
    let (code, text) = child("shepherd");
    assert_eq!(code, None, "ended by a signal");
    let line = "xk: stack overflow of shepherd 0, which has 102400 octets";
    assert!(text.contains(line), "{text}");
}

#[test]
fn other_overflows_are_left_to_the_runtime() {
    let (code, text) = child("thread");
    assert_eq!(code, None, "ended by a signal");
    assert!(text.contains("overflowed its stack"), "{text}");
    assert!(!text.contains("shepherd"), "{text}");
}
