//! Clients of a running graph's control socket: `xk dump`, `xk trace`, `xk capture`.

use super::{ANSWER_OCTETS_MAX, all, tree};
use crate::failure::Failure;
use crate::{conversation, file, files, output, view};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xk_run::interrupt_unsafe;
use xk_shm::peer_of;

/// Time between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest time for an answer: a host in domains asks each of its domains.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Longest time for a graph's answer by which it is listed for the user.
const NAME_WITHIN: Duration = Duration::from_secs(1);

/// Selects a running graph.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// The process id of the `xk run` or `xk exec`; not needed if only one runs
    #[arg(long)]
    pid: Option<u32>,
    /// Control socket of the running graph
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    control: Option<PathBuf>,
}

impl Target {
    /// Refuses a command line that does not name the running graph, even if there is only one: for
    /// commands that change it.
    ///
    /// # Errors
    /// An error that lists the running graphs.
    pub(crate) fn named(&self) -> Result<&Self, Failure> {
        if self.pid.is_some() || self.control.is_some() {
            return Ok(self);
        }
        let what = "name the running graph, by --pid or --control";
        Err(Failure::usage(what).help(match listed(&running(None)?) {
            list if list.is_empty() => "none runs here".into(),
            list => format!("here run: {list}"),
        }))
    }
}

/// Show a running graph: its protocols with their counters, sessions, maps, pool and timers
#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    target: Target,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Draw the messages that conversations of many keep, as an SVG file; `-` for the standard
    /// output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    context: Option<PathBuf>,
}

/// Show how the next messages cross the layers of a running graph, with the time each layer takes
#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    target: Target,
    /// Number of messages
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    messages: u64,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Write what crosses an edge of a running graph to a pcapng file
#[derive(clap::Args)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    target: Target,
    /// `UPPER>LOWER` by their names in the graph, such as "eth>tap", or LOWER for all edges above
    /// it
    edge: String,
    /// The file to write; `-` for the standard output
    file: PathBuf,
    /// Duration; without it, until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = file::duration)]
    limit: Option<Duration>,
}

pub(crate) fn dump(args: &DumpArgs) -> Result<(), Failure> {
    let mut connection = Connection::open(&args.target)?;
    let dump = connection.ask(&json!({"ask": "dump"}))?;
    if args.json {
        output::print(&format!("{}\n", pretty(&dump)));
        return Ok(());
    }
    if let Some(path) = &args.context {
        let all = dump["conversations"].as_array().map_or(&[][..], Vec::as_slice);
        return conversation::draw(all, path);
    }
    let about = &dump["about"];
    let up_s = dump["now_ns"].as_u64().unwrap_or(0) as f64 / 1e9;
    output::print(&format!(
        "host {} of {}, process {}, up {up_s:.1} s\n\n{}",
        about["host"].as_str().unwrap_or_default(),
        about["file"].as_str().unwrap_or_default(),
        about["pid"],
        view::whole(&dump)
    ));
    Ok(())
}

pub(crate) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let mut connection = Connection::open(&args.target)?;
    // Without a limit: the next message may come late.
    let patient = connection.reader.get_ref().set_read_timeout(None);
    patient.map_err(|error| Failure::file("cannot talk with", &connection.path, error))?;
    let trace = connection.ask(&json!({"ask": "trace", "messages": args.messages}))?;
    if args.json {
        output::print(&format!("{}\n", pretty(&trace)));
    } else {
        output::print(&tree::text(&trace));
    }
    Ok(())
}

