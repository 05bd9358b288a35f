//! `poll`, and the signals of `I_SETSIG`.

use super::Stream;
use crate::block::{Kind, Mblk};
use crate::errno::Errno;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Kernel;

/// Something of no high priority can be read.
pub const POLLIN: u16 = 0x0001;
/// A message of high priority can be read.
pub const POLLPRI: u16 = 0x0002;
/// Band 0 can be written.
pub const POLLOUT: u16 = 0x0004;
/// An error has come.
pub const POLLERR: u16 = 0x0008;
/// The stream is hung up.
pub const POLLHUP: u16 = 0x0010;
/// The stream is closed.
pub const POLLNVAL: u16 = 0x0020;
/// A message of band 0 can be read.
pub const POLLRDNORM: u16 = 0x0040;
/// Band 0 can be written.
pub const POLLWRNORM: u16 = POLLOUT;
/// A message of another band can be read.
pub const POLLRDBAND: u16 = 0x0080;
/// A band above 0 can be written.
pub const POLLWRBAND: u16 = 0x0100;

/// Told of an event, with the bits of `I_SETSIG`.
pub type OnSignal = Rc<dyn Fn(&Kernel, u32)>;

/// Events of a stream of which a user wants to be told.
#[derive(Default)]
pub struct Signals {
    events: Cell<u32>,
    handler: RefCell<Option<OnSignal>>,
}

impl Signals {
    /// A message of no high priority has come.
    pub const INPUT: u32 = 0x01;
    /// A message of high priority has come.
    pub const HIPRI: u32 = 0x02;
    /// There is room in band 0 again.
    pub const OUTPUT: u32 = 0x04;
    /// A module sent a signal in its place among the data.
    pub const MSG: u32 = 0x08;
    /// An M_ERROR has come.
    pub const ERROR: u32 = 0x10;
    /// The stream is hung up.
    pub const HANGUP: u32 = 0x20;
    /// A message of band 0 has come.
    pub const RDNORM: u32 = 0x40;
    /// A message of another band has come.
    pub const RDBAND: u32 = 0x80;
    /// There is room in a band above 0 again.
    pub const WRBAND: u32 = 0x100;
    const ALL: u32 = 0x3ff;

    fn tell(&self, cx: &Kernel, events: u32) {
        let wanted = events & self.events.get();
        let handler = if wanted == 0 { None } else { self.handler.borrow().clone() };
        if let Some(handler) = handler {
            handler(cx, wanted);
        }
    }

    pub(super) fn tell_input(&self, cx: &Kernel, band: u8, _: Kind) {
        let band = if band == 0 { Self::RDNORM } else { Self::RDBAND };
        self.tell(cx, Self::INPUT | band);
    }

    pub(super) fn tell_high(&self, cx: &Kernel) {
        self.tell(cx, Self::HIPRI);
    }

    pub(super) fn tell_room(&self, cx: &Kernel) {
        self.tell(cx, Self::OUTPUT | Self::WRBAND);
    }

    pub(super) fn tell_error(&self, cx: &Kernel) {
        self.tell(cx, Self::ERROR);
    }

    pub(super) fn tell_hangup(&self, cx: &Kernel) {
        self.tell(cx, Self::HANGUP);
    }

    pub(super) fn tell_signal(&self, cx: &Kernel, _: u8) {
        self.tell(cx, Self::MSG);
    }

    pub(super) fn clear(&self) {
        self.events.set(0);
        drop(self.handler.take());
    }
}

impl Stream {
    /// Has a handler called at these events (`I_SETSIG`); 0 ends it. It is called within the put
    /// procedure that brought the event, and does not wait.
    ///
    /// # Errors
    /// EINVAL for bits that are no event, or to end what was not begun.
    pub fn set_signals(&self, events: u32, handler: Option<OnSignal>) -> Result<(), Errno> {
        self.check_open()?;
        let is_end = events == 0;
        if events & !Signals::ALL != 0 || is_end && self.signals.events.get() == 0 {
            return Err(Errno::EINVAL);
        }
        self.signals.events.set(events);
        let before = self.signals.handler.replace(if is_end { None } else { handler });
        drop(before);
        Ok(())
    }

    /// The events of which a handler is told (`I_GETSIG`).
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn signals(&self) -> Result<u32, Errno> {
        self.check_open()?;
        match self.signals.events.get() {
            0 => Err(Errno::EINVAL),
            events => Ok(events),
        }
    }

    /// The events that have occurred, of these; errors and hang-ups are always reported.
    pub fn poll_now(&self, _: &Kernel, events: u16) -> u16 {
        if !self.is_open() || self.is_below.get() {
            return POLLNVAL;
        }
        let mut found = 0;
        match self.head.peek(0, |mp: &Mblk| (mp.kind().is_high(), mp.band)) {
            Some((true, _)) => found |= POLLPRI,
            Some((false, 0)) => found |= POLLIN | POLLRDNORM,
            Some((false, _)) => found |= POLLIN | POLLRDBAND,
            None => {}
        }
        if !self.is_hung_up.get() {
            let write = self.head.write_side();
            if events & POLLOUT != 0 && write.canputnext() {
                found |= POLLOUT;
            }
            if events & POLLWRBAND != 0 && write.bcanputnext(1) {
                found |= POLLWRBAND;
            }
        }
        found &= events;
        if self.is_hung_up.get() {
            found |= POLLHUP;
        }
        if self.read_error.get().is_some() || self.write_error.get().is_some() {
            found |= POLLERR;
        }
        found
    }

    /// Waits until one of these events is there, for `limit` at most (`poll`); 0 if none came.
    ///
    /// # Errors
    /// EINTR, ENOSR if the caller cannot wait.
    pub fn poll(&self, cx: &Kernel, events: u16, limit: Option<Duration>) -> Result<u16, Errno> {
        let look = || Some(self.poll_now(cx, events)).filter(|found| *found != 0);
        let reads = events & !(POLLOUT | POLLWRBAND) != 0;
        let sleep = if reads { &self.readers } else { &self.writers };
        let limit = limit.or(if self.is_nonblocking.get() { Some(Duration::MAX) } else { None });
        match self.wait_for(cx, sleep, limit, look) {
            Err(Errno::ETIME) => Ok(0),
            found => found,
        }
    }
}
