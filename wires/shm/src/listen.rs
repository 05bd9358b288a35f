//! The side that waits at the socket: takes the path over safely, hears requests, and grants links.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use crate::bell::{Bell, pipe};
use crate::credentials_unsafe::Peer;
use crate::error::{Refusal, ShmError};
use crate::foreign_unsafe::Foreign;
use crate::hello::{HELLO_OCTETS, Hello, HelloError};
use crate::layout::Geometry;
use crate::link::Link;
use crate::meet::{HELLO_WAIT_MAX, Options, Peers, known};
use crate::memory_unsafe::Memory;
use crate::ring::RingEnd;
use crate::socket::{self, Received};

/// Connections that have not said hello yet, at most; the oldest of the user that has most gives
/// way.
const PENDING_MAX: usize = 8;
/// Connections that the system keeps for us, at most.
const BACKLOG: i32 = 8;
/// Time for which no client is heard when the system has no descriptors or memory left.
const OUT_OF_MEANS: Duration = Duration::from_millis(100);
/// The longest number of a process in a lock file, in octets.
const PROCESS_OCTETS_MAX: u64 = 16;
/// Times that a lock file is opened again which was removed and made again meanwhile.
const LOCK_TRIES: usize = 8;

/// A connection that has not said hello yet.
struct Pending {
    socket: Foreign,
    peer: Peer,
    until: Instant,
}

/// The listening side of a path.
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    pending: Vec<Pending>,
    paused: Option<Instant>,
    error: Option<ShmError>,
    /// Kept locked as long as this side listens.
    _lock: File,
}

