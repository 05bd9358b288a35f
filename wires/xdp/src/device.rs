//! The interface below a graph: its frames lie where messages lie.
//!
//! The whole memory of the message pool is made known to each socket. Buffers of the pool are lent
//! to the system, as messages that are kept in a table by their place; a frame that arrives in one
//! is that message. A frame that is sent is the message given to send, kept in the same table until
//! the system has done with it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use xk_core::reason::Class;
use xk_core::{Kernel, Message, Pool, ProtocolRef, Reason, SessionRef};
use xk_kit::EthAddr;
use xk_kit::wire::device::{
    BACKLOG_MAX, Capabilities, DEVICE_DOWN, DEVICE_ERROR, Device, Receiving, Unsent,
};
use xk_kit::wire::frames;
use xk_linux::Interface;

use crate::bare::{Mode, effective, working};
use crate::error::XdpError;
use crate::groups_unsafe::Groups;
use crate::memory_unsafe::prefer_large_pages;
use crate::program::Share;
use crate::queue::{
    CHUNK_OCTETS, FRAME_OCTETS_MAX, HEADER_OCTETS, HEADER_OCTETS_MAX, Queue, Redirect, Region,
    descriptor,
};

/// Messages in the system's hands are found by their place in the pool's memory, in units of so
/// many octets: the smallest buffers of usual pools.
const UNIT_OCTETS: usize = 256;
/// Room in front of an arrival from the group socket, in octets. Others have
/// [`crate::queue::HEADROOM_OCTETS`].
const HEADROOM: usize = 128;
/// Buffers lent at first. The system takes them in turn, so each arrival comes into the one that
/// was longest out of use: more than so many (half a MiB) are more than a processor's own cache
/// holds.
const LENT_MIN: u32 = 256;
/// Number of calm looks in a row after which fewer buffers are lent.
const CALM_LOOKS: u32 = 4096;
/// Octets of a page.
const PAGE: usize = 4096;
/// The system may have one in so many octets of the pool for arrivals.
const POOL_SHARE: usize = 4;
/// Frames that are taken from the group socket in one look.
const GROUPS_AT_ONCE: usize = 16;
/// Number of looks without an arrival after which the socket is asked for an error, a queue without
/// a buffer tries again to get one, and the group socket is looked at: work that a spinning loop
/// should not pay each time.
const LOOKS_FOR_ERROR: u32 = 1024;
const LOOKS_FOR_GROUPS: u32 = 128;

/// The interface is gone for good.
pub(crate) static DEVICE_GONE: Reason = Reason::new("device gone", Class::Exhausted);

/// Settings of the wire on its interface.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) queues: u32,
    /// Arrivals that may wait in each queue; a power of two.
    pub(crate) frames: u32,
    pub(crate) share: Share,
    /// Hear what is for all and for groups, which goes to the host as well.
    pub(crate) hears_groups: bool,
    pub(crate) promiscuous: bool,
    /// Finish checksums that a sender on this machine has left open.
    pub(crate) finishes: bool,
}

/// An interface, its sockets, and the messages that the system has.
pub(crate) struct XdpDevice {
    // The program is taken off first, then the sockets end the system's use of the memory.
    redirect: Redirect,
    lanes: Vec<Lane>,
    groups: Option<Groups>,
    hears_groups: bool,
    /// All descriptors, if there are several.
    waits: Option<OwnedFd>,
    interface: Interface,
    pool: Pool,
    finishes: bool,
    is_gone: bool,
    /// The queue that is asked first.
    turn: usize,
    looks: u32,
    /// Frames sent from a copy, since they did not lie in one piece of the pool.
    copied: u64,
    /// Frames from the group socket that were too long or found no buffer.
    missed: u64,
}

