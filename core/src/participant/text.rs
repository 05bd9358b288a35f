//! The text form of participants: parse and print.

use super::{HostAddr, Label, PARTICIPANTS_MAX, PARTS_MAX, Part, Participant, Participants};
use core::fmt;
use core::net::{Ipv4Addr, SocketAddr};
use core::str::FromStr;

/// Text that is no participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// An identifier is empty: `port7@@10.0.0.1`.
    #[error("an address is empty")]
    Empty,
    /// An identifier has none of the forms `*`, `port7`, `10.0.0.2`, `02:00:00:00:00:01`,
    /// `[fe80::1]`.
    #[error("expected `*`, a labelled number such as `port7`, or a host or hardware address")]
    Form,
    /// A host and a port as sockets have them: `10.0.0.1:7`, `[fe80::1]:7`.
    #[error("write `port{}@{}`: the port comes first", .0.port(), Part::host(.0.ip()))]
    Socket(SocketAddr),
    /// More identifiers or participants than the bounds allow.
    #[error("too many addresses")]
    TooMany,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Any => f.write_str("*"),
            Part::Number(label, n) => write!(f, "{}{n}", label.as_str()),
            Part::Ether([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Part::Host(h) if h.to_v4().is_none() => write!(f, "[{h}]"),
            Part::Host(h) => h.fmt(f),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn parse_ether(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut pieces = text.split(':');
    for octet in &mut octets {
        let piece = pieces.next()?;
        if piece.len() != 2 || !piece.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *octet = u8::from_str_radix(piece, 16).ok()?;
    }
    pieces.next().is_none().then_some(octets)
}

fn parse_number(text: &str) -> Option<Part> {
    let digits = text.find(|c: char| c.is_ascii_digit())?;
    let (label, digits) = text.split_at_checked(digits)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Part::Number(Label::parse(label)?, digits.parse().ok()?))
}

impl FromStr for Part {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Empty);
        }
        if text == "*" {
            return Ok(Part::Any);
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let host: Option<HostAddr> = inner.parse().ok();
            let host = host.filter(|_| inner.contains(':'));
            return host.map(Part::Host).ok_or(ParseError::Form);
        }
        if let Ok(host) = text.parse::<Ipv4Addr>() {
            return Ok(Part::host(host));
        }
        parse_ether(text)
            .map(Part::Ether)
            .or_else(|| parse_number(text))
            .ok_or_else(|| text.parse().map_or(ParseError::Form, ParseError::Socket))
    }
}

impl fmt::Display for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts().enumerate() {
            if i > 0 {
                f.write_str("@")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Participant {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut participant = Participant::new();
        if text.is_empty() {
            return Ok(participant);
        }
        for piece in text.rsplit('@') {
            if participant.len() == PARTS_MAX {
                return Err(ParseError::TooMany);
            }
            participant.push(piece.parse()?);
        }
        Ok(participant)
    }
}

impl fmt::Display for Participants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, participant) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            participant.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Participants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Participants {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut set = Participants::default();
        for piece in pieces(text) {
            if set.len() == PARTICIPANTS_MAX {
                return Err(ParseError::TooMany);
            }
            set.push(piece.parse()?);
        }
        Ok(set)
    }
}

/// The texts of the participants of a list, each a part of `text`.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}
