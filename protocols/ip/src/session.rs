//! A session: one upper protocol's end of the traffic between two hosts.

use crate::control::DontFragment;
use crate::fragment::{self, Cut};
use crate::identification::Series;
use crate::path::NextHop;
use crate::shared::{Key, Shared, reasons};
use crate::wire::{DATAGRAM_LEN_MAX, Fragment, HEADER_LEN, Header, Options, Template};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use xk_core::object::{Burst, Closing, OpenError, Outgoing, PushError, Refused, SessionSlot};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::control::{
    AlertRouters, KeepWhole, MaxPacket, MinPacket, MyHost, OptPacket, PeerHost, PeerProved,
    PseudoHeader, SpecificDestination,
};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::{Ecn, Sending};
use xk_kit::net::template::{HeaderField, Headers};
use xk_kit::wire::offload::Offloads;
use xk_kit::wire::segments::{self, NetworkHeader};

/// Octets of the largest message.
pub(crate) const PAYLOAD_MAX: usize = DATAGRAM_LEN_MAX - HEADER_LEN;

/// Octets of the smallest path on which nothing is fragmented where that is asked: a network that
/// carries less is rarer than a host that says so to do harm (RFC 5927, section 7.2, and Linux's
/// `min_pmtu`).
const WHOLE_MTU_MIN: usize = 552;

pub(crate) struct IpSession {
    shared: Rc<Shared>,
    key: Key,
    upper: ProtocolRef,
    /// Source of packets: the local host, or if that is a broadcast or group, another address of
    /// this host.
    source: Cell<Ipv4>,
    template: Cell<Template>,
    ids: Series,
    /// [`Fragment::DONT`] if all that fits the path goes that way.
    whole: Cell<Fragment>,
    /// True if a message that does not fit the path is refused.
    keeps_whole: Cell<bool>,
    /// True if routers are to look at the packets; then none goes straight.
    alerts: Cell<bool>,
    /// The session to the next hop; `None` to ourselves, or before the path is known.
    lower: SessionSlot,
    /// Octets of the largest packet that goes straight to `lower`; 0 if none does.
    mtu: Cell<u16>,
    /// Octets of the largest packet on the path; 0 if that is not known.
    path_mtu: Cell<u16>,
    /// The interface, if the peer is a group: packets may come back to us, and none goes straight.
    group_on: Cell<Option<u16>>,
    /// The state of routes that the path was found by; 0 before.
    generation: Cell<u32>,
}

impl IpSession {
    /// Whether its path goes over this session below, and it carries this protocol, if that is
    /// known.
    pub(crate) fn is_over(&self, lower: &SessionRef, protocol: Option<u8>) -> bool {
        protocol.is_none_or(|protocol| protocol == self.key.protocol()) && self.lower.has(lower)
    }

    pub(crate) fn new(shared: &Rc<Shared>, key: Key, source: Ipv4, upper: &ProtocolRef) -> Self {
        let whole = match shared.config.dont_fragment {
            true => Fragment::DONT,
            false => Fragment::WHOLE,
        };
        let session = Self {
            shared: Rc::clone(shared),
            key,
            upper: upper.clone(),
            source: Cell::new(source),
            template: Cell::new(template(shared, key, source)),
            ids: Series::default(),
            whole: Cell::new(whole),
            keeps_whole: Cell::new(false),
            alerts: Cell::new(false),
            lower: SessionSlot::default(),
            mtu: Cell::new(0),
            path_mtu: Cell::new(0),
            group_on: Cell::new(None),
            generation: Cell::new(0),
        };
        session.comes_from(source);
        session
    }

    /// Packets come from this host from now on.
    fn comes_from(&self, source: Ipv4) {
        self.source.set(source);
        self.template.set(template(&self.shared, self.key, source));
        let hosts = u64::from(source.to_bits()) << 32 | u64::from(self.peer().to_bits());
        let ids = &self.shared.identifications;
        ids.begin(&self.ids, hosts, self.key.protocol());
    }

    fn local(&self) -> Ipv4 {
        self.key.local()
    }

    fn peer(&self) -> Ipv4 {
        self.key.peer()
    }

