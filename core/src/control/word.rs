//! Short words in answers: names of states and algorithms.

use super::{Field, Reader, Writer};
use core::fmt;
use core::ops::Deref;

/// The most octets of a [`Word`].
const OCTETS_MAX: usize = 15;

/// A name of at most 15 octets, kept in place, so that an answer that came from another address
/// space owns it. What is longer is cut.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Word {
    octets: [u8; OCTETS_MAX],
    len: u8,
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        let text = &text.as_bytes()[..text.floor_char_boundary(OCTETS_MAX)];
        let mut octets = [0; OCTETS_MAX];
        octets[..text.len()].copy_from_slice(text);
        Self { octets, len: text.len() as u8 }
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        let octets = self.octets.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(octets).unwrap_or_default()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl Field for Word {
    fn put(&self, out: &mut Writer<'_>) {
        out.put_text(self);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        from.text(OCTETS_MAX).map(Self::from)
    }
}
