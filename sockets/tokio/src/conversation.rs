//! Conversations of several members.

use crate::Stack;
use crate::task::{Awaited, Direction};
use std::io;
use std::net::SocketAddr;
use xk_net::{Driver, Heard, Joining, Thread};

/// One member's end of a conversation.
pub struct Conversation<D: Driver = Thread>(Awaited<xk_net::Conversation<D>>);

impl<D: Driver> Conversation<D> {
    /// Joins the conversation of these hosts and ports, of which this is the one with the index
    /// `me` ([`xk_net::Conversation::join`]).
    ///
    /// # Errors
    /// `EINVAL`, `EPROTONOSUPPORT` if the graph has no such layer, `EADDRINUSE`.
    pub fn join(
        stack: &Stack<D>,
        members: &[SocketAddr],
        me: usize,
        joining: Joining,
    ) -> io::Result<Self> {
        let conversation = xk_net::Conversation::join(stack, members, me, joining)?;
        conversation.set_nonblocking(true)?;
        Ok(Self(Awaited::new(conversation)))
    }

    /// The underlying conversation. It does not block.
    pub fn get_ref(&self) -> &xk_net::Conversation<D> {
        &self.0.socket
    }

    /// Sends a message to all members.
    ///
    /// # Errors
    /// As of [`xk_net::Conversation::send`].
    pub async fn send(&self, octets: &[u8]) -> io::Result<()> {
        self.0.wait(Direction::Write, |conversation| conversation.send(octets)).await
    }

    /// Returns what this member hears next; `None` once it has left.
    ///
    /// # Errors
    /// `ENETDOWN` if the conversation is over.
    pub async fn recv(&self) -> io::Result<Option<Heard>> {
        self.0.wait(Direction::Read, xk_net::Conversation::recv).await
    }
}
