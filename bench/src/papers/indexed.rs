//! TCP between two hosts of ours over shared memory whose network I/O modules find the right of a
//! frame by an index in its link header: our like of the paper's AN1, whose controller did so.
//!
//! As in the paper both ends are one system. One host has the applications; the program that
//! measures is on the other, on its library or with all of its protocols in itself.

use super::member::opens_to;
use super::organisation::{DISCARD_PORT, ECHO_PORT, member, start};
use super::times::{ANSWER_TIME_MAX, each, sample};
use crate::case::{Sample, Trouble};
use crate::child::{self, Running, command};
use crate::folder;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xk_catalog::PROTOCOLS;
use xk_net::{Here, Setup, Stack, TcpStream};

/// The user that hosts are of, once they are up (Debian's base-passwd).
const NOBODY: u32 = 65_534;
/// The host with the applications.
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// Place of the protocols at both ends, and how frames find their rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    OneProcess,
    ByMap,
    ByIndex,
}

pub(super) const ENDS: [(&str, Ends); 3] = [
    ("xk, one process", Ends::OneProcess),
    ("xk, library by map", Ends::ByMap),
    ("xk, library by index", Ends::ByIndex),
];

/// The work of the program, and the figure that comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Writes to `echo`: the mean microseconds until all of it is back.
    Answers,
    /// Writes to `discard`: megabits a second until the other side has taken all and closed.
    Stream,
    /// Connects to `discard`: the mean microseconds until the connection is there.
    Connects,
}

/// Has the program do its work so often, with so many octets.
///
/// # Errors
/// [`Trouble`]: the machine's, or what went wrong.
pub(super) fn measure(
    ends: Ends,
    work: Work,
    octets: usize,
    count: f64,
) -> Result<Sample, Trouble> {
    command()?;
    let folder = folder::own()?;
    // The hosts' own: a program trusts what listens where no other user may write.
    let _ = chown(folder.path(), Some(NOBODY), Some(NOBODY));
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let (count, folder) = (count.max(1.0) as usize, folder.path().display());
    let words = format!("{ends:?} {work:?} {octets} {count} {folder}");
    sample(&child::ask_alone("indexed", &words)?)
}

/// The text of a host, of which there are two.
fn graph(ends: Ends, number: u8, folder: &Path) -> String {
    let at = |what: &str| folder.join(format!("{what}{number}"));
    let link = folder.join("link");
    let ip = format!(
        "eth  WIRE\narp eth\nip arp {{ address \"10.0.0.{number}/24\"; }}\nudp ip\ntcp ip\n"
    );
    let demux = match ends {
        Ends::OneProcess => {
            // The other end is another user's.
            let (peer, tools) = match number {
                1 => (NOBODY, String::new()),
                _ => (0, format!("echo tcp port={ECHO_PORT}\ndiscard tcp port={DISCARD_PORT}\n")),
            };
            let ip = ip.replace("WIRE", "shm");
            return format!(
                "host h{number} {{\nshm path={link:?} peer_uid={peer}\n{ip}{tools}}}\n"
            );
        }
        Ends::ByMap => "map",
        Ends::ByIndex => "index",
    };
    let (ip, door, open) = (ip.replace("WIRE", "netio"), at("door"), at("open"));
    format!(
        "host h{number} {{
            domain device {{ shm path={link:?}; netio shm door={door:?} demux={demux}; }}
            domain server {{ {ip} registry netio tcp; }}
            domain programs open path={open:?} {{
                grant tcp
                grant tcp port=\"{ECHO_PORT}..{DISCARD_PORT}\"
                grant udp port=\"5000..5999\"
                grant registry
            }}
        }}\n"
    )
}

