//! UDP in one process by smoltcp: two interfaces, a queue of frames each way, UDP sockets,
//! checksums on.

use crate::smoltcp_cable;
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::hint::black_box;

fn socket(port: u16) -> udp::Socket<'static> {
    let buffer =
        || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 64], vec![0; 128 * 1024]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    socket.bind(port).expect("a fresh socket binds");
    socket
}

/// Sends and receives messages of this size, in batches.
pub(crate) fn exchange(octets: usize, batch: u64) -> impl FnMut(u64) {
    let (mut a, mut b) = smoltcp_cable::pair([5000, 7].map(socket));
    let payload = vec![0; octets];
    let peer = IpEndpoint::new(IpAddress::v4(10, 0, 0, 2), 7);
    let mut turn = move |count: u64| {
        let socket = a.socket();
        for _ in 0..count {
            socket.send_slice(black_box(&payload), peer).expect("the socket's buffer has room");
        }
        a.poll(Instant::ZERO);
        b.poll(Instant::ZERO);
        let socket = b.socket();
        let mut received = 0;
        while let Ok((data, _)) = socket.recv() {
            black_box(data.len());
            received += 1;
        }
        a.poll(Instant::ZERO);
        received
    };
    // The first turns resolve the address.
    while turn(1) == 0 {}
    move |operations| {
        let mut left = operations;
        let mut received = 0;
        while left > 0 {
            let now = left.min(batch);
            received += turn(now);
            left -= now;
        }
        assert_eq!(received, operations, "everything sent arrived");
    }
}
