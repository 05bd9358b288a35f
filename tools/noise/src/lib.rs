//! # Synopsis
//! `noise WIRE to="10.0.0.1" ether="02:00:00:00:00:01"` — sends frames that no host should send, to
//! test how a host withstands them.
//!
//! # Participants
//! None: it makes whole frames, in the name of hosts that do not exist.
//!
//! # Behaviour
//! It sends `rate` frames a second, in groups of a millisecond, all different, all from one seed.
//! `kind` selects the frames: `arp` (requests, replies, announcements and conflicts of forged
//! hosts), `fragments` (tiny, overlapping, never complete, beyond the longest datagram, twice),
//! `udp` (right and wrong, for the port and others), `icmp` (requests, errors with forged quotes,
//! redirects, unknown types), `ip` (headers with any version, length, option, protocol and
//! checksum), `ethernet` (headers of all kinds and octets of no kind), `sessions` (valid datagrams,
//! each from a new peer), `pings` (the same for echo requests), `segments` (TCP's, right and wrong,
//! with any flags and options), `syns` (valid SYNs for the port, each from a new peer), `calls` (of
//! ONC RPC, by datagrams, each from a new peer), `connects` (SYNs as well; the handshake is
//! completed if the answer comes along the link), `replays` (packets that others sent to the target
//! along the link, each time with another host in place of the sender's address, wherever it
//! stands), `appletalk` (AARP, and datagrams of all protocols on DDP), or `mixed`: any of these
//! except the last four.
//!
//! With `node` the target is that node of AppleTalk, and packets for it are replayed. `port` is
//! then a socket, and a forged host is the node with its last three octets, of network 256 or
//! above.
//!
//! When the wire is full, the rest of the group waits for the next one. With `answers` it answers
//! ARP requests for the hosts that it pretends to be, so that the victim's cache fills with
//! confirmed entries.
//!
//! Use it only against your own hosts.
//!
//! Its `report` has `sent`, `refused` (by the wire), `received`, `answered`. It has finished when
//! `count` frames are sent; without a count it counts as finished from the start.
//!
//! # Example
//! ```kdl
//! host attacker {
//!     sim   link=lan
//!     noise sim to="10.0.0.1" ether="02:00:00:00:00:01" kind=fragments rate=10000 seed=7
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod generator;
mod protocol;

pub use generator::{FRAME_OCTETS_MAX, Generator, Kind, Target};
pub use protocol::{Noise, build};

use core::time::Duration;
use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{
    Family, Guarantees, ParamKind, Realm, duration, flag, int, optional, required, text, word,
};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("noise", include_str!("lib.rs"), build)
    .summary("sends frames that nobody should send")
    .on(&[Realm::Wire, Realm::Async], &[Family::Link])
    .needs(Guarantees::OPEN)
    .parameters(&[
        required("to", ParamKind::Text("an IPv4 address, such as 10.0.0.1"),
            "the host that is attacked"),
        required("ether", ParamKind::Text("a hardware address, such as 02:00:00:00:00:01"),
            "its station"),
        optional("node", ParamKind::Text("a node of AppleTalk, such as 10.18"),
            "its node, for `appletalk` and `replays` of that"),
        int("port", 1..=65_535, 7, "a port that it may take datagrams for"),
        text("sources", "an IPv4 network, such as 10.0.0.0/8", "10.0.0.0/8",
            "the network that forged hosts lie in"),
        word("kind", Kind::WORDS, "mixed", "what is sent"),
        int("rate", 1..=100_000_000, 1000, "frames a second"),
        int("count", 0..=i64::MAX, 0, "how many frames; 0 for no end"),
        duration("start", Duration::ZERO, "the delay before the first frame"),
        int("seed", 0..=i64::MAX, 0, "the frames depend on it alone; 0 for one of the kernel's"),
        flag("answers", false, "whether forged hosts can be found by ARP"),
    ])
    .questions(&[question("report", "frames sent, refused by the wire, received")]);
