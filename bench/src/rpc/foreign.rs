//! Calls by systems of others: gRPC (tonic), tarpc and ONC RPC (libtirpc), each a server and a
//! client over the loopback device, built when they are measured, if their tools are here.

use crate::built::{Built, Files, numbers};
use crate::case::{Sample, Trouble};
use crate::net::testbed::{Mode, cores};
use std::cell::OnceCell;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a server may take to be ready, and how much longer than asked for a client may measure.
const PATIENCE: Duration = Duration::from_secs(10);

static RUST: Files = &[
    ("Cargo.toml", include_str!("../../peers/rpc/Cargo.toml")),
    ("Cargo.lock", include_str!("../../peers/rpc/Cargo.lock")),
    ("common/Cargo.toml", include_str!("../../peers/rpc/common/Cargo.toml")),
    ("common/src/lib.rs", include_str!("../../peers/rpc/common/src/lib.rs")),
    ("common/src/trips.rs", include_str!("../../peers/rpc/common/src/trips.rs")),
    ("grpc/Cargo.toml", include_str!("../../peers/rpc/grpc/Cargo.toml")),
    ("grpc/build.rs", include_str!("../../peers/rpc/grpc/build.rs")),
    ("grpc/src/main.rs", include_str!("../../peers/rpc/grpc/src/main.rs")),
    ("tarpc/Cargo.toml", include_str!("../../peers/rpc/tarpc/Cargo.toml")),
    ("tarpc/src/main.rs", include_str!("../../peers/rpc/tarpc/src/main.rs")),
];
static C: Files = &[
    ("null.x", include_str!("../../peers/tirpc/null.x")),
    ("peer.c", include_str!("../../peers/tirpc/peer.c")),
];

/// A system that calls procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Grpc,
    Tarpc,
    OncUdp,
    OncTcp,
}

impl Foreign {
    pub(crate) const ALL: [Self; 4] = [Self::Grpc, Self::Tarpc, Self::OncUdp, Self::OncTcp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC (tonic)",
            Self::Tarpc => "tarpc",
            Self::OncUdp => "ONC RPC, UDP (libtirpc)",
            Self::OncTcp => "ONC RPC, TCP (libtirpc)",
        }
    }

    /// Its program, and what that is to be told first.
    fn program(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Grpc => ("target/release/rpc-peer-grpc", None),
            Self::Tarpc => ("target/release/rpc-peer-tarpc", None),
            Self::OncUdp => ("peer", Some("udp")),
            Self::OncTcp => ("peer", Some("tcp")),
        }
    }
}

/// What the cases of a benchmark share: the programs, built when the first needs them.
#[derive(Clone, Default)]
pub(crate) struct Programs {
    rust: Rc<OnceCell<Result<Built, Trouble>>>,
    c: Rc<OnceCell<Result<Built, Trouble>>>,
}

impl Programs {
    /// Calls a procedure that takes so many octets and answers nothing, one call after the other;
    /// in microseconds.
    ///
    /// # Errors
    /// [`Trouble`]: tools that are missing, or what goes wrong.
    pub(crate) fn calls(
        &self,
        system: Foreign,
        octets: usize,
        mode: Mode,
        time: Duration,
    ) -> Result<Sample, Trouble> {
        let built = match system {
            Foreign::Grpc | Foreign::Tarpc => self.rust.get_or_init(build_rust),
            Foreign::OncUdp | Foreign::OncTcp => self.c.get_or_init(build_c),
        };
        let built = built.as_ref().map_err(Clone::clone)?;
        let [client, server] = cores(mode)?;
        let spins = u8::from(mode == Mode::Spinning).to_string();
        let (program, first) = system.program();
        let command = |task: &str, core: usize| {
            let mut command = Command::new(built.path(program));
            command.args(first).args([task, &core.to_string(), &spins]);
            command
        };
        let server = Server::start(command("serve", server))?;
        let mut calls = command("call", client);
        calls.args([server.port.to_string(), octets.to_string(), time.as_micros().to_string()]);
        let found = numbers(&mut calls, time * 2 + PATIENCE)?;
        let [p50, p99, ..] = found[..] else {
            return Err(Trouble::Failed(format!("{} said {found:?}", system.name())));
        };
        let us = |ns: f64| ns / 1000.0;
        Ok(Sample { value: us(p50), p50: Some(us(p50)), p99: Some(us(p99)), also: Vec::new() })
    }
}

/// A running server, which ends with this.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(mut command: Command) -> Result<Self, Trouble> {
        let failed = |what: String| Trouble::Failed(format!("the peer's server {what}"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(format!("does not start: {error}")))?;
        let output = child.stdout.take();
        let mut server = Self { child, port: 0 };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let line = output.and_then(|output| BufReader::new(output).lines().next());
            // The waiting side may have given up.
            let _ = sender.send(line.and_then(Result::ok).unwrap_or_default());
        });
        let line = lines.recv_timeout(PATIENCE).unwrap_or_default();
        let port = line.strip_prefix("ready ").and_then(|port| port.parse().ok());
        server.port = port.ok_or_else(|| failed(format!("said {line:?}")))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build_rust() -> Result<Built, Trouble> {
    let built = Built::kept("rpc-peers", RUST)?;
    let what =
        "cargo and the peers' crates in its cache (cd bench/peers/rpc && cargo fetch --locked)";
    for package in ["rpc-peer-grpc", "rpc-peer-tarpc"] {
        // What is not in the cache is not fetched. Where other builds put theirs is no concern of
        // this one.
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--offline", "--quiet"]);
        cargo.args(["--target-dir", "target", "--package", package]);
        built.build(&mut cargo, what)?;
    }
    Ok(built)
}

fn build_c() -> Result<Built, Trouble> {
    const HEADERS: &str = "/usr/include/tirpc";
    if !Path::new(HEADERS).join("rpc/rpc.h").exists() {
        let what = "needs libtirpc (apt install libtirpc-dev)";
        return Err(Trouble::Skipped(what.into()));
    }
    let built = Built::new(C)?;
    for (part, output) in [("-h", "null.h"), ("-c", "null_xdr.c"), ("-m", "null_svc.c")] {
        // It writes over nothing.
        let _ = std::fs::remove_file(built.path(output));
        let mut rpcgen = Command::new("rpcgen");
        built.build(
            rpcgen.args([part, "-o", output, "null.x"]),
            "rpcgen (apt install rpcsvc-proto)",
        )?;
    }
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-w", "-I", HEADERS, "-o", "peer"]);
    cc.args(["peer.c", "null_xdr.c", "null_svc.c", "-ltirpc"]);
    built.build(&mut cc, "a C compiler (apt install gcc)")?;
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The others take long to build: a run of the benchmark builds them.
    #[test]
    fn libtirpc_is_measured_or_says_what_it_needs() {
        let programs = Programs::default();
        for system in [Foreign::OncUdp, Foreign::OncTcp] {
            for octets in [0, 16 * 1024] {
                let time = Duration::from_millis(5);
                match programs.calls(system, octets, Mode::OneCore, time) {
                    Ok(sample) => assert!(sample.value > 0.0 && sample.p99 >= sample.p50),
                    Err(Trouble::Skipped(why)) => assert!(why.starts_with("needs "), "{why}"),
                    Err(Trouble::Failed(what)) => panic!("{what}"),
                }
            }
        }
    }
}
