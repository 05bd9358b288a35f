//! What others have sent is closed where nothing waits for it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

/// How many descriptors may be closed at a time before no more are taken from any peer.
const CLOSING_MAX: usize = 64;
/// Octets of the stack of a thread that only closes.
const STACK_OCTETS: usize = 64 << 10;

static CLOSING: AtomicUsize = AtomicUsize::new(0);

/// A descriptor that another process has sent, or a socket in which unread ones may lie. To close
/// one takes as long as its sender likes: a socket may linger (`SO_LINGER`, socket(7)), and a file
/// may be of a file system in user space. So a thread of its own closes it.
#[derive(Debug)]
pub struct Foreign(ManuallyDrop<OwnedFd>);

impl Foreign {
    /// One that another process has sent.
    pub fn new(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }

    /// The descriptor, of which it is known by now that to close it takes no time.
    pub fn into_own(mut self) -> OwnedFd {
        // SAFETY: it is taken once: `self` is forgotten at once, so that its drop does not take it
        // again.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        fd
    }

    /// The descriptor, to be slept on.
    pub(crate) fn as_own(&self) -> &OwnedFd {
        &self.0
    }

    /// False if as many as may be are just being closed.
    pub(crate) fn has_room() -> bool {
        CLOSING.load(Ordering::Relaxed) < CLOSING_MAX
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Foreign {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
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

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it is taken once: this is the drop, and any other taker forgets the value.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        if is_unix(&fd) && is_empty_socket(&fd) {
            return;
        }
        CLOSING.fetch_add(1, Ordering::Relaxed);
        let close = move || {
            drop(fd);
            CLOSING.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("xk-close".into()).stack_size(STACK_OCTETS);
        if thread.spawn(close).is_err() {
            // It has been closed here.
            CLOSING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Whether it is a socket between processes of this machine, which itself never lingers.
fn is_unix(fd: &OwnedFd) -> bool {
    let domain = rustix::net::sockopt::socket_domain(fd);
    domain.is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX)
}
