//! One end of the rings, as the proxies of a cut use it.

use std::cell::{Cell, RefCell};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::{Arrival, Carrier, FRAME_OCTETS_MAX, HEADROOM, SendError};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};
use xk_shm::{Geometry, Left, Link, ShmError};

/// Slots of a direction.
const SLOTS: u32 = 512;
/// Octets of a frame in one slot at most: a frame with a datagram of an Ethernet fits. Not a
/// fraction of a page, so that the buffers spread over a cache.
const IN_SLOT: u32 = 2112;
/// A ring that has so much room is not looked at for more. Of one that is half full users have
/// shares, by what is free in truth.
const ROOM_ENOUGH: u32 = SLOTS / 2 + 1;
/// Interval at which a loop that does not sleep looks whether the peer is still there, by a system
/// call.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// After how many looks the processors are told again: the system may move the thread.
const LOOKS_A_TELLING: u32 = 100;
/// Time that a caller which cannot be suspended waits for a frame before it looks after other work.
const TURN: Duration = Duration::from_millis(1);

/// One end of a cut's rings.
pub struct Ring {
    /// None after the end.
    link: RefCell<Option<Link>>,
    /// Remainder of a link that is over.
    left: RefCell<Option<Left>>,
    /// The executor sleeps on the link.
    registered: Cell<bool>,
    /// The peer is gone; so many frames are taken out of the ring at most before the link is over.
    last_frames: Cell<Option<u32>>,
    /// Time of the next look after the peer, at the latest.
    look_at: Cell<Time>,
    looks: Cell<u32>,
    /// True if it has just slept, and does not know why it was woken.
    slept: Cell<bool>,
    /// A frame came with the last waking, which may have been for the peer's end, too: that is
    /// looked for when it is due, not at once, since it takes a system call.
    may_be_gone: Cell<bool>,
}

/// Returns the sizes of the link of a [`Ring`].
pub fn geometry() -> Geometry {
    Geometry::spanning(SLOTS, FRAME_OCTETS_MAX as u32, IN_SLOT).unwrap_or_default()
}

/// Both ends, for two threads of a process.
///
/// # Errors
/// [`ShmError`]: the system has no memory or no descriptors left.
pub fn pair() -> Result<(Ring, Ring), ShmError> {
    let (one, other) = Link::pair(&geometry())?;
    Ok((Ring::new(one), Ring::new(other)))
}

impl Ring {
    /// An end whose other one the process at the other end of `socket` grants, within `limit`: a
    /// connected socket of unix(7) that keeps messages apart (`SOCK_SEQPACKET`), and on which
    /// nothing is sent any more otherwise. Which process that is, the caller knows.
    ///
    /// # Errors
    /// [`ShmError`].
    pub fn ask(socket: OwnedFd, limit: Duration) -> Result<Self, ShmError> {
        Link::ask(socket, &geometry(), limit).map(Self::new)
    }

    /// The other side of [`ask`](Self::ask): makes the memory. Returns at once, and does not wait
    /// for `limit`, once the other side has asked.
    ///
    /// # Errors
    /// [`ShmError`].
    pub fn grant(socket: OwnedFd, limit: Duration) -> Result<Self, ShmError> {
        Link::grant(socket, &geometry(), limit).map(Self::new)
    }

    /// An end on a link of this [`geometry`].
    pub fn new(link: Link) -> Self {
        Self {
            link: RefCell::new(Some(link)),
            left: RefCell::default(),
            registered: Cell::new(false),
            last_frames: Cell::new(None),
            look_at: Cell::new(Time::ZERO),
            looks: Cell::new(0),
            slept: Cell::new(false),
            may_be_gone: Cell::new(false),
        }
    }

    /// Sends octets with descriptors beside the rings ([`Link::send_beside`]).
    ///
    /// # Errors
    /// [`ShmError`]: the peer is gone, or takes nothing.
    pub fn send_beside(&self, octets: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), ShmError> {
        let link = self.link.borrow();
        link.as_ref().ok_or(ShmError::Hello("it is gone"))?.send_beside(octets, files)
    }

    /// Waits for what comes beside the rings ([`Link::receive_beside`]).
    ///
    /// # Errors
    /// [`ShmError`]: the peer is gone, or sends nothing within `limit`.
    pub fn receive_beside(
        &self,
        octets_max: usize,
        limit: Duration,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), ShmError> {
        let link = self.link.borrow();
        link.as_ref().ok_or(ShmError::Hello("it is gone"))?.receive_beside(octets_max, limit)
    }

