//! # Synopsis
//! `procedures LOWER` — serves the six procedures that tests and measurements of RPC call.
//!
//! # Participants
//! Those that the layer below enables: `at`, unchanged; `*` for any procedure.
//!
//! # Behaviour
//! It enables itself below. Each request is executed on the shepherd that brought it, by the number
//! of its procedure:
//!
//! | number | procedure | does |
//! | --- | --- | --- |
//! | 0 | null | takes nothing, replies nothing |
//! | 1 | echo | replies the octets of the request |
//! | 2 | sink | takes octets, replies nothing |
//! | 3 | source | replies an XDR `opaque<>` of as many octets as the argument says, an XDR `unsigned int` of at most `source_max` |
//! | 4 | relay | calls `relay` with the request, and replies what that replies; without `relay` there is no such procedure |
//! | 5 | sleep | blocks for as many milliseconds as the argument says, an XDR `unsigned int`; for `sleep_max` at most |
//!
//! Every other number is refused with "no such procedure", an invalid argument with "garbage
//! arguments". While `concurrency` requests are being executed, the next one is refused with
//! "server busy". If the call of `relay` is refused, its reason is passed on; without an answer the
//! reason is "system error".
//!
//! `graphs/procedures.x` describes them as a program of ONC RPC. Echo, sink and relay accept any
//! octets, so over other stacks these need not be XDR.
//!
//! Its `report` also has `executing` and `executing at most`.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.2/24"; }
//!     fragment   ip
//!     channel    fragment
//!     select     channel
//!     procedures select
//! }
//! ```
//!
//! # Standard
//! None; RFC 4506 for the arguments of source and sleep.
#![no_std]

extern crate alloc;

mod execute;
mod protocol;

pub use protocol::{Procedures, Settings, add, build};

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm};

/// The procedures by number.
pub mod number {
    /// Takes nothing, replies nothing.
    pub const NULL: u32 = 0;
    /// Replies the octets of the request.
    pub const ECHO: u32 = 1;
    /// Takes octets, replies nothing.
    pub const SINK: u32 = 2;
    /// Replies as many octets as the argument says.
    pub const SOURCE: u32 = 3;
    /// Calls a further server.
    pub const RELAY: u32 = 4;
    /// Blocks for as many milliseconds as the argument says.
    pub const SLEEP: u32 = 5;
}

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("procedures", include_str!("lib.rs"), build)
    .summary("serves the six procedures that tests and measurements of RPC call")
    .on(&[Realm::Rpc], &[Family::Any])
    .needs(Guarantees::ENABLE)
    // The number of `caller`, on a layer that tells its uppers by number.
    .numbers(&[("channel", 253)])
    .parameters(Settings::PARAMETERS)
    .questions(&[question("report", "requests executed by procedure and refused by reason")]);
