//! The benchmarks of the papers' tables, of many sessions, of the simulator and of the command's
//! footprint, each once with next to no effort: the shape of the records. No figure is looked at
//! but for its being one, and shares for being shares.

use std::process::ExitCode;
use xk_bench::{Options, Record, Request};
use xk_testkit::peer;

fn main() -> ExitCode {
    if xk_bench::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    peer::main(&[
        ("tables_have_the_papers_column", tables_have_the_papers_column),
        ("shares_sum_to_the_whole", shares_sum_to_the_whole),
        ("sessions_and_hosts_are_measured", sessions_and_hosts_are_measured),
        ("a_footprint_is_told_or_why_not", a_footprint_is_told_or_why_not),
        ("sweeps_are_measured_beside_bare_runs", sweeps_are_measured_beside_bare_runs),
    ])
}

/// Runs those rows of a benchmark that contain one of these words, or all, once. Every row has a
/// figure, or says why not. Between two processes an answer may also be late, and single operations
/// may be far apart: a test does not say how fast or how busy the machine is.
fn some_records(name: &str, only: &[&str]) -> Vec<Record> {
    let request = Request {
        names: vec![name.into()],
        options: Options {
            runs: 1,
            instructions: false,
            effort: 0.002,
            only: only.iter().map(|words| (*words).to_owned()).collect(),
            ..Options::default()
        },
        ..Request::default()
    };
    let records = xk_bench::execute(&request).expect("a benchmark of that name");
    assert!(!records.is_empty(), "{name}");
    for record in &records {
        let measured = record.is_measured() && record.median.is_finite();
        let excused = record.note.as_ref().is_some_and(|note| {
            note.starts_with("skipped: ")
                || note.starts_with("error: ") && note.contains(" within ")
                || note.starts_with("error: refused: ")
        });
        assert!(measured || excused, "{record:?}");
    }
    records
}

fn records(name: &str) -> Vec<Record> {
    some_records(name, &[])
}

/// Rows of the second paper that need no second process, and one that does.
const RPC_ROWS: &[&str] = &["in process", "latency, xk shm", "Sun"];

/// Tables and figures stand beside the paper's, in the paper's words.
fn tables_have_the_papers_column() {
    for (name, only, quoted) in [
        ("papers/xkernel-table-1", &[][..], 6),
        ("papers/xkernel-table-3", &["one core", "Sun"], 10),
        ("papers/udp-server-table-1", &["unpinned", "DECstation"], 2),
        ("papers/udp-server-table-2", &["unpinned", "DECstation"], 3),
        ("papers/udp-server-table-3", &["user to user, one core", "DECstation"], 4),
        ("papers/udp-server-breakdown", &["unpinned", "DECstation"], 4),
        ("papers/user-level-table-1", &[], 3),
        ("papers/user-level-table-2", &["512 octets"], 5),
        ("papers/user-level-table-3", &["1460 octets", "null call"], 5),
        ("papers/user-level-table-4", &[], 10),
        ("papers/user-level-table-5", &[], 2),
        ("papers/subsystems-figure-3", &[], 2),
        ("papers/subsystems-figure-4", &[], 2),
        ("papers/subsystems-figure-7", &["578 octets"], 0),
        ("papers/subsystems-figure-8", &["578 octets", "SPARC"], 2),
        ("papers/subsystems-queues", &[], 0),
        ("papers/xkernel-table-4", &[], 8),
        ("papers/xkernel-table-5", &[], 5),
        ("papers/xkernel-table-6", &["latency"], 6),
        ("papers/rpc-table-1", RPC_ROWS, 14),
        ("papers/rpc-table-2", RPC_ROWS, 8),
        ("papers/rpc-table-3", RPC_ROWS, 7),
        ("papers/rpc-removing-layers", RPC_ROWS, 10),
        ("papers/xkernel-figure-5", &["1 octets", "1400 octets"], 2),
        ("papers/xkernel-figure-6", &[], 4),
    ] {
        let records = some_records(name, only);
        let machines = ["Sun 3/75", "DECstation 2100", "DECstation 5000/200", "SPARCstation LX"];
        let is_old = |record: &&Record| machines.iter().any(|old| record.system.ends_with(old));
        assert_eq!(records.iter().filter(is_old).count(), quoted, "{name}");
        assert!(records.iter().any(|r| r.system.starts_with("xk")), "{name}");
    }
}

fn shares_sum_to_the_whole() {
    let records = records("papers/xkernel-table-2");
    for system in ["xk", "xk, user in a domain of its own", "x-kernel, Sun 3/75"] {
        let of_system = records.iter().filter(|r| r.system == system);
        let measured: Vec<f64> = of_system.filter(|r| r.is_measured()).map(|r| r.median).collect();
        let sum: f64 = measured.iter().sum();
        // Without valgrind there is nothing to sum.
        assert!(measured.is_empty() || (sum - 100.0).abs() < 0.01, "{system}: {sum}");
    }
}

fn sessions_and_hosts_are_measured() {
    for (name, row) in [
        ("demux", "memory of an open session"),
        ("sim", "10000 hosts, memory of all"),
        ("tcp-idle", "40000 idle ends, memory"),
    ] {
        let records = records(name);
        let memory = records.iter().find(|r| r.row == row);
        assert!(memory.is_some_and(Record::is_measured), "{name}");
    }
}

fn a_footprint_is_told_or_why_not() {
    assert_eq!(records("footprint").len(), 9);
}

fn sweeps_are_measured_beside_bare_runs() {
    let records = records("sweep");
    let of = |system| records.iter().filter(|r| r.system == system).count();
    assert_eq!((of("bare"), of("xk")), (6, 12));
    assert!(records.iter().all(|r| r.system != "bare" || r.is_measured()));
}
