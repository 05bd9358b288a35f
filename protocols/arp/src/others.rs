//! Protocols beside those above that want to know of hosts: watchers, and takers of packets of
//! further protocol types.

use crate::shared::Shared;
use crate::wire::{EthAddr, Ipv4, Operation, PROTOCOL_IPV4, Packet};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::{Answer, Ask, Kernel, ProtocolRef};
use xk_kit::net::neighbour::{
    ArpExchange, ArpReply, HostAt, SendArpReply, SubscribeType, WatchHosts, Watchers,
};

/// Largest number of protocols that take a type.
pub(crate) const OTHERS_MAX: usize = 16;

/// All of them.
#[derive(Default)]
pub(crate) struct Others {
    watchers: Watchers,
    types: RefCell<Vec<(u16, ProtocolRef)>>,
}

impl Others {
    fn take_type(&self, number: u16, receiver: &ProtocolRef) -> bool {
        let mut types = self.types.borrow_mut();
        let is_free = types.iter().all(|(taken, _)| *taken != number);
        let takes = is_free && number != PROTOCOL_IPV4 && types.len() < OTHERS_MAX;
        if takes {
            types.push((number, receiver.clone()));
        }
        takes
    }

    /// The protocol that takes packets of this type.
    pub(crate) fn of_type(&self, number: u16) -> Option<ProtocolRef> {
        let types = self.types.borrow();
        let found = types.iter().find(|(taken, _)| *taken == number);
        found.map(|(_, receiver)| receiver.clone())
    }

    pub(crate) fn clear(&self) {
        self.watchers.clear();
        drop(self.types.take());
    }
}

impl Shared {
    /// Tells the watchers that more or less is known of a host now.
    pub(crate) fn tell_changed(&self, cx: &Kernel, host: Ipv4) {
        self.others.watchers.tell(cx, host.into());
    }

    /// Tells those of further types that a host of ours and another have exchanged addresses.
    pub(crate) fn tell_exchanged(&self, cx: &Kernel, packet: &Packet) {
        let types = self.others.types.borrow().clone();
        for (_, receiver) in types {
            let exchanged = ArpExchange {
                own: packet.target_ip.into(),
                host: packet.sender_ip.into(),
                address: packet.sender_eth.0,
            };
            let _ = receiver.ask(cx, exchanged);
        }
    }

    /// Hands on what a packet of a further type says; true if that was of use.
    pub(crate) fn hear(
        cx: &Kernel,
        protocol_type: u16,
        receiver: &ProtocolRef,
        packet: &Packet,
    ) -> bool {
        let (host, address) = (packet.sender_ip.into(), packet.sender_eth.0);
        let heard = ArpReply { protocol_type, host, address };
        receiver.ask(cx, heard).is_some()
    }

    /// Sends replies of a further type. Before a host is ours nothing is said in its name.
    fn say(&self, cx: &Kernel, say: &mut SendArpReply) {
        let mine = self.mine.get();
        let reply = |own, target_eth, target_ip| Packet {
            operation: Operation::Reply,
            sender_eth: mine,
            sender_ip: own,
            target_eth,
            target_ip,
        };
        if let Some((own, station, host)) = say.to {
            if let (Some(own), Some(host)) = (own.to_v4(), host.to_v4())
                && self.claims.is_ours(own)
            {
                let station = EthAddr(station);
                let packet = reply(own, station, host);
                self.send_as(cx, say.protocol_type, station, &packet);
                say.sent = 1;
            }
            return;
        }
        for own in self.claims.ours() {
            let packet = reply(own, EthAddr::BROADCAST, own);
            self.send_as(cx, say.protocol_type, EthAddr::BROADCAST, &packet);
            say.sent += 1;
        }
    }

    /// The host that a station is, the lowest if it is several.
    fn host_at(&self, address: [u8; 6]) -> Option<Ipv4> {
        self.hosts.find_by_address(EthAddr(address))
    }

    /// Answers their questions; `None` if it is another one.
    pub(crate) fn control_others(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let done = if let Some(question) = ask.get::<HostAt>() {
            let host = self.host_at(question.address);
            question.host = host.map_or(question.host, Into::into);
            host.is_some()
        } else if let Some(question) = ask.get::<WatchHosts>() {
            return Some(self.others.watchers.add(&question.watcher));
        } else if let Some(question) = ask.get::<SubscribeType>() {
            let receiver = &question.receiver;
            self.others.take_type(question.protocol_type, receiver)
        } else {
            self.say(cx, ask.get::<SendArpReply>()?);
            true
        };
        Some(if done { Answer::Answered } else { Answer::Unknown })
    }
}
