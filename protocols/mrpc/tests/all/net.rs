//! Hosts with an mrpc each, on a wire that looks like Ethernet.

use core::cell::Cell;
use core::net::Ipv4Addr;
use std::rc::Rc;
use xk_core::{Kernel, ProtocolRef};
use xk_mrpc::wire::{HEADER_LEN, Header};
use xk_mrpc::{Config, ENTRY};
pub(crate) use xk_testkit::calls::*;
pub(crate) use xk_testkit::conformance::messages::pattern;
use xk_testkit::kernel::Lower;

/// The header of a frame.
pub(crate) trait Headed {
    fn header(&self) -> Header;
}

impl Headed for Frame {
    fn header(&self) -> Header {
        Header::parse(self.octets.first_chunk::<HEADER_LEN>().unwrap())
    }
}

/// Boots a host; its boot id follows from the seed.
pub(crate) fn boot(seed: u64, lower: Lower, config: Config, procedure: Procedure) -> Host {
    let add = |cx: &Kernel, bottom: ProtocolRef| xk_mrpc::add(cx, "mrpc", bottom, config);
    Host::boot(seed, lower, &ENTRY, add, procedure)
}

/// The flag of packets for the server half.
pub(crate) fn server_flag() -> u16 {
    xk_mrpc::wire::SERVER
}

/// A lower that looks like Ethernet from above: hosts, 1500 octets.
pub(crate) fn ethernet(own: Ipv4Addr) -> Lower {
    Lower { opt_packet: 1500, ..Lower::host(own, 90) }
}

/// With the waits of an Ethernet.
pub(crate) fn config() -> Config {
    Config { timers: Some(xk_mrpc::timers::ETHERNET), ..Config::default() }
}

/// A client and a server that gives requests back; how often it did.
pub(crate) fn pair() -> (Net, Rc<Cell<u32>>) {
    let count = Rc::default();
    let client = boot(1, ethernet(CLIENT), config(), nothing());
    let server = boot(2, ethernet(SERVER), config(), echo(&count));
    (Net::new(vec![client, server]), count)
}
