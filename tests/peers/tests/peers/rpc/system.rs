//! Debian's programs among themselves: what the other tests stand on is so.

use xk_peers::testbed::{DEVICE, PROGRAM_TIME_MAX, Testbed, Wire, end};

use super::{BAD, GOOD, KNOWN, TRIAL, beside, call, needs_rpc, program, rpcbind, serve};

const SERVER: &str = "10.9.0.1";
const PORT: u16 = 2049;

pub(crate) fn programs_understand_each_other(_: Wire) {
    needs_rpc!("rpcbind", "rpcinfo");
    let testbed = Testbed::new("rpc-system");
    let (left, right) = (testbed.linux(), testbed.linux());
    testbed.net.veth(&left, DEVICE, &right, "xk1").unwrap();
    for (space, device, address) in [(&left, DEVICE, "10.9.0.1/24"), (&right, "xk1", "10.9.0.2/24")]
    {
        space.address(device, address).unwrap();
        space.offload_off(device).unwrap();
        space.up("lo").unwrap();
    }
    testbed.capture(&left, DEVICE, "linux");
    let server = serve(&left, PORT);
    for transport in ["udp", "tcp"] {
        call(&right, transport, SERVER, PORT, GOOD);
        call(&right, transport, SERVER, PORT, KNOWN);
        call(&right, transport, SERVER, PORT, BAD);
    }
    let _status = end(&server);
    // By way of the port mapper.
    let binder = rpcbind(&left, "");
    let id = binder.id().to_string();
    let path = program("server");
    let server = left.spawn(&beside(&id, &[&path, "0", "register"])).unwrap();
    server.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
    for transport in ["udp", "tcp"] {
        call(&right, transport, SERVER, 0, &GOOD[..1]);
    }
    let said = right.exec(&["rpcinfo", "-T", "udp", SERVER, TRIAL]).unwrap();
    assert!(said.contains("version 2 ready and waiting"), "{said}");
    let _status = end(&server);
    let _status = end(&binder);
    testbed.judge(&[("Connection reset", "a server that ends")]);
}
