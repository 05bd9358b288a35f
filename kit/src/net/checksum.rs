//! The Internet checksum (RFC 1071): sums, verification, incremental change.
//!
//! The sum is taken over 64-bit words in the machine's own octet order: ones'
//! complement addition does not care about the order until the very end
//! (RFC 1071, section 2), and 2^64 - 1 is a multiple of 2^16 - 1, so wide words
//! fold to the same 16 bits. Short runs are added in one chain of additions with
//! carry, long ones in a loop of vectors.
//!
//! ```
//! use xk_kit::net::checksum;
//! let octets = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
//! assert_eq!(checksum::checksum(&octets), !0xddf2);
//! ```

mod wide_unsafe;

use xk_core::HostAddr;

/// A running Internet checksum.
///
/// Slices may be added in pieces of any length: an odd piece leaves the next
/// one at an odd place, and the sum takes that into account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    /// Ones' complement sum modulo 2^64 - 1, in the machine's octet order.
    sum: u64,
    /// Whether an odd number of octets was added so far.
    odd: bool,
}

impl Checksum {
    /// Slices from here on (in octets) take the vector loop: below, setting it up
    /// costs more than it saves. Code that adds shorter ones only, calls nothing.
    pub const LONG: usize = 256;

    /// The sum over nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// The sum over the pseudo-header of TCP and UDP (RFC 768, RFC 9293
    /// section 3.1; of IPv6 RFC 8200 section 8.1); `len` is the transport
    /// header and payload in octets.
    #[inline]
    pub fn pseudo_header(
        src: impl Into<HostAddr>,
        dst: impl Into<HostAddr>,
        protocol: u8,
        len: u32,
    ) -> Self {
        let mut sum = Self::new();
        for host in [src.into(), dst.into()] {
            sum.add(host.octets());
        }
        sum.add_u16(u16::from(protocol));
        sum.add_u32(len);
        sum
    }

    /// Adds octets, at whatever parity the ones before them left.
    #[inline(always)]
    pub fn add(&mut self, octets: &[u8]) {
        // At an odd place every octet counts for its neighbour's weight: a turn by eight bits
        // (RFC 1071, section 2, byte order independence).
        let turn = if self.odd { 8 } else { 0 };
        self.sum = add_octets(self.sum.rotate_right(turn), octets).rotate_left(turn);
        self.odd ^= octets.len() & 1 == 1;
    }

    /// Adds the two octets of `value`, most significant first.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        self.add_sum(u64::from(value.to_be()));
    }

    /// Adds the four octets of `value`, most significant first.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        self.add_sum(u64::from(value.to_be()));
    }

    /// Adds the eight octets of `value`, most significant first.
    #[inline]
    pub fn add_u64(&mut self, value: u64) {
        self.add_sum(value.to_be());
    }

    /// Adds another sum, as if its octets followed the ones added so far.
    #[inline]
    pub fn join(&mut self, other: Self) {
        self.add_sum(other.sum);
        self.odd ^= other.odd;
    }

    /// The sum over an even number of octets in 16 bits, to be kept and gone on
    /// from by [`Checksum::resume`].
    #[inline]
    #[must_use]
    pub fn folded(self) -> u16 {
        fold(self.sum)
    }

    /// Goes on from a sum over an even number of octets ([`Checksum::folded`]).
    #[inline]
    #[must_use]
    pub const fn resume(folded: u16) -> Self {
        Self { sum: folded as u64, odd: false }
    }

    /// The checksum: the complement of the sum, as the number whose
    /// big-endian octets go on the wire.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        u16::from_be(!fold(self.sum))
    }

    /// Whether the octets added, a checksum field among them, are intact.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        is_ones(self.sum)
    }

    #[inline]
    fn add_sum(&mut self, sum: u64) {
        // As in `add`.
        let sum = if self.odd { sum.rotate_left(8) } else { sum };
        self.sum = add_end_around(self.sum, sum);
    }
}

/// The checksum of one slice.
#[inline]
#[must_use]
pub fn checksum(octets: &[u8]) -> u16 {
    u16::from_be(!fold(add_octets(0, octets)))
}

/// Whether a slice that contains its own checksum is intact.
#[inline]
#[must_use]
pub fn is_valid(octets: &[u8]) -> bool {
    is_ones(add_octets(0, octets))
}

/// The checksum after one 16-bit word changed from `old` to `new`
/// (RFC 1624, section 3, equation 3).
///
/// Equal to a fresh sum to the bit, also around zero, as long as the octets
/// covered are not all zero (an IP header never is).
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    !fold_u32(sum)
}

