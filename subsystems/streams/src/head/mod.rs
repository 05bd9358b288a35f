//! The stream head: where users meet a stream, and the only place where one waits.

mod arrive;
mod io;
mod ioctl;
mod messages;
mod pass;
mod poll;
mod sleep;
mod transparent;

pub use ioctl::{Command, Info, StrWait, acked, naked};
pub use messages::{Got, MORECTL, MOREDATA, Want};
pub use poll::{
    OnSignal, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM,
    POLLWRBAND, POLLWRNORM, Signals,
};
pub use transparent::{CopyReq, CopyResp, TRANSPARENT, argument, copyin, copyout};

use crate::block::Mblk;
use crate::errno::Errno;
use crate::module::{Module, ModuleInfo, Services};
use crate::queue::{Q, What};
use crate::scheduler::Core;
use crate::streams::Streams;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use ioctl::Pending;
use sleep::Sleep;
use xk_core::Kernel;

/// Marks of the read queue of a head.
const HEAD: ModuleInfo = ModuleInfo::new(0, "strhead").marks(5120, 1024);
/// Time that a close waits for a module's output to go out, unless told otherwise.
const CLOSE_WAIT: Duration = Duration::from_secs(15);

/// Mode in which `read` takes messages (the low bits of `I_SRDOPT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// A stream of octets (RNORM).
    #[default]
    Stream,
    /// One message, of which the rest is dropped (RMSGD).
    Discard,
    /// One message, of which the rest stays (RMSGN).
    Keep,
}

/// Mode in which `read` treats control of protocols (the high bits of `I_SRDOPT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtoMode {
    /// `read` fails with EBADMSG (RPROTNORM).
    #[default]
    Fail,
    /// `read` takes control for data (RPROTDAT).
    Data,
    /// `read` drops control (RPROTDIS).
    Discard,
}

/// A stream, with its head: what a file descriptor is to a user.
pub struct Stream {
    this: Weak<Stream>,
    streams: Weak<Streams>,
    core: Rc<Core>,
    head: Q,
    token: u32,
    /// Users that hold it.
    opens: Cell<u32>,
    is_nonblocking: Cell<bool>,
    read_error: Cell<Option<Errno>>,
    write_error: Cell<Option<Errno>>,
    /// Whether errors for reading and for writing go when they have been told.
    errors_pass: Cell<(bool, bool)>,
    is_hung_up: Cell<bool>,
    /// The other end, if it is one of a pipe.
    partner: RefCell<Option<Weak<Stream>>>,
    /// Linked below a multiplexor.
    is_below: Cell<bool>,
    read_mode: Cell<ReadMode>,
    proto_mode: Cell<ProtoMode>,
    sends_zero: Cell<bool>,
    /// Octets left free in front of what `write` sends.
    write_offset: Cell<u16>,
    close_wait: Cell<Duration>,
    ioctl: RefCell<Option<Pending>>,
    ioctl_last: Cell<u32>,
    readers: Sleep,
    writers: Sleep,
    ioctls: Sleep,
    signals: Signals,
}

/// The procedures of a head's queue pair.
struct Head(Weak<Stream>);

impl Module for Head {
    fn info(&self) -> ModuleInfo {
        HEAD
    }

    /// The write side has one, so that it is enabled when there is room again.
    fn services(&self) -> Services {
        Services { read: false, write: true }
    }

    fn rput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
        match self.0.upgrade() {
            Some(stream) => stream.arrive(cx, mp),
            None => q.core().count_loss(mp),
        }
    }

    fn wsrv(&self, cx: &Kernel, _: &Q) {
        if let Some(stream) = self.0.upgrade() {
            stream.writers.wake_all(cx);
            stream.signals.tell_room(cx);
        }
    }
}

impl Stream {
    pub(crate) fn new(streams: &Rc<Streams>) -> Rc<Self> {
        let head = Q::pair(&streams.core);
        let stream = Rc::new_cyclic(|this| Self {
            this: this.clone(),
            streams: Rc::downgrade(streams),
            core: Rc::clone(&streams.core),
            head: head.clone(),
            token: streams.next_token(),
            opens: Cell::new(1),
            is_nonblocking: Cell::new(false),
            read_error: Cell::new(None),
            write_error: Cell::new(None),
            errors_pass: Cell::default(),
            is_hung_up: Cell::new(false),
            partner: RefCell::default(),
            is_below: Cell::new(false),
            read_mode: Cell::default(),
            proto_mode: Cell::default(),
            sends_zero: Cell::new(true),
            write_offset: Cell::new(0),
            close_wait: Cell::new(CLOSE_WAIT),
            ioctl: RefCell::default(),
            ioctl_last: Cell::new(0),
            readers: Sleep::default(),
            writers: Sleep::default(),
            ioctls: Sleep::default(),
            signals: Signals::default(),
        });
        stream.place_head();
        stream
    }

    fn place_head(&self) {
        drop(self.head.place(Rc::new(Head(self.this.clone()))));
    }

    /// The read queue of the head.
    pub fn head_q(&self) -> Q {
        self.head.clone()
    }

    /// The source of blocks.
    pub fn blocks(&self) -> &crate::block::Blocks {
        &self.core.blocks
    }

    /// The subsystem.
    pub fn streams(&self) -> Option<Rc<Streams>> {
        self.streams.upgrade()
    }

    /// With true, no call on this stream waits (O_NONBLOCK): it fails with EAGAIN instead.
    pub fn set_nonblocking(&self, is_nonblocking: bool) {
        self.is_nonblocking.set(is_nonblocking);
    }

