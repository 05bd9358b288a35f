//! # Synopsis
//! `igmp ip` — the Internet Group Management Protocol, versions 1 to 3, of a host: reports to
//! routers the groups that the host is a member of.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! The layer below announces every interface, and every change of the sources from which an
//! interface accepts packets to a group. Nothing is reported for 224.0.0.1, nor on an interface
//! without a host address.
//!
//! - *Changes* are reported at once, and again after a random time of at most
//!   `unsolicited_interval`, `robustness` times in all. Changes in between are merged (RFC 3376,
//!   section 5.1). Groups that change at the same time share reports, then and later.
//! - *Queries* are answered after a random time of at most the query's limit, or of 100 ms if the
//!   limit is lower. Queries that arrive in between share the answer (section 5.2).
//! - *Older routers*: after a general query of version 1 or 2 the interface speaks that version,
//!   for the time of section 8.12, and does not report sources. Another member's report then
//!   replaces this host's. Only version 2 has a message for the end of a membership, a Leave; the
//!   member that reported the group last sends it.
//! - A router of version 3 announces its robustness and query interval, which then replace the
//!   parameters.
//! - With `querier=#true` general queries are sent every `query_interval`, the first `robustness`
//!   of them at a quarter of that interval. A snooping switch needs this on a link without a
//!   router. No table of members is kept, and no query sent while a host with a lower address sends
//!   them.
//! - Packets have a time to live of 1, the traffic class 0xc0 and the option Router Alert, and fit
//!   the interface's MTU. They are not delivered to this host. At most 64 are sent at once, the
//!   next ones 10 ms later.
//!
//! Version 3 reports of others, all Leaves and packets on unknown interfaces count as "not mine".
//!
//! # Security
//! Every host of a link can send queries, and reports for any group. Answers about all groups are
//! at least one second apart, answers about one group 100 ms; if more than 64 sources of a group
//! are queried, the answer covers the whole group. A forged query of version 1 or 2 switches the
//! interface to that version. In these versions a forged report suppresses a host's own report
//! until the next query. Queries of versions 2 and 3 without Router Alert, which routers may
//! forward, are dropped, as are general queries to other groups than 224.0.0.1.
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
//! (RFC 3376, section 6, except for queries about all groups); suppression of version 3 reports by
//! reports of older versions (section 7.2.2).
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
