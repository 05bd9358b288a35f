//! A LocalTalk node in datagrams of UDP (LToUDP), by tailtalk-core.
//!
//!     localtalk SEED [NAME SOCKET]
//!
//! It claims a node number and prints `node N`, answers echoes and, if it has a name, lookups.
//! Commands on its input: `echo NODE TEXT` prints `echoed NODE TEXT` when the answer comes;
//! `find NAME` prints `found NODE SOCKET` for each answer. It ends with its input.

use std::io::BufRead;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tailtalk_core::stack::{Stack, StackConfig, StackEvent};
use tailtalk_packets::aarp::AppleTalkAddress;
use tailtalk_packets::ddp::DdpProtocolType;
use tailtalk_packets::nbp::{EntityName, NbpPacket};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 76, 84);
const PORT: u16 = 1954;
/// LLAP's enquiry.
const ENQ: u8 = 0x81;
const PING: u8 = 200;
const FIND: u8 = 201;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seed: u32 = arguments[0].parse().expect("a seed");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("the port");
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED).expect("the group");
    socket.set_multicast_ttl_v4(1).expect("a setting");
    socket.set_multicast_loop_v4(false).expect("a setting");
    socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a setting");
    let (say, said) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                break;
            }
        }
    });
    let begun = Instant::now();
    let now = || begun.elapsed().as_micros() as u64;
    let config = StackConfig { seed, auto_ack_enq: true, ..StackConfig::default() };
    let mut stack = Stack::new(config, now());
    for own in [PING, FIND] {
        stack.open_socket(Some(own)).expect("a socket");
    }
    if let [_, name, at] = &arguments[..] {
        let name = EntityName::try_from(name.as_str()).expect("a name");
        stack.nbp_register(name, at.parse().expect("a socket")).expect("room for it");
    }
    let sender = std::process::id().to_be_bytes();
    let mut buffer = [0; 2048];
    loop {
        if let Ok(octets) = socket.recv(&mut buffer) {
            if octets > 6 && buffer[..4] != sender {
                // The stack takes what has its own number as the source for an echo of what it
                // sent, and so is every enquiry for its number. Senders have told that apart.
                if buffer[6] == ENQ {
                    buffer[5] = 0;
                }
                stack.handle_frame(&buffer[4..octets], now());
            }
        }
        stack.poll(now());
        match said.try_recv() {
            Ok(line) => command(&mut stack, &line),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        while let Some(frame) = stack.poll_transmit() {
            let datagram = [&sender[..], &frame.to_bytes()].concat();
            socket.send_to(&datagram, (GROUP, PORT)).expect("the group is reached");
        }
        while let Some(event) = stack.poll_event() {
            tell(event);
        }
    }
}

fn command(stack: &mut Stack, line: &str) {
    let words: Vec<&str> = line.splitn(3, ' ').collect();
    let at = |node_number| AppleTalkAddress { network_number: 0, node_number };
    let sent = match words[..] {
        ["echo", node, text] => {
            let node = node.parse().expect("a node");
            let octets = [&[1], text.as_bytes()].concat();
            stack.send_ddp(at(node), 4, PING, DdpProtocolType::Aep, &octets)
        }
        ["find", name] => {
            let name = EntityName::try_from(name).expect("a name");
            let from = stack.our_address().expect("a node").node_number;
            // Function 2, LkUp, of one name, to be answered here.
            let mut octets = vec![0x21, 1, 0, 0, from, FIND, 0];
            for part in [name.object, name.entity_type, name.zone] {
                let part = part.to_string();
                octets.push(part.len() as u8);
                octets.extend_from_slice(part.as_bytes());
            }
            stack.send_ddp(at(255), 2, FIND, DdpProtocolType::Nbp, &octets)
        }
        _ => panic!("no command: {line}"),
    };
    sent.expect("it is sent");
}

fn tell(event: StackEvent) {
    match event {
        StackEvent::AddressAcquired(at) => println!("node {}", at.node_number),
        StackEvent::NetworkNumberChanged(number) => println!("network {number}"),
        StackEvent::Datagram(datagram) if datagram.dst_socket == PING => {
            let text = String::from_utf8_lossy(datagram.payload.get(1..).unwrap_or_default());
            println!("echoed {} {text}", datagram.src.node_number);
        }
        StackEvent::Datagram(datagram) => {
            let packet = NbpPacket::from_bytes(&datagram.payload).expect("an answer");
            for tuple in packet.tuples {
                println!("found {} {}", tuple.node_id, tuple.socket_number);
            }
        }
    }
}
