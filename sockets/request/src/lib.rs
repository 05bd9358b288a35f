//! What an unmodified program under `xk exec` says to the stack, in words.
//!
//! The stack runs in a process of `xk exec`. Every process of the program speaks to it over a
//! sequenced-packet socket (unix(7)) in a directory that strangers cannot search: one connection
//! for each request, so threads and forks need no care. What is bound or connected is answered with
//! a descriptor (`SCM_RIGHTS`): a socket of the system whose *name* carries the addresses of its
//! ends; so reading, writing, polling, duplicating and inheriting it is the system's own business.
//! A name is never a way to a socket: the relay removes it from the directory before the socket can
//! be connected to. The exceptions are stand-ins, the relay's sockets for each peer of a socket for
//! datagrams, which the program sends to at [`Ticket::stand_in`].
//!
//! A request is a line of words, and so is the answer; see [`Request`] and [`Reply`].

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

/// The variable of the environment that holds the [`Ticket`] of the stack.
pub const VARIABLE: &str = "XK_EXEC";
/// Octets of one request or answer at most.
pub const WORDS_MAX: usize = 2048;
/// Octets of an option's value at most.
pub const VALUE_OCTETS_MAX: usize = 512;
/// The longest path of a stack's directory, in octets: the longest name in it still fits `sun_path`
/// (unix(7)).
pub const FOLDER_OCTETS_MAX: usize = 64;
/// How many peers may wait to be accepted at most, whatever a program says (Linux's `somaxconn`).
const BACKLOG_MAX: u32 = 4096;
/// What the relay's names begin with, followed by the number of a descriptor of its own and a
/// slash.
const OWN_DESCRIPTORS: &str = "/proc/self/fd/";

/// The host `::1` where all addresses are of version 4: its last four octets. No host has it as an
/// address of version 4 (RFC 1122, section 3.2.1.3).
pub const LOOPBACK_6: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 1);

/// Whether a host is Linux's own in any case: a loopback address of either version.
pub fn is_of_linux(host: Ipv4Addr) -> bool {
    host.is_loopback() || host == LOOPBACK_6
}

/// What a program needs to speak to a stack. Its environment has it, which the system shows to its
/// own user alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Which stack; part of all names.
    pub token: String,
    /// The user of the process that answers.
    pub user: u32,
    /// The directory of its sockets.
    pub folder: String,
}

impl Ticket {
    /// The path of the socket for requests.
    pub fn door(&self) -> String {
        format!("{}/{DOOR}", self.folder)
    }

    /// Where the socket for datagrams `id` sends what is for `peer`.
    pub fn stand_in(&self, id: u64, peer: SocketAddrV4) -> String {
        format!("{}/{}", self.folder, stand_in(id, peer))
    }
}

/// The parts of a `listen(backlog)`: how many peers wait in the stack, and the backlog of the
/// program's own socket.
///
/// Linux lets one more wait than the number says. The program's socket does, too, and the relay
/// holds one that the program's socket has no room for, so that all together are `backlog + 1`, but
/// three at least.
pub fn backlogs(backlog: i32) -> (u32, i32) {
    // A negative number is a large one (listen(2)).
    let all = (backlog as u32).min(BACKLOG_MAX);
    let own = all / 2;
    ((all - own).saturating_sub(1).max(1), own as i32)
}

/// The file of the socket for requests.
pub const DOOR: &str = "door";

/// The file of the stand-in of `peer` for the socket for datagrams `id`.
pub fn stand_in(id: u64, peer: SocketAddrV4) -> String {
    format!("{id}-{peer}")
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stream of octets (`SOCK_STREAM`).
    Stream,
    /// Datagrams (`SOCK_DGRAM`).
    Datagrams,
}

/// The family of addresses that the program uses: those of version 6 are mapped ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

/// The name of one socket: which it is, and the addresses of its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The token of the stack.
    pub token: String,
    /// The socket's number in it.
    pub id: u64,
    /// What it carries.
    pub kind: Kind,
    /// What the program takes addresses for.
    pub family: Family,
    /// Our end.
    pub local: SocketAddrV4,
    /// The other end, unless the socket listens, or hears datagrams of all peers.
    pub peer: Option<SocketAddrV4>,
}

