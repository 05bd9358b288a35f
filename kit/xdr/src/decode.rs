//! Sources of octets.

use crate::encode::padding;
use crate::error::DecodeError;
use alloc::vec::Vec;
use xk_core::Message;
use xk_core::message::Slices;

/// Largest depth of values within values, unless [`Decoder::depth_max`] says otherwise, if each has
/// [`DEPTH_OCTETS`] in memory at most; larger ones count more often. Where the code of a build
/// takes so much of the stack that [`STACK_OCTETS_MAX`] are used before, they lie less deep.
pub const DEPTH_MAX: u32 = 32;

/// Octets of the stack that values within values take at most: not half of 64 KiB, the shepherds'
/// default. A larger [`Decoder::depth_max`] than [`DEPTH_MAX`] has more in proportion.
pub const STACK_OCTETS_MAX: usize = 24 << 10;

/// See [`DEPTH_MAX`].
pub const DEPTH_OCTETS: usize = 128;

/// Largest number of elements of an array whose type takes no octets: no length of the message
/// bounds them.
pub const EMPTY_ELEMENTS_MAX: u32 = 1 << 10;

/// Reads values from a slice or a message, one behind the other.
#[derive(Clone)]
pub struct Decoder<'a> {
    /// Rest of the slice at hand.
    slice: &'a [u8],
    /// The slices behind it.
    behind: Option<Slices<'a>>,
    /// Octets in those.
    octets_behind: usize,
    depth_left: u32,
    stack: Option<Stack>,
    stack_octets_max: usize,
    strict: bool,
}

/// Part of the stack that the values around the one at hand have taken.
#[derive(Clone, Copy)]
struct Stack {
    /// Addresses of the stack at which the outermost and the innermost were begun.
    from: usize,
    last: usize,
    /// The most that one of them took, in octets.
    level: usize,
}

impl Stack {
    /// Address of the stack at this call, nearly.
    #[inline(always)]
    fn here() -> usize {
        let here = 0u8;
        core::ptr::from_ref(&here).addr()
    }

    /// One value more, of this size; `None` if there may be no room for another like those before
    /// it.
    fn deeper(around: Option<Self>, here: usize, size: usize, octets_max: usize) -> Option<Self> {
        let Some(Self { from, last, level }) = around else {
            return Some(Self { from: here, last: here, level: 0 });
        };
        // Without optimisation many copies of a value lie on the stack at once.
        let level = level.max(here.abs_diff(last)).max(8 * size);
        let has_room = here.abs_diff(from) + level <= octets_max;
        has_room.then_some(Self { from, last: here, level })
    }
}

impl<'a> Decoder<'a> {
    /// Reads these octets.
    #[inline]
    pub fn new(octets: &'a [u8]) -> Self {
        Self {
            slice: octets,
            behind: None,
            octets_behind: 0,
            depth_left: DEPTH_MAX,
            stack: None,
            stack_octets_max: STACK_OCTETS_MAX,
            strict: false,
        }
    }

    /// Reads the octets of a message, in however many slices they lie.
    #[inline]
    pub fn of_message(message: &'a Message) -> Self {
        match message.single_slice() {
            Some(octets) => Self::new(octets),
            None => Self {
                behind: Some(message.slices()),
                octets_behind: message.len(),
                ..Self::new(&[])
            },
        }
    }

    /// Refuses padding that is not zero.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Sets the largest depth of values within values: optional data and arrays count, as they can
    /// be recursive.
    #[must_use]
    pub fn depth_max(mut self, depth: u32) -> Self {
        self.depth_left = depth;
        let more = (depth as usize).saturating_mul(STACK_OCTETS_MAX / DEPTH_MAX as usize);
        self.stack_octets_max = more.max(STACK_OCTETS_MAX);
        self
    }

