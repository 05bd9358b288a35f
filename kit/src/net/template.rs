//! Headers as data: a description of the headers of a session's messages, from the link's header
//! up.
//!
//! Each session asks the session below for its templates ([`Headers::of`]) and appends its own
//! header ([`Template::header`]). So a layer that knows none of the protocols above it can check
//! messages, as the network I/O module of "Implementing Network Protocols at User Level" (section
//! 3.4) does. A message that is sent must fit the session's template for sending; an arrival is for
//! the session whose template for arrivals it fits ([`Check`]).

use alloc::vec::Vec;
use core::fmt;
use xk_core::control::{Field, Reader, Writer};
use xk_core::{Answer, Kernel, SessionRef, fields, question};

/// Largest number of octets of all headers of a template.
pub const OCTETS_MAX: usize = 128;
/// Largest number of fields of all headers of a template.
const FIELDS_MAX: usize = 64;
/// Number of words that are compared at once.
const FIRST: usize = 6;

/// A place in a header that is not alike in all messages of a session, or that names the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderField {
    /// Octets that may have any value: a number that counts on, flags.
    Free(u8),
    /// One octet, of which these bits are alike in all messages.
    Bits(u8),
    /// Octets that are alike in all messages, and name the peer.
    Peer(u8),
    /// Two octets, the most significant first: the number of octets from `from` on.
    Length {
        /// First octet of the header that counts.
        from: u8,
    },
    /// Two octets: the Internet checksum of `octets` octets of the header, from `from` on.
    HeaderSum {
        /// First octet of the header that counts.
        from: u8,
        /// Number of octets that the sum covers.
        octets: u8,
    },
    /// Two octets: the Internet checksum of all octets from `from` on and of a pseudo-header, or
    /// zero for none.
    Sum {
        /// First octet of the header that counts.
        from: u8,
        /// The sum over the pseudo-header without the length, folded.
        pseudo: u16,
    },
}

fields!(enum HeaderField {
    Free(octets) = 0,
    Bits(mask) = 1,
    Peer(octets) = 2,
    Length { from } = 3,
    HeaderSum { from, octets } = 4,
    Sum { from, pseudo } = 5,
});

impl HeaderField {
    fn octets(self) -> usize {
        match self {
            Self::Free(octets) | Self::Peer(octets) => octets.into(),
            Self::Bits(_) => 1,
            Self::Length { .. } | Self::HeaderSum { .. } | Self::Sum { .. } => 2,
        }
    }

    /// This field in a template whose headers in front have `front` octets.
    fn behind(self, front: u8) -> Self {
        match self {
            Self::Length { from } => Self::Length { from: front.saturating_add(from) },
            Self::HeaderSum { from, octets } => {
                Self::HeaderSum { from: front.saturating_add(from), octets }
            }
            Self::Sum { from, pseudo } => Self::Sum { from: front.saturating_add(from), pseudo },
            other => other,
        }
    }
}

/// The headers of the messages of a session in one direction.
///
/// Octets that belong to no field are alike in all messages. The template is as long as the headers
/// without options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    octets: Vec<u8>,
    /// The fields, each with the offset of its first octet.
    fields: Vec<(u8, HeaderField)>,
    /// See [`padded_octets`](Self::padded_octets).
    padded_to: u32,
    /// Octets of the largest message.
    octets_max: u32,
}

fn number(octets: usize) -> u32 {
    u32::try_from(octets).unwrap_or(u32::MAX)
}

impl Template {
    /// Template of a wire that carries messages of up to `octets_max` octets and puts nothing in
    /// front.
    #[must_use]
    pub fn wire(octets_max: usize) -> Self {
        Self { octets_max: number(octets_max), ..Self::default() }
    }

    /// Appends a header, with its fields by the offset of their first octet in it. `None` if that
    /// is more than a template holds, or a field lies outside of the header.
    #[must_use]
    pub fn header(mut self, octets: &[u8], fields: &[(u8, HeaderField)]) -> Option<Self> {
        let front = u8::try_from(self.octets.len()).ok()?;
        self.octets.extend_from_slice(octets);
        let fields = fields.iter().map(|(at, field)| (front.saturating_add(*at), *field));
        self.fields.extend(fields.map(|(at, field)| (at, field.behind(front))));
        self.is_sound().then_some(self)
    }

    /// Limits the octets behind the headers to `octets_max`.
    #[must_use]
    pub fn carrying(mut self, octets_max: usize) -> Self {
        let all = self.octets.len().saturating_add(octets_max);
        self.octets_max = self.octets_max.min(number(all));
        self
    }

    /// Sets the length of the largest message, headers included, whatever the session's path takes.
    #[must_use]
    pub fn of_up_to(mut self, octets_max: usize) -> Self {
        self.octets_max = number(octets_max);
        self
    }

    /// Allows a message that is shorter than this behind the headers to be filled up to it.
    #[must_use]
    pub fn padded_to(mut self, octets: usize) -> Self {
        let all = self.octets.len().saturating_add(octets);
        self.padded_to = self.padded_to.max(number(all));
        self
    }

