//! A failing test of programs is made small, and done again as is then said.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;
use xk_world::{Job, Link, Outcome, Result, Stack, UdpSocket, World, sweep};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// The seed whose server crashes.
const BAD: u64 = 2;
/// The beginning of what the failure says.
const WHY: &str = "the count went back to";

/// Asks the server every 20 ms, for a second, how often this client has asked it. The server
/// forgets when it crashes, which is the fault that is to be found.
async fn asks(stack: Stack, server: SocketAddr) -> Result {
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
    let mut most = 0;
    for _ in 0..50 {
        socket.send_to(b"q", server).await?;
        let mut count = [0];
        let answered = tokio::time::timeout(MS(20), socket.recv_from(&mut count));
        if answered.await.is_ok() {
            assert!(count[0] >= most, "the count went back to {}", count[0]);
            most = count[0];
        }
        sleep(MS(20)).await;
    }
    Ok(())
}

/// A server, three clients, and faults of which one has to do with the failure.
fn counts(job: &Job) -> Result<Outcome> {
    let link = Link::new().delay(MS(1)).loss(0.02);
    let mut world = World::lan(job.seed, &["server", "one", "two", "three"], link)?;
    world.host("server", |stack| async move {
        let socket = UdpSocket::bind(&stack, "0.0.0.0:7")?;
        let mut counts = std::collections::BTreeMap::new();
        loop {
            let (_, from) = socket.recv_from(&mut [0]).await?;
            let count: &mut u8 = counts.entry(from).or_default();
            *count += 1;
            socket.send_to(&[*count], from).await?;
        }
    })?;
    let server = SocketAddr::new(world.address("server").expect("an address"), 7);
    for name in ["one", "two", "three"] {
        world.client(name, move |stack| asks(stack, server))?;
    }
    world.run_for(MS(100))?;
    world.partition("one", "two")?;
    world.pause("two")?;
    world.run_for(MS(50))?;
    world.resume("two")?;
    world.link("lan", |link| link.delay = MS(2))?;
    if job.seed == BAD {
        world.crash("server")?;
        world.run_for(MS(30))?;
        world.restart("server")?;
    }
    world.run_for(MS(100))?;
    world.repair("one", "two")?;
    world.run(Duration::from_secs(60))
}

#[test]
fn a_failing_test_of_programs_is_made_small() {
    let name = "programs::a_failing_test_of_programs_is_made_small";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("counts");
    let sweep = sweep("counts").seeds(0..4).jobs(2).keep_going().out(&folder);
    let is_again = ["XK_CALL", "XK_SEED"].iter().any(|name| std::env::var_os(name).is_some());
    if !is_again {
        // What a test before has left.
        let _ = std::fs::remove_dir_all(&folder);
    }
    let failed = catch_unwind(AssertUnwindSafe(|| sweep.run(counts))).expect_err("it fails");
    if is_again {
        resume_unwind(failed);
    }
    let failed = failed.downcast_ref::<String>().expect("words");
    assert!(failed.contains("1 failed, 0 exhausted of 4 runs") && failed.contains(WHY), "{failed}");

    let mut shrink = Command::new(env!("CARGO_BIN_EXE_xk"));
    shrink.args(["sweep", "shrink", &BAD.to_string(), "--out"]).arg(&folder);
    let output = shrink.output().expect("xk can be started");
    let [out, error] = [output.stdout, output.stderr].map(|o| String::from_utf8(o).expect("text"));
    assert!(output.status.success(), "{out}{error}");
    let script = std::fs::read_to_string(folder.join(format!("shrunk-{BAD}.sh"))).expect("a file");
    let line = script.lines().last().expect("a line");
    assert!(out.contains(&format!("again: {line}\n")) && script.contains(WHY), "{out}{script}");
    let kept = line.split('\'').nth(1).expect("what is kept");
    let parts: Vec<&str> = kept.split(' ').collect();
    let [server, client, crash, restart] = parts[..] else { panic!("{out}") };
    assert_eq!(
        [server, crash, restart],
        ["program:server:1", "crash:server:1", "restart:server:1"]
    );
    assert!(client.starts_with("program:"), "{client}");
    assert!(out.contains("4 faults, chances and programs of 11, 0."), "{out}");
    assert!(line.ends_with(&format!("XK_SEED={BAD} cargo test -p xk {name} -- --exact")), "{line}");

    // What the line says, but for cargo: it fails the same way, and not a moment sooner.
    let until = line.split("XK_UNTIL=").nth(1).and_then(|rest| rest.split(' ').next());
    let until: f64 = until.expect("a moment").parse().expect("a number");
    for (until, fails_so) in [(until, true), (until - 0.001, false)] {
        let mut again = Command::new("/proc/self/exe");
        again.args([name, "--exact", "--nocapture"]).env("XK_SEED", BAD.to_string());
        let output = again.env("XK_KEEP", kept).env("XK_UNTIL", until.to_string()).output();
        let output = output.expect("this program can be started");
        let [out, error] =
            [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
        assert!(!output.status.success(), "{out}{error}");
        assert_eq!(error.contains(WHY), fails_so, "{out}{error}");
    }
}
