//! AppleTalk with Linux's own, in a guest, and netatalk's programs there.

mod addresses;
mod names;
mod transactions;

pub(crate) use addresses::{
    a_node_is_defended, datagrams_with_wrong_sums_are_dropped, echoes_both_ways, the_guest_starts,
};
pub(crate) use names::{
    a_node_learns_of_its_cable, afpd_executes_commands, afpd_takes_a_file,
    names_are_found_both_ways, pap_prints_on_ours, print_prints_by_papd, two_routers_share_a_cable,
};
pub(crate) use transactions::{afpd_opens_a_session, papd_prints, zones_are_listed};

/// Skips the test unless the guest can be had.
macro_rules! needs_appletalk {
    () => {
        if let Some(reason) = xk_peers::appletalk::missing() {
            xk_testkit::needs::skip(&reason);
            return;
        }
    };
}
pub(crate) use needs_appletalk;
