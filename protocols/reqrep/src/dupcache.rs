//! The replies to the latest requests, for clients that did not get them: an option, for procedures
//! that should not run twice.
//!
//! Not at most once: what was pushed out by newer requests, or came to another boot, is executed
//! again.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Secret;
use xk_core::map::Map;
use xk_core::{HostAddr, Kernel, Message};
use xk_kit::rpc::retransmit::SavedMessage;

/// Octets of a request that count, besides its length. They hold program, version, procedure and
/// the beginning of the credential.
const LOOK_OCTETS: usize = 128;

/// The sender of a request, its number, and a hash of what it says.
pub(crate) type Key = (Source, u32, u64);
/// The sender: a host and its port, or none and the number of a session below.
pub(crate) type Source = (HostAddr, u64);

/// State of a request.
pub(crate) enum Known {
    /// Nothing: execute it, and tell by this place what came of it. `None` if there is no place for
    /// it.
    New(Option<u32>),
    /// The request is being executed.
    InProgress,
    /// The request was executed, with this reply; `None` if there is no buffer to send it.
    Done(Option<Message>),
}

struct Remembered {
    key: Key,
    executing: bool,
    reply: SavedMessage,
}

/// The latest requests, as many as were asked for.
pub(crate) struct DupCache {
    digests: Secret,
    map: Map<Key, u32>,
    places: RefCell<Vec<Remembered>>,
    hand: Cell<usize>,
    max: usize,
    /// Octets of the replies kept, and how many there may be.
    octets: Cell<usize>,
    octets_max: usize,
    /// Where to look next for the oldest reply.
    oldest: Cell<usize>,
}

/// Digest of a request.
fn digest(secret: &Secret, request: &Message) -> u64 {
    let mut octets = [0; LOOK_OCTETS];
    request.copy_to(0, &mut octets);
    let mut words = [request.len() as u64; LOOK_OCTETS / 8 + 1];
    for (word, octets) in words.iter_mut().zip(octets.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*octets);
    }
    secret.hash(&words)
}

impl DupCache {
    /// A cache for `max` requests, with replies of `octets_max` octets in all.
    pub(crate) fn new(cx: &Kernel, max: usize, octets_max: usize) -> Self {
        Self {
            digests: cx.secret(),
            map: Map::new(cx.secret(), max.max(1)),
            places: RefCell::new(Vec::with_capacity(max)),
            hand: Cell::new(0),
            max,
            octets: Cell::new(0),
            octets_max,
            oldest: Cell::new(0),
        }
    }

    /// A request from `source` has come.
    pub(crate) fn begin(&self, cx: &Kernel, source: Source, xid: u32, request: &Message) -> Known {
        let key = (source, xid, digest(&self.digests, request));
        if let Some(at) = self.map.get(&key)
            && let Some(place) = self.places.borrow().get(at as usize)
        {
            if place.executing {
                return Known::InProgress;
            }
            return Known::Done(place.reply.again(cx.pool()).unwrap_or_default());
        }
        Known::New(self.enter(key))
    }

    /// A place for a new request: a fresh one, else that of the oldest that is not being executed.
    fn enter(&self, key: Key) -> Option<u32> {
        let mut places = self.places.borrow_mut();
        let place = Remembered { key, executing: true, reply: SavedMessage::new() };
        if places.len() < self.max {
            self.map.bind(key, places.len() as u32).ok()?;
            places.push(place);
            return Some(places.len() as u32 - 1);
        }
        let start = self.hand.get();
        let at = (0..self.max)
            .map(|n| (start + n) % self.max)
            .find(|at| places.get(*at).is_some_and(|place| !place.executing))?;
        self.hand.set((at + 1) % self.max);
        let slot = places.get_mut(at)?;
        // A request of which nothing was kept is bound no more, or to another place by now.
        if self.map.get(&slot.key) == Some(at as u32) {
            self.map.unbind(&slot.key);
        }
        self.map.bind(key, at as u32).ok()?;
        let before = core::mem::replace(slot, place);
        drop(places);
        self.release(&before.reply);
        Some(at as u32)
    }

    /// A reply is kept no more.
    fn release(&self, reply: &SavedMessage) {
        let octets = reply.len().unwrap_or_default();
        self.octets.set(self.octets.get().saturating_sub(octets));
    }

    /// Forgets replies, the oldest first, until there is room for one of `octets` more.
    fn make_room(&self, octets: usize) {
        let count = self.places.borrow().len();
        for _ in 0..count {
            if self.octets.get() + octets <= self.octets_max {
                return;
            }
            let at = self.oldest.get() % count;
            self.oldest.set(at + 1);
            let mut places = self.places.borrow_mut();
            if let Some(place) = places.get_mut(at)
                && !place.reply.is_empty()
            {
                self.release(&place.reply);
                self.map.unbind(&place.key);
                place.reply.clear();
            }
        }
    }

    /// The request in this place was executed; `reply` is what was sent, `None` if nothing was. One
    /// larger than all replies may be is not kept.
    pub(crate) fn end(&self, at: u32, reply: Option<&Message>) {
        let reply = reply.filter(|reply| reply.len() <= self.octets_max);
        self.make_room(reply.map_or(0, Message::len));
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get_mut(at as usize) else {
            return;
        };
        place.executing = false;
        if reply.is_some_and(|reply| place.reply.save(reply).is_ok()) {
            let octets = place.reply.len().unwrap_or_default();
            self.octets.set(self.octets.get() + octets);
        } else {
            // Nothing to send again: it may be executed again.
            self.map.unbind(&place.key);
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.map.clear();
        self.octets.set(0);
        let places = self.places.take();
        drop(places);
    }
}
