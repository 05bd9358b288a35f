//! The laws of wires, checked for `sim` on each kind of link.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::message::PoolConfig;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Kernel, Participants, Pool, ProtocolRef, SessionRef, Time};
use xk_sim::{LinkConfig, LinkKind, World};
use xk_testkit::conformance::wire::{self, WireFixture};
use xk_testkit::kernel::{HEADROOM, Top};

/// A wire, and a far end from which frames come.
struct TwoEnds {
    world: RefCell<World>,
    near: Rc<Kernel>,
    far: Rc<Kernel>,
    wire: ProtocolRef,
    /// The far end's session.
    source: SessionRef,
}

impl TwoEnds {
    fn new(kind: LinkKind) -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory");
        let mut world = World::new(1, pool);
        let link = LinkConfig::new("wire", kind);
        world.network().add_link(link).expect("a link");
        let mut host = |name: &str| {
            let shepherds = Shepherds::new(Box::new(NoSwitch), Limits::default());
            let kernel = Rc::new(Kernel::new(world.host_config(name, shepherds, 64)));
            world.add_host(name, Rc::clone(&kernel));
            kernel
        };
        let (near, far) = (host("near"), host("far"));
        let (wire, other) = (interface(&near), interface(&far));
        let top = Top::add(&far, "top");
        world.start().expect("a start");
        let source = top.open(&far, &other, Participants::default());
        Self { world: RefCell::new(world), near, far, wire, source: source.expect("a session") }
    }
}

fn interface(cx: &Kernel) -> ProtocolRef {
    let mut params = Params::default();
    params.set("link", Value::Text("wire".into()));
    xk_sim::ENTRY.add(cx, "sim", &[], &params).expect("an interface")
}

impl WireFixture for TwoEnds {
    fn cx(&self) -> &Kernel {
        &self.near
    }

    fn wire(&self) -> &ProtocolRef {
        &self.wire
    }

    fn arrive(&self, octets: &[u8]) {
        let message = self.far.pool().copy_from(HEADROOM, octets);
        let pushed = self.source.push(&self.far, message.expect("a buffer"));
        assert_eq!(pushed, Ok(()));
        let mut world = self.world.borrow_mut();
        world.run_until_idle(Time::ZERO.after(Duration::from_secs(60)));
    }

    fn frame(&self) -> Vec<u8> {
        let mut octets = vec![0; 60];
        octets[..12].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9]);
        octets
    }
}

#[test]
fn on_a_switch() {
    wire::all(|| TwoEnds::new(LinkKind::Switch));
}

#[test]
fn on_a_hub() {
    wire::all(|| TwoEnds::new(LinkKind::Hub));
}

#[test]
fn on_a_line() {
    wire::all(|| TwoEnds::new(LinkKind::PointToPoint));
}
