//! Conversations of several members.

use crate::driver::{Driver, Here, New, Setting};
use crate::error::invalid;
use crate::handle::Handle;
use crate::layer::{Front, Joining, LEFT, MESSAGE, Members, STATE, STATE_MAX, WANTED};
use crate::ready::Ready;
use crate::stack::{Shown, Source, Stack};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Members of a conversation at most.
const MEMBERS_MAX: usize = 64;

/// One member's end of a conversation, on the graph's `order`, or on its `psync`.
pub struct Conversation<D: Driver = Here> {
    handle: Arc<Handle<D>>,
    /// Held from the time at which the length of a record is known until it is taken.
    taking: Mutex<()>,
}

/// Next of what a member hears in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message of a member, this one included.
    Message {
        /// Index of the sender.
        from: usize,
        /// Octets of the message.
        octets: Vec<u8>,
        /// Length of the longest chain of messages, each sent after the one before, that leads to
        /// it.
        depth: u32,
    },
    /// The conversation has begun, or its members have changed.
    View {
        /// The members that are in, as bits.
        members: u64,
        /// Whether they are enough to go on.
        has_quorum: bool,
    },
    /// A member has come back without its state, and is to be given that of this place.
    Returned(Returned),
    /// The state of the others at the place from which on this member, which has come back, hears
    /// what they hear.
    State(Vec<u8>),
}

/// A member that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Index of the member.
    pub member: usize,
    start: u16,
}

impl<D: Driver> Conversation<D> {
    /// Joins the conversation of these hosts and ports, at most 64; `me` is the index of this one.
    /// The first opens it, unless it comes back, and the others hear of it.
    ///
    /// # Errors
    /// `EINVAL`, `EPROTONOSUPPORT` if the graph has no such layer, `EADDRINUSE`.
    pub fn join(
        stack: &Stack<D>,
        members: &[SocketAddr],
        me: usize,
        joining: Joining,
    ) -> io::Result<Self> {
        if !(2..=MEMBERS_MAX).contains(&members.len()) || me >= members.len() {
            return Err(invalid("a conversation has 2 to 64 members, and this is one of them"));
        }
        let all = members.iter().map(|at| (*at).into()).collect();
        let new = New::Talk(Members { all, me: me as u8, joining });
        let socket = stack.driver.make(new)?;
        Ok(Self { handle: Handle::new(&stack.driver, socket), taking: Mutex::default() })
    }

    /// Sends a message to all members. Waits until the conversation has begun, and while others
    /// lack too many messages of this member.
    ///
    /// # Errors
    /// `EMSGSIZE`; `EPIPE` after [`leave`](Self::leave); `ENETUNREACH` without a quorum.
    pub fn send(&self, octets: &[u8]) -> io::Result<()> {
        let handle = &*self.handle;
        let from = [IoSlice::new(octets)];
        let send = || handle.driver.send(&handle.socket, &from, crate::layer::To::default());
        handle.until(Ready::WRITABLE, &handle.write_timeout, send).map(drop)
    }

    /// Returns what this member hears next, waiting for it; `None` once it has left, and the others
    /// have what it has sent.
    ///
    /// # Errors
    /// `ENETDOWN` if the conversation is over.
    pub fn recv(&self) -> io::Result<Option<Heard>> {
        let handle = &*self.handle;
        let mut octets = Vec::new();
        let received = handle.until(Ready::READABLE, &handle.read_timeout, || {
            let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
            let next = handle.driver.receive(&handle.socket, &mut [], true)?;
            octets.resize(next.length, 0);
            handle.driver.receive(&handle.socket, &mut [IoSliceMut::new(&mut octets)], false)
        })?;
        octets.truncate(received.octets);
        let Some(front) = octets.first_chunk().map(Front::parse) else {
            return Err(invalid("a record without its front"));
        };
        Ok(match front.kind {
            LEFT => None,
            MESSAGE => Some(Heard::Message {
                from: front.member.into(),
                octets: octets.split_off(Front::OCTETS),
                depth: front.depth,
            }),
            WANTED => Some(Heard::Returned(Returned {
                member: front.member.into(),
                start: front.depth as u16,
            })),
            STATE => Some(Heard::State(octets.split_off(Front::OCTETS))),
            _ => Some(Heard::View { members: front.members, has_quorum: front.has_quorum != 0 }),
        })
    }

    /// Sends nothing from now on. [`recv`](Self::recv) returns `None` once the others have all that
    /// was sent, after ten seconds at most.
    ///
    /// # Errors
    /// If the stack has ended.
    pub fn leave(&self) -> io::Result<()> {
        self.handle.set(Setting::Leave)
    }

    /// Gives a state of at most 16 MiB to a member that has come back.
    ///
    /// # Errors
    /// `EINVAL` for a longer one; if the stack has ended.
    pub fn give(&self, to: Returned, state: &[u8]) -> io::Result<()> {
        if state.len() > STATE_MAX {
            return Err(invalid("a state has at most 16 MiB"));
        }
        self.handle.set(Setting::State(to.member as u8, to.start, state.into()))
    }

    /// Sets whether calls fail with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    /// None.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.handle.set_nonblocking(on);
        Ok(())
    }
}

impl<D: Driver> Source for Conversation<D> {
    fn status(&self) -> &Shown {
        self.handle.shown()
    }
}

impl<D: Driver> fmt::Debug for Conversation<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("addr", &self.handle.local()).finish()
    }
}
