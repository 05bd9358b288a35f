//! The header (Inside AppleTalk, chapter 9, "ATP packet format").

use core::fmt;
use core::time::Duration;

/// Octets of the header.
pub const HEADER_OCTETS: usize = 8;
/// Octets of data in a packet, at most.
pub const DATA_OCTETS_MAX: usize = 578;
/// Responses to one request, at most.
pub const RESPONSES_MAX: usize = 8;
/// Octets of a reply in as many responses as there may be.
pub const REPLY_OCTETS_MAX: usize = RESPONSES_MAX * DATA_OCTETS_MAX;

const EXACTLY_ONCE: u8 = 0x20;
const END_OF_MESSAGE: u8 = 0x10;
const SEND_STATUS: u8 = 0x08;
const TIMER: u8 = 0x07;

/// Kind of a packet: the upper two bits of the control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TReq.
    Request,
    /// TResp.
    Response,
    /// TRel.
    Release,
}

/// Time for which a responder remembers an exactly-once transaction of which it hears nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReleaseTimer {
    /// 30 s.
    #[default]
    HalfMinute,
    /// 1 min.
    OneMinute,
    /// 2 min.
    TwoMinutes,
    /// 4 min.
    FourMinutes,
    /// 8 min.
    EightMinutes,
}

impl ReleaseTimer {
    /// By the three bits of the header; those above 4 are reserved and taken for 30 s, which is
    /// what responders of before the field existed use.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & TIMER {
            1 => Self::OneMinute,
            2 => Self::TwoMinutes,
            3 => Self::FourMinutes,
            4 => Self::EightMinutes,
            _ => Self::HalfMinute,
        }
    }

    /// The three bits of the header.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Length of the time.
    #[must_use]
    pub const fn time(self) -> Duration {
        match self {
            Self::HalfMinute => Duration::from_secs(30),
            Self::OneMinute => Duration::from_secs(60),
            Self::TwoMinutes => Duration::from_secs(120),
            Self::FourMinutes => Duration::from_secs(240),
            Self::EightMinutes => Duration::from_secs(480),
        }
    }

    /// The shortest that lasts so long; the longest there is beyond that.
    #[must_use]
    pub fn at_least(time: Duration) -> Self {
        let all = [Self::HalfMinute, Self::OneMinute, Self::TwoMinutes, Self::FourMinutes];
        all.into_iter().find(|timer| timer.time() >= time).unwrap_or(Self::EightMinutes)
    }
}

/// The header. Bits that mean nothing in a packet of its kind are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub kind: Kind,
    /// XO.
    pub exactly_once: bool,
    /// EOM: the last response.
    pub end_of_message: bool,
    /// STS: the responder asks for the request once more, at once.
    pub send_status: bool,
    /// The three low bits, the release timer of an exactly-once request.
    pub timer_bits: u8,
    /// Bitmap of the wanted responses in a request; sequence number, 0 to 7, in a response.
    pub number: u8,
    /// The transaction.
    pub tid: u16,
    /// The octets that are the user's.
    pub user: [u8; 4],
}

/// Why octets are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer octets than a header has.
    #[error("the header is cut short")]
    Truncated,
    /// A function code that means nothing.
    #[error("no request, response or release")]
    Function,
    /// A response beyond the eighth.
    #[error("sequence number {0} above 7")]
    Sequence(u8),
}

impl Header {
    /// A header of this kind, without flags.
    #[must_use]
    pub const fn new(kind: Kind, number: u8, tid: u16, user: [u8; 4]) -> Self {
        Self {
            kind,
            exactly_once: false,
            end_of_message: false,
            send_status: false,
            timer_bits: 0,
            number,
            tid,
            user,
        }
    }

    /// A request for these responses; exactly once if there is a release timer.
    #[must_use]
    pub const fn request(once: Option<ReleaseTimer>, bitmap: u8, tid: u16, user: [u8; 4]) -> Self {
        let mut header = Self::new(Kind::Request, bitmap, tid, user);
        if let Some(timer) = once {
            header.exactly_once = true;
            header.timer_bits = timer.bits();
        }
        header
    }