    /// The template for messages to or from any peer.
    #[must_use]
    pub fn for_any_peer(mut self) -> Self {
        for (_, field) in &mut self.fields {
            if let HeaderField::Peer(octets) = *field {
                *field = HeaderField::Free(octets);
            }
        }
        self
    }

    /// The octets of a message; those in fields mean nothing.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The fields, each with the offset of its first octet.
    #[must_use]
    pub fn fields(&self) -> &[(u8, HeaderField)] {
        &self.fields
    }

    /// The peer's station: the octets nearest to the link that name it.
    #[must_use]
    pub fn station(&self) -> Option<&[u8]> {
        let peer = |(at, field): &(u8, HeaderField)| match field {
            HeaderField::Peer(octets) => Some((usize::from(*at), usize::from(*octets))),
            _ => None,
        };
        let (at, octets) = self.fields.iter().find_map(peer)?;
        self.octets.get(at..at + octets)
    }

    /// Octets of the largest message.
    #[must_use]
    pub fn octets_max(&self) -> usize {
        self.octets_max as usize
    }

    /// Length up to which a message may be filled up with octets that its headers do not count.
    #[must_use]
    pub fn padded_octets(&self) -> usize {
        self.padded_to as usize
    }

    /// The bits that are alike in all messages.
    #[must_use]
    pub fn mask(&self) -> Vec<u8> {
        let mut mask = alloc::vec![0xff; self.octets.len()];
        for (at, field) in &self.fields {
            let mask = mask.iter_mut().skip((*at).into()).take(field.octets());
            match field {
                HeaderField::Peer(_) => {}
                HeaderField::Bits(bits) => mask.for_each(|octet| *octet &= bits),
                _ => mask.for_each(|octet| *octet = 0),
            }
        }
        mask
    }

    fn is_sound(&self) -> bool {
        let len = self.octets.len();
        let is_inside = |(at, field): &(u8, HeaderField)| {
            let end = usize::from(*at) + field.octets();
            end <= len
                && match *field {
                    HeaderField::Length { from } | HeaderField::Sum { from, .. } => {
                        usize::from(from) <= len
                    }
                    HeaderField::HeaderSum { from, octets } => {
                        usize::from(from) + usize::from(octets) <= len
                    }
                    _ => true,
                }
        };
        len <= OCTETS_MAX && self.fields.len() <= FIELDS_MAX && self.fields.iter().all(is_inside)
    }
}

impl Field for Template {
    fn put(&self, out: &mut Writer<'_>) {
        self.octets.put(out);
        self.fields.put(out);
        self.padded_to.put(out);
        self.octets_max.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (octets, fields) = (Field::take(from)?, Field::take(from)?);
        let (padded_to, octets_max) = (Field::take(from)?, Field::take(from)?);
        let taken = Self { octets, fields, padded_to, octets_max };
        taken.is_sound().then_some(taken)
    }
}

/// Shows each run of octets that are alike: offset, mask unless it is all ones, and value.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mask = self.mask();
        let (mut at, mut gap) = (0, "");
        for run in mask.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            let front = at;
            at += run.len();
            if run.first() == Some(&0) {
                continue;
            }
            write!(f, "{}{front}:", core::mem::replace(&mut gap, " "))?;
            if run.iter().any(|bits| *bits != 0xff) {
                run.iter().try_for_each(|bits| write!(f, "{bits:02x}"))?;
                f.write_str("=")?;
            }
            let octets = self.octets.iter().skip(front).zip(run);
            octets.map(|(octet, bits)| octet & bits).try_for_each(|o| write!(f, "{o:02x}"))?;
        }
        Ok(())
    }
}

/// Asks a session for the headers of its messages, its own and those of the layers below. A session
/// whose messages go by several sessions below answers for the smallest messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Template of the messages that the session sends.
    pub sent: Template,
    /// Template of the messages that arrive for it.
    pub received: Template,
}

question!(Headers { sent, received }, "headers", Ask, direct);

impl Headers {
    /// Headers of `session`; `None` if it or a layer below does not describe them.
    #[must_use]
    pub fn of(cx: &Kernel, session: &SessionRef) -> Option<Self> {
        session.ask(cx, Self::default())
    }

    /// Headers of a wire that carries messages of up to `octets_max` octets and puts nothing in
    /// front. Arrivals may have octets behind that no header counts.
    #[must_use]
    pub fn of_wire(octets_max: usize) -> Self {
        let sent = Template::wire(octets_max);
        Self { received: sent.clone().padded_to(octets_max), sent }
    }

    /// The headers for messages to and from any peer.
    #[must_use]
    pub fn for_any_peer(self) -> Self {
        Self { sent: self.sent.for_any_peer(), received: self.received.for_any_peer() }
    }

