//! The names of a node's sockets.

use super::{Entity, Packet, Tuple, is_zone};
use crate::addr::Node;
use crate::ddp::is_socket;
use crate::name::Name;
use alloc::vec::Vec;

/// The names that the sockets of a node have.
#[derive(Clone, Debug)]
pub struct Names {
    names: Vec<Named>,
    max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    entity: Entity,
    socket: u8,
    enumerator: u8,
}

/// Why a name is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// There are as many names as there may be.
    #[error("no room for a further name")]
    Full,
    /// The name exists already.
    #[error("the name exists")]
    Exists,
    /// The name has wildcards or is empty, or the socket is none.
    #[error("not a name that a socket can have")]
    Bad,
}

impl Names {
    /// No names, and room for so many.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { names: Vec::new(), max }
    }

    /// Gives a socket a name, which was looked up on the network before and is no other's. The
    /// zone is the node's, whichever the entity says.
    ///
    /// # Errors
    /// [`NamesError`].
    pub fn add(&mut self, entity: Entity, socket: u8) -> Result<(), NamesError> {
        if !entity.is_one() || !is_socket(socket) {
            return Err(NamesError::Bad);
        }
        if self.holds(&entity) {
            return Err(NamesError::Exists);
        }
        if self.names.len() >= self.max {
            return Err(NamesError::Full);
        }
        let is_used = |enumerator: &u8| {
            self.names.iter().any(|n| n.socket == socket && n.enumerator == *enumerator)
        };
        let enumerator = (0..=u8::MAX).find(|enumerator| !is_used(enumerator));
        let enumerator = enumerator.ok_or(NamesError::Full)?;
        self.names.push(Named { entity, socket, enumerator });
        Ok(())
    }

    /// Takes a name away; false if there is none.
    pub fn remove(&mut self, entity: &Entity) -> bool {
        let before = self.names.len();
        self.names.retain(|named| !is_same(&named.entity, entity));
        self.names.len() != before
    }

    /// True if a socket of this node has the name.
    #[must_use]
    pub fn holds(&self, entity: &Entity) -> bool {
        self.names.iter().any(|named| is_same(&named.entity, entity))
    }

    /// The names, and the sockets that have them.
    pub fn iter(&self) -> impl Iterator<Item = (&Entity, u8)> {
        self.names.iter().map(|named| (&named.entity, named.socket))
    }

    /// Number of names.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.names.len()
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The answers to a request that this node, in this zone, got; none if it has no such names.
    #[must_use]
    pub fn answer(&self, request: &Packet, me: Node, zone: &Name) -> Vec<Packet> {
        let Some(wanted) = request.wanted() else { return Vec::new() };
        if !is_zone(&wanted.entity.zone, zone) {
            return Vec::new();
        }
        let meant = self.names.iter().filter(|named| named.entity.is_meant_by(&wanted.entity));
        let tuples = meant.map(|named| {
            let zone = if zone.is_empty() { wanted.entity.zone } else { *zone };
            let entity = Entity { zone, ..named.entity };
            Tuple { at: me.socket(named.socket), enumerator: named.enumerator, entity }
        });
        request.replies(&tuples.collect::<Vec<_>>())
    }
}

fn is_same(one: &Entity, other: &Entity) -> bool {
    (&one.object, &one.kind) == (&other.object, &other.kind)
}
