//! The command as a user has it: arguments in, text and exit codes out.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use xk_testkit::signals_unsafe::usual;

fn xk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xk")).args(arguments).output().expect("xk can be started")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The output of a command that must succeed.
fn good(arguments: &[&str]) -> String {
    let output = xk(arguments);
    let told = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
    text(&output.stdout)
}

/// Error output of a command that must fail with this code.
fn bad(arguments: &[&str], code: i32) -> String {
    let output = xk(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    text(&output.stderr)
}

fn graph(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs").join(name);
    path.display().to_string()
}

/// A folder of the test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xk-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        // If root runs this, `xk run` becomes another user, which removes its socket.
        use std::os::unix::fs::PermissionsExt;
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, all).expect("a mode");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn good_graphs_are_counted() {
    let internet = graph("internet.kdl");
    let told = good(&["check", &internet]);
    assert!(told.contains("internet.kdl: ok, 5 hosts, 33 protocols"), "{told}");
}

#[test]
fn all_mistakes_of_all_files_are_told() {
    let folder = Folder::new("check");
    let path = folder.path("broken.kdl");
    std::fs::write(&path, "host one {\n    loopbak\n    udp ip\n}\n").unwrap();
    let told = bad(&["check", &path, &graph("loopback.kdl"), "no-such-file"], 1);
    for part in
        ["broken.kdl:2:5", "did you mean `loopback`?", "broken.kdl:3:9", "cannot read no-such-file"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn nonsense_is_a_mistake_of_usage() {
    bad(&["frobnicate"], 2);
    let told = bad(&["help", "upd"], 2);
    assert!(told.contains("did you mean `udp`?"), "{told}");
    let told = bad(&["run", &graph("internet.kdl")], 2);
    assert!(told.contains("--host") && told.contains("alice"), "{told}");
    let told = bad(&["run", &graph("internet.kdl"), "--host", "alic"], 2);
    assert!(told.contains("did you mean `alice`?"), "{told}");
}

#[test]
fn a_port_that_is_not_named_is_asked_for() {
    let told = bad(&["udp", "send", "--graph", &graph("loopback.kdl"), "--to", "10.0.0.1"], 2);
    assert!(told.contains("names no port") && told.contains("port7@10.0.0.1"), "{told}");
}

/// A full disk makes a command fail by its exit code.
#[test]
fn output_that_is_lost_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    let output = command.arg("protocols").stdout(full).output().expect("xk can be started");
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("the standard output did not take all"), "{told}");
}

/// A layer that reports nothing passes the question down; the answer is not its own.
#[test]
fn a_report_is_shown_once() {
    let told = good(&["sim", &graph("frameworks.kdl")]);
    let lent = told.lines().filter(|line| line.contains(": ok, down")).collect::<Vec<_>>();
    assert!(!lent.is_empty() && lent.iter().all(|line| line.contains('/')), "{told}");
}

#[test]
fn a_simulated_wire_does_not_run_for_real() {
    let told = bad(&["run", &graph("internet.kdl"), "--host", "alice"], 1);
    assert!(told.contains("xk sim") && told.contains("--wire"), "{told}");
}

#[test]
fn a_host_of_a_simulation_runs_on_the_wire_that_is_named() {
    let sockets = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let [server, client] = sockets.map(|socket| socket.local_addr().expect("an address"));
    let wire = |own, peer| format!("lan=host-eth local=\"{own}\" peer=\"{peer}\"");
    let run = |name: &str, host: &str, wire: String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        command.args(["run", &graph(name), "--no-control", "--host", host, "--wire", &wire]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().expect("xk can be started")
    };
    // ATP of BSD on DDP of STREAMS there, and the reverse here.
    let mut serving = run("apple-bsdstr.kdl", "server", wire(server, client));
    let mut calling = run("apple-strbsd.kdl", "client", wire(client, server));
    let mut told = String::new();
    let output = calling.stdout.take().expect("its output");
    // It ends once it has its replies, and reports then.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        match calling.try_wait().expect("a child") {
            Some(_) => break,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    let _ = calling.kill();
    let _ = calling.wait();
    std::io::Read::read_to_string(&mut { output }, &mut told).expect("text");
    let _ = serving.kill();
    let _ = serving.wait();
    assert!(told.contains("calls 20, replies 20, octets 900, wrong 0"), "{told}");
}

