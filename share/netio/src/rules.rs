//! Which channel an arrival is for: by its octets under the masks of the channels' templates.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use xk_kit::net::template::{OCTETS_MAX, Template};

/// How many different masks there may be: as many as there are shapes of headers.
const CLASSES_MAX: usize = 16;
const WORDS: usize = OCTETS_MAX / 8;

/// The first octets of a frame, those that it has not zero.
pub(crate) type Front = [u8; OCTETS_MAX];
type Words = [u64; WORDS];

fn words(front: &Front) -> Words {
    let mut words = [0; WORDS];
    let all = words.iter_mut().zip(front.as_chunks().0);
    all.for_each(|(word, octets)| *word = u64::from_ne_bytes(*octets));
    words
}

fn front(octets: &[u8]) -> Front {
    let mut front = [0; OCTETS_MAX];
    front.iter_mut().zip(octets).for_each(|(to, octet)| *to = *octet);
    front
}

fn masked(mut words: Words, mask: &Words) -> Words {
    words.iter_mut().zip(mask).for_each(|(word, mask)| *word &= mask);
    words
}

/// The templates with one mask.
struct Class {
    mask: Words,
    channels: BTreeMap<Words, u32>,
}

impl Class {
    fn bits(&self) -> u32 {
        self.mask.iter().map(|word| word.count_ones()).sum()
    }
}

/// All templates of arrivals, those that say most first.
#[derive(Default)]
pub(crate) struct Rules(Vec<Class>);

impl Rules {
    /// Gives what fits a template to a channel; false if another one has that, or there are too
    /// many shapes of headers.
    pub(crate) fn add(&mut self, template: &Template, channel: u32) -> bool {
        let mask = words(&front(&template.mask()));
        let value = masked(words(&front(template.octets())), &mask);
        let known = self.0.iter().position(|class| class.mask == mask);
        let at = match known {
            Some(at) => at,
            None if self.0.len() >= CLASSES_MAX => return false,
            None => {
                let class = Class { mask, channels: BTreeMap::new() };
                let at = self.0.partition_point(|other| other.bits() >= class.bits());
                self.0.insert(at, class);
                at
            }
        };
        self.0.get_mut(at).is_some_and(|class| match class.channels.contains_key(&value) {
            true => false,
            false => class.channels.insert(value, channel).is_none(),
        })
    }

    /// Takes out what a channel has.
    pub(crate) fn remove(&mut self, channel: u32) {
        for class in &mut self.0 {
            class.channels.retain(|_, other| *other != channel);
        }
        self.0.retain(|class| !class.channels.is_empty());
    }

    /// The channel that a frame with these first octets is for, but for its lengths.
    pub(crate) fn find(&self, front: &Front) -> Option<u32> {
        let words = words(front);
        self.0.iter().find_map(|class| class.channels.get(&masked(words, &class.mask)).copied())
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