/// An option of a socket, as setsockopt(2) has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `SOL_SOCKET`, `IPPROTO_TCP` or the like.
    pub level: i32,
    /// Which of that level.
    pub option: i32,
    /// The value's octets.
    pub value: Vec<u8>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Take a local address, and pass on what comes there, with others as `SO_REUSEADDR` and
    /// `SO_REUSEPORT` (in this order) have it. Answered by [`Reply::Made`].
    Bind(Kind, Family, SocketAddrV4, bool, bool),
    /// Connect to a peer, from a bound socket if there is one. Answered by [`Reply::Made`] at once;
    /// if true, a second answer follows when it is known what has come of it ([`Reply::Errno`]). If
    /// false, the socket is not ready to be written until then. With what is set on it, for its
    /// first segment announces some of that.
    Connect(Family, Option<u64>, SocketAddrV4, bool, Vec<Setting>),
    /// Listen at a bound socket, for so many peers; no longer if that is none. [`Reply::Made`] if
    /// another socket is to take the place of one that listened before, or [`Reply::Errno`].
    Listen(u64, Option<u32>),
    /// How a stream stands: [`Reply::Errno`], zero if it is connected and `EINPROGRESS` if it is in
    /// the making; told once. Of one for datagrams: what the network has reported.
    Status(u64),
    /// What a further connect of a stream is answered ([`Reply::Errno`]); `ENOTCONN` if it is over
    /// and was said to be.
    Again(u64),
    /// Stand for a peer of a socket for datagrams; if true, from now on for no other
    /// ([`Reply::Errno`]).
    Peer(u64, SocketAddrV4, bool),
    /// Hear everybody's datagrams again.
    Alone(u64),
    /// Have a socket for datagrams that is bound for any host of the graph hear those of Linux as
    /// well: it was Linux's.
    Widen(u64),
    /// Forget a socket that is bound: it is going to be Linux's own.
    Forget(u64),
    /// Look whether any process still has a socket: a program has closed it ([`Reply::Errno`]).
    Look(u64),
    /// Set options, in order, up to the first that is not taken.
    Set(u64, Vec<Setting>),
    /// The value of an option ([`Reply::Value`]).
    Get(u64, i32, i32),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The address is none of this stack's: Linux is to be asked.
    Outside,
    /// It failed with this number; zero is success.
    Errno(i32),
    /// It is done; this is the socket's number, and the descriptor comes along.
    Made(u64),
    /// The octets of an option's value.
    Value(Vec<u8>),
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

/// Octets as a word: two digits for each, behind an `x`, so that none is a word, too.
struct Hexadecimal(Vec<u8>);

impl fmt::Display for Hexadecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("x")?;
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl FromStr for Hexadecimal {
    type Err = NoSense;

    fn from_str(word: &str) -> Result<Self, NoSense> {
        let digits = word.strip_prefix('x').ok_or(NoSense)?;
        if !digits.is_ascii() || digits.len() % 2 != 0 || digits.len() / 2 > VALUE_OCTETS_MAX {
            return Err(NoSense);
        }
        let octet = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| NoSense);
        let octets: Result<_, _> = (0..digits.len()).step_by(2).map(octet).collect();
        octets.map(Self)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.token, self.user, self.folder)
    }
}

impl FromStr for Ticket {
    type Err = NoSense;

    fn from_str(text: &str) -> Result<Self, NoSense> {
        let mut parts = text.splitn(3, ':');
        Ok(Self { token: word(&mut parts)?, user: word(&mut parts)?, folder: word(&mut parts)? })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "s",
            Self::Datagrams => "d",
        })
    }
}

impl FromStr for Kind {
    type Err = NoSense;

