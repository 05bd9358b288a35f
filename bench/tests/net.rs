//! The benchmarks between two processes, with next to no effort: the shape of the records, and that
//! nothing is left behind. No figure is looked at but for its being one.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use xk_bench::{Options, Record, Request};
use xk_testkit::{needs_root, peer};

/// The environment variable under which this program is started as a user without rights.
const UNPRIVILEGED: &str = "XK_BENCH_TEST_UNPRIVILEGED";
/// The user without rights, as Linux numbers users.
const NOBODY: u32 = 65_534;

fn main() -> ExitCode {
    if xk_bench::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(UNPRIVILEGED).is_some() {
        unprivileged();
        return ExitCode::SUCCESS;
    }
    peer::main(&[
        ("without_rights_the_rest_runs", without_rights_the_rest_runs),
        ("round_trips_have_percentiles", round_trips_have_percentiles),
        ("streams_count_what_arrives", streams_count_what_arrives),
        ("frames_count_what_arrives", frames_count_what_arrives),
        ("tcp_is_measured_between_processes", tcp_is_measured_between_processes),
        ("conversations_are_measured", conversations_are_measured),
        ("a_killed_run_leaves_nothing", a_killed_run_leaves_nothing),
    ])
}

/// Runs a benchmark with next to no effort: once, and with more rounds if a busy machine spoils
/// one.
fn records(name: &str, only: &[&str]) -> Vec<Record> {
    let run = |runs| {
        let only = only.iter().map(|part| (*part).to_owned()).collect();
        let options =
            Options { runs, instructions: false, effort: 0.03, only, ..Options::default() };
        let request = Request { names: vec![name.into()], options, ..Request::default() };
        xk_bench::execute(&request).expect("a benchmark of that name")
    };
    let once = run(1);
    let is_spoilt = |record: &Record| record.note.as_ref().is_some_and(|n| n.starts_with("error"));
    if once.iter().any(is_spoilt) { run(3) } else { once }
}

/// Everything that must not grow: children of this process, and its devices where others see them.
/// The namespaces have no names.
fn surroundings() -> BTreeSet<String> {
    let mut list = BTreeSet::new();
    let devices = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = devices.map(|device| device.file_name().to_string_lossy().into_owned());
    list.extend(names.filter(|name| name.starts_with("xkb")));
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        list.extend(children.split_whitespace().map(|pid| format!("child {pid}")));
    }
    list
}

/// Runs a benchmark and looks at what all records have in common.
fn run_whole(name: &str, check: impl Fn(&Record)) {
    run_some(name, &[], check);
}

/// Runs the rows of a benchmark that contain one of these words, and looks at their records.
fn run_some(name: &str, only: &[&str], check: impl Fn(&Record)) {
    let before = surroundings();
    let records = records(name, only);
    assert_eq!(surroundings(), before, "nothing is left behind");
    let mut measured = 0;
    for record in &records {
        let about = format!("{record:?}");
        if !record.is_measured() {
            let note = record.note.as_deref().unwrap_or_default();
            assert!(note.starts_with("skipped: "), "{about}");
            assert!(record.median.is_nan() && record.reached().is_none(), "{about}");
            continue;
        }
        measured += 1;
        assert!(
            record.min > 0.0 && record.min <= record.median && record.median <= record.max,
            "{about}"
        );
        check(record);
    }
    assert!(measured * 2 > records.len(), "most of it can be measured here");
}

fn round_trips_have_percentiles() {
    needs_root!("ip");
    run_whole("udp-rtt", |record| {
        let (p50, p99) = (record.p50.expect("a p50"), record.p99.expect("a p99"));
        assert!(p50 <= p99, "{record:?}");
    });
}

fn streams_count_what_arrives() {
    needs_root!("ip");
    run_whole("udp-stream", counted);
}

fn frames_count_what_arrives() {
    needs_root!("ip");
    run_whole("frames", counted);
}

/// Measures xk alone: members of the others take long to find each other.
fn conversations_are_measured() {
    needs_root!("ip");
    run_some("group-delivery", &["2 members, 64 octets, xk", "4 members, 64 octets, xk"], |_| {});
    run_some("group-stream", &["total, 4 members, 1024 octets, all send, xk"], |_| {});
}

fn tcp_is_measured_between_processes() {
    needs_root!("ip");
    run_some("tcp-stream", &[], |_| {});
    run_some("tcp-rtt", &["1 octet, spinning"], |record| {
        assert!(record.p50.is_some() && record.p50 <= record.p99, "{record:?}");
    });
    run_some("tcp-connect", &["one core"], |_| {});
    run_some("tcp-lossy", &[], |_| {});
}

fn counted(record: &Record) {
    for name in ["Gb/s", "sent/s", "lost %"] {
        let found = record.also.iter().find(|(known, _)| *known == name);
        assert!(found.is_some_and(|(_, x)| *x >= 0.0), "{name} of {record:?}");
    }
}

/// Started as a user without rights: what needs none is measured, the rest says what it needs.
fn unprivileged() {
    for record in records("udp-rtt", &["1 octet, one core, Linux", "1 octet, spinning, bare"]) {
        let alone = ["Linux loopback", "bare shm"].contains(&record.system);
        assert_eq!(record.is_measured(), alone, "{record:?}");
        if !alone {
            let note = record.note.as_deref().unwrap_or_default();
            assert!(note.starts_with("skipped: needs root (sudo "), "{record:?}");
        }
    }
}

fn without_rights_the_rest_runs() {
    let mut command = Command::new("/proc/self/exe");
    command.env(UNPRIVILEGED, "1");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().expect("this program starts again");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Whatever the end, the ends go with the parent and the system takes the namespaces back.
fn a_killed_run_leaves_nothing() {
    needs_root!("ip");
    let before = surroundings();
    let mut child = Command::new("/proc/self/exe")
        .arg("round_trips")
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("this program starts again");
    let ends = || descendants(child.id());
    let begun = Instant::now();
    while ends().len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "two ends were started");
        std::thread::sleep(Duration::from_millis(5));
    }
    let ends = ends();
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    let begun = Instant::now();
    let alive = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.windows(13).any(|part| part == b"XK_BENCH_PEER")
    };
    while ends.iter().any(alive) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the ends go with their parent");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(surroundings(), before, "nothing is left behind");
}

/// The processes that a process has started.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let mut list = Vec::new();
    for line in children.flatten() {
        list.extend(line.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    list
}
