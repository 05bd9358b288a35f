//! `xk call` and `xk rpcgen` as a user has them.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A host that calls its own procedures.
const GRAPH: &str = r#"host alone {
    loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip
    reqrep udp; sunselect reqrep; sunprog sunselect
    procedures sunprog at="version1@program536870913@port2049"
}"#;
const TO: [&str; 2] = ["--to", "port2049@10.0.0.1"];

fn xk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xk")).args(arguments).output().expect("xk can be started")
}

fn file(name: &str) -> String {
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs");
    graphs.join(name).display().to_string()
}

/// The nodes of the host, for `--over`.
fn nodes() -> &'static str {
    let body = GRAPH.split_once('{').map_or("", |(_, body)| body);
    body.trim_end().trim_end_matches('}')
}

/// Makes a call, and returns its output, its error output and its exit code.
fn call(words: &[&str], options: &[&str]) -> (String, String, Option<i32>) {
    let mut all = vec!["call", "--over", nodes()];
    all.extend(words);
    all.extend(TO);
    all.extend(options);
    let output = xk(&all);
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let (out, told) = (text(&output.stdout), text(&output.stderr));
    (out, told, output.status.code())
}

fn by_file(words: &[&str], options: &[&str]) -> (String, String, Option<i32>) {
    let x = file("procedures.x");
    let options: Vec<&str> = ["--x", &x].iter().chain(options).copied().collect();
    call(words, &options)
}

