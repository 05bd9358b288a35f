//! An xk graph above devices of smoltcp.

use crate::program::interface;
use smoltcp::iface::SocketSet;
use smoltcp::phy::{Device, DeviceCapabilities, FaultInjector, Medium, RxToken, TxToken};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::{Kernel, ProtocolRef};
use xk_run::{Idle, Runner, real_kernel};
use xk_smoltcp::{Wake, wire};

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a cable, whose other end has the queues the other way round.
pub(crate) struct Cable {
    pub(crate) from: Queue,
    pub(crate) to: Queue,
    pub(crate) medium: Medium,
}

pub(crate) struct Taken(Vec<u8>);
pub(crate) struct Given<'a>(&'a Queue);

impl RxToken for Taken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Given<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.borrow_mut().push_back(frame);
        result
    }
}

impl Device for Cable {
    type RxToken<'a> = Taken;
    type TxToken<'a> = Given<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Taken, Given<'_>)> {
        let frame = self.from.borrow_mut().pop_front()?;
        Some((Taken(frame), Given(&self.to)))
    }

    /// Busy with four frames.
    fn transmit(&mut self, _: Instant) -> Option<Given<'_>> {
        (self.to.borrow().len() < 4).then_some(Given(&self.to))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = self.medium;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

pub(crate) fn cable(medium: Medium) -> (Cable, Cable) {
    let (one, other) = (Queue::default(), Queue::default());
    (
        Cable { from: Rc::clone(&one), to: Rc::clone(&other), medium },
        Cable { from: other, to: one, medium },
    )
}

/// A stack of ours above a device, 10.0.0.1, which answers datagrams at UDP port 7.
fn stack(device: impl Device + 'static) -> (Rc<Kernel>, ProtocolRef) {
    let cx = Rc::new(real_kernel(8 << 20).unwrap());
    let medium = device.capabilities().medium;
    let below = wire(&cx, "wire", device, Wake::every_ms(1), [2, 0, 0, 0, 0, 1]);
    let none = Params::default();
    let add = |kind: &str, lower: &ProtocolRef, params: &Params| {
        let entry = xk_catalog::PROTOCOLS.iter().find(|entry| entry.kind == kind).unwrap();
        for number in entry.type_numbers() {
            cx.numbers_mut().add(number).unwrap();
        }
        entry.add(&cx, kind, std::slice::from_ref(lower), params).unwrap()
    };
    let under = match medium {
        Medium::Ethernet => add("arp", &add("eth", &below, &none), &none),
        _ => below.clone(),
    };
    let address = Params::from([("address", Value::Text("10.0.0.1/24".into()))]);
    let mut params = Params::default();
    params.add_block("address", address);
    let ip = add("ip", &under, &params);
    add("icmp", &ip, &none);
    let udp = add("udp", &ip, &none);
    add("echo", &udp, &Params::from([("port", Value::Integer(7))]));
    (cx, below)
}

/// Turns the stack's loop and smoltcp's until `done`.
fn turn(cx: &Rc<Kernel>, mut step: impl FnMut(), done: impl Fn() -> bool) {
    let runner = Runner::new(Rc::clone(cx), Idle::Sleep).unwrap();
    runner.start().map_err(|(protocol, error)| format!("{}: {error}", protocol.name())).unwrap();
    for _ in 0..100_000 {
        if done() {
            break;
        }
        runner.turn();
        step();
    }
    assert!(done());
    drop(runner);
    cx.stop();
}

/// smoltcp's UDP asks ours, over its own kind of device, its fault injector between.
fn datagrams(medium: Medium, losses: u8) {
    let (ours, mut theirs) = cable(medium);
    let mut lossy = FaultInjector::new(ours, 1);
    lossy.set_drop_chance(losses);
    let (cx, below) = stack(lossy);
    let mut interface = interface(&mut theirs, 2);
    let mut set = SocketSet::new(vec![]);
    let handle = set.add(crate::program::udp_socket());
    set.get_mut::<udp::Socket<'_>>(handle).bind(9000).unwrap();
    let (heard, mut sent, begun) = (RefCell::new(0), 0, std::time::Instant::now());
    let step = || {
        let now = Instant::from_micros(begun.elapsed().as_micros() as i64);
        interface.poll(now, &mut theirs, &mut set);
        let socket = set.get_mut::<udp::Socket<'_>>(handle);
        while let Ok((octets, _)) = socket.recv() {
            assert_eq!(octets, [9; 700]);
            *heard.borrow_mut() += 1;
        }
        // One after the other, and again what is lost.
        if sent == *heard.borrow() || losses > 0 && socket.send_queue() == 0 {
            let to = IpEndpoint::new(IpAddress::v4(10, 0, 0, 1), 7);
            socket.send_slice(&[9; 700], to).unwrap();
            sent += 1;
        }
        if sent % 8 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    turn(&cx, step, || *heard.borrow() >= 100);
    assert_eq!(below.head().drops().total(), 0);
}

#[test]
fn our_udp_answers_smoltcp_s_over_a_device_of_smoltcp_s() {
    datagrams(Medium::Ethernet, 0);
    datagrams(Medium::Ip, 0);
    datagrams(Medium::Ethernet, 10);
}

#[test]
fn a_busy_device_is_waited_for_and_no_longer_than_there_is_room() {
    let (ours, theirs) = cable(Medium::Ip);
    let cx = Rc::new(real_kernel(8 << 20).unwrap());
    let below = wire(&cx, "wire", ours, Wake::every_ms(1), [0; 6]);
    struct Top;
    impl xk_core::Protocol for Top {}
    let top = cx.add_protocol("top", "top", Top);
    let ends = xk_core::Participants::default();
    let session = below.open(&cx, xk_core::Upper::new(&top), ends).unwrap();
    let mut results = Vec::new();
    for _ in 0..300 {
        results.push(session.push(&cx, cx.pool().copy_from(0, &[1; 40]).unwrap()));
    }
    let full = Err(xk_core::object::PushError::QueueFull);
    assert_eq!(results.iter().filter(|result| **result == full).count(), 300 - 256 - 4);
    assert_eq!(below.head().drops().of(&xk_core::reason::QUEUE_FULL), 40);
    let wire = below.wire().unwrap();
    assert!(wire.wants_writable());
    let mut frames = 0;
    while !theirs.from.borrow().is_empty() {
        frames += theirs.from.borrow_mut().drain(..).count();
        wire.flush(&cx, &below);
    }
    assert_eq!((frames, wire.wants_writable()), (260, false));
    let too_long = session.push(&cx, cx.pool().copy_from(0, &[1; 1515]).unwrap());
    assert_eq!(too_long, Err(xk_core::object::PushError::TooBig));
    drop(session);
    cx.stop();
}
