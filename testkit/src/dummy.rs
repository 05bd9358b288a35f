//! # Synopsis
//! `dummy WIRE address="fd00::1"` — a network layer of hosts with 16-octet addresses, for tests.
//!
//! # Participants
//! A host: `[fd00::2]`.
//!
//! # Behaviour
//! No transport knows of it: it lists their numbers itself, and tells which fields of its header
//! differ between the packets of a run of segments. So it shows that a further network layer needs
//! nothing outside of its own folder. It stands on a wire that carries every message to all its
//! hosts, has neither routes nor fragments, and drops each message for another host.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     dummy sim address="fd00::1"
//!     udp   dummy
//!     echo  udp port=7
//! }
//! ```
//!
//! # Standard
//! None.

use std::net::Ipv6Addr;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError, Family, Guarantees, ParamKind, Realm, Service, required};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason::{self, Reason};
use xk_core::{
    Answer, Ask, Entry, HostAddr, Kernel, Message, Part, Participants, ProtocolRef, SessionRef,
    Upper,
};
use xk_kit::control::{IsGroup, IsLocalHost, MyHost, PeerHost, PseudoHeader, SpecificDestination};
use xk_kit::layer::{Arrival, Conversation, Layer, Layered, Receiver, Unsent, sessions_max};
use xk_kit::wire::offload::Offloads;
use xk_kit::wire::segments::{self, Length, NetworkHeader};

