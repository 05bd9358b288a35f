//! A graph that `xk run` runs in its domains, in a network namespace of its own, and Linux's
//! sockets at the other end of its TAP device.

use super::member::{asks, opens};
use super::times::{ANSWER_TIME_MAX, each, sample};
use crate::case::{Sample, Trouble};
use crate::child::{self, Running, command};
use crate::cores::place;
use crate::folder;
use crate::net::testbed::{Mode, cores};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use std::io::{Error, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The host, and where its applications answer and take.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub(super) const ECHO_PORT: u16 = 7;
pub(super) const DISCARD_PORT: u16 = 9;
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// The port of a program of ONC RPC, and the nodes on UDP that serve it.
const CALL_PORT: u16 = 5049;
const CALLED: &str = r#"reqrep udp; sunselect reqrep; sunprog sunselect
        procedures sunprog at="*@version1@program536870913@port5049""#;
/// The graph that serves it on a library.
const ON_LIBRARY: &str = include_str!("../../../graphs/rpc-library.kdl");

/// The path in graphs with a library, which is replaced by that of the run.
const LIBRARY: &str = "/run/xk/library/xk-library";

/// Exchange by Linux's sockets, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Sends datagrams to `echo`: the mean microseconds until one is back.
    Datagrams,
    /// Calls procedure 0 of a program of ONC RPC by datagrams: the mean microseconds until the
    /// reply is back.
    Calls,
    /// Writes to `echo` on one connection: the mean microseconds until all of it is back.
    Answers,
    /// Writes to `discard` on one connection: megabits a second until the other side has taken all
    /// and closed.
    Stream,
    /// Connects to `discard`: the mean microseconds until the connection is there.
    Connects,
    /// Listens: the mean microseconds until a connection of a program is there, in which all
    /// protocols lie or which has a library; and of its parts there.
    Listens,
    /// Sends back the datagrams of such a program: the mean microseconds until one is back there.
    Echoes,
    /// Is none of Linux: the same graph again, with `probe` in the place of `echo`, at the other
    /// end of a veth pair. The mean microseconds until one of its messages is back.
    Both,
}

pub(super) const PEERS: [(&str, Peer); 8] = [
    ("datagrams", Peer::Datagrams),
    ("calls", Peer::Calls),
    ("answers", Peer::Answers),
    ("stream", Peer::Stream),
    ("connects", Peer::Connects),
    ("listens", Peer::Listens),
    ("echoes", Peer::Echoes),
    ("both", Peer::Both),
];

/// The graph, with what is asked for in the place of `echo` on UDP: that on a connection, or a
/// program of ONC RPC.
pub(super) fn graph_for(peer: Peer, graph: &str) -> String {
    let echo = "echo udp port=7";
    match peer {
        Peer::Answers => graph.replace(echo, "echo tcp port=7"),
        Peer::Calls => graph.replace(echo, CALLED),
        _ => graph.into(),
    }
}

/// Runs `graph` and has the peer do its work `count` times, or with so many writes, of so many
/// octets, each of both on the cores that `mode` says.
///
/// # Errors
/// [`Trouble`]: the machine's, or what went wrong.
pub(super) fn measure(
    graph: &str,
    peer: Peer,
    octets: usize,
    count: f64,
    mode: Mode,
) -> Result<Sample, Trouble> {
    sample(&measure_all(graph, peer, octets, count, mode)?)
}

/// All figures that the peer finds; of times one by one, the mean, and what half and 99 of 100 of
/// them did not exceed.
///
/// # Errors
/// As [`measure`].
pub(super) fn measure_all(
    graph: &str,
    peer: Peer,
    octets: usize,
    count: f64,
    mode: Mode,
) -> Result<Vec<f64>, Trouble> {
    program()?;
    let folder = folder::own()?;
    let path = folder.path().join("organisation.kdl");
    let graph = graph.replace(LIBRARY, &folder.path().join("library").to_string_lossy());
    // Its programs are of the user that measures, and serve `echo` and `discard`.
    let services = "grant tcp\n        grant tcp port=\"7..9\"";
    let graph = graph.replace(" uid=1000", "").replace("grant tcp", services);
    std::fs::write(&path, graph)?;
    let name = PEERS.iter().find(|(_, known)| *known == peer).map_or("", |(name, _)| *name);
    let count = count.max(1.0) as u32;
    let argument = format!("{name} {octets} {count} {mode:?} {}", path.display());
    child::ask_alone("organisation", &argument)
}

