//! Requests of clients, replies, and the messages among replicas, in octets.

use alloc::vec::Vec;

/// Largest key, in octets.
pub const KEY_MAX: usize = 256;
/// Largest value, in octets.
pub const VALUE_MAX: usize = 4096;
/// Octets of a request in front of its key.
const FRONT_OCTETS: usize = 8 + 4 + 1 + 1 + 2 + 2;
/// Octets of the largest request.
pub const REQUEST_MAX: usize = FRONT_OCTETS + KEY_MAX + 2 * VALUE_MAX;

/// The octets are no request, reply or message of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError;

/// Operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// Tell its value.
    Get,
    /// Set its value.
    Put(&'a [u8]),
    /// Set its value to `to` if it is `from`, or if there is none where `from` is `None`.
    Swap {
        /// The value that is expected.
        from: Option<&'a [u8]>,
        /// The value that it gets.
        to: &'a [u8],
    },
    /// Remove it.
    Delete,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Number of the client, which it has drawn by chance.
    pub client: u64,
    /// Number of the request among those of the client, from 1; a repeated one has the same.
    pub number: u32,
    /// The key, of at least one octet.
    pub key: &'a [u8],
    /// The operation on it.
    pub act: Act<'a>,
}

const GET: u8 = 0;
const PUT: u8 = 1;
const SWAP: u8 = 2;
const DELETE: u8 = 3;

impl<'a> Request<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// [`ParseError`] if it is none, or larger than it may be.
    pub fn parse(octets: &'a [u8]) -> Result<Self, ParseError> {
        let (front, rest) = octets.split_first_chunk::<FRONT_OCTETS>().ok_or(ParseError)?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, act, has_from, m, n, o, p] = *front;
        let key_octets = usize::from(u16::from_be_bytes([m, n]));
        let from_octets = usize::from(u16::from_be_bytes([o, p]));
        let (key, rest) = rest.split_at_checked(key_octets).ok_or(ParseError)?;
        let (from, to) = rest.split_at_checked(from_octets).ok_or(ParseError)?;
        let is_bounded =
            from.len().max(to.len()) <= VALUE_MAX && (1..=KEY_MAX).contains(&key.len());
        let act = match (act, has_from) {
            (GET, 0) if rest.is_empty() => Act::Get,
            (DELETE, 0) if rest.is_empty() => Act::Delete,
            (PUT, 0) if from.is_empty() => Act::Put(to),
            (SWAP, 0) if from.is_empty() => Act::Swap { from: None, to },
            (SWAP, 1) => Act::Swap { from: Some(from), to },
            _ => return Err(ParseError),
        };
        let client = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let number = u32::from_be_bytes([i, j, k, l]);
        let is_good = is_bounded && number > 0;
        is_good.then_some(Self { client, number, key, act }).ok_or(ParseError)
    }

    /// The octets of the request, whose parts are no larger than they may be.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let (act, from, to) = match self.act {
            Act::Get => (GET, None, &[][..]),
            Act::Put(to) => (PUT, None, to),
            Act::Swap { from, to } => (SWAP, from, to),
            Act::Delete => (DELETE, None, &[][..]),
        };
        let mut octets = self.client.to_be_bytes().to_vec();
        octets.extend(self.number.to_be_bytes());
        octets.extend([act, from.is_some().into()]);
        let from = from.unwrap_or(&[]);
        for part in [self.key, from] {
            octets.extend((part.len() as u16).to_be_bytes());
        }
        [self.key, from, to].iter().for_each(|part| octets.extend(*part));
        octets
    }
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// The request was executed.
    Done = 0,
    /// The key has the value behind.
    Found = 1,
    /// The key has no value.
    Missing = 2,
    /// The value was not the expected one, and is unchanged.
    Differs = 3,
    /// There is no room for the value; nothing has changed.
    Full = 4,
    /// A later request of the client has been executed; whether this one was is not known any more.
    Old = 5,
    /// The client is not known, or no longer; nothing was executed now. It begins again with a get,
    /// under another number.
    Unknown = 6,
    /// The replica has no part in a majority; nothing was executed now.
    NoQuorum = 7,
    /// The request may be executed yet.
    Late = 8,
}

impl Status {
    /// All of them, by their numbers.
    const ALL: [Self; 9] = [
        Self::Done,
        Self::Found,
        Self::Missing,
        Self::Differs,
        Self::Full,
        Self::Old,
        Self::Unknown,
        Self::NoQuorum,
        Self::Late,
    ];

    /// The status with a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Outcome of the request.
    pub status: Status,
    /// The value that was found; else empty.
    pub value: Vec<u8>,
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        Self { status, value: Vec::new() }
    }
}

