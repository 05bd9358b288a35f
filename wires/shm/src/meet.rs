//! Two sides find each other at the path of a socket, again and again, without one of them being
//! the server.
//!
//! Each connects first. One that finds no listener takes the lock beside the socket, removes a
//! socket that a dead process left, and listens; one that finds the lock taken tries again a little
//! later. The lock belongs to the open file, so a process that dies gives it back whatever way it
//! dies.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::bell::{Bell, Ringer, pipe};
use crate::credentials_unsafe::Peer;
use crate::error::{Refusal, ShmError};
use crate::foreign_unsafe::Foreign;
use crate::hello::{HELLO_OCTETS, Hello, HelloError};
use crate::layout::Geometry;
use crate::link::{self, Link, timespec};
use crate::listen::Listener;
use crate::memory_unsafe::Memory;
use crate::ring::RingEnd;
use crate::socket::{self, Received};

/// In a folder's mode: its group or all others may write (stat(2)).
const OTHERS_WRITE: u32 = 0o022;

/// Time that the other side may take to say hello.
pub(crate) const HELLO_WAIT_MAX: Duration = Duration::from_secs(2);
/// The first pause after a failure, and the longest: each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A link that lasted this long was a good one: the next pause is the first again.
const GOOD: Duration = Duration::from_secs(2);

/// The sizes on which both sides must agree, and the users to let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The longest frame, the same on both sides, and the most slots: the smaller figure of both is
    /// taken.
    pub geometry: Geometry,
    /// Processes that may be at the other end.
    pub peers: Peers,
}

/// Processes that may be at the other end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// This user's.
    User(u32),
    /// Processes of one of these users, or in one of these groups.
    Listed {
        /// Users, by number.
        uids: Vec<u32>,
        /// Groups, by number.
        gids: Vec<u32>,
    },
    /// Any that may use the path of the socket.
    Any,
}

impl Peers {
    /// Only the processes of the user that this one runs as.
    pub fn own() -> Self {
        Self::User(rustix::process::geteuid().as_raw())
    }

    /// The processes that a program may believe to be those that its user means by this path: of
    /// root and of the program's own user, and, in a folder in which no other user may write, of
    /// the folder's owner and of the socket's.
    pub fn at(path: &Path) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = std::fs::metadata(folder.unwrap_or(Path::new(".")));
        let folder = folder.ok().filter(|folder| folder.mode() & OTHERS_WRITE == 0);
        let socket = folder.as_ref().and_then(|_| std::fs::metadata(path).ok());
        let owners = folder.into_iter().chain(socket).map(|about| about.uid());
        let own = rustix::process::geteuid().as_raw();
        Self::Listed { uids: [0, own].into_iter().chain(owners).collect(), gids: Vec::new() }
    }

    /// True if this process may be there.
    pub fn admit(&self, peer: &Peer) -> bool {
        match self {
            Self::User(uid) => peer.uid == *uid,
            Self::Listed { uids, gids } => uids.contains(&peer.uid) || gids.contains(&peer.gid),
            Self::Any => true,
        }
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Listed { uids, gids } => {
                write!(f, "users {uids:?} and groups {gids:?}")
            }
            Self::Any => f.write_str("any user"),
        }
    }
}

impl Default for Options {
    /// The default [`Geometry`], and our own user alone.
    fn default() -> Self {
        Self { geometry: Geometry::default(), peers: Peers::own() }
    }
}

/// State of one side.
enum SideState {
    /// Nothing to do before this time.
    Paused(Instant),
    /// Waits for others.
    Listening(Listener),
    /// Has asked, and waits for the answer.
    Asking(Attempt),
    /// Has a link through a socket that the other side listens on.
    Connected,
}

/// One side on its way to a link, and on its way to the next one after that.
pub struct Meeting {
    path: PathBuf,
    options: Options,
    state: SideState,
    /// Descriptors to sleep on meanwhile.
    set: OwnedFd,
    pause: Duration,
    /// A link is up since.
    up: Option<Instant>,
    error: Option<ShmError>,
}

