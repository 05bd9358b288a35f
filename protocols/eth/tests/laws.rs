//! The laws that every protocol keeps, checked for `eth` on a wire, with each kind of frame.

use xk_core::{Entry, Part, Participants};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, keeps_all_but};
use xk_testkit::kernel::{Lower, Sent};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn station(side: Side) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + side as u8]
}

/// The number of the protocol above, and the smallest message that goes without padding.
struct OnAWire(u32, usize);

impl Fixture for OnAWire {
    fn entry(&self) -> &'static Entry {
        &xk_eth::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::wire(station(side))
    }

    fn number(&self) -> Option<u32> {
        Some(self.0)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::Ether(station(side.other())))
    }

    fn message_octets_min(&self) -> usize {
        self.1
    }

    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let mut octets: Vec<u8> = sent.message.octets().collect();
        octets[6..8].copy_from_slice(&[6, 0]);
        octets[8..12].copy_from_slice(&n.to_be_bytes());
        Ok((None, octets))
    }
}

/// On a wire there are no hosts.
const OF_LAYERS_ON_HOSTS: [&str; 2] =
    ["what is for many is not for one", "a session tells its source"];

fn keeps_the_laws(fixture: &OnAWire) {
    keeps_all_but(fixture, &OF_LAYERS_ON_HOSTS);
}

#[test]
fn with_a_type() {
    // 60 octets are the shortest frame without its check sequence.
    keeps_the_laws(&OnAWire(0x0800, 46));
}

#[test]
fn with_a_length() {
    // The length tells padding apart: from 0 octets on. The number is a service access point's.
    keeps_the_laws(&OnAWire(0x42, 0));
}

#[test]
fn with_an_organisation() {
    // The first organisation's number 0x88b5, in an IEEE 802.3 frame with SNAP.
    keeps_the_laws(&OnAWire(0x0001_88b5, 0));
}
