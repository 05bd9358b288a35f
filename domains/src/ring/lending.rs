//! Rings across which long messages are lent: their octets stay in the sender's pool, and their
//! places cross.
//!
//! Each side may have its pool in a file in memory, which the other one maps for reading
//! ([`Terms`]). Of a message of [`LENT_MIN`] octets or more, the first [`FRONT`] are copied as
//! ever, for headers are read and taken off there; the rest is lent ([`Loans`]), as long as half
//! of the pool is not. Between two threads it is read in place: not one octet of it is copied.
//! Another process could change what it has lent, so there it is copied once, by its reader.
//!
//! A frame that lends:
//!
//! | octet | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | [`LENT`] |
//! | 1 | 1 | how many slices follow, 1 to [`SLICES_MAX`] |
//! | 2 | 2 | 0 |
//! | 4 | 4 | the number of the loan |
//! | 8 | 8 each | the slices: position in the pool's file, octets |
//!
//! Behind that comes the frame up to the octets that are lent. A frame that returns loans has
//! [`RETURNED`], three octets 0, and their numbers. All numbers have 4 octets, little-endian.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::{Arrival, Carrier, FRAME_OCTETS_MAX, SendError};
use xk_core::message::{Foreign, LentSlice, Loans, WrapError};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Pool, Time};
use xk_run::memfd_unsafe::MemfdView;
use xk_shm::ShmError;

use super::Ring;
use super::view_unsafe::Neighbour;

/// From how many octets on a message is lent.
pub const LENT_MIN: usize = 4096;
/// The octets in front of a lent message that are copied all the same.
pub const FRONT: usize = 128;
/// The most slices of a lent message.
pub const SLICES_MAX: usize = 64;
/// Largest number of messages that a neighbour lends at one time.
const LOANS_MAX: u32 = 8192;
/// The first octet of a frame that lends, and of one that returns: no operation's number.
const LENT: u8 = 0x81;
const RETURNED: u8 = 0x82;
/// Octets in front of the slices, and of the numbers.
const LENT_OCTETS: usize = 8;
const RETURNED_OCTETS: usize = 4;
/// Number of loans that wait to be returned before a frame is sent for them alone. A frame has at
/// most as many, so that it fits a slot.
const RETURNS: usize = 16;
/// The most octets in front of a message's own.
const HEAD_OCTETS_MAX: usize = 256;

/// Shared by two threads of a process as long as one of them reads what the other has lent.
#[derive(Default)]
pub struct Kin {
    lends: Arc<()>,
    borrows: Arc<()>,
}

impl Kin {
    /// One for each of two threads.
    pub fn pair() -> (Self, Self) {
        let one = Self::default();
        let other = Self { lends: Arc::clone(&one.borrows), borrows: Arc::clone(&one.lends) };
        (one, other)
    }
}

/// The terms on which both sides lend across a ring.
pub struct Terms {
    lends: bool,
    /// The other side's pool, if that lends.
    pool: Option<OwnedFd>,
    kin: Option<Kin>,
}

impl Terms {
    /// Agrees with the other side of a fresh ring, within `limit`: this one lends if it gives the
    /// file of its `pool`. Two threads of one process have `kin`.
    ///
    /// # Errors
    /// [`ShmError`]: the other side is gone, says something else, or nothing in time.
    pub fn agree(
        ring: &Ring,
        pool: Option<&OwnedFd>,
        kin: Option<Kin>,
        limit: Duration,
    ) -> Result<Self, ShmError> {
        let file = pool.map(AsFd::as_fd);
        ring.send_beside(&[file.is_some().into()], file.as_slice())?;
        let (octets, mut files) = ring.receive_beside(1, limit)?;
        match (&octets[..], files.len()) {
            ([0], 0) | ([1], 1) => Ok(Self { lends: pool.is_some(), pool: files.pop(), kin }),
            _ => Err(ShmError::Hello("it does not say whether it lends")),
        }
    }
}

/// A frame that lends, of which the front has come.
struct Loan {
    front: Message,
    number: u32,
    slices: Vec<LentSlice>,
}

/// One end of a cut's rings, across which long messages are lent.
pub struct Lending {
    ring: Ring,
    /// None if this side does not lend, or does so no more.
    loans: RefCell<Option<Loans>>,
    /// None if the other side does not lend.
    foreign: Option<Foreign>,
    /// Lives as long as the other side reads what this one has lent.
    lease: RefCell<Option<Arc<()>>>,
    /// Loans to be returned.
    returns: RefCell<Vec<u32>>,
    /// A loan for which there was no buffer.
    held: Cell<Option<Loan>>,
    /// The other side has broken the rules.
    is_broken: Cell<bool>,
}

