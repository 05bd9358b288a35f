//! `xk exec`: an unmodified program on the sockets of a graph.

use crate::control::{self, Server};
use crate::descendants_unsafe;
use crate::failure::Failure;
use crate::host;
use crate::linkage;
use crate::log::Verbosity;
use crate::signals_unsafe::{self, Before};
use crate::user::{self, User};
use crate::user_unsafe;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, WaitOptions, getrlimit, kill_process, setrlimit, waitpid,
};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use xk_lang::HostInstance;
use xk_net::Setup;
use xk_relay::{Folder, Relay};
use xk_request::VARIABLE;
use xk_run::Runner;

/// The library's file.
const LIBRARY: &str = "libxk_preload.so";
/// The variable by which the loader takes it in.
const LD_PRELOAD: &str = "LD_PRELOAD";
/// Names of the graph's devices, known once it is open.
type Names = Arc<Mutex<Vec<String>>>;

/// Time for which written octets are still sent after the program's end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Run a program with its TCP and UDP on a graph: addresses of the graph are reached through it,
/// all others through Linux
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The graph file
    #[arg(long, value_name = "FILE", required_unless_present = "at")]
    graph: Option<PathBuf>,
    /// In place of a graph, a host that runs elsewhere: the socket of its domain `open`, which
    /// grants this user the protocols below the sockets
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["graph", "host", "control", "no_control"])]
    at: Option<PathBuf>,
    /// Host of the graph; not needed if it has only one
    #[arg(long)]
    host: Option<String>,
    /// Node for streams; not needed if there is one `tcp`
    #[arg(long, value_name = "NODE")]
    tcp: Option<String>,
    /// Node for datagrams; not needed if there is one `udp`
    #[arg(long, value_name = "NODE")]
    udp: Option<String>,
    #[command(flatten)]
    user: user::UserArgs,
    #[command(flatten)]
    control: control::ServerArgs,
    #[command(flatten)]
    log: Verbosity,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let library = library()?;
    let setup = args.setup()?;
    let user = args.user.find()?;
    let before = signals_unsafe::hold_back();
    let folder = Folder::make().map_err(failed)?;
    let pid = std::process::id();
    let serve = |folder, line: &UnixStream| {
        // Before it becomes another user, as for `xk run`. That there is no place for it is none of
        // the program's standard error.
        let server = match args.at {
            // The process that runs the host has one.
            Some(_) => None,
            None => args.control.serve(user, pid, |_| {})?.map(Arc::new),
        };
        if let Some(server) = &server {
            let path = server.path().display();
            args.log.say(|| format!("control socket {path}"));
        }
        let devices = Arc::default();
        let setup = setup.once_open(opened(server.as_ref(), args, &devices));
        serve(args, &setup, user, folder, &devices, line)
    };
    let (stack, ticket) = StackProcess::start(folder, serve)?;
    let status = run(args, &library, &ticket, before, stack.pid)?;
    stack.end()?;
    match code(status) {
        0 => Ok(()),
        code => Err(Failure::Ended(code)),
    }
}

impl Args {
    /// Returns the protocols that the sockets stand on.
    fn setup(&self) -> Result<Setup, Failure> {
        let entries = xk_catalog::PROTOCOLS;
        let mut setup = match (&self.at, &self.graph) {
            (Some(path), _) => Setup::attached(path, entries),
            (None, Some(file)) => {
                let read = Setup::from_file(file, entries);
                read.map_err(|error| Failure::file("cannot read", file, error))?
            }
            (None, None) => return Err(Failure::usage("neither --graph nor --at is given")),
        };
        if let Some(host) = &self.host {
            setup = setup.host(host);
        }
        if let Some(node) = &self.tcp {
            setup = setup.tcp(node);
        }
        if let Some(node) = &self.udp {
            setup = setup.udp(node);
        }
        Ok(setup)
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::new(error.to_string().trim_end())
}

/// The process that has the stack. This one keeps the program's user, and reads nothing that comes
/// from a network.
struct StackProcess {
    /// Closed to make it end.
    line: UnixStream,
    pid: Pid,
    /// Removed by this process.
    _folder: Folder,
}

impl StackProcess {
    /// Divides this process; answers when the stack is there, with what programs need to ask it.
    fn start(
        folder: Folder,
        serve: impl FnOnce(Folder, &UnixStream) -> Result<(), Failure>,
    ) -> Result<(Self, String), Failure> {
        let (line, far) = UnixStream::pair().map_err(failed)?;
        let Some(pid) = user_unsafe::fork().map_err(failed)? else {
            drop(line);
            let ended = serve(folder, &far);
            if let Err(failure) = &ended {
                failure.show();
            }
            std::process::exit(i32::from(ended.is_err()));
        };
        drop(far);
        let stack = Self {
            line,
            pid: Pid::from_raw(pid).ok_or_else(|| Failure::new("a process without a number"))?,
            _folder: folder,
        };
        let mut ticket = String::new();
        let heard = BufReader::new(&stack.line).read_line(&mut ticket);
        match heard {
            // It has said why.
            Ok(0) | Err(_) => Err(Failure::Said),
            Ok(_) => Ok((stack, ticket.trim_end().into())),
        }
    }

    /// Has what was written sent, and waits for that.
    fn end(self) -> Result<(), Failure> {
        self.line.shutdown(Shutdown::Write).map_err(failed)?;
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
                // It may have been waited for already, when it ended before the program.
                _ => return Err(Failure::new("the stack has ended before its time")),
            }
        }
    }
}