/// One queue, and the messages that the system has of it.
struct Lane {
    queue: Queue,
    kept: Vec<Option<Message>>,
    /// Buffers lent for arrivals, and how many there may be at present.
    lent: u32,
    lent_max: u32,
    /// Largest number of frames.
    frames: u32,
    /// Looks in a row that found few arrivals.
    calm: u32,
    /// Messages on their way out.
    leaving: u32,
    /// Descriptors that the system gave and did not own.
    inconsistent: u64,
    /// The pieces so far of a frame in several chunks; `None` in it if one was lost.
    partial: Option<Option<Message>>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.queue.is_zero_copy {
            // The driver stops some time after the socket is closed: until then it may write into
            // what it was lent.
            self.kept.drain(..).flatten().for_each(std::mem::forget);
        }
    }
}

impl Lane {
    /// Lends the system buffers until it has as many as it may. Each is a message of one whole
    /// chunk.
    fn refill(&mut self, pool: &Pool) {
        while self.lent < self.lent_max {
            let Ok(message) = pool.alloc(0, CHUNK_OCTETS) else {
                break;
            };
            let Some(place) = single(&message).filter(|at| at.is_multiple_of(CHUNK_OCTETS)) else {
                // A larger buffer in place of one that there is none of any more.
                break;
            };
            let Some(kept) = self.kept.get_mut(place / UNIT_OCTETS) else {
                break;
            };
            *kept = Some(message);
            self.queue.fill.push(place as u64);
            self.lent += 1;
        }
        self.queue.fill.publish();
        self.queue.wake_for_fill();
    }

    /// Sees to how many buffers are lent: more when half of them were filled at one look, fewer
    /// after a long calm.
    #[inline]
    fn adapt(&mut self, found: u32) {
        if found >= self.lent_max / 2 {
            self.lent_max = (self.lent_max * 2).min(self.frames);
            self.calm = 0;
        } else if found >= self.lent_max / 16 {
            self.calm = 0;
        } else {
            self.calm += 1;
            if self.calm == CALM_LOOKS {
                self.lent_max = (self.lent_max / 2).max(self.frames.min(LENT_MIN));
                self.calm = 0;
            }
        }
    }

    /// The buffer that an entry of the ring tells of, cut to what is in it.
    #[inline]
    fn take(&mut self, arrived: XdpDesc) -> Option<Message> {
        let place = arrived.addr as usize;
        let (chunk, offset) = (place - place % CHUNK_OCTETS, place % CHUNK_OCTETS);
        let kept = self.kept.get_mut(chunk / UNIT_OCTETS);
        let Some(mut message) = kept.and_then(Option::take) else {
            self.inconsistent += 1;
            return None;
        };
        self.lent = self.lent.saturating_sub(1);
        if !message.strip(offset) {
            self.inconsistent += 1;
            return None;
        }
        message.truncate(arrived.len as usize);
        Some(message)
    }

    /// Adds a piece to a frame in several chunks; answers the frame with its last one.
    #[cold]
    fn add(&mut self, piece: Option<Message>, goes_on: bool) -> Option<Message> {
        let whole = match (self.partial.take(), piece) {
            (None, piece) => piece,
            (Some(Some(mut before)), Some(piece)) => {
                before.join(piece);
                Some(before)
            }
            (Some(_), _) => None,
        };
        if goes_on {
            self.partial = Some(whole);
            return None;
        }
        whole
    }

    /// Takes at most `budget` arrivals.
    #[inline]
    fn receive(
        &mut self,
        pool: &Pool,
        (budget, mtu, finishes): (usize, usize, bool),
        arrivals: &mut VecDeque<Message>,
    ) -> (usize, Result<(), &'static Reason>) {
        let (mut count, mut outcome) = (0, Ok(()));
        while count < budget {
            let Some(arrived) = self.queue.arrivals.next() else {
                break;
            };
            count += 1;
            let message = self.take(arrived);
            let goes_on = arrived.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            if goes_on || self.partial.is_some() {
                if let Some(long) = self.add(message, goes_on) {
                    let taken = frames::arrive_long(pool, long, mtu, arrivals);
                    outcome = outcome.and(taken);
                }
                continue;
            }
            let Some(mut message) = message else { continue };
            if frames::is_long(&message, mtu) {
                // A short run fits one chunk.
                let taken = frames::arrive_long(pool, message, mtu, arrivals);
                outcome = outcome.and(taken);
                continue;
            }
            if finishes && let Some(frame) = message.front_mut() {
                frames::finish_begun(frame);
            }
            arrivals.push_back(message);
        }
        if count > 0 {
            self.queue.arrivals.release();
            self.adapt(count as u32 + self.queue.arrivals.known());
            self.refill(pool);
        }
        (count, outcome)
    }

