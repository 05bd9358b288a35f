//! Programs on several hosts that receive the same messages in the same order.
//!
//! Each program joins a [`Group`] with one list of members. All members receive the messages that
//! one of them sends, the sender included; with [`Options::total`] all receive them in one order.
//! So programs that begin alike and only act on messages stay alike, whatever the network loses.
//!
//! ```
//! use std::{cell::RefCell, collections::HashSet, rc::Rc, time::Duration};
//! use xk_group::{Event, Group, Options};
//! use xk_world::{Result, Stack, World};
//!
//! const HOSTS: [&str; 3] = ["a:4000", "b:4000", "c:4000"];
//!
//! /// Each member says a number; all come to the same text.
//! async fn agree(stack: Stack, me: usize) -> Result<String> {
//!     let mut group = Group::join(&stack, Options::total(me, &HOSTS)?)?;
//!     group.send(&[b'x' + me as u8]).await?;
//!     let mut text = String::new();
//!     while text.len() < HOSTS.len() {
//!         if let Event::Message { octets, .. } = group.recv().await? {
//!             text.push(octets[0].into());
//!         }
//!     }
//!     group.leave().await?;
//!     Ok(text)
//! }
//!
//! xk_world::seeds(0..20, |seed| {
//!     let mut world = World::lan(seed, &["a", "b", "c"], r#"delay="2ms" loss="20%""#)?;
//!     let texts = Rc::new(RefCell::new(HashSet::new()));
//!     for (me, host) in ["a", "b", "c"].into_iter().enumerate() {
//!         let texts = texts.clone();
//!         world.client(host, move |stack| {
//!             let texts = texts.clone();
//!             async move {
//!                 let text = agree(stack, me).await?;
//!                 texts.borrow_mut().insert(text);
//!                 Ok(())
//!             }
//!         })?;
//!     }
//!     let outcome = world.run(Duration::from_secs(60))?;
//!     assert_eq!(texts.borrow().len(), 1);
//!     Ok(outcome)
//! });
//! ```
//!
//! # Layers
//! The graph of the stack has `psync` for a group in partial order, and `order` on it for one in
//! total order; with `safe=#true` of `order` a message is received once all members have it. With
//! `membership` between the two the others go on without a member that fails, and learn of it by
//! [`Event::View`]; the hosts of `World::lan` do not have it. A member's port on `udp` is also the
//! number of its process. The first of the list opens the conversation; until the others hear of
//! it, their messages wait.
//!
//! # Return
//! On `membership` a program that was started again joins with the same list and
//! [`Options::returning`]. The others let it in at one place in the order. With
//! [`Options::with_state`] they hear [`Event::Returned`] there, and each [gives](Group::give) its
//! state; the member hears one of these as [`Event::State`], and then what the others hear behind
//! that place. A member whose `recv` or `send` fails with `ENETDOWN` was cut off, and joins again
//! in the same way.
//!
//! # Bounds
//! A program that does not take its events makes the others wait: 256 of them are kept, and as many
//! messages of each member as the window of `psync` says. A message has 16 KiB at most, less if the
//! layer below takes less. For `membership` a member that takes nothing for eight seconds has
//! failed.
//!
//! # Ends
//! A member that only drops its group may lose the last messages that it has sent, and the others
//! wait for it: instead it [leaves](Group::leave). All that stay receive all of its messages, learn
//! by [`Event::View`] that it has left, and wait for it no longer.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use xk_net::{Driver, Joining, Stack};

pub use xk_net::{Heard as Event, Returned};

/// Order in which members hear messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each after those that its sender had heard or sent; others may come in another order at
    /// another member.
    Partial,
    /// All in one order.
    Total,
}

/// Members and order of a group, alike at all members but for [`me`](Self::me).
#[derive(Clone, Debug)]
pub struct Options {
    /// The order of messages.
    pub order: Order,
    /// Host and port of each member; the first opens the conversation.
    pub members: Vec<SocketAddr>,
    /// Index of this member.
    pub me: usize,
    /// Whether this member comes back: then the others let it in, and also the first opens nothing.
    pub returns: bool,
    /// Whether members that come back are given the state of the others.
    pub has_state: bool,
}

