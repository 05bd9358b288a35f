//! A pool of real processes: what is killed, hangs, panics or lies is told of, nothing is lost and
//! nothing is done twice.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use xk_sweep::pool::{self, Pool, PoolError, Progress};
use xk_sweep::{Axis, Folder, Header, Job, Plan, Row, Verdict, table, worker};
use xk_testkit::peer;

/// The word by which this program is a worker.
const WORKER: &str = "be-a-worker";
/// The beginning of a plan that keeps count of its preparations in a file.
const LOG: &str = "log ";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(WORKER) {
        let prepare = |plan: &Plan, _: &Job| {
            if let Some(path) = plan.what.strip_prefix(LOG) {
                let log = OpenOptions::new().create(true).append(true).open(path);
                log.and_then(|mut log| log.write_all(b"prepared\n")).map_err(|e| e.to_string())?;
            }
            Ok(plan.what.clone())
        };
        let run = |what: &String, job: &Job| work(what, job);
        return match worker::serve(prepare, run, |_, job| format!("again {}", job.seed)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    peer::main(&[
        ("every_run_has_one_row_whatever_dies", every_run_has_one_row_whatever_dies),
        ("what_ends_badly_is_told_of", what_ends_badly_is_told_of),
        ("a_run_that_does_not_follow_its_seed_fails", a_run_that_does_not_follow_its_seed_fails),
        ("no_run_sees_what_another_has_left", no_run_sees_what_another_has_left),
        ("the_first_failure_ends_a_sweep", the_first_failure_ends_a_sweep),
        ("runs_of_a_batch_share_what_is_prepared", runs_of_a_batch_share_what_is_prepared),
        ("what_is_no_worker_is_told_of", what_is_no_worker_is_told_of),
    ])
}

/// Does a run of this name.
fn work(what: &str, job: &Job) -> Row {
    let mut row = Row::silent(job, Verdict::Clean, "");
    row.digest = format!("{:x}", job.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    row.figures.insert("seed".into(), job.seed as f64);
    match (what, job.seed) {
        ("bad", 3) => panic!("a seed of three"),
        ("bad", 4) => std::process::abort(),
        ("bad", 5) => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        ("bad", 6) => std::process::exit(7),
        // The worker itself, and this with it.
        ("bad", 7) => loop {
            let worker = rustix::process::getppid().expect("a parent");
            let _ = rustix::process::kill_process(worker, rustix::process::Signal::KILL);
            std::thread::sleep(Duration::from_secs(1));
        },
        ("random", _) => row.digest = format!("{:?}", std::time::SystemTime::now()),
        ("memory", _) => {
            static SEEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let seen = SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            row.figures.insert("seen".into(), f64::from(seen));
        }
        ("fails", 9) => row.verdict = Verdict::Failed,
        ("slow", _) => std::thread::sleep(Duration::from_millis(2)),
        ("noise", 0) => println!("what a program prints is no answer"),
        _ => {}
    }
    row
}

fn header(what: &str, seeds: u64) -> Header {
    let plan = Plan {
        what: what.into(),
        options: Vec::new(),
        axes: vec![Axis::parse("n=1,2").expect("an axis")],
        draws: Vec::new(),
        seeds: (0, seeds),
    };
    Header::new(plan, "b".into())
}

fn command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORKER).stdout(std::io::stderr());
    command
}

fn sweep(
    at: &Path,
    header: Header,
    keeps_going: bool,
    watch: &mut dyn FnMut(&Progress, Option<&Row>) -> bool,
) -> Result<(Progress, Vec<Row>), PoolError> {
    let mut folder = Folder::open(at, header)?;
    let limit = Duration::from_secs(2);
    let pool = Pool { jobs: 2, limit, keeps_going, canary: 0, command: &command };
    let progress = pool::run(&pool, &mut folder, watch)?;
    let rows = folder.rows().collect::<Result<Vec<Row>, _>>()?;
    table::write(&folder).expect("a table");
    Ok((progress, rows))
}

fn done(what: &str, seeds: u64, keeps_going: bool) -> Vec<Row> {
    let at = tempfile::tempdir().expect("a folder");
    sweep(at.path(), header(what, seeds), keeps_going, &mut |_, _| true).expect("it runs").1
}

/// The processes that this one has started.
fn children() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the system tells of threads");
    let of = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("children")).unwrap_or_default()
    };
    let all: String = tasks.flatten().map(of).collect();
    all.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// A sweep that is stopped again and again, and whose workers are killed meanwhile, makes the table
