//! Hosts cut into domains, run by threads and by processes.

use crate::{STEP_TIME_MAX, XK};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xk_testkit::netns::{Net, Running, Space};
use xk_testkit::{await_that, needs_root};

/// Time until a datagram is sent again.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// Address and port of the echo in the host of the graphs.
const ECHO: ([u8; 4], u16) = ([10, 9, 0, 2], 7);
const DISCARD: ([u8; 4], u16) = ([10, 9, 0, 2], 9);

/// The socket of the graphs' network I/O module, and that of a run of it.
const MODULE_AT: &str = "/run/xk-netio.sock";

fn module_at(space: &Space) -> String {
    format!("/run/{}.sock", space.name())
}

/// A graph of the repository, as a file for this namespace.
fn graph(space: &Space, name: &str) -> String {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs").join(name);
    let text = fs::read_to_string(text).unwrap().replace(MODULE_AT, &module_at(space));
    let path = std::env::temp_dir().join(format!("{}-{name}", space.name()));
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// A graph of the repository that runs in a namespace, with its control socket.
fn run(space: &Space, name: &str) -> (Running, String) {
    let control = std::env::temp_dir().join(format!("{}-{name}.sock", space.name()));
    let control = control.display().to_string();
    let graph = graph(space, name);
    let running = space.spawn(&[XK, "run", "--control", &control, &graph]).unwrap();
    running.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap();
    fs::remove_file(graph).unwrap();
    (running, control)
}

/// The processes that a process has started.
fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, signal).unwrap();
}

/// Has a datagram come back, sent again until it does.
fn echoes(space: &Space) {
    let came = space.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(TRY_EVERY)).unwrap();
        let begun = Instant::now();
        let mut back = [0; 8];
        while begun.elapsed() < STEP_TIME_MAX {
            // What is refused while a process is started again is an error here.
            let _ = socket.send_to(b"hello", SocketAddr::from(ECHO));
            if let Ok((octets, _)) = socket.recv_from(&mut back) {
                return back[..octets] == *b"hello";
            }
        }
        false
    });
    assert!(came.unwrap(), "no echo");
}

/// Opens a connection, sends and ends it.
fn takes_a_stream(space: &Space) {
    let ended = space.enter(|| {
        let begun = Instant::now();
        loop {
            match TcpStream::connect_timeout(&SocketAddr::from(DISCARD), STEP_TIME_MAX) {
                Ok(mut stream) => {
                    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
                    stream.write_all(&[7; 100_000]).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    return stream.read(&mut [0; 8]).unwrap();
                }
                Err(error) => assert!(begun.elapsed() < STEP_TIME_MAX, "{error}"),
            }
        }
    });
    assert_eq!(ended.unwrap(), 0, "it is closed in order");
}

fn look(space: &Space, control: &str, what: &[&str]) -> Value {
    let line = [&[XK], what, &["--json", "--control", control]].concat();
    serde_json::from_str(&space.exec(&line).unwrap()).unwrap()
}

fn names<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap()).collect()
}

