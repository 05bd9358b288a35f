//! # Synopsis
//! `groupcall LOWER [replies=N] [majority=#true]` — calls to all members of a conversation, which
//! wait for the replies of all, of a majority or of some.
//!
//! # Participants
//! - `open`: those of the layer below, with the procedure on top of a peer: `process1`, and
//!   `procedure3@process7@10.0.0.2, process7@10.0.0.3`.
//! - `open_enable`: `procedure3@process7`, or `*` for all procedures and processes.
//!
//! # Behaviour
//! A call is one message of the conversation, which all other members execute, once each, in the
//! order that the layer below provides: on `order` all calls in one order, on `psync` each after
//! the messages that the caller had when it called. A member that executes slowly delays the
//! messages behind the call. If it calls in the same conversation meanwhile, that call waits for
//! members that may be waiting for it.
//!
//! Replies go to the caller alone, outside the conversation. Members that have not replied are
//! reminded after `first_wait`, then after doubled intervals of up to `wait_max`, and send their
//! reply again if they have one. For each caller and procedure they keep the replies to the last 64
//! calls, up to 256 KiB, until the caller's next call or reminder says that these are over.
//!
//! The call ends when it has enough replies: of each other member that is not masked out, of
//! `replies` members, or with `majority` of more than half of the others, masked out or not. The
//! attribute `want` of a request overrides this for one call. A refusal counts as a reply; a call
//! of a procedure that a member does not serve, or whose reply is too big for the layer below, is
//! refused. The caller gets the first reply that is no refusal, or the reason of the first refusal.
//! When fewer members are left than replies are wanted, the call is refused: `too few members`. At
//! the deadline of its `call-options`, or after `total`, it times out: then some members may have
//! executed it, and others may yet.
//!
//! A call with the attribute `gather` returns the first reply at once, further calls the others one
//! by one, until there are as many as are wanted. Replies that came in time may be fetched up to 10
//! s after the deadline.
//!
//! At most 64 calls of a session are under way. A reply to no call, or of a member that has
//! replied, is dropped, and so is a reminder of a call that is still being executed, over, or
//! forgotten; a reply is sent once in 40 ms at most. So a member can only make others repeat what
//! they have sent it, and store no more than its share of replies. It can lie in its own reply.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim       link=lan
//!     eth       sim
//!     arp       eth
//!     ip        arp { address "10.0.0.1/24"; }
//!     psync     ip
//!     order     psync
//!     groupcall order majority=#true
//!     caller    groupcall to="procedure1@process7@10.0.0.2, process7@10.0.0.3" size=64
//! }
//! ```
//!
//! # Standard
//! None. Cooper, "Replicated Distributed Programs" (1985), for calls of one to many; Hutchinson and
//! Peterson, "The x-Kernel", section V.C, for the conversations that carry them.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod calls;
mod protocol;
pub mod replies;
pub mod served;
pub mod wire;

pub use protocol::{GroupCall, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("groupcall", include_str!("lib.rs"), build)
    .summary("calls to all members of a conversation; replies of all, of most or of some")
    .above(Family::Other("procedures"))
    .on(&[Realm::Async], &[Family::Other("processes")])
    .needs(Guarantees::SESSIONS.and(Guarantees::PARTIAL))
    .service(Service::adding(Guarantees::MANY))
    .header_octets(wire::HEADER_OCTETS)
    .takes_peers()
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("my-procedure", "the procedure that a session stands for"),
        question("gathers-replies", "of a session that calls: it gives the replies of all"),
        question("calls-at-once", "of a session that calls: 64"),
        question("cancel-call", "ends the wait of the call with this tag"),
        question("mask-out", "of a session: counts a member no longer"),
    ])
    .reasons(&[
        &calls::NO_CALL, &calls::REPEATED_REPLY, &calls::TOO_MANY_CALLS, &calls::TOO_FEW,
        &protocol::REPEATED, &protocol::NO_REPLY]);