impl Meeting {
    /// No peer has been sought yet.
    ///
    /// # Errors
    /// If the path cannot be a socket's, or the system refuses.
    pub fn new(path: &Path, options: &Options) -> Result<Self, ShmError> {
        check_path(path)?;
        let set =
            epoll::create(CreateFlags::CLOEXEC).map_err(ShmError::system("make an epoll set"))?;
        Ok(Self {
            path: path.into(),
            options: options.clone(),
            state: SideState::Paused(Instant::now()),
            set,
            pause: PAUSE_MIN,
            up: None,
            error: None,
        })
    }

    /// A descriptor that is readable when a step is worth taking, or when the link is to be checked
    /// ([`Link::check`]).
    pub fn set(&self) -> &OwnedFd {
        &self.set
    }

    /// Time of the next step, at the latest.
    pub fn next_step(&self) -> Option<Instant> {
        match &self.state {
            SideState::Paused(until) => Some(*until),
            SideState::Listening(listener) => listener.next_step(),
            SideState::Asking(attempt) => Some(attempt.until),
            SideState::Connected => None,
        }
    }

    /// Why the last try failed, once.
    pub fn take_error(&mut self) -> Option<ShmError> {
        self.error.take()
    }

    /// True if the last error will not go away by itself.
    pub fn is_hopeless(&self) -> bool {
        use ShmError::{NotPermitted, NotSocket, Path, Refused, Stranger};
        match &self.error {
            // A stranger has come to us; others may come.
            _ if self.is_listening() => false,
            Some(Refused(why)) => *why != Refusal::Busy,
            Some(Path { .. } | NotSocket { .. } | NotPermitted { .. } | Stranger { .. }) => true,
            _ => false,
        }
    }

    /// Whether this side listens.
    pub fn is_listening(&self) -> bool {
        matches!(self.state, SideState::Listening(_))
    }

    /// Does what can be done now without waiting. Answers a link when there is one; as long as it
    /// lasts, others that come are sent away.
    pub fn step(&mut self, now: Instant) -> Option<Link> {
        match std::mem::replace(&mut self.state, SideState::Connected) {
            SideState::Paused(until) if now < until => self.state = SideState::Paused(until),
            SideState::Paused(_) => self.seek(now),
            SideState::Asking(attempt) => return self.hear(attempt, now),
            SideState::Listening(mut listener) => {
                let room = self.up.is_none();
                let link = listener.step(now, room, &self.options, &self.set);
                self.error = listener.take_error().or(self.error.take());
                self.state = SideState::Listening(listener);
                if link.is_some() {
                    self.up = Some(now);
                }
                return link;
            }
            SideState::Connected => {}
        }
        None
    }

    /// The link is over: the other side is sought again, soon if it lasted, later if not.
    pub fn lost(&mut self, now: Instant) {
        let lasted = self.up.take().map(|since| now.saturating_duration_since(since));
        if lasted.is_some_and(|lasted| lasted >= GOOD) {
            self.pause = PAUSE_MIN;
        }
        let pause = self.next_pause();
        match &mut self.state {
            SideState::Listening(listener) => listener.pause(now + pause, &self.set),
            state => *state = SideState::Paused(now + pause),
        }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }

    fn fail(&mut self, error: Option<ShmError>, now: Instant) {
        self.error = error.or(self.error.take());
        self.state = SideState::Paused(now + self.next_pause());
    }

