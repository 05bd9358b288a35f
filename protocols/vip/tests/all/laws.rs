//! The laws that every protocol keeps, checked for `vip` where all hosts are reached by the layer
//! that reaches all.

use xk_testkit::conformance::openings::{ByNet, each_host_has_its_own_session, hosts_move};
use xk_testkit::conformance::{CountingAllocator, keeps_all_but};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

#[test]
fn keeps_the_laws() {
    keeps_all_but(&ByNet(&xk_vip::ENTRY), &[]);
}

#[test]
fn sessions_opened_at_one_time_lead_to_their_hosts() {
    each_host_has_its_own_session(&|cx, lowers| xk_vip::add(cx, "vip", lowers, xk_vip::ETHER_BASE));
}

#[test]
fn hosts_that_move_are_followed() {
    hosts_move(&|cx, lowers| xk_vip::add(cx, "vip", lowers, xk_vip::ETHER_BASE));
}
