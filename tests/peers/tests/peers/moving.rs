//! Connections that go from process to process while programs of Linux transfer through them.
//!
//! A server on a protocol library gives each connection to a child, as the example `inetd` does.
//! The child passes it on to a program of Linux; after some mebioctets the connection, with what
//! lies between its ends, goes to another process, and so on. `XK_LONG=1` makes it ten times as
//! much.

#[allow(dead_code, reason = "its main function is for a command line")]
#[path = "../../../../sockets/net/examples/inetd.rs"]
mod inetd;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use xk_net::{Setup, TcpStream};
use xk_peers::testbed::{DEVICE, LINUX, OURS, PROGRAM_TIME_MAX, Testbed, Wire, end};
use xk_testkit::netns::{Running, Space};
use xk_testkit::{needs, needs_root};

use crate::ends::either;
use crate::exec::passed;
use crate::host::pattern;
use crate::program::command;

/// The argument with which this program is one of the processes, before what it does.
const ARGUMENT: &str = "--mover";
/// Octets after which a connection goes to the next process.
const EACH: u64 = 12 << 20;
/// Time for which the loop turns when there is nothing to pass on.
const LOOK: Duration = Duration::from_millis(1);
/// Octets of one read.
const PIECE: usize = 1 << 18;
/// The ports of ours that lead to Linux's `socat` and `iperf3`, and where those are.
const PORTS: [(u16, u16); 2] = [(7000, 8000), (5201, 5201)];

/// Runs one of the processes, if the command line says so.
pub(crate) fn run() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [ARGUMENT, "serve", path, at, to] => serve(path, at, to),
        [ARGUMENT, "begin", path, to] => begin(path, to),
        [ARGUMENT, "go-on", path] => go_on(path),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{words:?}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// This program once more.
fn mover(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ARGUMENT).args(words);
    Ok(command)
}

fn library(path: &str) -> Setup {
    Setup::library(path, xk_catalog::PROTOCOLS)
}

/// Accepts at `at`; its children pass on to the program at `to`.
fn serve(path: &str, at: &str, to: &str) -> io::Result<()> {
    let (stack, mut is_said) = (library(path).here()?, false);
    let child = || mover(&["begin", path, to]).expect("the path of this program");
    inetd::serve(&stack, at, child, |_| {
        if !std::mem::replace(&mut is_said, true) {
            println!("ready");
        }
        false
    })
}

/// The first process of a connection, whose state is its input.
fn begin(path: &str, to: &str) -> io::Result<()> {
    let mut state = Vec::new();
    io::stdin().read_to_end(&mut state)?;
    let linux = std::net::TcpStream::connect(to)?;
    Relay { linux, up: Way::default(), down: Way::default() }.carry(path, &state)
}

/// The next one: its input is what lies between the ends and the state, its output the program of
/// Linux.
fn go_on(path: &str) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut way = || {
        let mut octets = [0; 4];
        input.read_exact(&mut octets)?;
        let mut waiting = vec![0; u32::from_be_bytes(octets) as usize];
        input.read_exact(&mut waiting)?;
        io::Result::Ok(Way { waiting, has_ended: false })
    };
    let (up, down) = (way()?, way()?);
    let mut state = Vec::new();
    input.read_to_end(&mut state)?;
    let linux: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
    Relay { linux: linux.into(), up, down }.carry(path, &state)
}

/// One direction of a relay.
#[derive(Default)]
struct Way {
    /// Was read and is not written.
    waiting: Vec<u8>,
    has_ended: bool,
}

