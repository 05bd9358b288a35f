//! Participants: the ends of a conversation, as a list of address stacks.
//!
//! Each participant is a stack of external identifiers, the highest layer's on top. A protocol pops
//! what it understands and hands the rest to the layer below, so that no layer knows the addresses
//! of another ("The x-Kernel", section III). By convention the first participant is the local one.
//!
//! Text form, top first: `port2005@10.0.0.2`; several participants are separated by `, `:
//! `port7@10.0.0.1, port2005@10.0.0.2`. `*` at any place is a wildcard.

mod host;
mod peer;
mod text;

pub use host::{HostAddr, HostAddrError};
pub use peer::PeerName;
pub use text::{ParseError, pieces};

use smallvec::SmallVec;

/// A label of a numbered identifier, such as `port`: at most 12 ASCII letters, held inline so that
/// it can cross a domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    octets: [u8; 12],
    len: u8,
}

impl Label {
    /// Makes a label. At compile time a bad one does not build; at run time use [`Label::parse`].
    ///
    /// # Panics
    /// If `name` is empty, longer than 12 octets or not of ASCII letters.
    pub const fn new(name: &'static str) -> Self {
        match Self::from_octets(name.as_bytes()) {
            Some(label) => label,
            None => panic!("a label has 1 to 12 ASCII letters"),
        }
    }

    /// Makes a label of outside text.
    pub fn parse(name: &str) -> Option<Self> {
        Self::from_octets(name.as_bytes())
    }

    const fn from_octets(name: &[u8]) -> Option<Self> {
        if name.is_empty() || name.len() > 12 {
            return None;
        }
        let mut octets = [0; 12];
        let mut i = 0;
        while i < name.len() {
            if !name[i].is_ascii_alphabetic() {
                return None;
            }
            octets[i] = name[i];
            i += 1;
        }
        Some(Self { octets, len: name.len() as u8 })
    }

    /// The label's text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.octets[..usize::from(self.len)]).unwrap_or("")
    }
}

/// One external identifier in a participant's stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Any: the wildcard `*`.
    Any,
    /// A labelled number, such as `port2005`, `protocol17` or `type2048`.
    Number(Label, u64),
    /// A hardware address of six octets, `02:00:00:00:00:01`.
    Ether([u8; 6]),
    /// A host, `10.0.0.2` or `[fe80::1%3]`.
    Host(HostAddr),
}

/// The label of port numbers.
pub const PORT: Label = Label::new("port");

impl Part {
    /// A port number.
    pub const fn port(number: u16) -> Self {
        Part::Number(PORT, number as u64)
    }

    /// A host.
    pub fn host(address: impl Into<HostAddr>) -> Self {
        Part::Host(address.into())
    }

    /// A host that may be unspecified: any, then.
    pub fn host_or_any(host: HostAddr) -> Self {
        if host.is_unspecified() { Part::Any } else { Part::Host(host) }
    }
}

/// One participant: a stack of identifiers, the highest layer's on top.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Participant {
    /// Bottom first, so that push and pop work at the end.
    parts: SmallVec<[Part; 3]>,
}

/// More identifiers than this are refused: no graph is that deep.
pub const PARTS_MAX: usize = 16;
/// More participants than this are refused.
pub const PARTICIPANTS_MAX: usize = 64;
/// The largest number of peers of a conversation, which also has a local participant.
pub const PEERS_MAX: usize = PARTICIPANTS_MAX - 1;

/// A participant that a protocol cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The stack is empty where an identifier was needed.
    #[error("an address is missing from the participant")]
    Missing,
    /// The identifier on top is of another family.
    #[error("the participant's address is of another family")]
    WrongFamily,
    /// A wildcard where one definite value was needed.
    #[error("a wildcard stands where one address is needed")]
    Wildcard,
    /// The number is outside the protocol's range.
    #[error("the number is out of range")]
    OutOfRange,
    /// The set has too few or too many participants for this operation.
    #[error("too few or too many participants")]
    Count,
}

/// An identifier that may be left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wild<T> {
    /// Any value.
    Any,
    /// This value.
    Is(T),
}

impl<T> Wild<T> {
    /// The value, or an error where it was left open.
    ///
    /// # Errors
    /// [`AddressError::Wildcard`].
    pub fn definite(self) -> Result<T, AddressError> {
        match self {
            Wild::Is(value) => Ok(value),
            Wild::Any => Err(AddressError::Wildcard),
        }
    }

    /// The value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Wild::Is(value) => Some(value),
            Wild::Any => None,
        }
    }
}

impl Participant {
    /// An empty stack: a participant that leaves everything to the layers below.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stack with one identifier.
    pub fn of(part: Part) -> Self {
        let mut p = Self::new();
        p.push(part);
        p
    }

