//! # Synopsis
//! `ltoudp` — LocalTalk in datagrams of UDP multicast: a cable that emulators and other programs on
//! this network share.
//!
//! # Participants
//! None: every frame goes to all.
//!
//! # Behaviour
//! Each frame, without its check sequence, is sent in a datagram to 239.192.76.84, port 1954, with
//! a TTL of 1. In front of it are four octets that name the sender, drawn when the wire starts; by
//! them the wire recognises its own datagrams and ignores them. `interface` is the address of the
//! interface to use; without it the system's routes decide.
//!
//! Datagrams too short or too long for a frame are dropped as "malformed" and "too big". A frame
//! that the system has no room for is dropped as "device full", one that it refuses as "device
//! error"; the wire goes on. Several programs of one host may share the port.
//!
//! # Example
//! ```kdl
//! host one {
//!     ltoudp interface="127.0.0.1"
//!     llap   ltoudp
//!     ddp    llap net=10
//! }
//! ```
//!
//! # Standard
//! None: the format of Mini vMac (LToUDP), which TashRouter and tailtalk use as well.

mod protocol;
mod socket;

pub use protocol::build;
pub use socket::Socket;

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{ParamKind, optional};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::wire("ltoudp", include_str!("lib.rs"), build)
    .summary("LocalTalk in datagrams of UDP multicast")
    .parameters(&[
        optional("interface", ParamKind::Text("an IPv4 address, such as 127.0.0.1"),
            "the address of the interface that it is at; without it, as the system's routes say"),
    ])
    .questions(&[
        question("max-packet", "603 octets"),
        question("opt-packet", "603 octets"),
        question("link-type", "147: a form of its own"),
    ]);
