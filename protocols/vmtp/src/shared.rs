//! Shared state of the protocol and its sessions, and the notices that managers exchange.

use crate::blocks::{HEADROOM, push};
use crate::entities::Entities;
use crate::forward::Route;
use crate::records::Records;
use crate::tables::ServerState;
use crate::wire::{DGM, Entity, Header, PIC, operation};
use crate::{blocks, wire};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use xk_core::graph::{ParamKind, optional, word};
use xk_core::map::Map;
use xk_core::object::SessionTable;
use xk_core::{HostAddr, Kernel, PeerName, ProtocolRef, Reason, SessionRef, Time};
use xk_kit::Cache;
use xk_kit::control::{MyEther, MyHost, PeerEther, PeerHost, opt_packet};
use xk_kit::net::neighbour::is_far;
use xk_kit::net::waiting::Alarm;

/// A session below, a server's discriminator and a procedure, and the protocol above that opened
/// the session; [`PASSIVE`] if a request made it.
pub(crate) type Key = (u64, u64, u32);

/// In the place of the protocol above.
pub(crate) const PASSIVE: u32 = u32::MAX;
/// In the place of the procedure, of a protocol that takes any.
pub(crate) const ANY: u32 = u32::MAX;
/// Discriminator of the server that is meant where the participants name none.
pub(crate) const SERVER: u32 = 1;

/// The largest packet pushed below, in octets, as large as those of an Ethernet.
pub const PACKET_OCTETS_MAX: usize = 1500;
/// Times that something is sent without a sign of life (RFC 1045 leaves it open; the first
/// implementation had 10).
pub(crate) const TRIES_MAX: u32 = 8;
/// Time in which the rest of a group is to come, counted from its last packet (TC3, TS1).
pub(crate) const GROUP_REST: Duration = Duration::from_millis(20);
/// Time after which a response in several packets is sent again (TS5).
pub(crate) const RESPONSE_REST: Duration = Duration::from_millis(400);
/// Time of a packet of the largest size, of which a gap counts 32 parts.
pub(crate) const PACKET_TIME: Duration = Duration::from_micros(1200);

/// The waits of a client (TC1, TC2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// The first wait if both messages are single packets.
    pub small: Duration,
    /// The first wait if one is longer.
    pub large: Duration,
    /// Longest wait.
    pub max: Duration,
}

/// On an Ethernet and on links as fast.
pub const NEAR: Timers = Timers {
    small: Duration::from_millis(100),
    large: Duration::from_millis(300),
    max: Duration::from_secs(1),
};

/// Over an internet.
pub const FAR: Timers = Timers {
    small: Duration::from_millis(500),
    large: Duration::from_secs(1),
    max: Duration::from_secs(4),
};

/// Round-trip time to a server, as measured, with its deviation (Jacobson's estimator).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Duration,
    deviation: Duration,
}

impl RoundTrip {
    /// Takes a measurement.
    pub(crate) fn with(self, measured: Duration) -> Self {
        if self.smoothed.is_zero() {
            return Self { smoothed: measured, deviation: measured / 2 };
        }
        Self {
            smoothed: (self.smoothed * 7 + measured) / 8,
            deviation: (self.deviation * 3 + self.smoothed.abs_diff(measured)) / 4,
        }
    }

    /// The first waits that suit it, in place of those for a peer of which nothing is known.
    pub(crate) fn suited(self, unknown: Timers) -> Timers {
        if self.smoothed.is_zero() {
            return unknown;
        }
        let small = self.smoothed + self.deviation * 4 + NEAR.small;
        let long = unknown.large - unknown.small;
        let max = unknown.max;
        Timers { small: small.min(max), large: (small + long).min(max), max }
    }
}

