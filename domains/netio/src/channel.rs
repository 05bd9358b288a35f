//! A channel: its figures at the module's end, and the wire at the program's.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::rc::Rc;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use xk_core::object::PushError;
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, ProtocolRef, Secret, SessionRef, Time, fields, reason};
use xk_domains::{Arrival, Carrier, SendError};
use xk_kit::EthAddr;
use xk_kit::net::template::{Check, Template};
use xk_kit::wire::device::{Anchored, Capabilities, Device, Receiving, Unsent};
use xk_kit::wire::segments::{self, RUN_PACKETS_MAX};

use crate::rules::{Face, Rules};

const NS_PER_S: u128 = 1_000_000_000;
/// The number of a channel's ended rights that are remembered.
pub const ENDED_MAX: usize = 256;
/// Octets of both stations and the type.
const ETHERNET_OCTETS: usize = 14;

/// The rate at which a channel may send: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Octets of frames in each second.
    pub octets_per_second: u64,
    /// Octets of frames that may go at once after a pause.
    pub burst_octets: u64,
}

impl Rate {
    /// No more than `other` in either figure.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            octets_per_second: self.octets_per_second.min(other.octets_per_second),
            burst_octets: self.burst_octets.min(other.burst_octets),
        }
    }
}

fields!(Rate { octets_per_second, burst_octets });

/// The process that has a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// User of the process.
    pub uid: u32,
    /// Number of the process.
    pub pid: i32,
}

/// A channel that was fetched and has had no right yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bare {
    /// Number of the channel.
    pub channel: u32,
    /// The process that has fetched it.
    pub holder: Holder,
    /// Time at which it was fetched.
    pub since: Time,
}

/// A token bucket for a rate. A frame goes while any tokens are left, and may leave a debt.
struct Bucket {
    rate: Rate,
    left: Cell<i64>,
    at: Cell<Time>,
}

impl Bucket {
    fn new(rate: Rate, now: Time) -> Self {
        let full = i64::try_from(rate.burst_octets).unwrap_or(i64::MAX);
        Self { rate, left: Cell::new(full), at: Cell::new(now) }
    }

    /// Whether a frame may go now.
    fn is_open(&self, now: Time) -> bool {
        let pause = now.since(self.at.get()).as_nanos();
        let more = pause.saturating_mul(self.rate.octets_per_second.into()) / NS_PER_S;
        if more > 0 {
            let left = i128::from(self.left.get()) + i128::try_from(more).unwrap_or(i128::MAX >> 1);
            let left = left.min(self.rate.burst_octets.into());
            self.left.set(i64::try_from(left).unwrap_or(i64::MAX));
            self.at.set(now);
        }
        self.left.get() > 0
    }

    fn spend(&self, octets: usize) {
        let octets = i64::try_from(octets).unwrap_or(i64::MAX);
        self.left.set(self.left.get().saturating_sub(octets));
    }

    /// Time from which on a frame may go again.
    fn opens_at(&self) -> Option<Time> {
        let debt = u128::try_from(1 - self.left.get()).ok()?;
        let pause = (debt * NS_PER_S).div_ceil(self.rate.octets_per_second.max(1).into());
        Some(self.at.get().after(Duration::from_nanos(u64::try_from(pause).unwrap_or(u64::MAX))))
    }
}

/// Headers of a right's frames to its peer, and the index that the peer has for them.
pub(crate) struct Toward {
    check: Check,
    /// 0 for none.
    pub(crate) index: Cell<u16>,
    /// Destination of all of them, if that is one station of an Ethernet.
    pub(crate) station: Option<[u8; 6]>,
}

impl Toward {
    pub(crate) fn new(sent: &Template) -> Self {
        let front = sent.octets();
        // The lowest bit of the first octet tells groups.
        let is_one = |to: &[u8; 6]| {
            to[0] & 1 == 0 && sent.station() == Some(&to[..]) && front.len() >= ETHERNET_OCTETS
        };
        let station = front.first_chunk().copied().filter(is_one);
        Self { check: Check::new(sent), index: Cell::new(0), station }
    }
}

