//! The laws that every protocol keeps, checked for `vip` where all hosts are reached by the layer
//! that reaches all.

use crate::add;
use xk_testkit::conformance::keeps_all_but;
use xk_testkit::conformance::openings::{ByNet, each_host_has_its_own_session, hosts_move};

#[test]
fn keeps_the_laws() {
    keeps_all_but(&ByNet(&xk_vip::ENTRY), &[]);
}

#[test]
fn sessions_opened_at_one_time_lead_to_their_hosts() {
    each_host_has_its_own_session(&|cx, lowers| add(cx, &xk_vip::ENTRY, lowers));
}

#[test]
fn hosts_that_move_are_followed() {
    hosts_move(&|cx, lowers| add(cx, &xk_vip::ENTRY, lowers));
}
