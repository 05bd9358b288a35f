//! Operations of the stack that the octets of an input select.

use super::{BEYOND, HELD_MAX, ME, ME_BEYOND, OWN, Stack, YOU};
use crate::frame::{self, ETH_OCTETS, Ether, ICMP, IP_OCTETS, Ip, PEER, UDP};
use core::net::Ipv4Addr;
use xk_core::object::PushError;
use xk_core::participant::Participants;
use xk_core::reason;

/// Operations by number: the lower half of an operation's first octet.
pub mod code {
    /// The argument is a frame.
    pub const RAW: u8 = 0;
    /// The argument is the payload of a frame; the place chooses destination and type.
    pub const ETHERNET: u8 = 1;
    /// Source, destination, protocol, fragment (2), time to live, number of option octets; options
    /// and payload.
    pub const IP: u8 = 2;
    /// Source, destination, both ports by their index, then the payload.
    pub const UDP: u8 = 3;
    /// Source, destination, type and code, then the message from the second word on.
    pub const ICMP: u8 = 4;
    /// Type and code of an error about the frame that was sent last.
    pub const ERROR: u8 = 5;
    /// The answer to the frame that was sent last.
    pub const ANSWER: u8 = 6;
    /// The argument names participants; the place chooses the layer on which they are opened.
    pub const OPEN: u8 = 7;
    /// The argument goes into the held session of this place, repeated as often as its first octet
    /// says.
    pub const PUSH: u8 = 8;
    /// Closes the held session of this place.
    pub const CLOSE: u8 = 9;
    /// Time passes.
    pub const PASS: u8 = 10;
    /// The wire refuses what is pushed, or takes it again.
    pub const FAIL: u8 = 11;
    /// The application on top refuses messages, or sends them back, or neither.
    pub const MOOD: u8 = 12;
    /// A datagram in fragments: source, destination, protocol, octets of a fragment by eight, and
    /// the order.
    pub const FRAGMENTS: u8 = 13;
    /// The argument names participants, which are enabled on the layer of this place.
    pub const ENABLE: u8 = 14;
    /// An ARP packet: operation, sender and target by their index.
    pub const ARP: u8 = 15;
}

/// Ports by index: those that are served, others, and none.
const PORTS: &[u16] = &[7, 9, 53, 1024, 0, 65535];

/// Layers by place, for opening and enabling.
const LAYERS: &[&str] = &["udp", "icmp", "ip", "arp", "eth"];

/// Hosts by index: some of ours, some on the links, some that may not occur.
fn host(index: u8) -> Ipv4Addr {
    match index {
        0 => ME,
        1 => YOU,
        2 => BEYOND,
        3 => ME_BEYOND,
        4 => Ipv4Addr::BROADCAST,
        5 => Ipv4Addr::new(192, 0, 2, 255),
        6 => Ipv4Addr::new(224, 0, 0, 5),
        7 => Ipv4Addr::UNSPECIFIED,
        8 => Ipv4Addr::LOCALHOST,
        9 => Ipv4Addr::new(203, 0, 113, 7),
        10 => Ipv4Addr::new(192, 0, 2, 254),
        11 => Ipv4Addr::new(198, 51, 100, 255),
        index => Ipv4Addr::new(192, 0, 2, index),
    }
}

fn own(wire: usize) -> Ether {
    let mut own = OWN;
    own[5] += (wire & 1) as u8;
    own
}