    /// Connects; if there is no listener, listens.
    fn seek(&mut self, now: Instant) {
        match Attempt::begin(&self.path, &self.options, now) {
            Ok(attempt) => {
                let added =
                    epoll::add(&self.set, &attempt.socket, EventData::new_u64(0), EventFlags::IN);
                match added {
                    Ok(()) => self.state = SideState::Asking(attempt),
                    Err(errno) => self.fail(Some(ShmError::system("wait for a peer")(errno)), now),
                }
            }
            Err(Connect::Nobody) => match Listener::bind(&self.path, &self.options, &self.set) {
                Ok(Some(listener)) => self.state = SideState::Listening(listener),
                // Another is just about to listen.
                Ok(None) => self.fail(None, now),
                Err(error) => self.fail(Some(error), now),
            },
            Err(Connect::Later) => self.fail(None, now),
            Err(Connect::Failed(error)) => self.fail(Some(error), now),
        }
    }

    /// Looks for the answer.
    fn hear(&mut self, attempt: Attempt, now: Instant) -> Option<Link> {
        match attempt.look(&self.options, now) {
            Ok(Ok(link)) => {
                self.up = Some(now);
                self.error = None;
                Some(link)
            }
            Ok(Err(attempt)) => {
                self.state = SideState::Asking(attempt);
                None
            }
            Err(error) => {
                self.fail(Some(error), now);
                None
            }
        }
    }
}

/// Why a try to connect came to nothing.
enum Connect {
    /// There is no listener.
    Nobody,
    /// The listener has no time.
    Later,
    Failed(ShmError),
}

/// A request under way.
struct Attempt {
    socket: Foreign,
    ringer: Ringer,
    peer: Peer,
    until: Instant,
}

impl Attempt {
    fn begin(path: &Path, options: &Options, now: Instant) -> Result<Self, Connect> {
        let failed = |action| move |errno| Connect::Failed(ShmError::system(action)(errno));
        let socket = socket::socket().map_err(failed("make a socket"))?;
        let mut socket = Foreign::new(socket);
        let address = SocketAddrUnix::new(path).map_err(failed("name a socket"))?;
        rustix::net::connect(&socket, &address).map_err(|errno| match errno {
            Errno::NOENT | Errno::CONNREFUSED => Connect::Nobody,
            Errno::AGAIN | Errno::INTR => Connect::Later,
            Errno::ACCESS | Errno::PERM => {
                Connect::Failed(ShmError::NotPermitted { path: path.into(), action: "connect to" })
            }
            // A file of another kind, or a socket of another protocol.
            Errno::PROTOTYPE | Errno::NOTSOCK => {
                Connect::Failed(ShmError::NotSocket { path: path.into() })
            }
            other => Connect::Failed(ShmError::system("connect to a peer")(other)),
        })?;
        let peer = known(&mut socket, options).map_err(Connect::Failed)?;
        let ringer = ask(&socket, &options.geometry).map_err(|_| Connect::Later)?;
        Ok(Self { socket, ringer, peer, until: now + HELLO_WAIT_MAX })
    }

    /// The link, if it has been granted by now.
    fn look(self, options: &Options, now: Instant) -> Result<Result<Link, Self>, ShmError> {
        let (octets, files) = match socket::receive(&self.socket, HELLO_OCTETS) {
            Received::Nothing if now < self.until => return Ok(Err(self)),
            Received::Nothing | Received::Gone => return Err(ShmError::Silent),
            Received::TooMuch => return Err(ShmError::Hello(HelloError::Length.text())),
            Received::Message(octets, files) => (octets, files),
        };
        granted(self.socket, self.ringer, self.peer, &octets, files, &options.geometry).map(Ok)
    }
}

/// Asks for a link; gives what wakes the other side.
pub(crate) fn ask(socket: &Foreign, geometry: &Geometry) -> Result<Ringer, Errno> {
    let (ringer, bell) = pipe()?;
    match socket::send(socket, &Hello::Request(*geometry).emit(), &[bell.as_fd()]) {
        // It may have refused us before it heard us: that is still to be read.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(ringer),
        Err(errno) => Err(errno),
    }
}

