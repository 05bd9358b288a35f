//! # Synopsis
//! `arp ETH` — finds the hardware addresses of IPv4 hosts on a link, and leads messages there.
//!
//! # Participants
//! IPv4 hosts, `10.0.0.2`. The local one may be left open; otherwise it must be an address of this
//! host, which then is the source of ARP requests for the peer.
//!
//! # Behaviour
//! A session leads to one host. While the host's hardware address is known, a message goes directly
//! to the session below, under the upper protocol's own type number. Messages from the host come up
//! to the upper protocol from the layer below, not through `arp`. The upper protocol is told by
//! `open_done` of each session opened below for it; if it does not tag that session, the session
//! gets the tag of the one above. 255.255.255.255 maps to the broadcast address, a group to its
//! group address; an upper protocol uses 255.255.255.255 for any broadcast on the link.
//!
//! If the address is not known, messages wait (`queue_max` per session and `waiting_max` in all,
//! the oldest dropped as "queue full"), and the host is asked for, at most once a second. If the
//! last request is not answered, the messages are dropped as "unresolved". The upper protocol gets
//! each of them back by `send-error`, or the question `network-error` if it does not answer that
//! one; for a while (`negative`) further messages fail at once. An address that was not confirmed
//! within its `lifetime` is forgotten if it is not in use; otherwise its station is asked directly,
//! and forgotten if it does not answer.
//!
//! A packet updates the entry of its sender if that entry exists or is being resolved; a request
//! for an address of this host makes a new one. Other packets change nothing. A session below that
//! a packet made ends with the packet. When the cache is full, the entry used longest ago without
//! sessions is evicted; if all have sessions, one without an address ("host evicted"), else one to
//! which nothing was sent for long. Packets from group addresses, or from hosts that no station can
//! have, are a "bad source". A packet whose sender is not the station that sent the frame is
//! accepted (proxies send such packets, and RFC 826 does not compare the two) and counted.
//!
//! A host claimed by the upper protocol is announced twice, two seconds apart, and from then on
//! requests for it are answered. With `probe` the other stations are asked first, for up to eight
//! seconds, while messages that need a resolution wait; if one answers, the claim fails and is
//! tried again after a minute. If another station uses an address of this host, `arp` announces the
//! address, at most every ten seconds, counts the conflict, and asks the upper protocols
//! `host-conflict`.
//!
//! Packets of other protocol types with IPv4 addresses in them go to the protocol that takes that
//! type, and change nothing here.
//!
//! It is no `Layer` of the kit: messages from hosts come up without it. It is no `Machine` either:
//! each host has a timer of its own.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap  device="tap0"
//!     eth  tap
//!     arp  eth lifetime="20min"
//!     ip   arp { address "10.0.0.1/24"; }
//! }
//! ```
//!
//! # Standard
//! RFC 826 (all for IPv4 on Ethernet), RFC 1122 section 2.3.2, RFC 5227 sections 2.1 to 2.4, RFC
//! 1112 section 6.4. Not covered: answering for others (RFC 1027), asking for one's own address
//! (RFC 903).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod claim;
mod control;
mod entry;
mod hosts;
mod others;
mod protocol;
mod session;
mod shared;
#[cfg(test)]
mod tests;
mod waiting;
pub mod wire;

pub use claim::CLAIMS_MAX;
pub use control::{ArpEntry, ArpTable};
pub use protocol::{Arp, CONFLICT, LOOPED, UNSOLICITED, build};
pub use shared::{EVICTED, UNRESOLVED};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, Shape, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("arp", include_str!("lib.rs"), build)
    .replaceable()
    .summary("finds the hardware addresses of IPv4 hosts on a link, and leads messages there")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Ether])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::changing(
        Guarantees::RESOLVER.and(Guarantees::HOSTS), Guarantees::REPLY))
    // Packets of its own have a header; messages of those above have none.
    .shape(Shape::Virtual)
    .numbers(&[("eth", 0x0806)])
    .parameters(shared::Config::PARAMETERS)
    .questions(&[
        question("resolve", "the address of a host on the link"),
        question("claim-host", "answers for a host and defends it"),
        question("my-host", "the first host claimed"),
        question("peer-host", "the peer, of a session"),
        question("peer-ether", "the peer's address, of a session"),
        question("host-at", "the host that a hardware address belongs to"),
        question("watch-hosts", "has a protocol asked `host-changed` at every change"),
        question("subscribe-type", "a further protocol type: the asker is asked `arp-reply` and `arp-exchange`"),
        question("send-arp-reply", "sends replies of a further protocol type"),
        own_question::<ArpTable>("the hosts it knows or asks for"),
    ])
    .reasons(&[
        &protocol::CONFLICT, &protocol::UNSOLICITED, &protocol::LOOPED, &shared::UNRESOLVED,
        &shared::EVICTED,
    ]);