impl Reply {
    /// Reads a reply.
    ///
    /// # Errors
    /// [`ParseError`] if it is none.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        let (number, value) = octets.split_first().ok_or(ParseError)?;
        let status = Status::of(*number).ok_or(ParseError)?;
        let most = if status == Status::Found { VALUE_MAX } else { 0 };
        let is_good = value.len() <= most;
        is_good.then(|| Self { status, value: value.to_vec() }).ok_or(ParseError)
    }

    /// The octets of the reply.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut octets = alloc::vec![self.status as u8];
        octets.extend(&self.value);
        octets
    }
}

/// A message among replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The sender is there, and has no state.
    Hello,
    /// A client has made a request of the sender.
    Request {
        /// Number by which the sender knows the request again.
        tag: u32,
        /// The request.
        request: Request<'a>,
    },
}

const HELLO: u8 = 0;
const REQUEST: u8 = 1;

impl<'a> Told<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// [`ParseError`] if it is none.
    pub fn parse(octets: &'a [u8]) -> Result<Self, ParseError> {
        match octets.split_first() {
            Some((&HELLO, [])) => Ok(Self::Hello),
            Some((&REQUEST, rest)) => {
                let (tag, rest) = rest.split_first_chunk().ok_or(ParseError)?;
                Ok(Self::Request { tag: u32::from_be_bytes(*tag), request: Request::parse(rest)? })
            }
            _ => Err(ParseError),
        }
    }

    /// The octets of the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        match self {
            Self::Hello => alloc::vec![HELLO],
            Self::Request { tag, request } => {
                let mut octets = alloc::vec![REQUEST];
                octets.extend(tag.to_be_bytes());
                octets.extend(request.emit());
                octets
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> [Request<'static>; 6] {
        let key = &b"key"[..];
        let (from, to) = (&b"old"[..], &b"newer"[..]);
        let request = |act| Request { client: 0x0102_0304_0506_0708, number: 9, key, act };
        [
            request(Act::Get),
            request(Act::Put(to)),
            request(Act::Put(b"")),
            request(Act::Swap { from: None, to }),
            request(Act::Swap { from: Some(from), to }),
            request(Act::Delete),
        ]
    }

    #[test]
    fn requests_have_these_octets() {
        let octets = requests()[4].emit();
        let front = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 2, 1, 0, 3, 0, 3];
        assert_eq!(octets, [&front[..], b"keyoldnewer"].concat());
        let told = Told::Request { tag: 0x0a0b_0c0d, request: requests()[0] };
        assert_eq!(told.emit()[..6], [1, 10, 11, 12, 13, 1]);
    }

    #[test]
    fn messages_come_back_and_are_none_when_cut() {
        for request in requests() {
            let octets = request.emit();
            assert_eq!(Request::parse(&octets), Ok(request));
            let told = Told::Request { tag: 7, request };
            assert_eq!(Told::parse(&told.emit()), Ok(told));
            // The value is what is left.
            let value = match request.act {
                Act::Put(to) | Act::Swap { to, .. } => to.len(),
                _ => 0,
            };
            for end in 0..octets.len() - value {
                assert_eq!(Request::parse(&octets[..end]), Err(ParseError), "cut at {end}");
            }
            let longer = [&octets[..], b"x"].concat();
            assert_eq!(
                Request::parse(&longer).is_ok(),
                matches!(request.act, Act::Put(_) | Act::Swap { .. })
            );
        }
        assert_eq!(Told::parse(&Told::Hello.emit()), Ok(Told::Hello));
        for none in [&[][..], &[0, 0], &[1, 2, 3], &[2]] {
            assert_eq!(Told::parse(none), Err(ParseError));
        }
        for status in Status::ALL {
            let value = if status == Status::Found { b"value".to_vec() } else { Vec::new() };
            let reply = Reply { status, value };
            assert_eq!(Reply::parse(&reply.emit()), Ok(reply));
        }
        for none in [&[][..], &[9], &[0, 1], &[1; VALUE_MAX + 2]] {
            assert_eq!(Reply::parse(none), Err(ParseError));
        }
    }

    #[test]
    fn parts_are_bounded() {
        let (key, value) = ([1; KEY_MAX + 1], [2; VALUE_MAX + 1]);
        let is_good = |number, key, act| {
            Request::parse(&Request { client: 1, number, key, act }.emit()).is_ok()
        };
        assert!(is_good(1, &key[1..], Act::Put(&value[1..])));
        assert!(is_good(1, b"k", Act::Swap { from: Some(&value[1..]), to: &value[1..] }));
        assert!(!is_good(0, b"k", Act::Get), "numbers count from 1");
        assert!(!is_good(1, b"", Act::Get));
        assert!(!is_good(1, &key, Act::Get));
        assert!(!is_good(1, b"k", Act::Put(&value)));
        assert!(!is_good(1, b"k", Act::Swap { from: Some(&value), to: b"" }));
        let largest = Act::Swap { from: Some(&value[1..]), to: &value[1..] };
        let octets = Request { client: 1, number: 1, key: &key[1..], act: largest }.emit();
        assert_eq!(octets.len(), REQUEST_MAX);
    }
}
