//! Typed attributes: small facts that travel with a message beside its octets.

use super::Message;
use core::cell::Cell;

/// Most attributes one message carries.
pub const ATTRIBUTES_MAX: usize = 4;

/// Octets of one encoded attribute: a host of any family and a port fit.
pub const ATTRIBUTE_OCTETS: usize = 24;

/// A fact that travels with a message, keyed by its type.
///
/// The encoded form holds values only, never addresses, so an attribute means the same in another
/// address space.
pub trait Attribute: Copy + 'static {
    /// The key under which the attribute is kept: [`name_key`](crate::name_key) of a name that no
    /// other attribute has.
    const KEY: u32;

    /// Messages that may bring it across a cut between two address spaces. The receiving side
    /// removes it from all others.
    const CROSSES: Crossing;

    /// Whether it can be true of a message that brings it across a cut: places lie within the
    /// message's own octets, for what lies in front of these is another's.
    fn fits(self, _message: &Message, _sender: Sender) -> bool {
        true
    }

    /// The attribute as it is kept and carried across address spaces.
    fn encode(self) -> [u8; ATTRIBUTE_OCTETS];

    /// The attribute again, from what [`encode`](Self::encode) made (or, across domains, from what
    /// a peer wrote).
    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self;
}

/// The side of a cut that a message comes from, by how far it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// A program that is granted what it uses, maybe of another user of the machine.
    Program,
    /// A domain of the same host and graph.
    Domain,
}

/// Messages that may bring an attribute across a cut: those of the least trusted sender named, and
/// of all that are trusted more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Messages that are pushed, and requests of calls; `None` for none.
    pub down: Option<Sender>,
    /// Messages that arrive, and requests to servers; `None` for none.
    pub up: Option<Sender>,
}

impl Crossing {
    /// With what is pushed alone, by whichever sender.
    pub const DOWN: Self = Self { down: Some(Sender::Program), up: None };
    /// With what arrives alone, from another domain.
    pub const UP: Self = Self { down: None, up: Some(Sender::Domain) };
    /// With what is pushed, by whichever sender, and what arrives, from another domain.
    pub const BOTH: Self = Self { down: Some(Sender::Program), up: Some(Sender::Domain) };
}

/// An attribute as a side of a cut knows it.
#[derive(Clone, Copy, Debug)]
pub struct AttributeType {
    /// See [`Attribute::KEY`].
    pub key: u32,
    /// See [`Attribute::CROSSES`].
    pub crosses: Crossing,
    fits: fn(&Message, Sender, [u8; ATTRIBUTE_OCTETS]) -> bool,
}

impl AttributeType {
    /// The type of an attribute.
    pub const fn of<A: Attribute>() -> Self {
        Self {
            key: A::KEY,
            crosses: A::CROSSES,
            fits: |message, sender, octets| A::decode(octets).fits(message, sender),
        }
    }

    /// Whether an encoded value can be true of this message ([`Attribute::fits`]).
    pub fn fits(&self, message: &Message, sender: Sender, octets: [u8; ATTRIBUTE_OCTETS]) -> bool {
        (self.fits)(message, sender, octets)
    }
}

/// The message already carries [`ATTRIBUTES_MAX`] other attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message already carries {ATTRIBUTES_MAX} attributes")]
pub struct AttributesFull;

/// The attributes inside a descriptor. Only `count` is reset when a descriptor is reused.
#[repr(C)]
pub(super) struct Attributes {
    count: Cell<u32>,
    keys: [Cell<u32>; ATTRIBUTES_MAX],
    values: [Cell<[u8; ATTRIBUTE_OCTETS]>; ATTRIBUTES_MAX],
}

impl Attributes {
    pub(super) const fn new() -> Self {
        Self {
            count: Cell::new(0),
            keys: [const { Cell::new(0) }; ATTRIBUTES_MAX],
            values: [const { Cell::new([0; ATTRIBUTE_OCTETS]) }; ATTRIBUTES_MAX],
        }
    }

    #[inline]
    pub(super) fn clear(&self) {
        self.count.set(0);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.count.get() as usize).min(ATTRIBUTES_MAX)
    }

    /// Out of line: most messages bear none, and the callers see that at once.
    #[inline(never)]
    fn position(&self, key: u32) -> Option<usize> {
        self.keys[..self.len()].iter().position(|kept| kept.get() == key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, [u8; ATTRIBUTE_OCTETS])> {
        (0..self.len()).map(|at| (self.keys[at].get(), self.values[at].get()))
    }

    #[inline]
    pub(super) fn get(&self, key: u32) -> Option<[u8; ATTRIBUTE_OCTETS]> {
        if self.count.get() == 0 {
            return None;
        }
        self.position(key).map(|at| self.values[at].get())
    }

    pub(super) fn set(
        &self,
        key: u32,
        value: [u8; ATTRIBUTE_OCTETS],
    ) -> Result<(), AttributesFull> {
        let at = match self.position(key) {
            Some(at) => at,
            None if self.len() == ATTRIBUTES_MAX => return Err(AttributesFull),
            None => {
                let at = self.len();
                self.count.set(at as u32 + 1);
                at
            }
        };
        self.keys[at].set(key);
        self.values[at].set(value);
        Ok(())
    }

    #[inline]
    pub(super) fn remove(&self, key: u32) -> Option<[u8; ATTRIBUTE_OCTETS]> {
        if self.count.get() == 0 {
            return None;
        }
        self.remove_found(key)
    }

    #[inline(never)]
    fn remove_found(&self, key: u32) -> Option<[u8; ATTRIBUTE_OCTETS]> {
        let at = self.position(key)?;
        let value = self.values[at].get();
        let last = self.len() - 1;
        self.keys[at].set(self.keys[last].get());
        self.values[at].set(self.values[last].get());
        self.count.set(last as u32);
        Some(value)
    }

    /// Makes these attributes the same as `from`'s.
    #[inline]
    pub(super) fn copy_from(&self, from: &Self) {
        let count = from.len();
        self.count.set(count as u32);
        for at in 0..count {
            self.keys[at].set(from.keys[at].get());
            self.values[at].set(from.values[at].get());
        }
    }
}
