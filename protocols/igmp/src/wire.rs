//! Messages of IGMP (RFC 3376, section 4; RFC 2236, section 2; RFC 1112, appendix I).

use alloc::vec::Vec;
use core::time::Duration;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::checksum;

/// Octets of the shortest message, and of the front of a report of version 3.
pub const HEADER_LEN: usize = 8;
/// Octets of a record without sources.
pub const RECORD_LEN: usize = 8;
/// Octets of a source.
pub const SOURCE_LEN: usize = 4;

/// All systems of a link: never reported.
pub const ALL_SYSTEMS: Ipv4 = Ipv4::new(224, 0, 0, 1);
/// All routers: they hear of leaves (version 2).
pub const ALL_ROUTERS: Ipv4 = Ipv4::new(224, 0, 0, 2);
/// Routers of version 3: they hear all reports.
pub const REPORTS: Ipv4 = Ipv4::new(224, 0, 0, 22);

const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_3: u8 = 0x22;

/// Unit of response times.
const TENTH: Duration = Duration::from_millis(100);

/// A router's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Version of the router, 1 to 3.
    pub version: u8,
    /// Time within which hosts answer.
    pub response: Duration,
    /// The group; `None` for all.
    pub group: Option<Ipv4>,
    /// The router's robustness variable, of version 3; 0 if it does not say.
    pub robustness: u8,
    /// The router's query interval, of version 3; zero if it does not say.
    pub interval: Duration,
    /// The sources that it asks for, four octets each; none for the whole group.
    sources: &'a [u8],
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A router's question.
    Query(Query<'a>),
    /// A member tells of a group in version 1 or 2.
    Report {
        /// The version.
        version: u8,
        /// The group.
        group: Ipv4,
    },
    /// A member has left a group.
    Leave(Ipv4),
    /// A member tells of its groups in version 3; the octets are its records, which hosts ignore.
    Records(&'a [u8]),
}

/// Fault of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer octets than any message has.
    #[error("fewer octets than any message has")]
    Truncated,
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// A type that is not known.
    #[error("unknown type {0:#04x}")]
    Type(u8),
    /// A query that is of no version, or has fewer sources than it says.
    #[error("length of no version, or fewer sources than it says")]
    Length,
    /// The group is none.
    #[error("no group")]
    Group,
}

/// The number for which a code stands: itself, or from 128 on a mantissa of four bits and an
/// exponent of three (RFC 3376, section 4.1.1).
fn number(code: u8) -> u32 {
    match code {
        0..128 => code.into(),
        _ => u32::from(code & 0xf | 0x10) << ((code >> 4 & 7) + 3),
    }
}

/// The largest code whose number is not above this one, and not above 31,744 (section 8.8).
fn code(number_wanted: u128) -> u8 {
    let is_above = |code: u8| u128::from(number(code)) > number_wanted;
    (0..=u8::MAX).rev().find(|code| !is_above(*code)).unwrap_or(0)
}

fn ipv4(octets: &[u8; SOURCE_LEN]) -> Ipv4 {
    Ipv4::from(*octets)
}

impl<'a> Packet<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let Some((&[kind, code, _, _, a, b, c, d], rest)) = octets.split_first_chunk() else {
            return Err(Error::Truncated);
        };
        if !checksum::is_valid(octets) {
            return Err(Error::Checksum);
        }
        let group = Ipv4::new(a, b, c, d);
        let member_of = || if group.is_multicast() { Ok(group) } else { Err(Error::Group) };
        Ok(match kind {
            QUERY => Self::Query(Query::read(code, group, rest)?),
            REPORT_1 => Self::Report { version: 1, group: member_of()? },
            REPORT_2 => Self::Report { version: 2, group: member_of()? },
            LEAVE => Self::Leave(member_of()?),
            REPORT_3 => Self::Records(rest),
            kind => return Err(Error::Type(kind)),
        })
    }
}

impl<'a> Query<'a> {
    /// Reads what follows the type (RFC 3376, section 7.1).
    fn read(code: u8, group: Ipv4, rest: &'a [u8]) -> Result<Self, Error> {
        let tenths = |count| TENTH * count;
        let (version, response) = match (rest.len(), code) {
            // RFC 2236, section 4: ten seconds.
            (0, 0) => (1, tenths(100)),
            (0, code) => (2, tenths(code.into())),
            (..4, _) => return Err(Error::Length),
            _ => (3, tenths(number(code))),
        };
        let (mut robustness, mut interval, mut sources) = (0, Duration::ZERO, &[][..]);
        if let Some((&[flags, code, high, low], list)) = rest.split_first_chunk() {
            robustness = flags & 7;
            interval = Duration::from_secs(number(code).into());
            let count = usize::from(u16::from_be_bytes([high, low]));
            sources = list.get(..count * SOURCE_LEN).ok_or(Error::Length)?;
        }
        // RFC 1112, appendix I: ignored when received.
        let is_general = group.is_unspecified() || version == 1;
        if !is_general && !group.is_multicast() || is_general && !sources.is_empty() {
            return Err(Error::Group);
        }
        let group = (!is_general).then_some(group);
        Ok(Self { version, response, group, robustness, interval, sources })
    }

