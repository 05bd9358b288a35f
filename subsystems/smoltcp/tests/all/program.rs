//! Hosts of smoltcp, and graphs beside them.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, Medium};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Address};
use std::cell::RefCell;
use std::rc::Rc;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate};
use xk_core::graph::Catalog;
use xk_sim::World;

/// An interface 10.0.0.`number`/24 on a device, with routes to everywhere.
pub(crate) fn interface(device: &mut impl Device, number: u8) -> Interface {
    let hardware = match device.capabilities().medium {
        Medium::Ethernet => EthernetAddress([2, 0, 0, 0, 0, number]).into(),
        _ => HardwareAddress::Ip,
    };
    let mut interface = Interface::new(Config::new(hardware), device, Instant::ZERO);
    interface.update_ip_addrs(|list| {
        list.push(IpCidr::new(IpAddress::v4(10, 0, 0, number), 24)).unwrap();
    });
    interface.routes_mut().add_default_ipv4_route(Ipv4Address::new(10, 0, 0, 254)).unwrap();
    interface
}

pub(crate) fn tcp_socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; 8192]);
    tcp::Socket::new(buffer(), buffer())
}

pub(crate) fn udp_socket() -> udp::Socket<'static> {
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 16], vec![0; 16 << 10]);
    udp::Socket::new(buffer(), buffer())
}

/// Sends all octets and takes as many back, then closes.
pub(crate) struct Talk {
    pub(crate) sent: Vec<u8>,
    at: usize,
    pub(crate) back: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(octets: usize) -> Rc<RefCell<Self>> {
        let sent = (0..octets).map(|at| (at ^ at >> 8) as u8).collect();
        Rc::new(RefCell::new(Self { sent, at: 0, back: Vec::new() }))
    }

    pub(crate) fn turn(&mut self, socket: &mut tcp::Socket<'_>) {
        if socket.can_send() && self.at < self.sent.len() {
            self.at += socket.send_slice(&self.sent[self.at..]).unwrap();
        }
        while socket.can_recv() {
            socket.recv(|octets| (octets.len(), self.back.extend_from_slice(octets))).unwrap();
        }
        if self.is_done() {
            socket.close();
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.back.len() >= self.sent.len()
    }
}

/// All that comes goes back.
pub(crate) fn echo(socket: &mut tcp::Socket<'_>) {
    while socket.can_recv() && socket.can_send() {
        let mut octets = [0; 1024];
        let room = (socket.send_capacity() - socket.send_queue()).min(octets.len());
        let count = socket.recv_slice(&mut octets[..room]).unwrap();
        socket.send_slice(&octets[..count]).unwrap();
    }
    if !socket.may_recv() && socket.may_send() && socket.send_queue() == 0 {
        socket.close();
    }
}

pub(crate) fn sockets(socket: tcp::Socket<'static>) -> (SocketSet<'static>, SocketHandle) {
    let mut set = SocketSet::new(vec![]);
    let handle = set.add(socket);
    (set, handle)
}

/// The world of a graph, not started.
pub(crate) fn world(text: &str, seed: u64) -> (CheckedGraph, World) {
    let catalog = Catalog::new(xk_catalog::PROTOCOLS).unwrap();
    let graph = check(text, "test", &catalog).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let world = simulate(&graph, config).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    (graph, world)
}
