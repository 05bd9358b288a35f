//! One socket within the stack.

use super::datagram::Datagrams;
use super::listener::Listener;
use super::stream::Stream;
use super::talk::Talk;
use super::{Layer, Received, To};
use crate::address::Endpoint;
use crate::ready::{Ready, Status};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::IoSlice;
use std::sync::Arc;
use xk_core::message::NoBuffers;
use xk_core::{Kernel, Message, SessionRef};

/// Kind of a socket, with its state.
pub(crate) enum Body {
    Stream(Stream),
    Listener(Listener),
    Datagrams(Datagrams),
    Talk(Box<Talk>),
}

/// One socket within the stack.
pub(crate) struct Socket {
    /// Place in the table.
    pub(crate) place: u32,
    pub(crate) status: Arc<Status>,
    /// Error that has not been told yet (`SO_ERROR`).
    pub(crate) error: Cell<Option<Errno>>,
    pub(crate) body: Body,
}

impl Socket {
    pub(crate) fn new(place: u32, body: Body) -> Self {
        Self { place, status: Arc::default(), error: Cell::new(None), body }
    }

    /// Tag of the sessions of this socket.
    pub(crate) fn tag(&self) -> u32 {
        self.place + 1
    }

    /// True if the session is one of this socket.
    #[inline]
    pub(crate) fn has(&self, session: &SessionRef) -> bool {
        match &self.body {
            Body::Stream(stream) => stream.has(session),
            Body::Datagrams(datagrams) => datagrams.has(session),
            Body::Talk(talk) => talk.has(session),
            Body::Listener(_) => false,
        }
    }

    /// Releases all handles, without a word to any peer: the graph is being taken down.
    pub(crate) fn forget(&self) {
        match &self.body {
            Body::Stream(stream) => stream.forget(),
            Body::Listener(listener) => listener.forget(),
            Body::Datagrams(datagrams) => datagrams.forget(),
            Body::Talk(talk) => talk.forget(),
        }
    }

    /// Passes the octets of the next datagram or record to `take`, at most `octets_max` of them.
    ///
    /// # Errors
    /// As of [`Datagrams::receive`] and [`Talk::receive`]; `EOPNOTSUPP`.
    #[inline]
    pub(crate) fn receive(
        &self,
        cx: &Kernel,
        octets_max: usize,
        peek: bool,
        take: impl FnMut(&[u8]),
    ) -> Result<Received, Errno> {
        match &self.body {
            Body::Datagrams(datagrams) => datagrams.receive(self, octets_max, peek, take),
            Body::Talk(talk) => talk.receive(cx, self, octets_max, peek, take),
            Body::Stream(_) | Body::Listener(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Sends a datagram, or a message to all members.
    ///
    /// # Errors
    /// As of [`Datagrams::send`] and [`Talk::send`]; `EOPNOTSUPP`.
    #[inline]
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        layer: &Layer,
        from: &[IoSlice<'_>],
        to: To,
    ) -> Result<usize, Errno> {
        match &self.body {
            Body::Datagrams(datagrams) => datagrams.send(cx, self, from, to),
            Body::Talk(talk) => talk.send(cx, &layer.this()?, self, from),
            Body::Stream(_) | Body::Listener(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// An error waits from now on, for all that it was waited for.
    pub(crate) fn fail(&self, error: Errno) {
        self.error.set(Some(error));
        let both = Ready::READABLE | Ready::WRITABLE;
        self.status.raise(both | Ready::ERROR | Ready::SETTLED);
    }

    /// The error that waits, told once.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        let error = self.error.take();
        if error.is_some() {
            self.status.lower(Ready::ERROR);
        }
        error
    }

    /// Octets that a read finds at once.
    pub(crate) fn unread(&self) -> usize {
        match &self.body {
            Body::Stream(stream) => stream.unread(),
            Body::Datagrams(datagrams) => datagrams.unread(),
            Body::Talk(talk) => talk.unread(),
            Body::Listener(_) => 0,
        }
    }

    /// The local and the peer's address.
    pub(crate) fn addresses(&self) -> (Endpoint, Option<Endpoint>) {
        match &self.body {
            Body::Stream(stream) => stream.addresses(),
            Body::Listener(listener) => (listener.local, None),
            Body::Datagrams(datagrams) => datagrams.addresses(),
            Body::Talk(talk) => talk.addresses(),
        }
    }
}

/// A message of `length` octets, taken from `from` behind the first `skip`.
pub(crate) fn gather(
    cx: &Kernel,
    from: &[IoSlice<'_>],
    skip: usize,
    length: usize,
) -> Result<Message, NoBuffers> {
    if let [only] = from
        && let Some(octets) = only.get(skip..skip + length)
    {
        return cx.pool().copy_from(super::HEADROOM, octets);
    }
    let mut message = cx.pool().alloc(super::HEADROOM, length)?;
    let (mut skip, mut done) = (skip, 0);
    for slice in from {
        let Some(octets) = slice.get(skip..) else {
            skip -= slice.len();
            continue;
        };
        skip = 0;
        let octets = &octets[..octets.len().min(length - done)];
        done += message.copy_in(done, octets);
    }
    Ok(message)
}