#[test]
fn one_graph_runs_cut_in_every_way() {
    needs_root!("ip", "ping");
    let all = ["tap", "eth", "arp", "ip", "icmp", "udp", "tcp", "echo", "discard"];
    let mut with_module = Vec::from(all);
    with_module.insert(1, "netio");
    with_module.push("door of netio");
    for (name, processes) in [
        ("org-one.kdl", 0),
        ("org-server.kdl", 3),
        ("org-udp-server.kdl", 3),
        ("org-memory.kdl", 4),
        ("org-messages.kdl", 4),
        ("org-unix-server.kdl", 4),
        ("org-per-protocol.kdl", 6),
        ("org-netio.kdl", 4),
    ] {
        let net = Net::new(name).unwrap();
        let space = net.space().unwrap();
        let (running, control) = run(&space, name);
        space.exec(&["ping", "-c", "2", "-i", "0.05", "-W", "5", "10.9.0.2"]).unwrap();
        echoes(&space);
        takes_a_stream(&space);
        let own = children(running.id());
        assert_eq!(own.len(), processes, "{name}");
        for process in own {
            confined(process);
            is_named(process);
        }
        let dump = look(&space, &control, &["dump"]);
        let all = if name == "org-netio.kdl" { &with_module[..] } else { &all };
        assert_eq!(names(&dump["protocols"], "name"), all, "{name}: one graph, without proxies");
        let text = space.exec(&[XK, "dump", "--control", &control]).unwrap();
        let edge = text.lines().find(|line| line.starts_with("echo>udp"));
        assert_eq!(edge.is_some(), processes > 0, "{text}");
        if let Some(edge) = edge {
            let fields: Vec<&str> = edge.split_whitespace().collect();
            let lower = if name == "org-per-protocol.kdl" { "udp" } else { "server" };
            assert_eq!(fields[1..3], ["echod", lower], "{text}");
            assert!(fields[4] != "0" && fields[5] != "0", "it crossed both ways: {text}");
        }
        let trace = space.enter(|| {
            let trace = std::thread::spawn({
                let control = control.clone();
                move || {
                    let line = ["trace", "-n", "6", "--json", "--control", &control];
                    let said = Command::new(XK).args(line).output().unwrap();
                    serde_json::from_slice::<Value>(&said.stdout).unwrap()
                }
            });
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            while !trace.is_finished() {
                socket.send_to(b"hello", SocketAddr::from(ECHO)).unwrap();
                std::thread::sleep(TRY_EVERY);
            }
            trace.join().unwrap()
        });
        let trace = trace.unwrap();
        let crossings = trace["crossings"].as_array().unwrap();
        let is_cut = crossings.iter().any(|crossing| crossing["crossed_ns"].is_u64());
        assert_eq!(is_cut, processes > 0, "{name}: {trace}");
        signal(running.id(), Signal::INT);
        let status = running.wait(STEP_TIME_MAX).unwrap();
        assert!(status.success(), "{name}: {}", running.output());
        let module = module_at(&space);
        for file in [format!("{module}.lock"), module] {
            assert!(!Path::new(&file).exists(), "{name}: {file} is left behind");
        }
    }
}

/// No thread of the process has a right, or may ask the system for what its filter does not let
/// through.
fn confined(process: u32) {
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            // It has ended.
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(field("Uid:"), ["65534"; 4], "{status}");
        assert_eq!(field("CapPrm:"), ["0000000000000000"], "{status}");
        assert_eq!(field("CapEff:"), ["0000000000000000"], "{status}");
        assert_eq!(field("NoNewPrivs:"), ["1"], "{status}");
        assert_eq!(field("Seccomp:"), ["2"], "{status}");
    }
}

/// `ps` shows which domains the process has.
fn is_named(process: u32) {
    let read = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}")).unwrap();
    let line = read("cmdline");
    let called = line.split('\0').next().unwrap();
    let domains = called.strip_prefix("xk: neighbour/").expect(called);
    let shown = if called.len() > 15 { format!("xk: {domains}") } else { called.into() };
    let shown = shown.get(..15).unwrap_or(&shown);
    assert_eq!(read("comm").trim_end(), shown, "{called}");
}

#[test]
fn a_killed_process_is_started_again_and_none_is_left() {
    needs_root!("ip");
    // From the top down: an application, a transport, the network, and the device.
    dies_and_comes_back("org-per-protocol.kdl", &["echod", "udp", "ip", "eth"]);
    dies_and_comes_back("org-netio.kdl", &["echod", "server", "device"]);
}