impl Options {
    /// A group of these members that hear all messages in one order.
    ///
    /// # Errors
    /// If the name of a host is not known.
    pub fn total(me: usize, members: &[impl ToSocketAddrs]) -> io::Result<Self> {
        Self::of(Order::Total, me, members)
    }

    /// A group of these members that hear each message after its causes.
    ///
    /// # Errors
    /// If the name of a host is not known.
    pub fn partial(me: usize, members: &[impl ToSocketAddrs]) -> io::Result<Self> {
        Self::of(Order::Partial, me, members)
    }

    fn of(order: Order, me: usize, members: &[impl ToSocketAddrs]) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, "a member without address");
        let mut found = Vec::with_capacity(members.len());
        for member in members {
            found.push(member.to_socket_addrs()?.next().ok_or_else(unknown)?);
        }
        Ok(Self { order, members: found, me, returns: false, has_state: false })
    }

    /// Has a member that comes back given the state of the others: they hear
    /// [`Event::Returned`], and the member [`Event::State`]. All members have to say so.
    #[must_use]
    pub fn with_state(self) -> Self {
        Self { has_state: true, ..self }
    }

    /// Has this member come back after its program, or its host, was started again.
    #[must_use]
    pub fn returning(self) -> Self {
        Self { returns: true, ..self }
    }

    fn joining(&self) -> Joining {
        let in_order = self.order == Order::Total;
        Joining { in_order, returns: self.returns, has_state: self.has_state }
    }
}

fn left() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this member has left the group")
}

macro_rules! group {
    ($conversation:ty, $join:path $(, $async:ident, $await:ident)?) => {
        /// A member of a group.
        pub struct Group<D: Driver>($conversation);

        impl<D: Driver> fmt::Debug for Group<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("Group").finish_non_exhaustive()
            }
        }

        impl<D: Driver> Group<D> {
            /// Joins a group.
            ///
            /// # Errors
            /// `EINVAL` for too few or too many members, `EPROTONOSUPPORT` if the graph has no
            /// layer for this order, `EADDRINUSE` for a port that is in use.
            pub fn join(stack: &Stack<D>, options: Options) -> io::Result<Self> {
                $join(stack, &options.members, options.me, options.joining()).map(Self)
            }

            /// Sends a message to all members. Waits until the conversation has begun, and while
            /// others lack too many messages of this member.
            ///
            /// # Errors
            /// `EMSGSIZE` for a message that is too long, `ENETUNREACH` without a quorum.
            pub $($async)? fn send(&self, octets: &[u8]) -> io::Result<()> {
                self.0.send(octets)$(.$await)?
            }

            /// Waits for the next event.
            ///
            /// # Errors
            /// `ENETDOWN` if the stack has ended.
            pub $($async)? fn recv(&mut self) -> io::Result<Event> {
                self.0.recv()$(.$await)??.ok_or_else(left)
            }

            /// Gives a state of at most 16 MiB to a member that has come back: the one after all
            /// events before [`Event::Returned`].
            ///
            /// # Errors
            /// `EINVAL` for a longer one, `ENETDOWN` if the stack has ended.
            pub fn give(&self, to: Returned, state: &[u8]) -> io::Result<()> {
                conversation(&self.0).give(to, state)
            }

            /// Leaves the group, once the others have all that this member has sent, after ten
            /// seconds at most. What is heard meanwhile is lost.
            ///
            /// # Errors
            /// `ENETDOWN` if the stack has ended.
            pub $($async)? fn leave(self) -> io::Result<()> {
                conversation(&self.0).leave()?;
                while self.0.recv()$(.$await)??.is_some() {}
                Ok(())
            }
        }
    };
}

/// Groups for blocking programs.
pub mod blocking {
    use super::{Driver, Event, Options, Returned, Stack, fmt, io, left};
    use xk_net::Conversation;

    fn conversation<D: Driver>(own: &Conversation<D>) -> &Conversation<D> {
        own
    }

    group!(Conversation<D>, Conversation::join);
}

fn conversation<D: Driver>(own: &xk_tokio::Conversation<D>) -> &xk_net::Conversation<D> {
    own.get_ref()
}

group!(xk_tokio::Conversation<D>, xk_tokio::Conversation::join, async, await);
