//! TCP segments as octets, written apart from the protocol under test so that each checks the other
//! (RFC 9293, section 3.1).

use xk_kit::net::checksum::Checksum;

/// A header without options, in octets.
pub const HEADER_LEN: usize = 20;

/// The flags' bits and the letters that scripts write for them.
pub const FLAGS: [(u16, char); 9] = [
    (0x02, 'S'),
    (0x01, 'F'),
    (0x04, 'R'),
    (0x08, 'P'),
    (0x20, 'U'),
    (0x40, 'E'),
    (0x80, 'W'),
    (0x100, 'A'),
    (0x10, '.'),
];
/// The kind of the Fast Open option (RFC 7413, section 4.1.1).
pub const FAST_OPEN: u8 = 34;
/// The segment ends the stream.
pub const FIN: u16 = 0x01;
/// The segment begins a connection.
pub const SYN: u16 = 0x02;
/// The segment breaks the connection.
pub const RST: u16 = 0x04;
/// Push.
pub const PSH: u16 = 0x08;
/// The acknowledgment number counts.
pub const ACK: u16 = 0x10;

/// An option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// Maximum segment size, in octets (RFC 9293, section 3.2).
    Mss(u16),
    /// Window scale, in bits (RFC 7323, section 2.2).
    Scale(u8),
    /// SACK permitted (RFC 2018, section 2).
    SackOk,
    /// Blocks of sequence numbers received (RFC 2018, section 3).
    Sack(Vec<(u32, u32)>),
    /// Timestamp value and echo reply (RFC 7323, section 3.2).
    Times(u32, u32),
    /// User timeout as on the wire: the upper bit counts in minutes (RFC 5482, section 3).
    UserTimeout(u16),
    /// Padding.
    Nop,
    /// End of the list.
    End,
    /// Anything else: all its octets.
    Raw(Vec<u8>),
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// The nine flags.
    pub flags: u16,
    /// The window field, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options in their order.
    pub options: Vec<TcpOption>,
    /// The data.
    pub payload: Vec<u8>,
}

impl Tcp {
    /// Reads a segment; `pseudo` is the sum over addresses and protocol number.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(octets: &[u8], pseudo: u32) -> Result<Self, String> {
        let header: &[u8; HEADER_LEN] =
            octets.first_chunk().ok_or_else(|| format!("{} octets are no header", octets.len()))?;
        if !sum(octets, pseudo).is_valid() {
            return Err("its checksum is wrong".to_owned());
        }
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let length = usize::from(header[12] >> 4) * 4;
        let options = octets
            .get(HEADER_LEN..length)
            .ok_or_else(|| format!("its data offset is {length} octets"))?;
        Ok(Self {
            source: half(0),
            destination: half(2),
            seq: word(4),
            ack: word(8),
            flags: half(12) & 0x1ff,
            window: half(14),
            urgent: half(18),
            options: parse_options(options)?,
            payload: octets[length..].to_vec(),
        })
    }

    /// The segment's octets with a right checksum.
    ///
    /// # Panics
    /// If the options are longer than 40 octets: a script's mistake.
    #[must_use]
    pub fn emit(&self, pseudo: u32) -> Vec<u8> {
        let mut options = Vec::new();
        for option in &self.options {
            option.emit(&mut options);
        }
        options.resize(options.len().next_multiple_of(4), 0);
        assert!(options.len() <= 40, "more than 40 octets of options");
        let length = (HEADER_LEN + options.len()) as u16;
        let mut octets = Vec::with_capacity(usize::from(length) + self.payload.len());
        octets.extend(self.source.to_be_bytes());
        octets.extend(self.destination.to_be_bytes());
        octets.extend(self.seq.to_be_bytes());
        octets.extend(self.ack.to_be_bytes());
        octets.extend(((length / 4) << 12 | self.flags).to_be_bytes());
        octets.extend(self.window.to_be_bytes());
        octets.extend([0, 0]);
        octets.extend(self.urgent.to_be_bytes());
        octets.extend(options);
        octets.extend(&self.payload);
        seal(&mut octets, pseudo);
        octets
    }

    /// Octets of its options, filled up to whole words.
    #[must_use]
    pub fn options_len(&self) -> usize {
        let mut octets = Vec::new();
        self.options.iter().for_each(|option| option.emit(&mut octets));
        octets.len().next_multiple_of(4)
    }

    /// Number of sequence numbers that it takes up.
    #[must_use]
    pub fn span(&self) -> u32 {
        let controls = (self.flags & (SYN | FIN)).count_ones();
        self.payload.len() as u32 + controls
    }
}