    /// Drops the messages that have gone out.
    #[inline]
    fn collect(&mut self) {
        if self.leaving == 0 {
            return;
        }
        while let Some(place) = self.queue.done.next() {
            let kept = self.kept.get_mut(place as usize / UNIT_OCTETS);
            match kept.and_then(Option::take) {
                Some(sent) => drop(sent),
                None => self.inconsistent += 1,
            }
            self.leaving = self.leaving.saturating_sub(1);
        }
        self.queue.done.release();
    }

    /// Place of a frame, if it can be sent from there.
    #[inline]
    fn place(&self, frame: &Message, pool: &Pool) -> Option<usize> {
        let place = single(frame)?;
        let fits = place % CHUNK_OCTETS + frame.len() <= CHUNK_OCTETS;
        // One that is on its way already, or shares a unit with one, cannot be told apart.
        let is_free = self.kept.get(place / UNIT_OCTETS)?.is_none();
        (fits && is_free && frame.lies_in(pool)).then_some(place)
    }

    /// Puts a frame into the ring. The caller has seen that there is room.
    #[inline]
    fn send(&mut self, frame: Message, place: usize) {
        if let Some(kept) = self.kept.get_mut(place / UNIT_OCTETS) {
            let sending = descriptor(place as u64, frame.len());
            *kept = Some(frame);
            self.queue.departures.push(sending);
            self.leaving += 1;
        }
    }
}

/// Place of a message in its pool's memory, if it lies there in one piece.
#[inline]
fn single(message: &Message) -> Option<usize> {
    let mut slices = message.slices();
    match (slices.next(), slices.next()) {
        (Some(slice), None) => Some(slice.offset),
        _ => None,
    }
}

impl XdpDevice {
    /// Opens the interface for messages of `pool`.
    pub(crate) fn open(
        interface: Interface,
        settings: &Settings,
        pool: &Pool,
    ) -> Result<Self, XdpError> {
        let name = interface.name.clone();
        let region = region(&name, settings, pool)?;
        prefer_large_pages(pool);
        let fails = |action| move |source: io::Error| XdpError::system(&name, action, source);
        let wants_groups = settings.hears_groups || settings.promiscuous;
        let groups = wants_groups
            .then(|| Groups::open(&interface, settings.hears_groups, settings.promiscuous))
            .transpose()
            .map_err(fails.clone()("open a packet socket"))?;
        let queues = settings.queues;
        let redirect = Redirect::attach(&interface, queues, settings.mode, &settings.share)?;
        let mode = effective(settings.mode, &redirect);
        let mut lanes = Vec::new();
        for number in 0..queues {
            let queue = Queue::open(&interface, number, mode, region, settings.frames)?;
            let mut lane = Lane {
                queue,
                kept: std::iter::repeat_with(|| None).take(region.octets / UNIT_OCTETS).collect(),
                lent: 0,
                lent_max: settings.frames.min(LENT_MIN),
                frames: settings.frames,
                calm: 0,
                leaving: 0,
                inconsistent: 0,
                partial: None,
            };
            lane.refill(pool);
            redirect.enter(&interface, number, lane.queue.fd())?;
            lanes.push(lane);
        }
        let mut device = Self {
            redirect,
            lanes,
            groups,
            hears_groups: settings.hears_groups,
            waits: None,
            interface,
            pool: pool.clone(),
            finishes: settings.finishes,
            is_gone: false,
            turn: 0,
            looks: 0,
            copied: 0,
            missed: 0,
        };
        device.waits = device.gather().map_err(fails("gather its descriptors"))?;
        Ok(device)
    }

