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
//! # Behaviour
//! Octets arrive above in order, but not in the pieces that were pushed. `open` returns at once,
//! and later events come by `stream-notice`, which the kit's `stream` describes. A protocol that
//! does not know these questions can still send and receive: its stream ends when the peer's does,
//! and without a hold on the session it gets no more octets than it could send back.
//!
//! Below a protocol with ports, such as `host-udp`, can stand in place of hosts: then `local` says
//! which port peers reach it at, and participants have that port as well, as in
//! `port7@port9000@10.0.0.2`. TCP asks the layer below for a pseudo-header, the sizes of its
//! packets and the two hosts, and does without what it does not answer. For example, `udp` gives no
//! pseudo-header, because its own checksum covers the hosts.
//!
//! A connection is found by the lower session and both ports. A SYN to an enabled port is answered
//! from a small note in a bounded table, or by a SYN cookie when the table is full. When the peer's
//! acknowledgement comes, the session is made, announced by `open_done`, and belongs to the
//! protocol that enabled the port. TCP first asks that protocol whether it has room
//! (`stream-room`), at the SYN and at the acknowledgement; without room it drops the segment, and
//! the peer tries again. The same happens if `open_done` finds no room on its way to another
//! address space. A segment for a port that is not taken is answered by a reset. When the session
//! below ends, the connection ends too, and reports that the host is unreachable.
//!
//! Pushed octets stay in their buffers; segments and retransmissions refer to them. The receive
//! buffer grows up to its maximum as fast as the peer fills it. Acknowledgements are delayed. But
//! every second full segment is acknowledged at once, and so are the first sixteen segments and
//! those after a pause, unless answers follow. Lost segments are detected by time and by selective
//! acknowledgements, and sent again; the congestion control limits the octets in flight. Segments
//! have the full size of the path; if they are too large for it, smaller ones are sent, and after a
//! while a larger one is tried again. No segment has octets of two records (`stream-end-record`).
//!
//! When the last holder closes the session, pushed octets are still sent, and then the end of the
//! stream; octets that arrive after that reset the connection. Small notes of ended connections
//! remain for `time_wait`; a new connection may take the place of one if its sequence numbers are
//! clearly later.
//!
//! With `fast_open`, or if it is set for the next connection (`stream-set-next`), a connection of
//! this host uses Fast Open. The first one asks the peer for a cookie. Later ones send the cookie
//! and the first octets with the SYN, if octets are pushed within 40 ms; such a stream reports at
//! once that it is connected. Octets that the peer does not accept are sent after the handshake. A
//! repeated SYN has neither cookie nor octets. If such SYNs get lost or ignored, Fast Open is not
//! tried for a minute, and for twice as long each further time in a row. With `fast_open_max`, or
//! if the protocol above allows it (`stream-room`), peers get cookies and may do the same:
//! `open_done` comes with the SYN, and answers are sent before the handshake is done. The octets of
//! a SYN may arrive twice, if the network or the peer repeats it after the connection has ended. So
//! Fast Open is for protocols that tolerate that.
//!
//! With `ecn` each side reports, once in a round trip, that routers have marked packets. With
//! `accurate_ecn` it reports how many, if the peer can do so (AccECN), and how many octets came
//! with each mark, if the option for it passes and finds space. Marked packets reduce the window
//! once in a round trip in both cases. If flags or marks are changed on the path, this side's
//! packets are no longer marked.
//!
//! Urgent data are ordinary data (RFC 6093): the pointer is ignored.
//!
//! A connection can move to another TCP (the kit's `moving`). `give-state` stops a session and
//! hands out the connection's state, with the octets that wait in either direction. When all parts
//! are fetched, the session ends without a FIN or a reset, and segments for its ends are ignored
//! for ten seconds. `take-state` brings the state to another TCP, in this kernel or another. There
//! the next `open` between the same ends continues the connection, with the segments that have
//! arrived since the first part, and sends the peer an acknowledgement. Every state can move,
//! including TIME-WAIT and half-closed ones. `keep-ends` reserves the ends of a connection that is
//! elsewhere: segments for them are ignored, and no other connection can use them.
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
