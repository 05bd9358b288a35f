//! The module: a protocol between a wire and the protocol above, which carries frames of channels
//! as well.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::ops::Bound;
use core::time::Duration;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{
    Arrivals, Burst, Enable, OpenError, PushError, Refused, SessionSlot, USER_SHARE,
};
use xk_core::reason::{Class, Reason};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Time, Upper,
    reason,
};
use xk_domains::{Arrival, Carrier, SendError};
use xk_kit::control::{MaxPacket, MyEther};
use xk_kit::net::template::Headers;
use xk_kit::wire::device::{Anchored, Capabilities, Device, ETHERNET, Unsent};
use xk_kit::wire::segments::{self, RUN_PACKETS_MAX};
use xk_kit::wire::{offload, offload::Offloads};

use crate::channel::{Bare, Channel, Holder, Rate, Toward};
use crate::questions::{
    GrantChannel, GrantRight, ListRights, ModuleIs, RevokeChannel, RevokeRight, Right, Ticket,
    WatchModule,
};
use crate::rules::{Face, Rules};
use index::{Indices, Receiver, STRAY_OFFER};

pub(crate) mod index;

/// Largest number of channels at one time.
pub const CHANNELS_MAX: usize = 1024;
/// Largest number of channels that were granted and not fetched.
pub const GRANTS_MAX: usize = 256;
/// Largest number of one user's channels that were fetched and have had no right yet.
pub const BARE_OF_A_USER_MAX: usize = 64;
/// Largest number of rights of all channels together.
pub const RIGHTS_MAX: usize = 1 << 15;
/// Largest number of rights of one channel.
pub const RIGHTS_OF_A_CHANNEL_MAX: usize = 1 << 13;
/// Largest number of rights in an answer to [`ListRights`].
const LISTED_MAX: usize = 64;
/// The time in which a granted channel is fetched.
pub const GRANT_LASTS: Duration = Duration::from_secs(10);
/// Number of frames without a fitting right after which a channel is revoked.
pub const VIOLATIONS_MAX: u32 = 100;
/// Largest number of frames that wait for the protocol above.
const ARRIVALS_MAX: usize = 1024;
/// Number of frames that are taken from a channel before the next channel has its turn.
const TURN: usize = 32;

/// A frame of a channel fits none of its rights.
pub static FORGED: Reason = Reason::new("not as granted", Class::Bad);
/// A frame of a channel would have fitted a right that has ended.
pub static LATE: Reason = Reason::new("right has ended", Class::NotMine);
/// A channel was revoked because too many of its frames fitted no right; counted once for each.
pub static REVOKED: Reason = Reason::new("channel revoked", Class::Bad);
/// A user has too many channels without a right; counted once for each that is revoked.
pub static UNUSED: Reason = Reason::new("too many without a right", Class::Exhausted);
/// A program does not take what arrives for it.
pub static CHANNEL_FULL: Reason = Reason::new("channel full", Class::Exhausted);

/// The module's reasons, which a cut passes by number.
pub static REASONS: &[&Reason] = &[&FORGED, &LATE, &REVOKED, &UNUSED, &CHANNEL_FULL, &STRAY_OFFER];

/// A channel that nothing has fetched yet.
struct Waiting {
    ticket: Ticket,
    number: u32,
    lapses_at: Time,
}

/// Programs of the operating system or of a device that check and demultiplex frames of channels in
/// the module's place. The module does not see the frames that they let through.
pub trait Steer {
    /// Lets a fetched channel send and receive frames with these headers; false if the headers do
    /// not distinguish it from others, or there is no room.
    fn grant(&self, number: u32, headers: &Headers) -> bool;

    /// Withdraws what [`grant`](Self::grant) has allowed.
    fn revoke(&self, number: u32, headers: &Headers);

    /// Ends a channel, whose rights have all been revoked.
    fn close(&self, number: u32);

    /// Numbers of frames let through and dropped, as text.
    fn describe(&self) -> String;
}

