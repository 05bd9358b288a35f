//! Arrivals that no session was waiting for, or that need a closer look.

use crate::interface::Kind;
use crate::path::NextHop;
use crate::protocol::{Ip, key_of, mark, tell};
use crate::reassembly::{Key as FragmentKey, Outcome};
use crate::session::IpSession;
use crate::shared::{FLAG_GROUP, FLAG_LOOP, TOKEN_REASSEMBLY, reasons};
use crate::wire::{Error, HEADER_LEN_MAX, Header};
use xk_core::object::Refused;
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, Message, Part, Participants, ProtocolRef, SessionRef};
use xk_kit::control::SendErrorCause;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::{Ecn, LinkCast};
use xk_kit::net::groups::CameBy;
use xk_kit::wire::offload::TransportChecksum;

/// The octets of a packet's header, for putting it back in front.
#[derive(Clone, Copy)]
pub(crate) struct Front {
    octets: [u8; HEADER_LEN_MAX],
    len: usize,
}

impl Front {
    /// Octets of a header without options.
    #[cfg(test)]
    pub(crate) fn of(header: &Header) -> Self {
        let mut octets = [0; HEADER_LEN_MAX];
        if let Some(fixed) = octets.first_chunk_mut() {
            header.emit(fixed);
        }
        Self { octets, len: crate::wire::HEADER_LEN }
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

/// An arrival whose header has been read.
pub(crate) struct Arrival {
    pub(crate) header: Header,
    pub(crate) front: Front,
    /// True if it never left us.
    pub(crate) looped: bool,
    /// True if it was for more than one, on its link or by its destination: then no sender is told
    /// of errors.
    pub(crate) cast: bool,
    /// The octet at fault, if an option is malformed.
    pub(crate) bad_option: Option<u8>,
    pub(crate) source_route: bool,
    /// True if routers are to look at it.
    alerts: bool,
    /// The way by which it came, for the protocol that watches groups.
    came_by: Option<CameBy>,
}

impl Arrival {
    fn flags(&self) -> u16 {
        let looped = if self.looped { FLAG_LOOP } else { 0 };
        looped | if self.header.dst.is_multicast() { FLAG_GROUP } else { 0 }
    }
}

fn reason_of(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Checksum => &reason::BAD_CHECKSUM,
        Error::TotalLength => &reason::BAD_LENGTH,
        Error::Option(_) => &reasons::BAD_OPTION,
        Error::Version(_) | Error::HeaderLength(_) | Error::Fragment => &reason::MALFORMED,
    }
}

/// Reads the header with its options, and trims what the link has padded.
pub(crate) fn read(message: &mut Message, looped: bool) -> Result<Arrival, &'static Reason> {
    let header = Header::parse(&message.header()?).map_err(reason_of)?;
    if header.total_len() > message.len() {
        return Err(&reason::BAD_LENGTH);
    }
    message.truncate(header.total_len());
    let len = header.header_len();
    message.pull_up(len)?;
    let octets = message.peek_slice(len).ok_or(&reason::TRUNCATED)?;
    let front = Front::copy(octets);
    let mut arrival = Arrival {
        header,
        front,
        looped,
        cast: message.attribute::<LinkCast>().is_some(),
        bad_option: None,
        source_route: false,
        alerts: false,
        came_by: None,
    };
    if let Some((fixed, rest)) = front.octets().split_first_chunk()
        && !rest.is_empty()
    {
        match header.parse_options(fixed, rest) {
            Ok(options) => {
                arrival.source_route = options.has_source_route();
                arrival.alerts = options.alerts();
            }
            Err(Error::Option(at)) => arrival.bad_option = Some(at),
            Err(error) => return Err(reason_of(error)),
        }
    }
    Ok(arrival)
}

/// Fragments of at most so many octets are copied to be kept.
const COPIED_OCTETS_MAX: usize = 128;
/// Octets in front of those for the header, should the sender be told of the time exceeded.
const HEADROOM: usize = 96;

/// A copy of a message in a small buffer, if there is one.
fn copy(cx: &Kernel, message: &Message) -> Option<Message> {
    let mut octets = [0; COPIED_OCTETS_MAX];
    let len = message.copy_to(0, &mut octets);
    let mut short = cx.pool().copy_from(HEADROOM, octets.get(..len)?).ok()?;
    for (key, value) in message.attributes_encoded() {
        short.set_attribute_encoded(key, value).ok()?;
    }
    Some(short)
}

