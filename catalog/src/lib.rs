//! The one list of the protocols and wires that graphs can use.
//!
//! A protocol is in the list or it is not: there is no feature switch per protocol.
//! `cargo xtask new-protocol NAME` adds a line; by hand, add the crate to this crate's manifest and
//! its `ENTRY` between the markers.
//!
//! # Example
//! ```
//! let catalog = xk_catalog::Catalog::standard();
//! let null = catalog.find("null").expect("it is in the list");
//! assert_eq!(null.header_octets, 4);
//! assert_eq!(catalog.numbers().find_kinds("null", "null"), Some(1));
//! ```

use std::fmt;
use xk_core::Entry;
use xk_core::numbers::{Conflict, Numbers};

/// Every protocol and every wire, sorted by crate.
pub static PROTOCOLS: &[&Entry] = &[
    // catalog:protocols
    &xk_arp::ENTRY,
    &xk_authnone::ENTRY,
    &xk_authshort::ENTRY,
    &xk_authsys::ENTRY,
    &xk_caller::ENTRY,
    &xk_channel::ENTRY,
    &xk_deadline::ENTRY,
    &xk_discard::ENTRY,
    &xk_echo::ENTRY,
    &xk_eth::ENTRY,
    &xk_fault::ENTRY,
    &xk_fragment::ENTRY,
    &xk_host::ENTRY,
    &xk_host::UDP_ENTRY,
    &xk_icmp::ENTRY,
    &xk_ip::ENTRY,
    &xk_loop::ENTRY,
    &xk_loopback::ENTRY,
    &xk_mrpc::ENTRY,
    &xk_noise::ENTRY,
    &xk_null::ENTRY,
    &xk_packet::ENTRY,
    &xk_pcap::ENTRY,
    &xk_portmap::ENTRY,
    &xk_probe::ENTRY,
    &xk_procedures::ENTRY,
    &xk_rdgram::ENTRY,
    &xk_select::ENTRY,
    &xk_select::FORWARD_ENTRY,
    &xk_reqrep::ENTRY,
    &xk_rm::ENTRY,
    &xk_shm::ENTRY,
    &xk_sim::ENTRY,
    &xk_sunprog::ENTRY,
    &xk_sunselect::ENTRY,
    &xk_tap::ENTRY,
    &xk_tcp::ENTRY,
    &xk_tracer::ENTRY,
    &xk_udp::ENTRY,
    &xk_vip::ENTRY,
    &xk_vipaddr::ENTRY,
    &xk_vipadv::ENTRY,
    &xk_vipsize::ENTRY,
    &xk_xdp::ENTRY,
    // catalog:protocols
];

/// The entry of this kind in the standard list.
pub fn find(kind: &str) -> Option<&'static Entry> {
    PROTOCOLS.iter().copied().find(|entry| entry.kind == kind)
}

/// The type numbers of the standard list, merged.
///
/// # Errors
/// [`CatalogError::Numbers`] if two entries contradict each other; a test keeps that from
/// happening.
pub fn numbers() -> Result<Numbers, CatalogError> {
    merge(PROTOCOLS)
}

/// A set of entries that graphs are checked against: the standard list, or one of a program's own.
pub struct Catalog {
    entries: Vec<&'static Entry>,
    numbers: Numbers,
}

/// Why a set of entries is no catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// Two entries have the same kind.
    Kind(&'static str),
    /// Two entries give one pair of protocols different type numbers.
    Numbers(Conflict),
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "two entries of the catalog have the kind `{kind}`"),
            Self::Numbers(Conflict { first, second }) => write!(
                f,
                "`{}` on `{}` has the type number {} in one entry and {} in another",
                first.upper, first.lower, first.number, second.number
            ),
        }
    }
}

impl std::error::Error for CatalogError {}

impl Catalog {
    /// The standard list.
    pub fn standard() -> Self {
        Self::new(PROTOCOLS).unwrap_or_else(|_| Self {
            // A test forbids it; if it happens all the same, kinds still work and pairs without a
            // number are reported.
            entries: PROTOCOLS.to_vec(),
            numbers: Numbers::default(),
        })
    }

    /// A catalog of these entries.
    ///
    /// # Errors
    /// [`CatalogError`] if two of them contradict each other.
    pub fn new(entries: &[&'static Entry]) -> Result<Self, CatalogError> {
        let mut kinds: Vec<&str> = entries.iter().map(|entry| entry.kind).collect();
        kinds.sort_unstable();
        if let Some(pair) = kinds.windows(2).find(|pair| pair[0] == pair[1]) {
            let twice = entries.iter().find(|entry| entry.kind == pair[0]);
            return Err(CatalogError::Kind(twice.map_or("", |entry| entry.kind)));
        }
        Ok(Self { entries: entries.to_vec(), numbers: merge(entries)? })
    }

    /// The entry of this kind.
    pub fn find(&self, kind: &str) -> Option<&'static Entry> {
        self.entries.iter().copied().find(|entry| entry.kind == kind)
    }

    /// All entries.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// The merged table of type numbers.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

fn merge(entries: &[&'static Entry]) -> Result<Numbers, CatalogError> {
    let mut numbers = Numbers::default();
    for number in entries.iter().flat_map(|entry| entry.type_numbers()) {
        numbers.add(number).map_err(CatalogError::Numbers)?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests;
