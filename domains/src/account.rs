//! Requests that a side has under way for the other one, and the share of one user's programs.

use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{Payer, USER_SHARE};
use xk_core::{Kernel, Message};

use crate::frame::Header;
use crate::port::{Port, RESERVE};
use crate::waits::WAITS_MAX;

/// Requests that go up to another side at one time, unless a graph says otherwise.
pub(crate) const UPCALLS_MAX: usize = 64;
/// Requests that go up to all programs of one user: an eighth of those for which layers below wait.
const UPCALLS_OF_A_USER_MAX: usize = 32;
/// Requests of all programs of one user that are served at one time: with those that go up they
/// suspend an eighth of a kernel's shepherds.
const SERVED_OF_A_USER_MAX: usize = 96;

/// Counts the requests of one user's programs under way in a kernel that is not theirs, all
/// together. Each of their ports has a handle of it.
pub struct Account {
    payer: Payer,
    upcalls: Cell<usize>,
    serving: Cell<usize>,
}

/// Accounts of one kernel.
#[derive(Default)]
struct Accounts(RefCell<Vec<Weak<Account>>>);

impl Account {
    /// Returns a user's account in a kernel, at whichever place its programs came. The account
    /// lasts as long as anything of them is under way.
    pub fn of(cx: &Kernel, payer: Payer) -> Rc<Self> {
        let accounts = cx.surroundings::<Accounts>().unwrap_or_else(|| {
            let accounts = Rc::<Accounts>::default();
            cx.surround(Rc::clone(&accounts));
            accounts
        });
        let mut all = accounts.0.borrow_mut();
        all.retain(|account| account.strong_count() > 0);
        let known = all.iter().filter_map(Weak::upgrade).find(|known| known.payer == payer);
        known.unwrap_or_else(|| {
            let account = Self { payer, upcalls: Cell::new(0), serving: Cell::new(0) };
            let account = Rc::new(account);
            all.push(Rc::downgrade(&account));
            account
        })
    }
}

/// One more is under way until this is dropped.
struct Under<'a>(&'a Cell<usize>);

