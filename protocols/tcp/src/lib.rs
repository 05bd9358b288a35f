//! # Synopsis
//! `tcp LOWER` — Transmission Control Protocol: streams of octets between ports, complete, in order
//! and once.
//!
//! # Participants
//! A port on top of what the layer below needs: `port7@10.0.0.2`.
//!
//! - `open`: local `port5000@10.0.0.1`, where port and host may be `*` (an ephemeral port, the host
//!   that the route gives); peer `port7@10.0.0.2`, both definite. Each opening is a connection of
//!   its own: ends in use are refused.
//! - `open_enable`: `port7`, `port7@*` or `port7@10.0.0.1`.
//!
//! # Above
//! Anything that understands streams: octets arrive in order, but cut differently from how they
//! were pushed. `open` answers at once; what happens then is told by `stream-notice`, as the kit's
//! `stream` describes. A protocol that does not know these questions can still send and receive:
//! its stream ends when the peer's does, and without a hold on the session it gets no more octets
//! than it could send back.
//!
//! # Below
//! One protocol whose participants are hosts, a link with one other end, or one with ports,
//! such as `host-udp`: then `local` says which port peers reach it at, and participants have that
//! port as well, as in `port7@port9000@10.0.0.2`. All that is asked of it is a pseudo-header, the
//! sizes of its packets and the two hosts; what it does not know is done without, as `udp` has no
//! pseudo-header for others: its own checksum covers the hosts.
//!
//! # Behaviour
//! A connection is found by the lower session and both ports. A SYN to a port that is enabled is
//! answered from a small note in a bounded table, and without a note by a SYN cookie when that is
//! full; the session is made when the peer answers, told by `open_done`, and belongs to the
//! protocol that enabled. That is asked before both (`stream-room`): where it has no room, the SYN
//! or the acknowledgement is dropped, and the peer tries again; so it is where `open_done` finds no
//! room on the way to another address space. What no port takes is answered by a
//! reset. A connection ends with the session below, and says that the host is unreachable.
//!
//! Octets pushed stay in their buffers, of which each segment, and each that is sent again, is a
//! reference. The receive buffer grows up to its maximum as fast as the peer fills it.
//! Acknowledgements are delayed, but every second full segment has one, and so have the first
//! sixteen, and those behind a pause, unless answers follow. Lost segments are found by time and by
//! selective acknowledgements and sent again; how much may be under way the congestion control
//! says. Segments are sent whole; if they are too large for the path, they become smaller, and
//! after a while a larger one is tried again. No segment has octets of two records
//! (`stream-end-record`).
//!
//! When the last holder closes, what was pushed is still sent, then the end of the stream; what
//! arrives then breaks the connection off. Small notes of ended connections remain for `time_wait`;
//! a new connection takes their place when its numbers are clearly later.
//!
//! With `fast_open`, or where that is set for it (`stream-set-next`), a connection of this host is
//! a Fast Open: the first one asks the peer for a cookie, later ones bring it and the first octets
//! with the SYN, if they come within 40 ms. Such a stream says that it is connected at once. What
//! the peer does not take goes behind the handshake, a SYN that goes again has neither, and where
//! these get lost or are passed over none is tried for a minute, doubled each time in a row. With
//! `fast_open_max`, or where the protocol above says so (`stream-room`), peers get cookies and may
//! do the same: `open_done` comes with the SYN, and answers go before the handshake is done. Octets
//! of a SYN may come twice, if the network or the peer repeats it after the connection has ended:
//! it is for protocols that bear that.
//!
//! With `ecn` the two sides tell each other of packets that routers have marked, once in a round
//! trip; with `accurate_ecn` how many there were, where the peer can (AccECN), and how many octets
//! came with which mark, if an option for that passes and finds room. Marked packets reduce the
//! window once in a round trip either way. Where flags or marks are changed on the way
//! nothing more of this side may be marked.
//!
//! Urgent data are ordinary data (RFC 6093): the pointer is ignored.
//!
//! A connection goes on at another place if it is asked to (the kit's `moving`): `give-state`
//! stops a session and answers all that the connection is, with the octets that wait on either
//! side; once all was fetched, the session ends without a FIN or a reset, and for ten seconds
//! nothing that comes for its ends is answered. `take-state` brings it to another TCP, in this
//! kernel or another, where the next `open` between the same ends goes on with it, with what came
//! for it from the first part on, and tells the peer by an acknowledgement. Any state moves,
//! TIME-WAIT and half-closed ones, too. `keep-ends` keeps the ends of a connection that is
//! elsewhere for as long as it is: nothing that comes for them is answered, and no other connection
//! gets them.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim  link=lan
//!     eth  sim
//!     arp  eth
//!     ip   arp { address "10.0.0.1/24"; }
//!     tcp  ip
//!     echo tcp port=7
//! }
//! ```
//!
//! # Standard
//! RFC 9293; 2018, 2883, 3168, 4821, 4987, 5482, 5681, 5927, 5961, 6093, 6191, 6298, 6528, 6582,
//! 6691, 6928, 6937, 7323, 7413, 8985, 9768.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod checks;
pub mod congestion;
pub mod connection;
mod cookie;
mod errors;
mod fast;
mod firsts;
mod isn;
pub mod loss;
mod moving;
pub mod options;
mod origin;
mod output;
mod passive;
mod pending;
mod protocol;
mod relief;
pub mod seq;
mod session;
pub mod state;
mod table;
pub mod wire;