impl Lending {
    /// A ring across which a kernel with this pool, in the file that `terms` was given, lends.
    ///
    /// # Errors
    /// [`ShmError`]: what the other side gave cannot be mapped.
    pub fn new(ring: Ring, pool: &Pool, terms: Terms) -> Result<Self, ShmError> {
        let Terms { lends, pool: file, kin } = terms;
        let (lease, borrows) = kin.map(|kin| (kin.lends, kin.borrows)).unzip();
        let view = file.map(MemfdView::map).transpose();
        let view = view.map_err(|_| ShmError::Hello("its pool cannot be mapped"))?;
        let foreign = view.map(|view| pool.foreign(Neighbour::new(view, borrows), LOANS_MAX));
        // Places have 4 octets.
        let (_, octets) = pool.region();
        let lends = lends && u32::try_from(octets).is_ok();
        Ok(Self {
            ring,
            loans: RefCell::new(lends.then(|| Loans::new(pool, octets / 2))),
            foreign,
            lease: RefCell::new(lease),
            returns: RefCell::default(),
            held: Cell::new(None),
            is_broken: Cell::new(false),
        })
    }

    /// Counts the messages of this side that the other one reads at present.
    pub fn lent(&self) -> usize {
        self.loans.borrow().as_ref().map_or(0, Loans::count)
    }

    /// Sends a frame that lends; `None` if the message is to be copied.
    fn lend(&self, head: &[u8], body: &Message) -> Option<Result<(), SendError>> {
        let mut loans = self.loans.borrow_mut();
        let loans = loans.as_mut()?;
        let front = head.len() <= HEAD_OCTETS_MAX && head.len() + body.len() <= FRAME_OCTETS_MAX;
        let rest = body.len().checked_sub(FRONT).filter(|_| front)?;
        let rest = body.try_clone_part(FRONT, rest).ok()?;
        if rest.slices().take(SLICES_MAX + 1).count() > SLICES_MAX {
            return None;
        }
        let (number, lent) = loans.lend(rest).ok()?;
        let mut octets = [0; LENT_OCTETS + SLICES_MAX * 8 + HEAD_OCTETS_MAX + FRONT];
        let mut end = LENT_OCTETS;
        let mut put = |part: &[u8]| {
            octets[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        };
        let mut count = 0;
        for slice in lent.slices() {
            put(&(slice.offset as u32).to_le_bytes());
            put(&(slice.octets.len() as u32).to_le_bytes());
            count += 1;
        }
        put(head);
        let mut left = FRONT;
        for part in body.octet_slices() {
            let part = &part[..left.min(part.len())];
            put(part);
            left -= part.len();
        }
        octets[..2].copy_from_slice(&[LENT, count]);
        octets[4..LENT_OCTETS].copy_from_slice(&number.to_le_bytes());
        let sent = self.ring.send_octets(end, [&octets[..end]].into_iter());
        if sent.is_err() {
            let _ = loans.take_back(number);
        }
        Some(sent)
    }

    /// Reads a frame that lends; `None` if it is malformed.
    fn loan(mut front: Message) -> Option<Loan> {
        let [_, count, 0, 0, number @ ..] = *front.pop_array::<LENT_OCTETS>()? else {
            return None;
        };
        let mut octets = 0;
        let mut slices = Vec::with_capacity(count.into());
        for _ in 0..count {
            let [a, b, c, d, length @ ..] = *front.pop_array::<8>()?;
            let slice = LentSlice {
                offset: u32::from_le_bytes([a, b, c, d]) as usize,
                octets: u32::from_le_bytes(length) as usize,
            };
            octets += slice.octets;
            slices.push(slice);
        }
        let is_sound =
            (1..=SLICES_MAX).contains(&slices.len()) && octets + front.len() <= FRAME_OCTETS_MAX;
        is_sound.then_some(Loan { front, number: u32::from_le_bytes(number), slices })
    }

    /// The message that a loan completes.
    fn take(&self, foreign: &Foreign, loan: Loan) -> Arrival {
        match foreign.wrap(loan.number, &loan.slices) {
            Ok(rest) => {
                let mut frame = loan.front;
                frame.join(rest);
                Arrival::Frame(frame)
            }
            Err(WrapError::NoBuffers) => {
                // It is told as returned, and is not: it is wrapped another time.
                self.collect();
                self.returns.borrow_mut().retain(|number| *number != loan.number);
                self.held.set(Some(loan));
                Arrival::NoBuffers
            }
            Err(WrapError::Outside | WrapError::TooMany) => self.broken(),
        }
    }

    /// Takes back the loans that a frame names; `None` if that cannot be.
    fn take_back(&self, mut frame: Message) -> Option<()> {
        let mut loans = self.loans.borrow_mut();
        let loans = loans.as_mut()?;
        let _ = frame.pop_array::<RETURNED_OCTETS>()?;
        // One at least, so that a sender of such frames runs out of loans.
        loop {
            let number = frame.pop_array::<4>()?;
            loans.take_back(u32::from_le_bytes(*number)).ok()?;
            if frame.is_empty() {
                return Some(());
            }
        }
    }

    /// Reads a frame of the ring; `None` if it only returned loans.
    fn read(&self, frame: Message) -> Option<Arrival> {
        match frame.peek_in_place::<1>() {
            Some(&[LENT]) => {
                let loan = self.foreign.as_ref().zip(Self::loan(frame));
                let arrival = loan.map(|(foreign, loan)| self.take(foreign, loan));
                Some(arrival.unwrap_or_else(|| self.broken()))
            }
            Some(&[RETURNED]) => match self.take_back(frame) {
                Some(()) => None,
                None => Some(self.broken()),
            },
            _ => Some(Arrival::Frame(frame)),
        }
    }

    /// The other side has sent what no sound one does.
    fn broken(&self) -> Arrival {
        self.is_broken.set(true);
        Arrival::Lost
    }

    /// Notes what no message refers to any more.
    fn collect(&self) {
        if let Some(foreign) = &self.foreign {
            self.returns.borrow_mut().extend(std::iter::from_fn(|| foreign.returned()));
        }
    }

    /// Returns loans, if at least so many wait for it and there is room.
    fn give_back(&self, least: usize) {
        self.collect();
        let mut returns = self.returns.borrow_mut();
        while returns.len() >= least {
            let count = returns.len().min(RETURNS);
            let mut octets = [0; RETURNED_OCTETS + RETURNS * 4];
            octets[0] = RETURNED;
            let places = octets[RETURNED_OCTETS..].chunks_exact_mut(4);
            for (place, number) in places.zip(&returns[..count]) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            let end = RETURNED_OCTETS + count * 4;
            if self.ring.send_octets(end, [&octets[..end]].into_iter()).is_err() {
                break;
            }
            returns.drain(..count);
        }
    }

    /// Takes back what is lent, unless the other side is a thread that still reads it: then these
    /// buffers are never used again.
    fn end(&self) {
        let loans = self.loans.take();
        let is_read = self.lease.take().is_some_and(|mut lease| Arc::get_mut(&mut lease).is_none());
        if is_read {
            std::mem::forget(loans);
        }
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.end();
    }
}

impl Carrier for Lending {
    fn room(&self) -> usize {
        self.ring.room()
    }