/// Runs on the stack's thread once its devices are open: gives up all rights, and answers `xk dump`
/// and such.
fn opened(
    server: Option<&Arc<Server>>,
    args: &Args,
    devices: &Names,
) -> impl Fn(&Rc<Runner>, &HostInstance<'_>) -> io::Result<()> + Send + Sync + 'static {
    let (file, log) = (args.graph.clone().unwrap_or_default(), args.log);
    // The socket is to go with its owner, even if the thread does not end.
    let server = server.map(Arc::downgrade);
    let names = Arc::clone(devices);
    move |runner, host| {
        *names.lock().unwrap_or_else(PoisonError::into_inner) = host::device_names(host);
        user::shed()?;
        log.look_on(runner)?;
        if log.is_verbose() {
            for line in host::devices(runner.kernel(), host).lines {
                log.say(|| line);
            }
        }
        match server.as_ref().and_then(Weak::upgrade) {
            Some(server) => server.attach(runner, host, &file),
            None => Ok(()),
        }
    }
}

/// The stack's process: until the line is closed.
fn serve(
    args: &Args,
    setup: &Setup,
    user: User,
    folder: Folder,
    devices: &Names,
    line: &UnixStream,
) -> Result<(), Failure> {
    folder.give_to(user.uid, user.gid).map_err(failed)?;
    // Each socket of the program has an end here.
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, all);
    user.begin()?;
    if args.at.is_some() {
        // There are no devices to open.
        user::shed().map_err(failed)?;
    }
    let stack = setup.thread().map_err(failed)?;
    let devices = devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let relay = Relay::start(stack.clone(), folder, devices).map_err(failed)?;
    user.give_up_root()?;
    args.log.say_user(user);
    let mut line = line;
    writeln!(line, "{}", relay.ticket()).map_err(failed)?;
    // The end of the line, however that comes.
    let _ = line.read(&mut [0]);
    let ended = Instant::now();
    match relay.lost() {
        0 => {}
        lost => {
            args.log.warn(&format!("{lost} datagrams were lost between the stack and the program"))
        }
    }
    drop(relay);
    // Whether all of it arrived or not, the program has ended.
    let _ = stack.drain(FAREWELL.saturating_sub(ended.elapsed()));
    // What captures the graph has written all then.
    stack.end(FAREWELL);
    Ok(())
}

fn run(
    args: &Args,
    library: &OsStr,
    ticket: &str,
    before: Before,
    stack: Pid,
) -> Result<ExitStatus, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::usage("no program"));
    };
    let mut preload = library.to_owned();
    if let Some(others) = std::env::var_os(LD_PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    if let Some(why) = linkage::stays_linux(program) {
        args.log.warn(&format!(
            "the sockets of {} are Linux's, not the graph's: {why}",
            program.display()
        ));
    }
    let mut command = Command::new(program);
    command.args(rest).env(LD_PRELOAD, preload).env(VARIABLE, ticket);
    signals_unsafe::ends_with_us(&mut command, before);
    descendants_unsafe::become_theirs();
    let child = command.spawn().map_err(|error| not_run(program.as_ref(), &error))?;
    let pid = Pid::from_child(&child);
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    std::thread::Builder::new()
        .name("xk-signals".into())
        .spawn(move || pass_signals(pid, stack, &ended))
        .map_err(|error| Failure::new(error.to_string()))?;
    let left_behind = || {
        has_ended.store(true, Ordering::SeqCst);
        if !descendants_unsafe::children(stack).is_empty() {
            let program = program.display();
            args.log.warn(&format!(
                "{program} has ended, and what it started still runs, on the graph; Ctrl-C ends it"
            ));
        }
    };
    let status = descendants_unsafe::wait(pid, stack, left_behind);
    drop(child);
    status.map_err(|error| Failure::file("cannot wait for", program.as_ref(), error))
}

/// As a shell has it: 127 for a program that is not there, 126 for one that cannot be run.
fn not_run(program: &Path, error: &std::io::Error) -> Failure {
    let what = format!("cannot run {}: {error}", program.display());
    match error.kind() {
        ErrorKind::NotFound => Failure::coded(what, 127),
        _ => Failure::coded(what, 126),
    }
}

/// Passes on to the program what asks this process to end; once it has ended, to those that it has
/// left behind.
fn pass_signals(pid: Pid, stack: Pid, has_ended: &AtomicBool) {
    while let Some((signal, from_terminal)) = signals_unsafe::next() {
        if has_ended.load(Ordering::SeqCst) {
            // Those that it has left behind are in no terminal's foreground.
            descendants_unsafe::signal(signal, stack);
        } else if !from_terminal {
            // It may be ending just now.
            let _ = kill_process(pid, signal);
        }
    }
}

/// As a shell has it: that of the program, or 128 and the signal that ended it.
fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1)
}

/// The library lies beside this program, where cargo builds it, or where `cargo xtask install` puts
/// it.
fn library() -> Result<OsString, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    let beside = own.with_file_name(LIBRARY);
    let built = own.with_file_name("deps").join(LIBRARY);
    let installed = own.with_file_name("../lib/xk").join(LIBRARY);
    // The newer one: cargo leaves an older one where it is.
    let made = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    let found = [beside, built, installed].into_iter().filter(|path| path.exists());
    let found = found.max_by_key(made);
    found.map(PathBuf::into_os_string).ok_or_else(|| {
        Failure::new(format!("`{LIBRARY}` is missing beside {}", own.display()))
            .help("build it: cargo build -p xk-preload, with the same profile as this program; or install both: cargo xtask install")
    })
}
