//! # Synopsis
//! `vipadv ARP` — tells the hosts on a link that this one runs virtual protocols, and remembers
//! which of them do.
//!
//! # Participants
//! Hosts: those of the layer below, passed through.
//!
//! # Behaviour
//! Above stands `vip` or `vipaddr`, or any protocol that stands on `arp`, which notices nothing;
//! below one `arp`, perhaps below layers that only look on.
//!
//! Whatever is opened or enabled here is opened or enabled below, in the name of the protocol
//! above: messages do not pass.
//!
//! The layer says that this host runs virtual protocols in replies of address resolution whose
//! protocol type is not IPv4's but `protocol_type`: to all when the graph starts and every
//! `interval` (a tenth more or less), and to one station after each exchange of addresses with it.
//! Hosts that do not know the type ignore such packets, as RFC 826 demands (4.3BSD negotiated
//! trailers this way).
//!
//! A host that says so is remembered with its hardware address for `lifetime`; what another station
//! says in its name replaces that. In a full table the host heard longest ago gives way, of those
//! that were not asked about if there are any. Each watcher is told of each change.
//!
//! `watch-hosts` also passes on what the layer below tells; `host-at` is asked below for a host
//! that the table does not have. From below it takes `arp-reply`, `arp-exchange` and
//! `host-changed`; other questions go below.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap    device="tap0"
//!     eth    tap
//!     arp    eth
//!     vipadv arp
//!     ip     arp { address "10.0.0.1/24"; }
//!     vip    vipadv ip
//!     fragment vip
//!     echo fragment
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel: Evaluating New Design
//! Techniques" (1989), section 3.1 ("a more general solution"); the packet of RFC 826; the manner
//! of negotiating that RFC 1122, section 2.3.1 names for trailers (RFC 893).

mod protocol;
mod table;

pub use protocol::VipTable;
pub use table::VipHost;

use protocol::Settings;
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Shape, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("vipadv", include_str!("vipadv.rs"), protocol::build)
    .summary("tells the hosts on a link that this one runs virtual protocols, and remembers which of \
              them do")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .needs(Guarantees::OPEN.and(Guarantees::RESOLVER))
    .shape(Shape::Virtual)
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("runs-virtual", "whether a host runs virtual protocols"),
        question("watch-hosts", "tells of every change"),
        question("host-at", "the host that a hardware address belongs to"),
        own_question::<VipTable>("the hosts that run virtual protocols"),
        question("list-maps", "hosts: those that run virtual protocols"),
    ])
    .reasons(&[&protocol::EVICTED]);
