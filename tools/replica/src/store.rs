//! The replicated state: keys with their values, and the last request of each client. An object
//! without kernel, which is the same at all replicas that have executed the same requests.

use crate::wire::{Act, KEY_MAX, ParseError, Reply, Request, Status, VALUE_MAX};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Largest number of keys.
pub const KEYS_MAX: usize = 4096;
/// Largest number of octets of all keys and values.
pub const OCTETS_MAX: usize = 8 << 20;
/// Number of clients that are known; the one that has asked longest ago is forgotten for another.
pub const CLIENTS_MAX: usize = 1024;
/// Octets of the largest snapshot.
pub const SNAPSHOT_MAX: usize =
    FRONT_OCTETS + CLIENTS_MAX * CLIENT_OCTETS + KEYS_MAX * ENTRY_OCTETS + OCTETS_MAX;

/// First octet of a snapshot.
const VERSION: u8 = 1;
const FRONT_OCTETS: usize = 1 + 8 + 8 + 2 + 2;
const CLIENT_OCTETS: usize = 8 + 4 + 1 + 8;
const ENTRY_OCTETS: usize = 2 + 2;
/// Octet of a client whose last request was a get.
const NO_STATUS: u8 = u8::MAX;

/// Last request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    number: u32,
    /// Outcome; `None` of a get, which is executed again when it is repeated.
    status: Option<Status>,
    /// Place of the request among all.
    place: u64,
}

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// The members that have said that they are there, as bits.
    there: u64,
    executed: u64,
    /// Octets of all keys and values.
    octets: usize,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    clients: BTreeMap<u64, Last>,
}

impl Store {
    /// Notes that a member is there.
    pub fn hello(&mut self, member: u8) {
        self.there |= 1_u64.checked_shl(member.into()).unwrap_or(0);
    }

    /// Whether all of so many members have been there at one time: before that, one that has lost
    /// its state could be taken for one that has none yet, so nothing is executed.
    #[must_use]
    pub fn has_begun(&self, members: u8) -> bool {
        members > 0 && self.there == u64::MAX >> 64_u8.saturating_sub(members)
    }

    /// Number of requests that were executed, repeated ones among them.
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Number of keys with a value.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Number of clients that are known.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Whether a client is known.
    #[must_use]
    pub fn knows(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    /// Value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Reply {
        match self.keys.get(key) {
            Some(value) => Reply { status: Status::Found, value: value.clone() },
            None => Status::Missing.into(),
        }
    }

    /// Executes a request, unless it was executed: then the reply is that of the first time.
    pub fn execute(&mut self, request: &Request<'_>) -> Reply {
        self.executed += 1;
        let known = self.clients.get(&request.client);
        let is_get = request.act == Act::Get;
        match known {
            Some(last) if request.number < last.number => return Status::Old.into(),
            Some(last) if request.number == last.number => match last.status {
                Some(status) => return status.into(),
                None if is_get => {}
                // There is one request of a number.
                None => return Status::Old.into(),
            },
            Some(_) => {}
            // It may have been executed for a client that was forgotten.
            None if !is_get => return Status::Unknown.into(),
            None if self.clients.len() >= CLIENTS_MAX => self.forget_one(),
            None => {}
        }
        let reply = match request.act {
            Act::Get => self.get(request.key),
            Act::Put(value) => self.set(request.key, Some(value)).into(),
            Act::Delete => self.set(request.key, None).into(),
            Act::Swap { from, to } => match self.keys.get(request.key).map(Vec::as_slice) == from {
                true => self.set(request.key, Some(to)).into(),
                false => Status::Differs.into(),
            },
        };
        let status = (!is_get).then_some(reply.status);
        let last = Last { number: request.number, status, place: self.executed };
        self.clients.insert(request.client, last);
        reply
    }

    fn forget_one(&mut self) {
        let oldest = self.clients.iter().min_by_key(|(_, last)| last.place);
        if let Some(client) = oldest.map(|(client, _)| *client) {
            self.clients.remove(&client);
        }
    }

    fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Status {
        let before = self.keys.get(key).map_or(0, |value| key.len() + value.len());
        let after = value.map_or(0, |value| key.len() + value.len());
        let is_new = before == 0 && after > 0;
        let octets = self.octets - before + after;
        // What becomes smaller always fits.
        let is_full = after > before && octets > OCTETS_MAX;
        if is_full || is_new && self.keys.len() >= KEYS_MAX {
            return Status::Full;
        }
        self.octets = octets;
        match value {
            Some(value) => self.keys.insert(key.to_vec(), value.to_vec()),
            None => self.keys.remove(key),
        };
        Status::Done
    }

    /// A number that differs between states, but for chance.
    #[must_use]
    pub fn digest(&self) -> u64 {
        // As FNV-1a.
        let add =
            |digest: u64, octet: u8| (digest ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3);
        self.snapshot().into_iter().fold(0xcbf2_9ce4_8422_2325, add)
    }

    /// The octets of the state: at most [`SNAPSHOT_MAX`].
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut octets = alloc::vec![VERSION];
        octets.extend(self.there.to_be_bytes());
        octets.extend(self.executed.to_be_bytes());
        octets.extend((self.clients.len() as u16).to_be_bytes());
        octets.extend((self.keys.len() as u16).to_be_bytes());
        for (client, Last { number, status, place }) in &self.clients {
            octets.extend(client.to_be_bytes());
            octets.extend(number.to_be_bytes());
            octets.push(status.map_or(NO_STATUS, |status| status as u8));
            octets.extend(place.to_be_bytes());
        }
        for (key, value) in &self.keys {
            octets.extend((key.len() as u16).to_be_bytes());
            octets.extend((value.len() as u16).to_be_bytes());
            octets.extend(key);
            octets.extend(value);
        }
        octets
    }

    /// Makes the state of a snapshot.
    ///
    /// # Errors
    /// [`ParseError`] if it is none: each state has one snapshot.
    pub fn restore(octets: &[u8]) -> Result<Self, ParseError> {
        let mut rest = Rest(octets);
        let ([version], there, executed) = (rest.take()?, rest.take()?, rest.take()?);
        let [clients, keys] = [rest.take()?, rest.take()?].map(u16::from_be_bytes).map(usize::from);
        if version != VERSION || clients > CLIENTS_MAX || keys > KEYS_MAX {
            return Err(ParseError);
        }
        let mut store = Self {
            there: u64::from_be_bytes(there),
            executed: u64::from_be_bytes(executed),
            ..Self::default()
        };
        for _ in 0..clients {
            let client = u64::from_be_bytes(rest.take()?);
            let number = u32::from_be_bytes(rest.take()?);
            let [status] = rest.take()?;
            let place = u64::from_be_bytes(rest.take()?);
            let status = match status {
                NO_STATUS => None,
                number => Some(Status::of(number).ok_or(ParseError)?),
            };
            let is_next = store.clients.last_key_value().is_none_or(|(last, _)| *last < client);
            if !is_next || place > store.executed {
                return Err(ParseError);
            }
            store.clients.insert(client, Last { number, status, place });
        }
        for _ in 0..keys {
            let [key, value] =
                [rest.take()?, rest.take()?].map(u16::from_be_bytes).map(usize::from);
            if !(1..=KEY_MAX).contains(&key) || value > VALUE_MAX {
                return Err(ParseError);
            }
            let (key, value) = (rest.slice(key)?, rest.slice(value)?);
            let is_next = store.keys.last_key_value().is_none_or(|(last, _)| last.as_slice() < key);
            store.octets += key.len() + value.len();
            if !is_next || store.octets > OCTETS_MAX {
                return Err(ParseError);
            }
            store.keys.insert(key.to_vec(), value.to_vec());
        }
        rest.0.is_empty().then_some(store).ok_or(ParseError)
    }
}

/// Octets that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ParseError)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn slice(&mut self, octets: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.0.split_at_checked(octets).ok_or(ParseError)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
