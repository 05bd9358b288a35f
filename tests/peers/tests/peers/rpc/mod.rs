//! ONC RPC (RFC 5531) with what Debian has of it: programs made by rpcgen with libtirpc, rpcbind
//! and rpcinfo.

mod client;
mod server;
mod system;
pub(crate) mod trial;

pub(crate) use client::{
    calls_c_programs, finds_servers_by_broadcast, is_registered_with_rpcbind,
    learns_ports_of_rpcbind,
};
pub(crate) use server::{gives_c_programs_shorthands, is_found_by_broadcast, serves_c_programs};
pub(crate) use system::programs_understand_each_other;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use xk_peers::testbed::{PROGRAM_TIME_MAX, Testbed};
use xk_testkit::netns::{Running, Space};

/// The program of `programs/rpc/trial.x`, as rpcinfo wants it.
pub(crate) const TRIAL: &str = "536871169";

/// The client's calls that succeed, and what it prints.
pub(crate) const GOOD: &[(&str, &str)] = &[
    ("null", "ok"),
    ("echo:0", "same"),
    ("echo:1", "same"),
    ("echo:1400", "same"),
    ("echo:8192", "same"),
    ("add:2:-5", "-3"),
    ("add:2147483647:1", "-2147483648"),
    ("shout:hello, world", "HELLO, WORLD"),
];

/// As above, with credentials.
pub(crate) const KNOWN: &[(&str, &str)] = &[
    ("sys:1000:100", "set"),
    ("who", "flavor 1 user 1000 group 100"),
    ("echo:8192", "same"),
    ("none", "set"),
    ("null", "ok"),
];

/// The client's calls that fail, and what it prints: RFC 5531, section 9, in libtirpc's words.
pub(crate) const BAD: &[(&str, &str)] = &[
    ("program", "RPC: Program unavailable"),
    ("version", "RPC: Program/version mismatch (1 to 2)"),
    ("procedure", "RPC: Procedure unavailable"),
    ("garbage", "RPC: Server can't decode arguments"),
    // AUTH_BADCRED.
    ("badsys", "RPC: Authentication error (1)"),
    // AUTH_TOOWEAK.
    ("who", "RPC: Authentication error (5)"),
    ("null", "ok"),
];

/// The C client and server, made once per run. Where they are.
fn programs() -> &'static Result<PathBuf, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Testbed::scratch("rpc-programs");
        make(&folder).map(|()| folder)
    })
}

fn make(folder: &Path) -> Result<(), String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/rpc");
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(folder).args(arguments);
        let output = command.output().map_err(|e| format!("{program}: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_good = output.status.success();
        is_good.then_some(()).ok_or(format!("{program}: {said}"))
    };
    let path = |name: &str| sources.join(name).display().to_string();
    std::fs::copy(path("trial.x"), folder.join("trial.x")).map_err(|e| e.to_string())?;
    for (kind, file) in [("-h", "trial.h"), ("-c", "trial_xdr.c"), ("-m", "trial_svc.c")] {
        run("rpcgen", &["-C", kind, "-o", file, "trial.x"])?;
    }
    let flags = ["-O1", "-I.", "-I/usr/include/tirpc", "-o"];
    for (name, others) in
        [("server", &["trial_svc.c", "trial_xdr.c"][..]), ("client", &["trial_xdr.c"])]
    {
        let source = path(&format!("{name}.c"));
        run("cc", &[&flags[..], &[name, &source], others, &["-ltirpc"]].concat())?;
    }
    Ok(())
}

/// The path of the C `client` or `server`.
pub(crate) fn program(name: &str) -> String {
    let folder = programs().as_ref().unwrap_or_else(|what| panic!("{what}"));
    folder.join(name).display().to_string()
}

/// Skips the test unless the C programs can be made.
macro_rules! needs_rpc {
    ($($program:expr),*) => {
        xk_testkit::needs_root!();
        xk_testkit::needs_program!("ip", "tcpdump", "tshark", "rpcgen", "cc" $(, $program)*);
        if !std::path::Path::new("/usr/include/tirpc/rpc/rpc.h").is_file() {
            xk_testkit::needs::skip("needs libtirpc (install it, for example: sudo apt install libtirpc-dev)");
            return;
        }
    };
}
pub(crate) use needs_rpc;

/// Starts the C server at `port` in `space`, and gives it with its ports for UDP and TCP.
pub(crate) fn serve(space: &Space, port: u16) -> Running {
    let server = space.spawn(&[&program("server"), &port.to_string()]).unwrap();
    server.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
    server
}

/// Lets the C client do `calls` from `space` and asserts that it prints what stands beside them.
pub(crate) fn call(space: &Space, transport: &str, host: &str, port: u16, calls: &[(&str, &str)]) {
    let (client, port) = (program("client"), port.to_string());
    let mut line = vec![client.as_str(), transport, host, &port];
    line.extend(calls.iter().map(|(call, _)| *call));
    let said = space.exec(&line).unwrap();
    let meant: Vec<String> = calls.iter().map(|(c, what)| format!("{c} = {what}")).collect();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said, meant, "over {transport}");
}

/// Starts rpcbind in `space`, with a folder `/run` of its own. `options` are its. After its end
/// another may be started: its port is free then.
pub(crate) fn rpcbind(space: &Space, options: &str) -> Running {
    let script = format!(
        "mount -t tmpfs tmpfs /run && rpcbind -f {options} & binder=$!; trap 'kill $binder; wait $binder' TERM; \
         until rpcinfo -p 127.0.0.1 > /dev/null 2>&1; do sleep 0.02; done; echo ready; wait"
    );
    let running = space.spawn(&["unshare", "-m", "sh", "-c", &script]).unwrap();
    running.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
    running
}

/// A command for the name spaces that `rpcbind` has.
pub(crate) fn beside<'a>(process: &'a str, command: &[&'a str]) -> Vec<&'a str> {
    [&["nsenter", "-t", process, "-n", "-m"], command].concat()
}
