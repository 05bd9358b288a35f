//! smoltcp's packets over xk's `ip`: the header of one is what the other has as participants.

use crate::port::WAITING_MAX;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IPV4_HEADER_LEN, IpProtocol, Ipv4Packet, Ipv4Repr};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::{MyHost, PeerHost};

/// The time to live that smoltcp sees of what arrives; the true one ended at `ip`.
const HOP_LIMIT: u8 = 64;

type Key = (u8, Ipv4Addr, Ipv4Addr);

/// Sessions of `ip`, by number, our host and the peer's.
#[derive(Default)]
pub(crate) struct Hosts {
    sessions: RefCell<BTreeMap<Key, SessionRef>>,
}

impl Hosts {
    /// Puts the header in front that `ip` has taken off.
    pub(crate) fn put_header(
        cx: &Kernel,
        lower: &SessionRef,
        number: u8,
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        let peer = lower.ask(cx, PeerHost::default()).and_then(|q| q.host.to_v4());
        let own = lower.ask(cx, MyHost::default()).and_then(|q| q.host.to_v4());
        let (Some(src_addr), Some(dst_addr)) = (peer, own) else {
            return Err(&reason::NOT_SUPPORTED);
        };
        if message.len() > usize::from(u16::MAX) - IPV4_HEADER_LEN {
            return Err(&reason::TOO_BIG);
        }
        let header = Ipv4Repr {
            src_addr,
            dst_addr,
            next_header: IpProtocol::from(number),
            payload_len: message.len(),
            hop_limit: HOP_LIMIT,
        };
        let room = message.push_header(IPV4_HEADER_LEN).map_err(|_| &reason::NO_BUFFERS)?;
        let mut packet = Ipv4Packet::new_unchecked(room);
        header.emit(&mut packet, &ChecksumCapabilities::default());
        Ok(())
    }

    /// Sends a packet of smoltcp's by the session of its ends.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        ip: &ProtocolRef,
        receivers: &RefCell<Vec<ProtocolRef>>,
        mut message: Message,
    ) -> Result<(), (Message, &'static Reason)> {
        let Some(octets) = message.peek::<IPV4_HEADER_LEN>().copied() else {
            return Err((message, &reason::TRUNCATED));
        };
        let packet = Ipv4Packet::new_unchecked(octets);
        if packet.more_frags() || packet.frag_offset() != 0 {
            return Err((message, &reason::NOT_SUPPORTED));
        }
        let header = usize::from(packet.header_len());
        let (own, peer) = (packet.src_addr(), packet.dst_addr());
        let number = u8::from(packet.next_header());
        if packet.version() != 4 || !message.strip(header) {
            return Err((message, &reason::MALFORMED));
        }
        let session = self.session(cx, ip, receivers, (number, own, peer));
        match session {
            // What fails from here on is counted below.
            Ok(session) => {
                let _ = session.push(cx, message);
                Ok(())
            }
            Err(why) => Err((message, why)),
        }
    }

    fn session(
        &self,
        cx: &Kernel,
        ip: &ProtocolRef,
        receivers: &RefCell<Vec<ProtocolRef>>,
        key: Key,
    ) -> Result<SessionRef, &'static Reason> {
        let known = self.sessions.borrow().get(&key).cloned();
        if let Some(session) = known.filter(|session| !session.head().is_closed()) {
            return Ok(session);
        }
        let (number, own, peer) = key;
        let under = |receiver: &&ProtocolRef| {
            cx.type_number(receiver.id(), ip.id()) == Some(u32::from(number))
        };
        let receiver = receivers.borrow().iter().find(under).cloned();
        let receiver = receiver.ok_or(&reason::NO_PROTOCOL)?;
        let own = match own.is_unspecified() {
            true => Part::Any,
            false => Part::host(HostAddr::v4(own)),
        };
        let ends = Participants::pair(
            Participant::of(own),
            Participant::of(Part::host(HostAddr::v4(peer))),
        );
        let opened = ip.open(cx, Upper::new(&receiver), ends).map_err(|_| &reason::NO_PORT)?;
        opened.watch();
        let gives_way = {
            let mut sessions = self.sessions.borrow_mut();
            let gives_way = (sessions.len() >= WAITING_MAX).then(|| sessions.pop_first()).flatten();
            sessions.insert(key, opened.clone());
            gives_way
        };
        if let Some((_, session)) = gives_way {
            session.close(cx);
        }
        Ok(opened)
    }

    /// A session has ended.
    pub(crate) fn gone(&self, lower: &SessionRef) {
        self.sessions.borrow_mut().retain(|_, session| session != lower);
    }

    pub(crate) fn stop(&self, cx: &Kernel) {
        for (_, session) in self.sessions.take() {
            session.close(cx);
        }
    }
}