/// of one that was left alone.
fn every_run_has_one_row_whatever_dies() {
    const SEEDS: u64 = 1000;
    let [calm, wild] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (progress, rows) =
        sweep(calm.path(), header("slow", SEEDS), true, &mut |_, _| true).expect("it runs");
    assert_eq!((progress.ended, rows.len() as u64), (2 * SEEDS, 2 * SEEDS));
    let mut stops = 0;
    loop {
        let mut seen = 0_u64;
        let (progress, _) = sweep(wild.path(), header("slow", SEEDS), true, &mut |_, row| {
            seen += u64::from(row.is_some());
            // A worker, in the middle of its batch.
            if seen == 150
                && row.is_some()
                && let Some(worker) = children().first()
            {
                kill(*worker);
            }
            seen < 500
        })
        .expect("it goes on");
        if progress.ended == progress.runs {
            break;
        }
        stops += 1;
    }
    assert!(stops >= 2, "it was stopped {stops} times");
    let read = |at: &Path, name: &str| std::fs::read(at.join(name)).expect("a file");
    for name in ["table.csv", "table.parquet"] {
        assert!(read(calm.path(), name) == read(wild.path(), name), "{name}");
    }
    let lines = read(wild.path(), "runs.jsonl").iter().filter(|octet| **octet == b'\n').count();
    assert_eq!(lines as u64, 2 * SEEDS, "no run is there twice");
    assert!(children().is_empty(), "no worker is left");
}

fn what_ends_badly_is_told_of() {
    let rows = done("bad", 9, true);
    let of: BTreeMap<u64, &Row> = rows.iter().map(|row| (row.seed, row)).collect();
    assert_eq!(rows.len(), 18);
    for (seed, verdict, why) in [
        (2, Verdict::Clean, ""),
        (3, Verdict::Failed, "a seed of three"),
        (4, Verdict::Failed, "signal 6"),
        (5, Verdict::Exhausted, "2s of real time"),
        (6, Verdict::Failed, "status 7"),
        (7, Verdict::Failed, "worker processes died"),
        (8, Verdict::Clean, ""),
    ] {
        let row = of[&seed];
        assert!(row.verdict == verdict && row.why.contains(why), "{seed}: {row:?}");
        // One that took its workers with it has told of nothing.
        assert_eq!(row.replay.is_empty(), seed == 7, "{row:?}");
    }
    assert!(of[&3].why.contains("pool.rs:"), "a panic has its place: {}", of[&3].why);
}

fn a_run_that_does_not_follow_its_seed_fails() {
    let rows = done("random", 100, true);
    let failed: Vec<&Row> = rows.iter().filter(|row| row.verdict == Verdict::Failed).collect();
    assert_eq!(failed.len(), 2, "one in a hundred is done twice");
    assert!(failed.iter().all(|row| row.why.contains("two runs of one seed differ: its digest")));
}

fn no_run_sees_what_another_has_left() {
    assert!(done("memory", 50, true).iter().all(|row| row.figures["seen"] == 0.0));
    assert!(done("noise", 50, true).iter().all(|row| row.verdict == Verdict::Clean));
}

fn the_first_failure_ends_a_sweep() {
    let rows = done("fails", 1000, false);
    let failed = rows.iter().filter(|row| row.verdict == Verdict::Failed).count();
    assert!(failed == 1 && rows.len() < 2000, "{failed} of {}", rows.len());
    assert_eq!(done("fails", 1000, true).len(), 2000);
}

/// However combinations take turns, a graph is read a few times, and not for each run.
fn runs_of_a_batch_share_what_is_prepared() {
    let at = tempfile::tempdir().expect("a folder");
    let log = at.path().join("log");
    let runs = done(&format!("{LOG}{}", log.display()), 500, true).len();
    let prepared = std::fs::read_to_string(log).expect("a log").lines().count();
    assert!((2..runs / 2).contains(&prepared), "{prepared} preparations for {runs} runs");
}

fn what_is_no_worker_is_told_of() {
    let at = tempfile::tempdir().expect("a folder");
    let tell = |command: &dyn Fn() -> Command| {
        let mut folder = Folder::open(at.path(), header("plain", 10)).expect("a folder");
        let limit = Duration::from_secs(2);
        let pool = Pool { jobs: 2, limit, keeps_going: true, canary: 0, command };
        let ended = pool::run(&pool, &mut folder, &mut |_, _| true);
        ended.expect_err("it is none").to_string()
    };
    assert!(tell(&|| Command::new("/bin/false")).contains("exit status: 1"));
    assert!(tell(&|| Command::new("/nonexistent")).contains("No such file"));
    let said = tell(&|| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo nonsense >&0"]);
        command
    });
    assert!(said.contains("nonsense"), "{said}");
}
