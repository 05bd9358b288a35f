//! A graph serves the C client, and rpcinfo.

use xk_peers::scene::{Lan, OURS, Wire};
use xk_peers::stack::Stack;

use super::{BAD, GOOD, TRIAL, call, needs_rpc, trial};

/// Where the trial is.
const PORT: u16 = 2049;

/// ONC RPC on `udp`.
const LAYERS: &str = "reqrep udp\nsunselect reqrep\nsunprog sunselect\n";

/// A host that serves the trial, and its port mapper.
fn start(lan: &Lan, portmap: &str) -> Stack {
    let stack = lan.start("", &format!("{LAYERS}portmap sunprog {portmap}\n"));
    trial::serve(&stack, "portmap", PORT);
    stack
}

pub(crate) fn serves_c_programs(wire: Wire) {
    needs_rpc!("rpcinfo");
    let lan = Lan::new("rpc-server", wire);
    let stack = start(&lan, "");
    call(&lan.linux, "udp", OURS, PORT, &[GOOD, BAD, BEYOND].concat());
    // By way of the port mapper.
    call(&lan.linux, "udp", OURS, 0, &GOOD[..1]);
    rpcinfo_is_answered(&lan);
    stack.assert_drops_only(&REFUSALS);
    drop(stack);
    lan.scene.judge(&[]);
    // Every datagram is understood as ONC RPC.
    let strange = lan.scene.count("ours.pcapng", "udp && !rpc && !icmp");
    assert_eq!(strange, 0);
}

/// What our server refuses and libtirpc's does not: it sees where a datagram ends, and has another name for what it
/// has never heard of (AUTH_TOOWEAK).
const BEYOND: &[(&str, &str)] = &[
    ("short", "RPC: Server can't decode arguments"),
    ("flavor:77", "RPC: Authentication error (5)"),
];

/// The counts of what the client does wrong.
const REFUSALS: [&str; 7] = [
    "sunprog: no such program",
    "sunprog: no such version",
    "sunprog: no such procedure",
    "trial: no such procedure",
    "trial: garbage arguments",
    "trial: credentials too weak",
    "sunselect: credentials too weak",
];

fn rpcinfo_is_answered(lan: &Lan) {
    let ask = |options: &[&str]| lan.linux.exec(&[&["rpcinfo"], options].concat()).unwrap();
    let said = ask(&["-T", "udp", OURS, TRIAL]);
    for version in [1, 2] {
        let line = format!("program {TRIAL} version {version} ready and waiting");
        assert!(said.contains(&line), "{said}");
    }
    let address = format!("{OURS}.8.1");
    let said = ask(&["-a", &address, "-T", "udp", TRIAL, "1"]);
    assert!(said.contains("version 1 ready and waiting"), "{said}");
    let said = ask(&["-T", "udp", OURS, "portmapper"]);
    for version in [2, 3, 4] {
        let line = format!("version {version} ready and waiting");
        assert!(said.contains(&line), "{said}");
    }
    let unknown = lan
        .linux
        .exec(&["rpcinfo", "-T", "udp", OURS, "536871245", "1"]);
    assert!(unknown.is_err(), "{unknown:?}");
}
