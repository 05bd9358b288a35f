//! Names of at most 32 octets in the Mac Roman character set, as NBP and ZIP have them.

use alloc::string::String;
use core::fmt;
use core::hash::{Hash, Hasher};

/// Octets of a name at most.
pub const NAME_LEN_MAX: usize = 32;

/// The characters from 0x80 on, as Unicode has them.
const HIGH: &str = "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü\
                    †°¢£§•¶ß®©™´¨≠ÆØ∞±≤≥¥µ∂∑∏π∫ªºΩæø\
                    ¿¡¬√ƒ≈∆«»…\u{a0}ÀÃÕŒœ–—“”‘’÷◊ÿŸ⁄¤‹›ﬁﬂ\
                    ‡·‚„‰ÂÊÁËÈÍÎÏÌÓÔ\u{f8ff}ÒÚÛÙıˆ˜¯˘˙˚¸˝˛ˇ";

/// Small letters beyond ASCII that have a capital (Inside AppleTalk, appendix D), and that.
const CAPITALS: [(u8, u8); 13] = [
    (0x88, 0xcb),
    (0x8a, 0x80),
    (0x8b, 0xcc),
    (0x8c, 0x81),
    (0x8d, 0x82),
    (0x8e, 0x83),
    (0x96, 0x84),
    (0x9a, 0x85),
    (0x9b, 0xcd),
    (0x9f, 0x86),
    (0xbe, 0xae),
    (0xbf, 0xaf),
    (0xcf, 0xce),
];

/// The capital of a letter; any other character is itself.
#[must_use]
pub const fn capital(octet: u8) -> u8 {
    if octet < 0x80 {
        return octet.to_ascii_uppercase();
    }
    let mut i = 0;
    while i < CAPITALS.len() {
        if CAPITALS[i].0 == octet {
            return CAPITALS[i].1;
        }
        i += 1;
    }
    octet
}

/// A name: up to 32 octets. Names that differ in nothing but capitals are equal.
#[derive(Clone, Copy)]
pub struct Name {
    octets: [u8; NAME_LEN_MAX],
    len: u8,
}

/// Error of octets that are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than [`NAME_LEN_MAX`].
    #[error("a name has at most 32 characters")]
    TooLong,
    /// A character that Mac Roman does not have.
    #[error("a character that AppleTalk's character set does not have")]
    Character,
}

impl Name {
    /// The name without characters.
    pub const EMPTY: Self = Self { octets: [0; NAME_LEN_MAX], len: 0 };

    /// A name of octets.
    ///
    /// # Errors
    /// [`NameError::TooLong`].
    pub fn new(octets: &[u8]) -> Result<Self, NameError> {
        let mut name = Self::EMPTY;
        let place = name.octets.get_mut(..octets.len()).ok_or(NameError::TooLong)?;
        place.copy_from_slice(octets);
        name.len = octets.len() as u8;
        Ok(name)
    }

    /// A name of Unicode characters.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn from_text(text: &str) -> Result<Self, NameError> {
        let mut name = Self::EMPTY;
        for character in text.chars() {
            let octet = match u8::try_from(character) {
                Ok(octet) if octet.is_ascii() => octet,
                _ => {
                    let at = HIGH.chars().position(|high| high == character);
                    0x80 | at.ok_or(NameError::Character)? as u8
                }
            };
            let place = name.octets.get_mut(usize::from(name.len)).ok_or(NameError::TooLong)?;
            *place = octet;
            name.len += 1;
        }
        Ok(name)
    }

    /// Octets of the name.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// As Unicode characters.
    #[must_use]
    pub fn text(&self) -> String {
        let high = |octet: u8| HIGH.chars().nth(usize::from(octet & 0x7f));
        let character = |octet: &u8| match octet.is_ascii() {
            true => char::from(*octet),
            false => high(*octet).unwrap_or(char::REPLACEMENT_CHARACTER),
        };
        self.octets().iter().map(character).collect()
    }

    /// In capitals, as the multicast address of a zone is computed.
    #[must_use]
    pub fn capitals(mut self) -> Self {
        self.octets.iter_mut().for_each(|octet| *octet = capital(*octet));
        self
    }

    /// True if it has no characters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if the name is this octet alone.
    #[must_use]
    pub fn is_only(&self, octet: u8) -> bool {
        *self.octets() == [octet]
    }

    /// Splits a name, its length in front, off the octets.
    #[must_use]
    pub(crate) fn split(octets: &[u8]) -> Option<(Self, &[u8])> {
        let (len, rest) = octets.split_first()?;
        let (name, rest) = rest.split_at_checked((*len).into())?;
        Some((Self::new(name).ok()?, rest))
    }

    /// Appends it, its length in front.
    pub(crate) fn put(&self, out: &mut alloc::vec::Vec<u8>) {
        out.push(self.len);
        out.extend_from_slice(self.octets());
    }

    /// Octets of it with its length.
    pub(crate) const fn put_len(&self) -> usize {
        1 + self.len as usize
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.capitals().octets() == other.capitals().octets()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.capitals().octets().hash(state);
    }
}

impl Default for Name {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    #[test]
    fn characters() {
        assert_eq!(HIGH.chars().count(), 128);
        assert_eq!(Name::from_text("≈").unwrap().octets(), [0xc5]);
        assert_eq!(Name::from_text("Ä").unwrap().octets(), [0x80]);
        assert_eq!(Name::from_text("ˇ").unwrap().octets(), [0xff]);
        assert_eq!(Name::from_text("漢"), Err(NameError::Character));
        assert_eq!(Name::from_text("ä"), Name::from_text("Ä"));
        assert_ne!(Name::from_text("á"), Name::from_text("Á"), "appendix D has no pair of these");
        // Each capital is that of Unicode.
        for (small, great) in CAPITALS {
            let text = |octet: u8| Name::new(&[octet]).unwrap().to_string();
            assert_eq!(text(small).to_uppercase(), text(great));
        }
        assert_eq!(Name::from_text(&"x".repeat(33)), Err(NameError::TooLong));
        assert_eq!(Name::new(&[0; 33]), Err(NameError::TooLong));
        assert!(Name::from_text(&"ü".repeat(32)).is_ok());
    }

    proptest! {
        #[test]
        fn texts_round_trip(octets in prop::collection::vec(any::<u8>(), 0..=32)) {
            let name = Name::new(&octets).unwrap();
            let again = Name::from_text(&name.text()).unwrap();
            prop_assert_eq!(again.octets(), &octets[..]);
            let mut put = Vec::new();
            name.put(&mut put);
            prop_assert_eq!(put.len(), name.put_len());
            prop_assert_eq!(Name::split(&put), Some((name, &[][..])));
            for len in 0..put.len() {
                prop_assert!(Name::split(&put[..len]).is_none());
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = Name::from_text(&text);
        }
    }
}
