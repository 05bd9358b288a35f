//! # Synopsis
//! `directory objinv objmove eid=7` — a directory that is an object: it moves to the host that
//! invokes it most.
//!
//! # Participants
//! It opens the first layer below with the object, and with the host `to` if that is given. On this
//! layer it enables the object if it `holds` it at first, otherwise objects of any number; on the
//! second layer, by which objects arrive, it enables all.
//!
//! # Behaviour
//! It invokes the object `count` times, one after the other, `interval` apart. An invocation enters
//! the caller's name, its own number, and the caller's host. The reply is the number of entries so
//! far.
//!
//! The object has the state of the directory: the number of its entries, the last number of each of
//! the 64 newest callers, and the hosts of the last 16 invocations. Once another host has made
//! `worth` more of these than this one, so many remote calls cost more than a move, and the object
//! moves there. If the move fails, the hosts are counted from the beginning.
//!
//! An entry whose number is not above the last one of its caller was executed twice; a reply whose
//! number is not above the one before shows that entries were lost.
//!
//! It reports `invoked`, and of these `local` ones, made while the object was here, and `remote`
//! ones; `failed`, with the last error (`why`), and `lost`; and for an object that is here its
//! `entries`, those made `twice`, and its `moves`. It has finished when it has made all
//! invocations, and has failed if an invocation failed, or was executed twice, or entries were
//! lost.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim       link=lan
//!     eth       sim
//!     arp       eth
//!     ip        arp { address "10.0.0.1/24"; }
//!     fragment  ip
//!     channel   fragment
//!     objloc    channel nodes="10.0.0.2, 10.0.0.3"
//!     objinv    objloc
//!     objmove   objinv
//!     directory objinv objmove eid=7 holds=#true
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod entries;
mod protocol;

pub use entries::{Entries, MEMBERS_MAX, RECENT};
pub use protocol::{Directory, build};

use protocol::Settings;
use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("directory", include_str!("lib.rs"), build)
    .summary("a directory that is an object, and moves to the host that invokes it most")
    .on(&[Realm::Rpc], &[Family::Other("objects"), Family::Other("moves")])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .parameters(Settings::PARAMETERS)
    .questions(&[question("report", "invocations, and the entries of an object that is here")]);
