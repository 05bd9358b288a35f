//! A wire over a device that carries whole Ethernet frames: all that such wires have in common.

use crate::EthAddr;
use crate::wire::anchor::{Anchor, Anchored, Capabilities, WireEnd, room_if};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::PushError;
use xk_core::reason::Class;
use xk_core::wire::Wire;
use xk_core::{Kernel, Message, Pool, ProtocolRef, Reason, SessionRef, Time};

/// Largest number of frames that wait for a device which takes none.
const BACKLOG_MAX: usize = 256;
/// Interval at which the device is asked for its own losses.
const LOSSES_EVERY: Duration = Duration::from_secs(1);

/// The device takes no frame now, and as many as may wait do so.
pub static DEVICE_FULL: Reason = Reason::new("device full", Class::Exhausted);
/// The interface went down; arrivals go on when it is up again.
pub static DEVICE_DOWN: Reason = Reason::new("device down", Class::Exhausted);
/// The device failed: it is down, gone, or did not take this frame.
pub static DEVICE_ERROR: Reason = Reason::new("device error", Class::Exhausted);
/// The device dropped an arrival before it could be taken: its ring was full, or the frame did not
/// fit.
pub static DEVICE_LOSS: Reason = Reason::new("lost in device", Class::Exhausted);

/// A frame that a device did not take.
#[derive(Debug)]
pub enum Untaken {
    /// The device has no room now.
    Full(Message),
    /// The device never takes this frame, or has failed.
    Never(Message),
}

/// A device that carries whole Ethernet frames, without check sequence.
pub trait FrameDevice {
    /// Takes at most `budget` frames and puts them behind `arrivals`, in messages from `pool`.
    ///
    /// # Errors
    /// Why frames were dropped and how many, or why the device cannot be read; frames in `arrivals`
    /// are good all the same.
    fn receive(
        &mut self,
        pool: &Pool,
        budget: usize,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)>;

    /// Offers the device a frame. A device that sends from the message's own octets keeps it until
    /// they have gone out.
    ///
    /// # Errors
    /// The frame, if the device does not take it.
    fn transmit(&mut self, frame: Message) -> Result<(), Untaken>;

    /// Sees that what the device has taken goes out. True if all did.
    ///
    /// # Errors
    /// Why not, for counting.
    fn flush(&mut self) -> Result<bool, &'static Reason> {
        Ok(true)
    }

    /// Number of arrivals that the device has lost by itself since it was opened.
    fn losses(&mut self) -> u64 {
        0
    }

    /// Has frames for this group arrive from now on, or one such wish less; false if the device
    /// cannot. Wishes for one group count.
    fn set_group(&mut self, group: EthAddr, is_joined: bool) -> bool {
        let _ = (group, is_joined);
        false
    }

    /// The owner of the descriptor that becomes readable on arrivals, as for
    /// [`Sleeper`](xk_core::wire::Sleeper).
    fn descriptor(&self) -> &dyn Any;

    /// Adds what the device is like, for [`Anchor::describe`], to our hardware address in `text`.
    fn describe(&self, text: &mut String) {
        let _ = text;
    }
}

/// The wire over `D`.
pub struct DeviceWire<D> {
    device: RefCell<D>,
    capabilities: Capabilities,
    end: WireEnd<Self>,
    /// Frames that the device had no room for.
    backlog: RefCell<VecDeque<Message>>,
    /// The device holds frames that have not gone out.
    unflushed: Cell<bool>,
    losses: Cell<u64>,
    losses_at: Cell<Time>,
}

