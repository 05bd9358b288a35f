//! The octets, in network order: a request of any kind has a [`Header`], and the reply to it, by
//! the layer below, a [`Reply`].

use crate::held::Invoked;
use xk_kit::rpc::invoke::Manner;

/// The only version.
pub const VERSION: u8 = 1;
/// The largest number of a machine. The two above it are no machines.
pub const MACHINE_MAX: u16 = 253;
/// Machine of operations that do nothing.
pub const NOOP: u16 = 254;
/// Machine of operations that there are not.
pub const NULL: u16 = 255;

/// Message: a machine says where it is, with the ticket of the host that it tells as operation; or
/// with a token it asks where an invocation is. From [`NULL`] it asks only whether this is the
/// machine.
pub const HELLO: u8 = 1;
/// Message: where is the machine whose number stands as operation?
pub const LOCVM: u8 = 2;
/// Message: an invocation.
pub const INVOKE: u8 = 5;
/// Message: the result of an invocation.
pub const RESULT: u8 = 6;
/// Message: a machine is idle; its ledger follows.
pub const IDLE: u8 = 8;
/// Message: the program has ended.
pub const STOP: u8 = 9;

xk_kit::header! {
    /// Beginning of each request.
    pub struct Header {
        /// Always [`VERSION`].
        pub version: u8,
        /// Kind of the message.
        pub message: u8,
        /// Process of the caller, or status of a result.
        pub process: u8,
        /// Hops (upper four bits) and manner of an invocation.
        pub manner: u8,
        /// Machine of the first caller of an invocation, or of the sender.
        pub origin: u16,
        /// Machine that it is for.
        pub destination: u16,
        /// The operation.
        pub operation: u32,
        /// Token of the first caller.
        pub token: u32,
        /// Number of the invocation among those of its process on this machine, from 1; of one that
        /// was forwarded the machine that did so.
        pub order: u32,
        /// Octets behind the header.
        pub octets: u32,
    }
}

impl Header {
    /// A message without octets.
    #[must_use]
    pub const fn of(message: u8, origin: u16, destination: u16) -> Self {
        Self {
            version: VERSION,
            message,
            process: 0,
            manner: 0,
            origin,
            destination,
            operation: 0,
            token: 0,
            order: 0,
            octets: 0,
        }
    }

    /// An invocation, of so many octets.
    #[must_use]
    pub const fn invoke(invoked: &Invoked, destination: u16, octets: u32) -> Self {
        let Invoked { manner, origin, process, hops, operation, token, order } = *invoked;
        let manner = hops << 4 | manner as u8;
        let header = Self::of(INVOKE, origin, destination);
        Self { process, manner, operation, token, order, octets, ..header }
    }

    /// The result of an invocation, from the machine `own`.
    #[must_use]
    pub const fn result(invoked: &Invoked, own: u16, status: u8, octets: u32) -> Self {
        let from = Invoked { origin: own, process: status, hops: 0, ..*invoked };
        Self { message: RESULT, ..Self::invoke(&from, invoked.origin, octets) }
    }

    /// The machine that sends it.
    #[must_use]
    pub const fn sender(&self) -> u16 {
        let is_forwarded = self.message == INVOKE && self.manner >> 4 > 0;
        if is_forwarded { self.order as u16 } else { self.origin }
    }

    /// The invocation, if its manner is one.
    #[must_use]
    pub fn invoked(&self) -> Option<Invoked> {
        let manner = Manner::of(self.manner & 0x0f)?;
        let Self { origin, process, operation, token, order, .. } = *self;
        Some(Invoked { manner, origin, process, hops: self.manner >> 4, operation, token, order })
    }
}

xk_kit::header! {
    /// Reply of the layer below to a message.
    pub struct Reply {
        /// Always [`VERSION`].
        pub version: u8,
        /// [`TAKEN`], [`FORWARDED`], [`UNKNOWN`], or number of a reason.
        pub status: u8,
        /// Machine to which an invocation was forwarded.
        pub machine: u16,
    }
}

/// Status: taken, known, or executed.
pub const TAKEN: u8 = 0;
/// Status: forwarded to the machine in the reply.
pub const FORWARDED: u8 = 1;
/// Status: the sender is not known. Its host is to say which machine it is, with the ticket that
/// follows.
pub const UNMET: u8 = 253;
/// Status: the program has ended.
pub const STOPPED: u8 = 254;
/// Status: not known here.
pub const UNKNOWN: u8 = 255;

#[cfg(test)]
mod tests;
