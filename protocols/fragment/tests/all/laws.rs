//! The laws that every protocol keeps, checked for `fragment` over hosts and over a link.

use xk_core::{Answer, Entry, Kernel, Part};
use xk_fragment::FragmentFigures;
use xk_kit::control::MinPacket;
use xk_kit::rpc::retransmit::{AskCopy, FreeCopy, LastCopy};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, Node, Side, World, keeps_all_but};
use xk_testkit::kernel::{Family, Lower, Sent};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Fragments that a message being collected has taken, unless it was given up, which is counted as
/// a drop.
fn taken(cx: &Kernel, node: &Node) -> u64 {
    let figures = node.protocol.ask(cx, FragmentFigures::default());
    let figures = figures.expect("its figures");
    figures.fragments_held - figures.messages_given_up
}

fn ask(world: &World<'_>, name: &str) -> Option<Answer> {
    let cx = &world.cx;
    let session = world.open(Side::A);
    let known = match name {
        "last-copy" => session.ask(cx, LastCopy::default()).is_some(),
        "free-copy" => session.ask(cx, FreeCopy { ticket: 1 }).is_some(),
        "ask-copy" => session.ask(cx, AskCopy::about(1)).is_some(),
        "min-packet" => session.ask(cx, MinPacket::default()).is_some(),
        "fragment-figures" => {
            let figures = world.a.protocol.ask(cx, FragmentFigures::default());
            figures.is_some()
        }
        _ => return None,
    };
    session.close(cx);
    Some(if known { Answer::Answered } else { Answer::Unknown })
}

/// Over hosts of a family, or over a link.
struct Over(Option<Family>);

impl Fixture for Over {
    fn entry(&self) -> &'static Entry {
        &xk_fragment::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.map_or(Lower::link(1500), |family| Lower::host(side.host(family), 101))
    }

    fn number(&self) -> Option<u32> {
        Some(102)
    }

    fn taken(&self, cx: &Kernel, node: &Node) -> u64 {
        taken(cx, node)
    }

    /// A packet with the stranger's host in its own header too.
    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let peer = self.0.ok_or("a link has one other end")?.host(0x0b_0000 + n);
        let mut octets: Vec<u8> = sent.message.octets().collect();
        octets[2..6].copy_from_slice(&peer.folded().to_be_bytes());
        Ok((Some(Part::Host(peer)), octets))
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        ask(world, name)
    }
}

#[test]
fn over_hosts() {
    for family in Family::ALL {
        keeps_all_but(&Over(Some(family)), &[]);
    }
}

#[test]
fn over_a_link() {
    println!("{}", conformance::all(&Over(None)));
}
