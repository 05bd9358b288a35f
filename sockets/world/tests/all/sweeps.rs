//! Sweeps of programs over seeds and parameters.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use xk_world::{Job, Link, Outcome, Result, Sweep, UdpSocket, World, sweep};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A question by datagrams that is asked until its answer comes.
fn question(job: &Job, loss: f64) -> Result<Outcome> {
    let link = Link::new().delay(MS(5)).loss(loss);
    let mut world = World::lan(job.seed, &["server", "client"], link)?;
    world.host("server", |stack| async move {
        let socket = UdpSocket::bind(&stack, "0.0.0.0:7")?;
        loop {
            let (_, from) = socket.recv_from(&mut [0; 1]).await?;
            socket.send_to(b"a", from).await?;
        }
    })?;
    let server = SocketAddr::new(world.address("server").expect("an address"), 7);
    world.client("client", move |stack| async move {
        let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
        for tries in 1.. {
            socket.send_to(b"q", server).await?;
            if timeout(MS(100), socket.recv_from(&mut [0; 1])).await.is_ok() {
                xk_world::figure("tries", f64::from(tries));
                break;
            }
        }
        Ok(())
    })?;
    world.run(Duration::from_secs(600))
}

fn lossy(seeds: u64, out: &Path) -> Sweep {
    sweep("a question").seeds(0..seeds).set("loss", [0.0, 0.2]).jobs(2).out(out)
}

fn read(at: &Path, name: &str) -> String {
    std::fs::read_to_string(at.join(name)).expect("a file")
}

/// Parameters reach the runs, rows have their figures, faults and commands; a folder that has some
/// rows is added to, and its table is that of one that was filled at once.
#[test]
fn rows_are_those_of_any_sweep() {
    static LEFT: AtomicU32 = AtomicU32::new(0);
    let test = |job: &Job| {
        // A run sees nothing of another.
        assert_eq!(LEFT.fetch_add(1, Ordering::Relaxed), 0);
        question(job, job.value("loss").parse()?)
    };
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    lossy(120, whole.path()).run(test);
    lossy(50, parts.path()).run(test);
    if std::env::var_os("XK_CALL").is_none() {
        assert_eq!(read(parts.path(), "runs.jsonl").lines().count(), 100);
    }
    lossy(120, parts.path()).run(test);
    let table = read(whole.path(), "table.csv");
    assert_eq!(table, read(parts.path(), "table.csv"));
    let (rows, lines) = (read(parts.path(), "runs.jsonl"), table.lines().count());
    assert_eq!((rows.lines().count(), lines), (240, 241), "no run is there twice");
    let head = table.lines().next().unwrap_or_default();
    assert_eq!(
        head,
        "loss,seed,verdict,why,ended,fault.loss of link `lan`,frames,tries,digest,replay"
    );
    let again = "XK_SET='loss=0.2' XK_SEED=7 cargo test -p xk-world sweeps::rows_are_those_of_any_sweep -- --exact";
    assert!(table.contains(again), "{table}");
    // Without loss one try is enough, and with it some need more.
    let tries = |line: &&str| line.split(',').nth(7).is_some_and(|tries| tries != "1");
    let (calm, wild): (Vec<&str>, Vec<&str>) =
        table.lines().skip(1).partition(|l| l.starts_with("0,"));
    assert_eq!((calm.len(), calm.iter().filter(|l| tries(l)).count()), (120, 0));
    assert!(wild.iter().filter(|l| tries(l)).count() > 20);
}

/// Returns the words of a sweep that fails.
fn fails(sweep: Sweep, test: impl Fn(&Job) -> Result<Outcome> + Sync) -> String {
    let ran = catch_unwind(AssertUnwindSafe(|| sweep.run(test)));
    ran.unwrap_err().downcast_ref::<String>().expect("words").clone()
}