/// The module.
pub struct Module {
    /// The channels by number, fetched or not.
    channels: RefCell<BTreeMap<u32, Rc<Channel>>>,
    /// The channel that was looked at last.
    turn: Cell<u32>,
    /// Channels that wait to be fetched, in the order in which their tickets lapse.
    waiting: RefCell<VecDeque<Waiting>>,
    /// Channels that have ended, which the executor may still sleep on.
    gone: RefCell<VecDeque<Rc<Channel>>>,
    /// The rights by number.
    rights: RefCell<BTreeMap<u32, Right>>,
    receivers: RefCell<Rules<Receiver>>,
    /// The indices, if rights are found by index.
    indices: OnceCell<Indices>,
    /// Last number of a channel or right. The first is random: numbers of an earlier module name
    /// nothing here.
    number_last: Cell<u32>,
    /// Number that tells this module from those before and after it.
    life: Cell<u64>,
    /// The protocol at which drops are counted.
    this: RefCell<Option<ProtocolRef>>,
    /// The session of the wire.
    wire: SessionSlot,
    /// Rate that no channel exceeds, whatever is granted.
    limit: Cell<Rate>,
    /// The hardware address of programs' frames, if one was named.
    station: Cell<Option<[u8; 6]>>,
    /// The longest frame that the wire takes.
    frame_octets_max: Cell<usize>,
    /// Path of the socket at which programs show tickets.
    door: RefCell<String>,
    steering: OnceCell<Rc<dyn Steer>>,
}

/// Adds a module on `lower`, a wire. One other protocol stands on the module, as on a wire.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef) -> (ProtocolRef, Rc<Module>) {
    let module = Rc::new(Module::new());
    let upper = Anchored::new(Upside(Rc::clone(&module)), able(usize::MAX));
    let this = cx.add_protocol("netio", name, Netio { module: Rc::clone(&module), upper, lower });
    *module.this.borrow_mut() = Some(this.clone());
    // All numbers that are granted lie behind this one.
    module.number_last.set(cx.random().next_u32() >> 1);
    module.life.set(cx.random().next_u64());
    (this, module)
}

/// Has the wire complete open checksums and cut runs.
fn able(frame_octets_max: usize) -> Capabilities {
    let bare = Capabilities::bare(frame_octets_max).offloads(true, u16::MAX);
    Capabilities { link_type: ETHERNET, ..bare }
}

impl Module {
    fn new() -> Self {
        Self {
            channels: RefCell::default(),
            turn: Cell::default(),
            waiting: RefCell::default(),
            gone: RefCell::default(),
            rights: RefCell::default(),
            receivers: RefCell::default(),
            indices: OnceCell::new(),
            number_last: Cell::default(),
            life: Cell::default(),
            this: RefCell::default(),
            wire: SessionSlot::default(),
            limit: Cell::new(Rate { octets_per_second: u64::MAX, burst_octets: u64::MAX }),
            station: Cell::new(None),
            frame_octets_max: Cell::new(usize::MAX),
            door: RefCell::default(),
            steering: OnceCell::new(),
        }
    }

    /// Has `steering` check and demultiplex frames of channels in the module's place. It is asked
    /// for each channel that is fetched; the module handles the frames that it leaves.
    pub fn steer(&self, steering: Rc<dyn Steer>) {
        let _ = self.steering.set(steering);
    }

    /// Limits the rate of all channels that are granted from now on.
    pub fn limit(&self, rate: Rate) {
        self.limit.set(rate);
    }

    /// The place of a ticket among those that wait. All octets are compared, so that the time taken
    /// says nothing about the tickets.
    fn place_of(&self, ticket: &Ticket) -> Option<usize> {
        let is_shown = |waiting: &Waiting| {
            let differ = waiting.ticket.iter().zip(ticket).fold(0, |all, (a, b)| all | (a ^ b));
            differ == 0
        };
        self.waiting.borrow().iter().position(is_shown)
    }

    /// Number and rate of the channel that a ticket would fetch. Does not fetch it.
    pub fn granted(&self, cx: &Kernel, ticket: &Ticket) -> Option<(u32, Rate)> {
        self.lapse(cx.now());
        let at = self.place_of(ticket)?;
        let number = self.waiting.borrow().get(at)?.number;
        self.channels.borrow().get(&number).map(|channel| (number, channel.rate()))
    }

