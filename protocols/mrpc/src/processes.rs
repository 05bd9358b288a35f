//! The server processes: one per channel of a client, with the state of its last call.

use crate::fragments::{Cut, Partial};
use crate::session::Path;
use crate::shared::Config;
use crate::wire::{CHANNEL_KEY, HEADER_LEN, Header, Round};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;
use xk_core::Secret;
use xk_core::object::SessionSlot;
use xk_core::{HostAddr, Kernel, PeerName, SessionRef, Time};
use xk_kit::control::PeerHost;
use xk_kit::rpc::records::{Record, Records};
use xk_kit::rpc::retransmit::SavedMessage;

/// State of a process (Sprite, rpcServer.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The last reply, if any, was acknowledged: nothing is kept.
    Free,
    /// A call is executed.
    Busy,
    /// The reply is sent, and kept until it is acknowledged.
    Waiting,
    /// Fragments of a request are missing.
    Fragment,
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Fragment => "fragment",
        })
    }
}

/// The octets of a header by which a process knows its channel: hosts, channel, ticket.
pub(crate) type ChannelKey = [u8; CHANNEL_KEY.end - CHANNEL_KEY.start];

/// The key in a header.
#[inline(always)]
pub(crate) fn channel_key(octets: &[u8; HEADER_LEN]) -> ChannelKey {
    let mut key = [0; CHANNEL_KEY.end - CHANNEL_KEY.start];
    key.copy_from_slice(&octets[CHANNEL_KEY]);
    key
}

/// The key of a process: the client's host and channel.
pub(crate) type Key = (PeerName, u16);

/// Name of a packet's client: the peer host of the session below, or the host in the header if that
/// session knows none. [`PeerName::UNKNOWN`] if the question was lost.
#[inline(always)]
pub(crate) fn client_of(cx: &Kernel, lower: &SessionRef, header: &Header) -> PeerName {
    match lower.head().peer() {
        PeerName::UNKNOWN => ask_client(cx, lower, header),
        PeerName::NO_HOST => said_by(header),
        peer => peer,
    }
}

/// The client that the header names.
fn said_by(header: &Header) -> PeerName {
    HostAddr::from(header.client_host.to_be_bytes()).into()
}

#[cold]
fn ask_client(cx: &Kernel, lower: &SessionRef, header: &Header) -> PeerName {
    let Ok(asked) = cx.unless_lost(|| lower.ask(cx, PeerHost::default())) else {
        return PeerName::UNKNOWN;
    };
    let known = asked.map_or(PeerName::NO_HOST, |peer| peer.host.into());
    lower.head().set_peer(known);
    if known == PeerName::NO_HOST { said_by(header) } else { known }
}

/// One process.
pub(crate) struct Process {
    key: Key,
    /// False once the channel has another process. The call in execution still ends, but no client
    /// gets its reply.
    bound: Cell<bool>,
    pub(crate) state: Cell<ProcessState>,
    /// Whether the client has given up the call that is executed.
    pub(crate) stuck: Cell<bool>,
    /// The client's boot id.
    pub(crate) boot: Cell<u32>,
    /// Key in the headers of the client's packets.
    pub(crate) channel: Cell<ChannelKey>,
    /// The session below that the last packet came through.
    pub(crate) lower: SessionSlot,
    pub(crate) lower_id: Cell<u64>,
    pub(crate) path: Cell<Path>,
    /// Number of the last call; `None` in a new process.
    pub(crate) sequence: Cell<Option<u32>>,
    pub(crate) command: Cell<u16>,
    /// Time at which the client was last heard.
    pub(crate) heard: Cell<Time>,
    pub(crate) partial: Partial,
    /// Call and round of the last packet that was answered.
    answered: Cell<Option<(u32, Round)>>,
    /// Call and round of the last question for fragments of the reply.
    asked: Cell<Option<(u32, Round)>>,
    /// Header and cut of the reply; the reply itself, unless it is empty, is `saved`.
    pub(crate) reply: Cell<(Header, Cut)>,
    pub(crate) saved: RefCell<SavedMessage>,
}

impl Process {
    fn new(key: Key, path: Path) -> Self {
        Self {
            key,
            bound: Cell::new(true),
            state: Cell::new(ProcessState::Free),
            stuck: Cell::new(false),
            boot: Cell::new(0),
            channel: Cell::default(),
            lower: SessionSlot::default(),
            lower_id: Cell::new(0),
            path: Cell::new(path),
            sequence: Cell::new(None),
            command: Cell::new(0),
            heard: Cell::new(Time::ZERO),
            partial: Partial::default(),
            answered: Cell::default(),
            asked: Cell::default(),
            reply: Cell::default(),
            saved: RefCell::default(),
        }
    }