impl AsRef<Check> for Toward {
    fn as_ref(&self) -> &Check {
        &self.check
    }
}

/// Counts what the channels of one user have; nothing of those of no user.
#[derive(Default)]
pub(crate) struct Had {
    pub(crate) channels: usize,
    /// Channels that nothing has fetched.
    pub(crate) waiting: usize,
    pub(crate) rights: usize,
}

/// The module's end.
pub(crate) struct Channel {
    pub(crate) number: u32,
    /// The user that it is charged to.
    user: Option<u32>,
    secret: Secret,
    /// Once the program has fetched it.
    carrier: OnceCell<Box<dyn Carrier>>,
    /// Rules for the frames that it may send.
    pub(crate) sent: RefCell<Rules<Toward>>,
    /// The rule of the last frame.
    last: RefCell<Option<Rc<Toward>>>,
    /// Rules of the last [`ENDED_MAX`] rights that have ended.
    ended: RefCell<(Rules<Toward>, VecDeque<Template>)>,
    /// The numbers of its rights.
    pub(crate) rights: RefCell<BTreeSet<u32>>,
    /// Until it has one: what has fetched it.
    pub(crate) bare: Cell<Option<Bare>>,
    /// Frames that did not fit.
    pub(crate) violations: Cell<u32>,
    bucket: Bucket,
}

impl Channel {
    pub(crate) fn new(cx: &Kernel, number: u32, rate: Rate, user: Option<u32>) -> Self {
        Self {
            number,
            user,
            secret: cx.secret(),
            carrier: OnceCell::new(),
            sent: RefCell::default(),
            last: RefCell::default(),
            ended: RefCell::default(),
            rights: RefCell::default(),
            bare: Cell::new(None),
            violations: Cell::new(0),
            bucket: Bucket::new(rate, cx.now()),
        }
    }

    /// Adds up what the channels of this one's user have.
    pub(crate) fn had<'a>(&self, all: impl IntoIterator<Item = &'a Rc<Self>>) -> Had {
        let mut had = Had::default();
        for one in all.into_iter().filter(|one| self.user.is_some() && one.user == self.user) {
            had.channels += 1;
            had.waiting += usize::from(one.carrier().is_none());
            had.rights += one.rights.borrow().len();
        }
        had
    }

    /// The rate at which it may send.
    pub(crate) fn rate(&self) -> Rate {
        self.bucket.rate
    }

    /// The program has fetched it, once.
    pub(crate) fn attach(&self, carrier: Box<dyn Carrier>) -> Result<(), Box<dyn Carrier>> {
        self.carrier.set(carrier)
    }

    /// The carrier to the program, if that has fetched the channel.
    pub(crate) fn carrier(&self) -> Option<&dyn Carrier> {
        self.carrier.get().map(|carrier| &**carrier)
    }

    /// The index that a frame is to bear, 0 for none, if it fits one of the rights. Frames come in
    /// trains, so the last one's is looked at first.
    #[inline]
    pub(crate) fn admits(&self, face: &Face) -> Option<u16> {
        if let Some(last) = &*self.last.borrow()
            && face.fits(&last.check)
        {
            return Some(last.index.get());
        }
        let found = self.sent.borrow().find(face)?;
        let index = found.index.get();
        *self.last.borrow_mut() = Some(found);
        Some(index)
    }

    /// Takes a right's template out. What the program has sent before it knows is no violation.
    pub(crate) fn forbid(&self, sent: &Template) {
        let gone = self.sent.borrow_mut().remove(sent);
        self.last.take();
        let (rules, templates) = &mut *self.ended.borrow_mut();
        if gone.is_some_and(|gone| rules.add(|| self.secret, sent, &gone)) {
            templates.push_back(sent.clone());
        }
        if templates.len() > ENDED_MAX
            && let Some(first) = templates.pop_front()
        {
            rules.remove(&first);
        }
    }

    /// Whether such a frame would have fitted a right that has ended not long ago.
    #[cold]
    pub(crate) fn is_late(&self, face: &Face) -> bool {
        self.ended.borrow().0.find(face).is_some()
    }

    /// True if notes beside a frame's octets reach the program.
    pub(crate) fn takes_notes(&self) -> bool {
        self.carrier().is_some_and(Carrier::takes_notes)
    }

    /// The next frame that the program sent, if it may send now.
    pub(crate) fn next(&self, cx: &Kernel) -> Arrival {
        let Some(carrier) = self.carrier() else {
            return Arrival::Nothing;
        };
        if !self.bucket.is_open(cx.now()) {
            return if carrier.is_lost(cx) { Arrival::Lost } else { Arrival::Nothing };
        }
        let arrival = carrier.receive(cx);
        if let Arrival::Frame(frame) = &arrival {
            self.bucket.spend(segments::octets_of_all(frame));
        }
        arrival
    }

    /// The executor is about to sleep. False if there is something to do before its rate says so.
    pub(crate) fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        let rests = self.carrier().is_none_or(|carrier| carrier.rest(cx, sleeper));
        rests || !self.bucket.is_open(cx.now())
    }

    /// Time of the next look, at the latest.
    pub(crate) fn next_poll(&self) -> Option<Time> {
        let opens_at = (self.bucket.left.get() <= 0).then(|| self.bucket.opens_at()).flatten();
        let looks_at = self.carrier().and_then(Carrier::next_poll);
        [opens_at, looks_at].into_iter().flatten().min()
    }
}

