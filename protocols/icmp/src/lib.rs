//! # Synopsis
//! `icmp ip` — the Internet Control Message Protocol: answers pings, tells senders of errors, and
//! passes on the errors that others report.
//!
//! # Participants
//! `*, 10.0.0.2`: the local host or `*`, and the host to be pinged.
//!
//! # Behaviour
//! There is nothing to enable: no other protocol answers an echo request.
//!
//! - A message pushed into a session goes as an echo request, with the session's own identifier and
//!   the next sequence number; the payload of the matching reply comes up. Requests are not
//!   repeated.
//! - Echo requests are answered, those to a broadcast or group only with `broadcast_echo` (RFC
//!   1122, section 3.2.2.6). Time stamp requests are answered with `timestamp`; the answer is the
//!   time since the start of the kernel, marked as not being the time of day (RFC 792).
//! - It registers with the layer below as the sender of errors: unreachable (net, host, protocol,
//!   port, fragmentation needed with the next hop's MTU, source route failed, prohibited), time
//!   exceeded and parameter problem. An error quotes as much of the packet as fits 576 octets (RFC
//!   1812, section 4.3.2.3).
//! - No error is sent about an error, a fragment other than the first, a packet to a broadcast or
//!   group, or a packet whose source is not a single host (RFC 1122, section 3.2.2). The rate of
//!   errors to each host is limited (RFC 1812, section 4.3.2.8), and that of answers if the graph
//!   sets a limit; more are dropped as "rate limited". The neighbours of a host (/24) together get
//!   4 times a host's rate, all hosts 64 times. These two limits vary by chance, so that no host
//!   can conclude from its errors how many others get (`kit/src/answers.rs`).
//! - Errors that arrive go down to the layer that sent the packet, and from there to the protocol
//!   above it. Redirects and source quench are ignored (RFC 1812, section 5.2.7.2 for routers; RFC
//!   6633).
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     eth   loopback
//!     arp   eth
//!     ip    arp { address "10.0.0.1/24"; }
//!     icmp  ip
//!     probe icmp to="10.0.0.2" count=4
//! }
//! ```
//!
//! # Standard
//! RFC 792, RFC 1122 section 3.2.2, RFC 1812 section 4.3, RFC 1191, RFC 6633.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod errors;
mod protocol;
pub mod wire;

pub use protocol::{Icmp, IcmpFigures, build, reasons};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, flag, int, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("icmp", include_str!("lib.rs"), build)
    .replaceable()
    .summary("answers pings, tells of errors, passes errors on; sessions ping")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT).and(Guarantees::REPLY))
    .service(Service::changing(Guarantees::NONE, Guarantees::ENABLE))
    .header_octets(wire::HEADER_LEN)
    .numbers(&[("ip", wire::IP_PROTOCOL as u32)])
    .parameters(&[
        flag("broadcast_echo", false,
            "whether echo requests to broadcasts and groups are answered"),
        flag("timestamp", false, "whether time stamp requests are answered"),
        int("errors_per_second", 0..=1_000_000, 16,
            "how many errors it sends to a host per second; 0 for none"),
        int("errors_burst", 1..=1_000_000, 50,
            "how many errors it may send to a host at once after a quiet time"),
        int("answers_per_second", 0..=100_000_000, 0,
            "how many echo and time stamp requests of a host it answers per second; 0: all"),
        int("answers_burst", 1..=1_000_000, 1000,
            "how many it may answer at once after a quiet time, if not all"),
        int("sessions_max", 1..=65_536, 1024, "how many sessions it holds"),
        xk_kit::net::drop_sources::PARAMETER,
    ])
    .questions(&[
        question("send-error", "tells the sender of a packet"),
        question("network-error", "from below: about an echo request"),
        own_question::<IcmpFigures>("what it has answered, sent and been told"),
    ])
    .reasons(&[
        &reasons::BROADCAST, &reasons::IGNORED, &reasons::UNKNOWN_TYPE, &reasons::UNMATCHED_REPLY,
        &reasons::UNMATCHED_ERROR, &reasons::LATER_FRAGMENT, &reasons::NOT_SENT,
        &reasons::NOT_TOLD, &reasons::RATE_LIMITED,
    ]);
