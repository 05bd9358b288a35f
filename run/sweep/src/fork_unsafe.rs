//! A piece of work in a child of this process, which sees all memory as it is now and leaves
//! nothing behind.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The most octets that are kept of what a child says on its standard error.
const SAID_OCTETS_MAX: usize = 1 << 14;
/// The most octets of an answer.
const ANSWER_OCTETS_MAX: usize = 1 << 22;

/// The ways in which a child ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With an answer.
    Answered,
    /// With this exit status, and without an answer.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Killed, for its time was over.
    Late,
}

/// A child that has ended.
pub(crate) struct Child {
    pub(crate) ended: Ended,
    /// The octets that it has answered.
    pub(crate) answer: Vec<u8>,
    /// The beginning of what it said on its standard error.
    pub(crate) said: Vec<u8>,
}

/// Has a child of this process work for `limit` at most. What `work` answers comes back.
///
/// Other threads of the process must wait, as that of a test harness does for its test: a child has
/// only the thread that forks, and what another one held a lock of would stay locked.
///
/// # Errors
/// The system's: no process, no pipe.
pub(crate) fn in_child(limit: Duration, work: impl FnOnce() -> Vec<u8>) -> io::Result<Child> {
    let [answers, errors] = [pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?];
    let parent = rustix::process::getpid();
    // SAFETY: other threads wait and hold no lock, as the caller sees to, so the child may do all
    // that its parent may.
    let forked = unsafe { libc::fork() };
    match forked {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = child(parent, answers.1, errors.1, work);
            // SAFETY: ends the process at once. What the parent had buffered is the parent's to
            // write, and its destructors are not the child's to run.
            unsafe { libc::_exit(code) }
        }
        child => {
            drop((answers.1, errors.1));
            let child = Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?;
            wait(child, limit, answers.0, errors.0)
        }
    }
}

/// The child's whole life.
fn child(
    parent: Pid,
    answers: OwnedFd,
    errors: OwnedFd,
    work: impl FnOnce() -> Vec<u8>,
) -> libc::c_int {
    // A parent that is killed takes its child with it, also one that has gone already.
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if bound.is_err() || rustix::process::getppid() != Some(parent) {
        return 1;
    }
    // SAFETY: both are open descriptors of this process. The standard error goes to the parent.
    if unsafe { libc::dup2(errors.as_raw_fd(), libc::STDERR_FILENO) } < 0 {
        return 1;
    }
    // A panic has been told of on the standard error when it comes here.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(answer) => match File::from(answers).write_all(&answer) {
            Ok(()) => 0,
            Err(_) => 1,
        },
        Err(_) => 101,
    }
}

/// Takes what the child sends until it has ended, or its time is over.
fn wait(child: Pid, limit: Duration, answers: OwnedFd, errors: OwnedFd) -> io::Result<Child> {
    let until = Instant::now() + limit;
    let mut streams = [
        Stream { from: Some(File::from(answers)), octets: Vec::new(), most: ANSWER_OCTETS_MAX },
        Stream { from: Some(File::from(errors)), octets: Vec::new(), most: SAID_OCTETS_MAX },
    ];
    let mut is_late = false;
    // The answer's end is the child's; what it has started may hold the standard error.
    while streams[0].from.is_some() && !is_late {
        let left = until.saturating_duration_since(Instant::now());
        let ready = ready(&streams, left)?;
        is_late = left.is_zero();
        for (stream, ready) in streams.iter_mut().zip(ready) {
            if ready {
                stream.take();
            }
        }
    }
    if is_late {
        let _ = kill_process(child, Signal::KILL);
    }
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(found) => break found.map(|(_, status)| status),
        }
    };
    // What was said before the end is there.
    while ready(&streams, Duration::ZERO)?[1] {
        streams[1].take();
    }
    let [answer, said] = streams.map(|stream| stream.octets);
    let ended = if is_late { Ended::Late } else { ended(status, !answer.is_empty()) };
    Ok(Child { ended, answer, said })
}

fn ended(status: Option<WaitStatus>, has_answered: bool) -> Ended {
    let Some(status) = status else { return Ended::Status(1) };
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) if has_answered => Ended::Answered,
        (Some(code), _) => Ended::Status(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// The octets that come out of a pipe.
struct Stream {
    /// `None` once its end has come.
    from: Option<File>,
    octets: Vec<u8>,
    most: usize,
}

impl Stream {
    /// Takes what is there. What is too much is thrown away, so that its sender goes on.
    fn take(&mut self) {
        let Some(from) = &mut self.from else { return };
        let mut octets = [0; 1 << 14];
        match from.read(&mut octets) {
            Ok(0) => self.from = None,
            Ok(count) => {
                let kept = count.min(self.most.saturating_sub(self.octets.len()));
                self.octets.extend_from_slice(&octets[..kept]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.from = None,
        }
    }
}

/// Reports for both streams whether they have octets, or their end, within a time.
fn ready(streams: &[Stream; 2], time: Duration) -> io::Result<[bool; 2]> {
    let open: Vec<usize> = (0..2).filter(|at| streams[*at].from.is_some()).collect();
    let files = open.iter().filter_map(|at| streams[*at].from.as_ref());
    let mut fds: Vec<PollFd<'_>> =
        files.map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)).collect();
    let mut ready = [false; 2];
    if fds.is_empty() {
        return Ok(ready);
    }
    let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    for (at, fd) in open.iter().zip(&fds) {
        ready[*at] = !fd.revents().is_empty();
    }
    Ok(ready)
}
