//! `xk exec` as a user has it: what it says when something is wrong, and whose exit code and
//! signals there are.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use xk_testkit::signals_unsafe::usual;
use xk_testkit::{ALONE, await_that, needs_program};

/// A graph file of the test's own, which goes with it.
struct Graph(PathBuf);

impl Graph {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("xk-exec-{}-{name}.kdl", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn exec(&self, program: &[&str]) -> Command {
        self.exec_with(&[], program)
    }

    fn exec_with(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        command.arg("exec").args(options).arg("--graph");
        command.arg(&self.0).arg("--");
        command.args(program);
        usual(&mut command);
        command
    }

    fn run(&self, program: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.exec(program).output().unwrap();
        let text = |octets: Vec<u8>| String::from_utf8_lossy(&octets).into_owned();
        (status.code(), text(stdout), text(stderr))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_missing_graph_is_named() {
    let command = ["exec", "--graph", "/nonexistent/graph.kdl", "--", "true"];
    let output = Command::new(env!("CARGO_BIN_EXE_xk")).args(command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/nonexistent/graph.kdl"), "{said}");
}

#[test]
fn a_mistake_of_the_graph_is_shown() {
    let graph = Graph::new("mistake", "host alone { loopback; ip nowhere; }");
    let (code, _, said) = graph.run(&["true"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn a_graph_without_a_transport_is_refused() {
    let text = r#"host alone { loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; }"#;
    let (code, _, said) = Graph::new("transport", text).run(&["true"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("tcp") || said.contains("udp"), "{said}");
}

#[test]
fn a_missing_program_is_named() {
    let graph = Graph::new("program", ALONE);
    // As shells have it: not there, and there but no program (POSIX, Shell Command Language,
    // 2.8.2).
    for (program, wanted) in [("/nonexistent/program", 127), ("/etc/passwd", 126), ("/", 126)] {
        let (code, _, said) = graph.run(&[program]);
        assert_eq!(code, Some(wanted), "{said}");
        assert!(said.contains(program), "{said}");
    }
}

/// A daemon's parent has ended when it begins to serve.
#[test]
fn what_goes_to_the_background_keeps_the_graph() {
    needs_program!("python3");
    let graph = Graph::new("daemon", ALONE);
    let script = "
import os, socket, time
if os.fork():
    os._exit(7)
os.setsid()
if os.fork():
    os._exit(0)
for _ in range(1000):
    if os.getppid() == int(os.environ['XK_PARENT']): break
    time.sleep(0.01)
with socket.create_server(('10.0.0.1', 80)) as server:
    client = socket.create_connection(('10.0.0.1', 80))
    client.sendall(b'served')
    print(server.accept()[0].recv(6).decode(), flush=True)
";
    // The shell becomes the child of `xk` that tells its parent.
    let shell = "XK_PARENT=$PPID exec python3 -c \"$0\"";
    let (code, said, complaints) = graph.run(&["sh", "-c", shell, script]);
    assert_eq!(code, Some(7), "{complaints}");
    assert_eq!(said.trim(), "served", "{complaints}");
    assert!(complaints.contains("still runs"), "{complaints}");
}

#[test]
fn what_is_in_the_background_is_ended_by_a_signal() {
    let graph = Graph::new("background", ALONE);
    let mut command = graph.exec(&["sh", "-c", "sleep 60 & echo $!"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pid = String::new();
    let out = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut pid).unwrap();
    let mut told = String::new();
    let complaints = child.stderr.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(complaints), &mut told).unwrap();
    assert!(told.contains("still runs"), "{told}");
    kill("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_running(pid.trim()), "{pid}");
}

#[test]
fn without_a_program_the_command_line_makes_no_sense() {
    let graph = Graph::new("nothing", ALONE);
    let (code, _, said) = graph.run(&[]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn the_exit_code_is_the_programs() {
    let graph = Graph::new("code", ALONE);
    assert_eq!(graph.run(&["sh", "-c", "exit 0"]).0, Some(0));
    assert_eq!(graph.run(&["sh", "-c", "exit 37"]).0, Some(37));
    assert_eq!(graph.run(&["sh", "-c", "kill -9 $$"]).0, Some(137));
}

#[test]
fn an_address_in_use_is_the_programs_to_hear_of() {
    needs_program!("python3");
    let graph = Graph::new("in-use", ALONE);
    let script = "
import errno, socket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    first, second = socket.socket(type=kind), socket.socket(type=kind)
    first.bind(('10.0.0.1', 80))
    try: second.bind(('10.0.0.1', 80))
    except OSError as error: print(errno.errorcode[error.errno])
";
    let (code, said, complaints) = graph.run(&["python3", "-c", script]);
    assert_eq!(code, Some(0), "{complaints}");
    assert_eq!(said.matches("EADDRINUSE").count(), 2, "{said}");
}

#[test]
fn a_signal_is_passed_on_and_nothing_is_left() {
    let graph = Graph::new("signal", ALONE);
    for (signal, wanted) in [("TERM", 143), ("HUP", 129)] {
        let mut command = graph.exec(&["sh", "-c", "echo $$; exec sleep 60"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut pid = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut pid).unwrap();
        kill(signal, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(wanted));
        assert!(!is_running(pid.trim()), "{pid}");
    }
}

#[test]
fn a_program_does_not_outlive_what_it_stands_on() {
    let graph = Graph::new("killed", ALONE);
    let mut command = graph.exec(&["sh", "-c", "echo $$; exec sleep 60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut pid = String::new();
    let out = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut pid).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    await_that!(Duration::from_secs(20), !is_running(pid.trim()), "{pid} goes on");
}

fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// Whether the process is there and has not ended.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// The capture has all that was sent, though the program ends at once.
#[test]
fn a_capture_is_whole() {
    needs_program!("python3");
    let capture = std::env::temp_dir().join(format!("xk-exec-{}.pcapng", std::process::id()));
    let wire = format!("pcap loopback file=\"{}\"\n    ip pcap ", capture.display());
    let text = ALONE.replace("ip loopback ", &wire);
    let script = "import socket\n\
        one = socket.socket(type=socket.SOCK_DGRAM); one.bind(('10.0.0.1', 0))\n\
        for n in range(20): one.sendto(b'captured-%d;' % n, ('10.0.0.%d' % (n + 9), 9))\n";
    let (code, _, said) = Graph::new("capture", &text).run(&["python3", "-c", script]);
    let octets = std::fs::read(&capture).unwrap();
    let _ = std::fs::remove_file(&capture);
    assert_eq!(code, Some(0), "{said}");
    // Each new peer is asked for behind what was sent before.
    for n in 0..18 {
        let wanted = format!("captured-{n};");
        let has = octets.windows(wanted.len()).any(|o| o == wanted.as_bytes());
        assert!(has, "{wanted} is missing");
    }
}

#[test]
fn a_static_program_is_said_to_stay_linuxs() {
    needs_program!("cc");
    let graph = Graph::new("static", ALONE);
    let program = std::env::temp_dir().join(format!("xk-exec-{}-static", std::process::id()));
    let path = program.to_str().unwrap();
    let source = graph.0.with_extension("c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    for (flag, is_said) in [("-static", true), ("-O0", false)] {
        let cc = ["-o", path, flag, source.to_str().unwrap()];
        assert!(Command::new("cc").args(cc).status().unwrap().success());
        let (code, _, said) = graph.run(&[path]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(said.contains("linked statically"), is_said, "{said}");
    }
    let _ = std::fs::remove_file(&program);
    let _ = std::fs::remove_file(&source);
}

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, if all is well.
        let _ = self.0.kill();
    }
}

/// Events of sessions are printed: a few lines a second of all, or every one.
#[test]
fn it_says_what_happens_and_not_too_much() {
    needs_program!("python3");
    let graph = Graph::new("says", ALONE);
    let script = "
import socket, sys
one = socket.socket(); one.bind(('10.0.0.1', 9)); one.listen(64)
peers = [socket.create_connection(('10.0.0.1', 9)) for _ in range(40)]
two = socket.socket(type=socket.SOCK_DGRAM); two.connect(('10.0.0.1', 7)); two.send(b'x')
sys.stdin.read()
";
    let said = |flag: &str, until: &str| {
        let folder = own_folder();
        let mut command = graph.exec_with(&[flag], &["python3", "-c", script]);
        command.env("XDG_RUNTIME_DIR", folder.path());
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        let mut lines = Vec::new();
        for line in BufReader::new(child.0.stderr.take().unwrap()).lines() {
            lines.push(line.unwrap());
            if lines.last().unwrap().ends_with(until) {
                break;
            }
        }
        drop(child.0.stdin.take());
        child.0.wait().unwrap();
        lines
    };
    let opened = |lines: &[String]| {
        let is_opened = |line: &&String| line.contains("tcp: a peer opens s");
        lines.iter().filter(is_opened).count()
    };
    let lines = said("-v", " more");
    for part in ["control socket ", "wire loopback", "ip 10.0.0.1", "user "] {
        let begin = format!("xk: {part}");
        assert!(lines.iter().any(|l| l.starts_with(&begin)), "{lines:?}");
    }
    assert!(opened(&lines) < 40 && lines.len() < 40, "{lines:?}");
    let lines = said("-vv", "udp: dropped 1: no port");
    assert_eq!(opened(&lines), 40, "{lines:?}");
    assert!(!lines.iter().any(|line| line.ends_with(" more")));
}

/// A directory of this user alone, whatever its umask: sockets are put into no other.
fn own_folder() -> tempfile::TempDir {
    let alone = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(alone).tempdir().unwrap()
}

/// The graph under a program shows what that of `xk run` does, and leaves no socket.
#[test]
fn it_is_looked_into() {
    needs_program!("python3");
    let graph = Graph::new("look", ALONE);
    let script = "
import socket, time
one = socket.socket(type=socket.SOCK_DGRAM); one.bind(('10.0.0.1', 9))
print('bound', flush=True)
while True: one.sendto(b'looked at', ('10.0.0.1', 9)); one.recv(20); time.sleep(0.001)
";
    let folder = own_folder();
    let mut command = graph.exec(&["python3", "-c", script]);
    // Where the system gives an ordinary user no place, this is one.
    command.env("XDG_RUNTIME_DIR", folder.path());
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let out = child.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let pid = child.0.id().to_string();
    let ask = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
        command.env("XDG_RUNTIME_DIR", folder.path());
        let output = command.args(words).args(["--pid", &pid]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), output.stdout, said)
    };
    let text = |(done, out, said): (bool, Vec<u8>, String)| {
        assert!(done, "{said}");
        String::from_utf8(out).unwrap()
    };
    let dump = text(ask(&["dump"]));
    let about = format!("host alone of {}, process {pid}", graph.0.display());
    assert!(dump.starts_with(&about), "{dump}");
    let mapped = dump.lines().any(|line| line.contains("sockets"));
    assert!(mapped, "{dump}");
    let trace = text(ask(&["trace", "-n", "2"]));
    for crossing in ["udp.push", "ip.push", "ip.pop", "sockets.demux"] {
        assert!(trace.contains(crossing), "{trace}");
    }
    let (done, captured, said) = ask(&["capture", "udp>ip", "-", "--for", "200ms"]);
    assert!(done, "{said}");
    assert!(captured.windows(9).any(|octets| octets == b"looked at"));
    kill("TERM", child.0.id());
    child.0.wait().unwrap();
    let (done, _, said) = ask(&["dump"]);
    assert!(!done && said.contains("no graph runs"), "{said}");
}