impl Stack {
    /// Does one operation.
    pub(super) fn operate(&self, operation: u8, place: usize, argument: &[u8]) {
        let wire = self.bottom(place).1;
        match operation {
            code::RAW => self.arrive(argument, place, place / 2 * 8),
            code::ETHERNET => self.hear_ethernet(place, argument),
            code::IP => self.hear_ip(place, argument),
            code::UDP => {
                if let Some((&[src, dst, from, to], payload)) = argument.split_first_chunk() {
                    let port = |at: u8| PORTS[usize::from(at) % PORTS.len()];
                    let hosts = (host(src), host(dst));
                    let datagram = frame::udp(hosts, (port(from), port(to)), payload);
                    self.hear(wire, place, (hosts, UDP), &datagram);
                }
            }
            code::ICMP => {
                if let Some((&[src, dst, kind, code], rest)) = argument.split_first_chunk() {
                    let message = frame::icmp(kind, code, rest);
                    self.hear(wire, place, ((host(src), host(dst)), ICMP), &message);
                }
            }
            code::ERROR => self.hear_error(wire, argument),
            code::ANSWER => {
                let answer = frame::answer(&self.last[wire].borrow());
                if let Some(answer) = answer {
                    self.arrive(&answer, wire, argument.len());
                }
            }
            code::OPEN => self.open(place, argument),
            code::PUSH => self.push(place, argument),
            code::CLOSE => self.close(place),
            code::PASS => self.pass(place),
            code::FAIL => self.fail(place),
            code::MOOD => {
                let refuses = place & 1 == 1;
                self.top.refuse(refuses.then_some(&reason::NO_PORT));
                self.top.echo(place & 2 == 2);
                self.top.refuse_open((place & 4 == 4).then_some(&reason::TABLE_FULL));
            }
            code::FRAGMENTS => self.hear_fragments(place, argument),
            code::ENABLE => {
                if let Some(participants) = read(argument) {
                    let layer = LAYERS[place % LAYERS.len()];
                    self.raw.set(self.raw.get() || layer == "eth");
                    let _ = self.top.enable(&self.cx, self.find(layer), participants);
                }
            }
            _ => {
                if let Some(&[operation, sender, target]) = argument.first_chunk() {
                    let sender = (PEER, host(sender));
                    let target = (own(wire), host(target));
                    let packet = frame::arp(u16::from(operation), sender, target);
                    let to = if place & 8 == 0 { [0xff; 6] } else { own(wire) };
                    let frame = frame::ethernet(to, PEER, frame::TYPE_ARP, &packet);
                    self.arrive(&frame, wire, 0);
                }
            }
        }
    }

    fn hear_ethernet(&self, place: usize, payload: &[u8]) {
        let (_, wire) = self.bottom(place);
        let to = match place / 2 % 4 {
            0 => own(wire),
            1 => [0xff; 6],
            2 => [1, 0, 0x5e, 0, 0, 5],
            _ => PEER,
        };
        let number = match place / 8 {
            0 => frame::TYPE_IP,
            _ => frame::TYPE_ARP,
        };
        self.arrive(&frame::ethernet(to, PEER, number, payload), wire, place);
    }

    /// A packet of these hosts and this protocol arrives; the place says whether it is cut into
    /// slices.
    fn hear(&self, wire: usize, place: usize, to: ((Ipv4Addr, Ipv4Addr), u8), payload: &[u8]) {
        let ip = Ip {
            src: to.0.0,
            dst: to.0.1,
            protocol: to.1,
            id: 1,
            fragment: 0,
            ttl: 2,
            options: &[],
        };
        self.hear_datagram(wire, place / 2 * 7, to.0.1, &ip.datagram(payload));
    }

    fn hear_datagram(&self, wire: usize, cut: usize, dst: Ipv4Addr, datagram: &[u8]) {
        let ether = match dst {
            dst if dst.is_broadcast() => [0xff; 6],
            dst if dst.octets()[3] == 255 => [0xff; 6],
            dst if dst.is_multicast() => [1, 0, 0x5e, 0, 0, 5],
            _ => own(wire),
        };
        let frame = frame::ethernet(ether, PEER, frame::TYPE_IP, datagram);
        self.arrive(&frame, wire, cut);
    }

    fn hear_ip(&self, place: usize, argument: &[u8]) {
        let Some((&[src, dst, protocol, high, low, ttl, options], rest)) =
            argument.split_first_chunk()
        else {
            return;
        };
        let (options, payload) = rest.split_at(usize::from(options).min(40).min(rest.len()));
        let ip = Ip {
            src: host(src),
            dst: host(dst),
            protocol,
            id: 2,
            fragment: u16::from_be_bytes([high, low]),
            ttl,
            options,
        };
        let (_, wire) = self.bottom(place);
        self.hear_datagram(wire, place / 2 * 5, ip.dst, &ip.datagram(payload));
    }

