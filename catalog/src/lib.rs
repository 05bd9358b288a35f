//! The one list of the protocols and wires that graphs can use.
//!
//! A protocol is in the list or it is not: there is no feature switch per protocol.
//! `cargo xtask new-protocol NAME` adds a line; by hand, add the crate to this crate's manifest and
//! its `ENTRY` between the markers.
//!
//! # Example
//! ```
//! let catalog = xk_catalog::standard();
//! let null = catalog.find("null").expect("it is in the list");
//! assert_eq!(null.header_octets, 4);
//! assert_eq!(catalog.numbers().find_kinds("null", "null"), Some(1));
//! ```

use xk_core::Entry;
use xk_core::graph::Catalog;

/// Every protocol and every wire, sorted by crate; then the other frameworks, with the protocols
/// written for each, and the adapters between them.
pub static PROTOCOLS: &[&Entry] = &[
    // catalog:protocols
    &xk_aarp::ENTRY,
    &xk_aep::ENTRY,
    &xk_arp::ENTRY,
    &xk_asp::ENTRY,
    &xk_atp::ENTRY,
    &xk_auth::authnone::ENTRY,
    &xk_auth::authshort::ENTRY,
    &xk_auth::authsys::ENTRY,
    &xk_caller::ENTRY,
    &xk_channel::ENTRY,
    &xk_chatter::ENTRY,
    &xk_ddp::ENTRY,
    &xk_deadline::ENTRY,
    &xk_directory::ENTRY,
    &xk_discard::ENTRY,
    &xk_echo::ENTRY,
    &xk_eth::ENTRY,
    &xk_fanout::ENTRY,
    &xk_fault::ENTRY,
    &xk_fragment::ENTRY,
    &xk_groupcall::ENTRY,
    &xk_host::ENTRY,
    &xk_host::TCP_ENTRY,
    &xk_host::UDP_ENTRY,
    &xk_icmp::ENTRY,
    &xk_igmp::ENTRY,
    &xk_ip::ENTRY,
    &xk_llap::ENTRY,
    &xk_ltoudp::ENTRY,
    &xk_loopback::ENTRY,
    &xk_membership::ENTRY,
    &xk_mrpc::ENTRY,
    &xk_nbp::ENTRY,
    &xk_netio::node::ENTRY,
    &xk_noise::ENTRY,
    &xk_null::ENTRY,
    &xk_objects::objinv::ENTRY,
    &xk_objects::objloc::ENTRY,
    &xk_objects::objmove::ENTRY,
    &xk_order::ENTRY,
    &xk_packet::ENTRY,
    &xk_pcap::ENTRY,
    &xk_portmap::ENTRY,
    &xk_printer::ENTRY,
    &xk_printer::PRINT_ENTRY,
    &xk_probe::ENTRY,
    &xk_procedures::ENTRY,
    &xk_psync::ENTRY,
    &xk_rdgram::ENTRY,
    &xk_registry::ENTRY,
    &xk_replica::ENTRY,
    &xk_replica::CLIENT_ENTRY,
    &xk_resource::ENTRY,
    &xk_select::ENTRY,
    &xk_select::FORWARD_ENTRY,
    &xk_reqrep::ENTRY,
    &xk_rm::ENTRY,
    &xk_rtmp::ENTRY,
    &xk_shm::ENTRY,
    &xk_sim::ENTRY,
    &xk_sr::ENTRY,
    &xk_sunprog::ENTRY,
    &xk_sunselect::ENTRY,
    &xk_tap::ENTRY,
    &xk_tcp::ENTRY,
    &xk_tracer::ENTRY,
    &xk_udp::ENTRY,
    &xk_vip::ENTRY,
    &xk_vip::vipaddr::ENTRY,
    &xk_vip::vipadv::ENTRY,
    &xk_vip::vipsize::ENTRY,
    &xk_vmtp::ENTRY,
    &xk_xdp::ENTRY,
    &xk_zip::ENTRY,
    // catalog:protocols
    &xk_bsd::ENTRY,
    &xk_bsd::sockets::ENTRY,
    &xk_bsd_appletalk::AEP,
    &xk_bsd_appletalk::ATP,
    &xk_bsd_appletalk::DDP,
    &xk_bsd_appletalk::NBP,
    &xk_bsd_appletalk::RTMP,
    &xk_bsd_inet::ETHER,
    &xk_bsd_inet::IP,
    &xk_bsd_inet::UDP,
    &xk_streams::ENTRY,
    &xk_streams::tli::ENTRY,
    &xk_streams_appletalk::aep::ENTRY,
    &xk_streams_appletalk::atp::ENTRY,
    &xk_streams_appletalk::ddp::ENTRY,
    &xk_streams_appletalk::nbp::ENTRY,
    &xk_streams_appletalk::rtmp::ENTRY,
    &xk_streams_inet::ether::ENTRY,
    &xk_streams_inet::udp::ENTRY,
    &xk_adapters::BSD_ON_STREAMS,
    &xk_adapters::BSD_ON_XK,
    &xk_adapters::STREAMS_ON_BSD,
    &xk_adapters::STREAMS_ON_XK,
    &xk_adapters::XK_ON_BSD,
    &xk_adapters::XK_ON_STREAMS,
];

/// The entry of this kind in the standard list.
pub fn find(kind: &str) -> Option<&'static Entry> {
    standard().find(kind)
}

/// The standard list as what graphs are checked against.
///
/// # Panics
/// If two entries contradict each other; a test keeps that from happening.
pub fn standard() -> Catalog {
    Catalog::new(PROTOCOLS).unwrap_or_else(|error| panic!("the standard list: {error}"))
}

#[cfg(test)]
mod tests;
