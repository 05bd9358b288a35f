//! Time limits of shepherds' waits: one alarm for each shepherd, which stays from one wait to the
//! next.
//!
//! Almost every wait ends before its time, and the same shepherd begins another soon after. So the
//! alarm of a wait that has ended stays set. If it goes off in a later wait, it is set again for
//! the end of that one. Alarms of shepherds that do not wait are cancelled when the kernel is asked
//! which timers are pending.

use crate::event::Handle;
use crate::shepherd::Ticket;
use crate::time::Time;
use alloc::vec::Vec;
use core::cell::RefCell;

/// The last wait of one shepherd, and its alarm.
#[derive(Clone, Copy)]
struct Wait {
    /// The wait, or the last one.
    ticket: Option<Ticket>,
    /// End of the wait's time; [`Time::MAX`] once the wait has ended.
    until: Time,
    /// The alarm and the time at which it goes off, which is not after `until`.
    alarm: Option<(Time, Handle)>,
    /// True if its slot is listed in [`Waits::left`].
    listed: bool,
}

const NONE: Wait = Wait { ticket: None, until: Time::MAX, alarm: None, listed: false };

/// Verdict on an alarm that has gone off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rang {
    /// The wait's time is over.
    Over(Ticket),
    /// The wait's time ends only at this time: the alarm is to be set again.
    Early(Time),
    /// No shepherd waits.
    Idle,
}

/// Waits of all shepherds, by slot.
#[derive(Default)]
pub(crate) struct Waits {
    of: RefCell<Vec<Wait>>,
    /// Slots of waits that have ended and left their alarm set.
    left: RefCell<Vec<u32>>,
}

impl Waits {
    /// Begins a wait. Returns true if the shepherd's alarm goes off early enough; otherwise the
    /// caller sets one by [`set`](Self::set).
    #[inline]
    pub(crate) fn begin(&self, ticket: Ticket, until: Time) -> bool {
        let mut of = self.of.borrow_mut();
        let Some(wait) = of.get_mut(ticket.slot() as usize) else {
            return false;
        };
        (wait.ticket, wait.until) = (Some(ticket), until);
        wait.alarm.is_some_and(|(at, _)| at <= until)
    }

    /// Notes the alarm that was set for a wait; answers the one that it replaces, which is to be
    /// cancelled.
    #[cold]
    pub(crate) fn set(&self, ticket: Ticket, until: Time, alarm: Handle) -> Option<Handle> {
        let mut of = self.of.borrow_mut();
        let slot = ticket.slot() as usize;
        if of.len() <= slot {
            of.resize(slot + 1, NONE);
        }
        let wait = of.get_mut(slot)?;
        (wait.ticket, wait.until) = (Some(ticket), until);
        let before = wait.alarm.replace((until, alarm));
        before.map(|(_, handle)| handle)
    }

    /// Ends the wait; its alarm stays set.
    #[inline]
    pub(crate) fn end(&self, slot: u32) {
        let mut of = self.of.borrow_mut();
        if let Some(wait) = of.get_mut(slot as usize) {
            wait.until = Time::MAX;
            if wait.alarm.is_some() && !wait.listed {
                wait.listed = true;
                self.left.borrow_mut().push(slot);
            }
        }
    }

    /// Says what an alarm of a shepherd that has gone off means.
    pub(crate) fn rang(&self, slot: u32, now: Time) -> Rang {
        let mut of = self.of.borrow_mut();
        let Some(wait) = of.get_mut(slot as usize) else {
            return Rang::Idle;
        };
        wait.alarm = None;
        match wait.ticket {
            Some(ticket) if wait.until <= now => Rang::Over(ticket),
            Some(_) if wait.until != Time::MAX => Rang::Early(wait.until),
            _ => Rang::Idle,
        }
    }

    /// Notes an alarm that was set again for a wait under way.
    pub(crate) fn set_again(&self, slot: u32, at: Time, alarm: Handle) {
        if let Some(wait) = self.of.borrow_mut().get_mut(slot as usize) {
            wait.alarm = Some((at, alarm));
        }
    }

    /// The ticket of the wait under way.
    pub(crate) fn ticket(&self, slot: u32) -> Option<Ticket> {
        self.of.borrow().get(slot as usize)?.ticket
    }

    /// Whether an alarm may be left over.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        !self.left.borrow().is_empty()
    }

    /// Next alarm of a shepherd that does not wait, which is to be cancelled; `None` when there is
    /// no more.
    #[cold]
    pub(crate) fn take_left(&self) -> Option<Handle> {
        let mut of = self.of.borrow_mut();
        loop {
            let slot = self.left.borrow_mut().pop()?;
            if let Some(wait) = of.get_mut(slot as usize) {
                wait.listed = false;
                if wait.until == Time::MAX
                    && let Some((_, alarm)) = wait.alarm.take()
                {
                    return Some(alarm);
                }
            }
        }
    }

    /// Forgets all alarms: there is no timer any more.
    pub(crate) fn clear(&self) {
        drop((self.of.take(), self.left.take()));
    }
}
