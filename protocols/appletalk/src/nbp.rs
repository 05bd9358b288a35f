//! Names (Inside AppleTalk, chapter 7): packets, matching, names of one's own, looking up.

mod lookup;
mod names;
#[cfg(test)]
mod tests;

pub use lookup::{Due, Lookup, LookupConfig, Lookups, Step};
pub use names::{Names, NamesError};

use crate::addr::{AtAddr, BROADCAST};
use crate::ddp::{DATA_LEN_MAX, is_socket};
pub use crate::name::{Name, NameError};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// In a request: any object, or any type.
pub const ANY: u8 = b'=';
/// In a request: any characters, also none, at this place in the name (phase 2).
pub const SOME: u8 = 0xc5;
/// The zone of the one that asks.
pub const ZONE_HERE: u8 = b'*';
/// Tuples in a packet at most.
pub const TUPLES_MAX: usize = 15;

/// A name of an entity: `object:type@zone`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entity {
    /// Name of the object.
    pub object: Name,
    /// Type of the object.
    pub kind: Name,
    /// The zone that it is in.
    pub zone: Name,
}

/// Text that names no entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntityError {
    /// A part is missing.
    #[error("expected a name, such as echo:XKernel@*")]
    Form,
    /// A part is no name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Entity {
    type Err = EntityError;

    /// Without a zone, that of the one that asks.
    fn from_str(text: &str) -> Result<Self, EntityError> {
        let (name, zone) = text.rsplit_once('@').unwrap_or((text, "*"));
        let (object, kind) = name.split_once(':').ok_or(EntityError::Form)?;
        if object.is_empty() || kind.is_empty() {
            return Err(EntityError::Form);
        }
        let zone = if zone.is_empty() { "*" } else { zone };
        Ok(Self {
            object: Name::from_text(object)?,
            kind: Name::from_text(kind)?,
            zone: Name::from_text(zone)?,
        })
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{}", self.object, self.kind, self.zone)
    }
}

/// True if a name is one that a pattern means: without regard to capitals, and with wildcards.
#[must_use]
pub fn is_match(pattern: &Name, name: &Name) -> bool {
    if pattern.is_only(ANY) {
        return true;
    }
    let (pattern, name) = (pattern.capitals(), name.capitals());
    let (pattern, name) = (pattern.octets(), name.octets());
    let Some(at) = pattern.iter().position(|octet| *octet == SOME) else {
        return pattern == name;
    };
    // The book allows one of them in a name; a further one is the character that it looks like.
    let (front, back) = (&pattern[..at], &pattern[at + 1..]);
    name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back)
}

impl Entity {
    /// True if it means one entity: what can be registered, and not only looked up.
    #[must_use]
    pub fn is_one(&self) -> bool {
        let is_one =
            |name: &Name| !name.is_empty() && !name.is_only(ANY) && !name.octets().contains(&SOME);
        is_one(&self.object) && is_one(&self.kind)
    }

    /// True if object and type are those that a pattern means.
    #[must_use]
    pub fn is_meant_by(&self, pattern: &Self) -> bool {
        is_match(&pattern.object, &self.object) && is_match(&pattern.kind, &self.kind)
    }

    fn put(&self, out: &mut Vec<u8>) {
        [self.object, self.kind, self.zone].iter().for_each(|name| name.put(out));
    }
}

/// True if a zone in a request is this one: by name, or left open.
#[must_use]
pub fn is_zone(asked: &Name, zone: &Name) -> bool {
    asked.is_empty() || asked.is_only(ZONE_HERE) || asked == zone
}

/// An entity and where it is; in a request, what is looked for and where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where.
    pub at: AtAddr,
    /// Tells the names of one socket apart.
    pub enumerator: u8,
    /// The name.
    pub entity: Entity,
}