/// The microseconds in which Linux connects to itself, over its loopback device: the mean, and what
/// half and 99 of 100 of them did not exceed.
///
/// Each connection is taken before the next one begins, since Linux answers no SYN, and so makes
/// the asker wait for a second, while the listener's queue is full.
pub(super) fn linux_connects(count: f64) -> Result<Sample, Trouble> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let found = connects_to(&listener, count.max(1.0) as usize).map_err(Trouble::Failed)?;
    let &[value, p50, p99] = &found[..] else { return Err(Trouble::Failed("no times".into())) };
    Ok(Sample { value, p50: Some(p50), p99: Some(p99), also: Vec::new() })
}

fn connects_to(listener: &TcpListener, count: usize) -> Result<Vec<f64>, String> {
    let text = |error: Error| error.to_string();
    let to = listener.local_addr().map_err(text)?;
    connects(to, count, || listener.accept().map(drop).map_err(text))
}

/// The command, if there are TAP devices.
fn program() -> Result<PathBuf, Trouble> {
    if !Path::new("/dev/net/tun").exists() {
        return Err(Trouble::Skipped("needs /dev/net/tun (modprobe tun)".into()));
    }
    command()
}

/// Starts a graph or a program, which is ended with what this answers, or with this process.
pub(super) fn start(command: &Command, output: Stdio) -> Result<Running, String> {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    bound.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let bound = bound.stdout(output).stderr(Stdio::null());
    Running::start(bound, (Signal::INT, ANSWER_TIME_MAX)).map_err(|error| error.to_string())
}

/// Starts a graph.
fn run(path: &Path, output: Stdio) -> Result<Running, String> {
    let program = program().map_err(|trouble| format!("{trouble:?}"))?;
    start(Command::new(program).arg("run").arg(path), output)
}

/// Starts what serves the program of ONC RPC on a library, once that is open.
fn run_on_library(at: &Path) -> Result<Running, String> {
    let path = at.with_file_name("rpc.kdl");
    std::fs::write(&path, ON_LIBRARY).map_err(|error| error.to_string())?;
    let ends = Instant::now() + ANSWER_TIME_MAX;
    while !at.exists() && Instant::now() < ends {
        std::thread::sleep(Duration::from_millis(20));
    }
    let program = program().map_err(|trouble| format!("{trouble:?}"))?;
    let mut command = Command::new(program);
    start(command.args(["run", "--no-control"]).arg(path).arg("--library").arg(at), Stdio::null())
}

/// A program with a library, on which a tool serves a port.
pub(super) fn member(tool: &str, port: u16, at: &Path) -> Result<Running, String> {
    let command = child::again("member", &format!("{tool} {port} {}", at.display()));
    start(&command.map_err(|trouble| format!("{trouble:?}"))?, Stdio::null())
}

/// The cores of the peer and of the host.
fn places(mode: &str) -> Result<[Option<usize>; 2], String> {
    let known = [Mode::OneCore, Mode::TwoCores, Mode::Unpinned].into_iter();
    let mode = known.into_iter().find(|known| format!("{known:?}") == mode);
    cores(mode.ok_or("no such cores")?).map_err(|trouble| format!("{trouble:?}"))
}

/// Runs a graph, here in a namespace of its own, and measures. The argument is what is done, with
/// how many octets, how often, on which cores, and the graph's path.
pub(crate) fn organisation(argument: &str) -> Result<Vec<f64>, String> {
    let words: Vec<&str> = argument.splitn(5, ' ').collect();
    let [name, octets, count, mode, path] = words[..] else {
        return Err("no graph".into());
    };
    let peer = PEERS.iter().find(|(known, _)| *known == name).ok_or("no such work")?.1;
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    let (octets, count) = (number(octets)?.max(1), number(count)?.max(1));
    let graph = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let door = Path::new(path).with_file_name("library.sock");
    let at = graph.contains(&*door.to_string_lossy()).then_some(&*door);
    let is_program = matches!(peer, Peer::Listens | Peer::Echoes);
    // What is started from here on stays where this is.
    let [of_peer, of_host] = places(mode)?;
    let put = |core| place(core).map_err(|error| error.to_string());
    put(of_host)?;
    if peer == Peer::Both {
        let hosts = both(Path::new(path), &graph, count)?;
        let _answers = run(&hosts[0], Stdio::null())?;
        put(of_peer)?;
        return asked(&hosts[1]);
    }
    let running = match at.is_none() && is_program {
        true => None,
        false => Some(run(Path::new(path), Stdio::null())?),
    };
    let member = match (at, peer) {
        (None, _) | (_, Peer::Listens | Peer::Echoes) => None,
        (Some(at), Peer::Calls) => Some(run_on_library(at)?),
        (Some(at), Peer::Answers) => Some(member("echo", ECHO_PORT, at)?),
        (Some(at), _) => Some(member("discard", DISCARD_PORT, at)?),
    };
    if !is_program {
        put(of_peer)?;
    }
    let found = match peer {
        Peer::Datagrams => datagrams(&Question::Echo(octets), count),
        Peer::Calls => datagrams(&Question::Call, count),
        Peer::Answers => answers(octets, count),
        Peer::Stream => stream(octets, count).map(|rate| vec![rate]),
        Peer::Connects => connection(DISCARD_PORT)
            .and_then(|first| end(&first))
            .and_then(|()| connects((HOST, DISCARD_PORT).into(), count, || Ok(()))),
        Peer::Listens => opens(&graph, at, count),
        Peer::Echoes | Peer::Both => asks(&graph, at, (octets, count)),
    };
    drop((member, running));
    found
}