/// Octets of the header: receiver and sender, then number and length, two octets each.
const OCTETS: usize = 36;
const NUMBER_AT: usize = 32;
const LENGTH_AT: usize = 34;
/// The fields that differ between the packets of a run.
const COUNTS: NetworkHeader = NetworkHeader {
    octets: OCTETS as u8,
    length: Some(Length { at: LENGTH_AT as u8, with_header: false }),
    number: None,
    sum: None,
};
const ADDRESS: &str = "an IPv6 address, such as fd00::1";

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("dummy", include_str!("dummy.rs"), build)
    .summary("a network layer of 16-octet hosts, for tests")
    .above(Family::Host)
    .on(&[Realm::Wire], &[Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(OCTETS)
    .numbers_above(&[("udp", 17), ("tcp", 6)])
    .parameters(&[
        required("address", ParamKind::Text(ADDRESS), "the host's own"),
        sessions_max(4096),
    ])
    .questions(&[
        question("my-host", "its own host"),
        question("peer-host", "the peer of a session"),
        question("is-local-host", "whether a host is its own"),
        question("is-group", "no host is several"),
        question("pseudo-header", "the sums over both hosts and the number"),
        question("specific-destination", "its own host, always"),
    ]);

/// One host.
struct Dummy {
    own: HostAddr,
}

type Host = Layered<Dummy, OCTETS>;
type Packets = Conversation<Dummy, OCTETS>;

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let own: Option<Ipv6Addr> = build.params.parse("address", ADDRESS)?;
    let own = own.ok_or_else(|| BuildError::param("address", ADDRESS))?;
    Layered::build(build, Dummy { own: own.into() })
}

fn word(header: &[u8; OCTETS], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

fn host(octets: &[u8]) -> HostAddr {
    HostAddr::from(*octets.first_chunk::<16>().expect("an address"))
}

impl Dummy {
    fn is_mine(&self, header: &[u8; OCTETS]) -> bool {
        host(header) == self.own
    }

    fn put(&self, own: &Packets, octets: usize) -> [u8; OCTETS] {
        let (peer, number) = own.key;
        let mut header = [0; OCTETS];
        header[..16].copy_from_slice(peer.octets());
        header[16..NUMBER_AT].copy_from_slice(self.own.octets());
        header[NUMBER_AT..LENGTH_AT].copy_from_slice(&number.to_be_bytes());
        header[LENGTH_AT..].copy_from_slice(&(octets as u16).to_be_bytes());
        header
    }

    fn answer(&self, ask: &mut Ask<'_>) -> bool {
        if let Some(question) = ask.get::<MyHost>() {
            question.host = self.own;
        } else if let Some(question) = ask.get::<IsLocalHost>() {
            question.local = question.host == self.own;
        } else if let Some(question) = ask.get::<IsGroup>() {
            question.many = false;
        } else {
            return false;
        }
        true
    }
}

impl Layer<OCTETS> for Dummy {
    /// The peer, and the number of the protocol above.
    type Key = (HostAddr, u16);
    type State = ();

    const QUOTES: bool = true;
    const OCTETS_MAX: usize = u16::MAX as usize;

    fn key(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<(HostAddr, u16), OpenError> {
        let number = upper.number_on(cx, this)?;
        let number = u16::try_from(number).map_err(|_| OpenError::NoTypeNumber)?;
        match ends.local_mut()?.pop_host()? {
            Wild::Is(local) if local != self.own => return Err(AddressError::OutOfRange.into()),
            _ => {}
        }
        let peer = ends.peer_mut()?.pop_host()?.definite()?;
        match peer.to_v6() {
            Some(_) if peer != self.own => Ok((peer, number)),
            _ => Err(AddressError::OutOfRange.into()),
        }
    }

    fn offer(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: &mut Participants,
    ) -> Result<u64, OpenError> {
        upper.number_on(cx, this).map(u64::from)
    }

    fn key_of(header: &[u8; OCTETS]) -> (HostAddr, u16) {
        (host(&header[16..]), word(header, NUMBER_AT))
    }

    fn offer_for((_, number): (HostAddr, u16)) -> u64 {
        number.into()
    }

    fn length(header: &[u8; OCTETS]) -> Option<usize> {
        Some(word(header, LENGTH_AT).into())
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, _: (HostAddr, u16)) {}

    fn fit(&self, own: &Packets, message: &mut Message) -> bool {
        message.len() <= own.octets_max && !message.has_attributes()
    }

    fn header(&self, own: &Packets, message: &Message) -> Option<[u8; OCTETS]> {
        Some(self.put(own, message.len()))
    }

    /// One that may stand for a run.
    fn examine_sent(
        &self,
        _: &Kernel,
        own: &Packets,
        message: &mut Message,
    ) -> Result<[u8; OCTETS], Unsent> {
        let is_whole = message.len() <= Self::OCTETS_MAX;
        if !is_whole || segments::longest(message) > own.octets_max {
            return Err((PushError::TooBig, &reason::TOO_BIG));
        }
        segments::note_network(message, COUNTS);
        Ok(self.put(own, message.len()))
    }

    fn is_plain(
        &self,
        _: &Packets,
        header: &[u8; OCTETS],
        message: &Message,
        front: usize,
    ) -> bool {
        let length = usize::from(word(header, LENGTH_AT));
        self.is_mine(header) && message.len() == front + OCTETS + length
    }

    fn examine(
        &self,
        _: &Packets,
        header: &[u8; OCTETS],
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        let length = usize::from(word(header, LENGTH_AT));
        if !self.is_mine(header) {
            return Err(&reason::NOT_MINE);
        }
        if length > message.len() {
            return Err(&reason::BAD_LENGTH);
        }
        message.truncate(length);
        Ok(())
    }

    fn ends(&self, _: &Kernel, _: &SessionRef, (peer, _): (HostAddr, u16)) -> Participants {
        Participants::pair(Part::Host(self.own), Part::Host(peer))
    }

    /// Refuses a message for another host, which makes no session.
    fn first(
        all: &Host,
        at: Arrival<'_>,
        header: &[u8; OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        if !all.layer.is_mine(header) {
            return all.refuse(at, Some(header), message, &reason::NOT_MINE);
        }
        let key = Self::key_of(header);
        match all.offers.get(&Self::offer_for(key)) {
            Some(Receiver::Protocol(upper)) => all.accept(at, &upper, key, message),
            _ => all.refuse(at, Some(header), message, Self::NO_RECEIVER),
        }
    }

    fn control(all: &Host, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.id(), || Offloads::of_protocol(cx, &all.lower));
            return Answer::Answered;
        }
        if all.layer.answer(ask) { Answer::Answered } else { all.answer(cx, ask) }
    }

    fn session_control(own: &Packets, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (mine, (peer, number)) = (own.all.layer.own, own.key);
        if let Some(question) = ask.get::<PeerHost>() {
            question.host = peer;
        } else if let Some(question) = ask.get::<SpecificDestination>() {
            (question.host, question.many) = (mine, false);
        } else if let Some(question) = ask.get::<PseudoHeader>() {
            *question = PseudoHeader::new([mine; 2], peer, number.into());
        } else if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.head().protocol(), || Offloads::of_session(cx, own.lower()));
        } else if !own.all.layer.answer(ask) {
            return own.answer(cx, ask);
        }
        Answer::Answered
    }
}