const fn fold_u32(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + sum) as u16
}

#[inline]
fn add_end_around(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

#[inline]
fn fold(sum: u64) -> u16 {
    let (sum, carry) = ((sum >> 32) as u32).overflowing_add(sum as u32);
    let sum = sum + u32::from(carry);
    let (sum, carry) = ((sum >> 16) as u16).overflowing_add(sum as u16);
    sum + u16::from(carry)
}

/// Whether a sum folds to 0xffff: a multiple of 2^16 - 1, and not zero. Multiplied by the inverse
/// of 2^16 - 1 modulo 2^64 a multiple becomes its quotient, and any other number is greater than
/// every quotient (Granlund and Montgomery, "Division by invariant integers using
/// multiplication", section 9).
#[inline]
const fn is_ones(sum: u64) -> bool {
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const { assert!(INVERSE.wrapping_mul(0xffff) == 1) }
    sum.wrapping_mul(INVERSE).wrapping_sub(1) < u64::MAX / 0xffff
}

/// A sum and that of native words; constant, short lengths unroll where this is inlined.
#[inline(always)]
fn add_octets(sum: u64, octets: &[u8]) -> u64 {
    if octets.len() < Checksum::LONG {
        add_short(sum, octets)
    } else {
        add_end_around(sum, sum_long(octets))
    }
}

/// A sum and that of native words, by one chain of additions. Halving what is left of blocks takes
/// fewer steps than a loop over words.
#[inline(always)]
fn add_short(mut sum: u64, octets: &[u8]) -> u64 {
    let (blocks, mut rest) = octets.as_chunks::<64>();
    for block in blocks {
        sum = add_words(sum, block);
    }
    if rest.is_empty() {
        return sum;
    }
    if let Some((half, after)) = rest.split_first_chunk::<32>() {
        sum = add_words(sum, half);
        rest = after;
    }
    if let Some((half, after)) = rest.split_first_chunk::<16>() {
        sum = add_words(sum, half);
        rest = after;
    }
    if let Some((half, after)) = rest.split_first_chunk::<8>() {
        sum = add_words(sum, half);
        rest = after;
    }
    add_end_around(sum, sum_tail(octets, rest.len()))
}

/// Adds a run of whole words, each with the carry of the one before: one instruction a word where
/// the processor has an addition with carry. Unrolls.
#[inline(always)]
fn add_words<const N: usize>(mut sum: u64, octets: &[u8; N]) -> u64 {
    let mut carry = false;
    for word in octets.as_chunks::<8>().0 {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    // No carry comes of this one: a sum that has just wrapped is below the greatest.
    sum.wrapping_add(u64::from(carry))
}

/// Sum of the last `len` octets, fewer than eight, of which the first is at an even place.
#[inline(always)]
fn sum_tail(octets: &[u8], len: usize) -> u64 {
    let Some(last) = octets.last_chunk::<8>() else {
        return sum_few(octets);
    };
    // The last word, less what has been added of it: the octets in front of the tail.
    let word = u64::from_ne_bytes(*last);
    match len {
        0 => 0,
        _ if cfg!(target_endian = "little") => word >> (64 - 8 * len),
        _ => word << (64 - 8 * len),
    }
}

/// Sum of at most seven octets.
#[inline]
fn sum_few(octets: &[u8]) -> u64 {
    let mut sum = 0;
    let mut rest = octets;
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*word));
        rest = after;
    }
    if let [last] = rest {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}

#[inline(never)]
fn sum_long(octets: &[u8]) -> u64 {
    wide_unsafe::sum_long(octets)
}

/// The sum where there is no wider way.
fn sum_plain(octets: &[u8]) -> u64 {
    let (words, tail) = octets.as_chunks::<8>();
    add_end_around(sum_words(words), sum_tail(octets, tail.len()))
}

/// Two accumulators: `all` wraps, `high` holds what the upper halves add up
/// to, and their difference is the sum of the lower halves. That saves one
/// vector operation of four against widening both halves. The loop is plain
/// because arrays of lanes are not reliably kept in vector registers.
#[inline(always)]
fn sum_words(words: &[[u8; 8]]) -> u64 {
    let (mut all, mut high) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        all = all.wrapping_add(word);
        high = high.wrapping_add(word >> 32);
    }
    // True while the lower halves add up to less than 2^64: 2^32 words.
    let low = all.wrapping_sub(high << 32);
    add_end_around(low, high)
}

#[cfg(test)]
mod tests;