    /// One descriptor for all, if there are several.
    fn gather(&self) -> io::Result<Option<OwnedFd>> {
        let groups = self.groups.as_ref().filter(|_| self.hears_groups);
        if self.lanes.len() == 1 && groups.is_none() {
            return Ok(None);
        }
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sockets = self.lanes.iter().map(|lane| lane.queue.fd().as_fd());
        for fd in sockets.chain(groups.map(Groups::fd)) {
            epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Some(all))
    }

    /// Does the work that is due now and then while nothing arrives.
    #[cold]
    fn look_around(
        &mut self,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)> {
        for lane in &mut self.lanes {
            lane.collect();
            if lane.lent < lane.lent_max {
                lane.refill(&self.pool);
            }
        }
        let mut outcome = self.receive_groups(arrivals);
        if self.looks >= LOOKS_FOR_ERROR {
            self.looks = 0;
            for lane in &self.lanes {
                // A held error wakes every sleep until it is taken.
                if lane.queue.take_error().is_err() {
                    self.is_gone = true;
                    outcome = Err((&DEVICE_GONE, 1));
                }
            }
        }
        outcome
    }

    /// Takes frames for all and for groups.
    fn receive_groups(
        &mut self,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)> {
        let Some(groups) = self.groups.as_ref().filter(|_| self.hears_groups) else {
            return Ok(());
        };
        let octets_max = self.interface.mtu + HEADER_OCTETS_MAX;
        for _ in 0..GROUPS_AT_ONCE {
            // Without a buffer the frame stays in the socket, which has a bounded queue.
            let Ok(mut message) = self.pool.alloc(HEADROOM, octets_max) else {
                return Ok(());
            };
            let Some(room) = message.front_mut() else {
                return Ok(());
            };
            match groups.receive(room) {
                Ok(None) => break,
                Ok(Some(octets)) if octets > octets_max => self.missed += 1,
                Ok(Some(octets)) => {
                    if self.finishes {
                        frames::finish_begun(&mut room[..octets]);
                    }
                    message.truncate(octets);
                    arrivals.push_back(message);
                }
                Err(_) => return Err((&DEVICE_DOWN, 1)),
            }
        }
        Ok(())
    }

    /// A message of one piece with the same octets.
    #[cold]
    fn copy(&mut self, frame: &Message) -> Option<Message> {
        let mut copy = self.pool.alloc(0, frame.len()).ok()?;
        frame.copy_to(0, copy.front_mut()?);
        self.copied += 1;
        Some(copy)
    }
}

impl XdpDevice {
    /// Puts at most `budget` arrivals behind the others.
    ///
    /// # Errors
    /// Why frames were dropped and how many, or why the device cannot be read.
    #[inline]
    fn receive(
        &mut self,
        budget: usize,
        arrivals: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)> {
        let mut left = budget;
        let mut outcome = Ok(());
        let (behind, first) = self.lanes.split_at_mut(self.turn);
        for lane in first.iter_mut().chain(behind) {
            let how = (left, self.interface.mtu, self.finishes);
            let (count, taken) = lane.receive(&self.pool, how, arrivals);
            left -= count;
            outcome = outcome.and(taken);
        }
        if left == 0 {
            // Another queue is first at the next look.
            self.turn = (self.turn + 1) % self.lanes.len();
        }
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_FOR_GROUPS) {
            self.look_around(arrivals)?;
        }
        outcome.map_err(|why| (why, 1))
    }

    #[inline]
    fn send(&mut self, frame: Message) -> Result<(), Unsent> {
        if self.is_gone || !(HEADER_OCTETS..=FRAME_OCTETS_MAX).contains(&frame.len()) {
            return Err(Unsent::failed(frame));
        }
        let Some(lane) = self.lanes.first_mut() else {
            return Err(Unsent::failed(frame));
        };
        if !lane.queue.departures.has_room() {
            return Err(Unsent::Full(frame));
        }
        if let Some(place) = lane.place(&frame, &self.pool) {
            lane.send(frame, place);
            return Ok(());
        }
        let Some(copy) = self.copy(&frame) else {
            return Err(Unsent::Full(frame));
        };
        let lane = self.lanes.first_mut();
        let place = lane.as_ref().and_then(|lane| lane.place(&copy, &self.pool));
        match (lane, place) {
            (Some(lane), Some(place)) => {
                lane.send(copy, place);
                Ok(())
            }
            _ => Err(Unsent::Full(frame)),
        }
    }

    /// Sees that what was sent goes out. True if all did.
    #[inline]
    fn flush(&mut self) -> Result<bool, &'static Reason> {
        let mut all = true;
        for lane in &mut self.lanes {
            if lane.leaving == 0 {
                continue;
            }
            let sent = lane.queue.kick();
            lane.collect();
            match sent {
                Ok(sent) => all &= sent,
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                    return Err(&DEVICE_DOWN);
                }
                Err(_) => return Err(&DEVICE_ERROR),
            }
        }
        Ok(all)
    }
}

