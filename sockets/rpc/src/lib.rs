//! Remote procedure calls over a graph.
//!
//! A [`Stack`] is one host of a graph file, running, with a layer that takes calls: `select` or
//! `mrpc`, which name a procedure by its number, or `sunprog` and its like, which name program and
//! version, too. On it services are offered and peers are called; which layers lie below is the
//! graph's business.
//!
//! ```no_run
//! use xk_rpc::{Call, Refusal, Reply, Stack};
//!
//! # fn main() -> Result<(), xk_rpc::Error> {
//! // One process serves, by number and octets,
//! let host = r#"shm path="calls.sock"; channel shm; select channel"#;
//! let stack = Stack::from_text(format!("host server {{ {host}; }}"), xk_catalog::PROTOCOLS)?;
//! let server = stack.serve(|call: &Call<'_>| match call.procedure() {
//!     1 => Ok(Reply::from(call.octets().to_ascii_uppercase())),
//!     _ => Err(Refusal::NoProcedure),
//! })?;
//!
//! // and another one calls.
//! let stack = Stack::from_text(format!("host client {{ {host}; }}"), xk_catalog::PROTOCOLS)?;
//! let client = stack.client("")?;
//! assert_eq!(client.call(1, b"hello")?, b"HELLO");
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//! `xk rpcgen FILE.x` makes Rust of a file of the RPC language: for each version of a program a
//! trait of its procedures, a server that is a [`Service`] of whatever implements it, and a client
//! with a method for each. By hand it is [`Call::arguments`], [`Reply::of`] and [`Client::invoke`]
//! with any [`xdr::Xdr`]. `xk_rpcgen::build` does the same from a build script.
//!
//! # Waiting
//! A call ends: with its reply, with what a layer gives up for, or at its deadline, which is
//! [`Client::DEADLINE`] unless [`Client::with_deadline`] says otherwise. Until then it also waits
//! for a peer that is not there yet, so it does not matter which side is started first.
//! [`Client::start`] does not wait: its [`Pending`] is waited for, or taken back from any thread by
//! a [`Canceller`]; dropping it takes the call back. [`Error`] says which layer gave up, and why.
//!
//! # Many calls
//! Half of the stack's shepherds may wait for replies to calls from other threads, 512 of them.
//! Calls beyond that wait in a queue of 4096; a call that finds that full waits for room until its
//! deadline, and gets [`ErrorKind::Full`].
//!
//! # Many hosts
//! [`Client::broadcast`] calls all hosts of a network at once, and its [`Replies`] are an iterator
//! over what each of them answers until the deadline.
//!
//! # What drives the stack
//! A stack of [`Setup::thread`] (or [`Stack::from_file`]) has a thread of its own; all handles may
//! be used by many threads at once. One of [`Setup::here`] is driven by the thread that made it,
//! while that waits for a call or runs it: no other thread takes part.
//!
//! # Services
//! They are executed on the stack's thread: see [`Service`]. A service that holds a client of its
//! own stack keeps that running until its [`Server`] is dropped. A panic in a service is a system
//! error to its caller.

mod client;
mod error;
mod reactor;
mod replies;
mod server;
mod setup;
mod stack;

pub use client::{Canceller, Client, Pending};
pub use error::{Error, ErrorKind};
pub use replies::{HostReply, Replies};
pub use server::{Call, Later, Program, Promise, Refusal, Reply, Server, Service};
pub use setup::Setup;
pub use stack::{Here, Stack};
pub use xk_core::Entry;
pub use xk_core::object::{CallCause, OpenError, Rejection};
pub use xk_kit::rpc::call::Caller;
pub use xk_run::Idle;
pub use xk_xdr as xdr;