impl<D: FrameDevice + 'static> DeviceWire<D> {
    /// The protocol object of a wire over an opened device.
    pub fn new(device: D, capabilities: Capabilities) -> Anchored<Self> {
        Anchored::new(|end| Self {
            device: RefCell::new(device),
            capabilities,
            end,
            backlog: RefCell::default(),
            unflushed: Cell::new(false),
            losses: Cell::new(0),
            losses_at: Cell::new(Time::ZERO),
        })
    }

    /// Counts what the device lost, now and then.
    fn count_losses(&self, cx: &Kernel, this: &ProtocolRef) {
        if cx.now() < self.losses_at.get() {
            return;
        }
        self.losses_at.set(cx.now() + LOSSES_EVERY);
        let lost = self.device.borrow_mut().losses();
        let counted = self.losses.get();
        let new = lost.saturating_sub(counted);
        self.losses.set(counted + new);
        this.head().drops().add(&DEVICE_LOSS, new);
    }

    /// Offers the device a frame, behind those that wait already.
    fn offer(&self, cx: &Kernel, this: &SessionRef, frame: Message) -> Result<(), PushError> {
        let mut backlog = self.backlog.borrow_mut();
        let offered = if backlog.is_empty() {
            self.device.borrow_mut().transmit(frame)
        } else {
            Err(Untaken::Full(frame))
        };
        match offered {
            Ok(()) => {
                self.unflushed.set(true);
                Ok(())
            }
            Err(Untaken::Full(frame)) if backlog.len() < BACKLOG_MAX => {
                backlog.push_back(frame);
                Ok(())
            }
            Err(Untaken::Full(frame)) => {
                this.discard(cx, frame, &DEVICE_FULL);
                Err(PushError::QueueFull)
            }
            Err(Untaken::Never(frame)) => {
                this.discard(cx, frame, &DEVICE_ERROR);
                Err(PushError::Unreachable)
            }
        }
    }

    /// Offers what waits, and has the device send what it has.
    fn empty(&self, this: &ProtocolRef) {
        if !self.unflushed.get() && self.backlog.borrow().is_empty() {
            return;
        }
        let mut device = self.device.borrow_mut();
        for _ in 0..2 {
            match device.flush() {
                Ok(all) => self.unflushed.set(!all),
                Err(why) => {
                    // What it holds is tried again behind the next frame; waiting for a failed
                    // device would only spin.
                    this.head().drops().count(why);
                    self.unflushed.set(false);
                }
            }
            let mut backlog = self.backlog.borrow_mut();
            let before = backlog.len();
            while let Some(frame) = backlog.pop_front() {
                match device.transmit(frame) {
                    Ok(()) => self.unflushed.set(true),
                    Err(Untaken::Full(frame)) => {
                        backlog.push_front(frame);
                        break;
                    }
                    Err(Untaken::Never(_)) => this.head().drops().count(&DEVICE_ERROR),
                }
            }
            if backlog.len() == before {
                break;
            }
        }
    }
}

impl<D: FrameDevice + 'static> Anchor for DeviceWire<D> {
    fn end(&self) -> &WireEnd<Self> {
        &self.end
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    #[inline]
    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        self.offer(cx, this, message)
    }

    fn room(&self, _: &Kernel) -> Option<Duration> {
        room_if(self.backlog.borrow().len() < BACKLOG_MAX)
    }

    fn set_group(&self, group: EthAddr, is_joined: bool) -> bool {
        self.capabilities.takes_groups || self.device.borrow_mut().set_group(group, is_joined)
    }

    fn describe(&self) -> Option<String> {
        let mut text =
            self.capabilities.address.map_or(String::new(), |address| address.to_string());
        self.device.borrow().describe(&mut text);
        Some(text)
    }

    fn stop(&self, _: &Kernel, this: &ProtocolRef) {
        self.empty(this);
        drop(self.backlog.take());
    }
}

impl<D: FrameDevice + 'static> Wire for DeviceWire<D> {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let arrivals = self.end.arrivals();
        if arrivals.is_empty() {
            let arrivals = &mut *arrivals.queue_mut();
            let outcome = self.device.borrow_mut().receive(cx.pool(), budget, arrivals);
            if let Err((why, count)) = outcome {
                this.head().drops().add(why, count as u64);
            }
        }
        let count = self.end.deliver_all(cx, this, budget);
        self.count_losses(cx, this);
        count
    }

    fn flush(&self, _: &Kernel, this: &ProtocolRef) {
        self.empty(this);
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.device.borrow().descriptor());
    }

    fn wants_writable(&self) -> bool {
        self.unflushed.get() || !self.backlog.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests;
