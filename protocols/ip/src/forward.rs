//! Forwarding (RFC 1812, section 5).

use crate::fragment::{self, Cut};
use crate::interface::Kind;
use crate::protocol::Ip;
use crate::receive::Front;
use crate::receive::{Arrival, read};
use crate::shared::reasons;
use crate::wire::{HEADER_LEN, HEADER_LEN_MAX, Header, Options, decrement_ttl, record};
use core::cell::RefCell;
use xk_core::Secret;
use xk_core::object::{PushError, Refused};
use xk_core::reason;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef};
use xk_kit::Cache;
use xk_kit::control::SendErrorCause;
use xk_kit::net::addr::Ipv4;
use xk_kit::wire::segments;

/// Octets of a packet that an error message quotes at least: its header and eight octets (RFC 792).
const QUOTED_LEN: usize = HEADER_LEN_MAX + 8;
/// Room for the headers in front of what is quoted.
const HEADROOM: usize = 128;

/// A way onward, found before.
#[derive(Clone)]
struct Hop {
    interface: usize,
    next_hop: Ipv4,
    lower: SessionRef,
    mtu: u16,
}

/// Sessions to next hops, the one used longest ago making room for the newest.
pub(crate) struct Hops {
    by_next: Cache<(u32, u8), Hop>,
    /// The destination of the last packet, and its way.
    last: RefCell<Option<(Ipv4, Hop)>>,
}

impl Hops {
    /// Makes a table of at most `hops_max` next hops.
    pub(crate) fn new(secret: Secret, hops_max: usize) -> Self {
        Self { by_next: Cache::new(secret, hops_max), last: RefCell::default() }
    }

    fn last(&self, to: Ipv4) -> Option<Hop> {
        let last = self.last.borrow();
        let (_, hop) = last.as_ref().filter(|(host, _)| *host == to)?;
        (!hop.lower.head().is_closed()).then(|| hop.clone())
    }

    fn remember(&self, to: Ipv4, hop: &Hop) {
        *self.last.borrow_mut() = Some((to, hop.clone()));
    }

    fn get(&self, key: (u32, u8)) -> Option<Hop> {
        let hop = self.by_next.touch(&key)?;
        (!hop.lower.head().is_closed()).then_some(hop)
    }

    fn put(&self, cx: &Kernel, key: (u32, u8), hop: Hop) {
        if let Some((_, gone)) = self.by_next.put(key, hop) {
            self.last.take();
            gone.lower.close(cx);
        }
    }

    /// Releases all.
    pub(crate) fn clear(&self, cx: &Kernel) {
        self.last.take();
        for (key, hop) in self.by_next.snapshot() {
            self.by_next.remove(&key);
            hop.lower.close(cx);
        }
    }
}

impl Ip {
    /// Sends a packet for another host on its way, or drops it.
    pub(crate) fn forward(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        arrival: Arrival,
        message: Message,
    ) -> Result<(), Refused> {
        // RFC 1812, section 5.3.4: nothing that came by a link-layer broadcast goes on.
        if !self.shared.config.forward || arrival.cast {
            return Err(self.refuse(this, message, arrival.header.src, &reason::NOT_MINE));
        }
        // RFC 3927, section 7; a packet of our own that we do not know the way for cannot come
        // here.
        let header = &arrival.header;
        if header.src.is_link_local() || header.dst.is_link_local() || arrival.looped {
            return Err(self.refuse(this, message, arrival.header.src, &reasons::MARTIAN));
        }
        if header.src == Ipv4::UNSPECIFIED || self.shared.interfaces.kind(header.src) != Kind::Other
        {
            return Err(self.refuse(this, message, arrival.header.src, &reason::BAD_SOURCE));
        }
        let Some(message) = self.check_options(cx, this, &arrival, message) else {
            return Ok(());
        };
        if arrival.header.ttl <= 1 {
            let why = (&reasons::TTL_EXCEEDED, SendErrorCause::TimeToLive);
            self.drop_and_tell(cx, this, message, why, false);
            return Ok(());
        }
        match self.hop(cx, this, arrival.header.dst) {
            Some(hop) => self.send_on(cx, this, arrival, &hop, message),
            None => {
                let why = (&reasons::NO_ROUTE, SendErrorCause::NoRoute);
                self.drop_and_tell(cx, this, message, why, false);
            }
        }
        Ok(())
    }

