//! Tables of kept messages and of those being collected, with the outcome of each.

use crate::protocol::Fragment;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::question;

/// Things in numbered places, which are used again; takes memory only when there are more than ever
/// before.
pub(crate) struct Places<T> {
    list: RefCell<Vec<Option<T>>>,
    free: RefCell<Vec<u32>>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { list: RefCell::default(), free: RefCell::default() }
    }
}

impl<T> Places<T> {
    /// Puts a thing into a free place.
    pub(crate) fn put(&self, thing: T) -> u32 {
        let mut list = self.list.borrow_mut();
        if let Some(place) = self.free.borrow_mut().pop() {
            if let Some(slot) = list.get_mut(place as usize) {
                *slot = Some(thing);
            }
            return place;
        }
        list.push(Some(thing));
        list.len() as u32 - 1
    }

    /// Takes it out again.
    pub(crate) fn take(&self, place: u32) -> Option<T> {
        let thing = self.list.borrow_mut().get_mut(place as usize)?.take()?;
        self.free.borrow_mut().push(place);
        Some(thing)
    }

    /// Returns the result of `see` on the thing in a place. `see` must not use the table.
    pub(crate) fn with<R>(&self, place: u32, see: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut list = self.list.borrow_mut();
        list.get_mut(place as usize)?.as_mut().map(see)
    }

    /// The first place whose thing is the one.
    pub(crate) fn find(&self, mut is: impl FnMut(&T) -> bool) -> Option<u32> {
        let list = self.list.borrow();
        let found = list.iter().position(|slot| slot.as_ref().is_some_and(&mut is));
        found.map(|place| place as u32)
    }

    /// The place whose thing has the smallest `rank`.
    pub(crate) fn least<R: Ord>(&self, mut rank: impl FnMut(&T) -> Option<R>) -> Option<u32> {
        let list = self.list.borrow();
        let all = list.iter().enumerate().filter_map(|(place, slot)| {
            let rank = rank(slot.as_ref()?)?;
            Some((rank, place))
        });
        all.min().map(|(_, place)| place as u32)
    }

    /// Number of things.
    pub(crate) fn len(&self) -> usize {
        self.list.borrow().len() - self.free.borrow().len()
    }

    /// Empties it.
    pub(crate) fn clear(&self) {
        let (list, free) = (self.list.take(), self.free.take());
        drop((list, free));
    }
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentFigures {
    /// Messages of several fragments sent.
    pub messages_sent: u64,
    /// Messages of several fragments delivered.
    pub messages_delivered: u64,
    /// Fragments taken for a message being collected.
    pub fragments_held: u64,
    /// Messages given up for want of fragments, or to make room: each is counted as dropped once.
    pub messages_given_up: u64,
    /// Questions for missing fragments that were sent.
    pub nacks_sent: u64,
    /// Negative acknowledgements that were answered.
    pub nacks_answered: u64,
    /// Fragments sent again.
    pub retransmits: u64,
    /// Messages kept at present.
    pub outstanding: u64,
    /// Messages being collected at present.
    pub partial: u64,
}

question!(
    FragmentFigures {
        messages_sent,
        messages_delivered,
        fragments_held,
        messages_given_up,
        nacks_sent,
        nacks_answered,
        retransmits,
        outstanding,
        partial
    },
    "fragment-figures",
    Ask
);

/// One of the figures.
pub(crate) type Figure = fn(&mut FragmentFigures) -> &mut u64;

impl Fragment {
    pub(crate) fn count(&self, figure: Figure, by: u64) {
        let mut figures = self.figures.get();
        *figure(&mut figures) += by;
        self.figures.set(figures);
    }

    pub(crate) fn figures(&self) -> FragmentFigures {
        FragmentFigures {
            outstanding: self.outstanding.len() as u64,
            partial: self.partial.len() as u64,
            ..self.figures.get()
        }
    }
}
