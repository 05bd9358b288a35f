//! The wire: a network interface below a graph.

use std::cell::RefCell;
use std::net::Ipv4Addr;

use xk_core::ProtocolRef;
use xk_core::graph::{Build, BuildError, Look, Params, Value};
use xk_kit::EthAddr;
use xk_kit::wire::device::{Anchored, Capabilities};
use xk_kit::wire::entry::{Address, HEADER_OCTETS, environment, interface_name};
use xk_linux::Interface;

use crate::bare::{Mode, find, ring_entries};
use crate::device::{Settings, XdpDevice, XdpWire};
use crate::driver_unsafe::is_in_memory;
use crate::error::XdpError;
use crate::program::{MATCHES_MAX, Share};
use crate::queue::may_open;

/// Builds the wire from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let wanted = Wanted::read(build.params)?;
    let interface = find(wanted.name).map_err(unopened)?;
    let address = wanted.address.beside(interface.hardware_address);
    let settings = wanted.settings(&interface, address).map_err(unopened)?;
    let mtu = interface.mtu;
    let device = XdpDevice::open(interface, &settings, build.cx.pool()).map_err(unopened)?;
    let capabilities = Capabilities {
        takes_groups: settings.promiscuous,
        ..Capabilities::ethernet(mtu + HEADER_OCTETS, address)
    };
    build.add(Anchored::new(XdpWire(RefCell::new(device)), capabilities))
}

/// Looks whether the interface is there and this process may use it, without touching it.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    let wanted = Wanted::read(params)?;
    if look == Look::Parameters {
        return Ok(());
    }
    let interface = find(wanted.name).map_err(unopened)?;
    let settings = wanted.settings(&interface, wanted.address.beside(interface.hardware_address));
    let settings = settings.map_err(unopened)?;
    may_open(&interface, settings.queues, &settings.share).map_err(unopened)
}

/// Frames that are for the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sharing {
    /// All: the host's stack gets none.
    Nothing,
    /// Frames for our hardware address.
    ByAddress,
    /// Frames among them of these EtherTypes and hosts.
    ByMatch(Vec<u16>, Vec<Ipv4Addr>),
}

/// Request of the graph.
#[derive(Debug)]
struct Wanted<'a> {
    name: &'a str,
    mode: Mode,
    queues: u32,
    frames: u32,
    address: Address,
    sharing: Sharing,
    promiscuous: Option<bool>,
    finishes: Option<bool>,
}

impl<'a> Wanted<'a> {
    fn read(params: &'a Params) -> Result<Self, BuildError> {
        let flag = |name| match params.get(name) {
            Some(Value::Bool(wanted)) => Some(*wanted),
            _ => None,
        };
        let address = Address::read(params)?;
        Ok(Self {
            name: interface_name(params)?.unwrap_or_default(),
            mode: match params.text("mode") {
                Some("zero-copy") => Mode::ZeroCopy,
                Some("native") => Mode::Native,
                Some("generic") => Mode::Generic,
                _ => Mode::Auto,
            },
            queues: params.number("queues", 1),
            frames: params.number("frames", 1024),
            sharing: sharing(params.text("share"), address)?,
            address,
            promiscuous: flag("promiscuous"),
            finishes: flag("finish_checksums"),
        })
    }

    fn settings(&self, interface: &Interface, ours: EthAddr) -> Result<Settings, XdpError> {
        let share = match &self.sharing {
            Sharing::Nothing => Share::default(),
            Sharing::ByAddress => Share { address: Some(ours.0), ..Share::default() },
            Sharing::ByMatch(ether_types, hosts) => Share {
                address: Some(ours.0),
                ether_types: ether_types.clone(),
                hosts: hosts.clone(),
            },
        };
        let in_memory = || is_in_memory(&interface.name);
        Ok(Settings {
            mode: self.mode,
            queues: self.queues,
            frames: ring_entries(&interface.name, self.frames)?,
            hears_groups: self.sharing != Sharing::Nothing,
            promiscuous: self.promiscuous.unwrap_or(ours.0 != interface.hardware_address),
            finishes: self.finishes.unwrap_or_else(in_memory),
            share,
        })
    }
}

fn sharing(text: Option<&str>, address: Address) -> Result<Sharing, BuildError> {
    let wrong = |expected: String| Err(BuildError::Param { name: "share", index: 0, expected });
    match text {
        None | Some("address") if address == Address::Own => wrong(
            "with address=own, which frames are ours beside the host's: IPv4 addresses and EtherTypes, such as \
             \"10.0.0.2,0x88b5\", or nothing if the host is to have none"
                .into(),
        ),
        None | Some("address") => Ok(Sharing::ByAddress),
        Some("nothing") => Ok(Sharing::Nothing),
        Some(list) => {
            let (mut types, mut hosts) = (Vec::new(), Vec::new());
            for word in list.split(',').map(str::trim) {
                if let Some(number) = ether_type(word) {
                    types.push(number);
                } else if let Ok(host) = word.parse() {
                    hosts.push(host);
                } else {
                    return wrong(format!(
                        "address, nothing, or a list of IPv4 addresses and EtherTypes from 0x0600 on, such as \
                         \"10.0.0.2,0x88b5\"; {word:?} is none"
                    ));
                }
            }
            if types.len() > MATCHES_MAX || hosts.len() > MATCHES_MAX {
                return wrong(format!("at most {MATCHES_MAX} IPv4 addresses and EtherTypes"));
            }
            Ok(Sharing::ByMatch(types, hosts))
        }
    }
}

/// An EtherType as `0x88b5`. Smaller numbers are lengths (IEEE 802.3, section 3.2.6).
fn ether_type(word: &str) -> Option<u16> {
    let number = u16::from_str_radix(word.strip_prefix("0x")?, 16).ok()?;
    (number >= 0x0600).then_some(number)
}

fn unopened(error: XdpError) -> BuildError {
    environment("device", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)]) -> Result<Sharing, BuildError> {
        let mut params = Params::default();
        for (name, value) in pairs {
            params.set(name, Value::Text((*value).into()));
        }
        Wanted::read(&params).map(|wanted| wanted.sharing)
    }

    #[test]
    fn frames_are_shared_as_the_graph_says() {
        let host = Ipv4Addr::new(10, 0, 0, 2);
        assert_eq!(read(&[]).unwrap(), Sharing::ByAddress);
        assert_eq!(read(&[("share", "address")]).unwrap(), Sharing::ByAddress);
        assert_eq!(read(&[("share", "nothing")]).unwrap(), Sharing::Nothing);
        let list = [("address", "own"), ("share", "10.0.0.2, 0x88b5")];
        assert_eq!(read(&list).unwrap(), Sharing::ByMatch(vec![0x88b5], vec![host]));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let many = vec!["10.0.0.2"; MATCHES_MAX + 1].join(",");
        for pairs in [
            &[("address", "own")][..],
            &[("address", "own"), ("share", "address")],
            &[("address", "ff:ff:ff:ff:ff:ff")],
            &[("share", "")],
            &[("share", "10.0.0.2;10.0.0.3")],
            &[("share", "0x05ff")],
            &[("share", "88b5")],
            &[("share", &many)],
        ] {
            let refused = read(pairs);
            assert!(matches!(refused, Err(BuildError::Param { .. })), "{pairs:?}");
        }
    }
}
