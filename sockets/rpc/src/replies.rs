//! The replies of many hosts to one call.

use crate::client::{Begun, Client};
use crate::error::{Error, ErrorKind};
use crate::reactor::Answered;
use std::net::IpAddr;
use xk_core::object::CallCause;
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::Gather;
use xk_xdr::Xdr;

/// Reply of one of many hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReply {
    /// The host.
    pub host: IpAddr,
    /// The port that the program has there.
    pub port: u16,
    /// The octets of the reply.
    pub octets: Vec<u8>,
}

impl HostReply {
    /// The reply as a value.
    ///
    /// # Errors
    /// It is none of this type.
    pub fn value<R: Xdr>(&self) -> Result<R, Error> {
        Ok(xk_xdr::from_slice(&self.octets).map_err(ErrorKind::Reply)?)
    }
}

/// The replies to [`Client::broadcast`], one from each host, in the order in which they come. The
/// iterator ends at the client's deadline, or with an error if the call could not be made or
/// continued; dropping it ends the call. The request is sent when the first reply is asked for.
#[must_use]
pub struct Replies {
    client: Client,
    procedure: u32,
    arguments: Vec<u8>,
    begun: Begun,
    next: Gather,
    refused: u64,
    over: bool,
}

impl Replies {
    pub(crate) fn new(
        client: Client,
        (procedure, arguments): (u32, Vec<u8>),
        begun: Begun,
    ) -> Self {
        Self { client, procedure, arguments, begun, next: Gather::First, refused: 0, over: false }
    }

    /// Number of hosts that refused the call, or answered with an invalid reply.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Waits for the next reply, whatever it is.
    fn wait(&mut self) -> Result<Answered, Error> {
        let what = std::mem::replace(&mut self.next, Gather::Next);
        let call = (self.procedure, std::mem::take(&mut self.arguments));
        self.client.begin(call, self.begun, Some(what))?.answered()
    }
}

impl Iterator for Replies {
    type Item = Result<HostReply, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            let error = match self.wait() {
                Ok(Answered { octets, from: Some(Peer { host, port }) }) => {
                    return Some(Ok(HostReply { host: host.into(), port, octets }));
                }
                // No host's: every layer passes on whose it is.
                Ok(Answered { from: None, .. }) => CallCause::BadReply.into(),
                Err(error) => error,
            };
            match error.cause() {
                Some(CallCause::Rejected(_) | CallCause::BadReply) => self.refused += 1,
                Some(CallCause::TimedOut { .. }) => self.over = true,
                _ => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if !self.over {
            self.client.end_broadcast(self.procedure, self.begun.tag);
        }
    }
}