#[test]
fn calls_by_name_with_json() {
    let good = |words: &[&str]| {
        let (out, told, code) = by_file(words, &[]);
        assert_eq!(code, Some(0), "{words:?}: {told}");
        out
    };
    assert_eq!(good(&["null"]), "null\n");
    assert_eq!(good(&["PROC_ECHO", "\"00ffa5\""]), "\"00ffa5\"\n");
    assert_eq!(good(&["echo", r#"{"text": "hi"}"#]), "{\"text\": \"hi\"}\n");
    assert_eq!(good(&["echo", "\"686900\""]), "\"686900\"\n", "no text");
    assert_eq!(good(&["PROCEDURES", "source", "3"]), "\"000102\"\n");
    assert_eq!(good(&["procedures", "null"]), "null\n");
}

#[test]
fn calls_by_number_with_digits() {
    let words = ["536870913", "1", "0000000161000000"];
    let (out, told, code) = call(&words, &["--raw", "--repeat", "3"]);
    assert_eq!((out.as_str(), code), ("0000000161000000\n", Some(0)), "{told}");
    assert!(told.starts_with("3 calls: min "), "{told}");
}

/// `xk run` in the background; it is ended when this is dropped.
struct Running(Child);

impl Running {
    fn start(graph: &Path) -> Self {
        let graph = graph.display().to_string();
        Self::start_with(&["run", &graph, "--no-control", "--for", "60s"])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_xk"))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("xk can be started"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls until the server has begun.
fn patiently(arguments: &[&str]) -> Output {
    let began = Instant::now();
    loop {
        let output = xk(arguments);
        if output.status.success() || began.elapsed() > Duration::from_secs(20) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A graph of the repository with something of its own to a test, `of`: a port or a path.
fn own(of: &str, name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let mut text = std::fs::read_to_string(file(name)).expect("a graph");
    for (from, to) in changes {
        assert!(text.contains(from), "{text}");
        text = text.replace(from, to);
    }
    let path = std::env::temp_dir().join(format!("xk-call-{}-{of}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("written");
    path
}

/// Calls a server in another process, all ways; then there is none.
fn calls_another(server: &Path, ways: &[&[&str]]) {
    let running = Running::start(server);
    let x = file("procedures.x");
    for way in ways {
        let all = |words: &[&str]| -> Vec<String> {
            let words = [*way, words, &["--x", &x]].concat();
            words.into_iter().map(str::to_owned).collect()
        };
        for (words, reply) in [
            (&["null"][..], "null\n"),
            (&["echo", r#"{"text": "hello"}"#], "{\"text\": \"hello\"}\n"),
            (&["source", "3", "--repeat", "5"], "\"000102\"\n"),
        ] {
            let words = all(words);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = patiently(&words);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{words:?}: {told}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), reply);
        }
        let words = all(&["relay", "\"00\""]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(xk(&words).status.code(), Some(3), "{words:?}");
    }
    drop(running);
    let dead: Vec<&str> = [ways[0], &["null", "--x", &x, "--deadline", "200ms"]].concat();
    let output = xk(&dead);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert_eq!(told.matches("is the server running").count(), 1, "{told}");
    let _ = std::fs::remove_file(server);
}

#[test]
fn calls_a_server_of_onc_rpc_in_another_process() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("its number").port();
    drop(socket);
    let server = own("one", "rpc-server.kdl", &[("port2049", &format!("port{port}"))]);
    let (to, client) = (format!("port{port}@127.0.0.1"), file("rpc-client.kdl"));
    let by_graph = ["call", &client, "--to", &to];
    let by_name = ["call", "--over", "sun", "--to", &to];
    calls_another(&server, &[&by_graph, &by_name]);
    // A port where nothing listens ends it at once.
    let x = file("procedures.x");
    let begun = Instant::now();
    let output = xk(&[&by_name[..], &["null", "--x", &x, "--deadline", "60s"]].concat());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(begun.elapsed() < Duration::from_secs(20), "{told}");
    assert!(told.contains("nobody takes calls there"), "{told}");
    assert_eq!(told.matches("is the server running").count(), 1, "{told}");
}

#[test]
fn calls_all_hosts_of_a_network() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("its number").port();
    drop(socket);
    // A socket at one address of the system does not get what is sent to all.
    let port_at_all = format!("port{port}");
    let changes = [("port2049", &*port_at_all), (" local=\"127.0.0.1\"", "")];
    let server = own("all", "rpc-server.kdl", &changes);
    let (x, to) = (file("procedures.x"), format!("port{port}@127.255.255.255"));
    let running = Running::start(&server);
    let all = &["call", "--over", "sun", "--broadcast", "--to"][..];
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let line =
        |reply: &str| format!("{{\"host\":\"127.0.0.1\",\"port\":{port},\"reply\":{reply}}}\n");
    let echo = ["echo", "\"00ff\"", "--x", &x, "--for", "300ms"];
    let echoed = patiently(&[all, &[&to], &echo].concat());
    assert_eq!(said(&echoed), line("\"00ff\""));
    let null = ["536870913", "0", "--raw", "--for", "100ms"];
    let null = patiently(&[all, &[&to], &null].concat());
    assert_eq!(said(&null), line("\"\""));
    // Servers do not tell a broadcast what they refuse.
    let none = ["536870913", "77", "--raw", "--for", "100ms"];
    let none = xk(&[all, &[&to], &none].concat());
    let told = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(none.status.code(), Some(4), "{told}");
    assert!(told.contains("no host replied"), "{told}");
    drop(running);
    let _ = std::fs::remove_file(server);
    let one = xk(&[all, &["port9@127.0.0.1", "null", "--x", &x]].concat());
    let told = String::from_utf8_lossy(&one.stderr).into_owned();
    assert_eq!(one.status.code(), Some(1), "{told}");
    assert!(told.contains("only of a broadcast or a group"), "{told}");
}

#[test]
fn calls_a_server_through_shared_memory() {
    let socket = std::env::temp_dir().join(format!("xk-call-{}.sock", std::process::id()));
    let from = "xk-shm-rpc.sock";
    let to = socket.display().to_string();
    let server = own("shm", "rpc-shm-a.kdl", &[(from, &to)]);
    let client = own("shm", "rpc-shm-b.kdl", &[(from, &to)]);
    let graph = client.display().to_string();
    calls_another(&server, &[&["call", &graph]]);
    let _ = std::fs::remove_file(client);
    let _ = std::fs::remove_file(socket);
}

/// The lines of a chapter's fenced blocks of this kind.
fn blocks(chapter: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    let behind = chapter.split(&fence).skip(1);
    let bodies = behind.filter_map(|rest| rest.split_once("\n```"));
    let lines = bodies.flat_map(|(body, _)| body.lines());
    lines.map(str::to_owned).collect()
}

#[test]
fn the_chapter_on_calls_is_typed_as_it_stands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let chapter = std::fs::read_to_string(root.join("docs/guide/10-calls.md")).expect("a chapter");
    // Not in a folder of this user's: the server runs as another.
    let temporary = |what: &str| {
        let name = format!("xk-chapter-{}-{what}", std::process::id());
        std::env::temp_dir().join(name).display().to_string()
    };
    let (socket, control) = (temporary("shm"), temporary("control"));
    let server = own("deadline", "rpc-deadline-server.kdl", &[("xk-deadline.sock", &socket)]);
    let graph = server.display().to_string();
    let running = Running::start_with(&["run", &graph, "--control", &control, "--for", "60s"]);
    let typed = |line: &str, before: &str| {
        let line = line.replace("xk-deadline.sock", &socket);
        let line = line.replace("xk dump", &format!("xk dump --control {control}"));
        let folder = Path::new(env!("CARGO_BIN_EXE_xk")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let shell = Command::new("sh")
            .args(["-c", &format!("{before}\n{line} 2>&1")])
            .current_dir(&root)
            .env("PATH", format!("{}:{path}", folder.display()))
            .output();
        String::from_utf8_lossy(&shell.expect("a shell").stdout).into_owned()
    };
    let all = blocks(&chapter, "console");
    let begin = all.iter().position(|line| line.starts_with("$ xk check"));
    let mut lines = all[begin.expect("the first command")..].iter().peekable();
    let (mut set, mut calls) = (String::new(), 0);
    while let Some(line) = lines.next() {
        let line = line.strip_prefix("$ ").expect("a command");
        let mut shown = String::new();
        while let Some(out) = lines.next_if(|next| !next.starts_with("$ ")) {
            shown += &format!("{out}\n");
        }
        if line.starts_with("L=") {
            set = line.replace("xk-deadline.sock", &socket);
        } else if line.starts_with("xk c") {
            // How often a request is sent depends on how busy this machine is.
            let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "N");
            assert_eq!(plain(&typed(line, &set)), plain(&shown), "{line}");
            calls += 1;
        }
    }
    assert!(calls > 3, "what is typed is found");
    // Columns are as wide as they must be, and sessions numbered as they come.
    let is_number = |word: &str| word.strip_prefix('s').is_some_and(|n| n.parse::<u32>().is_ok());
    let words = |line: &str| {
        let words = line.split_whitespace().filter(|word| !is_number(word));
        words.collect::<Vec<_>>().join(" ")
    };
    let wanted: Vec<String> = blocks(&chapter, "dump").iter().map(|l| words(l)).collect();
    let began = Instant::now();
    loop {
        // The second call is still executed when the third has been refused.
        let dump = typed("xk dump", "");
        let printed: Vec<String> = dump.lines().map(words).collect();
        let missing = wanted.iter().find(|line| !printed.contains(line));
        let Some(missing) = missing else { break };
        let waited = began.elapsed() > Duration::from_secs(10);
        assert!(!waited, "no line `{missing}` in:\n{dump}");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(running);
    for path in [&graph, &socket, &control, &format!("{socket}.lock")] {
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn mistakes_are_told_and_numbered() {
    let (_, told, code) = by_file(&["ecko", "\"00\""], &[]);
    assert_eq!(code, Some(2), "{told}");
    for words in [&["ecko", "\"00\""][..], &["procedures", "ecko"]] {
        let (_, told, code) = by_file(words, &[]);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("there is no procedure `ecko`"), "{told}");
    }
    let (_, told, code) = by_file(&["echo", "\"0\""], &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("hexadecimal digits"), "{told}");
    assert!(told.contains("octets PROC_ECHO(octets)"), "{told}");
    let (_, told, code) = by_file(&["echo", "hello"], &[]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("not JSON"), "{told}");
    let (_, told, code) = by_file(&["relay", "\"00\""], &[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("sunprog: the peer refused the call"), "{told}");
    let (_, told, code) = by_file(&["sleep", "5000"], &["--deadline", "500ms"]);
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("reqrep: timed out"), "{told}");
}

#[test]
fn rust_from_a_file() {
    let x = file("procedures.x");
    let output = xk(&["rpcgen", &x]);
    let rust = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    assert!(rust.contains("pub trait Procedures1 {"), "{rust}");
    assert!(rust.contains("pub const PROCEDURES: u32 = 536870913;"), "{rust}");
    let output = xk(&["rpcgen", "--check", &x]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("ok, 1 types, 0 constants, 1 programs in 1 versions"), "{said}");
    let output = xk(&["rpcgen", &file("loopback.kdl")]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("loopback.kdl:") && told.contains("error: "), "{told}");
}