    /// Sends a frame in parts.
    #[inline]
    pub(crate) fn send_octets<'a>(
        &self,
        octets: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), SendError> {
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return Err(SendError::Lost);
        };
        link.end().send_parts(octets, parts).map_err(|error| match error {
            xk_shm::SendError::Full => SendError::Full,
            xk_shm::SendError::TooLong => SendError::TooLong,
            xk_shm::SendError::Broken(_) => SendError::Lost,
        })
    }

    /// Looks after the peer, if that is due.
    #[inline]
    fn look_at_times(&self, cx: &Kernel, link: &mut Link) {
        if cx.now() >= self.look_at.get() || self.slept.get() {
            self.slept.set(false);
            self.look(cx, link);
        }
    }

    /// Looks after the peer.
    #[cold]
    fn look(&self, cx: &Kernel, link: &mut Link) {
        self.may_be_gone.set(false);
        self.look_at.set(cx.now().after(LOOK_EVERY));
        if link.check().is_err() {
            self.peer_is_gone(link);
        }
        if self.looks.get().is_multiple_of(LOOKS_A_TELLING) {
            link.tell_processors();
        }
        self.looks.set(self.looks.get().wrapping_add(1));
    }

    /// Notes that the peer is gone; frames that it sent before are still taken.
    fn peer_is_gone(&self, link: &mut Link) {
        if self.last_frames.get().is_none() {
            self.last_frames.set(Some(link.end().slots()));
        }
    }

    /// Notes that the peer has broken the rules: none of its frames are taken.
    fn peer_is_broken(&self) {
        self.last_frames.set(Some(0));
    }
}

impl Carrier for Ring {
    fn room(&self) -> usize {
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return 0;
        };
        match link.end().room(ROOM_ENOUGH) {
            Ok(slots) => slots as usize,
            Err(_) => {
                self.peer_is_broken();
                0
            }
        }
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, _: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        let parts = [head].into_iter().chain(body.octet_slices());
        self.send_octets(head.len() + body.len(), parts)
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return Arrival::Lost;
        };
        if self.last_frames.get() == Some(0) {
            return Arrival::Lost;
        }
        match link.end().arrival() {
            Ok(Some(arrival)) => {
                let Ok(frame) = arrival.into_message(cx.pool(), HEADROOM) else {
                    return Arrival::NoBuffers;
                };
                if let Some(left) = self.last_frames.get() {
                    self.last_frames.set(Some(left - 1));
                }
                if self.slept.replace(false) {
                    self.may_be_gone.set(true);
                }
                return Arrival::Frame(frame);
            }
            Ok(None) => {}
            Err(_) => self.peer_is_broken(),
        }
        if self.last_frames.get().is_some() {
            return Arrival::Lost;
        }
        self.look_at_times(cx, link);
        Arrival::Nothing
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return true;
        };
        self.look_at_times(cx, link);
        self.last_frames.get().is_some()
    }

    fn close(&self) {
        if let Some(link) = self.link.borrow_mut().take() {
            *self.left.borrow_mut() = Some(link.leave());
        }
    }

    fn flush(&self) {
        if let Some(link) = self.link.borrow_mut().as_mut() {
            link.flush();
        }
    }

    fn turn(&self, _: &Kernel) {
        if let Some(link) = self.link.borrow_mut().as_mut() {
            link.flush();
            if link.wait(Some(TURN)).is_err() {
                self.peer_is_gone(link);
            }
        }
    }

    fn next_poll(&self) -> Option<Time> {
        self.may_be_gone.get().then(|| self.look_at.get())
    }

    fn rest(&self, _: &Kernel, sleeper: &dyn Sleeper) -> bool {
        if let Some(left) = self.left.borrow_mut().take()
            && self.registered.replace(false)
        {
            left.remove_from(sleeper);
        }
        let mut link = self.link.borrow_mut();
        let Some(link) = link.as_mut() else {
            return true;
        };
        link.leave_bed();
        if !self.registered.get() {
            // If it fails, sleeps are short all the same, and the next one tries again.
            self.registered.set(link.add_to(sleeper));
        }
        self.last_frames.get().is_none() && link.doze()
    }

    fn woken(&self) {
        self.slept.set(true);
        if let Some(link) = self.link.borrow_mut().as_mut()
            && link.woken().is_err()
        {
            self.peer_is_gone(link);
        }
    }

    fn may_spin(&self) -> bool {
        self.link.borrow().as_ref().is_none_or(|link| !link.shares_processor())
    }
}
