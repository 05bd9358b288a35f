//! The same with smoltcp: two interfaces, a queue of frames each way, UDP sockets, checksums on.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of the cable. Buffers are used again, as in a device's ring.
struct End {
    rx: Queue,
    tx: Queue,
    spare: Queue,
}

struct Received(Vec<u8>, Queue);
struct Sending(Queue, Queue);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.0);
        self.1.borrow_mut().push_back(self.0);
        result
    }
}

impl TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut buffer = self
            .1
            .borrow_mut()
            .pop_front()
            .unwrap_or_else(|| Vec::with_capacity(1514));
        buffer.resize(len, 0);
        let result = f(&mut buffer);
        self.0.borrow_mut().push_back(buffer);
        result
    }
}

impl Device for End {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending)> {
        let frame = self.rx.borrow_mut().pop_front()?;
        Some((
            Received(frame, Rc::clone(&self.spare)),
            Sending(Rc::clone(&self.tx), Rc::clone(&self.spare)),
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending> {
        Some(Sending(Rc::clone(&self.tx), Rc::clone(&self.spare)))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Host {
    device: End,
    interface: Interface,
    sockets: SocketSet<'static>,
    udp: SocketHandle,
}

impl Host {
    fn new(mut device: End, number: u8) -> Self {
        let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, number]).into());
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            let _ = list.push(IpCidr::new(IpAddress::v4(10, 0, 0, number), 24));
        });
        let buffer =
            || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 64], vec![0; 128 * 1024]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket
            .bind(if number == 1 { 5000 } else { 7 })
            .expect("a fresh socket binds");
        let mut sockets = SocketSet::new(vec![]);
        let udp = sockets.add(socket);
        Self {
            device,
            interface,
            sockets,
            udp,
        }
    }

    fn poll(&mut self) {
        self.interface
            .poll(Instant::ZERO, &mut self.device, &mut self.sockets);
    }
}

/// Sends and receives messages of this size, in batches.
pub(crate) fn exchange(octets: usize, batch: u64) -> impl FnMut(u64) {
    let (there, back, spare) = (Queue::default(), Queue::default(), Queue::default());
    let end = |rx: &Queue, tx: &Queue| End {
        rx: Rc::clone(rx),
        tx: Rc::clone(tx),
        spare: Rc::clone(&spare),
    };
    let mut a = Host::new(end(&back, &there), 1);
    let mut b = Host::new(end(&there, &back), 2);
    let payload = vec![0; octets];
    let peer = IpEndpoint::new(IpAddress::v4(10, 0, 0, 2), 7);
    let mut turn = move |count: u64| {
        let socket = a.sockets.get_mut::<udp::Socket<'_>>(a.udp);
        for _ in 0..count {
            socket
                .send_slice(black_box(&payload), peer)
                .expect("the socket's buffer has room");
        }
        a.poll();
        b.poll();
        let socket = b.sockets.get_mut::<udp::Socket<'_>>(b.udp);
        let mut received = 0;
        while let Ok((data, _)) = socket.recv() {
            black_box(data.len());
            received += 1;
        }
        a.poll();
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
