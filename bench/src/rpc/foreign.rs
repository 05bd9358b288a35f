//! Calls by systems of others: gRPC (tonic), tarpc and ONC RPC (libtirpc), each a server and a
//! client over the loopback device, built when they are measured, if their tools are here.

use crate::built::{Built, Files, numbers};
use crate::case::{Sample, Shared, Trouble, shared};
use crate::child::Running;
use crate::net::testbed::{Mode, cores};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest time for a server to be ready, and for a client to measure longer than asked.
const SERVER_TIME_MAX: Duration = Duration::from_secs(10);

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

    /// The program, and its first input.
    fn program(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Grpc => ("target/release/rpc-peer-grpc", None),
            Self::Tarpc => ("target/release/rpc-peer-tarpc", None),
            Self::OncUdp => ("peer", Some("udp")),
            Self::OncTcp => ("peer", Some("tcp")),
        }
    }
}

/// Programs that the cases of a benchmark share, built when the first needs them.
#[derive(Clone, Default)]
pub(crate) struct Programs {
    rust: Shared<Result<Built, Trouble>>,
    c: Shared<Result<Built, Trouble>>,
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
            Foreign::Grpc | Foreign::Tarpc => shared(&self.rust, build_rust)?,
            Foreign::OncUdp | Foreign::OncTcp => shared(&self.c, build_c)?,
        };
        let [client, server] = cores(mode)?.map(Option::unwrap_or_default);
        let spins = u8::from(mode == Mode::Spinning).to_string();
        let (program, first) = system.program();
        let command = |task: &str, core: usize| {
            let mut command = Command::new(built.path(program));
            command.args(first).args([task, &core.to_string(), &spins]);
            command
        };
        let (_server, port) = serve(command("serve", server))?;
        let mut calls = command("call", client);
        calls.args([port.to_string(), octets.to_string(), time.as_micros().to_string()]);
        let found = numbers(&mut calls, time * 2 + SERVER_TIME_MAX)?;
        let [p50, p99, ..] = found[..] else {
            return Err(Trouble::Failed(format!("{} said {found:?}", system.name())));
        };
        let us = |ns: f64| ns / 1000.0;
        Ok(Sample { value: us(p50), p50: Some(us(p50)), p99: Some(us(p99)), also: Vec::new() })
    }
}

/// A running server, and the port that it says it serves.
fn serve(mut command: Command) -> Result<(Running, u16), Trouble> {
    let failed = |what: String| Trouble::Failed(format!("the peer's server {what}"));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Running::start(&mut command, (Signal::KILL, SERVER_TIME_MAX))
        .map_err(|error| failed(format!("does not start: {error}")))?;
    let line = server.lines().recv_timeout(SERVER_TIME_MAX).unwrap_or_default();
    let port = line.strip_prefix("ready ").and_then(|port| port.parse().ok());
    Ok((server, port.ok_or_else(|| failed(format!("said {line:?}")))?))
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