    /// Gives a granted channel to the program behind `carrier`.
    ///
    /// # Errors
    /// The carrier, if the ticket is false, has been shown before, or has lapsed.
    pub fn attach(
        &self,
        cx: &Kernel,
        ticket: &Ticket,
        carrier: Box<dyn Carrier>,
    ) -> Result<(), Box<dyn Carrier>> {
        self.lapse(cx.now());
        let at = self.place_of(ticket);
        let number = at.and_then(|at| self.waiting.borrow_mut().remove(at)?.number.into());
        let channel = number.and_then(|number| self.channels.borrow().get(&number).cloned());
        let Some(channel) = channel else {
            return Err(carrier);
        };
        channel.attach(carrier)?;
        for number in &*channel.rights.borrow() {
            if let Some(right) = self.rights.borrow().get(number) {
                self.steer_right(&channel, &right.headers);
            }
        }
        Ok(())
    }

    /// Notes the process that has fetched a channel. A user may have [`BARE_OF_A_USER_MAX`]
    /// channels that have had no right yet and only take memory; beyond that the one fetched first
    /// is revoked.
    pub fn fetched_by(&self, cx: &Kernel, channel: u32, holder: Holder) {
        let own = self.channels.borrow().get(&channel).cloned();
        let Some(own) = own.filter(|own| own.rights.borrow().is_empty()) else {
            return;
        };
        own.bare.set(Some(Bare { channel, holder, since: cx.now() }));
        let mut of_user = self.bare();
        of_user.retain(|bare| bare.holder.uid == holder.uid);
        if of_user.len() > BARE_OF_A_USER_MAX
            && let Some(first) = of_user.first()
        {
            self.count(&UNUSED);
            self.revoke(first.channel);
        }
    }

    /// Channels that were fetched and have had no right yet, in the order of fetching.
    pub fn bare(&self) -> Vec<Bare> {
        let channels = self.channels.borrow();
        let mut all: Vec<Bare> = channels.values().filter_map(|one| one.bare.get()).collect();
        all.sort_by_key(|bare| bare.since);
        all
    }

    /// Has the steering carry the frames of a right, if it can; otherwise the module carries them.
    fn steer_right(&self, channel: &Channel, headers: &Headers) {
        if let Some(steering) = self.steering.get()
            && channel.carrier().is_some()
        {
            let _ = steering.grant(channel.number, headers);
        }
    }

    /// Sets the path of the socket at which programs show tickets. Each granted channel gets it.
    pub fn set_door(&self, path: &str) {
        *self.door.borrow_mut() = path.into();
    }

    /// Counts the channels that are fetched, and those that are granted and wait.
    pub fn counts(&self) -> (usize, usize) {
        let waiting = self.waiting.borrow().len();
        (self.channels.borrow().len().saturating_sub(waiting), waiting)
    }

    /// Counts the rights of all channels.
    pub fn rights(&self) -> usize {
        self.rights.borrow().len()
    }

    /// The hardware address of the channels' frames, in place of the device's, while there are
    /// channels.
    fn station(&self) -> Option<[u8; 6]> {
        self.station.get().filter(|_| !self.channels.borrow().is_empty())
    }

    /// A new number, so that numbers of ended channels and rights do not come back soon.
    fn number(&self) -> u32 {
        self.number_last.set(self.number_last.get().wrapping_add(1));
        self.number_last.get()
    }

