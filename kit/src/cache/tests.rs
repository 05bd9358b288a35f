use super::Cache;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;
use xk_core::Secret;

const SECRET: Secret = Secret::known([1, 2]);

#[derive(Clone, Copy, Debug)]
enum Act {
    Put(u8, u16),
    Get(u8),
    Touch(u8),
    TouchIfEven(u8),
    Remove(u8),
    /// Values that are even are idle.
    Evict(usize),
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0..12u8;
    prop_oneof![
        4 => (key.clone(), any::<u16>()).prop_map(|(key, value)| Act::Put(key, value)),
        2 => key.clone().prop_map(Act::Get),
        2 => key.clone().prop_map(Act::Touch),
        2 => key.clone().prop_map(Act::TouchIfEven),
        2 => key.prop_map(Act::Remove),
        2 => (0..5usize).prop_map(Act::Evict),
        1 => Just(Act::Clear),
    ]
}

/// Model of a cache: a queue with the oldest entry in front.
struct Model {
    entries: VecDeque<(u8, u16)>,
    max: usize,
}

impl Model {
    fn take(&mut self, key: u8) -> Option<(u8, u16)> {
        let at = self.entries.iter().position(|(known, _)| *known == key)?;
        self.entries.remove(at)
    }

    fn get(&self, key: u8) -> Option<u16> {
        self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn touch(&mut self, key: u8) -> Option<u16> {
        let entry = self.take(key)?;
        self.entries.push_back(entry);
        Some(entry.1)
    }

    fn put(&mut self, key: u8, value: u16) -> Option<(u8, u16)> {
        let is_full = self.entries.len() == self.max;
        let gone = self.take(key).or_else(|| is_full.then(|| self.entries.pop_front()).flatten());
        self.entries.push_back((key, value));
        gone
    }

    fn evict(&mut self, tries: usize) -> Option<(u8, u16)> {
        for _ in 0..tries.min(self.entries.len()) {
            let oldest = self.entries.pop_front()?;
            if oldest.1.is_multiple_of(2) {
                return Some(oldest);
            }
            self.entries.push_back(oldest);
        }
        None
    }
}

proptest! {
    #[test]
    fn does_what_a_queue_does(acts in proptest::collection::vec(act(), 0..300), max in 0..12usize) {
        let cache = Cache::new(SECRET, max);
        let mut model = Model { entries: VecDeque::new(), max: max.max(1) };
        for act in acts {
            match act {
                Act::Put(key, value) => prop_assert_eq!(cache.put(key, value), model.put(key, value)),
                Act::Get(key) => prop_assert_eq!(cache.get(&key), model.get(key)),
                Act::Touch(key) => prop_assert_eq!(cache.touch(&key), model.touch(key)),
                Act::TouchIfEven(key) => {
                    let value = model.get(key);
                    if value.is_some_and(|value| value.is_multiple_of(2)) {
                        model.touch(key);
                    }
                    let is_even = |value: &u16| value.is_multiple_of(2);
                    prop_assert_eq!(cache.touch_if(&key, is_even), value);
                }
                Act::Remove(key) => {
                    prop_assert_eq!(cache.remove(&key), model.take(key).map(|(_, value)| value));
                }
                Act::Evict(tries) => {
                    let evicted = cache.evict(tries, |_, value| value.is_multiple_of(2));
                    prop_assert_eq!(evicted, model.evict(tries));
                }
                Act::Clear => {
                    cache.clear();
                    model.entries.clear();
                }
            }
            prop_assert_eq!(cache.snapshot(), Vec::from(model.entries.clone()));
            prop_assert_eq!(cache.oldest(), model.entries.front().copied());
            let is_full = model.entries.len() == model.max;
            prop_assert_eq!((cache.len(), cache.is_full()), (model.entries.len(), is_full));
            for key in 0..12 {
                prop_assert_eq!(cache.contains(&key), model.get(key).is_some());
            }
        }
    }
}

#[test]
fn who_asks_may_change_it() {
    let cache = Cache::new(SECRET, 4);
    cache.put(1u8, 'a');
    cache.put(2, 'b');
    // The one asked about is gone meanwhile, and another is in its place.
    let evicted = cache.evict(5, |key, _| {
        cache.remove(key);
        cache.put(3, 'c');
        true
    });
    assert_eq!(evicted, Some((1, 'a')));
    assert_eq!(cache.snapshot(), [(2, 'b'), (3, 'c')]);
    let evicted = cache.evict(5, |_, _| {
        cache.clear();
        false
    });
    assert_eq!((evicted, cache.len()), (None, 0));
}