/// Number of hosts that forwarded requests are answered to at a time.
const WAYS_MAX: usize = 64;
/// Longest wait while the server says that it has the request.
pub(crate) const ALIVE_MAX: Duration = Duration::from_secs(5);
/// The first and the longest wait after the server said that it is busy.
pub(crate) const BUSY_WAITS: (Duration, Duration) =
    (Duration::from_secs(2), Duration::from_secs(15));

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        entities: u16 = int(1..=256, 8,
            "how many client entities there are, and so how many calls go at the same time"),
        domain: u32 = int(0..=8191, 1, "the domain of all entities"),
        checksum: bool = flag(true, "whether packets go with a checksum"),
        idempotent: bool = flag(false,
            "whether responses are not kept: a request that comes again is executed again"),
        probe: bool = flag(true,
            "whether a client is asked for its current transaction before its first request is \
             executed"),
        gap: u8 = int(0..=255, 0,
            "the gap between packets of a group at first, in 1/32 of a packet's time"),
        message_max: usize = int(0..=4_194_304, 4_194_304,
            "octets of a message, at most, either way"),
        records_max: usize = int(1..=65_536, 1024,
            "how many client entities a server knows; those that no longer matter go for new ones"),
        host_records_max: usize = int(1..=65_536, 64, "how many of them may be one host's"),
        hosts_max: usize = int(1..=1_048_576, 1024,
            "of how many servers the incarnation is remembered"),
        sessions_max: usize = int(1..=16_777_216, 4096,
            "how many sessions it holds; idle ones are evicted for new ones"),
        enables_max: usize = int(1..=65_537, 4096, "how many enables it holds"),
        ..
        /// The waits, or those that the layer below suggests.
        timers: Option<Timers> = None,
        /// Our host, if the layer below does not know it.
        address: Option<HostAddr> = None,
    }
    [
        word("timers", &["auto", "near", "far"], "auto",
            "the waits before something is sent again; `auto`: those that suit where each peer is"),
        optional("address", ParamKind::Text("a host, such as 10.0.0.1"),
            "our host, where the layer below does not know it; over `arp` it is claimed"),
    ]
}

pub(crate) struct Shared {
    pub(crate) lower: ProtocolRef,
    pub(crate) config: Settings,
    pub(crate) sessions: SessionTable<Key>,
    /// The protocol that takes the calls of a server's procedure.
    pub(crate) enables: Map<u64, ProtocolRef>,
    pub(crate) entities: Entities,
    pub(crate) records: Records,
    /// Our manager as a client of other managers.
    pub(crate) prober: u32,
    pub(crate) routes: Vec<Route>,
    /// The sessions below to clients whose requests other servers passed on, by host.
    pub(crate) ways: Cache<u32, SessionRef>,
    notices: Cell<u32>,
    /// Time by which the blocks come that clients were asked for.
    pub(crate) asking: Cell<Time>,
    alarm: Alarm,
}

/// A packet that has arrived, or an answer to one: where, and its header.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) cx: &'a Kernel,
    pub(crate) this: &'a ProtocolRef,
    /// The session below.
    pub(crate) lower: &'a SessionRef,
    pub(crate) header: &'a Header,
}

/// The key of a server's procedure.
pub(crate) fn name_key(discriminator: u32, procedure: u32) -> u64 {
    u64::from(discriminator) << 32 | u64::from(procedure)
}

/// Host part of the entities of the peer of a session below: its address, or what of it there is
/// room for.
pub(crate) fn peer_number(cx: &Kernel, lower: &SessionRef) -> u32 {
    if let Some(peer) = lower.ask(cx, PeerHost::default()) {
        return peer.host.folded();
    }
    let peer = lower.ask(cx, PeerEther::default());
    peer.map_or(0, |peer| ether_number(peer.address))
}

fn ether_number([_, _, a, b, c, d]: [u8; 6]) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

/// Name of the peer of a session below: its host, its station, or the session if that knows none.
///
/// # Errors
/// [`reason::NO_ANSWER`](xk_core::reason::NO_ANSWER) if a question was lost.
#[inline(always)]
pub(crate) fn peer_of(cx: &Kernel, lower: &SessionRef) -> Result<PeerName, &'static Reason> {
    match lower.head().peer() {
        PeerName::UNKNOWN => ask_peer(cx, lower),
        peer => Ok(peer),
    }
}

