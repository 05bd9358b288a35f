//! A graph serves the C client, and rpcinfo.

use xk_peers::stack::Stack;
use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};

use super::{BAD, GOOD, KNOWN, TRIAL, call, needs_rpc, trial};

/// Port of the trial.
const PORT: u16 = 2049;

/// ONC RPC on `udp`, with credentials of users and shorthands, and on `tcp`, with credentials of
/// users.
const LAYERS: &str = "reqrep udp\nsunselect reqrep\nauthsys sunselect\nauthshort sunselect authsys\n\
    tcp ip\nrm tcp\nreqrep rm name=reqrep-tcp\nsunselect reqrep-tcp name=sunselect-tcp\n\
    authsys sunselect-tcp name=authsys-tcp\n\
    sunprog sunselect authshort sunselect-tcp authsys-tcp\n";

/// A host that serves the trial, and its port mapper.
fn start(lan: &Lan, portmap: &str) -> Stack {
    start_on(lan, LAYERS, portmap)
}

fn start_on(lan: &Lan, layers: &str, portmap: &str) -> Stack {
    let stack = lan.start("", &format!("{layers}portmap sunprog transports=\"both\" {portmap}\n"));
    trial::serve(&stack, "portmap", PORT);
    stack
}

pub(crate) fn serves_c_programs(wire: Wire) {
    needs_rpc!("rpcinfo");
    let lan = Lan::new("rpc-server", wire);
    let stack = start(&lan, "");
    for transport in ["udp", "tcp"] {
        let calls = [GOOD, KNOWN, BAD, BEYOND].concat();
        call(&lan.linux, transport, OURS, PORT, &calls);
        // By way of the port mapper.
        call(&lan.linux, transport, OURS, 0, &GOOD[..1]);
    }
    rpcinfo_is_answered(&lan);
    stack.assert_drops_only(&REFUSALS);
    drop(stack);
    lan.testbed.judge(&[("Connection reset", "a client that ends")]);
    // Every datagram is understood as ONC RPC.
    let strange = lan.testbed.count("ours.pcapng", "udp && !rpc && !icmp");
    assert_eq!(strange, 0);
}

/// Requests that xk's server refuses and libtirpc's does not: xk sees where a datagram ends, and
/// has another name for a flavor that it does not know (AUTH_TOOWEAK).
const BEYOND: &[(&str, &str)] = &[
    ("short", "RPC: Server can't decode arguments"),
    ("flavor:77", "RPC: Authentication error (5)"),
];

/// The counts of what the client does wrong.
const REFUSALS: [&str; 10] = [
    "authsys: bad credentials",
    "authsys-tcp: bad credentials",
    "sunselect-tcp: credentials too weak",
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
    let said = ask(&["-p", OURS]);
    for line in ["100000    4   udp    111", "100000    2   tcp    111"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.contains(&format!("{TRIAL}    2   tcp   {PORT}")), "{said}");
    let said = ask(&["-T", "udp", OURS, "portmapper"]);
    for version in [2, 3, 4] {
        let line = format!("version {version} ready and waiting");
        assert!(said.contains(&line), "{said}");
    }
    let unknown = lan.linux.exec(&["rpcinfo", "-T", "udp", OURS, "536871245", "1"]);
    assert!(unknown.is_err(), "{unknown:?}");
}

/// The caller's identity, by a shorthand from the second call on; after a pause the shorthand is
/// too old, and libtirpc sends it whole again.
const BY_SHORTHAND: &[(&str, &str)] = &[
    ("sys:1000:100", "set"),
    ("who", "flavor 1 user 1000 group 100"),
    ("who", "flavor 2 user 1000 group 100"),
    ("echo:8192", "same"),
    // A user whose numbers are those of an empty credential.
    ("sys:0:0", "set"),
    ("who", "flavor 1 user 0 group 0"),
    ("who", "flavor 2 user 0 group 0"),
    ("pause:2100", "over"),
    ("who", "flavor 1 user 0 group 0"),
    ("who", "flavor 2 user 0 group 0"),
];

pub(crate) fn gives_c_programs_shorthands(wire: Wire) {
    needs_rpc!();
    let lan = Lan::new("rpc-shorthand", wire);
    let layers = LAYERS.replace("sunselect authsys\n", "sunselect authsys lifetime=\"2s\"\n");
    let stack = start_on(&lan, &layers, "");
    call(&lan.linux, "udp", OURS, PORT, BY_SHORTHAND);
    stack.assert_drops_only(&["authshort: credentials no longer valid"]);
    drop(stack);
    lan.testbed.judge(&[]);
    let count = |filter: &str| lan.testbed.count("ours.pcapng", filter);
    // Four calls with a good one, and one with one that was too old.
    assert_eq!(count("rpc.msgtyp == 0 && rpc.auth.flavor == 2"), 5);
    assert_eq!(count("rpc.msgtyp == 1 && rpc.auth.flavor == 2"), 3);
    assert_eq!(count("rpc.state_auth == 2"), 1);
}

/// All hosts of the link are asked at once.
pub(crate) fn is_found_by_broadcast(wire: Wire) {
    needs_rpc!("rpcinfo", "stdbuf");
    let lan = Lan::new("rpc-broadcast", wire);
    let stack = start(&lan, "indirect=#true");
    let own = format!("{LINUX}/24");
    lan.linux.ip(&["addr", "del", &own, "dev", DEVICE]).unwrap();
    lan.linux.ip(&["addr", "add", &own, "brd", "+", "dev", DEVICE]).unwrap();
    // It goes on asking for most of a minute.
    let asking = lan.linux.spawn(&["stdbuf", "-oL", "rpcinfo", "-b", TRIAL, "1"]).unwrap();
    asking.wait_for(&format!("{OURS}.8.1"), PROGRAM_TIME_MAX).unwrap();
    let _said = asking.stop();
    drop(stack);
    lan.testbed.judge(&[]);
}