    /// Finds the path: at open, and whenever routes have changed since.
    #[cold]
    pub(crate) fn resolve(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let generation = self.shared.generation.get();
        let found = match self.shared.next_hop(Some(self.source.get()), self.peer()) {
            None => Err(OpenError::NoRoute),
            // What was sent to a group came from the peer, which is ourselves.
            Some(NextHop::Loop) if self.local().is_multicast() => Ok((None, 0, self.peer())),
            Some(NextHop::Loop) => Ok((None, 0, self.local())),
            Some(NextHop::Out { interface, next_hop }) => {
                self.group_on.set(self.peer().is_multicast().then_some(interface as u16));
                self.shared.open_hop(cx, this, interface, next_hop).map(|(lower, mtu)| {
                    let own = self.shared.interfaces.source(interface, next_hop);
                    (Some(lower), mtu, own.unwrap_or(self.local()))
                })
            }
        };
        let (lower, mtu, own) = match found {
            Ok(found) => found,
            Err(error) => {
                self.let_go(cx);
                return Err(error);
            }
        };
        let has_way = lower.is_some() || self.local().is_multicast();
        if !self.shared.interfaces.is_own(self.local()) && has_way {
            // Made by a packet to a broadcast or group: answers come from the interface's own host.
            let unbound = self.local() == Ipv4::UNSPECIFIED;
            self.comes_from(if unbound { self.local() } else { own });
        }
        let reported = self.shared.path_mtus.get(self.peer());
        let mtu = reported.map_or(mtu, |path| path.min(mtu));
        self.path_mtu.set(mtu);
        let goes_straight = self.group_on.get().is_none() && !self.alerts.get();
        self.mtu.set(if goes_straight { mtu } else { 0 });
        let old = self.lower.replace(lower);
        self.generation.set(generation);
        if let Some(old) = old {
            old.close(cx);
        }
        Ok(())
    }

    /// Releases the path.
    fn let_go(&self, cx: &Kernel) {
        self.generation.set(0);
        self.mtu.set(0);
        self.path_mtu.set(0);
        self.lower.close(cx);
    }

    /// Makes sure that there is a path, and answers its maximum.
    fn path(&self, cx: &Kernel, this: &SessionRef) -> Result<u16, PushError> {
        if self.generation.get() != self.shared.generation.get() {
            let protocol = this.protocol(cx).ok_or(PushError::Closed)?;
            self.resolve(cx, &protocol).map_err(|error| match error {
                OpenError::NoRoute => PushError::NoRoute,
                OpenError::NoBuffers => PushError::NoBuffers,
                OpenError::Full => PushError::QueueFull,
                _ => PushError::Unreachable,
            })?;
        }
        Ok(self.path_mtu.get())
    }

    /// The identification of a packet that goes in one piece, or of the first of a run. One that
    /// no router may fragment needs none (RFC 6864, section 4.1) and tells nothing by 0, as from
    /// Linux.
    #[inline(always)]
    fn id(&self, HeaderOptions { whole, packets, .. }: HeaderOptions) -> u16 {
        match whole == Fragment::DONT {
            true => 0,
            false => self.ids.take(packets),
        }
    }

    /// Options of the header that the attributes of a message ask for.
    fn options(&self, message: &Message) -> HeaderOptions {
        let dont = message.attribute::<DontFragment>().is_some();
        HeaderOptions {
            whole: if dont { Fragment::DONT } else { self.whole.get() },
            // What arrived marked, and goes back as it is, is not marked on this way.
            ecn: message.attribute::<Ecn>().filter(|ecn| *ecn != Ecn::Experienced),
            sending: message.attribute::<Sending>(),
            packets: segments::of(message).map_or(1, |run| run.packets()),
        }
    }

    fn template(&self, options: HeaderOptions) -> Template {
        let mut template = self.template.get();
        if let Some(Sending { hops, class, stays_in, .. }) = options.sending {
            template = template.sent((hops != 0 || stays_in).then_some(hops), class);
        }
        match options.ecn {
            Some(ecn) => template.marked(ecn),
            None => template,
        }
    }