#[cold]
fn ask_peer(cx: &Kernel, lower: &SessionRef) -> Result<PeerName, &'static Reason> {
    let known = cx.unless_lost(|| match lower.ask(cx, PeerHost::default()) {
        Some(peer) => peer.host.into(),
        None => {
            let station = lower.ask(cx, PeerEther::default()).map(|peer| peer.address);
            let mut name = [0; 12];
            name[..6].copy_from_slice(&station.unwrap_or_default());
            if station.is_none() {
                name[4..].copy_from_slice(&lower.id().0.to_be_bytes());
            }
            PeerName::no_host(name)
        }
    })?;
    lower.head().set_peer(known);
    Ok(known)
}

/// Facts of a session below, asked once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Path {
    /// Blocks in a packet.
    pub(crate) blocks: u32,
    /// Host part of our entities, as the peer knows us.
    pub(crate) own: u32,
}

/// The waits for what goes through a session below.
pub(crate) fn timers(cx: &Kernel, config: &Settings, lower: &SessionRef) -> Timers {
    config.timers.unwrap_or_else(|| if is_far(cx, lower) { FAR } else { NEAR })
}

/// Blocks in a packet through a session below.
pub(crate) fn blocks_for(cx: &Kernel, lower: &SessionRef) -> u32 {
    let packet = opt_packet(cx, lower, PACKET_OCTETS_MAX as u32) as usize;
    blocks::blocks_in(packet.min(PACKET_OCTETS_MAX))
}

impl Shared {
    pub(crate) fn new(
        cx: &Kernel,
        lower: ProtocolRef,
        config: Settings,
        routes: Vec<Route>,
    ) -> Self {
        let key = cx.secret();
        let boot = cx.boot_id();
        Self {
            lower,
            sessions: SessionTable::new(key, config.sessions_max),
            enables: Map::new(key, config.enables_max),
            entities: Entities::new(cx, &config),
            records: Records::new(key, config.records_max, config.host_records_max),
            prober: 0x0400_0000 | boot & 0x03ff_ffff,
            routes,
            ways: Cache::new(cx.secret(), WAYS_MAX),
            notices: Cell::new(cx.random().next_u32()),
            asking: Cell::default(),
            alarm: Alarm::default(),
            config,
        }
    }

    /// Facts of a session below.
    pub(crate) fn path(&self, cx: &Kernel, lower: &SessionRef) -> Path {
        Path { blocks: blocks_for(cx, lower), own: self.own_number(cx, lower) }
    }

    /// Host part of our entities, as the peer of a session below knows us.
    fn own_number(&self, cx: &Kernel, lower: &SessionRef) -> u32 {
        if let Some(address) = self.config.address {
            return address.folded();
        }
        // `arp` hands up through sessions of the link, which know no host.
        let own = lower.ask(cx, MyHost::default());
        if let Some(own) = own.or_else(|| self.lower.ask(cx, MyHost::default())) {
            return own.host.folded();
        }
        // Of a bare link the peer knows no address, though the wire has one.
        let is_ether = lower.ask(cx, PeerEther::default()).is_some();
        let own = is_ether.then(|| lower.ask(cx, MyEther::default())).flatten();
        own.map_or(0, |own| ether_number(own.address))
    }

    /// Sees to it that the timer goes off not later than then.
    #[inline]
    pub(crate) fn watch(&self, cx: &Kernel, this: &ProtocolRef, due: Time) {
        if due < Time::MAX {
            self.alarm.set(cx, this, due.since(Time::ZERO), 0);
        }
    }

