//! A channel's end in the program: its socket, and the connection by which it was fetched.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};
use xk_share::{Arrival, Carrier, HEADROOM, SendError};
use xk_xdp::{Fate, Granted, XdpSocket};

/// Octets of the longest frame.
const FRAME_OCTETS_MAX: usize = 1792;
/// How often a loop that does not sleep looks whether the module is still there: a system call.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A channel whose frames the system checks, as a wire uses it (`xk_netio::channel`).
pub struct XdpCarrier {
    socket: RefCell<XdpSocket>,
    /// The connection to the module: over when the channel is no more.
    lifeline: OwnedFd,
    /// A frame for which there was no buffer.
    held: RefCell<Option<Vec<u8>>>,
    is_over: Cell<bool>,
    look_at: Cell<Time>,
    /// The executor sleeps on both.
    is_registered: Cell<bool>,
}

impl XdpCarrier {
    /// Of a granted socket, for as long as the connection holds.
    ///
    /// # Errors
    /// The descriptors are of something else, or there are no memory mappings left.
    pub fn new(granted: Granted, lifeline: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: RefCell::new(XdpSocket::of(granted)?),
            lifeline,
            held: RefCell::default(),
            is_over: Cell::new(false),
            look_at: Cell::new(Time::ZERO),
            is_registered: Cell::new(false),
        })
    }

    fn look(&self) {
        let mut polled = [PollFd::new(&self.lifeline, PollFlags::RDHUP)];
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let ends = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        if polled[0].revents().intersects(ends) {
            self.is_over.set(true);
        }
    }

    /// What the executor sleeps on.
    fn descriptors(&self, each: impl Fn(&OwnedFd)) {
        each(&self.lifeline);
        each(self.socket.borrow().fd());
    }
}

impl AsFd for XdpCarrier {
    /// The connection to the module.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lifeline.as_fd()
    }
}

impl Carrier for XdpCarrier {
    fn room(&self) -> usize {
        if self.is_over.get() { 0 } else { self.socket.borrow_mut().room() }
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, _: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        if self.is_over.get() {
            return Err(SendError::Lost);
        }
        let octets = head.len() + body.len();
        if octets > FRAME_OCTETS_MAX {
            return Err(SendError::TooLong);
        }
        let sent = self.socket.borrow_mut().transmit_with(octets, |room| {
            let (front, rest) = room.split_at_mut(head.len());
            front.copy_from_slice(head);
            body.copy_to(0, rest);
        });
        if sent { Ok(()) } else { Err(SendError::Full) }
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        let mut held = self.held.borrow_mut();
        let mut found = held.take();
        if found.is_none() {
            let mut message = None;
            self.socket.borrow_mut().receive(1, |frame| {
                match cx.pool().copy_from(HEADROOM, frame) {
                    Ok(copied) => message = Some(copied),
                    Err(_) => found = Some(frame.to_vec()),
                }
                Fate::Done
            });
            if let Some(message) = message {
                return Arrival::Frame(message);
            }
        }
        if let Some(frame) = found {
            let copied = cx.pool().copy_from(HEADROOM, &frame);
            return copied.map_or_else(
                |_| {
                    *held = Some(frame);
                    Arrival::NoBuffers
                },
                Arrival::Frame,
            );
        }
        if self.is_lost(cx) { Arrival::Lost } else { Arrival::Nothing }
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        if !self.is_over.get() && cx.now() >= self.look_at.get() {
            self.look_at.set(cx.now().after(LOOK_EVERY));
            self.look();
        }
        self.is_over.get()
    }

    fn close(&self) {
        self.is_over.set(true);
        let _ = rustix::net::shutdown(&self.lifeline, rustix::net::Shutdown::Both);
    }

    fn flush(&self) {
        // An interface that is gone shows by the lifeline.
        let _ = self.socket.borrow_mut().flush();
    }

    fn rest(&self, _: &Kernel, sleeper: &dyn Sleeper) -> bool {
        if self.is_over.get() {
            if self.is_registered.replace(false) {
                self.descriptors(|fd| sleeper.remove(fd));
            }
            return true;
        }
        if !self.is_registered.get() {
            let all = Cell::new(true);
            self.descriptors(|fd| all.set(all.get() & sleeper.add(fd)));
            // If it fails, sleeps are short all the same, and the next one tries again.
            self.is_registered.set(all.get());
        }
        self.held.borrow().is_none() && !self.socket.borrow_mut().has_arrivals()
    }

    fn woken(&self) {
        self.look_at.set(Time::ZERO);
    }
}