pub(crate) fn capture(args: &CaptureArgs) -> Result<(), Failure> {
    let mut connection = Connection::open(&args.target)?;
    let found = connection.ask(&json!({"ask": "capture", "edge": args.edge}))?;
    let failed = |error: std::io::Error| Failure::file("cannot write", &args.file, error);
    let to_stdout = args.file.as_os_str() == "-";
    let mut out: Box<dyn Write> = if to_stdout {
        Box::new(std::io::stdout())
    } else {
        Box::new(File::create(&args.file).map_err(failed)?)
    };
    interrupt_unsafe::catch();
    let octets = connection.copy(&mut out, args.limit).map_err(failed)?;
    let edge = found["edge"].as_str().unwrap_or_default();
    output::error(&format!("{edge}: {} octets captured\n", output::grouped(octets)));
    Ok(())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A conversation with a running graph.
pub(crate) struct Connection {
    reader: BufReader<UnixStream>,
    path: PathBuf,
}

impl Connection {
    /// Connects to the control socket that `target` selects.
    pub(crate) fn open(target: &Target) -> Result<Self, Failure> {
        let path = match (&target.control, target.pid) {
            (Some(path), _) => path.clone(),
            (None, pid) => find(pid)?,
        };
        Self::at(path)
    }

    /// Connects to the control socket at `path`.
    fn at(path: PathBuf) -> Result<Self, Failure> {
        let stream = UnixStream::connect(&path).map_err(|error| {
            Failure::file("cannot connect to", &path, error).help(
                "a graph is run by `xk run FILE`, which names its control socket, or by `xk exec`",
            )
        })?;
        believed(&stream, &path)?;
        let failed = |error| Failure::file("cannot talk with", &path, error);
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(failed)?;
        Ok(Self { reader: BufReader::new(stream), path })
    }

    /// Asks for the device of a protocol, or for the control socket.
    pub(crate) fn ask_for_device(&mut self, name: Option<&str>) -> Result<OwnedFd, Failure> {
        let failed = |error| Failure::file("was given no device by", &self.path, error);
        let request = json!({"ask": "device", "name": name});
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
        // The reader holds no octets, because each earlier answer was read whole.
        Ok(files::take(self.reader.get_ref()).map_err(failed)?.1)
    }

    /// Reads the next `octets` octets behind an answer.
    pub(crate) fn read(&mut self, octets: usize) -> Result<Vec<u8>, Failure> {
        let failed = |error| Failure::file("lost the connection to", &self.path, error);
        let mut all = Vec::new();
        self.reader.by_ref().take(octets as u64).read_to_end(&mut all).map_err(failed)?;
        match all.len() == octets {
            true => Ok(all),
            false => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Whether the other side has hung up.
    pub(crate) fn is_over(&mut self) -> bool {
        let unread = self.reader.get_ref().set_nonblocking(true).map(|()| self.reader.fill_buf());
        match unread {
            Ok(Ok(left)) => left.is_empty(),
            Ok(Err(error)) => error.kind() != std::io::ErrorKind::WouldBlock,
            Err(_) => true,
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            if is_pause(&error) {
                let within = ANSWER_WITHIN.as_secs();
                return Failure::file("no answer within", path, format!("{within} s"))
                    .help("the process may be stopped: `kill -CONT` lets it go on");
            }
            Failure::file("lost the connection to", path, error)
        };
        let line = format!("{request}\n");
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        sent.map_err(|error| failed(&self.path, error))?;
        let mut answer = String::new();
        let mut bounded = self.reader.by_ref().take(ANSWER_OCTETS_MAX);
        let read = bounded.read_line(&mut answer);
        let octets = read.map_err(|error| failed(&self.path, error))?;
        if octets == 0 {
            return Err(Failure::new("the running graph ended before it answered"));
        }
        if !answer.ends_with('\n') && octets as u64 == ANSWER_OCTETS_MAX {
            let text = format!("the answer has more than {ANSWER_OCTETS_MAX} octets");
            return Err(Failure::new(text));
        }
        let mut answer: Value = serde_json::from_str(&answer)
            .map_err(|error| Failure::file("no sense in the answer of", &self.path, error))?;
        if let Some(error) = answer["error"].as_str() {
            return Err(Failure::new(error));
        }
        Ok(answer["ok"].take())
    }

    /// Copies the octets that follow an answer, until the other side ends, `limit` is over or the
    /// user presses Ctrl-C. Returns their number.
    fn copy(&mut self, out: &mut dyn Write, limit: Option<Duration>) -> std::io::Result<u64> {
        self.reader.get_ref().set_read_timeout(Some(LOOK_EVERY))?;
        let begun = Instant::now();
        let mut octets = 0;
        let mut piece = vec![0; 1 << 16];
        loop {
            if limit.is_some_and(|limit| begun.elapsed() >= limit)
                || interrupt_unsafe::is_requested()
            {
                break;
            }
            match self.reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    out.write_all(piece.get(..count).unwrap_or_default())?;
                    octets += count as u64;
                }
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        out.flush()?;
        Ok(octets)
    }
}

fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// The processes that run a graph, with their sockets: the process `pid`, or all that answer.
fn running(pid: Option<u32>) -> Result<Vec<(u32, PathBuf)>, Failure> {
    let all = all().map_err(|error| Failure::new(format!("no graph runs here: {error}")))?;
    let runs = |path: &PathBuf| UnixStream::connect(path).is_ok();
    let found = all.into_iter().filter(|(number, path)| match pid {
        Some(pid) => *number == pid,
        None => runs(path),
    });
    Ok(found.collect())
}

/// Host and file of the graph that runs at a socket, in words; `None` without an answer in time.
fn name_of(path: &Path) -> Option<String> {
    let mut connection = Connection::at(path.to_owned()).ok()?;
    connection.reader.get_ref().set_read_timeout(Some(NAME_WITHIN)).ok()?;
    let about = connection.ask(&json!({"ask": "about"})).ok()?;
    Some(format!("host {} of {}", about["host"].as_str()?, about["file"].as_str()?))
}

/// The running graphs, each by the option that selects it, with its host.
fn listed(all: &[(u32, PathBuf)]) -> String {
    let one = |(pid, path): &(u32, PathBuf)| match name_of(path) {
        Some(name) => format!("--pid {pid} ({name})"),
        None => format!("--pid {pid}"),
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The socket of the process `pid`; without `pid` that of the only one, whose name is then printed.
fn find(pid: Option<u32>) -> Result<PathBuf, Failure> {
    let found = running(pid)?;
    match found.as_slice() {
        [(_, only)] if pid.is_some() => Ok(only.clone()),
        [(number, only)] => {
            let name = name_of(only).map_or_else(String::new, |name| format!("{name}, "));
            output::error(&format!("{name}process {number}, at {}\n", only.display()));
            Ok(only.clone())
        }
        [] => Err(Failure::new(match pid {
            Some(pid) => format!("no graph runs in process {pid}"),
            None => "no graph runs here".into(),
        })
        .help("run one: xk run FILE, or a program on one: xk exec")),
        several => Err(Failure::usage(format!("{} graphs run here", several.len()))
            .help(format!("choose one: {}", listed(several)))),
    }
}

/// Refuses to talk with another user's process: only this user's own and root's are believed.
fn believed(stream: &UnixStream, path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::file("cannot ask who listens at", path, error);
    let other = peer_of(stream).map_err(failed)?.uid;
    if other == 0 || other == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let text = format!("a process of user {other} listens at {}", path.display());
    Err(Failure::new(text).help("only processes of this user or of root are asked"))
}