    /// The timer has gone off: does what is due.
    pub(crate) fn pass(self: &Rc<Self>, cx: &Kernel, this: &ProtocolRef) {
        self.alarm.went_off();
        let mut next = Time::MAX;
        let mut later = |due: Time| {
            if due > cx.now() {
                next = next.min(due);
            }
        };
        for line in self.entities.lines.iter() {
            if let Some(blocks) = line.out.resume(cx.now()).filter(|_| line.waits()) {
                let _ = self.send(cx, Some(this), line, blocks, 0);
            }
            if line.gathers.get().is_some_and(|(_, kept)| kept <= cx.now()) {
                self.entities.give_up(cx, line, false);
            }
            later(line.out.due());
            later(line.gathers.get().map_or(Time::MAX, |(_, kept)| kept));
        }
        for record in self.records.list() {
            let is_kept = record.state.get() == ServerState::Responded;
            if let Some(blocks) = record.out.resume(cx.now()).filter(|_| is_kept) {
                self.send_response(cx, this, &record, blocks, 0);
            }
            if record.due.get() <= cx.now() {
                self.look_after(cx, this, &record);
            }
            later(record.out.due());
            later(record.due.get());
        }
        self.watch(cx, this, next);
    }

    /// Sends an operation without response to the peer's manager.
    fn notify(&self, cx: &Kernel, lower: &SessionRef, code: u32, user: [u32; 7]) {
        // One that cannot be named is as good as lost.
        let Ok(own) = cx.unless_lost(|| self.own_number(cx, lower)) else { return };
        let header = Header {
            client: Entity::new(self.prober, own),
            domain: self.config.domain << 16,
            transaction: self.notices.get().wrapping_add(1),
            server: Entity::MANAGERS,
            code: DGM | PIC | code,
            user,
            ..Header::default()
        };
        self.notices.set(header.transaction);
        self.push_bare(cx, lower, &header);
    }

    /// Sends a packet without a segment. One that does not go is as good as lost.
    pub(crate) fn push_bare(&self, cx: &Kernel, lower: &SessionRef, header: &Header) {
        if let Ok(empty) = cx.pool().empty(HEADROOM) {
            let _ = push(cx, lower, header, empty, self.config.checksum);
        }
    }

    /// Tells the client of a request of this packet what has come of it.
    #[cold]
    pub(crate) fn notify_client(&self, at: At<'_>, held: u32, code: u32) {
        let At { cx, lower, header: request, .. } = at;
        let [client, low] = halves(request.client);
        let user = [client, low, request.control, 0, request.transaction, held, code];
        // The server that passed the request on hears it in the client's place.
        let code = match request.forwards() {
            0 => wire::CRE | operation::NOTIFY_CLIENT,
            _ => operation::NOTIFY_REMOTE_CLIENT,
        };
        self.notify(cx, lower, code, user);
    }

    /// Tells the server of a response of this packet what has come of it.
    #[cold]
    pub(crate) fn notify_server(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        response: &Header,
        held: u32,
        code: u32,
    ) {
        let ([server, s], [client, c]) = (halves(response.server), halves(response.client));
        let user = [server, s, client, c, response.transaction, held, code];
        self.notify(cx, lower, wire::CRE | operation::NOTIFY_SERVER, user);
    }

    /// Time of a gap.
    pub(crate) fn gap_time(gap: u8) -> Duration {
        PACKET_TIME * u32::from(gap) / 32
    }

    /// A line about both halves.
    pub(crate) fn describe(&self) -> String {
        alloc::format!("{}; {}", self.entities.describe(), self.describe_records())
    }

    /// Releases everything.
    pub(crate) fn stop(&self) {
        self.sessions.clear();
        self.enables.clear();
        self.ways.clear();
        self.routes.iter().for_each(|route| drop(route.way.take()));
        self.entities.stop();
        self.stop_records();
    }
}

/// Both words of an entity.
pub(crate) fn halves(entity: Entity) -> [u32; 2] {
    [(entity.0 >> 32) as u32, entity.0 as u32]
}
