//! Requests of an unmodified program under `xk exec` to the stack.
//!
//! The stack runs in a process of `xk exec`. Every process of the program sends requests to it over
//! a sequenced-packet socket (unix(7)) in a directory that other users cannot search. Each request
//! has a connection of its own, so threads and forks need no special care. The answer to a bind or
//! connect has a descriptor (`SCM_RIGHTS`): a socket of the system whose *name* has the addresses
//! of its ends. Reading, writing, polling, duplicating and inheriting then work as for any socket.
//! No socket can be reached by its name, because the relay removes the name from the directory
//! before the socket can be connected to. The exceptions are the relay's sockets for each peer of a
//! datagram socket, to which the program sends at [`Ticket::stand_in`].
//!
//! A request and its answer are JSON texts ([`write()`], [`read`]); see [`Request`] and [`Reply`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

/// The variable of the environment that holds the [`Ticket`] of the stack.
pub const VARIABLE: &str = "XK_EXEC";
/// Octets of one request or answer at most.
pub const TEXT_OCTETS_MAX: usize = 4096;
/// Octets of an option's value at most.
pub const VALUE_OCTETS_MAX: usize = 512;
/// The longest path of a stack's directory, in octets: the longest name in it still fits `sun_path`
/// (unix(7)).
pub const FOLDER_OCTETS_MAX: usize = 64;
/// Largest number of peers that wait to be accepted, whatever a program says (Linux's `somaxconn`).
const BACKLOG_MAX: u32 = 4096;
/// Prefix of the relay's names, followed by the number of a descriptor of its own and a slash.
const OWN_DESCRIPTORS: &str = "/proc/self/fd/";

/// The host `::1` where all addresses are of version 4: its last four octets. No host has it as an
/// address of version 4 (RFC 1122, section 3.2.1.3).
pub const LOOPBACK_6: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 1);

/// Whether a host is Linux's own in any case: a loopback address of either version.
pub fn is_of_linux(host: Ipv4Addr) -> bool {
    host.is_loopback() || host == LOOPBACK_6
}

/// Everything that a program needs to speak to a stack. The program's environment has it, which the
/// system shows to its own user alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Name of the stack, a part of all names.
    pub token: String,
    /// The user of the process that answers.
    pub user: u32,
    /// The directory of its sockets.
    pub folder: String,
    /// The graph's devices by the names that Linux has for them: a socket bound to another
    /// (`SO_BINDTODEVICE`) is Linux's.
    pub devices: Vec<String>,
}

impl Ticket {
    /// The path of the socket for requests.
    pub fn door(&self) -> String {
        format!("{}/{DOOR}", self.folder)
    }

    /// Name of the socket to which the socket for datagrams `id` sends datagrams for `peer` that go
    /// in this manner.
    pub fn stand_in(&self, id: u64, peer: SocketAddrV4, manner: Manner) -> String {
        format!("{}/{}", self.folder, stand_in(id, peer, manner))
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

/// The fields that a sender asks for with a datagram (`IP_PKTINFO`, `IP_TTL`, `IP_TOS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manner {
    /// The host that it comes from; unspecified for the usual one.
    pub from: Ipv4Addr,
    /// The hops that it may go; zero for as many as the socket says.
    pub hops: u8,
    /// Class of traffic, if not the socket's.
    pub class: Option<u8>,
}

impl Manner {
    /// As the socket has it.
    pub const USUAL: Self = Self { from: Ipv4Addr::UNSPECIFIED, hops: 0, class: None };
}

/// The file of the stand-in of `peer` for the socket for datagrams `id`: of another one for each
/// manner.
pub fn stand_in(id: u64, peer: SocketAddrV4, manner: Manner) -> String {
    let (host, port) = (peer.ip().to_bits(), peer.port());
    let file = format!("{id:x}-{host:08x}{port:04x}");
    let Manner { from, hops, class } = manner;
    match manner == Manner::USUAL {
        true => file,
        false => {
            let class = class.map_or(0x100, u16::from);
            format!("{file}{:08x}{hops:02x}{class:03x}", from.to_bits())
        }
    }
}

/// Kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A stream of octets (`SOCK_STREAM`).
    Stream,
    /// Datagrams (`SOCK_DGRAM`).
    Datagrams,
}

/// The family of addresses that the program uses: those of version 6 are mapped ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Kind of the socket.
    pub kind: Kind,
    /// Family of the addresses that the program sees.
    pub family: Family,
    /// Our end.
    pub local: SocketAddrV4,
    /// The other end, unless the socket listens, or hears datagrams of all peers.
    pub peer: Option<SocketAddrV4>,
}

