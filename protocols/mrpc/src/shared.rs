//! Shared state of the protocol and its sessions.

use crate::channels::{Channel, Channels};
use crate::processes::{ProcessState, Processes};
use crate::timers::Timers;
use crate::wire::{HEADER_LEN, Header};
use alloc::string::String;
use core::cell::Cell;
use core::fmt::Write;
use xk_core::Secret;
use xk_core::graph::{ParamKind, optional, word};
use xk_core::map::Map;
use xk_core::object::SessionTable;
use xk_core::{HostAddr, Kernel, Message, ProtocolRef};
use xk_kit::rpc::incarnation::{Clients, Servers};

/// A session below, a procedure, and the protocol above that opened the session; [`PASSIVE`] if a
/// request made it.
pub(crate) type Key = (u64, u32, u32);

/// In the place of the protocol above.
pub(crate) const PASSIVE: u32 = u32::MAX;

/// In the place of the procedure, of a protocol that takes any.
pub(crate) const ANY_PROCEDURE: u32 = u32::MAX;

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Copy, Debug)]
    pub struct Config {
        channels: u16 = int(1..=65_535, 8, "how many calls go at the same time"),
        fragment: usize = int(0..=1464, 1024,
            "octets of a fragment; 0 for as many as a packet of the layer below takes"),
        processes_max: usize = int(1..=65_536, 1024,
            "how many channels of clients a server serves; free ones go for new ones"),
        client_processes_max: usize = int(1..=65_536, 64, "how many of them may be one client's"),
        hosts_max: usize = int(1..=1_048_576, 1024,
            "how many clients a server knows, and a client servers"),
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
        word("timers", &["auto", "ethernet", "internet"], "auto",
            "the waits before something is sent again; `auto`: those that suit where each peer is, \
             and where that changes (`peer-on-link`), the first call that waits in vain finds out"),
        optional("address", ParamKind::Text("a host, such as 10.0.0.1"),
            "our host, where the layer below does not know it; over `arp` it is claimed"),
    ]
}

pub(crate) struct Shared {
    pub(crate) lower: ProtocolRef,
    pub(crate) config: Config,
    pub(crate) boot: u32,
    pub(crate) sessions: SessionTable<Key>,
    /// The protocol that takes the calls of a procedure.
    pub(crate) enables: Map<u32, ProtocolRef>,
    // The client half.
    pub(crate) channels: Channels,
    pub(crate) servers: Servers,
    sequence: Cell<u32>,
    begins: Secret,
    // The server half.
    pub(crate) clients: Clients,
    pub(crate) processes: Processes,
}

impl Shared {
    pub(crate) fn new(cx: &Kernel, lower: ProtocolRef, config: Config) -> Self {
        let key = cx.secret();
        Self {
            lower,
            boot: cx.boot_id(),
            sessions: SessionTable::new(key, config.sessions_max),
            enables: Map::new(key, config.enables_max),
            channels: Channels::new(config.channels, Channel::new),
            servers: Servers::new(cx, config.hosts_max),
            sequence: Cell::new(0),
            begins: cx.secret(),
            clients: Clients::new(cx, config.hosts_max),
            processes: Processes::new(key, config),
            config,
        }
    }

    /// First number of the calls to a server. Sprite begins with 1. With a number from anywhere, an
    /// answer to a call of an earlier boot meets no call of this one; and no server knows the
    /// numbers of calls to another.
    pub(crate) fn begin_at(&self, server: HostAddr) -> u32 {
        self.begins.hash(&server.words()) as u32
    }

    /// The number of the next call, from where those to its server begin.
    #[inline]
    pub(crate) fn next_sequence(&self) -> u32 {
        self.sequence.set(self.sequence.get().wrapping_add(1));
        self.sequence.get()
    }

    /// A line about both halves.
    pub(crate) fn describe(&self) -> String {
        let (channels, busy, waits) = self.channels.figures();
        let mut text = alloc::format!(
            "{busy} of {channels} channels busy, {waits} waits for one; {} clients, {} processes",
            self.clients.len(),
            self.processes.records.len()
        );
        for state in
            [ProcessState::Busy, ProcessState::Waiting, ProcessState::Fragment, ProcessState::Free]
        {
            let _ = write!(
                text,
                ", {} {state}",
                self.processes.records.number(|process| process.state.get() == state)
            );
        }
        text
    }

    /// Releases everything.
    pub(crate) fn stop(&self) {
        self.sessions.clear();
        self.enables.clear();
        self.channels.iter().for_each(|channel| channel.stop());
        self.processes.stop();
    }
}

/// Takes the header, which was checked, off a packet.
pub(crate) fn body_of(mut message: Message, header: &Header) -> Message {
    // It was there to be checked.
    let _ = message.strip(HEADER_LEN);
    message.truncate(header.body_len());
    message
}