    /// Puts an identifier on top.
    pub fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// The participant with an identifier on top, for building in one expression.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.push(part);
        self
    }

    /// Takes the identifier on top.
    pub fn pop(&mut self) -> Option<Part> {
        self.parts.pop()
    }

    /// The identifier on top.
    pub fn top(&self) -> Option<&Part> {
        self.parts.last()
    }

    /// Number of identifiers that are left.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if no identifier is left.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The identifiers, top first.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().rev()
    }

    /// Pops a port number or wildcard.
    ///
    /// # Errors
    /// [`AddressError`] if the stack is empty, or the top is no port, or beyond 65535.
    pub fn pop_port(&mut self) -> Result<Wild<u16>, AddressError> {
        match self.pop_number(PORT)? {
            Wild::Any => Ok(Wild::Any),
            Wild::Is(n) => u16::try_from(n).map(Wild::Is).map_err(|_| AddressError::OutOfRange),
        }
    }

    /// Pops a number with this label, or a wildcard.
    ///
    /// # Errors
    /// [`AddressError`] if the stack is empty or the top is another family's.
    pub fn pop_number(&mut self, label: Label) -> Result<Wild<u64>, AddressError> {
        match self.pop() {
            Some(Part::Any) => Ok(Wild::Any),
            Some(Part::Number(l, n)) if l == label => Ok(Wild::Is(n)),
            Some(_) => Err(AddressError::WrongFamily),
            None => Err(AddressError::Missing),
        }
    }

    /// Pops a host or wildcard.
    ///
    /// # Errors
    /// [`AddressError`] if the stack is empty or the top is another family's.
    pub fn pop_host(&mut self) -> Result<Wild<HostAddr>, AddressError> {
        match self.pop() {
            Some(Part::Any) => Ok(Wild::Any),
            Some(Part::Host(h)) => Ok(Wild::Is(h)),
            Some(_) => Err(AddressError::WrongFamily),
            None => Err(AddressError::Missing),
        }
    }

    /// Pops a hardware address or wildcard.
    ///
    /// # Errors
    /// [`AddressError`] if the stack is empty or the top is another family's.
    pub fn pop_ether(&mut self) -> Result<Wild<[u8; 6]>, AddressError> {
        match self.pop() {
            Some(Part::Any) => Ok(Wild::Any),
            Some(Part::Ether(a)) => Ok(Wild::Is(a)),
            Some(_) => Err(AddressError::WrongFamily),
            None => Err(AddressError::Missing),
        }
    }
}

impl From<Part> for Participant {
    fn from(part: Part) -> Self {
        Self::of(part)
    }
}

/// The participants of a conversation; the first is the local one.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Participants {
    list: SmallVec<[Participant; 2]>,
}

impl Participants {
    /// A local participant and one peer, as `open` needs them.
    pub fn pair(local: impl Into<Participant>, peer: impl Into<Participant>) -> Self {
        let mut set = Self::local(local);
        set.list.push(peer.into());
        set
    }

    /// A local participant and all peers of a conversation.
    pub fn among(local: Participant, peers: impl IntoIterator<Item = Participant>) -> Self {
        Self { list: core::iter::once(local).chain(peers).collect() }
    }

    /// The local participant alone, as `open_enable` needs it.
    pub fn local(local: impl Into<Participant>) -> Self {
        let mut list = SmallVec::new();
        list.push(local.into());
        Self { list }
    }

    /// Adds a participant.
    pub fn push(&mut self, participant: Participant) {
        self.list.push(participant);
    }

    /// Number of participants.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Checks the bounds of a set that goes from one protocol to another, across cuts or not.
    ///
    /// # Errors
    /// [`AddressError::Count`] for more than [`PARTICIPANTS_MAX`] participants,
    /// [`AddressError::OutOfRange`] for one of more than [`PARTS_MAX`] identifiers.
    pub fn check(&self) -> Result<(), AddressError> {
        if self.len() > PARTICIPANTS_MAX {
            return Err(AddressError::Count);
        }
        match self.iter().any(|participant| participant.len() > PARTS_MAX) {
            true => Err(AddressError::OutOfRange),
            false => Ok(()),
        }
    }

    /// All participants, the local one first.
    pub fn iter(&self) -> impl Iterator<Item = &Participant> {
        self.list.iter()
    }

    /// The local participant, for popping identifiers off it.
    ///
    /// # Errors
    /// [`AddressError::Count`] if the set is empty.
    pub fn local_mut(&mut self) -> Result<&mut Participant, AddressError> {
        self.list.first_mut().ok_or(AddressError::Count)
    }

    /// Checks that there is at most one peer, for a layer that looks at none.
    ///
    /// # Errors
    /// [`AddressError::Count`] if there are several.
    pub fn check_one_peer(&self) -> Result<(), AddressError> {
        if self.peers().len() > 1 { Err(AddressError::Count) } else { Ok(()) }
    }

    /// The peers: all participants but the local one.
    pub fn peers(&self) -> &[Participant] {
        self.list.get(1..).unwrap_or_default()
    }

    /// The peers, for popping identifiers off each.
    pub fn peers_mut(&mut self) -> &mut [Participant] {
        self.list.get_mut(1..).unwrap_or_default()
    }

    /// The only peer, for popping identifiers off it. A layer that takes several has
    /// [`peers_mut`](Self::peers_mut).
    ///
    /// # Errors
    /// [`AddressError::Count`] if there is no peer or more than one.
    pub fn peer_mut(&mut self) -> Result<&mut Participant, AddressError> {
        match self.list.as_mut_slice() {
            [_, peer] => Ok(peer),
            _ => Err(AddressError::Count),
        }
    }
}

#[cfg(test)]
mod tests;
