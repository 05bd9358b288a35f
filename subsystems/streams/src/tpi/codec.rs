//! Primitives out of the octets of a control part, and into them.

use super::info::{Info, Service};
use super::state::State;
use super::{Refusal, TliError};
use crate::block::{Blocks, Kind, Mblk};
use crate::errno::Errno;

/// Longest address or options that a primitive carries here, in octets.
const PART_MAX: usize = 1024;

/// Why the octets of a control part are no primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Fewer octets than the primitive has.
    #[error("shorter than the primitive")]
    Truncated,
    /// No primitive has this number.
    #[error("no such primitive")]
    Unknown,
    /// An address or options lie outside of the block.
    #[error("an address or options lie outside of the block")]
    Outside,
    /// A number that the field cannot have.
    #[error("a field holds what it cannot")]
    Value,
}

/// A primitive, its addresses and options within the octets that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields bear the standard's names")]
#[rustfmt::skip]
pub enum Primitive<'a> {
    /// T_CONN_REQ.
    ConnReq { dest: &'a [u8], opt: &'a [u8] },
    /// T_CONN_RES; the number is that of the accepting stream.
    ConnRes { acceptor: u32, opt: &'a [u8], seq: u32 },
    /// T_DISCON_REQ.
    DisconReq { seq: u32 },
    /// T_DATA_REQ.
    DataReq { more: bool },
    /// T_EXDATA_REQ.
    ExdataReq { more: bool },
    /// T_INFO_REQ.
    InfoReq,
    /// T_BIND_REQ.
    BindReq { addr: &'a [u8], conind: u32 },
    /// T_UNBIND_REQ.
    UnbindReq,
    /// T_UNITDATA_REQ.
    UnitdataReq { dest: &'a [u8], opt: &'a [u8] },
    /// T_OPTMGMT_REQ.
    OptmgmtReq { opt: &'a [u8], flags: u32 },
    /// T_ORDREL_REQ.
    OrdrelReq,
    /// T_CONN_IND.
    ConnInd { src: &'a [u8], opt: &'a [u8], seq: u32 },
    /// T_CONN_CON.
    ConnCon { res: &'a [u8], opt: &'a [u8] },
    /// T_DISCON_IND.
    DisconInd { reason: u32, seq: u32 },
    /// T_DATA_IND.
    DataInd { more: bool },
    /// T_EXDATA_IND.
    ExdataInd { more: bool },
    /// T_INFO_ACK.
    InfoAck(Info),
    /// T_BIND_ACK.
    BindAck { addr: &'a [u8], conind: u32 },
    /// T_ERROR_ACK.
    ErrorAck { prim: u32, refusal: Refusal },
    /// T_OK_ACK.
    OkAck { prim: u32 },
    /// T_UNITDATA_IND.
    UnitdataInd { src: &'a [u8], opt: &'a [u8] },
    /// T_UDERROR_IND.
    UderrorInd { dest: &'a [u8], opt: &'a [u8], error: u32 },
    /// T_OPTMGMT_ACK.
    OptmgmtAck { opt: &'a [u8], flags: u32 },
    /// T_ORDREL_IND.
    OrdrelInd,
    /// T_ADDR_REQ.
    AddrReq,
    /// T_ADDR_ACK.
    AddrAck { local: &'a [u8], remote: &'a [u8] },
}

/// Reads words and the parts that they place.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The word at this place, counted in words.
    fn at(&self, place: usize) -> Result<u32, FormatError> {
        let word = self.0.get(place * 4..).and_then(|octets| octets.first_chunk());
        word.map(|word| u32::from_le_bytes(*word)).ok_or(FormatError::Truncated)
    }

    /// The part whose length and offset stand from this place on; one of no octets lies anywhere.
    fn part(&self, place: usize) -> Result<&'a [u8], FormatError> {
        self.placed(self.at(place)?, self.at(place + 1)?)
    }

    /// The two parts of a datagram.
    #[inline]
    fn parts(&self) -> Result<(&'a [u8], &'a [u8]), FormatError> {
        let head = self.0.first_chunk::<20>().ok_or(FormatError::Truncated)?.as_chunks::<4>().0;
        let [_, length, offset, opt_length, opt_offset] = head else {
            return Err(FormatError::Truncated);
        };
        let word = |octets: &[u8; 4]| u32::from_le_bytes(*octets);
        let addr = self.placed(word(length), word(offset))?;
        Ok((addr, self.placed(word(opt_length), word(opt_offset))?))
    }

    #[inline]
    fn placed(&self, length: u32, offset: u32) -> Result<&'a [u8], FormatError> {
        let (length, offset) = (length as usize, offset as usize);
        if length == 0 {
            return Ok(&[]);
        }
        let end = offset.checked_add(length).filter(|_| length <= PART_MAX);
        end.and_then(|end| self.0.get(offset..end)).ok_or(FormatError::Outside)
    }

    fn info(&self) -> Result<Info, FormatError> {
        Ok(Info {
            tsdu: self.at(1)?,
            etsdu: self.at(2)?,
            connect: self.at(3)?,
            disconnect: self.at(4)?,
            address: self.at(5)?,
            options: self.at(6)?,
            tidu: self.at(7)?,
            service: Service::of(self.at(8)?).ok_or(FormatError::Value)?,
            state: State::of(self.at(9)?).ok_or(FormatError::Value)?,
            flags: self.at(10)?,
        })
    }
}

/// Words and parts of a primitive to be written.
#[derive(Default)]
struct Layout<'a> {
    words: [u32; 10],
    count: usize,
    /// Each with the place of its length, counted in words behind the number.
    parts: [Option<(usize, &'a [u8])>; 2],
}

impl<'a> Layout<'a> {
    fn word(mut self, word: u32) -> Self {
        self.words[self.count] = word;
        self.count += 1;
        self
    }

    fn part(mut self, octets: &'a [u8]) -> Self {
        let free = usize::from(self.parts[0].is_some());
        self.parts[free] = Some((self.count, octets));
        self.word(0).word(0)
    }

    /// Octets of the whole: parts begin at multiples of four.
    fn octets(&self) -> usize {
        let parts = self.parts.iter().flatten().map(|(_, octets)| octets.len());
        parts.fold(4 + self.count * 4, |sum, part| sum.next_multiple_of(4) + part)
    }

    fn write(mut self, number: u32, mp: &mut Mblk) -> bool {
        let mut end = 4 + self.count * 4;
        for (place, octets) in self.parts.iter().flatten().filter(|(_, part)| !part.is_empty()) {
            end = end.next_multiple_of(4);
            self.words[*place] = octets.len() as u32;
            self.words[place + 1] = end as u32;
            end += octets.len();
        }
        let words = &self.words[..self.count];
        let mut is_whole = mp.put(&number.to_le_bytes());
        is_whole &= words.iter().all(|word| mp.put(&word.to_le_bytes()));
        for (_, octets) in self.parts.iter().flatten().filter(|(_, part)| !part.is_empty()) {
            let gap = mp.len().next_multiple_of(4) - mp.len();
            is_whole &= mp.put(&[0; 3][..gap]) && mp.put(octets);
        }
        is_whole
    }
}

impl<'a> Primitive<'a> {
    /// Reads the octets of a control part.
    ///
    /// # Errors
    /// [`FormatError`].
    #[inline]
    pub fn parse(octets: &'a [u8]) -> Result<Self, FormatError> {
        // Datagrams, which are most of all, without a look at what else it might be.
        let number = octets.first_chunk().map(|word| u32::from_le_bytes(*word));
        match number {
            Some(8) => Words(octets).parts().map(|(dest, opt)| Self::UnitdataReq { dest, opt }),
            Some(20) => Words(octets).parts().map(|(src, opt)| Self::UnitdataInd { src, opt }),
            _ => Self::parse_other(octets),
        }
    }

    fn parse_other(octets: &'a [u8]) -> Result<Self, FormatError> {
        let words = Words(octets);
        Ok(match words.at(0)? {
            0 => Self::ConnReq { dest: words.part(1)?, opt: words.part(3)? },
            1 => Self::ConnRes { acceptor: words.at(1)?, opt: words.part(2)?, seq: words.at(4)? },
            2 => Self::DisconReq { seq: words.at(1)? },
            3 => Self::DataReq { more: words.at(1)? != 0 },
            4 => Self::ExdataReq { more: words.at(1)? != 0 },
            5 => Self::InfoReq,
            6 => Self::BindReq { addr: words.part(1)?, conind: words.at(3)? },
            7 => Self::UnbindReq,
            9 => Self::OptmgmtReq { opt: words.part(1)?, flags: words.at(3)? },
            10 => Self::OrdrelReq,
            number => return Self::parse_indication(number, &words),
        })
    }

    fn parse_indication(number: u32, words: &Words<'a>) -> Result<Self, FormatError> {
        Ok(match number {
            11 => Self::ConnInd { src: words.part(1)?, opt: words.part(3)?, seq: words.at(5)? },
            12 => Self::ConnCon { res: words.part(1)?, opt: words.part(3)? },
            13 => Self::DisconInd { reason: words.at(1)?, seq: words.at(2)? },
            14 => Self::DataInd { more: words.at(1)? != 0 },
            15 => Self::ExdataInd { more: words.at(1)? != 0 },
            16 => Self::InfoAck(words.info()?),
            17 => Self::BindAck { addr: words.part(1)?, conind: words.at(3)? },
            18 => {
                let refusal = Refusal { tli: TliError(words.at(2)?), unix: Errno(words.at(3)?) };
                Self::ErrorAck { prim: words.at(1)?, refusal }
            }
            19 => Self::OkAck { prim: words.at(1)? },
            21 => {
                Self::UderrorInd { dest: words.part(1)?, opt: words.part(3)?, error: words.at(5)? }
            }
            22 => Self::OptmgmtAck { opt: words.part(1)?, flags: words.at(3)? },
            23 => Self::OrdrelInd,
            24 => Self::AddrReq,
            25 => Self::AddrAck { local: words.part(1)?, remote: words.part(3)? },
            _ => return Err(FormatError::Unknown),
        })
    }

    /// Number of the primitive.
    pub fn number(&self) -> u32 {
        match self {
            Self::ConnReq { .. } => 0,
            Self::ConnRes { .. } => 1,
            Self::DisconReq { .. } => 2,
            Self::DataReq { .. } => 3,
            Self::ExdataReq { .. } => 4,
            Self::InfoReq => 5,
            Self::BindReq { .. } => 6,
            Self::UnbindReq => 7,
            Self::UnitdataReq { .. } => 8,
            Self::OptmgmtReq { .. } => 9,
            Self::OrdrelReq => 10,
            Self::ConnInd { .. } => 11,
            Self::ConnCon { .. } => 12,
            Self::DisconInd { .. } => 13,
            Self::DataInd { .. } => 14,
            Self::ExdataInd { .. } => 15,
            Self::InfoAck(_) => 16,
            Self::BindAck { .. } => 17,
            Self::ErrorAck { .. } => 18,
            Self::OkAck { .. } => 19,
            Self::UnitdataInd { .. } => 20,
            Self::UderrorInd { .. } => 21,
            Self::OptmgmtAck { .. } => 22,
            Self::OrdrelInd => 23,
            Self::AddrReq => 24,
            Self::AddrAck { .. } => 25,
        }
    }

    /// The type of the message that carries it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::InfoReq
            | Self::InfoAck(_)
            | Self::BindAck { .. }
            | Self::ErrorAck { .. }
            | Self::OkAck { .. }
            | Self::OptmgmtAck { .. }
            | Self::AddrReq
            | Self::AddrAck { .. } => Kind::PcProto,
            _ => Kind::Proto,
        }
    }

    fn layout(self) -> Layout<'a> {
        let of = Layout::default();
        match self {
            Self::ConnReq { dest: addr, opt }
            | Self::UnitdataReq { dest: addr, opt }
            | Self::ConnCon { res: addr, opt }
            | Self::UnitdataInd { src: addr, opt }
            | Self::AddrAck { local: addr, remote: opt } => of.part(addr).part(opt),
            Self::ConnRes { acceptor, opt, seq } => of.word(acceptor).part(opt).word(seq),
            Self::DisconReq { seq: word } | Self::OkAck { prim: word } => of.word(word),
            Self::DataReq { more }
            | Self::ExdataReq { more }
            | Self::DataInd { more }
            | Self::ExdataInd { more } => of.word(u32::from(more)),
            Self::InfoReq | Self::UnbindReq | Self::OrdrelReq | Self::OrdrelInd | Self::AddrReq => {
                of
            }
            Self::BindReq { addr: part, conind: word }
            | Self::BindAck { addr: part, conind: word }
            | Self::OptmgmtReq { opt: part, flags: word }
            | Self::OptmgmtAck { opt: part, flags: word } => of.part(part).word(word),
            Self::ConnInd { src: addr, opt, seq: word }
            | Self::UderrorInd { dest: addr, opt, error: word } => {
                of.part(addr).part(opt).word(word)
            }
            Self::DisconInd { reason, seq } => of.word(reason).word(seq),
            Self::InfoAck(info) => {
                let sizes = [
                    info.tsdu,
                    info.etsdu,
                    info.connect,
                    info.disconnect,
                    info.address,
                    info.options,
                    info.tidu,
                ];
                let rest = [info.service as u32, info.state as u32, info.flags];
                sizes.into_iter().chain(rest).fold(of, Layout::word)
            }
            Self::ErrorAck { prim, refusal } => {
                of.word(prim).word(refusal.tli.0).word(refusal.unix.0)
            }
        }
    }

    /// A message of one block of its type; `None` if the pool is exhausted, counted.
    pub fn emit(self, blocks: &Blocks) -> Option<Mblk> {
        match self {
            Self::UnitdataReq { dest: addr, opt } | Self::UnitdataInd { src: addr, opt } => {
                super::emit::datagram(blocks, self, (addr, opt))
            }
            _ => self.emit_by_layout(blocks),
        }
    }

    /// As [`emit`](Self::emit), word by word.
    pub(super) fn emit_by_layout(self, blocks: &Blocks) -> Option<Mblk> {
        let (number, kind) = (self.number(), self.kind());
        let layout = self.layout();
        let mut mp = blocks.allocb(layout.octets(), crate::block::Priority::Medium)?;
        mp.set_kind(kind);
        layout.write(number, &mut mp).then_some(mp)
    }

    /// The primitive in the first block of a message.
    ///
    /// # Errors
    /// [`FormatError`].
    #[inline]
    pub fn of(mp: &'a Mblk) -> Result<Self, FormatError> {
        Self::parse(mp.octets())
    }
}