    /// Answers the question with the headers found, if there are any.
    pub fn found(&mut self, found: Option<Self>) -> Answer {
        match found {
            Some(found) => *self = found,
            None => return Answer::Unknown,
        }
        Answer::Answered
    }

    /// Appends a header to both templates, of the same length in both.
    #[must_use]
    pub fn with(
        self,
        (sent, fields_sent): (&[u8], &[(u8, HeaderField)]),
        (received, fields_received): (&[u8], &[(u8, HeaderField)]),
    ) -> Option<Self> {
        let sent = self.sent.header(sent, fields_sent)?;
        Some(Self { sent, received: self.received.header(received, fields_received)? })
    }
}

/// A template that is prepared for comparison with messages.
///
/// The octets that are alike are compared as masked words of 64 bits. No branch depends on the
/// message's octets before all words are compared.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// Mask and value of each of the first words, as they lie in memory: enough for a datagram.
    first: [(u64, u64); FIRST],
    /// Mask and value of the other words.
    others: Vec<(u64, u64)>,
    /// Position of each length, and the position that it counts from.
    lengths: Vec<(usize, usize)>,
    header_octets: usize,
    padded_to: usize,
    octets_max: usize,
}

impl Check {
    /// Prepares a template.
    #[must_use]
    pub fn new(template: &Template) -> Self {
        let word = |octets: &[u8]| {
            let mut word = [0; 8];
            word.iter_mut().zip(octets).for_each(|(to, octet)| *to = *octet);
            u64::from_ne_bytes(word)
        };
        let mask = template.mask();
        let words = mask.chunks(8).zip(template.octets.chunks(8));
        let words = words.map(|(mask, octets)| (word(mask), word(octets) & word(mask)));
        let mut others: Vec<_> = words.collect();
        while others.last().is_some_and(|(mask, _)| *mask == 0) {
            others.pop();
        }
        let mut first = [(0, 0); FIRST];
        let count = others.len().min(FIRST);
        first.iter_mut().zip(others.drain(..count)).for_each(|(to, word)| *to = word);
        let lengths = template.fields.iter().filter_map(|(at, field)| match field {
            HeaderField::Length { from } => Some((usize::from(*at), usize::from(*from))),
            _ => None,
        });
        Self {
            first,
            others,
            lengths: lengths.collect(),
            header_octets: template.octets.len(),
            padded_to: template.padded_to as usize,
            octets_max: template.octets_max(),
        }
    }

    /// Whether a message of `octets` octets that begins with `front` fits: the octets that are
    /// alike are right, the lengths in its headers are those of the message, and it is not too
    /// long. `front` has [`OCTETS_MAX`] octets, or the whole message if that is shorter.
    #[inline]
    #[must_use]
    pub fn admits(&self, front: &[u8], octets: usize) -> bool {
        self.admits_run(front, octets, octets)
    }

    /// As [`admits`](Self::admits), for a run whose longest message has `longest` octets.
    #[inline]
    #[must_use]
    pub fn admits_run(&self, front: &[u8], octets: usize, longest: usize) -> bool {
        if octets < self.header_octets || longest > self.octets_max {
            return false;
        }
        match front.as_chunks::<8>().0.split_first_chunk() {
            Some((first, others)) if others.len() >= self.others.len() => {
                self.is_alike(first, others) && self.measures(front, octets)
            }
            _ => self.admits_short(front, octets),
        }
    }

    /// As [`admits`](Self::admits), for a message that ends before the last compared word.
    #[cold]
    fn admits_short(&self, front: &[u8], octets: usize) -> bool {
        let mut padded = [0; OCTETS_MAX];
        padded.iter_mut().zip(front).for_each(|(to, octet)| *to = *octet);
        let words = padded.as_chunks().0.split_first_chunk();
        front.len() >= self.header_octets
            && words.is_some_and(|(first, others)| self.is_alike(first, others))
            && self.measures(&padded, octets)
    }

    #[inline]
    fn is_alike(&self, first: &[[u8; 8]; FIRST], others: &[[u8; 8]]) -> bool {
        let differ = |octets: &[u8; 8], (mask, value): &(u64, u64)| {
            u64::from_ne_bytes(*octets) & mask ^ value
        };
        let mut all = 0;
        for (octets, word) in first.iter().zip(&self.first) {
            all |= differ(octets, word);
        }
        for (octets, word) in others.iter().zip(&self.others) {
            all |= differ(octets, word);
        }
        all == 0
    }

    #[inline]
    fn measures(&self, front: &[u8], octets: usize) -> bool {
        let mut end = None;
        for (at, from) in &self.lengths {
            let Some(length) = front.get(*at..).and_then(|field| field.first_chunk()) else {
                return false;
            };
            let counted = from + usize::from(u16::from_be_bytes(*length));
            if *end.get_or_insert(counted) != counted {
                return false;
            }
        }
        match end {
            None => true,
            Some(end) if end == octets => true,
            Some(end) => (self.header_octets..octets).contains(&end) && octets <= self.padded_to,
        }
    }
}

#[cfg(test)]
mod tests;
