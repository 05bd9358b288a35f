//! The laws that every protocol keeps, checked for this one.

use xk_core::graph::{Params, Value};
use xk_core::{Entry, HostAddr, Part};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, bounded, keeps_all_but};
use xk_testkit::kernel::{Family, Lower, Sent};

/// Counts, so that the law "no allocation per message" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// A law that it skips: its headers differ from way to way.
const UNTOLD: &[&str] = &["headers are as they are told"];

/// The protocol on a layer whose sessions lead to hosts.
struct OverHosts {
    joins: bool,
}

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_fanout::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 254)
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }

    fn params(&self, _: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("joins", Value::Bool(self.joins));
        params
    }

    /// Each stranger has a room of its own, of as many as there are: only a room's hosts are heard.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let mut octets: Vec<u8> = sent.message.octets().collect();
        let room = n % u32::from(u16::MAX) + 1;
        octets[2..4].copy_from_slice(&(room as u16).to_be_bytes());
        Ok((Some(Part::Host(HostAddr::from((0x0b00_0000 + room).to_be_bytes()))), octets))
    }
}

#[test]
fn keeps_the_laws() {
    keeps_all_but(&OverHosts { joins: false }, UNTOLD);
}

#[test]
fn keeps_the_laws_while_strangers_join() {
    keeps_all_but(&OverHosts { joins: true }, UNTOLD);
}
