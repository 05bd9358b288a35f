//! Finds the right that a frame fits, by its octets under the masks of the rights' templates.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::hash::Hasher;
use xk_core::map::{Key, Map};
use xk_core::{Message, Secret};
use xk_kit::net::template::{Check, OCTETS_MAX, Template};
use xk_kit::wire::segments;

use crate::module::RIGHTS_MAX;

/// Largest number of different masks: as many as there are shapes of headers.
const CLASSES_MAX: usize = 16;
const WORDS: usize = OCTETS_MAX / 8;

/// The first octets of a frame, those that it has not zero.
pub(crate) type Front = [u8; OCTETS_MAX];

/// Part of a frame that is compared.
pub(crate) struct Face {
    pub(crate) front: Front,
    pub(crate) octets: usize,
    /// Octets of the longest packet, if it stands for several.
    pub(crate) longest: usize,
}

impl Face {
    /// Takes the front and lengths of a frame.
    #[inline]
    pub(crate) fn of(frame: &Message) -> Self {
        let mut front = [0; OCTETS_MAX];
        frame.copy_to(0, &mut front);
        Self { front, octets: frame.len(), longest: segments::longest(frame) }
    }

    /// True if the frame satisfies `check`.
    #[inline]
    pub(crate) fn fits(&self, check: &Check) -> bool {
        let Self { front, octets, longest } = self;
        check.admits_run(front.get(..*octets).unwrap_or(front), *octets, *longest)
    }
}

/// Octets as words, of which those behind the first `count` are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    words: [u64; WORDS],
    count: usize,
}

impl Key for Words {
    #[inline]
    fn put(&self, octets: &mut impl Hasher) {
        for word in self.words.iter().take(self.count) {
            word.put(octets);
        }
    }
}

impl Words {
    fn of(octets: &[u8]) -> Self {
        let mut front = [0; OCTETS_MAX];
        front.iter_mut().zip(octets).for_each(|(to, octet)| *to = *octet);
        let mut words = [0; WORDS];
        let all = words.iter_mut().zip(front.as_chunks().0);
        all.for_each(|(word, octets)| *word = u64::from_ne_bytes(*octets));
        let count = WORDS - words.iter().rev().take_while(|word| **word == 0).count();
        Self { words, count }
    }

    /// Returns the front of a frame under this mask.
    #[inline]
    fn under(&self, front: &Front) -> Self {
        let mut words = [0; WORDS];
        let all = self.words.iter().take(self.count).zip(front.as_chunks().0);
        words.iter_mut().zip(all).for_each(|(word, (mask, octets))| {
            *word = u64::from_ne_bytes(*octets) & mask;
        });
        Self { words, count: self.count }
    }
}

/// The first octets of a template, as a frame has them.
fn front(template: &Template) -> Front {
    let mut front = [0; OCTETS_MAX];
    front.iter_mut().zip(template.octets()).for_each(|(to, octet)| *to = *octet);
    front
}

/// The templates with one mask.
struct Class<T> {
    mask: Words,
    rights: Map<Words, Rc<T>>,
}

impl<T> Class<T> {
    fn bits(&self) -> u32 {
        self.mask.words.iter().map(|word| word.count_ones()).sum()
    }
}

/// Templates with what each is for, those that say most first.
pub(crate) struct Rules<T>(Vec<Class<T>>);

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: AsRef<Check>> Rules<T> {
    /// Gives what fits a template to `right`; false if another one has that, or there are too many
    /// shapes of headers. A template of empty messages gives nothing.
    pub(crate) fn add(
        &mut self,
        secret: impl FnOnce() -> Secret,
        template: &Template,
        right: &Rc<T>,
    ) -> bool {
        if template.octets_max() == 0 {
            return true;
        }
        let mask = Words::of(&template.mask());
        let known = self.0.iter().position(|class| class.mask == mask);
        let at = match known {
            Some(at) => at,
            None if self.0.len() >= CLASSES_MAX => return false,
            None => {
                let class = Class { mask, rights: Map::new(secret(), RIGHTS_MAX) };
                let at = self.0.partition_point(|other| other.bits() >= class.bits());
                self.0.insert(at, class);
                at
            }
        };
        let value = mask.under(&front(template));
        self.0.get(at).is_some_and(|class| class.rights.bind(value, Rc::clone(right)).is_ok())
    }

    /// Takes out what [`add`](Self::add) has put in for this template.
    pub(crate) fn remove(&mut self, template: &Template) -> Option<Rc<T>> {
        if template.octets_max() == 0 {
            return None;
        }
        let mask = Words::of(&template.mask());
        let at = self.0.iter().position(|class| class.mask == mask)?;
        let class = &self.0[at];
        let gone = class.rights.unbind(&mask.under(&front(template)));
        if class.rights.is_empty() {
            self.0.remove(at);
        }
        gone
    }

    /// The right whose frames begin so, whatever their lengths.
    pub(crate) fn find_alike(&self, front: &Front) -> Option<Rc<T>> {
        self.0.iter().find_map(|class| class.rights.get(&class.mask.under(front)))
    }

    /// The right that a frame fits.
    #[inline]
    pub(crate) fn find(&self, face: &Face) -> Option<Rc<T>> {
        self.0.iter().find_map(|class| {
            let found = class.rights.get(&class.mask.under(&face.front))?;
            face.fits((*found).as_ref()).then_some(found)
        })
    }
}
