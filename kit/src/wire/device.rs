//! Skeleton of wires: a device that carries messages, made a protocol on which one other stands,
//! with one session.

use crate::EthAddr;
use crate::control::{JoinGroup, LeaveGroup, LinkType, MaxPacket, MyEther, OptPacket, WireRoom};
use crate::net::template::Headers;
use crate::wire::offload::{self, Offloads};
use crate::wire::{frames, segments};
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{
    Arrivals, Burst, Closing, Enable, OpenError, PushError, Refused, SessionSlot,
};
use xk_core::reason::Class;
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Time, Upper, reason,
};

/// The link type of Ethernet in captures (`LINKTYPE_ETHERNET`).
pub const ETHERNET: u16 = 1;
/// The link type of octets without a known form: `LINKTYPE_USER0`.
pub const USER0: u16 = 147;

/// Time after which a full wire may be asked again for room, if its device does not report room.
pub const ROOM_AGAIN: Duration = Duration::from_millis(1);
/// Interval at which a device is asked for its own losses.
const LOSSES_EVERY: Duration = Duration::from_secs(1);
/// Usual [`Device::BACKLOG_MAX`] of a device of the system.
pub const BACKLOG_MAX: usize = 256;

/// The device takes no frame now, and as many as may wait do so.
pub static DEVICE_FULL: Reason = Reason::new("device full", Class::Exhausted);
/// The interface went down; arrivals go on when it is up again.
pub static DEVICE_DOWN: Reason = Reason::new("device down", Class::Exhausted);
/// The device failed: it is down, gone, or did not take this frame.
pub static DEVICE_ERROR: Reason = Reason::new("device error", Class::Exhausted);
/// The device dropped an arrival before it could be taken: its ring was full, or the frame did not
/// fit.
pub static DEVICE_LOSS: Reason = Reason::new("lost in device", Class::Exhausted);

/// The answer of [`Device::room`] for a wire that can only tell whether it has room now.
#[must_use]
pub fn room_if(has_room: bool) -> Option<Duration> {
    Some(if has_room { Duration::ZERO } else { ROOM_AGAIN })
}

/// Sizes, kind and abilities of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The longest message, in octets, link header included.
    pub frame_octets_max: usize,
    /// The link type of what passes, as in captures.
    pub link_type: u16,
    /// Our hardware address, on a link that has such addresses.
    pub address: Option<EthAddr>,
    /// Takes messages with a checksum left open ([`offload`]); otherwise it is finished before
    /// [`Device::send`].
    pub takes_partial_checksums: bool,
    /// Packets that a message may stand for at most, its checksum open ([`segments`]); a longer run
    /// is cut before [`Device::send`].
    pub run_packets_max: u16,
    /// Has frames for every group arrive without being asked for.
    pub takes_groups: bool,
}

impl Capabilities {
    /// Returns those of an Ethernet for which checksums are finished and runs cut.
    pub const fn ethernet(frame_octets_max: usize, address: EthAddr) -> Self {
        Self { link_type: ETHERNET, address: Some(address), ..Self::bare(frame_octets_max) }
    }

    /// Returns those of a link without addresses, for octets of no known form.
    pub const fn bare(frame_octets_max: usize) -> Self {
        Self {
            frame_octets_max,
            link_type: USER0,
            address: None,
            takes_partial_checksums: false,
            run_packets_max: 0,
            takes_groups: true,
        }
    }

    /// Has checksums left open, and runs of up to so many packets uncut, if it `does` that.
    #[must_use]
    pub const fn offloads(self, does: bool, packets_max: u16) -> Self {
        let run_packets_max = if does { packets_max } else { 0 };
        Self { takes_partial_checksums: does, run_packets_max, ..self }
    }
}

/// Outcome of [`Device::send`] for a message that was not taken.
#[derive(Debug)]
pub enum Unsent {
    /// The device has no room now: the message waits behind [`Device::BACKLOG_MAX`] others at most.
    Full(Message),
    /// The message is dropped for this reason.
    Refused(Message, &'static Reason, PushError),
    /// The message is gone, and counted.
    Gone(PushError),
}

impl Unsent {
    /// The device never takes this message, or has failed.
    pub fn failed(message: Message) -> Self {
        Self::Refused(message, &DEVICE_ERROR, PushError::Unreachable)
    }
}

/// Arrivals that a device is asked for.
pub struct Receiving<'a> {
    /// The kernel.
    pub cx: &'a Kernel,
    /// The wire, where drops are counted.
    pub this: &'a ProtocolRef,
    /// The most messages.
    pub budget: usize,
    /// Queue of those that have arrived.
    pub arrivals: &'a mut VecDeque<Message>,
}