/// The device as a wire's.
pub(crate) struct XdpWire(pub(crate) RefCell<XdpDevice>);

impl Device for XdpWire {
    const BACKLOG_MAX: usize = BACKLOG_MAX;

    #[inline]
    fn receive(&self, into: Receiving<'_>) {
        if let Err((why, count)) = self.0.borrow_mut().receive(into.budget, into.arrivals) {
            into.lost(why, count);
        }
    }

    #[inline]
    fn send(&self, _: &Kernel, _: &SessionRef, frame: Message) -> Result<(), Unsent> {
        self.0.borrow_mut().send(frame)
    }

    /// A failed device is not waited for, which would only spin. Its frames are tried again behind
    /// the next one.
    #[inline]
    fn flush(&self, _: &Kernel, this: &ProtocolRef) -> bool {
        match self.0.borrow_mut().flush() {
            Ok(all) => all,
            Err(why) => {
                this.head().drops().count(why);
                true
            }
        }
    }

    fn set_group(&self, group: EthAddr, is_joined: bool) -> bool {
        let device = self.0.borrow();
        device.groups.as_ref().is_some_and(|groups| groups.set(group.0, is_joined).is_ok())
    }

    fn losses(&self) -> u64 {
        let device = self.0.borrow();
        let lanes = device.lanes.iter().map(|lane| {
            let counted = lane.queue.losses().unwrap_or_default();
            counted.no_buffer + counted.ring_full + counted.invalid + lane.inconsistent
        });
        lanes.sum::<u64>() + device.missed
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        let device = self.0.borrow();
        match (&device.waits, device.lanes.first()) {
            (Some(waits), _) => see(waits),
            (None, Some(lane)) => see(lane.queue.fd()),
            (None, None) => {}
        }
    }

    fn describe(&self, able: &Capabilities) -> Option<String> {
        let device = self.0.borrow();
        let lanes = device.lanes.len();
        let mode =
            device.lanes.first().map_or(Mode::Auto, |lane| working(&lane.queue, &device.redirect));
        let (name, copied) = (&device.interface.name, device.copied);
        let address = able.address?;
        Some(format!("{address} on {name}, {mode}, queues: {lanes}, copied: {copied}"))
    }
}

/// The pool's memory as the system is told, if it does for these settings.
fn region(name: &str, settings: &Settings, pool: &Pool) -> Result<Region, XdpError> {
    let (base, octets) = pool.region();
    let region = Region {
        address: base.as_ptr().expose_provenance(),
        octets: octets - octets % CHUNK_OCTETS,
    };
    let lent = settings.frames as usize * settings.queues as usize * CHUNK_OCTETS;
    let refuse = |what: String, remedy: &str| {
        Err(XdpError::Setting { name: name.to_owned(), what, remedy: remedy.to_owned() })
    };
    if !region.address.is_multiple_of(PAGE) {
        let what = format!("the message memory does not begin at a page of {PAGE} octets");
        return refuse(what, "take the arena of `Pool::new`, or a memory file's");
    }
    if lent > region.octets / POOL_SHARE {
        let what = format!(
            "{} frames in {} queues take {lent} octets, more than one in {POOL_SHARE} of the message memory's {octets}",
            settings.frames, settings.queues
        );
        return refuse(what, "take fewer frames or queues, or more message memory");
    }
    Ok(region)
}
