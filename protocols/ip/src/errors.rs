//! Errors on their way: refusals to the sender of a packet, reports to the session that sent it.

use crate::protocol::Ip;
use crate::receive::Front;
use crate::session::IpSession;
use crate::shared::{FLAG_CAST, FLAG_LOOP, Key, Shared, reasons};
use crate::wire::{HEADER_LEN, HEADER_LEN_MAX, Header};
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, ProtocolRef};
use xk_kit::control::{
    DeliverError, IsOutstanding, NetworkError, NetworkErrorKind, OptPacket, SendError,
    SendErrorCause, Start,
};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::LinkCast;
use xk_kit::wire::offload;

/// Whether the sender of a packet that was refused for this reason is to know.
fn is_told(why: &Reason) -> bool {
    matches!(why.class, Class::NoPort | Class::NoProtocol | Class::Prohibited)
}

/// Finds the header of a packet again that was taken off its front. What lies there is looked at
/// like what arrives: the layers above may have joined or shortened the message.
fn uncover(message: &mut Message) -> Option<Header> {
    for len in (HEADER_LEN..=HEADER_LEN_MAX).step_by(4) {
        if !message.uncover(len) {
            return None;
        }
        if let Ok(octets) = message.header()
            && let Ok(header) = Header::parse(&octets)
            && header.header_len() == len
            && header.total_len() >= message.len()
        {
            return Some(header);
        }
        // They were there a moment ago.
        let _ = message.strip(len);
    }
    None
}

impl Shared {
    /// A protocol above has refused a packet, and counted it: tells the sender if that is to know.
    #[cold]
    pub(crate) fn refused(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        front: &Front,
        cast: bool,
        refused: Refused,
    ) {
        let Refused { mut message, reason: why } = refused;
        if !is_told(why) {
            return;
        }
        if !front.restore(&mut message) {
            this.discard(message, &reason::NO_BUFFERS);
            return;
        }
        self.tell_refused(cx, this, message, why, cast);
    }

    /// As [`refused`](Self::refused), of a packet that was taken first: its header is found again,
    /// if nothing was written over it.
    pub(crate) fn refused_late(&self, cx: &Kernel, this: &ProtocolRef, refused: Refused) {
        let Refused { mut message, reason: why } = refused;
        if !is_told(why) {
            return;
        }
        let Some(header) = uncover(&mut message) else {
            self.figure(|f| f.errors_untold += 1);
            return;
        };
        let cast = message.attribute::<LinkCast>().is_some() || self.interfaces.is_many(header.dst);
        self.tell_refused(cx, this, message, why, cast);
    }

    fn tell_refused(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        packet: Message,
        why: &'static Reason,
        cast: bool,
    ) {
        if !self.tell(cx, this, packet, SendErrorCause::Refused(why), cast) {
            self.figure(|f| f.errors_untold += 1);
        }
    }

    /// Asks the error protocol to tell a packet's sender; false if there is none.
    pub(crate) fn tell(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        mut packet: Message,
        cause: SendErrorCause,
        link_broadcast: bool,
    ) -> bool {
        // It becomes part of another message. Without a buffer its quotation has a sum that is not
        // whole.
        let _ = offload::finish_checksum(cx.pool(), &mut packet);
        let protocol = self.error_protocol.borrow().clone();
        let Some(protocol) = protocol.filter(|protocol| protocol != this) else {
            return false;
        };
        self.figure(|f| f.errors_told += 1);
        let question = SendError { packet: Some(packet), cause, link_broadcast };
        protocol.ask(cx, question).is_some()
    }
}

impl Ip {
    /// Drops a packet, counted, and tells its sender.
    #[cold]
    pub(crate) fn drop_and_tell(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        packet: Message,
        (why, cause): (&'static Reason, SendErrorCause),
        cast: bool,
    ) {
        this.head().drops().count(why);
        if let Some(&[.., a, b, c, d]) = packet.peek::<16>() {
            self.shared.record_drop(Ipv4::new(a, b, c, d), why);
        }
        self.shared.tell(cx, this, packet, cause, cast);
    }

    /// An error about a packet of ours has arrived: finds the session that sent it.
    pub(crate) fn deliver_error(&self, cx: &Kernel, this: &ProtocolRef, question: &DeliverError) {
        // Of another family nothing was sent from here.
        let (source, to) = (question.source.to_v4(), question.destination.to_v4());
        let (source, to) = (source.unwrap_or(Ipv4::UNSPECIFIED), to.unwrap_or(Ipv4::UNSPECIFIED));
        let mut error = question.error.clone();
        let key = |flags| {
            let number = u16::from(question.protocol) | flags;
            Key::new(source, to, number)
        };
        let found = [0, FLAG_LOOP, FLAG_CAST]
            .into_iter()
            .find_map(|flags| self.shared.sessions.get(&key(flags)));
        let Some(session) = found else {
            this.head().drops().count(&reasons::UNMATCHED_ERROR);
            return;
        };
        let upper = cx.protocol(session.head().upper());
        if let NetworkErrorKind::PacketTooBig { mtu } = &mut error.kind {
            let about = IsOutstanding { session: session.clone(), start: error.start, is: false };
            let known = upper.as_ref().and_then(|upper| upper.ask(cx, about));
            if known.is_some_and(|about| !about.is) {
                // A host that does not see our packets wants them small.
                this.head().drops().count(&reasons::UNMATCHED_ERROR);
                return;
            }
            let current = session.ask(cx, OptPacket::default());
            let current = current.map_or(0, |q| q.octets + HEADER_LEN as u32);
            let current = u16::try_from(current).unwrap_or(u16::MAX);
            *mtu = u32::from(self.shared.lower_path_mtu(cx, this, to, current, *mtu));
        }
        self.shared.figure(|f| f.errors_delivered += 1);
        // A protocol that does not understand it has no use for it.
        let _ = error.tell(cx, &session, 0);
    }

    /// The layer below reports that a next hop does not answer: all sessions of the packet's
    /// protocol over it hear of it. What they had sent is not known.
    pub(crate) fn next_hop_failed(&self, cx: &Kernel, error: &NetworkError) {
        let Some(failed) = &error.session else {
            return;
        };
        // The packet's own header tells which protocol's it was.
        let protocol = error.start.get(9).copied();
        for session in self.shared.sessions.sessions(usize::MAX) {
            let own = session.body::<IpSession>();
            if !own.is_some_and(|own| own.is_over(failed, protocol)) {
                continue;
            }
            let _ = NetworkError { start: Start::NONE, ..error.clone() }.tell(cx, &session, 0);
        }
    }

    /// The layer below gives a packet back that could not go, and counted it: ours is reported
    /// above, another's to its sender.
    pub(crate) fn send_failed(&self, cx: &Kernel, this: &ProtocolRef, question: &mut SendError) {
        let Some(mut packet) = question.packet.take() else {
            return;
        };
        let header = packet.peek::<HEADER_LEN>().map(Header::parse);
        let Some(Ok(header)) = header else {
            this.discard(packet, &reason::MALFORMED);
            return;
        };
        if !self.shared.interfaces.is_own(header.src) {
            self.shared.tell(cx, this, packet, question.cause, question.link_broadcast);
            return;
        }
        if header.fragment.offset() > 0 || !packet.strip(header.header_len()) {
            return;
        }
        let report = DeliverError {
            source: header.src.into(),
            destination: header.dst.into(),
            protocol: header.protocol,
            error: NetworkError {
                start: Start::of(&packet),
                ..NetworkError::new(NetworkErrorKind::HostUnreachable)
            },
        };
        self.deliver_error(cx, this, &report);
    }
}
