//! The laws that every protocol keeps, checked for `fragment` over hosts and over a link.

use xk_core::graph::{Params, Value};
use xk_core::{Answer, Entry, Part, Participants};
use xk_fragment::FragmentFigures;
use xk_kit::control::MinPacket;
use xk_kit::rpc::retransmit::{AskCopy, FreeCopy, LastCopy};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Node, Side, World};
use xk_testkit::kernel::{Family, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn params() -> Params {
    let mut params = Params::default();
    params.set("sessions_max", Value::Integer(256));
    params
}

/// Fragments that a message being collected has taken, unless it was given up, which is counted as
/// a drop.
fn taken(node: &Node, cx: &xk_core::Kernel) -> u64 {
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

thread_local! {
    /// The kernel of the world under test, for [`Fixture::taken`], which is not handed it.
    static KERNEL: std::cell::RefCell<Option<std::rc::Rc<xk_core::Kernel>>> =
        const { std::cell::RefCell::new(None) };
}

fn remember(world: &World<'_>) {
    let kernel = world.cx.share();
    KERNEL.with(|kept| *kept.borrow_mut() = Some(kernel));
}

fn remembered(node: &Node) -> u64 {
    let kernel = KERNEL.with(|kept| kept.borrow().clone());
    kernel.map_or(0, |cx| taken(node, &cx))
}

struct OverHosts(Family);

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_fragment::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(self.0.host(1 + side as u32), 101)
    }

    fn number(&self) -> Option<u32> {
        Some(102)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::Host(self.0.host(1 + side.other() as u32)))
    }

    fn params(&self, _: Side) -> Params {
        params()
    }

    fn sessions_max(&self) -> usize {
        256
    }

    fn started(&self, world: &World<'_>) {
        remember(world);
    }

    fn taken(&self, node: &Node) -> u64 {
        remembered(node)
    }

    /// A packet with the stranger's host in its own header too.
    fn stranger(
        &self,
        sent: &xk_testkit::kernel::Sent,
        n: u32,
    ) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let peer = self.0.host(0x0b_0000 + n);
        let mut octets: Vec<u8> = sent.message.octets().collect();
        octets[2..6].copy_from_slice(&peer.folded().to_be_bytes());
        Ok((Some(Part::Host(peer)), octets))
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        ask(world, name)
    }
}

struct OverLink;

impl Fixture for OverLink {
    fn entry(&self) -> &'static Entry {
        &xk_fragment::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn number(&self) -> Option<u32> {
        Some(102)
    }

    fn open(&self, _: Side) -> Participants {
        Participants::default()
    }

    fn params(&self, _: Side) -> Params {
        params()
    }

    fn started(&self, world: &World<'_>) {
        remember(world);
    }

    fn taken(&self, node: &Node) -> u64 {
        remembered(node)
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        ask(world, name)
    }
}

#[test]
fn over_hosts() {
    for family in Family::ALL {
        let findings = conformance::all(&OverHosts(family));
        println!("{family:?}: {findings}");
        assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
    }
}

#[test]
fn over_a_link() {
    println!("{}", conformance::all(&OverLink));
}