    /// Whether a user holds it.
    pub fn is_open(&self) -> bool {
        self.opens.get() > 0
    }

    /// Whether the device is gone.
    pub fn is_hung_up(&self) -> bool {
        self.is_hung_up.get()
    }

    /// Whether it is linked below a multiplexor.
    pub fn is_linked(&self) -> bool {
        self.is_below.get()
    }

    /// Makes its head's procedures a multiplexor's from now on.
    pub(crate) fn set_linked(&self) {
        self.is_below.set(true);
    }

    /// Opens it once more: each module and the driver hear of it; it takes as many closes.
    ///
    /// # Errors
    /// What they say; EBADF if it is closed, ENXIO if it is hung up.
    pub fn reopen(&self, cx: &Kernel) -> Result<(), Errno> {
        self.check_open()?;
        if self.is_hung_up.get() {
            return Err(Errno::ENXIO);
        }
        for q in crate::streams::chain(&self.head) {
            q.module().reopen(cx, &q.read_side())?;
        }
        self.opens.set(self.opens.get() + 1);
        Ok(())
    }

    /// A user releases it; with the last one it is closed: it waits for what the modules have
    /// queued downwards, for 15 s at most, unless it is not to wait. A stream that is linked below
    /// a multiplexor stays.
    pub fn close(&self, cx: &Kernel) {
        match self.opens.get() {
            0 => return,
            1 => {}
            opens => return self.opens.set(opens - 1),
        }
        if !self.is_linked() && !self.is_hung_up.get() && !self.is_nonblocking.get() {
            self.drain(cx);
        }
        self.abandon(cx);
        if self.is_below.get() {
            return;
        }
        let Some(streams) = self.streams.upgrade() else { return };
        if let Some(top) = streams.find_top(&self.head) {
            streams.close_top(cx, &top);
        }
    }

    /// Waits until the modules' write queues are empty.
    fn drain(&self, cx: &Kernel) {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let waits_until = cx.now().after(self.close_wait.get());
        let is_idle =
            || crate::streams::chain(&self.head).iter().all(|q| q.qsize() == 0 || q.is_gone());
        self.core.run_queues(cx);
        while !is_idle() && cx.now() < waits_until {
            if self.writers.wait(cx, Some(LOOK_EVERY)) == Err(Errno::EINTR) {
                return;
            }
            self.core.run_queues(cx);
            if !cx.shepherds().may_suspend() || cx.shepherds().current().is_none() {
                return;
            }
        }
    }

    /// No user holds it any more: each that waits is told, and what was passed here is closed.
    pub(crate) fn abandon(&self, cx: &Kernel) {
        self.opens.set(0);
        self.drop_passed(cx);
        self.signals.clear();
        for sleep in [&self.readers, &self.writers, &self.ioctls] {
            sleep.wake_all(cx);
        }
    }

    /// The head's procedures are those of its queue pair again: it is no longer linked.
    pub(crate) fn take_head_back(&self) {
        self.is_below.set(false);
        self.place_head();
    }

    fn check_open(&self) -> Result<(), Errno> {
        if self.is_open() { Ok(()) } else { Err(Errno::EBADF) }
    }

    /// Whether a user holds it and its head is its own.
    fn check_usable(&self) -> Result<(), Errno> {
        self.check_open()?;
        if self.is_below.get() { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// Whether calls that read from it may go on.
    fn check_read(&self) -> Result<(), Errno> {
        self.check_usable()?;
        self.read_error.get().map_or(Ok(()), Err)
    }

    /// As [`check_read`](Self::check_read), where the error is told to the user: one that does not
    /// stay goes.
    fn tell_read(&self) -> Result<(), Errno> {
        let told = self.check_read();
        if told.is_err() && self.errors_pass.get().0 {
            self.read_error.set(None);
        }
        told
    }

    /// Whether calls that send on it may go on.
    fn check_write(&self) -> Result<(), Errno> {
        self.check_usable()?;
        if self.is_hung_up.get() {
            return Err(if self.is_pipe() { Errno::EPIPE } else { Errno::ENXIO });
        }
        self.write_error.get().map_or(Ok(()), Err)
    }

    /// As [`check_write`](Self::check_write), where the error is told to the user.
    fn tell_write(&self) -> Result<(), Errno> {
        let told = self.check_write();
        if told.is_err() && self.errors_pass.get().1 {
            self.write_error.set(None);
        }
        told
    }

    /// Waits until `look` finds something, until `waits_until` at most; service procedures run
    /// before.
    ///
    /// # Errors
    /// EAGAIN if it is not to wait, ETIME when the time is over, EINTR, ENOSR without a shepherd.
    fn wait_for<T>(
        &self,
        cx: &Kernel,
        sleep: &Sleep,
        limit: Option<Duration>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, Errno> {
        let waits_until = limit.map(|limit| cx.now().after(limit));
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if self.core.run_queues(cx) > 0 {
                continue;
            }
            if self.is_nonblocking.get() && limit.is_none() {
                return Err(Errno::EAGAIN);
            }
            let left = waits_until.map(|until| until.since(cx.now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Errno::ETIME);
            }
            sleep.wait(cx, left)?;
        }
    }

    /// Frees what waits in the head's queues.
    fn flush_head(&self, cx: &Kernel, read: bool, write: bool, what: What) {
        if read {
            self.drop_passed(cx);
            self.head.flushq(cx, what);
        }
        if write {
            self.head.write_side().flushq(cx, what);
        }
    }
}