impl Tuple {
    fn len(&self) -> usize {
        let Entity { object, kind, zone } = &self.entity;
        5 + object.put_len() + kind.put_len() + zone.put_len()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.at.net.to_be_bytes());
        out.extend_from_slice(&[self.at.node, self.at.socket, self.enumerator]);
        self.entity.put(out);
    }

    fn split(octets: &[u8]) -> Option<(Self, &[u8])> {
        let ([high, low, node, socket, enumerator], rest) = octets.split_first_chunk()?;
        let at = AtAddr::new(u16::from_be_bytes([*high, *low]), *node, *socket);
        let (object, rest) = Name::split(rest)?;
        let (kind, rest) = Name::split(rest)?;
        let (zone, rest) = Name::split(rest)?;
        let entity = Entity { object, kind, zone };
        Some((Self { at, enumerator: *enumerator, entity }, rest))
    }
}

/// Function of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// To a router: look up in all networks of the zone.
    BrRq = 1,
    /// To all nodes: answer if the name is one of yours.
    LkUp = 2,
    /// The answer.
    Reply = 3,
    /// From router to router: look up in your network.
    FwdReq = 4,
}

/// Error of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The packet ends within its header or a tuple, or a name is too long.
    #[error("a tuple that is not whole")]
    Truncated,
    /// No function that there is.
    #[error("function {0}")]
    Function(u8),
    /// A request with any number of tuples but one.
    #[error("a request with {0} tuples")]
    Count(u8),
}

/// A packet: a request has one tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Function of the packet.
    pub function: Function,
    /// Tells the requests of one node apart.
    pub id: u8,
    /// At most [`TUPLES_MAX`].
    pub tuples: Vec<Tuple>,
}

impl Packet {
    /// A request; the answer goes to `from`.
    #[must_use]
    pub fn request(function: Function, id: u8, from: AtAddr, entity: Entity) -> Self {
        Self { function, id, tuples: [Tuple { at: from, enumerator: 0, entity }].into() }
    }

    /// Reads a packet; what lies behind the tuples is not looked at.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8]) -> Result<Self, Error> {
        let ([first, id], mut rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        let count = first & 0x0f;
        let function = match first >> 4 {
            1 => Function::BrRq,
            2 => Function::LkUp,
            3 => Function::Reply,
            4 => Function::FwdReq,
            other => return Err(Error::Function(other)),
        };
        if function != Function::Reply && count != 1 {
            return Err(Error::Count(count));
        }
        let mut tuples = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (tuple, behind) = Tuple::split(rest).ok_or(Error::Truncated)?;
            rest = behind;
            tuples.push(tuple);
        }
        Ok(Self { function, id: *id, tuples })
    }

    /// Encodes the packet, with as many tuples as one can have: [`TUPLES_MAX`], and no more than
    /// [`DATA_LEN_MAX`] octets.
    #[must_use]
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = [0, self.id].to_vec();
        let mut count = 0;
        for tuple in self.tuples.iter().take(TUPLES_MAX) {
            if octets.len() + tuple.len() > DATA_LEN_MAX {
                break;
            }
            tuple.put(&mut octets);
            count += 1;
        }
        octets[0] = (self.function as u8) << 4 | count;
        octets
    }

    /// The answer to this request: packets with all these tuples.
    #[must_use]
    pub fn replies(&self, tuples: &[Tuple]) -> Vec<Self> {
        let mut replies: Vec<Self> = Vec::new();
        let mut room = 0;
        for tuple in tuples {
            let fits = tuple.len() <= room;
            match replies.last_mut().filter(|last| fits && last.tuples.len() < TUPLES_MAX) {
                Some(last) => last.tuples.push(*tuple),
                None => {
                    let (function, id) = (Function::Reply, self.id);
                    replies.push(Self { function, id, tuples: [*tuple].into() });
                    room = DATA_LEN_MAX - 2;
                }
            }
            room -= tuple.len();
        }
        replies
    }

    /// The tuple of a request.
    #[must_use]
    pub fn wanted(&self) -> Option<&Tuple> {
        self.tuples.first().filter(|_| self.function != Function::Reply)
    }

    /// The socket that a request wants answers at: of one node, or answers would be a flood.
    #[must_use]
    pub fn answers_to(&self) -> Option<AtAddr> {
        let to = self.wanted()?.at;
        (to.node != 0 && to.node != BROADCAST && is_socket(to.socket)).then_some(to)
    }
}
