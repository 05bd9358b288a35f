//! A stack that waits, for whatever it is, leaves the processor alone. In a process of its own,
//! whose time is this test's.

use std::time::Duration;
use xk_rpc::{Call, Refusal, Reply, Stack};

/// Processor time that this process has used so far.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
    let behind = stat.rsplit(')').next().expect("fields");
    let ticks: u64 = behind
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(10 * ticks)
}

#[test]
fn nobody_turns_idle() {
    let path = std::env::temp_dir().join(format!("xk-rpc-idle-{}.sock", std::process::id()));
    let host = |name: &str| {
        let shm = format!("shm path=\"{}\"", path.display());
        Stack::from_text(
            format!("host {name} {{ {shm}; channel shm; select channel; }}"),
            xk_catalog::PROTOCOLS,
        )
    };
    let b = host("b").expect("a stack");
    let client = b.client("").expect("a client").without_deadline();
    let early = client.start(1, b"early").expect("begun");
    let used = |what: &str| {
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(400));
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(150), "{what}: {used:?}");
    };
    used("a client whose server is not there");
    let a = host("a").expect("a stack");
    let serve = |call: &Call<'_>| match call.procedure() {
        1 => Ok(call.octets().into_owned().into()),
        2 => {
            call.elsewhere(|| std::thread::sleep(Duration::from_millis(600)))?;
            Ok(Reply::empty())
        }
        _ => Err(Refusal::NoProcedure),
    };
    let _server = a.serve(serve).expect("taken");
    assert_eq!(early.wait(), Ok(b"early".to_vec()));
    used("a client and a server without a call");
    let slow = client.start(2, &[]).expect("begun");
    used("a client and a server in the middle of one");
    assert_eq!(slow.wait(), Ok(Vec::new()));
    let _ = std::fs::remove_file(&path);
}