    /// Octets not yet read.
    #[inline]
    pub fn left(&self) -> usize {
        self.slice.len() + self.octets_behind
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`].
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            octets => Err(DecodeError::Trailing { octets }),
        }
    }

    /// The next `N` octets.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    #[inline]
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.slice.split_first_chunk() {
            Some((octets, left)) => {
                self.slice = left;
                Ok(*octets)
            }
            None => self.gather(),
        }
    }

    #[cold]
    fn gather<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut octets = [0; N];
        self.fill(&mut octets)?;
        Ok(octets)
    }

    /// Fills `to` with the next octets.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`]; nothing is read.
    pub fn fill(&mut self, to: &mut [u8]) -> Result<(), DecodeError> {
        let mut rest = to;
        self.pieces(rest.len(), |piece| {
            let (front, behind) = core::mem::take(&mut rest).split_at_mut(piece.len());
            front.copy_from_slice(piece);
            rest = behind;
        })
    }

    /// Puts the next `len` octets behind those in `to`, and reads their padding.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], [`DecodeError::BadPadding`].
    pub fn append_padded(&mut self, len: usize, to: &mut Vec<u8>) -> Result<(), DecodeError> {
        if len > self.left() {
            return Err(DecodeError::Truncated);
        }
        to.reserve_exact(len);
        self.pieces(len, |piece| to.extend_from_slice(piece))?;
        self.skip_padding(len)
    }

    /// Fills `to` with the next octets, and reads their padding.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], [`DecodeError::BadPadding`].
    pub fn fill_padded(&mut self, to: &mut [u8]) -> Result<(), DecodeError> {
        self.fill(to)?;
        self.skip_padding(to.len())
    }

    fn skip_padding(&mut self, len: usize) -> Result<(), DecodeError> {
        let mut zero = true;
        self.pieces(padding(len), |piece| zero &= piece.iter().all(|o| *o == 0))?;
        if zero || !self.strict { Ok(()) } else { Err(DecodeError::BadPadding) }
    }

    /// Passes the next `len` octets to `to`, as they lie.
    fn pieces(&mut self, len: usize, mut to: impl FnMut(&'a [u8])) -> Result<(), DecodeError> {
        if len > self.left() {
            return Err(DecodeError::Truncated);
        }
        let mut left = len;
        while left > 0 {
            if self.slice.is_empty() && !self.advance() {
                return Err(DecodeError::Truncated);
            }
            let (piece, rest) = self.slice.split_at(left.min(self.slice.len()));
            to(piece);
            left -= piece.len();
            self.slice = rest;
        }
        Ok(())
    }

    /// Goes on to the next slice.
    fn advance(&mut self) -> bool {
        let Some(next) = self.behind.as_mut().and_then(Iterator::next) else {
            return false;
        };
        self.octets_behind = self.octets_behind.saturating_sub(next.octets.len());
        self.slice = next.octets;
        true
    }

    /// The next length, at most `max`, of elements which take `octets_each` octets at least: no
    /// more than can follow.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`], [`DecodeError::Truncated`].
    #[inline]
    pub fn take_len(&mut self, max: u32, octets_each: usize) -> Result<usize, DecodeError> {
        let len = u32::from_be_bytes(self.take()?);
        let max = if octets_each == 0 { max.min(EMPTY_ELEMENTS_MAX) } else { max };
        if len > max {
            return Err(DecodeError::TooLong { len, max });
        }
        let len = len as usize;
        if len.saturating_mul(octets_each) > self.left() {
            return Err(DecodeError::Truncated);
        }
        Ok(len)
    }

    /// Reads what lies one deeper: values of the type `V`, which take some of the stack on the way.
    ///
    /// # Errors
    /// [`DecodeError::TooDeep`], or those of `read`.
    #[inline]
    pub fn deeper<V, T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let levels = const { 1 + (size_of::<V>() / DEPTH_OCTETS) as u32 };
        let before = (self.depth_left, self.stack);
        let (here, size) = (Stack::here(), size_of::<V>());
        let stack = Stack::deeper(self.stack, here, size, self.stack_octets_max);
        if self.depth_left == 0 || stack.is_none() {
            return Err(DecodeError::TooDeep);
        }
        // However large it is, one of them is read.
        self.depth_left = self.depth_left.saturating_sub(levels);
        self.stack = stack;
        let value = read(self);
        (self.depth_left, self.stack) = before;
        value
    }
}
