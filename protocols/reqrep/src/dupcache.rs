//! The replies to the latest requests, for clients that did not get them: an option, for procedures
//! that should not run twice.
//!
//! Not at most once: what was pushed out by newer requests, or came to another boot, is executed
//! again.

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_core::Secret;
use xk_core::{HostAddr, Kernel, Message};
use xk_kit::Cache;
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
    New(Option<Place>),
    /// The request is being executed.
    InProgress,
    /// The request was executed, with this reply; `None` if there is no buffer to send it.
    Done(Option<Message>),
}

/// A request that is being executed, or whose reply is kept.
#[derive(Default)]
struct Remembered {
    executing: Cell<bool>,
    reply: RefCell<SavedMessage>,
}

/// Place of a request that is being executed.
pub(crate) struct Place(Key, Rc<Remembered>);

/// The latest requests, as many as were asked for.
pub(crate) struct DupCache {
    digests: Secret,
    requests: Cache<Key, Rc<Remembered>>,
    /// Octets of the replies kept, and how many there may be.
    octets: Cell<usize>,
    octets_max: usize,
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
        let requests = Cache::new(cx.secret(), max);
        Self { digests: cx.secret(), requests, octets: Cell::new(0), octets_max }
    }

    /// A request from `source` has come.
    pub(crate) fn begin(&self, cx: &Kernel, source: Source, xid: u32, request: &Message) -> Known {
        let key = (source, xid, digest(&self.digests, request));
        match self.requests.get(&key) {
            Some(known) if known.executing.get() => Known::InProgress,
            Some(known) => Known::Done(known.reply.borrow().again(cx.pool()).unwrap_or_default()),
            None => Known::New(self.enter(key)),
        }
    }

    /// A place for a new request: a fresh one, else that of the oldest that is not being executed.
    fn enter(&self, key: Key) -> Option<Place> {
        let place = match self.requests.is_full() {
            true => self.forget_oldest()?,
            false => Rc::default(),
        };
        place.executing.set(true);
        self.requests.put(key, Rc::clone(&place));
        Some(Place(key, place))
    }

    /// Forgets the oldest request that is not being executed.
    fn forget_oldest(&self) -> Option<Rc<Remembered>> {
        let is_idle = |_: &Key, place: &Rc<Remembered>| !place.executing.get();
        let (_, place) = self.requests.evict(self.requests.len(), is_idle)?;
        let octets = place.reply.borrow().len().unwrap_or_default();
        self.octets.set(self.octets.get().saturating_sub(octets));
        place.reply.borrow_mut().clear();
        Some(place)
    }

    /// The request in this place was executed; `reply` is what was sent, `None` if nothing was. One
    /// larger than all replies may be is not kept.
    pub(crate) fn end(&self, Place(key, place): &Place, reply: Option<&Message>) {
        let reply = reply.filter(|reply| reply.len() <= self.octets_max);
        let octets = reply.map_or(0, Message::len);
        while self.octets.get() + octets > self.octets_max && self.forget_oldest().is_some() {}
        place.executing.set(false);
        if reply.is_some_and(|reply| place.reply.borrow_mut().save(reply).is_ok()) {
            self.octets.set(self.octets.get() + octets);
        } else {
            // Nothing to send again: it may be executed again.
            self.requests.remove(key);
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.requests.clear();
        self.octets.set(0);
    }
}