/// A stream that has begun and still goes on, whatever has died meanwhile.
fn ends_in_order(mut stream: &TcpStream) {
    stream.write_all(&[7; 100_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "it is closed in order");
}

/// Kills the process of each of these domains, the lowest of the graph last, and then all. The
/// others go on, and with them the streams of those above the lowest.
fn dies_and_comes_back(graph: &str, domains: &[&str]) {
    let net = Net::new(graph).unwrap();
    let space = net.space().unwrap();
    let (running, _) = run(&space, graph);
    echoes(&space);
    let before = children(running.id());
    let said = |name: &str| {
        let line = format!(": {name}\n");
        let output = running.output();
        let line = output.lines().rfind(|l| format!("{l}\n").ends_with(&line)).unwrap().to_owned();
        let pid = line.split("process ").nth(1).unwrap();
        pid.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    for name in domains {
        let (killed, others) = (said(name), children(running.id()));
        let begins = || {
            let stream =
                TcpStream::connect_timeout(&SocketAddr::from(DISCARD), STEP_TIME_MAX).unwrap();
            stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
            stream
        };
        let is_lowest = *name == domains[domains.len() - 1];
        let stream = is_lowest.then(|| space.enter(begins).unwrap());
        signal(killed, Signal::KILL);
        await_that!(STEP_TIME_MAX, said(name) != killed, "{name}: {}", running.output());
        echoes(&space);
        takes_a_stream(&space);
        stream.iter().for_each(ends_in_order);
        let now = children(running.id());
        let stays = |process: &&u32| now.contains(process) != (**process == killed);
        assert_eq!(others.iter().filter(stays).count(), before.len(), "{}", running.output());
        assert_eq!(now.len(), before.len(), "{}", running.output());
    }
    let left = children(running.id());
    let again = left.iter().filter(|process| !before.contains(process)).count();
    assert_eq!(again, domains.len(), "those that had died were started again, each once");
    signal(running.id(), Signal::KILL);
    let begun = Instant::now();
    let is_left = |process: &u32| Path::new(&format!("/proc/{process}/exe")).exists();
    while left.iter().any(is_left) {
        assert!(begun.elapsed() < STEP_TIME_MAX, "a process stays behind");
        std::thread::sleep(TRY_EVERY / 10);
    }
}

/// A dump reports that a stopped domain does not answer, and shows the others; the end does not
/// wait for it.
#[test]
fn a_stopped_domain_hides_no_other() {
    needs_root!("ip");
    let name = "org-per-protocol.kdl";
    let net = Net::new(name).unwrap();
    let space = net.space().unwrap();
    let (running, control) = run(&space, name);
    let named = |name: &str| {
        let mut all = children(running.id()).into_iter();
        let is_it = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(&format!("xk: neighbour/{name}\0"))
        };
        all.find(is_it).unwrap()
    };
    let tcp = named("tcp");
    signal(tcp, Signal::STOP);
    for _ in 0..3 {
        let dump = look(&space, &control, &["dump"]);
        assert_eq!(dump["silent"][0], serde_json::json!({"domain": "tcp", "stopped": true}));
        let shown = names(&dump["protocols"], "name");
        assert!(["eth", "ip", "udp", "echo"].iter().all(|name| shown.contains(name)), "{dump}");
    }
    let told = space.exec(&[XK, "dump", "--control", &control]).unwrap();
    assert!(told.contains("domain tcp is stopped"), "{told}");
    echoes(&space);
    signal(tcp, Signal::CONT);
    await_that!(
        STEP_TIME_MAX,
        look(&space, &control, &["dump"])["silent"] == serde_json::json!([]),
        "it answers again"
    );
    signal(tcp, Signal::STOP);
    let is_stopped = || fs::read_to_string(format!("/proc/{tcp}/stat")).unwrap().contains(") T ");
    while !is_stopped() {
        std::thread::sleep(TRY_EVERY / 10);
    }
    let begun = Instant::now();
    signal(running.id(), Signal::INT);
    assert!(running.wait(STEP_TIME_MAX).unwrap().success(), "{}", running.output());
    println!("ended after {:?}", begun.elapsed());
    let said = running.output();
    assert!(said.contains("domain tcp is stopped") && said.contains("icmp"), "{said}");
    assert!(!Path::new(&format!("/proc/{tcp}")).exists());
}

/// A process that ends again and again is given up, and it is said when and why.
#[test]
fn the_end_of_a_host_whose_processes_end_too_often_is_explained() {
    needs_root!("ip");
    let net = Net::new("too often").unwrap();
    let space = net.space().unwrap();
    let graph = graph(&space, "org-server.kdl");
    let running = space.spawn(&[XK, "run", "--no-control", "--restarts", "1", &graph]).unwrap();
    running.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap();
    for count in 0..2 {
        await_that!(
            STEP_TIME_MAX,
            running.output().matches("started again: ").count() >= count,
            "{}",
            running.output()
        );
        signal(children(running.id())[0], Signal::KILL);
    }
    assert!(!running.wait(STEP_TIME_MAX).unwrap().success());
    let said = running.output();
    assert!(said.contains("ends the host: processes have ended 2 times within "), "{said}");
    assert!(said.contains("at most 1 are started again within 60 s"), "{said}");
    assert!(said.contains("help: ") && said.contains("--restarts N"), "{said}");
    fs::remove_file(graph).unwrap();
}

/// Runs a graph that finishes by itself, and returns its output.
fn ran(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("xk-{name}-{}.kdl", std::process::id()));
    fs::write(&path, text).unwrap();
    let ran = Command::new(XK).args(["run", "--no-control"]).arg(&path).output().unwrap();
    fs::remove_file(&path).unwrap();
    let [said, wrong] = [&ran.stdout, &ran.stderr].map(|octets| String::from_utf8_lossy(octets));
    assert!(ran.status.success(), "{name}: {said}{wrong}");
    format!("{said}{wrong}")
}