/// Puts the right checksum into a segment of at least a header's length; leaves shorter ones alone.
pub fn seal(octets: &mut [u8], pseudo: u32) {
    if let Some(field) = octets.get_mut(16..18) {
        field.fill(0);
        let checksum = sum(octets, pseudo).finish();
        octets[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn sum(octets: &[u8], pseudo: u32) -> Checksum {
    let mut sum = Checksum::new();
    sum.add_u32(pseudo);
    sum.add_u32(octets.len() as u32);
    sum.add(octets);
    sum
}

fn parse_options(mut octets: &[u8]) -> Result<Vec<TcpOption>, String> {
    let mut options = Vec::new();
    while let Some((&kind, rest)) = octets.split_first() {
        if kind == 0 {
            if octets.iter().any(|octet| *octet != 0) {
                return Err("padding behind the end of its options is not 0".to_owned());
            }
            break;
        }
        if kind == 1 {
            options.push(TcpOption::Nop);
            octets = rest;
            continue;
        }
        let length = usize::from(*rest.first().unwrap_or(&0));
        if length < 2 || length > octets.len() {
            return Err(format!("its option {kind} has a length of {length}"));
        }
        let (option, rest) = octets.split_at(length);
        options.push(TcpOption::parse(option));
        octets = rest;
    }
    Ok(options)
}

impl TcpOption {
    fn parse(octets: &[u8]) -> Self {
        let word = |o: &[u8]| u32::from_be_bytes([o[0], o[1], o[2], o[3]]);
        match octets {
            [2, 4, a, b] => Self::Mss(u16::from_be_bytes([*a, *b])),
            [3, 3, shift] => Self::Scale(*shift),
            [4, 2] => Self::SackOk,
            [5, _, blocks @ ..] if !blocks.is_empty() && blocks.len() % 8 == 0 => {
                let block = |o: &[u8]| (word(&o[..4]), word(&o[4..]));
                Self::Sack(blocks.chunks(8).map(block).collect())
            }
            [8, 10, times @ ..] => Self::Times(word(&times[..4]), word(&times[4..])),
            [28, 4, a, b] => Self::UserTimeout(u16::from_be_bytes([*a, *b])),
            _ => Self::Raw(octets.to_vec()),
        }
    }

    fn emit(&self, octets: &mut Vec<u8>) {
        match self {
            Self::Mss(mss) => {
                octets.extend([2, 4]);
                octets.extend(mss.to_be_bytes());
            }
            Self::Scale(shift) => octets.extend([3, 3, *shift]),
            Self::SackOk => octets.extend([4, 2]),
            Self::Sack(blocks) => {
                octets.extend([5, 2 + 8 * blocks.len() as u8]);
                for (start, end) in blocks {
                    octets.extend(start.to_be_bytes());
                    octets.extend(end.to_be_bytes());
                }
            }
            Self::Times(value, echo) => {
                octets.extend([8, 10]);
                octets.extend(value.to_be_bytes());
                octets.extend(echo.to_be_bytes());
            }
            Self::UserTimeout(time) => {
                octets.extend([28, 4]);
                octets.extend(time.to_be_bytes());
            }
            Self::Nop => octets.push(1),
            Self::End => octets.push(0),
            Self::Raw(raw) => octets.extend(raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Tcp {
        Tcp {
            source: 7000,
            destination: 5000,
            seq: 0xffff_fff0,
            ack: 77,
            flags: SYN | ACK,
            window: 512,
            urgent: 3,
            options: vec![
                TcpOption::Mss(1460),
                TcpOption::SackOk,
                TcpOption::Times(1, 2),
                TcpOption::Nop,
                TcpOption::Scale(7),
                TcpOption::Sack(vec![(5, 9)]),
                TcpOption::UserTimeout(0x8002),
                TcpOption::Raw(vec![254, 3, 9]),
            ],
            payload: b"octets".to_vec(),
        }
    }

    #[test]
    fn a_segment_comes_back_as_it_was() {
        let octets = segment().emit(12345);
        assert_eq!(Tcp::parse(&octets, 12345), Ok(segment()));
        assert_eq!(segment().span(), 7);
    }

    #[test]
    fn damage_is_an_error_and_nothing_panics() {
        let good = segment().emit(12345);
        for length in 0..good.len() {
            let mut short = good[..length].to_vec();
            assert!(Tcp::parse(&short, 12345).is_err(), "cut at {length}");
            seal(&mut short, 12345);
            let _ = Tcp::parse(&short, 12345);
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert!(Tcp::parse(&bad, 12345).is_err(), "octet {at} turned");
            seal(&mut bad, 12345);
            let _ = Tcp::parse(&bad, 12345);
        }
    }
}
