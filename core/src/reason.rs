//! Why a message was refused or dropped, and how often.
//!
//! The set is open: a protocol defines reasons of its own as `static` items. No message disappears
//! without one (ARCHITECTURE.md, invariant 8).

use crate::name_key;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;

/// Meaning of a refusal to the layer below, which may tell the sender (IP does by ICMP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The message itself is bad; the sender is not told.
    Bad,
    /// No protocol here takes messages for this port (RFC 1122 section 3.2.2.1).
    NoPort,
    /// No protocol here takes messages of this type (RFC 1122 section 3.2.2.1).
    NoProtocol,
    /// The receiver is forbidden to take it.
    Prohibited,
    /// A bound was reached: no memory, a full queue or table.
    Exhausted,
    /// Not meant for this object; the sender is not told.
    NotMine,
}

/// Why a message was refused or dropped. Two of one name are one reason.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// A short name in the field's words, shown by `xk dump`.
    pub name: &'static str,
    /// Meaning to the layer below.
    pub class: Class,
    key: u32,
}

impl Reason {
    /// A reason of its own for a protocol: `static LOOPED: Reason = Reason::new("looped",
    /// Class::Bad);`.
    pub const fn new(name: &'static str, class: Class) -> Self {
        Self { name, class, key: name_key(name) }
    }

    /// The name as a number, which counters compare and by which another address space knows the
    /// reason.
    pub const fn key(&self) -> u32 {
        self.key
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Shorter than its header says or needs.
pub static TRUNCATED: Reason = Reason::new("truncated", Class::Bad);
/// A field holds a value that the standard excludes.
pub static MALFORMED: Reason = Reason::new("malformed", Class::Bad);
/// The checksum does not match.
pub static BAD_CHECKSUM: Reason = Reason::new("bad checksum", Class::Bad);
/// A length field contradicts the message.
pub static BAD_LENGTH: Reason = Reason::new("bad length", Class::Bad);
/// A source address that may not send.
pub static BAD_SOURCE: Reason = Reason::new("bad source", Class::Bad);
/// No session and no enable for this port.
pub static NO_PORT: Reason = Reason::new("no port", Class::NoPort);
/// No session and no enable for this type.
pub static NO_PROTOCOL: Reason = Reason::new("no protocol", Class::NoProtocol);
/// Addressed to another host.
pub static NOT_MINE: Reason = Reason::new("not mine", Class::NotMine);
/// The session or enable is closed.
pub static CLOSED: Reason = Reason::new("closed", Class::NoPort);
/// The pool has no buffer left within its bound.
pub static NO_BUFFERS: Reason = Reason::new("no buffers", Class::Exhausted);
/// A bounded table of sessions is full of busy ones.
pub static TABLE_FULL: Reason = Reason::new("table full", Class::Exhausted);
/// A bounded queue is full.
pub static QUEUE_FULL: Reason = Reason::new("queue full", Class::Exhausted);
/// The object does not take messages this way.
pub static NOT_SUPPORTED: Reason = Reason::new("not supported", Class::NoProtocol);
/// Larger than the receiver or the path takes.
pub static TOO_BIG: Reason = Reason::new("too big", Class::Bad);
/// Forbidden here.
pub static PROHIBITED: Reason = Reason::new("prohibited", Class::Prohibited);
/// A question on which it depends was lost: asked later it may be answered.
pub static NO_ANSWER: Reason = Reason::new("question lost", Class::Exhausted);

/// The reasons of this module.
pub static COMMON: &[&Reason] = &[
    &TRUNCATED,
    &MALFORMED,
    &BAD_CHECKSUM,
    &BAD_LENGTH,
    &BAD_SOURCE,
    &NO_PORT,
    &NO_PROTOCOL,
    &NOT_MINE,
    &CLOSED,
    &NO_BUFFERS,
    &TABLE_FULL,
    &QUEUE_FULL,
    &NOT_SUPPORTED,
    &TOO_BIG,
    &PROHIBITED,
    &NO_ANSWER,
];

/// Counts of an object's drops and refusals, per reason. Grows by one entry per distinct reason
/// only.
#[derive(Default)]
pub struct DropCounters(RefCell<Vec<(&'static Reason, Cell<u64>)>>);

impl DropCounters {
    /// Counts one message dropped for `reason`.
    pub fn count(&self, reason: &'static Reason) {
        self.add(reason, 1);
    }

    /// Counts so many messages dropped for `reason`.
    pub fn add(&self, reason: &'static Reason, messages: u64) {
        if messages == 0 {
            return;
        }
        if let Some((_, n)) = self.0.borrow().iter().find(|(r, _)| *r == reason) {
            n.set(n.get() + messages);
            return;
        }
        let mut counts = self.0.borrow_mut();
        counts.reserve_exact(1);
        counts.push((reason, Cell::new(messages)));
    }

    /// Number of messages dropped for `reason`.
    pub fn of(&self, reason: &Reason) -> u64 {
        let list = self.0.borrow();
        list.iter().find(|(r, _)| **r == *reason).map_or(0, |(_, n)| n.get())
    }

    /// Number of messages dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.borrow().iter().map(|(_, n)| n.get()).sum()
    }

    /// Every reason that occurred and how often, in the order of first occurrence.
    pub fn list(&self) -> Vec<(&'static Reason, u64)> {
        self.0.borrow().iter().map(|(r, n)| (*r, n.get())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_reason_apart() {
        let drops = DropCounters::default();
        drops.count(&NO_PORT);
        drops.count(&TRUNCATED);
        drops.add(&NO_PORT, 1);
        drops.add(&CLOSED, 0);
        assert_eq!(drops.of(&NO_PORT), 2);
        assert_eq!(drops.of(&BAD_LENGTH), 0);
        assert_eq!(drops.total(), 3);
        assert_eq!(drops.list().len(), 2);
    }
}