    fn from_str(word: &str) -> Result<Self, NoSense> {
        match word {
            "s" => Ok(Self::Stream),
            "d" => Ok(Self::Datagrams),
            _ => Err(NoSense),
        }
    }
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

/// The way to the file that is open in this process as `descriptor` (proc(5)). Others see nothing
/// of its path.
pub fn own_descriptor(descriptor: i32) -> String {
    format!("{OWN_DESCRIPTORS}{descriptor}")
}

/// The way to a file in the directory that is open in this process as `directory`.
pub fn in_directory(directory: i32, file: &str) -> String {
    format!("{}/{file}", own_descriptor(directory))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, id, kind, family, local, peer } = self;
        let peer = or_none(peer.as_ref());
        write!(f, "{token},{id},{kind},{family},{local},{peer}")
    }
}

impl FromStr for Name {
    type Err = NoSense;

    fn from_str(text: &str) -> Result<Self, NoSense> {
        let (_, text) = text
            .strip_prefix(OWN_DESCRIPTORS)
            .and_then(|rest| rest.split_once('/'))
            .ok_or(NoSense)?;
        let mut words = text.split(',');
        Ok(Self {
            token: word(&mut words)?,
            id: word(&mut words)?,
            kind: word(&mut words)?,
            family: word(&mut words)?,
            local: word(&mut words)?,
            peer: maybe(&mut words)?,
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(kind, family, local, address, port) => {
                write!(f, "bind {kind} {family} {local} {address} {port}")
            }
            Self::Connect(family, bound, peer, waits, settings) => {
                let bound = or_none(bound.as_ref());
                write!(f, "connect {family} {bound} {peer} {waits}")?;
                write_settings(f, settings)
            }
            Self::Status(id) => write!(f, "status {id}"),
            Self::Listen(id, backlog) => write!(f, "listen {id} {}", or_none(backlog.as_ref())),
            Self::Again(id) => write!(f, "again {id}"),
            Self::Peer(id, peer, only) => write!(f, "peer {id} {peer} {only}"),
            Self::Alone(id) => write!(f, "alone {id}"),
            Self::Widen(id) => write!(f, "widen {id}"),
            Self::Forget(id) => write!(f, "forget {id}"),
            Self::Look(id) => write!(f, "look {id}"),
            Self::Set(id, settings) => {
                write!(f, "set {id}")?;
                write_settings(f, settings)
            }
            Self::Get(id, level, option) => write!(f, "get {id} {level} {option}"),
        }
    }
}

impl FromStr for Request {
    type Err = NoSense;