    /// The sources that it asks for; none for the whole group.
    pub fn sources(&self) -> impl Iterator<Item = Ipv4> + use<'a> {
        self.sources.as_chunks().0.iter().map(ipv4)
    }
}

fn finish(mut octets: Vec<u8>) -> Vec<u8> {
    let sum = checksum::checksum(&octets);
    octets[2..4].copy_from_slice(&sum.to_be_bytes());
    octets
}

/// A message of eight octets about a group.
fn short(kind: u8, group: Ipv4) -> Vec<u8> {
    let [a, b, c, d] = group.octets();
    finish([kind, 0, 0, 0, a, b, c, d].into())
}

/// A query about all groups, in this version.
#[must_use]
pub fn general_query(version: u8, response: Duration, robustness: u8, every: Duration) -> Vec<u8> {
    let tenths = response.as_millis() / TENTH.as_millis();
    let mut octets = Vec::from([QUERY, 0, 0, 0, 0, 0, 0, 0]);
    octets[1] = match version {
        1 => 0,
        2 => tenths.clamp(1, 255) as u8,
        _ => code(tenths),
    };
    if version > 2 {
        octets.extend([robustness & 7, code(every.as_secs().into()), 0, 0]);
    }
    finish(octets)
}

/// The report of a group in version 1, or else 2.
#[must_use]
pub fn report(version: u8, group: Ipv4) -> Vec<u8> {
    short(if version == 1 { REPORT_1 } else { REPORT_2 }, group)
}

/// The message of version 2 that a group has been left.
#[must_use]
pub fn leave(group: Ipv4) -> Vec<u8> {
    short(LEAVE, group)
}

/// Meaning of a record (RFC 3376, section 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The mode is INCLUDE.
    IsInclude = 1,
    /// The mode is EXCLUDE.
    IsExclude = 2,
    /// The mode has become INCLUDE.
    ToInclude = 3,
    /// The mode has become EXCLUDE.
    ToExclude = 4,
    /// Packets from these sources are wanted now.
    Allow = 5,
    /// Packets from these sources are no longer wanted.
    Block = 6,
}

/// Reports of version 3 being filled with records.
#[derive(Debug)]
pub struct Reports {
    /// Octets of the largest.
    room: usize,
    done: Vec<Vec<u8>>,
    /// The one that is being filled; empty if there is none.
    open: Vec<u8>,
    records: u16,
}

impl Reports {
    /// Reports of at most `room` octets each, or of one record and one source if that is more.
    #[must_use]
    pub fn new(room: usize) -> Self {
        let room = room.max(HEADER_LEN + RECORD_LEN + SOURCE_LEN);
        Self { room, done: Vec::new(), open: Vec::new(), records: 0 }
    }

    /// Adds the record of a group. Sources that one report does not hold go in further ones, those
    /// that are excluded not at all (section 4.2.16).
    pub fn add(&mut self, kind: Kind, group: Ipv4, sources: &[Ipv4]) {
        let sources_max = (self.room - HEADER_LEN - RECORD_LEN) / SOURCE_LEN;
        let (mut now, mut later) = sources.split_at(sources.len().min(sources_max));
        if matches!(kind, Kind::IsExclude | Kind::ToExclude) {
            later = &[];
        }
        loop {
            self.put(kind, group, now);
            if later.is_empty() {
                return;
            }
            (now, later) = later.split_at(later.len().min(sources_max));
        }
    }

    fn put(&mut self, kind: Kind, group: Ipv4, sources: &[Ipv4]) {
        let octets = RECORD_LEN + sources.len() * SOURCE_LEN;
        if self.open.len() + octets > self.room {
            self.close();
        }
        if self.open.is_empty() {
            self.open.extend_from_slice(&[REPORT_3, 0, 0, 0, 0, 0, 0, 0]);
        }
        let [high, low] = (sources.len() as u16).to_be_bytes();
        self.open.extend_from_slice(&[kind as u8, 0, high, low]);
        self.open.extend_from_slice(&group.octets());
        sources.iter().for_each(|source| self.open.extend_from_slice(&source.octets()));
        self.records += 1;
    }

    fn close(&mut self) {
        let mut octets = core::mem::take(&mut self.open);
        if let Some(count) = octets.get_mut(6..8) {
            count.copy_from_slice(&core::mem::take(&mut self.records).to_be_bytes());
            self.done.push(finish(octets));
        }
    }

    /// Number of reports that are full.
    #[must_use]
    pub fn full(&self) -> usize {
        self.done.len()
    }

    /// The reports.
    #[must_use]
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        self.close();
        self.done
    }
}

#[cfg(test)]
pub(crate) mod tests;