impl<'a> Under<'a> {
    fn way(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Counts what each user has sent by a carrier since that was more than half full.
#[derive(Default)]
pub(crate) struct Crowding {
    /// The last look found no room for answers.
    is_full: Cell<bool>,
    room_max: Cell<usize>,
    sent: RefCell<Vec<(Payer, usize)>>,
}

impl Crowding {
    /// Counts a frame that a user is charged for, with so much room left: false if its frames have
    /// their share, an eighth of what the carrier takes, of the half that is filled last.
    fn admits(&self, payer: Payer, room: usize) -> bool {
        let most = self.room_max.get().max(room);
        self.room_max.set(most);
        let mut sent = self.sent.borrow_mut();
        if room > most / 2 {
            sent.clear();
            return true;
        }
        let known = sent.iter().position(|(of, _)| *of == payer);
        let at = known.unwrap_or_else(|| {
            sent.push((payer, 0));
            sent.len() - 1
        });
        let is_within = sent[at].1 < (most / USER_SHARE).max(1);
        sent[at].1 += usize::from(is_within);
        is_within
    }
}

impl Port {
    /// Returns for how many frames there is room behind those that wait.
    #[inline]
    fn room(&self) -> usize {
        self.carrier().room().saturating_sub(self.outbox.borrow().len())
    }

    /// True if a message finds room and leaves `reserve` places to the rest. A message that a user
    /// is charged for leaves more to others.
    #[inline]
    pub(crate) fn has_room(&self, cx: &Kernel, reserve: usize) -> bool {
        let room = self.room();
        room > reserve && cx.payer().is_none_or(|payer| self.crowding.admits(payer, room))
    }

    /// Returns for how many frames there is room on the way down. Without room what would be
    /// answered waits, and is not lost: octets of a stream are acknowledged already. The side below
    /// takes whatever comes down, so that this ends.
    pub(crate) fn answers_max(&self, cx: &Kernel) -> usize {
        if self.lowers.borrow().is_empty() {
            return usize::MAX;
        }
        self.carrier().look_for_room();
        let room = self.room().saturating_sub(RESERVE);
        let is_full = room == 0 && !self.carrier().is_lost(cx);
        self.crowding.is_full.set(is_full);
        if room == 0 && !is_full { usize::MAX } else { room }
    }

    /// True if what comes is not taken before there is room for answers, as of the last look.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.crowding.is_full.get()
    }

    /// Has what the other side brings about charged to the account of a user: it is not trusted.
    pub fn charge(&self, account: &Rc<Account>) {
        let _ = self.account.set(Rc::clone(account));
    }

    /// Tells a side that is trusted which user is charged for this.
    pub(crate) fn charged(&self, cx: &Kernel, header: Header) -> Header {
        let payer = if self.account.get().is_none() { cx.payer() } else { None };
        Header { payer, ..header }
    }

    /// Does what a frame of the other side asks for, charged to the user of that side, or to the
    /// one that a side that is trusted names. `None` if it is none that a sound side sends.
    pub(crate) fn take(&self, cx: &Kernel, mut frame: Message) -> Option<()> {
        let header = Header::take(&mut frame)?;
        let payer = self.account.get().map_or(header.payer, |account| Some(account.payer));
        match payer {
            Some(payer) => cx.charging(payer, || self.take_frame(cx, header, frame)),
            None => self.take_frame(cx, header, frame),
        }
    }

    /// Lets at most so many calls and questions be on their way up at one time, in place of 64.
    pub fn bound_upcalls(&self, upcalls_max: usize) {
        self.upcalls_max.set(upcalls_max);
    }

    /// Has a request go up; `None` if as many are under way as may be. One at a time goes to a
    /// program that has not answered the last.
    pub(crate) fn upcall<T>(&self, ask: impl FnOnce() -> T) -> Option<T> {
        let account = self.account.get();
        let most = match account {
            Some(account) if account.upcalls.get() >= UPCALLS_OF_A_USER_MAX => 0,
            Some(_) if self.is_silent.get() => 1,
            _ => self.upcalls_max.get(),
        };
        if self.upcalls.get() >= most {
            return None;
        }
        let _here = Under::way(&self.upcalls);
        let _of_user = account.map(|account| Under::way(&account.upcalls));
        Some(ask())
    }

    /// Serves a request: `act` may block, and `answer` tells of what came of it, unless the side
    /// that asked is gone meanwhile; `refused` is the answer if its user's other requests are as
    /// many as may be. `None` if as many are under way here as a side may have.
    pub(crate) fn serve<T>(
        &self,
        act: impl FnOnce() -> T,
        refused: impl FnOnce() -> T,
        answer: impl FnOnce(T),
    ) -> Option<()> {
        if self.serving.get() >= WAITS_MAX {
            return None;
        }
        let losses = self.losses.get();
        let done = match self.under_way() {
            Some(_way) => {
                let _here = Under::way(&self.serving);
                act()
            }
            None => refused(),
        };
        if losses == self.losses.get() {
            answer(done);
        }
        Some(())
    }

    /// One more request or message of the other side's user is under way here until the answer is
    /// dropped; `None` if they are as many as may be.
    pub(crate) fn under_way(&self) -> Option<impl Sized> {
        let account = self.account.get();
        if account.is_some_and(|account| account.serving.get() >= SERVED_OF_A_USER_MAX) {
            return None;
        }
        Some(account.map(|account| Under::way(&account.serving)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Queue};

    #[test]
    fn a_user_has_a_share_of_a_carrier_once_that_is_half_full() {
        const SLOTS: usize = 512;
        let crowding = Crowding::default();
        let (hostile, honest) = (Payer::user(7), Payer::user(8));
        let mut room = SLOTS;
        let fill = |of, room: &mut usize| {
            let before = *room;
            while *room > 0 && crowding.admits(of, *room) {
                *room -= 1;
            }
            before - *room
        };
        assert_eq!(fill(hostile, &mut room), SLOTS / 2 + SLOTS / USER_SHARE);
        assert_eq!(fill(honest, &mut room), SLOTS / USER_SHARE);
        assert_eq!(fill(hostile, &mut room), 0, "it has its share");
        // A frame is taken on the other side.
        room += 1;
        assert_eq!(fill(hostile, &mut room), 0);
        room = SLOTS / 2 + 1;
        assert_eq!(fill(hostile, &mut room), 1 + SLOTS / USER_SHARE, "it is half empty again");
    }

    /// Number of requests that are on their way up together, of ports in turn.
    fn nested(ports: &[Rc<Port>], depth: usize) -> usize {
        let deeper = ports[depth % ports.len()].upcall(|| nested(ports, depth + 1));
        deeper.unwrap_or(depth)
    }

    #[test]
    fn a_user_has_a_share_of_what_goes_up_and_the_silent_less() {
        let account = |uid| {
            let payer = Payer::user(uid);
            Rc::new(Account { payer, upcalls: Cell::new(0), serving: Cell::new(0) })
        };
        let port = || Port::new(alloc::boxed::Box::new(Queue::pair(1).0), Known::of(&[]));
        let ports = [port(), port(), port()];
        assert_eq!(nested(&ports, 0), 3 * UPCALLS_MAX, "of those that are trusted");
        let account = account(7);
        ports.iter().for_each(|port| port.charge(&account));
        assert_eq!(nested(&ports, 0), UPCALLS_OF_A_USER_MAX, "of all its programs");
        ports.iter().for_each(|port| port.is_silent.set(true));
        assert_eq!(nested(&ports, 0), ports.len(), "one of each that has not answered");
        assert_eq!((account.upcalls.get(), ports[0].upcalls.get()), (0, 0));
        let served: Vec<_> = (0..2 * SERVED_OF_A_USER_MAX).map(|_| ports[0].under_way()).collect();
        assert_eq!(served.iter().flatten().count(), SERVED_OF_A_USER_MAX);
        assert!(ports[1].under_way().is_none());
        drop(served);
        assert!(ports[1].under_way().is_some());
    }
}