pub use connection::{Connection, Settings};
pub use protocol::{Tcp, add, build};
pub use seq::Seq;
pub use state::State;

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, Needed, NeededOn, Realm, Service, StackingRules, question,
};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("tcp", include_str!("lib.rs"), build)
    .replaceable()
    .summary("Transmission Control Protocol: streams of octets between ports")
    .above(Family::Port)
    .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Link, Family::Port])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT).and(Guarantees::WHOLE)
        .and(Guarantees::REPLY).and(Guarantees::PROMPT))
    .service(Service::changing(
        Guarantees::STREAM.and(Guarantees::EXACT).and(Guarantees::ORDER).and(Guarantees::RELIABLE),
        Guarantees::WHOLE))
    .header_octets(wire::HEADER_LEN)
    .stacking_rules(&StackingRules {
        needed: &[Needed {
            parameter: "local",
            on: NeededOn::Family(Family::Port),
            why: "peers find it there at a port of that layer, and nothing says which",
            instead: "name one: `local=\"port9000\"`",
        }],
        ..StackingRules::NONE
    })
    .numbers(&[("ip", wire::IP_PROTOCOL as u32)])
    .parameters(table::Limits::PARAMETERS)
    .questions(&[
        question("my-port", "the local port of a session"),
        question("peer-port", "the peer's port of a session"),
        question("needs-pseudo-header", "its checksum covers the hosts of the layer below"),
        question("peer-proved", "of a session: the handshake is done"),
        question("max-packet", "the send buffer, in octets"),
        question("opt-packet", "octets of data in a segment"),
        question("give-state", "a part of a session's state, which stops and moves"),
        question("take-state", "a part of a state that a session elsewhere has given"),
        question("half-open", "makes the sessions of peers that have not answered our SYN"),
        question("stream-space", "how many octets a push takes now"),
        question("stream-shutdown", "ends this side's direction behind what was pushed"),
        question("stream-end-record", "what was pushed ends a record"),
        question("stream-abort", "breaks the connection off"),
        question("stream-consumed",
            "opens the window of a receiver that says what it has consumed"),
        question("stream-set", "sets something, of a session or for all to come"),
        question("stream-info", "how the connection stands"),
        question("stream-connected", "whether it is still connecting, and what hears once it is not"),
        question("stream-use", "how much the peer uses the connection"),
        question("stream-soft-error", "what the network says against it that is no proof"),
        question("is-outstanding", "whether a segment of a connection is not acknowledged"),
        question("keep-ends", "keeps the ends of a connection that is elsewhere"),
    ])
    .reasons(&[
        &relief::HELD,
        &connection::receive::TOO_MANY_PIECES, &connection::receive::DUPLICATE,
        &connection::arrive::OLD_TIMESTAMP, &connection::arrive::OUT_OF_WINDOW, &connection::arrive::BAD_ACK,
        &connection::arrive::BLIND_RESET, &connection::arrive::BLIND_SYN,
        &connection::arrive::NO_ACK, &connection::arrive::NOT_READ, &passive::NOT_NOTED,
        &passive::FAST_OPENS_FULL, &passive::SYN_UNANSWERED, &passive::BAD_HANDSHAKE,
    ]);