impl Receiving<'_> {
    /// Counts `count` arrivals as dropped.
    pub fn lost(&self, why: &'static Reason, count: usize) {
        self.this.head().drops().add(why, count as u64);
    }
}

/// The outside of a wire. [`DeviceWire`] makes a protocol of it, and what the executor asks of a
/// [`Wire`].
pub trait Device: Sized + 'static {
    /// Number of messages that wait for it at most while it has no room. A device for which some
    /// may wait is also asked for its losses.
    const BACKLOG_MAX: usize = 0;
    /// Reason of a message that finds neither room nor a place to wait.
    const FULL: &'static Reason = &DEVICE_FULL;

    /// Puts at most `budget` arrivals into the queue, which is empty, and counts what it drops.
    fn receive(&self, into: Receiving<'_>) {
        let _ = into;
    }

    /// Sends or queues a message that came down through the session `this` and is not too long. A
    /// device that sends from the message's own octets keeps it until they have gone out.
    ///
    /// # Errors
    /// [`Unsent`], if the message is not taken.
    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Unsent>;

    /// Sees that what the device has taken goes out. False if some waits until the descriptor is
    /// writable.
    fn flush(&self, cx: &Kernel, this: &ProtocolRef) -> bool {
        let _ = (cx, this);
        true
    }

    /// Number of arrivals that the device has lost by itself since it was opened.
    fn losses(&self) -> u64 {
        0
    }

    /// Time until it takes one more message, if it can tell: zero if none is refused for want of
    /// room. A device with a backlog is not asked.
    fn room(&self, cx: &Kernel) -> Option<Duration> {
        let _ = cx;
        None
    }

    /// Has frames for this group arrive from now on, or one such wish less, where not all groups
    /// arrive; false if the device cannot. Wishes for one group count.
    fn set_group(&self, group: EthAddr, is_joined: bool) -> bool {
        let _ = (group, is_joined);
        false
    }

    /// Description of the wire, for [`Describe`].
    fn describe(&self, able: &Capabilities) -> Option<String> {
        let _ = able;
        None
    }

    /// Answers a question to the session `this` in place of the wire.
    fn session_control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Option<Answer> {
        let _ = (cx, this, ask);
        None
    }

    /// As [`Protocol::start`], of the device of `wire`.
    fn start(
        wire: &Rc<DeviceWire<Self>>,
        cx: &Kernel,
        this: &ProtocolRef,
    ) -> Result<(), OpenError> {
        let _ = (wire, cx, this);
        Ok(())
    }

    /// As [`Protocol::stop`], before arrivals and the upper side are released. Last messages, such
    /// as a notice to peers, have been pushed and flushed.
    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// As [`Wire::descriptor`].
    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        let _ = see;
    }

    /// As [`Wire::next_poll`], if no arrival waits to be delivered.
    fn next_poll(&self) -> Option<Time> {
        None
    }

    /// As [`Wire::rest`].
    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        let _ = (cx, sleeper);
        true
    }

    /// As [`Wire::woken`].
    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// As [`Wire::may_spin`].
    fn may_spin(&self) -> bool {
        true
    }
}

/// A device as a wire: with the protocol above, the only session, and what waits in either
/// direction.
///
/// The upper protocol opens the session, or enables, or both; without an open, the first arrival
/// makes the session.
#[repr(C)]
pub struct DeviceWire<D> {
    device: D,
    capabilities: Cell<Capabilities>,
    this: Weak<Self>,
    arrivals: Arrivals,
    session: SessionSlot,
    upper: RefCell<Option<ProtocolRef>>,
    /// The number of the enable in force; 0 if there is none.
    enabled: Cell<u64>,
    /// Number of the last enable.
    enable_last: Cell<u64>,
    /// The device holds messages that have not gone out.
    unflushed: Cell<bool>,
    /// Messages that the device had no room for, and the session of each.
    backlog: RefCell<VecDeque<(SessionRef, Message)>>,
    losses: Cell<u64>,
    losses_at: Cell<Time>,
}

