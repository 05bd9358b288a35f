//! The side of the running graph.

use super::request::Request;
use super::successor::Successor;
use super::watch::Watch;
use super::{CLIENTS_MAX, REQUEST_OCTETS_MAX, SESSIONS_SHOWN_MAX, tree};
use crate::failure::Failure;
use crate::files;
use crate::stream;
use crate::view::{self, Lowers};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use xk_core::Kernel;
use xk_lang::HostInstance;
use xk_run::Runner;

/// Time that a client may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a client may take between two requests.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Pieces of a capture that wait for a slow client; more are lost and counted.
const PIECES_MAX: usize = 4096;
/// Octets of such a piece that comes from another process.
const PIECE_OCTETS: usize = 1 << 16;
/// Interval at which a client's thread looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A part of the loop's answer.
pub(super) enum Piece {
    /// A line, or a piece of a capture.
    Octets(Vec<u8>),
    /// A descriptor of a device.
    Device(OwnedFd),
}

pub(super) type Answers = SyncSender<Piece>;

/// Takes clients.
pub(crate) struct Clients {
    sender: Option<Sender<Job>>,
    doorbell: Arc<OwnedFd>,
}

impl Clients {
    /// Takes one. `over` is set, and the doorbell rung, when it has hung up.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(crate) fn take(
        &self,
        reader: BufReader<UnixStream>,
        over: Arc<AtomicBool>,
    ) -> io::Result<()> {
        let (sender, bell) = (self.sender.clone(), Arc::clone(&self.doorbell));
        std::thread::Builder::new().name("control".into()).spawn(move || {
            if let Some(sender) = sender {
                let _ = converse(reader, &sender, &bell);
            }
            over.store(true, Ordering::Release);
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        })?;
        Ok(())
    }
}

/// A request on its way to the graph's loop.
pub(crate) struct Job {
    pub(super) request: Request,
    pub(super) answers: Answers,
}

impl Job {
    /// The request.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Answers with all that comes from there, on a thread of its own.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(crate) fn answer_from(self, mut source: UnixStream) -> io::Result<()> {
        std::thread::Builder::new().name("capture".into()).spawn(move || {
            let mut piece = vec![0; PIECE_OCTETS];
            while let Ok(octets @ 1..) = source.read(&mut piece) {
                let piece = piece.get(..octets).unwrap_or_default().to_vec();
                if self.answers.send(Piece::Octets(piece)).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Answers with a line.
    pub(crate) fn answer(&self, line: &Value) {
        send_line(&self.answers, line);
    }
}

/// A graph's socket. It goes with this.
pub(crate) struct Server {
    path: PathBuf,
    /// The process that users see.
    pid: u32,
    doorbell: Arc<OwnedFd>,
    listener: UnixListener,
    /// Another process has the socket now.
    is_given: Arc<AtomicBool>,
}

impl Server {
    /// A socket at `path`, for this user's eyes, by which the graph of the process `pid` is looked
    /// into.
    pub(super) fn new(path: PathBuf, pid: u32) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::file("cannot make the control socket", &path, error)
                .help("choose another place by --control PATH, or none by --no-control")
        };
        remove_stale(&path);
        // The user's own from its first moment; no other thread makes files meanwhile, for this is
        // the first.
        let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(mask);
        let listener = bound.map_err(failed)?;
        Self::at(path.clone(), pid, listener).map_err(failed)
    }

    fn at(path: PathBuf, pid: u32, listener: UnixListener) -> io::Result<Self> {
        let doorbell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        Ok(Self { path, pid, doorbell, listener, is_given: Arc::default() })
    }

    /// The socket at `path` of the process `before`, which has given it to this one. Where its name
    /// says whose it is, it says this one's number from now on.
    ///
    /// # Errors
    /// If there is no descriptor for it, or it cannot be called otherwise.
    pub(crate) fn given(listener: OwnedFd, path: &Path, before: u32) -> io::Result<Self> {
        let pid = std::process::id();
        let is_numbered = path.file_name().is_some_and(|name| name == &*super::name_of(before));
        let own = match is_numbered {
            true => path.with_file_name(super::name_of(pid)),
            false => path.to_owned(),
        };
        if is_numbered {
            std::fs::rename(path, &own)?;
        }
        Self::at(own, pid, listener.into())
    }

    /// Path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has the runner's loop answer requests about its kernel, in which `host` of `file` runs.
    ///
    /// # Errors
    /// If there is no descriptor or thread for it.
    pub(crate) fn attach(
        &self,
        runner: &Rc<Runner>,
        host: &HostInstance<'_>,
        file: &Path,
    ) -> io::Result<()> {
        self.desk(runner, host, file)?.stand_at(runner)
    }

    /// Makes the desk that answers requests about the runner's kernel, in which `host` of `file`
    /// runs.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach).
    pub(crate) fn desk(
        &self,
        runner: &Rc<Runner>,
        host: &HostInstance<'_>,
        file: &Path,
    ) -> io::Result<Desk> {
        let about = json!({
            "host": host.name,
            "file": file.display().to_string(),
            "pid": self.pid,
        });
        Ok(Desk::new(self.jobs()?, about, crate::host::lowers(host), runner))
    }

    /// Lets another process take the place of this one, which `desk` answers for and which goes on
    /// with the same graph.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub(crate) fn upgradable(&self, mut desk: Desk, graph: &str) -> io::Result<Desk> {
        desk.about["control"] = json!(self.path);
        let (listener, is_given) = (self.listener.try_clone()?, Arc::clone(&self.is_given));
        let what = (graph, &desk.about, &desk.lowers);
        desk.successor = Some(Successor::new(what, listener.into(), is_given));
        Ok(desk)
    }