/// The link that is granted to one that asked.
pub(crate) fn granted(
    socket: Foreign,
    ringer: Ringer,
    peer: Peer,
    hello: &[u8],
    mut files: Vec<Foreign>,
    ours: &Geometry,
) -> Result<Link, ShmError> {
    let geometry = match Hello::parse(hello) {
        Ok(Hello::Grant(geometry)) => geometry,
        Ok(Hello::Refusal(why)) => return Err(ShmError::Refused(why)),
        Ok(Hello::Request(_)) => return Err(ShmError::Hello(HelloError::Kind.text())),
        Err(error) => return Err(ShmError::Hello(error.text())),
    };
    if !geometry.has_frames_of(ours) || geometry.slots() > ours.slots() {
        return Err(ShmError::Hello("it grants another link than was asked for"));
    }
    let (Some(bell), Some(file), true) = (files.pop(), files.pop(), files.is_empty()) else {
        return Err(ShmError::Hello("it grants a link without its descriptors"));
    };
    let memory = Arc::new(Memory::accept(file.as_fd(), geometry.octets())?);
    let bell = Bell::accept(bell).ok_or(ShmError::Hello("its bell is no pipe"))?;
    let end = RingEnd::new(&memory, &geometry, 1);
    let end = end.ok_or(ShmError::Hello("its link does not fit"))?;
    Ok(Link::new(end, socket, ringer, bell, peer))
}

/// Asks the process that listens at `path` for a link, and waits for it, 2 seconds at most.
pub(crate) fn connect(path: &Path, options: &Options) -> Result<Link, ShmError> {
    check_path(path)?;
    let until = Instant::now() + HELLO_WAIT_MAX;
    let mut attempt = loop {
        match Attempt::begin(path, options, Instant::now()) {
            Ok(attempt) => break attempt,
            Err(Connect::Failed(error)) => return Err(error),
            Err(Connect::Nobody) => return Err(ShmError::Nobody { path: path.into() }),
            Err(Connect::Later) if Instant::now() >= until => return Err(ShmError::Silent),
            Err(Connect::Later) => std::thread::sleep(PAUSE_MIN),
        }
    };
    loop {
        attempt = match attempt.look(options, Instant::now())? {
            Ok(link) => return Ok(link),
            Err(attempt) => attempt,
        };
        let limit = timespec(attempt.until.saturating_duration_since(Instant::now()));
        let mut watched = [PollFd::new(&attempt.socket, PollFlags::IN)];
        // Interrupted or not, it is looked at again.
        let _ = rustix::event::poll(&mut watched, Some(&limit));
    }
}

/// The process at the other end, if it may be there.
pub(crate) fn known(socket: &mut Foreign, options: &Options) -> Result<Peer, ShmError> {
    let peer = link::peer(&*socket)?;
    socket.came_from(peer.uid);
    if options.peers.admit(&peer) {
        Ok(peer)
    } else {
        Err(ShmError::Stranger { uid: peer.uid, expected: options.peers.to_string() })
    }
}

/// Octets of a socket's path at most (`sun_path` of unix(7), less the zero at its end), with
/// `.lock` behind it.
const PATH_OCTETS_MAX: usize = 107;

/// Looks whether a socket can have this path.
///
/// # Errors
/// [`ShmError::Path`] or [`ShmError::NotSocket`], with a remedy.
pub fn check_path(path: &Path) -> Result<(), ShmError> {
    use std::os::unix::fs::FileTypeExt;
    let wrong = |what: String| Err(ShmError::Path { path: path.into(), what });
    let octets = path.as_os_str().len();
    if octets > PATH_OCTETS_MAX {
        return wrong(format!("it has {octets} octets, and {PATH_OCTETS_MAX} is the most"));
    }
    if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return wrong("it names no file".into());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return wrong(format!("there is no folder {folder:?}"));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(ShmError::NotSocket { path: path.into() })
        }
        _ => Ok(()),
    }
}