#[test]
fn what_ends_badly_is_told_of_with_what_does_it_again() {
    let at = tempfile::tempdir().expect("a folder");
    let all = sweep("bad").seeds(0..7).limit(Duration::from_secs(6)).keep_going().out(at.path());
    let why = fails(all, |job| match job.seed {
        1 => panic!("a seed of one"),
        2 => Err("as it should".into()),
        3 => loop {
            std::thread::sleep(MS(100));
        },
        4 => std::process::abort(),
        5 => {
            let mut world = World::lan(5, &["a"], Link::new())?;
            world.client("a", |_| async move {
                sleep(Duration::from_secs(9)).await;
                Ok(())
            })?;
            world.run(Duration::from_secs(1))
        }
        _ => question(job, 0.0),
    });
    assert!(why.starts_with("sweep `bad`: 3 failed, 2 exhausted of 7 runs"), "{why}");
    for (seed, what) in [
        (1, "failed: seed 1: it panicked: sockets/world/tests/all/sweeps.rs:"),
        (2, "failed: seed 2: as it should"),
        (3, "exhausted: seed 3: it had not ended after 6s of real time"),
        (4, "failed: seed 4: it was ended by signal 6"),
        (5, "exhausted: seed 5: seed 5, at 1.000000s: after 1s the clients of `a` still run"),
    ] {
        let name = "sweeps::what_ends_badly_is_told_of_with_what_does_it_again";
        let again = format!("XK_SEED={seed} cargo test -p xk-world {name} -- --exact");
        let lines: Vec<&str> = why.lines().collect();
        let at = lines.iter().position(|line| line.starts_with(what));
        let at = at.unwrap_or_else(|| panic!("{what}: {why}"));
        assert_eq!(lines[at + 1], format!("  again: {again}"));
    }
}

/// Rows that no folder was named for lie where only this user can write. They stay if the sweep has
/// failed, until it is run again: then all of it is done again.
#[test]
fn rows_without_a_folder_are_this_users_alone() {
    let bad = |job: &Job| match job.seed {
        1 => Err("as it should".into()),
        _ => question(job, 0.0),
    };
    let told = || {
        let sweep = sweep("unnamed").seeds(0..3).keep_going();
        let ran = catch_unwind(AssertUnwindSafe(|| sweep.run(bad)));
        let why = ran.err().and_then(|why| why.downcast_ref::<String>().cloned());
        let why = why.filter(|_| std::env::var_os("XK_CALL").is_none())?;
        assert!(why.starts_with("sweep `unnamed`: 1 failed, 0 exhausted of 3 runs"), "{why}");
        Some(PathBuf::from(why.rsplit_once("\nrows: ").expect("a folder").1))
    };
    let Some(rows) = told() else {
        // A worker of the second.
        told();
        return;
    };
    let folder = std::fs::symlink_metadata(rows.parent().expect("a folder")).expect("a folder");
    let user = rustix::process::geteuid().as_raw();
    assert_eq!((folder.mode() & 0o022, folder.uid(), folder.is_dir()), (0, user, true));
    assert!(read(&rows, "table.csv").contains("as it should"));
    std::fs::write(rows.join("mark"), "").expect("a file");
    assert_eq!(told().as_ref(), Some(&rows));
    assert!(!rows.join("mark").exists() && rows.join("table.csv").exists());
    std::fs::remove_dir_all(&rows).expect("it goes");
}

#[test]
fn a_fault_that_fires_in_no_run_fails_it() {
    let why = fails(sweep("idle").seeds(0..3), |job| question(job, 1e-12));
    assert!(why.contains("a fault has fired in no run: loss of link `lan`"), "{why}");
}

/// A run that does not follow its seed is found: one in a hundred is done twice.
#[test]
fn a_run_that_does_not_follow_its_seed_fails() {
    let why = fails(sweep("random").seeds(0..1), |job| {
        xk_world::figure("process", f64::from(std::process::id()));
        question(job, 0.0)
    });
    assert!(why.contains("two runs of one seed differ: `process` was"), "{why}");
}

/// The rows of another plan are no part of this one.
#[test]
fn a_folder_of_something_else_is_refused() {
    let at = tempfile::tempdir().expect("a folder");
    sweep("one").seeds(0..2).out(at.path()).run(|job| question(job, 0.0));
    let why = fails(sweep("other").seeds(0..2).out(at.path()), |job| question(job, 0.0));
    assert!(why.contains("it has the runs of another plan"), "{why}");
}