impl Listener {
    /// Listens at `path`; `None` if another does, or is about to.
    pub(crate) fn bind(
        path: &Path,
        options: &Options,
        set: &OwnedFd,
    ) -> Result<Option<Self>, ShmError> {
        let others = options.peers != Peers::own();
        let Some(lock) = lock(path, others)? else {
            return Ok(None);
        };
        remove_stale(path)?;
        let denied = |action| {
            move |errno| match errno {
                Errno::ACCESS | Errno::PERM | Errno::ROFS => {
                    ShmError::NotPermitted { path: path.into(), action: "make a socket at" }
                }
                other => ShmError::system(action)(other),
            }
        };
        let socket = socket::socket().map_err(ShmError::system("make a socket"))?;
        // The socket file gets the mode of the socket: no process can connect before the mode is
        // right.
        let mode = if others { 0o666 } else { 0o600 };
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))
            .map_err(ShmError::system("set the mode of a socket"))?;
        let address = SocketAddrUnix::new(path).map_err(ShmError::system("name a socket"))?;
        rustix::net::bind(&socket, &address).map_err(denied("bind a socket"))?;
        let listener = Self {
            socket,
            path: path.into(),
            pending: Vec::new(),
            paused: None,
            error: None,
            _lock: lock,
        };
        if others {
            // The umask has taken away what the other user needs.
            let _ = rustix::fs::chmod(path, Mode::from_raw_mode(mode));
        }
        rustix::net::listen(&listener.socket, BACKLOG).map_err(denied("listen"))?;
        let added = epoll::add(set, &listener.socket, EventData::new_u64(0), EventFlags::IN);
        added.map_err(ShmError::system("wait for peers"))?;
        Ok(Some(listener))
    }

    /// Hears no client before this time; one without a hello yet is sent away, to come again.
    pub(crate) fn pause(&mut self, until: Instant, set: &OwnedFd) {
        self.pending.clear();
        // What is not looked at must not be reported either.
        if self.paused.replace(until).is_none() {
            let _ = epoll::delete(set, &self.socket);
        }
    }

    /// Hears again if it is time to. False if not.
    fn resume(&mut self, now: Instant, set: &OwnedFd) -> bool {
        if self.paused.is_some_and(|until| now < until) {
            return false;
        }
        if self.paused.take().is_some() {
            let added = epoll::add(set, &self.socket, EventData::new_u64(0), EventFlags::IN);
            if let Err(errno) = added {
                self.error = Some(ShmError::system("wait for peers")(errno));
                self.paused = Some(now + OUT_OF_MEANS);
                return false;
            }
        }
        true
    }

    /// Time of the next step, at the latest.
    pub(crate) fn next_step(&self) -> Option<Instant> {
        let pending = self.pending.iter().map(|pending| pending.until).min();
        pending.into_iter().chain(self.paused).min()
    }

    /// Why the last comer was sent away, once.
    pub(crate) fn take_error(&mut self) -> Option<ShmError> {
        self.error.take()
    }

    /// Takes connections and hears hellos; answers the first link granted, whose socket stays in
    /// the set. Without `room` all are sent away.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        room: bool,
        options: &Options,
        set: &OwnedFd,
    ) -> Option<Link> {
        if !self.resume(now, set) {
            return None;
        }
        self.accept(now, options, set);
        let mut granted = None;
        for pending in std::mem::take(&mut self.pending) {
            if granted.is_some() {
                // Heard in the next step, when it is known whether there is room.
                self.pending.push(pending);
                continue;
            }
            match self.hear(pending, now, room, options) {
                Some(Heard::Nothing(pending)) => self.pending.push(pending),
                Some(Heard::Granted(link)) => granted = Some(*link),
                None => {}
            }
        }
        granted
    }

    fn accept(&mut self, now: Instant, options: &Options, set: &OwnedFd) {
        for _ in 0..PENDING_MAX {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let mut socket = match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => Foreign::new(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => {
                    self.error = Some(ShmError::system("accept a peer")(errno));
                    self.pause(now + OUT_OF_MEANS, set);
                    return;
                }
            };
            let peer = match known(&mut socket, options) {
                Ok(peer) if Foreign::has_room(peer.uid) => peer,
                Ok(_) => {
                    self.refuse(&socket, Refusal::Busy, ShmError::Crowded);
                    continue;
                }
                Err(error) => {
                    self.refuse(&socket, Refusal::Stranger, error);
                    continue;
                }
            };
            if epoll::add(set, &socket, EventData::new_u64(0), EventFlags::IN).is_err() {
                return;
            }
            if self.pending.len() >= PENDING_MAX {
                let at = self.first_of_most();
                self.pending.remove(at);
            }
            self.pending.push(Pending { socket, peer, until: now + HELLO_WAIT_MAX });
        }
    }

    /// The one that came first of the user of whom most have not said hello.
    fn first_of_most(&self) -> usize {
        let uids = || self.pending.iter().map(|pending| pending.peer.uid);
        let of_user = |uid| uids().filter(|other| *other == uid).count();
        let most = uids().map(of_user).max();
        uids().position(|uid| Some(of_user(uid)) == most).unwrap_or(0)
    }

    fn hear(
        &mut self,
        pending: Pending,
        now: Instant,
        room: bool,
        options: &Options,
    ) -> Option<Heard> {
        if !Foreign::has_room(pending.peer.uid) {
            self.refuse(&pending.socket, Refusal::Busy, ShmError::Crowded);
            return None;
        }
        let (octets, files) = match socket::receive(&pending.socket, HELLO_OCTETS) {
            Received::Nothing if now < pending.until => return Some(Heard::Nothing(pending)),
            Received::Nothing => {
                self.error = Some(ShmError::Silent);
                return None;
            }
            Received::Gone => return None,
            Received::TooMuch => (Vec::new(), Vec::new()),
            Received::Message(octets, files) => (octets, files),
        };
        match grant(pending.socket, pending.peer, &octets, files, &options.geometry, room) {
            Ok(link) => Some(Heard::Granted(Box::new(link))),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    fn refuse(&mut self, socket: &Foreign, why: Refusal, error: ShmError) {
        let _ = socket::send(socket, &Hello::Refusal(why).emit(), &[]);
        self.error = Some(error);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // We hold the lock, so both files are ours. The lock goes last: a waiter then finds no
        // socket then.
        let _ = rustix::fs::unlink(&self.path);
        let _ = rustix::fs::unlink(lock_path(&self.path));
    }
}

enum Heard {
    /// Nothing yet.
    Nothing(Pending),
    Granted(Box<Link>),
}

/// Hears what the other side asks for, and if there is `room` makes the memory and gives it its
/// part.
pub(crate) fn grant(
    socket: Foreign,
    peer: Peer,
    hello: &[u8],
    files: Vec<Foreign>,
    ours: &Geometry,
    room: bool,
) -> Result<Link, ShmError> {
    let (why, error) = match asked(hello, files, ours) {
        Ok((geometry, bell)) if room => return make(socket, peer, geometry, bell),
        Ok(_) => (Refusal::Busy, ShmError::Crowded),
        Err((why, text)) => (why, ShmError::Hello(text)),
    };
    let _ = socket::send(&socket, &Hello::Refusal(why).emit(), &[]);
    Err(error)
}

/// Reads the other side's request, if it can be met.
fn asked(
    octets: &[u8],
    mut files: Vec<Foreign>,
    ours: &Geometry,
) -> Result<(Geometry, Bell), (Refusal, &'static str)> {
    let asked = match Hello::parse(octets) {
        Ok(Hello::Request(asked)) => asked,
        Ok(_) => return Err((Refusal::Malformed, HelloError::Kind.text())),
        Err(HelloError::Version) => {
            return Err((Refusal::Version, HelloError::Version.text()));
        }
        Err(error) => return Err((Refusal::Malformed, error.text())),
    };
    if !asked.has_frames_of(ours) {
        let why = Refusal::FrameOctets { octets: ours.frame_octets_max() };
        return Err((why, "its frames have another length: give both the same mtu"));
    }
    let bell = files.pop().filter(|_| files.is_empty()).and_then(Bell::accept);
    let bell = bell.ok_or((Refusal::Malformed, "its bell is no pipe"))?;
    let geometry = ours.with_slots(asked.slots());
    let geometry = geometry.ok_or((Refusal::Malformed, HelloError::Figures.text()))?;
    Ok((geometry, bell))
}

fn make(socket: Foreign, peer: Peer, geometry: Geometry, bell: Bell) -> Result<Link, ShmError> {
    let memory = Memory::create(geometry.octets());
    let (memory, file) =
        memory.map_err(|source| ShmError::System { action: "make shared memory", source })?;
    let end = RingEnd::new(&Arc::new(memory), &geometry, 0);
    let end = end.ok_or(ShmError::Hello("its link does not fit"))?;
    let (ringer, lent) = pipe().map_err(ShmError::system("make a pipe"))?;
    let hello = Hello::Grant(geometry).emit();
    socket::send(&socket, &hello, &[file.as_fd(), lent.as_fd()])
        .map_err(ShmError::system("answer a peer"))?;
    Ok(Link::new(end, socket, ringer, bell, peer))
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Locks the file beside the socket; `None` if another process has it.
fn lock(path: &Path, others: bool) -> Result<Option<File>, ShmError> {
    let lock = lock_path(path);
    let mode = Mode::from_raw_mode(if others { 0o666 } else { 0o600 });
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    for _ in 0..LOCK_TRIES {
        let file = rustix::fs::open(&lock, flags, mode).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::LOOP => {
                ShmError::NotPermitted { path: lock.clone(), action: "open the lock file" }
            }
            other => ShmError::system("open the lock file")(other),
        })?;
        let file = File::from(file);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(ShmError::system("lock a file")(errno)),
        }
        // Its last holder may have removed it meanwhile: then this lock is on a file that no
        // process else finds.
        let ours = file.metadata().map(|m| (m.dev(), m.ino())).ok();
        let there = std::fs::symlink_metadata(&lock).map(|m| (m.dev(), m.ino())).ok();
        if ours.is_some() && ours == there {
            // For a person that wants the path; as long each time. If it fails, it is not told.
            let _ = writeln!(&file, "{:10}", std::process::id());
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// The process that has the lock of a path, if it has said.
pub(crate) fn holder(path: &Path) -> Option<u32> {
    let mut text = String::new();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(lock_path(path), flags, Mode::empty()).ok()?);
    file.take(PROCESS_OCTETS_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Removes the files at which a process listened that has ended, if it could not do so itself;
/// those at which one listens stay.
pub fn remove_left(path: &Path) {
    if std::fs::symlink_metadata(lock_path(path)).is_ok()
        && let Ok(Some(_lock)) = lock(path, false)
        && remove_stale(path).is_ok()
    {
        let _ = rustix::fs::unlink(lock_path(path));
    }
}

/// Removes what a process that died has left. Only under the lock.
fn remove_stale(path: &Path) -> Result<(), ShmError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(ShmError::NotSocket { path: path.into() })
        }
        Ok(_) => match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(_) => Err(ShmError::NotPermitted {
                path: path.into(),
                action: "remove what a dead process has left at",
            }),
        },
        Err(_) => Ok(()),
    }
}
