//! A channel's end in the program: its socket, and the rings by which it was fetched.

use std::cell::{Cell, RefCell};

use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};
use xk_domains::ring::Ring;
use xk_domains::{Arrival, Carrier, HEADROOM, SendError};
use xk_kit::wire::frames;
use xk_xdp::{Fate, XdpSocket};

/// Octets of the longest frame.
const FRAME_OCTETS_MAX: usize = 1792;

/// A channel whose frames the system checks, as a wire uses it (`crate::channel`).
///
/// What arrived before the system knew of a right comes by the rings, and so do frames that are not
/// for the socket: both are looked at.
pub struct XdpCarrier {
    socket: RefCell<XdpSocket>,
    /// Finish checksums that a sender on this machine has left open.
    finishes: bool,
    ring: Ring,
    /// A frame for which there was no buffer.
    held: RefCell<Option<Vec<u8>>>,
    is_over: Cell<bool>,
    /// The executor sleeps on the socket.
    is_registered: Cell<bool>,
}

impl XdpCarrier {
    /// Makes one of the socket that was sent beside these rings; `finishes` if checksums of
    /// arrivals may be open.
    pub fn new(socket: XdpSocket, finishes: bool, ring: Ring) -> Self {
        Self {
            socket: RefCell::new(socket),
            finishes,
            ring,
            held: RefCell::default(),
            is_over: Cell::new(false),
            is_registered: Cell::new(false),
        }
    }

    /// The next frame from the socket.
    fn receive_beside(&self, cx: &Kernel) -> Option<Arrival> {
        let mut message = None;
        let mut held = self.held.borrow_mut();
        match held.take() {
            Some(frame) => message = Some(cx.pool().copy_from(HEADROOM, &frame).map_err(|_| frame)),
            None => {
                self.socket.borrow_mut().receive(1, |frame| {
                    if self.finishes {
                        frames::finish_begun(frame);
                    }
                    let copied = cx.pool().copy_from(HEADROOM, frame);
                    message = Some(copied.map_err(|_| frame.to_vec()));
                    Fate::Done
                });
            }
        }
        Some(match message? {
            Ok(message) => Arrival::Frame(message),
            Err(frame) => {
                *held = Some(frame);
                Arrival::NoBuffers
            }
        })
    }
}

impl Carrier for XdpCarrier {
    fn room(&self) -> usize {
        if self.is_over.get() { 0 } else { self.socket.borrow_mut().room() }
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        if self.is_lost(cx) {
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
        if self.is_over.get() {
            return Arrival::Lost;
        }
        self.receive_beside(cx).unwrap_or_else(|| self.ring.receive(cx))
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.is_over.get() || self.ring.is_lost(cx)
    }

    fn close(&self) {
        self.is_over.set(true);
        self.ring.close();
    }

    fn flush(&self) {
        // An interface that is gone shows by the rings.
        let _ = self.socket.borrow_mut().flush();
        self.ring.flush();
    }

    fn next_poll(&self) -> Option<Time> {
        self.ring.next_poll()
    }

    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        let mut socket = self.socket.borrow_mut();
        if self.is_over.get() {
            if self.is_registered.replace(false) {
                sleeper.remove(socket.fd());
            }
        } else if !self.is_registered.get() {
            // If it fails, sleeps are short all the same, and the next one tries again.
            self.is_registered.set(sleeper.add(socket.fd()));
        }
        let rests = self.is_over.get() || self.held.borrow().is_none() && !socket.has_arrivals();
        self.ring.rest(cx, sleeper) && rests
    }

    fn woken(&self) {
        self.ring.woken();
    }
}
