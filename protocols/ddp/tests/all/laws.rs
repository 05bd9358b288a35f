//! The laws that every protocol keeps, checked for `ddp` over a link.

use xk_core::graph::{Params, Value};
use xk_core::{Answer, Ask, Entry, Part, Participant, Participants, Question};
use xk_kit::net::appletalk::{
    DdpCable, DdpEnds, DdpRoutes, NodeClaimed, SOCKET, SetCable, SetRouter, SetRoutes, socket,
};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, World, bounded, keeps_all_but};
use xk_testkit::kernel::{Lower, Sent};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn node(side: Side) -> u8 {
    17 + side as u8
}

struct OverALink;

impl Fixture for OverALink {
    fn entry(&self) -> &'static Entry {
        &xk_ddp::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(600)
    }

    fn port(&self, side: Side) -> Option<Part> {
        Some(Part::Number(SOCKET, 80 + side as u64))
    }

    fn open(&self, side: Side) -> Participants {
        let other = side.other();
        let local = Participant::of(Part::Number(SOCKET, 80 + side as u64));
        Participants::pair(local, socket(10, node(other), 80 + other as u8))
    }

    fn number(&self) -> Option<u32> {
        Some(200)
    }

    fn params(&self, side: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("net", Value::Text("10-19".into()));
        params.set("node", Value::Integer(node(side).into()));
        params
    }

    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let mut octets: Vec<u8> = sent.message.octets().collect();
        let net = 100 + (n % 60_000) as u16;
        octets[6..8].copy_from_slice(&net.to_be_bytes());
        octets[9] = 1 + (n / 60_000) as u8;
        let mut sum = xk_ddp::wire::Sum::default();
        sum.add(&octets[4..]);
        octets[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        Ok((None, octets))
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        fn put<Q: Question>(world: &World<'_>, mut question: Q) -> Answer {
            let mut ask = Ask::new(&mut question);
            world.a.protocol.control(&world.cx, &mut ask)
        }
        let cable = SetCable { first: 10, last: 19, ..SetCable::default() };
        Some(match name {
            DdpCable::NAME => put(world, DdpCable::default()),
            SetCable::NAME => put(world, cable),
            SetRouter::NAME => put(world, SetRouter::default()),
            DdpRoutes::NAME => put(world, DdpRoutes::default()),
            SetRoutes::NAME => put(world, SetRoutes::default()),
            NodeClaimed::NAME => {
                put(world, NodeClaimed { claim: 0, net: 10, node: 17, is_disputed: false })
            }
            DdpEnds::NAME => {
                let session = world.open(Side::A);
                let mut question = DdpEnds::default();
                let answer = session.control(&world.cx, &mut Ask::new(&mut question));
                assert_eq!((question.peer, question.local), ((10, 18, 81), (10, 17, 80)));
                answer
            }
            _ => return None,
        })
    }
}

/// There are nodes in place of hosts.
const OF_LAYERS_ON_HOSTS: &str = "what is for many is not for one";

/// A checksum of this form has no template.
const OF_HEADERS: &str = "headers are as they are told";

#[test]
fn keeps_the_laws() {
    keeps_all_but(&OverALink, &[OF_LAYERS_ON_HOSTS, OF_HEADERS]);
}
