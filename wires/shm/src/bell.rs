//! A bell wakes the other side: a pipe for each direction.
//!
//! The side that wakes makes the pipe, keeps the end for writing to itself and lends the other end
//! away. So it alone can change how its end behaves: a write never waits, whatever the other
//! side does. (An eventfd has one state for both sides, and either could make the other's write
//! wait without end.) The sleeper sleeps on the reading end edge-triggered, by which each write is
//! reported and nothing has to be read; only now and then the pipe is emptied, before it can be
//! full.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use crate::foreign_unsafe::Foreign;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// The end that wakes.
#[derive(Debug)]
pub(crate) struct Ringer(OwnedFd);

/// The end that is slept on; its state is the other side's to change.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

/// Octets that one emptying takes at most: what a pipe holds unless it was made larger.
const EMPTYING_OCTETS: usize = 1 << 16;

/// A new pipe: the end that wakes, and the one to be given away.
pub(crate) fn pipe() -> Result<(Ringer, OwnedFd), Errno> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Ringer(write), read))
}

/// Target of octets that are read and discarded: one file, open as long as the process is.
fn nowhere() -> Result<&'static OwnedFd, Errno> {
    static NOWHERE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = NOWHERE.get() {
        return Ok(file);
    }
    let file = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(NOWHERE.get_or_init(|| file))
}

impl Ringer {
    /// Wakes the sleeper at the other end. If the pipe is full or no sleeper is there, nothing
    /// happens.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &[1]);
    }
}

impl Bell {
    /// Takes the end that the other side gave, if it is one of a pipe. Only a pipe answers this
    /// question; any other file could be of a file system in user space, which can keep the
    /// asker waiting.
    pub(crate) fn accept(fd: Foreign) -> Option<Self> {
        rustix::pipe::fcntl_getpipe_size(&fd).ok()?;
        // Later this process may be forbidden to open any file.
        nowhere().ok()?;
        Some(Self(fd.into_own()))
    }

    /// Empties the pipe, without waiting whatever the other side has made of its state.
    ///
    /// # Errors
    /// If the system refuses; the pipe may be full then, and wake no sleeper.
    pub(crate) fn empty(&self) -> Result<(), Errno> {
        let flags = SpliceFlags::NONBLOCK;
        match rustix::pipe::splice(&self.0, None, nowhere()?, None, EMPTYING_OCTETS, flags) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Bell {
    /// The descriptor.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

impl From<Bell> for OwnedFd {
    fn from(bell: Bell) -> Self {
        bell.0
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

    fn reports(set: &OwnedFd) -> usize {
        let mut events = Vec::with_capacity(4);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(set, room, Some(&at_once)).unwrap()
    }

    #[test]
    fn every_ring_is_reported_though_nothing_is_read() {
        let (ringer, read) = pipe().unwrap();
        let bell = Bell::accept(Foreign::new(read)).unwrap();
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &bell, EventData::new_u64(1), EventFlags::IN | EventFlags::ET).unwrap();
        for round in 0..10_000 {
            assert_eq!(reports(&set), 0, "{round}");
            ringer.ring();
            assert_eq!(reports(&set), 1, "{round}");
            if round % 1000 == 999 {
                bell.empty().unwrap();
            }
        }
    }

    #[test]
    fn neither_a_full_nor_an_empty_pipe_keeps_anybody() {
        let (ringer, read) = pipe().unwrap();
        let bell = Bell::accept(Foreign::new(read)).unwrap();
        // What a hostile peer does to the end that it was given, and to the end that it gave.
        rustix::io::ioctl_fionbio(&bell, false).unwrap();
        for _ in 0..2 * EMPTYING_OCTETS {
            ringer.ring();
        }
        bell.empty().unwrap();
        bell.empty().unwrap();
    }

    #[test]
    fn other_files_are_no_bells() {
        for path in ["/dev/null", "/proc/self/stat", "/"] {
            let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
            assert!(Bell::accept(Foreign::new(file)).is_none(), "{path}");
        }
    }
}