/// Number of octets, if there were any.
fn so_far(count: io::Result<usize>) -> io::Result<Option<usize>> {
    match count {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Way {
    /// Passes on what can be: how many octets, and whether the direction ends with them.
    fn pass(&mut self, mut from: impl Read, mut to: impl Write) -> io::Result<(usize, bool)> {
        let mut ends = false;
        if self.waiting.is_empty() && !self.has_ended {
            self.waiting.resize(PIECE, 0);
            let count = so_far(from.read(&mut self.waiting))?;
            self.waiting.truncate(count.unwrap_or(0));
            self.has_ended = count == Some(0);
            ends = self.has_ended;
        }
        let count = match self.waiting.len() {
            0 => 0,
            _ => so_far(to.write(&self.waiting))?.unwrap_or(0),
        };
        self.waiting.drain(..count);
        Ok((count, ends))
    }

    /// In front of the state: how many octets, and these.
    fn write(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&(self.waiting.len() as u32).to_be_bytes())?;
        to.write_all(&self.waiting)
    }
}

/// Relay that passes a connection on.
struct Relay {
    linux: std::net::TcpStream,
    /// From the peer to the program of Linux.
    up: Way,
    down: Way,
}

impl Relay {
    /// Goes on with a connection until both ends have ended it, or another process goes on; then
    /// until that has ended.
    fn carry(mut self, path: &str, state: &[u8]) -> io::Result<()> {
        let stack = library(path).here()?;
        let ours = TcpStream::from_state(&stack, state)?;
        ours.set_nonblocking(true)?;
        self.linux.set_nonblocking(true)?;
        let mut carried = 0;
        while !(self.up.has_ended && self.down.has_ended) {
            let (up, is_last) = self.up.pass(&ours, &self.linux)?;
            if is_last {
                self.linux.shutdown(Shutdown::Write)?;
            }
            let (down, is_last) = self.down.pass(&self.linux, &ours)?;
            if is_last {
                ours.shutdown(Shutdown::Write)?;
            }
            carried += (up + down) as u64;
            let is_whole = !self.up.has_ended && !self.down.has_ended;
            if carried >= EACH && is_whole {
                let begun = Instant::now();
                let state = ours.into_state()?;
                let octets = state.len();
                // A user has few places at a door.
                drop(stack);
                let mut next = mover(&["go-on", path])?
                    .stdin(Stdio::piped())
                    .stdout(OwnedFd::from(self.linux))
                    .spawn()?;
                if let Some(mut to) = next.stdin.take() {
                    self.up.write(&mut to)?;
                    self.down.write(&mut to)?;
                    to.write_all(&state)?;
                }
                eprintln!("passed on, in {octets} octets and {:.1?}", begun.elapsed());
                let status = next.wait()?;
                let failed = || io::Error::other("the next process has failed");
                return status.success().then_some(()).ok_or_else(failed);
            }
            stack.run_for(if up + down == 0 { LOOK } else { Duration::ZERO })?;
        }
        drop(ours);
        stack.drain(PROGRAM_TIME_MAX)?;
        Ok(())
    }
}

/// Number of connections passed on so far.
fn moves(servers: &[Running]) -> usize {
    servers.iter().map(|server| server.output().matches("passed on").count()).sum()
}

/// Lets `socat` send a file each way at the same time; the files are the same afterwards.
fn files_are_whole(linux: &Space, folder: &Path, server: &Running) {
    let octets = either(56 << 20, 560 << 20);
    let content = pattern(octets);
    let (up, down) = (folder.join("up"), folder.join("down"));
    fs::write(&up, &content).unwrap();
    fs::write(&down, content.iter().rev().copied().collect::<Vec<u8>>()).unwrap();
    let sh = |line: String| {
        let line = format!("cd {} && {line}", folder.display());
        linux.spawn(&["sh", "-c", &line]).unwrap()
    };
    let (ours, theirs) = PORTS[0];
    let there =
        sh(format!("socat -d -d -t 60 TCP-LISTEN:{theirs},bind={LINUX} - < down > up-there"));
    there.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
    let begun = Instant::now();
    let here = sh(format!("socat -d -d -t 60 - TCP:{OURS}:{ours} < up > down-here"));
    for end in [&here, &there] {
        let status = end.wait(either(PROGRAM_TIME_MAX, 10 * PROGRAM_TIME_MAX)).unwrap();
        assert!(status.success(), "{}{}", end.output(), server.output());
    }
    let took = begun.elapsed();
    println!("socat: {octets} octets each way in {took:.1?}");
    for (sent, received) in [("up", "up-there"), ("down", "down-here")] {
        let [sent, here] = [sent, received].map(|name| fs::read(folder.join(name)).unwrap());
        let same = sent.iter().zip(&here).take_while(|(one, other)| one == other).count();
        let lengths = (sent.len(), here.len());
        assert!(sent == here, "{received}: {same} octets of {lengths:?} {}", server.output());
    }
}

/// Lets `iperf3` take and send, one behind the other.
fn iperf3_is_content(linux: &Space, carries: &Running) {
    let octets = either("48M", "480M");
    for kind in [&["-n", octets][..], &["-n", octets, "-R"]] {
        let server = ["iperf3", "-s", "-1", "--forceflush", "-B", LINUX];
        let server = linux.spawn(&server).unwrap();
        server.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
        let said = linux.exec(&[&["iperf3", "-J", "-c", OURS], kind].concat());
        let told = || format!("{} {}", server.output(), carries.output());
        let said = said.unwrap_or_else(|error| panic!("{kind:?}: {error} {}", told()));
        assert!(passed(&said) >= either(48 << 20, 480 << 20), "{kind:?}: {said} {}", told());
        assert!(server.wait(PROGRAM_TIME_MAX).unwrap().success(), "{kind:?}: {}", told());
    }
}

/// On the graph of the repository, with a TAP device, each domain a process.
pub(crate) fn streams_go_on_in_other_processes(_: Wire) {
    needs_root!("ip", "socat", "iperf3", "tcpdump", "tshark");
    let xk = command();
    if !xk.is_file() {
        needs::skip("needs the command xk (cargo build -p xk)");
        return;
    }
    let bed = Testbed::new("moving");
    let linux = bed.linux();
    // The servers of the graph are another user's.
    let folder = std::env::temp_dir().join(format!("xk-moving-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // The servers' own, where no other user may write: else a program does not believe that
    // what listens there is theirs.
    let _ = std::os::unix::fs::chown(&folder, Some(65_534), Some(65_534));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/org-library.kdl");
    let text = fs::read_to_string(graph).unwrap();
    let text = text.replace("/run/xk/library", &folder.display().to_string());
    let text = text.replace(" uid=1000", "");
    let (graph, place) = (folder.join("graph.kdl"), folder.join("xk-library.sock"));
    fs::write(&graph, text).unwrap();
    let command = [&xk.to_string_lossy(), "run", "--no-control", &graph.to_string_lossy()];
    let host = linux.spawn(&command).unwrap();
    host.wait_for("Ctrl-C ends it.", PROGRAM_TIME_MAX).unwrap();
    let capture = bed.folder().join("ends.pcap").display().to_string();
    let flags = "tcp[tcpflags] & (tcp-syn|tcp-fin|tcp-rst) != 0";
    let capture =
        ["tcpdump", "-i", DEVICE, "--immediate-mode", "-U", "-Z", "root", "-w", &capture, flags];
    let capture = linux.spawn(&capture).unwrap();
    capture.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
    let itself = std::env::current_exe().unwrap().display().to_string();
    let place = place.display().to_string();
    let servers = PORTS.map(|(ours, theirs)| {
        let (at, to) = (format!("{OURS}:{ours}"), format!("{LINUX}:{theirs}"));
        let server = linux.spawn(&[&itself, ARGUMENT, "serve", &place, &at, &to]).unwrap();
        server
            .wait_for("ready", PROGRAM_TIME_MAX)
            .unwrap_or_else(|e| panic!("{e}: {}", host.output()));
        server
    });
    std::thread::scope(|both| {
        let load = both.spawn(|| iperf3_is_content(&linux, &servers[1]));
        files_are_whole(&linux, bed.folder(), &servers[0]);
        load.join().expect("no panic");
    });
    let count = moves(&servers);
    println!("{count} moves");
    // A connection of which one direction has ended stays where it is.
    let of_files = moves(&servers[..1]);
    assert!(of_files >= either(4, 50), "{of_files} moves, with the files");
    assert!(count - of_files >= either(4, 50), "{count} moves in all");
    drop(servers.map(Running::stop));
    assert!(end(&host).success(), "{}", host.output());
    let _whole = end(&capture);
    // iperf3 itself breaks off what it has not read; what carries the files is reset by nothing.
    let resets = format!("tcp.port == {} && tcp.flags.reset == 1 && ip.src == {OURS}", PORTS[0].0);
    assert_eq!(bed.count("ends.pcap", &resets), 0);
    fs::remove_dir_all(&folder).unwrap();
}
