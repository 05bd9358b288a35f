//! # Synopsis
//! `igmp ip` — the Internet Group Management Protocol, versions 1 to 3, of a host: tells routers of
//! the groups that it is a member of.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! The layer below tells it of every interface, and of every change of the sources that packets to
//! a group are taken from there. Nothing is told of 224.0.0.1, nor of an interface without a host.
//!
//! - *Changes* are reported at once, and again after a random time of at most
//!   `unsolicited_interval`, `robustness` times in all. What changes meanwhile is merged (RFC 3376,
//!   section 5.1). Groups that change at one time share reports, then and later.
//! - *Queries* are answered after a random time within what the router allows, 100 ms at least.
//!   Queries that come meanwhile get the same answer (section 5.2).
//! - *Older routers*: after a general query of version 1 or 2 the interface speaks that version,
//!   for as long as section 8.12 says, and sources are no longer told. Another member's report then
//!   makes ours needless. Of the end of a group hears version 2 alone, from the member that
//!   reported the group last.
//! - A router of version 3 says its robustness and query interval, which hold from then on.
//! - With `querier=#true` it asks for all groups every `query_interval`, `robustness` times at
//!   first in a quarter of that, as a switch that snoops needs it where no router is. It keeps no
//!   table of members, and is silent while another host with a lower address asks.
//! - Packets go with a time to live of 1, in class 0xc0, with the option Router Alert, in reports
//!   that fit the interface. They are not delivered to this host. At most 64 go at once, the next
//!   10 ms later.
//!
//! Version 3 reports of others and all leaves are "not mine". So are packets on interfaces that it
//! does not know.
//!
//! # Security
//! Every host of a link can query, and report groups of its own choice. Answers about all groups
//! are a second apart at least, those about one group 100 ms; these have 64 sources at most, or all
//! of the group. A forged query of version 1 or 2 turns the interface to that version; in these
//! versions, a forged report keeps a host from reporting, until the next query. Queries of versions
//! 2 and 3 without Router Alert, which routers may forward, are dropped, as are general queries to
//! other groups than 224.0.0.1.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     eth  loopback
//!     arp  eth
//!     ip   arp { address "10.0.0.1/24"; group "239.1.2.3"; }
//!     igmp ip
//! }
//! ```
//!
//! # Standard
//! RFC 1112 (version 1), RFC 2236 (version 2), RFC 3376 (version 3), RFC 2113. Not covered: routers
//! (RFC 3376, section 6, but for queries about all groups); version 3 reports that those of older
//! versions suppress (section 7.2.2).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod link;
mod protocol;
pub mod wire;

pub use protocol::{Igmp, IgmpLink, IgmpLinks, build, reasons};

use link::Settings;
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("igmp", include_str!("lib.rs"), build)
    .realm(Realm::Control)
    .summary("tells routers of the groups that the host is a member of")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT))
    .numbers(&[("ip", 2)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("watched-link", "from below: an interface, on which no group is joined"),
        question("group-changed", "from below: a group, and the sources that are wanted of it"),
        own_question::<IgmpLinks>("its interfaces: version, and number of groups"),
    ])
    .reasons(&[&reasons::NO_GROUP, &reasons::NO_ALERT, &reasons::ASTRAY]);