#[test]
fn conversations_are_drawn() {
    let folder = Folder::new("context");
    let svg = folder.path("psync.svg");
    good(&["sim", &graph("psync.kdl"), "--until", "200ms", "--context", &svg]);
    let drawn = std::fs::read_to_string(svg).unwrap();
    let circles = drawn.matches("<circle").count();
    assert!(circles > 10 && drawn.matches("<line").count() > circles, "{drawn}");
    for host in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert!(drawn.contains(host), "{host}: {drawn}");
    }
    let told = bad(&["sim", &graph("internet.kdl"), "--until", "1ms", "--context", "-"], 1);
    assert!(told.contains("no conversation of many"), "{told}");
}

#[test]
fn graphs_are_drawn() {
    let told = good(&["draw", &graph("internet.kdl"), "--host", "router"]);
    assert!(told.contains("router") && !told.contains("alice"), "{told}");
    let folder = Folder::new("draw");
    let svg = folder.path("internet.svg");
    good(&["draw", &graph("internet.kdl"), "--svg", &svg]);
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.starts_with("<svg") || drawn.starts_with("<?xml"), "{drawn}");
}

#[test]
fn manuals_are_complete() {
    for kind in ["udp", "tap", "packet", "ip"] {
        let told = good(&["help", kind]);
        for part in ["SYNOPSIS", "BEHAVIOUR", "EXAMPLE", "PARAMETERS", "CONTROL"] {
            assert!(told.contains(part), "{kind}: {part}: {told}");
        }
        assert!(!told.contains("```") && !told.contains("[`"), "{kind}: {told}");
    }
    assert!(good(&["help"]).contains("Usage: xk"));
    assert!(good(&["help", "sim"]).contains("sim link=NAME"));
    // Each question once, with the kinds that answer it.
    let told = good(&["help", "questions"]);
    let of = |name: &str| told.lines().filter(|line| line.starts_with(&format!("{name} "))).count();
    assert_eq!((of("max-packet"), of("describe"), of("deadline-tally")), (1, 1, 1), "{told}");
    assert!(good(&["help", "capture"]).contains("Usage: xk capture"));
    let told = good(&["protocols"]);
    for kind in ["eth", "arp", "ip", "udp", "icmp", "tap", "packet"] {
        assert!(told.lines().any(|line| line.starts_with(kind)), "{told}");
    }
}

#[test]
fn one_seed_gives_one_run() {
    let folder = Folder::new("sim");
    let run = |seed: &str, to: &str| {
        let path = folder.path(to);
        let told = good(&["sim", &graph("internet.kdl"), "--seed", seed, "--pcap", &path]);
        let octets = ["lan1", "lan2"]
            .map(|link| std::fs::read(format!("{path}/{link}.pcapng")).expect("a capture"));
        (told.replace(&path, "FOLDER"), octets)
    };
    let (first, second, other) = (run("7", "a"), run("7", "b"), run("8", "c"));
    assert!(first.0.contains("seed 7") && first.0.contains("alice/ping: ok"), "{}", first.0);
    assert!(first.1.iter().all(|octets| octets.len() > 1000));
    assert!(first == second, "{}\n{}", first.0, second.0);
    assert!(first.1 != other.1);
}

#[test]
fn a_simulation_ends_in_time_and_tells_failures() {
    let told = good(&["sim", &graph("internet.kdl"), "--until", "300ms"]);
    assert!(told.contains("ended at 0.300000s") && told.contains("not finished"), "{told}");
    let folder = Folder::new("failing");
    let path = folder.path("lonely.kdl");
    let lonely = "link lan\nhost a {\n    sim link=lan\n    eth sim\n    arp eth\n    ip arp { address \"10.0.0.1/24\"; }\n    \
                  icmp ip\n    probe icmp to=\"10.0.0.2\" count=2 interval=\"10ms\"\n}\n";
    std::fs::write(&path, lonely).unwrap();
    let told = bad(&["sim", &path], 1);
    assert!(told.contains("failed: a/probe") && told.contains("--seed 1"), "{told}");
}

