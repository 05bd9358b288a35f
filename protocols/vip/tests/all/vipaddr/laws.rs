//! The laws that every protocol keeps, checked for `vipaddr` where all hosts are reached by the
//! layer that reaches all.

use crate::add;
use xk_testkit::conformance::keeps_all_but;
use xk_testkit::conformance::openings::{ByNet, each_host_has_its_own_session, hosts_move};
use xk_vip::vipaddr::ENTRY;

/// Laws that `vipaddr` does not obey: its sessions are those of the layers below, made in the name
/// of an object of its own. They tell of that object as the receiver, where these laws look for the
/// protocol above. What holds of them is tested in `sessions.rs` and in composed graphs.
const OF_THE_LAYERS_BELOW: [&str; 4] = [
    "sessions open, count and close",
    "an enable makes sessions",
    "a layer may slip between",
    "a session ends with its lower one",
];

#[test]
fn keeps_the_laws() {
    keeps_all_but(&ByNet(&ENTRY), &OF_THE_LAYERS_BELOW);
}

#[test]
fn sessions_opened_at_one_time_lead_to_their_hosts() {
    each_host_has_its_own_session(&|cx, lowers| add(cx, &ENTRY, lowers));
}

#[test]
fn hosts_that_move_are_followed() {
    hosts_move(&|cx, lowers| add(cx, &ENTRY, lowers));
}
