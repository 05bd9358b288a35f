//! The registry server and the protocol library ("Implementing Network Protocols at User Level",
//! sections 3.1 and 3.4).
//!
//! The [`Registry`] stands in a trusted part, beside the transports and above the network I/O
//! module (`xk-netio`). A [`Program`] has what stands for a transport and for the registry, across
//! a cut (`xk-share`), and a stack of its own above a channel of the module. Its [`Library`] opens
//! and listens at the registry's transport, which has the ports and does the handshakes. Once a
//! conversation has begun the registry has its session tell its headers, grants a right for these
//! at the module, and keeps the ends; the session's whole state then moves to the program's own
//! transport ([`move_session`](xk_kit::net::moving::move_session)). From there on its frames go
//! through nothing but the module.
//!
//! One that only waits for late segments (TIME-WAIT) is given back. When a program dies, its
//! channel is revoked and each of its peers is reset: an open between the same ends finds the
//! connection half open, and the peer's answer says by which numbers it ends (RFC 9293, section
//! 3.5.1).
//!
//! A program learns the station of a peer with the right, and keeps it: if the peer is reached by
//! another one later, the conversation hears nothing more.

#![no_std]

extern crate alloc;

mod library;
mod membership;
mod program;
mod questions;
mod registry;
mod stations;

pub use library::{Library, NOT_MOVED};
pub use program::{Program, ProgramError};
pub use questions::{EndRight, GiveBack, OpenChannel, QUESTIONS, REASONS, TakeOver};
pub use registry::{PROGRAMS_MAX, RIGHTS_MAX, Registry, STATE_OCTETS_MAX, add};

/// The kind of the registry in a graph.
pub(crate) const KIND: &str = "registry";
