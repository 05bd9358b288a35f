//! A wire over a device that carries whole Ethernet frames: all that such wires have in common.

use crate::EthAddr;
use crate::control::{JoinGroup, LinkType, MaxPacket, MyEther, OptPacket};
use crate::offload::{self, Offloads};
use crate::wire_end::WireEnd;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Describe;
use xk_core::object::{Arrivals, Burst, Closing, Enable, OpenError, PushError, Refused};
use xk_core::reason::{self, Class};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Pool, Protocol, ProtocolRef, Reason, Session,
    SessionRef, Time, Upper,
};

/// Octets of an Ethernet header without tag (IEEE 802.3).
const HEADER_OCTETS: usize = 14;
/// How many frames wait for a device that takes none.
const BACKLOG_MAX: usize = 256;
/// How often the device is asked for what it lost by itself.
const LOSSES_EVERY: Duration = Duration::from_secs(1);
/// How many losses one look counts at most; the rest is counted at the next.
const LOSSES_AT_ONCE: u64 = 1 << 16;

/// The device takes no frame now, and as many as may wait do so.
pub static DEVICE_FULL: Reason = Reason::new("device full", Class::Exhausted);
/// The device failed: it is down, gone, or did not take this frame.
pub static DEVICE_ERROR: Reason = Reason::new("device error", Class::Exhausted);
/// The device dropped an arrival before it could be taken: its ring was full, or the frame did not fit.
pub static DEVICE_LOSS: Reason = Reason::new("lost in device", Class::Exhausted);

/// A frame that a device did not take.
#[derive(Debug)]
pub enum Untaken {
    /// It has no room now.
    Full(Message),
    /// It never takes this frame, or has failed.
    Never(Message),
}

/// A device that carries whole Ethernet frames, without check sequence.
pub trait FrameDevice {
    /// The largest payload of a frame, in octets.
    fn mtu(&self) -> usize;

    /// Takes at most `budget` frames and puts them behind `arrivals`, in messages from `pool`.
    ///
    /// # Errors
    /// Why frames were dropped and how many, or why the device cannot be read; frames in `arrivals` are good all the same.
    fn receive(
        &mut self,
        pool: &Pool,
        budget: usize,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)>;

    /// Offers the device a frame. A device that sends from the message's own octets keeps it until they have gone out.
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

    /// Whether it completes partial checksums, or carries them to a receiver who knows ([`crate::offload`]). For one that does
    /// not, they are completed before it gets a frame.
    fn takes_partial_checksums(&self) -> bool {
        false
    }

    /// How many arrivals the device has lost by itself since it was opened.
    fn losses(&mut self) -> u64 {
        0
    }

    /// The descriptor that becomes readable on arrivals.
    fn descriptor(&self) -> i32;

    /// Adds what the device is like, for [`Describe`], to our hardware address in `text`.
    fn describe(&self, text: &mut String) {
        let _ = text;
    }
}

/// What a device wire is like.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSettings {
    /// Our hardware address.
    pub address: EthAddr,
    /// True if frames for every group arrive without being asked for.
    pub takes_groups: bool,
}

struct Shared<D> {
    device: RefCell<D>,
    settings: DeviceSettings,
    frame_octets_max: usize,
    end: WireEnd,
    /// Frames may go to the device with partial checksums.
    partial_checksums: bool,
    /// Frames that the device had no room for.
    backlog: RefCell<VecDeque<Message>>,
    /// Frames taken from the device and not delivered yet.
    arrivals: Arrivals,
    /// The device holds frames that have not gone out.
    unflushed: Cell<bool>,
}

/// The wire over `D` as a protocol object. One protocol stands on it.
pub struct DeviceWire<D> {
    shared: Rc<Shared<D>>,
    losses: Cell<u64>,
    losses_at: Cell<Time>,
}

