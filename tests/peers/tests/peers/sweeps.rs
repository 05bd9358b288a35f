//! Sweeps that engines spread over machines: the same table, whatever dies on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use xk_peers::testbed::Wire;
use xk_testkit::netns::{Net, Running, Space};
use xk_testkit::{await_that, needs, needs_root};

use crate::program::command;

/// A client that asks over a link which loses some, and a server that dies at times.
const PLAN: &str = r#"
host client {
    sim link=lan
    eth sim
    arp eth
    ip arp { address "10.0.0.1/24"; }
    udp ip
    probe udp name=ask to="port7@10.0.0.2" count=100 interval="10ms" timeout="500ms"
}
host server {
    sim link=lan
    eth sim
    arp eth
    ip arp { address "10.0.0.2/24"; }
    udp ip
    echo udp port=7
}
link lan delay="1ms" rate="100Mbit"
faults {
    crash "server" every="1s" away="50ms"
}
sweep {
    seeds "0..200"
    set "lan.loss" "0%,1%"
}
"#;

/// Bounds the beginning of Ray, and a sweep: far more than they take on a busy machine.
const SWEEP_TIME_MAX: Duration = Duration::from_secs(240);
/// Ray without what it does not need here, quick to see that a node has gone.
const SETTINGS: &str = "export RAY_USAGE_STATS_ENABLED=0 RAY_health_check_initial_delay_ms=1000 \
    RAY_health_check_period_ms=1000 RAY_health_check_timeout_ms=5000 PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1";
/// Each node on the loopback device, with little memory.
const NODE: &str = "--node-ip-address=127.0.0.1 --object-store-memory=80000000 --block";

/// A head and two workers on one machine, one of which is killed while it works.
pub(crate) fn a_killed_node_of_ray_changes_no_octet(_: Wire) {
    needs_root!("ip");
    let (command, ray) = (command(), python("ray"));
    if !command.is_file() {
        needs::skip("needs the command xk (cargo build -p xk)");
        return;
    } else if !ray.is_file() {
        needs::skip("needs Ray of Python's registry below target (run: cargo xtask setup)");
        return;
    }
    // A short path: sockets of Ray are in it.
    let place = tempfile::Builder::new().prefix("xkt-ray-").tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("plan.kdl"), PLAN).unwrap();
    strip(&command, &at("xk"));
    let mut local = Command::new(at("xk"));
    local.current_dir(place.path()).args(["sweep", "plan.kdl", "--keep-going", "--out", "local"]);
    let local = local.output().unwrap();
    assert!(local.status.success(), "{local:?}");

    let net = Net::new("ray").unwrap();
    let space = net.space().unwrap();
    let start = |words: &str| {
        let line = format!("'{}' start {words} {NODE}", ray.display());
        let node = shell(&space, place.path(), &line);
        node.wait_for("Ray runtime started.", SWEEP_TIME_MAX).unwrap();
        node
    };
    let folder = at("ray");
    let _head =
        start(&format!("--head --port=6379 --num-cpus=0 --temp-dir='{}'", folder.display()));
    let workers = ["--address=127.0.0.1:6379 --num-cpus=1"; 2].map(start);
    let is_same = |sweep: &Running| {
        let status = sweep.wait(SWEEP_TIME_MAX).unwrap();
        assert!(status.success(), "{}", sweep.output());
        for table in ["table.csv", "table.parquet"] {
            let of = |folder: &str| fs::read(at(folder).join(table)).unwrap();
            assert!(of("local") == of("spread"), "{table}: {}", sweep.output());
        }
    };
    let sweep = shell(&space, place.path(), &format!("{} --address 127.0.0.1:6379", line(&at)));
    await_that("a node works, and parts are there", &sweep, || {
        whole_parts(&at("spread")).len() >= 3 && below(workers[0].id(), "xk").is_some()
    });
    let raylet = below(workers[0].id(), "raylet").expect("a node of Ray");
    kill_process(raylet, Signal::KILL).unwrap();
    is_same(&sweep);

    // As a job that goes on with what there is, on the node that is left.
    for part in whole_parts(&at("spread")).into_iter().step_by(2) {
        fs::remove_dir_all(part).unwrap();
    }
    for file in ["runs.jsonl", "table.csv", "table.parquet"] {
        fs::remove_file(at("spread").join(file)).unwrap();
    }
    fs::create_dir(at("job")).unwrap();
    for file in ["plan.kdl", "xk"] {
        fs::copy(at(file), at("job").join(file)).unwrap();
    }
    let submit = "job submit --address http://127.0.0.1:8265 --working-dir .";
    let job = format!("'{}' {submit} -- {}", ray.display(), line(&at));
    is_same(&shell(&space, &at("job"), &job));
}

/// The script with the plan.
fn line(at: &dyn Fn(&str) -> PathBuf) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/sweep-ray.py");
    let words = [python("python"), script, at("spread")];
    let [python, script, out] = words.map(|path| path.display().to_string());
    format!("'{python}' '{script}' plan.kdl --xk ./xk --out '{out}' --task-seconds 0.5")
}

/// Starts a line of the shell in a folder.
fn shell(space: &Space, folder: &Path, line: &str) -> Running {
    let script = format!("cd '{}'\n{SETTINGS}\nexec {line}", folder.display());
    space.spawn(&["sh", "-ec", &script]).unwrap()
}

/// A program of Python's packages, which `cargo xtask setup` puts below `target`.
fn python(name: &str) -> PathBuf {
    let target = command();
    let target = target.ancestors().nth(2).unwrap_or(Path::new(""));
    target.join("python/bin").join(name)
}

/// A copy of a program without what only a debugger needs.
fn strip(from: &Path, to: &Path) {
    let stripped = Command::new("strip").arg("-o").arg(to).arg(from).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(from, to).unwrap();
    }
}

/// The parts that are whole.
fn whole_parts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("parts")).into_iter().flatten().flatten();
    let whole = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    whole.map(|entry| entry.path()).collect()
}

/// A process of this name that this one started, or one that it started.
fn below(process: u32, name: &str) -> Option<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")));
    let children: String = children.map(Result::unwrap_or_default).collect();
    children.split_whitespace().find_map(|child| {
        let child: u32 = child.parse().ok()?;
        let comm = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        if comm.trim() == name {
            return Pid::from_raw(child.try_into().ok()?);
        }
        below(child, name)
    })
}

fn await_that(what: &str, running: &Running, mut is_so: impl FnMut() -> bool) {
    await_that!(SWEEP_TIME_MAX, is_so(), "not so: {what}; {}", running.output());
}
