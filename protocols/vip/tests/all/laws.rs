//! The laws that every protocol keeps, checked for `vip` where all hosts are reached by the layer
//! that reaches all.

use core::net::Ipv4Addr;
use xk_core::graph::{Build, Params};
use xk_core::numbers::Number;
use xk_core::{Entry, Kernel, Part, Participants, ProtocolRef};
use xk_testkit::conformance::openings::{each_host_has_its_own_session, hosts_move};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, keeps_all_but};
use xk_testkit::kernel::{Bottom, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// As large as it is where nothing is said.
const SESSIONS_MAX: usize = 65_536;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

struct ByIp;

impl Fixture for ByIp {
    fn entry(&self) -> &'static Entry {
        &xk_vip::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 90)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::host(host(side.other())))
    }

    fn number(&self) -> Option<u32> {
        Some(90)
    }

    fn sessions_max(&self) -> usize {
        SESSIONS_MAX
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> ProtocolRef {
        // It has no numbers of its own: what stands above is selected on the layers below.
        for (lower, number) in [("ip", 90), ("eth", 0x395a)] {
            let upper = "top";
            let entry = Number { upper, lower, number };
            cx.numbers_mut().add(entry).expect("one number");
        }
        let link = Lower { kind: "eth", ..Lower::host(host(side), 90) };
        let link = Bottom::add(cx, "link", link);
        let params = Params::default();
        let built = (xk_vip::ENTRY.build)(&mut Build {
            cx,
            entry: &xk_vip::ENTRY,
            name: "vip",
            lowers: &[link.protocol().clone(), bottom.clone()],
            params: &params,
        });
        built.expect("it has both lowers")
    }
}

#[test]
fn keeps_the_laws() {
    keeps_all_but(&ByIp, &[]);
}

#[test]
fn sessions_opened_at_one_time_lead_to_their_hosts() {
    each_host_has_its_own_session(&|cx, lowers| xk_vip::add(cx, "vip", lowers, xk_vip::ETHER_BASE));
}

#[test]
fn hosts_that_move_are_followed() {
    hosts_move(&|cx, lowers| xk_vip::add(cx, "vip", lowers, xk_vip::ETHER_BASE));
}
