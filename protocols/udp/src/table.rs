//! What protocol and sessions share: the tables, and their bounds.

use crate::protocol::Key;
use crate::wire::HEADER_LEN;
use xk_core::Secret;
use xk_core::graph::Params;
use xk_core::object::SessionTable;
use xk_core::{ProtocolRef, SessionRef};
use xk_kit::ports::Takers;
use xk_kit::talkers::{PARAMETER, SOURCES_MAX, Talkers};

/// Bounds.
pub(crate) struct Limits {
    pub(crate) sessions_max: usize,
    pub(crate) passive_max: usize,
    pub(crate) enables_max: usize,
    pub(crate) sources_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_max: 65_536,
            passive_max: 0,
            enables_max: 16_384,
            sources_max: SOURCES_MAX,
        }
    }
}

impl Limits {
    /// Those of a graph.
    pub(crate) fn read(params: &Params) -> Self {
        let usual = Self::default();
        Self {
            sessions_max: params.number("sessions_max", usual.sessions_max),
            passive_max: params.number("passive_max", usual.passive_max),
            enables_max: params.number("enables_max", usual.enables_max),
            sources_max: params.number(PARAMETER.name, usual.sources_max),
        }
    }
}

#[derive(Clone)]
pub(crate) enum Taker {
    /// Gets a session for each peer.
    Enabled(ProtocolRef),
    /// Takes from every peer.
    Unconnected(SessionRef),
}

/// What protocol and sessions share.
pub(crate) struct Table {
    pub(crate) sessions: SessionTable<Key>,
    pub(crate) takers: Takers<Taker>,
    /// The peers whose datagrams were dropped.
    pub(crate) talkers: Talkers,
    /// Whether datagrams are sent with a checksum.
    pub(crate) checksum: bool,
}

impl Table {
    pub(crate) fn new(secret: Secret, limits: Limits, checksum: bool) -> Self {
        Self {
            sessions: SessionTable::new(secret, limits.sessions_max)
                .with_passive_max(limits.passive_max),
            takers: Takers::new(secret, limits.enables_max),
            talkers: Talkers::new(limits.sources_max),
            checksum,
        }
    }
}

/// The port that a datagram came from.
pub(crate) fn port_of(header: &[u8; HEADER_LEN]) -> u16 {
    u16::from_be_bytes([header[0], header[1]])
}
