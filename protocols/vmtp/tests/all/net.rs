//! Hosts with a vmtp each, on a wire that looks like Ethernet.

use core::cell::Cell;
use core::net::Ipv4Addr;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::{Kernel, ProtocolRef};
pub(crate) use xk_testkit::calls::*;
pub(crate) use xk_testkit::conformance::messages::pattern;
use xk_testkit::kernel::Lower;
use xk_vmtp::wire::{HEADER_OCTETS, Header};
use xk_vmtp::{ENTRY, Settings};

/// The header of a frame.
pub(crate) trait Headed {
    fn header(&self) -> Header;
}

impl Headed for Frame {
    fn header(&self) -> Header {
        Header::parse(self.octets.first_chunk::<HEADER_OCTETS>().unwrap())
    }
}

/// Boots a host; its boot id follows from the seed.
pub(crate) fn boot(seed: u64, lower: Lower, config: Settings, procedure: Procedure) -> Host {
    let add = |cx: &Kernel, bottom: ProtocolRef| xk_vmtp::add(cx, "vmtp", bottom, config);
    Host::boot(seed, lower, &ENTRY, add, procedure)
}

/// Boots a host that passes requests of procedures from 3 on to another.
pub(crate) fn forwarding(seed: u64, lower: Lower, to: Ipv4Addr) -> Host {
    let add = |cx: &Kernel, bottom: ProtocolRef| {
        let (mut params, mut route) = (Params::default(), Params::default());
        route.set("first", Value::Integer(3));
        route.set("last", Value::Integer(9));
        route.set("to", Value::Text(to.to_string()));
        params.add_block("route", route);
        params.set("timers", Value::Text("near".into()));
        ENTRY.add(cx, "vmtp", &[bottom], &params).unwrap()
    };
    Host::boot(seed, lower, &ENTRY, add, nothing())
}

/// A lower that looks like Ethernet from above: hosts, 1500 octets.
pub(crate) fn ethernet(own: Ipv4Addr) -> Lower {
    Lower { opt_packet: 1500, ..Lower::host(own, 81) }
}

/// With the waits of an Ethernet.
pub(crate) fn config() -> Settings {
    Settings { timers: Some(xk_vmtp::NEAR), ..Settings::default() }
}

/// A client and a server that gives requests back; how often it did.
pub(crate) fn pair() -> (Net, Rc<Cell<u32>>) {
    let count = Rc::default();
    let client = boot(1, ethernet(CLIENT), config(), nothing());
    let server = boot(2, ethernet(SERVER), config(), echo(&count));
    (Net::new(vec![client, server]), count)
}