impl<D: Device> DeviceWire<D> {
    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Returns sizes, kind and abilities of the wire, as they are now.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.get()
    }

    /// Sets sizes, kind and abilities of the wire, where they are not known from the beginning.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        self.capabilities.set(capabilities);
    }

    /// The session, if there is one.
    pub fn session(&self) -> Option<SessionRef> {
        self.session.get()
    }

    /// Messages that have arrived and have not been delivered yet.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    fn claim(&self, receiver: &ProtocolRef) -> Result<(), OpenError> {
        match &*self.upper.borrow() {
            Some(upper) if upper != receiver => return Err(OpenError::InUse),
            _ => {}
        }
        *self.upper.borrow_mut() = Some(receiver.clone());
        Ok(())
    }

    fn is_enabled(&self) -> bool {
        self.enabled.get() != 0
    }

    /// Takes the wire from a protocol that neither enables any more nor holds the session which its
    /// enable once made.
    fn evict_idle(&self, cx: &Kernel, receiver: &ProtocolRef) {
        let session = self.session().filter(|_| !self.is_enabled());
        if let Some(idle) = session
            && idle.head().opens() == 0
            && idle.head().upper() != receiver.id()
        {
            idle.abort(cx);
        }
    }

    /// Passes an arrival up, making the session if need be. A refusal ends here: the refuser has
    /// counted it.
    pub fn deliver(&self, cx: &Kernel, this: &ProtocolRef, message: Message) {
        if let Some(session) = self.session() {
            drop(session.pop(cx, message));
            return;
        }
        let upper = self.upper.borrow().clone().filter(|_| self.is_enabled());
        let (Some(upper), Some(wire)) = (upper, self.this.upgrade()) else {
            this.discard(message, &reason::NO_PROTOCOL);
            return;
        };
        let body = WireSession { wire, upper: upper.clone() };
        let session = cx.new_passive_session(this, &upper, 0, body);
        drop(self.session.replace(Some(session.clone())));
        match session.announce(cx, &upper, Participants::default()) {
            Ok(()) => drop(session.pop(cx, message)),
            Err(why) => {
                self.session.take();
                session.retire(cx);
                this.discard(message, why);
            }
        }
    }

    /// Passes up what has arrived, in bursts, but for a first arrival that makes the session. Takes
    /// at most `budget` messages, and stops when the shepherd that carries them no longer leads the
    /// loop. Answers how many it took: for the wire's `poll`.
    pub fn deliver_all(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let mut count = 0;
        while count < budget && !cx.must_leave() {
            let taken = match self.session() {
                Some(session) => self.arrivals.deliver(cx, &session, budget - count),
                None => match self.arrivals.pop_front() {
                    Some(message) => {
                        self.deliver(cx, this, message);
                        1
                    }
                    None => 0,
                },
            };
            if taken == 0 {
                break;
            }
            count += taken;
        }
        count
    }

    /// Sends a message, behind those that wait already.
    #[inline]
    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let sent = match D::BACKLOG_MAX > 0 && !self.backlog.borrow().is_empty() {
            true => Err(Unsent::Full(message)),
            false => self.device.send(cx, this, message),
        };
        match sent {
            Ok(()) => {
                if D::BACKLOG_MAX > 0 {
                    self.unflushed.set(true);
                }
                Ok(())
            }
            Err(unsent) => self.not_sent(cx, this, unsent),
        }
    }

    /// Keeps a message for later, or drops it.
    fn not_sent(&self, cx: &Kernel, this: &SessionRef, unsent: Unsent) -> Result<(), PushError> {
        let (message, why, error) = match unsent {
            Unsent::Full(message) if self.has_room() => {
                self.backlog.borrow_mut().push_back((this.clone(), message));
                return Ok(());
            }
            Unsent::Full(message) => (message, D::FULL, PushError::QueueFull),
            Unsent::Refused(message, why, error) => (message, why, error),
            Unsent::Gone(error) => return Err(error),
        };
        this.discard(cx, message, why);
        Err(error)
    }

    fn has_room(&self) -> bool {
        self.backlog.borrow().len() < D::BACKLOG_MAX
    }

    /// Has the device send what it has, and offers it what waits.
    fn empty(&self, cx: &Kernel, this: &ProtocolRef) {
        let is_idle = || !self.unflushed.get() && self.backlog.borrow().is_empty();
        if D::BACKLOG_MAX > 0 && is_idle() {
            return;
        }
        for _ in 0..2 {
            self.unflushed.set(!self.device.flush(cx, this));
            if !self.send_waiting(cx, this) {
                break;
            }
        }
    }

    /// Offers the device what waits; false if it took nothing.
    fn send_waiting(&self, cx: &Kernel, this: &ProtocolRef) -> bool {
        let mut took = false;
        loop {
            let Some((session, message)) = self.backlog.borrow_mut().pop_front() else {
                return took;
            };
            match self.device.send(cx, &session, message) {
                Ok(()) => self.unflushed.set(true),
                Err(Unsent::Full(message)) => {
                    self.backlog.borrow_mut().push_front((session, message));
                    return took;
                }
                Err(Unsent::Refused(message, why, _)) => this.discard(message, why),
                Err(Unsent::Gone(_)) => {}
            }
            took = true;
        }
    }

    /// Counts what the device lost, now and then.
    fn count_losses(&self, cx: &Kernel, this: &ProtocolRef) {
        if cx.now() < self.losses_at.get() {
            return;
        }
        self.losses_at.set(cx.now() + LOSSES_EVERY);
        let lost = self.device.losses();
        let counted = self.losses.get();
        let new = lost.saturating_sub(counted);
        self.losses.set(counted + new);
        this.head().drops().add(&DEVICE_LOSS, new);
    }

    /// Answers for the sizes and the kind of link, and what else is known of the wire.
    fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        let able = self.capabilities.get();
        let octets = u32::try_from(able.frame_octets_max).unwrap_or(u32::MAX);
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<LinkType>() {
            q.number = able.link_type;
        } else if let (Some(q), Some(address)) = (ask.get::<MyEther>(), able.address) {
            q.address = address.0;
        } else if let Some(q) = ask.get::<WireRoom>() {
            let room = match D::BACKLOG_MAX {
                0 => self.device.room(cx),
                _ => room_if(self.has_room()),
            };
            match room {
                Some(after) => q.after = after,
                None => return Answer::Unknown,
            }
        } else if let Some(q) = ask.get::<Describe>() {
            match self.device.describe(&able) {
                Some(text) => q.text = text,
                None => return Answer::Unknown,
            }
        } else {
            let set = |group, is_joined| {
                able.takes_groups || self.device.set_group(EthAddr(group), is_joined)
            };
            let is_taken = match (ask.get::<JoinGroup>().copied(), ask.get::<LeaveGroup>()) {
                (Some(join), _) => set(join.address, true),
                (None, Some(leave)) => set(leave.address, false),
                (None, None) => false,
            };
            return if is_taken { Answer::Answered } else { Answer::Unknown };
        }
        Answer::Answered
    }
}

