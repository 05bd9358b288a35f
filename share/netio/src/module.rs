//! The module: between a wire and the protocol above it, with the channels at its side.

use crate::channel::{Channel, Rate, Shared};
use crate::rules::{Front, Rules};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Bound;
use core::time::Duration;
use xk_core::control::QuestionType;
use xk_core::object::{PushError, Refused};
use xk_core::reason::{Class, Reason};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Answer, Ask, Kernel, Message, Protocol, ProtocolRef, SessionRef, Time, question, reason,
};
use xk_kit::net::template::{Check, Headers, OCTETS_MAX};
use xk_kit::passthrough::{Filter, Hop, PassThrough};
use xk_share::{Arrival, Carrier, SendError};

/// Channels at one time at most.
pub const CHANNELS_MAX: usize = 1024;
/// Channels that were granted and not fetched at most.
pub const GRANTS_MAX: usize = 256;
/// How long a channel that was granted waits to be fetched.
pub const GRANT_LASTS: Duration = Duration::from_secs(10);
/// After how many frames that do not fit a channel is revoked.
pub const VIOLATIONS_MAX: u32 = 100;
/// Frames that are taken from a channel before it is another's turn.
const TURN: usize = 32;

/// A frame of a channel does not fit its template.
pub static FORGED: Reason = Reason::new("not as granted", Class::Bad);
/// A channel was revoked, since too many of its frames did not fit; counted once a channel.
pub static REVOKED: Reason = Reason::new("channel revoked", Class::Bad);
/// A program does not take what arrives for it.
pub static CHANNEL_FULL: Reason = Reason::new("channel full", Class::Exhausted);

/// The module's reasons, for what a cut knows.
pub static REASONS: &[&Reason] = &[&FORGED, &REVOKED, &CHANNEL_FULL];

/// What fetches a granted channel, once.
pub type Ticket = [u8; 16];

/// Asked of the module itself: a channel for frames with these headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantChannel {
    /// In: the headers, as the session tells them whose frames these are.
    pub headers: Headers,
    /// In: how much may be sent.
    pub rate: Rate,
    /// Out: what fetches it, within [`GRANT_LASTS`]; `None` if there is no room, or another channel
    /// receives what this one would.
    pub ticket: Option<Ticket>,
    /// Out: its number, for [`RevokeChannel`].
    pub number: u32,
}
question!(GrantChannel { headers, rate, ticket, number }, "grant-channel", Ask, direct);

/// Asked of the module itself: the channel of this number is no more, fetched or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokeChannel {
    /// In: its number.
    pub number: u32,
    /// Out: whether there was one.
    pub was_there: bool,
}
question!(RevokeChannel { number, was_there }, "revoke-channel", Ask, direct);

/// The module's questions, for what a cut between it and a registry knows.
pub static QUESTIONS: [QuestionType; 2] =
    [QuestionType::of::<GrantChannel>(), QuestionType::of::<RevokeChannel>()];

/// A channel that nothing has fetched yet.
struct Grant {
    ticket: Ticket,
    number: u32,
    headers: Headers,
    rate: Rate,
    lapses_at: Time,
}

/// The module.
#[derive(Default)]
pub struct Module {
    /// By number.
    channels: RefCell<BTreeMap<u32, Shared>>,
    /// The channel that was looked at last.
    turn: Cell<u32>,
    grants: RefCell<VecDeque<Grant>>,
    rules: RefCell<Rules>,
    number_last: Cell<u32>,
    /// Where drops are counted.
    this: RefCell<Option<ProtocolRef>>,
    /// The session of the wire, from the first frame on that passes.
    wire: RefCell<Option<SessionRef>>,
}

/// Adds a module on `lower`, a wire. The protocol is what others stand on.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef) -> (ProtocolRef, Rc<Module>) {
    let module = Rc::<Module>::default();
    let layer = PassThrough::new(lower, Netio(Rc::clone(&module)));
    let this = cx.add_protocol("netio", name, layer);
    let name = alloc::format!("channels of {name}");
    cx.add_protocol("netio-channels", &name, Channels(Rc::clone(&module)));
    *module.this.borrow_mut() = Some(this.clone());
    (this, module)
}

