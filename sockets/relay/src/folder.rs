//! The folder of the sockets of a stack and of its programs: a directory that strangers cannot
//! search.
//!
//! A name is bound, and its file is removed or hidden before the socket can do anything, so that
//! nothing is left that could be connected to or taken. What is to be found again, the relay finds
//! by a descriptor of the file.

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use xk_request::{DOOR, FOLDER_OCTETS_MAX, Name, in_directory, own_descriptor};

/// Folder of the sockets of root. Other users can neither write nor list it.
const OF_ROOT: &str = "/run/xk";

/// Prefix of the directories' names.
const PREFIX: &str = "xk-";
/// Random octets behind that.
const KEY_OCTETS: usize = 16;
/// Age of a directory that its maker must have locked by now.
const SETTLED: Duration = Duration::from_secs(60);

/// A directory for the sockets of one stack. It goes with this, in the process that made it.
pub struct Folder {
    path: PathBuf,
    directory: OwnedFd,
    /// Owner of the directory: the user of the programs.
    user: Uid,
    maker: u32,
}

/// The file of a socket that has no name any more: the relay's own way to it.
pub(crate) struct SocketFile(OwnedFd);

/// The directory in which this user's sockets may lie, and no other user can put or take away any:
/// `XDG_RUNTIME_DIR`, or what the system has in its place; root has one of its own.
///
/// # Errors
/// If there is none, or it is not this user's alone.
pub fn own_folder() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        let made = std::fs::DirBuilder::new().mode(0o711).create(OF_ROOT);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        return is_alone(Path::new(OF_ROOT), user, 0o022).map(|()| OF_ROOT.into());
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let mut found = Err(io::ErrorKind::NotFound.into());
    for path in named.into_iter().chain([usual]) {
        found = is_alone(&path, user, 0o077).map(|()| path);
        if found.is_ok() {
            break;
        }
    }
    found
}

/// Whether a directory is `user`'s, and others have none of the rights `others`.
fn is_alone(path: &Path, user: Uid, others: u32) -> io::Result<()> {
    let told =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let found = std::fs::symlink_metadata(path).map_err(told)?;
    if found.is_dir() && found.uid() == user.as_raw() && found.mode() & others == 0 {
        return Ok(());
    }
    let why = format!("{} is not a directory of this user alone", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Random octets of the system, as digits.
pub(crate) fn random_word<const OCTETS: usize>() -> io::Result<String> {
    let mut random = [0; OCTETS];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(random.iter().map(|octet| format!("{octet:02x}")).collect())
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes directories of processes that were killed: theirs have not been locked for some time.
fn sweep(own: &Path) {
    let is_old = |path: &Path| {
        let changed = std::fs::symlink_metadata(path).and_then(|found| found.modified());
        let age = changed.ok().and_then(|changed| changed.elapsed().ok());
        age.is_some_and(|age| age > SETTLED)
    };
    for entry in std::fs::read_dir(own).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let key = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_one = key.is_some_and(|key| {
            key.len() == 2 * KEY_OCTETS && key.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if !is_one || !is_old(&path) {
            continue;
        }
        // Another user's cannot be opened.
        let free = open(&path).is_ok_and(|directory| {
            flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if free {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

impl Folder {
    /// A new directory. Programs of root become other users, which are to reach it: they can if
    /// they know its name, which has 128 random bits and cannot be listed. All others have it for
    /// themselves.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn make() -> io::Result<Self> {
        let user = rustix::process::geteuid();
        let name = format!("{PREFIX}{}", random_word::<KEY_OCTETS>()?);
        let path = match own_folder().map(|own| own.join(&name)) {
            Ok(path) if path.as_os_str().len() <= FOLDER_OCTETS_MAX => path,
            Err(error) if user.is_root() => return Err(error),
            // Its own by its mode; the name does not matter.
            _ => Path::new("/tmp").join(&name),
        };
        if let Some(own) = path.parent() {
            sweep(own);
        }
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let directory = open(&path)?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        if user.is_root() {
            fchmod(&directory, Mode::from_raw_mode(0o711))?;
        }
        Ok(Self { path, directory, user, maker: std::process::id() })
    }

    /// Leaves the directory to the user that the stack is going to be.
    ///
    /// # Errors
    /// If this process may not.
    pub fn give_to(&self, user: Uid, group: Gid) -> io::Result<()> {
        Ok(fchown(&self.directory, Some(user), Some(group))?)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a user may ask here: that of the programs and root may. Programs of root may become
    /// any user.
    pub(crate) fn lets_in(&self, user: u32) -> bool {
        self.user.is_root() || user == 0 || user == self.user.as_raw()
    }

    /// The way to a file in it. It names no path, so that processes which see the sockets of all do
    /// not see it.
    pub(crate) fn way(&self, file: &str) -> io::Result<SocketAddrUnix> {
        let way = in_directory(self.directory.as_raw_fd(), file);
        Ok(SocketAddrUnix::new(way)?)
    }

    /// Gives a socket a name that only tells what it is.
    pub(crate) fn name(&self, socket: &OwnedFd, name: &Name) -> io::Result<()> {
        let name = name.to_string();
        rustix::net::bind(socket, &self.way(&name)?)?;
        Ok(rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty())?)
    }

    /// A socket for a program, under a name at which only the relay finds it.
    pub(crate) fn place(&self, kind: SocketType, name: &Name) -> io::Result<(OwnedFd, SocketFile)> {
        let socket = socket(kind)?;
        let name = name.to_string();
        rustix::net::bind(&socket, &self.way(&name)?)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, &name, flags, Mode::empty())?;
        rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty())?;
        Ok((socket, SocketFile(file)))
    }

    /// Gives a socket a name and shows it to the programs under another.
    pub(crate) fn show(&self, socket: &OwnedFd, name: &str, file: &str) -> io::Result<()> {
        rustix::net::bind(socket, &self.way(name)?)?;
        let all = Mode::from_raw_mode(0o666);
        rustix::fs::chmodat(&self.directory, name, all, AtFlags::empty())?;
        Ok(rustix::fs::renameat(&self.directory, name, &self.directory, file)?)
    }

    /// Takes back what was shown.
    pub(crate) fn hide(&self, file: &str) {
        // It may be gone with the directory.
        let _ = rustix::fs::unlinkat(&self.directory, file, AtFlags::empty());
    }

    /// The socket for requests.
    pub(crate) fn door(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let door = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        self.show(&door, "new", DOOR)?;
        rustix::net::listen(&door, 1024)?;
        Ok(door)
    }
}

impl SocketFile {
    /// The way to the socket.
    pub(crate) fn way(&self) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(own_descriptor(self.0.as_raw_fd()))?)
    }

    /// Whether any process still has the socket, or a message that carries it.
    pub(crate) fn is_alive(&self) -> bool {
        // A socket of another kind is told that it is of another kind, or that there is none.
        let probe = socket(SocketType::SEQPACKET).and_then(|probe| {
            let way = self.way()?;
            Ok(rustix::net::connect(&probe, &way))
        });
        // What cannot be asked is taken to be there.
        !matches!(probe, Ok(Err(Errno::CONNREFUSED)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.maker == std::process::id() {
            // What cannot be removed is empty, and leads to nothing.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}
