//! Descriptors that others have sent are closed where nothing waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Descriptors of one user that may wait to be closed before nothing more is taken from it.
const OWED_MAX: usize = 64;
/// Users that have a thread which closes for them; users beyond share one.
const CLOSERS_MAX: usize = 64;
/// Octets of the stack of a thread that only closes.
const STACK_OCTETS: usize = 64 << 10;

/// Descriptors of each user that wait to be closed, behind what its thread is just closing; no
/// entry for a user without a running thread.
static CLOSERS: Mutex<BTreeMap<u32, VecDeque<OwnedFd>>> = Mutex::new(BTreeMap::new());

fn closers() -> MutexGuard<'static, BTreeMap<u32, VecDeque<OwnedFd>>> {
    CLOSERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor that another process has sent, or a socket in which unread ones may lie. To close
/// one takes as long as its sender likes: a socket may linger (`SO_LINGER`, socket(7)), and a file
/// may be of a file system in user space. So a thread closes it that closes what this user has
/// sent, one after the other, and nothing else. Sockets of unix(7), which come however much waits,
/// go with a thread that ends: what lies in them does not linger then.
#[derive(Debug)]
pub struct Foreign {
    fd: ManuallyDrop<OwnedFd>,
    uid: u32,
}

impl Foreign {
    /// One that another process of this process' user has sent.
    pub fn new(fd: OwnedFd) -> Self {
        Self::of(fd, rustix::process::geteuid().as_raw())
    }

    /// One that a process of this user has sent.
    pub(crate) fn of(fd: OwnedFd, uid: u32) -> Self {
        Self { fd: ManuallyDrop::new(fd), uid }
    }

    /// The socket, to a process of this user as is known by now.
    pub(crate) fn came_from(&mut self, uid: u32) {
        self.uid = uid;
    }

    /// The user that has sent it.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// The descriptor, of which it is known by now that to close it takes no time.
    pub fn into_own(mut self) -> OwnedFd {
        // SAFETY: it is taken once: `self` is forgotten at once, so that its drop does not take it
        // again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        std::mem::forget(self);
        fd
    }

    /// The descriptor, to be slept on.
    pub(crate) fn as_own(&self) -> &OwnedFd {
        &self.fd
    }

    /// False if as many as may be of a user wait to be closed.
    pub(crate) fn has_room(uid: u32) -> bool {
        closers().get(&uid).is_none_or(|waiting| waiting.len() < OWED_MAX)
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Foreign {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Whether it is a socket to which nothing more can come, and in which nothing lies.
fn is_empty_socket(fd: &OwnedFd) -> bool {
    // A socket that listens is not connected; nothing can lie in it.
    if !matches!(rustix::net::shutdown(fd, Shutdown::Both), Ok(()) | Err(Errno::NOTCONN)) {
        return false;
    }
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(fd, &mut [0; 1], flags), Ok((0, 0)) | Err(Errno::AGAIN))
}

/// Whether nothing that others have sent makes its closing take time.
fn is_quick(fd: &OwnedFd) -> bool {
    // A pipe of either kind.
    rustix::pipe::fcntl_getpipe_size(fd).is_ok() || is_unix(fd) && is_empty_socket(fd)
}

/// Sockets of unix(7), with their users, that wait for the thread that releases them; `None` if
/// none runs.
static SOCKETS: Mutex<Option<Vec<(OwnedFd, u32)>>> = Mutex::new(None);

fn sockets() -> MutexGuard<'static, Option<Vec<(OwnedFd, u32)>>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread release a socket of unix(7), which waits for nothing.
fn let_go(socket: OwnedFd, uid: u32) {
    let mut all = sockets();
    if let Some(waiting) = all.as_mut() {
        waiting.push((socket, uid));
        return;
    }
    *all = Some(vec![(socket, uid)]);
    drop(all);
    let spawned = thread("xk-let-go", || {
        loop {
            let mut all = sockets();
            match all.take() {
                Some(waiting) if !waiting.is_empty() => {
                    *all = Some(Vec::new());
                    drop(all);
                    end_with(waiting);
                }
                _ => return,
            }
        }
    });
    if !spawned {
        // They are closed here.
        let left = sockets().take();
        drop(left);
    }
}

/// Closes sockets by the end of a thread that alone has them: what ends does not linger
/// (socket(7)), nor do the sockets that lie in them unread. Where the system does not let a thread
/// have descriptors of its own, those that close for their users close them.
fn end_with(sockets: Vec<(OwnedFd, u32)>) {
    let (begun, is_apart) = sync_channel(0);
    let (closed, is_closed) = sync_channel::<()>(0);
    let spawned = thread("xk-ends", move || {
        // SAFETY: the descriptors of this thread are copies of the process' from here on. It uses
        // none of them, and ends.
        let apart = unsafe { unshare_unsafe(UnshareFlags::FILES) };
        let _ = begun.send(apart.is_ok());
        let _ = is_closed.recv();
    });
    if spawned && is_apart.recv() == Ok(true) {
        drop(sockets);
    } else {
        sockets.into_iter().for_each(|(socket, uid)| close(vec![socket], uid));
    }
    drop(closed);
}

/// Starts a thread that only closes; false if there is none.
fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_OCTETS);
    thread.spawn(work).is_ok()
}