/// The first octets of a frame.
fn front(frame: &Message) -> Front {
    let mut front = [0; OCTETS_MAX];
    frame.copy_to(0, &mut front);
    front
}

fn fits(check: &Check, front: &Front, octets: usize) -> bool {
    check.admits(front.get(..octets).unwrap_or(front), octets)
}

impl Module {
    /// Gives a granted channel to the program behind `carrier`. False if the ticket is none, or has
    /// been shown before, or has lapsed; the carrier is closed then.
    pub fn attach(&self, cx: &Kernel, ticket: &Ticket, carrier: Box<dyn Carrier>) -> bool {
        self.lapse(cx.now());
        let mut grants = self.grants.borrow_mut();
        // Compared in full, whatever differs: the time tells nothing.
        let is_shown = |grant: &Grant| {
            let differ = grant.ticket.iter().zip(ticket).fold(0, |all, (a, b)| all | (a ^ b));
            differ == 0
        };
        let at = grants.iter().position(is_shown);
        let Some(grant) = at.and_then(|at| grants.remove(at)) else {
            carrier.close();
            return false;
        };
        let rate = (grant.rate, cx.now());
        let channel = Channel::new(grant.number, carrier, &grant.headers, rate);
        self.channels.borrow_mut().insert(grant.number, Rc::new(channel));
        true
    }

    /// How many channels are fetched, and how many are granted and wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.channels.borrow().len(), self.grants.borrow().len())
    }

    fn grant(&self, cx: &Kernel, question: &mut GrantChannel) {
        self.lapse(cx.now());
        question.ticket = None;
        let (fetched, waiting) = self.counts();
        if waiting >= GRANTS_MAX || fetched + waiting >= CHANNELS_MAX {
            return;
        }
        // Numbers of channels that are no more do not come back soon.
        let number = self.number_last.get().wrapping_add(1);
        let headers = question.headers.clone();
        if !self.rules.borrow_mut().add(&headers.received, number) {
            return;
        }
        self.number_last.set(number);
        let mut ticket = Ticket::default();
        cx.random().fill(&mut ticket);
        (question.ticket, question.number) = (Some(ticket), number);
        let (rate, lapses_at) = (question.rate, cx.now().after(GRANT_LASTS));
        self.grants.borrow_mut().push_back(Grant { ticket, number, headers, rate, lapses_at });
    }

    /// Lets go of grants that were not fetched in time; they lie in the order of that.
    fn lapse(&self, now: Time) {
        let mut grants = self.grants.borrow_mut();
        while let Some(grant) = grants.pop_front_if(|grant| grant.lapses_at <= now) {
            self.rules.borrow_mut().remove(grant.number);
        }
    }

    /// Ends a channel; false if there is none of this number.
    pub fn revoke(&self, number: u32) -> bool {
        let gone = self.channels.borrow_mut().remove(&number);
        let mut grants = self.grants.borrow_mut();
        let before = grants.len();
        grants.retain(|grant| grant.number != number);
        let was_there = gone.is_some() || grants.len() < before;
        if let Some(gone) = gone {
            gone.carrier.close();
        }
        if was_there {
            self.rules.borrow_mut().remove(number);
        }
        was_there
    }

    fn count(&self, why: &'static Reason) {
        if let Some(this) = &*self.this.borrow() {
            this.head().drops().count(why);
        }
    }

    /// The session of the wire is known from what passes.
    fn learn(&self, lower: &SessionRef) {
        let known = self.wire.borrow().as_ref() == Some(lower);
        if !known {
            *self.wire.borrow_mut() = Some(lower.clone());
        }
    }

    /// The channel that an arrival is for, if its program is there.
    fn receiver(&self, frame: &Message) -> Option<Shared> {
        let front = front(frame);
        let number = self.rules.borrow().find(&front)?;
        let channel = self.channels.borrow().get(&number).cloned();
        channel.filter(|channel| fits(&channel.received, &front, frame.len()))
    }

    /// Hands up to `budget` frames of a channel to the wire; false once it is over.
    fn carry(&self, cx: &Kernel, channel: &Channel, budget: usize) -> (usize, bool) {
        for count in 0..budget {
            let frame = match channel.next(cx) {
                Arrival::Frame(frame) => frame,
                Arrival::Nothing | Arrival::NoBuffers => return (count, true),
                Arrival::Lost => return (count, false),
            };
            if fits(&channel.sent, &front(&frame), frame.len()) {
                let wire = self.wire.borrow().clone().filter(|wire| !wire.head().is_closed());
                match wire {
                    // What the wire does not take it has counted.
                    Some(wire) => drop(wire.push(cx, frame)),
                    None => self.count(&reason::CLOSED),
                }
                continue;
            }
            self.count(&FORGED);
            channel.violations.set(channel.violations.get() + 1);
            if channel.violations.get() >= VIOLATIONS_MAX {
                self.count(&REVOKED);
                return (count + 1, false);
            }
        }
        (budget, true)
    }

    /// Takes at most `budget` frames from the programs, from each in its turn.
    pub fn poll(&self, cx: &Kernel, budget: usize) -> usize {
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

    /// Those behind the one that was looked at last first.
    fn all(&self) -> Vec<Shared> {
        let (channels, turn) = (self.channels.borrow(), self.turn.get());
        let behind = channels.range((Bound::Excluded(turn), Bound::Unbounded));
        behind.chain(channels.range(..=turn)).map(|(_, channel)| Rc::clone(channel)).collect()
    }
}

