//! Sleeping on file descriptors.

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// A set of descriptors to sleep on.
pub(crate) struct Epoll {
    set: OwnedFd,
    /// Further descriptors that end the next sleep.
    pub(crate) polled: RefCell<Vec<Rc<OwnedFd>>>,
}

/// Descriptors that are polled one by one, usually.
const POLLED_USUAL: usize = 4;
/// Descriptors that one wake-up reports at most; the rest come with the next.
const REPORTS_MAX: usize = 16;

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { set: epoll::create(CreateFlags::CLOEXEC)?, polled: RefCell::default() })
    }

    /// Adds a descriptor, to be reported as `number` when it is readable.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        epoll::add(&self.set, fd, EventData::new_u64(number), EventFlags::IN)?;
        Ok(())
    }

    /// Adds a descriptor, to be reported as `number` each time that it is signalled, whether or not
    /// it was read from.
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
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(&self.set, fd, EventData::new_u64(number), flags)?;
        Ok(())
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // The descriptor may be closed already, which has removed it.
        let _ = epoll::delete(&self.set, fd);
    }

    /// Sleeps until a descriptor reports or `timeout` is over. Calls `report` with each number.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mut report: impl FnMut(u64)) {
        let mut timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut polled = self.polled.borrow_mut();
        if !polled.is_empty() {
            let mut fds: SmallVec<[PollFd<'_>; POLLED_USUAL]> = SmallVec::new();
            fds.push(PollFd::new(&self.set, PollFlags::IN));
            fds.extend(polled.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            let is_set_ready =
                poll(&mut fds, timeout.as_ref()).is_ok() && !fds[0].revents().is_empty();
            drop(fds);
            polled.clear();
            if !is_set_ready {
                return;
            }
            timeout = Some(Timespec::default());
        }
        drop(polled);
        let mut room = [const { MaybeUninit::<Event>::uninit() }; REPORTS_MAX];
        // An interrupted sleep reports nothing; the loop looks why.
        if let Ok((events, _)) = epoll::wait(&self.set, &mut room, timeout.as_ref()) {
            for event in events {
                report(event.data.u64());
            }
        }
    }
}
