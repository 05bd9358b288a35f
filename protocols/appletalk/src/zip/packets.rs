//! Packets, and what ATP's user bytes and data are for requests of lists.

use crate::aarp::Hw;
use crate::addr::NetRange;
use crate::ddp::DATA_LEN_MAX;
use crate::name::Name;
use alloc::vec::Vec;

/// Flag of an answer about networks: the zone that was asked for does not exist there.
const INVALID_ZONE: u8 = 0x80;
/// Flag of an answer about networks: there are no groups, all is for all nodes.
const USE_BROADCAST: u8 = 0x40;
/// Flag of an answer about networks: there is no zone but this.
const ONLY_ONE_ZONE: u8 = 0x20;

/// Error of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The packet ends within its header, a name or an address, or a name is too long.
    #[error("it is not whole")]
    Truncated,
    /// No function that there is, or none of the kind that is wanted.
    #[error("function {0}")]
    Function(u8),
    /// Networks that are no range.
    #[error("networks that are no range")]
    Range,
    /// An address of hardware that has not six octets.
    #[error("an address of {0} octets")]
    Address(u8),
}

/// A node asks which networks its cable has, and whether its zone is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetInfoRequest {
    /// The zone that it had the last time; empty if it knows none.
    pub zone: Name,
}

/// The answer to [`NetInfoRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetInfo {
    /// The networks of the cable.
    pub range: NetRange,
    /// The zone that was asked for.
    pub asked: Name,
    /// Group of the zone, or of the zone in [`instead`](Self::instead); `None`: all nodes.
    pub multicast: Option<Hw>,
    /// The cable's default zone, if the one asked for is not there.
    pub instead: Option<Name>,
    /// Whether there is only one zone.
    pub is_only: bool,
}

impl NetInfo {
    /// The zone that the node is in.
    #[must_use]
    pub fn zone(&self) -> Name {
        self.instead.unwrap_or(self.asked)
    }
}

/// Zones that networks are in: those of all networks asked for, or some of those of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number of zones of the named networks, in this packet and others of an extended reply.
    pub total: Option<u8>,
    /// First network of a cable, and a zone; a cable may appear several times.
    pub zones: Vec<(u16, Name)>,
}

/// A zone of a cable has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The networks of the cable.
    pub range: NetRange,
    /// The name that it had.
    pub old: Name,
    /// The name that it has.
    pub new: Name,
    /// The new name's group.
    pub multicast: Option<Hw>,
}

/// A packet of type 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Asks for the zones of these cables, by their first networks.
    Query(Vec<u16>),
    /// Tells them.
    Reply(Reply),
    /// A node asks about its cable.
    NetInfoRequest(NetInfoRequest),
    /// A router's answer.
    NetInfo(NetInfo),
    /// A zone has another name.
    Notify(Notify),
}

/// Octets in front of what is read.
struct Octets<'a>(&'a [u8]);

impl Octets<'_> {
    fn octet(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.0.split_first().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes([self.octet()?, self.octet()?]))
    }

    fn name(&mut self) -> Result<Name, Error> {
        let (name, rest) = Name::split(self.0).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(name)
    }

    fn range(&mut self) -> Result<NetRange, Error> {
        NetRange::new(self.word()?, self.word()?).ok_or(Error::Range)
    }

    /// The place of a range, with zeros in it.
    fn range_left_out(&mut self) -> Result<(), Error> {
        self.word()?;
        self.word().map(drop)
    }

    fn hw(&mut self) -> Result<Option<Hw>, Error> {
        match self.octet()? {
            0 => Ok(None),
            6 => {
                let (hw, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
                self.0 = rest;
                Ok(Some(*hw))
            }
            other => Err(Error::Address(other)),
        }
    }
}

fn put_hw(hw: Option<Hw>, out: &mut Vec<u8>) {
    match hw {
        None => out.push(0),
        Some(hw) => {
            out.push(6);
            out.extend_from_slice(&hw);
        }
    }
}

fn put_range(range: NetRange, out: &mut Vec<u8>) {
    out.extend_from_slice(&range.first().to_be_bytes());
    out.extend_from_slice(&range.last().to_be_bytes());
}