    /// Options that all packets of this session have.
    fn alert(&self) -> Options<'static> {
        if self.alerts.get() { Options::ALERT } else { Options::NONE }
    }

    fn header_len(&self) -> usize {
        HEADER_LEN + self.alert().octets().len()
    }

    /// The header of a packet, but for its lengths and place.
    fn header(&self, asked: HeaderOptions) -> Header {
        let mut header = header(&self.shared, self.key, self.source.get());
        if let Some(Sending { hops, class, .. }) = asked.sending {
            header.ttl = if hops == 0 { header.ttl } else { hops };
            header.traffic_class = class.unwrap_or(header.traffic_class);
        }
        // Each piece can be marked as the whole could (RFC 3168, section 5.3).
        header.traffic_class |= asked.ecn.map_or(0, Ecn::bits);
        header
    }

    /// Writes the header.
    fn put_header(&self, message: &mut Message, options: HeaderOptions) -> Result<(), PushError> {
        let too_big = |_| PushError::TooBig;
        let total = u16::try_from(message.len() + self.header_len()).map_err(too_big)?;
        segments::note_network(message, NetworkHeader::ipv4(self.header_len()));
        if self.alerts.get() {
            let mut header = self.header(options);
            (header.id, header.fragment) = (self.id(options), options.whole);
            return fragment::put_header(header, self.alert(), message);
        }
        let octets = message.push_header(HEADER_LEN).map_err(|_| PushError::NoBuffers)?;
        let octets = octets.first_chunk_mut().ok_or(PushError::NoBuffers)?;
        self.template(options).emit(total, self.id(options), options.whole, octets);
        Ok(())
    }

    /// Writes the header of a packet that goes straight to the next hop, as almost all do; false if
    /// this one does not.
    #[inline(always)]
    fn prepare(&self, message: &mut Message) -> bool {
        let known = self.generation.get() == self.shared.generation.get();
        let fits = message.len() + HEADER_LEN <= usize::from(self.mtu.get());
        if !known || !fits {
            return false;
        }
        if message.has_attributes() {
            let options = self.options(message);
            return self.prepare_as(message, options) && strip_options(message);
        }
        let whole = self.whole.get();
        let options = HeaderOptions { whole, ecn: None, sending: None, packets: 1 };
        self.prepare_as(message, options)
    }

    #[inline(always)]
    fn prepare_as(&self, message: &mut Message, options: HeaderOptions) -> bool {
        // It fits the path.
        let total = (message.len() + HEADER_LEN) as u16;
        message.fill_in_place(|header| {
            let id = self.id(options);
            self.template(options).emit(total, id, options.whole, header);
        })
    }

    /// Hands a packet with its header to the next hop. The end of a session below is no end of this
    /// one.
    #[inline(always)]
    fn send(&self, cx: &Kernel, message: Message) -> Result<(), PushError> {
        let lower = self.lower.get().ok_or(PushError::NoRoute)?;
        lower.push(cx, message).map_err(not_closed)
    }

    /// The headers of whole datagrams without options. Those that arrive may come from any station
    /// of the link, such as another router.
    fn headers(&self, cx: &Kernel, this: &SessionRef) -> Option<Headers> {
        let mtu = usize::from(self.path(cx, this).ok()?);
        let below = Headers::of(cx, &self.lower.get()?)?;
        let below = Headers { received: below.received.for_any_peer(), ..below };
        let octets = |template: Template| {
            let mut octets = [0; HEADER_LEN];
            template.emit(0, 0, Fragment::WHOLE, &mut octets);
            octets
        };
        let mut arriving = BLANK;
        (arriving.src, arriving.dst) = (self.peer(), self.local());
        arriving.protocol = self.key.protocol();
        // Congestion may be marked, and fragmenting forbidden; how far a datagram may go and of
        // what class an arrival is, says its sender.
        let fields = |peer_at, class, flags| {
            [
                (1, HeaderField::Bits(class)),
                (2, HeaderField::Length { from: 0 }),
                (4, HeaderField::Free(2)),
                (6, HeaderField::Bits(flags)),
                (8, HeaderField::Free(1)),
                (10, HeaderField::HeaderSum { from: 0, octets: HEADER_LEN as u8 }),
                (peer_at, HeaderField::Peer(4)),
            ]
        };
        let (sent, received) = (octets(self.template.get()), octets(Template::new(&arriving)));
        let [to, from] = [fields(16, 0xfc, 0xbf), fields(12, 0, 0x3f)];
        let headers = below.with((&sent, &to), (&received, &from))?;
        let sent = headers.sent.carrying(mtu.saturating_sub(HEADER_LEN));
        Some(Headers { sent, ..headers })
    }

    /// Drops a message that cannot go, counted.
    #[cold]
    fn fail(&self, cx: &Kernel, this: &SessionRef, error: PushError) -> Result<(), PushError> {
        let why = match error {
            PushError::NoBuffers => &reason::NO_BUFFERS,
            PushError::TooBig => &reason::TOO_BIG,
            PushError::QueueFull => &reason::TABLE_FULL,
            _ => &reasons::NO_ROUTE,
        };
        this.count_drop(cx, why);
        Err(error)
    }

    /// Has a copy of a message to a group that we are in arrive here (RFC 1112, section 6.1). The
    /// message goes out whatever becomes of it.
    fn loop_copy(&self, cx: &Kernel, this: &SessionRef, message: &Message, options: HeaderOptions) {
        let Some(protocol) = this.protocol(cx) else { return };
        let copy = message.try_clone().map_err(|_| PushError::NoBuffers);
        let headed = copy.and_then(|mut copy| self.put_header(&mut copy, options).map(|()| copy));
        match headed {
            Ok(copy) => drop(self.shared.put_looped(cx, &protocol, copy)),
            Err(_) => protocol.head().drops().count(&reason::NO_BUFFERS),
        }
    }

    /// Whatever does not go straight down: the first packet, those to ourselves, those that are too
    /// long.
    #[cold]
    #[inline(never)]
    fn push_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        if message.len() > PAYLOAD_MAX {
            return self.fail(cx, this, PushError::TooBig);
        }
        let mtu = match self.path(cx, this) {
            Ok(mtu) => usize::from(mtu),
            Err(error) => return self.fail(cx, this, error),
        };
        let options = self.options(&message);
        let one = segments::longest(&message);
        // A session that keeps its messages whole follows the path down to this; below it the
        // reported size is more likely a lie.
        let keeps_whole = self.keeps_whole.get() && (mtu >= WHOLE_MTU_MIN || one < message.len());
        let dont = message.attribute::<DontFragment>().is_some() || keeps_whole;
        strip_options(&mut message);
        if self.key.is_looped() {
            let protocol = this.protocol(cx).ok_or(PushError::Closed)?;
            if let Err(error) = self.put_header(&mut message, options) {
                return self.fail(cx, this, error);
            }
            return match self.shared.put_looped(cx, &protocol, message) {
                true => Ok(()),
                false => Err(PushError::QueueFull),
            };
        }
        if let Some(interface) = self.group_on.get() {
            let sending = options.sending.unwrap_or_default();
            if !sending.stays_out
                && (one + self.header_len() <= mtu || !dont)
                && self.shared.interfaces.memberships.is_joined(interface.into(), self.peer())
            {
                self.loop_copy(cx, this, &message, options);
            }
            if sending.stays_in {
                return Ok(());
            }
        }
        // Of a run of segments each goes as a packet of its own.
        if one + self.header_len() <= mtu {
            return match self.put_header(&mut message, options) {
                Ok(()) => self.send(cx, message),
                Err(error) => self.fail(cx, this, error),
            };
        }
        if dont {
            return self.fail(cx, this, PushError::TooBig);
        }
        let Some(lower) = self.lower.get() else {
            return self.fail(cx, this, PushError::NoRoute);
        };
        let mut header = self.header(options);
        header.id = self.ids.take(1);
        let cut = Cut { header, first: self.alert(), mtu };
        let (sent, result) = fragment::send(cx, &lower, cut, message);
        self.shared.figure(|f| f.fragments_sent += sent);
        result.map_err(not_closed)
    }
}

