//! A table of transactions by number, in which a number is its own place.

use alloc::vec::Vec;

/// The smallest number of places.
const PLACES_MIN: usize = 16;

/// Up to a bound of entries, each found by the low bits of its number alone: a new entry takes the
/// next number whose place is free.
pub(super) struct Slots<E> {
    places: Vec<Option<(u16, E)>>,
    len: usize,
    max: usize,
    last: u16,
}

impl<E> Slots<E> {
    /// A table of at most `max` entries, 16384 beyond that; the first takes the number after
    /// `last`.
    pub(super) fn new(max: usize, last: u16) -> Self {
        Self { places: Vec::new(), len: 0, max: max.min(1 << 14), last }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn place(&self, number: u16) -> usize {
        usize::from(number) & self.places.len().wrapping_sub(1)
    }

    /// The number that the next entry takes; `None` if the table is full.
    pub(super) fn next_number(&mut self) -> Option<u16> {
        if self.len >= self.max {
            return None;
        }
        if 2 * self.len >= self.places.len() {
            self.grow();
        }
        let mut number = self.last;
        loop {
            // Half of the places are free, so one is soon found.
            number = number.wrapping_add(1);
            if self.places.get(self.place(number))?.is_none() {
                return Some(number);
            }
        }
    }

    /// Twice as many places. What differed in its low bits differs in one bit more.
    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(PLACES_MIN);
        let before = core::mem::take(&mut self.places);
        self.places.resize_with(places, || None);
        for entry in before.into_iter().flatten() {
            let at = self.place(entry.0);
            if let Some(place) = self.places.get_mut(at) {
                *place = Some(entry);
            }
        }
    }

    /// Enters this under the number that [`next_number`](Self::next_number) has just given.
    pub(super) fn enter(&mut self, number: u16, entry: E) {
        let at = self.place(number);
        if let Some(place) = self.places.get_mut(at) {
            debug_assert!(place.is_none(), "the place was free");
            *place = Some((number, entry));
            self.len += 1;
            self.last = number;
        }
    }

    pub(super) fn get(&self, number: u16) -> Option<&E> {
        let entry = self.places.get(self.place(number))?.as_ref()?;
        (entry.0 == number).then_some(&entry.1)
    }

    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut E> {
        let at = self.place(number);
        let entry = self.places.get_mut(at)?.as_mut()?;
        (entry.0 == number).then_some(&mut entry.1)
    }

    pub(super) fn remove(&mut self, number: u16) -> Option<E> {
        let at = self.place(number);
        let place = self.places.get_mut(at)?;
        let entry = place.take_if(|entry| entry.0 == number)?;
        self.len -= 1;
        Some(entry.1)
    }

    /// Entry at a place; `None` behind the last place.
    pub(super) fn at(&self, place: usize) -> Option<Option<(u16, &E)>> {
        let place = self.places.get(place)?;
        Some(place.as_ref().map(|entry| (entry.0, &entry.1)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &E)> {
        self.places.iter().flatten().map(|entry| (entry.0, &entry.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_use_are_skipped_and_the_bound_holds() {
        let mut slots = Slots::new(40, u16::MAX - 3);
        let mut numbers = Vec::new();
        for entry in 0..40 {
            let number = slots.next_number().unwrap();
            slots.enter(number, entry);
            numbers.push(number);
        }
        assert_eq!(slots.next_number(), None);
        assert!(numbers.contains(&0) && numbers.contains(&u16::MAX));
        for (entry, number) in numbers.iter().enumerate() {
            assert_eq!(slots.get(*number), Some(&entry));
            assert_eq!(slots.get(number.wrapping_add(1 << 10)), None);
        }
        // One that stays is never given a second time, however often all numbers come round.
        for number in &numbers[1..] {
            assert!(slots.remove(*number).is_some() && slots.remove(*number).is_none());
        }
        for _ in 0..200_000 {
            let number = slots.next_number().unwrap();
            assert_ne!(number, numbers[0]);
            slots.enter(number, 7);
            slots.remove(number);
        }
        assert_eq!((slots.len(), slots.get(numbers[0])), (1, Some(&0)));
    }
}