/// An option of a socket, as setsockopt(2) has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// `SOL_SOCKET`, `IPPROTO_TCP` or the like.
    pub level: i32,
    /// Number of the option in that level.
    pub option: i32,
    /// The value's octets.
    pub value: Vec<u8>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Take a local address, and pass on what comes there, with others as `SO_REUSEADDR` and
    /// `SO_REUSEPORT` (in this order) have it. Answered by [`Reply::Made`].
    Bind(Kind, Family, SocketAddrV4, bool, bool),
    /// Connect to a peer, from a bound socket if there is one. Answered by [`Reply::Made`] at once;
    /// if true, a second answer follows when it is known what has come of it ([`Reply::Errno`]). If
    /// false, the socket is not ready to be written until then. With what is set on it, for its
    /// first segment announces some of that.
    Connect(Family, Option<u64>, SocketAddrV4, bool, Vec<Setting>),
    /// Listen at a bound socket, for so many peers as listen(2) says; no longer if that is none.
    /// [`Reply::Made`] if another socket is to take the place of one that listened before, or
    /// [`Reply::Errno`].
    Listen(u64, Option<i32>),
    /// Asks for the state of a stream: [`Reply::Errno`], zero if it is connected and `EINPROGRESS`
    /// if it is in the making; told once. Of one for datagrams: what the network has reported.
    Status(u64),
    /// Asks for the answer to a further connect of a stream ([`Reply::Errno`]); `ENOTCONN` if it is
    /// over and was said to be.
    Again(u64),
    /// Stand for a peer of a socket for datagrams that go in this manner; if true, from now on for
    /// no other ([`Reply::Errno`]).
    Peer(u64, SocketAddrV4, Manner, bool),
    /// Hear everybody's datagrams again.
    Alone(u64),
    /// Have a socket for datagrams that is bound for any host of the graph hear those of Linux as
    /// well: it was Linux's.
    Widen(u64),
    /// Forget a socket that is bound: it is going to be Linux's own.
    Forget(u64),
    /// Look whether any process still has a socket: a program has closed it ([`Reply::Errno`]).
    Look(u64),
    /// Set options, in order; answered for the first that is not taken, with [`Reply::Outside`] if
    /// it is one that Linux has and the graph has not.
    Set(u64, Vec<Setting>),
    /// The value of an option ([`Reply::Value`]).
    Get(u64, i32, i32),
    /// Asks for the octets that the peer of a stream has not acknowledged, and those of them that
    /// were not sent yet: two numbers ([`Reply::Value`]).
    Unacknowledged(u64),
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The address is none of this stack's: Linux is to be asked.
    Outside,
    /// The request failed with this number; zero is success.
    Errno(i32),
    /// The request is done; this is the socket's number, and the descriptor comes along.
    Made(u64),
    /// The octets of an option's value.
    Value(Vec<u8>),
}

/// A text that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a text that means nothing")]
pub struct NoSense;

/// A ticket, a request or an answer as it is sent.
pub fn write(what: &impl Serialize) -> String {
    // None has what JSON cannot say; an empty text would mean nothing.
    serde_json::to_string(what).unwrap_or_default()
}

/// Decodes a message.
///
/// # Errors
/// [`NoSense`] if it is none.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, NoSense> {
    serde_json::from_slice(text).map_err(|_| NoSense)
}

fn word<T: FromStr>(words: &mut dyn Iterator<Item = &str>) -> Result<T, NoSense> {
    words.next().and_then(|w| w.parse().ok()).ok_or(NoSense)
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
        let kind = if *kind == Kind::Stream { 's' } else { 'd' };
        let family = if *family == Family::V4 { 4 } else { 6 };
        let peer = peer.map_or_else(|| "-".into(), |peer| peer.to_string());
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
            kind: match words.next() {
                Some("s") => Kind::Stream,
                Some("d") => Kind::Datagrams,
                _ => return Err(NoSense),
            },
            family: match words.next() {
                Some("4") => Family::V4,
                Some("6") => Family::V6,
                _ => return Err(NoSense),
            },
            local: word(&mut words)?,
            peer: match words.next() {
                Some("-") => None,
                peer => Some(word(&mut peer.into_iter())?),
            },
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
            Request::Peer(9, at, Manner::USUAL, true),
            Request::Peer(9, at, Manner { from: *at.ip(), hops: 9, class: Some(0) }, false),
            Request::Alone(9),
            Request::Widen(9),
            Request::Forget(9),
            Request::Look(9),
            Request::Set(3, vec![setting(1, &[1, 0, 0, 0]), setting(13, b"cubic")]),
            Request::Set(3, vec![setting(1, &[])]),
            Request::Get(3, 6, 11),
            Request::Unacknowledged(3),
        ];
        for request in requests {
            let text = write(&request);
            assert!(text.len() <= TEXT_OCTETS_MAX);
            assert_eq!(read(text.as_bytes()), Ok(request));
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
        let longest_value = Reply::Value(vec![255; VALUE_OCTETS_MAX]);
        for reply in [Reply::Made(7), Reply::Outside, Reply::Errno(111), longest_value] {
            let text = write(&reply);
            assert!(text.len() <= TEXT_OCTETS_MAX);
            assert_eq!(read(text.as_bytes()), Ok(reply));
        }
        let ticket = Ticket {
            token: "0123456789abcdef".into(),
            user: 1000,
            folder: format!("/{}", "f".repeat(FOLDER_OCTETS_MAX - 1)),
            devices: vec!["eth0".into()],
        };
        let manner = Manner { from: *longest.ip(), hops: 255, class: None };
        let longest = ticket.stand_in(u64::MAX, longest, manner);
        assert!(longest.len() <= PATH_OCTETS_MAX, "{longest}");
        assert_eq!(read(write(&ticket).as_bytes()), Ok(ticket));
    }

    #[test]
    fn anything_else_means_nothing() {
        let whole = write(&Request::Set(1, vec![Setting { level: 2, option: 3, value: vec![4] }]));
        let cut = (0..whole.len()).map(|octets| &whole[..octets]);
        let others = ["{}", "\"Bind\"", "{\"Status\":-1}", "{\"Look\":3,\"Forget\":3}", "[[[[[[["];
        for text in cut.chain(others) {
            assert_eq!(read::<Request>(text.as_bytes()), Err(NoSense), "{text}");
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
        assert_eq!(read::<Reply>(b"\"Errno\""), Err(NoSense));
    }
}
