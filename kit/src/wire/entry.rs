//! Shared parts of the catalog entries of wires that carry Ethernet frames: questions, parameters,
//! and errors of devices that cannot be opened.

use crate::EthAddr;
use alloc::string::ToString;
use core::fmt::Display;
use xk_core::Entry;
use xk_core::control::{QuestionInfo, question};
use xk_core::graph::{BuildError, Builder, ParamKind, ParamSpec, Params, optional};

/// Octets of an Ethernet header without tag (IEEE 802.3).
pub const HEADER_OCTETS: usize = 14;
/// Room in front of an arrival, in octets, so that it can be answered or forwarded with longer
/// headers.
pub const HEADROOM: usize = 128;
/// Octets of the longest name of an interface (Linux, `IFNAMSIZ` less the end mark).
const INTERFACE_NAME_OCTETS_MAX: usize = 15;

const QUESTIONS: &[QuestionInfo] = &[
    question("max-packet", "the MTU and 14 octets of Ethernet header"),
    question("opt-packet", "the MTU and 14 octets of Ethernet header"),
    question("my-ether", "our hardware address"),
    question("link-type", "1: Ethernet"),
    question("join-group", "nothing to do, where frames for all groups arrive"),
    question("leave-group", "takes one `join-group` back"),
];

/// The entry of a wire that carries Ethernet frames over a [`Device`](super::device::Device).
pub const fn ethernet(kind: &'static str, manual: &'static str, build: Builder) -> Entry {
    Entry::wire(kind, manual, build).questions(QUESTIONS)
}

/// The parameter `address`, which [`station`] reads.
pub const fn address(meaning: &'static str) -> ParamSpec {
    let kind = ParamKind::Text("a hardware address, such as 02:00:00:00:00:01");
    optional("address", kind, meaning)
}

/// The parameter `address`, which [`Address::read`] reads.
pub const ADDRESS_OR_OWN: ParamSpec = optional(
    "address",
    ParamKind::Text("a hardware address, such as 02:00:00:00:00:01, or own"),
    "our hardware address, or `own` for the interface's; if not given, one that depends on the \
     interface's",
);

/// The hardware address of one station that the parameter `address` gives, if it does.
///
/// # Errors
/// [`BuildError::Param`] if it is none.
pub fn station(params: &Params) -> Result<Option<EthAddr>, BuildError> {
    let wanted = "the address of one station, such as 02:00:00:00:00:01";
    let address = params.parse::<EthAddr>("address", wanted)?;
    match address {
        Some(address) if !address.is_unicast() => Err(BuildError::param("address", wanted)),
        _ => Ok(address),
    }
}

/// Hardware address of the graph beside a host's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// One that depends on the interface's.
    Derived,
    /// The interface's own.
    Own,
    /// Another.
    Given(EthAddr),
}

impl Address {
    /// Reads the parameter `address`.
    ///
    /// # Errors
    /// [`BuildError::Param`] if that is no address of one station, nor `own`.
    pub fn read(params: &Params) -> Result<Self, BuildError> {
        let wanted = "the address of one station, such as 02:00:00:00:00:01, or own";
        match params.text("address") {
            None => Ok(Self::Derived),
            Some("own") => Ok(Self::Own),
            Some(text) => match text.parse::<EthAddr>() {
                Ok(address) if address.is_unicast() => Ok(Self::Given(address)),
                _ => Err(BuildError::param("address", wanted)),
            },
        }
    }

    /// Our address beside an interface with the address `own`. A derived one is locally
    /// administered, of one station (IEEE 802-2014, section 8.2.2), and another one than any that
    /// counting upwards from the interface's gives soon.
    #[must_use]
    pub fn beside(self, own: [u8; 6]) -> EthAddr {
        match self {
            Self::Derived => {
                let [first, b, c, d, e, last] = own;
                EthAddr([(first | 2) & !1, b ^ 0x78, c ^ 0x6b, d, e, last])
            }
            Self::Own => EthAddr(own),
            Self::Given(address) => address,
        }
    }
}

/// The interface that the parameter `device` names; `None` if it is not given.
///
/// # Errors
/// [`BuildError::Param`] for what names no interface: Linux takes 1 to 15 octets, none of them a
/// space, `/` or `:`, and takes `%` for a wish (`dev_valid_name`, `dev_alloc_name`).
pub fn interface_name(params: &Params) -> Result<Option<&str>, BuildError> {
    let Some(name) = params.text("device") else {
        return Ok(None);
    };
    let strange = |octet: u8| octet <= b' ' || matches!(octet, b'/' | b':' | b'%' | 0x7f);
    let is_long = !(1..=INTERFACE_NAME_OCTETS_MAX).contains(&name.len());
    if is_long || matches!(name, "." | "..") || name.bytes().any(strange) {
        return Err(BuildError::param(
            "device",
            "the name of an interface, such as xk0: 1 to 15 octets without `/`, `:`, `%` and spaces",
        ));
    }
    Ok(Some(name))
}

/// Why what `param` names cannot be opened, as the composer shows it: what is missing, and behind a
/// semicolon of `error`'s text what to do about it.
pub fn environment(param: &'static str, error: &impl Display) -> BuildError {
    let text = error.to_string();
    let (what, help) = text.split_once("; ").unwrap_or((&text, ""));
    BuildError::Environment { param: Some(param), what: what.into(), help: help.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_address_is_one_station_of_our_own() {
        let ours = Address::Derived.beside([0x02, 0, 0, 0, 0, 1]);
        assert!(ours.is_unicast() && ours.0 != [0x02, 0, 0, 0, 0, 1]);
        assert!(Address::Derived.beside([0xff; 6]).is_unicast());
    }
}