impl<D: Device> Wire for DeviceWire<D> {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        // What another shepherd has left is delivered first.
        if self.arrivals.is_empty() {
            let arrivals = &mut *self.arrivals.queue_mut();
            self.device.receive(Receiving { cx, this, budget, arrivals });
        }
        let count = self.deliver_all(cx, this, budget);
        if D::BACKLOG_MAX > 0 {
            self.count_losses(cx, this);
        }
        count
    }

    fn flush(&self, cx: &Kernel, this: &ProtocolRef) {
        self.empty(cx, this);
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.device.descriptor(see);
    }

    fn next_poll(&self) -> Option<Time> {
        match self.arrivals.is_empty() {
            true => self.device.next_poll(),
            false => Some(Time::ZERO),
        }
    }

    fn wants_writable(&self) -> bool {
        self.unflushed.get() || !self.backlog.borrow().is_empty()
    }

    fn rest(&self, cx: &Kernel, _: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        // The device is told in any case.
        self.device.rest(cx, sleeper) && self.arrivals.is_empty()
    }

    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        self.device.woken(cx, this);
    }

    fn may_spin(&self) -> bool {
        self.device.may_spin()
    }
}

/// A wire as a protocol object. One protocol stands on it.
pub struct Anchored<D>(Rc<DeviceWire<D>>);

impl<D: Device> Anchored<D> {
    /// The protocol object of the wire over a device.
    pub fn new(device: D, capabilities: Capabilities) -> Self {
        Self(Rc::new_cyclic(|this| DeviceWire {
            device,
            capabilities: Cell::new(capabilities),
            this: this.clone(),
            arrivals: Arrivals::default(),
            session: SessionSlot::default(),
            upper: RefCell::default(),
            enabled: Cell::new(0),
            enable_last: Cell::new(0),
            unflushed: Cell::new(false),
            backlog: RefCell::default(),
            losses: Cell::new(0),
            losses_at: Cell::new(Time::ZERO),
        }))
    }

