//! # Synopsis
//! `directory objinv objmove eid=7` — a directory that is an object: it moves to the host that
//! invokes it most.
//!
//! # Participants
//! It opens the first layer below with the object, and with the host `to` if that is given. It
//! enables the object there if it `holds` it at first, else objects of any number; and all on the
//! second layer, by which objects come.
//!
//! # Behaviour
//! It invokes the object `count` times, one time after the other, with `interval` between. An
//! invocation enters the caller's name, number and host. The reply says how many entries the
//! directory has had.
//!
//! With the object is the directory: the number of its entries, the last number of each of the 64
//! callers that were new last, and the hosts of the last 16 invocations. Once another host has made
//! `worth` more of these than this one, so many calls are cheaper there than a move costs, and the
//! object moves there. If it cannot, the next 16 invocations are counted first.
//!
//! An entry whose number is not above the last one of its caller was executed twice; a reply with a
//! number that is not above the one before has lost entries.
//!
//! It reports `invoked`, and of these `local` ones, made while the object was here, and `remote`
//! ones; `failed` with the error of the last, and `lost`; and of an object that is here `entries`,
//! those made `twice`, and the `moves` that it has made. It has finished when it has invoked
//! the object as often as it should, and has failed if an invocation failed, or was executed twice,
//! or entries were lost.
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
