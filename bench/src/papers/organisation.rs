//! A graph that `xk run` runs in its domains, in a network namespace of its own, and Linux's
//! sockets at the other end of its TAP device.

use super::member::{asks, opens};
use crate::case::{Sample, Trouble};
use crate::child::{self, Running, command};
use crate::folder;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use std::io::{Error, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The host, and where its applications answer and take.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const ECHO_PORT: u16 = 7;
const DISCARD_PORT: u16 = 9;
/// How long a host may take to come up, and an answer to come.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// What stands in a graph whose transports programs carry on, in the paths of its sockets.
const LIBRARY: &str = "/run/xk/library/xk-library";

/// What Linux's sockets do, and what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Sends datagrams to `echo`: the mean microseconds until one is back.
    Datagrams,
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
}

pub(super) const PEERS: [(&str, Peer); 6] = [
    ("datagrams", Peer::Datagrams),
    ("answers", Peer::Answers),
    ("stream", Peer::Stream),
    ("connects", Peer::Connects),
    ("listens", Peer::Listens),
    ("echoes", Peer::Echoes),
];

/// Runs `graph` and has the peer do its work `count` times, or with so many writes, of so many
/// octets.
///
/// # Errors
/// [`Trouble`]: the machine's, or what went wrong.
pub(super) fn measure(
    graph: &str,
    peer: Peer,
    octets: usize,
    count: f64,
) -> Result<Sample, Trouble> {
    let found = measure_all(graph, peer, octets, count)?;
    let one = found.first().copied();
    Ok(one.ok_or_else(|| Trouble::Failed("it answered nothing".into()))?.into())
}

/// All figures that the peer finds.
///
/// # Errors
/// As [`measure`].
pub(super) fn measure_all(
    graph: &str,
    peer: Peer,
    octets: usize,
    count: f64,
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
    let argument = format!("{name} {octets} {} {}", count.max(1.0) as u32, path.display());
    child::ask_alone("organisation", &argument)
}

/// The mean microseconds in which Linux connects to itself, over its loopback device.
pub(super) fn linux_connects(count: f64) -> Result<Sample, Trouble> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let place = listener.local_addr()?;
    let accepting = std::thread::spawn(move || {
        // Ends with the first connection that sends something.
        while let Ok((mut stream, _)) = listener.accept() {
            if matches!(stream.read(&mut [0]), Ok(1)) {
                return;
            }
        }
    });
    let found = connects(place, count.max(1.0) as usize).map_err(Trouble::Failed);
    let mut last = TcpStream::connect(place)?;
    last.write_all(&[0])?;
    let _ = accepting.join();
    found.map(Sample::from)
}

/// The command, if there are TAP devices.
fn program() -> Result<PathBuf, Trouble> {
    if !Path::new("/dev/net/tun").exists() {
        return Err(Trouble::Skipped("needs /dev/net/tun (modprobe tun)".into()));
    }
    command()
}

/// Starts a graph or a program, which is ended with what this answers.
fn start(command: &mut Command) -> Result<Running, String> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Running::start(command, (Signal::INT, PATIENCE)).map_err(|error| error.to_string())
}

/// A program with a library, on which a tool serves a port.
fn member(tool: &str, port: u16, at: &Path) -> Result<Running, String> {
    let command = child::again("member", &format!("{tool} {port} {}", at.display()));
    start(&mut command.map_err(|trouble| format!("{trouble:?}"))?)
}

/// Runs a graph, here in a namespace of its own, and measures. The argument is what is done, with
/// how many octets, how often, and the graph's path.
pub(crate) fn organisation(argument: &str) -> Result<Vec<f64>, String> {
    let words: Vec<&str> = argument.splitn(4, ' ').collect();
    let [name, octets, count, path] = words[..] else {
        return Err("no graph".into());
    };
    let peer = PEERS.iter().find(|(known, _)| *known == name).ok_or("no such work")?.1;
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    let (octets, count) = (number(octets)?.max(1), number(count)?.max(1));
    let graph = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let door = Path::new(path).with_file_name("library.sock");
    let at = graph.contains(&*door.to_string_lossy()).then_some(&*door);
    let is_program = matches!(peer, Peer::Listens | Peer::Echoes);
    let running = match at.is_none() && is_program {
        true => None,
        false => {
            let program = program().map_err(|trouble| format!("{trouble:?}"))?;
            Some(start(Command::new(program).args(["run", path]))?)
        }
    };
    let member = match (at, peer) {
        (None, _) | (_, Peer::Listens | Peer::Echoes) => None,
        (Some(at), Peer::Answers) => Some(member("echo", ECHO_PORT, at)?),
        (Some(at), _) => Some(member("discard", DISCARD_PORT, at)?),
    };
    let found = match peer {
        Peer::Datagrams => datagrams(octets, count),
        Peer::Answers => answers(octets, count),
        Peer::Stream => stream(octets, count),
        Peer::Connects => connection(DISCARD_PORT)
            .and_then(|first| end(&first))
            .and_then(|()| connects((HOST, DISCARD_PORT).into(), count)),
        Peer::Listens => return opens(&graph, at, count),
        Peer::Echoes => return asks(&graph, at, (octets, count)),
    };
    drop((member, running));
    found.map(|figure| vec![figure])
}

fn mean_us(begun: Instant, count: usize) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn datagrams(octets: usize, count: usize) -> Result<f64, String> {
    let text = |error: Error| error.to_string();
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(text)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN)).map_err(text)?;
    let (frame, mut room) = (vec![7; octets], vec![0; octets + 16]);
    // Until the device is there nothing can be sent.
    let mut trip =
        || socket.send_to(&frame, (HOST, ECHO_PORT)).is_ok() && socket.recv(&mut room).is_ok();
    let ends = Instant::now() + PATIENCE;
    while !trip() {
        if Instant::now() > ends {
            return Err(format!("nothing came back within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Late answers of the first tries are none of those measured.
    std::thread::sleep(ANSWER_WITHIN);
    socket.set_nonblocking(true).map_err(text)?;
    while socket.recv(&mut [0; 16]).is_ok() {}
    socket.set_nonblocking(false).map_err(text)?;
    let begun = Instant::now();
    let done = (0..count).filter(|_| trip()).count();
    let taken = mean_us(begun, done);
    if done < count {
        return Err(format!("{done} of {count} came back within {} ms", ANSWER_WITHIN.as_millis()));
    }
    Ok(taken)
}

/// A connection to the host, once it is up.
fn connection(port: u16) -> Result<TcpStream, String> {
    let ends = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect_timeout(&(HOST, port).into(), PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| error.to_string())?;
                stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
                stream.set_write_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > ends => return Err(format!("no connection: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn answers(octets: usize, count: usize) -> Result<f64, String> {
    let mut stream = connection(ECHO_PORT)?;
    let (sent, mut came) = (vec![7; octets], vec![0; octets]);
    let mut trip = || {
        let done = stream.write_all(&sent).and_then(|()| stream.read_exact(&mut came));
        done.map_err(|error| format!("no answer within the time: {error}"))
    };
    trip()?;
    let begun = Instant::now();
    for _ in 0..count {
        trip()?;
    }
    Ok(mean_us(begun, count))
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
    let us = mean_us(begun, 1);
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

fn connects(to: SocketAddr, count: usize) -> Result<f64, String> {
    let mut taken = Duration::ZERO;
    for _ in 0..count {
        let begun = Instant::now();
        let stream = TcpStream::connect(to).map_err(|error| error.to_string())?;
        taken += begun.elapsed();
        end(&stream)?;
    }
    Ok(taken.as_secs_f64() * 1e6 / count as f64)
}