#[test]
fn threads_and_processes_finish_what_the_graph_asks_for() {
    for kind in ["thread", "process"] {
        let text = format!(
            r#"
host one {{
    loopback
    ip loopback {{ address "10.0.0.1/24"; }}
    domain transport {kind} core=0 {{ udp ip; }}
    domain top {kind} {{ echo udp port=7; probe udp to="port7@10.0.0.1" count=20 interval="1ms"; }}
}}
"#
        );
        let said = ran(kind, &text);
        assert!(said.contains("probe: ok, sent 20"), "{kind}: {said}");
    }
}

/// A probe begins once all domains have started: its first message, too, finds a server in a domain
/// that starts behind its own.
#[test]
fn first_calls_find_what_is_served_further_up() {
    for kind in ["thread", "process"] {
        let text = format!(
            r#"
host one {{
    loopback
    ip loopback {{ address "10.0.0.1/24"; }}
    icmp ip
    udp ip
    domain asks {kind} {{ probe udp to="port7@10.0.0.1" count=20 interval="1ms"; }}
    domain between {kind} {{ discard udp port=9; }}
    domain serves {kind} {{ echo udp port=7; }}
}}
"#
        );
        let said = ran(&format!("first-{kind}"), &text);
        let of = |figure: &str| said.contains(&format!("{figure} 20"));
        assert!(of("sent") && of("received"), "{kind}: {said}");
    }
}

/// A program attaches to a host that runs, whether its nodes lie in one process or in several.
#[test]
fn programs_attach_to_a_host_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    // As root, `xk run` becomes another user, which is to remove the socket at the end.
    // The servers' own, where no other user may write: else a program does not believe that
    // what listens there is theirs.
    let _ = std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let door = folder.path().join("users.sock");
    for (begin, end) in [("", ""), ("domain net {", "}")] {
        let text = format!(
            r#"host lab {{
                loopback
                {begin}
                ip loopback {{ address "10.0.0.1/24"; }}
                icmp ip
                udp ip
                {end}
                domain apps {kind} {{ echo udp port=7; }}
                domain users open path={door:?} {{ grant udp port="5000..5001"; }}
            }}"#,
            kind = if begin.is_empty() { "thread" } else { "" },
        );
        let alone = text.replace("domain apps thread { echo udp port=7; }", "echo udp port=7");
        let file = folder.path().join("lab.kdl");
        fs::write(&file, alone).unwrap();
        let mut host = Command::new(XK).args(["run", "--for", "60s"]).arg(&file).spawn().unwrap();
        let begun = Instant::now();
        let setup = xk_net::Setup::attached(&door, xk_catalog::PROTOCOLS);
        let stack = loop {
            match setup.here() {
                Ok(stack) => break stack,
                Err(error) => assert!(begun.elapsed() < STEP_TIME_MAX, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let socket = xk_net::UdpSocket::bind(&stack, "10.0.0.1:5000").unwrap();
        socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        let _ = socket.send_to(b"hello", "10.0.0.1:7").unwrap();
        let mut back = [0; 8];
        let (octets, _) = socket.recv_from(&mut back).unwrap();
        assert_eq!(back[..octets], *b"hello");
        drop((socket, stack));
        signal(host.id(), Signal::INT);
        assert!(host.wait().unwrap().success());
        assert!(!door.exists(), "nothing is left behind");
    }
}