    /// Reads the header in front of a packet.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn parse(octets: &[u8]) -> Result<Self, HeaderError> {
        let octets: &[u8; HEADER_OCTETS] = octets.first_chunk().ok_or(HeaderError::Truncated)?;
        let [control, number, t0, t1, u0, u1, u2, u3] = *octets;
        let kind = match control >> 6 {
            1 => Kind::Request,
            2 => Kind::Response,
            3 => Kind::Release,
            _ => return Err(HeaderError::Function),
        };
        if kind == Kind::Response && usize::from(number) >= RESPONSES_MAX {
            return Err(HeaderError::Sequence(number));
        }
        Ok(Self {
            kind,
            exactly_once: control & EXACTLY_ONCE != 0,
            end_of_message: control & END_OF_MESSAGE != 0,
            send_status: control & SEND_STATUS != 0,
            timer_bits: control & TIMER,
            number,
            tid: u16::from_be_bytes([t0, t1]),
            user: [u0, u1, u2, u3],
        })
    }

    /// Writes it.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_OCTETS] {
        let kind = match self.kind {
            Kind::Request => 0x40,
            Kind::Response => 0x80,
            Kind::Release => 0xc0,
        };
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        let control = kind
            | flag(self.exactly_once, EXACTLY_ONCE)
            | flag(self.end_of_message, END_OF_MESSAGE)
            | flag(self.send_status, SEND_STATUS)
            | self.timer_bits & TIMER;
        let [t0, t1] = self.tid.to_be_bytes();
        let [u0, u1, u2, u3] = self.user;
        [control, self.number, t0, t1, u0, u1, u2, u3]
    }

    /// The release timer of an exactly-once request; `None` of one that is executed at least once.
    #[must_use]
    pub fn once(&self) -> Option<ReleaseTimer> {
        self.exactly_once.then(|| ReleaseTimer::from_bits(self.timer_bits))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |is: bool, text| if is { text } else { "" };
        let (name, what) = match self.kind {
            Kind::Request => ("TReq", " bitmap "),
            Kind::Response => ("TResp", " sequence "),
            Kind::Release => ("TRel", " "),
        };
        write!(f, "{name} {:04x}{what}{:02x}", self.tid, self.number)?;
        f.write_str(flag(self.exactly_once, " XO"))?;
        f.write_str(flag(self.end_of_message, " EOM"))?;
        f.write_str(flag(self.send_status, " STS"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    /// Packets of netatalk's atalkd, papd and afpd, and of the sheet, without what lies below.
    const REAL: &[(&[u8], &str)] = &[
        (&[0x40, 0x01, 0x12, 0x34, 8, 0, 0, 1], "TReq 1234 bitmap 01"),
        (&[0x90, 0x00, 0x12, 0x34, 1, 0, 0, 1, 2, b'X', b'K'], "TResp 1234 sequence 00 EOM"),
        (&[0x60, 0x01, 2, 2, 7, 1, 0, 0, 0x8d, 8, 0, 0], "TReq 0202 bitmap 01 XO"),
        (&[0x90, 0x00, 2, 2, 7, 2, 0, 0, 0x83, 8, 0, 0], "TResp 0202 sequence 00 EOM"),
        (&[0x60, 0xff, 0x75, 0xc9, 7, 3, 0, 1], "TReq 75c9 bitmap ff XO"),
        (&[0x60, 0x01, 3, 2, 4, 0x8e, 1, 0], "TReq 0302 bitmap 01 XO"),
        (&[0x90, 0x00, 3, 2, 0x84, 0, 0, 0], "TResp 0302 sequence 00 EOM"),
        (&[0x60, 0x07, 0x12, 0x34, 0, 0, 0, 1, b'h', b'e'], "TReq 1234 bitmap 07 XO"),
        (&[0x90, 0x02, 0x12, 0x34, 0, 0, 0, 0, b'b', b'y'], "TResp 1234 sequence 02 EOM"),
        (&[0xc0, 0x00, 0x12, 0x34, 0, 0, 0, 0], "TRel 1234 00"),
    ];

    #[test]
    fn real_packets_are_read_and_made_again_octet_by_octet() {
        for (octets, text) in REAL {
            let header = Header::parse(octets).unwrap();
            assert_eq!(header.to_string(), *text);
            assert_eq!(header.emit(), octets[..HEADER_OCTETS]);
            for len in 0..HEADER_OCTETS {
                assert_eq!(Header::parse(&octets[..len]), Err(HeaderError::Truncated));
            }
        }
        assert_eq!(Header::parse(&[0x20; 8]), Err(HeaderError::Function));
        assert_eq!(Header::parse(&[0x80, 8, 0, 0, 0, 0, 0, 0]), Err(HeaderError::Sequence(8)));
    }

    #[test]
    fn release_timers_have_the_books_values() {
        let seconds = [30, 60, 120, 240, 480, 30, 30, 30];
        for (bits, seconds) in seconds.into_iter().enumerate() {
            let timer = ReleaseTimer::from_bits(bits as u8);
            assert_eq!(timer.time(), Duration::from_secs(seconds));
            assert_eq!(ReleaseTimer::at_least(timer.time()), timer);
        }
        assert_eq!(ReleaseTimer::at_least(Duration::ZERO), ReleaseTimer::HalfMinute);
        assert_eq!(ReleaseTimer::at_least(Duration::MAX), ReleaseTimer::EightMinutes);
    }

    proptest! {
        #[test]
        fn what_is_read_is_made_again(octets: [u8; 8]) {
            if let Ok(header) = Header::parse(&octets) {
                prop_assert_eq!(header.emit(), octets);
            }
        }
    }
}
