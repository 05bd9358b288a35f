//! Graphs against the Linux kernel and its tools.
//!
//! Every test captures what passes its links and ends by letting `tshark` judge it; what it may
//! find is named with the reason.

mod advertising;
mod apart;
mod appletalk;
mod arp;
mod client;
mod ends;
mod exec;
mod fastopen;
mod frameworks;
mod granted;
mod groups;
mod host;
mod hostile;
mod library;
mod localtalk;
mod many;
mod moving;
mod netem;
mod offload;
mod paths;
mod program;
mod router;
mod rpc;
mod streams;
mod sweeps;
mod tcp;
mod tools;
mod upgrade;
mod xdp;

use std::process::ExitCode;

use xk_peers::organisation::Organisation;
use xk_peers::testbed::Wire;
use xk_testkit::needs;
use xk_testkit::peer::{self, Test};

/// The tests, each over the wires that stand in its line.
macro_rules! tests {
    ($($module:ident :: $test:ident over $($wire:ident)+;)*) => {
        &[$($(
            (
                concat!(stringify!($module), "::", stringify!($test), "::", stringify!($wire)),
                (|| match Wire::$wire.missing() {
                    Some(what) => needs::skip(&what),
                    None => $module::$test(Wire::$wire),
                }) as fn(),
            ),
        )+)*]
    };
}

/// Tests run once more with their stacks cut into domains.
macro_rules! organised {
    ($($organisation:ident { $($module:ident :: $test:ident over $wire:ident;)* })*) => {
        &[$($(
            (
                concat!(
                    stringify!($module), "::", stringify!($test), "::", stringify!($wire), "::",
                    stringify!($organisation)
                ),
                (|| match Wire::$wire.missing() {
                    Some(what) => needs::skip(&what),
                    None => {
                        Organisation::$organisation.within(|| $module::$test(Wire::$wire));
                    }
                }) as fn(),
            ),
        )*)*]
    };
}

fn main() -> ExitCode {
    if let Some(code) = granted::programs::run().or_else(moving::run) {
        return code;
    }
    let long = if std::env::var_os("XK_LONG").is_some() { ORGANISED_LONG } else { &[] };
    let company = [COMPANY, ORGANISED, long].concat();
    let alone = [ALONE, ORGANISED_ALONE].concat();
    let code = peer::main_with_company(&company, &alone);
    xk_peers::appletalk::end();
    code
}

/// The strongest of each transport.
const ORGANISED: &[Test] = organised! {
    Server {
        host::echoes_datagrams_of_all_sizes over TapOffload;
        tcp::echoes_streams_of_all_sizes over TapOffload;
    }
    Module {
        host::echoes_datagrams_of_all_sizes over TapOffload;
        tcp::echoes_streams_of_all_sizes over TapOffload;
    }
    PerProtocol {
        host::echoes_datagrams_of_all_sizes over Tap;
        tcp::echoes_streams_of_all_sizes over Tap;
    }
    Library {
        host::echoes_datagrams_of_all_sizes over TapOffload;
        tcp::echoes_streams_of_all_sizes over TapOffload;
    }
};

const ORGANISED_ALONE: &[Test] = organised! {
    Server {
        rpc::serves_c_programs over Tap;
    }
    PerProtocol {
        rpc::serves_c_programs over Tap;
    }
    Library {
        rpc::serves_c_programs over Tap;
    }
};

/// All others that fit.
const ORGANISED_LONG: &[Test] = organised! {
    Server {
        client::learns_of_unreachable_hosts over Tap;
        rpc::learns_ports_of_rpcbind over Veth;
        rpc::is_registered_with_rpcbind over Veth;
        host::answers_pings_of_all_sizes over Veth;
        host::refuses_closed_ports over Veth;
        client::pings_in_all_sizes over Veth;
        client::sends_datagrams_of_all_sizes over Veth;
        tcp::asks_a_server over Veth;
        tcp::is_refused over Veth;
    }
    Module {
        host::answers_pings_of_all_sizes over Veth;
        host::refuses_closed_ports over Veth;
        client::pings_in_all_sizes over Veth;
        client::sends_datagrams_of_all_sizes over Veth;
        tcp::asks_a_server over Veth;
        tcp::is_refused over Veth;
    }
    Library {
        rpc::gives_c_programs_shorthands over Veth;
        rpc::learns_ports_of_rpcbind over Veth;
        rpc::is_registered_with_rpcbind over Veth;
        host::answers_pings_of_all_sizes over Veth;
        host::echoes_datagrams_of_all_sizes over Veth;
        host::echoes_datagrams_of_all_sizes over Vxlan;
        host::refuses_closed_ports over Veth;
        tcp::echoes_streams_of_all_sizes over VethOffload;
        tcp::echoes_streams_of_all_sizes over VxlanOffload;
    }
    PerProtocol {
        host::answers_pings_of_all_sizes over Veth;
        host::refuses_closed_ports over Veth;
        client::pings_in_all_sizes over Veth;
        client::sends_datagrams_of_all_sizes over Veth;
        tcp::asks_a_server over Veth;
        tcp::is_refused over Veth;
    }
};

