//! Remote procedure calls over a graph.
//!
//! A [`Stack`] is a running host of a graph file with a layer of calls at the top: `select` or
//! `mrpc`, which name a procedure by its number, or a layer of ONC RPC such as `sunprog`, which
//! names program and version as well. A stack offers services and calls peers; the graph chooses
//! the layers below.
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
//! `xk rpcgen FILE.x` compiles a file of the RPC language to Rust. For each version of a program it
//! makes a trait with its procedures, a server, which makes a [`Service`] of any implementation of
//! the trait, and a client with a method for each procedure. `xk_rpcgen::build` does the same from
//! a build script. Without a file, use [`Call::arguments`], [`Reply::of`] and [`Client::invoke`]
//! with any [`xdr::Xdr`].
//!
//! # Waiting
//! A call ends with its reply, with the error of a layer that gave up, or at its deadline
//! ([`Client::DEADLINE`], or [`Client::with_deadline`]). Until the deadline it also waits for a
//! peer that has not started yet, so either side may be started first. [`Client::start`] does not
//! wait and returns a [`Pending`]; it can be waited for, or cancelled from any thread by a
//! [`Canceller`], and dropping it cancels the call. [`Error`] names the layer that gave up, and the
//! reason.
//!
//! # Many calls
//! Half of the stack's shepherds, 512, may wait for replies to calls from other threads. Further
//! calls wait in a queue of 4096. If that is full, a call waits for room until its deadline, and
//! then fails with [`ErrorKind::Full`].
//!
//! # Many hosts
//! [`Client::broadcast`] calls all hosts of a network at once. Its [`Replies`] iterate over the
//! answers that come until the deadline.
//!
//! # What drives the stack
//! A stack of [`Setup::thread`] (or [`Stack::from_file`]) has a thread of its own; many threads may
//! use its handles at once. A stack of [`Setup::here`] runs on the thread that made it, while that
//! thread waits for a call or serves; no other thread takes part.
//!
//! # Services
//! A service is executed on the stack's thread: see [`Service`]. A service that has a client of its
//! own stack keeps the stack running until its [`Server`] is dropped. If a service panics, its
//! caller gets a system error.

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
