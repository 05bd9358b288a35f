//! The options of a header: what they say, read and written (RFC 9293, section 3.2; RFC 7323; RFC
//! 2018; RFC 5482; RFC 7413; RFC 9768).

use crate::seq::Seq;
use crate::wire::OPTIONS_LEN_MAX;
use core::fmt;
use xk_core::fields;

/// The largest shift of a window (RFC 7323, section 2.3).
pub const SHIFT_MAX: u8 = 14;
/// Blocks that one option holds at most.
pub const BLOCKS_MAX: usize = 4;

/// The kinds (IANA's registry of TCP option kinds).
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOTHING: u8 = 1;
    pub(super) const SEGMENT_MAX: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const USER_TIMEOUT: u8 = 28;
    pub(super) const FAST_OPEN: u8 = 34;
    pub(super) const TALLIES: u8 = 172;
    pub(super) const TALLIES_REVERSED: u8 = 174;
}

/// The timestamps option (RFC 7323, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The receiver's clock, as the sender saw it last; means something only with an
    /// acknowledgement.
    pub echo: u32,
}

impl Timestamps {
    /// Writes the option to the start of `octets`, laid out as usual; answers how many octets it
    /// takes.
    #[inline]
    fn emit(self, octets: &mut [u8]) -> usize {
        let Some(place) = octets.first_chunk_mut::<TIMESTAMPS_LEN>() else {
            return 0;
        };
        place[..4].copy_from_slice(&ALIGNED_TIMESTAMPS.to_be_bytes());
        place[4..8].copy_from_slice(&self.value.to_be_bytes());
        place[8..].copy_from_slice(&self.echo.to_be_bytes());
        TIMESTAMPS_LEN
    }
}

/// Octets that have arrived: from the first up to, without, the second.
pub type Block = (Seq, Seq);

/// The blocks of a SACK option (RFC 2018, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocks {
    blocks: [Block; BLOCKS_MAX],
    count: u8,
}

impl Blocks {
    /// No block.
    pub const NONE: Blocks = Blocks { blocks: [(Seq(0), Seq(0)); BLOCKS_MAX], count: 0 };

    /// The blocks.
    #[inline]
    pub fn as_slice(&self) -> &[Block] {
        self.blocks.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Adds a block; false if there is no room.
    pub fn push(&mut self, block: Block) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.count)) else {
            return false;
        };
        *place = block;
        self.count += 1;
        true
    }

    /// Keeps the first `max`.
    pub fn truncate(&mut self, max: usize) {
        self.count = self.count.min(u8::try_from(max).unwrap_or(u8::MAX));
        let kept = usize::from(self.count);
        // What is cut off must not tell two equal ones apart.
        self.blocks[kept..].fill((Seq(0), Seq(0)));
    }
}

/// The content of a Fast Open option: a server's cookie, or nothing, by which a client asks for one
/// (RFC 7413, section 4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    octets: [u8; Cookie::OCTETS_MAX],
    length: u8,
}

fields!(Cookie { octets, length });

impl Cookie {
    /// Octets of the longest cookie.
    pub const OCTETS_MAX: usize = 16;
    /// None: a client asks for one.
    pub const REQUEST: Cookie = Cookie { octets: [0; Self::OCTETS_MAX], length: 0 };

    /// The cookie of these octets, or the request that none are; `None` for a length that no cookie
    /// has.
    #[must_use]
    pub fn of(octets: &[u8]) -> Option<Self> {
        if !matches!(octets.len(), 0 | 4..=Self::OCTETS_MAX) || !octets.len().is_multiple_of(2) {
            return None;
        }
        let mut cookie = Self { length: octets.len() as u8, ..Self::REQUEST };
        cookie.octets[..octets.len()].copy_from_slice(octets);
        Some(cookie)
    }

    /// The octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.octets.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Whether it asks for a cookie.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.length == 0
    }
}

