//! The laws that every protocol keeps, checked for this one.

use xk_core::control::ListSessions;
use xk_core::graph::{Params, Value};
use xk_core::{Answer, Ask, Entry, Kernel, Question};
use xk_guide::Tally;
use xk_testkit::conformance::{
    CountingAllocator, Fixture, Node, Side, World, bounded, keeps_all_but,
};
use xk_testkit::kernel::{Family, Lower};

/// Counts, so that the law "no allocation per message" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Laws that lose a message on purpose and expect the next one at once: a layer that waits for the
/// lost one breaks them.
const LOSING: &[&str] = &[
    "headers may lie in slices",
    "strangers do not make it grow",
    "a burst does not wait for one",
];

/// The laws of first messages that overtake each other, as over a network that does so: which of
/// them are late is the protocol's own rule.
const OVERTAKING: &[&str] = &[
    "first messages at one time make one session",
    "copies and damage at one time harm nothing",
    UNTOLD,
];

/// A law that `seq` skips: it does not tell its headers.
const UNTOLD: &str = "headers are as they are told";

/// The protocol on a layer whose sessions lead to hosts, with this parameter `hold`.
struct OverHosts {
    hold: i64,
}

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_guide::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 253)
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }

    fn params(&self, _: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("hold", Value::Integer(self.hold));
        params
    }

    fn taken(&self, cx: &Kernel, node: &Node) -> u64 {
        held(cx, node)
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        (name == Tally::NAME).then(|| {
            let session = world.open(Side::A);
            session.control(&world.cx, &mut Ask::new(&mut Tally::default()))
        })
    }
}

/// Number of messages that an instance keeps back.
fn held(cx: &Kernel, node: &Node) -> u64 {
    let list = node.protocol.ask(cx, ListSessions::first(usize::MAX)).unwrap_or_default();
    let tallies = list.here().filter_map(|s| s.ask(cx, Tally::default()));
    tallies.map(|tally| tally.held).sum()
}

#[test]
fn keeps_the_laws() {
    keeps_all_but(&OverHosts { hold: 0 }, OVERTAKING);
}

#[test]
fn keeps_the_laws_while_it_waits() {
    keeps_all_but(&OverHosts { hold: 32 }, &[OVERTAKING, LOSING].concat());
}