/// Error for the sender after an error below.
fn not_closed(error: PushError) -> PushError {
    match error {
        PushError::Closed => PushError::Unreachable,
        error => error,
    }
}

/// Options of a header that the sender of a message asks for.
#[derive(Clone, Copy)]
struct HeaderOptions {
    whole: Fragment,
    ecn: Option<Ecn>,
    sending: Option<Sending>,
    /// Number of packets for which the message stands.
    packets: u16,
}

/// Takes off the attributes that ask something of the header; always true.
fn strip_options(message: &mut Message) -> bool {
    message.remove_attribute::<DontFragment>();
    message.remove_attribute::<Ecn>();
    message.remove_attribute::<Sending>();
    true
}

/// A header to fill in.
const BLANK: Header = match Header::new(Ipv4::UNSPECIFIED, Ipv4::UNSPECIFIED, 0, 0) {
    Ok(header) => header,
    Err(_) => panic!("no payload is not too long"),
};

/// The header of a packet of this session; lengths are set when it is cut or sent.
fn header(shared: &Shared, key: Key, source: Ipv4) -> Header {
    let peer = key.peer();
    let ttl = match peer.is_multicast() {
        // RFC 1112, section 6.1: groups are reached on this link unless asked otherwise.
        true => 1,
        false => shared.config.ttl,
    };
    let mut header = BLANK;
    header.ttl = ttl;
    header.protocol = key.protocol();
    (header.src, header.dst) = (source, peer);
    header
}