/// The content of an option that counts octets by the marks of the packets that brought them (RFC
/// 9768, section 3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tallies {
    /// The fields in the order of the option, the absent ones 0.
    fields: [u32; 3],
    count: u8,
    /// ECT(1) comes first and ECT(0) last.
    is_reversed: bool,
}

impl Tallies {
    /// The numbers that a field can hold.
    pub const FIELD_VALUES: u32 = 1 << 24;

    /// Counts of ECT(0), CE and ECT(1), modulo [`FIELD_VALUES`](Self::FIELD_VALUES): the first
    /// `count` of them, or, reversed, the last.
    #[must_use]
    pub fn new(mut octets: [u32; 3], count: usize, is_reversed: bool) -> Self {
        if is_reversed {
            octets.reverse();
        }
        let count = count.min(octets.len());
        let mut fields = [0; 3];
        for (field, octets) in fields.iter_mut().zip(octets).take(count) {
            *field = octets % Self::FIELD_VALUES;
        }
        Self { fields, count: count as u8, is_reversed }
    }

    /// Octets of an option of so many fields, filled up to a multiple of four.
    #[must_use]
    pub const fn length(count: usize) -> usize {
        (2 + 3 * count).next_multiple_of(4)
    }

    /// Returns how many fields there is room for behind other options that leave so many octets;
    /// `None` if the option does not fit at all.
    #[must_use]
    pub fn fitting(room: usize) -> Option<usize> {
        (0..=3).rev().find(|count| Self::length(*count) <= room)
    }

    /// Returns the counts of ECT(0), CE and ECT(1), those that are told.
    #[must_use]
    pub fn get(&self) -> [Option<u32>; 3] {
        let at = |at: usize| (at < self.count.into()).then_some(self.fields[at]);
        let mut told = [at(0), at(1), at(2)];
        if self.is_reversed {
            told.reverse();
        }
        told
    }

    /// Reads a body: of any length the whole fields count (RFC 9768, section 3.2.3).
    fn parse(body: &[u8], is_reversed: bool) -> Self {
        let mut tallies = Self { is_reversed, ..Self::default() };
        for (field, [a, b, c]) in tallies.fields.iter_mut().zip(body.as_chunks().0) {
            *field = u32::from_be_bytes([0, *a, *b, *c]);
            tallies.count += 1;
        }
        tallies
    }
}

/// Options of a header. Unknown ones are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// The largest segment that the sender takes, in octets of data; on a SYN.
    pub segment_max: Option<u16>,
    /// The shift of the windows that the sender announces, at most [`SHIFT_MAX`]; on a SYN.
    pub window_scale: Option<u8>,
    /// The sender understands SACK; on a SYN.
    pub sack_permitted: bool,
    /// The timestamps.
    pub timestamps: Option<Timestamps>,
    /// Blocks that have arrived out of order.
    pub sack: Blocks,
    /// The sender's user timeout (RFC 5482), as in the field: the highest bit says minutes instead
    /// of seconds.
    pub user_timeout: Option<u16>,
    /// The cookie of a Fast Open, or the request for one; on a SYN.
    pub fast_open: Option<Cookie>,
    /// The counts of octets that came, by marks.
    pub tallies: Option<Tallies>,
}

/// No-operation twice, kind and length of the timestamps: how nearly every sender lays them out
/// (RFC 7323, appendix A).
pub(crate) const ALIGNED_TIMESTAMPS: u32 =
    u32::from_be_bytes([kind::NOTHING, kind::NOTHING, kind::TIMESTAMPS, 10]);
/// Octets of the option so laid out.
pub(crate) const TIMESTAMPS_LEN: usize = 12;

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|c| u32::from_be_bytes(*c))
}

impl Options {
    /// None at all.
    pub const NONE: Options = Options {
        segment_max: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        sack: Blocks::NONE,
        user_timeout: None,
        fast_open: None,
        tallies: None,
    };

