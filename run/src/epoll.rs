//! Sleeping on file descriptors.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A set of descriptors to sleep on.
pub(crate) struct Epoll {
    set: OwnedFd,
}

/// How many descriptors one wake-up reports at most; the rest come with the next.
const REPORTS_MAX: usize = 16;

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            set: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Adds a descriptor, to be reported as `number` when it is readable.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        epoll::add(&self.set, fd, EventData::new_u64(number), EventFlags::IN)?;
        Ok(())
    }

    /// Adds a descriptor, to be reported as `number` each time that it is signalled, whether or not it was read from.
    pub(crate) fn add_edge(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.set, fd, EventData::new_u64(number), flags)?;
        Ok(())
    }

    /// Reports a descriptor also when it is writable, or no longer.
    pub(crate) fn want_writable(
        &self,
        fd: BorrowedFd<'_>,
        number: u64,
        wanted: bool,
    ) -> io::Result<()> {
        let flags = if wanted {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        epoll::modify(&self.set, fd, EventData::new_u64(number), flags)?;
        Ok(())
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // The descriptor may be closed already, which has removed it.
        let _ = epoll::delete(&self.set, fd);
    }

    /// Sleeps until a descriptor reports or `timeout` is over. Calls `report` with each number.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mut report: impl FnMut(u64)) {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut room = [const { MaybeUninit::<Event>::uninit() }; REPORTS_MAX];
        // An interrupted sleep reports nothing; the loop looks why.
        if let Ok((events, _)) = epoll::wait(&self.set, &mut room, timeout.as_ref()) {
            for event in events {
                report(event.data.u64());
            }
        }
    }
}