    /// The requests of all clients from now on.
    ///
    /// # Errors
    /// If there is no descriptor or thread for it.
    pub(crate) fn jobs(&self) -> io::Result<Jobs> {
        let listener = self.listener.try_clone()?;
        let (sender, queue) = channel();
        let bell = Arc::clone(&self.doorbell);
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &sender, &bell))?;
        Ok(Jobs { queue, doorbell: Arc::clone(&self.doorbell), sender: None })
    }
}

/// Requests, and what is rung when there is one.
pub(crate) struct Jobs {
    queue: Receiver<Job>,
    doorbell: Arc<OwnedFd>,
    /// For clients that are given, and do not come by a socket of their own.
    sender: Option<Sender<Job>>,
}

impl Jobs {
    /// Makes the queue of jobs of the clients that it will be given.
    ///
    /// # Errors
    /// If there is no descriptor for it.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, queue) = channel();
        let doorbell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { queue, doorbell: Arc::new(doorbell), sender: Some(sender) })
    }

    /// The sender by which it is given clients.
    pub(crate) fn clients(&self) -> Clients {
        Clients { sender: self.sender.clone(), doorbell: Arc::clone(&self.doorbell) }
    }

    /// Descriptor that is readable when there may be a request.
    pub(crate) fn doorbell(&self) -> &OwnedFd {
        &self.doorbell
    }

    /// The next one, if there is one. The doorbell rings again for one that comes after this.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.doorbell, &mut count);
        self.queue.try_recv().ok()
    }

    /// The next one that comes within this time.
    pub(super) fn wait(&self, time: Duration) -> Option<Job> {
        self.queue.recv_timeout(time).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_given.load(Ordering::Acquire) {
            // It may be gone already, with its folder.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket without a listener.
pub(super) fn remove_stale(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if socket && UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// Takes clients, each on a thread of its own.
fn accept(listener: &UnixListener, jobs: &Sender<Job>, bell: &Arc<OwnedFd>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Out of descriptors, most likely: a pause, lest this spins.
            std::thread::sleep(LOOK_EVERY);
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            let text = format!("{}\n", json!({"error": "too many clients"}));
            let _ = stream.write_all(text.as_bytes());
            continue;
        }
        let (count, jobs, bell) = (Arc::clone(&clients), jobs.clone(), Arc::clone(bell));
        let client = move || {
            // Whatever ends a conversation ends it for this client alone.
            let timed = stream.set_read_timeout(Some(READ_TIMEOUT));
            let _ = timed.and_then(|()| converse(BufReader::new(stream), &jobs, &bell));
            count.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().spawn(client).is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Talks with one client until it hangs up.
fn converse(
    mut reader: BufReader<UnixStream>,
    jobs: &Sender<Job>,
    bell: &OwnedFd,
) -> std::io::Result<()> {
    let mut writer = reader.get_ref().try_clone()?;
    writer.set_write_timeout(Some(WRITE_TIMEOUT))?;
    loop {
        let mut line = String::new();
        let octets = reader.by_ref().take(REQUEST_OCTETS_MAX).read_line(&mut line)?;
        if octets == 0 {
            return Ok(());
        }
        let request = match Request::parse(&line) {
            Ok(request) => request,
            Err(error) => {
                let text = json!({"error": error});
                return writer.write_all(format!("{text}\n").as_bytes());
            }
        };
        let (answers, pieces) = sync_channel(PIECES_MAX);
        if jobs.send(Job { request, answers }).is_err() {
            return Ok(());
        }
        rustix::io::write(bell, &1u64.to_ne_bytes())?;
        deliver(&mut writer, &pieces)?;
    }
}

/// Writes what the loop answers until it has no more to say, or the client has gone.
fn deliver(writer: &mut UnixStream, pieces: &Receiver<Piece>) -> std::io::Result<()> {
    use std::sync::mpsc::RecvTimeoutError;
    loop {
        match pieces.recv_timeout(LOOK_EVERY) {
            Ok(Piece::Octets(piece)) => writer.write_all(&piece)?,
            Ok(Piece::Device(device)) => files::send(&*writer, 0, &device)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let mut octet = [0];
                let peek = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
                // Nothing to read and no error: the client has hung up.
                if let Ok((0, _)) = rustix::net::recv(&*writer, &mut octet, peek) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
        }
    }
}

/// The client that has asked a domain to begin and waits for an answer.
#[derive(Default)]
pub(crate) struct Begun(RefCell<Option<Answers>>);

impl Begun {
    /// True until the answer is given.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Gives the answer.
    pub(crate) fn answer(&self, answer: &Value) {
        if let Some(answers) = self.0.take() {
            send_line(&answers, answer);
        }
    }
}

/// Everything that the loop needs to answer.
pub(crate) struct Desk {
    jobs: Jobs,
    about: Value,
    lowers: Lowers,
    runner: Weak<Runner>,
    watch: Watch,
    /// Hand-over to another process that takes this one's place, if one may.
    successor: Option<Successor>,
    /// The client that asks this process to begin, if it is a domain.
    begun: Option<Rc<Begun>>,
}

impl Desk {
    /// Answers what `jobs` brings about the runner's kernel.
    pub(crate) fn new(jobs: Jobs, about: Value, lowers: Lowers, runner: &Rc<Runner>) -> Self {
        let watch = Watch::new(Arc::clone(&jobs.doorbell));
        let (successor, begun) = (None, None);
        Self { jobs, about, lowers, runner: Rc::downgrade(runner), watch, successor, begun }
    }

    /// The desk of a domain, which notes here that it is asked to begin.
    pub(crate) fn of_domain(self, begun: &Rc<Begun>) -> Self {
        Self { begun: Some(Rc::clone(begun)), ..self }
    }

    /// Has the runner's loop answer from now on.
    ///
    /// # Errors
    /// If the descriptor cannot be slept on.
    pub(crate) fn stand_at(self, runner: &Runner) -> io::Result<()> {
        let descriptor = self.jobs.doorbell.try_clone()?;
        runner.watch(descriptor, Rc::new(move |kernel| self.serve(kernel)))?;
        Ok(())
    }

    fn serve(&self, kernel: &Kernel) {
        while let Some(job) = self.jobs.next() {
            let answered = match &self.successor {
                Some(successor) if successor.is_asked(&job.request) => {
                    successor.answer(kernel, job);
                    continue;
                }
                _ => self.answer(kernel, &job),
            };
            if let Err(error) = answered {
                send_line(&job.answers, &json!({"error": error}));
            }
        }
        self.watch.tidy(kernel);
        if self.successor.as_ref().is_some_and(|next| next.look(kernel, &self.jobs))
            && let Some(runner) = self.runner.upgrade()
        {
            runner.stop();
        }
    }

    fn answer(&self, kernel: &Kernel, job: &Job) -> Result<(), String> {
        match &job.request {
            Request::Begin => {
                let begun = self.begun.as_ref().ok_or("only a domain can be asked to begin")?;
                *begun.0.borrow_mut() = Some(job.answers.clone());
                Ok(())
            }
            Request::About => {
                send_line(&job.answers, &json!({"ok": self.about}));
                Ok(())
            }
            Request::Dump => {
                send_line(&job.answers, &json!({"ok": self.dump(kernel)}));
                Ok(())
            }
            Request::Unfinished => {
                let left = !crate::host::unfinished(kernel).is_empty();
                send_line(&job.answers, &json!({"ok": left}));
                Ok(())
            }
            Request::Stream { line, push, pops } => {
                let streams = stream::answer(kernel, line.clone(), push.clone(), *pops)?;
                send_line(&job.answers, &json!({"ok": streams}));
                Ok(())
            }
            Request::Watch => {
                self.watch.watch(kernel);
                send_line(&job.answers, &json!({"ok": true}));
                Ok(())
            }
            Request::Watched { is_last } => {
                let watched = self.watch.watched(kernel, *is_last);
                send_line(&job.answers, &json!({"ok": watched}));
                Ok(())
            }
            Request::Trace { messages } => {
                let answers = job.answers.clone();
                let done = move |kernel: &Kernel, recorder: &xk_run::Recorder| {
                    send_line(&answers, &json!({"ok": tree::of(kernel, recorder)}));
                };
                self.watch.trace(kernel, *messages, Box::new(done))
            }
            Request::Upgrade | Request::Device { .. } | Request::HandOver | Request::Taken => {
                Err("only the host of an `xk run` without domains is handed over".into())
            }
            Request::Capture { edge } => {
                self.watch.capture(kernel, &self.lowers, edge, &job.answers)
            }
        }
    }

    fn dump(&self, kernel: &Kernel) -> Value {
        let mut dump = view::of_kernel(kernel, &self.lowers, SESSIONS_SHOWN_MAX);
        dump["about"] = self.about.clone();
        if let Some(runner) = self.runner.upgrade() {
            let stats = runner.stats();
            dump["runner"] = json!({
                "turns": stats.turns,
                "arrivals": stats.arrivals,
                "timers": stats.timers,
                "sleeps": stats.sleeps,
            });
        }
        dump
    }
}

/// Sends a line of JSON, unless the client has gone.
pub(super) fn send_line(answers: &Answers, line: &Value) {
    let _ = answers.try_send(Piece::Octets(format!("{line}\n").into_bytes()));
}