/// Has the thread that closes for a user close descriptors, which may be many: nothing is asked
/// of each before.
pub(crate) fn close(descriptors: Vec<OwnedFd>, uid: u32) {
    let mut descriptors = VecDeque::from(descriptors);
    let mut all = closers();
    let mut of = uid;
    if all.len() >= CLOSERS_MAX && !all.contains_key(&uid) {
        of = all.keys().next().copied().unwrap_or(uid);
    }
    if let Some(waiting) = all.get_mut(&of) {
        waiting.append(&mut descriptors);
        return;
    }
    let mut next = descriptors.pop_front();
    all.insert(of, descriptors);
    drop(all);
    let work = move || {
        while let Some(fd) = next.take() {
            // The sender may set it again, so this only spares the thread most of the waiting.
            let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
            drop(fd);
            let mut all = closers();
            next = all.get_mut(&of).and_then(VecDeque::pop_front);
            if next.is_none() {
                all.remove(&of);
            }
        }
    };
    if !thread("xk-close", work) {
        // It has been closed here, and so is what another thread has added.
        let left = closers().remove(&of);
        drop(left);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it is taken once: this is the drop, and any other taker forgets the value.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if is_quick(&fd) {
            drop(fd);
        } else if is_unix(&fd) {
            let_go(fd, self.uid);
        } else {
            close(vec![fd], self.uid);
        }
    }
}

/// Whether it is a socket between processes of this machine, which itself never lingers.
fn is_unix(fd: &OwnedFd) -> bool {
    let domain = rustix::net::sockopt::socket_domain(fd);
    domain.is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use rustix::net::{SocketFlags, SocketType, socketpair};
    use std::time::{Duration, Instant};

    /// A socket in which one of TCP lies that takes an hour to close, and what keeps it so.
    fn slow() -> (OwnedFd, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (reader, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut sender, &[0; 1 << 16]).is_ok() {}
        let hour = Some(Duration::from_secs(3600));
        rustix::net::sockopt::set_socket_linger(&sender, hour).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [sender.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let words = [std::io::IoSlice::new(b"x")];
        rustix::net::sendmsg(&one, &words, &mut control, SendFlags::NOSIGNAL).unwrap();
        (other, reader)
    }

    #[test]
    fn closing_costs_its_sender_and_one_thread() {
        let (hostile, honest) = (70_001, 70_002);
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        // As if a thread were just closing what takes long.
        closers().insert(hostile, VecDeque::new());
        for n in 0..OWED_MAX {
            assert!(Foreign::has_room(hostile), "{n}");
            drop(Foreign::of(file(), hostile));
        }
        assert!(!Foreign::has_room(hostile), "it has {OWED_MAX} to be closed");
        // Another user's are closed meanwhile.
        (0..OWED_MAX).for_each(|_| drop(Foreign::of(file(), honest)));
        let begun = Instant::now();
        while closers().contains_key(&honest) {
            assert!(begun.elapsed() < Duration::from_secs(60), "another user waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Foreign::has_room(honest));
        // Of one message, at once.
        closers().insert(hostile, VecDeque::new());
        close((0..OWED_MAX).map(|_| file()).collect(), hostile);
        assert!(!Foreign::has_room(hostile));
        // No thread is needed for pipes, however many.
        for _ in 0..253 {
            let (read, write) = rustix::pipe::pipe().unwrap();
            drop([read, write].map(|end| Foreign::of(end, honest)));
        }
        assert!(!closers().contains_key(&honest));
    }

    /// However many of its comers are sent away, and whatever they have sent before.
    #[test]
    fn sockets_of_a_user_go_at_once_whatever_lies_in_them() {
        let begun = Instant::now();
        let is_over = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let names =
                tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
            sockets().is_none() && !names.flatten().any(|name| name.trim() == "xk-ends")
        };
        let readers: Vec<_> = (0..2 * OWED_MAX)
            .map(|_| {
                let (socket, reader) = slow();
                drop(Foreign::of(socket, 70_003));
                reader
            })
            .collect();
        while !is_over() {
            assert!(begun.elapsed() < Duration::from_secs(60), "they linger");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Foreign::has_room(70_003), "none waits for the user's own thread");
        drop(readers);
    }
}