    fn grant_channel(&self, cx: &Kernel, question: &mut GrantChannel) {
        self.lapse(cx.now());
        (question.ticket, question.life) = (None, self.life.get());
        let (fetched, waiting) = self.counts();
        if waiting >= GRANTS_MAX || fetched + waiting >= CHANNELS_MAX {
            return;
        }
        question.rate = question.rate.within(self.limit.get());
        let number = self.number();
        let channel = Channel::new(cx, number, question.rate, question.user);
        let had = channel.had(self.channels.borrow().values());
        if had.waiting >= GRANTS_MAX / USER_SHARE || had.channels >= CHANNELS_MAX / USER_SHARE {
            return;
        }
        let mut ticket = Ticket::default();
        cx.random().fill(&mut ticket);
        self.station.set(question.station.or(self.station.get()));
        self.channels.borrow_mut().insert(number, Rc::new(channel));
        let lapses_at = cx.now().after(GRANT_LASTS);
        self.waiting.borrow_mut().push_back(Waiting { ticket, number, lapses_at });
        (question.ticket, question.number) = (Some(ticket), number);
        question.door.clone_from(&self.door.borrow());
    }

    /// The number of a new right.
    fn grant_right(&self, cx: &Kernel, question: &GrantRight) -> Option<u32> {
        self.lapse(cx.now());
        let headers = &question.headers;
        let channel = self.channels.borrow().get(&question.channel).cloned()?;
        let (all, of_channel) = (self.rights.borrow().len(), channel.rights.borrow().len());
        let of_user = channel.had(self.channels.borrow().values()).rights;
        let has_room = all < RIGHTS_MAX && of_channel < RIGHTS_OF_A_CHANNEL_MAX;
        if !has_room || of_user >= RIGHTS_MAX / USER_SHARE {
            return None;
        }
        let (number, toward) = (self.number(), Rc::new(Toward::new(&headers.sent)));
        let receiver = Rc::new(Receiver::new(&headers.received, &channel, &toward, number));
        let mut receivers = self.receivers.borrow_mut();
        if !receivers.add(|| cx.secret(), &headers.received, &receiver) {
            return None;
        }
        if !channel.sent.borrow_mut().add(|| cx.secret(), &headers.sent, &toward) {
            receivers.remove(&headers.received);
            return None;
        }
        drop(receivers);
        self.steer_right(&channel, headers);
        channel.rights.borrow_mut().insert(number);
        channel.bare.set(None);
        let (headers, of) = (headers.clone(), question.of.clone());
        let right = Right { number, channel: channel.number, headers, of };
        self.rights.borrow_mut().insert(number, right);
        self.index_right(cx, &receiver);
        Some(number)
    }

    /// Releases channels that were not fetched in time.
    fn lapse(&self, now: Time) {
        let lapsed = || self.waiting.borrow_mut().pop_front_if(|waiting| waiting.lapses_at <= now);
        while let Some(waiting) = lapsed() {
            self.revoke(waiting.number);
        }
    }

    /// Ends a right; false if there is none of this number.
    pub fn revoke_right(&self, number: u32) -> bool {
        let Some(right) = self.rights.borrow_mut().remove(&number) else {
            return false;
        };
        let receiver = self.receivers.borrow_mut().remove(&right.headers.received);
        if let Some((indices, receiver)) = self.indices.get().zip(receiver) {
            indices.leave(&receiver);
        }
        if let Some(steering) = self.steering.get() {
            steering.revoke(right.channel, &right.headers);
        }
        if let Some(channel) = self.channels.borrow().get(&right.channel) {
            channel.rights.borrow_mut().remove(&number);
            channel.forbid(&right.headers.sent);
        }
        true
    }

    /// Ends a channel with all its rights; false if there is none of this number.
    pub fn revoke(&self, number: u32) -> bool {
        let Some(channel) = self.channels.borrow().get(&number).cloned() else {
            return false;
        };
        let rights = channel.rights.take();
        for right in rights {
            self.revoke_right(right);
        }
        self.waiting.borrow_mut().retain(|waiting| waiting.number != number);
        self.channels.borrow_mut().remove(&number);
        if let Some(carrier) = channel.carrier() {
            if let Some(steering) = self.steering.get() {
                steering.close(number);
            }
            carrier.close();
            let mut gone = self.gone.borrow_mut();
            gone.truncate(CHANNELS_MAX);
            gone.push_front(channel);
        }
        true
    }

    fn list_rights(&self, question: &mut ListRights) {
        let rights = self.rights.borrow();
        let next = rights.range((Bound::Excluded(question.after), Bound::Unbounded));
        question.rights = next.take(LISTED_MAX).map(|(_, right)| right.clone()).collect();
    }