#[test]
fn hosts_and_domains_crash_in_a_simulation() {
    let run = |args: &[&str], is_ok: bool| {
        let output = xk(&[&["sim", &graph("crash.kdl")], args].concat());
        assert_eq!(output.status.success(), is_ok, "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let calm = run(&[], true);
    assert!(calm.contains("stream: ok, sent 200, received 200") && !calm.contains("crashed"));
    let told = run(&["--crash", "server/net@500ms+100ms"], false);
    for part in ["0.500000s server/net crashed", "0.600000s server/net was started again"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.contains("client/datagrams: ok") && told.contains("stream reset 1"), "{told}");
    // The host with all its parts, for good; and the client, which starts again.
    let told = run(&["--crash", "server@1s", "--crash", "client@300ms+1s"], false);
    for part in ["1.000000s server/app crashed", "1.300000s client was started again"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let drawn = run(&["--crash-every", "200ms", "--seed", "7"], false);
    assert!(drawn.contains("was started again"), "{drawn}");
    let again = run(&["--crash-every", "200ms", "--seed", "7"], false);
    assert_eq!(drawn, again, "one seed, one outcome");
    let told = bad(&["sim", &graph("crash.kdl"), "--crash", "server/disk@1s"], 1);
    assert!(told.contains("no host or domain `server/disk`"), "{told}");
    for wrong in ["server", "server@soon", "server@1s+x"] {
        assert!(bad(&["sim", &graph("crash.kdl"), "--crash", wrong], 2).contains("--crash"));
    }
}

#[test]
fn the_demonstration_works() {
    let folder = Folder::new("demo");
    let told = good(&["demo", "--out", &folder.path("out")]);
    for part in ["alice", "alice/ping: ok", "bob/client: ok", "internet.svg", "unharmed"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    for file in ["internet.svg", "lan1.pcapng", "lan2.pcapng"] {
        assert!(folder.0.join("out").join(file).is_file(), "{file}");
    }
}

/// A running graph, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the loopback graph with its socket at `control`.
fn run_loopback(control: &str, limit: &str) -> Running {
    let file = graph("loopback.kdl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    let child = usual(&mut command)
        .args(["run", &file, "--for", limit, "--control", control])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("xk can be started");
    xk_testkit::await_that!(
        Duration::from_secs(20),
        std::os::unix::net::UnixStream::connect(control).is_ok(),
        "no socket"
    );
    Running(child)
}

#[test]
fn a_run_can_be_looked_into() {
    let folder = Folder::new("control");
    let control = folder.path("xk.sock");
    let mut running = run_loopback(&control, "20s");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&control).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let told = good(&["dump", "--control", &control]);
    for part in ["host alone", "loopback", "probe", "pool:", "turns"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let json = good(&["dump", "--json", "--control", &control]);
    let dump: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(dump["protocols"].as_array().map(Vec::len), Some(6));

    let told = good(&["trace", "-n", "4", "--control", &control]);
    assert!(told.contains("udp.push") && told.contains("echo.demux"), "{told}");

    let file = folder.path("edge.pcapng");
    good(&["capture", "udp>ip", &file, "--for", "500ms", "--control", &control]);
    let captured = std::fs::read(&file).unwrap();
    assert!(captured.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) && captured.len() > 300);

    let told = bad(&["capture", "udp>loopbak", &file, "--control", &control], 1);
    assert!(told.contains("there are: loopback, ip"), "{told}");
    let told = bad(&["capture", "probe>loopback", &file, "--control", &control], 1);
    assert!(told.contains("stand"), "{told}");
    let told = bad(&["capture", "ip>udp", &file, "--control", &control], 1);
    assert!(told.contains("that edge is udp>ip"), "{told}");

    // A process that is stopped answers nothing; what asks says so.
    signal("STOP", &running.0);
    let told = bad(&["dump", "--control", &control], 1);
    assert!(told.contains("no answer within") && told.contains("kill -CONT"), "{told}");
    signal("CONT", &running.0);
    assert_ended_by("INT", &mut running.0, &control);
}

fn signal(name: &str, run: &Child) {
    let mut kill = Command::new("kill");
    let status = kill.args(["-s", name, &run.id().to_string()]).status();
    assert!(status.unwrap().success());
}

/// Checks that a run ends by this signal with its counters, and removes its socket.
fn assert_ended_by(name: &str, run: &mut Child, control: &str) {
    signal(name, run);
    let mut told = String::new();
    let mut out = run.stdout.take().expect("what it prints");
    std::io::Read::read_to_string(&mut out, &mut told).unwrap();
    let status = run.wait().unwrap();
    assert!(status.success(), "{name}: {status:?}");
    assert!(told.contains("demuxed"), "{name}: {told}");
    assert!(!Path::new(control).exists(), "{name} leaves the socket");
}

/// A new run takes over the socket that a killed one left, and removes those of others.
#[test]
fn a_socket_that_was_left_is_no_hindrance() {
    let folder = Folder::new("left");
    let control = folder.path("xk.sock");
    let mut killed = run_loopback(&control, "60s");
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    assert!(Path::new(&control).exists(), "a kill leaves the socket");
    let mut next = run_loopback(&control, "60s");
    assert!(good(&["dump", "--control", &control]).contains("host alone"));
    assert_ended_by("INT", &mut next.0, &control);
    let said = std::io::read_to_string(next.0.stderr.take().expect("what it complains of"));
    assert_eq!(said.unwrap(), "");

    // In a folder where each is called after its process.
    let own = folder.path("xk-4194305.sock");
    drop(std::os::unix::net::UnixListener::bind(&own).unwrap());
    let file = graph("loopback.kdl");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    usual(&mut command).env("XDG_RUNTIME_DIR", folder.path(""));
    let output = command.args(["run", &file, "--for", "10ms"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || !Path::new(&own).exists(), "nothing listens there");
}

/// A trace says what was dropped, by what and why.
#[test]
fn a_trace_shows_drops() {
    let folder = Folder::new("drops");
    let (control, file) = (folder.path("xk.sock"), folder.path("drops.kdl"));
    let text = "host alone { loopback; ip loopback { address \"10.0.0.1/24\"; }; udp ip\n\
                probe udp to=\"port9@10.0.0.1\" count=0 interval=\"20ms\"; }\n";
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    let run = usual(&mut command).args(["run", &file, "--for", "20s", "--control", &control]);
    let _running = Running(run.stdout(Stdio::null()).spawn().expect("xk can be started"));
    xk_testkit::await_that!(
        Duration::from_secs(20),
        std::os::unix::net::UnixStream::connect(&control).is_ok(),
        "no socket"
    );
    let told = good(&["trace", "-n", "8", "--control", &control]);
    assert!(told.contains("x udp drops 1: no port"), "{told}");
    let json = good(&["trace", "-n", "8", "--json", "--control", &control]);
    let trace: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let crossings = trace["crossings"].as_array().expect("crossings");
    for crossing in crossings {
        let is_refused = crossing["upper"] == "udp" && crossing["operation"] == "demux";
        let drops = crossing["drops"].as_array().expect("a list");
        assert_eq!(drops.len(), usize::from(is_refused), "{crossing}");
    }
    assert!(crossings.iter().any(|crossing| crossing["drops"][0]["reason"] == "no port"));
}

#[test]
fn a_terminal_that_goes_ends_a_run_as_a_person_does() {
    for signal in ["HUP", "TERM", "QUIT"] {
        let folder = Folder::new(signal);
        let control = folder.path("xk.sock");
        let mut running = run_loopback(&control, "60s");
        assert_ended_by(signal, &mut running.0, &control);
    }
}

#[test]
fn pages_and_completions_are_written() {
    let folder = Folder::new("generate");
    good(&["generate", &folder.path("")]);
    for (file, part) in [
        ("share/man/man1/xk.1", "xk"),
        ("share/man/man1/xk-sim.1", "seed"),
        ("share/man/man1/xk-exec.1", "verbose"),
        ("share/bash-completion/completions/xk", "--seed"),
        ("share/zsh/site-functions/_xk", "#compdef xk"),
        ("share/fish/vendor_completions.d/xk.fish", "sim"),
    ] {
        let text = std::fs::read_to_string(folder.path(file)).expect(file);
        assert!(text.contains(part), "{file}");
    }
}

#[test]
fn help_knows_the_language_and_both_meanings_of_a_word() {
    let told = good(&["help", "graph"]);
    for part in ["host NAME", "link NAME", "number LOWER=N", "{n}"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    for (topic, parts) in [
        ("host", ["KIND [LOWER ...]", "`count=N` makes N hosts"]),
        ("link", ["link NAME", "delay: time"]),
        ("domain", ["DOMAINS", "grant NODE"]),
        ("subsystem", ["SUBSYSTEMS", "adapter"]),
    ] {
        let told = good(&["help", topic]);
        assert!(parts.iter().all(|part| told.contains(part)), "{topic}: {told}");
        assert!(told.ends_with("is the whole page.\n"), "{told}");
    }
    assert!(good(&["help", "sim"]).contains("xk sim --help"));
    assert!(good(&["sim", "--help"]).contains("xk help sim"));
    assert!(good(&["help"]).contains("xk help graph"));
    assert!(good(&["help", "run"]).contains("--host"));
    assert_eq!(good(&["-V"]), good(&["--version"]));
}

#[test]
fn warnings_are_left_out_on_demand() {
    let folder = Folder::new("quiet");
    let path = folder.path("idle.kdl");
    std::fs::write(&path, "host one {\n    loopback\n}\n").unwrap();
    let run = ["run", &path, "--for", "1ms", "--no-control"];
    let told = |flag: &[&str]| {
        let output = xk(&[&run[..], flag].concat());
        assert!(output.status.success());
        text(&output.stderr)
    };
    assert!(told(&[]).contains("nothing stands on `loopback`"));
    assert_eq!(told(&["-q"]), "");
    assert!(told(&["-v"]).contains("\nxk: user "));
    bad(&[&run[..], &["-q", "-v"]].concat(), 2);
}

#[test]
fn a_wire_is_listed_with_its_address() {
    let folder = Folder::new("listed");
    let path = folder.path("server.kdl");
    let graph = "host one {\n    host-udp local=\"127.0.0.1\"\n    echo host-udp port=40007\n}\n";
    std::fs::write(&path, graph).unwrap();
    let told = good(&["run", &path, "--for", "1ms", "--no-control", "-v"]);
    assert!(told.contains("wire host-udp 127.0.0.1\n"), "{told}");
}

#[test]
fn a_run_ends_in_time_and_counts() {
    let folder = Folder::new("run");
    let control = folder.path("xk.sock");
    let told = good(&["run", &graph("loopback.kdl"), "--for", "1s", "--control", &control]);
    assert!(told.contains("host alone") && told.contains("demuxed"), "{told}");
    assert!(told.contains("echo: ok"), "{told}");
}

/// The benchmarks are a program beside this one, which gets the words as they are.
#[test]
fn bench_starts_its_neighbour() {
    let folder = Folder::new("bench");
    let own = folder.path("xk");
    std::fs::copy(env!("CARGO_BIN_EXE_xk"), &own).expect("a copy");
    let bench = |words: &[&str]| Command::new(&own).arg("bench").args(words).output().unwrap();
    let output = bench(&["list"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("cargo build --release -p xk-bench"), "{told}");
    let neighbour = folder.path("xk-bench");
    std::fs::write(&neighbour, "#!/bin/sh\necho \"$@\"\nexit 2\n").expect("a program");
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&neighbour, all).expect("a mode");
    for words in [&["all", "--runs", "3", "--no-instructions"][..], &["--help"], &["list"]] {
        let output = bench(words);
        assert_eq!(text(&output.stdout), words.join(" ") + "\n");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn nobody_listens_where_nothing_runs() {
    let folder = Folder::new("nobody");
    let told = bad(&["dump", "--control", &folder.path("xk.sock")], 1);
    assert!(told.contains("xk run"), "{told}");
}

#[test]
fn a_host_pings_itself_and_sends_datagrams() {
    let file = graph("loopback.kdl");
    let told = good(&["ping", "--graph", &file, "-c", "3", "-i", "10ms", "127.0.0.1"]);
    assert!(told.contains("3 sent, 3 received, 0 % lost"), "{told}");
    let to = "port7@127.0.0.1";
    let told = good(&["udp", "send", "--graph", &file, "--to", to, "--wait", "5s", "hello"]);
    assert!(told.contains("5 octets from port7@127.0.0.1: hello"), "{told}");
    let told =
        text(&xk(&["udp", "send", "--graph", &file, "--to", "port99@127.0.0.1", "x"]).stdout);
    assert!(told.contains("port unreachable"), "{told}");
}

/// A socket that hears everything and says nothing, and a graph of a host on it.
fn deaf(folder: &Folder, lines: &str) -> (std::net::UdpSocket, String) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = socket.local_addr().unwrap();
    let path = folder.path("deaf.kdl");
    let text = format!(
        "host a {{\nhost-eth local=\"127.0.0.1:0\" peer=\"{peer}\"\n{lines}\nicmp ip\n}}\n"
    );
    std::fs::write(&path, text).unwrap();
    (socket, path)
}

#[test]
fn a_ping_says_why_nothing_came_back() {
    let folder = Folder::new("why");
    let ping = |path: &str, to: &str, wait: &str| {
        let wait = ["-c", "1", "-W", wait];
        let output = xk(&[&["ping", "--graph", path], &wait[..], &[to]].concat());
        assert_eq!(output.status.code(), Some(1));
        text(&output.stdout) + &text(&output.stderr)
    };
    let ether = "eth host-eth\narp eth retries=0\nip arp { address \"10.0.0.1/24\"; route \"10.9.0.0/16\" via=\"10.0.0.254\"; }";
    let (_socket, path) = deaf(&folder, ether);
    let told = ping(&path, "10.0.0.2", "2s");
    assert!(told.contains("why: 10.0.0.2 does not answer ARP on `arp`"), "{told}");
    let told = ping(&path, "10.9.0.2", "2s");
    assert!(told.contains("why: the router towards 10.9.0.2 does not answer ARP"), "{told}");
    assert!(ping(&path, "10.8.0.2", "2s").contains("no route"));
    let (_socket, path) = deaf(&folder, "ip host-eth { address \"10.0.0.1/24\"; }");
    let told = ping(&path, "10.0.0.3", "300ms");
    assert!(told.contains("why: time ran out"), "{told}");
}