    fn frame_octets_max(&self) -> usize {
        self.ring.frame_octets_max()
    }

    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        self.give_back(1);
        let lent = if body.len() < LENT_MIN { None } else { self.lend(head, body) };
        lent.unwrap_or_else(|| self.ring.send(cx, head, body))
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        if self.is_broken.get() {
            return Arrival::Lost;
        }
        let held = self.held.take().zip(self.foreign.as_ref());
        let mut arrival = held.map(|(loan, foreign)| self.take(foreign, loan));
        loop {
            if let Some(arrival) = arrival {
                return arrival;
            }
            match self.ring.receive(cx) {
                Arrival::Frame(frame) => arrival = self.read(frame),
                other => return other,
            }
        }
    }

    fn is_lost(&self, cx: &Kernel) -> bool {
        self.is_broken.get() || self.ring.is_lost(cx)
    }

    fn close(&self) {
        self.ring.close();
        self.end();
    }

    fn flush(&self) {
        self.give_back(RETURNS);
        self.ring.flush();
    }

    fn turn(&self, cx: &Kernel) {
        self.ring.turn(cx);
    }

    fn next_poll(&self) -> Option<Time> {
        self.ring.next_poll()
    }

    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        // What waits for a buffer is tried again.
        let held = self.held.take();
        let waits = held.is_some();
        self.held.set(held);
        self.ring.rest(cx, sleeper) && !waits
    }

    fn woken(&self) {
        self.ring.woken();
    }

    fn may_spin(&self) -> bool {
        self.ring.may_spin()
    }
}