    fn hear_error(&self, wire: usize, argument: &[u8]) {
        let Some((&[kind, code, quoted], rest)) = argument.split_first_chunk() else {
            return;
        };
        let last = self.last[wire].borrow().clone();
        let about = match last.get(12..ETH_OCTETS) {
            Some([0x08, 0x00]) => &last[ETH_OCTETS..],
            _ => return,
        };
        let Some(&[a, b, c, d]) = about.get(12..16).and_then(|octets| octets.first_chunk()) else {
            return;
        };
        let quoted = about.len().min(IP_OCTETS + usize::from(quoted));
        let second = rest.first_chunk().copied().unwrap_or([0; 4]);
        let message = frame::icmp(kind, code, &[&second, &about[..quoted]].concat());
        let us = Ipv4Addr::new(a, b, c, d);
        self.hear(wire, wire, ((host(10), us), ICMP), &message);
    }

    /// The argument's rest, repeated up to what it asks for, in fragments: in order, backwards, the
    /// first twice, or overlapping.
    fn hear_fragments(&self, place: usize, argument: &[u8]) {
        let Some((&[src, dst, protocol, eights, times], rest)) = argument.split_first_chunk()
        else {
            return;
        };
        let hosts = (host(src), host(dst));
        let payload = rest.repeat(1 + usize::from(times % 32));
        let payload = match protocol {
            ICMP => frame::icmp(8, 0, &payload),
            UDP => frame::udp(hosts, (1024, 7), &payload),
            _ => payload,
        };
        let step = 8 * (1 + usize::from(eights % 180));
        let order = place / 2;
        let count = payload.len().div_ceil(step);
        let (_, wire) = self.bottom(place);
        for at in 0..count {
            let at = if order & 1 == 1 { count - 1 - at } else { at };
            let from = at * step;
            // Overlapping by eight octets where there are some.
            let end = (from + step + if order & 2 == 2 { 8 } else { 0 }).min(payload.len());
            let more = if end < payload.len() { 0x2000 } else { 0 };
            let ip = Ip {
                src: hosts.0,
                dst: hosts.1,
                protocol,
                id: u16::from(times),
                fragment: more | (from / 8) as u16 & 0x1fff,
                ttl: 9,
                options: &[],
            };
            let datagram = ip.datagram(&payload[from..end]);
            self.hear_datagram(wire, 0, hosts.1, &datagram);
            if order & 4 == 4 && at == 0 {
                self.hear_datagram(wire, 0, hosts.1, &datagram);
            }
        }
    }

    fn open(&self, place: usize, argument: &[u8]) {
        let Some(participants) = read(argument) else {
            return;
        };
        let layer = LAYERS[place % LAYERS.len()];
        self.raw.set(self.raw.get() || matches!(layer, "eth" | "arp"));
        let opened = self.top.open(&self.cx, self.find(layer), participants);
        if let Ok(session) = opened {
            if self.held.borrow().len() < HELD_MAX {
                self.held.borrow_mut().push(session);
            } else {
                session.close(&self.cx);
            }
        }
    }

    fn push(&self, place: usize, argument: &[u8]) {
        let held = self.held.borrow();
        let Some(session) = held.get(place).cloned() else {
            return;
        };
        drop(held);
        let (times, octets) = argument.split_first().unwrap_or((&0, &[]));
        let octets = octets.repeat(1 + usize::from(times % 32));
        if let Some(message) = self.message(&octets, usize::from(times / 32) * 9) {
            let _ = session.push(&self.cx, message);
        }
    }

    fn close(&self, place: usize) {
        let mut held = self.held.borrow_mut();
        if place < held.len() {
            let session = held.swap_remove(place);
            drop(held);
            session.close(&self.cx);
        }
    }

    fn fail(&self, place: usize) {
        let (bottom, _) = self.bottom(place);
        bottom.fail(match place / 2 {
            0 => None,
            1 => Some(PushError::NoBuffers),
            2 => Some(PushError::TooBig),
            _ => Some(PushError::Unreachable),
        });
    }
}

fn read(argument: &[u8]) -> Option<Participants> {
    core::str::from_utf8(argument).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_gets_an_answer() {
        let stack = Stack::new(false);
        stack.operate(code::ARP, 0, &[1, 1, 0]);
        stack.check();
        stack.operate(code::UDP, 0, &[1, 0, 3, 0, b'x']);
        stack.check();
        assert_eq!(stack.last[0].borrow()[12..14], [0x08, 0x00], "an echo");
        assert_eq!(stack.find("echo").head().received(), 1);
        stack.stop();
    }
}