impl<D: FrameDevice + 'static> DeviceWire<D> {
    /// A wire over an opened device.
    pub fn new(device: D, settings: DeviceSettings) -> Self {
        let frame_octets_max = device.mtu() + HEADER_OCTETS;
        let shared = Shared {
            partial_checksums: device.takes_partial_checksums(),
            device: RefCell::new(device),
            settings,
            frame_octets_max,
            end: WireEnd::default(),
            backlog: RefCell::default(),
            arrivals: Arrivals::default(),
            unflushed: Cell::new(false),
        };
        Self {
            shared: Rc::new(shared),
            losses: Cell::new(0),
            losses_at: Cell::new(Time::ZERO),
        }
    }

    fn session(&self, upper: ProtocolRef) -> DeviceSession<D> {
        DeviceSession {
            shared: Rc::clone(&self.shared),
            upper,
        }
    }

    /// Counts what the device lost, now and then.
    fn count_losses(&self, cx: &Kernel, this: &ProtocolRef) {
        if cx.now() < self.losses_at.get() {
            return;
        }
        self.losses_at.set(cx.now() + LOSSES_EVERY);
        let lost = self.shared.device.borrow_mut().losses();
        let counted = self.losses.get();
        let new = lost.saturating_sub(counted).min(LOSSES_AT_ONCE);
        self.losses.set(counted + new);
        for _ in 0..new {
            this.head().drops().count(&DEVICE_LOSS);
        }
    }
}

impl<D: FrameDevice> Shared<D> {
    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        let octets = u32::try_from(self.frame_octets_max).unwrap_or(u32::MAX);
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<MyEther>() {
            q.address = self.settings.address.0;
        } else if let Some(q) = ask.get::<LinkType>() {
            q.number = 1;
        } else if let Some(q) = ask.get::<Describe>() {
            q.text = alloc::format!("{}", self.settings.address);
            self.device.borrow().describe(&mut q.text);
        } else if ask.get::<JoinGroup>().is_none() || !self.settings.takes_groups {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    /// Offers the device a frame, behind those that wait already.
    fn send(&self, cx: &Kernel, this: &SessionRef, frame: Message) -> Result<(), PushError> {
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
    fn flush(&self, this: &ProtocolRef) {
        if !self.unflushed.get() && self.backlog.borrow().is_empty() {
            return;
        }
        let mut device = self.device.borrow_mut();
        for _ in 0..2 {
            match device.flush() {
                Ok(all) => self.unflushed.set(!all),
                Err(why) => {
                    // What it holds is tried again behind the next frame; waiting for a failed device would only spin.
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

impl<D: FrameDevice + 'static> Protocol for DeviceWire<D> {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let make = |upper| self.session(upper);
        self.shared.end.open(cx, this, upper, make)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.shared.end.open_enable(upper)
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.end.open_disable(enable);
    }

    fn control(&self, _: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Offloads>() {
            question.answer_wire(this.id(), self.shared.partial_checksums);
            return Answer::Answered;
        }
        match self.shared.end.control(ask) {
            Answer::Answered => Answer::Answered,
            Answer::Unknown => self.shared.answer(ask),
        }
    }

    fn stop(&self, _: &Kernel, this: &ProtocolRef) {
        // Last words, such as a farewell to peers, still go out.
        self.shared.flush(this);
        self.shared.end.stop();
        drop(self.shared.backlog.take());
        self.shared.arrivals.clear();
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl<D: FrameDevice + 'static> Wire for DeviceWire<D> {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let shared = &self.shared;
        if shared.arrivals.is_empty() {
            let arrivals = &mut *shared.arrivals.queue_mut();
            let outcome = shared
                .device
                .borrow_mut()
                .receive(cx.pool(), budget, arrivals);
            if let Err((why, count)) = outcome {
                for _ in 0..count {
                    this.head().drops().count(why);
                }
            }
        }
        let make = |upper| self.session(upper);
        let count = shared
            .end
            .deliver_all(cx, this, &shared.arrivals, budget, make);
        self.count_losses(cx, this);
        count
    }

    fn flush(&self, _: &Kernel, this: &ProtocolRef) {
        self.shared.flush(this);
    }

    fn descriptor(&self) -> Option<i32> {
        Some(self.shared.device.borrow().descriptor())
    }

    fn wants_writable(&self) -> bool {
        self.shared.unflushed.get() || !self.shared.backlog.borrow().is_empty()
    }
}

/// The wire's only session.
struct DeviceSession<D> {
    shared: Rc<Shared<D>>,
    upper: ProtocolRef,
}

impl<D: FrameDevice + 'static> Session for DeviceSession<D> {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let mut message = message;
        if !self.shared.partial_checksums && offload::settle(cx.pool(), &mut message).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if message.len() > self.shared.frame_octets_max {
            this.discard(cx, message, &reason::TOO_BIG);
            let max = u32::try_from(self.shared.frame_octets_max).unwrap_or(u32::MAX);
            return Err(PushError::TooBig { max });
        }
        self.shared.send(cx, this, message)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.shared.answer(ask)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.shared.end.close()
    }
}

#[cfg(test)]
mod tests;
