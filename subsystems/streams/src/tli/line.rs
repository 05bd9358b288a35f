//! # Synopsis
//! `tli LOWER ...` — the transport interface of STREAMS above protocols that are not of STREAMS:
//! programs open endpoints there as they do on lines of STREAMS.
//!
//! # Participants
//! Addresses of TPI, sixteen octets: a `sockaddr_in` on `udp` and `tcp`, a `sockaddr_at` on `ddp`
//! and `atp`.
//!
//! # Behaviour
//! Programs use it by [`Endpoint::open`](super::Endpoint::open) and the others. Any number of
//! protocols with ports or AppleTalk's sockets stand below: `udp`, `tcp`, `ddp`, `atp`. Those of
//! another framework get an adapter; those of STREAMS do not need this line.
//!
//! The driver that a program opens has the name of the adapter's node: `tli/udp` for `tli udp`.
//! `tcp` is a provider of connections with orderly release (T_COTS_ORD), the others are providers
//! of datagrams (T_CLTS).
//!
//! A connection exists below before its indication comes up: accepting it takes it over, and
//! refusing it resets it. If the stream head is full, data stay below, and the window closes there.
//! If there is no room below, data wait in the stream, and `snd` waits or answers TFLOW. A released
//! connection goes on until the peer has all data; if it is closed before that, it is reset.
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
//!     subsystem streams { tli udp tcp; }
//! }
//! ```
//!
//! # Standard
//! The Open Group, "Transport Provider Interface" (1997). Not covered: expedited data, data with a
//! connection's beginning or end, options.

use crate::streams::Streams;
use alloc::string::String;
use alloc::vec::Vec;
use xk_core::control::{Report, question};
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm};
use xk_core::{Answer, Ask, Entry, Kernel, Protocol, ProtocolRef};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("tli", include_str!("line.rs"), build)
    .subsystem("streams")
    .summary("the transport interface above protocols that are not of STREAMS, for programs")
    .on(&[Realm::Async, Realm::Rpc], &[Family::Port, Family::Other("AppleTalk sockets")])
    .lowers(1..=16)
    .needs(Guarantees::SESSIONS)
    // AppleTalk leaves the types from 16 on to others.
    .numbers(&[("ddp", 121)])
    .questions(&[question("report", "what it stands on")]);

/// The line: the adapters below it do the work.
struct Tli {
    lowers: Vec<ProtocolRef>,
}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    if Streams::of(build.cx).is_none() {
        return Err(crate::host::missing());
    }
    build.add(Tli { lowers: build.lowers.to_vec() })
}

impl Protocol for Tli {
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
