//! # Synopsis
//! `printer ATP [NBP]` — a printer like Apple's LaserWriter: takes jobs by PAP, and counts what it
//! would print.
//!
//! # Participants
//! It enables `socket130`, or the one given by `socket`, and calls the workstations from there.
//!
//! # Behaviour
//! With `nbp` it registers its socket under the name `entity`. It tells its status to every node
//! that asks, and has one connection at a time; another node is told that the printer is busy, and
//! tries again. The printer asks the workstation for data, `quantum` packets at once, until the
//! last one has come. Then the job counts as printed, and the workstation, which reads from the
//! printer, gets an end of file. If a workstation does not answer `tries` times, its job is
//! dropped.
//!
//! Its `report` has `jobs`, `octets` of them, their `sum` (that of DDP), `busy` (opens that were
//! refused), `failed` jobs, `named` (1 once its name is registered).
//!
//! # Example
//! ```kdl
//! host printer {
//!     sim     link=lan
//!     eth     sim
//!     aarp    eth
//!     ddp     aarp net="10-19" node=18
//!     atp     ddp
//!     printer atp
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 10. Not covered: serving in the order of arrival;
//! messages of the printer other than its status.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod job;
mod pap;
mod print;
mod protocol;

pub use print::Print;
pub use protocol::Printer;

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, optional, text};

const REALMS: &[Realm] = &[Realm::Rpc, Realm::Control];

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("printer", include_str!("lib.rs"), protocol::build)
    .summary("a printer of AppleTalk: takes jobs by PAP, and counts them")
    .on(REALMS, &[Family::Any])
    .lowers(1..=2)
    .needs(Guarantees::NONE)
    .parameters(protocol::Settings::PARAMETERS)
    .questions(&[question("report", "jobs, octets of them, and what went wrong")]);

/// The catalog entry of the client.
#[rustfmt::skip]
pub static PRINT_ENTRY: Entry = Entry::top("print", include_str!("print.rs"), print::build)
    .summary("prints on a printer of AppleTalk, which it finds by its name")
    .on(REALMS, &[Family::Any])
    .lowers(1..=2)
    .needs(Guarantees::NONE)
    .parameters(print::Settings::PARAMETERS)
    .questions(&[question("report", "jobs printed, octets of them, and what went wrong")]);

/// A parameter that is a name.
pub(crate) const fn name(
    default: &'static str,
    meaning: &'static str,
) -> xk_core::graph::ParamSpec {
    text("entity", "a name, such as laser:LaserWriter@*", default, meaning)
}

/// A parameter that is a participant.
pub(crate) const fn to(meaning: &'static str) -> xk_core::graph::ParamSpec {
    optional("to", ParamKind::Participant("socket130@node18@net10"), meaning)
}
