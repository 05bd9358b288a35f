//! What takes frames from one side of a cut to the other.

use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use xk_core::message::NoBuffers;
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};

use crate::frame::HEADROOM;

/// How many octets a frame has at most: as many as the largest message, with what stands in front
/// of it.
pub const FRAME_OCTETS_MAX: usize = (1 << 16) + 1024;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no room at present.
    Full,
    /// There is no buffer for it.
    NoBuffers,
    /// It is longer than the carrier takes.
    TooLong,
    /// The other side is gone, or has broken the rules.
    Lost,
}

/// What came of looking for a frame.
pub enum Arrival {
    /// A frame; its octets are no longer the other side's to change.
    Frame(Message),
    /// There is none.
    Nothing,
    /// One is there, but no buffer for it at present.
    NoBuffers,
    /// The other side is gone, or has broken the rules: nothing comes any more.
    Lost,
}

/// Takes frames across, in order, and tells when the other side is gone.
pub trait Carrier {
    /// How many frames it takes at present.
    fn room(&self) -> usize;

    /// The longest frame, in octets.
    fn frame_octets_max(&self) -> usize;

    /// Copies a frame out: `head`, and behind it the octets of `body`. The other side may see it at
    /// once, but may sleep: see [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`SendError`].
    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError>;

    /// The next frame from the other side, with room in front.
    fn receive(&self, cx: &Kernel) -> Arrival;

    /// Ends both directions: nothing is sent any more, and the other side finds this one gone.
    fn close(&self);

    /// Wakes the other side for what was sent, and gives room back for what was received.
    fn flush(&self) {}

    /// Gives the other side a chance to run, where the caller cannot be suspended: it may wait for
    /// a moment.
    fn turn(&self, cx: &Kernel) {
        let _ = cx;
    }

    /// When to look for a frame at the latest; see [`Wire::next_poll`](xk_core::wire::Wire).
    fn next_poll(&self) -> Option<Time> {
        None
    }

    /// The executor is about to sleep, and is to be woken by what comes; see
    /// [`Wire::rest`](xk_core::wire::Wire). False if something is there.
    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        let _ = (cx, sleeper);
        true
    }

    /// The executor has slept, or has thought better of it.
    fn woken(&self) {}

    /// False if the other side needs this processor to send.
    fn may_spin(&self) -> bool {
        true
    }
}

/// What takes place on the other side each time that a frame is put into a [`Queue`].
type OnPut = dyn Fn(&Kernel);

/// One direction.
#[derive(Default)]
struct Lane {
    frames: RefCell<VecDeque<Message>>,
    is_lost: Cell<bool>,
    on_put: RefCell<Option<Rc<OnPut>>>,
}

/// Both directions as queues within one thread, whose kernels use one pool.
#[derive(Clone)]
pub struct Queue {
    out: Rc<Lane>,
    back: Rc<Lane>,
    slots: usize,
}

impl Queue {
    /// Both ends of one that holds `slots` frames each way.
    pub fn pair(slots: usize) -> (Self, Self) {
        let (there, back) = (Rc::<Lane>::default(), Rc::<Lane>::default());
        let other = Self { out: Rc::clone(&back), back: Rc::clone(&there), slots };
        (Self { out: there, back, slots }, other)
    }

    /// Has something done on the other side each time that a frame comes to it, before the sender
    /// goes on.
    pub fn on_put<T: 'static>(&self, other: &Rc<T>, act: impl Fn(&T, &Kernel) + 'static) {
        let other: Weak<T> = Rc::downgrade(other);
        let act = move |cx: &Kernel| {
            if let Some(other) = other.upgrade() {
                act(&other, cx);
            }
        };
        *self.out.on_put.borrow_mut() = Some(Rc::new(act));
    }
}

impl Carrier for Queue {
    fn room(&self) -> usize {
        self.slots.saturating_sub(self.out.frames.borrow().len())
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        let octets = head.len() + body.len();
        if self.out.is_lost.get() {
            return Err(SendError::Lost);
        }
        if octets > FRAME_OCTETS_MAX {
            return Err(SendError::TooLong);
        }
        if self.room() == 0 {
            return Err(SendError::Full);
        }
        let frame = cx.pool().alloc(HEADROOM, octets);
        let mut frame = frame.map_err(|NoBuffers| SendError::NoBuffers)?;
        let mut at = frame.copy_in(0, head);
        for slice in body.octet_slices() {
            at += frame.copy_in(at, slice);
        }
        self.out.frames.borrow_mut().push_back(frame);
        self.turn(cx);
        Ok(())
    }

    fn receive(&self, _: &Kernel) -> Arrival {
        match self.back.frames.borrow_mut().pop_front() {
            Some(frame) => Arrival::Frame(frame),
            None if self.back.is_lost.get() => Arrival::Lost,
            None => Arrival::Nothing,
        }
    }

    fn close(&self) {
        for lane in [&self.out, &self.back] {
            lane.is_lost.set(true);
            lane.frames.take();
            lane.on_put.take();
        }
    }

    fn turn(&self, cx: &Kernel) {
        let act = self.out.on_put.borrow().clone();
        if let Some(act) = act {
            act(cx);
        }
    }
}
