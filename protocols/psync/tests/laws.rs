//! The laws that every protocol keeps, checked for this one.

use core::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::{HostAddr, Part, Participant, Participants};
use xk_kit::group::PROCESS;
use xk_kit::net::attribute::Peer;
use xk_psync::wire::{Address, Entry, Header, LISTED, Opening};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, bounded, keeps_all_but};
use xk_testkit::kernel::{Family, Lower, Sent};

/// Counts, so that the law "no allocation per message" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Laws that it skips.
const SKIPPED: &[&str] = &[
    // It tells protocols above apart by processes.
    "no type number, no session",
    // Its headers differ from message to message.
    "headers are as they are told",
    // What was refused before is sent again.
    "an enable makes sessions",
    // A refusal ends here: the others have the message.
    "a refusal comes back",
    // A frame that comes again is a duplicate, however it lies in its buffers.
    "headers may lie in slices",
    // So many as this law sends in a row no window lets through.
    "no allocation per message",
    // A message waits for those before it of its sender.
    "a burst does not wait for one",
];

struct OverHosts;

fn process(side: Side) -> u32 {
    1 + side as u32
}

fn part(side: Side) -> Part {
    Part::Number(PROCESS, process(side).into())
}

impl Fixture for OverHosts {
    fn entry(&self) -> &'static xk_core::Entry {
        &xk_psync::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 253)
    }

    /// A window for all that is sent in a row.
    fn params(&self, _: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("window", Value::Integer(256));
        params
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn open(&self, side: Side) -> Participants {
        let peer = Participant::of(Part::Host(side.other().host(Family::V4)));
        Participants::pair(part(side), peer.with(part(side.other())))
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        Some(Participants::local(part(side)))
    }

    /// Each stranger has a conversation of its own, whose first message lists the members.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let octets: Vec<u8> = sent.message.octets().collect();
        let mut header = Header::parse(octets.first_chunk().ok_or("a header is there")?);
        let body = &octets[octets.len() - header.length as usize..];
        header.conversation = 0x1000_0000 + n;
        // The second message of ours is the first of a stranger.
        header.seq -= 1;
        let before = Entry { sender: 0, incarnation: 1, seq: header.seq - 1 };
        let before: &[u8] = if header.seq > 1 { &before.emit() } else { &[] };
        (header.flags, header.entries) = (LISTED, (before.len() / Entry::OCTETS) as u8);
        let host = HostAddr::from((0x0b00_0000 + n).to_be_bytes());
        let members = [(Side::A, host), (Side::B, Side::B.host(Family::V4))];
        let address =
            |(side, host)| Address { process: process(side), peer: Peer { host, port: 0 } };
        let opening = Opening { window: 256, members: members.map(address).to_vec() };
        Ok((Some(Part::Host(host)), [&header.emit()[..], before, &opening.emit(), body].concat()))
    }
}

#[test]
fn keeps_the_laws() {
    keeps_all_but(&OverHosts, SKIPPED);
}
