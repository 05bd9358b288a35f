//! # Synopsis
//! `vipadv ARP` — tells the hosts on a link that this host runs virtual protocols, and remembers
//! which others do.
//!
//! # Participants
//! Hosts: those of the layer below, passed through.
//!
//! # Behaviour
//! Above stands `vip` or `vipaddr`, or any protocol that can stand on `arp`, for which nothing
//! changes. Below stands one `arp`, with or without filters between.
//!
//! Opens and enables are passed to the layer below on behalf of the protocol above, so messages do
//! not pass through this layer.
//!
//! The layer announces that this host runs virtual protocols by ARP replies with the protocol type
//! `protocol_type` in place of IPv4's. It sends them to all stations when the graph starts and
//! every `interval` (a tenth more or less), and to one station after each ARP exchange with it.
//! Hosts that do not know the type ignore such packets, as RFC 826 requires (4.3BSD negotiated
//! trailers in this way).
//!
//! A host that announces itself is remembered with its hardware address for `lifetime`; an
//! announcement of another station for the same host replaces the address. A full table evicts the
//! host heard longest ago, first among hosts that no protocol has asked for. Each watcher is told
//! of each change.
//!
//! `watch-hosts` also passes on reports of the layer below; for a host that is not in the table,
//! `host-at` is passed down. From below it takes `arp-reply`, `arp-exchange` and `host-changed`;
//! other questions go below.
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
//! Techniques" (1989), section 3.1 ("a more general solution"); the packet of RFC 826; the
//! negotiation that RFC 1122, section 2.3.1, describes for trailers (RFC 893).

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