fn template(shared: &Shared, key: Key, source: Ipv4) -> Template {
    Template::new(&header(shared, key, source))
}

impl Session for IpSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        if self.prepare(&mut message) {
            return self.send(cx, message);
        }
        self.push_other(cx, this, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let Some(lower) = self.lower.live() else {
            // The first finds the way for the others.
            let first = match burst.pop_at(0) {
                Some(message) => self.push(cx, this, message),
                None => return Ok(()),
            };
            return first.and(self.push_burst(cx, this, burst));
        };
        let prepare = |message: &mut Message| self.prepare(message);
        let other = |message| self.push_other(cx, this, message);
        lower.push_prepared(cx, burst, prepare, other)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn refused(&self, cx: &Kernel, this: &SessionRef, refused: Refused) {
        if let Some(protocol) = this.protocol(cx) {
            self.shared.refused_late(cx, &protocol, refused);
        }
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let (local, peer, mtu) = (self.local(), self.peer(), self.path_mtu.get());
        Some(alloc::format!("{local} > {peer}, protocol {}, path {mtu}", self.key.protocol()))
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(q) = ask.get::<MyHost>() {
            // Of a session that a broadcast made, only the path tells.
            if !self.shared.interfaces.is_own(self.source.get()) {
                let _ = self.path(cx, this);
            }
            q.host = self.source.get().into();
        } else if let Some(q) = ask.get::<SpecificDestination>() {
            q.host = self.local().into();
            q.many = self.shared.interfaces.is_many(self.local());
        } else if let Some(q) = ask.get::<PeerHost>() {
            q.host = self.peer().into();
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = PAYLOAD_MAX as u32;
        } else if let Some(q) = ask.get::<OptPacket>() {
            let mtu = match self.path(cx, this) {
                Ok(0) | Err(_) if self.key.is_looped() => DATAGRAM_LEN_MAX,
                Ok(mtu) => usize::from(mtu),
                Err(_) => crate::wire::MTU_MIN,
            };
            q.octets = mtu.saturating_sub(self.header_len()) as u32;
        } else if ask.get::<PeerProved>().is_some() {
            if !self.key.is_looped() {
                return Answer::Unknown;
            }
        } else if let Some(q) = ask.get::<MinPacket>() {
            // The header says how long a packet is.
            q.octets = 0;
        } else if ask.get::<KeepWhole>().is_some() {
            self.whole.set(Fragment::DONT);
            self.keeps_whole.set(true);
        } else if ask.get::<AlertRouters>().is_some() {
            self.alerts.set(true);
            self.mtu.set(0);
        } else if let Some(q) = ask.get::<PseudoHeader>() {
            if !self.shared.interfaces.is_own(self.local()) {
                // Which of our hosts answers a broadcast is known when the way is. Without one
                // nothing is sent.
                let _ = self.path(cx, this);
            }
            let (own, number) = ([self.local(), self.source.get()], self.key.protocol().into());
            *q = PseudoHeader::new(own.map(Into::into), self.peer().into(), number);
        } else if let Some(q) = ask.get::<Offloads>() {
            let _ = self.path(cx, this);
            if let Some(lower) = self.lower.get().and_then(|lower| lower.protocol(cx)) {
                q.answer(this.head().protocol(), || Offloads::of_protocol(cx, &lower));
            }
        } else if let Some(q) = ask.get::<Headers>() {
            let headers = (!self.alerts.get()).then(|| self.headers(cx, this));
            return q.found(headers.flatten());
        } else {
            let lower = self.lower.get();
            return lower.map_or(Answer::Unknown, |lower| lower.control(cx, ask));
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.release(&self.key, this);
        self.shared.identifications.end(&self.ids);
        self.let_go(cx);
        Closing::Done
    }
}
