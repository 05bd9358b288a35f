//! A set of entries that graphs are checked against.

use super::{Entry, Links};
use crate::numbers::{Conflict, Number, Numbers};
use alloc::vec::Vec;
use core::fmt;

/// The entries of the protocols that a program knows: what its graphs can be made of.
///
/// A program names each protocol that it links:
///
/// ```
/// # use xk_core::graph::{Build, BuildError, Catalog};
/// # use xk_core::{Entry, ProtocolRef};
/// # fn build(_: &mut Build<'_>) -> Result<ProtocolRef, BuildError> { unimplemented!() }
/// static LOOPBACK: Entry = Entry::wire("loopback", "//! ...", build);
/// static ECHO: Entry = Entry::top("echo", "//! ...", build).numbers(&[("loopback", 7)]);
///
/// let catalog = Catalog::new(&[&LOOPBACK, &ECHO])?;
/// assert!(catalog.find("echo").is_some() && catalog.find("udp").is_none());
/// # Ok::<(), xk_core::graph::CatalogError>(())
/// ```
#[derive(Clone)]
pub struct Catalog {
    entries: Vec<&'static Entry>,
    numbers: Numbers,
}

/// Why a set of entries is no catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Two entries of one subsystem have the same kind.
    #[error("two entries of the catalog have the kind `{0}`")]
    Kind(&'static str),
    /// Two entries give one pair of protocols different type numbers.
    #[error(
        "`{}` on `{}` has the type number {} in the entry of `{first}` and {} in that of `{second}`",
        .conflict.first.upper, .conflict.first.lower,
        .conflict.first.number, .conflict.second.number
    )]
    Numbers {
        /// The numbers.
        conflict: Conflict,
        /// The kind whose entry has the first number.
        first: &'static str,
        /// The kind whose entry has the second number.
        second: &'static str,
    },
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|entry| entry.kind)).finish()
    }
}

impl Catalog {
    /// A catalog of these entries.
    ///
    /// # Errors
    /// [`CatalogError`] if two of them contradict each other.
    pub fn new(entries: &[&'static Entry]) -> Result<Self, CatalogError> {
        let mut kinds: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.subsystem)).collect();
        kinds.sort_unstable();
        if let Some(pair) = kinds.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CatalogError::Kind(pair[0].0));
        }
        let mut numbers = Numbers::default();
        let contradicts = |conflict: Conflict, second: &'static Entry| {
            let says = |entry: &&&Entry| entry.type_numbers().any(|n| n == conflict.first);
            let first = entries.iter().find(says).map_or(second.kind, |entry| entry.kind);
            CatalogError::Numbers { conflict, first, second: second.kind }
        };
        for entry in entries {
            for number in entry.type_numbers() {
                numbers.add(number).map_err(|conflict| contradicts(conflict, entry))?;
            }
        }
        for entry in entries {
            let own: Vec<_> = numbers.kinds().to_vec();
            let alike = own.into_iter().filter(|number| Some(number.lower) == entry.numbers_as);
            for number in alike {
                let here = Number { lower: entry.kind, ..number };
                numbers.add(here).map_err(|conflict| contradicts(conflict, entry))?;
            }
        }
        Ok(Self { entries: entries.to_vec(), numbers })
    }

    /// The entry of this kind; that of a subsystem's is `SUBSYSTEM/KIND`.
    pub fn find(&self, kind: &str) -> Option<&'static Entry> {
        let (subsystem, kind) = match kind.split_once('/') {
            Some((subsystem, kind)) => (Some(subsystem), kind),
            None => (None, kind),
        };
        let is_it = |entry: &&'static Entry| entry.kind == kind && entry.subsystem == subsystem;
        self.entries.iter().copied().find(is_it)
    }

    /// All entries.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// The merged table of type numbers.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The description of links, if one of the entries is a wire that hangs on links.
    pub fn links(&self) -> Option<&'static Links> {
        self.entries.iter().find_map(|entry| entry.links)
    }
}
