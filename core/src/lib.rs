//! The x-kernel architecture: protocol and session objects with one uniform
//! interface, the messages that move through them, and the tools they share.
//!
//! This crate names no protocol and holds no clock, no I/O, no thread and no
//! source of randomness: time and random bits come in through [`Kernel`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod control;
pub mod event;
pub mod graph;
pub mod kernel;
mod key;
pub mod map;
pub mod message;
mod nodes;
pub mod numbers;
pub mod object;
pub mod participant;
pub mod random;
pub mod reason;
pub mod secret;
pub mod shepherd;
pub mod time;
pub mod trace;
mod waits;
pub mod wire;

pub use control::{Answer, Ask, Question};
pub use graph::Entry;
pub use kernel::Kernel;
pub use key::name_key;
pub use message::{Message, Pool};
pub use nodes::Node;
pub use object::{Protocol, ProtocolRef, Session, SessionRef, Upper};
pub use participant::{HostAddr, Part, Participant, Participants, PeerName};
pub use reason::Reason;
pub use secret::Secret;
pub use time::Time;