    fn describe(&self) -> String {
        let ((fetched, granted), rights) = (self.counts(), self.rights());
        let mut text = format!("{fetched} channels, {granted} granted, {rights} rights");
        let steering = self.steering.get().map(|steering| steering.describe());
        let indices = self.indices.get().map(Indices::describe);
        for more in steering.into_iter().chain(indices) {
            text += "; ";
            text += &more;
        }
        text
    }

    fn count(&self, why: &'static Reason) {
        if let Some(this) = &*self.this.borrow() {
            this.head().drops().count(why);
        }
    }

    /// The module's own session of the wire: channels stay while the protocol above comes and goes.
    fn wire(&self) -> Option<SessionRef> {
        self.wire.live()
    }

    /// Gives a frame to a program.
    fn hand(&self, cx: &Kernel, channel: &Channel, frame: &Message) {
        let sent = channel.carrier().map(|carrier| carrier.send(cx, &[], frame));
        match sent.unwrap_or(Err(SendError::Lost)) {
            Ok(()) => {}
            Err(SendError::Lost) => {
                self.revoke(channel.number);
                self.count(&reason::CLOSED);
            }
            Err(SendError::NoBuffers) => self.count(&reason::NO_BUFFERS),
            Err(SendError::Full | SendError::TooLong) => self.count(&CHANNEL_FULL),
        }
    }

    /// Calls `act` with each packet of a run. A run that cannot be cut is counted as the layer
    /// above would count it.
    fn each_packet(&self, run: Message, act: impl Fn(Message)) {
        match segments::split(run) {
            Ok(packets) => packets.for_each(|packet| match packet {
                Ok(packet) => act(packet),
                Err(why) => self.count(why),
            }),
            Err(why) => self.count(why),
        }
    }

    /// As [`hand`](Self::hand). For a program that gets octets alone, checksums that a device of
    /// this machine has left open are completed, and a run is cut.
    fn hand_whole(&self, cx: &Kernel, channel: &Channel, mut frame: Message) {
        if channel.takes_notes() {
            return self.hand(cx, channel, &frame);
        }
        if segments::of(&frame).is_some() {
            return self.each_packet(frame, |packet| self.hand_whole(cx, channel, packet));
        }
        match offload::finish_checksum(cx.pool(), &mut frame) {
            Ok(()) => self.hand(cx, channel, &frame),
            Err(_) => self.count(&reason::NO_BUFFERS),
        }
    }