/// Starts a host.
fn host(ends: Ends, number: u8, folder: &Path) -> Result<Running, String> {
    let path = folder.join(format!("graph{number}"));
    std::fs::write(&path, graph(ends, number, folder)).map_err(text)?;
    let program = command().map_err(|trouble| format!("{trouble:?}"))?;
    let mut command = Command::new(program);
    start(command.args(["run", "--user", "nobody", "--no-control"]).arg(path), Stdio::null())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The work of [`measure`], in a namespace of its own.
pub(crate) fn indexed(argument: &str) -> Result<Vec<f64>, String> {
    let words: Vec<&str> = argument.splitn(5, ' ').collect();
    let [ends, work, octets, count, folder] = words[..] else { return Err("no work".into()) };
    let ends = ENDS.iter().find(|(_, known)| format!("{known:?}") == ends).ok_or("no ends")?.1;
    let works = [Work::Answers, Work::Stream, Work::Connects];
    let work =
        works.into_iter().find(|known| format!("{known:?}") == work).ok_or("no such work")?;
    let [octets, count] = [octets, count].map(|text| text.parse::<usize>().unwrap_or(1).max(1));
    let folder = PathBuf::from(folder);
    let _server = host(ends, 2, &folder)?;
    let (tool, port) = match work {
        Work::Answers => ("echo", ECHO_PORT),
        _ => ("discard", DISCARD_PORT),
    };
    let (own, _programs) = match ends {
        Ends::OneProcess => (None, None),
        _ => {
            let other = member(tool, port, &folder.join("open2"))?;
            (Some(folder.join("open1")), Some((host(ends, 1, &folder)?, other)))
        }
    };
    let text_of = graph(ends, 1, &folder);
    if work == Work::Connects {
        // The first is tried until the other side serves.
        drop(connection(&text_of, own.as_deref(), port)?);
        return opens_to(&text_of, own.as_deref(), count, (SERVER, port));
    }
    let (_stack, mut stream) = connection(&text_of, own.as_deref(), port)?;
    let sent = vec![7; octets];
    match work {
        Work::Stream => {
            let begun = Instant::now();
            (0..count).try_for_each(|_| stream.write_all(&sent)).map_err(text)?;
            stream.shutdown(Shutdown::Write).map_err(text)?;
            let rest = stream.read(&mut [0]).map_err(text)?;
            let us = begun.elapsed().as_secs_f64() * 1e6;
            if rest > 0 {
                Err("discard answered".into())
            } else {
                Ok(vec![(octets * count) as f64 * 8.0 / us])
            }
        }
        _ => {
            let mut came = vec![0; octets];
            let mut trip = || {
                let begun = Instant::now();
                let done = stream.write_all(&sent).and_then(|()| stream.read_exact(&mut came));
                done.map_err(|error| format!("no answer within the time: {error}"))?;
                Ok(begun.elapsed())
            };
            trip()?;
            each(count, trip)
        }
    }
}

/// A connection of this program, on the library that is open at `own` or with all of its host in
/// itself, once the other side serves.
fn connection(
    graph: &str,
    own: Option<&Path>,
    port: u16,
) -> Result<(Stack<Here>, TcpStream), String> {
    let setup = match own {
        Some(path) => Setup::library(path, PROTOCOLS),
        None => Setup::from_text(graph, PROTOCOLS),
    };
    let ends = Instant::now() + ANSWER_TIME_MAX;
    let again = |error: std::io::Error| {
        std::thread::sleep(Duration::from_millis(20));
        if Instant::now() > ends { Err(format!("no connection: {error}")) } else { Ok(()) }
    };
    let stack = loop {
        match setup.here() {
            Ok(stack) => break stack,
            Err(error) => again(error)?,
        }
    };
    loop {
        match TcpStream::connect(&stack, (std::net::Ipv4Addr::from(SERVER), port)) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(text)?;
                stream.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(text)?;
                stream.set_write_timeout(Some(ANSWER_TIME_MAX)).map_err(text)?;
                return Ok((stack, stream));
            }
            Err(error) => again(error)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_graphs() {
        let catalog = xk_catalog::standard();
        for (name, ends) in ENDS {
            for number in [1, 2] {
                let text = graph(ends, number, Path::new("/run/xk/indexed"));
                let checked = xk_compose::check(&text, "indexed.kdl", &catalog);
                checked.unwrap_or_else(|mistakes| panic!("{name}: {}", mistakes.to_text()));
            }
        }
    }
}