/// Tests that run well with any share of the machine.
const COMPANY: &[Test] = tests! {
    // Its router takes half a minute; the tests that need that stand last.
    appletalk::the_guest_starts over Veth;
    host::answers_pings_of_all_sizes over Tap Veth VethOffload Vxlan XdpGeneric XdpNative;
    host::answers_pings_with_options over Tap Veth;
    host::echoes_datagrams_of_all_sizes over Tap TapOffload Veth VethOffload Vxlan XdpGeneric XdpNative;
    host::refuses_closed_ports over Tap TapOffload Veth VethOffload Vxlan;
    host::refuses_unknown_protocols over Tap Veth;
    host::keeps_silent_towards_broadcasts over Tap Veth XdpGeneric;
    client::pings_in_all_sizes over Tap Veth XdpGeneric;
    client::sends_datagrams_of_all_sizes over Tap TapOffload Veth VethOffload Vxlan XdpGeneric XdpNative;
    client::learns_of_closed_ports over Tap Veth;
    frameworks::datagrams_go_both_ways over TapOffload VethOffload;
    frameworks::closed_ports_are_refused over TapOffload;
    client::learns_of_unreachable_hosts over Tap;
    client::finds_the_maximum_of_a_path over Tap Veth;
    groups::a_bridge_follows_joins_and_leaves over Veth;
    groups::a_router_follows_joins_and_leaves over Veth;
    arp::answers_arping over Tap Veth XdpGeneric;
    arp::is_found_by_duplicate_detection over Tap Veth XdpGeneric;
    arp::counts_conflicts over Tap Veth;
    arp::finds_a_host_that_moved over Tap Veth;
    advertising::does_not_disturb_linux over Veth;
    router::forwards_pings_of_all_sizes over Tap Veth;
    router::shows_in_traceroute over Tap Veth;
    router::tells_tracepath_a_smaller_maximum over Tap Veth;
    router::fragments_for_a_smaller_link over Tap Veth XdpGeneric;
    offload::open_checksums_are_whole_on_a_third_link over TapOffload VethOffload;
    offload::a_router_completes_what_another_wire_does_not over Tap;
    offload::a_router_cuts_what_another_wire_does_not over Tap;
    router::tells_what_it_cannot_deliver over Tap Veth;
    router::records_routes over Tap;
    tools::fping_finds_us over Tap;
    tools::nmap_tells_open_from_closed_ports over Tap Veth;
    tools::nping_is_answered over Tap;
    tools::mtr_sees_the_hop over Tap;
    program::runs_a_graph_file over Tap;
    program::runs_two_hosts_without_privilege over Vxlan;
    apart::conversations_are_heard over Veth;
    apart::messages_to_a_group_are_sent_once over Veth;
    apart::calls_to_all_are_executed over Veth;
    apart::a_group_goes_on_without_a_killed_member over Veth;
    apart::a_store_stays_one_without_a_killed_host over Veth;
    apart::transactions_of_vmtp_are_answered over Veth;
    apart::an_object_moves_between_processes over Veth;
    apart::programs_of_sr_end over Veth;
    apart::a_bridge_knows_the_members over Veth;
    xdp::shares_an_interface over XdpGeneric XdpNative;
    xdp::uses_several_queues over XdpGeneric XdpNative;
    xdp::outlasts_its_interface over XdpGeneric XdpNative;
    xdp::starts_again_at_once over XdpGeneric XdpNative;
    tcp::echoes_streams_of_all_sizes over Tap TapOffload VethOffload VxlanOffload XdpGeneric XdpNative;
    tcp::an_interface_cuts_nothing over VethOffload;
    tcp::asks_a_server over Tap Veth;
    tcp::is_refused over Tap Veth;
    tcp::runs_suffer_by_segments over TapOffload VethOffload XdpGeneric;
    fastopen::linux_opens over Tap Veth;
    fastopen::linux_answers over Tap Veth;
    exec::sockets_are_those_of_linux over Veth;
    exec::behaviours_are_those_of_linux over Veth;
    exec::signals_are_those_of_linux over Veth;
    exec::http_clients_fetch over Veth;
    exec::a_http_server_serves over Veth;
    exec::iperf3_measures over Veth;
    exec::redis_answers over Veth;
    exec::nginx_serves_with_workers over Veth;
    exec::nginx_serves_a_crowd_as_a_daemon over Veth;
    exec::openssl_speaks_tls over Veth;
    exec::ssh_runs_commands over Veth;
    exec::socat_passes_datagrams over Veth;
    exec::iperf_sends_to_groups over Veth;
    exec::avahi_answers over Veth;
    exec::frameworks_serve_programs_at_a_door over Veth;
    streams::carries_all_sizes over TapOffload Veth VethOffload XdpNative;
    streams::outlast_faults over Veth;
    streams::fit_tiny_windows over Tap;
    streams::wait_for_closed_windows over Veth;
    localtalk::programs_understand_each_other over Veth;
    localtalk::a_graph_is_a_node over Veth;
    netem::carries_streams_datagrams_and_calls over Veth;
    paths::become_narrower over Veth;
    paths::are_black_holes over Veth;
    paths::are_marked over Veth;
    paths::are_counted over Veth;
    appletalk::echoes_both_ways over Veth;
    appletalk::a_node_is_defended over Veth;
    appletalk::datagrams_with_wrong_sums_are_dropped over Veth;
    appletalk::zones_are_listed over Veth;
    appletalk::a_node_learns_of_its_cable over Veth;
    appletalk::papd_prints over Veth;
    appletalk::names_are_found_both_ways over Veth;
    appletalk::two_routers_share_a_cable over Veth;
    appletalk::pap_prints_on_ours over Veth;
    appletalk::afpd_opens_a_session over Veth;
    appletalk::afpd_executes_commands over Veth;
    appletalk::afpd_takes_a_file over Veth;
    appletalk::print_prints_by_papd over Veth;
};

