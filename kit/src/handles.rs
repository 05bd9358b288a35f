//! Numbers by which another object, or the other side of a cut, knows something of this one.

use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::SessionRef;
use xk_core::control::ListSessions;

/// Things under handles. A handle is never 0: its low `PLACE_BITS` bits say the place of the thing,
/// plus 1, and those above it how often the place was used, so that a handle whose thing has left
/// does not lead to the next one there.
pub struct Handles<T, const PLACE_BITS: u32 = 20> {
    /// The last handle of each place, and the thing that has it.
    places: RefCell<Vec<(u32, Option<T>)>>,
    free: RefCell<Vec<u32>>,
}

/// Sessions by the mark that their lower ones bear
/// ([`SessionHead::set_tag`](xk_core::object::SessionHead::set_tag)).
pub type Marks = Handles<SessionRef>;

impl<T, const PLACE_BITS: u32> Default for Handles<T, PLACE_BITS> {
    fn default() -> Self {
        Self { places: RefCell::default(), free: RefCell::default() }
    }
}

impl<T: Clone, const PLACE_BITS: u32> Handles<T, PLACE_BITS> {
    /// Largest number of things.
    pub const MAX: usize = (1 << PLACE_BITS) - 1;

    /// Returns the place that a handle says, from 0 on; `None` if it says none.
    #[inline]
    fn place(handle: u32) -> Option<usize> {
        (handle as usize & Self::MAX).checked_sub(1)
    }

    /// Enters what `make` makes for its handle; `None` if there are `max` things. `make` must not
    /// use the table.
    pub fn enter(&self, max: usize, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let mut places = self.places.borrow_mut();
        let at = match self.free.borrow_mut().pop() {
            Some(at) => at as usize,
            None if places.len() >= max.min(Self::MAX) => return None,
            None => {
                places.push((0, None));
                places.len() - 1
            }
        };
        let (last, thing) = places.get_mut(at)?;
        *last = (*last >> PLACE_BITS).wrapping_add(1) << PLACE_BITS | (at as u32 + 1);
        *thing = Some(make(*last));
        Some(*last)
    }

    /// Returns the thing with this handle.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<T> {
        let places = self.places.borrow();
        let (last, thing) = places.get(Self::place(handle)?)?;
        if *last == handle { thing.clone() } else { None }
    }

    /// Takes the thing with this handle out, which is of no use any more.
    pub fn leave(&self, handle: u32) -> Option<T> {
        let at = Self::place(handle)?;
        let mut places = self.places.borrow_mut();
        let (_, thing) = places.get_mut(at).filter(|(last, _)| *last == handle)?;
        let left = thing.take()?;
        self.free.borrow_mut().push(at as u32);
        Some(left)
    }

    /// Puts a thing under a handle that another table has made, or takes it from there. Returns the
    /// handle and the thing that had the place; `None` if that is none of `max` places.
    pub fn put(&self, max: usize, handle: u32, thing: Option<T>) -> Option<(u32, Option<T>)> {
        let at = Self::place(handle).filter(|at| *at < max)?;
        let mut places = self.places.borrow_mut();
        if places.len() <= at {
            places.resize(at + 1, (0, None));
        }
        Some(core::mem::replace(places.get_mut(at)?, (handle, thing)))
    }

    /// Returns all things, by place.
    pub fn all(&self) -> Vec<T> {
        self.places.borrow().iter().filter_map(|(_, thing)| thing.clone()).collect()
    }

    /// Takes all things out. No handle of before is one of what is entered from now on.
    pub fn take_all(&self) -> Vec<T> {
        let mut places = self.places.borrow_mut();
        *self.free.borrow_mut() = (0..places.len() as u32).collect();
        places.iter_mut().filter_map(|(_, thing)| thing.take()).collect()
    }
}

impl Marks {
    /// Enters a session; the mark, or `None` if there is no room.
    pub fn mark(&self, session: &SessionRef) -> Option<u32> {
        self.enter(Self::MAX, |_| session.clone())
    }

    /// Adds the sessions to a list.
    pub fn list(&self, list: &mut ListSessions) {
        self.all().iter().for_each(|session| list.push(session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_to_one_thing() {
        let all = Handles::<&str>::default();
        let first = all.enter(2, |_| "first").unwrap();
        assert_eq!(
            (all.get(first), all.get(0), all.leave(first)),
            (Some("first"), None, Some("first"))
        );
        let second = all.enter(2, |_| "second").unwrap();
        assert!(second != first && all.get(first).is_none() && all.leave(first).is_none());
        assert!(all.enter(2, |_| "third").is_some() && all.enter(2, |_| "fourth").is_none());
        assert_eq!((all.take_all().len(), all.all().len(), all.get(second)), (2, 0, None));
        assert!(all.enter(2, |handle| if handle == second { "again" } else { "new" }).is_some());
        assert_eq!(all.all(), ["new"]);
        let others = Handles::<&str>::default();
        assert_eq!(others.put(1, second + 1, Some("beyond")), None);
        assert!(others.put(1, first, Some("one")).is_some() && others.get(second).is_none());
        assert_eq!(others.put(1, second, Some("other")), Some((first, Some("one"))));
    }
}
