//! Sequence numbers: positions in a stream, counted modulo 2^32 (RFC 9293, section 3.4).

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use xk_core::control::{Field, Reader, Writer};

/// A position in one direction of a stream, modulo 2^32.
///
/// There is no order over all of them, so `Ord` is absent: two numbers compare as long as they lie
/// less than 2^31 apart, which windows of at most 2^30 octets ensure (RFC 7323, section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether this lies before `other`.
    #[inline]
    #[must_use]
    pub const fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this lies before `other` or is the same.
    #[inline]
    #[must_use]
    pub const fn at_or_before(self, other: Seq) -> bool {
        !other.before(self)
    }

    /// Whether this lies behind `other`.
    #[inline]
    #[must_use]
    pub const fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// Whether this lies behind `other` or is the same.
    #[inline]
    #[must_use]
    pub const fn at_or_after(self, other: Seq) -> bool {
        !self.before(other)
    }

    /// The octets from `earlier` up to here, modulo 2^32.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this lies in the `len` octets from `start` on.
    #[inline]
    #[must_use]
    pub const fn within(self, start: Seq, len: u32) -> bool {
        self.since(start) < len
    }

    /// The later of the two.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Seq) -> Seq {
        if other.before(self) { other } else { self }
    }

    /// The order of the two, as far as they are comparable.
    #[inline]
    #[must_use]
    pub const fn compare(self, other: Seq) -> Ordering {
        match self.0.wrapping_sub(other.0) as i32 {
            0 => Ordering::Equal,
            ..0 => Ordering::Less,
            _ => Ordering::Greater,
        }
    }
}

impl Field for Seq {
    fn put(&self, out: &mut Writer<'_>) {
        self.0.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        u32::take(from).map(Self)
    }
}

impl Add<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn add(self, octets: u32) -> Seq {
        Seq(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn sub(self, octets: u32) -> Seq {
        Seq(self.0.wrapping_sub(octets))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;
    use proptest::prelude::*;

    #[test]
    fn order_goes_round() {
        let last = Seq(u32::MAX);
        assert!(last.before(last + 1));
        assert_eq!((last + 1).since(last), 1);
        assert!(Seq(0).within(last, 2) && !Seq(1).within(last, 2));
        assert_eq!((last.max(Seq(0)), last.min(Seq(0))), (Seq(0), last));
    }

    proptest! {
        #[test]
        fn what_lies_on_is_after(start: u32, octets in 1..1u32 << 31) {
            let (start, end) = (Seq(start), Seq(start) + octets);
            prop_assert!(start.before(end) && end.after(start));
            prop_assert!(start.at_or_before(end) && !start.at_or_after(end));
            prop_assert_eq!(end - octets, start);
        }
    }
}