/// A wire over the program's end of a channel, for a station with this hardware address and frames
/// of up to `frame_octets_max` octets; and whether the module has ended it.
pub fn channel(
    cx: &Kernel,
    name: &str,
    carrier: Box<dyn Carrier>,
    (address, frame_octets_max): (EthAddr, usize),
) -> (ProtocolRef, Rc<Cell<bool>>) {
    let is_over = Rc::new(Cell::new(false));
    let capabilities = Capabilities::ethernet(frame_octets_max, address)
        .offloads(carrier.takes_notes(), RUN_PACKETS_MAX);
    let is_told = Rc::clone(&is_over);
    let wire = Anchored::new(ChannelWire { carrier, is_over: is_told }, capabilities);
    (cx.add_protocol("channel", name, wire), is_over)
}

struct ChannelWire {
    carrier: Box<dyn Carrier>,
    is_over: Rc<Cell<bool>>,
}

impl Device for ChannelWire {
    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, budget, arrivals, .. } = into;
        while arrivals.len() < budget {
            match self.carrier.receive(cx) {
                Arrival::Frame(frame) => arrivals.push_back(frame),
                Arrival::Nothing | Arrival::NoBuffers => break,
                Arrival::Lost => {
                    // Closed, it is not slept on any more: it would wake the executor at once.
                    if !self.is_over.replace(true) {
                        self.carrier.close();
                    }
                    break;
                }
            }
        }
    }

    fn send(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        let (why, error) = match self.carrier.send(cx, &[], &message) {
            Ok(()) => return Ok(()),
            Err(SendError::Full) => (&reason::QUEUE_FULL, PushError::QueueFull),
            Err(SendError::NoBuffers) => (&reason::NO_BUFFERS, PushError::NoBuffers),
            Err(SendError::TooLong) => (&reason::TOO_BIG, PushError::TooBig),
            Err(SendError::Lost) => (&reason::CLOSED, PushError::Unreachable),
        };
        Err(Unsent::Refused(message, why, error))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.carrier.close();
    }

    fn flush(&self, _: &Kernel, _: &ProtocolRef) -> bool {
        self.carrier.flush();
        true
    }

    fn next_poll(&self) -> Option<Time> {
        self.carrier.next_poll().filter(|_| !self.is_over.get())
    }

    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        self.carrier.rest(cx, sleeper)
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.carrier.woken();
    }

    fn may_spin(&self) -> bool {
        self.carrier.may_spin()
    }
}