    fn from_str(text: &str) -> Result<Self, NoSense> {
        let mut words = text.split(' ');
        let words: &mut dyn Iterator<Item = &str> = &mut words;
        Ok(match words.next() {
            Some("bind") => {
                Self::Bind(word(words)?, word(words)?, word(words)?, word(words)?, word(words)?)
            }
            Some("connect") => Self::Connect(
                word(words)?,
                maybe(words)?,
                word(words)?,
                word(words)?,
                settings(words)?,
            ),
            Some("status") => Self::Status(word(words)?),
            Some("listen") => Self::Listen(word(words)?, maybe(words)?),
            Some("again") => Self::Again(word(words)?),
            Some("peer") => Self::Peer(word(words)?, word(words)?, word(words)?),
            Some("alone") => Self::Alone(word(words)?),
            Some("widen") => Self::Widen(word(words)?),
            Some("forget") => Self::Forget(word(words)?),
            Some("look") => Self::Look(word(words)?),
            Some("set") => Self::Set(word(words)?, settings(words)?),
            Some("get") => Self::Get(word(words)?, word(words)?, word(words)?),
            _ => return Err(NoSense),
        })
    }
}

fn write_settings(f: &mut fmt::Formatter<'_>, settings: &[Setting]) -> fmt::Result {
    settings.iter().try_for_each(|setting| {
        let value = Hexadecimal(setting.value.clone());
        write!(f, " {} {} {value}", setting.level, setting.option)
    })
}

fn settings(words: &mut dyn Iterator<Item = &str>) -> Result<Vec<Setting>, NoSense> {
    let mut list = Vec::new();
    while let Some(level) = words.next() {
        let level = level.parse().map_err(|_| NoSense)?;
        let option = word(words)?;
        let Hexadecimal(value) = word(words)?;
        list.push(Setting { level, option, value });
    }
    Ok(list)
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside => f.write_str("outside"),
            Self::Errno(number) => write!(f, "errno {number}"),
            Self::Made(id) => write!(f, "made {id}"),
            Self::Value(value) => write!(f, "value {}", Hexadecimal(value.clone())),
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
            Some("made") => Self::Made(word(&mut words)?),
            Some("value") => {
                let Hexadecimal(value) = word(&mut words)?;
                Self::Value(value)
            }
            _ => return Err(NoSense),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets of `sun_path` (unix(7)), less the zero at its end.
    const PATH_OCTETS_MAX: usize = 107;

    #[test]
    fn what_is_written_is_read_again() {
        let at: SocketAddrV4 = "10.0.0.1:80".parse().unwrap();
        let setting = |option, value: &[u8]| Setting { level: 6, option, value: value.into() };
        let requests = [
            Request::Bind(Kind::Stream, Family::V6, at, false, true),
            Request::Bind(Kind::Datagrams, Family::V4, at, true, false),
            Request::Connect(Family::V4, Some(7), at, true, Vec::new()),
            Request::Connect(Family::V4, None, at, false, vec![setting(6, &[2])]),
            Request::Status(3),
            Request::Listen(3, Some(511)),
            Request::Listen(3, None),
            Request::Again(3),
            Request::Peer(9, at, true),
            Request::Alone(9),
            Request::Widen(9),
            Request::Forget(9),
            Request::Look(9),
            Request::Set(3, vec![setting(1, &[1, 0, 0, 0]), setting(13, b"cubic")]),
            Request::Set(3, vec![setting(1, &[])]),
            Request::Get(3, 6, 11),
        ];
        for request in requests {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        let longest: SocketAddrV4 = "255.255.255.255:65535".parse().unwrap();
        for peer in [None, Some(longest)] {
            let name = Name {
                token: "0123456789abcdef".into(),
                id: u64::MAX,
                kind: Kind::Datagrams,
                family: Family::V4,
                local: longest,
                peer,
            };
            let text = in_directory(1 << 20, &name.to_string());
            assert!(text.len() <= PATH_OCTETS_MAX, "{text}");
            assert_eq!(text.parse(), Ok(name));
        }
        assert_eq!("made 7".parse(), Ok(Reply::Made(7)));
        assert_eq!("outside".parse(), Ok(Reply::Outside));
        assert_eq!("errno 111".parse(), Ok(Reply::Errno(111)));
        let value = Reply::Value((0..=255).collect());
        let text = value.to_string();
        assert_eq!(text.parse(), Ok(value));
        let ticket = Ticket {
            token: "0123456789abcdef".into(),
            user: 1000,
            folder: format!("/{}", "f".repeat(FOLDER_OCTETS_MAX - 1)),
        };
        let longest = ticket.stand_in(u64::MAX, longest);
        assert!(longest.len() <= PATH_OCTETS_MAX, "{longest}");
        assert_eq!(ticket.to_string().parse(), Ok(ticket));
    }

    #[test]
    fn anything_else_means_nothing() {
        for text in [
            "",
            "bind",
            "bind 5 1.2.3.4:5",
            "status x true",
            "connect 4 - 1.2.3.4:80",
            "connect 4 - 1.2.3.4:80 xk.1.2",
            "bind x 4 1.2.3.4:5 true true",
            "bind d 4 1.2.3.4:5 true",
            "set 1 2",
            "set 1 2 3 0g",
            "set 1 2 3 x0",
            "set 1 2 3 x\u{e9}a",
        ] {
            assert_eq!(text.parse::<Request>(), Err(NoSense), "{text}");
        }
        for text in [
            "",
            "xk",
            "/proc/self/fd/7/a,b",
            "/proc/self/fd/a,1,s,4,1.2.3.4:5,-",
            "/tmp/7/a,1,s,4,1.2.3.4:5,-",
        ] {
            assert_eq!(text.parse::<Name>(), Err(NoSense), "{text}");
        }
        assert_eq!("errno".parse::<Reply>(), Err(NoSense));
    }
}