impl Packet {
    /// Reads a packet; what lies behind its fields is not looked at.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8]) -> Result<Self, Error> {
        let mut from = Octets(octets);
        let function = from.octet()?;
        let second = from.octet()?;
        match function {
            1 => {
                let nets = (0..second).map(|_| from.word());
                Ok(Self::Query(nets.collect::<Result<_, _>>()?))
            }
            2 => {
                let zones = (0..second).map(|_| Ok((from.word()?, from.name()?)));
                let zones = zones.collect::<Result<_, _>>()?;
                Ok(Self::Reply(Reply { total: None, zones }))
            }
            // The count is that of all packets together: this one has as many as it has room for.
            8 => {
                let mut zones = Vec::new();
                while !from.0.is_empty() && zones.len() < second.into() {
                    zones.push((from.word()?, from.name()?));
                }
                Ok(Self::Reply(Reply { total: Some(second), zones }))
            }
            5 => {
                from.range_left_out()?;
                Ok(Self::NetInfoRequest(NetInfoRequest { zone: from.name()? }))
            }
            6 => {
                let (range, asked, hw) = (from.range()?, from.name()?, from.hw()?);
                let instead = match second & INVALID_ZONE {
                    0 => None,
                    _ => Some(from.name()?),
                };
                let multicast = hw.filter(|_| second & USE_BROADCAST == 0);
                let is_only = second & ONLY_ONE_ZONE != 0;
                Ok(Self::NetInfo(NetInfo { range, asked, multicast, instead, is_only }))
            }
            7 => {
                let (range, old, multicast) = (from.range()?, from.name()?, from.hw()?);
                let multicast = multicast.filter(|_| second & USE_BROADCAST == 0);
                Ok(Self::Notify(Notify { range, old, new: from.name()?, multicast }))
            }
            other => Err(Error::Function(other)),
        }
    }

    /// Encodes the packet; of a query or reply, as much as a packet has room for.
    #[must_use]
    pub fn octets(&self) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let mut out = Vec::new();
        match self {
            Self::Query(nets) => {
                let nets = &nets[..nets.len().min(255)];
                out.extend_from_slice(&[1, nets.len() as u8]);
                nets.iter().for_each(|net| out.extend_from_slice(&net.to_be_bytes()));
            }
            Self::Reply(Reply { total, zones }) => {
                out.extend_from_slice(&[if total.is_some() { 8 } else { 2 }, 0]);
                let mut count = 0u8;
                for (net, zone) in zones {
                    if count == u8::MAX || out.len() + 2 + zone.put_len() > DATA_LEN_MAX {
                        break;
                    }
                    out.extend_from_slice(&net.to_be_bytes());
                    zone.put(&mut out);
                    count += 1;
                }
                out[1] = total.unwrap_or(count);
            }
            Self::NetInfoRequest(NetInfoRequest { zone }) => {
                out.extend_from_slice(&[5, 0, 0, 0, 0, 0]);
                zone.put(&mut out);
            }
            Self::NetInfo(info) => {
                let flags = flag(info.instead.is_some(), INVALID_ZONE)
                    | flag(info.multicast.is_none(), USE_BROADCAST)
                    | flag(info.is_only, ONLY_ONE_ZONE);
                out.extend_from_slice(&[6, flags]);
                put_range(info.range, &mut out);
                info.asked.put(&mut out);
                put_hw(info.multicast, &mut out);
                info.instead.iter().for_each(|zone| zone.put(&mut out));
            }
            Self::Notify(notify) => {
                out.extend_from_slice(&[7, flag(notify.multicast.is_none(), USE_BROADCAST)]);
                put_range(notify.range, &mut out);
                notify.old.put(&mut out);
                put_hw(notify.multicast, &mut out);
                notify.new.put(&mut out);
            }
        }
        out
    }
}

impl Reply {
    /// The answer for one cable, in as many packets as its zones take: an extended one.
    #[must_use]
    pub fn extended(net: u16, zones: &[Name]) -> Vec<Self> {
        let zones = &zones[..zones.len().min(255)];
        let mut replies: Vec<Self> = Vec::new();
        let mut room = 0;
        for zone in zones {
            let len = 2 + zone.put_len();
            if room < len {
                replies.push(Self { total: Some(zones.len() as u8), zones: Vec::new() });
                room = DATA_LEN_MAX - 2;
            }
            room -= len;
            replies.iter_mut().next_back().into_iter().for_each(|r| r.zones.push((net, *zone)));
        }
        replies
    }
}

/// List that an ATP request to the zone socket of a router asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The zone of the node that asks, on a cable that is not extended.
    MyZone = 7,
    /// All zones.
    All = 8,
    /// The zones of the cable.
    Local = 9,
}

/// A request for a list of zones: all of it is in ATP's user bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Kind of the list.
    pub kind: ListKind,
    /// The place in it from which on; the first is 1.
    pub start: u16,
}

impl ListRequest {
    /// Reads the user bytes of a request.
    ///
    /// # Errors
    /// [`Error::Function`].
    pub const fn parse([function, _, high, low]: [u8; 4]) -> Result<Self, Error> {
        let kind = match function {
            7 => ListKind::MyZone,
            8 => ListKind::All,
            9 => ListKind::Local,
            other => return Err(Error::Function(other)),
        };
        Ok(Self { kind, start: u16::from_be_bytes([high, low]) })
    }

    /// The user bytes.
    #[must_use]
    pub const fn octets(self) -> [u8; 4] {
        let [high, low] = self.start.to_be_bytes();
        [self.kind as u8, 0, high, low]
    }
}

/// Part of a list of zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListReply {
    /// Whether no part follows.
    pub is_last: bool,
    /// The zones.
    pub zones: Vec<Name>,
}

impl ListReply {
    /// Octets of data in one ATP response at most.
    const LEN_MAX: usize = 578;

    /// Reads the user bytes and the data of a response.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn parse([last, _, high, low]: [u8; 4], data: &[u8]) -> Result<Self, Error> {
        let mut from = Octets(data);
        let zones = (0..u16::from_be_bytes([high, low])).map(|_| from.name());
        Ok(Self { is_last: last != 0, zones: zones.collect::<Result<_, _>>()? })
    }

    /// The part of a list that answers a request.
    #[must_use]
    pub fn part<'a>(request: ListRequest, zones: impl Iterator<Item = &'a Name>) -> Self {
        let mut from = zones.skip(usize::from(request.start).saturating_sub(1)).peekable();
        let (mut part, mut room) = (Vec::new(), Self::LEN_MAX);
        while let Some(zone) = from.next_if(|zone| zone.put_len() <= room) {
            room -= zone.put_len();
            part.push(*zone);
        }
        Self { is_last: from.peek().is_none(), zones: part }
    }

    /// The user bytes and the data.
    #[must_use]
    pub fn octets(&self) -> ([u8; 4], Vec<u8>) {
        let mut data = Vec::new();
        self.zones.iter().for_each(|zone| zone.put(&mut data));
        let [high, low] = (self.zones.len() as u16).to_be_bytes();
        ([self.is_last.into(), 0, high, low], data)
    }
}