    /// The way to a destination.
    fn hop(&self, cx: &Kernel, this: &ProtocolRef, to: Ipv4) -> Option<Hop> {
        if let Some(hop) = self.shared.hops.last(to) {
            return Some(hop);
        }
        let route = self.shared.routes.borrow().lookup(to)?;
        let next_hop = route.via.unwrap_or(to);
        let key = (next_hop.to_bits(), route.interface as u8);
        let hop = match self.shared.hops.get(key) {
            Some(hop) => hop,
            None => {
                let opened = self.shared.open_hop(cx, this, route.interface, next_hop);
                let (lower, mtu) = opened.ok()?;
                let hop = Hop { interface: route.interface, next_hop, lower, mtu };
                self.shared.hops.put(cx, key, hop.clone());
                hop
            }
        };
        self.shared.hops.remember(to, &hop);
        Some(hop)
    }

    /// Sends a packet to its next hop, cut if need be.
    fn send_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        mut arrival: Arrival,
        hop: &Hop,
        mut message: Message,
    ) {
        let header = arrival.header;
        // Of a run of segments each goes as a packet of its own.
        let fits = segments::longest(&message) <= usize::from(hop.mtu);
        if !fits && header.fragment.dont() {
            let why = (&reason::TOO_BIG, SendErrorCause::TooBig { mtu: hop.mtu });
            self.drop_and_tell(cx, this, message, why, false);
            return;
        }
        if !fits && segments::of(&message).is_some() {
            return self.send_apart(cx, this, hop, message);
        }
        // What its sender is told of it, should the next hop turn out unreachable: the message is
        // gone then.
        let mut start = [0; QUOTED_LEN];
        let start_len = message.copy_to(0, &mut start);
        if !message.strip(header.header_len()) {
            this.discard(message, &reason::TRUNCATED);
            return;
        }
        self.rewrite(cx, hop, &mut arrival);
        let result = if fits {
            match arrival.front.restore(&mut message) {
                true => hop.lower.push(cx, message),
                false => Err(PushError::NoBuffers),
            }
        } else {
            send_cut(cx, &arrival.front, hop, message, |sent| {
                self.shared.figure(|f| f.fragments_sent += sent);
            })
        };
        match result {
            Ok(()) => self.shared.figure(|f| f.forwarded += 1),
            Err(PushError::NoBuffers) => this.head().drops().count(&reason::NO_BUFFERS),
            Err(PushError::QueueFull) => this.head().drops().count(&reason::QUEUE_FULL),
            Err(_) => {
                this.head().drops().count(&reasons::NOT_SENT);
                if let Ok(packet) = cx.pool().copy_from(HEADROOM, &start[..start_len]) {
                    self.shared.tell(cx, this, packet, SendErrorCause::HostUnreachable, false);
                }
            }
        }
    }

    /// Sends the packets of a run of segments, each cut if need be.
    #[cold]
    fn send_apart(&self, cx: &Kernel, this: &ProtocolRef, hop: &Hop, run: Message) {
        let pieces = match segments::split(run) {
            Ok(pieces) => pieces,
            Err(why) => return this.head().drops().count(why),
        };
        for piece in pieces {
            let read = piece.and_then(|mut piece| {
                let arrival = read(&mut piece, false)?;
                Ok((arrival, piece))
            });
            match read {
                Ok((arrival, piece)) => self.send_on(cx, this, arrival, hop, piece),
                Err(why) => this.head().drops().count(why),
            }
        }
    }

    /// Takes one hop off the header's octets, and writes into options that ask for it.
    fn rewrite(&self, cx: &Kernel, hop: &Hop, arrival: &mut Arrival) {
        let has_options = arrival.header.options_len() > 0;
        let octets = arrival.front.octets_mut();
        if let Some(fixed) = octets.first_chunk_mut::<HEADER_LEN>() {
            decrement_ttl(fixed);
        }
        if !has_options {
            return;
        }
        let own = self.shared.interfaces.source(hop.interface, hop.next_hop);
        // No clock here knows the time of day: the high bit says so (RFC 791, section 3.1).
        let now_ms = cx.now().as_ms() as u32 | 0x8000_0000;
        if record(octets, own.unwrap_or(Ipv4::UNSPECIFIED), now_ms) {
            octets[10..12].fill(0);
            let sum = xk_kit::net::checksum::checksum(octets);
            octets[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Cuts a packet that does not fit and sends the pieces.
fn send_cut(
    cx: &Kernel,
    front: &Front,
    hop: &Hop,
    payload: Message,
    count: impl FnOnce(u64),
) -> Result<(), PushError> {
    let Some((fixed, options)) = front.octets().split_first_chunk::<HEADER_LEN>() else {
        return Err(PushError::NotSupported);
    };
    let (Ok(header), Ok(first)) = (Header::parse(fixed), Options::parse(options)) else {
        return Err(PushError::NotSupported);
    };
    let cut = Cut { header, first, mtu: usize::from(hop.mtu).max(HEADER_LEN_MAX + 8) };
    let (sent, result) = fragment::send(cx, &hop.lower, cut, payload);
    count(sent);
    result
}
