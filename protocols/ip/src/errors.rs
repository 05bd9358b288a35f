//! Errors on their way: refusals to the sender of a packet, reports to the session that sent it.

use crate::config;
use crate::control::{
    AddRoute, InterfaceInfo, IpFigures, ListInterfaces, ListRoutes, RemoveRoute, RouteInfo,
};
use crate::interface::Kind;
use crate::path::Way;
use crate::protocol::Ip;
use crate::route::Route;
use crate::session::{IpSession, PAYLOAD_MAX};
use crate::shared::{FLAG_CAST, FLAG_LOOP, Key, reasons};
use crate::wire::{HEADER_LEN, HEADER_LEN_MAX, Header};
use alloc::string::String;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef};
use xk_kit::control::{
    DeliverError, HostConflict, IsLocalHost, IsMany, IsOutstanding, MaxPacket, MyHost,
    NetworkError, NetworkErrorKind, OptPacket, RegisterErrorProtocol, SendError, SendErrorCause,
};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::neighbour::HostRoute;
use xk_kit::wire::offload;

/// The octets of a packet's header, for putting it back in front.
#[derive(Clone, Copy)]
pub(crate) struct Front {
    octets: [u8; HEADER_LEN_MAX],
    len: usize,
}

impl Front {
    /// Those of a header without options.
    #[cfg(test)]
    pub(crate) fn of(header: &Header) -> Self {
        let mut octets = [0; HEADER_LEN_MAX];
        if let Some(fixed) = octets.first_chunk_mut() {
            header.emit(fixed);
        }
        Self { octets, len: HEADER_LEN }
    }

    /// These, at most 60.
    pub(crate) fn copy(from: &[u8]) -> Self {
        let mut octets = [0; HEADER_LEN_MAX];
        let len = from.len().min(HEADER_LEN_MAX);
        octets[..len].copy_from_slice(&from[..len]);
        Self { octets, len }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    pub(crate) fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.octets[..self.len]
    }

    /// Puts them in front of a message.
    pub(crate) fn restore(&self, message: &mut Message) -> bool {
        let header = message.push_header(self.len);
        header.map(|h| h.copy_from_slice(self.octets())).is_ok()
    }
}