/// The module between wire and protocol.
struct Netio(Rc<Module>);

impl Filter for Netio {
    fn down(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), PushError> {
        self.0.learn(hop.lower);
        hop.push(cx, message)
    }

    fn up(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), Refused> {
        let module = &self.0;
        module.learn(hop.lower);
        let Some(channel) = module.receiver(&message) else {
            return hop.deliver(cx, message);
        };
        match channel.carrier.send(cx, &[], &message) {
            Ok(()) => {}
            Err(SendError::Lost) => {
                module.revoke(channel.number);
                module.count(&reason::CLOSED);
            }
            Err(SendError::NoBuffers) => module.count(&reason::NO_BUFFERS),
            Err(SendError::Full | SendError::TooLong) => module.count(&CHANNEL_FULL),
        }
        Ok(())
    }

    fn leaves_alone(&self) -> bool {
        true
    }

    fn control(
        &self,
        cx: &Kernel,
        ask: &mut Ask<'_>,
        forward: &dyn Fn(&mut Ask<'_>) -> Answer,
    ) -> Answer {
        if let Some(question) = ask.get::<GrantChannel>() {
            self.0.grant(cx, question);
        } else if let Some(question) = ask.get::<RevokeChannel>() {
            question.was_there = self.0.revoke(question.number);
        } else {
            return forward(ask);
        }
        Answer::Answered
    }

    fn stop(&self, _: &Kernel) {
        let module = &self.0;
        module.all().iter().for_each(|channel| channel.carrier.close());
        let gone = (module.channels.take(), module.this.take(), module.wire.take());
        drop(gone);
        module.grants.take();
        module.rules.borrow_mut().clear();
    }
}

/// The programs' side, for the executor.
struct Channels(Rc<Module>);

impl Protocol for Channels {
    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for Channels {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        self.0.poll(cx, budget)
    }

    /// Programs are woken once for all that has come for them.
    fn flush(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.channels.borrow().values().for_each(|channel| channel.carrier.flush());
    }

    fn next_poll(&self) -> Option<Time> {
        self.0.channels.borrow().values().filter_map(|channel| channel.next_poll()).min()
    }

    fn rest(&self, cx: &Kernel, _: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        // Each is told, also behind one that has something to do.
        let mut rests = true;
        for channel in self.0.all() {
            rests &= channel.carrier.rest(cx, sleeper);
        }
        rests
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.all().iter().for_each(|channel| channel.carrier.woken());
    }

    fn may_spin(&self) -> bool {
        self.0.channels.borrow().values().all(|channel| channel.carrier.may_spin())
    }
}
