//! # Synopsis
//! `sockets LOWER ...` — BSD's sockets above protocols that are not BSD's: programs open them there
//! as they do above BSD's own.
//!
//! # Participants
//! Socket addresses: `sockaddr_in` on `udp` and `tcp`, `sockaddr_at` on `ddp` and `atp`.
//!
//! # Behaviour
//! Programs use it by [`socreate`](crate::socreate) and the others. Any number of protocols with
//! ports or AppleTalk's sockets stand below: `udp`, `tcp`, `ddp`, `atp`. Those of another framework
//! get an adapter; those of BSD do not need this line.
//!
//! When the graph starts, each adapter adds an entry to the protocol switch, behind those of BSD's
//! own lines. `socreate` finds it by family, type and number. If several entries have the same,
//! [`Bsd::protocol`](crate::Bsd::protocol) with the adapter's node, `sockets/udp`, and
//! `socreate_on` select one.
//!
//! | below | socket |
//! | --- | --- |
//! | `udp` | `AF_INET`, `SOCK_DGRAM`, 17 |
//! | `tcp` | `AF_INET`, `SOCK_STREAM`, 6 |
//! | `ddp` | `AF_APPLETALK`, `SOCK_DGRAM`, 0; in front of data is the type, that of this line |
//! | `atp` | `AF_APPLETALK`, `SOCK_DGRAM`, 3; options of a transaction go in control information |
//!
//! If the socket's buffer is full, a datagram is dropped and counted at the adapter. A stream has
//! socket buffers in addition to those of the protocol below: `sosend` waits while its data do not
//! fit, and data that `soreceive` has not taken keep the window of the protocol below closed. A
//! socket closed with unsent data sends them in the background; one closed with unread data resets
//! the stream (RFC 2525, section 2.17).
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     eth sim
//!     arp eth
//!     ip arp { address "10.0.0.1/24"; }
//!     udp ip
//!     tcp ip
//!     subsystem bsd { sockets udp tcp; }
//! }
//! ```
//!
//! # Standard
//! None; the socket layer is that of 4.3BSD.

use alloc::string::String;
use alloc::vec::Vec;
use xk_core::control::{Report, question};
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::{Answer, Ask, Entry, Kernel, Protocol, ProtocolRef};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("sockets", include_str!("sockets.rs"), build)
    .subsystem("bsd")
    .summary("BSD's sockets above protocols that are not BSD's, for programs")
    .on(&[Realm::Async, Realm::Rpc], &[Family::Port, Family::Other("AppleTalk sockets")])
    .lowers(1..=16)
    .needs(Guarantees::SESSIONS)
    // AppleTalk leaves the types from 16 on to others.
    .numbers(&[("ddp", 120)])
    .questions(&[question("report", "what it stands on")]);

/// The line: the adapters below it do the work.
struct Sockets {
    lowers: Vec<ProtocolRef>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    crate::of(build.cx)?;
    build.add(Sockets { lowers: build.lowers.to_vec() })
}

impl Protocol for Sockets {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<Report>(|report| {
            let on = self.lowers.iter().map(|lower| (String::from("on"), lower.name().into()));
            report.lines = on.collect();
            report.finished = true;
        })
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.lowers.first()
    }
}