impl Ip {
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
        if !matches!(why.class, Class::NoPort | Class::NoProtocol | Class::Prohibited) {
            return;
        }
        if !front.restore(&mut message) {
            this.discard(message, &reason::NO_BUFFERS);
            return;
        }
        if !self.tell(cx, this, message, SendErrorCause::Refused(why), cast) {
            self.shared.figure(|f| f.errors_untold += 1);
        }
    }

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
            self.shared.blame(Ipv4::new(a, b, c, d), why);
        }
        self.tell(cx, this, packet, cause, cast);
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
        let _ = offload::settle(cx.pool(), &mut packet);
        let protocol = self.shared.error_protocol.borrow().clone();
        let Some(protocol) = protocol.filter(|protocol| protocol != this) else {
            return false;
        };
        self.shared.figure(|f| f.errors_told += 1);
        let question = SendError { packet: Some(packet), cause, link_broadcast };
        protocol.ask(cx, question).is_some()
    }

    /// An error about a packet of ours has arrived: finds the session that sent it.
    fn deliver_error(&self, cx: &Kernel, this: &ProtocolRef, question: &DeliverError) {
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
            let about = IsOutstanding {
                session: session.clone(),
                start: error.start,
                start_len: error.start_len,
                is: false,
            };
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
        error.session = Some(session);
        self.shared.figure(|f| f.errors_delivered += 1);
        if let Some(upper) = upper {
            // A protocol that does not understand it has no use for it.
            let _ = upper.ask(cx, error);
        }
    }

    /// The layer below reports that a next hop does not answer: all sessions of the packet's
    /// protocol over it hear of it. What they had sent is not known.
    fn next_hop_failed(&self, cx: &Kernel, error: &NetworkError) {
        let Some(failed) = &error.session else {
            return;
        };
        // The packet's own header tells which protocol's it was.
        let protocol = (error.start_len > 9).then_some(error.start[9]);
        for session in self.shared.sessions.sessions(usize::MAX) {
            let own = session.body::<IpSession>();
            if !own.is_some_and(|own| own.is_over(failed, protocol)) {
                continue;
            }
            let upper = cx.protocol(session.head().upper());
            let report = NetworkError {
                session: Some(session),
                start: [0; 16],
                start_len: 0,
                ..error.clone()
            };
            if let Some(upper) = upper {
                let _ = upper.ask(cx, report);
            }
        }
    }

    /// The layer below gives a packet back that could not go, and counted it: ours is reported
    /// above, another's to its sender.
    fn send_failed(&self, cx: &Kernel, this: &ProtocolRef, question: &mut SendError) {
        let Some(mut packet) = question.packet.take() else {
            return;
        };
        let header = packet.peek::<HEADER_LEN>().map(Header::parse);
        let Some(Ok(header)) = header else {
            this.discard(packet, &reason::MALFORMED);
            return;
        };
        if !self.shared.interfaces.is_own(header.src) {
            self.tell(cx, this, packet, question.cause, question.link_broadcast);
            return;
        }
        if header.fragment.offset() > 0 || !packet.strip(header.header_len()) {
            return;
        }
        let mut start = [0; 16];
        let start_len = packet.copy_to(0, &mut start);
        let report = DeliverError {
            source: header.src.into(),
            destination: header.dst.into(),
            protocol: header.protocol,
            error: NetworkError {
                kind: NetworkErrorKind::HostUnreachable,
                reporter: None,
                session: None,
                start,
                start_len,
            },
        };
        self.deliver_error(cx, this, &report);
    }

    /// Answers a question to the protocol.
    pub(crate) fn answer(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if shared.talkers.answer(this, ask) {
            return Answer::Answered;
        }
        if let Some(q) = ask.get::<DeliverError>() {
            self.deliver_error(cx, this, q);
        } else if let Some(q) = ask.get::<RegisterErrorProtocol>() {
            *shared.error_protocol.borrow_mut() = Some(q.protocol.clone());
        } else if let Some(q) = ask.get::<NetworkError>() {
            self.next_hop_failed(cx, q);
        } else if let Some(q) = ask.get::<SendError>() {
            self.send_failed(cx, this, q);
        } else if ask.get::<HostConflict>().is_some() {
            shared.figure(|f| f.conflicts += 1);
        } else if let Some(q) = ask.get::<IsLocalHost>() {
            q.local = q.host.to_v4().is_some_and(|host| match shared.interfaces.kind(host) {
                Kind::Own | Kind::Loopback | Kind::Broadcast => true,
                Kind::Group => shared.interfaces.is_joined(host),
                Kind::Nobody | Kind::Other => false,
            });
        } else if let Some(q) = ask.get::<IsMany>() {
            q.many = q.host.to_v4().is_some_and(|host| shared.interfaces.is_many(host));
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = PAYLOAD_MAX as u32;
        } else if let Some(q) = ask.get::<OptPacket>() {
            let least = shared.interfaces.list.iter().map(|i| i.mtu.get()).min();
            q.octets = u32::from(least.unwrap_or(0)).saturating_sub(HEADER_LEN as u32);
        } else if let Some(q) = ask.get::<ListSessions>() {
            q.add(&shared.sessions);
        } else if let Some(q) = ask.get::<ListMaps>() {
            q.add("active", shared.sessions.stats());
            q.add("passive", shared.enables.stats());
        } else if let Some(q) = ask.get::<IpFigures>() {
            *q = shared.figures();
        } else {
            return self.answer_about_hosts(cx, ask);
        }
        Answer::Answered
    }

    /// Answers a question about hosts, routes and interfaces, or forwards it.
    fn answer_about_hosts(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(q) = ask.get::<MyHost>() {
            match shared.interfaces.first() {
                Some(host) => q.host = host.into(),
                None => return Answer::Unknown,
            }
        } else if let Some(q) = ask.get::<HostRoute>() {
            (q.over, q.direct) = match q.host.to_v4().and_then(|host| shared.way(None, host)) {
                Some(Way::Out { interface, next_hop }) => {
                    let over = shared.interfaces.list.get(interface);
                    (over.map(|i| i.lower.clone()), q.host == next_hop)
                }
                Some(Way::Loop) | None => (None, false),
            };
        } else if let Some(q) = ask.get::<AddRoute>() {
            q.added = self.add_route(cx, &q.route);
        } else if let Some(q) = ask.get::<RemoveRoute>() {
            q.removed = shared.routes.borrow_mut().remove(q.network, q.via);
            if q.removed > 0 {
                shared.invalidate(cx);
            }
        } else if let Some(q) = ask.get::<ListRoutes>() {
            let routes = shared.routes.borrow();
            q.routes = routes.iter().map(|route| self.describe(route)).collect();
        } else if let Some(q) = ask.get::<ListInterfaces>() {
            let list = shared.interfaces.list.iter().map(|i| InterfaceInfo {
                name: String::from(i.lower.name()),
                addresses: i.addresses.clone(),
                mtu: i.mtu.get(),
            });
            q.interfaces = list.collect();
        } else {
            let first = shared.interfaces.list.first();
            return first.map_or(Answer::Unknown, |i| i.lower.control(cx, ask));
        }
        Answer::Answered
    }

    fn add_route(&self, cx: &Kernel, info: &RouteInfo) -> bool {
        let interfaces = &self.shared.interfaces;
        let named = interfaces.list.iter().position(|i| i.lower.name() == info.on);
        if named.is_none() && !info.on.is_empty() {
            return false;
        }
        let Some(interface) = config::gateway(interfaces, named, info.via) else {
            return false;
        };
        let added = self.shared.routes.borrow_mut().add(Route {
            network: info.network,
            via: info.via,
            interface,
            metric: info.metric,
        });
        if added {
            self.shared.invalidate(cx);
        }
        added
    }

    fn describe(&self, route: &Route) -> RouteInfo {
        let on = self.shared.interfaces.list.get(route.interface);
        RouteInfo {
            network: route.network,
            via: route.via,
            on: on.map_or_else(String::new, |i| String::from(i.lower.name())),
            metric: route.metric,
        }
    }
}
