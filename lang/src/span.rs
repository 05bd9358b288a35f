//! Places in a source text.

use std::fmt;
use std::ops::{Deref, Range};

/// A place in the source text, in octets from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First octet.
    pub offset: usize,
    /// Length in octets; 0 points between two characters.
    pub len: usize,
}

impl Span {
    /// The place of `len` octets from `offset` on.
    pub const fn new(offset: usize, len: usize) -> Self {
        Self { offset, len }
    }

    /// The first octet behind the place.
    pub const fn end(&self) -> usize {
        self.offset.saturating_add(self.len)
    }

    /// The place from the beginning of `self` to the end of `last`.
    pub fn to(self, last: Span) -> Self {
        Self::new(self.offset, last.end().saturating_sub(self.offset))
    }

    /// The text at this place; empty when `source` is not the text the span was taken from.
    pub fn of<'a>(&self, source: &'a str) -> &'a str {
        source.get(self.offset..self.end()).unwrap_or("")
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end.saturating_sub(range.start))
    }
}

/// A value together with the place it was written at. It reads like the value itself (`Deref`), and
/// two of them are equal when their values are, wherever they stand.
#[derive(Debug, Clone, Default)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Place of the value in the file.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// `value`, written at `span`.
    pub const fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Spanned<T> {}

impl<T: fmt::Display> fmt::Display for Spanned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