impl Ip {
    /// Takes a packet, header in front, from a session below or from ourselves.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: Option<&SessionRef>,
        mut message: Message,
    ) -> Result<(), Refused> {
        let looped = lower.is_none();
        let mut arrival = match read(&mut message, looped) {
            Ok(arrival) => arrival,
            Err(why) => {
                // As far as the octets can be believed.
                let source = message.peek::<16>().map(|octets| octets[12..].first_chunk());
                let source = source.flatten().copied().unwrap_or_default();
                return Err(self.refuse(this, message, Ipv4::from(source), why));
            }
        };
        let interfaces = &self.shared.interfaces;
        let to = interfaces.kind(arrival.header.dst);
        if let Some(lower) = lower
            && self.shared.is_watchers(arrival.header.protocol)
        {
            // Not if its interface is not known.
            let (of, alerts) = (interfaces.of_session(lower), arrival.alerts);
            arrival.came_by =
                (of.len() == 1).then_some(CameBy { interface: of.start as u8, alerts });
        }
        // A switch that asks for members may have no host of its own (RFC 4541, section 2.1.1).
        let is_nobodys = arrival.came_by.is_some()
            && arrival.header.src == Ipv4::UNSPECIFIED
            && to == Kind::Group;
        if !looped && !is_nobodys && interfaces.is_bad_source(arrival.header.src, to) {
            return Err(self.refuse(this, message, arrival.header.src, &reason::BAD_SOURCE));
        }
        match to {
            // RFC 1122, section 3.3.6.
            Kind::Own if arrival.cast => {
                return Err(self.refuse(
                    this,
                    message,
                    arrival.header.src,
                    &reasons::LINK_BROADCAST,
                ));
            }
            Kind::Own => {}
            Kind::Loopback if looped => {}
            Kind::Broadcast => arrival.cast = true,
            Kind::Group if self.takes(lower, &arrival) => arrival.cast = true,
            Kind::Loopback | Kind::Nobody => {
                return Err(self.refuse(this, message, arrival.header.src, &reasons::MARTIAN));
            }
            Kind::Group => {
                return Err(self.refuse(this, message, arrival.header.src, &reason::NOT_MINE));
            }
            Kind::Other => return self.forward(cx, this, arrival, message),
        }
        if let Some(message) = self.check_options(cx, this, &arrival, message) {
            if arrival.header.fragment.is_part() {
                self.take_fragment(cx, this, arrival, message);
            } else {
                self.take_whole(cx, this, &arrival, message);
            }
        }
        Ok(())
    }

    /// Whether a packet to a group is taken where it arrives: by a session below, or from
    /// ourselves, on the interface by which it went out.
    fn takes(&self, lower: Option<&SessionRef>, arrival: &Arrival) -> bool {
        let (interfaces, Header { src, dst, .. }) = (&self.shared.interfaces, arrival.header);
        let memberships = &interfaces.memberships;
        match lower {
            // What routers ask is not data, of which a host chooses the sources.
            Some(lower) => interfaces.of_session(lower).any(|at| match arrival.came_by {
                Some(_) => memberships.is_joined(at, dst),
                None => memberships.admits(at, dst, src),
            }),
            None => match self.shared.next_hop(Some(src), dst) {
                Some(NextHop::Out { interface, .. }) => memberships.admits(interface, dst, src),
                _ => false,
            },
        }
    }

    /// Refuses a packet, counted as the source's.
    #[cold]
    pub(crate) fn refuse(
        &self,
        this: &ProtocolRef,
        message: Message,
        source: Ipv4,
        why: &'static Reason,
    ) -> Refused {
        self.shared.record_drop(source, why);
        this.refuse(message, why)
    }

    /// Gives the message back if its options are fit for taking it in or on.
    pub(crate) fn check_options(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        arrival: &Arrival,
        message: Message,
    ) -> Option<Message> {
        let why = if let Some(pointer) = arrival.bad_option {
            (&reasons::BAD_OPTION, SendErrorCause::Parameter { pointer })
        } else if arrival.source_route {
            // RFC 1812, section 5.2.4.1 lets a router refuse them; the host that told the way would
            // hear our answers.
            (&reasons::SOURCE_ROUTE, SendErrorCause::Refused(&reasons::SOURCE_ROUTE))
        } else {
            return Some(message);
        };
        self.drop_and_tell(cx, this, message, why, arrival.cast);
        None
    }

    fn take_whole(&self, cx: &Kernel, this: &ProtocolRef, arrival: &Arrival, mut message: Message) {
        if message.strip(arrival.header.header_len()) {
            self.deliver(cx, this, arrival, message);
        } else {
            this.discard(message, &reason::TRUNCATED);
        }
    }

    /// Hands a whole datagram, header stripped, to its session.
    fn deliver(&self, cx: &Kernel, this: &ProtocolRef, arrival: &Arrival, mut message: Message) {
        if arrival.header.ecn() == Ecn::Experienced.bits() {
            mark(&mut message);
        }
        // What is for a group, its receivers sort by group and source once more.
        let is_told =
            self.shared.tells(arrival.header.protocol) || arrival.header.dst.is_multicast();
        if is_told && let Some(header) = arrival.front.octets().first_chunk() {
            tell(&mut message, header);
        }
        if let Some(came_by) = arrival.came_by {
            // A message full of attributes goes without.
            let _ = message.set_attribute(came_by);
        }
        let key = key_of(&arrival.header, arrival.flags());
        let session = match self.shared.sessions.get(&key) {
            Some(session) => Ok(session),
            None => self.make_session(cx, this, arrival),
        };
        let refused = match session {
            Ok(session) => match session.pop(cx, message) {
                Ok(()) => return,
                Err(refused) => refused,
            },
            Err(why) => self.refuse(this, message, arrival.header.src, why),
        };
        self.shared.refused(cx, this, &arrival.front, arrival.cast, refused);
    }

    /// Makes the session that an enable is for.
    fn make_session(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        arrival: &Arrival,
    ) -> Result<SessionRef, &'static Reason> {
        let Header { src, dst, protocol, .. } = arrival.header;
        let enables = &self.shared.enables;
        let upper = enables
            .get(&(dst.to_bits(), protocol))
            .or_else(|| enables.get(&(Ipv4::UNSPECIFIED.to_bits(), protocol)))
            .ok_or(&reason::NO_PROTOCOL)?;
        let key = key_of(&arrival.header, arrival.flags());
        let make = || {
            let ends = Participants::pair(Part::host(dst), Part::host(src));
            (IpSession::new(&self.shared, key, dst, &upper), ends)
        };
        self.shared.sessions.accept(cx, this, &upper, key, src.to_bits().into(), make)
    }

    /// Takes a fragment of a datagram for us.
    fn take_fragment(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        mut arrival: Arrival,
        mut message: Message,
    ) {
        if !message.strip(arrival.header.header_len()) {
            this.discard(message, &reason::TRUNCATED);
            return;
        }
        // What is known of a part says nothing of the whole.
        message.remove_attribute::<TransportChecksum>();
        let key: FragmentKey = (
            arrival.header.src.to_bits(),
            arrival.header.dst.to_bits(),
            arrival.header.protocol,
            arrival.header.id,
            arrival.looped,
        );
        // A short one would keep a buffer as long as the link's frames for the sake of a few
        // octets.
        if message.len() <= COPIED_OCTETS_MAX
            && let Some(short) = copy(cx, &message)
        {
            message = short;
        }
        let outcome = {
            let mut reassembly = self.shared.reassembly.borrow_mut();
            let outcome = reassembly.insert(key, &arrival.header, arrival.front, message, cx.now());
            this.head().drops().add(&reasons::EVICTED, reassembly.take_evicted() as u64);
            outcome
        };
        if !self.shared.reassembly_armed.get() {
            self.arm_reassembly(cx, this);
        }
        match outcome {
            Outcome::Held => {}
            Outcome::Dropped(fragments, why) => {
                for _ in 0..fragments {
                    this.head().drops().count(why);
                    self.shared.record_drop(arrival.header.src, why);
                }
            }
            Outcome::Whole(whole) => {
                self.shared.figure(|f| {
                    f.reassembled += 1;
                    f.fragments_joined += whole.fragments as u64;
                });
                arrival.header = whole.header;
                arrival.front = whole.front;
                let mut payload = whole.payload;
                // In place of the first fragment's, for a refusal that comes late.
                if arrival.front.restore(&mut payload) {
                    let _ = payload.strip(arrival.front.octets().len());
                }
                self.deliver(cx, this, &arrival, payload);
            }
        }
    }

    /// Sets the timer for the oldest incomplete datagram. Without a timer nothing incomplete is
    /// kept.
    fn arm_reassembly(&self, cx: &Kernel, this: &ProtocolRef) {
        let next = self.shared.reassembly.borrow().next_deadline();
        let Some(next) = next else { return };
        let delay = next.since(cx.now());
        let armed = cx.schedule_protocol(this, delay, TOKEN_REASSEMBLY);
        self.shared.reassembly_armed.set(armed.is_ok());
        if armed.is_err() {
            let lost = self.shared.reassembly.borrow_mut().clear();
            this.head().drops().add(&reasons::EVICTED, lost as u64);
        }
    }

    /// The timer of incomplete datagrams went off (RFC 1122, section 3.3.2).
    pub(crate) fn expire_fragments(&self, cx: &Kernel, this: &ProtocolRef) {
        self.shared.reassembly_armed.set(false);
        loop {
            let expired = self.shared.reassembly.borrow_mut().expire(cx.now());
            let Some(expired) = expired else { break };
            for _ in 0..expired.fragments {
                this.head().drops().count(&reasons::TIMED_OUT);
                self.shared.record_drop(expired.from, &reasons::TIMED_OUT);
            }
            if let Some((front, mut first)) = expired.first
                && front.restore(&mut first)
            {
                let cast = !self.shared.interfaces.is_own(expired.to);
                self.shared.tell(cx, this, first, SendErrorCause::Reassembly, cast);
            }
        }
        self.arm_reassembly(cx, this);
    }
}