/// The graph on one end of a veth pair, and once more on the other, where it asks so many times:
/// the paths of both.
fn both(path: &Path, graph: &str, count: usize) -> Result<[PathBuf; 2], String> {
    for words in ["link add xka type veth peer name xkb", "link set xka up", "link set xkb up"] {
        let done = Command::new("ip").args(words.split(' ')).stdin(Stdio::null()).status();
        if !done.is_ok_and(|status| status.success()) {
            return Err(format!("`ip {words}` failed (apt install iproute2)"));
        }
    }
    let probe = format!(
        r#"probe udp to="port{ECHO_PORT}@{HOST}" count={count} interval="0s" size=16 start="300ms""#
    );
    let answering = on_veth(graph, "xka");
    let asking = on_veth(graph, "xkb")
        .replace("10.9.0.2/24", "10.9.0.1/24")
        .replace("echo udp port=7", &probe);
    let paths = ["answers.kdl", "asks.kdl"].map(|name| path.with_file_name(name));
    for (path, text) in paths.iter().zip([answering, asking]) {
        std::fs::write(path, text).map_err(|error| error.to_string())?;
    }
    Ok(paths)
}

/// A graph with a packet socket at a device in the place of its TAP device.
pub(super) fn on_veth(graph: &str, device: &str) -> String {
    let tap = r#"tap device=xk0 host_address="10.9.0.1/24""#;
    graph.replace(tap, &format!("packet device={device}")).replace("eth  tap", "eth  packet")
}

/// Reads the report that the probe of a graph makes at its end.
fn asked(path: &Path) -> Result<Vec<f64>, String> {
    let mut running = run(path, Stdio::piped())?;
    let lines = child::lines_within(&running.lines(), 2 * ANSWER_TIME_MAX);
    let lines = lines.map_err(|trouble| format!("{trouble:?}"))?;
    let told = lines.iter().find_map(|line| line.strip_prefix("probe: "));
    let told = told.ok_or("the probe told nothing within its time")?;
    let whole = told.starts_with("ok, ") && told.contains(" lost 0,");
    let figures = ["rtt avg ", "rtt p50 "].map(|name| {
        let rest = told.split_once(name)?.1;
        micros(rest.split(',').next()?)
    });
    match figures {
        [Some(mean), Some(p50)] if whole => Ok(vec![mean, p50]),
        _ => Err(format!("not all came back within the time: {told}")),
    }
}

/// A time such as `1.5ms`, in microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("ns", 1e-3), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    units
        .into_iter()
        .find_map(|(unit, us)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * us))
}

/// A datagram that is answered by another.
enum Question {
    /// So many octets, which come back.
    Echo(usize),
    /// A call of procedure 0 (RFC 5531, section 9).
    Call,
}

impl Question {
    fn port(&self) -> u16 {
        match self {
            Self::Echo(_) => ECHO_PORT,
            Self::Call => CALL_PORT,
        }
    }

    /// The datagram of this number, and the one that is to come.
    fn octets(&self, number: u32) -> [Vec<u8>; 2] {
        let words = |rest: &[u32]| {
            let all = [number].into_iter().chain(rest.iter().copied());
            all.flat_map(u32::to_be_bytes).collect::<Vec<u8>>()
        };
        match *self {
            Self::Echo(octets) => [vec![7; octets], vec![7; octets]],
            // A call of this version, program, version and procedure, without credentials; a
            // reply, accepted and executed.
            Self::Call => [words(&[0, 2, 536_870_913, 1, 0, 0, 0, 0, 0]), words(&[1, 0, 0, 0, 0])],
        }
    }
}

