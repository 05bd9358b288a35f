//! # Synopsis
//! `asp ATP` — ASP: sessions of commands, which are executed in their order, each once.
//!
//! # Participants
//! Those of the layer below, passed through: `socket129@node18@net10` is a server's first socket.
//! Its own is `socket`, whatever the local participant says.
//!
//! # Above
//! One protocol that serves, any number that call. It needs no type number.
//!
//! # Below
//! One protocol of transactions, whose options go beside each call: `atp`, of the x-kernel or of
//! another framework, or a filter on one. Its addresses are sockets of AppleTalk.
//!
//! # Behaviour
//! Each open is a session of its own, which is opened with the server at its first call, and again
//! if the server says that it is over. A call is a command with the next number; others of the
//! session wait for their turn, and the next call after one that brought no reply opens another
//! session. A request of more than 578 octets, 4624 at most, is a write: the server asks for its
//! octets. So is one whose attribute `transaction` says by its amount how many of the octets in
//! front are the command block, 578 at most, which goes with the command itself; at the server the
//! request that goes up has both again, and the attribute says so. The server executes a command
//! that has the number whose turn it is, and drops others as "out of turn"; what is refused above
//! comes back as "system error".
//!
//! Both ends say every 30 s that they are there, and end a session of which nothing was heard for 2
//! min. A server has `sessions_max` sessions at one time; then the one gives way that was opened
//! longest ago of those in which no command came, and others are refused. A workstation says once
//! that it closes a session. Status is told without a session.
//!
//! A known limit: when a server crashes, what a workstation still sends in a session of before is
//! taken for one of a new session of that node that has its number, which is one in 256: the number
//! of the first session is drawn by chance.
//!
//! The skeleton of layers of calls does not fit: both ends of a session call each other below.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim        link=lan
//!     eth        sim
//!     aarp       eth
//!     ddp        aarp net="10-19" node=18
//!     atp        ddp
//!     asp        atp status="open"
//!     procedures asp
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 11. Not covered: results other than success, which say
//! no more than that there was an error.
#![no_std]

extern crate alloc;

mod protocol;
mod session;
pub mod wire;

pub use protocol::{Asp, AspAttention, NO_SESSION, OUT_OF_TURN, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("asp", include_str!("lib.rs"), build)
    .summary("ASP: sessions of commands, which are executed in their order, each once")
    .on(&[Realm::Rpc], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::SESSIONS.and(Guarantees::TRANSACTIONS))
    .parameters(Settings::PARAMETERS)
    .questions(&[
        own_question::<AspAttention>("has the workstation of a served session look"),
        question("calls-at-once", "one, of a session that calls"),
        question("max-packet", "the largest request: 4624 octets"),
        question("opt-packet", "the largest request that goes whole: 578 octets"),
    ])
    .reasons(&[&protocol::NO_SESSION, &protocol::OUT_OF_TURN]);
