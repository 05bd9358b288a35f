//! Two hosts of smoltcp joined by a cable within one process.

use smoltcp::iface::{Config, Context, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::AnySocket;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of the cable. Buffers are used again, as in a device's ring.
pub(crate) struct Endpoint {
    rx: Queue,
    /// Frames that may be received until this is set again.
    credit: Cell<usize>,
    tx: Queue,
    spare: Queue,
}

pub(crate) struct Received(Vec<u8>, Queue);
pub(crate) struct Sending(Queue, Queue);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.0);
        self.1.borrow_mut().push_back(self.0);
        result
    }
}

impl TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut buffer =
            self.1.borrow_mut().pop_front().unwrap_or_else(|| Vec::with_capacity(1514));
        buffer.resize(len, 0);
        let result = f(&mut buffer);
        self.0.borrow_mut().push_back(buffer);
        result
    }
}

impl Device for Endpoint {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending)> {
        let credit = self.credit.get().checked_sub(1)?;
        let frame = self.rx.borrow_mut().pop_front()?;
        self.credit.set(credit);
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

/// One host: its end of the cable, its interface 10.0.0.1 or 10.0.0.2, and its socket.
pub(crate) struct Host<S> {
    pub(crate) device: Endpoint,
    pub(crate) interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    kind: PhantomData<S>,
}

impl<S: AnySocket<'static>> Host<S> {
    fn new(mut device: Endpoint, number: u8, socket: S) -> Self {
        let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, number]).into());
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|list| {
            let _ = list.push(IpCidr::new(IpAddress::v4(10, 0, 0, number), 24));
        });
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        Self { device, interface, sockets, handle, kind: PhantomData }
    }

    pub(crate) fn socket(&mut self) -> &mut S {
        self.sockets.get_mut(self.handle)
    }

    /// The socket, and what it is to connect with.
    pub(crate) fn connecting(&mut self) -> (&mut S, &mut Context) {
        (self.sockets.get_mut(self.handle), self.interface.context())
    }

    pub(crate) fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
    }
}

impl Endpoint {
    /// Number of frames that wait to be received.
    pub(crate) fn waiting(&self) -> usize {
        self.rx.borrow().len()
    }

    /// So many frames may be received from now on.
    pub(crate) fn allow(&self, frames: usize) {
        self.credit.set(frames);
    }
}

/// Both ends of a cable, with sockets for 10.0.0.1 and 10.0.0.2.
pub(crate) fn pair<S: AnySocket<'static>>([a, b]: [S; 2]) -> (Host<S>, Host<S>) {
    let (there, back, spare) = (Queue::default(), Queue::default(), Queue::default());
    let end = |rx: &Queue, tx: &Queue| Endpoint {
        rx: Rc::clone(rx),
        credit: Cell::new(usize::MAX),
        tx: Rc::clone(tx),
        spare: Rc::clone(&spare),
    };
    (Host::new(end(&back, &there), 1, a), Host::new(end(&there, &back), 2, b))
}