/// Tests that keep the machine busy by themselves, that look at this process's own memory and
/// descriptors, or that mistake a late answer (a D-SACK in a capture) for a fault.
const ALONE: &[Test] = tests! {
    rpc::programs_understand_each_other over Veth;
    rpc::serves_c_programs over Tap VethOffload XdpGeneric;
    rpc::gives_c_programs_shorthands over Veth;
    rpc::is_found_by_broadcast over Veth;
    rpc::calls_c_programs over Tap VethOffload XdpGeneric;
    rpc::learns_ports_of_rpcbind over Veth;
    rpc::is_registered_with_rpcbind over Veth;
    rpc::finds_servers_by_broadcast over Veth;
    router::carries_a_stream_of_datagrams over Tap TapOffload Veth;
    host::answers_a_flood_of_pings over Tap Veth XdpGeneric XdpNative;
    xdp::leaves_nothing_behind over XdpGeneric XdpNative;
    many::stand_at_the_same_time over Veth XdpNative;
    many::follow_each_other over Veth;
    library::iperf3_measures over Tap;
    library::curl_fetches over Tap;
    library::brief_words_are_answered over Tap;
    library::a_program_ends_in_order over Tap;
    upgrade::streams_go_on_under_iperf3 over Tap;
    moving::streams_go_on_in_other_processes over Tap;
    granted::programs_that_attach_send_what_they_may over Tap;
    granted::programs_with_channels_send_what_they_may over Tap;
    granted::others_are_served_as_before over Tap;
    hostile::survives_noise over Tap Veth;
    hostile::survives_a_flood_of_syns over Veth;
    hostile::each_server_endures_strangers over Veth;
    hostile::serves_in_spite_of_strangers over Veth;
    hostile::survives_scanners over Tap;
    sweeps::a_killed_node_of_ray_changes_no_octet over Veth;
};