    /// The wire, for what makes messages arrive on its own.
    pub fn wire(&self) -> &Rc<DeviceWire<D>> {
        &self.0
    }
}

impl<D: Device> Protocol for Anchored<D> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        D::start(&self.0, cx, this)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        ends.check_one_peer()?;
        let wire = &self.0;
        wire.evict_idle(cx, upper.receiver);
        wire.claim(upper.receiver)?;
        if let Some(session) = wire.session() {
            session.hold();
            return Ok(session);
        }
        let body = WireSession { wire: Rc::clone(&self.0), upper: upper.receiver.clone() };
        let session = cx.new_session(this, upper.receiver, body);
        drop(wire.session.replace(Some(session.clone())));
        Ok(session)
    }

    /// Enabled once more, a protocol has one enable all the same.
    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let wire = &self.0;
        wire.claim(upper.receiver)?;
        if !wire.is_enabled() {
            wire.enable_last.set(wire.enable_last.get() + 1);
            wire.enabled.set(wire.enable_last.get());
        }
        Ok(Enable(wire.enabled.get()))
    }

    /// An enable withdrawn before withdraws nothing of a later one. A session that it made stays
    /// until another protocol opens the wire.
    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        let wire = &self.0;
        if !wire.is_enabled() || enable.0 != wire.enabled.get() {
            return;
        }
        wire.enabled.set(0);
        if !wire.session.is_some() {
            drop(wire.upper.take());
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let wire = &self.0;
        if let Some(list) = ask.get::<ListSessions>() {
            wire.session().iter().for_each(|session| list.push(session));
        } else if let Some(question) = ask.get::<Offloads>() {
            let able = wire.capabilities.get();
            let segments = able.run_packets_max > 0;
            question.answer_wire(this.id(), able.takes_partial_checksums, segments);
        } else {
            return wire.answer(cx, ask);
        }
        Answer::Answered
    }

    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        let wire = &self.0;
        wire.empty(cx, this);
        wire.device.stop(cx, this);
        drop(wire.backlog.take());
        wire.arrivals.clear();
        wire.enabled.set(0);
        drop(wire.session.take());
        drop(wire.upper.take());
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(&*self.0)
    }
}

/// The wire's only session.
struct WireSession<D> {
    wire: Rc<DeviceWire<D>>,
    upper: ProtocolRef,
}

impl<D: Device> WireSession<D> {
    /// Sends a run of segments packet by packet. What becomes of the first that fails is the
    /// answer.
    #[cold]
    fn push_run(&self, cx: &Kernel, this: &SessionRef, run: Message) -> Result<(), PushError> {
        let pieces = match segments::split(run) {
            Ok(pieces) => pieces,
            Err(why) => {
                this.count_drop(cx, why);
                return Err(PushError::NotSupported);
            }
        };
        let mut result = Ok(());
        for piece in pieces {
            let pushed = match piece {
                Ok(piece) => self.push(cx, this, piece),
                Err(why) => {
                    this.count_drop(cx, why);
                    Err(PushError::NoBuffers)
                }
            };
            result = result.and(pushed);
        }
        result
    }
}

impl<D: Device> Session for WireSession<D> {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let able = self.wire.capabilities.get();
        if let Some(run) = segments::of(&message)
            && (run.packets() > able.run_packets_max || !frames::is_for_devices(&message))
        {
            return self.push_run(cx, this, message);
        }
        if !able.takes_partial_checksums
            && offload::finish_checksum(cx.pool(), &mut message).is_err()
        {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if segments::longest(&message) > able.frame_octets_max {
            this.discard(cx, message, &reason::TOO_BIG);
            return Err(PushError::TooBig);
        }
        self.wire.send(cx, this, message)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    #[inline]
    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let device = &self.wire.device;
        if let Some(answer) = device.session_control(cx, this, ask) {
            return answer;
        }
        match ask.get::<Headers>() {
            Some(question) => question
                .found(Some(Headers::of_wire(self.wire.capabilities.get().frame_octets_max))),
            None => self.wire.answer(cx, ask),
        }
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        let wire = &self.wire;
        if wire.is_enabled() && !this.head().is_aborted() {
            return Closing::Idle;
        }
        drop(wire.session.take());
        if !wire.is_enabled() {
            drop(wire.upper.take());
        }
        Closing::Done
    }
}

#[cfg(test)]
mod tests;
