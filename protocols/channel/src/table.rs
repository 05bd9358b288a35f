//! Shared state of protocol and sessions.

use crate::wire::HEADER_OCTETS;
use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Secret;
use xk_core::object::{ProtocolId, SessionTable};
use xk_core::question;
use xk_core::{HostAddr, Kernel, PeerName, ProtocolRef, SessionRef, reason};
use xk_kit::control::{MinPacket, OptPacket, PeerHost, max_packet};
use xk_kit::rpc::incarnation::{Clients, Servers};

/// Closed channels whose last sequence number is remembered.
const DORMANT_MAX: usize = 1024;
/// Interval at which the server's side looks for replies that are not acknowledged.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);
/// Room in front of a packet without payload, in octets: for its header and those below.
const HEADROOM_OCTETS: usize = 128;
/// Packet that a layer below carries whole if it does not say, in octets.
const OPT_PACKET_UNKNOWN: u32 = 1500;
/// The key that a packet is demultiplexed by: the peer, as [`peer_of`] names it, the type number,
/// and the channel with [`SERVER_SIDE`].
pub(crate) type Key = (PeerName, u32, u32);
/// In a key: the session is the server's.
pub(crate) const SERVER_SIDE: u32 = 1 << 16;

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFigures {
    /// Calls begun.
    pub calls: u64,
    /// Requests sent again, after a time or because the server asked for them.
    pub resends: u64,
    /// Probes sent, by either side.
    pub probes: u64,
    /// Acknowledgements sent, by either side.
    pub acks: u64,
    /// Challenges sent.
    pub challenges: u64,
    /// Requests executed.
    pub executed: u64,
    /// Requests executed whose client had gone on to another call.
    pub abandoned: u64,
    /// Replies sent again.
    pub replies_again: u64,
}

question!(
    ChannelFigures { calls, resends, probes, acks, challenges, executed, abandoned, replies_again },
    "channel-figures",
    Ask
);

/// The figures as they are counted, each by itself.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) calls: Cell<u64>,
    pub(crate) resends: Cell<u64>,
    pub(crate) probes: Cell<u64>,
    pub(crate) acks: Cell<u64>,
    pub(crate) challenges: Cell<u64>,
    pub(crate) executed: Cell<u64>,
    pub(crate) abandoned: Cell<u64>,
    pub(crate) replies_again: Cell<u64>,
}

/// Counts one more.
#[inline(always)]
pub(crate) fn count(figure: &Cell<u64>) {
    figure.set(figure.get() + 1);
}

/// Shared state of protocol and sessions.
pub(crate) struct Table {
    pub(crate) sessions: SessionTable<Key>,
    pub(crate) clients: Clients,
    pub(crate) servers: Servers,
    /// Whether the sweep's timer is set.
    pub(crate) sweeps: Cell<bool>,
    /// Channels that were closed, with their last sequence number.
    dormant: RefCell<VecDeque<(Key, u32)>>,
    /// Number behind which a channel begins whose last number is forgotten, less the part of its
    /// peer ([`Table::begin_at`]).
    floor: Cell<u32>,
    begins: Secret,
    pub(crate) tally: Tally,
    pub(crate) boot: u32,
    /// The lower session through which the last packet of a channel came.
    pub(crate) last_lower: Cell<u64>,
}

impl Table {
    pub(crate) fn new(cx: &Kernel, sessions_max: usize, clients_max: usize) -> Self {
        Self {
            sessions: SessionTable::new(cx.secret(), sessions_max),
            clients: Clients::new(cx, clients_max),
            servers: Servers::new(cx, clients_max),
            sweeps: Cell::new(false),
            dormant: RefCell::default(),
            floor: Cell::new(0),
            begins: cx.secret(),
            tally: Tally::default(),
            last_lower: Cell::new(0),
            boot: cx.boot_id(),
        }
    }

    pub(crate) fn figures(&self) -> ChannelFigures {
        let tally = &self.tally;
        ChannelFigures {
            calls: tally.calls.get(),
            resends: tally.resends.get(),
            probes: tally.probes.get(),
            acks: tally.acks.get(),
            challenges: tally.challenges.get(),
            executed: tally.executed.get(),
            abandoned: tally.abandoned.get(),
            replies_again: tally.replies_again.get(),
        }
    }

    /// Remembers the last number of a channel that is closed.
    pub(crate) fn lay_down(&self, key: Key, sequence: u32) {
        let mut dormant = self.dormant.borrow_mut();
        if dormant.len() == DORMANT_MAX
            && let Some((key, sequence)) = dormant.pop_front()
            && let forgotten = sequence.wrapping_sub(self.begin_at(key.0))
            && crate::wire::is_newer(forgotten, self.floor.get())
        {
            self.floor.set(forgotten);
        }
        dormant.push_back((key, sequence));
    }