    /// Gives an arrival to the program that has a right to it. Any other one comes back.
    fn receive(&self, cx: &Kernel, frame: Message) -> Result<(), Message> {
        let found = self.receivers.borrow().find(&Face::of(&frame));
        match found.filter(|receiver| receiver.channel.carrier().is_some()) {
            Some(receiver) => {
                self.found_by_headers(cx, &receiver);
                self.hand_whole(cx, &receiver.channel, frame);
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// Gives an arrival to the program that has a right to it, or else puts it with those for the
    /// protocol above.
    fn arrive(&self, cx: &Kernel, frame: Message, up: &Arrivals) {
        let frame = match self.indices.get() {
            Some(indices) => match self.take_by_index(cx, indices, frame) {
                Some(frame) => frame,
                None => return,
            },
            None => frame,
        };
        let has_rights = !self.rights.borrow().is_empty();
        let received = if has_rights { self.receive(cx, frame) } else { Err(frame) };
        let Err(frame) = received else { return };
        let mut arrivals = up.queue_mut();
        match arrivals.len() < ARRIVALS_MAX {
            true => arrivals.push_back(frame),
            false => self.count(&reason::QUEUE_FULL),
        }
    }

    /// Passes up to `budget` frames of a channel to the wire. Returns their number, and false once
    /// the channel has ended.
    fn carry(&self, cx: &Kernel, channel: &Channel, budget: usize) -> (usize, bool) {
        let mut count = 0;
        while count < budget {
            let frame = match channel.next(cx) {
                Arrival::Frame(frame) => frame,
                Arrival::Nothing | Arrival::NoBuffers => return (count, true),
                Arrival::Lost => return (count, false),
            };
            let packets = segments::of(&frame).map_or(1, |run| run.packets());
            count += usize::from(packets);
            let face = Face::of(&frame);
            let admitted = channel.admits(&face).filter(|_| packets <= RUN_PACKETS_MAX);
            if let Some(index) = admitted {
                self.put_out(cx, frame, index);
            } else if channel.is_late(&face) {
                self.count(&LATE);
            } else {
                self.count(&FORGED);
                channel.violations.set(channel.violations.get() + 1);
                if channel.violations.get() >= VIOLATIONS_MAX {
                    self.count(&REVOKED);
                    return (count, false);
                }
            }
        }
        (count, true)
    }

    /// Passes a frame of a channel to the wire, with this index in it; 0 for none.
    fn put_out(&self, cx: &Kernel, mut frame: Message, index: u16) {
        let Some(wire) = self.wire() else {
            return self.count(&reason::CLOSED);
        };
        if index == 0 {
            // The wire counts a frame that it does not take.
            let _ = wire.push(cx, frame);
            return;
        }
        if segments::of(&frame).is_some() {
            return self.each_packet(frame, |packet| self.put_out(cx, packet, index));
        }
        match index::put_index(&mut frame, index) {
            Ok(()) => drop(wire.push(cx, frame)),
            Err(why) => self.count(why),
        }
    }

    /// Takes at most `budget` frames from the programs, from each in its turn.
    pub fn carry_all(&self, cx: &Kernel, budget: usize) -> usize {
        self.lapse(cx.now());
        let mut carried = 0;
        for channel in self.all() {
            if carried >= budget || cx.must_leave() {
                break;
            }
            self.turn.set(channel.number);
            let (count, goes_on) = self.carry(cx, &channel, TURN.min(budget - carried));
            carried += count;
            if !goes_on {
                self.revoke(channel.number);
            }
        }
        carried
    }

    /// Revokes all channels and closes the wire.
    fn stop(&self, cx: &Kernel) {
        for channel in self.all() {
            self.revoke(channel.number);
        }
        drop(self.this.take());
        self.wire.close(cx);
    }

    /// All channels, beginning behind the one that was looked at last.
    fn all(&self) -> Vec<Rc<Channel>> {
        let (channels, turn) = (self.channels.borrow(), self.turn.get());
        let behind = channels.range((Bound::Excluded(turn), Bound::Unbounded));
        behind.chain(channels.range(..=turn)).map(|(_, channel)| Rc::clone(channel)).collect()
    }
}

/// The module as the device of what stands on it.
struct Upside(Rc<Module>);

/// The module as a protocol object: an [`Anchored`] wire on another one.
struct Netio {
    module: Rc<Module>,
    upper: Anchored<Upside>,
    lower: ProtocolRef,
}

impl Protocol for Netio {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let module = &self.module;
        let wire = self.lower.open(cx, Upper::new(this), Participants::default())?;
        let octets = wire.ask(cx, MaxPacket::default()).map(|question| question.octets);
        let octets = octets.map_or(usize::MAX, |octets| octets as usize);
        let octets_max = octets.saturating_sub(module.index_octets());
        module.frame_octets_max.set(octets_max);
        self.upper.wire().set_capabilities(able(octets_max));
        drop(module.wire.replace(Some(wire)));
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        self.upper.open(cx, this, upper, participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.upper.open_enable(cx, this, upper, participants)
    }

    fn open_disable(&self, cx: &Kernel, this: &ProtocolRef, enable: Enable) {
        self.upper.open_disable(cx, this, enable);
    }

    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        let wire = &self.module.wire;
        if wire.has(lower) {
            drop(wire.take());
        }
    }

    /// Takes an arrival. As with any wire, a refusal ends here: the object that refused has counted
    /// it.
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let wire = self.upper.wire();
        self.module.arrive(cx, message, wire.arrivals());
        wire.deliver_all(cx, this, usize::MAX);
        Ok(())
    }

    /// Arrivals go up as a burst of the module's own, in the same turn of the loop.
    fn demux_burst(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while let Some(message) = burst.next_through(lower) {
            self.module.arrive(cx, message, self.upper.wire().arrivals());
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let module = &self.module;
        if let Some(question) = ask.get::<GrantChannel>() {
            module.grant_channel(cx, question);
        } else if let Some(question) = ask.get::<GrantRight>() {
            question.number = module.grant_right(cx, question);
        } else if let Some(question) = ask.get::<RevokeRight>() {
            question.was_there = module.revoke_right(question.number);
        } else if let Some(question) = ask.get::<ListRights>() {
            module.list_rights(question);
        } else if let Some(question) = ask.get::<WatchModule>() {
            let _ = question.watcher.ask(cx, ModuleIs { life: module.life.get() });
        } else if let Some(question) = ask.get::<RevokeChannel>() {
            question.was_there = module.revoke(question.number);
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = module.describe();
        } else if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.id(), || Offloads::of_protocol(cx, &self.lower));
        } else if ask.get::<ListSessions>().is_some() {
            return self.upper.control(cx, this, ask);
        } else if let (Some(question), Some(address)) = (ask.get::<MyEther>(), module.station()) {
            question.address = address;
        } else if ask.is_upward() {
            return Answer::Unknown;
        } else {
            let answer = self.lower.control(cx, ask);
            module.leave_room(ask);
            return answer;
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        self.upper.stop(cx, this);
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Device for Upside {
    fn send(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        match self.0.wire() {
            Some(wire) => wire.push(cx, message).map_err(Unsent::Gone),
            None => Err(Unsent::Refused(message, &reason::CLOSED, PushError::Closed)),
        }
    }

    fn session_control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Option<Answer> {
        let Some(wire) = self.0.wire() else {
            return Some(Answer::Unknown);
        };
        if let Some(question) = ask.get::<Describe>() {
            question.text = self.0.describe();
            return Some(Answer::Answered);
        }
        if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.head().protocol(), || Offloads::of_session(cx, &wire));
            return Some(Answer::Answered);
        }
        if let Some(question) = ask.get::<Headers>() {
            let octets_max = self.0.frame_octets_max.get();
            let within = |it: Headers| Headers { sent: it.sent.of_up_to(octets_max), ..it };
            return Some(question.found(Headers::of(cx, &wire).map(within)));
        }
        let answer = wire.control(cx, ask);
        self.0.leave_room(ask);
        Some(answer)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.0.stop(cx);
    }
}

impl Wire for Netio {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        // What came in a burst, or was left by a shepherd that was held up.
        let count = self.upper.wire().deliver_all(cx, this, budget);
        count + self.module.carry_all(cx, budget)
    }