    /// Whether this is still the process of its channel.
    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.get()
    }

    /// Compares a call's number with that of the last call, in serial number arithmetic; `None` if
    /// it is older.
    #[inline(always)]
    pub(crate) fn compare(&self, sequence: u32) -> Option<Age> {
        let Some(last) = self.sequence.get() else {
            return Some(Age::New);
        };
        match sequence.wrapping_sub(last) as i32 {
            0 => Some(Age::Same),
            1.. => Some(Age::New),
            _ => None,
        }
    }

    /// Whether a packet has the header fields of the client's last packet, and came through the
    /// same session below.
    pub(crate) fn is_of(&self, header: &Header, lower: &SessionRef) -> bool {
        let known = self.header(0, 0);
        self.lower_id.get() == lower.id().0
            && self.boot.get() == header.boot
            && known.process == header.process
            && (known.client_host, known.server_host) == (header.client_host, header.server_host)
    }

    /// Keeps the header fields of the client's packet, and the session below that it came through.
    pub(crate) fn learn(
        &self,
        cx: &Kernel,
        header: &Header,
        ticket: u16,
        lower: &SessionRef,
        path: impl FnOnce() -> Path,
    ) {
        let known = Header { process: ticket, ..*header };
        self.channel.set(channel_key(&known.emit()));
        self.boot.set(header.boot);
        self.heard.set(cx.now());
        if self.lower_id.get() != lower.id().0
            && let Ok(path) = cx.unless_lost(path)
        {
            self.lower_id.set(lower.id().0);
            drop(self.lower.replace(Some(lower.clone())));
            self.path.set(path);
        }
    }

    /// The header of a packet to the client.
    #[inline]
    pub(crate) fn header(&self, flags: u16, boot: u32) -> Header {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.channel.get();
        Header {
            flags,
            client_host: u32::from_be_bytes([a, b, c, d]),
            server_host: u32::from_be_bytes([e, f, g, h]),
            channel: u16::from_be_bytes([i, j]),
            process: u16::from_be_bytes([k, l]),
            sequence: self.sequence.get().unwrap_or(0),
            command: self.command.get(),
            boot,
            ..Header::default()
        }
    }

    /// Whether a packet of the call wants an answer, as any of these flags says, and is the first
    /// such packet of its round.
    pub(crate) fn is_to_answer(&self, header: &Header, flags: u16) -> bool {
        let round = Some((header.sequence, header.round()));
        header.flags & flags != 0 && self.answered.replace(round) != round
    }

    /// Whether a question for fragments of the reply is the first of its round.
    pub(crate) fn is_asked(&self, header: &Header) -> bool {
        let round = Some((header.sequence, header.round()));
        self.asked.replace(round) != round
    }

    /// The round of the reply: that of the client's question for fragments, or the first.
    pub(crate) fn reply_round(&self) -> Round {
        match self.asked.get() {
            Some((call, round)) if self.sequence.get() == Some(call) => round,
            _ => Round::default(),
        }
    }

    /// The ticket that the client shows.
    pub(crate) fn ticket(&self) -> u16 {
        let [.., k, l] = self.channel.get();
        u16::from_be_bytes([k, l])
    }

    /// Drops the kept parts of request and reply.
    pub(crate) fn clear(&self) {
        self.saved.borrow_mut().clear();
        self.partial.clear();
    }
}

impl Record for Process {
    fn peer(&self) -> PeerName {
        self.key.0
    }

    fn heard(&self) -> Time {
        self.heard.get()
    }
}

/// Age of a request, compared with the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    Same,
    New,
}

/// All processes of a server.
pub(crate) struct Processes {
    pub(crate) records: Records<Key, Process>,
    /// Whether a timer is pending for the processes.
    pub(crate) is_watched: Cell<bool>,
}

impl Processes {
    pub(crate) fn new(secret: Secret, config: Config) -> Self {
        let (max, of_one) = (config.processes_max, config.client_processes_max);
        Self { records: Records::new(secret, max, of_one), is_watched: Cell::new(false) }
    }

    /// A new process. In a full table it takes the place of the process that is free for longest,
    /// of the same client if the client has its share of the table, and `forget` is called with
    /// that process's client. `None` if no such process is free.
    pub(crate) fn make(
        &self,
        key: Key,
        path: Path,
        forget: impl FnOnce(PeerName),
    ) -> Option<Rc<Process>> {
        let is_free = |process: &Process| process.state.get() == ProcessState::Free;
        if let Some(victim) = self.records.room(key.0, is_free).ok()? {
            self.remove(&victim);
            forget(victim.peer());
        }
        self.records.enter(key, Process::new(key, path))
    }

    /// Takes a process off its channel.
    pub(crate) fn remove(&self, process: &Rc<Process>) {
        if process.bound.replace(false) {
            self.records.remove(&process.key);
            process.clear();
        }
    }

    /// Takes the processes that serve another boot of this host off their channels.
    pub(crate) fn remove_others(&self, host: PeerName, boot: u32) {
        for process in self.records.list() {
            if process.peer() == host && process.boot.get() != boot {
                self.remove(&process);
            }
        }
    }

    /// Whether no call of this client is executed, and no reply kept.
    pub(crate) fn is_idle(&self, host: PeerName) -> bool {
        self.records.number(|p| p.peer() == host && p.state.get() != ProcessState::Free) == 0
    }

    pub(crate) fn stop(&self) {
        for process in self.records.list() {
            self.remove(&process);
            drop(process.lower.take());
        }
    }
}