    /// A channel to this peer for this upper that was closed: its number and the last sequence
    /// number. The one of this number, or any that is free.
    pub(crate) fn wake(
        &self,
        peer: PeerName,
        number: u32,
        channel: Option<u16>,
    ) -> Option<(u16, u32)> {
        let mut dormant = self.dormant.borrow_mut();
        let place = dormant.iter().rposition(|(key, _)| {
            let is_it = channel.is_none_or(|channel| key.2 == u32::from(channel));
            is_it && (key.0, key.1) == (peer, number) && !self.sessions_has(key)
        })?;
        let (key, sequence) = dormant.remove(place)?;
        Some((key.2 as u16, sequence))
    }

    pub(crate) fn sessions_has(&self, key: &Key) -> bool {
        self.sessions.get(key).is_some()
    }

    /// The number behind which a channel to this peer begins if nothing is known of the peer.
    pub(crate) fn floor(&self, peer: PeerName) -> u32 {
        self.floor.get().wrapping_add(self.begin_at(peer))
    }

    /// First number for a peer. It differs in each boot, because otherwise a late reply to the boot
    /// before this one, which names only the server, could be taken for that of a call of this one;
    /// and it differs for each peer, so that none knows those of others.
    fn begin_at(&self, peer: PeerName) -> u32 {
        self.begins.hash(&peer.words()) as u32
    }
}

/// The peer of a lower session: its host, or the number of a session that knows none. It is noted
/// on the session.
#[inline(always)]
pub(crate) fn peer_of(cx: &Kernel, lower: &SessionRef) -> PeerName {
    let peer = lower.head().peer();
    if peer == PeerName::UNKNOWN { name_peer(cx, lower, None) } else { peer }
}

/// Names the peer of a lower session; `host` is the one that it was opened to, if that is known.
/// [`PeerName::UNKNOWN`] names none: the question was lost.
#[cold]
pub(crate) fn name_peer(cx: &Kernel, lower: &SessionRef, host: Option<HostAddr>) -> PeerName {
    let head = lower.head();
    // Once named, it stays so: what is known of a peer is known under this name.
    if head.peer() == PeerName::UNKNOWN {
        let Ok(asked) = cx.unless_lost(|| lower.ask(cx, PeerHost::default())) else {
            return PeerName::UNKNOWN;
        };
        let asked = asked.map(|q| q.host).or(host);
        let known = asked.filter(|host| !host.is_unspecified());
        let session = || {
            let [a, b, c, d, e, f, g, h] = lower.id().0.to_be_bytes();
            PeerName::no_host([0, 0, 0, 0, a, b, c, d, e, f, g, h])
        };
        head.set_peer(known.map_or_else(session, PeerName::from));
    }
    head.peer()
}

/// Sizes of the layers below a session.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    /// Octets of the largest payload.
    pub(crate) max: usize,
    /// Octets of payload in one packet that goes whole.
    pub(crate) whole_max: usize,
    /// Whether lengths of short payloads are marked.
    pub(crate) marks: bool,
}

impl Path {
    pub(crate) fn of(cx: &Kernel, lower: &SessionRef) -> Self {
        let opt = lower.ask(cx, OptPacket::default());
        let opt = opt.map_or(OPT_PACKET_UNKNOWN, |q| q.octets) as usize;
        let min = lower.ask(cx, MinPacket::default());
        let max = max_packet(cx, lower, u32::MAX) as usize;
        Self {
            max: max.saturating_sub(HEADER_OCTETS),
            whole_max: opt.saturating_sub(HEADER_OCTETS),
            marks: min.is_none_or(|min| min.octets as usize > HEADER_OCTETS),
        }
    }

    /// The mark for a payload of `len` octets.
    #[inline(always)]
    pub(crate) fn mark(self, len: usize) -> u16 {
        if self.marks { crate::wire::mark(len) } else { 0 }
    }

    /// Number of packets below for a payload of `len` octets.
    pub(crate) fn packets(self, len: usize) -> usize {
        (len + HEADER_OCTETS).div_ceil(self.whole_max + HEADER_OCTETS)
    }
}

/// Sends a packet without payload; `from` is the protocol at which it is counted if there is no
/// buffer for it.
#[cold]
pub(crate) fn send_header(
    cx: &Kernel,
    lower: &SessionRef,
    from: ProtocolId,
    octets: &[u8; HEADER_OCTETS],
) {
    let Ok(mut packet) = cx.pool().empty(HEADROOM_OCTETS) else {
        // Counted in the pool; a peer that misses the packet asks again.
        return;
    };
    if packet.push_array(octets).is_err() {
        discard(cx, from, packet);
        return;
    }
    // Counted below. If it is lost, it is asked for again.
    let _ = lower.push(cx, packet);
}

fn discard(cx: &Kernel, from: ProtocolId, packet: xk_core::Message) {
    let protocol: Option<ProtocolRef> = cx.protocol(from);
    if let Some(protocol) = protocol {
        protocol.discard(packet, &reason::NO_BUFFERS);
    }
}
