//! All tests of this crate that need no process of their own: one program, linked once.

mod datagrams;
mod laws;
mod offload;

use xk_core::graph::{Params, Value};
use xk_core::{Kernel, ProtocolRef};
use xk_testkit::kernel::Bottom;

fn udp(cx: &Kernel, ip: &Bottom, sessions_max: usize, checksum: bool) -> ProtocolRef {
    let sessions_max = Value::Integer(sessions_max as i64);
    let params =
        Params::from([("sessions_max", sessions_max), ("checksum", Value::Bool(checksum))]);
    xk_udp::ENTRY
        .add(cx, "udp", core::slice::from_ref(ip.protocol()), &params)
        .expect("it is built")
}