    /// Reads the options of a header; `None` if one contradicts the length of all. A known option
    /// of a wrong length is skipped as an unknown one would be.
    #[inline]
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut options = Self::NONE;
        if octets.is_empty() {
            return Some(options);
        }
        if octets.len() == TIMESTAMPS_LEN && u32_at(octets, 0) == Some(ALIGNED_TIMESTAMPS) {
            let (value, echo) = (u32_at(octets, 4)?, u32_at(octets, 8)?);
            options.timestamps = Some(Timestamps { value, echo });
            return Some(options);
        }
        options.read(octets)?;
        Some(options)
    }

    fn read(&mut self, octets: &[u8]) -> Option<()> {
        let mut rest = octets;
        loop {
            match *rest {
                [] | [kind::END, ..] => return Some(()),
                [kind::NOTHING, ref behind @ ..] => rest = behind,
                [kind, length, ..] => {
                    let body = rest.get(2..usize::from(length))?;
                    self.read_one(kind, body);
                    rest = rest.get(usize::from(length)..)?;
                }
                [_] => return None,
            }
        }
    }

    fn read_one(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (kind::SEGMENT_MAX, &[a, b]) => self.segment_max = Some(u16::from_be_bytes([a, b])),
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(SHIFT_MAX)),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::TIMESTAMPS, body) if body.len() == 8 => {
                if let (Some(value), Some(echo)) = (u32_at(body, 0), u32_at(body, 4)) {
                    self.timestamps = Some(Timestamps { value, echo });
                }
            }
            (kind::SACK, body) if body.len() % 8 == 0 => {
                self.sack = Blocks::NONE;
                for at in (0..body.len()).step_by(8) {
                    if let (Some(from), Some(to)) = (u32_at(body, at), u32_at(body, at + 4)) {
                        self.sack.push((Seq(from), Seq(to)));
                    }
                }
            }
            (kind::USER_TIMEOUT, &[a, b]) => self.user_timeout = Some(u16::from_be_bytes([a, b])),
            (kind::FAST_OPEN, body) => self.fast_open = Cookie::of(body),
            (kind::TALLIES, body) => self.tallies = Some(Tallies::parse(body, false)),
            (kind::TALLIES_REVERSED, body) => self.tallies = Some(Tallies::parse(body, true)),
            _ => {}
        }
    }

    /// Writes the options to the start of `octets`, filled up to a multiple of four; answers how
    /// many octets they take. Of the SACK blocks as many are written as find room.
    #[inline]
    pub fn emit(&self, octets: &mut [u8]) -> usize {
        if let Some(timestamps) = self.only_timestamps() {
            return timestamps.emit(octets);
        }
        let mut out = Writer { octets, at: 0 };
        if let Some(octets) = self.segment_max {
            let [a, b] = octets.to_be_bytes();
            out.put(&[kind::SEGMENT_MAX, 4, a, b]);
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            let [a, b, c, d] = value.to_be_bytes();
            let [e, f, g, h] = echo.to_be_bytes();
            // The two octets in front are those of the SACK option where both are on a SYN.
            let front =
                if self.sack_permitted { [kind::SACK_PERMITTED, 2] } else { [kind::NOTHING; 2] };
            out.put(&front);
            out.put(&[kind::TIMESTAMPS, 10, a, b, c, d, e, f, g, h]);
        } else if self.sack_permitted {
            out.put(&[kind::NOTHING, kind::NOTHING, kind::SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put(&[kind::NOTHING, kind::WINDOW_SCALE, 3, shift]);
        }
        if let Some(cookie) = &self.fast_open {
            out.put_cookie(cookie.as_slice());
        }
        if let Some(timeout) = self.user_timeout {
            let [a, b] = timeout.to_be_bytes();
            out.put(&[kind::USER_TIMEOUT, 4, a, b]);
        }
        let room = OPTIONS_LEN_MAX.min(out.octets.len()) - out.at;
        let blocks = self.sack.as_slice();
        let count = blocks.len().min(room.saturating_sub(4) / 8);
        if let (Some(blocks), 1..) = (blocks.get(..count), count) {
            let length = (2 + 8 * count) as u8;
            out.put(&[kind::NOTHING, kind::NOTHING, kind::SACK, length]);
            for (from, to) in blocks {
                out.put(&from.0.to_be_bytes());
                out.put(&to.0.to_be_bytes());
            }
        }
        if let Some(tallies) = &self.tallies {
            out.put_tallies(tallies);
        }
        out.at
    }

    /// The timestamps, if there is nothing else.
    #[inline]
    pub(crate) fn only_timestamps(&self) -> Option<&Timestamps> {
        let is_else = self.segment_max.is_some()
            || self.window_scale.is_some()
            || self.sack_permitted
            || self.sack.count > 0
            || self.user_timeout.is_some()
            || self.fast_open.is_some()
            || self.tallies.is_some();
        self.timestamps.as_ref().filter(|_| !is_else)
    }

    /// Octets that [`emit`](Self::emit) writes.
    pub fn length(&self) -> usize {
        self.emit(&mut [0; OPTIONS_LEN_MAX])
    }

    /// Octets that are left behind these.
    #[must_use]
    pub fn room(&self) -> usize {
        OPTIONS_LEN_MAX - self.length()
    }
}

struct Writer<'a> {
    octets: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    /// Puts an option's octets behind the others; leaves it out if there is no room.
    #[inline]
    fn put(&mut self, octets: &[u8]) {
        if let Some(place) = self.octets.get_mut(self.at..self.at + octets.len()) {
            place.copy_from_slice(octets);
            self.at += octets.len();
        }
    }

    /// Puts counts of octets behind the others, filled up to a multiple of four in front.
    fn put_tallies(&mut self, tallies: &Tallies) {
        let count = usize::from(tallies.count);
        let (length, filled) = (2 + 3 * count, Tallies::length(count));
        let kind = if tallies.is_reversed { kind::TALLIES_REVERSED } else { kind::TALLIES };
        let mut option = [kind::NOTHING; Tallies::length(3)];
        let at = filled - length;
        option[at..at + 2].copy_from_slice(&[kind, length as u8]);
        for (place, field) in
            option[at + 2..filled].as_chunks_mut().0.iter_mut().zip(tallies.fields)
        {
            let [_, octets @ ..] = field.to_be_bytes();
            *place = octets;
        }
        self.put(&option[..filled]);
    }

    /// Puts a Fast Open option behind the others, filled up to a multiple of four in front.
    fn put_cookie(&mut self, cookie: &[u8]) {
        let (length, filled) = (2 + cookie.len(), (2 + cookie.len()).next_multiple_of(4));
        let mut option = [kind::NOTHING; 2 + 2 + Cookie::OCTETS_MAX];
        let at = filled - length;
        option[at..at + 2].copy_from_slice(&[kind::FAST_OPEN, length as u8]);
        option[at + 2..filled].copy_from_slice(cookie);
        self.put(&option[..filled]);
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(octets) = self.segment_max {
            write!(f, ", mss {octets}")?;
        }
        if let Some(shift) = self.window_scale {
            write!(f, ", wscale {shift}")?;
        }
        if self.sack_permitted {
            f.write_str(", sackOK")?;
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            write!(f, ", ts {value} {echo}")?;
        }
        if let Some(timeout) = self.user_timeout {
            write!(f, ", uto {timeout}")?;
        }
        if let Some(cookie) = &self.fast_open {
            f.write_str(", tfo ")?;
            cookie.as_slice().iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        }
        for (name, count) in
            ["e0b", "ceb", "e1b"].iter().zip(self.tallies.unwrap_or_default().get())
        {
            if let Some(count) = count {
                write!(f, ", {name} {count}")?;
            }
        }
        for (from, to) in self.sack.as_slice() {
            write!(f, ", sack {from}-{to}")?;
        }
        Ok(())
    }
}