fn datagrams(question: &Question, count: usize) -> Result<Vec<f64>, String> {
    let text = |error: Error| error.to_string();
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(text)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN)).map_err(text)?;
    let (mut number, mut room) = (0, [0; 2048]);
    // Until the device is there nothing can be sent.
    let mut trip = || {
        number += 1;
        let [asked, answer] = question.octets(number);
        let sent = socket.send_to(&asked, (HOST, question.port()));
        sent.is_ok() && socket.recv(&mut room).is_ok_and(|octets| room[..octets] == answer)
    };
    let ends = Instant::now() + ANSWER_TIME_MAX;
    while !trip() {
        if Instant::now() > ends {
            return Err(format!("nothing came back within {} s", ANSWER_TIME_MAX.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Late answers of the first tries are none of those measured.
    std::thread::sleep(ANSWER_WITHIN);
    socket.set_nonblocking(true).map_err(text)?;
    while socket.recv(&mut [0; 16]).is_ok() {}
    socket.set_nonblocking(false).map_err(text)?;
    each(count, || {
        let begun = Instant::now();
        let lost =
            || format!("a datagram did not come back within {} ms", ANSWER_WITHIN.as_millis());
        trip().then(|| begun.elapsed()).ok_or_else(lost)
    })
}

/// A connection to the host, once it is up.
fn connection(port: u16) -> Result<TcpStream, String> {
    let ends = Instant::now() + ANSWER_TIME_MAX;
    loop {
        match TcpStream::connect_timeout(&(HOST, port).into(), ANSWER_TIME_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| error.to_string())?;
                stream
                    .set_read_timeout(Some(ANSWER_TIME_MAX))
                    .map_err(|error| error.to_string())?;
                stream
                    .set_write_timeout(Some(ANSWER_TIME_MAX))
                    .map_err(|error| error.to_string())?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > ends => return Err(format!("no connection: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn answers(octets: usize, count: usize) -> Result<Vec<f64>, String> {
    let mut stream = connection(ECHO_PORT)?;
    let (sent, mut came) = (vec![7; octets], vec![0; octets]);
    let mut trip = || {
        let begun = Instant::now();
        let done = stream.write_all(&sent).and_then(|()| stream.read_exact(&mut came));
        done.map_err(|error| format!("no answer within the time: {error}"))?;
        Ok(begun.elapsed())
    };
    trip()?;
    each(count, trip)
}

fn stream(octets: usize, count: usize) -> Result<f64, String> {
    let text = |error: Error| error.to_string();
    let mut stream = connection(DISCARD_PORT)?;
    let sent = vec![7; octets];
    let begun = Instant::now();
    for _ in 0..count {
        stream.write_all(&sent).map_err(|error| format!("not taken within the time: {error}"))?;
    }
    stream.shutdown(Shutdown::Write).map_err(text)?;
    let rest = stream.read(&mut [0]).map_err(text)?;
    let us = begun.elapsed().as_secs_f64() * 1e6;
    if rest > 0 {
        return Err("discard answered".into());
    }
    Ok((octets * count) as f64 * 8.0 / us)
}

/// Ends a connection by a reset, so that no port waits.
fn end(stream: &TcpStream) -> Result<(), String> {
    let set = set_socket_linger(stream, Some(Duration::ZERO));
    set.map_err(|error| error.to_string())
}

/// The times until so many connections are there, one after the other; `taken` is what the other
/// side does with each before it ends.
fn connects(
    to: SocketAddr,
    count: usize,
    taken: impl Fn() -> Result<(), String>,
) -> Result<Vec<f64>, String> {
    each(count, || {
        let begun = Instant::now();
        let stream = TcpStream::connect(to).map_err(|error| error.to_string())?;
        let time = begun.elapsed();
        taken()?;
        end(&stream).map(|()| time)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_report_are_read() {
        let texts = ["96.933µs", "1.5ms", "2s", "800ns", "none"].map(micros);
        assert_eq!(texts, [Some(96.933), Some(1500.0), Some(2e6), Some(0.8), None]);
    }

    /// A full queue makes a SYN wait for a second: more connections than it has room for leave
    /// nothing in it.
    #[test]
    fn connections_to_linux_do_not_fill_its_queue() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(connects_to(&listener, 300).unwrap().len(), 3);
        listener.set_nonblocking(true).unwrap();
        let rest = listener.accept().map_err(|error| error.kind());
        assert_eq!(rest.err(), Some(std::io::ErrorKind::WouldBlock));
    }
}
