//! A carrier within one thread, for tests and for hosts of a simulation.

use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::message::NoBuffers;
use xk_core::random::Random;
use xk_core::{Kernel, Message, Time};

use crate::carrier::{Arrival, Carrier, SendError};
use crate::frame::HEADROOM;

/// Act of the other side each time that a frame is put into a [`Queue`].
type OnPut = dyn Fn(&Kernel);

/// Delay of a frame.
struct Delay {
    least: Duration,
    /// An even share of this comes on top.
    jitter: Duration,
    chance: Random,
}

/// One direction.
#[derive(Default)]
struct Lane {
    /// Each with the time from which on it can be received.
    frames: RefCell<VecDeque<(Time, Message)>>,
    delay: Option<Delay>,
    is_lost: Cell<bool>,
    on_put: RefCell<Option<Rc<OnPut>>>,
}

impl Lane {
    /// Time of arrival of a frame that is sent now; none overtakes another.
    fn arrival(&self, now: Time) -> Time {
        let Some(Delay { least, jitter, chance }) = &self.delay else {
            return Time::ZERO;
        };
        let later = chance.below(jitter.as_nanos() as u64 + 1);
        let at = now.after(*least).after(Duration::from_nanos(later));
        self.frames.borrow().back().map_or(at, |(last, _)| at.max(*last))
    }

    fn due(&self) -> Option<Time> {
        let first = self.frames.borrow().front().map(|(at, _)| *at);
        first.or_else(|| self.is_lost.get().then_some(Time::ZERO))
    }
}

/// Both directions as queues within one thread, whose kernels use one pool and one time.
#[derive(Clone)]
pub struct Queue {
    out: Rc<Lane>,
    back: Rc<Lane>,
    slots: usize,
}

/// Largest frame, in octets: more than the largest record of a stream.
const FRAME_OCTETS_MAX: usize = 1 << 20;

impl Queue {
    /// Both ends of one that holds `slots` frames each way.
    pub fn pair(slots: usize) -> (Self, Self) {
        Self::of([Lane::default(), Lane::default()], slots)
    }

    /// Both ends of one in which each frame is on its way for `least`, and an even share of
    /// `jitter` longer; `chance` says which. None overtakes another.
    pub fn delayed(
        slots: usize,
        (least, jitter): (Duration, Duration),
        chance: &Random,
    ) -> (Self, Self) {
        let lane = |way| {
            let delay = Some(Delay { least, jitter, chance: chance.fork(way) });
            Lane { delay, ..Lane::default() }
        };
        Self::of([lane(0), lane(1)], slots)
    }

    /// An end whose other side is gone.
    pub fn ended() -> Self {
        let (end, _) = Self::pair(1);
        end.close();
        end
    }

    fn of(lanes: [Lane; 2], slots: usize) -> (Self, Self) {
        let [there, back] = lanes.map(Rc::new);
        let other = Self { out: Rc::clone(&back), back: Rc::clone(&there), slots };
        (Self { out: there, back, slots }, other)
    }

    /// Has something done on the other side each time that a frame is sent to it, before the sender
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

    fn put(&self, cx: &Kernel) {
        let act = self.out.on_put.borrow().clone();
        if let Some(act) = act {
            act(cx);
        }
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
        let arrival = self.out.arrival(cx.now());
        self.out.frames.borrow_mut().push_back((arrival, frame));
        self.put(cx);
        Ok(())
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        let there = |(at, _): &mut (Time, Message)| *at <= cx.now();
        let next = self.back.frames.borrow_mut().pop_front_if(there);
        match next {
            Some((_, frame)) => Arrival::Frame(frame),
            None if self.back.due() == Some(Time::ZERO) => Arrival::Lost,
            None => Arrival::Nothing,
        }
    }

    fn is_lost(&self, _: &Kernel) -> bool {
        self.back.is_lost.get()
    }

    fn next_poll(&self) -> Option<Time> {
        self.back.due()
    }

    fn close(&self) {
        for lane in [&self.out, &self.back] {
            lane.is_lost.set(true);
            lane.on_put.take();
        }
        drop(self.back.frames.take());
    }

    /// Lets time pass until the next frame either way is there, where the other side acts at all.
    fn turn(&self, cx: &Kernel) {
        if self.out.on_put.borrow().is_none() {
            return;
        }
        if let Some(due) = self.out.due().into_iter().chain(self.back.due()).min() {
            cx.set_now(due);
        }
        self.put(cx);
    }
}