    /// Wakes each program once for all frames that have come for it.
    fn flush(&self, _: &Kernel, _: &ProtocolRef) {
        self.module
            .channels
            .borrow()
            .values()
            .filter_map(|channel| channel.carrier())
            .for_each(Carrier::flush);
    }

    fn next_poll(&self) -> Option<Time> {
        let lapses_at = self.module.waiting.borrow().front().map(|waiting| waiting.lapses_at);
        let channels = self.module.channels.borrow();
        let arrived = (!self.upper.wire().arrivals().is_empty()).then_some(Time::ZERO);
        let looks = channels.values().filter_map(|channel| channel.next_poll());
        looks.chain(lapses_at).chain(arrived).min()
    }

    fn rest(&self, cx: &Kernel, _: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        for gone in self.module.gone.take() {
            let _ = gone.carrier().is_some_and(|carrier| carrier.rest(cx, sleeper));
        }
        // Each is told, also behind one that has something to do.
        let mut rests = self.upper.wire().arrivals().is_empty();
        for channel in self.module.all() {
            rests &= channel.rest(cx, sleeper);
        }
        rests
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.module.all().iter().filter_map(|channel| channel.carrier()).for_each(Carrier::woken);
    }

    fn may_spin(&self) -> bool {
        let channels = self.module.channels.borrow();
        channels.values().filter_map(|channel| channel.carrier()).all(Carrier::may_spin)
    }
}
