//! What an unmodified program under `xk exec` says to the stack, in words.
//!
//! The stack runs in the process `xk exec`, and every process below it speaks to it over a sequenced-packet socket in the abstract
//! name space (unix(7)): one connection for each request, so threads and forks need no care. Streams themselves are real
//! stream sockets between the program and that process, whose *names* carry the addresses of both ends; so reading, writing,
//! polling, duplicating and inheriting them is the system's own business.
//!
//! A request is a line of words, and so is the answer; see [`Request`] and [`Reply`].

use std::fmt;
use std::net::SocketAddrV4;
use std::str::FromStr;

/// The variable of the environment that holds the token of the stack.
pub const VARIABLE: &str = "XK_EXEC";
/// Octets of one request or answer at most.
pub const WORDS_MAX: usize = 512;
/// Octets that a stream is stuffed with while it is being connected, so that it is not ready to be written.
pub const STUFFING_MAX: usize = 1 << 20;

/// The abstract name of the stack's control socket, without the zero octet in front.
pub fn control_name(token: &str) -> String {
    format!("xk/{token}")
}

/// The family of addresses that the program uses: those of version 6 are mapped ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

/// The abstract name of one socket: which it is, and the addresses of its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The token of the stack.
    pub token: String,
    /// The socket's number in it.
    pub id: u64,
    /// What the program takes addresses for.
    pub family: Family,
    /// Our end.
    pub local: SocketAddrV4,
    /// The other end, unless the socket listens.
    pub peer: Option<SocketAddrV4>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Take a local address, and pass on who connects there. Answered by [`Reply::Named`]: the name to bind and to listen at.
    Bind(Family, SocketAddrV4),
    /// Connect to a peer, from a bound socket if there is one, and join the stream with whoever listens at the name. Answered by
    /// [`Reply::Named`] when that is done; the stream may still be in the making.
    Connect(Family, Option<u64>, SocketAddrV4, String),
    /// The stream's writer has been stuffed with so many octets that nobody is to see. No answer.
    Stuffed(u64, usize),
    /// How a stream stands: [`Reply::Errno`], zero if it is connected and `EINPROGRESS` if it is in the making; told once. If true,
    /// the answer waits until that is known. Of a bound socket: the program has taken its name.
    Status(u64, bool),
    /// Send small segments at once, or not.
    NoDelay(u64, bool),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The address is none of this stack's: Linux is to be asked.
    Outside,
    /// It failed with this number; zero is success.
    Errno(i32),
    /// It is done; this is the socket's name.
    Named(String),
}

/// Words that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSense;

impl fmt::Display for NoSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("words that mean nothing")
    }
}

impl std::error::Error for NoSense {}

fn word<T: FromStr>(words: &mut dyn Iterator<Item = &str>) -> Result<T, NoSense> {
    words.next().and_then(|w| w.parse().ok()).ok_or(NoSense)
}

/// A word that may be `-` for none.
fn maybe<T: FromStr>(words: &mut dyn Iterator<Item = &str>) -> Result<Option<T>, NoSense> {
    match words.next() {
        Some("-") => Ok(None),
        Some(word) => word.parse().map(Some).map_err(|_| NoSense),
        None => Err(NoSense),
    }
}

fn or_none<T: fmt::Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".into(), T::to_string)
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "4",
            Self::V6 => "6",
        })
    }
}

impl FromStr for Family {
    type Err = NoSense;

    fn from_str(word: &str) -> Result<Self, NoSense> {
        match word {
            "4" => Ok(Self::V4),
            "6" => Ok(Self::V6),
            _ => Err(NoSense),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            token,
            id,
            family,
            local,
            peer,
        } = self;
        let peer = or_none(peer.as_ref());
        write!(f, "xk/{token}/{id}/{family}/{local}/{peer}")
    }
}

impl FromStr for Name {
    type Err = NoSense;

    fn from_str(text: &str) -> Result<Self, NoSense> {
        let mut words = text.split('/');
        if words.next() != Some("xk") {
            return Err(NoSense);
        }
        Ok(Self {
            token: word(&mut words)?,
            id: word(&mut words)?,
            family: word(&mut words)?,
            local: word(&mut words)?,
            peer: maybe(&mut words)?,
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(family, local) => write!(f, "bind {family} {local}"),
            Self::Connect(family, bound, peer, name) => {
                let bound = or_none(bound.as_ref());
                write!(f, "connect {family} {bound} {peer} {name}")
            }
            Self::Stuffed(id, octets) => write!(f, "stuffed {id} {octets}"),
            Self::Status(id, waits) => write!(f, "status {id} {waits}"),
            Self::NoDelay(id, on) => write!(f, "nodelay {id} {on}"),
        }
    }
}

impl FromStr for Request {
    type Err = NoSense;

    fn from_str(text: &str) -> Result<Self, NoSense> {
        let mut words = text.split(' ');
        let words: &mut dyn Iterator<Item = &str> = &mut words;
        Ok(match words.next() {
            Some("bind") => Self::Bind(word(words)?, word(words)?),
            Some("connect") => {
                Self::Connect(word(words)?, maybe(words)?, word(words)?, word(words)?)
            }
            Some("stuffed") => Self::Stuffed(word(words)?, word(words)?),
            Some("status") => Self::Status(word(words)?, word(words)?),
            Some("nodelay") => Self::NoDelay(word(words)?, word(words)?),
            _ => return Err(NoSense),
        })
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside => f.write_str("outside"),
            Self::Errno(number) => write!(f, "errno {number}"),
            Self::Named(name) => write!(f, "named {name}"),
        }
    }
}

impl FromStr for Reply {
    type Err = NoSense;

    fn from_str(text: &str) -> Result<Self, NoSense> {
        let mut words = text.split(' ');
        Ok(match words.next() {
            Some("outside") => Self::Outside,
            Some("errno") => Self::Errno(word(&mut words)?),
            Some("named") => Self::Named(word(&mut words)?),
            _ => return Err(NoSense),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let at: SocketAddrV4 = "10.0.0.1:80".parse().unwrap();
        let requests = [
            Request::Bind(Family::V6, at),
            Request::Connect(Family::V4, Some(7), at, "xk.1.2".into()),
            Request::Connect(Family::V4, None, at, "00af3".into()),
            Request::Stuffed(3, 65_536),
            Request::Status(3, true),
            Request::NoDelay(3, false),
        ];
        for request in requests {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        for peer in [None, Some("10.0.0.2:65535".parse().unwrap())] {
            let name = Name {
                token: "0123456789abcdef".into(),
                id: u64::MAX,
                family: Family::V4,
                local: at,
                peer,
            };
            let text = name.to_string();
            assert!(text.len() < 107, "it fits a socket's name");
            assert_eq!(text.parse(), Ok(name.clone()));
            let reply = Reply::Named(text);
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
        assert_eq!("outside".parse(), Ok(Reply::Outside));
        assert_eq!("errno 111".parse(), Ok(Reply::Errno(111)));
    }

    #[test]
    fn anything_else_means_nothing() {
        for text in [
            "",
            "bind",
            "bind 5 1.2.3.4:5",
            "status x true",
            "connect 4 - 1.2.3.4:80",
        ] {
            assert_eq!(text.parse::<Request>(), Err(NoSense), "{text}");
        }
        for text in ["", "xk", "xk/a/b", "other/a/1/4/1.2.3.4:5/-"] {
            assert_eq!(text.parse::<Name>(), Err(NoSense), "{text}");
        }
        assert_eq!("errno".parse::<Reply>(), Err(NoSense));
    }
}
