//! Sweeps as a user has them: killed and gone on with, spread and merged, made small, drawn.

use crate::XK;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use xk_sweep::{Axis, Folder, Header, Plan, Row, Verdict};

/// More than any step needs, even on a busy machine.
const SWEEP_TIME_MAX: Duration = Duration::from_secs(300);

/// A client that asks over a link, and a server that may die.
const GRAPH: &str = r#"
host client {
    sim link=lan
    eth sim
    arp eth
    ip arp { address "10.0.0.1/24"; }
    udp ip
    probe udp name=ask to="port7@10.0.0.2" count=20 interval="10ms" timeout="500ms"
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
"#;

fn xk(at: &Path, words: &[&str]) -> Output {
    Command::new(XK).current_dir(at).args(words).output().expect("xk can be started")
}

fn said(output: &Output) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|octets| String::from_utf8_lossy(octets));
    format!("{out}{error}")
}

/// Returns the output of a command that ends with this code.
fn told(at: &Path, words: &[&str], code: i32) -> String {
    let output = xk(at, words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
    said(&output)
}

/// A folder with a graph in it.
fn folder(graph: &str) -> tempfile::TempDir {
    let at = tempfile::tempdir().expect("a folder");
    std::fs::write(at.path().join("graph.kdl"), graph).expect("a file");
    at
}

fn lines(at: &Path) -> usize {
    let text = std::fs::read_to_string(at.join("runs.jsonl")).unwrap_or_default();
    text.lines().count()
}

fn tables(at: &Path) -> [Vec<u8>; 2] {
    ["table.csv", "table.parquet"].map(|name| std::fs::read(at.join(name)).expect("a table"))
}

/// 2,000 runs in two processes, killed in the middle without a word, make the table of runs that
/// were left alone; so do parts that are merged.
#[test]
fn a_sweep_that_is_killed_goes_on_and_makes_the_same_table() {
    let folder = folder(GRAPH);
    let at = folder.path();
    let plain =
        ["sweep", "graph.kdl", "--seeds", "0..1000", "--set", "lan.loss=0%,5%", "--keep-going"];
    let with = |more: &[&'static str]| [&plain[..], more].concat();
    // A few probes lose a datagram for good.
    told(at, &with(&["--jobs", "1", "--out", "calm"]), 1);
    let mut killed = Command::new(XK)
        .current_dir(at)
        .args(with(&["--jobs", "2", "--out", "wild"]))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("xk can be started");
    let begun = Instant::now();
    while lines(&at.join("wild")) < 300 {
        assert!(begun.elapsed() < SWEEP_TIME_MAX, "no row comes");
        std::thread::sleep(Duration::from_millis(2));
    }
    // A worker of it, then the sweep itself.
    let workers = format!("/proc/{0}/task/{0}/children", killed.id());
    let workers = std::fs::read_to_string(workers).expect("the system tells of children");
    let worker = workers.split_ascii_whitespace().next().expect("a worker");
    let status =
        Command::new("kill").args(["-KILL", worker]).status().expect("kill can be started");
    assert!(status.success(), "{workers}");
    let then = lines(&at.join("wild")) + 50;
    while lines(&at.join("wild")) < then {
        assert!(begun.elapsed() < SWEEP_TIME_MAX, "no row comes");
        std::thread::sleep(Duration::from_millis(2));
    }
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let before = lines(&at.join("wild"));
    assert!((300..2000).contains(&before), "{before} rows when it was killed");
    let text = told(at, &with(&["--jobs", "2", "--out", "wild"]), 1);
    assert!(text.contains("of them done before") && !text.contains(" 0 of them"), "{text}");
    assert_eq!(lines(&at.join("wild")), 2000, "no run is there twice");
    assert!(tables(&at.join("calm")) == tables(&at.join("wild")));
    // As two machines.
    for (seeds, out) in [("0..300", "a"), ("300..1000", "b")] {
        let set = ["--set", "lan.loss=0%,5%", "--keep-going", "--seeds", seeds, "--out", out];
        told(at, &[&["sweep", "graph.kdl"][..], &set].concat(), 1);
    }
    told(at, &["sweep", "merge", "a", "b", "--out", "whole"], 1);
    assert!(tables(&at.join("calm")) == tables(&at.join("whole")));
    let text = told(at, &["sweep", "plot", "calm", "--x", "lan.loss", "--y", "client.rtt_p50"], 0);
    assert!(text.contains("calm/plot.svg"), "{text}");
    let text = told(at, &["sweep", "plot", "calm", "--x", "lan.los", "--y", "client.rtt_p50"], 2);
    assert!(text.contains("lan.loss"), "{text}");
}

/// Rows are of one plan, and of one program.
#[test]
fn rows_of_something_else_are_not_added_to() {
    let folder = folder(GRAPH);
    let at = folder.path();
    let run = |set: &str, code| {
        told(at, &["sweep", "graph.kdl", "--seeds", "0..5", "--set", set, "--out", "rows"], code)
    };
    run("lan.delay=1ms,2ms", 0);
    let text = run("lan.delay=1ms,3ms", 1);
    assert!(text.contains("rows: it has the runs of another plan"), "{text}");
    let header = at.join("rows/sweep.json");
    let other = std::fs::read_to_string(&header).expect("a header");
    let (before, rest) = other.split_once("\"binary_hash\": \"").expect("a program");
    std::fs::write(&header, format!("{before}\"binary_hash\": \"other{}", &rest[1..]))
        .expect("a file");
    let text = run("lan.delay=1ms,2ms", 1);
    assert!(text.contains("another program") && text.contains("--out"), "{text}");
}

#[test]
fn mistakes_of_a_plan_have_their_place_and_a_remedy() {
    let folder = folder(GRAPH);
    let at = folder.path();
    let plan = "sweep graph=\"graph.kdl\" {\n    seeds \"0..4\"\n    until \"5s\"\n    set \"lan.loss\" \"0%,5%\"\n    draw \"lan.delay\" from=\"1ms\" to=\"9ms\"\n}\nfaults { crash \"server\" every=\"100ms\" away=\"20ms\"; }\n";
    let write = |text: &str| std::fs::write(at.join("plan.kdl"), text).expect("a file");
    write(plan);
    let text = told(at, &["sweep", "plan.kdl", "--keep-going"], 0);
    assert!(
        text.contains("8 runs of 2 combinations") && text.contains("fault crash server: "),
        "{text}"
    );
    for (old, new, place, remedy) in [
        ("lan.loss", "lam.loss", "plan.kdl:4:5", "did you mean `lan`?"),
        ("lan.loss", "lan.los", "plan.kdl:4:5", "did you mean `loss`?"),
        ("0%,5%", "0%,5x", "plan.kdl:4:5", "a part like"),
        ("\"server\"", "\"serve\"", "plan.kdl:7:16", "did you mean `server`?"),
        ("every=\"100ms\" ", "", "plan.kdl:7:10", "`at=\"2s\"`"),
        ("until", "unti", "plan.kdl:3:5", "did you mean `until`?"),
        ("0..4", "4..0", "plan.kdl:2:5", "holds no seed"),
        ("graph.kdl", "grap.kdl", "grap.kdl", "sweep graph="),
        ("0%,5%", "0%,0%", "plan.kdl:4:5", "twice"),
        ("lan.delay\" from", "lan.loss\" from", "plan.kdl:5:5", "both set and drawn"),
        ("to=\"9ms\"", "to=\"9kB\"", "plan.kdl:5:5", "the units differ"),
    ] {
        write(&plan.replacen(old, new, 1));
        let output = xk(at, &["sweep", "plan.kdl", "--out", "wrong"]);
        let text = said(&output);
        assert!(!output.status.success() && !at.join("wrong").exists(), "{new}: {text}");
        assert!(text.contains(place) && text.contains(remedy), "{new}: {text}");
    }
    // What is typed has no place.
    write(plan);
    for (set, what, remedy) in [
        ("lan.loss=0%,5x", "--set `lan.loss=5x`: ", "expected a part like"),
        ("server.cuont=1", "--set `server.cuont=1`: ", "did you mean `count`?"),
        ("serve.count=1", "--set `serve.count=1`: ", "did you mean `server`?"),
    ] {
        let text = told(at, &["sweep", "plan.kdl", "--out", "wrong", "--set", set], 2);
        assert!(text.contains(what) && text.contains(remedy), "{set}: {text}");
        assert!(!text.contains("plan.kdl:") && !at.join("wrong").exists(), "{text}");
    }
}

/// Runs that do not end in time are told apart from those that fail, and faults that never happen
/// from a test.
#[test]
fn budgets_and_faults_that_never_happen_are_told_by_the_exit_code() {
    let folder = folder(GRAPH);
    let at = folder.path();
    let text =
        told(at, &["sweep", "graph.kdl", "--seeds", "0..3", "--until", "50ms", "--out", "late"], 3);
    assert!(text.contains("3 exhausted") && text.contains("client/ask"), "{text}");
    let never = format!(
        "{GRAPH}\nfaults {{ crash \"server\" at=\"1h\"; partition between=client at=\"55s\" for=\"1s\"; }}"
    );
    std::fs::write(at.join("never.kdl"), never).expect("a file");
    let text = told(at, &["sweep", "never.kdl", "--seeds", "0..3", "--until", "2s"], 1);
    assert!(text.contains("never happened in any run: crash server; partition client"), "{text}");
    let text = told(
        at,
        &["sweep", "graph.kdl", "--seeds", "0..3", "--set", "lan.loss=0%", "--out", "no"],
        0,
    );
    assert!(!text.contains("fault"), "{text}");
}

/// A failure among many hosts and faults is made small, and the line that is printed fails alike.
#[test]
fn a_failure_is_made_small_and_comes_again_by_the_line_that_is_printed() {
    // A probe that must have every answer fails once the server has been away.
    let calm = "host calm count=4 {\n    sim link=lan\n    eth sim\n    arp eth\n    ip arp { address \"10.0.0.{n+10}/24\"; }\n    icmp ip\n}\n";
    let faults = "faults {\n    crash \"server\" every=\"150ms\" away=\"40ms\"\n    link lan delay=\"3ms\" every=\"50ms\" for=\"20ms\"\n}\n";
    let graph =
        GRAPH.replace("udp ip\n    probe udp", "udp ip\n    icmp ip\n    tcp ip\n    probe tcp");
    let graph = graph.replace("udp ip\n    echo udp", "udp ip\n    tcp ip\n    echo tcp");
    let folder = folder(&format!("{graph}{calm}{faults}"));
    let small = is_made_small(folder.path(), "client/ask (the stream broke)");
    assert!(!small.contains("calm") && !small.contains("icmp"), "{small}");
    assert_eq!(small.matches("crash").count(), 1, "{small}");
    assert!(!small.contains("link \"lan\" delay"), "{small}");
}

/// Sweeps, has the failure that is found made small by the command that is printed, and runs what
/// is left by the line that is printed then: it fails alike. Returns what is left.
fn is_made_small(at: &Path, failure: &str) -> String {
    // By one process: which failure is found first is up to nothing but the seeds.
    let words = "sweep graph.kdl --seeds 0..200 --until 20s --out rows --jobs 1";
    let text = told(at, &words.split(' ').collect::<Vec<_>>(), 1);
    assert!(text.contains(&format!("failed: {failure}")), "{text}");
    let help =
        text.lines().find_map(|line| line.split_once("make one small: xk ")).expect("a remedy").1;
    let text = told(at, &help.split(' ').collect::<Vec<_>>(), 0);
    let again = text.lines().find_map(|line| line.strip_prefix("again: xk ")).expect("a command");
    let words: Vec<&str> = again.split(' ').collect();
    let text = told(at, &words, 1);
    assert!(text.contains(&format!("failed: {failure}")), "{text}");
    std::fs::read_to_string(at.join(words[1])).expect("the small graph")
}

/// A fault that is planted in TCP, which forgets an octet of some segments that go again, is found,
/// made small and replayed.
#[test]
#[cfg(debug_assertions)]
fn a_planted_fault_of_tcp_is_found_and_made_small() {
    let graph = GRAPH
        .replace("udp ip\n    probe udp", "udp ip\n    tcp ip planted=#true\n    probe tcp")
        .replace("udp ip\n    echo udp", "udp ip\n    tcp ip\n    echo tcp")
        .replace("count=20", "count=200 size=3000")
        .replace("delay=\"1ms\"", "delay=\"1ms\" loss=\"1%\" duplicate=\"1%\"");
    let others = "host other count=3 {\n    sim link=lan\n    eth sim\n    arp eth\n    ip arp { address \"10.0.0.{n+10}/24\"; }\n}\n";
    let folder = folder(&format!("{graph}{others}"));
    let at = folder.path();
    let small = is_made_small(at, "client/ask (answers were corrupt)");
    assert!(small.contains("planted=#true") && small.contains("loss"), "{small}");
    // Other hosts and other chances may stay: without them other frames are lost.
    assert!(!small.contains("udp ip") && !small.contains("200"), "{small}");
    // Without it nothing fails.
    std::fs::write(at.join("graph.kdl"), graph.replace(" planted=#true", "")).expect("a file");
    told(at, &["sweep", "graph.kdl", "--seeds", "0..20", "--out", "sound"], 0);
}

/// A disk that is full ends a sweep with its place; what had ended is there when it goes on.
#[test]
fn a_full_disk_loses_nothing_that_had_ended() {
    let folder = folder(GRAPH);
    let at = folder.path();
    let words = "sweep graph.kdl --seeds 0..200 --jobs 2 --out rows";
    // A file that may not grow is as a disk without room.
    let script = format!("trap '' XFSZ; ulimit -f 40; exec {XK} {words}");
    let output =
        Command::new("sh").current_dir(at).args(["-c", &script]).output().expect("a shell");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("rows/runs.jsonl") && text.contains("the same command goes on"),
        "{text}"
    );
    let before = lines(&at.join("rows"));
    assert!(before > 0, "{text}");
    let words: Vec<&str> = words.split(' ').collect();
    told(at, &words, 0);
    let rows = std::fs::read_to_string(at.join("rows/runs.jsonl")).expect("rows");
    let distinct: BTreeSet<&str> = rows.lines().collect();
    assert_eq!((rows.lines().count(), distinct.len()), (200, 200));
}

/// A line of docs/sweeps.md that has this word, with fewer seeds.
fn documented(word: &str) -> String {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sweeps.md");
    let docs = std::fs::read_to_string(docs).expect("the page on sweeps");
    let line = docs.lines().find(|line| line.starts_with("    ") && line.contains(word));
    line.expect("a line of the page").trim().replace("1000", "20").replace("0 99", "0 4")
}

/// Parts that a Slurm array or GNU parallel makes, by the lines that the documentation has, are the
/// table of the whole; they may be more than a process has files.
#[test]
fn parts_of_other_engines_make_the_same_table() {
    let folder = folder(GRAPH);
    let at = folder.path();
    std::fs::rename(at.join("graph.kdl"), at.join("plan.kdl")).expect("a file");
    let sh = |script: &str| {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", Path::new(XK).parent().expect("a folder").display());
        let mut command = Command::new("sh");
        command.current_dir(at).env("PATH", path).args(["-c", script]);
        let output = command.output().expect("a shell");
        assert!(output.status.success(), "{script}: {}", said(&output));
        said(&output)
    };
    let whole = ["sweep", "plan.kdl", "--seeds", "0..100", "--keep-going", "--out", "whole"];
    told(at, &whole, 0);
    let array = documented("SLURM_ARRAY_TASK_ID");
    sh(&format!("for SLURM_ARRAY_TASK_ID in 4 1 0 3 2; do {array}; done"));
    sh("ulimit -n 24; xk sweep merge part* --out array");
    assert!(tables(&at.join("whole")) == tables(&at.join("array")));
    let is_there = Command::new("parallel").arg("--version").output();
    if is_there.is_ok_and(|output| said(&output).contains("GNU parallel")) {
        sh("rm -r part*");
        sh(&format!("{}; xk sweep merge part* --out parallel", documented("parallel")));
        assert!(tables(&at.join("whole")) == tables(&at.join("parallel")));
    } else {
        println!("SKIPPED parts of GNU parallel: needs parallel (apt install parallel)");
    }
}

/// Folders of a test of programs are merged and drawn as others; its failures have the command that
/// does them again, for one that cannot be started alone is not made small.
#[test]
fn folders_of_a_test_of_programs_are_merged_and_drawn() {
    let at = tempfile::tempdir().expect("a folder");
    let at = at.path();
    let plan = |seeds| Plan {
        what: "a question".into(),
        options: Vec::new(),
        axes: vec![Axis::parse("loss=0,0.2").expect("an axis")],
        draws: Vec::new(),
        seeds,
    };
    for (name, seeds) in [("a", (0, 30)), ("b", (30, 50)), ("calm", (0, 50))] {
        let plan = plan(seeds);
        let header = Header::new(plan, "test".into());
        let mut folder = Folder::open(&at.join(name), header).expect("a folder");
        for number in 0..folder.header().plan.runs() {
            let job = folder.header().plan.job(number);
            let is_bad = name != "calm" && job.seed == 7;
            let verdict = if is_bad { Verdict::Failed } else { Verdict::Clean };
            let mut row = Row::silent(&job, verdict, if is_bad { "as it should" } else { "" });
            row.figures.insert("tries".into(), (job.seed % 4) as f64);
            row.replay =
                format!("XK_SET='loss={}' XK_SEED={} cargo test", job.value("loss"), job.seed);
            folder.add(&row).expect("a row");
        }
    }
    let text = told(at, &["sweep", "merge", "a", "b", "--out", "whole"], 1);
    let again = "again: XK_SET='loss=0.2' XK_SEED=7 cargo test";
    assert!(text.contains("98 clean, 0 exhausted, 2 failed") && text.contains(again), "{text}");
    assert!(!text.contains("shrink"), "{text}");
    // What is there may be added to.
    told(at, &["sweep", "merge", "a", "b", "--out", "a"], 1);
    assert!(tables(&at.join("whole")) == tables(&at.join("a")));
    told(at, &["sweep", "merge", "calm", "--out", "calm"], 0);
    for (y, code) in [("tries", 0), ("tires", 2)] {
        let text = told(at, &["sweep", "plot", "whole", "--x", "loss", "--y", y], code);
        assert!(text.contains(if code == 0 { "whole/plot.svg" } else { "there are: " }), "{text}");
    }
    let svg = std::fs::read_to_string(at.join("whole/plot.svg")).expect("a plot");
    assert!(svg.contains("medians of 50 runs"), "{svg}");
    let text = told(at, &["sweep", "shrink", "7", "--out", "whole"], 2);
    assert!(text.contains("`a question` is a test of programs"), "{text}");
    assert!(text.contains("XK_SET='loss=0' XK_SEED=7 cargo test"), "{text}");
}

/// A plan is checked, and its folder, without a run.
#[test]
fn a_plan_is_checked_without_a_run() {
    let folder = folder(GRAPH);
    let at = folder.path();
    let check = |set: &str, code| {
        let words = ["sweep", "graph.kdl", "--seeds", "3..9", "--out", "rows", "--check"];
        told(at, &[&words[..], &["--set", set]].concat(), code)
    };
    assert!(check("lan.loss=0%,1%", 0).contains("12 runs of 2 combinations"));
    assert_eq!(lines(&at.join("rows")), 0);
    assert!(!at.join("rows/table.csv").exists());
    assert!(check("lan.loss=0%,2%", 1).contains("another plan"));
    assert!(check("lan.los=0%", 2).contains("did you mean `loss`?"));
}
