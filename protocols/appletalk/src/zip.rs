//! Zones (Inside AppleTalk, chapter 8): packets, what a router knows of zones, how a node learns
//! its own.

mod node;
mod packets;
#[cfg(test)]
mod tests;
mod zones;

pub use node::{NetInfoStep, NetInfoWait};
pub use packets::{
    Error, ListKind, ListReply, ListRequest, NetInfo, NetInfoRequest, Notify, Packet, Reply,
};
pub use zones::{ZoneError, Zones};

use crate::aarp::Hw;
use crate::ddp::Sum;
use crate::name::Name;

/// The groups that zones are spread over.
const GROUPS: u16 = 253;

/// The Ethernet group of a zone: chosen by the checksum of its name in capitals.
#[must_use]
pub fn multicast(zone: &Name) -> Hw {
    let mut sum = Sum::default();
    sum.add(zone.capitals().octets());
    [0x09, 0x00, 0x07, 0x00, 0x00, (sum.checksum() % GROUPS) as u8]
}

/// True for a group that a zone can have on Ethernet.
#[must_use]
pub fn is_multicast(hw: Hw) -> bool {
    matches!(hw, [0x09, 0x00, 0x07, 0x00, 0x00, group] if u16::from(group) < GROUPS)
}
